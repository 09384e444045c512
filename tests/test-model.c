/* SPDX-License-Identifier: Apache-2.0
 *
 * Models built from arrays in memory: promises of fit/model.h.
 */
#include <stdio.h>
#include <string.h>
#include "fit/model-rows.h"
#include "tests/model-check.h"

enum { MAX_ARRAYS = 12, MAX_VALUES = 4096 };
struct arrays {
    struct hcp_model_row row;
    struct hcp_named_array a[MAX_ARRAYS];
    size_t n, used;
    double store[MAX_VALUES];
};

static double *put(struct arrays *s, const char *name, size_t n)
{
    struct hcp_named_array *a = &s->a[s->n++];
    assert_true(s->n <= MAX_ARRAYS && s->used + n <= MAX_VALUES);
    snprintf(a->name, sizeof a->name, "%s", name);
    a->n = n;
    a->v = s->store + s->used;
    s->used += n;
    return a->v;
}

static struct hcp_named_array *get(struct arrays *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->a[i].name, name))
            return &s->a[i];
    return NULL;
}

static void drop(struct arrays *s, const char *name)
{
    struct hcp_named_array *a = get(s, name);
    assert_non_null(a);
    snprintf(a->name, sizeof a->name, "gone-%s", name);
}

static void head(struct arrays *s, const char *kind, int64_t tile_q, int64_t tile_kv,
                 int64_t ctas, int64_t sm, double rho, double lambda)
{
    memset(s, 0, sizeof *s);
    snprintf(s->row.kind, sizeof s->row.kind, "%s", kind);
    snprintf(s->row.key.device, sizeof s->row.key.device, "some-gpu");
    snprintf(s->row.key.limit, sizeof s->row.key.limit, "mps:50");
    s->row.format = HCP_MODEL_FORMAT;
    double *v = put(s, "shape", 7);
    double shape[7] = {
        (double)tile_q, (double)tile_kv, (double)ctas, (double)sm, rho, lambda, 0};
    memcpy(v, shape, sizeof shape);
    v = put(s, "error", 6);
    double error[6] = {0.1, 0.2, 0.3, 1e300, 0.02, 0.03};
    memcpy(v, error, sizeof error);
    put(s, "hull", 6);
}

static double area_ms(double q, double kv)
{
    return 1e-7 * q * kv + 2e-6 * q + 1e-6 * kv + 0.004;
}

static double square_ms(double s)
{
    return 0.5e-7 * s * s + 2.5e-6 * s + 0.004;
}

/* Powers of two from lo, nq x nkv rectangles and ns squares (0: none). */
static void table(struct arrays *s, int64_t tile_q, int64_t tile_kv, int64_t sm,
                  double rho, double lambda, int nq, int nkv, int ns, int64_t lo)
{
    head(s, "lut", tile_q, tile_kv, 32, sm, rho, lambda);
    double *hull = get(s, "hull")->v;
    if (nq) {
        double *q = put(s, "q", (size_t)nq), *kv = put(s, "kv", (size_t)nkv);
        double *ms = put(s, "ms", (size_t)(nq * nkv)),
               *known = put(s, "known", (size_t)(nq * nkv));
        double *hits = put(s, "hits", 2 * (size_t)(nq * nkv));
        for (int i = 0; i < nq; i++)
            q[i] = (double)(lo << i);
        for (int j = 0; j < nkv; j++)
            kv[j] = (double)(lo << j);
        for (int i = 0, c = 0; i < nq; i++)
            for (int j = 0; j < nkv; j++, c++) {
                ms[c] = area_ms(q[i], kv[j]);
                known[c] = 1;
                hits[2 * c] = q[i];
                hits[2 * c + 1] = kv[j];
            }
        hull[0] = hull[2] = (double)lo;
        hull[1] = q[nq - 1];
        hull[3] = kv[nkv - 1];
    }
    if (ns) {
        double *len = put(s, "s", (size_t)ns), *ms = put(s, "s_ms", (size_t)ns);
        double *hits = put(s, "s_hits", (size_t)ns);
        for (int i = 0; i < ns; i++) {
            hits[i] = len[i] = (double)(lo << i);
            ms[i] = square_ms(len[i]);
        }
        hull[4] = (double)lo;
        hull[5] = len[ns - 1];
    }
}

