/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/rebalance-replay.h"

/* What a plan's shares take at factors; NaN: outside the measured lengths, or a failed
 * rank has some. */
double replay_makespan(struct replay *p, const hcp_plan *plan, const double *scale)
{
    struct session *s = p->s;
    hcp_question q = p->question;
    char why[200];
    hcp_ring *ring = NULL;
    double ms = NAN;

    for (size_t r = 0; r < plan->n_ranks; r++) {
        p->ranks[r].time_scale = scale[r];
        p->tokens[r] = plan->ranks[r].tokens;
    }
    q.layout = plan->layout;
    q.stripes = plan->stripes;
    if (!hcp_ring_create(s->models, &s->plan.shape, p->ranks, plan->n_ranks,
                         hcp_ring_provider(s->ring), why, sizeof why, &ring) &&
        !hcp_plan_evaluate(ring, &q, p->tokens, s->workspace, s->workspace_bytes, why,
                           sizeof why, &p->trial))
        ms = p->trial.makespan_ms;
    hcp_ring_free(ring);
    return ms;
}

/* Both plans at the factors of the moment. */
static void count_step(struct replay *p)
{
    hcp_rebalance_rank rank = {.size = sizeof rank};
    double stay, run;

    for (size_t r = 0; r < p->s->plan.n_ranks; r++) {
        hcp_rebalance_rank_state(p->rebalance, r, &rank);
        p->scale[r] = rank.time_scale;
        p->ended |= rank.failed && p->base_ms[r] > 0;
    }
    if (p->ended) /* nobody could have stayed */
        return;
    p->counted++;
    stay = replay_makespan(p, &p->s->plan, p->scale);
    run =
        p->moved ? replay_makespan(p, hcp_rebalance_plan(p->rebalance), p->scale) : stay;
    p->stay_ms += stay;
    p->run_ms += run;
}

static json_t *recompute_json(const hcp_rebalance *r)
{
    json_t *list = json_array();
    hcp_recompute *array;
    size_t n = 0;

    hcp_rebalance_recompute(r, NULL, 0, &n);
    array = calloc(n + 1, sizeof *array);
    if (array && !hcp_rebalance_recompute(r, array, n, &n))
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, json_pack("{s:i, s:i, s:I, s:I}", "lost_by",
                                                  (int)array[i].lost_by, "rank",
                                                  (int)array[i].rank, "offset",
                                                  (json_int_t)array[i].offset, "length",
                                                  (json_int_t)array[i].length));
    free(array);
    return list;
}

static json_t *known(double v)
{
    return hcp_json_real(isinf(v) ? NAN : v);
}

static void event_json(struct replay *p, int64_t step, const hcp_rebalance_verdict *v,
                       const char *text)
{
    const hcp_plan *plan = hcp_rebalance_proposal(p->rebalance);
    json_t *o = json_pack(
        "{s:I, s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "step",
        (json_int_t)step, "decision", hcp_rebalance_decision_name(v->decision), "reason",
        hcp_rebalance_reason_name(v->reason), "changed", (int)v->changed, "failed",
        (int)v->failed, "stay_ms", known(v->stay_ms), "move_to_ms", known(v->move_to_ms),
        "margin_ms", known(v->margin_ms), "cost_ms", known(v->cost_ms),
        "break_even_steps", known(v->break_even_steps), "lost_ms", known(v->lost_ms),
        "move_tokens", (json_int_t)v->move_tokens, "move_bytes",
        (json_int_t)v->move_bytes, "lost_tokens", (json_int_t)v->lost_tokens);
    json_t *scale = json_array();

    for (size_t r = 0; r < p->s->plan.n_ranks; r++) {
        hcp_rebalance_rank rank = {.size = sizeof rank};

        hcp_rebalance_rank_state(p->rebalance, r, &rank);
        json_array_append_new(scale, hcp_json_real(rank.time_scale));
    }
    json_object_set_new(o, "time_scale", scale);
    if (plan) {
        json_t *tokens = json_array();
        char print[24];

        for (size_t r = 0; r < plan->n_ranks; r++)
            json_array_append_new(tokens, json_integer(plan->ranks[r].tokens));
        json_object_set_new(o, "tokens", tokens);
        json_object_set_new(o, "layout", json_string(hcp_layout_name(plan->layout)));
        snprintf(print, sizeof print, "%016llx", (unsigned long long)v->fingerprint);
        json_object_set_new(o, "fingerprint", json_string(print));
        if (v->lost_tokens > 0)
            json_object_set_new(o, "recompute", recompute_json(p->rebalance));
    }
    if (text[0])
        json_object_set_new(o, "text", json_string(text));
    json_array_append_new(p->events, o);
}

