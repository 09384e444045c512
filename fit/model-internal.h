/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a model: the stored arrays (format 1), the axes and the evaluators.
 * Shared by model*.c and by the fit, which evaluates the same functions it stores.
 *
 * Arrays of both kinds ("lut", "poly"), doubles:
 *   shape   tile_q, tile_kv, CTAs a query tile launches (heads * batch), SMs seen
 *           (0 unknown), rho, lambda, first see struct hcp_waves
 *   hull    q_min, q_max, kv_min, kv_max of the full cells (0s: none),
 *           s_min, s_max of the causal squares (0s: none)    in tokens
 *   error   n x 3: up to this time in ms, lo, hi (relative); the last row is for
 *           anything longer
 *   finish  store f, store b, merge f, merge b: a finish pass over q rows takes
 *           f + b q ms; absent: 0
 * "lut" also:
 *   q, kv   axes in tokens, ascending; ms[q][kv]; known[q][kv] 1 = measured, 0 =
 *           filled in by the fit
 *   hits    n x 2: q_len, kv_len whose measured median stands in the table
 *   s, s_ms causal squares and their times; s_hits as hits, one column
 *   (q, kv, ms, known, hits or s, s_ms, s_hits are absent where nothing was measured)
 * "poly" also:
 *   full    coefficients of HCP_FULL_TERMS; square of HCP_SQUARE_TERMS (either absent)
 */
#ifndef HCP_MODEL_INTERNAL_H
#define HCP_MODEL_INTERNAL_H
#include "fit/model.h"

enum {
    HCP_MODEL_FORMAT = 1,
    HCP_FULL_TERMS = 8,
    HCP_SQUARE_TERMS = 6,
    HCP_AXIS_MAX = 200, /* nodes of one axis */
    HCP_BUCKETS = 128,  /* 31 octaves, four to each */
    HCP_ERROR_ROWS_MAX = 16
};
#define HCP_MODEL_LEN_MAX ((int64_t)1 << 30) /* longer lengths are read as this one */
/* Least relative rise from one node to the next: larger than any rounding error of
 * an interpolation between them, so that the result is monotone bit for bit. */
#define HCP_MIN_RISE 1e-7

/* How the query tiles of one launch fill the device. A tile launches `ctas` thread
 * blocks; wave number k holds `sm` of them. An SM that runs one block alone needs
 * rho times as long as for a pair of them, so k waves cost 2*(k/2) + (k odd ? 2 rho
 * : 0) units: rho 0.5 is one block a time, 1 is pairs only. lambda blends that
 * staircase with continuous work (0 = none). The first wave is a step like the others
 * (first 1), or continuous (0): that of kernels that split the keys when query tiles
 * do not fill the device. sm = 0: unknown, continuous. */
struct hcp_waves {
    int64_t ctas, sm;
    double rho, lambda, first;
};

/* Query tiles -> position on the wave axis (units of a wave), strictly increasing. */
struct hcp_wave_axis {
    int64_t ctas, sm;
    double inv_sm, two_rho, lambda, rest, rest_base, first_base, first_slope;
};
void hcp_wave_axis_init(struct hcp_wave_axis *axis, const struct hcp_waves *waves);

/* Number of full or begun waves of `blocks` thread blocks over `sm` SMs. */
static inline int64_t hcp_waves_ceil(int64_t blocks, int64_t sm, double inv_sm)
{
    int64_t k = (int64_t)((double)blocks * inv_sm);
    return k * sm < blocks ? k + 1 : k;
}

static inline double hcp_wave_position(const struct hcp_wave_axis *a, int64_t tiles)
{
    int64_t blocks = tiles * a->ctas;
    double w = (double)blocks * a->inv_sm;
    if (blocks <= a->sm)
        return a->first_base + a->first_slope * w;
    int64_t k = hcp_waves_ceil(blocks, a->sm, a->inv_sm);
    /* not a condition: whether waves are odd cannot be predicted */
    double stairs = (double)(k & ~(int64_t)1) + (double)(k & 1) * a->two_rho;
    return a->lambda * stairs + a->rest * (w + a->rest_base);
}

/* A sorted axis in tiles with virtual nodes below and above the measured ones, and a
 * table that finds the segment of an index without a search. */
struct hcp_axis {
    int n;         /* nodes, the two virtual ones included; segments n - 1 */
    int64_t *tile; /* [n] */
    double *pos;   /* [n] coordinate */
    uint8_t start[HCP_BUCKETS];
};
/* tiles: n measured nodes, ascending, >= 1. Adds node 0 and one past `last` tiles. */
int hcp_axis_init(struct hcp_axis *axis, const int64_t *tiles, int n, int64_t last,
                  const struct hcp_wave_axis *waves, struct hcp_err *err);
void hcp_axis_free(struct hcp_axis *axis);

