/* SPDX-License-Identifier: Apache-2.0
 *
 * Caps in bytes: plans against brute force, no cap ever exceeded by what is written
 * plainly, what is missing where nothing fits. HCP_TEST_SCALE=50 runs 100,000 problems.
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

enum { MAX = 64, KV = 2 * 8 * 128 * 2 };

struct memory_case {
    struct fixture fixtures[4];
    hcp_rank ranks[MAX];
    size_t n;
    hcp_question question;
};

static void random_case(struct memory_case *c, size_t n, int64_t most, uint64_t *seed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    static const int64_t tiles[] = {1, 16, 64, 128, 100};
    hcp_question *q = &c->question;
    int64_t tile = tiles[fixture_range(seed, 0, 4)], each;
    int kinds = (int)fixture_range(seed, 1, 4);

    memset(c, 0, sizeof *c);
    c->n = n;
    for (int i = 0; i < 4; i++) {
        double speed = fixture_real(seed, 0.05, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .tile = tile,
                                          .error = 0.02,
                                          .a = 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 4e-5) / speed,
                                          .c = fixture_real(seed, 0, 2e-5),
                                          .f = fixture_real(seed, 1e-6, 0.05),
                                          .lut = 1};
    }
    hcp_question_init(q);
    q->seq_len = fixture_range(seed, 1, most * tile);
    q->tile = fixture_range(seed, 0, 2) ? tile : 0;
    q->causal = (int32_t)fixture_range(seed, 0, 3) > 0;
    q->layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    q->stripes = (int32_t)fixture_range(seed, 1, 9);
    q->buffers = (int32_t)fixture_range(seed, 0, 3);
    q->barrier = fixture_range(seed, 0, 4) == 0;
    q->layers =
        (int32_t)fixture_range(seed, 0, 1) ? 1 : (int32_t)fixture_range(seed, 0, 32);
    q->activation_bytes = fixture_range(seed, 0, 2) ? 0 : fixture_range(seed, 1, 20000);
    if (fixture_range(seed, 0, 1)) {
        q->link_alpha_us = fixture_real(seed, 0, 300);
        q->link_gbps = fixture_real(seed, 0.5, 50);
    }
    q->extrapolate = 1;
    /* What an even split would about need, buffers included. */
    each = q->seq_len / (int64_t)n + 1;
    for (size_t r = 0; r < n; r++) {
        int64_t even = each * (q->layers * KV + q->activation_bytes + 2 * KV);

        hcp_rank_init(&c->ranks[r]);
        strcpy(c->ranks[r].device, names[fixture_range(seed, 0, kinds - 1)]);
        if (fixture_range(seed, 0, 5))
            c->ranks[r].max_bytes = even / 4 + fixture_range(seed, 1, 2 * even + 1);
        if (fixture_range(seed, 0, 3) == 0)
            c->ranks[r].weight_bytes = fixture_range(seed, 0, even / 4);
        if (fixture_range(seed, 0, 9) == 0)
            c->ranks[r].max_tokens = fixture_range(seed, 1, 2 * each);
    }
    c->ranks[0].max_bytes += c->ranks[0].max_bytes == 0;
    c->ranks[0].max_bytes += each * KV;
}

