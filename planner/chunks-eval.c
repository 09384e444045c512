/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step costs: the recurrence of joint-ring.c in whole blocks, with linear work
 * around it.
 */
#include <string.h>
#include "planner/chunks.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void chunks_calls(const struct chunks *c, size_t i, size_t j, int64_t q, int64_t k,
                  int64_t resident,
                  void (*visit)(void *ctx, int64_t q_len, int64_t kv_len), void *ctx)
{
    int64_t keys = resident; /* that all see */

    if (q == 0)
        return;
    if (j < i && c->p.layout == HCP_LAYOUT_CONTIGUOUS)
        keys += k;
    else if (j < i && c->p.layout == HCP_LAYOUT_ZIGZAG)
        keys += k - k / 2;
    if (keys > 0)
        visit(ctx, q, keys);
    if (j > i && c->p.layout == HCP_LAYOUT_ZIGZAG && q / 2 > 0 && k > 0)
        visit(ctx, q / 2, k);
    if (j != i && c->p.layout == HCP_LAYOUT_STRIPED)
        cost_each_call(&c->p, q, k, j < i, visit, ctx);
}

struct sum {
    const struct chunks *c;
    const hcp_model *model;
    double ms;
    uint8_t source;
};

static void add_call(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct sum *s = ctx;

    s->ms += cost_call(&s->c->p, s->model, q_len, kv_len, &s->source);
}

static double ask_pair(const struct chunks *c, size_t i, size_t j, int64_t q, int64_t k,
                       int64_t resident)
{
    struct sum s = {c, problem_model(&c->p, i), 0, 0};

    if (q == 0)
        return 0;
    chunks_calls(c, i, j, q, k, resident, add_call, &s);
    if (i == j)
        s.ms += cost_own(&c->p, s.model, q, &s.source);
    return s.source == HCP_FROM_EXTRAPOLATED && !c->p.extrapolate ? HUGE_MS : s.ms;
}

/* Remembers the last answer for each pair. */
static double pair_ms(struct chunks *c, size_t i, size_t j, int64_t q, int64_t k,
                      int64_t resident)
{
    struct chunk_pair *at = &c->pair[c->p.layout == HCP_LAYOUT_ZIGZAG][i * c->n + j];

    if (at->q != q || at->k != k || at->resident != resident) {
        at->ms = ask_pair(c, i, j, q, k, resident);
        at->q = q;
        at->k = k;
        at->resident = resident;
    }
    return at->ms;
}

double chunks_row_ms(struct chunks *c, const int64_t *resident, const int64_t *tokens,
                     size_t i, int64_t q)
{
    double ms = 0;

    if (q == 0)
        return 0;
    for (size_t j = 0; j < c->n; j++)
        ms += pair_ms(c, i, j, q, j == i ? q : tokens[j], resident[j]);
    return ms + layer_ms(&c->p, i, q);
}

double chunks_row_least_ms(const struct chunks *c, const int64_t *resident, size_t i,
                           int64_t q)
{
    struct sum s = {c, problem_model(&c->p, i), 0, 0};

    if (q == 0)
        return 0;
    for (size_t j = 0; j < c->n; j++)
        if (resident[j] > 0)
            add_call(&s, q, resident[j]);
    return s.ms + cost_own(&c->p, s.model, q, NULL) + layer_ms(&c->p, i, q);
}

/* Ranks in the ring, their calls, and how far each block travels. Returns their number;
 * -1: outside the measured lengths; -2: a rank computes for limit_ms alone. */
static int32_t lay_out(struct chunks *c, const int64_t *resident, const int64_t *q,
                       double limit_ms)
{
    int32_t m = 0;

    for (size_t r = 0; r < c->n; r++) {
        c->fin[r] = c->busy[r] = 0;
        c->bytes[r] = 0;
        if (q[r] > 0 || resident[r] > 0)
            c->rank[m++] = (int32_t)r;
    }
    for (int32_t i = 0; i < m; i++) {
        size_t a = (size_t)c->rank[i];
        double *row = c->ms + (size_t)i * c->n, sum = 0;

        for (int32_t j = 0; j < m; j++) {
            size_t b = (size_t)c->rank[j];

            row[j] = q[a] > 0 ? pair_ms(c, a, b, q[a], q[b], resident[b]) : 0;
            sum += row[j];
        }
        if (sum >= HUGE_MS)
            return -1;
        if (sum >= limit_ms * (1 + 1e-9)) /* for another order of adding */
            return -2;
    }
    for (int32_t j = 0; j < m; j++) {
        int32_t h = m - 1, r = c->rank[j];

        while (h > 0 && !(c->ms[(size_t)((j + h) % m) * c->n + (size_t)j] > 0))
            h--;
        c->hops[j] = h;
        c->send_ms[j] = c->p.alpha_ms + c->p.token_ms * (double)(resident[r] + q[r]);
    }
    return m;
}

/* What ranks hold, into c->bytes; by how much the worst is above its cap (0: none), which
 * is c->last then. */
