/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs by their data sheet: times against a second way of scaling, plans against those of
 * a profile with exactly these times.
 */
#include "tests/specs-fixture.h"

static double block(const hcp_ring *ring, size_t rank, int causal, int64_t q, int64_t kv,
                    hcp_prediction *p)
{
    char text[512] = "";

    p->size = sizeof *p;
    if (hcp_block_predict(ring, rank, HCP_MODEL_BEST, causal, q, kv, 1, text, sizeof text,
                          p))
        fail_msg("%s", text);
    return p->ms;
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-11 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* ---- times ---- */

static void check_times(const struct gpu *g, const hcp_ring *ring)
{
    struct gpu r = *g;
    hcp_rank_estimate e = {.size = sizeof e};
    hcp_prediction p;
    int nq = g->shape.decode ? 1 : NODES;

    ref_grid(&r.shape, &r.kin, &r.target, nq, NODES, r.q, r.kv, r.ms);
    ref_squares(&r.shape, &r.kin, &r.target, nq, r.q, r.s_ms);
    ref_terms(&r.shape, &r.kin, &r.target, 32768, r.full, r.square);
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < NODES; j++) {
            double got = block(ring, 1, 0, (int64_t)g->q[i], (int64_t)g->kv[j], &p);
            double x = g->q[i], y = ceil(g->kv[j] / 128) * 128;
            double w = ref_wave_tokens(&r.shape, r.target.used, x);

            assert_near(got, !g->poly
                                 ? r.ms[i * NODES + j]
                                 : r.full[0] + r.full[1] * x * y + r.full[2] * x +
                                       r.full[3] * y + r.full[4] * w * y + r.full[5] * w +
                                       r.full[6] * sqrt(x) * y + r.full[7] * x * sqrt(y));
        }
    for (int i = 0; i < nq && !g->shape.decode; i++) {
        double got = block(ring, 1, 1, (int64_t)g->q[i], (int64_t)g->q[i], &p);
        double x = g->q[i], w = ref_wave_tokens(&r.shape, r.target.used, x);

        assert_near(got, !g->poly ? r.s_ms[i]
                                  : r.square[0] + r.square[1] * x * x + r.square[2] * x +
                                        r.square[3] * w * x + r.square[4] * w +
                                        r.square[5] * x * sqrt(x));
    }
    assert_int_equal(p.source, HCP_FROM_ESTIMATED);
    hcp_ring_estimate(ring, 1, &e);
    assert_near(p.lo_ms, p.ms * (1 - g->error) / e.factor);
    assert_near(p.hi_ms, p.ms * (1 + g->error) * e.factor);
    assert_near(hcp_model_finish_ms(ring->ranks[1].model[HCP_MODEL_BEST], 1, 1000),
                g->finish[2] +
                    g->finish[3] * 1000 * (g->kin.gbps / g->target.gbps) *
                        (ref_bandwidth_part((double)g->kin.used / g->kin.sms) /
                         ref_bandwidth_part((double)g->target.used / g->target.sms)));
}

static void check_never_falls(const hcp_ring *ring, uint64_t *seed)
{
    hcp_prediction p;

    for (int i = 0; i < 40; i++) {
        int64_t q = fixture_range(seed, 1, 8192), kv = fixture_range(seed, 1, 32768);
        double t = block(ring, 1, 0, q, kv, &p);

        assert_true(block(ring, 1, 0, q + fixture_range(seed, 0, 500), kv, &p) >= t);
        assert_true(block(ring, 1, 0, q, kv + fixture_range(seed, 0, 500), &p) >= t);
    }
}

