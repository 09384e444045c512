/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows as text, CSV or JSON lines, in the format of hcp-db(5). Part of libhcpcli.
 */
#ifndef HCP_TEXT_H
#define HCP_TEXT_H
#include <stdio.h>
#include "db/db.h"

enum hcp_text_format { HCP_TEXT_AUTO, HCP_TEXT_CSV, HCP_TEXT_JSONL };

/* A file in memory: every row checked, run_uid filled in, no two rows that
 * contradict each other. */
struct hcp_text_note {
    char run_uid[40]; /* "" = every run of the file without a note of its own */
    char *note;
};
/* Rows of one kind other than cells, in the order of hcp_kinds (db-internal.h). */
enum { HCP_TEXT_KINDS = 7 };
struct hcp_text_rows {
    void *rows;
    size_t n;
};
struct hcp_text {
    struct hcp_cell *cells; /* raw_ms malloc'ed each */
    long *cell_lines;
    size_t n_cells;
    struct hcp_text_rows others[HCP_TEXT_KINDS];
    struct hcp_text_note *notes;
    size_t n_notes;
    size_t ignored; /* unknown columns that were ignored on request */
};

/* Reads a whole stream. name is for messages ("FILE:LINE: ..."). AUTO: JSON lines if the
 * text starts with '{' or name ends in .jsonl or .ndjson, else CSV. Rows without
 * origin are "recorded"; rows without run_uid get one made from the rows' content, so
 * that the same file is the same run wherever it is read. Any bad row: HCP_FAILED
 * with file, line, column, value and what was expected; nothing is returned. */
int hcp_text_load(FILE *in, const char *name, enum hcp_text_format format,
                  int ignore_unknown, struct hcp_text *out, struct hcp_err *err);
void hcp_text_free(struct hcp_text *text);

/* Adds the rows and notes of a file in memory to a database, in one transaction. The
 * tally counts from what it is. */
struct hcp_text_tally {
    size_t kept, replaced, same, conflicts;
};
int hcp_text_store(hcp_db *db, const struct hcp_text *text, struct hcp_text_tally *tally,
                   struct hcp_err *err);

/* Opens "-" (standard input), a path (has a '/' or a '.'), or the name of a recorded
 * machine: $HCP_PROFILES/NAME.csv, else PKGDATADIR/profiles/NAME.csv. The path goes
 * to path for messages. Not found: HCP_FAILED with the names there are. Close *out
 * unless it is stdin. */
int hcp_text_open(const char *name, FILE **out, char *path, size_t path_size,
                  struct hcp_err *err);

/* Writes the cells (with raw samples), the rows of other kinds and the run notes that
 * pass the filter, in a fixed order and with every digit: reading it back gives the same
 * rows. Ring runs have no text form. *rows counts all but the notes. */
int hcp_text_write(hcp_db *db, const struct hcp_filter *filter,
                   enum hcp_text_format format, FILE *out, size_t *rows,
                   struct hcp_err *err);

#endif
