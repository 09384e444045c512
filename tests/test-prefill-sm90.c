/* SPDX-License-Identifier: Apache-2.0
 *
 * The host side of "cuda-wgmma" without a GPU: what it refuses, the tensor maps that it
 * asks the driver for, and the job that it launches. The linker puts what is here in the
 * place of the runtime's search for the driver's encoder and of the launch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include "kernels/cuda-internal.h"
#include "kernels/prefill-sm90.h"
#include "kernels/registry.h"

static const hcp_device_ref h200 = {sizeof h200, HCP_DEVICE_CUDA, 0, 9, 0, 132};

/* What the driver would have been asked, map by map. */
static struct map {
    int type, rank, swizzle, fill;
    void *data;
    cuuint64_t dims[4], bytes[3];
    cuuint32_t box[4], step[4];
} maps[8];
static int n_maps;
static CUresult encoder_says;
static enum cudaDriverEntryPointQueryResult driver_has;

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                       void *data, const cuuint64_t *dims, const cuuint64_t *bytes,
                       const cuuint32_t *box, const cuuint32_t *step,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    struct map *m = &maps[n_maps++];
    (void)promotion;
    assert_true(n_maps <= 8);
    assert_int_equal((uintptr_t)map % 64, 0);
    assert_int_equal(interleave, CU_TENSOR_MAP_INTERLEAVE_NONE);
    assert_int_equal(rank, 4);
    *m = (struct map){.type = (int)type,
                      .rank = (int)rank,
                      .swizzle = (int)swizzle,
                      .fill = (int)fill,
                      .data = data};
    memcpy(m->dims, dims, sizeof m->dims);
    memcpy(m->bytes, bytes, sizeof m->bytes);
    memcpy(m->box, box, sizeof m->box);
    memcpy(m->step, step, sizeof m->step);
    memset(map, n_maps, sizeof *map); /* which map it was */
    return encoder_says;
}

cudaError_t
__wrap_cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                        unsigned version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status);
cudaError_t
__wrap_cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                        unsigned version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status)
{
    (void)flags;
    assert_string_equal(symbol, "cuTensorMapEncodeTiled");
    assert_int_equal(version, 12000);
    *status = driver_has;
    *function =
        driver_has == cudaDriverEntryPointSuccess ? (void *)(uintptr_t)encode : NULL;
    return cudaSuccess;
}

static hcp_sm90_prefill launched;
static int launches, blocks_at_most;

int __wrap_hcp_cuda_launch_prefill_sm90(const hcp_attn_problem *problem,
                                        const hcp_sm90_prefill *job, int sm_count,
                                        void *stream);
int __wrap_hcp_cuda_launch_prefill_sm90(const hcp_attn_problem *problem,
                                        const hcp_sm90_prefill *job, int sm_count,
                                        void *stream)
{
    (void)problem;
    assert_ptr_equal(stream, &launched);
    launched = *job;
    launches++;
    blocks_at_most = sm_count;
    return cudaSuccess;
}

static int reset(void **state)
{
    (void)state;
    n_maps = launches = 0;
    encoder_says = CUDA_SUCCESS;
    driver_has = cudaDriverEntryPointSuccess;
    return 0;
}

static hcp_attn_problem good(void)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 2,
                          .q_len = 1000,
                          .kv_len = 4097,
                          .heads = 28,
                          .kv_heads = 4,
                          .head_dim = 128,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_FP32,
                          .causal = 1,
                          .accumulate = 1,
                          .diag = 63,
                          .scale = 0.125};
    hcp_problem_set_dense_strides(&p);
    return p;
}

static _Alignas(16) char memory[5][16];

static hcp_attn_args args_of(const hcp_attn_problem *p)
{
    return (hcp_attn_args){.size = sizeof(hcp_attn_args),
                           .q = memory[0],
                           .k = memory[1],
                           .v = memory[2],
                           .o = memory[3],
                           .lse = (float *)(void *)memory[4],
                           .workspace = memory[4],
                           .q_len = p->q_len,
                           .kv_len = p->kv_len,
                           .diag = p->diag};
}

