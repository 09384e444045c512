/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/schedule-documents.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A rank's parts, and those of them that come from the place before and go to the next.
 */
struct place {
    int32_t rank; /* plan rank */
    const hcp_document_part *parts;
    int64_t n, in, out; /* numbers of these parts; -1: none */
};

static void look(const hcp_documents_plan *plan, int32_t rank, struct place *p)
{
    const hcp_documents_rank *r = &plan->ranks[rank];

    *p = (struct place){rank, plan->parts + r->first_part, r->n_parts, -1, -1};
    for (int64_t i = 0; i < p->n; i++) {
        const hcp_document_part *part = &p->parts[i];

        if (part->offset > 0)
            p->in = i;
        if (part->offset + part->length < plan->lengths[part->document])
            p->out = i;
    }
}

static int no_memory(struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED, "out of memory for the schedule");
}

/* The parts as calls of the own block; where those of a cut document are in it. */
static int add_own(const hcp_documents_plan *plan, const struct place *p,
                   struct ring_schedule *s)
{
    struct ring_step *own = &s->steps[0];
    int64_t at = 0;

    for (int64_t i = 0; i < p->n; i++) {
        int64_t length = p->parts[i].length;

        s->calls[s->n_calls++] = (struct ring_call){.row = at,
                                                    .rows = length,
                                                    .keys = length,
                                                    .causal = plan->causal != 0,
                                                    .key = at};
        if (i == p->out) {
            own->send = 1;
            s->send_pieces = calloc(1, sizeof *s->send_pieces);
            if (!s->send_pieces)
                return -1;
            s->send_pieces[0] = (struct ring_piece){.first = at, .tokens = length};
            s->n_send_pieces = 1;
        }
        at += length;
    }
    s->tokens = s->kv_tokens = at;
    own->block_of = p->rank;
    own->tokens = at;
    own->n_pieces = 1;
    s->pieces[s->n_pieces++] = (struct ring_piece){.tokens = at, .n_calls = s->n_calls};
    return 0;
}

/* First row of a part. */
static int64_t row_of(const struct place *p, int64_t part)
{
    int64_t row = 0;

    for (int64_t i = 0; i < part; i++)
        row += p->parts[i].length;
    return row;
}

/* The blocks of the earlier parts of the document that comes in, nearest first. */
static int add_blocks(const hcp_documents_plan *plan, const int32_t *active,
                      const struct place *p, struct ring_schedule *s, struct hcp_err *err)
{
    const hcp_document_part *part = p->in < 0 ? NULL : &p->parts[p->in];
    int64_t before = part ? part->offset : 0;

    for (int32_t k = 1; before > 0; k++) {
        struct ring_step *step = &s->steps[k <= s->index ? k : 0];
        struct place from = {.out = -1};

        if (k <= s->index)
            look(plan, active[s->index - k], &from);
        if (from.out < 0 ||
            from.parts[from.out].document != part->document ||
            from.parts[from.out].offset + from.parts[from.out].length != before)
            return hcp_fail(err, HCP_FAILED,
                            "document %" PRId64
                            " of the plan is not on neighbouring ranks; "
                            "make the plan anew with 'hcp-plan split --documents --json'",
                            part->document);
        before -= from.parts[from.out].length;
        *step = (struct ring_step){.block_of = from.rank,
                                   .tokens = from.parts[from.out].length,
                                   .receive = 1,
                                   .send = p->in == p->out,
                                   .piece = s->n_pieces,
                                   .n_pieces = 1};
        s->pieces[s->n_pieces++] =
            (struct ring_piece){.tokens = step->tokens, .call = s->n_calls, .n_calls = 1};
        s->calls[s->n_calls++] = (struct ring_call){
            .row = row_of(p, p->in), .rows = part->length, .keys = step->tokens};
        s->max_block = step->tokens > s->max_block ? step->tokens : s->max_block;
    }
    return HCP_OK;
}

int ring_schedule_documents(const hcp_documents_plan *plan, int32_t rank,
                            struct ring_schedule *out, struct hcp_err *err)
{
    struct ring_schedule s = {.rank = rank,
                              .n_ranks = (int32_t)plan->n_ranks,
                              .index = -1,
                              .before = -1,
                              .after = -1,
                              .outer_before = -1,
                              .outer_after = -1};
    int32_t *active = calloc(plan->n_ranks + 1, sizeof *active);
    struct place p;
    int rc = HCP_OK;

    if (!active)
        return no_memory(err);
    if (rank < 0 || (size_t)rank >= plan->n_ranks) {
        free(active);
        return hcp_fail(err, HCP_FAILED,
                        "rank %" PRId32
                        " is outside the plan of %zu ranks; start as many "
                        "processes as the plan has ranks",
                        rank, plan->n_ranks);
    }
    for (int32_t r = 0; r < s.n_ranks; r++) {
        if (plan->ranks[r].n_parts == 0)
            continue;
        if (r == rank)
            s.index = s.m;
        active[s.m++] = r;
    }
    if (s.index >= 0) {
        look(plan, rank, &p);
        if (s.m > 1) {
            s.before = active[(s.index + s.m - 1) % s.m];
            s.after = active[(s.index + 1) % s.m];
        }
        s.steps = calloc((size_t)s.m, sizeof *s.steps);
        s.pieces = calloc((size_t)s.m, sizeof *s.pieces);
        s.calls = calloc((size_t)(p.n + s.m), sizeof *s.calls);
        for (int32_t k = 1; s.steps && k < s.m; k++) /* none, unless one comes */
            s.steps[k].block_of = active[(s.index - k + s.m) % s.m];
        if (!s.steps || !s.pieces || !s.calls || add_own(plan, &p, &s))
            rc = no_memory(err);
        if (rc == HCP_OK)
            rc = add_blocks(plan, active, &p, &s, err);
    }
    free(active);
    if (rc) {
        ring_schedule_free(&s);
        return rc;
    }
    *out = s;
    return HCP_OK;
}
