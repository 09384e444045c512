/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-ring --rebalance. After each timed pass the ranks tell each other how long they
 * computed; each feeds an object of the library of its own. All see the same numbers and
 * so say the same: where that is to move they compare the plan, and the next pass is one
 * of it, with buffers, kernels and inputs made anew. What that takes is measured apart.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"
#include "profiler/measure.h"

/* What a rank tells the others of a pass. */
struct told {
    double compute_ms, total_ms;
    uint64_t state; /* of its object, before the pass */
};

/* Passes of one plan. */
struct phase {
    int first, n;
    int64_t *tokens; /* [ranks] */
    double *scale;   /* [ranks] that the plan was made for */
    uint64_t fingerprint;
    double predicted_ms, open_ms; /* of the plan; until its first pass could begin */
    hcp_rebalance_verdict why;    /* of those after the first */
    struct ring_result checked;   /* verification, and what runs */
};

struct run {
    struct ring_program *p;
    size_t n;
    hcp_plan plan; /* the first one, in the order in which it runs */
    hcp_rebalance *rebalance;
    ring *ring;
    struct told *told; /* [passes][n], on every rank */
    int passes, room;
    struct phase *phases;
    size_t n_phases;
    hcp_rebalance_reason
        kept;            /* why the last change of a speed has not changed the plan; */
    char kept_text[700]; /* STEADY: there was none */
};

static void run_free(struct run *r)
{
    for (size_t i = 0; i < r->n_phases; i++) {
        free(r->phases[i].tokens);
        free(r->phases[i].scale);
        ring_result_free(&r->phases[i].checked);
    }
    free(r->phases);
    free(r->told);
    hcp_rebalance_free(r->rebalance);
}

/* ---- phases ---- */

/* A new phase for a plan: a ring of it, warm, and proven if that is wanted. */
static int open_phase(struct run *r, const hcp_plan *plan,
                      const hcp_rebalance_verdict *why, struct hcp_err *err)
{
    struct ring_program *p = r->p;
    double start = hcp_now_s();
    struct phase *more = realloc(r->phases, (r->n_phases + 1) * sizeof *more),
                 *now = NULL;
    struct ring_times times;
    int rc = HCP_OK;

    if (more) {
        r->phases = more;
        now = &r->phases[r->n_phases++];
        *now = (struct phase){.first = r->passes,
                              .tokens = calloc(r->n, sizeof *now->tokens),
                              .scale = calloc(r->n, sizeof *now->scale),
                              .fingerprint = hcp_plan_fingerprint(plan),
                              .predicted_ms = plan->makespan_ms,
                              .checked = {.plan = plan}};
        if (why)
            now->why = *why;
    }
    if (!now || !now->tokens || !now->scale)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc || !now)
        return rc;
    for (size_t k = 0; k < r->n; k++) {
        now->tokens[k] = plan->ranks[k].tokens;
        now->scale[k] = plan->ranks[k].time_scale;
    }
    rc = ring_open_plan(p, plan, NULL, 0, NULL, &now->checked, &r->ring, err);
    if (rc)
        return rc;
    rc = why ? ring_pass(r->ring, &times, NULL, err) : ring_warm_up(p, r->ring, err);
    p->alone = rc != HCP_OK;
    now->open_ms = 1e3 * (hcp_now_s() - start);
    if (rc == HCP_OK && p->o.verify_rows >= 0)
        rc = ring_prove(p, r->ring, &now->checked, err);
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
    if (hcp_rebalance_adopt(r->rebalance))
        rc = hcp_fail(err, HCP_FAILED, "the library does not take its own proposal up");
    rc = ring_all_ok(&p->comm, rc, err);
    return rc ? rc : open_phase(r, hcp_rebalance_plan(r->rebalance), why, err);
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

static int tell(struct run *r, const struct ring_times *times, struct hcp_err *err)
{
    struct ring_program *p = r->p;
    struct told mine = {rehearsed(r, times->compute_ms), times->total_ms,
                        hcp_rebalance_fingerprint(r->rebalance)};
    struct told *all;
    int rc = HCP_OK;

    if (r->passes == r->room) {
        int room = 2 * r->room + 64;

        all = realloc(r->told, (size_t)room * r->n * sizeof *all);
        if (all) {
            r->told = all;
            r->room = room;
        } else {
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
        }
    }
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc)
        return rc;
    all = r->told + (size_t)r->passes * r->n;
    ring_watch_waiting(p->watch, "waiting for the times of the other ranks", -1);
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE,
                      p->comm.world) != MPI_SUCCESS)
        rc = hcp_fail(err, HCP_FAILED, "MPI failed to gather times");
    ring_watch_idle(p->watch);
    for (size_t k = 1; rc == HCP_OK && k < r->n; k++)
        if (all[k].state != all[0].state)
            rc = hcp_fail(err, HCP_FAILED,
                          "ranks 0 and %zu do not see the same after %d passes; they are "
                          "to have one version of libhcpplan and one database",
                          k, r->passes);
    return rc;
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
    int rc = open_phase(r, &r->plan, NULL, err);

    while (rc == HCP_OK) {
        hcp_rebalance_verdict v = {.size = sizeof v};
        struct ring_times times = {0};
        int go_on = r->passes < p->o.repeat &&
                    (r->passes < 3 || hcp_now_s() - start < p->o.max_time_s);

        rc = ring_decide(p, &go_on, err);
        if (rc || !go_on)
            break;
        rc = ring_slow(r->ring, rehearses() ? 1 : slowed(p, r->passes), err);
        rc = ring_all_ok(&p->comm, rc, err);
        if (rc)
            break;
        rc = ring_pass(r->ring, &times, NULL, err);
        p->alone = rc != HCP_OK;
        if (rc)
            break;
        rc = tell(r, &times, err);
        if (rc)
            break;
        r->passes++;
        r->phases[r->n_phases - 1].n++;
        rc = ring_all_ok(&p->comm, decide(r, p->o.repeat - r->passes, &v, err), err);
        if (rc == HCP_OK && v.decision == HCP_REBALANCE_MOVE)
            rc = move(r, &v, err);
    }
    return rc;
}

