/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of up to three kinds that prefill, decode, or do both, for the tests of which do
 * which: asked without an allocation, and transfers that are followed to where they end.
 */
#ifndef DISAGG_FIXTURE_H
#define DISAGG_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "planner/disagg.h"
#include "tests/count-allocations.h"
#include "tests/decode-reference.h"

static char text[900];

enum { MOST = 24, KINDS = 3 };

/* Ranks of up to three kinds, both phases, and everything that an answer needs. */
struct advising {
    size_t n;
    hcp_models *models;
    hcp_shape shape[2];
    hcp_rank ranks[MOST];
    hcp_question prefill, decode;
    hcp_disagg_question q;
    hcp_disagg *disagg;
    void *workspace;
    size_t workspace_bytes;
    struct fixture_plan plan[2];
    hcp_disagg_rank out_ranks[MOST];
    hcp_move moves[MOST];
    hcp_segment segments[600];
    hcp_disagg_advice out;
};

static const char *const limits[] = {"mps:1", "mps:2", "mps:3"};

static inline void make(struct advising *a, const struct fixture *prefill,
                        const struct decode_kind *decode, int32_t batch, size_t n,
                        const int *kind_of)
{
    memset(a, 0, sizeof *a);
    a->n = n;
    for (int i = 0; i < 2; i++) {
        hcp_shape_init(&a->shape[i]);
        fixture_plan_init(&a->plan[i], n);
    }
    strcpy(a->shape[1].phase, "decode");
    a->shape[1].batch = batch;
    a->models = both_models(prefill, decode, KINDS, &a->shape[1]);
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&a->ranks[r]);
        strcpy(a->ranks[r].device, "nvidia-h200");
        strcpy(a->ranks[r].limit, limits[kind_of[r]]);
    }
    hcp_question_init(&a->prefill);
    hcp_question_init(&a->decode);
    a->prefill.layout = HCP_LAYOUT_CONTIGUOUS;
    hcp_disagg_question_init(&a->q);
    a->q.prefill = &a->prefill;
    a->q.decode = &a->decode;
}

static inline hcp_status bind(struct advising *a)
{
    hcp_status status =
        hcp_disagg_create(a->models, &a->shape[0], &a->shape[1], a->ranks, a->n, NULL,
                          NULL, text, sizeof text, &a->disagg);

    if (status)
        return status;
    a->workspace_bytes = hcp_disagg_workspace_bytes(a->disagg);
    a->workspace = malloc(a->workspace_bytes);
    hcp_disagg_advice_init(&a->out, a->out_ranks, MOST, &a->plan[0].plan,
                           &a->plan[1].plan, a->moves, MOST, a->segments, 600);
    return HCP_STATUS_OK;
}

static inline hcp_status ask(struct advising *a)
{
    long before = allocations;
    hcp_status status = hcp_disagg_advise(a->disagg, &a->q, a->workspace,
                                          a->workspace_bytes, text, sizeof text, &a->out);

    assert_int_equal(allocations, before);
    return status;
}

static inline void clear(struct advising *a)
{
    fixture_plan_free(&a->plan[0]);
    fixture_plan_free(&a->plan[1]);
    hcp_disagg_free(a->disagg);
    hcp_models_free(a->models);
    free(a->workspace);
}

/* Which tokens are where at the end: those that the decode plan says. */
static inline void follow(const struct advising *a)
{
    const hcp_plan *from = a->out.prefill;
    int64_t s = from->seq_len, bytes = 0;
    double sums[2][MOST] = {{0}}, most = 0;
    int8_t *owner = malloc((size_t)s), *moved = calloc((size_t)s, 1);

    assert_true(owner && moved);
    memset(owner, -1, (size_t)s);
    for (size_t r = 0; r < a->n; r++) {
        const hcp_plan_rank *rank;

        if (a->out_ranks[r].prefill_place < 0)
            continue;
        rank = &from->ranks[a->out_ranks[r].prefill_place];
        assert_int_equal(rank->tokens, a->out_ranks[r].prefill_tokens);
        assert_string_equal(rank->limit, a->ranks[r].limit);
        for (int64_t k = 0; k < rank->n_segments; k++) {
            hcp_segment run = from->segments[rank->first_segment + k];
            memset(owner + run.offset, (int)r, (size_t)run.length);
        }
    }
    for (size_t i = 0; i < a->out.n_moves; i++) {
        const hcp_move *move = &a->out.moves[i];
        int64_t sum = 0;

        for (int64_t k = 0; k < move->n_segments; k++) {
            hcp_segment run = a->out.segments[move->first_segment + k];

            for (int64_t t = run.offset; t < run.offset + run.length; t++) {
                assert_true(owner[t] == move->from && !moved[t]);
                moved[t] = 1;
                owner[t] = (int8_t)move->to;
            }
            sum += run.length;
        }
        assert_int_equal(sum, move->tokens);
        assert_int_equal(move->bytes,
                         sum * 2 * 8 * 128 * 2 * a->shape[1].batch * a->prefill.layers);
        bytes += move->bytes;
        sums[0][move->from] += move->ms;
        sums[1][move->to] += move->ms;
    }
    for (size_t r = 0; r < a->n; r++) {
        int64_t held = 0;

        for (int64_t t = 0; t < s; t++)
            held += owner[t] == (int8_t)r;
        assert_int_equal(held, a->out_ranks[r].decode_tokens);
        if (a->out_ranks[r].decode_tokens > 0)
            assert_int_equal(a->out.decode->ranks[a->out_ranks[r].decode_place].tokens,
                             held);
        most = fmax(most, fmax(sums[0][r], sums[1][r]));
    }
    assert_int_equal(bytes,
                     (a->out.decision ? a->out.separate : a->out.colocated).move_bytes);
    assert_true(
        fabs(most - (a->out.decision ? a->out.separate : a->out.colocated).move_ms) <=
        1e-9 * most);
    free(owner);
    free(moved);
}

#endif
