/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of samples, the stop rule and the proof of an MPS limit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "profiler/limiter.h"
#include "profiler/measure.h"
#include "profiler/stats.h"
#include "profiler/watch.h"

static void assert_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.17g is not within %g of %.17g", a, tolerance, b);
}

/* Ranks of the sign test's table (two-sided, at least 95 %). */
static void median_ranks(void **state)
{
    static const struct {
        int n, rank;
    } table[] = {{1, 1},  {5, 1},  {6, 1},  {8, 1},   {9, 2},   {10, 2},  {12, 3},
                 {15, 4}, {20, 6}, {25, 8}, {30, 10}, {50, 18}, {100, 40}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double coverage = -1;
        assert_int_equal(hcp_stats_median_rank(table[i].n, &coverage), table[i].rank);
        assert_true(coverage < 1 && coverage >= 0);
        assert_int_equal(coverage >= 0.95, table[i].n >= 6);
    }
    double coverage;
    hcp_stats_median_rank(10, &coverage);
    assert_near(coverage, 0.978515625, 1e-12);                  /* 1 - 2*(1+10)/1024 */
    assert_true(hcp_stats_median_rank(5000, &coverage) > 2400); /* 2^-n has underflowed */
    assert_near(coverage, 0.95, 0.01);
}

/* The interval holds the true median as often as it says. */
static void interval_covers(void **state)
{
    unsigned seed = 7;
    int hits = 0;
    enum { TRIALS = 4000, N = 12 };
    (void)state;
    for (int t = 0; t < TRIALS; t++) {
        double x[N];
        struct hcp_stats s;
        for (int i = 0; i < N; i++) /* skewed, as times are: median ln 2 */
            x[i] = -log((rand_r(&seed) + 1.0) / (RAND_MAX + 2.0));
        assert_int_equal(hcp_stats_summary(x, N, &s), 0);
        hits += s.ci_lo <= log(2.0) && log(2.0) <= s.ci_hi;
    }
    double coverage;
    hcp_stats_median_rank(N, &coverage);
    assert_near(hits / (double)TRIALS, coverage, 0.015);
}

static void summary(void **state)
{
    const double x[] = {5, 1, 4, 2, 3, 100};
    struct hcp_stats s;
    (void)state;
    assert_int_equal(hcp_stats_summary(x, 6, &s), 0);
    assert_near(s.median, 3.5, 0);
    assert_near(s.min, 1, 0);
    assert_near(s.max, 100, 0);
    assert_near(s.p25, 2.25, 1e-15);
    assert_near(s.p75, 4.75, 1e-15);
    assert_near(s.mad, 1.5, 1e-15);
    assert_int_equal(s.outliers, 1); /* 96.5 away, 10 MAD are 15 */
    assert_int_equal(s.n, 6);
    assert_near(s.ci_lo, 1, 0);
    assert_near(s.ci_hi, 100, 0);
    assert_int_equal(hcp_stats_summary(x, 1, &s), 0);
    assert_near(s.median, 5, 0);
    assert_near(s.noise, 0, 0);
    assert_int_equal(hcp_stats_summary(x, 0, &s), -1);
    const double bad[] = {1, NAN};
    assert_int_equal(hcp_stats_summary(bad, 2, &s), -1);
    const double inf[] = {1, INFINITY};
    assert_int_equal(hcp_stats_summary(inf, 2, &s), -1);
}

/* Equal samples but for the timer's resolution: no outliers. */
static void resolution_is_no_outlier(void **state)
{
    double x[20];
    struct hcp_stats s;
    (void)state;
    for (int i = 0; i < 20; i++)
        x[i] = i == 7 ? 1.0005 : 1;
    assert_int_equal(hcp_stats_summary(x, 20, &s), 0);
    assert_int_equal(s.outliers, 0);
    x[7] = 1.01;
    assert_int_equal(hcp_stats_summary(x, 20, &s), 0);
    assert_int_equal(s.outliers, 1);
}

/* The clock that the program sees: it goes on when runs are taken, and by nothing else.
 */
