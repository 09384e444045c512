/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem as the kernels of "cuda-decode" see it: its packed rows (decode.h), and which
 * parts of the keys blocks have of them.
 */
#ifndef HCP_DECODE_SHAPE_CUH
#define HCP_DECODE_SHAPE_CUH
#include <math.h>
#include <stdint.h>
#include "kernels/decode.h"

namespace hcp
{
namespace decode
{

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* A problem as the kernels see it; row r is packed row r of decode.h. */
struct shape {
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    int64_t out_rows; /* batch * heads * q_len */
    const void *q, *k, *v;
    void *o;
    float *lse, *part_o, *part_lse;
    int q_len, kv_len, diag, heads, kv_heads, group, rows;
    int row_tiles, tile_rows; /* of one KV head */
    int splits;               /* at most, of a row */
    /* decode.cu: split n has the keys from n * split_keys on. */
    int row_groups, split_keys;
    /* decode-sm90.cu: block n has the steps from n * block_steps on, of all tiles of rows
     * one after the other. 0 for decode.cu. */
    int tiles, steps; /* of all KV heads; of a tile */
    int64_t block_steps;
    int out_dtype, causal, accumulate, merge_warps;
    float scale; /* times log2(e) */
};

/* Number of keys that packed row r sees. */
__device__ inline int visible(const shape &s, int r)
{
    return s.causal ? min(s.kv_len, r / s.group + s.diag + 1) : s.kv_len;
}

/* Position of packed row r of KV head hk of batch b: of its O, and of its L. */
__device__ inline int64_t o_offset(const shape &s, int b, int hk, int r)
{
    return b * s.o_stride[0] + (int64_t)(hk * s.group + r % s.group) * s.o_stride[1] +
           r / s.group * s.o_stride[2];
}

__device__ inline int64_t lse_offset(const shape &s, int b, int hk, int r)
{
    return ((int64_t)b * s.heads + hk * s.group + r % s.group) * s.q_len + r / s.group;
}

/* The blocks of decode-sm90.cu that have steps of tile of rows n: first and how many.
 * Part k of the tile is of block first + k; one alone has no parts, but results. */
struct parts {
    int64_t first;
    int count;
};

__device__ inline parts parts_of(const shape &s, int tile)
{
    const int64_t from = (int64_t)tile * s.steps;
    const int64_t first = from / s.block_steps;
    return {first, (int)((from + s.steps - 1) / s.block_steps - first) + 1};
}

/* Output row n of all, as L has them: where its O is, and in how many parts or splits. */
__device__ inline int64_t o_row(const shape &s, int64_t n)
{
    const int i = (int)(n % s.q_len), h = (int)(n / s.q_len % s.heads);
    return n / s.q_len / s.heads * s.o_stride[0] + h * s.o_stride[1] + i * s.o_stride[2];
}

__device__ inline int parts_of_row(const shape &s, int64_t n)
{
    if (s.block_steps == 0)
        return s.splits;
    const int i = (int)(n % s.q_len), h = (int)(n / s.q_len % s.heads);
    const int plane = (int)(n / s.q_len / s.heads) * s.kv_heads + h / s.group;
    const int tile = (i * s.group + h % s.group) / s.tile_rows;
    return parts_of(s, plane * s.row_tiles + tile).count;
}

} // namespace decode
} // namespace hcp
#endif
