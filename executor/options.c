/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"

enum {
    OPT_PLAN = 0x5000,
    OPT_RANKS,
    OPT_PROVIDER,
    OPT_KERNEL,
    OPT_STRATEGY,
    OPT_TILE,
    OPT_STRIPES,
    OPT_EXTRAPOLATE,
    OPT_ALPHA,
    OPT_GBPS,
    OPT_BUFFERS,
    OPT_SUB_BLOCKS,
    OPT_BARRIER,
    OPT_TRANSPORT,
    OPT_CHANNELS,
    OPT_SPARE_SMS,
    OPT_JOINT,
    OPT_VERIFY,
    OPT_REPEAT,
    OPT_WARM_UP,
    OPT_MAX_TIME,
    OPT_TIMEOUT,
    OPT_SEED,
    OPT_LOCAL,
    OPT_ANY_DEVICE,
    OPT_NO_STORE,
    OPT_MODEL,
    OPT_HIDDEN,
    OPT_FFN,
    OPT_MLP,
    OPT_MERGE,
    OPT_FROM,
    OPT_TO,
    OPT_STEPS,
    OPT_MOVES,
    OPT_REBALANCE,
    OPT_SLOW,
    OPT_FAIL,
    OPT_MOVE_MS
};

static const struct argp_option options[] = {
    {"plan", OPT_PLAN, "FILE", 0,
     "Plan printed by 'hcp-plan split --json' (of one sequence, of documents, of "
     "chunks), or plans by 'compare --json' (- reads standard input); may be repeated",
     1},
    {"local", OPT_LOCAL, "N", 0, "Start N ranks on this host with mpirun", 1},
    {"from", OPT_FROM, "FILE", 0,
     "transition: plan by which ranks have their KV, of prefill or of decode", 1},
    {"to", OPT_TO, "FILE", 0, "... and plan of decode by which they shall have it", 1},
    {"moves", OPT_MOVES, "FILE", 0,
     "... and what to move, printed by 'hcp-plan transition --json' (else the library is "
     "asked)",
     1},
    {"steps", OPT_STEPS, "N", 0, "... decode steps to come, so that staying is an answer",
     1},
    {"db", 'd', "FILE", 0,
     "Profile database: asked for plans without --plan, and given the results ($HCP_DB, "
     "else hcp.db, without --plan; none with it)",
     1},
    {"json", 'j', NULL, 0, "Print JSON", 1},
    {"no-store", OPT_NO_STORE, NULL, 0, "Leave the database as it is", 1},
    {0, 0, NULL, 0, "Instead of --plan, a question to the library on every rank:", 10},
    {"ranks", OPT_RANKS, "LIST", 0,
     "Ranks in ring order: [N*]DEVICE[@LIMIT], separated by commas", 10},
    {"strategy", OPT_STRATEGY, "LIST", 0,
     "Which splits to run: even, nominal, proportional, lut, poly, best, separated by "
     "commas, or all (best)",
     10},
    {"tile", OPT_TILE, "N", 0,
     "Shares are multiples of N tokens, except one (by kernel and layout)", 10},
    {"stripes", OPT_STRIPES, "N", 0, "Stripes of the striped layout (8)", 10},
    {"joint", OPT_JOINT, NULL, 0, "Split queries and KV apart", 10},
    {"merge", OPT_MERGE, "SCHEDULE", 0,
     "How decode merges partial results: auto, ring, doubling or gather (auto)", 10},
    {"extrapolate", OPT_EXTRAPOLATE, NULL, 0, "Plan outside the measured lengths", 10},
    {"link-alpha-us", OPT_ALPHA, "US", 0, "Start-up time of a transfer in us (0)", 10},
    {"link-gbps", OPT_GBPS, "GB/S", 0, "Link speed in 1e9 bytes/s (0: infinitely fast)",
     10},
    {0, 0, NULL, 0, "How the ring is run:", 30},
    {"transport", OPT_TRANSPORT, "NAME", 0,
     "nccl, mpi or auto: NCCL when every rank has a GPU of its own (auto)", 30},
    {"channels", OPT_CHANNELS, "N", 0,
     "NCCL's channels for each direction: auto, 1, 2, 4, 8 .. (auto)", 30},
    {"spare-sms", OPT_SPARE_SMS, "N", 0,
     "SMs that attention leaves to transfers (auto: --channels where KV goes in pieces)",
     30},
    {"buffers", OPT_BUFFERS, "N", 0,
     "KV blocks a rank can hold beside its own (the plan's; 0: all of them)", 30},
    {"sub-blocks", OPT_SUB_BLOCKS, "N", 0, "Send KV blocks in N pieces (the plan's)", 30},
    {"barrier", OPT_BARRIER, NULL, 0, "All ranks synchronise after every step", 30},
    {"provider", OPT_PROVIDER, "NAME", 0, "Attention kernel (the plan's)", 30},
    {"kernel", OPT_KERNEL, "FILE.so", 0, "Attention kernel from a shared object", 30},
    {"verify", OPT_VERIFY, "ROWS", OPTION_ARG_OPTIONAL,
     "Compare with attention on one device and in fp64, at most ROWS rows of heads a "
     "rank (512)",
     30},
    {"repeat", OPT_REPEAT, "N", 0, "Measured passes (10)", 30},
    {"warm-up", OPT_WARM_UP, "S", 0,
     "Run untimed for S seconds first, one pass at least, two for the first plan (0.1)",
     30},
    {"max-time", OPT_MAX_TIME, "S", 0,
     "Stop measuring a plan after S seconds with three passes at least (10)", 30},
    {"timeout", OPT_TIMEOUT, "S", 0, "Longest wait for another rank in seconds (30)", 30},
    {"seed", OPT_SEED, "N", 0, "Of the random inputs (1)", 30},
    {"model", OPT_MODEL, "NAME", 0,
     "Whole layers: run the linear layers of a known model, too, around the attention",
     30},
    {"hidden", OPT_HIDDEN, "N", 0, "The same of a layer of this hidden size", 30},
    {"ffn", OPT_FFN, "N", 0, "... and intermediate size of the MLP", 30},
    {"mlp", OPT_MLP, "KIND", 0, "... which is gated (as without this option) or plain",
     30},
    {"rebalance", OPT_REBALANCE, NULL, 0,
     "Change the plan in the middle of the passes where ranks' speeds change and it pays "
     "(with --plan: --db has their models)",
     30},
    {"move-ms", OPT_MOVE_MS, "MS", 0, "... which is taken to cost so much (0)", 30},
    {"slow", OPT_SLOW, "RANK:PASS:FACTOR", 0,
     "... and to rehearse it: from that timed pass on attention of a rank takes FACTOR "
     "times its time; may be repeated",
     30},
    {"fail", OPT_FAIL, "RANK@PASS[:STEP]", 0,
     "... or to rehearse a failure: in that timed pass the kernel of the rank returns an "
     "error, of its own block or of the one it receives in that step; may be repeated",
     30},
    {"any-device", OPT_ANY_DEVICE, NULL, 0,
     "Run although the plan was made for other devices", 30},
    {0},
};

