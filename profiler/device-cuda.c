/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA GPU, in a worker whose environment holds the limit. Times are CUDA events
 * on a stream that is held back until everything is queued; short blocks run as
 * nodes of a graph. Every run reads inputs that the L2 no longer holds.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "kernels/cuda.h"
#include "profiler/bench.h"
#include "profiler/cuda-timer.h"
#include "profiler/cupti.h"
#include "profiler/limiter.h"
#include "profiler/stats.h"
#include "profiler/watch.h"

enum { OUT_OF_MEMORY = 2 }; /* cudaErrorMemoryAllocation */

struct cuda_device {
    hcp_device base;
    struct hcp_bench bench;
    struct hcp_bench_plan *plan;
    struct hcp_cuda_timer timer;
    hcp_green *green;       /* NULL: no green context */
    struct hcp_watch watch; /* with NVML, if that can be had */
    int cupti;              /* 1: usable */
    int warmed;             /* the first shape has brought the clocks up */
    char note[160];
};

static void fill_info(const hcp_cuda_info *cuda, struct hcp_device_info *info)
{
    snprintf(info->name, sizeof info->name, "%.95s", cuda->name);
    snprintf(info->uuid, sizeof info->uuid, "%s", cuda->uuid);
    hcp_device_slug(cuda->name, info->slug, sizeof info->slug);
    strcpy(info->origin, "measured");
    strcpy(info->limit_kind, "mps");
    info->drifts = 1;
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

/* What green contexts there are, or why there are none. */
static void fill_green(int ordinal, struct hcp_device_info *info)
{
    struct hcp_green_rule rule = {0};
    struct hcp_err why;
    if (hcp_green_rule(ordinal, &rule, &why) != HCP_OK)
        snprintf(info->no_green, sizeof info->no_green, "%.239s", why.text);
    info->green_min = rule.min;
    info->green_step = rule.step;
    info->green_most = rule.most;
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
        fill_green(i, info);
        hcp_nvml_close(hcp_nvml_open(cuda.uuid, driver, why, sizeof why));
        if (*driver)
            strcpy(info->driver, driver);
    }
    return HCP_OK;
}

