/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

static int step_id(hcp_db *db, sqlite3_stmt *s, int64_t *id, struct hcp_err *err)
{
    int rc = sqlite3_step(s);

    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return hcp_db_sql_error(db, rc, "write", err);
    *id = rc == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    return HCP_OK;
}

static int step_write(hcp_db *db, sqlite3_stmt *s, struct hcp_err *err)
{
    int rc = sqlite3_step(s);

    if (rc == SQLITE_DONE || rc == SQLITE_ROW)
        return HCP_OK;
    /* Left running, the failed statement would block the rollback. */
    rc = hcp_db_sql_error(db, rc, "write", err);
    sqlite3_reset(s);
    return rc;
}

int hcp_db_device_id(hcp_db *db, const char *slug, const char *uuid, const char *name,
                     int32_t sm_count, int64_t *id, struct hcp_err *err)
{
    static const struct {
        enum hcp_stmt which;
        const char *sql;
    } steps[] = {
        {HCP_STMT_FIND_DEVICE,
         "SELECT id FROM device WHERE slug = ?1 AND ifnull(uuid, '') = "
         "ifnull(?2, '') AND ifnull(name, '') = ifnull(?3, '') AND "
         "ifnull(sm_count, 0) = ifnull(?4, 0)"},
        {HCP_STMT_ADD_DEVICE, "INSERT INTO device (slug, uuid, name, sm_count) VALUES "
                              "(?1, ?2, ?3, ?4) RETURNING id"},
    };
    int rc = HCP_OK;

    *id = 0;
    for (int i = 0; !rc && !*id && i < 2; i++) {
        sqlite3_stmt *s = hcp_db_stmt(db, steps[i].which, steps[i].sql, err);
        if (!s)
            return HCP_FAILED;
        hcp_bind_text(s, 1, slug);
        hcp_bind_text(s, 2, uuid);
        hcp_bind_text(s, 3, name);
        hcp_bind_int(s, 4, sm_count, -1);
        rc = step_id(db, s, id, err);
        sqlite3_reset(s);
    }
    return rc;
}

enum { RUN_FIELDS = 5 };
static const char *const run_fields[RUN_FIELDS] = {"host", "origin", "driver",
                                                   "cuda_version", "tool_version"};

/* Unknown fields of a stored run are filled in, contradictions refused. */
static int run_agrees(hcp_db *db, sqlite3_stmt *found, const char *uid,
                      const char *const *now, int *fill, struct hcp_err *err)
{
    char stored[128];

    *fill = 0;
    for (int i = 0; i < RUN_FIELDS; i++) {
        hcp_column_copy(found, 1 + i, stored, sizeof stored);
        if (!*stored && *now[i])
            *fill = 1;
        else if (*now[i] && strcmp(stored, now[i]))
            return hcp_fail(
                err, HCP_FAILED,
                "run '%s' in '%s' has %s '%s', this row says '%s'; rows measured "
                "elsewhere or otherwise need a run_uid of their own",
                uid, db->path, run_fields[i], stored, now[i]);
    }
    return HCP_OK;
}

int hcp_db_run_id(hcp_db *db, const char *uid, const char *host, const char *origin,
                  const char *driver, const char *cuda_version, const char *tool_version,
                  const char *started_at, int64_t *id, struct hcp_err *err)
{
    const char *const now[RUN_FIELDS] = {host, origin, driver, cuda_version,
                                         tool_version};
    sqlite3_stmt *s;
    int fill = 0, rc;

    s = hcp_db_stmt(
        db, HCP_STMT_FIND_RUN,
        "SELECT id, host, origin, driver, cuda_version, tool_version FROM run "
        "WHERE uid = ?1",
        err);
    if (!s)
        return HCP_FAILED;
    hcp_bind_text(s, 1, uid);
    rc = step_id(db, s, id, err);
    if (!rc && *id)
        rc = run_agrees(db, s, uid, now, &fill, err);
    sqlite3_reset(s);
    if (rc || (*id && !fill))
        return rc;
    if (*id)
        s = hcp_db_stmt(
            db, HCP_STMT_FILL_RUN,
            "UPDATE run SET host = ifnull(host, ?2), driver = ifnull(driver, ?4), "
            "cuda_version = ifnull(cuda_version, ?5), tool_version = "
            "ifnull(tool_version, ?6) WHERE uid = ?1 RETURNING id, ?3, ?7",
            err);
    else
        s = hcp_db_stmt(db, HCP_STMT_ADD_RUN,
                        "INSERT INTO run (uid, host, origin, driver, cuda_version, "
                        "tool_version, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) "
                        "RETURNING id",
                        err);
    if (!s)
        return HCP_FAILED;
    hcp_bind_text(s, 1, uid);
    for (int i = 0; i < RUN_FIELDS; i++)
        hcp_bind_text(s, 2 + i, now[i]);
    hcp_bind_text(s, 7, started_at);
    rc = step_id(db, s, id, err);
    sqlite3_reset(s);
    return rc;
}

