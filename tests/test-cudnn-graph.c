/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuDNN provider as far as it goes without a GPU: what query() refuses and
 * offers, and whether cuDNN takes the graph and which engines its heuristic names
 * for an H200 that is described to it. Compiling and running the plan needs the GPU
 * (tests/gpu-kernels). The heuristic wants some libcuda.so.1 to load; without a
 * driver the toolkit's stub does.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <dlfcn.h>
#include "kernels/cudnn-graph.h"
#include "kernels/registry.h"

/* As CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION of an H200 at 9.19. */
static const char h200[] =
    "{\"cudaDeviceId\":0,\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,"
    "\"driverVer\":13000,\"isTccDriver\":0,\"l2CacheSize\":62914560,"
    "\"maxBlockSize\":[1024,1024,64],\"maxCtasPerSM\":32,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxRegistersPerSM\":65536,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"memClockRateKHz\":3201000,"
    "\"multiProcessorCount\":132,\"pciDeviceId\":0,\"regsPerBlock\":65536,"
    "\"reservedSharedMemoryPerBlock\":1024,\"smClockRateKHz\":1980000,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":150121545728,\"warpSize\":32}";

static const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};

static hcp_attn_problem problem(int64_t q_len, int64_t kv_len, int64_t heads,
                                int64_t kv_heads, int64_t head_dim)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = q_len,
                          .kv_len = kv_len,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_BF16,
                          .scale = 0.125};
    hcp_problem_set_dense_strides(&p);
    return p;
}

