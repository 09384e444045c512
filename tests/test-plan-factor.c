/* SPDX-License-Identifier: Apache-2.0
 *
 * Factors on the times of ranks (time_scale): every evaluation honours them, plans carry
 * them, and without them nothing changes.
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
#include "tests/decode-reference.h"
#include "tests/plan-reference.h"

static char text[512];

static double random_scale(uint64_t *seed)
{
    return fixture_range(seed, 0, 3) ? fixture_real(seed, 0.4, 4) : 1;
}

/* Ranks of two databases: times t with factor s, and times s t without. */
struct both {
    size_t n;
    struct fixture slow[4], plain[4];
    char names[4][8];
    hcp_models *models[2];
    hcp_ring *ring[2];
    hcp_rank ranks[2][4];
};

static void make(struct both *b, uint64_t *seed)
{
    memset(b, 0, sizeof *b);
    b->n = (size_t)fixture_range(seed, 1, 3);
    for (size_t r = 0; r < b->n; r++) {
        double a = fixture_real(seed, 1e-8, 1e-7), s = random_scale(seed);
        struct fixture *f = &b->plain[r];
        int linear = fixture_range(seed, 0, 1) != 0;

        snprintf(b->names[r], sizeof b->names[r], "g%d", (int)(r % 1000));
        *f = (struct fixture){.device = b->names[r],
                              .a = a,
                              .b = 1e3 * a,
                              .f = 0.01,
                              .tile = 64,
                              .lut = (int)(seed[0] & 1),
                              .poly = !(seed[0] & 1),
                              .error = 0.02,
                              .finish = {1e-3, 1e-6, 2e-3, 2e-6}};
        b->slow[r] = *f;
        b->slow[r].a *= s;
        b->slow[r].b *= s;
        b->slow[r].f *= s;
        for (int i = 0; i < 4; i++)
            b->slow[r].finish[i] *= s;
        for (int k = 0; k < 2; k++) {
            hcp_rank *rank = &b->ranks[k][r];

            hcp_rank_init(rank);
            snprintf(rank->device, sizeof rank->device, "%s", b->names[r]);
            rank->linear_before_us = linear ? (k ? s : 1) * 0.1 : 0;
            rank->linear_after_fixed_us = linear ? (k ? s : 1) * 30 : 0;
            rank->linear_after_us = linear ? (k ? s : 1) * 0.3 : 0;
            rank->time_scale = k ? 0 : s;
        }
    }
    b->models[0] = fixture_models(b->plain, b->n);
    b->models[1] = fixture_models(b->slow, b->n);
    for (int k = 0; k < 2; k++)
        b->ring[k] = fixture_ring_of(b->models[k], b->ranks[k], b->n);
}

static void clear(struct both *b)
{
    for (int k = 0; k < 2; k++) {
        hcp_ring_free(b->ring[k]);
        hcp_models_free(b->models[k]);
    }
}

static void near(double a, double b, const char *what, int i)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)) && !(isnan(a) && isnan(b)))
        fail_msg("case %d: %s %.17g, expected %.17g", i, what, a, b);
}

/* As other models would have it, and as exhaustive search finds. */
static void equals_other_models(void **state)
{
    uint64_t seed = 71;
    int cases = (int)(250 * fixture_scale()) + 2;

    (void)state;
    for (int i = 0; i < cases; i++) {
        struct both b;
        struct fixture_plan p[2];
        hcp_question q;
        int64_t tokens[4];
        double best;

        make(&b, &seed);
        hcp_question_init(&q);
        q.seq_len = fixture_range(&seed, 200, 2500);
        q.tile = 64;
        q.causal = (int)fixture_range(&seed, 0, 1);
        q.layout = (hcp_layout)fixture_range(&seed, 1, 3);
        q.stripes = 4;
        q.barrier = fixture_range(&seed, 0, 4) == 0;
        q.link_gbps = fixture_range(&seed, 0, 1) ? 10 : 0;
        q.extrapolate = 1;
        for (int k = 0; k < 2; k++) {
            fixture_plan_init(&p[k], b.n);
            if (fixture_split(b.ring[k], &q, &p[k], text, sizeof text))
                fail_msg("%s", text);
        }
        near(p[0].plan.makespan_ms, p[1].plan.makespan_ms, "makespan", i);
        near(p[0].plan.interval_hi_ms, p[1].plan.interval_hi_ms, "interval", i);
        near(p[0].plan.even_ms, p[1].plan.even_ms, "even", i);
        best = reference_best(b.ring[0], &q, tokens);
        near(p[0].plan.makespan_ms, best, "best", i);
        for (size_t r = 0; r < b.n; r++) {
            near(p[0].plan.ranks[r].time_scale, b.ranks[0][r].time_scale, "scale", i);
            assert_true(p[1].plan.ranks[r].time_scale == 1);
            tokens[r] = p[0].plan.ranks[r].tokens;
        }
        assert_int_equal(hcp_plan_evaluate(b.ring[1], &q, tokens, p[1].workspace,
                                           p[1].workspace_bytes, text, sizeof text,
                                           &p[1].plan),
                         HCP_STATUS_OK);
        near(p[1].plan.makespan_ms, p[0].plan.makespan_ms, "the same shares", i);
        for (size_t r = 0; r < b.n; r++) {
            hcp_prediction one = {.size = sizeof one}, two = one;

            near(p[0].plan.ranks[r].compute_ms, p[1].plan.ranks[r].compute_ms, "compute",
                 i);
            near(p[0].plan.ranks[r].linear_after_ms, p[1].plan.ranks[r].linear_after_ms,
                 "linear", i);
            hcp_block_predict(b.ring[0], r, HCP_MODEL_BEST, 1, 700, 900, 1, NULL, 0,
                              &one);
            hcp_block_predict(b.ring[1], r, HCP_MODEL_BEST, 1, 700, 900, 1, NULL, 0,
                              &two);
            near(one.ms, two.ms, "block", i);
        }
        for (int k = 0; k < 2; k++)
            fixture_plan_free(&p[k]);
        clear(&b);
    }
}

