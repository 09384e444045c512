/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/audit-internal.h"
#include "db/parse.h"

#define KEY "device, limiter, provider, dtype, phase, batch, heads, kv_heads, head_dim"
#define JOIN_KEY                                                                         \
    " JOIN device d ON d.id = c.device_id JOIN akey k ON k.device = d.slug AND "         \
    "k.limiter = c.limiter AND k.provider = c.provider AND k.dtype = c.dtype AND "       \
    "k.phase = c.phase AND k.batch = c.batch AND k.heads = c.heads AND k.kv_heads = "    \
    "c.kv_heads AND k.head_dim = c.head_dim "
#define KEY_OF                                                                           \
    "SELECT d.slug, c.limiter, c.provider, c.dtype, c.phase, c.batch, c.heads, "         \
    "c.kv_heads, c.head_dim FROM "

/* What the rules read. One snapshot: a sweep may be writing. */
static const char setup_sql[] =
    "PRAGMA temp_store = MEMORY; BEGIN;"
    "CREATE TEMP TABLE akey (id INTEGER PRIMARY KEY, device, limiter, provider, dtype, "
    "phase, batch, heads, kv_heads, head_dim, UNIQUE (" KEY "));"
    "INSERT INTO akey (" KEY ") " KEY_OF "cell c JOIN device d ON d.id = c.device_id "
    "UNION " KEY_OF "finish c JOIN device d ON d.id = c.device_id "
    "ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9;"
    "CREATE TEMP TABLE acell (id INTEGER PRIMARY KEY, key, run_id, device_id, mask, "
    "q_len, kv_len, time_ms, lo, hi);"
    "INSERT INTO acell SELECT c.id, k.id, c.run_id, c.device_id, c.mask, c.q_len, "
    "c.kv_len, c.time_ms, coalesce(c.ci_lo_ms, c.p25_ms, 0.98 * c.time_ms), "
    "coalesce(c.ci_hi_ms, c.p75_ms, 1.02 * c.time_ms) FROM cell c" JOIN_KEY
    "WHERE c.status = 'ok';"
    "CREATE INDEX temp.acell_lengths ON acell (key, mask, q_len, kv_len);"
    "CREATE TEMP TABLE afinish AS SELECT c.id, k.id AS key, c.run_id, c.device_id, "
    "c.kind, c.q_len, c.time_ms, ifnull(c.p25_ms, 0.98 * c.time_ms) AS lo, "
    "ifnull(c.p75_ms, 1.02 * c.time_ms) AS hi FROM finish c" JOIN_KEY ";"
    "CREATE TEMP TABLE apair (id INTEGER PRIMARY KEY, device_a, limiter_a, device_b, "
    "limiter_b, transport, channels, one_way);"
    "INSERT INTO apair (device_a, limiter_a, device_b, limiter_b, transport, channels, "
    "one_way) "
    "SELECT DISTINCT a.slug, l.limiter_a, b.slug, l.limiter_b, l.transport, "
    "ifnull(l.channels, 0), ifnull(l.one_way, 0) FROM link l JOIN device a ON a.id = "
    "l.device_a_id JOIN device b ON b.id = l.device_b_id ORDER BY 1, 2, 3, 4, 5, 6, 7;"
    "CREATE TEMP TABLE alink AS SELECT l.id, p.id AS key, l.run_id, l.device_a_id, "
    "l.bytes, l.time_ms, "
    "ifnull(l.p25_ms, 0.98 * l.time_ms) AS lo, ifnull(l.p75_ms, 1.02 * l.time_ms) AS hi "
    "FROM link l JOIN device a ON a.id = l.device_a_id JOIN device b ON b.id = "
    "l.device_b_id JOIN apair p ON p.device_a = a.slug AND p.limiter_a = l.limiter_a AND "
    "p.device_b = b.slug AND p.limiter_b = l.limiter_b AND p.transport = l.transport "
    "AND p.channels = ifnull(l.channels, 0) AND p.one_way = ifnull(l.one_way, 0);"
    "CREATE TEMP TABLE abeside (id INTEGER PRIMARY KEY, device, limiter, provider, "
    "dtype, phase, batch, heads, kv_heads, head_dim, peer, peer_limiter, transport, "
    "channels);"
    "INSERT INTO abeside (" KEY ", peer, peer_limiter, transport, channels) SELECT "
    "DISTINCT d.slug, limiter_a, provider, dtype, phase, batch, heads, kv_heads, "
    "head_dim, e.slug, limiter_b, transport, ifnull(channels, 0) FROM interference i "
    "JOIN device d ON d.id = device_a_id JOIN device e ON e.id = device_b_id ORDER BY 1, "
    "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13;"
    "CREATE TEMP TABLE aside AS SELECT i.*, b.id AS key FROM interference i JOIN device "
    "d ON d.id = i.device_a_id JOIN device e ON e.id = i.device_b_id JOIN abeside b ON "
    "b.device = d.slug AND b.limiter = i.limiter_a AND b.provider = i.provider AND "
    "b.dtype = i.dtype AND b.phase = i.phase AND b.batch = i.batch AND b.heads = i.heads "
    "AND b.kv_heads = i.kv_heads AND b.head_dim = i.head_dim AND b.peer = e.slug AND "
    "b.peer_limiter = i.limiter_b AND b.transport = i.transport AND b.channels = "
    "ifnull(i.channels, 0);"
    "CREATE TEMP TABLE agemm (id INTEGER PRIMARY KEY, device, limiter, provider, dtype);"
    "INSERT INTO agemm (device, limiter, provider, dtype) SELECT DISTINCT d.slug, "
    "limiter, library, dtype FROM linear l JOIN device d ON d.id = l.device_id ORDER BY "
    "1, 2, 3, 4;"
    "CREATE TEMP TABLE alinear AS SELECT l.*, g.id AS key, d.slug AS device, d.sm_count, "
    "ifnull(l.p25_ms, 0.98 * l.time_ms) AS lo, ifnull(l.p75_ms, 1.02 * l.time_ms) AS hi "
    "FROM linear l JOIN device d ON d.id = l.device_id JOIN agemm g ON g.device = d.slug "
    "AND g.limiter = l.limiter AND g.provider = l.library AND g.dtype = l.dtype;"
    "CREATE TEMP TABLE adrift AS SELECT c.*, k.id AS key, (SELECT max(0.01, max((a.hi - "
    "a.lo) / a.time_ms)) FROM acell a JOIN device e ON e.id = a.device_id WHERE a.key = "
    "k.id AND a.run_id = c.run_id AND ifnull(e.uuid, '') = ifnull(d.uuid, '') AND a.mask "
    "= c.mask AND a.q_len = c.q_len AND a.kv_len = c.kv_len) AS noise FROM drift "
    "c" JOIN_KEY ";"
    /* max() picks the row that the other columns come from. */
    "CREATE TEMP TABLE anewest AS SELECT a.key, k.device, k.provider, r.driver, "
    "r.cuda_version, r.tool_version, c.provider_version, r.origin, "
    "max(ifnull(c.measured_at, '') || printf('%020d', c.id)) AS at FROM acell a JOIN "
    "cell c ON c.id = a.id JOIN run r ON r.id = c.run_id JOIN akey k ON k.id = a.key "
    "WHERE r.origin <> 'synthetic' GROUP BY a.key;"
    "CREATE TEMP TABLE ahere (device, driver, cuda_version, provider, provider_version)";