/* Forked: the library is loaded once a process. */
static void test_missing_library_is_named(void **state)
{
    pid_t child = fork();
    int status;
    (void)state;
    if (child == 0) {
        hcp_attn_problem p = problem(128, 128, 8, 8, 128);
        hcp_attn_support s = {.size = sizeof s};
        hcp_attn_plan *plan = NULL;
        const hcp_provider *provider = hcp_provider_cudnn();
        setenv("HCP_CUDNN", "/nonexistent/libcudnn.so.9", 1);
        if (provider->query(&gpu, &p, &s) != HCP_RC_OK || s.supported ||
            !strstr(s.reason, "/nonexistent/libcudnn.so.9"))
            _exit(1);
        if (provider->plan_create(&gpu, &p, &plan) != HCP_RC_MISSING || plan)
            _exit(2);
        _exit(strcmp(provider->version(), "missing") ? 3 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void need_library(void)
{
    char why[256] = "";
    if (!hcp_cudnn_load(why, sizeof why)) {
        print_message("# %s\n", why);
        skip();
    }
}

static void refuse(const hcp_attn_problem *p, const hcp_device_ref *device,
                   const char *because)
{
    const hcp_provider *provider = hcp_provider_cudnn();
    hcp_attn_support s = {.size = sizeof s};
    hcp_attn_plan *plan = NULL;
    assert_int_equal(provider->query(device, p, &s), HCP_RC_OK);
    assert_false(s.supported);
    assert_non_null(strstr(s.reason, because));
    assert_int_equal(provider->plan_create(device, p, &plan), HCP_RC_UNSUPPORTED);
    assert_null(plan);
}

static void test_query(void **state)
{
    const hcp_attn_problem fits = problem(777, 1301, 28, 4, 128);
    hcp_attn_problem p;
    hcp_attn_support s = {.size = sizeof s};
    hcp_device_ref other = gpu;
    (void)state;
    need_library();
    p = fits;
    p.causal = 1;
    p.diag = 100;
    assert_int_equal(hcp_provider_cudnn()->query(&gpu, &p, &s), HCP_RC_OK);
    assert_true(s.supported);
    assert_int_equal(s.caps, HCP_CAP_DIAG);
    assert_true(s.workspace_bytes >= 256);
    p = fits, p.dtype = p.out_dtype = HCP_FP32, refuse(&p, &gpu, "bf16 and fp16");
    p = fits, p.out_dtype = HCP_FP32, refuse(&p, &gpu, "type of Q");
    p = fits, p.out_dtype = HCP_FP16, refuse(&p, &gpu, "type of Q");
    p = fits, p.accumulate = 1, refuse(&p, &gpu, "accumulate");
    p = fits, p.kv_len = 0, refuse(&p, &gpu, "empty");
    p = fits, p.kv_heads = 5, refuse(&p, &gpu, "multiple of KV heads");
    p = fits, p.head_dim = 100, refuse(&p, &gpu, "multiple of 8");
    p = fits, p.head_dim = 264, refuse(&p, &gpu, "256");
    p = fits, p.k_stride[2] = 132, refuse(&p, &gpu, "16 bytes");
    p = fits, p.o_stride[1] += 4, refuse(&p, &gpu, "16 bytes");
    p = fits, p.causal = 1, p.diag = -1, refuse(&p, &gpu, "negative");
    other.cc_major = 7, refuse(&fits, &other, "8.0");
    other = gpu, other.kind = HCP_DEVICE_CPU, refuse(&fits, &other, "CUDA");
}

/* One query sees a prefix of the keys: a FULL block, and no mask is offered. */
static void test_query_of_one(void **state)
{
    hcp_attn_problem p = problem(1, 1000, 8, 1, 128);
    hcp_attn_support s = {.size = sizeof s};
    (void)state;
    need_library();
    p.causal = 1;
    p.diag = 998;
    refuse(&p, &gpu, "one query");
    p.diag = 999;
    assert_int_equal(hcp_provider_cudnn()->query(&gpu, &p, &s), HCP_RC_OK);
    assert_true(s.supported);
    assert_int_equal(s.caps, 0);
    /* 64 parts of 8 heads x 128 in fp32 fit */
    assert_true(s.workspace_bytes >= 64 * 8 * 128 * 4);
}

static cudnnBackendDescriptor_t describe_device(const hcp_cudnn_api *api)
{
    cudnnBackendDescriptor_t d = NULL;
    assert_int_equal(api->create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d), 0);
    assert_int_equal(api->set_attribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, sizeof h200, h200),
                     0);
    assert_int_equal(api->finalize(d), 0);
    return d;
}

static void need_driver_library(void)
{
    if (!dlopen("libcuda.so.1", RTLD_NOW) &&
        !dlopen(HCP_CUDA_LIBDIR "/stubs/libcuda.so", RTLD_NOW))
        skip();
}

static void test_heuristic_names_engines(void **state)
{
    static const struct {
        int64_t q_len, kv_len, heads, kv_heads, head_dim;
        int causal;
        int32_t dtype;
        const char *engine;
    } cases[] = {
        {16384, 16384, 32, 8, 128, 0, HCP_BF16, "engine 2 "},
        {16384, 16384, 32, 8, 128, 1, HCP_BF16, "engine 2 "},
        {6016, 59520, 32, 8, 128, 0, HCP_BF16, "engine 2 "},
        {777, 1301, 28, 4, 64, 1, HCP_FP16, "engine 2 "},
        {4097, 6145, 12, 2, 256, 1, HCP_FP16, "engine 2 "},
        {2, 1, 8, 1, 64, 1, HCP_BF16, "engine 2 "},
        {1, 65536, 32, 8, 128, 0, HCP_BF16, "engine 1 "},
        {1, 65536, 8, 1, 256, 0, HCP_BF16, "engine 1 "},
        {1, 1000000, 128, 8, 256, 0, HCP_BF16, "engine 1 "},
    };
    const hcp_cudnn_api *api;
    hcp_cudnn_target target = {NULL, NULL};
    (void)state;
    need_library();
    need_driver_library();
    api = hcp_cudnn_load(NULL, 0);
    target.device = describe_device(api);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hcp_attn_problem p = problem(cases[i].q_len, cases[i].kv_len, cases[i].heads,
                                     cases[i].kv_heads, cases[i].head_dim);
        hcp_cudnn_graph *graph = NULL;
        char why[512] = "";
        p.dtype = p.out_dtype = cases[i].dtype;
        int rc = hcp_cudnn_graph_create(api, target, &p, cases[i].causal, &graph, why,
                                        sizeof why);
        assert_string_equal(why, "");
        assert_int_equal(rc, HCP_RC_OK);
        assert_non_null(strstr(hcp_cudnn_graph_text(graph), cases[i].engine));
        assert_null(hcp_cudnn_graph_plan(graph));
        /* what query() promises is enough for what the engine will ask */
        hcp_attn_support support = {.size = sizeof support};
        hcp_provider_cudnn()->query(&gpu, &p, &support);
        assert_true(hcp_cudnn_graph_workspace(graph) >= 256);
        assert_true(support.workspace_bytes >= hcp_cudnn_graph_workspace(graph));
        hcp_cudnn_graph_destroy(graph);
    }
    api->destroy_descriptor(target.device);
}

