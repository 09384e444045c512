/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/predict.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/sweep.h"

enum { TERMS = 6 };

/* No model is surer than this: times repeat to about a thousandth at best. */
static const double LEAST_SD = 5e-4;

struct hcp_predictor {
    struct hcp_predict_shape shape;
    size_t n;
    struct hcp_point *point;
    double *u, *v;      /* positions, in octaves */
    double *inverse;    /* n x n, of the covariance in units of variance */
    double *weight;     /* inverse times the residuals */
    double *error;      /* held-out error of each point, in logarithms */
    double *surprise;   /* its square over the variance expected of it */
    double mean[TERMS]; /* coefficients */
    double length, nugget, variance;
};

static int64_t round_up(int64_t n, int64_t tile)
{
    return tile > 1 ? (n + tile - 1) / tile * tile : n;
}

/* Terms of the mean at a cell. */
static void terms(const struct hcp_predict_shape *s, int64_t q_len, int64_t kv_len,
                  double out[TERMS])
{
    int64_t q = round_up(q_len, s->tile_q), kv = round_up(kv_len, s->tile_kv);
    if (s->causal)
        kv = q;
    double area = hcp_cell_area(s->causal, q, kv), waves[2] = {0, 0};
    if (!s->causal && s->sms > 0 && s->blocks_of_tile > 0) {
        /* A kernel that does not say what its tile is has 128 rows more often than not;
         * where it has not, the fit gives the term no weight. */
        int64_t tile = s->tile_q > 1 ? s->tile_q : 128;
        int64_t blocks = (q + tile - 1) / tile * s->blocks_of_tile;
        for (int one = 0; one < 2; one++) /* block to an SM, or two */
            waves[one] =
                area * (double)round_up(blocks, (one + 1) * s->sms) / (double)blocks;
    }
    out[0] = area;
    out[1] = waves[0];
    out[2] = waves[1];
    out[3] = (double)q;
    out[4] = s->causal ? 0 : (double)kv;
    out[5] = 1;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Solves the n x n system a*x = b of a symmetric positive definite a (overwritten) in
 * place of b; -1 when it is not. */
static int solve_small(double a[TERMS][TERMS], double *b, int n)
{
    for (int k = 0; k < n; k++) {
        if (!(a[k][k] > 1e-12))
            return -1;
        for (int i = k + 1; i < n; i++) {
            double f = a[i][k] / a[k][k];
            for (int j = k; j < n; j++)
                a[i][j] -= f * a[k][j];
            b[i] -= f * b[k];
        }
    }
    for (int k = n - 1; k >= 0; k--) {
        for (int j = k + 1; j < n; j++)
            b[k] -= a[k][j] * b[j];
        b[k] /= a[k][k];
    }
    return 0;
}

/* Least squares with coefficients >= 0, exactly: the best of all sets of terms whose
 * own solution has no negative one. normal: A'A, right: A'y. */
static void least_squares(const double normal[TERMS][TERMS], const double right[TERMS],
                          double out[TERMS])
{
    double best = 0;
    memset(out, 0, TERMS * sizeof *out);
    for (unsigned set = 1; set < 1u << TERMS; set++) {
        double a[TERMS][TERMS], x[TERMS], scale[TERMS], gain = 0;
        int member[TERMS], n = 0, good = 1;
        for (int k = 0; k < TERMS; k++) {
            if (!(set >> k & 1))
                continue;
            if (!(normal[k][k] > 0))
                good = 0;
            scale[n] = sqrt(normal[k][k]);
            member[n++] = k;
        }
        for (int i = 0; i < n && good; i++) {
            x[i] = right[member[i]] / scale[i];
            for (int j = 0; j < n; j++)
                a[i][j] = normal[member[i]][member[j]] / (scale[i] * scale[j]);
        }
        if (!good || solve_small(a, x, n) != 0)
            continue;
        for (int i = 0; i < n; i++) {
            good &= x[i] >= 0;
            x[i] /= scale[i];
            gain += x[i] * right[member[i]];
        }
        if (!good || gain <= best * (1 + 1e-12))
            continue;
        best = gain;
        memset(out, 0, TERMS * sizeof *out);
        for (int i = 0; i < n; i++)
            out[member[i]] = x[i];
    }
}

static double mean_log(const struct hcp_predictor *p, const double mean[TERMS],
                       int64_t q_len, int64_t kv_len)
{
    double term[TERMS];
    terms(&p->shape, q_len, kv_len, term);
    double ms = dot(mean, term, TERMS);
    return log(ms > 1e-9 ? ms : 1e-9);
}

static double covariance(double length, double du, double dv)
{
    double r = sqrt(3 * (du * du + dv * dv)) / length;
    return (1 + r) * exp(-r);
}

static double position(int64_t len)
{
    return log2((double)len);
}

/* Inverts the symmetric positive definite n x n matrix a in place, through its Cholesky
 * factor; *log_det is that of a. -1: it is not positive definite. */
static int invert(double *a, size_t n, double *log_det)
{
    *log_det = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            double sum = a[i * n + j] - dot(&a[i * n], &a[j * n], j);
            if (i == j && !(sum > 0))
                return -1;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
            *log_det += i == j ? log(sum) : 0;
        }
    /* The factor's inverse, column by column, into the upper half by rows. */
    for (size_t j = 0; j < n; j++) {
        double diagonal = 1 / a[j * n + j];
        for (size_t i = j + 1; i < n; i++) {
            double sum = a[i * n + j] * diagonal;
            for (size_t k = j + 1; k < i; k++)
                sum += a[i * n + k] * a[j * n + k];
            a[j * n + i] = -sum / a[i * n + i];
        }
    }
    for (size_t i = 0; i < n; i++)
        a[i * n + i] = 1 / a[i * n + i];
    /* inverse = W'W, W the inverse factor, whose row k is column k of the upper half. */
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            a[i * n + j] = dot(&a[i * n + j], &a[j * n + j], n - j);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            a[i * n + j] = a[j * n + i];
    return 0;
}

