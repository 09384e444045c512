/* SPDX-License-Identifier: Apache-2.0
 *
 * Promises of every plan on random problems of 1 to 64 ranks: tokens add up, segments
 * cover every position once, tiles and caps hold, the numbers agree with each other and
 * with the plainly written objective, and `best` is never predicted slower than even,
 * nominal, proportional, the solver alone, or the solver without the slowest ranks.
 * HCP_TEST_SCALE=100 runs 100,000 problems.
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

enum { KINDS = 4, MAX = 64 };

struct problem_case {
    struct fixture fixtures[KINDS];
    int which[MAX];
    int64_t caps[MAX];
    size_t n;
    hcp_question question;
    int any_cap;
};

static void random_case(struct problem_case *c, uint64_t *seed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    static const int64_t tiles[] = {1, 64, 128, 96};
    int lut = (int)fixture_range(seed, 0, 1);
    int64_t tile = tiles[fixture_range(seed, 0, 3)],
            kinds = fixture_range(seed, 1, KINDS);
    hcp_question *q = &c->question;

    memset(c, 0, sizeof *c);
    for (int i = 0; i < KINDS; i++) {
        struct fixture *f = &c->fixtures[i];
        double speed = fixture_real(seed, 0.05, 1);

        *f = (struct fixture){.device = names[i], .tile = tile, .error = 0.01};
        f->a = 2e-8 / speed;
        f->b = fixture_real(seed, 0, 3e-5) / speed;
        f->c = fixture_real(seed, 0, 2e-5);
        f->f = fixture_range(seed, 0, 1) ? fixture_real(seed, 0.001, 0.2) : 0.005;
        if (fixture_range(seed, 0, 3) == 0)
            for (int k = 0; k < 4; k++)
                f->finish[k] = fixture_real(seed, 0, k % 2 ? 2e-6 : 0.02);
        f->lut = lut;
        f->poly = !lut;
        f->bumps = lut && fixture_range(seed, 0, 1) ? fixture_random(seed) | 1 : 0;
    }
    c->n = (size_t)fixture_range(seed, 1, fixture_range(seed, 1, MAX));
    for (size_t r = 0; r < c->n; r++)
        c->which[r] = (int)fixture_range(seed, 0, kinds - 1);
    hcp_question_init(q);
    q->seq_len = fixture_range(seed, 1, (int64_t)1 << fixture_range(seed, 0, 17));
    q->causal = (int32_t)fixture_range(seed, 0, 3) > 0;
    q->layout = (hcp_layout)fixture_range(seed, HCP_LAYOUT_AUTO, HCP_LAYOUT_STRIPED);
    q->stripes = (int32_t)fixture_range(seed, 1, 8);
    q->buffers = (int32_t)fixture_range(seed, 0, 3);
    q->barrier = fixture_range(seed, 0, 5) == 0;
    if (fixture_range(seed, 0, 3) == 0)
        q->sub_blocks = (int32_t)fixture_range(seed, 2, 9);
    if (fixture_range(seed, 0, 2) == 0) {
        q->link_alpha_us = fixture_real(seed, 0, 50);
        q->link_gbps = fixture_real(seed, 5, 300);
    }
    q->extrapolate = 1;
    if (fixture_range(seed, 0, 4) == 0) {
        for (size_t r = 0; r < c->n; r++)
            if (fixture_range(seed, 0, 3) > 0)
                c->caps[r] =
                    fixture_range(seed, 1, 3 * q->seq_len / (int64_t)c->n + tile);
        c->any_cap = 1;
    }
}

static int by_offset(const void *a, const void *b)
{
    const hcp_segment *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

#define MUST(what)                                                                       \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            print_error("problem %d, %s: %s\n", number,                                  \
                        hcp_strategy_name(plan->strategy), #what);                       \
            fail();                                                                      \
        }                                                                                \
    } while (0)

static void check_plan(const struct problem_case *c, const hcp_ring *ring,
                       const hcp_plan *plan, int number)
{
    static hcp_segment sorted[MAX * 16];
    hcp_question q = c->question;
    int64_t tokens[MAX], sum = 0, at = 0;
    double finish = 0, again;
    size_t odd = 0, odd_runs = 0, segments = 0;

    MUST(plan->n_ranks == c->n);
    for (size_t r = 0; r < c->n; r++) {
        const hcp_plan_rank *rank = &plan->ranks[r];
        int64_t held = 0, off = 0;

        tokens[r] = rank->tokens;
        sum += tokens[r];
        odd += tokens[r] % plan->tile != 0;
        MUST(tokens[r] >= 0 && rank->kv_tokens == tokens[r]);
        MUST(c->caps[r] == 0 || tokens[r] <= c->caps[r]);
        MUST(rank->first_segment == (int64_t)segments);
        for (int64_t i = 0; i < rank->n_segments; i++) {
            off += plan->segments[segments].length % c->fixtures[0].tile;
            held += plan->segments[segments++].length;
        }
        odd_runs += off > 0;
        MUST(held == tokens[r]);
        MUST(rank->compute_ms <= rank->predicted_ms * (1 + 1e-12));
        finish = fmax(finish, rank->predicted_ms);
    }
    MUST(sum == q.seq_len && odd <= 1);
    q.layout = plan->layout;
    MUST(plan->tile == reference_tile(ring, &q));
    MUST(plan->tile == c->fixtures[0].tile || odd_runs <= 1);
    MUST(segments == plan->n_segments);
    memcpy(sorted, plan->segments, segments * sizeof *sorted);
    qsort(sorted, segments, sizeof *sorted, by_offset);
    for (size_t i = 0; i < segments; i++) {
        MUST(sorted[i].offset == at && sorted[i].length > 0);
        at += sorted[i].length;
    }
    MUST(at == q.seq_len);
    MUST(plan->makespan_ms == finish);
    MUST(plan->ranks[plan->critical_rank].predicted_ms == finish);
    MUST(plan->bound_ms <= plan->makespan_ms && plan->bound_ms > 0);
    MUST(plan->interval_lo_ms <= plan->makespan_ms &&
         plan->makespan_ms <= plan->interval_hi_ms);
    MUST(plan->fingerprint == hcp_plan_fingerprint(plan));
    again = reference_makespan(ring, HCP_MODEL_BEST, &q, tokens);
    MUST(fabs(plan->makespan_ms - again) <= 1e-9 * again);
}

/* The ring without its k slowest ranks, by measured speed as the library orders them. */
static hcp_ring *without_slowest(const hcp_models *models, const struct problem_case *c,
                                 const hcp_ring *ring, size_t k, size_t *left)
{
    double speed[MAX] = {0}, s = (double)c->question.seq_len;
    double area = c->question.causal ? s * (s + 1) / 2 : s * s;
    int which[MAX], out[MAX] = {0};
    int64_t caps[MAX];

    for (size_t r = 0; r < c->n; r++)
        speed[r] =
            area / hcp_model_block_ms(ring->ranks[r].model[0], c->question.causal,
                                      c->question.seq_len, c->question.seq_len, NULL);
    for (size_t i = 0; i < k; i++) { /* of equal ranks the later goes first */
        size_t slowest = 0;

        while (out[slowest])
            slowest++;
        for (size_t r = slowest; r < c->n; r++)
            if (!out[r] && speed[r] <= speed[slowest])
                slowest = r;
        out[slowest] = 1;
    }
    *left = 0;
    for (size_t r = 0; r < c->n; r++) {
        if (out[r])
            continue;
        which[*left] = c->which[r];
        caps[(*left)++] = c->caps[r];
    }
    return fixture_ring(models, c->fixtures, which, caps, *left);
}

