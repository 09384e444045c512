/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows in and out: bits survive, bad rows are refused.
 */
#include "config.h"
#include "tests/db-fixture.h"

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
    double raw[] = {0.1, 1.0 / 3, 7, 1.0000000000000002e-9, 123456.78901234567};
    struct hcp_cell c = make_cell(1000, 64, 1.0 / 3);
    struct expected e = {&c, 0};

    (void)state;
    c.raw_ms = raw;
    c.n_raw = c.samples = 5;
    c.outliers = 0;
    c.min_ms = 1.0000000000000002e-9;
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
        /* clang-format off */
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
        /* 275 GFLOP: 4.3 times H200's 989.4 TFLOP/s */
        case 10: c.time_ms = 0.0648; break;
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
        /* clang-format on */
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
    c.time_ms = 0.02; /* 6,900 TFLOP/s of half the SMs: no data sheet says no */
    put(db, &c);
    c.time_ms = 0.01; /* 13,700: none ever will */
    c.q_len = 4096;
    assert_int_equal(hcp_db_put_cell(db, &c, &err), HCP_FAILED);
    strcpy(c.origin, "synthetic");
    strcpy(c.run_uid, "run-2");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(round_trip),
        TEST(unknowns),
        TEST(filters),
        TEST(refusals),
        TEST(utilisation_of_share),
        TEST(replace_failed),
        TEST(run_contradiction),
        TEST(batch_rolls_back),
    };

    return cmocka_run_group_tests_name("db", tests, NULL, NULL);
}
