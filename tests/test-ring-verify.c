/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification without MPI: a ring that takes its blocks from the whole sequence instead
 * of a neighbour, on the CPU's kernel and on one with the habits of cuDNN. What a right
 * ring computes passes at any split, layout, dtype and number of pieces; each planted
 * error is found and named. HCP_TEST_SCALE=100: more rings.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "executor/verify.h"
#include "kernels/dtype.h"
#include "tests/faulty-provider.h"
#include "tests/plan-fixture.h"

enum { RANKS = 5, STRIPES = 6 };

/* What executor/ring.h promises to verification, for one rank. */
struct ring {
    struct ring_config config;
    struct ring_schedule schedule;
    hcp_plan plan;
    hcp_plan_rank ranks[RANKS];
    hcp_segment segments[RANKS * STRIPES];
    int64_t tokens[RANKS];
    hcp_attn_problem shape;
    void *q, *kv; /* kv: of the block at hand */
    float *o, *lse;
    int skip_call; /* this one is left out; -1 none */
    int64_t shift; /* this rank's queries are those of so many positions further */
};

void ring_tensors_of(const ring *r, struct ring_tensors *out)
{
    *out = (struct ring_tensors){.q = r->q, .o = r->o, .lse = r->lse};
}

const struct ring_schedule *ring_schedule_of(const ring *r)
{
    return &r->schedule;
}

const struct ring_config *ring_config_of(const ring *r)
{
    return &r->config;
}

void *ring_stream_of(const ring *r)
{
    (void)r;
    return NULL;
}

static int64_t position(const ring *r, int32_t rank, int64_t row)
{
    const hcp_segment *s = r->plan.segments + r->ranks[rank].first_segment;

    while (row >= s->length)
        row -= s++->length;
    return s->offset + row;
}

/* Tokens [first, first + n) of a rank in a tensor of the whole sequence. */
static void make(const ring *r, void *out, int32_t rank, int64_t first, int64_t n,
                 int64_t heads, uint64_t seed)
{
    int64_t dim = r->shape.head_dim, element = hcp_dtype_bytes(r->shape.dtype);

    for (int64_t h = 0; h < r->shape.batch * heads; h++) {
        for (int64_t i = 0; i < n; i++) {
            int64_t at = position(r, rank, first + i) + (seed == 1 ? r->shift : 0);

            assert_int_equal(r->config.runtime->randn(
                                 (char *)out + (h * n + i) * dim * element, dim,
                                 r->shape.dtype, r->config.seed + seed,
                                 (uint64_t)((h * r->plan.seq_len + at) * dim), NULL),
                             0);
        }
    }
}

static void run_piece(ring *r, const struct ring_step *step,
                      const struct ring_piece *piece)
{
    hcp_attn_problem p = r->shape;
    int64_t dim = p.head_dim, element = hcp_dtype_bytes(p.dtype);
    int64_t half = p.batch * p.kv_heads * piece->tokens * dim * element;
    char *v = (char *)r->kv + half, text[256];
    const hcp_attention_options options = {.lse_pitch = r->schedule.tokens};

    make(r, r->kv, step->block_of, piece->first, piece->tokens, p.kv_heads, 2);
    make(r, v, step->block_of, piece->first, piece->tokens, p.kv_heads, 3);
    p.q_len = r->schedule.tokens;
    p.kv_len = piece->tokens;
    hcp_problem_set_dense_strides(&p);
    for (size_t c = piece->call; c < piece->call + piece->n_calls; c++) {
        const struct ring_call *call = &r->schedule.calls[c];
        hcp_attention *attention = NULL;
        hcp_attn_args args = {.size = sizeof args,
                              .q = (char *)r->q + call->row * dim * element,
                              .k = r->kv,
                              .v = v,
                              .o = r->o + call->row * dim,
                              .lse = r->lse + call->row,
                              .q_len = call->rows,
                              .kv_len = call->keys};

        p.q_len = call->rows;
        p.kv_len = call->keys;
        p.causal = call->causal;
        p.accumulate = step != r->schedule.steps;
        if ((int)c == r->skip_call)
            continue;
        assert_int_equal(hcp_attention_create_with(
                             r->config.provider, r->config.runtime, &r->config.device, &p,
                             &options, &attention, text, sizeof text),
                         0);
        assert_int_equal(hcp_attention_run(attention, &args, NULL), 0);
        hcp_attention_destroy(attention);
    }
}

