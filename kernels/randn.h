/* SPDX-License-Identifier: Apache-2.0
 *
 * Standard normal numbers by element number, so that any part of a tensor can be
 * made on any device in any order: Box-Muller on the splitmix64 finaliser of
 * (seed, i / 2). Compiles as C and as CUDA device code.
 */
#ifndef HCP_RANDN_H
#define HCP_RANDN_H
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define HCP_HOST_DEVICE static __host__ __device__ inline
#else
#define HCP_HOST_DEVICE static inline
#endif

/* Steele, Lea, Flood 2014: output function of splitmix64 at counter n. */
HCP_HOST_DEVICE uint64_t hcp_hash64(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Element i of the sequence named by seed, fp32. Elements 2k and 2k+1 are the
 * cosine and the sine of one pair. |result| < 5.8: u1 is an odd multiple of 2^-24,
 * exact in fp32, never 0 or 1. */
HCP_HOST_DEVICE float hcp_randn_at(uint64_t seed, uint64_t i)
{
    uint64_t bits = hcp_hash64(seed, i >> 1);
    float u1 = ((float)(uint32_t)(bits >> 41) + 0.5f) * 0x1p-23f;
    float u2 = ((float)(uint32_t)((bits & 0xffffffffu) >> 9) + 0.5f) * 0x1p-23f;
    float radius = sqrtf(-2.0f * logf(u1));
    float angle = 6.28318530717958648f * u2;
    return radius * (i & 1 ? sinf(angle) : cosf(angle));
}

#endif
