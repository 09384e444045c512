/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values that grow chunk by chunk, token by token in memory: what a chunk adds
 * lies behind what was there, and all of it is one message.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "executor/ring-internal.h"

enum { SLAB = 4096 }; /* tokens made at a time */

/* Tokens as they should be: made on the device with K and V apart, put together here. */
struct slab {
    void *device; /* K then V, [kv_heads][tokens][head_dim] */
    char *apart, *whole;
};

static int slab_new(ring *r, int64_t tokens, struct slab *s, struct hcp_err *err)
{
    int64_t bytes = (tokens < SLAB ? tokens : SLAB) * r->token_bytes;

    *s = (struct slab){0};
    if (ring_grab(r, &s->device, bytes, "keys and values of a chunk", err))
        return err->code;
    s->apart = malloc((size_t)bytes + 1);
    s->whole = malloc((size_t)bytes + 1);
    return s->apart && s->whole ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
}

static void slab_free(const ring *r, struct slab *s)
{
    r->config.runtime->release(s->device);
    free(s->apart);
    free(s->whole);
}

/* Tokens [first, first + n) of this rank's KV into s->whole; an hcp_rc. */
static int slab_make(const ring *r, struct slab *s, int64_t first, int64_t n)
{
    int64_t heads = 2 * r->shape.kv_heads; /* of K, then of V */
    size_t row = (size_t)(r->shape.head_dim * r->element_bytes);
    int rc = ring_fill_kv(r, s->device, first, n);

    if (rc == HCP_RC_OK)
        rc = r->config.runtime->to_host(s->apart, s->device, n * r->token_bytes,
                                        r->stream);
    for (int64_t h = 0; rc == HCP_RC_OK && h < heads; h++)
        for (int64_t t = 0; t < n; t++)
            memcpy(s->whole + (size_t)(t * heads + h) * row,
                   s->apart + (size_t)(h * n + t) * row, row);
    return rc;
}

/* Tokens of this rank's KV that the chunks before have left. */
static int64_t resident(const ring *r)
{
    return r->schedule.kv_tokens - r->schedule.tokens;
}

int ring_chunk_append(ring *r, struct hcp_err *err)
{
    int64_t end = r->schedule.kv_tokens, n;
    struct slab s;
    int rc = slab_new(r, r->schedule.tokens, &s, err), made = HCP_RC_OK;

    for (int64_t t = resident(r); rc == HCP_OK && made == HCP_RC_OK && t < end; t += n) {
        n = end - t < SLAB ? end - t : SLAB;
        made = slab_make(r, &s, t, n);
        if (made == HCP_RC_OK)
            made = r->config.runtime->to_device(r->own + t * r->token_bytes, s.whole,
                                                n * r->token_bytes, r->stream);
    }
    if (rc == HCP_OK && made == HCP_RC_OK)
        made = r->config.runtime->sync(r->stream);
    slab_free(r, &s);
    return made ? ring_device_fail(r, made, "cannot append keys and values", err) : rc;
}

/* The position in the prompt of a token of this rank's KV. */
static int64_t position_of(const ring *r, int64_t token)
{
    const hcp_plan *plan = r->config.plan;
    const hcp_segment *s =
        plan->segments + plan->ranks[r->schedule.rank].first_kv_segment;

    while (token >= s->length)
        token -= s++->length;
    return s->offset + token;
}

/* The first number that differs, of tokens from `first` on. */
static void tell(const ring *r, const char *is, const char *should, int64_t first,
                 char text[200])
{
    int64_t at = 0, heads = r->shape.kv_heads, row;

    while (is[at] == should[at])
        at++;
    row = at / (r->shape.head_dim * r->element_bytes);
    snprintf(text, 200, "%s of KV head %lld, token %lld: not what it should be",
             row % (2 * heads) < heads ? "key" : "value", (long long)(row % heads),
             (long long)position_of(r, first + row / (2 * heads)));
}

int ring_chunk_compare(ring *r, char text[200], struct hcp_err *err)
{
    int64_t end = r->schedule.kv_tokens, n;
    size_t most = (size_t)((end < SLAB ? end : SLAB) * r->token_bytes);
    struct slab s = {0};
    char *is = NULL;
    int rc = HCP_OK, got = HCP_RC_OK;

    *text = '\0';
    if (end == 0)
        return HCP_OK;
    rc = slab_new(r, end, &s, err);
    if (rc == HCP_OK && !(is = malloc(most)))
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (int64_t t = 0; rc == HCP_OK && got == HCP_RC_OK && t < end && !*text; t += n) {
        n = end - t < SLAB ? end - t : SLAB;
        got = slab_make(r, &s, t, n);
        if (got == HCP_RC_OK)
            got = r->config.runtime->to_host(is, r->own + t * r->token_bytes,
                                             n * r->token_bytes, r->stream);
        if (got == HCP_RC_OK && memcmp(is, s.whole, (size_t)(n * r->token_bytes)) != 0)
            tell(r, is, s.whole, t, text);
    }
    slab_free(r, &s);
    free(is);
    return got ? ring_device_fail(r, got, "cannot compare keys and values", err) : rc;
}

struct ring_traffic ring_traffic_of(const ring *r, int sent)
{
    struct ring_traffic all = {0, 0};

    for (int32_t k = 0; r->transfers && k < r->schedule.m; k++) {
        const struct hcp_transfer *t = &r->transfers[k];

        if (!(sent ? t->send : t->receive))
            continue;
        all.blocks++;
        for (int32_t i = 0; i < t->n_pieces; i++)
            all.bytes += t->pieces[i].bytes;
    }
    return all;
}
