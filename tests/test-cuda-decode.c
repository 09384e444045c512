/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of "cuda-decode" without a GPU: how many blocks, which kernel, and what it
 * refuses.
 */
#include "tests/cuda-launch-fixture.h"

/* Blocks of decode-sm90.cu: the steps of all tiles of rows one after the other, in equal
 * shares, and no tile in more parts than splits. */
static void check_shares(const hcp_attn_problem *p, int64_t rows, int64_t kv_len,
                         int64_t block_steps, int64_t splits)
{
    const hcp_decode_sm90_tile tile = hcp_cuda_decode_sm90_tile(p->head_dim, rows);
    const int64_t steps = (kv_len + tile.keys - 1) / tile.keys;
    const int64_t tiles = p->batch * p->kv_heads * ((rows + tile.rows - 1) / tile.rows);
    assert_true(block_steps >= 1 && steps >= 1);
    assert_int_equal(blocks[0], (tiles * steps + block_steps - 1) / block_steps);
    int64_t most = 0;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t first = t * steps / block_steps;
        const int64_t last = (t * steps + steps - 1) / block_steps;
        most = last - first >= most ? last - first + 1 : most;
    }
    assert_in_range(most, 1, splits);
    assert_true(splits == 1 || most > 1);
    assert_int_equal(maps, 2);
    assert_int_equal(map.tokens, kv_len);
    assert_int_equal(map.heads, p->kv_heads);
    assert_int_equal(map.columns, 64);
    assert_int_equal(map.box, tile.keys);
}

/* What decode.h says of the blocks: equal shares, or tiles x splits; then those of the
 * merge where there is more than one split. The splits of any run have room in the plan's
 * workspace. */
static void check_decode(const hcp_device_ref *gpu, const hcp_attn_problem *p,
                         hcp_attn_plan *plan, int64_t workspace, int64_t q_len,
                         int64_t kv_len)
{
    const hcp_provider *provider = hcp_provider_cuda_decode();
    const hcp_attn_args args = {
        .size = sizeof args, .q_len = q_len, .kv_len = kv_len, .diag = kv_len};
    const int64_t rows = p->heads / p->kv_heads * q_len, planes = p->batch * p->kv_heads;
    const int64_t tile = rows > 64 && p->head_dim < 256 ? 128 : 64; /* the largest */
    const int64_t out_rows = p->batch * p->heads * q_len;
    const int walks = p->batch == 1 || p->k_stride[0] < (int64_t)1 << 39; /* TMA does */
    const int wgmma = gpu->cc_major == 9 && rows > 32 && kv_len > 0 && walks;
    int64_t splits = 0;
    long long steps = 0, parts = 0;
    char text[160] = "";
    launches = maps = 0;
    assert_int_equal(provider->run(plan, &args, NULL), HCP_RC_OK);
    assert_int_equal(provider->describe(plan, text, sizeof text), HCP_RC_OK);
    assert_int_equal(strncmp(text, "wgmma", 5) == 0, wgmma);
    if (wgmma) {
        assert_int_equal(sscanf(strstr(text, "keys, "), "keys, %lld steps a block, %lld",
                                &steps, &parts),
                         2);
        splits = parts;
        check_shares(p, rows, kv_len, steps, splits);
    } else {
        const int64_t tiles = planes * ((rows + tile - 1) / tile);
        splits = blocks[0] / tiles;
        assert_int_equal(blocks[0], tiles * splits);
        assert_int_equal(maps, 0);
    }
    assert_int_equal(launches, splits > 1 ? 2 : 1);
    if (splits > 1) {
        const int64_t of_block = splits <= HCP_DECODE_FEW_SPLITS ? 4 : 1;
        assert_int_equal(blocks[1], (out_rows + of_block - 1) / of_block);
        assert_true(splits * out_rows * (p->head_dim + 1) * 4 <= workspace);
    }
    if (q_len == p->q_len && kv_len == p->kv_len) {
        /* Few SMs idle where there are keys for all, no workspace without use. */
        assert_true(4 * blocks[0] >= 3 * gpu->sm_count || kv_len < 1024 * gpu->sm_count);
        assert_true(splits > 1 || workspace == 0);
    }
}

