/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/chunks-reference.h"

enum { RANKS = REFERENCE_CHUNK_RANKS, RUNS = 64 };

/* Where a rank's new tokens are in the chunk, by place in its block. */
struct held {
    int runs;
    int64_t at[RUNS], len[RUNS];
};

struct step {
    const hcp_ring *ring;
    const hcp_chunks *q;
    hcp_layout layout;
    const int64_t *resident, *tokens;
    int m, rank[RANKS];      /* in the ring */
    struct held held[RANKS]; /* by place in it */
    double ms[RANKS][RANKS]; /* of rank i on the block of rank j */
};

static void add_run(struct held *h, int64_t *at, int64_t len)
{
    if (len > 0) {
        h->at[h->runs] = *at;
        h->len[h->runs++] = len;
    }
    *at += len;
}

/* Places, one rank after the other; zigzag comes back from the other end. */
static void lay_out(struct step *s)
{
    int64_t at = 0;

    s->m = 0;
    for (size_t r = 0; r < s->ring->n; r++)
        if (s->tokens[r] > 0 || s->resident[r] > 0)
            s->rank[s->m++] = (int)r;
    memset(s->held, 0, sizeof s->held);
    if (s->layout == HCP_LAYOUT_STRIPED) {
        for (int t = 0; t < s->q->stripes; t++)
            for (int i = 0; i < s->m; i++) {
                int64_t n = s->tokens[s->rank[i]];
                int64_t more = t < (int)(n % s->q->stripes);

                add_run(&s->held[i], &at, n / s->q->stripes + more);
            }
        return;
    }
    for (int i = 0; i < s->m; i++) {
        int64_t n = s->tokens[s->rank[i]];

        add_run(&s->held[i], &at, s->layout == HCP_LAYOUT_ZIGZAG ? (n + 1) / 2 : n);
    }
    for (int i = s->m - 1; i >= 0 && s->layout == HCP_LAYOUT_ZIGZAG; i--)
        add_run(&s->held[i], &at, s->tokens[s->rank[i]] / 2);
}

static double call_ms(const struct step *s, int i, int64_t rows, int64_t keys)
{
    const hcp_model *model = s->ring->ranks[s->rank[i]].model[HCP_MODEL_BEST];

    if (rows == 0 || keys == 0)
        return 0;
    return hcp_model_block_ms(model, 0, rows, keys, NULL) +
           hcp_model_finish_ms(model, 1, rows);
}

/* New keys of block j that a run of rank i sees. */
static int64_t seen(const struct step *s, int i, int run, int j)
{
    int64_t keys = 0;

    for (int k = 0; k < s->held[j].runs; k++)
        if (s->held[j].at[k] < s->held[i].at[run])
            keys += s->held[j].len[k];
    return keys;
}

static double block_ms(const struct step *s, int i, int j)
{
    const hcp_model *model = s->ring->ranks[s->rank[i]].model[HCP_MODEL_BEST];
    int64_t rows = s->tokens[s->rank[i]], all = INT64_MAX;
    double ms = 0;

    if (rows == 0)
        return 0;
    if (i == j)
        return hcp_model_block_ms(model, 1, rows, rows, NULL) +
               hcp_model_finish_ms(model, 0, rows) +
               call_ms(s, i, rows, s->resident[s->rank[i]]);
    for (int k = 0; k < s->held[i].runs; k++)
        if (seen(s, i, k, j) < all)
            all = seen(s, i, k, j);
    /* A back half of no tokens sees what one of some would: nothing more of those before.
     */
    if (s->layout == HCP_LAYOUT_STRIPED)
        all = 0;
    ms = call_ms(s, i, rows, s->resident[s->rank[j]] + all);
    for (int k = 0; k < s->held[i].runs; k++)
        ms += call_ms(s, i, s->held[i].len[k], seen(s, i, k, j) - all);
    return ms;
}

/* Does block j get to the rank k places on? */
static int comes(const struct step *s, int j, int k)
{
    for (; k < s->m; k++)
        if (s->ms[(j + k) % s->m][j] > 0)
            return 1;
    return 0;
}

static double linear_ms(const struct step *s, int i, int after)
{
    const hcp_rank *spec = &s->ring->ranks[s->rank[i]].spec;
    double n = (double)s->tokens[s->rank[i]];
    double us = after ? spec->linear_after_us * n + spec->linear_after_fixed_us
                      : spec->linear_before_us * n + spec->linear_before_fixed_us;

    if (n == 0)
        return 0;
    return us / 1e3 * (spec->time_scale > 0 ? spec->time_scale : 1);
}

