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
