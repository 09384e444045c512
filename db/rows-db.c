/* SPDX-License-Identifier: Apache-2.0
 *
 * What rows of runs other than cells have in common on their way into and out of the
 * file.
 */
#include "config.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "db/db-internal.h"

enum { WHERE_SIZE = 1024, MAX_TERMS = 24 };

/* Terms joined by AND, with their parameters in order. */
struct where {
    char sql[WHERE_SIZE];
    const char *text[MAX_TERMS];
    int n;
};

static void add_sql(struct where *w, const char *sql)
{
    size_t n = strlen(w->sql);

    assert(n + strlen(sql) < sizeof w->sql);
    snprintf(w->sql + n, sizeof w->sql - n, "%s", sql);
}

static void add_equal(struct where *w, const struct hcp_column *c, const char *text)
{
    add_sql(w, c->sql);
    add_sql(w, " = ?");
    assert(w->n < MAX_TERMS);
    w->text[w->n++] = text;
}

/* Device and limit of one end. */
static void add_end(struct where *w, const struct hcp_rows *rows, const char *prefix,
                    const char *device, const char *limit)
{
    char name[32];
    const struct hcp_column *c;

    add_sql(w, "(1");
    if (device) {
        snprintf(name, sizeof name, "%sdevice", prefix);
        add_sql(w, " AND ");
        add_equal(w, hcp_rows_column(rows, name), device);
    }
    snprintf(name, sizeof name, "%slimit", prefix);
    c = hcp_rows_column(rows, name);
    if (limit && c) {
        add_sql(w, " AND ");
        add_equal(w, c, limit);
    }
    add_sql(w, ")");
}

static const char *given(const char *text)
{
    return text && *text ? text : NULL;
}

static int is_pair(const struct hcp_rows *rows)
{
    return hcp_rows_column(rows, "peer_device") != NULL;
}

int hcp_kind_answers(const struct hcp_kind *kind, const struct hcp_filter *f)
{
    const struct {
        const char *name;
        int given;
    } terms[] = {{"provider", f && given(f->provider)},
                 {"dtype", f && given(f->dtype)},
                 {"phase", f && given(f->phase)},
                 {"mask", f && given(f->mask)},
                 {"status", f && given(f->status)},
                 {"batch", f && f->batch},
                 {"heads", f && f->heads},
                 {"kv_heads", f && f->kv_heads},
                 {"head_dim", f && f->head_dim}};

    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        if (terms[i].given && !hcp_rows_column(kind->rows, terms[i].name))
            return 0;
    return 1;
}

/* What the list has no column for does not count. */
static void make_where(struct where *w, const struct hcp_rows *rows,
                       const struct hcp_filter *f)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"provider", f->provider}, {"dtype", f->dtype},
                 {"phase", f->phase},       {"mask", f->mask},
                 {"origin", f->origin},     {"run_uid", f->run_uid}};
    const struct {
        const char *name;
        int32_t n;
    } numbers[] = {{"batch", f->batch},
                   {"heads", f->heads},
                   {"kv_heads", f->kv_heads},
                   {"head_dim", f->head_dim}};
    const char *limit = f->limit_set && !f->limit ? "" : f->limit;
    const char *host = given(f->host);
    const struct hcp_column *c;
    char term[64];

    if (!f->limit_set)
        limit = given(limit);
    add_sql(w, " WHERE (");
    add_end(w, rows, "", given(f->device), limit);
    if (is_pair(rows)) {
        add_sql(w, " OR ");
        add_end(w, rows, "peer_", given(f->device), limit);
    }
    add_sql(w, ")");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!given(texts[i].text) || !(c = hcp_rows_column(rows, texts[i].name)))
            continue;
        add_sql(w, " AND ");
        add_equal(w, c, texts[i].text);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!numbers[i].n || !(c = hcp_rows_column(rows, numbers[i].name)))
            continue;
        snprintf(term, sizeof term, " AND %s = %d", c->sql, (int)numbers[i].n);
        add_sql(w, term);
    }
    if (!host)
        return;
    add_sql(w, " AND (");
    add_equal(w, hcp_rows_column(rows, "host"), host);
    if (is_pair(rows)) {
        add_sql(w, " OR ");
        add_equal(w, hcp_rows_column(rows, "peer_host"), host);
    }
    add_sql(w, ")");
}

