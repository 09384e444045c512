/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"

enum {
    OPT_FROM = 0x4000,
    OPT_TO,
    OPT_STEPS,
    OPT_LINK,
    OPT_ALPHA,
    OPT_GBPS,
    OPT_LINKS,
    OPT_EXTRAPOLATE,
    OPT_SPECS
};

struct args {
    struct plan_args plan;
    const char *from, *to;
    int64_t steps;
};

static const struct argp_option options[] = {
    {"from", OPT_FROM, "FILE", 0,
     "Plan by which ranks have their KV: of prefill, or of decode", 0},
    {"to", OPT_TO, "FILE", 0, "Plan of decode by which they shall have it", 0},
    {"steps", OPT_STEPS, "N", 0, "Decode steps to come (not known)", 0},
    {"link", OPT_LINK, "TRANSPORT[:HOSTS]", 0,
     "Link as measured by 'hcp-profile link', one way: that of the slowest pair (that of "
     "--to)",
     0},
    {"link-alpha-us", OPT_ALPHA, "US", 0, "Start-up time of a transfer in us", 0},
    {"link-gbps", OPT_GBPS, "GB/S", 0, "Link speed in 1e9 bytes/s", 0},
    {"links", OPT_LINKS, "FILE|TRANSPORT", 0,
     "A link for each pair of ranks: from a text file, or measured as with --link", 0},
    {"db", 'd', "FILE", 0, "Profile database with fitted models ($HCP_DB, else hcp.db)",
     1},
    {"json", 'j', NULL, 0, "Print JSON", 1},
    {"extrapolate", OPT_EXTRAPOLATE, NULL, 0, "Answer outside the measured lengths", 1},
    {"specs", OPT_SPECS, "FILE", 0,
     "Table of data sheets for ranks spec:NAME ($HCP_SPECS, else the one that is "
     "installed)",
     1},
    {0},
};

static int set_link_number(const char *name, const char *arg, double least, double *out,
                           struct hcp_err *err)
{
    int rc = hcp_parse_double(arg, out, err);

    if (rc == HCP_OK && *out != 0 && !(*out >= least && *out <= 1e9))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is neither 0 nor in %g..1e9", name, arg,
                        least);
    return rc;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *args = state->input;
    hcp_question *q = &args->plan.question;
    struct hcp_err err = {0};
    int rc = HCP_OK;

    switch (key) {
    case OPT_FROM:
        args->from = arg;
        return 0;
    case OPT_TO:
        args->to = arg;
        return 0;
    case OPT_STEPS:
        rc = hcp_parse_int(arg, "--steps", 1, (int64_t)1 << 40, &args->steps, &err);
        break;
    case OPT_LINK:
        if (!links_transport(arg, &args->plan.link, &args->plan.link_hosts))
            argp_error(state,
                       "--link '%s' is not known; expected nccl or mpi, or one of "
                       "them with :within or :between",
                       arg);
        return 0;
    case OPT_ALPHA:
        args->plan.given |= PLAN_GIVEN_ALPHA;
        rc = set_link_number("--link-alpha-us", arg, 0, &q->link_alpha_us, &err);
        break;
    case OPT_GBPS:
        args->plan.given |= PLAN_GIVEN_GBPS;
        rc = set_link_number("--link-gbps", arg, 1e-6, &q->link_gbps, &err);
        break;
    case OPT_LINKS:
        if (!links_transport(arg, &args->plan.links, &args->plan.links_hosts))
            args->plan.links = arg; /* a file */
        return 0;
    case 'd':
        args->plan.db = arg;
        return 0;
    case 'j':
        args->plan.json = 1;
        return 0;
    case OPT_EXTRAPOLATE:
        q->extrapolate = 1;
        return 0;
    case OPT_SPECS:
        args->plan.specs = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; plans are given with --from and --to",
                   arg);
        return 0;
    case ARGP_KEY_END:
        if (!args->from || !args->to)
            argp_error(state,
                       "--from and --to are needed: two plans printed by 'hcp-plan "
                       "split --json'");
        if (strcmp(args->from, "-") == 0 && strcmp(args->to, "-") == 0)
            argp_error(state, "--from and --to cannot both be standard input");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc)
        argp_error(state, "%s", err.text);
    return 0;
}

