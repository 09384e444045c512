/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/audit-internal.h"

/* NVML's clock event reasons, by bit. */
#define REASONS                                                                          \
    "trim(iif(r & 4, ' software power cap', '') || iif(r & 8, ' hardware slowdown', '')" \
    " || iif(r & 0x20, ' software thermal slowdown', '')"                                \
    " || iif(r & 0x40, ' hardware thermal slowdown', '')"                                \
    " || iif(r & 0x80, ' hardware power brake', ''))"

#define CELLS " FROM acell a JOIN cell c ON c.id = a.id "
#define AT ", a.key, a.mask, a.q_len, a.kv_len, "

/* Pairs of query and key that are not masked. */
#define AREA                                                                             \
    "iif(a.mask = 'full', 1.0 * a.q_len * a.kv_len, iif(a.kv_len >= a.q_len, "           \
    "1.0 * a.q_len * (a.kv_len - a.q_len + 1) + 0.5 * a.q_len * (a.q_len - 1), "         \
    "0.5 * a.kv_len * (a.kv_len + 1)))"

/* A longer block that is faster than the next shorter one of its line, beyond the
 * intervals of both. Lines: one mask, and q, kv or both grow. */
#define LINE(part, order, where)                                                         \
    "SELECT id, time_ms, hi, q_len, kv_len, lag(id) OVER w AS id0, lag(lo) OVER w "      \
    "AS lo0, "                                                                           \
    "lag(time_ms) OVER w AS t0, lag(q_len) OVER w AS q0, lag(kv_len) OVER w AS kv0 "     \
    "FROM acell " where " WINDOW w AS (PARTITION BY key, run_id, device_id, mask" part   \
    " ORDER BY " order ")"

/* One value of the run or the cell that differs among the rows of a key. */
#define MIXED(severity, column, what)                                                    \
    "SELECT " severity ", key, '', 0, 0, count(DISTINCT v) || ' " what                   \
    "s: ' || group_concat(DISTINCT v), count(DISTINCT v), NULL, NULL FROM (SELECT "      \
    "a.key, " column " AS v" CELLS "JOIN run r ON r.id = c.run_id WHERE v IS NOT NULL "  \
    "ORDER BY a.key, c.measured_at) GROUP BY key HAVING count(DISTINCT v) > 1"

/* Cells of a limit against the SMs that its process saw; as hcp_mps_prove() has it. */
#define SMS                                                                              \
    "SELECT a.*, c.limiter, c.sm_seen AS sms, d.sm_count AS n, CAST(substr(c.limiter, "  \
    "instr(c.limiter, ':') + 1) AS INTEGER) AS level, r.origin" CELLS                    \
    "JOIN device d ON d.id = c.device_id JOIN run r ON r.id = c.run_id"

