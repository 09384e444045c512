/* SPDX-License-Identifier: Apache-2.0
 *
 * The library as its users meet it: which kernel a ring is bound to, errors that name
 * cause and next step, outputs that stay untouched when a call fails.
 */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/decode-reference.h"
#include "tests/plan-kinds.h"

/* ---- binding ---- */

static hcp_status bind(const hcp_models *models, const char *device, const char *limit,
                       const char *provider, int heads, char *text, size_t size,
                       hcp_ring **out)
{
    hcp_rank rank;
    hcp_shape shape;

    hcp_rank_init(&rank);
    snprintf(rank.device, sizeof rank.device, "%s", device);
    snprintf(rank.limit, sizeof rank.limit, "%s", limit);
    hcp_shape_init(&shape);
    shape.heads = heads;
    text[0] = 0;
    *out = NULL;
    return hcp_ring_create(models, &shape, &rank, 1, provider, text, size, out);
}

/* Unasked, the kernel that does the most on all ranks together, by the longest square
 * that all are measured at, finish pass included; of equals the first in the alphabet. */
static void fastest_kernel(void **state)
{
    const struct fixture with[] = {
        {"gpu", "mps:100", "quick", 2e-9, 1e-5, 1e-5, 1e-3, 128, 1, 0, 0, {0}, 0.01},
        {"gpu", "mps:10", "quick", 4e-8, 1e-5, 1e-5, 1e-3, 128, 0, 1, 0, {0}, 0.01},
        {"gpu", "mps:100", "broad", 3e-9, 1e-5, 1e-5, 1e-3, 128, 0, 1, 0, {0}, 0.01},
        {"gpu", "mps:10", "broad", 2e-8, 1e-5, 1e-5, 1e-3, 128, 1, 0, 0, {0}, 0.01},
        {"gpu", "mps:10", "alone", 1e-9, 1e-5, 1e-5, 1e-3, 128, 1, 1, 0, {0}, 0.01},
        {"one", "", "accumulates", 2e-9, 1e-5, 1e-5, 1e-3, 128, 1, 0, 0, {0}, 0.01},
        {"one",
         "",
         "merges",
         1.9e-9,
         1e-5,
         1e-5,
         1e-3,
         128,
         1,
         0,
         0,
         {0.01, 1e-4, 0.01, 1e-4},
         0.01},
        {"twins", "", "b", 2e-9, 1e-5, 1e-5, 1e-3, 128, 1, 1, 0, {0}, 0.01},
        {"twins", "", "a", 2e-9, 1e-5, 1e-5, 1e-3, 128, 1, 1, 0, {0}, 0.01},
    };
    static const struct {
        int n, which[5];
        const char *name;
    } cases[] = {
        {2, {0, 1}, "quick"}, /* 0.50 + 0.025 against 0.33 + 0.05 */
        {5, {1, 1, 1, 0, 1}, "quick"},
        {3, {1, 1, 1}, "alone"}, /* no rank but these: it covers them */
        {1, {0}, "quick"},
        {1, {5}, "accumulates"}, /* 8.6 against 8.2 + 6.6 ms at 64K */
        {2, {7, 7}, "a"},
    };
    hcp_models *models = fixture_models(with, sizeof with / sizeof *with);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hcp_ring *ring = fixture_ring(models, with, cases[i].which, NULL, cases[i].n);
        assert_string_equal(hcp_ring_provider(ring), cases[i].name);
        hcp_ring_free(ring);
    }
    /* many slow ranks: broad does more on all together */
    int many[1 + 16] = {0};
    for (int r = 1; r <= 16; r++)
        many[r] = 1;
    hcp_ring *ring = fixture_ring(models, with, many, NULL, 17);
    assert_string_equal(hcp_ring_provider(ring), "broad");
    hcp_ring_free(ring);
    /* a stale model is still the kernel that is meant, and is refused */
    for (size_t i = 0; i < models->n_stored; i++)
        models->stored[i].stale =
            strcmp(hcp_model_row(models->stored[i].model)->key.provider, "quick") == 0;
    hcp_rank rank;
    hcp_shape shape;
    char text[512];
    hcp_rank_init(&rank);
    hcp_shape_init(&shape);
    strcpy(rank.device, "gpu");
    strcpy(rank.limit, "mps:100");
    assert_int_equal(
        hcp_ring_create(models, &shape, &rank, 1, NULL, text, sizeof text, &ring),
        HCP_STATUS_STALE);
    fixture_free(models);
}

