/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans taken apart: the steps of a simulation, splits of the caller's own, segments.
 */
#include <locale.h>
#include <math.h>
#include <string.h>
#include "tests/plan-kinds.h"

/* The steps of a simulation add up to the plan. */
static void simulation(void **state)
{
    static const int which[5] = {0, 1, 0, 1, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 5);
    static hcp_step steps[25];
    struct fixture_plan p;
    char text[512];
    int early = 0;

    (void)state;
    fixture_plan_init(&p, 5);
    for (int i = 0; i < 64; i++) {
        hcp_question q;
        size_t n, m = 0;
        double end = 0;

        hcp_question_init(&q);
        q.seq_len = 40000 + 1000 * i;
        q.causal = i & 1;
        q.layout = (hcp_layout)(1 + i / 2 % 3);
        q.barrier = i / 8 % 2;
        q.link_gbps = i / 16 % 2 ? 20 : 0;
        q.sub_blocks = i / 32 ? 3 : 1;
        q.strategy = HCP_STRATEGY_PROPORTIONAL;
        q.extrapolate = 1; /* a piece may show a stripe fewer keys than were measured */
        assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
        text[0] = 0;
        hcp_plan_simulate(ring, &p.plan, 1, p.workspace, p.workspace_bytes, text,
                          sizeof text, steps, 25, &n);
        assert_string_equal(text, "");
        for (size_t r = 0; r < 5; r++)
            m += p.plan.ranks[r].tokens > 0;
        assert_int_equal(n, m * m);
        for (size_t at = 0; at < n; at += m) {
            const hcp_plan_rank *rank = &p.plan.ranks[steps[at].rank];
            double busy = 0, wait = 0;

            for (size_t k = 0; k < m; k++) {
                assert_int_equal(steps[at + k].rank, steps[at].rank);
                assert_int_equal(steps[at + k].step, k);
                busy += steps[at + k].busy_ms;
                wait += steps[at + k].wait_ms;
                if (!isnan(steps[at + k].ready_ms)) {
                    if (q.sub_blocks == 1 || q.barrier)
                        assert_true(steps[at + k].start_ms >= steps[at + k].ready_ms);
                    else /* the first pieces may be computed before the last is here */
                        early += steps[at + k].start_ms < steps[at + k].ready_ms;
                    assert_true(steps[at + k].fin_ms >= steps[at + k].ready_ms);
                }
            }
            assert_float_equal(busy, rank->compute_ms, 1e-9 * busy);
            assert_float_equal(busy + wait, rank->predicted_ms, 1e-9 * busy);
            end = fmax(end, steps[at + m - 1].fin_ms);
        }
        assert_float_equal(end, p.plan.makespan_ms, 1e-12 * end);
    }
    assert_true(early > 0);
    assert_int_equal(hcp_plan_simulate(ring, &p.plan, 0, p.workspace, p.workspace_bytes,
                                       text, sizeof text, steps, 24, &(size_t){0}),
                     HCP_STATUS_SPACE);
    p.plan.sub_blocks = 0;
    assert_int_equal(hcp_plan_simulate(ring, &p.plan, 0, p.workspace, p.workspace_bytes,
                                       text, sizeof text, steps, 25, &(size_t){0}),
                     HCP_STATUS_INVALID);
    p.plan.sub_blocks = 1;
    p.plan.ranks[0].tokens++;
    assert_int_equal(hcp_plan_simulate(ring, &p.plan, 0, p.workspace, p.workspace_bytes,
                                       text, sizeof text, steps, 25, &(size_t){0}),
                     HCP_STATUS_INVALID);
    has(text, "add up");
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    fixture_free(models);
}

/* ---- splits of the caller's own ---- */

static hcp_status evaluate(const hcp_ring *ring, const hcp_question *q,
                           const int64_t *tokens, struct fixture_plan *p, char *text,
                           size_t size)
{
    text[0] = 0;
    return hcp_plan_evaluate(ring, q, tokens, p->workspace, p->workspace_bytes, text,
                             size, &p->plan);
}

static int same_ms(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)); /* NaN: outside the measured lengths */
}

