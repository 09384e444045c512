/* SPDX-License-Identifier: Apache-2.0
 *
 * FlashAttention-3 on Hopper as a plug-in: the worked example of hcp-provider(7), which
 * says where each fact comes from and how to build this. It calls the kernels' own launch
 * functions, so that neither PyTorch nor Python is needed.
 *
 * Written for github.com/Dao-AILab/flash-attention, commit 0251105 (August 2026), folder
 * hopper/; nothing there promises to keep flash.h as it is.
 */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <cutlass/numeric_types.h>
#include <hcp/provider.h>
#include "flash.h"     /* Flash_fwd_params, run_mha_fwd_ */
#include "tile_size.h" /* tile_size_fwd_sm90 */

#ifndef FA3_VERSION
#error "say which FlashAttention this is: -DFA3_VERSION='\"3.0.0+0251105\"'"
#endif

typedef void (*launch_fn)(Flash_fwd_params &, cudaStream_t);

struct hcp_attn_plan {
    hcp_attn_problem problem;
    Flash_fwd_params params; /* all but the pointers */
    launch_fn launch;
    int tile_q, tile_kv;
};

static const char *version(void)
{
    return FA3_VERSION;
}

/* Neither split KV, paged KV, softcap nor packed query heads: of each type and head dim
 * the one instance in instantiations/flash_fwd_hdimD_TYPE_sm90.cu. */
template <typename T, int D> static launch_fn instance(void)
{
    return run_mha_fwd_<90, T, D, D, false, false, false, false>;
}

template <typename T> static launch_fn launcher_of(int64_t head_dim)
{
    return head_dim == 64    ? instance<T, 64>()
           : head_dim == 128 ? instance<T, 128>()
           : head_dim == 256 ? instance<T, 256>()
                             : nullptr;
}

static launch_fn launcher(const hcp_attn_problem *p)
{
    return p->dtype == HCP_BF16   ? launcher_of<cutlass::bfloat16_t>(p->head_dim)
           : p->dtype == HCP_FP16 ? launcher_of<cutlass::half_t>(p->head_dim)
                                  : nullptr;
}

/* What TMA asks for: multiples of 16 bytes, in elements of two. The pointers are aligned
 * then too. */
static int aligned(const int64_t stride[3])
{
    return stride[0] % 8 == 0 && stride[1] % 8 == 0 && stride[2] % 8 == 0;
}

static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    const int64_t longest = (int64_t)1 << 30; /* lengths are int, and are rounded up */
    if (device->kind != HCP_DEVICE_CUDA || device->cc_major != 9 || device->cc_minor != 0)
        return "built for compute capability 9.0 only";
    if (p->dtype != HCP_BF16 && p->dtype != HCP_FP16)
        return "takes bf16 and fp16 only";
    if (!launcher(p))
        return "head dim is not 64, 128 or 256";
    if (p->out_dtype != p->dtype)
        return "writes O in the type of Q only";
    if (p->accumulate)
        return "cannot accumulate";
    if (p->causal && p->diag != p->kv_len - p->q_len)
        return "causal from the bottom right corner only";
    if (p->batch < 1 || p->q_len < 1 || p->kv_len < 1)
        return "empty block: nothing to launch";
    if (p->q_len > longest || p->kv_len > longest)
        return "a length is over 2^30";
    if (!aligned(p->q_stride) || !aligned(p->k_stride) || !aligned(p->v_stride) ||
        !aligned(p->o_stride))
        return "a stride is not a multiple of 16 bytes";
    if (device->sm_count < 2)
        return "needs two SMs";
    return nullptr;
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    if (device->size < sizeof *device || problem->size < sizeof *problem ||
        out->size < sizeof *out)
        return HCP_RC_INVALID;
    hcp_attn_support answer = {};
    const char *why = refusal(device, problem);
    answer.size = out->size;
    if (why) {
        snprintf(answer.reason, sizeof answer.reason, "%s", why);
    } else {
        int d = (int)problem->head_dim;
        auto tile = tile_size_fwd_sm90(d, d, problem->causal, false);
        answer.supported = 1;
        /* L is natural, an empty row gives (0, -inf); a row is one thread block's, which
         * goes over the keys in order, whatever the schedule. */
        answer.caps = HCP_CAP_DETERMINISTIC;
        answer.workspace_bytes = problem->causal ? 16 : 0; /* the tile counter */
        answer.tile_q = std::get<0>(tile);
        answer.tile_kv = std::get<1>(tile);
    }
    *out = answer;
    return HCP_RC_OK;
}

