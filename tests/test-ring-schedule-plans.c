/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's schedule and its plan: what is refused, SMs left to transfers, two levels.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "executor/schedule.h"
#include "tests/plan-fixture.h"

/* A plan of two ranks. */
struct pair {
    hcp_plan plan;
    hcp_plan_rank ranks[2];
    hcp_segment segments[3];
};

static void refuse(const struct pair *s, int32_t rank, int32_t sub_blocks,
                   const char *text)
{
    struct ring_schedule made;
    struct hcp_err err = {0};

    assert_int_equal(ring_schedule_make(&s->plan, rank, sub_blocks, &made, &err),
                     HCP_FAILED);
    if (!strstr(err.text, text))
        print_error("'%s' does not say '%s'\n", err.text, text);
    assert_non_null(strstr(err.text, text));
}

static void wrong_plans_are_refused(void **state)
{
    static struct pair s;
    hcp_plan_rank ranks[2] = {{.tokens = 6, .first_segment = 0, .n_segments = 2},
                              {.tokens = 6, .first_segment = 2, .n_segments = 1}};
    hcp_segment segments[3] = {{0, 3}, {9, 3}, {3, 6}};

    (void)state;
    s.plan = (hcp_plan){.size = sizeof s.plan,
                        .ranks = s.ranks,
                        .segments = s.segments,
                        .n_ranks = 2,
                        .n_segments = 3,
                        .seq_len = 12,
                        .causal = 1,
                        .tile = 1};
#define GOOD()                                                                           \
    (memcpy(s.ranks, ranks, sizeof ranks), memcpy(s.segments, segments, sizeof segments))
    GOOD();
    refuse(&s, 0, 0, "0 sub-blocks");
    refuse(&s, 2, 1, "rank 2 is outside");
    refuse(&s, -1, 1, "rank -1 is outside");
    s.ranks[1].tokens = 7;
    refuse(&s, 0, 1, "rank 1 of the plan has 7 tokens but more or fewer");
    GOOD();
    s.plan.seq_len = 13;
    refuse(&s, 0, 1, "hold 12 tokens of a sequence of 13");
    s.plan.seq_len = 12;
    s.ranks[1].first_segment = 3;
    refuse(&s, 0, 1, "out of range");
    GOOD();
    s.segments[0] = (hcp_segment){9, 3}; /* not in order */
    s.segments[1] = (hcp_segment){0, 3};
    refuse(&s, 1, 1, "out of order");
    GOOD();
    s.segments[2].offset = 7; /* beyond the end */
    refuse(&s, 1, 1, "outside the sequence");
    for (int64_t offset = 1; offset < 6; offset++) { /* into either of the other's */
        GOOD();
        s.segments[2].offset = offset;
        if (offset == 3)
            continue; /* its own place */
        refuse(&s, 0, 1, "both hold tokens");
        refuse(&s, 1, 1, "both hold tokens");
    }
    GOOD();
    s.plan.joint = 1; /* KV of its own: both keep that of positions 3 to 8 */
    for (int r = 0; r < 2; r++) {
        s.ranks[r].kv_tokens = 6;
        s.ranks[r].first_kv_segment = 2;
        s.ranks[r].n_kv_segments = 1;
    }
    refuse(&s, 0, 1, "both hold tokens");
    s.ranks[1].kv_tokens = 5;
    refuse(&s, 0, 1, "rank 1 of the plan has the KV of 5 tokens but more or fewer");
    s.ranks[1].kv_tokens = s.ranks[1].n_kv_segments = 0;
    refuse(&s, 0, 1, "hold the KV of 6 tokens of a sequence of 12");
#undef GOOD
}

/* Two ranks, 2,048 tokens each, `pieces` pieces a block; rank 1 without KV where `one`.
 */