static int64_t block_len(const struct step *s, int i)
{
    return s->resident[s->rank[i]] + s->tokens[s->rank[i]];
}

/* Block number `number` (1 is the first) that comes to rank i: its step. */
static int step_of(const struct step *s, int i, int number)
{
    for (int k = 1; k < s->m; k++)
        if (comes(s, (i - k + s->m) % s->m, k) && --number == 0)
            return k;
    return -1;
}

static double ring_ms(const struct step *s, double *fin)
{
    static double there[RANKS][RANKS], done[RANKS][RANKS];
    double token =
        s->q->link_gbps > 0 ? s->ring->token_bytes / (s->q->link_gbps * 1e6) : 0;
    double most = 0;
    int m = s->m;

    for (int i = 0; i < m; i++) {
        there[i][0] = linear_ms(s, i, 0);
        done[i][0] = there[i][0] + s->ms[i][i];
    }
    for (int k = 1; k < m; k++)
        for (int i = 0; i < m; i++) {
            int j = (i - k + m) % m, number = 1, before = 0;
            double start;

            there[i][k] = NAN;
            done[i][k] = done[i][k - 1];
            if (!comes(s, j, k))
                continue;
            for (int e = 1; e < k; e++)
                if (comes(s, (i - e + m) % m, e)) {
                    number++;
                    before = e;
                }
            start = fmax(there[(i - 1 + m) % m][k - 1], there[i][before]);
            if (s->q->buffers > 0 && number > s->q->buffers) {
                int old = step_of(s, i, number - s->q->buffers);

                start = fmax(start, fmax(done[i][old], there[i][old]));
                if (s->q->buffers > 1 && comes(s, (i - old + m) % m, old + 1))
                    start = fmax(start, there[(i + 1) % m][old + 1]);
            }
            there[i][k] =
                start + (s->q->link_alpha_us / 1e3 + token * (double)block_len(s, j));
            if (s->ms[i][j] > 0)
                done[i][k] = fmax(done[i][k - 1], there[i][k]) + s->ms[i][j];
        }
    for (int i = 0; i < m; i++) {
        double end = done[i][m - 1] + linear_ms(s, i, 1);

        if (s->tokens[s->rank[i]] == 0)
            continue;
        if (fin)
            fin[s->rank[i]] = end;
        most = fmax(most, end);
    }
    return most;
}

/* Whether all ranks can hold what they must. */
static int holds(const struct step *s, int64_t *bytes)
{
    int m = s->m, ok = 1;

    for (int i = 0; i < m; i++) {
        size_t r = (size_t)s->rank[i];
        const hcp_rank *spec = &s->ring->ranks[r].spec;
        int64_t buffers = s->q->buffers, largest = 0, sum;
        int64_t token = (int64_t)s->ring->token_bytes;

        if (buffers == 0 || buffers > m - 1)
            buffers = m - 1;
        for (int j = 0; j < m; j++)
            if (j != i && comes(s, j, (i - j + m) % m) && block_len(s, j) > largest)
                largest = block_len(s, j);
        sum = spec->weight_bytes + block_len(s, i) * token * s->q->layers +
              s->tokens[r] * s->q->activation_bytes + buffers * largest * token;
        if (bytes)
            bytes[r] = sum;
        ok &= spec->max_tokens == 0 || block_len(s, i) <= spec->max_tokens;
        ok &= spec->max_bytes == 0 || sum <= spec->max_bytes;
    }
    return ok;
}

double reference_chunk(const hcp_ring *ring, const hcp_chunks *question,
                       hcp_layout layout, const int64_t *resident, const int64_t *tokens,
                       double *fin, int64_t *bytes)
{
    static struct step s;

    s.ring = ring;
    s.q = question;
    s.layout = layout;
    s.resident = resident;
    s.tokens = tokens;
    assert(ring->n <= RANKS && question->stripes <= RUNS);
    for (size_t r = 0; fin && r < ring->n; r++)
        fin[r] = 0;
    for (size_t r = 0; bytes && r < ring->n; r++)
        bytes[r] = 0;
    lay_out(&s);
    for (int i = 0; i < s.m; i++)
        for (int j = 0; j < s.m; j++)
            s.ms[i][j] = block_ms(&s, i, j);
    if (!holds(&s, bytes))
        return INFINITY;
    return ring_ms(&s, fin);
}

