/* SPDX-License-Identifier: Apache-2.0
 *
 * KV that travels in any order.
 */
#include <math.h>
#include "tests/plan-reference-ring.h"

/* What a rank receives, one after the other, and what is known of it so far. */
struct turn {
    double t, send, overhead; /* computing, transfer into the rank */
    int to;                   /* its place among what the next rank receives; -1: none */
    int of;                   /* rank whose KV it is */
    double here, fin;         /* -1: not known, -2: being found out */
};
static struct turn turns[REFERENCE_RANKS][REFERENCE_RANKS + 1]; /* [][0]: the own one */
static int turns_m;
static int32_t turns_buffers;

static double fin_of(int i, int k);

static int place_of(int i, int of)
{
    for (int k = 0; k < turns_m; k++)
        if (turns[i][k].of == of)
            return k;
    return -1;
}

/* When what rank i receives as its k-th is there. */
static double here_of(int i, int k)
{
    struct turn *x = &turns[i][k];
    int from = (i - 1 + turns_m) % turns_m, was = k - turns_buffers;
    double ms;

    if (x->here == -2)
        return INFINITY;
    if (x->here >= 0)
        return x->here;
    x->here = -2;
    ms = here_of(from, place_of(from, x->of));
    if (k > 1)
        ms = fmax(ms, here_of(i, k - 1));
    if (turns_buffers > 0 && was >= 1) {
        ms = fmax(ms, fin_of(i, was));
        if (turns_buffers > 1 && turns[i][was].to >= 0)
            ms = fmax(ms, here_of((i + 1) % turns_m, turns[i][was].to));
    }
    return x->here = ms + x->send;
}

static double fin_of(int i, int k)
{
    struct turn *x = &turns[i][k];

    if (x->fin < 0)
        x->fin = (k > 0 ? fmax(fin_of(i, k - 1), here_of(i, k)) : here_of(i, 0)) + x->t +
                 x->overhead;
    return x->fin;
}

/* Interference: while rank i computes its k-th the (k + 1)-th comes, and the sender is at
 * its own k-th. */
static void disturb(const hcp_question *q, int m, const int *rank, const int *n_into)
{
    static double alone[REFERENCE_RANKS][REFERENCE_RANKS + 1];

    for (int i = 0; i < m; i++)
        for (int k = 0; k <= m; k++)
            alone[i][k] = k <= n_into[i] ? turns[i][k].t : 0;
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;
        const hcp_link *link = reference_link(q, rank[from], rank[i]);

        for (int k = 1; link && k <= n_into[i]; k++) {
            struct turn *x = &turns[i][k];
            double own = reference_factor(link->slowdown) * alone[i][k - 1];
            double peer = alone[from][k - 1];

            x->send = reference_beside(reference_factor(link->transfer_slowdown), x->send,
                                       own > peer ? own : peer);
            turns[i][k - 1].t = reference_beside(reference_factor(link->slowdown),
                                                 alone[i][k - 1], x->send);
            x->overhead = link->overhead_us / 1e3;
        }
    }
}

double reference_in_order(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *q, const int64_t *tokens,
                          const struct reference_orders *orders)
{
    int64_t len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS], m = reference_set_up(ring, kind, q, tokens, rank, len);
    double makespan = 0;

    turns_m = m;
    turns_buffers = q->buffers;
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;
        const hcp_link *link = q->n_links ? reference_link(q, rank[from], rank[i]) : NULL;

        for (int k = 0; k < m; k++)
            turns[i][k] = (struct turn){.of = -1, .to = -1};
        turns[i][0] = (struct turn){.of = i,
                                    .to = -1,
                                    .t = reference_blocks[i][0].t[0],
                                    .here = reference_before[i],
                                    .fin = -1};
        for (int k = 1; k <= orders->n_into[i]; k++) {
            int j = orders->into[i][k - 1];
            const struct reference_block *b = &reference_blocks[i][(i - j + m) % m];
            struct turn *x = &turns[i][k];

            *x = (struct turn){.of = j,
                               .to = -1,
                               .t = b->t[0],
                               .send = b->send[0],
                               .here = -1,
                               .fin = -1};
            if (link) {
                double gbps = reference_speed(q, m, rank, link);

                x->send = link->alpha_us / 1e3;
                if (gbps > 0)
                    x->send += (double)len[j] * ring->token_bytes / (gbps * 1e6);
            }
        }
    }
    for (int i = 0; i < m; i++)
        for (int k = 0; k <= orders->n_into[i] && k < m; k++)
            if (reference_blocks[i][(i - turns[i][k].of + m) % m].sent)
                turns[i][k].to = place_of((i + 1) % m, turns[i][k].of);
    if (q->n_links > 0)
        disturb(q, m, rank, orders->n_into);
    for (int i = 0; i < m; i++)
        makespan = fmax(makespan, fin_of(i, orders->n_into[i]) + reference_after[i]);
    return makespan;
}

void reference_slots(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens,
                     const int32_t *slots, struct reference_orders *out)
{
    int64_t len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS],
        m = reference_set_up(ring, HCP_MODEL_BEST, q, tokens, rank, len), most = 0;

    for (int i = 0; i < m; i++)
        most = slots[rank[i]] > most ? slots[rank[i]] : most;
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;

        out->n_into[i] = 0;
        /* By slot, lateness, distance: one after the other, whichever is due next. */
        for (int due = 0; due < most + m; due++)
            for (int late = 0; late <= due && late <= most; late++) {
                int h = due - late, j = (from - h + m) % m;

                if (h < m - 1 && slots[rank[j]] == late && reference_blocks[from][h].sent)
                    out->into[i][out->n_into[i]++] = j;
            }
    }
}
