/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/audit-internal.h"
#include "db/parse.h"

/* A row a key and mask, failed cells too: those that no run has measured. */
static const char cover_sql[] =
    "SELECT k.device, k.limiter, k.provider, k.dtype, k.phase, k.batch, k.heads, "
    "k.kv_heads, k.head_dim, g.mask, g.n, g.failed, g.q0, g.q1, g.kv0, g.kv1, "
    "(SELECT count(*) FROM afinish f WHERE f.key = k.id AND f.kind = 'store'), "
    "(SELECT count(*) FROM afinish f WHERE f.key = k.id AND f.kind = 'merge'), "
    "g.origin FROM (SELECT key, mask, sum(ok) AS n, sum(1 - ok) AS failed, "
    "min(iif(ok, q_len, NULL)) AS q0, max(iif(ok, q_len, NULL)) AS q1, "
    "min(iif(ok, kv_len, NULL)) AS kv0, max(iif(ok, kv_len, NULL)) AS kv1, "
    "iif(count(DISTINCT origin) > 1, 'mixed', min(origin)) AS origin FROM ("
    "SELECT a.key, a.mask, a.q_len, a.kv_len, 1 AS ok, r.origin FROM acell a JOIN run r "
    "ON r.id = a.run_id UNION ALL SELECT k.id, c.mask, c.q_len, c.kv_len, 0, r.origin "
    "FROM cell c JOIN run r ON r.id = c.run_id JOIN device d ON d.id = c.device_id JOIN "
    "akey k ON k.device = d.slug AND k.limiter = c.limiter AND k.provider = c.provider "
    "AND k.dtype = c.dtype AND k.phase = c.phase AND k.batch = c.batch AND k.heads = "
    "c.heads AND k.kv_heads = c.kv_heads AND k.head_dim = c.head_dim WHERE c.status = "
    "'failed' AND NOT EXISTS (SELECT 1 FROM acell a WHERE a.key = k.id AND a.mask = "
    "c.mask AND a.q_len = c.q_len AND a.kv_len = c.kv_len)) GROUP BY key, mask) g "
    "JOIN akey k ON k.id = g.key ORDER BY k.id, g.mask DESC";

static const char link_sql[] =
    "SELECT p.device_a, p.limiter_a, p.device_b, p.limiter_b, p.transport, p.channels, "
    "count(*), min(l.bytes), max(l.bytes), p.one_way FROM alink l JOIN apair p ON p.id = "
    "l.key "
    "GROUP BY p.id "
    "ORDER BY p.id";