/* Row of the cell with the same run, device (slug and UUID), key, mask and lengths. */
static int find_cell(hcp_db *db, const struct hcp_cell *cell, int64_t run, int64_t *id,
                     struct hcp_err *err)
{
    const struct hcp_key *k = &cell->key;
    sqlite3_stmt *s = hcp_db_stmt(
        db, HCP_STMT_FIND_CELL,
        "SELECT c.id FROM cell c WHERE c.run_id = ?1 AND "
        "c.device_id IN (SELECT id FROM device WHERE slug = ?2 AND ifnull(uuid, '') = "
        "ifnull(?3, '')) AND c.limiter = ?4 AND c.provider = ?5 AND c.dtype = ?6 AND "
        "c.phase "
        "= ?7 AND c.batch = ?8 AND c.heads = ?9 AND c.kv_heads = ?10 AND c.head_dim = "
        "?11 AND "
        "c.mask = ?12 AND c.q_len = ?13 AND c.kv_len = ?14",
        err);
    int rc;

    if (!s)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, run);
    hcp_bind_text(s, 2, k->device);
    hcp_bind_text(s, 3, cell->device_uuid);
    sqlite3_bind_text(s, 4, k->limit, -1, SQLITE_STATIC);
    hcp_bind_text(s, 5, k->provider);
    hcp_bind_text(s, 6, k->dtype);
    hcp_bind_text(s, 7, k->phase);
    sqlite3_bind_int(s, 8, k->batch);
    sqlite3_bind_int(s, 9, k->heads);
    sqlite3_bind_int(s, 10, k->kv_heads);
    sqlite3_bind_int(s, 11, k->head_dim);
    hcp_bind_text(s, 12, cell->mask);
    sqlite3_bind_int64(s, 13, cell->q_len);
    sqlite3_bind_int64(s, 14, cell->kv_len);
    rc = step_id(db, s, id, err);
    sqlite3_reset(s);
    return rc;
}

/* INSERT of every column of the table cell, made from the column list. */
static sqlite3_stmt *add_cell_stmt(hcp_db *db, struct hcp_err *err)
{
    char sql[2048] = "INSERT INTO cell (run_id, device_id", values[512] = "?,?";
    size_t n = strlen(sql), m = strlen(values);

    if (db->stmt[HCP_STMT_ADD_CELL])
        return hcp_db_stmt(db, HCP_STMT_ADD_CELL, NULL, err);
    for (size_t i = 0; i < hcp_n_columns; i++) {
        if (strncmp(hcp_columns[i].sql, "c.", 2))
            continue;
        n += (size_t)snprintf(sql + n, sizeof sql - n, ", %s", hcp_columns[i].sql + 2);
        m += (size_t)snprintf(values + m, sizeof values - m, ",?");
    }
    snprintf(sql + n, sizeof sql - n, ") VALUES (%s) RETURNING id", values);
    return hcp_db_stmt(db, HCP_STMT_ADD_CELL, sql, err);
}

static int insert_cell(hcp_db *db, const struct hcp_cell *cell, int64_t run,
                       int64_t device, struct hcp_err *err)
{
    sqlite3_stmt *s = add_cell_stmt(db, err);
    int64_t id = 0;
    int n = 3, rc;

    if (!s)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, run);
    sqlite3_bind_int64(s, 2, device);
    for (size_t i = 0; i < hcp_n_columns; i++) {
        const struct hcp_column *c = &hcp_columns[i];
        if (strncmp(c->sql, "c.", 2))
            continue;
        hcp_column_bind(s, n++, c, cell);
    }
    rc = step_id(db, s, &id, err);
    sqlite3_reset(s);
    for (int32_t i = 0; !rc && i < cell->n_raw; i++) {
        s = hcp_db_stmt(db, HCP_STMT_ADD_SAMPLE,
                        "INSERT INTO sample (cell_id, seq, time_ms) VALUES (?, ?, ?)",
                        err);
        if (!s)
            return HCP_FAILED;
        sqlite3_bind_int64(s, 1, id);
        sqlite3_bind_int(s, 2, i);
        sqlite3_bind_double(s, 3, cell->raw_ms[i]);
        rc = step_write(db, s, err);
        sqlite3_reset(s);
    }
    return rc;
}

int hcp_cell_same(const struct hcp_cell *a, const struct hcp_cell *b)
{
    for (size_t i = 0; i < hcp_n_columns; i++)
        if (!strncmp(hcp_columns[i].sql, "c.", 2) &&
            !hcp_column_equal(&hcp_columns[i], a, b))
            return 0;
    if (a->n_raw != b->n_raw)
        return 0;
    for (int32_t i = 0; i < a->n_raw; i++)
        if (a->raw_ms[i] != b->raw_ms[i])
            return 0;
    return 1;
}

