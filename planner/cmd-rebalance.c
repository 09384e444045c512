/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan rebalance: a trace of measured times against a plan, and what would have been
 * proposed when and why. Times are of the plan in the file throughout: what they say of
 * the ranks' speeds is true of the plans that follow it as well.
 */
#include "config.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"
#include "planner/rebalance-trace.h"

enum {
    OPT_PLAN = 0x4000,
    OPT_TRACE,
    OPT_STEPS,
    OPT_EXPECTED,
    OPT_ALARMS,
    OPT_NOISE,
    OPT_GAIN,
    OPT_MOVE_MS,
    OPT_MOVE_KV,
    OPT_ANY_LAYOUT,
    OPT_ALL,
    OPT_SAVE,
    OPT_LINK,
    OPT_ALPHA,
    OPT_GBPS,
    OPT_EXTRAPOLATE
};

struct args {
    struct plan_args plan;
    const char *file, *trace, *save;
    hcp_rebalance_options options;
    int64_t steps; /* 0: not known */
    int any_layout, all;
};

static const struct argp_option options[] = {
    {"plan", OPT_PLAN, "FILE", 0, "Plan printed by 'split --json' that was run", 0},
    {"trace", OPT_TRACE, "FILE", 0,
     "Compute times of its ranks in ms: lines step,rank,ms below that header (- reads "
     "standard input)",
     0},
    {"steps", OPT_STEPS, "N", 0, "Steps that the run has (not known)", 0},
    {"expected-steps", OPT_EXPECTED, "N", 0,
     "Steps that speeds last once they have changed (not known: a change must have "
     "lasted for its break-even)",
     0},
    {"false-alarms", OPT_ALARMS, "P", 0,
     "Probability a rank and step that noise is taken for a change (1e-8)", 0},
    {"noise", OPT_NOISE, "PART", 0,
     "Standard deviation of the times until it is known (0.05)", 0},
    {"min-gain", OPT_GAIN, "PART", 0, "Part of a step that a move saves at least (0.01)",
     0},
    {"move-ms", OPT_MOVE_MS, "MS", 0, "What a move costs (0)", 0},
    {"move-kv", OPT_MOVE_KV, NULL, 0,
     "Keys and values move too, over the link (only what comes is split anew)", 0},
    {"link", OPT_LINK, "TRANSPORT[:HOSTS]", 0,
     "That link as measured by 'hcp-profile link': of the slowest pair (the plan's)", 0},
    {"link-alpha-us", OPT_ALPHA, "US", 0, "Start-up time of a transfer in us", 0},
    {"link-gbps", OPT_GBPS, "GB/S", 0, "Link speed in 1e9 bytes/s", 0},
    {"any-layout", OPT_ANY_LAYOUT, NULL, 0, "Other layouts than the plan's too", 0},
    {"save", OPT_SAVE, "FILE", 0, "Write the last proposal as a plan file", 0},
    {"all", OPT_ALL, NULL, 0, "Show steps without an event too", 0},
    {"db", 'd', "FILE", 0, "Profile database with fitted models ($HCP_DB, else hcp.db)",
     1},
    {"json", 'j', NULL, 0, "Print JSON", 1},
    {"extrapolate", OPT_EXTRAPOLATE, NULL, 0, "Answer outside the measured lengths", 1},
    {0},
};

static int number(const char *name, const char *arg, double lo, double hi, double *out,
                  struct hcp_err *err)
{
    struct hcp_err why = {0};

    if (hcp_parse_double(arg, out, &why) || !(*out >= lo && *out <= hi))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is not in %g..%g", name, arg, lo, hi);
    return HCP_OK;
}

