/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of ratios, what is beyond noise, and one pass over all hashes of samples.
 */
#include "config.h"
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "db/audit.h"
#include "db/compare.h"

static void summary_of_ratios(void **state)
{
    struct hcp_change_group g;
    double one[] = {1.25},
           many[] = {1.1, 0.5, 1.0, 1.9, 1.2, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0};

    (void)state;
    hcp_ratio_summary(NULL, 0, &g);
    assert_true(isnan(g.median) && isnan(g.p10) && isnan(g.p90) && isnan(g.largest));
    hcp_ratio_summary(one, 1, &g);
    assert_true(g.median == 1.25 && g.p10 == 1.25 && g.p90 == 1.25 && g.largest == 1.25);
    hcp_ratio_summary(many, 11, &g);
    assert_true(g.median == 1.0);
    assert_true(fabs(g.p10 - 0.9) < 1e-12); /* position 1 of 0 .. 10 */
    assert_true(fabs(g.p90 - 1.2) < 1e-12);
    assert_true(g.largest == 0.5); /* 2 times faster is farther than 1.9 times slower */
    many[0] = 0.6;
    hcp_ratio_summary(many, 11, &g);
    assert_true(g.largest == 1.9);
}

static struct hcp_change change(double a, double a_half, double b, double b_half)
{
    return (struct hcp_change){.a_ms = a,
                               .a_lo_ms = a - a_half,
                               .a_hi_ms = a + a_half,
                               .b_ms = b,
                               .b_lo_ms = b - b_half,
                               .b_hi_ms = b + b_half,
                               .ratio = b / a};
}

static void beyond_noise(void **state)
{
    struct hcp_change c = change(1, 0.125, 1.5, 0.125);

    (void)state;
    assert_true(hcp_beyond_noise(&c, 0.01));
    assert_false(hcp_beyond_noise(&c, 0.6)); /* the tolerance is asked for too */
    c = change(1.5, 0.125, 1, 0.125);
    assert_true(hcp_beyond_noise(&c, 0.01)); /* faster counts */
    c = change(1, 0.25, 1.5, 0.25);          /* both end at 1.25 */
    assert_false(hcp_beyond_noise(&c, 0.01));
    c = change(1, 0.001, 1.005, 0.001);
    assert_false(hcp_beyond_noise(&c, 0.01));
    assert_true(hcp_beyond_noise(&c, 0.001));
}

/* A profile with a key under each of three limits; the file is removed once open. */
static hcp_db *profile(double scale)
{
    static const char *const limits[] = {"mps:10", "mps:50", ""};
    char path[] = "/tmp/hcp-test-compare-XXXXXX";
    struct hcp_cell cell;
    struct hcp_err err;
    hcp_db *db = NULL;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &db, &err), HCP_OK);
    for (int l = 0; l < 3; l++)
        for (int q = 1; q <= 4; q++) {
            hcp_cell_init(&cell);
            strcpy(cell.key.device, "gpu-x");
            strcpy(cell.key.limit, limits[l]);
            strcpy(cell.key.provider, "flash");
            strcpy(cell.run_uid, "r");
            cell.q_len = 64 * q;
            cell.kv_len = 1024;
            cell.time_ms = 0.5 * q * scale;
            assert_int_equal(hcp_db_put_cell(db, &cell, &err), HCP_OK);
        }
    return db;
}

static void close_profile(hcp_db *db)
{
    char path[64];

    strcpy(path, hcp_db_path(db));
    hcp_db_close(db);
    unlink(path);
}

static void hashes_in_one_pass(void **state)
{
    struct hcp_key_hash *hashes = NULL;
    struct hcp_finish_row finish;
    enum hcp_db_outcome outcome;
    hcp_db *db = profile(1);
    struct hcp_err err;
    uint64_t one;
    size_t n = 0;

    (void)state;
    hcp_finish_row_init(&finish);
    strcpy(finish.key.device, "gpu-x");
    strcpy(finish.key.limit, "mps:50");
    strcpy(finish.key.provider, "flash");
    strcpy(finish.kind, "merge");
    strcpy(finish.from.run_uid, "r");
    finish.q_len = 64;
    finish.time_ms = 0.1;
    strcpy(finish.from.origin, "measured");
    assert_int_equal(hcp_db_add_finish(db, &finish, &outcome, &err), HCP_OK);
    assert_int_equal(hcp_db_samples_hashes(db, &hashes, &n, &err), HCP_OK);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(hcp_db_samples_hash(db, &hashes[i].key, &one, &err), HCP_OK);
        assert_true(hashes[i].hash == one);
    }
    free(hashes);
    close_profile(db);
}