/* What cuDNN has no engine for comes back as an error with the step in it. */
static void test_failure_names_the_step(void **state)
{
    const hcp_cudnn_api *api;
    hcp_cudnn_target target = {NULL, NULL};
    hcp_attn_problem p = problem(128, 128, 8, 8, 100);
    hcp_cudnn_graph *graph = NULL;
    char why[512] = "";
    (void)state;
    need_library();
    need_driver_library();
    api = hcp_cudnn_load(NULL, 0);
    target.device = describe_device(api);
    assert_int_equal(hcp_cudnn_graph_create(api, target, &p, 1, &graph, why, sizeof why),
                     HCP_RC_UNSUPPORTED);
    assert_null(graph);
    assert_non_null(strstr(why, "heuristic"));
    assert_non_null(strstr(why, api->version_text));
    assert_null(strchr(why, '\n'));
    p = problem(128, 128, 7, 3, 128);
    assert_int_equal(hcp_cudnn_graph_create(api, target, &p, 1, &graph, why, sizeof why),
                     HCP_RC_DEVICE);
    assert_non_null(strstr(why, "Q K^T failed"));
    api->destroy_descriptor(target.device);
}

/* Handles of a library that is not there: who holds one, and how many there are. */
struct fake_handle {
    atomic_int held;
    int device;
};
static atomic_int fake_made, fake_wrong;
static _Thread_local int fake_device;

static cudnnStatus_t fake_create(cudnnHandle_t *out)
{
    struct fake_handle *h = calloc(1, sizeof *h);
    if (!h)
        return CUDNN_STATUS_ALLOC_FAILED;
    h->device = fake_device;
    fake_made++;
    *out = (cudnnHandle_t)h;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_destroy(cudnnHandle_t handle)
{
    fake_made--;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    struct fake_handle *h = (struct fake_handle *)handle;
    fake_wrong += stream != NULL || h->held != 1;
    h->held = 0; /* the last that its holder does with it */
    return CUDNN_STATUS_SUCCESS;
}

enum { THREADS = 8, HOLD = 6, ROUNDS = 300, FIRST_DEVICE = 1000 };

static const hcp_cudnn_api fake = {
    .create = fake_create, .destroy = fake_destroy, .set_stream = fake_set_stream};

static void *take_and_give(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg;
    cudnnHandle_t mine[HOLD];
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1664525u + 1013904223u;
        int n = 1 + (int)(random >> 16) % HOLD;
        fake_device = FIRST_DEVICE + round % 2;
        for (int i = 0; i < n; i++) {
            hcp_cudnn_take_handle(&fake, fake_device, &mine[i]);
            struct fake_handle *h = (struct fake_handle *)mine[i];
            fake_wrong += atomic_fetch_add(&h->held, 1) != 0 || h->device != fake_device;
        }
        for (int i = 0; i < n; i++)
            hcp_cudnn_give_handle(&fake, fake_device, mine[i]);
    }
    return NULL;
}

/* Eight threads and two devices: a handle has one holder, of its own device, and what
 * nobody holds does not pile up. */
static void test_handles_have_one_holder(void **state)
{
    pthread_t thread[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&thread[i], NULL, take_and_give, (void *)(uintptr_t)(i + 1)),
            0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(fake_wrong, 0);
    assert_true(fake_made > 0 && fake_made <= 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_library_is_named),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_query_of_one),
        cmocka_unit_test(test_heuristic_names_engines),
        cmocka_unit_test(test_failure_names_the_step),
        cmocka_unit_test(test_handles_have_one_holder), /* leaves fakes: the last */
    };
    return cmocka_run_group_tests_name("cudnn-graph", tests, NULL, NULL);
}
