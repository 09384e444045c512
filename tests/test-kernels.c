/* SPDX-License-Identifier: Apache-2.0
 *
 * A planned attention step over a provider, and the registry of providers.
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
#include "kernels/conformance.h"
#include "kernels/cpu-lanes.h"
#include "tests/faulty-provider.h"

static const hcp_device_ref cpu = {
    .size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};

/* The linker sends our own objects' allocations through here. */
static _Atomic int allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    allocations++;
    return __real_posix_memalign(out, align, n);
}

static void exp2_is_accurate(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 126 * 4096; i++) {
        float x = (float)-i / 4096;
        worst = fmax(worst, fabs(hcp_exp2_nonpositive(x) / exp2(x) - 1));
    }
    assert_true(worst <= 2 * 0x1p-23);
    assert_true(hcp_exp2_nonpositive(0) == 1);
    assert_true(hcp_exp2_nonpositive(-127) == 0);
    assert_true(hcp_exp2_nonpositive(-1e30f) == 0);
    assert_true(hcp_exp2_nonpositive(-INFINITY) == 0);
    assert_true(isnan(hcp_exp2_nonpositive(NAN)));
    assert_true(fabs(hcp_exp2_nonpositive(-126.3f) - exp2(-126.3)) <= 0x1p-126);
}

static hcp_attn_problem small_problem(void)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 6,
                          .kv_len = 9,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .dtype = HCP_FP32,
                          .out_dtype = HCP_FP32,
                          .causal = 1,
                          .diag = 2,
                          .scale = 1};
    hcp_problem_set_dense_strides(&p);
    return p;
}

/* Tensors for anything small. */
static float q[4096], k[4096], v[4096], o[4096], lse[512];

static hcp_attn_args small_args(const hcp_attn_problem *p)
{
    const hcp_runtime *rt = hcp_runtime_cpu();
    rt->randn(q, 4096, HCP_FP32, 1, 0, NULL);
    rt->randn(k, 4096, HCP_FP32, 2, 0, NULL);
    rt->randn(v, 4096, HCP_FP32, 3, 0, NULL);
    return (hcp_attn_args){.size = sizeof(hcp_attn_args),
                           .q = q,
                           .k = k,
                           .v = v,
                           .o = o,
                           .lse = lse,
                           .q_len = p->q_len,
                           .kv_len = p->kv_len,
                           .diag = p->diag};
}

static hcp_attention *step(const hcp_provider *provider, const hcp_attn_problem *p)
{
    hcp_attention *a = NULL;
    char err[256] = "";
    if (hcp_attention_create(provider, hcp_runtime_cpu(), &cpu, p, &a, err, sizeof err))
        fail_msg("%s", err);
    return a;
}

static void empty_blocks_launch_nothing(void **state)
{
    (void)state;
    hcp_attn_problem p = small_problem();
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        p.diag = -p.q_len;
        p.accumulate = accumulate;
        hcp_attn_args args = small_args(&p);
        memset(o, 0xff, sizeof o);
        lse[0] = 5;
        hcp_attention *a = step(hcp_faulty_provider(FAULT_NONE), &p);
        hcp_faulty_runs = 0;
        assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
        assert_int_equal(hcp_faulty_runs, 0);
        assert_true(accumulate ? isnan(o[0]) && lse[0] == 5 : o[0] == 0 && isinf(lse[0]));
        hcp_attention_destroy(a);
    }
    /* none and one row less than all: the corner of a block takes one call */
    p.diag = 1 - p.q_len;
    p.accumulate = 0;
    hcp_attn_args args = small_args(&p);
    hcp_attention *a = step(hcp_faulty_provider(FAULT_NONE), &p);
    hcp_faulty_runs = 0;
    assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
    assert_int_equal(hcp_faulty_runs, 1);
    hcp_attention_destroy(a);
}

