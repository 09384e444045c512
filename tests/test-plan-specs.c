/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs by their data sheet: times against a second way of scaling, plans against those of
 * a profile with exactly these times, and what is said when there is no answer.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "planner/specs.h"
#include "tests/plan-fixture.h"
#include "tests/specs-reference.h"

enum { NODES = 7, GPUS = 240 };

/* One made-up kin with its sheet, and a sheet that nobody measured. */
struct gpu {
    struct ref_shape shape;
    struct ref_device kin, target;
    char limit[32]; /* of both */
    int poly;       /* else a table */
    double q[NODES], kv[NODES], ms[NODES * NODES], s_ms[NODES], full[8], square[6];
    double finish[4], error;
};

static char folder[] = "/tmp/hcp-specs-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[2][256];
    static int at;

    at = !at;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"kin.db", "twin.db", "specs.txt", "empty.db"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(in_folder(names[i]));
    return rmdir(folder);
}

/* ---- made-up devices ---- */

static void rise(double *v, double below)
{
    if (*v < below * 1.001)
        *v = below * 1.001;
}

static void fill_times(struct gpu *g, uint64_t *seed)
{
    double a = fixture_real(seed, 1e-9, 5e-8), b = fixture_real(seed, 0, 1e-5);
    double c = fixture_real(seed, 0, 1e-5), f = fixture_real(seed, 0.001, 0.05);
    int one = g->shape.decode;

    for (int i = 0; i < NODES; i++) {
        g->q[i] = one ? 1 : 128 << i;
        g->kv[i] = 512 << i;
    }
    for (int i = 0; i < NODES; i++) {
        for (int j = 0; j < NODES; j++) {
            double *t = &g->ms[i * NODES + j];

            *t = (a * g->q[i] * g->kv[j] + b * g->q[i] + c * g->kv[j] + f) *
                 fixture_real(seed, 1, 1.3);
            if (i > 0)
                rise(t, t[-NODES]);
            if (j > 0)
                rise(t, t[-1]);
        }
        g->s_ms[i] = (a * g->q[i] * g->q[i] / 2 + (b + c) * g->q[i] + f) *
                     fixture_real(seed, 1, 1.3);
        if (i > 0)
            rise(&g->s_ms[i], g->s_ms[i - 1]);
    }
    for (int i = 0; i < 8; i++)
        g->full[i] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 1e-7);
    g->full[0] = f;
    g->full[1] = a;
    for (int i = 0; i < 6; i++)
        g->square[i] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 1e-7);
    g->square[1] = a / 2;
    for (int i = 0; i < 4; i++)
        g->finish[i] = fixture_real(seed, 0, 1e-4);
}

static struct ref_device device(uint64_t *seed)
{
    return (struct ref_device){fixture_real(seed, 20, 3000),
                               fixture_real(seed, 200, 9000),
                               2 * (int)fixture_range(seed, 10, 90), 0};
}

static void make_gpu(struct gpu *g, uint64_t *seed, int decode)
{
    int pct = (int)fixture_range(seed, 5, 99), kind = (int)fixture_range(seed, 0, 2);

    memset(g, 0, sizeof *g);
    g->kin = device(seed);
    g->target = device(seed);
    g->kin.used = g->kin.sms;
    g->target.used = g->target.sms;
    if (kind == 1) {
        snprintf(g->limit, sizeof g->limit, "mps:%d", pct);
        g->kin.used = g->kin.sms / 2 * 2 * pct / 200 * 2;
        g->target.used = g->target.sms * pct / 200 * 2;
    } else if (kind == 2) {
        snprintf(g->limit, sizeof g->limit, "green:%d", 2 + pct % 18);
        g->kin.used = g->target.used = 2 + pct % 18;
    }
    g->kin.used = g->kin.used < 2 ? 2 : g->kin.used;
    g->target.used = g->target.used < 2 ? 2 : g->target.used;
    g->poly = (int)fixture_range(seed, 0, 2) == 0;
    g->error = fixture_real(seed, 0, 0.1);
    g->shape = (struct ref_shape){.heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .batch = 1,
                                  .element = 2,
                                  .decode = decode,
                                  .tile_q = decode ? 1 : 128,
                                  .ctas = 32,
                                  .sm_known = fixture_range(seed, 0, 3) > 0,
                                  .rho = fixture_real(seed, 0.5, 1),
                                  .lambda = fixture_real(seed, 0, 0.9),
                                  .first = (double)fixture_range(seed, 0, 1)};
    fill_times(g, seed);
}

