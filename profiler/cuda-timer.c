/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/cuda-timer.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>
#include "kernels/cuda.h"
#include "profiler/spin.h"

enum {
    GRAPH_NODES = 256, /* runs in one graph */
    /* Kernels behind one hold. A stream takes about 1,000 launches before the next one
     * waits for the device, which would wait for the host in turn. */
    HELD_KERNELS = 384
};
#define GRAPH_BELOW_MS 0.1
#define HOLD_LIMIT_NS 2000000000ull

int hcp_cuda_timer_fail(struct hcp_cuda_timer *t, int code, const char *doing,
                        struct hcp_err *err)
{
    char text[600];
    cudaGetLastError();
    /* A device error stays with the process. */
    t->lost = hcp_cuda_is_mps_error(code) ? HCP_DEVICE_LOST_RETRY : HCP_DEVICE_LOST;
    return hcp_fail(err, HCP_FAILED, "cannot %s: %s", doing,
                    hcp_cuda_explain(code, text, sizeof text));
}

static int bench_fail(struct hcp_cuda_timer *t, int rc, const char *doing,
                      struct hcp_err *err)
{
    if (rc == HCP_RC_DEVICE)
        t->lost = hcp_cuda_is_mps_error(hcp_cuda_last_code()) ? HCP_DEVICE_LOST_RETRY
                                                              : HCP_DEVICE_LOST;
    return hcp_bench_fail(t->bench, rc, doing, err);
}

int hcp_cuda_timer_open(struct hcp_cuda_timer *t, struct hcp_bench *bench,
                        struct hcp_err *err)
{
    *t = (struct hcp_cuda_timer){.bench = bench, .stream = (cudaStream_t)bench->stream};
    cudaError_t e =
        cudaHostAlloc((void **)&t->hold, 2 * sizeof *t->hold, cudaHostAllocMapped);
    if (e == cudaSuccess)
        t->hold[0] = t->hold[1] = 0;
    for (int i = 0; i < 2 * HCP_CUDA_EVENTS && e == cudaSuccess; i++)
        e = cudaEventCreate(&t->events[i]);
    return e == cudaSuccess ? HCP_OK : hcp_cuda_timer_fail(t, e, "create events", err);
}

void hcp_cuda_timer_reset(struct hcp_cuda_timer *t)
{
    for (int i = 0; i < t->n_graphs; i++)
        cudaGraphExecDestroy(t->graphs[i]);
    t->n_graphs = t->nodes = t->graph_turn = 0;
}

/* Queues a kernel that holds the stream, and lets it go. A hold that timed out (the
 * host was slow, or a launch waited for the device) spoils what was behind it. */
static int hold(struct hcp_cuda_timer *t, struct hcp_err *err)
{
    int e = hcp_spin_launch(t->hold, ++t->ticket, HOLD_LIMIT_NS, t->hold + 1, t->stream);
    return e == cudaSuccess ? HCP_OK
                            : hcp_cuda_timer_fail(t, e, "launch the holding kernel", err);
}

static int release(struct hcp_cuda_timer *t, struct hcp_err *err)
{
    *(volatile int *)t->hold = t->ticket;
    if (t->meanwhile)
        t->meanwhile(t->meanwhile_ctx);
    cudaError_t e = cudaStreamSynchronize(t->stream);
    if (e != cudaSuccess)
        return hcp_cuda_timer_fail(t, e, "finish the kernel", err);
    if (*(volatile int *)(t->hold + 1) > 0) {
        t->hold[1] = 0;
        return hcp_fail(
            err, HCP_FAILED,
            "a held launch timed out: the kernel waits for the host in run()");
    }
    return HCP_OK;
}

/* n samples of one launch each, or of one graph each, behind one hold. */
static int take_held(struct hcp_cuda_timer *t, int n, double *ms, struct hcp_err *err)
{
    int rc = hold(t, err);
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < n && rc == HCP_OK && e == cudaSuccess; i++) {
        int run = HCP_RC_OK;
        e = cudaEventRecord(t->events[2 * i], t->stream);
        if (e == cudaSuccess && t->n_graphs > 0)
            e = cudaGraphLaunch(t->graphs[t->graph_turn++ % t->n_graphs], t->stream);
        else if (e == cudaSuccess)
            run = hcp_bench_run(t->bench, t->plan);
        if (run != HCP_RC_OK)
            rc = bench_fail(t, run, "run", err);
        else if (e == cudaSuccess)
            e = cudaEventRecord(t->events[2 * i + 1], t->stream);
    }
    struct hcp_err why = {0};
    int done = release(t, rc == HCP_OK ? err : &why);
    if (rc != HCP_OK)
        return rc;
    if (e != cudaSuccess)
        return hcp_cuda_timer_fail(t, e, "queue a sample", err);
    for (int i = 0; i < n && done == HCP_OK; i++) {
        float elapsed = 0;
        e = cudaEventElapsedTime(&elapsed, t->events[2 * i], t->events[2 * i + 1]);
        if (e != cudaSuccess)
            return hcp_cuda_timer_fail(t, e, "read an event", err);
        ms[i] = t->n_graphs > 0 ? elapsed / (double)t->nodes : elapsed;
    }
    return done;
}