struct tally {
    long problems, infeasible, drops, compared;
};

static void compare_drops(const hcp_models *models, const struct problem_case *c,
                          const hcp_ring *ring, const hcp_plan *plan, int number,
                          uint64_t *seed, struct tally *tally)
{
    double best_ms = plan->makespan_ms, drop_ms = plan->drop_ms;
    hcp_layout shown = plan->layout;

    for (size_t k = 1; k < c->n; k++) {
        struct fixture_plan sub;
        hcp_question q = c->question;
        hcp_ring *part;
        size_t left;
        char text[512];
        double ms = INFINITY;

        if (c->n > 12 && k > 2 && fixture_range(seed, 0, (int64_t)c->n / 4) != 0)
            continue;
        part = without_slowest(models, c, ring, k, &left);
        fixture_plan_init(&sub, left);
        q.strategy = c->fixtures[0].lut ? HCP_STRATEGY_LUT : HCP_STRATEGY_POLY;
        for (int layout = HCP_LAYOUT_CONTIGUOUS; layout <= HCP_LAYOUT_STRIPED; layout++) {
            int any = c->question.layout == HCP_LAYOUT_AUTO && c->question.causal;

            if (!any && layout != (int)shown)
                continue;
            q.layout = (hcp_layout)layout;
            q.tile = 0;
            q.tile = reference_tile(ring, &q); /* of all ranks */
            if (fixture_split(part, &q, &sub, text, sizeof text) == HCP_STATUS_OK)
                ms = fmin(ms, sub.plan.makespan_ms);
        }
        tally->compared++;
        if (best_ms > ms * (1 + 1e-12)) {
            print_error("problem %d: best %.17g, without the %zu slowest of %zu %.17g\n",
                        number, best_ms, k, c->n, ms);
            fail();
        }
        if (drop_ms > ms * (1 + 1e-12)) {
            print_error(
                "problem %d: drop_ms %.17g, without the %zu slowest of %zu %.17g\n",
                number, drop_ms, k, c->n, ms);
            fail();
        }
        fixture_plan_free(&sub);
        hcp_ring_free(part);
    }
}

