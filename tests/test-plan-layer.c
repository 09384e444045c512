/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear work around the ring: plans against brute force and against the plainly written
 * objective, shares against the closed form, bounds, steps, JSON.
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

enum { MAX = 64 };

struct layer_case {
    struct fixture fixtures[4];
    hcp_rank ranks[MAX];
    size_t n;
    hcp_question question;
};

/* Linear work from none to several times attention's; equal on all ranks or not. */
static void random_linear(hcp_rank *rank, uint64_t *seed)
{
    double scale = fixture_real(seed, 0, 1) * fixture_real(seed, 0, 1);

    if (fixture_range(seed, 0, 5) == 0)
        return;
    rank->linear_before_us = fixture_range(seed, 0, 3) ? fixture_real(seed, 0, 2) : 0;
    rank->linear_after_us = fixture_range(seed, 0, 3) ? fixture_real(seed, 0, 6) : 0;
    rank->linear_before_us *= scale;
    rank->linear_after_us *= scale;
    if (fixture_range(seed, 0, 2) == 0) {
        rank->linear_before_fixed_us = fixture_real(seed, 0, 200);
        rank->linear_after_fixed_us = fixture_real(seed, 0, 200);
    }
}

static void random_case(struct layer_case *c, size_t n, int64_t most, uint64_t *seed)
{
    static const int64_t tiles[] = {1, 16, 64, 128, 100};
    hcp_question *q = &c->question;
    int64_t tile = tiles[fixture_range(seed, 0, 4)];
    int equal = fixture_range(seed, 0, 3) == 0;

    memset(c, 0, sizeof *c);
    c->n = n;
    for (int i = 0; i < 4; i++)
        fixture_random_kind(&c->fixtures[i], i, tile, seed);
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&c->ranks[r]);
        strcpy(c->ranks[r].device, c->fixtures[fixture_range(seed, 0, 3)].device);
        random_linear(&c->ranks[r], seed);
        if (equal) {
            c->ranks[r] = c->ranks[0];
            strcpy(c->ranks[r].device, c->fixtures[fixture_range(seed, 0, 3)].device);
        }
    }
    c->ranks[fixture_range(seed, 0, (int64_t)n - 1)].linear_after_us =
        fixture_real(seed, 0.01, 5);
    fixture_random_question(q, most, tile, seed);
    if (fixture_range(seed, 0, 3) == 0)
        for (size_t r = 0; r < n; r++)
            if (fixture_range(seed, 0, 1))
                c->ranks[r].max_tokens = fixture_range(seed, 1, q->seq_len);
}

static void brute_force(void **state)
{
    uint64_t seed = 600;
    int problems = (int)(600 * fixture_scale()), infeasible = 0, dropped = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 3);
        struct layer_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        int64_t brute[3], tokens[3];
        double best, again;
        hcp_status status;
        char text[512] = "";

        random_case(&c, n, n == 2 ? 64 : 27, &seed);
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
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
            dropped += !tokens[0] || !tokens[1] || (n == 3 && !tokens[2]);
            again = reference_makespan(ring, HCP_MODEL_BEST, &c.question, tokens);
            if (fabs(p.plan.makespan_ms - again) > 1e-12 * again ||
                fabs(again - best) > 1e-12 * best) {
                print_error("problem %d: plan %.17g, plan again %.17g, brute %.17g\n", i,
                            p.plan.makespan_ms, again, best);
                fail();
            }
            assert_true(p.plan.bound_ms <= p.plan.makespan_ms && p.plan.bound_ms > 0);
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message("# %d problems, %d infeasible, %d leave ranks out\n", problems,
                  infeasible, dropped);
    assert_true(dropped > problems / 20 && dropped < problems * 19 / 20);
}

/* One to 64 ranks, blocks in pieces too: times as written plainly, and never slower than
 * the rules, the steps of a simulation and linear work adding up to them. */
