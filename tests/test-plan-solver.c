/* SPDX-License-Identifier: Apache-2.0
 *
 * The solver against brute force: on random problems of two and three ranks no split
 * into whole tiles and one rest is predicted faster than `best`'s, and the predicted
 * makespan is the plainly written one's, bit for bit but for the order of additions.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"
#include "tests/plan-reference.h"

struct random_problem {
    struct fixture fixtures[3];
    int64_t caps[3];
    hcp_question question;
    size_t n;
};

static void random_problem(struct random_problem *p, uint64_t *seed)
{
    static const int64_t tiles[] = {1, 16, 64, 128, 100};
    hcp_question *q = &p->question;
    int64_t tile, most;

    memset(p, 0, sizeof *p);
    p->n = (size_t)fixture_range(seed, 2, 3);
    tile = tiles[fixture_range(seed, 0, 4)];
    most = p->n == 2 ? 64 : 27;
    for (size_t i = 0; i < p->n; i++)
        fixture_random_kind(&p->fixtures[i], (int)i, tile, seed);
    fixture_random_question(q, most, tile, seed);
    if (fixture_range(seed, 0, 3) == 0)
        for (size_t i = 0; i < p->n; i++)
            if (fixture_range(seed, 0, 1))
                p->caps[i] = fixture_range(seed, 1, q->seq_len);
}

static void solver_is_brute_force(void **state)
{
    uint64_t seed = 2024;
    int problems = (int)(1000 * fixture_scale()), infeasible = 0, uneven = 0, runs = 0;
    static const int which[] = {0, 1, 2};

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct random_problem p;
        struct fixture_plan plan;
        hcp_models *models;
        hcp_ring *ring;
        int64_t brute[3], tokens[3];
        double best, again;
        hcp_status status;
        char text[512] = "";

        random_problem(&p, &seed);
        models = fixture_models(p.fixtures, p.n);
        ring = fixture_ring(models, p.fixtures, which, p.caps, p.n);
        fixture_plan_init(&plan, p.n);
        best = reference_best(ring, &p.question, brute);
        status = fixture_split(ring, &p.question, &plan, text, sizeof text);
        if (best < 0) {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            infeasible++;
        } else {
            assert_string_equal(text, "");
            assert_int_equal(status, HCP_STATUS_OK);
            assert_int_equal(plan.plan.tile, reference_tile(ring, &p.question));
            runs += plan.plan.tile > p.fixtures[0].tile;
            assert_true(plan.plan.exact);
            for (size_t r = 0; r < p.n; r++)
                tokens[r] = plan.plan.ranks[r].tokens;
            again = reference_makespan(ring, HCP_MODEL_BEST, &p.question, tokens);
            if (fabs(plan.plan.makespan_ms - again) > 1e-12 * again ||
                fabs(again - best) > 1e-12 * best) {
                print_error("problem %d: plan %.17g, plan again %.17g, brute %.17g "
                            "(%lld %lld %lld)\n",
                            i, plan.plan.makespan_ms, again, best, (long long)brute[0],
                            (long long)brute[1], (long long)brute[2]);
                fail();
            }
            uneven += tokens[0] != tokens[1];
        }
        fixture_plan_free(&plan);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message(
        "# %d problems, %d infeasible, %d uneven, %d in more than kernel tiles\n",
        problems, infeasible, uneven, runs);
    /* The mix must exercise all outcomes. */
    assert_true((infeasible > 0 || problems < 100) && uneven > problems / 2);
    assert_true(runs > problems / 20);
}

/* Blocks in pieces: found by search, said so, and close to the best there is. */
static void pieces_are_close(void **state)
{
    uint64_t seed = 77;
    int problems = (int)(400 * fixture_scale()), solved = 0, best_found = 0;
    double worst = 0, sum = 0;
    static const int which[] = {0, 1, 2};

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct random_problem p;
        struct fixture_plan plan;
        hcp_models *models;
        hcp_ring *ring;
        int64_t brute[3], tokens[3];
        double best, loss;
        char text[512] = "";

        random_problem(&p, &seed);
        p.question.sub_blocks = (int32_t)fixture_range(&seed, 2, 7);
        models = fixture_models(p.fixtures, p.n);
        ring = fixture_ring(models, p.fixtures, which, p.caps, p.n);
        fixture_plan_init(&plan, p.n);
        best = reference_best(ring, &p.question, brute);
        if (best > 0) {
            assert_int_equal(fixture_split(ring, &p.question, &plan, text, sizeof text),
                             HCP_STATUS_OK);
            assert_false(plan.plan.exact);
            for (size_t r = 0; r < p.n; r++)
                tokens[r] = plan.plan.ranks[r].tokens;
            loss = reference_makespan(ring, HCP_MODEL_BEST, &p.question, tokens);
            assert_true(fabs(plan.plan.makespan_ms - loss) <= 1e-12 * loss);
            loss = loss / best - 1;
            worst = fmax(worst, loss);
            sum += loss;
            solved++;
            best_found += loss < 1e-12;
        }
        fixture_plan_free(&plan);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message("# %d problems, best found in %d, else slower by %.2f %% on average, "
                  "%.1f %% at most\n",
                  solved, best_found,
                  100 * sum / (solved > best_found ? solved - best_found : 1),
                  100 * worst);
    assert_true(best_found > solved * 9 / 10 && sum / solved < 0.001 && worst < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(solver_is_brute_force),
                                       cmocka_unit_test(pieces_are_close)};

    return cmocka_run_group_tests_name("plan-solver", tests, NULL, NULL);
}
