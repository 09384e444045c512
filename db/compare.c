/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/compare.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"
#include "db/parse.h"

#define GROUP                                                                            \
    "what, device, limiter, provider, dtype, phase, batch, heads, kv_heads, head_dim, "  \
    "mask, peer, peer_limiter, transport, channels, n_in, n_out"
#define ROW_KEY GROUP ", q_len, kv_len, bytes"
enum { AT_ROW = 17, AT_A = AT_ROW + 3, AT_B = AT_A + 5 }; /* columns of pairs_sql */

/* One row an identity from the file whose schema is FILE. Ends of a transfer in order. */
static const char rows_sql[] =
    "CREATE TEMP TABLE rows_FILE AS SELECT " ROW_KEY ", avg(t) AS t, lo, hi, mhz, w FROM "
    "(SELECT " ROW_KEY ", t, row_number() OVER (PARTITION BY " ROW_KEY
    " ORDER BY t) AS r, "
    "count(*) OVER p AS n, min(lo) OVER p AS lo, max(hi) OVER p AS hi, avg(mhz) OVER p "
    "AS "
    "mhz, avg(w) OVER p AS w FROM ("
    "SELECT 0 AS what, d.slug AS device, c.limiter, c.provider, c.dtype, c.phase, "
    "c.batch, c.heads, c.kv_heads, c.head_dim, c.mask, '' AS peer, '' AS peer_limiter, "
    "'' AS transport, 0 AS channels, 0 AS n_in, 0 AS n_out, c.q_len, c.kv_len, 0 AS "
    "bytes, c.time_ms AS t, coalesce(c.ci_lo_ms, c.p25_ms, 0.98 * c.time_ms) AS lo, "
    "coalesce(c.ci_hi_ms, c.p75_ms, 1.02 * c.time_ms) AS hi, c.sm_clock_mhz AS mhz, "
    "c.power_w AS w FROM FILE.cell c JOIN FILE.device d ON d.id = c.device_id WHERE "
    "c.status = 'ok' UNION ALL "
    "SELECT 1, d.slug, f.limiter, f.provider, f.dtype, f.phase, f.batch, f.heads, "
    "f.kv_heads, f.head_dim, f.kind, '', '', '', 0, 0, 0, f.q_len, 0, 0, f.time_ms, "
    "ifnull(f.p25_ms, 0.98 * f.time_ms), ifnull(f.p75_ms, 1.02 * f.time_ms), NULL, NULL "
    "FROM FILE.finish f JOIN FILE.device d ON d.id = f.device_id UNION ALL "
    "SELECT iif(one_way, 6, 2), iif(s, y, x), iif(s, ly, lx), '', '', '', 0, 0, 0, 0, "
    "'', iif(s, x, y), "
    "iif(s, lx, ly), transport, ifnull(channels, 0), 0, 0, bytes, 0, 0, time_ms, "
    "ifnull(p25_ms, 0.98 * time_ms), ifnull(p75_ms, 1.02 * time_ms), NULL, NULL FROM "
    "(SELECT l.*, a.slug AS x, b.slug AS y, l.limiter_a AS lx, l.limiter_b AS ly, "
    "one_way IS NULL AND (b.slug, l.limiter_b) < (a.slug, l.limiter_a) AS s FROM "
    "FILE.link l JOIN "
    "FILE.device a ON a.id = l.device_a_id JOIN FILE.device b ON b.id = l.device_b_id) "
    "UNION ALL "
    "SELECT v.what, a.slug, i.limiter_a, i.provider, i.dtype, i.phase, i.batch, i.heads, "
    "i.kv_heads, i.head_dim, i.mask, b.slug, i.limiter_b, i.transport, "
    "ifnull(i.channels, 0), 0, 0, i.q_len, i.kv_len, i.bytes, v.t, 0.98 * v.t, 1.02 * "
    "v.t, NULL, NULL FROM (SELECT 3 AS what, id, beside_ms AS t FROM FILE.interference "
    "UNION ALL SELECT 4, id, transfer_beside_ms FROM FILE.interference WHERE "
    "transfer_beside_ms IS NOT NULL) v JOIN FILE.interference i ON i.id = v.id JOIN "
    "FILE.device a ON a.id = i.device_a_id JOIN FILE.device b ON b.id = i.device_b_id "
    "UNION ALL "
    "SELECT 5, d.slug, g.limiter, g.library, g.dtype, '', 0, 0, 0, 0, '', '', '', '', 0, "
    "g.n_in, g.n_out, g.tokens, 0, 0, g.time_ms, ifnull(g.p25_ms, 0.98 * g.time_ms), "
    "ifnull(g.p75_ms, 1.02 * g.time_ms), g.sm_clock_mhz, NULL FROM FILE.linear g JOIN "
    "FILE.device d ON d.id = g.device_id"
    ") WINDOW p AS (PARTITION BY " ROW_KEY ")) "
    "WHERE r IN ((n + 1) / 2, (n + 2) / 2) GROUP BY " ROW_KEY ";"
    "CREATE TEMP TABLE facts_FILE AS SELECT d.slug, d.name, d.sm_count, r.driver, "
    "r.cuda_version, r.tool_version, v.provider, v.provider_version FROM (SELECT run_id, "
    "device_id, provider, provider_version FROM FILE.cell UNION SELECT run_id, "
    "device_id, "
    "library, library_version FROM FILE.linear UNION SELECT run_id, device_a_id, "
    "transport, transport_version FROM FILE.link) v JOIN FILE.run r ON r.id = v.run_id "
    "JOIN FILE.device d ON d.id = v.device_id GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY "
    "1, "
    "2, 3, 4, 5, 6, 7, 8;"
    /* A pair in either order, as text. */
    "CREATE TEMP TABLE ways_FILE AS SELECT min(a.slug, b.slug) AS slug, 'way to ' || "
    "max(a.slug, b.slug) AS fact, t.connection || ifnull(' by ' || t.links || ' links', "
    "'') AS v FROM FILE.topology t JOIN FILE.device a ON a.id = t.device_a_id JOIN "
    "FILE.device b ON b.id = t.device_b_id ORDER BY 1, 2, 3;";

