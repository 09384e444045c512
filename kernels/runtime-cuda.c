/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp_runtime on CUDA: thin calls into the runtime API, each with the text of what
 * failed kept for last_error(). A stream is a cudaStream_t; NULL is the default one.
 */
#include "kernels/cuda-internal.h"
#include "kernels/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

static int select_device(int ordinal)
{
    char doing[48];
    snprintf(doing, sizeof doing, "select GPU %d", ordinal);
    return hcp_cuda_check(cudaSetDevice(ordinal), doing);
}

static int alloc(void **out, int64_t bytes)
{
    char doing[64];
    void *p = NULL;
    int rc;
    snprintf(doing, sizeof doing, "allocate %lld bytes on the GPU", (long long)bytes);
    if (bytes < 0)
        return hcp_cuda_check(cudaErrorInvalidValue, doing);
    rc = hcp_cuda_check(cudaMalloc(&p, (size_t)bytes), doing);
    if (rc == HCP_RC_OK)
        *out = p;
    return rc;
}

static void release(void *p)
{
    cudaFree(p);
}

static int to_device(void *dst, const void *src, int64_t bytes, void *stream)
{
    return hcp_cuda_check(cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyHostToDevice,
                                          (cudaStream_t)stream),
                          "copy to the GPU");
}

static int to_host(void *dst, const void *src, int64_t bytes, void *stream)
{
    cudaError_t e = cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDeviceToHost,
                                    (cudaStream_t)stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize((cudaStream_t)stream);
    return hcp_cuda_check(e, "copy from the GPU");
}

static int to_host_async(void *dst, const void *src, int64_t bytes, void *stream)
{
    return hcp_cuda_check(cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDeviceToHost,
                                          (cudaStream_t)stream),
                          "copy from the GPU");
}

static int host_alloc(void **out, int64_t bytes)
{
    char doing[64];
    void *p = NULL;
    int rc;
    snprintf(doing, sizeof doing, "pin %lld bytes of host memory", (long long)bytes);
    if (bytes < 0)
        return hcp_cuda_check(cudaErrorInvalidValue, doing);
    rc = hcp_cuda_check(cudaHostAlloc(&p, (size_t)bytes, cudaHostAllocDefault), doing);
    if (rc == HCP_RC_OK)
        *out = p;
    return rc;
}

static void host_release(void *p)
{
    cudaFreeHost(p);
}

static int fill(void *dst, int byte, int64_t bytes, void *stream)
{
    return hcp_cuda_check(cudaMemsetAsync(dst, byte, (size_t)bytes, (cudaStream_t)stream),
                          "fill memory");
}

/* Of the part of the device that this process keeps to. */
static int stream_of_part(const hcp_cuda_part *part, int high, void **out)
{
    char why[512];
    int rc = part->stream_create(part->ctx, high, out, why, sizeof why);
    if (rc != HCP_RC_OK)
        hcp_cuda_note(why);
    return rc;
}

static int stream_create(void **out)
{
    cudaStream_t stream;
    const hcp_cuda_part *part = hcp_cuda_part_here();
    if (part)
        return stream_of_part(part, 0, out);
    int rc = hcp_cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                            "create a stream");
    if (rc == HCP_RC_OK)
        *out = stream;
    return rc;
}

static int stream_create_high(void **out)
{
    cudaStream_t stream;
    int least, greatest;
    const hcp_cuda_part *part = hcp_cuda_part_here();
    if (part)
        return stream_of_part(part, 1, out);
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
    if (e != cudaSuccess)
        return hcp_cuda_check(e, "create a stream of high priority");
    *out = stream;
    return HCP_RC_OK;
}

static void stream_destroy(void *stream)
{
    if (stream)
        cudaStreamDestroy((cudaStream_t)stream);
}

static int sync_stream(void *stream)
{
    return hcp_cuda_check(cudaStreamSynchronize((cudaStream_t)stream),
                          "finish the work on the GPU");
}

static int event_create(void **out)
{
    cudaEvent_t event;
    int rc = hcp_cuda_check(cudaEventCreate(&event), "create an event");
    if (rc == HCP_RC_OK)
        *out = event;
    return rc;
}

static void event_destroy(void *event)
{
    if (event)
        cudaEventDestroy((cudaEvent_t)event);
}

static int event_record(void *event, void *stream)
{
    return hcp_cuda_check(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream),
                          "record an event");
}

static int event_wait(void *event, void *stream)
{
    return hcp_cuda_check(
        cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
        "make a stream wait for an event");
}

static int event_done(void *event, int *done)
{
    cudaError_t e = cudaEventQuery((cudaEvent_t)event);
    if (e == cudaErrorNotReady) {
        cudaGetLastError(); /* an answer here, to the next launch check an error */
        *done = 0;
        return HCP_RC_OK;
    }
    if (e == cudaSuccess)
        *done = 1;
    return hcp_cuda_check(e, "finish the work on the GPU");
}

static int event_ms(void *from, void *to, double *ms)
{
    float t = 0;
    int rc = hcp_cuda_check(cudaEventElapsedTime(&t, (cudaEvent_t)from, (cudaEvent_t)to),
                            "read the time between two events");
    if (rc == HCP_RC_OK)
        *ms = t;
    return rc;
}

static int reset(void)
{
    return hcp_cuda_check(cudaDeviceReset(), "end the use of the GPU");
}

static int randn(void *dst, int64_t n, int32_t dtype, uint64_t seed, uint64_t first,
                 void *stream)
{
    return hcp_cuda_check(hcp_cuda_launch_randn(dst, n, dtype, seed, first, stream),
                          "launch the random fill");
}

static int finish(const hcp_finish *job, void *stream)
{
    return hcp_cuda_check(hcp_cuda_launch_finish(job, stream), "launch the merge");
}

static int merge(float *o, float *lse, const void *o_part, int32_t part_dtype,
                 const float *lse_part, int64_t rows, int64_t head_dim, void *stream)
{
    /* Contiguous states are one head of one batch. */
    const hcp_finish job = {.batch = 1,
                            .heads = 1,
                            .rows = rows,
                            .head_dim = head_dim,
                            .o = o,
                            .o_stride = {0, 0, head_dim},
                            .lse = lse,
                            .part = o_part,
                            .part_dtype = part_dtype,
                            .part_stride = {0, 0, head_dim},
                            .lse_part = lse_part,
                            .accumulate = 1};
    return finish(&job, stream);
}

const hcp_runtime *hcp_runtime_cuda(void)
{
    static const hcp_runtime runtime = {
        .kind = HCP_DEVICE_CUDA,
        .select = select_device,
        .alloc = alloc,
        .release = release,
        .to_device = to_device,
        .to_host = to_host,
        .to_host_async = to_host_async,
        .host_alloc = host_alloc,
        .host_release = host_release,
        .fill = fill,
        .stream_create = stream_create,
        .stream_create_high = stream_create_high,
        .stream_destroy = stream_destroy,
        .sync = sync_stream,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_wait = event_wait,
        .event_done = event_done,
        .event_ms = event_ms,
        .reset = reset,
        .last_error = hcp_cuda_error_text,
        .randn = randn,
        .merge = merge,
        .finish = finish,
    };
    return &runtime;
}
