/* SPDX-License-Identifier: Apache-2.0 */
#include "db/layer.h"
#include <stdio.h>
#include <string.h>

int hcp_layer_check(const struct hcp_layer *l, struct hcp_err *err)
{
    const int64_t most = (int64_t)1 << 24;

    if (l->hidden < 1 || l->hidden > most || l->ffn < 1 || l->ffn > most ||
        l->layers < 1 || l->heads < 1 || l->heads > 65536 || l->kv_heads < 1 ||
        l->head_dim < 1 || l->head_dim > 65536)
        return hcp_fail(err, HCP_USAGE,
                        "a layer of hidden %lld, ffn %lld, %d layers, %d/%d heads of %d: "
                        "all must be positive, hidden and ffn at most %lld",
                        (long long)l->hidden, (long long)l->ffn, (int)l->layers,
                        (int)l->heads, (int)l->kv_heads, (int)l->head_dim,
                        (long long)most);
    if (l->heads % l->kv_heads)
        return hcp_fail(err, HCP_USAGE, "%d heads are no multiple of %d KV heads",
                        (int)l->heads, (int)l->kv_heads);
    return HCP_OK;
}

void hcp_layer_products(const struct hcp_layer *l,
                        struct hcp_layer_product out[HCP_LAYER_PRODUCTS])
{
    int64_t heads = (int64_t)l->heads * l->head_dim;
    int64_t kv = (int64_t)l->kv_heads * l->head_dim;

    out[0] = (struct hcp_layer_product){"qkv", l->hidden, heads + 2 * kv};
    out[1] = (struct hcp_layer_product){"out", heads, l->hidden};
    out[2] = (struct hcp_layer_product){"up", l->hidden, l->gated ? 2 * l->ffn : l->ffn};
    out[3] = (struct hcp_layer_product){"down", l->ffn, l->hidden};
}

const char *hcp_linear_source_name(enum hcp_linear_source source)
{
    return source == HCP_LINEAR_MEASURED       ? "measured"
           : source == HCP_LINEAR_INTERPOLATED ? "interpolated"
                                               : "extrapolated";
}
