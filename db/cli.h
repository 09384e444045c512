/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs share on the command line: numbers, shape options, tables,
 * JSON. Lives in its own convenience library (libsmartcols, jansson) and never in
 * libhcpplan. Number parsing never depends on the locale.
 */
#ifndef HCP_CLI_H
#define HCP_CLI_H
#include <argp.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include "db/db.h"
#include "db/parse.h" /* numbers, lengths, limits */

/* One rank "DEVICE[@LIMIT]" or "N*DEVICE[@LIMIT]", comma separated list. *ranks
 * malloc'ed array of keys with device and limit set. A device "spec:NAME" is a data sheet
 * of hcp-plan(1). */
int hcp_parse_ranks(const char *text, struct hcp_key **ranks, size_t *n,
                    struct hcp_err *err);

/* Shape options, the same everywhere: an argp child that fills this. */
struct hcp_shape_args {
    int64_t seq_len; /* 0 = not given */
    int32_t heads, kv_heads, head_dim, batch;
    char dtype[8], mask[8], layout[12], phase[8]; /* layout "" = not given */
};
/* 32/8 heads, head dim 128, bf16, batch 1, full, prefill */
void hcp_shape_defaults(struct hcp_shape_args *shape);
extern const struct argp hcp_shape_argp; /* child input: struct hcp_shape_args * */
int hcp_shape_check(const struct hcp_shape_args *shape, struct hcp_err *err);

/* Which rows: an argp child that fills a filter (zero it first):
 * --device --limit --provider --dtype --mask --phase --origin --host --run, shape
 * numbers. --limit '' is the whole device. */
extern const struct argp hcp_filter_argp; /* child input: struct hcp_filter * */

/* The database that --db names (NULL: not given), else $HCP_DB, else "hcp.db", with %h
 * replaced by the host name and %% by %: one command for many nodes. Anything else after
 * a %: HCP_USAGE. NULL and err on failure; valid until the next call. */
const char *hcp_cli_db(const char *given, struct hcp_err *err);

/* A program of commands, like git's: runs the one argv[1] names with its own argv, or
 * prints the list (--help), the version (--version) or an error. The list ends with a
 * NULL name. Returns the exit code. */
struct hcp_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* half a line */
};
int hcp_cli_main(const char *program, const struct hcp_command *commands, int argc,
                 char **argv);

/* Prints "PROGRAM: text" on stderr and returns err->code (HCP_FAILED if it is 0). */
int hcp_cli_report(const struct hcp_err *err);
/* Program name for messages ("hcp-plan"); set once in main. Also makes argp exit with
 * HCP_USAGE. name is kept, not copied. */
void hcp_cli_set_name(const char *name);

/* A table with typed columns; one description gives text and JSON. Numbers are
 * right-aligned. Text goes through libsmartcols, heads in upper case; JSON has the
 * names as given, so give the JSON key, with its unit: "time_ms". */
typedef struct hcp_table hcp_table;
hcp_table *hcp_table_new(void);
void hcp_table_column(hcp_table *t, const char *name, int right_align);
void hcp_table_row(hcp_table *t);
void hcp_table_cell(hcp_table *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints and frees it; non-zero if the write failed. */
int hcp_table_print(hcp_table *t, FILE *out);

/* Appends the rows to a JSON array of objects, column name to cell: cells that read as
 * a number become one. Table and array stay the caller's. */
int hcp_table_to_json(const hcp_table *t, json_t *array);
void hcp_table_free(hcp_table *t); /* for tables that are not printed */

/* Dumps JSON (one line a document, keys in insertion order, reals with 17
 * significant digits trimmed) and decrefs it; non-zero if the write failed. */
int hcp_json_print(json_t *json, FILE *out);
json_t *hcp_json_real(double v); /* null for NaN */

/* After printing: 0, or -1 if writing out has failed; remembers why for
 * hcp_cli_finish. */
int hcp_cli_written(FILE *out);
/* Flushes and checks stdout at the end of a program (disk full): exit code. */
int hcp_cli_finish(int code);

#endif
