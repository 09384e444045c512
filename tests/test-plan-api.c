/* SPDX-License-Identifier: Apache-2.0
 *
 * The library as its users meet it: no allocation and no change of shared data on the
 * decision path, threads agree, errors name cause and next step, outputs stay untouched
 * when a call fails.
 */
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"

/* ---- every allocation of the process is counted (not under a sanitizer, which has an
 * allocator of its own) ---- */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define COUNTED 0
static long allocations;
#else
#define COUNTED 1
static long allocations;
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(p, size);
}
#endif

static const struct fixture kinds[] = {
    {.device = "nvidia-h200",
     .limit = "mps:100",
     .a = 2e-8,
     .b = 1e-5,
     .f = 0.01,
     .tile = 128,
     .lut = 1,
     .poly = 1,
     .error = 0.02},
    {.device = "nvidia-h200",
     .limit = "mps:10",
     .a = 2e-7,
     .b = 1e-4,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
    {.device = "nvidia-h200",
     .limit = "mps:10",
     .provider = "flash",
     .a = 3e-7,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
    {.device = "nvidia-a100",
     .provider = "flash",
     .a = 5e-8,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
    {.device = "nvidia-l4",
     .provider = "reference",
     .a = 5e-7,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void no_allocation(void **state)
{
    static const int which[40] = {0, 1, 0, 1, 0, 1};
    hcp_models *models = fixture_models(kinds, KINDS);

    (void)state;
    for (size_t n = 1; n <= 40; n += n < 5 ? 1 : 7) {
        hcp_ring *ring = fixture_ring(models, kinds, which, NULL, n);
        struct fixture_plan p;
        static hcp_step steps[1600];
        hcp_prediction block = {.size = sizeof block};
        hcp_question q;
        char text[512];
        size_t n_steps;
        long before;

        fixture_plan_init(&p, n);
        hcp_question_init(&q);
        q.extrapolate = 1;
        before = allocations;
        assert_true(!COUNTED || before > 0); /* the counter counts */
        q.sub_blocks = 1;
        for (int strategy = 0; strategy <= HCP_STRATEGY_BEST; strategy++) {
            for (int layout = 0; layout <= HCP_LAYOUT_STRIPED; layout++) {
                hcp_status status;

                q.strategy = (hcp_strategy)strategy;
                q.layout = (hcp_layout)layout;
                q.causal = 1;
                q.seq_len = 1000 * (int64_t)n + 17;
                status = fixture_split(ring, &q, &p, text, sizeof text);
                /* The slow kind has no polynomial. */
                assert_int_equal(status, strategy == HCP_STRATEGY_POLY && n > 1
                                             ? HCP_STATUS_NO_MODEL
                                             : HCP_STATUS_OK);
                if (status == HCP_STATUS_OK)
                    assert_int_equal(hcp_plan_simulate(
                                         ring, &p.plan, 1, p.workspace, p.workspace_bytes,
                                         text, sizeof text, steps, 1600, &n_steps),
                                     HCP_STATUS_OK);
            }
        }
        hcp_block_predict(ring, 0, HCP_MODEL_BEST, 0, 100, 200, 0, text, sizeof text,
                          &block);
        q.sub_blocks = 4; /* in pieces, by rule, then one's own */
        for (int own = 0; own < 2; own++) {
            int64_t tokens[40];

            q.layout = HCP_LAYOUT_ZIGZAG;
            q.strategy = HCP_STRATEGY_BEST;
            for (size_t r = 0; r < n; r++)
                tokens[r] = 1000 + (r == 0 ? 17 : 0);
            assert_int_equal(own ? hcp_plan_evaluate(ring, &q, tokens, p.workspace,
                                                     p.workspace_bytes, text, sizeof text,
                                                     &p.plan)
                                 : fixture_split(ring, &q, &p, text, sizeof text),
                             HCP_STATUS_OK);
        }
        assert_int_equal(allocations, before);
        fixture_plan_free(&p);
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

/* ---- threads ---- */

struct job {
    const hcp_ring *ring;
    uint64_t seed, prints[64];
};

static void *work(void *arg)
{
    struct job *job = arg;
    struct fixture_plan p;
    char text[512];

    fixture_plan_init(&p, 6);
    for (int i = 0; i < 64; i++) {
        hcp_question q;

        hcp_question_init(&q);
        q.seq_len = fixture_range(&job->seed, 1000, 60000);
        q.causal = i & 1;
        q.layout = (hcp_layout)(i / 2 % 4);
        job->prints[i] =
            fixture_split(job->ring, &q, &p, text, sizeof text) == HCP_STATUS_OK
                ? p.plan.fingerprint
                : 0;
    }
    fixture_plan_free(&p);
    return NULL;
}

static void threads_agree(void **state)
{
    static const int which[6] = {0, 1, 0, 0, 1, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 6);
    static struct job jobs[8];
    pthread_t thread[8];

    (void)state;
    for (int i = 0; i < 8; i++) {
        jobs[i] = (struct job){.ring = ring, .seed = 42};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 64; k++) {
            assert_true(jobs[i].prints[k] != 0);
            assert_true(jobs[i].prints[k] == jobs[0].prints[k]);
        }
    }
    hcp_ring_free(ring);
    fixture_free(models);
}

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

static void has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("'%s' lacks '%s'\n", text, part);
        fail();
    }
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

    /* cudnn where it covers all ranks, else what does. */
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

/* The steps of a simulation add up to the plan. */
static void simulation(void **state)
{
    static const int which[5] = {0, 1, 0, 1, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 5);
    static hcp_step steps[25];
    struct fixture_plan p;
    char text[512];
    int early = 0;

    (void)state;
    fixture_plan_init(&p, 5);
    for (int i = 0; i < 64; i++) {
        hcp_question q;
        size_t n, m = 0;
        double end = 0;

        hcp_question_init(&q);
        q.seq_len = 40000 + 1000 * i;
        q.causal = i & 1;
        q.layout = (hcp_layout)(1 + i / 2 % 3);
        q.barrier = i / 8 % 2;
        q.link_gbps = i / 16 % 2 ? 20 : 0;
        q.sub_blocks = i / 32 ? 3 : 1;
        q.strategy = HCP_STRATEGY_PROPORTIONAL;
        q.extrapolate = 1; /* a piece may show a stripe fewer keys than were measured */
        assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
        text[0] = 0;
        hcp_plan_simulate(ring, &p.plan, 1, p.workspace, p.workspace_bytes, text,
                          sizeof text, steps, 25, &n);
        assert_string_equal(text, "");
        for (size_t r = 0; r < 5; r++)
            m += p.plan.ranks[r].tokens > 0;
        assert_int_equal(n, m * m);
        for (size_t at = 0; at < n; at += m) {
            const hcp_plan_rank *rank = &p.plan.ranks[steps[at].rank];
            double busy = 0, wait = 0;

            for (size_t k = 0; k < m; k++) {
                assert_int_equal(steps[at + k].rank, steps[at].rank);
                assert_int_equal(steps[at + k].step, k);
                busy += steps[at + k].busy_ms;
                wait += steps[at + k].wait_ms;
                if (!isnan(steps[at + k].ready_ms)) {
                    if (q.sub_blocks == 1 || q.barrier)
                        assert_true(steps[at + k].start_ms >= steps[at + k].ready_ms);
                    else /* the first pieces may be computed before the last is here */
                        early += steps[at + k].start_ms < steps[at + k].ready_ms;
                    assert_true(steps[at + k].fin_ms >= steps[at + k].ready_ms);
                }
            }
            assert_float_equal(busy, rank->compute_ms, 1e-9 * busy);
            assert_float_equal(busy + wait, rank->predicted_ms, 1e-9 * busy);
            end = fmax(end, steps[at + m - 1].fin_ms);
        }
        assert_float_equal(end, p.plan.makespan_ms, 1e-12 * end);
    }
    assert_true(early > 0);
    assert_int_equal(hcp_plan_simulate(ring, &p.plan, 0, p.workspace, p.workspace_bytes,
                                       text, sizeof text, steps, 24, &(size_t){0}),
                     HCP_STATUS_SPACE);
    p.plan.sub_blocks = 0;
    assert_int_equal(hcp_plan_simulate(ring, &p.plan, 0, p.workspace, p.workspace_bytes,
                                       text, sizeof text, steps, 25, &(size_t){0}),
                     HCP_STATUS_INVALID);
    p.plan.sub_blocks = 1;
    p.plan.ranks[0].tokens++;
    assert_int_equal(hcp_plan_simulate(ring, &p.plan, 0, p.workspace, p.workspace_bytes,
                                       text, sizeof text, steps, 25, &(size_t){0}),
                     HCP_STATUS_INVALID);
    has(text, "add up");
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    fixture_free(models);
}

/* ---- splits of the caller's own ---- */

static hcp_status evaluate(const hcp_ring *ring, const hcp_question *q,
                           const int64_t *tokens, struct fixture_plan *p, char *text,
                           size_t size)
{
    text[0] = 0;
    return hcp_plan_evaluate(ring, q, tokens, p->workspace, p->workspace_bytes, text,
                             size, &p->plan);
}

static int same_ms(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)); /* NaN: outside the measured lengths */
}

/* The plan's own tokens get the plan's own numbers. */
static void evaluation(void **state)
{
    static const int which[5] = {0, 1, 0, 1, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 5);
    struct fixture_plan a, b;
    char text[512];
    int even = 0;

    (void)state;
    fixture_plan_init(&a, 5);
    fixture_plan_init(&b, 5);
    for (int i = 0; i < 48; i++) {
        const hcp_plan *p = &a.plan, *g = &b.plan;
        hcp_question q;
        int64_t tokens[5];

        hcp_question_init(&q);
        q.seq_len = 30000 + 1711 * i;
        q.causal = i & 1;
        q.layout = (hcp_layout)(1 + i / 2 % 3);
        q.sub_blocks = i / 6 % 2 ? 3 : 1;
        q.buffers = i / 12 % 3;
        q.link_gbps = i % 5 ? 20 : 0;
        q.strategy = i % 3 ? HCP_STRATEGY_BEST : HCP_STRATEGY_PROPORTIONAL;
        assert_int_equal(fixture_split(ring, &q, &a, text, sizeof text), HCP_STATUS_OK);
        for (size_t r = 0; r < 5; r++)
            tokens[r] = p->ranks[r].tokens;
        assert_int_equal(evaluate(ring, &q, tokens, &b, text, sizeof text),
                         HCP_STATUS_OK);
        assert_int_equal(g->strategy, HCP_STRATEGY_GIVEN);
        assert_int_equal(g->exact, 0);
        assert_int_equal(g->tile, p->tile);
        assert_true(g->makespan_ms == p->makespan_ms && g->bound_ms == p->bound_ms);
        assert_true(same_ms(g->even_ms, p->even_ms) && same_ms(g->drop_ms, p->drop_ms));
        even += !isnan(g->even_ms);
        assert_true(g->interval_hi_ms == p->interval_hi_ms);
        assert_int_equal(g->source, p->source);
        assert_int_equal(g->n_segments, p->n_segments);
        assert_memory_equal(g->segments, p->segments,
                            p->n_segments * sizeof *p->segments);
        for (size_t r = 0; r < 5; r++)
            assert_true(g->ranks[r].predicted_ms == p->ranks[r].predicted_ms);
        assert_true(g->fingerprint == hcp_plan_fingerprint(g) &&
                    g->fingerprint != p->fingerprint);
    }
    assert_true(even > 40);
    hcp_ring_free(ring);
    fixture_plan_free(&a);
    fixture_plan_free(&b);
    fixture_free(models);
}

static void evaluation_refused(void **state)
{
    static const int which[] = {0, 1};
    static const int64_t caps[] = {3000, 1000};
    static const int64_t odd[] = {2871, 129}, much[] = {2500, 1500}, few[] = {2000, 900},
                         negative[] = {3001, -1}, one[] = {3000, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, caps, 2);
    struct fixture_plan p;
    hcp_plan before;
    hcp_question q;
    char text[512];

    (void)state;
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 3000;
    before = p.plan;
    assert_int_equal(evaluate(ring, &q, odd, &p, text, sizeof text), HCP_STATUS_INVALID);
    has(text, "layout"); /* AUTO */
    q.layout = HCP_LAYOUT_ZIGZAG;
    assert_int_equal(evaluate(ring, &q, NULL, &p, text, sizeof text), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(ring, &q, few, &p, text, sizeof text), HCP_STATUS_INVALID);
    has(text, "add up");
    assert_int_equal(evaluate(ring, &q, negative, &p, text, sizeof text),
                     HCP_STATUS_INVALID);
    q.seq_len = 4000;
    assert_int_equal(evaluate(ring, &q, much, &p, text, sizeof text),
                     HCP_STATUS_INFEASIBLE);
    has(text, "rank 1 has 1500 tokens, more than its memory cap of 1000");
    assert_memory_equal(&before, &p.plan, sizeof before);
    q.seq_len = 3000; /* not in tiles, no room for a split in tiles beside it */
    q.strategy = HCP_STRATEGY_GIVEN;
    assert_int_equal(evaluate(ring, &q, odd, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.ranks[1].tokens, 129);
    assert_int_equal(evaluate(ring, &q, one, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.ranks[1].n_segments, 0);
    p.plan.segments_capacity = 1;
    assert_int_equal(evaluate(ring, &q, odd, &p, text, sizeof text), HCP_STATUS_SPACE);
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    ring = fixture_ring(models, kinds, which, NULL, 2);
    fixture_plan_init(&p, 2);
    q.seq_len = 200000;
    assert_int_equal(
        evaluate(ring, &q, (int64_t[]){100000, 100000}, &p, text, sizeof text),
        HCP_STATUS_OUTSIDE);
    has(text, "hcp-profile run");
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    fixture_free(models);
}

static void layout_segments(void **state)
{
    static const int64_t tokens[] = {5, 0, 1, 4};
    hcp_segment s[8];
    int64_t counts[4];

    (void)state;
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 0, 4, tokens, 10, s, 8, counts),
        HCP_STATUS_OK);
    assert_memory_equal(counts, ((int64_t[]){2, 0, 1, 2}), sizeof counts);
    assert_memory_equal(s, ((hcp_segment[]){{0, 3}, {8, 2}, {3, 1}, {4, 2}, {6, 2}}),
                        5 * sizeof *s);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_STRIPED, 2, 4, tokens, 10, s, 8, counts),
        HCP_STATUS_OK);
    assert_memory_equal(s, ((hcp_segment[]){{0, 3}, {6, 2}, {3, 1}, {4, 2}, {8, 2}}),
                        5 * sizeof *s);
    counts[0] = 0;
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 0, 4, tokens, 10, s, 4, counts),
        HCP_STATUS_SPACE);
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 5);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_CONTIGUOUS, 0, 4, tokens, 10, NULL, 0, counts),
        HCP_STATUS_OK);
    assert_memory_equal(counts, ((int64_t[]){1, 0, 1, 1}), sizeof counts);
    assert_int_equal(hcp_layout_segments(HCP_LAYOUT_AUTO, 1, 4, tokens, 10, s, 8, counts),
                     HCP_STATUS_INVALID);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_STRIPED, 0, 4, tokens, 10, s, 8, counts),
        HCP_STATUS_INVALID);
    assert_int_equal(
        hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 1, 4, tokens, 11, s, 8, counts),
        HCP_STATUS_INVALID);
    assert_int_equal(hcp_layout_segments(HCP_LAYOUT_ZIGZAG, 1, 2, (int64_t[]){11, -1}, 10,
                                         s, 8, counts),
                     HCP_STATUS_INVALID);
}

