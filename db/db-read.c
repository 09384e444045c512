/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

#define FROM_CELL                                                                        \
    " FROM cell c JOIN run r ON r.id = c.run_id JOIN device d ON d.id = c.device_id"

enum { SQL_SIZE = 4096, MAX_TERMS = 10 };

/* A WHERE clause with its text parameters, bound in order. */
struct where {
    char sql[1024];
    const char *text[MAX_TERMS];
    int n;
};

static void where_text(struct where *w, const char *column, const char *value, int wanted)
{
    if (!wanted)
        return;
    snprintf(w->sql + strlen(w->sql), sizeof w->sql - strlen(w->sql), "%s %s = ?%d",
             *w->sql ? " AND" : " WHERE", column, w->n + 1);
    w->text[w->n++] = value;
}

static void where_int(struct where *w, const char *column, int32_t value)
{
    if (value)
        snprintf(w->sql + strlen(w->sql), sizeof w->sql - strlen(w->sql), "%s %s = %d",
                 *w->sql ? " AND" : " WHERE", column, (int)value);
}

static int given(const char *text)
{
    return text && *text;
}

static void where_init(struct where *w, const struct hcp_filter *f)
{
    memset(w, 0, sizeof *w);
    if (!f)
        return;
    where_text(w, "d.slug", f->device, given(f->device));
    where_text(w, "c.limiter", f->limit ? f->limit : "", given(f->limit) || f->limit_set);
    where_text(w, "c.provider", f->provider, given(f->provider));
    where_text(w, "c.dtype", f->dtype, given(f->dtype));
    where_text(w, "c.phase", f->phase, given(f->phase));
    where_text(w, "c.mask", f->mask, given(f->mask));
    where_text(w, "r.origin", f->origin, given(f->origin));
    where_text(w, "c.status", f->status, given(f->status));
    where_text(w, "r.uid", f->run_uid, given(f->run_uid));
    where_text(w, "r.host", f->host, given(f->host));
    where_int(w, "c.batch", f->batch);
    where_int(w, "c.heads", f->heads);
    where_int(w, "c.kv_heads", f->kv_heads);
    where_int(w, "c.head_dim", f->head_dim);
}

static sqlite3_stmt *prepare(hcp_db *db, const char *sql, const struct where *w,
                             struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);

    if (rc != SQLITE_OK) {
        hcp_db_sql_error(db, rc, "read", err);
        return NULL;
    }
    for (int i = 0; i < w->n; i++)
        sqlite3_bind_text(s, i + 1, w->text[i], -1, SQLITE_TRANSIENT);
    return s;
}

/* "SELECT c.id, every column" into sql. */
static void select_cells(char sql[SQL_SIZE], const char *tail)
{
    size_t n = (size_t)snprintf(sql, SQL_SIZE, "SELECT c.id");

    for (size_t i = 0; i < hcp_n_columns; i++)
        n += (size_t)snprintf(sql + n, SQL_SIZE - n, ", %s", hcp_columns[i].sql);
    snprintf(sql + n, SQL_SIZE - n, FROM_CELL "%s", tail);
}

static void read_cell(sqlite3_stmt *s, struct hcp_cell *cell)
{
    hcp_cell_init(cell);
    cell->id = sqlite3_column_int64(s, 0);
    for (size_t i = 0; i < hcp_n_columns; i++)
        hcp_column_read(s, (int)i + 1, &hcp_columns[i], cell);
}

/* Appends the samples of a cell; *room grows as needed and is reused. */
static int read_raw(hcp_db *db, sqlite3_stmt *s, struct hcp_cell *cell, double **buffer,
                    int32_t *room, struct hcp_err *err)
{
    int rc;

    sqlite3_reset(s);
    sqlite3_bind_int64(s, 1, cell->id);
    cell->n_raw = 0;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        if (cell->n_raw == *room) {
            int32_t more = *room ? *room * 2 : 64;
            double *grown = realloc(*buffer, (size_t)more * sizeof **buffer);
            if (!grown)
                return hcp_fail(err, HCP_FAILED, "out of memory");
            *buffer = grown;
            *room = more;
        }
        (*buffer)[cell->n_raw++] = sqlite3_column_double(s, 0);
    }
    cell->raw_ms = cell->n_raw ? *buffer : NULL;
    return rc == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, rc, "read", err);
}

#define SQL_RAW "SELECT time_ms FROM sample WHERE cell_id = ?1 ORDER BY seq"

int hcp_db_each_cell(hcp_db *db, const struct hcp_filter *filter, int want_raw,
                     int (*visit)(const struct hcp_cell *cell, void *ctx), void *ctx,
                     struct hcp_err *err)
{
    char sql[SQL_SIZE], tail[1536];
    struct where w, none = {0};
    struct hcp_cell cell;
    sqlite3_stmt *s, *raw = NULL;
    double *buffer = NULL;
    int32_t room = 0;
    int rc, result = HCP_OK;

