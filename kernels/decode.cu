/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-decode": up to 16 queries against many keys, bound by reading K and V once.
 * See decode.h for how the work is cut.
 *
 * A block streams its keys through a ring of HCP_DECODE_STAGES stages of K and V in
 * shared memory (cp.async, 16-byte pieces swizzled so that ldmatrix meets every bank
 * once). A warp goes through its keys of a stage 16 or 32 at a time: scores by mma
 * m16n8k16, online softmax in base 2, then the product with V. At the end the warps of a
 * row group merge through shared memory, and the splits in a kernel of their own: always
 * in the same order, so that equal inputs give equal bits.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/decode-tile.cuh"
#include "kernels/dtype.cuh"

namespace
{

using namespace hcp::decode;

/* Four elements of an output row at element i, x of natural log-sum-exp l: stored, or
 * merged with the state there, whose L is before. Returns the row's L. */
__device__ inline float finish(const shape &s, int64_t i, float (&x)[4], float l,
                               float before)
{
    if (before != -INFINITY) {
        float o[4];
        hcp::load<4>(o, (const float *)s.o + i);
        const float top = fmaxf(l, before), a = expf(before - top), b = expf(l - top);
#pragma unroll
        for (int d = 0; d < 4; d++)
            x[d] = a / (a + b) * o[d] + (b == 0 ? 0 : b / (a + b) * x[d]);
        l = top + logf(a + b);
    }
    if (s.out_dtype == HCP_FP32) {
        hcp::store<4>((float *)s.o + i, x);
    } else {
#pragma unroll
        for (int d = 0; d < 4; d++)
            hcp::store(s.o, i + d, s.out_dtype, x[d]);
    }
    return l;
}

/* Shared memory after the last step: each warp's rows, then their maxima and sums. Rows
 * 8 floats apart in the banks, so that a warp's stores of 8 bytes meet each once. */
template <int D, int TILES> struct states {
    static constexpr int ROWS = TILES * 16, PITCH = D + 8;
    float o[WARPS][ROWS][PITCH];
    float top[WARPS][ROWS], sum[WARPS][ROWS];
    float before[WARPS * ROWS]; /* L of the rows' state until now */
};

/* What a block has of the problem. */
struct place {
    int b, hk, split, row0, row_end;
};

/* Blocks count row tiles, then splits, then KV heads. */
__device__ inline place locate(const shape &s, unsigned block, int warp_rows)
{
    const int tile_rows = s.row_groups * warp_rows,
              plane = block / s.row_tiles / s.splits;
    const int row0 = (int)(block % s.row_tiles) * tile_rows;
    return {plane / s.kv_heads, plane % s.kv_heads, (int)(block / s.row_tiles % s.splits),
            row0, min(row0 + tile_rows, s.rows)};
}

/* The end of a block: its warps' rows merged, and written as they are (one split) or as a
 * part of the whole. */
template <typename T, int D, int TILES>
__device__ inline void leave(const shape &s, const rows<T, D, TILES> &w,
                             states<D, TILES> &m)
{
    constexpr int ROWS = states<D, TILES>::ROWS, VECTORS = D / 4;
    /* Computed anew, so that no register keeps it during the steps. */
    const int thread = hcp::thread_again(), lane = thread % 32, warp = thread / 32;
    const auto [b, hk, n_split, row0, row_end] = locate(s, hcp::block_again(), ROWS);
    const int groups = s.row_groups;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = t * 16 + half * 8 + lane / 4;
            const float sum = row_sum(w.sum[t][half]);
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                *(float2 *)&m.o[warp][i][d * 8 + lane % 4 * 2] =
                    make_float2(w.o[t][d][half * 2], w.o[t][d][half * 2 + 1]);
            if (lane % 4 == 0) {
                m.top[warp][i] = w.top[t][half];
                m.sum[warp][i] = sum;
            }
        }
    /* Read before any thread of the row writes it. */
    if (thread < row_end - row0)
        m.before[thread] = s.splits == 1 && s.accumulate
                               ? s.lse[lse_offset(s, b, hk, row0 + thread)]
                               : -INFINITY;
    __syncthreads();

