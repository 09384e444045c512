/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"

enum { OPT_STRATEGY = 0x4000, OPT_PLAN };

struct args {
    struct plan_args plan;
    const char *file;
    int strategy; /* --strategy was given */
};

static const struct argp_option options[] = {
    {"plan", OPT_PLAN, "FILE", 0,
     "Plan printed by 'split --json' (- reads standard input) instead of a new split", 0},
    {"strategy", OPT_STRATEGY, "NAME", 0,
     "even, nominal, proportional, lut, poly or best (best)", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *args = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->plan;
        state->child_inputs[1] = &args->plan;
        return 0;
    case OPT_PLAN:
        args->file = arg;
        return 0;
    case OPT_STRATEGY:
        args->strategy = 1;
        plan_strategy_option(arg, state, &args->plan.question);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* When a rank begins its linear work after the ring, of m steps: its own last step, or
 * everybody's where there is a barrier (all: all n steps, steps: its own). */
static double after_from(const hcp_plan *plan, const hcp_step *all, size_t n, size_t m,
                         const hcp_step *steps)
{
    double last = steps[m - 1].fin_ms;

    if (plan->barrier && plan_has_linear(plan))
        for (size_t i = m - 1; i < n; i += m)
            last = all[i].fin_ms > last ? all[i].fin_ms : last;
    return last;
}

static double end_of(const hcp_plan *plan, const hcp_step *steps, size_t n, size_t m,
                     size_t *critical)
{
    double end = -1;

    for (size_t i = 0; i < n; i += m) {
        double fin = after_from(plan, steps, n, m, steps + i) +
                     plan_after_ms(&plan->ranks[steps[i].rank]);

        if (fin > end) {
            end = fin;
            *critical = (size_t)steps[i].rank;
        }
    }
    return end;
}

static json_t *rank_json(const hcp_plan *plan, const hcp_step *all, size_t n,
                         const hcp_step *steps, size_t m)
{
    const hcp_plan_rank *rank = &plan->ranks[steps->rank];
    json_t *list = json_array(), *object;
    double busy = 0, wait = 0, linear = plan_before_ms(rank) + plan_after_ms(rank);
    double fin = after_from(plan, all, n, m, steps) + plan_after_ms(rank);

    for (size_t k = 0; k < m; k++) {
        json_t *step = json_pack("{s:i, s:i}", "step", (int)steps[k].step, "block_of",
                                 (int)steps[k].block_of);

        json_object_set_new(step, "ready_ms", hcp_json_real(steps[k].ready_ms));
        json_object_set_new(step, "start_ms", hcp_json_real(steps[k].start_ms));
        json_object_set_new(step, "busy_ms", hcp_json_real(steps[k].busy_ms));
        json_object_set_new(step, "fin_ms", hcp_json_real(steps[k].fin_ms));
        json_object_set_new(step, "wait_ms", hcp_json_real(steps[k].wait_ms));
        json_array_append_new(list, step);
        busy += steps[k].busy_ms;
        wait += steps[k].wait_ms;
    }
    object =
        json_pack("{s:i, s:s, s:s, s:I}", "rank", (int)steps->rank, "device",
                  rank->device, "limit", rank->limit, "tokens", (json_int_t)rank->tokens);
    if (plan_has_linear(plan)) {
        busy += linear;
        wait = fin - busy > 0 ? fin - busy : 0;
        json_object_set_new(object, "linear_before_ms",
                            hcp_json_real(plan_before_ms(rank)));
        json_object_set_new(object, "linear_after_ms",
                            hcp_json_real(plan_after_ms(rank)));
    }
    if (plan->joint)
        json_object_set_new(object, "kv_tokens", json_integer(rank->kv_tokens));
    if (plan->late_kv)
        json_object_set_new(object, "late_slots", json_integer(rank->late_slots));
    if (plan->order || plan->has_links)
        json_object_set_new(object, "given_rank",
                            json_integer(plan->places[steps->rank].rank));
    json_object_set_new(object, "busy_ms", hcp_json_real(busy));
    json_object_set_new(object, "wait_ms", hcp_json_real(wait));
    json_object_set_new(object, "fin_ms", hcp_json_real(fin));
    json_object_set_new(object, "steps", list);
    return object;
}

static int print_json(const hcp_plan *plan, const hcp_step *steps, size_t n, size_t m)
{
    json_t *object = json_object(), *ranks = json_array();
    char fingerprint[20];
    size_t critical = 0;
    double end = end_of(plan, steps, n, m, &critical);

    snprintf(fingerprint, sizeof fingerprint, "%016llx",
             (unsigned long long)plan->fingerprint);
    json_object_set_new(object, "schema", json_integer(1));
    json_object_set_new(object, "seq_len", json_integer((json_int_t)plan->seq_len));
    json_object_set_new(object, "mask", json_string(plan->causal ? "causal" : "full"));
    json_object_set_new(object, "layout", json_string(hcp_layout_name(plan->layout)));
    json_object_set_new(object, "makespan_ms", hcp_json_real(end));
    json_object_set_new(object, "planned_ms", hcp_json_real(plan->makespan_ms));
    json_object_set_new(object, "critical_rank", json_integer((json_int_t)critical));
    json_object_set_new(object, "buffers", json_integer(plan->buffers));
    json_object_set_new(object, "sub_blocks", json_integer(plan->sub_blocks));
    json_object_set_new(object, "barrier", json_boolean(plan->barrier));
    json_object_set_new(object, "link_alpha_us", hcp_json_real(plan->link_alpha_us));
    json_object_set_new(object, "link_gbps",
                        plan->link_gbps > 0 ? hcp_json_real(plan->link_gbps)
                                            : json_null());
    json_object_set_new(object, "fingerprint", json_string(fingerprint));
    if (plan->late_kv)
        json_object_set_new(object, "late_kv", json_true());
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (session_is_spec(plan->ranks[r].device)) {
            json_object_set_new(object, "source",
                                json_string(hcp_source_name(HCP_FROM_ESTIMATED)));
            break;
        }
    for (size_t i = 0; i < n; i += m)
        json_array_append_new(ranks, rank_json(plan, steps, n, steps + i, m));
    json_object_set_new(object, "ranks", ranks);
    return hcp_json_print(object, stdout);
}

/* A row of linear work from start to end. */
static void linear_row(hcp_table *t, const hcp_step *step, const char *when, double start,
                       double busy, double wait)
{
    hcp_table_row(t);
    hcp_table_cell(t, "%d", (int)step->rank);
    hcp_table_cell(t, "%s", when);
    hcp_table_cell(t, "%s", "-");
    hcp_table_cell(t, "%s", "-");
    hcp_table_cell(t, "%.4f", start);
    hcp_table_cell(t, "%.4f", busy);
    hcp_table_cell(t, "%.4f", start + busy);
    hcp_table_cell(t, "%.4f", wait);
}

/* Whose KV is late, and which ranks stand where. */
static void print_places(const hcp_plan *plan)
{
    int late = 0, moved = 0;

    for (size_t r = 0; plan->late_kv && r < plan->n_ranks; r++)
        if (plan->ranks[r].late_slots > 0)
            printf("%s%zu by %d", late++ ? ", " : "late KV: of rank ", r,
                   (int)plan->ranks[r].late_slots);
    if (plan->late_kv)
        puts(late ? "" : "late KV: of no rank");
    for (size_t r = 0; plan->order && r < plan->n_ranks; r++)
        moved |= plan->places[r].rank != (int32_t)r;
    for (size_t r = 0; moved && r < plan->n_ranks; r++)
        printf("%s%d", r ? " " : "order in the ring, as the ranks were given: ",
               (int)plan->places[r].rank);
    if (moved)
        puts("");
}

static int print_text(const hcp_plan *plan, const hcp_step *steps, size_t n, size_t m)
{
    static const char *const columns[] = {"rank",     "step",    "block_of", "ready_ms",
                                          "start_ms", "busy_ms", "fin_ms",   "wait_ms"};
    hcp_table *t = hcp_table_new();
    size_t critical = 0;
    double end = end_of(plan, steps, n, m, &critical);
    char buffers[16];
    int rc, linear = plan_has_linear(plan);

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], 1);
    for (size_t i = 0; i < n; i++) {
        const hcp_step *s = &steps[i];
        const hcp_plan_rank *rank = &plan->ranks[s->rank];

        if (linear && i > 0 && i % m == 0) {
            double from = after_from(plan, steps, n, m, s - m);

            linear_row(t, s - 1, "after", from, plan_after_ms(&plan->ranks[s[-1].rank]),
                       from - s[-1].fin_ms);
        }
        if (linear && i % m == 0)
            linear_row(t, s, "before", 0, plan_before_ms(rank), 0);
        hcp_table_row(t);
        hcp_table_cell(t, "%d", (int)s->rank);
        hcp_table_cell(t, "%d", (int)s->step);
        hcp_table_cell(t, "%d", (int)s->block_of);
        if (isnan(s->ready_ms)) { /* never sent here: nothing to do in this step */
            for (int c = 0; c < 5; c++)
                hcp_table_cell(t, "%s", "-");
            continue;
        }
        hcp_table_cell(t, "%.4f", s->ready_ms);
        hcp_table_cell(t, "%.4f", s->start_ms);
        hcp_table_cell(t, "%.4f", s->busy_ms);
        hcp_table_cell(t, "%.4f", s->fin_ms);
        hcp_table_cell(t, "%.4f", s->wait_ms);
    }
    if (linear) {
        const hcp_step *last = &steps[n - 1];
        double from = after_from(plan, steps, n, m, &steps[n - m]);

        linear_row(t, last, "after", from, plan_after_ms(&plan->ranks[last->rank]),
                   from - last->fin_ms);
    }
    rc = hcp_table_print(t, stdout);
    snprintf(buffers, sizeof buffers, "%d", (int)plan->buffers);
    if (plan->buffers == 0)
        strcpy(buffers, "unlimited");
    printf("\nmakespan %.4f ms, rank %zu finishes last; %s layout, %s buffer%s", end,
           critical, hcp_layout_name(plan->layout), buffers,
           plan->buffers == 1 ? "" : "s");
    if (plan->sub_blocks > 1)
        printf(", blocks in %d pieces", (int)plan->sub_blocks);
    if (plan->joint)
        printf(", queries and KV split apart");
    plan_print_link(plan, stdout);
    puts(plan->barrier ? ", a barrier after every step" : "");
    print_places(plan);
    return rc;
}