static void corner_causal_takes_two_calls(void **state)
{
    (void)state;
    char text[256];
    hcp_attn_problem p = small_problem();
    p.q_len = 12; /* diag 2: rows 0..6 under the mask, the rest see all 9 keys */
    hcp_problem_set_dense_strides(&p);
    hcp_attn_args args = small_args(&p);
    hcp_attention *a = step(hcp_faulty_provider(HABIT_CORNER), &p);
    hcp_faulty_runs = 0;
    assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
    assert_int_equal(hcp_faulty_runs, 2);
    hcp_attention_describe(a, text, sizeof text);
    assert_non_null(strstr(text, "in two calls"));
    hcp_attention_destroy(a);

    p.diag = p.kv_len - p.q_len; /* the corner itself, rows without keys dropped */
    args.diag = p.diag;
    a = step(hcp_faulty_provider(HABIT_CORNER), &p);
    hcp_faulty_runs = 0;
    assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
    assert_int_equal(hcp_faulty_runs, 1);
    hcp_attention_destroy(a);
}

static void runs_allocate_nothing(void **state)
{
    (void)state;
    for (int h = N_FAULTS; h < N_HABITS; h++) {
        hcp_attn_problem p = small_problem();
        p.q_len = 12;
        p.accumulate = 1;
        hcp_problem_set_dense_strides(&p);
        hcp_attn_args args = small_args(&p);
        for (int i = 0; i < 512; i++)
            lse[i] = -INFINITY;
        hcp_attention *a = step(hcp_faulty_provider(h), &p);
        int before = allocations;
        assert_true(before > 0);
        assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
        assert_int_equal(allocations, before);
        hcp_attention_destroy(a);
    }
}

