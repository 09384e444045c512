/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include "planner/plan.h"

/* The ring of theory.md ("The ring") with the buffers of the executor: block k of rank i
 * is the KV of rank (i - k) mod m;
 *
 *   fin[i][k]         = max(ready[i][k], fin[i][k-1]) + t_i(block)
 *   ready[i][k]       = send_ms + max(ready[i-1][k-1],         the sender has it
 *                                     ready[i][k-1],           link i-1 -> i is free
 *                                     fin[i][k-R],             a buffer is free: what was
 *                                     ready[i+1][k-R+1])       in it is computed and sent
 *
 * R buffers beside the own block, which stays: the last two terms begin with k - R >= 1.
 * With one buffer a block could never be sent on while the next one comes, and the last
 * term is left out. A block travels only as far as its last reader. A rank it reaches
 * without having work on it holds it for a moment of no length; a rank it does not reach
 * skips the step, and then all steps after it: the ranks whose KV stops before rank i are
 * those nearest behind it.
 *
 * A layer's linear work stands around this: ready[i][0] is the end of what rank i does
 * before its ring (its own K and V are there then, and it neither sends nor receives
 * before that), and what it does afterwards follows its last block. With a barrier,
 * the first step begins when all ranks are there, and the work after it when all have
 * done the last one.
 */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double block_ms(const struct ring_input *in, int32_t i, int32_t j)
{
    const double *table = j < i ? in->early : in->late;

    return in->ask ? in->ask(in->ask_ctx, i, j)
                   : table[(size_t)in->cls[i] * (size_t)in->stride + (size_t)in->cls[j]];
}

/* What rank i computes in step k, alone. */
static double alone_ms(const struct ring_input *in, int32_t i, int32_t k)
{
    return k == 0 ? in->own[in->cls[i]] : block_ms(in, i, (i - k + in->m) % in->m);
}

static int32_t before_of(const struct ring_input *in, int32_t i)
{
    return i > 0 ? i - 1 : in->m - 1;
}

double ring_transfer_ms(const struct ring_input *in, int32_t i, int32_t k, double own_ms,
                        double peer_ms)
{
    const struct link_into *link = &in->into[i];
    int32_t j = (i - k + in->m) % in->m;
    double ms = in->starts[j] * link->alpha_ms + link->token_ms * (double)in->len[j], own;

    if (link->disturbs)
        hcp_interference_times(&link->beside, own_ms, peer_ms, ms, &own, &ms);
    return ms;
}

double ring_compute_ms(const struct ring_input *in, int32_t i, int32_t k, double own_ms,
                       double peer_ms)
{
    const struct link_into *link = &in->into[i];
    int32_t next = (i - k - 1 + 2 * in->m) % in->m; /* whose block comes meanwhile */
    double ms = own_ms, transfer;

    if (!link->disturbs)
        return ms;
    if (k + 1 < in->m && k + 1 <= in->hops[next]) {
        transfer =
            in->starts[next] * link->alpha_ms + link->token_ms * (double)in->len[next];
        hcp_interference_times(&link->beside, own_ms, peer_ms, transfer, &ms, &transfer);
    }
    return k > 0 ? ms + link->beside.overhead_ms : ms;
}

/* Both by what the ranks compute alone, which is looked up where it matters. */
static double transfer_ms(const struct ring_input *in, int32_t i, int32_t k)
{
    int disturbs = in->into[i].disturbs;

    return ring_transfer_ms(in, i, k, disturbs ? alone_ms(in, i, k - 1) : 0,
                            disturbs ? alone_ms(in, before_of(in, i), k - 1) : 0);
}

static double compute_ms(const struct ring_input *in, int32_t i, int32_t k)
{
    double peer = in->into[i].disturbs ? alone_ms(in, before_of(in, i), k) : 0;

    return ring_compute_ms(in, i, k, alone_ms(in, i, k), peer);
}

void ring_put_step(const struct ring_input *in, hcp_step *steps, int32_t i, int32_t k,
                   double ready, double start, double busy, double fin, double wait)
{
    steps[(size_t)i * (size_t)in->m + (size_t)k] =
        (hcp_step){.rank = i,
                   .step = k,
                   .block_of = (i - k + in->m) % in->m,
                   .ready_ms = ready,
                   .start_ms = start,
                   .busy_ms = busy,
                   .fin_ms = fin,
                   .wait_ms = wait};
}

/* A block in one piece; ready NaN: not received, not waited for. */
static void put_step(const struct ring_input *in, hcp_step *steps, int32_t i, int32_t k,
                     double ready, double before, double fin, double busy)
{
    double start = ready > before ? ready : before;

    ring_put_step(in, steps, i, k, ready, start, busy, fin, start - before);
}

/* Every rank waits for the slowest in each step: sum over steps of the larger of the
 * longest computation and the longest transfer beside it. */
