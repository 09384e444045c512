/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/cli.h"
#include "db/text-internal.h"

struct writer {
    FILE *out;
    enum hcp_text_format format;
    size_t rows;
    int kind;    /* of the rows being visited: index into hcp_kinds */
    int version; /* of the text format that the rows need */
    char **uids; /* runs that have rows in the selection */
    size_t n_uids;
    struct hcp_err *err;
};

static int check(const struct writer *w)
{
    return hcp_cli_written(w->out)
               ? hcp_fail(w->err, HCP_FAILED, "cannot write the export: %s",
                          strerror(errno ? errno : EIO))
               : HCP_OK;
}

static void put_csv(const char *text, FILE *out)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

/* A value that is there, with its type. */
static json_t *column_json(const struct hcp_column *c, const void *row, const char *text)
{
    const char *field = (const char *)row + c->offset;

    return c->type == HCP_COL_TEXT   ? json_string(text)
           : c->type == HCP_COL_REAL ? json_real(*(const double *)(const void *)field)
                                     : json_integer(atoll(text));
}

static void put_samples(const struct hcp_cell *cell, FILE *out)
{
    char number[32];

    for (int32_t i = 0; i < cell->n_raw; i++)
        fprintf(out, "%s%s", i ? ";" : "", hcp_format_double(cell->raw_ms[i], number));
}

static json_t *samples_json(const struct hcp_cell *cell)
{
    json_t *samples = json_array();

    for (int32_t i = 0; i < cell->n_raw; i++)
        json_array_append_new(samples, json_real(cell->raw_ms[i]));
    return samples;
}

/* Each column of the file that the kind (-1: a cell) has. */
static void row_csv(const struct writer *w, int kind, const void *row)
{
    const char *word = kind < 0 ? "cell" : hcp_kinds[kind]->words;
    char number[32];

    for (int i = 0; i < hcp_text_n_columns(); i++) {
        const struct hcp_column *c = hcp_text_column_of(kind, i);
        if (hcp_text_column_version(i) > w->version)
            continue;
        if (i)
            putc(',', w->out);
        if (c)
            put_csv(hcp_column_text(c, row, number), w->out);
        else if (i == hcp_text_kind_column())
            fputs(word, w->out);
        else if (kind < 0 && i == hcp_text_samples_column())
            put_samples(row, w->out);
    }
    putc('\n', w->out);
}

static void row_json(const struct writer *w, int kind, const void *row)
{
    json_t *object = json_object();
    char number[32];

    for (int i = 0; i < hcp_text_n_columns(); i++) {
        const struct hcp_column *c = hcp_text_column_of(kind, i);
        const char *text = c ? hcp_column_text(c, row, number) : "";
        const struct hcp_cell *cell = kind < 0 ? row : NULL;
        if (*text)
            json_object_set_new(object, c->name, column_json(c, row, text));
        else if (!c && !cell && i == hcp_text_kind_column())
            json_object_set_new(object, "kind", json_string(hcp_kinds[kind]->words));
        else if (cell && cell->n_raw && i == hcp_text_samples_column())
            json_object_set_new(object, "samples_ms", samples_json(cell));
    }
    hcp_json_print(object, w->out);
}

static int write_row(struct writer *w, int kind, const void *row)
{
    w->rows++;
    if (w->format == HCP_TEXT_JSONL)
        row_json(w, kind, row);
    else
        row_csv(w, kind, row);
    return check(w);
}

static int write_cell(const struct hcp_cell *cell, void *ctx)
{
    return write_row(ctx, -1, cell);
}

static int write_other(const void *row, void *ctx)
{
    struct writer *w = ctx;

    return write_row(w, w->kind, row);
}

static int remember(struct writer *w, const char *uid)
{
    char **grown;

    for (size_t i = w->n_uids; i-- > 0;)
        if (!strcmp(w->uids[i], uid))
            return HCP_OK;
    grown = realloc(w->uids, (w->n_uids + 1) * sizeof *grown);
    if (!grown)
        return hcp_fail(w->err, HCP_FAILED, "out of memory");
    w->uids = grown;
    grown[w->n_uids] = strdup(uid);
    return grown[w->n_uids++] ? HCP_OK : hcp_fail(w->err, HCP_FAILED, "out of memory");
}

/* The format that a row needs: of its kind, or of a newer column that it has a value
 * for. */
static void need_version(struct writer *w, int version, const struct hcp_column *columns,
                         size_t n, const void *row)
{
    for (const struct hcp_column *c = columns; c < columns + n; c++)
        if (c->since > version && !hcp_column_unknown(c, row))
            version = c->since;
    w->version = version > w->version ? version : w->version;
}

