/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/decode-reference.h"

enum { NODES = 10 }; /* 192 .. 96K, each in a tile of its own */

static void die(const char *what)
{
    fprintf(stderr, "decode-reference: %s\n", what);
    abort();
}

/* ---- models ---- */

static hcp_model *make(const struct decode_kind *kind, size_t number, const hcp_shape *of)
{
    double shape[7] = {1, (double)kind->tile, 0, 0, 1, 0, 1};
    double error[3] = {1e300, kind->error, 2 * kind->error};
    double hull[6] = {1, 1, 64, 65536, 0, 0}, q[1] = {1}, kv[NODES], ms[NODES];
    double known[NODES], finish[4] = {kind->finish_ms, 0, kind->finish_ms, 0};
    struct hcp_named_array arrays[] = {{"shape", 7, shape},   {"hull", 6, hull},
                                       {"error", 3, error},   {"q", 1, q},
                                       {"kv", NODES, kv},     {"ms", NODES, ms},
                                       {"finish", 4, finish}, {"known", NODES, known}};
    struct hcp_model_row row = {.format = 1, .holdout_cells = 5};
    uint64_t seed = kind->bumps;
    struct hcp_err err;
    hcp_model *model;

    for (int i = 0; i < NODES; i++) {
        kv[i] = 192 << i;
        ms[i] = kind->fixed_ms + kind->ms_per_token * kv[i];
        if (kind->bumps)
            ms[i] *= fixture_real(&seed, 1, 1.4);
        if (i > 0 && ms[i] < ms[i - 1] * 1.0001)
            ms[i] = ms[i - 1] * 1.0001;
        known[i] = 1;
    }
    strcpy(row.key.device, "nvidia-h200");
    snprintf(row.key.limit, sizeof row.key.limit, "mps:%zu", number + 1);
    strcpy(row.key.provider, "cuda-decode");
    strcpy(row.key.dtype, "bf16");
    strcpy(row.key.phase, "decode");
    row.key.batch = of->batch;
    row.key.heads = of->heads;
    row.key.kv_heads = of->kv_heads;
    row.key.head_dim = of->head_dim;
    strcpy(row.kind, "lut");
    if (hcp_model_create(&row, arrays, sizeof arrays / sizeof *arrays, &model, &err))
        die(err.text);
    return model;
}

hcp_models *decode_models(const struct decode_kind *kinds, size_t n,
                          const hcp_shape *shape)
{
    hcp_models *models = calloc(1, sizeof *models);

    if (!models || !(models->stored = calloc(n, sizeof *models->stored)))
        die("out of memory");
    strcpy(models->path, "test.db");
    for (size_t i = 0; i < n; i++) {
        models->stored[i].model = make(&kinds[i], i, shape);
        models->stored[i].hash = i + 1;
    }
    models->n_stored = n;
    return models;
}

hcp_models *both_models(const struct fixture *prefill, const struct decode_kind *decode,
                        size_t n, const hcp_shape *shape)
{
    hcp_models *a = fixture_models(prefill, n), *b = decode_models(decode, n, shape);

    a->stored = realloc(a->stored, (a->n_stored + b->n_stored) * sizeof *a->stored);
    if (!a->stored)
        die("out of memory");
    memcpy(a->stored + a->n_stored, b->stored, b->n_stored * sizeof *b->stored);
    a->n_stored += b->n_stored;
    b->n_stored = 0;
    hcp_models_free(b);
    return a;
}

hcp_ring *decode_ring(const hcp_models *models, const hcp_shape *shape,
                      const int64_t *max_tokens, const int64_t *max_bytes,
                      const int64_t *weight_bytes, size_t n)
{
    hcp_rank *ranks = calloc(n, sizeof *ranks);
    hcp_ring *ring = NULL;
    char text[512] = "";

    if (!ranks)
        die("out of memory");
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, "nvidia-h200");
        snprintf(ranks[r].limit, sizeof ranks[r].limit, "mps:%zu", r + 1);
        ranks[r].max_tokens = max_tokens ? max_tokens[r] : 0;
        ranks[r].max_bytes = max_bytes ? max_bytes[r] : 0;
        ranks[r].weight_bytes = weight_bytes ? weight_bytes[r] : 0;
    }
    if (hcp_ring_create(models, shape, ranks, n, NULL, text, sizeof text, &ring))
        die(text);
    free(ranks);
    return ring;
}

