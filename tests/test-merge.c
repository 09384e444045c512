/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/dtype.h"
#include "kernels/merge.h"
#include "kernels/randn.h"

enum { ROWS = 400, DIM = 96, MANY = 7 };

static float o[MANY][ROWS * DIM], lse[MANY][ROWS];

/* States with L from -300 to 300, some far apart, some nearly equal. */
static void make_states(void)
{
    for (int p = 0; p < MANY; p++) {
        for (int i = 0; i < ROWS * DIM; i++)
            o[p][i] = hcp_randn_at(100 + (uint64_t)p, (uint64_t)i);
        for (int r = 0; r < ROWS; r++) {
            float spread = r % 4 == 0 ? 1e-3f : r % 4 == 1 ? 1 : r % 4 == 2 ? 20 : 200;
            float base = 300 * hcp_randn_at(1, (uint64_t)r) / 4;
            lse[p][r] = base + spread * hcp_randn_at(200 + (uint64_t)p, (uint64_t)r);
        }
    }
}

/* n states in long double. */
static void exact(const int *which, int n, int r, long double *out, long double *l)
{
    long double top = -INFINITY, sum = 0;
    for (int k = 0; k < n; k++)
        top = fmaxl(top, lse[which[k]][r]);
    memset(out, 0, DIM * sizeof *out);
    for (int k = 0; k < n; k++) {
        long double w = expl(lse[which[k]][r] - top);
        sum += w;
        for (int d = 0; d < DIM; d++)
            out[d] += w * o[which[k]][r * DIM + d];
    }
    for (int d = 0; d < DIM; d++)
        out[d] /= sum;
    *l = top + logl(sum);
}

static double ulps(float got, long double want)
{
    float w = (float)want;
    float step = nextafterf(fabsf(w), INFINITY) - fabsf(w);
    return (double)(fabsl(got - want) / step);
}

static void check_against_exact(const float *got, const float *got_lse, const int *which,
                                int n, double max_ulps)
{
    long double want[DIM], l;
    double worst = 0;
    for (int r = 0; r < ROWS; r++) {
        exact(which, n, r, want, &l);
        for (int d = 0; d < DIM; d++)
            worst = fmax(worst, ulps(got[r * DIM + d], want[d]));
        assert_true(fabsl(got_lse[r] - l) <= 2e-6L + 0x1p-22L * fabsl(l));
    }
    print_message("# %d states: %.2f ulp on O\n", n, worst);
    assert_true(worst <= max_ulps);
}

static void two_states_within_bounds(void **state)
{
    (void)state;
    static float a[ROWS * DIM], la[ROWS];
    const int ab[] = {0, 1};
    memcpy(a, o[0], sizeof a);
    memcpy(la, lse[0], sizeof la);
    hcp_merge(a, la, o[1], HCP_FP32, lse[1], ROWS, DIM);
    check_against_exact(a, la, ab, 2, 4);
}

static void order_changes_rounding_only(void **state)
{
    (void)state;
    static float a[ROWS * DIM], b[ROWS * DIM], la[ROWS], lb[ROWS];
    memcpy(a, o[0], sizeof a);
    memcpy(la, lse[0], sizeof la);
    memcpy(b, o[1], sizeof b);
    memcpy(lb, lse[1], sizeof lb);
    hcp_merge(a, la, o[1], HCP_FP32, lse[1], ROWS, DIM);
    hcp_merge(b, lb, o[0], HCP_FP32, lse[0], ROWS, DIM);
    for (int i = 0; i < ROWS * DIM; i++)
        assert_true(ulps(a[i], b[i]) <= 1);
    for (int r = 0; r < ROWS; r++)
        assert_true(la[r] == lb[r]);
}

static void many_states_at_once(void **state)
{
    (void)state;
    static float got[ROWS * DIM], got_lse[ROWS];
    const float *parts[MANY], *lses[MANY];
    const int all[MANY] = {0, 1, 2, 3, 4, 5, 6};
    for (int p = 0; p < MANY; p++) {
        parts[p] = o[p];
        lses[p] = lse[p];
    }
    memset(got, 0xff, sizeof got);
    hcp_merge_many(got, got_lse, parts, lses, MANY, ROWS, DIM);
    check_against_exact(got, got_lse, all, MANY, 4);
    hcp_merge_many(got, got_lse, parts, lses, 2, ROWS, DIM);
    check_against_exact(got, got_lse, all, 2, 4);

    hcp_merge_many(got, got_lse, parts, lses, 0, ROWS, DIM);
    for (int r = 0; r < ROWS; r++)
        assert_true(got_lse[r] == -INFINITY && got[r * DIM] == 0);
}

