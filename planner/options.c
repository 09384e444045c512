/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#include "planner/options.h"

enum {
    OPT_RANKS = 0x3000,
    OPT_PROVIDER,
    OPT_EXTRAPOLATE,
    OPT_TILE,
    OPT_STRIPES,
    OPT_MAX_TOKENS,
    OPT_BUFFERS,
    OPT_ALPHA,
    OPT_GBPS,
    OPT_BARRIER,
    OPT_SUB_BLOCKS,
    OPT_LINK,
    OPT_LINKS,
    OPT_LATE_KV,
    OPT_HOSTS,
    OPT_CHANNELS,
    OPT_REORDER,
    OPT_FIX_ORDER,
    OPT_LINEAR,
    OPT_MODEL,
    OPT_HIDDEN,
    OPT_FFN,
    OPT_MLP,
    OPT_JOINT,
    OPT_MEMORY,
    OPT_WEIGHTS,
    OPT_LAYERS,
    OPT_ACTIVATION,
    OPT_NODE_RANKS,
    OPT_NODE_ALPHA,
    OPT_NODE_GBPS,
    OPT_NODE_SHARED,
    OPT_DOUBLE_RING,
    OPT_MERGE,
    OPT_TIME_SCALE,
    OPT_SPECS
};

static const struct argp_option common_options[] = {
    {"db", 'd', "FILE", 0, "Profile database with fitted models ($HCP_DB, else hcp.db)",
     1},
    {"json", 'j', NULL, 0, "Print JSON", 1},
    {"ranks", OPT_RANKS, "LIST", 0,
     "Ranks in ring order: [N*]DEVICE[@LIMIT], separated by commas; DEVICE may be "
     "spec:NAME, a GPU by its data sheet",
     1},
    {"provider", OPT_PROVIDER, "NAME", 0,
     "Kernel whose times count (the fastest of those that are measured on all ranks)", 1},
    {"specs", OPT_SPECS, "FILE", 0,
     "Table of data sheets for ranks spec:NAME ($HCP_SPECS, else the one that is "
     "installed)",
     1},
    {"extrapolate", OPT_EXTRAPOLATE, NULL, 0,
     "Answer outside the measured lengths, and say so", 1},
    {0},
};

