/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "db/db-internal.h"
#include "db/parse.h"

void hcp_bandwidth_init(struct hcp_bandwidth *row)
{
    memset(row, 0, sizeof *row);
    row->gb_per_s = NAN;
    row->sm_seen = row->sm_count = -1;
    strcpy(row->kind, "copy");
    strcpy(row->origin, "measured");
}

int hcp_bandwidth_validate(const struct hcp_bandwidth *row, struct hcp_err *err)
{
    char kind[8], text[32];
    int32_t level;
    int rc = hcp_parse_slug(row->device, "device", sizeof row->device, err);

    if (!rc)
        rc = hcp_parse_limit(row->limit, kind, &level, err);
    if (rc)
        return HCP_FAILED;
    if (strcmp(row->kind, "copy"))
        return hcp_fail(err, HCP_FAILED, "kind '%s' is not known; expected copy",
                        row->kind);
    if (!(row->gb_per_s > 0) || isinf(row->gb_per_s))
        return hcp_fail(
            err, HCP_FAILED,
            "gb_per_s %s is not a bandwidth; expected 1e9 bytes a second above "
            "zero",
            hcp_format_double(row->gb_per_s, text));
    if (row->bytes < 0)
        return hcp_fail(err, HCP_FAILED, "bytes %lld is negative", (long long)row->bytes);
    if (row->sm_seen == 0 ||
        (row->sm_seen > 0 && row->sm_count > 0 && row->sm_seen > row->sm_count))
        return hcp_fail(
            err, HCP_FAILED,
            "sm_seen %d is not between 1 and sm_count %d, the SMs of the whole "
            "device",
            (int)row->sm_seen, (int)row->sm_count);
    if (strcmp(row->origin, "measured") && strcmp(row->origin, "recorded") &&
        strcmp(row->origin, "synthetic"))
        return hcp_fail(
            err, HCP_FAILED,
            "origin '%s' is not known; expected measured, recorded or synthetic",
            row->origin);
    if (!*row->run_uid)
        return hcp_fail(err, HCP_FAILED, "run_uid is empty; every row belongs to a run");
    return HCP_OK;
}

/* Looks for the row's identity; found: says whether the values agree. */
static int find(hcp_db *db, const struct hcp_bandwidth *row, int64_t run, int *found,
                enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    sqlite3_stmt *s = hcp_db_stmt(db, HCP_STMT_FIND_BANDWIDTH,
                                  "SELECT gb_per_s, ifnull(sm_seen, -1) FROM bandwidth "
                                  "WHERE run_id = ?1 AND device_id "
                                  "IN (SELECT id FROM device WHERE slug = ?2 AND "
                                  "ifnull(uuid, '') = ifnull(?3, '')) AND "
                                  "limiter = ?4 AND kind = ?5 AND ifnull(bytes, 0) = ?6",
                                  err);
    int rc;

    if (!s)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, run);
    hcp_bind_text(s, 2, row->device);
    hcp_bind_text(s, 3, row->device_uuid);
    sqlite3_bind_text(s, 4, row->limit, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 5, row->kind, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 6, row->bytes);
    rc = sqlite3_step(s);
    *found = rc == SQLITE_ROW;
    if (*found)
        *outcome = sqlite3_column_double(s, 0) == row->gb_per_s &&
                           sqlite3_column_int(s, 1) == row->sm_seen
                       ? HCP_DB_SAME
                       : HCP_DB_CONFLICT;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return hcp_db_sql_error(db, rc, "read", err);
    sqlite3_reset(s);
    return HCP_OK;
}

static int add_inside(hcp_db *db, const void *valid, enum hcp_db_outcome *outcome,
                      struct hcp_err *err)
{
    const struct hcp_bandwidth *row = valid;
    int64_t run = 0, device = 0;
    sqlite3_stmt *s;
    int found = 0;
    int rc =
        hcp_db_run_id(db, row->run_uid, row->host, row->origin, row->driver,
                      row->cuda_version, row->tool_version, row->measured_at, &run, err);