static void cell_ms(hcp_table *t, double ms)
{
    if (isfinite(ms))
        hcp_table_cell(t, "%.4g", ms);
    else
        hcp_table_cell(t, "-");
}

/* Ranks whose factor is not what the plan was made for. */
static void scales_text(const struct replay *p, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t r = 0; r < p->s->plan.n_ranks && at + 32 < size; r++) {
        hcp_rebalance_rank rank = {.size = sizeof rank};

        hcp_rebalance_rank_state(p->rebalance, r, &rank);
        if (rank.failed)
            at += (size_t)snprintf(out + at, size - at, "%s%zu failed", at ? " " : "", r);
        else if (fabs(rank.time_scale / rank.plan_scale - 1) > 0.005)
            at += (size_t)snprintf(out + at, size - at, "%s%zu:%.3g", at ? " " : "", r,
                                   rank.time_scale);
    }
}

static void event_row(struct replay *p, int64_t step, const hcp_rebalance_verdict *v)
{
    const hcp_plan *plan = hcp_rebalance_proposal(p->rebalance);
    hcp_table *t = p->table;
    char text[160];

    hcp_table_row(t);
    hcp_table_cell(t, "%lld", (long long)step);
    hcp_table_cell(t, "%s", hcp_rebalance_decision_name(v->decision));
    hcp_table_cell(t, "%s", hcp_rebalance_reason_name(v->reason));
    cell_ms(t, v->stay_ms);
    cell_ms(t, v->move_to_ms);
    cell_ms(t, isnan(v->stay_ms) ? NAN : v->margin_ms);
    cell_ms(t, isnan(v->move_to_ms) ? NAN : v->cost_ms);
    cell_ms(t, v->break_even_steps);
    scales_text(p, text, sizeof text);
    hcp_table_cell(t, "%s", text);
    text[0] = 0;
    if (plan)
        plan_tokens_text(plan, text, sizeof text);
    hcp_table_cell(t, "%s", text);
}

/* The end of a step of the trace. */
static int end_step(struct replay *p, int64_t step, struct hcp_err *err)
{
    hcp_rebalance_verdict v = {.size = sizeof v};
    int64_t left = p->args->steps > 0 ? p->args->steps - step - 1 : -1;
    char text[1024] = "";
    hcp_status status;

    if (p->args->steps > 0 && left < 0)
        return hcp_fail(
            err, HCP_USAGE,
            "--steps %lld, and the trace has step %lld; leave --steps out, or "
            "give more",
            (long long)p->args->steps, (long long)step);
    for (size_t r = 0; r < p->s->plan.n_ranks; r++) { /* as fast as it was taken to be */
        hcp_rebalance_rank rank = {.size = sizeof rank};

        hcp_rebalance_rank_state(p->rebalance, r, &rank);
        if (p->base_ms[r] == 0 && !p->heard[r])
            hcp_rebalance_observe(p->rebalance, r, rank.time_scale, 1);
        p->heard[r] = 0;
    }
    status = hcp_rebalance_step(p->rebalance, left, text, sizeof text, &v);
    if (status)
        return hcp_fail(err, plan_exit_code(status), "step %lld: %s", (long long)step,
                        text);
    p->steps++;
    if (p->args->all || v.changed > 0 || v.failed > 0 || v.decision ||
        (v.reason > HCP_REBALANCE_SAME && v.reason != p->before)) {
        p->shown++;
        if (p->events)
            event_json(p, step, &v, text);
        else
            event_row(p, step, &v);
    }
    p->before = v.reason;
    p->stuck = v.decision == HCP_REBALANCE_STUCK;
    count_step(p);
    if (v.decision != HCP_REBALANCE_MOVE)
        return HCP_OK;
    free(p->last);
    p->last = plan_json(hcp_rebalance_proposal(p->rebalance));
    status = hcp_rebalance_adopt(p->rebalance);
    if (status || !p->last)
        return hcp_fail(err, HCP_FAILED, "cannot take the proposal up: %s",
                        status ? hcp_strerror(status) : "out of memory");
    p->moved = 1;
    p->moves++;
    p->cost_ms += p->ended ? 0 : v.cost_ms;
    return HCP_OK;
}

