/* SPDX-License-Identifier: Apache-2.0
 *
 * What a pass needs, made before it. Memory of a rank, in elements of the plan's type:
 *
 *   q        [batch][heads][tokens][head_dim]
 *   own      K then V, each [batch][kv_heads][KV tokens][head_dim]: one message; its
 *            tokens are those of q unless the plan splits them apart. Of a chunk it is
 *            the caller's, [KV tokens][K, V][kv_heads][head_dim], as are blocks received:
 *            what is appended makes one message with what was there
 *   packed   the same as its pieces travel, where there are several
 *   buffers  one a block that is held beside the own one; a piece of n tokens from token
 *            `first` lies at first * token_bytes: K then V, each
 *            [batch][kv_heads][n][head_dim]
 *   o, lse   fp32 [batch][heads][tokens][head_dim] and [batch][heads][tokens]
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "executor/ring-internal.h"
#include "kernels/dtype.h"

int ring_device_fail(ring *r, int rc, const char *doing, struct hcp_err *err)
{
    const char *detail = r->config.runtime->last_error();

    r->broken = 1;
    return hcp_fail(err, HCP_FAILED, "%s: %s%s%s", doing, hcp_rc_text(rc),
                    *detail ? ": " : "", detail);
}

int ring_shape_of(ring *r, struct hcp_err *err)
{
    const hcp_shape *s = &r->config.plan->shape;
    int32_t dtype = hcp_dtype_of_name(s->dtype);
    hcp_attn_problem *p = &r->shape;

    if (dtype < 0)
        return hcp_fail(err, HCP_FAILED, "dtype '%s' of the plan is not known", s->dtype);
    *p = (hcp_attn_problem){.size = sizeof *p,
                            .batch = s->batch,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->head_dim,
                            .dtype = dtype,
                            .out_dtype = HCP_FP32,
                            .scale = 1 / sqrt(s->head_dim)};
    r->element_bytes = hcp_dtype_bytes(p->dtype);
    r->token_bytes = 2 * p->batch * p->kv_heads * p->head_dim * r->element_bytes;
    return HCP_OK;
}

int ring_grab(ring *r, void *out, int64_t bytes, const char *what, struct hcp_err *err)
{
    char doing[128];
    void *p = NULL;
    int rc;

    if (bytes == 0)
        return HCP_OK;
    rc = r->config.runtime->alloc(&p, bytes);
    snprintf(doing, sizeof doing,
             "cannot allocate %.3f GB for %s (fewer tokens a rank need less)",
             1e-9 * (double)bytes, what);
    if (rc)
        return ring_device_fail(r, rc, doing, err);
    memcpy(out, &p, sizeof p);
    return HCP_OK;
}

/* Whether the own block is sent as it does not lie in memory: in pieces, or a part. */
static int sent_apart(const struct ring_schedule *s)
{
    return s->n_send_pieces > 1 ||
           (s->n_send_pieces == 1 && s->send_pieces[0].tokens != s->kv_tokens);
}

/* In fp64: a plan may have numbers whose product no int64 holds. */
static int check_bytes(ring *r, int32_t n_buffers, struct hcp_err *err)
{
    const hcp_attn_problem *p = &r->shape;
    const struct ring_schedule *s = &r->schedule;
    double held = 2.0 * (double)s->kv_tokens + (double)n_buffers * (double)s->max_block;
    double bytes = held * (double)r->token_bytes +
                   (double)(r->element_bytes + (int64_t)sizeof(float)) *
                       (double)(p->batch * p->heads * p->head_dim) * (double)s->tokens;
    char doing[128];

    if (bytes < 0x1p62)
        return HCP_OK;
    snprintf(doing, sizeof doing,
             "cannot allocate %.3g GB for a rank's part (fewer tokens a rank need less)",
             1e-9 * bytes);
    return ring_device_fail(r, HCP_RC_NO_MEMORY, doing, err);
}

