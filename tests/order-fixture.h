/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on links that differ, for the tests of their order.
 */
#ifndef ORDER_FIXTURE_H
#define ORDER_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"
#include "tests/plan-reference.h"

enum { KINDS = 4, MAX = 24, SHARED = 4 };

struct order_case {
    struct fixture fixtures[KINDS];
    int which[MAX];
    int64_t caps[MAX];
    double linear[MAX][4]; /* before and after the ring: a token, fixed */
    int64_t bytes[MAX][2]; /* cap and weights */
    size_t n;
    hcp_question question;
    hcp_link links[MAX * MAX];
    double shared_gbps[SHARED];
    hcp_models *models;
    hcp_ring *ring;
};

static inline void random_links(struct order_case *c, uint64_t *seed, int disturbed)
{
    hcp_question *q = &c->question;
    int every = fixture_range(seed, 0, 1) == 0; /* or half of the pairs */
    double slow = fixture_real(seed, 0.5, 30);

    q->links = c->links;
    q->n_links = 0;
    q->shared_gbps = c->shared_gbps;
    q->n_shared = (size_t)fixture_range(seed, 0, SHARED);
    for (size_t i = 0; i < q->n_shared; i++)
        c->shared_gbps[i] = fixture_real(seed, 1, 100);
    for (int32_t from = 0; from < (int32_t)c->n; from++)
        for (int32_t to = 0; to < (int32_t)c->n; to++) {
            hcp_link *link = &c->links[q->n_links];

            if (from == to || (!every && fixture_range(seed, 0, 1)))
                continue;
            *link = (hcp_link){.from = from, .to = to};
            link->alpha_us = fixture_real(seed, 0, 100);
            link->gbps = fixture_range(seed, 0, 2) ? fixture_real(seed, 20, 300) : slow;
            if (fixture_range(seed, 0, 9) == 0)
                link->gbps = 0;
            if (q->n_shared > 0 && fixture_range(seed, 0, 1))
                link->shared[0] = (int32_t)fixture_range(seed, 1, (int64_t)q->n_shared);
            if (link->shared[0] > 1 && fixture_range(seed, 0, 2) == 0)
                link->shared[1] = link->shared[0] - 1;
            if (disturbed && fixture_range(seed, 0, 1)) {
                link->slowdown = fixture_real(seed, 1, 1.5);
                link->transfer_slowdown = fixture_real(seed, 1, 4);
                link->overhead_us = fixture_real(seed, 0, 30);
            }
            q->n_links++;
        }
    if (q->n_links == 0)
        q->links = NULL;
}

static inline hcp_ring *ring_of(const struct order_case *c)
{
    hcp_rank ranks[MAX];
    hcp_shape shape;
    hcp_ring *ring = NULL;
    char text[512] = "";

    for (size_t r = 0; r < c->n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, c->fixtures[c->which[r]].device);
        ranks[r].max_tokens = c->caps[r];
        ranks[r].linear_before_us = c->linear[r][0];
        ranks[r].linear_before_fixed_us = c->linear[r][1];
        ranks[r].linear_after_us = c->linear[r][2];
        ranks[r].linear_after_fixed_us = c->linear[r][3];
        ranks[r].max_bytes = c->bytes[r][0];
        ranks[r].weight_bytes = c->bytes[r][1];
    }
    hcp_shape_init(&shape);
    hcp_ring_create(c->models, &shape, ranks, c->n, NULL, text, sizeof text, &ring);
    assert_string_equal(text, "");
    return ring;
}

/* The rest of a layer on some of the ranks. */
static inline void add_linear(struct order_case *c, uint64_t *seed)
{
    double scale = fixture_real(seed, 0, 1);

    for (size_t r = 0; r < c->n; r++) {
        if (fixture_range(seed, 0, 4) == 0)
            continue;
        c->linear[r][0] = scale * fixture_real(seed, 0, 1);
        c->linear[r][2] = scale * fixture_real(seed, 0, 3);
        c->linear[r][1] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 60);
        c->linear[r][3] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 60);
    }
    hcp_ring_free(c->ring);
    c->ring = ring_of(c);
}

/* Caps in bytes of some ranks, about what an even share needs. */
static inline void add_memory(struct order_case *c, uint64_t *seed)
{
    int64_t each = c->question.seq_len / (int64_t)c->n * 4096;

    c->question.layers = (int32_t)fixture_range(seed, 1, 4);
    for (size_t r = 0; r < c->n; r++) {
        if (fixture_range(seed, 0, 2) == 0)
            continue;
        c->bytes[r][1] = fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 1, each);
        c->bytes[r][0] = c->bytes[r][1] + each * (c->question.layers + 1) / 2 +
                         fixture_range(seed, 1, each * (c->question.layers + 1));
    }
    hcp_ring_free(c->ring);
    c->ring = ring_of(c);
}

