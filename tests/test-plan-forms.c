/* SPDX-License-Identifier: Apache-2.0
 *
 * The closed forms of theory.md, to one tile, on models that are pure area (t = a q kv),
 * and geometry: areas and blocks of every layout against kernels/geometry.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/geometry.h"
#include "tests/plan-fixture.h"

enum { TILE = 64, MAX = 12 };
static const char *const names[MAX] = {"d0", "d1", "d2", "d3", "d4",  "d5",
                                       "d6", "d7", "d8", "d9", "d10", "d11"};

struct group {
    struct fixture fixtures[MAX];
    hcp_models *models;
    hcp_ring *ring;
    struct fixture_plan plan;
};

/* Ranks of these speeds (1 = fastest). */
static void open_group(struct group *g, const double *speed, size_t n)
{
    static const int which[MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

    memset(g, 0, sizeof *g);
    for (size_t i = 0; i < n; i++)
        g->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = 1e-8 / speed[i],
                                          .tile = TILE,
                                          .poly = 1,
                                          .error = 0.01};
    g->models = fixture_models(g->fixtures, n);
    g->ring = fixture_ring(g->models, g->fixtures, which, NULL, n);
    fixture_plan_init(&g->plan, n);
}

static void close_group(struct group *g)
{
    fixture_plan_free(&g->plan);
    hcp_ring_free(g->ring);
    fixture_free(g->models);
}

static const hcp_plan *ask(struct group *g, int64_t seq_len, int causal,
                           hcp_layout layout, int buffers)
{
    hcp_question q;
    char text[512] = "";

    hcp_question_init(&q);
    q.seq_len = seq_len;
    q.causal = causal;
    q.layout = layout;
    q.buffers = buffers;
    q.extrapolate = 1;
    fixture_split(g->ring, &q, &g->plan, text, sizeof text);
    assert_string_equal(text, "");
    return &g->plan.plan;
}

#define NEAR(got, want, slack)                                                           \
    do {                                                                                 \
        double got_ = (got), want_ = (want), slack_ = (slack);                           \
        if (!(fabs(got_ - want_) <= slack_)) {                                           \
            print_error("%s = %.9g, wanted %.9g +- %.3g\n", #got, got_, want_, slack_);  \
            fail();                                                                      \
        }                                                                                \
    } while (0)

/* Of infinitely many stripes each remote block is half of x0 x1; of m stripes the later
 * rank has 1 / (2 m) more of it and the earlier one less. Equal times by bisection. */
static double striped_share(double s, double m)
{
    double lo = 0, hi = 1;

    for (int i = 0; i < 60; i++) {
        double x = (lo + hi) / 2, y = 1 - x;
        double t0 = x * x / 2 + x * y * (0.5 - 0.5 / m);
        double t1 = (y * y / 2 + x * y * (0.5 + 0.5 / m)) / s;

        if (t0 < t1)
            lo = x;
        else
            hi = x;
    }
    return lo;
}

static void pairs(void **state)
{
    static const double slow[] = {0.9, 0.5, 0.3, 0.25, 0.1, 0.05};
    const int64_t S = 65536;

    (void)state;
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        double s = slow[i], last[2] = {1, s}, first[2] = {s, 1};
        struct group g;
        const hcp_plan *plan;

        open_group(&g, last, 2);
        for (int k = 0; k < 2; k++) { /* work linear in the share */
            plan = ask(&g, S, k, k ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS, 2);
            assert_int_equal(plan->tile, k ? 2 * TILE : TILE);
            NEAR((double)plan->ranks[0].tokens, (double)S / (1 + s), (double)plan->tile);
            NEAR(plan->gain_over_even, (1 + s) / (2 * s), 0.01 * (1 + s) / (2 * s));
            NEAR(plan->makespan_ms, plan->bound_ms, 0.01 * plan->bound_ms);
            NEAR(plan->drop_ms / plan->makespan_ms, 1 + s, 0.01 * (1 + s));
        }
        plan = ask(&g, S, 1, HCP_LAYOUT_STRIPED, 2);
        assert_int_equal(plan->tile, 8 * TILE);
        NEAR((double)plan->ranks[0].tokens, (double)S * striped_share(s, 8), 8 * TILE);
        plan = ask(&g, S, 1, HCP_LAYOUT_CONTIGUOUS, 2);
        NEAR((double)plan->ranks[0].tokens, (double)S / sqrt(1 + s), TILE);
        NEAR(plan->gain_over_even, 0.75 * (1 + s) / s, 0.01 * (1 + s) / s);
        close_group(&g);
        open_group(&g, first, 2);
        plan = ask(&g, S, 1, HCP_LAYOUT_CONTIGUOUS, 2);
        NEAR((double)plan->ranks[0].tokens, (double)S * sqrt(s / (1 + s)), TILE);
        NEAR(plan->gain_over_even, fmax(0.25 / s, 0.75) * (1 + s), 0.02 * (1 + s));
        close_group(&g);
    }
}