static int allocate(ring *r, int32_t n_buffers, struct hcp_err *err)
{
    const hcp_attn_problem *p = &r->shape;
    int64_t rows, own;
    int rc = check_bytes(r, n_buffers, err);

    if (rc)
        return rc;
    rows = p->batch * p->heads * r->schedule.tokens;
    own = r->schedule.kv_tokens * r->token_bytes;
    rc = ring_grab(r, &r->q, rows * p->head_dim * r->element_bytes, "queries", err);
    if (r->config.chunk)
        r->own = r->config.chunk->kv;
    else if (rc == HCP_OK)
        rc = ring_grab(r, &r->own, own, "keys and values", err);
    if (rc == HCP_OK && sent_apart(&r->schedule))
        rc = ring_grab(r, &r->packed, own, "keys and values in pieces", err);
    if (rc == HCP_OK)
        rc = ring_grab(r, &r->buffers, n_buffers * r->schedule.max_block * r->token_bytes,
                  "receive buffers", err);
    if (rc == HCP_OK)
        rc = ring_grab(r, &r->o, rows * p->head_dim * (int64_t)sizeof(float),
                       "the output", err);
    if (rc == HCP_OK)
        rc = ring_grab(r, &r->lse, rows * (int64_t)sizeof(float), "the log-sum-exp", err);
    return rc;
}

/* ---- inputs ---- */

/* Local tokens [first, first + n) of the queries or of KV, of a tensor with `heads`
 * heads, into out, dense [batch][heads][n][head_dim]: each element is a function of its
 * place in the whole sequence's tensor [batch][heads][seq_len][head_dim]. */
static int fill(const ring *r, char *out, int64_t heads, int kv, uint64_t seed,
                int64_t first, int64_t n)
{
    const hcp_plan *plan = r->config.plan;
    const hcp_plan_rank *rank = &plan->ranks[r->schedule.rank];
    int own = kv && plan->joint;
    int64_t n_segments = own ? rank->n_kv_segments : rank->n_segments;
    int64_t first_segment = own ? rank->first_kv_segment : rank->first_segment;
    const hcp_attn_problem *p = &r->shape;

    for (int64_t bh = 0; bh < p->batch * heads; bh++) {
        int64_t local = 0; /* of the segment's first token */

        for (int64_t s = 0; s < n_segments; s++) {
            const hcp_segment *seg = &plan->segments[first_segment + s];
            int64_t from = first > local ? first : local;
            int64_t end = local + seg->length, to = first + n < end ? first + n : end;

            if (from < to) {
                int64_t row = bh * plan->seq_len + seg->offset + from - local;
                uint64_t at = (uint64_t)row * (uint64_t)p->head_dim;
                char *dst =
                    out + (bh * n + from - first) * p->head_dim * r->element_bytes;
                int rc = r->config.runtime->randn(dst, (to - from) * p->head_dim,
                                                  p->dtype, seed, at, r->stream);
                if (rc)
                    return rc;
            }
            local = end;
        }
    }
    return HCP_RC_OK;
}

int ring_fill_kv(const ring *r, char *out, int64_t first, int64_t n)
{
    int64_t half = n * r->token_bytes / 2;
    int rc = fill(r, out, r->shape.kv_heads, 1, r->config.seed + 2, first, n);

    return rc ? rc
              : fill(r, out + half, r->shape.kv_heads, 1, r->config.seed + 3, first, n);
}

static int fill_inputs(ring *r, struct hcp_err *err)
{
    const struct ring_schedule *s = &r->schedule;
    int rc = fill(r, r->q, r->shape.heads, 0, r->config.seed + 1, 0, s->tokens);

    if (rc == HCP_RC_OK && !r->config.chunk)
        rc = ring_fill_kv(r, r->own, 0, s->kv_tokens);
    for (size_t i = 0; rc == HCP_RC_OK && r->packed && i < s->n_send_pieces; i++)
        rc = ring_fill_kv(r, r->packed + s->send_pieces[i].first * r->token_bytes,
                     s->send_pieces[i].first, s->send_pieces[i].tokens);
    if (rc == HCP_RC_OK)
        rc = r->config.runtime->sync(r->stream);
    if (rc)
        return ring_device_fail(r, rc, "cannot fill the inputs", err);
    return r->config.chunk ? ring_chunk_append(r, err) : HCP_OK;
}

