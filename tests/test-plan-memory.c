/* SPDX-License-Identifier: Apache-2.0
 *
 * Caps in bytes: plans against brute force, no cap ever exceeded by what is written
 * plainly. HCP_TEST_SCALE=50 runs 100,000 problems.
 */
#include "tests/memory-fixture.h"

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
                    if (!reference_fits(ring, q, t))
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
            else if (reference_fits(ring, q, t))
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force),
        cmocka_unit_test(never_exceeded),
        cmocka_unit_test(four_ranks),
        cmocka_unit_test(more_ranks),
    };

    return cmocka_run_group_tests_name("plan-memory", tests, NULL, NULL);
}
