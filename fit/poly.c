/* SPDX-License-Identifier: Apache-2.0
 *
 * Regression of time on areas, lengths and waves. Rows are weighted by 1/t^2 (the
 * relative error is what counts), coefficients are not negative, so the result is
 * positive and monotone everywhere. How many terms is decided by left-out lines.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

enum { LEVELS = 5, SQUARE_LEVELS = 4, FOLDS = 16 };
/* Terms of hcp_poly_full_terms and hcp_poly_square_terms in use at each level. */
static const unsigned full_level[LEVELS] = {0x02, 0x03, 0x0f, 0x3f, 0xff};
static const unsigned square_level[SQUARE_LEVELS] = {0x03, 0x07, 0x1f, 0x3f};
static const unsigned full_waves = 0x30, square_waves = 0x18;
static const char *const full_name[HCP_FULL_TERMS] = {
    "1", "q*kv", "q", "kv", "w*kv", "w", "sqrt(q)*kv", "q*sqrt(kv)"};

struct design {
    int rows, cols;
    double *term;       /* [rows * cols] all terms, unweighted */
    const double **row; /* scratch of the solver */
    double *a, *b;
    const struct hcp_sample *sample;
    int64_t tile_q, tile_kv;
};

static int design_init(struct design *d, const struct hcp_samples *s, int square)
{
    struct hcp_wave_axis axis;
    hcp_wave_axis_init(&axis, &s->waves);
    *d = (struct design){.rows = square ? s->n_square : s->n_full,
                         .cols = square ? HCP_SQUARE_TERMS : HCP_FULL_TERMS,
                         .sample = square ? s->square : s->full,
                         .tile_q = s->tile_q,
                         .tile_kv = s->tile_kv};
    size_t n = (size_t)d->rows * (size_t)d->cols + 1;
    d->term = calloc(n, sizeof *d->term);
    d->a = calloc(n, sizeof *d->a);
    d->b = calloc((size_t)d->rows + 1, sizeof *d->b);
    if (!d->term || !d->a || !d->b)
        return -1;
    for (int i = 0; i < d->rows; i++) {
        int64_t q = hcp_tiles(d->sample[i].q, s->tile_q, -1);
        double x = (double)(q * s->tile_q);
        double y = (double)(hcp_tiles(d->sample[i].kv, s->tile_kv, -1) * s->tile_kv);
        double w = hcp_wave_position(&axis, q) * hcp_wave_tokens(s);
        double *t = d->term + (size_t)i * (size_t)d->cols;
        if (square)
            hcp_poly_square_terms(x, w, t);
        else
            hcp_poly_full_terms(x, w, y, t);
    }
    return 0;
}

static void design_free(struct design *d)
{
    free(d->term);
    free(d->a);
    free(d->b);
}

/* Coefficients over the rows with keep[i] (NULL: all), only terms of the mask. */
static int solve(struct design *d, const char *keep, unsigned mask, double *coefficient,
                 struct hcp_err *err)
{
    int index[HCP_FULL_TERMS], cols = 0, rows = 0;
    double x[HCP_FULL_TERMS];
    for (int j = 0; j < d->cols; j++) {
        coefficient[j] = 0.0;
        if (mask >> j & 1)
            index[cols++] = j;
    }
    for (int i = 0; i < d->rows; i++) {
        if (keep && !keep[i])
            continue;
        for (int j = 0; j < cols; j++)
            d->a[rows * cols + j] = d->term[i * d->cols + index[j]] / d->sample[i].ms;
        d->b[rows++] = 1.0;
    }
    int code = hcp_nnls(d->a, d->b, rows, cols, x, err);
    for (int j = 0; j < cols && !code; j++)
        coefficient[index[j]] = x[j];
    return code;
}

static double value(const struct design *d, int row, const double *coefficient)
{
    double t = 0.0;
    for (int j = 0; j < d->cols; j++)
        t += coefficient[j] * d->term[row * d->cols + j];
    return t;
}

/* Position of each row's line among the distinct lines (q_len or kv_len in tiles);
 * returns their number. */
static int lines(const struct design *d, int along_kv, int *line)
{
    int n = 0;
    for (int i = 0; i < d->rows; i++)
        line[i] = -1;
    for (;;) { /* next smallest */
        int64_t least = INT64_MAX;
        for (int i = 0; i < d->rows; i++) {
            int64_t v = along_kv ? hcp_tiles(d->sample[i].kv, d->tile_kv, -1)
                                 : hcp_tiles(d->sample[i].q, d->tile_q, -1);
            if (line[i] < 0 && v < least)
                least = v;
        }
        if (least == INT64_MAX)
            return n;
        for (int i = 0; i < d->rows; i++) {
            int64_t v = along_kv ? hcp_tiles(d->sample[i].kv, d->tile_kv, -1)
                                 : hcp_tiles(d->sample[i].q, d->tile_q, -1);
            if (line[i] < 0 && v == least)
                line[i] = n;
        }
        n++;
    }
}

