/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-wgmma": attention for Hopper (sm_90a).
 *
 * One block an SM takes tiles of TILE_Q query rows of one head from an atomic counter
 * until none is left. Its warpgroups have roles:
 *
 *   producer  one thread of it: takes the tiles, brings Q, K and V by TMA into rings of
 *             shared memory buffers, each with a pair of mbarriers (full, free). Gives
 *             its registers away.
 *   math      2 or 3 of them, 64 rows of the tile each: S = Q K^T with both operands in
 *             shared memory, softmax in registers, O += P V with P in registers, where
 *             the sums of the first product already lie as the second one's operand.
 *
 * Tensor cores and exponentials are both busy only if somebody multiplies while somebody
 * else takes exponentials:
 *
 *   inside a warpgroup   S of a step is issued before P V of the step before and waited
 *                        for first, so that its softmax runs under that P V;
 *   between warpgroups   named barriers let them issue their products in turn, so that
 *                        one's softmax runs under the other's products (IN_TURN; at head
 *                        dim 256 products outweigh softmax and the turns only cost).
 *
 * Keys are walked from the last tile to the first: what needs a mask (the end of the
 * keys, the diagonal) comes first. Mask and way of storing are run-time branches, alike
 * for a whole warp.
 *
 * Softmax: per row the maximum `top` of the raw scores so far and base = top * scale in
 * base 2; P = exp2(score * scale - base), one multiply-add and one exponential. With LAZY
 * the maximum moves only when it has grown by a factor of over 2^8: weights up to that
 * are as precise as those up to 1, and most steps then need no pass over O.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/cuda-internal.h"
#include "kernels/dtype.cuh"
#include "kernels/prefill-sm90.h"
#include "kernels/sm90-ptx.cuh"
#include "kernels/sm90-wgmma.cuh"

