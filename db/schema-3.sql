-- SPDX-License-Identifier: Apache-2.0
-- From version 2 to 3: how devices are connected (topology), a kernel beside a transfer
-- (interference), how far a sweep's first cell moved (drift), GEMMs of linear layers
-- (linear); copies by copy engines and NCCL's channels among the links. Units and
-- unknowns as in schema.sql.

-- Median of the launches of the first 0.1 s after idle clocks; time_ms is sustained.
ALTER TABLE cell ADD COLUMN boosted_ms REAL CHECK (boosted_ms > 0);
ALTER TABLE finish ADD COLUMN provider_version TEXT;

-- Made anew: a CHECK cannot be altered. transport 'copy': cudaMemcpyPeerAsync, by copy
-- engines. channels: of NCCL, as set; NULL: its own choice.
CREATE TABLE link_new (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_a_id INTEGER NOT NULL REFERENCES device (id),
    device_b_id INTEGER NOT NULL REFERENCES device (id),
    limiter_a TEXT NOT NULL,
    limiter_b TEXT NOT NULL,
    host_b TEXT,
    same_host INTEGER CHECK (same_host IN (0, 1)),
    transport TEXT NOT NULL CHECK (transport IN ('nccl', 'mpi', 'copy')),
    transport_version TEXT,
    channels INTEGER CHECK (channels > 0),
    bytes INTEGER NOT NULL CHECK (bytes > 0),
    time_ms REAL NOT NULL CHECK (time_ms > 0),
    p25_ms REAL CHECK (p25_ms > 0),
    p75_ms REAL CHECK (p75_ms > 0),
    samples INTEGER CHECK (samples >= 0),
    sm_seen_a INTEGER CHECK (sm_seen_a > 0),
    sm_seen_b INTEGER CHECK (sm_seen_b > 0),
    measured_at TEXT
) STRICT;
INSERT INTO link_new (id, run_id, device_a_id, device_b_id, limiter_a, limiter_b, host_b,
                      same_host, transport, transport_version, bytes, time_ms, p25_ms,
                      p75_ms, samples, sm_seen_a, sm_seen_b, measured_at)
    SELECT id, run_id, device_a_id, device_b_id, limiter_a, limiter_b, host_b,
           same_host, transport, transport_version, bytes, time_ms, p25_ms,
           p75_ms, samples, sm_seen_a, sm_seen_b, measured_at FROM link;
DROP TABLE link;
ALTER TABLE link_new RENAME TO link;
CREATE UNIQUE INDEX link_identity
    ON link (run_id, device_a_id, limiter_a, device_b_id, limiter_b, transport, bytes,
             ifnull(channels, 0), ifnull(host_b, ''));

-- The way from one device of a run to another, one row a pair; the run's host is that of
-- a. links: NVLinks; detail: switches, bridges and NUMA nodes on the way, as text.
CREATE TABLE topology (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_a_id INTEGER NOT NULL REFERENCES device (id),
    device_b_id INTEGER NOT NULL REFERENCES device (id),
    host_b TEXT,
    connection TEXT NOT NULL CHECK (connection IN ('nvlink', 'pcie', 'host', 'network')),
    links INTEGER CHECK (links >= 0),
    detail TEXT,
    measured_at TEXT
) STRICT;
CREATE UNIQUE INDEX topology_identity
    ON topology (run_id, device_a_id, device_b_id, ifnull(host_b, ''));

