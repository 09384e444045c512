/* SPDX-License-Identifier: Apache-2.0
 *
 * One prompt in chunks: times of steps and the best of all plans against
 * chunks-reference.c, how far the search is from it where there are too many, chunks that
 * shrink, budgets that cannot be met, plan files and bad input. HCP_TEST_SCALE multiplies
 * the number of problems.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/chunks-reference.h"
#include "tests/plan-fixture.h"

enum { KINDS = 3, MOST_RANKS = 16, MOST_CHUNKS = 4096, TILE = 128 };

static int times(int n)
{
    int scaled = (int)(n * fixture_scale());

    return scaled > 0 ? scaled : 1;
}

/* A problem with its answer. */
struct problem_of {
    struct fixture fixtures[KINDS];
    hcp_rank ranks[MOST_RANKS];
    size_t n;
    hcp_chunks q;
    hcp_models *models;
    hcp_ring *ring;
    hcp_chunks_plan plan;
    hcp_chunks_rank out_ranks[MOST_RANKS];
    hcp_chunk out_chunks[MOST_CHUNKS];
    hcp_chunk_share out_shares[MOST_CHUNKS * MOST_RANKS];
    hcp_segment out_segments[MOST_CHUNKS * MOST_RANKS * 2];
    void *workspace;
    size_t workspace_bytes;
    char text[512];
};
static struct problem_of one;

static void random_kinds(struct problem_of *c, uint64_t *seed)
{
    static const char *const names[KINDS] = {"d0", "d1", "d2"};

    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_range(seed, 0, 2) ? fixture_real(seed, 0.1, 1) : 1;

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 1e-5),
                                          .c = fixture_real(seed, 0, 2e-6),
                                          .f = fixture_real(seed, 0, 0.01),
                                          .tile = TILE,
                                          .lut = 1,
                                          .error = 0.02};
        if (fixture_range(seed, 0, 1))
            c->fixtures[i].bumps = fixture_random(seed) | 1;
        if (fixture_range(seed, 0, 2) == 0)
            for (int k = 0; k < 4; k++)
                c->fixtures[i].finish[k] = fixture_real(seed, 0, k % 2 ? 1e-6 : 0.01);
    }
}

static void arrays(struct problem_of *c, hcp_chunks_plan *plan)
{
    hcp_chunks_plan_init(plan, c->out_ranks, MOST_RANKS, c->out_chunks, MOST_CHUNKS,
                         c->out_shares, MOST_CHUNKS * MOST_RANKS, c->out_segments,
                         MOST_CHUNKS * MOST_RANKS * 2);
}

static void open_problem(struct problem_of *c)
{
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring_of(c->models, c->ranks, c->n);
    c->workspace_bytes = hcp_chunks_workspace_bytes(c->ring, MOST_CHUNKS);
    c->workspace = malloc(c->workspace_bytes);
    assert_non_null(c->workspace);
    memset(c->workspace, 0xa5, c->workspace_bytes); /* means nothing */
    arrays(c, &c->plan);
}