/* Where a state is empty its O is not read: NaN there must not come through. */
static void empty_states_are_not_read(void **state)
{
    (void)state;
    float nan_row[2] = {NAN, NAN}, row[2] = {3, -4}, empty = -INFINITY, l = 2;
    float a[2] = {3, -4};

    hcp_merge(a, &l, nan_row, HCP_FP32, &empty, 1, 2);
    assert_true(a[0] == 3 && a[1] == -4 && l == 2);

    float b[2] = {NAN, NAN}, lb = -INFINITY;
    hcp_merge(b, &lb, row, HCP_FP32, &l, 1, 2);
    assert_true(b[0] == 3 && b[1] == -4 && lb == 2);

    float c[2] = {NAN, 7}, lc = -INFINITY;
    hcp_merge(c, &lc, nan_row, HCP_FP32, &empty, 1, 2);
    assert_true(c[0] == 0 && c[1] == 0 && lc == -INFINITY);

    const float *parts[] = {nan_row, row, nan_row};
    const float *lses[] = {&empty, &l, &empty};
    hcp_merge_many(c, &lc, parts, lses, 3, 1, 2);
    assert_true(c[0] == 3 && c[1] == -4 && lc == 2);
    hcp_merge_many(c, &lc, parts, lses, 1, 1, 2);
    assert_true(c[0] == 0 && c[1] == 0 && lc == -INFINITY);

    /* a state so small that its weight is 0 in fp64 */
    float tiny = -1e6f, d[2] = {1, 2}, ld = 0;
    hcp_merge(d, &ld, nan_row, HCP_FP32, &tiny, 1, 2);
    assert_true(d[0] == 1 && d[1] == 2 && ld == 0);
}

static void nan_is_not_hidden(void **state)
{
    (void)state;
    float bad = NAN, row[1] = {1};
    for (int side = 0; side < 2; side++) {
        float a[1] = {1}, la = side ? 0.0f : bad, lb = side ? bad : 0.0f;
        hcp_merge(a, &la, row, HCP_FP32, &lb, 1, 1);
        assert_true(isnan(la) && isnan(a[0]));
        const float *parts[] = {row, row},
                    *lses[] = {side ? row : &bad, side ? &bad : row};
        hcp_merge_many(a, &la, parts, lses, 2, 1, 1);
        assert_true(isnan(la) && isnan(a[0]));

        float empty = -INFINITY; /* beside it, either */
        lses[side] = &bad;
        lses[1 - side] = &empty;
        hcp_merge_many(a, &la, parts, lses, 2, 1, 1);
        assert_true(isnan(la) && isnan(a[0]));
    }
}

static void partial_results_in_any_dtype(void **state)
{
    (void)state;
    for (int32_t t = HCP_BF16; t <= HCP_FP16; t++) {
        uint16_t half[2 * DIM]; /* room for fp32, for the compiler's bounds check */
        float rounded[DIM], a[DIM], b[DIM], la = 1, lb = 1, l = 1.5f;
        hcp_from_float(half, o[1], DIM, t);
        hcp_to_float(rounded, half, DIM, t);
        memcpy(a, o[0], sizeof a);
        memcpy(b, o[0], sizeof b);
        hcp_merge(a, &la, half, t, &l, 1, DIM);
        hcp_merge(b, &lb, rounded, HCP_FP32, &l, 1, DIM);
        assert_memory_equal(a, b, sizeof a);
        assert_true(la == lb);
    }
}

