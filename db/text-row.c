/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "db/text-internal.h"

const char *const hcp_extra_columns[HCP_N_EXTRA] = {"samples_ms", "kind", "gb_per_s",
                                                    "bytes"};

int hcp_column_index(const char *name)
{
    for (size_t i = 0; i < hcp_n_columns; i++)
        if (!strcmp(hcp_columns[i].name, name))
            return (int)i;
    for (int i = 0; i < HCP_N_EXTRA; i++)
        if (!strcmp(hcp_extra_columns[i], name))
            return (int)hcp_n_columns + i;
    for (size_t i = 0; i < hcp_link_rows.n; i++)
        if (!strcmp(hcp_link_rows.columns[i].name, name))
            return HCP_LINK_COLUMN(i);
    return -1;
}

static const char *column_name(int column)
{
    size_t i = (size_t)column;

    if (i < hcp_n_columns)
        return hcp_columns[i].name;
    i -= hcp_n_columns;
    return i < HCP_N_EXTRA ? hcp_extra_columns[i]
                           : hcp_link_rows.columns[i - HCP_N_EXTRA].name;
}

int hcp_text_column_version(int column)
{
    static const char *const third[] = {"boosted_ms", "channels"};

    for (size_t i = 0; i < sizeof third / sizeof *third; i++)
        if (!strcmp(column_name(column), third[i]))
            return 3;
    return column < HCP_LINK_COLUMN(0) ? 1 : 2;
}

int hcp_text_next_column(int column, int version, const char **name)
{
    while (++column < HCP_LINK_COLUMN(hcp_link_rows.n)) {
        *name = column_name(column);
        if (hcp_column_index(*name) == column && /* else a cell has it too */
            hcp_text_column_version(column) <= version)
            return column;
    }
    return -1;
}

void hcp_text_row_begin(struct hcp_text_row *row, const char *name, long line)
{
    row->name = name;
    row->line = line;
    hcp_cell_init(&row->cell);
    strcpy(row->cell.origin, "recorded");
    hcp_link_row_init(&row->link);
    strcpy(row->kind, "cell");
    row->gb_per_s = NAN;
    row->bytes = 0;
    memset(row->given, 0, sizeof row->given);
}

int hcp_text_row_sample(struct hcp_text_row *row, double ms, struct hcp_err *err)
{
    size_t n = (size_t)row->cell.n_raw;

    if (n == row->raw_room) {
        size_t room = n ? n * 2 : 64;
        double *grown = realloc(row->raw, room * sizeof *grown);
        if (!grown)
            return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
        row->raw = grown;
        row->raw_room = room;
    }
    row->raw[n] = ms;
    row->cell.n_raw++;
    return HCP_OK;
}

int hcp_text_bad(const struct hcp_text_row *row, int column, const char *why,
                 struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED, "%s:%ld: column %s: %s", row->name, row->line,
                    column_name(column), why);
}

/* "0.1;0.2;0.3" */
static int set_samples(struct hcp_text_row *row, int column, const char *value,
                       struct hcp_err *err)
{
    struct hcp_err why;
    char number[64];

    for (;;) {
        size_t len = strcspn(value, ";");
        double ms;
        if (len >= sizeof number)
            return hcp_text_bad(row, column, "a sample is not a number", err);
        memcpy(number, value, len);
        number[len] = '\0';
        if (hcp_parse_double(number, &ms, &why))
            return hcp_text_bad(row, column, why.text, err);
        if (hcp_text_row_sample(row, ms, err))
            return HCP_FAILED;
        value += len;
        if (!*value)
            return HCP_OK;
        value++;
    }
}

static int set_extra(struct hcp_text_row *row, int column, const char *value,
                     struct hcp_err *err)
{
    struct hcp_err why;

