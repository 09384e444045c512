/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the provider "cuda-wgmma" (prefill-sm90.c: checks, tensor maps) and its kernels
 * (prefill-sm90.cu).
 */
#ifndef HCP_PREFILL_SM90_H
#define HCP_PREFILL_SM90_H
#include "kernels/provider.h"
#include "kernels/sm90-maps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One launch; the kernel's parameter as it is. The maps are 4-dimensional (head_dim,
 * token, head, batch), with boxes of HCP_SM90_SLAB columns and tile_q or tile_kv tokens,
 * 128-byte swizzle. Lengths and diag as hcp_cuda_clamp_args() leaves them. */
typedef struct hcp_sm90_prefill {
    CUtensorMap q, k, v;
    void *o;
    float *lse;
    int32_t *counter; /* the next tile; 0 at the start */
    int64_t o_stride[3];
    int32_t q_len, kv_len, diag, heads, kv_heads, batch;
    int32_t out_fp32, accumulate;
    float scale_log2;   /* of the problem's scale, times log2(e) */
    int32_t row_blocks; /* tiles of a head */
    int32_t tiles;      /* of all heads and batches */
    int32_t section; /* KV heads, of all batches in a row, that are worked on together */
} hcp_sm90_prefill;

/* Rows and keys of the tiles of the kernel that serves the problem: by its head dim. */
typedef struct hcp_sm90_tile {
    int32_t q, kv;
} hcp_sm90_tile;
hcp_sm90_tile hcp_cuda_prefill_sm90_tile(const hcp_attn_problem *problem);

/* Zeroes the counter on stream and launches that kernel on at most sm_count blocks. There
 * is at least one tile. Returns a cudaError_t. */
int hcp_cuda_launch_prefill_sm90(const hcp_attn_problem *problem,
                                 const hcp_sm90_prefill *job, int sm_count, void *stream);

#ifdef __cplusplus
}
#endif
#endif