/* ---- report ---- */

static double makespan(const struct run *r, int pass)
{
    double most = 0;

    for (size_t k = 0; k < r->n; k++)
        most = fmax(most, r->told[(size_t)pass * r->n + k].total_ms);
    return most;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median makespan of n passes from the first; NaN: none. rank >= 0: of what it computed.
 */
static double median_ms(const struct run *r, int first, int n, int rank)
{
    double *ms = n > 0 ? malloc((size_t)n * sizeof *ms) : NULL, out = NAN;

    for (int i = 0; ms && i < n; i++)
        ms[i] = rank < 0 ? makespan(r, first + i)
                         : r->told[(size_t)(first + i) * r->n + (size_t)rank].compute_ms;
    if (ms) {
        qsort(ms, (size_t)n, sizeof *ms, by_size);
        out = n % 2 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2;
    }
    free(ms);
    return out;
}

/* Of the passes right before a phase, those in which what it answers was already so: two
 * at least, as the change test wants them. */
static double before_ms(const struct run *r, const struct phase *p)
{
    const struct phase *was = p - 1;
    int n = was->n < 2 ? was->n : 2;

    return median_ms(r, p->first - n, n, -1);
}

static double after_ms(const struct run *r, const struct phase *p)
{
    return median_ms(r, p->first, p->n, -1);
}

static json_t *phase_json(const struct run *r, size_t i)
{
    const struct phase *p = &r->phases[i];
    json_t *o = json_object(), *tokens = json_array(), *scale = json_array(),
           *compute = json_array();
    char print[24];

    snprintf(print, sizeof print, "%016llx", (unsigned long long)p->fingerprint);
    for (size_t k = 0; k < r->n; k++) {
        json_array_append_new(tokens, json_integer((json_int_t)p->tokens[k]));
        json_array_append_new(scale, hcp_json_real(p->scale[k]));
        json_array_append_new(compute,
                              hcp_json_real(median_ms(r, p->first, p->n, (int)k)));
    }
    json_object_set_new(o, "first_pass", json_integer(p->first));
    json_object_set_new(o, "passes", json_integer(p->n));
    json_object_set_new(o, "fingerprint", json_string(print));
    json_object_set_new(o, "tokens", tokens);
    json_object_set_new(o, "time_scale", scale);
    json_object_set_new(o, "makespan_ms", hcp_json_real(after_ms(r, p)));
    json_object_set_new(o, "predicted_ms", hcp_json_real(p->predicted_ms));
    json_object_set_new(o, "compute_ms", compute);
    if (i > 0) {
        const char *reason = hcp_rebalance_reason_name(p->why.reason);
        double gain = before_ms(r, p) - after_ms(r, p);

        json_object_set_new(o, "reason", json_string(reason));
        json_object_set_new(o, "stay_ms", hcp_json_real(p->why.stay_ms));
        json_object_set_new(o, "margin_ms", hcp_json_real(p->why.margin_ms));
        json_object_set_new(o, "before_ms", hcp_json_real(before_ms(r, p)));
        json_object_set_new(o, "gain_ms", hcp_json_real(gain));
        json_object_set_new(o, "saved_ms", hcp_json_real(gain * p->n - p->open_ms));
        json_object_set_new(o, "move_ms", hcp_json_real(p->open_ms));
    }
    json_object_set_new(o, "verified",
                        p->checked.verified
                            ? json_boolean(ring_result_passed(&p->checked))
                            : json_null());
    json_object_set_new(o, "max_error", hcp_json_real(ring_result_error(&p->checked)));
    return o;
}

static int print_json(const struct run *r)
{
    const struct ring_result *first = &r->phases[0].checked;
    json_t *o = json_object(), *phases = json_array(), *all = json_array();

    for (size_t i = 0; i < r->n_phases; i++)
        json_array_append_new(phases, phase_json(r, i));
    for (int i = 0; i < r->passes; i++)
        json_array_append_new(all, hcp_json_real(makespan(r, i)));
    json_object_set_new(o, "schema", json_integer(1));
    json_object_set_new(o, "seq_len", json_integer((json_int_t)r->plan.seq_len));
    json_object_set_new(o, "mask", json_string(r->plan.causal ? "causal" : "full"));
    json_object_set_new(o, "layout", json_string(hcp_layout_name(r->plan.layout)));
    json_object_set_new(o, "transport", json_string(first->transport));
    json_object_set_new(o, "provider", json_string(first->provider));
    json_object_set_new(o, "repeats", json_integer(r->passes));
    json_object_set_new(o, "moves", json_integer((json_int_t)r->n_phases - 1));
    json_object_set_new(o, "kept",
                        r->kept ? json_string(hcp_rebalance_reason_name(r->kept))
                                : json_null());
    json_object_set_new(o, "pass_ms", all);
    json_object_set_new(o, "phases", phases);
    return hcp_json_print(o, stdout);
}

static void cell_ms(hcp_table *t, double ms)
{
    if (isnan(ms))
        hcp_table_cell(t, "-");
    else
        hcp_table_cell(t, ms < 100 ? "%.3f" : "%.1f", ms);
}

static void tokens_text(const struct run *r, const struct phase *p, char *out,
                        size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t k = 0; k < r->n && at + 24 < size; k++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", k ? "/" : "",
                               (long long)p->tokens[k]);
}

