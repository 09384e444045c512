/* SPDX-License-Identifier: Apache-2.0
 *
 * This CPU: one core, the kernel in this process, wall-clock time. Runs in a worker
 * whose parent turns the duty cycle; nothing here knows about it except that a
 * sample under a limit must last many of its periods.
 *
 * The limit is proven by what the samples used of a core. Where other programs took
 * the core away (or gave it back in a burst), wall-clock time says nothing about the
 * limit: then the samples are CPU time scaled to it, and the row says so (method
 * "cpu-time").
 */
#include "config.h"
#include "profiler/bench.h"
#include "profiler/limiter.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "db/parse.h"

struct cpu_device {
    hcp_device base;
    struct hcp_bench bench;
    struct hcp_bench_plan *plan;
    int percent;
    int runs;       /* in one sample */
    double *cpu_ms; /* CPU time of each sample taken since reset, warm-up included */
    int n_cpu, room_cpu;
};

static int read_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    int ok = fgets(text, (int)size, f) != NULL;
    fclose(f);
    if (ok)
        text[strcspn(text, "\n")] = '\0';
    return ok;
}

static int64_t last_level_cache(void)
{
    int64_t best = 0;
    for (int i = 0; i < 8; i++) {
        char path[96], text[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!read_line(path, text, sizeof text))
            continue;
        int64_t bytes = strtoll(text, NULL, 10) * (strchr(text, 'M') ? 1 << 20 : 1 << 10);
        if (bytes > best)
            best = bytes;
    }
    return best > 0 ? best : 32 << 20;
}

