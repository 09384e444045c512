/* SPDX-License-Identifier: Apache-2.0
 *
 * What computing and a transfer cost each other, from interference rows.
 */
#include "config.h"
#include "tests/db-fixture.h"
#include "db/interference.h"

enum { N = 8 };
static struct hcp_interference_row rows[N], peers[N];

static int near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* All at work until they are over, in small steps: what the formulas say at once. */
static void simulate(double f, double g, double c, double p, double t, double *c_end,
                     double *t_end)
{
    double now = 0, h = (c + t) / 400000;

    *c_end = *t_end = 0;
    while (c > 0 || t > 0) {
        double c_speed = t > 0 ? 1 / f : 1, t_speed = c > 0 || now < p ? 1 / g : 1;
        double step = h;
        if (c > 0)
            step = fmin(step, c / c_speed);
        if (t > 0)
            step = fmin(step, t / t_speed);
        if (now < p)
            step = fmin(step, p - now);
        now += step;
        if (c > 0 && (c -= step * c_speed) <= 1e-12) {
            c = 0;
            *c_end = now;
        }
        if (t > 0 && (t -= step * t_speed) <= 1e-12) {
            t = 0;
            *t_end = now;
        }
    }
}

static void formulas(void **state)
{
    static const double times[] = {0.01, 0.3, 0.7, 1, 1.5, 4};
    struct hcp_interference f = {.slowdown = 1.4, .transfer_slowdown = 1.9};
    double c, t, c_end, t_end;
    enum { T = sizeof times / sizeof *times };

    (void)state;
    for (int i = 0; i < T * T * (T + 1); i++) {
        double block = times[i % T], transfer = times[i / T % T];
        double peer = i / T / T == T ? 0 : times[i / T / T];
        simulate(1.4, 1.9, block, peer, transfer, &c_end, &t_end);
        hcp_interference_times(&f, block, peer, transfer, &c, &t);
        assert_true(near(c, c_end, 1e-6));
        assert_true(near(t, t_end, 1e-6));
    }
    hcp_interference_times(&f, 2, 1, 0, &c, &t);
    assert_true(c == 2 && t == 0);
    hcp_interference_times(&f, 0, 0, 3, &c, &t);
    assert_true(c == 0 && t == 3);
    f.transfer_slowdown = 1e9; /* kept out until both have computed */
    hcp_interference_times(&f, 2, 5, 0.5, &c, &t);
    assert_true(near(t, 5.5, 1e-6) && near(c, 2.8, 1e-7));
}

/* Rows as they would be with these factors. */
static void plant(double slowdown, double transfer_slowdown, double wait_ms)
{
    const struct hcp_interference f = {.slowdown = slowdown,
                                       .transfer_slowdown = transfer_slowdown};

    for (int i = 0; i < N; i++) {
        struct hcp_interference_row *r = &rows[i];
        hcp_interference_row_init(r);
        strcpy(r->key.device, "nvidia-h200");
        strcpy(r->key.limit, "mps:50");
        strcpy(r->key.provider, "cudnn");
        strcpy(r->device_b, "nvidia-h200");
        strcpy(r->limit_b, "mps:100");
        strcpy(r->transport, "nccl");
        strcpy(r->from.run_uid, "run-1");
        r->q_len = r->kv_len = (int64_t)512 << i;
        r->bytes = r->kv_len * 4096;
        r->alone_ms = 0.02 * (1 << i) * (1 << i) / 4;
        r->transfer_alone_ms = 0.02 + 0.01 * (1 << i);
        peers[i] = *r;
        strcpy(peers[i].key.limit, "mps:100");
        strcpy(peers[i].limit_b, "mps:50");
        peers[i].beside_ms = r->alone_ms * (i % 2 ? 0.5 : 2.5);
        peers[i].transfer_beside_ms = 1;
        hcp_interference_times(&f, r->alone_ms, peers[i].beside_ms, r->transfer_alone_ms,
                               &r->beside_ms, &r->transfer_beside_ms);
        r->wait_ms = wait_ms;
    }
}

static struct hcp_interference fit(size_t n)
{
    struct hcp_interference f;

    if (hcp_interference_fit(rows, n, peers, N, &f, &err))
        fail_msg("%s", err.text);
    return f;
}

