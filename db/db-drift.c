/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#define ROW struct hcp_drift_row
#include "db/columns.h"

static const struct hcp_column columns[] = {
    KEY("t.limiter"),
    TEXT("mask", mask, "t.mask"),
    LONG("q_len", q_len, "t.q_len", -1, 1, HCP_LEN_LIMIT),
    LONG("kv_len", kv_len, "t.kv_len", -1, 1, HCP_LEN_LIMIT),
    REAL("first_ms", first_ms, "t.first_ms"),
    REAL("last_ms", last_ms, "t.last_ms"),
    REAL("first_sm_clock_mhz", first_sm_clock_mhz, "t.first_sm_clock_mhz"),
    REAL("last_sm_clock_mhz", last_sm_clock_mhz, "t.last_sm_clock_mhz"),
    REAL("seconds", seconds, "t.seconds"),
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
static const char *const identity[] = {"run_uid",  "device",   "device_uuid", "limit",
                                       "provider", "dtype",    "phase",       "batch",
                                       "heads",    "kv_heads", "head_dim",    "mask",
                                       "q_len",    "kv_len",   "measured_at", NULL};
const struct hcp_rows hcp_drift_rows = {
    "drift",
    "drift t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_id",
    "run r CROSS JOIN device d CROSS JOIN drift t ON r.id = t.run_id AND d.id = "
    "t.device_id",
    " ORDER BY d.slug, t.limiter, t.provider, t.dtype, t.phase, t.batch, t.heads, "
    "t.kv_heads, t.head_dim, t.mask, t.q_len, t.kv_len, r.uid, t.measured_at, d.uuid, "
    "t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_drift_row_init(struct hcp_drift_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_drift_rows, row);
    strcpy(row->key.dtype, "bf16");
    strcpy(row->key.phase, "prefill");
    row->key.batch = 1;
    row->key.heads = 32;
    row->key.kv_heads = 8;
    row->key.head_dim = 128;
    strcpy(row->mask, "full");
    strcpy(row->from.origin, "measured");
}

int hcp_drift_row_validate(const struct hcp_drift_row *row, struct hcp_err *err)
{
    const struct hcp_named_time first = {"first_ms", row->first_ms},
                                last = {"last_ms", row->last_ms};
    char text[32];
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_check_device(row->key.device, row->key.limit, err);
    if (!rc)
        rc = hcp_check_block(&row->key, row->mask, row->q_len, row->kv_len, err);
    if (!rc && (isnan(row->first_ms) || isnan(row->last_ms)))
        rc = hcp_fail(err, HCP_FAILED, "%s_ms is missing",
                      isnan(row->first_ms) ? "first" : "last");
    if (!rc)
        rc = hcp_check_times(&first, 1, err);
    if (!rc)
        rc = hcp_check_times(&last, 1, err);
    if (!rc)
        rc = hcp_check_clock("first_sm_clock_mhz", row->first_sm_clock_mhz, err);
    if (!rc)
        rc = hcp_check_clock("last_sm_clock_mhz", row->last_sm_clock_mhz, err);
    if (!rc && !isnan(row->seconds) && (row->seconds < 0 || isinf(row->seconds)))
        rc = hcp_fail(err, HCP_FAILED, "seconds %s is not a time between two samples",
                      hcp_format_double(row->seconds, text));
    return rc ? rc : hcp_check_provenance(&row->from, err);
}

HCP_KIND(drift, struct hcp_drift_row, hcp_drift_row_init, hcp_drift_row_validate, "drift",
         3)
