/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of ring.c when KV need not travel in turn. In turn, a rank sends its own KV
 * first and whatever it receives after it, so a rank whose KV is there late (linear work
 * before its ring, a long share) keeps the ranks behind it waiting for KV that it holds
 * already. Here each KV has a number of slots by which it is late: block j on its h-th
 * link (0: out of rank j) is due in slot h + late[j], and a link carries blocks by slot;
 * in one slot, those that are less late first, then the nearer one. Two things follow:
 *
 *   - Blocks keep their order on all links that they share behind the rank where the
 *     second one is inserted, so ranks pass on in the order of arrival, and a number a
 *     rank is all that a plan has to carry.
 *   - A block's slots rise from link to link, so ranks do not come to wait for each
 *     other. Two buffers have always been enough for that (random orders of up to 16
 *     ranks, tests/test-plan-late.c); an order that stops is worth HUGE_MS.
 *
 * late[j] up to m - 1 is enough for all such orders that were ever the fastest in
 * exhaustive search over every order of every link (tests/test-plan-late.c); all orders
 * of compute are covered because computing in the order of arrival is the earliest end
 * of jobs with release times on one machine (earliest release date first).
 *
 * A rank receives and passes on from the start, also during linear work before its ring.
 */
#include <math.h>
#include "planner/plan.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Rank i on the KV of rank j, alone. */
static double alone_ms(const struct ring_input *in, int32_t i, int32_t j)
{
    const double *table = j < i ? in->early : in->late;

    if (i == j)
        return in->own[in->cls[i]];
    return in->ask ? in->ask(in->ask_ctx, i, j)
                   : table[(size_t)in->cls[i] * (size_t)in->stride + (size_t)in->cls[j]];
}

struct run {
    const struct ring_input *in;
    const struct late_arrays *a;
    int32_t m;
};

static size_t at(const struct run *r, int32_t i, int32_t k)
{
    return (size_t)i * (size_t)r->m + (size_t)k;
}

/* Does block j come before block b into rank i? */
static int sooner(const struct ring_input *in, int32_t i, int32_t j, int32_t b)
{
    int32_t h = (i - j + in->m) % in->m, hb = (i - b + in->m) % in->m;
    int32_t late = in->slots[j], late_b = in->slots[b];

    if (h + late != hb + late_b)
        return h + late < hb + late_b;
    return late != late_b ? late < late_b : h < hb;
}

/* a->turn: step k of rank i is the KV of that rank: its own, what it receives in order,
 * then what it does not; a->count: steps received; a->step: where a rank's KV comes. */
static void set_turns(const struct run *r)
{
    const struct ring_input *in = r->in;

    for (int32_t i = 0; i < r->m; i++) {
        int32_t *turn = r->a->turn + at(r, i, 0), n = 1, end = r->m;

        turn[0] = i;
        for (int32_t h = 1; h < r->m; h++) {
            int32_t j = (i - h + r->m) % r->m, k;

            if (h > in->hops[j])
                continue;
            for (k = n++; k > 1 && sooner(in, i, j, turn[k - 1]); k--)
                turn[k] = turn[k - 1];
            turn[k] = j;
        }
        r->a->count[i] = n - 1;
        for (int32_t h = r->m - 1; h > 0; h--)
            if (h > in->hops[(i - h + r->m) % r->m])
                turn[--end] = (i - h + r->m) % r->m;
        for (int32_t k = 0; k < r->m; k++)
            r->a->step[at(r, i, turn[k])] = k;
    }
}

/* Alone, what rank i computes in step k; nothing if it has no such step. */
static double step_alone_ms(const struct run *r, int32_t i, int32_t k)
{
    return k <= r->a->count[i] ? alone_ms(r->in, i, r->a->turn[at(r, i, k)]) : 0;
}

static double link_ms(const struct ring_input *in, int32_t i, int32_t j)
{
    const struct link_into *link = &in->into[i];

    return in->starts[j] * link->alpha_ms + link->token_ms * (double)in->len[j];
}

/* Block of step k into rank i. Links that differ: beside what both ends compute in the
 * step before, as in ring.c. */
static double transfer_ms(const struct run *r, int32_t i, int32_t k)
{
    const struct ring_input *in = r->in;
    int32_t j = r->a->turn[at(r, i, k)], from = i > 0 ? i - 1 : r->m - 1;
    double own, ms;

    if (!in->into)
        return in->send_ms[j];
    ms = link_ms(in, i, j);
    if (in->into[i].disturbs)
        hcp_interference_times(&in->into[i].beside, step_alone_ms(r, i, k - 1),
                               step_alone_ms(r, from, k - 1), ms, &own, &ms);
    return ms;
}

static double compute_ms(const struct run *r, int32_t i, int32_t k)
{
    const struct ring_input *in = r->in;
    int32_t from = i > 0 ? i - 1 : r->m - 1;
    double ms = step_alone_ms(r, i, k), transfer;

    if (!in->into)
        return ms;
    if (in->into[i].disturbs) {
        if (k < r->a->count[i]) {
            transfer = link_ms(in, i, r->a->turn[at(r, i, k + 1)]);
            hcp_interference_times(&in->into[i].beside, ms, step_alone_ms(r, from, k),
                                   transfer, &ms, &transfer);
        }
        ms += k > 0 ? in->into[i].beside.overhead_ms : 0;
    }
    in->busy[i] += ms;
    return ms;
}

/* When step k of rank i can start to be received; -1: what it waits for is not known
 * yet. Steps before a->next of every rank are. */
