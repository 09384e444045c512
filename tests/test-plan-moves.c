/* SPDX-License-Identifier: Apache-2.0
 *
 * From one plan to another: the fewest tokens, the fastest pairing of all, tokens that
 * can be followed, and a decision that turns where theory says.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/decode-reference.h"

static char text[512];

enum { MOST = 12 };

/* A decode ring, the plan to move to, and one of prefill to move from. */
struct moving {
    size_t n;
    hcp_shape shape;
    hcp_models *models;
    hcp_ring *ring;
    struct fixture_plan to, from;
    hcp_place places[MOST];
    hcp_move moves[MOST];
    hcp_segment segments[512];
    hcp_moves out;
    hcp_move_question q;
};

static void make(struct moving *m, size_t n, const struct decode_kind *kinds,
                 const int64_t *max_bytes)
{
    memset(m, 0, sizeof *m);
    m->n = n;
    hcp_shape_init(&m->shape);
    strcpy(m->shape.phase, "decode");
    m->shape.batch = 4;
    m->models = decode_models(kinds, n, &m->shape);
    m->ring = decode_ring(m->models, &m->shape, NULL, max_bytes, NULL, n);
    fixture_plan_init(&m->to, n);
    fixture_plan_init(&m->from, n);
    hcp_moves_init(&m->out, m->moves, MOST, m->segments, 512);
    hcp_move_question_init(&m->q);
}

static void clear(struct moving *m)
{
    fixture_plan_free(&m->to);
    fixture_plan_free(&m->from);
    hcp_ring_free(m->ring);
    hcp_models_free(m->models);
}

/* What to move to: these shares. */
static void set_to(struct moving *m, const int64_t *tokens, hcp_question *q)
{
    q->layout = HCP_LAYOUT_CONTIGUOUS;
    q->extrapolate = 1;
    if (hcp_plan_evaluate(m->ring, q, tokens, m->to.workspace, m->to.workspace_bytes,
                          text, sizeof text, &m->to.plan))
        fail_msg("%s", text);
}

/* What to move from: a prefill plan of these shares in a layout, at batch 1, as a file
 * would have it; in another order of the ranks where order is not NULL. */
static void set_from(struct moving *m, const int64_t *tokens, hcp_layout layout,
                     const int32_t *order)
{
    hcp_plan *plan = &m->from.plan;
    int64_t held[MOST], counts[MOST], at = 0;

    hcp_shape_init(&plan->shape);
    plan->n_ranks = m->n;
    plan->seq_len = m->to.plan.seq_len;
    plan->layout = layout;
    plan->stripes = 8;
    plan->layers = 1;
    plan->order = order ? HCP_ORDER_FREE : HCP_ORDER_GIVEN;
    plan->places = order ? m->places : NULL;
    for (size_t i = 0; i < m->n; i++) {
        size_t r = order ? (size_t)order[i] : i;

        m->places[i].rank = (int32_t)r;
        held[i] = tokens[r];
        memcpy(plan->ranks[i].device, m->to.plan.ranks[r].device, 64);
        memcpy(plan->ranks[i].limit, m->to.plan.ranks[r].limit, 32);
    }
    assert_int_equal(hcp_layout_segments(layout, 8, m->n, held, plan->seq_len,
                                         plan->segments, plan->segments_capacity, counts),
                     HCP_STATUS_OK);
    for (size_t i = 0; i < m->n; i++) {
        plan->ranks[i].tokens = plan->ranks[i].kv_tokens = held[i];
        plan->ranks[i].first_kv_segment = at;
        plan->ranks[i].n_kv_segments = counts[i];
        at += counts[i];
    }
    plan->n_segments = (size_t)at;
}

static hcp_status ask(struct moving *m)
{
    return hcp_plan_moves(m->ring, &m->from.plan, &m->to.plan, &m->q, m->to.workspace,
                          m->to.workspace_bytes, text, sizeof text, &m->out);
}

