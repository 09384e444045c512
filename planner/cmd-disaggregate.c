/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"

enum {
    OPT_STEPS = 0x4000,
    OPT_OBJECTIVE,
    OPT_TTFT,
    OPT_TPOT,
    OPT_PREFILL_BATCH,
    OPT_DECODE_PROVIDER,
    OPT_TRANSFER,
    OPT_TRANSFER_ALPHA,
    OPT_TRANSFER_GBPS,
    OPT_STREAM,
    OPT_DECODE_LINEAR
};

struct args {
    struct plan_args plan;
    hcp_disagg_question q;
    const char *decode_provider, *decode_linear;
    const char *transfer; /* transport whose measured times count; NULL none */
    enum hcp_hosts transfer_hosts;
    unsigned given; /* PLAN_GIVEN_ALPHA and _GBPS, of transfers */
    int32_t prefill_batch;
};

static const struct argp_option options[] = {
    {"steps", OPT_STEPS, "N", 0,
     "Tokens to generate after the first one, which prefill gives", 0},
    {"objective", OPT_OBJECTIVE, "NAME", 0,
     "throughput: of a stream of batches; latency: of one (throughput)", 0},
    {"ttft-ms", OPT_TTFT, "MS", 0, "Limit of the time to first token", 0},
    {"tpot-ms", OPT_TPOT, "MS", 0,
     "Limit of the time per output token, the transfer included", 0},
    {"prefill-batch", OPT_PREFILL_BATCH, "N", 0,
     "Prompts that are prefilled at a time (1)", 0},
    {"decode-provider", OPT_DECODE_PROVIDER, "NAME", 0,
     "Kernel of decode whose times count; --provider is that of prefill", 0},
    {"transfer", OPT_TRANSFER, "TRANSPORT[:HOSTS]", 0,
     "Link of KV transfers as measured by 'hcp-profile link' (that of --link)", 0},
    {"transfer-alpha-us", OPT_TRANSFER_ALPHA, "US", 0,
     "Start-up time of a KV transfer in us (that of the link)", 0},
    {"transfer-gbps", OPT_TRANSFER_GBPS, "GB/S", 0,
     "Speed of KV transfers in 1e9 bytes/s (that of the link)", 0},
    {"stream-kv", OPT_STREAM, NULL, 0,
     "Send the KV of a layer while the next one is prefilled", 0},
    {"decode-linear-us", OPT_DECODE_LINEAR, "LIST", 0,
     "Linear work of a layer in a decode step, in us: for all ranks, by rank, or "
     "RANK=...",
     0},
    {0},
};

static int set_number(const char *name, const char *arg, double least, double most,
                      double *out, struct hcp_err *err)
{
    struct hcp_err why = {0};
    int rc = hcp_parse_double(arg, out, &why);

    if (rc)
        return hcp_fail(err, rc, "%s: %.400s", name, why.text);
    if (*out != 0 && !(*out >= least && *out <= most))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is neither 0 nor in %g..%g", name, arg,
                        least, most);
    return HCP_OK;
}

