/* SPDX-License-Identifier: Apache-2.0
 *
 * What plans say of the order of the ring and of links between pairs: the same as the
 * objective as plan-reference.c states it; slow links are left out; what is refused.
 */
#include "tests/order-fixture.h"

/* Every plan's time is the objective's, it simulates to the same, and travels as text. */
static void plans_are_consistent(void **state)
{
    int problems = (int)(400 * fixture_scale());
    uint64_t seed = 14;

    (void)state;
    for (int i = 0; i < problems; i++) {
        static hcp_step steps[MAX * MAX];
        struct order_case c;
        struct fixture_plan p, again;
        size_t n = (size_t)fixture_range(&seed, 1, 12), n_steps, needed;
        char text[512], *json, *json_again;
        double end = 0, busy[MAX] = {0};

        make_case(&c, &seed, n, fixture_range(&seed, 1, 100), i % 2);
        if (i / 2 % 2)
            add_linear(&c, &seed);
        if (i / 4 % 2)
            add_memory(&c, &seed);
        c.question.barrier = fixture_range(&seed, 0, 5) == 0;
        c.question.sub_blocks = fixture_range(&seed, 0, 2) ? 1 : 3;
        c.question.layout = (hcp_layout)fixture_range(&seed, 0, HCP_LAYOUT_STRIPED);
        c.question.order =
            n <= 5 ? (hcp_order)fixture_range(&seed, 0, 2) : HCP_ORDER_GIVEN;
        c.question.strategy = (hcp_strategy)fixture_range(&seed, 0, HCP_STRATEGY_BEST);
        if (c.question.strategy == HCP_STRATEGY_LUT)
            c.question.strategy = HCP_STRATEGY_BEST;
        fixture_places_init(&p, n);
        fixture_places_init(&again, n);
        if (fixture_split(c.ring, &c.question, &p, text, sizeof text)) {
            if (!c.ring->memory || !strstr(text, "caps are short by"))
                fail_msg("problem %d: %s", i, text);
            goto next;
        }
        check_plan(&c, &p.plan, i);
        assert_true(p.plan.fingerprint == hcp_plan_fingerprint(&p.plan));
        if (hcp_plan_simulate(c.ring, &p.plan, 1, p.workspace, p.workspace_bytes, text,
                              sizeof text, steps, MAX * MAX, &n_steps))
            fail_msg("problem %d: %s", i, text);
        for (size_t k = 0; k < n_steps; k++) {
            hcp_plan_rank *rank = &p.plan.ranks[steps[k].rank];

            end = fmax(end, steps[k].fin_ms + rank->linear_after_ms);
            busy[steps[k].rank] += steps[k].busy_ms;
        }
        if (!c.question.barrier)
            assert_true(end == p.plan.makespan_ms);
        for (size_t r = 0; r < n; r++) {
            busy[r] += p.plan.ranks[r].linear_before_ms + p.plan.ranks[r].linear_after_ms;
            assert_float_equal(busy[r], p.plan.ranks[r].compute_ms, 1e-9 * busy[r]);
            assert_true(p.plan.ranks[r].compute_ms <=
                        p.plan.ranks[r].predicted_ms * (1 + 1e-12));
        }
        hcp_plan_to_json(&p.plan, NULL, 0, &needed);
        json = malloc(needed + 1);
        json_again = malloc(needed + 1);
        hcp_plan_to_json(&p.plan, json, needed + 1, NULL);
        if (hcp_plan_from_json(json, needed, text, sizeof text, &again.plan))
            fail_msg("problem %d: %s", i, text);
        assert_int_equal(hcp_plan_to_json(&again.plan, json_again, needed + 1, NULL), 0);
        assert_string_equal(json, json_again);
        assert_true(again.plan.fingerprint == hcp_plan_fingerprint(&again.plan));
        if (p.plan.order || p.plan.has_links) { /* nowhere to put it */
            hcp_place *places = again.plan.places;

            again.plan.places = NULL;
            assert_int_equal(
                hcp_plan_from_json(json, needed, text, sizeof text, &again.plan),
                HCP_STATUS_SPACE);
            again.plan.places = places;
        }
        free(json);
        free(json_again);
    next:
        fixture_places_free(&p);
        fixture_places_free(&again);
        free_case(&c);
    }
}

/* A ring of contiguous shares never sends from its last rank to its first: that is where
 * the one slow link of a chain belongs. */
static void slow_link_is_avoided(void **state)
{
    static const struct fixture same[] = {
        {.device = "d0", .a = 2e-8, .f = 0.01, .tile = 128, .poly = 1, .error = 0.01}};
    hcp_models *models = fixture_models(same, 1);
    int which[4] = {0};
    hcp_ring *ring = fixture_ring(models, same, which, NULL, 4);
    hcp_link links[2] = {{.from = 1, .to = 2, .gbps = 0.2, .alpha_us = 10},
                         {.from = 2, .to = 1, .gbps = 0.2, .alpha_us = 10}};
    hcp_question q;
    struct fixture_plan p;
    char text[512];
    int32_t place[4];

    (void)state;
    hcp_question_init(&q);
    q.seq_len = 16384;
    q.causal = 1;
    q.layout = HCP_LAYOUT_CONTIGUOUS;
    q.link_gbps = 200;
    q.links = links;
    q.n_links = 2;
    q.order = HCP_ORDER_FREE;
    q.extrapolate = 1;
    fixture_places_init(&p, 4);
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), 0);
    for (int32_t i = 0; i < 4; i++)
        place[p.plan.places[i].rank] = i;
    assert_int_not_equal(place[2], place[1] + 1);
    assert_int_not_equal(place[1], place[2] + 1);
    assert_true(p.plan.given_order_ms > 1.2 * p.plan.any_order_ms);
    fixture_places_free(&p);
    hcp_ring_free(ring);
    fixture_free(models);
}

