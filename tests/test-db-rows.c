/* SPDX-License-Identifier: Apache-2.0
 *
 * Finish passes, links and ring runs: stored and read back exactly, refused when wrong,
 * merged once; the views; what the fingerprint of samples makes of finish rows.
 */
#include "config.h"
#include "tests/db-fixture.h"

static struct hcp_finish_row make_finish(const char *kind, int64_t q, double ms)
{
    struct hcp_finish_row r;

    hcp_finish_row_init(&r);
    strcpy(r.key.device, "nvidia-h200");
    strcpy(r.key.limit, "mps:50");
    strcpy(r.key.provider, "cudnn");
    strcpy(r.kind, kind);
    strcpy(r.from.run_uid, "run-1");
    strcpy(r.device_uuid, "GPU-1");
    r.q_len = q;
    r.time_ms = ms;
    r.p25_ms = ms * 0.9;
    r.p75_ms = ms / 0.9;
    r.samples = 30;
    r.sm_seen = 66;
    r.sm_count = 132;
    return r;
}

static struct hcp_link_row make_link(const char *limit_b, int64_t bytes, double ms)
{
    struct hcp_link_row r;

    hcp_link_row_init(&r);
    strcpy(r.device_a, "nvidia-h200");
    strcpy(r.limit_a, "mps:100");
    strcpy(r.uuid_a, "GPU-1");
    strcpy(r.device_b, "nvidia-h200");
    strcpy(r.limit_b, limit_b);
    strcpy(r.uuid_b, "GPU-2");
    strcpy(r.host_b, "right");
    strcpy(r.transport, "nccl");
    strcpy(r.transport_version, "2.28.9");
    strcpy(r.from.run_uid, "link-1");
    strcpy(r.from.host, "left");
    r.same_host = 0;
    r.bytes = bytes;
    r.time_ms = ms;
    r.sm_count_a = r.sm_count_b = 132;
    r.sm_seen_b = 66;
    return r;
}

static struct hcp_ring_run_row make_ring(const char *uid, struct hcp_ring_rank_row *ranks)
{
    struct hcp_ring_run_row r;

    hcp_ring_run_init(&r);
    strcpy(r.uid, uid);
    strcpy(r.fingerprint, "0123456789abcdef");
    strcpy(r.strategy, "best");
    strcpy(r.mask, "causal");
    strcpy(r.layout, "zigzag");
    strcpy(r.transport, "mpi");
    strcpy(r.provider, "cpu-blas");
    strcpy(r.dtype, "fp32");
    strcpy(r.from.host, "left");
    strcpy(r.from.measured_at, "2026-11-29T12:00:00Z");
    r.batch = 1;
    r.heads = 4;
    r.kv_heads = 2;
    r.head_dim = 64;
    r.seq_len = 1000;
    r.tile = 16;
    r.buffers = 2;
    r.sub_blocks = 1;
    r.barrier = 0;
    r.repeats = 5;
    r.makespan_ms = 2;
    r.ci_lo_ms = 1.9;
    r.ci_hi_ms = 2.25;
    r.min_ms = 1.875;
    r.predicted_ms = 2.5;
    r.bound_ms = 1.6;
    r.efficiency = 0.8;
    for (int i = 0; i < 3; i++) {
        hcp_ring_rank_init(&ranks[i]);
        strcpy(ranks[i].device, "toy-cpu");
        strcpy(ranks[i].limit, i ? "cpu:50" : "");
        ranks[i].tokens = i == 2 ? 0 : i ? 300 : 700;
        ranks[i].predicted_ms = i == 2 ? 0 : 1.5;
        ranks[i].compute_ms = i == 2 ? 0 : 1.0 / (i + 1);
        ranks[i].predicted_compute_ms = NAN;
        ranks[i].total_ms = i == 2 ? 0 : 2;
    }
    r.ranks = ranks;
    r.n_ranks = 3;
    return r;
}

static enum hcp_db_outcome finish(hcp_db *to, const struct hcp_finish_row *r)
{
    enum hcp_db_outcome outcome;

