/* SPDX-License-Identifier: Apache-2.0
 *
 * Latency of hcp_plan_split, and a count of allocations on its path. Models are lookup
 * tables of 10 x 10 cells, two kinds of devices half and half; every call asks for
 * another length. One line a case: ranks, layout, strategy, pieces of a block, order (or
 * that queries and KV are split apart), p50 and p99 in us, allocations, and what else
 * there is: a layer's linear work, caps in bytes far from or in the way, nodes and rings
 * of rings, decode; then several documents in one step, which ranks prefill and which
 * decode, and a prompt in chunks. Times are the processor's for
 * this thread: a decision waits for nothing, and others on the machine do not count; nor
 * does reading the clock, the least of 1000 times. With --chart: latency and memory
 * against the number of ranks, as planner/latency.md and latency.gp have it.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/count-allocations.h"
#include "tests/decode-reference.h"

static const struct fixture kinds[] = {
    {.device = "fast",
     .a = 2.4e-8,
     .b = 2e-5,
     .c = 1e-5,
     .f = 0.012,
     .tile = 128,
     .lut = 1,
     .error = 0.02},
    {.device = "slow",
     .a = 5.1e-8,
     .b = 4e-5,
     .c = 2e-5,
     .f = 0.015,
     .tile = 128,
     .lut = 1,
     .error = 0.02},
};

static enum { NOTHING, LAYER, ROOMY, FULL, RINGS, DECODE } also;
static const char *const also_names[] = {"",       "  layer", "  roomy",
                                         "  full", "  rings", "  decode"};

/* The second half of the ranks is the slow kind. With caps in the way each of it has room
 * for 2000 of about 8000 tokens of one layer, and for the buffers. */
