/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass is work on two streams, one for each direction, tied to each other and to the
 * caller's by events. Waiting for an event that has not been recorded does nothing, so a
 * receive is queued only when the event that frees its buffer is: at begin() for the
 * first blocks, in done() of the block before for the others. A block is sent on by what
 * is queued right behind its receive.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "profiler/transport-nccl.h"

enum { NAP_NS = 20000, CHECK_EVERY = 16 }; /* naps between questions to NCCL */

struct step_events {
    void *receive_from, *send_from, *send_to, *done;
};

/* How far one direction is, as far as has been looked. */
struct follower {
    int32_t at;     /* steps that are over, in the order of its direction */
    double since_s; /* when its transfer was first seen to wait for the neighbour; 0 */
};

struct nccl_transport {
    struct hcp_transport base;
    const hcp_nccl_api *api;
    /* Of the links (a cancel comes from another thread) and what is below. */
    pthread_mutex_t lock;
    struct nccl_link in, out;
    int passing, failed;
    struct hcp_err failure;
    struct follower receiving, sending;

    atomic_int cancelled;
    void *start;
    int32_t next_receive;       /* first step not looked at for queueing */
    /* Where each stream is about to launch the transfer queued last; new: since the last
     * precede(). */
    struct {
        void *event;
        int new;
    } launching[2];
    struct step_events *events; /* [steps] */
    int32_t steps_room;
    void **arrived; /* [pieces] events */
    int32_t pieces_room;
};

static int failed_device(struct nccl_transport *n, int rc, const char *what,
                         struct hcp_err *err)
{
    return hcp_transport_device_check(&n->base, rc, what, err);
}

static int nccl_open(hcp_transport *t, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    char why[256] = "";
    int rc = HCP_OK, made;
    pthread_mutex_init(&n->lock, NULL);
    n->api = hcp_nccl_load(why, sizeof why);
    if (!n->api)
        rc = hcp_fail(err, HCP_FAILED, "nccl transport: %s", why);
    if (rc == HCP_OK) {
        made = t->runtime->stream_create_high(&n->in.stream);
        if (made == HCP_RC_OK)
            made = t->runtime->stream_create_high(&n->out.stream);
        for (int i = 0; made == HCP_RC_OK && i < 2; i++)
            made = t->runtime->event_create(&n->launching[i].event);
        rc = failed_device(n, made, "create a stream", err);
    }
    rc = hcp_transport_agree(t, rc, err);
    if (rc != HCP_OK)
        return rc;
    snprintf(t->version, sizeof t->version, "%s", n->api->version_text);
    return hcp_nccl_connect(t, n->api, &n->in, &n->out, err);
}

/* ---- queueing ------------------------------------------------------------- */

static int grow_steps(struct nccl_transport *n, struct hcp_err *err)
{
    const hcp_runtime *run = n->base.runtime;
    int32_t want = n->base.n_steps;
    if (want <= n->steps_room)
        return HCP_OK;
    struct step_events *grown = realloc(n->events, (size_t)want * sizeof *grown);
    if (!grown)
        return hcp_fail(err, HCP_FAILED, "nccl transport: out of memory");
    n->events = grown;
    for (; n->steps_room < want; n->steps_room++) {
        struct step_events *e = &grown[n->steps_room];
        memset(e, 0, sizeof *e);
        int rc = run->event_create(&e->receive_from);
        if (rc == HCP_RC_OK)
            rc = run->event_create(&e->send_from);
        if (rc == HCP_RC_OK)
            rc = run->event_create(&e->send_to);
        if (rc == HCP_RC_OK)
            rc = run->event_create(&e->done);
        if (failed_device(n, rc, "create an event", err) != HCP_OK) {
            n->steps_room++; /* close() destroys those that are there */
            return HCP_FAILED;
        }
    }
    return HCP_OK;
}

static int grow_pieces(struct nccl_transport *n, struct hcp_err *err)
{
    int32_t want = n->base.n_pieces;
    if (want <= n->pieces_room)
        return HCP_OK;
    void **grown = realloc(n->arrived, (size_t)want * sizeof *grown);
    if (!grown)
        return hcp_fail(err, HCP_FAILED, "nccl transport: out of memory");
    n->arrived = grown;
    for (; n->pieces_room < want; n->pieces_room++)
        if (failed_device(n, n->base.runtime->event_create(&grown[n->pieces_room]),
                          "create an event", err) != HCP_OK)
            return HCP_FAILED;
    return HCP_OK;
}

/* Notes that the transfer queued next is about to be launched: the first since the last
 * precede(), for those behind it in the stream wait until it is over. */
static int mark(struct nccl_transport *n, const struct nccl_link *l)
{
    if (n->launching[l->sends].new)
        return HCP_RC_OK;
    n->launching[l->sends].new = 1;
    return n->base.runtime->event_record(n->launching[l->sends].event, l->stream);
}

