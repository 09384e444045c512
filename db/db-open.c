/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/db-internal.h"
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "db/schema-sql.h"

enum { BUSY_TIMEOUT_MS = 20000, HEADER_BYTES = 100 };

/* Step i takes a file from version i to i + 1. Released steps are never edited. */
const char *const hcp_schema_steps[] = {hcp_schema_sql, hcp_schema_2_sql,
                                        hcp_schema_3_sql, hcp_schema_4_sql};
const int hcp_n_schema_steps = sizeof hcp_schema_steps / sizeof *hcp_schema_steps;

const char *hcp_db_default_path(const char *path)
{
    if (path && *path)
        return path;
    path = getenv("HCP_DB");
    return path && *path ? path : "hcp.db";
}

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* What a path holds, found without SQLite so that a refused file is never touched
 * (opening a database can roll a journal back). */
enum { FILE_MISSING, FILE_EMPTY, FILE_OURS, FILE_BLANK };

/* An SQLite file of no application and without tables is as good as new. */
static int has_no_tables(const char *path)
{
    sqlite3 *h = NULL;
    sqlite3_stmt *s = NULL;
    int blank = sqlite3_open_v2(path, &h, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
                sqlite3_prepare_v2(h, "SELECT count(*) FROM sqlite_schema", -1, &s,
                                   NULL) == SQLITE_OK &&
                sqlite3_step(s) == SQLITE_ROW && sqlite3_column_int(s, 0) == 0;
    sqlite3_finalize(s);
    sqlite3_close(h);
    return blank;
}

struct found {
    int what;
    uint32_t version;
    int wal; /* write-ahead logging: another program has switched it on */
};

static int inspect(const char *path, struct found *found, struct hcp_err *err)
{
    uint32_t *version = &found->version;
    int *what = &found->what;
    unsigned char head[HEADER_BYTES];
    struct stat st;
    size_t n;
    FILE *f;

    if (stat(path, &st)) {
        *what = FILE_MISSING;
        return errno == ENOENT ? HCP_OK
                               : hcp_fail(err, HCP_FAILED, "cannot open '%s': %s", path,
                                          strerror(errno));
    }
    if (!S_ISREG(st.st_mode))
        return hcp_fail(err, HCP_FAILED,
                        "'%s' is not a regular file; give the path of a profile database",
                        path);
    if (st.st_size == 0) {
        *what = FILE_EMPTY;
        return HCP_OK;
    }
    f = fopen(path, "rbe");
    if (!f)
        return hcp_fail(err, HCP_FAILED, "cannot open '%s': %s", path, strerror(errno));
    n = fread(head, 1, sizeof head, f);
    fclose(f);
    if (n < 16 || memcmp(head, "SQLite format 3", 16))
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' is not a profile database (not an SQLite file); a CSV or JSON "
            "lines file is read by 'hcp-profile import --db NEW.db %s'",
            path, path);
    if (n < sizeof head)
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' is damaged: cut off after %zu bytes; restore it from a copy", path, n);
    *what = FILE_OURS;
    found->wal = head[18] == 2;
    *version = be32(head + 60);
    if (be32(head + 68) != HCP_APPLICATION_ID) {
        if (be32(head + 68) || *version || !has_no_tables(path))
            return hcp_fail(
                err, HCP_FAILED,
                "'%s' is an SQLite database of another program (application id "
                "0x%08x, not 0x%08x); give another file",
                path, (unsigned)be32(head + 68), HCP_APPLICATION_ID);
        *what = FILE_BLANK;
    } else if (*version > (uint32_t)hcp_n_schema_steps) {
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' has schema version %u, this program knows versions up to %d; "
            "use a newer hcp, or export there with 'hcp-profile export' and "
            "import here",
            path, (unsigned)*version, hcp_n_schema_steps);
    }
    return HCP_OK;
}

