/* SPDX-License-Identifier: Apache-2.0
 *
 * A decode step: one new token of each sequence. Every rank has the step's queries and
 * the KV of its share; it computes its partial result, and the plan's messages
 * (hcp_plan_merge_sends()) bring the partial results together, so that every rank with
 * tokens has the whole one. Memory of a rank:
 *
 *   q        [batch][heads][1][head_dim]
 *   own      K then V, each [batch][kv_heads][tokens][head_dim]; several copies where one
 *            would stay in the device's cache from one step to the next, as no layer's
 * does buffers  partial results: O fp32 [batch * heads][head_dim], then L [batch *
 * heads]. What is sent of a row is head_dim + 1 floats: a state as kernels have it
 *
 * Partial results of all rows are merged in the order of the ranks, so that all ranks get
 * the same bits: where that of another rank comes first, the own one is merged into it,
 * and that buffer is the result's from then on.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "executor/decode.h"

#define COLD_BYTES INT64_C(268435456) /* several times the cache of any GPU */
enum { MOST_COPIES = 64, ALIGN_FLOATS = 64 };

int ring_plan_is_decode(const hcp_plan *plan)
{
    return strcmp(plan->shape.phase, "decode") == 0;
}

int ring_decode_schedule(const hcp_plan *plan, int32_t rank, struct ring_schedule *out,
                         struct hcp_err *err)
{
    struct ring_schedule s = {.rank = rank,
                              .n_ranks = (int32_t)plan->n_ranks,
                              .index = -1,
                              .before = -1,
                              .after = -1};

    for (size_t r = 0; r < plan->n_ranks; r++) {
        if (plan->ranks[r].tokens > 0 && (int32_t)r == rank)
            s.index = s.m;
        s.m += plan->ranks[r].tokens > 0;
    }
    if (s.index >= 0) {
        s.tokens = 1;
        s.kv_tokens = plan->ranks[rank].tokens;
        s.calls = calloc(1, sizeof *s.calls);
        if (!s.calls)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        s.calls[0] = (struct ring_call){.rows = 1, .keys = s.kv_tokens};
        s.n_calls = 1;
    }
    *out = s;
    return HCP_OK;
}

/* ---- the messages ---- */

struct building { /* of this rank's rounds */
    ring *r;
    struct ring_decode *d;
    const hcp_plan *plan;
    int32_t *index;       /* [n_ranks] of a rank among those with tokens */
    int current;          /* buffer of the state so far */
    unsigned char *taken; /* [n_states] */
    size_t parcels_room, merges_room;
};

static float *state_o(const struct ring_decode *d, int buffer, int64_t row, int64_t dim)
{
    return d->states + buffer * d->pitch + row * dim;
}

static float *state_lse(const struct ring_decode *d, int buffer, int64_t row, int64_t dim)
{
    return d->states + buffer * d->pitch + d->rows * dim + row;
}

static int add_parcel(struct building *b, int32_t peer, int send, float *data,
                      int64_t floats, struct hcp_err *err)
{
    struct ring_decode *d = b->d;

    if (d->n_parcels == b->parcels_room) {
        size_t room = 2 * b->parcels_room + 16;
        struct hcp_parcel *more = realloc(d->parcels, room * sizeof *more);

        if (!more)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        d->parcels = more;
        b->parcels_room = room;
    }
    d->parcels[d->n_parcels++] =
        (struct hcp_parcel){b->index[peer], send, data, floats * (int64_t)sizeof(float)};
    return HCP_OK;
}

/* Rows of a state: one message where O and L of them lie together. */
static int add_state(struct building *b, int32_t peer, int send, int buffer,
                     int64_t first, int64_t n, struct hcp_err *err)
{
    const struct ring_decode *d = b->d;
    int64_t dim = b->plan->shape.head_dim;
    int rc;

    if (n == d->rows)
        return add_parcel(b, peer, send, state_o(d, buffer, 0, dim), n * (dim + 1), err);
    rc = add_parcel(b, peer, send, state_o(d, buffer, first, dim), n * dim, err);
    return rc ? rc : add_parcel(b, peer, send, state_lse(d, buffer, first, dim), n, err);
}

static int add_merge(struct building *b, int into, int from, int64_t first, int64_t n,
                     struct hcp_err *err)
{
    struct ring_decode *d = b->d;
    int64_t dim = b->plan->shape.head_dim;

