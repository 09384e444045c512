/* SPDX-License-Identifier: Apache-2.0
 *
 * A group of ranks whose speeds change as a test says, for the tests of rebalancing: what
 * they would measure, and what plans really take on them.
 */
#ifndef REBALANCE_FIXTURE_H
#define REBALANCE_FIXTURE_H
#include <math.h>
#include "tests/plan-fixture.h"

enum { GROUP_MOST = 8 };

struct group {
    size_t n;
    struct fixture kinds[GROUP_MOST];
    char names[GROUP_MOST][16];
    hcp_models *models;
    hcp_ring *ring; /* at factor 1 */
    hcp_question question;
    struct fixture_plan plan, other;
    double factor[GROUP_MOST];   /* as they are now, */
    double measured[GROUP_MOST]; /* and as the last step had them */
};

/* n ranks of different speeds; error: the models' relative error bar. The plan is that of
 * factors of 1. Free with group_free(). */
static inline void group_make(struct group *g, size_t n, int causal, hcp_layout layout,
                              int64_t seq_len, double error, uint64_t *seed)
{
    int which[GROUP_MOST];
    char text[512] = "";

    memset(g, 0, sizeof *g);
    g->n = n;
    for (size_t r = 0; r < n; r++) {
        double a = 2e-8 * fixture_real(seed, 1, r % 2 ? 6 : 2);

        snprintf(g->names[r], sizeof g->names[r], "gpu-%d", (int)(r % 1000));
        g->kinds[r] = (struct fixture){.device = g->names[r],
                                       .a = a,
                                       .b = 200 * a,
                                       .f = 0.002,
                                       .tile = 64,
                                       .lut = 1,
                                       .error = error};
        which[r] = (int)r;
        g->factor[r] = 1;
    }
    g->models = fixture_models(g->kinds, n);
    g->ring = fixture_ring(g->models, g->kinds, which, NULL, n);
    hcp_question_init(&g->question);
    g->question.seq_len = seq_len;
    g->question.causal = causal;
    g->question.layout = layout;
    g->question.extrapolate = 1;
    fixture_plan_init(&g->plan, n);
    fixture_plan_init(&g->other, n);
    if (fixture_split(g->ring, &g->question, &g->plan, text, sizeof text)) {
        fprintf(stderr, "rebalance-fixture: %s\n", text);
        abort();
    }
}

static inline void group_free(struct group *g)
{
    fixture_plan_free(&g->plan);
    fixture_plan_free(&g->other);
    hcp_ring_free(g->ring);
    hcp_models_free(g->models);
}

/* A ring of the same ranks at their present factors. */
static inline hcp_ring *group_ring_now(const struct group *g)
{
    hcp_rank ranks[GROUP_MOST];

    for (size_t r = 0; r < g->n; r++) {
        hcp_rank_init(&ranks[r]);
        snprintf(ranks[r].device, sizeof ranks[r].device, "%s", g->names[r]);
        ranks[r].time_scale = g->factor[r];
    }
    return fixture_ring_of(g->models, ranks, g->n);
}

/* What a plan's shares really take now; like NULL: what the best ones would. */
static inline double group_makespan(struct group *g, const hcp_plan *like)
{
    hcp_ring *ring = group_ring_now(g);
    hcp_question q = g->question;
    int64_t tokens[GROUP_MOST];
    char text[512] = "";
    hcp_status status;

    if (!like) {
        status = fixture_split(ring, &q, &g->other, text, sizeof text);
    } else {
        q.layout = like->layout;
        for (size_t r = 0; r < g->n; r++)
            tokens[r] = like->ranks[r].tokens;
        status = hcp_plan_evaluate(ring, &q, tokens, g->other.workspace,
                                   g->other.workspace_bytes, text, sizeof text,
                                   &g->other.plan);
    }
    if (status) {
        fprintf(stderr, "rebalance-fixture: %s\n", text);
        abort();
    }
    hcp_ring_free(ring);
    return g->other.plan.makespan_ms;
}

/* What each rank computes for at factor 1 in a plan. */
static inline void group_base(struct group *g, const hcp_plan *plan, double *base)
{
    hcp_question q = g->question;
    int64_t tokens[GROUP_MOST];
    char text[512] = "";

    q.layout = plan->layout;
    for (size_t r = 0; r < g->n; r++)
        tokens[r] = plan->ranks[r].tokens;
    if (hcp_plan_evaluate(g->ring, &q, tokens, g->other.workspace,
                          g->other.workspace_bytes, text, sizeof text, &g->other.plan)) {
        fprintf(stderr, "rebalance-fixture: %s\n", text);
        abort();
    }
    for (size_t r = 0; r < g->n; r++)
        base[r] = g->other.plan.ranks[r].compute_ms;
}

enum group_noise { NOISE_EVEN, NOISE_NORMAL };

/* A relative error: evenly within +- size, or normal of that standard deviation. */
static inline double group_noise(enum group_noise kind, double size, uint64_t *seed)
{
    double sum = 0;

    if (kind == NOISE_EVEN)
        return fixture_real(seed, -size, size);
    for (int i = 0; i < 12; i++)
        sum += fixture_real(seed, 0, 1);
    return size * (sum - 6);
}

#endif
