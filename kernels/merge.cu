/* SPDX-License-Identifier: Apache-2.0
 *
 * Merge of partial attention states by the rule of merge.h, in fp32 with the
 * accurate expf and logf. Bound by memory: a thread has up to 16-byte accesses for
 * 8 elements of one row in flight, the threads of a row compute its weights anew.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/cuda-internal.h"
#include "kernels/cuda.h"
#include "kernels/dtype.cuh"
#include "kernels/randn.h"

namespace
{

constexpr int THREADS = 256;
constexpr int MANY = 64; /* states merged by one launch */

struct split {
    int row_threads; /* threads of one row */
    int block_rows;
};

/* Rows never straddle a block: lse may be read and written in place. */
split split_rows(int64_t head_dim, int vec)
{
    int64_t n = (head_dim + vec - 1) / vec;
    int row_threads = n > THREADS ? THREADS : (n ? (int)n : 1);
    return {row_threads, THREADS / row_threads};
}

dim3 grid_for(const split &s, int64_t rows, int64_t planes)
{
    return dim3((unsigned)((rows + s.block_rows - 1) / s.block_rows),
                (unsigned)(planes > 65535 ? 65535 : planes));
}

__device__ inline float natural_lse(float lse, uint32_t caps)
{
    if (caps & HCP_CAP_EMPTY_POS_INF && lse == INFINITY)
        return -INFINITY;
    return caps & HCP_CAP_LSE_LOG2 ? lse * 0.693147180559945309f : lse;
}

/* hcp_finish: storing is merging into the empty state, an empty part has L = -inf. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS) finish_rows(const hcp_finish job, split s)
{
    int sub = threadIdx.x / s.row_threads;
    int64_t row = (int64_t)blockIdx.x * s.block_rows + sub;
    int64_t first = (int64_t)(threadIdx.x % s.row_threads) * N;
    bool mine = sub < s.block_rows && row < job.rows;
    int64_t planes = job.batch * job.heads;

    for (int64_t plane = blockIdx.y; plane < planes; plane += gridDim.y) {
        int64_t b = plane / job.heads, h = plane % job.heads;
        float *o =
            job.o + b * job.o_stride[0] + h * job.o_stride[1] + row * job.o_stride[2];
        const T *part = (const T *)job.part + b * job.part_stride[0] +
                        h * job.part_stride[1] + row * job.part_stride[2];
        float *lse = job.lse + plane * job.lse_pitch + row;
        float la = -INFINITY, lb = -INFINITY, x[N] = {}, y[N] = {};
        bool whole = mine && first < job.head_dim;
        if (mine && job.accumulate)
            la = *lse;
        if (mine && job.lse_part)
            lb = natural_lse(job.lse_part[plane * job.part_pitch + row], job.caps);
        if (whole && job.accumulate)
            hcp::load<N>(x, o + first);
        if (whole && job.lse_part)
            hcp::load<N>(y, part + first);
        __syncthreads(); /* all have read the row's lse */
        if (!mine)
            continue;

        float top = la > lb ? la : lb;
        bool empty = la == -INFINITY && lb == -INFINITY;
        float wa = empty ? 0 : expf(la - top), wb = empty ? 0 : expf(lb - top);
        float sum = wa + wb, fa = wa / sum, fb = wb / sum;
        for (int64_t d = first; d < job.head_dim; d += (int64_t)s.row_threads * N) {
            if (d != first) {
                if (job.accumulate)
                    hcp::load<N>(x, o + d);
                if (job.lse_part)
                    hcp::load<N>(y, part + d);
            }
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = empty     ? 0
                       : wb == 0 ? x[i]
                       : wa == 0 ? y[i]
                                 : fa * x[i] + fb * y[i];
            hcp::store<N>(o + d, x);
        }
        if (first == 0)
            *lse = empty ? -INFINITY : top + logf(sum);
    }
}

__global__ void __launch_bounds__(THREADS) finish_lse(const hcp_finish job)
{
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= job.rows)
        return;
    for (int64_t plane = blockIdx.y; plane < job.batch * job.heads; plane += gridDim.y)
        job.lse[plane * job.lse_pitch + row] =
            job.lse_part
                ? natural_lse(job.lse_part[plane * job.part_pitch + row], job.caps)
                : -INFINITY;
}

struct states {
    const float *o[MANY], *lse[MANY];
    int n;
};

/* o and lse may be one of the states. */
template <int N>
__global__ void __launch_bounds__(THREADS)
    merge_rows(float *o, float *lse, const states part, int64_t rows, int64_t head_dim,
               split s)
{
    int sub = threadIdx.x / s.row_threads;
    int64_t row = (int64_t)blockIdx.x * s.block_rows + sub;
    int64_t first = (int64_t)(threadIdx.x % s.row_threads) * N;
    bool mine = sub < s.block_rows && row < rows;
    float top = -INFINITY, sum = 0;

    for (int p = 0; mine && p < part.n; p++)
        if (!(part.lse[p][row] <= top)) /* a NaN is taken, and stays */
            top = part.lse[p][row];
    bool empty = top == -INFINITY;
    for (int p = 0; mine && !empty && p < part.n; p++)
        sum += expf(part.lse[p][row] - top);
    for (int64_t d = first; mine && d < head_dim; d += (int64_t)s.row_threads * N) {
        float x[N] = {}, y[N];
        for (int p = 0; !empty && p < part.n; p++) {
            float w = expf(part.lse[p][row] - top) / sum;
            if (w == 0)
                continue; /* what it weighs may be NaN */
            hcp::load<N>(y, part.o[p] + row * head_dim + d);
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] += w * y[i];
        }
        hcp::store<N>(o + row * head_dim + d, x);
    }
    __syncthreads();
    if (mine && first == 0)
        lse[row] = empty ? -INFINITY : top + logf(sum);
}

