/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-ring --rebalance. After each timed pass the ranks tell each other how long they
 * computed; each feeds an object of the library of its own. All see the same numbers and
 * so say the same: where that is to move they compare the plan, and the next pass is one
 * of it, with buffers, kernels and inputs made anew. What that takes is measured apart.
 * A rank whose device or kernel fails is fed to it likewise, and left out.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/rebalance-internal.h"
#include "profiler/measure.h"

static void run_free(struct run *r)
{
    for (size_t i = 0; i < r->n_phases; i++) {
        free(r->phases[i].tokens);
        free(r->phases[i].scale);
        ring_result_free(&r->phases[i].checked);
    }
    for (size_t i = 0; i < r->n_failures; i++)
        free(r->failures[i].lost);
    free(r->phases);
    free(r->failures);
    free(r->told);
    free(r->heard);
    hcp_rebalance_free(r->rebalance);
}

/* ---- phases ---- */

/* A pass that is not timed; into poisoned memory. */
static int untimed(struct run *r, int poison, struct hcp_err *err)
{
    struct ring_times times = {0};
    int rc = poison ? ring_poison(r->ring, err) : HCP_OK;

    if (rc == HCP_OK)
        rc = ring_pass(r->ring, &times, NULL, err);
    return rebalance_hear(r, rc, &times, err);
}

static int warm_up(struct run *r, struct hcp_err *err)
{
    double start = hcp_now_s();
    int go_on = 1, rc = HCP_OK;

    for (int i = 0; rc == HCP_OK && go_on; i++) {
        go_on = ring_is_cold(r->p, i, start);
        rc = ring_decide(r->p, &go_on, err);
        if (rc == HCP_OK && go_on)
            rc = untimed(r, 0, err);
    }
    r->p->warmed |= rc == HCP_OK;
    return rc;
}

/* Its record. */
static int add_phase(struct run *r, const hcp_rebalance_verdict *why, struct hcp_err *err)
{
    const hcp_plan *plan = &r->running;
    struct phase *more = realloc(r->phases, (r->n_phases + 1) * sizeof *more),
                 *now = NULL;
    int rc = HCP_OK;

    if (more) {
        r->phases = more;
        now = &r->phases[r->n_phases++];
        *now = (struct phase){.first = r->passes,
                              .tokens = calloc(r->n, sizeof *now->tokens),
                              .scale = calloc(r->n, sizeof *now->scale),
                              .fingerprint = hcp_plan_fingerprint(plan),
                              .predicted_ms = plan->makespan_ms,
                              .checked = {.plan = &r->plan}};
        if (why)
            now->why = *why;
    }
    if (!now || !now->tokens || !now->scale)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    rc = ring_all_ok(&r->p->comm, rc, err);
    for (size_t k = 0; rc == HCP_OK && now && k < r->n; k++) {
        now->tokens[k] = plan->ranks[k].tokens;
        now->scale[k] = plan->ranks[k].time_scale;
    }
    return rc;
}

/* A new phase for a plan: a ring of it, warm, and proven if that is wanted. RANK_LOST:
 * *during says in what. */
static int open_phase(struct run *r, const hcp_plan *plan,
                      const hcp_rebalance_verdict *why, const char **during,
                      struct hcp_err *err)
{
    struct ring_program *p = r->p;
    double start = hcp_now_s();
    struct phase *now;
    int rc;

    r->running = *plan;
    rc = add_phase(r, why, err);
    if (rc)
        return rc;
    now = &r->phases[r->n_phases - 1];
    *during = "setup";
    p->broken = (struct hcp_err){0};
    rc = ring_open_plan(p, &r->running, NULL, 0, NULL, &now->checked, &r->ring, err);
    if (rc)
        return rebalance_hear(r, rc, NULL, err);
    *during = "warm-up";
    rc = why ? untimed(r, 0, err) : warm_up(r, err);
    if (rc)
        return rc;
    if (hcp_rebalance_proposal(r->rebalance) && hcp_rebalance_adopt(r->rebalance))
        rc = hcp_fail(err, HCP_FAILED, "the library does not take its own proposal up");
    rc = ring_all_ok(&p->comm, rc, err);
    now->open_ms = 1e3 * (hcp_now_s() - start);
    if (rc == HCP_OK)
        rc = rebalance_recovered(r, err);
    if (rc || p->o.verify_rows < 0)
        return rc;
    *during = "proof";
    rc = untimed(r, 1, err);
    return rc ? rc : ring_compare(p, r->ring, &now->checked, err);
}

