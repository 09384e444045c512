/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks, power and energy of a real GPU while it works: what NVML says is plausible,
 * what it costs to ask, and a block's watch finds what the counters say. TRACE=FILE: a
 * line for each launch from idle on, for the eye. TAP; skips without a GPU or NVML.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/cuda.h"
#include "profiler/bench.h"
#include "profiler/cuda-timer.h"
#include "profiler/stats.h"
#include "profiler/watch.h"
#include "tests/gpu-tap.h"

struct gpu {
    struct hcp_bench bench;
    struct hcp_cuda_timer timer;
    struct hcp_watch watch;
};

static void rest(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(1e9 * fmod(s, 1))}, NULL);
}

/* 1 opened, 0 there is none. */
static int open_gpu(struct gpu *g)
{
    hcp_device_ref ref = {.size = sizeof ref};
    hcp_cuda_info cuda = {.size = sizeof cuda};
    struct hcp_device_config config = {
        .batch = 1, .heads = 32, .kv_heads = 8, .head_dim = 128};
    struct hcp_device_info info = {.sm_count = 0};
    struct hcp_err err = {0};
    char why[700] = "", driver[32] = "";
    strcpy(config.dtype, "bf16");
    strcpy(config.phase, "prefill");
    if (hcp_cuda_device(0, &ref, &cuda, why, sizeof why) != HCP_RC_OK) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    hcp_nvml *nvml = hcp_nvml_open(cuda.uuid, driver, why, sizeof why);
    if (!nvml) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    const hcp_runtime *runtime = hcp_runtime_cuda();
    if (runtime->select(0) != HCP_RC_OK ||
        hcp_bench_open(&g->bench, &config, runtime, &ref, 2 * cuda.l2_bytes, &info,
                       &err) != HCP_OK ||
        hcp_cuda_timer_open(&g->timer, &g->bench, &err) != HCP_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    note("%s, driver %s, kernel %s %s", cuda.name, driver, info.provider,
         info.provider_version);
    g->watch =
        (struct hcp_watch){.nvml = nvml, .take = hcp_cuda_timer_take, .ctx = &g->timer};
    return 1;
}

static void prepare(struct gpu *g, int64_t len)
{
    struct hcp_cell_request cell = {.q_len = len, .kv_len = len};
    struct hcp_bench_plan *plan = NULL;
    struct hcp_err err = {0};
    strcpy(cell.mask, "full");
    hcp_cuda_timer_reset(&g->timer);
    if (hcp_bench_prepare(&g->bench, &cell, &plan, &err) != HCP_OK ||
        hcp_cuda_timer_begin(&g->timer, plan, &err) != HCP_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
}

static double cost_ms(struct gpu *g, void (*read)(hcp_nvml *, struct hcp_clocks *))
{
    struct hcp_clocks c;
    double start = hcp_now_s();
    for (int i = 0; i < 20; i++)
        read(g->watch.nvml, &c);
    return 1e3 * (hcp_now_s() - start) / 20;
}

/* Launches for so many seconds after a rest; medians of the first 100 ms, of the first
 * second and of the last half are printed. */
static void trace(struct gpu *g, int64_t len, double rest_s, double run_s, FILE *to)
{
    enum { MOST = 20000 };
    double *ms = malloc(MOST * sizeof *ms), at_s[3] = {0.1, 1, run_s / 2};
    int n = 0, until[3] = {0}, looks = 0, moves = 0;
    struct hcp_clocks c = {.sm_mhz = NAN, .energy_j = NAN}, last;
    double look_s = -1, first_j = NAN, first_s = 0, last_j = NAN, last_s = 0, sum_w = 0;
    prepare(g, len);
    rest(rest_s);
    double start = hcp_now_s();
    for (double t = 0; t < run_s && n < MOST && ms; t = hcp_now_s() - start) {
        struct hcp_err err = {0};
        if (hcp_cuda_timer_take(&g->timer, 1, ms + n, &err) != HCP_OK) {
            ok(0, "launches of %lld: %s", (long long)len, err.text);
            break;
        }
        n++;
        for (int i = 0; i < 3; i++)
            until[i] += t < at_s[i];
        double now = hcp_now_s() - start;
        if (now - look_s >= 0.1) { /* each look rests the GPU */
            last = c;
            hcp_clocks_read(g->watch.nvml, &c);
            look_s = now;
            sum_w += c.power_w;
            looks++;
            if (c.energy_j != last.energy_j && !isnan(last.energy_j)) {
                moves++;
                if (isnan(first_j) && now > 0.3) {
                    first_j = c.energy_j;
                    first_s = now;
                }
                last_j = c.energy_j;
                last_s = now;
            }
        }
        if (to)
            fprintf(to, "%lld,%.2f,%.4f,%.5f,%.0f,%.1f,%.3f,%.0f,0x%llx\n",
                    (long long)len, rest_s, now, ms[n - 1], c.sm_mhz, c.power_w,
                    c.energy_j, c.temperature_c, (unsigned long long)c.throttle_reasons);
    }
    struct hcp_stats s[3];
    hcp_stats_summary(ms, until[0], &s[0]);
    hcp_stats_summary(ms, until[1], &s[1]);
    hcp_stats_summary(ms + until[2], n - until[2], &s[2]);
    double w = (last_j - first_j) / (last_s - first_s);
    note("%lld after %.1f s of rest: %.4g ms in 0.1 s, %.4g in 1 s, %.4g after %.1f s; "
         "SM clock %.0f MHz at the end, energy %.0f W by the counter (moved %d times in "
         "%.2f s), %.0f W by power",
         (long long)len, rest_s, s[0].median, s[1].median, s[2].median, at_s[2], c.sm_mhz,
         w, moves, run_s, sum_w / looks);
    ok(c.sm_mhz > 100 && c.sm_mhz <= c.max_sm_mhz, "%lld: SM clock %.0f of %.0f MHz",
       (long long)len, c.sm_mhz, c.max_sm_mhz);
    ok(c.temperature_c > 5 && c.temperature_c < 110 && c.mem_mhz > 100 &&
           c.throttle_reasons >= 0 && !(c.throttle_reasons & 1),
       "%lld: %.0f C, memory at %.0f MHz, reasons 0x%llx: not idle", (long long)len,
       c.temperature_c, c.mem_mhz, (unsigned long long)c.throttle_reasons);
    /* Power of the moment swings between 150 and 775 W from one reading to the next. */
    ok(w > 50 && w < 2000 && moves >= (int)(5 * run_s),
       "%lld: the energy counter moves, and tells a power", (long long)len);
    free(ms);
}

/* The watch of a block against what was just traced. */
static void watched(struct gpu *g, int64_t len)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s = {0};
    struct hcp_watched seen;
    struct hcp_stats stats = {.median = NAN};
    struct hcp_err err = {0};
    hcp_measure_defaults(&rule);
    prepare(g, len);
    rest(0.5);
    int rc = hcp_watch_measure(&g->watch, &rule, NULL, &s, &seen, &err);
    if (!ok(rc == HCP_OK || seen.rejected > 0, "%lld under watch%s%s", (long long)len,
            rc == HCP_OK ? "" : ": ", rc == HCP_OK ? "" : err.text))
        return;
    hcp_stats_summary(s.ms, s.n, &stats);
    note("%lld under watch: %.5g ms, %d samples in %.0f ms after %.0f ms of warm-up, "
         "%.0f MHz, %.0f W%s, reasons 0x%llx, %s",
         (long long)len, stats.median, s.n, 1e3 * s.wall_s, 1e3 * s.warmup_s, seen.sm_mhz,
         seen.power_w, seen.by_counter ? " by the counter" : "",
         (unsigned long long)seen.throttle_reasons, seen.note);
    ok(seen.sm_mhz > 100 && seen.power_w > 50 && seen.throttle_reasons >= 0,
       "%lld: clocks, power and reasons are known", (long long)len);
    hcp_samples_free(&s);
}

int main(void)
{
    static struct gpu g;
    if (!open_gpu(&g))
        return 0;
    const char *path = getenv("TRACE");
    FILE *to = path ? fopen(path, "w") : NULL;
    if (to)
        fputs("len,rest_s,at_s,ms,sm_mhz,power_w,energy_j,celsius,reasons\n", to);
    prepare(&g, 1024);
    double all = cost_ms(&g, hcp_clocks_read), glance = cost_ms(&g, hcp_clocks_glance);
    note("reading NVML takes %.3f ms, a glance %.3f ms", all, glance);
    ok(glance < 5, "a glance at NVML is short");
    trace(&g, 16384, 2, 3, to);
    trace(&g, 16384, 0.5, 1.5, to);
    trace(&g, 1024, 0.5, 1, to);
    watched(&g, 16384);
    watched(&g, 4096);
    watched(&g, 1024);
    watched(&g, 256);
    if (to)
        fclose(to);
    hcp_cuda_timer_settle();
    hcp_cuda_timer_close(&g.timer);
    hcp_bench_close(&g.bench);
    hcp_nvml_close(g.watch.nvml);
    return tap_done();
}
