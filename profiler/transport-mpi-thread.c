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
#include <sys/prctl.h>
#include <time.h>
#include "profiler/transport-mpi.h"

enum { MIN_NAP_NS = 20000, MAX_NAP_NS = 200000, WINDOW = 16 };

static double now_ms(const struct mpi_transport *m)
{
    return 1e3 * (hcp_transport_now() - m->start_s);
}

static int tag_of(int32_t nth_block, int32_t piece)
{
    return (nth_block * 64 + piece % 64) % MPI_LAST_TAG;
}

static int post(struct mpi_transport *m, struct mpi_message *p, int sending,
                struct hcp_err *err)
{
    int rc =
        sending ? MPI_Isend(p->host, (int)p->bytes, MPI_BYTE, m->base.after,
                            tag_of(p->nth_sent, p->piece), m->base.comm, &p->send)
                : MPI_Irecv(p->host, (int)p->bytes, MPI_BYTE, m->base.before,
                            tag_of(p->nth_received, p->piece), m->base.comm, &p->receive);
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
    while (m->at.receives_posted < m->n_receives &&
           m->at.receives_posted - m->at.received < WINDOW) {
        struct mpi_message *p = &m->messages[m->receives[m->at.receives_posted]];
        int rc;
        if (!buffer_free(m, p->step))
            break;
        if (p->first)
            m->times[p->step].receive_from_ms = now_ms(m);
        if ((rc = post(m, p, 0, err)) != HCP_OK)
            return rc;
        m->at.receives_posted++;
        *moved = 1;
    }
    return HCP_OK;
}

static int check_received(struct mpi_transport *m, struct mpi_message *p, int rc,
                          MPI_Status *status, struct hcp_err *err)
{
    int class = MPI_SUCCESS, bytes = 0;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    else
        rc = MPI_Get_count(status, MPI_BYTE, &bytes);
    if (class == MPI_ERR_TRUNCATE || (rc == MPI_SUCCESS && bytes != p->bytes))
        return hcp_fail(err, HCP_FAILED,
                        "the data of rank %d has not the length expected (step %d, piece "
                        "%d); the ranks do not run the same plan",
                        m->base.name_before, p->step, p->piece);
    return hcp_transport_mpi_check(rc, "receiving from", m->base.name_before, err);
}

static int test_receives(struct mpi_transport *m, int *moved, struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    while (m->at.received < m->at.receives_posted) {
        struct mpi_message *p = &m->messages[m->receives[m->at.received]];
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
        struct mpi_message *p = &m->messages[m->receives[m->at.landed]];
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
    while (m->at.sends_posted < m->n_sends && m->at.sends_posted - m->at.sent < WINDOW) {
        struct mpi_message *p = &m->messages[m->sends[m->at.sends_posted]];
        int there = p->receive_order < m->at.received, rc;
        if (m->staged && p->step == 0 &&
            failed_device(m, m->base.runtime->event_done(p->copied, &there),
                          "copy from the GPU", err) != HCP_OK)
            return HCP_FAILED;
        if (!there)
            break;
        if (p->first)
            m->times[p->step].send_from_ms = now_ms(m);
        if ((rc = post(m, p, 1, err)) != HCP_OK)
            return rc;
        m->at.sends_posted++;
        *moved = 1;
    }
    while (m->at.sent < m->at.sends_posted) {
        struct mpi_message *p = &m->messages[m->sends[m->at.sent]];
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

/* A look at MPI costs some 10 us of a core, so naps grow with the wait: by at most a
 * sixteenth of it is a message noticed late. */
static void nap(double waited_s)
{
    double ns = 1e9 * waited_s / 16;
    struct timespec t = {0, MIN_NAP_NS};
    if (ns > MIN_NAP_NS)
        t.tv_nsec = ns < MAX_NAP_NS ? (long)ns : MAX_NAP_NS;
    nanosleep(&t, NULL);
}

/* Moves a pass. Returns at its end, or when the caller gives up. */
static int move(struct mpi_transport *m, struct hcp_err *err)
{
    double moved_s = hcp_transport_now();
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
                m->messages[m->sends[m->at.sends_posted]].step == 0);
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
        if (moved || !busy)
            moved_s = hcp_transport_now();
        else
            nap(hcp_transport_now() - moved_s);
    }
}

void *hcp_mpi_work(void *arg)
{
    struct mpi_transport *m = arg;
    struct hcp_err err = {0};
    /* Naps as short as asked for, not 50 us longer. */
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    int rc = failed_device(m, m->base.runtime->select(m->base.ordinal),
                           "select the device", &err);
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