static void refused(const hcp_device_ref *device, const hcp_attn_problem *p,
                    const char *why)
{
    hcp_attn_support s = {.size = sizeof s};
    hcp_attn_plan *plan = NULL;
    const hcp_provider *provider = hcp_provider_cuda_wgmma();
    assert_int_equal(provider->query(device, p, &s), HCP_RC_OK);
    assert_int_equal(s.supported, 0);
    assert_non_null(strstr(s.reason, why));
    assert_int_equal(provider->plan_create(device, p, &plan), HCP_RC_UNSUPPORTED);
    assert_null(plan);
}

static void test_refuses(void **state)
{
    hcp_device_ref other = h200;
    hcp_attn_problem p = good();
    (void)state;
    other.cc_major = 8;
    refused(&other, &p, "9.0");
    other.cc_major = 10;
    refused(&other, &p, "9.0");
    p.scale = 0;
    refused(&h200, &p, "scale");
    p.scale = -0.125;
    refused(&h200, &p, "scale");
    p.scale = 1e-46; /* 0 in fp32 */
    refused(&h200, &p, "scale");
    p.scale = 1e39;
    refused(&h200, &p, "scale");
    p = good();
    p.head_dim = 96; /* checked by cuda-shape.h, asked here */
    refused(&h200, &p, "head dim");
    p = good();
    p.k_stride[1] = 0;
    refused(&h200, &p, "stride");
    p = good();
    p.v_stride[0] = (int64_t)1 << 39; /* elements: 2^40 bytes */
    refused(&h200, &p, "stride");
    p = good();
    p.q_len = p.kv_len = (int64_t)1 << 30;
    refused(&h200, &p, "too long together");
    p = good();
    p.q_len = (int64_t)1 << 29;
    p.heads = p.kv_heads = 1 << 10;
    refused(&h200, &p, "tiles");
}

static void test_takes(void **state)
{
    hcp_attn_problem p = good();
    hcp_attn_support s = {.size = sizeof s};
    const hcp_provider *provider = hcp_provider_cuda_wgmma();
    (void)state;
    /* A stride that nothing is walked by is not looked at. */
    p.batch = p.kv_heads = 1;
    p.k_stride[0] = 0;
    p.k_stride[1] = (int64_t)1 << 45;
    for (int64_t d = 64; d <= 256; d *= 2) {
        p.head_dim = d;
        for (p.dtype = HCP_BF16; p.dtype <= HCP_FP16; p.dtype++) {
            p.out_dtype = p.dtype;
            p.accumulate = 0;
            assert_int_equal(provider->query(&h200, &p, &s), HCP_RC_OK);
            assert_string_equal(s.reason, "");
            assert_int_equal(s.supported, 1);
            const hcp_sm90_tile tile = hcp_cuda_prefill_sm90_tile(&p);
            assert_true(tile.q % 64 == 0 && tile.kv % 16 == 0);
            assert_true(tile.q > 0 && tile.q <= 256 && tile.kv > 0 &&
                        tile.kv <= 256); /* rows of a TMA box */
            /* One of two at 128, as lengths are: not told. */
            assert_int_equal(s.tile_q, tile.q);
            assert_int_equal(s.tile_kv, tile.kv);
            assert_true(s.workspace_bytes >= 4);
        }
    }
    s.size = sizeof s - 1;
    assert_int_equal(provider->query(&h200, &p, &s), HCP_RC_INVALID);
}

static hcp_attn_plan *planned(const hcp_attn_problem *p)
{
    hcp_attn_plan *plan = NULL;
    assert_int_equal(hcp_provider_cuda_wgmma()->plan_create(&h200, p, &plan), HCP_RC_OK);
    assert_non_null(plan);
    return plan;
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args)
{
    return hcp_provider_cuda_wgmma()->run(plan, args, &launched);
}

