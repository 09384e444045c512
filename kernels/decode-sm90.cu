/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-decode" on Hopper (sm_90a) where a KV head has many rows: the products of
 * m16n8k16 would take longer than reading K and V.
 *
 * As many blocks as fit on the SMs share the steps of all tiles of rows evenly: each has
 * the same number of steps, one after the other, whatever tile they are of. What a block
 * has of a tile is a part; the tile's parts are merged by decode.cu.
 *
 *   producer  one thread: brings K and V by TMA into rings in shared memory, each buffer
 *             with a pair of mbarriers (full, free), through all parts of the block.
 *   math      one or two warpgroups of 64 rows: gather their rows of Q into swizzled
 * shared memory, then S = Q K^T, softmax in registers, O += P V (sm90-rows.cuh). S of a
 * step is issued before P V of the step before.
 *
 * Two blocks of one warpgroup on an SM hide each other's softmax, as two warpgroups do.
 * Keys of a part are walked from the last to the first: what needs a mask comes first.
 * Keys past the end are zeros by TMA, and V of a key that the diagonal hides has to be
 * finite where its step is visited.
 */
#include <cuda_runtime.h>
#include <math.h>
#include "kernels/decode-shape.cuh"
#include "kernels/decode-sm90.h"
#include "kernels/sm90-ptx.cuh"
#include "kernels/sm90-rows.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compiled for sm_90a alone; see cuda.mk"
#endif