namespace
{

constexpr unsigned ALL = 0xffffffffu;
constexpr int GROUP = 128; /* threads of a warpgroup */
constexpr int SLAB = HCP_SM90_SLAB;
constexpr int ROW_BYTES = SLAB * 2; /* of a slab */
constexpr int ATOM_BYTES = 8 * ROW_BYTES;
constexpr int K_STEP = 16; /* of one wgmma along its inner axis */

/* What paid in measurement; see config. */
enum { IN_TURN = 1, EARLY = 2, LAZY = 4 };

/* What a kernel is compiled for: head dim D, tiles of KV keys, MATH warpgroups of 64
 * rows, ring sizes, and HOW: turns between the warpgroups, O rescaled under the next
 * scores rather than after its sums (EARLY), rescaling only where it is needed (LAZY). */
template <typename T_, int D_, int KV_, int MATH_, int Q_RING_, int KV_RING_, int HOW_>
struct config {
    using T = T_;
    static constexpr int D = D_, KV = KV_, MATH = MATH_;
    static constexpr int Q_RING = Q_RING_, KV_RING = KV_RING_;
    static constexpr bool in_turn = HOW_ & IN_TURN, early = HOW_ & EARLY;
    static constexpr bool lazy = HOW_ & LAZY;
    static constexpr int Q = 64 * MATH;
    static constexpr int THREADS = GROUP * (MATH + 1);
    /* Of 65536 registers; the block starts with all threads alike. */
    static constexpr int MATH_REGISTERS = MATH == 2 ? 240 : 160;
    static constexpr int PRODUCER_REGISTERS = MATH == 2 ? 24 : 32;
    static constexpr int Q_BYTES = Q * D * 2, KV_BYTES = KV * D * 2;
    /* Rings of Q, K, V, each 1024-byte aligned, then the barriers and slots. */
    static constexpr int K_AT = Q_RING * Q_BYTES, V_AT = K_AT + KV_RING * KV_BYTES;
    static constexpr int BARRIERS_AT = V_AT + KV_RING * KV_BYTES;
    static constexpr int BARRIERS = 2 * Q_RING + 4 * KV_RING;
    static constexpr int SLOTS_AT = BARRIERS_AT + 8 * BARRIERS;
    static constexpr int SHARED_BYTES = SLOTS_AT + 4 * Q_RING + ATOM_BYTES;
    static_assert(SHARED_BYTES <= 227 << 10, "an SM has 227 KB for a block");
    static_assert((Q_RING & (Q_RING - 1)) == 0 && (KV_RING & (KV_RING - 1)) == 0,
                  "counts of uses wrap round");
    static_assert(D % SLAB == 0 && KV % K_STEP == 0, "whole slabs, whole k steps");
};

/* Barriers of a ring, by number; full and free of buffer i at i and i + size. */
template <typename C> struct layout {
    static constexpr int q_full = 0, q_free = C::Q_RING;
    static constexpr int k_full = 2 * C::Q_RING, k_free = k_full + C::KV_RING;
    static constexpr int v_full = k_free + C::KV_RING, v_free = v_full + C::KV_RING;
};

/* Of the n-th use of a ring of SIZE buffers: which buffer, the parity of its phase. */
template <int SIZE> __device__ __forceinline__ int buffer(uint32_t n)
{
    return (int)(n % SIZE);
}

template <int SIZE> __device__ __forceinline__ uint32_t parity(uint32_t n)
{
    return n / SIZE % 2;
}

/* Rows [row, row + Q) of a head, and how many key tiles they see. */
struct place {
    int batch, head, kv_head, row, steps;
};

/* Tiles in order: sections of KV heads, so that those in use fit into the L2; in one,
 * from the last rows to the first, under a mask the longest first; among equals the
 * heads side by side, of which those of one KV head read the same keys. */
template <typename C>
__device__ __forceinline__ place locate(const hcp_sm90_prefill &job, int tile)
{
    const int ratio = job.heads / job.kv_heads, planes = job.batch * job.kv_heads;
    const int per_plane = ratio * job.row_blocks;
    const int first = tile / (job.section * per_plane) * job.section;
    const int width = min(job.section, planes - first) * ratio;
    const int rest = tile - first * per_plane;
    const int block = job.row_blocks - 1 - rest / width, lane = rest % width;
    const int plane = first + lane / ratio;
    place p;
    p.batch = plane / job.kv_heads;
    p.kv_head = plane % job.kv_heads;
    p.head = p.kv_head * ratio + lane % ratio;
    p.row = block * C::Q;
    const int last = min(p.row + C::Q, job.q_len) - 1;
    p.steps = (min(last + job.diag + 1, job.kv_len) + C::KV - 1) / C::KV;
    return p;
}

/* One tile of ROWS tokens from the first row: all slabs to dst. */
template <typename C, int ROWS>
__device__ __forceinline__ void load_tile(uint32_t dst, uint32_t full,
                                          const CUtensorMap *map, int row, int head,
                                          int batch)
{
    sm90::barrier_expect(full, ROWS * C::D * 2);
#pragma unroll
    for (int s = 0; s < C::D / SLAB; s++)
        sm90::tma_load(dst + s * ROWS * ROW_BYTES, map, full, s * SLAB, row, head, batch);
}

/* The producer's one thread. A tile's number goes through the slot of its Q buffer, and
 * -1 after the last one; the barrier that tells of Q tells of the slot too. */
template <typename C>
__device__ __forceinline__ void produce(const hcp_sm90_prefill &job, uint32_t shared,
                                        volatile int *slot)
{
    const uint32_t barriers = shared + C::BARRIERS_AT;
    auto barrier = [&](int i) { return barriers + 8 * i; };
    using L = layout<C>;
    uint32_t n = 0; /* key tiles so far */
#pragma unroll 1
    for (uint32_t m = 0;; m++) {
        const int tile = atomicAdd(job.counter, 1);
        const int at = buffer<C::Q_RING>(m);
        sm90::barrier_wait(barrier(L::q_free + at), parity<C::Q_RING>(m) ^ 1);
        if (tile >= job.tiles) {
            slot[at] = -1;
            sm90::barrier_arrive(barrier(L::q_full + at));
            break;
        }
        const place p = locate<C>(job, tile);
        slot[at] = tile;
        load_tile<C, C::Q>(shared + at * C::Q_BYTES, barrier(L::q_full + at), &job.q,
                           p.row, p.head, p.batch);
#pragma unroll 1
        for (int j = p.steps - 1; j >= 0; j--, n++) {
            const int i = buffer<C::KV_RING>(n);
            const uint32_t before = parity<C::KV_RING>(n) ^ 1;
            sm90::barrier_wait(barrier(L::k_free + i), before);
            load_tile<C, C::KV>(shared + C::K_AT + i * C::KV_BYTES,
                                barrier(L::k_full + i), &job.k, j * C::KV, p.kv_head,
                                p.batch);
            sm90::barrier_wait(barrier(L::v_free + i), before);
            load_tile<C, C::KV>(shared + C::V_AT + i * C::KV_BYTES,
                                barrier(L::v_full + i), &job.v, j * C::KV, p.kv_head,
                                p.batch);
        }
    }
}

/* A math warpgroup's work. Arrays of two: rows r and r + 8 of the thread's. */
template <typename C> struct math {
    using T = typename C::T;
    using L = layout<C>;
    using scores = sm90::wgmma<T, C::KV>;
    using sums = sm90::wgmma<T, C::D>;

    const hcp_sm90_prefill &job;
    uint32_t shared;
    int group; /* of the math ones, from 0 */
    float o[C::D / 2];
    uint32_t p[C::KV / 4]; /* weights of the step before, by twos */
    float top[2], base[2], sum[2], fade[2];
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
        sm90::barrier_wait(barrier(first + buffer<C::KV_RING>(use)),
                           parity<C::KV_RING>(use));
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
            sm90::barrier_arrive(barrier(i));
    }