static double run_barrier(const struct ring_input *in, double *fin, hcp_step *steps)
{
    int32_t m = in->m;
    double now = 0, first = 0, makespan;

    for (int32_t i = 0; in->before && i < m; i++)
        now = larger(now, in->before[i]);
    first = now;
    for (int32_t k = 0; k < m; k++) {
        double longest = 0, start = now;

        for (int32_t i = 0; i < m; i++) {
            int32_t j = (i - k + m) % m;
            double t;

            if (!in->into) {
                t = alone_ms(in, i, k);
                if (k < in->hops[j])
                    longest = larger(longest, in->send_ms[j]);
            } else {
                t = k <= in->hops[j] ? compute_ms(in, i, k) : 0;
                if (in->busy)
                    in->busy[i] += t;
                if (k < in->hops[j])
                    longest = larger(longest, transfer_ms(in, (i + 1) % m, k + 1));
            }
            longest = larger(longest, t);
            if (steps) {
                double before = k == 0 ? first : fin[i];

                put_step(in, steps, i, k, k <= in->hops[j] ? start : (double)NAN, before,
                         k <= in->hops[j] ? start + t : before, t);
            }
            fin[i] = k <= in->hops[j] ? start + t : k == 0 ? 0 : fin[i];
        }
        now += longest;
    }
    makespan = now;
    for (int32_t i = 0; in->after && i < m; i++) {
        fin[i] = now + in->after[i];
        makespan = larger(makespan, fin[i]);
    }
    return makespan;
}

/* ---- without the barrier: one step ---- */

struct before {
    const double *ready, *fin;    /* of the step before; ready[m] is ready[0] */
    const double *freed, *passed; /* NULL: there is a free buffer */
};

static void run_step(const struct ring_input *in, int32_t k, const struct before *b,
                         double *ready_next, double *fin, hcp_step *steps)
{
    int32_t m = in->m;

    for (int32_t i = 0; i < m; i++) {
        int32_t j = i >= k ? i - k : i - k + m;
        double start, t = 0;

        if (k > in->hops[j]) {
            ready_next[i] = NAN;
            fin[i] = b->fin[i];
        } else {
            t = in->into ? compute_ms(in, i, k) : block_ms(in, i, j);
            start = larger(b->ready[before_of(in, i)], b->ready[i]);
            if (b->freed)
                start = larger(start, b->freed[i]);
            if (b->passed && b->passed[i] > start) /* NaN: it was not sent on */
                start = b->passed[i];
            ready_next[i] = start + (in->into ? transfer_ms(in, i, k) : in->send_ms[j]);
            fin[i] = larger(ready_next[i], b->fin[i]) + t;
            if (in->busy)
                in->busy[i] += t;
        }
        if (steps)
            put_step(in, steps, i, k, ready_next[i], b->fin[i], fin[i], t);
    }
}

double *ring_ready(const struct ring_input *in, const struct ring_arrays *a, int32_t k)
{
    int32_t rows = in->buffers > 2 ? in->buffers : 2;

    return a->ready + (size_t)(k % rows) * (size_t)(in->m + 1);
}

double *ring_fin(const struct ring_input *in, const struct ring_arrays *a, int32_t k)
{
    int32_t rows = in->buffers > 0 ? in->buffers + 1 : 2;

    return a->history + (size_t)(k % rows) * (size_t)in->m;
}

double ring_run(const struct ring_input *in, struct ring_arrays *a, double *fin,
                hcp_step *steps)
{
    int32_t m = in->m, buffers = in->buffers;
    int falling;
    double makespan = 0, *now = ring_fin(in, a, 0), *ready = ring_ready(in, a, 0);

    for (int32_t i = 0; in->into && in->busy && i < m; i++)
        in->busy[i] = 0;
    if (in->barrier)
        return run_barrier(in, fin, steps);
    if (in->pieces)
        return ring_run_pieces(in, a, fin, steps);
    if (!steps && ring_is_wide(in, &falling))
        return ring_run_wide(in, a, falling, fin);
    for (int32_t i = 0; i < m; i++) {
        double own = in->into ? compute_ms(in, i, 0) : in->own[in->cls[i]];

        ready[i] = in->before ? in->before[i] : 0;
        now[i] = ready[i] + own;
        if (in->busy)
            in->busy[i] = own;
        if (steps)
            put_step(in, steps, i, 0, ready[i], ready[i], now[i], own);
    }
    ready[m] = ready[0];
    for (int32_t k = 1; k < m; k++) {
        struct before b = {.ready = ready, .fin = now};

        ready = ring_ready(in, a, k);
        now = ring_fin(in, a, k);
        if (buffers > 0 && k > buffers) {
            b.freed = ring_fin(in, a, k - buffers);
            if (buffers > 1)
                b.passed = ring_ready(in, a, k - buffers + 1) + 1;
        }
        run_step(in, k, &b, ready, now, steps);
        ready[m] = ready[0]; /* rank m is rank 0 */
    }
    for (int32_t i = 0; i < m; i++) {
        fin[i] = in->after ? now[i] + in->after[i] : now[i];
        makespan = larger(makespan, fin[i]);
    }
    return makespan;
}
