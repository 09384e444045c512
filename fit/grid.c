/* SPDX-License-Identifier: Apache-2.0
 *
 * Distinct cells -> a complete grid that rises along both axes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

/* Most lines of one axis of a table; the rest of a scattered import is dropped. */
enum { LINES_MAX = HCP_AXIS_MAX - 40 };

struct node {
    int64_t q, kv; /* tiles */
    double ms;
    int i, j; /* on the axes, -1: dropped */
};

static int by_int64(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Distinct values of v[0..n) with their counts; keeps the `most` fullest lines (the
 * first and the last always), ascending. Returns how many. */
static int distinct(int64_t *v, int n, int most)
{
    qsort(v, (size_t)n, sizeof *v, by_int64);
    int *count = calloc((size_t)n + 1, sizeof *count), k = 0;
    if (!count)
        return -1;
    for (int i = 0; i < n; i++) {
        if (k == 0 || v[i] != v[k - 1])
            v[k++] = v[i];
        count[k - 1]++;
    }
    while (k > most) { /* drop the emptiest inner line, of equals the most crowded */
        int worst = 1;
        double crowd = 0.0;
        for (int i = 1; i + 1 < k; i++) {
            double c = (double)v[i - 1] / (double)v[i + 1];
            if (i == 1 || count[i] < count[worst] ||
                (count[i] == count[worst] && c > crowd)) {
                worst = i;
                crowd = c;
            }
        }
        memmove(v + worst, v + worst + 1, (size_t)(k - worst - 1) * sizeof *v);
        memmove(count + worst, count + worst + 1,
                (size_t)(k - worst - 1) * sizeof *count);
        k--;
    }
    free(count);
    return k;
}

static int position(const int64_t *axis, int n, int64_t v)
{
    const int64_t *p = bsearch(&v, axis, (size_t)n, sizeof *axis, by_int64);
    return p ? (int)(p - axis) : -1;
}

/* Value of a cell's node; 0 when its lines were dropped. */
static double node_ms(const struct hcp_grid *g, const struct hcp_sample *s)
{
    int i = position(g->q, g->nq, hcp_tiles(s->q, g->tile_q, -1));
    int j = position(g->kv, g->nkv, hcp_tiles(s->kv, g->tile_kv, -1));
    return i < 0 || j < 0 ? 0.0 : g->ms[(size_t)i * (size_t)g->nkv + (size_t)j];
}

int hcp_grid_build(const struct hcp_sample *s, int n, int64_t tile_q, int64_t tile_kv,
                   struct hcp_grid *g, struct hcp_err *err)
{
    memset(g, 0, sizeof *g);
    g->tile_q = tile_q;
    g->tile_kv = tile_kv;
    g->q = malloc((size_t)(n + 1) * sizeof *g->q);
    g->kv = malloc((size_t)(n + 1) * sizeof *g->kv);
    g->hit = malloc((size_t)(n + 1) * sizeof *g->hit);
    double *same = malloc((size_t)(n + 1) * sizeof *same);
    if (!g->q || !g->kv || !g->hit || !same)
        goto memory;
    for (int i = 0; i < n; i++) {
        g->q[i] = hcp_tiles(s[i].q, tile_q, -1);
        g->kv[i] = hcp_tiles(s[i].kv, tile_kv, -1);
    }
    g->nq = distinct(g->q, n, LINES_MAX);
    g->nkv = distinct(g->kv, n, LINES_MAX);
    if (g->nq < 0 || g->nkv < 0)
        goto memory;
    size_t cells = (size_t)g->nq * (size_t)g->nkv;
    g->ms = calloc(cells + 1, sizeof *g->ms);
    g->known = calloc(cells + 1, 1);
    if (!g->ms || !g->known)
        goto memory;

    /* Several lengths may fall into one tile: the one on the tile's edge speaks for
     * it, else their median. */
    for (int a = 0; a < n; a++) {
        int i = position(g->q, g->nq, hcp_tiles(s[a].q, tile_q, -1));
        int j = position(g->kv, g->nkv, hcp_tiles(s[a].kv, tile_kv, -1));
        if (i < 0 || j < 0) {
            g->n_dropped++;
            continue;
        }
        size_t at = (size_t)i * (size_t)g->nkv + (size_t)j;
        if (g->known[at])
            continue;
        int k = 0;
        double edge = 0.0;
        for (int b = a; b < n; b++) {
            if (hcp_tiles(s[b].q, tile_q, -1) != g->q[i])
                break; /* sorted by q */
            if (hcp_tiles(s[b].kv, tile_kv, -1) != g->kv[j])
                continue;
            same[k++] = s[b].ms;
            if (s[b].q % tile_q == 0 && s[b].kv % tile_kv == 0)
                edge = s[b].ms;
        }
        g->ms[at] = edge > 0 ? edge : hcp_quantile(same, k, 0.5);
        g->known[at] = edge > 0 ? 2 : 1;
    }
    for (int a = 0; a < n; a++)
        if (node_ms(g, &s[a]) == s[a].ms)
            g->hit[g->n_hit++] = s[a];
    free(same);
    return HCP_OK;
memory:
    free(same);
    hcp_grid_free(g);
    return hcp_fail(err, HCP_FAILED, "out of memory");
}

void hcp_grid_free(struct hcp_grid *g)
{
    free(g->q);
    free(g->kv);
    free(g->ms);
    free(g->known);
    free(g->hit);
    memset(g, 0, sizeof *g);
}

/* The measured nodes of a grid. */
struct known {
    int i, j;
    size_t at;
};

static struct known *known_nodes(const struct hcp_grid *g, int *n)
{
    struct known *k = malloc(((size_t)g->nq * (size_t)g->nkv + 1) * sizeof *k);
    *n = 0;
    if (!k)
        return NULL;
    for (int i = 0; i < g->nq; i++)
        for (int j = 0; j < g->nkv; j++) {
            size_t at = (size_t)i * (size_t)g->nkv + (size_t)j;
            if (g->known[at])
                k[(*n)++] = (struct known){i, j, at};
        }
    return k;
}

/* Pool adjacent violators: the non-decreasing line nearest to v under weights w. */
static void pool(double *v, const double *w, int n, double *level, double *mass,
                 int *length)
{
    int blocks = 0;
    for (int i = 0; i < n; i++) {
        level[blocks] = v[i];
        mass[blocks] = w[i];
        length[blocks++] = 1;
        while (blocks > 1 && level[blocks - 2] > level[blocks - 1]) {
            double m = mass[blocks - 2] + mass[blocks - 1];
            level[blocks - 2] = (level[blocks - 2] * mass[blocks - 2] +
                                 level[blocks - 1] * mass[blocks - 1]) /
                                m;
            mass[blocks - 2] = m;
            length[blocks - 2] += length[blocks - 1];
            blocks--;
        }
    }
    for (int b = 0, i = 0; b < blocks; b++)
        for (int k = 0; k < length[b]; k++)
            v[i++] = level[b];
}

/* Dykstra's alternating projections on "rows rise" and "columns rise". Nodes outside
 * every violation never change, not even by a rounding. */
static int project(double *t, const double *w, int nq, int nkv)
{
    int n = nq > nkv ? nq : nkv;
    size_t cells = (size_t)nq * (size_t)nkv;
    double *row_step = calloc(2 * cells + 4 * (size_t)n, sizeof *row_step);
    int *length = calloc((size_t)n, sizeof *length);
    if (!row_step || !length) {
        free(row_step);
        free(length);
        return -1;
    }
    double *col_step = row_step + cells, *v = col_step + cells, *wv = v + n,
           *level = wv + n, *mass = level + n;
    for (int turn = 0; turn < 60; turn++) {
        double change = 0.0;
        for (int axis = 0; axis < 2; axis++) {
            int lines = axis ? nkv : nq, len = axis ? nq : nkv;
            size_t next = axis ? (size_t)nkv : 1, start = axis ? 1 : (size_t)nkv;
            double *step = axis ? col_step : row_step;
            for (int l = 0; l < lines; l++) {
                for (int k = 0; k < len; k++) {
                    size_t at = (size_t)l * start + (size_t)k * next;
                    v[k] = t[at] + step[at];
                    wv[k] = w[at];
                }
                pool(v, wv, len, level, mass, length);
                for (int k = 0; k < len; k++) {
                    size_t at = (size_t)l * start + (size_t)k * next;
                    double with = t[at] + step[at];
                    if (fabs(v[k] - t[at]) > change * t[at])
                        change = fabs(v[k] - t[at]) / t[at];
                    step[at] = with - v[k];
                    t[at] = v[k];
                }
            }
        }
        if (change < 1e-9)
            break;
    }
    free(row_step);
    free(length);
    return 0;
}

int hcp_grid_monotone(struct hcp_grid *g)
{
    size_t cells = (size_t)g->nq * (size_t)g->nkv;
    int n;
    struct known *known = known_nodes(g, &n);
    double *was = malloc((cells + 1) * sizeof *was);
    double *w = malloc((cells + 1) * sizeof *w), *mid = w;
    int moved = -1;
    if (!was || !w || !known)
        goto out;
    memcpy(was, g->ms, cells * sizeof *was);
    for (size_t c = 0; c < cells; c++)
        w[c] = (g->known[c] ? 1.0 : 1e-3) / (was[c] * was[c]);
    if (project(g->ms, w, g->nq, g->nkv))
        goto out;

    /* What the projections left, among measured nodes: midway between the running
     * maximum from below and the running minimum from above, with room for the least
     * rises. A measured node is moved only where it must be. */
    for (int k = 0; k < n; k++) {
        double low = g->ms[known[k].at], high = low;
        for (int o = 0; o < n; o++) {
            double v = g->ms[known[o].at];
            if (known[o].i <= known[k].i && known[o].j <= known[k].j && v > low)
                low = v;
            if (known[o].i >= known[k].i && known[o].j >= known[k].j && v < high)
                high = v;
        }
        mid[k] = low == high ? low : 0.5 * (low + high);
    }
    for (int k = 0; k < n; k++) {
        double v = mid[k];
        for (int o = 0; o < k; o++) /* the list ascends: smaller nodes come before */
            if (known[o].j <= known[k].j) {
                int steps = known[k].i - known[o].i + known[k].j - known[o].j;
                double least = g->ms[known[o].at] * (1.0 + 4.0 * HCP_MIN_RISE * steps);
                if (v < least)
                    v = least;
            }
        g->ms[known[k].at] = v;
    }
    /* Filled nodes go in between. */
    for (int i = 0; i < g->nq; i++)
        for (int j = 0; j < g->nkv; j++) {
            double *v = &g->ms[(size_t)i * (size_t)g->nkv + (size_t)j];
            if (g->known[(size_t)i * (size_t)g->nkv + (size_t)j])
                continue;
            double low = 0.0, high = HUGE_VAL;
            for (int k = 0; k < n; k++) {
                const struct known *o = &known[k];
                double gap = 2.0 * HCP_MIN_RISE * (abs(o->i - i) + abs(o->j - j)),
                       t = g->ms[o->at];
                if (o->i <= i && o->j <= j && t * (1.0 + gap) > low)
                    low = t * (1.0 + gap);
                if (o->i >= i && o->j >= j && t * (1.0 - gap) < high)
                    high = t * (1.0 - gap);
            }
            if (i > 0 && v[-(ptrdiff_t)g->nkv] * (1.0 + HCP_MIN_RISE) > low)
                low = v[-(ptrdiff_t)g->nkv] * (1.0 + HCP_MIN_RISE);
            if (j > 0 && v[-1] * (1.0 + HCP_MIN_RISE) > low)
                low = v[-1] * (1.0 + HCP_MIN_RISE);
            if (*v > high)
                *v = high;
            if (*v < low)
                *v = low;
        }
    /* A hit is answered verbatim: a cell that moved is none. */
    int hits = 0;
    for (int h = 0; h < g->n_hit; h++)
        if (node_ms(g, &g->hit[h]) == g->hit[h].ms)
            g->hit[hits++] = g->hit[h];
    g->n_hit = hits;
    moved = 0;
    for (int k = 0; k < n; k++)
        moved += g->ms[known[k].at] != was[known[k].at];
out:
    free(known);
    free(was);
    free(w);
    return moved;
}

void hcp_line_monotone(double *t, int n)
{
    if (n < 1)
        return;
    double *w = calloc(3 * (size_t)n, sizeof *w);
    int *length = calloc((size_t)n, sizeof *length);
    if (w && length) {
        for (int i = 0; i < n; i++)
            w[i] = 1.0 / (t[i] * t[i]);
        pool(t, w, n, w + n, w + 2 * n, length);
    }
    free(w);
    free(length);
    for (int i = 1; i < n; i++)
        if (t[i] < t[i - 1] * (1.0 + HCP_MIN_RISE))
            t[i] = t[i - 1] * (1.0 + HCP_MIN_RISE);
}