    if (d->n_merges == b->merges_room) {
        size_t room = 2 * b->merges_room + 16;
        struct ring_decode_merge *more = realloc(d->merges, room * sizeof *more);

        if (!more)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        d->merges = more;
        b->merges_room = room;
    }
    d->merges[d->n_merges++] = (struct ring_decode_merge){
        state_o(d, into, first, dim), state_lse(d, into, first, dim),
        state_o(d, from, first, dim), state_lse(d, from, first, dim), n};
    return HCP_OK;
}

static int take_buffer(struct building *b)
{
    int i = 0;

    while (b->taken[i])
        i++;
    b->taken[i] = 1;
    return i;
}

/* This rank's part of a round, sends[n] of it. */
static int add_round(struct building *b, const hcp_merge_send *sends, size_t n,
                     struct hcp_err *err)
{
    int32_t me = b->r->config.rank;
    struct ring_decode *d = b->d;
    struct ring_decode_round *round = &d->rounds[d->n_rounds++];
    struct {
        int32_t rank;
        int buffer;
    } first = {me, b->current};
    int *buffers = calloc(b->plan->n_ranks, sizeof *buffers);
    int rc = buffers ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    *round = (struct ring_decode_round){
        .parcel = d->n_parcels, .merge = d->n_merges, .from = -1};
    for (size_t i = 0; rc == HCP_OK && i < n; i++) {
        const hcp_merge_send *s = &sends[i];

        if (s->from == me)
            rc = add_state(b, s->to, 1, b->current, s->first_row, s->n_rows, err);
        if (s->to != me)
            continue;
        round->from = s->from;
        buffers[s->from] = s->merges ? take_buffer(b) : b->current;
        if (rc == HCP_OK)
            rc = add_state(b, s->from, 0, buffers[s->from], s->first_row, s->n_rows, err);
        if (s->merges && s->n_rows == d->rows && s->from < first.rank) {
            first.rank = s->from;
            first.buffer = buffers[s->from];
        }
    }
    buffers[me] = b->current;
    /* In the order of the ranks, into the first of them. */
    for (size_t from = 0; rc == HCP_OK && from < b->plan->n_ranks; from++) {
        for (size_t i = 0; rc == HCP_OK && i < n; i++) {
            const hcp_merge_send *s = &sends[i];

            if (s->to == me && s->merges && s->from == (int32_t)from &&
                (int32_t)from != first.rank)
                rc = add_merge(b, first.buffer, buffers[from], s->first_row, s->n_rows,
                               err);
        }
        if (rc == HCP_OK && (int32_t)from == me && first.rank != me)
            rc = add_merge(b, first.buffer, b->current, 0, d->rows, err);
    }
    b->current = first.buffer;
    for (int i = 0; i < d->n_states; i++)
        b->taken[i] = i == b->current;
    free(buffers);
    round->n_parcels = (int32_t)(d->n_parcels - round->parcel);
    round->n_merges = d->n_merges - round->merge;
    return rc;
}

static size_t round_end(const hcp_merge_send *sends, size_t n, size_t i)
{
    size_t end = i;

    while (end < n && sends[end].round == sends[i].round)
        end++;
    return end;
}

/* Partial results that this rank holds at a time. */
static int count_states(const ring *r, const hcp_merge_send *sends, size_t n)
{
    int most = 0;

    for (size_t i = 0, end; i < n; i = end) {
        int here = 0;

        end = round_end(sends, n, i);
        for (size_t k = i; k < end; k++)
            here += sends[k].to == r->config.rank && sends[k].merges;
        most = here > most ? here : most;
    }
    return 1 + most;
}

static int make_rounds(ring *r, const hcp_merge_send *sends, size_t n,
                       struct hcp_err *err)
{
    const hcp_plan *plan = r->config.plan;
    struct ring_decode *d = r->decode;
    struct building b = {.r = r,
                         .d = d,
                         .plan = plan,
                         .index = calloc(plan->n_ranks, sizeof *b.index),
                         .taken = calloc((size_t)d->n_states, 1)};
    int rc = HCP_OK, index = 0;

    d->rounds = calloc(n + 1, sizeof *d->rounds);
    if (!b.index || !b.taken || !d->rounds)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t k = 0; rc == HCP_OK && k < plan->n_ranks; k++)
        b.index[k] = plan->ranks[k].tokens > 0 ? index++ : -1;
    if (rc == HCP_OK)
        b.taken[0] = 1;
    for (size_t i = 0, end; rc == HCP_OK && i < n; i = end) {
        end = round_end(sends, n, i);
        rc = add_round(&b, sends + i, end - i, err);
    }
    d->result = b.current;
    free(b.index);
    free(b.taken);
    return rc;
}

