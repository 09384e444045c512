/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread does all MPI of a pass: it starts receives whose buffer is free and sends
 * whose data is there, and looks after them while the caller computes. Both directions
 * are in order, so the oldest message of each is all there is to test. MPI has nothing to
 * sleep on, hence short naps while messages are under way; otherwise the thread waits for
 * the caller.
 *
 * Device memory goes through pinned memory of the host, one piece of it for each buffer:
 * a received block is passed on from there.
 */
#include "config.h"
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include "profiler/transport-internal.h"

enum { NAP_NS = 20000, BIG = 1 << 30 };

struct mpi_piece {
    int32_t step, index;
    int32_t receive_order; /* among all pieces received in the pass; -1: not received */
    int64_t bytes;
    void *data;   /* the caller's */
    void *host;   /* what MPI reads and writes: data itself or memory of the stage */
    void *copied; /* event: data and host are equal; NULL: they are the same */
    MPI_Request receive, send;
};

struct stage {
    void *memory;
    int64_t room;
};

/* How far the thread is. What it receives and sends are lists of pieces in order. */
struct progress {
    int32_t receives_posted, received; /* by MPI */
    int32_t arrived;                   /* wait() may return: copies are queued */
    int32_t landed;                    /* copies are done too */
    int32_t sends_posted, sent;
    int32_t finished;  /* steps that are done on the device */
    double received_s; /* when `received` last changed */
    double sent_s;
};

struct mpi_transport {
    struct hcp_transport base;
    int staged, has_thread;
    void *to_host, *to_device; /* streams, when staged */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, changed; /* for the thread; for the caller */

    /* Under lock. */
    int running, quit, cancelled, failed;
    int32_t computed; /* steps reported done */
    int over;
    struct progress shown;
    struct hcp_err failure;

    /* The thread's while a pass runs, else the caller's. */
    struct progress at;
    double start_s;
    struct mpi_piece *pieces;
    int32_t *receives, *sends, pieces_room; /* indices of pieces */
    int32_t n_receives, n_sends;
    struct hcp_transfer_times *times; /* [steps] */
    void **step_done;                 /* [steps] events, when staged */
    int32_t *sent_with; /* [steps] sends that are over when the step's block is sent */
    int32_t steps_room;
    struct stage *stages; /* of the own block, then of each buffer */
    int32_t n_stages;
};

static double now_ms(const struct mpi_transport *m)
{
    return 1e3 * (hcp_transport_now() - m->start_s);
}

static int failed_device(struct mpi_transport *m, int rc, const char *what,
                         struct hcp_err *err)
{
    return hcp_transport_device_check(&m->base, rc, what, err);
}

/* One message of any length: more than INT_MAX bytes are a type of several runs. */
static int make_type(int64_t bytes, MPI_Datatype *type, int *count)
{
    MPI_Datatype run, parts[2];
    MPI_Aint at[2];
    int lengths[2], rc;
    *type = MPI_BYTE;
    *count = (int)bytes;
    if (bytes <= INT_MAX)
        return MPI_SUCCESS;
    if ((rc = MPI_Type_contiguous(BIG, MPI_BYTE, &run)) != MPI_SUCCESS)
        return rc;
    lengths[0] = (int)(bytes / BIG);
    lengths[1] = (int)(bytes % BIG);
    at[0] = 0;
    at[1] = (MPI_Aint)lengths[0] * BIG;
    parts[0] = run;
    parts[1] = MPI_BYTE;
    *count = 1;
    rc = MPI_Type_create_struct(2, lengths, at, parts, type);
    MPI_Type_free(&run);
    return rc == MPI_SUCCESS ? MPI_Type_commit(type) : rc;
}

/* Both ends count steps as the receiver does. */
static int tag_of(int32_t receiving_step)
{
    return receiving_step % 32768;
}

static int post(struct mpi_transport *m, struct mpi_piece *p, int sending,
                struct hcp_err *err)
{
    MPI_Datatype type;
    int count, rc = make_type(p->bytes, &type, &count);
    if (rc == MPI_SUCCESS)
        rc = sending ? MPI_Isend(p->host, count, type, m->base.after, tag_of(p->step + 1),
                                 m->base.comm, &p->send)
                     : MPI_Irecv(p->host, count, type, m->base.before, tag_of(p->step),
                                 m->base.comm, &p->receive);
    if (type != MPI_BYTE)
        MPI_Type_free(&type);
    return hcp_transport_mpi_check(rc, sending ? "sending to" : "receiving from",
                                   sending ? m->base.name_after : m->base.name_before,
                                   err);
}

