/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "db/cli.h"
#include "profiler/commands.h"

enum { OPT_CONFLICTS = 0x2000, SHOWN = 5 };

struct args {
    const char *db;
    char **files; /* the database to add to first, unless --db names it */
    int n_files;
    int json, keep_going;
    int all; /* every conflict, not the first of each file */
};

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database to add to; otherwise the first one named", 0},
    {"conflicts", OPT_CONFLICTS, NULL, 0,
     "List every conflict, not only the first five of each file", 0},
    {"keep-going", 'k', NULL, 0,
     "Merge the other databases when some cannot be; ends with 1 all the same", 0},
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
    case 'k':
        a->keep_going = 1;
        return 0;
    case OPT_CONFLICTS:
        a->all = 1;
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

/* ---- one file's report ---- */

/* Conflicts as lines or objects, kept until the file's transaction is through. */
struct report {
    const struct args *args;
    FILE *text; /* into lines */
    char *lines;
    size_t size, shown;
    json_t *conflicts; /* with --json */
};

static json_t *value_json(const struct hcp_conflict_value *v, const char *text)
{
    double n;

    if (!*text)
        return json_null();
    if (!v->number || hcp_parse_double(text, &n, NULL))
        return json_string(text);
    return strpbrk(text, ".e") ? json_real(n) : json_integer(atoll(text));
}

static json_t *conflict_json(const struct hcp_merge_conflict *c)
{
    json_t *row = json_pack("{s:s}", "kind", c->kind), *differ = json_array();

    for (size_t i = 0; i < c->n_identity; i++)
        if (strcmp(c->identity[i].name, "kind"))
            json_object_set_new(row, c->identity[i].name,
                                value_json(&c->identity[i], c->identity[i].stored));
    for (size_t i = 0; i < c->n_differ; i++) {
        const struct hcp_conflict_value *v = &c->differ[i];
        json_array_append_new(differ, json_pack("{s:s, s:o, s:o}", "column", v->name,
                                                "stored", value_json(v, v->stored),
                                                "other", value_json(v, v->other)));
    }
    return json_pack("{s:o, s:o}", "row", row, "differ", differ);
}

static const char *known(const char *text)
{
    return *text ? text : "nothing";
}

/* "  cell, device gpu-x, ..., run_uid r1: time_ms 1.5, not 2.5": what is stored first */
static void conflict_text(const struct hcp_merge_conflict *c, FILE *out)
{
    fprintf(out, "  %s", c->kind);
    for (size_t i = 0; i < c->n_identity; i++)
        if (*c->identity[i].stored && strcmp(c->identity[i].name, "kind"))
            fprintf(out, ", %s %s", c->identity[i].name, c->identity[i].stored);
    for (size_t i = 0; i < c->n_differ; i++)
        fprintf(out, "%s %s %s, not %s", i ? ";" : ":", c->differ[i].name,
                known(c->differ[i].stored), known(c->differ[i].other));
    fputc('\n', out);
}

static int see_conflict(const struct hcp_merge_conflict *c, void *ctx)
{
    struct report *r = ctx;

    if (r->conflicts)
        json_array_append_new(r->conflicts, conflict_json(c));
    else if (r->args->all || r->shown < SHOWN)
        conflict_text(c, r->text);
    r->shown += r->args->all || r->shown < SHOWN;
    return HCP_OK;
}

static void print_report(struct report *r, const char *from, const char *into,
                         const struct hcp_merge_tally *t, json_t *list)
{
    if (list) {
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:O}", "file", from, "kept",
                            (json_int_t)t->kept, "skipped", (json_int_t)t->skipped,
                            "conflicts", (json_int_t)t->conflicts, "models_not_merged",
                            (json_int_t)t->models, "conflict_rows", r->conflicts));
        return;
    }
    printf("%s: %zu kept, %zu skipped (already there), %zu in conflict%s -> %s\n", from,
           t->kept, t->skipped, t->conflicts,
           t->conflicts ? " (the stored values stay)" : "", into);
    fflush(r->text);
    fputs(r->lines, stdout);
    if (r->shown < t->conflicts)
        printf("  and %zu more; --conflicts lists them\n", t->conflicts - r->shown);
    if (t->models)
        printf("%s: %zu models not merged; fit again with 'hcp-plan fit --db %s'\n", from,
               t->models, into);
}

