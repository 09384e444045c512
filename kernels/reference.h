/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in fp64 on the host, a row at a time: what every provider is held
 * against. Slow, and shares no code with any kernel.
 */
#ifndef HCP_REFERENCE_H
#define HCP_REFERENCE_H
#include "kernels/provider.h"

/* Doubles of scratch that hcp_reference_row() needs for this problem. */
int64_t hcp_reference_scratch(const hcp_attn_problem *problem);

/* Output and natural-log L of query row i of head h of batch b; inputs in host
 * memory, addressed by the problem's strides; any int64 diag. A row that sees no
 * key gives zeros and -inf. accumulate and out_dtype are not looked at. */
void hcp_reference_row(const hcp_attn_problem *problem, const void *q, const void *k,
                       const void *v, int64_t b, int64_t h, int64_t i, double *o,
                       double *lse, double *scratch);

#endif
