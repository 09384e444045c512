/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: what strategies.c shares with strategy-splits.c.
 */
#ifndef HCP_STRATEGIES_H
#define HCP_STRATEGIES_H
#include "planner/plan.h"

enum rule { RULE_EVEN, RULE_NOMINAL, RULE_PROPORTIONAL }; /* as the strategies */

/* Ranks up to which caps in bytes alone are a reason to look at subsets. */
enum { MEMORY_SUBSETS = 8 };

/* The split of a rule under caps; -1: there is none. */
int strategy_share(const struct problem *p, struct scratch *s, enum rule rule,
                   int64_t *tokens);

#endif
