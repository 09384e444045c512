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
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "executor/decode.h"
#include "executor/schedule-documents.h"
#ifdef HAVE_CUDA
#include "profiler/spin.h"
#endif

enum { HELD_LAUNCHES = 600 }; /* a stream takes about 1,000 before a launch waits */
#define HOLD_LIMIT_NS 2000000000ull

/* Transports and the communicator of the ranks with tokens. */
static int open_links(ring *r, const unsigned char *present, struct hcp_err *err)
{
    int32_t index = r->schedule.index, inner = r->config.plan->inner_ranks;
    hcp_transport *none;
    MPI_Comm comm;
    int rc;

    if (ring_plan_is_decode(r->config.plan)) {
        ring_watch_waiting(r->config.watch, "waiting for all ranks to connect", -1);
        rc = ring_links_of(r->config.links, present, index, 0, RING_MESH, &r->transport,
                           &r->comm, err);
        ring_watch_idle(r->config.watch);
        return rc;
    }
    if (inner == 0)
        return ring_links_of(r->config.links, present, index, 0, RING_ALL, &r->transport,
                             &r->comm, err);
    rc = ring_links_of(r->config.links, present, index, inner, RING_ALL, &none, &r->comm,
                       err);
    if (rc == HCP_OK)
        rc = ring_links_of(r->config.links, present, index, inner, RING_INNER,
                           &r->transport, &comm, err);
    if (rc == HCP_OK)
        rc = ring_links_of(r->config.links, present, index, inner, RING_OUTER, &r->outer,
                           &comm, err);
    return rc;
}

int ring_open(const struct ring_config *config, ring **out, struct hcp_err *err)
{
    const hcp_plan *plan = config->plan;
    unsigned char *present = calloc(plan->n_ranks, 1);
    ring *r = calloc(1, sizeof *r);
    int32_t ring_size;
    int decode = 0, rc = present && r ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    if (rc == HCP_OK) {
        r->config = *config;
        r->comm = MPI_COMM_NULL;
        decode = ring_plan_is_decode(plan);
        rc = decode ? ring_decode_schedule(plan, config->rank, &r->schedule, err)
             : config->documents
                 ? ring_schedule_documents(config->documents, config->rank, &r->schedule, err)
                 : ring_schedule_make(plan, config->rank, config->sub_blocks,
                                         &r->schedule, err);
    }
    ring_size = plan->inner_ranks > 0 ? plan->inner_ranks : r->schedule.m;
    if (rc == HCP_OK && config->buffers == 1 && ring_size > 2 && !decode)
        rc = hcp_fail(err, HCP_USAGE,
                      "one buffer cannot pass blocks on in a ring of %d ranks; use "
                      "--buffers 2 or more",
                      (int)ring_size);
    if (rc == HCP_OK && plan->inner_ranks > 0 && (config->barrier || config->layer))
        rc = hcp_fail(err, HCP_USAGE,
                      "rings of rings are run without a barrier and without the rest of a "
                      "layer; leave --barrier and --model out");
    if (rc == HCP_OK && config->barrier && plan->late_kv)
        rc = hcp_fail(err, HCP_USAGE,
                      "a plan with late KV has no steps that all ranks share; leave "
                      "--barrier out");
    if (rc == HCP_OK && config->layer && plan->late_kv)
        rc = hcp_fail(err, HCP_USAGE,
                      "late KV is received while a rank still makes its own, which this "
                      "version does not run; leave the layer out");
    if (rc == HCP_OK)
        rc = decode ? ring_decode_open(r, err) : ring_memory_open(r, err);
    rc = ring_all_ok(config->comm, rc, err);
    if (rc == HCP_OK) {
        for (size_t i = 0; i < plan->n_ranks; i++)
            present[i] = plan->ranks[i].tokens > 0 || plan->ranks[i].kv_tokens > 0;
        rc = open_links(r, present, err);
    }
    free(present);
    if (rc) {
        ring_close(r);
        return rc;
    }
    *out = r;
    return HCP_OK;
}

