/* SPDX-License-Identifier: Apache-2.0
 *
 * Latency and bandwidth of a link from its transfers.
 */
#include "config.h"
#include "tests/db-fixture.h"

enum { N = 9 };
static int64_t sizes[N];
static double times[N];

/* alpha in us and GB/s, the truth of the tests. */
static void plant(double alpha, double gbps)
{
    for (int i = 0; i < N; i++) {
        sizes[i] = (int64_t)4096 << (2 * i);
        times[i] = alpha / 1e3 + (double)sizes[i] / gbps / 1e6;
    }
}

static struct hcp_link_fit fit(size_t n)
{
    struct hcp_link_fit f;

    if (hcp_link_fit(sizes, times, n, &f, &err))
        fail_msg("%s", err.text);
    return f;
}

static int near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

static void planted(void **state)
{
    struct hcp_link_fit f;

    (void)state;
    plant(12.5, 350);
    f = fit(N);
    assert_true(near(f.alpha_us, 12.5, 1e-9));
    assert_true(near(f.gbps, 350, 1e-9));
    assert_int_equal(f.sizes, N);
    assert_true(f.holdout_max < 1e-9);
    /* Any order of the rows. */
    for (int i = 0; i < N / 2; i++) {
        int64_t b = sizes[i];
        double t = times[i];
        sizes[i] = sizes[N - 1 - i];
        times[i] = times[N - 1 - i];
        sizes[N - 1 - i] = b;
        times[N - 1 - i] = t;
    }
    assert_true(fit(N).alpha_us == f.alpha_us && fit(N).gbps == f.gbps);
}

static double loss(double a, double b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double e = (a + b * (double)sizes[i] - times[i]) / times[i];
        sum += e * e;
    }
    return sum;
}

/* With noise no neighbour of the answer is better, and the held-out errors are those of
 * fits without the size, done here by hand. */
static void least(void **state)
{
    static const double noise[N] = {1.05, 0.95, 1.02, 0.9, 1.1, 1, 0.97, 1.04, 0.99};
    static const double step[] = {1 - 1e-4, 1 + 1e-4};
    struct hcp_link_fit f, g;
    double errors[N], best, max = 0;
    int below = 0;

    (void)state;
    plant(20, 25);
    for (int i = 0; i < N; i++)
        times[i] *= noise[i];
    f = fit(N);
    assert_true(near(f.alpha_us, 20, 0.05) && near(f.gbps, 25, 0.05));
    best = loss(f.alpha_us / 1e3, 1e-6 / f.gbps, N);
    for (int i = 0; i < 2; i++) {
        assert_true(loss(f.alpha_us / 1e3 * step[i], 1e-6 / f.gbps, N) > best);
        assert_true(loss(f.alpha_us / 1e3, 1e-6 / f.gbps * step[i], N) > best);
    }
    for (int i = 1; i < N - 1; i++) {
        int64_t bytes[N];
        double ms[N];
        size_t n = 0;
        for (int j = 0; j < N; j++)
            if (j != i) {
                bytes[n] = sizes[j];
                ms[n++] = times[j];
            }
        assert_int_equal(hcp_link_fit(bytes, ms, n, &g, &err), HCP_OK);
        errors[i] = fabs(g.alpha_us / 1e3 + (double)sizes[i] / g.gbps / 1e6 - times[i]) /
                    times[i];
        max = fmax(max, errors[i]);
    }
    assert_true(near(f.holdout_max, max, 1e-9));
    assert_true(f.holdout_median > 0 && f.holdout_median < f.holdout_max);
    for (int i = 1; i < N - 1; i++)
        below += errors[i] < f.holdout_median * (1 - 1e-9);
    assert_int_equal(below, (N - 3) / 2);
}

/* Both coefficients are physical: never below zero, and then the best on the border. */
static void borders(void **state)
{
    struct hcp_link_fit f;
    double ux = 0, uxx = 0;

    (void)state;
    plant(0, 10);
    for (int i = 0; i < N; i++)
        times[i] *= 1 + 0.02 * i; /* small ones too fast for any latency */
    f = fit(N);
    for (int i = 0; i < N; i++) {
        double u = (double)sizes[i] / times[i];
        ux += u;
        uxx += u * u;
    }
    assert_true(f.alpha_us == 0);
    assert_true(near(f.gbps, 1e-6 / (ux / uxx), 1e-12));
    for (int i = 0; i < N; i++)
        times[i] = 1.0 / (i + 1);
    assert_int_equal(hcp_link_fit(sizes, times, N, &f, &err), HCP_NO_ANSWER);
    assert_non_null(strstr(err.text, "take no longer than small ones"));
}