/* Both beside each other, in order of group. */
static const char pairs_sql[] =
    "SELECT " ROW_KEY ", max(ta), max(loa), max(hia), max(mhza), max(wa), max(tb), "
    "max(lob), max(hib), max(mhzb), max(wb) FROM (SELECT " ROW_KEY
    ", t AS ta, lo AS loa, "
    "hi AS hia, mhz AS mhza, w AS wa, NULL AS tb, NULL AS lob, NULL AS hib, NULL AS "
    "mhzb, "
    "NULL AS wb FROM rows_main UNION ALL SELECT " ROW_KEY
    ", NULL, NULL, NULL, NULL, NULL, "
    "t, lo, hi, mhz, w FROM rows_other) GROUP BY " ROW_KEY " ORDER BY " ROW_KEY;

#define FACT(name, column, file)                                                         \
    "SELECT slug, " name " AS fact, '" file "' AS f, group_concat(DISTINCT " column      \
    ") AS v FROM facts_" file " GROUP BY slug, fact UNION ALL "
#define FACTS(file)                                                                      \
    FACT("'device'", "name", file)                                                       \
    FACT("'SMs'", "sm_count", file)                                                      \
    FACT("'driver'", "driver", file)                                                     \
    FACT("'CUDA version'", "cuda_version", file)                                         \
    FACT("'tool version'", "tool_version", file)                                         \
    FACT("provider || ' version'", "provider_version", file)
#define WAYS(file)                                                                       \
    "SELECT slug, fact, '" file "' AS f, group_concat(DISTINCT v) AS v FROM ways_" file  \
    " GROUP BY slug, fact"
static const char facts_sql[] =
    "SELECT slug, fact, max(iif(f = 'main', v, NULL)) AS x, max(iif(f = 'other', v, "
    "NULL)) "
    "AS y FROM (" FACTS("main") FACTS("other") WAYS("main") " UNION ALL " WAYS(
        "other") ") WHERE slug IN (SELECT slug FROM "
                 "facts_main) AND slug IN (SELECT slug FROM "
                 "facts_other) GROUP BY slug, fact HAVING x "
                 "IS NOT y AND count(*) = 2 ORDER BY slug, "
                 "fact";

void hcp_diff_free(struct hcp_diff *diff)
{
    free(diff->groups);
    free(diff->changes);
    free(diff->facts);
    memset(diff, 0, sizeof *diff);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double quantile(const double *sorted, size_t n, double p)
{
    double at = (double)(n - 1) * p;
    size_t i = (size_t)at;

    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i])
                     : sorted[n - 1];
}

/* How far a ratio is from 1, the same for twice as slow and twice as fast. */
static double distance(double ratio)
{
    return ratio < 1 ? 1 / ratio : ratio;
}

