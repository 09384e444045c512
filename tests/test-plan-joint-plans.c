/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries and KV split apart: what that gains a pair, what plans and their text say, and
 * what it is not for.
 */
#include "tests/joint-fixture.h"

/* A pair of pure area, the second at a tenth of the speed, on a link over which the whole
 * sequence's KV takes rho times as long as all of its attention on the first. */
static void ask_pair(double rho, int causal, hcp_strategy strategy, int joint,
                     int32_t sub_blocks, struct joint_case *c)
{
    double whole_ms;
    char text[512] = "";

    memset(c, 0, sizeof *c);
    for (int i = 0; i < 2; i++)
        c->fixtures[i] = (struct fixture){.device = i ? "slow" : "fast",
                                          .a = i ? 1e-7 : 1e-8,
                                          .tile = 64,
                                          .poly = 1,
                                          .error = 0.01};
    c->n = 2;
    c->which[1] = 1;
    c->models = fixture_models(c->fixtures, 2);
    c->ring = fixture_ring(c->models, c->fixtures, c->which, NULL, 2);
    fixture_plan_init(&c->p, 2);
    hcp_question_init(&c->question);
    c->question.seq_len = 65536;
    c->question.causal = causal;
    c->question.strategy = strategy;
    c->question.joint = joint;
    c->question.sub_blocks = sub_blocks;
    c->question.extrapolate = 1;
    whole_ms = 1e-8 * 65536.0 * 65536.0 / (causal ? 2 : 1);
    c->question.link_gbps = 65536.0 * c->ring->token_bytes / (rho * whole_ms * 1e6);
    ask(c, text, sizeof text);
    assert_string_equal(text, "");
}

static double gain_of_pair(double rho, int causal, hcp_strategy strategy, int joint,
                           int32_t sub_blocks)
{
    struct joint_case c;
    double gain;

    ask_pair(rho, causal, strategy, joint, sub_blocks, &c);
    gain = c.p.plan.gain_over_even;
    if (joint) {
        assert_true(c.p.plan.gain_over_tied >= 1);
        SAME(c.p.plan.tied_ms / c.p.plan.makespan_ms, c.p.plan.gain_over_tied);
    }
    free_case(&c);
    return gain;
}

/* theory.md's pair: a slow link costs the tied plan what the joint one does not lose. */
static void pair_on_a_slow_link(void **state)
{
    static const double small[] = {0.001, 0.01, 0.05};
    double tied = gain_of_pair(0.5, 0, HCP_STRATEGY_PROPORTIONAL, 0, 1), free_gain, joint;

    (void)state;
    assert_true(tied > 3.85 && tied < 3.95); /* 5 / (s / (1 + s) of KV, then its block) */
    for (int causal = 0; causal < 2; causal++) {
        joint = gain_of_pair(0.5, causal, HCP_STRATEGY_BEST, 1, 4);
        assert_true(joint >= 5.4);
        joint = gain_of_pair(0.5, causal, HCP_STRATEGY_BEST, 1, 1);
        assert_true(joint >= 5.4 || causal);
        free_gain = gain_of_pair(1e-6, causal, HCP_STRATEGY_BEST, 0, 1);
        for (int i = 0; i < 3; i++) {
            joint = gain_of_pair(small[i], causal, HCP_STRATEGY_BEST, 1, 4);
            assert_true(joint >= free_gain * (1 - 1e-3));
            assert_true(joint >= gain_of_pair(small[i], causal, HCP_STRATEGY_BEST, 0, 4) *
                                     (1 - 1e-12));
        }
    }
}

/* Segments of a share cover its tokens, those of all ranks the sequence. */
static void check_segments(const hcp_plan *plan, int of_kv)
{
    unsigned char *seen = calloc((size_t)plan->seq_len, 1);

    assert_non_null(seen);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_plan_rank *rank = &plan->ranks[r];
        const hcp_segment *s =
            plan->segments + (of_kv ? rank->first_kv_segment : rank->first_segment);
        int64_t n = of_kv ? rank->n_kv_segments : rank->n_segments, sum = 0;

        for (int64_t i = 0; i < n; i++) {
            assert_true(s[i].length > 0);
            sum += s[i].length;
            for (int64_t x = 0; x < s[i].length; x++)
                assert_int_equal(seen[s[i].offset + x]++, 0);
        }
        assert_int_equal(sum, of_kv ? rank->kv_tokens : rank->tokens);
    }
    assert_null(memchr(seen, 0, (size_t)plan->seq_len));
    free(seen);
}

