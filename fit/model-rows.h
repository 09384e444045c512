/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of rectangles taken apart into what the queries say and what the keys say, for
 * callers that look many pairs of few lengths up: looked up once a length, a pair is a
 * few multiplications. Bit for bit what hcp_model_calls_ms() gives.
 */
#ifndef HCP_MODEL_ROWS_H
#define HCP_MODEL_ROWS_H
#include "fit/model-internal.h"

/* Whether a model is such a table; what is below is for those alone. */
static inline int hcp_model_has_rows(const hcp_model *m)
{
    return m->has_full && !m->is_poly && !m->is_blend;
}

struct hcp_model_row_at {
    const struct hcp_patch *row;
    double x;    /* within it */
    double pass; /* of merging the result; 0: left out */
};

/* No queries: every call takes no time. */
static inline struct hcp_model_row_at hcp_model_row_of_none(void)
{
    static const struct hcp_patch nothing[HCP_AXIS_MAX + 1];
    return (struct hcp_model_row_at){nothing, 0.0, 0.0};
}

struct hcp_model_keys_at {
    int64_t at; /* patch of the row */
    double y;   /* within it */
};

static inline int64_t hcp_model_clamp(int64_t len)
{
    return len > HCP_MODEL_LEN_MAX ? HCP_MODEL_LEN_MAX : len;
}

/* q_len > 0 queries. */
static inline struct hcp_model_row_at hcp_model_row_at(const hcp_model *m, int64_t q_len,
                                                       int finish)
{
    struct hcp_model_row_at r;
    r.pass = finish ? m->finish[1][0] + m->finish[1][1] * (double)q_len : 0.0;
    int64_t q = hcp_tiles(hcp_model_clamp(q_len), m->tile_q, m->shift_q);
    int at = hcp_axis_segment(&m->q, q);
    r.row = m->patch + (size_t)at * (size_t)(m->kv.n - 1);
    r.x = hcp_wave_position(&m->waves, q) - m->q.pos[at];
    return r;
}

/* kv_len > 0 keys. */
static inline struct hcp_model_keys_at hcp_model_keys_at(const hcp_model *m,
                                                         int64_t kv_len)
{
    int64_t kv = hcp_tiles(hcp_model_clamp(kv_len), m->tile_kv, m->shift_kv);
    int j = hcp_axis_segment(&m->kv, kv);
    return (struct hcp_model_keys_at){j, (double)(kv - m->kv.tile[j])};
}

/* The causal square of len > 0 tokens and the pass that stores its result: the first
 * block of a rank. */
static inline double hcp_model_own_ms(const hcp_model *m, int64_t len, int finish)
{
    double ms, pass = m->finish[0][0] + m->finish[0][1] * (double)len;
    if (m->has_square) { /* as hcp_eval_square() */
        int64_t tile = hcp_tiles(hcp_model_clamp(len), m->tile_q, m->shift_q);
        int i = hcp_axis_segment(&m->s, tile);
        double root = m->s_root[i] + (double)(tile - m->s.tile[i]) * m->s_slope[i];
        ms = tile == m->s.tile[i] ? m->s_ms[i] : root * root;
    } else {
        ms = hcp_model_block_ms(m, 1, len, len, NULL);
    }
    return finish ? ms + pass : ms;
}

/* Whether keys are at the same place in both. */
static inline int hcp_model_same_keys(const hcp_model *a, const hcp_model *b)
{
    if (a->tile_kv != b->tile_kv || a->kv.n != b->kv.n)
        return 0;
    for (int i = 0; i < a->kv.n; i++)
        if (a->kv.tile[i] != b->kv.tile[i])
            return 0;
    return 1;
}

/* The call of both; kv may be another model's of the same keys. */
static inline double hcp_model_call_at(const struct hcp_model_row_at *q,
                                       const struct hcp_model_keys_at *kv)
{
    const struct hcp_patch *p = q->row + kv->at;
    return p->c0 + q->x * p->cu + kv->y * (p->cv + q->x * p->cuv) + q->pass;
}
#endif