static const struct argp_option ring_options[] = {
    {"tile", OPT_TILE, "N", 0,
     "Shares are multiples of N tokens, except one (by kernel and layout)", 2},
    {"stripes", OPT_STRIPES, "N", 0, "Stripes of the striped layout (8)", 2},
    {"max-tokens", OPT_MAX_TOKENS, "LIST", 0,
     "Memory caps in tokens: N for all ranks, N,N,... by rank (0: none), or RANK=N,...",
     2},
    {"buffers", OPT_BUFFERS, "N", 0,
     "KV blocks a rank can hold beside its own (2; 0: no limit)", 2},
    {"sub-blocks", OPT_SUB_BLOCKS, "N", 0,
     "Pieces in which a KV block is sent and computed (1)", 2},
    {"link", OPT_LINK, "TRANSPORT[:HOSTS]", 0,
     "Start-up time and speed measured by 'hcp-profile link' over nccl or mpi: those of "
     "the slowest pair of neighbours",
     2},
    {"link-alpha-us", OPT_ALPHA, "US", 0, "Start-up time of a transfer in us (0)", 2},
    {"link-gbps", OPT_GBPS, "GB/S", 0, "Link speed in 1e9 bytes/s (0: infinitely fast)",
     2},
    {"links", OPT_LINKS, "FILE|TRANSPORT", 0,
     "A link for each pair of ranks: from a text file, or measured as with --link", 2},
    {"hosts", OPT_HOSTS, "N|LIST", 0,
     "Where ranks are, for --link and --links: N to a host, or [N*]NAME,... by rank", 2},
    {"channels", OPT_CHANNELS, "N", 0,
     "--link and --links nccl: as measured with N of its channels (auto: its own choice)",
     2},
    {"reorder", OPT_REORDER, NULL, 0, "Choose the order of the ranks in the ring, too",
     2},
    {"fix-order", OPT_FIX_ORDER, NULL, 0,
     "Keep the order of --ranks, and say what another would gain", 2},
    {"late-kv", OPT_LATE_KV, NULL, 0,
     "KV that would make others wait may travel after that of other ranks", 2},
    {"joint", OPT_JOINT, NULL, 0, "Split queries and KV apart; caps are those of KV", 2},
    {"node-ranks", OPT_NODE_RANKS, "N", 0,
     "Ranks stand N in a row on a node; the link is that within one", 2},
    {"node-alpha-us", OPT_NODE_ALPHA, "US", 0,
     "Start-up time of a transfer between nodes in us (0)", 2},
    {"node-gbps", OPT_NODE_GBPS, "GB/S", 0,
     "Its speed in 1e9 bytes/s (0: infinitely fast)", 2},
    {"node-shared-gbps", OPT_NODE_SHARED, "GB/S", 0,
     "What all ranks of a node send to other nodes together (0: each its own)", 2},
    {"double-ring", OPT_DOUBLE_RING, NULL, 0,
     "Look at rings of rings, too: round each node, while KV goes from node to node", 2},
    {"barrier", OPT_BARRIER, NULL, 0, "The executor synchronises after every step", 2},
    {"linear-us", OPT_LINEAR, "LIST", 0,
     "Linear work of a layer in us a token: [BEFORE:]AFTER the ring, each US or "
     "US+FIXED; "
     "for all ranks, by rank, or RANK=...",
     2},
    {"model", OPT_MODEL, "NAME", 0,
     "Heads of a known model, and its layer's linear work as 'hcp-profile run' measured "
     "it",
     2},
    {"hidden", OPT_HIDDEN, "N", 0, "The same of a layer of this width", 2},
    {"ffn", OPT_FFN, "N", 0, "Inner width of its MLP", 2},
    {"mlp", OPT_MLP, "KIND", 0, "gated or plain (gated)", 2},
    {"memory", OPT_MEMORY, "LIST", 0,
     "Memory of the ranks that the plan must keep within, as 80G,24G, or spec, that of "
     "the data sheet: for all, by rank, or RANK=...",
     2},
    {"weights", OPT_WEIGHTS, "LIST", 0,
     "Of that, held whatever the tokens (0, or the products of --model)", 2},
    {"layers", OPT_LAYERS, "N", 0,
     "Layers whose keys and values a rank keeps (1, or those of --model)", 2},
    {"activation-bytes", OPT_ACTIVATION, "BYTES", 0,
     "Held beside that for each token (0)", 2},
    {"merge", OPT_MERGE, "SCHEDULE", 0,
     "How decode merges partial results: ring, doubling or gather (the fastest)", 2},
    {"time-scale", OPT_TIME_SCALE, "LIST", 0,
     "Ranks take that much of what was measured, as 1=1.5: for all, by rank, or RANK=... "
     "(1)",
     2},
    {0},
};

void plan_args_init(struct plan_args *args)
{
    memset(args, 0, sizeof *args);
    args->cut_gain = -1;
    hcp_shape_defaults(&args->shape);
    hcp_question_init(&args->question);
}

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
    struct plan_args *args = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->shape;
        return 0;
    case 'd':
        args->db = arg;
        return 0;
    case 'j':
        args->json = 1;
        return 0;
    case OPT_RANKS:
        args->ranks = arg;
        return 0;
    case OPT_PROVIDER:
        args->provider = arg;
        return 0;
    case OPT_SPECS:
        args->specs = arg;
        return 0;
    case OPT_EXTRAPOLATE:
        args->question.extrapolate = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; ranks are given with --ranks", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int set_ring_option(int key, const char *arg, hcp_question *q, struct hcp_err *err)
{
    struct hcp_err why = {0};
    int64_t number = 0;
    int rc = HCP_OK;

    switch (key) {
    case OPT_TILE:
        rc = hcp_parse_len(arg, 1, &q->tile, &why);
        return rc ? hcp_fail(err, rc, "--tile: %s", why.text) : HCP_OK;
    case OPT_STRIPES:
        rc = hcp_parse_int(arg, "--stripes", 1, 1024, &number, err);
        q->stripes = (int32_t)number;
        return rc;
    case OPT_BUFFERS:
        rc = hcp_parse_int(arg, "--buffers", 0, 16, &number, err);
        q->buffers = (int32_t)number;
        return rc;
    case OPT_SUB_BLOCKS:
        rc = hcp_parse_int(arg, "--sub-blocks", 1, 64, &number, err);
        q->sub_blocks = (int32_t)number;
        return rc;
    case OPT_ALPHA:
        rc = hcp_parse_double(arg, &q->link_alpha_us, err);
        if (rc == HCP_OK && !(q->link_alpha_us >= 0 && q->link_alpha_us <= 1e9))
            return hcp_fail(err, HCP_USAGE, "--link-alpha-us '%s' is not in 0..1e9", arg);
        return rc;
    default:
        rc = hcp_parse_double(arg, &q->link_gbps, err);
        if (rc == HCP_OK && q->link_gbps != 0 &&
            !(q->link_gbps >= 1e-6 && q->link_gbps <= 1e9))
            return hcp_fail(err, HCP_USAGE,
                            "--link-gbps '%s' is neither 0 nor in 1e-6..1e9", arg);
        return rc;
    }
}

