/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of the ring and links between pairs, against plain enumeration: every order,
 * every layout, every split into tiles, each by the objective as plan-reference.c states
 * it. HCP_TEST_SCALE multiplies the number of problems.
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

enum { KINDS = 4, MAX = 24, SHARED = 4 };

struct order_case {
    struct fixture fixtures[KINDS];
    int which[MAX];
    int64_t caps[MAX];
    double linear[MAX][4]; /* before and after the ring: a token, fixed */
    int64_t bytes[MAX][2]; /* cap and weights */
    size_t n;
    hcp_question question;
    hcp_link links[MAX * MAX];
    double shared_gbps[SHARED];
    hcp_models *models;
    hcp_ring *ring;
};

static void random_links(struct order_case *c, uint64_t *seed, int disturbed)
{
    hcp_question *q = &c->question;
    int every = fixture_range(seed, 0, 1) == 0; /* or half of the pairs */
    double slow = fixture_real(seed, 0.5, 30);

    q->links = c->links;
    q->n_links = 0;
    q->shared_gbps = c->shared_gbps;
    q->n_shared = (size_t)fixture_range(seed, 0, SHARED);
    for (size_t i = 0; i < q->n_shared; i++)
        c->shared_gbps[i] = fixture_real(seed, 1, 100);
    for (int32_t from = 0; from < (int32_t)c->n; from++)
        for (int32_t to = 0; to < (int32_t)c->n; to++) {
            hcp_link *link = &c->links[q->n_links];

            if (from == to || (!every && fixture_range(seed, 0, 1)))
                continue;
            *link = (hcp_link){.from = from, .to = to};
            link->alpha_us = fixture_real(seed, 0, 100);
            link->gbps = fixture_range(seed, 0, 2) ? fixture_real(seed, 20, 300) : slow;
            if (fixture_range(seed, 0, 9) == 0)
                link->gbps = 0;
            if (q->n_shared > 0 && fixture_range(seed, 0, 1))
                link->shared[0] = (int32_t)fixture_range(seed, 1, (int64_t)q->n_shared);
            if (link->shared[0] > 1 && fixture_range(seed, 0, 2) == 0)
                link->shared[1] = link->shared[0] - 1;
            if (disturbed && fixture_range(seed, 0, 1)) {
                link->slowdown = fixture_real(seed, 1, 1.5);
                link->transfer_slowdown = fixture_real(seed, 1, 4);
                link->overhead_us = fixture_real(seed, 0, 30);
            }
            q->n_links++;
        }
    if (q->n_links == 0)
        q->links = NULL;
}

static hcp_ring *ring_of(const struct order_case *c)
{
    hcp_rank ranks[MAX];
    hcp_shape shape;
    hcp_ring *ring = NULL;
    char text[512] = "";

    for (size_t r = 0; r < c->n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, c->fixtures[c->which[r]].device);
        ranks[r].max_tokens = c->caps[r];
        ranks[r].linear_before_us = c->linear[r][0];
        ranks[r].linear_before_fixed_us = c->linear[r][1];
        ranks[r].linear_after_us = c->linear[r][2];
        ranks[r].linear_after_fixed_us = c->linear[r][3];
        ranks[r].max_bytes = c->bytes[r][0];
        ranks[r].weight_bytes = c->bytes[r][1];
    }
    hcp_shape_init(&shape);
    hcp_ring_create(c->models, &shape, ranks, c->n, NULL, text, sizeof text, &ring);
    assert_string_equal(text, "");
    return ring;
}

/* The rest of a layer on some of the ranks. */
static void add_linear(struct order_case *c, uint64_t *seed)
{
    double scale = fixture_real(seed, 0, 1);

    for (size_t r = 0; r < c->n; r++) {
        if (fixture_range(seed, 0, 4) == 0)
            continue;
        c->linear[r][0] = scale * fixture_real(seed, 0, 1);
        c->linear[r][2] = scale * fixture_real(seed, 0, 3);
        c->linear[r][1] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 60);
        c->linear[r][3] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 60);
    }
    hcp_ring_free(c->ring);
    c->ring = ring_of(c);
}

/* Caps in bytes of some ranks, about what an even share needs. */
static void add_memory(struct order_case *c, uint64_t *seed)
{
    int64_t each = c->question.seq_len / (int64_t)c->n * 4096;

    c->question.layers = (int32_t)fixture_range(seed, 1, 4);
    for (size_t r = 0; r < c->n; r++) {
        if (fixture_range(seed, 0, 2) == 0)
            continue;
        c->bytes[r][1] = fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 1, each);
        c->bytes[r][0] = c->bytes[r][1] + each * (c->question.layers + 1) / 2 +
                         fixture_range(seed, 1, each * (c->question.layers + 1));
    }
    hcp_ring_free(c->ring);
    c->ring = ring_of(c);
}