static void close_problem(struct problem_of *c)
{
    free(c->workspace);
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

static hcp_status split(struct problem_of *c)
{
    c->text[0] = 0;
    return hcp_chunks_split(c->ring, &c->q, c->workspace, c->workspace_bytes, c->text,
                            sizeof c->text, &c->plan);
}

static hcp_status evaluate(struct problem_of *c, const int64_t *lengths, size_t n,
                           const int64_t *tokens)
{
    return hcp_chunks_evaluate(c->ring, &c->q, lengths, n, tokens, c->workspace,
                               c->workspace_bytes, c->text, sizeof c->text, &c->plan);
}

/* Ranks of random kinds, linear work, caps, links: each in some problems. */
static void random_rest(struct problem_of *c, int64_t seq_len, uint64_t *seed)
{
    int same = fixture_range(seed, 0, 2) == 0, layer = fixture_range(seed, 0, 2) == 0;
    int caps = (int)fixture_range(seed, 0, 4), slower = fixture_range(seed, 0, 4) == 0;
    int64_t share = seq_len / (int64_t)c->n + 1;

    hcp_chunks_init(&c->q);
    c->q.seq_len = seq_len;
    c->q.extrapolate = 1;
    c->q.layers = (int32_t)fixture_range(seed, 1, 4);
    c->q.step_fixed_ms = fixture_range(seed, 0, 1) * fixture_real(seed, 0, 0.1);
    c->q.buffers = (int32_t)fixture_range(seed, 0, 3);
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank *rank = &c->ranks[r];

        hcp_rank_init(rank);
        strcpy(rank->device,
               c->fixtures[same ? 0 : fixture_range(seed, 0, KINDS - 1)].device);
        if (slower)
            rank->time_scale = fixture_real(seed, 0.7, 2);
        if (layer) {
            rank->linear_before_us = fixture_real(seed, 0, 0.5);
            rank->linear_after_us = fixture_real(seed, 0, 1);
            rank->linear_before_fixed_us = fixture_real(seed, 0, 5);
            rank->linear_after_fixed_us = fixture_real(seed, 0, 20);
        }
        if (caps == 0)
            rank->max_tokens = (int64_t)((double)share * fixture_real(seed, 0.6, 3));
        if (caps == 1) {
            rank->weight_bytes = 1000;
            rank->max_bytes = 1000 + 4096 * (int64_t)((double)(c->q.layers * share) *
                                                      fixture_real(seed, 0.8, 4));
        }
    }
    if (fixture_range(seed, 0, 1)) {
        c->q.link_gbps = fixture_real(seed, 1, 100);
        c->q.link_alpha_us = fixture_real(seed, 0, 20);
    }
    c->q.activation_bytes = fixture_range(seed, 0, 1) * 100;
}

/* A budget that some plans meet: between that of a tile at the end and of a few more. */
static void random_budget(struct problem_of *c, uint64_t *seed)
{
    const struct fixture *f = &c->fixtures[0];
    double tokens = TILE * fixture_real(seed, 0.7, 5);
    double layer = f->a * tokens * (double)c->q.seq_len + f->b * tokens +
                   f->c * (double)c->q.seq_len + 3 * f->f + tokens * 2e-3;

    c->q.step_budget_ms = c->q.step_fixed_ms + c->q.layers * layer;
}

