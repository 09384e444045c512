/* SPDX-License-Identifier: Apache-2.0
 *
 * Hopper's asynchronous machinery as C functions, one instruction each: mbarriers, the
 * tensor memory accelerator (TMA), named barriers, register reallocation, and what
 * wgmma needs around it. The products themselves are in sm90-wgmma.cuh.
 *
 * Shared memory is addressed by 32-bit addresses of the shared window.
 */
#ifndef HCP_SM90_PTX_CUH
#define HCP_SM90_PTX_CUH
#include <cuda.h>
#include <stdint.h>

namespace sm90
{

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* mbarriers. A phase ends when `count` arrivals and all expected bytes have come; a
 * waiter names the phase by its parity: 0 for the first, 1 for the second, 0 ... Waiting
 * for parity 1 on a fresh barrier returns at once: "the phase before the first". */

__device__ inline void barrier_init(uint32_t barrier, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count)
                 : "memory");
}

/* Makes the initialised barriers known to the TMA; __syncthreads() makes them known to
 * the other threads. */
__device__ inline void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives and adds to the bytes that the phase waits for. */
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

/* try_wait sleeps in hardware for a while, so that the loop is not a busy one. */
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

/* Box at (column, row, head, batch) of a 4-dimensional tensor to dst; its bytes arrive
 * at barrier. What lies outside of the tensor is zero there and counts as bytes too. */
__device__ inline void tma_load(uint32_t dst, const CUtensorMap *map, uint32_t barrier,
                                int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :
                 : "r"(dst), "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head),
                   "r"(batch)
                 : "memory");
}

/* What this thread has stored to shared memory is seen by wgmma and TMA after the next
 * barrier. */
__device__ inline void proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Named barriers 1 to 15 (0 is __syncthreads()): `threads` of them, of which some wait
 * and the others only announce that they came by. */

__device__ inline void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Registers a thread of this warpgroup may use from here on. All its warps execute it. */

template <int N> __device__ inline void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ inline void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* wgmma works on registers behind the compiler's back, between its issue and the wait. A
 * fence orders register writes before it with products after it. */

__device__ inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N of the groups committed last are under way. */
template <int N> __device__ inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Uses of x stay on their side of this point: the compiler sees no link between a wait
 * and the registers that it waits for. */
template <int N> __device__ inline void pin(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i])::"memory");
}

template <int N> __device__ inline void pin(uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(x[i])::"memory");
}

/* Matrix descriptor of an operand in shared memory with 128-byte swizzle: atoms of 8 rows
 * of 128 bytes, 1024-byte aligned. stride: bytes from one atom to the next one along
 * the 8-row axis. leading: bytes between atoms along the axis of 128 bytes; only where
 * that is M or N ("MN-major", transposed) and an instruction spans several. In halves,
 * so that moving it is one addition. */
struct descriptor {
    uint32_t low, high;

    __device__ inline descriptor(uint32_t address, uint32_t leading, uint32_t stride)
        : low((leading >> 4) << 16 | (address & 0x3ffff) >> 4),
          high((uint32_t)1 << 30 | stride >> 4)
    {
    }

    /* The operand `bytes` further on: multiples of 16, inside of shared memory. */
    __device__ inline uint64_t at(uint32_t bytes) const
    {
        return (uint64_t)high << 32 | (low + (bytes >> 4));
    }
};

__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace sm90
#endif