    if (hcp_db_add_finish(to, r, &outcome, &err))
        fail_msg("%s", err.text);
    return outcome;
}

static enum hcp_db_outcome link_row(hcp_db *to, const struct hcp_link_row *r)
{
    enum hcp_db_outcome outcome;

    if (hcp_db_add_link(to, r, &outcome, &err))
        fail_msg("%s", err.text);
    return outcome;
}

static enum hcp_db_outcome ring(hcp_db *to, const struct hcp_ring_run_row *r)
{
    enum hcp_db_outcome outcome;

    if (hcp_db_add_ring_run(to, r, &outcome, &err))
        fail_msg("%s", err.text);
    return outcome;
}

/* What a visit saw: number of rows and the last one. */
struct seen {
    int n;
    int64_t order[8]; /* q_len or bytes */
    struct hcp_finish_row finish;
    struct hcp_link_row link;
    struct hcp_ring_run_row ring;
    struct hcp_ring_rank_row ranks[3];
};

static int see_finish(const struct hcp_finish_row *r, void *ctx)
{
    struct seen *s = ctx;

    s->order[s->n++] = r->q_len;
    s->finish = *r;
    return HCP_OK;
}

static int see_link(const struct hcp_link_row *r, void *ctx)
{
    struct seen *s = ctx;

    s->order[s->n++] = r->bytes;
    s->link = *r;
    return HCP_OK;
}

static int see_ring(const struct hcp_ring_run_row *r, void *ctx)
{
    struct seen *s = ctx;

    s->n++;
    s->ring = *r;
    assert_int_equal(r->n_ranks, 3);
    memcpy(s->ranks, r->ranks, sizeof s->ranks);
    return HCP_OK;
}

static struct seen finishes(hcp_db *d, const struct hcp_filter *f)
{
    struct seen s = {0};

    assert_int_equal(hcp_db_each_finish(d, f, see_finish, &s, &err), HCP_OK);
    return s;
}

static struct seen links(hcp_db *d, const struct hcp_filter *f)
{
    struct seen s = {0};

    assert_int_equal(hcp_db_each_link(d, f, see_link, &s, &err), HCP_OK);
    return s;
}

static struct seen rings(hcp_db *d)
{
    struct seen s = {0};

    assert_int_equal(hcp_db_each_ring_run(d, see_ring, &s, &err), HCP_OK);
    return s;
}

/* All columns of a list, the joined ones too. */
static int equal(const struct hcp_rows *rows, const void *a, const void *b)
{
    for (size_t i = 0; i < rows->n; i++)
        if (!hcp_column_equal(&rows->columns[i], a, b)) {
            print_message("# %s differs\n", rows->columns[i].name);
            return 0;
        }
    return 1;
}

static void finish_rows(void **state)
{
    struct hcp_finish_row a = make_finish("store", 64, 0.5), b;
    struct seen s;

    (void)state;
    a.time_ms = 0.1 + 0.2;
    a.p25_ms = NAN;
    assert_int_equal(finish(db, &a), HCP_DB_STORED);
    assert_int_equal(finish(db, &a), HCP_DB_SAME);
    s = finishes(db, NULL);
    assert_int_equal(s.n, 1);
    assert_true(equal(&hcp_finish_rows, &s.finish, &a));
    b = a;
    b.time_ms = 0.3;
    assert_int_equal(finish(db, &b), HCP_DB_CONFLICT);
    assert_true(finishes(db, NULL).finish.time_ms == a.time_ms);
    /* Each part of the identity makes another row. */
    b = make_finish("merge", 64, 0.5);
    assert_int_equal(finish(db, &b), HCP_DB_STORED);
    b.q_len = 16;
    assert_int_equal(finish(db, &b), HCP_DB_STORED);
    strcpy(b.key.limit, "");
    assert_int_equal(finish(db, &b), HCP_DB_STORED);
    strcpy(b.from.run_uid, "run-2");
    assert_int_equal(finish(db, &b), HCP_DB_STORED);
    strcpy(b.device_uuid, "GPU-2");
    assert_int_equal(finish(db, &b), HCP_DB_STORED);
    b.key.batch = 2;
    assert_int_equal(finish(db, &b), HCP_DB_STORED);
    assert_int_equal(finishes(db, NULL).n, 7);
    s = finishes(db, &(struct hcp_filter){.limit = "mps:50"});
    assert_int_equal(s.n, 3);
    assert_int_equal(s.order[0], 16); /* merge before store, then by q_len */
    assert_int_equal(s.order[1], 64);
    assert_string_equal(s.finish.kind, "store");
    assert_int_equal(finishes(db, &(struct hcp_filter){.limit_set = 1}).n, 4);
    assert_int_equal(finishes(db, &(struct hcp_filter){.batch = 2}).n, 1);
    assert_int_equal(finishes(db, &(struct hcp_filter){.run_uid = "run-2"}).n, 3);
    assert_int_equal(finishes(db, &(struct hcp_filter){.provider = "flash"}).n, 0);
}

