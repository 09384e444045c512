/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks whose KV comes late, and what holds of every plan for them.
 */
#ifndef LATE_FIXTURE_H
#define LATE_FIXTURE_H
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

enum { KINDS = 4, MAX = 16 };

struct late_case {
    struct fixture fixtures[KINDS];
    size_t n;
    hcp_question question;
    hcp_rank ranks[MAX];
    hcp_link links[MAX];
    int64_t tokens[MAX];
    hcp_models *models;
    hcp_ring *ring;
};

/* Ranks of which one, or some, have much linear work before their ring, and random
 * shares: as caps may force them. */
static inline void make_case(struct late_case *c, uint64_t *seed, size_t n, int64_t tiles,
                             int with_links)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    hcp_question *q = &c->question;
    hcp_rank *ranks = c->ranks;
    hcp_shape shape;
    double weight = fixture_real(seed, 1, 40), all_ms;
    int one = fixture_range(seed, 0, 1) == 0,
        who = (int)fixture_range(seed, 0, (int)n - 1);
    char text[512] = "";

    memset(c, 0, sizeof *c);
    c->n = n;
    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_real(seed, 0.3, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = weight * 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 3e-5) / speed,
                                          .c = fixture_real(seed, 0, 2e-5),
                                          .f = fixture_real(seed, 0.001, 0.02),
                                          .tile = 128,
                                          .poly = 1,
                                          .error = 0.01};
    }
    c->models = fixture_models(c->fixtures, KINDS);
    hcp_question_init(q);
    q->seq_len = 0;
    for (size_t r = 0; r < n; r++) {
        c->tokens[r] = 128 * fixture_range(seed, 1, tiles / (int64_t)n * 2);
        q->seq_len += c->tokens[r];
    }
    all_ms = weight * 2e-8 * (double)q->seq_len * (double)q->seq_len;
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, names[fixture_range(seed, 0, KINDS - 1)]);
        if (one ? (int)r == who : fixture_range(seed, 0, 1) == 0) {
            double ms = fixture_real(seed, 0, 1.2) * all_ms / (double)n;

            ranks[r].linear_before_us = 1e3 * ms / (double)c->tokens[r];
            if (fixture_range(seed, 0, 2) == 0)
                ranks[r].linear_after_us = 0.2 * ranks[r].linear_before_us;
        }
    }
    hcp_shape_init(&shape);
    hcp_ring_create(c->models, &shape, ranks, n, NULL, text, sizeof text, &c->ring);
    assert_string_equal(text, "");
    q->causal = fixture_range(seed, 0, 2) > 0;
    q->layout = (hcp_layout)fixture_range(seed, 1, 3);
    q->stripes = 4;
    q->buffers = 0;
    q->extrapolate = 1;
    q->late_kv = 1;
    q->link_alpha_us = fixture_real(seed, 0, 20);
    q->link_gbps = (double)q->seq_len * 4096 / 1e6 /
                   (all_ms * pow(10, fixture_real(seed, -2.5, -0.3)));
    with_links = n > 1 ? with_links : 0;
    for (int32_t r = 0; with_links && r < (int32_t)n; r++) {
        int32_t to = (r + 1) % (int32_t)n;
        hcp_link link = {.from = r, .to = to, .gbps = q->link_gbps};

        link.gbps *= fixture_real(seed, 0.3, 2);
        link.alpha_us = fixture_real(seed, 0, 30);
        if (with_links > 1) {
            link.slowdown = fixture_real(seed, 1, 1.4);
            link.transfer_slowdown = fixture_real(seed, 1, 3);
            link.overhead_us = fixture_real(seed, 0, 20);
        }
        c->links[r] = link;
        q->n_links++;
    }
    q->links = with_links ? c->links : NULL;
}

static inline void free_case(struct late_case *c)
{
    reference_forget();
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

/* The plan's time and steps are what the plain objective says of its tokens and slots. */
static inline void check_plan(const struct late_case *c, struct fixture_plan *p,
                              int number)
{
    static hcp_step steps[MAX * MAX];
    struct reference_orders orders;
    hcp_question q = c->question;
    int64_t tokens[MAX];
    int32_t slots[MAX];
    double ms, end = 0;
    size_t n_steps;
    char text[512] = "";

    for (size_t r = 0; r < c->n; r++) {
        tokens[r] = p->plan.ranks[r].tokens;
        slots[r] = p->plan.ranks[r].late_slots;
    }
    q.layout = p->plan.layout;
    reference_slots(c->ring, &q, tokens, slots, &orders);
    ms = reference_in_order(c->ring, HCP_MODEL_BEST, &q, tokens, &orders);
    if (fabs(ms - p->plan.makespan_ms) > 1e-9 * ms)
        fail_msg("problem %d: plan %.12g, objective %.12g", number, p->plan.makespan_ms,
                 ms);
    assert_true(p->plan.makespan_ms <= p->plan.in_turn_ms);
    if (p->plan.makespan_ms < p->plan.late_bound_ms * (1 - 1e-12))
        fail_msg("problem %d: %.12g is below its bound %.12g", number,
                 p->plan.makespan_ms, p->plan.late_bound_ms);
    if (hcp_plan_simulate(c->ring, &p->plan, 1, p->workspace, p->workspace_bytes, text,
                          sizeof text, steps, MAX * MAX, &n_steps))
        fail_msg("problem %d: %s", number, text);
    for (size_t k = 0; k < n_steps; k++) {
        int i = 0, j = 0, step = steps[k].step;

        for (size_t r = 0; r < c->n; r++) {
            i += tokens[r] > 0 && (int32_t)r < steps[k].rank;
            j += tokens[r] > 0 && (int32_t)r < steps[k].block_of;
        }
        end = fmax(end, steps[k].fin_ms + p->plan.ranks[steps[k].rank].linear_after_ms);
        if (step > 0 && step <= orders.n_into[i])
            assert_int_equal(orders.into[i][step - 1], j);
        else if (step > 0)
            assert_true(isnan(steps[k].ready_ms));
    }
    assert_true(end == p->plan.makespan_ms);
}

#endif