    for (int n = thread; n < (row_end - row0) * VECTORS; n += THREADS) {
        const int row = n / VECTORS, d = n % VECTORS * 4, i = row % ROWS;
        float top = -INFINITY, sum = 0, x[4] = {};
        for (int k = row / ROWS; k < WARPS; k += groups)
            top = fmaxf(top, m.top[k][i]);
        for (int k = row / ROWS; k < WARPS; k += groups) {
            const bool none = m.top[k][i] == -INFINITY;
            if (none && m.sum[k][i] == 0)
                continue;
            /* Scores that are all NaN leave a sum of NaN under a maximum of none. */
            const float a = none ? m.sum[k][i] : exp2f(m.top[k][i] - top);
            const float4 y = *(const float4 *)&m.o[k][i][d];
            sum += a * m.sum[k][i];
            x[0] += a * y.x;
            x[1] += a * y.y;
            x[2] += a * y.z;
            x[3] += a * y.w;
        }
        const bool empty = top == -INFINITY && sum == 0;
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = empty ? 0 : x[e] / sum;
        float l = empty ? -INFINITY : top * LN2 + logf(sum);
        const int64_t l_at = lse_offset(s, b, hk, row0 + row);
        if (s.splits == 1) {
            l = finish(s, o_offset(s, b, hk, row0 + row) + d, x, l, m.before[row]);
            if (d == 0)
                s.lse[l_at] = l;
        } else {
            const int64_t at = n_split * s.out_rows + l_at;
            hcp::store<4>(s.part_o + at * D + d, x);
            if (d == 0)
                s.part_lse[at] = l;
        }
    }
}