static int number(const char *arg, const char *what, int64_t lo, int64_t hi, int64_t *out,
                  struct hcp_err *err)
{
    return hcp_parse_int(arg, what, lo, hi, out, err);
}

static int seconds(const char *arg, const char *what, double lo, double *out,
                   struct hcp_err *err)
{
    char text[32];
    size_t n = strlen(arg);
    double v;

    snprintf(text, sizeof text, "%s", arg);
    if (n > 1 && n < sizeof text && text[n - 1] == 's')
        text[n - 1] = 0;
    if (n >= sizeof text || hcp_parse_double(text, &v, NULL) || !(v >= lo && v <= 1e6))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is not a time in seconds from %g to 1e6",
                        what, arg, lo);
    *out = v;
    return HCP_OK;
}

static int set_question(int key, const char *arg, struct ring_options *o,
                        struct hcp_err *err)
{
    hcp_question *q = &o->question;
    struct hcp_err why = {0};
    int64_t n = 0;
    double v = 0;
    int rc = HCP_OK;

    switch (key) {
    case OPT_TILE:
        rc = hcp_parse_len(arg, 1, &q->tile, &why);
        return rc ? hcp_fail(err, rc, "--tile: %s", why.text) : HCP_OK;
    case OPT_STRIPES:
        rc = number(arg, "--stripes", 1, 1024, &n, err);
        q->stripes = (int32_t)n;
        return rc;
    case OPT_BUFFERS:
        rc = number(arg, "--buffers", 0, 16, &n, err);
        q->buffers = (int32_t)n;
        o->given |= RING_GIVEN_BUFFERS;
        return rc;
    case OPT_SUB_BLOCKS:
        rc = number(arg, "--sub-blocks", 1, 64, &n, err);
        q->sub_blocks = (int32_t)n;
        o->given |= RING_GIVEN_SUB_BLOCKS;
        return rc;
    case OPT_ALPHA:
    case OPT_GBPS:
        rc = hcp_parse_double(arg, &v, err);
        if (rc == HCP_OK && !(v >= 0 && v <= 1e9))
            return hcp_fail(err, HCP_USAGE, "%s '%s' is not in 0..1e9",
                            key == OPT_ALPHA ? "--link-alpha-us" : "--link-gbps", arg);
        *(key == OPT_ALPHA ? &q->link_alpha_us : &q->link_gbps) = v;
        o->given |= key == OPT_ALPHA ? RING_GIVEN_ALPHA : RING_GIVEN_GBPS;
        return rc;
    }
    return HCP_OK;
}

