/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits of samples as they come: parts of a grid, scattered, too few, odd, repeated.
 */
#include <stdio.h>
#include <string.h>
#include "tests/fit-fixture.h"

/* Part of the cells, kept where keep says so; the rest is predicted within bound. */
static void check_part(int (*keep)(size_t i, const struct hcp_cell *c), double bound)
{
    static struct hcp_cell all[MAX_CELLS];
    n_cells = 0;
    add_grid(9);
    size_t n = n_cells, kept = 0;
    memcpy(all, cells, n * sizeof *all);
    for (size_t i = 0; i < n; i++)
        if (keep(i, &all[i]))
            cells[kept++] = all[i];
    n_cells = kept;
    struct hcp_fit_result *r = fit();
    check_promises(r);
    hcp_model *m = model(&r->lut);
    for (size_t i = 0; i < n; i++) {
        int causal = all[i].mask[0] == 'c';
        double t = hcp_model_block_ms(m, causal, all[i].q_len, all[i].kv_len, NULL);
        if (keep(i, &all[i]))
            assert_true(t == all[i].time_ms);
        else if (fabs(t / all[i].time_ms - 1) > bound && !causal)
            fail_msg("%lld x %lld: %g, want %g", (long long)all[i].q_len,
                     (long long)all[i].kv_len, t, all[i].time_ms);
    }
    hcp_model_free(m);
}

static int keep_third(size_t i, const struct hcp_cell *c)
{
    uint64_t s = i;
    (void)c;
    return check_random(&s) % 3 == 0;
}

static int keep_few(size_t i, const struct hcp_cell *c)
{
    uint64_t s = i + 77;
    (void)c;
    return check_random(&s) % 12 == 0;
}

static int keep_short(size_t i, const struct hcp_cell *c)
{
    (void)i;
    return c->q_len * c->kv_len < (int64_t)1 << 22; /* the budget ran out */
}

static int keep_two(size_t i, const struct hcp_cell *c)
{
    (void)c;
    return i == 20 || i == 60;
}

static int keep_line(size_t i, const struct hcp_cell *c)
{
    (void)i;
    return c->kv_len == 4096 && c->mask[0] == 'f';
}

static int keep_causal(size_t i, const struct hcp_cell *c)
{
    (void)i;
    return c->mask[0] == 'c';
}

static int keep_full(size_t i, const struct hcp_cell *c)
{
    (void)i;
    return c->mask[0] == 'f';
}

static void test_incomplete(void **state)
{
    (void)state;
    check_part(keep_third, 0.05);
    check_part(keep_few, 0.60);
    check_part(keep_short, 0.10);
    check_part(keep_full, 0.01);
    check_part(keep_two, 20.0);
    check_part(keep_line, 20.0);
    check_part(keep_causal, 1.0);
}

static void test_decode_like(void **state)
{
    (void)state;
    for (int64_t q = 1; q <= 4; q++)
        for (int64_t kv = 1024; kv <= 1 << 20; kv *= 4)
            add("full", q, kv, 1e-6 * (double)kv + 0.001 * (double)q + 0.01);
    struct hcp_fit_result *r = fit();
    check_promises(r);
    hcp_model *m = model(&r->lut);
    close_to(hcp_model_block_ms(m, 0, 1, 300000, NULL), 0.311, 0.001);
    hcp_model_free(m);
}

/* An import of arbitrary lengths: no two cells share a line. */
static void test_scattered(void **state)
{
    uint64_t seed = 21;
    (void)state;
    for (int i = 0; i < 400; i++) {
        int64_t q = (int64_t)(100 * pow(600, check_uniform(&seed)));
        int64_t kv = (int64_t)(100 * pow(600, check_uniform(&seed)));
        add("full", q, kv, area_ms((double)q, (double)kv));
    }
    struct hcp_fit_result *r = fit();
    check_promises(r);
    assert_true(r->lut.all.cells > 100);
    hcp_model *m = model(&r->lut);
    for (int i = 0; i < 200; i++) {
        int64_t q = 200 + (int64_t)(check_random(&seed) % 40000);
        int64_t kv = 200 + (int64_t)(check_random(&seed) % 40000);
        close_to(hcp_model_block_ms(m, 0, q, kv, NULL), area_ms((double)q, (double)kv),
                 0.05);
    }
    hcp_model_free(m);
}

