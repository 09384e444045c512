/* SPDX-License-Identifier: Apache-2.0
 *
 * Merge of partial attention states. A state of one (row, head) is O, the fp32
 * attention output normalised over the keys seen so far, and L, the natural log
 * of the sum of exp(score) over them. The empty state is (0, -inf); where L is
 * -inf the contents of O are never read (they may be NaN).
 *
 *   M = max(La, Lb), wa = exp(La - M), wb = exp(Lb - M)
 *   O = (wa Oa + wb Ob) / (wa + wb),  L = M + log(wa + wb)
 *
 * Exact and independent of the order up to rounding: within 4 ulp of
 * max(|Oa|, |Ob|) on O and 2e-6 + 2^-22 |L| on L for two states.
 */
#ifndef HCP_MERGE_H
#define HCP_MERGE_H
#include "kernels/runtime.h"

/* Merges rows partial states into (o, lse). o: [rows][head_dim] fp32; o_part: the
 * same shape in part_dtype; lse, lse_part: [rows]. All contiguous, host memory. */
void hcp_merge(float *o, float *lse, const void *o_part, int32_t part_dtype,
               const float *lse_part, int64_t rows, int64_t head_dim);

/* Merges n states at once into (o, lse), which is only written: parts[p] and
 * lse_parts[p] as above, in fp32. One rounding of the weights instead of n - 1.
 * n = 0 gives the empty state. */
void hcp_merge_many(float *o, float *lse, const float *const *parts,
                    const float *const *lse_parts, int64_t n, int64_t rows,
                    int64_t head_dim);

/* hcp_finish of runtime.h on host memory. */
void hcp_finish_host(const hcp_finish *job);

#endif
