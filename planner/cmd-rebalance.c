/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan rebalance: a trace of measured times against a plan, and what would have been
 * proposed when and why. Times are of the plan in the file throughout: what they say of
 * the ranks' speeds is true of the plans that follow it as well.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/rebalance-replay.h"

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

static int set_option(int key, char *arg, struct replay_args *args, struct hcp_err *err)
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
    struct replay_args *args = state->input;
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
            argp_error(state,
                       "--plan and --trace are needed: a plan printed by 'hcp-plan "
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

/* ---- what it starts from ---- */

static int set_link(const struct replay_args *args, const hcp_plan *plan,
                    hcp_rebalance_options *o, struct move_ways *ways, struct hcp_err *err)
{
    const struct move_ends ends = {plan->ranks, plan->n_ranks, NULL, NULL};
    const hcp_question *given = &args->plan.question;
    const hcp_shape *shape = &plan->shape;
    double element = strcmp(shape->dtype, "fp32") == 0 ? 4 : 2;
    double bytes = 2 * element * shape->batch * shape->kv_heads * shape->head_dim *
                   plan->layers * (double)plan->seq_len / (double)plan->n_ranks;

    o->link_alpha_us =
        args->plan.given & PLAN_GIVEN_ALPHA ? given->link_alpha_us : plan->link_alpha_us;
    o->link_gbps =
        args->plan.given & PLAN_GIVEN_GBPS ? given->link_gbps : plan->link_gbps;
    return args->plan.link
               ? session_move_link(&args->plan, &ends, bytes, &o->link_alpha_us,
                                   &o->link_gbps, ways, err)
               : HCP_OK;
}

static int new_table(struct replay *p)
{
    static const char *const columns[] = {
        "step",      "decision", "reason",     "stay_ms", "move_to_ms",
        "margin_ms", "cost_ms",  "break_even", "speeds",  "tokens"};

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
    if (!p->base_ms || !p->scale || !p->heard || !p->tokens || !p->ranks ||
        !p->trial.ranks || !p->trial.segments || !p->trial.places || new_table(p))
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (o.move_kv && set_link(p->args, plan, &o, &p->ways, err))
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
    if (isnan(replay_makespan(p, plan, p->scale)))
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

static int check_plan(const struct replay_args *args, hcp_plan *plan, struct hcp_err *err)
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
    struct replay_args args = {0};
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
        rc = replay_trace(&p, &err);
    if (rc == HCP_OK && replay_print(&p))
        rc = hcp_fail(&err, HCP_FAILED, "cannot print what would have been proposed");
    if (rc == HCP_OK)
        rc = replay_save(&p, &err);
    clear(&p);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