/* Puts a model into a database: times of g, on a device with so many SMs. */
static void put(hcp_db *db, const struct gpu *g, const char *device_name,
                const char *limit, int sms, double lo, double hi)
{
    double shape[7] = {
        g->shape.tile_q, 128,           32, g->shape.sm_known ? sms : 0, g->shape.rho,
        g->shape.lambda, g->shape.first};
    double hull[6] = {1, 8192, 1, 32768, 1, 8192}, error[3] = {1e9, lo, hi};
    double finish[4], known[NODES * NODES], ms[NODES * NODES];
    size_t nq = g->shape.decode ? 1 : NODES;
    struct hcp_named_array lut[] = {
        {"shape", 7, shape},       {"hull", 6, hull},
        {"error", 3, error},       {"finish", 4, finish},
        {"q", nq, (double *)g->q}, {"kv", NODES, (double *)g->kv},
        {"ms", nq * NODES, ms},    {"known", nq * NODES, known},
        {"s", nq, (double *)g->q}, {"s_ms", nq, (double *)g->s_ms}};
    struct hcp_named_array poly[] = {{"shape", 7, shape},
                                     {"hull", 6, hull},
                                     {"error", 3, error},
                                     {"finish", 4, finish},
                                     {"full", 8, (double *)g->full},
                                     {"square", 6, (double *)g->square}};
    struct hcp_model_row row = {.format = 1, .holdout_cells = 10};
    struct hcp_err err = {0};

    memcpy(finish, g->finish, sizeof finish);
    memcpy(ms, g->ms, sizeof ms);
    for (int i = 0; i < NODES * NODES; i++)
        known[i] = 1;
    if (g->shape.decode)
        hull[1] = 1;
    strcpy(row.kind, g->poly ? "poly" : "lut");
    snprintf(row.key.device, sizeof row.key.device, "%s", device_name);
    snprintf(row.key.limit, sizeof row.key.limit, "%s", limit);
    strcpy(row.key.provider, "cudnn");
    strcpy(row.key.dtype, "bf16");
    strcpy(row.key.phase, g->shape.decode ? "decode" : "prefill");
    row.key.batch = 1;
    row.key.heads = 32;
    row.key.kv_heads = 8;
    row.key.head_dim = 128;
    strcpy(row.origin, "synthetic");
    strcpy(row.fitted_at, "2026-11-30T00:00:00Z");
    strcpy(row.tool_version, "0.2.0");
    assert_int_equal(hcp_db_samples_hash(db, &row.key, &row.samples_hash, &err), HCP_OK);
    if (hcp_db_put_model(db, &row, g->poly ? poly : lut,
                         (g->poly ? 6 : 10) - (g->shape.decode && !g->poly ? 2 : 0),
                         &err))
        fail_msg("%s", err.text);
}

static hcp_db *open_db(const char *name)
{
    struct hcp_err err = {0};
    hcp_db *db;

    remove(in_folder(name));
    if (hcp_db_open(in_folder(name), HCP_DB_WRITE | HCP_DB_CREATE, &db, &err))
        fail_msg("%s", err.text);
    return db;
}

static void put_line(FILE *f, const char *name, int arch, const struct ref_device *d)
{
    fprintf(f, "%s g%d %d %.17g - - %.17g 80 - - - made up\n", name, arch, d->sms,
            d->tflops, d->gbps);
}

/* GPUs of a seed, measured in kin.db; a table with both sheets of each. */
static struct gpu *make_all(uint64_t seed, int decode, hcp_specs **specs)
{
    struct gpu *gpus = calloc(GPUS, sizeof *gpus);
    hcp_db *db = open_db("kin.db");
    FILE *f = fopen(in_folder("specs.txt"), "w");
    struct hcp_err err = {0};
    char text[512] = "", name[32];