/* ---- memory ---- */

static int make_copies(ring *r, struct hcp_err *err)
{
    struct ring_decode *d = r->decode;
    int64_t bytes = r->schedule.kv_tokens * r->token_bytes, copies = 1;
    int rc;

    d->copies = 1;
    if (r->config.kv)
        return HCP_OK;
    if (r->config.runtime->kind == HCP_DEVICE_CUDA)
        copies = (COLD_BYTES + bytes - 1) / bytes;
    d->copies = (int)(copies < MOST_COPIES ? copies : MOST_COPIES);
    rc = ring_grab(r, &r->own, d->copies * bytes, "keys and values", err);
    for (int i = 0; rc == HCP_OK && i < d->copies; i++) {
        int made = ring_fill_kv(r, r->own + i * bytes, 0, r->schedule.kv_tokens);

        if (made)
            rc = ring_device_fail(r, made, "cannot fill the inputs", err);
    }
    return rc;
}

/* The query of each sequence's newest token, its last. */
static int fill_queries(ring *r, struct hcp_err *err)
{
    const hcp_attn_problem *p = &r->shape;
    int64_t length = r->config.plan->seq_len, row = p->head_dim * r->element_bytes;
    int rc = HCP_RC_OK;

    for (int64_t i = 0; rc == HCP_RC_OK && i < p->batch * p->heads; i++)
        rc = r->config.runtime->randn(
            r->q + i * row, p->head_dim, p->dtype, r->config.seed + 1,
            (uint64_t)((i * length + length - 1) * p->head_dim), r->stream);
    if (rc == HCP_RC_OK)
        rc = r->config.runtime->sync(r->stream);
    return rc ? ring_device_fail(r, rc, "cannot fill the inputs", err) : HCP_OK;
}

/* The i-th part of a rank's KV; k and v NULL: of its own, which is one part. */
static struct ring_kv kv_of(const ring *r, int32_t i)
{
    const struct ring_kv own = {NULL, NULL, r->schedule.kv_tokens};

    return r->config.kv ? r->config.kv[i] : own;
}

static int make_kernel(ring *r, int32_t i, struct hcp_err *err)
{
    const struct ring_config *c = &r->config;
    const struct ring_decode *d = r->decode;
    const struct ring_kv kv = kv_of(r, i);
    int64_t dim = r->shape.head_dim;
    hcp_attn_problem p = r->shape;
    char text[400];
    int rc;

    p.q_len = 1;
    p.kv_len = kv.tokens;
    p.accumulate = i > 0;
    hcp_problem_set_dense_strides(&p);
    rc = hcp_attention_create(c->provider, c->runtime, &c->device, &p, &r->attentions[i],
                              text, sizeof text);
    if (rc)
        return hcp_fail(err, HCP_FAILED, "1 query x %lld keys, batch %d: %s",
                        (long long)kv.tokens, (int)c->plan->shape.batch, text);
    r->n_attentions++;
    r->kernels[i].attention = r->attentions[i];
    r->kernels[i].args = (hcp_attn_args){.size = sizeof r->kernels[i].args,
                                         .q = r->q,
                                         .k = kv.k,
                                         .v = kv.v,
                                         .o = state_o(d, 0, 0, dim),
                                         .lse = state_lse(d, 0, 0, dim),
                                         .q_len = 1,
                                         .kv_len = kv.tokens};
    return HCP_OK;
}

static int make_kernels(ring *r, struct hcp_err *err)
{
    int32_t n = r->config.kv ? r->config.n_kv : 1;
    int64_t tokens = 0;
    int rc = HCP_OK;

    r->attentions = calloc((size_t)n + 1, sizeof(hcp_attention *));
    r->kernels = calloc((size_t)n + 1, sizeof *r->kernels);
    if (!r->attentions || !r->kernels)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int32_t i = 0; i < n; i++)
        tokens += kv_of(r, i).tokens;
    if (tokens != r->schedule.kv_tokens)
        return hcp_fail(err, HCP_FAILED, "KV of %lld tokens, %lld expected",
                        (long long)tokens, (long long)r->schedule.kv_tokens);
    for (int32_t i = 0; rc == HCP_OK && i < n; i++)
        rc = make_kernel(r, i, err);
    return rc;
}

