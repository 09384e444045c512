/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring itself: one rank's buffers, kernels and transport, and a pass through them.
 * A pass computes this rank's rows of softmax(Q K^T / sqrt(head_dim)) V into a running
 * state (O fp32 normalised, L natural log-sum-exp), block by block as KV comes round,
 * the next block being received and the present one passed on meanwhile.
 */
#ifndef HCP_RING_H
#define HCP_RING_H
#include <mpi.h>
#include "executor/schedule.h"
#include "kernels/registry.h"
#include "profiler/transport.h"

typedef struct ring ring;

struct ring_config {
    const hcp_plan *plan; /* must outlive the ring */
    int32_t rank;         /* plan rank = rank in comm */
    MPI_Comm comm;        /* of all the plan's ranks */
    const hcp_runtime *runtime;
    hcp_device_ref device;
    const hcp_provider *provider;
    const char *transport; /* "mpi" "nccl" */
    int32_t sub_blocks;
    int barrier;  /* all ranks synchronise after every step */
    int32_t buffers; /* KV blocks beside its own that a rank can hold, >= 1; the plan's 0
                        (no limit) is one for each step */
    uint64_t seed;
    double timeout_s;
};

/* What one rank measured in one pass, in ms. Times count from the pass's start on this
 * rank, taken after all ranks have met. */
struct ring_times {
    double total_ms;    /* start to the end of its last block */
    double compute_ms;  /* kernels and merging */
    double wait_ms;     /* total - compute: blocks that were not there yet, gaps */
    double transfer_ms; /* time during which it received or sent */
};

/* Allocates, plans every call, fills Q, K and V (values depend on the seed and the
 * position in the sequence alone, so that any split has the same inputs). Collective;
 * on failure of any rank all fail, with the text of the lowest rank that has one. */
int ring_open(const struct ring_config *config, ring **out, struct hcp_err *err);
/* One pass; collective over the ranks with tokens (others return zeros at once, but for
 * barriers). step_ms NULL or [m][4]: ready, start, busy, end of each step, ready NaN for
 * a block that is not received. */
int ring_pass(ring *r, struct ring_times *out, double (*step_ms)[4], struct hcp_err *err);
void ring_close(ring *r); /* collective after a good pass; accepts NULL */

/* For verification: this rank's tensors as the pass left them. Q, K, V in the plan's
 * dtype, [batch][heads or kv_heads][tokens][head_dim]; O fp32 likewise; L fp32
 * [batch][heads][tokens]. Device pointers. */
struct ring_tensors {
    const void *q, *k, *v;
    const float *o, *lse;
};
void ring_tensors_of(const ring *r, struct ring_tensors *out);
const struct ring_schedule *ring_schedule_of(const ring *r);
const char *ring_transport_name(const ring *r);
/* One line: the kernel's description of this rank's largest call. */
void ring_describe(const ring *r, char *text, size_t size);

#endif
