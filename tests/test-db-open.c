/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, refusing and surviving: what may happen to the file itself.
 */
#include "config.h"
#include "tests/db-file-fixture.h"

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
    const struct CMUnitTest tests[] = {
        TEST(missing),     TEST(empty),  TEST(blank),           TEST(foreign),
        TEST(not_sqlite),  TEST(newer),  TEST(truncated),       TEST(corrupt),
        TEST(permissions), TEST(killed), TEST(killed_creating), TEST(disk_full),
    };

    return cmocka_run_group_tests_name("db-open", tests, NULL, NULL);
}
