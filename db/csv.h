/* SPDX-License-Identifier: Apache-2.0
 *
 * Reader of comma-separated text (RFC 4180): quoted fields, CRLF or LF, a UTF-8
 * byte-order mark is skipped, empty lines are skipped. Works in memory, since a file
 * is imported whole or not at all.
 */
#ifndef HCP_CSV_H
#define HCP_CSV_H
#include <stddef.h>
#include <stdio.h>
#include "db/error.h"

/* Everything in a stream, NUL-terminated; *size without the NUL. malloc'ed. name is
 * for messages. Refuses NUL bytes (a binary file). */
int hcp_read_all(FILE *in, const char *name, char **text, size_t *size,
                 struct hcp_err *err);

/* First content byte of text: skips a byte-order mark; UTF-16 is refused. */
int hcp_skip_bom(char *text, const char *name, char **start, struct hcp_err *err);

struct hcp_csv {
    const char *name; /* for messages */
    char *next;       /* unread text; rows are cut up in place */
    long line;        /* where the last row began, from 1 */
    long next_line;
    char **fields; /* of the last row, valid until the next call */
    size_t n, room;
};
/* text is changed and must outlive the reader. */
void hcp_csv_init(struct hcp_csv *csv, const char *name, char *text);
void hcp_csv_free(struct hcp_csv *csv);
/* Next line if it starts with '#' (without the '#' and one space), else NULL. */
char *hcp_csv_comment(struct hcp_csv *csv);
/* HCP_OK and *more = 1 with fields filled, or *more = 0 at the end. */
int hcp_csv_row(struct hcp_csv *csv, int *more, struct hcp_err *err);

#endif
