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

/* Calls of a piece while they are put together. */
struct pending {
    hcp_call call; /* rows 0: none */
    int64_t from, to;
    void (*visit)(void *ctx, const hcp_call *call);
    void *ctx;
};

static void flush(struct pending *p)
{
    if (p->call.rows > 0)
        p->visit(p->ctx, &p->call);
    p->call.rows = 0;
}

/* Rows that see the first `keys` keys of the piece, the last of them where causal. */
static void put(struct pending *p, int64_t row, int64_t rows, int64_t keys, int causal)
{
    hcp_call *c = &p->call;
    int64_t before = causal ? keys - rows : keys; /* what the row before would see */

    if (rows <= 0)
        return;
    if (c->rows > 0 && c->row + c->rows == row && c->causal == causal &&
        c->keys == before) {
        c->rows += rows;
        c->keys = keys;
        return;
    }
    flush(p);
    *c = (hcp_call){row, rows, keys, causal};
}

/* Rows that see `keys` keys of the block (causal: the first of them does, the others one
 * more each), cut to the piece. */
static void clip(struct pending *p, int64_t row, int64_t rows, int64_t keys, int causal)
{
    int64_t blind, partly, width = p->to - p->from;

    if (!causal) {
        keys = min64(keys, p->to) - p->from;
        if (keys > 0)
            put(p, row, rows, keys, 0);
        return;
    }
    blind = p->from >= keys ? min64(p->from - keys + 1, rows) : 0;
    partly = p->to >= keys ? min64(p->to - keys + 1, rows) : 0;
    put(p, row + blind, partly - blind, keys + partly - 1 - p->from, 1);
    put(p, row + partly, rows - partly, width, 0);
}

void hcp_piece_calls(hcp_mask mask, const int64_t (*q_runs)[2], int64_t n_q,
                     const int64_t (*kv_runs)[2], int64_t n_kv, int64_t from, int64_t to,
                     void (*visit)(void *ctx, const hcp_call *call), void *ctx)
{
    struct pending p = {{0, 0, 0, 0}, from, to, visit, ctx};
    int64_t row = 0, seen = 0, next = 0; /* keys in the runs before `next` */

    for (int64_t i = 0; i < n_q; i++) {
        int64_t at = q_runs[i][0], end = at + q_runs[i][1];

        if (mask == HCP_MASK_FULL) {
            clip(&p, row, end - at, to, 0);
            row += end - at;
            continue;
        }
        while (at < end) {
            int64_t rows, keys;
            int inside;

            while (next < n_kv && kv_runs[next][0] + kv_runs[next][1] <= at) {
                seen += kv_runs[next][1];
                next++;
            }
            keys = seen;
            inside = next < n_kv && kv_runs[next][0] <= at;
            rows = end - at;
            if (inside) {
                keys += at - kv_runs[next][0] + 1;
                rows = min64(rows, kv_runs[next][0] + kv_runs[next][1] - at);
            } else if (next < n_kv) {
                rows = min64(rows, kv_runs[next][0] - at);
            }
            clip(&p, row, rows, keys, inside);
            row += rows;
            at += rows;
        }
    }
    flush(&p);
}

double hcp_attention_flops(int64_t area, int64_t batch, int64_t heads, int64_t head_dim)
{
    return 4.0 * (double)area * (double)heads * (double)head_dim * (double)batch;
}