/* ... and others without the ranks that are lost meanwhile. */
static int open_phases(struct run *r, const hcp_plan *plan,
                       const hcp_rebalance_verdict *why, struct hcp_err *err)
{
    const char *during;
    hcp_rebalance_verdict v = {.size = sizeof v};
    int rc = open_phase(r, plan, why, &during, err);

    while (rc == RANK_LOST) {
        rc = rebalance_lose(r, during, &v, err);
        if (rc)
            break;
        plan = hcp_rebalance_proposal(r->rebalance);
        rc = open_phase(r, plan ? plan : hcp_rebalance_plan(r->rebalance), &v, &during,
                        err);
    }
    return rc;
}

/* To the plan that the library proposes, if it is the same everywhere. */
static int move(struct run *r, const hcp_rebalance_verdict *why, struct hcp_err *err)
{
    struct ring_program *p = r->p;
    const hcp_plan *plan = hcp_rebalance_proposal(r->rebalance);
    struct ring_identity id;
    int rc;

    ring_identify(p, plan, &id);
    rc = ring_agree(&p->comm, &id, err);
    if (rc)
        return rc;
    ring_close(r->ring);
    r->ring = NULL;
    return open_phases(r, plan, why, err);
}

/* ---- passes ---- */

static double slowed(const struct ring_program *p, int pass)
{
    double factor = 1;

    for (int i = 0; i < p->o.n_slowed; i++) /* the last one that has come */
        if (p->o.slowed[i].rank == p->comm.rank && p->o.slowed[i].pass <= pass)
            factor = p->o.slowed[i].factor;
    return factor;
}

static void rehearse_failure(struct run *r)
{
    const struct ring_options *o = &r->p->o;

    for (int i = 0; i < o->n_failing; i++)
        if (o->failing[i].rank == r->p->comm.rank && o->failing[i].pass == r->passes)
            ring_fail_at(r->ring, o->failing[i].step);
}

static int rehearses(void)
{
    return getenv("HCP_REHEARSE") != NULL;
}

/* HCP_REHEARSE: what the models say, and --slow, in place of what was measured. */
static double rehearsed(const struct run *r, double measured_ms)
{
    const hcp_plan *plan = hcp_rebalance_plan(r->rebalance);
    const hcp_plan_rank *rank = &plan->ranks[r->p->comm.rank];

    if (!rehearses())
        return measured_ms;
    return rank->compute_ms / rank->time_scale * slowed(r->p, r->passes);
}

/* Room for a pass more. */
static int grow(struct run *r, struct hcp_err *err)
{
    int rc = HCP_OK;

    if (r->passes == r->room) {
        int room = 2 * r->room + 64;
        struct told *all = realloc(r->told, (size_t)room * r->n * sizeof *all);

        if (all) {
            r->told = all;
            r->room = room;
        } else {
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
        }
    }
    return ring_all_ok(&r->p->comm, rc, err);
}

/* A pass that counts, unless a rank is lost in it. */
static int timed(struct run *r, struct hcp_err *err)
{
    struct ring_times times = {0};
    int rc = grow(r, err);

    if (rc)
        return rc;
    rehearse_failure(r);
    if (ring_schedule_of(r->ring)->index >= 0) /* else its device is not touched */
        rc = ring_slow(r->ring, rehearses() ? 1 : slowed(r->p, r->passes), err);
    if (rc == HCP_OK)
        rc = ring_pass(r->ring, &times, NULL, err);
    times.compute_ms = rehearsed(r, times.compute_ms);
    rc = rebalance_hear(r, rc, &times, err);
    if (rc)
        return rc;
    for (size_t k = 0; k < r->n; k++)
        r->told[(size_t)r->passes * r->n + k] = r->heard[k].told;
    r->passes++;
    r->phases[r->n_phases - 1].n++;
    return HCP_OK;
}

static int decide(struct run *r, int left, hcp_rebalance_verdict *v, struct hcp_err *err)
{
    const struct told *all = r->told + (size_t)(r->passes - 1) * r->n;
    char text[sizeof r->kept_text] = "";

    for (size_t k = 0; k < r->n; k++)
        if (hcp_rebalance_observe(r->rebalance, k, all[k].compute_ms, 0))
            return hcp_fail(err, HCP_FAILED, "rank %zu: a time of %g ms", k,
                            all[k].compute_ms);
    if (hcp_rebalance_step(r->rebalance, left, text, sizeof text, v))
        return hcp_fail(err, HCP_FAILED, "libhcpplan: %s", text);
    if (v->decision == HCP_REBALANCE_MOVE || v->reason == HCP_REBALANCE_SAME) {
        r->kept = HCP_REBALANCE_STEADY;
    } else if (v->reason != HCP_REBALANCE_STEADY) {
        r->kept = v->reason;
        memcpy(r->kept_text, text, sizeof text);
    }
    if (v->decision == HCP_REBALANCE_STUCK)
        return hcp_fail(err, HCP_FAILED, "a rank measured no time in pass %d: %s",
                        r->passes - 1, text);
    return HCP_OK;
}

