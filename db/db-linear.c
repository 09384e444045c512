/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#define ROW struct hcp_linear_row
#include "db/columns.h"

static const struct hcp_column columns[] = {
    TEXT("device", device, "d.slug"),
    WORD("limit", limit, "t.limiter"),
    TEXT("library", library, "t.library"),
    TEXT("library_version", library_version, "t.library_version"),
    TEXT("dtype", dtype, "t.dtype"),
    LONG("tokens", tokens, "t.tokens", -1, 1, HCP_LEN_LIMIT),
    LONG("n_in", n_in, "t.n_in", -1, 1, HCP_LEN_LIMIT),
    LONG("n_out", n_out, "t.n_out", -1, 1, HCP_LEN_LIMIT),
    REAL("time_ms", time_ms, "t.time_ms"),
    REAL("p25_ms", p25_ms, "t.p25_ms"),
    REAL("p75_ms", p75_ms, "t.p75_ms"),
    INT("samples", samples, "t.samples", -1, 0),
    REAL("sm_clock_mhz", sm_clock_mhz, "t.sm_clock_mhz"),
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
static const char *const identity[] = {"run_uid", "device", "device_uuid", "limit",
                                       "library", "dtype",  "tokens",      "n_in",
                                       "n_out",   NULL};
const struct hcp_rows hcp_linear_rows = {
    "linear",
    "linear t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_id",
    "run r CROSS JOIN device d CROSS JOIN linear t ON r.id = t.run_id AND d.id = "
    "t.device_id",
    " ORDER BY d.slug, t.limiter, t.library, t.dtype, t.n_in, t.n_out, t.tokens, r.uid, "
    "d.uuid, t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_linear_row_init(struct hcp_linear_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_linear_rows, row);
    strcpy(row->dtype, "bf16");
    strcpy(row->from.origin, "measured");
}

double hcp_linear_tflops(const struct hcp_linear_row *row)
{
    return 2 * (double)row->tokens * (double)row->n_in * (double)row->n_out /
           (row->time_ms * 1e9);
}

int hcp_linear_row_validate(const struct hcp_linear_row *row, struct hcp_err *err)
{
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_check_device(row->device, row->limit, err);
    if (!rc && hcp_parse_slug(row->library, "library", sizeof row->library, err))
        rc = HCP_FAILED;
    if (!rc)
        rc = hcp_check_word("dtype", row->dtype, "bf16 fp16 fp32", err);
    if (!rc)
        rc = hcp_check_range("tokens", row->tokens, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_range("n_in", row->n_in, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_range("n_out", row->n_out, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_measured(row->p25_ms, row->time_ms, row->p75_ms, err);
    if (!rc)
        rc = hcp_check_clock("sm_clock_mhz", row->sm_clock_mhz, err);
    if (!rc)
        rc = hcp_check_sms(row->sm_seen, row->sm_count, err);
    if (!rc)
        rc = hcp_check_utilisation(hcp_linear_tflops(row), NAN, row->device, row->dtype,
                                   row->from.origin, row->sm_seen, row->sm_count, err);
    return rc ? rc : hcp_check_provenance(&row->from, err);
}

HCP_KIND(linear, struct hcp_linear_row, hcp_linear_row_init, hcp_linear_row_validate,
         "linear", 3)