static int32_t spare(int rank, int pieces, int one, int32_t asked, int32_t channels,
                     int32_t sms)
{
    hcp_segment segments[] = {{0, 2048}, {2048, 2048}, {0, 4096}};
    hcp_plan_rank ranks[2] = {
        {.tokens = 2048, .n_segments = 1, .kv_tokens = 2048},
        {.tokens = 2048, .first_segment = 1, .n_segments = 1, .kv_tokens = 2048}};
    hcp_plan plan = {.seq_len = 4096,
                     .n_ranks = 2,
                     .ranks = ranks,
                     .tile = 128,
                     .segments = segments,
                     .n_segments = 3};
    struct ring_schedule made;
    int32_t n;

    if (one) {
        plan.joint = 1;
        ranks[0].kv_tokens = 4096;
        ranks[0].first_kv_segment = 2;
        ranks[0].n_kv_segments = 1;
        ranks[1].kv_tokens = 0;
    }
    assert_int_equal(ring_schedule_make(&plan, rank, pieces, &made, NULL), HCP_OK);
    n = ring_schedule_spare_sms(&made, asked, channels, sms);
    ring_schedule_free(&made);
    return n;
}

static void sms_left_to_transfers(void **state)
{
    (void)state;
    assert_int_equal(spare(0, 4, 0, -1, 2, 132), 4); /* both directions */
    assert_int_equal(spare(0, 4, 1, -1, 2, 132), 2); /* sends alone */
    assert_int_equal(spare(1, 4, 1, -1, 2, 132), 2); /* receives alone */
    assert_int_equal(spare(0, 1, 0, -1, 2, 132), 0); /* launched before the block */
    assert_int_equal(spare(0, 4, 0, -1, 0, 132), 0); /* NCCL's choice is not known */
    assert_int_equal(spare(0, 4, 0, -1, 4, 128), 8); /* a sixteenth */
    assert_int_equal(spare(0, 4, 0, -1, 4, 127), 0); /* more than that */
    assert_int_equal(spare(1, 4, 1, -1, 1, 12), 0);
    assert_int_equal(spare(0, 1, 0, 7, 0, 132), 7); /* as asked */
    assert_int_equal(spare(0, 1, 0, 200, 0, 132), 131);
    assert_int_equal(spare(0, 4, 0, 0, 2, 132), 0);
    assert_int_equal(spare(0, 4, 0, 5, 2, 1), 0);
}

/* ---- rings of rings ---- */

enum { NODES = 4, LEVEL_RANKS = 16 };

/* What a rank sends at step k, its receiver takes as step `as`, from it. */
static void passed_on(const struct ring_schedule *from, int32_t k,
                      const struct ring_schedule *to, int32_t as)
{
    assert_true(as < to->m && to->steps[as].receive);
    assert_int_equal(to->steps[as].block_of, from->steps[k].block_of);
    assert_int_equal(as % to->inner ? to->before : to->outer_before, from->rank);
}