    assert_true(gpus && f);
    assert_int_equal(hcp_db_begin(db, &err), HCP_OK);
    for (int i = 0; i < GPUS; i++) {
        make_gpu(&gpus[i], &seed, decode);
        snprintf(name, sizeof name, "kin%d", i);
        put_line(f, name, i, &gpus[i].kin);
        put(db, &gpus[i], name, gpus[i].limit, gpus[i].kin.used, gpus[i].error,
            gpus[i].error);
        snprintf(name, sizeof name, "target%d", i);
        put_line(f, name, i, &gpus[i].target);
    }
    fclose(f);
    assert_int_equal(hcp_db_commit(db, &err), HCP_OK);
    hcp_db_close(db);
    if (hcp_specs_load(in_folder("specs.txt"), text, sizeof text, specs))
        fail_msg("%s", text);
    assert_int_equal(hcp_specs_count(*specs), 2 * GPUS);
    return gpus;
}

static hcp_ring *bind(const hcp_models *models, const char *a, const char *b,
                      const char *limit, int decode, char *text, size_t size)
{
    hcp_rank ranks[2];
    hcp_shape shape;
    hcp_ring *ring = NULL;

    hcp_shape_init(&shape);
    strcpy(shape.phase, decode ? "decode" : "prefill");
    for (int r = 0; r < 2; r++) {
        hcp_rank_init(&ranks[r]);
        snprintf(ranks[r].device, sizeof ranks[r].device, "%s", r ? b : a);
        snprintf(ranks[r].limit, sizeof ranks[r].limit, "%s", limit);
    }
    hcp_ring_create(models, &shape, ranks, 2, NULL, text, size, &ring);
    return ring;
}

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

/* ---- which kin, and what depends on it ---- */

static const char table[] =
    "big   one 100 1000 1000 50 4000 80 - - big-alias,other made up\n"
    "small one 50  100  100  10 500  24 - - - made up\n"
    "old   two 60  90   -    10 450  24 - - - made up\n"
    "want  one 40  110  110  10 550  16 600 64 wanted,w made up\n"
    "fp16only three 40 - 65 8 320 16 - 32 - made up\n";

static hcp_models *load(const char *text_of_table, int with_old, int with_one)
{
    hcp_db *db = open_db("kin.db");
    hcp_models *models = NULL;
    hcp_specs *specs;
    struct gpu g;
    uint64_t seed = 4;
    char text[900] = "";

    make_gpu(&g, &seed, 0);
    g.poly = 0;
    if (with_one) {
        put(db, &g, "big-alias", "", 100, 0.02, 0.02);
        put(db, &g, "big-alias", "mps:50", 50, 0.02, 0.02);
        put(db, &g, "small", "", 50, 0.02, 0.02);
        put(db, &g, "small", "mps:20", 10, 0.02, 0.02);
        put(db, &g, "unlisted", "", 44, 0.02, 0.02);
    }
    if (with_old)
        put(db, &g, "old", "", 60, 0.02, 0.02);
    hcp_db_close(db);
    if (specs_parse(text_of_table, strlen(text_of_table), "t.txt", text, sizeof text,
                    &specs))
        fail_msg("%s", text);
    if (hcp_models_load_specs(in_folder("kin.db"), specs, text, sizeof text, &models))
        fail_msg("%s", text);
    hcp_specs_free(specs);
    return models;
}

/* The kin and factor of a data sheet, as DEVICE[@LIMIT]; "" and *text: none. */
static const char *kin_of(const hcp_models *models, const char *device_name,
                          const char *limit, double *factor, char *text, size_t size)
{
    static char name[128];
    hcp_rank_estimate e = {.size = sizeof e};
    hcp_ring *ring = bind(models, device_name, device_name, limit, 0, text, size);

    name[0] = 0;
    if (!ring)
        return name;
    hcp_ring_estimate(ring, 1, &e);
    *factor = e.factor;
    snprintf(name, sizeof name, "%s%s%s", e.kin_device, e.kin_limit[0] ? "@" : "",
             e.kin_limit);
    hcp_ring_free(ring);
    return name;
}

