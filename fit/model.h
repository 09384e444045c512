/* SPDX-License-Identifier: Apache-2.0
 *
 * A fitted model of one key (device, limit, kernel, shape) and its evaluation.
 * Pure C in a library of its own: no GSL, no SQLite, no I/O. Evaluation allocates
 * nothing, takes no lock, and uses only + - * / sqrt and comparisons, so that it
 * gives the same bits on every IEEE 754 machine (build with -ffp-contract=off).
 */
#ifndef HCP_MODEL_H
#define HCP_MODEL_H
#include <stddef.h>
#include <stdint.h>
#include "db/db.h"

typedef struct hcp_model hcp_model; /* immutable after creation; shared by threads */

typedef enum hcp_model_source {
    HCP_SOURCE_MEASURED = 0,     /* the query is a sampled cell: its value verbatim */
    HCP_SOURCE_INTERPOLATED = 1, /* inside the measured hull */
    HCP_SOURCE_EXTRAPOLATED = 2  /* outside: callers refuse unless asked not to */
} hcp_model_source;

/* Builds a model from its stored row and arrays (any kind). HCP_FAILED with a
 * reason when the arrays are damaged or of a newer format. Free with hcp_model_free. */
int hcp_model_create(const struct hcp_model_row *row,
                     const struct hcp_named_array *arrays, size_t n_arrays,
                     hcp_model **out, struct hcp_err *err);
void hcp_model_free(hcp_model *model); /* accepts NULL */
const struct hcp_model_row *hcp_model_row(const hcp_model *model);

/* Predicted time in ms of one block: q_len rows against kv_len keys, causal 0 =
 * FULL rectangle; causal 1 = row i sees keys j <= i + kv_len - q_len (kv_len ==
 * q_len is the causal square). 0 for an empty block (a length 0); otherwise > 0 and
 * non-decreasing in q_len and in kv_len. source may be NULL. */
double hcp_model_block_ms(const hcp_model *model, int causal, int64_t q_len,
                          int64_t kv_len, hcp_model_source *source);

/* What hcp_model_block_ms() says of a block's source, without its time. */
hcp_model_source hcp_model_block_source(const hcp_model *model, int causal, int64_t q_len,
                                        int64_t kv_len);

/* Time in ms of the pass that brings a kernel's partial result for q_len rows into the
 * executor's fp32 state: storing it (merge 0, the first block) or merging it (1, later
 * ones). 0 for no rows, for a kernel that accumulates by itself, and where it was not
 * measured; non-decreasing in q_len. Not part of hcp_model_block_ms(). */
double hcp_model_finish_ms(const hcp_model *model, int merge, int64_t q_len);

/* n calls of q_len rows against kv_len[n] keys, all visible, into ms[n]: bit for bit what
 * hcp_model_block_ms() gives, and with finish the pass that merges the result added,
 * where there is one. */
void hcp_model_calls_ms(const hcp_model *model, int64_t q_len, int32_t n,
                        const int64_t *kv_len, int finish, double *ms);

/* Relative error bar at that block: time is in [t*(1-lo), t*(1+hi)] with about 90 %
 * confidence, from held-out errors (wider outside the hull). */
void hcp_model_error(const hcp_model *model, int causal, int64_t q_len, int64_t kv_len,
                     double *lo, double *hi);

/* A model of a batch for which there is none, from those of batches of the same device,
 * limit, kernel, kind and shape: low and high, the nearest below and above it, of which
 * one may be NULL (then every answer is extrapolated); below and above, the next ones
 * outside of these or NULL, which say how far such an answer is off (see
 * hcp_model_batch_error). All of them outlive the result. */
struct hcp_blend_from {
    const hcp_model *below, *low, *high, *above;
};
int hcp_model_blend(const struct hcp_blend_from *from, int32_t batch, hcp_model **out,
                    struct hcp_err *err);
/* Relative error of answering middle's batch from those of low and high at a block. */
double hcp_model_batch_error(const hcp_model *low, const hcp_model *middle,
                             const hcp_model *high, int causal, int64_t q_len,
                             int64_t kv_len);

/* A model whose times are factor > 0 times those of base, which outlives it: with the
 * same sources and relative error bars. hcp_model_rescale() changes the factor of such a
 * one (not while others read it). */
int hcp_model_scaled(const hcp_model *base, double factor, hcp_model **out,
                     struct hcp_err *err);
void hcp_model_rescale(hcp_model *scaled, double factor);
/* One model, or two of one base by one factor: do they answer alike? */
int hcp_model_alike(const hcp_model *a, const hcp_model *b);

/* Kernel tile the model rounds to (>= 1) and the measured hull, for messages (0s where
 * nothing of that mask was measured; causal: squares). */
int64_t hcp_model_tile_q(const hcp_model *model);
int64_t hcp_model_tile_kv(const hcp_model *model);
void hcp_model_hull(const hcp_model *model, int causal, int64_t *q_min, int64_t *q_max,
                    int64_t *kv_min, int64_t *kv_max);

#endif
