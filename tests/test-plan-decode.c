/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of the decode phase against all splits, schedules against the ranks' clocks and
 * against what their messages make of the partial results.
 */
#include <time.h>
#include "tests/decode-fixture.h"

static char text[512];

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* What a plan says of itself: sums, caps, merge, memory, and the time again. */
static void check_plan(const struct problem_case *c)
{
    const hcp_plan *plan = &c->p.plan;
    int64_t tokens[5], sum = 0, off_tile = 0;
    hcp_merge merge = HCP_MERGE_AUTO;
    double ms;
    int m = 0;

    for (size_t r = 0; r < c->n; r++) {
        tokens[r] = plan->ranks[r].tokens;
        sum += tokens[r];
        m += tokens[r] > 0;
        off_tile += tokens[r] % plan->tile != 0;
    }
    assert_int_equal(sum, c->q.seq_len);
    assert_true(off_tile <= 1 || plan->strategy == HCP_STRATEGY_GIVEN);
    ms = reference_decode_ms(c->ring, &c->q, tokens, &merge);
    assert_true(ms >= 0);
    assert_true(near(plan->makespan_ms, ms));
    assert_true(near(plan->merge_ms + plan->ranks[plan->critical_rank].compute_ms, ms));
    assert_true((plan->merge == HCP_MERGE_AUTO) == (m == 1));
    if (m > 1) {
        const double each[] = {plan->merge_ring_ms, plan->merge_doubling_ms,
                               plan->merge_gather_ms};

        assert_true(each[plan->merge - 1] == plan->merge_ms);
        for (int k = 0; k < 3; k++)
            assert_true(near(each[k], reference_merge_ms((hcp_merge)(k + 1), m, &c->shape,
                                                         &c->q)) ||
                        each[k] == 0);
    }
    for (size_t r = 0; r < c->n; r++) {
        const hcp_plan_rank *rank = &plan->ranks[r];

        if (tokens[r] == 0) {
            assert_int_equal(rank->memory_bytes, 0);
            continue;
        }
        assert_int_equal(rank->memory_bytes,
                         reference_decode_bytes(&c->shape, &c->q, plan->merge, m,
                                                rank->weight_bytes, tokens[r]));
        assert_true(rank->max_bytes == 0 || rank->memory_bytes <= rank->max_bytes);
        assert_true(rank->max_tokens == 0 || tokens[r] <= rank->max_tokens);
    }
    assert_true(plan->bound_ms <= plan->makespan_ms);
    assert_true(plan->interval_lo_ms <= plan->makespan_ms &&
                plan->interval_hi_ms >= plan->makespan_ms);
}

/* The fastest of all splits, of those without a rank, and no rule faster. */
static void exhaustive(void **state)
{
    uint64_t seed = 71;
    int cases = (int)(1200 * fixture_scale()), solved = 0, dropped = 0,
        schedules[4] = {0};

    (void)state;
    for (int i = 0; i < cases; i++) {
        struct problem_case c;
        int64_t tokens[REFERENCE_MOST], other[REFERENCE_MOST];
        double best, drop;
        hcp_status status;

        make_case(&c, &seed);
        best = reference_decode_best(c.ring, &c.q, c.tile, (int)c.n, tokens);
        drop = reference_decode_best(c.ring, &c.q, c.tile, (int)c.n - 1, other);
        status = fixture_split(c.ring, &c.q, &c.p, text, sizeof text);
        if (best < 0) {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            free_case(&c);
            continue;
        }
        if (status)
            fail_msg("case %d: %s", i, text);
        solved++;
        check_plan(&c);
        if (!near(c.p.plan.makespan_ms, best))
            fail_msg("case %d: %.17g ms, %.17g possible", i, c.p.plan.makespan_ms, best);
        assert_int_equal(c.p.plan.exact, 1);
        assert_true(drop < 0 ? isnan(c.p.plan.drop_ms) : near(c.p.plan.drop_ms, drop));
        for (size_t r = 0; r < c.n; r++)
            if (c.p.plan.ranks[r].tokens == 0) {
                dropped++;
                break;
            }
        schedules[c.p.plan.merge]++;
        best = c.p.plan.makespan_ms;
        for (int s = HCP_STRATEGY_EVEN; s <= HCP_STRATEGY_LUT; s++) {
            double even = c.p.plan.even_ms;

            c.q.strategy = (hcp_strategy)s;
            status = fixture_split(c.ring, &c.q, &c.p, text, sizeof text);
            if (status == HCP_STATUS_INFEASIBLE)
                continue;
            assert_int_equal(status, HCP_STATUS_OK);
            check_plan(&c);
            assert_true(c.p.plan.makespan_ms >= best * (1 - 1e-12));
            if (s == HCP_STRATEGY_EVEN)
                assert_true(c.p.plan.makespan_ms == even);
        }
        free_case(&c);
    }
    print_message("# %d of %d fit, %d leave ranks out; none %d, ring %d, doubling %d, "
                  "gather %d\n",
                  solved, cases, dropped, schedules[0], schedules[1], schedules[2],
                  schedules[3]);
    assert_true(fixture_scale() < 1 ||
                (solved > 700 && dropped > 50 && schedules[1] > 20 && schedules[2] > 20 &&
                 schedules[3] > 20));
}

