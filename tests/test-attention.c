/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention steps on rows of a larger shard, as a ring runs them: any range of rows
 * against the shard at once, for providers of every habit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/dtype.h"
#include "kernels/registry.h"
#include "tests/faulty-provider.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, DIM = 16, TOKENS = 23, KEYS = 19 };
enum { N_O = BATCH * HEADS * TOKENS * DIM, N_L = BATCH * HEADS * TOKENS };

static const hcp_device_ref cpu = {
    .size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};

/* Inputs with room for fp32; O and L with a margin of 4 on either side. */
static _Alignas(64) float q[N_O], k[2][N_O], v[2][N_O];

typedef struct state {
    _Alignas(64) float o[N_O + 8], lse[N_L + 8];
} state;

/* The faulty provider with a look at what it is handed. */
static hcp_provider provider;
static int (*inner_run)(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream);
static int calls, misaligned;
static const float *last_lse;

static int watched_run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    calls++;
    misaligned += (uintptr_t)args->lse % 16 != 0;
    last_lse = args->lse;
    return inner_run(plan, args, stream);
}

static void use(hcp_fault habit)
{
    provider = *hcp_faulty_provider(habit);
    inner_run = provider.run;
    provider.run = watched_run;
    calls = misaligned = 0;
}

/* The CPU's runtime, counting what finish() is asked to do and what is allocated. */
static hcp_runtime runtime;
static int finishes_of_o, finishes_of_l;
static int allocations, releases, allocations_left; /* the last: before they fail */

static int counted_finish(const hcp_finish *job, void *stream)
{
    *(job->o ? &finishes_of_o : &finishes_of_l) += 1;
    return hcp_runtime_cpu()->finish(job, stream);
}

static int counted_alloc(void **out, int64_t bytes)
{
    if (allocations_left == 0)
        return HCP_RC_NO_MEMORY;
    allocations_left--;
    allocations++;
    return hcp_runtime_cpu()->alloc(out, bytes);
}

static void counted_release(void *p)
{
    releases++;
    hcp_runtime_cpu()->release(p);
}

/* Tokens before heads where tokens_first: O and Q rows lie apart then. */
static hcp_attn_problem problem(int32_t dtype, int causal, int tokens_first)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = BATCH,
                          .q_len = TOKENS,
                          .kv_len = KEYS,
                          .heads = HEADS,
                          .kv_heads = KV_HEADS,
                          .head_dim = DIM,
                          .dtype = dtype,
                          .out_dtype = HCP_FP32,
                          .causal = causal,
                          .scale = 0.25};
    hcp_problem_set_dense_strides(&p);
    if (tokens_first) {
        p.q_stride[1] = p.o_stride[1] = DIM;
        p.q_stride[2] = p.o_stride[2] = HEADS * DIM;
    }
    return p;
}

static void fill(int32_t dtype)
{
    const hcp_runtime *rt = hcp_runtime_cpu();
    rt->randn(q, N_O, dtype, 1, 0, NULL);
    for (int i = 0; i < 2; i++) {
        rt->randn(k[i], N_O, dtype, 2 + (uint64_t)i, 0, NULL);
        rt->randn(v[i], N_O, dtype, 4 + (uint64_t)i, 0, NULL);
    }
}

/* A step for rows [row, row + rows) of the problem. */
static hcp_attention *make_step(const hcp_attn_problem *whole, int accumulate,
                                int64_t row, int64_t rows, hcp_attention_scratch *scratch)
{
    const hcp_attention_options options = {.lse_pitch = TOKENS, .scratch = scratch};
    hcp_attention *a = NULL;
    hcp_attn_problem p = *whole;
    char err[256] = "";
    p.q_len = rows;
    p.diag += row;
    p.accumulate = accumulate;
    if (hcp_attention_create_with(&provider, &runtime, &cpu, &p, &options, &a, err,
                                  sizeof err))
        fail_msg("%s", err);
    return a;
}