static void bad_problems_are_refused(void **state)
{
    (void)state;
    char err[256];
    const struct {
        size_t offset;
        int64_t value;
        const char *says;
    } bad[] = {
        {offsetof(hcp_attn_problem, q_len), -1, "lengths must lie in 0..2^30"},
        {offsetof(hcp_attn_problem, kv_len), ((int64_t)1 << 30) + 1, "lengths must lie"},
        {offsetof(hcp_attn_problem, kv_heads), 3,
         "4 heads are not a multiple of 3 KV heads"},
        {offsetof(hcp_attn_problem, kv_heads), 0, "must be at least 1"},
        {offsetof(hcp_attn_problem, head_dim), 0, "must be at least 1"},
        {offsetof(hcp_attn_problem, batch), -5, "must be at least 1"},
        {offsetof(hcp_attn_problem, batch), (int64_t)1 << 54, "over 2^56 elements"},
        {offsetof(hcp_attn_problem, heads), INT64_MAX / 2 * 2, "over 2^56 elements"},
        {offsetof(hcp_attn_problem, scale), (int64_t)0x7ff << 52, "finite"},
        {offsetof(hcp_attn_problem, size), 16, "older than this build"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hcp_attn_problem p = small_problem();
        hcp_attention *a = NULL;
        memcpy((char *)&p + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        assert_int_equal(hcp_attention_create(hcp_provider_cpu(), hcp_runtime_cpu(), &cpu,
                                              &p, &a, err, sizeof err),
                         HCP_RC_INVALID);
        assert_null(a);
        assert_non_null(strstr(err, bad[i].says));
        assert_non_null(strstr(err, "cpu-blas: "));
    }
    hcp_attn_problem p = small_problem();
    hcp_attention *a = NULL;
    p.heads = p.q_len = INT64_MAX - 1;
    hcp_problem_set_dense_strides(&p); /* does not trap; create() says why not */
    p = small_problem();
    p.dtype = 7;
    assert_int_equal(hcp_attention_create(hcp_provider_cpu(), hcp_runtime_cpu(), &cpu, &p,
                                          &a, err, sizeof err),
                     HCP_RC_INVALID);
    assert_non_null(strstr(err, "unknown dtype"));
    p = small_problem();
    p.head_dim = 20000;
    hcp_problem_set_dense_strides(&p);
    assert_int_equal(hcp_attention_create(hcp_provider_cpu(), hcp_runtime_cpu(), &cpu, &p,
                                          &a, err, sizeof err),
                     HCP_RC_UNSUPPORTED);
    assert_non_null(strstr(err, "up to 16384"));
}

static void arguments_must_fit_the_plan(void **state)
{
    (void)state;
    hcp_attn_problem p = small_problem();
    hcp_attn_args args = small_args(&p), wrong = args;
    hcp_attention *a = step(hcp_provider_cpu(), &p);
    wrong.q_len = 5;
    assert_int_equal(hcp_attention_run(a, &wrong, NULL), HCP_RC_INVALID);
    wrong = args;
    wrong.diag = 3;
    assert_int_equal(hcp_attention_run(a, &wrong, NULL), HCP_RC_INVALID);
    wrong = args;
    wrong.size = 8;
    assert_int_equal(hcp_attention_run(a, &wrong, NULL), HCP_RC_INVALID);
    assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
    hcp_attention_destroy(a);
    hcp_attention_destroy(NULL);

    hcp_attn_plan *plan;
    const hcp_provider *blas = hcp_provider_cpu();
    assert_int_equal(blas->plan_create(&cpu, &p, &plan), HCP_RC_OK);
    wrong = args;
    wrong.kv_len = 10;
    assert_int_equal(blas->run(plan, &wrong, NULL), HCP_RC_INVALID);
    wrong = args;
    wrong.diag = -1;
    assert_int_equal(blas->run(plan, &wrong, NULL), HCP_RC_INVALID);
    blas->plan_destroy(plan);
    blas->plan_destroy(NULL);
}

/* What breaks the rules of provider.h is not believed. */
static enum { CODE, NO_END, WORKSPACE, TILE, PLAN, CAPS } broken;

static int broken_query(const hcp_device_ref *device, const hcp_attn_problem *p,
                        hcp_attn_support *out)
{
    int rc = hcp_faulty_provider(HABIT_CORNER)->query(device, p, out);
    if (broken == CODE)
        return -7;
    if (broken == WORKSPACE)
        out->workspace_bytes = -1;
    if (broken == TILE)
        out->tile_kv = -64;
    if (broken == CAPS && !p->causal)
        out->caps &= ~(uint32_t)HCP_CAP_DETERMINISTIC;
    if (broken == NO_END) {
        out->supported = 0;
        memset(out->reason, 'x', sizeof out->reason);
    }
    return rc;
}

static int broken_plan(const hcp_device_ref *device, const hcp_attn_problem *p,
                       hcp_attn_plan **out)
{
    return broken == PLAN
               ? HCP_RC_UNSUPPORTED
               : hcp_faulty_provider(HABIT_CORNER)->plan_create(device, p, out);
}

static void broken_providers_are_not_believed(void **state)
{
    (void)state;
    static const struct {
        int rc;
        const char *says;
    } want[] = {
        [CODE] = {HCP_RC_DEVICE, "faulty: device error"},
        [NO_END] = {HCP_RC_UNSUPPORTED, "faulty: xxx"},
        [WORKSPACE] = {HCP_RC_UNSUPPORTED, "negative workspace or tile"},
        [TILE] = {HCP_RC_UNSUPPORTED, "negative workspace or tile"},
        [PLAN] = {HCP_RC_UNSUPPORTED, "faulty: cannot plan: not supported"},
    };
    hcp_provider p = *hcp_faulty_provider(HABIT_CORNER);
    hcp_attn_problem problem = small_problem();
    hcp_conformance_case r;
    hcp_attn_support s = {.size = sizeof s};
    p.query = broken_query;
    p.plan_create = broken_plan;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        hcp_attention *a = NULL;
        char err[512] = "";
        broken = i;
        assert_int_equal(hcp_attention_create(&p, hcp_runtime_cpu(), &cpu, &problem, &a,
                                              err, sizeof err),
                         want[i].rc);
        assert_null(a);
        assert_non_null(strstr(err, want[i].says));
        assert_true(strlen(err) < 200);
        assert_int_equal(hcp_conformance_problem(&p, hcp_runtime_cpu(), &cpu, &problem,
                                                 &r, err, sizeof err),
                         HCP_RC_OK);
        assert_int_equal(r.outcome, i == CODE ? HCP_CASE_FAILED : HCP_CASE_REFUSED);
    }
    broken = CAPS; /* masked rows, then rows that see all: both must be able */
    problem.q_len = 12;
    hcp_problem_set_dense_strides(&problem);
    assert_int_equal(hcp_attention_probe(&p, &cpu, &problem, &s), HCP_RC_OK);
    assert_true(s.supported && s.caps & HCP_CAP_OUT_FP32);
    assert_false(s.caps & HCP_CAP_DETERMINISTIC);
}

/* Input that is not a number must not come out as a row without keys. */
static void nan_in_shows(void **state)
{
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++)
        for (int of_keys = 0; of_keys < 2; of_keys++) {
            hcp_attn_problem p = small_problem();
            p.accumulate = accumulate;
            hcp_attn_args args = small_args(&p);
            hcp_attention *a = step(hcp_provider_cpu(), &p);
            memset(o, 0, sizeof o);
            for (int i = 0; i < 512; i++)
                lse[i] = -INFINITY;
            for (int64_t i = 0; i < p.kv_len * p.head_dim && of_keys; i++)
                k[i] = NAN; /* KV head 0: query heads 0 and 1 */
            for (int64_t i = 0; i < 2 * p.q_len * p.head_dim && !of_keys; i++)
                q[i] = NAN;
            assert_int_equal(hcp_attention_run(a, &args, NULL), HCP_RC_OK);
            for (int64_t row = 0; row < p.heads * p.q_len; row++) {
                int bad = row < 2 * p.q_len;
                assert_int_equal(!isnan(lse[row]), !bad);
                assert_int_equal(!isnan(o[row * p.head_dim]), !bad);
            }
            hcp_attention_destroy(a);
        }
}

