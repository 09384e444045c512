/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's life: arrays -> checked struct -> answers. A model is built once, refuses
 * arrays that could break the promises of model.h, and is read-only afterwards.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fit/model-internal.h"

/* What a stored time may be: nothing that is measured comes near either end. */
#define MS_MIN 1e-12
#define MS_MAX 1e15
#define REFIT "run 'hcp-plan fit' again"

static const struct hcp_named_array *find(const struct hcp_named_array *arrays, size_t n,
                                          const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(arrays[i].name, name) == 0)
            return &arrays[i];
    return NULL;
}

static int damaged(const struct hcp_model_row *row, const char *name, const char *what,
                   struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED,
                    "stored %s model of '%s@%s' is damaged: %s %s; " REFIT, row->kind,
                    row->key.device, row->key.limit, name, what);
}

/* A whole number in [lo, hi], or -1. */
static int64_t whole(double v, int64_t lo, int64_t hi)
{
    if (!(v >= (double)lo && v <= (double)hi))
        return -1;
    int64_t i = (int64_t)v;
    return (double)i == v ? i : -1;
}

static int log2_exact(int64_t tile)
{
    for (int s = 0; s < 31; s++)
        if (tile == (int64_t)1 << s)
            return s;
    return -1;
}

static int read_common(hcp_model *m, const struct hcp_named_array *arrays, size_t n,
                       struct hcp_err *err)
{
    const struct hcp_named_array *a = find(arrays, n, "shape");
    if (!a || a->n != 7)
        return damaged(&m->row, "shape", "is missing or short", err);
    m->tile_q = whole(a->v[0], 1, 1 << 20);
    m->tile_kv = whole(a->v[1], 1, 1 << 20);
    struct hcp_waves waves = {whole(a->v[2], 0, 1 << 20), whole(a->v[3], 0, 1 << 20),
                              a->v[4], a->v[5], a->v[6]};
    if (m->tile_q < 0 || m->tile_kv < 0 || waves.ctas < 0 || waves.sm < 0 ||
        !(waves.rho >= 0.5 && waves.rho <= 1.0) ||
        !(waves.lambda >= 0.0 && waves.lambda <= 0.99) ||
        !(waves.first == 0.0 || waves.first == 1.0))
        return damaged(&m->row, "shape", "has a value out of range", err);
    hcp_wave_axis_init(&m->waves, &waves);
    if (waves.sm > 0 && waves.ctas > 0 && waves.lambda > 0)
        m->wave_tokens = (double)waves.sm * (double)m->tile_q / (double)waves.ctas;
    m->shift_q = log2_exact(m->tile_q);
    m->shift_kv = log2_exact(m->tile_kv);
    m->last_q = hcp_tiles(HCP_MODEL_LEN_MAX, m->tile_q, m->shift_q);
    m->last_kv = hcp_tiles(HCP_MODEL_LEN_MAX, m->tile_kv, m->shift_kv);

    a = find(arrays, n, "hull");
    if (!a || a->n != 6)
        return damaged(&m->row, "hull", "is missing or short", err);
    for (int i = 0; i < 6; i++) {
        m->hull[i] = whole(a->v[i], 0, HCP_MODEL_LEN_MAX);
        if (m->hull[i] < 0 || (i % 2 && m->hull[i] < m->hull[i - 1]))
            return damaged(&m->row, "hull", "has a value out of range", err);
    }
    a = find(arrays, n, "error");
    if (!a || a->n == 0 || a->n % 3 || a->n > 3 * HCP_ERROR_ROWS_MAX)
        return damaged(&m->row, "error", "is missing or has a wrong size", err);
    m->n_error = (int)(a->n / 3);
    for (int i = 0; i < m->n_error; i++) {
        struct hcp_error_row *e = &m->error[i];
        *e = (struct hcp_error_row){a->v[3 * i], a->v[3 * i + 1], a->v[3 * i + 2]};
        if (!(e->upto_ms > 0) || !(e->lo >= 0 && e->lo < 1) ||
            !(e->hi >= 0 && e->hi < 100))
            return damaged(&m->row, "error", "has a value out of range", err);
    }
    a = find(arrays, n, "finish");
    if (a && a->n != 4)
        return damaged(&m->row, "finish", "has a wrong size", err);
    for (int i = 0; a && i < 4; i++) {
        m->finish[i / 2][i % 2] = a->v[i];
        if (!(a->v[i] >= 0 && a->v[i] <= MS_MAX))
            return damaged(&m->row, "finish", "has a value out of range", err);
    }
    return HCP_OK;
}

