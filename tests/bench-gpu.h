/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention kernels side by side on a GPU. A series is a child process: under an MPS
 * percentage, or on the whole device. It opens every kernel of the registry and goes
 * through the shapes; of each, the kernels take turns for a slice of time, so that all
 * see the same clocks. Rows go to the parent over a pipe; a kernel that crashes or
 * hangs ends the child, and another one goes on without it.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H
#include <stdio.h>
#include "db/cli.h"
#include "profiler/bench.h"
#include "profiler/cuda-timer.h"

enum bench_set { BENCH_PREFILL, BENCH_DECODE, BENCH_LIMITS, BENCH_RING, BENCH_SETS };

/* A block, or a ring of them. */
struct bench_shape {
    enum bench_set set;
    const char *dtype;
    int32_t batch, heads, kv_heads, head_dim;
    int32_t causal; /* block: diag = kv_len - q_len; ring: the last rank, contiguous */
    int64_t q_len, kv_len;
    int32_t blocks; /* ring: KV blocks of kv_len keys that the shard meets; else 0 */
    int32_t quick;  /* of the short list too */
};

struct bench_options {
    int sets; /* 1 << bench_set each */
    int quick, reference;
    double time_s, slice_s; /* of every kernel on every shape; of a turn */
    const char *providers;  /* list or NULL: all but references */
    const char *plugin, *baseline, *csv;
    char limits[8][32];
    size_t n_limits;
    int64_t device;
};

enum { BENCH_LANES = 16, BENCH_SAMPLES = 8192 };

/* What one kernel did on one shape. */
struct bench_row {
    int32_t shape, lane; /* shape -1: the series failed */
    int32_t sms, n;      /* SMs seen; samples */
    char kernel[32], version[48], config[160], error[300];
    double time_ms, noise; /* median; hcp_stats.noise */
    double tflops, gb_per_s;
    double sm_mhz, power_w; /* means over its turns */
    double o_error; /* ring: relative Frobenius difference of O from the first kernel's */
};

/* Where a child is, for the parent to read when it has ended. */
struct bench_at {
    volatile int32_t shape, lane; /* lane -1: none in particular */
};

struct bench_job {
    const struct bench_options *options;
    const struct bench_shape *shapes;
    size_t n_shapes, first; /* first: the shape to begin with */
    uint32_t skip;          /* 1 << lane each: kernels that have ended a child */
    char limit[32];         /* "" = whole device */
    int32_t sm_count;       /* of the whole device */
    char uuid[64];
    const char *mps_pipe, *mps_log;
    int out; /* rows, whole structs */
    struct bench_at *at;
};

/* ---- bench-gpu-options.c -------------------------------------------------- */

/* Fills the options; ends the program where they are wrong or --help is one. */
void bench_parse(int argc, char **argv, struct bench_options *options);
extern const char *const bench_set_names[BENCH_SETS];

/* ---- bench-gpu-shapes.c --------------------------------------------------- */

/* Shapes of the options' sets for the whole device, or those for limits. *out malloc'ed.
 */
size_t bench_shapes(const struct bench_options *options, int limited,
                    struct bench_shape **out);
/* "bf16 32/8x128 causal 4096 x 4096" into text[96]; returns text. */
char *bench_shape_text(const struct bench_shape *shape, char text[96]);
/* Floating-point operations of a run; bytes that it must at least move: Q, K, V once in,
 * O (in the inputs' type) and L once out. */
double bench_flops(const struct bench_shape *shape);
double bench_bytes(const struct bench_shape *shape);

/* ---- bench-gpu-child.c ---------------------------------------------------- */

/* The child's side of a job; its exit code. */
int bench_child(const struct bench_job *job);

/* One kernel in a child; the last lane may be a copy of as many bytes. */
struct bench_lane {
    const hcp_provider *provider; /* NULL: the copy */
    char name[32], why[300];      /* why it does not serve the shapes at hand; or "" */
    int open, timed;              /* timed: times the shape at hand */
    struct hcp_bench bench;
    struct hcp_cuda_timer timer;
    struct hcp_bench_plan *plan;
    hcp_sample_fn take;
    void *ctx;
    double sample_s; /* wall-clock time of a sample, as far as known */
    double *ms;      /* BENCH_SAMPLES of them */
    int n;
    const struct bench_shape *passed[16]; /* of whose type, dim and phase it is right */
    int n_passed;
};

struct bench_child {
    const struct bench_job *job;
    const hcp_runtime *runtime;
    hcp_device_ref device;
    struct hcp_device_info info;
    int64_t cold_bytes;
    hcp_registry *registry;
    struct bench_watch *watch;
    struct bench_lane lanes[BENCH_LANES];
    size_t n_lanes;
    int warm;
};

/* Times the lanes whose timed is set, in turns; a lane that fails has its timed cleared
 * and its why filled. HCP_FAILED: the device is lost, by the lane that at says. */
int bench_take_turns(struct bench_child *c, struct hcp_err *err);
/* Sends the row of a lane: its samples' median and rates, or its why. config and o_error
 * of row are the caller's, the rest is filled. */
int bench_send(struct bench_child *c, size_t shape, size_t lane, struct bench_row *row);

/* ---- bench-gpu-ring.c ----------------------------------------------------- */

/* Attention steps of one rank of a ring, by every kernel, and their rows. */
int bench_ring(struct bench_child *c, size_t shape, struct hcp_err *err);

/* ---- bench-gpu-copy.c ----------------------------------------------------- */

/* Copies within the device that read and write bytes in all: an hcp_sample_fn. */
struct bench_copy;
int bench_copy_new(int64_t bytes, struct bench_copy **out, struct hcp_err *err);
void bench_copy_free(struct bench_copy *copy);
int bench_copy_take(void *ctx, int n, double *ms, struct hcp_err *err);

/* ---- bench-gpu-watch.c ---------------------------------------------------- */

/* A thread that reads clock and energy counter and books them on the lane that is
 * running. NULL where NVML does not say; all functions take that. */
struct bench_watch;
struct bench_watch *bench_watch_start(const char *uuid);
void bench_watch_reset(struct bench_watch *w);
void bench_watch_lane(struct bench_watch *w, int lane); /* -1: none */
void bench_watch_read(struct bench_watch *w, int lane, double *sm_mhz, double *power_w);
void bench_watch_stop(struct bench_watch *w);

/* ---- bench-gpu-table.c ---------------------------------------------------- */

struct bench_result {
    char limit[32];
    const struct bench_shape *shape;
    struct bench_row row;
    double vs; /* speed over the baseline's on the same shape; NaN: no baseline */
};

void bench_print_set(const struct bench_options *options, enum bench_set set,
                     const struct bench_result *results, size_t n);
/* Geometric means of vs, and the least of each kernel, by set and limit. */
void bench_print_summary(const struct bench_options *options,
                         const struct bench_result *results, size_t n);
void bench_csv_head(FILE *csv);
void bench_csv_row(FILE *csv, const struct bench_result *result);

#endif
