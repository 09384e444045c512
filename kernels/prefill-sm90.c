/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider around prefill-sm90.cu: checks, the driver's encoder of tensor maps, and
 * the maps of a run.
 */
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"
#include "kernels/prefill-sm90.h"
#include "kernels/registry.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* int32 tile numbers and row + diagonal, with room for what a grid counts beyond. */
static const int64_t MAX_COUNT = INT32_MAX - (1 << 16);

/* Rows of the smallest tile of any kernel. */
enum { MIN_TILE_Q = 128 };

/* TMA strides: below 2^40 bytes. */
static const int64_t MAX_STRIDE_BYTES = (int64_t)1 << 40;

/* K and V of the heads that are worked on at a time: what stays in the L2 (50 MB, in two
 * halves) while their queries are served. */
static const int64_t L2_SHARE_BYTES = 32 << 20;

struct hcp_attn_plan {
    hcp_attn_problem problem;
    PFN_cuTensorMapEncodeTiled_v12000 encode;
    int sm_count;
};

static const char *version(void)
{
    return "1";
}

static float scale_log2_of(const hcp_attn_problem *p)
{
    return (float)(p->scale * 1.4426950408889634074);
}

/* A tensor's axis of several needs a stride that TMA can walk. */
static int walkable(const hcp_attn_problem *p, const int64_t stride[3], int64_t heads,
                    int64_t len)
{
    const int64_t count[3] = {p->batch, heads, len};
    for (int i = 0; i < 3; i++)
        if (count[i] > 1 && (stride[i] == 0 || stride[i] >= MAX_STRIDE_BYTES / 2))
            return 0;
    return 1;
}

static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    const char *why = hcp_cuda_tile_refusal(device, p);
    int64_t tiles;
    if (why)
        return why;
    if (device->cc_major != 9 || device->cc_minor != 0)
        return "built for compute capability 9.0 only";
    const float scale_log2 = scale_log2_of(p);
    if (!(scale_log2 >= FLT_MIN && scale_log2 <= FLT_MAX))
        return "the scale is not a positive fp32 number";
    if (!walkable(p, p->q_stride, p->heads, p->q_len) ||
        !walkable(p, p->k_stride, p->kv_heads, p->kv_len) ||
        !walkable(p, p->v_stride, p->kv_heads, p->kv_len))
        return "a stride is 0 or not below 2^40 bytes";
    if (p->q_len + p->kv_len > MAX_COUNT)
        return "q_len and kv_len are too long together";
    if (__builtin_mul_overflow(p->batch * p->heads,
                               (p->q_len + MIN_TILE_Q - 1) / MIN_TILE_Q, &tiles) ||
        tiles > MAX_COUNT)
        return "over 2^31 tiles of query rows";
    return NULL;
}

static int sm_count_of(const hcp_device_ref *device)
{
    return device->sm_count > 0 ? device->sm_count : 1;
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    hcp_attn_support answer = {.size = sizeof answer};
    if (out->size < sizeof answer)
        return HCP_RC_INVALID;
    const char *why = refusal(device, problem);
    if (why) {
        snprintf(answer.reason, sizeof answer.reason, "%s", why);
    } else {
        const hcp_sm90_tile tile = hcp_cuda_prefill_sm90_tile(problem);
        answer.supported = 1;
        answer.caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                      HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC | HCP_CAP_NAN_ROWS;
        answer.workspace_bytes = sizeof(int32_t); /* the tile counter */
        answer.tile_q = tile.q;
        answer.tile_kv = tile.kv;
    }
    *out = answer;
    return HCP_RC_OK;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    enum cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
    hcp_attn_plan *plan;
    const char *why = refusal(device, problem);
    if (why) {
        hcp_cuda_note(why);
        return HCP_RC_UNSUPPORTED;
    }
    int rc =
        hcp_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode,
                                                        12000, cudaEnableDefault, &found),
                       "find the driver's encoder of tensor maps");
    if (rc)
        return rc;
    if (found != cudaDriverEntryPointSuccess || !encode) {
        hcp_cuda_note("the driver has no cuTensorMapEncodeTiled; install one for CUDA 12 "
                      "or newer");
        return HCP_RC_MISSING;
    }
    if (!(plan = malloc(sizeof *plan)))
        return HCP_RC_NO_MEMORY;
    *plan = (hcp_attn_plan){
        .problem = *problem,
        .encode = (PFN_cuTensorMapEncodeTiled_v12000)encode,
        .sm_count = sm_count_of(device),
    };
    *out = plan;
    return HCP_RC_OK;
}

