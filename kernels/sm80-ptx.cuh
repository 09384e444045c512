/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions of compute capability 8.0 that CUDA C++ has no names for: asynchronous
 * copies to shared memory, matrix loads from it, products of 16 x 8 x 16 elements.
 * Shared addresses are those of the shared window, in bytes.
 */
#ifndef HCP_SM80_PTX_CUH
#define HCP_SM80_PTX_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace hcp
{

/* threadIdx.x and blockIdx.x, read anew each time: what is computed from them need not
 * stay in registers from one use to the next. */
__device__ inline int thread_again()
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

__device__ inline unsigned block_again()
{
    unsigned x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}

/* 16 bytes, or with there == false 16 bytes of zero and src is not read. */
__device__ inline void copy_async(uint32_t dst, const void *src, bool there)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst),
                 "l"(src), "r"(there ? 16 : 0)
                 : "memory");
}

/* Ends a group of copies of this thread. */
__device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until no more than N of this thread's groups are under way. */
template <int N> __device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four 8 x 8 matrices of 2-byte elements; lane 8 i + r gives the address of row r of
 * matrix i, and gets elements (lane / 4, 2 (lane % 4)) and the one after of matrix i in
 * x[i]. */
__device__ inline void load_matrices(uint32_t (&x)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

/* The same of each matrix's transpose. */
__device__ inline void load_transposed(uint32_t (&x)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

/* c += a b. A is 16 x 16: a[0..3] hold rows lane / 4 (+ 8 in 1, 3), columns
 * 2 (lane % 4) (+ 8 in 2, 3) and the one after. B is 16 x 8: b0, b1 hold column
 * lane / 4, rows 2 (lane % 4) (+ 8 in b1) and the one after. C: c[0], c[1] are of row
 * lane / 4, columns 2 (lane % 4) and the one after; c[2], c[3] of the row 8 below. */
template <typename T>
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                uint32_t b1);

template <>
__device__ inline void multiply<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply<__half>(float (&c)[4], const uint32_t (&a)[4],
                                        uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two elements in a register, low the first in memory; to nearest even. */
template <typename T> __device__ inline uint32_t pack(float low, float high);

template <> __device__ inline uint32_t pack<__nv_bfloat16>(float low, float high)
{
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

template <> __device__ inline uint32_t pack<__half>(float low, float high)
{
    uint32_t x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

/* 2^x to 2 ulp, 0 for -inf. */
__device__ inline float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace hcp
#endif