static char *json_of(const hcp_plan *plan)
{
    size_t n = 0;
    char *json;

    assert_int_equal(hcp_plan_to_json(plan, NULL, 0, &n), HCP_STATUS_SPACE);
    json = malloc(n + 1);
    assert_non_null(json);
    assert_int_equal(hcp_plan_to_json(plan, json, n + 1, &n), HCP_STATUS_OK);
    return json;
}

/* Files and fingerprints have factors that are not 1, and no others. */
static void in_plans(void **state)
{
    static const char *const bad[] = {"0", "-1", "1001", "null", "\"2\"", "1e-4"};
    uint64_t seed = 72;

    (void)state;
    for (int i = 0; i < 40; i++) {
        struct both b;
        struct fixture_plan p, q2, again;
        hcp_ring *one;
        hcp_question q;
        uint64_t print;
        hcp_step steps[9];
        size_t n;
        char *json, *at, damaged[8192];

        make(&b, &seed);
        for (size_t r = 0; r < b.n; r++)
            b.ranks[0][r].time_scale = 1;
        one = fixture_ring_of(b.models[0], b.ranks[0], b.n);
        hcp_question_init(&q);
        q.seq_len = 2000;
        q.causal = 1;
        q.extrapolate = 1;
        fixture_plan_init(&p, b.n);
        fixture_plan_init(&q2, b.n);
        fixture_plan_init(&again, b.n);
        assert_int_equal(fixture_split(one, &q, &p, text, sizeof text), HCP_STATUS_OK);
        for (size_t r = 0; r < b.n; r++)
            b.ranks[0][r].time_scale = 0;
        hcp_ring_free(one);
        one = fixture_ring_of(b.models[0], b.ranks[0], b.n);
        assert_int_equal(fixture_split(one, &q, &q2, text, sizeof text), HCP_STATUS_OK);
        assert_int_equal(p.plan.fingerprint, q2.plan.fingerprint);
        json = json_of(&p.plan);
        assert_null(strstr(json, "time_scale"));
        free(json);

        assert_int_equal(fixture_split(b.ring[0], &q, &p, text, sizeof text),
                         HCP_STATUS_OK);
        print = p.plan.fingerprint;
        json = json_of(&p.plan);
        if (hcp_plan_from_json(json, strlen(json), text, sizeof text, &again.plan))
            fail_msg("%s", text);
        assert_int_equal(hcp_plan_fingerprint(&again.plan), print);
        for (size_t r = 0; r < b.n; r++)
            assert_memory_equal(&again.plan.ranks[r].time_scale,
                                &p.plan.ranks[r].time_scale, sizeof(double));
        again.plan.ranks[0].time_scale += 0.125;
        assert_int_not_equal(hcp_plan_fingerprint(&again.plan), print);
        assert_int_equal(hcp_plan_simulate(b.ring[0], &p.plan, 1, p.workspace,
                                           p.workspace_bytes, text, sizeof text, steps, 9,
                                           &n),
                         HCP_STATUS_OK);
        at = strstr(json, "\"time_scale\":");
        if (at)
            for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
                at += strlen("\"time_scale\":");
                snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - json), json,
                         bad[k], at + strcspn(at, ",}"));
                at -= strlen("\"time_scale\":");
                assert_int_equal(hcp_plan_from_json(damaged, strlen(damaged), text,
                                                    sizeof text, &again.plan),
                                 HCP_STATUS_FORMAT);
            }
        free(json);
        fixture_plan_free(&p);
        fixture_plan_free(&q2);
        fixture_plan_free(&again);
        hcp_ring_free(one);
        clear(&b);
    }
}

