/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of the ring on links that differ, against plain enumeration: every order,
 * every layout, every split into tiles, each by the objective as plan-reference.c states
 * it. HCP_TEST_SCALE multiplies the number of problems.
 */
#include "tests/order-fixture.h"

/* All splits of tiles over ranks r .. n - 1, the rest at any; the least makespan. */
static double split_best(const struct order_case *c, size_t r, int64_t tiles,
                         int64_t tile, int64_t *tokens)
{
    const hcp_question *q = &c->question;
    double best = INFINITY, ms;

    if (r + 1 == c->n) {
        int64_t rest = q->seq_len % tile;

        tokens[r] = tiles * tile;
        for (size_t holder = 0; holder < (rest ? c->n : 1); holder++) {
            int fits = 1;

            tokens[holder] += rest;
            for (size_t i = 0; i < c->n; i++)
                fits &= c->caps[i] == 0 || tokens[i] <= c->caps[i];
            if (fits && in_memory(c, tokens)) {
                ms = reference_makespan(c->ring, HCP_MODEL_BEST, q, tokens);
                best = fmin(best, ms);
            }
            tokens[holder] -= rest;
        }
        return best;
    }
    for (int64_t mine = 0; mine <= tiles; mine++) {
        tokens[r] = mine * tile;
        best = fmin(best, split_best(c, r + 1, tiles - mine, tile, tokens));
    }
    return best;
}

/* Over the layouts a question allows. */
static double layouts_best(struct order_case *c)
{
    int any = c->question.layout == HCP_LAYOUT_AUTO;
    double best = INFINITY;
    int64_t tokens[MAX];

    for (int layout = HCP_LAYOUT_CONTIGUOUS; layout <= HCP_LAYOUT_STRIPED; layout++) {
        struct order_case one = *c;
        int64_t tile;

        if (!any && layout != (int)c->question.layout)
            continue;
        if (any && !c->question.causal && layout != HCP_LAYOUT_CONTIGUOUS)
            continue;
        one.question.layout = (hcp_layout)layout;
        one.question.links = one.question.n_links ? one.links : NULL;
        one.question.shared_gbps = one.shared_gbps;
        tile = reference_tile(c->ring, &one.question);
        best = fmin(best, split_best(&one, 0, c->question.seq_len / tile, tile, tokens));
    }
    return best;
}

/* Over all orders; *given: in the order of the question. */
static double brute_force(const struct order_case *c, double *given)
{
    int32_t order[MAX];
    double best = INFINITY;

    *given = NAN;
    for (size_t i = 0; i < c->n; i++)
        order[i] = (int32_t)i;
    do {
        struct order_case in_order;
        double ms;

        reorder(c, order, &in_order);
        ms = layouts_best(&in_order);
        hcp_ring_free(in_order.ring);
        if (isnan(*given))
            *given = ms;
        best = fmin(best, ms);
    } while (fixture_next_order(order, c->n));
    return best;
}

static int same_ms(double ms, double want)
{
    return isinf(want) ? isnan(ms) : fabs(ms - want) <= 1e-9 * want;
}

static void equals_brute_force(void **state)
{
    int problems = (int)(400 * fixture_scale()), gained = 0, with_links = 0, spread = 0;
    int none = 0, only_reordered = 0;
    uint64_t seed = 11;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct order_case c;
        struct fixture_plan p;
        size_t n = (size_t)fixture_range(&seed, 2, 3);
        double best, given;
        hcp_status status;
        char text[512];

        make_case(&c, &seed, n, fixture_range(&seed, 1, 7), i % 2);
        if (i / 2 % 2)
            add_linear(&c, &seed);
        if (i / 4 % 2)
            add_memory(&c, &seed);
        c.question.barrier = fixture_range(&seed, 0, 7) == 0;
        c.question.layout = (hcp_layout)fixture_range(&seed, 0, HCP_LAYOUT_STRIPED);
        fixture_places_init(&p, n);
        status = fixture_split(c.ring, &c.question, &p, text, sizeof text);
        best = brute_force(&c, &given);
        if (isinf(best)) {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            none++;
            goto next;
        }
        if (status)
            fail_msg("problem %d: %s", i, text);
        check_plan(&c, &p.plan, i);
        if (!same_ms(p.plan.makespan_ms, best) || !same_ms(p.plan.any_order_ms, best) ||
            !same_ms(p.plan.given_order_ms, given))
            fail_msg("problem %d: %.12g (given order %.12g), brute force %.12g (%.12g)",
                     i, p.plan.makespan_ms, p.plan.given_order_ms, best, given);
        spread += p.plan.ranks[0].tokens > 0 && p.plan.ranks[1].tokens > 0;
        gained += given > 1.01 * best;
        only_reordered += isinf(given);
        with_links += c.question.n_links > 0;
        /* Kept in the caller's order, it says the same of both. */
        c.question.order = HCP_ORDER_FIXED;
        status = fixture_split(c.ring, &c.question, &p, text, sizeof text);
        if (isinf(given)) {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            goto next;
        }
        assert_int_equal(status, HCP_STATUS_OK);
        check_plan(&c, &p.plan, i);
        assert_true(same_ms(p.plan.makespan_ms, given));
        assert_true(same_ms(p.plan.any_order_ms, best));
        for (size_t r = 0; r < n; r++)
            assert_int_equal(p.plan.places[r].rank, r);
    next:
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message("# %d problems, %d with links, %d use ranks 0 and 1, reordering gains "
                  "over 1 %% in %d; %d infeasible, %d but for another order\n",
                  problems, with_links, spread, gained, none, only_reordered);
    assert_true(gained > problems / 10 && with_links > problems / 2 && none > 0);
}

