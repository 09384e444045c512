-- SPDX-License-Identifier: Apache-2.0
-- From version 1 to 2: what an executor costs beside its blocks (finish), what a
-- transfer costs (link), and rings that ran (ring_run, ring_rank). Units and unknowns
-- as in schema.sql.

-- The pass after a block of a kernel that cannot accumulate: it stores or merges the
-- partial result of q_len rows, all heads, all batches.
CREATE TABLE finish (
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
    kind TEXT NOT NULL CHECK (kind IN ('store', 'merge')),
    q_len INTEGER NOT NULL CHECK (q_len BETWEEN 1 AND 1073741824),
    time_ms REAL NOT NULL CHECK (time_ms > 0),
    p25_ms REAL CHECK (p25_ms > 0),
    p75_ms REAL CHECK (p75_ms > 0),
    samples INTEGER CHECK (samples >= 0),
    sm_seen INTEGER CHECK (sm_seen > 0),
    measured_at TEXT
) STRICT;
CREATE UNIQUE INDEX finish_identity
    ON finish (run_id, device_id, limiter, provider, dtype, phase, batch, heads, kv_heads,
               head_dim, kind, q_len);

-- Two neighbours that send bytes to each other at the same time; time until both have
-- both. The run's host is that of a.
CREATE TABLE link (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    device_a_id INTEGER NOT NULL REFERENCES device (id),
    device_b_id INTEGER NOT NULL REFERENCES device (id),
    limiter_a TEXT NOT NULL,
    limiter_b TEXT NOT NULL,
    host_b TEXT,
    same_host INTEGER CHECK (same_host IN (0, 1)),
    transport TEXT NOT NULL CHECK (transport IN ('nccl', 'mpi')),
    transport_version TEXT,
    bytes INTEGER NOT NULL CHECK (bytes > 0),
    time_ms REAL NOT NULL CHECK (time_ms > 0),
    p25_ms REAL CHECK (p25_ms > 0),
    p75_ms REAL CHECK (p75_ms > 0),
    samples INTEGER CHECK (samples >= 0),
    sm_seen_a INTEGER CHECK (sm_seen_a > 0),
    sm_seen_b INTEGER CHECK (sm_seen_b > 0),
    measured_at TEXT
) STRICT;
CREATE UNIQUE INDEX link_identity
    ON link (run_id, device_a_id, limiter_a, device_b_id, limiter_b, transport, bytes);

-- One ring of the executor: what the plan said and what was measured (medians over
-- repeats). It carries its own provenance; host is that of rank 0.
CREATE TABLE ring_run (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE CHECK (uid <> ''),
    fingerprint TEXT,
    strategy TEXT NOT NULL CHECK (strategy <> ''),
    mask TEXT NOT NULL CHECK (mask IN ('full', 'causal')),
    layout TEXT NOT NULL CHECK (layout IN ('contiguous', 'zigzag', 'striped')),
    transport TEXT CHECK (transport IN ('nccl', 'mpi')),
    provider TEXT NOT NULL CHECK (provider <> ''),
    provider_version TEXT,
    dtype TEXT NOT NULL CHECK (dtype IN ('bf16', 'fp16', 'fp32')),
    batch INTEGER NOT NULL CHECK (batch > 0),
    heads INTEGER NOT NULL CHECK (heads > 0),
    kv_heads INTEGER NOT NULL CHECK (kv_heads > 0 AND heads % kv_heads = 0),
    head_dim INTEGER NOT NULL CHECK (head_dim > 0),
    seq_len INTEGER NOT NULL CHECK (seq_len BETWEEN 1 AND 1073741824),
    tile INTEGER CHECK (tile > 0),
    stripes INTEGER CHECK (stripes >= 0),
    buffers INTEGER CHECK (buffers >= 0),
    sub_blocks INTEGER CHECK (sub_blocks > 0),
    barrier INTEGER CHECK (barrier IN (0, 1)),
    repeats INTEGER CHECK (repeats > 0),
    makespan_ms REAL NOT NULL CHECK (makespan_ms > 0),
    ci_lo_ms REAL CHECK (ci_lo_ms > 0),
    ci_hi_ms REAL CHECK (ci_hi_ms > 0),
    min_ms REAL CHECK (min_ms > 0),
    predicted_ms REAL CHECK (predicted_ms > 0),
    predicted_lo_ms REAL CHECK (predicted_lo_ms > 0),
    predicted_hi_ms REAL CHECK (predicted_hi_ms > 0),
    bound_ms REAL CHECK (bound_ms > 0),
    efficiency REAL CHECK (efficiency > 0),
    max_error REAL CHECK (max_error >= 0),
    note TEXT,
    origin TEXT NOT NULL CHECK (origin IN ('measured', 'recorded', 'synthetic')),
    host TEXT,
    driver TEXT,
    cuda_version TEXT,
    tool_version TEXT,
    measured_at TEXT
) STRICT;

