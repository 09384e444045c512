/* SPDX-License-Identifier: Apache-2.0
 *
 * Short forms for lists of struct hcp_column. The file that has a list defines ROW, the
 * struct that the columns are fields of, and includes this.
 */
#ifndef HCP_COLUMNS_H
#define HCP_COLUMNS_H
#include "db/db-internal.h"
#include "db/parse.h"

#define AT(field) offsetof(ROW, field), sizeof((ROW *)0)->field
/* clang-format off */
#define TEXT(name, field, sql) {name, sql, HCP_COL_TEXT, AT(field), 0, 0, 0, 0}
/* "" is a value, not an unknown: the limit of the whole device. */
#define WORD(name, field, sql) {name, sql, HCP_COL_TEXT, AT(field), 1, 0, 0, 0}
#define INT(name, field, sql, unknown, min) \
    {name, sql, HCP_COL_INT32, AT(field), unknown, min, INT32_MAX, 0}
#define LONG(name, field, sql, unknown, min, max) \
    {name, sql, HCP_COL_INT64, AT(field), unknown, min, max, 0}
#define REAL(name, field, sql) {name, sql, HCP_COL_REAL, AT(field), 0, 0, 0, 0}
/* Columns that a later version of the text format brought to a list. */
#define TEXT_SINCE(since, name, field, sql) \
    {name, sql, HCP_COL_TEXT, AT(field), 0, 0, 0, since}
#define INT_SINCE(since, name, field, sql, unknown, min) \
    {name, sql, HCP_COL_INT32, AT(field), unknown, min, INT32_MAX, since}
/* 1, or 0, which is "not known" in the file and "" in text: readers take both. */
#define FLAG_SINCE(since, name, field, sql) \
    {name, sql, HCP_COL_INT32, AT(field), 0, 0, 1, since}
#define REAL_SINCE(since, name, field, sql) \
    {name, sql, HCP_COL_REAL, AT(field), 0, 0, 0, since}
/* clang-format on */

/* The columns of a row's struct hcp_key, named key; its limiter is in that SQL column. */
#define KEY(limiter)                                                                     \
    TEXT("device", key.device, "d.slug"), WORD("limit", key.limit, limiter),             \
        TEXT("provider", key.provider, "t.provider"),                                    \
        TEXT("dtype", key.dtype, "t.dtype"), TEXT("phase", key.phase, "t.phase"),        \
        INT("batch", key.batch, "t.batch", -1, 1),                                       \
        INT("heads", key.heads, "t.heads", -1, 1),                                       \
        INT("kv_heads", key.kv_heads, "t.kv_heads", -1, 1),                              \
        INT("head_dim", key.head_dim, "t.head_dim", -1, 1)

#endif