static void brute_force(void **state)
{
    uint64_t seed = 700;
    int problems = (int)(600 * fixture_scale()), infeasible = 0, solved = 0, bound = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 3);
        struct memory_case c;
        struct fixture_plan p, loose;
        hcp_models *models;
        hcp_ring *ring;
        int64_t brute[3], tokens[3], bytes[3];
        double best, again;
        hcp_status status;
        char text[512] = "";

        random_case(&c, n, n == 2 ? 64 : 27, &seed);
        if (c.question.tile == 0)
            c.question.tile = c.fixtures[0].tile;
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        fixture_plan_init(&loose, n);
        best = reference_best(ring, &c.question, brute);
        status = fixture_split(ring, &c.question, &p, text, sizeof text);
        if (best < 0) {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            infeasible++;
        } else {
            assert_string_equal(text, "");
            assert_true(p.plan.exact);
            for (size_t r = 0; r < n; r++)
                tokens[r] = p.plan.ranks[r].tokens;
            again = reference_makespan(ring, HCP_MODEL_BEST, &c.question, tokens);
            if (fabs(p.plan.makespan_ms - again) > 1e-12 * again ||
                fabs(again - best) > 1e-12 * best) {
                print_error("problem %d: plan %.17g, plan again %.17g, brute %.17g\n", i,
                            p.plan.makespan_ms, again, best);
                fail();
            }
            reference_memory(ring, &c.question, tokens, bytes);
            for (size_t r = 0; r < n; r++)
                assert_int_equal(bytes[r], p.plan.ranks[r].memory_bytes);
            solved++;
            /* Did the caps matter? */
            hcp_ring_free(ring);
            for (size_t r = 0; r < n; r++)
                c.ranks[r].max_bytes = 0;
            ring = fixture_ring_of(models, c.ranks, n);
            fixture_split(ring, &c.question, &loose, text, sizeof text);
            assert_true(loose.plan.makespan_ms <= p.plan.makespan_ms);
            bound += loose.plan.makespan_ms < p.plan.makespan_ms;
        }
        fixture_plan_free(&p);
        fixture_plan_free(&loose);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message("# %d problems, %d infeasible, %d solved, caps cost time in %d\n",
                  problems, infeasible, solved, bound);
    assert_true(infeasible > problems / 20 && bound > solved / 5);
}

/* 0 violations, by what is written plainly, over strategies, pieces, layouts. */
static void never_exceeded(void **state)
{
    uint64_t seed = 701;
    int problems = (int)(2000 * fixture_scale()), solved = 0, exact = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 1, fixture_range(&seed, 1, 16));
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        hcp_question q;
        int64_t tokens[MAX], bytes[MAX], sum = 0;
        hcp_status status;
        char text[512] = "";

        if (fixture_range(&seed, 0, 19) == 0)
            n = MAX;
        random_case(&c, n, 20 * (int64_t)n, &seed);
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.sub_blocks = (int32_t)fixture_range(&seed, 2, 7);
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.layout = HCP_LAYOUT_AUTO;
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.strategy = (hcp_strategy)fixture_range(&seed, HCP_STRATEGY_EVEN,
                                                              HCP_STRATEGY_PROPORTIONAL);
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        status = fixture_split(ring, &c.question, &p, text, sizeof text);
        if (status == HCP_STATUS_OK) {
            solved++;
            q = c.question;
            q.layout = p.plan.layout;
            q.tile = p.plan.tile;
            for (size_t r = 0; r < n; r++) {
                sum += tokens[r] = p.plan.ranks[r].tokens;
                assert_true(c.ranks[r].max_tokens == 0 ||
                            tokens[r] <= c.ranks[r].max_tokens);
            }
            assert_int_equal(sum, q.seq_len);
            reference_memory(ring, &q, tokens, bytes);
            for (size_t r = 0; r < n; r++) {
                assert_int_equal(bytes[r], p.plan.ranks[r].memory_bytes);
                assert_true(c.ranks[r].max_bytes == 0 ||
                            bytes[r] <= c.ranks[r].max_bytes);
                exact += c.ranks[r].max_bytes > 0 &&
                         bytes[r] * 100 > c.ranks[r].max_bytes * 95;
            }
            /* The same split is taken when it is given. */
            assert_int_equal(hcp_plan_evaluate(ring, &q, tokens, p.workspace,
                                               p.workspace_bytes, text, sizeof text,
                                               &p.plan),
                             HCP_STATUS_OK);
        } else {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            assert_true(strstr(text, "short by") || strstr(text, "no split"));
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message("# %d problems, %d solved, %d ranks nearly full\n", problems, solved,
                  exact);
    assert_true(solved > problems / 3 && exact > solved / 10);
}

static int fits(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens)
{
    int64_t bytes[MAX];

    reference_memory(ring, q, tokens, bytes);
    for (size_t r = 0; r < ring->n; r++)
        if ((ring->ranks[r].spec.max_bytes > 0 &&
             bytes[r] > ring->ranks[r].spec.max_bytes) ||
            (ring->ranks[r].spec.max_tokens > 0 &&
             tokens[r] > ring->ranks[r].spec.max_tokens))
            return 0;
    return 1;
}