/* Plans with two levels are run as the planner predicts them, and compute the mask. */
static void levels_are_the_plans(void **state)
{
    static hcp_step steps[LEVEL_RANKS * LEVEL_RANKS];
    const struct fixture fixture = {
        .device = "d0", .a = 1e-7, .b = 1e-5, .f = 0.01, .tile = 1, .lut = 1};
    const int which[LEVEL_RANKS] = {0};
    hcp_models *models = fixture_models(&fixture, 1);
    int problems = (int)(200 * fixture_scale()), two = 0;
    uint64_t seed = 31;

    (void)state;
    for (int i = 0; i < problems; i++) {
        struct ring_schedule made[LEVEL_RANKS];
        int32_t node = (int32_t)fixture_range(&seed, 2, 4), w = node, out = -1;
        size_t nodes = (size_t)fixture_range(&seed, 2, NODES), n, n_steps;
        int64_t tokens[LEVEL_RANKS] = {0}, area = 0, length = 0;
        struct fixture_plan p;
        struct hcp_err err = {0};
        hcp_ring *ring;
        hcp_question q;
        char text[256] = "";

        n = nodes * (size_t)node;
        if (node > 2 && fixture_range(&seed, 0, 2) == 0) /* one rank of each without */
            out = (int32_t)fixture_range(&seed, 0, node - 1);
        w -= out >= 0;
        ring = fixture_ring(models, &fixture, which, NULL, n);
        fixture_plan_init(&p, n);
        hcp_question_init(&q);
        for (size_t r = 0; r < n; r++)
            if ((int32_t)(r % (size_t)node) != out)
                length += tokens[r] = fixture_range(&seed, 4, 60);
        q.seq_len = length;
        q.causal = fixture_range(&seed, 0, 2) > 0;
        q.layout = q.causal ? (hcp_layout)fixture_range(&seed, HCP_LAYOUT_ZIGZAG,
                                                        HCP_LAYOUT_STRIPED)
                            : HCP_LAYOUT_CONTIGUOUS;
        q.stripes = 2;
        q.tile = 1;
        q.buffers = (int32_t)fixture_range(&seed, 0, 3);
        q.extrapolate = 1;
        q.node_ranks = node;
        q.node_gbps = 1e-4;
        q.rings = HCP_RINGS_BEST;
        if (hcp_plan_evaluate(ring, &q, tokens, p.workspace, p.workspace_bytes, text,
                              sizeof text, &p.plan) ||
            p.plan.inner_ranks == 0)
            goto next;
        two++;
        assert_int_equal(p.plan.inner_ranks, w);
        for (size_t r = 0; r < n; r++) {
            assert_int_equal(ring_schedule_make(&p.plan, (int32_t)r, 1, &made[r], &err),
                             HCP_OK);
            area += ring_schedule_area(&made[r]);
        }
        assert_true(area == (q.causal ? length * (length + 1) / 2 : length * length));
        assert_int_equal(hcp_plan_simulate(ring, &p.plan, 1, p.workspace,
                                           p.workspace_bytes, text, sizeof text, steps,
                                           LEVEL_RANKS * LEVEL_RANKS, &n_steps),
                         HCP_STATUS_OK);
        for (size_t k = 0; k < n_steps; k++)
            assert_int_equal(made[steps[k].rank].steps[steps[k].step].block_of,
                             steps[k].block_of);
        for (size_t r = 0; r < n; r++) {
            int sent = 0, sent_out = 0;

            for (int32_t k = 0; made[r].index >= 0 && k < made[r].m; k++) {
                assert_int_equal(made[r].steps[k].receive, k > 0);
                if (made[r].steps[k].send)
                    passed_on(&made[r], k, &made[made[r].after], k + 1);
                if (made[r].steps[k].send_out)
                    passed_on(&made[r], k, &made[made[r].outer_after], k + w);
                sent += made[r].steps[k].send;
                sent_out += made[r].steps[k].send_out;
            }
            if (made[r].index >= 0)
                assert_true(sent == made[r].m / w * (w - 1) &&
                            sent_out == made[r].m / w - 1);
        }
        for (size_t r = 0; r < n; r++)
            ring_schedule_free(&made[r]);
        /* Two levels that these ranks have not, and pieces; of a rank with tokens. */
        assert_int_equal(ring_schedule_make(&p.plan, out == 0, 2, &made[0], &err),
                         HCP_USAGE);
        p.plan.inner_ranks++;
        assert_int_equal(ring_schedule_make(&p.plan, out == 0, 1, &made[0], &err),
                         HCP_USAGE);
        p.plan.inner_ranks--;
        p.plan.node_ranks = (int32_t)n;
        assert_int_equal(ring_schedule_make(&p.plan, out == 0, 1, &made[0], &err),
                         HCP_USAGE);
    next:
        fixture_plan_free(&p);
        hcp_ring_free(ring);
    }
    print_message("# %d of %d plans have two levels\n", two, problems);
    assert_true(two > problems / 2);
    fixture_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_plans_are_refused),
        cmocka_unit_test(sms_left_to_transfers),
        cmocka_unit_test(levels_are_the_plans),
    };

    return cmocka_run_group_tests_name("ring-schedule-plans", tests, NULL, NULL);
}
