/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits of complete synthetic grids: known coefficients, waves and tiles, finish passes.
 */
#include <stdio.h>
#include <string.h>
#include "tests/fit-fixture.h"

static void test_known_coefficients(void **state)
{
    (void)state;
    for (int64_t tile = 1; tile <= 128; tile += 127) {
        n_cells = 0;
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++) {
                int64_t q = (100 << i) + 7 * j, kv = (90 << j) + 13 * i;
                double x = (double)((q + tile - 1) / tile * tile);
                double y = (double)((kv + tile - 1) / tile * tile);
                struct hcp_cell *c = add("full", q, kv, area_ms(x, y));
                c->tile_q = c->tile_kv = tile;
            }
        for (int i = 0; i < 9; i++) {
            int64_t s = 150 << i;
            double x = (double)((s + tile - 1) / tile * tile);
            struct hcp_cell *c = add("causal", s, s, square_ms(x));
            c->tile_q = c->tile_kv = tile;
        }
        struct hcp_fit_result *r = fit();
        check_promises(r);
        assert_int_equal(r->tile_q, tile);
        static const double full[HCP_FULL_TERMS] = {0.005, 2e-7, 3e-6, 1e-6};
        static const double square[HCP_SQUARE_TERMS] = {0.005, 1e-7, 4e-6};
        const double *got = array(&r->poly, "full", NULL);
        for (int k = 0; k < HCP_FULL_TERMS; k++)
            close_to(got[k], full[k], 1e-6);
        got = array(&r->poly, "square", NULL);
        for (int k = 0; k < HCP_SQUARE_TERMS; k++)
            close_to(got[k], square[k], 1e-6);
        assert_true(r->poly.row.holdout_median < 1e-9);
        assert_true(r->poly.all.p90 < 1e-9 && r->poly.all.cells > 100);
        assert_string_equal(r->poly.terms, "1 + q*kv + q + kv");
        hcp_model *m = model(&r->poly);
        close_to(hcp_model_block_ms(m, 0, 128 * 999, 128 * 77, NULL),
                 area_ms(128 * 999, 128 * 77), 1e-6);
        hcp_model_free(m);
    }
}

/* Lone thread blocks at 0.6 of a pair's time, on three device sizes. */
static double wave_ms(int64_t q, double kv, int sm)
{
    int64_t k = ((q + 127) / 128 * 32 + sm - 1) / sm;
    double steps = (double)(k - k % 2) + (k % 2 ? 1.2 : 0.0);
    return steps * (2e-5 * kv + 0.002) + 0.004;
}

static void add_waves(int sm, int64_t tile)
{
    size_t first = n_cells;
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++)
            add("full", 128 << i, 128 << j, wave_ms(128 << i, 128 << j, sm));
    for (size_t i = first; i < n_cells; i++) {
        cells[i].sm_seen = sm;
        cells[i].tile_q = tile;
        snprintf(cells[i].key.limit, sizeof cells[i].key.limit, "mps:%d", sm);
    }
}

static void test_waves(void **state)
{
    static const int sm[] = {12, 52, 66, 132};
    (void)state;
    for (int64_t tile = 0; tile <= 128; tile += 128) { /* 0: to be found */
        n_cells = 0;
        for (int i = 0; i < 4; i++)
            add_waves(sm[i], tile);
        fit();
        assert_int_equal(n_results, 4);
        for (int i = 0; i < 4; i++) {
            const struct hcp_fit_result *r = &results[i];
            check_promises(r);
            assert_int_equal(r->tile_q, 128);
            hcp_model *m = model(&r->lut);
            double worst = 0.0;
            for (int64_t q = 256; q <= 16384; q += 128) {
                double want = wave_ms(q, 3000, sm[i]);
                double e = fabs(hcp_model_block_ms(m, 0, q, 3000, NULL) / want - 1);
                if (q * 32 > 128 * sm[i] && e > worst)
                    worst = e;
            }
            if (worst > 0.06)
                fail_msg("%d SMs: %g", sm[i], worst);
            hcp_model_free(m);
        }
    }
}