static void nearest_kin(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "";
    double near = 0, far = 0, other = 0;

    (void)state;
    /* Generation, then FLOP/s and bandwidth, then the part of the SMs, then the limit. */
    assert_string_equal(kin_of(models, "spec:want", "", &near, text, sizeof text),
                        "small");
    assert_string_equal(kin_of(models, "spec:w", "", &near, text, sizeof text), "small");
    assert_string_equal(kin_of(models, "spec:want", "mps:21", &far, text, sizeof text),
                        "small@mps:20");
    assert_string_equal(kin_of(models, "spec:want", "green:9", &far, text, sizeof text),
                        "small@mps:20");
    assert_string_equal(kin_of(models, "spec:big", "mps:50", &far, text, sizeof text),
                        "big-alias@mps:50");
    assert_string_equal(kin_of(models, "spec:big", "", &far, text, sizeof text),
                        "big-alias");
    assert_string_equal(kin_of(models, "spec:big", "green:10", &far, text, sizeof text),
                        "big-alias@mps:50");
    assert_true(far > near);
    assert_string_equal(kin_of(models, "spec:old", "", &other, text, sizeof text), "old");
    hcp_models_free(models);
    models = load(table, 0, 1);
    assert_string_equal(kin_of(models, "spec:old", "", &other, text, sizeof text),
                        "small");
    assert_true(other > far);
    hcp_models_free(models);
}

static void no_answer(void **state)
{
    static const struct {
        const char *device, *limit, *says;
    } cases[] = {
        {"spec:wan", "",
         "spec:wan: no such GPU in t.txt; did you mean want?; 'hcp-plan "
         "specs' lists them"},
        {"spec:bigger", "", "did you mean big?"},
        {"spec:zzzzzz", "", "no such GPU in t.txt; 'hcp-plan specs' lists them"},
        {"spec:", "", "no such GPU"},
        {"spec:want", "cpu:50", "a GPU is limited by mps:PERCENT or green:SMS"},
        {"spec:want", "green:41", "want has 40 SMs"},
        {"spec:want", "mps:nought", "a GPU is limited by"},
        {"spec:fp16only", "", "has no bf16 FLOP/s; ask for another --dtype"},
    };
    hcp_models *models = load(table, 1, 1), *none;
    char text[900];
    double factor;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *text = 0;
        assert_string_equal(
            kin_of(models, cases[i].device, cases[i].limit, &factor, text, sizeof text),
            "");
        if (!strstr(text, cases[i].says))
            fail_msg("'%s' does not say '%s'", text, cases[i].says);
    }
    hcp_models_free(models);

    none = load(table, 0, 0);
    kin_of(none, "spec:want", "", &factor, text, sizeof text);
    assert_non_null(
        strstr(text, "no measured kin of 'spec:want' (rank 0; bf16, 32/8 heads"));
    assert_non_null(strstr(text, "hcp-profile import --db"));
    hcp_models_free(none);

    assert_int_equal(hcp_models_load(in_folder("kin.db"), text, sizeof text, &none), 0);
    kin_of(none, "spec:want", "", &factor, text, sizeof text);
    assert_non_null(strstr(text, "no table of them is loaded"));
    hcp_models_free(none);
}

/* The table's lines of target and kin count; others do not. */
static uint64_t models_hash_of(const char *of_table, uint64_t *fingerprint)
{
    hcp_models *models = load(of_table, 1, 1);
    char text[900] = "";
    hcp_ring *ring = bind(models, "big-alias", "spec:want", "", 0, text, sizeof text);
    struct fixture_plan p;
    hcp_question q;
    uint64_t h;

    assert_non_null(ring);
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    h = p.plan.models_hash;
    *fingerprint = p.plan.fingerprint;
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    hcp_models_free(models);
    return h;
}

static void replace(char *out, size_t size, const char *from, const char *to)
{
    const char *at = strstr(table, from);

    assert_non_null(at);
    snprintf(out, size, "%.*s%s%s", (int)(at - table), table, to, at + strlen(from));
}

static void hash_covers_lines(void **state)
{
    static const char *const counts[][2] = {{"40  110  110", "40  111  110"},
                                            {"110  110  10", "110  112  10"},
                                            {"550  16", "551  16"},
                                            {"16 600", "17 600"},
                                            {"600 64", "601 64"},
                                            {"64 wanted", "63 wanted"},
                                            {"wanted,w made up", "wanted,w,x made up"},
                                            {"wanted,w made up", "wanted,w made UP"},
                                            {"one 40", "one 42"},
                                            {"50  100  100", "50  101  100"},
                                            {"500  24 - - -", "501  24 - - -"},
                                            {"500  24 - - -", "500  25 - - -"}};
    static const char *const not [][2] = {
        {"450  24", "451  24"}, {"40 - 65", "40 - 66"}, {"big   one", "big     one"}};
    char other[2000];
    uint64_t print, first_print, first = models_hash_of(table, &first_print);

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        replace(other, sizeof other, counts[i][0], counts[i][1]);
        if (models_hash_of(other, &print) == first || print == first_print)
            fail_msg("'%s' does not count", counts[i][1]);
    }
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        replace(other, sizeof other, not [i][0], not [i][1]);
        assert_int_equal(models_hash_of(other, &print), first);
        assert_int_equal(print, first_print);
    }
}

