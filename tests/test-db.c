/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows in and out: bits survive, bad rows are refused, runs are never counted twice.
 */
#include "config.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "db/db-internal.h"

static char dir[64], path[96], other[96];
static hcp_db *db;
static struct hcp_err err;

static hcp_db *open_db(const char *name)
{
    hcp_db *d = NULL;

    if (hcp_db_open(name, HCP_DB_WRITE | HCP_DB_CREATE, &d, &err))
        fail_msg("%s", err.text);
    return d;
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/hcp-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/a.db", dir);
    snprintf(other, sizeof other, "%s/b.db", dir);
    memset(&err, 0, sizeof err);
    db = open_db(path);
    return 0;
}

static int teardown(void **state)
{
    char command[96];

    (void)state;
    hcp_db_close(db);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static struct hcp_cell make_cell(int64_t q, int64_t kv, double ms)
{
    struct hcp_cell c;

    hcp_cell_init(&c);
    strcpy(c.key.device, "nvidia-h200");
    strcpy(c.key.limit, "mps:50");
    strcpy(c.key.provider, "flash");
    strcpy(c.run_uid, "run-1");
    c.q_len = q;
    c.kv_len = kv;
    c.time_ms = ms;
    return c;
}

static void put(hcp_db *to, const struct hcp_cell *c)
{
    if (hcp_db_put_cell(to, c, &err))
        fail_msg("%s", err.text);
}

struct expected {
    const struct hcp_cell *cell;
    int n;
};

/* Byte for byte what went in, id and pointer aside. */
static int compare(const struct hcp_cell *got, void *ctx)
{
    struct expected *e = ctx;
    struct hcp_cell a = *got, b = *e->cell;

    assert_true(a.id > 0);
    assert_int_equal(a.n_raw, b.n_raw);
    if (a.n_raw)
        assert_memory_equal(a.raw_ms, b.raw_ms, (size_t)a.n_raw * sizeof(double));
    a.id = b.id = 0;
    a.raw_ms = b.raw_ms = NULL;
    assert_memory_equal(&a, &b, sizeof a);
    e->n++;
    return HCP_OK;
}

static void round_trip(void **state)
{
    /* Values with 17 digits, integers, the smallest and large ones. */
    double raw[] = {0.1, 1.0 / 3, 7, 4.9406564584124654e-324, 123456.78901234567};
    struct hcp_cell c = make_cell(1000, 64, 1.0 / 3);
    struct expected e = {&c, 0};

    (void)state;
    c.raw_ms = raw;
    c.n_raw = c.samples = 5;
    c.outliers = 0;
    c.min_ms = 4.9406564584124654e-324;
    c.p75_ms = 7;
    c.max_ms = 123456.78901234567;
    c.ci_lo_ms = nextafter(1.0 / 3, 0);
    c.ci_hi_ms = nextafter(1.0 / 3, 1);
    c.sm_seen = 66;
    c.sm_count = 132;
    c.throttle_reasons = INT64_C(1) << 40;
    c.tile_q = 128;
    c.temperature_c = -3.5;
    strcpy(c.mask, "causal");
    strcpy(c.host, "knoten-ä");
    strcpy(c.device_uuid, "GPU-1");
    strcpy(c.note, "a, \"b\"\tc");
    put(db, &c);
    assert_int_equal(hcp_db_each_cell(db, NULL, 1, compare, &e, &err), HCP_OK);
    assert_int_equal(e.n, 1);
}

static void unknowns(void **state)
{
    struct hcp_cell c = make_cell(1, 1, 0.5);
    struct expected e = {&c, 0};

    (void)state;
    put(db, &c);
    assert_int_equal(hcp_db_each_cell(db, NULL, 1, compare, &e, &err), HCP_OK);
    assert_int_equal(e.n, 1);
}

static int stop_at_two(const struct hcp_cell *c, void *ctx)
{
    (void)c;
    return ++*(int *)ctx == 2 ? 42 : 0;
}

static int count_cell(const struct hcp_cell *c, void *ctx)
{
    (void)c;
    ++*(int *)ctx;
    return 0;
}

static int count(hcp_db *d, const struct hcp_filter *f)
{
    int n = 0;

    assert_int_equal(hcp_db_each_cell(d, f, 0, count_cell, &n, &err), HCP_OK);
    return n;
}

static void filters(void **state)
{
    struct hcp_cell c = make_cell(64, 64, 1);
    struct hcp_key *keys = NULL;
    size_t n = 0;
    int seen = 0;

    (void)state;
    put(db, &c);
    c.q_len = 128;
    put(db, &c);
    c.key.limit[0] = '\0';
    put(db, &c);
    strcpy(c.status, "failed");
    strcpy(c.key.provider, "cudnn");
    c.time_ms = NAN;
    put(db, &c);
    assert_int_equal(count(db, NULL), 4);
    assert_int_equal(count(db, &(struct hcp_filter){.limit = "mps:50"}), 2);
    assert_int_equal(count(db, &(struct hcp_filter){.limit = ""}), 4);
    assert_int_equal(count(db, &(struct hcp_filter){.limit = "", .limit_set = 1}), 2);
    assert_int_equal(count(db, &(struct hcp_filter){.limit_set = 1}), 2);
    assert_int_equal(count(db, &(struct hcp_filter){.status = "failed"}), 1);
    assert_int_equal(count(db, &(struct hcp_filter){.heads = 16}), 0);
    assert_int_equal(count(db, &(struct hcp_filter){.device = "x' OR '1'='1"}), 0);
    assert_int_equal(hcp_db_each_cell(db, NULL, 0, stop_at_two, &seen, &err), 42);
    assert_int_equal(seen, 2);
    assert_int_equal(hcp_db_keys(db, NULL, &keys, &n, &err), HCP_OK);
    assert_int_equal(n, 2); /* the failed cell has none */
    assert_string_equal(keys[0].limit, "");
    assert_string_equal(keys[1].limit, "mps:50");
    free(keys);
}

/* One change at a time to a good cell, and the words that must say what is wrong. */
static void refusals(void **state)
{
    static const char *const words[] = {
        "q_len 0 is out of range; expected 1 to 1073741824",
        "kv_len 1099511627776 is out of range",
        "time_ms 0 is not a time; expected milliseconds above zero",
        "time_ms -1 is not a time",
        "time_ms is missing",
        "time_ms inf is not a time",
        "min_ms 2 is above time_ms 1",
        "time_ms 1 is above ci_hi_ms 0.5",
        "heads 32 is not a multiple of kv_heads 5",
        "sm_seen 200 is more than sm_count 132",
        "utilisation is 4",
        "utilisation is 1.3",
        "mask 'band' is not known; expected full or causal",
        "dtype 'int8' is not known",
        "device 'NVIDIA H200'",
        "limit 'mps:101': '101' is not a level; write mps:N with N from 1 to 100",
        "limit 'mps:0'",
        "limit 'mps:abc'",
        "samples is 3 but samples_ms has 2 values",
        "time_ms 1 is outside its samples_ms (2 to 3)",
        "run_uid is empty",
        "host is not one line of UTF-8 text",
        "batch 0 is out of range",
    };
    double raw[] = {2, 3};

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct hcp_cell c = make_cell(4096, 4096, 1);
        switch (i) {
        case 0: c.q_len = 0; break;
        case 1: c.kv_len = INT64_C(1) << 40; break;
        case 2: c.time_ms = 0; break;
        case 3: c.time_ms = -1; break;
        case 4: c.time_ms = NAN; break;
        case 5: c.time_ms = INFINITY; break;
        case 6: c.min_ms = 2; break;
        case 7: c.ci_hi_ms = 0.5; break;
        case 8: c.key.kv_heads = 5; break;
        case 9: c.sm_seen = 200; c.sm_count = 132; break;
        case 10: c.time_ms = 0.0648; break; /* 275 GFLOP: 4.3 times H200's 989.4 TFLOP/s */
        case 11: c.peak_tflops = 210; break; /* 275 TFLOP/s */
        case 12: strcpy(c.mask, "band"); break;
        case 13: strcpy(c.key.dtype, "int8"); break;
        case 14: strcpy(c.key.device, "NVIDIA H200"); break;
        case 15: strcpy(c.key.limit, "mps:101"); break;
        case 16: strcpy(c.key.limit, "mps:0"); break;
        case 17: strcpy(c.key.limit, "mps:abc"); break;
        case 18: c.n_raw = 2; c.raw_ms = raw; c.samples = 3; break;
        case 19: c.n_raw = 2; c.raw_ms = raw; break;
        case 20: c.run_uid[0] = '\0'; break;
        case 21: strcpy(c.host, "a\xff"); break;
        case 22: c.key.batch = 0; break;
        }
        assert_int_equal(hcp_db_put_cell(db, &c, &err), HCP_FAILED);
        if (!strstr(err.text, words[i]))
            fail_msg("wanted '%s', got '%s'", words[i], err.text);
    }
    assert_int_equal(count(db, NULL), 0);
}

