/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers to queries: the time, where it comes from, and its error bar.
 */
#include "fit/model-internal.h"

static int64_t clamp_len(int64_t len)
{
    return len > HCP_MODEL_LEN_MAX ? HCP_MODEL_LEN_MAX : len;
}

static int has_hit(const hcp_model *m, int64_t q_len, int64_t kv_len)
{
    size_t lo = 0, hi = m->n_hits;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const int64_t *h = m->hits[mid];
        if (h[0] == q_len && h[1] == kv_len)
            return 1;
        if (h[0] < q_len || (h[0] == q_len && h[1] < kv_len))
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

/* filled: set when a corner of the patch was not measured. */
static hcp_model_source full_source(const hcp_model *m, int64_t q_len, int64_t kv_len,
                                    int *filled)
{
    if (!m->has_full)
        return HCP_SOURCE_EXTRAPOLATED;
    int64_t q = hcp_tiles(q_len, m->tile_q, m->shift_q);
    int64_t kv = hcp_tiles(kv_len, m->tile_kv, m->shift_kv);
    const int64_t *h = m->hull;
    if (q < hcp_tiles(h[0], m->tile_q, m->shift_q) ||
        q > hcp_tiles(h[1], m->tile_q, m->shift_q) ||
        kv < hcp_tiles(h[2], m->tile_kv, m->shift_kv) ||
        kv > hcp_tiles(h[3], m->tile_kv, m->shift_kv))
        return HCP_SOURCE_EXTRAPOLATED;
    if (m->is_poly)
        return HCP_SOURCE_INTERPOLATED;
    int i = hcp_axis_segment(&m->q, q), j = hcp_axis_segment(&m->kv, kv);
    int on_q = m->q.tile[i] == q, on_kv = m->kv.tile[j] == kv;
    size_t w = (size_t)m->kv.n;
    const uint8_t *low = m->known + (size_t)i * w + (size_t)j;
    const uint8_t *high = low + (on_q ? 0 : w) + (on_kv ? 0 : 1);
    if (on_q && on_kv && *low & 1 && has_hit(m, q_len, kv_len))
        return HCP_SOURCE_MEASURED;
    if (!(*low & 4) || !(*high & 2))
        return HCP_SOURCE_EXTRAPOLATED;
    if (!(*low & *high & 1) || !(low[on_q ? 0 : w] & low[on_kv ? 0 : 1] & 1))
        *filled = 1;
    return HCP_SOURCE_INTERPOLATED;
}

static hcp_model_source square_source(const hcp_model *m, int64_t s)
{
    if (!m->has_square)
        return HCP_SOURCE_EXTRAPOLATED;
    int64_t tile = hcp_tiles(s, m->tile_q, m->shift_q);
    if (tile < hcp_tiles(m->hull[4], m->tile_q, m->shift_q) ||
        tile > hcp_tiles(m->hull[5], m->tile_q, m->shift_q))
        return HCP_SOURCE_EXTRAPOLATED;
    if (!m->is_poly)
        for (size_t lo = 0, hi = m->n_s_hits; lo < hi;) {
            size_t mid = (lo + hi) / 2;
            if (m->s_hits[mid] == s)
                return HCP_SOURCE_MEASURED;
            if (m->s_hits[mid] < s)
                lo = mid + 1;
            else
                hi = mid;
        }
    return HCP_SOURCE_INTERPOLATED;
}

static hcp_model_source source_of(const hcp_model *m, int causal, int64_t q_len,
                                  int64_t kv_len, int *filled)
{
    if (!causal)
        return full_source(m, q_len, kv_len, filled);
    if (kv_len == q_len)
        return square_source(m, q_len);
    hcp_model_source s = square_source(m, kv_len < q_len ? kv_len : q_len);
    if (kv_len > q_len) {
        hcp_model_source f = full_source(m, q_len, kv_len - q_len, filled);
        if (f > s)
            s = f;
    }
    return s == HCP_SOURCE_MEASURED ? HCP_SOURCE_INTERPOLATED : s;
}

double hcp_model_block_ms(const hcp_model *m, int causal, int64_t q_len, int64_t kv_len,
                          hcp_model_source *source)
{
    if (q_len <= 0 || kv_len <= 0) {
        if (source)
            *source = HCP_SOURCE_INTERPOLATED;
        return 0.0;
    }
    if (m->is_blend)
        return hcp_blend_block_ms(m, causal, q_len, kv_len, source);
    q_len = clamp_len(q_len);
    kv_len = clamp_len(kv_len);
    if (source) {
        int filled = 0;
        *source = source_of(m, causal, q_len, kv_len, &filled);
    }
    if (causal)
        return hcp_eval_causal(m, q_len, kv_len);
    return hcp_eval_full(m, hcp_tiles(q_len, m->tile_q, m->shift_q),
                         hcp_tiles(kv_len, m->tile_kv, m->shift_kv));
}

hcp_model_source hcp_model_block_source(const hcp_model *m, int causal, int64_t q_len,
                                        int64_t kv_len)
{
    hcp_model_source source;
    int filled = 0;
    if (q_len > 0 && kv_len > 0 && !m->is_blend)
        return source_of(m, causal, clamp_len(q_len), clamp_len(kv_len), &filled);
    hcp_model_block_ms(m, causal, q_len, kv_len, &source);
    return source;
}

void hcp_model_calls_ms(const hcp_model *m, int64_t q_len, int32_t n,
                        const int64_t *kv_len, int finish, double *ms)
{
    double pass = 0.0;
    if (m->is_poly || m->is_blend || !m->has_full || q_len <= 0) {
        if (finish)
            pass = hcp_model_finish_ms(m, 1, q_len);
        for (int32_t i = 0; i < n; i++) {
            ms[i] = hcp_model_block_ms(m, 0, q_len, kv_len[i], NULL);
            ms[i] = kv_len[i] > 0 ? ms[i] + pass : 0.0;
        }
        return;
    }
    if (finish)
        pass = m->finish[1][0] + m->finish[1][1] * (double)q_len;
    int64_t q = hcp_tiles(clamp_len(q_len), m->tile_q, m->shift_q);
    int at = hcp_axis_segment(&m->q, q);
    const struct hcp_patch *row = m->patch + (size_t)at * (size_t)(m->kv.n - 1);
    double x = hcp_wave_position(&m->waves, q) - m->q.pos[at];
    for (int32_t i = 0; i < n; i++) { /* as hcp_patch_at */
        if (kv_len[i] <= 0) {
            ms[i] = 0.0;
            continue;
        }
        int64_t kv = hcp_tiles(clamp_len(kv_len[i]), m->tile_kv, m->shift_kv);
        int j = hcp_axis_segment(&m->kv, kv);
        double y = (double)(kv - m->kv.tile[j]);
        ms[i] = row[j].c0 + x * row[j].cu + y * (row[j].cv + x * row[j].cuv) + pass;
    }
}

/* How far outside [lo, hi], 0 (inside) to 1 (far away). */
static double beyond(int64_t len, int64_t lo, int64_t hi)
{
    if (lo <= 0)
        return 1.0;
    if (len > hi)
        return 1.0 - (double)hi / (double)len;
    return len < lo ? 1.0 - (double)len / (double)lo : 0.0;
}

void hcp_model_error(const hcp_model *m, int causal, int64_t q_len, int64_t kv_len,
                     double *lo, double *hi)
{
    *lo = *hi = 0.0;
    if (q_len <= 0 || kv_len <= 0)
        return;
    if (m->is_blend) {
        hcp_blend_error(m, causal, q_len, kv_len, lo, hi);
        return;
    }
    double t = hcp_model_block_ms(m, causal, q_len, kv_len, NULL);
    int row = 0, filled = 0;
    while (row + 1 < m->n_error && t > m->error[row].upto_ms)
        row++;
    *lo = m->error[row].lo;
    *hi = m->error[row].hi;
    q_len = clamp_len(q_len);
    kv_len = clamp_len(kv_len);
    hcp_model_source source = source_of(m, causal, q_len, kv_len, &filled);
    int square = causal && kv_len == q_len;
    if (source == HCP_SOURCE_EXTRAPOLATED) {
        /* twice the bar, and up to half of the time more with the distance */
        const int64_t *h = m->hull;
        double far = square ? beyond(q_len, h[4], h[5]) : beyond(q_len, h[0], h[1]);
        double far_kv = square ? 0.0 : beyond(kv_len, h[2], h[3]);
        if (far_kv > far)
            far = far_kv;
        *lo = 2.0 * *lo + 0.5 * far;
        *hi = 2.0 * *hi + 0.5 * far;
    } else if (filled || (causal && !square)) {
        *lo *= 2.0;
        *hi *= 2.0;
    }
    if (*lo > 0.9)
        *lo = 0.9;
}