static void random_shares(uint64_t *seed, size_t n, int64_t sum, int64_t *tokens)
{
    for (size_t r = 0; r < n; r++) {
        tokens[r] = r + 1 == n ? sum : fixture_range(seed, 0, sum);
        sum -= tokens[r];
    }
    for (size_t r = n; r-- > 1;) {
        size_t k = (size_t)fixture_range(seed, 0, (int64_t)r);
        int64_t swap = tokens[r];

        tokens[r] = tokens[k];
        tokens[k] = swap;
    }
}

/* Follows the moves token by token: each is sent once, by the rank that has it; at the
 * end every rank has as many as the new plan says. */
static void follow(const struct moving *m, const int64_t *new, size_t *pairs)
{
    const hcp_plan *from = &m->from.plan;
    int64_t s = from->seq_len, bytes = 0;
    int8_t *owner = malloc((size_t)s);
    int8_t *moved = calloc((size_t)s, 1);
    double sums[2][MOST] = {{0}}, most = 0;

    assert_non_null(owner);
    assert_non_null(moved);
    for (size_t i = 0; i < m->n; i++) {
        const hcp_plan_rank *rank = &from->ranks[i];
        size_t r = from->order ? (size_t)from->places[i].rank : i;

        for (int64_t k = 0; k < rank->n_kv_segments; k++) {
            hcp_segment run = from->segments[rank->first_kv_segment + k];
            memset(owner + run.offset, (int)r, (size_t)run.length);
        }
    }
    for (size_t i = 0; i < m->out.n_moves; i++) {
        const hcp_move *move = &m->out.moves[i];
        int64_t sum = 0;

        assert_true(i == 0 || move->from > move[-1].from ||
                    (move->from == move[-1].from && move->to > move[-1].to));
        for (int64_t k = 0; k < move->n_segments; k++) {
            hcp_segment run = m->out.segments[move->first_segment + k];

            assert_true(run.length > 0);
            for (int64_t t = run.offset; t < run.offset + run.length; t++) {
                assert_true(owner[t] == move->from && !moved[t]);
                moved[t] = 1;
                owner[t] = (int8_t)move->to;
            }
            sum += run.length;
        }
        assert_int_equal(sum, move->tokens);
        assert_int_equal(move->bytes, sum * 4 * 2 * 8 * 128 * 2 * m->to.plan.layers);
        bytes += move->bytes;
        sums[0][move->from] += move->ms;
        sums[1][move->to] += move->ms;
    }
    assert_int_equal(bytes, m->out.bytes);
    for (size_t r = 0; r < m->n; r++) {
        int64_t held = 0;

        for (int64_t t = 0; t < s; t++)
            held += owner[t] == (int8_t)r;
        assert_int_equal(held, new[r]);
        /* Each link carries one way at a time: its numbers are of that. */
        assert_true(sums[0][r] == 0 || sums[1][r] == 0);
        most = fmax(most, fmax(sums[0][r], sums[1][r]));
    }
    assert_true(fabs(most - m->out.move_ms) <= 1e-12 * most);
    *pairs += m->out.n_moves;
    free(owner);
    free(moved);
}

