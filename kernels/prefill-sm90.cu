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
 * Keys past the end are zeros by TMA. V of a key that the diagonal hides has weight 0,
 * but is in a product where its tile is visited: it has to be finite.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/prefill-sm90.h"
#include "kernels/sm90-ptx.cuh"
#include "kernels/sm90-rows.cuh"
#include "kernels/sm90-tiles.cuh"
#include "kernels/sm90-wgmma.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compiled for sm_90a alone; see cuda.mk"
#endif

namespace
{

using namespace sm90;

/* A math warpgroup's work. */
template <typename C> struct math : rows<C, hcp_sm90_prefill> {
    using T = typename C::T;
    using L = layout<C>;
    using base = rows<C, hcp_sm90_prefill>;
    using base::job, base::o, base::sum, base::thread_row;

    uint32_t shared;
    int group;  /* of the math ones, from 0 */
    uint32_t n; /* key tiles scored so far, of all query tiles */

    __device__ __forceinline__ math(const hcp_sm90_prefill &job_, uint32_t shared_,
                                    int group_)
        : base(job_), shared(shared_), group(group_)
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

    __device__ __forceinline__ uint32_t k_tile(uint32_t use)
    {
        return shared + C::K_AT + buffer<C::KV_RING>(use) * C::KV_BYTES;
    }

    __device__ __forceinline__ uint32_t v_tile(uint32_t use)
    {
        return shared + C::V_AT + buffer<C::KV_RING>(use) * C::KV_BYTES;
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

    /* Scores of key tile j that a row does not see become -inf. */
    __device__ __forceinline__ void mask(float (&s)[C::KV / 2], int first_row, int j)
    {
        const int first = j * C::KV + 2 * (threadIdx.x % 4); /* key of s[0] */
        const int row = first_row + thread_row();
        const int seen[2] = {min(job.kv_len, row + job.diag + 1) - first,
                             min(job.kv_len, row + 8 + job.diag + 1) - first};
        base::hide(s, seen);
    }

    /* One key tile: its scores, the sums of the tile before, its softmax. */
    __device__ __forceinline__ void step(uint32_t q, int q_free, int first_row, int j,
                                         int whole)
    {
        float s[C::KV / 2];
        wait_full(L::k_full, n);
        take_turn();
        base::issue_scores(s, q, k_tile(n));
        wait_full(L::v_full, n - 1);
        base::issue_sums(v_tile(n - 1));
        end_turn();
        wgmma_wait<1>();
        pin(s);
        release(L::k_free, n);
        if (j == 0) /* Q is read: the next one may come while this one ends */
            release(q_free);
        if (j >= whole)
            mask(s, first_row, j);
        base::softmax(s);
        pin(s); /* the softmax is before the wait in PTX at least */
        pin(sum);
        if (C::held)
            base::hold(sum[0] + sum[1], shared + C::SLOTS_AT);
        wgmma_wait<0>();
        pin(o);
        release(L::v_free, n - 1);
        n++;
        base::rescale();
        base::keep(s);
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
            base::issue_scores(s, q, k_tile(n));
            wgmma_wait<0>();
            pin(s);
            release(L::k_free, n);
            if (steps == 1)
                release(q_free);
            mask(s, first_row, steps - 1);
            base::softmax(s);
            base::keep(s);
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
        base::issue_sums(v_tile(n - 1));
        wgmma_wait<0>();
        pin(o);
        release(L::v_free, n - 1);
    }

    /* O / sum and L to their places. */
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
            float weight, old_weight;
            base::close(r, lane, job.lse + plane * job.q_len + row, mine, job.accumulate,
                        weight, old_weight);
            const int64_t offset = at.batch * job.o_stride[0] +
                                   at.head * job.o_stride[1] + row * job.o_stride[2];
            if (!job.out_fp32)
                base::store_rounded((T *)job.o + offset + 8 * lane, lane, r, weight,
                                    mine);
            else
                base::store_fp32((float *)job.o + offset + 8 * (lane % 2) +
                                     4 * (lane / 2),
                                 lane, r, weight, old_weight, mine);
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
            base::clear();
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
