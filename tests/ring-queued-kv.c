/* SPDX-License-Identifier: Apache-2.0
 *
 * KV that stays where it is, in steps of decode, and KV that moves.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "executor/move.h"
#include "tests/fake-gpu.h"
#include "tests/ring-queued.h"

static uint64_t bits_of(const ring *r)
{
    const float *o, *lse;
    uint64_t sum = 14695981039346656037u; /* FNV-1a */

    ring_decode_result(r, &o, &lse);
    for (int64_t i = 0; i < r->decode->rows * (r->shape.head_dim + 1); i++) {
        uint32_t bits;

        memcpy(&bits, o + i, sizeof bits); /* L lies behind O */
        sum = (sum ^ bits) * 1099511628211u;
    }
    return sum;
}

/* Steps of random plans: all ranks with tokens have the result, and the same bits. */
void queued_decode(struct queued_test *t, int n, int by_nccl)
{
    int held = 0, differ = 0;
    char text[120];

    for (int i = 0; i < n; i++) {
        struct queued_plan p;
        struct ring_errors errors;
        struct ring_times times;
        struct hcp_err err = {0};
        uint64_t bits, least, most;
        ring *r = NULL;
        int m = 0;

        queued_plan_make(t, &p, queued_range(&t->seed, 1, 300));
        p.plan.layout = HCP_LAYOUT_CONTIGUOUS;
        p.plan.causal = p.plan.barrier = 0;
        p.plan.sub_blocks = 1;
        snprintf(p.plan.shape.phase, sizeof p.plan.shape.phase, "decode");
        if (hcp_layout_segments(p.plan.layout, 1, p.plan.n_ranks, p.tokens,
                                p.plan.seq_len, p.segments, RANKS * PARTS,
                                (int64_t[RANKS]){0}) != HCP_STATUS_OK)
            abort();
        for (size_t k = 0; k < p.plan.n_ranks; k++) {
            p.ranks[k].first_segment = m;
            m += p.ranks[k].n_segments = p.tokens[k] > 0;
        }
        p.plan.n_segments = (size_t)m;
        p.plan.merge = m < 2 ? HCP_MERGE_AUTO : (hcp_merge)(HCP_MERGE_RING + i % 3);
        fake_gpu_slow(queued_range(&t->seed, 0, t->comm.size) == t->comm.rank ? 2000 : 0);
        queued_open(t, &p, &r);
        for (int k = 0; k < PASSES; k++) {
            queued_poison(t, r);
            ring_all_ok(&t->comm, HCP_OK, &err);
            if (ring_pass(r, &times, NULL, &err) || ring_verify(r, 40, &errors, &err))
                queued_give_up(t, &err);
            if (!errors.passed && t->wrong++ == 0)
                printf("# rank %d of %d, %s: %s\n", t->comm.rank, t->comm.size,
                       hcp_merge_name(p.plan.merge), errors.text);
        }
        bits = r->decode ? bits_of(r) : 0;
        MPI_Allreduce(&bits, &most, 1, MPI_UINT64_T, MPI_MAX, t->comm.world);
        bits = r->decode ? bits : most;
        MPI_Allreduce(&bits, &least, 1, MPI_UINT64_T, MPI_MIN, t->comm.world);
        differ += least != most;
        t->held += r->ticket;
        t->late += r->go ? r->go[1] : 0;
        ring_close(r);
    }
    snprintf(text, sizeof text,
             "%d plans of decode on %d ranks, %d steps each, are right", n, t->comm.size,
             PASSES);
    queued_point(t, t->wrong == 0, text);
    queued_point(t, differ == 0, "all ranks have the same bits");
    if (!by_nccl)
        return;
    MPI_Allreduce(&t->held, &held, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, held > n, "most steps were held back until all was queued");
    queued_point(t, t->late == 0, "and let go then");
}

