/* SPDX-License-Identifier: Apache-2.0
 *
 * Rebalancing while a plan runs: steps, ramps, noise, swings and failures of ranks'
 * speeds, what is proposed then, and that all ranks propose the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/decode-reference.h"
#include "tests/rebalance-fixture.h"

static char text[1024];

static hcp_rebalance *start(const struct group *g, const hcp_rebalance_options *options)
{
    hcp_rebalance *out = NULL;

    if (hcp_rebalance_create(g->ring, &g->question, &g->plan.plan, options, text,
                             sizeof text, &out))
        fail_msg("%s", text);
    return out;
}

static void random_group(struct group *g, uint64_t *seed, double error)
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
static void run_step(struct group *g, hcp_rebalance *r, const double *base,
                     enum group_noise kind, double size, int64_t left, uint64_t *seed,
                     hcp_rebalance_verdict *v)
{
    for (size_t i = 0; i < g->n; i++)
        if (base[i] > 0)
            assert_int_equal(
                hcp_rebalance_observe(
                    r, i, base[i] * g->factor[i] * (1 + group_noise(kind, size, seed)),
                    0),
                HCP_STATUS_OK);
    v->size = sizeof *v;
    if (hcp_rebalance_step(r, left, text, sizeof text, v))
        fail_msg("%s", text);
}

static void adopt(struct group *g, hcp_rebalance *r, double *base)
{
    assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_OK);
    group_base(g, hcp_rebalance_plan(r), base);
}

/* ---- a step ---- */

static void step_trace(void **state)
{
    uint64_t seed = 901;
    int cases = (int)(240 * fixture_scale()), counted = 0, good = 0;
    double worst = 1, sum = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_verdict v;
        double base[GROUP_MOST], stale, best, after, got;
        size_t slow;
        int64_t when = fixture_range(&seed, 12, 60);

        random_group(&g, &seed, 0.02);
        r = start(&g, NULL);
        group_base(&g, &g.plan.plan, base);
        for (int64_t t = 0; t < when; t++) {
            run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
            assert_int_equal(v.decision, HCP_REBALANCE_KEEP);
        }
        do
            slow = (size_t)fixture_range(&seed, 0, (int64_t)g.n - 1);
        while (base[slow] == 0);
        g.factor[slow] = fixture_range(&seed, 0, 3) ? fixture_real(&seed, 1.3, 5)
                                                    : fixture_real(&seed, 0.3, 0.75);
        stale = group_makespan(&g, hcp_rebalance_plan(r));
        best = group_makespan(&g, NULL);
        for (int t = 0; t < 3; t++) {
            run_step(&g, r, base, NOISE_NORMAL, 0.01, -1, &seed, &v);
            if (v.decision == HCP_REBALANCE_MOVE)
                adopt(&g, r, base);
        }
        after = group_makespan(&g, hcp_rebalance_plan(r));
        if (stale - best > 0.05 * stale) {
            got = (stale - after) / (stale - best);
            counted++;
            good += got >= 0.9;
            sum += got;
            worst = got < worst ? got : worst;
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# %d steps that matter: %.1f %% of the gain on average, %.1f %% at "
                  "least, %d of them 90 %% or more\n",
                  counted, 100 * sum / counted, 100 * worst, good);
    assert_true(sum / counted > 0.9);
    if (fixture_scale() >= 0.5) {
        assert_true(counted >= 100);
        assert_true(good >= counted * 95 / 100);
    }
}

/* ---- a ramp ---- */

static void ramp_trace(void **state)
{
    uint64_t seed = 902;
    int cases = (int)(24 * fixture_scale()) + 1;
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
    int cases = (int)(60 * fixture_scale()) + 2, slow_moves = 0, weak = 0;

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

/* ---- a rank fails ---- */

static void check_recompute(const hcp_rebalance *r, const hcp_plan *had, size_t failed)
{
    const hcp_plan *plan = hcp_rebalance_proposal(r);
    hcp_recompute list[256];
    size_t n = 0;
    char *who = calloc((size_t)had->seq_len, 1);
    const hcp_plan_rank *gone = &had->ranks[failed];

    assert_non_null(who);
    assert_int_equal(hcp_rebalance_recompute(r, NULL, 0, &n), HCP_STATUS_OK);
    if (n > 0)
        assert_int_equal(hcp_rebalance_recompute(r, list, n - 1, &n), HCP_STATUS_SPACE);
    assert_int_equal(hcp_rebalance_recompute(r, list, 256, &n), HCP_STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list[i].lost_by, failed);
        for (int64_t t = list[i].offset; t < list[i].offset + list[i].length; t++) {
            assert_int_equal(who[t], 0);
            who[t] = (char)(1 + list[i].rank);
        }
    }
    for (size_t i = 0; i < plan->n_ranks; i++) /* each by the rank that keeps it now */
        for (int64_t k = 0; k < plan->ranks[i].n_kv_segments; k++) {
            hcp_segment s = plan->segments[plan->ranks[i].first_kv_segment + k];
            for (int64_t t = s.offset; t < s.offset + s.length; t++)
                assert_true(who[t] == 0 || who[t] == (char)(1 + i));
        }
    for (int64_t k = 0; k < gone->n_kv_segments; k++) { /* all of what is lost */
        hcp_segment s = had->segments[gone->first_kv_segment + k];
        for (int64_t t = s.offset; t < s.offset + s.length; t++) {
            assert_true(who[t] != 0);
            who[t] = 0;
        }
    }
    for (int64_t t = 0; t < had->seq_len; t++) /* and nothing else */
        assert_int_equal(who[t], 0);
    free(who);
}