/* Contiguous shares under a causal mask: nothing is sent from the last rank to the first,
 * so what that link is like costs nothing, and no rank receives what comes after it in
 * the sequence. In the zigzag layout it does. */
static void nothing_is_sent_in_vain(void **state)
{
    int problems = (int)(200 * fixture_scale()), slower = 0;
    uint64_t seed = 16;

    (void)state;
    for (int i = 0; i < problems; i++) {
        static hcp_step steps[MAX * MAX];
        struct order_case c;
        struct fixture_plan p;
        size_t n = (size_t)fixture_range(&seed, 2, 8), n_steps;
        int64_t tokens[MAX];
        double ms[2][2];
        char text[512] = "";

        make_case(&c, &seed, n, 60, 0);
        memset(c.caps, 0, sizeof c.caps);
        hcp_ring_free(c.ring);
        c.ring = ring_of(&c);
        c.question.causal = 1;
        c.question.link_gbps = 50;
        c.question.order = HCP_ORDER_GIVEN;
        c.question.n_shared = 0;
        c.question.links = c.links;
        c.question.seq_len = 0;
        for (size_t r = 0; r < n; r++)
            c.question.seq_len += tokens[r] = fixture_range(&seed, 100, 3000);
        fixture_places_init(&p, n);
        for (int zigzag = 0; zigzag < 2; zigzag++)
            for (int slow = 0; slow < 2; slow++) {
                c.question.layout = zigzag ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS;
                c.question.n_links = 1;
                c.links[0] = (hcp_link){.from = (int32_t)n - 1, .to = 0, .gbps = 50};
                if (slow)
                    c.links[0].alpha_us = 1e6;
                assert_int_equal(hcp_plan_evaluate(c.ring, &c.question, tokens,
                                                   p.workspace, p.workspace_bytes, text,
                                                   sizeof text, &p.plan),
                                 0);
                ms[zigzag][slow] = p.plan.makespan_ms;
                assert_int_equal(hcp_plan_simulate(c.ring, &p.plan, 1, p.workspace,
                                                   p.workspace_bytes, text, sizeof text,
                                                   steps, MAX * MAX, &n_steps),
                                 0);
                for (size_t k = 0; k < n_steps; k++)
                    assert_int_equal(isnan(steps[k].ready_ms),
                                     !zigzag && steps[k].block_of > steps[k].rank);
            }
        assert_true(ms[0][0] == ms[0][1]);
        slower += ms[1][1] > 100 * ms[1][0];
        fixture_places_free(&p);
        free_case(&c);
    }
    assert_true(slower > problems / 2);
}

/* Links without need of a place, a wrong order of them, numbers out of range. */
static void bad_questions_are_refused(void **state)
{
    static const struct fixture same[] = {
        {.device = "d0", .a = 2e-8, .f = 0.01, .tile = 128, .poly = 1, .error = 0.01}};
    hcp_models *models = fixture_models(same, 1);
    int which[3] = {0};
    hcp_ring *ring = fixture_ring(models, same, which, NULL, 3);
    const hcp_link good[2] = {{.from = 0, .to = 1, .gbps = 10},
                              {.from = 1, .to = 0, .gbps = 10, .shared = {1, 0}}};
    const double shared = 20, nothing = 0;
    hcp_link bad[2];
    hcp_question q;
    struct fixture_plan p;
    char text[512];

    (void)state;
    fixture_places_init(&p, 3);
    for (int i = 0; i < 11; i++) {
        hcp_question_init(&q);
        memcpy(bad, good, sizeof bad);
        q.seq_len = 4096;
        q.links = bad;
        q.n_links = 2;
        q.shared_gbps = &shared;
        q.n_shared = 1;
        if (i == 1)
            bad[1] = good[0];
        else if (i == 2)
            bad[1].from = 3;
        else if (i == 3)
            bad[0].to = 0;
        else if (i == 4)
            bad[0].gbps = -1;
        else if (i == 5)
            bad[0].slowdown = 0.5;
        else if (i == 6)
            bad[0].shared[1] = 2;
        else if (i == 7)
            bad[0].alpha_us = NAN;
        else if (i == 8)
            q.shared_gbps = &nothing;
        else if (i == 9)
            q.order = (hcp_order)3;
        else if (i == 10)
            q.links = NULL;
        assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text),
                         i == 0 ? HCP_STATUS_OK : HCP_STATUS_INVALID);
    }
    hcp_question_init(&q);
    q.seq_len = 4096;
    q.order = HCP_ORDER_FIXED;
    free(p.plan.places);
    p.plan.places = NULL;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_SPACE);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    fixture_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_consistent),
        cmocka_unit_test(slow_link_is_avoided),
        cmocka_unit_test(nothing_is_sent_in_vain),
        cmocka_unit_test(bad_questions_are_refused),
    };

    return cmocka_run_group_tests_name("plan-order-links", tests, NULL, NULL);
}