int replay_trace(struct replay *p, struct hcp_err *err)
{
    struct trace trace = {0};
    struct trace_time time;
    int64_t step = -1;
    int rc = trace_open(p->args->trace, p->s->plan.n_ranks, &trace, err);

    while (rc == HCP_OK) {
        rc = trace_next(&trace, &time, err);
        if (rc == HCP_OK && step >= 0 && time.step != step)
            rc = end_step(p, step, err);
        step = time.step;
        if (rc || step < 0)
            break;
        /* Of a rank to which the plan of the file gave nothing a time says nothing. */
        if (p->base_ms[time.rank] == 0 && !isnan(time.ms))
            continue;
        if (p->heard[time.rank] || hcp_rebalance_observe(p->rebalance, time.rank, time.ms,
                                                         p->base_ms[time.rank]))
            rc = hcp_fail(err, HCP_USAGE,
                          "%s, line %zu: rank %zu comes twice in step %lld", trace.path,
                          trace.line, time.rank, (long long)step);
        p->heard[time.rank] = 1;
    }
    trace_close(&trace);
    if (rc == HCP_OK && p->steps == 0)
        rc = hcp_fail(err, HCP_USAGE, "the trace has no steps");
    return rc;
}

/* ---- output ---- */

static json_t *ranks_json(const struct replay *p)
{
    json_t *list = json_array();

    for (size_t r = 0; r < p->s->plan.n_ranks; r++) {
        hcp_rebalance_rank rank = {.size = sizeof rank};

        hcp_rebalance_rank_state(p->rebalance, r, &rank);
        json_array_append_new(
            list,
            json_pack("{s:i, s:o, s:o, s:o, s:o, s:I, s:b}", "rank", (int)r, "time_scale",
                      hcp_json_real(rank.time_scale), "error", hcp_json_real(rank.error),
                      "plan_scale", hcp_json_real(rank.plan_scale), "noise",
                      hcp_json_real(rank.noise), "steps", (json_int_t)rank.steps,
                      "failed", (int)rank.failed));
    }
    return list;
}

static int print_json(struct replay *p)
{
    json_t *events = p->events, *object;

    p->events = NULL;
    object =
        json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "steps",
                  (json_int_t)p->steps, "counted_steps", (json_int_t)p->counted, "moves",
                  (json_int_t)p->moves, "stay_total_ms", known(p->stay_ms), "total_ms",
                  known(p->run_ms + p->cost_ms), "cost_ms", known(p->cost_ms), "events",
                  events, "ranks", ranks_json(p));
    move_ways_json(object, &p->ways);
    return hcp_json_print(object, stdout);
}

static int print_text(struct replay *p)
{
    hcp_table *t = p->table;
    int rc = 0;

    p->table = NULL;
    if (p->shown > 0) {
        rc = hcp_table_print(t, stdout);
        putchar('\n');
    } else {
        hcp_table_free(t);
    }
    printf("%lld steps, %lld move%s", (long long)p->steps, (long long)p->moves,
           p->moves == 1 ? "" : "s");
    if (p->moves > 0 && p->counted > 0 && isfinite(p->stay_ms))
        printf(": %.4g ms with %s, %.4g ms of that to move; %.4g ms without%s",
               p->run_ms + p->cost_ms, p->moves == 1 ? "it" : "them", p->cost_ms,
               p->stay_ms, p->ended ? ", until a rank failed" : "");
    puts(p->stuck ? "; at the end a rank has failed and the others cannot hold the "
                    "sequence"
                  : "");
    move_ways_print(&p->ways, stdout);
    return rc;
}

int replay_print(struct replay *p)
{
    return p->args->plan.json ? print_json(p) : print_text(p);
}

int replay_save(const struct replay *p, struct hcp_err *err)
{
    FILE *out;

    if (!p->args->save)
        return HCP_OK;
    if (!p->last)
        return hcp_fail(err, HCP_NO_ANSWER,
                        "nothing was proposed: there is no plan to write to %s",
                        p->args->save);
    out = fopen(p->args->save, "w");
    if (!out || fputs(p->last, out) < 0 || fputc('\n', out) < 0) {
        if (out)
            fclose(out);
        return hcp_fail(err, HCP_FAILED, "cannot write %s: %s", p->args->save,
                        strerror(errno));
    }
    return fclose(out) ? hcp_fail(err, HCP_FAILED, "cannot write %s: %s", p->args->save,
                                  strerror(errno))
                       : HCP_OK;
}