    if (!rc)
        rc = find(db, row, run, &found, outcome, err);
    if (rc || found)
        return rc;
    *outcome = HCP_DB_STORED;
    rc = hcp_db_device_id(db, row->device, row->device_uuid, row->device_name,
                          row->sm_count, &device, err);
    if (rc)
        return rc;
    s = hcp_db_stmt(db, HCP_STMT_ADD_BANDWIDTH,
                    "INSERT INTO bandwidth (run_id, device_id, limiter, kind, bytes, "
                    "gb_per_s, sm_seen, measured_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    err);
    if (!s)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, run);
    sqlite3_bind_int64(s, 2, device);
    sqlite3_bind_text(s, 3, row->limit, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 4, row->kind, -1, SQLITE_STATIC);
    hcp_bind_int(s, 5, row->bytes, 0);
    sqlite3_bind_double(s, 6, row->gb_per_s);
    hcp_bind_int(s, 7, row->sm_seen, -1);
    hcp_bind_text(s, 8, row->measured_at);
    rc = sqlite3_step(s);
    rc = rc == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, rc, "write", err);
    sqlite3_reset(s);
    return rc;
}

int hcp_db_add_bandwidth(hcp_db *db, const struct hcp_bandwidth *row,
                         enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    int rc = hcp_bandwidth_validate(row, err);

    return rc ? rc : hcp_db_add_row(db, add_inside, row, outcome, err);
}

static void read_bandwidth(sqlite3_stmt *s, struct hcp_bandwidth *row)
{
    const struct {
        char *text;
        size_t size;
    } texts[] = {
        {row->device, sizeof row->device},
        {row->limit, sizeof row->limit},
        {row->kind, sizeof row->kind},
        {row->origin, sizeof row->origin},
        {row->run_uid, sizeof row->run_uid},
        {row->host, sizeof row->host},
        {row->device_uuid, sizeof row->device_uuid},
        {row->device_name, sizeof row->device_name},
        {row->driver, sizeof row->driver},
        {row->cuda_version, sizeof row->cuda_version},
        {row->tool_version, sizeof row->tool_version},
        {row->measured_at, sizeof row->measured_at},
    };

    hcp_bandwidth_init(row);
    row->bytes = sqlite3_column_int64(s, 0);
    row->gb_per_s = sqlite3_column_double(s, 1);
    row->sm_seen = sqlite3_column_int(s, 2);
    row->sm_count = sqlite3_column_int(s, 3);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hcp_column_copy(s, 4 + (int)i, texts[i].text, texts[i].size);
}

int hcp_db_each_bandwidth(hcp_db *db, const struct hcp_filter *filter,
                          int (*visit)(const struct hcp_bandwidth *row, void *ctx),
                          void *ctx, struct hcp_err *err)
{
    static const struct hcp_filter any = {0};
    const struct hcp_filter *f = filter ? filter : &any;
    const char *const terms[] = {f->device, f->limit, f->origin, f->run_uid, f->host};
    struct hcp_bandwidth row;
    sqlite3_stmt *s = NULL;
    int result = HCP_OK;
    int rc = sqlite3_prepare_v2(
        db->handle,
        "SELECT ifnull(b.bytes, 0), b.gb_per_s, ifnull(b.sm_seen, -1), "
        "ifnull(d.sm_count, -1),"
        "d.slug, b.limiter, b.kind, r.origin, r.uid, r.host, d.uuid, d.name, r.driver, "
        "r.cuda_version, r.tool_version, b.measured_at FROM bandwidth b JOIN run r ON "
        "r.id = "
        "b.run_id JOIN device d ON d.id = b.device_id WHERE (?1 = '' OR d.slug = ?1) AND "
        "((?2 = '' AND NOT ?6) OR b.limiter = ?2) AND (?3 = '' OR r.origin = ?3) AND "
        "(?4 = '' OR r.uid = ?4) AND (?5 = '' OR r.host = ?5) "
        "ORDER BY d.slug, b.limiter, b.kind, b.bytes, r.uid, d.uuid, b.id",
        -1, &s, NULL);

    if (rc != SQLITE_OK)
        return hcp_db_sql_error(db, rc, "read", err);
    for (int i = 0; i < 5; i++)
        sqlite3_bind_text(s, i + 1, terms[i] ? terms[i] : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(s, 6, f->limit_set);
    while (!result && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        read_bandwidth(s, &row);
        result = visit(&row, ctx);
    }
    if (!result && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return result;
}

int hcp_db_run_of(hcp_db *db, const struct hcp_provenance *from, int64_t *id,
                  struct hcp_err *err)
{
    return hcp_db_run_id(db, from->run_uid, from->host, from->origin, from->driver,
                         from->cuda_version, from->tool_version, from->measured_at, id,
                         err);
}

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
