/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16 and fp16 on the host, in integer arithmetic and selects so that loops over
 * them vectorise: exact to fp32, to nearest even from it, subnormals, infinities
 * and NaN (kept, made quiet) included. Independent of the FTZ/DAZ mode.
 */
#ifndef HCP_DTYPE_H
#define HCP_DTYPE_H
#include <stdint.h>
#include <string.h>
#include "kernels/provider.h"

/* Bytes of one element; 0 for an unknown dtype. */
static inline int64_t hcp_dtype_bytes(int32_t dtype)
{
    return dtype == HCP_FP32 ? 4 : dtype == HCP_BF16 || dtype == HCP_FP16 ? 2 : 0;
}

static inline const char *hcp_dtype_name(int32_t dtype)
{
    return dtype == HCP_BF16   ? "bf16"
           : dtype == HCP_FP16 ? "fp16"
           : dtype == HCP_FP32 ? "fp32"
                               : "unknown dtype";
}

/* -1 for a name that is not one. */
static inline int32_t hcp_dtype_of_name(const char *name)
{
    static const int32_t all[] = {HCP_BF16, HCP_FP16, HCP_FP32};

    for (int i = 0; i < 3; i++)
        if (strcmp(name, hcp_dtype_name(all[i])) == 0)
            return all[i];
    return -1;
}

static inline float hcp_bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t hcp_float_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float hcp_bf16_to_float(uint16_t h)
{
    return hcp_bits_to_float((uint32_t)h << 16);
}

static inline uint16_t hcp_float_to_bf16(float x)
{
    uint32_t b = hcp_float_to_bits(x);
    uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
    uint32_t nan = (b >> 16) | 0x40u;
    return (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float hcp_fp16_to_float(uint16_t h)
{
    uint32_t magnitude = h & 0x7fffu;
    /* Rebias the exponent by 127 - 15, twice that for infinity and NaN. */
    uint32_t rebias = (112u << 23) * (1u + (magnitude >= 0x7c00u));
    uint32_t normal = (magnitude << 13) + rebias;
    /* A subnormal is what its mantissa adds to 2^-14. Masks, not branches. */
    uint32_t is_subnormal = 0u - (uint32_t)(magnitude < 0x400u);
    float above = hcp_bits_to_float((113u << 23) + (magnitude << 13)) - 0x1p-14f;
    uint32_t bits = (hcp_float_to_bits(above) & is_subnormal) | (normal & ~is_subnormal);
    return hcp_bits_to_float(bits | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t hcp_float_to_fp16(float x)
{
    uint32_t b = hcp_float_to_bits(x);
    uint32_t magnitude = b & 0x7fffffffu;
    /* A carry out of the mantissa moves to the next exponent, up to infinity. */
    uint32_t normal =
        (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* Below 2^-14 the fp16 step is 2^-24: adding 0.5, whose fp32 step that is,
     * rounds to it. */
    uint32_t small = hcp_float_to_bits(hcp_bits_to_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    uint32_t h = magnitude > 0x7f800000u    ? nan
                 : magnitude >= 0x47800000u ? 0x7c00u /* 65536 and up */
                 : magnitude < 0x38800000u  ? small   /* below 2^-14 */
                                            : normal;
    return (uint16_t)(h | (b >> 16 & 0x8000u));
}

/* n elements of dtype, contiguous, as fp32. */
static inline void hcp_to_float(float *dst, const void *src, int64_t n, int32_t dtype)
{
    const uint16_t *half = (const uint16_t *)src;
    if (dtype == HCP_FP32)
        memcpy(dst, src, (size_t)n * sizeof(float));
    else if (dtype == HCP_BF16)
        for (int64_t i = 0; i < n; i++)
            dst[i] = hcp_bf16_to_float(half[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = hcp_fp16_to_float(half[i]);
}

/* n fp32 elements, contiguous, rounded to dtype. */
static inline void hcp_from_float(void *dst, const float *src, int64_t n, int32_t dtype)
{
    uint16_t *half = (uint16_t *)dst;
    if (dtype == HCP_FP32)
        memcpy(dst, src, (size_t)n * sizeof(float));
    else if (dtype == HCP_BF16)
        for (int64_t i = 0; i < n; i++)
            half[i] = hcp_float_to_bf16(src[i]);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = hcp_float_to_fp16(src[i]);
}

#endif