/* finish(): strided rows with a pitch, base 2, +inf for empty, store and merge. */
static void finish_normalises(void **state)
{
    (void)state;
    enum { H = 2, R = 3, D = 4, PITCH = 5, OUT = 8 };
    float part[H][R][D], part_lse[H][R], out[H * OUT * D], out_lse[H * PITCH];
    for (int h = 0; h < H; h++)
        for (int i = 0; i < R; i++) {
            part_lse[h][i] = i == 1 ? INFINITY : (float)(h + i);
            for (int d = 0; d < D; d++)
                part[h][i][d] = i == 1 ? NAN : (float)(100 * h + 10 * i + d);
        }
    hcp_finish job = {.batch = 1,
                      .heads = H,
                      .rows = R,
                      .head_dim = D,
                      .o = out + D,
                      .o_stride = {0, OUT * D, 2 * D},
                      .lse = out_lse + 1,
                      .lse_pitch = PITCH,
                      .part = part,
                      .part_dtype = HCP_FP32,
                      .part_stride = {0, R * D, D},
                      .lse_part = part_lse[0],
                      .part_pitch = R,
                      .caps = HCP_CAP_LSE_LOG2 | HCP_CAP_EMPTY_POS_INF};
    memset(out, 0xff, sizeof out);
    memset(out_lse, 0xff, sizeof out_lse);
    hcp_finish_host(&job);
    for (int h = 0; h < H; h++) {
        assert_true(isnan(out_lse[h * PITCH]) && isnan(out_lse[h * PITCH + 4]));
        for (int i = 0; i < R; i++) {
            float l = out_lse[h * PITCH + 1 + i],
                  *row = out + D + h * OUT * D + i * 2 * D;
            assert_true(i == 1 ? l == -INFINITY : fabs(l - (h + i) * log(2)) < 1e-6);
            assert_true(row[3] == (i == 1 ? 0 : part[h][i][3]));
            assert_true(isnan(row[D]));
        }
    }

    job.accumulate = 1; /* the same again: O stays, L grows by ln 2 */
    hcp_finish_host(&job);
    assert_true(fabsf(out_lse[PITCH + 3] - (float)(4 * log(2))) < 1e-6f);
    assert_true(out[D + OUT * D + 4 * D + 1] == part[1][2][1]);
    assert_true(out_lse[2] == -INFINITY);

    job.lse_part = NULL; /* rows without keys: merged nothing, stored empty */
    job.part = NULL;
    hcp_finish_host(&job);
    assert_true(fabsf(out_lse[PITCH + 3] - (float)(4 * log(2))) < 1e-6f);
    job.accumulate = 0;
    hcp_finish_host(&job);
    assert_true(out_lse[PITCH + 3] == -INFINITY && out[D + OUT * D + 4 * D + 1] == 0);

    job.o = NULL; /* L alone: copied with pitches, and of rows without keys */
    job.lse_part = part_lse[0];
    job.caps = 0;
    hcp_finish_host(&job);
    assert_true(out_lse[PITCH + 3] == part_lse[1][2] && out_lse[1] == part_lse[0][0]);
    assert_true(out_lse[2] == INFINITY && isnan(out_lse[PITCH]));
    job.lse_part = NULL;
    hcp_finish_host(&job);
    assert_true(out_lse[PITCH + 3] == -INFINITY && isnan(out_lse[PITCH + 4]));
}

/* What contradicts itself is refused before memory is touched. */
static void finish_refuses(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4}, l[2] = {0}, part_l[2] = {0};
    const hcp_finish good = {.batch = 1,
                             .heads = 1,
                             .rows = 2,
                             .head_dim = 2,
                             .o = x,
                             .o_stride = {4, 4, 2},
                             .lse = l,
                             .lse_pitch = 2,
                             .part = x,
                             .part_dtype = HCP_FP32,
                             .part_stride = {4, 4, 2},
                             .lse_part = part_l,
                             .part_pitch = 2};
    const hcp_runtime *rt = hcp_runtime_cpu();
    hcp_finish bad[6] = {good, good, good, good, good, good};
    bad[0].rows = -1;
    bad[1].o = NULL;
    bad[2].lse_part = NULL;
    bad[3].part = NULL;
    bad[4].part_dtype = 9;
    bad[5].o = NULL, bad[5].part = NULL, bad[5].accumulate = 1;
    for (int i = 0; i < 6; i++)
        assert_int_equal(rt->finish(&bad[i], NULL), HCP_RC_INVALID);
}

/* Value of a small float format by its definition. */
static double decode(uint32_t h, int mantissa_bits, int bias)
{
    int e = (int)(h >> mantissa_bits), top = mantissa_bits == 7 ? 255 : 31;
    double m = h & ((1u << mantissa_bits) - 1);
    if (e == top)
        return m > 0 ? NAN : INFINITY;
    return e ? ldexp(m + (1 << mantissa_bits), e - bias - mantissa_bits)
             : ldexp(m, 1 - bias - mantissa_bits);
}

/* Every half-width number, and the fp32 numbers just below, at and above the middle
 * of it and the next. */
