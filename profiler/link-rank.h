/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of hcp-link.
 */
#ifndef HCP_LINK_RANK_H
#define HCP_LINK_RANK_H
#include "profiler/link.h"
#include "profiler/transport.h"

/* ---- link-end.c: this rank's device and limit ------------------------------ */

/* What the ranks tell each other; sent as it is between two copies of one program. */
struct link_identity {
    char host[64], device[64], name[96], uuid[64];
    int32_t sm_seen, sm_count;
    int32_t failed;
    char error[1024];
};

/* A process that keeps this one at its share of a core, and ends with it. */
struct link_keeper {
    int fd; /* -1: none */
};

/* Before MPI starts: the environment that an mps: limit or the choice of a GPU is, and
 * the keeper of a cpu: limit. */
int link_end_begin(const struct hcp_link_end *end, const char *pipe_dir,
                   const char *log_dir, struct link_keeper *keeper, struct hcp_err *err);
/* Opens the device and proves an mps: limit. *ordinal and *runtime for the transport. */
int link_end_open(const struct hcp_link_end *end, const char *pipe_dir,
                  const char *log_dir, const hcp_runtime **runtime, int32_t *ordinal,
                  struct link_identity *out, struct hcp_err *err);
/* From here on the cpu: limit holds. */
int link_keeper_start(struct link_keeper *keeper, const struct hcp_link_end *end,
                      struct hcp_err *err);
/* HCP_FAILED: the limit held for a part of the time only. */
int link_keeper_check(const struct link_keeper *keeper, struct hcp_err *err);

/* ---- link-exchange.c ------------------------------------------------------- */

struct link_size {
    int64_t bytes;
    int n, repeats; /* samples; exchanges in each: the sample is their mean */
    double ms[HCP_LINK_SAMPLES];
};

struct link_plan {
    MPI_Comm comm; /* two ranks */
    int rank;
    hcp_transport *transport;
    const hcp_runtime *runtime;
    int throttled; /* an end has a cpu: limit below 100 */
    double budget_s;
    struct link_size *sizes; /* ascending */
    size_t n;
    void (*visiting)(int visit, int visits); /* rank 0, before each; NULL: nothing */
};

/* Collective. Fills the sizes' samples, the same on both ranks: the later of the two
 * receives, from a common start. Sizes without samples did not fit the budget. A failure
 * may be of one rank alone. */
int link_measure(struct link_plan *plan, struct hcp_err *err);

#endif
