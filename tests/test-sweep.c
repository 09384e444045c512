/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids, order, estimates of a sweep; slugs; the duty cycle of a CPU limit.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "profiler/device.h"
#include "profiler/limiter.h"
#include "profiler/progress.h"
#include "profiler/sweep.h"

static void preset_grid(void **state)
{
    struct hcp_grid g;
    (void)state;
    assert_int_equal(hcp_grid_preset(128, 65536, 1, &g, NULL), HCP_OK);
    assert_int_equal(g.n_kv, 10);
    assert_int_equal(g.n_causal, 10);
    assert_int_equal(g.n_q, 13); /* and 384, 768, 1536 */
    assert_int_equal(g.q[0], 128);
    assert_int_equal(g.q[2], 384);
    assert_int_equal(g.q[12], 65536);
    hcp_grid_free(&g);
    assert_int_equal(hcp_grid_preset(64, 1000, 0, &g, NULL),
                     HCP_OK); /* 64 .. 512, 1000 */
    assert_int_equal(g.n_q, 5);
    assert_int_equal(g.q[4], 1000);
    hcp_grid_free(&g);
    assert_int_equal(hcp_grid_preset(7, 7, 1, &g, NULL), HCP_OK);
    assert_int_equal(g.n_q, 1);
    hcp_grid_free(&g);
}

static void length_lists(void **state)
{
    int64_t *lens = NULL;
    size_t n = 0;
    struct hcp_err err = {0};
    static const char *const bad[] = {"",
                                      ",",
                                      "1,",
                                      "0",
                                      "-4",
                                      "1,x",
                                      "2^40",
                                      "1099511627776",
                                      "1.5K",
                                      "64K ",
                                      "9999999999999999999999999999999999999999"};
    (void)state;
    assert_int_equal(hcp_grid_lens("64K,1,128,1", "--q-lens", &lens, &n, &err), HCP_OK);
    assert_int_equal(n, 3);
    assert_int_equal(lens[0], 1);
    assert_int_equal(lens[1], 128);
    assert_int_equal(lens[2], 65536);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err.text[0] = '\0';
        assert_int_equal(hcp_grid_lens(bad[i], "--q-lens", &lens, &n, &err), HCP_USAGE);
        assert_non_null(strstr(err.text, "--q-lens"));
        assert_int_equal(n, 3); /* untouched */
    }
    assert_int_equal(hcp_grid_lens("none", "--q-lens", &lens, &n, &err), HCP_OK);
    assert_int_equal(n, 0);
    free(lens);
}

/* Every cell once, coarse ones first, the same order for the same seed. */
static void order(void **state)
{
    struct hcp_grid g;
    struct hcp_sweep_cell *a, *b, *c;
    size_t n;
    int differs = 0, fine_seen = 0;
    (void)state;
    assert_int_equal(hcp_grid_preset(128, 65536, 1, &g, NULL), HCP_OK);
    assert_int_equal(hcp_sweep_cells(&g, 5, &a, &n, NULL), HCP_OK);
    assert_int_equal(hcp_sweep_cells(&g, 5, &b, &n, NULL), HCP_OK);
    assert_int_equal(hcp_sweep_cells(&g, 6, &c, &n, NULL), HCP_OK);
    assert_int_equal(n, 13 * 10 + 10);
    assert_memory_equal(a, b, n * sizeof *a);
    for (size_t i = 0; i < n; i++) {
        differs |= a[i].q_len != c[i].q_len || a[i].kv_len != c[i].kv_len;
        fine_seen |= !a[i].coarse;
        assert_false(a[i].coarse && fine_seen);
        for (size_t k = 0; k < i; k++)
            assert_false(a[i].causal == a[k].causal && a[i].q_len == a[k].q_len &&
                         a[i].kv_len == a[k].kv_len);
        if (a[i].causal)
            assert_int_equal(a[i].q_len, a[i].kv_len);
    }
    assert_true(differs);
    /* The largest rectangle and square belong to the coarse grid. */
    for (size_t i = 0; i < n; i++)
        if (a[i].q_len == 65536 && a[i].kv_len == 65536)
            assert_true(a[i].coarse);
    free(a);
    free(b);
    free(c);
    hcp_grid_free(&g);
}

