/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA GPU, in a worker whose environment holds the limit. Times are CUDA events
 * on a stream that is held back until everything is queued; short blocks run as
 * nodes of a graph. Every run reads inputs that the L2 no longer holds.
 */
#include "config.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "db/parse.h"
#include "kernels/cuda.h"
#include "profiler/bench.h"
#include "profiler/clocks.h"
#include "profiler/cupti.h"
#include "profiler/limiter.h"
#include "profiler/spin.h"

enum {
    EVENTS = 17,       /* up to 16 samples behind one hold */
    GRAPHS = 8,        /* graphs that share the round of inputs */
    GRAPH_NODES = 256, /* runs in one graph */
    GRAPH_HOLD = 4     /* graph launches behind one hold */
};
#define GRAPH_BELOW_MS 0.1
#define HOLD_LIMIT_NS 2000000000ull

struct cuda_device {
    hcp_device base;
    struct hcp_bench bench;
    struct hcp_bench_plan *plan;
    cudaStream_t stream;
    cudaEvent_t events[2 * EVENTS];
    int *hold; /* mapped: [0] ticket that may pass, [1] holds that timed out */
    int ticket;
    cudaGraphExec_t graphs[GRAPHS];
    int n_graphs, nodes; /* of the prepared cell; 0: single launches */
    int graph_turn;
    hcp_nvml *nvml;
    int cupti; /* 1: usable */
    int allow_throttled;
    int warmed; /* the first shape has brought the clocks up */
    char note[160];
};

static int cuda_fail(struct cuda_device *d, cudaError_t code, const char *doing,
                     struct hcp_err *err)
{
    char text[600];
    cudaGetLastError();
    d->base.lost = 1; /* a device error stays with the process */
    return hcp_fail(err, HCP_FAILED, "cannot %s: %s", doing,
                    hcp_cuda_explain(code, text, sizeof text));
}

static int bench_fail(struct cuda_device *d, int rc, const char *doing,
                      struct hcp_err *err)
{
    if (rc == HCP_RC_DEVICE)
        d->base.lost = 1;
    return hcp_bench_fail(&d->bench, rc, doing, err);
}

static void fill_info(const hcp_cuda_info *cuda, struct hcp_device_info *info)
{
    snprintf(info->name, sizeof info->name, "%.95s", cuda->name);
    snprintf(info->uuid, sizeof info->uuid, "%s", cuda->uuid);
    hcp_device_slug(cuda->name, info->slug, sizeof info->slug);
    strcpy(info->origin, "measured");
    strcpy(info->limit_kind, "mps");
    info->sm_count = info->sm_seen = cuda->sm_count;
    info->cc_major = cuda->cc_major;
    info->cc_minor = cuda->cc_minor;
    info->memory_bytes = cuda->memory_bytes;
    info->l2_bytes = cuda->l2_bytes;
    snprintf(info->driver, sizeof info->driver, "CUDA %d.%d", cuda->driver_version / 1000,
             cuda->driver_version % 1000 / 10);
    snprintf(info->cuda_version, sizeof info->cuda_version, "%d.%d",
             cuda->runtime_version / 1000, cuda->runtime_version % 1000 / 10);
}

int hcp_cuda_list(struct hcp_device_info **infos, size_t *n, char *reason,
                  size_t reason_size)
{
    int count = 0;
    *infos = NULL;
    *n = 0;
    if (hcp_cuda_device_count(&count, reason, reason_size) != HCP_RC_OK || count == 0)
        return HCP_OK;
    *infos = calloc((size_t)count, sizeof **infos);
    for (int i = 0; *infos && i < count; i++) {
        hcp_device_ref ref;
        hcp_cuda_info cuda = {.size = sizeof cuda};
        char driver[32] = "", why[160];
        if (hcp_cuda_device(i, &ref, &cuda, reason, reason_size) != HCP_RC_OK)
            break;
        struct hcp_device_info *info = &(*infos)[(*n)++];
        fill_info(&cuda, info);
        hcp_nvml_close(hcp_nvml_open(cuda.uuid, driver, why, sizeof why));
        if (*driver)
            strcpy(info->driver, driver);
    }
    return HCP_OK;
}

