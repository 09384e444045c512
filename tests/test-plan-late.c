/* SPDX-License-Identifier: Apache-2.0
 *
 * KV that comes late travels late (planner/late.c, ring-late.c) against plain
 * enumeration: every order of the blocks on every link, by the objective as
 * plan-reference.c states it. HCP_TEST_SCALE multiplies the number of problems.
 */
#include "tests/late-fixture.h"

static void evaluate(const struct late_case *c, struct fixture_plan *p, int number)
{
    char text[512] = "";

    if (hcp_plan_evaluate(c->ring, &c->question, c->tokens, p->workspace,
                          p->workspace_bytes, text, sizeof text, &p->plan))
        fail_msg("problem %d: %s", number, text);
}

/* ---- every order of every link ---- */

struct every {
    const struct late_case *c;
    struct reference_orders orders;
    size_t n;
    double best, in_line; /* of all; of those in which no block passes another */
};

/* Whether what comes into each rank leaves it in the same order. */
static int none_passes(const struct every *e)
{
    for (size_t i = 0; i < e->n; i++) {
        size_t to = (i + 1) % e->n;
        int at = 0;

        for (int k = 0; k < e->orders.n_into[to]; k++) {
            int of = e->orders.into[to][k];

            if (of == (int)i)
                continue;
            while (at < e->orders.n_into[i] && e->orders.into[i][at] != of)
                at++;
            if (at == e->orders.n_into[i])
                return 0;
        }
    }
    return 1;
}

static void every_order(struct every *e, size_t i, int k)
{
    int *into = e->orders.into[i];

    if (i == e->n) {
        double ms = reference_in_order(e->c->ring, HCP_MODEL_BEST, &e->c->question,
                                       e->c->tokens, &e->orders);

        e->best = fmin(e->best, ms);
        if (ms < e->in_line && none_passes(e))
            e->in_line = ms;
        return;
    }
    if (k >= e->orders.n_into[i]) {
        every_order(e, i + 1, 0);
        return;
    }
    for (int x = k; x < e->orders.n_into[i]; x++) {
        int swap = into[k];

        into[k] = into[x];
        into[x] = swap;
        every_order(e, i, k + 1);
        into[x] = into[k];
        into[k] = swap;
    }
}

/* The best of all orders, and of those in which no block passes another. */
static double best_order(const struct late_case *c, double *in_line)
{
    static const int32_t none[MAX];
    struct every e = {.c = c, .n = c->n, .best = INFINITY, .in_line = INFINITY};

    reference_slots(c->ring, &c->question, c->tokens, none, &e.orders);
    every_order(&e, 0, 0);
    *in_line = e.in_line;
    return e.best;
}

/* Blocks keep their order on the way: the plan's is the best of all such orders, and
 * nearly always of all orders there are. */
