/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
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
    if (hcp_mpi_make_pass(m, err) != HCP_OK)
        return HCP_FAILED;
    m->start_s = hcp_transport_now();
    if (m->staged && start_copies(m, start, err) != HCP_OK)
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
    .close = mpi_close,
};
