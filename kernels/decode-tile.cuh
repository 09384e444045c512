/* SPDX-License-Identifier: Apache-2.0
 *
 * What a block of decode.cu works with: the ring that K and V stream through, and a
 * warp's rows of queries with their softmax state.
 */
#ifndef HCP_DECODE_TILE_CUH
#define HCP_DECODE_TILE_CUH
#include "kernels/decode-shape.cuh"
#include "kernels/sm80-ptx.cuh"

namespace hcp
{
namespace decode
{

constexpr int WARPS = HCP_DECODE_WARPS, THREADS = WARPS * 32;
constexpr int STAGES = HCP_DECODE_STAGES;
constexpr int RING_BYTES = STAGES * HCP_DECODE_STAGE_BYTES;
constexpr int KEYS = 16; /* that a warp treats at a time, or twice as many */
constexpr unsigned ALL = 0xffffffffu;

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Over the four lanes that hold one row. */
__device__ inline float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

__device__ inline float row_sum(float x)
{
    x += __shfl_xor_sync(ALL, x, 1);
    return x + __shfl_xor_sync(ALL, x, 2);
}

/* The ring of K and V. A stage holds STEP keys of each; key row of D elements, its
 * 16-byte pieces permuted among eight by the row's low bits. */
template <typename T, int D> struct ring {
    static constexpr int STEP = HCP_DECODE_STAGE_BYTES / (2 * D * (int)sizeof(T));
    static constexpr int PIECES = D / 8;
    static constexpr int PASS = THREADS / PIECES; /* rows copied at once */
    static constexpr int ROW_BYTES = D * (int)sizeof(T);
    static constexpr int V_BYTES = STEP * ROW_BYTES; /* where V begins in a stage */

    const T *k, *v; /* this thread's piece of the next key that it copies */
    uint32_t to;

    __device__ static uint32_t place(int row, int piece)
    {
        return (uint32_t)(row * ROW_BYTES + ((piece ^ (row & 7)) << 4));
    }

    /* Starts the copies of the next STEP keys, of k_step and v_step elements a key, of
     * which the first end are there. */
    __device__ void copy(int stage, int64_t k_step, int64_t v_step, int end)
    {
        const int left = end - (int)threadIdx.x / PIECES;
        copy_one(k, k_step, to + (uint32_t)(stage * HCP_DECODE_STAGE_BYTES), left);
        copy_one(v, v_step, to + (uint32_t)(stage * HCP_DECODE_STAGE_BYTES + V_BYTES),
                 left);
    }

    /* left: keys from this thread's on. */
    __device__ static void copy_one(const T *&from, int64_t step, uint32_t at, int left)
    {
#pragma unroll 2
        for (int i = 0; i < STEP / PASS; i++) {
            /* rows PASS apart differ in the bits that permute when PASS < 8 */
            const uint32_t flip = PASS < 8 ? (uint32_t)((i * PASS & 7) << 4) : 0;
            copy_async((at ^ flip) + (uint32_t)(i * PASS * ROW_BYTES), from,
                       i * PASS < left);
            from += PASS * step;
        }
    }
};

/* What a warp holds of its rows: TILES tiles of 16 rows, of each lane rows lane / 4
 * and lane / 4 + 8. */
template <typename T, int D, int TILES> struct rows {
    /* Registers are too few for all of Q: the last of it is in shared memory. */
    static constexpr bool APART = TILES == 2 && D == 128;
    uint32_t q[TILES][D / 16][4];
    float o[TILES][D / 8][4];
    float top[TILES][2], sum[TILES][2]; /* sum: of this lane's keys */

    /* This thread's place of it. */
    __device__ static uint4 &apart()
    {
        __shared__ uint4 places[THREADS];
        return places[threadIdx.x];
    }

    /* Rows from first on, those from end on as zero. */
    __device__ void load(const shape &s, int b, int hk, int first, int end)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = first + t * 16 + half * 8 + lane / 4;
                const bool there = r < end;
                const T *p = (const T *)s.q + b * s.q_stride[0] +
                             (int64_t)(hk * s.group + r % s.group) * s.q_stride[1] +
                             r / s.group * s.q_stride[2] + lane % 4 * 2;
#pragma unroll
                for (int d = 0; d < D / 16; d++) {
                    q[t][d][half] = there ? *(const uint32_t *)(p + d * 16) : 0;
                    q[t][d][half + 2] = there ? *(const uint32_t *)(p + d * 16 + 8) : 0;
                }
                top[t][half] = -INFINITY;
                sum[t][half] = 0;
            }
        if constexpr (APART) {
            const uint32_t(&x)[4] = q[TILES - 1][D / 16 - 1];
            apart() = make_uint4(x[0], x[1], x[2], x[3]);
        }
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int d = 0; d < D / 8; d++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[t][d][i] = 0;
    }