static int set_option(int key, char *arg, struct args *args, struct hcp_err *err)
{
    hcp_rebalance_options *o = &args->options;
    hcp_question *q = &args->plan.question;

    switch (key) {
    case OPT_STEPS:
        return hcp_parse_int(arg, "--steps", 1, (int64_t)1 << 40, &args->steps, err);
    case OPT_EXPECTED:
        return hcp_parse_int(arg, "--expected-steps", 1, (int64_t)1 << 40,
                             &o->expected_steps, err);
    case OPT_ALARMS:
        return number("--false-alarms", arg, 1e-12, 0.1, &o->false_alarms, err);
    case OPT_NOISE:
        return number("--noise", arg, 0, 1, &o->noise, err);
    case OPT_GAIN:
        return number("--min-gain", arg, 0, 1, &o->min_gain, err);
    case OPT_MOVE_MS:
        return number("--move-ms", arg, 0, 1e12, &o->move_ms, err);
    case OPT_ALPHA:
        args->plan.given |= PLAN_GIVEN_ALPHA;
        return number("--link-alpha-us", arg, 0, 1e9, &q->link_alpha_us, err);
    default:
        args->plan.given |= PLAN_GIVEN_GBPS;
        if (strcmp(arg, "0") == 0)
            return q->link_gbps = 0, HCP_OK;
        return number("--link-gbps", arg, 1e-6, 1e9, &q->link_gbps, err);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *args = state->input;
    struct hcp_err err = {0};

    switch (key) {
    case OPT_PLAN:
        args->file = arg;
        return 0;
    case OPT_TRACE:
        args->trace = arg;
        return 0;
    case OPT_SAVE:
        args->save = arg;
        return 0;
    case OPT_MOVE_KV:
        args->options.move_kv = 1;
        return 0;
    case OPT_ANY_LAYOUT:
        args->any_layout = 1;
        return 0;
    case OPT_ALL:
        args->all = 1;
        return 0;
    case OPT_EXTRAPOLATE:
        args->plan.question.extrapolate = 1;
        return 0;
    case OPT_LINK:
        if (!links_transport(arg, &args->plan.link, &args->plan.link_hosts))
            argp_error(state,
                       "--link '%s' is not known; expected nccl or mpi, or one of "
                       "them with :within or :between",
                       arg);
        return 0;
    case 'd':
        args->plan.db = arg;
        return 0;
    case 'j':
        args->plan.json = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; give --plan and --trace", arg);
        return 0;
    case ARGP_KEY_END:
        if (!args->file || !args->trace)
            argp_error(state, "--plan and --trace are needed: a plan printed by 'hcp-plan "
                              "split --json', and times of its ranks");
        if (strcmp(args->file, "-") == 0 && strcmp(args->trace, "-") == 0)
            argp_error(state, "--plan and --trace cannot both be standard input");
        if (!args->options.move_kv &&
            (args->plan.link || args->plan.given & (PLAN_GIVEN_ALPHA | PLAN_GIVEN_GBPS)))
            argp_error(state, "the link is what --move-kv moves over; add it, or leave "
                              "--link, --link-alpha-us and --link-gbps out");
        return 0;
    case OPT_STEPS:
    case OPT_EXPECTED:
    case OPT_ALARMS:
    case OPT_NOISE:
    case OPT_GAIN:
    case OPT_MOVE_MS:
    case OPT_ALPHA:
    case OPT_GBPS:
        if (set_option(key, arg, args, &err))
            argp_error(state, "%s", err.text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the replay ---- */

struct replay {
    const struct args *args;
    struct session *s;
    hcp_rebalance *rebalance;
    hcp_question question;
    double *base_ms;  /* [n] of the plan in the file at factor 1 */
    uint8_t *heard;   /* [n] in the step that runs */
    double *scale;    /* [n] */
    int64_t *tokens;  /* [n] */
    hcp_rank *ranks;  /* [n] */
    hcp_plan trial;   /* with arrays of its own */
    char *last;       /* JSON of the last proposal */
    hcp_table *table; /* or */
    json_t *events;
    int64_t steps, moves, shown;
    double stay_ms, run_ms, cost_ms; /* in all */
    int moved;                       /* the plan is no longer that of the file */
    hcp_rebalance_reason before;
    int stuck, ended;
    int64_t counted; /* steps that are in stay_ms and run_ms */
};

/* What a plan's shares take at factors; NaN: outside the measured lengths, or a failed
 * rank has some. */
static double makespan_at(struct replay *p, const hcp_plan *plan, const double *scale)
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
    stay = makespan_at(p, &p->s->plan, p->scale);
    run = p->moved ? makespan_at(p, hcp_rebalance_plan(p->rebalance), p->scale) : stay;
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
            json_array_append_new(
                list, json_pack("{s:i, s:i, s:I, s:I}", "lost_by", (int)array[i].lost_by,
                                "rank", (int)array[i].rank, "offset",
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
        return hcp_fail(err, HCP_USAGE,
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

static int run_trace(struct replay *p, struct hcp_err *err)
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
        if (p->heard[time.rank] ||
            hcp_rebalance_observe(p->rebalance, time.rank, time.ms,
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
            list, json_pack("{s:i, s:o, s:o, s:o, s:o, s:I, s:b}", "rank", (int)r,
                            "time_scale", hcp_json_real(rank.time_scale), "error",
                            hcp_json_real(rank.error), "plan_scale",
                            hcp_json_real(rank.plan_scale), "noise",
                            hcp_json_real(rank.noise), "steps", (json_int_t)rank.steps,
                            "failed", (int)rank.failed));
    }
    return list;
}

static int print_json(struct replay *p)
{
    json_t *events = p->events;

    p->events = NULL;
    return hcp_json_print(
        json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "steps",
                  (json_int_t)p->steps, "counted_steps", (json_int_t)p->counted, "moves", (json_int_t)p->moves, "stay_total_ms",
                  known(p->stay_ms), "total_ms", known(p->run_ms + p->cost_ms), "cost_ms",
                  known(p->cost_ms), "events", events, "ranks", ranks_json(p)),
        stdout);
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
    if (p->moves > 0 && isfinite(p->stay_ms))
        printf(": %.4g ms with %s, %.4g ms of that to move; %.4g ms without%s",
               p->run_ms + p->cost_ms, p->moves == 1 ? "it" : "them", p->cost_ms,
               p->stay_ms, p->ended ? ", until a rank failed" : "");
    puts(p->stuck ? "; at the end a rank has failed and the others cannot hold the "
                    "sequence"
                  : "");
    return rc;
}

static int save(const struct replay *p, struct hcp_err *err)
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

/* ---- what it starts from ---- */

static int set_link(const struct args *args, const hcp_plan *plan,
                    hcp_rebalance_options *o, struct hcp_err *err)
{
    const hcp_question *given = &args->plan.question;
    const hcp_shape *shape = &plan->shape;
    double element = strcmp(shape->dtype, "fp32") == 0 ? 4 : 2;
    double bytes = 2 * element * shape->batch * shape->kv_heads * shape->head_dim *
                   plan->layers * (double)plan->seq_len / (double)plan->n_ranks;

    o->link_alpha_us =
        args->plan.given & PLAN_GIVEN_ALPHA ? given->link_alpha_us : plan->link_alpha_us;
    o->link_gbps =
        args->plan.given & PLAN_GIVEN_GBPS ? given->link_gbps : plan->link_gbps;
    return args->plan.link ? session_move_link(&args->plan, plan, bytes,
                                               &o->link_alpha_us, &o->link_gbps, err)
                           : HCP_OK;
}

static int new_table(struct replay *p)
{
    static const char *const columns[] = {"step",      "decision",   "reason",
                                          "stay_ms",   "move_to_ms", "margin_ms",
                                          "cost_ms",   "break_even", "speeds",
                                          "tokens"};

    if (p->args->plan.json) {
        p->events = json_array();
        return p->events ? 0 : -1;
    }
    p->table = hcp_table_new();
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(p->table, columns[i], i == 0 || (i >= 3 && i <= 7));
    return 0;
}

static int start(struct replay *p, struct hcp_err *err)
{
    const hcp_plan *plan = &p->s->plan;
    hcp_rebalance_options o = p->args->options;
    size_t n = plan->n_ranks, m;
    hcp_status status;

    hcp_plan_question(plan, &p->question);
    p->question.extrapolate |= p->args->plan.question.extrapolate;
    if (p->args->any_layout)
        p->question.layout = HCP_LAYOUT_AUTO;
    m = hcp_segments_max(n, HCP_LAYOUT_AUTO, p->question.stripes);
    p->base_ms = calloc(n, sizeof *p->base_ms);
    p->scale = calloc(n, sizeof *p->scale);
    p->heard = calloc(n, 1);
    p->tokens = calloc(n, sizeof *p->tokens);
    p->ranks = calloc(n, sizeof *p->ranks);
    hcp_plan_init(&p->trial, calloc(n, sizeof *p->trial.ranks), n,
                  calloc(m, sizeof *p->trial.segments), m);
    p->trial.places = calloc(n, sizeof *p->trial.places);
    if (!p->base_ms || !p->scale || !p->heard || !p->tokens || !p->ranks || !p->trial.ranks ||
        !p->trial.segments || !p->trial.places || new_table(p))
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (o.move_kv && set_link(p->args, plan, &o, err))
        return err->code;
    status = hcp_rebalance_create(p->s->ring, &p->question, plan, &o, err->text,
                                  sizeof err->text, &p->rebalance);
    if (status)
        return err->code = plan_exit_code(status);
    for (size_t r = 0; r < n; r++) {
        const hcp_plan_rank *from = &plan->ranks[r];
        hcp_rank *rank = &p->ranks[r];

        hcp_rank_init(rank);
        memcpy(rank->device, from->device, sizeof rank->device);
        memcpy(rank->limit, from->limit, sizeof rank->limit);
        rank->linear_before_us = from->linear_before_us;
        rank->linear_before_fixed_us = from->linear_before_fixed_us;
        rank->linear_after_us = from->linear_after_us;
        rank->linear_after_fixed_us = from->linear_after_fixed_us;
        p->scale[r] = 1;
    }
    /* Predicted anew: a plan that somebody wrote need not say what its ranks take. */
    if (isnan(makespan_at(p, plan, p->scale)))
        return hcp_fail(err, HCP_FAILED, "cannot predict the plan");
    for (size_t r = 0; r < n; r++)
        p->base_ms[r] = p->trial.ranks[r].compute_ms;
    return HCP_OK;
}

static void clear(struct replay *p)
{
    hcp_rebalance_free(p->rebalance);
    free(p->base_ms);
    free(p->scale);
    free(p->heard);
    free(p->tokens);
    free(p->ranks);
    free(p->trial.ranks);
    free(p->trial.segments);
    free(p->trial.places);
    free(p->last);
    if (p->table)
        hcp_table_free(p->table);
    json_decref(p->events);
}

static int check_plan(const struct args *args, hcp_plan *plan, struct hcp_err *err)
{
    if (plan->has_links)
        return hcp_fail(err, HCP_USAGE,
                        "%s has links between its ranks, of which a plan file says those "
                        "it uses alone; print one without --links",
                        args->file);
    if (plan->joint)
        return hcp_fail(err, HCP_USAGE,
                        "%s splits queries and KV apart, which is not rebalanced; print "
                        "one without --joint",
                        args->file);
    plan->order = HCP_ORDER_GIVEN; /* the order that runs */
    return HCP_OK;
}

int cmd_rebalance(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "What would have been proposed while a plan ran: a trace of the ranks' compute "
        "times, replayed.",
        NULL,
        NULL,
        NULL};
    struct args args = {0};
    struct session s = {0};
    struct replay p = {.args = &args, .s = &s};
    struct plan_args open;
    struct hcp_err err = {0};
    hcp_plan plan = {0};
    int rc;

    plan_args_init(&args.plan);
    hcp_rebalance_options_init(&args.options);
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = plan_load(args.file, &plan, &err);
    if (rc)
        return hcp_cli_report(&err);
    open = args.plan;
    open.link = NULL; /* that of moving */
    rc = check_plan(&args, &plan, &err);
    if (rc == HCP_OK)
        rc = session_open_plan(&open, &plan, &s, &err);
    if (rc) {
        free(plan.ranks);
        free(plan.segments);
        free(plan.places);
        return hcp_cli_report(&err);
    }
    rc = start(&p, &err);
    if (rc == HCP_OK)
        rc = run_trace(&p, &err);
    if (rc == HCP_OK && (args.plan.json ? print_json(&p) : print_text(&p)))
        rc = hcp_fail(&err, HCP_FAILED, "cannot print what would have been proposed");
    if (rc == HCP_OK)
        rc = save(&p, &err);
    clear(&p);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
