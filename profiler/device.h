/* SPDX-License-Identifier: Apache-2.0
 *
 * One struct of function pointers behind which GPUs, this CPU, recorded and
 * synthetic machines look alike to the sweep. A device is opened under one limit
 * and for one attention shape and kernel; then cells are prepared and timed.
 *
 * cuda and cpu devices are opened in a worker process (worker.h), which is what
 * makes limits possible; recorded and synthetic ones in the caller's.
 */
#ifndef HCP_DEVICE_H
#define HCP_DEVICE_H
#include <signal.h>
#include "db/db.h"
#include "profiler/measure.h"
#include "profiler/sweep.h"

struct hcp_device_config {
    char spec[1024];   /* "cuda:0" "cpu" "recorded:FILE" "synthetic:SPEC" */
    char limit[32];    /* "mps:10" "green:16" "cpu:50"; "" = whole device */
    char provider[32]; /* "" = preferred for shape and phase */
    char plugin[1024]; /* "" = none */
    char dtype[8];
    char phase[8]; /* "decode": a kernel for few queries; else for prefill */
    int32_t batch, heads, kv_heads, head_dim;
    int32_t allow_throttled; /* keep samples taken under thermal or hardware slowdown */
    int32_t no_cupti;
    int32_t linear;                   /* products of linear layers instead of attention */
    char device_uuid[64];             /* cuda: which GPU, "" = by the ordinal in spec */
    int32_t sm_count;                 /* cuda under a limit: SMs of the whole device */
    char mps_pipe[108], mps_log[108]; /* directories of the daemon; "" = no MPS */
};

struct hcp_device_info {
    char slug[64], name[96], uuid[64];
    char origin[12];    /* "measured" "recorded" "synthetic" */
    char limit_kind[8]; /* what levels mean here, if it works: "mps" "cpu" */
    int32_t sm_count,
        sm_seen; /* whole device; under the limit. CPU: threads of the kernel */
    int32_t cc_major, cc_minor;
    int32_t green_min, green_step,
        green_most;                 /* hcp_green_rule's; 0: no green contexts */
    char no_green[240];             /* GPU: why not */
    int64_t memory_bytes, l2_bytes; /* CPU: last-level cache */
    double peak_tflops;             /* NaN: unknown */
    char driver[32], cuda_version[16];
    char provider[32], provider_version[48];
    int32_t drifts;    /* time passes: a cell measured again may take another time */
    uint32_t finishes; /* finish passes that the kernel needs: 1 << hcp_finish_kind */
    char note[256];
};

/* One cell to be timed: a block, a finish pass over q_len rows, or (n_out > 0) the
 * product of a linear layer for q_len tokens. */
struct hcp_cell_request {
    char mask[8];
    int64_t q_len, kv_len;
    int64_t n_in, n_out;
    int32_t seqs;     /* batch of the cell; 0: the config's */
    int32_t finish;   /* hcp_finish_kind */
    int32_t boosted;  /* also measure the first runs after idle clocks */
    double expect_ms; /* upper guess at one run; 0 unknown */
    struct hcp_measure_rule rule;
};

/* A stop reason of cells that failed because every sample was rejected: the GPU was
 * throttled by something other than its power limit. Clocks and reasons are known. */
#define HCP_STOP_THROTTLED "throttled"

/* What a visit to a cell gave, besides the samples themselves. */
struct hcp_cell_facts {
    int32_t n; /* samples */
    char method[16], cache[8], stop_reason[16];
    double cupti_ms;
    double boosted_ms; /* where the request asked for it */
    double sm_clock_mhz, mem_clock_mhz, power_w, energy_j, temperature_c;
    int64_t throttle_reasons;
    int64_t tile_q, tile_kv;
    char provider_config[128], note[256];
};

typedef struct hcp_device hcp_device;

struct hcp_device_ops {
    const char *kind; /* "cuda" "cpu" "recorded" "synthetic" */
    int in_worker;    /* must be opened in a worker process */

    /* Opens the device of the config and fills its info; proves the limit. */
    int (*open)(const struct hcp_device_config *config, hcp_device **out,
                struct hcp_err *err);
    /* Conformance of the kernel, once before anything is timed: result[64] says what
     * passed. HCP_FAILED when the kernel must not be timed. */
    int (*check)(hcp_device *device, char result[64], struct hcp_err *err);
    /* Makes a cell ready: inputs, plan, workspace. HCP_NO_ANSWER: this device does
     * not have the cell (recorded machines). */
    int (*prepare)(hcp_device *device, const struct hcp_cell_request *cell,
                   struct hcp_err *err);
    /* Times the prepared cell. *samples is malloc'ed (facts->n of them, ms). On failure
     * facts may say why: HCP_STOP_THROTTLED, else no stop reason. */
    int (*time)(hcp_device *device, const struct hcp_cell_request *cell,
                struct hcp_cell_facts *facts, double **samples, struct hcp_err *err);
    void (*close)(hcp_device *device); /* accepts NULL */
};

/* Every back end's own struct begins with this. */
struct hcp_device {
    const struct hcp_device_ops *ops;
    struct hcp_device_info info;
    /* Set by a failure after which the device is of no more use: close it and open it
     * again. RETRY: the failure was not the cell's own (an MPS server that ended). */
    enum { HCP_DEVICE_LOST = 1, HCP_DEVICE_LOST_RETRY = 2 } lost;
};

extern const struct hcp_device_ops hcp_device_cpu_ops, hcp_device_recorded_ops,
    hcp_device_synthetic_ops,
    hcp_device_cuda_ops; /* cuda: says so in a build without it */

/* Set by the worker's signal handler: timing loops stop at the next sample. */
extern volatile sig_atomic_t hcp_device_cancel;

/* Back end of a --device argument; HCP_USAGE for an unknown one. */
int hcp_device_ops_of(const char *spec, const struct hcp_device_ops **out,
                      struct hcp_err *err);

/* "NVIDIA H200" -> "nvidia-h200": lower case, runs of anything else become one '-'. */
void hcp_device_slug(const char *name, char *slug, size_t size);

/* Facts with every field unknown. */
void hcp_cell_facts_init(struct hcp_cell_facts *facts);

/* A CPU as the operating system describes it; name[96], uuid[64] ("CPU-" and a hash
 * of machine id and model), size of the last-level cache. */
void hcp_cpu_describe(char name[96], char uuid[64], int64_t *llc_bytes,
                      int64_t *memory_bytes, int *cores);

/* ---- recorded machines -------------------------------------------------- */

/* Cells that a recorded machine has for the config's shape, under every limit.
 * *cells malloc'ed, without raw samples. */
int hcp_recorded_cells(const struct hcp_device_config *config, struct hcp_cell **cells,
                       size_t *n, struct hcp_err *err);

/* ---- GPUs here ---------------------------------------------------------- */

/* GPUs the CUDA runtime shows. Makes CUDA calls: workers only. *reason (size
 * reason_size) says why there is none. */
int hcp_cuda_list(struct hcp_device_info **infos, size_t *n, char *reason,
                  size_t reason_size);

#endif