static int set_run(int key, const char *arg, struct ring_options *o, struct hcp_err *err)
{
    int64_t n = 0;
    int rc = HCP_OK;

    switch (key) {
    case OPT_LOCAL:
        rc = number(arg, "--local", 1, 4096, &n, err);
        o->local = (int)n;
        return rc;
    case OPT_STEPS:
        return number(arg, "--steps", 1, INT64_C(1) << 40, &o->steps, err);
    case OPT_REPEAT:
        rc = number(arg, "--repeat", 1, 1000000, &n, err);
        o->repeat = (int)n;
        return rc;
    case OPT_SEED:
        rc = number(arg, "--seed", 0, INT64_C(1) << 60, &n, err);
        o->seed = (uint64_t)n;
        return rc;
    case OPT_VERIFY:
        o->verify_rows = 512;
        return arg ? number(arg, "--verify", 1, INT64_C(1) << 40, &o->verify_rows, err)
                   : HCP_OK;
    case OPT_WARM_UP:
        o->given |= RING_GIVEN_WARM_UP;
        return seconds(arg, "--warm-up", 0, &o->warm_up_s, err);
    case OPT_MAX_TIME:
        return seconds(arg, "--max-time", 0, &o->max_time_s, err);
    case OPT_TIMEOUT:
        return seconds(arg, "--timeout", 0.1, &o->timeout_s, err);
    case OPT_CHANNELS:
        if (strcmp(arg, "auto") != 0 &&
            (number(arg, "--channels", 1, 32, &n, NULL) || (n & (n - 1)) != 0))
            return hcp_fail(err, HCP_USAGE,
                            "--channels: '%s' is neither auto nor a power of two up to "
                            "32",
                            arg);
        o->channels = (int32_t)n;
        return HCP_OK;
    case OPT_SPARE_SMS:
        n = -1;
        if (strcmp(arg, "auto") != 0 && number(arg, "--spare-sms", 0, 1024, &n, NULL))
            return hcp_fail(err, HCP_USAGE,
                            "--spare-sms: '%s' is neither auto nor a number up to 1024",
                            arg);
        o->spare_sms = (int32_t)n;
        return HCP_OK;
    case OPT_TRANSPORT:
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "nccl") != 0 &&
            strcmp(arg, "mpi") != 0)
            return hcp_fail(err, HCP_USAGE,
                            "--transport '%s' is not known; expected nccl, mpi or auto",
                            arg);
        o->transport = arg;
        return HCP_OK;
    }
    return set_question(key, arg, o, err);
}

static int set_layer(int key, const char *arg, struct ring_options *o,
                     struct hcp_err *err)
{
    struct hcp_err why = {0};
    int rc;

