/* SPDX-License-Identifier: Apache-2.0
 *
 * Non-negative least squares after Lawson and Hanson, "Solving Least Squares
 * Problems" (1974), chapter 23, on GSL's QR decomposition.
 */
#include <gsl/gsl_blas.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>
#include "fit/fit-internal.h"

struct nnls {
    int rows, cols;
    gsl_matrix *a; /* columns scaled to length 1 */
    gsl_vector *b, *residual;
    double *scale, *x, *z;
    int *passive; /* 1: in the set that is solved for; -1: dependent, left out */
};

/* Least squares over the passive columns into z (0 elsewhere). 1 when the column
 * `added` depends on the others, < 0 on an error of GSL. */
static int solve(struct nnls *w, int added)
{
    int k = 0, index[64];
    for (int j = 0; j < w->cols; j++)
        if (w->passive[j] == 1)
            index[k++] = j;
    if (k > w->rows)
        return 1;
    gsl_matrix *qr = gsl_matrix_alloc((size_t)w->rows, (size_t)k);
    gsl_vector *tau = gsl_vector_alloc((size_t)k), *y = gsl_vector_alloc((size_t)k);
    int code = qr && tau && y ? 0 : -1;
    int last = k - 1;
    for (int c = 0, p = 0; c < k && !code; c++) { /* the added column last */
        int at = index[c] == added ? last : p++;
        for (int i = 0; i < w->rows; i++)
            gsl_matrix_set(qr, (size_t)i, (size_t)at,
                           gsl_matrix_get(w->a, (size_t)i, (size_t)index[c]));
    }
    if (!code && gsl_linalg_QR_decomp(qr, tau))
        code = -1;
    for (int c = 0; c < k && !code; c++)
        if (fabs(gsl_matrix_get(qr, (size_t)c, (size_t)c)) < 1e-9)
            code = 1;
    if (!code && gsl_linalg_QR_lssolve(qr, tau, w->b, y, w->residual))
        code = -1;
    for (int j = 0; j < w->cols && !code; j++)
        w->z[j] = 0.0;
    for (int c = 0, p = 0; c < k && !code; c++) {
        int at = index[c] == added ? last : p++;
        w->z[index[c]] = gsl_vector_get(y, (size_t)at);
    }
    gsl_matrix_free(qr);
    gsl_vector_free(tau);
    gsl_vector_free(y);
    return code;
}

/* residual = b - A x; the column whose gradient promises most, or -1. */
static int steepest(struct nnls *w, double tolerance)
{
    int best = -1;
    double most = tolerance;
    for (int i = 0; i < w->rows; i++) {
        double r = gsl_vector_get(w->b, (size_t)i);
        for (int j = 0; j < w->cols; j++)
            r -= gsl_matrix_get(w->a, (size_t)i, (size_t)j) * w->x[j];
        gsl_vector_set(w->residual, (size_t)i, r);
    }
    for (int j = 0; j < w->cols; j++) {
        if (w->passive[j])
            continue;
        double g = 0.0;
        for (int i = 0; i < w->rows; i++)
            g += gsl_matrix_get(w->a, (size_t)i, (size_t)j) *
                 gsl_vector_get(w->residual, (size_t)i);
        if (g > most) {
            most = g;
            best = j;
        }
    }
    return best;
}

static int iterate(struct nnls *w)
{
    double tolerance = 1e-13 * gsl_blas_dnrm2(w->b);
    for (int step = 0; step < 20 * w->cols; step++) {
        int j = steepest(w, tolerance);
        if (j < 0)
            return 0;
        w->passive[j] = 1;
        int code = solve(w, j);
        if (code < 0)
            return code;
        if (code > 0 || w->z[j] <= 0.0) { /* dependent, or only rounding promised it */
            w->passive[j] = -1;
            continue;
        }
        for (;;) {
            double alpha = 2.0;
            for (int c = 0; c < w->cols; c++)
                if (w->passive[c] == 1 && w->z[c] <= 0.0 &&
                    w->x[c] / (w->x[c] - w->z[c]) < alpha)
                    alpha = w->x[c] / (w->x[c] - w->z[c]);
            if (alpha > 1.0)
                break;
            for (int c = 0; c < w->cols; c++) {
                if (w->passive[c] != 1)
                    continue;
                int blocks = w->z[c] <= 0.0;
                w->x[c] += alpha * (w->z[c] - w->x[c]);
                if (blocks && w->x[c] < 1e-12) {
                    w->x[c] = 0.0;
                    w->passive[c] = 0;
                }
            }
            if ((code = solve(w, j)) != 0)
                return code < 0 ? code : 0;
        }
        for (int c = 0; c < w->cols; c++)
            w->x[c] = w->z[c];
    }
    return 0;
}

int hcp_nnls(const double *a, const double *b, int rows, int cols, double *x,
             struct hcp_err *err)
{
    struct nnls w = {.rows = rows, .cols = cols};
    if (rows < 1 || cols < 1 || cols > 64)
        return hcp_fail(err, HCP_FAILED, "regression of %d cells on %d terms", rows,
                        cols);
    w.a = gsl_matrix_alloc((size_t)rows, (size_t)cols);
    w.b = gsl_vector_alloc((size_t)rows);
    w.residual = gsl_vector_alloc((size_t)rows);
    w.scale = calloc((size_t)cols, sizeof *w.scale);
    w.x = calloc((size_t)cols, sizeof *w.x);
    w.z = calloc((size_t)cols, sizeof *w.z);
    w.passive = calloc((size_t)cols, sizeof *w.passive);
    int code = HCP_OK;
    if (!w.a || !w.b || !w.residual || !w.scale || !w.x || !w.z || !w.passive)
        code = hcp_fail(err, HCP_FAILED, "out of memory");
    if (!code) {
        for (int j = 0; j < cols; j++) {
            double sum = 0.0;
            for (int i = 0; i < rows; i++)
                sum += a[i * cols + j] * a[i * cols + j];
            w.scale[j] = sqrt(sum);
            if (!(w.scale[j] > 0))
                w.passive[j] = -1;
            for (int i = 0; i < rows; i++)
                gsl_matrix_set(w.a, (size_t)i, (size_t)j,
                               w.scale[j] > 0 ? a[i * cols + j] / w.scale[j] : 0.0);
        }
        for (int i = 0; i < rows; i++)
            gsl_vector_set(w.b, (size_t)i, b[i]);
        if (iterate(&w))
            code = hcp_fail(err, HCP_FAILED, "regression failed in GSL's QR");
        for (int j = 0; j < cols; j++) {
            x[j] = w.scale[j] > 0 ? w.x[j] / w.scale[j] : 0.0;
            if (!code && !isfinite(x[j]))
                code = hcp_fail(err, HCP_FAILED,
                                "regression gave a coefficient that is not finite");
        }
    }
    gsl_matrix_free(w.a);
    gsl_vector_free(w.b);
    gsl_vector_free(w.residual);
    free(w.scale);
    free(w.x);
    free(w.z);
    free(w.passive);
    return code;
}
