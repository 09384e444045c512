/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/joint.h"

/* Block k of rank i is the KV of rank (i - k) mod m. It comes here if that rank has any
 * and a rank from here on has work on it; blocks that do not come are skipped, and the
 * next one that does takes the next buffer. With that, the terms are those of ring.c and
 * ring-pieces.c: a piece is sent on as soon as it is there, in order on each link, into a
 * buffer that is computed and passed on; it is computed when it is there and the piece
 * before is done. */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double alone_ms(const struct ring_input *in, int32_t i, int32_t k)
{
    int32_t j = i >= k ? i - k : i - k + in->m;

    return in->early[(size_t)i * (size_t)in->stride + (size_t)j];
}

static int comes(const struct ring_input *in, int32_t i, int32_t k)
{
    int32_t j = i >= k ? i - k : i - k + in->m;

    return k > 0 && k <= in->hops[j];
}

static struct ring_stretch stretch_of(const struct ring_input *in, int32_t i, int32_t k)
{
    struct ring_stretch s = ring_stretch_of(in, i, k, alone_ms);

    if (!(alone_ms(in, i, k) > 0)) /* only passed on: costs a rank no time */
        s.overhead_ms = 0;
    return s;
}

/* Transfer of block k into rank i, all of it. */
static double whole_send_ms(const struct ring_input *in, int32_t i, int32_t k)
{
    int32_t j = (i - k + in->m) % in->m, from = i > 0 ? i - 1 : in->m - 1;

    return in->into ? ring_transfer_ms(in, i, k, alone_ms(in, i, k - 1),
                                       alone_ms(in, from, k - 1))
                    : in->send_ms[j];
}

static double barrier(const struct ring_input *in, double *fin, hcp_step *steps)
{
    int32_t m = in->m;
    double now = 0;

    memset(fin, 0, (size_t)m * sizeof *fin);
    for (int32_t k = 0; k < m; k++) {
        double longest = 0, start = now;

        for (int32_t i = 0; i < m; i++) {
            int here = k == 0 || comes(in, i, k);
            double before = fin[i], t = 0;

            if (here) {
                struct ring_stretch by = stretch_of(in, i, k);

                t = alone_ms(in, i, k) * by.compute + by.overhead_ms;
                fin[i] = start + t;
            }
            in->busy[i] += t;
            longest = larger(longest, t);
            if (k + 1 < m && comes(in, (i + 1) % m, k + 1))
                longest = larger(longest, whole_send_ms(in, (i + 1) % m, k + 1));
            if (steps)
                ring_put_step(in, steps, i, k, here ? start : (double)NAN,
                              here ? start : before, t, fin[i],
                              here ? start - before : 0);
        }
        now += longest;
    }
    return now;
}

/* Block k of rank i: arrival[] is when its pieces are at the rank before, here[] receives
 * when they are here, *free_ms when the last one is. Returns the end of computing. */
static double run_block(const struct ring_input *in, int32_t i, int32_t k,
                        double *free_ms, double before, const double *arrival,
                        double *here, hcp_step *steps)
{
    const double *send_ms, *ms;
    double now = before, start = 0, busy = 0, wait = 0;
    struct ring_stretch by = stretch_of(in, i, k);
    int32_t n = in->pieces(in->pieces_ctx, i, (i - k + in->m) % in->m, &ms, &send_ms);

    for (int32_t p = 0; p < n; p++) {
        double begin;

        here[p] = *free_ms = larger(*free_ms, arrival[p]) + send_ms[p] * by.transfer;
        begin = larger(now, here[p]);
        if (p == 0)
            start = begin;
        wait += begin - now;
        now = begin + ms[p] * by.compute;
        busy += ms[p] * by.compute;
    }
    now += by.overhead_ms;
    busy += by.overhead_ms;
    in->busy[i] += busy;
    if (steps)
        ring_put_step(in, steps, i, k, *free_ms, start, busy, now, wait);
    return now;
}

/* What is carried from step to step. */
struct links_state {
    double *free_ms;        /* [m] when the link into a rank is */
    double *freed;          /* [buffers][m] when a buffer is */
    int32_t *came, *buffer; /* [m] blocks received; buffer of the last step's, -1 none */
};

static void step(const struct ring_input *in, struct ring_arrays *a,
                 struct links_state *l, int32_t k, double *fin, hcp_step *steps)
{
    int32_t m = in->m, buffers = in->buffers, last_buffer = l->buffer[m - 1];
    double last_rank[MAX_SUB_BLOCKS]; /* arrivals at rank m - 1 in the step before */

    memcpy(last_rank, a->arrival + (size_t)(m - 1) * MAX_SUB_BLOCKS, sizeof last_rank);
    /* Downwards: what a rank has got is read by the rank after it, then replaced. */
    for (int32_t i = m - 1; i >= 0; i--) {
        double *here = a->arrival + (size_t)i * MAX_SUB_BLOCKS, free_ms = l->free_ms[i];
        int32_t from = i > 0 ? i - 1 : m - 1;
        int32_t held = i > 0 ? l->buffer[from] : last_buffer, mine = -1;

        if (comes(in, i, k)) {
            if (buffers > 0) {
                mine = l->came[i]++ % buffers;
                free_ms = larger(free_ms, l->freed[(size_t)mine * (size_t)m + (size_t)i]);
            }
            fin[i] = run_block(in, i, k, &free_ms, fin[i],
                               i > 0 ? here - MAX_SUB_BLOCKS : last_rank, here, steps);
            l->free_ms[i] = free_ms;
            if (mine >= 0)
                l->freed[(size_t)mine * (size_t)m + (size_t)i] = fin[i];
            /* With one buffer a block could never be sent on while the next one comes:
             * there this is left out. */
            if (held >= 0 && buffers > 1) {
                double *freed = &l->freed[(size_t)held * (size_t)m + (size_t)from];

                *freed = larger(*freed, free_ms);
            }
        } else if (steps) {
            ring_put_step(in, steps, i, k, NAN, fin[i], 0, fin[i], 0);
        }
        l->buffer[i] = mine;
    }
}

double joint_ring(const struct ring_input *in, struct ring_arrays *a, double *fin,
                  hcp_step *steps)
{
    int32_t m = in->m;
    struct links_state l = {a->step_ms, a->history, a->came, a->buffer};
    double makespan = 0;

    memset(in->busy, 0, (size_t)m * sizeof *in->busy);
    if (in->barrier)
        return barrier(in, fin, steps);
    memset(l.free_ms, 0, (size_t)m * sizeof *l.free_ms);
    memset(l.freed, 0, (size_t)m * (size_t)in->buffers * sizeof *l.freed);
    memset(l.came, 0, (size_t)m * sizeof *l.came);
    for (int32_t i = 0; i < m; i++) {
        struct ring_stretch by = stretch_of(in, i, 0);

        l.buffer[i] = -1;
        memset(a->arrival + (size_t)i * MAX_SUB_BLOCKS, 0,
               MAX_SUB_BLOCKS * sizeof *a->arrival);
        fin[i] = in->busy[i] = alone_ms(in, i, 0) * by.compute;
        if (steps)
            ring_put_step(in, steps, i, 0, 0, 0, fin[i], fin[i], 0);
    }
    for (int32_t k = 1; k < m; k++)
        step(in, a, &l, k, fin, steps);
    for (int32_t i = 0; i < m; i++)
        makespan = larger(makespan, fin[i]);
    return makespan;
}
