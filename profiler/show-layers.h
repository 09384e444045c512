/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HCP_SHOW_LAYERS_H
#define HCP_SHOW_LAYERS_H
#include "db/layer.h"

/* Prints the time of a layer at token counts (n_tokens 0: those measured) for each
 * device, limit and dtype that has all of its products, as a table or a JSON array; the
 * held-out error on stderr. HCP_NO_ANSWER: there are linear rows, but of no place all. */
int show_layers(hcp_db *db, const struct hcp_filter *filter,
                const struct hcp_layer *layer, const int64_t *tokens, size_t n_tokens,
                int json, size_t *rows, struct hcp_err *err);

#endif