/* The step against KV block b. */
static int run_step(hcp_attention *a, const hcp_attn_problem *p, int b, int64_t row,
                    int64_t rows, state *s)
{
    int64_t bytes = hcp_dtype_bytes(p->dtype);
    const hcp_attn_args args = {.size = sizeof args,
                                .q = (char *)q + row * p->q_stride[2] * bytes,
                                .k = k[b],
                                .v = v[b],
                                .o = s->o + 4 + row * p->o_stride[2],
                                .lse = s->lse + 4 + row,
                                .q_len = rows,
                                .kv_len = p->kv_len,
                                .diag = p->diag + row};
    return hcp_attention_run(a, &args, NULL);
}

/* Rows [row, row + rows) of the problem against KV block b; 1 if O was finished. */
static int run_rows(const hcp_attn_problem *whole, int b, int accumulate, int64_t row,
                    int64_t rows, state *s)
{
    hcp_attention *a = make_step(whole, accumulate, row, rows, NULL);
    assert_int_equal(run_step(a, whole, b, row, rows, s), HCP_RC_OK);
    int finishes = hcp_attention_finishes(a);
    hcp_attention_destroy(a);
    return finishes;
}

static void poison(state *s)
{
    memset(s, 0xff, sizeof *s);
}

/* Nothing outside rows [row, row + rows) has changed from before to after. */
static void check_others(const hcp_attn_problem *p, const state *before,
                         const state *after, int64_t row, int64_t rows)
{
    state expect = *before;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = row; i < row + rows; i++) {
                int64_t l = 4 + (b * p->heads + h) * TOKENS + i;
                int64_t at =
                    4 + b * p->o_stride[0] + h * p->o_stride[1] + i * p->o_stride[2];
                expect.lse[l] = after->lse[l];
                memcpy(expect.o + at, after->o + at, DIM * sizeof *after->o);
            }
    assert_memory_equal(expect.o, after->o, sizeof expect.o);
    assert_memory_equal(expect.lse, after->lse, sizeof expect.lse);
}

/* The first n (head, row) pairs. */
static void check_same(const state *got, const state *want, int n, double bound)
{
    for (int i = 0; i < n; i++) {
        float g = got->lse[4 + i], w = want->lse[4 + i];
        assert_true(g == w || fabs((double)g - w) <= 4e-6);
        for (int d = 0; d < DIM; d++) {
            int at = 4 + i * DIM + d;
            assert_true(fabs((double)got->o[at] - want->o[at]) <= bound);
        }
    }
}

/* Both KV blocks, the second diagonal lower by the first one's keys; rows in the given
 * ranges (ends at TOKENS). */
static void run_in_ranges(hcp_attn_problem p, const int64_t *ends, state *s)
{
    poison(s);
    for (int b = 0; b < 2; b++, p.diag -= KEYS)
        for (int64_t row = 0, n = 0; row < TOKENS; row = ends[n++]) {
            state before = *s;
            run_rows(&p, b, b > 0, row, ends[n] - row, s);
            check_others(&p, &before, s, row, ends[n] - row);
        }
}

static void ranges_of_rows_give_the_whole(void **unused)
{
    (void)unused;
    /* -30: no row of either block sees a key; 25: the first is full */
    static const int64_t diags[] = {-30, -5, -1, 0, 3, KEYS - 2, 25, 60};
    static const int64_t whole[] = {TOKENS};
    static const int64_t ranges[][5] = {
        {1, TOKENS}, {4, 12, TOKENS}, {3, 4, 6, 17, TOKENS}, {TOKENS - 1, TOKENS}};
    static const hcp_fault habits[] = {FAULT_NONE,     HABIT_LOG2, HABIT_PARTIAL,
                                       HABIT_CORNER,   HABIT_HALF, HABIT_ALL,
                                       HABIT_WORKSPACE};
    for (int variant = 0; variant < 6; variant++) {
        int32_t dtype = variant & 1 ? HCP_BF16 : HCP_FP32;
        fill(dtype);
        for (int causal = 0; causal < 2; causal++)
            for (size_t d = 0; d < (causal ? sizeof diags / sizeof *diags : 1); d++) {
                hcp_attn_problem p = problem(dtype, causal, variant & 2);
                if (variant & 4) /* L without gaps, from any row on */
                    p.batch = p.heads = p.kv_heads = 1;
                p.diag = causal ? diags[d] : 0;
                state want, got;
                use(FAULT_NONE);
                run_in_ranges(p, whole, &want);
                for (size_t h = 0; h < sizeof habits / sizeof *habits; h++) {
                    use(habits[h]);
                    /* bf16 partial results: 2^-9 of |O| <= 4 in each of two blocks */
                    int half = dtype == HCP_BF16 &&
                               (habits[h] == HABIT_HALF || habits[h] == HABIT_ALL);
                    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
                        run_in_ranges(p, ranges[r], &got);
                        check_same(&got, &want, (int)(p.batch * p.heads * TOKENS),
                                   half ? 0x1p-6 : 4e-6);
                    }
                    assert_true(calls > 0 || p.diag == -30);
                    assert_int_equal(misaligned, 0);
                }
            }
    }
}