/* The limit is what this process says it is. */
static int prove_limit(const struct hcp_device_config *config, const hcp_cuda_info *cuda,
                       struct hcp_device_info *info, struct hcp_err *err)
{
    char kind[8] = "";
    int32_t percent = 100;
    int rc = hcp_parse_limit(config->limit, kind, &percent, err);
    if (rc != HCP_OK)
        return rc;
    if (!*kind && cuda->mps_enabled)
        return hcp_fail(err, HCP_FAILED,
                        "the whole device is asked for, but this process is a client of "
                        "an MPS daemon");
    if (!*kind)
        return HCP_OK;
    if (strcmp(kind, "mps") != 0)
        return hcp_fail(err, HCP_USAGE,
                        "limit '%s' is not one of a CUDA GPU; use mps:PCT",
                        config->limit);
    if (config->sm_count > 0)
        info->sm_count = config->sm_count;
    return hcp_mps_prove(percent, cuda->mps_enabled, cuda->sm_count, info->sm_count,
                         config->mps_pipe, config->mps_log, err);
}

static int make_tools(struct cuda_device *d, struct hcp_err *err)
{
    cudaError_t e =
        cudaHostAlloc((void **)&d->hold, 2 * sizeof *d->hold, cudaHostAllocMapped);
    if (e == cudaSuccess)
        d->hold[0] = d->hold[1] = 0;
    for (int i = 0; i < 2 * EVENTS && e == cudaSuccess; i++)
        e = cudaEventCreate(&d->events[i]);
    return e == cudaSuccess ? HCP_OK : cuda_fail(d, e, "create events", err);
}

static void cuda_close(hcp_device *device);

