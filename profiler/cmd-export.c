/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "db/cli.h"
#include "db/text.h"
#include "profiler/commands.h"

struct args {
    const char *db, *output;
    enum hcp_text_format format;
    struct hcp_filter filter;
};

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database to read ($HCP_DB, else hcp.db)", 0},
    {"format", 'f', "FORMAT", 0,
     "csv or jsonl (csv, or by the ending of the output file)", 0},
    {"output", 'o', "FILE", 0, "Write here instead of standard output", 0},
    {"json", 'j', NULL, 0, "The same as --format jsonl", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case 'd':
        a->db = arg;
        return 0;
    case 'o':
        a->output = arg;
        return 0;
    case 'j':
        a->format = HCP_TEXT_JSONL;
        return 0;
    case 'f':
        if (!strcmp(arg, "csv"))
            a->format = HCP_TEXT_CSV;
        else if (!strcmp(arg, "jsonl"))
            a->format = HCP_TEXT_JSONL;
        else
            argp_error(state, "--format '%s' is not known; expected csv or jsonl", arg);
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->filter;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; the output file is given with -o", arg);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static int run(const struct args *a, struct hcp_err *err)
{
    enum hcp_text_format format = a->format;
    size_t len = a->output ? strlen(a->output) : 0, rows = 0;
    hcp_db *db = NULL;
    FILE *out = stdout;
    const char *name = hcp_cli_db(a->db, err);
    int rc = name ? hcp_db_open(name, HCP_DB_READ, &db, err) : err->code;

    if (rc)
        return rc;
    if (!format && len > 6 && !strcmp(a->output + len - 6, ".jsonl"))
        format = HCP_TEXT_JSONL;
    if (a->output && !(out = fopen(a->output, "we")))
        rc = hcp_fail(err, HCP_FAILED, "cannot write '%s': %s", a->output,
                      strerror(errno));
    if (!rc)
        rc = hcp_text_write(db, &a->filter, format, out, &rows, err);
    if (out && out != stdout && (fclose(out) && !rc))
        rc = hcp_fail(err, HCP_FAILED, "cannot write '%s': %s", a->output,
                      strerror(errno));
    if (!rc && !rows)
        rc = hcp_fail(
            err, HCP_NO_ANSWER,
            "no rows of '%s' match; 'hcp-profile show --db %s' lists what is there",
            hcp_db_path(db), hcp_db_path(db));
    hcp_db_close(db);
    return rc;
}

int cmd_export(int argc, char **argv)
{
    static const struct argp_child children[] = {{&hcp_filter_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Writes the rows of a profile database as text with every digit and every column "
        "(hcp-db(5)); 'hcp-profile import' reads it back.",
        children,
        NULL,
        NULL};
    struct args a = {0};
    struct hcp_err err = {0};
    int rc;

    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    rc = run(&a, &err);
    if (rc)
        hcp_cli_report(&err);
    return hcp_cli_finish(rc);
}
