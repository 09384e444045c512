/* SPDX-License-Identifier: Apache-2.0
 *
 * Fingerprints, models, merging and several writers: no run is counted twice, no row is
 * lost.
 */
#include "config.h"
#include "tests/db-fixture.h"

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
    sqlite3_exec(db->handle,
                 "UPDATE cell SET time_ms = 1.0000000000000002 WHERE time_ms = 1", NULL,
                 NULL, NULL);
    assert_true(hash(db) != h);
    sqlite3_exec(db->handle, "UPDATE cell SET time_ms = 1", NULL, NULL, NULL);
    sqlite3_exec(db->handle, "UPDATE cell SET time_ms = 2 WHERE kv_len = 128", NULL, NULL,
                 NULL);
    assert_true(hash(db) == h);
    sqlite3_exec(db->handle, "UPDATE cell SET mask = 'causal' WHERE kv_len = 128", NULL,
                 NULL, NULL);
    assert_true(hash(db) != h);
    hcp_db_close(two);
}

static int check_model(const struct hcp_model_row *row,
                       const struct hcp_named_array *arrays, size_t n, void *ctx)
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

static int count_model(const struct hcp_model_row *row,
                       const struct hcp_named_array *arrays, size_t n, void *ctx)
{
    (void)row, (void)arrays, (void)n;
    ++*(int *)ctx;
    return HCP_OK;
}

/* NaN payloads, the sign of zero and infinities survive; the same key and kind is
 * replaced. */
static void models(void **state)
{
    double v[] = {-0.0, NAN, INFINITY, -INFINITY, 4.9406564584124654e-324, 1.0 / 3},
           w = 1;
    struct hcp_named_array arrays[] = {{"x", 6, v}, {"y", 1, &w}, {"empty", 0, NULL}};
    struct hcp_model_row row = {.kind = "lut",
                                .samples_hash = UINT64_C(0xfedcba9876543210),
                                .holdout_median = NAN,
                                .holdout_p90 = 0.07,
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
    assert_int_equal(hcp_db_each_model(db, &(struct hcp_filter){.limit_set = 1},
                                       count_model, &n, &err),
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
    sqlite3_exec(two->handle, "UPDATE cell SET time_ms = 9 WHERE q_len = 65", NULL, NULL,
                 NULL);
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
    const struct CMUnitTest tests[] = {
        TEST(samples_hash),
        TEST(models),
        TEST(merging),
        TEST(concurrent_writers),
    };

    return cmocka_run_group_tests_name("db-merge", tests, NULL, NULL);
}