static void read_key(sqlite3_stmt *s, struct hcp_key *k)
{
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

static void read_cover(sqlite3_stmt *s, void *row)
{
    struct hcp_cover *c = row;

    read_key(s, &c->key);
    hcp_column_copy(s, 9, c->mask, sizeof c->mask);
    c->cells = sqlite3_column_int64(s, 10);
    c->failed = sqlite3_column_int64(s, 11);
    c->q_min = sqlite3_column_int64(s, 12);
    c->q_max = sqlite3_column_int64(s, 13);
    c->kv_min = sqlite3_column_int64(s, 14);
    c->kv_max = sqlite3_column_int64(s, 15);
    c->stores = sqlite3_column_int64(s, 16);
    c->merges = sqlite3_column_int64(s, 17);
    hcp_column_copy(s, 18, c->origin, sizeof c->origin);
}

static const char beside_sql[] =
    "SELECT device, limiter, b.provider, b.dtype, b.phase, b.batch, b.heads, b.kv_heads, "
    "b.head_dim, peer, peer_limiter, b.transport, b.channels, count(*), min(s.beside_ms "
    "/ "
    "s.alone_ms), max(s.beside_ms / s.alone_ms) FROM aside s JOIN abeside b ON b.id = "
    "s.key GROUP BY b.id ORDER BY b.id";

static const char linear_sql[] =
    "SELECT g.device, g.limiter, g.provider, g.dtype, count(*), count(DISTINCT (l.n_in "
    "<< "
    "31) + l.n_out), min(l.tokens), max(l.tokens) FROM alinear l JOIN agemm g ON g.id = "
    "l.key GROUP BY g.id ORDER BY g.id";

static void read_link(sqlite3_stmt *s, void *row)
{
    struct hcp_cover_link *l = row;

    hcp_column_copy(s, 0, l->device_a, sizeof l->device_a);
    hcp_column_copy(s, 1, l->limit_a, sizeof l->limit_a);
    hcp_column_copy(s, 2, l->device_b, sizeof l->device_b);
    hcp_column_copy(s, 3, l->limit_b, sizeof l->limit_b);
    hcp_column_copy(s, 4, l->transport, sizeof l->transport);
    l->channels = sqlite3_column_int(s, 5);
    l->rows = sqlite3_column_int64(s, 6);
    l->bytes_min = sqlite3_column_int64(s, 7);
    l->bytes_max = sqlite3_column_int64(s, 8);
    l->one_way = sqlite3_column_int(s, 9);
}

static void read_beside(sqlite3_stmt *s, void *row)
{
    struct hcp_cover_beside *b = row;

    read_key(s, &b->key);
    hcp_column_copy(s, 9, b->peer_device, sizeof b->peer_device);
    hcp_column_copy(s, 10, b->peer_limit, sizeof b->peer_limit);
    hcp_column_copy(s, 11, b->transport, sizeof b->transport);
    b->channels = sqlite3_column_int(s, 12);
    b->rows = sqlite3_column_int64(s, 13);
    b->factor_min = sqlite3_column_double(s, 14);
    b->factor_max = sqlite3_column_double(s, 15);
}

static void read_linear(sqlite3_stmt *s, void *row)
{
    struct hcp_cover_linear *l = row;

    hcp_column_copy(s, 0, l->device, sizeof l->device);
    hcp_column_copy(s, 1, l->limit, sizeof l->limit);
    hcp_column_copy(s, 2, l->library, sizeof l->library);
    hcp_column_copy(s, 3, l->dtype, sizeof l->dtype);
    l->rows = sqlite3_column_int64(s, 4);
    l->layers = sqlite3_column_int64(s, 5);
    l->tokens_min = sqlite3_column_int64(s, 6);
    l->tokens_max = sqlite3_column_int64(s, 7);
}

/* Appends what a query gives to a list of structs of that size. */
static int collect(hcp_db *db, const char *sql, void (*read)(sqlite3_stmt *s, void *row),
                   size_t size, void **list, size_t *n, struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int step = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);

    while ((step == SQLITE_OK || step == SQLITE_ROW) &&
           (step = sqlite3_step(s)) == SQLITE_ROW) {
        char *grown = realloc(*list, (*n + 1) * size);
        if (!grown) {
            step = SQLITE_NOMEM;
            break;
        }
        *list = grown;
        read(s, memset(grown + (*n)++ * size, 0, size));
    }
    sqlite3_finalize(s);
    return step == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, step, "read", err);
}

/* By limits as numbers; keys and masks otherwise as the query has them. */
static int by_limit(const void *a, const void *b)
{
    const struct hcp_cover *x = a, *y = b;
    const int32_t p[] = {x->key.batch, x->key.heads, x->key.kv_heads, x->key.head_dim};
    const int32_t q[] = {y->key.batch, y->key.heads, y->key.kv_heads, y->key.head_dim};
    int o = strcmp(x->key.device, y->key.device);

    o = o ? o : strcmp(x->key.provider, y->key.provider);
    o = o ? o : strcmp(x->key.dtype, y->key.dtype);
    o = o ? o : strcmp(y->key.phase, x->key.phase);
    for (size_t i = 0; !o && i < sizeof p / sizeof *p; i++)
        o = (p[i] > q[i]) - (p[i] < q[i]);
    o = o ? o : hcp_limit_compare(x->key.limit, y->key.limit);
    return o ? o : strcmp(y->mask, x->mask);
}

int hcp_audit_cover(hcp_db *db, struct hcp_audit *audit, struct hcp_err *err)
{
    const struct {
        const char *sql;
        void (*read)(sqlite3_stmt *s, void *row);
        size_t size, *n;
        void *list;
    } all[] = {
        {cover_sql, read_cover, sizeof *audit->covers, &audit->n_covers, &audit->covers},
        {link_sql, read_link, sizeof *audit->links, &audit->n_links, &audit->links},
        {beside_sql, read_beside, sizeof *audit->besides, &audit->n_besides,
         &audit->besides},
        {linear_sql, read_linear, sizeof *audit->linears, &audit->n_linears,
         &audit->linears}};
    int rc = HCP_OK;

    for (size_t i = 0; !rc && i < sizeof all / sizeof *all; i++) {
        void *list = NULL;
        rc = collect(db, all[i].sql, all[i].read, all[i].size, &list, all[i].n, err);
        memcpy(all[i].list, &list, sizeof list);
    }
    if (!rc && audit->n_covers)
        qsort(audit->covers, audit->n_covers, sizeof *audit->covers, by_limit);
    return rc;
}

