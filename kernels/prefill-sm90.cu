/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-wgmma": attention for Hopper (sm_90a).
 *
 * One block an SM takes tiles of 64 query rows a math warpgroup, of one head, from an
 * atomic counter until none is left. Its warpgroups have roles:
 *
 *   producer  one thread of it: takes the tiles, brings Q, K and V by TMA into rings of
 *             shared memory buffers, each with a pair of mbarriers (full, free). Gives
 *             its registers away.
 *   math      2 or 3 of them: S = Q K^T with both operands in shared memory, softmax in
 *             registers, O += P V with P in registers, where the sums of the first
 *             product already lie as the second one's operand.
 *
 * Tensor cores and exponentials are both busy only if somebody multiplies while somebody
 * else takes exponentials:
 *
 *   between warpgroups   one's softmax runs under the others' products. Named barriers
 *                        that let them issue these in turn (IN_TURN) keep them apart;
 *                        without, they find their ways apart by themselves. Which is
 *                        faster is a matter of measurement: see the table at the end;
 *   inside a warpgroup   S of a step is issued before P V of the step before and waited
 *                        for first, so that its softmax may run under that P V. Left to
 *                        itself ptxas of CUDA 13.0 schedules the wait for P V before the
 *                        exponentials; HELD keeps it behind them. Two warpgroups gain by
 *                        that, three do not: they cover each other already.
 *
 * Keys are walked from the last tile to the first: what needs a mask (the end of the
 * keys, the diagonal) comes first. Mask and way of storing are run-time branches, alike
 * for a whole warp.
 *
 * Softmax: per row the maximum `top` of the raw scores so far; P = exp2(score * scale -
 * top * scale) with log2(e) in the scale, one multiply-add and one exponential. With LAZY
 * the maximum moves only when it has grown by a factor of over 2^8: weights up to that
 * are as precise as those up to 1, and most steps then need no pass over O.
 *
 * Keys past the end are zeros by TMA. V of a key that the diagonal hides has weight 0,
 * but is in a product where its tile is visited: it has to be finite.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/prefill-sm90.h"
#include "kernels/sm90-ptx.cuh"
#include "kernels/sm90-tiles.cuh"
#include "kernels/sm90-wgmma.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compiled for sm_90a alone; see cuda.mk"
#endif

namespace
{

using namespace sm90;

constexpr unsigned ALL = 0xffffffffu;

/* A math warpgroup's work. Arrays of two: rows r and r + 8 of the thread's. */
template <typename C> struct math {
    using T = typename C::T;
    using L = layout<C>;
    using scores = wgmma<T, C::KV>;
    using sums = wgmma<T, C::D>;

    const hcp_sm90_prefill &job;
    uint32_t shared;
    int group; /* of the math ones, from 0 */
    float o[C::D / 2];
    uint32_t p[C::KV / 4]; /* weights of the step before, by twos */
    float top[2], sum[2], fade[2];
    uint32_t n; /* key tiles scored so far, of all query tiles */

    __device__ __forceinline__ math(const hcp_sm90_prefill &job_, uint32_t shared_,
                                    int group_)
        : job(job_), shared(shared_), group(group_)
    {
    }

    __device__ __forceinline__ uint32_t barrier(int i)
    {
        return shared + C::BARRIERS_AT + 8 * i;
    }

    /* first: number of the barrier of buffer 0. */
    __device__ __forceinline__ void wait_full(int first, uint32_t use)
    {
        barrier_wait(barrier(first + buffer<C::KV_RING>(use)), parity<C::KV_RING>(use));
    }

    /* The first of the thread's two rows of the warpgroup's 64. */
    static __device__ __forceinline__ int thread_row()
    {
        return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    }

    /* Each warp says so for itself: what it waited for was its own part. */
    __device__ __forceinline__ void release(int i)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(barrier(i));
    }

    __device__ __forceinline__ void release(int first, uint32_t use)
    {
        release(first + buffer<C::KV_RING>(use));
    }

    /* Products are issued between take_turn() and end_turn(): group 0, 1, ..., 0. */
    __device__ __forceinline__ void take_turn()
    {
        if (C::in_turn)
            named_sync(1 + group, 2 * GROUP);
    }

    __device__ __forceinline__ void end_turn()
    {
        if (C::in_turn)
            named_arrive(group + 1 == C::MATH ? 1 : 2 + group, 2 * GROUP);
    }

