/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks beside a cell: warms up until times stand still, reads clocks before, after
 * and, where that disturbs nothing, during its samples, rejects samples that were
 * throttled, and says what the card did meanwhile. Works without NVML: then everything is
 * unknown, and nothing is rejected.
 */
#ifndef HCP_WATCH_H
#define HCP_WATCH_H
#include "profiler/clocks.h"
#include "profiler/measure.h"

/* Idle before boosted speed is measured, and how long a card is boosted then: an H200
 * meets its power limit within 0.2 s. */
#define HCP_IDLE_S 0.5
#define HCP_BOOSTED_S 0.1
/* Runs of this and more fill a GPU, so that it may meet its power limit: their warm-up is
 * never shorter than HCP_SUSTAIN_S. */
#define HCP_SUSTAIN_MS 0.2
#define HCP_SUSTAIN_S 0.1
/* Reading NVML takes a millisecond a value, and now and then 50 ms, in which the GPU
 * would rest: samples are only looked at while so much of them is under way. */
#define HCP_LOOK_MS 50.0

struct hcp_watch {
    /* The caller's. */
    hcp_nvml *nvml; /* NULL: unknown */
    hcp_sample_fn take;
    void *ctx;
    int allow_throttled;
    /* Inside. */
    double began_s;            /* the warm-up began */
    double at_s[512], ms[512]; /* its runs: when they ended, mean time */
    int n_runs;
    int share, n_sum; /* so many runs share a place; so many of them are in sum_ms */
    double sum_ms;
    double last_ms; /* of a run */
    int may_look, sampling;
    double look_s, cost_s; /* when clocks were read last, and what that takes */
    double sum_mhz;        /* of looks since the first sample */
    int n_mhz;
    int64_t reasons;
};

/* What the card did while the samples were taken; NaN and -1: unknown. */
struct hcp_watched {
    double sm_mhz, max_sm_mhz, mem_mhz, temperature_c;
    double power_w;           /* by the energy counter where that can tell */
    int by_counter;           /* it can: energies follow from power_w */
    int64_t throttle_reasons; /* all that was seen, but for "idle" */
    int rejected;             /* samples that were thrown away; all: the call fails */
    char note[128];           /* "" or what makes the samples worth a second look */
};

/* hcp_measure under watch. rule->hooks is set here. Samples that were throttled are
 * rejected and taken again after some seconds of rest, twice at most; then HCP_FAILED
 * with out->rejected > 0 and what was seen in out, which no other failure has. */
int hcp_watch_measure(struct hcp_watch *watch, struct hcp_measure_rule *rule,
                      const volatile sig_atomic_t *cancel, struct hcp_samples *samples,
                      struct hcp_watched *out, struct hcp_err *err);

/* To be called while the GPU works on what take() was asked for. */
void hcp_watch_look(void *watch);

/* Median time of the runs that begin within HCP_BOOSTED_S after HCP_IDLE_S of rest.
 * *ran_s: how long that ran. */
int hcp_watch_boosted(struct hcp_watch *watch, const volatile sig_atomic_t *cancel,
                      double *boosted_ms, double *ran_s, struct hcp_err *err);

#endif
