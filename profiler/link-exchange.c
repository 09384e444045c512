/* SPDX-License-Identifier: Apache-2.0
 *
 * One exchange is a pass of the executor's own transport: block 0, ours, goes to the
 * other rank while its block comes here. Where the transport queues its work on streams
 * (NCCL), a kernel holds the stream until both ranks have queued theirs, as in a ring
 * whose passes are queued ahead: launching does not count.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/limiter.h"
#include "profiler/link-rank.h"
#include "profiler/measure.h"
#include "profiler/sweep.h"
#ifdef HAVE_CUDA
#include "profiler/spin.h"
#endif

enum {
    VISITS = 3,         /* of each size, so that drift meets all alike */
    MIN_SAMPLES = 4,    /* of a visit, */
    MAX_SAMPLES = 40,   /* up to here until MIN_MS */
    FEW_SAMPLES = 2,    /* when CAP_MS are over */
    WARM_UP = 2,        /* exchanges before the first sample */
    MAX_REPEATS = 2000, /* exchanges in a sample under a duty cycle */
    SEED = 1
};
#define MIN_MS 20.0
#define CAP_MS 300.0
#define HOLD_LIMIT_NS 2000000000ull

struct meter {
    const struct link_plan *plan;
    void *send, *receive, *start, *stream;
    int *hold; /* [0] ticket that may pass, [1] holds that timed out; NULL: no hold */
    int ticket;
    int may_hold; /* modules are loaded, connections made */
};

static int device_fail(const struct meter *m, int rc, const char *doing,
                       struct hcp_err *err)
{
    const char *why = rc == HCP_RC_OK ? "" : m->plan->runtime->last_error();
    return rc == HCP_RC_OK ? HCP_OK
                           : hcp_fail(err, HCP_FAILED, "cannot %s: %s", doing,
                                      *why ? why : "the device failed");
}

static int hold(struct meter *m, struct hcp_err *err)
{
#ifdef HAVE_CUDA
    if (hcp_spin_launch(m->hold, ++m->ticket, HOLD_LIMIT_NS, m->hold + 1, m->stream) != 0)
        return hcp_fail(err, HCP_FAILED, "cannot launch the holding kernel");
#else
    (void)m, (void)err;
#endif
    return HCP_OK;
}

static void release(struct meter *m)
{
    MPI_Barrier(m->plan->comm); /* both have queued theirs */
    *(volatile int *)m->hold = m->ticket;
}

static int late(struct meter *m, struct hcp_err *err)
{
    if (!m->hold || *(volatile int *)(m->hold + 1) == 0)
        return HCP_OK;
    m->hold[1] = 0;
    return hcp_fail(err, HCP_FAILED,
                    "a held transfer timed out: the transport waits for the device while "
                    "it queues");
}

/* ms from the common start until the later of both ranks has its block. */
static int exchange(struct meter *m, int64_t bytes, double *ms, struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    struct hcp_message out = {m->send, bytes}, in = {m->receive, bytes};
    const struct hcp_transfer steps[2] = {
        {.send = 1, .slot = -1, .pieces = &out, .n_pieces = 1},
        {.receive = 1, .slot = 0, .pieces = &in, .n_pieces = 1}};
    struct hcp_transfer_times times;
    int held = m->hold && m->may_hold, rc = HCP_OK;
    MPI_Barrier(p->comm);
    if (held)
        rc = hold(m, err);
    if (rc == HCP_OK)
        rc = device_fail(m, p->runtime->event_record(m->start, m->stream),
                         "record an event", err);
    if (rc == HCP_OK)
        rc = hcp_transport_begin(p->transport, steps, 2, m->start, err);
    if (rc == HCP_OK)
        rc = hcp_transport_done(p->transport, 0, m->stream, err);
    if (rc == HCP_OK)
        rc = hcp_transport_wait(p->transport, 1, 0, m->stream, err);
    if (rc == HCP_OK)
        rc = hcp_transport_done(p->transport, 1, m->stream, err);
    if (rc == HCP_OK && held)
        release(m);
    if (rc == HCP_OK)
        rc = hcp_transport_end(p->transport, err);
    if (rc == HCP_OK)
        rc = late(m, err);
    if (rc == HCP_OK)
        rc = hcp_transport_times(p->transport, 1, &times);
    if (rc != HCP_OK)
        return rc;
    MPI_Allreduce(&times.receive_to_ms, ms, 1, MPI_DOUBLE, MPI_MAX, p->comm);
    return HCP_OK;
}

static int sample(struct meter *m, int64_t bytes, int repeats, double *ms,
                  struct hcp_err *err)
{
    double one, sum = 0;
    for (int i = 0; i < repeats; i++) {
        int rc = exchange(m, bytes, &one, err);
        if (rc != HCP_OK)
            return rc;
        sum += one;
    }
    *ms = sum / repeats;
    return HCP_OK;
}