static void assert_near(double a, double b, double by)
{
    if (!(fabs(a - b) <= by * (fabs(a) + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

/* Every token once, residents as they were left, and each step as the reference has it.
 */
static void check_plan(const struct problem_of *c)
{
    const hcp_chunks_plan *plan = &c->plan;
    int64_t resident[MOST_RANKS] = {0}, tokens[MOST_RANKS], bytes[MOST_RANKS], offset = 0;
    double fin[MOST_RANKS], total = 0, ms;
    size_t at = 0;

    assert_int_equal(plan->n_ranks, c->n);
    for (size_t k = 0; k < plan->n_chunks; k++) {
        const hcp_chunk *chunk = &plan->chunks[k];
        const hcp_chunk_share *share = plan->shares + k * c->n;
        int64_t sum = 0, covered = 0;

        assert_int_equal(chunk->offset, offset);
        for (size_t r = 0; r < c->n; r++) {
            tokens[r] = share[r].tokens;
            assert_int_equal(share[r].resident, resident[r]);
            sum += tokens[r];
            assert_int_equal(share[r].first_segment, at);
            for (int64_t i = 0; i < share[r].n_segments; i++) {
                const hcp_segment *s = &plan->segments[at++];

                assert_true(s->length > 0 && s->offset >= offset &&
                            s->offset + s->length <= offset + chunk->tokens);
                covered += s->length;
            }
        }
        assert_int_equal(sum, chunk->tokens);
        assert_int_equal(covered, sum);
        ms = reference_chunk(c->ring, &c->q, chunk->layout, resident, tokens, fin, bytes);
        assert_near(ms, chunk->predicted_ms, 1e-12);
        for (size_t r = 0; r < c->n; r++) {
            assert_near(fin[r], share[r].predicted_ms, 1e-12);
            assert_int_equal(bytes[r], share[r].memory_bytes);
            if (c->ranks[r].max_bytes > 0)
                assert_true(bytes[r] <= c->ranks[r].max_bytes);
            resident[r] += tokens[r];
            if (c->ranks[r].max_tokens > 0)
                assert_true(resident[r] <= c->ranks[r].max_tokens);
        }
        assert_near(chunk->step_ms, c->q.step_fixed_ms + c->q.layers * ms, 1e-12);
        if (c->q.step_budget_ms > 0 && !plan->given)
            assert_true(chunk->step_ms <= c->q.step_budget_ms);
        assert_true(chunk->bound_ms <= chunk->predicted_ms);
        total += chunk->step_ms;
        offset += sum;
    }
    assert_int_equal(offset, c->q.seq_len);
    assert_near(total, plan->total_ms, 1e-12);
    for (size_t r = 0; r < c->n; r++)
        assert_int_equal(plan->ranks[r].tokens, resident[r]);
    if (!plan->given && !isnan(plan->even_ms))
        assert_true(plan->gain_over_even >= 1 - 1e-12);
    assert_true(plan->fingerprint == hcp_chunks_fingerprint(plan));
}

/* ---- times of the caller's own chunks ---- */

static void steps_given(void **state)
{
    uint64_t seed = 91;

    (void)state;
    for (int i = 0, n = times(1000); i < n; i++) {
        struct problem_of *c = &one;
        int64_t lengths[6], tokens[6 * MOST_RANKS], seq_len = 0;
        size_t count = (size_t)fixture_range(&seed, 1, 6);
        hcp_status status;

        random_kinds(c, &seed);
        c->n = (size_t)fixture_range(&seed, 1, i % 10 ? 5 : MOST_RANKS);
        memset(tokens, 0, sizeof tokens);
        for (size_t k = 0; k < count; k++) {
            lengths[k] = 0;
            for (size_t r = 0; r < c->n; r++) {
                int64_t t =
                    fixture_range(&seed, 0, 2) ? fixture_range(&seed, 0, 3000) : 0;

                tokens[k * c->n + r] = fixture_range(&seed, 0, 7) ? t : t % 3;
                lengths[k] += tokens[k * c->n + r];
            }
            if (lengths[k] == 0)
                lengths[k] = tokens[k * c->n] = 1;
            seq_len += lengths[k];
        }
        random_rest(c, seq_len, &seed);
        c->q.layout = (hcp_layout)fixture_range(&seed, 0, 3);
        c->q.stripes = 4;
        open_problem(c);
        status = evaluate(c, lengths, count, tokens);
        if (status == HCP_STATUS_OK) {
            assert_int_equal(c->plan.given, 2);
            check_plan(c);
        } else { /* over a cap, as the reference says */
            int64_t resident[MOST_RANKS] = {0};
            int over = 0;

            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            for (size_t k = 0; k < count && !over; k++) {
                over = !isfinite(
                    reference_chunk_step(c->ring, &c->q, resident, tokens + k * c->n));
                for (size_t r = 0; r < c->n; r++)
                    resident[r] += tokens[k * c->n + r];
            }
            assert_true(over);
        }
        close_problem(c);
    }
}

/* ---- all plans ---- */

static void best_of_all(void **state)
{
    static const int64_t most[] = {0, 14, 7, 5, 4};
    int with = 0, without = 0, n = times(1000);
    uint64_t seed = 7;

    (void)state;
    for (int i = 0; i < n; i++) {
        struct problem_of *c = &one;
        int64_t tiles, seq_len;
        double best;
        hcp_status status;

        random_kinds(c, &seed);
        c->n = (size_t)fixture_range(&seed, 1, 4);
        tiles = fixture_range(&seed, 1, most[c->n]);
        seq_len = tiles * TILE -
                  (fixture_range(&seed, 0, 1) ? fixture_range(&seed, 0, TILE - 1) : 0);
        random_rest(c, seq_len, &seed);
        if (fixture_range(&seed, 0, 3)) {
            random_budget(c, &seed);
            if (fixture_range(&seed, 0, 3) == 0)
                c->q.chunk_len = TILE * fixture_range(&seed, 1, 4);
        } else {
            c->q.chunk_len = TILE * fixture_range(&seed, 1, 4);
        }
        c->q.tile = TILE;
        open_problem(c);
        best = reference_chunks_best(c->ring, &c->q, TILE);
        status = split(c);
        if (isfinite(best)) {
            if (status)
                fail_msg("problem %d: %s", i, c->text);
            check_plan(c);
            assert_near(c->plan.total_ms, best, 1e-12);
            assert_int_equal(c->plan.exact, 1);
            with++;
        } else {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            without++;
        }
        close_problem(c);
    }
    print_message("# %d of %d equal the best of all plans, %d have none\n", with, n,
                  without);
    if (fixture_scale() >= 0.5)
        assert_true(with >= (int)(800 * fixture_scale()) && without >= 10);
}

/* Too many tiles for all plans: what the search loses. */
static void search_is_near(void **state)
{
    int n = times(60), found = 0, feasible = 0;
    double worst = 0, sum = 0;
    uint64_t seed = 23;

    (void)state;
    for (int i = 0; i < n; i++) {
        struct problem_of *c = &one;
        double best;

        random_kinds(c, &seed);
        c->n = (size_t)fixture_range(&seed, 2, 3);
        random_rest(c, TILE * (c->n == 2 ? fixture_range(&seed, 22, 26) : 12), &seed);
        random_budget(c, &seed);
        c->q.tile = TILE;
        open_problem(c);
        best = reference_chunks_best(c->ring, &c->q, TILE);
        feasible += isfinite(best) != 0;
        if (split(c) == HCP_STATUS_OK) {
            double loss = c->plan.total_ms / best - 1;

            assert_true(isfinite(best));
            assert_int_equal(c->plan.exact, 0);
            check_plan(c);
            assert_true(loss > -1e-12);
            worst = loss > worst ? loss : worst;
            sum += loss;
            found++;
        }
        close_problem(c);
    }
    print_message(
        "# search: %d of %d found, %.2f %% above the best on average, %.2f %% at "
        "most\n",
        found, feasible, 100 * sum / found, 100 * worst);
    if (fixture_scale() >= 0.5) {
        assert_true(found >= feasible - 1 - n / 12);
        assert_true(sum / found < 0.03 && worst < 0.5);
    }
}

/* ---- what longer prompts come out as ---- */

/* Ranks of these kinds, times linear in everything. */
static void open_plain(struct problem_of *c, size_t n, const int *kind, int64_t seq_len)
{
    static const char *const names[KINDS] = {"d0", "d1", "d2"};

    for (int i = 0; i < KINDS; i++)
        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = 2e-8 * (i == 0   ? 1
                                                       : i == 1 ? 2
                                                                : 10),
                                          .b = 1e-6,
                                          .c = 1e-7,
                                          .f = 0.008,
                                          .tile = TILE,
                                          .lut = 1,
                                          .error = 0.02};
    c->n = n;
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&c->ranks[r]);
        strcpy(c->ranks[r].device, names[kind[r]]);
    }
    hcp_chunks_init(&c->q);
    c->q.seq_len = seq_len;
    c->q.extrapolate = 1;
    open_problem(c);
}

/* Chunks shrink as keys grow, none could be a tile longer, each is split about as fast as
 * can be, and the whole is near the bound. */
static void chunks_shrink(void **state)
{
    static const int kinds[][3] = {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {1, 0, 2}};
    struct problem_of *c = &one;

    (void)state;
    for (int i = 0; i < 4; i++) {
        int64_t resident[MOST_RANKS] = {0};

        open_plain(c, i < 3 ? 2 : 3, kinds[i], 40000);
        c->q.step_budget_ms = i == 3 ? 1.5 : 1.2;
        if (i == 1)
            c->q.link_gbps = 200;
        assert_int_equal(split(c), HCP_STATUS_OK);
        check_plan(c);
        assert_true(c->plan.n_chunks >= 4);
        for (size_t k = 0; k < c->plan.n_chunks; k++) {
            const hcp_chunk *chunk = &c->plan.chunks[k];
            double best =
                reference_chunk_split(c->ring, &c->q, TILE, resident, chunk->tokens);

            assert_true(chunk->step_ms <= 1.03 * best);
            assert_true(chunk->step_ms <= c->q.step_budget_ms);
            if (k > 0) /* the first is what is left over */
                assert_true(k == 1 || chunk->tokens <= chunk[-1].tokens + TILE);
            if (k > 0 && k + 1 < c->plan.n_chunks)
                assert_true(reference_chunk_split(c->ring, &c->q, TILE, resident,
                                                  chunk->tokens + 2 * TILE) >
                            c->q.step_budget_ms);
            assert_true(k == 0 || chunk->least_ms >= chunk[-1].least_ms);
            for (size_t r = 0; r < c->n; r++)
                resident[r] += c->plan.shares[k * c->n + r].tokens;
        }
        assert_true(c->plan.total_ms < 1.1 * c->plan.bound_ms);
        assert_true(c->plan.over_whole >= 1);
        assert_true(isnan(c->plan.even_ms) || c->plan.gain_over_even > 0.999);
        assert_true(c->plan.interval_lo_ms < c->plan.total_ms &&
                    c->plan.interval_hi_ms > c->plan.total_ms);
        close_problem(c);
    }
}

/* What is left over when chunks are as long as they may be is taken off the first one,
 * where keys are few and a step costs least. */
static void rest_comes_first(void **state)
{
    static const int kinds[] = {0, 1};
    struct problem_of *c = &one;
    int shorter = 0;

    (void)state;
    for (int64_t i = 0; i < 12; i++) {
        open_plain(c, 2, kinds, 36000 + 1500 * i);
        c->q.step_budget_ms = 1.2;
        assert_int_equal(split(c), HCP_STATUS_OK);
        shorter += c->plan.chunks[0].step_ms < 0.9 * c->q.step_budget_ms;
        close_problem(c);
    }
    assert_true(shorter >= 6);
}

/* No split of a chunk beats its bound. */
static void bounds_hold(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int i = 0, n = times(60); i < n; i++) {
        struct problem_of *c = &one;
        int64_t resident[MOST_RANKS] = {0};

        random_kinds(c, &seed);
        for (int k = 0; k < KINDS; k++)
            c->fixtures[k].bumps = 0;
        c->n = (size_t)fixture_range(&seed, 1, 3);
        random_rest(c, TILE * fixture_range(&seed, 2, 12), &seed);
        c->q.chunk_len = TILE * fixture_range(&seed, 1, 5);
        open_problem(c);
        for (size_t k = 0; split(c) == HCP_STATUS_OK && k < c->plan.n_chunks; k++) {
            const hcp_chunk *chunk = &c->plan.chunks[k];
            double best =
                reference_chunk_split(c->ring, &c->q, TILE, resident, chunk->tokens);

            assert_true(c->q.step_fixed_ms + c->q.layers * chunk->bound_ms <=
                        best * (1 + 1e-9));
            for (size_t r = 0; r < c->n; r++)
                resident[r] += c->plan.shares[k * c->n + r].tokens;
        }
        close_problem(c);
    }
}

