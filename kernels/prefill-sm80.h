/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of prefill-sm80.cu. Pure C.
 */
#ifndef HCP_PREFILL_SM80_H
#define HCP_PREFILL_SM80_H
#include "kernels/provider.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the kernel for a head dim: rows and keys of a tile, warps of a block, and the
 * shared memory that it takes. */
typedef struct hcp_sm80_tile {
    int rows, keys, warps, shared_bytes;
} hcp_sm80_tile;

/* Zeroes for a head dim other than 64, 128 and 256. */
hcp_sm80_tile hcp_cuda_sm80_tile(int64_t head_dim);

/* Tiles of rows that one launch can have. */
#define HCP_SM80_MAX_TILES INT32_MAX

/* One block problem that hcp_cuda_tile_refusal() lets through, of args from
 * hcp_cuda_clamp_args(), pointers aligned to 16 bytes, at most HCP_SM80_MAX_TILES tiles
 * of rows in all heads and batches together. Asynchronous on stream (a cudaStream_t),
 * allocates nothing; returns a cudaError_t. */
int hcp_cuda_launch_sm80(const hcp_attn_problem *problem, const hcp_attn_args *args,
                         void *stream);

#ifdef __cplusplus
}
#endif
#endif
