/* SPDX-License-Identifier: Apache-2.0
 *
 * The times of a measured device, scaled to another one by what their data sheets say.
 *
 * A block's roofline time on a device is the sum of two: its arithmetic at peak FLOP/s,
 * in waves of query tiles over the SMs, as the model counts waves, and the bytes of Q, K,
 * V and O once over the memory. What a measured time is above the roofline is how the
 * kernel uses the device, and is taken to be the same on the other one:
 *
 *     t' = f + (t - f) roofline'(q, kv) / roofline(q, kv)
 *
 * f is the fixed cost (launch, first and last tile): what the smallest measured block
 * takes beyond its roofline time at the use of the largest. Few queries do not fill the
 * SMs: then both rooflines have the same waves, and it is the speed of one SM that
 * counts. Decode splits keys over all SMs, and is not rounded up to tiles. Only + - * /
 * decide.
 */
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "fit/model-internal.h"
#include "planner/hash.h"
#include "planner/specs.h"

/* ---- what a device has ---- */

/* MPS on an H200 (132 SMs): 10, 20 ... 90 % were 12, 26, 38, 52, 66, 78, 92, 104, 118. */
int32_t estimate_mps_sms(int32_t sms, int32_t percent)
{
    int32_t pairs = (int32_t)((int64_t)sms * percent / 200);

    if (percent >= 100)
        return sms;
    return 2 * pairs < 2 ? (sms < 2 ? sms : 2) : 2 * pairs;
}

/* Copies on the recorded H200 at those ten levels (db/profiles/nvidia-h200-sdpa.csv),
 * between them straight. */
double estimate_bandwidth_part(double part)
{
    static const double at[][2] = {{0, 0},
                                   {12 / 132., 926.4 / 4179.2},
                                   {26 / 132., 1839.3 / 4179.2},
                                   {38 / 132., 2520.5 / 4179.2},
                                   {52 / 132., 3173.9 / 4179.2},
                                   {66 / 132., 3586.0 / 4179.2},
                                   {78 / 132., 3711.8 / 4179.2},
                                   {92 / 132., 3832.6 / 4179.2},
                                   {104 / 132., 3948.7 / 4179.2},
                                   {118 / 132., 4103.0 / 4179.2},
                                   {1, 1}};
    int i = 1;

    if (part >= 1)
        return 1;
    while (part > at[i][0])
        i++;
    return at[i - 1][1] +
           (at[i][1] - at[i - 1][1]) * (part - at[i - 1][0]) / (at[i][0] - at[i - 1][0]);
}

static double peak(const hcp_spec *spec, const char *dtype)
{
    return strcmp(dtype, "bf16") == 0   ? spec->bf16_tflops
           : strcmp(dtype, "fp16") == 0 ? spec->fp16_tflops
                                        : spec->fp32_tflops;
}

int estimate_resources(const hcp_spec *spec, const char *limit, int32_t seen,
                       const char *dtype, struct resources *out)
{
    char kind[8] = "";
    int32_t value = 0, sms = spec->sms;

    if (limit[0] && hcp_parse_limit(limit, kind, &value, NULL) != HCP_OK)
        return -1;
    if (strcmp(kind, "mps") == 0)
        sms = estimate_mps_sms(spec->sms, value);
    else if (strcmp(kind, "green") == 0)
        sms = value;
    else if (kind[0])
        return -1;
    if (seen > 0)
        sms = seen;
    if (sms > spec->sms || peak(spec, dtype) == 0)
        return -1;
    out->sms = sms;
    out->part = (double)sms / spec->sms;
    out->flops = peak(spec, dtype) * 1e9 * out->part;
    out->bytes = spec->memory_gbps * 1e6 * estimate_bandwidth_part(out->part);
    return 0;
}

/* ---- rooflines ---- */

struct roofline {
    const struct hcp_key *key;
    struct resources have;
    int64_t tile_q;
    int waves, decode;
    struct hcp_wave_axis axis;
};

static void roofline_init(struct roofline *r, const struct hcp_key *key,
                          const double *shape, const struct resources *have)
{
    struct hcp_waves waves = {(int64_t)shape[2], have->sms, shape[4], shape[5], shape[6]};

    r->key = key;
    r->have = *have;
    r->tile_q = (int64_t)shape[0];
    r->decode = strcmp(key->phase, "decode") == 0;
    r->waves = !r->decode && shape[2] > 0 && shape[3] > 0;
    hcp_wave_axis_init(&r->axis, &waves);
}