/* The best of all splits of four ranks into whole tiles and one rest; -1: none fits. */
static double best_of_four(const hcp_ring *ring, const hcp_question *q)
{
    int64_t tiles = q->seq_len / q->tile, rest = q->seq_len % q->tile, t[4];
    double best = -1;

    for (int64_t a = 0; a <= tiles; a++)
        for (int64_t b = 0; b <= tiles - a; b++)
            for (int64_t c = 0; c <= tiles - a - b; c++)
                for (int holder = 0; holder < (rest ? 4 : 1); holder++) {
                    double ms;

                    t[0] = a * q->tile;
                    t[1] = b * q->tile;
                    t[2] = c * q->tile;
                    t[3] = (tiles - a - b - c) * q->tile;
                    t[holder] += rest;
                    if (!fits(ring, q, t))
                        continue;
                    ms = reference_makespan(ring, HCP_MODEL_BEST, q, t);
                    best = best < 0 || ms < best ? ms : best;
                }
    return best;
}

/* Four ranks, by search: infeasible only where no split fits, and close to the best. (A
 * share of one token does not see later ranks' blocks, which the caps that the search
 * begins with do not count on: there is none at tiles above 1.) */
static void four_ranks(void **state)
{
    uint64_t seed = 702;
    int problems = (int)(250 * fixture_scale()), solved = 0, same = 0, fit = 0;
    int near = 0;
    double worst = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        double best, loss;
        hcp_status status;
        char text[512] = "";

        random_case(&c, 4, 12, &seed);
        c.question.tile = c.fixtures[0].tile;
        if (c.question.tile > 1)
            c.question.seq_len += c.question.seq_len % c.question.tile == 1;
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, 4);
        fixture_plan_init(&p, 4);
        best = best_of_four(ring, &c.question);
        status = fixture_split(ring, &c.question, &p, text, sizeof text);
        if (best < 0)
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
        else if (c.question.tile > 1 && status != HCP_STATUS_OK)
            fail_msg("problem %d: %s", i, text);
        fit += best >= 0;
        if (status == HCP_STATUS_OK) {
            loss = p.plan.makespan_ms / best - 1;
            assert_true(loss > -1e-9);
            solved++;
            same += loss < 1e-9;
            near += loss < 0.01;
            worst = fmax(worst, loss);
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message(
        "# %d problems, %d fit, %d solved; best found in %d, within 1 %% in %d, "
        "%.1f %% slower at most\n",
        problems, fit, solved, same, near, 100 * worst);
    assert_true(solved >= fit - fit / 200 && near >= solved * 98 / 100);
    assert_true(solved > problems / 2 && solved < problems * 9 / 10);
}

/* The best of all splits with the first r ranks as they are and `tiles` tiles for the
 * others, `rest` going to one of them unless it is gone; -1: none fits. */
static double best_of_all(const hcp_ring *ring, const hcp_question *q, size_t r,
                          int64_t tiles, int64_t rest, int64_t *t)
{
    double best = -1;

    for (int64_t mine = r + 1 < ring->n ? 0 : tiles; mine <= tiles; mine++)
        for (int with = 0; with <= (rest > 0); with++) {
            double ms;

            if (r + 1 == ring->n && rest > 0 && !with)
                continue;
            t[r] = mine * q->tile + (with ? rest : 0);
            if (r + 1 < ring->n)
                ms = best_of_all(ring, q, r + 1, tiles - mine, with ? 0 : rest, t);
            else if (fits(ring, q, t))
                ms = reference_makespan(ring, HCP_MODEL_BEST, q, t);
            else
                continue;
            best = ms >= 0 && (best < 0 || ms < best) ? ms : best;
        }
    return best;
}