void hcp_ratio_summary(double *ratios, size_t n, struct hcp_change_group *out)
{
    out->median = out->p10 = out->p90 = out->largest = NAN;
    if (!n)
        return;
    qsort(ratios, n, sizeof *ratios, by_value);
    out->median = quantile(ratios, n, 0.5);
    out->p10 = quantile(ratios, n, 0.1);
    out->p90 = quantile(ratios, n, 0.9);
    out->largest =
        distance(ratios[0]) > distance(ratios[n - 1]) ? ratios[0] : ratios[n - 1];
}

int hcp_beyond_noise(const struct hcp_change *c, double tolerance)
{
    return (c->b_lo_ms > c->a_hi_ms || c->b_hi_ms < c->a_lo_ms) &&
           fabs(c->ratio - 1) > tolerance;
}

static int by_distance(const void *a, const void *b)
{
    const struct hcp_change *x = a, *y = b;
    double p = distance(x->ratio), q = distance(y->ratio);

    if (p != q)
        return p > q ? -1 : 1;
    if (x->q_len != y->q_len)
        return x->q_len < y->q_len ? -1 : 1;
    return (x->kv_len > y->kv_len) - (x->kv_len < y->kv_len);
}

/* In order of kind; of each by device, kernel, shape, then limit. */
static int by_key(const void *a, const void *b)
{
    const struct hcp_change_key *x = &((const struct hcp_change_group *)a)->key;
    const struct hcp_change_key *y = &((const struct hcp_change_group *)b)->key;
    const int32_t p[] = {x->key.batch, x->key.heads, x->key.kv_heads, x->key.head_dim};
    const int32_t q[] = {y->key.batch, y->key.heads, y->key.kv_heads, y->key.head_dim};
    int o = (int)x->what - (int)y->what;

    o = o ? o : strcmp(x->key.device, y->key.device);
    o = o ? o : strcmp(x->key.provider, y->key.provider);
    o = o ? o : strcmp(x->key.dtype, y->key.dtype);
    o = o ? o : strcmp(y->key.phase, x->key.phase);
    for (size_t i = 0; !o && i < sizeof p / sizeof *p; i++)
        o = (p[i] > q[i]) - (p[i] < q[i]);
    o = o ? o : hcp_limit_compare(x->key.limit, y->key.limit);
    o = o ? o : strcmp(x->peer_device, y->peer_device);
    o = o ? o : hcp_limit_compare(x->peer_limit, y->peer_limit);
    o = o ? o : strcmp(x->transport, y->transport);
    o = o ? o : x->channels - y->channels;
    o = o ? o : (x->n_in > y->n_in) - (x->n_in < y->n_in);
    o = o ? o : (x->n_out > y->n_out) - (x->n_out < y->n_out);
    return o ? o : strcmp(y->mask, x->mask);
}

/* The schema's name for FILE; malloc'ed. */
static char *for_file(const char *sql, const char *schema)
{
    char *out = malloc(2 * strlen(sql) + 1), *to = out;

    while (out && *sql) {
        if (!strncmp(sql, "FILE", 4)) {
            to += sprintf(to, "%s", schema);
            sql += 4;
        } else {
            *to++ = *sql++;
        }
    }
    if (out)
        *to = '\0';
    return out;
}

/* The group that is being read. */
struct reader {
    struct hcp_diff *out;
    struct hcp_change_group *g;
    double *ratios, mhz[2], w[2];
    size_t room, n_mhz, n_w;
    double tolerance;
};

static void end_group(struct reader *r)
{
    struct hcp_change_group *g = r->g;

    if (!g)
        return;
    hcp_ratio_summary(r->ratios, g->both, g);
    g->a_mhz = r->n_mhz ? r->mhz[0] / (double)r->n_mhz : NAN;
    g->b_mhz = r->n_mhz ? r->mhz[1] / (double)r->n_mhz : NAN;
    g->a_w = r->n_w ? r->w[0] / (double)r->n_w : NAN;
    g->b_w = r->n_w ? r->w[1] / (double)r->n_w : NAN;
}

