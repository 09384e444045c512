/* SPDX-License-Identifier: Apache-2.0
 *
 * KV that travels late together with what else is chosen: the shares, and the order of
 * the ranks. HCP_TEST_SCALE multiplies the number of problems.
 */
#include "tests/late-fixture.h"

static int over_cap(const struct late_case *c, size_t r, int64_t tiles)
{
    return c->ranks[r].max_tokens > 0 && tiles * 128 > c->ranks[r].max_tokens;
}

/* All splits of four ranks with all their slots, few tiles. */
static double joint_best(struct late_case *c, size_t r, int64_t tiles)
{
    double best = INFINITY;

    if (r + 1 == c->n) {
        int32_t slots[MAX] = {0};
        size_t k;

        if (over_cap(c, r, tiles))
            return INFINITY;
        c->tokens[r] = tiles * 128;
        do {
            struct reference_orders order;

            reference_slots(c->ring, &c->question, c->tokens, slots, &order);
            best = fmin(best, reference_in_order(c->ring, HCP_MODEL_BEST, &c->question,
                                                 c->tokens, &order));
            for (k = 0; k < c->n && slots[k] == (int32_t)c->n - 1; k++)
                slots[k] = 0;
            if (k < c->n)
                slots[k]++;
        } while (k < c->n);
        return best;
    }
    for (int64_t mine = 0; mine <= tiles && !over_cap(c, r, mine); mine++) {
        c->tokens[r] = mine * 128;
        best = fmin(best, joint_best(c, r + 1, tiles - mine));
    }
    return best;
}

static void split_and_order_are_near(void **state)
{
    int problems = (int)(200 * fixture_scale()), near = 0, gained = 0;
    double worst = 1;
    uint64_t seed = 25;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct late_case c;
        struct fixture_plan p;
        size_t n = i % 5 ? 3 : 4;
        double best;
        char text[512] = "";

        make_case(&c, &seed, n, n == 4 ? 4 : 8, i % 3);
        c.question.tile = 128;
        fixture_places_init(&p, n);
        if (fixture_split(c.ring, &c.question, &p, text, sizeof text))
            fail_msg("problem %d: %s", i, text);
        check_plan(&c, &p, i);
        best = joint_best(&c, 0, c.question.seq_len / 128);
        near += p.plan.makespan_ms <= 1.01 * best;
        worst = fmax(worst, p.plan.makespan_ms / best);
        gained += p.plan.in_turn_ms > 1.01 * p.plan.makespan_ms;
        fixture_places_free(&p);
        free_case(&c);
    }
    print_message("# splits with their orders: %d of %d within 1 %% of all, worst %.3f; "
                  "over 1 %% gained in %d\n",
                  near, problems, worst, gained);
    assert_true(near >= problems * 95 / 100);
}

/* ---- the order of the ranks ---- */

/* Links of all pairs, some of them slow. */
static void link_all(struct late_case *c, uint64_t *seed)
{
    size_t k = 0;

    for (int32_t from = 0; from < (int32_t)c->n; from++)
        for (int32_t to = 0; to < (int32_t)c->n; to++) {
            hcp_link link = {.from = from, .to = to, .gbps = c->question.link_gbps};

            if (from == to)
                continue;
            link.gbps *= fixture_range(seed, 0, 2) ? fixture_real(seed, 1, 3) : 0.2;
            link.alpha_us = fixture_real(seed, 0, 30);
            c->links[k++] = link;
        }
    c->question.links = c->links;
    c->question.n_links = k;
}

/* The same problem in another order of its ranks, position -> rank. */
static void reorder(const struct late_case *c, const int32_t *order,
                    struct late_case *out)
{
    hcp_shape shape;
    char text[512] = "";
    size_t k = 0;

    *out = *c;
    for (size_t i = 0; i < c->n; i++)
        out->ranks[i] = c->ranks[order[i]];
    hcp_shape_init(&shape);
    hcp_ring_create(c->models, &shape, out->ranks, c->n, NULL, text, sizeof text,
                    &out->ring);
    assert_string_equal(text, "");
    for (int32_t from = 0; c->question.n_links && from < (int32_t)c->n; from++)
        for (int32_t to = 0; to < (int32_t)c->n; to++)
            for (size_t l = 0; l < c->question.n_links; l++)
                if (c->links[l].from == order[from] && c->links[l].to == order[to]) {
                    out->links[k] = c->links[l];
                    out->links[k].from = from;
                    out->links[k++].to = to;
                }
    out->question.links = c->question.n_links ? out->links : NULL;
    reference_forget();
}

/* Caps that forbid balance, as often as not. */
static void cap_some(struct late_case *c, uint64_t *seed)
{
    for (size_t r = 0; r < c->n; r++) {
        int64_t even = c->question.seq_len / (int64_t)c->n / 128 + 1;

        if (fixture_range(seed, 0, 1))
            c->ranks[r].max_tokens = 128 * (even + fixture_range(seed, 0, 1));
    }
}