static int set_held_option(int key, const char *arg, hcp_question *q, struct hcp_err *err)
{
    struct hcp_err why = {0};
    int64_t number = 0;
    int rc;

    if (key == OPT_LAYERS) {
        rc = hcp_parse_int(arg, "--layers", 0, 65536, &number, err);
        q->layers = (int32_t)number;
        return rc;
    }
    rc = plan_parse_bytes(arg, (int64_t)1 << 32, &q->activation_bytes, &why);
    return rc ? hcp_fail(err, rc, "--activation-bytes: %.900s", why.text) : HCP_OK;
}

static int set_node_option(int key, const char *arg, hcp_question *q, struct hcp_err *err)
{
    const char *name = key == OPT_NODE_ALPHA  ? "--node-alpha-us"
                       : key == OPT_NODE_GBPS ? "--node-gbps"
                                              : "--node-shared-gbps";
    double *to = key == OPT_NODE_ALPHA  ? &q->node_alpha_us
                 : key == OPT_NODE_GBPS ? &q->node_gbps
                                        : &q->node_shared_gbps;
    int64_t number = 0;
    int rc;

    if (key == OPT_NODE_RANKS) {
        rc = hcp_parse_int(arg, "--node-ranks", 1, HCP_PLAN_MAX_RANKS, &number, err);
        q->node_ranks = (int32_t)number;
        return rc;
    }
    rc = hcp_parse_double(arg, to, err);
    if (rc == HCP_OK && *to != 0 &&
        !(*to >= (key == OPT_NODE_ALPHA ? 0 : 1e-6) && *to <= 1e9))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is neither 0 nor in %s..1e9", name, arg,
                        key == OPT_NODE_ALPHA ? "0" : "1e-6");
    return rc;
}

static int set_layer_option(int key, const char *arg, struct layer_args *layer,
                            struct hcp_err *err)
{
    struct hcp_err why = {0};
    int rc;

    switch (key) {
    case OPT_MODEL:
        layer->model = arg;
        return HCP_OK;
    case OPT_MLP:
        layer->plain_mlp = strcmp(arg, "plain") == 0;
        return layer->plain_mlp || strcmp(arg, "gated") == 0
                   ? HCP_OK
                   : hcp_fail(err, HCP_USAGE, "--mlp '%s': use gated or plain", arg);
    default:
        rc = hcp_parse_len(arg, 1, key == OPT_FFN ? &layer->ffn : &layer->hidden, &why);
        return rc ? hcp_fail(err, rc, "%s: %.900s", key == OPT_FFN ? "--ffn" : "--hidden",
                             why.text)
                  : HCP_OK;
    }
}

int32_t plan_link_channels(const struct plan_args *args, const char *transport)
{
    return strcmp(transport, "nccl") == 0 ? args->channels : 0;
}

/* What options ask for that cannot be had together, and in their words why. The library
 * refuses it, too, by the names of its members. */
