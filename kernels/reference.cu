/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-reference": attention in fp32 for any lengths, strides, diagonal, number of
 * heads and head dims up to 256. Slow and simple: the yardstick of the conformance
 * set, and what runs where nothing faster does.
 *
 * A warp owns ROWS query rows. Keys come in tiles of 32 through shared memory: lane
 * j scores key j against each row, the softmax state moves once a tile, then lane d
 * gathers dimensions d, d + 32, ... of the output.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/cuda-internal.h"
#include "kernels/dtype.cuh"

namespace
{

constexpr int WARPS = 8;
constexpr int ROWS = 4; /* of one warp */
constexpr int BLOCK_ROWS = WARPS * ROWS;
constexpr int KEYS = 32; /* of one tile, one a lane */
constexpr int MAX_DIM = 256;
constexpr int CHUNKS = MAX_DIM / 32; /* dimensions of one lane */
constexpr unsigned ALL = 0xffffffffu;

/* Q rows at a pitch of whole float4s; key rows at an odd pitch, so that 32 lanes
 * that read the same dimension of 32 keys meet 32 banks. */
__host__ __device__ constexpr int q_pitch(int head_dim)
{
    return (head_dim + 3) / 4 * 4;
}

__host__ __device__ constexpr int k_pitch(int head_dim)
{
    return q_pitch(head_dim) + 1;
}

size_t shared_bytes(int head_dim)
{
    return sizeof(float) *
           ((size_t)BLOCK_ROWS * q_pitch(head_dim) + (size_t)KEYS * k_pitch(head_dim));
}

struct shape {
    int64_t q_len, kv_len, diag, batch, heads, kv_heads;
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    int head_dim, out_dtype, causal, accumulate;
    float scale;
};

/* rows x head_dim from src (first row: row0, missing ones zero) to pitch floats a
 * row; the pad up to width is zero too. */
template <typename T>
__device__ inline void stage(float *dst, int pitch, int width, const T *src,
                             int64_t stride, int64_t row0, int rows, int64_t len,
                             int head_dim)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * width; i += WARPS * 32) {
        int r = i / width, d = i % width;
        bool there = row0 + r < len && d < head_dim;
        dst[r * pitch + d] = there ? hcp::to_float(src[(row0 + r) * stride + d]) : 0.0f;
    }
}

__device__ inline float warp_max(float x)
{
    for (int step = 16; step; step >>= 1) {
        float y = __shfl_xor_sync(ALL, x, step);
        x = x > y || isnan(x) ? x : y; /* unlike fmaxf, keeps NaN */
    }
    return x;
}

__device__ inline float warp_sum(float x)
{
    for (int step = 16; step; step >>= 1)
        x += __shfl_xor_sync(ALL, x, step);
    return x;
}