/* Half the SMs halve the roofline; no peak known, no check. */
static void utilisation_of_share(void **state)
{
    struct hcp_cell c = make_cell(4096, 4096, 0.5); /* 550 TFLOP/s */

    (void)state;
    put(db, &c);
    c.q_len = 4097;
    c.sm_count = 132;
    c.sm_seen = 66; /* 494.7 TFLOP/s */
    assert_int_equal(hcp_db_put_cell(db, &c, &err), HCP_FAILED);
    strcpy(c.mask, "causal"); /* half the work */
    put(db, &c);
    strcpy(c.key.device, "unheard-of");
    c.time_ms = 1e-9;
    put(db, &c);
}

static void replace_failed(void **state)
{
    struct hcp_cell c = make_cell(64, 64, NAN);
    enum hcp_db_outcome outcome;

    (void)state;
    strcpy(c.status, "failed");
    strcpy(c.error, "out of memory");
    put(db, &c);
    strcpy(c.status, "ok");
    c.error[0] = '\0';
    c.time_ms = 1;
    put(db, &c); /* takes the failed one's place */
    assert_int_equal(count(db, NULL), 1);
    assert_int_equal(hcp_db_put_cell(db, &c, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "already has the cell"));
    assert_int_equal(hcp_db_add_cell(db, &c, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_SAME);
    c.time_ms = 2;
    assert_int_equal(hcp_db_add_cell(db, &c, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_CONFLICT);
    strcpy(c.status, "failed");
    assert_int_equal(hcp_db_add_cell(db, &c, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_SUPERSEDED);
    /* Another GPU of the same kind in the same run is another cell. */
    strcpy(c.device_uuid, "GPU-2");
    put(db, &c);
    assert_int_equal(count(db, NULL), 2);
}

static void run_contradiction(void **state)
{
    struct hcp_cell c = make_cell(64, 64, 1);

    (void)state;
    put(db, &c);
    strcpy(c.host, "a"); /* fills what was not known */
    c.q_len++;
    put(db, &c);
    strcpy(c.host, "b");
    c.q_len++;
    assert_int_equal(hcp_db_put_cell(db, &c, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "has host 'a', this row says 'b'"));
    assert_int_equal(count(db, &(struct hcp_filter){.host = "a"}), 2);
}

static void batch_rolls_back(void **state)
{
    struct hcp_cell c = make_cell(64, 64, 1);

    (void)state;
    assert_int_equal(hcp_db_begin(db, &err), HCP_OK);
    put(db, &c);
    hcp_db_rollback(db);
    assert_int_equal(count(db, NULL), 0);
    assert_int_equal(hcp_db_begin(db, &err), HCP_OK);
    put(db, &c);
    assert_int_equal(hcp_db_commit(db, &err), HCP_OK);
    assert_int_equal(count(db, NULL), 1);
}

static uint64_t hash(hcp_db *d)
{
    struct hcp_cell c = make_cell(1, 1, 1);
    uint64_t h = 0;

    assert_int_equal(hcp_db_samples_hash(d, &c.key, &h, &err), HCP_OK);
    return h;
}

/* Same cells in any order and from any file: same hash. Anything else: another. */
static void samples_hash(void **state)
{
    struct hcp_cell a = make_cell(64, 64, 1), b = make_cell(64, 128, 2), c;
    struct hcp_merge_tally tally;
    hcp_db *two = open_db(other);
    uint64_t h;

    (void)state;
    strcpy(b.run_uid, "run-2");
    put(db, &a);
    put(db, &b);
    put(two, &b);
    put(two, &a);
    h = hash(db);
    assert_true(hash(two) == h);
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_true(hash(db) == h);
    c = make_cell(256, 64, 1);
    strcpy(c.key.limit, "mps:10"); /* another key */
    put(db, &c);
    c = make_cell(256, 64, NAN); /* not ok */
    strcpy(c.status, "failed");
    put(db, &c);
    assert_true(hash(db) == h);
    c = make_cell(256, 64, 1); /* replaces the failed one */
    put(db, &c);
    assert_true(hash(db) != h);
    sqlite3_exec(db->handle, "DELETE FROM cell WHERE q_len = 256", NULL, NULL, NULL);
    assert_true(hash(db) == h);
    sqlite3_exec(db->handle, "UPDATE cell SET time_ms = 1.0000000000000002 WHERE time_ms = 1",
                 NULL, NULL, NULL);
    assert_true(hash(db) != h);
    sqlite3_exec(db->handle, "UPDATE cell SET time_ms = 1", NULL, NULL, NULL);
    sqlite3_exec(db->handle, "UPDATE cell SET time_ms = 2 WHERE kv_len = 128", NULL, NULL,
                 NULL);
    assert_true(hash(db) == h);
    sqlite3_exec(db->handle, "UPDATE cell SET mask = 'causal' WHERE kv_len = 128", NULL, NULL,
                 NULL);
    assert_true(hash(db) != h);
    hcp_db_close(two);
}

static int check_model(const struct hcp_model_row *row, const struct hcp_named_array *arrays,
                       size_t n, void *ctx)
{
    const double *v = ctx;

    assert_int_equal(n, 3);
    assert_string_equal(arrays[0].name, "empty");
    assert_int_equal(arrays[0].n, 0);
    assert_string_equal(arrays[1].name, "x");
    assert_int_equal(arrays[1].n, 6);
    assert_memory_equal(arrays[1].v, v, 6 * sizeof *v);
    assert_true(row->samples_hash == UINT64_C(0xfedcba9876543210));
    assert_true(isnan(row->holdout_median));
    assert_true(row->holdout_p90 == 0.07);
    assert_int_equal(row->holdout_cells, -1);
    assert_string_equal(row->key.limit, "mps:50");
    return HCP_OK;
}

static int count_model(const struct hcp_model_row *row, const struct hcp_named_array *arrays,
                       size_t n, void *ctx)
{
    (void)row, (void)arrays, (void)n;
    ++*(int *)ctx;
    return HCP_OK;
}

/* NaN payloads, the sign of zero and infinities survive; the same key and kind is
 * replaced. */
static void models(void **state)
{
    double v[] = {-0.0, NAN, INFINITY, -INFINITY, 4.9406564584124654e-324, 1.0 / 3}, w = 1;
    struct hcp_named_array arrays[] = {{"x", 6, v}, {"y", 1, &w}, {"empty", 0, NULL}};
    struct hcp_model_row row = {.kind = "lut", .samples_hash = UINT64_C(0xfedcba9876543210),
                                .holdout_median = NAN, .holdout_p90 = 0.07,
                                .holdout_cells = -1};
    int n = 0;

    (void)state;
    v[1] = -v[1];
    row.key = make_cell(1, 1, 1).key;
    for (int i = 0; i < 2; i++)
        assert_int_equal(hcp_db_put_model(db, &row, arrays, 3, &err), HCP_OK);
    assert_int_equal(hcp_db_each_model(db, NULL, check_model, v, &err), HCP_OK);
    strcpy(row.kind, "poly");
    assert_int_equal(hcp_db_put_model(db, &row, arrays, 2, &err), HCP_OK);
    assert_int_equal(hcp_db_each_model(db, &(struct hcp_filter){.device = "nvidia-h200"},
                                       count_model, &n, &err),
                     HCP_OK);
    assert_int_equal(n, 2);
    assert_int_equal(hcp_db_each_model(db, &(struct hcp_filter){.limit_set = 1}, count_model,
                                       &n, &err),
                     HCP_OK);
    assert_int_equal(n, 2);
}

static int sum_copies(const struct hcp_bandwidth *row, void *ctx)
{
    *(double *)ctx += row->gb_per_s;
    return HCP_OK;
}

/* Both machines' rows, each run once, in a circle too; a lie about a stored cell is
 * counted and changes nothing. */
static void merging(void **state)
{
    struct hcp_cell a = make_cell(64, 64, 1), b = make_cell(64, 64, 3);
    struct hcp_bandwidth bw;
    struct hcp_merge_tally tally;
    enum hcp_db_outcome outcome;
    hcp_db *two = open_db(other);
    double sum = 0;

    (void)state;
    put(db, &a);
    strcpy(b.run_uid, "run-2");
    put(two, &a);
    put(two, &b);
    b.q_len = 65;
    put(two, &b);
    hcp_bandwidth_init(&bw);
    strcpy(bw.device, "nvidia-h200");
    strcpy(bw.run_uid, "run-2");
    bw.gb_per_s = 4000;
    assert_int_equal(hcp_db_add_bandwidth(two, &bw, &outcome, &err), HCP_OK);
    assert_int_equal(hcp_db_note_run(two, "run-2", "from b", &err), HCP_OK);
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, 3);
    assert_int_equal(tally.skipped, 1);
    assert_int_equal(tally.conflicts, 0);
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, 0);
    assert_int_equal(tally.skipped, 4);
    assert_int_equal(hcp_db_merge(two, db, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, 0);
    assert_int_equal(count(db, NULL), 3);
    assert_int_equal(hcp_db_each_bandwidth(db, NULL, sum_copies, &sum, &err), HCP_OK);
    assert_true(sum == 4000);
    sqlite3_exec(two->handle, "UPDATE cell SET time_ms = 9 WHERE q_len = 65", NULL, NULL, NULL);
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_int_equal(tally.conflicts, 1);
    assert_int_equal(tally.skipped, 3);
    sum = 0;
    assert_int_equal(count(db, &(struct hcp_filter){.run_uid = "run-2"}), 2);
    hcp_db_close(two);
}

/* Four processes write at once; nobody loses a row to a lock. */
static void concurrent_writers(void **state)
{
    int status;

    (void)state;
    for (int p = 0; p < 4; p++)
        if (fork() == 0) {
            hcp_db *mine = NULL;
            if (hcp_db_open(path, HCP_DB_WRITE, &mine, &err))
                _exit(1);
            for (int i = 1; i <= 12; i++) {
                struct hcp_cell c = make_cell(i, 100 + p, 1);
                if (hcp_db_put_cell(mine, &c, &err))
                    _exit(2);
            }
            hcp_db_close(mine);
            _exit(0);
        }
    for (int p = 0; p < 4; p++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count(db, NULL), 48);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(round_trip), TEST(unknowns), TEST(filters), TEST(refusals),
        TEST(utilisation_of_share), TEST(replace_failed), TEST(run_contradiction),
        TEST(batch_rolls_back), TEST(samples_hash), TEST(models), TEST(merging),
        TEST(concurrent_writers),
    };

    return cmocka_run_group_tests_name("db", tests, NULL, NULL);
}
