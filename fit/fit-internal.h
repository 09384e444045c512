/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages of a fit: cells -> samples -> grid -> table, and samples -> regression.
 */
#ifndef HCP_FIT_INTERNAL_H
#define HCP_FIT_INTERNAL_H
#include "fit/fit.h"
#include "fit/model-internal.h"

/* One distinct cell of a key: tokens and the median over its runs. */
struct hcp_sample {
    int64_t q, kv;
    double ms;
};

struct hcp_samples {
    struct hcp_key key;
    char origin[12];
    int64_t tile_q, tile_kv; /* >= 1; tile_known: as told by the rows or found */
    int tile_q_known, tile_kv_known;
    int tile_q_seen; /* known from the times alone: several limits may know better */
    struct hcp_waves waves; /* sm 0: unknown; rho, lambda filled in by the search */
    struct hcp_sample *full, *square; /* sorted by q, kv */
    int n_full, n_square;
    int n_failed, n_other; /* rows not used: failed; causal but not square */
    char note[512];
};

/* Everything below returns HCP_OK or fills err. */
int hcp_samples_build(const struct hcp_cell *cells, size_t n, const struct hcp_key *key,
                      struct hcp_samples *out, struct hcp_err *err);
void hcp_samples_free(struct hcp_samples *s);
/* Query tokens of one wave; 0 when waves are not counted. */
double hcp_wave_tokens(const struct hcp_samples *s);
/* Appends a remark, separated by "; ". */
void hcp_note(char *note, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Measured cells on the axes they span. ms is 0 where nothing was measured. */
struct hcp_grid {
    int nq, nkv;
    int64_t tile_q, tile_kv;
    int64_t *q, *kv;        /* axes in tiles, ascending */
    double *ms;             /* [nq * nkv] */
    uint8_t *known;         /* 0 not measured, 1 off the tile's edge only, 2 on it */
    struct hcp_sample *hit; /* cells whose time is their node's value */
    int n_hit, n_dropped;   /* dropped: cells on lines that did not fit the axes */
};
int hcp_grid_build(const struct hcp_sample *s, int n, int64_t tile_q, int64_t tile_kv,
                   struct hcp_grid *out, struct hcp_err *err);
void hcp_grid_free(struct hcp_grid *g);
/* Fills the nodes that were not measured (fill.c). -1: out of memory. */
int hcp_grid_fill(struct hcp_grid *g, const struct hcp_samples *s,
                  const double coefficient[HCP_FULL_TERMS]);
/* Least change (weights 1/t^2) that makes the grid rise along both axes; nodes that
 * violate nothing keep their bits. Returns how many measured nodes moved, -1 memory. */
int hcp_grid_monotone(struct hcp_grid *g);
/* The same on one line, weights w (NULL: 1/t^2). */
void hcp_line_monotone(double *t, int n);

/* Residuals of held-out predictions. */
struct hcp_residual {
    double measured_ms, predicted_ms;
    int aligned;
};
struct hcp_residuals {
    struct hcp_residual *r;
    int n, cap;
};
int hcp_residual_add(struct hcp_residuals *list, double measured, double predicted,
                     int aligned);
struct hcp_holdout hcp_holdout_of(const struct hcp_residuals *list, int headline);
/* Mean of min(|relative error|, 25 %) over cells above 0.1 ms (all, when few). */
double hcp_holdout_score(const struct hcp_residuals *list);
/* Rows of the model's "error" array; returns their number. */
int hcp_error_rows(const struct hcp_residuals *list, double out[3 * HCP_ERROR_ROWS_MAX]);
double hcp_quantile(double *v, int n, double p); /* sorts v */

/* Left-out lines of a lookup table with these waves: along_kv 0 leaves lines of one
 * q_len out, 1 lines of one kv_len. */
int hcp_lut_residuals(const struct hcp_grid *g, const struct hcp_waves *waves,
                      int along_kv, struct hcp_residuals *out);
int hcp_lut_square_residuals(const struct hcp_samples *s, struct hcp_residuals *out);
/* Each sample predicted as if it had to be filled in: for scattered cells, which have no
 * lines. */
int hcp_fill_residuals(const struct hcp_samples *s,
                       const double coefficient[HCP_FULL_TERMS],
                       struct hcp_residuals *out);
/* Chooses rho, lambda (and tile_q where unknown) for all keys together. */
int hcp_waves_search(struct hcp_samples *s, int n_keys, struct hcp_err *err);
/* Headline into the row, every cell into f->all, and the "error" array. */
int hcp_fitted_holdout(struct hcp_fitted *f, const struct hcp_residuals *list);

int hcp_lut_fit(const struct hcp_samples *s, const double *fill, struct hcp_fitted *out,
                char *note, size_t note_size, struct hcp_err *err);
/* full: the coefficients, for filling; NULL allowed. */
int hcp_poly_fit(const struct hcp_samples *s, struct hcp_fitted *out,
                 double full[HCP_FULL_TERMS], struct hcp_err *err);

/* Non-negative least squares min |A x - b|, A is rows x cols (row-major), by
 * Lawson-Hanson on GSL's QR. Columns linearly dependent on chosen ones stay 0. */
int hcp_nnls(const double *a, const double *b, int rows, int cols, double *x,
             struct hcp_err *err);

/* Adds an array of n doubles to a fitted model; returns its storage or NULL. */
double *hcp_fitted_array(struct hcp_fitted *f, const char *name, size_t n);
void hcp_fitted_free(struct hcp_fitted *f);
/* "shape" and "hull" arrays and the row's head. */
int hcp_fitted_head(struct hcp_fitted *f, const struct hcp_samples *s, const char *kind);

#endif
