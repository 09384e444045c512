/* SPDX-License-Identifier: Apache-2.0
 *
 * A process limited to a green context, with libraries of the test in the places of the
 * CUDA driver and runtime: whose streams kernels get, what SM count they are told, and
 * that a limit which does not hold is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include "kernels/cuda.h"
#include "kernels/runtime.h"
#include "profiler/limiter.h"
#include "profiler/spin.h"
#include "tests/fake-cuda-driver.h"

static int ordinal, capturing;
static unsigned leak_stream, leak_graph; /* SMs more than the stream's that run */
static struct fake_cuda_stream plain;    /* what the runtime itself makes */
static int *marks_of_graph;

static void run(int *marks, cudaStream_t stream, unsigned leak)
{
    unsigned sms = ((struct fake_cuda_stream *)(void *)stream)->sms;
    sms = (sms ? sms : 132) + leak;
    for (unsigned i = 0; i < sms; i++)
        marks[2 * i] = 1; /* SM numbers need not be in a row */
}

#define FAKE(type, name, arguments)                                                      \
    type __wrap_##name arguments;                                                        \
    type __wrap_##name arguments

FAKE(cudaError_t, cudaGetDevice, (int *out))
{
    *out = ordinal;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaSetDevice, (int which))
{
    ordinal = which;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaGetDeviceCount, (int *count))
{
    *count = 2;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaGetDeviceProperties, (struct cudaDeviceProp * prop, int which))
{
    (void)which;
    memset(prop, 0, sizeof *prop);
    prop->major = 9;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr what, int of))
{
    (void)of;
    *value = what == cudaDevAttrMultiProcessorCount ? 132 : 0;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaMalloc, (void **out, size_t bytes))
{
    *out = calloc(1, bytes);
    return cudaSuccess;
}

FAKE(cudaError_t, cudaFree, (void *p))
{
    free(p);
    return cudaSuccess;
}

FAKE(cudaError_t, cudaMemsetAsync, (void *p, int byte, size_t n, cudaStream_t stream))
{
    (void)stream;
    memset(p, byte, n);
    return cudaSuccess;
}

FAKE(cudaError_t, cudaMemcpyAsync,
     (void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
      cudaStream_t stream))
{
    (void)kind, (void)stream;
    memcpy(to, from, n);
    return cudaSuccess;
}

FAKE(cudaError_t, cudaStreamSynchronize, (cudaStream_t stream))
{
    (void)stream;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t * out, unsigned flags))
{
    plain.flags = flags;
    *out = (cudaStream_t)(void *)&plain;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaStreamDestroy, (cudaStream_t stream))
{
    if ((void *)stream != &plain)
        free((void *)stream);
    return cudaSuccess;
}

FAKE(cudaError_t, cudaStreamBeginCapture,
     (cudaStream_t stream, enum cudaStreamCaptureMode mode))
{
    (void)stream, (void)mode;
    capturing = 1;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *out))
{
    (void)stream;
    capturing = 0;
    *out = (cudaGraph_t)(void *)marks_of_graph;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaGraphInstantiate,
     (cudaGraphExec_t * out, cudaGraph_t graph, unsigned long long flags))
{
    (void)flags;
    *out = (cudaGraphExec_t)(void *)graph;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t stream))
{
    run((int *)(void *)graph, stream, leak_graph);
    return cudaSuccess;
}

FAKE(cudaError_t, cudaGraphExecDestroy, (cudaGraphExec_t graph))
{
    (void)graph;
    return cudaSuccess;
}

FAKE(cudaError_t, cudaGraphDestroy, (cudaGraph_t graph))
{
    (void)graph;
    return cudaSuccess;
}

FAKE(int, hcp_mark_sms_launch,
     (int *marks, int blocks, unsigned long long ns, void *stream))
{
    assert_true(blocks >= 2 * 132 && ns > 0); /* enough for every SM of the device */
    if (capturing)
        marks_of_graph = marks;
    else
        run(marks, stream, leak_stream);
    return cudaSuccess;
}

