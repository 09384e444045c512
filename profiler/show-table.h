/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tables of `hcp-profile show` have in common.
 */
#ifndef HCP_SHOW_TABLE_H
#define HCP_SHOW_TABLE_H
#include "db/cli.h"

struct show_column {
    const char *name;
    int right;
};
/* The list ends with a NULL name. */
hcp_table *show_table(const struct show_column *columns);

/* What was computed or came from elsewhere must not pass for a measurement: "SYNTHETIC",
 * or the origin as it is. */
const char *show_origin(const char *origin);
/* "whole" for the whole device. */
const char *show_limit(const char *limit);
/* Unknown is empty. */
void show_int(hcp_table *t, int32_t v);
void show_real(hcp_table *t, int decimals, double v);
json_t *show_json_int(int64_t v);         /* null below 0 */
json_t *show_json_text(const char *text); /* null for "" */

/* "nccl"; "nccl/4" where 4 channels were set. */
void show_transport(hcp_table *t, const char *transport, int32_t channels);

/* A key's shape in one table cell: heads/kv_heads x head_dim, b batch. */
#define SHOW_SHAPE "%s %s %d/%dx%d b%d"
#define SHOW_SHAPE_VALUES(k)                                                             \
    (k)->phase, (k)->dtype, (int)(k)->heads, (int)(k)->kv_heads, (int)(k)->head_dim,     \
        (int)(k)->batch

#endif
