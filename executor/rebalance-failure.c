/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that cannot go on, though its process lives. It raises the alarm, which ends the
 * waits of the others; all come to one exchange, in which all learn of all who have
 * failed. These stay to decide with the others, and have no part in rings from then on.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "executor/rebalance-internal.h"
#include "profiler/measure.h"

/* ---- what happened ---- */

/* This rank's part of the exchange. A failure that is not its own comes of another's,
 * which the alarm must then tell of: otherwise the run fails. */
static int judge(struct run *r, int rc, struct heard *mine, struct hcp_err *err)
{
    struct ring_program *p = r->p;

    mine->through = rc == HCP_OK;
    mine->broken = 0;
    if (rc == HCP_OK)
        return HCP_OK;
    mine->broken = r->ring ? ring_broken(r->ring) : p->broken.code != HCP_OK;
    if (isnan(r->broken_since_s) && mine->broken)
        r->broken_since_s = hcp_now_s();
    r->mine = r->ring ? *err : p->broken;
    if (!r->ring) /* all ranks know that opening has failed */
        return HCP_OK;
    p->alone = 1;
    if (!p->alarm)
        return rc;
    if (mine->broken) {
        rc = ring_alarm_raise(p->alarm, err);
    } else {
        ring_watch_waiting(p->watch, "waiting to hear which rank has failed", -1);
        rc = ring_alarm_await(p->alarm, p->o.timeout_s / 2) ? HCP_OK : rc;
        ring_watch_idle(p->watch);
    }
    p->alone = rc != HCP_OK;
    return rc;
}

int rebalance_hear(struct run *r, int rc, const struct ring_times *times,
                   struct hcp_err *err)
{
    struct ring_program *p = r->p;
    struct heard mine = {.told = {times ? times->compute_ms : 0,
                                  times ? times->total_ms : 0,
                                  hcp_rebalance_fingerprint(r->rebalance)},
                         .meetings = ring_meetings(r->ring)};
    int failed = rc, broken = 0, all = 1;

    rc = judge(r, rc, &mine, err);
    if (rc)
        return rc;
    ring_watch_waiting(p->watch, "waiting for the times of the other ranks", -1);
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, r->heard, sizeof mine, MPI_BYTE,
                      p->comm.world) != MPI_SUCCESS)
        rc = hcp_fail(err, HCP_FAILED, "MPI failed to gather times");
    ring_watch_idle(p->watch);
    p->alone = rc != HCP_OK;
    for (size_t k = 0; rc == HCP_OK && k < r->n; k++) {
        if (r->heard[k].told.state != r->heard[0].told.state)
            rc = hcp_fail(err, HCP_FAILED,
                          "ranks 0 and %zu do not see the same after %d passes; they are "
                          "to have one version of libhcpplan and one database",
                          k, r->passes);
        broken |= r->heard[k].broken;
        all &= r->heard[k].through;
    }
    if (rc || all)
        return rc;
    if (broken) {
        if (isnan(r->broken_since_s))
            r->broken_since_s = hcp_now_s();
        return RANK_LOST;
    }
    /* Opening a ring has failed on all for another reason, with one text. */
    return failed ? failed : hcp_fail(err, HCP_FAILED, "a pass ended on some ranks only");
}

/* ---- what follows ---- */

/* What the ranks that failed say of it. */
static int note(struct run *r, const char *during, struct hcp_err *err)
{
    char mine[FAILURE_TEXT], *texts = calloc(r->n, sizeof mine);
    struct failure *more = realloc(r->failures, (r->n_failures + r->n) * sizeof *more);
    int rc = texts && more ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    if (more)
        r->failures = more;
    rc = ring_all_ok(&r->p->comm, rc, err);
    snprintf(mine, sizeof mine, "%.*s", FAILURE_TEXT - 1, r->mine.text);
    if (rc == HCP_OK && MPI_Allgather(mine, sizeof mine, MPI_CHAR, texts, sizeof mine,
                                      MPI_CHAR, r->p->comm.world) != MPI_SUCCESS)
        rc = hcp_fail(err, HCP_FAILED, "MPI failed to gather what ranks failed of");
    for (size_t k = 0; rc == HCP_OK && k < r->n; k++) {
        struct failure *f = &r->failures[r->n_failures];

        if (!r->heard[k].broken)
            continue;
        *f = (struct failure){
            .rank = (int)k, .pass = r->passes, .during = during, .recovered_ms = NAN};
        memcpy(f->text, texts + k * sizeof f->text, sizeof f->text);
        r->n_failures++;
    }
    free(texts);
    return rc;
}