/* n ranks of some kinds and a sequence of a few tiles, or of many. */
static void make_case(struct order_case *c, uint64_t *seed, size_t n, int64_t tiles,
                      int disturbed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    hcp_question *q = &c->question;
    int64_t kinds = fixture_range(seed, 1, KINDS), tile = 128;
    double weight = fixture_range(seed, 0, 2) ? fixture_real(seed, 5, 100) : 1;

    memset(c, 0, sizeof *c);
    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.1, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = weight * 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 3e-5) / speed,
                                          .c = fixture_real(seed, 0, 2e-5),
                                          .f = fixture_real(seed, 0.001, 0.02),
                                          .tile = tile,
                                          .poly = 1,
                                          .error = 0.01};
    }
    c->n = n;
    for (size_t r = 0; r < n; r++) {
        c->which[r] = (int)fixture_range(seed, 0, kinds - 1);
        if (fixture_range(seed, 0, 7) == 0)
            c->caps[r] = fixture_range(seed, 1, tiles) * tile;
    }
    c->caps[0] = 0;
    hcp_question_init(q);
    q->seq_len =
        tiles * tile + (fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 1, 127));
    q->causal = fixture_range(seed, 0, 3) > 0;
    q->stripes = 4;
    q->buffers = (int32_t)fixture_range(seed, 0, 3);
    q->extrapolate = 1;
    q->order = HCP_ORDER_FREE;
    if (fixture_range(seed, 0, 2) > 0) {
        q->link_alpha_us = fixture_real(seed, 0, 30);
        q->link_gbps = fixture_real(seed, 5, 100);
    }
    if (fixture_range(seed, 0, 3) > 0)
        random_links(c, seed, disturbed);
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = ring_of(c);
}

static void free_case(struct order_case *c)
{
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

/* The problem with rank order[i] at place i. */
static void reorder(const struct order_case *c, const int32_t *order,
                    struct order_case *out)
{
    int32_t place[MAX];
    hcp_question *q = &out->question;

    *out = *c;
    for (size_t i = 0; i < c->n; i++) {
        out->which[i] = c->which[order[i]];
        out->caps[i] = c->caps[order[i]];
        memcpy(out->linear[i], c->linear[order[i]], sizeof out->linear[i]);
        memcpy(out->bytes[i], c->bytes[order[i]], sizeof out->bytes[i]);
        place[order[i]] = (int32_t)i;
    }
    for (size_t i = 0; i < q->n_links; i++) {
        out->links[i].from = place[c->links[i].from];
        out->links[i].to = place[c->links[i].to];
    }
    q->links = out->links;
    q->shared_gbps = out->shared_gbps;
    q->order = HCP_ORDER_GIVEN;
    out->ring = ring_of(out);
}

static int in_memory(const struct order_case *c, const int64_t *tokens)
{
    int64_t bytes[MAX];
    int fits = 1;

    if (!c->ring->memory)
        return 1;
    reference_memory(c->ring, &c->question, tokens, bytes);
    for (size_t i = 0; i < c->n; i++)
        fits &= c->bytes[i][0] == 0 || bytes[i] <= c->bytes[i][0];
    return fits;
}

/* The plan's time is what the plain objective says of its order, layout and tokens. */
static void check_plan(const struct order_case *c, const hcp_plan *plan, int number)
{
    struct order_case in_order;
    int32_t order[MAX], seen[MAX] = {0};
    int64_t tokens[MAX];
    double ms;

    for (size_t i = 0; i < c->n; i++) {
        order[i] = plan->order || plan->has_links ? plan->places[i].rank : (int32_t)i;
        assert_in_range(order[i], 0, c->n - 1);
        assert_int_equal(seen[order[i]]++, 0);
        tokens[i] = plan->ranks[i].tokens;
    }
    reorder(c, order, &in_order);
    for (size_t i = 0; i < c->n; i++) {
        assert_string_equal(plan->ranks[i].device, c->fixtures[in_order.which[i]].device);
        assert_true(in_order.caps[i] == 0 || tokens[i] <= in_order.caps[i]);
    }
    in_order.question.layout = plan->layout;
    assert_true(in_memory(&in_order, tokens));
    ms = reference_makespan(in_order.ring, HCP_MODEL_BEST, &in_order.question, tokens);
    if (fabs(ms - plan->makespan_ms) > 1e-9 * ms)
        fail_msg("problem %d: plan %.12g, objective %.12g", number, plan->makespan_ms,
                 ms);
    hcp_ring_free(in_order.ring);
}

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
 * so what that link is like costs nothing, and no rank receives what comes after it in the
 * sequence. In the zigzag layout it does. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_brute_force),
                                       cmocka_unit_test(four_contiguous),
                                       cmocka_unit_test(four_contiguous_by_default),
                                       cmocka_unit_test(bounded_search_is_near),
                                       cmocka_unit_test(plans_are_consistent),
                                       cmocka_unit_test(slow_link_is_avoided),
                                       cmocka_unit_test(nothing_is_sent_in_vain),
                                       cmocka_unit_test(bad_questions_are_refused)};

    return cmocka_run_group_tests_name("plan-order", tests, NULL, NULL);
}