    where_init(&w, filter);
    snprintf(
        tail, sizeof tail,
        "%s ORDER BY d.slug, c.limiter, c.provider, c.dtype, c.phase, c.batch, c.heads, "
        "c.kv_heads, c.head_dim, c.mask, c.q_len, c.kv_len, r.uid, d.uuid, c.id",
        w.sql);
    select_cells(sql, tail);
    s = prepare(db, sql, &w, err);
    if (!s)
        return HCP_FAILED;
    if (want_raw && !(raw = prepare(db, SQL_RAW, &none, err))) {
        sqlite3_finalize(s);
        return HCP_FAILED;
    }
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        read_cell(s, &cell);
        if (raw && (result = read_raw(db, raw, &cell, &buffer, &room, err)))
            break;
        if ((result = visit(&cell, ctx)))
            break;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    free(buffer);
    sqlite3_finalize(raw);
    sqlite3_finalize(s);
    return result;
}

int hcp_db_get_cell(hcp_db *db, int64_t id, struct hcp_cell *out, struct hcp_err *err)
{
    char sql[SQL_SIZE] = "";
    sqlite3_stmt *s, *raw;
    double *buffer = NULL;
    int32_t room = 0;
    int rc;

    if (!db->stmt[HCP_STMT_GET_CELL])
        select_cells(sql, " WHERE c.id = ?1");
    s = hcp_db_stmt(db, HCP_STMT_GET_CELL, sql, err);
    raw = s ? hcp_db_stmt(db, HCP_STMT_GET_SAMPLES, SQL_RAW, err) : NULL;
    if (!raw)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, id);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) {
        read_cell(s, out);
        rc = read_raw(db, raw, out, &buffer, &room, err);
    } else {
        rc = rc == SQLITE_DONE ? hcp_fail(err, HCP_FAILED, "'%s' has no cell %lld",
                                          db->path, (long long)id)
                               : hcp_db_sql_error(db, rc, "read", err);
    }
    /* A statement left running would hold its lock. */
    sqlite3_reset(s);
    sqlite3_reset(raw);
    if (rc)
        free(buffer);
    return rc;
}

int hcp_db_keys(hcp_db *db, const struct hcp_filter *filter, struct hcp_key **keys,
                size_t *n, struct hcp_err *err)
{
    char sql[SQL_SIZE];
    struct hcp_filter ok = {0};
    struct hcp_key *list = NULL;
    size_t count = 0, room = 0;
    struct where w;
    sqlite3_stmt *s;
    int rc;

    if (filter)
        ok = *filter;
    ok.status = "ok";
    where_init(&w, &ok);
    snprintf(sql, sizeof sql,
             "SELECT DISTINCT d.slug, c.limiter, c.provider, c.dtype, c.phase, c.batch, "
             "c.heads, c.kv_heads, c.head_dim" FROM_CELL
             "%s ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9",
             w.sql);
    s = prepare(db, sql, &w, err);
    if (!s)
        return HCP_FAILED;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct hcp_key *k;
        if (count == room) {
            room = room ? room * 2 : 32;
            k = realloc(list, room * sizeof *list);
            if (!k) {
                rc = SQLITE_NOMEM;
                break;
            }
            list = k;
        }
        k = memset(&list[count++], 0, sizeof *k);
        hcp_column_copy(s, 0, k->device, sizeof k->device);
        hcp_column_copy(s, 1, k->limit, sizeof k->limit);
        hcp_column_copy(s, 2, k->provider, sizeof k->provider);
        hcp_column_copy(s, 3, k->dtype, sizeof k->dtype);
        hcp_column_copy(s, 4, k->phase, sizeof k->phase);
        k->batch = sqlite3_column_int(s, 5);
        k->heads = sqlite3_column_int(s, 6);
        k->kv_heads = sqlite3_column_int(s, 7);
        k->head_dim = sqlite3_column_int(s, 8);
    }
    if (rc != SQLITE_DONE) {
        rc = hcp_db_sql_error(db, rc, "read", err);
        free(list);
    } else {
        *keys = list;
        *n = count;
        rc = HCP_OK;
    }
    sqlite3_finalize(s);
    return rc;
}

/* FNV-1a, 64 bits. */
static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_int(uint64_t h, int64_t v)
{
    unsigned char le[8];

    for (int i = 0; i < 8; i++)
        le[i] = (unsigned char)((uint64_t)v >> (8 * i));
    return hash_bytes(h, le, sizeof le);
}

static uint64_t hash_real(uint64_t h, double v)
{
    int64_t bits;

    if (isnan(v))
        v = NAN; /* one of the many NaNs */
    memcpy(&bits, &v, sizeof bits);
    return hash_int(h, bits);
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return hash_bytes(h, text, strlen(text) + 1);
}

/* Cells are hashed one by one and summed: no order, and equal cells of two runs
 * count twice instead of cancelling. */