static double clock_s = 100;

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    *t = (struct timespec){(time_t)clock_s, (long)(1e9 * fmod(clock_s, 1))};
    return 0;
}

struct source {
    double ms, noise;
    int taken, fail_at;
    unsigned seed;
};

static int take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct source *s = ctx;
    for (int i = 0; i < n; i++) {
        if (++s->taken == s->fail_at)
            return hcp_fail(err, HCP_FAILED, "sample %d", s->taken);
        ms[i] = s->ms * (1 + s->noise * (2.0 * rand_r(&s->seed) / RAND_MAX - 1));
        clock_s += ms[i] / 1e3;
    }
    return HCP_OK;
}

static void rule_without_time(struct hcp_measure_rule *rule)
{
    hcp_measure_defaults(rule);
    rule->warmup_s = 0;
    rule->min_time_s = 0;
    rule->cap_s = 1e9;
}

static void stops_by_noise(void **state)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    struct source quiet = {.ms = 50, .noise = 0.001, .seed = 1};
    (void)state;
    rule_without_time(&rule);
    assert_int_equal(hcp_measure(&rule, take, &quiet, NULL, &s, NULL), HCP_OK);
    assert_string_equal(s.stop_reason, "noise");
    assert_int_equal(s.n, rule.min_samples); /* 50 ms: one at a time */
    assert_int_equal(quiet.taken, s.n + 1);  /* and one to warm up */
    hcp_samples_free(&s);
}

/* A run before that lasted as long as the warm-up should is one; a shorter one is not. */
static void a_run_before_warms_up(void **state)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        struct source slow = {.ms = 60, .noise = 0.001, .seed = 1};
        rule_without_time(&rule);
        rule.warmup_s = 0.001;
        rule.ran_ms = longer ? 60 : 0.9;
        assert_int_equal(hcp_measure(&rule, take, &slow, NULL, &s, NULL), HCP_OK);
        assert_true(longer ? slow.taken == s.n : slow.taken > s.n);
        assert_true(fabs(s.warm_ms - 60) < 1);
        hcp_samples_free(&s);
    }
}

/* A first cell of very short runs, thousands of them within its warm-up. */
static void many_short_runs_are_seen_to_be_steady(void **state)
{
    struct source quick = {.ms = 0.01, .noise = 0, .seed = 1};
    struct hcp_watch watch = {.take = take, .ctx = &quick};
    struct hcp_watched seen;
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    (void)state;
    rule_without_time(&rule);
    rule.warmup_s = 0.2;
    rule.steady_cap_s = 20;
    assert_int_equal(hcp_watch_measure(&watch, &rule, NULL, &s, &seen, NULL), HCP_OK);
    assert_true(quick.taken > 16 * 512 && s.warmup_s >= 0.2 && s.warmup_s < 0.21);
    hcp_samples_free(&s);
}

/* What took as long as a warm-up under watch lasts is one: nothing is known of it that
 * could look steady. What took less is not. */
static void a_run_before_warms_up_under_watch(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        struct source slow = {.ms = 60, .noise = 0, .seed = 1};
        struct hcp_watch watch = {.take = take, .ctx = &slow};
        struct hcp_watched seen;
        struct hcp_measure_rule rule;
        struct hcp_samples s;
        rule_without_time(&rule);
        rule.steady_cap_s = 20;
        rule.ran_ms = 1e3 * HCP_SUSTAIN_S + (longer ? 1 : -1);
        assert_int_equal(hcp_watch_measure(&watch, &rule, NULL, &s, &seen, NULL), HCP_OK);
        assert_true(longer ? slow.taken == s.n : slow.taken > s.n);
        hcp_samples_free(&s);
    }
}

static void stops_when_settled_or_full(void **state)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    struct source wild = {.ms = 50, .noise = 0.5, .seed = 1};
    (void)state;
    rule_without_time(&rule);
    rule.max_samples = 1000;
    assert_int_equal(hcp_measure(&rule, take, &wild, NULL, &s, NULL), HCP_OK);
    assert_true(s.n >= 4 * rule.min_samples && s.n <= rule.max_samples + 16);
    assert_true(!strcmp(s.stop_reason, "settled") || !strcmp(s.stop_reason, "cap"));
    hcp_samples_free(&s);
    rule.max_samples = 12;
    assert_int_equal(hcp_measure(&rule, take, &wild, NULL, &s, NULL), HCP_OK);
    assert_string_equal(s.stop_reason, "cap");
    assert_int_equal(s.n, 12);
    hcp_samples_free(&s);
}

