/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/csv.h"
#include "db/parse.h"
#include "db/text-internal.h"

static const char *const required[] = {"device", "limit",  "provider", "mask",
                                       "q_len",  "kv_len", "time_ms"};
enum { N_REQUIRED = sizeof required / sizeof *required };

/* "# run UID: text" belongs to one run, other comments to the file's runs. */
static int take_comment(const char *text, const char *name, struct hcp_text *out,
                        struct hcp_err *err)
{
    const char *colon = strchr(text, ':');
    char uid[40];

    if (!strncmp(text, HCP_TEXT_MAGIC, strlen(HCP_TEXT_MAGIC))) {
        int version = atoi(text + strlen(HCP_TEXT_MAGIC));
        if (version > HCP_TEXT_VERSION)
            return hcp_fail(
                err, HCP_FAILED,
                "'%s' is in profile format %d, this program knows up to %d; use a "
                "newer hcp",
                name, version, HCP_TEXT_VERSION);
        return HCP_OK;
    }
    if (!hcp_text_is_clean(text))
        return hcp_fail(err, HCP_FAILED, "'%s': a comment is not UTF-8 text", name);
    if (strncmp(text, "run ", 4) || !colon || colon - text < 5 || colon - text >= 44)
        return hcp_text_add_note(out, "", text, err);
    snprintf(uid, sizeof uid, "%.*s", (int)(colon - text - 4), text + 4);
    return hcp_text_add_note(out, uid, colon + (colon[1] == ' ' ? 2 : 1), err);
}

/* A header in one piece with another separator inside: say so, do not guess. */
static int check_separator(const struct hcp_csv *csv, struct hcp_err *err)
{
    static const struct {
        char c;
        const char *name;
    } others[] = {{';', "';'"}, {'\t', "tabs"}};

    for (size_t i = 0; i < csv->n; i++)
        if (strchr(csv->fields[i], '\r'))
            return hcp_fail(
                err, HCP_FAILED,
                "%s:%ld: lines end with a lone carriage return (old Mac text); "
                "expected LF or CRLF",
                csv->name, csv->line);
    for (size_t i = 0; csv->n == 1 && i < 2; i++)
        if (strchr(csv->fields[0], others[i].c))
            return hcp_fail(
                err, HCP_FAILED,
                "%s:%ld: fields are separated by %s; expected commas, and a point "
                "in numbers",
                csv->name, csv->line, others[i].name);
    return HCP_OK;
}

/* A required column is not there: perhaps under another spelling. */
static int missing(const struct hcp_csv *csv, const char *name, int others,
                   const char *unknown, struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED,
                    "%s:%ld: column '%s' is missing; required are device, limit%s%s%s",
                    csv->name, csv->line, name,
                    others ? "" : ", provider, mask, q_len, kv_len, time_ms",
                    *unknown ? "; there is, but not known: " : "", unknown);
}

/* Maps header fields to columns; -1 for ignored ones. */
static int read_header(const struct hcp_csv *csv, int ignore_unknown, int *map,
                       struct hcp_text *out, struct hcp_err *err)
{
    char unknown[256] = "";
    int found[N_REQUIRED] = {0}, rc = check_separator(csv, err), others = 0;

    if (rc)
        return rc;
    for (size_t i = 0; i < csv->n; i++) {
        const char *name = csv->fields[i];
        map[i] = hcp_text_column_index(name);
        if (map[i] < 0) {
            size_t used = strlen(unknown);
            snprintf(unknown + used, sizeof unknown - used, "%s'%s'", used ? ", " : "",
                     name);
            out->ignored++;
        }
        for (size_t j = 0; map[i] >= 0 && j < i; j++)
            if (map[j] == map[i])
                return hcp_fail(err, HCP_FAILED, "%s:%ld: column '%s' is there twice",
                                csv->name, csv->line, name);
        for (int j = 0; j < N_REQUIRED; j++)
            found[j] |= !strcmp(name, required[j]);
        others |= !strcmp(name, "gb_per_s") || !strcmp(name, "kind");
    }
    /* A file of other rows alone needs no columns of cells. */
    for (int j = 0; j < (others ? 2 : N_REQUIRED); j++)
        if (!found[j])
            return missing(csv, required[j], others, unknown, err);
    if (*unknown && !ignore_unknown)
        return hcp_fail(err, HCP_FAILED,
                        "%s:%ld: unknown column %s; hcp-db(5) lists the columns, "
                        "--ignore-unknown leaves the others out",
                        csv->name, csv->line, unknown);
    return HCP_OK;
}

