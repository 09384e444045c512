/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include "planner/commands.h"
#include "planner/options.h"

enum { OPT_STRATEGY = 0x4000, OPT_TOKENS, OPT_KV_TOKENS, OPT_DOCUMENTS, OPT_WHOLE,
       OPT_CUT_GAIN, OPT_CHUNK_BUDGET, OPT_CHUNK_LEN, OPT_CHUNKS, OPT_CHUNK_FIXED };

static const struct argp_option options[] = {
    {"strategy", OPT_STRATEGY, "NAME", 0,
     "even, nominal, proportional, lut, poly or best (best)", 0},
    {"tokens", OPT_TOKENS, "N,N,...", 0,
     "Predict this split, tokens by rank, instead of making one", 0},
    {"kv-tokens", OPT_KV_TOKENS, "N,N,...", 0,
     "With --tokens, which are queries then: tokens whose KV each rank keeps", 0},
    {"documents", OPT_DOCUMENTS, "LIST|FILE", 0,
     "Spread documents of these lengths over the ranks instead of one sequence", 0},
    {"whole-documents", OPT_WHOLE, NULL, 0, "With --documents: cut none of them", 0},
    {"cut-gain", OPT_CUT_GAIN, "PART", 0,
     "With --documents: cuts must gain more than this part of the time (0.01)", 0},
    {"chunk-budget", OPT_CHUNK_BUDGET, "TIME", 0,
     "Prefill the prompt in chunks whose steps take no longer than this (50ms)", 0},
    {"chunk-len", OPT_CHUNK_LEN, "N", 0,
     "Chunks of this many tokens; with --chunk-budget the most that a chunk has", 0},
    {"chunks", OPT_CHUNKS, "LIST|FILE", 0, "Predict chunks of these lengths", 0},
    {"chunk-fixed", OPT_CHUNK_FIXED, "TIME", 0,
     "What a step of a chunk takes beside its layers (0)", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct plan_args *args = state->input;
    struct hcp_err err = {0};

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = args;
        state->child_inputs[1] = args;
        return 0;
    case OPT_STRATEGY:
        plan_strategy_option(arg, state, &args->question);
        args->given |= PLAN_GIVEN_STRATEGY;
        return 0;
    case OPT_TOKENS:
        args->tokens = arg;
        return 0;
    case OPT_KV_TOKENS:
        args->kv_tokens = arg;
        return 0;
    case OPT_DOCUMENTS:
        args->documents = arg;
        return 0;
    case OPT_WHOLE:
        args->whole_documents = 1;
        return 0;
    case OPT_CUT_GAIN:
        if (hcp_parse_double(arg, &args->cut_gain, &err))
            argp_error(state, "--cut-gain: %s", err.text);
        if (!(args->cut_gain >= 0 && args->cut_gain <= 10))
            argp_error(state, "--cut-gain '%s' is not in 0..10", arg);
        return 0;
    case OPT_CHUNK_BUDGET:
    case OPT_CHUNK_FIXED:
        if (chunks_parse_ms(arg, key == OPT_CHUNK_BUDGET ? "--chunk-budget"
                                                         : "--chunk-fixed",
                            key == OPT_CHUNK_BUDGET ? &args->chunk_budget
                                                    : &args->chunk_fixed,
                            &err))
            argp_error(state, "%s", err.text);
        if (key == OPT_CHUNK_BUDGET && args->chunk_budget == 0)
            argp_error(state, "--chunk-budget 0 is no time");
        return 0;
    case OPT_CHUNK_LEN:
        if (hcp_parse_len(arg, 1, &args->chunk_len, &err))
            argp_error(state, "--chunk-len: %s", err.text);
        return 0;
    case OPT_CHUNKS:
        args->chunks = arg;
        return 0;
    case ARGP_KEY_END:
        if (args->chunk_fixed > 0 && !plan_in_chunks(args))
            argp_error(state, "--chunk-fixed belongs to --chunk-budget, --chunk-len or "
                              "--chunks");
        if (!args->documents && (args->whole_documents || args->cut_gain >= 0))
            argp_error(state, "--whole-documents and --cut-gain belong to --documents: "
                              "their lengths");
        if (args->tokens && args->given & PLAN_GIVEN_STRATEGY)
            argp_error(state, "--tokens is a split already; leave --strategy out");
        if (args->tokens && args->given & PLAN_GIVEN_JOINT)
            argp_error(state, "--tokens is a split already; leave --joint out and say "
                              "where KV is with --kv-tokens");
        if (args->kv_tokens && !args->tokens)
            argp_error(state, "--kv-tokens belongs to --tokens: whose queries each rank "
                              "has");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cmd_split(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&plan_common_argp, 0, NULL, 0}, {&plan_ring_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,  parse, NULL,
        "Splits one sequence over the ranks of a ring, whole or in chunks, or spreads "
        "documents over them.",
        children, NULL,  NULL};
    struct plan_args args;
    struct session s = {0};
    struct hcp_err err = {0};
    char *json;
    int rc;

    plan_args_init(&args);
    args.decode = 1;
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    if (plan_in_chunks(&args))
        return chunks_split(&args);
    if (args.documents)
        return documents_split(&args);
    rc = session_open(&args, &s, &err);
    if (rc == HCP_OK)
        rc = session_split(&args, &s, &err);
    if (rc == HCP_OK && args.json) {
        json = plan_json(&s.plan);
        if (json)
            puts(json);
        else
            rc = hcp_fail(&err, HCP_FAILED, "out of memory");
        free(json);
    } else if (rc == HCP_OK &&
               (plan_print(&s.plan, stdout) || session_say_finer(&s, stdout))) {
        rc = hcp_fail(&err, HCP_FAILED, "cannot print the plan");
    }
    if (rc == HCP_OK)
        session_say_estimates(&s, args.json);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
