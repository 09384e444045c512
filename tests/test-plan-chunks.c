/* SPDX-License-Identifier: Apache-2.0
 *
 * One prompt in chunks: times of steps and the best of all plans against
 * chunks-reference.c, how far the search is from it where there are too many, chunks that
 * shrink, budgets that cannot be met. HCP_TEST_SCALE multiplies the number of problems.
 */
#include "tests/chunks-fixture.h"

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

/* ---- times of the caller's own chunks ---- */

static void steps_given(void **state)
{
    uint64_t seed = 91;

    (void)state;
    for (int i = 0, n = fixture_times(1000); i < n; i++) {
        struct problem_of *c = &one;
        int64_t lengths[6], tokens[6 * MOST_RANKS], seq_len = 0;
        size_t count = (size_t)fixture_range(&seed, 1, 6);
        hcp_status status;

        fixture_kinds(c->fixtures, KINDS, &seed);
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
    int with = 0, without = 0, n = fixture_times(1000);
    uint64_t seed = 7;

    (void)state;
    for (int i = 0; i < n; i++) {
        struct problem_of *c = &one;
        int64_t tiles, seq_len;
        double best;
        hcp_status status;

        fixture_kinds(c->fixtures, KINDS, &seed);
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
    int n = fixture_times(60), found = 0, feasible = 0;
    double worst = 0, sum = 0;
    uint64_t seed = 23;

    (void)state;
    for (int i = 0; i < n; i++) {
        struct problem_of *c = &one;
        double best;

        fixture_kinds(c->fixtures, KINDS, &seed);
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
    for (int i = 0, n = fixture_times(60); i < n; i++) {
        struct problem_of *c = &one;
        int64_t resident[MOST_RANKS] = {0};

        fixture_kinds(c->fixtures, KINDS, &seed);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_given),      cmocka_unit_test(best_of_all),
        cmocka_unit_test(search_is_near),   cmocka_unit_test(chunks_shrink),
        cmocka_unit_test(rest_comes_first), cmocka_unit_test(bounds_hold),
        cmocka_unit_test(budget_too_small), cmocka_unit_test(capped_join_late),
        cmocka_unit_test(caps_bind),
    };

    return cmocka_run_group_tests_name("plan-chunks", tests, NULL, NULL);
}