/* Whether SQLite could make its journal: it lives in the directory of the file. */
static int check_writable(const char *path, int exists, struct hcp_err *err)
{
    char *copy = strdup(path);
    const char *dir = copy ? dirname(copy) : ".";
    struct stat st;
    int rc = HCP_OK;

    if (stat(dir, &st))
        rc = hcp_fail(err, HCP_FAILED, "cannot create '%s': directory '%s': %s", path,
                      dir, strerror(errno));
    else if (exists && access(path, W_OK))
        rc = hcp_fail(err, HCP_FAILED,
                      "cannot write '%s': %s; make it writable or give another --db",
                      path, strerror(errno));
    else if (access(dir, W_OK))
        rc =
            hcp_fail(err, HCP_FAILED,
                     "cannot write '%s': its directory '%s' is not writable (%s) and the "
                     "journal goes there; give a --db elsewhere",
                     path, dir, strerror(errno));
    free(copy);
    return rc;
}

static int refuse_absent(const char *path, int what, int flags, struct hcp_err *err)
{
    if (what == FILE_MISSING && !(flags & HCP_DB_CREATE))
        return hcp_fail(
            err, HCP_FAILED,
            "no profile database '%s'; make one with 'hcp-profile run --db %s' "
            "or 'hcp-profile import --db %s NAME'",
            path, path, path);
    if (what != FILE_OURS && !(flags & HCP_DB_WRITE))
        return hcp_fail(err, HCP_FAILED,
                        "'%s' is empty: no profile in it; fill it with 'hcp-profile run "
                        "--db %s' or 'hcp-profile import --db %s NAME'",
                        path, path, path);
    return HCP_OK;
}

static int pragma_int(hcp_db *db, const char *sql, int64_t *out, struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? HCP_OK : hcp_db_sql_error(db, rc, "read", err);
}

int hcp_db_migrate(hcp_db *db, const char *const *steps, int n_steps, struct hcp_err *err)
{
    char sql[96];
    int64_t version = 0;
    int own, rc = hcp_db_enter(db, &own, err);

    if (rc)
        return rc;
    /* Asked again inside the transaction: another process may have been faster. */
    rc = pragma_int(db, "PRAGMA user_version", &version, err);
    for (int64_t i = version; !rc && i < n_steps; i++)
        rc = hcp_db_exec(db, steps[i], "update", err);
    if (!rc && version < n_steps) {
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                 HCP_APPLICATION_ID, n_steps);
        rc = hcp_db_exec(db, sql, "update", err);
    }
    return hcp_db_leave(db, own, rc, err);
}

static int configure(hcp_db *db, struct hcp_err *err)
{
    sqlite3_extended_result_codes(db->handle, 1);
    sqlite3_busy_timeout(db->handle, BUSY_TIMEOUT_MS);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return hcp_db_exec(db,
                       "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"
                       "PRAGMA cell_size_check = ON",
                       "open", err);
}

/* Structure only; bit rot inside a value is not detectable. */
static int quick_check(hcp_db *db, struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "PRAGMA quick_check(1)", -1, &s, NULL);
    const char *text;

    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    if (rc != SQLITE_ROW) {
        sqlite3_finalize(s);
        return hcp_db_sql_error(db, rc, "read", err);
    }
    text = (const char *)sqlite3_column_text(s, 0);
    if (text && !strncmp(text, "*** in database main ***\n", 25))
        text += 25;
    rc = HCP_OK;
    if (!text || strcmp(text, "ok"))
        rc = hcp_fail(err, HCP_FAILED,
                      "'%s' is damaged (%.200s); restore it from a copy, or rescue rows "
                      "with 'sqlite3 %s .recover'",
                      db->path, text ? text : "no detail", db->path);
    sqlite3_finalize(s);
    return rc;
}

static int connect_to(const char *path, int sqlite_flags, hcp_db **out,
                      struct hcp_err *err)
{
    hcp_db *db = calloc(1, sizeof *db);
    size_t n = strlen(path) + 3;
    int rc;