/* Inner lines left out, at most FOLDS refits an axis. */
static int residuals(struct design *d, int square, unsigned mask,
                     struct hcp_residuals *out, struct hcp_err *err)
{
    int *line = malloc(((size_t)d->rows + 1) * sizeof *line), code = HCP_OK;
    char *keep = malloc((size_t)d->rows + 1);
    double c[HCP_FULL_TERMS];
    if (!line || !keep)
        code = hcp_fail(err, HCP_FAILED, "out of memory");
    for (int axis = 0; axis < (square ? 1 : 2) && !code; axis++) {
        int n = lines(d, axis, line);
        for (int fold = 0; fold < FOLDS && fold < n - 2 && !code; fold++) {
            int left = 0;
            for (int i = 0; i < d->rows; i++) {
                int inner = line[i] > 0 && line[i] < n - 1;
                keep[i] = !(inner && (line[i] - 1) % FOLDS == fold);
                left += keep[i];
            }
            if (left == 0)
                continue;
            code = solve(d, keep, mask, c, err);
            for (int i = 0; i < d->rows && !code; i++) {
                const struct hcp_sample *s = &d->sample[i];
                int aligned =
                    s->q % d->tile_q == 0 && (square || s->kv % d->tile_kv == 0);
                if (!keep[i] && hcp_residual_add(out, s->ms, value(d, i, c), aligned))
                    code = hcp_fail(err, HCP_FAILED, "out of memory");
            }
        }
    }
    free(line);
    free(keep);
    return code;
}

static int terms_of(unsigned mask)
{
    int n = 0;
    for (; mask; mask &= mask - 1)
        n++;
    return n;
}

/* The level with the lowest held-out score; a richer one has to be 3 % better. Its
 * residuals are appended to all. */
static int choose(struct design *d, int square, int has_waves, double *coefficient,
                  struct hcp_residuals *all, struct hcp_err *err)
{
    int levels = square ? SQUARE_LEVELS : LEVELS, code = HCP_OK, best = -1;
    double best_score = HUGE_VAL;
    struct hcp_residuals chosen = {0};
    for (int l = 0; l < levels && !code; l++) {
        unsigned mask = square ? square_level[l] : full_level[l];
        if (!has_waves)
            mask &= ~(square ? square_waves : full_waves);
        if (l > 0 && (terms_of(mask) > d->rows))
            break;
        struct hcp_residuals list = {0};
        code = residuals(d, square, mask, &list, err);
        double score = hcp_holdout_score(&list);
        if (isnan(score)) /* nothing to leave out: as many terms as a plain model has */
            score = l <= (square ? 1 : 2) ? 1.0 / (l + 1.0) : HUGE_VAL;
        if (!code && score < 0.97 * best_score && best_score > 1e-9) {
            struct hcp_residuals swap = chosen;
            chosen = list;
            list = swap;
            best = l;
            best_score = score;
        }
        free(list.r);
    }
    if (!code) {
        unsigned mask = square ? square_level[best] : full_level[best];
        if (!has_waves)
            mask &= ~(square ? square_waves : full_waves);
        code = solve(d, NULL, mask, coefficient, err);
    }
    for (int i = 0; i < chosen.n && !code; i++)
        if (hcp_residual_add(all, chosen.r[i].measured_ms, chosen.r[i].predicted_ms,
                             chosen.r[i].aligned))
            code = hcp_fail(err, HCP_FAILED, "out of memory");
    free(chosen.r);
    return code;
}

static int fit_one(const struct hcp_samples *s, int square, double *coefficient,
                   struct hcp_residuals *all, struct hcp_err *err)
{
    struct design d;
    int code =
        design_init(&d, s, square) ? hcp_fail(err, HCP_FAILED, "out of memory") : HCP_OK;
    if (!code)
        code = choose(&d, square, hcp_wave_tokens(s) > 0, coefficient, all, err);
    design_free(&d);
    return code;
}

int hcp_poly_fit(const struct hcp_samples *s, struct hcp_fitted *out,
                 double full[HCP_FULL_TERMS], struct hcp_err *err)
{
    struct hcp_residuals all = {0};
    double square[HCP_SQUARE_TERMS] = {0};
    int failed = hcp_fitted_head(out, s, "poly"), code = HCP_OK;
    memset(full, 0, HCP_FULL_TERMS * sizeof *full);
    if (s->n_full > 0)
        code = fit_one(s, 0, full, &all, err);
    if (!code && s->n_square > 0)
        code = fit_one(s, 1, square, &all, err);
    if (!code && s->n_full > 0) {
        double *v = hcp_fitted_array(out, "full", HCP_FULL_TERMS);
        if (v)
            memcpy(v, full, HCP_FULL_TERMS * sizeof *v);
        else
            failed = 1;
        size_t used = 0;
        for (int j = 0; j < HCP_FULL_TERMS; j++)
            if (full[j] > 0 && used < sizeof out->terms)
                used += (size_t)snprintf(out->terms + used, sizeof out->terms - used,
                                         "%s%s", used ? " + " : "", full_name[j]);
    }
    if (!code && s->n_square > 0) {
        double *v = hcp_fitted_array(out, "square", HCP_SQUARE_TERMS);
        if (v)
            memcpy(v, square, sizeof square);
        else
            failed = 1;
    }
    if (!code)
        failed |= hcp_fitted_holdout(out, &all);
    free(all.r);
    if (!code && failed)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    return code;
}