static double *covariances(const double *u, const double *v, size_t n, double length,
                           double nugget)
{
    double *k = malloc((n * n + 1) * sizeof *k);
    for (size_t i = 0; k && i < n; i++)
        for (size_t j = 0; j < n; j++)
            k[i * n + j] =
                covariance(length, u[i] - u[j], v[i] - v[j]) + (i == j ? nugget : 0);
    return k;
}

static void times_vector(const double *a, const double *x, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = dot(&a[i * n], x, n);
}

static double variance_of(const double *y, const double *weight, size_t n)
{
    double mean_square = dot(y, weight, n) / (double)n;
    return mean_square > LEAST_SD * LEAST_SD ? mean_square : LEAST_SD * LEAST_SD;
}

/* Length and nugget of the greatest likelihood among a few. -1: out of memory. */
static int fit_process(struct hcp_predictor *p, const double *y)
{
    static const double lengths[] = {1, 3, 9}, nuggets[] = {1e-3, 3e-2, 1};
    double best = -INFINITY, n = (double)p->n;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t e = 0; e < sizeof nuggets / sizeof *nuggets; e++) {
            double log_det, *k = covariances(p->u, p->v, p->n, lengths[l], nuggets[e]);
            double *weight = malloc(p->n * sizeof *weight);
            if (!k || !weight) {
                free(k);
                free(weight);
                return -1;
            }
            double likelihood = -INFINITY, variance = 0;
            if (invert(k, p->n, &log_det) == 0) {
                times_vector(k, y, p->n, weight);
                variance = variance_of(y, weight, p->n);
                likelihood = -0.5 * (n * log(variance) + log_det +
                                     dot(y, weight, p->n) / variance);
            }
            if (likelihood > best) {
                best = likelihood;
                double *was = p->inverse, *was_weight = p->weight;
                p->inverse = k, p->weight = weight;
                k = was, weight = was_weight;
                p->length = lengths[l];
                p->nugget = nuggets[e];
                p->variance = variance;
            }
            free(k);
            free(weight);
        }
    return p->inverse ? 0 : -1;
}

/* Each point from the others: the mean is fitted again without it, the process keeps its
 * length and nugget. */
static void hold_out(struct hcp_predictor *p, const double normal[TERMS][TERMS],
                     const double right[TERMS])
{
    for (size_t i = 0; i < p->n; i++) {
        const struct hcp_point *at = &p->point[i];
        const double *row = &p->inverse[i * p->n];
        double less[TERMS][TERMS], less_right[TERMS], mean[TERMS], term[TERMS];
        terms(&p->shape, at->q_len, at->kv_len, term);
        for (int a = 0; a < TERMS; a++) {
            less_right[a] = right[a] - term[a] / at->ms;
            for (int b = 0; b < TERMS; b++)
                less[a][b] = normal[a][b] - term[a] * term[b] / (at->ms * at->ms);
        }
        least_squares(less, less_right, mean);
        double sum = 0;
        for (size_t j = 0; j < p->n; j++)
            sum += row[j] * (log(p->point[j].ms) -
                             mean_log(p, mean, p->point[j].q_len, p->point[j].kv_len));
        p->error[i] = sum / row[i];
        p->surprise[i] = fmin(100, p->error[i] * p->error[i] * row[i] / p->variance);
    }
}

