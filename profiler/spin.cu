/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>
#include "profiler/spin.h"

static __device__ unsigned long long now_ns()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__global__ void hcp_spin(const volatile int *go, int ticket, unsigned long long limit_ns,
                         volatile int *late)
{
    unsigned long long start = now_ns();
    while (*go < ticket) {
        if (now_ns() - start > limit_ns) {
            *late += 1;
            break;
        }
    }
}

extern "C" int hcp_spin_launch(const int *go, int ticket, unsigned long long limit_ns,
                               int *late, void *stream)
{
    hcp_spin<<<1, 1, 0, (cudaStream_t)stream>>>(go, ticket, limit_ns, late);
    return (int)cudaGetLastError();
}

__global__ void hcp_mark_sms(int *marks, unsigned long long ns)
{
    unsigned sm;
    const unsigned long long start = now_ns();
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    if (threadIdx.x == 0 && sm < HCP_SMS)
        marks[sm] = 1;
    while (now_ns() - start < ns)
        ;
}

extern "C" int hcp_mark_sms_launch(int *marks, int blocks, unsigned long long ns,
                                   void *stream)
{
    hcp_mark_sms<<<blocks, 1024, 0, (cudaStream_t)stream>>>(marks, ns);
    return (int)cudaGetLastError();
}

__global__ void hcp_stretch_from(unsigned long long *mark)
{
    *mark = now_ns();
}

__global__ void hcp_stretch_to(const unsigned long long *mark, double factor,
                               unsigned long long limit_ns)
{
    const unsigned long long now = now_ns(), passed = now - *mark;
    const double more = (factor - 1) * (double)passed;
    const unsigned long long ns = more < (double)limit_ns ? (unsigned long long)more
                                                          : limit_ns;
    while (now_ns() - now < ns)
        ;
}

extern "C" int hcp_stretch_from_launch(unsigned long long *mark, void *stream)
{
    hcp_stretch_from<<<1, 1, 0, (cudaStream_t)stream>>>(mark);
    return (int)cudaGetLastError();
}

extern "C" int hcp_stretch_to_launch(const unsigned long long *mark, double factor,
                                     unsigned long long limit_ns, void *stream)
{
    hcp_stretch_to<<<1, 1, 0, (cudaStream_t)stream>>>(mark, factor, limit_ns);
    return (int)cudaGetLastError();
}
