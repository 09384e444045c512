/* SPDX-License-Identifier: Apache-2.0
 *
 * What an adaptive sweep knows between its cells, and what it wants next.
 */
#include "config.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "profiler/run.h"

static double truth(int64_t q, int64_t kv)
{
    return 3e-8 * (double)q * (double)kv + 1e-5 * (double)q + 2e-6 * (double)kv + 0.006;
}

static const struct hcp_predict_shape plain = {.causal = 0};

/* Powers of two from lowest, n_q x n_kv of them, times of truth(). */
static size_t make_grid(struct hcp_point *points, int n_q, int n_kv, int64_t lowest)
{
    size_t n = 0;
    for (int i = 0; i < n_q; i++)
        for (int j = 0; j < n_kv; j++) {
            int64_t q = lowest << i, kv = lowest << j;
            points[n++] = (struct hcp_point){q, kv, truth(q, kv)};
        }
    return n;
}

/* Times that the mean can express are predicted where nothing was measured. */
static void exact(void **state)
{
    struct hcp_point points[64];
    hcp_predictor *p;
    (void)state;
    size_t n = make_grid(points, 5, 5, 256);
    assert_int_equal(hcp_predictor_fit(&plain, points, n, &p, NULL), HCP_OK);
    for (int64_t q = 300; q < 4096; q += 611)
        for (int64_t kv = 300; kv < 4096; kv += 611)
            assert_true(fabs(hcp_predictor_ms(p, q, kv) / truth(q, kv) - 1) < 1e-6);
    struct hcp_heldout h = hcp_predictor_heldout(p);
    assert_true(h.cells > 0 && h.p90 < 1e-6);
    hcp_predictor_free(p);
    /* One measured cell is no reason to crash. */
    assert_int_equal(hcp_predictor_fit(&plain, points, 1, &p, NULL), HCP_OK);
    assert_true(fabs(hcp_predictor_ms(p, 256, 256) / truth(256, 256) - 1) < 1e-2);
    assert_int_equal(hcp_predictor_heldout(p).cells, 0);
    hcp_predictor_free(p);
}

/* Squares need no kv, and half their area is the mean's. */
static void squares(void **state)
{
    const struct hcp_predict_shape shape = {.causal = 1};
    struct hcp_point points[8];
    hcp_predictor *p;
    (void)state;
    for (int i = 0; i < 8; i++) {
        double q = (double)(512 << i);
        points[i] = (struct hcp_point){512 << i, 512 << i,
                                       1.5e-8 * q * (q + 1) + 1e-5 * q + 0.006};
    }
    assert_int_equal(hcp_predictor_fit(&shape, points, 8, &p, NULL), HCP_OK);
    double want = 1.5e-8 * 3000.0 * 3001 + 1e-5 * 3000 + 0.006;
    assert_true(fabs(hcp_predictor_ms(p, 3000, 3000) / want - 1) < 1e-6);
    hcp_predictor_free(p);
}

/* Whole waves of thread blocks, and lengths rounded up to the tile. */
static double waved(int64_t q, int64_t kv)
{
    int64_t blocks = (q + 127) / 128 * 32, rounded = (blocks + 131) / 132 * 132;
    double tiled = (double)((q + 127) / 128 * 128);
    return 3e-8 * tiled * (double)kv * (double)rounded / (double)blocks + 0.006;
}

static void waves(void **state)
{
    const struct hcp_predict_shape shape = {
        .tile_q = 128, .tile_kv = 64, .sms = 132, .blocks_of_tile = 32};
    struct hcp_point points[32];
    size_t n = 0;
    hcp_predictor *p;
    (void)state;
    for (int64_t q = 256; q <= 4096; q *= 2)
        for (int64_t kv = 1024; kv <= 16384; kv *= 2)
            points[n++] = (struct hcp_point){q, kv, waved(q, kv)};
    assert_int_equal(hcp_predictor_fit(&shape, points, n, &p, NULL), HCP_OK);
    for (int64_t q = 300; q < 4096; q += 257)
        assert_true(fabs(hcp_predictor_ms(p, q, 4096) / waved(q, 4096) - 1) < 1e-6);
    hcp_predictor_free(p);
}

