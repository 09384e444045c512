/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of hcp-plan rebalance: CSV of the compute times of ranks, step by step, with the
 * header step,rank,ms.
 */
#ifndef HCP_REBALANCE_TRACE_H
#define HCP_REBALANCE_TRACE_H
#include <stdio.h>
#include "db/db.h"

struct trace {
    FILE *in;
    const char *path;
    char *text;
    size_t room, line, n_ranks;
    int64_t step; /* of the line before */
};

struct trace_time {
    int64_t step; /* -1: the end */
    size_t rank;
    double ms; /* NaN: it failed */
};

/* - is standard input. Close also after a failure. */
int trace_open(const char *path, size_t n_ranks, struct trace *t, struct hcp_err *err);
/* A line; a usage error names it. Steps ascend. */
int trace_next(struct trace *t, struct trace_time *out, struct hcp_err *err);
void trace_close(struct trace *t);

#endif
