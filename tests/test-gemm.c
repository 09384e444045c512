/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of linear layers: cblas, cuBLAS's calls against a fake of it, and the check
 * that a wrong product does not pass.
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
#include "kernels/dtype.h"
#include "kernels/gemm.h"

static char why[600];

struct data {
    char *x, *w, *y;
};

static struct data make(const hcp_gemm_shape *s, int32_t dtype)
{
    const hcp_runtime *cpu = hcp_runtime_cpu();
    size_t bytes = (size_t)hcp_dtype_bytes(dtype);
    struct data d = {malloc((size_t)(s->tokens * s->n_in) * bytes),
                     malloc((size_t)(s->n_out * s->n_in) * bytes),
                     malloc((size_t)(s->tokens * s->n_out) * bytes)};
    assert_true(d.x && d.w && d.y);
    cpu->randn(d.x, s->tokens * s->n_in, dtype, 1, 0, NULL);
    cpu->randn(d.w, s->n_out * s->n_in, dtype, 2, 0, NULL);
    return d;
}

static void drop(struct data *d)
{
    free(d->x);
    free(d->w);
    free(d->y);
}

static double element(const void *p, int64_t i, int32_t dtype)
{
    float f;
    hcp_to_float(&f, (const char *)p + i * hcp_dtype_bytes(dtype), 1, dtype);
    return f;
}

/* Every element, not the check's choice of them. */
static void assert_product(const hcp_gemm_shape *s, int32_t dtype, const struct data *d)
{
    double step = dtype == HCP_BF16 ? 0x1p-8 : dtype == HCP_FP16 ? 0x1p-10 : 0x1p-20;
    for (int64_t t = 0; t < s->tokens; t++)
        for (int64_t j = 0; j < s->n_out; j++) {
            double sum = 0;
            for (int64_t k = 0; k < s->n_in; k++)
                sum += element(d->x, t * s->n_in + k, dtype) *
                       element(d->w, j * s->n_in + k, dtype);
            double got = element(d->y, t * s->n_out + j, dtype);
            assert_true(fabs(got - sum) <=
                        step * fabs(sum) + 1e-3 * sqrt((double)s->n_in));
        }
}

/* Lengths on both sides of the panels of gemm-cblas.c (256 tokens, 128 outputs). */
static const hcp_gemm_shape shapes[] = {
    {1, 1, 1}, {3, 65, 7}, {1, 64, 129}, {257, 24, 130}, {256, 16, 128}};
static const int32_t dtypes[] = {HCP_BF16, HCP_FP16, HCP_FP32};

static void all_shapes(hcp_gemm *gemm)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 3; k++) {
            struct data d = make(&shapes[i], dtypes[k]);
            assert_int_equal(gemm->run(gemm, &shapes[i], dtypes[k], d.x, d.w, d.y), 0);
            assert_product(&shapes[i], dtypes[k], &d);
            if (hcp_gemm_check(gemm, hcp_runtime_cpu(), NULL, &shapes[i], dtypes[k], d.x,
                               d.w, d.y, why, sizeof why) != HCP_RC_OK)
                fail_msg("%s", why);
            drop(&d);
        }
    hcp_gemm_shape none = {0, 1, 1};
    assert_int_equal(gemm->run(gemm, &none, HCP_FP32, why, why, why), HCP_RC_INVALID);
}

static void cblas(void **state)
{
    hcp_gemm *gemm;
    (void)state;
    assert_int_equal(hcp_gemm_open(hcp_runtime_cpu(), NULL, 0, &gemm, why, sizeof why),
                     HCP_RC_OK);
    assert_string_equal(gemm->library, "openblas");
    assert_true(strlen(gemm->version) > 0);
    all_shapes(gemm);
    hcp_gemm_close(gemm);
    hcp_gemm_close(NULL);
}

static hcp_gemm *open_fake(int32_t sms)
{
    static char workspace[4 << 20];
    hcp_gemm *gemm = NULL;
    if (hcp_gemm_open_cublas(NULL, workspace, sizeof workspace, sms, &gemm, why,
                             sizeof why) != HCP_RC_OK)
        fail_msg("%s", why);
    return gemm;
}