/* A pass, its output poisoned before. */
static void run(ring *r)
{
    struct hcp_err err = {0};

    assert_int_equal(ring_poison(r, &err), HCP_OK);
    if (r->schedule.tokens == 0)
        return;
    make(r, r->q, r->config.rank, 0, r->schedule.tokens, r->shape.heads, 1);
    for (int32_t k = 0; k < r->schedule.m; k++)
        for (size_t i = 0; i < r->schedule.steps[k].n_pieces; i++)
            run_piece(r, &r->schedule.steps[k],
                      &r->schedule.pieces[r->schedule.steps[k].piece + i]);
}

static void set_plan(ring *r, size_t n, int64_t seq_len, int causal, hcp_layout layout,
                     int32_t stripes, const char *dtype)
{
    hcp_plan *plan = &r->plan;

    memset(r, 0, sizeof *r);
    hcp_plan_init(plan, r->ranks, RANKS, r->segments, RANKS * STRIPES);
    hcp_shape_init(&plan->shape);
    snprintf(plan->shape.dtype, sizeof plan->shape.dtype, "%s", dtype);
    plan->shape.batch = 1;
    plan->shape.heads = 4;
    plan->shape.kv_heads = 2;
    plan->shape.head_dim = 32;
    plan->n_ranks = n;
    plan->seq_len = seq_len;
    plan->causal = causal;
    plan->layout = layout;
    plan->stripes = stripes;
    plan->tile = 1;
}

/* Segments and everything that follows from tokens. */
static void open_rank(ring *r, int32_t rank, int32_t sub_blocks, const hcp_provider *p)
{
    static const char *const names[] = {"bf16", "fp16", "fp32"}; /* by hcp_dtype */
    const hcp_shape *s = &r->plan.shape;
    int64_t counts[RANKS], at = 0, rows, element;
    struct hcp_err err = {0};
    int dtype = 0;

    assert_int_equal(hcp_layout_segments(r->plan.layout, r->plan.stripes, r->plan.n_ranks,
                                         r->tokens, r->plan.seq_len, r->segments,
                                         RANKS * STRIPES, counts),
                     HCP_STATUS_OK);
    for (size_t i = 0; i < r->plan.n_ranks; i++) {
        r->ranks[i].tokens = r->tokens[i];
        r->ranks[i].first_segment = at;
        r->ranks[i].n_segments = counts[i];
        at += counts[i];
    }
    r->plan.n_segments = (size_t)at;
    assert_int_equal(ring_schedule_make(&r->plan, rank, sub_blocks, &r->schedule, &err),
                     HCP_OK);
    while (strcmp(names[dtype], s->dtype) != 0)
        dtype++;
    r->config = (struct ring_config){.plan = &r->plan,
                                     .rank = rank,
                                     .runtime = hcp_runtime_cpu(),
                                     .device = {.size = sizeof r->config.device,
                                                .kind = HCP_DEVICE_CPU,
                                                .sm_count = 1},
                                     .provider = p,
                                     .seed = 77};
    r->shape = (hcp_attn_problem){.size = sizeof r->shape,
                                  .batch = s->batch,
                                  .heads = s->heads,
                                  .kv_heads = s->kv_heads,
                                  .head_dim = s->head_dim,
                                  .dtype = dtype,
                                  .out_dtype = HCP_FP32,
                                  .scale = 1 / sqrt(s->head_dim)};
    rows = (int64_t)s->batch * s->heads * r->schedule.tokens;
    element = hcp_dtype_bytes(dtype);
    r->skip_call = -1;
    r->config.runtime->alloc(&r->q, rows * s->head_dim * element);
    r->config.runtime->alloc((void **)&r->o, rows * s->head_dim * 4);
    r->config.runtime->alloc((void **)&r->lse, rows * 4);
    r->config.runtime->alloc(&r->kv, 2 * (int64_t)s->batch * s->kv_heads *
                                         r->plan.seq_len * s->head_dim * element);
}