static void binding(void **state)
{
    hcp_models *models = fixture_models(kinds, KINDS);
    static const int both[] = {2, 3}, none[] = {0, 4};
    hcp_ring *ring;
    hcp_rank ranks[2];
    hcp_shape shape;
    char text[1024];

    (void)state;
    models->measured = calloc(4, sizeof *models->measured);
    models->sm_count = calloc(4, sizeof *models->sm_count);
    for (int i = 0; i < 4; i++) {
        models->measured[i] = hcp_model_row(models->stored[i].model)->key;
        if (i == 3)
            strcpy(models->measured[i].limit, "mps:50");
    }
    models->n_measured = 4;

    assert_int_equal(bind(models, "nvidia-l40s", "", NULL, 32, text, sizeof text, &ring),
                     HCP_STATUS_NO_MODEL);
    has(text, "no profile for 'nvidia-l40s'");
    has(text, "run 'hcp-profile run --db test.db' on that machine");
    has(text, "measured devices: nvidia-h200");
    assert_null(ring);
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:20", NULL, 32, text, sizeof text, &ring),
        HCP_STATUS_NO_MODEL);
    has(text, "'nvidia-h200@mps:20'");
    has(text, "there is nvidia-h200@mps:100 (cudnn)");
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:10", NULL, 16, text, sizeof text, &ring),
        HCP_STATUS_NO_MODEL);
    has(text, "16/8 heads");
    has(text, "32/8 heads"); /* the near match */
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:50", NULL, 32, text, sizeof text, &ring),
        HCP_STATUS_NO_MODEL);
    has(text, "measured but not fitted; run 'hcp-plan fit --db test.db'");
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:10", "nope", 32, text, sizeof text, &ring),
        HCP_STATUS_NO_MODEL);
    has(text, "nope");
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:10", NULL, 33, text, sizeof text, &ring),
        HCP_STATUS_INVALID);
    has(text, "multiple of KV heads");

    /* cudnn is the faster of the two there; where it does not cover all ranks, what does.
     */
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:10", NULL, 32, text, sizeof text, &ring),
        HCP_STATUS_OK);
    assert_string_equal(hcp_ring_provider(ring), "cudnn");
    hcp_ring_free(ring);
    ring = fixture_ring(models, kinds, both, NULL, 2);
    assert_string_equal(hcp_ring_provider(ring), "flash");
    hcp_ring_free(ring);
    ring = NULL;
    for (int i = 0; i < 2; i++) {
        hcp_rank_init(&ranks[i]);
        strcpy(ranks[i].device, kinds[none[i]].device);
        strcpy(ranks[i].limit, i ? "" : "mps:100");
    }
    hcp_shape_init(&shape);
    assert_int_equal(
        hcp_ring_create(models, &shape, ranks, 2, NULL, text, sizeof text, &ring),
        HCP_STATUS_NO_MODEL);
    has(text, "no kernel is profiled on all ranks");
    assert_null(ring);

    models->stored[0].stale = models->stored[1].stale = 1;
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:100", NULL, 32, text, sizeof text, &ring),
        HCP_STATUS_STALE);
    has(text, "samples changed since the fit; run 'hcp-plan fit --db test.db'");
    models->stored[1].stale = 0; /* one of two kinds is enough */
    assert_int_equal(
        bind(models, "nvidia-h200", "mps:100", NULL, 32, text, sizeof text, &ring),
        HCP_STATUS_OK);
    hcp_ring_free(ring);
    fixture_free(models);
}

/* ---- answers that are none ---- */

static void refusals(void **state)
{
    static const int which[] = {0, 1};
    static const int64_t caps[] = {3000, 1000};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, caps, 2);
    struct fixture_plan p;
    hcp_plan before;
    hcp_question q;
    char text[1024];

    (void)state;
    fixture_plan_init(&p, 2);
    before = p.plan;
    hcp_question_init(&q);
    q.seq_len = 5000;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text),
                     HCP_STATUS_INFEASIBLE);
    /* Tiles of 128 and a rest of 8: 2944 + 8 and 896 tokens fit, 1152 do not. */
    has(text, "short by 1152 tokens");
    assert_memory_equal(&before, &p.plan, sizeof before);
    q.seq_len = 0;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_INVALID);
    q.seq_len = ((int64_t)1 << 30) + 1;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_INVALID);
    q.seq_len = 3800;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_true(p.plan.ranks[0].tokens <= 3000 && p.plan.ranks[1].tokens <= 1000);
    q.buffers = 17;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_INVALID);
    q.buffers = 2;
    q.link_gbps = NAN;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_INVALID);
    q.link_gbps = 0;
    for (int32_t bad = 0; bad < 66; bad += 65) {
        q.sub_blocks = bad;
        assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text),
                         HCP_STATUS_INVALID);
        has(text, "sub_blocks");
    }
    q.sub_blocks = 1;
    q.strategy = HCP_STRATEGY_GIVEN;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_INVALID);
    has(text, "hcp_plan_evaluate");
    q.strategy = HCP_STRATEGY_BEST;
    assert_int_equal(hcp_plan_split(ring, &q, p.workspace, p.workspace_bytes - 1, text,
                                    sizeof text, &p.plan),
                     HCP_STATUS_SPACE);
    has(text, "needed for 2 ranks");
    assert_int_equal(hcp_plan_split(ring, &q, (char *)p.workspace + 1, p.workspace_bytes,
                                    NULL, 0, &p.plan),
                     HCP_STATUS_OK); /* any alignment; the reserve covers it */
    p.plan.segments_capacity = 1;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_SPACE);
    q.size = 8;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_INVALID);
    hcp_ring_free(ring);
    fixture_plan_free(&p);

    ring = fixture_ring(models, kinds, which, NULL, 2);
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 1 << 20;
    before = p.plan;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OUTSIDE);
    has(text, "measured q_len 1..65536");
    has(text, "hcp-profile run --db test.db");
    assert_memory_equal(&before, &p.plan, sizeof before);
    q.extrapolate = 1;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.source, HCP_FROM_EXTRAPOLATED);
    /* Of two whole halves inside the measured lengths, what lies outside is unknown. */
    q.extrapolate = 0;
    q.seq_len = 65536 + 6000;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_true(isnan(p.plan.drop_ms));
    assert_true(p.plan.source != HCP_FROM_EXTRAPOLATED);
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    fixture_free(models);
}