-- Its ranks in the plan's order, from 0; tokens 0: a rank that sat out.
CREATE TABLE ring_rank (
    ring_run_id INTEGER NOT NULL REFERENCES ring_run (id) ON DELETE CASCADE,
    rank INTEGER NOT NULL CHECK (rank >= 0),
    device_id INTEGER NOT NULL REFERENCES device (id),
    limiter TEXT NOT NULL,
    host TEXT,
    sm_seen INTEGER CHECK (sm_seen > 0),
    tokens INTEGER NOT NULL CHECK (tokens >= 0),
    predicted_ms REAL CHECK (predicted_ms >= 0),
    predicted_compute_ms REAL CHECK (predicted_compute_ms >= 0),
    compute_ms REAL CHECK (compute_ms >= 0),
    wait_ms REAL CHECK (wait_ms >= 0),
    transfer_ms REAL CHECK (transfer_ms >= 0),
    total_ms REAL CHECK (total_ms >= 0),
    PRIMARY KEY (ring_run_id, rank)
) STRICT, WITHOUT ROWID;

-- The error of the plan's makespan, a row a ring; error 0.05: predicted 5 % too long.
CREATE VIEW ring_error AS
SELECT r.uid, r.measured_at, r.seq_len, r.mask, r.layout, r.strategy,
    (SELECT group_concat(what, ',')
     FROM (SELECT d.slug || iif(k.limiter = '', '', '@' || k.limiter) AS what
           FROM ring_rank k JOIN device d ON d.id = k.device_id
           WHERE k.ring_run_id = r.id ORDER BY k.rank)) AS ranks,
    (SELECT group_concat(tokens, ',')
     FROM (SELECT k.tokens FROM ring_rank k
           WHERE k.ring_run_id = r.id ORDER BY k.rank)) AS tokens,
    r.provider, r.transport, r.buffers, r.sub_blocks, r.barrier,
    r.predicted_ms, r.predicted_lo_ms, r.predicted_hi_ms, r.makespan_ms,
    r.predicted_ms / r.makespan_ms - 1 AS error,
    r.bound_ms, r.makespan_ms / r.bound_ms AS ratio_to_bound
FROM ring_run r;

-- The same of each rank that had work: of its end and of its computation alone.
CREATE VIEW ring_rank_error AS
SELECT r.uid, r.seq_len, r.mask, r.layout, r.strategy, k.rank, d.slug AS device,
    k.limiter, k.tokens, k.predicted_ms, k.total_ms,
    k.predicted_ms / nullif(k.total_ms, 0) - 1 AS error,
    k.predicted_compute_ms, k.compute_ms,
    k.predicted_compute_ms / nullif(k.compute_ms, 0) - 1 AS compute_error,
    k.wait_ms, k.transfer_ms
FROM ring_run r JOIN ring_rank k ON k.ring_run_id = r.id
JOIN device d ON d.id = k.device_id
WHERE k.tokens > 0;
