/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile database: one SQLite file (see schema.sql and hcp-db(5)). All SQL
 * of the project lives in this folder. Functions return HCP_OK or another code of
 * error.h and fill err; nothing prints. Unknown values are NaN (double), -1
 * (integer) and "" (text) in C, NULL in the file.
 */
#ifndef HCP_DB_H
#define HCP_DB_H
#include <stddef.h>
#include <stdint.h>
#include "db/error.h"

typedef struct hcp_db hcp_db;

/* What makes two cells comparable: same device class, limit, kernel and shape. */
struct hcp_key {
    char device[64];   /* slug: "nvidia-h200" */
    char limit[32];    /* "mps:10", "cpu:50", "green:24"; "" = whole device */
    char provider[32]; /* "cudnn", "flash", "cpu-blas" */
    char dtype[8];     /* "bf16" "fp16" "fp32" */
    char phase[8];     /* "prefill" "decode" */
    int32_t batch, heads, kv_heads, head_dim;
};

/* One measured (or recorded, or synthetic) cell with its provenance. */
struct hcp_cell {
    int64_t id; /* database row; 0 before insertion */
    struct hcp_key key;
    char mask[8]; /* "full" "causal" (row i sees keys j <= i + kv_len - q_len) */
    int64_t q_len, kv_len;

    char status[8];  /* "ok" "failed" */
    char error[256]; /* why it failed */
    double time_ms;  /* median */
    double min_ms, p25_ms, p75_ms, max_ms;
    double ci_lo_ms, ci_hi_ms; /* 95 % of the median */
    int32_t samples, outliers; /* outliers: beyond 10 MAD, counted, never dropped */
    double cupti_ms;           /* CUPTI kernel time, the cross-check */
    double boosted_ms;    /* median of the launches of the first 0.1 s after idle clocks;
                             time_ms is the sustained one */
    char method[16];      /* "event" "graph" "wall" "cpu-time" "recorded" "synthetic" */
    char cache[8];        /* "cold" "warm" */
    char stop_reason[16]; /* "noise" "settled" "cap" "few" */
    double sm_clock_mhz, mem_clock_mhz, power_w, energy_j, temperature_c;
    int64_t throttle_reasons; /* NVML bit mask */

    char origin[12];  /* "measured" "recorded" "synthetic" */
    char run_uid[40]; /* one sweep on one machine; merging never double-counts it */
    char host[64], device_uuid[64], device_name[96];
    int32_t sm_count;   /* of the whole device */
    int32_t sm_seen;    /* under the limit, as the client saw it */
    double peak_tflops; /* dense roofline of the whole device for dtype; NaN unknown */
    char provider_version[48], provider_config[128], check_result[64];
    int64_t tile_q, tile_kv; /* 0 unknown */
    char driver[32], cuda_version[16], tool_version[16];
    char measured_at[24]; /* UTC, ISO 8601 */
    char note[256];

    /* Raw samples in order of measurement; owned by the caller on write, by the row
     * iterator on read. */
    int32_t n_raw;
    double *raw_ms;
};

/* Opens (flags below); a handle is for one thread at a time. Creates the schema in a new
 * or empty file, migrates an older one forward (for readers too), refuses a newer,
 * foreign or damaged one without touching it. */
enum { HCP_DB_READ = 1, HCP_DB_WRITE = 2, HCP_DB_CREATE = 4 };
int hcp_db_open(const char *path, int flags, hcp_db **out, struct hcp_err *err);
void hcp_db_close(hcp_db *db);
const char *hcp_db_path(const hcp_db *db);
/* path argument, else $HCP_DB, else "hcp.db" */
const char *hcp_db_default_path(const char *path);

/* Sets every field of a cell to "unknown", then the defaults of design.md. */
void hcp_cell_init(struct hcp_cell *cell);
/* Refuses what must never be stored: lengths < 1, time <= 0 or NaN, samples whose
 * order contradicts (min > median), utilisation above 1, heads % kv_heads. */
int hcp_cell_validate(const struct hcp_cell *cell, struct hcp_err *err);

/* Attention FLOP/s of a cell in units of 1e12: 4 * area * heads * head_dim * batch /
 * time. */
double hcp_cell_tflops(const struct hcp_cell *cell);
/* Data-sheet roofline of a device slug for a dtype (db/peak.c); NaN if not known. */
double hcp_peak_tflops(const char *device, const char *dtype);

