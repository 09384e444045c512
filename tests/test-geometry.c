/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "kernels/geometry.h"

/* Keys that a row sees, by the definition. */
static int64_t seen(hcp_mask mask, int64_t kv_len, int64_t diag, int64_t i)
{
    __int128 n = mask == HCP_MASK_FULL ? kv_len : (__int128)i + diag + 1;
    return n < 0 ? 0 : n > kv_len ? kv_len : (int64_t)n;
}

/* The same area another way: a causal rectangle is four triangles that begin at its
 * corners, added and subtracted. */
static __int128 triangle(__int128 n)
{
    return n > 0 ? n * (n + 1) / 2 : 0;
}

static int64_t four_triangles(int64_t q_len, int64_t kv_len, int64_t diag)
{
    __int128 d = diag, area = triangle(q_len + d) - triangle(d) -
                              triangle(q_len + d - kv_len) + triangle(d - kv_len);
    assert_true(area >= 0 && area <= (__int128)q_len * kv_len);
    return (int64_t)area;
}

static void check(hcp_mask mask, int64_t q_len, int64_t kv_len, int64_t diag)
{
    hcp_block b = hcp_block_classify(mask, q_len, kv_len, diag);
    int64_t area = 0, empty = 0, widest = 0;
    int full = 1;
    for (int64_t i = 0; i < q_len; i++) {
        int64_t n = seen(mask, kv_len, diag, i);
        area += n;
        empty += n == 0;
        widest = n; /* rows see ever more */
    }
    for (int64_t i = empty; i < q_len; i++)
        full &= seen(mask, kv_len, diag, i) == widest;
    assert_int_equal(hcp_block_area(mask, q_len, kv_len, diag), area);
    assert_int_equal(b.kind, area == 0 ? HCP_BLOCK_EMPTY
                             : full    ? HCP_BLOCK_FULL
                                       : HCP_BLOCK_PARTIAL);
    assert_int_equal(b.skip_rows, empty);
    assert_int_equal(b.q_len, q_len - empty);
    assert_int_equal(b.kv_len, widest);
    if (b.kind != HCP_BLOCK_PARTIAL)
        return;
    assert_true(b.diag >= 0);
    for (int64_t i = 0; i < b.q_len; i++)
        assert_int_equal(seen(HCP_MASK_CAUSAL, b.kv_len, b.diag, i),
                         seen(mask, kv_len, diag, i + b.skip_rows));
}

static void small_blocks_match_counting(void **state)
{
    (void)state;
    for (int64_t q = 0; q <= 12; q++)
        for (int64_t kv = 0; kv <= 12; kv++) {
            check(HCP_MASK_FULL, q, kv, 0);
            for (int64_t diag = -15; diag <= 15; diag++)
                check(HCP_MASK_CAUSAL, q, kv, diag);
        }
}

static const int64_t lengths[] = {0, 1, 2, 63, 64, 65, 127, 129, 1000, 4097};
enum { N = sizeof lengths / sizeof *lengths };

static void test_shapes_match_counting(void **state)
{
    (void)state;
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++) {
            int64_t q = lengths[a], kv = lengths[b];
            const int64_t diag[] = {-q,     -q + 1, -1,     0,         1,
                                    63,     64,     kv - 2, kv - 1,    (int64_t)1 << 33,
                                    kv - q, -q - 1, kv,     INT64_MIN, INT64_MAX};
            for (size_t k = 0; k < sizeof diag / sizeof *diag; k++)
                check(HCP_MASK_CAUSAL, q, kv, diag[k]);
            check(HCP_MASK_FULL, q, kv, INT64_MIN);
        }
}