static const char *refused(const struct plan_args *args)
{
    enum {
        LATE = 1,
        JOINT = 2,
        PIECES = 4,
        BARRIER = 8,
        LINEAR = 16,
        NODES = 32,
        ORDER = 64
    };
    static const struct {
        unsigned with, without;
        const char *why;
    } pairs[] = {
        {LATE, PIECES | BARRIER,
         "--late-kv is for whole blocks without a barrier; leave --sub-blocks and "
         "--barrier out, or --late-kv"},
        {JOINT, LATE,
         "keys and values that are split apart from queries travel in turn; leave "
         "--late-kv or --joint out"},
        {JOINT, LINEAR,
         "--joint is for attention alone: how keys and values get from where their layer "
         "makes them to where they are kept is not known here; leave --linear-us, "
         "--model, --hidden and --ffn out, or --joint"},
        {NODES, ORDER | JOINT | LATE,
         "--node-ranks says what the links are, for the order of --ranks; leave --links, "
         "--hosts, --reorder, --fix-order, --late-kv and --joint out"},
    };
    const hcp_question *q = &args->question;
    unsigned asked = 0;

    asked |= q->late_kv ? LATE : 0;
    asked |= q->joint || args->kv_tokens ? JOINT : 0;
    asked |= q->sub_blocks > 1 ? PIECES : 0;
    asked |= q->barrier ? BARRIER : 0;
    asked |= args->linear || args->layer_given ? LINEAR : 0;
    asked |= q->node_ranks > 0 ? NODES : 0;
    asked |= q->order || args->links || args->hosts ? ORDER : 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (asked & pairs[i].with && asked & pairs[i].without)
            return pairs[i].why;
    return NULL;
}

