/* SPDX-License-Identifier: Apache-2.0
 *
 * Lookup tables: which waves they count in, their left-out lines, their arrays.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

int hcp_lut_residuals(const struct hcp_grid *g, const struct hcp_waves *waves,
                      int along_kv, struct hcp_residuals *out)
{
    struct hcp_wave_axis axis;
    hcp_wave_axis_init(&axis, waves);
    int lines = along_kv ? g->nq : g->nkv, len = along_kv ? g->nkv : g->nq;
    for (int l = 0; l < lines; l++) {
        size_t at[3] = {0, 0, 0};
        double pos[3] = {0, 0, 0};
        for (int k = 0, seen = 0; k < len; k++) {
            size_t here = along_kv ? (size_t)l * (size_t)g->nkv + (size_t)k
                                   : (size_t)k * (size_t)g->nkv + (size_t)l;
            if (!g->known[here])
                continue;
            at[0] = at[1], at[1] = at[2], at[2] = here;
            pos[0] = pos[1], pos[1] = pos[2];
            pos[2] = along_kv ? (double)g->kv[k] : hcp_wave_position(&axis, g->q[k]);
            if (++seen < 3)
                continue;
            double part = (pos[1] - pos[0]) / (pos[2] - pos[0]);
            double t = g->ms[at[0]] + part * (g->ms[at[2]] - g->ms[at[0]]);
            if (hcp_residual_add(out, g->ms[at[1]], t, g->known[at[1]] == 2))
                return -1;
        }
    }
    return 0;
}

/* Distinct squares by tile, times isotonic; returns how many. at: sample of each. */
static int squares(const struct hcp_samples *s, int64_t *tile, double *ms)
{
    int n = 0;
    for (int i = 0; i < s->n_square; i++) {
        int64_t t = hcp_tiles(s->square[i].q, s->tile_q, -1);
        int same = n > 0 && tile[n - 1] == t;
        if (!same && n == HCP_AXIS_MAX - 2)
            break;
        /* sorted by length: the last of a tile is the nearest to its edge */
        if (!same)
            n++;
        tile[n - 1] = t;
        ms[n - 1] = s->square[i].ms;
    }
    return n;
}

int hcp_lut_square_residuals(const struct hcp_samples *s, struct hcp_residuals *out)
{
    int64_t tile[HCP_AXIS_MAX];
    double ms[HCP_AXIS_MAX];
    int n = squares(s, tile, ms);
    for (int i = 1; i + 1 < n; i++) {
        double part =
            (double)(tile[i] - tile[i - 1]) / (double)(tile[i + 1] - tile[i - 1]);
        double root = (1.0 - part) * sqrt(ms[i - 1]) + part * sqrt(ms[i + 1]);
        if (hcp_residual_add(out, ms[i], root * root, 1))
            return -1;
    }
    return 0;
}

/* Score of one key with these waves, along q only: that is what waves change. */
static double score(const struct hcp_grid *g, const struct hcp_waves *waves, int *cells)
{
    struct hcp_residuals list = {0};
    double s = NAN;
    if (!hcp_lut_residuals(g, waves, 0, &list))
        s = hcp_holdout_score(&list);
    *cells = isnan(s) ? 0 : list.n;
    free(list.r);
    return *cells ? s : 0.0;
}

/* A table sees waves only if every length is whole tiles (otherwise the tile is wrong).
 */
static int fits_tile(const struct hcp_samples *s, int64_t tile)
{
    for (int i = 0; i < s->n_full; i++)
        if (s->full[i].q % tile)
            return 0;
    return 1;
}

struct candidate {
    int64_t tile; /* 0: the key's own */
    double rho, lambda, first;
};

static struct hcp_waves waves_of(const struct hcp_samples *s, const struct candidate *c)
{
    return (struct hcp_waves){s->waves.ctas, s->waves.sm, c->rho, c->lambda, c->first};
}

/* Mean score over keys, every cell counting once. grid[k] is built on the tile. */
static double pooled(const struct hcp_samples *s, const struct hcp_grid *grid, int n,
                     const struct candidate *c)
{
    double sum = 0.0;
    int total = 0;
    for (int k = 0; k < n; k++) {
        struct hcp_waves w = waves_of(&s[k], c);
        int cells;
        if (s[k].waves.sm < 1 || s[k].n_full < 3)
            continue;
        double one = score(&grid[k], &w, &cells);
        sum += one * cells;
        total += cells;
    }
    return total ? sum / total : NAN;
}

