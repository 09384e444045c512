/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma m64nNk16 with fp32 sums, for the shapes that the attention kernel uses.
 *
 * A warpgroup's sums, D[64][N]: thread t of 128 has rows r = 16 * (t / 32) + t % 32 / 4
 * and r + 8. d[4j], d[4j + 1] are columns 8j + 2 (t % 4) and the next one of row r;
 * d[4j + 2], d[4j + 3] the same columns of row r + 8. Two such groups j = 2c, 2c + 1,
 * rounded and packed by twos, are the thread's part of A for the columns [16c, 16c + 16)
 * as k: sums become the next product's A where they are.
 */
#ifndef HCP_SM90_WGMMA_CUH
#define HCP_SM90_WGMMA_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace sm90
{

/* For 16-bit T: wgmma<T, N>::score() is D = A B^T (+ D), both K-major in shared memory;
 * wgmma<T, N>::gather() is D += A B, A in registers, B MN-major in shared memory. */
template <typename T, int N> struct wgmma;

/* Register names %0, %1, ... by tens, and the operands that they stand for by eights. */
#define HCP_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9"
#define HCP_R(t)                                                                         \
    ", %" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t       \
    "7, %" #t "8, %" #t "9"
#define HCP_D8(i)                                                                        \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),          \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define HCP_D32(i) HCP_D8(i), HCP_D8(i + 8), HCP_D8(i + 16), HCP_D8(i + 24)

/* e0 ... e4: names of the five operands after the sums. */
#define HCP_WGMMA(T, name, N, regs, e0, e1, e2, e3, e4, ...)                             \
    template <> struct wgmma<T, N> {                                                     \
        static __device__ inline void score(float (&d)[N / 2], uint64_t a, uint64_t b,   \
                                            int add)                                     \
        {                                                                                \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " e2 ", 0;\n"                 \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name \
                         " {" regs "}, " e0 ", " e1 ", p, 1, 1, 0, 0;\n}\n"              \
                         : __VA_ARGS__                                                   \
                         : "l"(a), "l"(b), "r"(add));                                    \
        }                                                                                \
        static __device__ inline void gather(float (&d)[N / 2], const uint32_t *a,       \
                                             uint64_t b)                                 \
        {                                                                                \
            asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                      \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name \
                         " {" regs "}, {" e0 ", " e1 ", " e2 ", " e3 "}, " e4            \
                         ", p, 1, 1, 1;\n}\n"                                            \
                         : __VA_ARGS__                                                   \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));          \
        }                                                                                \
    };

#define HCP_WGMMA_SHAPES(T, name)                                                        \
    HCP_WGMMA(T, name, 64, HCP_R0 HCP_R(1) HCP_R(2) ", %30, %31", "%32", "%33", "%34",   \
              "%35", "%36", HCP_D32(0))                                                  \
    HCP_WGMMA(T, name, 80, HCP_R0 HCP_R(1) HCP_R(2) HCP_R(3), "%40", "%41", "%42",       \
              "%43", "%44", HCP_D32(0), HCP_D8(32))                                      \
    HCP_WGMMA(T, name, 128,                                                              \
              HCP_R0 HCP_R(1) HCP_R(2) HCP_R(3) HCP_R(4)                                 \
                  HCP_R(5) ", %60, %61, %62, %63",                                       \
              "%64", "%65", "%66", "%67", "%68", HCP_D32(0), HCP_D32(32))                \
    HCP_WGMMA(T, name, 176,                                                              \
              HCP_R0 HCP_R(1) HCP_R(2) HCP_R(3) HCP_R(4) HCP_R(5) HCP_R(6)               \
                  HCP_R(7) ", %80, %81, %82, %83, %84, %85, %86, %87",                   \
              "%88", "%89", "%90", "%91", "%92", HCP_D32(0), HCP_D32(32), HCP_D8(64),    \
              HCP_D8(72), HCP_D8(80))                                                    \
    HCP_WGMMA(T, name, 256,                                                              \
              HCP_R0 HCP_R(1) HCP_R(2) HCP_R(3) HCP_R(4) HCP_R(5) HCP_R(6) HCP_R(7)      \
                  HCP_R(8) HCP_R(9) HCP_R(10)                                            \
                      HCP_R(11) ", %120, %121, %122, %123, %124, %125, %126, %127",      \
              "%128", "%129", "%130", "%131", "%132", HCP_D32(0), HCP_D32(32),           \
              HCP_D32(64), HCP_D32(96))

HCP_WGMMA_SHAPES(__nv_bfloat16, "bf16")
HCP_WGMMA_SHAPES(__half, "f16")

#undef HCP_WGMMA_SHAPES
#undef HCP_WGMMA
#undef HCP_D32
#undef HCP_D8
#undef HCP_R
#undef HCP_R0

/* lo and hi rounded to T, lo in the lower half. */
template <typename T> __device__ inline uint32_t pack(float lo, float hi);

template <> __device__ inline uint32_t pack<__nv_bfloat16>(float lo, float hi)
{
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
    return x;
}

template <> __device__ inline uint32_t pack<__half>(float lo, float hi)
{
    uint32_t x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
    return x;
}

} // namespace sm90
#endif
