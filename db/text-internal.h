/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by text-*.c: one row on its way in.
 */
#ifndef HCP_TEXT_INTERNAL_H
#define HCP_TEXT_INTERNAL_H
#include "db/db-internal.h"
#include "db/text.h"

/* Columns beyond hcp_columns: what does not belong to struct hcp_cell as a field. */
enum {
    HCP_EXTRA_SAMPLES,
    HCP_EXTRA_KIND,
    HCP_EXTRA_GB_PER_S,
    HCP_EXTRA_BYTES,
    HCP_N_EXTRA
};
extern const char *const hcp_extra_columns[HCP_N_EXTRA];
/* Index into hcp_columns, or hcp_n_columns + HCP_EXTRA_*; -1 if there is no such
 * column. */
int hcp_column_index(const char *name);

#define HCP_TEXT_MAGIC "hcp profile, format "
enum { HCP_TEXT_VERSION = 1 };

/* One row being read. given: which columns had a value. */
struct hcp_text_row {
    const char *name;
    long line;
    struct hcp_cell cell;
    char kind[8];
    double gb_per_s;
    int64_t bytes;
    unsigned char given[80];
    double *raw; /* grows, reused */
    size_t raw_room;
};
void hcp_text_row_begin(struct hcp_text_row *row, const char *name, long line);
/* Stores the text of one column; an empty value is "unknown". */
int hcp_text_row_set(struct hcp_text_row *row, int column, const char *value,
                     struct hcp_err *err);
int hcp_text_row_sample(struct hcp_text_row *row, double ms, struct hcp_err *err);
/* Checks the row and appends it to out. */
int hcp_text_row_end(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err);

/* Appends a line to the note of a run ("" = of all runs). */
int hcp_text_add_note(struct hcp_text *out, const char *uid, const char *line,
                      struct hcp_err *err);

/* JSON lines: start is NUL-terminated text. */
int hcp_text_load_jsonl(char *start, const char *name, int ignore_unknown,
                        struct hcp_text *out, struct hcp_err *err);

#endif
