/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that holds a stream back until the host says go, so that what is queued
 * behind it runs without gaps of launching; one that tells on which SMs it ran; and two
 * that make what lies between them slower.
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

/* Two launches of one thread around work on a stream, to make it slower: the first notes
 * the time in *mark (device memory), the second spins until factor >= 1 times what has
 * passed since then, at most limit_ns. A cudaError_t each; asynchronous on stream. */
int hcp_stretch_from_launch(unsigned long long *mark, void *stream);
int hcp_stretch_to_launch(const unsigned long long *mark, double factor,
                          unsigned long long limit_ns, void *stream);

#ifdef __cplusplus
}
#endif
#endif
