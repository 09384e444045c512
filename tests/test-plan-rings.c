/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes, and rings of rings: what both cost against plan-reference.c, which of them a
 * plan takes, the closed forms for equal ranks, and plan files. HCP_TEST_SCALE multiplies
 * the number of problems.
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

enum { KINDS = 3, MOST = 24 };

struct rings_case {
    struct fixture fixtures[KINDS];
    int which[MOST];
    int64_t tokens[MOST];
    size_t n;
    hcp_question question;
    hcp_link links[MOST * MOST]; /* the nodes', for the reference */
    hcp_models *models;
    hcp_ring *ring;
    struct fixture_plan p;
};

static void random_question(struct rings_case *c, uint64_t *seed)
{
    hcp_question *q = &c->question;

    hcp_question_init(q);
    q->node_ranks = (int32_t)fixture_range(seed, 2, 6);
    c->n = (size_t)(q->node_ranks * fixture_range(seed, 2, 4));
    if (fixture_range(seed, 0, 5) == 0 && c->n > 4)
        c->n--; /* the last node is short of one */
    q->seq_len = (int64_t)c->n * fixture_range(seed, 60, 3000);
    q->causal = fixture_range(seed, 0, 2) > 0;
    q->layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    q->stripes = (int32_t)fixture_range(seed, 2, 6);
    q->buffers = (int32_t)fixture_range(seed, 0, 4);
    q->link_gbps = fixture_range(seed, 0, 3) ? fixture_real(seed, 20, 400) : 0;
    q->link_alpha_us = fixture_range(seed, 0, 1) ? fixture_real(seed, 0, 20) : 0;
    q->node_gbps = fixture_range(seed, 0, 5) ? fixture_real(seed, 0.3, 30) : 0;
    q->node_alpha_us = fixture_range(seed, 0, 1) ? fixture_real(seed, 0, 60) : 0;
    if (fixture_range(seed, 0, 2) == 0)
        q->node_shared_gbps = fixture_real(seed, 1, 60);
    q->rings = HCP_RINGS_BEST;
    q->extrapolate = 1;
}

/* Whole layers: work before and after the ring of each kind of rank. */
static void add_linear(struct rings_case *c, uint64_t *seed)
{
    hcp_rank ranks[MOST];
    hcp_shape shape;
    char text[512] = "";

    hcp_shape_init(&shape);
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, c->fixtures[c->which[r]].device);
        ranks[r].linear_before_us = fixture_real(seed, 0, 1);
        ranks[r].linear_after_us = fixture_real(seed, 0, 2);
        ranks[r].linear_after_fixed_us = fixture_real(seed, 0, 50);
    }
    hcp_ring_free(c->ring);
    hcp_ring_create(c->models, &shape, ranks, c->n, NULL, text, sizeof text, &c->ring);
    assert_string_equal(text, "");
}

static void make_case(struct rings_case *c, uint64_t *seed)
{
    static const char *const names[KINDS] = {"d0", "d1", "d2"};
    int kinds = (int)fixture_range(seed, 1, KINDS), by_node;

    memset(c, 0, sizeof *c);
    random_question(c, seed);
    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.2, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 1e-5),
                                          .f = fixture_real(seed, 0.001, 0.02),
                                          .tile = 64,
                                          .lut = 1,
                                          .error = 0.02};
        if (fixture_range(seed, 0, 1))
            c->fixtures[i].bumps = fixture_random(seed) | 1;
    }
    by_node = (int)fixture_range(seed, 0, 1);
    for (size_t r = 0; r < c->n; r++)
        c->which[r] = by_node ? (int)(r / (size_t)c->question.node_ranks) % kinds
                              : (int)fixture_range(seed, 0, kinds - 1);
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring(c->models, c->fixtures, c->which, NULL, c->n);
    if (fixture_range(seed, 0, 3) == 0)
        add_linear(c, seed);
    fixture_plan_init(&c->p, c->n);
}

