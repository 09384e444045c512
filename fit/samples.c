/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the database -> the distinct cells of one key.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

enum { WAVES_MAX = 1 << 20 }; /* what a model's "shape" takes */

void hcp_note(char *note, size_t size, const char *format, ...)
{
    size_t used = strlen(note);
    va_list args;
    if (used && used + 3 < size) {
        memcpy(note + used, "; ", 3);
        used += 2;
    }
    va_start(args, format);
    vsnprintf(note + used, size - used, format, args);
    va_end(args);
}

static int same_key(const struct hcp_key *a, const struct hcp_key *b)
{
    return hcp_fit_same_group(a, b) && strcmp(a->limit, b->limit) == 0;
}

static int by_cell_then_time(const void *x, const void *y)
{
    const struct hcp_cell *a = *(const struct hcp_cell *const *)x;
    const struct hcp_cell *b = *(const struct hcp_cell *const *)y;
    int m = strcmp(a->mask, b->mask);
    if (m)
        return m;
    if (a->q_len != b->q_len)
        return a->q_len < b->q_len ? -1 : 1;
    if (a->kv_len != b->kv_len)
        return a->kv_len < b->kv_len ? -1 : 1;
    m = strcmp(a->measured_at, b->measured_at);
    if (m)
        return m;
    return (a->id > b->id) - (a->id < b->id);
}

/* Median over the runs row[0..n) of one cell that have the newest provider version. */
static double cell_time(const struct hcp_cell *const *row, int n, double *scratch)
{
    int used = 0;
    for (int i = 0; i < n; i++)
        if (strcmp(row[i]->provider_version, row[n - 1]->provider_version) == 0)
            scratch[used++] = row[i]->time_ms;
    return hcp_quantile(scratch, used, 0.5);
}

static int by_q_then_kv(const void *x, const void *y)
{
    const struct hcp_sample *a = x, *b = y;
    if (a->q != b->q)
        return a->q < b->q ? -1 : 1;
    return (a->kv > b->kv) - (a->kv < b->kv);
}

static int by_kv_then_q(const void *x, const void *y)
{
    const struct hcp_sample *a = x, *b = y;
    if (a->kv != b->kv)
        return a->kv < b->kv ? -1 : 1;
    return (a->q > b->q) - (a->q < b->q);
}

/* Tile along one axis from cells a few per cent apart with the other length equal:
 * the largest candidate inside whose steps time stands still. 0: no such sweep.
 * s is sorted by the other length, then by this one: near cells are neighbours. */
static int64_t find_tile(const struct hcp_sample *s, int n, int along_kv)
{
    static const int64_t candidate[] = {256, 192, 128, 96, 64, 48, 32, 16};
    for (size_t c = 0; c < sizeof candidate / sizeof *candidate; c++) {
        int64_t tile = candidate[c];
        int64_t flat = 0, steep = 0, crossing = 0;
        for (int i = 0; i < n; i++)
            for (int k = i + 1; k < n; k++) {
                int64_t a = along_kv ? s[i].kv : s[i].q, b = along_kv ? s[k].kv : s[k].q;
                int64_t oa = along_kv ? s[i].q : s[i].kv,
                        ob = along_kv ? s[k].q : s[k].kv;
                if (oa != ob || b - a >= tile)
                    break;
                if ((double)(b - a) < 0.05 * (double)a)
                    continue;
                if ((a - 1) / tile != (b - 1) / tile)
                    crossing++;
                else if (fabs(s[k].ms - s[i].ms) < 0.015 * s[i].ms)
                    flat++;
                else
                    steep++;
            }
        if (flat >= 4 && crossing >= 1 && steep * 5 <= flat)
            return tile;
    }
    return 0;
}

static void find_tiles(struct hcp_samples *s, const struct hcp_cell *const *row, int n)
{
    const char *newest = "";
    int q_differ = 0;
    for (int i = 0; i < n; i++) {
        if (row[i]->tile_q > 0 && s->tile_q > 0 && row[i]->tile_q != s->tile_q)
            q_differ = 1;
        if (row[i]->tile_q > 0 &&
            (s->tile_q == 0 || strcmp(row[i]->measured_at, newest) > 0)) {
            s->tile_q = row[i]->tile_q;
            newest = row[i]->measured_at;
        }
        if (row[i]->tile_kv > 0)
            s->tile_kv = row[i]->tile_kv;
    }
    s->tile_q_known = s->tile_q > 0;
    s->tile_kv_known = s->tile_kv > 0;
    if (q_differ)
        hcp_note(s->note, sizeof s->note,
                 "rows name different tiles, the newest counts (%lld)",
                 (long long)s->tile_q);
    for (int kv = 0; kv < 2; kv++) {
        int64_t *tile = kv ? &s->tile_kv : &s->tile_q;
        int *known = kv ? &s->tile_kv_known : &s->tile_q_known;
        if (*known)
            continue;
        if (!kv) /* sorted by q, then kv, but for this look */
            qsort(s->full, (size_t)s->n_full, sizeof *s->full, by_kv_then_q);
        *tile = find_tile(s->full, s->n_full, kv);
        if (!kv)
            qsort(s->full, (size_t)s->n_full, sizeof *s->full, by_q_then_kv);
        *known = *tile > 0;
        if (*known && kv)
            hcp_note(s->note, sizeof s->note, "key tile %lld found in a fine sweep",
                     (long long)*tile);
        else if (*known)
            s->tile_q_seen = 1; /* noted when the waves have had their say */
        else
            *tile = 1;
    }
}

