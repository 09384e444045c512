/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include "planner/plan.h"

/* The ring of theory.md ("The ring"): block k of rank i is the KV of rank (i - k) mod m;
 *
 *   fin[i][k]         = max(ready[i][k], fin[i][k-1]) + t_i(block)
 *   send i -> i+1 of block k starts at
 *                       max(ready[i][k], link_free[i], fin[i+1][k+1-buffers])
 *   ready[i+1][k+1]   = that start + transfer time
 *
 * A block travels only as far as its last reader. A rank it reaches without having work
 * on it holds it for a moment of no length; a rank it does not reach skips the step.
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

static void put_step(const struct ring_input *in, hcp_step *steps, int32_t i, int32_t k,
                     double ready, double before, double fin, double busy)
{
    hcp_step *step = &steps[(size_t)i * (size_t)in->m + (size_t)k];

    step->rank = i;
    step->step = k;
    step->block_of = (i - k + in->m) % in->m;
    step->ready_ms = ready;
    step->start_ms =
        ready > before ? ready : before; /* NaN: not received, not waited for */
    step->busy_ms = busy;
    step->fin_ms = fin;
    step->wait_ms = step->start_ms - before;
}

/* Every rank waits for the slowest in each step: sum over steps of the larger of the
 * longest computation and the longest transfer beside it. */
static double run_barrier(const struct ring_input *in, double *fin, hcp_step *steps)
{
    int32_t m = in->m;
    double now = 0;

    for (int32_t k = 0; k < m; k++) {
        double longest = 0, start = now;

        for (int32_t i = 0; i < m; i++) {
            int32_t j = (i - k + m) % m;
            double t = k == 0 ? in->own[in->cls[i]] : block_ms(in, i, j);

            if (k < in->hops[j])
                longest = larger(longest, in->send_ms[j]);
            longest = larger(longest, t);
            if (steps) {
                double before = k == 0 ? 0 : fin[i];

                put_step(in, steps, i, k, k <= in->hops[j] ? start : (double)NAN, before,
                         k <= in->hops[j] ? start + t : before, t);
            }
            fin[i] = k <= in->hops[j] ? start + t : k == 0 ? 0 : fin[i];
        }
        now += longest;
    }
    return now;
}

/* ---- one step when every block travels the whole way ----
 *
 * Then link i - 1 -> i is free when the block before has arrived at i, which is the
 * ready time rank i has at hand. The loops are written for the vectoriser: ranks
 * i = 1 .. n of one step, pointers at i = 1, ready[-1] exists. Only maxima and additions,
 * so the result is the same without it. */
#if defined __GNUC__ && !defined __clang__
#define VECTORISE __attribute__((optimize("O3")))
#else
#define VECTORISE
#endif

VECTORISE static void advance(int32_t n, const double *restrict ready,
                              const double *restrict freed, const double *restrict before,
                              const double *restrict send, const double *restrict ms,
                              double *restrict ready_next, double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i - 1] > ready[i] ? ready[i - 1] : ready[i];

        start = (start > freed[i] ? start : freed[i]) + send[i];
        ready_next[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms[i];
    }
}

/* The same for ranks whose block takes equally long, from senders of equal blocks. */
VECTORISE static void advance_equal(int32_t n, const double *restrict ready,
                                    const double *restrict freed,
                                    const double *restrict before, double send, double ms,
                                    double *restrict ready_next, double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i - 1] > ready[i] ? ready[i - 1] : ready[i];

        start = (start > freed[i] ? start : freed[i]) + send;
        ready_next[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms;
    }
}

