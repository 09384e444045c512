/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider around prefill-sm90.cu: checks, the driver's encoder of tensor maps, and
 * the maps of a run.
 */
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"
#include "kernels/prefill-sm90.h"
#include "kernels/registry.h"
#include "kernels/sm90-maps.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* int32 tile numbers and row + diagonal, with room for what a grid counts beyond. */
static const int64_t MAX_COUNT = INT32_MAX - (1 << 16);

/* Rows of the smallest tile of any kernel. */
enum { MIN_TILE_Q = 128 };

/* K and V of the heads that are worked on at a time: what stays in the L2 (50 MB, in two
 * halves) while their queries are served. */
static const int64_t L2_SHARE_BYTES = 32 << 20;

struct hcp_attn_plan {
    hcp_attn_problem problem;
    hcp_sm90_encoder encode;
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
    if (!hcp_sm90_walkable(p, p->q_stride, p->heads, p->q_len) ||
        !hcp_sm90_walkable(p, p->k_stride, p->kv_heads, p->kv_len) ||
        !hcp_sm90_walkable(p, p->v_stride, p->kv_heads, p->kv_len))
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
    hcp_sm90_encoder encode;
    hcp_attn_plan *plan;
    const char *why = refusal(device, problem);
    if (why) {
        hcp_cuda_note(why);
        return HCP_RC_UNSUPPORTED;
    }
    int rc = hcp_sm90_find_encoder(&encode);
    if (rc)
        return rc;
    if (!(plan = malloc(sizeof *plan)))
        return HCP_RC_NO_MEMORY;
    *plan = (hcp_attn_plan){
        .problem = *problem,
        .encode = encode,
        .sm_count = sm_count_of(device),
    };
    *out = plan;
    return HCP_RC_OK;
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
    if ((rc = hcp_sm90_encode(plan->encode, p, &job.q, a.q, p->q_stride, p->heads,
                              a.q_len, tile.q)) ||
        (rc = hcp_sm90_encode(plan->encode, p, &job.k, k, p->k_stride, p->kv_heads,
                              a.kv_len, tile.kv)) ||
        (rc = hcp_sm90_encode(plan->encode, p, &job.v, v, p->v_stride, p->kv_heads,
                              a.kv_len, tile.kv)))
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