/* An axis of a table: ascending whole tokens that fall into different tiles. */
static int read_axis(const hcp_model *m, const struct hcp_named_array *a, int64_t tile,
                     int shift, int64_t *tiles, struct hcp_err *err)
{
    if (a->n == 0 || a->n > HCP_AXIS_MAX)
        return damaged(&m->row, a->name, "has a wrong size", err);
    for (size_t i = 0; i < a->n; i++) {
        int64_t len = whole(a->v[i], 1, HCP_MODEL_LEN_MAX);
        tiles[i] = len < 0 ? -1 : hcp_tiles(len, tile, shift);
        if (len < 0 || (i > 0 && tiles[i] <= tiles[i - 1]))
            return damaged(&m->row, a->name, "is not an ascending list of lengths", err);
    }
    return HCP_OK;
}

static int read_grid(hcp_model *m, const struct hcp_named_array *arrays, size_t n,
                     struct hcp_err *err)
{
    const struct hcp_named_array *q = find(arrays, n, "q"), *kv = find(arrays, n, "kv");
    const struct hcp_named_array *ms = find(arrays, n, "ms"),
                                 *known = find(arrays, n, "known");
    const struct hcp_named_array *hits = find(arrays, n, "hits");
    if (!q && !kv && !ms)
        return HCP_OK;
    if (!q || !kv || !ms || !known || ms->n != q->n * kv->n || known->n != ms->n)
        return damaged(&m->row, "grid", "is incomplete", err);
    int64_t tiles[HCP_AXIS_MAX];
    int code = read_axis(m, q, m->tile_q, m->shift_q, tiles, err);
    if (!code)
        code = hcp_axis_init(&m->q, tiles, (int)q->n, m->last_q, &m->waves, err);
    if (!code)
        code = read_axis(m, kv, m->tile_kv, m->shift_kv, tiles, err);
    if (!code)
        code = hcp_axis_init(&m->kv, tiles, (int)kv->n, m->last_kv, NULL, err);
    if (code)
        return code;

    size_t w = (size_t)m->kv.n, cells = (size_t)m->q.n * w;
    double *t = calloc(cells, sizeof *t);
    m->known = calloc(cells, 1);
    if (!t || !m->known) {
        free(t);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    for (size_t i = 0; i < q->n; i++)
        for (size_t j = 0; j < kv->n; j++) {
            size_t from = i * kv->n + j, to = (i + 1) * w + j + 1;
            double v = ms->v[from], rise = 1.0 + HCP_MIN_RISE / 2;
            t[to] = v;
            m->known[to] = known->v[from] > 0;
            if (!(v >= MS_MIN && v <= MS_MAX) || (i > 0 && !(v >= t[to - w] * rise)) ||
                (j > 0 && !(v >= t[to - 1] * rise))) {
                free(t);
                return damaged(&m->row, "ms", "does not rise along both axes", err);
            }
        }
    hcp_grid_extend(t, &m->q, &m->kv);
    code = hcp_grid_patches(t, &m->q, &m->kv, &m->patch, err);
    free(t);
    if (code)
        return code;

    /* bit 1: a measured cell at or above in both lengths; bit 2: at or below */
    for (size_t i = q->n; i >= 1; i--)
        for (size_t j = kv->n; j >= 1; j--) {
            uint8_t *k = m->known + i * w + j;
            if (*k & 1 || k[w] & 2 || k[1] & 2)
                *k |= 2;
        }
    for (size_t i = 1; i <= q->n; i++)
        for (size_t j = 1; j <= kv->n; j++) {
            uint8_t *k = m->known + i * w + j;
            if (*k & 1 || *(k - w) & 4 || *(k - 1) & 4)
                *k |= 4;
        }
    m->has_full = 1;
    if (!hits)
        return HCP_OK;
    if (hits->n % 2)
        return damaged(&m->row, "hits", "has a wrong size", err);
    m->n_hits = hits->n / 2;
    m->hits = calloc(m->n_hits + 1, sizeof *m->hits);
    if (!m->hits)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < hits->n; i++) {
        m->hits[i / 2][i % 2] = whole(hits->v[i], 1, HCP_MODEL_LEN_MAX);
        if (m->hits[i / 2][i % 2] < 0)
            return damaged(&m->row, "hits", "has a bad length", err);
    }
    return HCP_OK;
}

