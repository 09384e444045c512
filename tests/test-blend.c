/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode of a batch that was not measured, from models of batches that were.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "planner/plan.h"

enum { NODES = 7 }; /* kv_len 1K .. 64K */

static struct hcp_err err;

/* ms of a step: launch, and keys and values at a bandwidth; floor_ms is what the device
 * takes when it is not full. */
static double truth(int32_t batch, double kv, double floor_ms)
{
    double ms = 0.004 + batch * kv * 4096 / 4e9;
    return ms > floor_ms ? ms : floor_ms + 1e-7 * batch * kv / 65536;
}

static hcp_model *make(int32_t batch, double floor_ms, double factor)
{
    double shape[7] = {1, 1, 0, 0, 1, 0, 1}, error[3] = {1e300, 0.02, 0.03};
    double hull[6] = {1, 1, 1024, 65536, 0, 0}, q[1] = {1}, kv[NODES], ms[NODES];
    double known[NODES], finish[4] = {0.001, 0, 0.002 * batch, 0};
    struct hcp_named_array arrays[] = {{"shape", 7, shape},   {"hull", 6, hull},
                                       {"error", 3, error},   {"q", 1, q},
                                       {"kv", NODES, kv},     {"ms", NODES, ms},
                                       {"finish", 4, finish}, {"known", NODES, known}};
    struct hcp_model_row row = {.format = 1, .holdout_cells = 5};
    hcp_model *m;
    for (int i = 0; i < NODES; i++) {
        kv[i] = 1024 << i;
        ms[i] = truth(batch, kv[i], floor_ms) * factor;
        known[i] = 1;
    }
    strcpy(row.key.device, "nvidia-h200");
    strcpy(row.key.limit, "mps:10");
    strcpy(row.key.provider, "cuda-decode");
    strcpy(row.key.dtype, "bf16");
    strcpy(row.key.phase, "decode");
    row.key.batch = batch;
    row.key.heads = 32;
    row.key.kv_heads = 8;
    row.key.head_dim = 128;
    strcpy(row.kind, "lut");
    if (hcp_model_create(&row, arrays, sizeof arrays / sizeof *arrays, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static hcp_model *blend(const hcp_model *below, const hcp_model *low,
                        const hcp_model *high, const hcp_model *above, int32_t batch)
{
    struct hcp_blend_from from = {below, low, high, above};
    hcp_model *m;
    if (hcp_model_blend(&from, batch, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static double ask(const hcp_model *m, int64_t kv, hcp_model_source *source)
{
    return hcp_model_block_ms(m, 0, 1, kv, source);
}

static int near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* Where bandwidth decides the answer is exact, at lengths and batches never measured. */
static void bandwidth(void **state)
{
    hcp_model *b8 = make(8, 0, 1), *b16 = make(16, 0, 1);
    (void)state;
    for (int32_t batch = 9; batch < 16; batch++) {
        hcp_model *m = blend(NULL, b8, b16, NULL, batch);
        double last = ask(b8, 1024, NULL);
        assert_int_equal(hcp_model_row(m)->key.batch, batch);
        for (int64_t kv = 1024; kv <= 65536; kv += 777) {
            hcp_model_source source;
            double ms = ask(m, kv, &source);
            assert_true(near(ms, truth(batch, (double)kv, 0), 1e-9));
            assert_int_equal(source, HCP_SOURCE_INTERPOLATED);
            assert_true(ms >= last);
            last = ms;
        }
        assert_true(near(hcp_model_finish_ms(m, 1, 1), 0.002 * batch, 1e-9));
        hcp_model_free(m);
    }
    hcp_model_free(b8);
    hcp_model_free(b16);
}

/* Few sequences that do not fill the device: the answer is off, and its bar says so. */
static void bend(void **state)
{
    double floor_ms = 0.02, lo, hi;
    hcp_model *b1 = make(1, floor_ms, 1), *b8 = make(8, floor_ms, 1),
              *b64 = make(64, floor_ms, 1);
    hcp_model *m = blend(b1, b8, b64, NULL, 12), *lone = blend(NULL, b8, b64, NULL, 12);
    (void)state;
    for (int64_t kv = 1024; kv <= 65536; kv *= 2) {
        double e = hcp_model_batch_error(b1, b8, b64, 0, 1, kv);
        double t = truth(12, (double)kv, floor_ms);
        double off = fabs(ask(m, kv, NULL) - t) / t;
        hcp_model_error(m, 0, 1, kv, &lo, &hi);
        assert_true(near(hi, 0.03 + e, 1e-9) && lo >= 0.02);
        assert_true(off <= hi);
        if (kv == 1024)
            assert_true(e > 0.01);
        if (kv == 65536)
            assert_true(e < 1e-9 && off < 1e-9);
        hcp_model_error(lone, 0, 1, kv, &lo, &hi); /* nothing says how far off */
        assert_true(hi > 0.1);
    }
    hcp_model_free(m);
    hcp_model_free(lone);
    hcp_model_free(b1);
    hcp_model_free(b8);
    hcp_model_free(b64);
}

static void noise(void **state)
{
    /* The larger batch came out faster. */
    hcp_model *b8 = make(8, 0, 1), *b9 = make(9, 0, 0.8);
    hcp_model *m = blend(NULL, b8, b9, NULL, 8);
    (void)state;
    for (int64_t kv = 1024, last = 0; kv <= 65536; kv += 100) {
        double ms = ask(m, kv, NULL);
        assert_true(ms >= ask(b8, kv, NULL) && ms * 1e9 >= (double)last);
        last = (int64_t)(ms * 1e9);
    }
    hcp_model_free(m);
    hcp_model_free(b8);
    hcp_model_free(b9);
}

static void beyond(void **state)
{
    hcp_model *b8 = make(8, 0, 1);
    hcp_model *more = blend(NULL, b8, NULL, NULL, 16),
              *less = blend(NULL, NULL, b8, NULL, 4);
    hcp_model_source source;
    int64_t hull[4];
    double lo, hi;
    (void)state;
    assert_true(near(ask(more, 8192, &source), 2 * ask(b8, 8192, NULL), 1e-12));
    assert_int_equal(source, HCP_SOURCE_EXTRAPOLATED);
    assert_true(ask(less, 8192, &source) == ask(b8, 8192, NULL));
    assert_int_equal(source, HCP_SOURCE_EXTRAPOLATED);
    hcp_model_error(less, 0, 1, 8192, &lo, &hi);
    assert_true(lo >= 0.5 && lo <= 0.9 && hi >= 0.5);
    hcp_model_hull(more, 0, &hull[0], &hull[1], &hull[2], &hull[3]);
    assert_true(hull[0] == 1 && hull[1] == 1 && hull[2] == 1024 && hull[3] == 65536);
    assert_int_equal(
        hcp_model_blend(&(struct hcp_blend_from){NULL, NULL, NULL, NULL}, 3, &more, &err),
        HCP_FAILED);
    hcp_model_free(more);
    hcp_model_free(less);
    hcp_model_free(b8);
}

/* ---- the library: phase of the shape, and the models next to a batch ---- */

static hcp_status bind(const hcp_models *models, const char *phase, int32_t batch,
                       size_t shape_size, hcp_ring **ring, char text[512])
{
    hcp_rank rank;
    hcp_shape shape;
    hcp_rank_init(&rank);
    strcpy(rank.device, "nvidia-h200");
    strcpy(rank.limit, "mps:10");
    hcp_shape_init(&shape);
    shape.size = shape_size;
    shape.batch = batch;
    strcpy(shape.phase, phase);
    *ring = NULL;
    return hcp_ring_create(models, &shape, &rank, 1, NULL, text, 512, ring);
}

static hcp_status predict(const hcp_ring *ring, int64_t kv, int extrapolate,
                          hcp_prediction *p, char text[512])
{
    p->size = sizeof *p;
    return hcp_block_predict(ring, 0, HCP_MODEL_BEST, 0, 1, kv, extrapolate, text, 512,
                             p);
}

static void library(void **state)
{
    static const int32_t batches[] = {64, 1, 16, 8};
    hcp_models *models = calloc(1, sizeof *models);
    hcp_ring *ring;
    hcp_prediction p;
    char text[512];
    (void)state;
    strcpy(models->path, "test.db");
    models->stored = calloc(4, sizeof *models->stored);
    for (int i = 0; i < 4; i++)
        models->stored[models->n_stored++].model = make(batches[i], 0, 1);

    assert_int_equal(bind(models, "decode", 8, sizeof(hcp_shape), &ring, text), 0);
    assert_int_equal(predict(ring, 8192, 0, &p, text), 0);
    assert_int_equal(p.source, HCP_FROM_INTERPOLATED); /* no hits in these tables */
    assert_true(near(p.ms, truth(8, 8192, 0), 1e-12));
    hcp_ring_free(ring);

    assert_int_equal(bind(models, "decode", 12, sizeof(hcp_shape), &ring, text), 0);
    assert_string_equal(hcp_ring_provider(ring), "cuda-decode");
    assert_int_equal(predict(ring, 10000, 0, &p, text), 0);
    assert_true(near(p.ms, truth(12, 10000, 0), 1e-9));
    assert_true(p.lo_ms < p.ms && p.hi_ms > p.ms && p.hi_ms < 1.05 * p.ms);
    /* A plan of it; the step is the block and the store pass. */
    hcp_question question;
    hcp_plan plan;
    hcp_plan_rank ranks[1];
    hcp_segment segments[64];
    hcp_question_init(&question);
    question.seq_len = 10000;
    hcp_plan_init(&plan, ranks, 1, segments, 64);
    size_t bytes = hcp_workspace_bytes(1);
    void *workspace = malloc(bytes);
    assert_int_equal(
        hcp_plan_split(ring, &question, workspace, bytes, text, sizeof text, &plan), 0);
    assert_true(near(plan.makespan_ms, p.ms + hcp_model_finish_ms(ring->ranks[0].model[0],
                                                                  0, 1), 1e-12));
    assert_int_equal(plan.shape.batch, 12);
    free(workspace);
    hcp_ring_free(ring);

    assert_int_equal(bind(models, "decode", 128, sizeof(hcp_shape), &ring, text), 0);
    assert_int_equal(predict(ring, 8192, 0, &p, text), HCP_STATUS_OUTSIDE);
    assert_non_null(strstr(text, "batch 128 of full q_len 1, kv_len 8192"));
    assert_non_null(strstr(text, "--phase decode --batch 128"));
    assert_int_equal(predict(ring, 8192, 1, &p, text), 0);
    assert_int_equal(p.source, HCP_FROM_EXTRAPOLATED);
    hcp_ring_free(ring);

    /* Neither prefill, nor a shape of before there was a phase, takes them. */
    assert_int_equal(bind(models, "prefill", 12, sizeof(hcp_shape), &ring, text),
                     HCP_STATUS_NO_MODEL);
    assert_int_equal(bind(models, "decode", 12, offsetof(hcp_shape, phase), &ring, text),
                     HCP_STATUS_NO_MODEL);
    assert_int_equal(bind(models, "neither", 12, sizeof(hcp_shape), &ring, text),
                     HCP_STATUS_INVALID);
    assert_int_equal(bind(models, "decode", 12, 8, &ring, text), HCP_STATUS_INVALID);

    /* A batch whose samples changed since does not help. */
    models->stored[2].stale = 1;
    assert_int_equal(bind(models, "decode", 12, sizeof(hcp_shape), &ring, text), 0);
    assert_int_equal(predict(ring, 8192, 0, &p, text), 0);
    assert_true(near(p.ms, truth(12, 8192, 0), 1e-9)); /* from 8 and 64 */
    hcp_ring_free(ring);
    hcp_models_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bandwidth), cmocka_unit_test(bend),    cmocka_unit_test(noise),
        cmocka_unit_test(beyond),    cmocka_unit_test(library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