static int leave(struct run *r, struct hcp_err *err)
{
    int64_t most = 0;
    int rc;

    for (size_t k = 0; k < r->n; k++)
        most = r->heard[k].meetings > most ? r->heard[k].meetings : most;
    if (r->p->alarm)
        ring_alarm_over(r->p->alarm);
    rc = r->ring ? ring_abandon(r->ring, most, err) : ring_links_drop(r->p->links, err);
    r->p->alone = rc != HCP_OK;
    r->ring = NULL;
    return rc;
}

/* Of the present proposal, by rank that failed. One that was not taken up said the same
 * of those that failed before it. */
static int keep_lost(struct run *r, struct hcp_err *err)
{
    size_t n = 0;
    hcp_recompute *all = NULL;
    int rc = HCP_OK;

    if (hcp_rebalance_recompute(r->rebalance, NULL, 0, &n) || n == 0)
        return HCP_OK; /* the failed rank had nothing */
    all = calloc(n, sizeof *all);
    if (!all || hcp_rebalance_recompute(r->rebalance, all, n, &n))
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = r->recovered; rc == HCP_OK && i < r->n_failures; i++) {
        struct failure *f = &r->failures[i];

        free(f->lost);
        f->n_lost = 0;
        f->lost = calloc(n, sizeof *f->lost);
        if (!f->lost)
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
        for (size_t k = 0; f->lost && k < n; k++)
            if (all[k].lost_by == f->rank)
                f->lost[f->n_lost++] = all[k];
    }
    free(all);
    return rc;
}

static int ask(struct run *r, hcp_rebalance_verdict *v, struct hcp_err *err)
{
    const struct failure *last = &r->failures[r->n_failures - 1];
    char text[600] = "";

    for (size_t k = 0; k < r->n; k++)
        if (r->heard[k].broken ? hcp_rebalance_fail(r->rebalance, k)
                               : hcp_rebalance_skip(r->rebalance, k))
            return hcp_fail(err, HCP_FAILED, "libhcpplan: rank %zu is heard twice", k);
    if (hcp_rebalance_step(r->rebalance, r->p->o.repeat - r->passes, text, sizeof text,
                           v))
        return hcp_fail(err, HCP_FAILED, "libhcpplan: %s", text);
    v->reason = HCP_REBALANCE_FAILED;
    if (v->decision == HCP_REBALANCE_MOVE) /* by the speeds known so far */
        r->kept = HCP_REBALANCE_STEADY;
    if (v->decision == HCP_REBALANCE_STUCK)
        return hcp_fail(err, HCP_FAILED, "rank %d has failed (%.300s), and %s%s",
                        last->rank, last->text,
                        r->n_failures == r->n ? "no rank is left"
                                              : "there is no plan without it: ",
                        r->n_failures == r->n ? "" : text);
    return keep_lost(r, err);
}

int rebalance_lose(struct run *r, const char *during, hcp_rebalance_verdict *v,
                   struct hcp_err *err)
{
    struct ring_program *p = r->p;
    struct ring_identity id;
    size_t before = r->n_failures;
    int rc = note(r, during, err);

    if (rc == HCP_OK)
        rc = leave(r, err);
    if (p->alone)
        return rc;
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, ask(r, v, err), err);
    if (rc == HCP_OK && hcp_rebalance_proposal(r->rebalance)) {
        ring_identify(p, hcp_rebalance_proposal(r->rebalance), &id);
        rc = ring_agree(&p->comm, &id, err);
    }
    for (size_t i = before; rc == HCP_OK && p->comm.rank == 0 && i < r->n_failures; i++)
        fprintf(stderr, "hcp-ring: rank %d failed (%s %d): %s; going on without it\n",
                r->failures[i].rank, during, r->passes, r->failures[i].text);
    return rc;
}

int rebalance_recovered(struct run *r, struct hcp_err *err)
{
    double ms = 1e3 * (hcp_now_s() - r->broken_since_s), most = ms;

    if (r->recovered == r->n_failures)
        return HCP_OK;
    if (MPI_Allreduce(&ms, &most, 1, MPI_DOUBLE, MPI_MAX, r->p->comm.world) !=
        MPI_SUCCESS)
        return hcp_fail(err, HCP_FAILED, "MPI failed to gather times");
    for (; r->recovered < r->n_failures; r->recovered++)
        r->failures[r->recovered].recovered_ms = most;
    r->broken_since_s = NAN;
    return HCP_OK;
}