/* What no budget can do: from which length on, by how much, on which rank. */
static void budget_too_small(void **state)
{
    static const int kinds[] = {2, 0};
    struct problem_of *c = &one;
    int64_t resident[MOST_RANKS] = {0}, tokens[MOST_RANKS] = {0}, from;
    double least, more;
    const char *said;

    (void)state;
    open_plain(c, 2, kinds, 60000);
    c->q.step_budget_ms = 0.1;
    assert_int_equal(split(c), HCP_STATUS_INFEASIBLE);
    said = strstr(c->text, "from ");
    assert_non_null(said);
    from = strtoll(said + 5, NULL, 10);
    said = strstr(c->text, "takes ");
    assert_non_null(said);
    least = strtod(said + 6, NULL);
    said = strstr(c->text, "ms, ");
    assert_non_null(said);
    more = strtod(said + 4, NULL);
    assert_non_null(strstr(c->text, "on rank 1,"));
    assert_near(least - 0.1, more, 0.01);
    assert_true(from > TILE && from < 60000);
    /* That is what a tile takes on it with all that is resident there. */
    resident[1] = from;
    tokens[1] = TILE;
    assert_near(least, reference_chunk_step(c->ring, &c->q, resident, tokens), 1e-2);
    /* A prompt of that length can be done, and the budget that is named does. */
    c->q.seq_len = from;
    assert_int_equal(split(c), HCP_STATUS_OK);
    check_plan(c);
    /* The slow rank drops out: a tile on it takes too long. */
    assert_int_equal(c->plan.shares[(c->plan.n_chunks - 1) * 2].tokens, 0);
    assert_true(c->plan.shares[(c->plan.n_chunks - 1) * 2].least_ms > 0.1);
    c->q.seq_len = 60000;
    c->q.step_budget_ms = 0.001;
    assert_int_equal(split(c), HCP_STATUS_INFEASIBLE);
    assert_non_null(strstr(c->text, "from 0 resident tokens on"));
    close_problem(c);
}

