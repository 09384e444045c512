/* SPDX-License-Identifier: Apache-2.0
 *
 * "cudnn": NVIDIA's attention kernels through cuDNN's graph API. O comes in the
 * input type, L as fp32 natural log, (0, -inf) for rows that see nothing. The
 * diagonal is a run-time argument, lengths and strides are baked into a plan.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "kernels/registry.h"

#ifdef HAVE_CUDNN
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"
#include "kernels/cudnn-graph.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DIM = 256, MAX_SPLITS = 64 };

/* One user thread at a time: the handle carries the stream. */
struct hcp_attn_plan {
    const hcp_cudnn_api *api;
    hcp_attn_problem problem;
    int causal; /* the graph takes a diagonal */
    int device;
    cudnnHandle_t handle;
    hcp_cudnn_graph *graph;
};

static const char *version(void)
{
    const hcp_cudnn_api *api = hcp_cudnn_load(NULL, 0);
    return api ? api->version_text : "missing";
}

/* One query of a masked block is a FULL block over the keys that it sees: the
 * engine for one query is not given a mask. */
static int needs_mask(const hcp_attn_problem *p)
{
    return p->causal && p->q_len > 1 && p->diag < p->kv_len - 1;
}

static bool scores_overflow(const hcp_attn_problem *p)
{
    int64_t n;
    return __builtin_mul_overflow(p->batch, p->heads, &n) ||
           __builtin_mul_overflow(n, p->q_len, &n) ||
           __builtin_mul_overflow(n, p->kv_len, &n);
}

static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    const char *why = hcp_cuda_refusal(device, p);
    if (why)
        return why;
    if (p->dtype != HCP_BF16 && p->dtype != HCP_FP16)
        return "takes bf16 and fp16 only";
    if (p->out_dtype != p->dtype)
        return "writes O in the type of Q only";
    if (p->accumulate)
        return "cannot accumulate";
    if (p->batch < 1 || p->q_len < 1 || p->kv_len < 1)
        return "empty block: nothing to launch";
    if (p->head_dim < 8 || p->head_dim > MAX_DIM || p->head_dim % 8)
        return "head dim is not a multiple of 8 up to 256";
    if (!hcp_cuda_strides_aligned(p->q_stride, 2) ||
        !hcp_cuda_strides_aligned(p->k_stride, 2) ||
        !hcp_cuda_strides_aligned(p->v_stride, 2) ||
        !hcp_cuda_strides_aligned(p->o_stride, 2))
        return "a stride is not a multiple of 16 bytes";
    if (scores_overflow(p)) /* never stored, but their strides are given to cuDNN */
        return "the scores are over 2^63 elements";
    if (p->causal && p->q_len == 1 && p->diag < p->kv_len - 1)
        return "one query under a mask: give the keys that it sees as a full block";
    return NULL;
}

/* Bound on what engines ask for, known before one is chosen: 256 bytes for several
 * queries; one query is split over the keys and its parts are kept in fp32. */
static int64_t workspace_bound(const hcp_attn_problem *p)
{
    int64_t rows = p->batch * p->heads;
    if (p->q_len > 1)
        return 1 << 16;
    return (1 << 16) + MAX_SPLITS * rows * (p->head_dim + 2) * (int64_t)sizeof(float);
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
    } else if (hcp_cudnn_load(answer.reason, sizeof answer.reason)) {
        answer.supported = 1;
        answer.workspace_bytes = workspace_bound(problem);
        if (!problem->causal || needs_mask(problem))
            answer.caps = HCP_CAP_DIAG;
        /* Tiles stay 0: an engine and its knobs are known only once a plan is made, and
         * cuDNN does not say which tiles they stand for. */
    }
    *out = answer;
    return HCP_RC_OK;
}

/* The text of a failure goes where the runtime's last_error() finds it. */
static int fail(int rc, const char *why)
{
    hcp_cuda_note(why);
    return rc;
}