int hcp_predictor_fit(const struct hcp_predict_shape *shape,
                      const struct hcp_point *points, size_t n, hcp_predictor **out,
                      struct hcp_err *err)
{
    struct hcp_predictor *p = calloc(1, sizeof *p);
    double *y = malloc((n + 1) * sizeof *y);
    double normal[TERMS][TERMS] = {{0}}, right[TERMS] = {0};
    if (!p || !y)
        goto memory;
    p->shape = *shape;
    p->n = n;
    p->point = malloc((n + 1) * sizeof *p->point);
    p->u = malloc((n + 1) * sizeof *p->u);
    p->v = malloc((n + 1) * sizeof *p->v);
    p->error = malloc((n + 1) * sizeof *p->error);
    p->surprise = malloc((n + 1) * sizeof *p->surprise);
    if (!p->point || !p->u || !p->v || !p->error || !p->surprise)
        goto memory;
    memcpy(p->point, points, n * sizeof *points);
    for (size_t i = 0; i < n; i++) {
        double term[TERMS];
        terms(shape, points[i].q_len, points[i].kv_len, term);
        p->u[i] = position(points[i].q_len);
        p->v[i] = shape->causal ? 0 : position(points[i].kv_len);
        for (int a = 0; a < TERMS; a++) {
            right[a] += term[a] / points[i].ms;
            for (int b = 0; b < TERMS; b++)
                normal[a][b] += term[a] * term[b] / (points[i].ms * points[i].ms);
        }
    }
    least_squares(normal, right, p->mean);
    for (size_t i = 0; i < n; i++)
        y[i] =
            log(points[i].ms) - mean_log(p, p->mean, points[i].q_len, points[i].kv_len);
    if (fit_process(p, y) != 0)
        goto memory;
    hold_out(p, normal, right);
    free(y);
    *out = p;
    return HCP_OK;
memory:
    free(y);
    hcp_predictor_free(p);
    return hcp_fail(err, HCP_FAILED, "out of memory");
}

void hcp_predictor_free(hcp_predictor *p)
{
    if (!p)
        return;
    free(p->point);
    free(p->u);
    free(p->v);
    free(p->inverse);
    free(p->weight);
    free(p->error);
    free(p->surprise);
    free(p);
}

double hcp_predictor_ms(const hcp_predictor *p, int64_t q_len, int64_t kv_len)
{
    double u = position(q_len), v = p->shape.causal ? 0 : position(kv_len), g = 0;
    for (size_t i = 0; i < p->n; i++)
        g += p->weight[i] * covariance(p->length, u - p->u[i], v - p->v[i]);
    return exp(mean_log(p, p->mean, q_len, kv_len) + g);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t n, double part)
{
    double at = part * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i])
                     : sorted[n - 1];
}

struct hcp_heldout hcp_heldout_of(double *errors, size_t n)
{
    if (n == 0)
        return (struct hcp_heldout){NAN, NAN, 0};
    qsort(errors, n, sizeof *errors, by_value);
    return (struct hcp_heldout){quantile(errors, n, 0.5), quantile(errors, n, 0.9),
                                (int)n};
}

/* Lies between others along some length: what is predicted at a corner is not. */
static int is_inner(const double *u, const double *v, size_t n, size_t i)
{
    int less_u = 0, more_u = 0, less_v = 0, more_v = 0;
    for (size_t j = 0; j < n; j++) {
        less_u |= u[j] < u[i];
        more_u |= u[j] > u[i];
        less_v |= v[j] < v[i];
        more_v |= v[j] > v[i];
    }
    return (less_u && more_u) || (less_v && more_v);
}

/* Keeps, of the values of n cells that take ms, those that count; see
 * hcp_predictor_heldout. Returns how many. */
static size_t headline(const double *u, const double *v, const double *ms, double *value,
                       size_t n)
{
    size_t large = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        large += ms[i] > HCP_HEADLINE_MS && is_inner(u, v, n, i);
    for (size_t i = 0; i < n; i++)
        if ((large < 4 || ms[i] > HCP_HEADLINE_MS) && is_inner(u, v, n, i))
            value[kept++] = value[i];
    return kept;
}

struct hcp_heldout hcp_predictor_heldout(const hcp_predictor *p)
{
    double *error = malloc((2 * p->n + 1) * sizeof *error);
    if (!error)
        return (struct hcp_heldout){NAN, NAN, 0};
    double *ms = error + p->n;
    for (size_t i = 0; i < p->n; i++) {
        error[i] = fabs(expm1(-p->error[i])); /* predicted / measured - 1 */
        ms[i] = p->point[i].ms;
    }
    struct hcp_heldout h = hcp_heldout_of(error, headline(p->u, p->v, ms, error, p->n));
    free(error);
    return h;
}

/* How wrong predictions near a place were, squared, in units of what was expected: one
 * unless its neighbours say otherwise. */
