/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-mma": attention on the tensor cores of compute capability 8.0 and newer, by
 * the instructions that they all have.
 *
 * A block owns a tile of query rows and walks the keys that they see from the last to
 * the first, so that the tiles that are cut by the diagonal or the end come first. A
 * warp owns 16 or 32 whole rows: their scores, their softmax state and their output
 * stay in its registers, and the layout in which a product leaves the weights is that in
 * which the next one takes them. K, V and Q pass through shared memory, where 16-byte
 * chunk c of row r is at chunk c ^ (r % 8) of the row: eight rows of a matrix load meet
 * all the banks.
 *
 * The maximum that weights are relative to follows the true one at a distance of up to
 * 2^LAG: sums in fp32 and weights in 16 bits have room for that, and the output is then
 * rarely rescaled. Any reference point gives the same O and L.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/prefill-sm80.h"
#include "kernels/sm80-ptx.cuh"

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr float LAG = 8;          /* of the maximum, base 2 */
constexpr float NOTHING = -1e38f; /* maximum of no scores: below any, and its own less
                                   * itself is 0, which -inf is not */
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

struct shape {
    const void *q, *k, *v;
    void *o;
    float *lse;
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    int q_len, kv_len, diag;       /* row i sees the keys j <= i + diag */
    unsigned planes, heads, group; /* batch x heads; query heads of a KV head */
    unsigned row_blocks;
    int out_fp32, accumulate;
    float scale; /* > 0; of the score as a power of 2 */
    float sign;  /* of the scores before that: 1, -1 or 0 */
};

/* What a head dim's kernel is made of: WARPS of 16 M rows each, tiles of KEYS keys,
 * STAGES 1: K comes while the products with V run and the other way around, 2: both
 * come while both run; Q_STEPS: of the D / 16 steps of Q.K^T, those whose part of Q
 * stays in registers; BLOCKS: resident on a multiprocessor together. */
template <int D_, int WARPS_, int M_, int KEYS_, int STAGES_, int Q_STEPS_, int BLOCKS_>
struct config {
    static constexpr int D = D_, WARPS = WARPS_, M = M_, KEYS = KEYS_, STAGES = STAGES_,
                         Q_STEPS = Q_STEPS_, BLOCKS = BLOCKS_;
    static constexpr int THREADS = 32 * WARPS, ROWS = 16 * M * WARPS;
    static constexpr int PITCH = 2 * D; /* bytes of a row in shared memory */
    static constexpr int Q_BYTES = ROWS * PITCH, KV_BYTES = KEYS * PITCH;
    static constexpr int SHARED = Q_BYTES + 2 * STAGES * KV_BYTES;
};

/* Rows first .. first + ROWS - 1 of src (2-byte elements, D of them) to shared memory
 * at dst; those from len on are zero. */
template <class C, int ROWS>
__device__ inline void copy_tile(uint32_t dst, const char *src, int64_t pitch, int first,
                                 int len)
{
    constexpr int CHUNKS = C::D / 8;
    constexpr int LANES = CHUNKS < 16 ? CHUNKS : 16; /* threads along a row */
    constexpr int STEP = C::THREADS / LANES;         /* rows at a time */
    static_assert(STEP % 8 == 0, "a thread's swizzle is that of its first row");
    static_assert(ROWS % STEP == 0, "whole passes");
    const int thread = hcp::thread_again();
    const int row = thread / LANES, chunk = thread % LANES;
    src += (first + row) * pitch + chunk * 16;
    dst += row * C::PITCH + ((chunk ^ (row % 8)) * 16);
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP) {
        const bool there = first + row + r < len;
#pragma unroll
        for (int c = 0; c < CHUNKS; c += LANES)
            hcp::copy_async(dst + r * C::PITCH + c * 16, src + c * 16, there);
        src += STEP * pitch;
    }
}

/* From a lane's address in the first 16 columns of a row to that in columns 16 d and on:
 * four different ones, from each of which the others are at fixed distances. */
__device__ inline uint32_t step_at(uint32_t first, int d)
{
    return (first ^ (d % 4 * 32)) + d / 4 * 128;
}