/* What makes no sense for groups of ranks. */
static const char *refused(const struct args *args)
{
    const unsigned ring = PLAN_GIVEN_ORDER | PLAN_GIVEN_JOINT | PLAN_GIVEN_NODES;

    if (strcmp(args->plan.shape.phase, "prefill") != 0)
        return "both phases are looked at; leave --phase out";
    if (args->plan.given & ring)
        return "groups of ranks have one link within and one between them: leave "
               "--links, "
               "--hosts, --reorder, --fix-order, --late-kv, --joint and nodes out";
    if (args->q.steps == 0)
        return "--steps is missing: how many tokens are generated after the first one";
    if (args->plan.shape.seq_len == 0)
        return "--seq-len is missing: how many tokens the prompt has";
    if (args->prefill_batch > args->plan.shape.batch)
        return "--prefill-batch is more than --batch, which is what is decoded together";
    if (args->decode_linear && args->plan.layer_given)
        return "--decode-linear-us gives what --model, --hidden and --ffn look up; use "
               "one "
               "of them";
    return NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *args = state->input;
    struct hcp_err err = {0};
    int64_t number = 0;
    int rc = HCP_OK;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->plan;
        state->child_inputs[1] = &args->plan;
        return 0;
    case OPT_STEPS:
        rc = hcp_parse_int(arg, "--steps", 1, (int64_t)1 << 40, &args->q.steps, &err);
        break;
    case OPT_OBJECTIVE:
        for (int i = HCP_DISAGG_THROUGHPUT; i <= HCP_DISAGG_LATENCY; i++)
            if (strcmp(arg, hcp_disagg_objective_name((hcp_disagg_objective)i)) == 0) {
                args->q.objective = (hcp_disagg_objective)i;
                return 0;
            }
        argp_error(state, "--objective '%s' is not known; expected throughput or latency",
                   arg);
        return 0;
    case OPT_TTFT:
        rc = set_number("--ttft-ms", arg, 1e-9, 1e15, &args->q.ttft_limit_ms, &err);
        break;
    case OPT_TPOT:
        rc = set_number("--tpot-ms", arg, 1e-9, 1e15, &args->q.tpot_limit_ms, &err);
        break;
    case OPT_PREFILL_BATCH:
        rc = hcp_parse_int(arg, "--prefill-batch", 1, 65536, &number, &err);
        args->prefill_batch = (int32_t)number;
        break;
    case OPT_DECODE_PROVIDER:
        args->decode_provider = arg;
        return 0;
    case OPT_TRANSFER:
        if (!links_transport(arg, &args->transfer, &args->transfer_hosts))
            argp_error(state,
                       "--transfer '%s' is not known; expected nccl or mpi, or one of "
                       "them with :within or :between",
                       arg);
        return 0;
    case OPT_TRANSFER_ALPHA:
        args->given |= PLAN_GIVEN_ALPHA;
        rc = set_number("--transfer-alpha-us", arg, 0, 1e9, &args->q.link_alpha_us, &err);
        break;
    case OPT_TRANSFER_GBPS:
        args->given |= PLAN_GIVEN_GBPS;
        rc = set_number("--transfer-gbps", arg, 1e-6, 1e9, &args->q.link_gbps, &err);
        break;
    case OPT_STREAM:
        args->q.stream = 1;
        return 0;
    case OPT_DECODE_LINEAR:
        args->decode_linear = arg;
        return 0;
    case ARGP_KEY_SUCCESS:
        if (refused(args))
            argp_error(state, "%s", refused(args));
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc)
        argp_error(state, "%s", err.text);
    return 0;
}

/* Everything between the ranks and the answer. */
struct work {
    struct args *args;
    struct session s;
    hcp_shape shape[2]; /* prefill, decode */
    hcp_rank *ranks;
    size_t n;
    hcp_question decode;
    hcp_disagg *disagg;
    void *workspace;
    hcp_plan plan[2];
    hcp_disagg_advice out;
    struct move_ways ways; /* of its transfers */
};

/* Transfers take what the command line says of them, else --transfer or --link, measured,
 * else the link of the rings. */
static int set_transfers(struct work *w, struct hcp_err *err)
{
    struct args *args = w->args;
    struct plan_args link = args->plan;
    const hcp_shape *shape = &w->shape[1];
    double alpha = args->plan.question.link_alpha_us,
           gbps = args->plan.question.link_gbps;
    double bytes = 2.0 * shape->batch * shape->kv_heads * shape->head_dim *
                   (strcmp(shape->dtype, "fp32") == 0 ? 4 : 2) *
                   args->plan.question.layers * (double)args->plan.question.seq_len /
                   (double)w->n;
    hcp_plan_rank *ranks;
    int rc = HCP_OK;

    if (args->transfer) {
        link.link = args->transfer;
        link.link_hosts = args->transfer_hosts;
        link.given &= ~(unsigned)(PLAN_GIVEN_ALPHA | PLAN_GIVEN_GBPS);
    }
    if (link.link) {
        ranks = calloc(w->n, sizeof *ranks);
        if (!ranks)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        for (size_t r = 0; r < w->n; r++) {
            memcpy(ranks[r].device, w->ranks[r].device, sizeof ranks[r].device);
            memcpy(ranks[r].limit, w->ranks[r].limit, sizeof ranks[r].limit);
        }
        rc = session_move_link(&link, &(struct move_ends){ranks, w->n, NULL, NULL}, bytes,
                               &alpha, &gbps, &w->ways, err);
        free(ranks);
    }
    if (!(args->given & PLAN_GIVEN_ALPHA))
        args->q.link_alpha_us = alpha;
    if (!(args->given & PLAN_GIVEN_GBPS))
        args->q.link_gbps = gbps;
    return rc;
}

