/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/sm90-maps.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"

/* TMA strides: below 2^40 bytes. */
static const int64_t MAX_STRIDE_BYTES = (int64_t)1 << 40;

bool hcp_sm90_walkable(const hcp_attn_problem *p, const int64_t stride[3], int64_t heads,
                       int64_t len)
{
    const int64_t count[3] = {p->batch, heads, len};
    for (int i = 0; i < 3; i++)
        if (count[i] > 1 && (stride[i] == 0 || stride[i] >= MAX_STRIDE_BYTES / 2))
            return false;
    return true;
}

int hcp_sm90_find_encoder(hcp_sm90_encoder *out)
{
    enum cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
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
    *out = (hcp_sm90_encoder)encode;
    return HCP_RC_OK;
}

int hcp_sm90_encode(hcp_sm90_encoder encode, const hcp_attn_problem *p, CUtensorMap *map,
                    const void *data, const int64_t stride[3], int64_t heads, int64_t len,
                    int32_t box)
{
    const cuuint64_t dims[4] = {(cuuint64_t)p->head_dim, (cuuint64_t)(len ? len : 1),
                                (cuuint64_t)heads, (cuuint64_t)p->batch};
    cuuint64_t bytes[3];
    for (int i = 0; i < 3; i++)
        bytes[i] = dims[i + 1] > 1 ? (cuuint64_t)stride[2 - i] * 2 : HCP_CUDA_ALIGN;
    const cuuint32_t boxes[4] = {HCP_SM90_SLAB, (cuuint32_t)box, 1, 1};
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    CUresult r =
        encode(map,
               p->dtype == HCP_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                    : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
               4, (void *)(uintptr_t)data, dims, bytes, boxes, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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
