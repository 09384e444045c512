/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/cmd-link.h"
#include "profiler/run.h"
#include "profiler/stats.h"
#include "profiler/sweep.h"

enum {
    OPT_BESIDE = 0x3000,
    OPT_LENS,
    OPT_MASK,
    OPT_HEADS,
    OPT_KV_HEADS,
    OPT_HEAD_DIM,
    OPT_DTYPE,
    OPT_PROVIDER,
    OPT_KERNEL
};

static const struct argp_option options[] = {
    {"beside", OPT_BESIDE, NULL, 0,
     "Measure what a block of attention and its transfer cost each other, instead of "
     "sizes",
     10},
    {"lens", OPT_LENS, "LIST", 0,
     "Tokens of the blocks, which are square (4K,16K; CPU 128,256)", 10},
    {"mask", OPT_MASK, "LIST", 0, "full, causal or both (full,causal)", 10},
    {"heads", OPT_HEADS, "N", 0, "Query heads (32)", 10},
    {"kv-heads", OPT_KV_HEADS, "N", 0, "Key/value heads (8)", 10},
    {"head-dim", OPT_HEAD_DIM, "N", 0, "Elements of a head (128)", 10},
    {"dtype", OPT_DTYPE, "TYPE", 0, "bf16, fp16 or fp32 (bf16)", 10},
    {"provider", OPT_PROVIDER, "NAME", 0,
     "Run this kernel instead of the first that fits", 10},
    {"kernel", OPT_KERNEL, "FILE.so", 0, "Run the attention kernel of this plug-in", 10},
    {0},
};

static int small(const char *text, const char *what, int32_t *out, struct hcp_err *err)
{
    int64_t n = 0;
    int rc = hcp_parse_int(text, what, 1, 65536, &n, err);
    if (rc == HCP_OK)
        *out = (int32_t)n;
    return rc;
}

static int set_option(int key, const char *arg, struct beside *b, struct hcp_err *err)
{
    struct hcp_beside_job *job = &b->job;
    switch (key) {
    case OPT_LENS:
        b->lens = arg;
        return HCP_OK;
    case OPT_MASK:
        b->masks = arg;
        return HCP_OK;
    case OPT_HEADS:
        return small(arg, "--heads", &job->heads, err);
    case OPT_KV_HEADS:
        return small(arg, "--kv-heads", &job->kv_heads, err);
    case OPT_HEAD_DIM:
        return small(arg, "--head-dim", &job->head_dim, err);
    case OPT_DTYPE:
        if (strcmp(arg, "bf16") != 0 && strcmp(arg, "fp16") != 0 &&
            strcmp(arg, "fp32") != 0)
            return hcp_fail(err, HCP_USAGE,
                            "--dtype '%s' is not known; expected bf16, fp16 or fp32",
                            arg);
        strcpy(job->dtype, arg);
        return HCP_OK;
    case OPT_PROVIDER:
        snprintf(job->provider, sizeof job->provider, "%s", arg);
        return hcp_parse_slug(arg, "--provider", sizeof job->provider, err);
    default: /* OPT_KERNEL */
        if (snprintf(job->plugin, sizeof job->plugin, "%s", arg) >=
            (int)sizeof job->plugin)
            return hcp_fail(err, HCP_USAGE, "--kernel: path too long");
        return HCP_OK;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct beside *b = state->input;
    struct hcp_err err = {0};
    if (key == ARGP_KEY_INIT && b) {
        b->job = (struct hcp_beside_job){
            .dtype = "bf16", .heads = 32, .kv_heads = 8, .head_dim = 128};
        return 0;
    }
    if (key == ARGP_KEY_SUCCESS && b) {
        if (b->other && !b->on)
            argp_error(state, "--%s goes with --beside", b->other);
        else if (b->job.heads % b->job.kv_heads != 0)
            argp_error(state,
                       "%d query heads cannot share %d KV heads evenly; --heads must be "
                       "a multiple of --kv-heads",
                       (int)b->job.heads, (int)b->job.kv_heads);
        return 0;
    }
    if (key < OPT_BESIDE || key > OPT_KERNEL)
        return ARGP_ERR_UNKNOWN;
    if (key == OPT_BESIDE) {
        b->on = 1;
        return 0;
    }
    for (size_t i = 0; options[i].name; i++)
        if (options[i].key == key)
            b->other = options[i].name;
    if (set_option(key, arg, b, &err) != HCP_OK)
        argp_error(state, "%s", err.text);
    return 0;
}

const struct argp beside_argp = {options, parse, NULL, NULL, NULL, NULL, NULL};

/* ---- what hcp-link says ----------------------------------------------------- */

static int summary(const json_t *one, enum hcp_beside_time time, struct hcp_stats *out,
                   struct hcp_err *err)
{
    const json_t *list = json_object_get(one, hcp_beside_time_names[time]);
    double ms[HCP_LINK_SAMPLES];
    int n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < HCP_LINK_SAMPLES; i++)
        ms[n++] = json_number_value(json_array_get(list, i));
    return hcp_stats_summary(ms, n, out) == 0
               ? HCP_OK
               : hcp_fail(err, HCP_FAILED, "hcp-link: a sample is not a number");
}