static void test_decode_splits_fit_their_workspace(void **state)
{
    static const int64_t heads[][2] = {{8, 8},  {8, 1},  {28, 4},
                                       {12, 2}, {64, 8}, {64, 1}};
    static const int64_t lengths[] = {0, 1, 65, 1000, 4097, 65536, 1 << 20, 1 << 30};
    static const int32_t sms[] = {1, 12, 132};
    (void)state;
    for (int k = 0; k < 2 * 3 * 6 * 3 * 16 * 8; k++) {
        const int n = k / 2, hopper = k % 2;
        const hcp_device_ref gpu = {sizeof gpu,     HCP_DEVICE_CUDA, 0,
                                    hopper ? 9 : 8, hopper ? 0 : 6,  sms[n % 3]};
        hcp_attn_problem p = {.size = sizeof p,
                              .batch = 1 + n % 7 * 3,
                              .q_len = 1 + n / 54 % 16,
                              .kv_len = lengths[n / 864],
                              .heads = heads[n / 3 % 6][0],
                              .kv_heads = heads[n / 3 % 6][1],
                              .head_dim = 64 << n / 18 % 3,
                              .dtype = n % 2,
                              .out_dtype = HCP_FP32,
                              .causal = 1,
                              .diag = lengths[n / 864],
                              .scale = 0.0625};
        hcp_attn_support s = {.size = sizeof s};
        const hcp_provider *provider = hcp_provider_cuda_decode();
        hcp_attn_plan *plan = NULL;
        device_limit = hopper ? HOPPER_LIMIT : LEAST_LIMIT;
        hcp_problem_set_dense_strides(&p);
        assert_int_equal(provider->query(&gpu, &p, &s), HCP_RC_OK);
        assert_true(s.supported);
        assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
        check_decode(&gpu, &p, plan, s.workspace_bytes, p.q_len, p.kv_len);
        check_decode(&gpu, &p, plan, s.workspace_bytes, 1, p.kv_len);
        check_decode(&gpu, &p, plan, s.workspace_bytes, p.q_len, p.kv_len / 3);
        check_decode(&gpu, &p, plan, s.workspace_bytes, (p.q_len + 1) / 2, p.kv_len / 50);
        provider->plan_destroy(plan);
    }
}

/* One block an SM keeps up with memory where all 132 SMs of an H200 read; where fewer do,
 * each needs two. */
static void test_decode_fills_few_sms(void **state)
{
    static const struct {
        int32_t sms;
        int blocks_per_sm;
    } device[] = {{12, 2}, {26, 2}, {33, 2}, {50, 2}, {66, 2}, {132, 1}};
    const hcp_provider *provider = hcp_provider_cuda_decode();
    (void)state;
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
        const int32_t sms = device[i].sms, n = device[i].blocks_per_sm;
        const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, sms};
        hcp_attn_problem p = {.size = sizeof p,
                              .batch = 1,
                              .q_len = 1,
                              .kv_len = 262144,
                              .heads = 32,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .out_dtype = HCP_FP32,
                              .scale = 0.0884};
        const hcp_attn_args args = {.size = sizeof args, .q_len = 1, .kv_len = p.kv_len};
        hcp_attn_plan *plan = NULL;
        hcp_problem_set_dense_strides(&p);
        launches = 0;
        assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
        assert_int_equal(provider->run(plan, &args, NULL), HCP_RC_OK);
        provider->plan_destroy(plan);
        /* Whole waves of so many, the last one full to seven eighths. */
        const int64_t wave = n * sms, rest = blocks[0] % wave;
        assert_true(blocks[0] >= wave * 7 / 8);
        assert_true(rest == 0 || 8 * rest >= 7 * wave);
    }
}

static void test_decode_takes_sixteen_queries_at_most(void **state)
{
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    (void)state;
    for (int64_t q_len = 15; q_len <= 18; q_len++) {
        hcp_attn_problem p = {.size = sizeof p,
                              .batch = 1,
                              .q_len = q_len,
                              .kv_len = 100,
                              .heads = 8,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .out_dtype = HCP_FP32,
                              .scale = 1};
        hcp_attn_support s = {.size = sizeof s};
        hcp_problem_set_dense_strides(&p);
        assert_int_equal(hcp_provider_cuda_decode()->query(&gpu, &p, &s), HCP_RC_OK);
        assert_int_equal(s.supported, q_len <= 16);
        assert_int_equal(s.reason[0] == 0, q_len <= 16);
    }
}

static hcp_attn_problem many_rows(void)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 16,
                          .kv_len = 4096,
                          .heads = 64,
                          .kv_heads = 8,
                          .head_dim = 128,
                          .out_dtype = HCP_FP32,
                          .scale = 0.0884};
    hcp_problem_set_dense_strides(&p);
    return p;
}

