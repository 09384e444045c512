/* SPDX-License-Identifier: Apache-2.0
 *
 * One exchange is a pass of the executor's own transport: block 0, ours, goes to the
 * other rank while its block comes here. One way it is what the executor moves KV with,
 * an exchange of a mesh, but for copy engines, which have none. Where the transport
 * queues its work on streams (NCCL, copy engines), a kernel holds the stream until both
 * ranks have queued theirs, as in a ring whose passes are queued ahead: launching does
 * not count.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "profiler/link-rank.h"

/* Bytes of the two blocks: what a rank sends tells it from the other. */
enum { PATTERN = 0x3e, LOOKED_AT = 4096, NAP_NS = 20000 };

struct link_meter {
    const struct link_plan *plan;
    int64_t bytes; /* room of each block */
    void *send, *receive, *start, *end, *stream; /* end: of an exchange of a mesh */
    struct link_hold hold;
};

static int device_fail(const struct link_meter *m, int rc, const char *doing,
                       struct hcp_err *err)
{
    const char *why = rc == HCP_RC_OK ? "" : m->plan->runtime->last_error();
    return rc == HCP_RC_OK ? HCP_OK
                           : hcp_fail(err, HCP_FAILED, "cannot %s: %s", doing,
                                      *why ? why : "the device failed");
}

/* ---- a pass, of a ring's transport ---- */

static int queue_pass(struct link_meter *m, int64_t bytes, struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    struct hcp_message out = {m->send, bytes}, in = {m->receive, bytes};
    const struct hcp_transfer steps[2] = {
        {.send = link_sends(p), .slot = -1, .pieces = &out, .n_pieces = 1},
        {.receive = 1, .slot = 0, .pieces = &in, .n_pieces = 1}};
    int n = 1 + link_receives(p);
    int rc = hcp_transport_begin(p->transport, steps, n, m->start, err);
    if (rc == HCP_OK)
        rc = hcp_transport_done(p->transport, 0, m->stream, err);
    if (rc == HCP_OK && n > 1)
        rc = hcp_transport_wait(p->transport, 1, 0, m->stream, err);
    if (rc == HCP_OK && n > 1)
        rc = hcp_transport_done(p->transport, 1, m->stream, err);
    return rc;
}

static int end_pass(struct link_meter *m, double *ms, struct hcp_err *err)
{
    struct hcp_transfer_times times;
    int rc = hcp_transport_end(m->plan->transport, err);
    if (rc == HCP_OK && link_receives(m->plan)) {
        rc = hcp_transport_times(m->plan->transport, 1, &times);
        *ms = times.receive_to_ms;
    }
    return rc;
}

/* ---- an exchange, of a mesh ---- */

static int queue_exchange(struct link_meter *m, int64_t bytes, struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    struct hcp_parcel parcels[2];
    int32_t n = 0;
    if (link_receives(p))
        parcels[n++] = (struct hcp_parcel){!p->rank, 0, m->receive, bytes};
    if (link_sends(p))
        parcels[n++] = (struct hcp_parcel){!p->rank, 1, m->send, bytes};
    int rc = hcp_transport_exchange(p->transport, parcels, n, m->stream, err);
    return rc == HCP_OK ? device_fail(m, p->runtime->event_record(m->end, m->stream),
                                      "record an event", err)
                        : rc;
}

static int end_exchange(struct link_meter *m, double *ms, struct hcp_err *err)
{
    const hcp_runtime *r = m->plan->runtime;
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (;;) {
        int over = 0;
        int rc = device_fail(m, r->event_done(m->end, &over), "move a block", err);
        if (rc == HCP_OK && over)
            break;
        if (rc == HCP_OK)
            rc = hcp_transport_check(m->plan->transport, err);
        if (rc != HCP_OK)
            return rc;
        nanosleep(&nap, NULL);
    }
    return link_receives(m->plan)
               ? device_fail(m, r->event_ms(m->start, m->end, ms), "read an event", err)
               : HCP_OK;
}