    switch (column - (int)hcp_n_columns) {
    case HCP_EXTRA_SAMPLES:
        return set_samples(row, column, value, err);
    case HCP_EXTRA_KIND:
        if (hcp_check_word("kind", value, "cell copy store merge link", &why))
            return hcp_text_bad(row, column, why.text, err);
        strcpy(row->kind, value);
        return HCP_OK;
    case HCP_EXTRA_GB_PER_S:
        return hcp_parse_double(value, &row->gb_per_s, &why)
                   ? hcp_text_bad(row, column, why.text, err)
                   : HCP_OK;
    case HCP_EXTRA_BYTES:
        return hcp_parse_int(value, "bytes", 1, INT64_MAX, &row->bytes, &why)
                   ? hcp_text_bad(row, column, why.text, err)
                   : HCP_OK;
    }
    return HCP_OK;
}

int hcp_text_row_set(struct hcp_text_row *row, int column, const char *value,
                     struct hcp_err *err)
{
    const int of_link = column >= HCP_LINK_COLUMN(0);
    const struct hcp_column *c = of_link
                                     ? &hcp_link_rows.columns[column - HCP_LINK_COLUMN(0)]
                                     : &hcp_columns[column];
    struct hcp_err why;
    void *field;
    int64_t n = 0;

    if (!*value)
        return HCP_OK;
    row->given[column] = 1;
    if (!of_link && (size_t)column >= hcp_n_columns)
        return set_extra(row, column, value, err);
    field = (of_link ? (char *)&row->link : (char *)&row->cell) + c->offset;
    switch (c->type) {
    case HCP_COL_TEXT:
        if (strlen(value) >= c->size)
            return hcp_fail(err, HCP_FAILED,
                            "%s:%ld: column %s: '%.40s...' is longer than %zu bytes",
                            row->name, row->line, c->name, value, c->size - 1);
        strcpy(field, value);
        return HCP_OK;
    case HCP_COL_REAL:
        return hcp_parse_double(value, field, &why)
                   ? hcp_text_bad(row, column, why.text, err)
                   : HCP_OK;
    case HCP_COL_INT32:
    case HCP_COL_INT64:
        break;
    }
    if (hcp_parse_int(value, c->name, c->min, c->max, &n, &why))
        return hcp_text_bad(row, column, why.text, err);
    if (c->type == HCP_COL_INT64)
        *(int64_t *)field = n;
    else
        *(int32_t *)field = (int32_t)n;
    return HCP_OK;
}

void *hcp_text_grow(void *array, size_t n, size_t size)
{
    /* Doubling at powers of two. */
    return n & (n - 1) ? array : realloc(array, (n ? n * 2 : 1) * size);
}

static int need(const struct hcp_text_row *row, const char *const *names, int wanted,
                struct hcp_err *err)
{
    for (; *names; names++) {
        int column = hcp_column_index(*names);
        if (wanted && !row->given[column])
            return hcp_text_bad(row, column, "is empty; a value is required", err);
        if (!wanted && row->given[column])
            return hcp_text_bad(
                row, column, "does not apply to a row of this kind; leave it empty", err);
    }
    return HCP_OK;
}

/* Columns of links are for links. */
static int no_link(const struct hcp_text_row *row, struct hcp_err *err)
{
    for (size_t i = 0; i < hcp_link_rows.n; i++)
        if (row->given[HCP_LINK_COLUMN(i)])
            return hcp_text_bad(row, HCP_LINK_COLUMN(i),
                                "does not apply to a row of this kind; leave it empty",
                                err);
    return HCP_OK;
}

static int end_cell(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err)
{
    static const char *const required[] = {"device", "provider", "mask",
                                           "q_len",  "kv_len",   NULL};
    static const char *const foreign[] = {"gb_per_s", "bytes", NULL};
    struct hcp_cell *cell = &row->cell, *cells;
    struct hcp_err why;
    long *lines;
    int rc = need(row, required, 1, err);

    if (!rc)
        rc = no_link(row, err);
    if (!rc)
        rc = need(row, foreign, 0, err);
    if (rc)
        return rc;
    cell->raw_ms = row->raw;
    if (hcp_cell_validate(cell, &why))
        return hcp_fail(err, HCP_FAILED, "%s:%ld: %s", row->name, row->line, why.text);
    cells = hcp_text_grow(out->cells, out->n_cells, sizeof *cells);
    if (cells)
        out->cells = cells;
    lines = hcp_text_grow(out->cell_lines, out->n_cells, sizeof *lines);
    if (lines)
        out->cell_lines = lines;
    if (!cells || !lines)
        return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
    cells[out->n_cells] = *cell;
    cells[out->n_cells].raw_ms = NULL;
    lines[out->n_cells] = row->line;
    if (cell->n_raw) {
        double *raw = malloc((size_t)cell->n_raw * sizeof *raw);
        if (!raw)
            return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
        memcpy(raw, row->raw, (size_t)cell->n_raw * sizeof *raw);
        cells[out->n_cells].raw_ms = raw;
    }
    out->n_cells++;
    return HCP_OK;
}