/* Runs p on a 9.0 and gives describe()'s text. */
static const char *run_on_hopper(const hcp_attn_problem *p)
{
    static char text[160];
    const hcp_provider *provider = hcp_provider_cuda_decode();
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    const hcp_attn_args args = {
        .size = sizeof args, .q_len = p->q_len, .kv_len = p->kv_len};
    hcp_attn_plan *plan = NULL;
    device_limit = HOPPER_LIMIT;
    launches = maps = 0;
    assert_int_equal(provider->plan_create(&gpu, p, &plan), HCP_RC_OK);
    assert_int_equal(provider->describe(plan, text, sizeof text), HCP_RC_OK);
    assert_int_equal(provider->run(plan, &args, NULL), HCP_RC_OK);
    provider->plan_destroy(plan);
    return text;
}

/* What TMA cannot walk and scales that keep no order are left to mma.sync, which takes
 * them; a driver without the encoder is an error. */
static void test_decode_leaves_to_mma_what_wgmma_cannot(void **state)
{
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    hcp_attn_plan *plan = NULL;
    (void)state;
    hcp_attn_problem p = many_rows();
    assert_non_null(strstr(run_on_hopper(&p), "wgmma"));
    p.k_stride[1] = 0; /* one head for all */
    assert_null(strstr(run_on_hopper(&p), "wgmma"));
    p = many_rows();
    p.v_stride[2] = (int64_t)1 << 40;
    assert_null(strstr(run_on_hopper(&p), "wgmma"));
    p = many_rows();
    p.scale = -1;
    assert_null(strstr(run_on_hopper(&p), "wgmma"));
    assert_int_equal(maps, 0);
    p = many_rows();
    driver_is_new = 0;
    assert_int_equal(hcp_provider_cuda_decode()->plan_create(&gpu, &p, &plan),
                     HCP_RC_MISSING);
    assert_null(plan);
    assert_non_null(strstr(hcp_cuda_error_text(), "CUDA 12"));
    p.q_len = 4; /* 32 rows */
    assert_null(strstr(run_on_hopper(&p), "wgmma"));
}

/* The merge starts up beside the splits only if its code waits for them; a call's splits
 * never beside the call before, whose blocks are better left alone on their SMs. */
static void test_decode_overlaps_where_its_code_waits(void **state)
{
    static const int code[] = {90, 80, 100, 0};
    hcp_attn_problem p = many_rows();
    (void)state;
    for (int k = 0; k < 8; k++) {
        p.q_len = k < 4 ? 16 : 1;
        code_of = code[k % 4];
        run_on_hopper(&p);
        assert_int_equal(launches, 2);
        assert_int_equal(attributes[0], 0);
        assert_int_equal(attributes[1], code_of >= 90);
    }
}

/* Rows of 16 queries of all heads are counted in 31 bits. */
static void test_decode_refuses_too_many_heads(void **state)
{
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    hcp_attn_problem p = many_rows();
    (void)state;
    for (int64_t heads = 1 << 26; heads <= 1 << 27; heads *= 2) {
        hcp_attn_support s = {.size = sizeof s};
        p.heads = heads;
        p.q_stride[1] = p.o_stride[1] = p.k_stride[1] = p.v_stride[1] = 0;
        assert_int_equal(hcp_provider_cuda_decode()->query(&gpu, &p, &s), HCP_RC_OK);
        assert_int_equal(s.supported, heads < 1 << 27);
    }
}

/* Loads of 16 bytes from elsewhere would cost the process its device. */
static void test_decode_refuses_unaligned_tensors(void **state)
{
    const hcp_provider *provider = hcp_provider_cuda_decode();
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 1,
                          .kv_len = 100,
                          .heads = 8,
                          .kv_heads = 8,
                          .head_dim = 128,
                          .out_dtype = HCP_FP32,
                          .scale = 1};
    hcp_attn_args args = {.size = sizeof args, .q_len = 1, .kv_len = 100};
    hcp_attn_plan *plan = NULL;
    (void)state;
    hcp_problem_set_dense_strides(&p);
    assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
    args.v = (const void *)8;
    assert_int_equal(provider->run(plan, &args, NULL), HCP_RC_INVALID);
    assert_int_equal(launches, 0);
    args.v = NULL;
    assert_int_equal(provider->run(plan, &args, NULL), HCP_RC_OK);
    assert_true(launches > 0);
    provider->plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_decode_splits_fit_their_workspace),
        TEST(test_decode_fills_few_sms),
        TEST(test_decode_takes_sixteen_queries_at_most),
        TEST(test_decode_leaves_to_mma_what_wgmma_cannot),
        TEST(test_decode_overlaps_where_its_code_waits),
        TEST(test_decode_refuses_too_many_heads),
        TEST(test_decode_refuses_unaligned_tensors),
    };
    return cmocka_run_group_tests_name("cuda decode", tests, NULL, NULL);
}
