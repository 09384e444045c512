/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance set: cpu-blas passes it, providers of other habits too, and each
 * planted fault is found.
 */
#include <limits.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/conformance.h"
#include "tests/faulty-provider.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static const hcp_device_ref cpu = {
    .size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};

static void report(const hcp_conformance_case *r, void *user)
{
    (void)user;
    if (r->outcome == HCP_CASE_FAILED)
        print_message("# %s: %s\n", r->name, r->text);
}

static hcp_conformance_summary conform(const hcp_provider *p, int level)
{
    char err[256] = "";
    hcp_conformance_summary s;
    int rc = hcp_conformance_run(p, hcp_runtime_cpu(), &cpu, level, report, NULL, &s, err,
                                 sizeof err);
    if (rc)
        fail_msg("%s", err);
    print_message(
        "# %s: %lld passed, %lld refused, %lld failed; O %.1e bf16 %.1e fp16 %.1e "
        "fp32, L %.3f of its bound\n",
        p->name, (long long)s.passed, (long long)s.refused, (long long)s.failed,
        s.worst_o_error[HCP_BF16], s.worst_o_error[HCP_FP16], s.worst_o_error[HCP_FP32],
        s.worst_lse_error);
    return s;
}

/* $HCP_TEST_SCALE, 1 if unset. */
static double test_scale(void)
{
    const char *text = getenv("HCP_TEST_SCALE");
    return text && *text ? strtod(text, NULL) : 1;
}

/* The tensors over 2^31 elements: HCP_TEST_SCALE of 2 and more, and 16 GiB free. */
static int huge_level(void)
{
    double gib =
        (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 0x1p30;
    if (test_scale() < 2 || SANITIZED)
        return 0;
    if (gib >= 16)
        return HCP_CONFORMANCE_HUGE;
    print_message("# %.1f GiB free: without the tensors over 2^31 elements\n", gib);
    return 0;
}

/* Every pair of lengths with a sample of the diagonals; all of them at
 * HCP_TEST_SCALE of 2 and more; short ones only below 1 and under sanitizers. */
static void cpu_blas_conforms(void **state)
{
    (void)state;
    int small = test_scale() < 1 || SANITIZED, full = test_scale() >= 2;
    int level = HCP_CONFORMANCE_FULL | HCP_CONFORMANCE_THREADS | huge_level() |
                (small ? HCP_CONFORMANCE_SMALL : 0) |
                (full ? 0 : HCP_CONFORMANCE_SAMPLED);
    hcp_conformance_summary s = conform(hcp_provider_cpu(), level);
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.refused, 0);
    assert_true(s.passed > (small && full ? 780 : small ? 250 : full ? 1180 : 870));
}

enum { MAX_TOLD = 40 };
struct told {
    hcp_conformance_case c[MAX_TOLD];
    int n;
};

static void keep(const hcp_conformance_case *r, void *user)
{
    struct told *told = user;
    assert_true(told->n < MAX_TOLD);
    told->c[told->n++] = *r;
}

/* Room on a device for so many tensors at a time; INT_MAX: any. */
static _Atomic int room;

static int alloc_some(void **out, int64_t bytes)
{
    if (room < INT_MAX && room-- <= 0)
        return HCP_RC_NO_MEMORY;
    return hcp_runtime_cpu()->alloc(out, bytes);
}

/* The same cases with the same results in the same order; and an end of the run in one
 * thread ends all. */
static void threads_change_nothing(void **state)
{
    (void)state;
    hcp_runtime runtime = *hcp_runtime_cpu();
    static struct told told[2];
    hcp_conformance_summary sum[2];
    char err[256] = "";
    runtime.alloc = alloc_some;
    room = INT_MAX;
    memset(told, 0, sizeof told);
    memset(sum, 0, sizeof sum);
    for (int t = 0; t < 2; t++)
        assert_int_equal(
            hcp_conformance_run(hcp_provider_cpu(), &runtime, &cpu,
                                HCP_CONFORMANCE_QUICK | (t ? HCP_CONFORMANCE_THREADS : 0),
                                keep, &told[t], &sum[t], err, sizeof err),
            HCP_RC_OK);
    assert_true(told[0].n > 10);
    assert_int_equal(told[0].n, told[1].n);
    for (int i = 0; i < told[0].n; i++) {
        const hcp_conformance_case *one = &told[0].c[i], *many = &told[1].c[i];
        assert_string_equal(one->name, many->name);
        assert_string_equal(one->text, many->text);
        assert_int_equal(one->outcome, many->outcome);
        assert_true(one->o_error == many->o_error && one->lse_error == many->lse_error);
        assert_true(one->rows_compared == many->rows_compared);
    }
    assert_memory_equal(&sum[0], &sum[1], sizeof *sum);
    for (int t = 0; t < 2; t++) {
        room = 40; /* a few cases */
        told[1].n = 0;
        assert_int_equal(
            hcp_conformance_run(hcp_provider_cpu(), &runtime, &cpu,
                                HCP_CONFORMANCE_QUICK | (t ? HCP_CONFORMANCE_THREADS : 0),
                                keep, &told[1], &sum[1], err, sizeof err),
            HCP_RC_NO_MEMORY);
        assert_non_null(strstr(err, "conformance of 'cpu-blas': "));
        /* threads: the first case may be the one that fails */
        assert_true((t || told[1].n > 0) && told[1].n < told[0].n);
        assert_true(sum[1].passed == told[1].n);
        for (int i = 0; i < told[1].n; i++)
            assert_string_equal(told[0].c[i].name, told[1].c[i].name);
    }
}

/* Each way in which a provider may differ is evened out by hcp_attention. */
static void habits_are_normalised(void **state)
{
    (void)state;
    int full = HCP_CONFORMANCE_FULL | HCP_CONFORMANCE_SMALL |
               (test_scale() < 2 ? HCP_CONFORMANCE_SAMPLED : 0);
    for (int h = N_FAULTS + 1; h < N_HABITS; h++) {
        int level = h == HABIT_ALL && test_scale() >= 1 && !SANITIZED
                        ? full
                        : HCP_CONFORMANCE_QUICK;
        hcp_conformance_summary s = conform(hcp_faulty_provider(h), level);
        assert_int_equal(s.failed, 0);
        assert_true(s.passed > 10);
    }
}

/* The set can fail: each planted fault is found, in at least one case. */
static void faults_are_found(void **state)
{
    (void)state;
    assert_int_equal(conform(hcp_faulty_provider(FAULT_NONE), 0).failed, 0);
    for (int f = FAULT_NONE + 1; f < N_FAULTS; f++) {
        hcp_conformance_summary s;
        char err[256] = "";
        assert_int_equal(hcp_conformance_run(hcp_faulty_provider(f), hcp_runtime_cpu(),
                                             &cpu, HCP_CONFORMANCE_QUICK, NULL, NULL, &s,
                                             err, sizeof err),
                         HCP_RC_OK);
        print_message("# fault %d: %lld failed, %s\n", f, (long long)s.failed,
                      s.first_failure);
        if (f == FAULT_REFUSE)
            assert_true(s.failed == 0 && s.passed <= 1 && s.refused > 10);
        else
            assert_true(s.failed > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_blas_conforms),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(habits_are_normalised),
        cmocka_unit_test(faults_are_found),
    };
    /* Large tensors come and go: keep their pages. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    return cmocka_run_group_tests_name("conformance", tests, NULL, NULL);
}