static void set_params(Flash_fwd_params &f, const hcp_device_ref *device,
                       const hcp_attn_problem *p)
{
    f = {};
    f.b = f.b_k = (int)p->batch;
    f.h = (int)p->heads;
    f.h_k = (int)p->kv_heads; /* head h reads KV head h / (h / h_k): nothing to expand */
    f.seqlen_q = (int)p->q_len;
    f.seqlen_k = (int)p->kv_len;
    f.d = f.d_rounded = f.dv = f.dv_rounded = (int)p->head_dim;
    /* Elements, as here: batch, head, token ("row"). */
    f.q_batch_stride = p->q_stride[0];
    f.q_head_stride = p->q_stride[1];
    f.q_row_stride = p->q_stride[2];
    f.k_batch_stride = p->k_stride[0];
    f.k_head_stride = p->k_stride[1];
    f.k_row_stride = p->k_stride[2];
    f.v_batch_stride = p->v_stride[0];
    f.v_head_stride = p->v_stride[1];
    f.v_row_stride = p->v_stride[2];
    f.v_dim_stride = 1;
    f.o_batch_stride = p->o_stride[0];
    f.o_head_stride = p->o_stride[1];
    f.o_row_stride = p->o_stride[2];
    f.scale_softmax = (float)p->scale;
    f.is_bf16 = p->dtype == HCP_BF16;
    f.is_causal = p->causal != 0;
    f.window_size_left = f.seqlen_k - 1;
    f.window_size_right = f.is_causal ? 0 : f.seqlen_q - 1;
    f.page_size = 1;
    f.num_splits = 1;
    f.arch = 90;
    /* Thread blocks of the persistent grid: what a limiter leaves, not what the card has.
     * Without a mask they come in clusters of two: an odd number cannot be launched. */
    f.num_sm = device->sm_count / 2 * 2;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    if (refusal(device, problem))
        return HCP_RC_UNSUPPORTED;
    hcp_attn_plan *plan = (hcp_attn_plan *)malloc(sizeof *plan);
    if (!plan)
        return HCP_RC_NO_MEMORY;
    int d = (int)problem->head_dim;
    auto tile = tile_size_fwd_sm90(d, d, problem->causal, false);
    plan->problem = *problem;
    plan->launch = launcher(problem);
    plan->tile_q = std::get<0>(tile);
    plan->tile_kv = std::get<1>(tile);
    set_params(plan->params, device, problem);
    *out = plan;
    return HCP_RC_OK;
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &plan->problem;
    if (args->size < sizeof *args || args->q_len != p->q_len ||
        args->kv_len != p->kv_len || (p->causal && args->diag != p->diag))
        return HCP_RC_INVALID;
    Flash_fwd_params f = plan->params;
    f.q_ptr = (void *)args->q;
    f.k_ptr = (void *)args->k;
    f.v_ptr = (void *)args->v;
    f.o_ptr = args->o;
    f.softmax_lse_ptr = args->lse; /* fp32 [batch][head][q_len], contiguous: as here */
    if (f.is_causal) { /* unequal tiles are drawn from a counter that begins at 0 */
        f.tile_count_semaphore = (int *)args->workspace;
        if (!f.tile_count_semaphore ||
            cudaMemsetAsync(f.tile_count_semaphore, 0, sizeof(int),
                            (cudaStream_t)stream) != cudaSuccess)
            return HCP_RC_DEVICE;
    }
    plan->launch(f, (cudaStream_t)stream); /* prints and exits where it cannot launch */
    return cudaPeekAtLastError() == cudaSuccess ? HCP_RC_OK : HCP_RC_DEVICE;
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    snprintf(text, text_size, "head dim %d, tile %dx%d%s, %d SMs", plan->params.d,
             plan->tile_q, plan->tile_kv, plan->params.is_causal ? ", mask" : "",
             plan->params.num_sm);
    return HCP_RC_OK;
}

extern "C" const hcp_provider *hcp_provider_get(uint32_t abi)
{
    static const hcp_provider provider = {
        sizeof provider, HCP_PROVIDER_ABI,
        HCP_DEVICE_CUDA, "flash-attention-3",
        version,         query,
        plan_create,     run,
        plan_destroy,    describe,
    };
    return abi == HCP_PROVIDER_ABI ? &provider : nullptr;
}
