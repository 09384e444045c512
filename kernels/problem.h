/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and facts of an attention problem that every built-in provider shares.
 */
#ifndef HCP_PROBLEM_H
#define HCP_PROBLEM_H
#include "kernels/geometry.h"
#include "kernels/provider.h"

/* HCP_RC_OK if the problem makes sense for some provider: sizes known, lengths in
 * [0, HCP_MAX_LEN], heads a multiple of kv_heads, diag >= 0, scale finite, dense
 * tensors of up to 2^56 elements (so that sizes in bytes fit). Otherwise
 * HCP_RC_INVALID and one line in reason. */
int hcp_problem_check(const hcp_attn_problem *problem, char *reason, size_t reason_size);

static inline hcp_mask hcp_problem_mask(const hcp_attn_problem *problem)
{
    return problem->causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL;
}

/* Dense [batch][head][token][head_dim] strides for a problem whose lengths are set. */
void hcp_problem_set_dense_strides(hcp_attn_problem *problem);

#endif