/* The plan's own tokens get the plan's own numbers. */
static void evaluation(void **state)
{
    static const int which[5] = {0, 1, 0, 1, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 5);
    struct fixture_plan a, b;
    char text[512];
    int even = 0;

    (void)state;
    fixture_plan_init(&a, 5);
    fixture_plan_init(&b, 5);
    for (int i = 0; i < 48; i++) {
        const hcp_plan *p = &a.plan, *g = &b.plan;
        hcp_question q;
        int64_t tokens[5];

        hcp_question_init(&q);
        q.seq_len = 30000 + 1711 * i;
        q.causal = i & 1;
        q.layout = (hcp_layout)(1 + i / 2 % 3);
        q.sub_blocks = i / 6 % 2 ? 3 : 1;
        q.buffers = i / 12 % 3;
        q.link_gbps = i % 5 ? 20 : 0;
        q.strategy = i % 3 ? HCP_STRATEGY_BEST : HCP_STRATEGY_PROPORTIONAL;
        assert_int_equal(fixture_split(ring, &q, &a, text, sizeof text), HCP_STATUS_OK);
        for (size_t r = 0; r < 5; r++)
            tokens[r] = p->ranks[r].tokens;
        assert_int_equal(evaluate(ring, &q, tokens, &b, text, sizeof text),
                         HCP_STATUS_OK);
        assert_int_equal(g->strategy, HCP_STRATEGY_GIVEN);
        assert_int_equal(g->exact, 0);
        assert_int_equal(g->tile, p->tile);
        assert_true(g->makespan_ms == p->makespan_ms && g->bound_ms == p->bound_ms);
        assert_true(same_ms(g->even_ms, p->even_ms) && same_ms(g->drop_ms, p->drop_ms));
        even += !isnan(g->even_ms);
        assert_true(g->interval_hi_ms == p->interval_hi_ms);
        assert_int_equal(g->source, p->source);
        assert_int_equal(g->n_segments, p->n_segments);
        assert_memory_equal(g->segments, p->segments,
                            p->n_segments * sizeof *p->segments);
        for (size_t r = 0; r < 5; r++)
            assert_true(g->ranks[r].predicted_ms == p->ranks[r].predicted_ms);
        assert_true(g->fingerprint == hcp_plan_fingerprint(g) &&
                    g->fingerprint != p->fingerprint);
    }
    assert_true(even > 40);
    hcp_ring_free(ring);
    fixture_plan_free(&a);
    fixture_plan_free(&b);
    fixture_free(models);
}

static void evaluation_refused(void **state)
{
    static const int which[] = {0, 1};
    static const int64_t caps[] = {3000, 1000};
    static const int64_t odd[] = {2871, 129}, much[] = {2500, 1500}, few[] = {2000, 900},
                         negative[] = {3001, -1}, one[] = {3000, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, caps, 2);
    struct fixture_plan p;
    hcp_plan before;
    hcp_question q;
    char text[512];

    (void)state;
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 3000;
    before = p.plan;
    assert_int_equal(evaluate(ring, &q, odd, &p, text, sizeof text), HCP_STATUS_INVALID);
    has(text, "layout"); /* AUTO */
    q.layout = HCP_LAYOUT_ZIGZAG;
    assert_int_equal(evaluate(ring, &q, NULL, &p, text, sizeof text), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(ring, &q, few, &p, text, sizeof text), HCP_STATUS_INVALID);
    has(text, "add up");
    assert_int_equal(evaluate(ring, &q, negative, &p, text, sizeof text),
                     HCP_STATUS_INVALID);
    q.seq_len = 4000;
    assert_int_equal(evaluate(ring, &q, much, &p, text, sizeof text),
                     HCP_STATUS_INFEASIBLE);
    has(text, "rank 1 has 1500 tokens, more than its memory cap of 1000");
    assert_memory_equal(&before, &p.plan, sizeof before);
    q.seq_len = 3000; /* not in tiles, no room for a split in tiles beside it */
    q.strategy = HCP_STRATEGY_GIVEN;
    assert_int_equal(evaluate(ring, &q, odd, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.ranks[1].tokens, 129);
    assert_int_equal(evaluate(ring, &q, one, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.ranks[1].n_segments, 0);
    p.plan.segments_capacity = 1;
    assert_int_equal(evaluate(ring, &q, odd, &p, text, sizeof text), HCP_STATUS_SPACE);
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    ring = fixture_ring(models, kinds, which, NULL, 2);
    fixture_plan_init(&p, 2);
    q.seq_len = 200000;
    assert_int_equal(
        evaluate(ring, &q, (int64_t[]){100000, 100000}, &p, text, sizeof text),
        HCP_STATUS_OUTSIDE);
    has(text, "hcp-profile run");
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    fixture_free(models);
}

static void layout_segments(void **state)
{
    static const int64_t tokens[] = {5, 0, 1, 4};
    hcp_segment s[8];
    int64_t counts[4];

    (void)state;
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 0, 4, tokens, 10, s, 8, counts),
        HCP_STATUS_OK);
    assert_memory_equal(counts, ((int64_t[]){2, 0, 1, 2}), sizeof counts);
    assert_memory_equal(s, ((hcp_segment[]){{0, 3}, {8, 2}, {3, 1}, {4, 2}, {6, 2}}),
                        5 * sizeof *s);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_STRIPED, 2, 4, tokens, 10, s, 8, counts),
        HCP_STATUS_OK);
    assert_memory_equal(s, ((hcp_segment[]){{0, 3}, {6, 2}, {3, 1}, {4, 2}, {8, 2}}),
                        5 * sizeof *s);
    counts[0] = 0;
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 0, 4, tokens, 10, s, 4, counts),
        HCP_STATUS_SPACE);
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 5);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_CONTIGUOUS, 0, 4, tokens, 10, NULL, 0, counts),
        HCP_STATUS_OK);
    assert_memory_equal(counts, ((int64_t[]){1, 0, 1, 1}), sizeof counts);
    assert_int_equal(hcp_layout_segments(HCP_LAYOUT_AUTO, 1, 4, tokens, 10, s, 8, counts),
                     HCP_STATUS_INVALID);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_STRIPED, 0, 4, tokens, 10, s, 8, counts),
        HCP_STATUS_INVALID);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 1, 4, tokens, 11, s, 8, counts),
        HCP_STATUS_INVALID);
    assert_int_equal(hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 1, 2, (int64_t[]){11, -1}, 10,
                                         s, 8, counts),
                     HCP_STATUS_INVALID);
}

