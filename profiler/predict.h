/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep knows about the cells of one level and mask that it has not measured, and
 * how sure that is. Pure: no device, no database, no clock. The models that plans use
 * are fitted later (hcp-plan fit, which needs GSL); this one needs to be no better than
 * they are, and can be asked after every few cells.
 *
 * Times are kriged in logarithms (Rasmussen and Williams, Gaussian Processes for Machine
 * Learning, 2006: eq. 2.25, 2.26, 5.8, 5.12):
 *
 *   log t = log m + g,   m = a*area + v*area1 + w*area2 + b*q + c*kv + f
 *
 * with coefficients >= 0 of the least relative squares; area1 and area2 are the area in
 * whole waves of thread blocks, one or two to an SM; and g is a process with a Matern
 * covariance (3/2) in octaves of either length plus what repeats do not share.
 */
#ifndef HCP_PREDICT_H
#define HCP_PREDICT_H
#include <stddef.h>
#include <stdint.h>
#include "db/error.h"

/* What is known of the kernel; zeros where it is not. */
struct hcp_predict_shape {
    int causal; /* squares: kv_len == q_len */
    int64_t tile_q, tile_kv;
    int64_t sms;            /* under the level's limit */
    int64_t blocks_of_tile; /* thread blocks of a tile of queries: batch * heads */
};

struct hcp_point {
    int64_t q_len, kv_len;
    double ms; /* of measured points */
};

/* Relative errors; NaN when cells is 0. */
struct hcp_heldout {
    double median, p90;
    int cells;
};

/* Errors count above this: shorter cells repeat themselves to 10 % only. */
#define HCP_HEADLINE_MS 0.1

typedef struct hcp_predictor hcp_predictor;

/* From n >= 1 distinct measured points (copied). Free with hcp_predictor_free. */
int hcp_predictor_fit(const struct hcp_predict_shape *shape,
                      const struct hcp_point *points, size_t n, hcp_predictor **out,
                      struct hcp_err *err);
void hcp_predictor_free(hcp_predictor *p); /* accepts NULL */

double hcp_predictor_ms(const hcp_predictor *p, int64_t q_len, int64_t kv_len);

/* Errors of the measured points, each predicted from all others: of those over 0.1 ms
 * (all, where these are under four) that lie between others along some length, because
 * plans ask for no others. */
struct hcp_heldout hcp_predictor_heldout(const hcp_predictor *p);
/* What the same error is expected to be once `more` points are measured as well (their
 * ms is ignored): from where they lie, not from their times. */
struct hcp_heldout hcp_predictor_expect(const hcp_predictor *p,
                                        const struct hcp_point *more, size_t n);

/* Of n unmeasured points the `most` to measure next, best first: the largest expected
 * error, taken from how far the measured points are and how wrong those near it were
 * when held out, times ms / (ms + 0.1), because plans are made of long blocks. Each
 * choice reckons with those before it. Returns how many. */
size_t hcp_predictor_next(const hcp_predictor *p, const struct hcp_point *points,
                          size_t n, size_t most, size_t *chosen);

/* Median and 90th percentile of n errors, which are sorted. */
struct hcp_heldout hcp_heldout_of(double *errors, size_t n);

#endif
