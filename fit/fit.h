/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples -> models. One call fits all keys of one device, kernel and shape (they
 * differ in the limit only): each limit has its own lookup table and its own GSL
 * regression, but how thread blocks share an SM is a property of the kernel and is
 * learned from all limits together.
 *
 * Which measurements count: rows with status "ok", time > 0, of masks "full" and
 * "causal" (squares). Where a cell was measured several times, the rows of the newest
 * provider_version (by measured_at) count, and their median is the cell's time.
 * Origins may be mixed; the model's origin then says "mixed".
 *
 * Held-out error: every grid line (one q_len or one kv_len) that has measured lines on
 * both sides is left out in turn, and its cells are predicted from the rest; causal
 * squares likewise, one by one. Leaving a line out doubles the gap between the lines
 * left, so the error between the lines of the whole grid is smaller: it overstates.
 * The headline counts cells over 0.1 ms on the kernel's tile; both kinds of model are
 * judged on the same left-out lines.
 */
#ifndef HCP_FIT_H
#define HCP_FIT_H
#include "db/db.h"

/* Relative errors of held-out predictions. NaN medians when cells is 0. */
struct hcp_holdout {
    double median, p90;
    int cells;
};

enum { HCP_FIT_ARRAYS = 12 };
struct hcp_fitted {
    struct hcp_model_row row; /* samples_hash, fitted_at, tool_version: the caller's */
    struct hcp_named_array arrays[HCP_FIT_ARRAYS];
    size_t n_arrays;
    struct hcp_holdout all; /* every held-out cell; the headline is in row */
    char terms[64];         /* lut: how it counts waves; poly: its terms */
};

/* Finish passes: ms = line[merge][0] + line[merge][1] * rows. */
struct hcp_finish_fit {
    int rows; /* measurements used; 0: none, and the lines are 0 */
    double line[2][2];
    double worst; /* largest relative error over their lengths */
};

struct hcp_fit_result {
    struct hcp_key key;
    int code; /* HCP_OK, or why there is no model (err.text) */
    struct hcp_err err;
    int full_cells, square_cells; /* distinct cells used */
    int64_t tile_q, tile_kv;
    char note[512]; /* what the user should know; "" nothing */
    struct hcp_fitted lut, poly;
    struct hcp_finish_fit finish; /* hcp_fit_finish() */
};

/* Fits every key among the cells (they should differ in the limit only). *results is
 * malloc'ed, in order of first appearance; one key's failure is in its result and
 * does not stop the others. Returns HCP_FAILED only when out of memory. */
int hcp_fit_group(const struct hcp_cell *cells, size_t n, struct hcp_fit_result **results,
                  size_t *n_results, struct hcp_err *err);
/* Fits the rows of the result's key among n measured finish passes and adds them to its
 * models; without any the models have none. Once for each result. */
int hcp_fit_finish(const struct hcp_finish_row *rows, size_t n, struct hcp_fit_result *r,
                   struct hcp_err *err);
void hcp_fit_results_free(struct hcp_fit_result *results, size_t n);

/* Whether two keys may share hcp_fit_group: equal but for the limit. */
int hcp_fit_same_group(const struct hcp_key *a, const struct hcp_key *b);

/* "lut" or "poly": the kind with the lower held-out error (median + p90 / 4), the
 * lookup table where neither is known. */
const char *hcp_fit_best_kind(const struct hcp_model_row *lut,
                              const struct hcp_model_row *poly);

#endif