static void longest_blocks_do_not_overflow(void **state)
{
    (void)state;
    const int64_t n = HCP_MAX_LEN;
    const int64_t diag[] = {INT64_MIN,
                            INT64_MIN + 1,
                            -((int64_t)1 << 62),
                            -n - 1,
                            -n,
                            1 - n,
                            -n / 2,
                            -1,
                            0,
                            1,
                            n / 2,
                            n - 2,
                            n - 1,
                            n,
                            n + 1,
                            (int64_t)1 << 33,
                            (int64_t)1 << 62,
                            INT64_MAX - 1,
                            INT64_MAX};
    const int64_t len[] = {1, 2, 3, n / 2 + 1, n - 1, n};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            for (size_t k = 0; k < sizeof diag / sizeof *diag; k++) {
                int64_t area = hcp_block_area(HCP_MASK_CAUSAL, len[a], len[b], diag[k]);
                hcp_block block =
                    hcp_block_classify(HCP_MASK_CAUSAL, len[a], len[b], diag[k]);
                assert_int_equal(area, four_triangles(len[a], len[b], diag[k]));
                assert_int_equal(block.kind == HCP_BLOCK_EMPTY, area == 0);
                assert_int_equal(block.skip_rows + block.q_len, len[a]);
            }
    assert_int_equal(hcp_block_area(HCP_MASK_FULL, n, n, 0), (int64_t)1 << 60);
}

/* theory.md's squares, and cutting a block at any place keeps the sum. */
static void areas_add_up(void **state)
{
    (void)state;
    uint64_t x = 1;
    assert_int_equal(hcp_block_area(HCP_MASK_CAUSAL, 65536, 65536, 0),
                     65536LL * 65537 / 2);
    for (int n = 0; n < 20000; n++) {
        int64_t v[5];
        for (int i = 0; i < 5; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            v[i] = (int64_t)(x >> 44);
        }
        int64_t q = v[0] + 1, kv = v[1] + 1, diag = v[2] - v[3], q1 = v[4] % q,
                kv1 = v[4] % kv;
        int64_t area = hcp_block_area(HCP_MASK_CAUSAL, q, kv, diag);
        assert_int_equal(area,
                         hcp_block_area(HCP_MASK_CAUSAL, q1, kv, diag) +
                             hcp_block_area(HCP_MASK_CAUSAL, q - q1, kv, diag + q1));
        assert_int_equal(area,
                         hcp_block_area(HCP_MASK_CAUSAL, q, kv1, diag) +
                             hcp_block_area(HCP_MASK_CAUSAL, q, kv - kv1, diag - kv1));
        assert_int_equal(area, four_triangles(q, kv, diag));
    }
}

/* The formula in 128 bits. */
static int64_t cut_by_formula(int64_t len, int64_t tile, int32_t pieces, int32_t p)
{
    __int128 tiles = ((__int128)len + tile - 1) / tile;
    __int128 at = tile * (tiles * p / pieces);
    return at < len ? (int64_t)at : len;
}

static void pieces_cover_the_block(void **state)
{
    (void)state;
    const int64_t len[] = {
        0, 1, 5, 64, 65, 127, 128, 129, 1000, 4097, HCP_MAX_LEN - 1, HCP_MAX_LEN};
    const int64_t tile[] = {1, 2, 64, 100, 128, 4097, HCP_MAX_LEN, INT64_MAX};
    const int32_t pieces[] = {1, 2, 3, 4, 7, 16, 1000, INT32_MAX};
    for (size_t a = 0; a < sizeof len / sizeof *len; a++)
        for (size_t b = 0; b < sizeof tile / sizeof *tile; b++)
            for (size_t c = 0; c < sizeof pieces / sizeof *pieces; c++) {
                int32_t m = pieces[c], step = m > 1000 ? m / 100 : 1;
                int64_t last = 0;
                assert_int_equal(hcp_piece_cut(len[a], tile[b], m, 0), 0);
                assert_int_equal(hcp_piece_cut(len[a], tile[b], m, m), len[a]);
                for (int32_t p = 0; p <= m - step; p += step) {
                    int64_t at = hcp_piece_cut(len[a], tile[b], m, p);
                    assert_int_equal(at, cut_by_formula(len[a], tile[b], m, p));
                    assert_true(at >= last && (at == len[a] || at % tile[b] == 0));
                    last = at;
                }
            }
    /* 8 tiles in 3: 2, 3, 3; the last tile is not whole */
    assert_int_equal(hcp_piece_cut(1000, 128, 3, 1), 256);
    assert_int_equal(hcp_piece_cut(1000, 128, 3, 2), 640);
    assert_int_equal(hcp_piece_cut(1000, 0, 3, 1), hcp_piece_cut(1000, 1, 3, 1));
}

