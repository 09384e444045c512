/* SPDX-License-Identifier: Apache-2.0
 *
 * Times where nothing was measured: the regression, times the ratio measured /
 * regression of the samples, near ones (in octaves of either length) weighing most.
 */
#include <math.h>
#include <stdlib.h>
#include "fit/fit-internal.h"

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

int hcp_grid_fill(struct hcp_grid *g, const struct hcp_samples *s,
                  const double coefficient[HCP_FULL_TERMS])
{
    struct fill f;
    if (start(&f, s, coefficient))
        return -1;
    for (int i = 0; i < g->nq; i++)
        for (int j = 0; j < g->nkv; j++)
            if (!g->known[(size_t)i * (size_t)g->nkv + (size_t)j])
                g->ms[(size_t)i * (size_t)g->nkv + (size_t)j] = at(&f, g->q[i], g->kv[j]);
    free(f.spot);
    return 0;
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