    switch (key) {
    case OPT_MODEL:
        o->model = arg;
        return HCP_OK;
    case OPT_MLP:
        o->layer.gated = strcmp(arg, "gated") == 0;
        o->given |= RING_GIVEN_MLP;
        return o->layer.gated || strcmp(arg, "plain") == 0
                   ? HCP_OK
                   : hcp_fail(err, HCP_USAGE, "--mlp '%s': use gated or plain", arg);
    default:
        rc = hcp_parse_len(arg, 1, key == OPT_FFN ? &o->layer.ffn : &o->layer.hidden,
                           &why);
        return rc ? hcp_fail(err, rc, "%s: %.900s", key == OPT_FFN ? "--ffn" : "--hidden",
                             why.text)
                  : HCP_OK;
    }
}

/* RANK:PASS:FACTOR */
static int add_slowed(const char *arg, struct ring_options *o, struct hcp_err *err)
{
    char text[64], *pass, *factor;
    int64_t rank, from;
    double by;

    snprintf(text, sizeof text, "%s", arg);
    pass = strchr(text, ':');
    factor = pass ? strchr(pass + 1, ':') : NULL;
    if (!factor || strlen(arg) >= sizeof text)
        return hcp_fail(err, HCP_USAGE, "--slow '%.60s': expected RANK:PASS:FACTOR", arg);
    *pass++ = 0;
    *factor++ = 0;
    if (number(text, "rank", 0, 4095, &rank, NULL) ||
        number(pass, "pass", 0, 1000000, &from, NULL) ||
        hcp_parse_double(factor, &by, NULL) || !(by >= 1 && by <= 1000))
        return hcp_fail(err, HCP_USAGE,
                        "--slow '%.60s': expected a rank, a pass from 0 and a factor in "
                        "1..1000",
                        arg);
    if (o->n_slowed == RING_SLOWED)
        return hcp_fail(err, HCP_USAGE, "--slow: at most %d times", RING_SLOWED);
    o->slowed[o->n_slowed++] = (struct ring_slowed){(int32_t)rank, from, by};
    return HCP_OK;
}

/* RANK@PASS, RANK@PASS:STEP */
static int add_failing(const char *arg, struct ring_options *o, struct hcp_err *err)
{
    char text[64], *pass, *step;
    int64_t rank, in, at = 0;

    snprintf(text, sizeof text, "%s", arg);
    pass = strchr(text, '@');
    if (!pass || strlen(arg) >= sizeof text)
        return hcp_fail(err, HCP_USAGE,
                        "--fail '%.60s': expected RANK@PASS or RANK@PASS:STEP", arg);
    *pass++ = 0;
    step = strchr(pass, ':');
    if (step)
        *step++ = 0;
    if (number(text, "rank", 0, 4095, &rank, NULL) ||
        number(pass, "pass", 0, 1000000, &in, NULL) ||
        (step && number(step, "step", 0, 4095, &at, NULL)))
        return hcp_fail(
            err, HCP_USAGE,
            "--fail '%.60s': expected a rank, a pass from 0 and a step from 0", arg);
    if (o->n_failing == RING_SLOWED)
        return hcp_fail(err, HCP_USAGE, "--fail: at most %d times", RING_SLOWED);
    o->failing[o->n_failing++] = (struct ring_failing){(int32_t)rank, in, (int32_t)at};
    return HCP_OK;
}

static int set_move_ms(const char *arg, struct ring_options *o, struct hcp_err *err)
{
    if (hcp_parse_double(arg, &o->move_ms, NULL) ||
        !(o->move_ms >= 0 && o->move_ms <= 1e12))
        return hcp_fail(err, HCP_USAGE, "--move-ms '%.60s' is not in 0..1e12", arg);
    return HCP_OK;
}

static int set_merge(const char *arg, hcp_merge *out)
{
    for (int i = HCP_MERGE_AUTO; i <= HCP_MERGE_GATHER; i++) {
        if (strcmp(arg, i == HCP_MERGE_AUTO ? "auto" : hcp_merge_name((hcp_merge)i)))
            continue;
        *out = (hcp_merge)i;
        return 0;
    }
    return -1;
}

