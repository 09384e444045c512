/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan advises, from its times and shares: of the library's answers, and of those
 * to which hcp-plan adds what it knows of an even split.
 */
#ifndef HCP_PLAN_DECISION_H
#define HCP_PLAN_DECISION_H
#include "planner/hcpplan.h"

static inline hcp_decision decision_of(const hcp_plan *plan)
{
    int dropped = 0;

    /* Unknown even time (NaN) compares false. */
    if (plan->even_ms <= plan->interval_hi_ms)
        return HCP_DECISION_EVEN;
    for (size_t r = 0; r < plan->n_ranks; r++)
        dropped |= plan->ranks[r].tokens == 0 && plan->ranks[r].kv_tokens == 0;
    return dropped ? HCP_DECISION_DROP : HCP_DECISION_SPLIT;
}

#endif