static void free_plan(hcp_plan *plan)
{
    free(plan->ranks);
    free(plan->segments);
    free(plan->places);
    memset(plan, 0, sizeof *plan);
}

/* Which ranks give and which take, [n] each, and about what is moved, in bytes, to know
 * at which size the link counts. */
static double changes(const hcp_plan *from, const hcp_plan *to, uint8_t *gives,
                      uint8_t *takes)
{
    const hcp_shape *shape = &to->shape;
    double element = strcmp(shape->dtype, "fp32") == 0 ? 4 : 2, tokens = 0;

    for (size_t i = 0; i < to->n_ranks && i < from->n_ranks; i++) {
        size_t r = from->order || from->has_links ? (size_t)from->places[i].rank : i;
        int64_t more;

        if (r >= to->n_ranks)
            continue; /* hcp_plan_moves() says so */
        more = to->ranks[r].tokens - from->ranks[i].kv_tokens;
        gives[r] = more < 0;
        takes[r] = more > 0;
        tokens += fabs((double)more) / 2;
    }
    return tokens * 2 * shape->batch * shape->kv_heads * shape->head_dim * element *
           to->layers;
}

static int set_slowest(struct args *args, const hcp_plan *from, const hcp_plan *to,
                       hcp_move_question *q, struct move_ways *ways, struct hcp_err *err)
{
    uint8_t *gives = calloc(2 * to->n_ranks + 1, 1), *takes = gives + to->n_ranks;
    const struct move_ends ends = {to->ranks, to->n_ranks, gives, takes};
    int rc = gives
                 ? session_move_link(&args->plan, &ends, changes(from, to, gives, takes),
                                     &q->link_alpha_us, &q->link_gbps, ways, err)
                 : hcp_fail(err, HCP_FAILED, "out of memory");

    free(gives);
    return rc;
}

static int set_link(struct args *args, const hcp_plan *from, struct session *s,
                    hcp_move_question *q, struct move_ways *ways, struct hcp_err *err)
{
    const hcp_plan *to = &s->plan;
    hcp_question *given = &args->plan.question;
    int rc = HCP_OK;

    q->link_alpha_us =
        args->plan.given & PLAN_GIVEN_ALPHA ? given->link_alpha_us : to->link_alpha_us;
    q->link_gbps = args->plan.given & PLAN_GIVEN_GBPS ? given->link_gbps : to->link_gbps;
    if (args->plan.link)
        rc = set_slowest(args, from, to, q, ways, err);
    if (rc == HCP_OK && args->plan.links) {
        hcp_rank *ranks = calloc(to->n_ranks, sizeof *ranks);

        if (!ranks)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        for (size_t r = 0; r < to->n_ranks; r++) {
            hcp_rank_init(&ranks[r]);
            memcpy(ranks[r].device, to->ranks[r].device, sizeof ranks[r].device);
            memcpy(ranks[r].limit, to->ranks[r].limit, sizeof ranks[r].limit);
        }
        given->seq_len = to->seq_len;
        rc = session_links(&args->plan, &to->shape, ranks, to->n_ranks, to->provider,
                           given, ways, s, err);
        free(ranks);
        q->links = given->links;
        q->n_links = given->n_links;
        if (rc == HCP_OK && given->n_shared > 0)
            rc =
                hcp_fail(err, HCP_USAGE,
                         "%s: a transition takes links that share nothing; leave 'share' "
                         "out",
                         args->plan.links);
    }
    return rc;
}

/* ---- output ---- */