int hcp_samples_build(const struct hcp_cell *cells, size_t n, const struct hcp_key *key,
                      struct hcp_samples *out, struct hcp_err *err)
{
    memset(out, 0, sizeof *out);
    out->key = *key;
    const struct hcp_cell **row = malloc((n + 1) * sizeof *row);
    double *scratch = malloc((n + 1) * sizeof *scratch);
    out->full = malloc((n + 1) * sizeof *out->full);
    out->square = malloc((n + 1) * sizeof *out->square);
    int used = 0;
    if (!row || !scratch || !out->full || !out->square) {
        free(row);
        free(scratch);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        const struct hcp_cell *c = &cells[i];
        if (!same_key(&c->key, key))
            continue;
        int causal = strcmp(c->mask, "causal") == 0;
        if (strcmp(c->status, "ok") != 0 || !(c->time_ms > 0) || !isfinite(c->time_ms))
            out->n_failed++;
        else if (causal && c->q_len != c->kv_len)
            out->n_other++;
        else if (c->q_len >= 1 && c->kv_len >= 1 && c->q_len <= HCP_MODEL_LEN_MAX &&
                 c->kv_len <= HCP_MODEL_LEN_MAX)
            row[used++] = c;
    }
    qsort(row, (size_t)used, sizeof *row, by_cell_then_time);
    int versions = 0, mixed = 0;
    const char *newest = "";
    for (int i = 0, next; i < used; i = next) {
        for (next = i + 1; next < used && row[next]->q_len == row[i]->q_len &&
                           row[next]->kv_len == row[i]->kv_len &&
                           strcmp(row[next]->mask, row[i]->mask) == 0;)
            next++;
        struct hcp_sample s = {row[i]->q_len, row[i]->kv_len,
                               cell_time(row + i, next - i, scratch)};
        if (strcmp(row[i]->mask, "causal") == 0)
            out->square[out->n_square++] = s;
        else
            out->full[out->n_full++] = s;
    }
    for (int i = 0; i < used; i++) {
        versions |= strcmp(row[i]->provider_version, row[0]->provider_version) != 0;
        mixed |= strcmp(row[i]->origin, row[0]->origin) != 0;
        int64_t sm = row[i]->sm_seen > 0 ? row[i]->sm_seen
                     : key->limit[0]     ? 0
                                         : row[i]->sm_count;
        if (sm > 0 && (out->waves.sm == 0 || strcmp(row[i]->measured_at, newest) > 0)) {
            out->waves.sm = sm;
            newest = row[i]->measured_at;
        }
    }
    snprintf(out->origin, sizeof out->origin, "%s",
             mixed  ? "mixed"
             : used ? row[0]->origin
                    : "");
    if (mixed)
        hcp_note(out->note, sizeof out->note, "samples of different origin");
    if (versions)
        hcp_note(out->note, sizeof out->note,
                 "several versions of the kernel, the newest of each cell counts");
    if (out->n_other)
        hcp_note(out->note, sizeof out->note,
                 "%d causal cells with kv_len != q_len not used", out->n_other);
    out->waves.ctas =
        (int64_t)(key->batch > 0 ? key->batch : 1) * (key->heads > 0 ? key->heads : 1);
    out->waves.rho = 0.5;
    /* far more blocks than SMs, or than there are: no waves to count */
    if (out->waves.ctas > WAVES_MAX)
        out->waves.ctas = 0;
    if (out->waves.sm > WAVES_MAX)
        out->waves.sm = 0;
    find_tiles(out, row, used);
    free(row);
    free(scratch);
    return HCP_OK;
}

void hcp_samples_free(struct hcp_samples *s)
{
    free(s->full);
    free(s->square);
}

double hcp_wave_tokens(const struct hcp_samples *s)
{
    if (s->waves.lambda <= 0 || s->waves.sm < 1 || s->waves.ctas < 1)
        return 0.0;
    return (double)s->waves.sm * (double)s->tile_q / (double)s->waves.ctas;
}
