/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/db-internal.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int hcp_db_sql_error(hcp_db *db, int rc, const char *doing, struct hcp_err *err)
{
    int last = errno;
    const char *cause = db->handle ? sqlite3_errmsg(db->handle) : sqlite3_errstr(rc);
    int os = db->handle ? sqlite3_system_errno(db->handle) : 0;

    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' is locked by another process; wait for it to end and repeat "
            "the command",
            db->path);
    case SQLITE_FULL:
        os = os ? os : ENOSPC;
        break;
    case SQLITE_IOERR:
        /* A failed COMMIT leaves the system's code in errno only. */
        if (!os && (last == ENOSPC || last == EDQUOT || last == EFBIG || last == EIO))
            os = last;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' is damaged (%s); restore it from a copy, or rescue rows with "
            "'sqlite3 %s .recover'",
            db->path, cause, db->path);
    case SQLITE_READONLY:
        return hcp_fail(err, HCP_FAILED,
                        "cannot write '%s': %s; make it writable or give another --db",
                        db->path, cause);
    case SQLITE_CANTOPEN:
        return hcp_fail(
            err, HCP_FAILED,
            "cannot %s '%s': %s; check that its directory exists and is writable", doing,
            db->path, os ? strerror(os) : cause);
    default:
        return hcp_fail(err, HCP_FAILED, "cannot %s '%s': %s", doing, db->path, cause);
    }
    if (os == ENOSPC || os == EDQUOT || os == EFBIG)
        return hcp_fail(err, HCP_FAILED,
                        "cannot write '%s': %s; what was stored before is intact: free "
                        "space and repeat the command",
                        db->path, strerror(os));
    return hcp_fail(err, HCP_FAILED, "cannot %s '%s': %s%s%s", doing, db->path, cause,
                    os ? ": " : "", os ? strerror(os) : "");
}

sqlite3_stmt *hcp_db_stmt(hcp_db *db, enum hcp_stmt which, const char *sql,
                          struct hcp_err *err)
{
    sqlite3_stmt **s = &db->stmt[which];

    if (!*s) {
        int rc =
            sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, s, NULL);
        if (rc != SQLITE_OK) {
            hcp_db_sql_error(db, rc, "use", err);
            return NULL;
        }
    }
    sqlite3_reset(*s);
    sqlite3_clear_bindings(*s);
    return *s;
}

int hcp_db_exec(hcp_db *db, const char *sql, const char *doing, struct hcp_err *err)
{
    int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? HCP_OK : hcp_db_sql_error(db, rc, doing, err);
}

/* IMMEDIATE: a transaction that starts reading and later writes can fail at once,
 * without waiting, when another writer did the same. */
int hcp_db_begin(hcp_db *db, struct hcp_err *err)
{
    int rc = hcp_db_exec(db, "BEGIN IMMEDIATE", "write", err);

    if (!rc)
        db->batch = 1;
    return rc;
}

int hcp_db_commit(hcp_db *db, struct hcp_err *err)
{
    int rc;

    for (int i = 0; i < HCP_STMT_COUNT; i++)
        sqlite3_reset(db->stmt[i]);
    rc = hcp_db_exec(db, "COMMIT", "write", err);
    if (rc)
        hcp_db_rollback(db);
    db->batch = 0;
    return rc;
}

void hcp_db_rollback(hcp_db *db)
{
    for (int i = 0; i < HCP_STMT_COUNT; i++)
        sqlite3_reset(db->stmt[i]);
    if (!sqlite3_get_autocommit(db->handle))
        sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    db->batch = 0;
}

int hcp_db_enter(hcp_db *db, int *own, struct hcp_err *err)
{
    *own = !db->batch;
    /* A full disk ends a transaction behind our back; later rows must not slip in. */
    if (db->batch && sqlite3_get_autocommit(db->handle))
        return hcp_fail(err, HCP_FAILED,
                        "'%s': the transaction was rolled back after an error", db->path);
    return *own ? hcp_db_begin(db, err) : HCP_OK;
}

int hcp_db_leave(hcp_db *db, int own, int rc, struct hcp_err *err)
{
    if (!own)
        return rc;
    if (!rc)
        return hcp_db_commit(db, err);
    hcp_db_rollback(db);
    return rc;
}

int hcp_db_add_row(hcp_db *db, hcp_db_adder *add, const void *row,
                   enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    enum hcp_db_outcome result = HCP_DB_STORED;
    int own, rc = hcp_db_enter(db, &own, err);

    if (rc)
        return rc;
    rc = hcp_db_leave(db, own, add(db, row, &result, err), err);
    if (!rc)
        *outcome = result;
    return rc;
}

void hcp_bind_text(sqlite3_stmt *s, int i, const char *text)
{
    if (*text)
        sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(s, i);
}

void hcp_bind_real(sqlite3_stmt *s, int i, double v)
{
    if (isnan(v))
        sqlite3_bind_null(s, i);
    else
        sqlite3_bind_double(s, i, v);
}

void hcp_bind_int(sqlite3_stmt *s, int i, int64_t v, int64_t unknown)
{
    if (v == unknown)
        sqlite3_bind_null(s, i);
    else
        sqlite3_bind_int64(s, i, v);
}

void hcp_column_copy(sqlite3_stmt *s, int i, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(s, i);

    snprintf(out, size, "%s", text ? text : "");
}