static void times(int decode)
{
    hcp_specs *specs;
    struct gpu *gpus = make_all(decode ? 7 : 1, decode, &specs);
    hcp_models *models;
    uint64_t seed = 5;
    char text[900] = "", kin[32], target[32];

    assert_int_equal(
        hcp_models_load_specs(in_folder("kin.db"), specs, text, sizeof text, &models),
        HCP_STATUS_OK);
    hcp_specs_free(specs); /* it was copied */
    for (int i = 0; i < GPUS; i++) {
        hcp_ring *ring;
        hcp_rank_estimate e = {.size = sizeof e};

        snprintf(kin, sizeof kin, "kin%d", i);
        snprintf(target, sizeof target, "spec:target%d", i);
        ring = bind(models, kin, target, gpus[i].limit, decode, text, sizeof text);
        if (!ring)
            fail_msg("%d: %s", i, text);
        assert_int_equal(hcp_ring_estimate(ring, 0, &e), HCP_STATUS_OK);
        assert_int_equal(e.estimated, 0);
        assert_int_equal(hcp_ring_estimate(ring, 1, &e), HCP_STATUS_OK);
        assert_string_equal(e.kin_device, kin);
        assert_int_equal(e.sms, gpus[i].target.used);
        check_times(&gpus[i], ring);
        if (!decode)
            check_never_falls(ring, &seed);
        hcp_ring_free(ring);
    }
    hcp_models_free(models);
    free(gpus);
}

static void times_of_prefill(void **state)
{
    (void)state;
    times(0);
}

static void times_of_decode(void **state)
{
    (void)state;
    times(1);
}

/* ---- plans ---- */

/* What a profile of the target would hold: the estimated times at its lengths, bit for
 * bit, and error bars as wide. */
static void put_twin(hcp_db *db, const struct gpu *g, const hcp_ring *ring, int i)
{
    struct gpu twin = *g;
    hcp_rank_estimate e = {.size = sizeof e};
    hcp_prediction p;
    char name[32];
    const hcp_model *m = ring->ranks[1].model[HCP_MODEL_BEST];

    hcp_ring_estimate(ring, 1, &e);
    for (int a = 0; a < (g->shape.decode ? 1 : NODES); a++) {
        for (int b = 0; b < NODES; b++)
            twin.ms[a * NODES + b] =
                block(ring, 1, 0, (int64_t)g->q[a], (int64_t)g->kv[b], &p);
        twin.s_ms[a] = block(ring, 1, 1, (int64_t)g->q[a], (int64_t)g->q[a], &p);
    }
    for (int k = 0; k < 2; k++) { /* exact: a row's part is the difference at one row */
        double part =
            (ref_bandwidth_part((double)g->kin.used / g->kin.sms) * g->kin.gbps) /
            (ref_bandwidth_part((double)g->target.used / g->target.sms) * g->target.gbps);

        twin.finish[2 * k + 1] = m->finish[k][1];
        assert_near(twin.finish[2 * k + 1], g->finish[2 * k + 1] * part);
    }
    snprintf(name, sizeof name, "twin%d", i);
    put(db, &twin, name, g->limit, g->target.used, 1 - (1 - g->error) / e.factor,
        (1 + g->error) * e.factor - 1);
    snprintf(name, sizeof name, "kin%d", i);
    put(db, g, name, g->limit, g->kin.used, g->error, g->error);
}

static void assert_same_plans(const hcp_plan *a, const hcp_plan *b)
{
    assert_int_equal(a->layout, b->layout);
    assert_int_equal(a->tile, b->tile);
    assert_int_equal(a->exact, b->exact);
    assert_memory_equal(&a->makespan_ms, &b->makespan_ms, sizeof a->makespan_ms);
    assert_memory_equal(&a->bound_ms, &b->bound_ms, sizeof a->bound_ms);
    assert_memory_equal(&a->even_ms, &b->even_ms, sizeof a->even_ms);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(a->ranks[r].tokens, b->ranks[r].tokens);
        assert_memory_equal(&a->ranks[r].predicted_ms, &b->ranks[r].predicted_ms,
                            sizeof(double));
    }
    assert_true(a->source == HCP_FROM_ESTIMATED && b->source < HCP_FROM_ESTIMATED);
    assert_true(a->models_hash != b->models_hash && a->fingerprint != b->fingerprint);
    /* Each rank as late as its own error bar allows, not the critical one's alone. */
    assert_true(a->interval_hi_ms >= b->interval_hi_ms * (1 - 1e-12));
    assert_true(a->interval_lo_ms >= b->interval_lo_ms * (1 - 1e-12));
    assert_true(a->interval_lo_ms <= a->makespan_ms * (1 + 1e-12));
}