/* All tables of who gives how much to whom: none is faster. */
static void exhaustive(void **state)
{
    uint64_t seed = 81;
    struct decode_kind kinds[MOST];
    int cases = (int)(500 * fixture_scale());
    size_t pairs = 0;

    (void)state;
    for (int r = 0; r < MOST; r++)
        kinds[r] = (struct decode_kind){0.01, 1e-5, 0, 0.02, 0, 1};
    for (int i = 0; i < cases; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 6);
        int64_t old[MOST], new[MOST], sum = fixture_range(&seed, 1, n > 5 ? 12 : 16);
        int64_t least = 0;
        int32_t order[MOST];
        hcp_question q;
        struct moving m;
        double best;

        make(&m, n, kinds, NULL);
        random_shares(&seed, n, sum, old);
        random_shares(&seed, n, sum, new);
        for (size_t r = 0; r < n; r++) {
            least += old[r] > new[r] ? old[r] - new[r] : 0;
            order[r] = (int32_t)((r + 1) % n);
        }
        hcp_question_init(&q);
        q.seq_len = sum;
        q.layers = (int32_t)fixture_range(&seed, 1, 4);
        set_to(&m, new, &q);
        set_from(&m, old, (hcp_layout)fixture_range(&seed, 1, 3), i % 2 ? order : NULL);
        m.q.extrapolate = 1;
        m.q.link_alpha_us = fixture_range(&seed, 0, 3) ? fixture_real(&seed, 0, 20) : 0;
        m.q.link_gbps = fixture_range(&seed, 0, 3) ? fixture_real(&seed, 1, 50) : 0;
        if (ask(&m))
            fail_msg("case %d: %s", i, text);
        assert_int_equal(m.out.tokens, least);
        best = reference_moves_ms(n, old, new, 4.0 * 2 * 8 * 128 * 2 * q.layers,
                                  m.q.link_alpha_us, m.q.link_gbps);
        if (fabs(m.out.move_ms - best) > 1e-9 * best)
            fail_msg("case %d: %.17g ms, %.17g possible", i, m.out.move_ms, best);
        assert_int_equal(m.out.exact, 1);
        /* Steps that get slower are none to move for; then nothing is listed. */
        if (m.out.decision == HCP_MOVE_STAY)
            assert_int_equal(m.out.n_moves + m.out.n_segments, 0);
        else
            follow(&m, new, &pairs);
        clear(&m);
    }
    print_message("# %zu messages\n", pairs);
    assert_true(fixture_scale() < 1 || pairs > 100);
}

/* Larger shares and more ranks: tokens can be followed, pairing within the bound that
 * bytes alone give. */
static void larger(void **state)
{
    uint64_t seed = 82;
    struct decode_kind kinds[MOST];
    size_t pairs = 0;

    (void)state;
    for (int r = 0; r < MOST; r++)
        kinds[r] = (struct decode_kind){0.01, 1e-5, 0, 0.02, 0, 1};
    for (int i = 0; i < 200; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, MOST);
        int64_t old[MOST], new[MOST], sum = fixture_range(&seed, 1000, 30000);
        int64_t largest = 0, change;
        hcp_question q;
        struct moving m;
        double bound;

        make(&m, n, kinds, NULL);
        random_shares(&seed, n, sum, old);
        random_shares(&seed, n, sum, new);
        for (size_t r = 0; r < n; r++) {
            change = old[r] - new[r];
            change = change < 0 ? -change : change;
            largest = change > largest ? change : largest;
        }
        hcp_question_init(&q);
        q.seq_len = sum;
        set_to(&m, new, &q);
        set_from(&m, old, (hcp_layout)fixture_range(&seed, 1, 3), NULL);
        m.q.extrapolate = 1;
        m.q.link_alpha_us = 10;
        m.q.link_gbps = 20;
        m.q.steps = 1000000;
        if (ask(&m))
            fail_msg("case %d: %s", i, text);
        bound = (double)largest * 4 * 2 * 8 * 128 * 2 / 20e6;
        assert_true(m.out.move_ms >= bound && m.out.move_ms <= bound + 0.01 * (double)n);
        if (m.out.decision == HCP_MOVE_GO)
            follow(&m, new, &pairs);
        else
            assert_true(m.out.stay_ms <= m.out.step_ms);
        clear(&m);
    }
    assert_true(pairs > 200);
}

/* A pair, bandwidth alone: moving pays after bytes / B / (T_old - T_new) steps. The
 * decision turns within 5 % of that; the plan to move to is the planner's own. */
