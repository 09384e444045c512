/* SPDX-License-Identifier: Apache-2.0 */
#include "fit/fit-internal.h"
#include "tests/model-check.h"

static void close_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.12g, want %.12g", got, want);
}

static void test_nnls(void **state)
{
    /* minimum of |A x - b| without the bound is (-1, 2); with it (0, 1) */
    static const double a[] = {1, 1, 0, 1, 1, 2}, b[] = {1, 2, 3};
    double x[2];
    struct hcp_err err = {0};
    (void)state;
    assert_int_equal(hcp_nnls(a, b, 3, 2, x, &err), HCP_OK);
    assert_true(x[0] == 0);
    close_to(x[1], 9.0 / 6.0, 1e-12);
    /* equal columns: either, but not both, and no failure */
    static const double twin[] = {1, 1, 2, 2, 3, 3};
    assert_int_equal(hcp_nnls(twin, b, 3, 2, x, &err), HCP_OK);
    close_to(x[0] + x[1], 1.0, 1e-12);
    assert_true(x[0] == 0 || x[1] == 0);
    /* random problems: the Karush-Kuhn-Tucker conditions */
    uint64_t seed = 1;
    for (int run = 0; run < 300; run++) {
        double m[20 * 6], y[20], z[6];
        for (int i = 0; i < 120; i++)
            m[i] = check_uniform(&seed) - 0.3;
        for (int i = 0; i < 20; i++)
            y[i] = check_uniform(&seed) - 0.3;
        assert_int_equal(hcp_nnls(m, y, 20, 6, z, &err), HCP_OK);
        for (int j = 0; j < 6; j++) {
            double g = 0;
            for (int i = 0; i < 20; i++) {
                double r = y[i];
                for (int k = 0; k < 6; k++)
                    r -= m[6 * i + k] * z[k];
                g += m[6 * i + j] * r;
            }
            assert_true(z[j] >= 0 && g < 1e-9 && (z[j] == 0 || g > -1e-9));
        }
    }
}

/* Bars hold the middle nine tenths of the errors of their range of times. */
static void test_error_rows(void **state)
{
    struct hcp_residuals list = {0};
    double row[3 * HCP_ERROR_ROWS_MAX];
    (void)state;
    for (int i = 0; i <= 100; i++) { /* measured 0.8 to 1.6 of predicted at 5 ms */
        assert_int_equal(hcp_residual_add(&list, 5 * (0.8 + 0.008 * i), 5, 1), 0);
        assert_int_equal(hcp_residual_add(&list, 0.01, 0.01, 1), 0);
    }
    int n = hcp_error_rows(&list, row);
    assert_true(n >= 2 && row[3 * (n - 1)] > 1e9);
    close_to(row[3 * (n - 1) + 1], 1 - 0.84, 1e-9);
    close_to(row[3 * (n - 1) + 2], 1.56 - 1, 1e-9);
    assert_true(row[1] > 0 && row[1] <= 0.1); /* never better than machines repeat */
    list.n = 0;
    n = hcp_error_rows(&list, row); /* nothing known: a wide guess */
    for (int i = 0; i < n; i++)
        assert_true(row[3 * i + 1] >= 0.25 && row[3 * i + 2] >= 0.25);
    free(list.r);
}

static void test_quantile(void **state)
{
    double v[] = {5, 1, 4, 2, 3}, two[] = {1, 2};
    (void)state;
    assert_true(hcp_quantile(v, 5, 0.5) == 3 && hcp_quantile(v, 5, 1.0) == 5);
    close_to(hcp_quantile(v, 5, 0.9), 4.6, 1e-12);
    assert_true(hcp_quantile(two, 2, 0.5) == 1.5 && isnan(hcp_quantile(v, 0, 0.5)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nnls),
        cmocka_unit_test(test_error_rows),
        cmocka_unit_test(test_quantile),
    };
    return cmocka_run_group_tests_name("nnls", tests, NULL, NULL);
}