/* A cell that is off by a tenth is held out with that error, and the next cells are
 * those around it. */
static void surprise(void **state)
{
    struct hcp_point points[64], candidates[64];
    size_t n = make_grid(points, 7, 7, 256), chosen[64], c = 0;
    hcp_predictor *p;
    (void)state;
    points[3 * 7 + 3].ms *= 1.1;
    assert_int_equal(hcp_predictor_fit(&plain, points, n, &p, NULL), HCP_OK);
    struct hcp_heldout h = hcp_predictor_heldout(p);
    assert_true(h.median < 0.02);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            candidates[c++] = (struct hcp_point){384 << i, 384 << j, 0};
    assert_int_equal(hcp_predictor_next(p, candidates, c, 4, chosen), 4);
    int near = 0;
    for (int i = 0; i < 4; i++) {
        const struct hcp_point *at = &candidates[chosen[i]];
        near += fabs(log2((double)at->q_len / 2048)) < 1 &&
                fabs(log2((double)at->kv_len / 2048)) < 1;
        for (int k = 0; k < i; k++)
            assert_true(chosen[i] != chosen[k]);
    }
    assert_true(near >= 3);
    size_t again[64];
    assert_int_equal(hcp_predictor_next(p, candidates, c, 4, again), 4);
    assert_memory_equal(chosen, again, 4 * sizeof *again);
    assert_int_equal(hcp_predictor_next(p, candidates, 2, 8, chosen), 2);
    hcp_predictor_free(p);
}

/* With nothing odd: where there is a hole before beside what is measured, and a second
 * choice not beside the first; and the longer of two that are as far from others. */
static void spread(void **state)
{
    struct hcp_point points[64];
    const struct hcp_point candidates[] = {
        {2896, 2896, 0}, {16384, 16384, 0}, {16384, 16500, 0}};
    const struct hcp_point sizes[] = {{724, 724, 0}, {2896, 2896, 0}};
    size_t n = 0, chosen[4];
    hcp_predictor *p;
    (void)state;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            int64_t q = 512 << i, kv = 512 << j;
            double noise = 0.05 * sin(0.8 * i + 0.5 * j);
            if (i >= 4 && i <= 6 && j >= 4 && j <= 6)
                continue;
            points[n++] = (struct hcp_point){q, kv, truth(q, kv) * (1 + noise)};
        }
    assert_int_equal(hcp_predictor_fit(&plain, points, n, &p, NULL), HCP_OK);
    assert_int_equal(hcp_predictor_next(p, candidates, 3, 3, chosen), 3);
    assert_true(chosen[0] == 1 || chosen[0] == 2);
    assert_int_equal(chosen[1], 0); /* not the other one of the hole */
    hcp_predictor_free(p);
    n = make_grid(points, 8, 8, 512);
    assert_int_equal(hcp_predictor_fit(&plain, points, n, &p, NULL), HCP_OK);
    assert_int_equal(hcp_predictor_next(p, sizes, 2, 1, chosen), 1);
    assert_int_equal(chosen[0], 1); /* as far from the others, but longer */
    hcp_predictor_free(p);
}

/* More cells are expected to do better; those that are noise cannot. */
static void expectation(void **state)
{
    struct hcp_point points[64], more[64];
    size_t n = make_grid(points, 4, 4, 4096), n_more = 0;
    hcp_predictor *p;
    (void)state;
    for (size_t i = 0; i < n; i++)
        points[i].ms *= 1 + 0.03 * sin((double)i * 1.3);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            more[n_more++] = (struct hcp_point){6144 << i, 6144 << j, 0};
    assert_int_equal(hcp_predictor_fit(&plain, points, n, &p, NULL), HCP_OK);
    struct hcp_heldout now = hcp_predictor_expect(p, NULL, 0),
                       then = hcp_predictor_expect(p, more, n_more);
    assert_true(now.median > 0.002 && now.median < 0.06);
    assert_true(then.median <= now.median && then.p90 <= now.p90);
    assert_int_equal(now.cells, 12); /* sixteen without four corners */
    assert_int_equal(then.cells, 21);
    assert_int_equal(hcp_predictor_heldout(p).cells, 12);
    hcp_predictor_free(p);
}