/* The ends as they are of the first one's side, or the other way round. */
static void fill_ends(struct hcp_interference_row *row, const struct hcp_link_row *e,
                      int side)
{
#define COPY(to, a, b) snprintf(to, sizeof(to), "%s", side ? (b) : (a))
    COPY(row->key.device, e->device_a, e->device_b);
    COPY(row->key.limit, e->limit_a, e->limit_b);
    COPY(row->device_uuid, e->uuid_a, e->uuid_b);
    COPY(row->device_name, e->name_a, e->name_b);
    COPY(row->from.host, e->from.host, e->host_b);
    COPY(row->device_b, e->device_b, e->device_a);
    COPY(row->limit_b, e->limit_b, e->limit_a);
    COPY(row->uuid_b, e->uuid_b, e->uuid_a);
    COPY(row->name_b, e->name_b, e->name_a);
    COPY(row->host_b, e->host_b, e->from.host);
#undef COPY
    row->sm_seen = side ? e->sm_seen_b : e->sm_seen_a;
    row->sm_count = side ? e->sm_count_b : e->sm_count_a;
    row->sm_count_b = side ? e->sm_count_a : e->sm_count_b;
    strcpy(row->transport, e->transport);
    strcpy(row->transport_version, e->transport_version);
    row->channels = e->channels;
}

static int take(void *ctx, const struct hcp_link_row *ends, const json_t *line,
                struct hcp_err *err)
{
    struct link_session *s = ctx;
    struct beside *b = s->beside;
    const json_t *one = json_object_get(line, "beside");
    json_int_t side = json_integer_value(json_object_get(one, "side"));
    json_int_t block = json_integer_value(json_object_get(one, "block"));
    const char *provider = json_string_value(json_object_get(line, "provider"));
    const char *version = json_string_value(json_object_get(line, "provider_version"));
    struct hcp_stats of[HCP_BESIDE_TIMES];
    int rc = HCP_OK;
    if (b->n == 2 * HCP_BESIDE_BLOCKS || side < 0 || side > 1 || block < 0 ||
        block >= (json_int_t)b->job.n || !provider)
        return hcp_fail(err, HCP_FAILED, "hcp-link: a block that was not asked for");
    for (int t = 0; t < HCP_BESIDE_TIMES && rc == HCP_OK; t++)
        rc = summary(one, t, &of[t], err);
    if (rc != HCP_OK)
        return rc;
    const struct hcp_beside_block *asked = &b->job.blocks[block];
    struct hcp_interference_row *row = &b->rows[b->n];
    hcp_interference_row_init(row);
    fill_ends(row, ends, (int)side);
    snprintf(row->key.provider, sizeof row->key.provider, "%s", provider);
    snprintf(row->provider_version, sizeof row->provider_version, "%s",
             version ? version : "");
    strcpy(row->key.dtype, b->job.dtype);
    row->key.heads = b->job.heads;
    row->key.kv_heads = b->job.kv_heads;
    row->key.head_dim = b->job.head_dim;
    strcpy(row->mask, asked->mask);
    row->q_len = asked->q_len;
    row->kv_len = asked->kv_len;
    row->bytes = asked->bytes;
    row->alone_ms = of[HCP_BESIDE_ALONE].median;
    row->beside_ms = of[HCP_BESIDE_COMPUTE].median;
    row->wait_ms = of[HCP_BESIDE_WAIT].median;
    row->transfer_alone_ms = of[HCP_BESIDE_TRANSFER_ALONE].median;
    row->transfer_beside_ms = of[HCP_BESIDE_TRANSFER].median;
    row->samples = of[HCP_BESIDE_COMPUTE].n;
    b->quartiles[b->n][0] = of[HCP_BESIDE_COMPUTE].p25;
    b->quartiles[b->n][1] = of[HCP_BESIDE_COMPUTE].p75;
    b->side[b->n++] = (int)side;
    return HCP_OK;
}

/* ---- blocks ----------------------------------------------------------------- */

