/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two files that read a plan's text share.
 */
#ifndef HCP_PLAN_READ_H
#define HCP_PLAN_READ_H
#include "planner/plan.h"

struct reading {
    hcp_plan *plan; /* NULL ranks: only count */
    uint64_t seen, rank_seen;
    unsigned merge_seen;
    size_t n_ranks, n_segments;
    size_t n_kv_lists; /* ranks with kv_segments */
    int kv; /* the segment to come is one of KV */
    double interval[2];
    int n_interval;
    int64_t pair[2];
    int n_pair;
    hcp_plan_rank *rank; /* under construction */
    hcp_place place;
};

/* An element of "ranks": into the plan's arrays, where it has them. */
int plan_read_rank(struct json_in *in, void *reading);

#endif