static int end_copy(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err)
{
    static const char *const required[] = {"device", "gb_per_s", NULL};
    static const char *const foreign[] = {"provider", "mask",   "q_len",      "kv_len",
                                          "time_ms",  "min_ms", "samples_ms", NULL};
    const struct hcp_cell *c = &row->cell;
    struct hcp_bandwidth b, *list;
    struct hcp_err why;
    int rc = need(row, required, 1, err);

    if (!rc)
        rc = no_link(row, err);
    if (!rc)
        rc = need(row, foreign, 0, err);
    if (rc)
        return rc;
    hcp_bandwidth_init(&b);
    strcpy(b.kind, row->kind);
    b.gb_per_s = row->gb_per_s;
    b.bytes = row->bytes;
    b.sm_seen = c->sm_seen;
    b.sm_count = c->sm_count;
    memcpy(b.device, c->key.device, sizeof b.device);
    memcpy(b.limit, c->key.limit, sizeof b.limit);
    memcpy(b.origin, c->origin, sizeof b.origin);
    memcpy(b.run_uid, c->run_uid, sizeof b.run_uid);
    memcpy(b.host, c->host, sizeof b.host);
    memcpy(b.device_uuid, c->device_uuid, sizeof b.device_uuid);
    memcpy(b.device_name, c->device_name, sizeof b.device_name);
    memcpy(b.driver, c->driver, sizeof b.driver);
    memcpy(b.cuda_version, c->cuda_version, sizeof b.cuda_version);
    memcpy(b.tool_version, c->tool_version, sizeof b.tool_version);
    memcpy(b.measured_at, c->measured_at, sizeof b.measured_at);
    if (!*b.run_uid)
        strcpy(b.run_uid, "?"); /* named once the file is read */
    if (hcp_bandwidth_validate(&b, &why))
        return hcp_fail(err, HCP_FAILED, "%s:%ld: %s", row->name, row->line, why.text);
    if (!strcmp(b.run_uid, "?"))
        b.run_uid[0] = '\0';
    list = hcp_text_grow(out->bandwidths, out->n_bandwidths, sizeof *list);
    if (!list)
        return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
    out->bandwidths = list;
    list[out->n_bandwidths++] = b;
    return HCP_OK;
}

int hcp_text_row_end(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err)
{
    if (!strcmp(row->kind, "copy"))
        return end_copy(row, out, err);
    if (!strcmp(row->kind, "link"))
        return hcp_text_end_link(row, out, err);
    return strcmp(row->kind, "cell") ? hcp_text_end_finish(row, out, err)
                                     : end_cell(row, out, err);
}

int hcp_text_add_note(struct hcp_text *out, const char *uid, const char *line,
                      struct hcp_err *err)
{
    struct hcp_text_note *note = NULL, *list;
    size_t old, len = strlen(line);
    char *text;

    for (size_t i = 0; i < out->n_notes; i++)
        if (!strcmp(out->notes[i].run_uid, uid))
            note = &out->notes[i];
    if (!note) {
        list = hcp_text_grow(out->notes, out->n_notes, sizeof *list);
        if (!list)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        out->notes = list;
        note = &list[out->n_notes];
        memset(note, 0, sizeof *note);
        strncpy(note->run_uid, uid, sizeof note->run_uid - 1);
        out->n_notes++;
    }
    old = note->note ? strlen(note->note) + 1 : 0;
    text = realloc(note->note, old + len + 1);
    if (!text)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (old)
        text[old - 1] = '\n';
    memcpy(text + old, line, len + 1);
    note->note = text;
    return HCP_OK;
}
