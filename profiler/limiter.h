/* SPDX-License-Identifier: Apache-2.0
 *
 * Limiters: how a process is given a part of a device. The profiler measures under
 * them and the reference executor runs under the same ones.
 *
 *   mps:PCT  a private MPS control daemon; the percentage is fixed when a client
 *            makes its first CUDA call, so every level is a process of its own
 *   green:SMS  a green context of so many SMs (CUDA 12.4): no daemon, and no process of
 *            its own, but only streams that are made in it are limited
 *   cpu:PCT  a duty cycle: the worker process is stopped and continued so that its
 *            CPU time is PCT % of wall-clock time of one core
 */
#ifndef HCP_LIMITER_H
#define HCP_LIMITER_H
#include <stdint.h>
#include <sys/types.h>
#include "db/error.h"

/* ---- mps ---------------------------------------------------------------- */

/* A daemon that this process started, and its guard: a small process that stops
 * the daemon and removes its directories when we end, however we end. */
typedef struct hcp_mps hcp_mps;

/* Path of nvidia-cuda-mps-control: $HCP_MPS_CONTROL, PATH, then where drivers put
 * it. HCP_FAILED and what to install when there is none. */
int hcp_mps_find(char *path, size_t size, struct hcp_err *err);

/* Starts a daemon in new 0700 directories under $TMPDIR or /tmp; returns when it
 * answers. Never touches a daemon started by anybody else. Must be called before
 * this process has threads or has made a CUDA call. */
int hcp_mps_start(hcp_mps **out, struct hcp_err *err);
void hcp_mps_stop(hcp_mps *mps); /* waits until it is gone; accepts NULL */
const char *hcp_mps_pipe_dir(const hcp_mps *mps);
const char *hcp_mps_log_dir(const hcp_mps *mps);
/* Default active thread percentage the daemon reports (100 unless set). */
double hcp_mps_default_percentage(const hcp_mps *mps);

/* Environment of a client process, to be set before its first CUDA call: pipe
 * directory, percentage, the one device by UUID. */
int hcp_mps_client_env(const char *pipe_dir, const char *log_dir, int percent,
                       const char *device_uuid, struct hcp_err *err);

/* Has the daemon of these directories end what process client has on the GPU, on all its
 * servers (terminate_client), so that it can be killed without taking the server along.
 * Takes seconds where the daemon does not answer. The client itself goes on, with an
 * error. HCP_FAILED: no server has done it. */
int hcp_mps_terminate_client(const char *pipe_dir, const char *log_dir, pid_t client);

/* Proof that the limit holds, from what the client saw: cudaDevAttrMpsEnabled and
 * its SM count against the whole device's. HCP_FAILED when it does not. */
int hcp_mps_prove(int percent, int mps_enabled, int sm_seen, int sm_count,
                  const char *pipe_dir, const char *log_dir, struct hcp_err *err);

/* ---- green --------------------------------------------------------------- */

/* What a device can set aside: from min to most SMs in steps, or all of its sm_count. */
struct hcp_green_rule {
    int32_t sm_count, min, step, most;
};

/* Of the CUDA device of this ordinal in this process, from the driver ($HCP_CUDA_DRIVER,
 * else libcuda.so.1). Initialises the driver. HCP_FAILED with cause and next step: no
 * driver, one before CUDA 12.4, a device that it does not divide. */
int hcp_green_rule(int ordinal, struct hcp_green_rule *out, struct hcp_err *err);
/* HCP_USAGE and the nearest counts where the rule has no partition of sms SMs. */
int hcp_green_check(const struct hcp_green_rule *rule, int sms, struct hcp_err *err);
/* The count that the rule has nearest to percent % of the SMs. */
int32_t hcp_green_near(const struct hcp_green_rule *rule, int percent);

/* A green context of exactly sms SMs: what the driver gave is read back from it. The
 * device's primary context should be in use, and stay so. */
typedef struct hcp_green hcp_green;
int hcp_green_open(int ordinal, int sms, hcp_green **out, struct hcp_err *err);
void hcp_green_close(hcp_green *green); /* after its streams; accepts NULL */
/* A stream (cudaStream_t) of the context; high: of the highest priority. Work of any
 * thread on it keeps to the context's SMs, whatever context is current; the runtime
 * destroys it. The context that is current stays. */
int hcp_green_stream(hcp_green *green, int high, void **stream, struct hcp_err *err);

/* Proof that the limit holds: the number of SMs on which blocks of a kernel ran that
 * has enough of them for a whole device, launched, and as a node of a graph. HCP_FAILED
 * where they are not sms. */
int hcp_green_prove(int sms, int seen, int seen_in_graph, struct hcp_err *err);

/* In builds with CUDA: limits this process to sms SMs of the device. From then on streams
 * of hcp_runtime_cuda() on it are of a green context, and hcp_cuda_device() tells its SM
 * count; proven with a kernel. HCP_FAILED, with the whole device as before: no such
 * context, no proof, or the process is an MPS client (mps_enabled of hcp_cuda_info),
 * whose percentage would not be told from the context's. hcp_green_unlimit() after the
 * last stream; accepts NULL. */
int hcp_green_limit(int ordinal, int sms, int mps_enabled, hcp_green **out,
                    struct hcp_err *err);
void hcp_green_unlimit(hcp_green *green);

/* One limiter a run: HCP_USAGE where limits a and b, of one run, are of MPS and green
 * contexts. */
int hcp_limits_agree(const char *a, const char *b, struct hcp_err *err);

/* ---- cpu ---------------------------------------------------------------- */

typedef struct hcp_throttle hcp_throttle;

/* Period of the duty cycle. A block much shorter than this sees either a stop or
 * none: take a sample over many periods. */
#define HCP_CPU_PERIOD_S 0.004
#define HCP_CPU_SAMPLE_S (6 * HCP_CPU_PERIOD_S)

/* Keeps process pid, one of our user that nobody waits for with WUNTRACED, at percent %
 * of a core from now on, all its threads counted (100: never stopped). The controlling
 * thread lives in this process. */
int hcp_throttle_start(pid_t pid, int percent, hcp_throttle **out, struct hcp_err *err);
/* Ends control and leaves the process running; accepts NULL. */
void hcp_throttle_stop(hcp_throttle *throttle);

#endif