/* Five to eight ranks, by search, in coarse tiles: as of four. */
static void more_ranks(void **state)
{
    static const int64_t most[] = {16, 14, 12, 10};
    uint64_t seed = 704;
    int problems = (int)(300 * fixture_scale()), solved = 0, same = 0, fit = 0;
    int near = 0, refused = 0;
    double worst = 0, sum = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = 5 + (size_t)i % 4;
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        int64_t tokens[MAX];
        double best, loss;
        hcp_status status;
        char text[512] = "";

        random_case(&c, n, most[n - 5], &seed);
        c.question.tile = c.fixtures[0].tile > 1 ? c.fixtures[0].tile : 16;
        c.question.seq_len += c.question.seq_len % c.question.tile == 1;
        if (i % 3) /* often none */
            c.question.seq_len -= c.question.seq_len % c.question.tile;
        c.question.seq_len += c.question.seq_len == 0;
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        best = best_of_all(ring, &c.question, 0, c.question.seq_len / c.question.tile,
                           c.question.seq_len % c.question.tile, tokens);
        status = fixture_split(ring, &c.question, &p, text, sizeof text);
        if (best < 0)
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
        fit += best >= 0;
        refused += best >= 0 && status;
        if (status == HCP_STATUS_OK) {
            loss = p.plan.makespan_ms / best - 1;
            assert_true(loss > -1e-9);
            solved++;
            same += loss < 1e-9;
            near += loss < 0.01;
            sum += loss;
            worst = fmax(worst, loss);
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message(
        "# 5 to 8 ranks: %d problems, %d fit, %d refused, %d solved; best found "
        "in %d, within 1 %% in %d, %.2f %% slower on average, %.1f %% at most\n",
        problems, fit, refused, solved, same, near, 100 * sum / solved, 100 * worst);
    assert_true(refused <= fit / 200 && near >= solved * 98 / 100);
}

/* What is said to be missing is: so many bytes more on that rank, and there is a plan;
 * one less, and there is none (but for shares of one token, see above). Where no rank
 * alone can help, none can. */
static void what_is_missing(void **state)
{
    uint64_t seed = 703;
    int problems = (int)(600 * fixture_scale()), told = 0, forward = 0, hopeless = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 8);
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        long long bytes;
        size_t rank;
        char text[512] = "", *at;

        random_case(&c, n, 20, &seed);
        c.question.tile = c.fixtures[0].tile;
        if (c.question.tile == 1)
            c.question.tile = 16;
        c.question.seq_len += c.question.seq_len % c.question.tile == 1;
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.layout = HCP_LAYOUT_AUTO;
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.sub_blocks = 3;
        models = fixture_models(c.fixtures, 4);
        for (size_t r = 0; r < n; r++)
            c.ranks[r].max_bytes -= c.ranks[r].max_bytes / 3;
        if (fixture_range(&seed, 0, 9) == 0)
            for (size_t r = 0; r < n; r++)
                c.ranks[r].max_tokens = c.question.seq_len / (int64_t)(2 * n) + 1;
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        if (fixture_split(ring, &c.question, &p, text, sizeof text) == HCP_STATUS_OK)
            goto next;
        assert_non_null(strstr(text, "the memory caps are short by "));
        at = strstr(text, "least is missing on rank ");
        if (!at) { /* whatever one of them has */
            hopeless++;
            assert_non_null(strstr(text, "no rank alone could hold them"));
            for (size_t r = 0; r < n; r++) {
                int64_t had = c.ranks[r].max_bytes;

                if (had == 0)
                    continue;
                c.ranks[r].max_bytes = HCP_PLAN_MAX_BYTES;
                hcp_ring_free(ring);
                ring = fixture_ring_of(models, c.ranks, n);
                assert_int_equal(fixture_split(ring, &c.question, &p, text, sizeof text),
                                 HCP_STATUS_INFEASIBLE);
                c.ranks[r].max_bytes = had;
            }
            goto next;
        }
        assert_int_equal(sscanf(at, "least is missing on rank %zu", &rank), 1);
        at = strstr(at, "): ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "): %lld bytes beyond", &bytes), 1);
        assert_true(rank < n && bytes > 0);
        told++;
        forward += c.question.causal && (c.question.layout == HCP_LAYOUT_CONTIGUOUS ||
                                         c.question.layout == HCP_LAYOUT_AUTO);
        for (int more = 1; more >= 0; more--) {
            hcp_status status;

            c.ranks[rank].max_bytes += more ? bytes : -1;
            hcp_ring_free(ring);
            ring = fixture_ring_of(models, c.ranks, n);
            status = fixture_split(ring, &c.question, &p, text, sizeof text);
            if (status != (more ? HCP_STATUS_OK : HCP_STATUS_INFEASIBLE))
                fail_msg("problem %d, %lld bytes more on rank %zu: %s", i, bytes - !more,
                         rank, more ? text : "there is a plan");
        }
    next:
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message(
        "# %d problems, %d infeasible, of those %d with blocks going forward and "
        "%d beyond one rank's help\n",
        problems, told + hopeless, forward, hopeless);
    assert_true(told > problems / 8 && forward > told / 10 && hopeless > 0);
}