/* One transaction a cell. A cell of the same run_uid, device UUID, key, mask and
 * lengths is replaced only when the stored one has failed; otherwise HCP_FAILED. A
 * run_uid that is stored with another host, origin, driver, CUDA or tool version is
 * refused. */
int hcp_db_put_cell(hcp_db *db, const struct hcp_cell *cell, struct hcp_err *err);
/* The same for imports and merges, which need to know what happened. */
enum hcp_db_outcome {
    HCP_DB_STORED,
    HCP_DB_REPLACED,   /* a failed cell gave way */
    HCP_DB_SAME,       /* already there with the same values: nothing done */
    HCP_DB_SUPERSEDED, /* this one failed, the stored one is ok: nothing done */
    HCP_DB_CONFLICT    /* already there with other values: nothing done */
};
int hcp_db_add_cell(hcp_db *db, const struct hcp_cell *cell, enum hcp_db_outcome *outcome,
                    struct hcp_err *err);
/* Explicit batching for imports: begin / commit / rollback. */
int hcp_db_begin(hcp_db *db, struct hcp_err *err);
int hcp_db_commit(hcp_db *db, struct hcp_err *err);
void hcp_db_rollback(hcp_db *db);

/* Row filter: NULL or "" = any. Numbers: 0 = any. */
struct hcp_filter {
    const char *device, *limit, *provider, *dtype, *phase, *mask, *origin, *status,
        *run_uid, *host;
    int limit_set; /* 1: limit "" means "whole device", not any */
    int32_t batch, heads, kv_heads, head_dim;
};
/* Calls visit for each cell in a fixed order (key, mask, q_len, kv_len, run_uid);
 * a non-zero return of visit stops and is returned. want_raw: fill raw_ms. */
int hcp_db_each_cell(hcp_db *db, const struct hcp_filter *filter, int want_raw,
                     int (*visit)(const struct hcp_cell *cell, void *ctx), void *ctx,
                     struct hcp_err *err);
/* Distinct keys that have "ok" cells, fixed order. *keys malloc'ed. */
int hcp_db_keys(hcp_db *db, const struct hcp_filter *filter, struct hcp_key **keys,
                size_t *n, struct hcp_err *err);

/* A fingerprint of the "ok" cells and finish rows of one key: changes when one is added,
 * removed or altered. Models store it and are refused when it differs. It does not
 * depend on the order of insertion or merging. */
int hcp_db_samples_hash(hcp_db *db, const struct hcp_key *key, uint64_t *out,
                        struct hcp_err *err);
/* The same of every key that has "ok" cells, in one pass, in hcp_db_keys' order.
 * *hashes malloc'ed. */
struct hcp_key_hash {
    struct hcp_key key;
    uint64_t hash;
};
int hcp_db_samples_hashes(hcp_db *db, struct hcp_key_hash **hashes, size_t *n,
                          struct hcp_err *err);
int hcp_key_equal(const struct hcp_key *a, const struct hcp_key *b);

/* Memory bandwidth under a limit; what decode shares go by. */
struct hcp_bandwidth {
    char device[64], limit[32];
    char kind[8];    /* "copy": device to device, bytes read plus bytes written */
    int64_t bytes;   /* copied per call; 0 unknown */
    double gb_per_s; /* 1e9 bytes a second */
    int32_t sm_seen, sm_count;
    char origin[12], run_uid[40], host[64], device_uuid[64], device_name[96];
    char driver[32], cuda_version[16], tool_version[16], measured_at[24];
};
void hcp_bandwidth_init(struct hcp_bandwidth *row); /* unknowns, "copy", "measured" */
int hcp_bandwidth_validate(const struct hcp_bandwidth *row, struct hcp_err *err);
/* One row a run, device, limit, kind and size; outcome as for cells. */
int hcp_db_add_bandwidth(hcp_db *db, const struct hcp_bandwidth *row,
                         enum hcp_db_outcome *outcome, struct hcp_err *err);
/* filter: device, limit, origin, run_uid and host count. Fixed order. */
int hcp_db_each_bandwidth(hcp_db *db, const struct hcp_filter *filter,
                          int (*visit)(const struct hcp_bandwidth *row, void *ctx),
                          void *ctx, struct hcp_err *err);

/* Runs in order of uid. note: free text about a run, one or several lines. */
struct hcp_run {
    char uid[40], host[64], origin[12], driver[32], cuda_version[16], tool_version[16];
    char started_at[24];
    const char *note; /* "" if none; valid during the visit */
};
int hcp_db_each_run(hcp_db *db, int (*visit)(const struct hcp_run *run, void *ctx),
                    void *ctx, struct hcp_err *err);
