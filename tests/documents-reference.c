/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "tests/documents-reference.h"

struct step {
    const hcp_ring *ring;
    const hcp_documents *q;
    const struct reference_document *documents;
    int64_t tokens[REFERENCE_DOCUMENT_RANKS];
};

static const hcp_model *model_of(const hcp_ring *ring, int rank)
{
    return ring->ranks[rank].model[HCP_MODEL_BEST];
}

static double own_ms(const struct step *s, int rank, int64_t len)
{
    const hcp_model *model = model_of(s->ring, rank);

    return hcp_model_block_ms(model, s->q->causal, len, len, NULL) +
           hcp_model_finish_ms(model, 0, len);
}

static double call_ms(const struct step *s, int rank, int64_t rows, int64_t keys)
{
    const hcp_model *model = model_of(s->ring, rank);

    return hcp_model_block_ms(model, 0, rows, keys, NULL) +
           hcp_model_finish_ms(model, 1, rows);
}

static double before_ms(const struct step *s, int rank)
{
    const hcp_rank *spec = &s->ring->ranks[rank].spec;

    return (spec->linear_before_us * (double)s->tokens[rank] +
            spec->linear_before_fixed_us) /
           1e3;
}

static double after_ms(const struct step *s, int rank)
{
    const hcp_rank *spec = &s->ring->ranks[rank].spec;

    return (spec->linear_after_us * (double)s->tokens[rank] +
            spec->linear_after_fixed_us) /
           1e3;
}

static int64_t part_len(const struct reference_document *d, int k)
{
    return d->from[k + 1] - d->from[k];
}

/* When the keys and values of part k are on the rank of part i >= k. */
static double there_ms(const struct step *s, const struct reference_document *d, int k,
                       int i)
{
    const hcp_shape *shape = &s->ring->shape;
    double bytes = 2.0 * 2.0 * shape->kv_heads * shape->head_dim * (double)part_len(d, k);
    double start, ms = s->q->link_alpha_us / 1e3;

    if (i == k)
        return before_ms(s, d->rank[i]);
    start = fmax(there_ms(s, d, k, i - 1), before_ms(s, d->rank[i]));
    if (k + 1 < i) /* the nearer one goes first */
        start = fmax(start, there_ms(s, d, k + 1, i));
    if (s->q->link_gbps > 0)
        ms += bytes / (s->q->link_gbps * 1e6);
    return start + ms;
}

static double rank_ms(const struct step *s, int rank)
{
    const struct reference_document *in = NULL;
    double ms = before_ms(s, rank);
    int at = 0;

    if (s->tokens[rank] == 0)
        return 0;
    for (size_t doc = 0; doc < s->q->n_documents; doc++) {
        const struct reference_document *d = &s->documents[doc];

        for (int k = 0; k < d->n; k++) {
            if (d->rank[k] != rank)
                continue;
            ms += own_ms(s, rank, part_len(d, k));
            if (k > 0) {
                in = d;
                at = k;
            }
        }
    }
    for (int k = at - 1; in && k >= 0; k--)
        ms = fmax(ms, there_ms(s, in, k, at)) +
             call_ms(s, rank, part_len(in, at), part_len(in, k));
    return ms + after_ms(s, rank);
}

/* Caps; one document at most comes to a rank, from the rank with tokens before it. */
static int allowed(const struct step *s)
{
    int64_t received[REFERENCE_DOCUMENT_RANKS] = {0};
    int comes[REFERENCE_DOCUMENT_RANKS] = {0};

    for (size_t doc = 0; doc < s->q->n_documents; doc++) {
        const struct reference_document *d = &s->documents[doc];

        for (int k = 1; k < d->n; k++) {
            for (int r = d->rank[k - 1] + 1; r < d->rank[k]; r++)
                if (s->tokens[r] > 0)
                    return 0;
            if (comes[d->rank[k]]++)
                return 0;
            received[d->rank[k]] = d->from[k];
        }
    }
    for (size_t r = 0; r < s->ring->n; r++) {
        const hcp_rank *spec = &s->ring->ranks[r].spec;
        double token = s->ring->token_bytes;
        double bytes = (double)spec->weight_bytes +
                       (double)s->tokens[r] *
                           (token * s->q->layers + (double)s->q->activation_bytes) +
                       (double)received[r] * token;

        if (spec->max_tokens > 0 && s->tokens[r] > spec->max_tokens)
            return 0;
        if (spec->max_bytes > 0 && s->tokens[r] > 0 && bytes > (double)spec->max_bytes)
            return 0;
    }
    return 1;
}

double reference_documents(const hcp_ring *ring, const hcp_documents *question,
                           const struct reference_document *documents, double *fin)
{
    struct step s = {.ring = ring, .q = question, .documents = documents};
    double ms = 0;

    for (size_t doc = 0; doc < question->n_documents; doc++)
        for (int k = 0; k < documents[doc].n; k++)
            s.tokens[documents[doc].rank[k]] += part_len(&documents[doc], k);
    if (!allowed(&s))
        return INFINITY;
    for (size_t r = 0; r < ring->n; r++) {
        double end = rank_ms(&s, (int)r);

        if (fin)
            fin[r] = end;
        ms = fmax(ms, end);
    }
    return ms;
}

struct all {
    const hcp_ring *ring;
    const hcp_documents *q;
    int64_t tile;
    int cuts;
    long plans, most;
    double best;
    struct reference_document documents[REFERENCE_DOCUMENTS];
};

static void next_document(struct all *a, size_t doc);

/* The parts of a document from `from` on, on ranks above `above`. */
static void next_part(struct all *a, size_t doc, int64_t from, int above)
{
    struct reference_document *d = &a->documents[doc];
    int64_t length = a->q->lengths[doc];
    int k = d->n;

    for (int r = above + 1; r < (int)a->ring->n; r++) {
        d->n = k + 1;
        d->rank[k] = r;
        d->from[k] = from;
        d->from[k + 1] = length;
        next_document(a, doc + 1);
        for (int64_t end = from + a->tile; a->cuts && end < length; end += a->tile) {
            d->from[k + 1] = end;
            d->n = k + 1;
            next_part(a, doc, end, r);
        }
    }
    d->n = k;
}

static void next_document(struct all *a, size_t doc)
{
    if (a->plans > a->most)
        return;
    if (doc == a->q->n_documents) {
        a->plans++;
        a->best = fmin(a->best, reference_documents(a->ring, a->q, a->documents, NULL));
        return;
    }
    a->documents[doc].n = 0;
    next_part(a, doc, 0, -1);
}

double reference_documents_best(const hcp_ring *ring, const hcp_documents *question,
                                int64_t tile, int cuts, long most, long *plans)
{
    struct all a = {.ring = ring,
                    .q = question,
                    .tile = tile,
                    .cuts = cuts,
                    .most = most,
                    .best = INFINITY};

    next_document(&a, 0);
    *plans = a.plans;
    return a.plans > most ? NAN : a.best;
}