/* A capped rank of twice the speed joins late, and the other does not leave then: much
 * better than one after the other. */
static void capped_join_late(void **state)
{
    static const int kinds[] = {0, 1};
    struct problem_of *c = &one;

    (void)state;
    for (int full = 2; full <= 6; full++) { /* chunks that it could hold alone */
        int64_t lengths[16], tokens[32];
        double total;

        open_plain(c, 2, kinds, 32768);
        hcp_ring_free(c->ring);
        c->ranks[0].max_tokens = 2048 * full;
        c->ring = fixture_ring_of(c->models, c->ranks, c->n);
        c->q.chunk_len = 2048;
        assert_int_equal(split(c), HCP_STATUS_OK);
        check_plan(c);
        total = c->plan.total_ms;
        for (size_t k = 0; k < c->plan.n_chunks; k++) {
            const hcp_chunk_share *share = c->plan.shares + 2 * k;

            assert_true(share[1].tokens > 0);
            assert_true(k < 16 - (size_t)full || share[0].tokens > 0);
        }
        assert_int_equal(c->plan.shares[0].tokens, 0);
        for (int k = 0; k < 16; k++) {
            lengths[k] = 2048;
            tokens[2 * k] = k < 16 - full ? 0 : 2048;
            tokens[2 * k + 1] = 2048 - tokens[2 * k];
        }
        assert_int_equal(evaluate(c, lengths, 16, tokens), HCP_STATUS_OK);
        assert_true(total < 0.9 * c->plan.total_ms);
        close_problem(c);
    }
}

