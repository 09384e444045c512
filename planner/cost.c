/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "kernels/geometry.h"
#include "planner/plan.h"

/* Stripe t of a rank with len tokens: the first len % stripes stripes hold one more.
 * (Rounding t * len / stripes instead would let a stripe shrink while the share grows,
 * and the exact solver's lower bounds need monotone blocks.) */
static int64_t stripe_len(int64_t len, int32_t stripes, int32_t t)
{
    return len / stripes + (t < len % stripes);
}

/* Tokens of that rank in the stripes before t. */
static int64_t stripe_start(int64_t len, int32_t stripes, int32_t t)
{
    int64_t more = len % stripes;

    return len / stripes * t + (t < more ? t : more);
}

static void weaken(uint8_t *source, hcp_model_source by)
{
    if (*source < (uint8_t)by)
        *source = (uint8_t)by;
}

double cost_own(const struct problem *p, const hcp_model *model, int64_t len,
                uint8_t *source)
{
    hcp_model_source from;
    double ms = hcp_model_block_ms(model, p->causal, len, len, source ? &from : NULL);

    if (source)
        weaken(source, from);
    return p->kernel_only ? ms : ms + hcp_model_finish_ms(model, 0, len);
}

double cost_call(const struct problem *p, const hcp_model *model, int64_t q_len,
                 int64_t kv_len, uint8_t *source)
{
    hcp_model_source from;
    double ms = hcp_model_block_ms(model, 0, q_len, kv_len, source ? &from : NULL);

    if (source)
        weaken(source, from);
    return p->kernel_only ? ms : ms + hcp_model_finish_ms(model, 1, q_len);
}

int32_t cost_cuts(const struct problem *p, int64_t len, int64_t ends[MAX_SUB_BLOCKS])
{
    int64_t tiles = len / p->tile + (len % p->tile != 0);
    int32_t n = tiles < p->sub_blocks ? (int32_t)tiles : p->sub_blocks; /* none empty */

    for (int32_t i = 0; i < n; i++)
        ends[i] = hcp_piece_cut(len, p->tile, n, i + 1);
    return n;
}

double cost_send(const struct problem *p, int64_t len)
{
    int64_t tiles, n;

    if (p->sub_blocks == 1) /* without a division, which takes longer than the rest */
        return (len > 0 ? p->alpha_ms : 0) + p->token_ms * (double)len;
    tiles = len / p->tile + (len % p->tile != 0);
    n = tiles < p->sub_blocks ? tiles : p->sub_blocks;
    return (double)n * p->alpha_ms + p->token_ms * (double)len;
}

/* The one call of a block whose visible part is a rectangle (not striped under a causal
 * mask); 0 if nothing is visible. */
static int rectangle(const struct problem *p, int64_t own_len, int64_t kv_len,
                     int earlier, int64_t *q, int64_t *kv)
{
    *q = own_len;
    *kv = kv_len;
    if (p->causal && p->layout == HCP_LAYOUT_ZIGZAG) {
        /* A later rank's folds lie between ours: our back fold sees both of them, our
         * front fold neither. An earlier rank's front fold lies before all of ours. */
        if (earlier)
            *kv = kv_len - kv_len / 2;
        else
            *q = own_len / 2;
    } else if (p->causal && !earlier) {
        *q = 0;
    }
    return *q > 0 && *kv > 0;
}

static int is_striped(const struct problem *p)
{
    return p->causal && p->layout == HCP_LAYOUT_STRIPED;
}

