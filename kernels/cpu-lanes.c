/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include "kernels/cpu-lanes.h"
#include "kernels/dtype.h"

/* One source, several instruction sets, chosen when the program starts. Not with
 * clang (14 leaves the symbol undefined across files) nor with AddressSanitizer
 * (the choice is made before its runtime is up). */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) &&              \
    !defined(__SANITIZE_ADDRESS__)
#define CLONES                                                                           \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* Apart from exp2_clamped(), in a loop of its own: together they become a branch,
 * and the loop is not vectorised. */
static inline __attribute__((always_inline)) float clamp(float x)
{
    return x < -127.0f ? -127.0f : x;
}

/* 2^n 2^f, n the nearest integer: adding 1.5 * 2^23 leaves n in the low bits. 2^f
 * on [-1/2, 1/2] by its interpolant at the Chebyshev nodes, error 2e-8. At -127,
 * n = -127 and f = 0, whose bits are those of zero. */
static inline __attribute__((always_inline)) float exp2_clamped(float x)
{
    float shifted = x + 0x1.8p23f;
    float f = x - (shifted - 0x1.8p23f);
    float p = 0x1.444p-13f;
    p = p * f + 0x1.5f48cp-10f;
    p = p * f + 0x1.3b2a1cp-7f;
    p = p * f + 0x1.c6aeccp-5f;
    p = p * f + 0x1.ebfbep-3f;
    p = p * f + 0x1.62e43p-1f;
    p = p * f + 1.0f;
    return hcp_bits_to_float(hcp_float_to_bits(p) + (hcp_float_to_bits(shifted) << 23));
}

float hcp_exp2_nonpositive(float x)
{
    return exp2_clamped(clamp(x));
}

CLONES void hcp_lanes_to_float(float *dst, const void *src, int64_t n, int32_t dtype)
{
    const uint16_t *half = src;
    int64_t i = 0;
    if (dtype == HCP_BF16)
        for (; i + HCP_LANES <= n; i += HCP_LANES)
            for (int l = 0; l < HCP_LANES; l++)
                dst[i + l] = hcp_bf16_to_float(half[i + l]);
    else if (dtype == HCP_FP16)
        for (; i + HCP_LANES <= n; i += HCP_LANES)
            for (int l = 0; l < HCP_LANES; l++)
                dst[i + l] = hcp_fp16_to_float(half[i + l]);
    hcp_to_float(dst + i, (const char *)src + i * hcp_dtype_bytes(dtype), n - i, dtype);
}

CLONES float hcp_softmax_tile_row(float *s, int64_t visible, int64_t width,
                                  hcp_softmax_row *state)
{
    int64_t groups = (visible + HCP_LANES - 1) / HCP_LANES * HCP_LANES;
    float lane[HCP_LANES];
    float old = state->max, top = old, sum = 0;

    for (int64_t j = visible; j < groups; j++)
        s[j] = -INFINITY;
    for (int64_t j = groups; j < width; j++)
        s[j] = 0;

    for (int l = 0; l < HCP_LANES; l++)
        lane[l] = old;
    for (int64_t j = 0; j < groups; j += HCP_LANES)
        for (int l = 0; l < HCP_LANES; l++)
            lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
    for (int l = 0; l < HCP_LANES; l++)
        top = lane[l] > top ? lane[l] : top;
    if (top == -INFINITY) {
        /* -inf - -inf is NaN: nothing seen so far, nothing seen here. Unless all that
         * is seen is NaN, which no comparison finds: that must show. */
        for (int64_t j = 0; j < groups; j++)
            sum += s[j];
        if (isnan(sum))
            state->sum = sum;
        for (int64_t j = 0; j < groups; j++)
            s[j] = isnan(sum) ? sum : 0;
        return 1;
    }

    for (int l = 0; l < HCP_LANES; l++)
        lane[l] = 0;
    for (int64_t j = 0; j < groups; j += HCP_LANES) {
        for (int l = 0; l < HCP_LANES; l++)
            s[j + l] = clamp(s[j + l] - top);
        for (int l = 0; l < HCP_LANES; l++) {
            float p = exp2_clamped(s[j + l]);
            s[j + l] = p;
            lane[l] += p;
        }
    }
    for (int half = HCP_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    sum = lane[0];

    float factor = exp2_clamped(clamp(old - top));
    state->max = top;
    state->sum = state->sum * factor + sum;
    return factor;
}
