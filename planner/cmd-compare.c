/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    state->child_inputs[0] = state->input;
    state->child_inputs[1] = state->input;
    return 0;
}

static const hcp_strategy order[] = {HCP_STRATEGY_EVEN,         HCP_STRATEGY_NOMINAL,
                                     HCP_STRATEGY_PROPORTIONAL, HCP_STRATEGY_LUT,
                                     HCP_STRATEGY_POLY,         HCP_STRATEGY_BEST};
enum { N_ORDER = sizeof order / sizeof *order };

static void known_cell(hcp_table *t, const char *format, double v)
{
    char text[32];

    snprintf(text, sizeof text, format, v);
    hcp_table_cell(t, "%s", isnan(v) ? "" : text);
}

static void plan_row(hcp_table *t, const hcp_plan *plan)
{
    char tokens[160];

    plan_tokens_text(plan, tokens, sizeof tokens);
    hcp_table_row(t);
    hcp_table_cell(t, "%s", hcp_strategy_name(plan->strategy));
    known_cell(t, "%.3f", plan->makespan_ms);
    hcp_table_cell(t, "%.3f..%.3f", plan->interval_lo_ms, plan->interval_hi_ms);
    known_cell(t, "%.2f", plan->gain_over_even);
    known_cell(t, "%.3f", plan->drop_ms);
    known_cell(t, "%.3f", plan->bound_ms);
    hcp_table_cell(t, "%s", hcp_layout_name(plan->layout));
    hcp_table_cell(t, "%s", hcp_source_name(plan->source));
    hcp_table_cell(t, "%s", tokens);
}

static void error_row(hcp_table *t, hcp_strategy strategy)
{
    hcp_table_row(t);
    hcp_table_cell(t, "%s", hcp_strategy_name(strategy));
    for (int i = 1; i < 8; i++)
        hcp_table_cell(t, "%s", "");
    hcp_table_cell(t, "%s", "no answer, see below");
}

static hcp_table *new_table(void)
{
    static const struct {
        const char *name;
        int right;
    } columns[] = {{"strategy", 0}, {"makespan_ms", 1}, {"interval_ms", 1},
                   {"gain", 1},     {"drop_ms", 1},     {"bound_ms", 1},
                   {"layout", 0},   {"source", 0},      {"tokens", 0}};
    hcp_table *t = hcp_table_new();

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i].name, columns[i].right);
    return t;
}

/* What `best` says in words, below the table; even_ms is the even row's. */
static void print_verdict(const hcp_plan *plan, double even_ms)
{
    size_t dropped = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        dropped += plan->ranks[r].tokens == 0 && plan->ranks[r].kv_tokens == 0;
    if (strcmp(plan->shape.phase, "decode") == 0)
        printf("\ndecode of batch %d", (int)plan->shape.batch);
    else
        printf("\n%s mask", plan->causal ? "causal" : "full");
    printf(", %lld tokens, %s kernel, tile %lld; best: ", (long long)plan->seq_len,
           plan->provider, (long long)plan->tile);
    if (plan->decision == HCP_DECISION_EVEN && plan->source == HCP_FROM_ESTIMATED)
        printf("by the estimates %.2f times faster than even, which is inside their "
               "error bars",
               plan->gain_over_even);
    else if (plan->decision == HCP_DECISION_EVEN)
        printf("even, the gain is inside the error bar");
    else if (dropped > 0)
        printf("leave %zu of %zu ranks out", dropped, plan->n_ranks);
    else
        printf("split");
    if (plan->decision != HCP_DECISION_EVEN && even_ms > 0)
        printf(", %.2f times faster than even", even_ms / plan->makespan_ms);
    if (plan->gain_over_tied >= 1.001)
        printf(", queries and KV split apart, which gains %.4gx", plan->gain_over_tied);
    else if (plan->gain_over_tied > 0)
        printf(", queries and KV split apart, which gains nothing");
    putchar('\n');
}

/* Appends one strategy's answer, or why it has none, as a JSON object. */
static int put_json(const hcp_plan *plan, hcp_strategy strategy, const char *error)
{
    json_t *object;
    char *json;

    if (error) {
        object = json_pack("{s:i, s:s, s:s}", "schema", 1, "strategy",
                           hcp_strategy_name(strategy), "error", error);
        json = json_dumps(object, JSON_COMPACT);
        json_decref(object);
    } else {
        json = plan_json(plan);
    }
    if (!json)
        return -1;
    printf("%s%s", strategy == order[0] ? "[" : ",\n ", json);
    free(json);
    return 0;
}

/* All strategies; one without an answer is a row that says so. The exit code is that of
 * `best`, which answers whenever any does. */
static int compare(struct plan_args *args, struct session *s, struct hcp_err *err)
{
    struct hcp_err errors[N_ORDER] = {0};
    hcp_table *t = args->json ? NULL : new_table();
    int rc = HCP_OK, bad = 0;
    double even_ms = 0; /* of the even row, if it has one */

    for (int i = 0; i < N_ORDER; i++) {
        args->question.strategy = order[i];
        rc = session_split(args, s, &errors[i]);
        if (rc == HCP_USAGE || (i == N_ORDER - 1 && rc != HCP_OK && !args->json))
            break;
        if (args->json)
            bad |= put_json(&s->plan, order[i], rc ? errors[i].text : NULL);
        else if (rc)
            error_row(t, order[i]);
        else
            plan_row(t, &s->plan);
        if (rc == HCP_OK && order[i] == HCP_STRATEGY_EVEN)
            even_ms = s->plan.makespan_ms;
    }
    if (args->json && rc != HCP_USAGE)
        puts("]");
    if (rc) {
        hcp_table_free(t);
        *err = errors[rc == HCP_USAGE ? 0 : N_ORDER - 1];
        return rc;
    }
    if (t) {
        bad |= hcp_table_print(t, stdout);
        print_verdict(&s->plan, even_ms);
        fflush(stdout);
        for (int i = 0; i < N_ORDER; i++)
            if (errors[i].code)
                fprintf(stderr, "hcp-plan: %s: %s\n", hcp_strategy_name(order[i]),
                        errors[i].text);
    }
    return bad ? hcp_fail(err, HCP_FAILED, "cannot print the comparison") : HCP_OK;
}

int cmd_compare(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&plan_common_argp, 0, NULL, 0}, {&plan_ring_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        NULL,     parse, NULL, "Prints the split of every strategy side by side.",
        children, NULL,  NULL};
    struct plan_args args;
    struct session s = {0};
    struct hcp_err err = {0};
    int rc;

    plan_args_init(&args);
    args.decode = 1;
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = session_open(&args, &s, &err);
    if (rc == HCP_OK)
        rc = compare(&args, &s, &err);
    if (rc == HCP_OK)
        session_say_estimates(&s, args.json);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
