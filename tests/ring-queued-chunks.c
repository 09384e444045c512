/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts in chunks, queued: a ring a chunk, on keys and values that stay.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fake-gpu.h"
#include "tests/ring-queued.h"

enum { CHUNKS = 4, SEGMENTS = RANKS * STRIPES * (CHUNKS + 1) };

/* Chunks so far: the tokens of each rank, and where they are in the prompt. */
struct prompt {
    struct queued_plan plan;
    hcp_segment segments[SEGMENTS];
    hcp_segment held[RANKS][STRIPES * CHUNKS];
    int64_t n_held[RANKS], kv[RANKS];
    struct ring_chunk chunk;
};

/* The tokens of the next chunk, some ranks without. */
static void deal(struct queued_test *t, uint64_t *state, struct prompt *p)
{
    int64_t *tokens = p->plan.tokens, left = p->chunk.tokens;
    int32_t n = t->comm.size;

    for (int32_t i = 0; i < n; i++) {
        tokens[i] = queued_range(state, 0, 3) ? queued_range(state, 0, left) : 0;
        left -= tokens[i];
    }
    tokens[queued_range(state, 0, n - 1)] += left;
}

static void add_chunk(struct queued_test *t, uint64_t *state, struct prompt *p)
{
    hcp_segment new[RANKS * STRIPES], *end = p->segments;
    hcp_plan *plan = &p->plan.plan;
    int64_t counts[RANKS], at = 0;

    deal(t, state, p);
    plan->layout =
        (hcp_layout)queued_range(state, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    if (hcp_layout_segments(plan->layout, plan->stripes, plan->n_ranks, p->plan.tokens,
                            p->chunk.tokens, new, RANKS * STRIPES,
                            counts) != HCP_STATUS_OK)
        abort();
    for (size_t r = 0; r < plan->n_ranks; r++) {
        hcp_plan_rank *rank = &p->plan.ranks[r];

        for (int64_t i = 0; i < counts[r]; i++, at++) {
            end[i] = (hcp_segment){p->chunk.offset + new[at].offset, new[at].length};
            p->held[r][p->n_held[r]++] = end[i];
        }
        p->kv[r] += p->plan.tokens[r];
        rank->tokens = p->plan.tokens[r];
        rank->kv_tokens = p->kv[r];
        rank->first_segment = end - p->segments;
        rank->n_segments = counts[r];
        rank->first_kv_segment = rank->first_segment + counts[r];
        rank->n_kv_segments = p->n_held[r];
        end += counts[r];
        memcpy(end, p->held[r], (size_t)p->n_held[r] * sizeof *end);
        end += p->n_held[r];
    }
    plan->n_segments = (size_t)(end - p->segments);
}

static void begin(struct queued_test *t, uint64_t *state, struct prompt *p,
                  int64_t length)
{
    hcp_plan *plan = &p->plan.plan;
    void *kv = NULL;

    memset(p, 0, sizeof *p);
    queued_plan_make(t, &p->plan, length);
    *state = t->seed;
    plan->segments = p->segments;
    plan->segments_capacity = SEGMENTS;
    plan->shape.batch = plan->causal = plan->joint = plan->sub_blocks = 1;
    plan->shape.kv_heads = (int32_t)queued_range(state, 1, 2);
    plan->stripes = (int32_t)queued_range(state, 1, STRIPES);
    plan->barrier = 0;
    /* Room for all of it, as if no other rank came to have any. */
    if (t->runtime->alloc(&kv, length * 2 * plan->shape.kv_heads * plan->shape.head_dim *
                                   (int64_t)sizeof(float)))
        abort();
    memset(kv, 0xff,
           (size_t)(length * 2 * plan->shape.kv_heads * plan->shape.head_dim) *
               sizeof(float));
    p->chunk.kv = kv;
    p->plan.chunk = &p->chunk;
}

/* The KV at the end, and with a byte that is not what it was; what is wrong. */
static int compare_kv(struct queued_test *t, const struct prompt *p, int *unseen)
{
    struct hcp_err err = {0};
    char right[200], wrong[200] = "";
    ring *r = NULL;

    queued_open(t, &p->plan, &r); /* appends the last chunk once more */
    if (ring_chunk_compare(r, right, &err))
        queued_give_up(t, &err);
    if (p->kv[t->comm.rank] > 0) {
        ((unsigned char *)p->chunk.kv)[p->kv[t->comm.rank] - 1] ^= 1;
        if (ring_chunk_compare(r, wrong, &err))
            queued_give_up(t, &err);
        *unseen += !*wrong;
    }
    ring_close(r);
    if (*right)
        printf("# rank %d: %s\n", t->comm.rank, right);
    return *right != 0;
}

void queued_chunks(struct queued_test *t, int n)
{
    int unseen = 0, wrong = 0, held = 0;
    char text[120];

    for (int i = 0; i < n; i++) {
        static struct prompt p;
        int64_t length = queued_range(&t->seed, 1, 400), end = 0;
        uint64_t state;

        begin(t, &state, &p, length);
        for (int k = 0; k < CHUNKS && end < length; k++) {
            p.chunk.offset = end;
            p.chunk.tokens =
                k + 1 == CHUNKS ? length - end : queued_range(&state, 1, length - end);
            end += p.chunk.tokens;
            add_chunk(t, &state, &p);
            fake_gpu_slow(queued_range(&state, 0, t->comm.size) == t->comm.rank ? 3000
                                                                                : 0);
            queued_run(t, &p.plan, PASSES);
        }
        wrong += compare_kv(t, &p, &unseen);
        t->runtime->release(p.chunk.kv);
        t->seed = state; /* the inputs' while the prompt lasted */
    }
    t->wrong += wrong;
    MPI_Allreduce(&t->wrong, &wrong, 1, MPI_INT, MPI_SUM, t->comm.world);
    snprintf(text, sizeof text,
             "%d prompts in chunks on %d ranks, %d passes each, are right", n,
             t->comm.size, PASSES);
    queued_point(t, wrong == 0, text);
    queued_point(t, unseen == 0, "a bit of KV that is not what it was is found");
    MPI_Allreduce(&t->held, &held, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, held > n && t->late == 0,
                 "most passes were held back until all was queued, and let go then");
}
