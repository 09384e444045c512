/* SPDX-License-Identifier: Apache-2.0
 *
 * The evaluators: axes, bilinear patches, causal squares, regression terms. Nothing
 * here allocates after creation, and nothing but + - * / sqrt decides a bit.
 */
#include <math.h>
#include <stdlib.h>
#include "fit/model-internal.h"

void hcp_wave_axis_init(struct hcp_wave_axis *axis, const struct hcp_waves *waves)
{
    int known = waves->sm > 0 && waves->ctas > 0;
    axis->ctas = known ? waves->ctas : 1;
    axis->sm = known ? waves->sm : 1;
    axis->inv_sm = 1.0 / (double)axis->sm;
    axis->two_rho = known ? 2.0 * waves->rho : 1.0;
    axis->lambda = known ? waves->lambda : 0.0;
    axis->rest = 1.0 - axis->lambda;
    axis->rest_base = axis->two_rho - 1.0;
    double step = known && waves->first > 0 ? axis->lambda : 0.0;
    axis->first_base = axis->two_rho * step;
    axis->first_slope = axis->two_rho * (1.0 - step);
}

int hcp_axis_init(struct hcp_axis *axis, const int64_t *tiles, int n, int64_t last,
                  const struct hcp_wave_axis *waves, struct hcp_err *err)
{
    axis->n = n + 2;
    axis->tile = calloc((size_t)axis->n, sizeof *axis->tile);
    axis->pos = calloc((size_t)axis->n, sizeof *axis->pos);
    if (!axis->tile || !axis->pos)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int i = 0; i < n; i++)
        axis->tile[i + 1] = tiles[i];
    axis->tile[n + 1] = last + 1; /* no index reaches it: the search ends before it */
    for (int i = 1; i < axis->n; i++)
        axis->pos[i] =
            waves ? hcp_wave_position(waves, axis->tile[i]) : (double)axis->tile[i];
    int s = 0;
    for (int b = 0; b < HCP_BUCKETS; b++) {
        int e = b / 4;
        int64_t top = 4 + b % 4; /* smallest index of the bucket: top * 2^(e-2) */
        int64_t low = e >= 2 ? top << (e - 2) : top >> (2 - e);
        while (s < n && axis->tile[s + 1] <= low)
            s++;
        axis->start[b] = (uint8_t)s;
    }
    return HCP_OK;
}

void hcp_axis_free(struct hcp_axis *axis)
{
    free(axis->tile);
    free(axis->pos);
}

/* Value at a virtual node below (p = 0) the first measured one of a line. */
static double below(double p1, double v1, double p2, double v2, int n)
{
    double v = n >= 2 ? v1 - (v2 - v1) / (p2 - p1) * p1 : 0.05 * v1;
    if (v < 0.02 * v1)
        v = 0.02 * v1;
    /* room for the least rises of the other nodes of the virtual line */
    if (v > v1 * (1.0 - 1e-4))
        v = v1 * (1.0 - 1e-4);
    return v;
}

/* Value at the virtual node above: the slope of the edge, held between a quarter of
 * and a tenth above the proportional one so that noise in the last two cells or a
 * flat first wave cannot run away. */
static double above(double p1, double v1, double p2, double v2, double p3, int n)
{
    double share = v2 / p2, slope = n >= 2 ? (v2 - v1) / (p2 - p1) : share;
    if (slope < 0.25 * share)
        slope = 0.25 * share;
    if (slope > 1.1 * share)
        slope = 1.1 * share;
    return v2 + slope * (p3 - p2);
}

void hcp_grid_extend(double *t, const struct hcp_axis *q, const struct hcp_axis *kv)
{
    int nq = q->n - 2, nkv = kv->n - 2;
    size_t w = (size_t)kv->n;
    for (int j = 1; j <= nkv; j++) {
        double *c = t + j;
        int two = nq >= 2 ? 2 : 1, last = nq >= 2 ? nq - 1 : 1;
        c[0] = below(q->pos[1], c[w], q->pos[two], c[(size_t)two * w], nq);
        c[(size_t)(nq + 1) * w] = above(q->pos[last], c[(size_t)last * w], q->pos[nq],
                                        c[(size_t)nq * w], q->pos[nq + 1], nq);
    }
    for (int i = 0; i <= nq + 1; i++) {
        double *r = t + (size_t)i * w;
        int two = nkv >= 2 ? 2 : 1, last = nkv >= 2 ? nkv - 1 : 1;
        r[0] = below(kv->pos[1], r[1], kv->pos[two], r[two], nkv);
        r[nkv + 1] =
            above(kv->pos[last], r[last], kv->pos[nkv], r[nkv], kv->pos[nkv + 1], nkv);
    }
    for (int i = 0; i <= nq + 1; i++)
        for (int j = 0; j <= nkv + 1; j++) {
            double *v = t + (size_t)i * w + j;
            double least = 0.0;
            if (i > 0 && v[-(ptrdiff_t)w] > least)
                least = v[-(ptrdiff_t)w];
            if (j > 0 && v[-1] > least)
                least = v[-1];
            least *= 1.0 + HCP_MIN_RISE;
            int inside = i >= 1 && i <= nq && j >= 1 && j <= nkv;
            if (!inside && *v < least)
                *v = least;
        }
}