/* The plan written, read again and written is the same text; one changed number is
 * seen. */
static void check_text(const hcp_plan *plan)
{
    static char json[1 << 16], again[1 << 16];
    static hcp_plan_rank ranks[MAX];
    static hcp_segment segments[2048];
    static hcp_place places[MAX];
    size_t n_ranks, n_segments;
    hcp_plan copy;
    char text[256] = "", *at;

    assert_int_equal(hcp_plan_to_json(plan, json, sizeof json, NULL), HCP_STATUS_OK);
    assert_int_equal(hcp_plan_json_counts(json, strlen(json), text, sizeof text, &n_ranks,
                                          &n_segments),
                     HCP_STATUS_OK);
    assert_int_equal(n_segments, plan->n_segments);
    hcp_plan_init(&copy, ranks, n_ranks, segments, n_segments);
    copy.places = places;
    hcp_plan_from_json(json, strlen(json), text, sizeof text, &copy);
    assert_string_equal(text, "");
    assert_int_equal(hcp_plan_fingerprint(&copy), plan->fingerprint);
    assert_int_equal(hcp_plan_to_json(&copy, again, sizeof again, NULL), HCP_STATUS_OK);
    assert_string_equal(again, json);
    copy.ranks[0].kv_tokens++;
    assert_int_not_equal(hcp_plan_fingerprint(&copy), plan->fingerprint);
    at = strstr(json, "\"kv_tokens\":");
    at[12] = at[12] == '1' ? '2' : '1';
    assert_int_equal(hcp_plan_from_json(json, strlen(json), text, sizeof text, &copy),
                     HCP_STATUS_FORMAT);
}

/* Caps hold, shares are tiles and one rest, and the numbers of a plan are those of its
 * evaluation and of its simulation, written and read or not. */
static void plans_are_consistent(void **state)
{
    uint64_t seed = 5;
    int n_cases = (int)(300 * fixture_scale()), capped = 0;
    static hcp_step steps[MAX * MAX];

    (void)state;
    for (int i = 0; i < n_cases; i++) {
        struct joint_case c;
        int64_t q[MAX], kv[MAX], rests[2] = {0, 0};
        size_t m = 0, n_steps;
        double end = 0, ms;
        char text[512] = "";
        hcp_plan *plan;
        hcp_question question;
        double tied;

        make_case(&c, &seed, (size_t)fixture_range(&seed, 1, i % 4 ? 4 : 10),
                  fixture_range(&seed, 0, 40) + 1, 1);
        if (i % 3 == 0)
            c.question.layout = HCP_LAYOUT_AUTO;
        if (i % 5 == 0)
            c.question.order =
                fixture_range(&seed, 0, 1) ? HCP_ORDER_FREE : HCP_ORDER_FIXED;
        question = c.question;
        question.joint = 0;
        fixture_split(c.ring, &question, &c.p, text, sizeof text);
        assert_string_equal(text, "");
        tied = c.p.plan.makespan_ms;
        ask(&c, text, sizeof text);
        assert_string_equal(text, "");
        plan = &c.p.plan;
        assert_true(plan->joint && plan->gain_over_tied >= 1);
        assert_true(plan->makespan_ms <= tied * (1 + 1e-12) || c.question.order);
        assert_true(plan->bound_ms <= plan->makespan_ms * (1 + 1e-12));
        assert_true(plan->interval_lo_ms < plan->makespan_ms &&
                    plan->makespan_ms < plan->interval_hi_ms);
        ms = plan->makespan_ms;
        for (size_t r = 0; r < c.n; r++) {
            const hcp_plan_rank *rank = &plan->ranks[r];

            q[r] = rank->tokens;
            kv[r] = rank->kv_tokens;
            assert_true(rank->max_tokens == 0 || kv[r] <= rank->max_tokens);
            capped += rank->max_tokens > 0 && q[r] > rank->max_tokens;
            rests[0] += q[r] % TILE > 0;
            rests[1] += kv[r] % TILE > 0;
            m += q[r] > 0 || kv[r] > 0;
        }
        assert_true(rests[0] <= 1 && rests[1] <= 1);
        check_segments(plan, 0);
        check_segments(plan, 1);
        hcp_plan_simulate(c.ring, plan, 1, c.p.workspace, c.p.workspace_bytes, text,
                          sizeof text, steps, MAX * MAX, &n_steps);
        assert_string_equal(text, "");
        assert_int_equal(n_steps, m * m);
        for (size_t at = 0; at < n_steps; at += m) {
            double busy = 0, wait = 0;

            for (size_t k = 0; k < m; k++) {
                busy += steps[at + k].busy_ms;
                wait += steps[at + k].wait_ms;
                end = fmax(end, steps[at + k].fin_ms);
            }
            assert_float_equal(busy, plan->ranks[steps[at].rank].compute_ms,
                               1e-9 * (busy + 1));
            assert_float_equal(busy + wait, plan->ranks[steps[at].rank].predicted_ms,
                               1e-9 * (busy + wait + 1));
        }
        assert_float_equal(end, ms, 1e-12 * ms);
        check_text(plan);
        if (c.question.order == HCP_ORDER_GIVEN) {
            c.question.layout = plan->layout;
            c.question.tile = plan->tile;
            evaluate(&c, q, kv, text, sizeof text);
            assert_string_equal(text, "");
            assert_true(c.p.plan.makespan_ms == ms);
        }
        free_case(&c);
    }
    assert_true(capped > 0); /* queries are not what caps are about */
}