static void four_contiguous(void **state)
{
    int problems = (int)(200 * fixture_scale()), near = 0;
    double worst = 1;
    uint64_t seed = 12;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct order_case c;
        struct fixture_plan p;
        int64_t tokens[MAX];
        double best;
        char text[512];

        make_case(&c, &seed, 4, fixture_range(&seed, 8, i % 20 ? 20 : 40), i % 2);
        c.question.causal = 1;
        c.question.layout = HCP_LAYOUT_CONTIGUOUS;
        c.question.order = HCP_ORDER_FIXED;
        if (i % 4 == 0)
            c.question.n_links = 0;
        fixture_places_init(&p, 4);
        assert_int_equal(fixture_split(c.ring, &c.question, &p, text, sizeof text), 0);
        check_plan(&c, &p.plan, i);
        best = split_best(&c, 0, c.question.seq_len / 128, 128, tokens);
        worst = fmax(worst, p.plan.makespan_ms / best);
        near += p.plan.makespan_ms <= 1.01 * best;
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message("# %d of %d within 1 %% of all tile splits, worst %.3f\n", near,
                  problems, worst);
    assert_int_equal(near, problems);
}

/* The same without links, an order to choose or anything else that makes the search look
 * further: plans as they are asked for by default. */
static void four_contiguous_by_default(void **state)
{
    int problems = (int)(200 * fixture_scale()), near = 0;
    double worst = 1;
    uint64_t seed = 15;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct order_case c;
        struct fixture_plan p;
        int64_t tokens[MAX];
        double best;
        char text[512];

        make_case(&c, &seed, 4, fixture_range(&seed, 8, i % 20 ? 20 : 40), 0);
        c.question.causal = 1;
        c.question.layout = HCP_LAYOUT_CONTIGUOUS;
        c.question.order = HCP_ORDER_GIVEN;
        c.question.n_links = 0;
        fixture_places_init(&p, 4);
        assert_int_equal(fixture_split(c.ring, &c.question, &p, text, sizeof text), 0);
        check_plan(&c, &p.plan, i);
        best = split_best(&c, 0, c.question.seq_len / 128, 128, tokens);
        worst = fmax(worst, p.plan.makespan_ms / best);
        near += p.plan.makespan_ms <= 1.01 * best;
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message("# by default %d of %d within 1 %% of all tile splits, worst %.3f\n",
                  near, problems, worst);
    assert_int_equal(near, problems);
}

static void bounded_search_is_near(void **state)
{
    int problems = (int)(200 * fixture_scale()), near = 0;
    double worst = 1;
    uint64_t seed = 13;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct order_case c;
        struct fixture_plan all, some;
        char text[512];

        make_case(&c, &seed, 6, fixture_range(&seed, 12, 200), i % 2);
        fixture_places_init(&all, 6);
        fixture_places_init(&some, 6);
        assert_int_equal(plan_split(c.ring, &c.question, 1, all.workspace,
                                    all.workspace_bytes, text, sizeof text, &all.plan),
                         0);
        assert_int_equal(plan_split(c.ring, &c.question, 0, some.workspace,
                                    some.workspace_bytes, text, sizeof text, &some.plan),
                         0);
        check_plan(&c, &all.plan, i);
        check_plan(&c, &some.plan, i);
        near += some.plan.makespan_ms <= 1.01 * all.plan.makespan_ms;
        worst = fmax(worst, some.plan.makespan_ms / all.plan.makespan_ms);
        fixture_places_free(&all);
        fixture_places_free(&some);
        free_case(&c);
    }
    print_message("# %d of %d within 1 %% of all orders, worst %.3f\n", near, problems,
                  worst);
    assert_true(near >= problems * 95 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(four_contiguous),
        cmocka_unit_test(four_contiguous_by_default),
        cmocka_unit_test(bounded_search_is_near),
    };

    return cmocka_run_group_tests_name("plan-order", tests, NULL, NULL);
}