    /* S = Q K^T of key tile `use`. */
    __device__ __forceinline__ void issue_scores(float (&s)[C::KV / 2], uint32_t q,
                                                 uint32_t use)
    {
        const descriptor rows(q, 16, ATOM_BYTES);
        const descriptor keys(shared + C::K_AT + buffer<C::KV_RING>(use) * C::KV_BYTES,
                              16, ATOM_BYTES);
        pin(s);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::D / K_STEP; i++) {
            const int slab = i / (SLAB / K_STEP), in = i % (SLAB / K_STEP) * K_STEP * 2;
            scores::score(s, rows.at(slab * C::Q * ROW_BYTES + in),
                          keys.at(slab * C::KV * ROW_BYTES + in), i > 0);
        }
        wgmma_commit();
    }

    /* O += P V of key tile `use`. */
    __device__ __forceinline__ void issue_sums(uint32_t use)
    {
        const descriptor values(shared + C::V_AT + buffer<C::KV_RING>(use) * C::KV_BYTES,
                                C::KV * ROW_BYTES, ATOM_BYTES);
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

    /* Scores of key tile j that a row does not see become -inf. */
    __device__ __forceinline__ void mask(float (&s)[C::KV / 2], int first_row, int j)
    {
        const int first = j * C::KV + 2 * (threadIdx.x % 4); /* key of s[0] */
        const int row = first_row + thread_row();
        const int seen[2] = {min(job.kv_len, row + job.diag + 1) - first,
                             min(job.kv_len, row + 8 + job.diag + 1) - first};
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
    __device__ __forceinline__ void hold(float x)
    {
        asm volatile("{\n\t"
                     ".reg .pred negative;\n\t"
                     "setp.lt.f32 negative, %0, 0f00000000;\n\t"
                     "@negative st.shared.f32 [%1], %0;\n\t"
                     "}" ::"f"(x),
                     "r"(shared + C::SLOTS_AT)
                     : "memory");
    }

    /* One key tile: its scores, the sums of the tile before, its softmax. */
    __device__ __forceinline__ void step(uint32_t q, int q_free, int first_row, int j,
                                         int whole)
    {
        float s[C::KV / 2];
        wait_full(L::k_full, n);
        take_turn();
        issue_scores(s, q, n);
        wait_full(L::v_full, n - 1);
        issue_sums(n - 1);
        end_turn();
        wgmma_wait<1>();
        pin(s);
        release(L::k_free, n);
        if (j == 0) /* Q is read: the next one may come while this one ends */
            release(q_free);
        if (j >= whole)
            mask(s, first_row, j);
        softmax(s);
        pin(s); /* the softmax is before the wait in PTX at least */
        pin(sum);
        if (C::held)
            hold(sum[0] + sum[1]);
        wgmma_wait<0>();
        pin(o);
        release(L::v_free, n - 1);
        n++;
        rescale();
        keep(s);
    }

    /* All key tiles of a query tile, at least one. first_row: of this warpgroup. */
    __device__ __forceinline__ void attend(uint32_t q, int q_free, int first_row,
                                           int steps)
    {
        /* Tiles that all rows of the warpgroup see whole. */
        const int whole = min(job.kv_len, first_row + job.diag + 1) / C::KV;
        {
            float s[C::KV / 2];
            wait_full(L::k_full, n);
            issue_scores(s, q, n);
            wgmma_wait<0>();
            pin(s);
            release(L::k_free, n);
            if (steps == 1)
                release(q_free);
            mask(s, first_row, steps - 1);
            softmax(s);
            keep(s);
            n++;
        }
#pragma unroll 1
        for (int j = steps - 2; j >= 0; j--)
            step(q, q_free, first_row, j, whole);
    }

    /* The last tile's part of O. */
    __device__ __forceinline__ void finish()
    {
        wait_full(L::v_full, n - 1);
        issue_sums(n - 1);
        wgmma_wait<0>();
        pin(o);
        release(L::v_free, n - 1);
    }

    /* O / sum and L to their places; with accumulate merged with what is there, by the
     * rule of merge.h. A row's four threads have the columns 8j + 2 (t % 4) and next;
     * they swap them for 16 bytes in a row each. */
    __device__ __forceinline__ void store(const place &at)
    {
        int thread = threadIdx.x;
        asm volatile("" : "+r"(thread)); /* nothing below is worked out ahead and kept */
        const int first =
            at.row + 64 * group + thread % GROUP / 32 * 16 + thread % 32 / 4;
        const int lane = thread % 4;
        const int64_t plane = (int64_t)at.batch * job.heads + at.head;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = first + 8 * r;
            const bool mine = row < job.q_len;
            float *lse = job.lse + plane * job.q_len + row;
            float total = sum[r];
            total += __shfl_xor_sync(ALL, total, 1);
            total += __shfl_xor_sync(ALL, total, 2);
            float fresh = total > 0 ? based(top[r]) * 0.693147180559945309f + logf(total)
                                    : (total == 0 ? -INFINITY : NAN);
            float old = -INFINITY, weight = total == 0 ? 0 : 1 / total, old_weight = 0;
            if (job.accumulate && mine)
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
            const int64_t offset = at.batch * job.o_stride[0] +
                                   at.head * job.o_stride[1] + row * job.o_stride[2];
            if (!job.out_fp32)
                store_rounded((T *)job.o + offset + 8 * lane, lane, r, weight, mine);
            else
                store_fp32((float *)job.o + offset + 8 * (lane % 2) + 4 * (lane / 2),
                           lane, r, weight, old_weight, mine);
        }
    }

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

    __device__ __forceinline__ void run(volatile int *slot)
    {
        n = 0;
        if (C::in_turn && group == C::MATH - 1)
            named_arrive(1, 2 * GROUP); /* group 0 begins */
#pragma unroll 1
        for (uint32_t m = 0;; m++) {
            const int at = buffer<C::Q_RING>(m);
            barrier_wait(barrier(L::q_full + at), parity<C::Q_RING>(m));
            /* Read by the thread that gives the slot back. */
            int tile = 0;
            if (threadIdx.x % 32 == 0)
                tile = slot[at];
            tile = __shfl_sync(ALL, tile, 0);
            if (tile < 0)
                break;
#pragma unroll
            for (int i = 0; i < C::D / 2; i++)
                o[i] = 0;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                top[r] = -INFINITY;
                sum[r] = 0;
            }
            const place now = locate<C>(job, tile);
            if (now.steps > 0) { /* 0: a block without keys */
                attend(shared + at * C::Q_BYTES + group * 64 * ROW_BYTES, L::q_free + at,
                       now.row + 64 * group, now.steps);
                finish();
            } else
                release(L::q_free + at);
            /* Where the tile is is worked out anew: registers are short above. */
            asm volatile("" : "+r"(tile));
            store(locate<C>(job, tile));
        }
        if (C::in_turn && group == 0)
            named_sync(1, 2 * GROUP); /* the last turn, which nobody takes */
    }
};