static void degenerate(void **state)
{
    struct hcp_link_fit f = {.sizes = -7};

    (void)state;
    plant(5, 100);
    assert_int_equal(hcp_link_fit(sizes, times, 0, &f, &err), HCP_NO_ANSWER);
    assert_int_equal(hcp_link_fit(sizes, times, 1, &f, &err), HCP_NO_ANSWER);
    assert_non_null(strstr(err.text, "measure at least two sizes"));
    assert_int_equal(f.sizes, -7);
    f = fit(2);
    assert_true(near(f.alpha_us, 5, 1e-9) && near(f.gbps, 100, 1e-9));
    assert_true(isnan(f.holdout_median) && isnan(f.holdout_max));
    f = fit(3);
    assert_true(f.holdout_median == f.holdout_max);
    /* The same size three times is one size, its median. */
    sizes[1] = sizes[2] = sizes[0];
    assert_int_equal(hcp_link_fit(sizes, times, 3, &f, &err), HCP_NO_ANSWER);
    sizes[1] = 1 << 20;
    sizes[2] = sizes[3] = sizes[4] = 1 << 21;
    times[0] = 1;
    times[1] = 1.5;
    times[2] = 99;
    times[3] = 0.001;
    times[4] = 2.5;
    sizes[0] = 1;
    assert_int_equal(fit(5).sizes, 3);
    times[2] = times[3] = 2.5;
    f = fit(5);
    times[2] = 99;
    times[3] = 0.001;
    assert_true(fit(5).gbps == f.gbps && fit(5).alpha_us == f.alpha_us);
    times[0] = 0;
    assert_int_equal(hcp_link_fit(sizes, times, 5, &f, &err), HCP_FAILED);
    times[0] = NAN;
    assert_int_equal(hcp_link_fit(sizes, times, 5, &f, &err), HCP_FAILED);
    times[0] = 1;
    sizes[0] = 0;
    assert_int_equal(hcp_link_fit(sizes, times, 5, &f, &err), HCP_FAILED);
}

static void store(const char *uid, const char *limit_a, const char *limit_b,
                  int64_t bytes, double ms)
{
    struct hcp_link_row r;
    enum hcp_db_outcome outcome;

    hcp_link_row_init(&r);
    strcpy(r.device_a, "gpu-x");
    strcpy(r.device_b, "gpu-y");
    strcpy(r.limit_a, limit_a);
    strcpy(r.limit_b, limit_b);
    strcpy(r.transport, "mpi");
    strcpy(r.from.run_uid, uid);
    r.bytes = bytes;
    r.time_ms = ms;
    if (hcp_db_add_link(db, &r, &outcome, &err))
        fail_msg("%s", err.text);
}

/* Rows of several runs of one pair, in either order; another limit is another pair. */
static void of_pair(void **state)
{
    struct hcp_link_fit f, g;

    (void)state;
    plant(10, 50);
    for (int i = 0; i < N; i++) {
        store("one", "", "mps:50", sizes[i], times[i] * 0.9);
        store("two", "", "mps:50", sizes[i], times[i]);
        store("three", "", "mps:50", sizes[i], times[i] * 2);
        store("one", "", "mps:10", sizes[i], times[i] * 3);
    }
    store("one", "mps:20", "mps:20", 64, 1);
    assert_int_equal(hcp_db_link_of(db, "mpi", "gpu-x", "", "gpu-y", "mps:50", &f, &err),
                     HCP_OK);
    assert_true(near(f.alpha_us, 10, 1e-9) && near(f.gbps, 50, 1e-9));
    assert_int_equal(f.sizes, N);
    assert_int_equal(hcp_db_link_of(db, "mpi", "gpu-y", "mps:50", "gpu-x", "", &g, &err),
                     HCP_OK);
    assert_true(g.alpha_us == f.alpha_us && g.gbps == f.gbps);
    assert_int_equal(hcp_db_link_of(db, "nccl", "gpu-x", "", "gpu-y", "mps:50", &g, &err),
                     HCP_NO_ANSWER);
    if (!strstr(err.text, "link gpu-x,gpu-y@mps:50 by nccl was never measured") ||
        !strstr(err.text, path) || !strstr(err.text, "'hcp-profile link --db") ||
        !strstr(err.text, "--limits none/mps:50 --transport nccl'"))
        fail_msg("%s", err.text);
    assert_int_equal(hcp_db_link_of(db, "mpi", "gpu-y", "", "gpu-x", "mps:50", &g, &err),
                     HCP_NO_ANSWER);
    assert_int_equal(
        hcp_db_link_of(db, "mpi", "gpu-x", "mps:20", "gpu-y", "mps:20", &g, &err),
        HCP_NO_ANSWER);
    if (!strstr(err.text, "measure at least two sizes in") ||
        !strstr(err.text, "hcp-profile link"))
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(planted), TEST(least), TEST(borders), TEST(degenerate), TEST(of_pair),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
