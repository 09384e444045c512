/* SPDX-License-Identifier: Apache-2.0
 *
 * When a pass has failed on some ranks while all processes live: who is to blame, and how
 * what is half done is brought to an end, so that the ranks can form another ring.
 * MPI 3.1 has no way out of a barrier: meetings are barriers that do not block, and those
 * that only some ranks have entered are entered by the others afterwards.
 */
#include "config.h"
#include <time.h>
#include "executor/ring-internal.h"

/* Looks without a nap, which is what a meeting in time takes. */
enum { EAGER_LOOKS = 2000, NAP_NS = 20000 };

int ring_meet_unless_alarmed(ring *r)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    int met = 0, rc;

    r->unmet = 1;
    if (ring_alarm_heard(r->config.alarm))
        return MPI_ERR_OTHER;
    rc = MPI_Ibarrier(r->comm, &r->meeting);
    if (rc == MPI_SUCCESS)
        r->meetings++;
    for (int i = 0; rc == MPI_SUCCESS && !met; i++) {
        rc = MPI_Test(&r->meeting, &met, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS && !met && ring_alarm_heard(r->config.alarm))
            return MPI_ERR_OTHER;
        if (!met && i > EAGER_LOOKS)
            nanosleep(&nap, NULL);
    }
    r->unmet = rc != MPI_SUCCESS;
    return rc;
}

int64_t ring_meetings(const ring *r)
{
    return r ? r->meetings : 0;
}

void ring_fail_at(ring *r, int32_t step)
{
    const struct ring_schedule *s = &r->schedule;

    if (s->index < 0)
        return;
    step = step < s->m ? step : s->m - 1;
    while (step > 0 && s->steps[step].n_pieces == 0)
        step--;
    r->fails_after = s->steps[step].piece;
}

int ring_rehearses_failure(const ring *r, size_t piece)
{
    return piece == r->fails_after;
}

int ring_broken(ring *r)
{
    hcp_transport *transports[] = {r->transport, r->outer};
    int others = r->unmet, done;

    for (int i = 0; i < 2; i++) {
        enum hcp_transport_fault fault =
            transports[i] ? hcp_transport_fault(transports[i]) : HCP_TRANSPORT_GOOD;

        r->broken |= fault == HCP_TRANSPORT_DEVICE;
        others |= fault == HCP_TRANSPORT_OTHER;
    }
    /* A device that is lost may be noticed by the library that moves data first. */
    return r->broken || !others ||
           r->config.runtime->event_done(r->start, &done) != HCP_RC_OK;
}

/* Until all have entered the same meetings. */
static int end_meetings(ring *r, int64_t most, struct hcp_err *err)
{
    int rc = MPI_Wait(&r->meeting, MPI_STATUS_IGNORE);

    for (; rc == MPI_SUCCESS && r->meetings < most; r->meetings++) {
        rc = MPI_Ibarrier(r->comm, &r->meeting);
        if (rc == MPI_SUCCESS)
            rc = MPI_Wait(&r->meeting, MPI_STATUS_IGNORE);
    }
    return rc == MPI_SUCCESS ? HCP_OK
                             : hcp_fail(err, HCP_FAILED, "MPI failed to end a meeting");
}

int ring_abandon(ring *r, int64_t most_meetings, struct hcp_err *err)
{
    int rc = HCP_OK;

    ring_watch_waiting(r->config.watch, "waiting for all ranks to leave a pass", -1);
    if (r->schedule.m > 1 && r->schedule.index >= 0)
        rc = end_meetings(r, most_meetings, err);
    if (rc == HCP_OK)
        rc = ring_links_drop(r->config.links, err);
    /* What was queued before the failure may still use the ring's memory; on a device
     * that is lost this returns at once. */
    if (rc == HCP_OK && r->stream) {
        ring_watch_waiting(r->config.watch, "waiting for its own device to end a pass",
                           r->config.rank);
        r->config.runtime->sync(r->stream);
    }
    ring_watch_idle(r->config.watch);
    if (rc == HCP_OK)
        ring_close(r);
    return rc;
}