/* ---- models beside their samples ---- */

struct models {
    hcp_db *db;
    struct hcp_audit *audit;
    struct hcp_key_hash *hashes;
    size_t n;
    struct hcp_err *err;
};

static int about_model(struct models *m, const struct hcp_model_row *row,
                       enum hcp_severity severity, const char *code, const char *why)
{
    struct hcp_finding f = {.severity = severity,
                            .section = severity == HCP_ERROR ? "integrity" : "staleness",
                            .code = code,
                            .key = row->key};
    char text[160];

    snprintf(text, sizeof text, "the %s model %s", row->kind, why);
    f.text = strdup(text);
    f.command = hcp_audit_mend(m->db, HCP_MEND_FIT, &f, NULL, NULL);
    return hcp_audit_add(m->audit, &f, m->err);
}

static int visit_model(const struct hcp_model_row *row,
                       const struct hcp_named_array *arrays, size_t n_arrays, void *ctx)
{
    struct models *m = ctx;
    const struct hcp_key_hash *now = NULL;
    int stale, rc = HCP_OK;

    (void)arrays;
    for (size_t i = 0; !now && i < m->n; i++)
        if (hcp_key_equal(&m->hashes[i].key, &row->key))
            now = &m->hashes[i];
    stale = !now || now->hash != row->samples_hash;
    for (size_t i = 0; i < m->audit->n_covers; i++)
        if (hcp_key_equal(&m->audit->covers[i].key, &row->key)) {
            m->audit->covers[i].models++;
            m->audit->covers[i].stale += stale;
        }
    if (!n_arrays)
        rc = about_model(m, row, HCP_ERROR, "half-model", "has no coefficients");
    if (!rc && stale)
        rc = about_model(m, row, HCP_WARNING, "stale-model",
                         now ? "is of other samples than are stored now; it refuses to "
                               "answer"
                             : "is of samples that are gone; it refuses to answer");
    return rc;
}

/* Keys with cells and without a model: one finding, since one command mends them all. */
static int not_fitted(struct models *m)
{
    struct hcp_finding f = {
        .severity = HCP_NOTE, .section = "coverage", .code = "no-model"};
    const struct hcp_cover *c = m->audit->covers;
    size_t keys = 0, without = 0;
    char text[160];

    for (size_t i = 0; i < m->audit->n_covers; i++) {
        int new = !i || !hcp_key_equal(&c[i].key, &c[i - 1].key);
        keys += new;
        without += new && !c[i].models;
    }
    if (!without)
        return HCP_OK;
    snprintf(text, sizeof text, "%zu of %zu keys have no model: no plan can use them",
             without, keys);
    f.text = strdup(text);
    f.command = hcp_audit_mend(m->db, HCP_MEND_FIT, &f, NULL, NULL);
    return hcp_audit_add(m->audit, &f, m->err);
}

static int has_models(hcp_db *db)
{
    sqlite3_stmt *s = NULL;
    int any = sqlite3_prepare_v2(db->handle, "SELECT 1 FROM model LIMIT 1", -1, &s,
                                 NULL) != SQLITE_OK ||
              sqlite3_step(s) != SQLITE_DONE;

    sqlite3_finalize(s);
    return any;
}

int hcp_audit_models(hcp_db *db, struct hcp_audit *audit, struct hcp_err *err)
{
    struct models m = {.db = db, .audit = audit, .err = err};
    int rc = HCP_OK;

    if (has_models(db)) {
        rc = hcp_db_samples_hashes(db, &m.hashes, &m.n, err);
        if (!rc)
            rc = hcp_db_each_model(db, NULL, visit_model, &m, err);
    }
    if (!rc)
        rc = not_fitted(&m);
    free(m.hashes);
    return rc;
}
