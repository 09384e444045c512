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

/* A column of a row as text; "" where it is not known. */
static const char *column_text(const struct hcp_column *c, const void *row,
                               char number[32])
{
    const void *field = (const char *)row + c->offset;
    int64_t n;

    if (c->type == HCP_COL_TEXT)
        return field;
    if (c->type == HCP_COL_REAL)
        return isnan(*(const double *)field)
                   ? ""
                   : hcp_format_double(*(const double *)field, number);
    n = c->type == HCP_COL_INT32 ? *(const int32_t *)field : *(const int64_t *)field;
    if (n == c->unknown)
        return "";
    snprintf(number, 32, "%lld", (long long)n);
    return number;
}

/* A value that is there, with its type. */
static json_t *column_json(const struct hcp_column *c, const void *row, const char *text)
{
    const char *field = (const char *)row + c->offset;

    return c->type == HCP_COL_TEXT   ? json_string(text)
           : c->type == HCP_COL_REAL ? json_real(*(const double *)(const void *)field)
                                     : json_integer(atoll(text));
}

/* Fills up a CSV row of another kind than links. */
static void end_csv(const struct writer *w)
{
    const char *name;

    for (int i = HCP_LINK_COLUMN(-1);
         (i = hcp_text_next_column(i, w->version, &name)) >= 0;)
        putc(',', w->out);
    putc('\n', w->out);
}

static void cell_csv(const struct hcp_cell *cell, struct writer *w)
{
    char number[32];

    for (size_t i = 0; i < hcp_n_columns; i++) {
        if (hcp_text_column_version((int)i) > w->version)
            continue;
        put_csv(column_text(&hcp_columns[i], cell, number), w->out);
        putc(',', w->out);
    }
    for (int32_t i = 0; i < cell->n_raw; i++)
        fprintf(w->out, "%s%s", i ? ";" : "", hcp_format_double(cell->raw_ms[i], number));
    fputs(",cell,,", w->out);
    end_csv(w);
}

static void cell_json(const struct hcp_cell *cell, struct writer *w)
{
    json_t *row = json_object(), *samples;
    char number[32];

    for (size_t i = 0; i < hcp_n_columns; i++) {
        const struct hcp_column *c = &hcp_columns[i];
        const char *text = column_text(c, cell, number);
        if (!*text)
            continue;
        json_object_set_new(row, c->name, column_json(c, cell, text));
    }
    if (cell->n_raw) {
        samples = json_array();
        for (int32_t i = 0; i < cell->n_raw; i++)
            json_array_append_new(samples, json_real(cell->raw_ms[i]));
        json_object_set_new(row, "samples_ms", samples);
    }
    hcp_json_print(row, w->out);
}

static int write_cell(const struct hcp_cell *cell, void *ctx)
{
    struct writer *w = ctx;

    w->rows++;
    if (w->format == HCP_TEXT_JSONL)
        cell_json(cell, w);
    else
        cell_csv(cell, w);
    return check(w);
}

/* A bandwidth row in the columns of a cell: what it shares with one, and nothing of
 * the shape. */
static void bandwidth_fields(const struct hcp_bandwidth *b, struct hcp_cell *cell)
{
    hcp_cell_init(cell);
    memset(&cell->key, 0, sizeof cell->key);
    cell->key.batch = cell->key.heads = cell->key.kv_heads = cell->key.head_dim = -1;
    cell->mask[0] = cell->status[0] = '\0';
    memcpy(cell->key.device, b->device, sizeof b->device);
    memcpy(cell->key.limit, b->limit, sizeof b->limit);
    cell->sm_seen = b->sm_seen;
    cell->sm_count = b->sm_count;
    memcpy(cell->origin, b->origin, sizeof b->origin);
    memcpy(cell->run_uid, b->run_uid, sizeof b->run_uid);
    memcpy(cell->host, b->host, sizeof b->host);
    memcpy(cell->device_uuid, b->device_uuid, sizeof b->device_uuid);
    memcpy(cell->device_name, b->device_name, sizeof b->device_name);
    memcpy(cell->driver, b->driver, sizeof b->driver);
    memcpy(cell->cuda_version, b->cuda_version, sizeof b->cuda_version);
    memcpy(cell->tool_version, b->tool_version, sizeof b->tool_version);
    memcpy(cell->measured_at, b->measured_at, sizeof b->measured_at);
}

static int write_bandwidth(const struct hcp_bandwidth *b, void *ctx)
{
    struct writer *w = ctx;
    struct hcp_cell cell;
    char number[32];

    bandwidth_fields(b, &cell);
    w->rows++;
    if (w->format == HCP_TEXT_CSV) {
        for (size_t i = 0; i < hcp_n_columns; i++) {
            if (hcp_text_column_version((int)i) > w->version)
                continue;
            put_csv(column_text(&hcp_columns[i], &cell, number), w->out);
            putc(',', w->out);
        }
        fprintf(w->out, ",%s,%s,", b->kind, hcp_format_double(b->gb_per_s, number));
        if (b->bytes)
            fprintf(w->out, "%lld", (long long)b->bytes);
        end_csv(w);
    } else {
        json_t *row = json_object();
        for (size_t i = 0; i < hcp_n_columns; i++) {
            const struct hcp_column *c = &hcp_columns[i];
            const char *text = column_text(c, &cell, number);
            if (*text)
                json_object_set_new(row, c->name, column_json(c, &cell, text));
        }
        json_object_set_new(row, "kind", json_string(b->kind));
        json_object_set_new(row, "gb_per_s", json_real(b->gb_per_s));
        if (b->bytes)
            json_object_set_new(row, "bytes", json_integer(b->bytes));
        hcp_json_print(row, w->out);
    }
    return check(w);
}