static void decode_and_documents(void **state)
{
    uint64_t seed = 73;

    (void)state;
    for (int i = 0; i < 60; i++) {
        struct decode_kind kinds[2][3];
        hcp_models *models[2];
        hcp_ring *ring[2];
        hcp_rank ranks[3];
        hcp_shape shape;
        hcp_question q;
        double scale[3], ms[2];
        struct both b;
        struct fixture_plan p;

        hcp_shape_init(&shape);
        strcpy(shape.phase, "decode");
        shape.batch = 4;
        fixture_plan_init(&p, 3);
        for (size_t r = 0; r < 3; r++) {
            scale[r] = random_scale(&seed);
            kinds[0][r] = kinds[1][r] = (struct decode_kind){
                0.01, fixture_real(&seed, 1e-6, 1e-5), 0, 0.02, 0, 1};
            kinds[1][r].fixed_ms *= scale[r];
            kinds[1][r].ms_per_token *= scale[r];
        }
        hcp_question_init(&q);
        q.seq_len = 20000;
        q.extrapolate = 1;
        for (int k = 0; k < 2; k++) {
            models[k] = decode_models(kinds[k], 3, &shape);
            ring[k] = decode_ring(models[k], &shape, NULL, NULL, NULL, 3);
            if (k == 0) {
                for (size_t r = 0; r < 3; r++) {
                    ranks[r] = ring[k]->ranks[r].spec;
                    ranks[r].time_scale = scale[r];
                }
                hcp_ring_free(ring[k]);
                if (hcp_ring_create(models[k], &shape, ranks, 3, NULL, text, sizeof text,
                                    &ring[k]))
                    fail_msg("%s", text);
            }
            if (fixture_split(ring[k], &q, &p, text, sizeof text))
                fail_msg("%s", text);
            ms[k] = p.plan.makespan_ms;
            assert_true(k || p.plan.ranks[0].time_scale == scale[0]);
            hcp_ring_free(ring[k]);
            hcp_models_free(models[k]);
        }
        near(ms[0], ms[1], "decode", i);
        fixture_plan_free(&p);

        make(&b, &seed);
        for (int k = 0; k < 2; k++) {
            static int64_t lengths[4] = {900, 1700, 300, 64}, kept[4];
            hcp_documents_rank of[3];
            hcp_document_part parts[8];
            hcp_documents_plan plan;
            hcp_documents d;
            size_t bytes = hcp_documents_workspace_bytes(b.ring[k], 4), n;
            void *workspace = malloc(bytes);
            char json[8192];

            hcp_documents_init(&d);
            d.lengths = lengths;
            d.n_documents = 4;
            d.extrapolate = 1;
            hcp_documents_plan_init(&plan, of, 3, parts, 8, kept, 4);
            if (hcp_documents_split(b.ring[k], &d, workspace, bytes, text, sizeof text,
                                    &plan))
                fail_msg("%s", text);
            ms[k] = plan.makespan_ms;
            if (k == 0) {
                uint64_t print = plan.fingerprint;

                assert_int_equal(hcp_documents_to_json(&plan, json, sizeof json, &n),
                                 HCP_STATUS_OK);
                assert_int_equal(
                    hcp_documents_from_json(json, n, text, sizeof text, &plan),
                    HCP_STATUS_OK);
                assert_int_equal(hcp_documents_fingerprint(&plan), print);
                for (size_t r = 0; r < b.n; r++)
                    assert_true(of[r].time_scale == b.ranks[0][r].time_scale);
            }
            free(workspace);
        }
        near(ms[0], ms[1], "documents", i);
        clear(&b);
    }
}

static void refused(void **state)
{
    static const double bad[] = {-1, 1e-4, 1001, NAN, INFINITY};
    uint64_t seed = 74;
    struct both b;
    hcp_shape shape;
    hcp_ring *ring = NULL;

    (void)state;
    make(&b, &seed);
    hcp_shape_init(&shape);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        b.ranks[0][0].time_scale = bad[i];
        assert_int_equal(hcp_ring_create(b.models[0], &shape, b.ranks[0], b.n, NULL, text,
                                         sizeof text, &ring),
                         HCP_STATUS_INVALID);
        assert_non_null(strstr(text, "time_scale must be 0.001..1000"));
    }
    clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_other_models),
        cmocka_unit_test(in_plans),
        cmocka_unit_test(decode_and_documents),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