static int remember_cell(const struct hcp_cell *cell, void *ctx)
{
    need_version(ctx, 1, hcp_columns, hcp_n_columns, cell);
    return remember(ctx, cell->run_uid);
}

static int remember_other(const void *row, void *ctx)
{
    struct writer *w = ctx;
    const struct hcp_kind *k = hcp_kinds[w->kind];
    const struct hcp_rows *r = k->rows;
    int version = k->version;

    if (k == &hcp_link_kind &&
        !strcmp(((const struct hcp_link_row *)row)->transport, "copy"))
        version = 3;
    need_version(w, version, r->columns, r->n, row);
    return remember(w, (const char *)row + hcp_rows_column(r, "run_uid")->offset);
}

static int write_note(const struct hcp_run *run, void *ctx)
{
    struct writer *w = ctx;
    const char *p = run->note;
    int wanted = 0;

    for (size_t i = 0; i < w->n_uids; i++)
        wanted |= !strcmp(w->uids[i], run->uid);
    if (!wanted || !*p)
        return HCP_OK;
    if (w->format == HCP_TEXT_JSONL) {
        hcp_json_print(json_pack("{s:s,s:s}", "run_uid", run->uid, "run_note", p),
                       w->out);
        return check(w);
    }
    for (;;) {
        int n = (int)strcspn(p, "\n");
        fprintf(w->out, "# run %s: %.*s\n", run->uid, n, p);
        if (!p[n])
            return check(w);
        p += n + 1;
    }
}

static void write_header(const struct writer *w)
{
    fprintf(w->out, "# " HCP_TEXT_MAGIC "%d; columns: hcp-db(5)\n", w->version);
}

static void write_names(const struct writer *w)
{
    for (int i = 0; i < hcp_text_n_columns(); i++)
        if (hcp_text_column_version(i) <= w->version)
            fprintf(w->out, "%s%s", i ? "," : "", hcp_text_column_name(i));
    putc('\n', w->out);
}

/* Visits the rows of every kind but those that have no column for something that the
 * filter asks for. */
static int each_other(hcp_db *db, const struct hcp_filter *f, struct writer *w,
                      int (*visit)(const void *row, void *ctx))
{
    int rc = HCP_OK;

    for (w->kind = 0; !rc && w->kind < HCP_N_KINDS; w->kind++) {
        if (hcp_kind_answers(hcp_kinds[w->kind], f))
            rc = hcp_kind_each(db, hcp_kinds[w->kind], f, visit, w, w->err);
    }
    return rc;
}

static int write_all(hcp_db *db, const struct hcp_filter *filter,
                     enum hcp_text_format format, FILE *out, size_t *rows,
                     struct hcp_err *err)
{
    struct writer w = {.out = out,
                       .format = format == HCP_TEXT_JSONL ? format : HCP_TEXT_CSV,
                       .version = 1,
                       .err = err};
    int rc = hcp_db_each_cell(db, filter, 0, remember_cell, &w, err);

    if (!rc)
        rc = each_other(db, filter, &w, remember_other);
    if (!rc && w.format == HCP_TEXT_CSV)
        write_header(&w);
    if (!rc)
        rc = hcp_db_each_run(db, write_note, &w, err);
    if (!rc && w.format == HCP_TEXT_CSV)
        write_names(&w);
    if (!rc)
        rc = hcp_db_each_cell(db, filter, 1, write_cell, &w, err);
    if (!rc)
        rc = each_other(db, filter, &w, write_other);
    for (size_t i = 0; i < w.n_uids; i++)
        free(w.uids[i]);
    free(w.uids);
    if (!rc)
        *rows = w.rows;
    return rc;
}

/* One snapshot, or the columns would not be those of the rows where a sweep is writing;
 * and all of it before any is written: a reader of out that takes its time, such as a
 * pager, would keep that sweep from its database. */
int hcp_text_write(hcp_db *db, const struct hcp_filter *filter,
                   enum hcp_text_format format, FILE *out, size_t *rows,
                   struct hcp_err *err)
{
    const struct writer w = {.out = out, .err = err};
    char *text = NULL;
    size_t size = 0;
    FILE *all = open_memstream(&text, &size);
    int rc = all ? hcp_db_exec(db, "BEGIN", "read", err)
                 : hcp_fail(err, HCP_FAILED, "out of memory");

    if (!rc)
        rc = write_all(db, filter, format, all, rows, err);
    if (all)
        hcp_db_rollback(db);
    if (all && fclose(all) && !rc)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    if (!rc) {
        fwrite(text, 1, size, out);
        rc = check(&w);
    }
    free(text);
    return rc;
}