static int make_events(ring *r, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    struct ring_decode *d = r->decode;
    int rc = runtime->event_create(&r->start);

    d->events = calloc(2 * (size_t)d->n_rounds + 2, sizeof(void *));
    if (!d->events)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int i = 0; rc == HCP_RC_OK && i < 2 * d->n_rounds + 2; i++)
        rc = runtime->event_create(&d->events[i]);
    return rc ? ring_device_fail(r, rc, "cannot create events", err) : HCP_OK;
}

static int merge_sends(const hcp_plan *plan, hcp_merge_send **out, size_t *n,
                       struct hcp_err *err)
{
    hcp_status status = hcp_plan_merge_sends(plan, NULL, 0, n);

    *out = status ? NULL : calloc(*n + 1, sizeof **out);
    if (status == HCP_STATUS_OK && !*out)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (status == HCP_STATUS_OK)
        status = hcp_plan_merge_sends(plan, *out, *n + 1, n);
    return status ? hcp_fail(err, HCP_FAILED, "the plan is no plan of decode: %s",
                             hcp_strerror(status))
                  : HCP_OK;
}

int ring_decode_open(ring *r, struct hcp_err *err)
{
    const hcp_attn_problem *p = &r->shape;
    hcp_merge_send *sends = NULL;
    struct ring_decode *d;
    size_t n = 0;
    int rc = ring_shape_of(r, err), made;

    if (rc || r->schedule.index < 0)
        return rc;
    d = r->decode = calloc(1, sizeof *d);
    if (!d)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    made = r->config.runtime->stream_create(&r->stream);
    if (made)
        return ring_device_fail(r, made, "cannot create a stream", err);
    rc = merge_sends(r->config.plan, &sends, &n, err);
    d->rows = p->batch * p->heads;
    d->pitch =
        (d->rows * (p->head_dim + 1) + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    d->n_states = count_states(r, sends, rc ? 0 : n);
    if (rc == HCP_OK)
        rc =
            ring_grab(r, &r->q, d->rows * p->head_dim * r->element_bytes, "queries", err);
    if (rc == HCP_OK)
        rc = ring_grab(r, &d->states, d->n_states * d->pitch * (int64_t)sizeof(float),
                       "partial results", err);
    r->buffers = (char *)d->states; /* released with the ring's */
    if (rc == HCP_OK)
        rc = make_copies(r, err);
    if (rc == HCP_OK)
        rc = fill_queries(r, err);
    if (rc == HCP_OK)
        rc = make_kernels(r, err);
    if (rc == HCP_OK)
        rc = make_rounds(r, sends, n, err);
    if (rc == HCP_OK)
        rc = make_events(r, err);
    free(sends);
    return rc;
}

void ring_decode_close(ring *r)
{
    struct ring_decode *d = r->decode;

    if (!d)
        return;
    for (int i = 0; d->events && i < 2 * d->n_rounds + 2; i++)
        r->config.runtime->event_destroy(d->events[i]);
    free(d->events);
    free(d->rounds);
    free(d->parcels);
    free(d->merges);
    free(d);
    r->decode = NULL;
}

void ring_decode_result(const ring *r, const float **o, const float **lse)
{
    const struct ring_decode *d = r->decode;

    *o = state_o(d, d->result, 0, r->shape.head_dim);
    *lse = state_lse(d, d->result, 0, r->shape.head_dim);
}

/* ---- a step ---- */

/* Events: 0 the partial result is there, 1 the result is; 2 + 2 k and 3 + 2 k around the
 * messages of round k. */
static int queue_round(ring *r, int k, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    const struct ring_decode *d = r->decode;
    const struct ring_decode_round *round = &d->rounds[k];
    int queues = hcp_transport_queues(r->transport), rc, made;
    char what[100];

    if (!queues && round->n_parcels) {
        snprintf(what, sizeof what, "waiting for %s of rank %d (merge, round %d)",
                 round->from < 0 ? "others to take the partial result"
                                 : "the partial result",
                 (int)(round->from < 0 ? r->config.rank : round->from), k);
        ring_watch_waiting(r->config.watch, what, round->from);
    }
    made = runtime->event_record(d->events[2 + 2 * k], r->stream);
    if (made)
        return ring_device_fail(r, made, "cannot record an event", err);
    rc = hcp_transport_exchange(r->transport, d->parcels + round->parcel,
                                round->n_parcels, r->stream, err);
    if (!queues)
        ring_watch_idle(r->config.watch);
    if (rc == HCP_OK)
        made = runtime->event_record(d->events[3 + 2 * k], r->stream);
    for (size_t i = 0; rc == HCP_OK && made == HCP_RC_OK && i < round->n_merges; i++) {
        const struct ring_decode_merge *m = &d->merges[round->merge + i];

        made = runtime->merge(m->o, m->lse, m->o_part, HCP_FP32, m->lse_part, m->rows,
                              r->shape.head_dim, r->stream);
    }
    return rc     ? rc
           : made ? ring_device_fail(r, made, "cannot merge partial results", err)
                  : HCP_OK;
}

static int queue_step(ring *r, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    struct ring_decode *d = r->decode;
    int64_t bytes = r->schedule.kv_tokens * r->token_bytes;
    int rc = HCP_OK, made;

    made = runtime->event_record(r->start, r->stream);
    for (size_t i = 0; made == HCP_RC_OK && i < r->n_attentions; i++) {
        hcp_attn_args args = r->kernels[i].args;

        if (!r->config.kv) {
            args.k = r->own + r->passes % d->copies * bytes;
            args.v = (const char *)args.k + bytes / 2;
        }
        made = hcp_attention_run(r->attentions[i], &args, r->stream);
    }
    if (made == HCP_RC_OK)
        made = runtime->event_record(d->events[0], r->stream);
    if (made)
        return ring_device_fail(r, made, "cannot compute a partial result", err);
    for (int k = 0; rc == HCP_OK && k < d->n_rounds; k++)
        rc = queue_round(r, k, err);
    if (rc == HCP_OK) {
        made = runtime->event_record(d->events[1], r->stream);
        rc = made ? ring_device_fail(r, made, "cannot record an event", err) : HCP_OK;
    }
    return rc;
}

/* Until the event, hearing of errors meanwhile. */
static int follow(ring *r, void *event, struct hcp_err *err)
{
    const struct timespec nap = {.tv_nsec = 20000};

    for (;;) {
        int done = 0, rc = r->config.runtime->event_done(event, &done);

        if (rc)
            return ring_device_fail(r, rc, "the device failed in a step", err);
        if (done)
            return HCP_OK;
        if (r->transport && hcp_transport_check(r->transport, err))
            return HCP_FAILED;
        nanosleep(&nap, NULL);
    }
}

static int run_step(ring *r, struct hcp_err *err)
{
    static const char all[] = "waiting for all ranks to begin a step";
    const struct ring_decode *d = r->decode;
    int launches = 8 + 3 * d->n_rounds + (int)d->n_merges;
    int held = ring_may_hold(r, launches);
    int queues = r->transport && hcp_transport_queues(r->transport);
    int from = d->n_rounds ? d->rounds[0].from : -1;
    int rc = held ? ring_hold(r, err) : ring_meet(r, all, err);

    if (queues) /* NCCL waits for the other end where it connects */
        ring_watch_waiting(r->config.watch, "queueing a step", -1);
    if (rc == HCP_OK)
        rc = queue_step(r, err);
    if (queues)
        ring_watch_idle(r->config.watch);
    if (rc == HCP_OK && held)
        rc = ring_meet(r, all, err);
    if (held)
        ring_let_go(r);
    if (rc == HCP_OK)
        rc = follow(r, d->events[0], err);
    if (rc == HCP_OK && queues)
        ring_watch_waiting(r->config.watch, "waiting for the partial results of others",
                           from);
    if (rc == HCP_OK)
        rc = follow(r, d->events[1], err);
    ring_watch_idle(r->config.watch);
    return rc;
}

int ring_decode_pass(ring *r, struct ring_times *out, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    const struct ring_decode *d = r->decode;
    int rc = run_step(r, err), made;

    if (rc)
        return rc;
    made = runtime->event_ms(r->start, d->events[0], &out->compute_ms);
    if (made == HCP_RC_OK)
        made = runtime->event_ms(r->start, d->events[1], &out->total_ms);
    out->transfer_ms = 0;
    for (int k = 0; made == HCP_RC_OK && k < d->n_rounds; k++) {
        double ms = 0;

        if (d->rounds[k].n_parcels)
            made = runtime->event_ms(d->events[2 + 2 * k], d->events[3 + 2 * k], &ms);
        out->transfer_ms += ms;
    }
    out->wait_ms = out->total_ms - out->compute_ms;
    return made ? ring_device_fail(r, made, "cannot read an event", err) : HCP_OK;
}