/* The buffer of step k: the block that was in it is computed and passed on. */
static int buffer_free(const struct mpi_transport *m, int32_t k)
{
    int32_t j = m->base.steps[k].previous;
    return j < 0 || (j < m->at.finished && m->sent_with[j] <= m->at.sent);
}

static int post_receives(struct mpi_transport *m, int *moved, struct hcp_err *err)
{
    while (m->at.receives_posted < m->n_receives) {
        struct mpi_piece *p = &m->pieces[m->receives[m->at.receives_posted]];
        int rc;
        if (!buffer_free(m, p->step))
            break;
        if (p->index == 0)
            m->times[p->step].receive_from_ms = now_ms(m);
        if ((rc = post(m, p, 0, err)) != HCP_OK)
            return rc;
        m->at.receives_posted++;
        *moved = 1;
    }
    return HCP_OK;
}

static int check_received(struct mpi_transport *m, struct mpi_piece *p, int rc,
                          MPI_Status *status, struct hcp_err *err)
{
    int class = MPI_SUCCESS;
    MPI_Count bytes = 0;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    if (class == MPI_ERR_TRUNCATE)
        return hcp_fail(err, HCP_FAILED,
                        "rank %d sent more than the %lld bytes expected (step %d, piece "
                        "%d); the ranks do not run the same plan",
                        m->base.name_before, (long long)p->bytes, p->step, p->index);
    if (rc == MPI_SUCCESS)
        rc = MPI_Get_elements_x(status, MPI_BYTE, &bytes);
    if (rc == MPI_SUCCESS && bytes != p->bytes)
        return hcp_fail(err, HCP_FAILED,
                        "rank %d sent %lld bytes, expected %lld (step %d, piece %d); the "
                        "ranks do not run the same plan",
                        m->base.name_before, (long long)bytes, (long long)p->bytes,
                        p->step, p->index);
    return hcp_transport_mpi_check(rc, "receiving from", m->base.name_before, err);
}

static int test_receives(struct mpi_transport *m, int *moved, struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    while (m->at.received < m->at.receives_posted) {
        struct mpi_piece *p = &m->pieces[m->receives[m->at.received]];
        MPI_Status status;
        int flag = 0, rc = MPI_Test(&p->receive, &flag, &status);
        if (rc == MPI_SUCCESS && !flag)
            break;
        if ((rc = check_received(m, p, rc, &status, err)) != HCP_OK)
            return rc;
        if (m->staged) {
            rc = run->to_device(p->data, p->host, p->bytes, m->to_device);
            if (rc == HCP_RC_OK)
                rc = run->event_record(p->copied, m->to_device);
            if (failed_device(m, rc, "copy to the GPU", err) != HCP_OK)
                return HCP_FAILED;
        }
        m->at.arrived = ++m->at.received;
        m->at.received_s = hcp_transport_now();
        *moved = 1;
    }
    while (m->at.landed < m->at.received) {
        struct mpi_piece *p = &m->pieces[m->receives[m->at.landed]];
        int done = 1;
        if (m->staged && failed_device(m, run->event_done(p->copied, &done),
                                       "copy to the GPU", err) != HCP_OK)
            return HCP_FAILED;
        if (!done)
            break;
        m->at.landed++;
        m->times[p->step].receive_to_ms = now_ms(m);
        *moved = 1;
    }
    return HCP_OK;
}

static int post_sends(struct mpi_transport *m, int *moved, struct hcp_err *err)
{
    while (m->at.sends_posted < m->n_sends) {
        struct mpi_piece *p = &m->pieces[m->sends[m->at.sends_posted]];
        int there = p->receive_order < m->at.received, rc;
        if (m->staged && p->step == 0 &&
            failed_device(m, m->base.runtime->event_done(p->copied, &there),
                          "copy from the GPU", err) != HCP_OK)
            return HCP_FAILED;
        if (!there)
            break;
        if (p->index == 0)
            m->times[p->step].send_from_ms = now_ms(m);
        if ((rc = post(m, p, 1, err)) != HCP_OK)
            return rc;
        m->at.sends_posted++;
        *moved = 1;
    }
    while (m->at.sent < m->at.sends_posted) {
        struct mpi_piece *p = &m->pieces[m->sends[m->at.sent]];
        int flag = 0, rc = MPI_Test(&p->send, &flag, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS)
            return hcp_transport_mpi_check(rc, "sending to", m->base.name_after, err);
        if (!flag)
            break;
        m->at.sent++;
        m->at.sent_s = hcp_transport_now();
        m->times[p->step].send_to_ms = now_ms(m);
        *moved = 1;
    }
    return HCP_OK;
}