/* ---- what plans say ---- */

static void json_keeps(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "", json[8000], *at;
    hcp_ring *ring =
        bind(models, "big-alias", "spec:want", "mps:50", 0, text, sizeof text);
    struct fixture_plan p, back;
    hcp_question q;

    (void)state;
    assert_non_null(ring);
    fixture_plan_init(&p, 2);
    fixture_plan_init(&back, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(hcp_plan_to_json(&p.plan, json, sizeof json, NULL), HCP_STATUS_OK);
    at = strstr(json, "\"device\":\"spec:want\"");
    assert_non_null(at);
    assert_non_null(strstr(at, "\"source\":\"estimated\",\"estimated_from\":\"small\","
                               "\"measure\":\"hcp-profile run --limits mps:50\"}"));
    assert_true(strstr(json, "estimated_from") > at); /* not of the measured rank */
    assert_non_null(strstr(json, "\"source\":\"estimated\",\"fingerprint\""));
    assert_int_equal(
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &back.plan),
        HCP_STATUS_OK);
    assert_int_equal(back.plan.source, HCP_FROM_ESTIMATED);
    assert_string_equal(back.plan.ranks[1].kin, "small");
    /* It may have been outside the kin's lengths: what follows the plan must not stop. */
    assert_int_equal(hcp_plan_question(&back.plan, &q), HCP_STATUS_OK);
    assert_int_equal(q.extrapolate, 1);
    assert_int_equal(hcp_plan_fingerprint(&back.plan), p.plan.fingerprint);
    memcpy(strstr(json, "\"small\""), "\"sma1l\"", 7);
    assert_int_equal(
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &back.plan),
        HCP_STATUS_OK);
    assert_true(hcp_plan_fingerprint(&back.plan) != p.plan.fingerprint);
    fixture_plan_free(&p);
    fixture_plan_free(&back);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

