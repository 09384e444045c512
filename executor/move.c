/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "executor/move.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "executor/ring-internal.h"

enum { STAYS, SENT, RECEIVED };

struct part {
    int what;
    int32_t peer;
    int64_t tokens;
    const hcp_segment *segments;
    int64_t n_segments;
    char *data;
};

struct ring_move {
    struct ring r; /* what of a ring there is: stream, start, transport, holding back */
    struct ring_move_config config;
    int32_t layers;
    hcp_segment *kept; /* segments of the part that stays */
    struct part *parts;
    struct hcp_parcel *parcels;
    int32_t n_parts, n_parcels;
    void *end;
};

const hcp_plan_rank *ring_move_old(const hcp_plan *from, int32_t rank)
{
    for (size_t i = 0; (from->order || from->has_links) && i < from->n_ranks; i++)
        if (from->places[i].rank == rank)
            return &from->ranks[i];
    return &from->ranks[rank];
}

int64_t ring_move_kept(const hcp_plan *from, const hcp_moves *moves, int32_t rank,
                       hcp_segment *out, int64_t *tokens)
{
    const hcp_plan_rank *old = ring_move_old(from, rank);
    const hcp_segment *segments = from->segments + old->first_kv_segment;
    int64_t left = old->kv_tokens, n = 0;

    for (size_t i = 0; i < moves->n_moves; i++)
        if (moves->moves[i].from == rank)
            left -= moves->moves[i].tokens;
    *tokens = 0;
    for (int64_t i = 0; i < old->n_kv_segments && left > 0; i++) {
        int64_t length = segments[i].length < left ? segments[i].length : left;

        out[n++] = (hcp_segment){segments[i].offset, length};
        left -= length;
        *tokens += length;
    }
    return n;
}

static int make_parts(ring_move *m, struct hcp_err *err)
{
    const hcp_moves *moves = m->config.moves;

    m->parts = calloc(moves->n_moves + 1, sizeof *m->parts);
    m->parcels = calloc(moves->n_moves + 1, sizeof *m->parcels);
    if (!m->parts || !m->parcels)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    m->kept = calloc(m->config.from->n_segments + 1, sizeof *m->kept);
    if (!m->kept)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    m->parts[0] = (struct part){.what = STAYS, .peer = -1, .segments = m->kept};
    m->parts[0].n_segments = ring_move_kept(m->config.from, moves, m->config.rank,
                                            m->kept, &m->parts[0].tokens);
    m->n_parts = m->parts[0].tokens > 0;
    for (size_t i = 0; i < moves->n_moves; i++) {
        const hcp_move *move = &moves->moves[i];
        int sends = move->from == m->config.rank;

        if (!sends && move->to != m->config.rank)
            continue;
        m->parts[m->n_parts++] =
            (struct part){.what = sends ? SENT : RECEIVED,
                          .peer = sends ? move->to : move->from,
                          .tokens = move->tokens,
                          .segments = moves->segments + move->first_segment,
                          .n_segments = move->n_segments};
    }
    return HCP_OK;
}

static int64_t part_bytes(const ring_move *m, const struct part *p)
{
    return p->tokens * m->r.token_bytes * m->layers;
}

/* K (0) or V (1) of a layer of a part, as it should be. */
static int fill_layer(const ring_move *m, const struct part *p, int32_t layer, int v,
                      char *out)
{
    const hcp_attn_problem *shape = &m->r.shape;
    int64_t dim = shape->head_dim, length = m->config.to->seq_len;
    uint64_t seed = m->config.seed + 2 + 2 * (uint64_t)layer + (uint64_t)v;
    int rc = HCP_RC_OK;

    for (int64_t bh = 0; bh < shape->batch * shape->kv_heads; bh++) {
        for (int64_t i = 0; rc == HCP_RC_OK && i < p->n_segments; i++) {
            const hcp_segment *s = &p->segments[i];

            rc = m->r.config.runtime->randn(out, s->length * dim, shape->dtype, seed,
                                            (uint64_t)((bh * length + s->offset) * dim),
                                            m->r.stream);
            out += s->length * dim * m->r.element_bytes;
        }
    }
    return rc;
}