namespace
{

using namespace sm90;
using hcp::decode::shape;

/* The kernel's parameter. */
struct decode_job {
    hcp_decode_sm90_maps map;
    shape s;
    float scale_log2;
};

/* What a kernel is compiled for: head dim D, tiles of KV keys, MATH warpgroups of 64
 * rows, RING tiles of K and as many of V, BLOCKS of an SM; see prefill-sm90.cu for turns,
 * LAZY and HELD. */
template <typename T_, int D_, int KV_, int MATH_, int RING_, int BLOCKS_, bool IN_TURN,
          bool LAZY, bool HELD>
struct config {
    using T = T_;
    static constexpr int D = D_, KV = KV_, MATH = MATH_, RING = RING_, BLOCKS = BLOCKS_;
    static constexpr bool in_turn = IN_TURN, lazy = LAZY, held = HELD;
    static constexpr int Q = 64 * MATH;
    /* One warpgroup of math has enough registers; two take them from the producer's. */
    static constexpr bool moves = MATH > 1;
    static constexpr int THREADS = GROUP * MATH + (moves ? GROUP : 32);
    static constexpr int KV_BYTES = KV * D * 2;
    static constexpr int K_AT = Q * D * 2, V_AT = K_AT + RING * KV_BYTES;
    static constexpr int BARRIERS_AT = V_AT + RING * KV_BYTES;
    static constexpr int k_full = 0, k_free = RING, v_full = 2 * RING, v_free = 3 * RING;
    static constexpr int BARRIERS = 4 * RING;
    static constexpr int SHARED_BYTES = BARRIERS_AT + 8 * BARRIERS;
    static_assert(SHARED_BYTES + 1024 <= (228 << 10) / BLOCKS, "an SM has 228 KB");
    static_assert(RING > 1, "K of a step comes before V of the step before is read");
};

/* A buffer of a ring, and the parity of its phase. */
template <int SIZE> struct turn {
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void next()
    {
        if (++at == SIZE) {
            at = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ turn before() const
    {
        turn t;
        t.at = at == 0 ? SIZE - 1 : at - 1;
        t.parity = at == 0 ? parity ^ 1 : parity;
        return t;
    }
};

/* Steps [first, end) of tile of rows `tile`, and whether there are others of them. */
struct part {
    int tile, first, end;
    int number, count;
};

/* The block's steps, of all. */
__device__ __forceinline__ int64_t first_step(const shape &s)
{
    return blockIdx.x * s.block_steps;
}

__device__ __forceinline__ int64_t end_step(const shape &s)
{
    return min((int64_t)s.steps * s.tiles, first_step(s) + s.block_steps);
}

/* The block's part that begins at step `at` of all. */
__device__ __forceinline__ part part_at(const shape &s, int64_t at)
{
    const int tile = (int)(at / s.steps);
    const int64_t from = (int64_t)tile * s.steps;
    const hcp::decode::parts all = hcp::decode::parts_of(s, tile);
    return {tile, (int)(at - from), (int)min((int64_t)s.steps, end_step(s) - from),
            (int)(blockIdx.x - all.first), all.count};
}

struct place {
    int b, hk, row0;
};

template <typename C> __device__ __forceinline__ place locate(const shape &s, int tile)
{
    const int plane = tile / s.row_tiles;
    return {plane / s.kv_heads, plane % s.kv_heads, tile % s.row_tiles * C::Q};
}

/* One tile of KV tokens from the first row: all slabs to dst. */
template <typename C>
__device__ __forceinline__ void load_tile(uint32_t dst, uint32_t full,
                                          const CUtensorMap *map, int row, const place &p)
{
    barrier_expect(full, C::KV_BYTES);
#pragma unroll
    for (int s = 0; s < C::D / SLAB; s++)
        tma_load(dst + s * C::KV * ROW_BYTES, map, full, s * SLAB, row, p.hk, p.b);
}

/* The producer's one thread. */
template <typename C>
__device__ __forceinline__ void produce(const decode_job &job, uint32_t shared)
{
    auto barrier = [&](int i) { return shared + C::BARRIERS_AT + 8 * i; };
    turn<C::RING> n;
    int64_t at = first_step(job.s);
    while (at < end_step(job.s)) {
        const part now = part_at(job.s, at);
        const place p = locate<C>(job.s, now.tile);
#pragma unroll 1
        for (int j = now.end - 1; j >= now.first; j--) {
            barrier_wait(barrier(C::k_free + n.at), n.parity ^ 1);
            load_tile<C>(shared + C::K_AT + n.at * C::KV_BYTES, barrier(C::k_full + n.at),
                         &job.map.k, j * C::KV, p);
            barrier_wait(barrier(C::v_free + n.at), n.parity ^ 1);
            load_tile<C>(shared + C::V_AT + n.at * C::KV_BYTES, barrier(C::v_full + n.at),
                         &job.map.v, j * C::KV, p);
            n.next();
        }
        at += now.end - now.first;
    }
}

/* A math warpgroup's work. */
template <typename C> struct math : rows<C, decode_job> {
    using T = typename C::T;
    using base = rows<C, decode_job>;
    using base::job, base::o, base::sum, base::thread_row;

    char *memory;
    uint32_t shared; /* its address */
    int group;       /* of the math ones, from 0 */
    turn<C::RING> n; /* the tile to be scored next; V is of the one before */

    __device__ __forceinline__ math(const decode_job &job_, char *memory_,
                                    uint32_t shared_, int group_)
        : base(job_), memory(memory_), shared(shared_), group(group_)
    {
    }

    __device__ __forceinline__ uint32_t barrier(int i)
    {
        return shared + C::BARRIERS_AT + 8 * i;
    }

    __device__ __forceinline__ uint32_t k_tile()
    {
        return shared + C::K_AT + n.at * C::KV_BYTES;
    }

    __device__ __forceinline__ uint32_t v_tile()
    {
        return shared + C::V_AT + n.before().at * C::KV_BYTES;
    }

    __device__ __forceinline__ void wait_k()
    {
        barrier_wait(barrier(C::k_full + n.at), n.parity);
    }

    __device__ __forceinline__ void wait_v()
    {
        const turn<C::RING> v = n.before();
        barrier_wait(barrier(C::v_full + v.at), v.parity);
    }

    /* Each warp says so for itself: what it waited for was its own part. */
    __device__ __forceinline__ void release(int i)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(barrier(i));
    }

    __device__ __forceinline__ void release_k()
    {
        release(C::k_free + n.at);
    }

    __device__ __forceinline__ void release_v()
    {
        release(C::v_free + n.before().at);
    }

    /* Products are issued between take_turn() and end_turn(): group 0, 1, 0, ... */
    __device__ __forceinline__ void take_turn()
    {
        if (C::in_turn)
            named_sync(1 + group, 2 * GROUP);
    }

    __device__ __forceinline__ void end_turn()
    {
        if (C::in_turn)
            named_arrive(2 - group, 2 * GROUP);
    }

    /* The warpgroup's 64 rows of Q, a warp its 16, from first on; zero past the end. The
     * products that read those before them are done when all have come here. */
    __device__ __forceinline__ void gather(const place &p, int first)
    {
        constexpr int PIECES = C::D / 8; /* of 16 bytes, of a row */
        const shape &s = job.s;
        const int lane = threadIdx.x % 32, warp_row = threadIdx.x % GROUP / 32 * 16;
        named_sync(3 + group, GROUP);
#pragma unroll 4
        for (int i = lane; i < 16 * PIECES; i += 32) {
            const int r = warp_row + i / PIECES, piece = i % PIECES, row = first + r;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (row < s.rows)
                x = *(const uint4 *)((const T *)s.q + p.b * s.q_stride[0] +
                                     (int64_t)(p.hk * s.group + row % s.group) *
                                         s.q_stride[1] +
                                     row / s.group * s.q_stride[2] + piece * 8);
            *(uint4 *)(memory + piece / 8 * (C::Q * ROW_BYTES) +
                       (group * 64 + r) * ROW_BYTES + ((piece % 8 ^ (r & 7)) << 4)) = x;
        }
        proxy_fence();
        named_sync(3 + group, GROUP);
    }

    /* Keys of step j that a row does not see become -inf. */
    __device__ __forceinline__ void mask(float (&s)[C::KV / 2], int first_row, int j)
    {
        const int first = j * C::KV + 2 * (threadIdx.x % 4); /* key of s[0] */
        const int row = first_row + thread_row();
        const int seen[2] = {hcp::decode::visible(job.s, row) - first,
                             hcp::decode::visible(job.s, row + 8) - first};
        base::hide(s, seen);
    }

    /* One key tile: its scores, the sums of the tile before, its softmax. */
    __device__ __forceinline__ void step(uint32_t q, int first_row, int j, int whole)
    {
        float s[C::KV / 2];
        wait_k();
        take_turn();
        base::issue_scores(s, q, k_tile());
        wait_v();
        base::issue_sums(v_tile());
        end_turn();
        wgmma_wait<1>();
        pin(s);
        release_k();
        if (j >= whole)
            mask(s, first_row, j);
        base::softmax(s);
        pin(s); /* the softmax is before the wait in PTX at least */
        pin(sum);
        if (C::held)
            base::hold(sum[0] + sum[1], shared + C::BARRIERS_AT);
        wgmma_wait<0>();
        pin(o);
        release_v();
        n.next();
        base::rescale();
        base::keep(s);
    }

    /* All steps of a part, at least one. */
    __device__ __forceinline__ void attend(uint32_t q, int first_row, int first, int end)
    {
        /* Tiles that all rows of the warpgroup see whole. */
        const int whole =
            hcp::decode::visible(job.s, min(first_row, job.s.rows - 1)) / C::KV;
        {
            float s[C::KV / 2];
            wait_k();
            base::issue_scores(s, q, k_tile());
            wgmma_wait<0>();
            pin(s);
            release_k();
            if (end - 1 >= whole)
                mask(s, first_row, end - 1);
            base::softmax(s);
            base::keep(s);
            n.next();
        }
#pragma unroll 1
        for (int j = end - 2; j >= first; j--)
            step(q, first_row, j, whole);
        wait_v();
        base::issue_sums(v_tile());
        wgmma_wait<0>();
        pin(o);
        release_v();
    }

    /* O / sum and L to their places, or to where parts are: number of count. */
    __device__ __forceinline__ void store(const place &p, int number, int count)
    {
        const shape &s = job.s;
        int thread = threadIdx.x;
        asm volatile("" : "+r"(thread)); /* nothing below is worked out ahead and kept */
        const int first =
            p.row0 + 64 * group + thread % GROUP / 32 * 16 + thread % 32 / 4;
        const int lane = thread % 4;
        const bool whole = count == 1;
        const int accumulate = whole && s.accumulate;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool mine = first + 8 * r < s.rows;
            const int row = mine ? first + 8 * r : p.row0;
            int64_t at = hcp::decode::lse_offset(s, p.b, p.hk, row);
            float weight, old_weight;
            if (!whole)
                at += number * s.out_rows;
            base::close(r, lane, (whole ? s.lse : s.part_lse) + at, mine, accumulate,
                        weight, old_weight);
            const int64_t offset =
                whole ? hcp::decode::o_offset(s, p.b, p.hk, row) : at * C::D;
            if (whole && s.out_dtype != HCP_FP32)
                base::store_rounded((T *)s.o + offset + 8 * lane, lane, r, weight, mine);
            else
                base::store_fp32((whole ? (float *)s.o : s.part_o) + offset +
                                     8 * (lane % 2) + 4 * (lane / 2),
                                 lane, r, weight, old_weight, mine);
        }
    }

    __device__ __forceinline__ void run()
    {
        if (C::in_turn && group == C::MATH - 1)
            named_arrive(1, 2 * GROUP); /* group 0 begins */
        int64_t at = first_step(job.s);
#pragma unroll 1
        while (at < end_step(job.s)) {
            base::clear();
            {
                const part now = part_at(job.s, at);
                const place p = locate<C>(job.s, now.tile);
                const int first_row = p.row0 + 64 * group;
                gather(p, first_row);
                attend(shared + group * 64 * ROW_BYTES, first_row, now.first, now.end);
            }
            /* What the part is is worked out anew: registers are short above. */
            asm volatile("" : "+l"(at));
            const part now = part_at(job.s, at);
            store(locate<C>(job.s, now.tile), now.number, now.count);
            at += now.end - now.first;
        }
        if (C::in_turn && group == 0)
            named_sync(1, 2 * GROUP); /* the last turn, which nobody takes */
    }
};

template <typename C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    decode(const __grid_constant__ decode_job job)
{
    extern __shared__ __align__(1024) char memory[];
    const uint32_t shared = shared_address(memory);

    asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x == 0) {
        /* A full barrier hears of the one thread that asks for the bytes, a free one of
         * all math warps. */
        for (int i = 0; i < C::BARRIERS; i++)
            barrier_init(shared + C::BARRIERS_AT + 8 * i,
                         i / C::RING % 2 ? 4 * C::MATH : 1);
        barrier_init_fence();
    }
    __syncthreads();