/* The last tokens of ranks that have too many, to those that have too few, in order. */
static void make_moves(const struct queued_plan *from, const struct queued_plan *to,
                       hcp_moves *m)
{
    int64_t give[RANKS], take[RANKS];
    size_t n = to->plan.n_ranks, i = 0, k = 0;

    for (size_t r = 0; r < n; r++) {
        give[r] = from->tokens[r] > to->tokens[r] ? from->tokens[r] - to->tokens[r] : 0;
        take[r] = to->tokens[r] > from->tokens[r] ? to->tokens[r] - from->tokens[r] : 0;
    }
    for (; i < n && k < n; i += give[i] == 0, k += k < n && take[k] == 0) {
        int64_t tokens = give[i] < take[k] ? give[i] : take[k];
        int64_t left = tokens, skip = give[i] - tokens, kept = to->tokens[i], at = 0;
        hcp_move *move = &m->moves[m->n_moves];

        if (tokens == 0)
            continue;
        *move = (hcp_move){.from = (int32_t)i,
                           .to = (int32_t)k,
                           .tokens = tokens,
                           .first_segment = (int64_t)m->n_segments};
        /* Local tokens [kept + skip, kept + skip + tokens). */
        for (int64_t s = 0; s < from->ranks[i].n_segments && left > 0; s++) {
            const hcp_segment *seg = &from->segments[from->ranks[i].first_segment + s];
            int64_t first = kept + skip > at ? kept + skip - at : 0;
            int64_t length = seg->length - first < left ? seg->length - first : left;

            at += seg->length;
            if (length <= 0)
                continue;
            m->segments[m->n_segments++] = (hcp_segment){seg->offset + first, length};
            move->n_segments++;
            left -= length;
            skip = kept = 0;
            at = 0;
        }
        give[i] -= tokens;
        take[k] -= tokens;
        m->n_moves++;
    }
}

void queued_moves(struct queued_test *t, int n)
{
    int wrong = 0, unseen = 0, held = 0, found = 0;
    char text[200];

    for (int i = 0; i < n; i++) {
        hcp_move array[RANKS];
        hcp_segment segments[RANKS * STRIPES * 4];
        struct queued_plan from, to;
        hcp_moves m;
        struct hcp_err err = {0};
        struct ring_kv kv[RANKS + 1];
        ring_move *move = NULL;
        int64_t tokens, length = queued_range(&t->seed, 1, 200);
        double ms;

        queued_plan_make(t, &from, length);
        queued_plan_make(t, &to, length);
        to.plan.layers = (int32_t)queued_range(&t->seed, 1, 3);
        for (size_t r = 0; r < from.plan.n_ranks; r++) {
            from.ranks[r].kv_tokens = from.ranks[r].tokens;
            from.ranks[r].first_kv_segment = from.ranks[r].first_segment;
            from.ranks[r].n_kv_segments = from.ranks[r].n_segments;
        }
        hcp_moves_init(&m, array, RANKS, segments, RANKS * STRIPES * 4);
        make_moves(&from, &to, &m);
        const struct ring_move_config config = {.from = &from.plan,
                                                .to = &to.plan,
                                                .moves = &m,
                                                .rank = t->comm.rank,
                                                .comm = &t->comm,
                                                .runtime = t->runtime,
                                                .links = t->links,
                                                .watch = t->watch,
                                                .seed = t->seed};
        if (ring_move_open(&config, &move, &err))
            queued_give_up(t, &err);
        for (int k = 0; k < PASSES; k++) {
            if (ring_move_poison(move, &err) || ring_all_ok(&t->comm, HCP_OK, &err) ||
                ring_move_pass(move, &ms, &err) ||
                ring_move_compare(move, &tokens, text, &err))
                queued_give_up(t, &err);
            if (*text && wrong++ == 0)
                printf("# rank %d: %s\n", t->comm.rank, text);
        }
        if (ring_move_kv(move, kv) > 0) {
            memset((char *)(uintptr_t)kv[0].v, 0x5a, 1);
            if (ring_move_compare(move, &tokens, text, &err))
                queued_give_up(t, &err);
            unseen += !*text;
        }
        ring_move_close(move);
    }
    snprintf(text, sizeof text, "%d transitions of %d ranks, %d times each, are right", n,
             t->comm.size, PASSES);
    MPI_Allreduce(&wrong, &found, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, found == 0, text);
    MPI_Allreduce(&unseen, &held, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, held == 0, "a byte that is not what it should be is found");
}