/* Where this lane's row is in a load of 16 rows x 16 columns, so that the registers of an
 * operand come side by side: of K (across) the matrices are upper left and right, lower
 * left and right; of Q and V upper and lower left, upper and lower right. From the
 * thread's number each time: held over a tile, these addresses would be what the
 * registers of 8.x have no room for. */
template <class C> __device__ inline uint32_t lane_row(bool across)
{
    const int lane = hcp::thread_again() % 32;
    const int eighth = lane % 8, second = lane / 8 & 1, third = lane / 16;
    return across ? (third * 8 + eighth) * C::PITCH + (second ^ eighth) * 16
                  : (second * 8 + eighth) * C::PITCH + (third ^ eighth) * 16;
}

/* And where in the tile of Q its warp's rows begin. */
template <class C> __device__ inline uint32_t warp_rows()
{
    return hcp::thread_again() / 32 * 16 * C::M * C::PITCH;
}

/* s = Q.K^T of the warp's rows and a tile's keys. */
template <typename T, class C>
__device__ inline void
scores(float (&s)[C::M][C::KEYS / 8][4],
       const uint32_t (&q_held)[C::Q_STEPS ? C::Q_STEPS : 1][C::M][4], uint32_t q_at,
       uint32_t k_at)
{
#pragma unroll
    for (int m = 0; m < C::M; m++)
#pragma unroll
        for (int n = 0; n < C::KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = 0;
#pragma unroll
    for (int d = 0; d < C::D / 16; d++) {
        uint32_t q[C::M][4];
#pragma unroll
        for (int m = 0; m < C::M; m++)
            if (d < C::Q_STEPS) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    q[m][i] = q_held[d < C::Q_STEPS ? d : 0][m][i];
            } else {
                hcp::load_matrices(q[m], step_at(q_at, d) + m * 16 * C::PITCH);
            }
#pragma unroll
        for (int n = 0; n < C::KEYS / 8; n += 2) {
            uint32_t k[4];
            hcp::load_matrices(k, step_at(k_at, d) + n * 8 * C::PITCH);
#pragma unroll
            for (int m = 0; m < C::M; m++) {
                hcp::multiply<T>(s[m][n], q[m], k[0], k[1]);
                hcp::multiply<T>(s[m][n + 1], q[m], k[2], k[3]);
            }
        }
    }
}

/* Where a block's work is: C::ROWS query rows from row0 of one head; and of its threads,
 * whose first row is my_row, the others 8, 16, 24 below. */
template <class C> struct place {
    unsigned plane, b, h; /* batch x heads of them */
    int row0, warp_row, my_row, column;

    __device__ place(const shape &s, unsigned block, int thread)
    {
        /* Longest rows first, so that the last blocks to finish are short ones. */
        plane = block % s.planes;
        row0 = (int)(s.row_blocks - 1 - block / s.planes) * C::ROWS;
        b = plane / s.heads;
        h = plane % s.heads;
        warp_row = row0 + thread / 32 * 16 * C::M;
        my_row = warp_row + thread % 32 / 4;
        column = thread % 4 * 2;
    }

    __device__ int64_t lse_at(const shape &s, int row) const
    {
        return (int64_t)plane * s.q_len + row;
    }

    __device__ int64_t o_at(const shape &s, int row) const
    {
        return b * s.o_stride[0] + h * s.o_stride[1] + row * s.o_stride[2] + column;
    }
};

/* Last key that a row sees; of rows past the end, that of the last one. */
__device__ inline int last_key(const shape &s, int row)
{
    return min(min(row, s.q_len - 1) + s.diag, s.kv_len - 1);
}