/* ---- kernels ---- */

/* The problem of a call on `tokens` keys and values that lie as one message. */
static hcp_attn_problem problem_of(const ring *r, const struct ring_call *call,
                                   int64_t tokens, int accumulate)
{
    hcp_attn_problem p = r->shape;
    int64_t *q = p.q_stride, *k = p.k_stride;

    p.q_len = call->rows;
    p.kv_len = call->keys;
    p.causal = call->causal;
    p.diag = call->causal ? call->keys - call->rows : 0;
    p.accumulate = accumulate;
    q[2] = p.head_dim;
    q[1] = r->schedule.tokens * q[2];
    q[0] = p.heads * q[1];
    k[2] = p.head_dim;
    k[1] = tokens * k[2];
    if (r->config.chunk) {
        k[1] = p.head_dim;
        k[2] = 2 * p.kv_heads * k[1];
    }
    k[0] = p.kv_heads * tokens * p.head_dim;
    memcpy(p.v_stride, k, sizeof p.v_stride);
    memcpy(p.o_stride, q, sizeof p.o_stride);
    return p;
}

struct made { /* attention steps so far, and what they were made for */
    hcp_attn_problem problem;
    int32_t sm_count;
    hcp_attention *attention;
};

static int make_attention(ring *r, struct made *made, const hcp_attn_problem *problem,
                          int spare, hcp_attention **out, struct hcp_err *err)
{
    const struct ring_config *c = &r->config;
    hcp_device_ref device = c->device;
    /* All run on r->stream, one after the other. */
    const hcp_attention_options options = {.lse_pitch = r->schedule.tokens,
                                           .scratch = r->scratch};
    char text[400];
    int rc;

    if (spare && device.kind == HCP_DEVICE_CUDA)
        device.sm_count -= ring_schedule_spare_sms(&r->schedule, c->spare_sms,
                                                   c->channels, device.sm_count);
    for (size_t i = 0; i < r->n_attentions; i++) {
        if (made[i].sm_count == device.sm_count &&
            memcmp(&made[i].problem, problem, sizeof *problem) == 0) {
            *out = made[i].attention;
            return HCP_OK;
        }
    }
    rc = hcp_attention_create_with(c->provider, c->runtime, &device, problem, &options,
                                   out, text, sizeof text);
    if (rc)
        return hcp_fail(err, HCP_FAILED, "%lld queries x %lld keys: %s",
                        (long long)problem->q_len, (long long)problem->kv_len, text);
    made[r->n_attentions].problem = *problem;
    made[r->n_attentions].sm_count = device.sm_count;
    made[r->n_attentions].attention = r->attentions[r->n_attentions] = *out;
    r->n_attentions++;
    return HCP_OK;
}

/* The calls on a piece whose K and V lie at kv. */
static int make_kernels(ring *r, struct made *made, const struct ring_piece *piece,
                        char *kv, int accumulate, struct hcp_err *err)
{
    const struct ring_schedule *s = &r->schedule;
    const hcp_attn_problem *p = &r->shape;
    char *v = kv + (r->config.chunk ? 1 : piece->tokens) * r->token_bytes / 2;
    /* Beside the last piece that is received nothing begins any more. */
    int spare = piece == s->pieces || piece < s->pieces + s->n_pieces - 1;

    for (size_t i = piece->call; i < piece->call + piece->n_calls; i++) {
        const struct ring_call *call = &r->schedule.calls[i];
        struct ring_kernel *kernel = &r->kernels[i];
        hcp_attn_problem problem =
            problem_of(r, call, piece->tokens, accumulate || call->merges);
        int64_t at = call->row * p->head_dim;
        int64_t key = call->key * problem.k_stride[2] * r->element_bytes;
        int rc = make_attention(r, made, &problem, spare, &kernel->attention, err);

        if (rc)
            return rc;
        kernel->args = (hcp_attn_args){.size = sizeof kernel->args,
                                       .q = r->q + at * r->element_bytes,
                                       .k = kv + key,
                                       .v = v + key,
                                       .o = r->o + at,
                                       .lse = r->lse + call->row,
                                       .q_len = call->rows,
                                       .kv_len = call->keys,
                                       .diag = problem.diag};
    }
    return HCP_OK;
}

