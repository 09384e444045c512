/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db.h"
#include "planner/options.h"

int plan_exit_code(hcp_status status)
{
    switch (status) {
    case HCP_STATUS_OK:
        return HCP_OK;
    case HCP_STATUS_INVALID:
        return HCP_USAGE;
    case HCP_STATUS_NO_MODEL:
    case HCP_STATUS_STALE:
    case HCP_STATUS_OUTSIDE:
    case HCP_STATUS_INFEASIBLE:
        return HCP_NO_ANSWER;
    default:
        return HCP_FAILED;
    }
}

static int read_ranks(const struct plan_args *args, hcp_rank **out, size_t *n,
                      struct hcp_err *err)
{
    struct hcp_key *keys = NULL;
    hcp_rank *ranks;
    int rc;

    if (!args->ranks)
        return hcp_fail(err, HCP_USAGE,
                        "--ranks is missing: which devices, as in --ranks "
                        "'nvidia-h200@mps:100,nvidia-h200@mps:10'");
    rc = hcp_parse_ranks(args->ranks, &keys, n, err);
    if (rc)
        return rc;
    if (*n > HCP_PLAN_MAX_RANKS) {
        free(keys);
        return hcp_fail(err, HCP_USAGE, "--ranks has %zu ranks; %d at most", *n,
                        HCP_PLAN_MAX_RANKS);
    }
    ranks = calloc(*n, sizeof *ranks);
    if (!ranks) {
        free(keys);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    for (size_t r = 0; r < *n; r++) {
        hcp_rank_init(&ranks[r]);
        memcpy(ranks[r].device, keys[r].device, sizeof ranks[r].device);
        memcpy(ranks[r].limit, keys[r].limit, sizeof ranks[r].limit);
    }
    free(keys);
    if (args->max_tokens)
        rc = plan_per_rank("--max-tokens", args->max_tokens, plan_set_tokens, ranks, *n,
                           err);
    if (rc == HCP_OK && args->linear)
        rc = plan_per_rank("--linear-us", args->linear, plan_set_linear, ranks, *n, err);
    if (rc == HCP_OK && args->memory)
        rc = plan_per_rank("--memory", args->memory, plan_set_memory, ranks, *n, err);
    if (rc == HCP_OK && args->weights)
        rc = plan_per_rank("--weights", args->weights, plan_set_weights, ranks, *n, err);
    if (rc == HCP_OK && args->time_scale)
        rc = plan_per_rank("--time-scale", args->time_scale, plan_set_time_scale, ranks,
                           *n, err);
    if (rc) {
        free(ranks);
        return rc;
    }
    *out = ranks;
    return HCP_OK;
}

/* The list of --tokens or --kv-tokens; *sum is what it adds up to. */
static int read_list(const char *option, const char *list, size_t n, int64_t **out,
                     int64_t *sum, struct hcp_err *err)
{
    int64_t *tokens = *out = calloc(n, sizeof *tokens);
    size_t r = 0;

    *sum = 0;
    if (!tokens)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (const char *p = list;; p++) {
        struct hcp_err why = {0};
        size_t len = strcspn(p, ",");
        char item[64];

        if (r == n)
            return hcp_fail(err, HCP_USAGE, "%s lists more than %zu ranks", option, n);
        if (len >= sizeof item)
            return hcp_fail(err, HCP_USAGE, "%s entry '%.40s...' is too long", option, p);
        memcpy(item, p, len);
        item[len] = 0;
        if (hcp_parse_len(item, 0, &tokens[r], &why))
            return hcp_fail(err, HCP_USAGE, "%s: %s", option, why.text);
        *sum += tokens[r++];
        p += len;
        if (!*p)
            break;
    }
    if (r != n)
        return hcp_fail(err, HCP_USAGE, "%s lists %zu ranks, --ranks has %zu", option, r,
                        n);
    return HCP_OK;
}

/* --tokens, and the sequence length they make; --kv-tokens. */
static int read_tokens(struct plan_args *args, size_t n, struct session *s,
                       struct hcp_err *err)
{
    hcp_question *q = &args->question;
    int64_t sum, kv_sum;
    int rc = read_list("--tokens", args->tokens, n, &s->tokens, &sum, err);

