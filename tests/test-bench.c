/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel is given when it is timed: random normal numbers, and other ones each
 * time, until more than the last cache holds has gone by.
 */
#include "config.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "profiler/bench.h"

enum { RUNS = 400 };

/* The CPU's kernel, that only notes what it is given. */
static const void *seen[3][RUNS];
static int n_seen;

static int note(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    (void)plan, (void)stream;
    assert_true(n_seen < RUNS);
    seen[0][n_seen] = args->q;
    seen[1][n_seen] = args->k;
    seen[2][n_seen++] = args->v;
    return HCP_RC_OK;
}

static const hcp_provider *spy(void)
{
    static hcp_provider provider;
    provider = *hcp_provider_cpu();
    provider.name = "spy";
    provider.run = note;
    return &provider;
}

/* In the place of kernels/builtins.c. */
int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size)
{
    static const hcp_provider_ctor all[] = {spy};
    return hcp_registry_open_with(device, all, 1, plugin_path, out, err, err_size);
}

static void open_bench(struct hcp_bench *b, int64_t cold_bytes, int64_t q_len,
                       int64_t kv_len, struct hcp_bench_plan **plan)
{
    static const hcp_device_ref cpu = {
        .size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};
    struct hcp_device_config config = {
        .batch = 1, .heads = 4, .kv_heads = 2, .head_dim = 64};
    struct hcp_device_info info = {.sm_count = 0};
    struct hcp_cell_request cell = {.q_len = q_len, .kv_len = kv_len};
    strcpy(config.dtype, "fp32");
    strcpy(config.phase, "prefill");
    strcpy(cell.mask, "full");
    n_seen = 0;
    assert_int_equal(
        hcp_bench_open(b, &config, hcp_runtime_cpu(), &cpu, cold_bytes, &info, NULL),
        HCP_OK);
    assert_int_equal(hcp_bench_prepare(b, &cell, plan, NULL), HCP_OK);
}

/* fp32, 4 query and 2 key/value heads of 64: 1,024 and 512 bytes a row. */
static void inputs_go_round_more_than_the_cache(void **state)
{
    enum { COLD = 4 << 20, Q = 100, KV = 300 };
    struct hcp_bench b;
    struct hcp_bench_plan *plan;
    (void)state;
    open_bench(&b, COLD, Q, KV, &plan);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(hcp_bench_run(&b, plan), HCP_RC_OK);
    int64_t bytes = 1024 * Q + 2 * 512 * KV, round = 0;
    for (int i = 1; i < RUNS && round == 0; i++)
        round = seen[1][i] == seen[1][0] ? i : 0;
    assert_true(round > 1);
    assert_true(round * bytes >= COLD);
    /* No two runs of a round share a byte. */
    for (int i = 0; i < round; i++)
        for (int k = 0; k < i; k++)
            for (int t = 0; t < 3; t++)
                assert_true(labs((const char *)seen[0][i] - (const char *)seen[t][k]) >=
                            (t == 0 ? 1024 * Q : 512 * KV));
    for (int i = 0; i + round < RUNS; i++)
        assert_ptr_equal(seen[0][i], seen[0][i + round]);
    hcp_bench_close(&b);
}

static void inputs_are_random_normal(void **state)
{
    enum { N = 512 * 300 / 4 };
    struct hcp_bench b;
    struct hcp_bench_plan *plan;
    (void)state;
    open_bench(&b, 1 << 20, 100, 300, &plan);
    assert_int_equal(hcp_bench_run(&b, plan), HCP_RC_OK);
    assert_int_equal(hcp_bench_run(&b, plan), HCP_RC_OK);
    assert_memory_not_equal(seen[1][0], seen[1][1], 4 * N);
    for (int t = 0; t < 3; t++) {
        const float *x = seen[t][0];
        int n = t == 0 ? 1024 * 100 / 4 : N, far = 0;
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
            far += fabs((double)x[i]) > 2;
        }
        assert_true(fabs(sum / n) < 0.05);
        assert_true(fabs(squares / n - 1) < 0.05);
        assert_true(fabs((double)far / n - 0.0455) < 0.01); /* of a normal deviate */
    }
    hcp_bench_close(&b);
}

/* A cell is timed the same whichever cells went before. */
static void a_larger_pool_changes_nothing(void **state)
{
    struct hcp_bench b;
    struct hcp_bench_plan *plan, *large;
    struct hcp_cell_request cell = {.q_len = 4096, .kv_len = 4096, .mask = "full"};
    (void)state;
    open_bench(&b, 1 << 20, 100, 300, &plan);
    int64_t sets = plan->sets;
    assert_int_equal(hcp_bench_prepare(&b, &cell, &large, NULL), HCP_OK);
    assert_true(b.pool_bytes > 4 << 20);
    cell.q_len = 100, cell.kv_len = 300;
    assert_int_equal(hcp_bench_prepare(&b, &cell, &plan, NULL), HCP_OK);
    assert_int_equal(plan->sets, sets);
    hcp_bench_close(&b);
}

static int little(void **out, int64_t bytes)
{
    return bytes > 64 << 20 ? HCP_RC_NO_MEMORY : hcp_runtime_cpu()->alloc(out, bytes);
}

/* A cell that there is no memory for takes none from those before it. */
static void a_cell_too_large_costs_no_other(void **state)
{
    hcp_runtime runtime = *hcp_runtime_cpu();
    struct hcp_bench b;
    struct hcp_bench_plan *plan;
    struct hcp_cell_request cell = {.q_len = 100, .kv_len = 1 << 20, .mask = "full"};
    struct hcp_err err = {0};
    (void)state;
    runtime.alloc = little;
    open_bench(&b, 1 << 20, 100, 300, &plan);
    b.runtime = &runtime;
    int64_t sets = plan->sets;
    assert_int_equal(hcp_bench_prepare(&b, &cell, &plan, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "no memory for 1.0"));
    cell.kv_len = 300;
    assert_int_equal(hcp_bench_prepare(&b, &cell, &plan, NULL), HCP_OK);
    assert_int_equal(plan->sets, sets);
    assert_int_equal(hcp_bench_run(&b, plan), HCP_RC_OK);
    assert_non_null(seen[0][0]);
    hcp_bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_go_round_more_than_the_cache),
        cmocka_unit_test(inputs_are_random_normal),
        cmocka_unit_test(a_larger_pool_changes_nothing),
        cmocka_unit_test(a_cell_too_large_costs_no_other),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
