/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#define ROW struct hcp_interference_row
#include "db/columns.h"

static const struct hcp_column columns[] = {
    KEY("t.limiter_a"),
    TEXT("mask", mask, "t.mask"),
    LONG("q_len", q_len, "t.q_len", -1, 1, HCP_LEN_LIMIT),
    LONG("kv_len", kv_len, "t.kv_len", -1, 1, HCP_LEN_LIMIT),
    TEXT("peer_device", device_b, "e.slug"),
    WORD("peer_limit", limit_b, "t.limiter_b"),
    TEXT("transport", transport, "t.transport"),
    INT("channels", channels, "t.channels", -1, 1),
    LONG("bytes", bytes, "t.bytes", 0, 1, INT64_MAX),
    REAL("alone_ms", alone_ms, "t.alone_ms"),
    REAL("beside_ms", beside_ms, "t.beside_ms"),
    REAL("transfer_alone_ms", transfer_alone_ms, "t.transfer_alone_ms"),
    REAL("transfer_beside_ms", transfer_beside_ms, "t.transfer_beside_ms"),
    REAL("wait_ms", wait_ms, "t.wait_ms"),
    INT("samples", samples, "t.samples", -1, 0),
    INT("sm_seen", sm_seen, "t.sm_seen", -1, 1),
    TEXT("provider_version", provider_version, "t.provider_version"),
    TEXT("transport_version", transport_version, "t.transport_version"),
    INT("sm_count", sm_count, "d.sm_count", -1, 1),
    INT("peer_sm_count", sm_count_b, "e.sm_count", -1, 1),
    TEXT("origin", from.origin, "r.origin"),
    TEXT("run_uid", from.run_uid, "r.uid"),
    TEXT("host", from.host, "r.host"),
    TEXT("peer_host", host_b, "t.host_b"),
    TEXT("device_uuid", device_uuid, "d.uuid"),
    TEXT("device_name", device_name, "d.name"),
    TEXT("peer_uuid", uuid_b, "e.uuid"),
    TEXT("peer_name", name_b, "e.name"),
    TEXT("driver", from.driver, "r.driver"),
    TEXT("cuda_version", from.cuda_version, "r.cuda_version"),
    TEXT("tool_version", from.tool_version, "r.tool_version"),
    TEXT("measured_at", from.measured_at, "t.measured_at"),
};
static const char *const identity[] = {
    "run_uid",  "device", "device_uuid", "limit",     "provider",   "dtype",
    "phase",    "batch",  "heads",       "kv_heads",  "head_dim",   "mask",
    "q_len",    "kv_len", "peer_device", "peer_uuid", "peer_limit", "transport",
    "channels", "bytes",  "peer_host",   NULL};
const struct hcp_rows hcp_interference_rows = {
    "interference",
    "interference t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_a_id "
    "JOIN device e ON e.id = t.device_b_id",
    "run r CROSS JOIN device d CROSS JOIN device e CROSS JOIN interference t ON r.id = "
    "t.run_id AND d.id = t.device_a_id AND e.id = t.device_b_id",
    " ORDER BY d.slug, t.limiter_a, e.slug, t.limiter_b, t.transport, t.channels, "
    "t.provider, t.dtype, t.phase, t.batch, t.heads, t.kv_heads, t.head_dim, t.mask, "
    "t.q_len, t.kv_len, t.bytes, r.uid, d.uuid, e.uuid, t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_interference_row_init(struct hcp_interference_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_interference_rows, row);
    strcpy(row->key.dtype, "bf16");
    strcpy(row->key.phase, "prefill");
    row->key.batch = 1;
    row->key.heads = 32;
    row->key.kv_heads = 8;
    row->key.head_dim = 128;
    strcpy(row->mask, "full");
    strcpy(row->from.origin, "measured");
}

int hcp_interference_row_validate(const struct hcp_interference_row *row,
                                  struct hcp_err *err)
{
    const struct hcp_named_time times[] = {
        {"alone_ms", row->alone_ms},
        {"beside_ms", row->beside_ms},
        {"transfer_alone_ms", row->transfer_alone_ms},
        {"transfer_beside_ms", row->transfer_beside_ms}};
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_check_device(row->key.device, row->key.limit, err);
    if (!rc)
        rc = hcp_check_device(row->device_b, row->limit_b, err);
    if (!rc)
        rc = hcp_check_block(&row->key, row->mask, row->q_len, row->kv_len, err);
    if (!rc)
        rc = hcp_check_transfer(row->transport, row->channels, row->bytes, err);
    for (int i = 0; !rc && i < 4; i++)
        rc = i < 2 && isnan(times[i].ms)
                 ? hcp_fail(err, HCP_FAILED, "%s is missing", times[i].name)
                 : hcp_check_times(&times[i], 1, err);
    if (!rc && (row->wait_ms < 0 || isinf(row->wait_ms)))
        rc = hcp_fail(err, HCP_FAILED, "wait_ms %g is no time", row->wait_ms);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen, row->sm_count, err);
    return rc ? rc : hcp_check_provenance(&row->from, err);
}

HCP_KIND(interference, struct hcp_interference_row, hcp_interference_row_init,
         hcp_interference_row_validate, "interference", 3)
