/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

static int finish(hcp_db *db, sqlite3_stmt *s, struct hcp_err *err)
{
    int rc = sqlite3_step(s);

    rc = rc == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, rc, "write", err);
    sqlite3_finalize(s);
    return rc;
}

static int prepare(hcp_db *db, const char *sql, sqlite3_stmt **s, struct hcp_err *err)
{
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, s, NULL);

    return rc == SQLITE_OK ? HCP_OK : hcp_db_sql_error(db, rc, "use", err);
}

/* Parameters 1..10: the key and the kind. */
static void bind_key(sqlite3_stmt *s, const struct hcp_key *k, const char *kind)
{
    sqlite3_bind_text(s, 1, k->device, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, k->limit, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, k->provider, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 4, k->dtype, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 5, k->phase, -1, SQLITE_STATIC);
    sqlite3_bind_int(s, 6, k->batch);
    sqlite3_bind_int(s, 7, k->heads);
    sqlite3_bind_int(s, 8, k->kv_heads);
    sqlite3_bind_int(s, 9, k->head_dim);
    sqlite3_bind_text(s, 10, kind, -1, SQLITE_STATIC);
}

static int put_array(hcp_db *db, int64_t model, const struct hcp_named_array *a,
                     struct hcp_err *err)
{
    unsigned char *le = malloc(a->n ? a->n * 8 : 1);
    sqlite3_stmt *s = NULL;
    int rc;

    if (!le)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < a->n; i++) {
        uint64_t bits;
        memcpy(&bits, &a->v[i], sizeof bits);
        for (int b = 0; b < 8; b++)
            le[i * 8 + (size_t)b] = (unsigned char)(bits >> (8 * b));
    }
    rc = prepare(db, "INSERT INTO model_array (model_id, name, f64_le) VALUES (?, ?, ?)",
                 &s, err);
    if (!rc) {
        sqlite3_bind_int64(s, 1, model);
        sqlite3_bind_text(s, 2, a->name, -1, SQLITE_STATIC);
        sqlite3_bind_blob64(s, 3, le, a->n * 8, SQLITE_STATIC);
        rc = finish(db, s, err);
    }
    free(le);
    return rc;
}

static int put_inside(hcp_db *db, const struct hcp_model_row *m,
                      const struct hcp_named_array *arrays, size_t n_arrays,
                      struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int64_t id;
    int rc =
        prepare(db,
                "DELETE FROM model WHERE device = ?1 AND limiter = ?2 AND provider = ?3 "
                "AND dtype = ?4 AND phase = ?5 AND batch = ?6 AND heads = ?7 AND "
                "kv_heads = ?8 AND head_dim = ?9 AND kind = ?10",
                &s, err);

    if (rc)
        return rc;
    bind_key(s, &m->key, m->kind);
    if ((rc = finish(db, s, err)))
        return rc;
    rc = prepare(
        db,
        "INSERT INTO model (device, limiter, provider, dtype, phase, batch, heads, "
        "kv_heads, head_dim, kind, origin, samples_hash, format, holdout_median, "
        "holdout_p90, holdout_cells, fitted_at, tool_version, holdout_note) VALUES "
        "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, "
        "?17, ?18, ?19)",
        &s, err);
    if (rc)
        return rc;
    bind_key(s, &m->key, m->kind);
    hcp_bind_text(s, 11, m->origin);
    sqlite3_bind_int64(s, 12, (int64_t)m->samples_hash);
    sqlite3_bind_int(s, 13, m->format);
    hcp_bind_real(s, 14, m->holdout_median);
    hcp_bind_real(s, 15, m->holdout_p90);
    hcp_bind_int(s, 16, m->holdout_cells, -1);
    hcp_bind_text(s, 17, m->fitted_at);
    hcp_bind_text(s, 18, m->tool_version);
    hcp_bind_text(s, 19, m->holdout_note);
    if ((rc = finish(db, s, err)))
        return rc;
    id = sqlite3_last_insert_rowid(db->handle);
    for (size_t i = 0; !rc && i < n_arrays; i++)
        rc = put_array(db, id, &arrays[i], err);
    return rc;
}

int hcp_db_put_model(hcp_db *db, const struct hcp_model_row *row,
                     const struct hcp_named_array *arrays, size_t n_arrays,
                     struct hcp_err *err)
{
    int own, rc = hcp_db_enter(db, &own, err);

    return rc ? rc
              : hcp_db_leave(db, own, put_inside(db, row, arrays, n_arrays, err), err);
}

static void free_arrays(struct hcp_named_array *arrays, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(arrays[i].v);
    free(arrays);
}

static int read_array(hcp_db *db, sqlite3_stmt *s, struct hcp_named_array *a,
                      struct hcp_err *err)
{
    const unsigned char *le = sqlite3_column_blob(s, 1);

    a->n = (size_t)sqlite3_column_bytes(s, 1) / 8;
    a->v = malloc(a->n ? a->n * sizeof *a->v : 1);
    if (!a->v)
        return hcp_fail(err, HCP_FAILED, "'%s': out of memory", db->path);
    hcp_column_copy(s, 0, a->name, sizeof a->name);
    for (size_t i = 0; i < a->n; i++) {
        uint64_t bits = 0;
        for (int b = 0; b < 8; b++)
            bits |= (uint64_t)le[i * 8 + (size_t)b] << (8 * b);
        memcpy(&a->v[i], &bits, sizeof bits);
    }
    return HCP_OK;
}

/* Arrays of one model in order of name. */
static int read_arrays(hcp_db *db, int64_t model, struct hcp_named_array **out, size_t *n,
                       struct hcp_err *err)
{
    struct hcp_named_array *list = NULL;
    size_t count = 0;
    sqlite3_stmt *s = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(db,
                     "SELECT name, f64_le FROM model_array WHERE model_id = ?1 ORDER BY "
                     "name",
                     &s, err);