static void refused(const char *what)
{
    struct hcp_fit_result *r = fit();
    assert_int_equal(r->code, HCP_NO_ANSWER);
    assert_int_equal(r->lut.n_arrays, 0);
    if (!strstr(r->err.text, what) || !strstr(r->err.text, "hcp-profile run") ||
        !strstr(r->err.text, "some-gpu@mps:50"))
        fail_msg("%s", r->err.text);
}

static void test_too_little(void **state)
{
    (void)state;
    add("full", 512, 4096, 0.3);
    refused("512 x kv_len 4096");
    n_cells = 0;
    add("causal", 512, 512, 0.3);
    refused("512");
    n_cells = 0;
    snprintf(add("full", 512, 512, 0.3)->status, 8, "failed");
    snprintf(add("full", 512, 1024, 0.3)->status, 8, "failed");
    refused("2 failed");
    /* others go on */
    add_grid(4);
    for (size_t i = 2; i < n_cells; i++)
        snprintf(cells[i].key.limit, sizeof cells[i].key.limit, "mps:100");
    fit();
    assert_int_equal(n_results, 2);
    assert_int_equal(results[0].code, HCP_NO_ANSWER);
    check_promises(&results[1]);
}

static void test_odd_data(void **state)
{
    uint64_t seed = 8;
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        n_cells = 0;
        add_grid(7);
        for (size_t i = 0; i < n_cells; i++) {
            double *t = &cells[i].time_ms, q = (double)cells[i].q_len;
            switch (kind) {
            case 0:
                *t = 1.0;
                break; /* constant */
            case 1:
                *t = 1e6 / q / (double)cells[i].kv_len;
                break; /* falling */
            case 2:
                *t = exp(20 * check_uniform(&seed) - 10);
                break; /* noise alone */
            case 3:
                *t *= 1e-8;
                break;
            case 4:
                *t *= 1e8;
                break;
            default:
                *t *= check_random(&seed) % 10 ? 1 : 30; /* outliers */
            }
        }
        check_promises(fit());
    }
}

static void test_runs_of_one_cell(void **state)
{
    (void)state;
    add_grid(3);
    double before = cells[4].time_ms;
    static const double again[] = {1.10, 1.02, 1.04};
    for (int i = 0; i < 3; i++) { /* a newer version, three runs */
        struct hcp_cell *c =
            add("full", cells[4].q_len, cells[4].kv_len, before * again[i]);
        snprintf(c->provider_version, sizeof c->provider_version, "2");
        snprintf(c->measured_at, sizeof c->measured_at, "2026-02-%02uT00:00:00Z",
                 (unsigned)(i + 1) % 100);
        snprintf(c->origin, sizeof c->origin, "recorded");
    }
    snprintf(add("full", cells[4].q_len, cells[4].kv_len, before * 9)->status, 8,
             "failed");
    add("causal", 128, 512, 1.0);
    struct hcp_fit_result *r = fit();
    check_promises(r);
    assert_int_equal(r->full_cells, 9);
    assert_int_equal(r->square_cells, 3);
    hcp_model *m = model(&r->lut);
    assert_true(hcp_model_block_ms(m, 0, cells[4].q_len, cells[4].kv_len, NULL) ==
                before * 1.04);
    hcp_model_free(m);
    assert_string_equal(r->lut.row.origin, "mixed");
    assert_non_null(strstr(r->note, "origin"));
    assert_non_null(strstr(r->note, "versions"));
    assert_non_null(strstr(r->note, "1 causal"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_incomplete, start, stop),
        cmocka_unit_test_setup_teardown(test_decode_like, start, stop),
        cmocka_unit_test_setup_teardown(test_scattered, start, stop),
        cmocka_unit_test_setup_teardown(test_too_little, start, stop),
        cmocka_unit_test_setup_teardown(test_odd_data, start, stop),
        cmocka_unit_test_setup_teardown(test_runs_of_one_cell, start, stop),
    };
    return cmocka_run_group_tests_name("fit-samples", tests, NULL, NULL);
}