/* Sets the note of a run that has none; nothing happens where there is one. */
int hcp_db_note_run(hcp_db *db, const char *uid, const char *note, struct hcp_err *err);

/* Who measured a row that is not a cell, and where. */
struct hcp_provenance {
    char origin[12], run_uid[40], host[64];
    char driver[32], cuda_version[16], tool_version[16], measured_at[24];
};

/* What a kernel that cannot accumulate costs an executor beside itself: the pass that
 * brings its partial result into the fp32 state of q_len rows (all heads, all batches).
 * kind "store": the first block's; "merge": a later one's. */
struct hcp_finish_row {
    struct hcp_key key;
    char kind[8];
    int64_t q_len;
    double time_ms, p25_ms, p75_ms;
    int32_t samples, sm_seen;
    char provider_version[48];
    char device_uuid[64], device_name[96];
    int32_t sm_count;
    struct hcp_provenance from;
};
void hcp_finish_row_init(struct hcp_finish_row *row);
int hcp_finish_row_validate(const struct hcp_finish_row *row, struct hcp_err *err);
int hcp_db_add_finish(hcp_db *db, const struct hcp_finish_row *row,
                      enum hcp_db_outcome *outcome, struct hcp_err *err);
int hcp_db_each_finish(hcp_db *db, const struct hcp_filter *filter,
                       int (*visit)(const struct hcp_finish_row *row, void *ctx),
                       void *ctx, struct hcp_err *err);

/* A transfer between two ranks: each sends `bytes` to the other at the same time, as
 * neighbours of a ring do. */
struct hcp_link_row {
    char device_a[64], limit_a[32], device_b[64], limit_b[32];
    char transport[8];              /* "nccl" "mpi"; "copy": cudaMemcpyPeerAsync */
    int32_t channels;               /* of NCCL, as set; -1: its own choice */
    int32_t one_way;                /* 1: a sends to b alone; 0: both at once */
    int32_t same_host;              /* 1, 0; -1 unknown */
    int64_t bytes;                  /* each way that there is */
    double time_ms, p25_ms, p75_ms; /* until both have both; one_way: until b has it */
    int32_t samples;
    char transport_version[32];
    char uuid_a[64], uuid_b[64], name_a[96], name_b[96];
    int32_t sm_seen_a, sm_seen_b, sm_count_a, sm_count_b;
    char host_b[64]; /* of b; a's is from.host */
    struct hcp_provenance from;
};
void hcp_link_row_init(struct hcp_link_row *row);
int hcp_link_row_validate(const struct hcp_link_row *row, struct hcp_err *err);
int hcp_db_add_link(hcp_db *db, const struct hcp_link_row *row,
                    enum hcp_db_outcome *outcome, struct hcp_err *err);
/* In order of pair, transport, channels, ways, bytes. filter: device and limit match
 * either end. */
int hcp_db_each_link(hcp_db *db, const struct hcp_filter *filter,
                     int (*visit)(const struct hcp_link_row *row, void *ctx), void *ctx,
                     struct hcp_err *err);

/* The way between two devices of a run, one row a pair. */
struct hcp_topology_row {
    char device_a[64], device_b[64];
    char connection[8]; /* "nvlink" "pcie" "host" (through its memory) "network" */
    int32_t links;      /* NVLinks; -1 unknown */
    char detail[192];   /* switches, bridges, NUMA nodes on the way; one line of text */
    char uuid_a[64], uuid_b[64], name_a[96], name_b[96];
    int32_t sm_count_a, sm_count_b;
    char host_b[64]; /* of b; a's is from.host */
    struct hcp_provenance from;
};
void hcp_topology_row_init(struct hcp_topology_row *row);
int hcp_topology_row_validate(const struct hcp_topology_row *row, struct hcp_err *err);
int hcp_db_add_topology(hcp_db *db, const struct hcp_topology_row *row,
                        enum hcp_db_outcome *outcome, struct hcp_err *err);
/* filter: device matches either end. */
int hcp_db_each_topology(hcp_db *db, const struct hcp_filter *filter,
                         int (*visit)(const struct hcp_topology_row *row, void *ctx),
                         void *ctx, struct hcp_err *err);

/* An attention block on key's device, alone and beside a transfer with a peer (as of a
 * link row); factors are quotients of the times. */