    if (rc)
        return rc;
    if (sum == 0)
        return hcp_fail(err, HCP_USAGE,
                        "--tokens gives no rank a token; they add up to the sequence");
    if (q->seq_len > 0 && q->seq_len != sum)
        return hcp_fail(err, HCP_USAGE,
                        "--tokens add up to %lld, --seq-len is %lld; leave one out or "
                        "make them agree",
                        (long long)sum, (long long)q->seq_len);
    if (args->kv_tokens) {
        rc = read_list("--kv-tokens", args->kv_tokens, n, &s->kv_tokens, &kv_sum, err);
        if (rc)
            return rc;
        if (kv_sum != sum)
            return hcp_fail(err, HCP_USAGE,
                            "--kv-tokens add up to %lld, --tokens to %lld; both are the "
                            "whole sequence",
                            (long long)kv_sum, (long long)sum);
        q->kv_tokens = s->kv_tokens;
    }
    q->seq_len = sum;
    if (q->layout == HCP_LAYOUT_AUTO)
        q->layout = q->causal ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS;
    return HCP_OK;
}

static int bind(const struct plan_args *args, const hcp_shape *shape, hcp_rank *ranks,
                size_t n, const char *provider, struct session *s,
                struct hcp_err *err)
{
    const char *db = hcp_cli_db(args->db, err);
    hcp_status status;

    if (!db || session_specs(args, ranks, n, s, err))
        return err->code;
    status = hcp_models_load_specs(db, s->specs, err->text, sizeof err->text, &s->models);
    if (!status)
        status = hcp_ring_create(s->models, shape, ranks, n, provider, err->text,
                                 sizeof err->text, &s->ring);
    err->code = plan_exit_code(status);
    if (status)
        return err->code;
    s->workspace_bytes = hcp_workspace_bytes(n);
    s->workspace = malloc(s->workspace_bytes);
    return s->workspace ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
}

int session_of_decode(const char *phase)
{
    return strcmp(phase, "decode") == 0;
}

/* Linear work of the layer that the command line names; a known model's heads are those
 * of the question. */
static int open_layer(struct plan_args *args, struct hcp_layer *layer,
                      struct hcp_err *err)
{
    int rc = layer_measured_shape(&args->layer, &args->shape, layer, err);

    if (rc == HCP_OK) {
        args->shape.heads = layer->heads;
        args->shape.kv_heads = layer->kv_heads;
        args->shape.head_dim = layer->head_dim;
    }
    return rc;
}

/* What the layers of a model take where memory is capped: their number, and their
 * products' weights on every rank; the command line's stay. */
static void layer_memory(struct plan_args *args, const struct hcp_layer *layer,
                         hcp_rank *ranks, size_t n)
{
    struct hcp_layer_product product[HCP_LAYER_PRODUCTS];
    int64_t element = strcmp(args->shape.dtype, "fp32") == 0 ? 4 : 2, bytes = 0;

    if (!(args->given & PLAN_GIVEN_LAYERS))
        args->question.layers = layer->layers;
    hcp_layer_products(layer, product);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        bytes += product[i].n_in * product[i].n_out * element;
    for (size_t r = 0; r < n && !args->weights; r++)
        ranks[r].weight_bytes = args->question.layers * bytes;
}

static int load_layer(const struct plan_args *args, const struct hcp_layer *layer,
                      const hcp_shape *shape, hcp_rank *ranks, size_t n,
                      struct session *s, struct hcp_err *err)
{
    const char *db = hcp_cli_db(args->db, err);