static inline int hcp_axis_segment(const struct hcp_axis *axis, int64_t tile)
{
    int e = 63 - __builtin_clzll((unsigned long long)tile);
    int64_t top = (tile << 2) >> e; /* 4..7: the highest bit and the two below it */
    int s = axis->start[e * 4 + (int)(top & 3)];
    while (axis->tile[s + 1] <= tile)
        s++;
    return s;
}

struct hcp_patch {
    double c0, cu, cv, cuv; /* time in a grid rectangle, relative to its lower corner */
};

struct hcp_error_row {
    double upto_ms, lo, hi;
};

struct hcp_model {
    struct hcp_model_row row;
    int is_poly;
    int is_blend; /* of other batches' models (model-blend.c); only blend and weight */
    int is_scaled; /* blend.low's times by weight (model-scale.c); is_blend too */
    struct hcp_blend_from blend;
    double weight; /* of high's excess over low's time; with one of them, of its time */
    int64_t tile_q, tile_kv, last_q, last_kv; /* last: HCP_MODEL_LEN_MAX in tiles */
    int shift_q, shift_kv; /* log2 of the tile, -1: not a power of two */
    struct hcp_wave_axis waves;
    int64_t hull[6]; /* q_min q_max kv_min kv_max s_min s_max, tokens */
    struct hcp_error_row error[HCP_ERROR_ROWS_MAX];
    int n_error;

    double finish[2][2]; /* [merge] f, b: ms, ms a row */
    int has_full, has_square;
    /* lut */
    struct hcp_axis q, kv;
    struct hcp_patch *patch; /* [(q.n - 1) * (kv.n - 1)] */
    uint8_t *known;          /* [(q.n) * (kv.n)] node measured */
    int64_t (*hits)[2];      /* sorted */
    size_t n_hits;
    struct hcp_axis s;
    double *s_ms, *s_root, *s_slope; /* node time, its square root, per coordinate */
    int64_t *s_hits;
    size_t n_s_hits;
    /* poly */
    double full[HCP_FULL_TERMS], square[HCP_SQUARE_TERMS];
    double wave_tokens; /* query tokens of one wave; 0: waves not counted */

    /* causal blocks with more keys than queries: see model-causal.c */
    struct hcp_axis cq, ckv;
    struct hcp_patch *cpatch;
};

/* Terms of the regression at x query tokens (rounded up to the tile) that run as long
 * as w tokens of whole waves (0: not known) against y keys; all of them >= 0 and
 * non-decreasing. */
void hcp_poly_full_terms(double x, double w, double y, double term[HCP_FULL_TERMS]);
void hcp_poly_square_terms(double s, double w, double term[HCP_SQUARE_TERMS]);

/* Evaluators in tiles (model-eval.c). kv_tiles 0: the part that does not depend on
 * the keys. */
double hcp_eval_full(const hcp_model *m, int64_t q_tiles, int64_t kv_tiles);
double hcp_eval_square(const hcp_model *m, int64_t s); /* tokens */
/* What model.h's functions answer for a blend. hull: q_min q_max kv_min kv_max. */
double hcp_blend_block_ms(const hcp_model *m, int causal, int64_t q_len, int64_t kv_len,
                          hcp_model_source *source);
double hcp_blend_finish_ms(const hcp_model *m, int merge, int64_t q_len);
void hcp_blend_error(const hcp_model *m, int causal, int64_t q_len, int64_t kv_len,
                     double *lo, double *hi);
void hcp_blend_hull(const hcp_model *m, int causal, int64_t hull[4]);
/* Builds the table of causal rectangles (model-causal.c). */
int hcp_causal_init(hcp_model *m, struct hcp_err *err);
double hcp_eval_causal(const hcp_model *m, int64_t q_len, int64_t kv_len);

/* Extends a grid of measured times by virtual nodes: t is (nq + 2) x (nkv + 2), the
 * inside filled in by the caller. Makes rows and columns rise by HCP_MIN_RISE. */
void hcp_grid_extend(double *t, const struct hcp_axis *q, const struct hcp_axis *kv);
/* Patches of a complete grid; *out malloc'ed. */
int hcp_grid_patches(const double *t, const struct hcp_axis *q, const struct hcp_axis *kv,
                     struct hcp_patch **out, struct hcp_err *err);

/* ceil(len / tile); shift >= 0 when tile is 2^shift. */
static inline int64_t hcp_tiles(int64_t len, int64_t tile, int shift)
{
    return shift >= 0 ? (len + tile - 1) >> shift : (len + tile - 1) / tile;
}

static inline double hcp_patch_at(const struct hcp_axis *q, const struct hcp_axis *kv,
                                  const struct hcp_patch *patch, int64_t q_tiles,
                                  double u, int64_t kv_tiles)
{
    int i = hcp_axis_segment(q, q_tiles), j = hcp_axis_segment(kv, kv_tiles);
    const struct hcp_patch *p = patch + (size_t)i * (size_t)(kv->n - 1) + (size_t)j;
    double x = u - q->pos[i], y = (double)(kv_tiles - kv->tile[j]);
    return p->c0 + x * p->cu + y * (p->cv + x * p->cuv);
}

#endif