/* The fastest even split in the layouts the question allowed, asked one by one. */
static double least_even_ms(const hcp_ring *ring, const hcp_question *question,
                            const hcp_plan *plan, struct fixture_plan *other)
{
    int any = question->layout == HCP_LAYOUT_AUTO && question->causal;
    double least = INFINITY;
    hcp_question q = *question;
    char text[512];

    q.strategy = HCP_STRATEGY_EVEN;
    for (int layout = HCP_LAYOUT_CONTIGUOUS; layout <= HCP_LAYOUT_STRIPED; layout++) {
        if (!any && layout != (int)plan->layout)
            continue;
        q.layout = (hcp_layout)layout;
        if (fixture_split(ring, &q, other, text, sizeof text) != HCP_STATUS_OK)
            fail_msg("no even split: %s", text);
        least = fmin(least, other->plan.makespan_ms);
    }
    return least;
}

static void run_case(int number, uint64_t *seed, struct tally *tally)
{
    struct problem_case c;
    struct fixture_plan best, other;
    hcp_models *models;
    hcp_ring *ring;
    hcp_question q;
    char text[512];
    const hcp_plan *plan = &best.plan;
    hcp_status status;

    random_case(&c, seed);
    models = fixture_models(c.fixtures, KINDS);
    ring = fixture_ring(models, c.fixtures, c.which, c.caps, c.n);
    fixture_plan_init(&best, c.n);
    fixture_plan_init(&other, c.n);
    status = fixture_split(ring, &c.question, &best, text, sizeof text);
    tally->problems++;
    if (status) {
        MUST(status == HCP_STATUS_INFEASIBLE && c.any_cap);
        tally->infeasible++;
    } else {
        check_plan(&c, ring, plan, number);
        q = c.question;
        q.layout = plan->layout;
        for (int i = HCP_STRATEGY_EVEN; i < HCP_STRATEGY_BEST; i++) {
            q.strategy = (hcp_strategy)i;
            if (i == (c.fixtures[0].lut ? HCP_STRATEGY_POLY : HCP_STRATEGY_LUT))
                continue;
            MUST(fixture_split(ring, &q, &other, text, sizeof text) == HCP_STATUS_OK);
            check_plan(&c, ring, &other.plan, number);
            MUST(plan->makespan_ms <= other.plan.makespan_ms * (1 + 1e-12));
        }
        MUST(fabs(plan->even_ms - least_even_ms(ring, &c.question, plan, &other)) <=
             1e-12 * plan->even_ms);
        for (size_t r = 0; r < c.n; r++)
            tally->drops += plan->ranks[r].tokens == 0;
        MUST(!(plan->drop_ms < plan->makespan_ms));
        compare_drops(models, &c, ring, plan, number, seed, tally);
    }
    fixture_plan_free(&best);
    fixture_plan_free(&other);
    hcp_ring_free(ring);
    fixture_free(models);
}

static void promises_hold(void **state)
{
    int problems = (int)(1000 * fixture_scale());
    struct tally tally = {0};
    uint64_t seed = 7;

    (void)state;
    for (int i = 0; i < problems; i++)
        run_case(i, &seed, &tally);
    print_message("# %ld problems, %ld infeasible, %ld ranks left out, %ld drop sets "
                  "compared\n",
                  tally.problems, tally.infeasible, tally.drops, tally.compared);
    assert_true(tally.drops > 0 && tally.compared > problems);
    assert_true(tally.infeasible > 0 || problems < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(promises_hold)};

    return cmocka_run_group_tests_name("plan-random", tests, NULL, NULL);
}