/* One check before a cell is timed. */
static void a_single_problem_is_checked(void **state)
{
    (void)state;
    char err[256] = "";
    hcp_conformance_case r;
    hcp_attn_problem p = small_problem();
    assert_int_equal(hcp_conformance_problem(hcp_provider_cpu(), hcp_runtime_cpu(), &cpu,
                                             &p, &r, err, sizeof err),
                     HCP_RC_OK);
    assert_int_equal(r.outcome, HCP_CASE_PASSED);
    assert_int_equal(r.rows_compared, 24);
    assert_string_equal(r.name, "fp32 4/2 d8 6x9 diag 2");
    assert_int_equal(hcp_conformance_problem(hcp_faulty_provider(FAULT_LSE),
                                             hcp_runtime_cpu(), &cpu, &p, &r, err,
                                             sizeof err),
                     HCP_RC_OK);
    assert_int_equal(r.outcome, HCP_CASE_FAILED);
    assert_non_null(strstr(r.text, "L is "));
}

static const hcp_provider *faulty_none(void)
{
    return hcp_faulty_provider(FAULT_REFUSE);
}

static const hcp_provider *no_provider(void)
{
    return NULL;
}

static void registry_picks_in_order(void **state)
{
    (void)state;
    const hcp_provider_ctor ctors[] = {no_provider, faulty_none, hcp_provider_cpu};
    char err[256] = "", why[512];
    hcp_registry *r;
    hcp_attn_problem p = small_problem();
    hcp_attn_support s;
    assert_int_equal(hcp_registry_open_with(&cpu, ctors, 3, NULL, &r, err, sizeof err),
                     0);
    assert_int_equal(hcp_registry_count(r), 2);
    assert_string_equal(hcp_registry_at(r, 0)->name, "faulty");
    assert_null(hcp_registry_at(r, 2));
    assert_ptr_equal(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why),
                     hcp_provider_cpu());
    assert_true(s.caps & HCP_CAP_DIAG && s.supported);
    assert_null(hcp_registry_pick(r, "faulty", &p, &s, why, sizeof why));
    assert_string_equal(why, "faulty: not today");
    assert_null(hcp_registry_pick(r, "cudnn", &p, &s, why, sizeof why));
    assert_string_equal(why, "no kernel 'cudnn' here; there is: faulty, cpu-blas");
    p.head_dim = 20000;
    assert_null(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why));
    assert_non_null(strstr(why, "; cpu-blas: head_dim"));
    hcp_registry_close(r);

    hcp_device_ref gpu = cpu;
    gpu.kind = HCP_DEVICE_CUDA;
    assert_int_equal(hcp_registry_open_with(&gpu, ctors, 3, NULL, &r, err, sizeof err),
                     0);
    assert_int_equal(hcp_registry_count(r), 0);
    assert_null(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why));
    assert_string_equal(why, "no kernel runs on this device");
    hcp_registry_close(r);
    hcp_registry_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_is_accurate),
        cmocka_unit_test(empty_blocks_launch_nothing),
        cmocka_unit_test(corner_causal_takes_two_calls),
        cmocka_unit_test(runs_allocate_nothing),
        cmocka_unit_test(bad_problems_are_refused),
        cmocka_unit_test(arguments_must_fit_the_plan),
        cmocka_unit_test(broken_providers_are_not_believed),
        cmocka_unit_test(nan_in_shows),
        cmocka_unit_test(a_single_problem_is_checked),
        cmocka_unit_test(registry_picks_in_order),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