static void cublas_calls(void **state)
{
    hcp_gemm *gemm = open_fake(24);
    (void)state;
    assert_string_equal(gemm->library, "cublas");
    assert_string_equal(gemm->version, "13.1.2");
    all_shapes(gemm);
    hcp_gemm_close(gemm);
}

static void cublas_refuses(void **state)
{
    hcp_gemm *gemm = open_fake(0);
    struct data d = make(&shapes[1], HCP_BF16);
    (void)state;
    setenv("FAKE_CUBLAS_REFUSES", "1", 1);
    int rc = hcp_gemm_check(gemm, hcp_runtime_cpu(), NULL, &shapes[1], HCP_BF16, d.x, d.w,
                            d.y, why, sizeof why);
    unsetenv("FAKE_CUBLAS_REFUSES");
    assert_int_equal(rc, HCP_RC_DEVICE);
    assert_non_null(strstr(why, "cuBLAS: product: the requested functionality"));
    drop(&d);
    hcp_gemm_close(gemm);
}

/* One wrong element, the last one. */
static void cublas_lies(void **state)
{
    hcp_gemm *gemm = open_fake(0);
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct data d = make(&shapes[1], dtypes[k]);
        setenv("FAKE_CUBLAS_LIES", "1", 1);
        int rc = hcp_gemm_check(gemm, hcp_runtime_cpu(), NULL, &shapes[1], dtypes[k], d.x,
                                d.w, d.y, why, sizeof why);
        unsetenv("FAKE_CUBLAS_LIES");
        assert_int_equal(rc, HCP_RC_INVALID);
        assert_non_null(strstr(why, "element (2, 6) of the product is "));
        drop(&d);
    }
    hcp_gemm_close(gemm);
}

static int writes_nothing(hcp_gemm *gemm, const hcp_gemm_shape *s, int32_t dtype,
                          const void *x, const void *w, void *y)
{
    (void)gemm, (void)s, (void)dtype, (void)x, (void)w, (void)y;
    return HCP_RC_OK;
}

/* What was right before must not pass for this run's work. */
static void nothing_written(void **state)
{
    hcp_gemm *gemm, lazy = {.run = writes_nothing};
    struct data d = make(&shapes[3], HCP_FP32);
    (void)state;
    hcp_gemm_open(hcp_runtime_cpu(), NULL, 0, &gemm, why, sizeof why);
    gemm->run(gemm, &shapes[3], HCP_FP32, d.x, d.w, d.y);
    assert_int_equal(hcp_gemm_check(&lazy, hcp_runtime_cpu(), NULL, &shapes[3], HCP_FP32,
                                    d.x, d.w, d.y, why, sizeof why),
                     HCP_RC_INVALID);
    drop(&d);
    hcp_gemm_close(gemm);
}

static void cublas_missing(void **state)
{
    char fake[1024], workspace[64];
    hcp_gemm *gemm = NULL;
    (void)state;
    snprintf(fake, sizeof fake, "%s", getenv("HCP_CUBLAS"));
    setenv("HCP_CUBLAS", "/nonexistent/libcublas.so", 1);
    assert_int_equal(hcp_gemm_open_cublas(NULL, workspace, sizeof workspace, 0, &gemm,
                                          why, sizeof why),
                     HCP_RC_MISSING);
    assert_non_null(strstr(why, "HCP_CUBLAS: /nonexistent/libcublas.so"));
    setenv("HCP_CUBLAS", fake, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cblas),           cmocka_unit_test(cublas_calls),
        cmocka_unit_test(cublas_refuses),  cmocka_unit_test(cublas_lies),
        cmocka_unit_test(nothing_written), cmocka_unit_test(cublas_missing),
    };
    const char *build = getenv("top_builddir");
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/.libs/fake-cublas.so", build ? build : ".");
    setenv("HCP_CUBLAS", path, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
