/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/measure.h"
#include "profiler/stats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double hcp_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void hcp_measure_defaults(struct hcp_measure_rule *rule)
{
    *rule = (struct hcp_measure_rule){.warmup_s = 0.025,
                                      .min_time_s = 0.03,
                                      .cap_s = 2,
                                      .noise = 0.005,
                                      .min_samples = 10,
                                      .few_samples = 3,
                                      .max_samples = 400,
                                      .steady_cap_s = 0.3};
}

void hcp_samples_free(struct hcp_samples *samples)
{
    free(samples->ms);
    *samples = (struct hcp_samples){0};
}

/* Why to stop now, or NULL. */
static const char *stop_reason(const struct hcp_measure_rule *rule,
                               const struct hcp_samples *s, double elapsed_s)
{
    if (elapsed_s >= rule->cap_s && s->n >= rule->few_samples)
        return s->n < rule->min_samples ? "few" : "cap";
    int full = s->n >= rule->max_samples;
    if (!full && (s->n < rule->min_samples || elapsed_s < rule->min_time_s))
        return NULL;
    struct hcp_stats now, half;
    if (hcp_stats_summary(s->ms, s->n, &now) != 0)
        return NULL;
    if (now.noise <= rule->noise)
        return "noise";
    if (s->n >= 4 * rule->min_samples && hcp_stats_summary(s->ms, s->n / 2, &half) == 0 &&
        hcp_stats_settled(now.noise, half.noise))
        return "settled";
    return full ? "cap" : NULL;
}

static int cancelled(const volatile sig_atomic_t *cancel, struct hcp_err *err)
{
    return cancel && *cancel ? hcp_fail(err, HCP_FAILED, "stopped") : HCP_OK;
}

/* About 10 ms of samples at a time, so that short blocks are not dominated by the loop
 * and long ones can be stopped early. */
static int batch(double ms)
{
    return (int)fmin(16, fmax(1, 10 / fmax(ms, 1e-3)));
}

/* The warm-up may end: it was long enough, and the clocks stand still. */
static int is_warm(const struct hcp_measure_rule *rule, double warm_s, double run_ms)
{
    if (warm_s < rule->warmup_s)
        return 0;
    const struct hcp_measure_hooks *hooks = rule->hooks;
    if (!hooks || !hooks->steady || rule->fixed_warmup || warm_s >= rule->steady_cap_s)
        return 1;
    return hooks->steady(hooks->ctx, warm_s, run_ms);
}

int hcp_measure(const struct hcp_measure_rule *rule, hcp_sample_fn take, void *ctx,
                const volatile sig_atomic_t *cancel, struct hcp_samples *samples,
                struct hcp_err *err)
{
    int rc, room = rule->max_samples + 16;
    struct hcp_samples s = {.ms = malloc((size_t)room * sizeof(double))};
    if (!s.ms)
        return hcp_fail(err, HCP_FAILED, "out of memory for %d samples", room);
    double start = hcp_now_s();
    int warm = rule->ran_ms > 0 && is_warm(rule, rule->ran_ms / 1e3, rule->ran_ms);
    s.warm_ms = warm ? rule->ran_ms : 0;
    while (!warm) {
        /* As samples are taken, where that matters: launches one by one leave gaps. */
        int want = rule->hooks && s.warm_ms > 0 ? batch(s.warm_ms) : 1;
        rc = cancelled(cancel, err);
        if (rc == HCP_OK)
            rc = take(ctx, want, s.ms, err);
        s.warm_ms = s.ms[0];
        if (rc != HCP_OK)
            goto fail;
        s.warmup_s = hcp_now_s() - start;
        warm = is_warm(rule, s.warmup_s + rule->ran_ms / 1e3, s.warm_ms);
    }

    if (rule->hooks && rule->hooks->begin)
        rule->hooks->begin(rule->hooks->ctx);
    start = hcp_now_s();
    const char *why = NULL;
    while (!why) {
        int want = batch(s.warm_ms);
        if (s.n + want > room)
            want = room - s.n;
        rc = cancelled(cancel, err);
        if (rc == HCP_OK)
            rc = take(ctx, want, s.ms + s.n, err);
        if (rc != HCP_OK)
            goto fail;
        s.n += want;
        s.wall_s = hcp_now_s() - start;
        why = stop_reason(rule, &s, s.wall_s);
    }
    strcpy(s.stop_reason, why);
    *samples = s;
    return HCP_OK;
fail:
    free(s.ms);
    *samples = (struct hcp_samples){0};
    return rc;
}
