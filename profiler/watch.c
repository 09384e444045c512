/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/watch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "profiler/stats.h"

enum { TRIES = 3, MAX_BOOSTED = 4096 };
#define LOOK_PART 0.1   /* of the time goes into reading, at most */
#define STEADY 0.005    /* of two means */
#define FULL_CLOCK 0.95 /* of the highest: thermal slowdown does not show */
#define COUNTER_S 1.0   /* the energy counter of an H200 moves every 0.1 s */

static void rest(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(1e9 * fmod(s, 1))}, NULL);
}

void hcp_watch_look(void *watch)
{
    struct hcp_watch *w = watch;
    double now = hcp_now_s();
    if (!w->nvml || !w->sampling || !w->may_look ||
        now - w->look_s < w->cost_s / LOOK_PART)
        return;
    struct hcp_clocks c;
    hcp_clocks_glance(w->nvml, &c);
    w->look_s = hcp_now_s();
    w->cost_s = w->look_s - now;
    if (!isnan(c.sm_mhz)) {
        w->sum_mhz += c.sm_mhz;
        w->n_mhz++;
    }
    if (c.throttle_reasons >= 0)
        w->reasons |= c.throttle_reasons;
}

/* A run of the warm-up that has just ended. Where there is no more room each two places
 * become one, and later runs share a place too: all of the warm-up stays in view, however
 * short its runs are. */
static void note_run(struct hcp_watch *w, double ms)
{
    const int room = sizeof w->at_s / sizeof *w->at_s;
    w->sum_ms += ms;
    if (++w->n_sum < w->share)
        return;
    w->at_s[w->n_runs] = hcp_now_s();
    w->ms[w->n_runs++] = w->sum_ms / w->n_sum;
    w->sum_ms = w->n_sum = 0;
    if (w->n_runs < room)
        return;
    for (int i = 0; i < room / 2; i++) {
        w->at_s[i] = w->at_s[2 * i + 1];
        w->ms[i] = (w->ms[2 * i] + w->ms[2 * i + 1]) / 2;
    }
    w->n_runs = room / 2;
    w->share *= 2;
}

static int take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct hcp_watch *w = ctx;
    double sum = 0;
    w->may_look = n * w->last_ms >= HCP_LOOK_MS;
    int rc = w->take(w->ctx, n, ms, err);
    for (int i = 0; i < n && rc == HCP_OK; i++)
        sum += ms[i];
    w->last_ms = sum / n;
    if (rc == HCP_OK && !w->sampling)
        note_run(w, w->last_ms);
    return rc;
}