static double hold(struct chunks *c, int32_t m, const int64_t *resident, const int64_t *q)
{
    const struct problem *p = &c->p;
    double most = 0;

    for (int32_t i = 0; i < m; i++) {
        size_t r = (size_t)c->rank[i];
        const hcp_rank *spec = &p->ring->ranks[r].spec;
        int64_t held = resident[r] + q[r], largest = 0, over = 0;

        if (spec->max_tokens > 0 && held > spec->max_tokens)
            over = held - spec->max_tokens;
        for (int32_t k = 1; k < m && (p->memory || c->reporting); k++) {
            int32_t j = i >= k ? i - k : i - k + m;
            int64_t block = resident[c->rank[j]] + q[c->rank[j]];

            if (k <= c->hops[j] && block > largest)
                largest = block;
        }
        c->bytes[r] = memory_plus(
            memory_plus(memory_times(held, memory_times(p->layers, p->kv_bytes)),
                        memory_times(q[r], p->activation_bytes)),
            memory_times(memory_times(memory_buffers(p, m), largest), p->kv_bytes));
        if (spec->max_bytes > 0 && c->bytes[r] > memory_room(p, r))
            over += c->bytes[r] - memory_room(p, r);
        c->bytes[r] = memory_plus(c->bytes[r], spec->weight_bytes);
        if (over > 0 && (double)over > most) {
            most = (double)over;
            c->last = (int32_t)r;
        }
    }
    return most;
}

/* Step k >= 1 of the ring. */
static void step(struct chunks *c, int32_t m, int32_t k)
{
    int32_t buffers = c->p.buffers, last_buffer = c->buffer[m - 1];
    double last_arrival = c->arrival[m - 1];

    /* Downwards: what a rank has got is read by the rank after it, then replaced. */
    for (int32_t i = m - 1; i >= 0; i--) {
        int32_t j = i >= k ? i - k : i - k + m, from = i > 0 ? i - 1 : m - 1;
        int32_t held = i > 0 ? c->buffer[from] : last_buffer, mine = -1;
        double there = i > 0 ? c->arrival[from] : last_arrival, start, ms;

        if (k <= c->hops[j]) {
            start = larger(c->free_ms[i], there);
            if (buffers > 0) {
                mine = c->came[i];
                c->came[i] = mine + 1 < buffers ? mine + 1 : 0;
                start = larger(start, c->freed[(size_t)mine * c->n + (size_t)i]);
            }
            c->free_ms[i] = c->arrival[i] = start + c->send_ms[j];
            ms = c->ms[(size_t)i * c->n + (size_t)j];
            if (ms > 0)
                c->end[i] = larger(c->end[i], c->arrival[i]) + ms;
            c->busy[c->rank[i]] += ms;
            if (mine >= 0)
                c->freed[(size_t)mine * c->n + (size_t)i] =
                    larger(c->end[i], c->arrival[i]);
            /* With one buffer a block could never be sent on while the next one comes. */
            if (held >= 0 && buffers > 1) {
                double *freed = &c->freed[(size_t)held * c->n + (size_t)from];

                *freed = larger(*freed, c->arrival[i]);
            }
        }
        c->buffer[i] = mine;
    }
}

double chunks_eval(struct chunks *c, const int64_t *resident, const int64_t *q)
{
    return chunks_eval_below(c, resident, q, 2 * HUGE_MS);
}

double chunks_eval_below(struct chunks *c, const int64_t *resident, const int64_t *q,
                         double limit_ms)
{
    int32_t m = lay_out(c, resident, q, limit_ms);
    double over, ms = 0;

    c->last = 0;
    if (m < 0)
        return m == -1 || limit_ms > HUGE_MS ? HUGE_MS : limit_ms;
    over = hold(c, m, resident, q);
    if (over > 0)
        return OVER_MS * over;
    if (c->p.buffers > 0)
        memset(c->freed, 0, (size_t)c->p.buffers * c->n * sizeof *c->freed);
    for (int32_t i = 0; i < m; i++) {
        size_t r = (size_t)c->rank[i];
        double start = q[r] > 0 ? layer_before_ms(&c->p, r, q[r]) : 0;

        c->came[i] = 0;
        c->buffer[i] = -1;
        c->free_ms[i] = c->arrival[i] = start;
        c->busy[r] = c->ms[(size_t)i * c->n + (size_t)i];
        c->end[i] = start + c->busy[r];
    }
    for (int32_t k = 1; k < m; k++)
        step(c, m, k);
    for (int32_t i = 0; i < m; i++) {
        size_t r = (size_t)c->rank[i];

        if (q[r] == 0)
            continue;
        c->fin[r] = c->end[i] + layer_after_ms(&c->p, r, q[r]);
        c->busy[r] += layer_ms(&c->p, r, q[r]);
        if (c->fin[r] > ms) {
            ms = c->fin[r];
            c->last = (int32_t)r;
        }
    }
    return ms;
}