/* A row's L is -inf and its O garbage before the first block that it sees: a state that
 * is all empty is a start as good as a stored first block. */
static void an_empty_state_is_a_start(void **unused)
{
    (void)unused;
    hcp_attn_problem p = problem(HCP_FP32, 1, 0);
    p.diag = 2;
    fill(HCP_FP32);
    for (int habit = 0; habit < 2; habit++) {
        state stored, merged;
        use(habit ? HABIT_ALL : FAULT_NONE);
        poison(&stored);
        poison(&merged);
        for (int i = 0; i < N_L; i++)
            merged.lse[4 + i] = -INFINITY;
        run_rows(&p, 0, 0, 5, 9, &stored);
        run_rows(&p, 0, 1, 5, 9, &merged);
        for (int h = 0; h < BATCH * HEADS; h++)
            for (int i = 5; i < 14; i++) {
                int row = h * TOKENS + i;
                assert_true(fabsf(stored.lse[4 + row] - merged.lse[4 + row]) < 1e-6f);
                for (int d = 0; d < DIM; d++)
                    assert_true(fabsf(stored.o[4 + row * DIM + d] -
                                      merged.o[4 + row * DIM + d]) < 1e-6f);
            }
    }
}

/* One pass stays one pass: L alone goes through scratch, and only where it must. */
static void accumulating_kernels_keep_one_pass(void **unused)
{
    (void)unused;
    hcp_attn_problem p = problem(HCP_FP32, 0, 0);
    fill(HCP_FP32);
    state s;
    poison(&s);
    use(FAULT_NONE);
    finishes_of_o = finishes_of_l = 0;
    assert_false(run_rows(&p, 0, 0, 0, TOKENS, &s));
    assert_ptr_equal(last_lse, s.lse + 4);
    assert_false(run_rows(&p, 1, 1, 0, TOKENS, &s));
    assert_ptr_equal(last_lse, s.lse + 4);
    assert_int_equal(finishes_of_o + finishes_of_l, 0);
    assert_false(run_rows(&p, 1, 1, 4, 8, &s)); /* aligned, with gaps between heads */
    assert_ptr_not_equal(last_lse, s.lse + 8);
    assert_int_equal(finishes_of_o, 0);
    assert_int_equal(finishes_of_l, 2);
    assert_false(run_rows(&p, 1, 0, 4, 8, &s)); /* nothing to load */
    assert_int_equal(finishes_of_l, 3);

    /* one head has no gaps: every fourth row is aligned */
    p.batch = p.heads = p.kv_heads = 1;
    finishes_of_l = 0;
    run_rows(&p, 1, 1, 8, 3, &s);
    assert_ptr_equal(last_lse, s.lse + 12);
    assert_int_equal(finishes_of_l, 0);
    run_rows(&p, 1, 1, 9, 3, &s);
    assert_int_equal(finishes_of_l, 2);
    assert_int_equal(finishes_of_o, 0);
    assert_int_equal(misaligned, 0);
}

static void finish_passes_are_named(void **unused)
{
    (void)unused;
    static const struct {
        hcp_fault habit;
        int32_t dtype;
        int stores, merges;
    } want[] = {
        {FAULT_NONE, HCP_BF16, 0, 0},   {HABIT_PARTIAL, HCP_BF16, 0, 1},
        {HABIT_LOG2, HCP_FP32, 0, 1},   {HABIT_HALF, HCP_FP32, 0, 0},
        {HABIT_HALF, HCP_BF16, 1, 1},   {HABIT_ALL, HCP_BF16, 1, 1},
        {HABIT_CORNER, HCP_FP32, 0, 0},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            hcp_attn_problem p = problem(want[i].dtype, 1, 0);
            state s;
            fill(p.dtype);
            memset(&s, 0, sizeof s);
            use(want[i].habit);
            finishes_of_o = 0;
            int finishes = run_rows(&p, 0, accumulate, 2, 7, &s);
            assert_int_equal(finishes, accumulate ? want[i].merges : want[i].stores);
            assert_int_equal(finishes_of_o > 0, finishes);
            p.diag = -40; /* nothing to run, so nothing after it */
            assert_int_equal(run_rows(&p, 0, accumulate, 2, 7, &s), 0);
        }
}

