/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of a ring's schedule; nobody else includes it.
 *
 *   schedule.c        steps, pieces, calls
 *   schedule-check.c  does the plan fit together?
 */
#ifndef HCP_SCHEDULE_INTERNAL_H
#define HCP_SCHEDULE_INTERNAL_H
#include "executor/schedule.h"

/* What is needed while a schedule is made. */
struct maker {
    const hcp_plan *plan;
    int is_chunk;
    int64_t offset, end; /* queries are of positions [offset, end), KV of [0, end) */
    int32_t sub_blocks;
    int32_t *active; /* [m] plan ranks with tokens, in ring order */
    int32_t *turn;   /* [m] whose KV each step has, by number in active */
    struct ring_schedule *out;
    size_t pieces_room, calls_room, send_room, blank_room;
    int64_t key; /* first one of the calls that are added, in their piece */
};

/* A rank's queries or its KV. */
struct share {
    int64_t tokens, first, n; /* segments [first, first + n) of the plan */
};

static inline struct share share_of(const hcp_plan *plan, int32_t rank, int kv)
{
    const hcp_plan_rank *r = &plan->ranks[rank];

    if (kv && plan->joint)
        return (struct share){r->kv_tokens, r->first_kv_segment, r->n_kv_segments};
    return (struct share){r->tokens, r->first_segment, r->n_segments};
}

/* HCP_FAILED: sub_blocks < 1, a rank outside the plan, segments that contradict the
 * tokens. */
int schedule_check(const struct maker *k, int32_t rank, struct hcp_err *err);
/* Whether this rank's queries (kv: its KV) and those of block_of are of different tokens.
 */
int schedule_check_apart(const struct maker *k, int32_t block_of, int kv,
                         struct hcp_err *err);

#endif