    __device__ __forceinline__ void release(int first, uint32_t use)
    {
        release(first + buffer<C::KV_RING>(use));
    }

    /* Products are issued between take_turn() and end_turn(): group 0, 1, ..., 0. */
    __device__ __forceinline__ void take_turn()
    {
        if (C::in_turn)
            sm90::named_sync(1 + group, 2 * GROUP);
    }

    __device__ __forceinline__ void end_turn()
    {
        if (C::in_turn)
            sm90::named_arrive(group + 1 == C::MATH ? 1 : 2 + group, 2 * GROUP);
    }

    /* S = Q K^T of key tile `use`. */
    __device__ __forceinline__ void issue_scores(float (&s)[C::KV / 2], uint32_t q,
                                                 uint32_t use)
    {
        const uint32_t keys = shared + C::K_AT + buffer<C::KV_RING>(use) * C::KV_BYTES;
        sm90::pin(s);
        sm90::wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::D / K_STEP; i++) {
            const int slab = i / (SLAB / K_STEP), in = i % (SLAB / K_STEP) * K_STEP * 2;
            scores::score(
                s, sm90::descriptor(q + slab * C::Q * ROW_BYTES + in, 16, ATOM_BYTES),
                sm90::descriptor(keys + slab * C::KV * ROW_BYTES + in, 16, ATOM_BYTES),
                i > 0);
        }
        sm90::wgmma_commit();
    }

    /* O += P V of key tile `use`. */
    __device__ __forceinline__ void issue_sums(uint32_t use)
    {
        const uint32_t values = shared + C::V_AT + buffer<C::KV_RING>(use) * C::KV_BYTES;
        sm90::pin(p);
        sm90::pin(o);
        sm90::wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::KV / K_STEP; i++)
            sums::gather(o, p + 4 * i,
                         sm90::descriptor(values + i * K_STEP * ROW_BYTES,
                                          C::KV * ROW_BYTES, ATOM_BYTES));
        sm90::wgmma_commit();
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

    /* Scores to weights in place; top, base and sum move on, fade is what the sums so
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
            const float last = top[r], last_base = base[r];
            if (C::lazy)
                top[r] = (a - last) * scale > 8 ? a : last;
            else
                top[r] = fmaxf(last, a);
            base[r] = top[r] == -INFINITY ? 0 : top[r] * scale;
            fade[r] = last == -INFINITY ? 0 : sm90::exp2_fast(last_base - base[r]);
            float x = 0, y = 0;
#pragma unroll
            for (int i = 0; i < C::KV / 2; i += 4) {
                float &lo = s[i + 2 * r], &hi = s[i + 2 * r + 1];
                lo = sm90::exp2_fast(fmaf(lo, scale, -base[r]));
                hi = sm90::exp2_fast(fmaf(hi, scale, -base[r]));
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
            p[i] = sm90::pack<T>(s[2 * i], s[2 * i + 1]);
    }

    /* One key tile: its scores, the sums of the tile before, its softmax. */
    __device__ __forceinline__ void step(uint32_t q, int first_row, int j, int whole)
    {
        float s[C::KV / 2];
        wait_full(L::k_full, n);
        take_turn();
        issue_scores(s, q, n);
        if (C::early)
            rescale();
        wait_full(L::v_full, n - 1);
        issue_sums(n - 1);
        end_turn();
        sm90::wgmma_wait<1>();
        sm90::pin(s);
        release(L::k_free, n);
        if (j >= whole)
            mask(s, first_row, j);
        softmax(s);
        sm90::wgmma_wait<0>();
        sm90::pin(o);
        release(L::v_free, n - 1);
        n++;
        if (!C::early)
            rescale();
        keep(s);
    }

    /* All key tiles of a query tile, at least one. first_row: of this warpgroup. */
    __device__ __forceinline__ void attend(uint32_t q, int first_row, int steps)
    {
        /* Tiles that all rows of the warpgroup see whole. */
        const int whole = min(job.kv_len, first_row + job.diag + 1) / C::KV;
        {
            float s[C::KV / 2];
            wait_full(L::k_full, n);
            issue_scores(s, q, n);
            sm90::wgmma_wait<0>();
            sm90::pin(s);
            release(L::k_free, n);
            mask(s, first_row, steps - 1);
            softmax(s);
            keep(s);
            n++;
        }
        if (C::early)
            fade[0] = fade[1] = 1; /* O is 0 */
#pragma unroll 1
        for (int j = steps - 2; j >= 0; j--)
            step(q, first_row, j, whole);
    }

    /* The last tile's part of O. */
    __device__ __forceinline__ void finish()
    {
        if (C::early)
            rescale();
        wait_full(L::v_full, n - 1);
        issue_sums(n - 1);
        sm90::wgmma_wait<0>();
        sm90::pin(o);
        release(L::v_free, n - 1);
    }

    /* O / sum and L to their places; with accumulate merged with what is there, by the
     * rule of merge.h. A row's four threads have the columns 8j + 2 (t % 4) and next. */
    __device__ __forceinline__ void store(const place &at)
    {
        const int first = at.row + 64 * group + thread_row();
        const int64_t plane = (int64_t)at.batch * job.heads + at.head;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = first + 8 * r;
            const bool mine = row < job.q_len;
            float *lse = job.lse + plane * job.q_len + row;
            float total = sum[r];
            total += __shfl_xor_sync(ALL, total, 1);
            total += __shfl_xor_sync(ALL, total, 2);
            float fresh = total > 0 ? base[r] * 0.693147180559945309f + logf(total)
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
            const int64_t offset = at.batch * job.o_stride[0] +
                                   at.head * job.o_stride[1] + row * job.o_stride[2] +
                                   2 * (threadIdx.x % 4);
            if (!mine)
                continue;
            if (threadIdx.x % 4 == 0)
                *lse = fresh;
            if (!job.out_fp32) {
                uint32_t *out = (uint32_t *)((T *)job.o + offset);
#pragma unroll
                for (int j = 0; j < C::D / 8; j++)
                    out[4 * j] = sm90::pack<T>(o[4 * j + 2 * r] * weight,
                                               o[4 * j + 2 * r + 1] * weight);
                continue;
            }
            float *out = (float *)job.o + offset;
            if (old_weight == 0) {
#pragma unroll
                for (int j = 0; j < C::D / 8; j++)
                    *(float2 *)(out + 8 * j) = make_float2(o[4 * j + 2 * r] * weight,
                                                           o[4 * j + 2 * r + 1] * weight);
                continue;
            }
            /* Loads in flight together: a store might be to where the next load is. */
            constexpr int TOGETHER = 8;
#pragma unroll
            for (int j = 0; j < C::D / 8; j += TOGETHER) {
                float2 x[TOGETHER];
#pragma unroll
                for (int i = 0; i < TOGETHER; i++)
                    x[i] = *(const float2 *)(out + 8 * (j + i));
#pragma unroll
                for (int i = 0; i < TOGETHER; i++) {
                    const float *y = o + 4 * (j + i) + 2 * r;
                    x[i].x = x[i].x * old_weight + y[0] * weight;
                    x[i].y = x[i].y * old_weight + y[1] * weight;
                    *(float2 *)(out + 8 * (j + i)) = x[i];
                }
            }
        }
    }

    __device__ __forceinline__ void run(volatile int *slot)
    {
        n = 0;
        if (C::in_turn && group == C::MATH - 1)
            sm90::named_arrive(1, 2 * GROUP); /* group 0 begins */
#pragma unroll 1
        for (uint32_t m = 0;; m++) {
            const int at = buffer<C::Q_RING>(m);
            sm90::barrier_wait(barrier(L::q_full + at), parity<C::Q_RING>(m));
            int tile = slot[at];
            if (tile < 0)
                break;
#pragma unroll
            for (int i = 0; i < C::D / 2; i++)
                o[i] = 0;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                top[r] = -INFINITY;
                base[r] = sum[r] = 0;
            }
            const place now = locate<C>(job, tile);
            if (now.steps > 0)
                attend(shared + at * C::Q_BYTES + group * 64 * ROW_BYTES,
                       now.row + 64 * group, now.steps);
            release(L::q_free + at);
            if (now.steps > 0)
                finish();
            /* Where the tile is is worked out anew: registers are short above. */
            asm volatile("" : "+r"(tile));
            store(locate<C>(job, tile));
        }
        if (C::in_turn && group == 0)
            sm90::named_sync(1, 2 * GROUP); /* the last turn, which nobody takes */
    }
};