/* What the others alone would be given. */
static double without(struct group *g, size_t failed)
{
    hcp_rank ranks[GROUP_MOST];
    struct fixture_plan plan;
    hcp_ring *ring;
    size_t n = 0;
    double ms;

    for (size_t r = 0; r < g->n; r++) {
        if (r == failed)
            continue;
        hcp_rank_init(&ranks[n]);
        snprintf(ranks[n++].device, 64, "%s", g->names[r]);
    }
    ring = fixture_ring_of(g->models, ranks, n);
    fixture_plan_init(&plan, n);
    if (fixture_split(ring, &g->question, &plan, text, sizeof text))
        fail_msg("%s", text);
    ms = plan.plan.makespan_ms;
    fixture_plan_free(&plan);
    hcp_ring_free(ring);
    return ms;
}

static void failures(void **state)
{
    uint64_t seed = 907;
    int cases = (int)(90 * fixture_scale()) + 3;
    double worse = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_verdict v = {.size = sizeof v};
        hcp_rebalance_rank info = {.size = sizeof info};
        double base[GROUP_MOST], exact[GROUP_MOST], alone;
        const hcp_plan *plan;
        hcp_plan_rank ranks[GROUP_MOST];
        hcp_plan had;
        size_t gone;

        random_group(&g, &seed, 0.02);
        r = start(&g, NULL);
        group_base(&g, &g.plan.plan, base);
        memcpy(exact, base, sizeof exact);
        for (int t = 0; t < 5; t++)
            run_step(&g, r, base, NOISE_EVEN, 0, -1, &seed, &v);
        do
            gone = (size_t)fixture_range(&seed, 0, (int64_t)g.n - 1);
        while (base[gone] == 0);
        for (size_t i = 0; i < g.n; i++) {
            if (i != gone)
                hcp_rebalance_observe(r, i, exact[i], 0);
            else if (c % 3 == 0)
                assert_int_equal(hcp_rebalance_fail(r, i), HCP_STATUS_OK);
            else if (c % 3 == 1)
                hcp_rebalance_observe(r, i, c % 2 ? NAN : INFINITY, 0);
        }
        assert_int_equal(hcp_rebalance_step(r, -1, text, sizeof text, &v), HCP_STATUS_OK);
        assert_int_equal(v.failed, 1);
        assert_int_equal(v.reason, HCP_REBALANCE_FAILED);
        assert_int_equal(v.decision, HCP_REBALANCE_MOVE);
        plan = hcp_rebalance_proposal(r);
        assert_non_null(plan);
        assert_int_equal(v.fingerprint, hcp_plan_fingerprint(plan));
        assert_int_equal(plan->ranks[gone].tokens, 0);
        had = *hcp_rebalance_plan(r);
        memcpy(ranks, had.ranks, g.n * sizeof *ranks);
        assert_int_equal(v.lost_tokens, ranks[gone].tokens);
        check_recompute(r, hcp_rebalance_plan(r), gone);
        /* Factors are means of what was exact: the last bits may differ. */
        alone = without(&g, gone);
        worse = fmax(worse, plan->makespan_ms / alone - 1);
        if (plan->makespan_ms > alone * (1 + (g.n > 3 ? 0.01 : 1e-9)))
            fail_msg("case %d: %.17g ms, %.17g without the rank", c, plan->makespan_ms,
                     alone);
        adopt(&g, r, base);
        assert_int_equal(hcp_rebalance_rank_state(r, gone, &info), HCP_STATUS_OK);
        assert_int_equal(info.failed, 1);
        for (int t = 0; t < 6; t++) { /* the others go on */
            run_step(&g, r, base, NOISE_EVEN, 0, -1, &seed, &v);
            assert_int_equal(v.decision, HCP_REBALANCE_KEEP);
        }
        assert_int_equal(hcp_rebalance_restore(r, gone, 1), HCP_STATUS_OK);
        run_step(&g, r, base, NOISE_EVEN, 0, -1, &seed, &v);
        if (g.n == 2) { /* of two, one alone is always slower */
            for (int t = 0; t < 3 && v.decision != HCP_REBALANCE_MOVE; t++)
                run_step(&g, r, base, NOISE_EVEN, 0, -1, &seed, &v);
            assert_int_equal(v.decision, HCP_REBALANCE_MOVE);
            assert_true(hcp_rebalance_proposal(r)->ranks[gone].tokens > 0);
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# at most %.2f %% slower than a plan of the others alone\n",
                  100 * worse);
}

