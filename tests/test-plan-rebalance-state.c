/* SPDX-License-Identifier: Apache-2.0
 *
 * Rebalancing while a plan runs: all ranks propose the same, states as text, and what is
 * refused.
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

/* ---- all ranks say the same ---- */

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
    assert_int_equal(hcp_rebalance_skip(r, 0), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_skip(r, 4), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_skip(r, 1), HCP_STATUS_OK);
    assert_int_equal(hcp_rebalance_observe(r, 1, base[1], 0), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_to_json(r, NULL, 0, &n), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_restore(r, 1, 1), HCP_STATUS_INVALID); /* it runs */
    assert_int_equal(hcp_rebalance_recompute(r, NULL, 0, &n), HCP_STATUS_INVALID);
    assert_int_equal(hcp_rebalance_rank_state(r, 4, &info), HCP_STATUS_INVALID);
    for (size_t i = 2; i < 4; i++)
        hcp_rebalance_observe(r, i, base[i], 0);
    v.size = 0;
    assert_int_equal(hcp_rebalance_step(r, -1, text, sizeof text, &v),
                     HCP_STATUS_INVALID);
    v.size = sizeof v;
    assert_int_equal(hcp_rebalance_step(r, -1, text, sizeof text, &v), HCP_STATUS_OK);
    assert_int_equal(v.step, 0);
    assert_int_equal(v.failed, 0);

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
    assert_int_not_equal(hcp_rebalance_fingerprint(r[0]),
                         hcp_rebalance_fingerprint(r[1]));
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
    hcp_link links[2] = {{.from = 0, .to = 1, .gbps = 10},
                         {.from = 1, .to = 0, .gbps = 10}};
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
        cmocka_unit_test(same_everywhere),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(joins_with_another_plan),
        cmocka_unit_test(states_of_others),
        cmocka_unit_test(other_passes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