/* Work item: BLOCK_ROWS query rows of one head. */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32, 1)
    attention(const T *q, const T *k, const T *v, void *o, float *lse, const shape s)
{
    extern __shared__ float4 shared[];
    const int D = s.head_dim, qp = q_pitch(D), kp = k_pitch(D);
    float *q_tile = (float *)shared, *kv_tile = q_tile + BLOCK_ROWS * qp;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t row_blocks = (s.q_len + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int64_t items = row_blocks * s.batch * s.heads;

    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t plane = item / row_blocks, b = plane / s.heads, h = plane % s.heads;
        /* Longest rows first, so that the last blocks to finish are short ones. */
        const int64_t row0 = (row_blocks - 1 - item % row_blocks) * BLOCK_ROWS;
        const int64_t hk = h / (s.heads / s.kv_heads);
        const T *kh = k + b * s.k_stride[0] + hk * s.k_stride[1];
        const T *vh = v + b * s.v_stride[0] + hk * s.v_stride[1];
        const int64_t o_head = b * s.o_stride[0] + h * s.o_stride[1];
        float acc[ROWS][CHUNKS], top[ROWS], sum[ROWS];
        int64_t keys[ROWS], all_keys = 0; /* row r sees the first keys[r] */

        __syncthreads(); /* the tiles of the item before are read */
        stage(q_tile, qp, qp, q + b * s.q_stride[0] + h * s.q_stride[1], s.q_stride[2],
              row0, BLOCK_ROWS, s.q_len, D);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int64_t row = row0 + warp * ROWS + r;
            float before =
                s.accumulate && row < s.q_len ? lse[plane * s.q_len + row] : -INFINITY;
            top[r] = before;
            sum[r] = before == -INFINITY ? 0.0f : 1.0f;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                int d = c * 32 + lane;
                acc[r][c] = sum[r] != 0 && d < D
                                ? ((const float *)o)[o_head + row * s.o_stride[2] + d]
                                : 0.0f;
            }
            keys[r] = s.kv_len;
            if (s.causal && row + s.diag + 1 < s.kv_len)
                keys[r] = row + s.diag + 1 > 0 ? row + s.diag + 1 : 0;
            if (row >= s.q_len)
                keys[r] = 0;
        }
        {
            int64_t last =
                row0 + BLOCK_ROWS - 1 < s.q_len ? row0 + BLOCK_ROWS - 1 : s.q_len - 1;
            all_keys = s.kv_len;
            if (s.causal && last + s.diag + 1 < s.kv_len)
                all_keys = last + s.diag + 1;
        }

        for (int64_t key0 = 0; key0 < all_keys; key0 += KEYS) {
            float p[ROWS] = {};
            __syncthreads();
            stage(kv_tile, kp, qp, kh, s.k_stride[2], key0, KEYS, s.kv_len, D);
            __syncthreads();
#pragma unroll 2
            for (int d = 0; d < qp; d += 4) {
                const float *x = kv_tile + lane * kp + d;
                const float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float4 y =
                        *(const float4 *)(q_tile + (warp * ROWS + r) * qp + d);
                    p[r] += y.x * x0;
                    p[r] += y.y * x1;
                    p[r] += y.z * x2;
                    p[r] += y.w * x3;
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                p[r] = key0 + lane < keys[r] ? p[r] * s.scale : -INFINITY;
                float peak = warp_max(p[r]);
                float next = peak > top[r] || isnan(peak) ? peak : top[r];
                /* Nothing seen yet and nothing in this tile: exp(-inf + inf). */
                float fade = next == -INFINITY ? 1.0f : expf(top[r] - next);
                p[r] = next == -INFINITY ? 0.0f : expf(p[r] - next);
                sum[r] = sum[r] * fade + warp_sum(p[r]);
                top[r] = next;
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
                    acc[r][c] *= fade;
            }
            __syncthreads();
            stage(kv_tile, kp, qp, vh, s.v_stride[2], key0, KEYS, s.kv_len, D);
            __syncthreads();
#pragma unroll 4
            for (int j = 0; j < KEYS; j++) {
                float w[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    w[r] = __shfl_sync(ALL, p[r], j);
#pragma unroll
                for (int c = 0; c < CHUNKS; c++) {
                    if (c * 32 >= D)
                        break;
                    const float x =
                        c * 32 + lane < D ? kv_tile[j * kp + c * 32 + lane] : 0.0f;
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
                        acc[r][c] += w[r] == 0 ? 0.0f : w[r] * x;
                }
            }
        }

#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int64_t row = row0 + warp * ROWS + r;
            if (row >= s.q_len)
                continue;
            const bool empty = top[r] == -INFINITY;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                if (c * 32 + lane < D)
                    hcp::store(o, o_head + row * s.o_stride[2] + c * 32 + lane,
                               s.out_dtype, empty ? 0.0f : acc[r][c] / sum[r]);
            if (lane == 0)
                lse[plane * s.q_len + row] = empty ? -INFINITY : top[r] + logf(sum[r]);
        }
    }
}

template <typename T>
cudaError_t launch(const shape &s, const hcp_attn_args *a, cudaStream_t stream)
{
    const size_t bytes = shared_bytes(s.head_dim);
    const int64_t items = (s.q_len + BLOCK_ROWS - 1) / BLOCK_ROWS * s.batch * s.heads;
    /* The limit is the kernel's, not the launch's: another thread may set it before the
     * launch here, so that all set the same, that of the largest head dim. */
    cudaError_t e =
        cudaFuncSetAttribute(attention<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared_bytes(MAX_DIM));
    if (e != cudaSuccess)
        return e;
    attention<T>
        <<<(unsigned)(items < 1 << 20 ? items : 1 << 20), WARPS * 32, bytes, stream>>>(
            (const T *)a->q, (const T *)a->k, (const T *)a->v, a->o, a->lse, s);
    return cudaPeekAtLastError();
}

} // namespace

extern "C" int hcp_cuda_launch_reference(const hcp_attn_problem *p,
                                         const hcp_attn_args *a, void *stream)
{
    shape s = {};
    s.q_len = a->q_len;
    s.kv_len = a->kv_len;
    s.diag = a->diag;
    s.batch = p->batch;
    s.heads = p->heads;
    s.kv_heads = p->kv_heads;
    s.head_dim = (int)p->head_dim;
    s.out_dtype = p->out_dtype;
    s.causal = p->causal;
    s.accumulate = p->accumulate;
    s.scale = (float)p->scale;
    for (int i = 0; i < 3; i++) {
        s.q_stride[i] = p->q_stride[i];
        s.k_stride[i] = p->k_stride[i];
        s.v_stride[i] = p->v_stride[i];
        s.o_stride[i] = p->o_stride[i];
    }
    if (s.q_len * s.batch * s.heads == 0)
        return cudaSuccess;
    switch (p->dtype) {
    case HCP_BF16:
        return launch<__nv_bfloat16>(s, a, (cudaStream_t)stream);
    case HCP_FP16:
        return launch<__half>(s, a, (cudaStream_t)stream);
    default:
        return launch<float>(s, a, (cudaStream_t)stream);
    }
}