/* Ranks from .. to - 1 of a step; their KV is that of the rank `back` before. */
static void advance_part(const struct ring_input *in, const struct ring_arrays *a,
                         const double *table, int32_t from, int32_t to, int32_t back,
                         const double *freed, const double *before, double *fin)
{
    const int32_t *cls = in->cls;
    size_t stride = (size_t)in->stride;

    if (in->ask || in->runs == 0 || in->runs * 8 > in->m) {
        if (!in->ask)
            for (int32_t i = from; i < to; i++)
                a->step_ms[i] = table[(size_t)cls[i] * stride + (size_t)cls[i - back]];
        else
            for (int32_t i = from; i < to; i++)
                a->step_ms[i] = in->ask(in->ask_ctx, i, i - back);
        advance(to - from, a->ready + from, freed + from, before + from,
                in->send_ms + from - back, a->step_ms + from, a->ready_next + from,
                fin + from);
        return;
    }
    for (int32_t i = from, end; i < to; i = end) { /* long runs of equal ranks */
        end = in->run_end[i - back] + back;
        end = end < in->run_end[i] ? end : in->run_end[i];
        end = end < to ? end : to;
        advance_equal(end - i, a->ready + i, freed + i, before + i, in->send_ms[i - back],
                      table[(size_t)cls[i] * stride + (size_t)cls[i - back]],
                      a->ready_next + i, fin + i);
    }
}

/* freed NULL: there are always free buffers. */
static void step_full(const struct ring_input *in, const struct ring_arrays *a, int32_t k,
                      const double *before, double *fin, const double *freed)
{
    int32_t m = in->m;
    double start = larger(a->ready[m - 1], a->ready[0]);

    if (freed)
        start = larger(start, freed[0]);
    else
        freed = a->ready; /* a time that is not later than the others */
    start += in->send_ms[m - k];
    a->ready_next[0] = start;
    fin[0] = larger(start, before[0]) + block_ms(in, 0, m - k);
    advance_part(in, a, in->late, 1, k, k - m, freed, before, fin);
    advance_part(in, a, in->early, k, m, k, freed, before, fin);
}

static void step_partial(const struct ring_input *in, const struct ring_arrays *a,
                         int32_t k, const double *before, double *fin,
                         const double *freed, hcp_step *steps)
{
    int32_t m = in->m;

    for (int32_t i = 0; i < m; i++) {
        int32_t j = i >= k ? i - k : i - k + m, from = i > 0 ? i - 1 : m - 1;
        double start, t = 0;

        if (k > in->hops[j]) {
            a->ready_next[i] = NAN;
            fin[i] = before[i];
        } else {
            t = block_ms(in, i, j);
            start = larger(a->ready[from], a->link_free[from]);
            if (freed)
                start = larger(start, freed[i]);
            start += in->send_ms[j];
            a->ready_next[i] = start;
            a->link_free[from] = start;
            fin[i] = larger(start, before[i]) + t;
        }
        if (steps)
            put_step(in, steps, i, k, a->ready_next[i], before[i], fin[i], t);
    }
}

double ring_run(const struct ring_input *in, struct ring_arrays *a, double *fin,
                hcp_step *steps)
{
    int32_t m = in->m, depth = in->buffers + 1;
    int full = !steps;
    double makespan = 0, *now = a->history, *before;

    if (in->barrier)
        return run_barrier(in, fin, steps);
    for (int32_t i = 0; i < m; i++) {
        a->ready[i] = 0;
        a->link_free[i] = 0;
        now[i] = in->own[in->cls[i]];
        full &= in->hops[i] == m - 1;
        if (steps)
            put_step(in, steps, i, 0, 0, 0, now[i], now[i]);
    }
    for (int32_t k = 1; k < m; k++) {
        const double *freed = NULL;
        double *swap = a->ready;

        before = now;
        if (in->buffers == 0) { /* any number of them: the history is one step */
            now = fin;
        } else {
            now = a->history + (size_t)(k % depth) * (size_t)m;
            if (k >= in->buffers)
                freed = a->history + (size_t)((k - in->buffers) % depth) * (size_t)m;
        }
        if (full)
            step_full(in, a, k, before, now, freed);
        else
            step_partial(in, a, k, before, now, freed, steps);
        a->ready = a->ready_next;
        a->ready_next = swap;
    }
    for (int32_t i = 0; i < m; i++) {
        fin[i] = now[i];
        makespan = larger(makespan, fin[i]);
    }
    return makespan;
}
