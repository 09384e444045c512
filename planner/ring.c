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
    step->start_ms = ready > before ? ready : before; /* NaN: not received, not waited for */
    step->busy_ms = busy;
    step->fin_ms = fin;
    step->wait_ms = step->start_ms - before;
}

/* Every rank waits for the slowest in each step: sum over steps of the larger of the
 * longest computation and the longest transfer beside it. */
static double run_barrier(const struct ring_input *in, double *fin, double *busy,
                          hcp_step *steps)
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
            busy[i] = k == 0 ? t : busy[i] + t;
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

/* Times of all blocks of step k. */
static void look_up(const struct ring_input *in, int32_t k, double *ms)
{
    const int32_t *cls = in->cls;
    size_t stride = (size_t)in->stride;

    if (in->ask) {
        for (int32_t i = 0; i < in->m; i++)
            ms[i] = in->ask(in->ask_ctx, i, i >= k ? i - k : i - k + in->m);
        return;
    }
    for (int32_t i = 0; i < k; i++)
        ms[i] = in->late[(size_t)cls[i] * stride + (size_t)cls[i - k + in->m]];
    for (int32_t i = k; i < in->m; i++)
        ms[i] = in->early[(size_t)cls[i] * stride + (size_t)cls[i - k]];
}

/* The inner loop of large groups: ranks i = 1 .. n - 1 of one step, from < i. Written for
 * the vectoriser; only maxima and additions, so that the result is the same without. */
#if defined __GNUC__ && !defined __clang__
__attribute__((optimize("O3")))
#endif
static void
advance(int32_t n, const double *restrict ready, double *restrict link_free,
        const double *restrict send, const double *restrict freed,
        const double *restrict before, const double *restrict ms,
        double *restrict ready_next, double *restrict fin, double *restrict busy)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i] > link_free[i] ? ready[i] : link_free[i];

        start = start > freed[i] ? start : freed[i];
        start += send[i];
        ready_next[i] = start;
        link_free[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms[i];
        busy[i] += ms[i];
    }
}

/* One step when every block travels the whole way. freed NULL: buffers are free. */
static void step_full(const struct ring_input *in, const struct ring_arrays *a, int32_t k,
                      const double *before, double *fin, const double *freed, double *busy)
{
    int32_t m = in->m;
    double start = larger(a->ready[m - 1], a->link_free[m - 1]);

    look_up(in, k, a->step_ms);
    if (freed)
        start = larger(start, freed[0]);
    else
        freed = a->ready; /* a time that is not later than the others */
    start += in->send_ms[m - k];
    a->ready_next[0] = start;
    a->link_free[m - 1] = start;
    fin[0] = larger(start, before[0]) + a->step_ms[0];
    busy[0] += a->step_ms[0];
    /* Sender i - 1 is always one to the left; whose KV it is wraps once, at rank k. */
    for (int32_t from = 1, to = k; from < m; from = to, to = m) {
        const double *send = in->send_ms + (from < k ? from - k + m : from - k);

        if (to > from)
            advance(to - from, a->ready + from - 1, a->link_free + from - 1, send,
                    freed == a->ready ? a->ready + from - 1 : freed + from, before + from,
                    a->step_ms + from, a->ready_next + from, fin + from, busy + from);
    }
}

static void step_partial(const struct ring_input *in, const struct ring_arrays *a,
                         int32_t k, const double *before, double *fin,
                         const double *freed, double *busy, hcp_step *steps)
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
            busy[i] += t;
        }
        if (steps)
            put_step(in, steps, i, k, a->ready_next[i], before[i], fin[i], t);
    }
}

double ring_run(const struct ring_input *in, struct ring_arrays *a, double *fin,
                double *busy, hcp_step *steps)
{
    int32_t m = in->m, depth = in->buffers + 1;
    int full = !steps;
    double makespan = 0, *now = a->history, *before;

    if (in->barrier)
        return run_barrier(in, fin, busy, steps);
    for (int32_t i = 0; i < m; i++) {
        a->ready[i] = 0;
        a->link_free[i] = 0;
        now[i] = busy[i] = in->own[in->cls[i]];
        full &= in->hops[i] == m - 1;
        if (steps)
            put_step(in, steps, i, 0, 0, 0, now[i], busy[i]);
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
            step_full(in, a, k, before, now, freed, busy);
        else
            step_partial(in, a, k, before, now, freed, busy, steps);
        a->ready = a->ready_next;
        a->ready_next = swap;
    }
    for (int32_t i = 0; i < m; i++) {
        fin[i] = now[i];
        makespan = larger(makespan, fin[i]);
    }
    return makespan;
}