static void predictions(void **state)
{
    static const int which[] = {0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 1);
    hcp_prediction p = {.size = sizeof p};
    char text[512];

    (void)state;
    assert_int_equal(hcp_block_predict(ring, 0, HCP_MODEL_BEST, 0, 1024, 2048, 0, text,
                                       sizeof text, &p),
                     HCP_STATUS_OK);
    assert_string_equal(p.model, "lut"); /* half the poly's error */
    assert_float_equal(p.ms, 2e-8 * 1024 * 2048 + 1e-5 * 1024 + 0.01, 1e-9);
    assert_float_equal(p.lo_ms, p.ms * 0.98, 1e-9);
    assert_float_equal(p.hi_ms, p.ms * 1.02, 1e-9);
    assert_int_equal(hcp_block_predict(ring, 0, HCP_MODEL_POLY, 0, 1024, 2048, 0, text,
                                       sizeof text, &p),
                     HCP_STATUS_OK);
    assert_string_equal(p.model, "poly");
    assert_int_equal(hcp_block_predict(ring, 0, HCP_MODEL_BEST, 0, 1 << 20, 128, 0, text,
                                       sizeof text, &p),
                     HCP_STATUS_OUTSIDE);
    assert_string_equal(p.model, "poly"); /* untouched */
    assert_int_equal(hcp_block_predict(ring, 0, HCP_MODEL_BEST, 0, 1 << 20, 128, 1, text,
                                       sizeof text, &p),
                     HCP_STATUS_OK);
    assert_int_equal(p.source, HCP_FROM_EXTRAPOLATED);
    assert_int_equal(
        hcp_block_predict(ring, 1, HCP_MODEL_BEST, 0, 128, 128, 1, text, sizeof text, &p),
        HCP_STATUS_INVALID);
    hcp_ring_free(ring);
    fixture_free(models);
}

static void words(void **state)
{
    hcp_strategy strategy;
    hcp_layout layout;

    (void)state;
    for (int i = 0; i <= HCP_STRATEGY_GIVEN; i++) {
        assert_int_equal(
            hcp_strategy_from_name(hcp_strategy_name((hcp_strategy)i), &strategy), 0);
        assert_int_equal(strategy, i);
    }
    assert_int_equal(hcp_strategy_from_name("bset", &strategy), -1);
    assert_int_equal(hcp_strategy_from_name(NULL, &strategy), -1);
    assert_int_equal(hcp_layout_from_name("zigzag", &layout), 0);
    assert_int_equal(layout, HCP_LAYOUT_ZIGZAG);
    assert_string_equal(hcp_layout_name((hcp_layout)99), "?");
    for (int i = 0; i <= HCP_STATUS_NO_MEMORY; i++)
        assert_string_not_equal(hcp_strerror((hcp_status)i), "unknown status");
    assert_string_equal(hcp_strerror((hcp_status)99), "unknown status");
    assert_string_equal(hcp_strerror((hcp_status)-1), "unknown status");
    assert_int_equal(hcp_plan_version(), HCP_PLAN_VERSION);
    hcp_models_free(NULL);
    hcp_ring_free(NULL);
    assert_int_equal(hcp_workspace_bytes(0), 0);
    assert_int_equal(hcp_workspace_bytes(HCP_PLAN_MAX_RANKS + 1), 0);
    assert_true(hcp_workspace_bytes(1) > 0);
}

static void missing_files(void **state)
{
    hcp_models *models = NULL;
    char text[512];

    (void)state;
    assert_int_equal(hcp_models_load("/nonexistent/h.db", text, sizeof text, &models),
                     HCP_STATUS_IO);
    has(text, "/nonexistent/h.db");
    assert_null(models);
    assert_int_equal(hcp_models_load("/dev/null", NULL, 0, &models), HCP_STATUS_IO);
    assert_int_equal(hcp_models_load(NULL, text, sizeof text, &models),
                     HCP_STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binding),  cmocka_unit_test(fastest_kernel),
        cmocka_unit_test(refusals), cmocka_unit_test(predictions),
        cmocka_unit_test(words),    cmocka_unit_test(missing_files),
    };

    setlocale(LC_ALL, "");
    return cmocka_run_group_tests_name("plan-api", tests, NULL, NULL);
}
