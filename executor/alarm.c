/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "executor/comm.h"
#include "profiler/measure.h"

/* How often MPI is asked: a look costs some microseconds of a core that may be computing.
 */
#define LOOK_NS 5000000

struct ring_alarm {
    MPI_Comm comm;
    int size;
    void (*stop)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* of era, and while stop runs */
    int64_t era;          /* how often it was over */
    atomic_int heard;     /* in this era */
    int64_t raised;       /* by this rank */
    atomic_int quit;
    _Atomic int64_t to_come; /* alarms in all, once quit is set */
};

static void nap(void)
{
    nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
}

/* An alarm is the era that it was raised in. */
static void *listen(void *arg)
{
    ring_alarm *a = arg;
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t era = -1, came = 0;
    int rc = MPI_SUCCESS;

    while (rc == MPI_SUCCESS && !(a->quit && came >= a->to_come)) {
        int flag = 0;

        if (request == MPI_REQUEST_NULL)
            rc = MPI_Irecv(&era, 1, MPI_INT64_T, MPI_ANY_SOURCE, 0, a->comm, &request);
        if (rc == MPI_SUCCESS)
            rc = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        if (!flag) {
            nap();
            continue;
        }
        came++;
        pthread_mutex_lock(&a->lock);
        if (era == a->era && !a->heard) {
            a->heard = 1;
            a->stop(a->ctx);
        }
        pthread_mutex_unlock(&a->lock);
    }
    if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    return NULL;
}

int ring_alarm_start(const struct ring_comm *c, void (*stop)(void *ctx), void *ctx,
                     ring_alarm **out, struct hcp_err *err)
{
    ring_alarm *a = NULL;
    sigset_t all, old;
    MPI_Comm comm;
    int rc = HCP_OK, e, level = c->thread_level, least = level;

    *out = NULL;
    MPI_Allreduce(&level, &least, 1, MPI_INT, MPI_MIN, c->world);
    if (least < MPI_THREAD_MULTIPLE)
        return HCP_OK;
    if (MPI_Comm_dup(c->world, &comm) != MPI_SUCCESS)
        return hcp_fail(err, HCP_FAILED, "MPI cannot copy the communicator");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    a = calloc(1, sizeof *a);
    rc = ring_all_ok(c, a ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory"), err);
    if (rc || !a) {
        free(a);
        MPI_Comm_free(&comm);
        return rc;
    }
    a->comm = comm;
    a->size = c->size;
    a->stop = stop;
    a->ctx = ctx;
    pthread_mutex_init(&a->lock, NULL);
    sigfillset(&all); /* signals are the watch's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(&a->thread, NULL, listen, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e)
        rc = hcp_fail(err, HCP_FAILED, "cannot start a thread: %s", strerror(e));
    rc = ring_all_ok(c, rc, err);
    if (rc) {
        a->quit = 1;
        if (!e)
            pthread_join(a->thread, NULL);
        pthread_mutex_destroy(&a->lock);
        free(a);
        MPI_Comm_free(&comm);
        return rc;
    }
    *out = a;
    return HCP_OK;
}

int ring_alarm_raise(ring_alarm *a, struct hcp_err *err)
{
    int rank, rc = MPI_SUCCESS;

    MPI_Comm_rank(a->comm, &rank);
    a->raised++;
    for (int i = 0; rc == MPI_SUCCESS && i < a->size; i++)
        if (i != rank)
            rc = MPI_Send(&a->era, 1, MPI_INT64_T, i, 0, a->comm);
    return rc == MPI_SUCCESS
               ? HCP_OK
               : hcp_fail(err, HCP_FAILED, "MPI failed to tell others of a failure");
}

int ring_alarm_heard(const ring_alarm *a)
{
    return a->heard;
}

int ring_alarm_await(const ring_alarm *a, double patience_s)
{
    double until = hcp_now_s() + patience_s;

    while (!a->heard && hcp_now_s() < until)
        nap();
    return a->heard;
}

void ring_alarm_over(ring_alarm *a)
{
    pthread_mutex_lock(&a->lock);
    a->era++;
    a->heard = 0;
    pthread_mutex_unlock(&a->lock);
}

void ring_alarm_stop(ring_alarm *a)
{
    int64_t all = 0;

    if (!a)
        return;
    MPI_Allreduce(&a->raised, &all, 1, MPI_INT64_T, MPI_SUM, a->comm);
    a->to_come = all - a->raised;
    a->quit = 1;
    pthread_join(a->thread, NULL);
    pthread_mutex_destroy(&a->lock);
    MPI_Comm_free(&a->comm);
    free(a);
}
