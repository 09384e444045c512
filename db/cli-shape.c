/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/cli.h"

enum {
    OPT_SEQ_LEN = 0x1000,
    OPT_HEADS,
    OPT_KV_HEADS,
    OPT_HEAD_DIM,
    OPT_DTYPE,
    OPT_MASK,
    OPT_LAYOUT,
    OPT_BATCH,
    OPT_PHASE
};

void hcp_shape_defaults(struct hcp_shape_args *shape)
{
    *shape = (struct hcp_shape_args){
        .heads = 32,
        .kv_heads = 8,
        .head_dim = 128,
        .batch = 1,
        .dtype = "bf16",
        .mask = "full",
        .phase = "prefill",
    };
}

static const struct argp_option options[] = {
    {"seq-len", OPT_SEQ_LEN, "N", 0, "Tokens of the whole sequence; 64K means 65536", 20},
    {"heads", OPT_HEADS, "N", 0, "Query heads (32)", 20},
    {"kv-heads", OPT_KV_HEADS, "N", 0, "Key/value heads (8)", 20},
    {"head-dim", OPT_HEAD_DIM, "N", 0, "Elements of a head (128)", 20},
    {"dtype", OPT_DTYPE, "TYPE", 0, "bf16, fp16 or fp32 (bf16)", 20},
    {"mask", OPT_MASK, "MASK", 0, "full or causal (full)", 20},
    {"layout", OPT_LAYOUT, "LAYOUT", 0, "contiguous, zigzag or striped", 20},
    {"batch", OPT_BATCH, "N", 0, "Sequences at a time (1)", 20},
    {"phase", OPT_PHASE, "PHASE", 0, "prefill or decode (prefill)", 20},
    {0},
};

struct choice {
    const char *option, *expected;
    const char *words[4];
};

static int choose(const char *text, const struct choice *c, char *out, size_t size,
                  struct hcp_err *err)
{
    for (int i = 0; c->words[i]; i++)
        if (!strcmp(text, c->words[i])) {
            snprintf(out, size, "%s", text);
            return HCP_OK;
        }
    return hcp_fail(err, HCP_USAGE, "%s '%s' is not known; expected %s", c->option, text,
                    c->expected);
}

static int small(const char *text, const char *what, int64_t max, int32_t *out,
                 struct hcp_err *err)
{
    int64_t n = 0;
    int rc = hcp_parse_int(text, what, 1, max, &n, err);

    if (!rc)
        *out = (int32_t)n;
    return rc;
}

static int set_option(int key, const char *arg, struct hcp_shape_args *s,
                      struct hcp_err *err)
{
    static const struct choice dtype = {
        "--dtype", "bf16, fp16 or fp32", {"bf16", "fp16", "fp32"}};
    static const struct choice mask = {"--mask", "full or causal", {"full", "causal"}};
    static const struct choice layout = {
        "--layout", "contiguous, zigzag or striped", {"contiguous", "zigzag", "striped"}};
    static const struct choice phase = {
        "--phase", "prefill or decode", {"prefill", "decode"}};
    struct hcp_err why = {0};
    int rc;

    switch (key) {
    case OPT_SEQ_LEN:
        rc = hcp_parse_len(arg, 1, &s->seq_len, &why);
        return rc ? hcp_fail(err, rc, "--seq-len: %s", why.text) : HCP_OK;
    case OPT_HEADS:
        return small(arg, "--heads", 65536, &s->heads, err);
    case OPT_KV_HEADS:
        return small(arg, "--kv-heads", 65536, &s->kv_heads, err);
    case OPT_HEAD_DIM:
        return small(arg, "--head-dim", 65536, &s->head_dim, err);
    case OPT_BATCH:
        return small(arg, "--batch", 1 << 20, &s->batch, err);
    case OPT_DTYPE:
        return choose(arg, &dtype, s->dtype, sizeof s->dtype, err);
    case OPT_MASK:
        return choose(arg, &mask, s->mask, sizeof s->mask, err);
    case OPT_LAYOUT:
        return choose(arg, &layout, s->layout, sizeof s->layout, err);
    case OPT_PHASE:
        return choose(arg, &phase, s->phase, sizeof s->phase, err);
    }
    return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct hcp_shape_args *shape = state->input;
    struct hcp_err err = {0};
    int rc;

    if (key == ARGP_KEY_SUCCESS && shape) {
        if (hcp_shape_check(shape, &err))
            argp_error(state, "%s", err.text);
        return 0;
    }
    if (key < OPT_SEQ_LEN || key > OPT_PHASE)
        return ARGP_ERR_UNKNOWN;
    rc = set_option(key, arg, shape, &err);
    if (rc)
        argp_error(state, "%s", err.text);
    return 0;
}

const struct argp hcp_shape_argp = {options, parse, NULL, NULL, NULL, NULL, NULL};

int hcp_shape_check(const struct hcp_shape_args *s, struct hcp_err *err)
{
    if (s->heads < 1 || s->kv_heads < 1 || s->head_dim < 1 || s->batch < 1)
        return hcp_fail(err, HCP_USAGE,
                        "heads, KV heads, head dim and batch must be at least 1");
    if (s->heads % s->kv_heads)
        return hcp_fail(
            err, HCP_USAGE,
            "%d query heads cannot share %d KV heads evenly; --heads must be a "
            "multiple of --kv-heads",
            (int)s->heads, (int)s->kv_heads);
    if (s->seq_len < 0 || s->seq_len > HCP_LEN_LIMIT)
        return hcp_fail(err, HCP_USAGE,
                        "sequence length %lld is out of range; up to %lld",
                        (long long)s->seq_len, (long long)HCP_LEN_LIMIT);
    return HCP_OK;
}
