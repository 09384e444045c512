/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan: linear work of ranks from the linear rows of a database.
 */
#ifndef HCP_LAYER_MEASURED_H
#define HCP_LAYER_MEASURED_H
#include <stdio.h>
#include "db/cli.h"
#include "db/layer.h"
#include "planner/hcpplan.h"

/* --model, or --hidden --ffn --mlp. */
struct layer_args {
    const char *model; /* NULL: not given */
    int64_t hidden, ffn;
    int plain_mlp;
};
/* The layer they name; heads and head dim of the second form are the shape's. */
int layer_measured_shape(const struct layer_args *args,
                         const struct hcp_shape_args *shape, struct hcp_layer *out,
                         struct hcp_err *err);

typedef struct layer_measured layer_measured;
/* Times of a layer on each rank, from the rows in a database; HCP_NO_ANSWER names the one
 * that is missing and the command that measures it. Data sheets have the
 * times of the kin that the ring estimates them from, scaled by both rooflines. Free with
 * layer_measured_free(). */
int layer_measured_load(const char *path, const struct hcp_layer *layer,
                        const hcp_shape *shape, const hcp_rank *ranks, size_t n,
                        int extrapolate, const hcp_ring *ring, layer_measured **out,
                        struct hcp_err *err);
void layer_measured_free(layer_measured *m); /* accepts NULL */
/* Linear work of the ranks as lines, exact at at[] tokens, rising as measured from half
 * to twice that; its error is that at at[] tokens. */
void layer_measured_lines(const layer_measured *m, const int64_t *at, hcp_rank *ranks);
/* Where lines are off at tokens[] by more than their error, the largest of that is the
 * error of all: any rank may then be the last. */
void layer_measured_widen(const layer_measured *m, const int64_t *tokens,
                          hcp_rank *ranks);
/* HCP_NO_ANSWER: a rank's tokens are outside what was measured. */
int layer_measured_check(const layer_measured *m, const int64_t *tokens,
                         struct hcp_err *err);
/* For each device on which a rank's tokens lie between measured numbers that are far
 * apart (256, or a sixteenth of them): a line with the first such rank and the command
 * that measures about its tokens. Non-zero if printing failed. */
int layer_measured_finer(const layer_measured *m, const int64_t *tokens, FILE *out);
/* All of a layer's linear work in a decode step of so many tokens, into decode_linear_us;
 * HCP_NO_ANSWER as above. */
int layer_measured_decode(const layer_measured *m, int64_t tokens, hcp_rank *ranks,
                          struct hcp_err *err);

#endif
