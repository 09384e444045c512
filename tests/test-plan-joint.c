/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries and KV split apart, against the objective as plan-reference.c states it row by
 * row and against plain enumeration of all splits of both. HCP_TEST_SCALE multiplies the
 * number of problems.
 */
#include "tests/joint-fixture.h"

/* Tokens that add up, some ranks without any. */
static void random_split(uint64_t *seed, size_t n, int64_t seq_len, int64_t *tokens)
{
    int64_t left = seq_len;

    for (size_t r = 0; r < n; r++) {
        tokens[r] = r + 1 == n                       ? left
                    : fixture_range(seed, 0, 3) == 0 ? 0
                                                     : fixture_range(seed, 0, left);
        left -= tokens[r];
    }
}

/* What any split costs. */
static void splits_cost_what_they_should(void **state)
{
    uint64_t seed = 1;
    int n_splits = (int)(3000 * fixture_scale());

    (void)state;
    for (int i = 0; i < n_splits; i++) {
        struct joint_case c;
        int64_t q[MAX], kv[MAX];
        hcp_question question;
        char text[512] = "";

        make_case(&c, &seed, (size_t)fixture_range(&seed, 1, 7),
                  fixture_range(&seed, 0, 20) + 1, 0);
        random_split(&seed, c.n, c.question.seq_len, q);
        random_split(&seed, c.n, c.question.seq_len, kv);
        evaluate(&c, q, kv, text, sizeof text);
        assert_string_equal(text, "");
        question = c.question;
        question.kv_tokens = kv;
        SAME(c.p.plan.makespan_ms,
             reference_makespan(c.ring, HCP_MODEL_BEST, &question, q));
        free_case(&c);
    }
}

/* KV with its queries costs what the plan without joint says. */
static void tied_splits_cost_the_same(void **state)
{
    uint64_t seed = 2;
    int n_splits = (int)(1000 * fixture_scale());

    (void)state;
    for (int i = 0; i < n_splits; i++) {
        struct joint_case c;
        int64_t q[MAX];
        double ms;
        char text[512] = "";

        make_case(&c, &seed, (size_t)fixture_range(&seed, 1, 7),
                  fixture_range(&seed, 0, 20) + 1, 0);
        random_split(&seed, c.n, c.question.seq_len, q);
        evaluate(&c, q, NULL, text, sizeof text);
        assert_string_equal(text, "");
        assert_int_equal(c.p.plan.joint, 0);
        ms = c.p.plan.makespan_ms;
        evaluate(&c, q, q, text, sizeof text);
        assert_string_equal(text, "");
        assert_int_equal(c.p.plan.joint, 1);
        SAME(c.p.plan.tied_ms, ms);
        if (c.question.layout != HCP_LAYOUT_STRIPED || c.question.sub_blocks > 1 ||
            !c.question.causal)
            SAME(c.p.plan.makespan_ms, ms);
        else /* stripes that see equally much are one call */
            assert_true(c.p.plan.makespan_ms <= ms * (1 + 1e-12));
        free_case(&c);
    }
}

static int feasible(const struct joint_case *c)
{
    int64_t room = 0;

    for (size_t r = 0; r < c->n; r++)
        room += c->caps[r] > 0 ? c->caps[r] : c->question.seq_len;
    return room >= c->question.seq_len;
}

/* Of few tiles all splits are tried: nothing is better. */
static void small_problems_are_exact(void **state)
{
    uint64_t seed = 3;
    int n_cases = (int)(240 * fixture_scale()), gained = 0;

    (void)state;
    for (int i = 0; i < n_cases; i++) {
        struct joint_case c;
        int64_t q[MAX], kv[MAX];
        size_t n = i % 8 ? (size_t)(2 + i % 2) : 4;
        double best;
        char text[512] = "";

        make_case(&c, &seed, n, fixture_range(&seed, 1, n == 2 ? 24 : n == 3 ? 6 : 3), 1);
        assert_true(feasible(&c));
        ask(&c, text, sizeof text);
        assert_string_equal(text, "");
        assert_int_equal(c.p.plan.joint, 1);
        assert_int_equal(c.p.plan.exact, 1);
        best = reference_joint_best(c.ring, &c.question, q, kv);
        SAME(c.p.plan.makespan_ms, best);
        assert_true(c.p.plan.tied_ms >= best * (1 - 1e-9));
        gained += c.p.plan.gain_over_tied > 1.01;
        free_case(&c);
    }
    assert_true(gained > n_cases / 4);
}

