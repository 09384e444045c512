/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "db/db-internal.h"
#include "db/parse.h"

enum { SQL_SIZE = 4096 };

void hcp_column_bind(sqlite3_stmt *s, int i, const struct hcp_column *c, const void *row)
{
    const void *field = (const char *)row + c->offset;

    switch (c->type) {
    case HCP_COL_TEXT:
        if (c->unknown)
            sqlite3_bind_text(s, i, field, -1, SQLITE_STATIC);
        else
            hcp_bind_text(s, i, field);
        break;
    case HCP_COL_INT32:
        hcp_bind_int(s, i, *(const int32_t *)field, c->unknown);
        break;
    case HCP_COL_INT64:
        hcp_bind_int(s, i, *(const int64_t *)field, c->unknown);
        break;
    case HCP_COL_REAL:
        hcp_bind_real(s, i, *(const double *)field);
        break;
    }
}

void hcp_column_read(sqlite3_stmt *s, int i, const struct hcp_column *c, void *row)
{
    void *field = (char *)row + c->offset;
    int null = sqlite3_column_type(s, i) == SQLITE_NULL;
    int64_t n = null ? c->unknown : sqlite3_column_int64(s, i);

    switch (c->type) {
    case HCP_COL_TEXT:
        hcp_column_copy(s, i, field, c->size);
        break;
    case HCP_COL_INT32:
        *(int32_t *)field = (int32_t)n;
        break;
    case HCP_COL_INT64:
        *(int64_t *)field = n;
        break;
    case HCP_COL_REAL:
        *(double *)field = null ? NAN : sqlite3_column_double(s, i);
        break;
    }
}

int hcp_column_equal(const struct hcp_column *c, const void *a, const void *b)
{
    const void *x = (const char *)a + c->offset, *y = (const char *)b + c->offset;

    switch (c->type) {
    case HCP_COL_TEXT:
        return !strcmp(x, y);
    case HCP_COL_INT32:
        return *(const int32_t *)x == *(const int32_t *)y;
    case HCP_COL_INT64:
        return *(const int64_t *)x == *(const int64_t *)y;
    case HCP_COL_REAL:
        break;
    }
    return *(const double *)x == *(const double *)y ||
           (isnan(*(const double *)x) && isnan(*(const double *)y));
}

const char *hcp_column_text(const struct hcp_column *c, const void *row, char number[32])
{
    const void *field = (const char *)row + c->offset;
    int64_t n;

    if (c->type == HCP_COL_TEXT)
        return field;
    if (hcp_column_unknown(c, row))
        return "";
    if (c->type == HCP_COL_REAL)
        return hcp_format_double(*(const double *)field, number);
    n = c->type == HCP_COL_INT32 ? *(const int32_t *)field : *(const int64_t *)field;
    snprintf(number, 32, "%lld", (long long)n);
    return number;
}

int hcp_column_unknown(const struct hcp_column *c, const void *row)
{
    const void *field = (const char *)row + c->offset;

    switch (c->type) {
    case HCP_COL_TEXT:
        return !c->unknown && !*(const char *)field;
    case HCP_COL_INT32:
        return *(const int32_t *)field == c->unknown;
    case HCP_COL_INT64:
        return *(const int64_t *)field == c->unknown;
    case HCP_COL_REAL:
        break;
    }
    return isnan(*(const double *)field);
}

static int own(const struct hcp_column *c)
{
    return !strncmp(c->sql, "t.", 2);
}

void hcp_rows_unknown(const struct hcp_rows *rows, void *row)
{
    for (const struct hcp_column *c = rows->columns; c < rows->columns + rows->n; c++) {
        void *field = (char *)row + c->offset;
        if (c->type == HCP_COL_REAL)
            *(double *)field = NAN;
        else if (c->type == HCP_COL_INT32)
            *(int32_t *)field = (int32_t)c->unknown;
        else if (c->type == HCP_COL_INT64)
            *(int64_t *)field = c->unknown;
    }
}

