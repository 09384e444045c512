/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank does in a ring: which blocks it receives, computes and passes on, from
 * nothing but the plan. Pure C: no MPI, no device.
 *
 * The m ranks with tokens (queries, or KV) are the ring, in plan order; block k of rank i
 * is the KV of the k-th of them before i (block 0: its own), or, in a plan with late KV,
 * of the rank that schedule-late.h says. A block travels only as far as the last rank
 * that has work on it. It travels in `sub_blocks` pieces (hcp_piece_cut() of geometry.h),
 * empty ones left out.
 *
 * With two levels (rings of rings, hcp_plan.inner_ranks) the w ranks with tokens of each
 * node are an inner ring, and those at the same place of all nodes an outer one: step j w
 * + s of rank b of node a has the KV of rank b - s of node a - j. The blocks with s = 0
 * come over the outer ring and are passed on in both, the others over the inner one.
 * Blocks are whole then.
 *
 * A rank's tokens lie in memory in the order of its segments, its KV in that of its own
 * where the plan splits the two apart (joint). Under a causal mask a row sees a prefix of
 * a block: rows that see equally many keys are one FULL call, rows that see one key more
 * each are one causal call (hcp_piece_calls() of geometry.h). Where KV goes with its
 * queries, the own block is one causal square and every foreign piece FULL calls alone.
 */
#ifndef HCP_RING_SCHEDULE_H
#define HCP_RING_SCHEDULE_H
#include "db/error.h"
#include "planner/hcpplan.h"

/* Own rows [row, row + rows) against `keys` keys of a piece. */
struct ring_call {
    int64_t row, rows, keys;
    int causal; /* row i of the call sees keys j <= i + keys - rows */
    int64_t key; /* the first of them in the piece; 0 but of documents and chunks */
    int merges;  /* of the own block: its rows have a state from a call before it */
};

/* Own rows [row, row + rows). */
struct ring_rows {
    int64_t row, rows;
};

struct ring_piece {
    int64_t first, tokens; /* of the block; tokens > 0 but for an own block without KV */
    size_t call, n_calls;  /* in ring_schedule.calls */
};

struct ring_step {
    int32_t block_of; /* plan rank whose KV it is */
    int64_t tokens;   /* of that block */
    int receive;      /* it comes here from the rank before (step 0: never) */
    int send;         /* it is passed on to the rank after */
    int send_out;     /* two levels: ... and to that of the next node */
    size_t piece, n_pieces; /* in ring_schedule.pieces; step 0: one piece of all calls,
                               though it is sent in several (send_pieces) */
};

struct ring_schedule {
    int32_t rank, n_ranks;  /* plan ranks */
    int32_t m, index;       /* ranks with tokens, and which of them this is; -1: none */
    int32_t before, after;  /* plan ranks it receives from and sends to; -1: m < 2 */
    int32_t inner;          /* two levels: ranks of an inner ring, that of before and
                               after; 0: one ring */
    int32_t outer_before, outer_after; /* likewise, in the outer ring */
    int64_t tokens;         /* rows: queries */
    int64_t kv_tokens;      /* of the own block */
    int64_t max_block;      /* tokens of the largest block received; 0: none */
    int32_t own_after;      /* step whose block is sent just before the own one; 0: the
                               own one first. Others are sent in the order of the steps */
    struct ring_step *steps; /* [m]; none when index is -1 */
    struct ring_piece *pieces;
    struct ring_call *calls;
    size_t n_pieces, n_calls;
    /* The own block as it is sent: first and tokens, no calls. */
    struct ring_piece *send_pieces;
    size_t n_send_pieces;
    struct ring_rows *blank; /* rows that see nothing of the own block: their state is
                                empty when the first block comes */
    size_t n_blank;
};

/* Schedule of a rank. HCP_FAILED: sub_blocks < 1, a rank outside the plan, segments that
 * contradict the tokens, no memory. */
int ring_schedule_make(const hcp_plan *plan, int32_t rank, int32_t sub_blocks,
                       struct ring_schedule *out, struct hcp_err *err);
/* Likewise in one chunk of a prompt of seq_len tokens, whose plan is joint: queries of
 * positions [offset, offset + tokens), KV of all up to there, in whole blocks. No segment
 * goes across offset. Calls are those of hcpplan.h, "one prompt in chunks": the keys that
 * all rows see are a call of their own. */
int ring_schedule_chunk(const hcp_plan *plan, int64_t offset, int64_t tokens,
                        int32_t rank, struct ring_schedule *out, struct hcp_err *err);
void ring_schedule_free(struct ring_schedule *schedule); /* accepts a zeroed one */

/* SMs that attention leaves to transfers, but for the last piece that is received, beside
 * which nothing begins. A kernel that holds every SM until its last tile keeps those out
 * that begin in the meantime, so that what is sent in pieces under a long block arrives
 * after it. asked < 0: where the own block is sent or others come in pieces, `channels`
 * (thread blocks of a transfer; 0: not known) for each of the two directions, if that is
 * at most a sixteenth of sm_count; else none. asked >= 0: that many, at most
 * sm_count - 1. Ranks that exchange nothing leave none. */
int32_t ring_schedule_spare_sms(const struct ring_schedule *schedule, int32_t asked,
                                int32_t channels, int32_t sm_count);

/* (query, key) pairs that the schedule computes: what adds up over ranks to the mask's
 * area. */
int64_t ring_schedule_area(const struct ring_schedule *schedule);

#endif