/* Caps in bytes on about half of the ranks; 0: none that can bind. */
static int cap_bytes(struct joint_case *c, uint64_t *seed)
{
    int64_t kv = (int64_t)c->ring->token_bytes;
    int n = 0;

    c->question.layers = (int32_t)fixture_range(seed, 1, 4);
    c->question.activation_bytes =
        fixture_range(seed, 0, 1) ? fixture_range(seed, 0, 2 * kv) : 0;
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank *spec = &c->ring->ranks[r].spec;

        if (fixture_range(seed, 0, 1))
            continue;
        spec->weight_bytes = fixture_range(seed, 0, 20 * kv);
        spec->max_bytes = spec->weight_bytes +
                          fixture_range(seed, 1, 2 * c->question.seq_len) *
                              (c->question.layers * kv + c->question.activation_bytes);
        n++;
    }
    c->ring->memory = n > 0;
    return n;
}

/* Caps in bytes: of queries' activations, KV of all layers, what is copied and received.
 */
static void caps_in_bytes_hold(void **state)
{
    uint64_t seed = 7;
    int n_cases = (int)(200 * fixture_scale()), capped = 0, infeasible = 0;

    (void)state;
    for (int i = 0; i < n_cases; i++) {
        struct joint_case c;
        int64_t q[MAX], kv[MAX], bytes[MAX], most;
        size_t n = (size_t)(2 + i % 2);
        hcp_question question;
        hcp_status status;
        double best;
        char text[512] = "";

        make_case(&c, &seed, n, fixture_range(&seed, 1, n == 2 ? 20 : 6), 1);
        capped += cap_bytes(&c, &seed) > 0;
        status = ask(&c, text, sizeof text);
        best = reference_joint_best(c.ring, &c.question, q, kv);
        if (status) { /* no tied split fits */
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            assert_true(reference_best(c.ring, &c.question, q) < 0);
            infeasible++;
            free_case(&c);
            continue;
        }
        assert_int_equal(c.p.plan.exact, 1);
        SAME(c.p.plan.makespan_ms, best);
        for (size_t r = 0; r < n; r++) {
            q[r] = c.p.plan.ranks[r].tokens;
            kv[r] = c.p.plan.ranks[r].kv_tokens;
        }
        question = c.question;
        question.kv_tokens = kv;
        reference_memory(c.ring, &question, q, bytes);
        most = 0;
        for (size_t r = 0; r < n; r++) {
            const hcp_plan_rank *rank = &c.p.plan.ranks[r];

            assert_int_equal(rank->memory_bytes, bytes[r]);
            assert_true(rank->max_bytes == 0 || bytes[r] <= rank->max_bytes);
            if (bytes[r] > most)
                most = bytes[r];
        }
        assert_int_equal(hcp_plan_memory(&c.p.plan, text, sizeof text), HCP_STATUS_OK);
        assert_int_equal(evaluate(&c, q, kv, text, sizeof text), HCP_STATUS_OK);
        for (size_t r = 0; r < n && c.ring->memory; r++) { /* a byte less is refused */
            if (bytes[r] == 0 || bytes[r] != most)
                continue;
            c.ring->ranks[r].spec.max_bytes = bytes[r] - 1;
            assert_int_equal(evaluate(&c, q, kv, text, sizeof text),
                             HCP_STATUS_INFEASIBLE);
            assert_non_null(strstr(text, " 1 more than its cap"));
        }
        free_case(&c);
    }
    print_message("# %d with caps in bytes, %d infeasible\n", capped, infeasible);
    assert_true(n_cases < 100 || (capped > n_cases / 2 && infeasible < n_cases / 2));
}

/* Of more the search is held against all splits. */
static void search_is_near_the_best(void **state)
{
    uint64_t seed = 4;
    int n_cases = (int)(24 * fixture_scale()), near = 0, equal = 0;
    double worst = 1;

    (void)state;
    for (int i = 0; i < n_cases; i++) {
        struct joint_case c;
        int64_t q[MAX], kv[MAX];
        size_t n = i % 8 ? (size_t)(2 + i % 2) : 4;
        double best, ratio;
        char text[512] = "";

        make_case(&c, &seed, n, n == 2 ? 150 : n == 3 ? 12 : 5, 1);
        ask(&c, text, sizeof text);
        assert_string_equal(text, "");
        best = reference_joint_best(c.ring, &c.question, q, kv);
        ratio = c.p.plan.makespan_ms / best;
        assert_true(ratio > 1 - 1e-9);
        near += ratio <= 1.01;
        equal += ratio <= 1 + 1e-9;
        if (ratio > worst)
            worst = ratio;
        free_case(&c);
    }
    print_message("# %d of %d within 1 %%, %d the best, worst %.4f\n", near, n_cases,
                  equal, worst);
    assert_true(near >= 0.95 * n_cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_cost_what_they_should),
        cmocka_unit_test(tied_splits_cost_the_same),
        cmocka_unit_test(small_problems_are_exact),
        cmocka_unit_test(caps_in_bytes_hold),
        cmocka_unit_test(search_is_near_the_best),
    };

    return cmocka_run_group_tests_name("plan-joint", tests, NULL, NULL);
}