static int passes(struct run *r, struct hcp_err *err)
{
    struct ring_program *p = r->p;
    double start = hcp_now_s();
    int rc = open_phases(r, &r->plan, NULL, err);

    while (rc == HCP_OK) {
        hcp_rebalance_verdict v = {.size = sizeof v};
        const hcp_plan *plan;
        int go_on = r->passes < p->o.repeat &&
                    (r->passes < 3 || hcp_now_s() - start < p->o.max_time_s);

        rc = ring_decide(p, &go_on, err);
        if (rc || !go_on)
            break;
        rc = timed(r, err);
        if (rc == RANK_LOST) {
            rc = rebalance_lose(r, "pass", &v, err);
            plan = hcp_rebalance_proposal(r->rebalance);
            if (rc == HCP_OK)
                rc = open_phases(r, plan ? plan : hcp_rebalance_plan(r->rebalance), &v,
                                 err);
            continue;
        }
        if (rc)
            break;
        rc = ring_all_ok(&p->comm, decide(r, p->o.repeat - r->passes, &v, err), err);
        if (rc == HCP_OK && v.decision == HCP_REBALANCE_MOVE)
            rc = move(r, &v, err);
    }
    return rc;
}

/* ---- start ---- */

static int check_rehearsals(const struct ring_program *p, struct hcp_err *err)
{
    for (int i = 0; i < p->o.n_failing; i++)
        if (p->o.failing[i].rank >= p->comm.size)
            return hcp_fail(err, HCP_USAGE, "--fail: there is no rank %d",
                            p->o.failing[i].rank);
    for (int i = 0; i < p->o.n_slowed; i++) {
        int rank = p->o.slowed[i].rank;

        if (rank >= p->comm.size)
            return hcp_fail(err, HCP_USAGE, "--slow: there is no rank %d", rank);
    }
    return HCP_OK;
}

static int start(struct run *r, struct hcp_err *err)
{
    struct ring_program *p = r->p;
    hcp_rebalance_options options;
    hcp_question q;
    hcp_status status;

    r->heard = calloc(r->n, sizeof *r->heard);
    if (!r->heard)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    hcp_rebalance_options_init(&options);
    options.move_ms = p->o.move_ms;
    hcp_plan_question(&r->plan, &q);
    q.extrapolate |= p->o.question.extrapolate;
    status = hcp_rebalance_create(p->plans.ring, &q, &r->plan, &options, err->text,
                                  sizeof err->text, &r->rebalance);
    return err->code = status == HCP_STATUS_OK        ? HCP_OK
                       : status == HCP_STATUS_INVALID ? HCP_USAGE
                       : status == HCP_STATUS_OUTSIDE || status == HCP_STATUS_INFEASIBLE
                           ? HCP_NO_ANSWER
                           : HCP_FAILED;
}

static void cancel_links(void *links)
{
    ring_links_cancel(links);
}

int ring_rebalance(struct ring_program *p, struct hcp_err *err)
{
    struct run r = {.p = p,
                    .n = (size_t)p->comm.size,
                    .plan = p->plans.plans[0],
                    .broken_since_s = NAN};
    int rc = check_rehearsals(p, err), failed;

    p->alone = 0;
    r.plan.order = HCP_ORDER_GIVEN; /* ranks have taken their places */
    if (rc == HCP_OK)
        rc = start(&r, err);
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK)
        rc = ring_alarm_start(&p->comm, cancel_links, p->links, &p->alarm, err);
    if (rc == HCP_OK)
        rc = passes(&r, err);
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, ring_warden_check(p->warden, err), err);
    if (!p->alone) { /* else there may be work in flight; the process ends */
        ring_close(r.ring);
        ring_alarm_stop(p->alarm);
        p->alarm = NULL;
    }
    failed = rc != HCP_OK; /* on all ranks */
    if (rc == HCP_OK && p->comm.rank == 0)
        rc = rebalance_report(&r, err);
    if (!p->alone && !failed)
        rc = ring_all_ok(&p->comm, rc, err);
    run_free(&r);
    return rc;
}
