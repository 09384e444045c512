/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that holds a stream back until the host says go, so that what is queued
 * behind it runs without gaps of launching.
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

#ifdef __cplusplus
}
#endif
#endif