static int make_memory(ring_move *m, struct hcp_err *err)
{
    const hcp_runtime *runtime = m->r.config.runtime;
    int rc = HCP_OK, made = HCP_RC_OK;

    for (int32_t i = 0; rc == HCP_OK && i < m->n_parts; i++) {
        struct part *p = &m->parts[i];
        int64_t half = p->tokens * m->r.token_bytes / 2;

        rc = ring_grab(&m->r, &p->data, part_bytes(m, p), "keys and values of all layers",
                       err);
        for (int32_t l = 0; rc == HCP_OK && made == HCP_RC_OK && p->what != RECEIVED &&
                            l < 2 * m->layers;
             l++)
            made = fill_layer(m, p, l / 2, l % 2, p->data + l * half);
        if (rc == HCP_OK && p->what != STAYS)
            m->parcels[m->n_parcels++] =
                (struct hcp_parcel){p->peer, p->what == SENT, p->data, part_bytes(m, p)};
    }
    if (rc == HCP_OK && made == HCP_RC_OK)
        made = runtime->sync(m->r.stream);
    return made ? ring_device_fail(&m->r, made, "cannot fill keys and values", err) : rc;
}

static int open_local(ring_move *m, struct hcp_err *err)
{
    const hcp_runtime *runtime = m->r.config.runtime;
    int rc, made;

    if (m->layers < 1)
        return hcp_fail(
            err, HCP_USAGE,
            "the new plan keeps no KV (0 layers), so that there is nothing to "
            "move; print it with --layers 1 or more");
    rc = ring_shape_of(&m->r, err);
    if (rc)
        return rc;
    made = runtime->stream_create(&m->r.stream);
    if (made == HCP_RC_OK)
        made = runtime->event_create(&m->r.start);
    if (made == HCP_RC_OK)
        made = runtime->event_create(&m->end);
    rc = made ? ring_device_fail(&m->r, made, "cannot create a stream", err) : HCP_OK;
    if (rc == HCP_OK)
        rc = make_parts(m, err);
    return rc ? rc : make_memory(m, err);
}

int ring_move_open(const struct ring_move_config *config, ring_move **out,
                   struct hcp_err *err)
{
    size_t n = config->to->n_ranks;
    unsigned char *all = malloc(n);
    ring_move *m = calloc(1, sizeof *m);
    int rc = all && m ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    if (m) {
        m->config = *config;
        m->layers = config->to->layers;
        m->r.config = (struct ring_config){.plan = config->to,
                                           .rank = config->rank,
                                           .comm = config->comm,
                                           .runtime = config->runtime,
                                           .watch = config->watch,
                                           .seed = config->seed};
        m->r.comm = MPI_COMM_NULL;
        m->r.schedule.m = (int32_t)n;
    }
    if (rc == HCP_OK)
        rc = open_local(m, err);
    rc = ring_all_ok(config->comm, rc, err);
    if (rc == HCP_OK) {
        memset(all, 1, n);
        ring_watch_waiting(config->watch, "waiting for all ranks to connect", -1);
        rc = ring_links_of(config->links, all, config->rank, 0, RING_MESH,
                           &m->r.transport, &m->r.comm, err);
        ring_watch_idle(config->watch);
    }
    free(all);
    if (rc) {
        ring_move_close(m);
        return rc;
    }
    *out = m;
    return HCP_OK;
}

void ring_move_close(ring_move *m)
{
    const hcp_runtime *runtime;

    if (!m)
        return;
    runtime = m->r.config.runtime;
    for (int32_t i = 0; i < m->n_parts; i++)
        runtime->release(m->parts[i].data);
    runtime->event_destroy(m->r.start);
    runtime->event_destroy(m->end);
    if (m->r.go)
        runtime->host_release(m->r.go);
    if (m->r.stream)
        runtime->stream_destroy(m->r.stream);
    free(m->kept);
    free(m->parts);
    free(m->parcels);
    free(m);
}

