/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said about a set of timing samples. Pure C, no I/O, no allocation kept.
 */
#ifndef HCP_STATS_H
#define HCP_STATS_H
#include <stddef.h>

struct hcp_stats {
    int n;
    double median, min, max;
    double p25, p75;     /* linear between order statistics: position (n-1)*p */
    double ci_lo, ci_hi; /* order statistics that hold the true median with >= 95 % */
    double ci_coverage;  /* what they hold it with: < 0.95 only when n < 6 */
    double mad;          /* median absolute deviation from the median */
    int outliers; /* samples further than 10 MAD from the median; none is dropped */
    double noise; /* (ci_hi - ci_lo) / (2 * median): how unsure the median is */
};

/* Summary of n samples in any order; 0, or -1 when n < 1, a sample is not finite,
 * or memory is short. The MAD that judges outliers is at least 1e-4 of the median,
 * so that a timer's resolution is not an outlier. */
int hcp_stats_summary(const double *samples, int n, struct hcp_stats *out);

/* 1-based rank j such that [x(j), x(n+1-j)] of n sorted samples holds the median
 * with probability *coverage >= 95 %: the largest j with
 * P(Binomial(n, 1/2) <= j-1) <= 2.5 %; 1 when there is none (n < 6). */
int hcp_stats_median_rank(int n, double *coverage);

/* Noise has settled: it no longer falls as it would for independent samples
 * (by sqrt(1/2) when their number doubles). now and half are noise at n and n/2. */
int hcp_stats_settled(double now, double half);

#endif