void ring_close(ring *r)
{
    if (!r)
        return;
    if (r->config.runtime) {
        ring_decode_close(r);
        ring_memory_close(r);
    }
    ring_schedule_free(&r->schedule);
    free(r);
}

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

void ring_slow(ring *r, double factor)
{
    r->slow = factor;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Computes a piece between its two events. */
int ring_compute(ring *r, size_t piece, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    const struct ring_piece *p = &r->schedule.pieces[piece];
    double from = r->slow > 1 ? seconds() : 0, until;
    int rc = runtime->event_record(r->begun[piece], r->stream);

    if (rc == HCP_RC_OK && piece == 0)
        rc = empty_rows(r);
    for (size_t i = p->call; rc == HCP_RC_OK && i < p->call + p->n_calls; i++)
        rc = hcp_attention_run(r->kernels[i].attention, &r->kernels[i].args, r->stream);
    for (until = r->slow > 1 ? from + r->slow * (seconds() - from) : 0;
         r->slow > 1 && seconds() < until;)
        ;
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
    rc = MPI_Barrier(r->comm);
    not_waiting(r);
    return rc == MPI_SUCCESS ? HCP_OK
                             : hcp_fail(err, HCP_FAILED, "MPI failed while %s", what);
}

int ring_record_start(ring *r, struct hcp_err *err)
{
    int rc = r->config.runtime->event_record(r->start, r->stream);

    return rc ? ring_device_fail(r, rc, "cannot record an event", err) : HCP_OK;
}

/* What a rank's own keys and values come from, if that is run: what transfers come after. */
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

static int pass(ring *r, struct hcp_err *err)
{
    static const char all[] = "waiting for all ranks to begin a pass";
    int held = ring_may_hold(r, launches(r)), queues = r->transport && hcp_transport_queues(r->transport);
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

/* A pass with a barrier after every step: a block is passed on while it is computed, and
 * nothing further. *transfer_ms: the sum over steps of the longer of both directions. */
static int pass_by_steps(ring *r, double *transfer_ms, struct hcp_err *err)
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
    if (rc == HCP_OK && r->linear)
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
    if (rc == HCP_OK && r->linear)
        rc = ring_meet(r, "waiting for all ranks to end the last step", err);
    if (rc == HCP_OK && r->linear)
        rc = ring_linear_run(r, 1, err);
    return rc == HCP_OK && r->linear ? ring_linear_follow(r, 1, err) : rc;
}

/* ---- times ---- */

/* Of the block of a step (outer: as it goes from node to node), as of the transport. */
static int times_of(const ring *r, int32_t k, int outer, struct hcp_transfer_times *out)
{
    if (!r->outer)
        return outer ? HCP_FAILED : hcp_transport_times(r->transport, k, out);
    *out = r->level_times[outer ? r->schedule.m + k : k];
    return HCP_OK;
}

struct span {
    double from, to;
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* Length of the union of what was received and sent. */
static int transfer_time(ring *r, double *out, struct hcp_err *err)
{
    int32_t m = r->schedule.m;
    struct span *spans = calloc(4 * (size_t)m, sizeof *spans);
    double end = -INFINITY;
    size_t n = 0;

    if (!spans)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int32_t k = 0; k < 2 * m; k++) {
        struct hcp_transfer_times t;

        if (times_of(r, k % m, k >= m, &t))
            continue;
        if (t.receive_to_ms > t.receive_from_ms)
            spans[n++] = (struct span){t.receive_from_ms, t.receive_to_ms};
        if (t.send_to_ms > t.send_from_ms)
            spans[n++] = (struct span){t.send_from_ms, t.send_to_ms};
    }
    qsort(spans, n, sizeof *spans, by_start);
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].to > end)
            *out += spans[i].to - fmax(spans[i].from, end);
        end = fmax(end, spans[i].to);
    }
    free(spans);
    return HCP_OK;
}

