/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems of one prompt in chunks.
 */
#ifndef CHUNKS_FIXTURE_H
#define CHUNKS_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/chunks-reference.h"
#include "tests/plan-fixture.h"

enum { KINDS = 3, MOST_RANKS = 16, MOST_CHUNKS = 4096, TILE = 128 };

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

static inline void arrays(struct problem_of *c, hcp_chunks_plan *plan)
{
    hcp_chunks_plan_init(plan, c->out_ranks, MOST_RANKS, c->out_chunks, MOST_CHUNKS,
                         c->out_shares, MOST_CHUNKS * MOST_RANKS, c->out_segments,
                         MOST_CHUNKS * MOST_RANKS * 2);
}

static inline void open_problem(struct problem_of *c)
{
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring_of(c->models, c->ranks, c->n);
    c->workspace_bytes = hcp_chunks_workspace_bytes(c->ring, MOST_CHUNKS);
    c->workspace = malloc(c->workspace_bytes);
    assert_non_null(c->workspace);
    memset(c->workspace, 0xa5, c->workspace_bytes); /* means nothing */
    arrays(c, &c->plan);
}

static inline void close_problem(struct problem_of *c)
{
    free(c->workspace);
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

static inline hcp_status split(struct problem_of *c)
{
    c->text[0] = 0;
    return hcp_chunks_split(c->ring, &c->q, c->workspace, c->workspace_bytes, c->text,
                            sizeof c->text, &c->plan);
}

static inline hcp_status evaluate(struct problem_of *c, const int64_t *lengths, size_t n,
                                  const int64_t *tokens)
{
    return hcp_chunks_evaluate(c->ring, &c->q, lengths, n, tokens, c->workspace,
                               c->workspace_bytes, c->text, sizeof c->text, &c->plan);
}

/* Ranks of these kinds, times linear in everything. */
static inline void open_plain(struct problem_of *c, size_t n, const int *kind,
                              int64_t seq_len)
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

static inline void assert_near(double a, double b, double by)
{
    if (!(fabs(a - b) <= by * (fabs(a) + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

/* Every token once, residents as they were left, and each step as the reference has it.
 */
static inline void check_plan(const struct problem_of *c)
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

#endif
