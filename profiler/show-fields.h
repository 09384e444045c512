/* SPDX-License-Identifier: Apache-2.0
 *
 * What a row shows, said once: a function names the fields of its kind of row, in order,
 * and is called for the heads of the table, for each line of it, or for each JSON object.
 *
 * head: of the column; NULL: in JSON alone. key: in JSON; NULL: in the table alone. What
 * is not known is an empty cell and null.
 */
#ifndef HCP_SHOW_FIELDS_H
#define HCP_SHOW_FIELDS_H
#include "db/db.h"
#include "profiler/show-table.h"

struct show_fields {
    hcp_table *table; /* NULL: JSON */
    json_t *array, *object;
    int heads; /* the columns are still to be made */
    size_t rows;
    void (*of)(struct show_fields *f, const void *row);
};

/* A table with heads, of a row of all zero bytes, or a JSON array; then the rows; then
 * all is printed (nothing without a row, or if rc is an error) and freed. */
void show_begin(struct show_fields *f, void (*of)(struct show_fields *f, const void *row),
                const void *zero_row, int json);
void show_row(struct show_fields *f, const void *row);
int show_end(struct show_fields *f, int rc, size_t *rows);

void field_text(struct show_fields *f, const char *head, const char *key,
                const char *text);
void field_int(struct show_fields *f, const char *head, const char *key, int64_t v);
void field_real(struct show_fields *f, const char *head, const char *key, int decimals,
                double v);
/* With its sign and two decimals, in the table alone. */
void field_percent(struct show_fields *f, const char *head, double percent);
/* "whole" in the table; "" in JSON is the whole device too, no unknown. */
void field_limit(struct show_fields *f, const char *head, const char *key,
                 const char *limit);
/* DEVICE@LIMIT in the table; two keys. */
void field_end(struct show_fields *f, const char *head, const char *device_key,
               const char *device, const char *limit_key, const char *limit);
/* KERNEL and SHAPE; the parts of the key but device and limit. */
void field_key(struct show_fields *f, const struct hcp_key *key);
/* nccl/4 in the table; transport and channels. */
void field_transport(struct show_fields *f, const char *transport, int32_t channels);
void field_origin(struct show_fields *f, const struct hcp_provenance *from);

#endif