/* The steps of a ring: both blocks of all ranges, larger ones before and after smaller
 * ones, made before any runs. scratch NULL: each has its own. */
static void run_ring(const hcp_attn_problem *whole, const int64_t *ends,
                     hcp_attention_scratch *scratch, state *s)
{
    hcp_attention *steps[2][5];
    hcp_attn_problem p = *whole;
    int n = 0;
    for (int b = 0; b < 2; b++, p.diag -= KEYS)
        for (int64_t row = 0, i = n = 0; row < TOKENS; row = ends[i++], n++)
            steps[b][n] = make_step(&p, b, row, ends[i] - row, scratch);
    p = *whole;
    poison(s);
    for (int b = 0; b < 2; b++, p.diag -= KEYS)
        for (int64_t row = 0, i = 0; row < TOKENS; row = ends[i++])
            assert_int_equal(run_step(steps[b][i], &p, b, row, ends[i] - row, s),
                             HCP_RC_OK);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < n; i++)
            hcp_attention_destroy(steps[b][i]);
}

/* Bitwise what they give with scratch of their own, from the largest step's memory. */
static void steps_share_scratch(void **unused)
{
    (void)unused;
    static const int64_t ranges[][5] = {
        {4, 12, TOKENS}, {3, 4, 6, 17, TOKENS}, {TOKENS - 1, TOKENS}, {TOKENS}};
    static const hcp_fault habits[] = {FAULT_NONE,     HABIT_LOG2, HABIT_PARTIAL,
                                       HABIT_CORNER,   HABIT_HALF, HABIT_ALL,
                                       HABIT_WORKSPACE};
    for (size_t h = 0; h < sizeof habits / sizeof *habits; h++)
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
            for (int causal = 0; causal < 2; causal++) {
                hcp_attn_problem p = problem(HCP_BF16, causal, 0);
                hcp_attention_scratch *scratch = NULL;
                state own, shared;
                int held = 0;
                p.diag = causal ? 25 : 0;
                fill(HCP_BF16);
                use(habits[h]);
                run_ring(&p, ranges[r], NULL, &own);
                allocations = releases = 0;
                assert_int_equal(hcp_attention_scratch_new(&runtime, &scratch), 0);
                assert_true(hcp_attention_scratch_bytes(scratch) == 0);
                for (int again = 0; again < 3; again++) {
                    run_ring(&p, ranges[r], scratch, &shared);
                    assert_memory_equal(own.o, shared.o, sizeof own.o);
                    assert_memory_equal(own.lse, shared.lse, sizeof own.lse);
                    assert_true(again == 0 || allocations == held); /* large enough */
                    held = allocations;
                }
                assert_true(allocations > 0);
                hcp_attention_scratch_free(scratch);
                assert_int_equal(releases, allocations);
            }
    hcp_attention_scratch_free(NULL);
}

/* What one step of the shape holds, whatever the number of steps; memory is let go before
 * more is asked for. */
static void scratch_is_that_of_the_largest_step(void **unused)
{
    (void)unused;
    hcp_attn_problem p = problem(HCP_BF16, 0, 0);
    hcp_attention_scratch *scratch = NULL;
    hcp_attention *step[TOKENS];
    const int64_t row_bytes = BATCH * HEADS * (2 * DIM + 4);
    use(HABIT_HALF); /* bf16 partial O, and L */
    assert_int_equal(hcp_attention_scratch_new(&runtime, &scratch), 0);
    allocations = releases = 0;
    for (int i = 0; i < TOKENS; i++) {
        int64_t rows = i % 2 ? 1 + i : 1 + i / 2, largest = i % 2 ? 1 + i : i ? i : 1;
        step[i] = make_step(&p, 1, 0, rows, scratch);
        assert_true(hcp_attention_scratch_bytes(scratch) == largest * row_bytes);
        assert_int_equal(allocations - releases, 2);
    }
    assert_int_equal(allocations, 2 + 2 * (TOKENS / 2));
    for (int i = 0; i < TOKENS; i++)
        hcp_attention_destroy(step[i]);
    assert_int_equal(allocations - releases, 2); /* not the steps' */
    hcp_attention_scratch_free(scratch);
    assert_int_equal(allocations, releases);
}