static void promises(void **state)
{
    static const hcp_strategy others[] = {HCP_STRATEGY_EVEN, HCP_STRATEGY_NOMINAL,
                                          HCP_STRATEGY_PROPORTIONAL};
    static hcp_step steps[MAX * MAX];
    uint64_t seed = 601;
    int problems = (int)(400 * fixture_scale());
    double loss = 0, solved = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 1, fixture_range(&seed, 1, MAX)), m = 0;
        struct layer_case c;
        struct fixture_plan p, other;
        hcp_models *models;
        hcp_ring *ring;
        hcp_question q;
        int64_t tokens[MAX];
        double again;
        char text[512] = "";

        random_case(&c, n, 40 * (int64_t)n, &seed);
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.sub_blocks = (int32_t)fixture_range(&seed, 2, 7);
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.layout = HCP_LAYOUT_AUTO;
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        fixture_plan_init(&other, n);
        q = c.question;
        if (fixture_split(ring, &q, &p, text, sizeof text) == HCP_STATUS_INFEASIBLE)
            goto next;
        assert_string_equal(text, "");
        q.layout = p.plan.layout;
        for (size_t r = 0; r < n; r++) {
            const hcp_plan_rank *rank = &p.plan.ranks[r];

            m += (tokens[r] = rank->tokens) > 0;
            assert_true(c.ranks[r].max_tokens == 0 || tokens[r] <= c.ranks[r].max_tokens);
            assert_true(rank->compute_ms <= rank->predicted_ms * (1 + 1e-12));
            assert_true(rank->linear_before_ms + rank->linear_after_ms <=
                        rank->compute_ms * (1 + 1e-12));
        }
        again = reference_makespan(ring, HCP_MODEL_BEST, &q, tokens);
        assert_float_equal(p.plan.makespan_ms, again, 1e-9 * again);
        assert_true(p.plan.bound_ms <= p.plan.makespan_ms);
        loss += p.plan.makespan_ms / p.plan.bound_ms;
        solved++;
        assert_true(!(p.plan.even_ms < p.plan.makespan_ms));
        assert_true(!(p.plan.drop_ms < p.plan.makespan_ms));
        for (int k = 0; k < 3; k++) {
            q = c.question;
            q.strategy = others[k];
            if (fixture_split(ring, &q, &other, text, sizeof text) == HCP_STATUS_OK)
                assert_true(p.plan.makespan_ms <= other.plan.makespan_ms);
            text[0] = 0;
        }
        hcp_plan_simulate(ring, &p.plan, 1, p.workspace, p.workspace_bytes, text,
                          sizeof text, steps, MAX * MAX, &(size_t){0});
        assert_string_equal(text, "");
        again = 0;
        for (size_t at = 0; at < m * m; at += m)
            again = fmax(again, steps[at + m - 1].fin_ms);
        for (size_t at = 0; at < m * m; at += m) {
            const hcp_plan_rank *rank = &p.plan.ranks[steps[at].rank];
            double busy = rank->linear_before_ms + rank->linear_after_ms, wait = 0,
                   end = q.barrier ? again : steps[at + m - 1].fin_ms;

            for (size_t k = 0; k < m; k++) {
                busy += steps[at + k].busy_ms;
                wait += steps[at + k].wait_ms;
            }
            assert_float_equal(busy, rank->compute_ms, 1e-9 * busy);
            assert_float_equal(end + rank->linear_after_ms, rank->predicted_ms,
                               1e-9 * end);
            if (q.barrier) /* everybody waits before the first step, and after the last */
                assert_true(steps[at].start_ms >= rank->linear_before_ms);
            else
                assert_float_equal(busy + wait, rank->predicted_ms, 1e-9 * busy);
        }
    next:
        fixture_plan_free(&p);
        fixture_plan_free(&other);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message(
        "# %d of %d problems solved, makespan %.3f times the bound on average\n",
        (int)solved, problems, loss / solved);
    assert_true(solved > problems / 2);
}

/* Pure area, so that everything has a closed form. */
static const struct fixture pure[] = {
    {.device = "fast", .a = 2e-8, .tile = 1, .poly = 1, .error = 0.01},
    {.device = "slow", .a = 1.1e-7, .tile = 1, .poly = 1, .error = 0.01},
    {.device = "tiled", .a = 3e-8, .tile = 128, .poly = 1, .error = 0.01},
};

/* The shares before tiles: proportional to 1 / (a S / 2 + l) for zigzag, with S for S / 2
 * under the full mask, fixed work taken off first; where shares are contiguous or striped
 * under a causal mask all are busy equally long, and they add up. */