/* The best of a fixed set on grids of one tile; *least is its score. */
static void try_waves(const struct hcp_samples *s, const struct hcp_grid *grid, int n,
                      int64_t tile, struct candidate *best, double *least)
{
    static const double rho[] = {0.5, 0.54, 0.58, 0.62, 0.66, 0.7, 0.8, 0.9, 1.0};
    static const double lambda[] = {0.5, 0.75, 0.9, 0.95};
    /* half a tile in pairs looks much like a whole one: a smaller tile has to be
     * clearly better */
    double factor = tile == best->tile ? 1.0 : 0.97;
    for (int r = 0; r < 9; r++)
        for (int l = 0; l < 4; l++)
            for (int first = 0; first < 2; first++) {
                struct candidate c = {tile, rho[r], lambda[l], first};
                double p = pooled(s, grid, n, &c);
                if (!(p < factor * *least))
                    continue;
                *least = p;
                *best = c;
                factor = 1.0;
            }
}

static int build_all(const struct hcp_samples *s, int n, int64_t tile,
                     struct hcp_grid *grid, struct hcp_err *err)
{
    for (int k = 0; k < n; k++) {
        int code = hcp_grid_build(s[k].full, s[k].n_full, tile ? tile : s[k].tile_q,
                                  s[k].tile_kv, &grid[k], err);
        if (code)
            return code;
    }
    return HCP_OK;
}

/* It has to pay clearly, and for each limit, before a plan may lean on it. */
static int use_waves(struct hcp_samples *s, struct hcp_grid *grid, int n,
                     const struct candidate *best, struct hcp_err *err)
{
    static const struct candidate none = {0, 0.5, 0.0, 0.0};
    int code = build_all(s, n, best->tile, grid, err);
    for (int k = 0; k < n && !code; k++) {
        struct hcp_waves with = waves_of(&s[k], best), without = waves_of(&s[k], &none);
        int cells;
        if (best->tile) {
            s[k].tile_q = best->tile;
            s[k].tile_q_known = 1;
            s[k].tile_q_seen = 0;
            hcp_note(s[k].note, sizeof s[k].note, "query tile %lld found from its waves",
                     (long long)best->tile);
        }
        if (s[k].waves.sm > 0 &&
            !(score(&grid[k], &with, &cells) > 1.1 * score(&grid[k], &without, &cells)))
            s[k].waves = with;
    }
    return code;
}

static void free_all(struct hcp_grid *grid, int n)
{
    for (int k = 0; k < n; k++)
        hcp_grid_free(&grid[k]);
}

int hcp_waves_search(struct hcp_samples *s, int n, struct hcp_err *err)
{
    static const int64_t tiles[] = {256, 128, 64};
    struct candidate best = {0, 0.5, 0.0, 0.0};
    struct hcp_grid *grid = calloc((size_t)n + 1, sizeof *grid);
    if (!grid)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    /* A tile seen in one limit's times may be two tiles of one wave: not trusted until
     * the waves of all limits have been tried. */
    int unknown = 1;
    for (int k = 0; k < n; k++)
        unknown &= !s[k].tile_q_known || s[k].tile_q_seen;
    int code = build_all(s, n, 0, grid, err);
    double none = code ? NAN : pooled(s, grid, n, &best), least = none;
    if (!code && !unknown)
        try_waves(s, grid, n, 0, &best, &least);
    free_all(grid, n);
    for (int t = 0; t < 3 && unknown && !code; t++) { /* a wave of unknown tiles */
        int fits = 1;
        for (int k = 0; k < n; k++)
            fits &= fits_tile(&s[k], tiles[t]);
        if (!fits)
            continue;
        code = build_all(s, n, tiles[t], grid, err);
        if (!code)
            try_waves(s, grid, n, tiles[t], &best, &least);
        free_all(grid, n);
    }
    if (!code && best.lambda > 0 && least < (unknown ? 0.8 : 0.9) * none)
        code = use_waves(s, grid, n, &best, err);
    for (int k = 0; k < n; k++)
        if (s[k].tile_q_seen)
            hcp_note(s[k].note, sizeof s[k].note, "query tile %lld found in a fine sweep",
                     (long long)s[k].tile_q);
    free_all(grid, n);
    free(grid);
    return code;
}