static void break_even(void **state)
{
    uint64_t seed = 83;

    (void)state;
    for (int i = 0; i < 300; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 5);
        struct decode_kind kinds[MOST];
        int64_t old[MOST] = {0}, s = 32768;
        double v = 0, before = 0, analytic, bytes = 0, layers,
               gbps = fixture_real(&seed, 5, 200);
        hcp_question q;
        struct moving m;

        for (size_t r = 0; r < n; r++) {
            kinds[r] =
                (struct decode_kind){0, fixture_real(&seed, 1e-6, 2e-5), 0, 0.02, 0, 1};
            v += 1 / kinds[r].ms_per_token;
        }
        make(&m, n, kinds, NULL);
        hcp_question_init(&q);
        q.seq_len = s;
        q.extrapolate = 1;
        q.layers = 32;
        layers = 32;
        if (fixture_split(m.ring, &q, &m.to, text, sizeof text))
            fail_msg("%s", text);
        /* All but one give to the one that is fastest, or so: a single receiver. */
        for (size_t r = 1; r < n; r++)
            old[r] = m.to.plan.ranks[r].tokens + fixture_range(&seed, 200, 2000);
        old[0] = s;
        for (size_t r = 1; r < n; r++)
            old[0] -= old[r];
        if (old[0] < 0) {
            clear(&m);
            continue;
        }
        for (size_t r = 0; r < n; r++) {
            before = fmax(before, (double)old[r] * kinds[r].ms_per_token);
            if ((double)old[r] < (double)s / kinds[r].ms_per_token / v)
                bytes += ((double)s / kinds[r].ms_per_token / v - (double)old[r]) * 4 *
                         2 * 8 * 128 * 2 * layers;
        }
        analytic = bytes / (gbps * 1e6) / (layers * (before - (double)s / v));
        set_from(&m, old, HCP_LAYOUT_ZIGZAG, NULL);
        m.q.link_gbps = gbps;
        m.q.extrapolate = 1;
        assert_int_equal(ask(&m), HCP_STATUS_OK);
        assert_int_equal(m.out.decision, HCP_MOVE_OPEN);
        assert_true(fabs(m.out.break_even_steps / analytic - 1) < 0.05);
        m.q.steps = (int64_t)(analytic * 1.05) + 1;
        assert_int_equal(ask(&m), HCP_STATUS_OK);
        assert_int_equal(m.out.decision, HCP_MOVE_GO);
        assert_true(m.out.saved_ms > 0 && m.out.n_moves > 0);
        m.q.steps = (int64_t)(analytic * 0.95);
        if (m.q.steps > 0) {
            assert_int_equal(ask(&m), HCP_STATUS_OK);
            assert_int_equal(m.out.decision, HCP_MOVE_STAY);
            assert_true(m.out.saved_ms <= 0 && m.out.n_moves == 0);
        }
        clear(&m);
    }
}

/* KV that does not fit where it is must move, whatever the steps. */
static void must(void **state)
{
    struct decode_kind kinds[2] = {{0, 1e-6, 0, 0.02, 0, 1}, {0, 1e-5, 0, 0.02, 0, 1}};
    int64_t bytes[2] = {0, 0}, old[2] = {1000, 31768}, new[2] = {28768, 4000};
    hcp_question q;
    struct moving m;

    (void)state;
    bytes[1] = 10000 * (int64_t)(4 * 2 * 8 * 128 * 2);
    make(&m, 2, kinds, bytes);
    hcp_question_init(&q);
    q.seq_len = 32768;
    set_to(&m, new, &q);
    set_from(&m, old, HCP_LAYOUT_CONTIGUOUS, NULL);
    m.q.link_gbps = 1e-3;
    m.q.steps = 1;
    m.q.extrapolate = 1;
    assert_int_equal(ask(&m), HCP_STATUS_OK);
    assert_int_equal(m.out.decision, HCP_MOVE_GO);
    assert_true(isnan(m.out.stay_ms) && m.out.break_even_steps == 0);
    assert_int_equal(m.out.moves[0].from, 1);
    assert_int_equal(m.out.moves[0].tokens, 27768);
    /* A link of its own for the pair. */
    hcp_link own = {.from = 1, .to = 0, .alpha_us = 7, .gbps = 50};
    m.q.links = &own;
    m.q.n_links = 1;
    assert_int_equal(ask(&m), HCP_STATUS_OK);
    assert_true(fabs(m.out.move_ms - 0.007 - (double)m.out.bytes / 50e6) < 1e-9);
    clear(&m);
}

