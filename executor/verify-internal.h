/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of verification; nobody else includes it.
 *
 *   verify.c          what is compared, inputs made again, the single pass
 *   verify-compare.c  the ring's rows against both references
 */
#ifndef HCP_RING_VERIFY_INTERNAL_H
#define HCP_RING_VERIFY_INTERNAL_H
#include "executor/verify.h"

enum { VERIFY_CHUNK = 4096 }; /* rows brought to the host at a time */

/* Rows that the single pass computes in one call: a segment under a causal mask, all of
 * the rank's under a full one. */
struct part {
    int64_t row, rows;
    int64_t segment, n_segments; /* of the rank's */
    int64_t first_key, keys;     /* those that the last row sees */
};

/* A row of a head to be compared with fp64. */
struct sample {
    int64_t part, head, row; /* head: batch * heads + head; row: of the rank's */
};

/* One rank's. */
struct verify {
    const struct ring_config *config;
    const struct ring_schedule *schedule;
    const hcp_plan *plan;
    const hcp_segment *segments; /* the rank's */
    int64_t n_segments;
    struct ring_tensors ring;
    void *stream;
    hcp_attn_problem shape; /* of one row against the whole sequence */
    int64_t heads;          /* of all batches */
    int64_t tokens, element;

    struct part *parts;
    int64_t n_parts, largest;
    struct sample *samples;
    int64_t n_samples;

    /* Device: K and V whole, the rest a part's. Host: K and V whole, a row of Q, a
     * chunk's rows. */
    void *k, *v, *q, *single_o, *single_lse;
    char *k_host, *v_host, *q_host;
    float *o_rows, *lse_rows, *single_rows, *single_lse_rows;
    double *reference, *scratch;

    /* Over samples: squared errors, squared reference, largest |L| of it, and the
     * (query, key) pairs. */
    double ring_squares, single_squares, squares, top_lse;
    int64_t pairs;
    struct ring_errors *errors;
};

/* What the runtime or a kernel says about a step of verification, as an error. */
int verify_fail(const struct verify *v, int rc, const char *doing, struct hcp_err *err);

/* Compares a part whose single pass is done; samples from *next on are its, and *next
 * moves behind them. A wrong row is no failure. */
int verify_compare_part(struct verify *v, int64_t index, int64_t *next,
                        struct hcp_err *err);
/* After the last part: what the sums say. */
int verify_judge(struct verify *v, struct hcp_err *err);

#endif
