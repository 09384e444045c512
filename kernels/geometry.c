/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/geometry.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

hcp_block hcp_block_classify(hcp_mask mask, int64_t q_len, int64_t kv_len, int64_t diag)
{
    hcp_block block = { .kind = HCP_BLOCK_EMPTY, .skip_rows = q_len };
    /* Comparisons only until diag is known to lie in (-q_len, kv_len): any int64
     * may arrive, and q_len + diag must not be formed before. */
    if (q_len <= 0 || kv_len <= 0 || (mask == HCP_MASK_CAUSAL && diag < 1 - q_len))
        return block;

    block.skip_rows = 0;
    block.q_len = q_len;
    block.kv_len = kv_len;
    if (mask == HCP_MASK_FULL || diag >= kv_len - 1) {
        block.kind = HCP_BLOCK_FULL;
        return block;
    }
    if (diag < 0) {
        block.skip_rows = -diag;
        block.q_len = q_len + diag;
        diag = 0;
    }
    block.kv_len = min64(kv_len, block.q_len + diag);
    /* What is left may be full: a single row, or a single key. */
    block.kind = diag >= block.kv_len - 1 ? HCP_BLOCK_FULL : HCP_BLOCK_PARTIAL;
    block.diag = diag;
    return block;
}

int64_t hcp_block_area(hcp_mask mask, int64_t q_len, int64_t kv_len, int64_t diag)
{
    hcp_block b = hcp_block_classify(mask, q_len, kv_len, diag);
    if (b.kind == HCP_BLOCK_EMPTY)
        return 0;
    if (b.kind == HCP_BLOCK_FULL)
        return b.q_len * b.kv_len;
    /* Rows 0..ramp-1 see diag+1, diag+2, ... keys; the last of them sees at most
     * kv_len, and so does every row after them. */
    int64_t ramp = min64(b.q_len, b.kv_len - b.diag);
    return ramp * b.diag + ramp * (ramp + 1) / 2 + (b.q_len - ramp) * b.kv_len;
}

int64_t hcp_piece_cut(int64_t len, int64_t tile, int32_t pieces, int32_t p)
{
    if (tile < 1)
        tile = 1;
    /* At most 2^30 tiles times 2^31; and a tile that begins before the end of the block
     * begins below 2^30, however large tiles are. */
    int64_t tiles = len / tile + (len % tile != 0);
    int64_t before = tiles * p / pieces;
    return before == tiles ? len : tile * before;
}

double hcp_attention_flops(int64_t area, int64_t batch, int64_t heads, int64_t head_dim)
{
    return 4.0 * (double)area * (double)heads * (double)head_dim * (double)batch;
}