/* No memory for a larger step: those before it say so and touch nothing, and run again
 * once there is some. Scratch of another runtime is refused. */
static void scratch_that_cannot_grow(void **unused)
{
    (void)unused;
    hcp_attn_problem p = problem(HCP_BF16, 0, 0);
    hcp_attention_scratch *scratch = NULL, *foreign = NULL;
    hcp_attention_options options = {.lse_pitch = TOKENS};
    hcp_attention *large = NULL;
    char err[256] = "";
    state want, got, before;
    fill(HCP_BF16);
    use(HABIT_HALF);
    poison(&want);
    run_rows(&p, 0, 0, 0, 3, &want);
    assert_int_equal(hcp_attention_scratch_new(&runtime, &scratch), 0);
    allocations = releases = 0;
    hcp_attention *small = make_step(&p, 0, 0, 3, scratch);
    poison(&got);
    before = got;
    options.scratch = scratch;
    for (int left = 0; left < 2; left++) {
        allocations_left = left;
        assert_int_equal(hcp_attention_create_with(&provider, &runtime, &cpu, &p,
                                                   &options, &large, err, sizeof err),
                         HCP_RC_NO_MEMORY);
        assert_non_null(strstr(err, "no scratch memory"));
        assert_null(large);
        assert_int_equal(run_step(small, &p, 0, 0, 3, &got), HCP_RC_NO_MEMORY);
        assert_memory_equal(&got, &before, sizeof got);
    }
    allocations_left = -1;
    hcp_attention *again = make_step(&p, 0, 0, 3, scratch);
    assert_int_equal(run_step(small, &p, 0, 0, 3, &got), HCP_RC_OK);
    assert_memory_equal(&got, &want, sizeof got);
    hcp_attention_destroy(small);
    hcp_attention_destroy(again);
    hcp_attention_scratch_free(scratch);
    assert_int_equal(allocations, releases);

    assert_int_equal(hcp_attention_scratch_new(hcp_runtime_cpu(), &foreign), 0);
    options.scratch = foreign;
    assert_int_equal(hcp_attention_create_with(&provider, &runtime, &cpu, &p, &options,
                                               &large, err, sizeof err),
                     HCP_RC_INVALID);
    assert_non_null(strstr(err, "another runtime's"));
    hcp_attention_scratch_free(foreign);
}

static void bad_pitches_are_refused(void **unused)
{
    (void)unused;
    const int64_t bad[] = {TOKENS - 1, 1, -1, INT64_MIN, INT64_MAX, (int64_t)1 << 54};
    hcp_attn_problem p = problem(HCP_FP32, 0, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hcp_attention *a = NULL;
        char err[256] = "";
        const hcp_attention_options options = {.lse_pitch = bad[i]};
        assert_int_equal(hcp_attention_create_with(hcp_provider_cpu(), hcp_runtime_cpu(),
                                                   &cpu, &p, &options, &a, err,
                                                   sizeof err),
                         HCP_RC_INVALID);
        assert_null(a);
        assert_non_null(strstr(err, "cpu-blas: lse_pitch "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_rows_give_the_whole),
        cmocka_unit_test(an_empty_state_is_a_start),
        cmocka_unit_test(accumulating_kernels_keep_one_pass),
        cmocka_unit_test(finish_passes_are_named),
        cmocka_unit_test(steps_share_scratch),
        cmocka_unit_test(scratch_is_that_of_the_largest_step),
        cmocka_unit_test(scratch_that_cannot_grow),
        cmocka_unit_test(bad_pitches_are_refused),
    };
    runtime = *hcp_runtime_cpu();
    runtime.finish = counted_finish;
    runtime.alloc = counted_alloc;
    runtime.release = counted_release;
    allocations_left = -1;
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