int hcp_cell_compare_identity(const struct hcp_cell *a, const struct hcp_cell *b)
{
    static const size_t texts[] = {
        offsetof(struct hcp_cell, run_uid),      offsetof(struct hcp_cell, key.device),
        offsetof(struct hcp_cell, device_uuid),  offsetof(struct hcp_cell, key.limit),
        offsetof(struct hcp_cell, key.provider), offsetof(struct hcp_cell, key.dtype),
        offsetof(struct hcp_cell, key.phase),    offsetof(struct hcp_cell, mask),
    };
    const int64_t x[] = {a->key.batch,    a->key.heads, a->key.kv_heads,
                         a->key.head_dim, a->q_len,     a->kv_len};
    const int64_t y[] = {b->key.batch,    b->key.heads, b->key.kv_heads,
                         b->key.head_dim, b->q_len,     b->kv_len};
    int order = 0;

    for (size_t i = 0; !order && i < sizeof texts / sizeof *texts; i++)
        order = strcmp((const char *)a + texts[i], (const char *)b + texts[i]);
    for (size_t i = 0; !order && i < sizeof x / sizeof *x; i++)
        order = (x[i] > y[i]) - (x[i] < y[i]);
    return order;
}

int hcp_db_stored_cell(hcp_db *db, const struct hcp_cell *cell, struct hcp_cell *out,
                       struct hcp_err *err)
{
    int64_t run = 0, id = 0;
    int rc = hcp_db_run_id(db, cell->run_uid, cell->host, cell->origin, cell->driver,
                           cell->cuda_version, cell->tool_version, cell->measured_at,
                           &run, err);

    if (!rc)
        rc = find_cell(db, cell, run, &id, err);
    return rc ? rc : hcp_db_get_cell(db, id, out, err);
}

/* What to do about a stored cell of the same identity. */
static int compare_stored(hcp_db *db, int64_t id, const struct hcp_cell *cell,
                          enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    struct hcp_cell stored;
    int rc = hcp_db_get_cell(db, id, &stored, err);

    if (rc)
        return rc;
    if (hcp_cell_same(&stored, cell))
        *outcome = HCP_DB_SAME;
    else if (!strcmp(stored.status, "failed"))
        *outcome = HCP_DB_REPLACED;
    else
        *outcome = strcmp(cell->status, "failed") ? HCP_DB_CONFLICT : HCP_DB_SUPERSEDED;
    free(stored.raw_ms);
    return HCP_OK;
}

static int drop_cell(hcp_db *db, int64_t id, struct hcp_err *err)
{
    sqlite3_stmt *s =
        hcp_db_stmt(db, HCP_STMT_DROP_CELL, "DELETE FROM cell WHERE id = ?1", err);
    int rc;

    if (!s)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, id);
    rc = step_write(db, s, err);
    sqlite3_reset(s);
    return rc;
}

static int add_inside(hcp_db *db, const void *valid, enum hcp_db_outcome *outcome,
                      struct hcp_err *err)
{
    const struct hcp_cell *cell = valid;
    int64_t run = 0, device = 0, old = 0;
    int rc = hcp_db_run_id(db, cell->run_uid, cell->host, cell->origin, cell->driver,
                           cell->cuda_version, cell->tool_version, cell->measured_at,
                           &run, err);

    *outcome = HCP_DB_STORED;
    if (!rc)
        rc = find_cell(db, cell, run, &old, err);
    if (!rc && old)
        rc = compare_stored(db, old, cell, outcome, err);
    if (rc || *outcome > HCP_DB_REPLACED)
        return rc;
    if (old)
        rc = drop_cell(db, old, err);
    if (!rc)
        rc = hcp_db_device_id(db, cell->key.device, cell->device_uuid, cell->device_name,
                              cell->sm_count, &device, err);
    return rc ? rc : insert_cell(db, cell, run, device, err);
}

int hcp_db_add_cell(hcp_db *db, const struct hcp_cell *cell, enum hcp_db_outcome *outcome,
                    struct hcp_err *err)
{
    int rc = hcp_cell_validate(cell, err);

    if (!rc && !*cell->run_uid)
        rc = hcp_fail(err, HCP_FAILED, "run_uid is empty; every cell belongs to a run");
    return rc ? rc : hcp_db_add_row(db, add_inside, cell, outcome, err);
}

int hcp_db_put_cell(hcp_db *db, const struct hcp_cell *cell, struct hcp_err *err)
{
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_cell(db, cell, &outcome, err);

    if (rc || outcome <= HCP_DB_REPLACED)
        return rc;
    return hcp_fail(err, HCP_FAILED,
                    "run '%s' already has the cell %s %s q %lld kv %lld of %s in '%s'",
                    cell->run_uid, cell->key.provider, cell->mask, (long long)cell->q_len,
                    (long long)cell->kv_len, cell->key.device, db->path);
}