/* ---- a pass ---- */

/* "waiting for the KV of ranks 0, 2": the first that this rank waits for comes back. */
static int32_t waits_for(const ring_move *m, char *what, size_t size)
{
    int32_t first = -1;
    size_t at = (size_t)snprintf(what, size, "waiting for ");

    for (int32_t i = 0; i < m->n_parts && at < size; i++) {
        const struct part *p = &m->parts[i];

        if (p->what == STAYS)
            continue;
        at += (size_t)snprintf(what + at, size - at, "%srank %d to %s KV",
                               first < 0 ? "" : ", ", (int)p->peer,
                               p->what == SENT ? "take" : "send");
        first = first < 0 ? p->peer : first;
    }
    return first;
}

static int queue(ring_move *m, struct hcp_err *err)
{
    const hcp_runtime *runtime = m->r.config.runtime;
    int rc = ring_record_start(&m->r, err), made;

    if (rc == HCP_OK && m->n_parcels > 0)
        rc = hcp_transport_exchange(m->r.transport, m->parcels, m->n_parcels, m->r.stream,
                                    err);
    if (rc)
        return rc;
    made = runtime->event_record(m->end, m->r.stream);
    return made ? ring_device_fail(&m->r, made, "cannot record an event", err) : HCP_OK;
}

static int follow(ring_move *m, struct hcp_err *err)
{
    const struct timespec nap = {.tv_nsec = 20000};

    for (;;) {
        int done = 0, rc = m->r.config.runtime->event_done(m->end, &done);

        if (rc)
            return ring_device_fail(&m->r, rc, "the device failed while KV moved", err);
        if (done)
            return HCP_OK;
        if (m->r.transport && hcp_transport_check(m->r.transport, err))
            return HCP_FAILED;
        nanosleep(&nap, NULL);
    }
}

int ring_move_pass(ring_move *m, double *total_ms, struct hcp_err *err)
{
    static const char all[] = "waiting for all ranks to begin to move";
    char what[200];
    int32_t first = waits_for(m, what, sizeof what);
    int held, rc, made;

    if (m->r.failed)
        return hcp_fail(err, HCP_FAILED, "this transition has failed before");
    held = ring_may_hold(&m->r, 2);
    rc = held ? ring_hold(&m->r, err) : ring_meet(&m->r, all, err);
    if (m->n_parcels > 0)
        ring_watch_waiting(m->config.watch, what, first);
    if (rc == HCP_OK)
        rc = queue(m, err);
    ring_watch_idle(m->config.watch);
    if (rc == HCP_OK && held)
        rc = ring_meet(&m->r, all, err);
    if (held)
        ring_let_go(&m->r);
    if (rc == HCP_OK && m->n_parcels > 0)
        ring_watch_waiting(m->config.watch, what, first);
    if (rc == HCP_OK)
        rc = follow(m, err);
    ring_watch_idle(m->config.watch);
    if (rc == HCP_OK) {
        made = m->r.config.runtime->event_ms(m->r.start, m->end, total_ms);
        rc = made ? ring_device_fail(&m->r, made, "cannot read an event", err) : HCP_OK;
    }
    m->r.passes++;
    m->r.failed = rc != HCP_OK;
    if (rc == HCP_OK && m->n_parcels == 0)
        *total_ms = 0;
    return rc;
}

/* ---- is it there? ---- */

int ring_move_poison(ring_move *m, struct hcp_err *err)
{
    const hcp_runtime *runtime = m->r.config.runtime;
    int rc = HCP_RC_OK;

    for (int32_t i = 0; rc == HCP_RC_OK && i < m->n_parts; i++)
        if (m->parts[i].what == RECEIVED)
            rc = runtime->fill(m->parts[i].data, 0xff, part_bytes(m, &m->parts[i]),
                               m->r.stream);
    if (rc == HCP_RC_OK)
        rc = runtime->sync(m->r.stream);
    return rc ? ring_device_fail(&m->r, rc, "cannot poison keys and values", err)
              : HCP_OK;
}