static void estimates(void **state)
{
    struct hcp_estimate e;
    (void)state;
    hcp_estimate_init(&e, 0.5, 1e-6);
    assert_true(fabs(hcp_estimate_ms(&e, 1e6) - 1.5) < 1e-12); /* the guess */
    hcp_estimate_add(&e, 1e6, 2);
    assert_true(hcp_estimate_ms(&e, 1e6) == 2);
    assert_true(hcp_estimate_ms(&e, 1e3) == 2);   /* no smaller cell takes longer */
    assert_true(hcp_estimate_ms(&e, 1e8) == 200); /* nor more per pair */
    for (int i = 0; i < 200; i++)                 /* a better large cell corrects it */
        hcp_estimate_add(&e, 1e7 + i, 5);
    assert_true(fabs(hcp_estimate_ms(&e, 1e8) - 50) < 0.1);
    assert_true(hcp_estimate_ms(&e, 5e6) == 5);
    hcp_estimate_free(&e);
}

static void costs(void **state)
{
    struct hcp_cost cost = {.overhead_s = 0.05,
                            .warmup_s = 0.025,
                            .min_time_s = 0.03,
                            .cap_s = 1,
                            .min_samples = 10,
                            .few_samples = 3,
                            .visits = 2};
    (void)state;
    assert_true(fabs(hcp_cost_s(&cost, 0.1) - (0.05 + 0.05 + 0.03)) < 1e-12);
    assert_true(fabs(hcp_cost_s(&cost, 40) - (0.05 + 0.08 + 0.4)) < 1e-12);
    /* Slow ones are visited once. */
    assert_int_equal(hcp_cost_visits(&cost, 49.9), 2);
    assert_int_equal(hcp_cost_visits(&cost, 50), 1);
    assert_true(fabs(hcp_cost_s(&cost, 50) - (0.05 + 0.05 + 0.5)) < 1e-12);
    assert_true(fabs(hcp_cost_s(&cost, 200) - (0.05 + 0.2 + 1)) < 1e-12); /* the cap */
    assert_true(fabs(hcp_cost_s(&cost, 1000) - (0.05 + 1 + 3)) < 1e-12);  /* a few */
}

static void areas(void **state)
{
    (void)state;
    assert_true(hcp_cell_area(0, 3, 5) == 15);
    assert_true(hcp_cell_area(1, 4, 4) == 10);
    assert_true(hcp_cell_area(1, 65536, 65536) == 65536.0 * 65537 / 2);
}