static void orders(int buffers, uint64_t seed)
{
    int problems = (int)(400 * fixture_scale()), gained = 0, equal = 0, in_line = 0;
    double most = 1, worst = 1;

    for (int i = 0; i < problems; i++) {
        struct late_case c;
        struct fixture_plan p;
        size_t n = (size_t)fixture_range(&seed, 3, 4);
        double best, line;

        make_case(&c, &seed, n, 40, i % 3);
        c.question.buffers = buffers;
        fixture_places_init(&p, n);
        evaluate(&c, &p, i);
        check_plan(&c, &p, i);
        best = best_order(&c, &line);
        if (buffers == 0 && fabs(p.plan.makespan_ms - line) > 1e-9 * line)
            fail_msg("problem %d: %.12g, best order %.12g", i, p.plan.makespan_ms, line);
        in_line += p.plan.makespan_ms <= line * (1 + 1e-9);
        equal += p.plan.makespan_ms <= best * (1 + 1e-9);
        gained += p.plan.in_turn_ms > 1.01 * p.plan.makespan_ms;
        most = fmax(most, p.plan.in_turn_ms / p.plan.makespan_ms);
        worst = fmax(worst, p.plan.makespan_ms / best);
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message(
        "# buffers %d, %d problems: %d are the best order in which no block "
        "passes another, %d of all orders (worst %.4f); over 1 %% gained in %d, "
        "at most %.3fx\n",
        buffers, problems, in_line, equal, worst, gained, most);
    assert_true(in_line >= problems * 99 / 100 && equal >= problems * 98 / 100);
    assert_true(gained > problems / 20);
}

static void equals_every_order(void **state)
{
    (void)state;
    orders(0, 21);
}

static void with_two_buffers(void **state)
{
    (void)state;
    orders(2, 22);
}

/* One rank of four that is late by linear work, others kept from taking its tokens by
 * their caps, links that are no bottleneck (the sequence's KV in 10 % of its attention on
 * one rank and less): what waiting it costs in turn, against what no order can avoid. */
static void hides_what_can_be_hidden(void **state)
{
    int problems = (int)(400 * fixture_scale()), n = 0, most_of_it = 0;
    double hidden = 0, can_be = 0, least = 1;
    uint64_t seed = 23;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct late_case c;
        struct fixture_plan p;
        double part;

        make_case(&c, &seed, 4, 200, 0);
        c.question.link_gbps *= 5;
        c.question.buffers = i % 2 ? 2 : 0;
        fixture_places_init(&p, 4);
        evaluate(&c, &p, i);
        check_plan(&c, &p, i);
        if (p.plan.in_turn_ms > 1.02 * p.plan.late_bound_ms) {
            part = (p.plan.in_turn_ms - p.plan.makespan_ms) /
                   (p.plan.in_turn_ms - p.plan.late_bound_ms);
            hidden += part;
            can_be += 1;
            least = fmin(least, part);
            most_of_it += part >= 0.9;
            n++;
        }
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message(
        "# %d of %d problems wait over 2 %% more than they must: %.1f %% of that "
        "is hidden, in the worst %.1f %%, over 90 %% in %d\n",
        n, problems, 100 * hidden / can_be, 100 * least, most_of_it);
    assert_true(n >= problems / 16);
    assert_true(hidden >= 0.9 * can_be && most_of_it >= n * 9 / 10);
}

/* Above four ranks some orders are looked at. */
static void large_rings_are_near(void **state)
{
    int problems = (int)(200 * fixture_scale()), near = 0;
    double worst = 1;
    uint64_t seed = 24;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct late_case c;
        struct fixture_plan p;
        int32_t slots[MAX] = {0};
        size_t n = i % 40 ? 5 : 6, k = 0;
        double best = INFINITY;

        make_case(&c, &seed, n, 60, 0);
        c.question.buffers = i % 2 ? 2 : 0;
        fixture_places_init(&p, n);
        evaluate(&c, &p, i);
        check_plan(&c, &p, i);
        do {
            struct reference_orders order;

            reference_slots(c.ring, &c.question, c.tokens, slots, &order);
            best = fmin(best, reference_in_order(c.ring, HCP_MODEL_BEST, &c.question,
                                                 c.tokens, &order));
            for (k = 0; k < n && slots[k] == (int32_t)n - 1; k++)
                slots[k] = 0;
            if (k < n)
                slots[k]++;
        } while (k < n);
        near += p.plan.makespan_ms <= 1.01 * best;
        worst = fmax(worst, p.plan.makespan_ms / best);
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message("# 5 and 6 ranks: %d of %d within 1 %% of all slots, worst %.3f\n",
                  near, problems, worst);
    assert_true(near >= problems * 95 / 100);
}

/* Any slots, few buffers: nobody waits for ever; the text of a plan is the plan. */
static void any_slots_end(void **state)
{
    static hcp_step steps[MAX * MAX];
    int problems = (int)(1000 * fixture_scale());
    uint64_t seed = 26;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct late_case c;
        struct fixture_plan p, again;
        size_t n = (size_t)fixture_range(&seed, 1, MAX), n_steps, needed;
        double in_order, end = 0;
        struct reference_orders order;
        int32_t slots[MAX];
        char text[512] = "", *json;

        make_case(&c, &seed, n, 64, i % 3);
        c.question.buffers = (int32_t)fixture_range(&seed, 1, 4);
        c.question.late_kv = 0;
        fixture_places_init(&p, n);
        fixture_places_init(&again, n);
        evaluate(&c, &p, i);
        p.plan.late_kv = 1;
        for (size_t r = 0; r < n; r++)
            p.plan.ranks[r].late_slots = slots[r] =
                (int32_t)(fixture_range(&seed, 0, 1) * fixture_range(&seed, 0, 2 * MAX));
        if (hcp_plan_simulate(c.ring, &p.plan, 1, p.workspace, p.workspace_bytes, text,
                              sizeof text, steps, MAX * MAX, &n_steps))
            fail_msg("problem %d: %s", i, text);
        for (size_t k = 0; k < n_steps; k++)
            end =
                fmax(end, steps[k].fin_ms + p.plan.ranks[steps[k].rank].linear_after_ms);
        reference_slots(c.ring, &c.question, c.tokens, slots, &order);
        in_order =
            reference_in_order(c.ring, HCP_MODEL_BEST, &c.question, c.tokens, &order);
        assert_float_equal(end, in_order, 1e-9 * in_order);
        p.plan.in_turn_ms = 2;
        p.plan.late_bound_ms = 1;
        p.plan.fingerprint = hcp_plan_fingerprint(&p.plan);
        hcp_plan_to_json(&p.plan, NULL, 0, &needed);
        json = malloc(needed + 1);
        hcp_plan_to_json(&p.plan, json, needed + 1, NULL);
        if (hcp_plan_from_json(json, needed, text, sizeof text, &again.plan))
            fail_msg("problem %d: %s", i, text);
        assert_int_equal(again.plan.late_kv, 1);
        assert_true(again.plan.in_turn_ms == 2 && again.plan.late_bound_ms == 1);
        for (size_t r = 0; r < n; r++)
            assert_int_equal(again.plan.ranks[r].late_slots, slots[r]);
        assert_true(again.plan.fingerprint == hcp_plan_fingerprint(&again.plan));
        again.plan.ranks[0].late_slots++;
        assert_true(again.plan.fingerprint != hcp_plan_fingerprint(&again.plan));
        free(json);
        fixture_places_free(&p);
        fixture_places_free(&again);
        free_case(&c);
    }
}