const struct hcp_column *hcp_rows_column(const struct hcp_rows *rows, const char *name)
{
    for (const struct hcp_column *c = rows->columns; c < rows->columns + rows->n; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

static sqlite3_stmt *select_from(hcp_db *db, const struct hcp_rows *rows,
                                 const char *more, const char *from, const char *where,
                                 const char *order, struct hcp_err *err)
{
    char sql[SQL_SIZE] = "SELECT ";
    sqlite3_stmt *s = NULL;
    size_t n = strlen(sql);
    int rc;

    for (size_t i = 0; i < rows->n; i++)
        n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s", i ? ", " : "",
                              rows->columns[i].sql);
    snprintf(sql + n, sizeof sql - n, "%s FROM %s%s%s", more, from, where, order);
    rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc != SQLITE_OK) {
        hcp_db_sql_error(db, rc, "read", err);
        return NULL;
    }
    return s;
}

sqlite3_stmt *hcp_rows_select(hcp_db *db, const struct hcp_rows *rows, const char *more,
                              const char *where, struct hcp_err *err)
{
    return select_from(db, rows, more, rows->from, where, rows->order, err);
}

void hcp_rows_read(sqlite3_stmt *s, const struct hcp_rows *rows, void *row)
{
    for (size_t i = 0; i < rows->n; i++)
        hcp_column_read(s, (int)i, &rows->columns[i], row);
}

int hcp_rows_find(hcp_db *db, const struct hcp_rows *rows, const void *row, void *stored,
                  int *found, int64_t *id, struct hcp_err *err)
{
    char where[1024] = "";
    sqlite3_stmt *s;
    size_t n = 0;
    int rc, i = 0;

    /* IS: an unknown UUID is NULL on both sides. */
    for (const char *const *name = rows->identity; *name; name++)
        n += (size_t)snprintf(where + n, sizeof where - n, "%s %s IS ?",
                              n ? " AND" : " WHERE", hcp_rows_column(rows, *name)->sql);
    s = select_from(db, rows, id ? ", t.id" : "", rows->lookup, where, "", err);
    if (!s)
        return HCP_FAILED;
    for (const char *const *name = rows->identity; *name; name++)
        hcp_column_bind(s, ++i, hcp_rows_column(rows, *name), row);
    rc = sqlite3_step(s);
    *found = rc == SQLITE_ROW;
    if (*found)
        hcp_rows_read(s, rows, stored);
    if (*found && id)
        *id = sqlite3_column_int64(s, (int)rows->n);
    rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? HCP_OK
                                               : hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return rc;
}

int hcp_rows_same(const struct hcp_rows *rows, const void *a, const void *b)
{
    for (const struct hcp_column *c = rows->columns; c < rows->columns + rows->n; c++)
        if (own(c) && !hcp_column_equal(c, a, b))
            return 0;
    return 1;
}

int hcp_rows_insert(hcp_db *db, const struct hcp_rows *rows, const char *const *ref_names,
                    const int64_t *refs, size_t n_refs, const void *row,
                    struct hcp_err *err)
{
    char sql[SQL_SIZE], values[256] = "";
    sqlite3_stmt *s = NULL;
    size_t n = (size_t)snprintf(sql, sizeof sql, "INSERT INTO %s (", rows->table), m = 0;
    int rc, i = 0;

    for (size_t r = 0; r < n_refs; r++) {
        n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s", m ? ", " : "",
                              ref_names[r]);
        m += (size_t)snprintf(values + m, sizeof values - m, "%s?", m ? "," : "");
    }
    for (const struct hcp_column *c = rows->columns; c < rows->columns + rows->n; c++) {
        if (!own(c))
            continue;
        n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s", m ? ", " : "", c->sql + 2);
        m += (size_t)snprintf(values + m, sizeof values - m, "%s?", m ? "," : "");
    }
    snprintf(sql + n, sizeof sql - n, ") VALUES (%s)", values);
    rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc != SQLITE_OK)
        return hcp_db_sql_error(db, rc, "write", err);
    for (size_t r = 0; r < n_refs; r++)
        sqlite3_bind_int64(s, ++i, refs[r]);
    for (const struct hcp_column *c = rows->columns; c < rows->columns + rows->n; c++)
        if (own(c))
            hcp_column_bind(s, ++i, c, row);
    rc = sqlite3_step(s);
    rc = rc == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, rc, "write", err);
    sqlite3_finalize(s);
    return rc;
}