static void read_key(sqlite3_stmt *s, struct hcp_change_key *k)
{
    memset(k, 0, sizeof *k);
    k->what = (enum hcp_what)sqlite3_column_int(s, 0);
    hcp_column_copy(s, 1, k->key.device, sizeof k->key.device);
    hcp_column_copy(s, 2, k->key.limit, sizeof k->key.limit);
    hcp_column_copy(s, 3, k->key.provider, sizeof k->key.provider);
    hcp_column_copy(s, 4, k->key.dtype, sizeof k->key.dtype);
    hcp_column_copy(s, 5, k->key.phase, sizeof k->key.phase);
    k->key.batch = sqlite3_column_int(s, 6);
    k->key.heads = sqlite3_column_int(s, 7);
    k->key.kv_heads = sqlite3_column_int(s, 8);
    k->key.head_dim = sqlite3_column_int(s, 9);
    hcp_column_copy(s, 10, k->mask, sizeof k->mask);
    hcp_column_copy(s, 11, k->peer_device, sizeof k->peer_device);
    hcp_column_copy(s, 12, k->peer_limit, sizeof k->peer_limit);
    hcp_column_copy(s, 13, k->transport, sizeof k->transport);
    k->channels = sqlite3_column_int(s, 14);
    k->n_in = sqlite3_column_int64(s, 15);
    k->n_out = sqlite3_column_int64(s, 16);
}

static int same_group(const struct hcp_change_key *a, const struct hcp_change_key *b)
{
    return a->what == b->what && hcp_key_equal(&a->key, &b->key) &&
           !strcmp(a->mask, b->mask) && !strcmp(a->peer_device, b->peer_device) &&
           !strcmp(a->peer_limit, b->peer_limit) && !strcmp(a->transport, b->transport) &&
           a->channels == b->channels && a->n_in == b->n_in && a->n_out == b->n_out;
}

static int begin_group(struct reader *r, const struct hcp_change_key *key)
{
    struct hcp_change_group *grown =
        realloc(r->out->groups, (r->out->n_groups + 1) * sizeof *grown);

    if (!grown)
        return -1;
    r->out->groups = grown;
    r->g = memset(&grown[r->out->n_groups++], 0, sizeof *grown);
    r->g->key = *key;
    memset(r->mhz, 0, sizeof r->mhz);
    memset(r->w, 0, sizeof r->w);
    r->n_mhz = r->n_w = 0;
    return 0;
}

static int add_ratio(struct reader *r, const struct hcp_change *c)
{
    if (r->g->both == r->room) {
        size_t room = r->room ? r->room * 2 : 256;
        double *grown = realloc(r->ratios, room * sizeof *grown);
        if (!grown)
            return -1;
        r->ratios = grown;
        r->room = room;
    }
    r->ratios[r->g->both++] = c->ratio;
    r->out->both++;
    if (!hcp_beyond_noise(c, r->tolerance))
        return 0;
    r->g->beyond++;
    /* Doubles whenever the count is a power of two. */
    if (!(r->out->n_changes & (r->out->n_changes - 1))) {
        size_t room = r->out->n_changes ? r->out->n_changes * 2 : 1;
        struct hcp_change *grown = realloc(r->out->changes, room * sizeof *grown);
        if (!grown)
            return -1;
        r->out->changes = grown;
    }
    r->out->changes[r->out->n_changes++] = *c;
    return 0;
}

static int known(sqlite3_stmt *s, int i)
{
    return sqlite3_column_type(s, i) != SQLITE_NULL;
}

/* One row of pairs_sql. */
static int add_pair(struct reader *r, sqlite3_stmt *s)
{
    struct hcp_change c;

    memset(&c, 0, sizeof c);
    read_key(s, &c.key);
    if (!r->g || !same_group(&r->g->key, &c.key)) {
        end_group(r);
        if (begin_group(r, &c.key))
            return -1;
    }
    if (!known(s, AT_A) || !known(s, AT_B)) {
        r->g->only_a += known(s, AT_A);
        r->g->only_b += known(s, AT_B);
        r->out->only_a += known(s, AT_A);
        r->out->only_b += known(s, AT_B);
        return 0;
    }
    c.q_len = sqlite3_column_int64(s, AT_ROW);
    c.kv_len = sqlite3_column_int64(s, AT_ROW + 1);
    c.bytes = sqlite3_column_int64(s, AT_ROW + 2);
    c.a_ms = sqlite3_column_double(s, AT_A);
    c.a_lo_ms = sqlite3_column_double(s, AT_A + 1);
    c.a_hi_ms = sqlite3_column_double(s, AT_A + 2);
    c.b_ms = sqlite3_column_double(s, AT_B);
    c.b_lo_ms = sqlite3_column_double(s, AT_B + 1);
    c.b_hi_ms = sqlite3_column_double(s, AT_B + 2);
    c.ratio = c.b_ms / c.a_ms;
    if (known(s, AT_A + 3) && known(s, AT_B + 3)) {
        r->n_mhz++;
        r->mhz[0] += sqlite3_column_double(s, AT_A + 3);
        r->mhz[1] += sqlite3_column_double(s, AT_B + 3);
    }
    if (known(s, AT_A + 4) && known(s, AT_B + 4)) {
        r->n_w++;
        r->w[0] += sqlite3_column_double(s, AT_A + 4);
        r->w[1] += sqlite3_column_double(s, AT_B + 4);
    }
    return add_ratio(r, &c);
}