/* Mean time of the runs that ended in the part from..to of the warm-up; NaN: none. */
static double mean_ms(const struct hcp_watch *w, double from, double to)
{
    double sum = 0, passed_s = hcp_now_s() - w->began_s;
    int n = 0;
    for (int i = 0; i < w->n_runs; i++) {
        double part = (w->at_s[i] - w->began_s) / passed_s;
        if (part >= from && part <= to) {
            sum += w->ms[i];
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

/* Clocks that fall towards a limit take longer the further they have come, so that no
 * fixed wait will do: the third and the fourth quarter of the warm-up must look alike.
 * Times tell what clocks do, and cost nothing to read. */
static int is_steady(void *ctx, double warm_s, double run_ms)
{
    const struct hcp_watch *w = ctx;
    if (run_ms >= HCP_SUSTAIN_MS && warm_s < HCP_SUSTAIN_S)
        return 0;
    if (w->n_runs == 0) /* a run before took all the time there is */
        return 1;
    double third = mean_ms(w, 0.5, 0.75), fourth = mean_ms(w, 0.75, 1);
    return fabs(fourth - third) <= STEADY * fourth; /* not if one is not known */
}

static void begin(void *ctx)
{
    ((struct hcp_watch *)ctx)->sampling = 1;
}

/* busy_s: what lies between before and after. */
static void summarise(const struct hcp_watch *w, const struct hcp_clocks *before,
                      const struct hcp_clocks *after, double busy_s,
                      struct hcp_watched *out)
{
    *out = (struct hcp_watched){.sm_mhz = after->sm_mhz,
                                .max_sm_mhz = after->max_sm_mhz,
                                .mem_mhz = after->mem_mhz,
                                .temperature_c = after->temperature_c,
                                .power_w = after->power_w,
                                .throttle_reasons = -1};
    if (w->n_mhz > 0)
        out->sm_mhz = w->sum_mhz / w->n_mhz;
    if (busy_s >= COUNTER_S && after->energy_j > before->energy_j) {
        out->power_w = (after->energy_j - before->energy_j) / busy_s;
        out->by_counter = 1;
    }
    if (before->throttle_reasons >= 0 && after->throttle_reasons >= 0)
        /* Bit 0 is "idle", true before any cell. */
        out->throttle_reasons =
            (before->throttle_reasons | w->reasons | after->throttle_reasons) &
            ~(int64_t)1;
}

/* Samples of a card that something other than its power limit slowed down. */
static int is_throttled(const struct hcp_watched *seen)
{
    int64_t reasons = seen->throttle_reasons;
    if (reasons < 0)
        return 0;
    if (reasons & HCP_THROTTLE_HARDWARE)
        return 1;
    /* Unknown clocks compare false: not shown to be full. */
    return (reasons & HCP_THROTTLE_THERMAL) &&
           !(seen->sm_mhz >= FULL_CLOCK * seen->max_sm_mhz);
}

/* Seconds a throttled card rests: $HCP_COOL_WAIT, or 2. */
static double cool_s(void)
{
    const char *text = getenv("HCP_COOL_WAIT");
    return text && *text ? atoi(text) : 2;
}

static void describe(const struct hcp_watched *seen, char *text, size_t size)
{
    int n = snprintf(text, size, "reasons 0x%llx",
                     (unsigned long long)seen->throttle_reasons);
    if (!isnan(seen->temperature_c) && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, ", %.0f C", seen->temperature_c);
    if (!isnan(seen->sm_mhz) && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, ", SM clock %.0f MHz", seen->sm_mhz);
    if (!isnan(seen->max_sm_mhz) && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " of %.0f", seen->max_sm_mhz);
}

int hcp_watch_measure(struct hcp_watch *watch, struct hcp_measure_rule *rule,
                      const volatile sig_atomic_t *cancel, struct hcp_samples *samples,
                      struct hcp_watched *out, struct hcp_err *err)
{
    struct hcp_watch *w = watch;
    struct hcp_measure_hooks hooks = {is_steady, begin, w};
    int rejected = 0;
    char what[96];
    rule->hooks = &hooks;
    for (int try = 0; try < TRIES; try++) {
        struct hcp_clocks before, after;
        if (try > 0)
            rest(cool_s());
        w->n_runs = w->n_sum = w->n_mhz = w->sampling = 0;
        w->share = 1;
        w->sum_ms = w->sum_mhz = w->last_ms = 0;
        w->look_s = -INFINITY;
        w->reasons = 0;
        hcp_clocks_glance(w->nvml, &before);
        w->began_s = hcp_now_s();
        int rc = hcp_measure(rule, take, w, cancel, samples, err);
        double busy_s = hcp_now_s() - w->began_s;
        hcp_clocks_read(w->nvml, &after);
        summarise(w, &before, &after, busy_s, out);
        out->rejected = rejected;
        rule->hooks = NULL;
        if (rc != HCP_OK) {
            out->rejected = 0;
            return rc;
        }
        describe(out, what, sizeof what);
        if (!is_throttled(out)) {
            if (out->throttle_reasons > 0 && out->throttle_reasons & HCP_THROTTLE_THERMAL)
                snprintf(out->note, sizeof out->note, "slowdown without effect (%s)",
                         what);
            return HCP_OK;
        }
        if (w->allow_throttled) {
            snprintf(out->note, sizeof out->note, "throttled (0x%llx), kept on request",
                     (unsigned long long)out->throttle_reasons);
            return HCP_OK;
        }
        rule->hooks = &hooks;
        rule->ran_ms = 0; /* it has rested since */
        out->rejected = rejected += samples->n;
        hcp_samples_free(samples);
    }
    rule->hooks = NULL;
    return hcp_fail(err, HCP_FAILED,
                    "all %d samples rejected: the GPU was throttled (%s); cool it and "
                    "use --retry-failed, or keep them with --allow-throttled",
                    rejected, what);
}

int hcp_watch_boosted(struct hcp_watch *watch, const volatile sig_atomic_t *cancel,
                      double *boosted_ms, double *ran_s, struct hcp_err *err)
{
    double *ms = malloc(MAX_BOOSTED * sizeof *ms);
    struct hcp_stats stats = {.median = NAN};
    int n = 0, rc = HCP_OK;
    if (!ms)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    rest(HCP_IDLE_S);
    double start = hcp_now_s();
    do {
        rc = cancel && *cancel ? hcp_fail(err, HCP_FAILED, "stopped")
                               : watch->take(watch->ctx, 1, ms + n, err);
        n += rc == HCP_OK;
        *ran_s = hcp_now_s() - start;
    } while (rc == HCP_OK && n < MAX_BOOSTED && *ran_s < HCP_BOOSTED_S);
    if (rc == HCP_OK)
        hcp_stats_summary(ms, n, &stats);
    *boosted_ms = stats.median;
    free(ms);
    return rc;
}