/* A split of one's own, as it is. */
static void given(void **state)
{
    uint64_t seed = 72;

    (void)state;
    for (int i = 0; i < 300; i++) {
        struct problem_case c;
        int64_t tokens[5], left;
        hcp_merge merge;
        hcp_status status;
        double ms;

        make_case(&c, &seed);
        left = c.q.seq_len;
        for (size_t r = 0; r < c.n; r++) {
            tokens[r] = r + 1 == c.n ? left : fixture_range(&seed, 0, left);
            left -= tokens[r];
        }
        c.q.layout = HCP_LAYOUT_CONTIGUOUS;
        ms = reference_decode_ms(c.ring, &c.q, tokens, &merge);
        status = hcp_plan_evaluate(c.ring, &c.q, tokens, c.p.workspace,
                                   c.p.workspace_bytes, text, sizeof text, &c.p.plan);
        assert_int_equal(status, ms < 0 ? HCP_STATUS_INFEASIBLE : HCP_STATUS_OK);
        if (status == HCP_STATUS_OK) {
            check_plan(&c);
            assert_int_equal(c.p.plan.strategy, HCP_STRATEGY_GIVEN);
        } else {
            assert_non_null(strstr(text, "more than its memory cap"));
        }
        tokens[0]++;
        assert_int_equal(hcp_plan_evaluate(c.ring, &c.q, tokens, c.p.workspace,
                                           c.p.workspace_bytes, text, sizeof text,
                                           &c.p.plan),
                         HCP_STATUS_INVALID);
        free_case(&c);
    }
}

/* Where bandwidth alone decides, shares follow it, and the closed form holds: S / sum v;
 * a cap holds what it can, the others share the rest. */
static void closed_form(void **state)
{
    uint64_t seed = 73;
    hcp_shape shape = shape_of(4, 32);

    (void)state;
    for (int i = 0; i < 300; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 8);
        struct decode_kind kinds[8];
        int64_t caps[8] = {0};
        double sum = 0, ideal;
        hcp_models *models;
        hcp_ring *ring;
        hcp_question q;
        struct fixture_plan p;

        for (size_t r = 0; r < n; r++) {
            kinds[r] =
                (struct decode_kind){0, fixture_real(&seed, 1e-6, 1e-5), 0, 0.01, 0, 1};
            sum += 1 / kinds[r].ms_per_token;
        }
        models = decode_models(kinds, n, &shape);
        hcp_question_init(&q);
        q.seq_len = 60000;
        q.extrapolate = 1;
        ideal = 60000 / sum;
        fixture_plan_init(&p, n);
        for (int capped = 0; capped < 2; capped++) {
            if (capped) { /* half of what it would get */
                caps[0] = p.plan.ranks[0].tokens / 2;
                ideal = (60000 - (double)caps[0]) / (sum - 1 / kinds[0].ms_per_token);
            }
            ring = decode_ring(models, &shape, caps, NULL, NULL, n);
            assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text),
                             HCP_STATUS_OK);
            /* Tiles of one token: a token too much at the most. */
            assert_true(p.plan.makespan_ms >= ideal * (1 - 1e-9) &&
                        p.plan.makespan_ms <= ideal + 1e-5);
            if (!capped)
                assert_true(fabs(p.plan.bound_ms / ideal - 1) < 1e-9);
            else
                assert_int_equal(p.plan.ranks[0].tokens, caps[0]);
            hcp_ring_free(ring);
        }
        fixture_plan_free(&p);
        hcp_models_free(models);
    }
}

/* ---- messages ---- */

/* Follows the messages: who has whose rows, bit by bit, each once. */
static void follow(const hcp_plan *plan, const hcp_merge_send *sends, size_t n_sends,
                   double alpha_ms, double ms_per_byte)
{
    static uint32_t has[32][64], then[32][64];
    int64_t rows = (int64_t)plan->shape.batch * plan->shape.heads;
    uint32_t all = 0;
    double ms = 0;

    memset(has, 0, sizeof has);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        if (plan->ranks[r].tokens == 0)
            continue;
        all |= 1u << r;
        for (int64_t row = 0; row < rows; row++)
            has[r][row] = 1u << r;
    }
    for (size_t i = 0; i < n_sends;) {
        size_t end = i;
        double out[32] = {0}, longest = 0;

        memcpy(then, has, sizeof has);
        for (; end < n_sends && sends[end].round == sends[i].round; end++) {
            const hcp_merge_send *s = &sends[end];

            assert_true(end == i || s->from >= s[-1].from);
            assert_true(s->from != s->to && s->n_rows > 0 &&
                        s->first_row + s->n_rows <= rows);
            assert_true(plan->ranks[s->from].tokens > 0 && plan->ranks[s->to].tokens > 0);
            out[s->from] += (double)s->n_rows * (plan->shape.head_dim + 1) * 4;
            longest = fmax(longest, out[s->from]);
            for (int64_t row = s->first_row; row < s->first_row + s->n_rows; row++) {
                if (s->merges) {
                    assert_int_equal(then[s->to][row] & has[s->from][row], 0);
                    then[s->to][row] |= has[s->from][row];
                } else {
                    assert_int_equal(has[s->from][row], all);
                    then[s->to][row] = all;
                }
            }
        }
        assert_int_equal(sends[i].round, i == 0 ? 0 : sends[i - 1].round + 1);
        memcpy(has, then, sizeof has);
        ms += alpha_ms + longest * ms_per_byte;
        i = end;
    }
    for (size_t r = 0; r < plan->n_ranks; r++)
        for (int64_t row = 0; plan->ranks[r].tokens > 0 && row < rows; row++)
            assert_int_equal(has[r][row], all);
    assert_true(plan->merge == HCP_MERGE_AUTO ? n_sends == 0
                                              : fabs(ms / plan->merge_ms - 1) < 1e-12);
}