static int read_pairs(hcp_db *db, double tolerance, struct hcp_diff *out,
                      struct hcp_err *err)
{
    struct reader r = {.out = out, .tolerance = tolerance};
    sqlite3_stmt *s = NULL;
    int step = sqlite3_prepare_v2(db->handle, pairs_sql, -1, &s, NULL);

    while ((step == SQLITE_OK || step == SQLITE_ROW) &&
           (step = sqlite3_step(s)) == SQLITE_ROW)
        if (add_pair(&r, s)) {
            step = SQLITE_NOMEM;
            break;
        }
    if (step == SQLITE_DONE)
        end_group(&r);
    free(r.ratios);
    sqlite3_finalize(s);
    if (step != SQLITE_DONE)
        return hcp_db_sql_error(db, step, "read", err);
    if (out->n_groups)
        qsort(out->groups, out->n_groups, sizeof *out->groups, by_key);
    if (out->n_changes)
        qsort(out->changes, out->n_changes, sizeof *out->changes, by_distance);
    return HCP_OK;
}

static int read_facts(hcp_db *db, struct hcp_diff *out, struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int step = sqlite3_prepare_v2(db->handle, facts_sql, -1, &s, NULL);

    while ((step == SQLITE_OK || step == SQLITE_ROW) &&
           (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct hcp_change_fact *f =
            realloc(out->facts, (out->n_facts + 1) * sizeof *out->facts);
        if (!f) {
            step = SQLITE_NOMEM;
            break;
        }
        out->facts = f;
        f = &f[out->n_facts++];
        hcp_column_copy(s, 0, f->device, sizeof f->device);
        hcp_column_copy(s, 1, f->name, sizeof f->name);
        hcp_column_copy(s, 2, f->a, sizeof f->a);
        hcp_column_copy(s, 3, f->b, sizeof f->b);
    }
    sqlite3_finalize(s);
    return step == SQLITE_DONE ? HCP_OK : hcp_db_sql_error(db, step, "read", err);
}

static int attach(hcp_db *db, const char *path, struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "ATTACH ?1 AS other", -1, &s, NULL);

    if (rc == SQLITE_OK) {
        sqlite3_bind_text(s, 1, path, -1, SQLITE_STATIC);
        rc = sqlite3_step(s);
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE
               ? HCP_OK
               : hcp_fail(err, HCP_FAILED, "cannot open '%s' beside '%s': %s", path,
                          db->path, sqlite3_errmsg(db->handle));
}

static int take_rows(hcp_db *db, const char *schema, struct hcp_err *err)
{
    char *sql = for_file(rows_sql, schema);
    int rc = sql ? hcp_db_exec(db, sql, "read", err)
                 : hcp_fail(err, HCP_FAILED, "out of memory");

    free(sql);
    return rc;
}

int hcp_diff_files(hcp_db *a, hcp_db *b, double tolerance, struct hcp_diff *out,
                   struct hcp_err *err)
{
    int rc;

    memset(out, 0, sizeof *out);
    rc = attach(a, b->path, err);
    if (rc)
        return rc;
    rc = hcp_db_exec(a, "PRAGMA temp_store = MEMORY; BEGIN", "read", err);
    if (!rc)
        rc = take_rows(a, "main", err);
    if (!rc)
        rc = take_rows(a, "other", err);
    if (!rc)
        rc = read_pairs(a, tolerance, out, err);
    if (!rc)
        rc = read_facts(a, out, err);
    hcp_db_rollback(a);
    sqlite3_exec(a->handle, "DETACH other", NULL, NULL, NULL);
    if (!rc && !out->both)
        rc = hcp_fail(err, HCP_NO_ANSWER,
                      "no row in common; 'hcp-profile show --db' says what each has, a "
                      "device has to be of one name in both");
    return rc;
}