static int simulate(const struct args *args, struct session *s, struct hcp_err *err)
{
    const hcp_plan *plan = &s->plan;
    size_t m = 0, n = 0;
    hcp_step *steps;
    hcp_status status;
    int rc;

    for (size_t r = 0; r < plan->n_ranks; r++)
        m += plan->ranks[r].tokens > 0 || plan->ranks[r].kv_tokens > 0;
    steps = calloc(m * m, sizeof *steps);
    if (!steps)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    status = hcp_plan_simulate(s->ring, plan, args->plan.question.extrapolate,
                               s->workspace, s->workspace_bytes, err->text,
                               sizeof err->text, steps, m * m, &n);
    rc = err->code = plan_exit_code(status);
    if (rc == HCP_OK &&
        (args->plan.json ? print_json(plan, steps, n, m) : print_text(plan, steps, n, m)))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the simulation");
    free(steps);
    return rc;
}

/* A plan file says how its ring was assumed to be; the command line overrides it. */
static int open_file(struct args *args, struct session *s, struct hcp_err *err)
{
    const hcp_question *q = &args->plan.question;
    hcp_plan plan;
    int rc;

    if (args->plan.ranks)
        return hcp_fail(err, HCP_USAGE, "--plan has its own ranks; leave --ranks out");
    if (args->plan.shape.seq_len || args->plan.shape.layout[0] || args->strategy ||
        args->plan.given & (PLAN_GIVEN_SPLIT | PLAN_GIVEN_ORDER | PLAN_GIVEN_JOINT |
                            PLAN_GIVEN_NODES))
        return hcp_fail(err, HCP_USAGE,
                        "--plan is split already; leave --seq-len, --layout, --strategy, "
                        "--tile, --stripes, --max-tokens, --linear-us, --model, "
                        "--hidden, --ffn, --mlp, --memory, --weights, --layers, "
                        "--activation-bytes, --links, --hosts, --reorder, --fix-order, "
                        "--late-kv, --joint, --node-..., --double-ring and --time-scale "
                        "out");
    rc = plan_load(args->file, &plan, err);
    if (rc)
        return rc;
    if (strcmp(plan.shape.phase, "decode") == 0) {
        free(plan.ranks);
        free(plan.segments);
        free(plan.places);
        return hcp_fail(err, HCP_USAGE,
                        "%s is a plan of decode, which has no steps round a ring; its "
                        "times are in it",
                        args->file);
    }
    if (args->plan.given & PLAN_GIVEN_BUFFERS)
        plan.buffers = q->buffers;
    if (args->plan.link || args->plan.given & (PLAN_GIVEN_ALPHA | PLAN_GIVEN_GBPS))
        plan.has_links = 0; /* one link for all then */
    if (args->plan.given & PLAN_GIVEN_ALPHA)
        plan.link_alpha_us = q->link_alpha_us;
    if (args->plan.given & PLAN_GIVEN_GBPS)
        plan.link_gbps = q->link_gbps;
    if (args->plan.given & PLAN_GIVEN_BARRIER)
        plan.barrier = q->barrier;
    if (args->plan.given & PLAN_GIVEN_SUB_BLOCKS)
        plan.sub_blocks = q->sub_blocks;
    rc = HCP_OK;
    if (plan.late_kv && (plan.sub_blocks > 1 || plan.barrier))
        rc = hcp_fail(err, HCP_USAGE,
                      "%s has late KV, which is for whole blocks without a barrier; "
                      "leave --sub-blocks and --barrier out",
                      args->file);
    if (plan.inner_ranks > 0 && (plan.sub_blocks > 1 || plan.barrier))
        rc = hcp_fail(err, HCP_USAGE,
                      "%s is for rings of rings, which have whole blocks and no barrier; "
                      "leave --sub-blocks and --barrier out",
                      args->file);
    if (rc == HCP_OK)
        rc = session_open_plan(&args->plan, &plan, s, err);
    if (rc) {
        free(plan.ranks);
        free(plan.segments);
        free(plan.places);
    }
    return rc;
}

int cmd_simulate(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&plan_common_argp, 0, NULL, 0}, {&plan_ring_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,  parse, NULL, "Shows a split step by step: who waits for what.",
        children, NULL,  NULL};
    struct args args = {0};
    struct session s = {0};
    struct hcp_err err = {0};
    int rc;

    plan_args_init(&args.plan);
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    if (args.file) {
        rc = open_file(&args, &s, &err);
    } else {
        rc = session_open(&args.plan, &s, &err);
        if (rc == HCP_OK)
            rc = session_split(&args.plan, &s, &err);
    }
    if (rc == HCP_OK)
        rc = simulate(&args, &s, &err);
    if (rc == HCP_OK)
        session_say_estimates(&s, args.plan.json);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
