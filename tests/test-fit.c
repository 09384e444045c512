/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits of synthetic samples: known coefficients, incomplete grids, what counts.
 */
#include <stdio.h>
#include <string.h>
#include "fit/fit-internal.h"
#include "tests/model-check.h"

enum { MAX_CELLS = 4000 };
static struct hcp_cell cells[MAX_CELLS];
static size_t n_cells;

static struct hcp_cell *add(const char *mask, int64_t q, int64_t kv, double ms)
{
    assert_true(n_cells < MAX_CELLS);
    struct hcp_cell *c = &cells[n_cells++];
    memset(c, 0, sizeof *c);
    struct hcp_key key = {"some-gpu", "mps:50", "kernel", "bf16", "prefill",
                          1,          32,       8,        128};
    c->key = key;
    snprintf(c->mask, sizeof c->mask, "%s", mask);
    snprintf(c->status, sizeof c->status, "ok");
    snprintf(c->origin, sizeof c->origin, "measured");
    snprintf(c->provider_version, sizeof c->provider_version, "1");
    snprintf(c->measured_at, sizeof c->measured_at, "2026-01-01T00:00:00Z");
    c->q_len = q;
    c->kv_len = kv;
    c->time_ms = ms;
    c->sm_seen = c->sm_count = -1;
    c->tile_q = 1;
    c->tile_kv = 1;
    return c;
}

static double area_ms(double q, double kv)
{
    return 2e-7 * q * kv + 3e-6 * q + 1e-6 * kv + 0.005;
}

static double square_ms(double s)
{
    return 1e-7 * s * s + 4e-6 * s + 0.005;
}

/* Powers of two from 128, n x n. */
static void add_grid(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            add("full", 128 << i, 128 << j, area_ms(128 << i, 128 << j));
    for (int i = 0; i < n; i++)
        add("causal", 128 << i, 128 << i, square_ms(128 << i));
}

static struct hcp_fit_result *results;
static size_t n_results;

static struct hcp_fit_result *fit(void)
{
    struct hcp_err err = {0};
    hcp_fit_results_free(results, n_results);
    if (hcp_fit_group(cells, n_cells, &results, &n_results, &err))
        fail_msg("%s", err.text);
    return results;
}

static int start(void **state)
{
    (void)state;
    n_cells = 0;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    hcp_fit_results_free(results, n_results);
    results = NULL;
    n_results = 0;
    return 0;
}

static hcp_model *model(const struct hcp_fitted *f)
{
    hcp_model *m;
    struct hcp_err err = {0};
    if (hcp_model_create(&f->row, f->arrays, f->n_arrays, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static const double *array(const struct hcp_fitted *f, const char *name, size_t *n)
{
    for (size_t i = 0; i < f->n_arrays; i++)
        if (!strcmp(f->arrays[i].name, name)) {
            if (n)
                *n = f->arrays[i].n;
            return f->arrays[i].v;
        }
    fail_msg("no array %s", name);
    return NULL;
}

/* Both kinds: promises kept. */
static void check_promises(const struct hcp_fit_result *r)
{
    if (r->code)
        fail_msg("%s", r->err.text);
    for (int poly = 0; poly < 2; poly++) {
        hcp_model *m = model(poly ? &r->poly : &r->lut);
        check_monotone(m, 20000 * check_scale(), 11);
        hcp_model_free(m);
    }
}

static void close_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.12g, want %.12g", got, want);
}

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
        cmocka_unit_test_setup_teardown(test_incomplete, start, stop),
        cmocka_unit_test_setup_teardown(test_decode_like, start, stop),
        cmocka_unit_test_setup_teardown(test_scattered, start, stop),
        cmocka_unit_test_setup_teardown(test_too_little, start, stop),
        cmocka_unit_test_setup_teardown(test_odd_data, start, stop),
        cmocka_unit_test_setup_teardown(test_runs_of_one_cell, start, stop),
        cmocka_unit_test_setup_teardown(test_finish, start, stop),
        cmocka_unit_test(test_best_kind),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