static void messages(void **state)
{
    uint64_t seed = 74;
    static hcp_merge_send sends[4096];

    (void)state;
    for (int i = 0; i < 400; i++) {
        size_t n = (size_t)fixture_range(&seed, 1, 20), n_sends, counted;
        hcp_shape shape = shape_of((int32_t)fixture_range(&seed, 1, 8), 8);
        struct decode_kind kinds[20];
        hcp_models *models;
        hcp_ring *ring;
        hcp_question q;
        struct fixture_plan p;

        random_kinds(&seed, kinds, n, 64);
        models = decode_models(kinds, n, &shape);
        ring = decode_ring(models, &shape, NULL, NULL, NULL, n);
        fixture_plan_init(&p, n);
        hcp_question_init(&q);
        q.seq_len = 64 * fixture_range(&seed, 1, 400);
        q.extrapolate = 1;
        q.link_alpha_us = fixture_real(&seed, 1, 10);
        q.link_gbps = fixture_real(&seed, 1, 100);
        q.merge = (hcp_merge)fixture_range(&seed, 0, 3);
        assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
        assert_int_equal(hcp_plan_merge_sends(&p.plan, NULL, 0, &counted), HCP_STATUS_OK);
        assert_int_equal(hcp_plan_merge_sends(&p.plan, sends, 4096, &n_sends),
                         HCP_STATUS_OK);
        assert_int_equal(counted, n_sends);
        follow(&p.plan, sends, n_sends, q.link_alpha_us / 1e3, 1e-6 / q.link_gbps);
        if (n_sends > 0)
            assert_int_equal(hcp_plan_merge_sends(&p.plan, sends, n_sends - 1, &n_sends),
                             HCP_STATUS_SPACE);
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        hcp_models_free(models);
    }
}

/* Many ranks: an answer, fast, that is no slower than any rule. */
static void many(void **state)
{
    static const size_t sizes[] = {64, 65, 300, 4096};
    struct decode_kind kinds[2] = {{0.01, 1e-5, 0, 0.02, 9, 64},
                                   {0.01, 3e-5, 0, 0.02, 7, 64}};
    hcp_shape shape = shape_of(8, 32);
    hcp_models *models = decode_models(kinds, 2, &shape);

    (void)state;
    for (int i = 0; i < 4; i++) {
        size_t n = sizes[i];
        hcp_rank *ranks = calloc(n, sizeof *ranks);
        hcp_ring *ring = NULL;
        struct fixture_plan p;
        hcp_question q;
        double best, ms;
        clock_t began;

        assert_non_null(ranks);
        for (size_t r = 0; r < n; r++) {
            hcp_rank_init(&ranks[r]);
            strcpy(ranks[r].device, "nvidia-h200");
            strcpy(ranks[r].limit, r < n / 2 ? "mps:1" : "mps:2");
        }
        assert_int_equal(
            hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring),
            HCP_STATUS_OK);
        fixture_plan_init(&p, n);
        hcp_question_init(&q);
        q.seq_len = (int64_t)n * 8000 + 17;
        q.extrapolate = 1;
        q.link_alpha_us = 5;
        q.link_gbps = 50;
        began = clock();
        assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
        ms = (double)(clock() - began) * 1e3 / CLOCKS_PER_SEC;
        print_message("# %zu ranks: %.3f ms of planning\n", n, ms);
        assert_int_equal(p.plan.exact, n <= 64);
        best = p.plan.makespan_ms;
        for (int s = 0; s < HCP_STRATEGY_LUT; s++) {
            q.strategy = (hcp_strategy)s;
            assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text),
                             HCP_STATUS_OK);
            assert_true(p.plan.makespan_ms >= best);
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        free(ranks);
    }
    hcp_models_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exhaustive),  cmocka_unit_test(given),
        cmocka_unit_test(closed_form), cmocka_unit_test(messages),
        cmocka_unit_test(many),
    };

    return cmocka_run_group_tests_name("plan-decode", tests, NULL, NULL);
}
