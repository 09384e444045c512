/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules about rows that are no cells: topology, interference, drift, linear layers.
 */
#include "config.h"
#include "db/audit-internal.h"

/* Limits in the order of their numbers, as options of a command have them. */
#define LIMIT(name) "iif(" name " = '', 'none', " name ")"
#define NUMBER(name) "CAST(substr(" name ", instr(" name ", ':') + 1) AS INTEGER)"

/* The SMs that a process saw under a limit are not those of the limit: as for cells. */
#define LIMIT_FAILED                                                                     \
    "sms IS NOT NULL AND n IS NOT NULL AND ((lim LIKE 'mps:%' AND (sms <= level * n / "  \
    "100.0 - 8 OR sms >= level * n / 100.0 + 1 OR (level = 100 AND sms <> n))) OR (lim " \
    "LIKE 'green:%' AND (sms < level OR sms >= level + 8)))"
#define LIMIT_TEXT "printf('%s gave %d of %d SMs: the limit did not hold', lim, sms, n)"

/* clang-format off: SQL reads better by its own lines */
const struct hcp_rule hcp_audit_row_rules[] = {
    {"integrity", "contradiction", HCP_ABOUT_GEMMS, HCP_MEND_LINEAR,
     "SELECT 2, key, '', tokens, 0, printf('%dx%d: its times are out of order: p25 %g, "
     "median %g, p75 %g ms', n_in, n_out, p25_ms, time_ms, p75_ms), 1, NULL, id "
     "FROM alinear WHERE p25_ms > time_ms OR time_ms > p75_ms"},
    /* ---- coverage ---- */
    {"coverage", "no-topology", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, 'transfers, and no row says how their devices are "
     "connected', 1, 'hcp-profile link --db FILE', NULL "
     "WHERE EXISTS (SELECT 1 FROM link l JOIN run r ON r.id = l.run_id "
     "WHERE r.origin = 'measured') AND NOT EXISTS (SELECT 1 FROM topology)"},
    {"coverage", "no-interference", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, 'no block was measured beside a transfer: what one costs "
     "the other is not known', 1, 'hcp-profile link --beside --db FILE', NULL "
     "WHERE EXISTS (SELECT 1 FROM anewest) AND EXISTS (SELECT 1 FROM apair) "
     "AND NOT EXISTS (SELECT 1 FROM abeside)"},
    {"coverage", "interference-missing", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, 'no block of ' || provider || ' on ' || device || ' "
     "beside "
     "a transfer by ' || transport || ' under ' || group_concat(lim), count(*), "
     "'hcp-profile link --beside --db FILE --transport ' || transport || ' --provider ' "
     "|| "
     "provider || ' --limits ' || group_concat(lim || '/' || top), NULL "
     "FROM (SELECT k.device, k.provider, b.transport, " LIMIT("k.limiter") " AS lim, "
     "(SELECT " LIMIT("x.peer_limiter") " FROM abeside x WHERE x.device = k.device AND "
     "x.provider = k.provider AND x.transport = b.transport ORDER BY x.peer_limiter = '' "
     "DESC, " NUMBER("x.peer_limiter") " DESC LIMIT 1) AS top "
     "FROM (SELECT DISTINCT device, provider, limiter FROM akey WHERE phase = 'prefill' "
     "AND id IN (SELECT key FROM acell)) k "
     "JOIN (SELECT DISTINCT device, provider, transport FROM abeside) b "
     "ON b.device = k.device AND b.provider = k.provider "
     "WHERE NOT EXISTS (SELECT 1 FROM abeside x WHERE x.device = k.device AND "
     "x.provider = "
     "k.provider AND x.transport = b.transport AND x.limiter = k.limiter) "
     "ORDER BY k.device, k.provider, b.transport, " NUMBER("k.limiter") ") "
     "GROUP BY device, provider, transport"},
    {"coverage", "no-linear", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, 'no linear layer was measured: whole layers have no "
     "answer', 1, 'hcp-profile run --linear --model NAME --db FILE', NULL "
     "WHERE EXISTS (SELECT 1 FROM anewest) AND NOT EXISTS (SELECT 1 FROM agemm)"},
    {"coverage", "linear-missing", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, 'no linear layer of ' || device || ' in ' || dtype || "
     "' under ' || group_concat(lim), count(*), "
     "'hcp-profile run --linear --model NAME --db FILE' || "
     "iif(library = 'cublas', '', ' --device cpu') || "
     "iif(dtype = 'bf16', '', ' --dtype ' || dtype) || ' --limits ' || "
     "group_concat(lim), NULL "
     "FROM (SELECT k.device, k.dtype, g.library, " LIMIT("k.limiter") " AS lim "
     "FROM (SELECT DISTINCT device, dtype, limiter FROM akey WHERE id IN "
     "(SELECT key FROM acell)) k "
     "JOIN (SELECT device, dtype, min(provider) AS library FROM agemm "
     "GROUP BY device, dtype) g ON g.device = k.device AND g.dtype = k.dtype "
     "WHERE NOT EXISTS (SELECT 1 FROM agemm x WHERE x.device = k.device AND "
     "x.dtype = k.dtype AND x.limiter = k.limiter) "
     "ORDER BY k.device, k.dtype, " NUMBER("k.limiter") ") GROUP BY device, dtype"},
    /* ---- suspicious ---- */
    {"suspicious", "drift", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     "SELECT iif(abs(moved) > 0.1, 2, 1), key, mask, q_len, kv_len, "
     "printf('the first cell of run %s took %.5g ms, %sat its end %.5g ms: %+.1f %%, "
     "where "
     "%.1f %% is noise%s', uid, first_ms, iif(seconds IS NULL, '', printf('%.0f s later "
     "', seconds)), "
     "last_ms, 100 * moved, 100 * noise, iif(first_sm_clock_mhz IS NULL OR "
     "last_sm_clock_mhz IS NULL, '', printf('; SM clock %g, then %g MHz', "
     "first_sm_clock_mhz, last_sm_clock_mhz))), abs(moved), NULL, id "
     "FROM (SELECT a.id, a.key, a.mask, a.q_len, a.kv_len, a.first_ms, a.last_ms, "
     "a.seconds, "
     "a.first_sm_clock_mhz, a.last_sm_clock_mhz, ifnull(a.noise, 0.01) AS noise, r.uid, "
     "a.last_ms / a.first_ms - 1 AS moved FROM adrift a JOIN run r ON r.id = a.run_id) "
     "WHERE abs(moved) > noise"},
    {"suspicious", "boosted-slower", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 0, a.key, a.mask, a.q_len, a.kv_len, printf('%.5g ms in the first 0.1 s "
     "after "
     "idle clocks, %.5g ms sustained: it began cold, or beside something else', "
     "c.boosted_ms, a.time_ms), c.boosted_ms / a.hi, NULL, a.id "
     "FROM acell a JOIN cell c ON c.id = a.id WHERE c.boosted_ms > 1.05 * a.hi"},
    {"suspicious", "faster-beside", HCP_ABOUT_BESIDE, HCP_MEND_BESIDE,
     "SELECT 1, key, mask, q_len, kv_len, iif(beside_ms < 0.95 * alone_ms, "
     "printf('the block took %.5g ms alone and %.5g ms beside a transfer', alone_ms, "
     "beside_ms), printf('the transfer took %.5g ms alone and %.5g ms beside the block', "
     "transfer_alone_ms, transfer_beside_ms)), max(alone_ms / beside_ms, "
     "ifnull(transfer_alone_ms / transfer_beside_ms, 0)), NULL, id "
     "FROM aside WHERE beside_ms < 0.95 * alone_ms OR transfer_beside_ms < 0.95 * "
     "transfer_alone_ms"},
    {"suspicious", "alone-differs", HCP_ABOUT_BESIDE, HCP_MEND_NONE,
     "SELECT abs(off) > 0.25, key, mask, q_len, kv_len, printf('alone_ms is %.5g ms, "
     "the cell "
     "of the same block %.5g ms: clocks, caches or the limit were others', alone_ms, t), "
     "abs(off), NULL, id "
     "FROM (SELECT s.*, a.time_ms AS t, s.alone_ms / a.time_ms - 1 AS off, a.lo, a.hi "
     "FROM aside s JOIN abeside b ON b.id = s.key "
     "JOIN akey k ON k.device = b.device AND k.limiter = b.limiter AND k.provider = "
     "b.provider AND k.dtype = b.dtype AND k.phase = b.phase AND k.batch = b.batch AND "
     "k.heads = b.heads AND k.kv_heads = b.kv_heads AND k.head_dim = b.head_dim "
     "JOIN acell a ON a.key = k.id AND a.mask = s.mask AND a.q_len = s.q_len AND "
     "a.kv_len = "
     "s.kv_len GROUP BY s.id) "
     "WHERE abs(off) > 0.1 AND (alone_ms < lo OR alone_ms > hi)"},
    {"suspicious", "limit-not-proven", HCP_ABOUT_BESIDE, HCP_MEND_BESIDE,
     "SELECT 2, key, mask, q_len, kv_len, " LIMIT_TEXT ", 1, NULL, id "
     "FROM (SELECT s.*, s.limiter_a AS lim, s.sm_seen AS sms, d.sm_count AS n, "
     NUMBER("s.limiter_a") " AS level FROM aside s JOIN device d ON d.id = "
     "s.device_a_id) "
     "WHERE " LIMIT_FAILED},
    {"suspicious", "utilisation", HCP_ABOUT_GEMMS, HCP_MEND_LINEAR,
     "SELECT 2, key, '', tokens, 0, printf('%dx%d: %.4g TFLOP/s is %.2f times the peak "
     "of the "
     "SMs it ran on; is time_ms in milliseconds, is the device right?', n_in, n_out, f, "
     "f / "
     "peak), f / peak, NULL, id "
     "FROM (SELECT a.*, 2e-9 * a.tokens * a.n_in * a.n_out / a.time_ms AS f, "
     "ifnull(1.0 * a.sm_seen / a.sm_count, 1.0) * coalesce(hcp_peak(a.device, a.dtype), "
     "iif(r.origin = 'synthetic', NULL, hcp_peak(NULL, NULL))) AS peak "
     "FROM alinear a JOIN run r ON r.id = a.run_id) WHERE f > peak"},
    {"suspicious", "linear-not-monotone", HCP_ABOUT_GEMMS, HCP_MEND_LINEAR,
     "SELECT hi < 0.8 * lo0, key, '', tokens, 0, printf('%dx%d: %.5g ms is faster than "
     "the "
     "%.5g ms of %d tokens, beyond the quartiles of both', n_in, n_out, time_ms, t0, "
     "n0), "
     "lo0 / hi, NULL, id "
     "FROM (SELECT *, lag(lo) OVER w AS lo0, lag(time_ms) OVER w AS t0, lag(tokens) "
     "OVER w "
     "AS n0 FROM alinear WINDOW w AS (PARTITION BY key, run_id, device_id, n_in, n_out "
     "ORDER BY tokens)) WHERE hi < 0.95 * lo0"},
    {"suspicious", "limit-not-proven", HCP_ABOUT_GEMMS, HCP_MEND_LINEAR,
     "SELECT 2, key, '', tokens, 0, " LIMIT_TEXT ", 1, NULL, id "
     "FROM (SELECT *, limiter AS lim, sm_seen AS sms, sm_count AS n, " NUMBER("limiter")
     " AS level FROM alinear) WHERE " LIMIT_FAILED},
};
/* clang-format on */
const size_t hcp_n_audit_row_rules =
    sizeof hcp_audit_row_rules / sizeof *hcp_audit_row_rules;
