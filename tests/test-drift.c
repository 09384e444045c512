/* SPDX-License-Identifier: Apache-2.0
 *
 * The first cell of a level again at its end, on a device whose times are given: of a
 * level that has several turns, after each.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "profiler/run.h"
#include "tests/db-fixture.h"

enum { SAMPLES = 8 };

/* Of rows, whose times are whole seconds. */
static time_t second = 1800000000;

time_t __wrap_time(time_t *t);
time_t __wrap_time(time_t *t)
{
    if (t)
        *t = second;
    return second;
}

static double now_ms; /* what a run takes */
static int visits;

static int prepare(hcp_device *device, const struct hcp_cell_request *cell,
                   struct hcp_err *e)
{
    (void)device, (void)cell, (void)e;
    return HCP_OK;
}

static int take(hcp_device *device, const struct hcp_cell_request *cell,
                struct hcp_cell_facts *facts, double **samples, struct hcp_err *e)
{
    (void)device, (void)cell, (void)e;
    hcp_cell_facts_init(facts);
    facts->n = SAMPLES;
    *samples = malloc(SAMPLES * sizeof **samples);
    for (int i = 0; i < SAMPLES; i++)
        (*samples)[i] = now_ms;
    visits++;
    return HCP_OK;
}

static int collect(const struct hcp_drift_row *row, void *ctx)
{
    double *last_ms = ctx; /* [3], 0 where there is none */

    assert_true(row->first_ms == 1);
    while (*last_ms > 0)
        last_ms++;
    *last_ms = row->last_ms;
    return HCP_OK;
}

static struct hcp_sweep run;
static struct hcp_level level;
static struct hcp_sweep_cell cells[2] = {
    {.q_len = 128, .kv_len = 128, .seqs = 1, .ms = 1, .ci_lo_ms = 1, .ci_hi_ms = 1},
    {.q_len = 256, .kv_len = 128, .seqs = 1, .ms = 2, .ci_lo_ms = 2, .ci_hi_ms = 2}};
static const struct hcp_run_options options = {.warmup_s = NAN};
static const struct hcp_device_ops ops = {"test", 0, NULL, NULL, prepare, take, NULL};

static void begin(hcp_device *device)
{
    struct hcp_cell_facts facts;

    *device = (hcp_device){.ops = &ops};
    device->info.drifts = 1;
    run = (struct hcp_sweep){.options = &options,
                             .ops = &ops,
                             .db = db,
                             .levels = &level,
                             .n_levels = 1,
                             .deadline_s = INFINITY,
                             .slip = 1};
    run.cost.visits = run.cost.min_samples = run.cost.few_samples = 1;
    strcpy(run.key.device, "gpu-x");
    strcpy(run.key.provider, "test");
    strcpy(run.key.dtype, "bf16");
    strcpy(run.key.phase, "prefill");
    run.key.heads = run.key.kv_heads = run.key.batch = 1;
    run.key.head_dim = 64;
    strcpy(run.info.uuid, "X-1");
    strcpy(run.info.name, "X");
    strcpy(run.info.origin, "synthetic");
    strcpy(run.run_uid, "u");
    level = (struct hcp_level){.limit = "mps:50", .cells = cells, .n = 2};
    hcp_cell_facts_init(&facts);
    visits = 0;
    hcp_run_drift_note(&level, &cells[0], &facts);
}

static void turn(hcp_device *device, double last_ms, int more)
{
    struct hcp_cell_facts facts;

    hcp_cell_facts_init(&facts);
    for (int i = 0; i < more; i++)
        hcp_run_drift_note(&level, &cells[1], &facts);
    now_ms = last_ms;
    if (hcp_run_drift_check(&run, &level, device, &err))
        fail_msg("%s", err.text);
}

static void every_turn(void **state)
{
    const struct hcp_filter all = {0};
    double last[4] = {0};
    hcp_device device;

    (void)state;
    begin(&device);
    turn(&device, 5, 0); /* nothing was measured since */
    assert_int_equal(visits, 0);
    turn(&device, 1.05, 1);
    assert_int_equal(visits, 1);
    assert_true(hcp_run_has_drifted(&level.drift));
    turn(&device, 5, 0);
    assert_int_equal(visits, 1);
    second++; /* rows of one second are one */
    turn(&device, 1.2, 3);
    assert_true(level.drift.last_ms == 1.2);
    second++;
    turn(&device, 1, 1);
    /* It is as it was, and what lies between was not: that is told. */
    assert_true(level.drift.last_ms == 1.2 && hcp_run_has_drifted(&level.drift));
    assert_int_equal(visits, 3);
    if (hcp_db_each_drift(db, &all, collect, last, &err))
        fail_msg("%s", err.text);
    assert_true(last[0] == 1.05 && last[1] == 1.2 && last[2] == 1 && last[3] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(every_turn)};

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("drift", tests, NULL, NULL);
}
