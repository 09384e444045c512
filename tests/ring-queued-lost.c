/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks whose devices or kernels fail in the middle of a pass, as hcp-ring --rebalance
 * takes it: the others come out of the pass, and the next ring is one of them alone.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fake-gpu.h"
#include "tests/ring-queued.h"

/* Gives the tokens of rank `gone` to the one after it. */
static void leave_out(struct queued_test *t, struct queued_plan *p, int gone)
{
    int64_t counts[RANKS], at = 0;
    size_t n = p->plan.n_ranks;

    p->tokens[(size_t)(gone + 1) % n] += p->tokens[gone];
    p->tokens[gone] = 0;
    if (hcp_layout_segments(p->plan.layout, p->plan.stripes, n, p->tokens,
                            p->plan.seq_len, p->segments, RANKS * PARTS,
                            counts) != HCP_STATUS_OK)
        queued_give_up(t, &(struct hcp_err){.text = "no plan without a rank"});
    for (size_t i = 0; i < n; at += counts[i++]) {
        p->ranks[i].tokens = p->tokens[i];
        p->ranks[i].first_segment = at;
        p->ranks[i].n_segments = counts[i];
    }
    p->plan.n_segments = (size_t)at;
}

static void cancel_links(void *links)
{
    ring_links_cancel(links);
}

/* A pass in which `gone` fails, one way or another. What each rank says of it is what is
 * so; 1 if it has failed. */
static int lose(struct queued_test *t, ring *r, int gone, int way)
{
    struct {
        int64_t meetings;
        int through, broken;
    } mine = {0, 0, 0}, all[RANKS];
    struct ring_times times;
    struct hcp_err err = {0};
    int64_t most = 0;
    int broken = 0, wrong = 0, rc;

    if (t->comm.rank == gone && way == 0)
        ring_fail_at(r, rand() % RANKS);
    else if (t->comm.rank == gone)
        fake_gpu_lose_after(rand() % 150);
    rc = ring_pass(r, &times, NULL, &err);
    mine.through = rc == HCP_OK;
    mine.broken = rc && ring_broken(r);
    if (mine.broken && ring_alarm_raise(t->alarm, &err))
        queued_give_up(t, &err);
    if (rc && !mine.broken && !ring_alarm_await(t->alarm, 100))
        queued_give_up(t, &err);
    mine.meetings = ring_meetings(r);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE,
                  t->comm.world);
    fake_gpu_lose_after(-1);
    for (int i = 0; i < t->comm.size; i++) {
        most = all[i].meetings > most ? all[i].meetings : most;
        broken |= all[i].broken;
        wrong |= all[i].broken && i != gone;
    }
    for (int i = 0; i < t->comm.size; i++)
        wrong |= !broken && !all[i].through;
    t->wrong += wrong;
    if (wrong)
        printf("# rank %d: not rank %d has failed, or it alone: %s\n", t->comm.rank, gone,
               err.text);
    ring_alarm_over(t->alarm);
    if (!broken)
        ring_close(r);
    else if (ring_abandon(r, most, &err))
        queued_give_up(t, &err);
    return broken;
}

void queued_lost(struct queued_test *t, int n)
{
    struct hcp_err err = {0};
    int failed = 0;
    char text[160];

    if (ring_alarm_start(&t->comm, cancel_links, t->links, &t->alarm, &err) || !t->alarm)
        queued_give_up(t, &err);
    for (int i = 0; i < n; i++) {
        struct queued_plan p;
        ring *r = NULL;
        int gone;

        queued_plan_make(t, &p, queued_range(&t->seed, 100, 400));
        do
            gone = (int)queued_range(&t->seed, 0, t->comm.size - 1);
        while (p.tokens[gone] == 0);
        queued_open(t, &p, &r);
        for (int k = 0; k < (int)queued_range(&t->seed, 0, 2); k++) {
            struct ring_times times;

            if (ring_pass(r, &times, NULL, &err) || ring_all_ok(&t->comm, HCP_OK, &err))
                queued_give_up(t, &err);
        }
        if (!lose(t, r, gone, i % 3))
            continue;
        failed++;
        leave_out(t, &p, gone);
        queued_run(t, &p, 2);
    }
    ring_alarm_stop(t->alarm);
    t->alarm = NULL;
    snprintf(
        text, sizeof text,
        "%d times of %d a rank of %d was lost: the right one, and the others are right",
        failed, n, t->comm.size);
    queued_point(t, t->wrong == 0, text);
    queued_point(t, 3 * failed >= n, "most were lost");
}