static void half_width_types_are_exact(void **state)
{
    (void)state;
    for (int bf = 0; bf < 2; bf++) {
        uint32_t infinite = bf ? 0x7f80 : 0x7c00;
        for (uint32_t h = 0; h < 0x8000; h++) {
            double want = bf ? decode(h, 7, 127) : decode(h, 10, 15);
            float got =
                bf ? hcp_bf16_to_float((uint16_t)h) : hcp_fp16_to_float((uint16_t)h);
            uint16_t minus = (uint16_t)(h | 0x8000);
            if (h > infinite) {
                uint16_t back = bf ? hcp_float_to_bf16(got) : hcp_float_to_fp16(got);
                assert_true(isnan(got) && (back & 0x7fff) > infinite);
                continue;
            }
            assert_true(got == want);
            assert_int_equal(bf ? hcp_float_to_bf16(got) : hcp_float_to_fp16(got), h);
            assert_true((bf ? hcp_bf16_to_float(minus) : hcp_fp16_to_float(minus)) ==
                        -want);
            assert_int_equal(bf ? hcp_float_to_bf16(-got) : hcp_float_to_fp16(-got),
                             minus);
            if (h == infinite)
                continue;
            double up = h + 1 == infinite ? (bf ? 0x1p128 : 65536)
                        : bf              ? decode(h + 1, 7, 127)
                                          : decode(h + 1, 10, 15);
            float middle = (float)((want + up) / 2);
            const float near[] = {nextafterf(middle, 0), middle,
                                  nextafterf(middle, INFINITY)};
            const uint32_t rounds_to[] = {h, h + (h & 1), h + 1};
            for (int k = 0; k < 3; k++)
                assert_int_equal(bf ? hcp_float_to_bf16(near[k])
                                    : hcp_float_to_fp16(near[k]),
                                 rounds_to[k]);
        }
    }
    assert_int_equal(hcp_float_to_fp16(1e30f), 0x7c00);
    assert_int_equal(hcp_float_to_fp16(-1e-30f), 0x8000);
}

static void random_numbers_are_normal(void **state)
{
    (void)state;
    const hcp_runtime *rt = hcp_runtime_cpu();
    enum { COUNT = 200001 };
    static float x[COUNT], y[COUNT];
    static uint16_t half[COUNT];
    double sum = 0, square = 0, fourth = 0, neighbour = 0;
    assert_int_equal(rt->randn(x, COUNT, HCP_FP32, 42, 0, NULL), HCP_RC_OK);
    assert_int_equal(rt->randn(y, COUNT, HCP_FP32, 43, 0, NULL), HCP_RC_OK);
    assert_int_equal(rt->randn(half, COUNT, HCP_BF16, 42, 0, NULL), HCP_RC_OK);
    assert_int_equal(rt->randn(x, -1, HCP_FP32, 42, 0, NULL), HCP_RC_INVALID);
    assert_int_equal(rt->randn(x, 1, 9, 42, 0, NULL), HCP_RC_INVALID);
    for (int i = 0; i < COUNT; i++) {
        assert_true(x[i] == hcp_randn_at(42, (uint64_t)i));
        assert_true(half[i] == hcp_float_to_bf16(x[i]));
        sum += x[i];
        square += x[i] * x[i];
        fourth += pow(x[i], 4);
        neighbour += x[i] * x[i ? i - 1 : COUNT - 1] + x[i] * y[i];
    }
    /* a part of the sequence, from an odd element on; beyond 2^32 too */
    assert_int_equal(rt->randn(y, 1000, HCP_FP32, 42, 777, NULL), HCP_RC_OK);
    assert_memory_equal(y, x + 777, 1000 * sizeof *y);
    assert_int_equal(rt->randn(y, 3, HCP_FP32, 42, (UINT64_C(1) << 40) + 1, NULL),
                     HCP_RC_OK);
    assert_true(y[2] == hcp_randn_at(42, (UINT64_C(1) << 40) + 3));
    /* five standard errors each */
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(square / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourth / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    assert_true(fabs(neighbour / COUNT) < 5 * sqrt(2.0 / COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_states_within_bounds),
        cmocka_unit_test(order_changes_rounding_only),
        cmocka_unit_test(many_states_at_once),
        cmocka_unit_test(empty_states_are_not_read),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(partial_results_in_any_dtype),
        cmocka_unit_test(finish_normalises),
        cmocka_unit_test(finish_refuses),
        cmocka_unit_test(half_width_types_are_exact),
        cmocka_unit_test(random_numbers_are_normal),
    };
    make_states();
    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
