/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks whose queries and KV are split apart.
 */
#ifndef JOINT_FIXTURE_H
#define JOINT_FIXTURE_H
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

enum { KINDS = 3, MAX = 12, TILE = 16 };

struct joint_case {
    struct fixture fixtures[KINDS];
    int which[MAX];
    int64_t caps[MAX];
    size_t n;
    hcp_question question;
    hcp_link links[MAX * MAX];
    double shared_gbps[2];
    hcp_models *models;
    hcp_ring *ring;
    struct fixture_plan p;
    hcp_place places[MAX];
};

static inline void random_links(struct joint_case *c, uint64_t *seed)
{
    hcp_question *q = &c->question;

    q->links = c->links;
    q->shared_gbps = c->shared_gbps;
    q->n_shared = (size_t)fixture_range(seed, 0, 2);
    for (size_t i = 0; i < q->n_shared; i++)
        c->shared_gbps[i] = fixture_real(seed, 0.02, 1);
    for (int32_t from = 0; from < (int32_t)c->n; from++)
        for (int32_t to = 0; to < (int32_t)c->n; to++) {
            hcp_link *link = &c->links[q->n_links];

            if (from == to || fixture_range(seed, 0, 3) == 0)
                continue;
            *link = (hcp_link){.from = from, .to = to};
            link->alpha_us = fixture_real(seed, 0, 300);
            link->gbps = fixture_range(seed, 0, 5) ? fixture_real(seed, 0.02, 1) : 0;
            if (q->n_shared > 0)
                link->shared[0] = (int32_t)fixture_range(seed, 0, (int64_t)q->n_shared);
            if (fixture_range(seed, 0, 1)) {
                link->slowdown = fixture_real(seed, 1, 1.5);
                link->transfer_slowdown = fixture_real(seed, 1, 3);
                link->overhead_us = fixture_real(seed, 0, 100);
            }
            q->n_links++;
        }
}

/* n ranks and a sequence of some tiles: short ones, so that a row at a time is quick. */
static inline void make_case(struct joint_case *c, uint64_t *seed, size_t n,
                             int64_t tiles, int caps)
{
    static const char *const names[] = {"d0", "d1", "d2"};
    hcp_question *q = &c->question;

    memset(c, 0, sizeof *c);
    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.1, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = 1e-3 / speed,
                                          .b = fixture_real(seed, 0, 2e-3) / speed,
                                          .c = fixture_real(seed, 0, 1e-3),
                                          .f = fixture_real(seed, 0.01, 0.2),
                                          .tile = fixture_range(seed, 0, 2) ? TILE : 8,
                                          .poly = 1,
                                          .error = 0.01};
        if (fixture_range(seed, 0, 1))
            for (int k = 0; k < 4; k++)
                c->fixtures[i].finish[k] = fixture_real(seed, 0, k % 2 ? 1e-4 : 0.05);
    }
    c->n = n;
    for (size_t r = 0; r < n; r++) {
        c->which[r] = (int)fixture_range(seed, 0, KINDS - 1);
        if (caps && r > 0 && fixture_range(seed, 0, 3) == 0)
            c->caps[r] = fixture_range(seed, 1, tiles) * TILE;
    }
    hcp_question_init(q);
    q->joint = 1;
    q->seq_len =
        tiles * TILE + (fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 1, 15));
    q->causal = fixture_range(seed, 0, 3) > 0;
    q->layout = (hcp_layout)fixture_range(seed, 1, 3);
    q->stripes = (int32_t)fixture_range(seed, 2, 4);
    q->tile = TILE;
    q->buffers = (int32_t)fixture_range(seed, n > 2 ? 2 : 1, 4);
    if (fixture_range(seed, 0, 4) == 0)
        q->buffers = 0;
    q->barrier = fixture_range(seed, 0, 5) == 0;
    q->sub_blocks = fixture_range(seed, 0, 1) ? (int32_t)fixture_range(seed, 2, 5) : 1;
    q->extrapolate = 1;
    if (fixture_range(seed, 0, 4) > 0) {
        q->link_alpha_us = fixture_real(seed, 0, 100);
        q->link_gbps = fixture_real(seed, 0.02, 1);
    }
    if (fixture_range(seed, 0, 2) == 0)
        random_links(c, seed);
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring(c->models, c->fixtures, c->which, c->caps, n);
    fixture_plan_init(&c->p, n);
    c->p.plan.places = c->places;
}

static inline void free_case(struct joint_case *c)
{
    fixture_plan_free(&c->p);
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

static inline hcp_status evaluate(struct joint_case *c, const int64_t *q,
                                  const int64_t *kv, char *text, size_t size)
{
    hcp_question question = c->question;

    question.kv_tokens = kv;
    return hcp_plan_evaluate(c->ring, &question, q, c->p.workspace, c->p.workspace_bytes,
                             text, size, &c->p.plan);
}

#define SAME(got, want)                                                                  \
    do {                                                                                 \
        double got_ = (got), want_ = (want);                                             \
        if (!(fabs(got_ - want_) <= 1e-9 * fabs(want_))) {                               \
            print_error("%s = %.12g, wanted %.12g\n", #got, got_, want_);                \
            fail();                                                                      \
        }                                                                                \
    } while (0)

static inline hcp_status ask(struct joint_case *c, char *text, size_t size)
{
    return fixture_split(c->ring, &c->question, &c->p, text, size);
}

#endif
