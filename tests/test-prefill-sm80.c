/* SPDX-License-Identifier: Apache-2.0
 *
 * What "cuda-mma" answers and refuses before anything is launched; needs no GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/prefill-sm80.h"
#include "kernels/registry.h"

/* Of 8.6, 8.9 and 12.0, the least of the devices that the kernels are built for. */
enum { LEAST_SHARED = 99 << 10 };

static const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 8, 6, 84};

static hcp_attn_problem good(int64_t head_dim)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 2,
                          .q_len = 1000,
                          .kv_len = 4097,
                          .heads = 28,
                          .kv_heads = 4,
                          .head_dim = head_dim,
                          .dtype = HCP_FP16,
                          .out_dtype = HCP_FP32,
                          .causal = 1,
                          .accumulate = 1,
                          .diag = 3097,
                          .scale = 0.0884};
    hcp_problem_set_dense_strides(&p);
    return p;
}

static void test_query(void **state)
{
    const hcp_provider *provider = hcp_provider_cuda_mma();
    (void)state;
    for (int64_t d = 64; d <= 256; d *= 2) {
        const hcp_attn_problem p = good(d);
        const hcp_sm80_tile tile = hcp_cuda_sm80_tile(d);
        hcp_attn_support s = {.size = sizeof s};
        assert_int_equal(provider->query(&gpu, &p, &s), HCP_RC_OK);
        assert_true(s.supported);
        assert_int_equal(s.caps, HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                                     HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC |
                                     HCP_CAP_NAN_ROWS);
        assert_int_equal(s.workspace_bytes, 0);
        assert_true(s.tile_q >= 16 && s.tile_q == tile.rows);
        assert_true(s.tile_kv >= 16 && s.tile_kv == tile.keys);
        assert_in_range(tile.shared_bytes, 1, LEAST_SHARED);
    }
    assert_int_equal(hcp_cuda_sm80_tile(96).rows, 0);
}

static void refused(hcp_attn_problem p, const char *why)
{
    const hcp_provider *provider = hcp_provider_cuda_mma();
    hcp_attn_support s = {.size = sizeof s};
    hcp_attn_plan *plan = NULL;
    assert_int_equal(provider->query(&gpu, &p, &s), HCP_RC_OK);
    assert_false(s.supported);
    assert_non_null(strstr(s.reason, why));
    assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_UNSUPPORTED);
    assert_null(plan);
}

static void test_refuses(void **state)
{
    hcp_attn_problem p = good(128);
    hcp_attn_support small = {.size = sizeof small - 1};
    (void)state;
    p.head_dim = 80;
    refused(p, "head dim");
    p = good(128);
    p.q_stride[2] += 4;
    refused(p, "16 bytes");
    p = good(128);
    p.scale = 1e39;
    refused(p, "fp32 number");
    p.scale = NAN;
    refused(p, "fp32 number");
    /* tiles of a launch are counted in an int */
    p = good(128);
    p.heads = p.kv_heads = 4096;
    p.batch = 4096;
    p.q_len = 1 << 14;
    hcp_problem_set_dense_strides(&p);
    refused(p, "2^31 tiles");
    assert_int_equal(hcp_provider_cuda_mma()->query(&gpu, &p, &small), HCP_RC_INVALID);
}

static void test_run_checks_its_arguments(void **state)
{
    static _Alignas(16) char bytes[32];
    const hcp_provider *provider = hcp_provider_cuda_mma();
    const hcp_attn_problem p = good(64);
    const hcp_attn_args fine = {.size = sizeof fine,
                                .q = bytes,
                                .k = bytes,
                                .v = bytes,
                                .o = bytes,
                                .lse = (float *)(void *)bytes,
                                .kv_len = 4097,
                                .diag = (int64_t)1 << 33};
    hcp_attn_plan *plan = NULL;
    hcp_attn_args a = fine;
    char text[160] = "";
    (void)state;
    assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
    assert_int_equal(provider->describe(plan, text, sizeof text), HCP_RC_OK);
    assert_non_null(strstr(text, "mma"));
    /* no rows: nothing to launch, and no GPU is asked */
    assert_int_equal(provider->run(plan, &a, NULL), HCP_RC_OK);
    a.k = bytes + 8;
    assert_int_equal(provider->run(plan, &a, NULL), HCP_RC_INVALID);
    a = fine;
    a.q_len = 1001;
    assert_int_equal(provider->run(plan, &a, NULL), HCP_RC_INVALID);
    a = fine;
    a.diag = -1;
    assert_int_equal(provider->run(plan, &a, NULL), HCP_RC_INVALID);
    provider->plan_destroy(plan);
    provider->plan_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_run_checks_its_arguments),
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests_name("prefill-sm80", tests, NULL, NULL);
}
