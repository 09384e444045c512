/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps of linear layers: which layer, and which of its products at which token counts.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "profiler/run.h"

int hcp_run_layer_option(const char *name, const char *arg, struct hcp_run_options *o,
                         struct hcp_err *err)
{
    struct hcp_err why;
    int64_t n = 0;
    o->layer_parts = 1;
    if (strcmp(name, "--mlp") == 0) {
        o->plain_mlp = strcmp(arg, "plain") == 0;
        return o->plain_mlp || strcmp(arg, "gated") == 0
                   ? HCP_OK
                   : hcp_fail(err, HCP_USAGE, "--mlp '%s': use gated or plain", arg);
    }
    int rc = hcp_parse_len(arg, 1, &n, &why);
    if (rc != HCP_OK)
        return hcp_fail(err, rc, "%s: %.900s", name, why.text);
    if (strcmp(name, "--hidden") == 0)
        o->layer.hidden = n;
    else if (strcmp(name, "--ffn") == 0)
        o->layer.ffn = n;
    else if (n > 65536)
        return hcp_fail(err, HCP_USAGE, "--layers: more than 65536");
    else
        o->layer.layers = (int32_t)n;
    return HCP_OK;
}

int hcp_run_layer(struct hcp_run_options *o, struct hcp_err *err)
{
    struct hcp_layer *l = &o->layer;
    if (!o->linear && (o->layer_parts || o->n_tokens > 0))
        return hcp_fail(err, HCP_USAGE,
                        "--hidden, --ffn, --layers, --mlp and --tokens are for --linear");
    if (o->model && o->layer_parts)
        return hcp_fail(err, HCP_USAGE,
                        "give --model, or the shape by --hidden, --ffn, --layers, --mlp");
    if (o->linear &&
        (o->q_given || o->kv_given || o->causal_given || o->grid.n_batches > 0 ||
         *o->plugin || *o->provider || o->how != HCP_RUN_DEFAULT))
        return hcp_fail(err, HCP_USAGE,
                        "--linear measures no attention: leave out lengths, --batches, "
                        "--kernel, --provider, --adaptive and --exhaustive");
    if (o->model) {
        int rc = hcp_layer_find(o->model, l, err);
        if (rc != HCP_OK)
            return rc;
        o->shape.heads = l->heads;
        o->shape.kv_heads = l->kv_heads;
        o->shape.head_dim = l->head_dim;
        return HCP_OK;
    }
    if (!o->linear)
        return HCP_OK;
    if (l->hidden == 0 || l->ffn == 0)
        return hcp_fail(err, HCP_USAGE,
                        "--linear of which layer? give --model, or --hidden and --ffn");
    l->layers = l->layers > 0 ? l->layers : 1;
    l->heads = o->shape.heads;
    l->kv_heads = o->shape.kv_heads;
    l->head_dim = o->shape.head_dim;
    l->gated = !o->plain_mlp;
    return hcp_layer_check(l, err);
}

int hcp_parse_batches(const char *text, struct hcp_grid *grid, struct hcp_err *err)
{
    int rc = hcp_grid_lens(text, "--batches", &grid->batches, &grid->n_batches, err);
    if (rc == HCP_OK && grid->n_batches == 0)
        rc = hcp_fail(err, HCP_USAGE, "--batches 'none': nothing would be measured");
    for (size_t i = 0; i < grid->n_batches && rc == HCP_OK; i++)
        if (grid->batches[i] > 1 << 20)
            rc = hcp_fail(err, HCP_USAGE, "--batches: %lld is more than %d",
                          (long long)grid->batches[i], 1 << 20);
    return rc;
}

int hcp_run_linear_cells(struct hcp_sweep *run, int64_t max_len, struct hcp_err *err)
{
    const struct hcp_run_options *o = run->options;
    enum hcp_half_steps half_steps = o->preset == HCP_PRESET_QUICK      ? HCP_HALF_NONE
                                     : o->preset == HCP_PRESET_THOROUGH ? HCP_HALF_ALL
                                                                        : HCP_HALF_WAVES;
    struct hcp_layer_product products[HCP_LAYER_PRODUCTS];
    int64_t sizes[HCP_LAYER_PRODUCTS][2], *tokens = o->tokens;
    size_t n_tokens = o->n_tokens;
    int rc = HCP_OK;
    hcp_layer_products(&o->layer, products);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
        sizes[i][0] = products[i].n_in;
        sizes[i][1] = products[i].n_out;
    }
    if (n_tokens == 0)
        rc = hcp_linear_tokens(o->max_len ? o->max_len : max_len, half_steps, &tokens,
                               &n_tokens, err);
    for (size_t i = 0; i < run->n_levels && rc == HCP_OK; i++)
        rc = hcp_sweep_linear((const int64_t(*)[2])sizes, HCP_LAYER_PRODUCTS, tokens,
                              n_tokens, (uint64_t)o->seed + i, &run->levels[i].cells,
                              &run->levels[i].n, err);
    if (o->n_tokens == 0)
        free(tokens);
    return rc;
}
