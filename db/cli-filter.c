/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#include "db/cli.h"

enum {
    OPT_DEVICE = 0x1100,
    OPT_LIMIT,
    OPT_PROVIDER,
    OPT_DTYPE,
    OPT_MASK,
    OPT_PHASE,
    OPT_ORIGIN,
    OPT_HOST,
    OPT_RUN,
    OPT_HEADS,
    OPT_KV_HEADS,
    OPT_HEAD_DIM,
    OPT_BATCH
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Which rows (all of them if nothing is said):", 30},
    {"device", OPT_DEVICE, "NAME", 0, "Of this device, like nvidia-h200", 30},
    {"limit", OPT_LIMIT, "LIMIT", 0,
     "Under this limit, like mps:50; '' is the whole device", 30},
    {"provider", OPT_PROVIDER, "NAME", 0, "Of this kernel, like cudnn", 30},
    {"dtype", OPT_DTYPE, "TYPE", 0, "bf16, fp16 or fp32", 30},
    {"mask", OPT_MASK, "MASK", 0, "full or causal", 30},
    {"phase", OPT_PHASE, "PHASE", 0, "prefill or decode", 30},
    {"origin", OPT_ORIGIN, "ORIGIN", 0, "measured, recorded or synthetic", 30},
    {"host", OPT_HOST, "NAME", 0, "Measured on this host", 30},
    {"run", OPT_RUN, "UID", 0, "Of this run", 30},
    {"heads", OPT_HEADS, "N", 0, "With N query heads", 30},
    {"kv-heads", OPT_KV_HEADS, "N", 0, "With N key/value heads", 30},
    {"head-dim", OPT_HEAD_DIM, "N", 0, "With heads of N elements", 30},
    {"batch", OPT_BATCH, "N", 0, "With N sequences at a time", 30},
    {0},
};

static int one_of(const char *option, const char *arg, const char *const words[3],
                  const char **out, struct hcp_err *err)
{
    for (int i = 0; i < 3 && words[i]; i++)
        if (!strcmp(arg, words[i])) {
            *out = arg;
            return HCP_OK;
        }
    return hcp_fail(err, HCP_USAGE, "%s '%s' is not known; expected %s%s%s%s%s", option,
                    arg, words[0], words[2] ? ", " : " or ", words[1],
                    words[2] ? " or " : "", words[2] ? words[2] : "");
}

static int number(const char *option, const char *arg, int32_t *out, struct hcp_err *err)
{
    int64_t n = 0;
    int rc = hcp_parse_int(arg, option, 1, INT32_MAX, &n, err);

    if (!rc)
        *out = (int32_t)n;
    return rc;
}

static int set(int key, const char *arg, struct hcp_filter *f, struct hcp_err *err)
{
    static const char *const dtypes[3] = {"bf16", "fp16", "fp32"};
    static const char *const masks[3] = {"full", "causal"};
    static const char *const phases[3] = {"prefill", "decode"};
    static const char *const origins[3] = {"measured", "recorded", "synthetic"};
    char kind[8];
    int32_t level;

    switch (key) {
    case OPT_DEVICE:
        f->device = arg;
        return hcp_parse_slug(arg, "--device", 64, err);
    case OPT_LIMIT:
        f->limit = arg;
        f->limit_set = 1;
        return hcp_parse_limit(arg, kind, &level, err);
    case OPT_PROVIDER:
        f->provider = arg;
        return hcp_parse_slug(arg, "--provider", 32, err);
    case OPT_DTYPE:
        return one_of("--dtype", arg, dtypes, &f->dtype, err);
    case OPT_MASK:
        return one_of("--mask", arg, masks, &f->mask, err);
    case OPT_PHASE:
        return one_of("--phase", arg, phases, &f->phase, err);
    case OPT_ORIGIN:
        return one_of("--origin", arg, origins, &f->origin, err);
    case OPT_HOST:
        f->host = arg;
        return HCP_OK;
    case OPT_RUN:
        f->run_uid = arg;
        return HCP_OK;
    case OPT_HEADS:
        return number("--heads", arg, &f->heads, err);
    case OPT_KV_HEADS:
        return number("--kv-heads", arg, &f->kv_heads, err);
    case OPT_HEAD_DIM:
        return number("--head-dim", arg, &f->head_dim, err);
    case OPT_BATCH:
        return number("--batch", arg, &f->batch, err);
    }
    return HCP_OK;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct hcp_err err = {0};

    if (key < OPT_DEVICE || key > OPT_BATCH)
        return ARGP_ERR_UNKNOWN;
    if (set(key, arg, state->input, &err))
        argp_error(state, "%s", err.text);
    return 0;
}

const struct argp hcp_filter_argp = {options, parse, NULL, NULL, NULL, NULL, NULL};