/* Caps: a capped fast rank keeps its room for the chunks with many keys. */
static void caps_bind(void **state)
{
    static const int kinds[] = {0, 2};
    struct problem_of *c = &one;
    int64_t lengths[16], tokens[32];
    double total;

    (void)state;
    c->ranks[0].max_tokens = 0;
    open_plain(c, 2, kinds, 32768);
    close_problem(c);
    c->ranks[0].max_tokens = 16384;
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring_of(c->models, c->ranks, c->n);
    c->q.chunk_len = 2048;
    c->workspace = malloc(c->workspace_bytes);
    assert_int_equal(split(c), HCP_STATUS_OK);
    check_plan(c);
    assert_true(c->plan.shares[0].tokens < c->plan.chunks[0].tokens / 4);
    assert_true(c->plan.shares[(c->plan.n_chunks - 1) * 2].tokens >= 1024);
    total = c->plan.total_ms;
    for (int k = 0; k < 16; k++) { /* its share of each chunk as long as it has room */
        lengths[k] = 2048;
        tokens[2 * k] = k < 8 ? 1920 : k == 8 ? 1024 : 0;
        tokens[2 * k + 1] = 2048 - tokens[2 * k];
    }
    assert_int_equal(evaluate(c, lengths, 16, tokens), HCP_STATUS_OK);
    assert_true(total < 0.6 * c->plan.total_ms);
    c->q.seq_len = 1 << 25;
    hcp_ring_free(c->ring);
    c->ranks[1].max_tokens = 8192;
    c->ring = fixture_ring_of(c->models, c->ranks, c->n);
    assert_int_equal(split(c), HCP_STATUS_INFEASIBLE);
    assert_non_null(strstr(c->text, "short by 33529856 tokens"));
    close_problem(c);
}

/* ---- plan files ---- */

static char json[1 << 20], other[1 << 20];

