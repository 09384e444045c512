/* SPDX-License-Identifier: Apache-2.0
 *
 * Rebalancing of a group (rebalance-fixture.h) step by step. Includes cmocka.h before it.
 */
#ifndef REBALANCE_RUN_H
#define REBALANCE_RUN_H
#include "tests/rebalance-fixture.h"

static char text[1024];

static inline hcp_rebalance *start(const struct group *g,
                                   const hcp_rebalance_options *options)
{
    hcp_rebalance *out = NULL;

    if (hcp_rebalance_create(g->ring, &g->question, &g->plan.plan, options, text,
                             sizeof text, &out))
        fail_msg("%s", text);
    return out;
}

static inline void random_group(struct group *g, uint64_t *seed, double error)
{
    static const size_t sizes[] = {2, 4, 8};
    size_t n = sizes[fixture_range(seed, 0, 2)];
    int causal = (int)fixture_range(seed, 0, 2) > 0;
    hcp_layout layout =
        causal && fixture_range(seed, 0, 1) ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS;

    group_make(g, n, causal, layout, INT64_C(8192) << fixture_range(seed, 0, 2), error,
               seed);
}

/* One step of the group; base: of the plan that runs. */
static inline void run_step(struct group *g, hcp_rebalance *r, const double *base,
                            enum group_noise kind, double size, int64_t left,
                            uint64_t *seed, hcp_rebalance_verdict *v)
{
    for (size_t i = 0; i < g->n; i++) {
        if (!(base[i] > 0))
            continue;
        g->measured[i] = g->factor[i] * (1 + group_noise(kind, size, seed));
        assert_int_equal(hcp_rebalance_observe(r, i, base[i] * g->measured[i], 0),
                         HCP_STATUS_OK);
    }
    v->size = sizeof *v;
    if (hcp_rebalance_step(r, left, text, sizeof text, v))
        fail_msg("%s", text);
}

static inline void adopt(struct group *g, hcp_rebalance *r, double *base)
{
    assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_OK);
    group_base(g, hcp_rebalance_plan(r), base);
}

/* A state as text; free it. */
static inline char *text_of(const hcp_rebalance *r)
{
    size_t n = 0;
    char *json;

    assert_int_equal(hcp_rebalance_to_json(r, NULL, 0, &n), HCP_STATUS_SPACE);
    json = malloc(n + 1);
    assert_non_null(json);
    assert_int_equal(hcp_rebalance_to_json(r, json, n + 1, &n), HCP_STATUS_OK);
    assert_int_equal(strlen(json), n);
    return json;
}

#endif
