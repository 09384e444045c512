/* SPDX-License-Identifier: Apache-2.0
 *
 * A fresh database per test, for the test programs of db/ that look inside.
 */
#ifndef HCP_DB_FIXTURE_H
#define HCP_DB_FIXTURE_H
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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

static inline struct hcp_cell make_cell(int64_t q, int64_t kv, double ms)
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

static inline void put(hcp_db *to, const struct hcp_cell *c)
{
    if (hcp_db_put_cell(to, c, &err))
        fail_msg("%s", err.text);
}

static inline int count_cell(const struct hcp_cell *c, void *ctx)
{
    (void)c;
    ++*(int *)ctx;
    return 0;
}

static inline int count(hcp_db *d, const struct hcp_filter *f)
{
    int n = 0;

    assert_int_equal(hcp_db_each_cell(d, f, 0, count_cell, &n, &err), HCP_OK);
    return n;
}

#endif