static int setup(void **state)
{
    char path[1200];
    const char *build = getenv("top_builddir");
    (void)state;
    ordinal = 0;
    leak_stream = leak_graph = 0;
    snprintf(path, sizeof path, "%s/tests/.libs/fake-cuda-driver.so",
             build ? build : ".");
    return setenv("HCP_CUDA_DRIVER", path, 1);
}

static unsigned stream_sms(const hcp_runtime *runtime, int high)
{
    void *stream = NULL;
    int rc =
        high ? runtime->stream_create_high(&stream) : runtime->stream_create(&stream);
    assert_int_equal(rc, HCP_RC_OK);
    struct fake_cuda_stream s = *(struct fake_cuda_stream *)stream;
    assert_int_equal(s.flags, cudaStreamNonBlocking);
    if (stream != &plain)
        assert_int_equal(s.priority, high ? -5 : 0);
    runtime->stream_destroy(stream);
    return s.sms;
}

static int sm_count(int which)
{
    hcp_device_ref ref = {.size = sizeof ref};
    char why[200];
    assert_int_equal(hcp_cuda_device(which, &ref, NULL, why, sizeof why), HCP_RC_OK);
    return ref.sm_count;
}

static void a_limited_process(void **state)
{
    const hcp_runtime *runtime = hcp_runtime_cuda();
    hcp_green *green = NULL;
    struct hcp_err err = {0};
    (void)state;
    assert_int_equal(sm_count(0), 132);
    assert_int_equal(stream_sms(runtime, 0), 0);
    if (hcp_green_limit(0, 16, 0, &green, &err) != HCP_OK)
        fail_msg("%s", err.text);
    assert_int_equal(stream_sms(runtime, 0), 16);
    assert_int_equal(stream_sms(runtime, 1), 16);
    assert_int_equal(sm_count(0), 16);
    assert_int_equal(sm_count(1), 132); /* another device is whole */
    ordinal = 1;
    assert_int_equal(stream_sms(runtime, 0), 0);
    ordinal = 0;
    hcp_green_unlimit(green);
    assert_int_equal(sm_count(0), 132);
    assert_int_equal(stream_sms(runtime, 0), 0);
    hcp_green_unlimit(NULL);
}

static void refused(int mps_enabled, const char *words)
{
    hcp_green *green = NULL;
    struct hcp_err err = {0};
    assert_int_equal(hcp_green_limit(0, 16, mps_enabled, &green, &err), HCP_FAILED);
    if (!strstr(err.text, words))
        fail_msg("'%s' lacks '%s'", err.text, words);
    assert_null(green);
    assert_int_equal(sm_count(0), 132);
    assert_int_equal(stream_sms(hcp_runtime_cuda(), 0), 0);
}

static void limits_that_do_not_hold(void **state)
{
    (void)state;
    refused(1, "this process is a client of an MPS daemon");
    leak_stream = 2;
    refused(0, "limit green:16 not proven: a kernel ran on 18 SMs");
    leak_stream = 0;
    leak_graph = 116;
    refused(0, "limit green:16 not proven: a kernel in a CUDA graph ran on 132 SMs");
}

/* What the driver says of a stream is what the runtime's caller is told. */
static void streams_that_cannot_be_made(void **state)
{
    const hcp_runtime *runtime = hcp_runtime_cuda();
    hcp_green *green = NULL;
    void *stream = NULL;
    (void)state;
    assert_int_equal(hcp_green_limit(0, 64, 0, &green, NULL), HCP_OK);
    setenv("FAKE_CUDA_FAULT", "stream", 1);
    assert_int_equal(runtime->stream_create(&stream), HCP_RC_DEVICE);
    unsetenv("FAKE_CUDA_FAULT");
    assert_null(stream);
    assert_non_null(strstr(runtime->last_error(), "does not make a stream"));
    hcp_green_unlimit(green);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_limited_process, setup),
        cmocka_unit_test_setup(limits_that_do_not_hold, setup),
        cmocka_unit_test_setup(streams_that_cannot_be_made, setup),
    };
    return cmocka_run_group_tests_name("green-cuda", tests, NULL, NULL);
}