static void free_case(struct rings_case *c)
{
    fixture_plan_free(&c->p);
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

/* The question in one ring as links of pairs, which the reference knows. */
static hcp_question as_links(struct rings_case *c)
{
    hcp_question q = c->question;
    double gbps = q.node_gbps;

    if (q.node_shared_gbps > 0 && (gbps == 0 || q.node_shared_gbps < gbps))
        gbps = q.node_shared_gbps;
    q.links = c->links;
    for (int32_t from = 0; from < (int32_t)c->n; from++)
        for (int32_t to = 0; to < (int32_t)c->n; to++)
            if (from / q.node_ranks != to / q.node_ranks)
                c->links[q.n_links++] = (hcp_link){
                    .from = from, .to = to, .alpha_us = q.node_alpha_us, .gbps = gbps};
    return q;
}

/* Shares at random; some leave a node, a place on every node, or any rank out. */
static void random_tokens(struct rings_case *c, uint64_t *seed)
{
    int32_t w = c->question.node_ranks;
    int out = (int)fixture_range(seed, 0, 5);
    int64_t left = c->question.seq_len, which;
    double weight[MOST], sum = 0;

    which = fixture_range(seed, 0,
                          out == 1   ? (int64_t)c->n / w - 1
                          : out == 2 ? w - 1
                                     : (int64_t)c->n - 1);
    for (size_t r = 0; r < c->n; r++) {
        int gone = out == 1   ? (int64_t)r / w == which
                   : out == 2 ? (int64_t)r % w == which
                              : out == 3 && (int64_t)r == which;

        weight[r] = gone ? 0 : fixture_real(seed, 0.2, 1);
        sum += weight[r];
    }
    for (size_t r = 0; r < c->n; r++) {
        c->tokens[r] = (int64_t)((double)c->question.seq_len * weight[r] / sum);
        left -= c->tokens[r];
    }
    for (size_t r = 0; left > 0; r = (r + 1) % c->n)
        if (weight[r] > 0) {
            c->tokens[r]++;
            left--;
        }
}

static void assert_time(double got, double want)
{
    if (want < 0)
        assert_true(isnan(got));
    else if (!(fabs(got - want) <= 1e-12 * want))
        fail_msg("%.17g, not %.17g", got, want);
}

/* What the plan's own simulation ends with. */
static void assert_simulated(struct rings_case *c)
{
    static hcp_step steps[MOST * MOST];
    const hcp_plan *plan = &c->p.plan;
    char text[512] = "";
    size_t n, m = 0;

    hcp_plan_simulate(c->ring, plan, 1, c->p.workspace, c->p.workspace_bytes, text,
                      sizeof text, steps, MOST * MOST, &n);
    assert_string_equal(text, "");
    while (m * m < n)
        m++;
    for (size_t i = 0; i < m; i++) {
        double before = 0;
        int64_t seen = 0;

        for (size_t k = 0; k < m; k++) {
            const hcp_step *s = &steps[i * m + k];

            assert_true(s->fin_ms >= before && !(s->start_ms < s->ready_ms));
            before = s->fin_ms;
            seen += plan->ranks[s->block_of].tokens;
        }
        if (plan->inner_ranks > 0) { /* every block once */
            assert_int_equal(seen, plan->seq_len);
            before += plan->ranks[steps[i * m].rank].linear_after_ms;
            assert_true(before == plan->ranks[steps[i * m].rank].predicted_ms);
        }
    }
}

static void costs(void **state)
{
    int problems = (int)(1500 * fixture_scale()), two = 0, none = 0, faster = 0;
    uint64_t seed = 11;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct rings_case c;
        hcp_question links;
        double one_ms, two_ms;
        char text[512] = "";

        make_case(&c, &seed);
        random_tokens(&c, &seed);
        links = as_links(&c);
        hcp_plan_evaluate(c.ring, &c.question, c.tokens, c.p.workspace,
                          c.p.workspace_bytes, text, sizeof text, &c.p.plan);
        assert_string_equal(text, "");
        one_ms = reference_makespan(c.ring, HCP_MODEL_BEST, &links, c.tokens);
        two_ms = reference_two_levels(c.ring, HCP_MODEL_BEST, &c.question, c.tokens);
        assert_time(c.p.plan.one_ring_ms, one_ms);
        assert_time(c.p.plan.two_level_ms, two_ms);
        none += two_ms < 0;
        two += two_ms > 0;
        if (c.p.plan.inner_ranks > 0) {
            faster++;
            assert_true(two_ms > 0 && two_ms < one_ms * (1 + 1e-12));
            assert_time(c.p.plan.makespan_ms, two_ms);
        } else {
            assert_true(two_ms < 0 || one_ms <= two_ms * (1 + 1e-12));
            assert_time(c.p.plan.makespan_ms, one_ms);
        }
        assert_simulated(&c);
        free_case(&c);
    }
    print_message("# %d splits with two levels, %d of them faster so; %d have none\n",
                  two, faster, none);
    if (fixture_scale() >= 0.5)
        assert_true(two >= 200 && faster >= 100 && two - faster >= 50 && none >= 50);
}