/* Which token of the sequence the i-th of a part is. */
static int64_t position(const struct part *p, int64_t i)
{
    const hcp_segment *s = p->segments;

    while (i >= s->length)
        i -= s++->length;
    return s->offset + i;
}

/* The first number that differs. */
static void tell(const ring_move *m, const struct part *p, int32_t layer, int v,
                 const char *is, const char *should, int64_t bytes, char text[200])
{
    int64_t at = 0, dim = m->r.shape.head_dim, bh, heads = m->r.shape.kv_heads;

    while (at < bytes && is[at] == should[at])
        at++;
    at /= m->r.element_bytes;
    bh = at / (p->tokens * dim);
    snprintf(text, 200,
             "layer %d, %s of sequence %lld, KV head %lld, token %lld%s%d: not what it "
             "should be",
             (int)layer, v ? "value" : "key", (long long)(bh / heads),
             (long long)(bh % heads), (long long)position(p, at / dim % p->tokens),
             p->what == STAYS ? " that stays, rank " : " from rank ",
             (int)(p->what == STAYS ? m->config.rank : p->peer));
}

static int compare_part(ring_move *m, const struct part *p, char text[200],
                        struct hcp_err *err)
{
    const hcp_runtime *runtime = m->r.config.runtime;
    int64_t half = p->tokens * m->r.token_bytes / 2;
    char *is = malloc((size_t)half), *should = malloc((size_t)half);
    void *made = NULL;
    int rc = is && should ? runtime->alloc(&made, half) : HCP_RC_NO_MEMORY;

    for (int32_t l = 0; rc == HCP_RC_OK && l < 2 * m->layers && !*text; l++) {
        rc = fill_layer(m, p, l / 2, l % 2, made);
        if (rc == HCP_RC_OK)
            rc = runtime->to_host(should, made, half, m->r.stream);
        if (rc == HCP_RC_OK)
            rc = runtime->to_host(is, p->data + l * half, half, m->r.stream);
        if (rc == HCP_RC_OK && memcmp(is, should, (size_t)half) != 0)
            tell(m, p, l / 2, l % 2, is, should, half, text);
    }
    if (made)
        runtime->release(made);
    free(is);
    free(should);
    return rc ? ring_device_fail(&m->r, rc, "cannot compare keys and values", err)
              : HCP_OK;
}

int ring_move_compare(ring_move *m, int64_t *tokens, char text[200], struct hcp_err *err)
{
    int64_t want = m->config.to->ranks[m->config.rank].tokens;
    int rc = HCP_OK;

    *tokens = 0;
    *text = '\0';
    for (int32_t i = 0; rc == HCP_OK && i < m->n_parts; i++) {
        if (m->parts[i].what == SENT)
            continue;
        *tokens += m->parts[i].tokens;
        rc = compare_part(m, &m->parts[i], text, err);
    }
    if (rc == HCP_OK && !*text && *tokens != want)
        snprintf(text, 200, "it has %lld tokens, the new plan %lld", (long long)*tokens,
                 (long long)want);
    return rc;
}

int32_t ring_move_kv(const ring_move *m, struct ring_kv *out)
{
    int32_t n = 0;

    for (int32_t i = 0; i < m->n_parts; i++) {
        const struct part *p = &m->parts[i];

        if (p->what != SENT)
            out[n++] = (struct ring_kv){
                p->data, p->data + p->tokens * m->r.token_bytes / 2, p->tokens};
    }
    return n;
}

int64_t ring_move_bytes(const ring_move *m, int sent)
{
    int64_t bytes = 0;

    for (int32_t i = 0; i < m->n_parcels; i++)
        bytes += m->parcels[i].send == sent ? m->parcels[i].bytes : 0;
    return bytes;
}

const char *ring_move_transport(const ring_move *m, const char **version)
{
    *version = m->r.transport ? hcp_transport_version(m->r.transport) : "";
    return m->r.transport ? hcp_transport_name(m->r.transport) : "";
}
