/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda.h"
#include "kernels/runtime.h"
#include "profiler/limiter.h"
#include "profiler/spin.h"

/* A block of the most threads, two to an SM, for so long that all of a device's first
 * ones run at a time. */
enum { PROBE_NS = 50000, PROBE_WAVES = 4 };

static int stream_of_part(void *ctx, int high, void **out, char *why, size_t why_size)
{
    struct hcp_err err = {0};
    if (hcp_green_stream(ctx, high, out, &err) == HCP_OK)
        return HCP_RC_OK;
    snprintf(why, why_size, "%s", err.text);
    return HCP_RC_DEVICE;
}

static int probe_fail(cudaError_t e, struct hcp_err *err)
{
    char why[400];
    if (e == cudaSuccess)
        return HCP_OK;
    cudaGetLastError();
    return hcp_fail(err, HCP_FAILED, "count the SMs of a green context: %s",
                    hcp_cuda_explain((int)e, why, sizeof why));
}

/* SMs that the marks name. */
static cudaError_t read_marks(const int *marks, cudaStream_t stream, int *seen)
{
    int host[HCP_SMS];
    cudaError_t e =
        cudaMemcpyAsync(host, marks, sizeof host, cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(stream);
    *seen = 0;
    for (int i = 0; e == cudaSuccess && i < HCP_SMS; i++)
        *seen += host[i] != 0;
    return e;
}

static cudaError_t probe(int *marks, int blocks, cudaStream_t stream, int *seen)
{
    cudaError_t e = cudaMemsetAsync(marks, 0, HCP_SMS * sizeof *marks, stream);
    if (e == cudaSuccess)
        e = (cudaError_t)hcp_mark_sms_launch(marks, blocks, PROBE_NS, stream);
    return e == cudaSuccess ? read_marks(marks, stream, seen) : e;
}

/* The same as a node of a graph, as short blocks are timed. */
static cudaError_t probe_graph(int *marks, int blocks, cudaStream_t stream, int *seen)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e = cudaMemsetAsync(marks, 0, HCP_SMS * sizeof *marks, stream);
    if (e == cudaSuccess)
        e = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess)
        return e;
    e = (cudaError_t)hcp_mark_sms_launch(marks, blocks, PROBE_NS, stream);
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    e = e == cudaSuccess ? ended : e;
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&exec, graph, 0);
    if (e == cudaSuccess)
        e = cudaGraphLaunch(exec, stream);
    if (e == cudaSuccess)
        e = read_marks(marks, stream, seen);
    if (exec)
        cudaGraphExecDestroy(exec);
    if (graph)
        cudaGraphDestroy(graph);
    return e;
}

/* On a stream of the part, made as those of the kernels are. */
static int prove(int ordinal, int sms, struct hcp_err *err)
{
    const hcp_runtime *runtime = hcp_runtime_cuda();
    int whole = 0, seen = 0, in_graph = 0;
    int *marks = NULL;
    void *stream = NULL;
    if (runtime->select(ordinal) != HCP_RC_OK ||
        runtime->stream_create(&stream) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", runtime->last_error());
    cudaError_t e =
        cudaDeviceGetAttribute(&whole, cudaDevAttrMultiProcessorCount, ordinal);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&marks, HCP_SMS * sizeof *marks);
    if (e == cudaSuccess)
        e = probe(marks, PROBE_WAVES * whole, stream, &seen);
    if (e == cudaSuccess)
        e = probe_graph(marks, PROBE_WAVES * whole, stream, &in_graph);
    int rc = probe_fail(e, err);
    cudaFree(marks);
    runtime->stream_destroy(stream);
    return rc == HCP_OK ? hcp_green_prove(sms, seen, in_graph, err) : rc;
}

int hcp_green_limit(int ordinal, int sms, int mps_enabled, hcp_green **out,
                    struct hcp_err *err)
{
    hcp_green *green = NULL;
    if (mps_enabled)
        return hcp_fail(err, HCP_FAILED,
                        "limit green:%d: this process is a client of an MPS daemon, and "
                        "one limiter a run can be told; unset CUDA_MPS_PIPE_DIRECTORY "
                        "and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, or stop the daemon",
                        sms);
    int rc = hcp_green_open(ordinal, sms, &green, err);
    if (rc != HCP_OK)
        return rc;
    const hcp_cuda_part part = {.ordinal = ordinal,
                                .sm_count = sms,
                                .stream_create = stream_of_part,
                                .ctx = green};
    hcp_cuda_use_part(&part);
    rc = prove(ordinal, sms, err);
    if (rc != HCP_OK) {
        hcp_green_unlimit(green);
        return rc;
    }
    *out = green;
    return HCP_OK;
}

void hcp_green_unlimit(hcp_green *green)
{
    if (!green)
        return;
    hcp_cuda_use_part(NULL);
    hcp_green_close(green);
}