/* One message on its link. Under lock. */
static int move(struct nccl_transport *n, struct nccl_link *l,
                const struct hcp_message *piece, struct hcp_err *err)
{
    ncclResult_t rc;
    if (n->cancelled || !l->comm)
        return hcp_fail(err, HCP_FAILED, "nccl transport: cancelled");
    rc = l->sends ? n->api->send(piece->data, (size_t)piece->bytes, ncclInt8, l->peer,
                                 l->comm, l->stream)
                  : n->api->recv(piece->data, (size_t)piece->bytes, ncclInt8, l->peer,
                                 l->comm, l->stream);
    return hcp_nccl_check(n->api, l, rc, err);
}

/* Sends piece i of step k once `arrived` (NULL: it is there) has happened. */
static int queue_send(struct nccl_transport *n, int32_t k, int32_t i, void *arrived,
                      struct hcp_err *err)
{
    const hcp_runtime *run = n->base.runtime;
    const struct hcp_transfer *f = &n->base.steps[k].transfer;
    int rc = arrived ? run->event_wait(arrived, n->out.stream) : HCP_RC_OK;
    if (rc == HCP_RC_OK && i == 0)
        rc = run->event_record(n->events[k].send_from, n->out.stream);
    /* Others have the device to themselves when their block arrives. */
    if (rc == HCP_RC_OK && !arrived && i == 0 && n->base.own_after == 0)
        rc = mark(n, &n->out);
    if (failed_device(n, rc, "queue a send", err) != HCP_OK ||
        move(n, &n->out, &f->pieces[i], err) != HCP_OK)
        return HCP_FAILED;
    if (i < f->n_pieces - 1)
        return HCP_OK;
    return failed_device(n, run->event_record(n->events[k].send_to, n->out.stream),
                         "queue a send", err);
}

static int queue_own(struct nccl_transport *n, struct hcp_err *err)
{
    for (int32_t i = 0; i < n->base.steps[0].transfer.n_pieces; i++)
        if (queue_send(n, 0, i, NULL, err) != HCP_OK)
            return HCP_FAILED;
    return HCP_OK;
}

static int queue_receive(struct nccl_transport *n, int32_t k, struct hcp_err *err)
{
    const hcp_runtime *run = n->base.runtime;
    const struct transport_step *s = &n->base.steps[k];
    int rc = HCP_RC_OK;
    if (s->previous >= 0) {
        rc = run->event_wait(n->events[s->previous].done, n->in.stream);
        /* Not after the wait for its sending, which computing must not wait for; nor
         * where other receives than that of the block computed next are before it. */
        if (rc == HCP_RC_OK && k - s->previous <= 2)
            rc = mark(n, &n->in);
        if (rc == HCP_RC_OK && n->base.steps[s->previous].transfer.send)
            rc = run->event_wait(n->events[s->previous].send_to, n->in.stream);
    }
    if (rc == HCP_RC_OK)
        rc = run->event_record(n->events[k].receive_from, n->in.stream);
    if (rc == HCP_RC_OK && s->previous < 0)
        rc = mark(n, &n->in);
    if (failed_device(n, rc, "queue a receive", err) != HCP_OK)
        return HCP_FAILED;
    for (int32_t i = 0; i < s->transfer.n_pieces; i++) {
        void *arrived = n->arrived[s->first + i];
        if (move(n, &n->in, &s->transfer.pieces[i], err) != HCP_OK ||
            failed_device(n, run->event_record(arrived, n->in.stream), "queue a receive",
                          err) != HCP_OK)
            return HCP_FAILED;
        if (s->transfer.send && queue_send(n, k, i, arrived, err) != HCP_OK)
            return HCP_FAILED;
    }
    return k == n->base.own_after ? queue_own(n, err) : HCP_OK;
}

