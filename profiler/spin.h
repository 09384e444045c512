/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that holds a stream back until the host says go, so that what is queued
 * behind it runs without gaps of launching; and one that tells on which SMs it ran.
 */
#ifndef HCP_SPIN_H
#define HCP_SPIN_H

#ifdef __cplusplus
extern "C" {
#endif

/* One thread waits until *go >= ticket, at most limit_ns: then it counts up *late.
 * Both are mapped host memory. Returns a cudaError_t; asynchronous on stream. */
int hcp_spin_launch(const int *go, int ticket, unsigned long long limit_ns, int *late,
                    void *stream);

/* Blocks of 1024 threads that spin for ns each and set marks[%smid] to 1, of
 * HCP_SMS in device memory. Returns a cudaError_t; asynchronous on stream. */
enum { HCP_SMS = 1024 };
int hcp_mark_sms_launch(int *marks, int blocks, unsigned long long ns, void *stream);

#ifdef __cplusplus
}
#endif
#endif
