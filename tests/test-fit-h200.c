/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorded H200 profile (FlashAttention-2, ten MPS levels), fitted, against cells
 * measured in another session that the fit never saw. The bounds stand a little above
 * what is reached, so that a change that costs accuracy fails here.
 */
#include <stdio.h>
#include <string.h>
#include "db/text.h"
#include "fit/fit-internal.h"
#include "tests/model-check.h"

enum { LEVELS = 10, MAX_HELD = 2000 };
static struct hcp_text profile;
static struct hcp_fit_result *results;
static size_t n_results;
static struct held {
    char limit[16];
    int64_t q, kv;
    int causal;
    double ms;
} held[MAX_HELD];
static int n_held;
static hcp_model *models[LEVELS][2]; /* lut, poly */

static FILE *open_file(const char *name)
{
    char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/%s", top ? top : ".", name);
    FILE *in = fopen(path, "r");
    if (!in)
        fail_msg("cannot read %s (set top_srcdir)", path);
    return in;
}

static int load(void **state)
{
    struct hcp_err err = {0};
    char line[256], mask[16];
    long long q, kv;
    (void)state;
    FILE *in = open_file("db/profiles/nvidia-h200-fa2.csv");
    if (hcp_text_load(in, "profile", HCP_TEXT_CSV, 0, &profile, &err))
        fail_msg("%s", err.text);
    fclose(in);
    assert_int_equal(profile.n_cells, 1100);
    in = open_file("tests/data/h200-fa2-heldout.csv");
    while (fgets(line, sizeof line, in)) {
        struct held *h = &held[n_held];
        if (sscanf(line, "%15[^,],%lld,%lld,%15[^,],%lf", h->limit, &q, &kv, mask,
                   &h->ms) != 5)
            continue;
        h->q = q;
        h->kv = kv;
        h->causal = mask[0] == 'c';
        assert_true(++n_held < MAX_HELD);
    }
    fclose(in);
    assert_int_equal(n_held, 1484);
    if (hcp_fit_group(profile.cells, profile.n_cells, &results, &n_results, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n_results, LEVELS);
    for (int i = 0; i < LEVELS; i++) {
        if (results[i].code)
            fail_msg("%s", results[i].err.text);
        for (int poly = 0; poly < 2; poly++) {
            const struct hcp_fitted *f = poly ? &results[i].poly : &results[i].lut;
            if (hcp_model_create(&f->row, f->arrays, f->n_arrays, &models[i][poly], &err))
                fail_msg("%s", err.text);
        }
    }
    return 0;
}

static int unload(void **state)
{
    (void)state;
    for (int i = 0; i < LEVELS; i++)
        for (int poly = 0; poly < 2; poly++)
            hcp_model_free(models[i][poly]);
    hcp_fit_results_free(results, n_results);
    hcp_text_free(&profile);
    return 0;
}

enum cells { ALIGNED, UNALIGNED, CAUSAL };

static int is_kind(const struct held *h, enum cells kind)
{
    if (h->ms <= 0.1)
        return 0;
    if (kind == CAUSAL || h->causal)
        return kind == CAUSAL && h->causal;
    return (h->q % 128 == 0 && h->kv % 64 == 0) == (kind == ALIGNED);
}

/* Errors in per cent over cells of a kind; limit NULL: all levels. */
static struct hcp_holdout errors(const char *limit, enum cells kind, int poly)
{
    static double e[MAX_HELD];
    struct hcp_holdout h = {0};
    for (int i = 0; i < LEVELS; i++)
        for (int k = 0; k < n_held; k++) {
            if (strcmp(held[k].limit, results[i].key.limit) || !is_kind(&held[k], kind) ||
                (limit && strcmp(limit, held[k].limit)))
                continue;
            double t = hcp_model_block_ms(models[i][poly], held[k].causal, held[k].q,
                                          held[k].kv, NULL);
            e[h.cells++] = 100 * fabs(t / held[k].ms - 1);
        }
    h.median = hcp_quantile(e, h.cells, 0.5);
    h.p90 = hcp_quantile(e, h.cells, 0.9);
    return h;
}

static void within(const char *limit, enum cells kind, int poly, double median,
                   double p90)
{
    static const char *const name[] = {"on the tile", "off the tile", "causal squares"};
    struct hcp_holdout h = errors(limit, kind, poly);
    print_message("# %s %s, %s: median %.2f %%, p90 %.2f %% of %d cells\n",
                  poly ? "poly" : "lut", limit ? limit : "all levels", name[kind],
                  h.median, h.p90, h.cells);
    assert_true(h.cells >= 4);
    if (!(h.median <= median && h.p90 <= p90))
        fail_msg("bounds %.2f %%, %.2f %%", median, p90);
}

static void test_heldout(void **state)
{
    (void)state;
    within(NULL, ALIGNED, 0, 0.85, 3.3);
    within(NULL, UNALIGNED, 0, 2.3, 4.0);
    within(NULL, CAUSAL, 0, 1.0, 3.0);
    within(NULL, ALIGNED, 1, 1.0, 4.0);
    within(NULL, UNALIGNED, 1, 2.5, 4.5);
    within(NULL, CAUSAL, 1, 1.5, 4.8);
}

static void test_each_level(void **state)
{
    /* At 40 and 100 % the two sessions differ by 2 to 4 % in cells both measured. */
    static const struct {
        const char *limit;
        double median, p90;
    } level[] = {{"mps:10", 0.3, 0.8}, {"mps:20", 0.5, 1.3}, {"mps:30", 1.1, 1.8},
                 {"mps:40", 1.6, 5.2}, {"mps:50", 0.8, 2.0}, {"mps:60", 0.7, 1.6},
                 {"mps:70", 1.0, 2.2}, {"mps:80", 0.9, 3.0}, {"mps:90", 1.3, 3.0},
                 {"mps:100", 3.3, 5.5}};
    (void)state;
    for (size_t i = 0; i < sizeof level / sizeof *level; i++)
        within(level[i].limit, ALIGNED, 0, level[i].median, level[i].p90);
}

/* About nine in ten held-out times lie inside their error bars. */
static void test_error_bars(void **state)
{
    (void)state;
    for (int poly = 0; poly < 2; poly++) {
        int inside = 0, n = 0;
        for (int i = 0; i < LEVELS; i++)
            for (int k = 0; k < n_held; k++) {
                double lo, hi, t;
                if (strcmp(held[k].limit, results[i].key.limit))
                    continue;
                t = hcp_model_block_ms(models[i][poly], held[k].causal, held[k].q,
                                       held[k].kv, NULL);
                hcp_model_error(models[i][poly], held[k].causal, held[k].q, held[k].kv,
                                &lo, &hi);
                inside += held[k].ms >= t * (1 - lo) && held[k].ms <= t * (1 + hi);
                n++;
            }
        print_message("# %d of %d inside\n", inside, n);
        assert_int_equal(n, n_held);
        assert_true(inside > 0.87 * n && inside < 0.97 * n);
    }
}

/* What the fit says of itself is not rosier than the truth, nor far from it. */
static void test_own_estimate(void **state)
{
    (void)state;
    for (int i = 0; i < LEVELS; i++) {
        const struct hcp_model_row *row = hcp_model_row(models[i][0]);
        struct hcp_holdout h = errors(results[i].key.limit, ALIGNED, 0);
        assert_true(row->holdout_cells > 100);
        assert_true(100 * row->holdout_p90 > 0.6 * h.p90 - 1.0);
        assert_true(100 * row->holdout_p90 < 2.5 * h.p90 + 1.0);
    }
}

/* Cells off the tile on lines of their own, as an executor's log would bring them,
 * must not make the rest worse: the table has to fill their lines in. */
static void test_scattered_cells(void **state)
{
    struct hcp_cell *cells = malloc((profile.n_cells + MAX_HELD) * sizeof *cells);
    struct hcp_fit_result *more;
    struct hcp_err err = {0};
    static double e[MAX_HELD];
    size_t n = profile.n_cells, n_more;
    int aligned = 0, scattered = 0;
    (void)state;
    assert_non_null(cells);
    memcpy(cells, profile.cells, n * sizeof *cells);
    for (int k = 0; k < n_held; k++) {
        const struct held *h = &held[k];
        if (!is_kind(h, UNALIGNED))
            continue;
        for (size_t c = 0; c < profile.n_cells; c++)
            if (!strcmp(profile.cells[c].key.limit, h->limit)) {
                cells[n] = profile.cells[c];
                break;
            }
        cells[n].q_len = h->q;
        cells[n].kv_len = h->kv;
        strcpy(cells[n].mask, "full");
        cells[n++].time_ms = h->ms;
        scattered++;
    }
    assert_true(scattered > 100);
    if (hcp_fit_group(cells, n, &more, &n_more, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n_more, LEVELS);
    for (size_t i = 0; i < n_more; i++) {
        hcp_model *m;
        if (hcp_model_create(&more[i].lut.row, more[i].lut.arrays, more[i].lut.n_arrays,
                             &m, &err))
            fail_msg("%s", err.text);
        for (int k = 0; k < n_held; k++)
            if (!strcmp(held[k].limit, more[i].key.limit) && is_kind(&held[k], ALIGNED)) {
                double t = hcp_model_block_ms(m, 0, held[k].q, held[k].kv, NULL);
                e[aligned++] = 100 * fabs(t / held[k].ms - 1);
            }
        hcp_model_free(m);
    }
    print_message("# with %d scattered cells: median %.2f %%, p90 %.2f %% of %d cells\n",
                  scattered, hcp_quantile(e, aligned, 0.5), hcp_quantile(e, aligned, 0.9),
                  aligned);
    assert_true(hcp_quantile(e, aligned, 0.5) < 0.85);
    assert_true(hcp_quantile(e, aligned, 0.9) < 3.1);
    hcp_fit_results_free(more, n_more);
    free(cells);
}

static void test_tile_and_waves(void **state)
{
    (void)state;
    for (int i = 0; i < LEVELS; i++) {
        assert_int_equal(hcp_model_tile_q(models[i][0]), 128);
        assert_int_equal(hcp_model_tile_kv(models[i][0]), 64);
        assert_non_null(strstr(results[i].lut.terms, "waves"));
    }
}

static void test_measured_cells(void **state)
{
    int verbatim = 0;
    (void)state;
    for (size_t c = 0; c < profile.n_cells; c++) {
        const struct hcp_cell *cell = &profile.cells[c];
        for (int i = 0; i < LEVELS; i++) {
            hcp_model_source source;
            if (strcmp(cell->key.limit, results[i].key.limit))
                continue;
            int same = hcp_model_block_ms(models[i][0], cell->mask[0] == 'c', cell->q_len,
                                          cell->kv_len, &source) == cell->time_ms;
            /* evened out: no longer the measured time, and not called that */
            assert_int_equal(source,
                             same ? HCP_SOURCE_MEASURED : HCP_SOURCE_INTERPOLATED);
            verbatim += same;
        }
    }
    print_message("# %d of 1100 verbatim\n", verbatim);
    assert_true(verbatim >=
                1050); /* the rest: longer blocks measured faster, below 0.1 ms */
}

static void test_promises(void **state)
{
    (void)state;
    for (int i = 0; i < LEVELS; i++)
        for (int poly = 0; poly < 2; poly++) {
            check_monotone(models[i][poly], 100000 * check_scale(),
                           (uint64_t)(2 * i + poly));
            for (int64_t s = 2048; s <= 65536; s += s / 5) {
                double full = hcp_model_block_ms(models[i][poly], 0, s, s, NULL);
                double causal = hcp_model_block_ms(models[i][poly], 1, s, s, NULL);
                if (!(causal < full))
                    fail_msg("%s %lld: causal %g, full %g", results[i].key.limit,
                             (long long)s, causal, full);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heldout),        cmocka_unit_test(test_each_level),
        cmocka_unit_test(test_error_bars),     cmocka_unit_test(test_own_estimate),
        cmocka_unit_test(test_tile_and_waves), cmocka_unit_test(test_measured_cells),
        cmocka_unit_test(test_promises),       cmocka_unit_test(test_scattered_cells),
    };
    return cmocka_run_group_tests_name("fit-h200", tests, load, unload);
}