static void plan_files(void **state)
{
    static hcp_chunks_rank ranks[MOST_RANKS];
    static hcp_chunk chunks[64];
    static hcp_chunk_share shares[64 * MOST_RANKS];
    static hcp_segment segments[64 * MOST_RANKS * 8];
    static const int kinds[] = {0, 1, 2};
    struct problem_of *c = &one;
    hcp_chunks_plan plan;
    size_t needed, n_ranks, n_chunks, n_segments;
    uint64_t seed = 3;
    int refused = 0;

    (void)state;
    for (int layout = 0; layout <= HCP_LAYOUT_STRIPED; layout++) {
        open_plain(c, 3, kinds, 9000);
        c->ranks[0].weight_bytes = 5;
        c->q.layout = (hcp_layout)layout;
        c->q.stripes = 5;
        c->q.step_budget_ms = 0.2;
        c->q.link_gbps = layout * 50;
        hcp_chunks_plan_init(&c->plan, ranks, MOST_RANKS, chunks, 64, shares,
                             64 * MOST_RANKS, segments, 64 * MOST_RANKS * 8);
        assert_int_equal(split(c), HCP_STATUS_OK);
        assert_true(c->plan.n_chunks > 1);
        assert_int_equal(hcp_chunks_to_json(&c->plan, NULL, 0, &needed),
                         HCP_STATUS_SPACE);
        assert_true(needed < sizeof json);
        assert_int_equal(hcp_chunks_to_json(&c->plan, json, needed, NULL),
                         HCP_STATUS_SPACE);
        assert_int_equal(hcp_chunks_to_json(&c->plan, json, needed + 1, NULL),
                         HCP_STATUS_OK);
        assert_int_equal(hcp_chunks_json_counts(json, needed, c->text, sizeof c->text,
                                                &n_ranks, &n_chunks, &n_segments),
                         HCP_STATUS_OK);
        assert_int_equal(n_ranks, 3);
        assert_int_equal(n_chunks, c->plan.n_chunks);
        assert_int_equal(n_segments, c->plan.n_segments);
        arrays(c, &plan);
        assert_int_equal(
            hcp_chunks_from_json(json, needed, c->text, sizeof c->text, &plan),
            HCP_STATUS_OK);
        assert_true(hcp_chunks_fingerprint(&plan) == plan.fingerprint);
        assert_int_equal(hcp_chunks_to_json(&plan, other, sizeof other, NULL),
                         HCP_STATUS_OK);
        assert_string_equal(json, other);
        /* One chunk too few, and one segment. */
        plan.chunks_capacity = n_chunks - 1;
        assert_int_equal(
            hcp_chunks_from_json(json, needed, c->text, sizeof c->text, &plan),
            HCP_STATUS_FORMAT);
        arrays(c, &plan);
        plan.segments_capacity = n_segments - 1;
        assert_int_equal(
            hcp_chunks_from_json(json, needed, c->text, sizeof c->text, &plan),
            HCP_STATUS_FORMAT);
        /* A digit of tokens, offsets, residents and segments changed: refused. */
        for (int i = 0, n = times(300); i < n; i++) {
            size_t at = (size_t)fixture_range(&seed, 0, (int64_t)needed - 1);
            char *in, before;

            strcpy(other, json);
            in = strstr(other + at, i % 4 == 0   ? "\"offset\":"
                                    : i % 4 == 1 ? "\"tokens\":"
                                    : i % 4 == 2 ? "\"resident\":"
                                                 : "\"segments\":[[");
            if (!in)
                continue;
            in = strpbrk(in, "0123456789");
            before = *in;
            *in = (char)('0' + fixture_range(&seed, 0, 9));
            arrays(c, &plan);
            assert_int_equal(hcp_chunks_from_json(other, needed, c->text, sizeof c->text,
                                                  &plan) == HCP_STATUS_OK,
                             *in == before);
            refused += *in != before;
        }
        /* Anything else: no crash, and what is read is consistent. */
        for (int i = 0, n = times(2000); i < n; i++) {
            strcpy(other, json);
            for (int k = 0; k < 2; k++)
                other[fixture_range(&seed, 0, (int64_t)needed - 1)] =
                    "0123456789,:[]{}\"-e.n"[fixture_range(&seed, 0, 20)];
            arrays(c, &plan);
            if (hcp_chunks_from_json(
                    other,
                    (size_t)fixture_range(&seed, 0, 9)
                        ? needed
                        : (size_t)fixture_range(&seed, 0, (int64_t)needed),
                    c->text, sizeof c->text, &plan) == HCP_STATUS_OK) {
                int64_t sum = 0;

                for (size_t r = 0; r < plan.n_ranks; r++)
                    sum += plan.ranks[r].tokens;
                assert_int_equal(sum, plan.seq_len);
            }
        }
        close_problem(c);
    }
    if (fixture_scale() >= 0.5)
        assert_true(refused > 100);
}

/* ---- bad input ---- */

static void refusals(void **state)
{
    static const int kinds[] = {0, 1};
    static const int64_t lengths[] = {1000, 3000}, short_of[] = {1000, 2999},
                         none[] = {0, 4000};
    static const int64_t tokens[] = {1000, 0, 1000, 2000}, bad[] = {1000, 0, 1000, 1999},
                         negative[] = {1001, -1, 1000, 2000};
    struct problem_of *c = &one;
    hcp_chunks good;

    (void)state;
    open_plain(c, 2, kinds, 4000);
    assert_int_equal(split(c), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "budget"));
    c->q.step_budget_ms = 1;
    good = c->q;