/* Follows the device to the steps that the caller has reported. */
static int follow_steps(struct mpi_transport *m, int32_t computed, int *moved,
                        struct hcp_err *err)
{
    while (m->at.finished < computed) {
        int done = 1;
        if (m->staged &&
            failed_device(
                m, m->base.runtime->event_done(m->step_done[m->at.finished], &done),
                "computing", err) != HCP_OK)
            return HCP_FAILED;
        if (!done)
            break;
        m->at.finished++;
        *moved = 1;
    }
    return HCP_OK;
}

static void nap(void)
{
    const struct timespec t = {0, NAP_NS};
    nanosleep(&t, NULL);
}

/* Moves a pass. Returns at its end, or when the caller gives up. */
static int move(struct mpi_transport *m, struct hcp_err *err)
{
    for (;;) {
        int moved = 0, over, stop, busy;
        int32_t computed;
        pthread_mutex_lock(&m->lock);
        computed = m->computed;
        stop = m->quit || m->cancelled;
        pthread_mutex_unlock(&m->lock);
        if (stop)
            return HCP_OK;
        if (follow_steps(m, computed, &moved, err) != HCP_OK ||
            post_receives(m, &moved, err) != HCP_OK ||
            test_receives(m, &moved, err) != HCP_OK ||
            post_sends(m, &moved, err) != HCP_OK)
            return HCP_FAILED;
        over = m->at.landed == m->n_receives && m->at.sent == m->n_sends;
        busy = m->at.landed < m->at.receives_posted || m->at.sent < m->at.sends_posted ||
               m->at.finished < computed ||
               (m->staged && m->at.sends_posted < m->n_sends &&
                m->pieces[m->sends[m->at.sends_posted]].step == 0);
        pthread_mutex_lock(&m->lock);
        if (moved) {
            m->shown = m->at;
            pthread_cond_broadcast(&m->changed);
        } else if (!busy && !over) {
            while (m->computed == computed && !m->quit && !m->cancelled)
                pthread_cond_wait(&m->wake, &m->lock);
        }
        pthread_mutex_unlock(&m->lock);
        if (over)
            return HCP_OK;
        if (!moved && busy)
            nap();
    }
}

static void *work(void *arg)
{
    struct mpi_transport *m = arg;
    struct hcp_err err = {0};
    /* Naps as short as asked for, not 50 us longer. */
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    int rc = failed_device(m, m->base.runtime->select(m->base.ordinal), "select", &err);
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->running && !m->quit && rc == HCP_OK)
            pthread_cond_wait(&m->wake, &m->lock);
        if (m->quit)
            break;
        if (rc == HCP_OK) {
            pthread_mutex_unlock(&m->lock);
            rc = move(m, &err);
            pthread_mutex_lock(&m->lock);
        }
        m->running = 0;
        if (rc != HCP_OK && !m->failed) {
            m->failed = 1;
            m->failure = err;
        }
        m->over = !m->failed && !m->cancelled && !m->quit;
        m->shown = m->at;
        pthread_cond_broadcast(&m->changed);
        if (rc != HCP_OK)
            break;
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- The caller's side --------------------------------------------------- */

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:  4.0.2\n..." in short. */
static void read_version(char *out, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    char *save = NULL;
    int length;
    size_t n = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n\r")] = '\0';
    *out = '\0';
    for (char *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        if (strcmp(w, "Version:") == 0)
            continue;
        if (w[0] == 'v' && w[1] >= '0' && w[1] <= '9')
            w++;
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", w);
    }
}