static int64_t memory_buffers_of(const hcp_question *q, size_t n)
{
    return q->buffers > 0 && q->buffers < (int32_t)n - 1 ? q->buffers : (int64_t)n - 1;
}

/* Is there a split into units (and one rest) of up to three ranks that fits? */
static int some_split_fits(const hcp_ring *ring, const hcp_question *q, int64_t unit)
{
    int64_t units = q->seq_len / unit, rest = q->seq_len % unit, t[3];
    int n = (int)ring->n, fit = 0;

    for (int holder = 0; holder < n; holder++)
        for (int64_t a = 0; a <= units; a++)
            for (int64_t b = 0; b <= (n == 3 ? units - a : 0); b++) {
                t[0] = a * unit;
                t[1] = n == 3 ? b * unit : (units - a) * unit;
                t[2] = (units - a - b) * unit;
                t[holder] += rest;
                fit |= fits(ring, q, t);
            }
    return fit;
}

/* Halves and stripes of shares are whole kernel tiles where caps in bytes leave a split
 * into those, and kernel tiles where only they fit. */
static void tile_choice(void **state)
{
    uint64_t seed = 704;
    int problems = (int)(400 * fixture_scale()), coarse = 0, fine = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 3);
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        hcp_question q;
        int64_t tile, unit;
        hcp_status status;
        char text[512] = "";

        random_case(&c, n, 20, &seed);
        tile = c.fixtures[0].tile > 1 ? c.fixtures[0].tile : 16;
        for (int k = 0; k < 4; k++)
            c.fixtures[k].tile = tile;
        c.question.causal = 1;
        c.question.layout =
            fixture_range(&seed, 0, 1) ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_STRIPED;
        c.question.tile = 0;
        unit = tile * (c.question.layout == HCP_LAYOUT_ZIGZAG ? 2 : c.question.stripes);
        c.question.seq_len = fixture_range(&seed, 4 * (int64_t)n, 8 * (int64_t)n) * unit +
                             fixture_range(&seed, 2, tile);
        for (size_t r = 0; r < n; r++) {
            /* About what half or twice an even share takes. */
            int64_t each = c.question.seq_len / (int64_t)n *
                           (c.question.layers * KV + c.question.activation_bytes +
                            memory_buffers_of(&c.question, n) * KV);

            c.ranks[r].max_bytes = c.ranks[r].weight_bytes + each +
                                   fixture_range(&seed, -each / 5, each / 4);
            c.ranks[r].max_tokens = 0;
        }
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        q = c.question;
        q.tile = unit;
        status = fixture_split(ring, &c.question, &p, text, sizeof text);
        if (some_split_fits(ring, &q, unit)) {
            assert_int_equal(status, HCP_STATUS_OK);
            assert_int_equal(p.plan.tile, unit);
            coarse++;
        } else if (status == HCP_STATUS_OK) {
            assert_int_equal(p.plan.tile, tile);
            fine += unit > tile;
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message("# %d problems, units of several tiles in %d, of one in %d\n", problems,
                  coarse, fine);
    assert_true(coarse > problems / 4 && fine > problems / 100);
}

