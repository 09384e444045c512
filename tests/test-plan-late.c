/* SPDX-License-Identifier: Apache-2.0
 *
 * KV that comes late travels late (planner/late.c, ring-late.c) against plain
 * enumeration: every order of the blocks on every link, by the objective as
 * plan-reference.c states it. HCP_TEST_SCALE multiplies the number of problems.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"
#include "tests/plan-reference.h"

enum { KINDS = 4, MAX = 16 };

struct late_case {
    struct fixture fixtures[KINDS];
    size_t n;
    hcp_question question;
    hcp_rank ranks[MAX];
    hcp_link links[MAX];
    int64_t tokens[MAX];
    hcp_models *models;
    hcp_ring *ring;
};

/* Ranks of which one, or some, have much linear work before their ring, and random
 * shares: as caps may force them. */
static void make_case(struct late_case *c, uint64_t *seed, size_t n, int64_t tiles,
                      int with_links)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    hcp_question *q = &c->question;
    hcp_rank *ranks = c->ranks;
    hcp_shape shape;
    double weight = fixture_real(seed, 1, 40), all_ms;
    int one = fixture_range(seed, 0, 1) == 0,
        who = (int)fixture_range(seed, 0, (int)n - 1);
    char text[512] = "";

    memset(c, 0, sizeof *c);
    c->n = n;
    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.3, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = weight * 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 3e-5) / speed,
                                          .c = fixture_real(seed, 0, 2e-5),
                                          .f = fixture_real(seed, 0.001, 0.02),
                                          .tile = 128,
                                          .poly = 1,
                                          .error = 0.01};
    }
    c->models = fixture_models(c->fixtures, KINDS);
    hcp_question_init(q);
    q->seq_len = 0;
    for (size_t r = 0; r < n; r++) {
        c->tokens[r] = 128 * fixture_range(seed, 1, tiles / (int64_t)n * 2);
        q->seq_len += c->tokens[r];
    }
    all_ms = weight * 2e-8 * (double)q->seq_len * (double)q->seq_len;
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, names[fixture_range(seed, 0, KINDS - 1)]);
        if (one ? (int)r == who : fixture_range(seed, 0, 1) == 0) {
            double ms = fixture_real(seed, 0, 1.2) * all_ms / (double)n;

            ranks[r].linear_before_us = 1e3 * ms / (double)c->tokens[r];
            if (fixture_range(seed, 0, 2) == 0)
                ranks[r].linear_after_us = 0.2 * ranks[r].linear_before_us;
        }
    }
    hcp_shape_init(&shape);
    hcp_ring_create(c->models, &shape, ranks, n, NULL, text, sizeof text, &c->ring);
    assert_string_equal(text, "");
    q->causal = fixture_range(seed, 0, 2) > 0;
    q->layout = (hcp_layout)fixture_range(seed, 1, 3);
    q->stripes = 4;
    q->buffers = 0;
    q->extrapolate = 1;
    q->late_kv = 1;
    q->link_alpha_us = fixture_real(seed, 0, 20);
    q->link_gbps = (double)q->seq_len * 4096 / 1e6 /
                   (all_ms * pow(10, fixture_real(seed, -2.5, -0.3)));
    with_links = n > 1 ? with_links : 0;
    for (int32_t r = 0; with_links && r < (int32_t)n; r++) {
        int32_t to = (r + 1) % (int32_t)n;
        hcp_link link = {.from = r, .to = to, .gbps = q->link_gbps};

        link.gbps *= fixture_real(seed, 0.3, 2);
        link.alpha_us = fixture_real(seed, 0, 30);
        if (with_links > 1) {
            link.slowdown = fixture_real(seed, 1, 1.4);
            link.transfer_slowdown = fixture_real(seed, 1, 3);
            link.overhead_us = fixture_real(seed, 0, 20);
        }
        c->links[r] = link;
        q->n_links++;
    }
    q->links = with_links ? c->links : NULL;
}

static void free_case(struct late_case *c)
{
    reference_forget();
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

static void evaluate(const struct late_case *c, struct fixture_plan *p, int number)
{
    char text[512] = "";

    if (hcp_plan_evaluate(c->ring, &c->question, c->tokens, p->workspace,
                          p->workspace_bytes, text, sizeof text, &p->plan))
        fail_msg("problem %d: %s", number, text);
}

/* The plan's time and steps are what the plain objective says of its tokens and slots. */
static void check_plan(const struct late_case *c, struct fixture_plan *p, int number)
{
    static hcp_step steps[MAX * MAX];
    struct reference_orders orders;
    hcp_question q = c->question;
    int64_t tokens[MAX];
    int32_t slots[MAX];
    double ms, end = 0;
    size_t n_steps;
    char text[512] = "";

    for (size_t r = 0; r < c->n; r++) {
        tokens[r] = p->plan.ranks[r].tokens;
        slots[r] = p->plan.ranks[r].late_slots;
    }
    q.layout = p->plan.layout;
    reference_slots(c->ring, &q, tokens, slots, &orders);
    ms = reference_in_order(c->ring, HCP_MODEL_BEST, &q, tokens, &orders);
    if (fabs(ms - p->plan.makespan_ms) > 1e-9 * ms)
        fail_msg("problem %d: plan %.12g, objective %.12g", number, p->plan.makespan_ms,
                 ms);
    assert_true(p->plan.makespan_ms <= p->plan.in_turn_ms);
    if (p->plan.makespan_ms < p->plan.late_bound_ms * (1 - 1e-12))
        fail_msg("problem %d: %.12g is below its bound %.12g", number,
                 p->plan.makespan_ms, p->plan.late_bound_ms);
    if (hcp_plan_simulate(c->ring, &p->plan, 1, p->workspace, p->workspace_bytes, text,
                          sizeof text, steps, MAX * MAX, &n_steps))
        fail_msg("problem %d: %s", number, text);
    for (size_t k = 0; k < n_steps; k++) {
        int i = 0, j = 0, step = steps[k].step;

        for (size_t r = 0; r < c->n; r++) {
            i += tokens[r] > 0 && (int32_t)r < steps[k].rank;
            j += tokens[r] > 0 && (int32_t)r < steps[k].block_of;
        }
        end = fmax(end, steps[k].fin_ms + p->plan.ranks[steps[k].rank].linear_after_ms);
        if (step > 0 && step <= orders.n_into[i])
            assert_int_equal(orders.into[i][step - 1], j);
        else if (step > 0)
            assert_true(isnan(steps[k].ready_ms));
    }
    assert_true(end == p->plan.makespan_ms);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_every_order),
                                       cmocka_unit_test(with_two_buffers),
                                       cmocka_unit_test(hides_what_can_be_hidden),
                                       cmocka_unit_test(large_rings_are_near),
                                       cmocka_unit_test(split_and_order_are_near),
                                       cmocka_unit_test(ranks_in_order),
                                       cmocka_unit_test(some_orders_are_near),
                                       cmocka_unit_test(any_slots_end),
                                       cmocka_unit_test(in_turn_is_in_turn)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
