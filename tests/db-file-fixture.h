/* SPDX-License-Identifier: Apache-2.0
 *
 * A place for a database file that is not there yet, and what may be done to the file
 * itself: filled, refused, looked at behind the library's back.
 */
#ifndef DB_FILE_FIXTURE_H
#define DB_FILE_FIXTURE_H
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

static inline int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/hcp-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    chmod(dir, 0777);
    snprintf(path, sizeof path, "%s/h.db", dir);
    return 0;
}

static inline int teardown(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", dir, dir);
    return system(command);
}

static inline struct hcp_cell make_cell(int64_t q)
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
static inline void fill(int n)
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

static inline int count_cell(const struct hcp_cell *cell, void *ctx)
{
    assert_true(cell->time_ms == 1.25);
    ++*(int *)ctx;
    return HCP_OK;
}

static inline int count(void)
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

static inline char *slurp(size_t *n)
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
static inline void refused(int flags, const char *words)
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

static inline void refused_always(const char *words)
{
    refused(HCP_DB_READ, words);
    refused(HCP_DB_WRITE, words);
    refused(HCP_DB_WRITE | HCP_DB_CREATE, words);
}

static inline void sql(const char *text)
{
    sqlite3 *h = NULL;

    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(h);
}

static inline void write_file(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static inline int as_nobody(void (*body)(void))
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

static inline void expect(int flags, const char *words, int code)
{
    struct hcp_err err = {0};
    hcp_db *db = NULL;

    if (!hcp_db_open(path, flags, &db, &err) || !strstr(err.text, words)) {
        print_message("# wanted '%s', got '%s'\n", words, err.text);
        _exit(code);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