/* clang-format off: SQL reads better by its own lines */
const struct hcp_rule hcp_audit_rules[] = {
    /* ---- integrity ---- */
    {"integrity", "half-row", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 2" AT "'says ' || c.samples || ' samples and has ' || s.n, 1, NULL, a.id"
     CELLS "JOIN (SELECT cell_id, count(*) AS n FROM sample GROUP BY cell_id) s "
     "ON s.cell_id = a.id WHERE c.samples <> s.n"
     " UNION ALL SELECT 1" AT "'is called measured and lacks' || "
     "iif(c.samples IS NULL, ' samples', '') || iif(c.method IS NULL, ' method', "
     "'') || "
     "iif(c.ci_lo_ms IS NULL OR c.ci_hi_ms IS NULL, ' ci_lo_ms/ci_hi_ms', '') || "
     "iif(c.measured_at IS NULL, ' measured_at', ''), 0, NULL, a.id"
     CELLS "JOIN run r ON r.id = c.run_id WHERE r.origin = 'measured' AND "
     "(c.samples IS NULL OR c.method IS NULL OR c.ci_lo_ms IS NULL OR "
     "c.ci_hi_ms IS NULL OR c.measured_at IS NULL)"},
    {"integrity", "contradiction", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 2" AT "printf('its times are out of order: min %g, p25 %g, median %g, p75 "
     "%g, max %g, interval %g to %g ms', c.min_ms, c.p25_ms, c.time_ms, c.p75_ms, "
     "c.max_ms, c.ci_lo_ms, c.ci_hi_ms), 1, NULL, a.id" CELLS
     "WHERE c.min_ms > c.p25_ms OR c.min_ms > c.time_ms OR c.p25_ms > c.time_ms OR "
     "c.time_ms > c.p75_ms OR c.time_ms > c.max_ms OR c.p75_ms > c.max_ms OR "
     "c.ci_lo_ms > c.time_ms OR c.time_ms > c.ci_hi_ms"},
    {"integrity", "half-ring", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 2, NULL, '', 0, 0, 'ring ' || r.uid || ' has ' || "
     "ifnull(sum(k.tokens), 0) "
     "|| ' tokens on its ranks, its sequence is ' || r.seq_len, r.id, "
     "'sqlite3 FILE \"PRAGMA foreign_keys=ON; DELETE FROM ring_run WHERE uid = ''' "
     "|| r.uid || '''\"', r.id "
     "FROM ring_run r LEFT JOIN ring_rank k ON k.ring_run_id = r.id GROUP BY r.id "
     "HAVING ifnull(sum(k.tokens), 0) <> r.seq_len"},
    {"integrity", "empty-run", HCP_ABOUT_FILE, HCP_MEND_NONE,
     "SELECT 0, NULL, '', 0, 0, 'run ' || uid || ' has no rows', -id, NULL, id FROM "
     "run "
     "WHERE id NOT IN (SELECT run_id FROM cell UNION SELECT run_id FROM bandwidth "
     "UNION "
     "SELECT run_id FROM finish UNION SELECT run_id FROM link UNION SELECT run_id "
     "FROM topology UNION SELECT run_id FROM interference UNION SELECT run_id FROM "
     "drift UNION SELECT run_id FROM linear)"},
    /* ---- coverage ---- */
    {"coverage", "failed-cells", HCP_ABOUT_KEY, HCP_MEND_RETRY,
     "SELECT 1, k.id, c.mask, c.q_len, c.kv_len, 'failed: ' || ifnull(c.error, 'no "
     "reason "
     "stored'), -c.q_len * c.kv_len, NULL, c.id FROM cell c JOIN device d ON d.id = "
     "c.device_id JOIN akey k ON k.device = d.slug AND k.limiter = c.limiter AND "
     "k.provider = c.provider AND k.dtype = c.dtype AND k.phase = c.phase AND "
     "k.batch = "
     "c.batch AND k.heads = c.heads AND k.kv_heads = c.kv_heads AND k.head_dim = "
     "c.head_dim WHERE c.status = 'failed' AND NOT EXISTS (SELECT 1 FROM acell a WHERE "
     "a.key = k.id AND a.mask = c.mask AND a.q_len = c.q_len AND a.kv_len = c.kv_len)"},
    {"coverage", "no-causal", HCP_ABOUT_KEY, HCP_MEND_RESUME,
     "SELECT 1, key, '', 0, 0, 'no block with a causal mask: causal sequences have no "
     "answer', 1, ' --q-lens none --max-len ' || max(q_len), NULL FROM acell a JOIN "
     "akey k "
     "ON k.id = a.key WHERE k.phase = 'prefill' GROUP BY key HAVING sum(mask = "
     "'causal') "
     "= 0"},
    {"coverage", "no-full", HCP_ABOUT_KEY, HCP_MEND_RESUME,
     "SELECT 1, key, '', 0, 0, 'no rectangle under the full mask: rings of more "
     "than one "
     "rank have no answer', 1, ' --causal-lens none --max-len ' || max(q_len), NULL "
     "FROM "
     "acell a JOIN akey k ON k.id = a.key WHERE k.phase = 'prefill' GROUP BY key "
     "HAVING "
     "sum(mask = 'full') = 0"},
    {"coverage", "one-length", HCP_ABOUT_KEY, HCP_MEND_RESUME,
     "SELECT 1, key, '', 0, 0, mask || ': all cells have one ' || iif(nq + nkv = 2, "
     "'length', iif(nq = 1 AND phase = 'prefill', 'q_len', 'kv_len')) || '; nothing "
     "tells how time grows', 1, NULL, NULL "
     "FROM (SELECT key, mask, count(DISTINCT q_len) AS nq, count(DISTINCT kv_len) "
     "AS nkv "
     "FROM acell GROUP BY key, mask) JOIN akey k ON k.id = key WHERE nkv = 1 OR "
     "(nq = 1 AND phase = 'prefill')"},
    {"coverage", "grid-holes", HCP_ABOUT_LIMITS, HCP_MEND_RESUME,
     "WITH own AS (SELECT key, count(DISTINCT q_len) * count(DISTINCT kv_len) AS grid, "
     "count(DISTINCT (q_len << 31) + kv_len) AS n FROM acell WHERE mask = 'full' "
     "GROUP BY "
     "key HAVING n < grid AND 4 * n >= grid), "
     "family AS (SELECT o.*, k.limiter, min(k.id) OVER (PARTITION BY device, provider, "
     "dtype, phase, batch, heads, kv_heads, head_dim, limiter LIKE 'green:%') AS f FROM "
     "own o JOIN akey k ON k.id "
     "= o.key ORDER BY CAST(substr(limiter, instr(limiter, ':') + 1) AS INTEGER)) "
     "SELECT 0, f, '', 0, 0, printf('%d of the %d rectangles of its lengths are not "
     "measured under %s', sum(grid - n), sum(grid), group_concat(iif(limiter = '', "
     "'the "
     "whole device', limiter), ' ')), 1, ' --limits ' || group_concat(iif(limiter = "
     "'', "
     "'none', limiter)) || iif((SELECT max(count(DISTINCT q_len), count(DISTINCT "
     "kv_len)) "
     "FROM acell WHERE mask = 'full' AND key IN (SELECT key FROM family x WHERE x.f = "
     "family.f)) > 32, '', ' --q-lens ' || (SELECT group_concat(v) FROM (SELECT "
     "DISTINCT "
     "q_len AS v FROM acell WHERE mask = 'full' AND key IN (SELECT key FROM family "
     "x WHERE "
     "x.f = family.f) ORDER BY v)) || ' --kv-lens ' || (SELECT group_concat(v) FROM "
     "(SELECT "
     "DISTINCT kv_len AS v FROM acell WHERE mask = 'full' AND key IN (SELECT key FROM "
     "family x WHERE x.f = family.f) ORDER BY v)) || ' --causal-lens none'), NULL FROM "
     "family GROUP BY f"},
    {"coverage", "shorter", HCP_ABOUT_KEY, HCP_MEND_RESUME,
     "SELECT 0, key, '', 0, 0, printf('%s: lengths end at %d, under other limits at "
     "%d', "
     "mask, n, most), most / n, ' --max-len ' || most, NULL FROM (SELECT *, max(n) "
     "OVER "
     "(PARTITION BY device, provider, dtype, phase, batch, heads, kv_heads, head_dim, "
     "mask) AS most FROM (SELECT a.key, a.mask, max(max(a.q_len, a.kv_len)) AS n, k.* "
     "FROM acell a JOIN akey k ON k.id = a.key GROUP BY a.key, a.mask)) WHERE n < "
     "most"},
    {"coverage", "no-finish", HCP_ABOUT_KEY, HCP_MEND_RESUME,
     "SELECT 1, a.key, '', 0, 0, 'the kernel needs finish passes (' || "
     "iif(c.provider_config LIKE '%out bf16%', 'out bf16', 'out fp16') || ') and "
     "none is "
     "stored: plans leave their time out', 1, NULL, NULL" CELLS
     "WHERE (c.provider_config LIKE '%out bf16%' OR c.provider_config LIKE '%out "
     "fp16%') "
     "AND a.key NOT IN (SELECT key FROM afinish) GROUP BY a.key"
     " UNION ALL SELECT 1, k.id, '', 0, 0, 'no finish pass is stored under this limit, "
     "but under ' || group_concat(DISTINCT iif(o.limiter = '', 'the whole device', "
     "o.limiter)), 0, NULL, NULL FROM akey k JOIN akey o ON o.device = k.device AND "
     "o.provider = k.provider AND o.dtype = k.dtype AND o.phase = k.phase AND "
     "o.batch = "
     "k.batch AND o.heads = k.heads AND o.kv_heads = k.kv_heads AND o.head_dim = "
     "k.head_dim WHERE k.id NOT IN (SELECT key FROM afinish) AND o.id IN (SELECT key "
     "FROM afinish) AND k.id NOT IN (SELECT a.key" CELLS "WHERE c.provider_config LIKE "
     "'%out bf16%' OR c.provider_config LIKE '%out fp16%') GROUP BY k.id"},
    {"coverage", "link-missing", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, 'no transfer of ' || device || ' by ' || transport || "
     "' under ' || group_concat(limiter), count(*), 'hcp-profile link --db FILE "
     "--transport ' || transport || ' --limits ' || group_concat(top || '/' || "
     "limiter, ','), NULL FROM (SELECT k.device, p.transport, iif(k.limiter = '', "
     "'none', k.limiter) AS limiter, ifnull((SELECT iif(limiter_a = '', 'none', "
     "limiter_a) FROM apair WHERE channels = 0 AND one_way = 0 AND transport <> 'copy' "
     "AND device_a = k.device AND (limiter_a = '' OR (limiter_a LIKE 'green:%') = "
     "(k.limiter LIKE 'green:%')) ORDER BY CAST(substr(limiter_a, instr(limiter_a, ':') "
     "+ 1) AS INTEGER) DESC LIMIT 1), iif(k.limiter LIKE 'green:%', k.limiter, NULL)) AS "
     "top FROM (SELECT DISTINCT device, limiter FROM "
     "akey) k JOIN (SELECT device_a AS device, transport FROM apair WHERE one_way = 0 "
     "UNION SELECT device_b, transport FROM apair WHERE one_way = 0) p ON p.device = "
     "k.device AND p.transport <> 'copy' "
     "WHERE NOT EXISTS "
     "(SELECT 1 "
     "FROM apair x WHERE x.transport = p.transport AND x.channels = 0 AND x.one_way = 0 "
     "AND "
     "((x.device_a = k.device AND "
     "x.limiter_a = k.limiter) OR (x.device_b = k.device AND x.limiter_b = "
     "k.limiter))) "
     "ORDER BY k.device, CAST(substr(k.limiter, instr(k.limiter, ':') + 1) AS "
     "INTEGER)) "
     "WHERE top IS NOT NULL GROUP BY device, transport, limiter LIKE 'green:%'"},
    {"coverage", "no-link", HCP_ABOUT_FILE, HCP_MEND_GIVEN,
     "SELECT 0, NULL, '', 0, 0, iif(EXISTS (SELECT 1 FROM apair), 'transfers were "
     "measured one way only, not as in a ring', 'no transfer was measured') || ': "
     "hcp-plan has to be told with --link', 1, 'hcp-profile link --db FILE', NULL WHERE "
     "EXISTS (SELECT 1 FROM anewest) AND NOT EXISTS (SELECT 1 FROM apair WHERE one_way = "
     "0)"},
    /* ---- staleness ---- */
    {"staleness", "mixed-driver", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     MIXED("1", "r.driver", "driver")},
    {"staleness", "mixed-cuda", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     MIXED("1", "r.cuda_version", "CUDA version")},
    {"staleness", "mixed-kernel", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     MIXED("1", "c.provider_version", "kernel version")},
    {"staleness", "mixed-tool", HCP_ABOUT_KEY, HCP_MEND_NONE,
     MIXED("0", "r.tool_version", "tool version")},
    {"staleness", "mixed-origin", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     "SELECT 2, key, '', 0, 0, 'computed rows beside ' || group_concat(DISTINCT "
     "nullif(origin, 'synthetic')) || ' ones: ' || sum(origin = 'synthetic') || ' "
     "of ' || "
     "count(*), 1, NULL, NULL FROM (SELECT a.key, r.origin FROM acell a JOIN run r "
     "ON r.id "
     "= a.run_id) GROUP BY key HAVING sum(origin = 'synthetic') BETWEEN 1 AND count(*) "
     "- 1"},
    {"staleness", "mixed-device", HCP_ABOUT_FILE, HCP_MEND_NONE,
     "SELECT 2, NULL, '', 0, 0, slug || ' is the name of different devices: ' || "
     "group_concat(DISTINCT ifnull(name, '?') || ' with ' || ifnull(sm_count, '?') || "
     "' SMs') || '; keep them in databases of their own', 1, NULL, NULL FROM (SELECT * "
     "FROM device WHERE id IN (SELECT device_id FROM acell) ORDER BY name, sm_count) "
     "GROUP BY slug HAVING count(DISTINCT name) > 1 OR count(DISTINCT sm_count) > 1"},
    {"staleness", "driver-here", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     "SELECT 1, key, '', 0, 0, 'measured with driver ' || n.driver || ', this "
     "machine has ' || "
     "h.driver, 1, NULL, NULL FROM anewest n JOIN (SELECT DISTINCT device, driver FROM "
     "ahere) h ON h.device = n.device WHERE n.driver <> h.driver AND n.driver <> '' "
     "AND "
     "h.driver <> ''"},
    {"staleness", "cuda-here", HCP_ABOUT_KEY, HCP_MEND_ANEW,
     "SELECT 1, key, '', 0, 0, 'measured with CUDA ' || n.cuda_version || ', this "
     "machine "
     "has ' || h.cuda_version, 1, NULL, NULL FROM anewest n JOIN (SELECT DISTINCT "
     "device, "
     "cuda_version FROM ahere) h ON h.device = n.device WHERE n.cuda_version <> "
     "h.cuda_version AND h.cuda_version <> ''"},
    {"staleness", "kernel-here", HCP_ABOUT_KEY, HCP_MEND_RESUME,
     "SELECT 1, key, '', 0, 0, n.provider || ' ' || n.provider_version || ' was "
     "measured, "
     "this machine has ' || h.provider_version, 1, NULL, NULL FROM anewest n JOIN "
     "ahere h "
     "ON h.device = n.device AND h.provider = n.provider WHERE n.provider_version <> "
     "h.provider_version AND h.provider_version <> ''"},
    {"staleness", "tool-here", HCP_ABOUT_KEY, HCP_MEND_NONE,
     "SELECT 0, key, '', 0, 0, 'measured by version ' || n.tool_version || ', this is "
     PACKAGE_VERSION "', 1, NULL, NULL FROM anewest n WHERE n.origin <> 'recorded' AND "
     "n.tool_version <> '" PACKAGE_VERSION "'"},
    /* ---- suspicious ---- */
    {"suspicious", "utilisation", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 2, key, mask, q_len, kv_len, printf('%.4g TFLOP/s is %.2f times the "
     "peak of "
     "the SMs it ran on; is time_ms in milliseconds, is the device right?', f, f / "
     "peak), "
     "f / peak, NULL, id FROM (SELECT a.*, 4e-9 * " AREA " * c.heads * c.head_dim * "
     "c.batch / a.time_ms AS f, ifnull(1.0 * c.sm_seen / d.sm_count, 1.0) * "
     "coalesce(c.peak_tflops, hcp_peak(d.slug, c.dtype), iif(r.origin = 'synthetic', "
     "NULL, hcp_peak(NULL, NULL))) AS peak" CELLS "JOIN device d ON d.id = c.device_id "
     "JOIN run r ON r.id = c.run_id) WHERE f > peak"},
    /* Of a pair the one that is in more pairs is at odds, in a tie the larger. */
    {"suspicious", "not-monotone", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "WITH p AS (SELECT * FROM ("
     LINE(", kv_len", "q_len", "") " UNION "
     LINE(", q_len", "kv_len", "") " UNION "
     LINE("", "q_len", "WHERE q_len = kv_len")
     ") WHERE hi < lo0 AND t0 > time_ms), "
     "n AS (SELECT id, count(*) AS n FROM (SELECT id FROM p UNION ALL SELECT id0 "
     "FROM p) "
     "GROUP BY id) "
     "SELECT p.hi < 0.95 * lo0, a.key, a.mask, a.q_len, a.kv_len, iif(a.id = p.id, "
     "printf('%.5g ms is faster than the %.5g ms of the smaller %dx%d, beyond both "
     "intervals', p.time_ms, t0, q0, kv0), printf('%.5g ms is slower than the %.5g "
     "ms of "
     "the larger %dx%d, beyond both intervals', t0, p.time_ms, p.q_len, p.kv_len)), "
     "max(lo0 / p.hi), NULL, a.id FROM p JOIN n n1 ON n1.id = p.id JOIN n n0 ON "
     "n0.id = "
     "id0 JOIN acell a ON a.id = iif(n0.n > n1.n, id0, p.id) GROUP BY a.id"},
    {"suspicious", "clock-drift", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 1, key, mask, q_len, kv_len, printf('the SM clock was %g MHz, of other "
     "rows "
     "up to %g, and no reason is stored', mhz, most), most / mhz, NULL, id FROM "
     "(SELECT "
     "a.*, c.sm_clock_mhz AS mhz, max(c.sm_clock_mhz) OVER (PARTITION BY a.key) AS "
     "most, "
     "ifnull(c.throttle_reasons, 0) & ~3 AS r" CELLS "WHERE c.sm_clock_mhz > 0) "
     "WHERE mhz "
     "< 0.95 * most AND r = 0"},
    {"suspicious", "throttled", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 1, key, mask, q_len, kv_len, printf('measured under %s (0x%x)%s', " REASONS
     ", r, ifnull(' at ' || CAST(temperature_c AS INTEGER) || ' C', '')), time_ms, "
     "NULL, "
     "id FROM (SELECT a.*, c.throttle_reasons AS r, c.temperature_c" CELLS
     ") WHERE r & 0xe8"},
    {"suspicious", "power-capped", HCP_ABOUT_KEY, HCP_MEND_NONE,
     "SELECT 0" AT "printf('ran at the software power cap (0x4), a fact of large "
     "blocks%s',"
     " iif(c.sm_clock_mhz IS NULL, '', printf('; SM clock %g MHz', c.sm_clock_mhz))), "
     "-c.sm_clock_mhz, "
     "NULL, "
     "a.id" CELLS "WHERE (c.throttle_reasons & 0xec) = 4"},
    {"suspicious", "noisy", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT noise > 0.05, key, mask, q_len, kv_len, printf('its median is sure to "
     "%.1f %% only', 100 * noise), noise, NULL, id FROM (SELECT a.*, (c.ci_hi_ms - "
     "c.ci_lo_ms) / (2 * c.time_ms) AS noise" CELLS ") WHERE noise > 0.02"},
    {"suspicious", "few-samples", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT c.samples < 3" AT "c.samples || iif(c.samples = 1, ' sample', ' "
     "samples'), "
     "-c.samples, NULL, a.id" CELLS "WHERE c.samples < 10"},
    {"suspicious", "outliers", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 4 * c.outliers > c.samples" AT "c.outliers || ' of ' || c.samples || "
     "' samples are outliers (beyond 10 MAD)', 1.0 * c.outliers / c.samples, NULL, a.id"
     CELLS "WHERE c.samples >= 10 AND 10 * c.outliers > c.samples"},
    {"suspicious", "cupti", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT abs(off) > max(0.1 * cupti_ms, 0.01), key, mask, q_len, kv_len, "
     "printf('%s "
     "%+.1f %% from the kernel time of CUPTI', ifnull(method, 'time_ms'), 100 * off / "
     "cupti_ms), abs(off) / cupti_ms, NULL, id FROM (SELECT a.*, c.method, c.cupti_ms, "
     "a.time_ms - c.cupti_ms AS off" CELLS ") WHERE abs(off) > max(0.02 * cupti_ms, "
     "0.002)"},
    {"suspicious", "cupti-lost", HCP_ABOUT_KEY, HCP_MEND_NONE,
     "SELECT 0" AT "'CUPTI lost records: no cross-check', 1, NULL, a.id" CELLS
     "WHERE c.note LIKE '%CUPTI lost records%'"},
    {"suspicious", "limit-not-proven", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 2, key, mask, q_len, kv_len, printf('%s gave %d of %d SMs: the limit "
     "did not "
     "hold', limiter, sms, n), abs(1.0 * sms / n - level / 100.0), NULL, id FROM (" SMS
     ") WHERE sms IS NOT NULL AND n IS NOT NULL AND ((limiter LIKE 'mps:%' AND (sms <= "
     "level * n / 100.0 - 8 OR sms >= level * n / 100.0 + 1 OR (level = 100 AND sms <> "
     "n))) OR (limiter LIKE 'green:%' AND (sms < level OR sms >= level + 8)))"
     " UNION ALL SELECT 1, key, mask, q_len, kv_len, limiter || ' and no count of "
     "the SMs "
     "that were seen: nothing proves the limit', 0, NULL, id FROM (" SMS ") WHERE "
     "origin "
     "= 'measured' AND sms IS NULL AND (limiter LIKE 'mps:%' OR limiter LIKE "
     "'green:%')"},
    {"suspicious", "limit-not-proven", HCP_ABOUT_PAIR, HCP_MEND_LINK,
     "SELECT 2, key, '', bytes, 0, printf('%s gave %d of %d SMs: the limit did not "
     "hold', lim, sms, n), -bytes, NULL, id FROM (SELECT a.key, a.bytes, l.id, "
     "e.lim0 AS lim, "
     "e.sms0 AS sms, d.sm_count AS n, CAST(substr(e.lim0, instr(e.lim0, ':') + 1) AS "
     "INTEGER) AS level "
     "FROM alink a JOIN link l ON l.id = a.id JOIN (SELECT id AS link, limiter_a AS "
     "lim0, sm_seen_a AS sms0, device_a_id AS device FROM link UNION ALL SELECT id, "
     "limiter_b, sm_seen_b, device_b_id FROM link) e ON e.link = l.id JOIN device d ON "
     "d.id = e.device) WHERE (lim LIKE 'mps:%' AND (sms <= level * n / 100.0 - 8 OR "
     "sms >= level * n / 100.0 + 1 OR (level = 100 AND sms <> n))) OR (lim LIKE "
     "'green:%' AND (sms < level OR sms >= level + 8)) GROUP BY id"},
    {"suspicious", "foreign-limiter", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 2, a.key, a.mask, a.q_len, a.kv_len, printf('the whole device, but %d "
     "of its "
     "%d SMs were seen: a limit that is not ours, as "
     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE or "
     "a daemon left over gives it', sms, n), 1.0 * n / sms, NULL, a.id FROM (" SMS
     ") a JOIN device d ON d.id = a.device_id WHERE limiter = '' AND sms < n AND "
     "ifnull(d.uuid, '') NOT LIKE 'CPU-%'"
     " UNION ALL SELECT 1" AT "'its note speaks of an MPS daemon: ' || c.note, 0, "
     "NULL, "
     "a.id" CELLS "WHERE c.note LIKE '%MPS daemon%' OR c.note LIKE "
     "'%default active thread percentage%'"},
    {"suspicious", "finish-not-monotone", HCP_ABOUT_KEY, HCP_MEND_REDO,
     "SELECT 1, key, kind, q_len, 0, printf('%.5g ms is faster than the %.5g ms of %d "
     "rows, beyond the quartiles of both', time_ms, t0, q0), lo0 / hi, NULL, id FROM "
     "(SELECT *, lag(lo) OVER w AS lo0, lag(time_ms) OVER w AS t0, lag(q_len) OVER "
     "w AS "
     "q0 FROM afinish WINDOW w AS (PARTITION BY key, run_id, device_id, kind ORDER BY "
     "q_len)) WHERE hi < lo0"},
    {"suspicious", "link-not-monotone", HCP_ABOUT_PAIR, HCP_MEND_LINK,
     "SELECT 1, key, '', bytes, 0, printf('%.5g ms is faster than the %.5g ms of %d "
     "bytes, beyond the quartiles of both', time_ms, t0, b0), lo0 / hi, NULL, id FROM "
     "(SELECT *, lag(lo) OVER w AS lo0, lag(time_ms) OVER w AS t0, lag(bytes) OVER "
     "w AS b0, bytes / time_ms AS g, lag(bytes / time_ms) OVER w AS g0, lag(bytes / "
     "time_ms, 2) OVER w AS g00, lead(bytes / time_ms) OVER w AS g1 FROM alink WINDOW w "
     "AS (PARTITION BY key, run_id, device_a_id ORDER BY bytes)) WHERE hi < 0.95 * lo0 "
     "AND NOT "
     /* A step, where more channels are taken: fast as before up to it, fast as after it
        beyond. */
     "(ifnull(g0 >= 0.95 * g00, 0) AND ifnull(g1 >= 0.95 * g, 0))"},
};
/* clang-format on */
const size_t hcp_n_audit_rules = sizeof hcp_audit_rules / sizeof *hcp_audit_rules;