static int cuda_open(const struct hcp_device_config *config, hcp_device **out,
                     struct hcp_err *err)
{
    const char *at = strchr(config->spec, ':');
    int64_t ordinal = 0;
    if (at && !*config->device_uuid &&
        hcp_parse_int(at + 1, "cuda:N", 0, 1024, &ordinal, err) != HCP_OK)
        return HCP_USAGE;
    hcp_device_ref ref = {.size = sizeof ref};
    hcp_cuda_info cuda = {.size = sizeof cuda};
    char why[700] = "";
    if (hcp_cuda_device((int)ordinal, &ref, &cuda, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    struct hcp_device_info *info = &d->base.info;
    d->base.ops = &hcp_device_cuda_ops;
    d->allow_throttled = config->allow_throttled;
    fill_info(&cuda, info);
    info->peak_tflops = hcp_peak_tflops(info->slug, config->dtype);
    int rc = prove_limit(config, &cuda, info, err);
    const hcp_runtime *runtime = hcp_runtime_cuda();
    if (rc == HCP_OK && runtime->select((int)ordinal) != HCP_RC_OK)
        rc = hcp_fail(err, HCP_FAILED, "%s", runtime->last_error());
    if (rc == HCP_OK)
        rc = hcp_bench_open(&d->bench, config, runtime, &ref, 2 * cuda.l2_bytes, info,
                            err);
    if (rc != HCP_OK) {
        free(d);
        return rc;
    }
    d->stream = (cudaStream_t)d->bench.stream;
    char driver[32] = "";
    d->nvml = hcp_nvml_open(cuda.uuid, driver, d->note, sizeof d->note);
    if (*driver)
        strcpy(info->driver, driver);
    if (!config->no_cupti)
        d->cupti = hcp_cupti_open(why, sizeof why) == 0;
    if (!d->cupti && !config->no_cupti && !*d->note)
        snprintf(d->note, sizeof d->note, "%.150s", why);
    strcpy(info->note, d->note);
    rc = make_tools(d, err);
    if (rc != HCP_OK) {
        cuda_close(&d->base);
        return rc;
    }
    *out = &d->base;
    return HCP_OK;
}

static int cuda_check(hcp_device *device, char result[64], struct hcp_err *err)
{
    return hcp_bench_check(&((struct cuda_device *)device)->bench, result, err);
}

static void drop_graphs(struct cuda_device *d)
{
    for (int i = 0; i < d->n_graphs; i++)
        cudaGraphExecDestroy(d->graphs[i]);
    d->n_graphs = d->nodes = d->graph_turn = 0;
}

static int cuda_prepare(hcp_device *device, const struct hcp_cell_request *cell,
                        struct hcp_err *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    drop_graphs(d);
    int rc = hcp_bench_prepare(&d->bench, cell, &d->plan, err);
    if (rc != HCP_OK && hcp_cuda_is_mps_error(hcp_cuda_last_code()))
        d->base.lost = 1;
    return rc;
}

/* Queues a kernel that holds the stream, and lets it go. A hold that timed out (the
 * host was slow, or a launch waited for the device) spoils what was behind it. */
static int hold(struct cuda_device *d, struct hcp_err *err)
{
    int e = hcp_spin_launch(d->hold, ++d->ticket, HOLD_LIMIT_NS, d->hold + 1, d->stream);
    return e == cudaSuccess
               ? HCP_OK
               : cuda_fail(d, (cudaError_t)e, "launch the holding kernel", err);
}

static int release(struct cuda_device *d, struct hcp_err *err)
{
    *(volatile int *)d->hold = d->ticket;
    cudaError_t e = cudaStreamSynchronize(d->stream);
    if (e != cudaSuccess)
        return cuda_fail(d, e, "finish the kernel", err);
    if (*(volatile int *)(d->hold + 1) > 0) {
        d->hold[1] = 0;
        return hcp_fail(
            err, HCP_FAILED,
            "a held launch timed out: the kernel waits for the host in run()");
    }
    return HCP_OK;
}

/* n samples of one launch each, or of one graph each, behind one hold. */
static int take_held(struct cuda_device *d, int n, double *ms, struct hcp_err *err)
{
    int rc = hold(d, err);
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < n && rc == HCP_OK && e == cudaSuccess; i++) {
        int run = HCP_RC_OK;
        e = cudaEventRecord(d->events[2 * i], d->stream);
        if (e == cudaSuccess && d->n_graphs > 0)
            e = cudaGraphLaunch(d->graphs[d->graph_turn++ % d->n_graphs], d->stream);
        else if (e == cudaSuccess)
            run = hcp_bench_run(&d->bench, d->plan);
        if (run != HCP_RC_OK)
            rc = bench_fail(d, run, "run", err);
        else if (e == cudaSuccess)
            e = cudaEventRecord(d->events[2 * i + 1], d->stream);
    }
    struct hcp_err why = {0};
    int done = release(d, rc == HCP_OK ? err : &why);
    if (rc != HCP_OK)
        return rc;
    if (e != cudaSuccess)
        return cuda_fail(d, e, "queue a sample", err);
    for (int i = 0; i < n && done == HCP_OK; i++) {
        float t = 0;
        e = cudaEventElapsedTime(&t, d->events[2 * i], d->events[2 * i + 1]);
        if (e != cudaSuccess)
            return cuda_fail(d, e, "read an event", err);
        ms[i] = d->n_graphs > 0 ? t / (double)d->nodes : t;
    }
    return done;
}

static int take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct cuda_device *d = ctx;
    int most = d->n_graphs > 0 ? GRAPH_HOLD : EVENTS - 1;
    for (int done = 0; done < n; done += most) {
        int rc = take_held(d, n - done < most ? n - done : most, ms + done, err);
        if (rc != HCP_OK)
            return rc;
    }
    return HCP_OK;
}

/* First runs without a hold: they load modules, which waits for the device. */
static int first_runs(struct cuda_device *d, double *ms, struct hcp_err *err)
{
    for (int i = 0; i < 2; i++) {
        cudaError_t e = cudaEventRecord(d->events[0], d->stream);
        int rc = hcp_bench_run(&d->bench, d->plan);
        float t = 0;
        if (rc != HCP_RC_OK)
            return bench_fail(d, rc, "run", err);
        if (e == cudaSuccess)
            e = cudaEventRecord(d->events[1], d->stream);
        if (e == cudaSuccess)
            e = cudaStreamSynchronize(d->stream);
        if (e == cudaSuccess)
            e = cudaEventElapsedTime(&t, d->events[0], d->events[1]);
        if (e != cudaSuccess)
            return cuda_fail(d, e, "run the kernel", err);
        *ms = t;
    }
    return HCP_OK;
}