void cost_piece_calls(const struct problem *p, int64_t own_len, int64_t kv_len,
                      int earlier, int64_t from, int64_t to,
                      void (*visit)(void *ctx, int64_t q_len, int64_t kv_len), void *ctx)
{
    int64_t q, kv, rows = 0, keys = 0; /* a run of rows that see equally much */

    if (!is_striped(p)) {
        if (rectangle(p, own_len, kv_len, earlier, &q, &kv) && kv > from)
            visit(ctx, q, (kv < to ? kv : to) - from);
        return;
    }
    for (int32_t t = 0; t < p->stripes; t++) {
        kv = stripe_start(kv_len, p->stripes, t + (earlier ? 1 : 0));
        kv = (kv < to ? kv : to) - from;
        if (kv != keys && rows > 0 && keys > 0)
            visit(ctx, rows, keys);
        rows = (kv == keys ? rows : 0) + stripe_len(own_len, p->stripes, t);
        keys = kv;
    }
    if (rows > 0 && keys > 0)
        visit(ctx, rows, keys);
}

void cost_each_call(const struct problem *p, int64_t own_len, int64_t kv_len, int earlier,
                    void (*visit)(void *ctx, int64_t q_len, int64_t kv_len), void *ctx)
{
    int64_t ends[MAX_SUB_BLOCKS], from = 0, q, kv;
    int32_t n;

    if (p->sub_blocks > 1) {
        n = cost_cuts(p, kv_len, ends);
        for (int32_t i = 0; i < n; from = ends[i++])
            cost_piece_calls(p, own_len, kv_len, earlier, from, ends[i], visit, ctx);
    } else if (!is_striped(p)) {
        if (rectangle(p, own_len, kv_len, earlier, &q, &kv))
            visit(ctx, q, kv);
    } else {
        /* A call for each stripe, though those of fewer keys than stripes could share
         * one: then no block gets faster when a length grows. */
        for (int32_t t = 0; t < p->stripes; t++) {
            q = stripe_len(own_len, p->stripes, t);
            kv = stripe_start(kv_len, p->stripes, t + (earlier ? 1 : 0));
            if (q > 0 && kv > 0)
                visit(ctx, q, kv);
        }
    }
}

struct call_sum {
    const struct problem *p;
    const hcp_model *model;
    double ms;
    uint8_t *source;
};

static void add_call(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct call_sum *sum = ctx;

    sum->ms += cost_call(sum->p, sum->model, q_len, kv_len, sum->source);
}

double cost_remote(const struct problem *p, const hcp_model *model, int64_t own_len,
                   int64_t kv_len, int earlier, uint8_t *source)
{
    struct call_sum sum = {p, model, 0, source};
    int64_t q, kv;

    if (p->sub_blocks == 1 && !is_striped(p)) /* the common case, without detours */
        return rectangle(p, own_len, kv_len, earlier, &q, &kv)
                   ? cost_call(p, model, q, kv, source)
                   : 0;
    cost_each_call(p, own_len, kv_len, earlier, add_call, &sum);
    return sum.ms;
}

void cost_remotes(const struct problem *p, const hcp_model *model, int64_t own_len,
                  int32_t n, const int64_t *kv_len, int earlier, int64_t *keys,
                  double *ms)
{
    int64_t q = own_len;
    double call[MEMO_CLASSES];

    if (p->sub_blocks > 1) {
        for (int32_t i = 0; i < n; i++)
            ms[i] = cost_remote(p, model, own_len, kv_len[i], earlier, NULL);
        return;
    }
    if (!is_striped(p)) {
        if (p->causal && p->layout == HCP_LAYOUT_ZIGZAG) { /* as rectangle() */
            if (earlier)
                for (int32_t i = 0; i < n; i++)
                    keys[i] = kv_len[i] - kv_len[i] / 2;
            else
                q = own_len / 2;
        } else if (p->causal && !earlier) {
            q = 0;
        }
        hcp_model_calls_ms(model, q, n,
                           p->causal && p->layout == HCP_LAYOUT_ZIGZAG && earlier
                               ? keys
                               : kv_len,
                           !p->kernel_only, ms);
        return;
    }
    memset(ms, 0, (size_t)n * sizeof *ms);
    for (int32_t t = 0; t < p->stripes; t++) { /* as cost_each_call() */
        q = stripe_len(own_len, p->stripes, t);
        if (q == 0)
            break;
        for (int32_t i = 0; i < n; i++)
            keys[i] = stripe_start(kv_len[i], p->stripes, t + (earlier ? 1 : 0));
        hcp_model_calls_ms(model, q, n, keys, !p->kernel_only, call);
        for (int32_t i = 0; i < n; i++)
            ms[i] += call[i];
    }
}

