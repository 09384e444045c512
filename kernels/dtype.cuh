/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16, fp16 and fp32 elements in device code: conversion to and from fp32, and
 * loads of up to 16 bytes at a time.
 */
#ifndef HCP_DTYPE_CUH
#define HCP_DTYPE_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include "kernels/provider.h"

namespace hcp
{

__device__ inline float to_float(float x)
{
    return x;
}

__device__ inline float to_float(__half x)
{
    return __half2float(x);
}

__device__ inline float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* Element i of a tensor of dtype, rounded to nearest even. */
__device__ inline void store(void *p, int64_t i, int32_t dtype, float x)
{
    if (dtype == HCP_FP32)
        ((float *)p)[i] = x;
    else if (dtype == HCP_BF16)
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
    else
        ((__half *)p)[i] = __float2half_rn(x);
}

/* N elements from p; with N > 1 in accesses of 16 bytes, which p must be aligned
 * to, and N * sizeof(T) a multiple of. */
template <int N, typename T> __device__ inline void load(float (&x)[N], const T *p)
{
    if constexpr (N == 1) {
        x[0] = to_float(p[0]);
    } else {
        constexpr int each = 16 / sizeof(T);
        static_assert(N % each == 0, "whole 16-byte accesses");
#pragma unroll
        for (int i = 0; i < N; i += each) {
            union {
                uint4 raw;
                T element[each];
            } u;
            u.raw = *(const uint4 *)(p + i);
#pragma unroll
            for (int j = 0; j < each; j++)
                x[i + j] = to_float(u.element[j]);
        }
    }
}

template <int N> __device__ inline void store(float *p, const float (&x)[N])
{
    if constexpr (N == 1) {
        p[0] = x[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4)
            *(float4 *)(p + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
}

} // namespace hcp
#endif
