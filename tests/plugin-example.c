/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in with the fewest abilities, for tests; kernels/plugin-template.c, which users
 * begin with, has all of them.
 *
 * It says what it does not do and leaves the rest to the caller: L comes in base 2,
 * O in the dtype of the inputs, the mask is causal from the bottom right corner only,
 * nothing is accumulated. It needs no memory, so a plan is a copy of the problem.
 */
#include <hcp/provider.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 512 };

struct hcp_attn_plan {
    hcp_attn_problem problem;
};

static float load(const void *p, int64_t i, int32_t dtype)
{
    if (dtype == HCP_FP32)
        return ((const float *)p)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest even; sums of finite bf16 numbers with weights below 1 stay finite. */
static void store(void *p, int64_t i, float x, int32_t dtype)
{
    uint32_t bits;
    if (dtype == HCP_FP32) {
        ((float *)p)[i] = x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static const char *version(void)
{
    return "1.0";
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *p,
                 hcp_attn_support *out)
{
    const char *no = NULL;
    if (out->size < sizeof *out || p->size < sizeof *p)
        return HCP_RC_INVALID;
    *out = (hcp_attn_support){.size = out->size};
    if (device->kind != HCP_DEVICE_CPU)
        no = "runs on the CPU only";
    else if (p->dtype == HCP_FP16)
        no = "no fp16";
    else if (p->out_dtype != p->dtype)
        no = "output in the dtype of the inputs only";
    else if (p->accumulate)
        no = "does not accumulate";
    else if (p->head_dim > MAX_DIM)
        no = "head_dim up to 512";
    else if (p->causal && p->diag != p->kv_len - p->q_len)
        no = "causal from the bottom right corner only";
    if (no) {
        snprintf(out->reason, sizeof out->reason, "%s", no);
        return HCP_RC_OK;
    }
    out->supported = 1;
    out->caps = HCP_CAP_LSE_LOG2 | HCP_CAP_DETERMINISTIC;
    if (p->dtype == HCP_FP32)
        out->caps |= HCP_CAP_OUT_FP32;
    out->tile_q = out->tile_kv = 1;
    return HCP_RC_OK;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *p,
                       hcp_attn_plan **out)
{
    hcp_attn_support s = {.size = sizeof s};
    int rc = query(device, p, &s);
    if (rc || !s.supported)
        return rc ? rc : HCP_RC_UNSUPPORTED;
    hcp_attn_plan *plan = malloc(sizeof *plan);
    if (!plan)
        return HCP_RC_NO_MEMORY;
    plan->problem = *p;
    *out = plan;
    return HCP_RC_OK;
}

/* Softmax over a stream of keys: when a larger score comes, what there is shrinks. */
static void run_row(const hcp_attn_problem *p, const hcp_attn_args *a, int64_t b,
                    int64_t h, int64_t i)
{
    int64_t dim = p->head_dim, kv_head = h / (p->heads / p->kv_heads);
    int64_t q = b * p->q_stride[0] + h * p->q_stride[1] + i * p->q_stride[2];
    int64_t k = b * p->k_stride[0] + kv_head * p->k_stride[1];
    int64_t v = b * p->v_stride[0] + kv_head * p->v_stride[1];
    int64_t o = b * p->o_stride[0] + h * p->o_stride[1] + i * p->o_stride[2];
    int64_t keys = p->causal ? i + p->diag + 1 : p->kv_len;
    float query_row[MAX_DIM], sum[MAX_DIM] = {0}, top = -INFINITY, total = 0;
    float scale = (float)(p->scale * 1.44269504088896340736);

    for (int64_t d = 0; d < dim; d++)
        query_row[d] = load(a->q, q + d, p->dtype) * scale;
    for (int64_t j = 0; j < keys; j++, k += p->k_stride[2], v += p->v_stride[2]) {
        float score = 0;
        for (int64_t d = 0; d < dim; d++)
            score += query_row[d] * load(a->k, k + d, p->dtype);
        if (score > top) {
            float shrink = exp2f(top - score);
            total *= shrink;
            for (int64_t d = 0; d < dim; d++)
                sum[d] *= shrink;
            top = score;
        }
        float weight = exp2f(score - top);
        total += weight;
        for (int64_t d = 0; d < dim; d++)
            sum[d] += weight * load(a->v, v + d, p->dtype);
    }
    for (int64_t d = 0; d < dim; d++)
        store(a->o, o + d, sum[d] / total, p->out_dtype);
    a->lse[(b * p->heads + h) * p->q_len + i] = top + log2f(total);
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &plan->problem;
    (void)stream;
    if (args->size < sizeof *args || args->q_len != p->q_len ||
        args->kv_len != p->kv_len || (p->causal && args->diag != p->diag))
        return HCP_RC_INVALID;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                run_row(p, args, b, h, i);
    return HCP_RC_OK;
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    (void)plan;
    snprintf(text, text_size, "one row at a time, one core");
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_get(uint32_t abi)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CPU,
        .name = "example",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return abi == HCP_PROVIDER_ABI ? &provider : NULL;
}