    if (rc)
        return rc;
    sqlite3_bind_int64(s, 1, model);
    while (!rc && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct hcp_named_array *grown = realloc(list, (count + 1) * sizeof *list);
        if (!grown) {
            rc = hcp_fail(err, HCP_FAILED, "'%s': out of memory", db->path);
            break;
        }
        list = grown;
        rc = read_array(db, s, &list[count], err);
        if (!rc)
            count++;
    }
    if (!rc && step != SQLITE_DONE)
        rc = hcp_db_sql_error(db, step, "read", err);
    sqlite3_finalize(s);
    if (rc) {
        free_arrays(list, count);
        return rc;
    }
    *out = list;
    *n = count;
    return HCP_OK;
}

static void read_row(sqlite3_stmt *s, struct hcp_model_row *m)
{
    memset(m, 0, sizeof *m);
    m->id = sqlite3_column_int64(s, 0);
    hcp_column_copy(s, 1, m->key.device, sizeof m->key.device);
    hcp_column_copy(s, 2, m->key.limit, sizeof m->key.limit);
    hcp_column_copy(s, 3, m->key.provider, sizeof m->key.provider);
    hcp_column_copy(s, 4, m->key.dtype, sizeof m->key.dtype);
    hcp_column_copy(s, 5, m->key.phase, sizeof m->key.phase);
    m->key.batch = sqlite3_column_int(s, 6);
    m->key.heads = sqlite3_column_int(s, 7);
    m->key.kv_heads = sqlite3_column_int(s, 8);
    m->key.head_dim = sqlite3_column_int(s, 9);
    hcp_column_copy(s, 10, m->kind, sizeof m->kind);
    hcp_column_copy(s, 11, m->origin, sizeof m->origin);
    m->samples_hash = (uint64_t)sqlite3_column_int64(s, 12);
    m->format = sqlite3_column_int(s, 13);
    m->holdout_median =
        sqlite3_column_type(s, 14) == SQLITE_NULL ? NAN : sqlite3_column_double(s, 14);
    m->holdout_p90 =
        sqlite3_column_type(s, 15) == SQLITE_NULL ? NAN : sqlite3_column_double(s, 15);
    m->holdout_cells =
        sqlite3_column_type(s, 16) == SQLITE_NULL ? -1 : sqlite3_column_int(s, 16);
    hcp_column_copy(s, 17, m->fitted_at, sizeof m->fitted_at);
    hcp_column_copy(s, 18, m->tool_version, sizeof m->tool_version);
    hcp_column_copy(s, 19, m->holdout_note, sizeof m->holdout_note);
}

/* A filter without a value lets everything through; "?N = ''" says so in SQL. */
static sqlite3_stmt *select_models(hcp_db *db, const struct hcp_filter *f,
                                   struct hcp_err *err)
{
    static const struct hcp_filter any = {0};
    sqlite3_stmt *s = NULL;
    int rc =
        prepare(db,
                "SELECT id, device, limiter, provider, dtype, phase, batch, heads, "
                "kv_heads, head_dim, kind, origin, samples_hash, format, "
                "holdout_median, holdout_p90, holdout_cells, fitted_at, tool_version, "
                "holdout_note FROM model WHERE (?1 = '' OR device = ?1) AND "
                "((?2 = '' AND NOT ?3) OR limiter = ?2) AND (?4 = '' OR provider = ?4) "
                "AND (?5 = '' OR dtype = ?5) AND (?6 = '' OR phase = ?6) AND "
                "(?7 = 0 OR batch = ?7) AND (?8 = 0 OR heads = ?8) AND (?9 = 0 OR "
                "kv_heads = ?9) AND (?10 = 0 OR head_dim = ?10) AND (?11 = '' OR origin "
                "= ?11) ORDER BY 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
                &s, err);

    if (rc)
        return NULL;
    f = f ? f : &any;
    sqlite3_bind_text(s, 1, f->device ? f->device : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(s, 2, f->limit ? f->limit : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(s, 3, f->limit_set);
    sqlite3_bind_text(s, 4, f->provider ? f->provider : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(s, 5, f->dtype ? f->dtype : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(s, 6, f->phase ? f->phase : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(s, 7, f->batch);
    sqlite3_bind_int(s, 8, f->heads);
    sqlite3_bind_int(s, 9, f->kv_heads);
    sqlite3_bind_int(s, 10, f->head_dim);
    sqlite3_bind_text(s, 11, f->origin ? f->origin : "", -1, SQLITE_TRANSIENT);
    return s;
}

int hcp_db_each_model(hcp_db *db, const struct hcp_filter *filter,
                      int (*visit)(const struct hcp_model_row *row,
                                   const struct hcp_named_array *arrays, size_t n_arrays,
                                   void *ctx),
                      void *ctx, struct hcp_err *err)
{
    sqlite3_stmt *s = select_models(db, filter, err);
    struct hcp_model_row row;
    struct hcp_named_array *arrays;
    size_t n;
    int step = SQLITE_DONE, rc = HCP_OK;

    if (!s)
        return HCP_FAILED;
    while (!rc && (step = sqlite3_step(s)) == SQLITE_ROW) {
        read_row(s, &row);
        rc = read_arrays(db, row.id, &arrays, &n, err);
        if (rc)
            break;
        rc = visit(&row, arrays, n, ctx);
        free_arrays(arrays, n);
    }
    if (!rc && step != SQLITE_DONE)
        rc = hcp_db_sql_error(db, step, "read", err);
    sqlite3_finalize(s);
    return rc;
}