/* Receives whose buffer is free once steps before n_done are done. Under lock. */
static int queue_receives(struct nccl_transport *n, int32_t n_done, struct hcp_err *err)
{
    for (; n->next_receive < n->base.n_steps; n->next_receive++) {
        const struct transport_step *s = &n->base.steps[n->next_receive];
        if (!s->transfer.receive)
            continue;
        if (s->previous >= n_done)
            break;
        if (queue_receive(n, n->next_receive, err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

/* Keeps a failure for check(). Under lock. */
static int keep(struct nccl_transport *n, int rc, const struct hcp_err *why)
{
    if (rc != HCP_OK && !n->failed) {
        n->failed = 1;
        n->failure = *why;
    }
    return rc;
}

static int nccl_begin(hcp_transport *t, void *start, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    const struct follower first = {0, 0};
    struct hcp_err why = {0};
    int rc = grow_steps(n, err) == HCP_OK ? grow_pieces(n, err) : HCP_FAILED;
    if (rc != HCP_OK)
        return rc;
    pthread_mutex_lock(&n->lock);
    n->start = start;
    n->passing = 1;
    n->next_receive = 0;
    /* What no precede() asked for was of the last pass, and is long over. */
    n->launching[0].new = n->launching[1].new = 0;
    n->receiving = n->sending = first;
    int made = t->runtime->event_wait(start, n->in.stream);
    if (made == HCP_RC_OK)
        made = t->runtime->event_wait(start, n->out.stream);
    rc = failed_device(n, made, "wait for the start", &why);
    if (rc == HCP_OK && t->own_after == 0)
        rc = queue_own(n, &why);
    if (rc == HCP_OK)
        rc = queue_receives(n, 0, &why);
    keep(n, rc, &why);
    pthread_mutex_unlock(&n->lock);
    return rc == HCP_OK ? rc : hcp_fail(err, rc, "%s", why.text);
}

static int nccl_wait(hcp_transport *t, int32_t step, int32_t piece, void *stream,
                     struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    void *arrived = n->arrived[t->steps[step].first + piece];
    return failed_device(n, t->runtime->event_wait(arrived, stream), "wait for a block",
                         err);
}

static int nccl_precede(hcp_transport *t, void *stream, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    int rc = HCP_RC_OK;
    for (int i = 0; i < 2; i++) {
        if (rc == HCP_RC_OK && n->launching[i].new)
            rc = t->runtime->event_wait(n->launching[i].event, stream);
        n->launching[i].new = 0;
    }
    return failed_device(n, rc, "wait for a launch", err);
}

static int nccl_done(hcp_transport *t, int32_t step, void *stream, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    struct hcp_err why = {0};
    pthread_mutex_lock(&n->lock);
    int rc = failed_device(n, t->runtime->event_record(n->events[step].done, stream),
                           "record an event", &why);
    if (rc == HCP_OK)
        rc = queue_receives(n, step + 1, &why);
    keep(n, rc, &why);
    pthread_mutex_unlock(&n->lock);
    return rc == HCP_OK ? rc : hcp_fail(err, rc, "%s", why.text);
}

/* ---- following ------------------------------------------------------------ */

/* Moves a follower on. A transfer that has begun and is not over waits for the
 * neighbour, for at most the time-out. Under lock. */
static int follow(struct nccl_transport *n, struct follower *f, const struct nccl_link *l,
                  struct hcp_err *err)
{
    const hcp_runtime *run = n->base.runtime;
    for (; f->at < n->base.n_steps; f->at++, f->since_s = 0) {
        int32_t k = l->sends ? transport_sends(&n->base, f->at) : f->at;
        const struct transport_step *s = &n->base.steps[k];
        const struct step_events *e = &n->events[k];
        int begun = 0, over = 0, rc;
        if (!(l->sends ? s->transfer.send : s->transfer.receive))
            continue;
        /* Events of the last pass until it is queued. */
        if (s->transfer.receive && k >= n->next_receive)
            return HCP_OK;
        if (k == 0 && n->base.own_after > 0 && n->base.own_after >= n->next_receive)
            return HCP_OK;
        rc = run->event_done(l->sends ? e->send_to
                                      : n->arrived[s->first + s->transfer.n_pieces - 1],
                             &over);
        if (rc == HCP_RC_OK && !over)
            rc = run->event_done(l->sends ? e->send_from : e->receive_from, &begun);
        if (failed_device(n, rc, "transfer", err) != HCP_OK)
            return HCP_FAILED;
        if (over)
            continue;
        if (!begun)
            return HCP_OK;
        double now = hcp_transport_now();
        if (f->since_s == 0)
            f->since_s = now;
        if (now - f->since_s < n->base.timeout_s)
            return HCP_OK;
        return hcp_fail(err, HCP_FAILED,
                        l->sends ? "rank %d took no data for %g s (step %d)"
                                 : "no data from rank %d for %g s (step %d)",
                        l->peer_name, n->base.timeout_s, k);
    }
    return HCP_OK;
}

static int ask_nccl(struct nccl_transport *n, const struct nccl_link *l,
                    struct hcp_err *err)
{
    ncclResult_t async = ncclSuccess, rc;
    if (!l->comm)
        return HCP_OK;
    rc = n->api->async_error(l->comm, &async);
    return hcp_nccl_check(n->api, l, rc == ncclSuccess ? async : rc, err);
}

/* Under lock. */
static int look(struct nccl_transport *n, int ask, struct hcp_err *err)
{
    struct hcp_err why = {0};
    int rc = HCP_OK;
    if (n->failed)
        return hcp_fail(err, HCP_FAILED, "%s", n->failure.text);
    if (n->cancelled)
        return hcp_fail(err, HCP_FAILED, "nccl transport: cancelled");
    if (ask && ask_nccl(n, &n->in, &why) + ask_nccl(n, &n->out, &why) != HCP_OK)
        rc = HCP_FAILED;
    if (rc == HCP_OK && n->passing &&
        (follow(n, &n->receiving, &n->in, &why) != HCP_OK ||
         follow(n, &n->sending, &n->out, &why) != HCP_OK))
        rc = HCP_FAILED;
    keep(n, rc, &why);
    return rc == HCP_OK ? rc : hcp_fail(err, rc, "%s", why.text);
}

static int nccl_check(hcp_transport *t, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    pthread_mutex_lock(&n->lock);
    int rc = look(n, 1, err);
    pthread_mutex_unlock(&n->lock);
    return rc;
}

static int nccl_end(hcp_transport *t, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    const struct timespec nap = {0, NAP_NS};
    for (unsigned turn = 0;; turn++) {
        pthread_mutex_lock(&n->lock);
        int rc = look(n, turn % CHECK_EVERY == 0, err);
        int over = n->receiving.at >= t->n_steps && n->sending.at >= t->n_steps;
        n->passing = !over;
        pthread_mutex_unlock(&n->lock);
        if (rc != HCP_OK || over)
            return rc;
        nanosleep(&nap, NULL);
    }
}

static int nccl_times(hcp_transport *t, int32_t step, struct hcp_transfer_times *out)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    const struct transport_step *s = &t->steps[step];
    const struct step_events *e = &n->events[step];
    int rc = HCP_RC_OK;
    if (s->transfer.receive) {
        void *last = n->arrived[s->first + s->transfer.n_pieces - 1];
        rc = t->runtime->event_ms(n->start, e->receive_from, &out->receive_from_ms);
        if (rc == HCP_RC_OK)
            rc = t->runtime->event_ms(n->start, last, &out->receive_to_ms);
    }
    if (rc == HCP_RC_OK && s->transfer.send) {
        rc = t->runtime->event_ms(n->start, e->send_from, &out->send_from_ms);
        if (rc == HCP_RC_OK)
            rc = t->runtime->event_ms(n->start, e->send_to, &out->send_to_ms);
    }
    return rc == HCP_RC_OK ? HCP_OK : HCP_FAILED;
}

/* ---- the end -------------------------------------------------------------- */

static void abort_link(struct nccl_transport *n, struct nccl_link *l)
{
    ncclComm_t comm = l->comm;
    l->comm = NULL;
    if (comm)
        n->api->abort(comm);
}

/* The caller may be stuck inside NCCL with the lock, which only an abort ends. */
static void nccl_cancel(hcp_transport *t)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    struct timespec until;
    n->cancelled = 1;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int locked = pthread_mutex_timedlock(&n->lock, &until) == 0;
    abort_link(n, &n->in);
    abort_link(n, &n->out);
    if (locked)
        pthread_mutex_unlock(&n->lock);
}

/* Aborted communicators leave nothing under way. */
static int nccl_settle(hcp_transport *t, struct hcp_err *err)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    (void)err;
    t->runtime->sync(n->in.stream);
    t->runtime->sync(n->out.stream);
    return HCP_OK;
}

static void nccl_close(hcp_transport *t)
{
    struct nccl_transport *n = (struct nccl_transport *)t;
    const hcp_runtime *run = t->runtime;
    int in_first = n->in.phase < n->out.phase;
    if (t->failed) {
        abort_link(n, &n->in);
        abort_link(n, &n->out);
    } else {
        hcp_nccl_disconnect(n->api, in_first ? &n->in : &n->out);
        hcp_nccl_disconnect(n->api, in_first ? &n->out : &n->in);
    }
    for (int32_t k = 0; k < n->steps_room; k++) {
        run->event_destroy(n->events[k].receive_from);
        run->event_destroy(n->events[k].send_from);
        run->event_destroy(n->events[k].send_to);
        run->event_destroy(n->events[k].done);
    }
    for (int32_t i = 0; i < n->pieces_room; i++)
        run->event_destroy(n->arrived[i]);
    for (int i = 0; i < 2; i++)
        run->event_destroy(n->launching[i].event);
    run->stream_destroy(n->in.stream);
    run->stream_destroy(n->out.stream);
    free(n->events);
    free(n->arrived);
    pthread_mutex_destroy(&n->lock);
}

const struct transport_ops hcp_transport_nccl_ops = {
    .name = "nccl",
    .queues = 1,
    .size = sizeof(struct nccl_transport),
    .open = nccl_open,
    .begin = nccl_begin,
    .wait = nccl_wait,
    .precede = nccl_precede,
    .done = nccl_done,
    .end = nccl_end,
    .times = nccl_times,
    .check = nccl_check,
    .cancel = nccl_cancel,
    .settle = nccl_settle,
    .close = nccl_close,
};
