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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nnls)};
    return cmocka_run_group_tests_name("nnls", tests, NULL, NULL);
}
