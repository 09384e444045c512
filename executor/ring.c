/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring from its opening to its end, and what its passes took.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "executor/decode.h"
#include "executor/schedule-documents.h"

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
    int decode = 0, rc = HCP_OK;

    if (!present || !r)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    if (rc == HCP_OK) {
        r->config = *config;
        r->comm = MPI_COMM_NULL;
        r->meeting = MPI_REQUEST_NULL;
        r->fails_after = SIZE_MAX;
        decode = ring_plan_is_decode(plan);
        rc = decode ? ring_decode_schedule(plan, config->rank, &r->schedule, err)
             : config->documents
                 ? ring_schedule_documents(config->documents, config->rank,
                                           &r->schedule, err)
             : config->chunk
                 ? ring_schedule_chunk(plan, config->chunk->offset, config->chunk->tokens,
                                       config->rank, &r->schedule, err)
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
                      "rings of rings are run without a barrier and without the rest of "
                      "a layer; leave --barrier and --model out");
    if (rc == HCP_OK && config->barrier && plan->late_kv)
        rc = hcp_fail(err, HCP_USAGE,
                      "a plan with late KV has no steps that all ranks share; leave "
                      "--barrier out");
    if (rc == HCP_OK && config->layer && plan->late_kv)
        rc = hcp_fail(err, HCP_USAGE,
                      "late KV is received while a rank still makes its own, which this "
                      "version does not run; leave the layer out");
    if (rc == HCP_OK) {
        rc = decode ? ring_decode_open(r, err) : ring_memory_open(r, err);
        if (rc && config->broken)
            *config->broken = *err;
    }
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
         : by_steps ? ring_barrier_pass(r, &times.transfer_ms, err)
                    : ring_plain_pass(r, err);
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
