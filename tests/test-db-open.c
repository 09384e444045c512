/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, refusing, migrating and surviving: what may happen to the file itself.
 */
#include "config.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "db/db-internal.h"

static char dir[64], path[128];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/hcp-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    chmod(dir, 0777);
    snprintf(path, sizeof path, "%s/h.db", dir);
    return 0;
}

static int teardown(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", dir, dir);
    return system(command);
}

static struct hcp_cell make_cell(int64_t q)
{
    struct hcp_cell c;

    hcp_cell_init(&c);
    strcpy(c.key.device, "test-gpu");
    strcpy(c.key.provider, "flash");
    strcpy(c.run_uid, "run-1");
    c.q_len = q;
    c.kv_len = 64;
    c.time_ms = 1.25;
    return c;
}

/* Opens for writing, puts the given number of cells, closes. */
static void fill(int n)
{
    struct hcp_err err = {0};
    hcp_db *db = NULL;

    assert_int_equal(hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &db, &err), HCP_OK);
    for (int i = 1; i <= n; i++) {
        struct hcp_cell c = make_cell(i);
        assert_int_equal(hcp_db_put_cell(db, &c, &err), HCP_OK);
    }
    hcp_db_close(db);
}

static int count_cell(const struct hcp_cell *cell, void *ctx)
{
    assert_true(cell->time_ms == 1.25);
    ++*(int *)ctx;
    return HCP_OK;
}

static int count(void)
{
    struct hcp_err err = {0};
    hcp_db *db = NULL;
    int n = 0;

    if (hcp_db_open(path, HCP_DB_READ, &db, &err))
        print_message("# %s\n", err.text);
    assert_non_null(db);
    assert_int_equal(hcp_db_each_cell(db, NULL, 1, count_cell, &n, &err), HCP_OK);
    hcp_db_close(db);
    return n;
}

static char *slurp(size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 22);

    assert_non_null(f);
    *n = fread(text, 1, 1 << 22, f);
    fclose(f);
    return text;
}

/* Every way to open is refused with these words and leaves every byte and no file
 * beside it; *out stays as it was. */
