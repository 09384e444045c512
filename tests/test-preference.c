/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel the registry gives for a shape, with kernels that only have names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/preference.h"
#include "kernels/registry.h"

static const hcp_device_ref h200 = {.size = sizeof h200,
                                    .kind = HCP_DEVICE_CUDA,
                                    .cc_major = 9,
                                    .cc_minor = 0,
                                    .sm_count = 132};

enum { N = 5 };

/* In an order that no list of preferences has, and one that is on none. */
static hcp_provider fakes[N];
static const char *const fake_names[N] = {"nobody", "cuda-decode", "cuda-mma",
                                          "cuda-wgmma", "cudnn"};
static int refuses[N];

static int query_of(int i, hcp_attn_support *out)
{
    out->supported = !refuses[i];
    out->caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG;
    if (refuses[i])
        strcpy(out->reason, "not today");
    return HCP_RC_OK;
}

#define FAKE(i)                                                                          \
    static int query_##i(const hcp_device_ref *d, const hcp_attn_problem *p,             \
                         hcp_attn_support *out)                                          \
    {                                                                                    \
        (void)d;                                                                         \
        (void)p;                                                                         \
        return query_of(i, out);                                                         \
    }                                                                                    \
    static const hcp_provider *fake_##i(void)                                            \
    {                                                                                    \
        fakes[i] = *hcp_provider_cpu();                                                  \
        fakes[i].name = fake_names[i];                                                   \
        fakes[i].device_kinds = HCP_DEVICE_CUDA | HCP_DEVICE_CPU;                        \
        fakes[i].query = query_##i;                                                      \
        return &fakes[i];                                                                \
    }
FAKE(0)
FAKE(1)
FAKE(2)
FAKE(3)
FAKE(4)

static hcp_registry *open_fakes(const hcp_device_ref *device)
{
    static const hcp_provider_ctor ctors[N] = {fake_0, fake_1, fake_2, fake_3, fake_4};
    hcp_registry *r = NULL;
    char err[256] = "";

    if (hcp_registry_open_with(device, ctors, N, NULL, &r, err, sizeof err) != HCP_RC_OK)
        fail_msg("%s", err);
    memset(refuses, 0, sizeof refuses);
    return r;
}

static hcp_attn_problem problem(int32_t dtype, int64_t head_dim, int64_t q_len,
                                int64_t kv_len, int causal)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = q_len,
                          .kv_len = kv_len,
                          .heads = 8,
                          .kv_heads = 8,
                          .head_dim = head_dim,
                          .dtype = dtype,
                          .out_dtype = HCP_FP32,
                          .causal = causal,
                          .diag = causal && kv_len > q_len ? kv_len - q_len : 0,
                          .scale = 0.1};

    hcp_problem_set_dense_strides(&p);
    return p;
}

static const char *picked(const hcp_registry *r, const hcp_attn_problem *p)
{
    hcp_attn_support s = {.size = sizeof s};
    char why[512];
    const hcp_provider *one = hcp_registry_pick(r, NULL, p, &s, why, sizeof why);

    return one ? one->name : why[0] ? "refused" : "?";
}

/* Not measured: the order of the list. */
static void unknown_keeps_the_order(void **state)
{
    (void)state;
    hcp_device_ref devices[] = {h200, h200, h200};
    devices[1].cc_major = 7;
    devices[2].kind = HCP_DEVICE_CPU;
    hcp_attn_problem odd = problem(HCP_FP32, 40, 1024, 1024, 0);
    for (int d = 0; d < 3; d++) {
        hcp_attn_problem p = d == 0 ? odd : problem(HCP_BF16, 128, 1024, 1024, 0);
        hcp_registry *r = open_fakes(&devices[d]);

        assert_null(*hcp_preference(&devices[d], &p));
        for (size_t i = 0; i < N; i++) {
            assert_ptr_equal(hcp_registry_ranked(r, &p, i), hcp_registry_at(r, i));
            assert_string_equal(picked(r, &p), fake_names[i]);
            refuses[i] = 1;
        }
        assert_string_equal(picked(r, &p), "refused");
        assert_null(hcp_registry_ranked(r, &p, N));
        hcp_registry_close(r);
    }
}

/* The list's names in its order, each once, then the others in theirs. */
static void check_ranks(const hcp_registry *r, const hcp_attn_problem *p)
{
    const char *const *names = hcp_preference(&h200, p);
    size_t n = 0, at = 0;

    while (names[n])
        n++;
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(hcp_registry_ranked(r, p, i)->name, names[i]);
    for (size_t i = n; i < N; i++, at++) {
        for (size_t k = 0; k < n; k++)
            if (strcmp(names[k], fake_names[at]) == 0)
                at++, k = (size_t)-1;
        assert_string_equal(hcp_registry_ranked(r, p, i)->name, fake_names[at]);
    }
    assert_null(hcp_registry_ranked(r, p, N));
}