static void close_rank(ring *r)
{
    ring_schedule_free(&r->schedule);
    r->config.runtime->release(r->q);
    r->config.runtime->release(r->o);
    r->config.runtime->release(r->lse);
    r->config.runtime->release(r->kv);
}

static struct ring_errors verify(ring *r, int64_t max_rows)
{
    struct ring_errors errors;
    struct hcp_err err = {0};

    if (ring_verify(r, max_rows, &errors, &err) != HCP_OK)
        fail_msg("%s", err.text);
    return errors;
}

static void random_ring(ring *r, uint64_t *seed)
{
    static const char *const dtypes[] = {"bf16", "fp16", "fp32"};
    size_t n = (size_t)fixture_range(seed, 1, RANKS);
    int64_t left = fixture_range(seed, 1, fixture_range(seed, 0, 3) ? 300 : 9);
    hcp_layout layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);

    set_plan(r, n, left, (int)fixture_range(seed, 0, 3) > 0, layout,
             (int32_t)fixture_range(seed, 1, STRIPES), dtypes[fixture_range(seed, 0, 2)]);
    r->plan.shape.batch = (int32_t)fixture_range(seed, 1, 2);
    r->plan.tile = fixture_range(seed, 1, 40);
    for (size_t i = 0; i < n; i++) {
        r->tokens[i] = fixture_range(seed, 0, 2) ? fixture_range(seed, 0, left) : 0;
        left -= r->tokens[i];
    }
    r->tokens[fixture_range(seed, 0, (int64_t)n - 1)] += left;
}

/* What was compared is no more than asked for, and the edges of segments. */
static int64_t rows_to_compare(const ring *r, int64_t max_rows)
{
    int64_t all = (int64_t)r->plan.shape.batch * r->plan.shape.heads * r->schedule.tokens;
    int64_t most = max_rows + 2 * r->ranks[r->config.rank].n_segments;

    return all <= max_rows ? all : all < most ? all : most;
}

static void right_rings_pass(void **state)
{
    static ring r;
    uint64_t seed = 5;
    int rings = (int)(120 * fixture_scale()), alone = 0, without = 0, halves = 0;
    double closest = 0, lse = 0, row = 0;

    (void)state;
    for (int i = 0; i < rings; i++) {
        const hcp_provider *p =
            i % 3 ? hcp_provider_cpu() : hcp_faulty_provider(HABIT_ALL);
        int32_t sub_blocks = (int32_t)fixture_range(&seed, 1, 4);
        int64_t max_rows = fixture_range(&seed, 0, 1) ? 60 : 100000;

        random_ring(&r, &seed);
        for (int32_t rank = 0; rank < (int32_t)r.plan.n_ranks; rank++) {
            struct ring_errors e;
            int64_t all;

            open_rank(&r, rank, sub_blocks, p);
            run(&r);
            e = verify(&r, max_rows);
            all = rows_to_compare(&r, max_rows);
            if (!e.passed)
                print_error("ring %d rank %d of %zu, %lld of %lld tokens, %s %s: %s\n", i,
                            rank, r.plan.n_ranks, (long long)r.tokens[rank],
                            (long long)r.plan.seq_len, r.plan.shape.dtype, p->name,
                            e.text);
            assert_true(e.passed);
            assert_string_equal(e.text, "");
            assert_true(e.rows_compared <= all &&
                        (all <= max_rows || e.rows_compared >= max_rows));
            assert_int_equal(e.rows_compared == 0, r.tokens[rank] == 0);
            if (r.tokens[rank] > 0) {
                assert_true(e.o_error <= e.o_bound && e.lse_error <= 1 &&
                            e.row_error <= 1);
                closest = fmax(closest, e.o_error / e.o_bound);
                lse = fmax(lse, e.lse_error);
                row = fmax(row, e.row_error);
            }
            without += r.tokens[rank] == 0;
            halves += r.tokens[rank] > 0 && i % 3 == 0 && r.shape.dtype != HCP_FP32;
            close_rank(&r);
        }
        alone += r.plan.n_ranks == 1;
    }
    print_message("# %d rings, %d of one rank, %d ranks without tokens; at most %.2f, "
                  "%.2f and %.2f of the bounds of O, L and a row\n",
                  rings, alone, without, closest, lse, row);
    assert_true(rings < 100 || (alone && without && halves));
}

