/* SPDX-License-Identifier: Apache-2.0
 *
 * Block geometry of ring attention: which part of a (query shard x KV block)
 * rectangle a causal mask leaves, in closed form. Pure C, no allocation, no I/O.
 *
 * A block has q_len query rows, the first at absolute position q0, and kv_len
 * keys, the first at position k0. diag = q0 - k0. Row i (0-based) sees the keys
 * j with j <= i + diag. All lengths are in tokens.
 */
#ifndef HCP_GEOMETRY_H
#define HCP_GEOMETRY_H
#include <stdint.h>

/* Longest sequence accepted anywhere, in tokens: areas stay below 2^61. */
#define HCP_MAX_LEN ((int64_t)1 << 30)

typedef enum hcp_mask { HCP_MASK_FULL = 0, HCP_MASK_CAUSAL = 1 } hcp_mask;

typedef enum hcp_block_kind {
    HCP_BLOCK_EMPTY = 0, /* no row sees any key: nothing to launch */
    HCP_BLOCK_FULL = 1,  /* every row sees every key: unmasked kernel */
    HCP_BLOCK_PARTIAL = 2
} hcp_block_kind;

/* What is left of a block after the rows that see nothing are dropped. */
typedef struct hcp_block {
    hcp_block_kind kind;
    int64_t skip_rows; /* leading rows that see no key: move the Q pointer by this many */
    int64_t q_len;     /* rows left */
    int64_t kv_len;    /* keys that at least one row sees */
    int64_t diag;      /* >= 0 for PARTIAL; meaningless otherwise */
} hcp_block;

/* Classifies a block. Any int64 diag is accepted (differences of positions up
 * to 2^62); q_len and kv_len in [0, HCP_MAX_LEN]. Zero-length blocks are EMPTY. */
hcp_block hcp_block_classify(hcp_mask mask, int64_t q_len, int64_t kv_len, int64_t diag);

/* Number of (row, key) pairs the mask leaves: sum over rows of
 * clamp(i + diag + 1, 0, kv_len), in closed form. */
int64_t hcp_block_area(hcp_mask mask, int64_t q_len, int64_t kv_len, int64_t diag);

/* Where piece p of a KV block of len tokens begins when it is sent in pieces (at most)
 * of whole tiles: min(len, tile * floor(T p / pieces)), T = ceil(len / tile). Piece p is
 * [cut(p), cut(p + 1)); it is empty where there are fewer tiles than pieces, and
 * cut(0) = 0, cut(pieces) = len. len in [0, HCP_MAX_LEN]; tile >= 0, in tokens, 0 (not
 * known) being 1; pieces >= 1, 0 <= p <= pieces. */
int64_t hcp_piece_cut(int64_t len, int64_t tile, int32_t pieces, int32_t p);

/* Part of a block as one call of a kernel: own rows [row, row + rows) against the first
 * `keys` keys of a piece. causal 0: each row sees all of them; 1: the last row does, each
 * row before it one less (diag = keys - rows >= 0). */
typedef struct hcp_call {
    int64_t row, rows, keys;
    int32_t causal;
} hcp_call;

/* The calls of keys [from, to) of a block, where queries and keys are any runs of
 * positions: {offset, length} with length > 0, in order and apart, n_q and n_kv of them.
 * Rows and keys are numbered through the runs. What a row sees is a prefix of the keys;
 * rows that see equally many, or each one more than the row before, are one call; those
 * that see none are in no call. Visits them in order of their rows. */
void hcp_piece_calls(hcp_mask mask, const int64_t (*q_runs)[2], int64_t n_q,
                     const int64_t (*kv_runs)[2], int64_t n_kv, int64_t from, int64_t to,
                     void (*visit)(void *ctx, const hcp_call *call), void *ctx);

/* Floating-point operations of a forward pass over that area:
 * 4 * area * heads * head_dim * batch (two products, two operations each). */
double hcp_attention_flops(int64_t area, int64_t batch, int64_t heads, int64_t head_dim);

#endif
