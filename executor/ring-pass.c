/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass. On a transport that queues, everything is put on streams behind a kernel that
 * holds them until all ranks are ready, as an executor's work lies behind the layer
 * before; what a step waits for is between streams alone. On the others the host waits
 * for each piece before it computes it.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <time.h>
#include "executor/ring-internal.h"
#ifdef HAVE_CUDA
#include "profiler/spin.h"
#endif

enum { HELD_LAUNCHES = 600 }; /* a stream takes about 1,000 before a launch waits */
#define HOLD_LIMIT_NS 2000000000ull
#define SLOW_LIMIT_NS 60000000000ull

/* ---- what the watch is told ---- */

static void waiting(ring *r, const char *what, int on_rank)
{
    ring_watch_waiting(r->config.watch, what, on_rank);
}

void ring_waits_for_block(ring *r, int32_t step)
{
    const struct ring_schedule *s = &r->schedule;
    char what[120];

    int32_t from =
        s->inner > 0 && step % s->inner == 0 ? s->outer_before : s->before;

    snprintf(what, sizeof what, "waiting for the KV of rank %d from rank %d (step %d)",
             (int)s->steps[step].block_of, (int)from, (int)step);
    waiting(r, what, from);
}

static void not_waiting(ring *r)
{
    ring_watch_idle(r->config.watch);
}

/* ---- holding a pass back ---- */

static int launches(const ring *r)
{
    return (int)(3 * r->schedule.n_calls + 4 * r->schedule.n_pieces +
                 r->schedule.n_blank) +
           4 * r->schedule.m + (r->linear ? 16 : 0);
}

/* Passes are held from the second on: the first loads modules and connects, which waits
 * for the device. */
int ring_may_hold(const ring *r, int n)
{
    return r->config.runtime->kind == HCP_DEVICE_CUDA && r->passes > 0 &&
           !r->config.barrier && n <= HELD_LAUNCHES &&
           (!r->transport || hcp_transport_queues(r->transport)) &&
           (!r->go || r->go[1] == 0);
}

int ring_hold(ring *r, struct hcp_err *err)
{
#ifdef HAVE_CUDA
    const hcp_runtime *runtime = r->config.runtime;
    void *p = NULL;
    int rc = HCP_RC_OK;

    if (!r->go) {
        rc = runtime->host_alloc(&p, 2 * sizeof *r->go);
        if (rc)
            return ring_device_fail(r, rc, "cannot allocate a flag", err);
        r->go = p;
        r->go[0] = r->go[1] = 0;
    }
    if (hcp_spin_launch(r->go, ++r->ticket, HOLD_LIMIT_NS, r->go + 1, r->stream))
        return ring_device_fail(r, HCP_RC_DEVICE, "cannot launch the holding kernel",
                                err);
    return HCP_OK;
#else
    (void)r;
    return hcp_fail(err, HCP_FAILED, "no CUDA in this build");
#endif
}

void ring_let_go(ring *r)
{
    if (r->go)
        *(volatile int *)r->go = r->ticket;
}

/* ---- a pass ---- */

