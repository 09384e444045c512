/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "db/text-internal.h"

void hcp_text_row_begin(struct hcp_text_row *row, const char *name, long line)
{
    row->name = name;
    row->line = line;
    memset(row->value, 0, sizeof row->value);
    row->n_raw = 0;
}

int hcp_text_row_sample(struct hcp_text_row *row, double ms, struct hcp_err *err)
{
    if (row->n_raw == row->raw_room) {
        size_t room = row->n_raw ? row->n_raw * 2 : 64;
        double *grown = realloc(row->raw, room * sizeof *grown);
        if (!grown)
            return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
        row->raw = grown;
        row->raw_room = room;
    }
    row->raw[row->n_raw++] = ms;
    return HCP_OK;
}

int hcp_text_bad(const struct hcp_text_row *row, int column, const char *why,
                 struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED, "%s:%ld: column %s: %s", row->name, row->line,
                    hcp_text_column_name(column), why);
}

/* "0.1;0.2;0.3" */
static int read_samples(struct hcp_text_row *row, const char *value, struct hcp_err *err)
{
    const int column = hcp_text_samples_column();
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

static int read_value(const struct hcp_text_row *row, int column,
                      const struct hcp_column *c, void *target, struct hcp_err *err)
{
    const char *value = row->value[column];
    void *field = (char *)target + c->offset;
    struct hcp_err why;
    int64_t n = 0;

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

/* What a row must have (required; lists end with NULL) and what it must not: any column
 * that its kind has no place for, except that `foreign` may say which of a cell's. */
struct form {
    const char *const *required, *const *foreign;
};

static int is_foreign(const struct form *form, int column)
{
    const char *const *p = form->foreign;

    if (!p || column > hcp_text_kind_column())
        return 1;
    while (*p && strcmp(*p, hcp_text_column_name(column)))
        p++;
    return *p != NULL;
}

static int read_values(struct hcp_text_row *row, int kind, const struct form *form,
                       void *target, struct hcp_err *err)
{
    const int samples = hcp_text_samples_column(), word = hcp_text_kind_column();
    int rc = HCP_OK;

    for (int i = 0; !rc && i < hcp_text_n_columns(); i++) {
        const struct hcp_column *c = hcp_text_column_of(kind, i);
        const int given = row->value[i] || (i == samples && row->n_raw);
        if (!given || (i == word && !c) || (i == samples && kind < 0))
            continue;
        if (c)
            rc = read_value(row, i, c, target, err);
        else if (is_foreign(form, i))
            rc = hcp_text_bad(
                row, i, "does not apply to a row of this kind; leave it empty", err);
    }
    for (const char *const *name = form->required; !rc && *name; name++) {
        int i = hcp_text_column_index(*name);
        if (!row->value[i])
            rc = hcp_text_bad(row, i, "is empty; a value is required", err);
    }
    return rc;
}

void *hcp_text_grow(void *array, size_t n, size_t size)
{
    /* Doubling at powers of two. */
    return n & (n - 1) ? array : realloc(array, (n ? n * 2 : 1) * size);
}

static int out_of_memory(const struct hcp_text_row *row, struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
}

static int end_cell(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err)
{
    static const char *const required[] = {"device", "provider", "mask",
                                           "q_len",  "kv_len",   NULL};
    static const struct form form = {required, NULL};
    const char *samples = row->value[hcp_text_samples_column()];
    struct hcp_cell cell, *cells;
    struct hcp_err why;
    long *lines;
    int rc = HCP_OK;

    hcp_cell_init(&cell);
    strcpy(cell.origin, "recorded");
    rc = read_values(row, -1, &form, &cell, err);
    if (!rc && samples)
        rc = read_samples(row, samples, err);
    if (rc)
        return rc;
    cell.raw_ms = row->raw;
    cell.n_raw = (int32_t)row->n_raw;
    if (hcp_cell_validate(&cell, &why))
        return hcp_fail(err, HCP_FAILED, "%s:%ld: %s", row->name, row->line, why.text);
    cells = hcp_text_grow(out->cells, out->n_cells, sizeof *cells);
    if (cells)
        out->cells = cells;
    lines = hcp_text_grow(out->cell_lines, out->n_cells, sizeof *lines);
    if (lines)
        out->cell_lines = lines;
    if (!cells || !lines)
        return out_of_memory(row, err);
    cell.raw_ms = NULL;
    if (cell.n_raw) {
        cell.raw_ms = malloc(row->n_raw * sizeof *cell.raw_ms);
        if (!cell.raw_ms)
            return out_of_memory(row, err);
        memcpy(cell.raw_ms, row->raw, row->n_raw * sizeof *cell.raw_ms);
    }
    cells[out->n_cells] = cell;
    lines[out->n_cells++] = row->line;
    return HCP_OK;
}

/* In the order of hcp_kinds. Older programs let rows of bandwidth have more than they
 * need. */
static const struct form *form_of(int kind)
{
    static const char *const
        copy[] = {"device", "gb_per_s", NULL},
        *const no_copy[] = {"provider", "mask",   "q_len",      "kv_len",
                            "time_ms",  "min_ms", "samples_ms", NULL},
        *const finish[] = {"device", "provider", "q_len", "time_ms", NULL},
        *const link[] = {"device", "peer_device", "transport", "bytes", "time_ms", NULL},
        *const topology[] = {"device", "peer_device", "connection", NULL},
        *const interference[] = {"device",   "provider",    "mask",      "q_len",
                                 "kv_len",   "peer_device", "transport", "bytes",
                                 "alone_ms", "beside_ms",   NULL},
        *const drift[] = {"device", "provider", "mask",    "q_len",
                          "kv_len", "first_ms", "last_ms", NULL},
        *const linear[] = {"device", "library", "tokens", "n_in",
                           "n_out",  "time_ms", NULL};
    static const struct form forms[HCP_N_KINDS] = {
        {copy, no_copy},      {finish, NULL}, {link, NULL},  {topology, NULL},
        {interference, NULL}, {drift, NULL},  {linear, NULL}};

    return &forms[kind];
}

static int end_other(struct hcp_text_row *row, int kind, struct hcp_text *out,
                     struct hcp_err *err)
{
    const struct hcp_kind *k = hcp_kinds[kind];
    struct hcp_text_rows *list = &out->others[kind];
    _Alignas(max_align_t) char target[HCP_ROW_BYTES] = {0};
    char *uid = target + hcp_rows_column(k->rows, "run_uid")->offset;
    struct hcp_err why;
    void *rows;
    int rc, unnamed;

    k->init(target);
    strcpy(target + hcp_rows_column(k->rows, "origin")->offset, "recorded");
    rc = read_values(row, kind, form_of(kind), target, err);
    if (rc)
        return rc;
    unnamed = !*uid; /* named once the file is read */
    if (unnamed)
        strcpy(uid, "?");
    if (k->validate(target, &why))
        return hcp_fail(err, HCP_FAILED, "%s:%ld: %s", row->name, row->line, why.text);
    if (unnamed)
        *uid = '\0';
    rows = hcp_text_grow(list->rows, list->n, k->size);
    if (!rows)
        return out_of_memory(row, err);
    list->rows = rows;
    memcpy((char *)rows + list->n++ * k->size, target, k->size);
    return HCP_OK;
}

int hcp_text_row_end(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err)
{
    const int column = hcp_text_kind_column();
    const char *word = row->value[column] ? row->value[column] : "cell";
    char words[128] = "cell";
    struct hcp_err why;
    int kind;

    if (!strcmp(word, "cell"))
        return end_cell(row, out, err);
    kind = hcp_text_kind_of(word);
    if (kind >= 0)
        return end_other(row, kind, out, err);
    for (int i = 0; i < HCP_N_KINDS; i++)
        strcat(strcat(words, " "), hcp_kinds[i]->words);
    hcp_check_word("kind", word, words, &why);
    return hcp_text_bad(row, column, why.text, err);
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