void hcp_cpu_describe(char name[96], char uuid[64], int64_t *llc_bytes,
                      int64_t *memory_bytes, int *cores)
{
    char line[256], machine[128] = "";
    *name = '\0';
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !*name && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) != 0 || !strchr(line, ':'))
            continue;
        const char *at = strchr(line, ':') + 1;
        snprintf(name, 96, "%.*s", (int)strcspn(at + strspn(at, " \t"), "\n"),
                 at + strspn(at, " \t"));
    }
    if (f)
        fclose(f);
    struct utsname u;
    if (!*name) /* not every architecture prints one */
        snprintf(name, 96, "%.80s CPU", uname(&u) == 0 ? u.machine : "unknown");
    if (!read_line("/etc/machine-id", machine, sizeof machine) || !*machine)
        gethostname(machine, sizeof machine - 1);
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = machine; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    for (const char *c = name; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    snprintf(uuid, 64, "CPU-%016llx", (unsigned long long)h);
    *llc_bytes = last_level_cache();
    *memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    *cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int cpu_open(const struct hcp_device_config *config, hcp_device **out,
                    struct hcp_err *err)
{
    char kind[8] = "";
    int32_t percent = 0;
    int rc = hcp_parse_limit(config->limit, kind, &percent, err);
    if (rc != HCP_OK)
        return rc;
    if (*kind && strcmp(kind, "cpu") != 0)
        return hcp_fail(err, HCP_USAGE, "limit '%s' is not one of a CPU; use cpu:PCT",
                        config->limit);
    struct cpu_device *d = calloc(1, sizeof *d);
    if (!d)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    d->base.ops = &hcp_device_cpu_ops;
    d->percent = *kind ? percent : 100;
    struct hcp_device_info *info = &d->base.info;
    int cores;
    hcp_cpu_describe(info->name, info->uuid, &info->l2_bytes, &info->memory_bytes,
                     &cores);
    hcp_device_slug(info->name, info->slug, sizeof info->slug);
    strcpy(info->origin, "measured");
    strcpy(info->limit_kind, "cpu");
    info->drifts = 1;
    info->sm_count = cores;
    info->sm_seen = 1; /* the kernel's one thread */
    info->peak_tflops = NAN;
    hcp_device_ref ref = {.size = sizeof ref, .kind = HCP_DEVICE_CPU, .sm_count = 1};
    rc = hcp_bench_open(&d->bench, config, hcp_runtime_cpu(), &ref, 2 * info->l2_bytes,
                        info, err);
    if (rc != HCP_OK) {
        free(d);
        return rc;
    }
    *out = &d->base;
    return HCP_OK;
}

static int cpu_check(hcp_device *device, char result[64], struct hcp_err *err)
{
    return hcp_bench_check(&((struct cpu_device *)device)->bench, result, err);
}

static int cpu_prepare(hcp_device *device, const struct hcp_cell_request *cell,
                       struct hcp_err *err)
{
    struct cpu_device *d = (struct cpu_device *)device;
    d->runs = 1;
    return hcp_bench_prepare(&d->bench, cell, &d->plan, err);
}

static double own_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int keep_cpu_ms(struct cpu_device *d, double ms)
{
    if (d->n_cpu == d->room_cpu) {
        int room = d->room_cpu ? 2 * d->room_cpu : 512;
        double *more = realloc(d->cpu_ms, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        d->cpu_ms = more;
        d->room_cpu = room;
    }
    d->cpu_ms[d->n_cpu++] = ms;
    return 0;
}

static int take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct cpu_device *d = ctx;
    for (int i = 0; i < n; i++) {
        double start = hcp_now_s(), cpu = own_cpu_s();
        for (int run = 0; run < d->runs; run++) {
            int rc = hcp_bench_run(&d->bench, d->plan);
            if (rc != HCP_RC_OK)
                return hcp_bench_fail(&d->bench, rc, "run", err);
        }
        ms[i] = 1e3 * (hcp_now_s() - start) / d->runs;
        if (keep_cpu_ms(d, 1e3 * (own_cpu_s() - cpu) / d->runs) != 0)
            return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    return HCP_OK;
}

/* Under a limit one sample is as many runs as fill six periods of the duty cycle:
 * where in the cycle it begins and ends then moves it by a few per cent at most,
 * and evenly to both sides. */
static void choose_runs(struct cpu_device *d, double run_ms)
{
    double want_ms = d->percent < 100 ? 1e3 * HCP_CPU_SAMPLE_S : 0.05;
    d->runs = run_ms >= want_ms ? 1 : (int)ceil(want_ms / fmax(run_ms, 1e-4));
}

/* On a busy machine whoever stops the kernel may itself be late for a while. */
enum { TRIES = 3 };

/* Samples by the rule, and the share of a core that the kernel had in them, per cent. */
static int take_all(struct cpu_device *d, const struct hcp_measure_rule *rule,
                    struct hcp_samples *s, double *share, struct hcp_err *err)
{
    double wall_ms = 0, cpu_ms = 0;
    d->n_cpu = 0;
    int rc = hcp_measure(rule, take, d, &hcp_device_cancel, s, err);
    if (rc != HCP_OK)
        return rc;
    const double *cpu = d->cpu_ms + d->n_cpu - s->n;
    for (int i = 0; i < s->n; i++) {
        wall_ms += s->ms[i];
        cpu_ms += cpu[i];
    }
    *share = 100 * cpu_ms / wall_ms;
    return HCP_OK;
}

static int cpu_time(hcp_device *device, const struct hcp_cell_request *cell,
                    struct hcp_cell_facts *facts, double **samples, struct hcp_err *err)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct hcp_samples s;
    int rc = HCP_OK;
    double first;
    for (int i = 0; i < 2 && rc == HCP_OK; i++) { /* the first one warms the code */
        d->runs = 1;
        d->n_cpu = 0;
        rc = take(d, 1, &first, err);
        if (rc == HCP_OK) /* CPU time: a stop in its midst does not count */
            choose_runs(d, 100 * d->cpu_ms[0] / d->percent);
    }
    double share = 0;
    for (int try = 0; try < TRIES && rc == HCP_OK; try++) {
        if (try > 0)
            hcp_samples_free(&s);
        rc = take_all(d, &cell->rule, &s, &share, err);
        if (d->percent == 100 || share <= 1.5 * d->percent)
            break;
    }
    if (rc != HCP_OK)
        return rc;
    const double *cpu = d->cpu_ms + d->n_cpu - s.n;
    hcp_cell_facts_init(facts);
    hcp_bench_facts(&d->bench, d->plan, facts);
    strcpy(facts->method, "wall");
    if (d->percent < 100 && share > 1.5 * d->percent) {
        hcp_samples_free(&s);
        return hcp_fail(err, HCP_FAILED,
                        "limit cpu:%d not proven: the kernel had %.1f %% of a core",
                        d->percent, share);
    }
    if (fabs(share - d->percent) > 0.1 * d->percent) {
        strcpy(facts->method, "cpu-time");
        for (int i = 0; i < s.n; i++)
            s.ms[i] = 100 * cpu[i] / d->percent;
        snprintf(facts->note, sizeof facts->note,
                 "machine busy, %.0f %% of a core: CPU time scaled to the limit; ",
                 share);
    }
    size_t n = strlen(facts->note);
    snprintf(facts->note + n, sizeof facts->note - n, "a sample is the mean of %d run%s",
             d->runs, d->runs == 1 ? "" : "s");
    strcpy(facts->stop_reason, s.stop_reason);
    facts->n = s.n;
    *samples = s.ms;
    return HCP_OK;
}

static void cpu_close(hcp_device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;
    if (!d)
        return;
    hcp_bench_close(&d->bench);
    free(d->cpu_ms);
    free(d);
}

const struct hcp_device_ops hcp_device_cpu_ops = {
    .kind = "cpu",
    .in_worker = 1,
    .open = cpu_open,
    .check = cpu_check,
    .prepare = cpu_prepare,
    .time = cpu_time,
    .close = cpu_close,
};