static json_t *move_json(const hcp_moves *m, const hcp_move *move)
{
    json_t *segments = json_array();

    for (int64_t i = 0; i < move->n_segments; i++) {
        const hcp_segment *s = &m->segments[move->first_segment + i];

        json_array_append_new(
            segments, json_pack("[I, I]", (json_int_t)s->offset, (json_int_t)s->length));
    }
    return json_pack("{s:i, s:i, s:I, s:I, s:o, s:o}", "from", (int)move->from, "to",
                     (int)move->to, "tokens", (json_int_t)move->tokens, "bytes",
                     (json_int_t)move->bytes, "ms", hcp_json_real(move->ms), "segments",
                     segments);
}

static json_t *fingerprint_json(const hcp_plan *plan)
{
    char text[24];

    snprintf(text, sizeof text, "%016llx",
             (unsigned long long)hcp_plan_fingerprint(plan));
    return json_string(text);
}

static json_t *known_json(double v)
{
    return hcp_json_real(isinf(v) ? NAN : v);
}

static int print_json(const hcp_plan *from, const hcp_plan *to, const hcp_moves *m,
                      const struct move_ways *ways)
{
    json_t *moves = json_array(), *object;

    for (size_t i = 0; i < m->n_moves; i++)
        json_array_append_new(moves, move_json(m, &m->moves[i]));
    object = json_pack(
        "{s:i, s:s, s:I, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:b, s:o, "
        "s:o, "
        "s:o}",
        "schema", 1, "decision", hcp_move_decision_name(m->decision), "seq_len",
        (json_int_t)to->seq_len, "batch", (int)to->shape.batch, "layers", (int)to->layers,
        "move_tokens", (json_int_t)m->tokens, "move_bytes", (json_int_t)m->bytes,
        "move_ms", hcp_json_real(m->move_ms), "stay_ms", hcp_json_real(m->stay_ms),
        "step_ms", hcp_json_real(m->step_ms), "break_even_steps",
        known_json(m->break_even_steps), "steps", (json_int_t)m->steps, "saved_ms",
        hcp_json_real(m->saved_ms), "exact", (int)m->exact, "from_fingerprint",
        fingerprint_json(from), "to_fingerprint", fingerprint_json(to), "moves", moves);
    move_ways_json(object, ways);
    if (to->source == HCP_FROM_ESTIMATED || from->source == HCP_FROM_ESTIMATED)
        json_object_set_new(object, "source",
                            json_string(hcp_source_name(HCP_FROM_ESTIMATED)));
    return hcp_json_print(object, stdout);
}

static void segments_text(const hcp_moves *m, const hcp_move *move, char *out,
                          size_t size)
{
    int64_t shown = move->n_segments <= 3 ? move->n_segments : 2;
    size_t at = 0;

    out[0] = 0;
    for (int64_t i = 0; i < shown && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld+%lld", i ? " " : "",
                               (long long)m->segments[move->first_segment + i].offset,
                               (long long)m->segments[move->first_segment + i].length);
    if (shown < move->n_segments && at < size)
        snprintf(out + at, size - at, " ... (%lld)", (long long)move->n_segments);
}

static void print_verdict(const hcp_plan *to, const hcp_moves *m)
{
    double gain = m->stay_ms - m->step_ms;

    printf("%.4g GB in %.4g ms (%d layer%s, batch %d)%s\n", (double)m->bytes / 1e9,
           m->move_ms, (int)to->layers, to->layers == 1 ? "" : "s", (int)to->shape.batch,
           m->exact ? "" : ", by a pairing that need not be the fastest");
    if (m->tokens == 0) {
        puts("do not move: the shares are the same");
        return;
    }
    if (isnan(m->stay_ms)) {
        printf("move: KV does not fit where it is; then %.4g ms a step\n", m->step_ms);
        return;
    }
    printf("a decode step takes %.4g ms with KV where it is, %.4g ms after moving",
           m->stay_ms, m->step_ms);
    if (!(gain > 0)) {
        puts("\ndo not move: no step gets faster");
        return;
    }
    printf("; that pays from %.0f steps on\n", floor(m->break_even_steps) + 1);
    if (m->decision == HCP_MOVE_OPEN)
        puts("how many steps follow is not known: --steps N decides");
    else if (m->decision == HCP_MOVE_GO)
        printf("move: %.4g ms less over %lld steps\n", m->saved_ms, (long long)m->steps);
    else
        printf("do not move: over %lld steps it takes %.4g ms more than it saves\n",
               (long long)m->steps, -m->saved_ms);
}