static hcp_ring *make_ring(const hcp_models *models, size_t n)
{
    hcp_rank *ranks = calloc(n, sizeof *ranks);
    hcp_ring *ring = NULL;
    hcp_shape shape;
    char text[512];

    hcp_shape_init(&shape);
    for (size_t r = 0; r < n; r++) {
        int slow = r >= n / 2;

        hcp_rank_init(&ranks[r]);
        snprintf(ranks[r].device, sizeof ranks[r].device, "%s", kinds[slow].device);
        if (also == DECODE) {
            strcpy(shape.phase, "decode");
            strcpy(ranks[r].device, "nvidia-h200");
            strcpy(ranks[r].limit, slow ? "mps:2" : "mps:1");
        } else if (also == LAYER) {
            ranks[r].linear_before_us = slow ? 0.2 : 0.1;
            ranks[r].linear_after_us = slow ? 1 : 0.5;
        } else if (also == ROOMY || (also == FULL && !slow)) {
            ranks[r].max_bytes = (int64_t)80 << 30;
        } else if (also == FULL) {
            ranks[r].max_bytes = (int64_t)4096 * (2000 + 2 * 14000);
        }
    }
    if (hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring)) {
        fprintf(stderr, "bench-plan: %s\n", text);
        exit(1);
    }
    free(ranks);
    return ring;
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* What now_us() itself adds to a time. */
static double clock_us(void)
{
    double least = 1e9;

    for (int i = 0; i < 1000; i++) {
        double start = now_us(), us = now_us() - start;

        least = us < least ? us : least;
    }
    return least;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct bench {
    size_t n;
    int causal;
    hcp_layout layout;
    hcp_strategy strategy;
    int32_t sub_blocks;
    hcp_order order;
    int calls, joint;
};

struct result {
    double p50_us, p99_us;
    long allocations;
};

static struct result measure(const hcp_models *models, const struct bench *b)
{
    size_t n = b->n;
    double *us = calloc((size_t)b->calls, sizeof *us), clock = clock_us();
    uint64_t seed = 1;
    struct fixture_plan p;
    struct result result = {0, 0, 0};
    hcp_question question;
    hcp_ring *ring;
    long before;
    char text[512];

    ring = make_ring(models, n);
    fixture_plan_init(&p, n);
    p.plan.places = calloc(n, sizeof *p.plan.places);
    hcp_question_init(&question);
    question.causal = b->causal;
    question.layout = b->layout;
    question.strategy = b->strategy;
    question.sub_blocks = b->sub_blocks;
    question.order = b->order;
    question.joint = b->joint;
    question.link_gbps = b->sub_blocks > 1 ? 100 : 0;
    question.extrapolate = 1;
    if (also == RINGS) { /* on nodes, one ring or two levels */
        question.node_ranks = 8;
        question.link_gbps = 200;
        question.node_gbps = 25;
        question.rings = HCP_RINGS_BEST;
    }
    if (also == DECODE) {
        question.link_alpha_us = 10;
        question.link_gbps = 100;
    }
    /* Three calls to warm up, or one where there are few. */
    for (int i = b->order ? 0 : b->calls < 10 ? -1 : -3; i < b->calls; i++) {
        double start;

        /* About 8K tokens a rank: the range long-context serving works in. */
        question.seq_len = (int64_t)n * fixture_range(&seed, 6000, 10000);
        before = allocations;
        start = now_us();
        if (fixture_split(ring, &question, &p, text, sizeof text)) {
            fprintf(stderr, "bench-plan: %s\n", text);
            exit(1);
        }
        if (i >= 0)
            us[i] = now_us() - start - clock;
        result.allocations += allocations - before;
    }
    qsort(us, (size_t)b->calls, sizeof *us, by_value);
    result.p50_us = us[b->calls / 2];
    result.p99_us = us[b->calls * 99 / 100];
    free(p.plan.places);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    free(us);
    return result;
}

/* Calls that take about a second together. */
static int calls_of(size_t n, double us_a_rank)
{
    double calls = 1e6 / (us_a_rank * (double)n * (n > 64 ? (double)n / 64 : 1));

    return calls > 2000 ? 2000 : calls < 5 ? 5 : (int)calls;
}

static void run(const hcp_models *models, int causal, hcp_layout layout,
                hcp_strategy strategy, int32_t sub_blocks, hcp_order order, int joint,
                double us_a_rank)
{
    static const size_t sizes[] = {2, 8, 64, 1024, 4096};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bench b = {sizes[i],
                          causal,
                          layout,
                          strategy,
                          sub_blocks,
                          order,
                          order ? 1 : calls_of(sizes[i], us_a_rank),
                          joint};
        struct result r;

        if (joint && sizes[i] > 64)
            break;
        r = measure(models, &b);
        printf("%5zu ranks  %-6s %-10s %-12s %2d  %-5s  p50 %10.1f us  p99 %10.1f us  "
               "%ld allocations%s\n",
               b.n, causal ? "causal" : "full", hcp_layout_name(layout),
               hcp_strategy_name(strategy), (int)sub_blocks,
               joint ? "joint" : hcp_order_name(order), r.p50_us, r.p99_us, r.allocations,
               also_names[also]);
        fflush(stdout);
    }
}

/* Documents of 128 to 8K tokens, or up to 60K, most of them short, on ranks of two kinds
 * half and half. */
static void run_documents(const hcp_models *models, size_t n, size_t count,
                          int64_t longest)
{
    int calls = count > 1000 ? 50 : 100;
    hcp_ring *ring = make_ring(models, n);
    int64_t *lengths = calloc(count, sizeof *lengths);
    size_t bytes = hcp_documents_workspace_bytes(ring, count);
    void *workspace = malloc(bytes);
    hcp_documents q;
    hcp_documents_plan plan;
    double us[100];
    uint64_t seed = 1;
    long before, counted = 0;
    int64_t cuts = 0;
    char text[512];

    hcp_documents_init(&q);
    q.lengths = lengths;
    q.n_documents = count;
    hcp_documents_plan_init(&plan, calloc(n, sizeof *plan.ranks), n,
                            calloc(count + n, sizeof *plan.parts), count + n,
                            calloc(count, sizeof *plan.lengths), count);
    for (int i = -1; i < calls; i++) { /* one to warm up */
        double start;

        for (size_t d = 0; d < count; d++) {
            double u = fixture_real(&seed, 0, 1);

            lengths[d] = 128 + (int64_t)((double)longest * u * u * u * u);
        }
        before = allocations;
        start = now_us();
        if (hcp_documents_split(ring, &q, workspace, bytes, text, sizeof text, &plan)) {
            fprintf(stderr, "bench-plan: %s\n", text);
            exit(1);
        }
        if (i >= 0)
            us[i] = now_us() - start;
        counted += allocations - before;
        cuts += i >= 0 ? (int64_t)(plan.n_parts - count) : 0;
    }
    qsort(us, (size_t)calls, sizeof *us, by_value);
    printf("%5zu ranks  %zu documents of up to %lld tokens, %.1f cuts  p50 %10.1f us  "
           "p99 %10.1f us  %ld allocations\n",
           n, count, (long long)longest, (double)cuts / calls, us[calls / 2],
           us[calls * 99 / 100], counted);
    fflush(stdout);
    free(plan.ranks);
    free(plan.parts);
    free(plan.lengths);
    free(workspace);
    free(lengths);
    hcp_ring_free(ring);
}