    const int group = __shfl_sync(ALL, threadIdx.x / GROUP, 0);
    if (group == C::MATH) {
        if constexpr (C::moves)
            registers_give<24>();
        if (threadIdx.x == C::MATH * GROUP)
            produce<C>(job, shared);
    } else {
        if constexpr (C::moves)
            registers_take<C::BLOCKS == 1 ? 240 : 104>();
        math<C> work(job, memory, shared, group);
        work.run();
    }
}

struct kernel {
    void (*entry)(decode_job);
    int rows, keys, threads, shared_bytes, blocks_per_sm;
};

template <typename C> constexpr kernel entry_of()
{
    return {decode<C>, C::Q, C::KV, C::THREADS, C::SHARED_BYTES, C::BLOCKS};
}

/* Of head dims 64, 128, 256: up to 64 rows of a KV head, and more. The fastest on an H200
 * with 1 GB of K and V in bf16, in one process with the others. Relative to these, up to
 * 64 rows: at 64 LAZY -1 %, 64 keys -1 %, three blocks an SM of 64 keys 0; at 128 tiles
 * of 64 keys -2 %, one block an SM -4 %, of 128 keys -2 %; at 256 64 keys -2 %. Over 64:
 * at 64 128 keys -5 %, LAZY too -9 %, no turns -13 %; at 128 tiles of 80 keys without
 * turns and of 128 with -1 %, 128 without -16 %, 64 -5 %; at 256 turns 0. */