/* Storing once and merging every other block, in each rank's computing time; the bound
 * and the prediction of a block are of the kernel alone. */
static void finish_passes(void **state)
{
    static const int which[3] = {0, 0, 0};
    static const int64_t tokens[3] = {4096, 8192, 2048};
    struct fixture with = kinds[0];
    hcp_models *plain = fixture_models(kinds, 1), *finish;
    hcp_ring *rings[2];
    struct fixture_plan p[2];
    char text[512];

    (void)state;
    memcpy(with.finish, (double[]){0.25, 1e-4, 0.5, 3e-4}, sizeof with.finish);
    finish = fixture_models(&with, 1);
    rings[0] = fixture_ring(plain, kinds, which, NULL, 3);
    rings[1] = fixture_ring(finish, &with, which, NULL, 3);
    for (int sub_blocks = 1; sub_blocks < 4; sub_blocks += 2) {
        hcp_prediction block[2] = {{.size = sizeof *block}, {.size = sizeof *block}};
        hcp_question q;

        hcp_question_init(&q);
        q.seq_len = 14336;
        q.layout = HCP_LAYOUT_CONTIGUOUS;
        q.sub_blocks = sub_blocks;
        for (int i = 0; i < 2; i++) {
            fixture_plan_init(&p[i], 3);
            assert_int_equal(evaluate(rings[i], &q, tokens, &p[i], text, sizeof text),
                             HCP_STATUS_OK);
            assert_int_equal(hcp_block_predict(rings[i], 0, HCP_MODEL_BEST, 0, 512, 512,
                                               0, text, sizeof text, &block[i]),
                             HCP_STATUS_OK);
        }
        for (size_t r = 0; r < 3; r++) {
            double more = 0.25 + 1e-4 * (double)tokens[r] +
                          2 * sub_blocks * (0.5 + 3e-4 * (double)tokens[r]);

            assert_float_equal(p[1].plan.ranks[r].compute_ms -
                                   p[0].plan.ranks[r].compute_ms,
                               more, 1e-9);
        }
        assert_float_equal(p[0].plan.bound_ms, p[1].plan.bound_ms, 1e-12);
        assert_true(block[0].ms == block[1].ms);
        fixture_plan_free(&p[0]);
        fixture_plan_free(&p[1]);
    }
    hcp_ring_free(rings[0]);
    hcp_ring_free(rings[1]);
    fixture_free(plain);
    fixture_free(finish);
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
        cmocka_unit_test(no_allocation), cmocka_unit_test(threads_agree),
        cmocka_unit_test(binding),       cmocka_unit_test(refusals),
        cmocka_unit_test(predictions),   cmocka_unit_test(simulation),
        cmocka_unit_test(evaluation),    cmocka_unit_test(evaluation_refused),
        cmocka_unit_test(finish_passes), cmocka_unit_test(layout_segments),
        cmocka_unit_test(words),         cmocka_unit_test(missing_files)};

    setlocale(LC_ALL, "");
    return cmocka_run_group_tests_name("plan-api", tests, NULL, NULL);
}