/* q queries that see so many keys each on average, and read kv of them, in ms. */
static double roofline_ms(const struct roofline *r, double q, double keys, double kv)
{
    const struct hcp_key *key = r->key;
    double rows = (double)key->heads * key->batch, element, flops, bytes;

    element = strcmp(key->dtype, "fp32") == 0 ? 4 : 2;
    flops = 4.0 * key->head_dim * keys;
    if (r->waves) {
        int64_t tiles = ((int64_t)q + r->tile_q - 1) / r->tile_q;

        flops *= (double)r->tile_q * hcp_wave_position(&r->axis, tiles) * r->have.sms;
    } else {
        flops *= q * rows;
    }
    bytes = 2.0 * element * key->head_dim *
            (rows * q + (double)key->kv_heads * key->batch * kv);
    return flops / r->have.flops + bytes / r->have.bytes;
}

static double full_ms(const struct roofline *r, double q, double kv)
{
    return roofline_ms(r, q, kv, kv);
}

/* A causal square: half of the keys, the diagonal's tiles in full. */
static double square_ms(const struct roofline *r, double s)
{
    return roofline_ms(r, s, (s + (double)r->tile_q) / 2, s);
}

/* What does not scale, by the smallest block (first) and the largest (last). */
static double fixed_part(double first_ms, double first_roof, double last_ms,
                         double last_roof)
{
    double f = first_ms - first_roof * (last_ms / last_roof);

    return f > 0 ? f : 0;
}

/* ---- arrays ---- */

/* A copy of a model's arrays, without what only measured ones have. */
struct scaled {
    struct hcp_named_array array[16];
    size_t n;
};

static double *find(struct scaled *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->array[i].name, name) == 0)
            return n == 0 || s->array[i].n == n ? s->array[i].v : NULL;
    return NULL;
}

static size_t count(const struct scaled *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->array[i].name, name) == 0)
            return s->array[i].n;
    return 0;
}

static void scaled_free(struct scaled *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->array[i].v);
}

static int copy(struct scaled *s, const struct hcp_named_array *arrays, size_t n)
{
    s->n = 0;
    for (size_t i = 0; i < n && s->n < sizeof s->array / sizeof *s->array; i++) {
        struct hcp_named_array *to = &s->array[s->n];

        if (strcmp(arrays[i].name, "hits") == 0 || strcmp(arrays[i].name, "s_hits") == 0)
            continue;
        *to = arrays[i];
        to->v = malloc((to->n + 1) * sizeof *to->v);
        if (!to->v) {
            scaled_free(s);
            return -1;
        }
        memcpy(to->v, arrays[i].v, to->n * sizeof *to->v);
        s->n++;
    }
    return 0;
}

static double rise(double v, double below)
{
    double least = below * (1.0 + HCP_MIN_RISE);

    return v < least ? least : v;
}

static void scale_grid(struct scaled *s, const struct roofline *kin,
                       const struct roofline *target)
{
    size_t nq = count(s, "q"), nkv = count(s, "kv");
    double *q = find(s, "q", 0), *kv = find(s, "kv", 0), *ms = find(s, "ms", nq * nkv);
    double f;

    if (!q || !kv || !ms || nq == 0 || nkv == 0)
        return;
    f = fixed_part(ms[0], full_ms(kin, q[0], kv[0]), ms[nq * nkv - 1],
                   full_ms(kin, q[nq - 1], kv[nkv - 1]));
    for (size_t i = 0; i < nq; i++)
        for (size_t j = 0; j < nkv; j++) {
            double *t = &ms[i * nkv + j];

            *t =
                f + (*t - f) * (full_ms(target, q[i], kv[j]) / full_ms(kin, q[i], kv[j]));
            if (i > 0)
                *t = rise(*t, t[-(ptrdiff_t)nkv]);
            if (j > 0)
                *t = rise(*t, t[-1]);
        }
}