static void refuse_finish(struct hcp_finish_row r, const char *words)
{
    enum hcp_db_outcome outcome;

    assert_int_equal(hcp_db_add_finish(db, &r, &outcome, &err), HCP_FAILED);
    if (!strstr(err.text, words))
        fail_msg("'%s' lacks '%s'", err.text, words);
}

static void refuse_link(struct hcp_link_row r, const char *words)
{
    enum hcp_db_outcome outcome;

    assert_int_equal(hcp_db_add_link(db, &r, &outcome, &err), HCP_FAILED);
    if (!strstr(err.text, words))
        fail_msg("'%s' lacks '%s'", err.text, words);
}

static void refuse_ring(const struct hcp_ring_run_row *r, const char *words)
{
    enum hcp_db_outcome outcome;

    assert_int_equal(hcp_db_add_ring_run(db, r, &outcome, &err), HCP_FAILED);
    if (!strstr(err.text, words))
        fail_msg("'%s' lacks '%s'", err.text, words);
}

#define WITH(field, value, words) (r = good, r.field = (value), REFUSE(r, words))
static void refusals(void **state)
{
    (void)state;
    {
#define REFUSE refuse_finish
        const struct hcp_finish_row good = make_finish("store", 64, 1);
        struct hcp_finish_row r;
        WITH(time_ms, 0, "time_ms 0 is not a time");
        WITH(time_ms, NAN, "time_ms is missing");
        WITH(p25_ms, 2, "p25_ms 2 is above time_ms 1");
        WITH(q_len, 0, "q_len 0 is out of range");
        WITH(key.kv_heads, 5, "not a multiple of kv_heads 5");
        WITH(sm_seen, 133, "sm_seen 133 is more than sm_count 132");
        WITH(kind[0], 'S', "kind 'Store' is not known; expected one of: store merge");
        WITH(key.limit[0], 'x', "limit");
        WITH(from.run_uid[0], '\0', "run_uid is empty");
#undef REFUSE
    }
    {
#define REFUSE refuse_link
        const struct hcp_link_row good = make_link("mps:50", 4096, 1);
        struct hcp_link_row r;
        WITH(time_ms, -1, "time_ms -1 is not a time");
        WITH(bytes, 0, "bytes 0 is out of range");
        WITH(same_host, 2, "same_host 2 is out of range");
        WITH(one_way, 2, "one_way 2 is out of range");
        WITH(one_way, -1, "one_way -1 is out of range");
        WITH(transport[0], 'N', "transport 'Nccl' is not known; expected one of");
        WITH(device_b[0], '\0', "device is empty");
        WITH(sm_seen_b, 0, "sm_seen is 0");
        WITH(from.origin[0], 'x', "origin 'xeasured' is not known");
#undef REFUSE
    }
    {
#define REFUSE(r, words) refuse_ring(&r, words)
        struct hcp_ring_rank_row ranks[3];
        const struct hcp_ring_run_row good = make_ring("r", ranks);
        struct hcp_ring_run_row r;
        WITH(makespan_ms, 0, "makespan_ms 0 is not a time");
        WITH(makespan_ms, 3, "makespan_ms 3 is above ci_hi_ms 2.25");
        WITH(min_ms, 2.5, "min_ms 2.5 is above makespan_ms 2");
        WITH(seq_len, 999, "the ranks have 1000 tokens together, seq_len is 999");
        WITH(n_ranks, 0, "without ranks");
        WITH(uid[0], '\0', "uid is empty");
        WITH(layout[0], 'Z', "layout 'Zigzag' is not known");
        WITH(efficiency, -1, "efficiency -1 is not above zero");
        WITH(sub_blocks, 0, "sub_blocks is 0");
        ranks[1].tokens = INT64_MAX; /* not added to the others */
        refuse_ring(&good, "rank 1: tokens 9223372036854775807 is out of range");
        ranks[1].tokens = 300;
        ranks[1].wait_ms = -1;
        refuse_ring(&good, "rank 1: wait_ms -1 is not a time");
#undef REFUSE
    }
    assert_int_equal(finishes(db, NULL).n + links(db, NULL).n + rings(db).n, 0);
}