struct hcp_interference_row {
    struct hcp_key key;
    char mask[8];
    int64_t q_len, kv_len;
    char device_b[64], limit_b[32];               /* the peer */
    char transport[8];                            /* as of a link */
    int32_t channels;                             /* as of a link */
    int64_t bytes;                                /* each way */
    double alone_ms, beside_ms;                   /* the block: medians */
    double transfer_alone_ms, transfer_beside_ms; /* one transfer; NaN unknown */
    double wait_ms; /* of a step of both: beyond its computing, and not for data that was
                       still on its way; NaN unknown */
    int32_t samples;                              /* of beside_ms */
    int32_t sm_seen;                              /* by the block */
    char provider_version[48], transport_version[32];
    char device_uuid[64], device_name[96];
    int32_t sm_count;
    char uuid_b[64], name_b[96];
    int32_t sm_count_b;
    char host_b[64];
    struct hcp_provenance from;
};
void hcp_interference_row_init(struct hcp_interference_row *row);
int hcp_interference_row_validate(const struct hcp_interference_row *row,
                                  struct hcp_err *err);
int hcp_db_add_interference(hcp_db *db, const struct hcp_interference_row *row,
                            enum hcp_db_outcome *outcome, struct hcp_err *err);
/* filter: device and limit match either end. */
int hcp_db_each_interference(hcp_db *db, const struct hcp_filter *filter,
                             int (*visit)(const struct hcp_interference_row *row,
                                          void *ctx),
                             void *ctx, struct hcp_err *err);

/* The first cell of a sweep and the same at its end. A sweep that was continued may have
 * several: measured_at belongs to what identifies a row. */
struct hcp_drift_row {
    struct hcp_key key;
    char mask[8];
    int64_t q_len, kv_len;
    double first_ms, last_ms; /* medians */
    double first_sm_clock_mhz, last_sm_clock_mhz;
    double seconds; /* between the two */
    char device_uuid[64], device_name[96];
    int32_t sm_count;
    struct hcp_provenance from;
};
void hcp_drift_row_init(struct hcp_drift_row *row);
int hcp_drift_row_validate(const struct hcp_drift_row *row, struct hcp_err *err);
int hcp_db_add_drift(hcp_db *db, const struct hcp_drift_row *row,
                     enum hcp_db_outcome *outcome, struct hcp_err *err);
int hcp_db_each_drift(hcp_db *db, const struct hcp_filter *filter,
                      int (*visit)(const struct hcp_drift_row *row, void *ctx), void *ctx,
                      struct hcp_err *err);

/* One GEMM [tokens, n_in] x [n_in, n_out], 2 tokens n_in n_out FLOP. */
struct hcp_linear_row {
    char device[64], limit[32];
    char library[32]; /* "cublas" "openblas": as a provider is spelled */
    char library_version[48];
    char dtype[8];
    int64_t tokens, n_in, n_out;
    double time_ms, p25_ms, p75_ms;
    int32_t samples;
    double sm_clock_mhz;
    int32_t sm_seen, sm_count;
    char device_uuid[64], device_name[96];
    struct hcp_provenance from;
};
void hcp_linear_row_init(struct hcp_linear_row *row);
/* Faster than the device's roofline is refused, as for cells. */
int hcp_linear_row_validate(const struct hcp_linear_row *row, struct hcp_err *err);
double hcp_linear_tflops(const struct hcp_linear_row *row);
int hcp_db_add_linear(hcp_db *db, const struct hcp_linear_row *row,
                      enum hcp_db_outcome *outcome, struct hcp_err *err);
/* In order of device, limit, library, dtype, n_in, n_out, tokens. */
int hcp_db_each_linear(hcp_db *db, const struct hcp_filter *filter,
                       int (*visit)(const struct hcp_linear_row *row, void *ctx),
                       void *ctx, struct hcp_err *err);

/* Time of a transfer = alpha + bytes / beta, by least squares of relative errors over
 * one pair's rows; held-out: each size in turn predicted from the others (the smallest
 * and largest are never left out). HCP_NO_ANSWER: fewer than two sizes, or times that do
 * not grow with the size. (link.c) */
struct hcp_link_fit {
    double alpha_us, gbps;              /* GB = 1e9 bytes */
    double holdout_median, holdout_max; /* relative; NaN with fewer than three sizes */
    int sizes; /* distinct ones; of each the median of its times counts */
};
int hcp_link_fit(const int64_t *bytes, const double *time_ms, size_t n,
                 struct hcp_link_fit *out, struct hcp_err *err);
/* Which transfers count: those within a host, those between two, or whichever there are.
 * Rows that do not say count as either. */