template <typename T> struct kernels {
    static constexpr kernel few[] = {
        entry_of<config<T, 64, 128, 1, 3, 2, false, false, false>>(),
        entry_of<config<T, 128, 80, 1, 2, 2, false, true, false>>(),
        entry_of<config<T, 256, 80, 1, 2, 1, false, true, false>>()};
    static constexpr kernel many[] = {
        entry_of<config<T, 64, 176, 2, 4, 1, true, false, false>>(),
        entry_of<config<T, 128, 176, 2, 2, 1, true, true, true>>(),
        entry_of<config<T, 256, 64, 2, 2, 1, false, true, false>>()};
};

template <typename T> const kernel &choose(int64_t head_dim, int64_t rows)
{
    const int d = head_dim == 64 ? 0 : head_dim == 128 ? 1 : 2;
    return rows <= 64 ? kernels<T>::few[d] : kernels<T>::many[d];
}

} // namespace

extern "C" hcp_decode_sm90_tile hcp_cuda_decode_sm90_tile(int64_t head_dim, int64_t rows)
{
    const kernel &k = choose<__half>(head_dim, rows);
    return {k.rows, k.keys, k.blocks_per_sm};
}

int hcp_cuda_launch_decode_sm90(int32_t dtype, int64_t head_dim, const shape &s,
                                const hcp_decode_sm90_maps &maps, void *stream)
{
    const kernel &k = dtype == HCP_BF16 ? choose<__nv_bfloat16>(head_dim, s.rows)
                                        : choose<__half>(head_dim, s.rows);
    const int64_t all = (int64_t)s.steps * s.tiles;
    const int64_t blocks = (all + s.block_steps - 1) / s.block_steps;
    cudaError_t e = cudaFuncSetAttribute(
        k.entry, cudaFuncAttributeMaxDynamicSharedMemorySize, k.shared_bytes);
    if (e != cudaSuccess)
        return e;
    k.entry<<<(unsigned)blocks, k.threads, k.shared_bytes, (cudaStream_t)stream>>>(
        {maps, s, s.scale});
    return cudaPeekAtLastError();
}
