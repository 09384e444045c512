/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sizes are measured when, and how often. The first turn goes up through the sizes
 * that were asked for; then sizes are added where the curve is worst known, which is
 * where a transport changes its ways; the later turns visit all in other orders. What a
 * first visit took for a good curve by luck gets its sizes after those.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/limiter.h"
#include "profiler/link-rank.h"
#include "profiler/measure.h"
#include "profiler/stats.h"
#include "profiler/sweep.h"

enum {
    VISITS = 3,         /* of each size, so that drift meets all alike */
    MIN_SAMPLES = 4,    /* of a visit, */
    MAX_SAMPLES = 40,   /* up to here until MIN_MS */
    FEW_SAMPLES = 2,    /* when CAP_MS are over */
    WARM_UP = 2,        /* exchanges before the first sample */
    MAX_REPEATS = 2000, /* exchanges in a sample under a duty cycle */
    MAX_ADDED = 24,     /* sizes: a curve that noise makes is never known well enough */
    SEED = 1
};
#define MIN_MS 20.0
#define CAP_MS 300.0

struct visitor {
    struct link_plan *plan;
    struct link_meter *meter;
    double begin_s;
    int visits, done;
    int added; /* sizes that nobody asked for */
};

static int sample(struct visitor *v, int64_t bytes, int repeats, int may_hold, double *ms,
                  struct hcp_err *err)
{
    double one, sum = 0;
    for (int i = 0; i < repeats; i++) {
        int rc = link_exchange(v->meter, bytes, may_hold, &one, err);
        if (rc != HCP_OK)
            return rc;
        sum += one;
    }
    *ms = sum / repeats;
    return HCP_OK;
}

/* Both ranks see the same times, so they take the same number of samples. */
static int visit(struct visitor *v, struct link_size *s, struct hcp_err *err)
{
    double warm = 0, spent = 0;
    int n = 0, rc = sample(v, s->bytes, WARM_UP, 0, &warm, err);
    if (rc == HCP_OK && s->n == 0)
        rc = link_verify(v->meter, s->bytes, err);
    /* Where in the duty cycle an exchange lies decides whether it meets a stop: a sample
     * is the mean over as many as fill several cycles. */
    if (s->repeats == 0)
        s->repeats = !v->plan->throttled
                         ? 1
                         : (int)fmax(1, fmin(MAX_REPEATS, ceil(1e3 * HCP_CPU_SAMPLE_S /
                                                               fmax(warm, 1e-3))));
    while (rc == HCP_OK && s->n < HCP_LINK_SAMPLES && n < MAX_SAMPLES &&
           (n < MIN_SAMPLES || spent < MIN_MS) && (n < FEW_SAMPLES || spent < CAP_MS)) {
        rc = sample(v, s->bytes, s->repeats, 1, &s->ms[s->n], err);
        if (rc == HCP_OK) {
            spent += s->ms[s->n++] * s->repeats;
            n++;
        }
    }
    return rc;
}

/* Rank 0's clock decides. Until something is known of a size, the next smaller one says
 * what it is likely to take. */
static int fits(const struct visitor *v, size_t i, double budget_s)
{
    const struct link_plan *p = v->plan;
    int yes = 1;
    if (p->rank == 0 && isfinite(budget_s)) {
        double ms = 0;
        for (size_t k = 0; k <= i; k++)
            if (p->sizes[k].n > 0)
                ms = p->sizes[k].ms[0] * p->sizes[k].repeats * (double)p->sizes[i].bytes /
                     (double)p->sizes[k].bytes;
        double want_ms = fmax(MIN_SAMPLES * ms, fmin(MIN_MS, MAX_SAMPLES * ms));
        double visit_s =
            1e-3 * (WARM_UP * ms + fmax(fmin(want_ms, CAP_MS), FEW_SAMPLES * ms));
        yes = hcp_now_s() - v->begin_s + visit_s <= budget_s;
        yes |= i == 0 && p->sizes[0].n == 0; /* an answer is better than none */
    }
    MPI_Bcast(&yes, 1, MPI_INT, 0, p->comm);
    return yes;
}

