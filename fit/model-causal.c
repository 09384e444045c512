/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal blocks that are not square. Row i of q_len rows sees the keys
 * j <= i + kv_len - q_len.
 *
 * kv_len < q_len: the first q_len - kv_len rows see nothing; what is left is the
 * square of kv_len.
 *
 * kv_len > q_len: a full rectangle q_len x (kv_len - q_len) beside a causal square of
 * q_len, less what both launches would pay apart from the keys:
 *   g(q, kv) = square(q) + full(q, kv - q) - full(q, 0).
 * Its parts pull in opposite directions as q grows under a fixed kv (the rectangle
 * loses keys), so g as such is monotone only up to noise and wave steps. Hence g is
 * tabulated once on four nodes an octave, made monotone there by a running maximum,
 * interpolated bilinearly, and held between square(q) and square(kv), both of which
 * are monotone and meet at kv = q. The result is monotone by construction.
 */
#include <stdlib.h>
#include "fit/model-internal.h"

/* Ascending indices 1 .. last: four an octave between lo and hi, one an octave
 * elsewhere. Returns how many (at most HCP_AXIS_MAX). */
static int octaves(int64_t *node, int64_t lo, int64_t hi, int64_t last)
{
    int n = 0;
    node[n++] = 1;
    for (int64_t octave = 1; octave < last && n + 5 < HCP_AXIS_MAX; octave *= 2)
        for (int64_t top = 5; top <= 8; top++) {
            int64_t tile = octave * top / 4;
            if (top < 8 && (octave * 2 <= lo || octave >= hi))
                continue;
            if (tile <= last && node[n - 1] < tile)
                node[n++] = tile;
        }
    if (node[n - 1] < last)
        node[n++] = last;
    return n;
}

static double rectangle(const hcp_model *m, int64_t q_tiles, int64_t kv_tiles)
{
    int64_t q = q_tiles * m->tile_q, kv = kv_tiles * m->tile_kv;
    if (q > HCP_MODEL_LEN_MAX)
        q = HCP_MODEL_LEN_MAX;
    if (kv > HCP_MODEL_LEN_MAX)
        kv = HCP_MODEL_LEN_MAX;
    if (kv <= q)
        return hcp_eval_square(m, kv);
    return hcp_eval_square(m, q) +
           hcp_eval_full(m, q_tiles, hcp_tiles(kv - q, m->tile_kv, m->shift_kv)) -
           hcp_eval_full(m, q_tiles, 0);
}

int hcp_causal_init(hcp_model *m, struct hcp_err *err)
{
    int64_t lo = m->hull[5] > 0 ? m->hull[4] : m->hull[0];
    int64_t hi = m->hull[1] > m->hull[3] ? m->hull[1] : m->hull[3];
    if (m->hull[5] > hi)
        hi = m->hull[5];
    if (m->hull[1] > 0 && m->hull[0] < lo)
        lo = m->hull[0];
    int64_t nodes[HCP_AXIS_MAX];
    int n = octaves(nodes, lo / m->tile_q, hi / m->tile_q, m->last_q);
    int code = hcp_axis_init(&m->cq, nodes, n, m->last_q, &m->waves, err);
    if (code)
        return code;
    n = octaves(nodes, lo / m->tile_kv, hi / m->tile_kv, m->last_kv);
    code = hcp_axis_init(&m->ckv, nodes, n, m->last_kv, NULL, err);
    if (code)
        return code;

    size_t w = (size_t)m->ckv.n;
    double *t = malloc((size_t)m->cq.n * w * sizeof *t);
    if (!t)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int i = 0; i < m->cq.n; i++)
        for (int j = 0; j < m->ckv.n; j++) {
            /* nodes 0 and n + 1 bound segments that no index falls into */
            int64_t q = i ? m->cq.tile[i] : 1, kv = j ? m->ckv.tile[j] : 1;
            double *v = t + (size_t)i * w + j, least = 0.0;
            *v = rectangle(m, q, kv);
            if (i > 0 && v[-(ptrdiff_t)w] > least)
                least = v[-(ptrdiff_t)w];
            if (j > 0 && v[-1] > least)
                least = v[-1];
            least *= 1.0 + HCP_MIN_RISE;
            if (*v < least)
                *v = least;
        }
    code = hcp_grid_patches(t, &m->cq, &m->ckv, &m->cpatch, err);
    free(t);
    return code;
}

double hcp_eval_causal(const hcp_model *m, int64_t q_len, int64_t kv_len)
{
    double high = hcp_eval_square(m, kv_len);
    if (kv_len <= q_len)
        return high;
    double low = hcp_eval_square(m, q_len);
    int64_t q_tiles = hcp_tiles(q_len, m->tile_q, m->shift_q);
    double t = hcp_patch_at(&m->cq, &m->ckv, m->cpatch, q_tiles,
                            hcp_wave_position(&m->waves, q_tiles),
                            hcp_tiles(kv_len, m->tile_kv, m->shift_kv));
    if (t > high)
        t = high;
    return t < low ? low : t;
}