enum hcp_hosts { HCP_HOSTS_ANY, HCP_HOSTS_WITHIN, HCP_HOSTS_BETWEEN };
/* "within", "between"; "" for any. */
const char *hcp_hosts_name(enum hcp_hosts hosts);
/* By the names of two hosts; any where one is unknown. */
enum hcp_hosts hcp_hosts_of(const char *a, const char *b);
/* Of a row: by same_host, else by the names of its hosts; any where neither says. */
enum hcp_hosts hcp_link_hosts(const struct hcp_link_row *row);
/* By what transfers go. */
struct hcp_link_by {
    const char *transport;
    enum hcp_hosts hosts;
    int32_t channels; /* of NCCL, each direction; 0: its own choice */
    int one_way;      /* 1: the first end sends to the second, nothing comes back; 0: both
                         at once. Transfers of one sort never answer for the other */
};
/* Whether a row's channels (-1 and 0: NCCL's own choice) are those. */
int hcp_link_has_channels(const struct hcp_link_by *by, int32_t channels);
/* The fit of one pair (in either order, unless by is one way). HCP_NO_ANSWER when it was
 * never measured, and the command that does. HCP_USAGE: hosts is any, and transfers of
 * both kinds are there, which have no fit in common. */
int hcp_db_link_of(hcp_db *db, const struct hcp_link_by *by, const char *device_a,
                   const char *limit_a, const char *device_b, const char *limit_b,
                   struct hcp_link_fit *out, struct hcp_err *err);

/* The command that measures such transfers, into text[size]; HCP_LINK_COMMAND has room
 * for all but very long paths. */
enum { HCP_LINK_COMMAND = 700 };
void hcp_db_link_command(const hcp_db *db, const struct hcp_link_by *by,
                         const char *limit_a, const char *limit_b, char *text,
                         size_t size);

/* The same for blocks of about `bytes`: the line through the sizes from a sixteenth to
 * twice as many, for where the curve bends and steps one line through all is off by a
 * third (nccl, an end of 12 SMs). Through all sizes where those are fewer than three. */
int hcp_db_link_near(hcp_db *db, const struct hcp_link_by *by, const char *device_a,
                     const char *limit_a, const char *device_b, const char *limit_b,
                     double bytes, struct hcp_link_fit *out, struct hcp_err *err);

/* The same pair's curve as it was measured: of each size the median of its times, between
 * two sizes a straight line, below the smallest its time, beyond the largest in
 * proportion to the bytes. Only + - * / and comparisons decide. Held-out errors: each
 * size but the smallest and the largest in turn from its neighbours, relative; in the
 * median and the 90th percentile a size counts by the part of the logarithmic axis it
 * stands for. (link-curve.c) */
struct hcp_link_point {
    double bytes, ms;
};
struct hcp_link_curve {
    struct hcp_link_point *points; /* ascending; two or more */
    size_t n;
    double holdout_median, holdout_p90, holdout_max; /* NaN with fewer than three sizes */
};
/* HCP_NO_ANSWER: fewer than two sizes. Free with hcp_link_curve_free(). */
int hcp_link_curve_make(const int64_t *bytes, const double *time_ms, size_t n,
                        struct hcp_link_curve *out, struct hcp_err *err);
void hcp_link_curve_free(struct hcp_link_curve *curve);
double hcp_link_curve_ms(const struct hcp_link_curve *curve,
                         double bytes); /* bytes > 0 */
/* Held-out error of point i; NaN of the first and the last. */
double hcp_link_curve_error(const struct hcp_link_curve *curve, size_t i);
/* The size to be measured next: in the gap whose ends have the largest held-out errors,
 * one above target among them. 0: none has, or such gaps are steps found to 10 %. */
int64_t hcp_link_curve_next(const struct hcp_link_curve *curve, double target);
/* As hcp_db_link_of. */
int hcp_db_link_curve_of(hcp_db *db, const struct hcp_link_by *by, const char *device_a,
                         const char *limit_a, const char *device_b, const char *limit_b,
                         struct hcp_link_curve *out, struct hcp_err *err);