    /* Keys [key, key + N) of the split, in the rows from row on of a stage at from.
     * limit: keys of the split that each row of the warp sees; NULL: these keys all. */
    template <int N>
    __device__ void step(uint32_t from, int row, int key, float scale, const int *limit)
    {
        using R = ring<T, D>;
        const int lane = threadIdx.x % 32;
        float s[TILES][N / 8][4] = {};
        /* A row's bytes are aligned to their number: pieces further on differ in bits. */
        const uint32_t k_at =
            from + R::place(row + (lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            if constexpr (APART)
                if (d == D / 16 - 1) {
                    const uint4 x = apart();
                    uint32_t(&last)[4] = q[TILES - 1][d];
                    last[0] = x.x, last[1] = x.y, last[2] = x.z, last[3] = x.w;
                }
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                uint32_t k[4];
                load_matrices(k, (k_at ^ (uint32_t)(d * 32)) + n * 16 * R::ROW_BYTES);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply<T>(s[t][n * 2], q[t][d], k[0], k[1]);
                    multiply<T>(s[t][n * 2 + 1], q[t][d], k[2], k[3]);
                }
            }
        }

        soften<N>(s, key, scale, limit);
        const uint32_t v_at = from + R::V_BYTES + R::place(row + (lane & 15), lane >> 4);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t p[TILES][4];
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *x = &s[t][n * 2 + i / 2][i % 2 * 2];
                    p[t][i] = pack<T>(x[0], x[1]);
                }
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                uint32_t v[4];
                load_transposed(v, (v_at ^ (uint32_t)(d * 32)) + n * 16 * R::ROW_BYTES);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply<T>(o[t][d * 2], p[t], v[0], v[1]);
                    multiply<T>(o[t][d * 2 + 1], p[t], v[2], v[3]);
                }
            }
        }
    }

    /* Scores to weights relative to the rows' maxima, which move on. */
    template <int N>
    __device__ void soften(float (&s)[TILES][N / 8][4], int key, float scale,
                           const int *limit)
    {
        const int lane = threadIdx.x % 32;
        float now[TILES][2];
        bool moved = false;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int seen =
                    limit ? limit[t * 16 + half * 8 + lane / 4] - key - lane % 4 * 2 : N;
                float most = -INFINITY;
#pragma unroll
                for (int i = 0; i < N / 4; i++) {
                    float &x = s[t][i / 2][half * 2 + i % 2];
                    x = limit && i / 2 * 8 + i % 2 >= seen ? -INFINITY : x * scale;
                    most = fmaxf(most, x);
                }
                now[t][half] = most;
            }
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                now[t][half] = fmaxf(top[t][half], row_max(now[t][half]));
                moved |= now[t][half] != top[t][half];
            }
        if (__any_sync(ALL, moved)) {
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float keep = fast_exp2(
                        top[t][half] - (now[t][half] == -INFINITY ? 0 : now[t][half]));
                    top[t][half] = now[t][half];
                    sum[t][half] *= keep;
#pragma unroll
                    for (int d = 0; d < D / 8; d++) {
                        o[t][d][half * 2] *= keep;
                        o[t][d][half * 2 + 1] *= keep;
                    }
                }
        }
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float base = top[t][half] == -INFINITY ? 0 : top[t][half];
#pragma unroll
                for (int i = 0; i < N / 4; i++) {
                    float &x = s[t][i / 2][half * 2 + i % 2];
                    x = fast_exp2(x - base);
                    sum[t][half] += x;
                }
            }
    }
};

} // namespace decode
} // namespace hcp
#endif