static int print_text(const struct run *r)
{
    static const char *const columns[] = {"pass",         "passes",    "measured_ms",
                                          "predicted_ms", "before_ms", "stay_ms",
                                          "saved_ms",     "reason",    "tokens"};
    hcp_table *t = hcp_table_new();
    int rc;

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], i < 7);
    for (size_t i = 0; i < r->n_phases; i++) {
        const struct phase *p = &r->phases[i];
        double gain = i > 0 ? before_ms(r, p) - after_ms(r, p) : NAN;
        char tokens[200];

        hcp_table_row(t);
        hcp_table_cell(t, "%d", p->first);
        hcp_table_cell(t, "%d", p->n);
        cell_ms(t, after_ms(r, p));
        cell_ms(t, p->predicted_ms);
        cell_ms(t, i > 0 ? before_ms(r, p) : NAN);
        cell_ms(t, i > 0 ? p->why.stay_ms : NAN);
        cell_ms(t, gain * p->n - p->open_ms);
        hcp_table_cell(t, "%s", i > 0 ? hcp_rebalance_reason_name(p->why.reason) : "-");
        tokens_text(r, p, tokens, sizeof tokens);
        hcp_table_cell(t, "%s", tokens);
    }
    rc = hcp_table_print(t, stdout);
    printf("\n%d passes, %zu change%s of the plan", r->passes, r->n_phases - 1,
           r->n_phases == 2 ? "" : "s");
    for (size_t i = 1; i < r->n_phases; i++) {
        const struct phase *p = &r->phases[i];

        printf("\npass %d: %.3f ms a pass instead of %.3f, %.1f ms to change", p->first,
               after_ms(r, p), before_ms(r, p), p->open_ms);
    }
    puts("");
    if (r->kept)
        printf("at the end speeds have changed, and the plan has not: %s%s%s\n",
               hcp_rebalance_reason_name(r->kept), r->kept_text[0] ? ": " : "",
               r->kept_text);
    for (size_t i = 0; i < r->n_phases; i++) {
        const struct ring_result *c = &r->phases[i].checked;

        if (c->verified)
            printf("%s from pass %d on: O within %.2e\n",
                   ring_result_passed(c) ? "verified" : "NOT VERIFIED",
                   r->phases[i].first, ring_result_error(c));
    }
    return rc;
}

static int report(struct run *r, struct hcp_err *err)
{
    int rc = HCP_OK;

    if (r->p->o.json ? print_json(r) : print_text(r))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the results");
    fflush(stdout); /* a launcher may end this rank when the first one ends */
    hcp_cli_written(stdout);
    for (size_t i = 0; rc == HCP_OK && i < r->n_phases; i++)
        if (!ring_result_passed(&r->phases[i].checked))
            rc = hcp_fail(err, HCP_FAILED, "verification failed: see above");
    return rc;
}

/* ---- start ---- */

static int check_slowed(const struct ring_program *p, struct hcp_err *err)
{
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

int ring_rebalance(struct ring_program *p, struct hcp_err *err)
{
    struct run r = {.p = p, .n = (size_t)p->comm.size, .plan = p->plans.plans[0]};
    int rc = check_slowed(p, err);

    p->alone = 0;
    r.plan.order = HCP_ORDER_GIVEN; /* ranks have taken their places */
    if (rc == HCP_OK)
        rc = start(&r, err);
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK)
        rc = passes(&r, err);
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, ring_warden_check(p->warden, err), err);
    if (!p->alone) /* else there may be work in flight; the process ends */
        ring_close(r.ring);
    if (rc == HCP_OK && p->comm.rank == 0)
        rc = report(&r, err);
    if (!p->alone)
        rc = ring_all_ok(&p->comm, rc, err);
    run_free(&r);
    return rc;
}