/* n ranks of some kinds and a sequence of a few tiles, or of many. */
static inline void make_case(struct order_case *c, uint64_t *seed, size_t n,
                             int64_t tiles, int disturbed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    hcp_question *q = &c->question;
    int64_t kinds = fixture_range(seed, 1, KINDS), tile = 128;
    double weight = fixture_range(seed, 0, 2) ? fixture_real(seed, 5, 100) : 1;

    memset(c, 0, sizeof *c);
    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.1, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = weight * 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 3e-5) / speed,
                                          .c = fixture_real(seed, 0, 2e-5),
                                          .f = fixture_real(seed, 0.001, 0.02),
                                          .tile = tile,
                                          .poly = 1,
                                          .error = 0.01};
    }
    c->n = n;
    for (size_t r = 0; r < n; r++) {
        c->which[r] = (int)fixture_range(seed, 0, kinds - 1);
        if (fixture_range(seed, 0, 7) == 0)
            c->caps[r] = fixture_range(seed, 1, tiles) * tile;
    }
    c->caps[0] = 0;
    hcp_question_init(q);
    q->seq_len =
        tiles * tile + (fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 1, 127));
    q->causal = fixture_range(seed, 0, 3) > 0;
    q->stripes = 4;
    q->buffers = (int32_t)fixture_range(seed, 0, 3);
    q->extrapolate = 1;
    q->order = HCP_ORDER_FREE;
    if (fixture_range(seed, 0, 2) > 0) {
        q->link_alpha_us = fixture_real(seed, 0, 30);
        q->link_gbps = fixture_real(seed, 5, 100);
    }
    if (fixture_range(seed, 0, 3) > 0)
        random_links(c, seed, disturbed);
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = ring_of(c);
}

static inline void free_case(struct order_case *c)
{
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

/* The problem with rank order[i] at place i. */
static inline void reorder(const struct order_case *c, const int32_t *order,
                           struct order_case *out)
{
    int32_t place[MAX];
    hcp_question *q = &out->question;

    *out = *c;
    for (size_t i = 0; i < c->n; i++) {
        out->which[i] = c->which[order[i]];
        out->caps[i] = c->caps[order[i]];
        memcpy(out->linear[i], c->linear[order[i]], sizeof out->linear[i]);
        memcpy(out->bytes[i], c->bytes[order[i]], sizeof out->bytes[i]);
        place[order[i]] = (int32_t)i;
    }
    for (size_t i = 0; i < q->n_links; i++) {
        out->links[i].from = place[c->links[i].from];
        out->links[i].to = place[c->links[i].to];
    }
    q->links = out->links;
    q->shared_gbps = out->shared_gbps;
    q->order = HCP_ORDER_GIVEN;
    out->ring = ring_of(out);
}

static inline int in_memory(const struct order_case *c, const int64_t *tokens)
{
    int64_t bytes[MAX];
    int fits = 1;

    if (!c->ring->memory)
        return 1;
    reference_memory(c->ring, &c->question, tokens, bytes);
    for (size_t i = 0; i < c->n; i++)
        fits &= c->bytes[i][0] == 0 || bytes[i] <= c->bytes[i][0];
    return fits;
}

/* The plan's time is what the plain objective says of its order, layout and tokens. */
static inline void check_plan(const struct order_case *c, const hcp_plan *plan,
                              int number)
{
    struct order_case in_order;
    int32_t order[MAX], seen[MAX] = {0};
    int64_t tokens[MAX];
    double ms;

    for (size_t i = 0; i < c->n; i++) {
        order[i] = plan->order || plan->has_links ? plan->places[i].rank : (int32_t)i;
        assert_in_range(order[i], 0, c->n - 1);
        assert_int_equal(seen[order[i]]++, 0);
        tokens[i] = plan->ranks[i].tokens;
    }
    reorder(c, order, &in_order);
    for (size_t i = 0; i < c->n; i++) {
        assert_string_equal(plan->ranks[i].device, c->fixtures[in_order.which[i]].device);
        assert_true(in_order.caps[i] == 0 || tokens[i] <= in_order.caps[i]);
    }
    in_order.question.layout = plan->layout;
    assert_true(in_memory(&in_order, tokens));
    ms = reference_makespan(in_order.ring, HCP_MODEL_BEST, &in_order.question, tokens);
    if (fabs(ms - plan->makespan_ms) > 1e-9 * ms)
        fail_msg("problem %d: plan %.12g, objective %.12g", number, plan->makespan_ms,
                 ms);
    hcp_ring_free(in_order.ring);
}

#endif