/* --late-kv --reorder: the order of the ranks, their shares and when each KV travels, all
 * together, against all there are. */
static void ranks_in_order(void **state)
{
    int problems = (int)(200 * fixture_scale()), near = 0, gained = 0;
    double worst = 1;
    uint64_t seed = 28;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct late_case made, c, other;
        struct fixture_plan p, turn;
        int32_t order[MAX] = {0, 1, 2, 3};
        size_t n = i % 10 ? 3 : 4;
        double best = INFINITY;
        hcp_question in_turn;
        char text[512] = "";

        make_case(&made, &seed, n, n == 4 ? 4 : 7, 0);
        if (i % 3)
            link_all(&made, &seed);
        if (i % 2)
            cap_some(&made, &seed);
        reorder(&made, order, &c);
        hcp_ring_free(made.ring);
        c.question.tile = 128;
        c.question.order = i % 5 ? HCP_ORDER_FREE : HCP_ORDER_FIXED;
        fixture_places_init(&p, n);
        fixture_places_init(&turn, n);
        if (fixture_split(c.ring, &c.question, &p, text, sizeof text))
            fail_msg("problem %d: %s", i, text);
        assert_true(p.plan.makespan_ms ==
                    (i % 5 ? p.plan.any_order_ms : p.plan.given_order_ms));
        do {
            double ms;

            reorder(&c, order, &other);
            ms = joint_best(&other, 0, c.question.seq_len / 128);
            if (i % 5 == 0 && order[0] == 0 && order[1] == 1 && order[2] == 2 &&
                p.plan.given_order_ms < ms * (1 - 1e-9))
                fail_msg("problem %d: %.12g in the given order, at best %.12g", i,
                         p.plan.given_order_ms, ms);
            best = fmin(best, ms);
            hcp_ring_free(other.ring);
        } while (fixture_next_order(order, n));
        if (p.plan.any_order_ms < best * (1 - 1e-9))
            fail_msg("problem %d: %.12g, at best %.12g", i, p.plan.any_order_ms, best);
        near += p.plan.any_order_ms <= 1.01 * best;
        worst = fmax(worst, p.plan.any_order_ms / best);
        in_turn = c.question;
        in_turn.late_kv = 0;
        if (fixture_split(c.ring, &in_turn, &turn, text, sizeof text))
            fail_msg("problem %d: %s", i, text);
        assert_true(p.plan.makespan_ms <= turn.plan.makespan_ms * (1 + 1e-12));
        gained += turn.plan.makespan_ms > 1.01 * p.plan.makespan_ms;
        fixture_places_free(&p);
        fixture_places_free(&turn);
        free_case(&c);
    }
    print_message("# ranks, shares and KV in order: %d of %d within 1 %% of all, worst "
                  "%.3f; late KV gained over 1 %% in %d\n",
                  near, problems, worst, gained);
    assert_true(near >= problems * 98 / 100);
}

/* Many orders: some are looked at, against all of them looked at the same way. */
static void some_orders_are_near(void **state)
{
    int problems = (int)(40 * fixture_scale()), near = 0;
    double worst = 1;
    uint64_t seed = 29;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct late_case c;
        struct fixture_plan all, some;
        int32_t order[MAX] = {0, 1, 2, 3, 4};
        struct late_case made;
        size_t n = 5;
        char text[512] = "";

        make_case(&made, &seed, n, 200, 0);
        if (i % 2)
            cap_some(&made, &seed);
        reorder(&made, order, &c);
        hcp_ring_free(made.ring);
        c.question.order = HCP_ORDER_FREE;
        fixture_places_init(&all, n);
        fixture_places_init(&some, n);
        for (int k = 0; k < 2; k++) {
            struct fixture_plan *p = k ? &all : &some;

            if (plan_split(c.ring, &c.question, k, p->workspace, p->workspace_bytes, text,
                           sizeof text, &p->plan))
                fail_msg("problem %d: %s", i, text);
        }
        near += some.plan.makespan_ms <= 1.01 * all.plan.makespan_ms;
        worst = fmax(worst, some.plan.makespan_ms / all.plan.makespan_ms);
        fixture_places_free(&all);
        fixture_places_free(&some);
        free_case(&c);
    }
    print_message("# some orders of 5 ranks: %d of %d within 1 %% of all, worst %.3f\n",
                  near, problems, worst);
    assert_true(near >= problems * 95 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_and_order_are_near),
        cmocka_unit_test(ranks_in_order),
        cmocka_unit_test(some_orders_are_near),
    };

    return cmocka_run_group_tests_name("plan-late-ranks", tests, NULL, NULL);
}
