/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#define ROW struct hcp_finish_row
#include "db/columns.h"

/* Names are those of hcp_columns, where a text file has these values (text-row.c). */
static const struct hcp_column columns[] = {
    TEXT("device", key.device, "d.slug"),
    WORD("limit", key.limit, "t.limiter"),
    TEXT("provider", key.provider, "t.provider"),
    TEXT("dtype", key.dtype, "t.dtype"),
    TEXT("phase", key.phase, "t.phase"),
    INT("batch", key.batch, "t.batch", -1, 1),
    INT("heads", key.heads, "t.heads", -1, 1),
    INT("kv_heads", key.kv_heads, "t.kv_heads", -1, 1),
    INT("head_dim", key.head_dim, "t.head_dim", -1, 1),
    TEXT("kind", kind, "t.kind"),
    LONG("q_len", q_len, "t.q_len", -1, 1, HCP_LEN_LIMIT),
    REAL("time_ms", time_ms, "t.time_ms"),
    REAL("p25_ms", p25_ms, "t.p25_ms"),
    REAL("p75_ms", p75_ms, "t.p75_ms"),
    INT("samples", samples, "t.samples", -1, 0),
    INT("sm_seen", sm_seen, "t.sm_seen", -1, 1),
    INT("sm_count", sm_count, "d.sm_count", -1, 1),
    TEXT("origin", from.origin, "r.origin"),
    TEXT("run_uid", from.run_uid, "r.uid"),
    TEXT("host", from.host, "r.host"),
    TEXT("device_uuid", device_uuid, "d.uuid"),
    TEXT("device_name", device_name, "d.name"),
    TEXT("driver", from.driver, "r.driver"),
    TEXT("cuda_version", from.cuda_version, "r.cuda_version"),
    TEXT("tool_version", from.tool_version, "r.tool_version"),
    TEXT("measured_at", from.measured_at, "t.measured_at"),
};
static const char *const identity[] = {
    "run_uid", "device", "device_uuid", "limit",    "provider", "dtype", "phase",
    "batch",   "heads",  "kv_heads",    "head_dim", "kind",     "q_len", NULL};
const struct hcp_rows hcp_finish_rows = {
    "finish",
    "finish t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_id",
    "run r CROSS JOIN device d CROSS JOIN finish t ON r.id = t.run_id AND d.id = "
    "t.device_id",
    " ORDER BY d.slug, t.limiter, t.provider, t.dtype, t.phase, t.batch, t.heads, "
    "t.kv_heads, "
    "t.head_dim, t.kind, t.q_len, r.uid, d.uuid, t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_finish_row_init(struct hcp_finish_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_finish_rows, row);
    strcpy(row->key.dtype, "bf16");
    strcpy(row->key.phase, "prefill");
    row->key.batch = 1;
    row->key.heads = 32;
    row->key.kv_heads = 8;
    row->key.head_dim = 128;
    strcpy(row->from.origin, "measured");
}

int hcp_finish_row_validate(const struct hcp_finish_row *row, struct hcp_err *err)
{
    const struct hcp_key *k = &row->key;
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_check_word("kind", row->kind, "store merge", err);
    if (!rc)
        rc = hcp_check_word("dtype", k->dtype, "bf16 fp16 fp32", err);
    if (!rc)
        rc = hcp_check_word("phase", k->phase, "prefill decode", err);
    if (!rc)
        rc = hcp_check_word("origin", row->from.origin, "measured recorded synthetic",
                            err);
    if (!rc)
        rc = hcp_check_device(k->device, k->limit, err);
    if (!rc && hcp_parse_slug(k->provider, "provider", sizeof k->provider, err))
        rc = HCP_FAILED;
    if (!rc)
        rc = hcp_check_range("q_len", row->q_len, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_heads(k->batch, k->heads, k->kv_heads, k->head_dim, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen, row->sm_count, err);
    return rc ? rc
              : hcp_check_measured(row->p25_ms, row->time_ms, row->p75_ms,
                                   row->from.run_uid, err);
}

static int add_inside(hcp_db *db, const void *valid, enum hcp_db_outcome *outcome,
                      struct hcp_err *err)
{
    const struct hcp_finish_row *row = valid;
    static const char *const names[] = {"run_id", "device_id"};
    struct hcp_finish_row stored;
    int64_t refs[2];
    int found = 0, rc = hcp_db_run_of(db, &row->from, &refs[0], err);

    if (!rc)
        rc = hcp_rows_find(db, &hcp_finish_rows, row, &stored, &found, NULL, err);
    if (!rc && found)
        *outcome =
            hcp_rows_same(&hcp_finish_rows, row, &stored) ? HCP_DB_SAME : HCP_DB_CONFLICT;
    if (rc || found)
        return rc;
    rc = hcp_db_device_id(db, row->key.device, row->device_uuid, row->device_name,
                          row->sm_count, &refs[1], err);
    return rc ? rc : hcp_rows_insert(db, &hcp_finish_rows, names, refs, 2, row, err);
}

int hcp_db_add_finish(hcp_db *db, const struct hcp_finish_row *row,
                      enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    int rc = hcp_finish_row_validate(row, err);

    return rc ? rc : hcp_db_add_row(db, add_inside, row, outcome, err);
}

int hcp_db_each_finish(hcp_db *db, const struct hcp_filter *filter,
                       int (*visit)(const struct hcp_finish_row *row, void *ctx),
                       void *ctx, struct hcp_err *err)
{
    static const struct hcp_filter any = {0};
    const struct hcp_filter *f = filter ? filter : &any;
    const char *const texts[] = {f->device, f->limit,  f->provider, f->dtype,
                                 f->phase,  f->origin, f->run_uid,  f->host};
    const int32_t numbers[] = {f->limit_set, f->batch, f->heads, f->kv_heads,
                               f->head_dim};
    struct hcp_finish_row row;
    int rc = SQLITE_DONE, result = HCP_OK;
    sqlite3_stmt *s = hcp_rows_select(
        db, &hcp_finish_rows, "",
        " WHERE (?1 = '' OR d.slug = ?1) AND ((?2 = '' AND NOT ?9) OR t.limiter = ?2) "
        "AND "
        "(?3 = '' OR t.provider = ?3) AND (?4 = '' OR t.dtype = ?4) AND (?5 = '' OR "
        "t.phase = ?5) AND (?6 = '' OR r.origin = ?6) AND (?7 = '' OR r.uid = ?7) AND "
        "(?8 = '' OR r.host = ?8) AND (?10 = 0 OR t.batch = ?10) AND (?11 = 0 OR "
        "t.heads = ?11) AND (?12 = 0 OR t.kv_heads = ?12) AND (?13 = 0 OR t.head_dim = "
        "?13)",
        err);

    if (!s)
        return HCP_FAILED;
    for (int i = 0; i < 8; i++)
        sqlite3_bind_text(s, i + 1, texts[i] ? texts[i] : "", -1, SQLITE_TRANSIENT);
    for (int i = 0; i < 5; i++)
        sqlite3_bind_int(s, i + 9, numbers[i]);
    memset(&row, 0, sizeof row);
    while (!result && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        hcp_rows_read(s, &hcp_finish_rows, &row);
        result = visit(&row, ctx);
    }
    if (!result && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return result;
}
