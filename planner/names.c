/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/plan.h"

static const char *const strategies[] = {"even", "nominal", "proportional", "lut",
                                         "poly", "best",    "given"};
static const char *const layouts[] = {"auto", "contiguous", "zigzag", "striped"};
static const char *const orders[] = {"given", "free", "fixed"};
static const char *const sources[] = {"measured", "interpolated", "extrapolated",
                                      "estimated"};
static const char *const decisions[] = {"split", "even", "drop"};
static const char *const merges[] = {"none", "ring", "doubling", "gather"};
static const char *const move_decisions[] = {"open", "stay", "move"};
static const char *const rebalance_decisions[] = {"keep", "move", "stuck"};
static const char *const rebalance_reasons[] = {"steady", "same",    "small", "cost",
                                                "wait",   "no plan", "gain",  "failed"};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *name_of(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n ? names[i] : "?";
}

static int number_of(const char *const *names, size_t n, const char *name, int *out)
{
    for (size_t i = 0; name && i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (int)i;
            return 0;
        }
    }
    return -1;
}

const char *hcp_strategy_name(hcp_strategy strategy)
{
    return name_of(strategies, COUNT(strategies), (int)strategy);
}

int hcp_strategy_from_name(const char *name, hcp_strategy *out)
{
    int i;

    if (number_of(strategies, COUNT(strategies), name, &i))
        return -1;
    *out = (hcp_strategy)i;
    return 0;
}

const char *hcp_layout_name(hcp_layout layout)
{
    return name_of(layouts, COUNT(layouts), (int)layout);
}

int hcp_layout_from_name(const char *name, hcp_layout *out)
{
    int i;

    if (number_of(layouts, COUNT(layouts), name, &i))
        return -1;
    *out = (hcp_layout)i;
    return 0;
}

const char *hcp_order_name(hcp_order order)
{
    return name_of(orders, COUNT(orders), (int)order);
}

const char *hcp_rings_name(hcp_rings rings)
{
    return rings == HCP_RINGS_ONE ? "one" : rings == HCP_RINGS_BEST ? "best" : "?";
}

const char *hcp_merge_name(hcp_merge merge)
{
    return name_of(merges, COUNT(merges), (int)merge);
}

const char *hcp_move_decision_name(hcp_move_decision decision)
{
    return name_of(move_decisions, COUNT(move_decisions), (int)decision);
}

const char *hcp_uneven_name(hcp_uneven uneven)
{
    static const char *const names[] = {"no", "time", "whole", "gain",
                                        "caps", "tile", "wait", "cost"};

    return name_of(names, COUNT(names), (int)uneven);
}

const char *hcp_disagg_objective_name(hcp_disagg_objective objective)
{
    static const char *const names[] = {"throughput", "latency"};

    return name_of(names, COUNT(names), (int)objective);
}

const char *hcp_disagg_decision_name(hcp_disagg_decision decision)
{
    static const char *const names[] = {"colocate", "disaggregate"};

    return name_of(names, COUNT(names), (int)decision);
}

const char *hcp_source_name(hcp_source source)
{
    return name_of(sources, COUNT(sources), (int)source);
}

const char *hcp_decision_name(hcp_decision decision)
{
    return name_of(decisions, COUNT(decisions), (int)decision);
}

const char *hcp_strerror(hcp_status status)
{
    static const char *const texts[] = {
        "success",
        "invalid argument",
        "workspace or array too small",
        "cannot read the profile database",
        "no model for a rank",
        "samples changed since the model was fitted",
        "outside the measured lengths",
        "memory caps cannot hold the sequence",
        "damaged or inconsistent plan",
        "out of memory",
    };

    return (int)status >= 0 && (size_t)status < COUNT(texts) ? texts[status]
                                                             : "unknown status";
}

int hcp_plan_version(void)
{
    return HCP_PLAN_VERSION;
}

const char *hcp_rebalance_decision_name(hcp_rebalance_decision decision)
{
    return name_of(rebalance_decisions, COUNT(rebalance_decisions), (int)decision);
}

const char *hcp_rebalance_reason_name(hcp_rebalance_reason reason)
{
    return name_of(rebalance_reasons, COUNT(rebalance_reasons), (int)reason);
}
