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
    INT_SINCE(3, "channels", channels, "t.channels", -1, 1),
    FLAG_SINCE(4, "one_way", one_way, "t.one_way"),
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
    "run_uid",   "device",     "device_uuid", "limit",    "peer_device",
    "peer_uuid", "peer_limit", "transport",   "channels", "bytes",
    "peer_host", "one_way",    NULL};
const struct hcp_rows hcp_link_rows = {
    "link",
    "link t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_a_id "
    "JOIN device e ON e.id = t.device_b_id",
    "run r CROSS JOIN device d CROSS JOIN device e CROSS JOIN link t ON r.id = t.run_id "
    "AND d.id = t.device_a_id AND e.id = t.device_b_id",
    " ORDER BY d.slug, t.limiter_a, e.slug, t.limiter_b, t.transport, t.channels, "
    "ifnull(t.one_way, 0), t.bytes, r.uid, "
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
        rc = hcp_check_transfer(row->transport, row->channels, row->bytes, err);
    if (!rc)
        rc = hcp_check_device(row->device_a, row->limit_a, err);
    if (!rc)
        rc = hcp_check_device(row->device_b, row->limit_b, err);
    if (!rc)
        rc = hcp_check_range("one_way", row->one_way, 0, 1, err);
    if (!rc && row->same_host != -1)
        rc = hcp_check_range("same_host", row->same_host, 0, 1, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen_a, row->sm_count_a, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen_b, row->sm_count_b, err);
    if (!rc)
        rc = hcp_check_provenance(&row->from, err);
    return rc ? rc : hcp_check_measured(row->p25_ms, row->time_ms, row->p75_ms, err);
}

HCP_KIND(link, struct hcp_link_row, hcp_link_row_init, hcp_link_row_validate, "link", 2)
