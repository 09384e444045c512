/* SPDX-License-Identifier: Apache-2.0
 *
 * How far from fp64 attention may be: the bounds of the conformance set, for whoever
 * else compares. Inputs about normal, scores near zero.
 */
#ifndef HCP_BOUNDS_H
#define HCP_BOUNDS_H
#include <math.h>
#include <stdint.h>
#include "kernels/provider.h"

/* Relative Frobenius error of O of a kernel. */
static inline double hcp_o_bound(int32_t dtype)
{
    return dtype == HCP_BF16 ? 4e-3 : dtype == HCP_FP16 ? 5e-4 : 2e-5;
}

/* |L - ref| over its bound 1e-4 + 1e-5 |ref|: 0 if both are -inf, infinite if one is or
 * any is NaN. */
static inline double hcp_lse_excess(double lse, double ref)
{
    if (lse == ref)
        return 0;
    double excess = fabs(lse - ref) / (1e-4 + 1e-5 * fabs(ref));
    return excess < INFINITY ? excess : INFINITY;
}

/* The same as hcp_o_bound() of a sequence that was processed in blocks, from the error of
 * the single pass: 1.5 times that where partial results are fp32, 3 times where they are
 * not. Beside it what n_blocks (>= 1) merged one after the other leave by rounding O and
 * L (of size lse) to fp32, where a single pass may be better by luck than the factor
 * allows for, or by having no such steps: independent errors, so the square root; one of
 * L is one of a block's weight. */
static inline double hcp_blocks_o_bound(double single, int fp32_partials,
                                        int64_t n_blocks, double lse)
{
    double step = 0x1p-23 * fmax(1, fabs(lse) / 4);
    return (fp32_partials ? 1.5 : 3) * single + step * sqrt((double)n_blocks);
}

#endif