static double may_start(const struct run *r, int32_t i, int32_t k)
{
    const struct ring_input *in = r->in;
    const struct late_arrays *a = r->a;
    int32_t from = i > 0 ? i - 1 : r->m - 1, to = i + 1 < r->m ? i + 1 : 0;
    int32_t j = a->turn[at(r, i, k)], there = a->step[at(r, from, j)], was, on;
    double start;

    if (there >= a->next[from])
        return -1;
    start = a->ready[at(r, from, there)];
    if (k > 1)
        start = larger(start, a->ready[at(r, i, k - 1)]);
    if (in->buffers == 0 || k <= in->buffers)
        return start;
    start = larger(start, a->fin[at(r, i, k - in->buffers)]);
    was = a->turn[at(r, i, k - in->buffers)];
    if (in->buffers == 1 || (i - was + r->m) % r->m >= in->hops[was])
        return start;
    on = a->step[at(r, to, was)];
    return on >= a->next[to] ? -1 : larger(start, a->ready[at(r, to, on)]);
}

static void put(const struct run *r, hcp_step *steps, int32_t i, int32_t k, double busy)
{
    size_t x = at(r, i, k);
    int received = k <= r->a->count[i];
    double before = k > 0 ? r->a->fin[x - 1] : r->a->ready[x];
    double ready = received ? r->a->ready[x] : (double)NAN;
    double start = ready > before ? ready : before;

    if (!steps)
        return;
    ring_put_step(r->in, steps, i, k, ready, start, busy, r->a->fin[x], start - before);
    steps[x].block_of = r->a->turn[x];
}

double ring_run_late(const struct ring_input *in, const struct late_arrays *a,
                     double *fin, hcp_step *steps)
{
    struct run r = {in, a, in->m};
    double makespan = 0;

    set_turns(&r);
    for (int32_t i = 0; i < r.m; i++) {
        double ms;

        if (in->into)
            in->busy[i] = 0;
        a->next[i] = 1;
        a->ready[at(&r, i, 0)] = in->before ? in->before[i] : 0;
        ms = compute_ms(&r, i, 0);
        a->fin[at(&r, i, 0)] = a->ready[at(&r, i, 0)] + ms;
        put(&r, steps, i, 0, ms);
    }
    for (int more = 1; more;) {
        more = 0;
        for (int32_t i = 0; i < r.m; i++)
            for (; a->next[i] <= a->count[i]; a->next[i]++, more = 1) {
                int32_t k = a->next[i];
                double start = may_start(&r, i, k), ms;

                if (start < 0)
                    break;
                ms = compute_ms(&r, i, k);
                a->ready[at(&r, i, k)] = start + transfer_ms(&r, i, k);
                a->fin[at(&r, i, k)] =
                    larger(a->ready[at(&r, i, k)], a->fin[at(&r, i, k - 1)]) + ms;
                put(&r, steps, i, k, ms);
            }
    }
    for (int32_t i = 0; i < r.m; i++) {
        if (a->next[i] <= a->count[i])
            return HUGE_MS;
        for (int32_t k = a->next[i]; k < r.m; k++) {
            a->fin[at(&r, i, k)] = a->fin[at(&r, i, k - 1)];
            put(&r, steps, i, k, 0);
        }
        fin[i] = a->fin[at(&r, i, a->count[i])];
        if (in->after)
            fin[i] += in->after[i];
        makespan = larger(makespan, fin[i]);
    }
    return makespan;
}

/* ---- what no order can beat ---- */

/* When the KV of rank j can be on rank i at the earliest, nothing else being sent. */
static double earliest(const struct ring_input *in, int32_t i, int32_t j)
{
    double ms = in->before ? in->before[j] : 0;

    for (int32_t k = j; k != i; k = (k + 1) % in->m)
        ms += in->into ? link_ms(in, (k + 1) % in->m, j) : in->send_ms[j];
    return ms;
}

/* Ranks whose KV rank i receives (own: and its own), by ms[], into order; their number.
 */
static int32_t by_release(const struct ring_input *in, int32_t i, int own,
                          const double *ms, int32_t *order)
{
    int32_t n = 0;

    for (int32_t h = own ? 0 : 1; h < in->m; h++) {
        int32_t j = (i - h + in->m) % in->m, k;

        if (h > in->hops[j])
            continue;
        for (k = n++; k > 0 && ms[j] < ms[order[k - 1]]; k--)
            order[k] = order[k - 1];
        order[k] = j;
    }
    return n;
}

double ring_late_bound(const struct ring_input *in, const struct late_arrays *a)
{
    double bound = 0, *release = a->ready;
    int32_t *order = a->turn, n;

    for (int32_t i = 0; i < in->m; i++) {
        double first = in->before ? in->before[i] : 0, end = first, link = 0, least = -1;
        int32_t from = i > 0 ? i - 1 : in->m - 1;

        for (int32_t j = 0; j < in->m; j++)
            release[j] = earliest(in, i, j);
        n = by_release(in, i, 1, release, order);
        for (int32_t k = 0; k < n; k++)
            end = larger(end, release[order[k]]) + alone_ms(in, i, order[k]);
        /* The link into it, and at least the shortest of what came over it. */
        for (int32_t j = 0; j < in->m; j++)
            release[j] = earliest(in, from, j);
        n = by_release(in, i, 0, release, order);
        for (int32_t k = 0; k < n; k++) {
            int32_t j = order[k];
            double ms = alone_ms(in, i, j);

            link = larger(link, release[j]) +
                   (in->into ? link_ms(in, i, j) : in->send_ms[j]);
            least = least < 0 || ms < least ? ms : least;
        }
        if (n > 0)
            end = larger(end, larger(link, first) + least);
        if (in->after)
            end += in->after[i];
        bound = larger(bound, end);
    }
    return bound;
}