/* One graph of nodes runs; 0 when the kernel cannot be captured. */
static int capture(struct cuda_device *d, int nodes)
{
    cudaGraph_t graph = NULL;
    if (cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal) !=
        cudaSuccess)
        return 0;
    int rc = HCP_RC_OK;
    for (int i = 0; i < nodes && rc == HCP_RC_OK; i++)
        rc = hcp_bench_run(&d->bench, d->plan);
    cudaError_t e = cudaStreamEndCapture(d->stream, &graph);
    if (rc == HCP_RC_OK && e == cudaSuccess && graph)
        e = cudaGraphInstantiate(&d->graphs[d->n_graphs], graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    if (rc != HCP_RC_OK || e != cudaSuccess)
        return 0;
    d->n_graphs++;
    return 1;
}

/* Graphs that between them go once round the inputs: a set comes back only after
 * all others were read. */
static int make_graphs(struct cuda_device *d, struct hcp_err *err)
{
    int64_t sets = d->plan->sets, runs = sets;
    while (runs < 16)
        runs += sets;
    if (runs > GRAPHS * GRAPH_NODES)
        runs = GRAPHS * GRAPH_NODES;
    int graphs = (int)((runs + GRAPH_NODES - 1) / GRAPH_NODES);
    d->nodes = (int)(runs / graphs);
    for (int i = 0; i < graphs; i++) {
        if (!capture(d, d->nodes)) {
            drop_graphs(d);
            d->plan->by_graph = -1;
            return HCP_OK; /* timed by single launches */
        }
    }
    for (int i = 0; i < d->n_graphs; i++) { /* the first launch uploads */
        cudaError_t e = cudaGraphLaunch(d->graphs[i], d->stream);
        if (e == cudaSuccess)
            e = cudaStreamSynchronize(d->stream);
        if (e != cudaSuccess)
            return cuda_fail(d, e, "run the kernel in a graph", err);
    }
    return HCP_OK;
}

/* Three launches with CUPTI watching, after the timing: its kernel time, and a word
 * when it and the events differ. */
static void cross_check(struct cuda_device *d, double event_ms,
                        struct hcp_cell_facts *facts)
{
    enum { RUNS = 3 };
    int kernels = 0, dropped = 0;
    double total_ms = 0;
    if (hcp_cupti_begin() != 0) {
        d->cupti = 0;
        return;
    }
    int rc = HCP_RC_OK;
    for (int i = 0; i < RUNS && rc == HCP_RC_OK; i++)
        rc = hcp_bench_run(&d->bench, d->plan);
    cudaError_t e = cudaStreamSynchronize(d->stream);
    int ended = hcp_cupti_end(&kernels, &total_ms, &dropped);
    if (rc != HCP_RC_OK || e != cudaSuccess || ended != 0)
        return;
    size_t n = strlen(facts->note);
    if (kernels == 0 || kernels % RUNS != 0 || dropped > 0) {
        snprintf(facts->note + n, sizeof facts->note - n,
                 "%sCUPTI lost records: %d kernels of %d runs", n ? "; " : "", kernels,
                 RUNS);
        return;
    }
    facts->cupti_ms = total_ms / RUNS;
    double off = (event_ms - facts->cupti_ms) / facts->cupti_ms;
    if (fabs(off) > 0.02)
        snprintf(facts->note + n, sizeof facts->note - n,
                 "%s%s %+.1f %% from CUPTI's %.5g ms in %d "
                 "kernel%s a run",
                 n ? "; " : "", facts->method, 100 * off, facts->cupti_ms, kernels / RUNS,
                 kernels == RUNS ? "" : "s");
}

static double quick_median(const struct hcp_samples *s)
{
    double lo = s->ms[0], sum = 0;
    for (int i = 0; i < s->n; i++) {
        lo = fmin(lo, s->ms[i]);
        sum += s->ms[i];
    }
    return s->n < 3 ? lo : sum / s->n;
}