/* The limit is what this process says it is; a green context is made here. */
static int prove_limit(const struct hcp_device_config *config, int ordinal,
                       const hcp_cuda_info *cuda, struct cuda_device *d,
                       hcp_device_ref *ref, struct hcp_err *err)
{
    struct hcp_device_info *info = &d->base.info;
    char kind[8] = "";
    int32_t value = 100;
    int rc = hcp_parse_limit(config->limit, kind, &value, err);
    if (rc != HCP_OK)
        return rc;
    if (!*kind && cuda->mps_enabled)
        return hcp_fail(err, HCP_FAILED,
                        "the whole device is asked for, but this process is a client of "
                        "an MPS daemon");
    if (!*kind)
        return HCP_OK;
    if (strcmp(kind, "green") == 0) {
        rc = hcp_green_limit(ordinal, value, cuda->mps_enabled, &d->green, err);
        if (rc == HCP_OK)
            ref->sm_count = info->sm_seen = value;
        return rc;
    }
    if (strcmp(kind, "mps") != 0)
        return hcp_fail(err, HCP_USAGE,
                        "limit '%s' is not one of a CUDA GPU; use mps:PCT or green:SMS",
                        config->limit);
    if (config->sm_count > 0)
        info->sm_count = config->sm_count;
    return hcp_mps_prove(value, cuda->mps_enabled, cuda->sm_count, info->sm_count,
                         config->mps_pipe, config->mps_log, err);
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
    d->watch = (struct hcp_watch){.take = hcp_cuda_timer_take,
                                  .ctx = &d->timer,
                                  .allow_throttled = config->allow_throttled};
    fill_info(&cuda, info);
    info->peak_tflops = hcp_peak_tflops(info->slug, config->dtype);
    if (!*config->mps_pipe)
        fill_green((int)ordinal, info);
    const hcp_runtime *runtime = hcp_runtime_cuda();
    int rc = HCP_OK;
    if (runtime->select((int)ordinal) != HCP_RC_OK)
        rc = hcp_fail(err, HCP_FAILED, "%s", runtime->last_error());
    if (rc == HCP_OK)
        rc = prove_limit(config, (int)ordinal, &cuda, d, &ref, err);
    if (rc == HCP_OK)
        rc = hcp_bench_open(&d->bench, config, runtime, &ref, 2 * cuda.l2_bytes, info,
                            err);
    if (rc != HCP_OK) {
        hcp_green_unlimit(d->green);
        free(d);
        return rc;
    }
    char driver[32] = "";
    d->watch.nvml = hcp_nvml_open(cuda.uuid, driver, d->note, sizeof d->note);
    if (*driver)
        strcpy(info->driver, driver);
    if (!config->no_cupti)
        d->cupti = hcp_cupti_open(why, sizeof why) == 0;
    if (!d->cupti && !config->no_cupti && !*d->note)
        snprintf(d->note, sizeof d->note, "%.150s", why);
    strcpy(info->note, d->note);
    rc = hcp_cuda_timer_open(&d->timer, &d->bench, err);
    d->timer.meanwhile = hcp_watch_look;
    d->timer.meanwhile_ctx = &d->watch;
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

static int cuda_prepare(hcp_device *device, const struct hcp_cell_request *cell,
                        struct hcp_err *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    hcp_cuda_timer_reset(&d->timer);
    int rc = hcp_bench_prepare(&d->bench, cell, &d->plan, err);
    int code = rc != HCP_OK ? hcp_cuda_last_code() : 0;
    if (hcp_cuda_is_mps_error(code))
        d->base.lost = HCP_DEVICE_LOST_RETRY;
    else if (code != 0 && code != OUT_OF_MEMORY) /* stays with the process */
        d->base.lost = HCP_DEVICE_LOST;
    return rc;
}

/* Three launches with CUPTI watching, one of a slow block, after the timing: its kernel
 * time, and a word when it and the events differ. */
static void cross_check(struct cuda_device *d, double event_ms,
                        struct hcp_cell_facts *facts)
{
    int runs = event_ms >= HCP_SLOW_MS ? 1 : 3, kernels = 0, dropped = 0;
    double total_ms = 0;
    if (hcp_cupti_begin() != 0) {
        d->cupti = 0;
        return;
    }
    int rc = HCP_RC_OK;
    for (int i = 0; i < runs && rc == HCP_RC_OK; i++)
        rc = hcp_bench_run(&d->bench, d->plan);
    int e = hcp_cuda_timer_sync(&d->timer);
    int ended = hcp_cupti_end(&kernels, &total_ms, &dropped);
    if (rc != HCP_RC_OK || e != 0 || ended != 0)
        return;
    size_t n = strlen(facts->note);
    if (kernels == 0 || kernels % runs != 0 || dropped > 0) {
        snprintf(facts->note + n, sizeof facts->note - n,
                 "%sCUPTI lost records: %d kernels of %d runs", n ? "; " : "", kernels,
                 runs);
        return;
    }
    facts->cupti_ms = total_ms / runs;
    /* Between events or nodes lie a microsecond or two in which no kernel runs. */
    double off_ms = event_ms - facts->cupti_ms;
    if (fabs(off_ms) > fmax(0.02 * facts->cupti_ms, 0.002))
        snprintf(facts->note + n, sizeof facts->note - n,
                 "%s%s %+.1f %% from CUPTI's %.5g ms in %d kernel%s a run", n ? "; " : "",
                 facts->method, 100 * off_ms / facts->cupti_ms, facts->cupti_ms,
                 kernels / runs, kernels == runs ? "" : "s");
}

static void fill_clocks(const struct hcp_watched *seen, double median_ms,
                        struct hcp_cell_facts *facts)
{
    facts->sm_clock_mhz = seen->sm_mhz;
    facts->mem_clock_mhz = seen->mem_mhz;
    facts->temperature_c = seen->temperature_c;
    facts->power_w = seen->power_w;
    facts->throttle_reasons = seen->throttle_reasons;
    if (seen->by_counter) /* of one run */
        facts->energy_j = seen->power_w * median_ms / 1e3;
    strcpy(facts->note, seen->note);
}

/* Samples under watch; facts say why, and under which clocks, there are none. */
static int sample(struct cuda_device *d, struct hcp_measure_rule *rule,
                  struct hcp_samples *s, struct hcp_watched *seen,
                  struct hcp_cell_facts *facts, struct hcp_err *err)
{
    int rc = hcp_watch_measure(&d->watch, rule, &hcp_device_cancel, s, seen, err);
    if (rc != HCP_OK && seen->rejected > 0) {
        fill_clocks(seen, NAN, facts);
        strcpy(facts->stop_reason, HCP_STOP_THROTTLED);
    }
    return rc;
}

/* Median of the runs that leave accumulating out, for a plan that measures the rest. */
static int time_without(struct cuda_device *d, struct hcp_measure_rule *rule,
                        struct hcp_cell_facts *facts, double *ms, struct hcp_err *err)
{
    struct hcp_samples s = {0};
    struct hcp_stats stats = {.median = NAN};
    struct hcp_watched seen;
    d->plan->leave_out = 1;
    int rc = hcp_cuda_timer_begin(&d->timer, d->plan, err);
    if (rc == HCP_OK)
        rc = sample(d, rule, &s, &seen, facts, err);
    if (rc == HCP_OK)
        hcp_stats_summary(s.ms, s.n, &stats);
    *ms = stats.median;
    hcp_samples_free(&s);
    hcp_cuda_timer_reset(&d->timer);
    d->plan->leave_out = 0;
    return rc;
}

static int cuda_time(hcp_device *device, const struct hcp_cell_request *cell,
                     struct hcp_cell_facts *facts, double **samples, struct hcp_err *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct hcp_measure_rule rule = cell->rule;
    struct hcp_samples s = {0};
    struct hcp_stats stats = {.median = NAN};
    struct hcp_watched seen = {.rejected = 0};
    double without_ms = 0, boosted_s = 0;
    int rc = HCP_OK;
    hcp_cell_facts_init(facts);
    d->timer.expect_ms = cell->expect_ms;
    if (!d->warmed || cell->boosted) { /* from idle clocks, or to them and back */
        rule.warmup_s = fmax(rule.warmup_s, 0.5);
        rule.steady_cap_s = 3;
    }
    if (d->plan->without)
        rc = time_without(d, &rule, facts, &without_ms, err);
    if (rc == HCP_OK)
        rc = hcp_cuda_timer_begin(&d->timer, d->plan, err);
    rule.ran_ms = d->timer.first_ms >= HCP_SLOW_MS ? d->timer.first_ms : 0;
    if (rc == HCP_OK && cell->boosted && !d->plan->without) {
        rc = hcp_watch_boosted(&d->watch, &hcp_device_cancel, &facts->boosted_ms,
                               &boosted_s, err);
        rule.ran_ms = 1e3 * boosted_s;
    }
    if (rc == HCP_OK)
        rc = sample(d, &rule, &s, &seen, facts, err);
    if (d->timer.lost)
        d->base.lost = d->timer.lost;
    if (rc != HCP_OK)
        return rc;
    d->warmed = 1;
    hcp_bench_facts(&d->bench, d->plan, facts);
    strcpy(facts->method, d->timer.n_graphs > 0 ? "graph" : "event");
    strcpy(facts->stop_reason, s.stop_reason);
    facts->n = s.n;
    /* Not below what the two medians can tell: the line that is fitted over the lengths
     * weighs relative errors, so that one of nearly 0 would outweigh all others. */
    double least_ms = fmax(rule.noise, 1e-3) * without_ms;
    for (int i = 0; d->plan->without && i < s.n; i++)
        s.ms[i] = fmax(s.ms[i] - without_ms, least_ms);
    hcp_stats_summary(s.ms, s.n, &stats);
    fill_clocks(&seen, stats.median, facts);
    if (d->cupti && !d->plan->without)
        cross_check(d, stats.median, facts);
    *samples = s.ms;
    return HCP_OK;
}

static void cuda_close(hcp_device *device)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (!d)
        return;
    /* An MPS client that ends with work in flight can take the server along. */
    hcp_cuda_timer_settle();
    hcp_cuda_timer_close(&d->timer);
    hcp_nvml_close(d->watch.nvml);
    hcp_bench_close(&d->bench);
    hcp_green_unlimit(d->green);
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
