/* SPDX-License-Identifier: Apache-2.0
 *
 * Rebalancing while a plan runs: steps, ramps, noise and swings of ranks' speeds, and
 * what is gained then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/rebalance-run.h"

/* ---- a step ---- */

/* What shares take now. */
static double makespan_of(struct group *g, const int64_t *tokens, hcp_layout layout)
{
    hcp_plan_rank ranks[GROUP_MOST] = {0};
    hcp_plan like = {.layout = layout, .ranks = ranks};

    for (size_t i = 0; i < g->n; i++)
        ranks[i].tokens = tokens[i];
    return group_makespan(g, &like);
}

/* What the plan takes that is made for a rank's factor as the mean of its times since it
 * changed says it is, and the others' as they are. */
static double told(struct group *g, size_t rank, double mean)
{
    int64_t tokens[GROUP_MOST];
    double factor = g->factor[rank];
    hcp_layout layout;

    g->factor[rank] = mean;
    group_makespan(g, NULL);
    g->factor[rank] = factor;
    layout = g->other.plan.layout;
    for (size_t i = 0; i < g->n; i++)
        tokens[i] = g->other.plan.ranks[i].tokens;
    return makespan_of(g, tokens, layout);
}

struct gains {
    int counted, good, nothing;
    int told;          /* 90 % or more had it been told which rank changed, and when */
    double sum, worst; /* parts of the gain */
};

/* One rank of a group changes its speed: what is gained of what could be, within 3 steps.
 */
static void one_step(uint64_t *seed, double noise, struct gains *out)
{
    struct group g;
    hcp_rebalance *r;
    hcp_rebalance_verdict v;
    double base[GROUP_MOST], stale, best, after, got, mean = 0;
    size_t slow;
    int64_t when = fixture_range(seed, 12, 60);

    random_group(&g, seed, 0.02);
    r = start(&g, NULL);
    group_base(&g, &g.plan.plan, base);
    for (int64_t t = 0; t < when; t++) {
        run_step(&g, r, base, NOISE_NORMAL, noise, -1, seed, &v);
        assert_int_equal(v.decision, HCP_REBALANCE_KEEP);
    }
    do
        slow = (size_t)fixture_range(seed, 0, (int64_t)g.n - 1);
    while (base[slow] == 0);
    g.factor[slow] = fixture_range(seed, 0, 3) ? fixture_real(seed, 1.3, 5)
                                               : fixture_real(seed, 0.3, 0.75);
    stale = group_makespan(&g, hcp_rebalance_plan(r));
    best = group_makespan(&g, NULL);
    for (int t = 0; t < 3; t++) {
        run_step(&g, r, base, NOISE_NORMAL, noise, -1, seed, &v);
        mean += g.measured[slow] / 3;
        if (v.decision == HCP_REBALANCE_MOVE)
            adopt(&g, r, base);
    }
    after = group_makespan(&g, hcp_rebalance_plan(r));
    if (stale - best > 0.05 * stale) {
        got = (stale - after) / (stale - best);
        out->counted++;
        out->good += got >= 0.9;
        out->nothing += got < 0.1;
        out->told += (stale - told(&g, slow, mean)) / (stale - best) >= 0.9;
        out->sum += got;
        out->worst = got < out->worst ? got : out->worst;
    }
    hcp_rebalance_free(r);
    group_free(&g);
}

static struct gains steps(uint64_t seed, double noise)
{
    struct gains out = {.worst = 1};

    for (int c = 0; c < (int)(240 * fixture_scale()); c++)
        one_step(&seed, noise, &out);
    print_message("# %d steps that matter: %.1f %% of the gain on average, %.1f %% at "
                  "least; %d of them 90 %% or more (%d had one been told), %d nothing\n",
                  out.counted, 100 * out.sum / out.counted, 100 * out.worst, out.good,
                  out.told, out.nothing);
    return out;
}

static void step_trace(void **state)
{
    struct gains out = steps(901, 0.01);

    (void)state;
    assert_true(out.sum > 0.97 * out.counted);
    if (fixture_scale() >= 0.5) {
        assert_true(out.counted >= 100);
        assert_true(out.good >= out.counted * 98 / 100);
        assert_int_equal(out.nothing, 0);
    }
}

/* Three times with 5 % noise say how fast a rank is to 2.9 %, which is more than a tenth
 * of small gains: who is told which rank changed, and when, has 90 % in 96 of 100 as
 * well. */
static void step_trace_in_noise(void **state)
{
    struct gains out = steps(917, 0.05);

    (void)state;
    assert_true(out.sum > 0.9 * out.counted);
    if (fixture_scale() >= 0.5) {
        assert_true(out.counted >= 100);
        assert_true(out.sum > 0.97 * out.counted);
        assert_true(out.good >= out.counted * 93 / 100);
        assert_true(out.good + out.counted * 3 / 100 >= out.told);
        assert_true(out.nothing <= out.counted / 100);
    }
}