int hcp_grid_patches(const double *t, const struct hcp_axis *q, const struct hcp_axis *kv,
                     struct hcp_patch **out, struct hcp_err *err)
{
    size_t w = (size_t)kv->n;
    struct hcp_patch *p = malloc((size_t)(q->n - 1) * (w - 1) * sizeof *p);
    *out = p;
    if (!p)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int i = 0; i + 1 < q->n; i++)
        for (int j = 0; j + 1 < kv->n; j++, p++) {
            const double *c = t + (size_t)i * w + j;
            double du = q->pos[i + 1] - q->pos[i], dv = kv->pos[j + 1] - kv->pos[j];
            p->c0 = c[0];
            p->cu = (c[w] - c[0]) / du;
            p->cv = (c[1] - c[0]) / dv;
            p->cuv = ((c[w + 1] - c[1]) - (c[w] - c[0])) / du / dv;
        }
    return HCP_OK;
}

void hcp_poly_full_terms(double x, double w, double y, double term[HCP_FULL_TERMS])
{
    term[0] = 1.0;
    term[1] = x * y;
    term[2] = x;
    term[3] = y;
    term[4] = w * y;
    term[5] = w;
    term[6] = sqrt(x) * y;
    term[7] = x * sqrt(y);
}

void hcp_poly_square_terms(double s, double w, double term[HCP_SQUARE_TERMS])
{
    term[0] = 1.0;
    term[1] = s * s;
    term[2] = s;
    term[3] = w * s;
    term[4] = w;
    term[5] = s * sqrt(s);
}

static double poly_full(const hcp_model *m, int64_t q_tiles, int64_t kv_tiles)
{
    double term[HCP_FULL_TERMS], t = 0.0;
    hcp_poly_full_terms((double)(q_tiles * m->tile_q),
                        hcp_wave_position(&m->waves, q_tiles) * m->wave_tokens,
                        (double)(kv_tiles * m->tile_kv), term);
    for (int i = 0; i < HCP_FULL_TERMS; i++)
        t += m->full[i] * term[i];
    return t;
}

double hcp_eval_square(const hcp_model *m, int64_t s)
{
    int64_t tile = hcp_tiles(s, m->tile_q, m->shift_q);
    if (!m->has_square) { /* half of the rectangle's keys, the diagonal tile in full */
        int64_t half = (tile * m->tile_q + m->tile_q) / 2;
        return hcp_eval_full(m, tile, hcp_tiles(half, m->tile_kv, m->shift_kv));
    }
    if (m->is_poly) {
        double term[HCP_SQUARE_TERMS], t = 0.0;
        hcp_poly_square_terms((double)(tile * m->tile_q),
                              hcp_wave_position(&m->waves, tile) * m->wave_tokens, term);
        for (int i = 0; i < HCP_SQUARE_TERMS; i++)
            t += m->square[i] * term[i];
        return t;
    }
    int i = hcp_axis_segment(&m->s, tile);
    if (tile == m->s.tile[i])
        return m->s_ms[i];
    double root = m->s_root[i] + (double)(tile - m->s.tile[i]) * m->s_slope[i];
    return root * root;
}

double hcp_eval_full(const hcp_model *m, int64_t q_tiles, int64_t kv_tiles)
{
    if (!m->has_full) { /* only causal squares: the square of the same area */
        double area =
            2.0 * (double)(q_tiles * m->tile_q) * (double)(kv_tiles * m->tile_kv);
        int64_t s = (int64_t)sqrt(area);
        if (s < 1)
            s = 1;
        if (s > HCP_MODEL_LEN_MAX)
            s = HCP_MODEL_LEN_MAX;
        return hcp_eval_square(m, s);
    }
    if (m->is_poly)
        return poly_full(m, q_tiles, kv_tiles);
    double u = hcp_wave_position(&m->waves, q_tiles);
    if (kv_tiles == 0) {
        int i = hcp_axis_segment(&m->q, q_tiles);
        const struct hcp_patch *p = m->patch + (size_t)i * (size_t)(m->kv.n - 1);
        return p->c0 + (u - m->q.pos[i]) * p->cu;
    }
    return hcp_patch_at(&m->q, &m->kv, m->patch, q_tiles, u, kv_tiles);
}