static void refusals(void **state)
{
    struct decode_kind kinds[2] = {{0.01, 1e-5, 0, 0.02, 0, 1},
                                   {0.01, 1e-4, 0, 0.02, 0, 1}};
    int64_t old[2] = {16384, 16384}, new[2] = {28768, 4000};
    hcp_link shared = {.from = 0, .to = 1, .shared = {1, 0}};
    hcp_question q;
    struct moving m;
    hcp_plan *from, *to;

    (void)state;
    make(&m, 2, kinds, NULL);
    hcp_question_init(&q);
    q.seq_len = 32768;
    set_to(&m, new, &q);
    set_from(&m, old, HCP_LAYOUT_ZIGZAG, NULL);
    from = &m.from.plan;
    to = &m.to.plan;
    assert_int_equal(ask(&m), HCP_STATUS_OK);

#define REFUSED(change, back, why)                                                       \
    do {                                                                                 \
        change;                                                                          \
        assert_int_equal(ask(&m), HCP_STATUS_INVALID);                                   \
        if (!strstr(text, why))                                                          \
            fail_msg("'%s' is not in '%s'", why, text);                                  \
        back;                                                                            \
    } while (0)
    REFUSED(from->seq_len--, from->seq_len++, "32767 and 32768 tokens");
    REFUSED(from->n_ranks--, from->n_ranks++, "1 and 2 ranks");
    REFUSED(from->shape.kv_heads = 4, from->shape.kv_heads = 8, "KV differ");
    REFUSED(strcpy(from->shape.dtype, "fp32"), strcpy(from->shape.dtype, "bf16"),
            "KV differ");
    REFUSED(strcpy(from->ranks[1].limit, "mps:9"), strcpy(from->ranks[1].limit, "mps:2"),
            "rank 1 is 'nvidia-h200@mps:9'");
    REFUSED(from->ranks[0].kv_tokens--, from->ranks[0].kv_tokens++, "do not add up");
    REFUSED(from->n_segments -= 2, from->n_segments += 2, "do not add up");
    REFUSED(strcpy(to->shape.phase, "prefill"), strcpy(to->shape.phase, "decode"),
            "not one of decode");
    REFUSED(to->shape.batch = 5, to->shape.batch = 4, "not of the shape");
    REFUSED(m.q.steps = -1, m.q.steps = 0, "steps");
    REFUSED(m.q.link_gbps = -1, m.q.link_gbps = 0, "link");
    REFUSED((m.q.links = &shared, m.q.n_links = 1), m.q.n_links = 0,
            "between two of 2 ranks");
    m.out.moves_capacity = 0;
    assert_int_equal(ask(&m), HCP_STATUS_SPACE);
    m.out.moves_capacity = MOST;
    m.out.segments_capacity = 0;
    assert_int_equal(ask(&m), HCP_STATUS_SPACE);
    m.out.segments_capacity = 512;
    assert_int_equal(ask(&m), HCP_STATUS_OK);
    /* The same shares: nothing to do. */
    set_from(&m, new, HCP_LAYOUT_CONTIGUOUS, NULL);
    m.q.steps = 1000;
    assert_int_equal(ask(&m), HCP_STATUS_OK);
    assert_int_equal(m.out.decision, HCP_MOVE_STAY);
    assert_int_equal(m.out.tokens, 0);
    clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exhaustive), cmocka_unit_test(larger),
        cmocka_unit_test(break_even), cmocka_unit_test(must), cmocka_unit_test(refusals)};

    return cmocka_run_group_tests_name("plan-moves", tests, NULL, NULL);
}