int hcp_kind_each(hcp_db *db, const struct hcp_kind *kind,
                  const struct hcp_filter *filter,
                  int (*visit)(const void *row, void *ctx), void *ctx,
                  struct hcp_err *err)
{
    static const struct hcp_filter any = {0};
    _Alignas(max_align_t) unsigned char row[HCP_ROW_BYTES] = {0};
    struct where w = {0};
    sqlite3_stmt *s;
    int rc = SQLITE_DONE, result = HCP_OK;

    make_where(&w, kind->rows, filter ? filter : &any);
    s = hcp_rows_select(db, kind->rows, "", w.sql, err);
    if (!s)
        return HCP_FAILED;
    for (int i = 0; i < w.n; i++)
        sqlite3_bind_text(s, i + 1, w.text[i], -1, SQLITE_TRANSIENT);
    while (!result && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        hcp_rows_read(s, kind->rows, row);
        result = visit(row, ctx);
    }
    if (!result && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return result;
}

static const void *field(const struct hcp_rows *rows, const void *row, const char *name)
{
    return (const char *)row + hcp_rows_column(rows, name)->offset;
}

struct adding {
    const struct hcp_kind *kind;
    const void *row;
};

static int add_inside(hcp_db *db, const void *what, enum hcp_db_outcome *outcome,
                      struct hcp_err *err)
{
    static const char *const one[] = {"run_id", "device_id"}, *const two[] = {
                                                                  "run_id", "device_a_id",
                                                                  "device_b_id"};
    const struct adding *a = what;
    const struct hcp_rows *r = a->kind->rows;
    const void *row = a->row;
    const int pair = is_pair(r);
    _Alignas(max_align_t) unsigned char stored[HCP_ROW_BYTES] = {0};
    int64_t refs[3];
    int found = 0;
    int rc = hcp_db_run_id(db, field(r, row, "run_uid"), field(r, row, "host"),
                           field(r, row, "origin"), field(r, row, "driver"),
                           field(r, row, "cuda_version"), field(r, row, "tool_version"),
                           field(r, row, "measured_at"), &refs[0], err);

    if (!rc)
        rc = hcp_rows_find(db, r, row, stored, &found, NULL, err);
    if (!rc && found)
        *outcome = hcp_rows_same(r, row, stored) ? HCP_DB_SAME : HCP_DB_CONFLICT;
    if (rc || found)
        return rc;
    rc = hcp_db_device_id(db, field(r, row, "device"), field(r, row, "device_uuid"),
                          field(r, row, "device_name"),
                          *(const int32_t *)field(r, row, "sm_count"), &refs[1], err);
    if (!rc && pair)
        rc = hcp_db_device_id(db, field(r, row, "peer_device"),
                              field(r, row, "peer_uuid"), field(r, row, "peer_name"),
                              *(const int32_t *)field(r, row, "peer_sm_count"), &refs[2],
                              err);
    return rc ? rc
              : hcp_rows_insert(db, r, pair ? two : one, refs, pair ? 3 : 2, row, err);
}

int hcp_kind_add(hcp_db *db, const struct hcp_kind *kind, const void *row,
                 enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    const struct adding a = {kind, row};
    int rc = kind->validate(row, err);

    return rc ? rc : hcp_db_add_row(db, add_inside, &a, outcome, err);
}

const struct hcp_kind *const hcp_kinds[HCP_N_KINDS] = {
    &hcp_bandwidth_kind,    &hcp_finish_kind, &hcp_link_kind,  &hcp_topology_kind,
    &hcp_interference_kind, &hcp_drift_kind,  &hcp_linear_kind};