-- An attention block of a on its own and beside a transfer with b, which sends as many
-- bytes back; the transfer on its own and beside the block. Times of one block and of
-- one transfer; wait_ms: what the step of both took beyond its computing, and not for
-- data that was still on its way. The run's host is that of a.
CREATE TABLE interference (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_a_id INTEGER NOT NULL REFERENCES device (id),
    device_b_id INTEGER NOT NULL REFERENCES device (id),
    limiter_a TEXT NOT NULL,
    limiter_b TEXT NOT NULL,
    host_b TEXT,
    provider TEXT NOT NULL CHECK (provider <> ''),
    provider_version TEXT,
    dtype TEXT NOT NULL CHECK (dtype IN ('bf16', 'fp16', 'fp32')),
    phase TEXT NOT NULL CHECK (phase IN ('prefill', 'decode')),
    batch INTEGER NOT NULL CHECK (batch > 0),
    heads INTEGER NOT NULL CHECK (heads > 0),
    kv_heads INTEGER NOT NULL CHECK (kv_heads > 0 AND heads % kv_heads = 0),
    head_dim INTEGER NOT NULL CHECK (head_dim > 0),
    mask TEXT NOT NULL CHECK (mask IN ('full', 'causal')),
    q_len INTEGER NOT NULL CHECK (q_len BETWEEN 1 AND 1073741824),
    kv_len INTEGER NOT NULL CHECK (kv_len BETWEEN 1 AND 1073741824),
    transport TEXT NOT NULL CHECK (transport IN ('nccl', 'mpi', 'copy')),
    transport_version TEXT,
    channels INTEGER CHECK (channels > 0),
    bytes INTEGER NOT NULL CHECK (bytes > 0),
    alone_ms REAL NOT NULL CHECK (alone_ms > 0),
    beside_ms REAL NOT NULL CHECK (beside_ms > 0),
    transfer_alone_ms REAL CHECK (transfer_alone_ms > 0),
    transfer_beside_ms REAL CHECK (transfer_beside_ms > 0),
    wait_ms REAL CHECK (wait_ms >= 0),
    samples INTEGER CHECK (samples >= 0),
    sm_seen INTEGER CHECK (sm_seen > 0),
    measured_at TEXT
) STRICT;
CREATE UNIQUE INDEX interference_identity
    ON interference (run_id, device_a_id, limiter_a, device_b_id, limiter_b, provider,
                     dtype, phase, batch, heads, kv_heads, head_dim, mask, q_len, kv_len,
                     transport, bytes, ifnull(channels, 0), ifnull(host_b, ''));

-- A sweep's first cell, measured again at its end, `seconds` later.
CREATE TABLE drift (
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
    first_ms REAL NOT NULL CHECK (first_ms > 0),
    last_ms REAL NOT NULL CHECK (last_ms > 0),
    first_sm_clock_mhz REAL CHECK (first_sm_clock_mhz > 0),
    last_sm_clock_mhz REAL CHECK (last_sm_clock_mhz > 0),
    seconds REAL CHECK (seconds >= 0),
    measured_at TEXT
) STRICT;
-- A sweep that was continued has a row a part, told apart by its time.
CREATE UNIQUE INDEX drift_identity
    ON drift (run_id, device_id, limiter, provider, dtype, phase, batch, heads, kv_heads,
              head_dim, mask, q_len, kv_len, ifnull(measured_at, ''));

-- One GEMM [tokens, n_in] x [n_in, n_out]; a layer is a sum of such rows.
CREATE TABLE linear (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_id INTEGER NOT NULL REFERENCES device (id),
    limiter TEXT NOT NULL,
    library TEXT NOT NULL CHECK (library <> ''),
    library_version TEXT,
    dtype TEXT NOT NULL CHECK (dtype IN ('bf16', 'fp16', 'fp32')),
    tokens INTEGER NOT NULL CHECK (tokens BETWEEN 1 AND 1073741824),
    n_in INTEGER NOT NULL CHECK (n_in BETWEEN 1 AND 1073741824),
    n_out INTEGER NOT NULL CHECK (n_out BETWEEN 1 AND 1073741824),
    time_ms REAL NOT NULL CHECK (time_ms > 0),
    p25_ms REAL CHECK (p25_ms > 0),
    p75_ms REAL CHECK (p75_ms > 0),
    samples INTEGER CHECK (samples >= 0),
    sm_clock_mhz REAL CHECK (sm_clock_mhz > 0),
    sm_seen INTEGER CHECK (sm_seen > 0),
    measured_at TEXT
) STRICT;
CREATE UNIQUE INDEX linear_identity
    ON linear (run_id, device_id, limiter, library, dtype, tokens, n_in, n_out);
