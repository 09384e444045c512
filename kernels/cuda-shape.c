/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda-shape.h"
#include <float.h>
#include <math.h>
#include "kernels/dtype.h"
#include "kernels/geometry.h"

const char *hcp_cuda_refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    if (p->size < sizeof *p)
        return "the problem struct is older than this build's";
    if (device->kind != HCP_DEVICE_CUDA)
        return "runs on CUDA devices only";
    if (device->cc_major < 8)
        return "needs compute capability 8.0 or newer";
    if (!hcp_dtype_bytes(p->dtype) || !hcp_dtype_bytes(p->out_dtype))
        return "unknown dtype";
    if (p->batch < 0 || p->q_len < 0 || p->kv_len < 0 || p->heads < 1 || p->kv_heads < 1)
        return "negative length or no heads";
    if (p->batch > HCP_MAX_LEN || p->q_len > HCP_MAX_LEN || p->kv_len > HCP_MAX_LEN)
        return "a length is over 2^30";
    if (p->heads % p->kv_heads)
        return "heads are not a multiple of KV heads";
    if (p->head_dim < 1)
        return "head dim is below 1";
    if (p->causal && p->diag < 0)
        return "the diagonal is negative";
    return NULL;
}

/* Multiples of the alignment that do not walk backwards. */
static bool fit(const int64_t stride[3], int64_t element_bytes)
{
    return stride[0] >= 0 && stride[1] >= 0 && stride[2] >= 0 &&
           hcp_cuda_strides_aligned(stride, element_bytes);
}

const char *hcp_cuda_tile_refusal(const hcp_device_ref *device,
                                  const hcp_attn_problem *p)
{
    const char *why = hcp_cuda_refusal(device, p);
    int64_t planes;
    if (why)
        return why;
    if (p->dtype != HCP_BF16 && p->dtype != HCP_FP16)
        return "takes bf16 and fp16 only";
    if (p->out_dtype != HCP_FP32 && p->out_dtype != p->dtype)
        return "writes O as fp32 or in the type of Q only";
    if (p->accumulate && p->out_dtype != HCP_FP32)
        return "accumulates into fp32 only";
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return "head dim is not 64, 128 or 256";
    if (!fit(p->q_stride, hcp_dtype_bytes(p->dtype)) ||
        !fit(p->k_stride, hcp_dtype_bytes(p->dtype)) ||
        !fit(p->v_stride, hcp_dtype_bytes(p->dtype)) ||
        !fit(p->o_stride, hcp_dtype_bytes(p->out_dtype)))
        return "a stride is negative or not a multiple of 16 bytes";
    if (__builtin_mul_overflow(p->batch, p->heads, &planes) || planes > HCP_MAX_LEN)
        return "batch x heads is over 2^30";
    if (!(fabs(p->scale) <= FLT_MAX / 2))
        return "the scale is not an fp32 number";
    return NULL;
}

bool hcp_cuda_strides_aligned(const int64_t stride[3], int64_t element_bytes)
{
    const int64_t step = HCP_CUDA_ALIGN / element_bytes;
    return stride[0] % step == 0 && stride[1] % step == 0 && stride[2] % step == 0;
}

bool hcp_cuda_args_aligned(const hcp_attn_args *a)
{
    const uintptr_t bits = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v |
                           (uintptr_t)a->o | (uintptr_t)a->lse;
    return bits % HCP_CUDA_ALIGN == 0;
}

int hcp_cuda_clamp_args(const hcp_attn_problem *p, const hcp_attn_args *args,
                        hcp_attn_args *out)
{
    if (args->size < sizeof *args || args->q_len < 0 || args->q_len > p->q_len ||
        args->kv_len < 0 || args->kv_len > p->kv_len || (p->causal && args->diag < 0))
        return HCP_RC_INVALID;
    *out = *args;
    out->size = sizeof *out;
    /* Beyond the corner the diagonal changes nothing. */
    if (!p->causal || out->diag > out->kv_len)
        out->diag = out->kv_len;
    return HCP_RC_OK;
}
