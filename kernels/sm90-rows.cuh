/* SPDX-License-Identifier: Apache-2.0
 *
 * A math warpgroup's 64 rows of queries in the Hopper attention kernels: scores, softmax
 * state, sums, and how they are stored. Which tiles of keys come, and when, is the
 * kernels' own matter.
 *
 * Softmax: per row the maximum `top` of the raw scores so far; P = exp2(score * scale -
 * top * scale) with log2(e) in the scale, one multiply-add and one exponential. With LAZY
 * the maximum moves only when it has grown by a factor of over 2^8: weights up to that
 * are as precise as those up to 1, and most steps then need no pass over O.
 */
#ifndef HCP_SM90_ROWS_CUH
#define HCP_SM90_ROWS_CUH
#include <math.h>
#include <stdint.h>
#include "kernels/sm90-ptx.cuh"
#include "kernels/sm90-wgmma.cuh"

namespace sm90
{

constexpr int GROUP = 128; /* threads of a warpgroup */
constexpr int SLAB = 64;   /* columns of a tile side by side: 128 bytes, swizzled */
constexpr int ROW_BYTES = SLAB * 2; /* of a slab */
constexpr int ATOM_BYTES = 8 * ROW_BYTES;
constexpr int K_STEP = 16; /* of one wgmma along its inner axis */
constexpr unsigned ALL = 0xffffffffu;

/* C: T, head dim D, tiles of KV keys and of Q rows, lazy. Job: scale_log2, the problem's
 * scale times log2(e). Arrays of two: rows r and r + 8 of the thread's. */
template <typename C, typename Job> struct rows {
    using T = typename C::T;
    using scores = wgmma<T, C::KV>;
    using sums = wgmma<T, C::D>;

    const Job &job;
    float o[C::D / 2];
    uint32_t p[C::KV / 4]; /* weights of the step before, by twos */
    float top[2], sum[2], fade[2];

    __device__ __forceinline__ rows(const Job &job_) : job(job_)
    {
    }

    /* The first of the thread's two rows of the warpgroup's 64. */
    static __device__ __forceinline__ int thread_row()
    {
        return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    }

    /* S = Q K^T of the warpgroup's rows at q and the key tile at k. */
    __device__ __forceinline__ void issue_scores(float (&s)[C::KV / 2], uint32_t q,
                                                 uint32_t k)
    {
        const descriptor queries(q, 16, ATOM_BYTES);
        const descriptor keys(k, 16, ATOM_BYTES);
        pin(s);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::D / K_STEP; i++) {
            const int slab = i / (SLAB / K_STEP), in = i % (SLAB / K_STEP) * K_STEP * 2;
            scores::score(s, queries.at(slab * C::Q * ROW_BYTES + in),
                          keys.at(slab * C::KV * ROW_BYTES + in), i > 0);
        }
        wgmma_commit();
    }