/* ---- steps ---- */

/* Buffers of blocks that come over the outer ring. */
static int32_t outer_buffers(const struct ring_schedule *s)
{
    int32_t received = s->inner > 0 ? s->m / s->inner - 1 : 0;

    return received < 2 ? received : 2;
}

/* All buffers of a rank, of which it may have so many; with two levels those of the outer
 * ring are not counted. */
static int32_t buffers_of(const struct ring_schedule *s, int32_t most)
{
    int32_t received = s->inner > 0 ? s->inner - 1 : s->m - 1;

    if (s->inner == 0)
        received = 0;
    for (int32_t k = 1; s->inner == 0 && k < s->m; k++)
        received += s->steps[k].receive != 0;
    if (received < 1)
        return 1;
    return (most < 1 || most > received ? received : most) + outer_buffers(s);
}

static int make_steps(ring *r, int32_t n_buffers, struct hcp_err *err)
{
    const struct ring_schedule *s = &r->schedule;
    struct made *made = calloc(s->n_calls + 1, sizeof *made);
    struct hcp_message *message = r->messages;
    int32_t received = 0; /* those that come take the buffers in turn */
    int rc = made ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    for (int32_t k = 0; rc == HCP_OK && k < s->m; k++) {
        const struct ring_step *step = &s->steps[k];
        const struct ring_piece *pieces = &s->pieces[step->piece];
        struct hcp_transfer *transfer = &r->transfers[k];
        int32_t round = s->inner > 0 ? k / s->inner : 0;
        int32_t slot = step->receive ? received++ % n_buffers : -1;
        char *block;

        if (s->inner > 0) /* those of the outer ring have the last ones */
            slot = k == 0              ? -1
                   : k % s->inner == 0 ? n_buffers - outer_buffers(s) +
                                             (round - 1) % outer_buffers(s)
                                       : (k % s->inner - 1) %
                                             (n_buffers - outer_buffers(s));
        block =
            slot < 0 ? r->own : r->buffers + slot * s->max_block * r->token_bytes;

        for (size_t i = 0; rc == HCP_OK && i < step->n_pieces; i++)
            rc = make_kernels(r, made, &pieces[i],
                              block + pieces[i].first * r->token_bytes, k > 0, err);
        *transfer = (struct hcp_transfer){.receive = step->receive,
                                          .send = step->send,
                                          .slot = slot,
                                          .pieces = message,
                                          .n_pieces = (int32_t)step->n_pieces};
        if (k == 0) {
            pieces = s->send_pieces;
            transfer->n_pieces = (int32_t)s->n_send_pieces;
            transfer->after_step = s->own_after;
            block = r->packed ? r->packed : r->own;
        }
        if (!step->receive && !step->send)
            transfer->n_pieces = 0;
        if (s->inner > 0 && k % s->inner == 0) { /* one message, in two rings */
            r->outer_transfers[round] = *transfer;
            r->outer_transfers[round].send = step->send_out;
            r->outer_transfers[round].slot =
                k > 0 ? slot - n_buffers + outer_buffers(s) : -1;
            transfer->receive = 0;
            transfer->slot = -1;
        }
        for (int32_t i = 0; i < transfer->n_pieces; i++)
            *message++ = (struct hcp_message){block + pieces[i].first * r->token_bytes,
                                              pieces[i].tokens * r->token_bytes};
    }
    free(made);
    return rc;
}