template <typename T, class C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    attention(const __grid_constant__ shape s)
{
    constexpr int D = C::D, M = C::M, KEYS = C::KEYS;
    extern __shared__ __align__(1024) char shared[];
    const uint32_t q_tile = (uint32_t)__cvta_generic_to_shared(shared);
    const uint32_t k_tile = q_tile + C::Q_BYTES;
    const uint32_t v_tile = k_tile + C::STAGES * C::KV_BYTES;
    const int lane = threadIdx.x % 32;
    const place<C> begin(s, blockIdx.x, threadIdx.x);
    const unsigned b = begin.b, h = begin.h, hk = h / s.group;
    const int row0 = begin.row0;
    const char *q_head = (const char *)s.q + 2 * (b * s.q_stride[0] + h * s.q_stride[1]);
    const char *k_head = (const char *)s.k + 2 * (b * s.k_stride[0] + hk * s.k_stride[1]);
    const char *v_head = (const char *)s.v + 2 * (b * s.v_stride[0] + hk * s.v_stride[1]);
    const int64_t k_pitch = 2 * s.k_stride[2], v_pitch = 2 * s.v_stride[2];

    const int warp_first = last_key(s, begin.warp_row);
    const int warp_last = last_key(s, begin.warp_row + 16 * M - 1);
    const int tiles = (last_key(s, row0 + C::ROWS - 1) + KEYS) / KEYS;

    float acc[M][D / 8][4], top[M][2], sum[M][2];
    uint32_t q_held[C::Q_STEPS ? C::Q_STEPS : 1][M][4];

    if (tiles > 0) {
        copy_tile<C, C::ROWS>(q_tile, q_head, 2 * s.q_stride[2], row0, s.q_len);
        copy_tile<C, KEYS>(k_tile, k_head, k_pitch, (tiles - 1) * KEYS, s.kv_len);
        if (C::STAGES == 2)
            copy_tile<C, KEYS>(v_tile, v_head, v_pitch, (tiles - 1) * KEYS, s.kv_len);
        hcp::copy_commit();
    }

    /* The running state: of O as it is in memory, with a sum of 1 and L as maximum.
     * The sum of a row is spread over the four lanes that share it. */
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = begin.my_row + m * 16 + half * 8;
            float before = -INFINITY;
            if (s.accumulate && row < s.q_len)
                before = s.lse[begin.lse_at(s, row)];
            const bool state = before != -INFINITY;
            top[m][half] = state ? before * LOG2E : NOTHING;
            sum[m][half] = state && lane % 4 == 0 ? 1.0f : 0.0f;
            const float *o = (const float *)s.o + begin.o_at(s, row);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float2 x = state ? *(const float2 *)(o + n * 8) : make_float2(0, 0);
                acc[m][n][2 * half] = x.x;
                acc[m][n][2 * half + 1] = x.y;
            }
        }

    if (C::Q_STEPS && tiles > 0) {
        hcp::copy_wait<0>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < C::Q_STEPS; d++)
#pragma unroll
            for (int m = 0; m < M; m++)
                hcp::load_matrices(
                    q_held[d][m],
                    step_at(q_tile + warp_rows<C>() + lane_row<C>(false), d) +
                        m * 16 * C::PITCH);
    }