static int add_file(struct ring_options *o, const char *file)
{
    const char **more =
        realloc(o->plan_files, (o->n_plan_files + 1) * sizeof *o->plan_files);

    if (!more)
        return -1;
    o->plan_files = more;
    o->plan_files[o->n_plan_files++] = file;
    return 0;
}

/* Of transition; its plans become plan files. */
static int check_transition(struct ring_options *o, const struct argp_state *state)
{
    if (!o->transition) {
        if (o->from || o->to || o->moves || o->steps)
            argp_error(state, "--from, --to, --moves and --steps are of 'hcp-ring "
                              "transition'");
        return 0;
    }
    if (!o->from || !o->to)
        argp_error(state, "transition: give --from and --to, two plans printed by "
                          "'hcp-plan split --json'");
    if (o->moves &&
        (o->steps || o->given & (RING_GIVEN_ALPHA | RING_GIVEN_GBPS) || o->db))
        argp_error(state, "transition: --moves is an answer; leave --db, --steps and the "
                          "link out");
    if (o->n_plan_files || o->ranks || o->strategies || o->shape.seq_len)
        argp_error(state, "transition: its plans are --from and --to; leave --plan, "
                          "--ranks, --strategy and --seq-len out");
    return add_file(o, o->to) || add_file(o, o->from) ? ENOMEM : 0;
}