static void closed_form(void **state)
{
    uint64_t seed = 602;
    hcp_models *models = fixture_models(pure, 2);

    (void)state;
    for (int i = 0; i < 1000; i++) {
        static char workspace[1 << 20];
        size_t n = (size_t)fixture_range(&seed, 1, 8);
        hcp_rank ranks[8];
        hcp_ring *ring;
        struct scratch s;
        struct problem p;
        double speed[8], share[8], c[8], f[8], sum = 0, all, s_len, ms, at = 0, total = 0;
        int fixed = (int)fixture_range(&seed, 0, 1), in = 0;

        for (size_t r = 0; r < n; r++) {
            hcp_rank_init(&ranks[r]);
            strcpy(ranks[r].device, pure[r % 2].device);
            ranks[r].linear_before_us = fixture_real(&seed, 0, 2);
            ranks[r].linear_after_us = fixture_real(&seed, 0.01, 9);
            ranks[r].linear_after_fixed_us = fixed ? fixture_real(&seed, 0, 900) : 0;
        }
        ring = fixture_ring_of(models, ranks, n);
        assert_true(hcp_workspace_bytes(n) <= sizeof workspace);
        scratch_carve(&s, workspace, n);
        memset(&p, 0, sizeof p);
        p.ring = ring;
        p.n = n;
        p.linear = 1;
        p.seq_len = fixture_range(&seed, 1000, 1 << 20);
        p.causal = i % 4 > 0;
        p.layout = (hcp_layout)(i % 4 > 0 ? i % 4 : HCP_LAYOUT_CONTIGUOUS);
        p.stripes = (int32_t)fixture_range(&seed, 1, 9);
        s_len = (double)p.seq_len;
        for (size_t r = 0; r < n; r++)
            speed[r] = fixture_real(&seed, 1e6, 1e8);
        ms = layer_shares(&p, speed, share);
        all = s_len;
        for (size_t r = 0; r < n; r++) {
            double level = p.causal ? (s_len + 1) / 2 : s_len;

            c[r] = level / speed[r] +
                   (ranks[r].linear_before_us + ranks[r].linear_after_us) / 1e3;
            f[r] = ranks[r].linear_after_fixed_us / 1e3;
            total += share[r];
            in += share[r] > 0;
            if (f[r] < ms) {
                sum += 1 / c[r];
                all += f[r] / c[r];
            }
        }
        assert_float_equal(total, s_len, 1e-9 * s_len);
        assert_true(in > 0);
        if (!p.causal || p.layout == HCP_LAYOUT_ZIGZAG) {
            assert_float_equal(ms, all / sum, 1e-9 * ms);
            for (size_t r = 0; r < n; r++)
                assert_float_equal(share[r], f[r] < ms ? (ms - f[r]) / c[r] : 0,
                                   1e-9 * s_len);
        } else {
            double t = p.layout == HCP_LAYOUT_STRIPED ? p.stripes : 1;

            for (size_t r = 0; r < n; r++) {
                double end = at + share[r];
                double area = (s_len * (1 - 1 / t) + 1) / 2 * share[r] +
                              (end + at) * share[r] / 2 / t;
                double linear = (ranks[r].linear_before_us + ranks[r].linear_after_us) *
                                share[r] / 1e3;

                if (share[r] > 0)
                    assert_float_equal(area / speed[r] + linear + f[r], ms, 1e-9 * ms);
                else
                    assert_true(f[r] >= ms);
                at = end;
            }
        }
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

/* A whole plan at tile 1: the closed form to a token, and the bound is its time. */
static void zigzag_plan(void **state)
{
    hcp_models *models = fixture_models(pure, 2);
    hcp_rank ranks[4];
    hcp_ring *ring;
    hcp_question q;
    struct fixture_plan p;
    char text[512] = "";
    double c[4], sum = 0, s = 1 << 16;

    (void)state;
    hcp_question_init(&q);
    q.seq_len = 1 << 16;
    q.causal = 1;
    q.layout = HCP_LAYOUT_ZIGZAG;
    for (int r = 0; r < 4; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, pure[r % 2].device);
        ranks[r].linear_before_us = 0.1 + 0.3 * r;
        ranks[r].linear_after_us = 1.5 + (r % 3);
        c[r] = pure[r % 2].a * (s + 1) / 2 +
               (ranks[r].linear_before_us + ranks[r].linear_after_us) / 1e3;
        sum += 1 / c[r];
    }
    ring = fixture_ring_of(models, ranks, 4);
    fixture_plan_init(&p, 4);
    fixture_split(ring, &q, &p, text, sizeof text);
    assert_string_equal(text, "");
    /* What the first rank does before its ring makes nobody wait: its block is long. */
    for (int r = 0; r < 4; r++)
        assert_float_equal((double)p.plan.ranks[r].tokens, s / c[r] / sum, 4);
    assert_float_equal(p.plan.bound_ms, s / sum, 2e-5 * s / sum);
    assert_float_equal(p.plan.makespan_ms, s / sum, 2e-4 * s / sum);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    fixture_free(models);
}

/* Linear work errs as it says: its part of the critical rank's time by its own error, the
 * rest as without one; nothing else of a plan changes. */
static void error_bar(void **state)
{
    int problems = (int)(200 * fixture_scale());
    uint64_t seed = 77;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct layer_case c;
        struct fixture_plan exact, p;
        size_t n = (size_t)fixture_range(&seed, 1, 6);
        hcp_models *models;
        hcp_ring *ring;
        const hcp_plan_rank *critical;
        double linear, part, error;
        char text[512] = "";

        random_case(&c, n, 60, &seed);
        for (int k = 0; k < 4; k++)
            memset(c.fixtures[k].finish, 0, sizeof c.fixtures[k].finish);
        models = fixture_models(c.fixtures, 4);
        fixture_plan_init(&exact, n);
        fixture_plan_init(&p, n);
        ring = fixture_ring_of(models, c.ranks, n);
        if (fixture_split(ring, &c.question, &exact, text, sizeof text)) {
            assert_non_null(strstr(text, "caps"));
            goto next;
        }
        hcp_ring_free(ring);
        for (size_t r = 0; r < n; r++)
            c.ranks[r].linear_error = fixture_real(&seed, 0, i % 10 ? 0.2 : 3);
        ring = fixture_ring_of(models, c.ranks, n);
        assert_int_equal(fixture_split(ring, &c.question, &p, text, sizeof text), 0);
        critical = &p.plan.ranks[p.plan.critical_rank];
        linear = critical->linear_before_ms + critical->linear_after_ms;
        error = c.ranks[p.plan.critical_rank].linear_error;
        part = p.plan.makespan_ms * linear / critical->compute_ms;
        assert_true(p.plan.makespan_ms == exact.plan.makespan_ms);
        for (size_t r = 0; r < n; r++) {
            assert_int_equal(p.plan.ranks[r].tokens, exact.plan.ranks[r].tokens);
            assert_true(p.plan.ranks[r].linear_error == c.ranks[r].linear_error);
        }
        if (fabs(p.plan.interval_hi_ms - exact.plan.interval_hi_ms - part * error) >
                1e-9 * p.plan.interval_hi_ms ||
            fabs(p.plan.interval_lo_ms - exact.plan.interval_lo_ms +
                 part * fmin(error, 1)) > 1e-9 * p.plan.makespan_ms)
            fail_msg(
                "problem %d: %.12g to %.12g, %.12g to %.12g without linear work's error "
                "%.12g of %.12g",
                i, p.plan.interval_lo_ms, p.plan.interval_hi_ms,
                exact.plan.interval_lo_ms, exact.plan.interval_hi_ms, error, part);
        assert_true(p.plan.interval_lo_ms >= -1e-12);
    next:
        hcp_ring_free(ring);
        fixture_plan_free(&exact);
        fixture_plan_free(&p);
        fixture_free(models);
    }
}