void hcp_audit_free(struct hcp_audit *audit)
{
    for (size_t i = 0; i < audit->n_findings; i++) {
        free(audit->findings[i].lengths);
        free(audit->findings[i].text);
        free(audit->findings[i].command);
    }
    free(audit->findings);
    free(audit->covers);
    free(audit->links);
    free(audit->besides);
    free(audit->linears);
    memset(audit, 0, sizeof *audit);
}

int hcp_audit_add(struct hcp_audit *audit, const struct hcp_finding *f,
                  struct hcp_err *err)
{
    struct hcp_finding *grown =
        realloc(audit->findings, (audit->n_findings + 1) * sizeof *grown);

    if (grown)
        audit->findings = grown;
    if (!grown || !f->text || !f->command) {
        free(f->lengths);
        free(f->text);
        free(f->command);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    grown[audit->n_findings++] = *f;
    audit->n[f->severity]++;
    return HCP_OK;
}

/* Where the key of a rule's rows is spelled out. */
static const char *about_sql(enum hcp_about about)
{
    switch (about) {
    case HCP_ABOUT_PAIR:
        return "SELECT device_a, limiter_a, '', '', '', 0, 0, 0, 0, device_b, limiter_b, "
               "transport, channels, one_way FROM apair WHERE id = ?1";
    case HCP_ABOUT_BESIDE:
        return "SELECT " KEY ", peer, peer_limiter, transport, channels, 0 FROM abeside "
               "WHERE id = ?1";
    case HCP_ABOUT_GEMMS:
        return "SELECT device, limiter, provider, dtype, '', 0, 0, 0, 0, '', '', '', 0, "
               "0 FROM agemm WHERE id = ?1";
    default:
        return "SELECT " KEY ", '', '', '', 0, 0 FROM akey WHERE id = ?1";
    }
}

static int read_about(hcp_db *db, enum hcp_about about, int64_t id, struct hcp_finding *f,
                      struct hcp_err *err)
{
    struct hcp_key *k = &f->key;
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, about_sql(about), -1, &s, NULL);

    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(s, 1, id);
        rc = sqlite3_step(s);
    }
    if (rc == SQLITE_ROW) {
        hcp_column_copy(s, 0, k->device, sizeof k->device);
        hcp_column_copy(s, 1, k->limit, sizeof k->limit);
        hcp_column_copy(s, 2, k->provider, sizeof k->provider);
        hcp_column_copy(s, 3, k->dtype, sizeof k->dtype);
        hcp_column_copy(s, 4, k->phase, sizeof k->phase);
        k->batch = sqlite3_column_int(s, 5);
        k->heads = sqlite3_column_int(s, 6);
        k->kv_heads = sqlite3_column_int(s, 7);
        k->head_dim = sqlite3_column_int(s, 8);
        hcp_column_copy(s, 9, f->peer_device, sizeof f->peer_device);
        hcp_column_copy(s, 10, f->peer_limit, sizeof f->peer_limit);
        hcp_column_copy(s, 11, f->transport, sizeof f->transport);
        f->channels = sqlite3_column_int(s, 12);
        f->one_way = sqlite3_column_int(s, 13);
    }
    rc = rc == SQLITE_ROW ? HCP_OK : hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return rc;
}

