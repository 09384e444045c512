/* SPDX-License-Identifier: Apache-2.0
 *
 * What the planner counts is what the executor does: the calls of each piece of each
 * block, the pieces' sizes, and how far blocks travel, on random splits in all layouts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "executor/schedule.h"
#include "tests/plan-fixture.h"

enum { RANKS = 7, LONGEST = 4000, STRIPES = 16 };

struct split {
    struct problem p;
    hcp_plan plan;
    hcp_plan_rank ranks[RANKS];
    hcp_segment segments[RANKS * STRIPES];
    int64_t tokens[RANKS], len[RANKS]; /* of all ranks; of those with tokens */
    int32_t hops[RANKS], m;
};

static void random_split(struct split *s, uint64_t *seed)
{
    int64_t counts[RANKS], first = 0;
    hcp_plan *plan = &s->plan;
    struct problem *p = &s->p;

    memset(s, 0, sizeof *s);
    hcp_plan_init(plan, s->ranks, RANKS, s->segments, RANKS * STRIPES);
    plan->n_ranks = p->n = (size_t)fixture_range(seed, 1, RANKS);
    plan->causal = p->causal = fixture_range(seed, 0, 3) > 0;
    plan->layout = p->layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    plan->stripes = p->stripes = (int32_t)fixture_range(seed, 1, STRIPES);
    plan->tile = p->tile = fixture_range(seed, 0, 1) ? fixture_range(seed, 1, 200) : 64;
    plan->sub_blocks = p->sub_blocks =
        fixture_range(seed, 0, 2) ? (int32_t)fixture_range(seed, 2, 64) : 1;
    for (size_t r = 0; r < p->n; r++) {
        s->tokens[r] = fixture_range(seed, 0, 4) == 0
                           ? fixture_range(seed, 0, 2)
                           : fixture_range(seed, STRIPES, LONGEST);
        p->seq_len += s->tokens[r];
        if (s->tokens[r] > 0)
            s->len[s->m++] = s->tokens[r];
    }
    if (p->seq_len == 0)
        p->seq_len = s->tokens[0] = s->len[s->m++] = 1;
    plan->seq_len = p->seq_len;
    plan->n_segments = cost_segments(p->layout, p->stripes, p->n, s->tokens, p->seq_len,
                                     s->segments, counts);
    for (size_t r = 0; r < p->n; r++) {
        s->ranks[r].tokens = s->ranks[r].kv_tokens = s->tokens[r];
        s->ranks[r].first_segment = first;
        s->ranks[r].n_segments = counts[r];
        first += counts[r];
    }
    cost_hops(p, s->m, s->len, s->hops);
    hcp_shape_init(&plan->shape);
    plan->buffers = (int32_t)fixture_range(seed, 0, 4);
    plan->layers = 2;
    assert_int_equal(hcp_plan_memory(plan, NULL, 0), HCP_STATUS_OK);
}

/* The planner's calls of a piece, one by one against the executor's. */
struct expected {
    const struct ring_call *call;
    size_t n, seen;
};

static void same_call(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct expected *e = ctx;

    assert_true(e->seen < e->n);
    assert_int_equal(q_len, e->call[e->seen].rows);
    assert_int_equal(kv_len, e->call[e->seen].keys);
    e->seen++;
}

static void check_step(const struct split *s, const struct ring_schedule *schedule, int k)
{
    const struct ring_step *step = &schedule->steps[k];
    int32_t i = schedule->index, j = (i - k + s->m) % s->m;
    int64_t ends[MAX_SUB_BLOCKS], from = 0;
    int32_t n = cost_cuts(&s->p, s->len[j], ends);

    assert_int_equal(step->receive, k > 0 && k <= s->hops[j]);
    assert_int_equal(step->send, k < s->hops[j]);
    if (k == 0) {
        assert_int_equal(schedule->n_send_pieces, step->send ? n : 0);
        for (size_t x = 0; x < schedule->n_send_pieces; from = ends[x++])
            assert_int_equal(schedule->send_pieces[x].tokens, ends[x] - from);
        return;
    }
    if (!step->receive)
        return;
    assert_int_equal(step->n_pieces, n);
    for (int32_t x = 0; x < n; from = ends[x++]) {
        const struct ring_piece *piece = &schedule->pieces[step->piece + (size_t)x];
        struct expected e = {schedule->calls + piece->call, piece->n_calls, 0};

        assert_int_equal(piece->first, from);
        assert_int_equal(piece->tokens, ends[x] - from);
        cost_piece_calls(&s->p, s->len[i], s->len[j], j < i, from, ends[x], same_call,
                         &e);
        assert_int_equal(e.seen, e.n);
        if (s->p.sub_blocks == 1 && s->len[j] >= s->p.stripes) { /* the usual way there */
            e.seen = 0;
            cost_each_call(&s->p, s->len[i], s->len[j], j < i, same_call, &e);
            assert_int_equal(e.seen, e.n);
        }
    }
}

/* What the executor takes for one layer's keys and values (ring-memory.c), of which a
 * plan counts those of all layers: there are two. */
static int64_t allocated(const struct split *s, const struct ring_schedule *schedule)
{
    const hcp_shape *shape = &s->plan.shape;
    int64_t token = 4 * shape->batch * shape->kv_heads * shape->head_dim;
    int64_t buffers = s->plan.buffers, own = schedule->tokens * token;

    if (schedule->index < 0)
        return 0;
    if (buffers < 1 || buffers > s->m - 1)
        buffers = s->m - 1;
    return own + (schedule->n_send_pieces > 1 ? own : 0) +
           buffers * schedule->max_block * token + own;
}

static void planner_counts_what_is_done(void **state)
{
    int splits = (int)(2000 * fixture_scale());
    uint64_t seed = 31;
    size_t calls = 0;

    (void)state;
    for (int round = 0; round < splits; round++) {
        struct split s;

        random_split(&s, &seed);
        for (size_t r = 0; r < s.p.n; r++) {
            struct ring_schedule schedule;
            struct hcp_err err;

            if (ring_schedule_make(&s.plan, (int32_t)r, s.p.sub_blocks, &schedule, &err))
                fail_msg("%s", err.text);
            for (int k = 0; schedule.index >= 0 && k < s.m; k++)
                check_step(&s, &schedule, k);
            calls += schedule.n_calls;
            assert_int_equal(s.ranks[r].memory_bytes, allocated(&s, &schedule));
            ring_schedule_free(&schedule);
        }
    }
    print_message("# %d splits, %zu calls\n", splits, calls);
    assert_true(calls > (size_t)splits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planner_counts_what_is_done)};

    return cmocka_run_group_tests_name("plan-schedule", tests, NULL, NULL);
}
