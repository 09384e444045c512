/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/stats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, int n, double p)
{
    double at = (n - 1) * p;
    int i = (int)at;
    if (i >= n - 1)
        return sorted[n - 1];
    return sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]);
}

int hcp_stats_median_rank(int n, double *coverage)
{
    /* Terms of the binomial in logarithms: 2^-n underflows beyond n = 1074. */
    double below = 0, log_term = -n * log(2.0);
    int rank = 1;
    double outside = n > 0 ? 2 * exp(log_term) : 1;
    for (int k = 0; k < n / 2; k++) {
        below += exp(log_term); /* P(X <= k) */
        if (below > 0.025)
            break;
        rank = k + 1;
        outside = 2 * below;
        log_term += log((double)(n - k)) - log(k + 1.0);
    }
    if (coverage)
        *coverage = outside < 1 ? 1 - outside : 0;
    return rank;
}

int hcp_stats_summary(const double *samples, int n, struct hcp_stats *out)
{
    if (n < 1)
        return -1;
    for (int i = 0; i < n; i++)
        if (!isfinite(samples[i]))
            return -1;
    double *x = malloc((size_t)n * sizeof *x);
    if (!x)
        return -1;
    memcpy(x, samples, (size_t)n * sizeof *x);
    qsort(x, (size_t)n, sizeof *x, compare);
    struct hcp_stats s = {.n = n, .min = x[0], .max = x[n - 1]};
    s.median = quantile(x, n, 0.5);
    s.p25 = quantile(x, n, 0.25);
    s.p75 = quantile(x, n, 0.75);
    int rank = hcp_stats_median_rank(n, &s.ci_coverage);
    s.ci_lo = x[rank - 1];
    s.ci_hi = x[n - rank];
    s.noise = s.median > 0 ? (s.ci_hi - s.ci_lo) / (2 * s.median) : 0;
    for (int i = 0; i < n; i++)
        x[i] = fabs(samples[i] - s.median);
    qsort(x, (size_t)n, sizeof *x, compare);
    s.mad = quantile(x, n, 0.5);
    double limit = 10 * fmax(s.mad, 1e-4 * fabs(s.median));
    for (int i = 0; i < n; i++)
        s.outliers += x[i] > limit;
    free(x);
    *out = s;
    return 0;
}

int hcp_stats_settled(double now, double half)
{
    return now >= 0.85 * half;
}