static int read_rows(struct hcp_csv *csv, const int *map, size_t n_columns,
                     struct hcp_text *out, struct hcp_err *err)
{
    struct hcp_text_row *row = calloc(1, sizeof *row);
    int more = 1, rc = row ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    while (!rc) {
        rc = hcp_csv_row(csv, &more, err);
        if (rc || !more)
            break;
        if (csv->n != n_columns) {
            rc = hcp_fail(
                err, HCP_FAILED, "%s:%ld: %zu fields where the header has %zu%s",
                csv->name, csv->line, csv->n, n_columns,
                csv->n > n_columns ? "; is there a decimal comma? numbers have a point"
                                   : "");
            break;
        }
        hcp_text_row_begin(row, csv->name, csv->line);
        for (size_t i = 0; i < n_columns; i++)
            if (map[i] >= 0 && *csv->fields[i])
                row->value[map[i]] = csv->fields[i];
        rc = hcp_text_row_end(row, out, err);
    }
    if (row)
        free(row->raw);
    free(row);
    return rc;
}

static int load_csv(char *start, const char *name, int ignore_unknown,
                    struct hcp_text *out, struct hcp_err *err)
{
    struct hcp_csv csv;
    char *comment;
    int *map = NULL, more = 0, rc = HCP_OK;
    size_t n = 0;

    hcp_csv_init(&csv, name, start);
    while (!rc && (comment = hcp_csv_comment(&csv)))
        rc = take_comment(comment, name, out, err);
    if (!rc)
        rc = hcp_csv_row(&csv, &more, err);
    if (!rc && !more)
        rc = hcp_fail(
            err, HCP_FAILED,
            "'%s' is empty; expected a CSV file whose first row names the columns "
            "(hcp-db(5))",
            name);
    if (!rc && !(map = calloc(n = csv.n, sizeof *map)))
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    if (!rc)
        rc = read_header(&csv, ignore_unknown, map, out, err);
    if (!rc)
        rc = read_rows(&csv, map, n, out, err);
    free(map);
    hcp_csv_free(&csv);
    return rc;
}

#define FNV_START 0xcbf29ce484222325u

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint64_t mix_double(uint64_t h, double v)
{
    char text[32];

    hcp_format_double(v, text);
    return mix(h, text, strlen(text) + 1);
}

static uint64_t row_hash(uint64_t h, const struct hcp_column *columns, size_t n,
                         const void *row)
{
    for (const struct hcp_column *c = columns; c < columns + n; c++) {
        const void *field = (const char *)row + c->offset;
        char number[32] = "";
        /* The name of a run must not change with what newer files can say. */
        if (c->since && hcp_column_unknown(c, row))
            continue;
        if (c->type == HCP_COL_REAL)
            h = mix_double(h, *(const double *)field);
        else if (c->type == HCP_COL_TEXT)
            h = mix(h, field, strlen(field) + 1);
        else
            h = mix(h, number,
                    (size_t)snprintf(number, sizeof number, "%lld ",
                                     c->type == HCP_COL_INT32
                                         ? (long long)*(const int32_t *)field
                                         : (long long)*(const int64_t *)field));
    }
    return h;
}

/* Of the values, not of the bytes: line ends and quoting do not make another run. */
static uint64_t cell_hash(const struct hcp_cell *cell)
{
    uint64_t h = row_hash(FNV_START, hcp_columns, hcp_n_columns, cell);

    for (int32_t i = 0; i < cell->n_raw; i++)
        h = mix_double(h, cell->raw_ms[i]);
    return h;
}

/* Row i of a kind. */
static char *row_of(const struct hcp_text *t, int kind, size_t i)
{
    return (char *)t->others[kind].rows + i * hcp_kinds[kind]->size;
}

static char *field(int kind, char *row, const char *name)
{
    return row + hcp_rows_column(hcp_kinds[kind]->rows, name)->offset;
}

static uint64_t other_hash(int kind, char *row)
{
    const struct hcp_rows *r = hcp_kinds[kind]->rows;
    const struct hcp_bandwidth *b = (const void *)row;
    uint64_t h;

    if (hcp_kinds[kind] != &hcp_bandwidth_kind)
        return row_hash(FNV_START, r->columns, r->n, row);
    h = mix(FNV_START, b->limit, strlen(b->limit) + 1);
    return mix_double(mix(h, b->device, strlen(b->device) + 1), b->gb_per_s);
}

static void name_run(char *uid, const char *origin, const char *hex)
{
    char name[sizeof((struct hcp_cell *)0)->run_uid];

    snprintf(name, sizeof name, "%s%s", origin, hex);
    if (!*uid)
        memcpy(uid, name, sizeof name);
}

/* Rows without run_uid: one run an origin, "recorded-0123456789abcdef". The order of
 * the rows does not matter. */