/* A ring of three, zigzag, whose middle rank is looked at. */
static void open_example(ring *r, const char *dtype, int causal)
{
    set_plan(r, 3, 301, causal, HCP_LAYOUT_ZIGZAG, 1, dtype);
    r->tokens[0] = 120;
    r->tokens[1] = 101; /* positions 60 .. 110 and 191 .. 240 */
    r->tokens[2] = 80;
    open_rank(r, 1, 2, hcp_provider_cpu());
}

static void must_find(ring *r, int64_t max_rows, const char *text)
{
    struct ring_errors e = verify(r, max_rows);

    if (e.passed || !strstr(e.text, text))
        print_error("'%s' does not say '%s'\n", e.text, text);
    assert_false(e.passed);
    assert_non_null(strstr(e.text, text));
}

static void planted_errors_are_found(void **state)
{
    static const char *const dtypes[] = {"bf16", "fp32"};
    static ring r;
    const int64_t dim = 32;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ring_errors e;

        open_example(&r, dtypes[i], 1);
        run(&r);
        assert_true(verify(&r, 20).passed);

        /* One element of a row that is not sampled. */
        int64_t at = (2 * 101 + 70) * dim + 3;
        float kept = r.o[at];
        char where[64];
        snprintf(where, sizeof where, "head 2 token %lld: O differs",
                 (long long)position(&r, 1, 70));
        r.o[at] += 1;
        must_find(&r, 0, where);
        r.o[at] = NAN;
        must_find(&r, 0, "not a number");
        r.o[at] = kept;

        float kept_lse = r.lse[101 + 7];
        r.lse[101 + 7] += 0.01f;
        must_find(&r, 0, "head 1 token 67: L is");
        r.lse[101 + 7] = NAN;
        must_find(&r, 0, "head 1 token 67: O or L is not a number");
        r.lse[101 + 7] = kept_lse;
        assert_true(verify(&r, 20).passed);

        /* Noise in all rows that no row shows by itself. */
        for (int64_t j = 0; j < 4 * 101 * dim; j++)
            r.o[j] *= j % 2 ? 1 + (i ? 5e-6f : 5e-4f) : 1 - (i ? 5e-6f : 5e-4f);
        e = verify(&r, 100000);
        assert_false(e.passed);
        assert_true(e.o_error > e.o_bound && e.row_error <= 1 && e.lse_error <= 1);
        assert_non_null(strstr(e.text, "O is off by"));
        assert_int_equal(e.rows_compared, 4 * 101);

        /* The first call leaves poison, any other leaves out keys. */
        for (size_t c = 0; c < r.schedule.n_calls; c++) {
            r.skip_call = (int)c;
            run(&r);
            must_find(&r, 0, c ? "L is" : "not a number");
        }
        r.skip_call = -1;
        r.shift = 1; /* the ring's own queries are wrong */
        run(&r);
        must_find(&r, 0, "L is");
        close_rank(&r);
    }
}

/* A kernel that is wrong agrees with itself: fp64 does not. */
static void wrong_kernels_are_found(void **state)
{
    static const struct {
        hcp_fault fault;
        const char *text;
    } cases[] = {{FAULT_LSE, "should be"},
                 {FAULT_O, "a single pass of the kernel is off"}};
    static ring r;

    (void)state;
    for (int i = 0; i < 2; i++) {
        set_plan(&r, 1, 200, 1, HCP_LAYOUT_CONTIGUOUS, 1, "fp16");
        r.tokens[0] = 200;
        open_rank(&r, 0, 1, hcp_faulty_provider(cases[i].fault));
        run(&r);
        must_find(&r, 100000, cases[i].text);
        close_rank(&r);
    }
}

