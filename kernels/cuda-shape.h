/* SPDX-License-Identifier: Apache-2.0
 *
 * What the providers of CUDA kernels check alike: a problem in query(), the arguments
 * of a run. Pure C, no CUDA call. A reason is one line for hcp_attn_support.reason.
 */
#ifndef HCP_CUDA_SHAPE_H
#define HCP_CUDA_SHAPE_H
#include <stdbool.h>
#include "kernels/provider.h"

/* Bytes that vector loads, bulk copies and cuDNN want pointers and strides aligned to. */
enum { HCP_CUDA_ALIGN = 16 };

/* Why no CUDA provider takes the problem on this device; NULL if some can. Of what it
 * lets through: the struct is whole, the device a GPU of 8.0 or newer, dtypes known,
 * batch and lengths in [0, 2^30] (batch * heads of any size), heads a multiple of
 * kv_heads >= 1, head_dim >= 1, diag >= 0 under a mask. */
const char *hcp_cuda_refusal(const hcp_device_ref *device, const hcp_attn_problem *p);

/* Why no tensor-core kernel of ours takes it: hcp_cuda_refusal(), and then Q, K and V
 * other than bf16 and fp16, O neither of their type nor fp32, accumulation into
 * anything but fp32, head dims other than 64, 128 and 256, a stride that is negative or
 * not a multiple of HCP_CUDA_ALIGN bytes, batch * heads over 2^30, a scale that is not
 * an fp32 number when multiplied by log2(e), as kernels do. */
const char *hcp_cuda_tile_refusal(const hcp_device_ref *device,
                                  const hcp_attn_problem *p);

/* All three strides (in elements of element_bytes) are multiples of HCP_CUDA_ALIGN
 * bytes. */
bool hcp_cuda_strides_aligned(const int64_t stride[3], int64_t element_bytes);

/* Q, K, V, O and L of args are aligned to HCP_CUDA_ALIGN bytes. */
bool hcp_cuda_args_aligned(const hcp_attn_args *args);

/* The arguments of a run of problem with HCP_CAP_DYNAMIC_LEN and HCP_CAP_DIAG, checked
 * into *out (out->size = sizeof *out): lengths in [0, the plan's]. out->diag is in
 * [0, kv_len] and holds without the mask too: row i sees the keys j <= i + diag, all
 * of them where diag = kv_len, as it is without a mask. Leaves no sum of a row and the
 * diagonal over 2^31. HCP_RC_INVALID for a struct that is too old, lengths over the
 * plan's or negative, and a negative diag under a mask. */
int hcp_cuda_clamp_args(const hcp_attn_problem *problem, const hcp_attn_args *args,
                        hcp_attn_args *out);

#endif
