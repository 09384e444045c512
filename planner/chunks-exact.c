/* SPDX-License-Identifier: Apache-2.0
 *
 * All plans of few tiles. What is still to come depends on how many tiles are resident on
 * each rank and on nothing else: from the full prompt backwards, the least time from each
 * such state on is that of a step and of the state after it, over all steps there are.
 */
#include <string.h>
#include "planner/chunks.h"

struct exact {
    struct chunks *c;
    int64_t tiles, step_tiles; /* of the prompt; of a step at most */
    int only_longest;          /* no budget: chunks have their length */
    int64_t last;              /* tokens of the last tile */
    int64_t at[HCP_CHUNKS_MAX_RANKS], to[HCP_CHUNKS_MAX_RANKS]; /* tiles */
    int64_t sum;
    size_t state;
    size_t weight[HCP_CHUNKS_MAX_RANKS];
};

/* Pairs of states one of which may follow the other: (tiles + 2 n) over 2 n. */
static int few(const struct chunks *c, int64_t tiles)
{
    double pairs = 1, states = 1;

    for (size_t i = 1; i <= 2 * c->n; i++)
        pairs = pairs * ((double)tiles + (double)i) / (double)i;
    for (size_t i = 0; i < c->n; i++)
        states *= (double)tiles + 1;
    return pairs <= EXACT_STEPS && states <= EXACT_STATES;
}

/* The step from at to to; less: rank on which the last tile is short, -1: it is not in
 * it. */
static void try_step(struct exact *e, int less)
{
    struct chunks *c = e->c;
    size_t next = 0;

    for (size_t r = 0; r < c->n; r++) {
        next += (size_t)e->to[r] * e->weight[r];
        c->trial[r] = (e->to[r] - e->at[r]) * c->p.tile;
    }
    if (c->value[next] >= HUGE_MS)
        return;
    if (less >= 0)
        c->trial[less] -= c->p.tile - e->last;
    for (int k = 0; k < c->n_layouts; k++) {
        double ms;

        c->p.layout = c->layouts[k];
        ms = chunks_eval(c, c->resident, c->trial);
        if (!chunks_meets(c, ms))
            continue;
        ms = chunks_step_ms(c, ms) + c->value[next];
        if (ms < c->value[e->state]) {
            c->value[e->state] = ms;
            c->next[e->state] = (int32_t)next;
            c->choice[e->state] = k + 2 * (less + 1);
        }
    }
}

/* All steps by which ranks r.. get `left` tiles at most. */
static void each_step(struct exact *e, size_t r, int64_t took)
{
    int64_t sum = e->sum + took;
    int64_t most = e->tiles - e->sum < e->step_tiles ? e->tiles - e->sum : e->step_tiles;

    if (r < e->c->n) {
        for (int64_t more = 0; took + more <= most; more++) {
            e->to[r] = e->at[r] + more;
            each_step(e, r + 1, took + more);
        }
        return;
    }
    if (took == 0 || (e->only_longest && took < most))
        return;
    if (sum < e->tiles || e->last == e->c->p.tile) {
        try_step(e, -1);
        return;
    }
    for (size_t i = 0; i < e->c->n; i++)
        if (e->to[i] > e->at[i])
            try_step(e, (int)i);
}

/* All states with so many tiles. */
static void each_state(struct exact *e, size_t r, int64_t left)
{
    struct chunks *c = e->c;

    if (r + 1 < c->n) {
        for (int64_t t = 0; t <= left; t++) {
            e->at[r] = t;
            each_state(e, r + 1, left - t);
        }
        return;
    }
    e->at[r] = left;
    e->state = 0;
    for (size_t i = 0; i < c->n; i++) {
        e->state += (size_t)e->at[i] * e->weight[i];
        c->resident[i] = e->at[i] * c->p.tile;
    }
    c->value[e->state] = e->sum == e->tiles ? 0 : HUGE_MS;
    if (e->sum < e->tiles)
        each_step(e, 0, 0);
}

/* The best plan, into c->here. */
static void follow(struct exact *e)
{
    struct chunks *c = e->c;
    struct chunk_list *l = &c->here;
    size_t state = 0, next;

    l->count = 0;
    l->total_ms = 0;
    l->reached = 0;
    memset(c->resident, 0, c->n * sizeof *c->resident);
    for (; l->reached < c->p.seq_len; state = next) {
        int64_t *q = l->q + l->count * c->n;
        int less = c->choice[state] / 2 - 1;

        next = (size_t)c->next[state];
        for (size_t r = 0; r < c->n; r++) {
            int64_t tiles = (int64_t)(next / e->weight[r] % (size_t)(e->tiles + 1)) -
                            (int64_t)(state / e->weight[r] % (size_t)(e->tiles + 1));

            q[r] = tiles * c->p.tile - ((int)r == less ? c->p.tile - e->last : 0);
            l->reached += q[r];
        }
        c->p.layout = l->layout[l->count++] = c->layouts[c->choice[state] % 2];
        l->total_ms += chunks_step_ms(c, chunks_eval(c, c->resident, q));
        for (size_t r = 0; r < c->n; r++)
            c->resident[r] += q[r];
    }
}

int chunks_exact(struct chunks *c)
{
    int64_t tile = c->p.tile, tiles = (c->p.seq_len + tile - 1) / tile, len;
    struct exact e = {.c = c, .tiles = tiles, .step_tiles = tiles};
    struct chunk_list best;

    len = c->question->chunk_len;
    if (!few(c, tiles) || (len > 0 && len < c->p.seq_len && len % tile != 0) ||
        (size_t)tiles > c->max_chunks)
        return 0;
    e.last = c->p.seq_len - (tiles - 1) * tile;
    e.only_longest = c->question->step_budget_ms == 0;
    if (len > 0 && len < c->p.seq_len)
        e.step_tiles = len / tile;
    for (size_t r = 0, w = 1; r < c->n; r++, w *= (size_t)(tiles + 1))
        e.weight[r] = w;
    for (e.sum = tiles; e.sum >= 0; e.sum--)
        each_state(&e, 0, e.sum);
    if (c->value[0] >= HUGE_MS)
        return 1;
    follow(&e);
    if (c->here.total_ms < c->best.total_ms) {
        best = c->best;
        c->best = c->here;
        c->here = best;
    }
    return 1;
}