int hcp_cuda_timer_take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct hcp_cuda_timer *t = ctx;
    int most = t->n_graphs > 0 ? HELD_KERNELS / t->nodes : HCP_CUDA_EVENTS - 1;
    if (most > HCP_CUDA_EVENTS - 1)
        most = HCP_CUDA_EVENTS - 1;
    if (most < 1)
        most = 1;
    for (int done = 0; done < n; done += most) {
        int rc = take_held(t, n - done < most ? n - done : most, ms + done, err);
        if (rc != HCP_OK)
            return rc;
    }
    return HCP_OK;
}

/* First runs without a hold: they load modules, which waits for the device. Beside what
 * a slow block takes that is nothing, and one run will do. */
static int first_runs(struct hcp_cuda_timer *t, double *ms, struct hcp_err *err)
{
    *ms = 0;
    for (int i = 0; i < 2 && fmin(*ms, t->expect_ms) < HCP_SLOW_MS; i++) {
        cudaError_t e = cudaEventRecord(t->events[0], t->stream);
        int rc = hcp_bench_run(t->bench, t->plan);
        float elapsed = 0;
        if (rc != HCP_RC_OK)
            return bench_fail(t, rc, "run", err);
        if (e == cudaSuccess)
            e = cudaEventRecord(t->events[1], t->stream);
        if (e == cudaSuccess)
            e = cudaStreamSynchronize(t->stream);
        if (e == cudaSuccess)
            e = cudaEventElapsedTime(&elapsed, t->events[0], t->events[1]);
        if (e != cudaSuccess)
            return hcp_cuda_timer_fail(t, e, "run the kernel", err);
        *ms = elapsed;
    }
    return HCP_OK;
}

/* One graph of nodes runs; 0 when the kernel cannot be captured. */
static int capture(struct hcp_cuda_timer *t, int nodes)
{
    cudaGraph_t graph = NULL;
    if (cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal) !=
        cudaSuccess)
        return 0;
    int rc = HCP_RC_OK;
    for (int i = 0; i < nodes && rc == HCP_RC_OK; i++)
        rc = hcp_bench_run(t->bench, t->plan);
    cudaError_t e = cudaStreamEndCapture(t->stream, &graph);
    if (rc == HCP_RC_OK && e == cudaSuccess && graph)
        e = cudaGraphInstantiate(&t->graphs[t->n_graphs], graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    if (rc != HCP_RC_OK || e != cudaSuccess)
        return 0;
    t->n_graphs++;
    return 1;
}

/* Graphs that between them go once round the inputs: a set comes back only after
 * all others were read. */
static int make_graphs(struct hcp_cuda_timer *t, struct hcp_err *err)
{
    int64_t sets = t->plan->sets, runs = sets;
    while (runs < 16)
        runs += sets;
    if (runs > HCP_CUDA_GRAPHS * GRAPH_NODES)
        runs = HCP_CUDA_GRAPHS * GRAPH_NODES;
    int graphs = (int)((runs + GRAPH_NODES - 1) / GRAPH_NODES);
    t->nodes = (int)(runs / graphs);
    for (int i = 0; i < graphs; i++) {
        if (!capture(t, t->nodes)) {
            hcp_cuda_timer_reset(t);
            t->plan->by_graph = -1;
            return HCP_OK; /* timed by single launches */
        }
    }
    for (int i = 0; i < t->n_graphs; i++) { /* the first launch uploads */
        cudaError_t e = cudaGraphLaunch(t->graphs[i], t->stream);
        if (e == cudaSuccess)
            e = cudaStreamSynchronize(t->stream);
        if (e != cudaSuccess)
            return hcp_cuda_timer_fail(t, e, "run the kernel in a graph", err);
    }
    return HCP_OK;
}

int hcp_cuda_timer_begin(struct hcp_cuda_timer *t, struct hcp_bench_plan *plan,
                         struct hcp_err *err)
{
    double ms = 0;
    t->plan = plan;
    int rc = first_runs(t, &ms, err);
    t->first_ms = ms;
    if (rc == HCP_OK && plan->by_graph == 0)
        plan->by_graph = ms < GRAPH_BELOW_MS ? 1 : -1;
    if (rc == HCP_OK && plan->by_graph > 0)
        rc = make_graphs(t, err);
    return rc;
}

int hcp_cuda_timer_sync(struct hcp_cuda_timer *t)
{
    return cudaStreamSynchronize(t->stream);
}

void hcp_cuda_timer_settle(void)
{
    cudaDeviceSynchronize();
}

void hcp_cuda_timer_close(struct hcp_cuda_timer *t)
{
    hcp_cuda_timer_reset(t);
    for (int i = 0; i < 2 * HCP_CUDA_EVENTS; i++)
        if (t->events[i])
            cudaEventDestroy(t->events[i]);
    if (t->hold)
        cudaFreeHost(t->hold);
}