/* A step of rebalancing that finds nothing, and one that finds a speed changed. */
static void run_rebalance(const hcp_models *models, size_t n)
{
    int *which = calloc(n, sizeof *which);
    hcp_ring *ring;
    struct fixture_plan p;
    hcp_question q;
    hcp_rebalance *r = NULL;
    hcp_rebalance_options options;
    hcp_rebalance_verdict v = {.size = sizeof v};
    struct timespec a, b;
    double quiet = 0, found = 0;
    long before;

    for (size_t i = 0; i < n; i++)
        which[i] = (int)(i % 2);
    ring = fixture_ring(models, kinds, which, NULL, n);
    fixture_plan_init(&p, n);
    hcp_question_init(&q);
    q.seq_len = 4096 * (int64_t)n;
    q.causal = 1;
    q.layout = HCP_LAYOUT_ZIGZAG;
    q.extrapolate = 1;
    hcp_rebalance_options_init(&options);
    options.min_gain = 1; /* look, and stay */
    if (fixture_split(ring, &q, &p, NULL, 0) ||
        hcp_rebalance_create(ring, &q, &p.plan, &options, NULL, 0, &r))
        abort();
    before = allocations;
    for (int t = 0; t < 200; t++) {
        double ms;

        for (size_t i = 0; i < n; i++) {
            double noise = 0.001 * (double)((i * 7 + (size_t)t * 5) % 11);

            hcp_rebalance_observe(r, i,
                                  p.plan.ranks[i].compute_ms * (1 + noise) *
                                      (i == 0 && t >= 150 ? 1.5 : 1),
                                  0);
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        hcp_rebalance_step(r, -1, NULL, 0, &v);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
        if (t >= 100 && t < 150)
            quiet += ms / 50;
        if (v.changed)
            found = ms;
    }
    printf("rebalance n=%zu: a step without a change %.1f us, with one %.1f us, "
           "%ld allocations\n",
           n, quiet * 1e3, found * 1e3, allocations - before);
    fflush(stdout);
    hcp_rebalance_free(r);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    free(which);
}

/* Which ranks of so many classes prefill and which decode; another length every call. */
static void run_disagg(size_t n, int classes)
{
    enum { CALLS = 20, MOST = 3 };
    static const char *const limits[] = {"mps:1", "mps:2", "mps:3"};
    struct fixture prefill[MOST];
    struct decode_kind decode[MOST];
    hcp_rank *ranks = calloc(n, sizeof *ranks);
    size_t room = 9 * n, bytes;
    hcp_shape shape[2];
    hcp_plan plan[2];
    hcp_question q;
    hcp_disagg_question ask;
    hcp_disagg_advice out;
    hcp_disagg *disagg;
    hcp_models *models;
    double us[CALLS], start = now_us(), bound;
    long before, counted = 0;
    void *workspace;
    char text[512];

    for (int k = 0; k < MOST; k++) {
        prefill[k] = kinds[k % 2];
        prefill[k].device = "nvidia-h200";
        prefill[k].limit = limits[k];
        prefill[k].a *= k + 1;
        decode[k] = (struct decode_kind){0.007, 1e-5 * (1 + 0.3 * k), 0, 0.02, 1, 64};
    }
    for (int i = 0; i < 2; i++) {
        hcp_shape_init(&shape[i]);
        hcp_plan_init(&plan[i], calloc(n, sizeof *plan[i].ranks), n,
                      calloc(8 * n, sizeof *plan[i].segments), 8 * n);
    }
    shape[1].batch = 8;
    models = both_models(prefill, decode, MOST, &shape[1]);
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, "nvidia-h200");
        strcpy(ranks[r].limit, limits[r * (size_t)classes / n]);
    }
    hcp_question_init(&q);
    q.causal = 1;
    q.layout = HCP_LAYOUT_ZIGZAG;
    q.link_gbps = 200;
    q.layers = 32;
    q.extrapolate = 1;
    hcp_disagg_question_init(&ask);
    ask.prefill = &q;
    ask.steps = 500;
    ask.link_gbps = 50;
    ask.link_alpha_us = 10;
    hcp_disagg_advice_init(&out, calloc(n, sizeof *out.ranks), n, &plan[0], &plan[1],
                           calloc(n, sizeof *out.moves), n,
                           calloc(room, sizeof *out.segments), room);
    start = now_us();
    if (hcp_disagg_create(models, &shape[0], &shape[1], ranks, n, NULL, NULL, text,
                          sizeof text, &disagg)) {
        fprintf(stderr, "bench-plan: %s\n", text);
        exit(1);
    }
    bound = now_us() - start;
    bytes = hcp_disagg_workspace_bytes(disagg);
    workspace = malloc(bytes);
    for (int i = 0; i < CALLS; i++) {
        q.seq_len = 65536 + 128 * i;
        before = allocations;
        start = now_us();
        if (hcp_disagg_advise(disagg, &ask, workspace, bytes, text, sizeof text, &out)) {
            fprintf(stderr, "bench-plan: %s\n", text);
            exit(1);
        }
        us[i] = now_us() - start;
        counted += allocations - before;
    }
    qsort(us, CALLS, sizeof *us, by_value);
    printf("%5zu ranks  %d classes, %d groups to %s%s, bound in %.0f us  p50 %10.1f us  "
           "%ld allocations\n",
           n, classes, (int)out.n_groups, hcp_disagg_decision_name(out.decision),
           out.exact ? " (exact)" : "", bound, us[CALLS / 2], counted);
    fflush(stdout);
    free(workspace);
    for (int i = 0; i < 2; i++) {
        free(plan[i].ranks);
        free(plan[i].segments);
    }
    free(out.ranks);
    free(out.moves);
    free(out.segments);
    free(ranks);
    hcp_disagg_free(disagg);
    hcp_models_free(models);
}