static void scale_squares(struct scaled *s, const struct roofline *kin,
                          const struct roofline *target)
{
    size_t n = count(s, "s");
    double *len = find(s, "s", 0), *ms = find(s, "s_ms", n), f;

    if (!len || !ms || n == 0)
        return;
    f = fixed_part(ms[0], square_ms(kin, len[0]), ms[n - 1], square_ms(kin, len[n - 1]));
    for (size_t i = 0; i < n; i++) {
        ms[i] = f + (ms[i] - f) * (square_ms(target, len[i]) / square_ms(kin, len[i]));
        if (i > 0)
            ms[i] = rise(ms[i], ms[i - 1]);
    }
}

/* Terms of a regression: area by FLOP/s, queries and keys by bandwidth, waves by SMs
 * (each takes as long as before), the constant as it is. In decode there is one query, so
 * that area and keys are one: all by the roofline at the longest keys. */
static void scale_terms(struct scaled *s, const struct roofline *kin,
                        const struct roofline *target)
{
    double area = kin->have.flops / target->have.flops;
    double memory = kin->have.bytes / target->have.bytes;
    double waves = (double)kin->have.sms / target->have.sms;
    double *full = find(s, "full", HCP_FULL_TERMS), *hull = find(s, "hull", 6);
    double *square = find(s, "square", HCP_SQUARE_TERMS);

    if (!kin->waves)
        waves = 1;
    if (kin->decode && hull && hull[3] > 0)
        area = memory = waves = full_ms(target, 1, hull[3]) / full_ms(kin, 1, hull[3]);
    if (full) { /* 1, x y, x, y, w y, w, sqrt(x) y, x sqrt(y) */
        double by[HCP_FULL_TERMS] = {1, area, memory, memory, area, waves, area, area};

        for (int i = 0; i < HCP_FULL_TERMS; i++)
            full[i] *= by[i];
    }
    if (square) { /* 1, s^2, s, w s, w, s sqrt(s) */
        double by[HCP_SQUARE_TERMS] = {1, area, memory, area, waves, area};

        for (int i = 0; i < HCP_SQUARE_TERMS; i++)
            square[i] *= by[i];
    }
}

/* Finish passes read and write memory. */
static void scale_finish(struct scaled *s, const struct roofline *kin,
                         const struct roofline *target)
{
    double *finish = find(s, "finish", 4);

    for (int i = 1; finish && i < 4; i += 2)
        finish[i] *= kin->have.bytes / target->have.bytes;
}

static void widen(struct scaled *s, double factor)
{
    double *error = find(s, "error", 0);

    for (size_t i = 0; error && i + 2 < count(s, "error"); i += 3) {
        double lo = 1 - (1 - error[i + 1]) / factor;
        double hi = (1 + error[i + 2]) * factor - 1;

        error[i + 1] = lo;
        error[i + 2] = hi < 99 ? hi : 99;
    }
}

static uint64_t hash_of(const struct scaled *s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < s->n; i++) {
        hash_text(&h, s->array[i].name, sizeof s->array[i].name);
        hash_u64(&h, s->array[i].n);
        for (size_t k = 0; k < s->array[i].n; k++)
            hash_double(&h, s->array[i].v[k]);
    }
    return h;
}

int estimate_scale(const struct hcp_model_row *row, const struct hcp_named_array *arrays,
                   size_t n, const struct resources *kin, const struct resources *target,
                   double factor, hcp_model **out, uint64_t *hash, struct hcp_err *err)
{
    struct roofline from, to;
    struct scaled s;
    double *shape;
    int rc;

    if (copy(&s, arrays, n))
        return hcp_fail(err, HCP_FAILED, "out of memory");
    shape = find(&s, "shape", 7);
    if (!shape) {
        scaled_free(&s);
        return hcp_fail(err, HCP_FAILED, "the model has no shape; run 'hcp-plan fit'");
    }
    roofline_init(&from, &row->key, shape, kin);
    roofline_init(&to, &row->key, shape, target);
    if (shape[3] > 0)
        shape[3] = target->sms;
    scale_grid(&s, &from, &to);
    scale_squares(&s, &from, &to);
    scale_terms(&s, &from, &to);
    scale_finish(&s, &from, &to);
    widen(&s, factor);
    rc = hcp_model_create(row, s.array, s.n, out, err);
    if (rc == HCP_OK)
        *hash = hash_of(&s);
    scaled_free(&s);
    return rc;
}