static void test_tile_from_sweep(void **state)
{
    (void)state;
    for (int64_t q = 16; q <= 1024; q += 16)
        for (int64_t kv = 512; kv <= 4096; kv *= 2)
            add("full", q, kv, area_ms((double)((q + 95) / 96 * 96), (double)kv))
                ->tile_q = 0;
    struct hcp_fit_result *r = fit();
    check_promises(r);
    assert_int_equal(r->tile_q, 96);
    assert_non_null(strstr(r->note, "96"));
}

static void test_unknown_tile_is_said(void **state)
{
    (void)state;
    add_grid(6);
    for (size_t i = 0; i < n_cells; i++)
        cells[i].tile_q = 0;
    struct hcp_fit_result *r = fit();
    check_promises(r);
    assert_int_equal(r->tile_q, 1);
    assert_non_null(strstr(r->note, "tile unknown"));
}

static void test_exact_hits(void **state)
{
    uint64_t seed = 5;
    (void)state;
    add_grid(8);
    for (size_t i = 0; i < n_cells; i++) /* noise that keeps the order */
        cells[i].time_ms *= 1 + 0.02 * check_uniform(&seed);
    struct hcp_fit_result *r = fit();
    check_promises(r);
    hcp_model *m = model(&r->lut);
    int verbatim = 0;
    for (size_t i = 0; i < n_cells; i++) {
        hcp_model_source source;
        double t = hcp_model_block_ms(m, cells[i].mask[0] == 'c', cells[i].q_len,
                                      cells[i].kv_len, &source);
        assert_int_equal(source, HCP_SOURCE_MEASURED);
        verbatim += t == cells[i].time_ms;
        close_to(t, cells[i].time_ms, 0.03);
    }
    assert_true(verbatim >= (int)n_cells - 6); /* a few short ones are out of order */
    hcp_model_free(m);
}

/* Two cells the wrong way round meet in between; the others keep their bits. */
static void test_isotonic(void **state)
{
    (void)state;
    add_grid(5);
    cells[12].time_ms = 1.005 * cells[13].time_ms;
    struct hcp_fit_result *r = fit();
    check_promises(r);
    hcp_model *m = model(&r->lut);
    for (size_t i = 0; i < 25; i++) {
        double t = hcp_model_block_ms(m, 0, cells[i].q_len, cells[i].kv_len, NULL);
        if (i == 12 || i == 13)
            assert_true(t > cells[13].time_ms && t < cells[12].time_ms);
        else
            assert_true(t == cells[i].time_ms);
    }
    hcp_model_free(m);
    assert_non_null(strstr(r->note, "2 of 25"));
}

static struct hcp_finish_row finish_row(const char *kind, int64_t q_len, double ms)
{
    struct hcp_finish_row row = {.key = cells[0].key, .q_len = q_len, .time_ms = ms};
    snprintf(row.kind, sizeof row.kind, "%s", kind);
    return row;
}

static double finish_of(const struct hcp_fitted *f, int merge, int64_t q_len)
{
    hcp_model *m;
    struct hcp_err err;
    if (hcp_model_create(&f->row, f->arrays, f->n_arrays, &m, &err))
        fail_msg("%s", err.text);
    double ms = hcp_model_finish_ms(m, merge, q_len);
    hcp_model_free(m);
    return ms;
}

