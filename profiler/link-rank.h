/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of hcp-link.
 */
#ifndef HCP_LINK_RANK_H
#define HCP_LINK_RANK_H
#include "profiler/link.h"
#include "profiler/topology.h"
#include "profiler/transport.h"

/* ---- link-end.c: this rank's device and limit ------------------------------ */

/* What the ranks tell each other; sent as it is between two copies of one program. */
struct link_identity {
    char host[64], device[64], name[96], uuid[64];
    int32_t sm_seen, sm_count;
    struct hcp_topology_end way;
    int32_t failed;
    char error[1024];
};

/* A process that keeps this one at its share of a core, and ends with it. */
struct link_keeper {
    int fd; /* -1: none */
};

/* Before MPI starts: the environment that an mps: limit, the choice of a GPU or a number
 * of NCCL channels (0: none) is, and the keeper of a cpu: limit. */
int link_end_begin(const struct hcp_link_end *end, const char *pipe_dir,
                   const char *log_dir, int32_t channels, struct link_keeper *keeper,
                   struct hcp_err *err);
/* Opens the device, makes a green: limit and proves it or an mps: one. *ordinal and
 * *runtime for the transport. */
int link_end_open(const struct hcp_link_end *end, const char *pipe_dir,
                  const char *log_dir, const hcp_runtime **runtime, int32_t *ordinal,
                  struct link_identity *out, struct hcp_err *err);
/* From here on the cpu: limit holds. */
int link_keeper_start(struct link_keeper *keeper, const struct hcp_link_end *end,
                      struct hcp_err *err);
/* HCP_FAILED: the limit held for a part of the time only. */
int link_keeper_check(const struct link_keeper *keeper, struct hcp_err *err);

/* ---- link-visit.c ---------------------------------------------------------- */

struct link_size {
    int64_t bytes;
    int n, repeats; /* samples; exchanges in each: the sample is their mean */
    double ms[HCP_LINK_SAMPLES];
};

enum link_ways { LINK_BOTH, LINK_FROM_0, LINK_FROM_1 };

struct link_plan {
    MPI_Comm comm; /* two ranks */
    int rank;
    enum link_ways ways;
    hcp_transport *transport;
    int mesh; /* transport is one: a transfer is an exchange, as KV moves in an executor
               */
    const hcp_runtime *runtime;
    int throttled; /* an end has a cpu: limit below 100 */
    double budget_s;
    double target;           /* held-out error that sizes are added for; NaN: none are */
    struct link_size *sizes; /* [HCP_LINK_SIZES], ascending */
    size_t n;
    void (*visiting)(int visit, int visits); /* rank 0, before each; NULL: nothing */
    int part, parts; /* this is one of so many calls, for visiting */
};

struct link_meter;

static inline int link_sends(const struct link_plan *p)
{
    return p->ways == LINK_BOTH || p->rank == (p->ways == LINK_FROM_1);
}

static inline int link_receives(const struct link_plan *p)
{
    return p->ways == LINK_BOTH || p->rank == (p->ways == LINK_FROM_0);
}

/* Collective. Fills the sizes' samples, the same on both ranks: the later of the two
 * receives, or the only one, from a common start. Sizes are added between them where the
 * curve's held-out error is largest, until it is within the target, the budget is spent
 * or there is no room for more. Sizes without samples did not fit the budget. A failure
 * may be of one rank alone. */
int link_measure(struct link_plan *plan, struct link_meter *meter, struct hcp_err *err);

/* ---- link-exchange.c ------------------------------------------------------- */

/* Buffers of both directions and what times a transfer. Closed after the transport, which
 * may have shared them with the other rank. */
int link_meter_open(const struct link_plan *plan, int64_t bytes, struct link_meter **out,
                    struct hcp_err *err);
void link_meter_close(struct link_meter *m); /* accepts NULL */
/* Collective. ms from the common start until each rank that receives has its block. may
 * hold: both queue their transfers before any starts, so that launching does not count;
 * not the first time, when libraries still load what they need. */
int link_exchange(struct link_meter *m, int64_t bytes, int may_hold, double *ms,
                  struct hcp_err *err);
/* What the last exchange brought here, if any, is what the other rank sends; HCP_FAILED
 * if not. */
int link_verify(struct link_meter *m, int64_t bytes, struct hcp_err *err);

/* ---- link-hold.c ----------------------------------------------------------- */

/* A kernel that holds a stream until both ranks have queued a pass. Without words (the
 * transport blocks the host, or no GPU) nothing is held. */
struct link_hold {
    int *words; /* [0] ticket that may pass, [1] holds that timed out */
    int ticket;
};

int link_hold_open(struct link_hold *h, const struct link_plan *plan,
                   struct hcp_err *err);
void link_hold_close(struct link_hold *h, const struct link_plan *plan);
int link_holds(const struct link_hold *h);
int link_hold_launch(struct link_hold *h, void *stream, struct hcp_err *err);
void link_hold_release(struct link_hold *h, MPI_Comm comm); /* collective */
/* After the pass: HCP_FAILED if a hold timed out. */
int link_hold_check(struct link_hold *h, struct hcp_err *err);

#endif