static int start_thread(struct mpi_transport *m, struct hcp_err *err)
{
    sigset_t all, old;
    int rc;
    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&m->thread, NULL, work, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return hcp_fail(err, HCP_FAILED, "mpi transport: cannot start a thread: %s",
                        strerror(rc));
    m->has_thread = 1;
    return HCP_OK;
}

static int mpi_open(hcp_transport *t, struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    pthread_condattr_t clock;
    int level = MPI_THREAD_SINGLE, rc = HCP_OK;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, NULL);
    pthread_cond_init(&m->changed, &clock);
    pthread_condattr_destroy(&clock);
    read_version(t->version, sizeof t->version);
    MPI_Query_thread(&level);
    m->staged = t->runtime->kind != HCP_DEVICE_CPU;
    if (level < MPI_THREAD_MULTIPLE)
        rc = hcp_fail(
            err, HCP_FAILED,
            "%s was started without MPI_THREAD_MULTIPLE, which the mpi transport "
            "needs; use an MPI that has it",
            t->version);
    if (rc == HCP_OK && m->staged) {
        int made = t->runtime->stream_create(&m->to_host);
        if (made == HCP_RC_OK)
            made = t->runtime->stream_create(&m->to_device);
        rc = failed_device(m, made, "create a stream", err);
    }
    if (rc == HCP_OK)
        rc = start_thread(m, err);
    return hcp_transport_agree(t, rc, err);
}