static void name_runs(struct hcp_text *out)
{
    uint64_t sum = out->n_cells;
    char hex[20];

    for (size_t i = 0; i < out->n_cells; i++)
        if (!*out->cells[i].run_uid)
            sum += cell_hash(&out->cells[i]);
    for (int k = 0; k < HCP_N_KINDS; k++)
        for (size_t i = 0; i < out->others[k].n; i++)
            if (!*field(k, row_of(out, k, i), "run_uid"))
                sum += other_hash(k, row_of(out, k, i));
    snprintf(hex, sizeof hex, "-%016llx", (unsigned long long)sum);
    for (size_t i = 0; i < out->n_cells; i++)
        name_run(out->cells[i].run_uid, out->cells[i].origin, hex);
    for (int k = 0; k < HCP_N_KINDS; k++)
        for (size_t i = 0; i < out->others[k].n; i++) {
            char *row = row_of(out, k, i);
            name_run(field(k, row, "run_uid"), field(k, row, "origin"), hex);
        }
}

static size_t count_rows(const struct hcp_text *t)
{
    size_t n = t->n_cells;

    for (int k = 0; k < HCP_N_KINDS; k++)
        n += t->others[k].n;
    return n;
}

struct indexed {
    const struct hcp_cell *cell;
    long line;
};

static int by_identity(const void *a, const void *b)
{
    const struct indexed *x = a, *y = b;
    int order = hcp_cell_compare_identity(x->cell, y->cell);

    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Two rows about the same cell of the same run that disagree: which one is right? */
static int check_contradictions(const struct hcp_text *out, const char *name,
                                struct hcp_err *err)
{
    struct indexed *list = malloc((out->n_cells + 1) * sizeof *list);
    int rc = HCP_OK;

    if (!list)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < out->n_cells; i++)
        list[i] = (struct indexed){&out->cells[i], out->cell_lines[i]};
    qsort(list, out->n_cells, sizeof *list, by_identity);
    for (size_t i = 1; !rc && i < out->n_cells; i++)
        if (!hcp_cell_compare_identity(list[i - 1].cell, list[i].cell) &&
            !hcp_cell_same(list[i - 1].cell, list[i].cell))
            rc = hcp_fail(
                err, HCP_FAILED,
                "%s:%ld: the same cell as line %ld with other values; expected one "
                "row a cell, or a run_uid of its own",
                name, list[i].line, list[i - 1].line);
    free(list);
    return rc;
}

static int ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n >= m && !strcmp(name + n - m, ending);
}

static enum hcp_text_format detect(const char *name, const char *start)
{
    /* No CSV header starts with '{'. */
    if (start[strspn(start, " \t\r\n")] == '{')
        return HCP_TEXT_JSONL;
    return ends_with(name, ".jsonl") || ends_with(name, ".ndjson") ? HCP_TEXT_JSONL
                                                                   : HCP_TEXT_CSV;
}

int hcp_text_load(FILE *in, const char *name, enum hcp_text_format format,
                  int ignore_unknown, struct hcp_text *out, struct hcp_err *err)
{
    struct hcp_text result = {0};
    char *text = NULL, *start = NULL;
    size_t size;
    int rc = hcp_read_all(in, name, &text, &size, err);

    if (!rc)
        rc = hcp_skip_bom(text, name, &start, err);
    if (!rc && !start[strspn(start, " \t\r\n")])
        rc = hcp_fail(err, HCP_FAILED,
                      "'%s' is empty; expected CSV or JSON lines with the columns of "
                      "hcp-db(5)",
                      name);
    if (!rc && format == HCP_TEXT_AUTO)
        format = detect(name, start);
    if (!rc && format == HCP_TEXT_CSV && start[strspn(start, " \t\r\n")] == '[')
        rc = hcp_fail(
            err, HCP_FAILED,
            "'%s' is a JSON array; expected CSV or JSON lines, one object a line "
            "(jq -c '.[]' makes them)",
            name);
    if (!rc)
        rc = format == HCP_TEXT_JSONL
                 ? hcp_text_load_jsonl(start, name, ignore_unknown, &result, err)
                 : load_csv(start, name, ignore_unknown, &result, err);
    if (!rc && !count_rows(&result))
        rc = hcp_fail(err, HCP_FAILED, "'%s' has no rows: nothing to read", name);
    if (!rc) {
        name_runs(&result);
        rc = check_contradictions(&result, name, err);
    }
    free(text);
    if (rc)
        hcp_text_free(&result);
    else
        *out = result;
    return rc;
}

void hcp_text_free(struct hcp_text *text)
{
    for (size_t i = 0; i < text->n_cells; i++)
        free(text->cells[i].raw_ms);
    for (size_t i = 0; i < text->n_notes; i++)
        free(text->notes[i].note);
    free(text->cells);
    free(text->cell_lines);
    for (int k = 0; k < HCP_N_KINDS; k++)
        free(text->others[k].rows);
    free(text->notes);
    memset(text, 0, sizeof *text);
}
