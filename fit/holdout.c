/* SPDX-License-Identifier: Apache-2.0
 *
 * Held-out errors: their statistics, and the error bars made of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "fit/fit-internal.h"

static int by_double(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double hcp_quantile(double *v, int n, double p)
{
    if (n < 1)
        return NAN;
    qsort(v, (size_t)n, sizeof *v, by_double);
    double at = p * (n - 1);
    int low = (int)at;
    if (low + 1 >= n)
        return v[n - 1];
    double part = at - low;
    return part > 0 ? v[low] + part * (v[low + 1] - v[low]) : v[low];
}

int hcp_residual_add(struct hcp_residuals *list, double measured, double predicted,
                     int aligned)
{
    if (list->n == list->cap) {
        int cap = list->cap ? 2 * list->cap : 64;
        struct hcp_residual *r = realloc(list->r, (size_t)cap * sizeof *r);
        if (!r)
            return -1;
        list->r = r;
        list->cap = cap;
    }
    list->r[list->n++] = (struct hcp_residual){measured, predicted, aligned};
    return 0;
}

static double relative(const struct hcp_residual *r)
{
    return fabs(r->predicted_ms - r->measured_ms) / r->measured_ms;
}

static int in_headline(const struct hcp_residual *r)
{
    return r->aligned && r->measured_ms > 0.1;
}

struct hcp_holdout hcp_holdout_of(const struct hcp_residuals *list, int headline)
{
    struct hcp_holdout h = {NAN, NAN, 0};
    double *e = malloc(((size_t)list->n + 1) * sizeof *e);
    if (!e)
        return h;
    for (int i = 0; i < list->n; i++)
        if (!headline || in_headline(&list->r[i]))
            e[h.cells++] = relative(&list->r[i]);
    h.median = hcp_quantile(e, h.cells, 0.5);
    h.p90 = hcp_quantile(e, h.cells, 0.9);
    free(e);
    return h;
}

double hcp_holdout_score(const struct hcp_residuals *list)
{
    int large = 0;
    for (int i = 0; i < list->n; i++)
        large += list->r[i].measured_ms > 0.1;
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        if (large >= 8 && !(list->r[i].measured_ms > 0.1))
            continue;
        double e = relative(&list->r[i]);
        sum += e < 0.25 ? e : 0.25;
        n++;
    }
    return n ? sum / n : NAN;
}

/* Error bars by predicted time. A bar is the 5 % and 95 % quantile of the held-out
 * errors, and at least how well a machine repeats itself (the same cells on two H200s
 * an hour apart: 1-2 %, 3 % at full power, 10 % below 0.1 ms). */
int hcp_error_rows(const struct hcp_residuals *list, double out[3 * HCP_ERROR_ROWS_MAX])
{
    static const struct {
        double upto, floor;
    } bin[] = {{0.05, 0.10}, {0.2, 0.06}, {1.0, 0.035}, {HUGE_VAL, 0.025}};
    enum { BINS = sizeof bin / sizeof *bin };
    double *d = malloc(((size_t)list->n + 1) * sizeof *d);
    if (!d)
        return 0;
    for (int b = 0; b < BINS; b++) {
        int n = 0;
        for (int whole = 0; whole < 2 && n < 12; whole++) { /* too few: all of them */
            n = 0;
            for (int i = 0; i < list->n; i++) {
                const struct hcp_residual *r = &list->r[i];
                if (whole || (r->predicted_ms <= bin[b].upto &&
                              (b == 0 || r->predicted_ms > bin[b - 1].upto)))
                    d[n++] = r->measured_ms / r->predicted_ms - 1.0;
            }
        }
        double lo = n ? -hcp_quantile(d, n, 0.05) : 0.3,
               hi = n ? hcp_quantile(d, n, 0.95) : 0.3;
        if (n && n < 12) { /* and a few say little */
            lo *= 2.0;
            hi *= 2.0;
        }
        out[3 * b] = isfinite(bin[b].upto) ? bin[b].upto : 1e300;
        out[3 * b + 1] = lo < bin[b].floor ? bin[b].floor : lo > 0.9 ? 0.9 : lo;
        out[3 * b + 2] = hi < bin[b].floor ? bin[b].floor : hi > 9.0 ? 9.0 : hi;
    }
    free(d);
    return BINS;
}

int hcp_fitted_holdout(struct hcp_fitted *f, const struct hcp_residuals *list)
{
    double rows[3 * HCP_ERROR_ROWS_MAX];
    int n = hcp_error_rows(list, rows);
    double *v = n ? hcp_fitted_array(f, "error", 3 * (size_t)n) : NULL;
    if (!v)
        return -1;
    for (int i = 0; i < 3 * n; i++)
        v[i] = rows[i];
    struct hcp_holdout head = hcp_holdout_of(list, 1);
    f->all = hcp_holdout_of(list, 0);
    f->row.holdout_median = head.median;
    f->row.holdout_p90 = head.p90;
    f->row.holdout_cells = head.cells;
    if (head.cells)
        snprintf(f->row.holdout_note, sizeof f->row.holdout_note,
                 "grid lines left out in turn, cells over 0.1 ms on the tile");
    else if (f->all.cells) {
        f->row.holdout_median = f->all.median;
        f->row.holdout_p90 = f->all.p90;
        f->row.holdout_cells = f->all.cells;
        snprintf(f->row.holdout_note, sizeof f->row.holdout_note,
                 "grid lines left out in turn, all cells (none over 0.1 ms on the tile)");
    } else
        snprintf(f->row.holdout_note, sizeof f->row.holdout_note,
                 "too few lengths to leave one out: error bars are a guess");
    return 0;
}
