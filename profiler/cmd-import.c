/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/cli.h"
#include "db/text.h"
#include "profiler/commands.h"

struct args {
    const char *db;
    const char *file;
    int json, ignore_unknown;
};

enum { OPT_IGNORE = 0x2000 };

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database to add to; made if missing ($HCP_DB, else hcp.db)",
     0},
    {"ignore-unknown", OPT_IGNORE, NULL, 0,
     "Leave out columns that hcp-db(5) does not list", 0},
    {"json", 'j', NULL, 0, "Report as JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case 'd':
        a->db = arg;
        return 0;
    case 'j':
        a->json = 1;
        return 0;
    case OPT_IGNORE:
        a->ignore_unknown = 1;
        return 0;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "one file at a time; '%s' is one too many", arg);
        a->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state,
                   "what to import? give a file, the name of a recorded machine, or -");
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static void report(const struct args *a, const char *path, const char *db,
                   const struct hcp_text *text, const struct hcp_text_tally *t)
{
    size_t added = t->kept + t->replaced;

    if (a->json) {
        hcp_json_print(json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "file", path,
                                 "db", db, "kept", (json_int_t)added, "replaced_failed",
                                 (json_int_t)t->replaced, "skipped", (json_int_t)t->same,
                                 "conflicts", (json_int_t)t->conflicts, "ignored_columns",
                                 (json_int_t)text->ignored),
                       stdout);
        return;
    }
    printf("%s: %zu new, %zu already there", path, added, t->same);
    if (t->replaced)
        printf(" (%zu of the new replace failed ones)", t->replaced);
    if (t->conflicts)
        printf(", %zu in conflict: the stored values stay", t->conflicts);
    printf(" -> %s\n", db);
}

static int run(const struct args *a, struct hcp_err *err)
{
    struct hcp_text text = {0};
    struct hcp_text_tally t = {0};
    char path[4096];
    const char *name = NULL;
    FILE *in = NULL;
    hcp_db *db = NULL;
    int rc = hcp_text_open(a->file, &in, path, sizeof path, err);

    if (rc)
        return rc;
    rc = hcp_text_load(in, path, HCP_TEXT_AUTO, a->ignore_unknown, &text, err);
    if (in != stdin)
        fclose(in);
    if (!rc && !(name = hcp_cli_db(a->db, err)))
        rc = err->code;
    if (!rc)
        rc = hcp_db_open(name, HCP_DB_WRITE | HCP_DB_CREATE, &db, err);
    if (!rc)
        rc = hcp_text_store(db, &text, &t, err);
    if (!rc)
        report(a, path, hcp_db_path(db), &text, &t);
    hcp_db_close(db);
    hcp_text_free(&text);
    return rc;
}

int cmd_import(int argc, char **argv)
{
    static const struct argp argp = {options,
                                     parse,
                                     "FILE|NAME|-",
                                     "Adds measurements from a CSV or JSON lines file "
                                     "(hcp-db(5)), or a recorded machine "
                                     "by NAME, to a profile database. All rows or none.",
                                     NULL,
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