static double surprise_at(const hcp_predictor *p, double u, double v)
{
    double sum = 1, weight = 1;
    for (size_t i = 0; i < p->n; i++) {
        double k = covariance(1, u - p->u[i], v - p->v[i]);
        sum += k * k * p->surprise[i];
        weight += k * k;
    }
    return sum / weight;
}

/* Of as many normal errors of these deviations, the one that `part` of them lie under. */
static double normal_quantile(const double *sd, size_t n, double part)
{
    double lo = 0, hi = 0;
    for (size_t i = 0; i < n; i++)
        hi = fmax(hi, 6 * sd[i]);
    for (int turn = 0; turn < 60; turn++) {
        double mid = 0.5 * (lo + hi), under = 0;
        for (size_t i = 0; i < n; i++)
            under += erf(mid / (sd[i] * sqrt(2)));
        *(under < part * (double)n ? &lo : &hi) = mid;
    }
    return hi;
}

struct hcp_heldout hcp_predictor_expect(const hcp_predictor *p,
                                        const struct hcp_point *more, size_t n_more)
{
    size_t n = p->n + n_more;
    struct hcp_heldout h = {NAN, NAN, 0};
    double *u = malloc((4 * n + 1) * sizeof *u), *v = u + n, *ms = v + n, *sd = ms + n;
    double *k = NULL, log_det;
    for (size_t i = 0; u && i < n; i++) {
        const struct hcp_point *at = i < p->n ? &p->point[i] : &more[i - p->n];
        u[i] = position(at->q_len);
        v[i] = p->shape.causal ? 0 : position(at->kv_len);
        ms[i] = i < p->n ? at->ms : hcp_predictor_ms(p, at->q_len, at->kv_len);
    }
    if (u)
        k = covariances(u, v, n, p->length, p->nugget);
    if (k && invert(k, n, &log_det) == 0) {
        for (size_t i = 0; i < n; i++)
            sd[i] = sqrt(p->variance / k[i * n + i] * surprise_at(p, u[i], v[i]));
        h.cells = (int)headline(u, v, ms, sd, n);
        if (h.cells > 0) {
            h.median = normal_quantile(sd, (size_t)h.cells, 0.5);
            h.p90 = normal_quantile(sd, (size_t)h.cells, 0.9);
        }
    }
    free(k);
    free(u);
    return h;
}

size_t hcp_predictor_next(const hcp_predictor *p, const struct hcp_point *points,
                          size_t n, size_t most, size_t *chosen)
{
    size_t got = 0;
    most = most < n ? most : n;
    /* Of each point: its variance, its error's scale, its covariances with the measured
     * points and those times the inverse; and of each choice its share of the rest. */
    double *left = malloc((2 * n + 2 * n * p->n + most * n + 1) * sizeof *left);
    if (!left)
        return 0;
    double *scale = left + n, *k = scale + n, *ki = k + n * p->n, *g = ki + n * p->n;
    for (size_t c = 0; c < n; c++) {
        double u = position(points[c].q_len),
               v = p->shape.causal ? 0 : position(points[c].kv_len);
        double ms = hcp_predictor_ms(p, points[c].q_len, points[c].kv_len);
        for (size_t i = 0; i < p->n; i++)
            k[c * p->n + i] = covariance(p->length, u - p->u[i], v - p->v[i]);
        times_vector(p->inverse, &k[c * p->n], p->n, &ki[c * p->n]);
        left[c] = 1 - dot(&k[c * p->n], &ki[c * p->n], p->n);
        double weight = ms / (ms + HCP_HEADLINE_MS);
        scale[c] = surprise_at(p, u, v) * weight * weight;
    }
    while (got < most) {
        size_t best = n;
        for (size_t c = 0; c < n; c++) {
            int taken = 0;
            for (size_t i = 0; i < got; i++)
                taken |= chosen[i] == c;
            if (!taken && (best == n || left[c] * scale[c] > left[best] * scale[best]))
                best = c;
        }
        double u = position(points[best].q_len),
               v = p->shape.causal ? 0 : position(points[best].kv_len);
        double own = sqrt(fmax(left[best], 0) + p->nugget), *share = &g[got * n];
        for (size_t c = 0; c < n; c++) {
            double du = position(points[c].q_len) - u,
                   dv = p->shape.causal ? 0 : position(points[c].kv_len) - v;
            double both =
                covariance(p->length, du, dv) - dot(&k[c * p->n], &ki[best * p->n], p->n);
            for (size_t i = 0; i < got; i++)
                both -= g[i * n + c] * g[i * n + best];
            share[c] = both / own;
        }
        for (size_t c = 0; c < n; c++)
            left[c] -= share[c] * share[c];
        chosen[got++] = best;
    }
    free(left);
    return got;
}