/* A group of rows on its way to a finding. */
struct group {
    struct hcp_finding f;
    char *more;
    int64_t ids[HCP_FINDING_LENGTHS];
};

static int end_group(hcp_db *db, const struct hcp_rule *rule, struct group *g,
                     struct hcp_audit *audit, struct hcp_err *err)
{
    g->f.command = hcp_audit_mend(db, rule->mend, &g->f, g->more, g->ids);
    free(g->more);
    g->more = NULL;
    return hcp_audit_add(audit, &g->f, err);
}

static int begin_group(hcp_db *db, const struct hcp_rule *rule, sqlite3_stmt *s,
                       struct group *g, struct hcp_err *err)
{
    const char *text = (const char *)sqlite3_column_text(s, 5);
    const char *more = (const char *)sqlite3_column_text(s, 7);
    int severity = sqlite3_column_int(s, 0), rc;

    memset(g, 0, sizeof *g);
    g->f.severity = severity > HCP_WARNING ? HCP_ERROR : (enum hcp_severity)severity;
    g->f.section = rule->section;
    g->f.code = rule->code;
    g->f.text = strdup(text ? text : "");
    g->more = more ? strdup(more) : NULL;
    g->f.lengths = calloc(HCP_FINDING_LENGTHS, sizeof *g->f.lengths);
    if (!g->f.lengths || !g->f.text)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    g->f.kind = rule->about == HCP_ABOUT_PAIR     ? HCP_ROWS_LINKS
                : rule->about == HCP_ABOUT_BESIDE ? HCP_ROWS_BESIDE
                : rule->about == HCP_ABOUT_GEMMS  ? HCP_ROWS_LINEAR
                                                  : HCP_ROWS_CELLS;
    if (rule->about == HCP_ABOUT_FILE)
        return HCP_OK;
    rc = read_about(db, rule->about, sqlite3_column_int64(s, 1), &g->f, err);
    g->f.any_limit = rule->about == HCP_ABOUT_LIMITS;
    if (g->f.any_limit)
        *g->f.key.limit = '\0';
    return rc;
}