static void plan_destroy(hcp_attn_plan *plan)
{
    int current = 0;
    if (!plan)
        return;
    /* A handle's calls belong on its device; the caller may be on another by now. */
    int elsewhere = cudaGetDevice(&current) == cudaSuccess && current != plan->device &&
                    cudaSetDevice(plan->device) == cudaSuccess;
    hcp_cudnn_graph_destroy(plan->graph);
    if (plan->handle)
        hcp_cudnn_give_handle(plan->api, plan->device, plan->handle);
    if (elsewhere)
        cudaSetDevice(current);
    free(plan);
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    char why[512] = "";
    const char *no = refusal(device, problem);
    const hcp_cudnn_api *api = hcp_cudnn_load(why, sizeof why);
    hcp_attn_plan *plan;
    cudnnStatus_t s;
    int rc;
    if (no) {
        hcp_cuda_note(no);
        return HCP_RC_UNSUPPORTED;
    }
    if (!api)
        return fail(HCP_RC_MISSING, why);
    if (!(plan = calloc(1, sizeof *plan)))
        return HCP_RC_NO_MEMORY;
    plan->api = api;
    plan->problem = *problem;
    plan->causal = needs_mask(problem);
    plan->device = device->ordinal;
    rc = hcp_cuda_check(cudaSetDevice(device->ordinal), "select the GPU for cuDNN");
    if (rc != HCP_RC_OK)
        goto out;
    s = hcp_cudnn_take_handle(api, device->ordinal, &plan->handle);
    if (s != CUDNN_STATUS_SUCCESS) {
        snprintf(why, sizeof why, "cuDNN %s: creating a handle failed: %s",
                 api->version_text, api->error_string(s));
        plan->handle = NULL;
        rc = fail(HCP_RC_DEVICE, why);
        goto out;
    }
    rc = hcp_cudnn_graph_create(api, (hcp_cudnn_target){.handle = plan->handle}, problem,
                                plan->causal, &plan->graph, why, sizeof why);
    if (rc == HCP_RC_OK)
        rc =
            hcp_cudnn_graph_build(plan->graph, workspace_bound(problem), why, sizeof why);
    if (rc != HCP_RC_OK)
        rc = fail(rc, why);
out:
    if (rc != HCP_RC_OK) {
        plan_destroy(plan);
        return rc;
    }
    *out = plan;
    return HCP_RC_OK;
}

/* Lengths as planned, any diagonal >= 0 under a mask. Only what the graph has. */
static int check_args(const hcp_attn_plan *plan, const hcp_attn_args *a)
{
    const hcp_attn_problem *p = &plan->problem;
    if (a->q_len != p->q_len || a->kv_len != p->kv_len)
        return 0;
    if (p->causal && (a->diag < 0 || (!plan->causal && a->diag < p->kv_len - 1)))
        return 0;
    return hcp_cuda_args_aligned(a) && (uintptr_t)a->workspace % HCP_CUDA_ALIGN == 0 &&
           (a->workspace || hcp_cudnn_graph_workspace(plan->graph) == 0);
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *a, void *stream)
{
    const hcp_cudnn_api *api = plan->api;
    float scale = (float)plan->problem.scale, neg_inf = -INFINITY;
    /* From the corner on, a larger diagonal shows no more keys; keeps it an int32. */
    int32_t diagonal = (int32_t)(a->diag < a->kv_len ? a->diag : a->kv_len);
    int64_t uids[] = {HCP_CUDNN_Q,       HCP_CUDNN_K,       HCP_CUDNN_V,
                      HCP_CUDNN_O,       HCP_CUDNN_STATS,   HCP_CUDNN_SCALE,
                      HCP_CUDNN_NEG_INF, HCP_CUDNN_DIAGONAL};
    const void *data[] = {a->q, a->k, a->v, a->o, a->lse, &scale, &neg_inf, &diagonal};
    const int64_t n = plan->causal ? 8 : 6;
    cudnnBackendDescriptor_t pack = NULL;
    const char *step = "setting the stream";
    char why[512], said[256] = "";
    cudnnStatus_t s;
    if (a->size < sizeof *a || !check_args(plan, a)) {
        hcp_cuda_note("cuDNN: arguments contradict the plan (lengths, diagonal, 16-byte "
                      "alignment or workspace)");
        return HCP_RC_INVALID;
    }
    if ((s = api->set_stream(plan->handle, (cudaStream_t)stream)) != CUDNN_STATUS_SUCCESS)
        goto out;
    /* Made anew each time: a finalised pack takes no other pointers. */
    step = "binding arguments";
    if ((s = api->create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack)) ||
        (s = api->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                CUDNN_TYPE_INT64, n, uids)) ||
        (s = api->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                CUDNN_TYPE_VOID_PTR, n, data)) ||
        (s = api->set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                CUDNN_TYPE_VOID_PTR, 1, &a->workspace)) ||
        (s = api->finalize(pack)))
        goto out;
    step = "launching";
    s = api->execute(plan->handle, hcp_cudnn_graph_plan(plan->graph), pack);
out:
    if (s != CUDNN_STATUS_SUCCESS) {
        api->last_error_string(said, sizeof said);
        snprintf(why, sizeof why, "cuDNN %s: %s failed: %s: %s", api->version_text, step,
                 api->error_string(s), said);
        hcp_cuda_note(why);
    }
    if (pack)
        api->destroy_descriptor(pack);
    return s == CUDNN_STATUS_SUCCESS ? HCP_RC_OK : HCP_RC_DEVICE;
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    snprintf(text, text_size, "%s%s, workspace %lld bytes",
             hcp_cudnn_graph_text(plan->graph), plan->causal ? ", mask" : "",
             (long long)hcp_cudnn_graph_workspace(plan->graph));
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_cudnn(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CUDA,
        .name = "cudnn",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return &provider;
}
#else
typedef int hcp_no_cudnn_provider; /* a translation unit may not be empty */
#endif