#pragma unroll 1
    for (int tile = tiles - 1; tile >= 0; tile--) {
        const int key0 = tile * KEYS;
        /* The copies of this tile (of its K alone with one stage) are there, and every
         * warp is through with what the next ones go into. */
        hcp::copy_wait<0>();
        __syncthreads();
        if (C::STAGES == 1) {
            copy_tile<C, KEYS>(v_tile, v_head, v_pitch, key0, s.kv_len);
            hcp::copy_commit();
        } else if (tile > 0) {
            const uint32_t other = (tiles - tile) % 2 * C::KV_BYTES;
            copy_tile<C, KEYS>(k_tile + other, k_head, k_pitch, key0 - KEYS, s.kv_len);
            copy_tile<C, KEYS>(v_tile + other, v_head, v_pitch, key0 - KEYS, s.kv_len);
            hcp::copy_commit();
        }

        const bool any = key0 <= warp_last; /* some row of the warp sees some key */
        float p[M][KEYS / 8][4];
        /* Which of two stages: the last tile is in the first. */
        const uint32_t stage = C::STAGES == 2 ? (tiles - 1 - tile) % 2 * C::KV_BYTES : 0;
        if (any)
            scores<T, C>(p, q_held, q_tile + warp_rows<C>() + lane_row<C>(false),
                         k_tile + stage + lane_row<C>(true));
        if (C::STAGES == 1) {
            hcp::copy_wait<0>();
            __syncthreads();
            if (tile > 0) {
                copy_tile<C, KEYS>(k_tile, k_head, k_pitch, key0 - KEYS, s.kv_len);
                hcp::copy_commit();
            }
        }
        if (any) {
            if (s.sign != 1)
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            p[m][n][i] *= s.sign;
            if (key0 + KEYS - 1 > warp_first) {
                const place<C> here(s, hcp::block_again(), hcp::thread_again());
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int last = last_key(s, here.my_row + m * 16 + half * 8) -
                                         key0 - here.column;
#pragma unroll
                        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                            for (int i = 0; i < 2; i++)
                                if (n * 8 + i > last)
                                    p[m][n][2 * half + i] = -INFINITY;
                    }
            }

            float peak[M][2]; /* of this lane's scores, times the scale */
            bool grown = false;
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float x = fmaxf(p[m][0][2 * half], p[m][0][2 * half + 1]);
#pragma unroll
                    for (int n = 1; n < KEYS / 8; n++)
                        x = fmaxf(x, fmaxf(p[m][n][2 * half], p[m][n][2 * half + 1]));
                    peak[m][half] = x * s.scale;
                    grown |= peak[m][half] > top[m][half] + LAG;
                }
            if (__any_sync(ALL, grown))
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        float x = peak[m][half];
                        x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
                        x = fmaxf(x, __shfl_xor_sync(ALL, x, 2));
                        x = fmaxf(x, top[m][half]);
                        const float fade = hcp::fast_exp2(top[m][half] - x);
                        top[m][half] = x;
                        sum[m][half] *= fade;
#pragma unroll
                        for (int n = 0; n < D / 8; n++) {
                            acc[m][n][2 * half] *= fade;
                            acc[m][n][2 * half + 1] *= fade;
                        }
                    }

            /* Weights of 16 keys, then the products with their V while the next are
             * computed. */
            const uint32_t v_at = v_tile + stage + lane_row<C>(false);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n += 2) {
                uint32_t w[M][4];
#pragma unroll
                for (int m = 0; m < M; m++) {
#pragma unroll
                    for (int half = 0; half < 2; half++) {
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            float *x = &p[m][n + j][2 * half];
                            x[0] = hcp::fast_exp2(fmaf(x[0], s.scale, -top[m][half]));
                            x[1] = hcp::fast_exp2(fmaf(x[1], s.scale, -top[m][half]));
                            sum[m][half] += x[0] + x[1];
                            w[m][2 * j + half] = hcp::pack<T>(x[0], x[1]);
                        }
                    }
                }
#pragma unroll
                for (int d = 0; d < D / 16; d++) {
                    uint32_t v[4];
                    hcp::load_transposed(v, step_at(v_at, d) + n * 8 * C::PITCH);
#pragma unroll
                    for (int m = 0; m < M; m++) {
                        hcp::multiply<T>(acc[m][2 * d], w[m], v[0], v[1]);
                        hcp::multiply<T>(acc[m][2 * d + 1], w[m], v[2], v[3]);
                    }
                }
            }
        }
    }

    const place<C> end(s, hcp::block_again(), hcp::thread_again());
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = end.my_row + m * 16 + half * 8;
            float l = sum[m][half];
            l += __shfl_xor_sync(ALL, l, 1);
            l += __shfl_xor_sync(ALL, l, 2);
            if (row >= s.q_len)
                continue;
            const float part = l == 0 ? 0.0f : 1 / l;
            if (end.column == 0)
                s.lse[end.lse_at(s, row)] =
                    l == 0 ? -INFINITY : top[m][half] * LN2 + logf(l);
            const int64_t at = end.o_at(s, row);
            if (s.out_fp32) {
                float *o = (float *)s.o + at;
#pragma unroll
                for (int n = 0; n < D / 8; n++)
                    *(float2 *)(o + n * 8) = make_float2(acc[m][n][2 * half] * part,
                                                         acc[m][n][2 * half + 1] * part);
            } else {
                T *o = (T *)s.o + at;
#pragma unroll
                for (int n = 0; n < D / 8; n++)
                    *(uint32_t *)(o + n * 8) = hcp::pack<T>(
                        acc[m][n][2 * half] * part, acc[m][n][2 * half + 1] * part);
            }
        }
}