/* A short block with a long minimum time still ends. */
static void full_before_min_time(void **state)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    struct source quick = {.ms = 1e-6, .noise = 0.3, .seed = 3};
    (void)state;
    rule_without_time(&rule);
    rule.min_time_s = 1e6;
    rule.max_samples = 64;
    assert_int_equal(hcp_measure(&rule, take, &quick, NULL, &s, NULL), HCP_OK);
    assert_true(s.n >= 64 && s.n < 64 + 16);
    hcp_samples_free(&s);
}

static void slow_cells_stop_with_few(void **state)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    struct source slow = {.ms = 5000, .noise = 0.1, .seed = 1};
    (void)state;
    rule_without_time(&rule);
    rule.cap_s = 0; /* over at once */
    assert_int_equal(hcp_measure(&rule, take, &slow, NULL, &s, NULL), HCP_OK);
    assert_int_equal(s.n, rule.few_samples);
    assert_string_equal(s.stop_reason, "few");
    hcp_samples_free(&s);
}

static void failure_and_cancel(void **state)
{
    struct hcp_measure_rule rule;
    struct hcp_samples s;
    struct hcp_err err = {0};
    struct source source = {.ms = 50, .seed = 1, .fail_at = 5};
    volatile sig_atomic_t cancel = 1;
    (void)state;
    rule_without_time(&rule);
    assert_int_equal(hcp_measure(&rule, take, &source, NULL, &s, &err), HCP_FAILED);
    assert_string_equal(err.text, "sample 5");
    assert_null(s.ms);
    source = (struct source){.ms = 50, .seed = 1};
    assert_int_equal(hcp_measure(&rule, take, &source, &cancel, &s, &err), HCP_FAILED);
    assert_int_equal(source.taken, 0);
}

/* SM counts as an H200 reports them, and what must not pass. */
static void mps_proof(void **state)
{
    static const int h200[] = {12, 26, 38, 52, 66, 78, 92, 104, 118, 132};
    struct hcp_err err = {0};
    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(hcp_mps_prove(10 * (i + 1), 1, h200[i], 132, "/p", "/l", &err),
                         HCP_OK);
    assert_int_equal(hcp_mps_prove(10, 0, 132, 132, "/pipe-dir", "/log-dir", &err),
                     HCP_FAILED);
    assert_non_null(strstr(err.text, "/pipe-dir"));
    assert_non_null(strstr(err.text, "/log-dir"));
    assert_int_equal(hcp_mps_prove(10, 1, 132, 132, "/p", "/l", &err), HCP_FAILED);
    assert_int_equal(hcp_mps_prove(10, 1, 0, 132, "/p", "/l", &err), HCP_FAILED);
    assert_int_equal(hcp_mps_prove(100, 1, 118, 132, "/p", "/l", &err), HCP_FAILED);
    assert_int_equal(hcp_mps_prove(50, 1, 33, 132, "/p", "/l", &err), HCP_FAILED);
    assert_int_equal(hcp_mps_prove(1, 1, 2, 132, "/p", "/l", &err), HCP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_ranks),
        cmocka_unit_test(interval_covers),
        cmocka_unit_test(summary),
        cmocka_unit_test(resolution_is_no_outlier),
        cmocka_unit_test(stops_by_noise),
        cmocka_unit_test(a_run_before_warms_up),
        cmocka_unit_test(many_short_runs_are_seen_to_be_steady),
        cmocka_unit_test(a_run_before_warms_up_under_watch),
        cmocka_unit_test(stops_when_settled_or_full),
        cmocka_unit_test(full_before_min_time),
        cmocka_unit_test(slow_cells_stop_with_few),
        cmocka_unit_test(failure_and_cancel),
        cmocka_unit_test(mps_proof),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
