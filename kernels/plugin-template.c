/* SPDX-License-Identifier: Apache-2.0
 *
 * Template of an attention plug-in; hcp-provider(7) explains it.
 *
 *   cc -std=c17 -O3 -shared -fPIC -o my-kernel.so plugin-template.c -lm
 *   hcp-profile conform --kernel ./my-kernel.so --device cpu --set quick
 *   hcp-profile run --kernel ./my-kernel.so --device cpu ...
 *
 * It is complete and correct as it stands: attention on one core of the CPU, bf16 or
 * fp32 in, fp32 out, everything that the interface knows. To make it yours: name it
 * (at the end), let query() say what your kernel takes, put your launch in run(), and
 * take out of caps what your kernel cannot do: the caller then does it instead.
 */
#include <hcp/provider.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 256, LANES = 8 };

/* What run() needs and does not find in its arguments: the problem; of a GPU kernel also
 * its function, its launch shape, descriptors that do not depend on addresses. */
struct hcp_attn_plan {
    hcp_attn_problem problem;
};

/* Goes into every row that is stored: cells that were measured with another version are
 * measured again. Of a library's kernel it is the library's. Never NULL. */
static const char *version(void)
{
    return "1.0";
}

/* Why this problem cannot be served on this device, one line; NULL: it can be. */
static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    if (device->kind != HCP_DEVICE_CPU)
        return "runs on the CPU only";
    /* A CUDA kernel: HCP_DEVICE_CUDA, and device->cc_major * 10 + device->cc_minor. */
    if (p->dtype != HCP_BF16 && p->dtype != HCP_FP32)
        return "takes bf16 and fp32 only";
    if (p->out_dtype != HCP_FP32)
        return "writes O in fp32 only";
    if (p->head_dim > MAX_DIM)
        return "head dim is over 256";
    /* Further reasons of real kernels: other head dims; strides that are no multiples of
     * 16 bytes (where they are, the pointers are aligned too); lengths over 2^31. */
    return NULL;
}

/* Called often, for problems that are never run. Makes nothing, changes nothing. */
static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    if (device->size < sizeof *device || problem->size < sizeof *problem ||
        out->size < sizeof *out)
        return HCP_RC_INVALID;
    hcp_attn_support answer = {.size = out->size}; /* the caller's struct may be longer */
    const char *why = refusal(device, problem);
    if (why) {
        snprintf(answer.reason, sizeof answer.reason, "%s", why);
    } else {
        answer.supported = 1;
        answer.caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                      HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC;
        answer.workspace_bytes = 0; /* all the memory that run() may use beside O and L */
        answer.tile_q = answer.tile_kv = 1; /* 0: not known */
    }
    memcpy(out, &answer, sizeof answer);
    return HCP_RC_OK;
}

/* Whatever is slow belongs here: compiling, choosing, cudaFuncSetAttribute(). */
static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    if (refusal(device, problem))
        return HCP_RC_UNSUPPORTED;
    hcp_attn_plan *plan = malloc(sizeof *plan);
    if (!plan)
        return HCP_RC_NO_MEMORY;
    plan->problem = *problem;
    *out = plan;
    return HCP_RC_OK;
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

/* n contiguous numbers from element i of a tensor. */
static void load(float *to, const void *tensor, int64_t i, int64_t n, int32_t dtype)
{
    if (dtype == HCP_FP32) {
        memcpy(to, (const float *)tensor + i, (size_t)n * sizeof *to);
        return;
    }
    const uint16_t *from = (const uint16_t *)tensor + i;
    for (int64_t d = 0; d < n; d++) { /* bf16 is the upper half of a float */
        uint32_t bits = (uint32_t)from[d] << 16;
        memcpy(&to[d], &bits, sizeof bits);
    }
}