static void measured_comes_first(void **state)
{
    (void)state;
    static const struct {
        int32_t dtype;
        int64_t head_dim, q_len;
        const char *best, *next;
    } measured[] = {
        {HCP_BF16, 128, 1024, "cuda-wgmma", "cudnn"},
        {HCP_FP16, 128, 1024, "cuda-wgmma", "cudnn"},
        {HCP_BF16, 256, 1024, "cuda-wgmma", "cudnn"},
        {HCP_FP16, 256, 1024, "cuda-wgmma", "cudnn"},
        {HCP_BF16, 64, 16, "cuda-decode", "cudnn"},
        {HCP_BF16, 128, 1, "cuda-decode", "cudnn"},
        {HCP_BF16, 256, 1, "cuda-decode", "cudnn"},
    };
    hcp_registry *r = open_fakes(&h200);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        hcp_attn_problem p =
            problem(measured[i].dtype, measured[i].head_dim, measured[i].q_len, 65536, 0);

        check_ranks(r, &p);
        assert_string_equal(hcp_registry_ranked(r, &p, 0)->name, measured[i].best);
        assert_string_equal(hcp_registry_ranked(r, &p, 1)->name, measured[i].next);
        assert_string_equal(picked(r, &p), measured[i].best);
    }
    hcp_registry_close(r);
}

/* One kernel for all blocks of a ring, whatever their lengths and mask. */
static void one_kernel_for_a_ring(void **state)
{
    (void)state;
    static const int64_t lens[] = {17, 128, 1024, 16384, 131072};
    hcp_attn_problem typical = problem(HCP_BF16, 128, 1024, 1024, 0);
    for (int causal = 0; causal < 2; causal++) {
        for (int q = 0; q < 5; q++) {
            for (int k = 0; k < 5; k++) {
                hcp_attn_problem p = problem(HCP_BF16, 128, lens[q], lens[k], causal);

                assert_ptr_equal(hcp_preference(&h200, &p),
                                 hcp_preference(&h200, &typical));
            }
        }
    }
    hcp_attn_problem first = problem(HCP_BF16, 128, 1, 4096, 0);
    hcp_attn_problem last = problem(HCP_BF16, 128, HCP_DECODE_MAX_Q, 131072, 1);
    assert_ptr_equal(hcp_preference(&h200, &first), hcp_preference(&h200, &last));
    assert_true(hcp_is_decode(&first) && hcp_is_decode(&last) &&
                !hcp_is_decode(&typical));
}

/* A kernel that refuses the shape leaves it to the next, and is named when all do. */
static void the_next_steps_in(void **state)
{
    (void)state;
    hcp_registry *r = open_fakes(&h200);
    hcp_attn_problem p = problem(HCP_BF16, 128, 1024, 1024, 0);
    hcp_attn_support s = {.size = sizeof s};
    char why[512];
    for (size_t i = 0; i < N; i++) {
        const char *best = hcp_registry_ranked(r, &p, i)->name;

        assert_string_equal(picked(r, &p), best);
        for (int k = 0; k < N; k++)
            if (strcmp(fake_names[k], best) == 0)
                refuses[k] = 1;
    }
    assert_null(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why));
    assert_non_null(strstr(why, "cuda-mma: not today"));
    refuses[2] = 0;
    assert_string_equal(hcp_registry_pick(r, "cuda-mma", &p, &s, why, sizeof why)->name,
                        "cuda-mma");
    hcp_registry_close(r);
}

/* The user's own kernel is first whatever was measured. */
static void plugin_is_first(void **state)
{
    (void)state;
    static const hcp_provider_ctor ctors[N] = {fake_0, fake_1, fake_2, fake_3, fake_4};
    char path[4096];
    const char *top = getenv("top_builddir");
    hcp_device_ref device = h200;
    hcp_registry *r = NULL;
    char err[256] = "";

    device.kind = HCP_DEVICE_CPU; /* where the example runs */
    snprintf(path, sizeof path, "%s/tests/.libs/plugin-example.so", top ? top : ".");
    hcp_attn_problem p = problem(HCP_BF16, 128, 1024, 1024, 0);
    assert_int_equal(hcp_registry_open_with(&device, ctors, N, path, &r, err, sizeof err),
                     HCP_RC_OK);
    assert_string_equal(hcp_registry_ranked(r, &p, 0)->name, "example");
    for (size_t i = 0; i < N; i++)
        assert_string_equal(hcp_registry_ranked(r, &p, i + 1)->name, fake_names[i]);
    assert_null(hcp_registry_ranked(r, &p, N + 1));
    hcp_registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keeps_the_order), cmocka_unit_test(measured_comes_first),
        cmocka_unit_test(one_kernel_for_a_ring),   cmocka_unit_test(the_next_steps_in),
        cmocka_unit_test(plugin_is_first),
    };

    return cmocka_run_group_tests_name("preference", tests, NULL, NULL);
}