static void plans(int decode)
{
    hcp_specs *specs;
    struct gpu *gpus = make_all(decode ? 17 : 11, decode, &specs);
    hcp_models *models, *measured;
    hcp_db *db = open_db("twin.db");
    hcp_ring *rings[GPUS];
    struct fixture_plan a, b;
    struct hcp_err err = {0};
    char text[900] = "", kin[32], target[32];
    uint64_t seed = 3;
    int tables = 0;

    assert_int_equal(
        hcp_models_load_specs(in_folder("kin.db"), specs, text, sizeof text, &models),
        HCP_STATUS_OK);
    assert_int_equal(hcp_db_begin(db, &err), HCP_OK);
    for (int i = 0; i < GPUS; i++) {
        gpus[i].poly ? 0 : tables++;
        snprintf(kin, sizeof kin, "kin%d", i);
        snprintf(target, sizeof target, "spec:target%d", i);
        rings[i] = bind(models, kin, target, gpus[i].limit, decode, text, sizeof text);
        if (!rings[i])
            fail_msg("%s", text);
        if (!gpus[i].poly)
            put_twin(db, &gpus[i], rings[i], i);
    }
    assert_int_equal(hcp_db_commit(db, &err), HCP_OK);
    hcp_db_close(db);
    assert_int_equal(hcp_models_load(in_folder("twin.db"), text, sizeof text, &measured),
                     HCP_STATUS_OK);
    fixture_plan_init(&a, 2);
    fixture_plan_init(&b, 2);
    for (int i = 0; i < GPUS; i++) {
        hcp_question q;
        hcp_ring *twins;

        if (gpus[i].poly) {
            hcp_ring_free(rings[i]);
            continue;
        }
        hcp_question_init(&q);
        q.seq_len = fixture_range(&seed, 2000, 16000);
        q.causal = (int)fixture_range(&seed, 0, 1);
        q.link_gbps = fixture_real(&seed, 1, 100);
        q.extrapolate = 1;
        snprintf(kin, sizeof kin, "kin%d", i);
        snprintf(target, sizeof target, "twin%d", i);
        twins = bind(measured, kin, target, gpus[i].limit, decode, text, sizeof text);
        if (!twins)
            fail_msg("%s", text);
        if (fixture_split(rings[i], &q, &a, text, sizeof text) ||
            fixture_split(twins, &q, &b, text, sizeof text))
            fail_msg("%s", text);
        assert_same_plans(&a.plan, &b.plan);
        assert_string_equal(b.plan.ranks[1].kin, "");
        assert_string_equal(a.plan.ranks[0].kin, "");
        assert_int_equal(strncmp(a.plan.ranks[1].kin, kin, strlen(kin)), 0);
        if (a.plan.ranks[1].tokens > 0) /* at least near the factor, on that side */
            assert_true(a.plan.interval_hi_ms >=
                        a.plan.ranks[1].predicted_ms * (decode ? 1.0 : 1.39));
        hcp_ring_free(rings[i]);
        hcp_ring_free(twins);
    }
    assert_true(tables >= 120);
    fixture_plan_free(&a);
    fixture_plan_free(&b);
    hcp_models_free(models);
    hcp_models_free(measured);
    hcp_specs_free(specs);
    free(gpus);
}

static void plans_of_prefill(void **state)
{
    (void)state;
    plans(0);
}

static void plans_of_decode(void **state)
{
    (void)state;
    plans(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_of_prefill),
        cmocka_unit_test(times_of_decode),
        cmocka_unit_test(plans_of_prefill),
        cmocka_unit_test(plans_of_decode),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