template <typename T, class C> cudaError_t launch(shape s, cudaStream_t stream)
{
    const cudaError_t e = cudaFuncSetAttribute(
        attention<T, C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SHARED);
    if (e != cudaSuccess)
        return e;
    s.row_blocks = (unsigned)((s.q_len + C::ROWS - 1) / C::ROWS);
    attention<T, C><<<s.row_blocks * s.planes, C::THREADS, C::SHARED, stream>>>(s);
    return cudaPeekAtLastError();
}

shape shape_of(const hcp_attn_problem *p, const hcp_attn_args *a)
{
    shape s = {};
    s.q = a->q;
    s.k = a->k;
    s.v = a->v;
    s.o = a->o;
    s.lse = a->lse;
    for (int i = 0; i < 3; i++) {
        s.q_stride[i] = p->q_stride[i];
        s.k_stride[i] = p->k_stride[i];
        s.v_stride[i] = p->v_stride[i];
        s.o_stride[i] = p->o_stride[i];
    }
    s.q_len = (int)a->q_len;
    s.kv_len = (int)a->kv_len;
    s.diag = (int)a->diag;
    s.planes = (unsigned)(p->batch * p->heads);
    s.heads = (unsigned)p->heads;
    s.group = (unsigned)(p->heads / p->kv_heads);
    s.out_fp32 = p->out_dtype == HCP_FP32;
    s.accumulate = p->accumulate;
    /* A maximum of scaled scores is that of the scores for a positive scale only. */
    const float scale = (float)p->scale;
    s.sign = scale > 0 ? 1.0f : scale < 0 ? -1.0f : 0.0f;
    s.scale = scale == 0 ? 1.0f : fabsf(scale) * LOG2E;
    return s;
}

/* All fit into the 99 KB of 8.6 and 8.9, none spills registers anywhere. On an H200 the
 * fastest that do, of eight to sixteen per head dim (rows of a warp 16 and 32, keys 32 to
 * 128, one and two stages), full and causal together. */
using config_64 = config<64, 4, 2, 64, 2, 4, 2>;
using config_128 = config<128, 4, 2, 64, 2, 0, 2>;
using config_256 = config<256, 4, 1, 64, 1, 0, 2>;

template <class C> constexpr hcp_sm80_tile tile_of()
{
    return {C::ROWS, C::KEYS, C::WARPS, C::SHARED};
}

} // namespace

extern "C" hcp_sm80_tile hcp_cuda_sm80_tile(int64_t head_dim)
{
    return head_dim == 64    ? tile_of<config_64>()
           : head_dim == 128 ? tile_of<config_128>()
           : head_dim == 256 ? tile_of<config_256>()
                             : hcp_sm80_tile{};
}

template <typename T>
static cudaError_t launch_dim(int64_t head_dim, const shape &s, cudaStream_t stream)
{
    return head_dim == 64    ? launch<T, config_64>(s, stream)
           : head_dim == 128 ? launch<T, config_128>(s, stream)
                             : launch<T, config_256>(s, stream);
}

extern "C" int hcp_cuda_launch_sm80(const hcp_attn_problem *p, const hcp_attn_args *a,
                                    void *stream)
{
    const shape s = shape_of(p, a);
    if (a->q_len == 0 || s.planes == 0)
        return cudaSuccess;
    return p->dtype == HCP_BF16
               ? launch_dim<__nv_bfloat16>(p->head_dim, s, (cudaStream_t)stream)
               : launch_dim<__half>(p->head_dim, s, (cudaStream_t)stream);
}