template <typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    prefill(const __grid_constant__ hcp_sm90_prefill job)
{
    extern __shared__ char raw[];
    using L = layout<C>;
    char *aligned = raw + (-(uintptr_t)shared_address(raw) & (ATOM_BYTES - 1));
    const uint32_t shared = shared_address(aligned);
    volatile int *slot = (volatile int *)(aligned + C::SLOTS_AT);

    if (threadIdx.x == 0) {
        /* A full barrier hears of the one thread that asks for the bytes, a free one of
         * all math warps. */
        for (int i = 0; i < C::BARRIERS; i++) {
            const bool frees = (i >= L::q_free && i < L::k_full) ||
                               (i >= L::k_free && i < L::v_full) || i >= L::v_free;
            barrier_init(shared + C::BARRIERS_AT + 8 * i, frees ? 4 * C::MATH : 1);
        }
        barrier_init_fence();
    }
    __syncthreads();

    if (threadIdx.x < GROUP) {
        registers_give<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce<C>(job, shared, slot);
    } else {
        registers_take<C::MATH_REGISTERS>();
        math<C> work(job, shared, __shfl_sync(ALL, threadIdx.x / GROUP, 0) - 1);
        work.run(slot);
    }
}

struct kernel {
    void (*entry)(hcp_sm90_prefill);
    int tile_q, tile_kv, threads, shared_bytes;
};

template <typename C> constexpr kernel entry_of()
{
    return {prefill<C>, C::Q, C::KV, C::THREADS, C::SHARED_BYTES};
}

/* What was the fastest of its head dim on an H200, full and causal, bf16, 32 heads and 8
 * KV heads of 1K to 64K tokens, in one process with the others; one for all lengths, so
 * that a profile and its plans know the tile. Relative to these at 16K, full: at 64 no
 * turns -10 %, LAZY -6 %, HELD -4 %, two warpgroups -18 %; at 128 turns -1 %, not HELD
 * -7 %, 160 keys and two buffers of Q -2 %, three warpgroups and 80 keys +3 % (causal 0),
 * which lose 8 % at 4K and 30 % where 1K rows are 1.5 waves of 192; at 256 (LAZY) 64 keys
 * -13 %, HELD +0.6 %, which is within the noise. */
template <typename T> struct kernels {
    static constexpr kernel d64 = entry_of<config<T, 64, 128, 3, 1, 2, true, false>>();
    static constexpr kernel d128 =
        entry_of<config<T, 128, 176, 2, 1, 2, false, true, true>>();
    static constexpr kernel d256 = entry_of<config<T, 256, 80, 2, 1, 2, false, true>>();
};

template <typename T> const kernel *choose(const hcp_attn_problem *p)
{
    using K = kernels<T>;
    return p->head_dim == 64 ? &K::d64 : p->head_dim == 128 ? &K::d128 : &K::d256;
}

const kernel *choose(const hcp_attn_problem *p)
{
    return p->dtype == HCP_BF16 ? choose<__nv_bfloat16>(p) : choose<__half>(p);
}

} // namespace

extern "C" hcp_sm90_tile hcp_cuda_prefill_sm90_tile(const hcp_attn_problem *p)
{
    const kernel *k = choose(p);
    return {k->tile_q, k->tile_kv};
}

extern "C" int hcp_cuda_launch_prefill_sm90(const hcp_attn_problem *p,
                                            const hcp_sm90_prefill *job, int sm_count,
                                            void *stream_)
{
    const kernel *k = choose(p);
    cudaStream_t stream = (cudaStream_t)stream_;
    cudaError_t e = cudaFuncSetAttribute(
        k->entry, cudaFuncAttributeMaxDynamicSharedMemorySize, k->shared_bytes);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(job->counter, 0, sizeof *job->counter, stream);
    if (e != cudaSuccess)
        return e;
    const int blocks = job->tiles < sm_count ? job->tiles : sm_count;
    k->entry<<<blocks, k->threads, k->shared_bytes, stream>>>(*job);
    return cudaPeekAtLastError();
}