static void add_row(sqlite3_stmt *s, struct group *g)
{
    struct hcp_lengths *l = &g->f.lengths[g->f.n_lengths];

    if (sqlite3_column_type(s, 8) == SQLITE_NULL)
        return; /* about the key, not about a row */
    g->f.rows++;
    if (g->f.n_lengths == HCP_FINDING_LENGTHS)
        return;
    hcp_column_copy(s, 2, l->mask, sizeof l->mask);
    l->q_len = sqlite3_column_int64(s, 3);
    l->kv_len = sqlite3_column_int64(s, 4);
    g->ids[g->f.n_lengths] = sqlite3_column_int64(s, 8);
    g->f.n_lengths += l->q_len > 0;
    if (g->f.kind == HCP_ROWS_CELLS && l->q_len > 0 && !l->kv_len)
        g->f.kind = HCP_ROWS_FINISH;
}

int hcp_audit_rule(hcp_db *db, const struct hcp_rule *rule, struct hcp_audit *audit,
                   struct hcp_err *err)
{
    static const char tail[] = ") ORDER BY 2, 1 DESC, 7 DESC, 3, 4, 5";
    size_t size = strlen(rule->sql) + sizeof tail + 16;
    char *sql = malloc(size);
    struct group *g = malloc(sizeof *g);
    sqlite3_stmt *s = NULL;
    int64_t key = 0;
    int severity = -1, open = 0, step, rc = HCP_OK;

    if (!sql || !g) {
        free(sql);
        free(g);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    snprintf(sql, size, "SELECT * FROM (%s%s", rule->sql, tail);
    step = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    while (!rc && (step == SQLITE_OK || step == SQLITE_ROW) &&
           (step = sqlite3_step(s)) == SQLITE_ROW) {
        if (open &&
            (rule->about == HCP_ABOUT_FILE || severity != sqlite3_column_int(s, 0) ||
             key != sqlite3_column_int64(s, 1))) {
            rc = end_group(db, rule, g, audit, err);
            open = 0;
        }
        severity = sqlite3_column_int(s, 0);
        key = sqlite3_column_int64(s, 1);
        if (!rc && !open) {
            rc = begin_group(db, rule, s, g, err);
            open = 1;
        }
        if (!rc)
            add_row(s, g);
    }
    if (!rc && step != SQLITE_DONE)
        rc = hcp_db_sql_error(db, step, "read", err);
    if (open && !rc)
        rc = end_group(db, rule, g, audit, err);
    else if (open) {
        free(g->f.lengths);
        free(g->f.text);
        free(g->more);
    }
    sqlite3_finalize(s);
    free(g);
    free(sql);
    return rc;
}

/* hcp_peak(device, dtype): TFLOP/s; hcp_peak(NULL, NULL): more than any device has. */
static void sql_peak(sqlite3_context *context, int n, sqlite3_value **v)
{
    const char *device = (const char *)sqlite3_value_text(v[0]);
    const char *dtype = (const char *)sqlite3_value_text(v[1]);
    double peak = device && dtype ? hcp_peak_tflops(device, dtype) : HCP_ANY_PEAK_TFLOPS;

    (void)n;
    if (isnan(peak))
        sqlite3_result_null(context);
    else
        sqlite3_result_double(context, peak);
}

static int put_here(hcp_db *db, const struct hcp_audit_here *here, size_t n,
                    struct hcp_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "INSERT INTO ahere VALUES (?, ?, ?, ?, ?)",
                                -1, &s, NULL);

    for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
        const char *const texts[] = {here[i].device, here[i].driver, here[i].cuda_version,
                                     here[i].provider, here[i].provider_version};
        sqlite3_reset(s);
        for (int j = 0; j < 5; j++)
            sqlite3_bind_text(s, j + 1, texts[j], -1, SQLITE_STATIC);
        rc = sqlite3_step(s);
        rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    sqlite3_finalize(s);
    return rc == SQLITE_OK ? HCP_OK : hcp_db_sql_error(db, rc, "read", err);
}