/* A rank that was never as fast as its models say: what they say counts no more once
 * its times have shown that, or much of the factor is lost in a mean. */
static void wrong_from_the_start(void **state)
{
    uint64_t seed = 921;
    int cases = (int)(60 * fixture_scale()) + 4, counted = 0, good = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_rank rank = {.size = sizeof rank};
        hcp_rebalance_verdict v;
        double base[GROUP_MOST], stale, best, after;
        size_t slow = 0;

        random_group(&g, &seed, 0.02);
        r = start(&g, NULL);
        group_base(&g, &g.plan.plan, base);
        while (base[slow] == 0)
            slow++;
        g.factor[slow] = fixture_real(&seed, 1.5, 4);
        stale = group_makespan(&g, hcp_rebalance_plan(r));
        best = group_makespan(&g, NULL);
        for (int t = 0; t < 4; t++) {
            run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
            if (v.decision == HCP_REBALANCE_MOVE)
                adopt(&g, r, base);
        }
        assert_int_equal(hcp_rebalance_rank_state(r, slow, &rank), HCP_STATUS_OK);
        if (base[slow] > 0)
            assert_true(fabs(rank.time_scale / g.factor[slow] - 1) < 0.04);
        after = group_makespan(&g, hcp_rebalance_plan(r));
        if (stale - best > 0.05 * stale) {
            counted++;
            good += stale - after >= 0.9 * (stale - best);
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# from the start: %d of %d\n", good, counted);
    assert_true(counted > cases / 2 && good >= counted * 9 / 10);
}

/* ---- a ramp ---- */

static void ramp_trace(void **state)
{
    uint64_t seed = 902;
    int cases = (int)(16 * fixture_scale()) + 1;
    double stale_sum = 0, best_sum = 0, got_sum = 0;
    int moves = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_verdict v;
        double base[GROUP_MOST] = {0};
        size_t slow = 0;

        random_group(&g, &seed, 0.02);
        r = start(&g, NULL);
        group_base(&g, &g.plan.plan, base);
        while (base[slow] == 0)
            slow++;
        for (int t = 0; t < 120; t++) {
            double done = t < 20 ? 0 : t < 80 ? (t - 20) / 60.0 : 1;

            g.factor[slow] = 1 + 1.5 * done;
            if (t % 4 == 0) { /* each costs a search */
                stale_sum += group_makespan(&g, &g.plan.plan);
                best_sum += group_makespan(&g, NULL);
                got_sum += group_makespan(&g, hcp_rebalance_plan(r));
            }
            run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
            if (v.decision == HCP_REBALANCE_MOVE) {
                moves++;
                adopt(&g, r, base);
            }
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# ramps: %.1f %% of the gain, %.1f moves each\n",
                  100 * (stale_sum - got_sum) / (stale_sum - best_sum),
                  (double)moves / cases);
    assert_true(stale_sum - got_sum > 0.85 * (stale_sum - best_sum));
}

/* ---- noise ---- */

static void noise_moves_nothing(void **state)
{
    uint64_t seed = 903;
    int steps = (int)(10000 * fixture_scale()), changed = 0;

    (void)state;
    for (int done = 0, c = 0; done < steps; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_verdict v;
        double base[GROUP_MOST] = {0};

        random_group(&g, &seed, c % 2 ? 0.02 : 0);
        r = start(&g, NULL);
        group_base(&g, &g.plan.plan, base);
        for (int t = 0; t < 500; t++, done++) {
            run_step(&g, r, base, c % 3 ? NOISE_EVEN : NOISE_NORMAL, 0.05, -1, &seed, &v);
            changed += v.changed;
            assert_int_equal(v.decision, HCP_REBALANCE_KEEP);
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# %d steps of 5 %% noise: %d changes seen, no move\n", steps, changed);
}

/* The rate that is stated holds for normal noise, whatever it is. */
static void rate_of_false_alarms(void **state)
{
    static const double rates[] = {1e-2, 1e-3};
    uint64_t seed = 913;

    (void)state;
    for (int k = 0; k < 2; k++) {
        int steps = (int)(3000 * fixture_scale()) + 10, changed = 0;
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_options options;
        hcp_rebalance_verdict v;
        double base[GROUP_MOST] = {0};
        size_t with = 0;

        group_make(&g, 8, 0, HCP_LAYOUT_CONTIGUOUS, 32768, 0, &seed);
        hcp_rebalance_options_init(&options);
        options.false_alarms = rates[k];
        options.min_gain = 1; /* see, but never move */
        r = start(&g, &options);
        group_base(&g, &g.plan.plan, base);
        for (size_t i = 0; i < g.n; i++)
            with += base[i] > 0;
        for (int t = 0; t < steps; t++) {
            run_step(&g, r, base, NOISE_NORMAL, 0.03, -1, &seed, &v);
            changed += v.changed;
        }
        print_message("# %g stated: %d in %zu\n", rates[k], changed, steps * with);
        assert_true(changed <= rates[k] * (double)steps * (double)with + 3);
        hcp_rebalance_free(r);
        group_free(&g);
    }
}

/* Outliers of any size, one at a time. */
static void outliers_move_nothing(void **state)
{
    uint64_t seed = 904;

    (void)state;
    for (int c = 0; c < 6; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_verdict v;
        double base[GROUP_MOST] = {0};

        random_group(&g, &seed, 0.02);
        r = start(&g, NULL);
        group_base(&g, &g.plan.plan, base);
        for (int t = 0; t < 200; t++) {
            size_t hit = (size_t)fixture_range(&seed, 0, (int64_t)g.n - 1);

            if (t > 2 && t % 7 == 0)
                g.factor[hit] = fixture_real(&seed, 1.5, 500);
            run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
            g.factor[hit] = 1;
            if (v.decision != HCP_REBALANCE_KEEP)
                fail_msg("case %d, step %d", c, t);
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
}

/* ---- swings ---- */

/* Halves of a swing shorter than what a move takes to pay back: none. Longer ones: some.
 */
static void fast_swings_move_nothing(void **state)
{
    uint64_t seed = 905;
    int cases = (int)(120 * fixture_scale()) + 2, slow_moves = 0, weak = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_verdict v;
        hcp_rebalance_options options;
        double base[GROUP_MOST] = {0}, factor = fixture_real(&seed, 1.4, 3), gain;
        int64_t half = fixture_range(&seed, 1, 12), quiet = fixture_range(&seed, 0, 80);
        int fast = c % 4 != 3;
        size_t slow = 0;

        random_group(&g, &seed, 0.02);
        group_base(&g, &g.plan.plan, base);
        while (base[slow] == 0)
            slow++;
        g.factor[slow] = factor;
        gain = group_makespan(&g, &g.plan.plan) - group_makespan(&g, NULL);
        hcp_rebalance_options_init(&options);
        options.move_ms = gain * (double)half * (fast ? 1.15 : 0.3);
        r = start(&g, &options);
        if (!fast)
            half = 40;
        for (int64_t t = 0; t < (fast ? 600 : 200); t++) {
            g.factor[slow] = t >= quiet && (t - quiet) / half % 2 == 0 ? factor : 1;
            run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
            if (v.decision == HCP_REBALANCE_MOVE) {
                if (fast)
                    fail_msg("case %d, step %d: moved at halves of %d, break-even %g", c,
                             (int)t, (int)half, v.break_even_steps);
                slow_moves++;
                adopt(&g, r, base);
            }
        }
        weak += gain < 1e-9;
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# slow swings: %d moves\n", slow_moves);
    assert_true(weak < cases / 4 && slow_moves > 0);
}

/* A move that costs nothing follows a swing that is slow enough; of one that turns back
 * again and again, less and less. */
static void learns_to_wait(void **state)
{
    uint64_t seed = 906;
    struct group g;
    hcp_rebalance *r;
    hcp_rebalance_verdict v;
    double base[GROUP_MOST] = {0};
    int moves[2] = {0};

    (void)state;
    group_make(&g, 2, 0, HCP_LAYOUT_CONTIGUOUS, 16384, 0.02, &seed);
    r = start(&g, NULL);
    group_base(&g, &g.plan.plan, base);
    for (int t = 0; t < 600; t++) {
        g.factor[1] = t >= 50 && (t - 50) / 3 % 2 == 0 ? 2 : 1;
        run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
        if (v.decision == HCP_REBALANCE_MOVE) {
            moves[t >= 150]++;
            adopt(&g, r, base);
        }
    }
    print_message("# swings of 3 steps: %d moves in 100 steps, %d in 450\n", moves[0],
                  moves[1]);
    assert_true(moves[0] <= 8 && moves[1] <= 4);
    hcp_rebalance_free(r);
    group_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_trace),
        cmocka_unit_test(step_trace_in_noise),
        cmocka_unit_test(wrong_from_the_start),
        cmocka_unit_test(ramp_trace),
        cmocka_unit_test(noise_moves_nothing),
        cmocka_unit_test(rate_of_false_alarms),
        cmocka_unit_test(outliers_move_nothing),
        cmocka_unit_test(fast_swings_move_nothing),
        cmocka_unit_test(learns_to_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