static int add_hash(const struct hcp_cell *c, void *ctx)
{
    const double times[] = {c->time_ms, c->min_ms,   c->p25_ms,  c->p75_ms,
                            c->max_ms,  c->ci_lo_ms, c->ci_hi_ms};
    uint64_t h = 0xcbf29ce484222325u;

    h = hash_text(h, c->mask);
    h = hash_int(h, c->q_len);
    h = hash_int(h, c->kv_len);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        h = hash_real(h, times[i]);
    h = hash_int(h, c->samples);
    h = hash_int(h, c->sm_seen);
    h = hash_int(h, c->sm_count);
    h = hash_int(h, c->tile_q);
    h = hash_int(h, c->tile_kv);
    h = hash_text(h, c->provider_version);
    h = hash_text(h, c->provider_config);
    h = hash_text(h, c->cache);
    h = hash_text(h, c->origin);
    h = hash_text(h, c->run_uid);
    h = hash_text(h, c->host);
    *(uint64_t *)ctx += h;
    return HCP_OK;
}

/* A key without finish rows hashes to what its cells alone do. */
static int add_finish_hash(const struct hcp_finish_row *f, void *ctx)
{
    uint64_t h = 0xcbf29ce484222325u;

    h = hash_text(h, "finish");
    h = hash_text(h, f->kind);
    h = hash_int(h, f->q_len);
    h = hash_real(h, f->time_ms);
    h = hash_real(h, f->p25_ms);
    h = hash_real(h, f->p75_ms);
    h = hash_int(h, f->samples);
    h = hash_int(h, f->sm_seen);
    h = hash_int(h, f->sm_count);
    h = hash_text(h, f->from.origin);
    h = hash_text(h, f->from.run_uid);
    h = hash_text(h, f->from.host);
    *(uint64_t *)ctx += h;
    return HCP_OK;
}

#define HASH_SEED 0x9e3779b97f4a7c15u

int hcp_db_samples_hash(hcp_db *db, const struct hcp_key *key, uint64_t *out,
                        struct hcp_err *err)
{
    const struct hcp_filter filter = {
        .device = key->device,
        .limit = key->limit,
        .limit_set = 1,
        .provider = key->provider,
        .dtype = key->dtype,
        .phase = key->phase,
        .batch = key->batch,
        .heads = key->heads,
        .kv_heads = key->kv_heads,
        .head_dim = key->head_dim,
        .status = "ok",
    };
    uint64_t sum = HASH_SEED;
    int rc = hcp_db_each_cell(db, &filter, 0, add_hash, &sum, err);

    if (!rc)
        rc = hcp_db_each_finish(db, &filter, add_finish_hash, &sum, err);
    if (!rc)
        *out = sum;
    return rc;
}

int hcp_key_equal(const struct hcp_key *a, const struct hcp_key *b)
{
    return !strcmp(a->device, b->device) && !strcmp(a->limit, b->limit) &&
           !strcmp(a->provider, b->provider) && !strcmp(a->dtype, b->dtype) &&
           !strcmp(a->phase, b->phase) && a->batch == b->batch && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim;
}

struct hashes {
    struct hcp_key_hash *list;
    size_t n, room;
    struct hcp_err *err;
};

/* Cells arrive in order of key. */
static int hash_cell(const struct hcp_cell *c, void *ctx)
{
    struct hashes *h = ctx;

    if (!h->n || !hcp_key_equal(&h->list[h->n - 1].key, &c->key)) {
        if (h->n == h->room) {
            size_t room = h->room ? h->room * 2 : 32;
            struct hcp_key_hash *grown = realloc(h->list, room * sizeof *grown);
            if (!grown)
                return hcp_fail(h->err, HCP_FAILED, "out of memory");
            h->list = grown;
            h->room = room;
        }
        h->list[h->n++] = (struct hcp_key_hash){c->key, HASH_SEED};
    }
    return add_hash(c, &h->list[h->n - 1].hash);
}

static int hash_finish(const struct hcp_finish_row *f, void *ctx)
{
    struct hashes *h = ctx;

    for (size_t i = 0; i < h->n; i++)
        if (hcp_key_equal(&h->list[i].key, &f->key))
            return add_finish_hash(f, &h->list[i].hash);
    return HCP_OK;
}

int hcp_db_samples_hashes(hcp_db *db, struct hcp_key_hash **hashes, size_t *n,
                          struct hcp_err *err)
{
    const struct hcp_filter ok = {.status = "ok"};
    struct hashes h = {.err = err};
    int rc = hcp_db_each_cell(db, &ok, 0, hash_cell, &h, err);

    if (!rc)
        rc = hcp_db_each_finish(db, NULL, hash_finish, &h, err);
    if (rc) {
        free(h.list);
        return rc;
    }
    *hashes = h.list;
    *n = h.n;
    return HCP_OK;
}