/* Empties the state of the rows that the own block does not write. */
static int empty_rows(ring *r)
{
    const struct ring_schedule *s = &r->schedule;
    int64_t dim = r->shape.head_dim;
    int rc = HCP_RC_OK;

    for (size_t i = 0; rc == HCP_RC_OK && i < s->n_blank; i++) {
        const hcp_finish job = {
            .batch = r->shape.batch,
            .heads = r->shape.heads,
            .rows = s->blank[i].rows,
            .head_dim = dim,
            .o = r->o + s->blank[i].row * dim,
            .o_stride = {r->shape.heads * s->tokens * dim, s->tokens * dim, dim},
            .lse = r->lse + s->blank[i].row,
            .lse_pitch = s->tokens,
            .part_dtype = HCP_FP32};

        rc = r->config.runtime->finish(&job, r->stream);
    }
    return rc;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int ring_slow(ring *r, double factor, struct hcp_err *err)
{
    r->slow = factor;
    if (factor <= 1 || r->slow_mark || r->config.runtime->kind != HCP_DEVICE_CUDA)
        return HCP_OK;
    return ring_grab(r, &r->slow_mark, sizeof *r->slow_mark, "a mark of time", err);
}

/* Around the work of a piece; the first call returns when it began, in s. */
static double slow_from(ring *r, int *rc)
{
    if (r->slow <= 1)
        return 0;
#ifdef HAVE_CUDA
    if (r->slow_mark && hcp_stretch_from_launch(r->slow_mark, r->stream))
        *rc = HCP_RC_DEVICE;
#else
    (void)rc;
#endif
    return seconds();
}

static void slow_to(ring *r, double from_s, int *rc)
{
    double until_s;

    if (r->slow <= 1 || *rc)
        return;
#ifdef HAVE_CUDA
    if (r->slow_mark) {
        if (hcp_stretch_to_launch(r->slow_mark, r->slow, SLOW_LIMIT_NS, r->stream))
            *rc = HCP_RC_DEVICE;
        return;
    }
#endif
    until_s = from_s + r->slow * (seconds() - from_s);
    while (seconds() < until_s)
        ;
}

/* Computes a piece between its two events. */
int ring_compute(ring *r, size_t piece, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    const struct ring_piece *p = &r->schedule.pieces[piece];
    int rc = runtime->event_record(r->begun[piece], r->stream);
    double from_s = rc == HCP_RC_OK ? slow_from(r, &rc) : 0;

    if (rc == HCP_RC_OK && piece == 0)
        rc = empty_rows(r);
    if (rc == HCP_RC_OK && ring_rehearses_failure(r, piece))
        rc = HCP_RC_DEVICE;
    for (size_t i = p->call; rc == HCP_RC_OK && i < p->call + p->n_calls; i++)
        rc = hcp_attention_run(r->kernels[i].attention, &r->kernels[i].args, r->stream);
    slow_to(r, from_s, &rc);
    if (rc == HCP_RC_OK)
        rc = runtime->event_record(r->done[piece], r->stream);
    return rc ? ring_device_fail(r, rc, "cannot compute a block", err) : HCP_OK;
}

static int run_step(ring *r, int32_t k, struct hcp_err *err)
{
    const struct ring_step *step = &r->schedule.steps[k];
    int queues = r->transport && hcp_transport_queues(r->transport);
    int rc = HCP_OK;

    for (size_t i = 0; rc == HCP_OK && i < step->n_pieces; i++) {
        if (step->receive) {
            if (!queues)
                ring_waits_for_block(r, k);
            rc = hcp_transport_wait(r->transport, k, (int32_t)i, r->stream, err);
            if (!queues)
                not_waiting(r);
        }
        if (rc == HCP_OK && r->transport)
            rc = hcp_transport_precede(r->transport, r->stream, err);
        if (rc == HCP_OK)
            rc = ring_compute(r, step->piece + i, err);
    }
    return rc;
}

/* Until everything queued is done, hearing of errors meanwhile. Computing is no waiting:
 * only a piece that has not begun is waited for. */
int ring_follow(ring *r, int32_t from, int32_t to, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    const struct timespec nap = {.tv_nsec = 20000};

    for (int32_t k = from; k < to; k++) {
        const struct ring_step *step = &r->schedule.steps[k];

        for (size_t i = step->piece; i < step->piece + step->n_pieces; i++) {
            int begun = 0, done = 0, told = 0;

            while (!done) {
                int rc = runtime->event_done(r->done[i], &done);

                if (rc == HCP_RC_OK && !done && !begun)
                    rc = runtime->event_done(r->begun[i], &begun);
                if (rc)
                    return ring_device_fail(r, rc, "the device failed in a pass", err);
                if (done)
                    break;
                if (!begun && !told) {
                    if (step->receive)
                        ring_waits_for_block(r, k);
                    else
                        waiting(r, "waiting for its own device to begin", r->config.rank);
                    told = 1;
                } else if (begun && told) {
                    not_waiting(r);
                    told = 0;
                }
                if ((r->transport && hcp_transport_check(r->transport, err)) ||
                    (r->outer && hcp_transport_check(r->outer, err)))
                    return HCP_FAILED;
                nanosleep(&nap, NULL);
            }
            if (told)
                not_waiting(r);
        }
    }
    return HCP_OK;
}

int ring_meet(ring *r, const char *what, struct hcp_err *err)
{
    int rc;

    if (r->schedule.m < 2)
        return HCP_OK;
    waiting(r, what, -1);
    rc = r->config.alarm ? ring_meet_unless_alarmed(r) : MPI_Barrier(r->comm);
    not_waiting(r);
    return rc == MPI_SUCCESS ? HCP_OK
                             : hcp_fail(err, HCP_FAILED, "MPI failed while %s", what);
}

int ring_record_start(ring *r, struct hcp_err *err)
{
    int rc = r->config.runtime->event_record(r->start, r->stream);

    return rc ? ring_device_fail(r, rc, "cannot record an event", err) : HCP_OK;
}

/* What a rank's own keys and values come from, if that is run: what transfers come
 * after. */
static int make_own(ring *r, void **ready, struct hcp_err *err)
{
    *ready = r->linear ? ring_linear_ready(r) : r->start;
    return r->linear ? ring_linear_run(r, 0, err) : HCP_OK;
}

static int end_transfers(ring *r, struct hcp_err *err)
{
    int rc;

    if (!r->transport)
        return HCP_OK;
    waiting(r, "waiting for its blocks to be passed on", r->schedule.after);
    rc = hcp_transport_end(r->transport, err);
    not_waiting(r);
    return rc;
}

int ring_plain_pass(ring *r, struct hcp_err *err)
{
    static const char all[] = "waiting for all ranks to begin a pass";
    int held = ring_may_hold(r, launches(r));
    int queues = r->transport && hcp_transport_queues(r->transport);
    int rc = held ? ring_hold(r, err) : ring_meet(r, all, err);
    void *ready = NULL;

    if (queues) /* NCCL may wait for the other end in a call that queues */
        waiting(r, "queueing a pass", r->schedule.after);
    if (rc == HCP_OK)
        rc = ring_record_start(r, err);
    if (rc == HCP_OK)
        rc = make_own(r, &ready, err);
    if (rc == HCP_OK && r->transport)
        rc = hcp_transport_begin(r->transport, r->transfers, r->schedule.m, ready, err);
    for (int32_t k = 0; rc == HCP_OK && k < r->schedule.m; k++) {
        rc = run_step(r, k, err);
        if (rc == HCP_OK && r->transport)
            rc = hcp_transport_done(r->transport, k, r->stream, err);
    }
    if (rc == HCP_OK && r->linear)
        rc = ring_linear_run(r, 1, err);
    if (queues)
        not_waiting(r);
    if (rc == HCP_OK && held)
        rc = ring_meet(r, all, err);
    if (held)
        ring_let_go(r);
    if (rc == HCP_OK)
        rc = ring_follow(r, 0, r->schedule.m, err);
    if (rc == HCP_OK && r->linear)
        rc = ring_linear_follow(r, 1, err);
    return rc ? rc : end_transfers(r, err);
}

static double span_of(hcp_transport *t, int32_t step, int sent)
{
    struct hcp_transfer_times times;

    if (hcp_transport_times(t, step, &times))
        return 0;
    return sent ? times.send_to_ms - times.send_from_ms
                : times.receive_to_ms - times.receive_from_ms;
}

int ring_barrier_pass(ring *r, double *transfer_ms, struct hcp_err *err)
{
    int32_t m = r->schedule.m;
    int rc = ring_meet(r, "waiting for all ranks to begin a pass", err);
    void *ready = NULL;

    *transfer_ms = 0;
    if (rc == HCP_OK)
        rc = ring_record_start(r, err);
    if (rc == HCP_OK)
        rc = make_own(r, &ready, err);
    if (rc == HCP_OK && r->linear)
        rc = ring_linear_follow(r, 0, err);
    if (rc == HCP_OK && r->config.layer)
        rc = ring_meet(r, "waiting for all ranks to make their keys and values", err);
    for (int32_t k = 0; rc == HCP_OK && k < m; k++) {
        struct hcp_transfer pair[2] = {r->transfers[k], {.slot = 0}};
        double sent, received;

        pair[0].receive = 0;
        pair[0].slot = -1;
        if (!pair[0].send)
            pair[0].n_pieces = 0;
        if (k + 1 < m && r->transfers[k + 1].receive) {
            pair[1] = r->transfers[k + 1];
            pair[1].send = 0;
        }
        rc = hcp_transport_begin(r->transport, pair, 2, ready, err);
        if (rc == HCP_OK)
            rc = hcp_transport_precede(r->transport, r->stream, err);
        for (size_t i = 0; rc == HCP_OK && i < r->schedule.steps[k].n_pieces; i++)
            rc = ring_compute(r, r->schedule.steps[k].piece + i, err);
        if (rc == HCP_OK)
            rc = hcp_transport_done(r->transport, 0, r->stream, err);
        if (rc == HCP_OK && pair[1].receive)
            ring_waits_for_block(r, k + 1);
        for (int32_t i = 0; rc == HCP_OK && pair[1].receive && i < pair[1].n_pieces; i++)
            rc = hcp_transport_wait(r->transport, 1, i, r->stream, err);
        not_waiting(r);
        if (rc == HCP_OK)
            rc = hcp_transport_done(r->transport, 1, r->stream, err);
        if (rc == HCP_OK)
            rc = ring_follow(r, k, k + 1, err);
        if (rc == HCP_OK)
            rc = end_transfers(r, err);
        if (rc == HCP_OK && k + 1 < m)
            rc = ring_meet(r, "waiting for all ranks to end a step", err);
        if (rc == HCP_OK) {
            sent = pair[0].send ? span_of(r->transport, 0, 1) : 0;
            received = pair[1].receive ? span_of(r->transport, 1, 0) : 0;
            *transfer_ms += fmax(sent, received);
        }
    }
    if (rc == HCP_OK && r->config.layer)
        rc = ring_meet(r, "waiting for all ranks to end the last step", err);
    if (rc == HCP_OK && r->linear)
        rc = ring_linear_run(r, 1, err);
    return rc == HCP_OK && r->linear ? ring_linear_follow(r, 1, err) : rc;
}