static void planted(void **state)
{
    struct hcp_interference f;

    (void)state;
    plant(1.25, 1.6, 0.02);
    /* Both orders are there. */
    assert_true(rows[0].beside_ms < rows[0].transfer_beside_ms);
    assert_true(rows[N - 1].beside_ms > rows[N - 1].transfer_beside_ms);
    f = fit(N);
    assert_true(near(f.slowdown, 1.25, 1e-7));
    assert_true(near(f.transfer_slowdown, 1.6, 1e-7));
    assert_true(near(f.overhead_ms, 0.02, 1e-7));
    assert_true(f.max_error < 1e-6);
    assert_int_equal(f.rows, N);
    /* Without the other end's rows the transfers seem to meet less. */
    assert_int_equal(hcp_interference_fit(rows, N, NULL, 0, &f, &err), HCP_OK);
    assert_true(near(f.slowdown, 1.25, 1e-7) && f.transfer_slowdown > 1.6001);
    /* Of another end than the rows' they are of no use. */
    strcpy(peers[0].key.limit, "mps:20");
    for (int i = 1; i < N; i++)
        strcpy(peers[i].limit_b, i % 2 ? "mps:20" : "mps:10");
    assert_true(fit(N).transfer_slowdown == f.transfer_slowdown);
    plant(1.25, 1.6, 0.02);
    /* A row is enough. */
    f = fit(1);
    assert_true(near(f.slowdown, 1.25, 1e-7) && f.rows == 1);
    plant(1, 1, 0);
    f = fit(N);
    assert_true(f.slowdown == 1 && f.transfer_slowdown == 1 && f.overhead_ms == 0);
    assert_true(f.max_error < 1e-6);
}

/* The sum that the header says is least. */
static double sum(double slowdown, int transfer)
{
    double all = 0;

    for (int i = 0; i < N; i++) {
        const struct hcp_interference_row *r = &rows[i];
        double mine = transfer ? r->transfer_beside_ms : r->beside_ms;
        double alone = transfer ? r->transfer_alone_ms : r->alone_ms;
        double rest_ms =
            transfer ? fmax(r->beside_ms, peers[i].beside_ms) : r->transfer_beside_ms;
        double t = alone * slowdown;
        if (t > rest_ms)
            t = alone + rest_ms * (1 - 1 / slowdown);
        all += (t / mine - 1) * (t / mine - 1);
    }
    return all;
}

static void noisy(void **state)
{
    static const double noise[N] = {1.03, 0.98, 1.01, 0.97, 1.02, 1, 0.99, 1.015};
    struct hcp_interference f;
    double worst = 0;

    (void)state;
    plant(1.3, 1.2, 0.015);
    for (int i = 0; i < N; i++) {
        rows[i].beside_ms *= noise[i];
        rows[i].transfer_beside_ms *= noise[N - 1 - i];
        rows[i].wait_ms = i == 0 ? 9 : 0.01 + 0.001 * i; /* an outlier */
    }
    f = fit(N);
    for (int transfer = 0; transfer < 2; transfer++) {
        double s = transfer ? f.transfer_slowdown : f.slowdown;
        for (double x = 1; x < 1000; x *= 1.0007)
            assert_true(sum(s, transfer) <= sum(x, transfer));
    }
    assert_true(near(f.overhead_ms, 0.0145, 1e-9)); /* between 0.014 and 0.015 */
    for (int i = 0; i < N; i++) {
        const struct hcp_interference_row *r = &rows[i];
        double c, t, step = fmax(r->beside_ms, r->transfer_beside_ms) + r->wait_ms;
        hcp_interference_times(&f, r->alone_ms, peers[i].beside_ms, r->transfer_alone_ms,
                               &c, &t);
        worst = fmax(worst, fabs(fmax(c, t) + f.overhead_ms - step) / step);
    }
    assert_true(near(f.max_error, worst, 1e-7) && worst > 0.5);
}

static void borders(void **state)
{
    struct hcp_interference f;

    (void)state;
    plant(1.3, 1.2, NAN);
    for (int i = 0; i < N; i++) { /* noise can make it faster: that is no gain */
        rows[i].beside_ms = 0.9 * rows[i].alone_ms;
        rows[i].transfer_beside_ms = 1e6 * rows[i].transfer_alone_ms;
    }
    f = fit(N);
    assert_true(f.slowdown == 1);
    assert_true(f.transfer_slowdown > 1 && f.transfer_slowdown <= 1000 * (1 + 1e-7));
    assert_true(isnan(f.overhead_ms)); /* nobody measured it */
    assert_true(isfinite(f.max_error));
    plant(1.3, 1.2, 0.01);
    rows[2].transfer_beside_ms = NAN;
    rows[2].beside_ms = 77; /* does not count without the transfer's time */
    f = fit(N);
    assert_int_equal(f.rows, N - 1);
    assert_true(near(f.slowdown, 1.3, 1e-7));
    f.rows = -7;
    assert_int_equal(hcp_interference_fit(rows + 2, 1, NULL, 0, &f, &err), HCP_NO_ANSWER);
    assert_int_equal(f.rows, -7); /* untouched */
    assert_int_equal(hcp_interference_fit(NULL, 0, NULL, 0, &f, &err), HCP_NO_ANSWER);
    assert_non_null(strstr(err.text, "no block was measured together"));
}

static void add(const struct hcp_interference_row *row)
{
    enum hcp_db_outcome outcome;

    if (hcp_db_add_interference(db, row, &outcome, &err))
        fail_msg("%s", err.text);
    assert_int_equal(outcome, HCP_DB_STORED);
}