static int read_squares(hcp_model *m, const struct hcp_named_array *arrays, size_t n,
                        struct hcp_err *err)
{
    const struct hcp_named_array *s = find(arrays, n, "s"), *ms = find(arrays, n, "s_ms");
    const struct hcp_named_array *hits = find(arrays, n, "s_hits");
    if (!s && !ms)
        return HCP_OK;
    if (!s || !ms || ms->n != s->n)
        return damaged(&m->row, "s", "is incomplete", err);
    int64_t tiles[HCP_AXIS_MAX];
    int code = read_axis(m, s, m->tile_q, m->shift_q, tiles, err);
    if (!code)
        code = hcp_axis_init(&m->s, tiles, (int)s->n, m->last_q, NULL, err);
    if (code)
        return code;
    int k = (int)s->n;
    m->s_ms = calloc((size_t)k + 2, sizeof *m->s_ms);
    m->s_root = calloc((size_t)k + 2, sizeof *m->s_root);
    m->s_slope = calloc((size_t)k + 2, sizeof *m->s_slope);
    if (!m->s_ms || !m->s_root || !m->s_slope)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int i = 1; i <= k; i++) {
        double v = ms->v[i - 1];
        if (!(v >= MS_MIN && v <= MS_MAX) ||
            (i > 1 && !(v >= m->s_ms[i - 1] * (1.0 + HCP_MIN_RISE / 2))))
            return damaged(&m->row, "s_ms", "does not rise", err);
        m->s_ms[i] = v;
        m->s_root[i] = sqrt(v);
    }
    /* the same rules at the ends as for rectangles, on the root */
    const double *p = m->s.pos;
    double *r = m->s_root;
    r[0] = k >= 2 ? r[1] - (r[2] - r[1]) / (p[2] - p[1]) * p[1] : 0.2 * r[1];
    if (r[0] < 0.1 * r[1])
        r[0] = 0.1 * r[1];
    if (r[0] > r[1] * (1.0 - 1e-4))
        r[0] = r[1] * (1.0 - 1e-4);
    double share = r[k] / p[k],
           slope = k >= 2 ? (r[k] - r[k - 1]) / (p[k] - p[k - 1]) : share;
    if (slope < 0.5 * share)
        slope = 0.5 * share;
    if (slope > 1.05 * share)
        slope = 1.05 * share;
    m->s_ms[0] = r[0] * r[0];
    for (int i = 0; i < k; i++)
        m->s_slope[i] = (r[i + 1] - r[i]) / (p[i + 1] - p[i]);
    m->s_slope[k] = slope;
    m->has_square = 1;
    if (!hits)
        return HCP_OK;
    m->s_hits = calloc(hits->n + 1, sizeof *m->s_hits);
    if (!m->s_hits)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    m->n_s_hits = hits->n;
    for (size_t i = 0; i < hits->n; i++) {
        m->s_hits[i] = whole(hits->v[i], 1, HCP_MODEL_LEN_MAX);
        if (m->s_hits[i] < 0)
            return damaged(&m->row, "s_hits", "has a bad length", err);
    }
    return HCP_OK;
}

/* Coefficients: none negative, and something that grows or at least stands. */
static int read_coefficients(const hcp_model *m, const struct hcp_named_array *a,
                             size_t want, double *out, int *has, struct hcp_err *err)
{
    if (!a)
        return HCP_OK;
    double sum = 0.0;
    if (a->n != want)
        return damaged(&m->row, a->name, "has a wrong size", err);
    for (size_t i = 0; i < want; i++) {
        if (!(a->v[i] >= 0) || !isfinite(a->v[i]))
            return damaged(&m->row, a->name, "has a negative coefficient", err);
        sum += out[i] = a->v[i];
    }
    if (!(sum > 0))
        return damaged(&m->row, a->name, "is all zero", err);
    *has = 1;
    return HCP_OK;
}

