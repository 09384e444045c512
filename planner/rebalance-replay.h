/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan rebalance: the replay of a trace, and what is printed of it.
 */
#ifndef HCP_REBALANCE_REPLAY_H
#define HCP_REBALANCE_REPLAY_H
#include "planner/options.h"
#include "planner/rebalance-trace.h"

struct replay_args {
    struct plan_args plan;
    const char *file, *trace, *save;
    hcp_rebalance_options options;
    int64_t steps; /* 0: not known */
    int any_layout, all;
};

struct replay {
    const struct replay_args *args;
    struct session *s;
    hcp_rebalance *rebalance;
    hcp_question question;
    double *base_ms;  /* [n] of the plan in the file at factor 1 */
    uint8_t *heard;   /* [n] in the step that runs */
    double *scale;    /* [n] */
    int64_t *tokens;  /* [n] */
    hcp_rank *ranks;  /* [n] */
    hcp_plan trial;   /* with arrays of its own */
    char *last;       /* JSON of the last proposal */
    hcp_table *table; /* or */
    json_t *events;
    int64_t steps, moves, shown;
    double stay_ms, run_ms, cost_ms; /* in all */
    int moved;                       /* the plan is no longer that of the file */
    struct move_ways ways;           /* of the link that --move-kv moves over */
    hcp_rebalance_reason before;
    int stuck, ended;
    int64_t counted; /* steps that are in stay_ms and run_ms */
};

/* What a plan's shares take at factors, into p->trial; NaN: outside the measured lengths.
 */
double replay_makespan(struct replay *p, const hcp_plan *plan, const double *scale);
/* All steps of args->trace. */
int replay_trace(struct replay *p, struct hcp_err *err);
/* What came of it; non-zero if printing failed. */
int replay_print(struct replay *p);
/* The last proposal to --save. */
int replay_save(const struct replay *p, struct hcp_err *err);

#endif
