/* SPDX-License-Identifier: Apache-2.0
 *
 * Times where nothing was measured: between measured neighbours on a line, as the table
 * interpolates; without such neighbours the regression, times the ratio measured /
 * regression of the samples, near ones (in octaves of either length) weighing most.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

/* Neighbours further apart than this (ratio of their positions) say less about a node
 * between them than the regression does. */
static const double FILL_GAP = 16.5;

struct spot {
    int64_t q, kv; /* tiles */
    double u, v, log_ratio, ms;
    int on_tile;
};

struct fill {
    const struct hcp_samples *s;
    const double *coefficient;
    struct hcp_wave_axis axis;
    struct spot *spot;
    int n;
};

static double regression(const struct fill *f, int64_t q, int64_t kv)
{
    double term[HCP_FULL_TERMS], t = 0.0;
    hcp_poly_full_terms((double)(q * f->s->tile_q),
                        hcp_wave_position(&f->axis, q) * hcp_wave_tokens(f->s),
                        (double)(kv * f->s->tile_kv), term);
    for (int k = 0; k < HCP_FULL_TERMS; k++)
        t += f->coefficient[k] * term[k];
    return t > 0 ? t : 1e-6;
}

static int start(struct fill *f, const struct hcp_samples *s, const double *coefficient)
{
    *f = (struct fill){.s = s, .coefficient = coefficient, .n = s->n_full};
    hcp_wave_axis_init(&f->axis, &s->waves);
    f->spot = malloc(((size_t)f->n + 1) * sizeof *f->spot);
    if (!f->spot)
        return -1;
    for (int i = 0; i < f->n; i++) {
        const struct hcp_sample *a = &s->full[i];
        int64_t q = hcp_tiles(a->q, s->tile_q, -1), kv = hcp_tiles(a->kv, s->tile_kv, -1);
        f->spot[i] = (struct spot){q,
                                   kv,
                                   log2((double)q),
                                   log2((double)kv),
                                   log(a->ms / regression(f, q, kv)),
                                   a->ms,
                                   a->q % s->tile_q == 0 && a->kv % s->tile_kv == 0};
    }
    return 0;
}

/* From the samples of other tiles. */
static double at(const struct fill *f, int64_t q, int64_t kv)
{
    double u = log2((double)q), v = log2((double)kv), sum = 0.0, ratio = 0.0;
    for (int k = 0; k < f->n; k++) {
        const struct spot *p = &f->spot[k];
        if (p->q == q && p->kv == kv)
            continue;
        double du = p->u - u, dv = p->v - v;
        double d = du * du + dv * dv + 0.01, w = 1.0 / (d * d);
        sum += w;
        ratio += w * p->log_ratio;
    }
    return regression(f, q, kv) * (sum > 0 ? exp(ratio / sum) : 1.0);
}

/* Between the nearest nodes in `have` below and above on the same line (along_kv: of
 * one q_len), linear like the table itself. gap: how far apart they are, as a ratio.
 * 0 if there is none on one side. */
static double between(const struct hcp_grid *g, const struct fill *f, const uint8_t *have,
                      int i, int j, int along_kv, double *gap)
{
    size_t at[2] = {0, 0};
    double pos[2] = {0, 0}, here;
    int own = along_kv ? j : i, n = along_kv ? g->nkv : g->nq;
    for (int side = 0; side < 2; side++) {
        int k = own;
        do {
            k += side ? 1 : -1;
            if (k < 0 || k >= n)
                return 0.0;
            at[side] = along_kv ? (size_t)i * (size_t)g->nkv + (size_t)k
                                : (size_t)k * (size_t)g->nkv + (size_t)j;
        } while (!have[at[side]]);
        pos[side] = along_kv ? (double)g->kv[k] : hcp_wave_position(&f->axis, g->q[k]);
    }
    here = along_kv ? (double)g->kv[j] : hcp_wave_position(&f->axis, g->q[i]);
    *gap = pos[1] / pos[0];
    return g->ms[at[0]] +
           (here - pos[0]) / (pos[1] - pos[0]) * (g->ms[at[1]] - g->ms[at[0]]);
}

/* The line of a scattered cell crosses lines that are measured: its other nodes get
 * what the table says without it, so that a few odd cells cost no accuracy elsewhere.
 * First between measured nodes, then between those and the ones just found. */
static int fill_between(struct hcp_grid *g, const struct fill *f, uint8_t *have)
{
    size_t cells = (size_t)g->nq * (size_t)g->nkv;
    uint8_t *found = malloc(cells + 1);
    if (!found)
        return -1;
    for (int pass = 0; pass < 2; pass++) {
        memcpy(found, have, cells);
        for (int i = 0; i < g->nq; i++)
            for (int j = 0; j < g->nkv; j++) {
                size_t c = (size_t)i * (size_t)g->nkv + (size_t)j;
                double q_gap = HUGE_VAL, kv_gap = HUGE_VAL;
                if (have[c])
                    continue;
                double q = between(g, f, have, i, j, 0, &q_gap),
                       kv = between(g, f, have, i, j, 1, &kv_gap);
                if (q_gap > FILL_GAP && kv_gap > FILL_GAP)
                    continue;
                g->ms[c] = q_gap < kv_gap ? q : kv;
                found[c] = 1;
            }
        memcpy(have, found, cells);
    }
    free(found);
    return 0;
}

int hcp_grid_fill(struct hcp_grid *g, const struct hcp_samples *s,
                  const double coefficient[HCP_FULL_TERMS])
{
    size_t cells = (size_t)g->nq * (size_t)g->nkv;
    uint8_t *have = malloc(cells + 1);
    struct fill f = {0};
    int code = have ? start(&f, s, coefficient) : -1;
    if (!code) {
        memcpy(have, g->known, cells);
        code = fill_between(g, &f, have);
    }
    for (int i = 0; i < g->nq && !code; i++)
        for (int j = 0; j < g->nkv; j++)
            if (!have[(size_t)i * (size_t)g->nkv + (size_t)j])
                g->ms[(size_t)i * (size_t)g->nkv + (size_t)j] = at(&f, g->q[i], g->kv[j]);
    free(f.spot);
    free(have);
    return code;
}

int hcp_fill_residuals(const struct hcp_samples *s,
                       const double coefficient[HCP_FULL_TERMS],
                       struct hcp_residuals *out)
{
    struct fill f;
    int code = start(&f, s, coefficient);
    for (int k = 0; k < s->n_full && !code; k++)
        code = hcp_residual_add(out, f.spot[k].ms, at(&f, f.spot[k].q, f.spot[k].kv),
                                f.spot[k].on_tile);
    free(f.spot);
    return code;
}