static void files_side_by_side(void **state)
{
    hcp_db *a = profile(1), *b = profile(1.25);
    struct hcp_diff diff;
    struct hcp_err err;

    (void)state;
    for (int again = 0; again < 2; again++) { /* the connection is as it was */
        assert_int_equal(hcp_diff_files(a, b, 0.01, &diff, &err), HCP_OK);
        assert_int_equal(diff.both, 12);
        assert_int_equal(diff.n_changes, 12);
        assert_int_equal(diff.n_groups, 3);
        assert_string_equal(diff.groups[0].key.key.limit, "mps:10");
        assert_string_equal(diff.groups[2].key.key.limit, ""); /* after its parts */
        assert_true(fabs(diff.groups[1].median - 1.25) < 1e-12);
        assert_true(isnan(diff.groups[1].a_mhz));
        hcp_diff_free(&diff);
    }
    close_profile(a);
    close_profile(b);
}

static void audit_of_a_writer(void **state)
{
    hcp_db *db = profile(1);
    struct hcp_audit audit;
    struct hcp_err err;
    size_t causal = 0;

    (void)state;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(hcp_audit_file(db, NULL, 0, &audit, &err), HCP_OK);
        assert_int_equal(audit.n_covers, 3);
        assert_int_equal(audit.covers[0].cells, 4);
        assert_int_equal(audit.covers[0].q_max, 256);
        causal = 0;
        for (size_t i = 0; i < audit.n_findings; i++)
            causal += !strcmp(audit.findings[i].code, "no-causal");
        assert_int_equal(causal, 3);
        hcp_audit_free(&audit);
    }
    close_profile(db);
}

/* How often a finding is made, of so much of this machine. */
static size_t found(hcp_db *db, const struct hcp_audit_here *here, size_t n,
                    const char *code)
{
    struct hcp_audit audit;
    struct hcp_err err;
    size_t count = 0;

    assert_int_equal(hcp_audit_file(db, here, n, &audit, &err), HCP_OK);
    for (size_t i = 0; i < audit.n_findings; i++)
        count += !strcmp(audit.findings[i].code, code);
    hcp_audit_free(&audit);
    return count;
}

/* Cells of driver 580.1, CUDA 13.0, flash 1.0 beside a machine that has this. */
static void this_machine(void **state)
{
    static const struct {
        struct hcp_audit_here here;
        const char *code; /* found under each of the three limits; NULL: nothing is */
    } cases[] = {
        {{"gpu-x", "580.1", "13.0", "flash", "1.0"}, NULL},
        {{"gpu-x", "590.2", "13.0", "flash", "1.0"}, "driver-here"},
        {{"gpu-x", "580.1", "13.1", "flash", "1.0"}, "cuda-here"},
        {{"gpu-x", "580.1", "13.0", "flash", "2.0"}, "kernel-here"},
        {{"gpu-x", "", "", "flash", ""}, NULL},             /* not known here */
        {{"gpu-y", "590.2", "13.1", "flash", "2.0"}, NULL}, /* another device */
        {{"gpu-x", "580.1", "13.0", "other", "2.0"}, NULL}, /* another kernel */
    };
    static const char *const codes[] = {"driver-here", "cuda-here", "kernel-here"};
    hcp_db *db = profile(1);
    struct hcp_cell cell;
    struct hcp_err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t c = 0; c < 3; c++) /* nothing to compare: the rows do not know */
            assert_int_equal(found(db, &cases[i].here, 1, codes[c]), 0);
    close_profile(db);
    db = profile(1);
    for (int l = 0; l < 3; l++) { /* the newest row of each key counts */
        hcp_cell_init(&cell);
        strcpy(cell.key.device, "gpu-x");
        strcpy(cell.key.limit, l == 0 ? "mps:10" : l == 1 ? "mps:50" : "");
        strcpy(cell.key.provider, "flash");
        strcpy(cell.run_uid, "newer");
        strcpy(cell.driver, "580.1");
        strcpy(cell.cuda_version, "13.0");
        strcpy(cell.provider_version, "1.0");
        strcpy(cell.measured_at, "2026-11-30T00:00:00Z");
        cell.q_len = cell.kv_len = 1024;
        cell.time_ms = 9;
        assert_int_equal(hcp_db_put_cell(db, &cell, &err), HCP_OK);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t c = 0; c < 3; c++) {
            int wanted = cases[i].code && !strcmp(cases[i].code, codes[c]);
            assert_int_equal(found(db, &cases[i].here, 1, codes[c]), wanted ? 3 : 0);
        }
    close_profile(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary_of_ratios),  cmocka_unit_test(beyond_noise),
        cmocka_unit_test(hashes_in_one_pass), cmocka_unit_test(files_side_by_side),
        cmocka_unit_test(audit_of_a_writer),  cmocka_unit_test(this_machine),
    };

    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