/* The file itself refuses what gets past the functions. */
static void checks(void **state)
{
    struct hcp_ring_rank_row ranks[3];
    const struct hcp_finish_row f = make_finish("store", 64, 1);
    const struct hcp_link_row l = make_link("mps:50", 4096, 1);
    const struct hcp_ring_run_row r = make_ring("r", ranks);
    static const char *const bad[] = {
        "UPDATE finish SET time_ms = 0",
        "UPDATE finish SET kind = 'other'",
        "UPDATE finish SET q_len = 0",
        "UPDATE finish SET run_id = 77",
        "UPDATE link SET time_ms = -1",
        "UPDATE link SET transport = 'pigeon'",
        "UPDATE link SET device_b_id = 77",
        "UPDATE link SET bytes = 'many'",
        "UPDATE ring_run SET makespan_ms = 0",
        "UPDATE ring_run SET layout = 'spiral'",
        "UPDATE ring_rank SET tokens = -1",
        "UPDATE ring_rank SET device_id = 77",
        ("INSERT INTO ring_rank (ring_run_id, rank, device_id, limiter, tokens) VALUES "
         "(77, 0, 1, '', 1)"),
    };

    (void)state;
    finish(db, &f);
    link_row(db, &l);
    ring(db, &r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if ((sqlite3_exec(db->handle, bad[i], NULL, NULL, NULL) & 0xff) !=
            SQLITE_CONSTRAINT)
            fail_msg("not refused: %s", bad[i]);
}

static void link_rows(void **state)
{
    struct hcp_link_row a = make_link("mps:50", 4096, 0.25), b;
    struct seen s;

    (void)state;
    assert_int_equal(link_row(db, &a), HCP_DB_STORED);
    assert_int_equal(link_row(db, &a), HCP_DB_SAME);
    s = links(db, NULL);
    assert_true(equal(&hcp_link_rows, &s.link, &a));
    b = a;
    b.samples = 9;
    assert_int_equal(link_row(db, &b), HCP_DB_CONFLICT);
    b = make_link("mps:50", 1024, 0.125);
    assert_int_equal(link_row(db, &b), HCP_DB_STORED);
    strcpy(b.uuid_b, "GPU-3");
    assert_int_equal(link_row(db, &b), HCP_DB_STORED);
    strcpy(b.transport, "mpi");
    assert_int_equal(link_row(db, &b), HCP_DB_STORED);
    b = make_link("mps:10", 64, 0.1);
    b.same_host = -1;
    assert_int_equal(link_row(db, &b), HCP_DB_STORED);
    s = links(db, NULL);
    assert_int_equal(s.n, 5);
    assert_int_equal(s.order[0], 64); /* mps:10, then mps:50: mpi, nccl by size */
    assert_int_equal(s.order[1], 1024);
    assert_int_equal(s.order[4], 4096);
    assert_int_equal(links(db, &(struct hcp_filter){.limit = "mps:10"}).n, 1);
    assert_int_equal(links(db, &(struct hcp_filter){.limit = "mps:100"}).n, 5);
    assert_int_equal(
        links(db, &(struct hcp_filter){.device = "toy-cpu", .limit = "mps:100"}).n, 0);
    assert_int_equal(links(db, &(struct hcp_filter){.limit_set = 1}).n, 0);
    assert_int_equal(links(db, &(struct hcp_filter){.host = "right"}).n, 5);
}

/* One way is another row than both at once, and the other way round a third; all come
 * out as they went in, and through a merge. */
static void one_way_rows(void **state)
{
    struct hcp_link_row both = make_link("mps:50", 4096, 0.25), there = both, back;
    struct hcp_merge_tally tally;
    struct seen s;
    hcp_db *two;

    (void)state;
    there.one_way = 1;
    there.time_ms = there.p25_ms = 0.125;
    back = make_link("mps:100", 4096, 0.25);
    memcpy(back.device_a, both.device_b, sizeof back.device_a);
    memcpy(back.device_b, both.device_a, sizeof back.device_b);
    memcpy(back.uuid_a, both.uuid_b, sizeof back.uuid_a);
    memcpy(back.uuid_b, both.uuid_a, sizeof back.uuid_b);
    strcpy(back.limit_a, "mps:50");
    back.one_way = 1;
    assert_int_equal(link_row(db, &there), HCP_DB_STORED);
    assert_int_equal(link_row(db, &both), HCP_DB_STORED);
    assert_int_equal(link_row(db, &back), HCP_DB_STORED);
    assert_int_equal(link_row(db, &there), HCP_DB_SAME);
    assert_int_equal(link_row(db, &both), HCP_DB_SAME);
    there.time_ms *= 2;
    assert_int_equal(link_row(db, &there), HCP_DB_CONFLICT);
    there.time_ms /= 2;
    s = links(db, &(struct hcp_filter){.run_uid = "link-1"});
    assert_int_equal(s.n, 3);
    two = open_db(other);
    assert_int_equal(link_row(two, &both), HCP_DB_STORED);
    assert_int_equal(hcp_db_merge(two, db, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, 2);
    assert_int_equal(tally.skipped, 1);
    assert_int_equal(link_row(two, &there), HCP_DB_SAME);
    assert_int_equal(link_row(two, &back), HCP_DB_SAME);
    hcp_db_close(two);
}

static void ring_runs(void **state)
{
    struct hcp_ring_rank_row ranks[3], other_ranks[3];
    struct hcp_ring_run_row a = make_ring("ring-1", ranks), b;
    struct seen s;

    (void)state;
    assert_int_equal(ring(db, &a), HCP_DB_STORED);
    assert_int_equal(ring(db, &a), HCP_DB_SAME);
    s = rings(db);
    assert_int_equal(s.n, 1);
    assert_true(equal(&hcp_ring_rows, &s.ring, &a));
    for (int i = 0; i < 3; i++)
        assert_true(equal(&hcp_ring_rank_rows, &s.ranks[i], &ranks[i]));
    b = make_ring("ring-1", other_ranks);
    other_ranks[2].wait_ms = 7;
    assert_int_equal(ring(db, &b), HCP_DB_CONFLICT);
    b = make_ring("ring-1", other_ranks);
    b.makespan_ms = 2.125;
    assert_int_equal(ring(db, &b), HCP_DB_CONFLICT);
    b = make_ring("ring-0", other_ranks);
    strcpy(b.from.measured_at, "2026-11-30T00:00:00Z");
    b.transport[0] = '\0';
    b.predicted_ms = NAN;
    assert_int_equal(ring(db, &b), HCP_DB_STORED);
    s = rings(db);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.ring.uid, "ring-0"); /* the later one */
    assert_true(isnan(s.ring.predicted_ms));
}

static void text_of(const char *question, char text[256])
{
    sqlite3_stmt *s = NULL;

    if (sqlite3_prepare_v2(db->handle, question, -1, &s, NULL))
        fail_msg("%s", sqlite3_errmsg(db->handle));
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    hcp_column_copy(s, 0, text, 256);
    sqlite3_finalize(s);
}

/* The prediction error is a query. */
static void views(void **state)
{
    struct hcp_ring_rank_row ranks[3];
    const struct hcp_ring_run_row a = make_ring("ring-1", ranks);
    char text[256];

    (void)state;
    ring(db, &a);
    text_of("SELECT uid || ' ' || seq_len || ' ' || mask || ' ' || layout || ' ' || "
            "strategy || ' ' || ranks || ' ' || tokens || ' ' || predicted_ms || ' ' || "
            "makespan_ms || ' ' || error || ' ' || ratio_to_bound FROM ring_error",
            text);
    assert_string_equal(text, "ring-1 1000 causal zigzag best toy-cpu,toy-cpu@cpu:50,"
                              "toy-cpu@cpu:50 700,300,0 2.5 2.0 0.25 1.25");
    text_of("SELECT group_concat(rank || ' ' || tokens || ' ' || error || ' ' || "
            "ifnull(compute_error, '?'), ';') FROM ring_rank_error",
            text);
    assert_string_equal(text, "0 700 -0.25 ?;1 300 -0.25 ?");
}

static void merging(void **state)
{
    struct hcp_ring_rank_row ranks[3];
    struct hcp_finish_row f = make_finish("store", 64, 1);
    struct hcp_link_row l = make_link("mps:50", 4096, 1);
    struct hcp_ring_run_row r = make_ring("ring-1", ranks);
    struct hcp_merge_tally tally;
    struct seen s;
    hcp_db *two = open_db(other);

    (void)state;
    finish(two, &f);
    link_row(two, &l);
    ring(two, &r);
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, 3);
    assert_int_equal(tally.skipped + tally.conflicts, 0);
    s = finishes(db, NULL);
    assert_true(equal(&hcp_finish_rows, &s.finish, &f));
    s = links(db, NULL);
    assert_true(equal(&hcp_link_rows, &s.link, &l));
    s = rings(db);
    assert_true(equal(&hcp_ring_rows, &s.ring, &r));
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept + tally.conflicts, 0);
    assert_int_equal(tally.skipped, 3);
    assert_int_equal(sqlite3_exec(two->handle,
                                  "UPDATE finish SET time_ms = 1.0625; UPDATE link SET "
                                  "time_ms = 2; UPDATE ring_rank SET tokens = tokens",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(hcp_db_merge(db, two, &tally, &err), HCP_OK);
    assert_int_equal(tally.conflicts, 2);
    assert_int_equal(tally.skipped, 1);
    assert_true(finishes(db, NULL).finish.time_ms == 1);
    hcp_db_close(two);
}

static uint64_t hash(const struct hcp_key *key)
{
    uint64_t h = 0;

    assert_int_equal(hcp_db_samples_hash(db, key, &h, &err), HCP_OK);
    return h;
}

/* Models are fitted from finish rows too: theirs count, those of another key do not. A
 * key without any hashes to what the first release made of its cells. */
static void samples_hash(void **state)
{
    struct hcp_cell c = make_cell(64, 128, 1.5);
    struct hcp_finish_row f = make_finish("store", 64, 1);
    uint64_t cells, one;

    (void)state;
    put(db, &c);
    cells = hash(&c.key);
    assert_true(cells == 0x3ee226d4b9b1c481u);
    finish(db, &f); /* provider cudnn, the cell's is flash */
    assert_true(hash(&c.key) == cells);
    strcpy(f.key.provider, "flash");
    finish(db, &f);
    one = hash(&c.key);
    assert_true(one != cells);
    strcpy(f.kind, "merge");
    finish(db, &f);
    assert_true(hash(&c.key) != one);
    sqlite3_exec(db->handle, "DELETE FROM finish WHERE kind = 'merge'", NULL, NULL, NULL);
    assert_true(hash(&c.key) == one);
    sqlite3_exec(db->handle, "UPDATE finish SET time_ms = 1.0625", NULL, NULL, NULL);
    assert_true(hash(&c.key) != one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(finish_rows), TEST(link_rows),    TEST(one_way_rows),
        TEST(ring_runs),   TEST(refusals),     TEST(checks),
        TEST(views),       TEST(samples_hash), TEST(merging),
    };

    return cmocka_run_group_tests_name("db-rows", tests, NULL, NULL);
}
