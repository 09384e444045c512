/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA parts that need no GPU: error texts, and what a process without a driver
 * or device is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/cuda.h"
#include "kernels/registry.h"

static void test_errors_name_the_cure(void **state)
{
    static const struct {
        int code, mps;
        const char *says;
    } cases[] = {
        {2, 0, "out of GPU memory"},
        {35, 0, "no NVIDIA driver"},
        {46, 0, "compute mode"},
        {100, 0, "CUDA_VISIBLE_DEVICES"},
        {101, 0, "hcp-profile devices"},
        {209, 0, "CUDA_GENCODE"},
        {804, 0, "forward-compatibility"},
        {805, 1, "nvidia-cuda-mps-control -d"},
        {806, 1, "new process"},
        {807, 1, "recovering"},
        {808, 1, "no more clients"},
        {809, 1, "connections"},
        {810, 1, "ended this client"},
        {811, 0, "dynamic parallelism"},
        {719, 0, "cudaErrorLaunchFailure"},
    };
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ptr_equal(hcp_cuda_explain(cases[i].code, text, sizeof text), text);
        assert_non_null(strstr(text, cases[i].says));
        assert_null(strchr(text, '\n'));
        assert_true(strlen(text) < sizeof text - 1);
        assert_int_equal(hcp_cuda_is_mps_error(cases[i].code), cases[i].mps);
    }
}

static void test_mps_errors_name_the_directories(void **state)
{
    char text[512];
    (void)state;
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/some-pipe", 1);
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
    for (int code = 805; code <= 811; code++) {
        hcp_cuda_explain(code, text, sizeof text);
        assert_non_null(strstr(text, "/tmp/some-pipe"));
        assert_non_null(strstr(text, "/var/log/nvidia-mps"));
    }
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

static void test_explain_keeps_to_the_buffer(void **state)
{
    char text[24];
    (void)state;
    memset(text, 'x', sizeof text);
    hcp_cuda_explain(805, text, 16);
    assert_int_equal(strlen(text), 15);
    assert_int_equal(text[16], 'x');
}

/* With CUDA_VISIBLE_DEVICES empty every machine is one without a device. */
static void test_no_device(void **state)
{
    const hcp_runtime *runtime = hcp_runtime_cuda();
    hcp_device_ref device = {.size = 77};
    hcp_cuda_info info = {.size = 77};
    char err[512] = "";
    int count = 5;
    void *p = &count;
    (void)state;
    assert_int_equal(hcp_cuda_device_count(&count, err, sizeof err), HCP_RC_MISSING);
    assert_int_equal(count, 0);
    assert_non_null(strstr(err, "nvidia-smi"));
    assert_int_not_equal(hcp_cuda_last_code(), 0);
    err[0] = 0;
    assert_int_equal(hcp_cuda_device(0, &device, &info, err, sizeof err), HCP_RC_MISSING);
    assert_non_null(strstr(err, "nvidia-smi"));
    assert_int_equal(device.size, 77); /* set only on success */
    assert_int_equal(info.size, 77);
    assert_int_not_equal(runtime->alloc(&p, 1024), HCP_RC_OK);
    assert_ptr_equal(p, &count);
    assert_non_null(strstr(runtime->last_error(), "allocate 1024 bytes"));
    assert_int_equal(runtime->alloc(&p, -1), HCP_RC_INVALID);
    assert_int_not_equal(runtime->select(0), HCP_RC_OK);
}

static void test_reference_refuses(void **state)
{
    const hcp_provider *provider = hcp_provider_cuda_reference();
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    const hcp_attn_problem fits = {.size = sizeof fits,
                                   .batch = 1,
                                   .q_len = 65,
                                   .kv_len = 63,
                                   .heads = 12,
                                   .kv_heads = 2,
                                   .head_dim = 256,
                                   .dtype = HCP_FP16,
                                   .out_dtype = HCP_FP32,
                                   .causal = 1,
                                   .accumulate = 1,
                                   .scale = 0.0625};
    hcp_attn_problem p = fits;
    hcp_attn_support s = {.size = sizeof s};
    hcp_attn_plan *plan = NULL;
    (void)state;
    hcp_problem_set_dense_strides(&p);
    assert_int_equal(provider->query(&gpu, &p, &s), HCP_RC_OK);
    assert_true(s.supported);
    assert_string_equal(s.reason, "");
    assert_int_equal(s.caps, HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                                 HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC |
                                 HCP_CAP_NAN_ROWS);
    p.head_dim = 257;
    assert_int_equal(provider->query(&gpu, &p, &s), HCP_RC_OK);
    assert_false(s.supported);
    assert_non_null(strstr(s.reason, "head dim"));
    assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_UNSUPPORTED);
    assert_null(plan);
    p = fits;
    p.kv_heads = 5;
    provider->query(&gpu, &p, &s);
    assert_false(s.supported);
    assert_non_null(strstr(s.reason, "multiple of KV heads"));
    p = fits;
    p.out_dtype = HCP_FP16;
    provider->query(&gpu, &p, &s);
    assert_false(s.supported);
    provider->plan_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_the_cure),
        cmocka_unit_test(test_mps_errors_name_the_directories),
        cmocka_unit_test(test_explain_keeps_to_the_buffer),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_reference_refuses),
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