/* Where luck can make a single pass good, the kernel's bound holds; else it does not. */
static void few_pairs_have_the_kernels_bound(void **state)
{
    static ring r;
    struct ring_errors e;

    (void)state;
    for (int64_t length = 7; length < 200; length += 100) {
        set_plan(&r, 1, length, 1, HCP_LAYOUT_CONTIGUOUS, 1, "bf16");
        r.tokens[0] = length;
        open_rank(&r, 0, 1, hcp_provider_cpu());
        run(&r);
        for (int64_t i = 0; i < 4 * length * 32; i++)
            r.o[i] *= 1 + 1e-3f;
        e = verify(&r, 1000);
        assert_true(e.passed == (length == 7) && e.o_error > 9e-4 && e.o_error < 1.1e-3);
        assert_true((e.o_bound == 4e-3) == (length == 7));
        close_rank(&r);
    }
}

/* With a full mask the whole rank is one pass: rows beyond a chunk, positions right. */
static void rows_are_named_under_a_full_mask(void **state)
{
    static ring r;
    struct ring_errors e;

    (void)state;
    set_plan(&r, 2, 9003, 0, HCP_LAYOUT_ZIGZAG, 1, "bf16");
    r.plan.shape.heads = r.plan.shape.kv_heads = 1;
    r.plan.shape.head_dim = 8;
    r.plan.shape.batch = 2;
    r.tokens[0] = 9001;
    r.tokens[1] = 2;
    open_rank(&r, 0, 1, hcp_provider_cpu());
    run(&r);
    e = verify(&r, 10);
    assert_string_equal(e.text, "");
    assert_true(e.passed && e.rows_compared >= 10 && e.rows_compared <= 14);
    r.lse[9001 + 9000] += 1; /* the last token of the sequence in batch 1 */
    must_find(&r, 0, "batch 1 head 0 token 9002: L is");
    close_rank(&r);
}

/* The CPU's runtime, whose n-th allocation from now on fails. */
static int allocations_left;

static int scarce_alloc(void **out, int64_t bytes)
{
    if (allocations_left-- > 0)
        return hcp_runtime_cpu()->alloc(out, bytes);
    *out = &allocations_left; /* not to be released */
    return HCP_RC_NO_MEMORY;
}

static int failing_fill(void *dst, int byte, int64_t bytes, void *stream)
{
    (void)dst, (void)byte, (void)bytes, (void)stream;
    return HCP_RC_DEVICE;
}

static void failures_are_told(void **state)
{
    hcp_runtime scarce = *hcp_runtime_cpu();
    static ring r;
    struct ring_errors e;
    struct hcp_err err = {0};

    (void)state;
    open_example(&r, "bf16", 1);
    run(&r);
    r.config.provider = hcp_faulty_provider(FAULT_ERROR);
    assert_int_equal(ring_verify(&r, 5, &e, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "verification: single pass"));
    r.config.provider = hcp_faulty_provider(FAULT_REFUSE);
    assert_int_equal(ring_verify(&r, 5, &e, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "51 queries x "));
    scarce.alloc = scarce_alloc;
    scarce.fill = failing_fill;
    r.config.runtime = &scarce;
    r.config.provider = hcp_provider_cpu();
    for (int n = 0; n < 5; n++) { /* K, V, and three of a part */
        allocations_left = n;
        assert_int_equal(ring_verify(&r, 5, &e, &err), HCP_FAILED);
        assert_non_null(strstr(err.text, "use a shorter sequence"));
    }
    allocations_left = 100;
    assert_int_equal(ring_verify(&r, 5, &e, &err), HCP_OK);
    assert_true(e.passed);
    assert_int_equal(ring_poison(&r, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "poisoning"));
    close_rank(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_rings_pass),
        cmocka_unit_test(planted_errors_are_found),
        cmocka_unit_test(wrong_kernels_are_found),
        cmocka_unit_test(few_pairs_have_the_kernels_bound),
        cmocka_unit_test(rows_are_named_under_a_full_mask),
        cmocka_unit_test(failures_are_told),
    };

    return cmocka_run_group_tests_name("ring-verify", tests, NULL, NULL);
}