static void test_finish(void **state)
{
    struct hcp_finish_row rows[12];
    struct hcp_err err = {0};
    int n = 0;
    (void)state;
    add_grid(6);
    for (int64_t q = 128; q <= 8192; q *= 8) {
        rows[n++] = finish_row("store", q, 0.004 + 2e-6 * (double)q);
        rows[n++] = finish_row("merge", q, 0.006 + 5e-6 * (double)q);
    }
    rows[n++] = finish_row("store", 128, 7.0); /* twice: the median, off by half of it */
    rows[n++] = finish_row("store", 128, 0.004 + 2e-6 * 128);
    rows[n] = finish_row("merge", 128, 9.0); /* another key's */
    snprintf(rows[n++].key.limit, sizeof rows[0].key.limit, "mps:10");

    /* without any there is no array and no time */
    assert_int_equal(hcp_fit_finish(rows, 0, fit(), &err), HCP_OK);
    assert_int_equal(results->finish.rows, 0);
    assert_true(finish_of(&results->lut, 1, 4096) == 0);

    assert_int_equal(hcp_fit_finish(rows, (size_t)n, fit(), &err), HCP_OK);
    assert_int_equal(results->finish.rows, n - 1);
    assert_true(results->finish.worst < 1e-9);
    for (int poly = 0; poly < 2; poly++) {
        const struct hcp_fitted *f = poly ? &results->poly : &results->lut;
        close_to(finish_of(f, 0, 1000), 0.004 + 2e-6 * 1000, 1e-9);
        close_to(finish_of(f, 1, 100000), 0.006 + 5e-6 * 100000, 1e-9);
        assert_true(finish_of(f, 1, 0) == 0 && finish_of(f, 0, -1) == 0);
    }
    /* never falls as rows are added, never below 0 */
    rows[0] = finish_row("merge", 128, 0.9);
    rows[1] = finish_row("merge", 4096, 0.3);
    assert_int_equal(hcp_fit_finish(rows, 2, fit(), &err), HCP_OK);
    assert_true(finish_of(&results->lut, 1, 1) > 0);
    assert_true(finish_of(&results->lut, 1, 1 << 20) >= finish_of(&results->lut, 1, 1));
    assert_true(results->finish.worst > 0.2);
    rows[0] = finish_row("merge", 128, 1e-9);
    rows[1] = finish_row("merge", 4096, 0.3);
    assert_int_equal(hcp_fit_finish(rows, 2, fit(), &err), HCP_OK);
    assert_true(finish_of(&results->lut, 1, 1) >= 0);
    /* one length: per row */
    assert_int_equal(hcp_fit_finish(rows + 1, 1, fit(), &err), HCP_OK);
    close_to(finish_of(&results->poly, 1, 2048), 0.15, 1e-12);
    assert_true(finish_of(&results->poly, 0, 2048) == 0);

    /* damaged arrays are refused */
    for (int i = 0; i < 2; i++) {
        struct hcp_named_array *a = &results->lut.arrays[results->lut.n_arrays - 1];
        hcp_model *m;
        assert_string_equal(a->name, "finish");
        if (i == 0)
            a->v[2] = -1e-9;
        else
            a->n = 3;
        assert_int_equal(hcp_model_create(&results->lut.row, results->lut.arrays,
                                          results->lut.n_arrays, &m, &err),
                         HCP_FAILED);
        assert_non_null(strstr(err.text, "finish"));
    }
}

static void test_best_kind(void **state)
{
    struct hcp_model_row lut = {
        .holdout_median = 0.02, .holdout_p90 = 0.08, .holdout_cells = 50};
    struct hcp_model_row poly = {
        .holdout_median = 0.01, .holdout_p90 = 0.05, .holdout_cells = 50};
    (void)state;
    assert_string_equal(hcp_fit_best_kind(&lut, &poly), "poly");
    poly.holdout_p90 = 0.30;
    assert_string_equal(hcp_fit_best_kind(&lut, &poly), "lut");
    poly.holdout_cells = 0;
    assert_string_equal(hcp_fit_best_kind(&lut, &poly), "lut");
    assert_string_equal(hcp_fit_best_kind(NULL, &poly), "poly");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_known_coefficients, start, stop),
        cmocka_unit_test_setup_teardown(test_waves, start, stop),
        cmocka_unit_test_setup_teardown(test_tile_from_sweep, start, stop),
        cmocka_unit_test_setup_teardown(test_unknown_tile_is_said, start, stop),
        cmocka_unit_test_setup_teardown(test_exact_hits, start, stop),
        cmocka_unit_test_setup_teardown(test_isotonic, start, stop),
        cmocka_unit_test_setup_teardown(test_finish, start, stop),
        cmocka_unit_test(test_best_kind),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