static void regression(struct arrays *s, int64_t sm, double lambda)
{
    static const double full[HCP_FULL_TERMS] = {0.004, 1e-7, 2e-6, 1e-6,
                                                3e-8,  1e-6, 1e-7, 0};
    static const double square[HCP_SQUARE_TERMS] = {0.004, 0.5e-7, 2e-6, 1e-9, 0, 1e-8};
    head(s, "poly", 128, 64, 32, sm, 0.6, lambda);
    memcpy(put(s, "full", HCP_FULL_TERMS), full, sizeof full);
    memcpy(put(s, "square", HCP_SQUARE_TERMS), square, sizeof square);
    double *hull = get(s, "hull")->v;
    hull[0] = hull[2] = hull[4] = 128;
    hull[1] = hull[3] = hull[5] = 65536;
}

static hcp_model *create(const struct arrays *s)
{
    hcp_model *m = NULL;
    struct hcp_err err = {0};
    if (hcp_model_create(&s->row, s->a, s->n, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static double at(const hcp_model *m, int causal, int64_t q, int64_t kv)
{
    return hcp_model_block_ms(m, causal, q, kv, NULL);
}

static hcp_model_source source(const hcp_model *m, int causal, int64_t q, int64_t kv)
{
    hcp_model_source s;
    assert_true(hcp_model_block_ms(m, causal, q, kv, &s) > 0);
    return s;
}

static void test_monotone(void **state)
{
    struct arrays s;
    long n = 100000 * check_scale();
    (void)state;
    static const struct {
        int64_t tile_q, tile_kv, sm;
        double rho, lambda;
        int nq, nkv, ns;
        int64_t lo;
    } shape[] = {
        {128, 64, 12, 0.62, 0.95, 10, 10, 10, 128},
        {128, 64, 132, 0.58, 0.9, 10, 10, 10, 128},
        {1, 1, 0, 0.5, 0, 10, 10, 10, 128},
        {96, 80, 100, 1.0, 0.5, 6, 4, 0, 960},
        {64, 64, 78, 0.5, 0.95, 0, 0, 8, 64},
        {1, 1, 0, 0.5, 0, 1, 5, 0, 1},
        {1, 64, 0, 0.5, 0, 5, 1, 3, 64},
        {128, 128, 108, 0.7, 0.75, 1, 1, 1, 4096},
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        table(&s, shape[i].tile_q, shape[i].tile_kv, shape[i].sm, shape[i].rho,
              shape[i].lambda, shape[i].nq, shape[i].nkv, shape[i].ns, shape[i].lo);
        for (int first = 0; first < 2; first++) {
            get(&s, "shape")->v[6] = first;
            hcp_model *m = create(&s);
            check_monotone(m, n, 17 * i + (unsigned)first);
            hcp_model_free(m);
        }
    }
    for (int i = 0; i < 2; i++) {
        regression(&s, i ? 132 : 0, i ? 0.95 : 0.0);
        hcp_model *m = create(&s);
        check_monotone(m, 2 * n, 1000u + (unsigned)i);
        hcp_model_free(m);
    }
}

/* Flat measured times leave only the least rise between nodes: rounding must not show. */
static void test_monotone_flat(void **state)
{
    struct arrays s;
    (void)state;
    for (int tile = 1; tile <= 128; tile += 127) {
        table(&s, tile, tile, 132, 0.62, 0.95, 10, 10, 10, 128);
        double *ms = get(&s, "ms")->v, *sq = get(&s, "s_ms")->v;
        for (int i = 0; i < 10; i++) {
            sq[i] = 0.7 * (1 + i * HCP_MIN_RISE);
            for (int j = 0; j < 10; j++)
                ms[10 * i + j] = 0.3 * (1 + (i + j) * HCP_MIN_RISE);
        }
        hcp_model *m = create(&s);
        check_monotone(m, 100000 * check_scale(), 5);
        for (int64_t q = 1; q < 70000; q++) {
            check_pair(m, 0, q, 777, q + 1, 777);
            check_pair(m, 0, 777, q, 777, q + 1);
            check_pair(m, 1, q, 5000, q + 1, 5000);
            check_pair(m, 1, 5000, q, 5000, q + 1);
        }
        hcp_model_free(m);
    }
}

static void test_exact_hits(void **state)
{
    struct arrays s;
    (void)state;
    table(&s, 128, 64, 66, 0.62, 0.95, 10, 10, 10, 128);
    hcp_model *m = create(&s);
    for (int i = 0; i < 10; i++) {
        int64_t q = 128 << i;
        assert_true(at(m, 1, q, q) == square_ms((double)q));
        assert_int_equal(source(m, 1, q, q), HCP_SOURCE_MEASURED);
        for (int j = 0; j < 10; j++) {
            int64_t kv = 128 << j;
            assert_true(at(m, 0, q, kv) == area_ms((double)q, (double)kv));
            assert_int_equal(source(m, 0, q, kv), HCP_SOURCE_MEASURED);
            /* the whole tile costs the same, but was not measured */
            assert_true(at(m, 0, q - 127, kv - 63) == at(m, 0, q, kv));
            assert_int_equal(source(m, 0, q - 1, kv), HCP_SOURCE_INTERPOLATED);
        }
    }
    assert_int_equal(source(m, 0, 640, 640), HCP_SOURCE_INTERPOLATED);
    assert_int_equal(source(m, 1, 640, 640), HCP_SOURCE_INTERPOLATED);
    assert_int_equal(source(m, 1, 640, 6400), HCP_SOURCE_INTERPOLATED);
    assert_int_equal(source(m, 0, 65537, 640), HCP_SOURCE_EXTRAPOLATED);
    assert_int_equal(source(m, 0, 640, 64), HCP_SOURCE_EXTRAPOLATED);
    assert_int_equal(source(m, 1, 65700, 65700), HCP_SOURCE_EXTRAPOLATED);
    assert_int_equal(hcp_model_tile_q(m), 128);
    assert_int_equal(hcp_model_tile_kv(m), 64);
    int64_t h[4];
    hcp_model_hull(m, 0, &h[0], &h[1], &h[2], &h[3]);
    assert_true(h[0] == 128 && h[1] == 65536 && h[2] == 128 && h[3] == 65536);
    hcp_model_free(m);
}

/* Without waves a table of a bilinear function is that function, inside and beyond. */
static void test_linear(void **state)
{
    struct arrays s;
    uint64_t seed = 3;
    (void)state;
    table(&s, 1, 1, 0, 0.5, 0, 10, 10, 10, 128);
    hcp_model *m = create(&s);
    for (int i = 0; i < 100000; i++) {
        int64_t q = 128 + (int64_t)(check_random(&seed) % 130000);
        int64_t kv = 128 + (int64_t)(check_random(&seed) % 130000);
        double want = area_ms((double)q, (double)kv), t = at(m, 0, q, kv);
        assert_true(fabs(t / want - 1) < 1e-9);
    }
    /* far outside it follows the area, below it keeps the fixed cost */
    assert_true(fabs(at(m, 0, 1 << 20, 1 << 20) / area_ms(0x1p20, 0x1p20) - 1) < 0.02);
    assert_true(fabs(at(m, 0, 1, 1) / area_ms(1, 1) - 1) < 0.05);
    assert_true(fabs(at(m, 1, 1 << 18, 1 << 18) / square_ms(0x1p18) - 1) < 0.02);
    for (int64_t len = 200; len < 65536; len = len * 3 / 2)
        assert_true(fabs(at(m, 1, len, len) / square_ms((double)len) - 1) < 0.02);
    hcp_model_free(m);
}

/* A step of the staircase: lone thread blocks, pairs, and the first wave. */
static void test_waves(void **state)
{
    struct arrays s;
    (void)state;
    table(&s, 128, 64, 64, 0.6, 0.95, 10, 10, 0, 128); /* 32 blocks a tile, 64 SMs */
    for (int first = 0; first < 2; first++) {
        get(&s, "shape")->v[6] = first;
        hcp_model *m = create(&s);
        const int64_t kv = 4096;
        /* tiles 5..8 are waves 3, 3, 4, 4 */
        double t[9];
        for (int i = 1; i <= 8; i++)
            t[i] = at(m, 0, 128 * i, kv);
        assert_true(t[6] - t[5] < 0.1 * (t[7] - t[6]));
        assert_true(t[8] - t[7] < 0.1 * (t[7] - t[6]));
        /* wave 3 runs alone: it costs more than the fourth, which joins it */
        assert_true(t[5] - t[4] > 1.2 * (t[7] - t[6]));
        hcp_model_free(m);
    }
}

/* Times that stand still at the edge do not stand still for ever beyond it. */
static void test_flat_edge(void **state)
{
    struct arrays s;
    (void)state;
    table(&s, 128, 64, 0, 0.5, 0, 2, 2, 2, 1024);
    double *ms = get(&s, "ms")->v, *sq = get(&s, "s_ms")->v;
    for (int i = 0; i < 2; i++) {
        sq[i] = 1.0 + i * 1e-6;
        for (int j = 0; j < 2; j++)
            ms[2 * i + j] = 1.0 + (i + j) * 1e-6;
    }
    hcp_model *m = create(&s);
    assert_true(at(m, 0, 1 << 17, 2048) > 10 && at(m, 0, 1 << 17, 2048) < 70);
    assert_true(at(m, 0, 2048, 1 << 17) > 10 && at(m, 0, 2048, 1 << 17) < 70);
    assert_true(at(m, 1, 1 << 17, 1 << 17) > 500 && at(m, 1, 1 << 17, 1 << 17) < 5000);
    hcp_model_free(m);
    /* nor do two cells that noise drove apart run away */
    for (int c = 1; c < 4; c++)
        ms[c] = 10.0 + c;
    m = create(&s);
    assert_true(at(m, 0, 1 << 17, 2048) < 1.2 * 64 * ms[3]);
    hcp_model_free(m);
}

static void test_causal_rectangles(void **state)
{
    struct arrays s;
    (void)state;
    for (int poly = 0; poly < 2; poly++) {
        if (poly)
            regression(&s, 0, 0);
        else
            table(&s, 128, 64, 0, 0.5, 0, 10, 10, 10, 128);
        hcp_model *m = create(&s);
        for (int64_t q = 128; q <= 65536; q *= 2)
            for (int64_t kv = q / 4 + 1; kv <= 4 * q && kv <= 65536; kv += q / 4) {
                double t = at(m, 1, q, kv);
                if (kv <= q) {
                    assert_true(t == at(m, 1, kv, kv));
                    continue;
                }
                assert_true(t >= at(m, 1, q, q) && t <= at(m, 1, kv, kv));
                assert_true(t < at(m, 0, q, kv) * 1.001);
                /* time is linear in the keys: 2 f(1 tile) - f(2 tiles) is f(0) */
                double none = 2 * at(m, 0, q, 64) - at(m, 0, q, 128);
                double want = at(m, 1, q, q) + at(m, 0, q, kv - q) - none;
                if (fabs(t / want - 1) > 0.03)
                    fail_msg("%lld x %lld: %g, want %g", (long long)q, (long long)kv, t,
                             want);
            }
        hcp_model_free(m);
    }
}

static void test_one_mask_only(void **state)
{
    struct arrays s;
    (void)state;
    table(&s, 128, 64, 0, 0.5, 0, 0, 0, 10, 128);
    hcp_model *m = create(&s);
    double full = at(m, 0, 4096, 4096), square = at(m, 1, 4096, 4096);
    assert_true(full > 1.5 * square && full < 2.5 * square);
    assert_int_equal(source(m, 0, 4096, 4096), HCP_SOURCE_EXTRAPOLATED);
    assert_int_equal(source(m, 1, 4096, 4096), HCP_SOURCE_MEASURED);
    hcp_model_free(m);
    table(&s, 128, 64, 0, 0.5, 0, 10, 10, 0, 128);
    m = create(&s);
    full = at(m, 0, 4096, 4096);
    square = at(m, 1, 4096, 4096);
    assert_true(full > 1.5 * square && full < 2.5 * square);
    assert_int_equal(source(m, 1, 4096, 4096), HCP_SOURCE_EXTRAPOLATED);
    hcp_model_free(m);
}

static void test_unmeasured_corner(void **state)
{
    struct arrays s;
    (void)state;
    table(&s, 128, 64, 0, 0.5, 0, 4, 4, 0, 128);
    double *known = get(&s, "known")->v;
    known[15] = known[14] = known[11] = 0; /* the long ones were not reached */
    known[5] = 0;                          /* a hole */
    hcp_model *m = create(&s);
    assert_int_equal(source(m, 0, 1024, 1024), HCP_SOURCE_EXTRAPOLATED);
    assert_int_equal(source(m, 0, 1024, 256), HCP_SOURCE_MEASURED);
    assert_int_equal(source(m, 0, 256, 256), HCP_SOURCE_INTERPOLATED);
    assert_int_equal(source(m, 0, 200, 200), HCP_SOURCE_INTERPOLATED);
    double lo, hi, lo2, hi2;
    hcp_model_error(m, 0, 128, 1024, &lo, &hi);
    hcp_model_error(m, 0, 256, 256, &lo2, &hi2);
    assert_true(lo2 > lo && hi2 > hi);
    hcp_model_free(m);
}

static void test_empty_and_huge(void **state)
{
    struct arrays s;
    (void)state;
    table(&s, 128, 64, 12, 0.62, 0.95, 10, 10, 10, 128);
    hcp_model *m = create(&s);
    for (int causal = 0; causal < 2; causal++) {
        assert_true(at(m, causal, 0, 4096) == 0.0);
        assert_true(at(m, causal, 4096, 0) == 0.0);
        assert_true(at(m, causal, -1, 4096) == 0.0);
        assert_true(at(m, causal, INT64_MAX, INT64_MAX) ==
                    at(m, causal, 1 << 30, 1 << 30));
        assert_true(at(m, causal, 1 << 30, 1 << 30) >
                    at(m, causal, 1 << 29, 1 << 30) * causal);
    }
    hcp_model_free(m);
    hcp_model_free(NULL);
}

static void test_error_bars(void **state)
{
    struct arrays s;
    double lo, hi, far_lo, far_hi;
    (void)state;
    table(&s, 128, 64, 12, 0.62, 0.95, 10, 10, 10, 128);
    hcp_model *m = create(&s);
    hcp_model_error(m, 0, 4096, 4096, &lo, &hi);
    assert_true(lo == 0.02 && hi == 0.03);
    hcp_model_error(m, 0, 128, 128, &lo, &hi);
    assert_true(lo == 0.2 && hi == 0.3);
    hcp_model_error(m, 0, 131072, 4096, &lo, &hi);
    hcp_model_error(m, 0, 1 << 22, 4096, &far_lo, &far_hi);
    assert_true(lo > 0.04 && far_lo > lo && far_hi > hi && far_lo <= 0.9);
    hcp_model_error(m, 1, 100, 0, &lo, &hi);
    assert_true(lo == 0 && hi == 0);
    hcp_model_free(m);
}

static void refused(struct arrays *s, const char *what)
{
    hcp_model *m = (hcp_model *)s;
    struct hcp_err err = {0};
    if (hcp_model_create(&s->row, s->a, s->n, &m, &err) != HCP_FAILED)
        fail_msg("accepted: %s", what);
    assert_null(m);
    assert_non_null(strstr(err.text, "hcp-plan fit"));
    assert_null(strchr(err.text, '\n'));
}

static void test_damaged(void **state)
{
    static const struct {
        const char *array;
        int index; /* -1: the array is missing, -2: one value short */
        double value;
    } damage[] = {
        {"shape", -1, 0},      {"shape", -2, 0},  {"shape", 0, 0},     {"shape", 0, 1.5},
        {"shape", 1, -64},     {"shape", 2, NAN}, {"shape", 3, 1e300}, {"shape", 4, 0.4},
        {"shape", 4, NAN},     {"shape", 5, 1},   {"shape", 6, 0.5},   {"hull", -1, 0},
        {"hull", -2, 0},       {"hull", 0, -1},   {"hull", 1, 3},      {"hull", 4, 0},
        {"hull", 3, INFINITY}, {"error", -1, 0},  {"error", -2, 0},    {"error", 0, NAN},
        {"error", 1, 1.0},     {"error", 2, -1},  {"q", -1, 0},        {"q", -2, 0},
        {"q", 3, 128},         {"q", 3, 130.5},   {"kv", 0, 0},        {"kv", 9, 0x1p31},
        {"ms", -1, 0},         {"ms", -2, 0},     {"ms", 0, 0},        {"ms", 50, NAN},
        {"ms", 50, INFINITY},  {"ms", 50, 1e-9},  {"ms", 50, 1e9},     {"known", -1, 0},
        {"hits", -2, 0},       {"hits", 3, -5},   {"s", -1, 0},        {"s", 2, 1e9},
        {"s_ms", -1, 0},       {"s_ms", 4, -1},   {"s_ms", 9, 1e-3},   {"s_hits", 0, NAN},
    };
    struct arrays s;
    (void)state;
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char what[64];
        table(&s, 128, 64, 12, 0.62, 0.95, 10, 10, 10, 128);
        if (damage[i].index == -1)
            drop(&s, damage[i].array);
        else if (damage[i].index == -2)
            get(&s, damage[i].array)->n--;
        else
            get(&s, damage[i].array)->v[damage[i].index] = damage[i].value;
        snprintf(what, sizeof what, "%s[%d] = %g", damage[i].array, damage[i].index,
                 damage[i].value);
        refused(&s, what);
    }
    regression(&s, 12, 0.9);
    get(&s, "full")->v[1] = -1e-9;
    refused(&s, "negative coefficient");
    regression(&s, 12, 0.9);
    memset(get(&s, "square")->v, 0, HCP_SQUARE_TERMS * sizeof(double));
    refused(&s, "no coefficient");
    regression(&s, 12, 0.9);
    drop(&s, "full");
    drop(&s, "square");
    refused(&s, "neither mask");
    regression(&s, 12, 0.9);
    s.row.format = HCP_MODEL_FORMAT + 1;
    refused(&s, "newer format");
    regression(&s, 12, 0.9);
    snprintf(s.row.kind, sizeof s.row.kind, "spline");
    refused(&s, "unknown kind");
    s.n = 0;
    refused(&s, "no arrays");
}

/* Whatever a value is replaced by, the model is refused or keeps its promises. */
static void test_random_damage(void **state)
{
    static const double odd[] = {0,        -1,        1,      0.5,  1e-300, 1e300, NAN,
                                 INFINITY, -INFINITY, 0x1p30, 1e-7, 128,    3};
    uint64_t seed = 99;
    int kept = 0, gone = 0;
    struct arrays s;
    (void)state;
    for (int i = 0; i < 4000 * check_scale(); i++) {
        if (i % 4 == 3)
            regression(&s, 132, 0.95);
        else
            table(&s, i & 1 ? 128 : 1, 64, 66, 0.62, 0.95, 6, 5, 4, 128);
        for (int k = 0; k < 2; k++) {
            struct hcp_named_array *a = &s.a[check_random(&seed) % s.n];
            a->v[check_random(&seed) % a->n] = odd[check_random(&seed) % 13];
        }
        hcp_model *m;
        struct hcp_err err = {0};
        if (hcp_model_create(&s.row, s.a, s.n, &m, &err)) {
            assert_int_equal(err.code, HCP_FAILED);
            gone++;
            continue;
        }
        check_monotone(m, 200, (uint64_t)i);
        hcp_model_free(m);
        kept++;
    }
    assert_true(kept > 0 && gone > kept / 10);
}

/* Rows and keys looked up apart give the bits of the calls, also with another model's
 * keys where these are the same; sources come without times. */
static void test_rows(void **state)
{
    static struct arrays s;
    (void)state;
    for (int waves = 0; waves < 2; waves++) {
        table(&s, 128, 64, waves ? 66 : 0, 0.62, waves ? 0.95 : 0, 10, 10, 10, 128);
        hcp_model *m = create(&s), *same = create(&s);
        assert_true(hcp_model_has_rows(m));
        assert_true(hcp_model_same_keys(m, same));
        m->finish[0][0] = 0.25;
        m->finish[0][1] = 1e-6;
        m->finish[1][0] = 0.125;
        m->finish[1][1] = 3e-6;
        uint64_t x = 1;
        for (int i = 0; i < 20000; i++) {
            x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            int64_t q = 1 + (int64_t)(x >> 40) % (i % 2 ? 300 : 100000);
            int64_t kv = 1 + (int64_t)(x >> 20 & 0xfffff) % (i % 3 ? 100000 : 300);
            struct hcp_model_row_at row = hcp_model_row_at(m, q, 1);
            struct hcp_model_keys_at keys = hcp_model_keys_at(same, kv);
            double ms;
            hcp_model_calls_ms(m, q, 1, &kv, 1, &ms);
            assert_true(hcp_model_call_at(&row, &keys) == ms);
            row = hcp_model_row_at(m, q, 0);
            assert_true(hcp_model_call_at(&row, &keys) ==
                        hcp_model_block_ms(m, 0, q, kv, NULL));
            row = hcp_model_row_of_none();
            assert_true(hcp_model_call_at(&row, &keys) == 0);
            assert_true(hcp_model_own_ms(m, q, 1) ==
                        hcp_model_block_ms(m, 1, q, q, NULL) +
                            hcp_model_finish_ms(m, 0, q));
            for (int causal = 0; causal < 2; causal++) {
                assert_int_equal(hcp_model_block_source(m, causal, q, kv),
                                 source(m, causal, q, kv));
            }
        }
        same->kv.tile[1]++;
        assert_false(hcp_model_same_keys(m, same));
        hcp_model_free(m);
        hcp_model_free(same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_monotone_flat),
        cmocka_unit_test(test_exact_hits),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_flat_edge),
        cmocka_unit_test(test_causal_rectangles),
        cmocka_unit_test(test_one_mask_only),
        cmocka_unit_test(test_unmeasured_corner),
        cmocka_unit_test(test_empty_and_huge),
        cmocka_unit_test(test_error_bars),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