/* Caps in bytes near what the best split in one ring takes. */
static void cap_bytes(struct rings_case *c, uint64_t *seed)
{
    hcp_rank ranks[MOST];
    hcp_shape shape;
    hcp_question q = c->question;
    char text[512] = "";

    q.rings = HCP_RINGS_ONE;
    fixture_split(c->ring, &q, &c->p, text, sizeof text);
    assert_string_equal(text, "");
    hcp_shape_init(&shape);
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, c->fixtures[c->which[r]].device);
        if (fixture_range(seed, 0, 2) == 0)
            ranks[r].max_bytes = (int64_t)((double)c->p.plan.ranks[r].memory_bytes *
                                           fixture_real(seed, 0.9, 1.6)) +
                                 1000000;
    }
    hcp_ring_free(c->ring);
    hcp_ring_create(c->models, &shape, ranks, c->n, NULL, text, sizeof text, &c->ring);
    assert_string_equal(text, "");
}

static void choices(void **state)
{
    int problems = (int)(400 * fixture_scale()), taken = 0, capped = 0;
    double gain = 1;
    uint64_t seed = 12;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct rings_case c;
        hcp_question links, one;
        double given, even;
        char text[512] = "";

        make_case(&c, &seed);
        if (fixture_range(&seed, 0, 1))
            c.question.layout = HCP_LAYOUT_AUTO;
        if (fixture_range(&seed, 0, 3) == 0) {
            cap_bytes(&c, &seed);
            capped++;
        }
        one = c.question;
        one.rings = HCP_RINGS_ONE;
        if (fixture_split(c.ring, &one, &c.p, text, sizeof text) ==
            HCP_STATUS_INFEASIBLE) {
            free_case(&c);
            continue;
        }
        assert_string_equal(text, "");
        assert_true(c.p.plan.inner_ranks == 0 && isnan(c.p.plan.two_level_ms));
        given = c.p.plan.makespan_ms;
        even = c.p.plan.even_ms;
        fixture_split(c.ring, &c.question, &c.p, text, sizeof text);
        assert_string_equal(text, "");
        assert_true(c.p.plan.one_ring_ms == given);
        assert_true(!(c.p.plan.even_ms > even));
        assert_true(!(c.p.plan.makespan_ms > c.p.plan.even_ms));
        assert_int_equal(hcp_plan_memory(&c.p.plan, NULL, 0), HCP_STATUS_OK);
        assert_true(c.p.plan.bound_ms <= c.p.plan.makespan_ms);
        for (size_t r = 0; r < c.n; r++)
            c.tokens[r] = c.p.plan.ranks[r].tokens;
        links = as_links(&c);
        links.layout = c.question.layout = c.p.plan.layout;
        if (c.p.plan.inner_ranks > 0) {
            taken++;
            assert_true(c.p.plan.makespan_ms == c.p.plan.two_level_ms &&
                        c.p.plan.two_level_ms < c.p.plan.one_ring_ms);
            assert_time(
                c.p.plan.makespan_ms,
                reference_two_levels(c.ring, HCP_MODEL_BEST, &c.question, c.tokens));
            gain = fmax(gain, c.p.plan.one_ring_ms / c.p.plan.two_level_ms);
        } else {
            assert_true(c.p.plan.makespan_ms == given);
            assert_true(!(c.p.plan.two_level_ms < given));
            assert_time(c.p.plan.makespan_ms,
                        reference_makespan(c.ring, HCP_MODEL_BEST, &links, c.tokens));
        }
        assert_simulated(&c);
        free_case(&c);
    }
    print_message(
        "# two levels in %d of %d plans (%d under caps in bytes), %.3g times as fast "
        "at most\n",
        taken, problems, capped, gain);
    if (fixture_scale() >= 0.5)
        assert_true(taken >= 20 && problems - taken >= 20);
}