static int grow_steps(struct mpi_transport *m, struct hcp_err *err)
{
    int32_t n = m->base.n_steps;
    if (n <= m->steps_room)
        return HCP_OK;
    struct hcp_transfer_times *times = realloc(m->times, (size_t)n * sizeof *times);
    if (times)
        m->times = times;
    int32_t *sent_with = realloc(m->sent_with, (size_t)n * sizeof *sent_with);
    if (sent_with)
        m->sent_with = sent_with;
    void **events = realloc(m->step_done, (size_t)n * sizeof *events);
    if (events)
        m->step_done = events;
    if (!times || !sent_with || !events)
        return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
    for (; m->steps_room < n; m->steps_room++) {
        void **event = &events[m->steps_room];
        *event = NULL;
        if (m->staged && failed_device(m, m->base.runtime->event_create(event),
                                       "create an event", err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

static int grow_pieces(struct mpi_transport *m, struct hcp_err *err)
{
    int32_t n = m->base.n_pieces;
    if (n <= m->pieces_room)
        return HCP_OK;
    struct mpi_piece *pieces = realloc(m->pieces, (size_t)n * sizeof *pieces);
    if (pieces)
        m->pieces = pieces;
    int32_t *receives = realloc(m->receives, (size_t)n * sizeof *receives);
    if (receives)
        m->receives = receives;
    int32_t *sends = realloc(m->sends, (size_t)n * sizeof *sends);
    if (sends)
        m->sends = sends;
    if (!pieces || !receives || !sends)
        return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
    for (; m->pieces_room < n; m->pieces_room++) {
        struct mpi_piece *p = &pieces[m->pieces_room];
        memset(p, 0, sizeof *p);
        p->receive = p->send = MPI_REQUEST_NULL;
        if (m->staged && failed_device(m, m->base.runtime->event_create(&p->copied),
                                       "create an event", err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

/* Host memory that every block of this stage fits in. */
static int grow_stage(struct mpi_transport *m, int32_t index, int64_t bytes,
                      struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    if (index >= m->n_stages) {
        struct stage *grown = realloc(m->stages, (size_t)(index + 1) * sizeof *grown);
        if (!grown)
            return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
        m->stages = grown;
        memset(&grown[m->n_stages], 0, (size_t)(index + 1 - m->n_stages) * sizeof *grown);
        m->n_stages = index + 1;
    }
    struct stage *s = &m->stages[index];
    if (bytes <= s->room)
        return HCP_OK;
    run->host_release(s->memory);
    s->memory = NULL;
    s->room = 0;
    if (failed_device(m, run->host_alloc(&s->memory, bytes), "pin host memory", err) !=
        HCP_OK)
        return HCP_FAILED;
    s->room = bytes;
    return HCP_OK;
}

static int32_t stage_of(const struct transport_step *s)
{
    return s->transfer.receive ? s->transfer.slot + 1 : 0;
}

static int grow_stages(struct mpi_transport *m, struct hcp_err *err)
{
    for (int32_t k = 0; k < m->base.n_steps; k++) {
        const struct hcp_transfer *f = &m->base.steps[k].transfer;
        int64_t bytes = 0;
        for (int32_t i = 0; i < f->n_pieces; i++)
            bytes += f->pieces[i].bytes;
        if (grow_stage(m, stage_of(&m->base.steps[k]), bytes, err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

static void list_pieces(struct mpi_transport *m)
{
    const struct hcp_transfer_times none = {NAN, NAN, NAN, NAN};
    m->n_receives = m->n_sends = 0;
    for (int32_t k = 0; k < m->base.n_steps; k++) {
        const struct transport_step *s = &m->base.steps[k];
        const struct hcp_transfer *f = &s->transfer;
        int64_t offset = 0;
        m->times[k] = none;
        for (int32_t i = 0; i < f->n_pieces; i++) {
            struct mpi_piece *p = &m->pieces[s->first + i];
            p->step = k;
            p->index = i;
            p->bytes = f->pieces[i].bytes;
            p->data = f->pieces[i].data;
            p->host =
                m->staged ? (char *)m->stages[stage_of(s)].memory + offset : p->data;
            p->receive_order = f->receive ? m->n_receives : -1;
            if (f->receive)
                m->receives[m->n_receives++] = s->first + i;
            if (f->send)
                m->sends[m->n_sends++] = s->first + i;
            offset += p->bytes;
        }
        m->sent_with[k] = f->send ? m->n_sends : 0;
    }
}

/* The own block comes to the host as soon as it is complete. */
static int stage_own(struct mpi_transport *m, void *start, struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    int rc = HCP_RC_OK;
    if (start)
        rc = run->event_wait(start, m->to_host);
    for (int32_t i = 0; rc == HCP_RC_OK && i < m->base.steps[0].transfer.n_pieces; i++) {
        struct mpi_piece *p = &m->pieces[i];
        rc = run->to_host_async(p->host, p->data, p->bytes, m->to_host);
        if (rc == HCP_RC_OK)
            rc = run->event_record(p->copied, m->to_host);
    }
    return failed_device(m, rc, "copy from the GPU", err);
}

static int mpi_begin(hcp_transport *t, void *start, struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    const struct progress zero = {0};
    if (grow_steps(m, err) != HCP_OK || grow_pieces(m, err) != HCP_OK ||
        (m->staged && grow_stages(m, err) != HCP_OK))
        return HCP_FAILED;
    list_pieces(m);
    m->start_s = hcp_transport_now();
    if (m->staged && stage_own(m, start, err) != HCP_OK)
        return HCP_FAILED;
    pthread_mutex_lock(&m->lock);
    m->at = m->shown = zero;
    m->computed = 0;
    m->over = 0;
    m->running = 1;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    return HCP_OK;
}

/* Whom a stalled pass waits for. Called under lock. */
static int stalled(struct mpi_transport *m, struct hcp_err *err)
{
    const struct progress *at = &m->shown;
    if (at->received < m->n_receives && at->received < at->receives_posted)
        return hcp_fail(err, HCP_FAILED, "no data from rank %d for %g s (step %d)",
                        m->base.name_before, m->base.timeout_s,
                        m->pieces[m->receives[at->received]].step);
    if (at->sent < at->sends_posted)
        return hcp_fail(err, HCP_FAILED, "rank %d took no data for %g s (step %d)",
                        m->base.name_after, m->base.timeout_s,
                        m->pieces[m->sends[at->sent]].step);
    return hcp_fail(err, HCP_FAILED, "mpi transport: the GPU moved no data for %g s",
                    m->base.timeout_s);
}

/* Under lock, until the pass is over (order < 0) or a piece has arrived. */
static int await(struct mpi_transport *m, int32_t order, struct hcp_err *err)
{
    double entered = hcp_transport_now();
    for (;;) {
        if (m->cancelled)
            return hcp_fail(err, HCP_FAILED, "mpi transport: cancelled");
        if (m->failed) {
            *err = m->failure;
            return HCP_FAILED;
        }
        if (order < 0 ? m->over : m->shown.arrived > order)
            return HCP_OK;
        double from = fmax(entered, m->shown.received_s);
        if (order < 0)
            from = fmax(from, m->shown.sent_s);
        double until = from + m->base.timeout_s;
        if (hcp_transport_now() >= until) {
            m->failed = 1;
            stalled(m, &m->failure);
            continue;
        }
        struct timespec at;
        at.tv_sec = (time_t)until;
        at.tv_nsec = (long)(1e9 * (until - (double)at.tv_sec));
        pthread_cond_timedwait(&m->changed, &m->lock, &at);
    }
}

static int mpi_wait(hcp_transport *t, int32_t step, int32_t piece, void *stream,
                    struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    const struct mpi_piece *p = &m->pieces[t->steps[step].first + piece];
    struct hcp_err why = {0};
    pthread_mutex_lock(&m->lock);
    int rc = await(m, p->receive_order, &why);
    pthread_mutex_unlock(&m->lock);
    if (rc != HCP_OK)
        return hcp_fail(err, rc, "%s", why.text);
    if (m->staged)
        rc = failed_device(m, t->runtime->event_wait(p->copied, stream), "wait", err);
    return rc;
}

static int mpi_done(hcp_transport *t, int32_t step, void *stream, struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    if (m->staged &&
        failed_device(m, t->runtime->event_record(m->step_done[step], stream),
                      "record an event", err) != HCP_OK)
        return HCP_FAILED;
    pthread_mutex_lock(&m->lock);
    m->computed = step + 1;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    return HCP_OK;
}

static int mpi_end(hcp_transport *t, struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    struct hcp_err why = {0};
    pthread_mutex_lock(&m->lock);
    int rc = await(m, -1, &why);
    pthread_mutex_unlock(&m->lock);
    return rc == HCP_OK ? rc : hcp_fail(err, rc, "%s", why.text);
}

static int mpi_times(hcp_transport *t, int32_t step, struct hcp_transfer_times *out)
{
    *out = ((struct mpi_transport *)t)->times[step];
    return HCP_OK;
}

static int mpi_check(hcp_transport *t, struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    int rc = HCP_OK;
    pthread_mutex_lock(&m->lock);
    if (m->failed)
        rc = hcp_fail(err, HCP_FAILED, "%s", m->failure.text);
    else if (m->cancelled)
        rc = hcp_fail(err, HCP_FAILED, "mpi transport: cancelled");
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static void mpi_cancel(hcp_transport *t)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    pthread_mutex_lock(&m->lock);
    m->cancelled = 1;
    pthread_cond_broadcast(&m->wake);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* What is under way when a pass has failed: receives are taken back, sends cannot be. */
static void drop_requests(struct mpi_transport *m)
{
    for (int32_t i = 0; i < m->pieces_room; i++) {
        struct mpi_piece *p = &m->pieces[i];
        if (p->receive != MPI_REQUEST_NULL) {
            MPI_Cancel(&p->receive);
            MPI_Request_free(&p->receive);
        }
        if (p->send != MPI_REQUEST_NULL)
            MPI_Request_free(&p->send);
    }
}

static void mpi_close(hcp_transport *t)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    const hcp_runtime *run = t->runtime;
    if (m->has_thread) {
        pthread_mutex_lock(&m->lock);
        m->quit = 1;
        pthread_cond_broadcast(&m->wake);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread, NULL);
    }
    drop_requests(m);
    for (int32_t i = 0; m->staged && i < m->pieces_room; i++)
        run->event_destroy(m->pieces[i].copied);
    for (int32_t i = 0; m->staged && i < m->steps_room; i++)
        run->event_destroy(m->step_done[i]);
    /* After a failure MPI may still write there; the program is about to end. */
    for (int32_t i = 0; !t->failed && i < m->n_stages; i++)
        run->host_release(m->stages[i].memory);
    if (m->staged) {
        run->stream_destroy(m->to_host);
        run->stream_destroy(m->to_device);
    }
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m->pieces);
    free(m->receives);
    free(m->sends);
    free(m->times);
    free(m->step_done);
    free(m->sent_with);
    free(m->stages);
}

const struct transport_ops hcp_transport_mpi_ops = {
    .name = "mpi",
    .queues = 0,
    .size = sizeof(struct mpi_transport),
    .open = mpi_open,
    .begin = mpi_begin,
    .wait = mpi_wait,
    .done = mpi_done,
    .end = mpi_end,
    .times = mpi_times,
    .check = mpi_check,
    .cancel = mpi_cancel,
    .close = mpi_close,
};