static void check(const struct ring_options *o, const struct argp_state *state)
{
    if (o->n_plan_files && (o->ranks || o->strategies || o->shape.seq_len))
        argp_error(state, "--plan has its own ranks and lengths; leave --ranks, "
                          "--strategy and --seq-len out");
    if (!o->n_plan_files && (!o->ranks || !o->shape.seq_len))
        argp_error(state, "give --plan FILE, or --ranks and --seq-len");
    if (o->n_plan_files && (strcmp(o->shape.phase, "prefill") != 0 || o->question.merge))
        argp_error(state, "--plan has its own phase and merge; leave --phase and --merge "
                          "out");
    if (o->question.merge && strcmp(o->shape.phase, "decode") != 0)
        argp_error(state, "--merge is of --phase decode");
    if (o->n_plan_files && o->question.joint)
        argp_error(state, "--plan is split already; leave --joint out");
    if (!o->rebalance && (o->n_slowed || o->n_failing || o->given & RING_GIVEN_MOVE))
        argp_error(state, "--slow, --fail and --move-ms are of --rebalance");
    if (o->rebalance && (o->search || o->transition || o->question.joint ||
                         strcmp(o->shape.phase, "prefill") != 0))
        argp_error(state, "--rebalance is of passes of prefill: not of search, "
                          "transition, --joint or --phase decode");
    if (o->rebalance && o->n_plan_files && !o->db)
        argp_error(state, "--rebalance asks the library for other plans; give --db FILE "
                          "with the models of the ranks of --plan");
    if (o->channels && strcmp(o->transport, "mpi") == 0)
        argp_error(state, "--channels are NCCL's; --transport mpi has none");
    if (o->model && (o->layer.hidden || o->layer.ffn || o->given & RING_GIVEN_MLP))
        argp_error(state, "--model has its own layer; leave --hidden, --ffn and --mlp "
                          "out");
    if (!o->layer.hidden != !o->layer.ffn ||
        (o->given & RING_GIVEN_MLP && !o->layer.ffn && !o->model))
        argp_error(state, "a layer has --hidden and --ffn; give both");
    if (o->plugin && o->provider)
        argp_error(state, "--kernel and --provider both name a kernel; use one");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ring_options *o = state->input;
    struct hcp_err err = {0};

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->shape;
        return 0;
    case 'd':
        o->db = arg;
        return 0;
    case 'j':
        o->json = 1;
        return 0;
    case OPT_PLAN:
        return add_file(o, arg) ? ENOMEM : 0;
    case OPT_RANKS:
        o->ranks = arg;
        return 0;
    case OPT_PROVIDER:
        o->provider = arg;
        return 0;
    case OPT_KERNEL:
        o->plugin = arg;
        return 0;
    case OPT_STRATEGY:
        o->strategies = arg;
        return 0;
    case OPT_EXTRAPOLATE:
        o->question.extrapolate = 1;
        return 0;
    case OPT_JOINT:
        o->question.joint = 1;
        return 0;
    case OPT_MERGE:
        if (set_merge(arg, &o->question.merge))
            argp_error(state,
                       "--merge '%s' is not known; expected auto, ring, doubling or "
                       "gather",
                       arg);
        return 0;
    case OPT_BARRIER:
        o->question.barrier = 1;
        o->given |= RING_GIVEN_BARRIER;
        return 0;
    case OPT_ANY_DEVICE:
        o->any_device = 1;
        return 0;
    case OPT_NO_STORE:
        o->no_store = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; plans are given with --plan", arg);
        return 0;
    case OPT_REBALANCE:
        o->rebalance = 1;
        return 0;
    case OPT_SLOW:
    case OPT_FAIL:
    case OPT_MOVE_MS:
        if (key == OPT_SLOW   ? add_slowed(arg, o, &err)
            : key == OPT_FAIL ? add_failing(arg, o, &err)
                              : set_move_ms(arg, o, &err))
            argp_error(state, "%s", err.text);
        o->given |= key == OPT_MOVE_MS ? RING_GIVEN_MOVE : 0;
        return 0;
    case OPT_FROM:
        o->from = arg;
        return 0;
    case OPT_TO:
        o->to = arg;
        return 0;
    case OPT_MOVES:
        o->moves = arg;
        return 0;
    case ARGP_KEY_END:
        if (check_transition(o, state))
            return ENOMEM;
        check(o, state);
        return 0;
    case OPT_MODEL:
    case OPT_HIDDEN:
    case OPT_FFN:
    case OPT_MLP:
        if (set_layer(key, arg, o, &err))
            argp_error(state, "%s", err.text);
        return 0;
    case OPT_TILE:
    case OPT_STRIPES:
    case OPT_ALPHA:
    case OPT_GBPS:
    case OPT_BUFFERS:
    case OPT_SUB_BLOCKS:
    case OPT_TRANSPORT:
    case OPT_CHANNELS:
    case OPT_SPARE_SMS:
    case OPT_VERIFY:
    case OPT_STEPS:
    case OPT_REPEAT:
    case OPT_WARM_UP:
    case OPT_MAX_TIME:
    case OPT_TIMEOUT:
    case OPT_SEED:
    case OPT_LOCAL:
        if (set_run(key, arg, o, &err))
            argp_error(state, "%s", err.text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *out, struct argp_state *state)
{
    (void)state;
    fprintf(out, "hcp-ring %s\n", PACKAGE_VERSION);
}

void ring_options_parse(int argc, char **argv, struct ring_options *out)
{
    static const struct argp_child children[] = {{&hcp_shape_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Runs plans of ring attention on real ranks, started by mpirun, srun or --local, "
        "and puts what was predicted and what was measured side by side.\n"
        "'hcp-ring search' also measures splits around the plans and reports the best "
        "it found; 'hcp-ring transition' moves keys and values from the shares of one "
        "plan to those of another.",
        children,
        NULL,
        NULL};
    static char names[][24] = {"hcp-ring", "hcp-ring search", "hcp-ring transition"};
    char *program = argv[0], *command = argv[argc > 1];
    int which;

    memset(out, 0, sizeof *out);
    hcp_shape_defaults(&out->shape);
    hcp_question_init(&out->question);
    out->transport = "auto";
    out->repeat = 10;
    out->warm_up_s = 0.1;
    out->max_time_s = 10;
    out->spare_sms = -1;
    out->timeout_s = 30;
    out->verify_rows = -1;
    out->seed = 1;
    out->layer.layers = out->layer.gated = 1;
    argp_program_version_hook = print_version;
    out->search = argc > 1 && strcmp(argv[1], "search") == 0;
    out->transition = argc > 1 && strcmp(argv[1], "transition") == 0;
    which = out->search ? 1 : out->transition ? 2 : 0;
    argv[which > 0] = names[which]; /* what argp calls the program */
    argp_parse(&argp, argc - (which > 0), argv + (which > 0), 0, NULL, out);
    argv[0] = program;
    if (which > 0)
        argv[1] = command;
}