    /* O += P V of the key tile at v. */
    __device__ __forceinline__ void issue_sums(uint32_t v)
    {
        const descriptor values(v, C::KV * ROW_BYTES, ATOM_BYTES);
        pin(p);
        pin(o);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::KV / K_STEP; i++)
            sums::gather(o, p + 4 * i, values.at(i * K_STEP * ROW_BYTES));
        wgmma_commit();
    }

    __device__ __forceinline__ void rescale()
    {
        if (C::lazy && !__any_sync(ALL, fade[0] != 1 || fade[1] != 1))
            return;
#pragma unroll
        for (int i = 0; i < C::D / 2; i++)
            o[i] *= fade[i / 2 % 2];
    }

    /* Keys after the first seen[] of the tile become -inf; counted from the thread's
     * first column, 2 * (threadIdx.x % 4). */
    __device__ __forceinline__ void hide(float (&s)[C::KV / 2], const int (&seen)[2])
    {
#pragma unroll
        for (int i = 0; i < C::KV / 2; i++)
            if (i / 4 * 8 + i % 2 >= seen[i / 2 % 2])
                s[i] = -INFINITY;
    }

    /* What is taken from a row's scores in base 2 where its maximum is x; rounded, so
     * that an unchanged maximum fades by exactly 1. */
    __device__ __forceinline__ float based(float x)
    {
        return x == -INFINITY ? 0 : __fmul_rn(x, job.scale_log2);
    }

    /* Scores to weights in place; top and sum move on, fade is what the sums so
     * far are to be multiplied by. */
    __device__ __forceinline__ void softmax(float (&s)[C::KV / 2])
    {
        const float scale = job.scale_log2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = s[2 * r], b = s[2 * r + 1];
#pragma unroll
            for (int i = 4; i < C::KV / 2; i += 4) {
                a = fmaxf(a, s[i + 2 * r]);
                b = fmaxf(b, s[i + 2 * r + 1]);
            }
            a = fmaxf(a, b);
            a = fmaxf(a, __shfl_xor_sync(ALL, a, 1));
            a = fmaxf(a, __shfl_xor_sync(ALL, a, 2));
            const float last = top[r];
            if (C::lazy)
                top[r] = (a - last) * scale > 8 ? a : last;
            else
                top[r] = fmaxf(last, a);
            const float base = based(top[r]);
            fade[r] = last == -INFINITY ? 0 : exp2_fast(based(last) - base);
            float x = 0, y = 0;
#pragma unroll
            for (int i = 0; i < C::KV / 2; i += 4) {
                float &lo = s[i + 2 * r], &hi = s[i + 2 * r + 1];
                lo = exp2_fast(fmaf(lo, scale, -base));
                hi = exp2_fast(fmaf(hi, scale, -base));
                x += lo;
                y += hi;
            }
            sum[r] = fmaf(sum[r], fade[r], x + y);
        }
    }

    __device__ __forceinline__ void keep(const float (&s)[C::KV / 2])
    {
#pragma unroll
        for (int i = 0; i < C::KV / 4; i++)
            p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
    }

    /* A store that never happens, for x >= 0 or NaN: ptxas moves a wait ahead of
     * arithmetic, not ahead of a store that depends on it. */
    __device__ __forceinline__ void hold(float x, uint32_t somewhere)
    {
        asm volatile("{\n\t"
                     ".reg .pred negative;\n\t"
                     "setp.lt.f32 negative, %0, 0f00000000;\n\t"
                     "@negative st.shared.f32 [%1], %0;\n\t"
                     "}" ::"f"(x),
                     "r"(somewhere)
                     : "memory");
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < C::D / 2; i++)
            o[i] = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            top[r] = -INFINITY;
            sum[r] = 0;
        }
    }

    /* L of row r, which is there if mine; merged with what is at *lse if accumulate, by
     * the rule of merge.h. O is to be multiplied by weight, what was there by old_weight.
     */
    __device__ __forceinline__ void close(int r, int lane, float *lse, bool mine,
                                          const int &accumulate, float &weight,
                                          float &old_weight)
    {
        float total = sum[r];
        total += __shfl_xor_sync(ALL, total, 1);
        total += __shfl_xor_sync(ALL, total, 2);
        float fresh = total > 0 ? based(top[r]) * 0.693147180559945309f + logf(total)
                                : (total == 0 ? -INFINITY : NAN);
        float old = -INFINITY;
        weight = total == 0 ? 0 : 1 / total;
        old_weight = 0;
        if (accumulate && mine)
            old = *lse;
        __syncwarp(); /* read by all before one writes */
        if (old != -INFINITY) {
            const float peak = fmaxf(old, fresh);
            const float a = expf(old - peak), b = expf(fresh - peak);
            old_weight = a / (a + b);
            weight *= b / (a + b);
            fresh = peak + logf(a + b);
        }
        if (mine && lane == 0)
            *lse = fresh;
    }

    /* Row r of O: the thread has the columns 8j + 2 (t % 4) and next; four threads swap
     * them for 16 bytes in a row each. out: the row, at column 8 * lane, lane = t % 4. */
    __device__ __forceinline__ void store_rounded(T *out, int lane, int r, float weight,
                                                  bool mine)
    {
        const bool odd = lane % 2, upper = lane / 2;
#pragma unroll
        for (int j = 0; j < C::D / 8; j += 4) {
            uint32_t x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *y = o + 4 * (j + i) + 2 * r;
                x[i] = pack<T>(y[0] * weight, y[1] * weight);
            }
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const uint32_t theirs = __shfl_xor_sync(ALL, odd ? x[i] : x[i + 1], 1);
                x[i] = odd ? theirs : x[i];
                x[i + 1] = odd ? x[i + 1] : theirs;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t theirs = __shfl_xor_sync(ALL, upper ? x[i] : x[i + 2], 2);
                x[i] = upper ? theirs : x[i];
                x[i + 2] = upper ? x[i + 2] : theirs;
            }
            if (mine)
                *(uint4 *)(out + 8 * j) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }

    /* out: the row, at column 8 * (lane % 2) + 4 * (lane / 2). */
    __device__ __forceinline__ void store_fp32(float *out, int lane, int r, float weight,
                                               float old_weight, bool mine)
    {
        const bool odd = lane % 2;
        constexpr int TOGETHER = C::D > 128 ? 2 : 4;
#pragma unroll
        for (int j = 0; j < C::D / 8; j += 2 * TOGETHER) {
            float4 before[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                before[i] = make_float4(0, 0, 0, 0);
            if (old_weight != 0) {
#pragma unroll
                for (int i = 0; i < TOGETHER; i++)
                    before[i] = *(const float4 *)(out + 8 * (j + 2 * i));
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const float *y = o + 4 * (j + 2 * i) + 2 * r;
                const float a = __shfl_xor_sync(ALL, odd ? y[0] : y[4], 1);
                const float b = __shfl_xor_sync(ALL, odd ? y[1] : y[5], 1);
                float4 x =
                    odd ? make_float4(a, b, y[4], y[5]) : make_float4(y[0], y[1], a, b);
                x.x = before[i].x * old_weight + x.x * weight;
                x.y = before[i].y * old_weight + x.y * weight;
                x.z = before[i].z * old_weight + x.z * weight;
                x.w = before[i].w * old_weight + x.w * weight;
                if (mine)
                    *(float4 *)(out + 8 * (j + 2 * i)) = x;
            }
        }
    }
};

} // namespace sm90
#endif