/* Rules stay tied; bad questions are refused. */
static void what_joint_is_not_for(void **state)
{
    uint64_t seed = 6;
    struct joint_case c;
    int64_t q[3] = {320, 0, 0}, kv[3] = {0, 160, 160}, bad[3] = {0, 160, 161};
    char text[512] = "";

    (void)state;
    make_case(&c, &seed, 3, 20, 0);
    c.question.seq_len = 320;
    for (int strategy = HCP_STRATEGY_EVEN; strategy <= HCP_STRATEGY_PROPORTIONAL;
         strategy++) {
        c.question.strategy = (hcp_strategy)strategy;
        ask(&c, text, sizeof text);
        assert_string_equal(text, "");
        assert_int_equal(c.p.plan.joint, 0);
        assert_true(isnan(c.p.plan.tied_ms));
    }
    c.question.strategy = HCP_STRATEGY_POLY;
    ask(&c, text, sizeof text);
    assert_int_equal(c.p.plan.joint, 1);
    assert_int_equal(evaluate(&c, q, kv, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(c.p.plan.ranks[1].kv_tokens, 160);
    assert_int_equal(evaluate(&c, q, bad, text, sizeof text), HCP_STATUS_INVALID);
    assert_non_null(strstr(text, "KV"));
    c.question.layout = HCP_LAYOUT_STRIPED;
    c.question.stripes = 1024;
    assert_int_equal(ask(&c, text, sizeof text), HCP_STATUS_INVALID);
    assert_non_null(strstr(text, "stripes"));
    free_case(&c);
    make_case(&c, &seed, 2, 20, 0);
    hcp_ring_free(c.ring);
    c.caps[1] = 64;
    c.ring = fixture_ring(c.models, c.fixtures, c.which, c.caps, 2);
    c.question.seq_len = 320;
    assert_int_equal(
        evaluate(&c, (int64_t[]){0, 320}, (int64_t[]){256, 64}, text, sizeof text),
        HCP_STATUS_OK);
    assert_true(isnan(c.p.plan.tied_ms));
    assert_int_equal(
        evaluate(&c, (int64_t[]){320, 0}, (int64_t[]){240, 80}, text, sizeof text),
        HCP_STATUS_INFEASIBLE);
    assert_non_null(strstr(text, "rank 1 has 80 tokens' KV"));
    free_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_on_a_slow_link),
        cmocka_unit_test(plans_are_consistent),
        cmocka_unit_test(what_joint_is_not_for),
    };

    return cmocka_run_group_tests_name("plan-joint-plans", tests, NULL, NULL);
}