static void finish_lengths(void **state)
{
    static const struct {
        int64_t longest;
        size_t n;
        int64_t lens[HCP_FINISH_LENS];
    } cases[] = {{65536, 5, {512, 2048, 8192, 16384, 65536}},
                 {16384, 5, {512, 1024, 4096, 8192, 16384}},
                 {5000, 5, {512, 1024, 2048, 4096, 5000}},
                 {1024, 2, {512, 1024}},
                 {512, 2, {128, 512}},
                 {64, 2, {16, 64}},
                 {3, 1, {3}},
                 {1, 1, {1}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t lens[HCP_FINISH_LENS];
        assert_int_equal(hcp_finish_lens(cases[i].longest, lens), cases[i].n);
        for (size_t k = 0; k < cases[i].n; k++)
            assert_int_equal(lens[k], cases[i].lens[k]);
    }
}

/* Finish passes lie before the blocks, once, whatever was there. */
static void finish_cells(void **state)
{
    struct hcp_grid g;
    struct hcp_sweep_cell *cells = NULL;
    size_t n = 0, blocks;
    const unsigned both = 1u << HCP_FINISH_STORE | 1u << HCP_FINISH_MERGE;
    (void)state;
    assert_int_equal(hcp_grid_preset(128, 4096, 1, &g, NULL), HCP_OK);
    assert_int_equal(hcp_sweep_cells(&g, 1, &cells, &blocks, NULL), HCP_OK);
    n = blocks;
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(hcp_sweep_add_finishes(&cells, &n, both, NULL), HCP_OK);
        assert_int_equal(n, blocks + 8); /* 512 1K 2K 4K */
        for (size_t i = 0; i < n; i++)
            assert_int_equal(cells[i].finish != HCP_FINISH_NONE, i < 8);
        assert_int_equal(cells[0].q_len, 512);
        assert_int_equal(cells[3].q_len, 4096);
        assert_int_equal(cells[3].finish, HCP_FINISH_STORE);
        assert_int_equal(cells[7].finish, HCP_FINISH_MERGE);
    }
    assert_int_equal(hcp_sweep_add_finishes(&cells, &n, 1u << HCP_FINISH_MERGE, NULL),
                     HCP_OK);
    assert_int_equal(n, blocks + 4);
    assert_int_equal(hcp_sweep_add_finishes(&cells, &n, 0, NULL), HCP_OK);
    assert_int_equal(n, blocks);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(cells[i].finish, HCP_FINISH_NONE);
    free(cells);
    hcp_grid_free(&g);
}

static void slugs(void **state)
{
    static const struct {
        const char *name, *slug;
    } table[] = {{"NVIDIA H200", "nvidia-h200"},
                 {"AMD EPYC", "amd-epyc"},
                 {"  Intel(R) Xeon(R) CPU @ 2.20GHz ", "intel-r-xeon-r-cpu-2-20ghz"},
                 {"NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"},
                 {"Gr\303\274n", "gr-n"},
                 {"---", ""},
                 {"", ""}};
    char slug[64];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        hcp_device_slug(table[i].name, slug, sizeof slug);
        assert_string_equal(slug, table[i].slug);
    }
    hcp_device_slug("abcdef", slug, 4);
    assert_string_equal(slug, "abc");
}

static void durations(void **state)
{
    char text[24];
    (void)state;
    assert_string_equal(hcp_format_duration(0.4, text), "0 s");
    assert_string_equal(hcp_format_duration(200, text), "3 min 20 s");
    assert_string_equal(hcp_format_duration(7500, text), "2 h 5 min");
    assert_string_equal(hcp_format_duration(NAN, text), "?");
}

static double cpu_s(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0, 0};
    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A busy child gets no more than its share of the wall clock, and it is running again
 * when control ends. Less is possible on a loaded machine, so there is no lower bound
 * but that it gets on; and more when control itself has to wait for a core, so any one
 * window of ten will do. */
static void duty_cycle(void **state)
{
    hcp_throttle *throttle = NULL;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            ;
    assert_true(pid > 0);
    assert_int_equal(hcp_throttle_start(pid, 25, &throttle, NULL), HCP_OK);
    int within = 0;
    for (int i = 0; i < 10 && !within; i++) {
        double start = hcp_now_s(), used = cpu_s(pid);
        nanosleep(&(struct timespec){0, 600000000}, NULL);
        used = cpu_s(pid) - used;
        within = used > 0 && used <= 0.25 * (hcp_now_s() - start) * 1.2 + 0.02;
    }
    hcp_throttle_stop(throttle);
    assert_true(within);
    double before = cpu_s(pid);
    for (int i = 0; i < 500 && cpu_s(pid) - before < 0.02; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    assert_true(cpu_s(pid) - before >= 0.02);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preset_grid),    cmocka_unit_test(length_lists),
        cmocka_unit_test(order),          cmocka_unit_test(estimates),
        cmocka_unit_test(finish_lengths), cmocka_unit_test(finish_cells),
        cmocka_unit_test(costs),          cmocka_unit_test(areas),
        cmocka_unit_test(slugs),          cmocka_unit_test(durations),
        cmocka_unit_test(duty_cycle),
    };
    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