/* The map of a tensor of len tokens, read in boxes of `box` tokens by HCP_SM90_SLAB
 * columns. An axis of one has any stride, no token counts as one (it is not read). */
static int encode(const hcp_attn_plan *plan, CUtensorMap *map, const void *data,
                  const int64_t stride[3], int64_t heads, int64_t len, int32_t box)
{
    const hcp_attn_problem *p = &plan->problem;
    const cuuint64_t dims[4] = {(cuuint64_t)p->head_dim, (cuuint64_t)(len ? len : 1),
                                (cuuint64_t)heads, (cuuint64_t)p->batch};
    cuuint64_t bytes[3];
    for (int i = 0; i < 3; i++)
        bytes[i] = dims[i + 1] > 1 ? (cuuint64_t)stride[2 - i] * 2 : HCP_CUDA_ALIGN;
    const cuuint32_t boxes[4] = {HCP_SM90_SLAB, (cuuint32_t)box, 1, 1};
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    CUresult r = plan->encode(map,
                              p->dtype == HCP_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                              4, (void *)(uintptr_t)data, dims, bytes, boxes, steps,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS)
        return HCP_RC_OK;
    char text[160];
    snprintf(text, sizeof text,
             "the driver refuses a tensor map (CUDA driver error %d) of %lld heads x "
             "%lld tokens at %p",
             (int)r, (long long)heads, (long long)len, data);
    hcp_cuda_note(text);
    return HCP_RC_DEVICE;
}

/* How many tiles there are and in which order they come; see locate() of the kernel. */
static void schedule(hcp_sm90_prefill *job, int64_t head_dim, int32_t tile_q)
{
    const int64_t kv_bytes = 2 * 2 * head_dim * (job->kv_len ? job->kv_len : 1);
    const int64_t fit = L2_SHARE_BYTES / kv_bytes;
    const int64_t planes = (int64_t)job->batch * job->kv_heads;
    job->row_blocks = (job->q_len + tile_q - 1) / tile_q;
    job->tiles = (int32_t)((int64_t)job->row_blocks * job->batch * job->heads);
    job->section = (int32_t)(fit < 1 ? 1 : fit > planes ? planes : fit);
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &plan->problem;
    const hcp_sm90_tile tile = hcp_cuda_prefill_sm90_tile(p);
    hcp_sm90_prefill job = {0};
    hcp_attn_args a;
    int rc = hcp_cuda_clamp_args(p, args, &a);
    if (rc)
        return rc;
    if (p->batch == 0 || a.q_len == 0)
        return HCP_RC_OK;
    if (!hcp_cuda_args_aligned(&a) || !a.workspace) {
        hcp_cuda_note("a tensor is not aligned to 16 bytes, or there is no workspace");
        return HCP_RC_INVALID;
    }
    /* The encoder wants an address of what is not read either. */
    const void *k = a.kv_len ? a.k : a.q, *v = a.kv_len ? a.v : a.q;
    if ((rc = encode(plan, &job.q, a.q, p->q_stride, p->heads, a.q_len, tile.q)) ||
        (rc = encode(plan, &job.k, k, p->k_stride, p->kv_heads, a.kv_len, tile.kv)) ||
        (rc = encode(plan, &job.v, v, p->v_stride, p->kv_heads, a.kv_len, tile.kv)))
        return rc;
    job.o = a.o;
    job.lse = a.lse;
    job.counter = a.workspace;
    for (int i = 0; i < 3; i++)
        job.o_stride[i] = p->o_stride[i];
    job.q_len = (int32_t)a.q_len;
    job.kv_len = (int32_t)a.kv_len;
    job.diag = (int32_t)a.diag;
    job.heads = (int32_t)p->heads;
    job.kv_heads = (int32_t)p->kv_heads;
    job.batch = (int32_t)p->batch;
    job.out_fp32 = p->out_dtype == HCP_FP32;
    job.accumulate = p->accumulate;
    job.scale_log2 = scale_log2_of(p);
    schedule(&job, p->head_dim, tile.q);
    return hcp_cuda_check(hcp_cuda_launch_prefill_sm90(p, &job, plan->sm_count, stream),
                          "launch the Hopper attention kernel");
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    const hcp_sm90_tile tile = hcp_cuda_prefill_sm90_tile(&plan->problem);
    snprintf(text, text_size, "wgmma, %d rows x %d keys a tile, %d SMs", (int)tile.q,
             (int)tile.kv, plan->sm_count);
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_cuda_wgmma(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CUDA,
        .name = "cuda-wgmma",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return &provider;
}