/* With buffers for every block nobody waits, as the closed forms assume. Ranks that are
 * not the last to finish may be a tile off their share for nothing, so two are allowed;
 * what counts, the makespan, is within the tiles' granularity of the bound. */
static void groups(void **state)
{
    uint64_t seed = 5;
    const int64_t S = 65536;

    (void)state;
    for (int round = 0; round < 40; round++) {
        size_t n = (size_t)fixture_range(&seed, 3, MAX);
        double speed[MAX], sum = 0, cum = 0, slowest = 1;
        struct group g;
        const hcp_plan *plan;
        int64_t border = 0;

        for (size_t r = 0; r < n; r++) {
            speed[r] = fixture_real(&seed, 0.1, 1);
            sum += speed[r];
            slowest = fmin(slowest, speed[r]);
        }
        open_group(&g, speed, n);
        for (int causal = 0; causal < 2; causal++) {
            plan =
                ask(&g, S, causal, causal ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS, 0);
            assert_int_equal(plan->tile, causal ? 2 * TILE : TILE);
            for (size_t r = 0; r < n; r++)
                NEAR((double)plan->ranks[r].tokens, (double)S * speed[r] / sum,
                     2 * (double)plan->tile);
            NEAR(plan->gain_over_even, sum / ((double)n * slowest), 0.03 * (double)n);
        }
        plan = ask(&g, S, 1, HCP_LAYOUT_CONTIGUOUS, 0);
        for (size_t r = 0; r < n; r++) {
            border += plan->ranks[r].tokens;
            cum += speed[r];
            NEAR((double)border, (double)S * sqrt(cum / sum), 2 * TILE);
        }
        NEAR(plan->makespan_ms, plan->bound_ms, 0.03 * plan->bound_ms);
        close_group(&g);
    }
}

/* What shares are multiples of: kernel tiles; under a causal mask, of every run of a
 * share's tokens, where there are four such units a rank and the caps allow them. */
static void units(void **state)
{
    static const struct {
        int64_t seq_len, cap, tile;
        int32_t causal, stripes;
        hcp_layout layout;
        int64_t want;
    } cases[] = {
        {2048, 0, 0, 1, 8, HCP_LAYOUT_ZIGZAG, 2 * TILE},
        {2047, 0, 0, 1, 8, HCP_LAYOUT_ZIGZAG, TILE},
        {2048, 0, 0, 0, 8, HCP_LAYOUT_ZIGZAG, TILE},
        {2048, 0, 0, 1, 8, HCP_LAYOUT_CONTIGUOUS, TILE},
        {2048, 0, TILE, 1, 8, HCP_LAYOUT_ZIGZAG, TILE},
        {8192, 0, 1, 1, 8, HCP_LAYOUT_STRIPED, 1},
        {8192, 0, 0, 1, 8, HCP_LAYOUT_STRIPED, 8 * TILE},
        {8191, 0, 0, 1, 8, HCP_LAYOUT_STRIPED, TILE},
        {8191, 0, 0, 1, 7, HCP_LAYOUT_STRIPED, 7 * TILE},
        {8192, 0, 0, 0, 8, HCP_LAYOUT_STRIPED, TILE},
        {8192, 0, 0, 1, 1, HCP_LAYOUT_STRIPED, TILE},
        /* 18 units, of which caps of 4 1/2 hold 16, caps of 5 hold 20; with a rest */
        {2304, 576, 0, 1, 8, HCP_LAYOUT_ZIGZAG, TILE},
        {2304, 640, 0, 1, 8, HCP_LAYOUT_ZIGZAG, 2 * TILE},
        {2304 + 64, 640, 0, 1, 8, HCP_LAYOUT_ZIGZAG, 2 * TILE},
        {2560 - 64, 640, 0, 1, 8, HCP_LAYOUT_ZIGZAG, 2 * TILE}};
    static const int which[] = {0, 1, 2, 3};
    static const double speed[4] = {1, 0.5, 1, 0.3};
    struct group g;

    (void)state;
    open_group(&g, speed, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t caps[4] = {cases[i].cap, cases[i].cap, cases[i].cap, cases[i].cap};
        hcp_question q;
        char text[512];

        hcp_ring_free(g.ring);
        g.ring = fixture_ring(g.models, g.fixtures, which, caps, 4);
        hcp_question_init(&q);
        q.seq_len = cases[i].seq_len;
        q.causal = cases[i].causal;
        q.layout = cases[i].layout;
        q.stripes = cases[i].stripes;
        q.tile = cases[i].tile;
        for (int strategy = 0; strategy <= HCP_STRATEGY_BEST; strategy++) {
            int64_t odd = 0;

            q.strategy = (hcp_strategy)strategy;
            if (strategy == HCP_STRATEGY_LUT)
                continue;
            assert_int_equal(fixture_split(g.ring, &q, &g.plan, text, sizeof text),
                             HCP_STATUS_OK);
            NEAR((double)g.plan.plan.tile, (double)cases[i].want, 0);
            for (size_t r = 0; r < 4; r++)
                odd += g.plan.plan.ranks[r].tokens % cases[i].want != 0;
            assert_true(odd <= 1);
        }
        if (cases[i].cap == 0)
            continue;
        q.seq_len = 4 * cases[i].cap + 1; /* too long in any units: the smallest count */
        assert_int_equal(fixture_split(g.ring, &q, &g.plan, text, sizeof text),
                         HCP_STATUS_INFEASIBLE);
        assert_non_null(strstr(text, "in tiles of 64;"));
    }
    close_group(&g);
}