    if (!db || !(db->path = malloc(n))) {
        free(db);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    /* ":memory:" and "file:..." mean something to SQLite; here they are names. */
    snprintf(db->path, n, "%s%s",
             path[0] == ':' || !strncmp(path, "file:", 5) ? "./" : "", path);
    /* A connection is one thread's: SQLite's locks around every call took a fifth of a
     * merge. */
    rc = sqlite3_open_v2(db->path, &db->handle, sqlite_flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = configure(db, err);
    else
        rc = hcp_db_sql_error(db, rc, "open", err);
    if (rc) {
        hcp_db_close(db);
        return rc;
    }
    *out = db;
    return HCP_OK;
}

static int bring_up(hcp_db *db, const struct found *found, int flags, struct hcp_err *err)
{
    int64_t version = 0;
    int what = found->what, rc;

    /* Write-ahead logging does not work on network file systems and makes readers
     * write. Where another program has the file open it stays until the next time. */
    if ((flags & HCP_DB_WRITE) && found->wal) {
        sqlite3_busy_timeout(db->handle, 0);
        sqlite3_exec(db->handle, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
        sqlite3_busy_timeout(db->handle, BUSY_TIMEOUT_MS);
    }
    rc = pragma_int(db, "PRAGMA user_version", &version, err);

    if (rc)
        return rc;
    if ((flags & HCP_DB_WRITE) && sqlite3_db_readonly(db->handle, "main") == 1)
        return hcp_fail(err, HCP_FAILED,
                        "cannot write '%s': it is read-only; make it writable or give "
                        "another --db",
                        db->path);
    if (what == FILE_OURS && (rc = quick_check(db, err)))
        return rc;
    return version < hcp_n_schema_steps
               ? hcp_db_migrate(db, hcp_schema_steps, hcp_n_schema_steps, err)
               : HCP_OK;
}

/* A reader of a file that only a writer can make readable: a killed process left a
 * journal to roll back, the schema is older than this program, or another program has
 * switched write-ahead logging on. */
static int prepare_for_reader(const char *path, const struct found *found,
                              struct hcp_err *err)
{
    char journal[4096];
    hcp_db *db = NULL;
    uint32_t version = found->version;
    int old = version < (uint32_t)hcp_n_schema_steps, rc;

    snprintf(journal, sizeof journal, "%s-journal", path);
    if (!old && !found->wal && access(journal, F_OK))
        return HCP_OK;
    rc = check_writable(path, 1, err);
    if (rc && old)
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' has the older schema version %u and must be updated to %d, but "
            "is not writable; make a writable copy",
            path, (unsigned)version, hcp_n_schema_steps);
    if (rc && found->wal)
        return hcp_fail(
            err, HCP_FAILED,
            "'%s' is in write-ahead mode, whose readers have to write, and is not "
            "writable; switch it off with 'sqlite3 %s \"PRAGMA journal_mode=delete\"' "
            "where "
            "it is, or make a writable copy",
            path, path);
    if (rc)
        return HCP_OK; /* SQLite itself says whether that journal matters */
    rc = hcp_db_open(path, HCP_DB_WRITE, &db, err);
    hcp_db_close(db);
    return rc;
}

int hcp_db_open(const char *path, int flags, hcp_db **out, struct hcp_err *err)
{
    int write = flags & HCP_DB_WRITE, rc;
    struct found found = {.what = FILE_MISSING};
    hcp_db *db = NULL;

    if (!path || !*path)
        return hcp_fail(err, HCP_USAGE, "the database name is empty; give --db FILE");
    if ((rc = inspect(path, &found, err)) ||
        (rc = refuse_absent(path, found.what, flags, err)))
        return rc;
    if (write && (rc = check_writable(path, found.what != FILE_MISSING, err)))
        return rc;
    if (!write && (rc = prepare_for_reader(path, &found, err)))
        return rc;
    rc = connect_to(
        path, write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY,
        &db, err);
    if (rc)
        return rc;
    db->flags = flags;
    rc = bring_up(db, &found, flags, err);
    if (rc) {
        hcp_db_close(db);
        return rc;
    }
    *out = db;
    return HCP_OK;
}

void hcp_db_close(hcp_db *db)
{
    if (!db)
        return;
    for (int i = 0; i < HCP_STMT_COUNT; i++)
        sqlite3_finalize(db->stmt[i]);
    sqlite3_close(db->handle);
    free(db->path);
    free(db);
}

const char *hcp_db_path(const hcp_db *db)
{
    return db->path;
}
