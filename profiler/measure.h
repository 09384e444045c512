/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm-up and stop rule of one cell, the same on every device. The device says how
 * one sample is taken; this decides how many.
 */
#ifndef HCP_MEASURE_H
#define HCP_MEASURE_H
#include <signal.h>
#include "db/error.h"

/* What a device that can see its clocks adds to a rule. */
struct hcp_measure_hooks {
    /* After each warm-up run past warmup_s: whether the clocks stand still. warm_s: run
     * so far; run_ms: what the last run took. */
    int (*steady)(void *ctx, double warm_s, double run_ms);
    void (*begin)(void *ctx); /* the first sample comes next */
    void *ctx;
};

struct hcp_measure_rule {
    double warmup_s;   /* run untimed for at least this long, and at least once */
    double ran_ms;     /* > 0: a run before took this; it counts where it is as long */
    double min_time_s; /* and take samples for at least this long */
    double cap_s;      /* stop here with what there is, but not below few_samples */
    double noise;      /* stop when the median is this sure (hcp_stats.noise) */
    int min_samples;   /* samples before noise may stop the cell */
    int few_samples;   /* samples a large slow cell may stop with */
    int max_samples;
    int fixed_warmup;                      /* warm up for warmup_s, steady or not */
    double steady_cap_s;                   /* steady or not, end the warm-up after this */
    const struct hcp_measure_hooks *hooks; /* NULL: none */
};

/* The defaults: 25 ms, 30 ms, 2 s, 0.5 %, 10, 3, 400; steady within 0.3 s. */
void hcp_measure_defaults(struct hcp_measure_rule *rule);

struct hcp_samples {
    double *ms; /* in the order taken; malloc'ed, free with hcp_samples_free */
    int n;
    char stop_reason[16];    /* "noise" "settled" "cap" "few" */
    double warmup_s, wall_s; /* time spent before and on the samples */
    double warm_ms;          /* time of the last warm-up run: what a sample will take */
};
void hcp_samples_free(struct hcp_samples *samples);

/* Takes n samples into ms; n >= 1. */
typedef int (*hcp_sample_fn)(void *ctx, int n, double *ms, struct hcp_err *err);

/* Warms up, then samples until the rule stops it. HCP_FAILED when the device failed
 * or *cancel became non-zero (NULL: never); then samples is empty. */
int hcp_measure(const struct hcp_measure_rule *rule, hcp_sample_fn take, void *ctx,
                const volatile sig_atomic_t *cancel, struct hcp_samples *samples,
                struct hcp_err *err);

/* Seconds of the monotonic clock. */
double hcp_now_s(void);

#endif