__global__ void __launch_bounds__(THREADS)
    fill_normal(void *dst, int64_t n, int32_t dtype, uint64_t seed, uint64_t from)
{
    int64_t step = (int64_t)gridDim.x * THREADS * 2;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 2; i < n;
         i += step) {
        hcp::store(dst, i, dtype, hcp_randn_at(seed, from + (uint64_t)i));
        if (i + 1 < n)
            hcp::store(dst, i + 1, dtype, hcp_randn_at(seed, from + (uint64_t)i + 1));
    }
}

bool aligned16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Whether rows start at 16-byte boundaries; strides of axes of one do not matter. */
bool aligned_rows(const void *p, const int64_t stride[3], int64_t bytes,
                  const hcp_finish *job)
{
    return aligned16(p) && (job->batch < 2 || stride[0] * bytes % 16 == 0) &&
           (job->heads < 2 || stride[1] * bytes % 16 == 0) &&
           (job->rows < 2 || stride[2] * bytes % 16 == 0);
}

template <typename T> void launch_finish(const hcp_finish *job, cudaStream_t stream)
{
    bool wide = job->head_dim % 8 == 0 && aligned_rows(job->o, job->o_stride, 4, job) &&
                aligned_rows(job->part, job->part_stride, sizeof(T), job);
    split s = split_rows(job->head_dim, wide ? 8 : 1);
    dim3 grid = grid_for(s, job->rows, job->batch * job->heads);
    if (wide)
        finish_rows<T, 8><<<grid, THREADS, 0, stream>>>(*job, s);
    else
        finish_rows<T, 1><<<grid, THREADS, 0, stream>>>(*job, s);
}

} // namespace

extern "C" int hcp_cuda_launch_finish(const hcp_finish *job, void *stream_)
{
    cudaStream_t stream = (cudaStream_t)stream_;
    if (job->batch < 0 || job->heads < 0 || job->rows < 0 || job->head_dim < 0 ||
        (!job->o && (job->part || job->accumulate)) || (job->part && !job->lse_part) ||
        (job->o && job->lse_part && !job->part))
        return cudaErrorInvalidValue;
    if (job->batch * job->heads * job->rows == 0 || (job->accumulate && !job->lse_part))
        return cudaSuccess;
    if (!job->o) {
        split s = {1, THREADS};
        finish_lse<<<grid_for(s, job->rows, job->batch * job->heads), THREADS, 0,
                     stream>>>(*job);
    } else if (!job->lse_part || job->part_dtype == HCP_FP32) {
        launch_finish<float>(job, stream);
    } else if (job->part_dtype == HCP_BF16) {
        launch_finish<__nv_bfloat16>(job, stream);
    } else if (job->part_dtype == HCP_FP16) {
        launch_finish<__half>(job, stream);
    } else {
        return cudaErrorInvalidValue;
    }
    return cudaPeekAtLastError();
}

extern "C" int hcp_cuda_merge_many(float *o, float *lse, const float *const *parts,
                                   const float *const *lse_parts, int64_t n, int64_t rows,
                                   int64_t head_dim, void *stream)
{
    if (n < 0 || rows < 0 || head_dim < 0)
        return hcp_cuda_check(cudaErrorInvalidValue, "merge states");
    if (rows == 0)
        return HCP_RC_OK;
    for (int64_t done = 0; done < n || done == 0;) {
        states part = {};
        bool wide = head_dim % 4 == 0 && aligned16(o);
        if (done > 0) { /* what the launches before this one have written */
            part.o[0] = o;
            part.lse[0] = lse;
            part.n = 1;
        }
        for (; done < n && part.n < MANY; done++, part.n++) {
            part.o[part.n] = parts[done];
            part.lse[part.n] = lse_parts[done];
            wide = wide && aligned16(parts[done]);
        }
        split s = split_rows(head_dim, wide ? 4 : 1);
        dim3 grid = grid_for(s, rows, 1);
        if (wide)
            merge_rows<4><<<grid, THREADS, 0, (cudaStream_t)stream>>>(o, lse, part, rows,
                                                                      head_dim, s);
        else
            merge_rows<1><<<grid, THREADS, 0, (cudaStream_t)stream>>>(o, lse, part, rows,
                                                                      head_dim, s);
        if (n == 0)
            break;
    }
    return hcp_cuda_check(cudaPeekAtLastError(), "merge states");
}

extern "C" int hcp_cuda_launch_randn(void *dst, int64_t n, int32_t dtype, uint64_t seed,
                                     uint64_t first, void *stream)
{
    if (n < 0 || (dtype != HCP_BF16 && dtype != HCP_FP16 && dtype != HCP_FP32))
        return cudaErrorInvalidValue;
    if (n == 0)
        return cudaSuccess;
    int64_t blocks = (n + 2 * THREADS - 1) / (2 * THREADS);
    fill_normal<<<(unsigned)(blocks > 65536 ? 65536 : blocks), THREADS, 0,
                  (cudaStream_t)stream>>>(dst, n, dtype, seed, first);
    return cudaPeekAtLastError();
}