/* SQLite's own look at pages, indexes and constraints, and rows that point nowhere. */
static const struct hcp_rule own_rules[] = {
    {"integrity", "damaged", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 2, NULL, '', 0, 0, integrity_check, -rowid, 'sqlite3 FILE .recover | "
     "sqlite3 "
     "NEW.db', NULL FROM pragma_integrity_check(100) WHERE integrity_check <> 'ok' AND "
     "integrity_check NOT LIKE '%foreign key%'"},
    {"integrity", "orphan", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 2, NULL, '', 0, 0, printf('%d row%s of %s point%s to no %s', n, iif(n = 1, "
     "'', 's'), t, iif(n = 1, 's', ''), p), n, printf('sqlite3 FILE \"PRAGMA "
     "foreign_keys=ON; DELETE FROM %s WHERE "
     "%s NOT IN (SELECT id FROM %s)\"', t, f, p), NULL FROM (SELECT \"table\" AS t, "
     "parent AS p, count(*) AS n, (SELECT \"from\" FROM "
     "pragma_foreign_key_list(k.\"table\") "
     "l WHERE l.id = k.fkid) AS f FROM pragma_foreign_key_check k GROUP BY 1, 2, fkid)"},
};

/* A file may carry our application id and be something else all the same. */
static int check_tables(hcp_db *db, struct hcp_err *err)
{
    static const char *const tables[] = {
        "device", "run",   "cell",        "sample",   "bandwidth", "finish",   "link",
        "model",  "model_array", "ring_run", "ring_rank", "topology", "interference",
        "drift",  "linear"};
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(
        db->handle, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1", -1,
        &s, NULL);

    if (rc != SQLITE_OK)
        return hcp_db_sql_error(db, rc, "read", err);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof tables / sizeof *tables; i++) {
        sqlite3_reset(s);
        sqlite3_bind_text(s, 1, tables[i], -1, SQLITE_STATIC);
        rc = sqlite3_step(s);
        if (rc == SQLITE_DONE)
            hcp_fail(err, HCP_FAILED,
                     "'%s' has the mark of a profile database but no table '%s'; restore "
                     "it from a copy",
                     db->path, tables[i]);
        else if (rc != SQLITE_ROW)
            hcp_db_sql_error(db, rc, "read", err);
        rc = rc == SQLITE_ROW ? SQLITE_OK : rc;
    }
    sqlite3_finalize(s);
    return rc == SQLITE_OK ? HCP_OK : HCP_FAILED;
}

static int section_order(const char *section)
{
    static const char *const order[] = {"coverage", "integrity", "staleness"};
    int i = 0;

    while (i < 3 && strcmp(order[i], section))
        i++;
    return i;
}

static int by_section(const void *a, const void *b)
{
    const struct hcp_finding *x = a, *y = b;
    int o = section_order(x->section) - section_order(y->section);

    o = o ? o : (int)y->severity - (int)x->severity;
    o = o ? o : strcmp(x->code, y->code);
    o = o ? o : strcmp(x->key.device, y->key.device);
    o = o ? o : strcmp(x->key.provider, y->key.provider);
    o = o ? o : hcp_limit_compare(x->key.limit, y->key.limit);
    o = o ? o : hcp_limit_compare(x->peer_limit, y->peer_limit);
    o = o ? o : x->channels - y->channels;
    o = o ? o : strcmp(x->key.phase, y->key.phase);
    o = o ? o : x->key.heads - y->key.heads;
    return o ? o : strcmp(x->text, y->text);
}

static int audit_all(hcp_db *db, const struct hcp_audit_here *here, size_t n_here,
                     struct hcp_audit *out, struct hcp_err *err)
{
    int rc = check_tables(db, err);

    if (!rc &&
        sqlite3_create_function(db->handle, "hcp_peak", 2,
                                SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
                                NULL, sql_peak, NULL, NULL) != SQLITE_OK)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; !rc && i < sizeof own_rules / sizeof *own_rules; i++)
        rc = hcp_audit_rule(db, &own_rules[i], out, err);
    if (!rc)
        rc = hcp_db_exec(db, setup_sql, "read", err);
    if (!rc)
        rc = put_here(db, here, n_here, err);
    for (size_t i = 0; !rc && i < hcp_n_audit_rules; i++)
        rc = hcp_audit_rule(db, &hcp_audit_rules[i], out, err);
    for (size_t i = 0; !rc && i < hcp_n_audit_row_rules; i++)
        rc = hcp_audit_rule(db, &hcp_audit_row_rules[i], out, err);
    if (!rc)
        rc = hcp_audit_cover(db, out, err);
    if (!rc)
        rc = hcp_audit_models(db, out, err);
    hcp_db_rollback(db);
    return rc;
}

int hcp_audit_file(hcp_db *db, const struct hcp_audit_here *here, size_t n_here,
                   struct hcp_audit *out, struct hcp_err *err)
{
    int rc;

    memset(out, 0, sizeof *out);
    rc = audit_all(db, here, n_here, out, err);
    if (!rc && out->n_findings)
        qsort(out->findings, out->n_findings, sizeof *out->findings, by_section);
    return rc;
}
