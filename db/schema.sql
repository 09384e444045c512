-- SPDX-License-Identifier: Apache-2.0
-- Version 1 of the profile database; see hcp-db(5). Later versions are further
-- steps (db/db-open.c), never an edit of this file. NULL = not known. Times in ms,
-- lengths in tokens, GB = 1e9 bytes.

-- One device as it was seen: two machines of one kind share the slug.
CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    slug TEXT NOT NULL CHECK (slug <> ''),
    uuid TEXT,
    name TEXT,
    sm_count INTEGER CHECK (sm_count > 0)
) STRICT;
CREATE UNIQUE INDEX device_identity
    ON device (slug, ifnull(uuid, ''), ifnull(name, ''), ifnull(sm_count, 0));

-- One sweep on one machine; uid is what merging goes by.
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE CHECK (uid <> ''),
    host TEXT,
    origin TEXT NOT NULL CHECK (origin IN ('measured', 'recorded', 'synthetic')),
    driver TEXT,
    cuda_version TEXT,
    tool_version TEXT,
    started_at TEXT,
    note TEXT
) STRICT;

-- One (q_len, kv_len) block under one limit with one kernel. limiter '' = whole device.
CREATE TABLE cell (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_id INTEGER NOT NULL REFERENCES device (id),
    limiter TEXT NOT NULL,
    provider TEXT NOT NULL CHECK (provider <> ''),
    dtype TEXT NOT NULL CHECK (dtype IN ('bf16', 'fp16', 'fp32')),
    phase TEXT NOT NULL CHECK (phase IN ('prefill', 'decode')),
    batch INTEGER NOT NULL CHECK (batch > 0),
    heads INTEGER NOT NULL CHECK (heads > 0),
    kv_heads INTEGER NOT NULL CHECK (kv_heads > 0 AND heads % kv_heads = 0),
    head_dim INTEGER NOT NULL CHECK (head_dim > 0),
    mask TEXT NOT NULL CHECK (mask IN ('full', 'causal')),
    q_len INTEGER NOT NULL CHECK (q_len BETWEEN 1 AND 1073741824),
    kv_len INTEGER NOT NULL CHECK (kv_len BETWEEN 1 AND 1073741824),
    status TEXT NOT NULL CHECK (status IN ('ok', 'failed')),
    error TEXT,
    time_ms REAL CHECK (time_ms > 0),
    min_ms REAL CHECK (min_ms > 0),
    p25_ms REAL CHECK (p25_ms > 0),
    p75_ms REAL CHECK (p75_ms > 0),
    max_ms REAL CHECK (max_ms > 0),
    ci_lo_ms REAL CHECK (ci_lo_ms > 0),
    ci_hi_ms REAL CHECK (ci_hi_ms > 0),
    samples INTEGER CHECK (samples >= 0),
    outliers INTEGER CHECK (outliers >= 0),
    cupti_ms REAL CHECK (cupti_ms > 0),
    method TEXT,
    cache TEXT,
    stop_reason TEXT,
    sm_clock_mhz REAL,
    mem_clock_mhz REAL,
    power_w REAL,
    energy_j REAL,
    temperature_c REAL,
    throttle_reasons INTEGER,
    sm_seen INTEGER CHECK (sm_seen > 0),
    peak_tflops REAL CHECK (peak_tflops > 0),
    provider_version TEXT,
    provider_config TEXT,
    check_result TEXT,
    tile_q INTEGER CHECK (tile_q > 0),
    tile_kv INTEGER CHECK (tile_kv > 0),
    measured_at TEXT,
    note TEXT,
    CHECK (status = 'failed' OR time_ms IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX cell_identity
    ON cell (run_id, device_id, limiter, provider, dtype, phase, batch, heads, kv_heads,
             head_dim, mask, q_len, kv_len);

-- Raw samples of a cell in order of measurement.
CREATE TABLE sample (
    cell_id INTEGER NOT NULL REFERENCES cell (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL CHECK (seq >= 0),
    time_ms REAL NOT NULL CHECK (time_ms > 0),
    PRIMARY KEY (cell_id, seq)
) STRICT, WITHOUT ROWID;

-- Memory bandwidth under a limit; kind 'copy': device to device, read plus write.
CREATE TABLE bandwidth (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_id INTEGER NOT NULL REFERENCES device (id),
    limiter TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('copy')),
    bytes INTEGER CHECK (bytes > 0),
    gb_per_s REAL NOT NULL CHECK (gb_per_s > 0),
    sm_seen INTEGER CHECK (sm_seen > 0),
    measured_at TEXT
) STRICT;
CREATE UNIQUE INDEX bandwidth_identity
    ON bandwidth (run_id, device_id, limiter, kind, ifnull(bytes, 0));

-- A fitted model of one key, valid while samples_hash is what its cells hash to.
CREATE TABLE model (
    id INTEGER PRIMARY KEY,
    device TEXT NOT NULL CHECK (device <> ''),
    limiter TEXT NOT NULL,
    provider TEXT NOT NULL CHECK (provider <> ''),
    dtype TEXT NOT NULL,
    phase TEXT NOT NULL,
    batch INTEGER NOT NULL,
    heads INTEGER NOT NULL,
    kv_heads INTEGER NOT NULL,
    head_dim INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind <> ''),
    origin TEXT,
    samples_hash INTEGER NOT NULL,
    format INTEGER NOT NULL,
    holdout_median REAL,
    holdout_p90 REAL,
    holdout_cells INTEGER,
    fitted_at TEXT,
    tool_version TEXT,
    holdout_note TEXT,
    UNIQUE (device, limiter, provider, dtype, phase, batch, heads, kv_heads, head_dim, kind)
) STRICT;

-- Arrays of doubles, IEEE 754 little-endian: REAL would lose NaN and the sign of zero.
CREATE TABLE model_array (
    model_id INTEGER NOT NULL REFERENCES model (id) ON DELETE CASCADE,
    name TEXT NOT NULL CHECK (name <> ''),
    f64_le BLOB NOT NULL CHECK (length(f64_le) % 8 = 0),
    PRIMARY KEY (model_id, name)
) STRICT, WITHOUT ROWID;