static void stored(void **state)
{
    struct hcp_interference f;
    struct hcp_key key;

    (void)state;
    plant(1.25, 1.6, 0.02);
    key = rows[0].key;
    assert_int_equal(hcp_db_interference_of(
                         db, &key, "nvidia-h200", "mps:100",
                         &(struct hcp_link_by){"nccl", HCP_HOSTS_ANY, 0, 0}, &f, &err),
                     HCP_NO_ANSWER);
    assert_non_null(
        strstr(err.text, "nvidia-h200@mps:50 was never measured beside a transfer with "
                         "nvidia-h200@mps:100 by nccl (cudnn, bf16, 32/8 heads of 128)"));
    assert_non_null(strstr(err.text, "hcp-profile link --beside --db "));
    assert_non_null(strstr(err.text, "--limits mps:50/mps:100 --transport nccl'"));
    for (int i = 0; i < N; i++) {
        add(&rows[i]);
        add(&peers[i]);
    }
    assert_int_equal(hcp_db_interference_of(
                         db, &key, "nvidia-h200", "mps:100",
                         &(struct hcp_link_by){"nccl", HCP_HOSTS_ANY, 0, 0}, &f, &err),
                     HCP_OK);
    assert_true(near(f.slowdown, 1.25, 1e-7) && f.rows == N);
    assert_true(near(f.transfer_slowdown, 1.6, 1e-7));
    /* Rows of anything else do not count: they would show. */
    for (int i = 0; i < 6; i++) {
        struct hcp_interference_row r = rows[1];
        r.beside_ms *= 3;
        if (i == 0)
            strcpy(r.key.limit, "mps:20");
        if (i == 1)
            strcpy(r.limit_b, "mps:10");
        if (i == 2)
            strcpy(r.transport, "mpi");
        if (i == 3)
            r.channels = 4;
        if (i == 4)
            strcpy(r.key.provider, "cuda-wgmma");
        if (i == 5)
            r.key.head_dim = 64;
        add(&r);
        assert_int_equal(
            hcp_db_interference_of(db, &key, "nvidia-h200", "mps:100",
                                   &(struct hcp_link_by){"nccl", HCP_HOSTS_ANY, 0, 0}, &f,
                                   &err),
            HCP_OK);
        assert_true(near(f.slowdown, 1.25, 1e-7) && f.rows == N);
    }
    /* Any peer and transport: the two more that differ in these alone. */
    assert_int_equal(hcp_db_interference_of(
                         db, &key, NULL, NULL,
                         &(struct hcp_link_by){NULL, HCP_HOSTS_ANY, 0, 0}, &f, &err),
                     HCP_OK);
    assert_int_equal(f.rows, N + 2);
    assert_true(f.slowdown > 1.26);
    /* The other end's rows are its own. */
    strcpy(key.limit, "mps:100");
    assert_int_equal(hcp_db_interference_of(
                         db, &key, NULL, NULL,
                         &(struct hcp_link_by){NULL, HCP_HOSTS_ANY, 0, 0}, &f, &err),
                     HCP_OK);
    assert_int_equal(f.rows, N);
    strcpy(key.limit, "mps:30");
    assert_int_equal(hcp_db_interference_of(
                         db, &key, NULL, NULL,
                         &(struct hcp_link_by){NULL, HCP_HOSTS_ANY, 0, 0}, &f, &err),
                     HCP_NO_ANSWER);
}

/* Beside transfers within a host and between two: a fit of each, none of both. */
static void hosts(void **state)
{
    static const char *const peer_host[] = {"n1", "n2"};
    struct hcp_interference f;
    struct hcp_key key;

    (void)state;
    for (int h = 0; h < 2; h++) {
        plant(h ? 3 : 1.5, 1.6, 0.02);
        for (int i = 0; i < N; i++) {
            strcpy(rows[i].key.device, "gpu-h");
            strcpy(rows[i].from.host, "n1");
            strcpy(rows[i].host_b, peer_host[h]);
            add(&rows[i]);
        }
        key = rows[0].key;
        assert_int_equal(
            hcp_db_interference_of(db, &key, "nvidia-h200", "mps:100",
                                   &(struct hcp_link_by){"nccl", HCP_HOSTS_ANY, 0, 0}, &f,
                                   &err),
            h ? HCP_USAGE : HCP_OK);
    }
    assert_non_null(strstr(err.text, "within a host (8 rows) and between hosts (8); say "
                                     "which they are: nccl:within or nccl:between"));
    assert_int_equal(hcp_db_interference_of(
                         db, &key, "nvidia-h200", "mps:100",
                         &(struct hcp_link_by){"nccl", HCP_HOSTS_WITHIN, 0, 0}, &f, &err),
                     HCP_OK);
    assert_true(near(f.slowdown, 1.5, 1e-7) && f.rows == N);
    assert_int_equal(
        hcp_db_interference_of(db, &key, "nvidia-h200", "mps:100",
                               &(struct hcp_link_by){"nccl", HCP_HOSTS_BETWEEN, 0, 0}, &f,
                               &err),
        HCP_OK);
    assert_true(near(f.slowdown, 3, 1e-7) && f.rows == N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(formulas), TEST(planted), TEST(noisy),
                                       TEST(borders),  TEST(stored),  TEST(hosts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