/* Plans of documents, too; each end of their interval is the last rank's there. */
static void documents_keep(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "", json[8000];
    hcp_ring *ring = bind(models, "big-alias", "spec:want", "", 0, text, sizeof text);
    int64_t lengths[] = {4096, 1024, 640}, out_lengths[2][3];
    hcp_documents_rank ranks[2][2];
    hcp_document_part parts[2][4];
    hcp_documents_plan plan, back;
    hcp_documents q;
    size_t bytes;
    void *workspace;

    (void)state;
    assert_non_null(ring);
    hcp_documents_init(&q);
    q.lengths = lengths;
    q.n_documents = 3;
    bytes = hcp_documents_workspace_bytes(ring, 3);
    workspace = malloc(bytes);
    hcp_documents_plan_init(&plan, ranks[0], 2, parts[0], 4, out_lengths[0], 3);
    hcp_documents_plan_init(&back, ranks[1], 2, parts[1], 4, out_lengths[1], 3);
    if (hcp_documents_split(ring, &q, workspace, bytes, text, sizeof text, &plan))
        fail_msg("%s", text);
    assert_int_equal(plan.source, HCP_FROM_ESTIMATED);
    assert_string_equal(plan.ranks[0].kin, "");
    assert_string_equal(plan.ranks[1].kin, "small");
    assert_true(plan.ranks[1].tokens > 0);
    assert_true(plan.interval_hi_ms >= 1.39 * plan.ranks[1].predicted_ms);
    assert_true(plan.interval_lo_ms >= 0.97 * plan.ranks[0].predicted_ms);
    assert_int_equal(hcp_documents_to_json(&plan, json, sizeof json, NULL), HCP_STATUS_OK);
    assert_non_null(strstr(json, "\"source\":\"estimated\",\"estimated_from\":\"small\","
                                 "\"measure\":\"hcp-profile run\"}"));
    if (hcp_documents_from_json(json, strlen(json), text, sizeof text, &back))
        fail_msg("%s", text);
    assert_int_equal(back.source, HCP_FROM_ESTIMATED);
    assert_string_equal(back.ranks[1].kin, "small");
    assert_int_equal(hcp_documents_fingerprint(&back), plan.fingerprint);
    free(workspace);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

/* A measured rank is seen to become 1.6 times as slow: the other one takes over, and is
 * still a guess. Rings with factors are copies: what they share is freed once. */
static void rebalanced(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "";
    hcp_ring *ring = bind(models, "big-alias", "spec:want", "", 0, text, sizeof text);
    hcp_rebalance *r = NULL;
    struct fixture_plan p;
    const hcp_plan *proposal = NULL;
    hcp_question q;
    int64_t before;

    (void)state;
    assert_non_null(ring);
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    before = p.plan.ranks[1].tokens;
    assert_int_equal(hcp_rebalance_create(ring, &q, &p.plan, NULL, text, sizeof text, &r),
                     HCP_STATUS_OK);
    for (int t = 0; t < 50 && !proposal; t++) {
        hcp_rebalance_verdict v = {.size = sizeof v};

        /* After as many steps as with measured ranks: that an estimate may be off by a
         * factor is no reason to doubt what has been seen. */
        assert_true(t < 14);
        for (size_t i = 0; i < 2; i++)
            hcp_rebalance_observe(r, i,
                                  p.plan.ranks[i].compute_ms * (i || t < 10 ? 1 : 1.6), 0);
        assert_int_equal(hcp_rebalance_step(r, 50 - t, text, sizeof text, &v),
                         HCP_STATUS_OK);
        if (v.decision == HCP_REBALANCE_MOVE)
            proposal = hcp_rebalance_proposal(r);
    }
    assert_non_null(proposal);
    assert_true(proposal->ranks[1].tokens > before);
    assert_int_equal(proposal->source, HCP_FROM_ESTIMATED);
    assert_string_equal(proposal->ranks[1].kin, "small");
    assert_true(proposal->interval_hi_ms > 1.3 * proposal->makespan_ms);
    hcp_rebalance_free(r);
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.ranks[1].tokens, before); /* the ring is as it was */
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    hcp_models_free(models);
}

static void older_callers(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "";
    hcp_ring *ring = bind(models, "spec:want", "spec:w", "", 0, text, sizeof text);
    hcp_rank_estimate e = {.size = sizeof e - 1};
    hcp_spec spec = {.size = sizeof spec - 1};
    hcp_specs *specs;

    (void)state;
    assert_non_null(ring);
    assert_int_equal(hcp_ring_estimate(ring, 0, &e), HCP_STATUS_INVALID);
    e.size = sizeof e;
    assert_int_equal(hcp_ring_estimate(ring, 2, &e), HCP_STATUS_INVALID);
    assert_int_equal(hcp_ring_estimate(ring, 1, &e), HCP_STATUS_OK);
    assert_string_equal(e.name, "want");
    assert_int_equal(e.memory_bytes, 16000000000);
    assert_int_equal(specs_parse(table, strlen(table), "t", text, sizeof text, &specs),
                     0);
    assert_int_equal(hcp_specs_get(specs, 0, &spec), HCP_STATUS_INVALID);
    spec.size = sizeof spec;
    assert_int_equal(hcp_specs_get(specs, 5, &spec), HCP_STATUS_INVALID);
    assert_int_equal(hcp_specs_get(specs, 4, &spec), HCP_STATUS_OK);
    assert_true(strcmp(spec.name, "fp16only") == 0 && spec.bf16_tflops == 0);
    assert_int_equal(hcp_specs_find(specs, "spec:other", text, sizeof text, &spec), 0);
    assert_string_equal(spec.name, "big");
    assert_int_equal(hcp_specs_find(specs, "nowhere", text, sizeof text, &spec),
                     HCP_STATUS_NO_MODEL);
    hcp_specs_free(specs);
    hcp_specs_free(NULL);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_of_prefill),  cmocka_unit_test(times_of_decode),
        cmocka_unit_test(plans_of_prefill),  cmocka_unit_test(plans_of_decode),
        cmocka_unit_test(nearest_kin),       cmocka_unit_test(no_answer),
        cmocka_unit_test(hash_covers_lines), cmocka_unit_test(json_keeps),
        cmocka_unit_test(older_callers),     cmocka_unit_test(rebalanced),
        cmocka_unit_test(documents_keep),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