/* Two ranks, each with half of the memory: one cannot do it alone. */
static void stuck(void **state)
{
    static const struct fixture kinds[] = {
        {.device = "a", .a = 2e-8, .f = 0.002, .tile = 64, .lut = 1, .error = 0.02}};
    int which[2] = {0, 0};
    int64_t caps[2] = {5000, 5000};
    hcp_models *models = fixture_models(kinds, 1);
    hcp_ring *ring = fixture_ring(models, kinds, which, caps, 2);
    struct fixture_plan plan;
    hcp_rebalance_verdict v = {.size = sizeof v};
    hcp_rebalance *r = NULL;
    hcp_question q;

    (void)state;
    hcp_question_init(&q);
    q.seq_len = 8192;
    fixture_plan_init(&plan, 2);
    assert_int_equal(fixture_split(ring, &q, &plan, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(
        hcp_rebalance_create(ring, &q, &plan.plan, NULL, text, sizeof text, &r),
        HCP_STATUS_OK);
    for (int t = 0; t < 2; t++) {
        hcp_rebalance_observe(r, 0, plan.plan.ranks[0].compute_ms, 0);
        *text = 0;
        assert_int_equal(hcp_rebalance_step(r, 9, text, sizeof text, &v), HCP_STATUS_OK);
        assert_int_equal(v.decision, HCP_REBALANCE_STUCK);
        assert_int_equal(v.failed, t == 0);
        assert_non_null(strstr(text, "short by"));
        assert_null(hcp_rebalance_proposal(r));
        assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_INVALID);
        assert_int_equal(v.lost_tokens, plan.plan.ranks[1].tokens);
    }
    hcp_rebalance_free(r);
    fixture_plan_free(&plan);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

/* ---- all ranks say the same ---- */

static char *text_of(const hcp_rebalance *r)
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

static void same_everywhere(void **state)
{
    uint64_t seed = 908;
    int cases = (int)(200 * fixture_scale()) + 2, moves = 0, joined = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r[3] = {NULL, NULL, NULL};
        hcp_rebalance_options options;
        double base[GROUP_MOST] = {0};
        int64_t joins = fixture_range(&seed, 1, 30);

        random_group(&g, &seed, 0.02);
        hcp_rebalance_options_init(&options);
        options.move_ms = fixture_real(&seed, 0, 2) * g.plan.plan.makespan_ms;
        for (int k = 0; k < 2; k++)
            r[k] = start(&g, &options);
        group_base(&g, &g.plan.plan, base);
        for (int64_t t = 0; t < 40; t++) {
            hcp_rebalance_verdict v[3];
            double ms[GROUP_MOST];
            int32_t order[GROUP_MOST];

            if (t == joins) { /* a rank that was started anew */
                char *json = text_of(r[0]);

                r[2] = start(&g, &options);
                if (hcp_rebalance_from_json(r[2], json, strlen(json), text, sizeof text))
                    fail_msg("%s", text);
                free(json);
                joined++;
            }
            if (fixture_range(&seed, 0, 9) == 0)
                g.factor[fixture_range(&seed, 0, (int64_t)g.n - 1)] =
                    fixture_real(&seed, 0.5, 3);
            for (size_t i = 0; i < g.n; i++) {
                ms[i] =
                    base[i] * g.factor[i] * (1 + group_noise(NOISE_NORMAL, 0.01, &seed));
                order[i] = (int32_t)i;
            }
            if (fixture_range(&seed, 0, 60) == 0)
                ms[fixture_range(&seed, 0, (int64_t)g.n - 1)] = NAN;
            for (int k = 0; k < 3 && r[k]; k++) {
                for (size_t i = g.n; k && i-- > 1;) { /* in any order */
                    size_t j = (size_t)fixture_range(&seed, 0, (int64_t)i);
                    int32_t swap = order[i];
                    order[i] = order[j];
                    order[j] = swap;
                }
                for (size_t i = 0; i < g.n; i++)
                    hcp_rebalance_observe(r[k], (size_t)order[i], ms[order[i]], 0);
                memset(&v[k], 0, sizeof v[k]);
                v[k].size = sizeof v[k];
                assert_int_equal(
                    hcp_rebalance_step(r[k], 100 - t, text, sizeof text, &v[k]),
                    HCP_STATUS_OK);
                assert_int_equal(memcmp(&v[0], &v[k], sizeof *v), 0);
                if (v[k].decision == HCP_REBALANCE_MOVE)
                    assert_int_equal(hcp_rebalance_adopt(r[k]), HCP_STATUS_OK);
                assert_int_equal(hcp_rebalance_fingerprint(r[0]),
                                 hcp_rebalance_fingerprint(r[k]));
            }
            if (v[0].decision == HCP_REBALANCE_STUCK)
                break;
            if (v[0].decision == HCP_REBALANCE_MOVE) {
                moves++;
                group_base(&g, hcp_rebalance_plan(r[0]), base);
            }
        }
        for (int k = 0; k < 3; k++)
            hcp_rebalance_free(r[k]);
        group_free(&g);
    }
    print_message("# %d moves, all the same; %d joined\n", moves, joined);
    assert_true(fixture_scale() < 0.5 || (moves > 100 && joined > 100));
}

/* ---- proposals ---- */

/* All splits into whole tiles, and to move there or stay; factors are known exactly. */
static double fastest(struct group *g, const hcp_ring *ring)
{
    int64_t tile = g->question.tile, tiles = g->question.seq_len / tile, t[3];
    hcp_question q = g->question;
    double best = INFINITY;

    for (t[0] = 0; t[0] <= tiles; t[0]++)
        for (t[1] = 0; t[1] <= tiles - t[0]; t[1]++) {
            int64_t tokens[3];

            t[2] = tiles - t[0] - t[1];
            if (g->n == 2 && t[2] > 0)
                continue;
            for (size_t r = 0; r < g->n; r++)
                tokens[r] = t[r] * tile;
            if (hcp_plan_evaluate(ring, &q, tokens, g->other.workspace,
                                  g->other.workspace_bytes, text, sizeof text,
                                  &g->other.plan))
                fail_msg("%s", text);
            if (g->other.plan.makespan_ms < best)
                best = g->other.plan.makespan_ms;
        }
    return best;
}

static void exhaustive(void **state)
{
    uint64_t seed = 909;
    int cases = (int)(400 * fixture_scale()) + 2, moved = 0, stayed = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_options options;
        hcp_rebalance_verdict v;
        hcp_ring *now;
        double base[GROUP_MOST], best, stay, cost, all_move, all_stay;
        int causal = (int)fixture_range(&seed, 0, 1);
        int64_t left = fixture_range(&seed, 1, 60);

        group_make(&g, (size_t)fixture_range(&seed, 2, 3), causal,
                   causal && c % 2 ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS, 4096, 0,
                   &seed);
        g.question.tile = 4096 / fixture_range(&seed, 3, 12) / 64 * 64;
        g.question.seq_len = g.question.tile * fixture_range(&seed, 3, 12);
        g.question.link_gbps = fixture_range(&seed, 0, 2) ? 20 : 0;
        assert_int_equal(fixture_split(g.ring, &g.question, &g.plan, text, sizeof text),
                         HCP_STATUS_OK);
        group_base(&g, &g.plan.plan, base);
        for (size_t i = 0; i < g.n; i++)
            if (base[i] > 0) /* nobody hears of the others */
                g.factor[i] = fixture_real(&seed, 0.5, 2.5);
        now = group_ring_now(&g);
        best = fastest(&g, now);
        stay = group_makespan(&g, &g.plan.plan);
        cost = fixture_real(&seed, 0.02, 2) * (stay - best) * (double)left;
        hcp_rebalance_options_init(&options);
        options.noise = options.min_gain = 0;
        options.expected_steps = left;
        options.move_ms = cost;
        r = start(&g, &options);
        for (int t = 0; t < 2; t++)
            run_step(&g, r, base, NOISE_EVEN, 0, left, &seed, &v);
        all_move = cost + best * (double)left;
        all_stay = stay * (double)left;
        if (fabs(all_move - all_stay) > 1e-9 * all_stay) {
            if (v.decision !=
                (all_move < all_stay ? HCP_REBALANCE_MOVE : HCP_REBALANCE_KEEP))
                fail_msg("case %d: %s (%s), to move %.17g, to stay %.17g, %d of %d", c,
                         hcp_rebalance_decision_name(v.decision),
                         hcp_rebalance_reason_name(v.reason), all_move, all_stay,
                         (int)v.changed, (int)g.n);
            moved += all_move < all_stay;
            stayed += all_move > all_stay;
        }
        if (v.decision == HCP_REBALANCE_MOVE) {
            const hcp_plan *plan = hcp_rebalance_proposal(r);

            if (fabs(plan->makespan_ms - best) > 1e-9 * best)
                fail_msg("case %d: %.17g ms, %.17g possible", c, plan->makespan_ms, best);
            /* And what hcp_plan_split() says at those speeds. */
            assert_true(fabs(group_makespan(&g, NULL) - best) <= 1e-9 * best);
            assert_true(fabs(group_makespan(&g, plan) - best) <= 1e-9 * best);
        }
        hcp_ring_free(now);
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# %d times to move, %d to stay\n", moved, stayed);
    assert_true(fixture_scale() < 1 || (moved + stayed >= 200 && moved >= 50));
}

/* What moving KV costs, from the segments, token by token. */
static void cost_of_moving(void **state)
{
    uint64_t seed = 910;
    int cases = (int)(100 * fixture_scale()) + 2, moves = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance *r;
        hcp_rebalance_options options;
        hcp_rebalance_verdict v;
        double base[GROUP_MOST], want;
        int gone = c % 3 == 0;

        random_group(&g, &seed, 0);
        g.question.layers = 3;
        hcp_rebalance_options_init(&options);
        options.noise = options.min_gain = 0;
        options.expected_steps = 100000;
        options.move_kv = 1;
        options.link_alpha_us = 20;
        options.link_gbps = 25;
        options.move_ms = 0.5;
        r = start(&g, &options);
        group_base(&g, &g.plan.plan, base);
        g.factor[0] = 2.5;
        if (base[0] == 0) {
            hcp_rebalance_free(r);
            group_free(&g);
            continue;
        }
        if (gone)
            hcp_rebalance_fail(r, 0);
        for (int t = 0; t < (gone ? 1 : 2); t++) {
            if (gone)
                for (size_t i = 1; i < g.n; i++)
                    hcp_rebalance_observe(r, i, base[i], 0);
            v.size = sizeof v;
            if (gone)
                hcp_rebalance_step(r, -1, text, sizeof text, &v);
            else
                run_step(&g, r, base, NOISE_EVEN, 0, -1, &seed, &v);
        }
        if (v.decision == HCP_REBALANCE_MOVE) {
            const hcp_plan *from = hcp_rebalance_plan(r), *to = hcp_rebalance_proposal(r);
            int8_t *owner = malloc((size_t)from->seq_len);
            int64_t moved = 0;
            int receivers = 0;

            assert_non_null(owner);
            for (size_t i = 0; i < g.n; i++)
                for (int64_t k = 0; k < from->ranks[i].n_segments; k++) {
                    hcp_segment s = from->segments[from->ranks[i].first_segment + k];
                    memset(owner + s.offset, (int)i, (size_t)s.length);
                }
            for (size_t i = 0; i < g.n; i++) {
                int64_t got = 0;

                for (int64_t k = 0; k < to->ranks[i].n_segments; k++) {
                    hcp_segment s = to->segments[to->ranks[i].first_segment + k];
                    for (int64_t t = s.offset; t < s.offset + s.length; t++)
                        got += owner[t] != (int8_t)i && !(gone && owner[t] == 0);
                }
                moved += got;
                receivers += got > 0;
            }
            assert_int_equal(v.move_tokens, moved);
            assert_int_equal(v.move_bytes, moved * 2 * 8 * 128 * 2 * 3);
            want = 0.5 + receivers * 0.020 + (double)v.move_bytes / 25e6;
            assert_true(fabs(v.cost_ms - want) <= 1e-12 * want);
            free(owner);
            moves++;
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    assert_true(moves > cases / 2);
}

/* In decode it does not matter which tokens a rank has: what comes is what it has more;
 * what a failed rank had is not sent. */
static void cost_in_decode(void **state)
{
    uint64_t seed = 915;
    int cases = (int)(60 * fixture_scale()) + 4, moves = 0, lost = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g = {.n = (size_t)fixture_range(&seed, 2, 5)};
        struct decode_kind kinds[GROUP_MOST];
        hcp_rebalance_options options;
        hcp_rebalance_verdict v = {.size = sizeof v};
        hcp_rebalance *r;
        hcp_shape shape;
        int gone = c % 2;

        for (size_t i = 0; i < g.n; i++)
            kinds[i] = (struct decode_kind){0.02, 1e-5 * fixture_real(&seed, 1, 5), 0, 0,
                                            0, 64};
        hcp_shape_init(&shape);
        strcpy(shape.phase, "decode");
        g.models = decode_models(kinds, g.n, &shape);
        g.ring = decode_ring(g.models, &shape, NULL, NULL, NULL, g.n);
        hcp_question_init(&g.question);
        g.question.seq_len = fixture_range(&seed, 20000, 60000);
        g.question.layers = 3;
        fixture_plan_init(&g.plan, g.n);
        fixture_plan_init(&g.other, g.n);
        assert_int_equal(fixture_split(g.ring, &g.question, &g.plan, text, sizeof text),
                         HCP_STATUS_OK);
        hcp_rebalance_options_init(&options);
        options.noise = options.min_gain = 0;
        options.expected_steps = 1000000;
        options.move_kv = 1;
        options.link_alpha_us = 20;
        options.link_gbps = 25;
        r = start(&g, &options);
        if (gone)
            hcp_rebalance_fail(r, g.n / 2);
        for (int t = 0; t < (gone ? 1 : 2); t++) {
            for (size_t i = 0; i < g.n; i++)
                if (!gone || i != g.n / 2)
                    hcp_rebalance_observe(
                        r, i, g.plan.plan.ranks[i].compute_ms * (i == g.n / 2 ? 2.5 : 1),
                        0);
            assert_int_equal(hcp_rebalance_step(r, -1, text, sizeof text, &v),
                             HCP_STATUS_OK);
        }
        if (v.decision == HCP_REBALANCE_MOVE) {
            const hcp_plan *from = hcp_rebalance_plan(r), *to = hcp_rebalance_proposal(r);
            int64_t moved = gone ? -from->ranks[g.n / 2].tokens : 0;
            double want = 0;

            for (size_t i = 0; i < g.n; i++)
                if (to->ranks[i].tokens > from->ranks[i].tokens) {
                    moved += to->ranks[i].tokens - from->ranks[i].tokens;
                    want += 0.020;
                }
            want += (double)v.move_bytes / 25e6;
            assert_int_equal(v.move_tokens, moved);
            assert_int_equal(v.move_bytes, moved * 2 * 8 * 128 * 2 * 3);
            if (!gone && fabs(v.cost_ms - want) > 1e-12 * want)
                fail_msg("case %d: %.17g ms, expected %.17g", c, v.cost_ms, want);
            moves += !gone;
            lost += gone && v.lost_tokens == from->ranks[g.n / 2].tokens;
        }
        hcp_rebalance_free(r);
        group_free(&g);
    }
    print_message("# %d moves, %d without a rank\n", moves, lost);
    assert_true(moves > 0 && lost > 0);
}

/* The margin from what is known outside; and a move that costs a little less than what is
 * saved beyond it in the steps to come is made, one that costs a little more is not. */
static void margins(void **state)
{
    uint64_t seed = 916;
    int cases = (int)(100 * fixture_scale()) + 4, counted = 0;

    (void)state;
    for (int c = 0; c < cases; c++) {
        struct group g;
        hcp_rebalance_options options;
        double base[GROUP_MOST], cost = 0;

        random_group(&g, &seed, 0.06);
        group_base(&g, &g.plan.plan, base);
        hcp_rebalance_options_init(&options);
        options.expected_steps = 50;
        for (size_t i = 0; i < g.n; i++)
            g.factor[i] = i == 0 || base[0] == 0 ? fixture_real(&seed, 1.5, 3) : 1;
        for (int k = 0; k < 3; k++) {
            hcp_rebalance_verdict v;
            hcp_rebalance *r;

            options.move_ms = k == 0 ? 0 : cost * (k == 1 ? 0.99 : 1.01);
            r = start(&g, &options);
            for (int t = 0; t < 2; t++)
                run_step(&g, r, base, NOISE_EVEN, 0, -1, &seed, &v);
            if (k == 0 && v.decision == HCP_REBALANCE_MOVE) {
                const hcp_plan *from = hcp_rebalance_plan(r),
                               *to = hcp_rebalance_proposal(r);
                double most = 0;

                for (size_t i = 0; i < g.n; i++) {
                    double a = (double)from->ranks[i].tokens;
                    double b = (double)to->ranks[i].tokens, off;
                    hcp_rebalance_rank rank = {.size = sizeof rank};

                    hcp_rebalance_rank_state(r, i, &rank);
                    off = b > 0 ? fabs(a - b) / fmax(a, b) *
                                          (to->interval_hi_ms / to->makespan_ms - 1) +
                                      1.645 * rank.error
                                : 0;
                    most = fmax(most, off);
                }
                most = fmax(most * v.move_to_ms, 0.01 * v.stay_ms);
                if (fabs(v.margin_ms - most) > 1e-12 * most)
                    fail_msg("case %d: margin %.17g, expected %.17g", c, v.margin_ms,
                             most);
                cost = 50 * (v.stay_ms - v.move_to_ms - v.margin_ms);
                counted++;
            } else if (k > 0 && (v.decision == HCP_REBALANCE_MOVE) != (k == 1)) {
                fail_msg("case %d: %s (%s) at %.17g of %.17g ms", c,
                         hcp_rebalance_decision_name(v.decision),
                         hcp_rebalance_reason_name(v.reason), options.move_ms, cost);
            }
            hcp_rebalance_free(r);
            if (cost <= 0)
                break;
        }
        group_free(&g);
    }
    print_message("# %d margins\n", counted);
    assert_true(counted > cases / 3);
}

/* ---- the rest ---- */

static void what_is_refused(void **state)
{
    uint64_t seed = 911;
    struct group g;
    hcp_rebalance *r = NULL, *other;
    hcp_rebalance_options o;
    hcp_rebalance_verdict v = {.size = sizeof v};
    hcp_rebalance_rank info = {.size = sizeof info};
    hcp_question q;
    double base[GROUP_MOST] = {0};
    size_t n;
    char *json;

    (void)state;
    group_make(&g, 4, 1, HCP_LAYOUT_ZIGZAG, 16384, 0.02, &seed);
    group_base(&g, &g.plan.plan, base);
    hcp_rebalance_options_init(&o);
    assert_int_equal(hcp_rebalance_create(g.ring, &g.question, &g.plan.plan, &o, text,
                                          sizeof text, NULL),
                     HCP_STATUS_INVALID);
    assert_int_equal(
        hcp_rebalance_create(NULL, &g.question, &g.plan.plan, &o, text, sizeof text, &r),
        HCP_STATUS_INVALID);
    for (int i = 0; i < 8; i++) {
        hcp_rebalance_options_init(&o);
        q = g.question;
        if (i == 0)
            o.false_alarms = 0;
        else if (i == 1)
            o.noise = NAN;
        else if (i == 2)
            o.min_gain = -1;
        else if (i == 3)
            o.move_ms = INFINITY;
        else if (i == 4)
            o.expected_steps = -1;
        else if (i == 5)
            q.order = HCP_ORDER_FREE;
        else if (i == 6)
            q.joint = 1;
        else
            q.seq_len++;
        assert_int_equal(
            hcp_rebalance_create(g.ring, &q, &g.plan.plan, &o, text, sizeof text, &r),
            HCP_STATUS_INVALID);
        assert_null(r);
    }
    r = start(&g, NULL);
    assert_int_equal(hcp_rebalance_observe(r, 4, 1, 0), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_observe(r, 0, 1, -1), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_observe(r, 0, base[0], 0), HCP_STATUS_OK);
    assert_int_equal(hcp_rebalance_observe(r, 0, base[0], 0), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_to_json(r, NULL, 0, &n), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_restore(r, 1, 1), HCP_STATUS_INVALID); /* it runs */
    assert_int_equal(hcp_rebalance_recompute(r, NULL, 0, &n), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_rank_state(r, 4, &info), HCP_STATUS_INVALID);
    for (size_t i = 1; i < 4; i++)
        hcp_rebalance_observe(r, i, base[i], 0);
    v.size = 0;
    assert_int_equal(hcp_rebalance_step(r, -1, text, sizeof text, &v),
                     HCP_STATUS_INVALID);
    v.size = sizeof v;
    assert_int_equal(hcp_rebalance_step(r, -1, text, sizeof text, &v), HCP_STATUS_OK);
    assert_int_equal(v.step, 0);

    /* States: none that is damaged, or another's. */
    json = text_of(r);
    n = strlen(json);
    for (size_t i = 0; i < n; i += 7) {
        uint64_t before = hcp_rebalance_fingerprint(r);
        char was = json[i];

        json[i] = was == '9' ? 'x' : '9';
        if (hcp_rebalance_from_json(r, json, n, text, sizeof text))
            assert_int_equal(hcp_rebalance_fingerprint(r), before);
        json[i] = was;
        assert_int_not_equal(hcp_rebalance_from_json(r, json, i, text, sizeof text),
                             HCP_STATUS_OK);
    }
    hcp_rebalance_options_init(&o);
    o.move_ms = 3;
    other = start(&g, &o);
    assert_int_equal(hcp_rebalance_from_json(other, json, n, text, sizeof text),
                     HCP_STATUS_FORMAT);
    assert_non_null(strstr(text, "another ring, question or options"));
    free(json);
    hcp_rebalance_free(other);
    hcp_rebalance_free(r);
    hcp_rebalance_free(NULL);
    group_free(&g);
}

/* One that joins has begun with another plan, whose models have other error bars: it goes
 * by those of the others all the same. */
static void joins_with_another_plan(void **state)
{
    uint64_t seed = 913;
    struct group g;
    hcp_rebalance *r[2] = {NULL, NULL};
    hcp_rebalance_verdict v[2];
    char *json;

    (void)state;
    group_make(&g, 2, 1, HCP_LAYOUT_ZIGZAG, 16384, 0.001, &seed);
    hcp_ring_free(g.ring);
    hcp_models_free(g.models);
    g.kinds[1].error = 0.2;
    g.models = fixture_models(g.kinds, 2);
    g.ring = fixture_ring(g.models, g.kinds, (int[]){0, 1}, NULL, 2);
    for (int k = 0; k < 2; k++) {
        const int64_t tokens[2] = {k ? 0 : 16384, k ? 16384 : 0};

        assert_int_equal(hcp_plan_evaluate(g.ring, &g.question, tokens, g.plan.workspace,
                                           g.plan.workspace_bytes, text, sizeof text,
                                           &g.plan.plan),
                         HCP_STATUS_OK);
        r[k] = start(&g, NULL);
    }
    json = text_of(r[0]);
    assert_int_not_equal(hcp_rebalance_fingerprint(r[0]), hcp_rebalance_fingerprint(r[1]));
    if (hcp_rebalance_from_json(r[1], json, strlen(json), text, sizeof text))
        fail_msg("%s", text);
    free(json);
    for (int t = 0; t < 8; t++) {
        double ms = 5 * (1 + group_noise(NOISE_NORMAL, 0.005, &seed));

        assert_int_equal(hcp_rebalance_fingerprint(r[0]),
                         hcp_rebalance_fingerprint(r[1]));
        for (int k = 0; k < 2; k++) {
            assert_int_equal(hcp_rebalance_observe(r[k], 0, t < 4 ? ms : 2 * ms, 5),
                             HCP_STATUS_OK);
            memset(&v[k], 0, sizeof v[k]);
            v[k].size = sizeof v[k];
            assert_int_equal(hcp_rebalance_step(r[k], -1, text, sizeof text, &v[k]),
                             HCP_STATUS_OK);
        }
        assert_int_equal(memcmp(&v[0], &v[1], sizeof v[0]), 0);
    }
    for (int k = 0; k < 2; k++)
        hcp_rebalance_free(r[k]);
    group_free(&g);
}

/* Whatever a proposal depends on: a state of objects that differ in it is not read, and
 * their fingerprints differ. */
static void states_of_others(void **state)
{
    uint64_t seed = 914;
    struct group g;
    hcp_link links[2] = {{.from = 0, .to = 1, .gbps = 10}, {.from = 1, .to = 0, .gbps = 10}};
    double shared[1] = {20};
    hcp_rebalance *first = NULL;
    char *json = NULL;

    (void)state;
    group_make(&g, 2, 1, HCP_LAYOUT_ZIGZAG, 16384, 0.02, &seed);
    g.question.links = links;
    g.question.n_links = 2;
    g.question.shared_gbps = shared;
    g.question.n_shared = 1;
    for (int i = 0; i < 11; i++) {
        hcp_question was = g.question;
        hcp_ring *ring = g.ring;
        hcp_rebalance *r;
        hcp_rank ranks[2];

        for (size_t k = 0; k < 2; k++) {
            hcp_rank_init(&ranks[k]);
            memcpy(ranks[k].device, g.names[k], sizeof g.names[k]);
        }
        g.question.extrapolate = i != 2;
        g.question.activation_bytes = i == 3 ? 100 : 0;
        g.question.stripes = i == 4 ? 4 : 8;
        links[1].gbps = i == 5 ? 11 : 10;
        links[0].overhead_us = i == 6 ? 3 : 0;
        shared[0] = i == 7 ? 30 : 20;
        ranks[1].max_tokens = i == 8 ? 16000 : 0;
        ranks[0].max_bytes = i == 9 ? (int64_t)1 << 40 : 0;
        ranks[0].linear_error = i == 10 ? 0.5 : 0;
        g.ring = fixture_ring_of(g.models, ranks, 2);
        r = start(&g, NULL);
        if (i == 0) {
            first = r;
            json = text_of(r);
        } else {
            hcp_status status =
                hcp_rebalance_from_json(r, json, strlen(json), text, sizeof text);

            if (status != (i == 1 ? HCP_STATUS_OK : HCP_STATUS_FORMAT) ||
                (hcp_rebalance_fingerprint(r) == hcp_rebalance_fingerprint(first)) !=
                    (i == 1))
                fail_msg("case %d: %s", i, hcp_strerror(status));
            hcp_rebalance_free(r);
        }
        hcp_ring_free(i == 0 ? ring : g.ring);
        g.ring = i == 0 ? g.ring : ring;
        g.question = was;
    }
    free(json);
    hcp_rebalance_free(first);
    group_free(&g);
}

/* Steps that are no passes of the plan: what they were to take comes with the time. */
static void other_passes(void **state)
{
    uint64_t seed = 912;
    struct group g;
    hcp_rebalance *r;
    hcp_rebalance_verdict v = {.size = sizeof v};
    hcp_rebalance_rank info = {.size = sizeof info};

    (void)state;
    group_make(&g, 2, 1, HCP_LAYOUT_ZIGZAG, 16384, 0.02, &seed);
    r = start(&g, NULL);
    for (int t = 0; t < 10; t++) {
        double base = 3 + t; /* each chunk of a prompt takes longer */

        hcp_rebalance_observe(r, 0, base, base);
        hcp_rebalance_observe(r, 1, (t < 6 ? 1 : 2) * base, base);
        hcp_rebalance_step(r, -1, text, sizeof text, &v);
        assert_int_equal(v.decision, t == 7 ? HCP_REBALANCE_MOVE : HCP_REBALANCE_KEEP);
        if (t == 7)
            break;
    }
    hcp_rebalance_rank_state(r, 1, &info);
    assert_true(fabs(info.time_scale - 2) < 1e-12 && info.plan_scale == 1);
    assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_OK);
    hcp_rebalance_rank_state(r, 1, &info);
    assert_true(fabs(info.plan_scale - 2) < 1e-12);
    hcp_rebalance_free(r);
    group_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_trace),
        cmocka_unit_test(ramp_trace),
        cmocka_unit_test(noise_moves_nothing),
        cmocka_unit_test(rate_of_false_alarms),
        cmocka_unit_test(outliers_move_nothing),
        cmocka_unit_test(fast_swings_move_nothing),
        cmocka_unit_test(learns_to_wait),
        cmocka_unit_test(failures),
        cmocka_unit_test(stuck),
        cmocka_unit_test(same_everywhere),
        cmocka_unit_test(exhaustive),
        cmocka_unit_test(cost_of_moving),
        cmocka_unit_test(cost_in_decode),
        cmocka_unit_test(margins),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(joins_with_another_plan),
        cmocka_unit_test(states_of_others),
        cmocka_unit_test(other_passes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