static int open_work(struct work *w, struct hcp_err *err)
{
    struct args *args = w->args;
    hcp_question *q = &args->plan.question;
    double alpha = 0, gbps = 0;
    int rc = session_open_ranks(&args->plan, args->prefill_batch, &w->shape[0], &w->ranks,
                                &w->n, &alpha, &gbps, &w->s, err);

    if (rc == HCP_OK && args->decode_linear)
        rc = plan_per_rank("--decode-linear-us", args->decode_linear,
                           plan_set_decode_linear, w->ranks, w->n, err);
    if (rc)
        return rc;
    w->shape[1] = w->shape[0];
    w->shape[1].batch = args->plan.shape.batch;
    memcpy(w->shape[1].phase, "decode", sizeof "decode");
    hcp_question_init(&w->decode);
    w->decode.seq_len = q->seq_len;
    w->decode.layers = q->layers;
    w->decode.activation_bytes = q->activation_bytes;
    w->decode.extrapolate = q->extrapolate;
    w->decode.merge = q->merge;
    w->decode.link_alpha_us = alpha;
    w->decode.link_gbps = gbps;
    q->merge = HCP_MERGE_AUTO;
    args->q.prefill = q;
    args->q.decode = &w->decode;
    return set_transfers(w, err);
}

static int make_room(struct work *w, struct hcp_err *err)
{
    const hcp_question *q = &w->args->plan.question;
    size_t segments = hcp_segments_max(w->n, q->layout, q->stripes),
           all = segments + w->n;

    for (int i = 0; i < 2; i++)
        hcp_plan_init(&w->plan[i], calloc(w->n, sizeof *w->plan[i].ranks), w->n,
                      calloc(segments, sizeof *w->plan[i].segments), segments);
    hcp_disagg_advice_init(&w->out, calloc(w->n, sizeof *w->out.ranks), w->n, &w->plan[0],
                           &w->plan[1], calloc(w->n, sizeof *w->out.moves), w->n,
                           calloc(all, sizeof *w->out.segments), all);
    if (!w->plan[0].ranks || !w->plan[0].segments || !w->plan[1].ranks ||
        !w->plan[1].segments || !w->out.ranks || !w->out.moves || !w->out.segments)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    return HCP_OK;
}

static int ask(struct work *w, struct hcp_err *err)
{
    const struct args *args = w->args;
    size_t bytes;
    hcp_status status;

    hcp_disagg_free(w->disagg);
    w->disagg = NULL;
    status = hcp_disagg_create(w->s.models, &w->shape[0], &w->shape[1], w->ranks, w->n,
                               args->plan.provider, args->decode_provider, err->text,
                               sizeof err->text, &w->disagg);
    if (status)
        return err->code = plan_exit_code(status);
    bytes = hcp_disagg_workspace_bytes(w->disagg);
    free(w->workspace);
    w->workspace = malloc(bytes);
    if (!w->workspace)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    return err->code =
               plan_exit_code(hcp_disagg_advise(w->disagg, &args->q, w->workspace, bytes,
                                                err->text, sizeof err->text, &w->out));
}

