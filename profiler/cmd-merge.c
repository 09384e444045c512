/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "db/cli.h"
#include "profiler/commands.h"

struct args {
    const char *db;
    char **files; /* the database to add to first, unless --db names it */
    int n_files;
    int json;
};

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database to add to; otherwise the first one named", 0},
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
    case ARGP_KEY_ARGS:
        a->files = state->argv + state->next;
        a->n_files = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (a->n_files + (a->db != NULL) < 2)
            argp_error(state, "give the database to add to and at least one to add");
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static int same_file(const char *a, const char *b)
{
    struct stat x, y;

    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void report(const char *from, const char *into, const struct hcp_merge_tally *t,
                   json_t *list)
{
    if (list) {
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:I}", "file", from, "kept",
                            (json_int_t)t->kept, "skipped", (json_int_t)t->skipped,
                            "conflicts", (json_int_t)t->conflicts, "models_not_merged",
                            (json_int_t)t->models));
        return;
    }
    printf("%s: %zu kept, %zu skipped (already there), %zu in conflict%s -> %s\n", from,
           t->kept, t->skipped, t->conflicts,
           t->conflicts ? " (the stored values stay)" : "", into);
    if (t->models)
        printf("%s: %zu models not merged; fit again with 'hcp-plan fit --db %s'\n", from,
               t->models, into);
}

static int merge_one(hcp_db *into, const char *file, json_t *list, struct hcp_err *err)
{
    struct hcp_merge_tally tally;
    hcp_db *from = NULL;
    int rc;

    if (same_file(file, hcp_db_path(into)))
        return hcp_fail(err, HCP_USAGE, "'%s' is the database to add to; name another",
                        file);
    rc = hcp_db_open(file, HCP_DB_READ, &from, err);
    if (!rc)
        rc = hcp_db_merge(into, from, &tally, err);
    hcp_db_close(from);
    if (!rc)
        report(file, hcp_db_path(into), &tally, list);
    return rc;
}

/* Every source is opened before the first row is written: a wrong name late in the
 * list leaves nothing half done. */
static int check_sources(const struct args *a, int first, struct hcp_err *err)
{
    int rc = HCP_OK;

    for (int i = first; !rc && i < a->n_files; i++) {
        hcp_db *from = NULL;
        rc = hcp_db_open(a->files[i], HCP_DB_READ, &from, err);
        hcp_db_close(from);
    }
    return rc;
}

int cmd_merge(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "INTO.db FROM.db...",
        "Adds the measurements of other databases to one. Rows of the same run are never "
        "counted twice; where the same cell has other values, the stored ones stay.",
        NULL,
        NULL,
        NULL};
    struct args a = {0};
    struct hcp_err err = {0};
    hcp_db *into = NULL;
    json_t *list;
    int first, rc;

    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    first = a.db == NULL;
    list = a.json ? json_array() : NULL;
    rc = check_sources(&a, first, &err);
    if (!rc)
        rc = hcp_db_open(a.db ? a.db : a.files[0], HCP_DB_WRITE | HCP_DB_CREATE, &into,
                         &err);
    for (int i = first; !rc && i < a.n_files; i++)
        rc = merge_one(into, a.files[i], list, &err);
    if (!rc && list)
        hcp_json_print(list, stdout);
    else
        json_decref(list);
    hcp_db_close(into);
    if (rc)
        hcp_cli_report(&err);
    return hcp_cli_finish(rc);
}