static int add_block(struct hcp_beside_job *job, const char *mask, int64_t len,
                     struct hcp_err *err)
{
    if (job->n == HCP_BESIDE_BLOCKS)
        return hcp_fail(err, HCP_USAGE,
                        "--lens: more than %d blocks; give fewer lengths, or one --mask",
                        HCP_BESIDE_BLOCKS);
    struct hcp_beside_block *b = &job->blocks[job->n++];
    snprintf(b->mask, sizeof b->mask, "%s", mask);
    b->q_len = b->kv_len = len;
    b->bytes = hcp_beside_bytes(job, len);
    return HCP_OK;
}

static int parse_masks(const char *text, int wanted[2], struct hcp_err *err)
{
    static const char *const masks[] = {"full", "causal"};
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        int known = 0;
        for (int i = 0; i < 2; i++)
            if (len == strlen(masks[i]) && strncmp(at, masks[i], len) == 0)
                known = wanted[i] = 1;
        if (!known)
            return hcp_fail(err, HCP_USAGE,
                            "--mask '%s': a list of full and causal is expected", text);
        at += len;
        if (!*at)
            return HCP_OK;
    }
}

int beside_choose(struct link_session *s, struct hcp_err *err)
{
    struct beside *b = s->beside;
    int gpu = link_is_gpu(&s->job.end[0]) || link_is_gpu(&s->job.end[1]);
    int wanted[2] = {0, 0};
    struct hcp_grid lens = {0};
    if (s->args->sizes)
        return hcp_fail(err, HCP_USAGE,
                        "--sizes does not go with --beside: what is moved is K and V of "
                        "a block of --lens");
    if (s->args->one_way)
        return hcp_fail(err, HCP_USAGE,
                        "--one-way does not go with --beside: a block is disturbed by "
                        "what a ring sends and receives");
    if (s->args->target)
        return hcp_fail(err, HCP_USAGE,
                        "--target-error does not go with --beside: it asks for sizes");
    int rc = parse_masks(b->masks ? b->masks : "full,causal", wanted, err);
    if (rc == HCP_OK)
        rc = hcp_grid_lens(b->lens ? b->lens
                           : gpu   ? "4K,16K"
                                   : "128,256",
                           "--lens", &lens.q, &lens.n_q, err);
    if (rc == HCP_OK && lens.n_q == 0)
        rc = hcp_fail(err, HCP_USAGE, "--lens: give at least one length");
    for (size_t i = 0; i < lens.n_q; i++)
        for (int k = 1; k >= 0 && rc == HCP_OK; k--) /* short ones first */
            if (wanted[k])
                rc = add_block(&b->job, k ? "causal" : "full", lens.q[i], err);
    hcp_grid_free(&lens);
    if (rc != HCP_OK)
        return rc;
    b->text = hcp_beside_print(&b->job);
    s->job.blocks = b->text;
    s->job.beside = take;
    s->job.ctx = s;
    return b->text ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
}

/* ---- storing ---------------------------------------------------------------- */

static int is_apart(const struct hcp_interference_row *row)
{
    return strcmp(row->from.host, row->host_b) != 0 ||
           (strcmp(row->device_uuid, row->uuid_b) == 0 &&
            strcmp(row->key.limit, row->limit_b) == 0);
}

/* One transaction a pair of limits. */
static int store(struct link_session *s, struct hcp_err *err)
{
    struct beside *b = s->beside;
    hcp_waiting_begin();
    int rc = hcp_db_begin(s->db, err);
    for (size_t i = 0; i < b->n && rc == HCP_OK; i++) {
        enum hcp_db_outcome outcome;
        link_sign(s, b->side[i], is_apart(&b->rows[i]), &b->rows[i].from);
        rc = hcp_db_add_interference(s->db, &b->rows[i], &outcome, err);
        if (rc != HCP_OK)
            hcp_db_rollback(s->db);
    }
    if (rc == HCP_OK)
        rc = hcp_db_commit(s->db, err);
    hcp_waiting_end();
    return rc;
}

int beside_end_pair(struct link_session *s, int rc, struct hcp_err *err)
{
    struct beside *b = s->beside;
    char name[96];
    if (rc == HCP_OK)
        rc = store(s, err);
    if (rc != HCP_OK)
        b->n = 0;
    beside_report_pair(s, rc == HCP_OK ? NULL : err->text);
    if (rc == HCP_OK && b->n < 2 * b->job.n)
        fprintf(stderr, "hcp-profile: %s: %zu blocks left out by --time-budget\n",
                link_name(s, 0, name), b->job.n - b->n / 2);
    b->n = 0;
    return rc;
}