/* Most tokens of the class of each rank, where it has any. */
static int set_lengths(const struct work *w, int64_t *at)
{
    int again = 0;

    for (size_t r = 0; r < w->n; r++) {
        int64_t most = 0;

        for (size_t i = 0; i < w->n; i++)
            if (w->out.ranks[i].class_of == w->out.ranks[r].class_of &&
                w->out.ranks[i].prefill_tokens > most)
                most = w->out.ranks[i].prefill_tokens;
        again |= most > 0 && most != at[r];
        at[r] = most > 0 ? most : at[r];
    }
    return again;
}

/* As ask(), with linear work that is exact at the tokens of prefill: again until they
 * stand still, a few times at most. */
static int ask_measured(struct work *w, struct hcp_err *err)
{
    int64_t *at = malloc(w->n * sizeof *at);
    int rc = at ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    for (size_t r = 0; rc == HCP_OK && r < w->n; r++)
        at[r] = w->args->plan.question.seq_len / (int64_t)w->n;
    for (int round = 0, again = 1; rc == HCP_OK && again && round < 8; round++) {
        layer_measured_lines(w->s.layer, at, w->ranks);
        rc = ask(w, err);
        again = rc == HCP_OK && set_lengths(w, at);
    }
    for (size_t r = 0; rc == HCP_OK && r < w->n; r++)
        at[r] = w->out.ranks[r].prefill_tokens;
    if (rc == HCP_OK)
        rc = layer_measured_check(w->s.layer, at, err);
    free(at);
    return rc;
}

/* What data sheets are estimated from, in both phases. Kernels are those of the plans,
 * else any: not all ranks need have one in common. */
static int say_estimates(const struct work *w, struct hcp_err *err)
{
    hcp_rank *sheets = calloc(w->n, sizeof *sheets);
    hcp_ring *rings[2] = {NULL, NULL};
    size_t m = 0;

    if (!sheets)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t r = 0; r < w->n; r++)
        if (session_is_spec(w->ranks[r].device))
            sheets[m++] = w->ranks[r];
    for (int i = 0; i < 2 && m > 0; i++)
        if (hcp_ring_create(w->s.models, &w->shape[i], sheets, m, w->plan[i].provider,
                            NULL, 0, &rings[i]))
            hcp_ring_create(w->s.models, &w->shape[i], sheets, m, NULL, NULL, 0,
                            &rings[i]);
    session_say_rings(rings, 2, w->args->plan.json);
    hcp_ring_free(rings[0]);
    hcp_ring_free(rings[1]);
    free(sheets);
    return HCP_OK;
}

static int print(const struct work *w, struct hcp_err *err)
{
    int linear = 0, failed;

    for (size_t r = 0; r < w->n; r++)
        linear |= w->ranks[r].decode_linear_us > 0;
    failed = w->args->plan.json ? disagg_print_json(&w->out, &w->ways, stdout)
                                : disagg_print(&w->out, !linear, &w->ways, stdout);
    if (failed)
        return hcp_fail(err, HCP_FAILED, "cannot print the answer");
    return say_estimates(w, err);
}

static void close_work(struct work *w)
{
    for (int i = 0; i < 2; i++) {
        free(w->plan[i].ranks);
        free(w->plan[i].segments);
    }
    free(w->out.ranks);
    free(w->out.moves);
    free(w->out.segments);
    free(w->workspace);
    hcp_disagg_free(w->disagg);
    free(w->ranks);
    session_close(&w->s);
}

int cmd_disaggregate(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&plan_common_argp, 0, NULL, 0}, {&plan_ring_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,  parse,
        NULL,     "Which ranks should prefill and which decode, or all of them both.",
        children, NULL,
        NULL};
    struct args args = {.prefill_batch = 1};
    struct work w = {.args = &args};
    struct hcp_err err = {0};
    int rc;

    plan_args_init(&args.plan);
    hcp_disagg_question_init(&args.q);
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = open_work(&w, &err);
    if (rc == HCP_OK)
        rc = make_room(&w, &err);
    if (rc == HCP_OK)
        rc = w.s.layer ? ask_measured(&w, &err) : ask(&w, &err);
    if (rc == HCP_OK)
        rc = print(&w, &err);
    close_work(&w);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
