/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#define ROW struct hcp_bandwidth
#include "db/columns.h"

static const struct hcp_column columns[] = {
    TEXT("device", device, "d.slug"),
    WORD("limit", limit, "t.limiter"),
    TEXT("kind", kind, "t.kind"),
    REAL("gb_per_s", gb_per_s, "t.gb_per_s"),
    LONG("bytes", bytes, "t.bytes", 0, 1, INT64_MAX),
    INT("sm_seen", sm_seen, "t.sm_seen", -1, 1),
    INT("sm_count", sm_count, "d.sm_count", -1, 1),
    TEXT("origin", origin, "r.origin"),
    TEXT("run_uid", run_uid, "r.uid"),
    TEXT("host", host, "r.host"),
    TEXT("device_uuid", device_uuid, "d.uuid"),
    TEXT("device_name", device_name, "d.name"),
    TEXT("driver", driver, "r.driver"),
    TEXT("cuda_version", cuda_version, "r.cuda_version"),
    TEXT("tool_version", tool_version, "r.tool_version"),
    TEXT("measured_at", measured_at, "t.measured_at"),
};
static const char *const identity[] = {"run_uid", "device", "device_uuid", "limit",
                                       "kind",    "bytes",  NULL};
const struct hcp_rows hcp_bandwidth_rows = {
    "bandwidth",
    "bandwidth t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_id",
    "run r CROSS JOIN device d CROSS JOIN bandwidth t ON r.id = t.run_id AND d.id = "
    "t.device_id",
    " ORDER BY d.slug, t.limiter, t.kind, t.bytes, r.uid, d.uuid, t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_bandwidth_init(struct hcp_bandwidth *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_bandwidth_rows, row);
    strcpy(row->kind, "copy");
    strcpy(row->origin, "measured");
}

int hcp_bandwidth_validate(const struct hcp_bandwidth *row, struct hcp_err *err)
{
    char kind[8], text[32];
    int32_t level;
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_parse_slug(row->device, "device", sizeof row->device, err);
    if (!rc)
        rc = hcp_parse_limit(row->limit, kind, &level, err);
    if (rc)
        return HCP_FAILED;
    if (strcmp(row->kind, "copy"))
        return hcp_fail(err, HCP_FAILED, "kind '%s' is not known; expected copy",
                        row->kind);
    if (!(row->gb_per_s > 0) || isinf(row->gb_per_s))
        return hcp_fail(
            err, HCP_FAILED,
            "gb_per_s %s is not a bandwidth; expected 1e9 bytes a second above "
            "zero",
            hcp_format_double(row->gb_per_s, text));
    if (row->bytes < 0)
        return hcp_fail(err, HCP_FAILED, "bytes %lld is negative", (long long)row->bytes);
    if (hcp_check_sms(row->sm_seen, row->sm_count, err))
        return HCP_FAILED;
    if (strcmp(row->origin, "measured") && strcmp(row->origin, "recorded") &&
        strcmp(row->origin, "synthetic"))
        return hcp_fail(
            err, HCP_FAILED,
            "origin '%s' is not known; expected measured, recorded or synthetic",
            row->origin);
    if (!*row->run_uid)
        return hcp_fail(err, HCP_FAILED, "run_uid is empty; every row belongs to a run");
    return HCP_OK;
}

HCP_KIND(bandwidth, struct hcp_bandwidth, hcp_bandwidth_init, hcp_bandwidth_validate,
         "copy", 1)
