/* SPDX-License-Identifier: Apache-2.0
 *
 * What every provider of CUDA kernels checks alike; needs no GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/cuda-shape.h"
#include "kernels/registry.h"

static const hcp_device_ref a100 = {sizeof a100, HCP_DEVICE_CUDA, 0, 8, 0, 108};

static hcp_attn_problem good(void)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 2,
                          .q_len = 65,
                          .kv_len = 127,
                          .heads = 28,
                          .kv_heads = 4,
                          .head_dim = 128,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_FP32,
                          .causal = 1,
                          .accumulate = 1,
                          .diag = 63,
                          .scale = 0.0884};
    hcp_problem_set_dense_strides(&p);
    return p;
}

static void refused(const hcp_device_ref *device, const hcp_attn_problem *p,
                    const char *why)
{
    const char *text = hcp_cuda_refusal(device, p);
    assert_non_null(text);
    assert_non_null(strstr(text, why));
    assert_ptr_equal(hcp_cuda_tile_refusal(device, p), text);
}

static void tile_refused(const hcp_attn_problem *p, const char *why)
{
    const char *text = hcp_cuda_tile_refusal(&a100, p);
    assert_null(hcp_cuda_refusal(&a100, p));
    assert_non_null(text);
    assert_non_null(strstr(text, why));
    assert_true(strlen(text) < sizeof ((hcp_attn_support *)NULL)->reason);
}

static void test_takes_what_it_should(void **state)
{
    hcp_attn_problem p = good();
    (void)state;
    assert_null(hcp_cuda_tile_refusal(&a100, &p));
    p.scale = -1e38;
    assert_null(hcp_cuda_tile_refusal(&a100, &p));
    p.scale = 0;
    assert_null(hcp_cuda_tile_refusal(&a100, &p));
    p.dtype = HCP_FP16;
    for (int64_t d = 64; d <= 256; d *= 2) {
        p.head_dim = d;
        hcp_problem_set_dense_strides(&p);
        assert_null(hcp_cuda_tile_refusal(&a100, &p));
    }
    p.accumulate = 0;
    p.out_dtype = HCP_FP16;
    p.q_len = p.kv_len = 0;
    p.diag = INT64_MAX;
    assert_null(hcp_cuda_tile_refusal(&a100, &p));
    p.causal = 0;
    p.diag = -1; /* means nothing without a mask */
    assert_null(hcp_cuda_tile_refusal(&a100, &p));
    /* other kernels take what tensor cores do not */
    p.dtype = HCP_FP32;
    p.head_dim = 40;
    assert_null(hcp_cuda_refusal(&a100, &p));
}

static void test_refuses_with_the_reason(void **state)
{
    hcp_attn_problem p = good();
    hcp_device_ref device = a100;
    (void)state;
    p.size--;
    refused(&a100, &p, "older");
    p = good();
    device.kind = HCP_DEVICE_CPU;
    refused(&device, &p, "CUDA");
    device.kind = HCP_DEVICE_CUDA;
    device.cc_major = 7;
    refused(&device, &p, "8.0");
    p.dtype = 3;
    refused(&a100, &p, "dtype");
    p = good();
    p.out_dtype = -1;
    refused(&a100, &p, "dtype");
    p = good();
    p.q_len = -1;
    refused(&a100, &p, "negative length");
    p = good();
    p.kv_heads = 0;
    refused(&a100, &p, "no heads");
    p = good();
    p.kv_len = ((int64_t)1 << 30) + 1;
    refused(&a100, &p, "2^30");
    p = good();
    p.kv_heads = 8;
    refused(&a100, &p, "multiple of KV heads");
    p = good();
    p.head_dim = 0;
    refused(&a100, &p, "head dim");
    p = good();
    p.diag = -1;
    refused(&a100, &p, "diagonal");
}

static void test_tiles_refuse_with_the_reason(void **state)
{
    hcp_attn_problem p = good();
    int64_t *strides[] = {p.q_stride, p.k_stride, p.v_stride, p.o_stride};
    (void)state;
    p.dtype = HCP_FP32;
    tile_refused(&p, "bf16 and fp16");
    p = good();
    p.out_dtype = HCP_FP16;
    tile_refused(&p, "in the type of Q");
    p = good();
    p.out_dtype = HCP_BF16;
    tile_refused(&p, "fp32 only");
    p = good();
    p.head_dim = 96;
    tile_refused(&p, "64, 128 or 256");
    p = good();
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 3; i++) {
            const int64_t was = strides[t][i];
            strides[t][i] = was + (t == 3 ? 2 : 4); /* 8 bytes */
            tile_refused(&p, "16 bytes");
            strides[t][i] = -was;
            tile_refused(&p, "negative");
            strides[t][i] = was + (t == 3 ? 4 : 8);
            assert_null(hcp_cuda_tile_refusal(&a100, &p));
            strides[t][i] = was;
        }
    p.scale = -2e38;
    tile_refused(&p, "fp32 number");
    p.scale = NAN;
    tile_refused(&p, "fp32 number");
    p = good();
    p.heads = (int64_t)1 << 40;
    tile_refused(&p, "batch x heads");
    p.batch = (int64_t)1 << 30;
    tile_refused(&p, "batch x heads");
}

static void test_clamps_arguments(void **state)
{
    hcp_attn_problem p = good();
    hcp_attn_args a = {.size = sizeof a, .q_len = 65, .kv_len = 127, .diag = 63}, out;
    (void)state;
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_OK);
    assert_memory_equal(&out, &a, sizeof a);
    a.diag = (int64_t)1 << 33;
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_OK);
    assert_int_equal(out.diag, 127);
    a.kv_len = 0;
    a.q_len = 1;
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_OK);
    assert_int_equal(out.diag, 0);
    assert_int_equal(out.q_len, 1);
    a.kv_len = 100;
    a.diag = -1;
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_INVALID);
    p.causal = 0;
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_OK);
    assert_int_equal(out.diag, 100);
    a.size += 8; /* a newer host's */
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_OK);
    assert_int_equal(out.size, sizeof out);
    a.size = sizeof a - 1;
    assert_int_equal(hcp_cuda_clamp_args(&p, &a, &out), HCP_RC_INVALID);
    a.size = sizeof a;
    for (int which = 0; which < 4; which++) {
        hcp_attn_args bad = a;
        *(which & 1 ? &bad.q_len : &bad.kv_len) = which & 2 ? -1 : 128;
        assert_int_equal(hcp_cuda_clamp_args(&p, &bad, &out), HCP_RC_INVALID);
    }
}

static void test_alignment(void **state)
{
    static _Alignas(16) char bytes[32];
    const hcp_attn_args fine = {
        .q = bytes, .k = bytes, .v = bytes, .o = bytes, .lse = (float *)(void *)bytes};
    (void)state;
    assert_true(hcp_cuda_args_aligned(&fine));
    for (int which = 0; which < 5; which++) {
        hcp_attn_args a = fine;
        void *at = bytes + 8;
        if (which == 0)
            a.q = at;
        else if (which == 1)
            a.k = at;
        else if (which == 2)
            a.v = at;
        else if (which == 3)
            a.o = at;
        else
            a.lse = at;
        assert_false(hcp_cuda_args_aligned(&a));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_it_should),
        cmocka_unit_test(test_refuses_with_the_reason),
        cmocka_unit_test(test_tiles_refuse_with_the_reason),
        cmocka_unit_test(test_clamps_arguments),
        cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests_name("cuda shape", tests, NULL, NULL);
}
