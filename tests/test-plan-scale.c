/* SPDX-License-Identifier: Apache-2.0
 *
 * Many ranks: what the planner takes the quick way (ring-wide.c, runs of equal ranks,
 * parts of sums it keeps) is, to the last bit, what the steps of a simulation add up to,
 * which are computed one by one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"

enum { KINDS = 4, LARGEST = 1900 };

static void random_kinds(struct fixture *kinds, uint64_t *seed)
{
    static const char *const names[KINDS] = {"d0", "d1", "d2", "d3"};

    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.2, 1);

        kinds[i] = (struct fixture){.device = names[i],
                                    .a = 2e-8 / speed,
                                    .b = fixture_real(seed, 0, 1e-5),
                                    .c = fixture_real(seed, 0, 1e-5),
                                    .f = fixture_real(seed, 0.001, 0.02),
                                    .tile = 64,
                                    .lut = 1,
                                    .error = 0.02};
        if (fixture_range(seed, 0, 1))
            kinds[i].bumps = fixture_random(seed) | 1;
        if (fixture_range(seed, 0, 2) == 0)
            for (int k = 0; k < 4; k++)
                kinds[i].finish[k] = fixture_real(seed, 0, k % 2 ? 1e-6 : 0.01);
    }
}

/* Ranks at random, a block of each kind, or nodes of eight in turn. */
static void place(int *which, size_t n, uint64_t *seed)
{
    int pattern = (int)fixture_range(seed, 0, 2),
        used = (int)fixture_range(seed, 1, KINDS);

    for (size_t r = 0; r < n; r++)
        which[r] = pattern == 0   ? (int)fixture_range(seed, 0, used - 1)
                   : pattern == 1 ? (int)(r * (size_t)used / n)
                                  : (int)(r / 8 % (size_t)used);
}

static void ask(hcp_question *q, size_t n, uint64_t *seed)
{
    hcp_question_init(q);
    q->seq_len = (int64_t)n * fixture_range(seed, 100, 9000);
    q->causal = fixture_range(seed, 0, 3) > 0;
    q->layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    q->buffers = (int32_t)(fixture_range(seed, 0, 1) ? 2 : fixture_range(seed, 0, 9));
    q->link_gbps = fixture_range(seed, 0, 1) ? fixture_real(seed, 5, 400) : 0;
    q->link_alpha_us = fixture_range(seed, 0, 1) ? fixture_real(seed, 0, 20) : 0;
    q->extrapolate = 1;
    if (fixture_range(seed, 0, 2) == 0)
        q->strategy = HCP_STRATEGY_EVEN;
    if (fixture_range(seed, 0, 2) == 0) {
        q->node_ranks = (int32_t)fixture_range(seed, 1, 16);
        q->node_gbps = fixture_real(seed, 0.5, 50);
        q->node_alpha_us = fixture_real(seed, 0, 50);
        q->rings = (hcp_rings)fixture_range(seed, HCP_RINGS_ONE, HCP_RINGS_BEST);
    }
}

static void compare(size_t n, uint64_t *seed, hcp_step *steps)
{
    struct fixture kinds[KINDS];
    static int which[LARGEST];
    struct fixture_plan p;
    hcp_models *models;
    hcp_question q;
    hcp_ring *ring;
    size_t n_steps, m = 0;
    double last = 0;
    char text[512] = "";

    random_kinds(kinds, seed);
    place(which, n, seed);
    ask(&q, n, seed);
    models = fixture_models(kinds, KINDS);
    ring = fixture_ring(models, kinds, which, NULL, n);
    fixture_plan_init(&p, n);
    fixture_split(ring, &q, &p, text, sizeof text);
    assert_string_equal(text, "");
    hcp_plan_simulate(ring, &p.plan, 1, p.workspace, p.workspace_bytes, text, sizeof text,
                      steps, n * n, &n_steps);
    assert_string_equal(text, "");
    for (size_t r = 0; r < n; r++)
        m += p.plan.ranks[r].tokens > 0;
    for (size_t i = 0; i < m; i++) {
        const hcp_step *step = &steps[i * m + m - 1];

        if (step->fin_ms != p.plan.ranks[step->rank].predicted_ms)
            fail_msg("%zu ranks, layout %d, %d buffers: rank %d is done at %.17g, in the "
                     "simulation at %.17g",
                     n, (int)q.layout, (int)q.buffers, (int)step->rank,
                     p.plan.ranks[step->rank].predicted_ms, step->fin_ms);
        last = step->fin_ms > last ? step->fin_ms : last;
    }
    assert_true(last == p.plan.makespan_ms);
    assert_true(p.plan.bound_ms <= p.plan.makespan_ms);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    fixture_free(models);
}

static void as_simulated(void **state)
{
    int problems = (int)(300 * fixture_scale());
    hcp_step *steps = calloc((size_t)LARGEST * LARGEST, sizeof *steps);
    uint64_t seed = 5;

    (void)state;
    assert_non_null(steps);
    for (int i = 0; i < problems; i++)
        compare((size_t)fixture_range(&seed, 1, 90), &seed, steps);
    /* Past what is done row by row: in bands, one range wide and several. */
    for (int i = 0; i < problems / 20; i++)
        compare((size_t)fixture_range(&seed, 200, LARGEST), &seed, steps);
    free(steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_simulated)};

    return cmocka_run_group_tests_name("plan-scale", tests, NULL, NULL);
}
