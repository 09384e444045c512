/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass with two levels. The outer ring is one pass of its transport, in which each rank
 * receives a block from every other node. Each of these, and before them the own one,
 * goes round the node's ranks in a pass of the inner transport of its own, which begins
 * when the block is there and the one before has been computed: an inner transfer then is
 * as early as the one that the planner counts on, but for the first of a round, which it
 * lets run beside the last block of the round before.
 */
#include "config.h"
#include <math.h>
#include "executor/ring-internal.h"

static void wait_begins(ring *r, int32_t step)
{
    if (!hcp_transport_queues(r->transport))
        ring_waits_for_block(r, step);
}

static void wait_ends(ring *r)
{
    if (!hcp_transport_queues(r->transport))
        ring_watch_idle(r->config.watch);
}

/* Until a transport is done; what: for whom this waits. */
static int end(ring *r, hcp_transport *t, int32_t on_rank, struct hcp_err *err)
{
    int rc;

    ring_watch_waiting(r->config.watch, "waiting for its blocks to be passed on",
                       on_rank);
    rc = hcp_transport_end(t, err);
    ring_watch_idle(r->config.watch);
    return rc;
}

/* The block of round j, which came from another node, is here. */
static int receive_round(ring *r, int32_t j, struct hcp_err *err)
{
    int rc;

    wait_begins(r, j * r->schedule.inner);
    rc = hcp_transport_wait(r->outer, j, 0, r->stream, err);
    wait_ends(r);
    if (rc)
        return rc;
    rc = r->config.runtime->event_record(r->rounds[j], r->stream);
    return rc ? ring_device_fail(r, rc, "cannot record an event", err) : HCP_OK;
}

static int run_step(ring *r, int32_t k, struct hcp_err *err)
{
    int32_t s = k % r->schedule.inner;
    int rc = HCP_OK;

    if (s > 0) {
        wait_begins(r, k);
        rc = hcp_transport_wait(r->transport, s, 0, r->stream, err);
        wait_ends(r);
    }
    if (rc == HCP_OK)
        rc = hcp_transport_precede(r->outer, r->stream, err);
    if (rc == HCP_OK)
        rc = hcp_transport_precede(r->transport, r->stream, err);
    for (size_t i = 0; rc == HCP_OK && i < r->schedule.steps[k].n_pieces; i++)
        rc = ring_compute(r, r->schedule.steps[k].piece + i, err);
    return rc ? rc : hcp_transport_done(r->transport, s, r->stream, err);
}

/* Round j; the times of its transfers count from the pass's start. */
static int run_round(ring *r, int32_t j, struct hcp_err *err)
{
    int32_t w = r->schedule.inner;
    double from = 0;
    int rc = j > 0 ? receive_round(r, j, err) : HCP_OK;

    if (rc == HCP_OK)
        rc = hcp_transport_begin(r->transport, r->transfers + j * w, w,
                                 j > 0 ? r->rounds[j] : r->start, err);
    for (int32_t s = 0; rc == HCP_OK && s < w; s++)
        rc = run_step(r, j * w + s, err);
    /* Waiting is told from computing; the last step runs while the next round is
     * queued. */
    if (rc == HCP_OK && hcp_transport_queues(r->transport))
        rc = ring_follow(r, j * w, (j + 1) * w - 1, err);
    if (rc == HCP_OK)
        rc = end(r, r->transport, r->schedule.after, err);
    if (rc == HCP_OK) /* sent round the node, too */
        rc = hcp_transport_done(r->outer, j, r->stream, err);
    if (rc == HCP_OK && j > 0) {
        rc = r->config.runtime->event_ms(r->start, r->rounds[j], &from);
        if (rc)
            return ring_device_fail(r, rc, "cannot read an event", err);
    }
    for (int32_t s = 0; rc == HCP_OK && s < w; s++) {
        struct hcp_transfer_times *t = &r->level_times[j * w + s];

        if (hcp_transport_times(r->transport, s, t))
            *t = (struct hcp_transfer_times){NAN, NAN, NAN, NAN};
        t->receive_from_ms += from;
        t->receive_to_ms += from;
        t->send_from_ms += from;
        t->send_to_ms += from;
    }
    return rc;
}

int ring_levels_pass(ring *r, struct hcp_err *err)
{
    const struct hcp_transfer_times none = {NAN, NAN, NAN, NAN};
    int32_t w = r->schedule.inner, m = r->schedule.m, nodes = m / w;
    int rc = ring_meet(r, "waiting for all ranks to begin a pass", err);

    for (int32_t k = 0; k < 2 * m; k++)
        r->level_times[k] = none;
    if (rc == HCP_OK)
        rc = ring_record_start(r, err);
    if (rc == HCP_OK)
        rc = hcp_transport_begin(r->outer, r->outer_transfers, nodes, r->start, err);
    for (int32_t j = 0; rc == HCP_OK && j < nodes; j++)
        rc = run_round(r, j, err);
    if (rc == HCP_OK)
        rc = ring_follow(r, 0, m, err);
    if (rc == HCP_OK)
        rc = end(r, r->outer, r->schedule.outer_after, err);
    for (int32_t j = 0; rc == HCP_OK && j < nodes; j++)
        if (hcp_transport_times(r->outer, j, &r->level_times[m + j * w]))
            r->level_times[m + j * w] = none;
    return rc;
}
