/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <libsmartcols.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "db/cli.h"

struct column {
    char *name;
    int right;
};

/* Cells row by row; rows may be shorter than the head. */
struct hcp_table {
    struct column *columns;
    char **cells;
    size_t n_columns, n_rows, filled; /* filled: cells of the last row */
    int failed;                       /* out of memory on the way */
};

hcp_table *hcp_table_new(void)
{
    return calloc(1, sizeof(hcp_table));
}

void hcp_table_free(hcp_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_columns; i++)
        free(t->columns[i].name);
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        free(t->cells[i]);
    free(t->columns);
    free(t->cells);
    free(t);
}

void hcp_table_column(hcp_table *t, const char *name, int right_align)
{
    struct column *grown;

    if (!t || t->n_rows)
        return;
    grown = realloc(t->columns, (t->n_columns + 1) * sizeof *grown);
    if (!grown) {
        t->failed = 1;
        return;
    }
    t->columns = grown;
    grown[t->n_columns].name = strdup(name);
    grown[t->n_columns].right = right_align;
    t->failed |= !grown[t->n_columns].name;
    t->n_columns++;
}

void hcp_table_row(hcp_table *t)
{
    char **grown;

    if (!t)
        return;
    grown = realloc(t->cells, (t->n_rows + 1) * t->n_columns * sizeof *grown);
    if (!grown) {
        t->failed = 1;
        return;
    }
    t->cells = grown;
    memset(grown + t->n_rows * t->n_columns, 0, t->n_columns * sizeof *grown);
    t->n_rows++;
    t->filled = 0;
}

void hcp_table_cell(hcp_table *t, const char *format, ...)
{
    locale_t old;
    va_list ap;
    char *text = NULL;

    if (!t || !t->n_rows || t->filled >= t->n_columns)
        return;
    old = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    va_start(ap, format);
    if (vasprintf(&text, format, ap) < 0) {
        text = NULL;
        t->failed = 1;
    }
    va_end(ap);
    uselocale(old);
    t->cells[(t->n_rows - 1) * t->n_columns + t->filled++] = text;
}

/* Heads are upper case in every table; JSON keeps the name as it was given. */
static int add_head(struct libscols_table *s, const struct column *c)
{
    char *head = strdup(c->name);
    int rc = -1;

    if (!head)
        return -1;
    for (char *p = head; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            *p = (char)(*p - 'a' + 'A');
    if (scols_table_new_column(s, head, 0, c->right ? SCOLS_FL_RIGHT : 0))
        rc = 0;
    free(head);
    return rc;
}

static int fill(struct libscols_table *s, const hcp_table *t)
{
    for (size_t i = 0; i < t->n_columns; i++)
        if (add_head(s, &t->columns[i]))
            return -1;
    for (size_t r = 0; r < t->n_rows; r++) {
        struct libscols_line *line = scols_table_new_line(s, NULL);
        if (!line)
            return -1;
        for (size_t c = 0; c < t->n_columns; c++) {
            const char *text = t->cells[r * t->n_columns + c];
            if (scols_line_set_data(line, c, text ? text : ""))
                return -1;
        }
    }
    return 0;
}

int hcp_table_print(hcp_table *t, FILE *out)
{
    struct libscols_table *s;
    char *text = NULL;
    int rc = -1;

    if (!t)
        return -1;
    s = t->failed ? NULL : scols_new_table();
    /* Whole lines wherever it goes: a cut number is worse than a wrapped line. */
    if (s && !scols_table_set_termforce(s, SCOLS_TERMFORCE_NEVER) && !fill(s, t))
        rc = t->n_rows ? scols_print_table_to_string(s, &text) : 0;
    if (rc == 0 && text)
        rc = fprintf(out, "%s\n", text) < 0 ? hcp_cli_written(out) : 0;
    free(text);
    scols_unref_table(s);
    hcp_table_free(t);
    return rc;
}

static json_t *cell_json(const char *text)
{
    double v;

    if (!text || !*text)
        return json_null();
    if (hcp_parse_double(text, &v, NULL))
        return json_string(text);
    return strpbrk(text, ".eE") ? json_real(v) : json_integer((json_int_t)v);
}

int hcp_table_to_json(const hcp_table *t, json_t *array)
{
    if (!t || t->failed)
        return -1;
    for (size_t r = 0; r < t->n_rows; r++) {
        json_t *row = json_object();
        for (size_t c = 0; c < t->n_columns; c++)
            json_object_set_new(row, t->columns[c].name,
                                cell_json(t->cells[r * t->n_columns + c]));
        if (json_array_append_new(array, row))
            return -1;
    }
    return 0;
}