/* A finish or link row: each column of the file that its list has. kind: where the list
 * has no such column. */
static int write_row(struct writer *w, const struct hcp_rows *rows, const void *row,
                     const char *kind)
{
    json_t *object = w->format == HCP_TEXT_JSONL ? json_object() : NULL;
    const char *name;
    char number[32];
    int first = 1;

    w->rows++;
    for (int i = -1; (i = hcp_text_next_column(i, w->version, &name)) >= 0; first = 0) {
        const struct hcp_column *c = hcp_rows_column(rows, name);
        const char *text = c                       ? column_text(c, row, number)
                           : !strcmp(name, "kind") ? kind
                                                   : "";
        if (!object) {
            fputs(first ? "" : ",", w->out);
            put_csv(text, w->out);
        } else if (*text) {
            json_object_set_new(object, name,
                                c ? column_json(c, row, text) : json_string(text));
        }
    }
    if (object)
        hcp_json_print(object, w->out);
    else
        putc('\n', w->out);
    return check(w);
}

static int write_finish(const struct hcp_finish_row *row, void *ctx)
{
    return write_row(ctx, &hcp_finish_rows, row, row->kind);
}

static int write_link(const struct hcp_link_row *row, void *ctx)
{
    return write_row(ctx, &hcp_link_rows, row, "link");
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

static void need_version(struct writer *w, int version)
{
    w->version = version > w->version ? version : w->version;
}

static int remember_cell(const struct hcp_cell *cell, void *ctx)
{
    need_version(ctx, isnan(cell->boosted_ms) ? 1 : 3);
    return remember(ctx, cell->run_uid);
}

static int remember_bandwidth(const struct hcp_bandwidth *b, void *ctx)
{
    return remember(ctx, b->run_uid);
}

static int remember_finish(const struct hcp_finish_row *row, void *ctx)
{
    need_version(ctx, *row->provider_version ? 3 : 2);
    return remember(ctx, row->from.run_uid);
}

static int remember_link(const struct hcp_link_row *row, void *ctx)
{
    need_version(ctx, row->channels != -1 || !strcmp(row->transport, "copy") ? 3 : 2);
    return remember(ctx, row->from.run_uid);
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
    const char *name;

    for (int i = -1; (i = hcp_text_next_column(i, w->version, &name)) >= 0;)
        fprintf(w->out, "%s%s", i ? "," : "", name);
    putc('\n', w->out);
}

static int given(const char *text)
{
    return text && *text;
}

/* A filter on what a kind of row has not leaves its rows out. */
static int wants_finishes(const struct hcp_filter *f)
{
    return !f || !(given(f->mask) || given(f->status));
}

/* The same for bandwidth and link rows, which have no kernel and no shape. */
static int wants_shapeless(const struct hcp_filter *f)
{
    return !f ||
           (wants_finishes(f) && !given(f->provider) && !given(f->dtype) &&
            !given(f->phase) && !(f->batch || f->heads || f->kv_heads || f->head_dim));
}

int hcp_text_write(hcp_db *db, const struct hcp_filter *filter,
                   enum hcp_text_format format, FILE *out, size_t *rows,
                   struct hcp_err *err)
{
    struct writer w = {.out = out,
                       .format = format == HCP_TEXT_JSONL ? format : HCP_TEXT_CSV,
                       .version = 1,
                       .err = err};
    const int shapeless = wants_shapeless(filter), finishes = wants_finishes(filter);
    int rc = hcp_db_each_cell(db, filter, 0, remember_cell, &w, err);

    if (!rc && shapeless)
        rc = hcp_db_each_bandwidth(db, filter, remember_bandwidth, &w, err);
    if (!rc && finishes)
        rc = hcp_db_each_finish(db, filter, remember_finish, &w, err);
    if (!rc && shapeless)
        rc = hcp_db_each_link(db, filter, remember_link, &w, err);
    if (!rc && w.format == HCP_TEXT_JSONL)
        w.version = HCP_TEXT_VERSION; /* no header: a row has the keys it needs */
    if (!rc && w.format == HCP_TEXT_CSV)
        write_header(&w);
    if (!rc)
        rc = hcp_db_each_run(db, write_note, &w, err);
    if (!rc && w.format == HCP_TEXT_CSV)
        write_names(&w);
    if (!rc)
        rc = hcp_db_each_cell(db, filter, 1, write_cell, &w, err);
    if (!rc && shapeless)
        rc = hcp_db_each_bandwidth(db, filter, write_bandwidth, &w, err);
    if (!rc && finishes)
        rc = hcp_db_each_finish(db, filter, write_finish, &w, err);
    if (!rc && shapeless)
        rc = hcp_db_each_link(db, filter, write_link, &w, err);
    for (size_t i = 0; i < w.n_uids; i++)
        free(w.uids[i]);
    free(w.uids);
    if (!rc)
        *rows = w.rows;
    return rc;
}