/* Storing once and merging every other block, in each rank's computing time; the bound
 * and the prediction of a block are of the kernel alone. */
static void finish_passes(void **state)
{
    static const int which[3] = {0, 0, 0};
    static const int64_t tokens[3] = {4096, 8192, 2048};
    struct fixture with = kinds[0];
    hcp_models *plain = fixture_models(kinds, 1), *finish;
    hcp_ring *rings[2];
    struct fixture_plan p[2];
    char text[512];

    (void)state;
    memcpy(with.finish, (double[]){0.25, 1e-4, 0.5, 3e-4}, sizeof with.finish);
    finish = fixture_models(&with, 1);
    rings[0] = fixture_ring(plain, kinds, which, NULL, 3);
    rings[1] = fixture_ring(finish, &with, which, NULL, 3);
    for (int sub_blocks = 1; sub_blocks < 4; sub_blocks += 2) {
        hcp_prediction block[2] = {{.size = sizeof *block}, {.size = sizeof *block}};
        hcp_question q;

        hcp_question_init(&q);
        q.seq_len = 14336;
        q.layout = HCP_LAYOUT_CONTIGUOUS;
        q.sub_blocks = sub_blocks;
        for (int i = 0; i < 2; i++) {
            fixture_plan_init(&p[i], 3);
            assert_int_equal(evaluate(rings[i], &q, tokens, &p[i], text, sizeof text),
                             HCP_STATUS_OK);
            assert_int_equal(hcp_block_predict(rings[i], 0, HCP_MODEL_BEST, 0, 512, 512,
                                               0, text, sizeof text, &block[i]),
                             HCP_STATUS_OK);
        }
        for (size_t r = 0; r < 3; r++) {
            double more = 0.25 + 1e-4 * (double)tokens[r] +
                          2 * sub_blocks * (0.5 + 3e-4 * (double)tokens[r]);

            assert_float_equal(p[1].plan.ranks[r].compute_ms -
                                   p[0].plan.ranks[r].compute_ms,
                               more, 1e-9);
        }
        assert_float_equal(p[0].plan.bound_ms, p[1].plan.bound_ms, 1e-12);
        assert_true(block[0].ms == block[1].ms);
        fixture_plan_free(&p[0]);
        fixture_plan_free(&p[1]);
    }
    hcp_ring_free(rings[0]);
    hcp_ring_free(rings[1]);
    fixture_free(plain);
    fixture_free(finish);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulation), cmocka_unit_test(evaluation),
        cmocka_unit_test(evaluation_refused), cmocka_unit_test(finish_passes),
        cmocka_unit_test(layout_segments)};

    setlocale(LC_ALL, "");
    return cmocka_run_group_tests_name("plan-given", tests, NULL, NULL);
}