static int print_text(const hcp_plan *to, const hcp_moves *m,
                      const struct move_ways *ways)
{
    hcp_table *t = hcp_table_new();
    int rc = 0;

    hcp_table_column(t, "from", 1);
    hcp_table_column(t, "to", 1);
    hcp_table_column(t, "tokens", 1);
    hcp_table_column(t, "bytes", 1);
    hcp_table_column(t, "ms", 1);
    hcp_table_column(t, "segments", 0);
    for (size_t i = 0; i < m->n_moves; i++) {
        const hcp_move *move = &m->moves[i];
        char segments[160];

        hcp_table_row(t);
        hcp_table_cell(t, "%d", (int)move->from);
        hcp_table_cell(t, "%d", (int)move->to);
        hcp_table_cell(t, "%lld", (long long)move->tokens);
        hcp_table_cell(t, "%lld", (long long)move->bytes);
        hcp_table_cell(t, "%.4f", move->ms);
        segments_text(m, move, segments, sizeof segments);
        hcp_table_cell(t, "%s", segments);
    }
    if (m->n_moves > 0) {
        rc = hcp_table_print(t, stdout);
        putchar('\n');
    } else {
        hcp_table_free(t);
    }
    print_verdict(to, m);
    move_ways_print(ways, stdout);
    return rc;
}

static int transition(struct args *args, const hcp_plan *from, struct session *s,
                      struct hcp_err *err)
{
    size_t n = s->plan.n_ranks, room = from->n_segments + n;
    hcp_move *array = calloc(n, sizeof *array);
    hcp_segment *segments = calloc(room, sizeof *segments);
    struct move_ways ways = {0};
    hcp_move_question q;
    hcp_moves moves;
    int rc;

    hcp_move_question_init(&q);
    q.steps = args->steps;
    q.extrapolate = args->plan.question.extrapolate;
    hcp_moves_init(&moves, array, n, segments, room);
    rc = array && segments ? set_link(args, from, s, &q, &ways, err)
                           : hcp_fail(err, HCP_FAILED, "out of memory");
    if (rc == HCP_OK)
        rc = err->code = plan_exit_code(
            hcp_plan_moves(s->ring, from, &s->plan, &q, s->workspace, s->workspace_bytes,
                           err->text, sizeof err->text, &moves));
    if (rc == HCP_OK && (args->plan.json ? print_json(from, &s->plan, &moves, &ways)
                                         : print_text(&s->plan, &moves, &ways)))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the transition");
    free(array);
    free(segments);
    return rc;
}

int cmd_transition(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "What to move from one plan's shares to another's, and whether that pays.",
        NULL,
        NULL,
        NULL};
    struct args args = {0};
    struct session s = {0};
    struct hcp_err err = {0};
    hcp_plan from = {0}, to = {0};
    int rc;

    plan_args_init(&args.plan);
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = plan_load(args.from, &from, &err);
    if (rc)
        return hcp_cli_report(&err);
    rc = plan_load(args.to, &to, &err);
    if (rc) {
        free_plan(&from);
        return hcp_cli_report(&err);
    }
    if (strcmp(to.shape.phase, "decode") != 0) {
        rc = hcp_fail(&err, HCP_USAGE,
                      "%s is a plan of prefill; --to is one of 'hcp-plan split --phase "
                      "decode --json'",
                      args.to);
        free_plan(&to);
    } else {
        struct plan_args open = args.plan;

        open.link = NULL; /* that of moving, not of merging */
        rc = session_open_plan(&open, &to, &s, &err);
        if (rc)
            free_plan(&to);
    }
    if (rc == HCP_OK)
        rc = transition(&args, &from, &s, &err);
    if (rc == HCP_OK)
        session_say_estimates(&s, args.plan.json);
    free_plan(&from);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
