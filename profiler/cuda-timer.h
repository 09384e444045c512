/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a kernel on a CUDA stream. Single launches lie between two events each
 * and are queued behind a kernel that holds the stream until the host is done
 * queueing; blocks under 0.1 ms run as nodes of a graph, and a sample is the graph's
 * time over its nodes.
 */
#ifndef HCP_CUDA_TIMER_H
#define HCP_CUDA_TIMER_H
#include "profiler/bench.h"

/* As in cuda_runtime_api.h, which nobody needs who only holds a timer. */
struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

enum {
    HCP_CUDA_EVENTS = 17, /* pairs: up to 16 samples behind one hold */
    HCP_CUDA_GRAPHS = 8   /* graphs that share the round of inputs */
};

struct hcp_cuda_timer {
    struct hcp_bench *bench;
    struct hcp_bench_plan *plan; /* of hcp_cuda_timer_begin */
    struct CUstream_st *stream;
    struct CUevent_st *events[2 * HCP_CUDA_EVENTS];
    int *hold; /* mapped: [0] ticket that may pass, [1] holds that timed out */
    int ticket;
    struct CUgraphExec_st *graphs[HCP_CUDA_GRAPHS];
    int n_graphs, nodes; /* 0: single launches */
    int graph_turn;
    double expect_ms; /* what a run of the next plan is expected to take; 0 unknown */
    double first_ms;  /* the last of the first runs took this */
    int lost;         /* as hcp_device.lost */
    void (*meanwhile)(
        void *ctx); /* called while the device works on samples; NULL: not */
    void *meanwhile_ctx;
};

/* Events and flags, on the bench's stream; close also after a failure. */
int hcp_cuda_timer_open(struct hcp_cuda_timer *t, struct hcp_bench *bench,
                        struct hcp_err *err);
void hcp_cuda_timer_close(struct hcp_cuda_timer *t);

/* First runs of a plan, its choice of method, its graphs; until the next reset. */
int hcp_cuda_timer_begin(struct hcp_cuda_timer *t, struct hcp_bench_plan *plan,
                         struct hcp_err *err);
void hcp_cuda_timer_reset(struct hcp_cuda_timer *t);
/* An hcp_sample_fn; ctx is the timer. */
int hcp_cuda_timer_take(void *ctx, int n, double *ms, struct hcp_err *err);

/* Fills err with the words of a cudaError_t and marks the timer lost. */
int hcp_cuda_timer_fail(struct hcp_cuda_timer *t, int code, const char *doing,
                        struct hcp_err *err);
/* Waits for what is queued; 0, or a cudaError_t. */
int hcp_cuda_timer_sync(struct hcp_cuda_timer *t);
/* Waits for all that this process has on the device: to be called before it ends. */
void hcp_cuda_timer_settle(void);

#endif
