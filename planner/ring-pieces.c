/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

/* The ring of ring.c with blocks that travel and are computed in pieces. A piece is sent
 * on as soon as it is there, in order on each link; it is computed when it is there and
 * the piece before is done. A block's buffer is free when all its pieces are computed and
 * sent. The own block is computed whole; its pieces are there from the start. What a rank
 * sees nothing of takes it no time, but it waits for it as the executor does. */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* What rank i computes in step k, alone. */
static double alone_ms(const struct ring_input *in, int32_t i, int32_t k)
{
    const double *send_ms, *ms;
    double sum = 0;
    int32_t n;

    if (k == 0)
        return in->own[in->cls[i]];
    n = in->pieces(in->pieces_ctx, i, (i - k + in->m) % in->m, &ms, &send_ms);
    for (int32_t p = 0; p < n; p++)
        sum += ms[p];
    return sum;
}

struct ring_stretch ring_stretch_of(const struct ring_input *in, int32_t i, int32_t k,
                                    double (*alone_of)(const struct ring_input *, int32_t,
                                                       int32_t))
{
    struct ring_stretch s = {1, 1, 0};
    int32_t from = i > 0 ? i - 1 : in->m - 1, j = (i - k + in->m) % in->m;
    const struct link_into *link;
    double own, alone;

    if (!in->into || !in->into[i].disturbs)
        return s;
    link = &in->into[i];
    s.overhead_ms = k > 0 ? link->beside.overhead_ms : 0;
    own = alone_of(in, i, k);
    if (own > 0)
        s.compute =
            (ring_compute_ms(in, i, k, own, alone_of(in, from, k)) - s.overhead_ms) / own;
    alone = in->starts[j] * link->alpha_ms + link->token_ms * (double)in->len[j];
    if (k > 0 && alone > 0)
        s.transfer = ring_transfer_ms(in, i, k, alone_of(in, i, k - 1),
                                      alone_of(in, from, k - 1)) /
                     alone;
    return s;
}

static struct ring_stretch stretch_of(const struct ring_input *in, int32_t i, int32_t k)
{
    return ring_stretch_of(in, i, k, alone_ms);
}

/* Step k of rank i, whose block comes from rank j: arrival[] is when its pieces are at
 * the rank before, here[] receives when they are here. *free_ms: when the link and a
 * buffer are free; then when the last piece is here. Returns the end of computing. */
static double run_block(const struct ring_input *in, int32_t i, int32_t j, int32_t k,
                        double *free_ms, double before, const double *arrival,
                        double *here, hcp_step *steps)
{
    const double *send_ms, *ms;
    double now = before, start = 0, busy = 0, wait = 0;
    struct ring_stretch by = stretch_of(in, i, k);
    int32_t n = in->pieces(in->pieces_ctx, i, j, &ms, &send_ms);

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
    if (in->into && in->busy)
        in->busy[i] += busy;
    if (steps)
        ring_put_step(in, steps, i, k, *free_ms, start, busy, now, wait);
    return now;
}

double ring_run_pieces(const struct ring_input *in, struct ring_arrays *a, double *fin,
                       hcp_step *steps)
{
    int32_t m = in->m, buffers = in->buffers;
    double makespan = 0, *ready = ring_ready(in, a, 0);
    double last_rank[MAX_SUB_BLOCKS]; /* arrivals at rank m - 1 in the step before */

    for (int32_t i = 0; i < m; i++) {
        double *now = ring_fin(in, a, 0), own = in->own[in->cls[i]];
        double *arrival = a->arrival + (size_t)i * MAX_SUB_BLOCKS;

        own *= stretch_of(in, i, 0).compute;
        ready[i] = in->before ? in->before[i] : 0;
        now[i] = ready[i] + own;
        if (in->into && in->busy)
            in->busy[i] = own;
        for (int32_t p = 0; p < MAX_SUB_BLOCKS; p++)
            arrival[p] = ready[i];
        if (steps)
            ring_put_step(in, steps, i, 0, ready[i], ready[i], own, now[i], 0);
    }
    ready[m] = ready[0];
    for (int32_t k = 1; k < m; k++) {
        const double *ready_before = ready, *before = ring_fin(in, a, k - 1);
        double *now = ring_fin(in, a, k);

        ready = ring_ready(in, a, k);
        memcpy(last_rank, a->arrival + (size_t)(m - 1) * MAX_SUB_BLOCKS,
               sizeof last_rank);
        /* Downwards: a rank's arrivals are read by the rank after it, then replaced. */
        for (int32_t i = m - 1; i >= 0; i--) {
            int32_t j = i >= k ? i - k : i - k + m;
            double *here = a->arrival + (size_t)i * MAX_SUB_BLOCKS, free_ms;

            if (k > in->hops[j]) {
                ready[i] = NAN;
                now[i] = before[i];
                if (steps)
                    ring_put_step(in, steps, i, k, NAN, now[i], 0, now[i], 0);
                continue;
            }
            free_ms = ready_before[i];
            if (buffers > 0 && k > buffers) {
                free_ms = larger(free_ms, ring_fin(in, a, k - buffers)[i]);
                if (buffers > 1) {
                    double passed = ring_ready(in, a, k - buffers + 1)[i + 1];

                    free_ms = passed > free_ms ? passed : free_ms; /* NaN: not sent */
                }
            }
            now[i] = run_block(in, i, j, k, &free_ms, before[i],
                               i > 0 ? here - MAX_SUB_BLOCKS : last_rank, here, steps);
            ready[i] = free_ms;
        }
        ready[m] = ready[0];
    }
    for (int32_t i = 0; i < m; i++) {
        fin[i] = ring_fin(in, a, m - 1)[i];
        if (in->after)
            fin[i] += in->after[i];
        makespan = larger(makespan, fin[i]);
    }
    return makespan;
}
