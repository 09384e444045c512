/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#define ROW struct hcp_link_row
#include "db/columns.h"

/* Of a's end by the names of hcp_columns, of b's with peer_ before them: that is how a
 * text file has them. */
static const struct hcp_column columns[] = {
    TEXT("device", device_a, "d.slug"),
    WORD("limit", limit_a, "t.limiter_a"),
    TEXT("peer_device", device_b, "e.slug"),
    WORD("peer_limit", limit_b, "t.limiter_b"),
    TEXT("transport", transport, "t.transport"),
    TEXT("transport_version", transport_version, "t.transport_version"),
    INT("same_host", same_host, "t.same_host", -1, 0),
    LONG("bytes", bytes, "t.bytes", 0, 1, INT64_MAX),
    REAL("time_ms", time_ms, "t.time_ms"),
    REAL("p25_ms", p25_ms, "t.p25_ms"),
    REAL("p75_ms", p75_ms, "t.p75_ms"),
    INT("samples", samples, "t.samples", -1, 0),
    INT("sm_seen", sm_seen_a, "t.sm_seen_a", -1, 1),
    INT("sm_count", sm_count_a, "d.sm_count", -1, 1),
    INT("peer_sm_seen", sm_seen_b, "t.sm_seen_b", -1, 1),
    INT("peer_sm_count", sm_count_b, "e.sm_count", -1, 1),
    TEXT("origin", from.origin, "r.origin"),
    TEXT("run_uid", from.run_uid, "r.uid"),
    TEXT("host", from.host, "r.host"),
    TEXT("peer_host", host_b, "t.host_b"),
    TEXT("device_uuid", uuid_a, "d.uuid"),
    TEXT("device_name", name_a, "d.name"),
    TEXT("peer_uuid", uuid_b, "e.uuid"),
    TEXT("peer_name", name_b, "e.name"),
    TEXT("driver", from.driver, "r.driver"),
    TEXT("cuda_version", from.cuda_version, "r.cuda_version"),
    TEXT("tool_version", from.tool_version, "r.tool_version"),
    TEXT("measured_at", from.measured_at, "t.measured_at"),
};
static const char *const identity[] = {
    "run_uid",   "device",     "device_uuid", "limit", "peer_device",
    "peer_uuid", "peer_limit", "transport",   "bytes", NULL};
const struct hcp_rows hcp_link_rows = {
    "link",
    "link t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_a_id "
    "JOIN device e ON e.id = t.device_b_id",
    "run r CROSS JOIN device d CROSS JOIN device e CROSS JOIN link t ON r.id = t.run_id "
    "AND d.id = t.device_a_id AND e.id = t.device_b_id",
    " ORDER BY d.slug, t.limiter_a, e.slug, t.limiter_b, t.transport, t.bytes, r.uid, "
    "d.uuid, "
    "e.uuid, t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_link_row_init(struct hcp_link_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_link_rows, row);
    strcpy(row->from.origin, "measured");
}

int hcp_link_row_validate(const struct hcp_link_row *row, struct hcp_err *err)
{
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_check_word("transport", row->transport, "nccl mpi", err);
    if (!rc)
        rc = hcp_check_word("origin", row->from.origin, "measured recorded synthetic",
                            err);
    if (!rc)
        rc = hcp_check_device(row->device_a, row->limit_a, err);
    if (!rc)
        rc = hcp_check_device(row->device_b, row->limit_b, err);
    if (!rc)
        rc = hcp_check_range("bytes", row->bytes, 1, INT64_MAX, err);
    if (!rc && row->same_host != -1)
        rc = hcp_check_range("same_host", row->same_host, 0, 1, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen_a, row->sm_count_a, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen_b, row->sm_count_b, err);
    return rc ? rc
              : hcp_check_measured(row->p25_ms, row->time_ms, row->p75_ms,
                                   row->from.run_uid, err);
}

static int add_inside(hcp_db *db, const void *valid, enum hcp_db_outcome *outcome,
                      struct hcp_err *err)
{
    const struct hcp_link_row *row = valid;
    static const char *const names[] = {"run_id", "device_a_id", "device_b_id"};
    struct hcp_link_row stored;
    int64_t refs[3];
    int found = 0, rc = hcp_db_run_of(db, &row->from, &refs[0], err);

    if (!rc)
        rc = hcp_rows_find(db, &hcp_link_rows, row, &stored, &found, NULL, err);
    if (!rc && found)
        *outcome =
            hcp_rows_same(&hcp_link_rows, row, &stored) ? HCP_DB_SAME : HCP_DB_CONFLICT;
    if (rc || found)
        return rc;
    rc = hcp_db_device_id(db, row->device_a, row->uuid_a, row->name_a, row->sm_count_a,
                          &refs[1], err);
    if (!rc)
        rc = hcp_db_device_id(db, row->device_b, row->uuid_b, row->name_b,
                              row->sm_count_b, &refs[2], err);
    return rc ? rc : hcp_rows_insert(db, &hcp_link_rows, names, refs, 3, row, err);
}

int hcp_db_add_link(hcp_db *db, const struct hcp_link_row *row,
                    enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    int rc = hcp_link_row_validate(row, err);

    return rc ? rc : hcp_db_add_row(db, add_inside, row, outcome, err);
}

int hcp_db_each_link(hcp_db *db, const struct hcp_filter *filter,
                     int (*visit)(const struct hcp_link_row *row, void *ctx), void *ctx,
                     struct hcp_err *err)
{
    static const struct hcp_filter any = {0};
    const struct hcp_filter *f = filter ? filter : &any;
    const char *const texts[] = {f->device, f->limit, f->origin, f->run_uid, f->host};
    struct hcp_link_row row;
    int rc = SQLITE_DONE, result = HCP_OK;
    /* Device and limit must be those of one end, not one of each. */
    sqlite3_stmt *s = hcp_rows_select(
        db, &hcp_link_rows, "",
        " WHERE (((?1 = '' OR d.slug = ?1) AND ((?2 = '' AND NOT ?6) OR t.limiter_a = "
        "?2)) OR ((?1 = '' OR e.slug = ?1) AND ((?2 = '' AND NOT ?6) OR t.limiter_b = "
        "?2))) AND (?3 = '' OR r.origin = ?3) AND (?4 = '' OR r.uid = ?4) AND "
        "(?5 = '' OR r.host = ?5 OR t.host_b = ?5)",
        err);

    if (!s)
        return HCP_FAILED;
    for (int i = 0; i < 5; i++)
        sqlite3_bind_text(s, i + 1, texts[i] ? texts[i] : "", -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(s, 6, f->limit_set);
    memset(&row, 0, sizeof row);
    while (!result && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        hcp_rows_read(s, &hcp_link_rows, &row);
        result = visit(&row, ctx);
    }
    if (!result && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return result;
}