/* ---- geometry ---- */

struct call_area {
    int64_t area;
};

static void add_area(void *ctx, int64_t q_len, int64_t kv_len)
{
    ((struct call_area *)ctx)->area += q_len * kv_len;
}

/* Visible pairs of rank i's tokens and rank j's, from their segments' positions. */
static int64_t area_between(const hcp_segment *mine, int64_t n_mine,
                            const hcp_segment *theirs, int64_t n_theirs, int causal)
{
    int64_t area = 0;

    for (int64_t a = 0; a < n_mine; a++)
        for (int64_t b = 0; b < n_theirs; b++)
            area +=
                hcp_block_area(causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, mine[a].length,
                               theirs[b].length, mine[a].offset - theirs[b].offset);
    return area;
}

static void areas(void **state)
{
    uint64_t seed = 11;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        int64_t tokens[MAX], counts[MAX], by_rank[MAX], first[MAX], total = 0;
        hcp_segment segments[MAX * 16];
        struct problem p = {0};

        p.n = (size_t)fixture_range(&seed, 1, MAX);
        p.causal = (int)fixture_range(&seed, 0, 4) > 0;
        p.layout =
            (hcp_layout)fixture_range(&seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
        p.stripes = (int32_t)fixture_range(&seed, 1, 16);
        for (size_t r = 0; r < p.n; r++) {
            tokens[r] = fixture_range(&seed, 0, 3) ? fixture_range(&seed, 0, 300) : 0;
            p.seq_len += tokens[r];
        }
        if (p.seq_len == 0)
            continue;
        cost_areas(&p, tokens, by_rank);
        cost_segments(p.layout, p.stripes, p.n, tokens, p.seq_len, segments, counts);
        for (size_t r = 0, at = 0; r < p.n; at += (size_t)counts[r++])
            first[r] = (int64_t)at;
        for (size_t i = 0; i < p.n; i++) {
            int64_t seen = 0, len = tokens[i];

            for (size_t j = 0; j < p.n; j++) {
                int64_t pair = area_between(segments + first[i], counts[i],
                                            segments + first[j], counts[j], p.causal);
                struct call_area calls = {0};

                seen += pair;
                if (i == j) {
                    assert_int_equal(pair, p.causal ? len * (len + 1) / 2 : len * len);
                    continue;
                }
                /* What the cost of a block is made of covers exactly what is visible. */
                cost_each_call(&p, len, tokens[j], j < i, add_area, &calls);
                assert_int_equal(calls.area, pair);
            }
            assert_int_equal(seen, by_rank[i]);
            total += seen;
        }
        assert_int_equal(total, p.causal ? p.seq_len * (p.seq_len + 1) / 2
                                         : p.seq_len * p.seq_len);
    }
}

/* Sequences shorter than a tile, than the group, of one token; one rank; zero shares. */
static void small_sequences(void **state)
{
    static const double speed[5] = {1, 0.5, 1, 0.3, 0.9};

    (void)state;
    for (size_t n = 1; n <= 5; n++) {
        struct group g;

        open_group(&g, speed, n);
        for (int64_t S = 1; S <= 3 * TILE; S += S < 70 ? 1 : 13) {
            for (int causal = 0; causal < 2; causal++) {
                for (int layout = 0; layout <= 3; layout++) {
                    for (int strategy = 0; strategy <= 5; strategy++) {
                        hcp_question q;
                        char text[512] = "";
                        int64_t sum = 0, odd = 0;

                        if (strategy == HCP_STRATEGY_LUT)
                            continue;
                        hcp_question_init(&q);
                        q.seq_len = S;
                        q.causal = causal;
                        q.layout = (hcp_layout)layout;
                        q.strategy = (hcp_strategy)strategy;
                        fixture_split(g.ring, &q, &g.plan, text, sizeof text);
                        assert_string_equal(text, "");
                        for (size_t r = 0; r < n; r++) {
                            sum += g.plan.plan.ranks[r].tokens;
                            odd += g.plan.plan.ranks[r].tokens % TILE != 0;
                        }
                        assert_int_equal(sum, S);
                        assert_true(odd <= 1);
                        assert_true(g.plan.plan.makespan_ms > 0);
                    }
                }
            }
        }
        close_group(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs), cmocka_unit_test(groups),
                                       cmocka_unit_test(units), cmocka_unit_test(areas),
                                       cmocka_unit_test(small_sequences)};

    return cmocka_run_group_tests_name("plan-forms", tests, NULL, NULL);
}
