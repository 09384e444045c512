/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by text-*.c: one row on its way in.
 */
#ifndef HCP_TEXT_INTERNAL_H
#define HCP_TEXT_INTERNAL_H
#include "db/db-internal.h"
#include "db/text.h"

/* Columns beyond hcp_columns: what does not belong to struct hcp_cell as a field. After
 * them come those of hcp_link_rows that no other row has. */
enum {
    HCP_EXTRA_SAMPLES,
    HCP_EXTRA_KIND,
    HCP_EXTRA_GB_PER_S,
    HCP_EXTRA_BYTES,
    HCP_N_EXTRA
};
extern const char *const hcp_extra_columns[HCP_N_EXTRA];
/* Index into hcp_columns, hcp_n_columns + HCP_EXTRA_*, or HCP_LINK_COLUMN(index into
 * hcp_link_rows.columns); -1 if there is no such column. */
#define HCP_LINK_COLUMN(i) ((int)hcp_n_columns + HCP_N_EXTRA + (int)(i))
int hcp_column_index(const char *name);
/* The text format that brought a column. */
int hcp_text_column_version(int column);
/* The next column of a file of that version after `column` (-1: the first) and its name;
 * -1 after the last. */
int hcp_text_next_column(int column, int version, const char **name);

#define HCP_TEXT_MAGIC "hcp profile, format "
/* The oldest that has what the rows need is written. 2: finish and link rows; 3:
 * boosted_ms, channels, links by copy engines. */
enum { HCP_TEXT_VERSION = 3 };

/* One row being read. given: which columns had a value. */
struct hcp_text_row {
    const char *name;
    long line;
    struct hcp_cell cell;
    struct hcp_link_row link; /* what the cell has no field for */
    char kind[8];
    double gb_per_s;
    int64_t bytes;
    unsigned char given[128];
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
/* The same for kinds "store" and "merge", and "link". */
int hcp_text_end_finish(struct hcp_text_row *row, struct hcp_text *out,
                        struct hcp_err *err);
int hcp_text_end_link(struct hcp_text_row *row, struct hcp_text *out,
                      struct hcp_err *err);
/* "NAME:LINE: column COLUMN: why" */
int hcp_text_bad(const struct hcp_text_row *row, int column, const char *why,
                 struct hcp_err *err);
/* Room for one more in an array of n that only ever grows by one. */
void *hcp_text_grow(void *array, size_t n, size_t size);

/* Appends a line to the note of a run ("" = of all runs). */
int hcp_text_add_note(struct hcp_text *out, const char *uid, const char *line,
                      struct hcp_err *err);

/* JSON lines: start is NUL-terminated text. */
int hcp_text_load_jsonl(char *start, const char *name, int ignore_unknown,
                        struct hcp_text *out, struct hcp_err *err);

#endif