static void check_map(int i, const void *data, int64_t tokens, int64_t heads,
                      const int64_t stride[3], int rows)
{
    const struct map *m = &maps[i];
    assert_ptr_equal(m->data, data);
    assert_int_equal(m->swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
    assert_int_equal(m->fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE); /* zeros, not NaN */
    assert_int_equal(m->dims[0], 128);
    assert_int_equal(m->dims[1], tokens);
    assert_int_equal(m->dims[2], heads);
    assert_int_equal(m->dims[3], 2);
    assert_int_equal(m->bytes[0], 2 * stride[2]);
    assert_int_equal(m->bytes[1], 2 * stride[1]);
    assert_int_equal(m->bytes[2], 2 * stride[0]);
    assert_int_equal(m->box[0] * 2, 128); /* bytes: the swizzle's row */
    assert_int_equal(m->box[1], rows);
    assert_true(m->box[2] == 1 && m->box[3] == 1);
    for (int k = 0; k < 4; k++)
        assert_int_equal(m->step[k], 1);
}

static void test_maps_and_job(void **state)
{
    hcp_attn_problem p = good();
    const hcp_sm90_tile tile = hcp_cuda_prefill_sm90_tile(&p);
    (void)state;
    /* Token-major: heads of a token side by side, with a gap after them. */
    p.q_stride[2] = 28 * 128 + 8, p.q_stride[1] = 128, p.q_stride[0] = 2000 * 4000;
    p.v_stride[2] = 4 * 128, p.v_stride[1] = 128, p.v_stride[0] = 4097 * 4 * 128;
    hcp_attn_plan *plan = planned(&p);
    hcp_attn_args a = args_of(&p);
    a.kv_len = 300;
    assert_int_equal(run(plan, &a), HCP_RC_OK);
    assert_int_equal(n_maps, 3);
    check_map(0, a.q, 1000, 28, p.q_stride, (int)tile.q);
    check_map(1, a.k, 300, 4, p.k_stride, (int)tile.kv);
    check_map(2, a.v, 300, 4, p.v_stride, (int)tile.kv);
    assert_int_equal(maps[0].type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    assert_int_equal(launches, 1);
    assert_int_equal(blocks_at_most, 132);
    assert_int_equal(((char *)&launched.q)[0], 1);
    assert_int_equal(((char *)&launched.k)[0], 2);
    assert_int_equal(((char *)&launched.v)[0], 3);
    assert_ptr_equal(launched.o, a.o);
    assert_ptr_equal(launched.lse, a.lse);
    assert_ptr_equal(launched.counter, a.workspace);
    assert_memory_equal(launched.o_stride, p.o_stride, sizeof p.o_stride);
    assert_true(launched.q_len == 1000 && launched.kv_len == 300 && launched.diag == 63);
    assert_true(launched.heads == 28 && launched.kv_heads == 4 && launched.batch == 2);
    assert_true(launched.out_fp32 && launched.accumulate);
    assert_true(launched.scale_log2 > 0.18033 && launched.scale_log2 < 0.18034);
    assert_int_equal(launched.row_blocks, (1000 + tile.q - 1) / tile.q);
    assert_int_equal(launched.tiles, 2 * 28 * launched.row_blocks);
    assert_int_equal(launched.section, 8); /* all of them fit into the L2 */
    hcp_provider_cuda_wgmma()->plan_destroy(plan);
}

static void test_sections(void **state)
{
    hcp_attn_problem p = good();
    (void)state;
    p.dtype = HCP_FP16;
    p.kv_len = 16384;
    hcp_problem_set_dense_strides(&p);
    hcp_attn_plan *plan = planned(&p);
    hcp_attn_args a = args_of(&p);
    assert_int_equal(run(plan, &a), HCP_RC_OK);
    assert_int_equal(maps[1].type, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    assert_int_equal(launched.section, 4); /* 8 MiB of K and V a head */
    hcp_provider_cuda_wgmma()->plan_destroy(plan);
    p.kv_len = 1 << 20;
    hcp_problem_set_dense_strides(&p);
    plan = planned(&p);
    a = args_of(&p);
    assert_int_equal(run(plan, &a), HCP_RC_OK);
    assert_int_equal(launched.section, 1);
    hcp_provider_cuda_wgmma()->plan_destroy(plan);
}

/* Profiles name one tile for a kernel: lengths, mask and SMs do not change it. */
static void test_one_tile(void **state)
{
    static const int64_t lens[] = {1, 677, 1024, 4096, 65536};
    (void)state;
    for (int64_t dim = 64; dim <= 256; dim *= 2) {
        hcp_attn_support first = {.size = sizeof first};
        for (int i = 0; i < 2 * 5 * 5; i++) {
            hcp_device_ref device = h200;
            hcp_attn_support s = {.size = sizeof s};
            hcp_attn_problem p = good();
            p.head_dim = dim;
            p.q_len = lens[i / 10];
            p.kv_len = lens[i / 2 % 5];
            p.causal = i % 2;
            p.diag = 0;
            hcp_problem_set_dense_strides(&p);
            device.sm_count = i % 3 ? 132 : 12;
            assert_int_equal(hcp_provider_cuda_wgmma()->query(&device, &p, &s),
                             HCP_RC_OK);
            assert_true(s.supported && s.tile_q > 0 && s.tile_kv > 0);
            if (i == 0)
                first = s;
            assert_int_equal(s.tile_q, first.tile_q);
            assert_int_equal(s.tile_kv, first.tile_kv);
        }
    }
}

static void test_short_runs(void **state)
{
    hcp_attn_problem p = good();
    (void)state;
    p.batch = 1;
    p.q_stride[0] = 0;
    p.accumulate = 0;
    p.causal = 0;
    hcp_attn_plan *plan = planned(&p);
    hcp_attn_args a = args_of(&p);
    a.q_len = 0;
    assert_int_equal(run(plan, &a), HCP_RC_OK);
    assert_int_equal(launches, 0);
    /* No key: the rows are written all the same; a map has no axis of 0. */
    a = args_of(&p);
    a.kv_len = 0;
    a.k = a.v = NULL;
    assert_int_equal(run(plan, &a), HCP_RC_OK);
    assert_non_null(maps[1].data);
    assert_non_null(maps[2].data);
    assert_int_equal(launches, 1);
    assert_int_equal(launched.kv_len, 0);
    assert_int_equal(maps[1].dims[1], 1);
    assert_true(maps[0].bytes[2] > 0 && maps[0].bytes[2] % 16 == 0);
    /* Without a mask the diagonal shows every key. */
    a = args_of(&p);
    a.diag = -5;
    assert_int_equal(run(plan, &a), HCP_RC_OK);
    assert_int_equal(launched.diag, p.kv_len);
    hcp_provider_cuda_wgmma()->plan_destroy(plan);
}

static void test_arguments(void **state)
{
    hcp_attn_problem p = good();
    (void)state;
    hcp_attn_plan *plan = planned(&p);
    hcp_attn_args a = args_of(&p);
    a.kv_len = p.kv_len + 1;
    assert_int_equal(run(plan, &a), HCP_RC_INVALID);
    a = args_of(&p);
    a.diag = -1;
    assert_int_equal(run(plan, &a), HCP_RC_INVALID);
    a = args_of(&p);
    a.workspace = NULL;
    assert_int_equal(run(plan, &a), HCP_RC_INVALID);
    a = args_of(&p);
    a.v = memory[2] + 8;
    assert_int_equal(run(plan, &a), HCP_RC_INVALID);
    assert_non_null(strstr(hcp_cuda_error_text(), "16 bytes"));
    a = args_of(&p);
    encoder_says = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(run(plan, &a), HCP_RC_DEVICE);
    assert_non_null(strstr(hcp_cuda_error_text(), "tensor map"));
    assert_int_equal(launches, 0);
    hcp_provider_cuda_wgmma()->plan_destroy(plan);
    hcp_provider_cuda_wgmma()->plan_destroy(NULL);
}

static void test_old_driver(void **state)
{
    hcp_attn_problem p = good();
    hcp_attn_plan *plan = NULL;
    (void)state;
    driver_has = cudaDriverEntryPointSymbolNotFound;
    assert_int_equal(hcp_provider_cuda_wgmma()->plan_create(&h200, &p, &plan),
                     HCP_RC_MISSING);
    assert_null(plan);
    assert_non_null(strstr(hcp_cuda_error_text(), "driver"));
}

static void test_describes(void **state)
{
    hcp_attn_problem p = good();
    char text[128] = "";
    (void)state;
    hcp_attn_plan *plan = planned(&p);
    assert_int_equal(hcp_provider_cuda_wgmma()->describe(plan, text, sizeof text),
                     HCP_RC_OK);
    assert_non_null(strstr(text, "132 SMs"));
    hcp_provider_cuda_wgmma()->plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_refuses, reset),
        cmocka_unit_test_setup(test_takes, reset),
        cmocka_unit_test_setup(test_maps_and_job, reset),
        cmocka_unit_test_setup(test_sections, reset),
        cmocka_unit_test_setup(test_one_tile, reset),
        cmocka_unit_test_setup(test_short_runs, reset),
        cmocka_unit_test_setup(test_arguments, reset),
        cmocka_unit_test_setup(test_old_driver, reset),
        cmocka_unit_test_setup(test_describes, reset),
    };
    return cmocka_run_group_tests_name("prefill sm90", tests, NULL, NULL);
}