    if (!db)
        return err->code;
    s->shape = *shape;
    s->ranks = malloc(n * sizeof *ranks);
    if (!s->ranks)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    memcpy(s->ranks, ranks, n * sizeof *ranks);
    return layer_measured_load(db, layer, shape, ranks, n, args->question.extrapolate,
                               s->ring, &s->layer, err);
}

int session_open(struct plan_args *args, struct session *s, struct hcp_err *err)
{
    const struct hcp_shape_args *from = &args->shape;
    struct hcp_layer layer;
    hcp_shape shape;
    hcp_rank *ranks = NULL;
    size_t n = 0;
    int rc;

    if (session_of_decode(from->phase) && !args->decode)
        return hcp_fail(err, HCP_NO_ANSWER,
                        "decode has no steps round a ring; use --phase prefill, or "
                        "'hcp-plan split'");
    if (!session_of_decode(from->phase) && args->question.merge)
        return hcp_fail(err, HCP_USAGE,
                        "--merge is how decode ends; add --phase decode or leave it out");
    if (args->layer_given && open_layer(args, &layer, err))
        return err->code;
    hcp_shape_init(&shape);
    memcpy(shape.phase, from->phase, sizeof shape.phase);
    memcpy(shape.dtype, from->dtype, sizeof shape.dtype);
    shape.batch = from->batch;
    shape.heads = from->heads;
    shape.kv_heads = from->kv_heads;
    shape.head_dim = from->head_dim;
    args->question.seq_len = from->seq_len;
    /* One query a sequence sees all keys. */
    args->question.causal =
        strcmp(from->mask, "causal") == 0 && !session_of_decode(from->phase);
    args->question.layout = HCP_LAYOUT_AUTO;
    if (from->layout[0])
        hcp_layout_from_name(from->layout, &args->question.layout);
    if (args->tokens && args->question.order)
        return hcp_fail(
            err, HCP_USAGE,
            "--tokens is a split in the order of --ranks; leave --reorder and "
            "--fix-order out");
    rc = read_ranks(args, &ranks, &n, err);
    if (rc == HCP_OK && args->layer_given &&
        (args->memory || session_of_decode(from->phase) || plan_in_chunks(args)))
        layer_memory(args, &layer, ranks, n);
    if (rc == HCP_OK)
        rc = session_hosts(args->hosts, n, &s->hosts, err);
    if (rc == HCP_OK && args->tokens)
        rc = read_tokens(args, n, s, err);
    if (rc == HCP_OK)
        rc = bind(args, &shape, ranks, n, args->provider, s, err);
    if (rc == HCP_OK && args->layer_given && !session_of_decode(from->phase))
        rc = load_layer(args, &layer, &shape, ranks, n, s, err);
    if (rc == HCP_OK && args->link)
        rc = session_link(args, s->hosts, &shape, ranks, n, args->question.seq_len,
                          args->question.sub_blocks, args->question.node_ranks,
                          &(struct link_into_plan){
                              &args->question.link_alpha_us, &args->question.link_gbps,
                              &args->question.node_alpha_us, &args->question.node_gbps},
                          err);
    if (rc == HCP_OK && args->links)
        rc = session_links(args, &shape, ranks, n, hcp_ring_provider(s->ring),
                           &args->question, NULL, s, err);
    free(ranks);
    return rc;
}

int session_open_plan(const struct plan_args *args, hcp_plan *plan, struct session *s,
                      struct hcp_err *err)
{
    hcp_rank *ranks = calloc(plan->n_ranks, sizeof *ranks);
    const char *provider = args->provider;
    int rc;

    if (!ranks)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (!provider && plan->provider[0])
        provider = plan->provider;
    for (size_t r = 0; r < plan->n_ranks; r++) {
        int own = plan->order || plan->has_links;
        const hcp_plan_rank *from = &plan->ranks[r];
        hcp_rank *rank = &ranks[own ? (size_t)plan->places[r].rank : r];

        hcp_rank_init(rank);
        memcpy(rank->device, from->device, sizeof rank->device);
        memcpy(rank->limit, from->limit, sizeof rank->limit);
        rank->max_tokens = from->max_tokens;
        rank->linear_before_us = from->linear_before_us;
        rank->linear_before_fixed_us = from->linear_before_fixed_us;
        rank->linear_after_us = from->linear_after_us;
        rank->linear_after_fixed_us = from->linear_after_fixed_us;
        rank->linear_error = from->linear_error;
        rank->time_scale = from->time_scale;
        rank->max_bytes = from->max_bytes;
        rank->weight_bytes = from->weight_bytes;
    }
    rc = bind(args, &plan->shape, ranks, plan->n_ranks, provider, s, err);
    for (size_t r = 0; r < plan->n_ranks; r++) { /* neighbours as they are in the ring */
        memcpy(ranks[r].device, plan->ranks[r].device, sizeof ranks[r].device);
        memcpy(ranks[r].limit, plan->ranks[r].limit, sizeof ranks[r].limit);
    }
    if (rc == HCP_OK && args->link)
        rc = session_link(
            args, NULL, &plan->shape, ranks, plan->n_ranks, plan->seq_len,
            plan->sub_blocks, plan->node_ranks,
            &(struct link_into_plan){&plan->link_alpha_us, &plan->link_gbps,
                                     &plan->node_alpha_us, &plan->node_gbps},
            err);
    free(ranks);
    if (rc == HCP_OK)
        s->plan = *plan;
    return rc;
}

int session_split(struct plan_args *args, struct session *s, struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring);
    size_t m = 2 * hcp_segments_max(n, args->question.layout, args->question.stripes);
    hcp_status status;