static void quantiles(void **state)
{
    double errors[] = {0.5, 0.1, 0.3, 0.2, 0.4};
    (void)state;
    struct hcp_heldout h = hcp_heldout_of(errors, 5);
    assert_true(fabs(h.median - 0.3) < 1e-12 && fabs(h.p90 - 0.46) < 1e-12);
    h = hcp_heldout_of(errors, 0);
    assert_true(isnan(h.median) && h.cells == 0);
}

static void targets(void **state)
{
    static const struct {
        const char *text;
        double median, p90; /* 0: refused */
    } cases[] = {{"2%,5%", 0.02, 0.05},
                 {"0.02,0.05", 0.02, 0.05},
                 {"1.5%", 0.015, 0.0375},
                 {"3%,0.1", 0.03, 0.1},
                 {"90%", 0.9, 0.99},
                 {"2", 0, 0},
                 {"5%,2%", 0, 0},
                 {"2%,", 0, 0},
                 {"", 0, 0},
                 {"%", 0, 0},
                 {"2%%", 0, 0},
                 {"-1%,3%", 0, 0},
                 {"0,1%", 0, 0},
                 {"nan", 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hcp_target t = {0, 0};
        struct hcp_err err = {0};
        int rc = hcp_parse_target(cases[i].text, &t, &err);
        assert_int_equal(rc, cases[i].median > 0 ? HCP_OK : HCP_USAGE);
        assert_true(fabs(t.median - cases[i].median) < 1e-12);
        assert_true(fabs(t.p90 - cases[i].p90) < 1e-12);
        assert_true(rc == HCP_OK || strstr(err.text, "--target-error"));
    }
}

/* Ends of both axes, every short q_len once, no more than is needed. */
static void start(void **state)
{
    struct hcp_grid g;
    struct hcp_sweep_cell *cells;
    size_t n, full = 0, causal = 0, few_waves = 0, corners = 0;
    (void)state;
    assert_int_equal(hcp_grid_preset(128, 65536, HCP_HALF_WAVES, &g, NULL), HCP_OK);
    assert_int_equal(hcp_sweep_cells(&g, 1, &cells, &n, NULL), HCP_OK);
    for (int twice = 0; twice < 2; twice++) {
        full = causal = few_waves = corners = 0;
        hcp_sweep_start(cells, n);
        for (size_t i = 0; i < n; i++) {
            const struct hcp_sweep_cell *c = &cells[i];
            if (!c->wanted)
                continue;
            *(c->causal ? &causal : &full) += 1;
            few_waves += !c->causal && c->q_len <= 2048 && c->kv_len == 65536;
            corners += (c->q_len == 128 || c->q_len == 65536) &&
                       (c->kv_len == 128 || c->kv_len == 65536);
        }
        cells[5].wanted = cells[77].wanted = 1; /* a later choice is forgotten */
    }
    assert_int_equal(few_waves, 8);
    assert_int_equal(corners, 4 + 2);
    assert_int_equal(full, 16 + 6);
    assert_int_equal(causal, 4);
    free(cells);
    hcp_grid_free(&g);
    assert_int_equal(hcp_grid_preset(128, 512, HCP_HALF_WAVES, &g, NULL), HCP_OK);
    assert_int_equal(hcp_sweep_cells(&g, 1, &cells, &n, NULL), HCP_OK);
    hcp_sweep_start(cells, n);
    for (size_t i = 0; i < n; i++)
        assert_true(cells[i].wanted);
    free(cells);
    hcp_grid_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact),     cmocka_unit_test(squares),
        cmocka_unit_test(waves),     cmocka_unit_test(surprise),
        cmocka_unit_test(spread),    cmocka_unit_test(expectation),
        cmocka_unit_test(quantiles), cmocka_unit_test(targets),
        cmocka_unit_test(start),
    };
    return cmocka_run_group_tests_name("predict", tests, NULL, NULL);
}