static void fill_clocks(const struct cuda_device *d, const struct hcp_clocks *before,
                        const struct hcp_clocks *after, const struct hcp_samples *s,
                        struct hcp_cell_facts *facts)
{
    double busy_s = s->warmup_s + s->wall_s;
    facts->sm_clock_mhz = after->sm_mhz;
    facts->mem_clock_mhz = after->mem_mhz;
    facts->temperature_c = after->temperature_c;
    facts->power_w = after->power_w;
    if (before->throttle_reasons >= 0 && after->throttle_reasons >= 0)
        /* Bit 0 is "idle", true before any cell. */
        facts->throttle_reasons =
            (before->throttle_reasons | after->throttle_reasons) & ~(int64_t)1;
    /* The counter moves every 20 to 100 ms: over less it says nothing. Energy of one
     * run is power times its time. */
    if (busy_s >= 0.3 && after->energy_j > before->energy_j) {
        facts->power_w = (after->energy_j - before->energy_j) / busy_s;
        facts->energy_j = facts->power_w * quick_median(s) / 1e3;
    }
    (void)d;
}

static int cuda_time(hcp_device *device, const struct hcp_cell_request *cell,
                     struct hcp_cell_facts *facts, double **samples, struct hcp_err *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct hcp_measure_rule rule = cell->rule;
    struct hcp_samples s = {0};
    struct hcp_clocks before, after;
    double ms = 0;
    int rc = first_runs(d, &ms, err);
    if (rc == HCP_OK && d->plan->by_graph == 0)
        d->plan->by_graph = ms < GRAPH_BELOW_MS ? 1 : -1;
    if (rc == HCP_OK && d->plan->by_graph > 0)
        rc = make_graphs(d, err);
    if (!d->warmed)
        rule.warmup_s = fmax(rule.warmup_s, 0.5); /* the clocks come up first */
    int64_t bad = 0;
    for (int try = 0; rc == HCP_OK; try++) {
        hcp_clocks_read(d->nvml, &before);
        rc = hcp_measure(&rule, take, d, &hcp_device_cancel, &s, err);
        hcp_clocks_read(d->nvml, &after);
        if (rc != HCP_OK)
            return rc;
        bad = before.throttle_reasons < 0 || after.throttle_reasons < 0
                  ? 0
                  : (before.throttle_reasons | after.throttle_reasons) &
                        HCP_THROTTLE_REJECT;
        if (!bad || d->allow_throttled)
            break;
        hcp_samples_free(&s);
        if (try == 2)
            return hcp_fail(err, HCP_FAILED,
                            "all samples throttled (reasons 0x%llx, %.0f C): cool the "
                            "GPU, or keep them with --allow-throttled",
                            (unsigned long long)bad, after.temperature_c);
        struct timespec cool = {2, 0};
        nanosleep(&cool, NULL);
    }
    if (rc != HCP_OK)
        return rc;
    d->warmed = 1;
    hcp_cell_facts_init(facts);
    hcp_bench_facts(&d->bench, d->plan, facts);
    strcpy(facts->method, d->n_graphs > 0 ? "graph" : "event");
    strcpy(facts->stop_reason, s.stop_reason);
    if (bad)
        snprintf(facts->note, sizeof facts->note, "throttled (0x%llx), kept on request",
                 (unsigned long long)bad);
    facts->n = s.n;
    fill_clocks(d, &before, &after, &s, facts);
    if (d->cupti)
        cross_check(d, quick_median(&s), facts);
    *samples = s.ms;
    return HCP_OK;
}

static void cuda_close(hcp_device *device)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (!d)
        return;
    /* An MPS client that ends with work in flight can take the server along. */
    cudaDeviceSynchronize();
    drop_graphs(d);
    for (int i = 0; i < 2 * EVENTS; i++)
        if (d->events[i])
            cudaEventDestroy(d->events[i]);
    cudaFreeHost(d->hold);
    hcp_nvml_close(d->nvml);
    hcp_bench_close(&d->bench);
    free(d);
}

const struct hcp_device_ops hcp_device_cuda_ops = {
    .kind = "cuda",
    .in_worker = 1,
    .open = cuda_open,
    .check = cuda_check,
    .prepare = cuda_prepare,
    .time = cuda_time,
    .close = cuda_close,
};