int link_exchange(struct link_meter *m, int64_t bytes, int may_hold, double *ms,
                  struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    double mine = 0;
    int held = link_holds(&m->hold) && may_hold, rc = HCP_OK;
    MPI_Barrier(p->comm);
    if (held)
        rc = link_hold_launch(&m->hold, m->stream, err);
    if (rc == HCP_OK)
        rc = device_fail(m, p->runtime->event_record(m->start, m->stream),
                         "record an event", err);
    if (rc == HCP_OK)
        rc = (p->mesh ? queue_exchange : queue_pass)(m, bytes, err);
    if (rc == HCP_OK && held)
        link_hold_release(&m->hold, p->comm);
    if (rc == HCP_OK)
        rc = (p->mesh ? end_exchange : end_pass)(m, &mine, err);
    if (rc == HCP_OK)
        rc = link_hold_check(&m->hold, err);
    if (rc != HCP_OK)
        return rc;
    MPI_Allreduce(&mine, ms, 1, MPI_DOUBLE, MPI_MAX, p->comm);
    return HCP_OK;
}

static int look(struct link_meter *m, int64_t at, int64_t bytes, struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    unsigned char found[LOOKED_AT];
    int64_t n = bytes - at < LOOKED_AT ? bytes - at : LOOKED_AT;
    int rc =
        device_fail(m, p->runtime->to_host(found, (char *)m->receive + at, n, m->stream),
                    "look at", err);
    for (int64_t i = 0; rc == HCP_OK && i < n; i++)
        if (found[i] != PATTERN + !p->rank)
            rc = hcp_fail(err, HCP_FAILED,
                          "byte %lld of %lld is not what rank %d sent; the link loses "
                          "data",
                          (long long)(at + i), (long long)bytes, !p->rank);
    return rc;
}

int link_verify(struct link_meter *m, int64_t bytes, struct hcp_err *err)
{
    const hcp_runtime *r = m->plan->runtime;
    if (!link_receives(m->plan))
        return HCP_OK;
    int rc = look(m, 0, bytes, err);
    if (rc == HCP_OK && bytes > LOOKED_AT)
        rc = look(m, bytes - LOOKED_AT, bytes, err);
    /* What the next size does not bring must not be there already. */
    if (rc == HCP_OK)
        rc =
            device_fail(m, r->fill(m->receive, 0, bytes, m->stream), "fill a block", err);
    return rc == HCP_OK ? device_fail(m, r->sync(m->stream), "fill a block", err) : rc;
}

static int fill(struct link_meter *m, struct hcp_err *err)
{
    const hcp_runtime *r = m->plan->runtime;
    int rc =
        device_fail(m, r->fill(m->send, PATTERN + m->plan->rank, m->bytes, m->stream),
                    "fill a block", err);
    if (rc == HCP_OK)
        rc = device_fail(m, r->fill(m->receive, 0, m->bytes, m->stream), "fill a block",
                         err);
    return rc == HCP_OK ? device_fail(m, r->sync(m->stream), "fill a block", err) : rc;
}

int link_meter_open(const struct link_plan *plan, int64_t bytes, struct link_meter **out,
                    struct hcp_err *err)
{
    const hcp_runtime *r = plan->runtime;
    struct link_meter *m = calloc(1, sizeof *m);
    if (!m)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    *out = m;
    m->plan = plan;
    m->bytes = bytes;
    int rc = device_fail(m, r->stream_create(&m->stream), "make a stream", err);
    if (rc == HCP_OK)
        rc = device_fail(m, r->event_create(&m->start), "make an event", err);
    if (rc == HCP_OK)
        rc = device_fail(m, r->event_create(&m->end), "make an event", err);
    if (rc == HCP_OK && (r->alloc(&m->send, bytes) != HCP_RC_OK ||
                         r->alloc(&m->receive, bytes) != HCP_RC_OK))
        rc = hcp_fail(err, HCP_FAILED,
                      "no memory for two blocks of %lld bytes; give smaller --sizes",
                      (long long)bytes);
    if (rc == HCP_OK)
        rc = fill(m, err);
    return rc == HCP_OK ? link_hold_open(&m->hold, plan, err) : rc;
}

void link_meter_close(struct link_meter *m)
{
    if (!m)
        return;
    const hcp_runtime *r = m->plan->runtime;
    link_hold_close(&m->hold, m->plan);
    r->release(m->send);
    r->release(m->receive);
    r->event_destroy(m->start);
    r->event_destroy(m->end);
    if (m->stream)
        r->stream_destroy(m->stream);
    free(m);
}
