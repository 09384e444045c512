/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured curve of a link. A line through all sizes cannot follow what is there: a
 * floor of latency, a ramp, a plateau, and steps where the transport changes its protocol
 * or the number of its channels.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

/* A step narrower than this is as good as found. */
#define NARROW 1.1

static int by_size(const void *a, const void *b)
{
    const struct hcp_link_point *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

static size_t one_a_size(struct hcp_link_point *p, size_t n)
{
    size_t sizes = 0;

    qsort(p, n, sizeof *p, by_size);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && p[j].bytes == p[i].bytes; j++)
            ;
        p[sizes++] = (struct hcp_link_point){
            p[i].bytes, (p[i + (j - i - 1) / 2].ms + p[i + (j - i) / 2].ms) / 2};
    }
    return sizes;
}

int hcp_link_points(const int64_t *bytes, const double *time_ms, size_t n,
                    struct hcp_link_point **out, size_t *sizes, struct hcp_err *err)
{
    struct hcp_link_point *p = malloc((n + 1) * sizeof *p);
    int rc = p ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    for (size_t i = 0; !rc && i < n; i++) {
        if (bytes[i] < 1 || !(time_ms[i] > 0) || isinf(time_ms[i]))
            rc = hcp_fail(err, HCP_FAILED,
                          "a transfer of %lld bytes in %g ms; both must be above zero",
                          (long long)bytes[i], time_ms[i]);
        else
            p[i] = (struct hcp_link_point){(double)bytes[i], time_ms[i]};
    }
    if (!rc)
        *sizes = one_a_size(p, n);
    if (!rc && *sizes < 2)
        rc = hcp_fail(err, HCP_NO_ANSWER,
                      "transfers of %s do not tell latency from bandwidth; measure at "
                      "least two sizes",
                      *sizes ? "one size" : "no size");
    if (rc) {
        free(p);
        return rc;
    }
    *out = p;
    return HCP_OK;
}

static double between(const struct hcp_link_point *a, const struct hcp_link_point *b,
                      double bytes)
{
    return a->ms + (b->ms - a->ms) * ((bytes - a->bytes) / (b->bytes - a->bytes));
}

double hcp_link_curve_ms(const struct hcp_link_curve *curve, double bytes)
{
    const struct hcp_link_point *p = curve->points;
    size_t low = 0, high = curve->n - 1; /* p[low] <= bytes <= p[high] */

    if (bytes <= p[0].bytes)
        return p[0].ms;
    if (bytes >= p[high].bytes)
        return p[high].ms * (bytes / p[high].bytes);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p[middle].bytes <= bytes)
            low = middle;
        else
            high = middle;
    }
    return between(&p[low], &p[high], bytes);
}

double hcp_link_curve_error(const struct hcp_link_curve *curve, size_t i)
{
    const struct hcp_link_point *p = curve->points;

    if (i == 0 || i + 1 >= curve->n)
        return NAN;
    return fabs(between(&p[i - 1], &p[i + 1], p[i].bytes) - p[i].ms) / p[i].ms;
}

struct held {
    double error, weight;
};

static int by_error(const void *a, const void *b)
{
    const struct held *x = a, *y = b;

    return (x->error > y->error) - (x->error < y->error);
}

/* The smallest error that at least `share` of the weight does not exceed. */
static double quantile(const struct held *held, size_t n, double share)
{
    double all = 0, sum = 0;

    for (size_t i = 0; i < n; i++)
        all += held[i].weight;
    for (size_t i = 0; i < n; i++) {
        sum += held[i].weight;
        if (sum >= share * all)
            return held[i].error;
    }
    return held[n - 1].error;
}

/* A size stands for the sizes about it, half-way to its neighbours in the logarithm:
 * those that crowd about a step do not count for more than the step is wide. */
static int hold_out(struct hcp_link_curve *curve)
{
    const struct hcp_link_point *p = curve->points;
    size_t n = curve->n - 2;
    struct held *held = malloc((n + 1) * sizeof *held);

    if (!held)
        return -1;
    for (size_t i = 0; i < n; i++)
        held[i] = (struct held){hcp_link_curve_error(curve, i + 1),
                                log(p[i + 2].bytes / p[i].bytes)};
    qsort(held, n, sizeof *held, by_error);
    curve->holdout_median = quantile(held, n, 0.5);
    curve->holdout_p90 = quantile(held, n, 0.9);
    curve->holdout_max = held[n - 1].error;
    free(held);
    return 0;
}

int hcp_link_curve_make(const int64_t *bytes, const double *time_ms, size_t n,
                        struct hcp_link_curve *out, struct hcp_err *err)
{
    struct hcp_link_curve curve = {NULL, 0, NAN, NAN, NAN};
    int rc = hcp_link_points(bytes, time_ms, n, &curve.points, &curve.n, err);

    if (!rc && curve.n > 2 && hold_out(&curve)) {
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
        free(curve.points);
    }
    if (!rc)
        *out = curve;
    return rc;
}

void hcp_link_curve_free(struct hcp_link_curve *curve)
{
    free(curve->points);
    *curve = (struct hcp_link_curve){NULL, 0, NAN, NAN, NAN};
}

/* Between a and b about their geometric mean, a multiple of a power of two that is small
 * beside the gap. */
static int64_t middle(double a, double b)
{
    int64_t unit = 1;

    while ((double)unit * 32 <= b - a)
        unit *= 2;
    return (int64_t)(sqrt(a * b) / (double)unit + 0.5) * unit;
}

int64_t hcp_link_curve_next(const struct hcp_link_curve *curve, double target)
{
    const struct hcp_link_point *p = curve->points;
    double worst = 0;
    int64_t next = 0;

    for (size_t i = 0; i + 1 < curve->n; i++) {
        double a = hcp_link_curve_error(curve, i), b = hcp_link_curve_error(curve, i + 1);
        double sum = (isnan(a) ? 0 : a) + (isnan(b) ? 0 : b);
        /* Of two gaps beside a bad size the one that is wider, or has the step in it. */
        double score = sum * (1 - p[i].bytes / p[i + 1].bytes);
        int64_t size = middle(p[i].bytes, p[i + 1].bytes);
        if (!(a > target || b > target) || score <= worst ||
            p[i + 1].bytes < NARROW * p[i].bytes || (double)size <= p[i].bytes ||
            (double)size >= p[i + 1].bytes)
            continue;
        worst = score;
        next = size;
    }
    return next;
}