static void tell(struct visitor *v)
{
    const struct link_plan *p = v->plan;
    int visits = v->visits > v->done ? v->visits : v->done + 1;
    if (p->rank == 0 && p->visiting)
        p->visiting(p->part * visits + v->done, p->parts * visits);
    v->done++;
}

static int turn(struct visitor *v, int number, struct hcp_err *err)
{
    const struct link_plan *p = v->plan;
    size_t order[HCP_LINK_SIZES];
    int rc = HCP_OK;
    for (size_t i = 0; i < p->n; i++)
        order[i] = i;
    if (number > 0) /* the first goes up: what larger sizes take is known by then */
        hcp_shuffle(order, p->n, sizeof *order, SEED + (uint64_t)number);
    for (size_t i = 0; i < p->n && rc == HCP_OK; i++) {
        tell(v);
        if (fits(v, order[i], p->budget_s))
            rc = visit(v, &p->sizes[order[i]], err);
    }
    return rc;
}

/* Rank 0's answer, so that both ranks add the same; 0 none. */
static int64_t next_size(const struct link_plan *p)
{
    int64_t bytes[HCP_LINK_SIZES], next = 0;
    double ms[HCP_LINK_SIZES];
    struct hcp_link_curve curve;
    struct hcp_err ignored;
    struct hcp_stats stats;
    size_t n = 0;
    for (size_t i = 0; p->rank == 0 && i < p->n; i++) {
        const struct link_size *s = &p->sizes[i];
        if (s->n == 0 || hcp_stats_summary(s->ms, s->n, &stats) != 0)
            continue;
        bytes[n] = s->bytes;
        ms[n++] = stats.median;
    }
    if (p->rank == 0 && hcp_link_curve_make(bytes, ms, n, &curve, &ignored) == HCP_OK) {
        next = hcp_link_curve_next(&curve, p->target);
        hcp_link_curve_free(&curve);
    }
    MPI_Bcast(&next, 1, MPI_INT64_T, 0, p->comm);
    return next;
}

static size_t insert(struct link_plan *p, int64_t bytes)
{
    size_t i = p->n;
    for (; i > 0 && p->sizes[i - 1].bytes > bytes; i--)
        p->sizes[i] = p->sizes[i - 1];
    memset(&p->sizes[i], 0, sizeof p->sizes[i]);
    p->sizes[i].bytes = bytes;
    p->n++;
    return i;
}

/* Where the curve is worst known, each visited so often at once, within the budget. */
static int add_sizes(struct visitor *v, int visits, double budget_s, struct hcp_err *err)
{
    struct link_plan *p = v->plan;
    int rc = HCP_OK;
    for (; rc == HCP_OK && v->added < MAX_ADDED && p->n < HCP_LINK_SIZES; v->added++) {
        int64_t bytes = next_size(p);
        if (bytes == 0)
            break;
        size_t i = insert(p, bytes);
        if (!fits(v, i, budget_s)) {
            memmove(&p->sizes[i], &p->sizes[i + 1], (p->n - i - 1) * sizeof *p->sizes);
            p->n--;
            break;
        }
        v->visits += VISITS;
        for (int k = 0; k < visits && rc == HCP_OK; k++) {
            tell(v);
            if (k == 0 || fits(v, i, budget_s))
                rc = visit(v, &p->sizes[i], err);
        }
    }
    return rc;
}

int link_measure(struct link_plan *plan, struct link_meter *meter, struct hcp_err *err)
{
    struct visitor v = {.plan = plan,
                        .meter = meter,
                        .begin_s = hcp_now_s(),
                        .visits = VISITS * (int)plan->n};
    int rc = turn(&v, 0, err);
    if (rc == HCP_OK && !isnan(plan->target))
        rc = add_sizes(&v, 1, plan->budget_s / 2, err); /* later turns want the rest */
    for (int number = 1; number < VISITS && rc == HCP_OK; number++)
        rc = turn(&v, number, err);
    if (rc == HCP_OK && !isnan(plan->target))
        rc = add_sizes(&v, VISITS, plan->budget_s, err);
    return rc; /* after a failure work may be in flight: the process ends with it */
}
