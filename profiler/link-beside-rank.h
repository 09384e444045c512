/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-link's part of link --beside.
 */
#ifndef HCP_LINK_BESIDE_RANK_H
#define HCP_LINK_BESIDE_RANK_H
#include "profiler/bench.h"
#include "profiler/link-beside.h"
#include "profiler/link-rank.h"

/* Samples of one block on one rank; sent as they are between two copies of one program,
 * like the rest of a side. */
struct beside_block {
    int n, repeats;  /* samples; passes of each kind in each: the sample is their mean */
    double round_ms; /* the last round, on the clock */
    double ms[HCP_BESIDE_TIMES][HCP_LINK_SAMPLES];
};

struct beside_side {
    char provider[32], version[48];
    struct beside_block block[HCP_BESIDE_BLOCKS];
};

struct link_beside {
    const struct hcp_beside_job *job;
    const struct link_plan *plan;
    struct hcp_bench bench; /* its stream is where computing is queued */
    int opened;
    void *send, *receive, *start, *begun, *done, *next;
    struct link_hold hold;
    struct beside_side sides[2]; /* rank 0 has both after measuring */
};

/* Kernel (checked), plans and memory of a job's blocks. plan: comm, rank, transport and
 * runtime count; both stay the caller's. */
int link_beside_open(struct link_beside *b, const struct hcp_beside_job *job,
                     const struct link_plan *plan, int32_t ordinal, struct hcp_err *err);
/* The second half of that, for one whose job, plan and bench are there. */
int link_beside_ready(struct link_beside *b, struct hcp_err *err);
/* Collective; what is left out does not fit plan->budget_s. A failure may be of one rank
 * alone, and leaves work in flight. */
int link_beside_measure(struct link_beside *b, struct hcp_err *err);
/* Rank 0: the lines of link-beside.h; say() takes each over. */
void link_beside_say(const struct link_beside *b, void (*say)(json_t *line));
/* After the transport is closed, which may have shared the buffers with the other
 * rank. */
void link_beside_close(struct link_beside *b);

#endif