/* All slots 0 and nobody late: as in turn. */
static void in_turn_is_in_turn(void **state)
{
    int problems = (int)(200 * fixture_scale());
    uint64_t seed = 27;

    (void)state;
    for (int i = 0; i < problems; i++) {
        static hcp_step steps[2][MAX * MAX];
        struct late_case c;
        struct fixture_plan p;
        size_t n = (size_t)fixture_range(&seed, 1, 9), n_steps;
        char text[512] = "";

        make_case(&c, &seed, n, 64, 0);
        for (size_t r = 0; r < n; r++) {
            c.ring->ranks[r].spec.linear_before_us = 0;
            c.ring->ranks[r].spec.linear_after_us = 0;
        }
        c.question.buffers = (int32_t)fixture_range(&seed, 0, 3);
        c.question.late_kv = 0;
        fixture_places_init(&p, n);
        evaluate(&c, &p, i);
        for (int late = 0; late < 2; late++) {
            p.plan.late_kv = late;
            assert_int_equal(hcp_plan_simulate(c.ring, &p.plan, 1, p.workspace,
                                               p.workspace_bytes, text, sizeof text,
                                               steps[late], MAX * MAX, &n_steps),
                             0);
        }
        for (size_t k = 0; k < n_steps; k++) {
            assert_int_equal(steps[0][k].block_of, steps[1][k].block_of);
            assert_true(steps[0][k].fin_ms == steps[1][k].fin_ms);
            assert_true(steps[0][k].busy_ms == steps[1][k].busy_ms);
            assert_true(steps[0][k].ready_ms == steps[1][k].ready_ms ||
                        (isnan(steps[0][k].ready_ms) && isnan(steps[1][k].ready_ms)));
        }
        fixture_places_free(&p);
        free_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_every_order),
        cmocka_unit_test(with_two_buffers),
        cmocka_unit_test(hides_what_can_be_hidden),
        cmocka_unit_test(large_rings_are_near),
        cmocka_unit_test(any_slots_end),
        cmocka_unit_test(in_turn_is_in_turn),
    };

    return cmocka_run_group_tests_name("plan-late", tests, NULL, NULL);
}