/* ---- schedules by the clocks of the ranks ---- */

struct clocks {
    int m;
    double at[REFERENCE_MOST], next[REFERENCE_MOST];
    double alpha_ms, ms_per_byte;
};

/* a sends to b what it has now: b goes on when it is there, and when what it sends itself
 * has left. */
static void message(struct clocks *c, int a, int b, double bytes)
{
    double end = c->at[a] + c->alpha_ms + bytes * c->ms_per_byte;

    c->next[a] = fmax(c->next[a], end);
    c->next[b] = fmax(c->next[b], end);
}

static void begin_round(struct clocks *c)
{
    for (int i = 0; i < c->m; i++) /* rounds are in step */
        c->at[i] = fmax(c->at[i], c->at[0]);
    memcpy(c->next, c->at, sizeof c->at);
}

static void end_round(struct clocks *c)
{
    double last = 0;

    for (int i = 0; i < c->m; i++)
        last = fmax(last, c->next[i]);
    for (int i = 0; i < c->m; i++)
        c->at[i] = last;
}

double reference_merge_ms(hcp_merge merge, int m, const hcp_shape *shape,
                          const hcp_question *q)
{
    struct clocks c = {.m = m, .alpha_ms = q->link_alpha_us / 1000};
    int rows = shape->batch * shape->heads, twos = 1;
    double row = 4.0 * (shape->head_dim + 1), all = rows * row;

    c.ms_per_byte = q->link_gbps > 0 ? 1e-6 / q->link_gbps : 0;
    if (m == 1)
        return 0;
    if (merge == HCP_MERGE_GATHER)
        return c.alpha_ms + (m - 1) * all * c.ms_per_byte;
    if (merge == HCP_MERGE_RING) {
        int part = rows / m + (rows % m != 0);

        for (int round = 0; round < 2 * (m - 1); round++) {
            begin_round(&c);
            for (int i = 0; i < m; i++)
                message(&c, i, (i + 1) % m, part * row);
            end_round(&c);
        }
        return c.at[0];
    }
    while (twos * 2 <= m)
        twos *= 2;
    if (m > twos) {
        begin_round(&c);
        for (int i = twos; i < m; i++)
            message(&c, i, i - twos, all);
        end_round(&c);
    }
    for (int far = 1; far < twos; far *= 2) {
        begin_round(&c);
        for (int i = 0; i < twos; i++)
            message(&c, i, i / far % 2 ? i - far : i + far, all);
        end_round(&c);
    }
    if (m > twos) {
        begin_round(&c);
        for (int i = twos; i < m; i++)
            message(&c, i - twos, i, all);
        end_round(&c);
    }
    return c.at[0];
}

/* ---- splits ---- */

int64_t reference_decode_bytes(const hcp_shape *shape, const hcp_question *q,
                               hcp_merge merge, int m, int64_t weights, int64_t tokens)
{
    int64_t state = (int64_t)shape->batch * shape->heads * (shape->head_dim + 1) * 4;
    int64_t kv = (int64_t)shape->batch * shape->kv_heads * shape->head_dim * 2 * 2;
    int held = m == 1 ? 1 : merge == HCP_MERGE_GATHER ? m : 2;

    return weights + held * state + tokens * (q->layers * kv + q->activation_bytes);
}

double reference_decode_ms(const hcp_ring *ring, const hcp_question *q,
                           const int64_t *tokens, hcp_merge *merge)
{
    double longest = 0, best = -1;
    int m = 0;

    for (size_t r = 0; r < ring->n; r++) {
        const hcp_model *model = ring->ranks[r].model[HCP_MODEL_BEST];

        if (tokens[r] == 0)
            continue;
        m++;
        if (ring->ranks[r].spec.max_tokens > 0 &&
            tokens[r] > ring->ranks[r].spec.max_tokens)
            return -1;
        longest = fmax(longest, hcp_model_block_ms(model, 0, 1, tokens[r], NULL) +
                                    hcp_model_finish_ms(model, 0, 1));
    }
    for (int k = HCP_MERGE_RING; k <= HCP_MERGE_GATHER; k++) {
        double ms = longest + reference_merge_ms((hcp_merge)k, m, &ring->shape, q);
        int fits = q->merge == HCP_MERGE_AUTO || (int)q->merge == k;

        for (size_t r = 0; r < ring->n; r++) {
            const hcp_rank *spec = &ring->ranks[r].spec;

            fits &=
                tokens[r] == 0 || spec->max_bytes == 0 ||
                reference_decode_bytes(&ring->shape, q, (hcp_merge)k, m,
                                       spec->weight_bytes, tokens[r]) <= spec->max_bytes;
        }
        if (fits && (best < 0 || ms < best)) {
            best = ms;
            if (merge)
                *merge = m == 1 ? HCP_MERGE_AUTO : (hcp_merge)k;
        }
    }
    return best;
}

