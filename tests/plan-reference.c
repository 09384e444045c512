/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "tests/plan-reference.h"

static double full_ms(const hcp_model *model, int64_t q, int64_t kv)
{
    return q > 0 && kv > 0 ? hcp_model_block_ms(model, 0, q, kv, NULL) : 0;
}

/* Block of `mine` tokens against a rank with `theirs` tokens that sits before (1) or
 * after (0) in the order of positions. */
static double block_ms(const hcp_model *model, const hcp_question *q, int64_t mine,
                       int64_t theirs, int before, int *visible)
{
    double ms = 0;
    int64_t done = 0;

    *visible = 0;
    if (!q->causal) {
        *visible = 1;
        return full_ms(model, mine, theirs);
    }
    switch (q->layout) {
    case HCP_LAYOUT_CONTIGUOUS:
        *visible = before;
        return before ? full_ms(model, mine, theirs) : 0;
    case HCP_LAYOUT_ZIGZAG:
        *visible = before || mine / 2 > 0;
        return before ? full_ms(model, mine, (theirs + 1) / 2)
                      : full_ms(model, mine / 2, theirs);
    default:
        for (int32_t t = 0; t < q->stripes; t++) {
            int64_t rows = mine / q->stripes + (t < mine % q->stripes);
            int64_t keys = theirs / q->stripes + (t < theirs % q->stripes);
            int64_t seen = done + (before ? keys : 0);

            if (rows > 0 && seen > 0)
                *visible = 1;
            ms += full_ms(model, rows, seen);
            done += keys;
        }
        return ms;
    }
}

static double barrier(int m, double t[][REFERENCE_RANKS], int sent[][REFERENCE_RANKS],
                      const double *send)
{
    double now = 0;

    for (int k = 0; k < m; k++) {
        double longest = 0;

        for (int i = 0; i < m; i++) {
            longest = fmax(longest, t[i][k]);
            if (sent[i][k]) /* block k of rank i goes on to i + 1 */
                longest = fmax(longest, send[(i - k + m) % m]);
        }
        now += longest;
    }
    return now;
}

double reference_makespan(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *q, const int64_t *tokens)
{
    static double t[REFERENCE_RANKS][REFERENCE_RANKS],
        fin[REFERENCE_RANKS][REFERENCE_RANKS], ready[REFERENCE_RANKS][REFERENCE_RANKS];
    static int works[REFERENCE_RANKS][REFERENCE_RANKS],
        sent[REFERENCE_RANKS][REFERENCE_RANKS];
    double send[REFERENCE_RANKS], link_free[REFERENCE_RANKS] = {0}, makespan = 0;
    int rank[REFERENCE_RANKS], m = 0;

    for (size_t r = 0; r < ring->n; r++)
        if (tokens[r] > 0)
            rank[m++] = (int)r;
    for (int i = 0; i < m; i++) {
        double bytes = (double)tokens[rank[i]] * ring->token_bytes;

        send[i] = q->link_alpha_us / 1e3 +
                  (q->link_gbps > 0 ? bytes / (q->link_gbps * 1e6) : 0);
        for (int k = 0; k < m; k++) {
            int j = (i - k + m) % m;
            const hcp_model *model = ring->ranks[rank[i]].model[kind];

            if (k == 0) {
                works[i][k] = 1;
                t[i][k] = hcp_model_block_ms(model, q->causal, tokens[rank[i]],
                                             tokens[rank[i]], NULL);
            } else {
                t[i][k] = block_ms(model, q, tokens[rank[i]], tokens[rank[j]], j < i,
                                   &works[i][k]);
            }
        }
    }
    /* Block k of rank i travels on if a rank behind i still has work on it. */
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < m; k++) {
            sent[i][k] = 0;
            for (int h = 1; k + h < m; h++)
                sent[i][k] |= works[(i + h) % m][k + h];
        }
    }
    if (q->barrier)
        return barrier(m, t, sent, send);
    for (int k = 0; k < m; k++) {
        for (int i = 0; i < m; i++) {
            int from = (i - 1 + m) % m;
            double before = k == 0 ? 0 : fin[i][k - 1];

            if (k == 0) {
                ready[i][k] = 0;
            } else if (sent[from][k - 1]) {
                double start = fmax(ready[from][k - 1], link_free[from]);

                if (q->buffers > 0 && k - q->buffers >= 0)
                    start = fmax(start, fin[i][k - q->buffers]);
                ready[i][k] = link_free[from] = start + send[(i - k + m) % m];
            } else {
                fin[i][k] = before;
                continue;
            }
            fin[i][k] = fmax(ready[i][k], before) + t[i][k];
        }
    }
    for (int i = 0; i < m; i++)
        makespan = fmax(makespan, fin[i][m - 1]);
    return makespan;
}

struct best {
    const hcp_ring *ring;
    const hcp_question *q;
    int64_t tile, tokens[3], *out;
    double ms;
};

static void consider(struct best *b)
{
    double ms;

    for (size_t r = 0; r < b->ring->n; r++) {
        int64_t cap = b->ring->ranks[r].spec.max_tokens;

        if (cap > 0 && b->tokens[r] > cap)
            return;
    }
    ms = reference_makespan(b->ring, HCP_MODEL_BEST, b->q, b->tokens);
    if (b->ms < 0 || ms < b->ms) {
        b->ms = ms;
        memcpy(b->out, b->tokens, b->ring->n * sizeof *b->out);
    }
}

double reference_best(const hcp_ring *ring, const hcp_question *q, int64_t tile,
                      int64_t *tokens)
{
    struct best b = {.ring = ring, .q = q, .tile = tile, .out = tokens, .ms = -1};
    int64_t tiles = q->seq_len / tile, rest = q->seq_len % tile;
    int n = (int)ring->n;

    for (int holder = 0; holder < (rest ? n : 1); holder++) {
        for (int64_t c0 = 0; c0 <= tiles; c0++) {
            for (int64_t c1 = 0; c1 <= (n > 1 ? tiles - c0 : 0); c1++) {
                int64_t c2 = tiles - c0 - c1;

                if ((n == 1 && c0 != tiles) || (n == 2 && c2 != 0))
                    continue;
                b.tokens[0] = c0 * tile;
                b.tokens[1] = c1 * tile;
                b.tokens[2] = n == 3 ? c2 * tile : 0;
                b.tokens[holder] += rest;
                consider(&b);
            }
        }
    }
    return b.ms;
}
