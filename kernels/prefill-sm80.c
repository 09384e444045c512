/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider around prefill-sm80.cu: checks and bookkeeping, no state of its own.
 */
#include "kernels/prefill-sm80.h"
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>

struct hcp_attn_plan {
    hcp_attn_problem problem;
};

static const char *version(void)
{
    return "1";
}

static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    const char *why = hcp_cuda_tile_refusal(device, p);
    int64_t tiles;
    if (why)
        return why;
    tiles = p->q_len / hcp_cuda_sm80_tile(p->head_dim).rows + 1;
    if (__builtin_mul_overflow(tiles, p->batch * p->heads, &tiles) ||
        tiles > HCP_SM80_MAX_TILES)
        return "over 2^31 tiles of queries: split the batch";
    return NULL;
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    hcp_attn_support answer = {.size = sizeof answer};
    const char *why = refusal(device, problem);
    if (out->size < sizeof answer)
        return HCP_RC_INVALID;
    if (why) {
        snprintf(answer.reason, sizeof answer.reason, "%s", why);
    } else {
        const hcp_sm80_tile tile = hcp_cuda_sm80_tile(problem->head_dim);
        answer.supported = 1;
        answer.caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                      HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC | HCP_CAP_NAN_ROWS;
        answer.tile_q = tile.rows;
        answer.tile_kv = tile.keys;
    }
    *out = answer;
    return HCP_RC_OK;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    hcp_attn_plan *plan;
    const char *why = refusal(device, problem);
    if (why) {
        hcp_cuda_note(why);
        return HCP_RC_UNSUPPORTED;
    }
    if (!(plan = malloc(sizeof *plan)))
        return HCP_RC_NO_MEMORY;
    plan->problem = *problem;
    *out = plan;
    return HCP_RC_OK;
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    hcp_attn_args a;
    const int rc = hcp_cuda_clamp_args(&plan->problem, args, &a);
    if (rc != HCP_RC_OK || !hcp_cuda_args_aligned(&a)) {
        hcp_cuda_note("cuda-mma: arguments contradict the plan (lengths, diagonal or "
                      "16-byte alignment)");
        return HCP_RC_INVALID;
    }
    return hcp_cuda_check(hcp_cuda_launch_sm80(&plan->problem, &a, stream),
                          "launch the mma kernel");
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    const hcp_sm80_tile tile = hcp_cuda_sm80_tile(plan->problem.head_dim);
    snprintf(text, text_size,
             "mma.sync m16n8k16, %d rows x %d keys, %d warps, %d KB of shared memory",
             tile.rows, tile.keys, tile.warps, tile.shared_bytes >> 10);
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_cuda_mma(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CUDA,
        .name = "cuda-mma",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return &provider;
}