/* Equal ranks and blocks that all take c, o between nodes and e < c, o within one: one
 * ring is done after max(n c, (n - 1) o + c), two levels after max(n c, (A - 1) o' + w
 * c), o' being what w transfers between nodes take that share the way out. */
static void closed_forms(void **state)
{
    static const struct fixture kind = {
        .device = "d0", .a = 2e-8, .tile = 64, .lut = 1, .error = 0.02};
    static const int32_t shape[][2] = {{2, 2}, {2, 8}, {4, 4}, {3, 5}, {8, 8}, {16, 64}};
    hcp_models *models = fixture_models(&kind, 1);
    static int which[1024];
    static int64_t tokens[1024];

    (void)state;
    for (int i = 0; i < 1024; i++)
        tokens[i] = 4096;
    for (size_t i = 0; i < sizeof shape / sizeof *shape * 12; i++) {
        int32_t nodes = shape[i / 12][0], w = shape[i / 12][1], n = nodes * w;
        hcp_ring *ring = fixture_ring(models, &kind, which, NULL, (size_t)n);
        double c, o, shared, one, two, kv;
        struct fixture_plan p;
        hcp_question q;
        char text[512] = "";

        fixture_plan_init(&p, (size_t)n);
        hcp_question_init(&q);
        q.seq_len = (int64_t)n * 4096;
        q.buffers = 0;
        q.node_ranks = w;
        q.rings = HCP_RINGS_BEST;
        q.extrapolate = 1;
        c = hcp_model_block_ms(ring->ranks[0].model[HCP_MODEL_BEST], 0, 4096, 4096, NULL);
        kv = 4096 * ring->token_bytes / 1e6; /* ms at 1 GB/s */
        o = c * (0.3 + 0.4 * (double)(i % 12) * (1 + (double)(i % 3) * w / 4));
        shared = o;
        q.link_gbps = kv / (0.2 * fmin(c, o));
        q.node_gbps = kv / o;
        if (i % 2) { /* one rank saturates the way out */
            q.node_shared_gbps = q.node_gbps;
            shared = w * o;
        }
        q.layout = HCP_LAYOUT_CONTIGUOUS;
        hcp_plan_evaluate(ring, &q, tokens, p.workspace, p.workspace_bytes, text,
                          sizeof text, &p.plan);
        assert_string_equal(text, "");
        one = fmax(n * c, (n - 1) * o + c);
        two = fmax(n * c, (nodes - 1) * shared + w * c);
        assert_true(fabs(p.plan.one_ring_ms / one - 1) < 1e-9);
        assert_true(fabs(p.plan.two_level_ms / two - 1) < 1e-9);
        assert_int_equal(p.plan.inner_ranks,
                         p.plan.two_level_ms < p.plan.one_ring_ms ? w : 0);
        if (o > 1.01 * c) /* exactly where a block takes longer to the next node */
            assert_int_equal(p.plan.inner_ranks, w);
        fixture_plan_free(&p);
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

static void plan_files(void **state)
{
    static char json[1 << 16], again[1 << 16];
    uint64_t seed = 13;
    int two = 0;

    (void)state;
    for (int i = 0; i < 60; i++) {
        struct rings_case c;
        struct fixture_plan back;
        char text[512] = "", *at;
        uint64_t print;

        make_case(&c, &seed);
        fixture_split(c.ring, &c.question, &c.p, text, sizeof text);
        assert_string_equal(text, "");
        two += c.p.plan.inner_ranks > 0;
        assert_int_equal(hcp_plan_to_json(&c.p.plan, json, sizeof json, NULL), 0);
        fixture_plan_init(&back, c.n);
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &back.plan);
        assert_string_equal(text, "");
        assert_int_equal(back.plan.inner_ranks, c.p.plan.inner_ranks);
        assert_int_equal(hcp_plan_to_json(&back.plan, again, sizeof again, NULL), 0);
        assert_string_equal(json, again);
        print = c.p.plan.fingerprint;
        assert_true(hcp_plan_fingerprint(&back.plan) == print);
        back.plan.inner_ranks++;
        assert_true(hcp_plan_fingerprint(&back.plan) != print);
        back.plan.inner_ranks--;
        back.plan.node_shared_gbps += 1;
        assert_true(hcp_plan_fingerprint(&back.plan) != print);
        at = strstr(json, "\"node_ranks\":");
        assert_non_null(at);
        memcpy(at, "\"nose_ranks\":", 13); /* rings of rings without nodes */
        assert_int_equal(
            hcp_plan_from_json(json, strlen(json), text, sizeof text, &back.plan),
            HCP_STATUS_FORMAT);
        fixture_plan_free(&back);
        free_case(&c);
    }
    assert_true(two > 5);
}

/* Two levels need the memory of two more blocks, and are not taken without it. */
static void memory(void **state)
{
    static const struct fixture kind = {
        .device = "d0", .a = 2e-8, .tile = 64, .lut = 1, .error = 0.02};
    static int64_t tokens[8];
    hcp_models *models = fixture_models(&kind, 1);
    int64_t one_bytes = 0, block;

    (void)state;
    for (int i = 0; i < 8; i++)
        tokens[i] = 4096;
    for (int round = 0; round < 3; round++) {
        hcp_rank ranks[8];
        hcp_shape shape;
        hcp_ring *ring = NULL;
        hcp_question q;
        struct fixture_plan p;
        char text[512] = "";

        for (int i = 0; i < 8; i++) {
            hcp_rank_init(&ranks[i]);
            strcpy(ranks[i].device, kind.device);
        }
        ranks[5].max_bytes = round == 2 ? one_bytes : 0;
        hcp_shape_init(&shape);
        hcp_ring_create(models, &shape, ranks, 8, NULL, text, sizeof text, &ring);
        fixture_plan_init(&p, 8);
        hcp_question_init(&q);
        q.seq_len = 8 * 4096;
        q.layout = HCP_LAYOUT_CONTIGUOUS;
        q.node_ranks = 4;
        q.node_gbps = 2;
        q.rings = round == 0 ? HCP_RINGS_ONE : HCP_RINGS_BEST;
        hcp_plan_evaluate(ring, &q, tokens, p.workspace, p.workspace_bytes, text,
                          sizeof text, &p.plan);
        assert_string_equal(text, "");
        assert_int_equal(hcp_plan_memory(&p.plan, NULL, 0), HCP_STATUS_OK);
        block = 4096 * (int64_t)ring->token_bytes;
        if (round == 0)
            one_bytes = p.plan.ranks[5].memory_bytes;
        assert_int_equal(p.plan.inner_ranks, round == 1 ? 4 : 0);
        assert_int_equal(p.plan.ranks[5].memory_bytes,
                         one_bytes + (round == 1 ? 2 * block : 0));
        assert_true(isnan(p.plan.two_level_ms) == (round != 1));
        fixture_plan_free(&p);
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

static void refusals(void **state)
{
    uint64_t seed = 14;
    struct rings_case c;
    hcp_link link = {.from = 0, .to = 1, .gbps = 1};
    hcp_question q;
    char text[512];

    (void)state;
    make_case(&c, &seed);
    q = c.question;
    q.node_ranks = 0;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_INVALID);
    assert_non_null(strstr(text, "need nodes"));
    q = c.question;
    q.node_gbps = -1;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_INVALID);
    q = c.question;
    q.links = &link;
    q.n_links = 1;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_INVALID);
    assert_non_null(strstr(text, "leave links"));
    q = c.question;
    q.rings = (hcp_rings)2;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_INVALID);
    free_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs),        cmocka_unit_test(choices),
        cmocka_unit_test(closed_forms), cmocka_unit_test(plan_files),
        cmocka_unit_test(memory),       cmocka_unit_test(refusals)};

    return cmocka_run_group_tests_name("plan-rings", tests, NULL, NULL);
}
