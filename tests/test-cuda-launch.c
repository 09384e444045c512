/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of "cuda-reference" and "cuda-mma" without a GPU: the shared memory that
 * kernels ask for, and blocks for all rows.
 */
#include "tests/cuda-launch-fixture.h"

static int run(int32_t dtype, int64_t head_dim)
{
    const hcp_provider *provider = hcp_provider_cuda_reference();
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 65,
                          .kv_len = 63,
                          .heads = 28,
                          .kv_heads = 4,
                          .head_dim = head_dim,
                          .dtype = dtype,
                          .out_dtype = HCP_FP32,
                          .scale = 0.0625};
    const hcp_attn_args args = {.size = sizeof args, .q_len = 65, .kv_len = 63};
    hcp_attn_plan *plan = NULL;
    hcp_problem_set_dense_strides(&p);
    assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
    int rc = provider->run(plan, &args, NULL);
    provider->plan_destroy(plan);
    return rc;
}

static void test_every_head_dim_gets_its_shared_memory(void **state)
{
    (void)state;
    for (int32_t dtype = HCP_BF16; dtype <= HCP_FP32; dtype++)
        for (int64_t d = 1; d <= 256; d++)
            assert_int_equal(run(dtype, d), HCP_RC_OK);
    assert_int_equal(launches, 3 * 256);
    assert_true(most_shared > DEFAULT_LIMIT); /* the limit mattered */
}

static int32_t other_dtype;
static int64_t other_dim;
static int other_rc;

static void launch_other(void)
{
    other_rc = run(other_dtype, other_dim);
}

static void test_plans_of_other_threads_take_no_shared_memory(void **state)
{
    static const int64_t dims[] = {256, 64, 128, 255, 1};
    enum { N = sizeof dims / sizeof *dims };
    (void)state;
    for (other_dtype = HCP_BF16; other_dtype <= HCP_FP32; other_dtype++)
        for (int32_t dtype = HCP_BF16; dtype <= HCP_FP32; dtype++)
            for (int i = 0; i < N * N; i++) {
                fresh(NULL);
                other_dim = dims[i / N];
                other_rc = -1;
                meanwhile = launch_other;
                assert_int_equal(run(dtype, dims[i % N]), HCP_RC_OK);
                assert_int_equal(other_rc, HCP_RC_OK);
                assert_int_equal(launches, 2);
            }
}

/* A block per tile of rows and head, none for no rows, in the memory of any GPU. */
static void test_mma_covers_the_rows(void **state)
{
    static const int64_t lengths[] = {0, 1, 63, 64, 65, 127, 128, 129, 1000, 4097};
    const hcp_provider *provider = hcp_provider_cuda_mma();
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 8, 6, 84};
    (void)state;
    for (int n = 0; n < 2 * 3 * 10; n++) {
        hcp_attn_problem p = {.size = sizeof p,
                              .batch = 2,
                              .q_len = lengths[n / 6],
                              .kv_len = lengths[9 - n / 6],
                              .heads = 28,
                              .kv_heads = 4,
                              .head_dim = 64 << n % 3,
                              .dtype = n / 3 % 2 ? HCP_FP16 : HCP_BF16,
                              .out_dtype = HCP_FP32,
                              .scale = 0.0625};
        const hcp_attn_args args = {
            .size = sizeof args, .q_len = p.q_len, .kv_len = p.kv_len};
        hcp_attn_support s = {.size = sizeof s};
        hcp_attn_plan *plan = NULL;
        fresh(NULL);
        hcp_problem_set_dense_strides(&p);
        assert_int_equal(provider->query(&gpu, &p, &s), HCP_RC_OK);
        assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
        assert_int_equal(provider->run(plan, &args, NULL), HCP_RC_OK);
        provider->plan_destroy(plan);
        assert_int_equal(launches, p.q_len > 0);
        if (launches)
            assert_int_equal(blocks[0], 56 * ((p.q_len + s.tile_q - 1) / s.tile_q));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_head_dim_gets_its_shared_memory),
        TEST(test_plans_of_other_threads_take_no_shared_memory),
        TEST(test_mma_covers_the_rows),
    };
    return cmocka_run_group_tests_name("cuda launch", tests, NULL, NULL);
}
