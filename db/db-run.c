/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/db-internal.h"

int hcp_db_each_run(hcp_db *db, int (*visit)(const struct hcp_run *run, void *ctx),
                    void *ctx, struct hcp_err *err)
{
    struct hcp_run run;
    sqlite3_stmt *s = NULL;
    int result = HCP_OK;
    int rc =
        sqlite3_prepare_v2(db->handle,
                           "SELECT uid, host, origin, driver, cuda_version, "
                           "tool_version, started_at, ifnull(note, '') FROM run ORDER BY "
                           "uid",
                           -1, &s, NULL);

    if (rc != SQLITE_OK)
        return hcp_db_sql_error(db, rc, "read", err);
    while (!result && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        hcp_column_copy(s, 0, run.uid, sizeof run.uid);
        hcp_column_copy(s, 1, run.host, sizeof run.host);
        hcp_column_copy(s, 2, run.origin, sizeof run.origin);
        hcp_column_copy(s, 3, run.driver, sizeof run.driver);
        hcp_column_copy(s, 4, run.cuda_version, sizeof run.cuda_version);
        hcp_column_copy(s, 5, run.tool_version, sizeof run.tool_version);
        hcp_column_copy(s, 6, run.started_at, sizeof run.started_at);
        run.note = (const char *)sqlite3_column_text(s, 7);
        if (!run.note)
            run.note = "";
        result = visit(&run, ctx);
    }
    if (!result && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return result;
}

int hcp_db_note_run(hcp_db *db, const char *uid, const char *note, struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(
        db->handle, "UPDATE run SET note = ?2 WHERE uid = ?1 AND note IS NULL", -1, &s,
        NULL);

    if (rc != SQLITE_OK)
        return hcp_db_sql_error(db, rc, "write", err);
    hcp_bind_text(s, 1, uid);
    hcp_bind_text(s, 2, note);
    rc = sqlite3_step(s);
    rc = rc == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, rc, "write", err);
    sqlite3_finalize(s);
    return rc;
}
