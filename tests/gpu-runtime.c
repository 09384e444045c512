/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp_runtime on a real GPU: events between streams, pinned memory, priorities, and the
 * end of it all. TAP; skips without a GPU.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include "gpu-tap.h"
#include "kernels/cuda.h"
#include "kernels/runtime.h"

static const hcp_runtime *rt;

static void must(int rc, const char *what)
{
    if (rc != HCP_RC_OK) {
        printf("Bail out! %s: code %d: %s\n", what, rc, rt->last_error());
        exit(1);
    }
}

/* Some milliseconds of work on stream: fills of a large buffer. */
static void keep_busy(void *buffer, int64_t bytes, void *stream)
{
    for (int i = 0; i < 40; i++)
        must(rt->randn(buffer, bytes / 4, HCP_FP32, (uint64_t)i, 0, stream), "fill");
}

static void test_events(void *buffer, int64_t bytes)
{
    void *a, *b, *from, *to, *never;
    double ms = -1;
    int done = -1, early = -1;
    unsigned char seen[4096];
    must(rt->stream_create(&a), "stream");
    must(rt->stream_create_high(&b), "stream");
    must(rt->event_create(&from), "event");
    must(rt->event_create(&to), "event");
    must(rt->event_create(&never), "event");
    must(rt->event_done(never, &done), "poll");
    ok(done == 1, "an event never recorded counts as done");
    must(rt->event_wait(never, a), "wait");
    ok(rt->event_ms(never, never, &ms) != HCP_RC_OK && ms == -1, "and has no time: %s",
       rt->last_error());

    must(rt->event_record(from, a), "record");
    keep_busy(buffer, bytes, a);
    must(rt->fill(buffer, 0x5a, bytes, a), "fill");
    must(rt->event_record(to, a), "record");
    must(rt->event_done(to, &early), "poll");
    ok(early == 0, "an event behind queued work is not done at once");
    ok(cudaPeekAtLastError() == cudaSuccess, "and asking leaves no error behind");
    must(rt->event_wait(to, b), "wait");
    must(rt->to_host(seen, (char *)buffer + bytes - sizeof seen, sizeof seen, b), "copy");
    int same = 1;
    for (size_t i = 0; i < sizeof seen; i++)
        same &= seen[i] == 0x5a;
    ok(same, "what comes after an event on another stream sees what came before it");
    must(rt->event_done(to, &done), "poll");
    ok(done == 1, "the event is done then");
    must(rt->event_ms(from, to, &ms), "time");
    ok(ms > 0.05 && ms < 1e5, "time between two events: %.3f ms", ms);
    rt->event_destroy(from);
    rt->event_destroy(to);
    rt->event_destroy(never);
    rt->event_destroy(NULL);

    int plain = 1, high = 1, least, greatest;
    cudaStreamGetPriority((cudaStream_t)a, &plain);
    cudaStreamGetPriority((cudaStream_t)b, &high);
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    ok(high == greatest && (high < plain || least == greatest),
       "priorities: %d high, %d otherwise, range %d to %d", high, plain, least, greatest);
    rt->stream_destroy(a);
    rt->stream_destroy(b);
}

static void test_pinned(void *buffer, int64_t bytes)
{
    void *host, *none = NULL, *stream, *at;
    int done = -1;
    struct cudaPointerAttributes attributes;
    must(rt->stream_create(&stream), "stream");
    must(rt->event_create(&at), "event");
    must(rt->host_alloc(&host, bytes), "pin");
    must(cudaPointerGetAttributes(&attributes, host) == cudaSuccess ? HCP_RC_OK
                                                                    : HCP_RC_DEVICE,
         "attributes");
    ok(attributes.type == cudaMemoryTypeHost, "host_alloc() pins");
    memset(host, 1, (size_t)bytes);
    keep_busy(buffer, bytes, stream);
    must(rt->fill(buffer, 0x33, bytes, stream), "fill");
    must(rt->to_host_async(host, buffer, bytes, stream), "copy");
    must(rt->event_record(at, stream), "record");
    must(rt->event_done(at, &done), "poll");
    ok(done == 0, "to_host_async() is queued");
    must(rt->sync(stream), "finish");
    const unsigned char *got = host;
    ok(got[0] == 0x33 && !memcmp(got, got + 1, (size_t)bytes - 1),
       "and brings what the stream wrote before");
    ok(rt->host_alloc(&none, -1) == HCP_RC_INVALID && !none,
       "host_alloc() of less than nothing: %s", rt->last_error());
    rt->host_release(host);
    rt->host_release(NULL);
    rt->event_destroy(at);
    rt->stream_destroy(stream);
}

int main(void)
{
    const int64_t bytes = (int64_t)256 << 20;
    char err[512];
    int count;
    void *buffer = NULL;
    if (hcp_cuda_device_count(&count, err, sizeof err) == HCP_RC_MISSING) {
        printf("1..0 # SKIP no CUDA device: %s\n", err);
        return 0;
    }
    rt = hcp_runtime_cuda();
    must(rt->select(0), "select the GPU");
    note("the first of %d GPUs", count);
    must(rt->alloc(&buffer, bytes), "allocate");
    test_events(buffer, bytes);
    test_pinned(buffer, bytes);

    /* 256 MiB are free again, and the device can be used anew. */
    size_t before = 0, after = 0, total;
    cudaMemGetInfo(&before, &total);
    must(rt->reset(), "reset");
    must(rt->select(0), "select the GPU");
    cudaMemGetInfo(&after, &total);
    ok(after >= before + (size_t)bytes / 2, "reset() frees: %zu MiB free, %zu before it",
       after >> 20, before >> 20);
    must(rt->alloc(&buffer, 1024), "allocate");
    rt->release(buffer);
    return tap_done();
}
