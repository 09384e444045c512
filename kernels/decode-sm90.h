/* SPDX-License-Identifier: Apache-2.0
 *
 * Between decode.cu and its Hopper kernels (decode-sm90.cu), and what decode.c has to
 * know of these to cut the work.
 */
#ifndef HCP_DECODE_SM90_H
#define HCP_DECODE_SM90_H
#include "kernels/provider.h"
#include "kernels/sm90-maps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* K and V, as 4-dimensional maps (head_dim, token, head, batch) with boxes of
 * HCP_SM90_SLAB columns and hcp_decode_sm90_tile.keys tokens, 128-byte swizzle. */
typedef struct hcp_decode_sm90_maps {
    CUtensorMap k, v;
} hcp_decode_sm90_maps;

/* What the kernel for so many rows of a KV head takes at a time, and its blocks an SM. */
typedef struct hcp_decode_sm90_tile {
    int32_t rows, keys, blocks_per_sm;
} hcp_decode_sm90_tile;
hcp_decode_sm90_tile hcp_cuda_decode_sm90_tile(int64_t head_dim, int64_t rows);

#ifdef __cplusplus
}

namespace hcp
{
namespace decode
{
struct shape;
}
} // namespace hcp

/* Launches that kernel. s: block_steps > 0, kv_len > 0. Parts of rows
 * that several blocks share are left in s.part_o and s.part_lse. Returns a cudaError_t;
 * asynchronous on stream. */
int hcp_cuda_launch_decode_sm90(int32_t dtype, int64_t head_dim,
                                const hcp::decode::shape &s,
                                const hcp_decode_sm90_maps &maps, void *stream);
#endif
#endif
