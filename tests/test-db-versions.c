/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of earlier releases: brought up to this schema, or left as they are.
 */
#include "config.h"
#include "tests/db-file-fixture.h"

/* Steps that exist only here take a file on from this program's version. */
static void migration(void **state)
{
    const char *next[8], *broken[8];
    const int n_next = hcp_n_schema_steps + 1, n_broken = n_next + 1;
    struct hcp_err err = {0};
    hcp_db *db = NULL;
    int n = 0;

    (void)state;
    assert_true(n_broken <= 8);
    for (int i = 0; i < hcp_n_schema_steps; i++)
        next[i] = broken[i] = hcp_schema_steps[i];
    next[n_next - 1] = broken[n_next - 1] =
        "ALTER TABLE run ADD COLUMN rack TEXT; UPDATE run SET rack = 'r7'";
    broken[n_broken - 1] = "CREATE TABLE extra (x); DROP TABLE nothing_here";
    fill(5);
    assert_int_equal(hcp_db_open(path, HCP_DB_WRITE, &db, &err), HCP_OK);
    /* The broken one first: nothing of it may stay. */
    assert_int_equal(hcp_db_migrate(db, broken, n_broken, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "nothing_here"));
    assert_int_equal(sqlite3_exec(db->handle, "SELECT rack FROM run", NULL, NULL, NULL),
                     SQLITE_ERROR);
    assert_int_equal(hcp_db_migrate(db, next, n_next, &err), HCP_OK);
    assert_int_equal(sqlite3_exec(db->handle, "SELECT rack FROM run", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(hcp_db_migrate(db, next, n_next, &err), HCP_OK); /* nothing to do */
    assert_int_equal(hcp_db_each_cell(db, NULL, 0, count_cell, &n, &err), HCP_OK);
    assert_int_equal(n, 5);
    hcp_db_close(db);
    refused_always("this program knows versions up to");
}

/* A file as a release with that many steps left it, with one cell. */
static void make_version(int version)
{
    char words[96];

    for (int i = 0; i < version; i++)
        sql(hcp_schema_steps[i]);
    snprintf(words, sizeof words, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             HCP_APPLICATION_ID, version);
    sql(words);
    sql("INSERT INTO device (slug) VALUES ('test-gpu');"
        "INSERT INTO run (uid, origin, note) VALUES ('run-1', 'measured', 'kept');"
        "INSERT INTO cell (run_id, device_id, limiter, provider, dtype, phase, batch, "
        "heads, kv_heads, head_dim, mask, q_len, kv_len, status, time_ms) VALUES (1, 1, "
        "'', 'flash', 'bf16', 'prefill', 1, 32, 8, 128, 'full', 64, 64, 'ok', 1.25)");
}

static int64_t number(const char *question)
{
    sqlite3 *h = NULL;
    sqlite3_stmt *s = NULL;
    int64_t n;

    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(h, question, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(h);
    return n;
}

static void read_only_version_1(void)
{
    expect(HCP_DB_READ, "has the older schema version 1 and must be updated to 4", 1);
}

/* Readers and writers bring it up, keep what is in it, and give it the new tables. */
static void version_1(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        struct hcp_err err = {0};
        hcp_db *db = NULL;
        unlink(path);
        make_version(1);
        assert_int_equal(number("PRAGMA user_version"), 1);
        assert_int_equal(hcp_db_open(path, write ? HCP_DB_WRITE : HCP_DB_READ, &db, &err),
                         HCP_OK);
        hcp_db_close(db);
        assert_int_equal(number("PRAGMA user_version"), 4);
        assert_int_equal(count(), 1);
        assert_int_equal(number("SELECT count(*) FROM run WHERE note = 'kept'"), 1);
        assert_int_equal(number("SELECT count(*) FROM finish, link, ring_run"), 0);
        assert_int_equal(number("SELECT count(*) FROM ring_error, ring_rank_error"), 0);
        fill(3);
        assert_int_equal(count(), 4);
    }
    unlink(path);
    make_version(1);
    chmod(path, 0444);
    assert_int_equal(as_nobody(read_only_version_1), 0);
    assert_int_equal(number("PRAGMA user_version"), 1);
}

static int see_link(const struct hcp_link_row *row, void *ctx)
{
    struct hcp_link_row *last = ctx;

    assert_int_equal(row->channels, -1);
    assert_int_equal(row->one_way, 0);
    if (!*last->device_a)
        *last = *row;
    return HCP_OK;
}

/* The table of links is made anew: rows, their ids and their order stay. */
static void version_2(void **state)
{
    struct hcp_link_row first = {0}, row;
    struct hcp_err err = {0};
    enum hcp_db_outcome outcome;
    hcp_db *db = NULL;
    int64_t ids;

    (void)state;
    unlink(path);
    make_version(2);
    sql("INSERT INTO finish (run_id, device_id, limiter, provider, dtype, phase, batch, "
        "heads, kv_heads, head_dim, kind, q_len, time_ms) VALUES (1, 1, '', 'flash', "
        "'bf16', 'prefill', 1, 32, 8, 128, 'merge', 64, 0.5);"
        "INSERT INTO link (id, run_id, device_a_id, device_b_id, limiter_a, limiter_b, "
        "host_b, same_host, transport, transport_version, bytes, time_ms, p25_ms, "
        "p75_ms, "
        "samples, sm_seen_a, sm_seen_b, measured_at) VALUES (7, 1, 1, 1, 'mps:10', '', "
        "'right', 0, 'mpi', '4.1', 4096, 1.5, 1.25, 1.75, 9, 12, 132, "
        "'2026-11-29T12:00:00Z'), (9, 1, 1, 1, 'mps:10', '', NULL, NULL, 'nccl', NULL, "
        "4096, 1.5, NULL, NULL, NULL, NULL, NULL, NULL)");
    ids = number("SELECT sum(id) FROM link");
    assert_int_equal(hcp_db_open(path, HCP_DB_WRITE, &db, &err), HCP_OK);
    assert_int_equal(hcp_db_each_link(db, NULL, see_link, &first, &err), HCP_OK);
    assert_string_equal(first.limit_a, "mps:10");
    assert_string_equal(first.host_b, "right");
    assert_int_equal(first.same_host, 0);
    assert_string_equal(first.transport_version, "4.1");
    assert_int_equal(first.samples, 9);
    assert_int_equal(first.sm_seen_b, 132);
    assert_true(first.p25_ms == 1.25 && first.p75_ms == 1.75);
    assert_string_equal(first.from.measured_at, "2026-11-29T12:00:00Z");
    /* The identity of old rows is as it was, and there is a new part. */
    row = first;
    assert_int_equal(hcp_db_add_link(db, &row, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_SAME);
    strcpy(row.transport, "copy");
    assert_int_equal(hcp_db_add_link(db, &row, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_STORED);
    hcp_db_close(db);
    assert_int_equal(number("SELECT sum(id) FROM link WHERE transport <> 'copy'"), ids);
    assert_int_equal(number("PRAGMA user_version"), 4);
    assert_int_equal(number("SELECT count(*) FROM finish WHERE provider_version IS NULL"),
                     1);
    assert_int_equal(number("SELECT count(*) FROM cell WHERE boosted_ms IS NULL"), 1);
    assert_int_equal(number("SELECT count(*) FROM topology, interference, drift, linear"),
                     0);
    assert_int_equal(
        number(
            "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
        1);
}

/* Transfers of a file from before there were two sorts were of both ways at once. One way
 * is a row of its own, and the file itself keeps it one. */
static void version_3(void **state)
{
    static const char copy[] =
        "INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a, limiter_b, "
        "transport, bytes, time_ms, one_way) SELECT run_id, device_a_id, device_b_id, "
        "limiter_a, limiter_b, transport, bytes, time_ms, %s FROM link WHERE id = 5";
    struct hcp_link_row row = {0};
    struct hcp_err err = {0};
    enum hcp_db_outcome outcome;
    hcp_db *db = NULL;
    char words[400];

    (void)state;
    unlink(path);
    make_version(3);
    sql("INSERT INTO link (id, run_id, device_a_id, device_b_id, limiter_a, limiter_b, "
        "transport, bytes, time_ms) VALUES (5, 1, 1, 1, '', 'mps:10', 'nccl', 4096, "
        "2.5)");
    assert_int_equal(hcp_db_open(path, HCP_DB_WRITE, &db, &err), HCP_OK);
    assert_int_equal(number("PRAGMA user_version"), 4);
    assert_int_equal(hcp_db_each_link(db, NULL, see_link, &row, &err), HCP_OK);
    assert_true(row.time_ms == 2.5);
    assert_int_equal(hcp_db_add_link(db, &row, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_SAME);
    row.one_way = 1;
    row.time_ms = 1.5;
    assert_int_equal(hcp_db_add_link(db, &row, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_STORED);
    assert_int_equal(hcp_db_add_link(db, &row, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_SAME);
    for (int i = 0; i < 3; i++) { /* twice both ways, twice one way, neither */
        static const char *const ways[] = {"NULL", "1", "0"};
        snprintf(words, sizeof words, copy, ways[i]);
        assert_int_equal(sqlite3_exec(db->handle, words, NULL, NULL, NULL) & 0xff,
                         SQLITE_CONSTRAINT);
    }
    hcp_db_close(db);
    assert_int_equal(number("SELECT count(*) FROM link"), 2);
    assert_int_equal(number("SELECT count(*) FROM link WHERE id = 5 AND one_way IS NULL"),
                     1);
    assert_int_equal(
        number("SELECT count(*) FROM link WHERE one_way = 1 AND time_ms = 1.5"), 1);
}

/* Version 0 of ours: marked, but the schema not there yet. Readers update it too. */
static void old_version(void **state)
{
    char words[64];
    struct hcp_err err = {0};
    hcp_db *db = NULL;

    (void)state;
    snprintf(words, sizeof words, "PRAGMA application_id = %d", HCP_APPLICATION_ID);
    sql(words);
    assert_int_equal(hcp_db_open(path, HCP_DB_READ, &db, &err), HCP_OK);
    hcp_db_close(db);
    assert_int_equal(count(), 0);
    fill(1);
    assert_int_equal(count(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(migration), TEST(version_1),   TEST(version_2),
        TEST(version_3), TEST(old_version),
    };

    return cmocka_run_group_tests_name("db-versions", tests, NULL, NULL);
}
