/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the sources of libhcpcuda.a only: the thread's last error, and the
 * C-linkage launchers of the .cu files. A launcher returns a cudaError_t as int,
 * is asynchronous on stream (a cudaStream_t) and allocates nothing.
 */
#ifndef HCP_CUDA_INTERNAL_H
#define HCP_CUDA_INTERNAL_H
#include "kernels/cuda.h"
#include "kernels/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps code and its text (doing = what failed, e.g. "allocate 12 bytes") for this
 * thread and returns the hcp_rc; HCP_RC_OK for code 0, which changes nothing. */
int hcp_cuda_check(int cuda_error, const char *doing);

/* Keeps text as this thread's last failure: for libraries with words of their own. */
void hcp_cuda_note(const char *text);

/* Text of the last failure in this thread; "" if none. */
const char *hcp_cuda_error_text(void);

/* The part that streams of the thread's current device are to be made of, or NULL. */
const hcp_cuda_part *hcp_cuda_part_here(void);

int hcp_cuda_launch_randn(void *dst, int64_t n, int32_t dtype, uint64_t seed,
                          uint64_t first, void *stream);

/* job as in runtime.h. */
int hcp_cuda_launch_finish(const hcp_finish *job, void *stream);

/* One block problem by the reference kernel; see reference.cu. */
int hcp_cuda_launch_reference(const hcp_attn_problem *problem, const hcp_attn_args *args,
                              void *stream);

#ifdef __cplusplus
}
#endif
#endif