static void refused(int flags, const char *words)
{
    struct hcp_err err = {0};
    hcp_db *db = (hcp_db *)&err; /* any non-null value */
    struct stat before = {0}, after = {0};
    char journal[160], *a = NULL, *b;
    size_t n = 0, m;
    int there = !stat(path, &before);

    if (there && S_ISREG(before.st_mode))
        a = slurp(&n);
    assert_int_equal(hcp_db_open(path, flags, &db, &err), HCP_FAILED);
    if (!strstr(err.text, words))
        fail_msg("'%s' lacks '%s'", err.text, words);
    assert_non_null(strstr(err.text, path));
    assert_ptr_equal(db, &err);
    assert_int_equal(!stat(path, &after), there);
    if (a) {
        b = slurp(&m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
        free(a);
        free(b);
    }
    snprintf(journal, sizeof journal, "%s-journal", path);
    assert_int_equal(access(journal, F_OK), -1);
}

static void refused_always(const char *words)
{
    refused(HCP_DB_READ, words);
    refused(HCP_DB_WRITE, words);
    refused(HCP_DB_WRITE | HCP_DB_CREATE, words);
}

static void sql(const char *text)
{
    sqlite3 *h = NULL;

    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(h);
}

static void write_file(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void missing(void **state)
{
    (void)state;
    refused(HCP_DB_READ, "no profile database");
    refused(HCP_DB_READ, "hcp-profile import --db");
    refused(HCP_DB_WRITE, "no profile database");
    snprintf(path, sizeof path, "%s/nowhere/h.db", dir);
    refused(HCP_DB_WRITE | HCP_DB_CREATE, "No such file or directory");
    snprintf(path, sizeof path, "%s", dir);
    refused_always("not a regular file");
}

static void empty(void **state)
{
    (void)state;
    write_file("", 0);
    refused(HCP_DB_READ, "is empty");
    fill(1);
    assert_int_equal(count(), 1);
}

/* An SQLite file without tables and owner is as good as a new one. */
static void blank(void **state)
{
    (void)state;
    sql("VACUUM");
    refused(HCP_DB_READ, "is empty");
    fill(2);
    assert_int_equal(count(), 2);
}

static void foreign(void **state)
{
    (void)state;
    sql("CREATE TABLE t (x); INSERT INTO t VALUES (1)");
    refused_always("database of another program");
    sql("PRAGMA application_id = 252006673");
    refused_always("application id 0x0f055111");
    sql("DROP TABLE t; PRAGMA application_id = 0; PRAGMA user_version = 9");
    refused_always("database of another program");
}

static void not_sqlite(void **state)
{
    (void)state;
    write_file("device,limit\nx,y\n", 17);
    refused_always("not an SQLite file");
    write_file("SQLite format 3\0short", 21);
    refused_always("cut off after 21 bytes");
}

static void newer(void **state)
{
    char words[64];

    (void)state;
    fill(1);
    snprintf(words, sizeof words,
             "has schema version 73, this program knows versions up to %d",
             hcp_n_schema_steps);
    sql("PRAGMA user_version = 73");
    refused_always(words);
    refused_always("use a newer hcp");
}

static void truncated(void **state)
{
    struct stat st;

    (void)state;
    fill(200);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size > 16384);
    for (off_t size = st.st_size - 4096; size > 4096; size -= 8192) {
        assert_int_equal(truncate(path, size), 0);
        refused_always("is damaged");
    }
    assert_int_equal(truncate(path, 100), 0);
    refused_always("is damaged");
}

/* Every page in turn overwritten: an error or a clean answer, never a crash. */
static void corrupt(void **state)
{
    char *good, junk[4096];
    size_t n, pages, seen = 0;

    (void)state;
    fill(200);
    good = slurp(&n);
    pages = n / 4096;
    memset(junk, 0xa5, sizeof junk);
    for (size_t i = 1; i < pages; i++) {
        struct hcp_err err = {0};
        hcp_db *db = NULL;
        char *bad = malloc(n);
        memcpy(bad, good, n);
        memcpy(bad + i * 4096, junk, sizeof junk);
        write_file(bad, n);
        free(bad);
        if (hcp_db_open(path, HCP_DB_READ, &db, &err)) {
            assert_non_null(strstr(err.text, "is damaged"));
            seen++;
        }
        hcp_db_close(db);
    }
    free(good);
    assert_true(seen == pages - 1);
}

static int as_nobody(void (*body)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(77);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(int flags, const char *words, int code)
{
    struct hcp_err err = {0};
    hcp_db *db = NULL;

    if (!hcp_db_open(path, flags, &db, &err) || !strstr(err.text, words)) {
        print_message("# wanted '%s', got '%s'\n", words, err.text);
        _exit(code);
    }
}

static void read_only_file(void)
{
    expect(HCP_DB_WRITE, "Permission denied; make it writable", 1);
    expect(HCP_DB_WRITE | HCP_DB_CREATE, "Permission denied; make it writable", 2);
    if (count() != 3)
        _exit(3);
}

static void read_only_dir(void)
{
    expect(HCP_DB_WRITE, "is not writable (Permission denied) and the journal goes there",
           1);
    if (count() != 3)
        _exit(2);
    strcat(path, "2");
    expect(HCP_DB_WRITE | HCP_DB_CREATE, "is not writable (Permission denied)", 3);
}

static void unreadable(void)
{
    expect(HCP_DB_READ, "Permission denied", 1);
    expect(HCP_DB_WRITE | HCP_DB_CREATE, "Permission denied", 2);
}

static void permissions(void **state)
{
    (void)state;
    fill(3);
    chmod(path, 0444);
    assert_int_equal(as_nobody(read_only_file), 0);
    chmod(path, 0666);
    chmod(dir, 0555);
    assert_int_equal(as_nobody(read_only_dir), 0);
    chmod(path, 0);
    assert_int_equal(as_nobody(unreadable), 0);
}

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
    expect(HCP_DB_READ, "has the older schema version 1 and must be updated to 3", 1);
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
        assert_int_equal(number("PRAGMA user_version"), 3);
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
    assert_int_equal(number("PRAGMA user_version"), 3);
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

/* SIGKILL at any moment: every cell that was reported stored is there. */
static void killed(void **state)
{
    int stored = 0;

    (void)state;
    fill(0);
    for (int round = 0; round < 8; round++) {
        int pipes[2], last = stored, got;
        pid_t pid;
        assert_int_equal(pipe(pipes), 0);
        pid = fork();
        if (pid == 0) {
            struct hcp_err err = {0};
            hcp_db *db = NULL;
            if (hcp_db_open(path, HCP_DB_WRITE, &db, &err))
                _exit(1);
            for (int i = stored + 1;; i++) {
                struct hcp_cell c = make_cell(i);
                double raw[] = {1, 1.25, 2};
                c.raw_ms = raw;
                c.n_raw = 3;
                if (hcp_db_put_cell(db, &c, &err) || write(pipes[1], &i, sizeof i) < 0)
                    _exit(1);
            }
        }
        close(pipes[1]);
        for (int i = 0; i < 5 + 3 * round; i++)
            assert_int_equal(read(pipes[0], &last, sizeof last), sizeof last);
        usleep((useconds_t)(137 * round));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while ((got = (int)read(pipes[0], &last, sizeof last)) == (int)sizeof last)
            ;
        close(pipes[0]);
        stored = count();
        assert_true(stored == last || stored == last + 1);
    }
}

/* SIGKILL while the file is being made: the next one to come finds nothing or a good
 * file, never a broken one. */
static void killed_creating(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        pid_t pid;
        unlink(path);
        pid = fork();
        if (pid == 0) {
            hcp_db *db = NULL;
            _exit(hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &db, NULL));
        }
        usleep((useconds_t)(150 * round));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        fill(1);
        assert_int_equal(count(), 1);
    }
}

/* Out of space in the middle: an error with a name, earlier cells intact, later writes
 * possible again. */
static void disk_full(void **state)
{
    struct rlimit old, small;
    struct hcp_err err = {0};
    struct stat st;
    hcp_db *db = NULL;
    int i = 20, rc = HCP_OK;

    (void)state;
    fill(20);
    stat(path, &st);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = (rlim_t)st.st_size + 16384;
    assert_int_equal(hcp_db_open(path, HCP_DB_WRITE, &db, &err), HCP_OK);
    setrlimit(RLIMIT_FSIZE, &small);
    while (!rc && i < 5000) {
        struct hcp_cell c = make_cell(i + 1);
        rc = hcp_db_put_cell(db, &c, &err);
        i += !rc;
    }
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, HCP_FAILED);
    assert_non_null(strstr(err.text, path));
    if (!strstr(err.text, "File too large; what was stored before is intact"))
        fail_msg("%s", err.text);
    hcp_db_close(db);
    assert_int_equal(count(), i);
    fill(0);
    assert_int_equal(count(), i);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(missing),     TEST(empty),     TEST(blank),           TEST(foreign),
        TEST(not_sqlite),  TEST(newer),     TEST(truncated),       TEST(corrupt),
        TEST(permissions), TEST(migration), TEST(version_1),       TEST(version_2),
        TEST(old_version), TEST(killed),    TEST(killed_creating), TEST(disk_full),
    };

    return cmocka_run_group_tests_name("db-open", tests, NULL, NULL);
}