template <typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    prefill(const __grid_constant__ hcp_sm90_prefill job)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char raw[];
    using L = layout<C>;
    char *aligned = raw + (-(uintptr_t)sm90::shared_address(raw) & (ATOM_BYTES - 1));
    const uint32_t shared = sm90::shared_address(aligned);
    volatile int *slot = (volatile int *)(aligned + C::SLOTS_AT);

    if (threadIdx.x == 0) {
        /* A full barrier hears of the one thread that asks for the bytes, a free one of
         * all math warps. */
        for (int i = 0; i < C::BARRIERS; i++) {
            const bool frees = (i >= L::q_free && i < L::k_full) ||
                               (i >= L::k_free && i < L::v_full) || i >= L::v_free;
            sm90::barrier_init(shared + C::BARRIERS_AT + 8 * i, frees ? 4 * C::MATH : 1);
        }
        sm90::barrier_init_fence();
    }
    __syncthreads();

    if (threadIdx.x < GROUP) {
        sm90::registers_give<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce<C>(job, shared, slot);
    } else {
        sm90::registers_take<C::MATH_REGISTERS>();
        math<C> work(job, shared, (int)threadIdx.x / GROUP - 1);
        work.run(slot);
    }
#endif
}

struct kernel {
    void (*entry)(hcp_sm90_prefill);
    int tile_q, tile_kv, threads, shared_bytes;
};

template <typename C> constexpr kernel entry_of()
{
    return {prefill<C>, C::Q, C::KV, C::THREADS, C::SHARED_BYTES};
}

/* One tile shape a head dim serves full and causal blocks: it was the faster one of both.
 */
template <typename T> const kernel *choose(int64_t head_dim)
{
    static const kernel d64 = entry_of<config<T, 64, 128, 3, 1, 2, IN_TURN>>();
    static const kernel d128 = entry_of<config<T, 128, 176, 2, 1, 2, IN_TURN | LAZY>>();
    static const kernel d256 = entry_of<config<T, 256, 80, 2, 1, 2, EARLY | LAZY>>();
    return head_dim == 64 ? &d64 : head_dim == 128 ? &d128 : &d256;
}

const kernel *choose(const hcp_attn_problem *p)
{
    return p->dtype == HCP_BF16 ? choose<__nv_bfloat16>(p->head_dim)
                                : choose<__half>(p->head_dim);
}

} // namespace

extern "C" hcp_sm90_tile hcp_cuda_prefill_sm90_tile(const hcp_attn_problem *problem)
{
    const kernel *k = choose(problem);
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
