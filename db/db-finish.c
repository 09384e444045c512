/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#define ROW struct hcp_finish_row
#include "db/columns.h"

/* Names are those of hcp_columns, where a text file has these values (text-row.c). */
static const struct hcp_column columns[] = {
    KEY("t.limiter"),
    TEXT("kind", kind, "t.kind"),
    LONG("q_len", q_len, "t.q_len", -1, 1, HCP_LEN_LIMIT),
    REAL("time_ms", time_ms, "t.time_ms"),
    REAL("p25_ms", p25_ms, "t.p25_ms"),
    REAL("p75_ms", p75_ms, "t.p75_ms"),
    INT("samples", samples, "t.samples", -1, 0),
    TEXT_SINCE(3, "provider_version", provider_version, "t.provider_version"),
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
        rc = hcp_check_device(k->device, k->limit, err);
    if (!rc && hcp_parse_slug(k->provider, "provider", sizeof k->provider, err))
        rc = HCP_FAILED;
    if (!rc)
        rc = hcp_check_range("q_len", row->q_len, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_heads(k->batch, k->heads, k->kv_heads, k->head_dim, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen, row->sm_count, err);
    if (!rc)
        rc = hcp_check_provenance(&row->from, err);
    return rc ? rc : hcp_check_measured(row->p25_ms, row->time_ms, row->p75_ms, err);
}

HCP_KIND(finish, struct hcp_finish_row, hcp_finish_row_init, hcp_finish_row_validate,
         "store merge", 2)