int hcp_model_create(const struct hcp_model_row *row,
                     const struct hcp_named_array *arrays, size_t n_arrays,
                     hcp_model **out, struct hcp_err *err)
{
    *out = NULL;
    if (row->format != HCP_MODEL_FORMAT)
        return hcp_fail(
            err, HCP_FAILED,
            "stored %s model of '%s@%s' has format %d, this program reads %d; " REFIT
            " or upgrade",
            row->kind, row->key.device, row->key.limit, (int)row->format,
            (int)HCP_MODEL_FORMAT);
    int poly = strcmp(row->kind, "poly") == 0;
    if (!poly && strcmp(row->kind, "lut") != 0)
        return hcp_fail(err, HCP_FAILED,
                        "stored model of '%s@%s' has the unknown kind '%s'; " REFIT
                        " or upgrade",
                        row->key.device, row->key.limit, row->kind);
    hcp_model *m = calloc(1, sizeof *m);
    if (!m)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    m->row = *row;
    m->is_poly = poly;
    int code = read_common(m, arrays, n_arrays, err);
    if (!code && poly) {
        code = read_coefficients(m, find(arrays, n_arrays, "full"), HCP_FULL_TERMS,
                                 m->full, &m->has_full, err);
        if (!code)
            code = read_coefficients(m, find(arrays, n_arrays, "square"),
                                     HCP_SQUARE_TERMS, m->square, &m->has_square, err);
    } else if (!code) {
        code = read_grid(m, arrays, n_arrays, err);
        if (!code)
            code = read_squares(m, arrays, n_arrays, err);
    }
    if (!code && !m->has_full && !m->has_square)
        code = damaged(row, "model", "holds neither rectangles nor squares", err);
    if (!code &&
        ((m->has_full && (!m->hull[0] || !m->hull[2])) || (m->has_square && !m->hull[4])))
        code = damaged(row, "hull", "is empty", err);
    if (!code && poly && !(hcp_eval_full(m, m->last_q, m->last_kv) < 1e60))
        code = damaged(row, "full", "grows without bound", err);
    if (!code && poly && !(hcp_eval_square(m, HCP_MODEL_LEN_MAX) < 1e60))
        code = damaged(row, "square", "grows without bound", err);
    if (!code)
        code = hcp_causal_init(m, err);
    if (code) {
        hcp_model_free(m);
        return code;
    }
    *out = m;
    return HCP_OK;
}

void hcp_model_free(hcp_model *m)
{
    if (!m)
        return;
    hcp_axis_free(&m->q);
    hcp_axis_free(&m->kv);
    hcp_axis_free(&m->s);
    hcp_axis_free(&m->cq);
    hcp_axis_free(&m->ckv);
    free(m->patch);
    free(m->cpatch);
    free(m->known);
    free(m->hits);
    free(m->s_ms);
    free(m->s_root);
    free(m->s_slope);
    free(m->s_hits);
    free(m);
}

const struct hcp_model_row *hcp_model_row(const hcp_model *m)
{
    return &m->row;
}

double hcp_model_finish_ms(const hcp_model *m, int merge, int64_t q_len)
{
    const double *line = m->finish[merge != 0];
    if (m->is_blend && q_len > 0)
        return hcp_blend_finish_ms(m, merge, q_len);
    return q_len > 0 ? line[0] + line[1] * (double)q_len : 0.0;
}

int64_t hcp_model_tile_q(const hcp_model *m)
{
    return m->tile_q;
}

int64_t hcp_model_tile_kv(const hcp_model *m)
{
    return m->tile_kv;
}

void hcp_model_hull(const hcp_model *m, int causal, int64_t *q_min, int64_t *q_max,
                    int64_t *kv_min, int64_t *kv_max)
{
    const int64_t *h = causal ? m->hull + 4 : m->hull;
    int64_t both[4];
    if (m->is_blend) {
        hcp_blend_hull(m, causal, both);
        *q_min = both[0];
        *q_max = both[1];
        *kv_min = both[2];
        *kv_max = both[3];
        return;
    }
    *q_min = h[0];
    *q_max = h[1];
    *kv_min = causal ? h[0] : h[2];
    *kv_max = causal ? h[1] : h[3];
}
