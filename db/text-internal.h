/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by text-*.c: the columns of a file, and one row on its way in.
 */
#ifndef HCP_TEXT_INTERNAL_H
#define HCP_TEXT_INTERNAL_H
#include "db/db-internal.h"
#include "db/text.h"

/* Columns of a file: those of a cell, samples_ms, kind, gb_per_s, bytes, and then those
 * of each kind in turn that no other row before has. */
enum { HCP_MAX_TEXT_COLUMNS = 128 };
/* -1 if there is no such column. */
int hcp_text_column_index(const char *name);
int hcp_text_n_columns(void);
const char *hcp_text_column_name(int column);
/* The text format that brought it. */
int hcp_text_column_version(int column);
/* Where a kind's rows (index into hcp_kinds; -1: cells) have that column; NULL: nowhere.
 */
const struct hcp_column *hcp_text_column_of(int kind, int column);
/* samples_ms and kind, which rows have by other ways. */
int hcp_text_samples_column(void);
int hcp_text_kind_column(void);
/* The kind whose rows have this word in the column kind; -1 if there is none. */
int hcp_text_kind_of(const char *word);

#define HCP_TEXT_MAGIC "hcp profile, format "
/* The oldest that has what the rows need is written. 2: finish and link rows; 3:
 * topology, interference, drift and linear rows, links by copy engines, columns of that
 * version; 4: links one way. */
enum { HCP_TEXT_VERSION = 4 };

/* One row being read: the text of each column, NULL where it is empty or not there. */
struct hcp_text_row {
    const char *name;
    long line;
    const char *value[HCP_MAX_TEXT_COLUMNS];
    char number[HCP_MAX_TEXT_COLUMNS][32]; /* room for values that are no text yet */
    double *raw;                           /* samples; grows, reused */
    size_t n_raw, raw_room;
};
void hcp_text_row_begin(struct hcp_text_row *row, const char *name, long line);
int hcp_text_row_sample(struct hcp_text_row *row, double ms, struct hcp_err *err);
/* Reads the values, checks the row and appends it to out. */
int hcp_text_row_end(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err);
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
