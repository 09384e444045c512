/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems of several documents in one step, and what holds of every plan for them.
 */
#ifndef DOCUMENTS_FIXTURE_H
#define DOCUMENTS_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/documents-reference.h"
#include "tests/plan-fixture.h"

enum { KINDS = 3, MOST_RANKS = 64, MOST_DOCUMENTS = 4096 };

/* A problem with its answer. */
struct problem_of {
    struct fixture fixtures[KINDS];
    hcp_rank ranks[MOST_RANKS];
    size_t n;
    int64_t lengths[MOST_DOCUMENTS];
    hcp_documents q;
    hcp_models *models;
    hcp_ring *ring;
    hcp_documents_plan plan;
    hcp_documents_rank out_ranks[MOST_RANKS];
    hcp_document_part out_parts[MOST_DOCUMENTS + MOST_RANKS];
    int64_t out_lengths[MOST_DOCUMENTS];
    void *workspace;
    size_t workspace_bytes;
    char text[512];
};
static struct problem_of one;

static inline void open_problem(struct problem_of *c)
{
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring_of(c->models, c->ranks, c->n);
    c->q.lengths = c->lengths;
    c->workspace_bytes = hcp_documents_workspace_bytes(c->ring, c->q.n_documents);
    c->workspace = malloc(c->workspace_bytes);
    assert_non_null(c->workspace);
    hcp_documents_plan_init(&c->plan, c->out_ranks, c->n, c->out_parts,
                            c->q.n_documents + c->n - 1, c->out_lengths,
                            c->q.n_documents);
}

static inline void close_problem(struct problem_of *c)
{
    free(c->workspace);
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

static inline hcp_status split(struct problem_of *c)
{
    return hcp_documents_split(c->ring, &c->q, c->workspace, c->workspace_bytes, c->text,
                               sizeof c->text, &c->plan);
}

static inline int64_t sum_of(const struct problem_of *c)
{
    int64_t sum = 0;

    for (size_t i = 0; i < c->q.n_documents; i++)
        sum += c->lengths[i];
    return sum;
}

/* Ranks of random kinds, linear work, caps, links: each in some problems. */
static inline void random_rest(struct problem_of *c, uint64_t *seed)
{
    int same = fixture_range(seed, 0, 2) == 0, layer = fixture_range(seed, 0, 2) == 0;
    int caps = (int)fixture_range(seed, 0, 4);
    int64_t share = sum_of(c) / (int64_t)c->n + 1;

    hcp_documents_init(&c->q);
    c->q.extrapolate = 1;
    c->q.cut_gain = 0;
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank *rank = &c->ranks[r];

        hcp_rank_init(rank);
        strcpy(rank->device,
               c->fixtures[same ? 0 : fixture_range(seed, 0, KINDS - 1)].device);
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
            rank->max_bytes =
                1000 + 4096 * (int64_t)((double)share * fixture_real(seed, 0.8, 4));
        }
    }
    if (fixture_range(seed, 0, 1)) {
        c->q.link_gbps = fixture_real(seed, 1, 100);
        c->q.link_alpha_us = fixture_real(seed, 0, 20);
    }
    c->q.activation_bytes = fixture_range(seed, 0, 1) * 100;
}

/* ---- parts ---- */

/* Every token once, and what the plan says about its parts. */
static inline void check_parts(const struct problem_of *c)
{
    const hcp_documents_plan *plan = &c->plan;
    int64_t *end = calloc(c->q.n_documents, sizeof *end), cut = 0;
    size_t at = 0;

    assert_non_null(end);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_documents_rank *rank = &plan->ranks[r];
        int64_t tokens = 0, area = 0, came = 0, last = -1;

        assert_int_equal(rank->first_part, at);
        for (int64_t i = 0; i < rank->n_parts; i++) {
            const hcp_document_part *p = &plan->parts[at + (size_t)i];

            assert_true(p->document > last);
            last = p->document;
            assert_true(p->length > 0);
            assert_int_equal(p->offset, end[p->document]);
            end[p->document] += p->length;
            tokens += p->length;
            area += c->q.causal ? p->length * p->offset + p->length * (p->length + 1) / 2
                                : p->length * p->length;
            if (p->offset > 0) {
                assert_int_equal(came, 0);
                came = p->offset;
            }
            cut += p->offset == 0 && p->length < c->lengths[p->document];
        }
        at += (size_t)rank->n_parts;
        assert_int_equal(rank->tokens, tokens);
        assert_int_equal(rank->area, area);
        assert_int_equal(rank->received_tokens, came);
        if (rank->max_tokens > 0)
            assert_true(tokens <= rank->max_tokens);
        if (rank->max_bytes > 0)
            assert_true(rank->memory_bytes <= rank->max_bytes);
    }
    assert_int_equal(at, plan->n_parts);
    assert_int_equal(cut, plan->n_cut);
    for (size_t doc = 0; doc < c->q.n_documents; doc++) {
        assert_int_equal(end[doc], c->lengths[doc]);
        assert_int_equal(plan->lengths[doc], c->lengths[doc]);
    }
    free(end);
}

static inline void to_reference(const struct problem_of *c,
                                struct reference_document *documents)
{
    for (size_t doc = 0; doc < c->q.n_documents; doc++)
        documents[doc].n = 0;
    for (size_t r = 0; r < c->plan.n_ranks; r++) {
        const hcp_documents_rank *rank = &c->plan.ranks[r];

        for (int64_t i = 0; i < rank->n_parts; i++) {
            const hcp_document_part *p = &c->plan.parts[rank->first_part + i];
            struct reference_document *d = &documents[p->document];

            d->rank[d->n] = (int)r;
            d->from[d->n] = p->offset;
            d->from[++d->n] = p->offset + p->length;
        }
    }
}

#endif