double reference_chunk_step(const hcp_ring *ring, const hcp_chunks *question,
                            const int64_t *resident, const int64_t *tokens)
{
    double ms;

    if (question->layout)
        ms = reference_chunk(ring, question, question->layout, resident, tokens, NULL,
                             NULL);
    else
        ms = fmin(reference_chunk(ring, question, HCP_LAYOUT_CONTIGUOUS, resident, tokens,
                                  NULL, NULL),
                  reference_chunk(ring, question, HCP_LAYOUT_ZIGZAG, resident, tokens,
                                  NULL, NULL));
    return question->step_fixed_ms + question->layers * ms;
}

struct all {
    const hcp_ring *ring;
    const hcp_chunks *q;
    int64_t tile, tiles;
    double *known; /* by tiles of each rank; -1 not yet */
};

/* Calls visit with every split of a chunk: whole tiles, and what is left over on any rank
 * that has some, or none. */
static void each_split(const hcp_ring *ring, int64_t tile, int64_t chunk, size_t r,
                       int64_t left, int64_t *tokens,
                       void (*visit)(void *ctx, const int64_t *tokens), void *ctx)
{
    if (r + 1 < ring->n) {
        for (int64_t t = 0; t <= left; t += tile) {
            tokens[r] = t;
            each_split(ring, tile, chunk, r + 1, left - t, tokens, visit, ctx);
        }
        return;
    }
    tokens[r] = left;
    if (chunk % tile == 0) {
        visit(ctx, tokens);
        return;
    }
    for (size_t i = 0; i < ring->n; i++) {
        tokens[i] += chunk % tile;
        visit(ctx, tokens);
        tokens[i] -= chunk % tile;
    }
}

struct splits {
    const hcp_ring *ring;
    const hcp_chunks *q;
    const int64_t *resident;
    double best;
};

static void look_at(void *ctx, const int64_t *tokens)
{
    struct splits *s = ctx;

    s->best = fmin(s->best, reference_chunk_step(s->ring, s->q, s->resident, tokens));
}

double reference_chunk_split(const hcp_ring *ring, const hcp_chunks *question,
                             int64_t tile, const int64_t *resident, int64_t chunk)
{
    struct splits s = {ring, question, resident, INFINITY};
    int64_t tokens[RANKS];

    each_split(ring, tile, chunk, 0, chunk / tile * tile, tokens, look_at, &s);
    return s.best;
}

static double from_here(struct all *a, const int64_t *resident);

struct step_on {
    struct all *a;
    const int64_t *resident;
    double best;
};

static void go_on(void *ctx, const int64_t *tokens)
{
    struct step_on *s = ctx;
    int64_t then[RANKS];
    double ms = reference_chunk_step(s->a->ring, s->a->q, s->resident, tokens);

    if (!isfinite(ms) || (s->a->q->step_budget_ms > 0 && ms > s->a->q->step_budget_ms))
        return;
    for (size_t r = 0; r < s->a->ring->n; r++)
        then[r] = s->resident[r] + tokens[r];
    s->best = fmin(s->best, ms + from_here(s->a, then));
}

/* Least time from here on. */
static double from_here(struct all *a, const int64_t *resident)
{
    int64_t sum = 0, left, most, tokens[RANKS];
    struct step_on s = {a, resident, INFINITY};
    size_t place = 0;

    for (size_t r = 0; r < a->ring->n; r++) {
        place = place * (size_t)(a->tiles + 1) + (size_t)(resident[r] / a->tile);
        sum += resident[r];
    }
    left = a->q->seq_len - sum;
    if (left == 0)
        return 0;
    if (a->known[place] >= 0)
        return a->known[place];
    most = a->q->chunk_len > 0 && a->q->chunk_len < left ? a->q->chunk_len : left;
    for (int64_t chunk = most;; chunk = (chunk - 1) / a->tile * a->tile) {
        if (chunk <= 0)
            break;
        each_split(a->ring, a->tile, chunk, 0, chunk / a->tile * a->tile, tokens, go_on,
                   &s);
        if (a->q->step_budget_ms == 0)
            break;
    }
    return a->known[place] = s.best;
}

double reference_chunks_best(const hcp_ring *ring, const hcp_chunks *question,
                             int64_t tile)
{
    struct all a = {ring, question, tile, (question->seq_len + tile - 1) / tile, NULL};
    int64_t resident[RANKS] = {0};
    size_t places = 1;
    double best;

    for (size_t r = 0; r < ring->n; r++)
        places *= (size_t)(a.tiles + 1);
    a.known = malloc(places * sizeof *a.known);
    assert(a.known);
    for (size_t i = 0; i < places; i++)
        a.known[i] = -1;
    best = from_here(&a, resident);
    free(a.known);
    return best;
}