static error_t parse_ring(int key, char *arg, struct argp_state *state)
{
    struct plan_args *args = state->input;
    int64_t channels = 0;
    struct hcp_err err = {0};

    switch (key) {
    case OPT_MAX_TOKENS:
        args->max_tokens = arg;
        args->given |= PLAN_GIVEN_SPLIT;
        return 0;
    case OPT_LINEAR:
        args->linear = arg;
        args->given |= PLAN_GIVEN_SPLIT;
        return 0;
    case OPT_MODEL:
    case OPT_HIDDEN:
    case OPT_FFN:
    case OPT_MLP:
        args->given |= PLAN_GIVEN_SPLIT;
        args->layer_given = 1;
        if (set_layer_option(key, arg, &args->layer, &err))
            argp_error(state, "%s", err.text);
        return 0;
    case OPT_MEMORY:
        args->memory = arg;
        args->given |= PLAN_GIVEN_SPLIT;
        return 0;
    case OPT_WEIGHTS:
        args->weights = arg;
        args->given |= PLAN_GIVEN_SPLIT;
        return 0;
    case OPT_TIME_SCALE:
        args->time_scale = arg;
        args->given |= PLAN_GIVEN_SPLIT;
        return 0;
    case OPT_LAYERS:
    case OPT_ACTIVATION:
        args->given |= PLAN_GIVEN_SPLIT | (key == OPT_LAYERS ? PLAN_GIVEN_LAYERS : 0);
        if (set_held_option(key, arg, &args->question, &err))
            argp_error(state, "%s", err.text);
        return 0;
    case ARGP_KEY_END:
        if (args->given & PLAN_GIVEN_CHANNELS &&
            !(args->link && strcmp(args->link, "nccl") == 0) &&
            !(args->links && strcmp(args->links, "nccl") == 0))
            argp_error(state, "--channels says which times --link nccl or --links nccl "
                              "takes; give one of them");
        if (args->linear && args->layer_given)
            argp_error(state, "--linear-us gives what --model, --hidden and --ffn look "
                              "up; use one of them");
        if (args->given & PLAN_GIVEN_NODES && args->question.node_ranks == 0)
            argp_error(state, "--node-... and --double-ring need --node-ranks: how many "
                              "ranks a node has");
        if (refused(args))
            argp_error(state, "%s", refused(args));
        return 0;
    case OPT_BARRIER:
        args->question.barrier = 1;
        args->given |= PLAN_GIVEN_BARRIER;
        return 0;
    case OPT_LINK:
        if (!links_transport(arg, &args->link, &args->link_hosts))
            argp_error(state, "--link '%s' is not known; expected nccl or mpi, or one of "
                              "them with :within or :between", arg);
        return 0;
    case OPT_LINKS:
        if (!links_transport(arg, &args->links, &args->links_hosts))
            args->links = arg; /* a file */
        args->given |= PLAN_GIVEN_ORDER;
        return 0;
    case OPT_HOSTS:
        args->hosts = arg;
        args->given |= PLAN_GIVEN_ORDER;
        return 0;
    case OPT_CHANNELS:
        if (strcmp(arg, "auto") != 0 &&
            (hcp_parse_int(arg, "--channels", 1, 32, &channels, NULL) ||
             (channels & (channels - 1)) != 0))
            argp_error(state,
                       "--channels '%s' is neither auto nor a power of two up to 32, as "
                       "hcp-profile link measures them",
                       arg);
        args->channels = (int32_t)channels;
        args->given |= PLAN_GIVEN_CHANNELS;
        return 0;
    case OPT_LATE_KV:
        args->question.late_kv = 1;
        args->given |= PLAN_GIVEN_ORDER;
        return 0;
    case OPT_REORDER:
    case OPT_FIX_ORDER:
        if (args->question.order)
            argp_error(state, "--reorder and --fix-order: give one, once");
        args->question.order = key == OPT_REORDER ? HCP_ORDER_FREE : HCP_ORDER_FIXED;
        args->given |= PLAN_GIVEN_ORDER;
        return 0;
    case OPT_DOUBLE_RING:
        args->question.rings = HCP_RINGS_BEST;
        args->given |= PLAN_GIVEN_NODES;
        return 0;
    case OPT_NODE_RANKS:
    case OPT_NODE_ALPHA:
    case OPT_NODE_GBPS:
    case OPT_NODE_SHARED:
        args->given |= PLAN_GIVEN_NODES;
        if (set_node_option(key, arg, &args->question, &err))
            argp_error(state, "%s", err.text);
        return 0;
    case OPT_MERGE:
        args->given |= PLAN_GIVEN_MERGE;
        for (int i = HCP_MERGE_RING; i <= HCP_MERGE_GATHER; i++)
            if (strcmp(arg, hcp_merge_name((hcp_merge)i)) == 0)
                args->question.merge = (hcp_merge)i;
        if (!args->question.merge)
            argp_error(state, "--merge '%s' is not known; expected ring, doubling or "
                              "gather",
                       arg);
        return 0;
    case OPT_JOINT:
        args->question.joint = 1;
        args->given |= PLAN_GIVEN_JOINT;
        return 0;
    case OPT_SUB_BLOCKS:
    case OPT_BUFFERS:
    case OPT_ALPHA:
    case OPT_GBPS:
    case OPT_TILE:
    case OPT_STRIPES:
        args->given |= key == OPT_BUFFERS      ? PLAN_GIVEN_BUFFERS
                       : key == OPT_ALPHA      ? PLAN_GIVEN_ALPHA
                       : key == OPT_GBPS       ? PLAN_GIVEN_GBPS
                       : key == OPT_SUB_BLOCKS ? PLAN_GIVEN_SUB_BLOCKS
                                               : PLAN_GIVEN_SPLIT;
        if (set_ring_option(key, arg, &args->question, &err))
            argp_error(state, "%s", err.text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void plan_strategy_option(const char *arg, struct argp_state *state, hcp_question *q)
{
    if (hcp_strategy_from_name(arg, &q->strategy) || q->strategy == HCP_STRATEGY_GIVEN)
        argp_error(state,
                   "--strategy '%s' is not known; expected even, nominal, proportional, "
                   "lut, poly or best",
                   arg);
}

static const struct argp_child common_children[] = {{&hcp_shape_argp, 0, NULL, 0}, {0}};
const struct argp plan_common_argp = {common_options,  parse_common, NULL, NULL,
                                      common_children, NULL,         NULL};
const struct argp plan_ring_argp = {ring_options, parse_ring, NULL, NULL,
                                    NULL,         NULL,       NULL};