static int merge_one(hcp_db *into, const char *file, const struct args *a, json_t *list,
                     struct hcp_err *err)
{
    struct report r = {.args = a, .conflicts = list ? json_array() : NULL};
    struct hcp_merge_tally tally;
    hcp_db *from = NULL;
    int rc;

    r.text = open_memstream(&r.lines, &r.size);
    rc = r.text ? hcp_db_open(file, HCP_DB_READ, &from, err)
                : hcp_fail(err, HCP_FAILED, "out of memory");
    if (!rc)
        rc = hcp_db_merge_visit(into, from, see_conflict, &r, &tally, err);
    hcp_db_close(from);
    if (!rc)
        print_report(&r, file, hcp_db_path(into), &tally, list);
    if (r.text)
        fclose(r.text);
    free(r.lines);
    json_decref(r.conflicts);
    return rc;
}

/* ---- all files ---- */

struct failure {
    int failed;
    struct hcp_err err;
};

/* Every source is opened before the first row is written: a wrong name late in the
 * list leaves nothing half done. Says what is wrong with each; returns how many cannot be
 * read. */
static int check_sources(const struct args *a, const char *into, int first,
                         struct failure *failures)
{
    int failed = 0;

    for (int i = first; i < a->n_files; i++) {
        struct failure *f = &failures[i];
        hcp_db *from = NULL;
        if (same_file(a->files[i], into))
            hcp_fail(&f->err, HCP_USAGE, "'%s' is the database to add to; name another",
                     a->files[i]);
        else
            hcp_db_open(a->files[i], HCP_DB_READ, &from, &f->err);
        hcp_db_close(from);
        f->failed = f->err.code != HCP_OK;
        failed += f->failed;
        if (f->failed)
            hcp_cli_report(&f->err);
    }
    return failed;
}

static json_t *failure_json(const char *file, const struct hcp_err *err)
{
    return json_pack("{s:s, s:s}", "file", file, "error", err->text);
}

/* Of files that cannot be merged, the worst code: a wrong use before a failure. */
static int merge_files(const struct args *a, const char *path, int first, json_t *list,
                       struct failure *failures)
{
    struct hcp_err err = {0};
    hcp_db *into = NULL;
    int rc = hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &into, &err), code = HCP_OK;

    if (rc)
        return hcp_cli_report(&err);
    for (int i = first; i < a->n_files && (!code || a->keep_going); i++) {
        struct failure *f = &failures[i];
        if (!f->failed && merge_one(into, a->files[i], a, list, &f->err)) {
            f->failed = 1;
            hcp_cli_report(&f->err);
        }
        if (!f->failed)
            continue;
        code = HCP_FAILED;
        if (list)
            json_array_append_new(list, failure_json(a->files[i], &f->err));
    }
    hcp_db_close(into);
    return code;
}

int cmd_merge(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "INTO.db FROM.db...",
        "Adds the measurements of other databases to one. Rows of the same run are never "
        "counted twice; where the same cell has other values, the stored ones stay. If a "
        "database cannot be read, nothing is merged, unless --keep-going is given.",
        NULL,
        NULL,
        NULL};
    struct args a = {0};
    struct hcp_err err = {0};
    struct failure *failures;
    const char *into;
    json_t *list;
    int first, failed, rc;

    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    first = a.db == NULL;
    into = a.db ? hcp_cli_db(a.db, &err) : a.files[0];
    if (!into)
        return hcp_cli_report(&err);
    failures = calloc((size_t)a.n_files, sizeof *failures);
    if (!failures) {
        hcp_fail(&err, HCP_FAILED, "out of memory");
        return hcp_cli_report(&err);
    }
    list = a.json ? json_array() : NULL;
    failed = check_sources(&a, into, first, failures);
    if (failed && !a.keep_going) {
        rc = HCP_FAILED;
        for (int i = first; i < a.n_files; i++)
            rc = failures[i].err.code == HCP_USAGE ? HCP_USAGE : rc;
        if (failed > 1)
            fprintf(stderr,
                    "%d of %d databases cannot be read; nothing was merged "
                    "(--keep-going merges the others)\n",
                    failed, a.n_files - first);
    } else {
        rc = merge_files(&a, into, first, list, failures);
        if (list)
            hcp_json_print(json_incref(list), stdout);
    }
    json_decref(list);
    free(failures);
    return hcp_cli_finish(rc);
}