/* Runs of up to five tokens at random places. */
static int64_t random_runs(uint64_t *seed, int64_t (*runs)[2])
{
    int64_t n = 0, at = 0;

    for (int i = 0; i < 6; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        at += (int64_t)(*seed >> 33) % 6;
        runs[n][0] = at;
        runs[n][1] = (int64_t)(*seed >> 43) % 6;
        at += runs[n][1];
        n += runs[n][1] > 0;
    }
    return n;
}

struct counted {
    int64_t keys[64]; /* that each row sees by the calls */
    int64_t rows_end, n;
};

static void count_call(void *ctx, const hcp_call *call)
{
    struct counted *c = ctx;

    assert_true(call->rows > 0 && call->keys > 0 && call->row >= c->rows_end);
    assert_true(!call->causal || call->keys >= call->rows);
    for (int64_t i = 0; i < call->rows; i++)
        c->keys[call->row + i] = call->keys - (call->causal ? call->rows - 1 - i : 0);
    c->rows_end = call->row + call->rows;
    c->n++;
}

/* Each row is in one call at most and sees what its place says. */
static void calls_show_rows_their_keys(void **state)
{
    uint64_t seed = 1;
    int64_t q[6][2], kv[6][2], square[1][2] = {{7, 20}};
    struct counted c;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        int64_t n_q = random_runs(&seed, q), n_kv = random_runs(&seed, kv), all = 0;
        int64_t row = 0, from, to;
        hcp_mask mask = round % 4 ? HCP_MASK_CAUSAL : HCP_MASK_FULL;

        for (int64_t s = 0; s < n_kv; s++)
            all += kv[s][1];
        from = all ? (int64_t)(seed >> 20) % all : 0;
        to = from + (all > from ? 1 + (int64_t)(seed >> 40) % (all - from) : 0);
        c = (struct counted){.rows_end = 0};
        hcp_piece_calls(mask, (const int64_t(*)[2])q, n_q, (const int64_t(*)[2])kv, n_kv,
                        from, to, count_call, &c);
        for (int64_t i = 0; i < n_q; i++)
            for (int64_t x = q[i][0]; x < q[i][0] + q[i][1]; x++, row++) {
                int64_t key = 0, see = 0;

                for (int64_t s = 0; s < n_kv; s++)
                    for (int64_t y = kv[s][0]; y < kv[s][0] + kv[s][1]; y++, key++)
                        see +=
                            key >= from && key < to && (mask == HCP_MASK_FULL || y <= x);
                assert_int_equal(c.keys[row], see);
            }
    }
    /* A rank's own tokens are one causal square; the runs of it may lie anywhere. */
    c = (struct counted){.rows_end = 0};
    hcp_piece_calls(HCP_MASK_CAUSAL, (const int64_t(*)[2])square, 1,
                    (const int64_t(*)[2])square, 1, 0, 20, count_call, &c);
    assert_int_equal(c.n, 1);
    c = (struct counted){.rows_end = 0};
    hcp_piece_calls(HCP_MASK_CAUSAL, (const int64_t(*)[2])kv, 2, (const int64_t(*)[2])kv,
                    2, 0, kv[0][1] + kv[1][1], count_call, &c);
    assert_int_equal(c.n, 1);
}

static void flops_count_two_products(void **state)
{
    (void)state;
    assert_true(hcp_attention_flops(6, 2, 3, 5) == 4.0 * 6 * 2 * 3 * 5);
    assert_true(hcp_attention_flops((int64_t)1 << 60, 1, 128, 128) == 0x1p76);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_blocks_match_counting),
        cmocka_unit_test(test_shapes_match_counting),
        cmocka_unit_test(longest_blocks_do_not_overflow),
        cmocka_unit_test(areas_add_up),
        cmocka_unit_test(pieces_cover_the_block),
        cmocka_unit_test(calls_show_rows_their_keys),
        cmocka_unit_test(flops_count_two_products),
    };
    return cmocka_run_group_tests_name("geometry", tests, NULL, NULL);
}