/* Reads the events of the last pass. */
static int read_times(ring *r, struct ring_times *out, double (*step_ms)[4],
                      struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    double linear[2] = {0, 0}, ready = 0, end = 0;
    int rc = HCP_RC_OK;

    if (r->linear && ring_linear_times(r, linear, &ready, &end, err))
        return err->code;
    out->linear_ms = out->compute_ms = linear[0] + linear[1];
    out->total_ms = end;
    for (int32_t k = 0; k < r->schedule.m; k++) {
        const struct ring_step *step = &r->schedule.steps[k];
        double busy = 0, first = NAN, last = NAN;

        for (size_t i = step->piece; i < step->piece + step->n_pieces; i++) {
            double begun, done;

            rc = runtime->event_ms(r->start, r->begun[i], &begun);
            if (rc == HCP_RC_OK)
                rc = runtime->event_ms(r->start, r->done[i], &done);
            if (rc)
                return ring_device_fail(r, rc, "cannot read an event", err);
            busy += done - begun;
            if (isnan(first))
                first = begun;
            last = done;
            out->total_ms = fmax(out->total_ms, done);
        }
        out->compute_ms += busy;
        if (step_ms) {
            struct hcp_transfer_times t = {.receive_to_ms = NAN};

            if (step->receive && !r->config.barrier)
                times_of(r, k, r->schedule.inner > 0 && k % r->schedule.inner == 0, &t);
            step_ms[k][0] = k == 0 ? ready : ready + t.receive_to_ms;
            step_ms[k][1] = first;
            step_ms[k][2] = busy;
            step_ms[k][3] = last;
        }
    }
    out->wait_ms = out->total_ms - out->compute_ms;
    return HCP_OK;
}

int ring_pass(ring *r, struct ring_times *out, double (*step_ms)[4], struct hcp_err *err)
{
    struct ring_times times = {0};
    int by_steps = r->config.barrier && r->transport, rc;

    if (r->schedule.index < 0) {
        *out = times;
        return HCP_OK;
    }
    if (r->failed)
        return hcp_fail(err, HCP_FAILED, "this ring has failed before");
    rc = r->decode ? ring_decode_pass(r, &times, err)
         : r->outer ? ring_levels_pass(r, err)
         : by_steps ? pass_by_steps(r, &times.transfer_ms, err)
                    : pass(r, err);
    if (rc == HCP_OK && !r->decode)
        rc = read_times(r, &times, step_ms, err);
    if (rc == HCP_OK && r->transport && !by_steps && !r->decode)
        rc = transfer_time(r, &times.transfer_ms, err);
    r->failed = rc != HCP_OK;
    r->passes++;
    if (rc == HCP_OK)
        *out = times;
    return rc;
}

/* ---- what others may see ---- */

void ring_tensors_of(const ring *r, struct ring_tensors *out)
{
    int64_t half = r->schedule.kv_tokens * r->token_bytes / 2;

    *out = (struct ring_tensors){r->q, r->own, r->own ? r->own + half : NULL, r->o,
                                 r->lse};
    if (r->decode)
        ring_decode_result(r, &out->o, &out->lse);
}

const struct ring_schedule *ring_schedule_of(const ring *r)
{
    return &r->schedule;
}

const struct ring_config *ring_config_of(const ring *r)
{
    return &r->config;
}

void *ring_stream_of(const ring *r)
{
    return r->stream;
}

const char *ring_transport_name(const ring *r)
{
    return r->transport ? hcp_transport_name(r->transport) : "";
}

const char *ring_transport_version(const ring *r)
{
    return r->transport ? hcp_transport_version(r->transport) : "";
}

void ring_describe(const ring *r, char *text, size_t size)
{
    size_t largest = 0;
    double area = -1;

    snprintf(text, size, "no tokens");
    for (size_t i = 0; i < r->schedule.n_calls; i++) {
        const struct ring_call *c = &r->schedule.calls[i];
        double pairs = (double)c->rows * (double)c->keys;

        if (pairs > area) {
            area = pairs;
            largest = i;
        }
    }
    if (area >= 0)
        hcp_attention_describe(r->kernels[largest].attention, text, size);
}