    if (args->question.seq_len == 0)
        return hcp_fail(err, HCP_USAGE, "--seq-len is missing: how many tokens to split");
    if (!s->plan.ranks) {
        hcp_plan_rank *ranks = malloc(n * sizeof *ranks);
        hcp_segment *segments = malloc(m * sizeof *segments);

        hcp_plan_init(&s->plan, ranks, n, segments, m);
        s->plan.places = calloc(n, sizeof *s->plan.places);
        if (!ranks || !segments || !s->plan.places)
            return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    if (s->layer) {
        int64_t *at = malloc(n * sizeof *at);
        int rc = at ? session_ask_measured(args, s, at, err)
                    : hcp_fail(err, HCP_FAILED, "out of memory");

        free(at);
        return rc;
    }
    status = session_ask(args, s, err);
    return err->code = plan_exit_code(status);
}

void session_close(struct session *s)
{
    free(s->plan.ranks);
    free(s->plan.segments);
    free(s->plan.places);
    free(s->hosts);
    free(s->links);
    free(s->shared_gbps);
    free(s->workspace);
    free(s->tokens);
    free(s->ranks);
    layer_measured_free(s->layer);
    free(s->kv_tokens);
    hcp_ring_free(s->ring);
    hcp_models_free(s->models);
    hcp_specs_free(s->specs);
    memset(s, 0, sizeof *s);
}

int session_open_ranks(struct plan_args *args, int32_t prefill_batch, hcp_shape *shape,
                       hcp_rank **ranks, size_t *n, double *decode_alpha_us,
                       double *decode_gbps, struct session *s, struct hcp_err *err)
{
    const struct hcp_shape_args *from = &args->shape;
    hcp_question *q = &args->question;
    struct hcp_layer layer;
    const char *db;
    hcp_shape decode;
    int rc;

    if (args->layer_given && open_layer(args, &layer, err))
        return err->code;
    hcp_shape_init(shape);
    memcpy(shape->dtype, from->dtype, sizeof shape->dtype);
    shape->batch = prefill_batch;
    shape->heads = from->heads;
    shape->kv_heads = from->kv_heads;
    shape->head_dim = from->head_dim;
    decode = *shape;
    decode.batch = from->batch;
    memcpy(decode.phase, "decode", sizeof "decode");
    q->seq_len = from->seq_len;
    q->causal = strcmp(from->mask, "causal") == 0;
    q->layout = HCP_LAYOUT_AUTO;
    if (from->layout[0])
        hcp_layout_from_name(from->layout, &q->layout);
    rc = read_ranks(args, ranks, n, err);
    if (rc)
        return rc;
    if (args->layer_given)
        layer_memory(args, &layer, *ranks, *n);
    db = hcp_cli_db(args->db, err);
    if (!db || session_specs(args, *ranks, *n, s, err))
        return err->code;
    rc = err->code = plan_exit_code(hcp_models_load_specs(
        db, s->specs, err->text, sizeof err->text, &s->models));
    /* Data sheets have the linear work of the kin that a ring names. */
    if (rc == HCP_OK && args->layer_given)
        rc = err->code = plan_exit_code(
            hcp_ring_create(s->models, shape, *ranks, *n, args->provider, err->text,
                            sizeof err->text, &s->ring));
    if (rc == HCP_OK && args->layer_given)
        rc = load_layer(args, &layer, shape, *ranks, *n, s, err);
    if (rc == HCP_OK && args->layer_given)
        rc = layer_measured_decode(s->layer, from->batch, *ranks, err);
    if (rc == HCP_OK && args->link)
        rc = session_link(args, NULL, shape, *ranks, *n, q->seq_len, q->sub_blocks, 0,
                          &(struct link_into_plan){&q->link_alpha_us, &q->link_gbps,
                                                   NULL, NULL},
                          err);
    *decode_alpha_us = q->link_alpha_us;
    *decode_gbps = q->link_gbps;
    if (rc == HCP_OK && args->link)
        rc = session_link(
            args, NULL, &decode, *ranks, *n, q->seq_len, 1, 0,
            &(struct link_into_plan){decode_alpha_us, decode_gbps, NULL, NULL}, err);
    return rc;
}