/* Both ranks see the same times, so they take the same number of samples. */
static int visit(struct meter *m, struct link_size *s, struct hcp_err *err)
{
    double warm = 0, spent = 0;
    int n = 0;
    m->may_hold = 0;
    int rc = sample(m, s->bytes, WARM_UP, &warm, err);
    m->may_hold = 1;
    /* Where in the duty cycle an exchange lies decides whether it meets a stop: a sample
     * is the mean over as many as fill several cycles. */
    if (s->repeats == 0)
        s->repeats = !m->plan->throttled
                         ? 1
                         : (int)fmax(1, fmin(MAX_REPEATS, ceil(1e3 * HCP_CPU_SAMPLE_S /
                                                               fmax(warm, 1e-3))));
    while (rc == HCP_OK && s->n < HCP_LINK_SAMPLES && n < MAX_SAMPLES &&
           (n < MIN_SAMPLES || spent < MIN_MS) && (n < FEW_SAMPLES || spent < CAP_MS)) {
        rc = sample(m, s->bytes, s->repeats, &s->ms[s->n], err);
        if (rc == HCP_OK) {
            spent += s->ms[s->n++] * s->repeats;
            n++;
        }
    }
    return rc;
}

/* Rank 0's clock decides. Until something is known of a size, the next smaller one says
 * what it is likely to take. */
static int fits(const struct link_plan *p, size_t i, double begin_s)
{
    int yes = 1;
    if (p->rank == 0 && isfinite(p->budget_s)) {
        double ms = 0;
        for (size_t k = 0; k <= i; k++)
            if (p->sizes[k].n > 0)
                ms = p->sizes[k].ms[0] * p->sizes[k].repeats * (double)p->sizes[i].bytes /
                     (double)p->sizes[k].bytes;
        double want_ms = fmax(MIN_SAMPLES * ms, fmin(MIN_MS, MAX_SAMPLES * ms));
        double visit_s =
            1e-3 * (WARM_UP * ms + fmax(fmin(want_ms, CAP_MS), FEW_SAMPLES * ms));
        yes = hcp_now_s() - begin_s + visit_s <= p->budget_s;
        yes |= i == 0 && p->sizes[0].n == 0; /* an answer is better than none */
    }
    MPI_Bcast(&yes, 1, MPI_INT, 0, p->comm);
    return yes;
}

static int visit_all(struct meter *m, struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    size_t order[HCP_LINK_SIZES];
    double begin_s = hcp_now_s();
    int rc = HCP_OK;
    for (size_t i = 0; i < p->n; i++)
        order[i] = i;
    for (int turn = 0; turn < VISITS && rc == HCP_OK; turn++) {
        if (turn > 0) /* the first goes up: what larger sizes take is known by then */
            hcp_shuffle(order, p->n, sizeof *order, SEED + (uint64_t)turn);
        for (size_t i = 0; i < p->n && rc == HCP_OK; i++) {
            if (p->rank == 0 && p->visiting)
                p->visiting((int)((size_t)turn * p->n + i), VISITS * (int)p->n);
            if (fits(p, order[i], begin_s))
                rc = visit(m, &p->sizes[order[i]], err);
        }
    }
    return rc;
}

static int open_meter(struct meter *m, struct hcp_err *err)
{
    const struct link_plan *p = m->plan;
    const hcp_runtime *r = p->runtime;
    int64_t bytes = p->sizes[p->n - 1].bytes;
    void *words = NULL;
    int rc = device_fail(m, r->stream_create(&m->stream), "make a stream", err);
    if (rc == HCP_OK)
        rc = device_fail(m, r->event_create(&m->start), "make an event", err);
    if (rc == HCP_OK && (r->alloc(&m->send, bytes) != HCP_RC_OK ||
                         r->alloc(&m->receive, bytes) != HCP_RC_OK))
        rc = hcp_fail(err, HCP_FAILED,
                      "no memory for two blocks of %lld bytes; give smaller --sizes",
                      (long long)bytes);
    if (rc == HCP_OK)
        rc =
            device_fail(m, r->fill(m->send, 0x3f, bytes, m->stream), "fill a block", err);
    if (rc == HCP_OK)
        rc = device_fail(m, r->sync(m->stream), "fill a block", err);
    if (rc == HCP_OK && r->kind == HCP_DEVICE_CUDA && hcp_transport_queues(p->transport))
        rc = device_fail(m, r->host_alloc(&words, 2 * sizeof *m->hold),
                         "allocate pinned memory", err);
    if (rc == HCP_OK && words) {
        m->hold = words;
        m->hold[0] = m->hold[1] = 0;
    }
    return rc;
}

int link_measure(struct link_plan *plan, struct hcp_err *err)
{
    struct meter m = {.plan = plan};
    const hcp_runtime *r = plan->runtime;
    int rc = open_meter(&m, err);
    if (rc == HCP_OK)
        rc = visit_all(&m, err);
    if (rc != HCP_OK)
        return rc; /* work may be in flight: the process ends with it */
    r->host_release(m.hold);
    r->release(m.send);
    r->release(m.receive);
    r->event_destroy(m.start);
    if (m.stream)
        r->stream_destroy(m.stream);
    return HCP_OK;
}
