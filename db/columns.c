/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/db-internal.h"
#include "db/parse.h"

#define ROW struct hcp_cell
#include "db/columns.h"

/* In the order of an exported file. Cell columns are stored under their own name,
 * except limit, a word of SQL. */
const struct hcp_column hcp_columns[] = {
    TEXT("device", key.device, "d.slug"),
    WORD("limit", key.limit, "c.limiter"),
    TEXT("provider", key.provider, "c.provider"),
    TEXT("dtype", key.dtype, "c.dtype"),
    TEXT("phase", key.phase, "c.phase"),
    INT("batch", key.batch, "c.batch", -1, 1),
    INT("heads", key.heads, "c.heads", -1, 1),
    INT("kv_heads", key.kv_heads, "c.kv_heads", -1, 1),
    INT("head_dim", key.head_dim, "c.head_dim", -1, 1),
    TEXT("mask", mask, "c.mask"),
    LONG("q_len", q_len, "c.q_len", -1, 1, HCP_LEN_LIMIT),
    LONG("kv_len", kv_len, "c.kv_len", -1, 1, HCP_LEN_LIMIT),
    REAL("time_ms", time_ms, "c.time_ms"),
    REAL("min_ms", min_ms, "c.min_ms"),
    REAL("p25_ms", p25_ms, "c.p25_ms"),
    REAL("p75_ms", p75_ms, "c.p75_ms"),
    REAL("max_ms", max_ms, "c.max_ms"),
    REAL("ci_lo_ms", ci_lo_ms, "c.ci_lo_ms"),
    REAL("ci_hi_ms", ci_hi_ms, "c.ci_hi_ms"),
    INT("samples", samples, "c.samples", -1, 0),
    INT("outliers", outliers, "c.outliers", -1, 0),
    REAL("cupti_ms", cupti_ms, "c.cupti_ms"),
    TEXT("status", status, "c.status"),
    TEXT("error", error, "c.error"),
    TEXT("method", method, "c.method"),
    TEXT("cache", cache, "c.cache"),
    TEXT("stop_reason", stop_reason, "c.stop_reason"),
    REAL("sm_clock_mhz", sm_clock_mhz, "c.sm_clock_mhz"),
    REAL("mem_clock_mhz", mem_clock_mhz, "c.mem_clock_mhz"),
    REAL("power_w", power_w, "c.power_w"),
    REAL("energy_j", energy_j, "c.energy_j"),
    REAL("temperature_c", temperature_c, "c.temperature_c"),
    LONG("throttle_reasons", throttle_reasons, "c.throttle_reasons", -1, 0, INT64_MAX),
    INT("sm_seen", sm_seen, "c.sm_seen", -1, 1),
    INT("sm_count", sm_count, "d.sm_count", -1, 1),
    REAL("peak_tflops", peak_tflops, "c.peak_tflops"),
    TEXT("provider_version", provider_version, "c.provider_version"),
    TEXT("provider_config", provider_config, "c.provider_config"),
    TEXT("check_result", check_result, "c.check_result"),
    LONG("tile_q", tile_q, "c.tile_q", 0, 1, HCP_TILE_LIMIT),
    LONG("tile_kv", tile_kv, "c.tile_kv", 0, 1, HCP_TILE_LIMIT),
    TEXT("origin", origin, "r.origin"),
    TEXT("run_uid", run_uid, "r.uid"),
    TEXT("host", host, "r.host"),
    TEXT("device_uuid", device_uuid, "d.uuid"),
    TEXT("device_name", device_name, "d.name"),
    TEXT("driver", driver, "r.driver"),
    TEXT("cuda_version", cuda_version, "r.cuda_version"),
    TEXT("tool_version", tool_version, "r.tool_version"),
    TEXT("measured_at", measured_at, "c.measured_at"),
    TEXT("note", note, "c.note"),
};
const size_t hcp_n_columns = sizeof hcp_columns / sizeof *hcp_columns;
