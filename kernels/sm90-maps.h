/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps, by which Hopper's TMA finds tiles of Q, K and V.
 */
#ifndef HCP_SM90_MAPS_H
#define HCP_SM90_MAPS_H
#include <cudaTypedefs.h>
#include <stdbool.h>
#include "kernels/provider.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HCP_SM90_SLAB = 64 }; /* columns of a tile: 128 bytes, the widest swizzled row */

typedef PFN_cuTensorMapEncodeTiled_v12000 hcp_sm90_encoder;

/* The driver's encoder. HCP_RC_MISSING: it has none (the reason is noted). */
int hcp_sm90_find_encoder(hcp_sm90_encoder *out);

/* Whether TMA can walk a tensor of p's batch and so many heads and tokens: axes of more
 * than one have strides over 0 and below 2^40 bytes. */
bool hcp_sm90_walkable(const hcp_attn_problem *p, const int64_t stride[3], int64_t heads,
                       int64_t len);

/* The map of a 16-bit tensor (head_dim, token, head, batch), read in boxes of `box`
 * tokens by HCP_SM90_SLAB columns, 128-byte swizzle. An axis of one has any stride, no
 * token counts as one (it is not read). */
int hcp_sm90_encode(hcp_sm90_encoder encode, const hcp_attn_problem *p, CUtensorMap *map,
                    const void *data, const int64_t stride[3], int64_t heads, int64_t len,
                    int32_t box);

#ifdef __cplusplus
}
#endif
#endif