/* A prompt in chunks of about so many steps, on ranks of two kinds half and half. */
static void run_chunks(const hcp_models *models, size_t n, int64_t seq_len,
                       double budget_ms, int calls)
{
    size_t most = 1024;
    hcp_ring *ring = make_ring(models, n);
    size_t bytes = hcp_chunks_workspace_bytes(ring, most);
    void *workspace = malloc(bytes);
    hcp_chunks q;
    hcp_chunks_plan plan;
    double us[100];
    long before, counted = 0;
    char text[512];

    hcp_chunks_init(&q);
    q.seq_len = seq_len;
    q.extrapolate = 1;
    q.step_budget_ms = budget_ms;
    hcp_chunks_plan_init(&plan, calloc(n, sizeof *plan.ranks), n,
                         calloc(most, sizeof *plan.chunks), most,
                         calloc(most * n, sizeof *plan.shares), most * n,
                         calloc(most * n * 2, sizeof *plan.segments), most * n * 2);
    for (int i = -1; i < calls; i++) { /* one to warm up */
        double start = now_us();

        before = allocations;
        q.seq_len = seq_len + i;
        if (hcp_chunks_split(ring, &q, workspace, bytes, text, sizeof text, &plan)) {
            fprintf(stderr, "bench-plan: %s\n", text);
            exit(1);
        }
        if (i >= 0)
            us[i] = now_us() - start;
        counted += allocations - before;
    }
    qsort(us, (size_t)calls, sizeof *us, by_value);
    printf("%5zu ranks  %lld tokens in %zu chunks  p50 %10.1f us  p99 %10.1f us  %ld "
           "allocations\n",
           n, (long long)seq_len, plan.n_chunks, us[calls / 2], us[calls * 99 / 100],
           counted);
    fflush(stdout);
    free(plan.ranks);
    free(plan.chunks);
    free(plan.shares);
    free(plan.segments);
    free(workspace);
    hcp_ring_free(ring);
}