/* A ring that hcp-ring ran: what was planned, what was measured. */
struct hcp_ring_rank_row {
    char device[64], limit[32], uuid[64], name[96], host[64];
    int32_t sm_count, sm_seen;
    int64_t tokens;
    double predicted_ms, predicted_compute_ms;         /* NaN: the plan did not say */
    double compute_ms, wait_ms, transfer_ms, total_ms; /* medians over repetitions */
};
struct hcp_ring_run_row {
    char uid[40]; /* of this run of the executor: what merging goes by */
    char fingerprint[20], strategy[16], mask[8], layout[12], transport[8];
    char provider[32], provider_version[48], dtype[8];
    int32_t batch, heads, kv_heads, head_dim;
    int64_t seq_len, tile;
    int32_t stripes, buffers, sub_blocks, barrier;
    int32_t repeats;
    double makespan_ms, ci_lo_ms, ci_hi_ms, min_ms; /* median, 95 % of it */
    double predicted_ms, predicted_lo_ms, predicted_hi_ms, bound_ms; /* NaN unknown */
    double efficiency; /* W / (T sum v) = bound / makespan; NaN unknown */
    double max_error;  /* relative error of O when verified; NaN: not verified */
    char note[256];
    struct hcp_provenance from;      /* run_uid unused; host: of rank 0 */
    struct hcp_ring_rank_row *ranks; /* in plan order, those without tokens too; of each
                                        visit: valid during it */
    size_t n_ranks;
};
void hcp_ring_run_init(struct hcp_ring_run_row *row); /* unknowns; "measured"; no ranks */
void hcp_ring_rank_init(struct hcp_ring_rank_row *row); /* unknowns */
/* Refuses tokens that do not add up to seq_len, a makespan outside its interval, and what
 * the tables' CHECKs would. transport "": none was used. */
int hcp_ring_run_validate(const struct hcp_ring_run_row *row, struct hcp_err *err);
/* One row a uid; outcome as for cells. */
int hcp_db_add_ring_run(hcp_db *db, const struct hcp_ring_run_row *row,
                        enum hcp_db_outcome *outcome, struct hcp_err *err);
/* In order of measured_at and uid. */
int hcp_db_each_ring_run(hcp_db *db,
                         int (*visit)(const struct hcp_ring_run_row *row, void *ctx),
                         void *ctx, struct hcp_err *err);

/* Adds all rows but models, and run notes, of another file, in one transaction.
 * Rows already there are skipped, so merging twice or in a circle changes nothing;
 * where values differ the stored ones stay. Models are counted, not copied: they
 * belong to one set of samples and must be fitted again. */
struct hcp_merge_tally {
    size_t kept, skipped, conflicts, models;
};
int hcp_db_merge(hcp_db *into, hcp_db *from, struct hcp_merge_tally *tally,
                 struct hcp_err *err);

/* A row that is there with other values. Values as text, as an export has them. */
struct hcp_conflict_value {
    const char *name; /* column of hcp-db(5) */
    int number;       /* it is no text */
    char stored[256], other[256];
};
struct hcp_merge_conflict {
    const char *kind; /* "cell", "copy" ... as in a text file; "ring" */
    /* What the two have in common: the known parts of the identity, in stored. */
    const struct hcp_conflict_value *identity;
    size_t n_identity;
    const struct hcp_conflict_value *differ; /* at least one */
    size_t n_differ;
};
/* The same; calls visit for each conflict. A non-zero return of visit stops and is
 * returned; nothing is merged then. */
int hcp_db_merge_visit(hcp_db *into, hcp_db *from,
                       int (*visit)(const struct hcp_merge_conflict *c, void *ctx),
                       void *ctx, struct hcp_merge_tally *tally, struct hcp_err *err);

/* Models, stored beside their samples: a head row and named arrays of doubles
 * (what the names mean is fit/model.h's business; the bits survive exactly). */
struct hcp_model_row {
    int64_t id;
    struct hcp_key key;
    char kind[8];    /* "lut" "poly" */
    char origin[12]; /* of its samples; "mixed" when they differ */
    uint64_t samples_hash;
    int32_t format;                     /* version of the array layout */
    double holdout_median, holdout_p90; /* relative error, 0.02 = 2 % */
    int32_t holdout_cells;
    char fitted_at[24], tool_version[16];
    char holdout_note[160];
};
struct hcp_named_array {
    char name[24];
    size_t n;
    double *v;
};
/* Replaces the model of the same key and kind. One transaction. */
int hcp_db_put_model(hcp_db *db, const struct hcp_model_row *row,
                     const struct hcp_named_array *arrays, size_t n_arrays,
                     struct hcp_err *err);
int hcp_db_each_model(hcp_db *db, const struct hcp_filter *filter,
                      int (*visit)(const struct hcp_model_row *row,
                                   const struct hcp_named_array *arrays, size_t n_arrays,
                                   void *ctx),
                      void *ctx, struct hcp_err *err);

#endif
