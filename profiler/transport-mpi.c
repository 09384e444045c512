/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "profiler/transport-mpi.h"

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:  4.0.2\n..." in short. */
void hcp_mpi_version(char *out, size_t size)
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
    rc = pthread_create(&m->thread, NULL, hcp_mpi_work, m);
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
    hcp_mpi_version(t->version, sizeof t->version);
    MPI_Query_thread(&level);
    m->staged = t->runtime->kind != HCP_DEVICE_CPU;
    if (level < MPI_THREAD_MULTIPLE)
        rc = hcp_fail(
            err, HCP_FAILED,
            "%s was started without MPI_THREAD_MULTIPLE, which the mpi transport "
            "needs; use an MPI that has it",
            t->version);
    if (rc == HCP_OK)
        rc = failed_device(m, t->runtime->select(t->ordinal), "select the device", err);
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

/* Copies come after start; the own block is on its way to the host from then on. */
static int start_copies(struct mpi_transport *m, void *start, struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    int rc = run->event_wait(start, m->to_host);
    if (rc == HCP_RC_OK)
        rc = run->event_wait(start, m->to_device);
    for (int32_t i = 0; rc == HCP_RC_OK && i < m->n_messages; i++) {
        struct mpi_message *p = &m->messages[i];
        if (p->step > 0)
            break;
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
    m->at = zero;
    m->passes++;
    if (hcp_mpi_make_pass(m, err) != HCP_OK)
        return HCP_FAILED;
    m->start_s = hcp_transport_now();
    if (m->staged && start_copies(m, start, err) != HCP_OK)
        return HCP_FAILED;
    pthread_mutex_lock(&m->lock);
    m->shown = zero;
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
                        m->messages[m->receives[at->received]].step);
    if (at->sent < at->sends_posted)
        return hcp_fail(err, HCP_FAILED, "rank %d took no data for %g s (step %d)",
                        m->base.name_after, m->base.timeout_s,
                        m->messages[m->sends[at->sent]].step);
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
    const struct mpi_message *p = &m->messages[m->last[t->steps[step].first + piece]];
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
    for (int32_t i = 0; i < m->messages_room; i++) {
        struct mpi_message *p = &m->messages[i];
        if (p->receive != MPI_REQUEST_NULL) {
            MPI_Cancel(&p->receive);
            MPI_Request_free(&p->receive);
        }
        if (p->send != MPI_REQUEST_NULL)
            MPI_Request_free(&p->send);
    }
}

static void stop_thread(struct mpi_transport *m)
{
    if (!m->has_thread)
        return;
    pthread_mutex_lock(&m->lock);
    m->quit = 1;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->has_thread = 0;
}

/* Receives `n` messages from the rank before that no receive was posted for. */
static int take_untaken(struct mpi_transport *m, int64_t n)
{
    void *room = n > 0 ? malloc(MPI_CHUNK) : NULL;
    int rc = n > 0 && !room ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    for (int64_t i = 0; rc == MPI_SUCCESS && i < n; i++)
        rc = MPI_Recv(room, MPI_CHUNK, MPI_BYTE, m->base.before, MPI_ANY_TAG,
                      m->base.comm, MPI_STATUS_IGNORE);
    free(room);
    return rc;
}

/* MPI cannot take a send back. The rank before says how many messages of which pass it
 * has sent: a receive that one of these is for ends by itself, one that waits for a later
 * one is taken back, and what is left over is received, so that the sends end as well. */
static int mpi_settle(hcp_transport *t, struct hcp_err *err)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    int64_t sent[2], received[2] = {0, 0}, posted, comes;
    int rc;
    stop_thread(m);
    if (m->staged) { /* copies may still use the host's memory */
        t->runtime->sync(m->to_host);
        t->runtime->sync(m->to_device);
    }
    sent[0] = m->passes;
    sent[1] = m->at.sends_posted;
    rc = MPI_Sendrecv(sent, 2, MPI_INT64_T, t->after, MPI_LAST_TAG, received, 2,
                      MPI_INT64_T, t->before, MPI_LAST_TAG, t->comm, MPI_STATUS_IGNORE);
    /* A pass begins when the last one is over on all ranks. */
    posted = received[0] > m->passes ? 0 : m->at.receives_posted;
    comes = received[0] < m->passes ? 0 : received[1];
    for (int64_t i = m->at.received; rc == MPI_SUCCESS && i < posted; i++) {
        MPI_Request *request = &m->messages[m->receives[i]].receive;
        if (i >= comes && *request != MPI_REQUEST_NULL)
            rc = MPI_Cancel(request);
        if (rc == MPI_SUCCESS)
            rc = MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    if (rc == MPI_SUCCESS)
        rc = take_untaken(m, comes - posted);
    for (int32_t i = m->at.sent; rc == MPI_SUCCESS && i < m->at.sends_posted; i++)
        rc = MPI_Wait(&m->messages[m->sends[i]].send, MPI_STATUS_IGNORE);
    return hcp_transport_mpi_check(rc, "ending transfers beside", t->name_before, err);
}

static void mpi_close(hcp_transport *t)
{
    struct mpi_transport *m = (struct mpi_transport *)t;
    const hcp_runtime *run = t->runtime;
    stop_thread(m);
    drop_requests(m);
    hcp_mpi_free_pass(m);
    if (m->staged) {
        run->stream_destroy(m->to_host);
        run->stream_destroy(m->to_device);
    }
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
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
    .settle = mpi_settle,
    .close = mpi_close,
};
