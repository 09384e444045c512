/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch that was not measured, from those of the same device, limit, kernel and shape
 * that were. A decode step reads the keys and values of every sequence once, so that its
 * time is alpha + batch * kv_len * bytes / bandwidth: straight in the batch at each
 * kv_len where bandwidth decides. It errs where it does not: few sequences with few keys
 * do not fill the device, time stands still from one batch to the next and then bends.
 */
#include <stdlib.h>
#include <string.h>
#include "fit/model-internal.h"

/* Of two times of which the second is that of the larger batch. */
static double between(double low, double high, double weight)
{
    if (high < low) /* noise: more sequences take no less */
        high = low;
    return low + weight * (high - low);
}

static double share(int32_t low, int32_t batch, int32_t high)
{
    return (double)(batch - low) / (double)(high - low);
}

static int32_t batch_of(const hcp_model *m)
{
    return m->row.key.batch;
}

int hcp_model_blend(const struct hcp_blend_from *from, int32_t batch, hcp_model **out,
                    struct hcp_err *err)
{
    const hcp_model *base = from->high ? from->high : from->low;
    hcp_model *m = base ? calloc(1, sizeof *m) : NULL;
    if (!m)
        return hcp_fail(err, HCP_FAILED,
                        base ? "out of memory" : "no batch to start from");
    m->row = base->row;
    m->is_poly = base->is_poly;
    m->tile_q = base->tile_q;
    m->tile_kv = base->tile_kv;
    m->row.key.batch = batch;
    m->blend = *from;
    m->is_blend = 1;
    if (from->low && from->high) {
        m->weight = share(batch_of(from->low), batch, batch_of(from->high));
        if (from->low->row.holdout_p90 > m->row.holdout_p90) {
            m->row.holdout_median = from->low->row.holdout_median;
            m->row.holdout_p90 = from->low->row.holdout_p90;
        }
    } else if (from->low) { /* beyond the largest: in proportion, which is too much */
        m->weight = (double)batch / (double)batch_of(from->low);
    } else { /* below the smallest: its time, which is too much */
        m->weight = 1;
    }
    *out = m;
    return HCP_OK;
}

double hcp_blend_block_ms(const hcp_model *m, int causal, int64_t q_len, int64_t kv_len,
                          hcp_model_source *source)
{
    const struct hcp_blend_from *f = &m->blend;
    hcp_model_source a = HCP_SOURCE_EXTRAPOLATED, b = HCP_SOURCE_EXTRAPOLATED;
    double ms;
    if (m->is_scaled)
        return m->weight * hcp_model_block_ms(f->low, causal, q_len, kv_len, source);
    if (f->low && f->high) {
        double low = hcp_model_block_ms(f->low, causal, q_len, kv_len, &a);
        ms = between(low, hcp_model_block_ms(f->high, causal, q_len, kv_len, &b),
                     m->weight);
    } else {
        ms = m->weight *
             hcp_model_block_ms(f->low ? f->low : f->high, causal, q_len, kv_len, NULL);
    }
    if (source)
        *source = a == HCP_SOURCE_EXTRAPOLATED || b == HCP_SOURCE_EXTRAPOLATED
                      ? HCP_SOURCE_EXTRAPOLATED
                      : HCP_SOURCE_INTERPOLATED;
    return ms;
}

double hcp_blend_finish_ms(const hcp_model *m, int merge, int64_t q_len)
{
    const struct hcp_blend_from *f = &m->blend;
    if (!f->low || !f->high)
        return m->weight * hcp_model_finish_ms(f->low ? f->low : f->high, merge, q_len);
    return between(hcp_model_finish_ms(f->low, merge, q_len),
                   hcp_model_finish_ms(f->high, merge, q_len), m->weight);
}

double hcp_model_batch_error(const hcp_model *low, const hcp_model *middle,
                             const hcp_model *high, int causal, int64_t q_len,
                             int64_t kv_len)
{
    double t = hcp_model_block_ms(middle, causal, q_len, kv_len, NULL);
    double got = between(hcp_model_block_ms(low, causal, q_len, kv_len, NULL),
                         hcp_model_block_ms(high, causal, q_len, kv_len, NULL),
                         share(batch_of(low), batch_of(middle), batch_of(high)));
    return t > 0 ? (got > t ? got - t : t - got) / t : 0;
}

/* What is not known from leaving a batch out: a guess that covers the step from one
 * sequence to a few. */
#define UNKNOWN_ERROR 0.15

void hcp_blend_error(const hcp_model *m, int causal, int64_t q_len, int64_t kv_len,
                     double *lo, double *hi)
{
    const struct hcp_blend_from *f = &m->blend;
    double low[2] = {0, 0}, high[2] = {0, 0}, more = 0;
    if (m->is_scaled) {
        hcp_model_error(f->low, causal, q_len, kv_len, lo, hi);
        return;
    }
    if (f->low)
        hcp_model_error(f->low, causal, q_len, kv_len, &low[0], &low[1]);
    if (f->high)
        hcp_model_error(f->high, causal, q_len, kv_len, &high[0], &high[1]);
    *lo = low[0] > high[0] ? low[0] : high[0];
    *hi = low[1] > high[1] ? low[1] : high[1];
    if (!f->low || !f->high) {
        *lo = 2 * *lo + 0.5;
        *hi = 2 * *hi + 0.5;
        if (*lo > 0.9)
            *lo = 0.9;
        return;
    }
    if (f->below)
        more = hcp_model_batch_error(f->below, f->low, f->high, causal, q_len, kv_len);
    if (f->above) {
        double e =
            hcp_model_batch_error(f->low, f->high, f->above, causal, q_len, kv_len);
        more = e > more ? e : more;
    }
    if (!f->below && !f->above)
        more = UNKNOWN_ERROR;
    *lo += more;
    *hi += more;
    if (*lo > 0.9)
        *lo = 0.9;
}

void hcp_blend_hull(const hcp_model *m, int causal, int64_t hull[4])
{
    const struct hcp_blend_from *f = &m->blend;
    int first = 1;
    for (int i = 0; i < 2; i++) {
        const hcp_model *one = i ? f->high : f->low;
        int64_t h[4];
        if (!one)
            continue;
        hcp_model_hull(one, causal, &h[0], &h[1], &h[2], &h[3]);
        for (int k = 0; k < 4; k++) { /* what both have */
            int lower = k % 2 == 0;
            if (first || (lower ? h[k] > hull[k] : h[k] < hull[k]))
                hull[k] = h[k];
        }
        first = 0;
    }
}
