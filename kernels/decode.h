/* SPDX-License-Identifier: Apache-2.0
 *
 * "cuda-decode" between its provider (decode.c) and its kernels (decode.cu): how few
 * queries against many keys are cut into thread blocks.
 *
 * The rows of one KV head are its query heads times the queries, packed query by query:
 * row r is query r / group of head r % group, group = heads / kv_heads. A block of
 * HCP_DECODE_WARPS warps takes tile_rows of them and one split of the keys, which comes
 * in steps of step_keys. Warps share the rows in row_groups; those with the same rows
 * share the keys of a step. Splits are merged by a second kernel.
 */
#ifndef HCP_DECODE_H
#define HCP_DECODE_H
#include "kernels/decode-sm90.h"
#include "kernels/provider.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HCP_DECODE_WARPS = 4,
    HCP_DECODE_MMA_ROWS = 16, /* of one product instruction */
    HCP_DECODE_STAGES = 3,    /* steps of keys in shared memory */
    HCP_DECODE_STAGE_BYTES = 32 << 10,
    HCP_DECODE_FEW_SPLITS = 4 /* that one warp merges; else a block an output row */
};

typedef struct hcp_decode_tiling {
    int32_t row_groups; /* 1, 2 or 4 */
    int32_t warp_tiles; /* of HCP_DECODE_MMA_ROWS rows a warp: 1 or 2 */
    int32_t tile_rows;  /* row_groups * warp_tiles * HCP_DECODE_MMA_ROWS */
    int32_t row_tiles;  /* of one KV head */
    int32_t step_keys;
    int32_t splits;
    int32_t split_keys; /* of each but the last; a multiple of step_keys */
    /* Over 0: decode-sm90.cu, whose blocks each take so many steps of all the tiles'
     * steps one after the other. Rows are then in splits parts at most. */
    int64_t block_steps;
    int32_t steps; /* of a tile */
} hcp_decode_tiling;

/* One block problem, its args clamped as in cuda-shape.h, q_len from 1 to
 * HCP_DECODE_MAX_Q, batch * heads >= 1. With splits > 1 args->workspace has
 * splits * batch * heads * q_len * (head_dim + 1) floats: O, then L of each split.
 * maps: of K and V where tiling->block_steps > 0, else NULL. overlap: what
 * hcp_cuda_decode_overlaps() says. Returns a cudaError_t; asynchronous on
 * stream. */
int hcp_cuda_launch_decode(const hcp_attn_problem *problem, const hcp_attn_args *args,
                           const hcp_decode_tiling *tiling,
                           const hcp_decode_sm90_maps *maps, int overlap, void *stream);

/* 1: the merge kernel may start up beside the splits, for the code that the current
 * device runs waits for them: compiled for 9.0 or newer. 0: it may not, or there is no
 * device. */
int hcp_cuda_decode_overlaps(void);

#ifdef __cplusplus
}
#endif
#endif
