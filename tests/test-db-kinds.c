/* SPDX-License-Identifier: Apache-2.0
 *
 * Topology, interference, drift and linear rows, and what links got: every column stored
 * and read back exactly, every part of the identity makes another row, other values are a
 * conflict, wrong ones are refused; merged once; filtered.
 */
#include "config.h"
#include "tests/db-fixture.h"

enum { ROW_BYTES = 2048 };

/* The typed functions behind one face. */
struct kind {
    const struct hcp_rows *rows;
    size_t size;
    void (*init)(void *row);
    int (*add)(hcp_db *db, const void *row, enum hcp_db_outcome *outcome);
    int (*each)(hcp_db *db, const struct hcp_filter *filter);
};

/* What each() visited: the number of rows, the first of them. */
static int n_seen;
static _Alignas(8) unsigned char first_seen[ROW_BYTES];

#define KIND(name, more)                                                                 \
    static void init_##name(void *p)                                                     \
    {                                                                                    \
        struct hcp_##name##_row *row = p;                                                \
                                                                                         \
        _Static_assert(sizeof *row <= ROW_BYTES, "grow ROW_BYTES");                      \
        hcp_##name##_row_init(row);                                                      \
        strcpy(row->from.run_uid, "run-1");                                              \
        strcpy(row->from.host, "left");                                                  \
        more                                                                             \
    }                                                                                    \
    static int add_##name(hcp_db *d, const void *row, enum hcp_db_outcome *outcome)      \
    {                                                                                    \
        return hcp_db_add_##name(d, row, outcome, &err);                                 \
    }                                                                                    \
    static int see_##name(const struct hcp_##name##_row *row, void *ctx)                 \
    {                                                                                    \
        (void)ctx;                                                                       \
        if (!n_seen++)                                                                   \
            memcpy(first_seen, row, sizeof *row);                                        \
        return HCP_OK;                                                                   \
    }                                                                                    \
    static int each_##name(hcp_db *d, const struct hcp_filter *filter)                   \
    {                                                                                    \
        n_seen = 0;                                                                      \
        assert_int_equal(hcp_db_each_##name(d, filter, see_##name, NULL, &err), HCP_OK); \
        return n_seen;                                                                   \
    }

#define BLOCK                                                                            \
    strcpy(row->key.device, "nvidia-h200");                                              \
    strcpy(row->key.limit, "mps:50");                                                    \
    strcpy(row->key.provider, "cudnn");                                                  \
    row->q_len = 4096;                                                                   \
    row->kv_len = 8192;

KIND(topology, strcpy(row->device_a, "nvidia-h200"); strcpy(row->device_b, "nvidia-h200");
     strcpy(row->connection, "nvlink");)
KIND(interference, BLOCK strcpy(row->device_b, "nvidia-h200");
     strcpy(row->limit_b, "mps:10"); strcpy(row->transport, "nccl"); row->bytes = 4096;
     row->alone_ms = 1; row->beside_ms = 1.25;)
KIND(drift, BLOCK row->first_ms = 2; row->last_ms = 2.125;)
KIND(linear, strcpy(row->device, "nvidia-h200"); strcpy(row->limit, "mps:50");
     strcpy(row->library, "cublas"); row->tokens = 4096; row->n_in = 4096;
     row->n_out = 14336; row->time_ms = 2;)
KIND(link, strcpy(row->device_a, "nvidia-h200"); strcpy(row->limit_a, "mps:50");
     strcpy(row->device_b, "nvidia-h200"); strcpy(row->transport, "nccl");
     row->bytes = 4096; row->time_ms = 1;)
KIND(finish, strcpy(row->key.device, "nvidia-h200"); strcpy(row->key.limit, "mps:50");
     strcpy(row->key.provider, "cudnn"); strcpy(row->kind, "store"); row->q_len = 64;
     row->time_ms = 1;)

#define FACE(name)                                                                       \
    {                                                                                    \
        &hcp_##name##_rows, sizeof(struct hcp_##name##_row), init_##name, add_##name,    \
            each_##name                                                                  \
    }
static const struct kind kinds[] = {FACE(topology), FACE(interference), FACE(drift),
                                    FACE(linear),   FACE(link),         FACE(finish)};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static enum hcp_db_outcome add(const struct kind *k, hcp_db *d, const void *row)
{
    enum hcp_db_outcome outcome = HCP_DB_CONFLICT;

    if (k->add(d, row, &outcome))
        fail_msg("%s: %s", k->rows->table, err.text);
    return outcome;
}

/* Another value of a column that its row may have. */
static void change(const struct hcp_column *c, void *row)
{
    static const struct {
        const char *name, *a, *b;
    } words[] = {{"device", "nvidia-h200", "nvidia-h100"},
                 {"peer_device", "nvidia-h200", "nvidia-h100"},
                 {"limit", "mps:50", "green:24"},
                 {"peer_limit", "mps:50", "green:24"},
                 {"provider", "cudnn", "flash"},
                 {"library", "cublas", "openblas"},
                 {"dtype", "bf16", "fp16"},
                 {"phase", "prefill", "decode"},
                 {"mask", "full", "causal"},
                 {"transport", "nccl", "copy"},
                 {"connection", "nvlink", "pcie"},
                 {"kind", "store", "merge"},
                 {"origin", "measured", "synthetic"}};
    char *field = (char *)row + c->offset;

    if (c->type == HCP_COL_REAL) {
        double *v = (void *)field;
        *v = isnan(*v) ? 1.0625 : *v * 1.001953125;
    } else if (c->type == HCP_COL_INT32) {
        *(int32_t *)(void *)field = *(int32_t *)(void *)field == 1 ? 0 : 1;
        if (c->min == 1)
            *(int32_t *)(void *)field = *(int32_t *)(void *)field ? 16 : 32;
    } else if (c->type == HCP_COL_INT64) {
        *(int64_t *)(void *)field += 64;
    } else {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (!strcmp(c->name, words[i].name)) {
                strcpy(field, strcmp(field, words[i].a) ? words[i].a : words[i].b);
                return;
            }
        strcpy(field, *field ? "other" : "text");
    }
}

static int in_identity(const struct kind *k, const char *name)
{
    for (const char *const *p = k->rows->identity; *p; p++)
        if (!strcmp(*p, name))
            return 1;
    return 0;
}

/* Columns that are changed only with others, which tests of their own do. */
static int is_bound(const char *name)
{
    return !strcmp(name, "heads") || !strcmp(name, "kv_heads") ||
           !strcmp(name, "p25_ms") || !strcmp(name, "p75_ms") ||
           !strcmp(name, "transport");
}

static void assert_rows_equal(const struct kind *k, const void *a, const void *b)
{
    for (size_t i = 0; i < k->rows->n; i++)
        if (!hcp_column_equal(&k->rows->columns[i], a, b))
            fail_msg("%s.%s differs", k->rows->table, k->rows->columns[i].name);
}

static void every_column(void **state)
{
    _Alignas(8) unsigned char row[ROW_BYTES], full[ROW_BYTES];

    (void)state;
    for (const struct kind *k = kinds; k < kinds + N_KINDS; k++) {
        int n = 1;
        k->init(row);
        assert_int_equal(add(k, db, row), HCP_DB_STORED);
        assert_int_equal(add(k, db, row), HCP_DB_SAME);
        assert_int_equal(k->each(db, NULL), 1);
        assert_rows_equal(k, row, first_seen);
        for (size_t i = 0; i < k->rows->n; i++) {
            const struct hcp_column *c = &k->rows->columns[i];
            const int own = !strncmp(c->sql, "t.", 2);
            const int run = !strncmp(c->sql, "r.", 2);
            if (is_bound(c->name))
                continue;
            k->init(full);
            change(c, full);
            if (run && strcmp(c->name, "run_uid"))
                strcpy((char *)full + hcp_rows_column(k->rows, "run_uid")->offset, "z");
            if (in_identity(k, c->name) || run) {
                enum hcp_db_outcome outcome = add(k, db, full);
                if (outcome != HCP_DB_STORED && (in_identity(k, c->name) || n == 1))
                    fail_msg("%s.%s is not told apart", k->rows->table, c->name);
                n += outcome == HCP_DB_STORED;
                if (run) /* the next kind has its own run "z" */
                    assert_int_equal(
                        hcp_db_exec(db, "DELETE FROM run WHERE uid IN ('z', 'other')",
                                    "test", &err),
                        HCP_OK),
                        n = k->each(db, NULL);
            } else if (own) {
                if (add(k, db, full) != HCP_DB_CONFLICT)
                    fail_msg("%s.%s: no conflict", k->rows->table, c->name);
            }
        }
        assert_int_equal(k->each(db, NULL), n);
    }
}

/* All columns at once, through a second file. */
static void all_known(void **state)
{
    _Alignas(8) unsigned char row[ROW_BYTES];
    struct hcp_merge_tally tally = {0};
    hcp_db *b;

    (void)state;
    for (const struct kind *k = kinds; k < kinds + N_KINDS; k++) {
        k->init(row);
        for (size_t i = 0; i < k->rows->n; i++) {
            const struct hcp_column *c = &k->rows->columns[i];
            char *text = (char *)row + c->offset;
            if (c->type == HCP_COL_REAL && isnan(*(double *)(void *)text))
                *(double *)(void *)text =
                    !strcmp(c->name, "p25_ms") ? 0.5 : 2.0000000000000004;
            else if (c->type == HCP_COL_INT32 &&
                     *(int32_t *)(void *)text == (int32_t)c->unknown)
                *(int32_t *)(void *)text = strstr(c->name, "sm_") ? 132 : 1;
            else if (c->type == HCP_COL_TEXT && !*text)
                strcpy(text, strstr(c->name, "limit") ? "mps:10" : c->name);
        }
        strcpy((char *)row + hcp_rows_column(k->rows, "run_uid")->offset, k->rows->table);
        assert_int_equal(add(k, db, row), HCP_DB_STORED);
        assert_int_equal(k->each(db, NULL), 1);
        assert_rows_equal(k, row, first_seen);
    }
    b = open_db(other);
    assert_int_equal(hcp_db_merge(b, db, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, N_KINDS);
    for (const struct kind *k = kinds; k < kinds + N_KINDS; k++) {
        _Alignas(8) unsigned char was[ROW_BYTES];
        k->each(db, NULL);
        memcpy(was, first_seen, sizeof was);
        assert_int_equal(k->each(b, NULL), 1);
        assert_rows_equal(k, was, first_seen);
    }
    assert_int_equal(hcp_db_merge(b, db, &tally, &err), HCP_OK);
    assert_int_equal(tally.kept, 0);
    assert_int_equal(tally.skipped, N_KINDS);
    hcp_db_close(b);
}

static void cell_boosted(void **state)
{
    struct hcp_cell c = make_cell(64, 64, 1.5), back;
    enum hcp_db_outcome outcome;

    (void)state;
    c.boosted_ms = 1.25;
    put(db, &c);
    assert_int_equal(hcp_db_get_cell(db, 1, &back, &err), HCP_OK);
    assert_true(back.boosted_ms == 1.25);
    c.boosted_ms = 1.375;
    assert_int_equal(hcp_db_add_cell(db, &c, &outcome, &err), HCP_OK);
    assert_int_equal(outcome, HCP_DB_CONFLICT);
    c.boosted_ms = 0;
    assert_int_equal(hcp_cell_validate(&c, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "boosted_ms 0"));
}

/* Every wrong row, its message, and that nothing of it stays. */
static void refused(void **state)
{
#define BAD(kind, wrong, words)                                                          \
    do {                                                                                 \
        struct hcp_##kind##_row r;                                                       \
        enum hcp_db_outcome outcome;                                                     \
        init_##kind(&r);                                                                 \
        wrong;                                                                           \
        assert_int_equal(hcp_db_add_##kind(db, &r, &outcome, &err), HCP_FAILED);         \
        if (!strstr(err.text, words))                                                    \
            fail_msg("'%s' instead of '%s'", err.text, words);                           \
        assert_int_equal(each_##kind(db, NULL), 0);                                      \
    } while (0)
    (void)state;
    BAD(topology, strcpy(r.connection, "rope"), "connection 'rope' is not known");
    BAD(topology, r.links = -2, "links -2 is out of range");
    BAD(topology, r.device_b[0] = '\0', "device is empty");
    BAD(topology, strcpy(r.detail, "a\nb"), "detail is not one line");
    BAD(topology, r.from.run_uid[0] = '\0', "run_uid is empty");
    BAD(interference, r.beside_ms = NAN, "beside_ms is missing");
    BAD(interference, r.alone_ms = 0, "alone_ms 0 is not a time");
    BAD(interference, r.transfer_alone_ms = -1, "transfer_alone_ms -1 is not a time");
    BAD(interference, r.wait_ms = -1, "wait_ms -1 is no time");
    BAD(interference, r.bytes = 0, "bytes 0 is out of range");
    BAD(interference, strcpy(r.transport, "pigeon"), "expected one of: nccl mpi copy");
    BAD(interference, r.kv_len = 0, "kv_len 0 is out of range");
    BAD(interference, r.key.kv_heads = 5, "not a multiple of kv_heads 5");
    BAD(interference, strcpy(r.limit_b, "mps:0"), "limit 'mps:0'");
    BAD(interference, r.channels = 0, "channels 0 is out of range");
    BAD(drift, r.last_ms = NAN, "last_ms is missing");
    BAD(drift, r.first_ms = INFINITY, "first_ms inf is not a time");
    BAD(drift, r.last_sm_clock_mhz = 0, "last_sm_clock_mhz 0 is not a clock");
    BAD(drift, r.seconds = -1, "seconds -1");
    BAD(drift, strcpy(r.mask, "half"), "mask 'half' is not known");
    BAD(linear, r.n_in = 0, "n_in 0 is out of range");
    BAD(linear, r.time_ms = NAN, "time_ms is missing");
    BAD(linear, r.p25_ms = 3, "p25_ms 3 is above time_ms 2");
    BAD(linear, strcpy(r.library, "cuBLAS"), "library 'cuBLAS': 'B' is not allowed");
    BAD(linear, r.time_ms = 0.01, "utilisation is 48.6");
    BAD(linear, r.sm_seen = 66; r.sm_count = 132; r.time_ms = 0.6, "utilisation is 1.6");
    BAD(link, r.channels = 4; strcpy(r.transport, "copy"), "channels are of nccl");
}

static void filters(void **state)
{
    const struct hcp_filter whole = {.device = "nvidia-h200", .limit_set = 1},
                            half = {.limit = "mps:50"}, tenth = {.limit = "mps:10"},
                            alien = {.device = "nvidia-a100"}, left = {.host = "left"},
                            right = {.host = "right"}, flash = {.provider = "flash"},
                            run = {.run_uid = "run-1"}, none = {.run_uid = "run-2"};
    _Alignas(8) unsigned char row[ROW_BYTES];

    (void)state;
    for (const struct kind *k = kinds; k < kinds + N_KINDS; k++) {
        const struct hcp_column *peer = hcp_rows_column(k->rows, "peer_host");
        const char *table = k->rows->table;
        int topology = !strcmp(table, "topology"), link = !strcmp(table, "link");
        k->init(row);
        if (peer)
            strcpy((char *)row + peer->offset, "right");
        add(k, db, row);
        /* The other end of the link is the whole device; a topology has no limits. */
        assert_int_equal(k->each(db, &whole), topology || link);
        assert_int_equal(k->each(db, &half), 1);
        assert_int_equal(k->each(db, &tenth), topology || !strcmp(table, "interference"));
        assert_int_equal(k->each(db, &alien), 0);
        assert_int_equal(k->each(db, &left), 1);
        assert_int_equal(k->each(db, &right), peer != NULL);
        assert_int_equal(k->each(db, &flash),
                         hcp_rows_column(k->rows, "provider") == NULL);
        assert_int_equal(k->each(db, &run), 1);
        assert_int_equal(k->each(db, &none), 0);
    }
}

/* Rows with channels set, and copies, are no part of the fit of NCCL's own choice. */
static void link_fit_of_own_choice(void **state)
{
    struct hcp_link_row row;
    struct hcp_link_fit fit;
    enum hcp_db_outcome outcome;

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int channels = -1; channels < 3; channels += 2) {
            init_link(&row);
            row.channels = channels;
            row.bytes = 1 << (20 + i);
            row.time_ms = (channels == 1 ? 8 : 1) * (0.01 + (double)row.bytes * 1e-5);
            assert_int_equal(hcp_db_add_link(db, &row, &outcome, &err), HCP_OK);
            assert_int_equal(outcome, HCP_DB_STORED);
        }
    assert_int_equal(
        hcp_db_link_of(db, &(struct hcp_link_by){"nccl", HCP_HOSTS_ANY, 0, 0},
                       "nvidia-h200", "mps:50", "nvidia-h200", "", &fit, &err),
        HCP_OK);
    assert_true(fabs(fit.gbps - 0.1) < 1e-6 && fabs(fit.alpha_us - 10) < 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_column), TEST(all_known), TEST(cell_boosted),
        TEST(refused),      TEST(filters),   TEST(link_fit_of_own_choice),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("db: kinds of rows", tests, NULL, NULL);
}
