/* SPDX-License-Identifier: Apache-2.0
 *
 * Latency of hcp_plan_split, and a count of allocations on its path. Models are lookup
 * tables of 10 x 10 cells, two kinds of devices half and half; every call asks for
 * another length. One line a case: ranks, layout, strategy, pieces of a block, order (or
 * that queries and KV are split apart), p50 and p99 in us, allocations.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tests/plan-fixture.h"

static long allocations;

/* glibc's allocator under its other name, so that every call is counted. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    allocations++;
    return __libc_realloc(p, size);
}

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

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void run(const hcp_models *models, size_t n, int causal, hcp_layout layout,
                hcp_strategy strategy, int32_t sub_blocks, hcp_order order, int joint,
                int calls)
{
    int *which = calloc(n, sizeof *which);
    double *us = calloc((size_t)calls, sizeof *us);
    uint64_t seed = 1;
    struct fixture_plan p;
    hcp_question question;
    hcp_ring *ring;
    long before, counted = 0;
    char text[512];

    for (size_t r = 0; r < n; r++)
        which[r] = r >= n / 2;
    ring = fixture_ring(models, kinds, which, NULL, n);
    fixture_plan_init(&p, n);
    p.plan.places = calloc(n, sizeof *p.plan.places);
    hcp_question_init(&question);
    question.causal = causal;
    question.layout = layout;
    question.strategy = strategy;
    question.sub_blocks = sub_blocks;
    question.order = order;
    question.joint = joint;
    question.link_gbps = sub_blocks > 1 ? 100 : 0;
    question.extrapolate = 1;
    for (int i = order ? 0 : -3; i < calls; i++) { /* three calls to warm up */
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
            us[i] = now_us() - start;
        counted += allocations - before;
    }
    qsort(us, (size_t)calls, sizeof *us, by_value);
    printf("%5zu ranks  %-6s %-10s %-12s %2d  %-5s  p50 %10.1f us  p99 %10.1f us  "
           "%ld allocations\n",
           n, causal ? "causal" : "full", hcp_layout_name(layout),
           hcp_strategy_name(strategy), (int)sub_blocks,
           joint ? "joint" : hcp_order_name(order), us[calls / 2], us[calls * 99 / 100],
           counted);
    fflush(stdout);
    free(p.plan.places);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    free(us);
    free(which);
}

int main(void)
{
    static const size_t sizes[] = {2, 8, 64, 1024};
    static const int calls[] = {2000, 2000, 500, 50};
    hcp_models *models = fixture_models(kinds, 2);

    for (int i = 0; i < 4; i++)
        run(models, sizes[i], 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_LUT, 1, HCP_ORDER_GIVEN,
            0, calls[i]);
    for (int i = 0; i < 4; i++)
        run(models, sizes[i], 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN,
            0, calls[i]);
    for (int i = 0; i < 4; i++)
        run(models, sizes[i], 0, HCP_LAYOUT_CONTIGUOUS, HCP_STRATEGY_BEST, 1,
            HCP_ORDER_GIVEN, 0, calls[i]);
    for (int i = 0; i < 4; i++)
        run(models, sizes[i], 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 4, HCP_ORDER_GIVEN,
            0, i == 3 ? 3 : calls[i] / 20);
    for (int i = 0; i < 4; i++)
        run(models, sizes[i], 1, HCP_LAYOUT_AUTO, HCP_STRATEGY_BEST, 1, HCP_ORDER_GIVEN,
            0, i == 3 ? 5 : calls[i] / 10);
    for (int i = 0; i < 4; i++)
        run(models, sizes[i], 1, HCP_LAYOUT_AUTO, HCP_STRATEGY_BEST, 1, HCP_ORDER_FREE, 0,
            i == 3 ? 1 : 5);
    for (int i = 0; i < 3; i++)
        run(models, sizes[i], 1, HCP_LAYOUT_ZIGZAG, HCP_STRATEGY_BEST, 4, HCP_ORDER_GIVEN,
            1, 20);
    fixture_free(models);
    return 0;
}