/* In LANES sums, so that a compiler may use vectors without changing the result. */
static float dot(const float *x, const float *y, int64_t n)
{
    float lane[LANES] = {0}, sum = 0;
    int64_t d = 0;
    for (; d + LANES <= n; d += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += x[d + l] * y[d + l];
    for (; d < n; d++)
        lane[0] += x[d] * y[d];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* One row by one pass over its keys: when a larger score comes, what there is shrinks.
 * top + log(total) is L, sum / total is O. */
static void attend_row(const hcp_attn_problem *p, const hcp_attn_args *a, int64_t b,
                       int64_t h, int64_t i)
{
    int64_t dim = p->head_dim;
    int64_t kv_head = h / (p->heads / p->kv_heads); /* KV heads are shared, not copied */
    int64_t q = b * p->q_stride[0] + h * p->q_stride[1] + i * p->q_stride[2];
    int64_t k = b * p->k_stride[0] + kv_head * p->k_stride[1];
    int64_t v = b * p->v_stride[0] + kv_head * p->v_stride[1];
    float *o = (float *)a->o;
    o += b * p->o_stride[0] + h * p->o_stride[1] + i * p->o_stride[2];
    float *lse = a->lse + (b * p->heads + h) * a->q_len + i; /* this run's q_len */
    float query_row[MAX_DIM], row[MAX_DIM], sum[MAX_DIM] = {0};
    float top = -INFINITY, total = 0;

    /* Row i sees the keys j <= i + diag: diag may be far beyond the last key. */
    int64_t keys = a->kv_len;
    if (p->causal && a->diag < a->kv_len - 1 - i)
        keys = i + a->diag + 1;
    /* The running state is one more key whose score is L and whose value is O; where L
     * is -inf there is no state, and O is not read. */
    if (p->accumulate && *lse != -INFINITY) {
        top = *lse;
        total = 1;
        memcpy(sum, o, (size_t)dim * sizeof *o);
    }
    load(query_row, a->q, q, dim, p->dtype);
    for (int64_t j = 0; j < keys; j++, k += p->k_stride[2], v += p->v_stride[2]) {
        load(row, a->k, k, dim, p->dtype);
        float score = dot(query_row, row, dim) * (float)p->scale;
        if (score > top) {
            float shrink = expf(top - score); /* 0 at the first key */
            total *= shrink;
            for (int64_t d = 0; d < dim; d++)
                sum[d] *= shrink;
            top = score;
        }
        float weight = expf(score - top);
        total += weight;
        load(row, a->v, v, dim, p->dtype);
        for (int64_t d = 0; d < dim; d++)
            sum[d] += weight * row[d];
    }
    /* Only the head_dim elements of the row are written: what lies between rows is the
     * caller's. A row that has seen nothing is (0, -inf); with a NaN it is NaN. */
    for (int64_t d = 0; d < dim; d++)
        o[d] = total == 0 ? 0 : sum[d] / total;
    *lse = total == 0 ? -INFINITY : top + logf(total);
}

/* May be called by many threads at a time, with different plans: no globals. Allocates
 * nothing and waits for nothing. */
static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &plan->problem;
    if (args->size < sizeof *args || args->q_len < 0 || args->q_len > p->q_len ||
        args->kv_len < 0 || args->kv_len > p->kv_len || (p->causal && args->diag < 0))
        return HCP_RC_INVALID;
    /* A CUDA kernel is launched here, and not waited for:
     *     mine<<<grid, block, shared, (cudaStream_t)stream>>>(...);
     *     return cudaPeekAtLastError() == cudaSuccess ? HCP_RC_OK : HCP_RC_DEVICE;
     * A counter in args->workspace is set to zero by cudaMemsetAsync() on the stream. */
    (void)stream;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < args->q_len; i++)
                attend_row(p, args, b, h, i);
    return HCP_RC_OK;
}

/* Stored with each row as provider_config: what of the kernel this plan runs. */
static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    snprintf(text, text_size, "one row at a time, one core, head dim %lld",
             (long long)plan->problem.head_dim);
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_get(uint32_t abi)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CPU, /* or HCP_DEVICE_CUDA, or both */
        .name = "my-kernel",            /* no built-in's; rows are kept under it */
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return abi == HCP_PROVIDER_ABI ? &provider : NULL;
}