static void chart(const hcp_models *models)
{
    puts("ranks,zigzag_us,full_us,auto_us,pieces_us,rings_us,workspace_bytes,plan_bytes,"
         "allocations");
    for (size_t n = 1; n <= HCP_PLAN_MAX_RANKS; n *= 2) {
        struct bench zigzag = {n,
                               1,
                               HCP_LAYOUT_ZIGZAG,
                               HCP_STRATEGY_BEST,
                               1,
                               HCP_ORDER_GIVEN,
                               calls_of(n, 16),
                               0};
        struct bench full = zigzag, any = zigzag, pieces = zigzag, rings = zigzag;
        struct result r[5];
        long counted = 0;

        full.causal = 0;
        full.layout = HCP_LAYOUT_CONTIGUOUS;
        any.layout = HCP_LAYOUT_AUTO;
        any.calls = calls_of(n, 64);
        pieces.sub_blocks = 4;
        pieces.calls = calls_of(n, 256);
        rings.calls = calls_of(n, 64);
        r[0] = measure(models, &zigzag);
        r[1] = measure(models, &full);
        r[2] = measure(models, &any);
        r[3] = measure(models, &pieces);
        also = RINGS;
        r[4] = measure(models, &rings);
        also = NOTHING;
        for (int i = 0; i < 5; i++)
            counted += r[i].allocations;
        printf("%zu,%.1f,%.1f,%.1f,%.1f,%.1f,%zu,%zu,%ld\n", n, r[0].p50_us, r[1].p50_us,
               r[2].p50_us, r[3].p50_us, r[4].p50_us, hcp_workspace_bytes(n),
               n * sizeof(hcp_plan_rank) +
                   hcp_segments_max(n, HCP_LAYOUT_AUTO, 8) * sizeof(hcp_segment),
               counted);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static const struct decode_kind decode_kinds[] = {{0.007, 1e-5, 0, 0.02, 1, 64},
                                                      {0.008, 4e-5, 0, 0.02, 2, 64}};
    hcp_models *models = fixture_models(kinds, 2);
    hcp_shape shape;

    if (argc > 1 && strcmp(argv[1], "--chart") == 0) {
        chart(models);
        fixture_free(models);
        return 0;
    }
    run(models, 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_LUT, 1, HCP_ORDER_GIVEN, 0, 16);
    run(models, 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN, 0, 16);
    run(models, 0, HCP_LAYOUT_CONTIGUOUS, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN, 0, 16);
    run(models, 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 4, HCP_ORDER_GIVEN, 0, 256);
    run(models, 1, HCP_LAYOUT_AUTO, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN, 0, 64);
    run(models, 1, HCP_LAYOUT_AUTO, HCP_STRATEGY_BEST, 1, HCP_ORDER_FREE, 0, 64);
    run(models, 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 4, HCP_ORDER_GIVEN, 1, 4096);
    for (also = LAYER; also <= RINGS; also++)
        run(models, 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN, 0,
            also == FULL ? 1024 : 32);
    also = NOTHING;
    run_documents(models, 2, 8, 60000);
    run_documents(models, 8, 40, 60000);
    run_documents(models, 64, 200, 60000);
    run_documents(models, 64, 10000, 8000);
    run_documents(models, 256, 2000, 60000);
    for (size_t n = 2; n <= 4096; n *= n < 8 ? 4 : 8)
        run_rebalance(models, n);
    run_chunks(models, 2, 8192, 4, 20);
    run_chunks(models, 2, 65536, 4, 20);
    run_chunks(models, 8, 131072, 4, 20);
    run_chunks(models, 64, 262144, 6, 2);
    fixture_free(models);
    hcp_shape_init(&shape);
    strcpy(shape.phase, "decode");
    models = decode_models(decode_kinds, 2, &shape);
    also = DECODE;
    run(models, 0, HCP_LAYOUT_CONTIGUOUS, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN, 0, 4);
    hcp_models_free(models);
    run_disagg(2, 2);
    run_disagg(8, 2);
    run_disagg(16, 2);
    run_disagg(21, 3);
    run_disagg(64, 3);
    run_disagg(256, 3);
    return 0;
}
