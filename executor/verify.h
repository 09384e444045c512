/* SPDX-License-Identifier: Apache-2.0
 *
 * Is what the ring computed attention? Each rank compares its own rows with fp64 on the
 * host and with a single pass of the same kernel over the whole sequence on its own
 * device. Nothing of the ring but its O and L is taken for granted: Q, K and V are made
 * again, from the seed and the positions that the plan says are this rank's.
 */
#ifndef HCP_RING_VERIFY_H
#define HCP_RING_VERIFY_H
#include "executor/ring.h"

/* Of one rank; the largest over ranks is what a run reports. Bounds (kernels.md of the
 * conformance set): a ring's relative Frobenius error of O against fp64 is at most 1.5
 * times that of the single pass where partial results are fp32, 3 times otherwise, plus
 * rounding; where less than 4096 (query, key) pairs are compared, whose roundings may all
 * be small in the single pass by luck, it may also be what a kernel's may be. The single
 * pass's is within the kernel's own bound. |L - Lref| <= 1e-4 + 1e-5 |Lref|. */
struct ring_errors {
    int64_t rows_compared;
    double o_error;       /* relative Frobenius, ring against fp64 */
    double single_error;  /* the same of the single pass */
    double o_bound;       /* what o_error may be */
    double lse_error;     /* largest |L - Lref| / (1e-4 + 1e-5 |Lref|): at most 1 */
    double max_abs_error; /* largest |O - Oref| */
    double row_error;     /* of all rows of this rank, ring against single pass: largest
                             of O's relative difference, divided by 16 times a kernel's
                             bound, and of lse_error's formula, halved: at most 1 */
    int passed;
    char text[200]; /* what is wrong: "head 3 token 1021: ..."; "" */
};

/* Poisons O and L with NaN (before the pass that is verified, so that what was not
 * written shows). */
int ring_poison(ring *r, struct hcp_err *err);
/* Compares after a pass. max_rows: at most that many (head, row) pairs of this rank,
 * spread evenly and fixed, and besides the first and last row of every segment, each of
 * one head; all where there are fewer. A rank without tokens passes with 0 rows.
 * HCP_FAILED: could not compare (memory, device); a comparison that fails is
 * errors->passed 0. */
int ring_verify(ring *r, int64_t max_rows, struct ring_errors *errors,
                struct hcp_err *err);

#endif