static int make_events(ring *r, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    size_t n = r->schedule.n_pieces;
    int rc = runtime->event_create(&r->start);

    for (int32_t j = 1; rc == HCP_RC_OK && r->schedule.inner > 0 &&
                        j < r->schedule.m / r->schedule.inner;
         j++)
        rc = runtime->event_create(&r->rounds[j]);
    for (size_t i = 0; rc == HCP_RC_OK && i < n; i++) {
        rc = runtime->event_create(&r->begun[i]);
        if (rc == HCP_RC_OK)
            rc = runtime->event_create(&r->done[i]);
    }
    return rc ? ring_device_fail(r, rc, "cannot create events", err) : HCP_OK;
}

int ring_memory_open(ring *r, struct hcp_err *err)
{
    const struct ring_schedule *s = &r->schedule;
    int32_t n_buffers;
    size_t rounds = s->inner > 0 ? (size_t)(s->m / s->inner) : 0;
    int rc = ring_shape_of(r, err);

    if (rc || s->index < 0)
        return rc;
    n_buffers = buffers_of(s, r->config.buffers);
    r->attentions = calloc(s->n_calls + 1, sizeof(hcp_attention *));
    r->kernels = calloc(s->n_calls + 1, sizeof *r->kernels);
    r->messages = calloc(s->n_pieces + s->n_send_pieces + 1, sizeof *r->messages);
    r->transfers = calloc((size_t)s->m, sizeof *r->transfers);
    r->outer_transfers = calloc(rounds + 1, sizeof *r->outer_transfers);
    r->rounds = calloc(rounds + 1, sizeof(void *));
    r->level_times = calloc(2 * (size_t)s->m, sizeof *r->level_times);
    r->begun = calloc(s->n_pieces + 1, sizeof(void *));
    r->done = calloc(s->n_pieces + 1, sizeof(void *));
    if (!r->attentions || !r->kernels || !r->messages || !r->transfers || !r->begun ||
        !r->done || !r->outer_transfers || !r->rounds || !r->level_times)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    rc = r->config.runtime->stream_create(&r->stream);
    if (rc)
        return ring_device_fail(r, rc, "cannot create a stream", err);
    rc = allocate(r, n_buffers, err);
    if (rc == HCP_OK)
        rc = fill_inputs(r, err);
    if (rc == HCP_OK && hcp_attention_scratch_new(r->config.runtime, &r->scratch))
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    if (rc == HCP_OK)
        rc = make_steps(r, n_buffers, err);
    if (rc == HCP_OK)
        rc = make_events(r, err);
    if (rc == HCP_OK && r->config.layer && s->tokens > 0)
        rc = ring_linear_open(r, err);
    return rc;
}

void ring_memory_close(ring *r)
{
    const hcp_runtime *runtime = r->config.runtime;

    ring_linear_close(r);
    for (size_t i = 0; i < r->n_attentions; i++)
        hcp_attention_destroy(r->attentions[i]);
    hcp_attention_scratch_free(r->scratch);
    runtime->event_destroy(r->start);
    for (size_t i = 0; i < r->schedule.n_pieces; i++) {
        runtime->event_destroy(r->begun ? r->begun[i] : NULL);
        runtime->event_destroy(r->done ? r->done[i] : NULL);
    }
    for (int32_t j = 1; r->rounds && r->schedule.inner > 0 &&
                        j < r->schedule.m / r->schedule.inner;
         j++)
        runtime->event_destroy(r->rounds[j]);
    if (r->go)
        runtime->host_release(r->go);
    runtime->release(r->slow_mark);
    runtime->release(r->q);
    if (!r->config.chunk)
        runtime->release(r->own);
    runtime->release(r->packed);
    runtime->release(r->buffers);
    runtime->release(r->o);
    runtime->release(r->lse);
    if (r->stream)
        runtime->stream_destroy(r->stream);
    free(r->attentions);
    free(r->kernels);
    free(r->messages);
    free(r->transfers);
    free(r->outer_transfers);
    free(r->rounds);
    free(r->level_times);
    free(r->begun);
    free(r->done);
}
