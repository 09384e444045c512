/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider around reference.cu: checks and bookkeeping, no state of its own.
 */
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_DIM = 256 };

struct hcp_attn_plan {
    hcp_attn_problem problem;
};

static const char *version(void)
{
    return "1";
}

static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    const char *why = hcp_cuda_refusal(device, p);
    if (why)
        return why;
    if (p->head_dim > MAX_DIM)
        return "head dim is over 256";
    if (p->accumulate && p->out_dtype != HCP_FP32)
        return "accumulates into fp32 only";
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
        answer.supported = 1;
        answer.caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                      HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC | HCP_CAP_NAN_ROWS;
        answer.tile_q = answer.tile_kv = 32;
    }
    *out = answer;
    return HCP_RC_OK;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    hcp_attn_plan *plan;
    if (refusal(device, problem))
        return HCP_RC_UNSUPPORTED;
    if (!(plan = malloc(sizeof *plan)))
        return HCP_RC_NO_MEMORY;
    plan->problem = *problem;
    *out = plan;
    return HCP_RC_OK;
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &plan->problem;
    hcp_attn_args a;
    int rc = hcp_cuda_clamp_args(p, args, &a);
    if (rc)
        return rc;
    return hcp_cuda_check(hcp_cuda_launch_reference(p, &a, stream),
                          "launch the reference kernel");
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    snprintf(text, text_size, "fp32, 32 rows x 32 keys a block, head dim %lld",
             (long long)plan->problem.head_dim);
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_cuda_reference(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CUDA,
        .name = "cuda-reference",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return &provider;
}