#define REFUSED(member, value, says)                                                     \
    do {                                                                                 \
        c->q = good;                                                                     \
        c->q.member = (value);                                                           \
        assert_int_equal(split(c), HCP_STATUS_INVALID);                                  \
        assert_non_null(strstr(c->text, says));                                          \
    } while (0)
    REFUSED(seq_len, 0, "seq_len");
    REFUSED(seq_len, HCP_PLAN_MAX_LEN + 1, "seq_len");
    REFUSED(step_budget_ms, -1, "step_budget_ms");
    REFUSED(step_budget_ms, NAN, "step_budget_ms");
    REFUSED(step_fixed_ms, INFINITY, "step_fixed_ms");
    REFUSED(chunk_len, -1, "chunk_len");
    REFUSED(layers, 0, "layers");
    REFUSED(layers, 65537, "layers");
    REFUSED(activation_bytes, -1, "activation_bytes");
    REFUSED(layout, (hcp_layout)4, "layout");
    REFUSED(stripes, 0, "stripes");
    REFUSED(tile, -1, "tile");
    REFUSED(buffers, 17, "buffers");
    REFUSED(link_gbps, 1e-9, "link");
    REFUSED(link_alpha_us, -1, "link");
    REFUSED(size, 8, "size set");
    c->q = good;
    assert_int_equal(hcp_chunks_split(c->ring, &c->q, c->workspace, 100, c->text,
                                      sizeof c->text, &c->plan),
                     HCP_STATUS_SPACE);
    assert_int_equal(hcp_chunks_split(c->ring, &c->q, NULL, 0, NULL, 0, &c->plan),
                     HCP_STATUS_SPACE);
    assert_int_equal(hcp_chunks_split(NULL, &c->q, c->workspace, c->workspace_bytes, NULL,
                                      0, &c->plan),
                     HCP_STATUS_INVALID);
    c->q.step_budget_ms = 0.08;
    c->plan.chunks_capacity = 2;
    assert_int_equal(split(c), HCP_STATUS_SPACE);
    assert_non_null(strstr(c->text, "2 chunks, for which there is room"));
    arrays(c, &c->plan);
    c->plan.segments_capacity = 1;
    assert_int_equal(split(c), HCP_STATUS_SPACE);
    arrays(c, &c->plan);
    assert_int_equal(hcp_chunks_workspace_bytes(c->ring, 0), 0);
    assert_int_equal(hcp_chunks_workspace_bytes(c->ring, HCP_CHUNKS_MAX + 1), 0);
    assert_int_equal(hcp_chunks_workspace_bytes(NULL, 1), 0);
    /* Chunks of one's own. */
    c->q = good;
    assert_int_equal(evaluate(c, lengths, 2, tokens), HCP_STATUS_OK);
    check_plan(c);
    assert_int_equal(evaluate(c, lengths, 2, NULL), HCP_STATUS_OK);
    assert_int_equal(c->plan.given, 1);
    check_plan(c);
    assert_int_equal(evaluate(c, NULL, 2, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, lengths, 0, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, short_of, 2, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, none, 2, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, lengths, 2, bad), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "chunk 1 add up to 2999, not 3000"));
    assert_int_equal(evaluate(c, lengths, 2, negative), HCP_STATUS_INVALID);
    c->q.extrapolate = 0;
    c->q.seq_len = 1 << 20;
    c->q.step_budget_ms = 1e6;
    assert_int_equal(split(c), HCP_STATUS_OUTSIDE);
    assert_non_null(strstr(c->text, "--extrapolate"));
    close_problem(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_given),    cmocka_unit_test(best_of_all),
        cmocka_unit_test(search_is_near), cmocka_unit_test(chunks_shrink),
        cmocka_unit_test(rest_comes_first),
        cmocka_unit_test(bounds_hold),    cmocka_unit_test(budget_too_small),
        cmocka_unit_test(capped_join_late),
        cmocka_unit_test(caps_bind),      cmocka_unit_test(plan_files),
        cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests_name("plan-chunks", tests, NULL, NULL);
}
