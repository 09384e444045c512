/* SPDX-License-Identifier: Apache-2.0
 *
 * What the roles of prefill-sm90.cu share: the shape of a kernel and its shared memory,
 * the order of tiles, and the producer.
 */
#ifndef HCP_SM90_TILES_CUH
#define HCP_SM90_TILES_CUH
#include <stdint.h>
#include "kernels/prefill-sm90.h"
#include "kernels/sm90-ptx.cuh"
#include "kernels/sm90-rows.cuh"

namespace sm90
{

static_assert(SLAB == HCP_SM90_SLAB, "as the tensor maps have it");

/* What a kernel is compiled for: head dim D, tiles of KV keys, MATH warpgroups of 64
 * rows, ring sizes; turns between the warpgroups; O rescaled only where it is needed; the
 * exponentials held before the wait for the sums. */
template <typename T_, int D_, int KV_, int MATH_, int Q_RING_, int KV_RING_,
          bool IN_TURN, bool LAZY, bool HELD = false>
struct config {
    using T = T_;
    static constexpr int D = D_, KV = KV_, MATH = MATH_;
    static constexpr int Q_RING = Q_RING_, KV_RING = KV_RING_;
    static constexpr bool in_turn = IN_TURN, lazy = LAZY, held = HELD;
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
    barrier_expect(full, ROWS * C::D * 2);
#pragma unroll
    for (int s = 0; s < C::D / SLAB; s++)
        tma_load(dst + s * ROWS * ROW_BYTES, map, full, s * SLAB, row, head, batch);
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
        if (tile >= job.tiles) {
            barrier_wait(barrier(L::q_free + at), parity<C::Q_RING>(m) ^ 1);
            slot[at] = -1;
            barrier_arrive(barrier(L::q_full + at));
            break;
        }
        const place p = locate<C>(job, tile);
        /* After the first keys: its buffer is the later one to become free. */
        auto load_q = [&]() {
            barrier_wait(barrier(L::q_free + at), parity<C::Q_RING>(m) ^ 1);
            slot[at] = tile;
            load_tile<C, C::Q>(shared + at * C::Q_BYTES, barrier(L::q_full + at), &job.q,
                               p.row, p.head, p.batch);
        };
        if (p.steps == 0)
            load_q();
#pragma unroll 1
        for (int j = p.steps - 1; j >= 0; j--, n++) {
            const int i = buffer<C::KV_RING>(n);
            const uint32_t before = parity<C::KV_RING>(n) ^ 1;
            barrier_wait(barrier(L::k_free + i), before);
            load_tile<C, C::KV>(shared + C::K_AT + i * C::KV_BYTES,
                                barrier(L::k_full + i), &job.k, j * C::KV, p.kv_head,
                                p.batch);
            if (j == p.steps - 1)
                load_q();
            barrier_wait(barrier(L::v_free + i), before);
            load_tile<C, C::KV>(shared + C::V_AT + i * C::KV_BYTES,
                                barrier(L::v_full + i), &job.v, j * C::KV, p.kv_head,
                                p.batch);
        }
    }
}

} // namespace sm90
#endif