void cost_areas(const struct problem *p, const int64_t *tokens, int64_t *areas)
{
    int contiguous = p->layout == HCP_LAYOUT_CONTIGUOUS;
    int zigzag = p->layout == HCP_LAYOUT_ZIGZAG;
    int64_t before = 0, front_before = 0, seen;

    if (!p->causal) {
        for (size_t r = 0; r < p->n; r++)
            areas[r] = tokens[r] * p->seq_len;
        return;
    }
    for (size_t r = 0; r < p->n; r++) {
        int64_t len = tokens[r];

        areas[r] = len * (len + 1) / 2; /* of up to 2^30 tokens */
        if (contiguous)
            areas[r] += len * before;
        else if (zigzag)
            areas[r] += len * front_before + len / 2 * (p->seq_len - before - len);
        front_before += len - len / 2;
        before += len;
    }
    if (p->layout != HCP_LAYOUT_STRIPED)
        return;
    seen = 0; /* tokens of all ranks in earlier stripes */
    for (int32_t t = 0; t < p->stripes; t++) {
        int64_t len = -1, rows = 0, start = 0; /* of the rank before */

        for (size_t r = 0; r < p->n; r++) {
            if (tokens[r] != len) {
                len = tokens[r];
                rows = stripe_len(len, p->stripes, t);
                start = stripe_start(len, p->stripes, t);
            }
            areas[r] += rows * (seen - start);
            seen += rows;
        }
    }
}

int cost_sees_later(const struct problem *p, int64_t len)
{
    if (!p->causal)
        return 1;
    if (p->layout == HCP_LAYOUT_ZIGZAG)
        return len >= 2;
    return p->layout == HCP_LAYOUT_STRIPED && len >= 2 && p->stripes >= 2;
}

void cost_hops(const struct problem *p, int32_t m, const int64_t *len, int32_t *hops)
{
    int32_t last = -1; /* last rank before j that has work on later ranks' KV */

    for (int32_t j = 0; j < m; j++) {
        hops[j] = last >= 0 ? m - j + last : m - 1 - j;
        if (cost_sees_later(p, len[j]))
            last = j;
    }
}

size_t cost_segments(hcp_layout layout, int32_t stripes, size_t n, const int64_t *tokens,
                     int64_t seq_len, hcp_segment *out, int64_t *counts)
{
    int64_t front = 0, back = seq_len;
    size_t total = 0, first;

    for (size_t r = 0; r < n; r++) {
        int64_t len = tokens[r], pieces = 1;

        if (layout == HCP_LAYOUT_ZIGZAG)
            pieces = 2;
        else if (layout == HCP_LAYOUT_STRIPED)
            pieces = stripes;
        counts[r] = len < pieces ? len : pieces; /* the first ones are never empty */
        total += (size_t)counts[r];
    }
    if (!out)
        return total;
    if (layout == HCP_LAYOUT_STRIPED) {
        for (int32_t t = 0; t < stripes; t++) {
            first = 0;
            for (size_t r = 0; r < n; r++) {
                int64_t length = stripe_len(tokens[r], stripes, t);

                if (length > 0)
                    out[first + (size_t)t] = (hcp_segment){front, length};
                front += length;
                first += (size_t)counts[r];
            }
        }
        return total;
    }
    first = 0;
    for (size_t r = 0; r < n; r++) {
        int64_t half = layout == HCP_LAYOUT_ZIGZAG ? tokens[r] / 2 : 0;

        back -= half;
        if (tokens[r] > 0)
            out[first] = (hcp_segment){front, tokens[r] - half};
        if (half > 0)
            out[first + 1] = (hcp_segment){back, half};
        front += tokens[r] - half;
        first += (size_t)counts[r];
    }
    return total;
}