struct splits {
    const hcp_ring *ring;
    const hcp_question *q;
    int64_t tile, tokens[REFERENCE_MOST], *best_tokens;
    int most;
    double best;
};

static void try_split(struct splits *s)
{
    int m = 0;
    double ms;

    for (size_t r = 0; r < s->ring->n; r++)
        m += s->tokens[r] > 0;
    if (m > s->most)
        return;
    ms = reference_decode_ms(s->ring, s->q, s->tokens, NULL);
    if (ms >= 0 && (s->best < 0 || ms < s->best)) {
        s->best = ms;
        memcpy(s->best_tokens, s->tokens, s->ring->n * sizeof *s->tokens);
    }
}

static void each_split(struct splits *s, size_t r, int64_t tiles)
{
    int64_t rest = s->q->seq_len % s->tile;

    if (r + 1 == s->ring->n) {
        s->tokens[r] = tiles * s->tile;
        for (size_t i = 0; i < s->ring->n; i++) {
            s->tokens[i] += rest;
            try_split(s);
            s->tokens[i] -= rest;
            if (rest == 0)
                return;
        }
        return;
    }
    for (int64_t k = 0; k <= tiles; k++) {
        s->tokens[r] = k * s->tile;
        each_split(s, r + 1, tiles - k);
    }
}

double reference_decode_best(const hcp_ring *ring, const hcp_question *q, int64_t tile,
                             int most, int64_t *tokens)
{
    struct splits s = {ring, q, tile, {0}, tokens, most, -1};

    each_split(&s, 0, q->seq_len / tile);
    return s.best;
}

/* ---- pairings ---- */

struct tables {
    size_t n;
    int64_t left[REFERENCE_MOST], missing[REFERENCE_MOST];
    double sent[REFERENCE_MOST], got[REFERENCE_MOST];
    double alpha_ms, token_ms, best;
};

/* Cell (i, j) of a table of who gives how much to whom, then the cells after it. */
static void each_table(struct tables *t, size_t i, size_t j)
{
    int64_t most;
    double sent, got;

    if (i == t->n) {
        double last = 0;

        for (size_t r = 0; r < t->n; r++) {
            if (t->missing[r] > 0)
                return;
            last = fmax(last, fmax(t->sent[r], t->got[r]));
        }
        t->best = fmin(t->best, last);
        return;
    }
    if (j == t->n) {
        if (t->left[i] == 0)
            each_table(t, i + 1, 0);
        return;
    }
    most = t->left[i] < t->missing[j] ? t->left[i] : t->missing[j];
    sent = t->sent[i];
    got = t->got[j];
    for (int64_t k = 0; k <= most; k++) {
        double ms = k > 0 ? t->alpha_ms + (double)k * t->token_ms : 0;

        t->left[i] -= k;
        t->missing[j] -= k;
        t->sent[i] = sent + ms;
        t->got[j] = got + ms;
        each_table(t, i, j + 1);
        t->left[i] += k;
        t->missing[j] += k;
    }
    t->sent[i] = sent;
    t->got[j] = got;
}

double reference_moves_ms(size_t n, const int64_t *from, const int64_t *to,
                          double token_bytes, double alpha_us, double gbps)
{
    struct tables t = {.n = n, .best = HUGE_VAL, .alpha_ms = alpha_us / 1000};

    t.token_ms = gbps > 0 ? token_bytes * 1e-6 / gbps : 0;
    for (size_t r = 0; r < n; r++) {
        t.left[r] = from[r] > to[r] ? from[r] - to[r] : 0;
        t.missing[r] = to[r] > from[r] ? to[r] - from[r] : 0;
    }
    each_table(&t, 0, 0);
    return t.best;
}