/* Linear work that fits attention does not change shares under the full mask; work that
 * does not shifts them; no work is no key and no difference. */
static void json(void **state)
{
    hcp_models *models = fixture_models(pure + 2, 1);
    hcp_rank ranks[2];
    hcp_ring *ring, *plain;
    hcp_question q;
    struct fixture_plan p, copy;
    char text[512] = "", json_text[4096];
    uint64_t before;
    char *bad;

    (void)state;
    hcp_question_init(&q);
    q.seq_len = 8192;
    for (int r = 0; r < 2; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, "tiled");
    }
    plain = fixture_ring_of(models, ranks, 2);
    ranks[1].linear_before_us = 0.25;
    ranks[1].linear_after_us = 1.5;
    ranks[1].linear_after_fixed_us = 20;
    ring = fixture_ring_of(models, ranks, 2);
    fixture_plan_init(&p, 2);
    fixture_plan_init(&copy, 2);
    fixture_split(plain, &q, &p, text, sizeof text);
    assert_int_equal(p.plan.ranks[0].tokens, 4096);
    before = p.plan.fingerprint;
    assert_int_equal(hcp_plan_to_json(&p.plan, json_text, sizeof json_text, NULL), 0);
    assert_null(strstr(json_text, "linear"));
    fixture_split(ring, &q, &p, text, sizeof text);
    assert_string_equal(text, "");
    assert_true(p.plan.ranks[0].tokens > 4096);
    assert_true(p.plan.fingerprint != before);
    assert_int_equal(hcp_plan_to_json(&p.plan, json_text, sizeof json_text, NULL), 0);
    assert_non_null(strstr(json_text, "\"linear_before_us\":0.25,"
                                      "\"linear_before_fixed_us\":0,"
                                      "\"linear_after_us\":1.5,"
                                      "\"linear_after_fixed_us\":20,"
                                      "\"linear_before_ms\":"));
    hcp_plan_from_json(json_text, strlen(json_text), text, sizeof text, &copy.plan);
    assert_string_equal(text, "");
    assert_int_equal(hcp_plan_fingerprint(&copy.plan), p.plan.fingerprint);
    assert_int_equal(copy.plan.fingerprint, p.plan.fingerprint);
    assert_true(copy.plan.ranks[1].linear_after_ms == p.plan.ranks[1].linear_after_ms);
    assert_null(strstr(json_text, "linear_error"));
    copy.plan.ranks[1].linear_after_us = 1.6;
    assert_true(hcp_plan_fingerprint(&copy.plan) != p.plan.fingerprint);
    p.plan.ranks[1].linear_error = 0.03125;
    assert_true(hcp_plan_fingerprint(&p.plan) != p.plan.fingerprint);
    assert_int_equal(hcp_plan_to_json(&p.plan, json_text, sizeof json_text, NULL), 0);
    hcp_plan_from_json(json_text, strlen(json_text), text, sizeof text, &copy.plan);
    assert_string_equal(text, "");
    assert_true(copy.plan.ranks[0].linear_error == 0);
    assert_true(copy.plan.ranks[1].linear_error == 0.03125);
    bad = strstr(json_text, "\"linear_error\":0.03125");
    memcpy(bad + strlen("\"linear_error\":"), "-", 1);
    assert_int_equal(
        hcp_plan_from_json(json_text, strlen(json_text), text, sizeof text, &copy.plan),
        HCP_STATUS_FORMAT);
    memcpy(bad + strlen("\"linear_error\":"), "0", 1);
    bad = strstr(json_text, "\"linear_after_us\":1.5");
    memcpy(bad + strlen("\"linear_after_us\":"), "-.5", 3);
    assert_int_equal(
        hcp_plan_from_json(json_text, strlen(json_text), text, sizeof text, &copy.plan),
        HCP_STATUS_FORMAT);
    hcp_ring_free(ring);
    for (int k = 0; k < 4; k++) {
        static const double wrong[] = {-1, 2e9, NAN, INFINITY};
        hcp_shape shape;

        hcp_shape_init(&shape);
        ranks[1].linear_after_us = 1;
        ranks[1].linear_before_fixed_us = wrong[k];
        assert_int_equal(
            hcp_ring_create(models, &shape, ranks, 2, NULL, text, sizeof text, &ring),
            HCP_STATUS_INVALID);
        assert_non_null(strstr(text, "rank 1"));
        ranks[1].linear_before_fixed_us = 0;
        ranks[1].linear_error = wrong[k];
        assert_int_equal(
            hcp_ring_create(models, &shape, ranks, 2, NULL, text, sizeof text, &ring),
            HCP_STATUS_INVALID);
        ranks[1].linear_error = 0;
    }
    fixture_plan_free(&p);
    fixture_plan_free(&copy);
    hcp_ring_free(plain);
    fixture_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force), cmocka_unit_test(promises),
        cmocka_unit_test(closed_form), cmocka_unit_test(zigzag_plan),
        cmocka_unit_test(error_bar),   cmocka_unit_test(json)};

    return cmocka_run_group_tests_name("plan-layer", tests, NULL, NULL);
}