template <typename T, int D, int TILES>
__global__ void __launch_bounds__(THREADS, 2) split(const __grid_constant__ shape s)
{
    using R = ring<T, D>;
    using S = states<D, TILES>;
    extern __shared__ __align__(512) unsigned char memory[]; /* a row of K and more */
    __shared__ int limit[WARPS][S::ROWS];
    static_assert(sizeof(S) <= RING_BYTES, "the states take the ring's place");

    const int warp = threadIdx.x / 32;
    const auto [b, hk, n_split, row0, row_end] = locate(s, blockIdx.x, S::ROWS);
    const int64_t key0 = (int64_t)n_split * s.split_keys;
    const int keys =
        (int)max((int64_t)0, min((int64_t)s.split_keys, visible(s, row_end - 1) - key0));
    const int steps = (keys + R::STEP - 1) / R::STEP;

#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif

    R r;
    const int piece = threadIdx.x % R::PIECES, key_row = threadIdx.x / R::PIECES;
    r.k = (const T *)s.k + b * s.k_stride[0] + hk * s.k_stride[1] +
          (key0 + key_row) * s.k_stride[2] + piece * 8;
    r.v = (const T *)s.v + b * s.v_stride[0] + hk * s.v_stride[1] +
          (key0 + key_row) * s.v_stride[2] + piece * 8;
    const uint32_t stage0 = shared_address(memory);
    r.to = stage0 + R::place(key_row, piece);

#pragma unroll
    for (int j = 0; j < STAGES - 1; j++) {
        if (j < steps)
            r.copy(j, s.k_stride[2], s.v_stride[2], keys - j * R::STEP);
        hcp::copy_commit();
    }

    /* Warps of a row group part the keys of a step among them. */
    const int groups = s.row_groups, row_group = warp % groups, part = warp / groups;
    const int part_keys = R::STEP * groups / WARPS;
    const int first_row = row0 + row_group * S::ROWS;
    const bool works = first_row < row_end && part_keys >= KEYS;
    /* Twice as many at a time where registers are there for their scores. */
    constexpr int MANY = TILES * D <= 128 ? 2 * KEYS : KEYS;
    const bool many_keys = MANY > KEYS && part_keys >= MANY;
    rows<T, D, TILES> w;
    w.load(s, b, hk, first_row, row_end);
    /* Every row of the block sees at least so many. */
    const int all_see = (int)min((int64_t)keys, visible(s, row0) - key0);
    /* Rows of no warp see what the last row does. First read behind a barrier. */
    if (threadIdx.x < groups * S::ROWS)
        limit[threadIdx.x / S::ROWS][threadIdx.x % S::ROWS] =
            (int)max((int64_t)0, visible(s, row0 + threadIdx.x) - key0);

    int stage = 0;
#pragma unroll 1
    for (int j = 0; j < steps; j++) {
        hcp::copy_wait<STAGES - 2>();
        __syncthreads(); /* step j is there, step j - 1 is read */
        if (j + STAGES - 1 < steps)
            r.copy(stage == 0 ? STAGES - 1 : stage - 1, s.k_stride[2], s.v_stride[2],
                   keys - (j + STAGES - 1) * R::STEP);
        hcp::copy_commit();
        if (works) {
            const uint32_t from = stage0 + (uint32_t)(stage * HCP_DECODE_STAGE_BYTES);
            const int *const rows_limit =
                (j + 1) * R::STEP > all_see ? limit[row_group] : nullptr;
            if (many_keys) {
#pragma unroll 1
                for (int i = part * part_keys; i < (part + 1) * part_keys; i += MANY)
                    w.template step<MANY>(from, i, j * R::STEP + i, s.scale, rows_limit);
            } else {
#pragma unroll 1
                for (int i = part * part_keys; i < (part + 1) * part_keys; i += KEYS)
                    w.template step<KEYS>(from, i, j * R::STEP + i, s.scale, rows_limit);
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    hcp::copy_wait<0>();
    __syncthreads();

    leave<T, D, TILES>(s, w, *(S *)memory);
}

/* s.merge_warps warps an output row, each of which sums every so manieth of the row's
 * splits or parts, D / 32 elements a lane. */
template <int D>
__global__ void __launch_bounds__(THREADS) merge(const __grid_constant__ shape s)
{
    constexpr int EACH = D / 32, VECTORS = D / 4;
    __shared__ float o[WARPS][D], sums[WARPS], tops[WARPS], before[WARPS];
    __shared__ int counts[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warps = s.merge_warps, block_rows = WARPS / warps;
    const int64_t row = (int64_t)blockIdx.x * block_rows + warp / warps;
    const int count = row < s.out_rows ? parts_of_row(s, row) : 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (count > 1) { /* one is there already */
        float top = -INFINITY, sum = 0, x[EACH] = {};
        for (int p = lane; p < count; p += 32)
            top = fmaxf(top, s.part_lse[p * s.out_rows + row]);
#pragma unroll
        for (int step = 16; step; step >>= 1)
            top = fmaxf(top, __shfl_xor_sync(ALL, top, step));
#pragma unroll 4
        for (int p = warp % warps; p < count; p += warps) {
            const int64_t at = p * s.out_rows + row;
            const float l = s.part_lse[at], w = l == -INFINITY ? 0 : expf(l - top);
            float y[EACH];
            const float *from = s.part_o + at * D + lane * EACH;
            if constexpr (EACH == 2)
                *(float2 *)y = *(const float2 *)from;
            else
                hcp::load<EACH>(y, from);
            sum += w;
#pragma unroll
            for (int e = 0; e < EACH; e++)
                x[e] += w * y[e];
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            o[warp][lane * EACH + e] = x[e];
        if (lane == 0) {
            sums[warp] = sum;
            tops[warp] = top;
            before[warp] = s.accumulate ? s.lse[row] : -INFINITY;
        }
    }
    if (lane == 0)
        counts[warp] = count;
    __syncthreads();

    for (int n = threadIdx.x; n < block_rows * VECTORS; n += THREADS) {
        const int first = n / VECTORS * warps, d = n % VECTORS * 4;
        if (counts[first] < 2)
            continue;
        const float top = tops[first];
        float y[4] = {}, sum = 0;
        for (int w = first; w < first + warps; w++) {
            sum += sums[w];
#pragma unroll
            for (int e = 0; e < 4; e++)
                y[e] += o[w][d + e];
        }
        const bool empty = top == -INFINITY && sum == 0;
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[e] = empty ? 0 : y[e] / sum;
        const int64_t at = (int64_t)blockIdx.x * block_rows + n / VECTORS;
        const float l = finish(s, o_row(s, at) + d, y,
                               empty ? -INFINITY : top + logf(sum), before[first]);
        if (d == 0)
            s.lse[at] = l;
    }
}

cudaError_t launch(const void *kernel, int64_t blocks, int shared, bool overlap, shape &s,
                   cudaStream_t stream)
{
    void *args[] = {&s};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = (size_t)shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap;
    return cudaLaunchKernelExC(&config, kernel, args);
}

template <typename T, int D, int TILES>
cudaError_t launch_split(int64_t blocks, shape &s, cudaStream_t stream)
{
    const void *kernel = (const void *)split<T, D, TILES>;
    cudaError_t e = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
    return e == cudaSuccess ? launch(kernel, blocks, RING_BYTES, false, s, stream) : e;
}

template <typename T>
cudaError_t launch_split(int64_t head_dim, int tiles, int64_t blocks, shape &s,
                         cudaStream_t stream)
{
    if (head_dim == 256)
        return launch_split<T, 256, 1>(blocks, s, stream);
    if (head_dim == 128)
        return tiles == 1 ? launch_split<T, 128, 1>(blocks, s, stream)
                          : launch_split<T, 128, 2>(blocks, s, stream);
    return tiles == 1 ? launch_split<T, 64, 1>(blocks, s, stream)
                      : launch_split<T, 64, 2>(blocks, s, stream);
}

} // namespace

/* All instances of merge() are compiled alike. ptxVersion is what __CUDA_ARCH__ / 10 was,
 * which a device newer than that may run. */
extern "C" int hcp_cuda_decode_overlaps(void)
{
    cudaFuncAttributes code;
    if (cudaFuncGetAttributes(&code, (const void *)merge<128>) == cudaSuccess)
        return code.ptxVersion >= 90;
    cudaGetLastError(); /* the launch will tell */
    return 0;
}

extern "C" int hcp_cuda_launch_decode(const hcp_attn_problem *p, const hcp_attn_args *a,
                                      const hcp_decode_tiling *t,
                                      const hcp_decode_sm90_maps *maps, int overlap,
                                      void *stream)
{
    shape s = {};
    for (int i = 0; i < 3; i++) {
        s.q_stride[i] = p->q_stride[i];
        s.k_stride[i] = p->k_stride[i];
        s.v_stride[i] = p->v_stride[i];
        s.o_stride[i] = p->o_stride[i];
    }
    s.out_rows = p->batch * p->heads * a->q_len;
    s.q = a->q;
    s.k = a->k;
    s.v = a->v;
    s.o = a->o;
    s.lse = a->lse;
    s.part_o = (float *)a->workspace;
    s.part_lse = s.part_o + t->splits * s.out_rows * p->head_dim;
    s.q_len = (int)a->q_len;
    s.kv_len = (int)a->kv_len;
    s.diag = (int)a->diag;
    s.heads = (int)p->heads;
    s.kv_heads = (int)p->kv_heads;
    s.group = s.heads / s.kv_heads;
    s.rows = s.group * s.q_len;
    s.row_groups = t->row_groups;
    s.tile_rows = t->tile_rows;
    s.row_tiles = t->row_tiles;
    s.tiles = (int)(p->batch * p->kv_heads * t->row_tiles);
    s.splits = t->splits;
    s.split_keys = t->split_keys;
    s.steps = t->steps;
    s.block_steps = t->block_steps;
    s.merge_warps = t->splits <= HCP_DECODE_FEW_SPLITS ? 1 : WARPS;
    s.out_dtype = p->out_dtype;
    s.causal = p->causal;
    s.accumulate = p->accumulate;
    s.scale = (float)p->scale * LOG2E;

    const cudaStream_t on = (cudaStream_t)stream;
    const int64_t blocks = (int64_t)s.tiles * t->splits;
    cudaError_t e =
        maps ? (cudaError_t)hcp_cuda_launch_decode_sm90(p->dtype, p->head_dim, s, *maps,
                                                        on)
        : p->dtype == HCP_BF16
            ? launch_split<__nv_bfloat16>(p->head_dim, t->warp_tiles, blocks, s, on)
            : launch_split<__half>(p->head_dim, t->warp_tiles, blocks, s, on);
    if (e != cudaSuccess || t->splits == 1)
        return e;
    const void *kernel = p->head_dim == 256   ? (const void *)merge<256>
                         : p->head_dim == 128 ? (const void *)merge<128>
                                              : (const void *)merge<64>;
    const int block_rows = WARPS / s.merge_warps;
    return launch(kernel, (s.out_rows + block_rows - 1) / block_rows, 0, overlap != 0, s,
                  on);
}