static int put_squares(const struct hcp_samples *s, struct hcp_fitted *out)
{
    int64_t tile[HCP_AXIS_MAX];
    double ms[HCP_AXIS_MAX];
    int n = squares(s, tile, ms);
    if (n == 0)
        return 0;
    hcp_line_monotone(ms, n);
    double *axis = hcp_fitted_array(out, "s", (size_t)n);
    double *time = hcp_fitted_array(out, "s_ms", (size_t)n);
    int hits = 0;
    for (int pass = 0; pass < 2; pass++) { /* count, then write */
        double *hit = pass ? hcp_fitted_array(out, "s_hits", (size_t)hits) : NULL;
        if (pass && (!axis || !time || !hit))
            return -1;
        hits = 0;
        for (int i = 0; i < s->n_square; i++)
            for (int k = 0; k < n; k++)
                if (tile[k] == hcp_tiles(s->square[i].q, s->tile_q, -1) &&
                    ms[k] == s->square[i].ms) {
                    if (hit)
                        hit[hits] = (double)s->square[i].q;
                    hits++;
                }
    }
    for (int k = 0; k < n; k++) {
        int64_t len = tile[k] * s->tile_q;
        axis[k] = (double)(len > HCP_MODEL_LEN_MAX ? HCP_MODEL_LEN_MAX : len);
        time[k] = ms[k];
    }
    return 0;
}

static int put_grid(const struct hcp_samples *s, const struct hcp_grid *g,
                    struct hcp_fitted *out)
{
    size_t cells = (size_t)g->nq * (size_t)g->nkv;
    double *q = hcp_fitted_array(out, "q", (size_t)g->nq);
    double *kv = hcp_fitted_array(out, "kv", (size_t)g->nkv);
    double *ms = hcp_fitted_array(out, "ms", cells);
    double *known = hcp_fitted_array(out, "known", cells);
    double *hits = hcp_fitted_array(out, "hits", 2 * (size_t)g->n_hit);
    if (!q || !kv || !ms || !known || !hits)
        return -1;
    for (int i = 0; i < g->nq; i++) {
        int64_t len = g->q[i] * s->tile_q;
        q[i] = (double)(len > HCP_MODEL_LEN_MAX ? HCP_MODEL_LEN_MAX : len);
    }
    for (int j = 0; j < g->nkv; j++) {
        int64_t len = g->kv[j] * s->tile_kv;
        kv[j] = (double)(len > HCP_MODEL_LEN_MAX ? HCP_MODEL_LEN_MAX : len);
    }
    for (size_t c = 0; c < cells; c++) {
        ms[c] = g->ms[c];
        known[c] = g->known[c] > 0;
    }
    for (int i = 0; i < g->n_hit; i++) {
        hits[2 * i] = (double)g->hit[i].q;
        hits[2 * i + 1] = (double)g->hit[i].kv;
    }
    return 0;
}

int hcp_lut_fit(const struct hcp_samples *s, const double *fill, struct hcp_fitted *out,
                char *note, size_t note_size, struct hcp_err *err)
{
    struct hcp_residuals list = {0};
    struct hcp_grid g = {0};
    int code = HCP_OK, failed = hcp_fitted_head(out, s, "lut");
    if (s->n_full > 0) {
        code = hcp_grid_build(s->full, s->n_full, s->tile_q, s->tile_kv, &g, err);
        if (code)
            return code;
        int filled = 0, moved = 0;
        failed |= hcp_lut_residuals(&g, &s->waves, 0, &list);
        failed |= hcp_lut_residuals(&g, &s->waves, 1, &list);
        if (list.n < s->n_full / 3 && s->n_full >= 6)
            failed |= hcp_fill_residuals(s, fill, &list);
        for (int c = 0; c < g.nq * g.nkv; c++)
            filled += !g.known[c];
        failed |= hcp_grid_fill(&g, s, fill);
        moved = hcp_grid_monotone(&g);
        failed |= moved < 0 || put_grid(s, &g, out);
        if (filled)
            hcp_note(note, note_size, "%d of %d grid points not measured, filled in",
                     filled, g.nq * g.nkv);
        if (moved > 0)
            hcp_note(note, note_size,
                     "%d of %d cells evened out: longer blocks measured faster", moved,
                     g.nq * g.nkv - filled);
        if (g.n_dropped)
            hcp_note(
                note, note_size,
                "%d cells on lines that the table has no room for, they only guide it",
                g.n_dropped);
        hcp_grid_free(&g);
    }
    failed |= hcp_lut_square_residuals(s, &list);
    failed |= put_squares(s, out);
    failed |= hcp_fitted_holdout(out, &list);
    free(list.r);
    if (failed)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (s->waves.lambda > 0)
        snprintf(out->terms, sizeof out->terms, "waves/%lld, alone %.2f, steps %.2f%s",
                 (long long)s->waves.sm, s->waves.rho, s->waves.lambda,
                 s->waves.first > 0 ? "" : " after the first");
    else
        snprintf(out->terms, sizeof out->terms, "linear");
    return HCP_OK;
}