/* Into JSON and back, in the fingerprint, and none of it where there is none. */
static void json(void **state)
{
    static const struct fixture same[] = {
        {.device = "d0", .a = 2e-8, .f = 0.01, .tile = 128, .poly = 1, .error = 0.01}};
    hcp_models *models = fixture_models(same, 1);
    hcp_rank ranks[2];
    hcp_ring *ring;
    hcp_question q;
    struct fixture_plan p, copy;
    char text[512] = "", out[4096], again[4096], *bad;
    uint64_t before;

    (void)state;
    for (int r = 0; r < 2; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, "d0");
    }
    ring = fixture_ring_of(models, ranks, 2);
    fixture_plan_init(&p, 2);
    fixture_plan_init(&copy, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), 0);
    before = p.plan.fingerprint;
    /* One layer's K and V, and one buffer: the other rank's block. */
    assert_int_equal(p.plan.ranks[1].memory_bytes, 2 * 4096 * KV);
    assert_int_equal(hcp_plan_to_json(&p.plan, out, sizeof out, NULL), 0);
    assert_null(strstr(out, "bytes"));
    assert_null(strstr(out, "layers"));
    hcp_ring_free(ring);

    ranks[1].max_bytes = 50000000 + 3 * 2048 * (int64_t)KV + (8192 - 2048) * (int64_t)KV;
    ranks[1].weight_bytes = 50000000;
    q.layers = 3;
    ring = fixture_ring_of(models, ranks, 2);
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), 0);
    assert_int_equal(p.plan.ranks[1].tokens, 2048); /* to the byte */
    assert_int_equal(p.plan.ranks[1].memory_bytes, ranks[1].max_bytes);
    assert_true(p.plan.fingerprint != before);
    assert_int_equal(hcp_plan_to_json(&p.plan, out, sizeof out, NULL), 0);
    assert_non_null(strstr(out, "\"max_bytes\":100331648,\"weight_bytes\":50000000,"
                                "\"memory_bytes\":100331648}"));
    assert_non_null(strstr(out, ",\"layers\":3,\"activation_bytes\":0}"));
    hcp_plan_from_json(out, strlen(out), text, sizeof text, &copy.plan);
    assert_string_equal(text, "");
    assert_int_equal(hcp_plan_to_json(&copy.plan, again, sizeof again, NULL), 0);
    assert_string_equal(out, again);
    assert_int_equal(hcp_plan_fingerprint(&copy.plan), p.plan.fingerprint);
    copy.plan.layers = 4;
    assert_true(hcp_plan_fingerprint(&copy.plan) != p.plan.fingerprint);
    copy.plan.layers = 3;
    copy.plan.ranks[0].max_bytes = 1;
    assert_true(hcp_plan_fingerprint(&copy.plan) != p.plan.fingerprint);
    copy.plan.ranks[0].max_bytes = 0;

    /* An executor that keeps more buffers does not keep within the cap, unless there are
     * no more blocks to keep. */
    assert_int_equal(hcp_plan_memory(&copy.plan, text, sizeof text), 0);
    assert_int_equal(copy.plan.ranks[0].memory_bytes, p.plan.ranks[0].memory_bytes);
    copy.plan.buffers = 0;
    assert_int_equal(hcp_plan_memory(&copy.plan, text, sizeof text), 0);
    copy.plan.sub_blocks = 4; /* its own block once more */
    assert_int_equal(hcp_plan_memory(&copy.plan, text, sizeof text),
                     HCP_STATUS_INFEASIBLE);
    assert_non_null(strstr(text, "rank 1 needs 108720256 bytes for its 2048 tokens"));

    /* Files that break their own cap, and numbers out of range, are none. */
    bad = strstr(out, "\"memory_bytes\":100331648");
    bad[strlen("\"memory_bytes\":100331648") - 1] = '9';
    assert_int_equal(hcp_plan_from_json(out, strlen(out), text, sizeof text, &copy.plan),
                     HCP_STATUS_FORMAT);
    hcp_ring_free(ring);
    for (int k = 0; k < 4; k++) {
        hcp_shape shape;
        hcp_rank wrong = ranks[0];

        hcp_shape_init(&shape);
        *(k < 2 ? &wrong.max_bytes : &wrong.weight_bytes) =
            k % 2 ? -1 : HCP_PLAN_MAX_BYTES + 1;
        assert_int_equal(
            hcp_ring_create(models, &shape, &wrong, 1, NULL, text, sizeof text, &ring),
            HCP_STATUS_INVALID);
    }
    ring = fixture_ring_of(models, ranks, 2);
    for (int k = 0; k < 4; k++) {
        hcp_question wrong = q;

        if (k < 2)
            wrong.layers = k ? -1 : 65537;
        else
            wrong.activation_bytes = k == 2 ? -1 : ((int64_t)1 << 32) + 1;
        assert_int_equal(fixture_split(ring, &wrong, &p, text, sizeof text),
                         HCP_STATUS_INVALID);
    }
    fixture_plan_free(&p);
    fixture_plan_free(&copy);
    hcp_ring_free(ring);
    fixture_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(brute_force),
                                       cmocka_unit_test(never_exceeded),
                                       cmocka_unit_test(four_ranks),
                                       cmocka_unit_test(more_ranks),
                                       cmocka_unit_test(what_is_missing),
                                       cmocka_unit_test(tile_choice),
                                       cmocka_unit_test(json)};

    return cmocka_run_group_tests_name("plan-memory", tests, NULL, NULL);
}
