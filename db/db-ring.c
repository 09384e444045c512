/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define ROW struct hcp_ring_run_row
#include "db/columns.h"

static const struct hcp_column columns[] = {
    TEXT("uid", uid, "t.uid"),
    TEXT("fingerprint", fingerprint, "t.fingerprint"),
    TEXT("strategy", strategy, "t.strategy"),
    TEXT("mask", mask, "t.mask"),
    TEXT("layout", layout, "t.layout"),
    TEXT("transport", transport, "t.transport"),
    TEXT("provider", provider, "t.provider"),
    TEXT("provider_version", provider_version, "t.provider_version"),
    TEXT("dtype", dtype, "t.dtype"),
    INT("batch", batch, "t.batch", -1, 1),
    INT("heads", heads, "t.heads", -1, 1),
    INT("kv_heads", kv_heads, "t.kv_heads", -1, 1),
    INT("head_dim", head_dim, "t.head_dim", -1, 1),
    LONG("seq_len", seq_len, "t.seq_len", -1, 1, HCP_LEN_LIMIT),
    LONG("tile", tile, "t.tile", -1, 1, HCP_TILE_LIMIT),
    INT("stripes", stripes, "t.stripes", -1, 0),
    INT("buffers", buffers, "t.buffers", -1, 0),
    INT("sub_blocks", sub_blocks, "t.sub_blocks", -1, 1),
    INT("barrier", barrier, "t.barrier", -1, 0),
    INT("repeats", repeats, "t.repeats", -1, 1),
    REAL("makespan_ms", makespan_ms, "t.makespan_ms"),
    REAL("ci_lo_ms", ci_lo_ms, "t.ci_lo_ms"),
    REAL("ci_hi_ms", ci_hi_ms, "t.ci_hi_ms"),
    REAL("min_ms", min_ms, "t.min_ms"),
    REAL("predicted_ms", predicted_ms, "t.predicted_ms"),
    REAL("predicted_lo_ms", predicted_lo_ms, "t.predicted_lo_ms"),
    REAL("predicted_hi_ms", predicted_hi_ms, "t.predicted_hi_ms"),
    REAL("bound_ms", bound_ms, "t.bound_ms"),
    REAL("efficiency", efficiency, "t.efficiency"),
    REAL("max_error", max_error, "t.max_error"),
    TEXT("note", note, "t.note"),
    TEXT("origin", from.origin, "t.origin"),
    TEXT("host", from.host, "t.host"),
    TEXT("driver", from.driver, "t.driver"),
    TEXT("cuda_version", from.cuda_version, "t.cuda_version"),
    TEXT("tool_version", from.tool_version, "t.tool_version"),
    TEXT("measured_at", from.measured_at, "t.measured_at"),
};
static const char *const identity[] = {"uid", NULL};
const struct hcp_rows hcp_ring_rows = {"ring_run",   "ring_run t",
                                       "ring_run t", " ORDER BY t.measured_at, t.uid",
                                       columns,      sizeof columns / sizeof *columns,
                                       identity};

#undef ROW
#define ROW struct hcp_ring_rank_row
static const struct hcp_column rank_columns[] = {
    TEXT("device", device, "d.slug"),
    WORD("limit", limit, "t.limiter"),
    TEXT("device_uuid", uuid, "d.uuid"),
    TEXT("device_name", name, "d.name"),
    TEXT("host", host, "t.host"),
    INT("sm_count", sm_count, "d.sm_count", -1, 1),
    INT("sm_seen", sm_seen, "t.sm_seen", -1, 1),
    LONG("tokens", tokens, "t.tokens", -1, 0, HCP_LEN_LIMIT),
    REAL("predicted_ms", predicted_ms, "t.predicted_ms"),
    REAL("predicted_compute_ms", predicted_compute_ms, "t.predicted_compute_ms"),
    REAL("compute_ms", compute_ms, "t.compute_ms"),
    REAL("wait_ms", wait_ms, "t.wait_ms"),
    REAL("transfer_ms", transfer_ms, "t.transfer_ms"),
    REAL("total_ms", total_ms, "t.total_ms"),
};
enum { N_RANK_COLUMNS = sizeof rank_columns / sizeof *rank_columns };
const struct hcp_rows hcp_ring_rank_rows = {
    "ring_rank",  "ring_rank t JOIN device d ON d.id = t.device_id",
    NULL,         " ORDER BY t.rank",
    rank_columns, N_RANK_COLUMNS,
    NULL};

void hcp_ring_run_init(struct hcp_ring_run_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_ring_rows, row);
    strcpy(row->from.origin, "measured");
}

void hcp_ring_rank_init(struct hcp_ring_rank_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_ring_rank_rows, row);
}

static int check_words(const struct hcp_ring_run_row *r, struct hcp_err *err)
{
    int rc = hcp_check_word("mask", r->mask, "full causal", err);

    if (!rc)
        rc = hcp_check_word("layout", r->layout, "contiguous zigzag striped", err);
    if (!rc && *r->transport)
        rc = hcp_check_word("transport", r->transport, "nccl mpi", err);
    if (!rc)
        rc = hcp_check_word("dtype", r->dtype, "bf16 fp16 fp32", err);
    if (!rc)
        rc = hcp_check_word("origin", r->from.origin, "measured recorded synthetic", err);
    if (!rc && (!*r->uid || !*r->strategy || !*r->provider))
        rc = hcp_fail(err, HCP_FAILED, "%s is empty; a ring run needs it",
                      !*r->uid        ? "uid"
                      : !*r->strategy ? "strategy"
                                      : "provider");
    return rc;
}

static int check_numbers(const struct hcp_ring_run_row *r, struct hcp_err *err)
{
    /* Where -1 is allowed it means "not known". */
    const struct {
        const char *name;
        int64_t v, min, max;
    } ranges[] = {
        {"seq_len", r->seq_len, 1, HCP_LEN_LIMIT},
        {"tile", r->tile, -1, HCP_TILE_LIMIT},
        {"stripes", r->stripes, -1, INT32_MAX},
        {"buffers", r->buffers, -1, INT32_MAX},
        {"sub_blocks", r->sub_blocks, -1, INT32_MAX},
        {"barrier", r->barrier, -1, 1},
        {"repeats", r->repeats, -1, INT32_MAX},
    };
    const struct hcp_named_time interval[] = {{"ci_lo_ms", r->ci_lo_ms},
                                              {"makespan_ms", r->makespan_ms},
                                              {"ci_hi_ms", r->ci_hi_ms}};
    const struct hcp_named_time order[] = {{"min_ms", r->min_ms},
                                           {"makespan_ms", r->makespan_ms}};
    const struct hcp_named_time plan[] = {{"predicted_lo_ms", r->predicted_lo_ms},
                                          {"predicted_ms", r->predicted_ms},
                                          {"predicted_hi_ms", r->predicted_hi_ms}};
    const struct hcp_named_time bound = {"bound_ms", r->bound_ms};
    int rc = hcp_check_heads(r->batch, r->heads, r->kv_heads, r->head_dim, err);

    for (size_t i = 0; !rc && i < sizeof ranges / sizeof *ranges; i++)
        rc = hcp_check_range(ranges[i].name, ranges[i].v, ranges[i].min, ranges[i].max,
                             err);
    if (!rc && (!r->tile || !r->sub_blocks || !r->repeats))
        rc = hcp_fail(err, HCP_FAILED, "%s is 0; expected 1 or more",
                      !r->tile         ? "tile"
                      : !r->sub_blocks ? "sub_blocks"
                                       : "repeats");
    if (!rc && isnan(r->makespan_ms))
        rc = hcp_fail(err, HCP_FAILED, "makespan_ms is missing");
    if (!rc)
        rc = hcp_check_times(interval, 3, err);
    if (!rc)
        rc = hcp_check_times(order, 2, err);
    if (!rc)
        rc = hcp_check_times(plan, 3, err);
    if (!rc)
        rc = hcp_check_times(&bound, 1, err);
    if (!rc && !isnan(r->efficiency) && !(r->efficiency > 0 && !isinf(r->efficiency)))
        rc = hcp_fail(err, HCP_FAILED, "efficiency %g is not above zero", r->efficiency);
    if (!rc && !isnan(r->max_error) && !(r->max_error >= 0))
        rc = hcp_fail(err, HCP_FAILED, "max_error %g is negative", r->max_error);
    return rc;
}

static int check_rank(const struct hcp_ring_rank_row *k, struct hcp_err *err)
{
    int rc = hcp_check_texts(rank_columns, N_RANK_COLUMNS, k, err);

    if (!rc)
        rc = hcp_check_device(k->device, k->limit, err);
    if (!rc)
        rc = hcp_check_sms(k->sm_seen, k->sm_count, err);
    if (!rc)
        rc = hcp_check_range("tokens", k->tokens, 0, HCP_LEN_LIMIT, err);
    /* A rank without tokens takes no time: zero is one here. */
    for (size_t i = 0; !rc && i < N_RANK_COLUMNS; i++) {
        const struct hcp_column *c = &rank_columns[i];
        double v = c->type == HCP_COL_REAL
                       ? *(const double *)(const void *)((const char *)k + c->offset)
                       : NAN;
        if (v < 0 || isinf(v))
            rc = hcp_fail(err, HCP_FAILED,
                          "%s %g is not a time; expected milliseconds, zero or more",
                          c->name, v);
    }
    return rc;
}

int hcp_ring_run_validate(const struct hcp_ring_run_row *row, struct hcp_err *err)
{
    struct hcp_err why;
    int64_t tokens = 0;
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = check_words(row, err);
    if (!rc)
        rc = check_numbers(row, err);
    if (!rc && (!row->n_ranks || row->n_ranks > INT32_MAX || !row->ranks))
        rc = hcp_fail(err, HCP_FAILED, "a ring run without ranks");
    for (size_t i = 0; !rc && i < row->n_ranks; i++) {
        if (check_rank(&row->ranks[i], &why))
            rc = hcp_fail(err, HCP_FAILED, "rank %zu: %s", i, why.text);
        else
            tokens += row->ranks[i].tokens;
    }
    if (!rc && tokens != row->seq_len)
        rc = hcp_fail(err, HCP_FAILED,
                      "the ranks have %lld tokens together, seq_len is %lld",
                      (long long)tokens, (long long)row->seq_len);
    return rc;
}

/* The ranks of a stored run, malloc'ed. */
static int read_ranks(hcp_db *db, int64_t run, struct hcp_ring_rank_row **out, size_t *n,
                      struct hcp_err *err)
{
    struct hcp_ring_rank_row *list = NULL;
    size_t count = 0;
    int step = SQLITE_DONE, rc = HCP_OK;
    sqlite3_stmt *s =
        hcp_rows_select(db, &hcp_ring_rank_rows, "", " WHERE t.ring_run_id = ?1", err);

    if (!s)
        return HCP_FAILED;
    sqlite3_bind_int64(s, 1, run);
    while (!rc && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct hcp_ring_rank_row *grown = realloc(list, (count + 1) * sizeof *list);
        if (!grown) {
            rc = hcp_fail(err, HCP_FAILED, "'%s': out of memory", db->path);
            break;
        }
        list = grown;
        memset(&list[count], 0, sizeof *list);
        hcp_rows_read(s, &hcp_ring_rank_rows, &list[count++]);
    }
    if (!rc && step != SQLITE_DONE)
        rc = hcp_db_sql_error(db, step, "read", err);
    sqlite3_finalize(s);
    if (rc) {
        free(list);
        return rc;
    }
    *out = list;
    *n = count;
    return HCP_OK;
}

static int insert(hcp_db *db, const struct hcp_ring_run_row *row, struct hcp_err *err)
{
    static const char *const names[] = {"ring_run_id", "rank", "device_id"};
    int64_t refs[3];
    int rc = hcp_rows_insert(db, &hcp_ring_rows, NULL, NULL, 0, row, err);

    refs[0] = sqlite3_last_insert_rowid(db->handle);
    for (size_t i = 0; !rc && i < row->n_ranks; i++) {
        const struct hcp_ring_rank_row *k = &row->ranks[i];
        refs[1] = (int64_t)i;
        rc =
            hcp_db_device_id(db, k->device, k->uuid, k->name, k->sm_count, &refs[2], err);
        if (!rc)
            rc = hcp_rows_insert(db, &hcp_ring_rank_rows, names, refs, 3, k, err);
    }
    return rc;
}

/* Devices of the ranks count too: what else would the ranks be compared by? */
static int same_ranks(const struct hcp_ring_run_row *row,
                      const struct hcp_ring_rank_row *ranks, size_t n)
{
    int same = n == row->n_ranks;

    for (size_t i = 0; same && i < n; i++)
        same = hcp_rows_same(&hcp_ring_rank_rows, &row->ranks[i], &ranks[i]) &&
               !strcmp(row->ranks[i].device, ranks[i].device) &&
               !strcmp(row->ranks[i].uuid, ranks[i].uuid);
    return same;
}

static int add_inside(hcp_db *db, const void *valid, enum hcp_db_outcome *outcome,
                      struct hcp_err *err)
{
    const struct hcp_ring_run_row *row = valid;
    struct hcp_ring_run_row stored = {0};
    struct hcp_ring_rank_row *ranks = NULL;
    int64_t id = 0;
    size_t n = 0;
    int found = 0;
    int rc = hcp_rows_find(db, &hcp_ring_rows, row, &stored, &found, &id, err);

    if (!rc && !found)
        return insert(db, row, err);
    if (!rc)
        rc = read_ranks(db, id, &ranks, &n, err);
    if (!rc)
        *outcome =
            hcp_rows_same(&hcp_ring_rows, row, &stored) && same_ranks(row, ranks, n)
                ? HCP_DB_SAME
                : HCP_DB_CONFLICT;
    free(ranks);
    return rc;
}

int hcp_db_add_ring_run(hcp_db *db, const struct hcp_ring_run_row *row,
                        enum hcp_db_outcome *outcome, struct hcp_err *err)
{
    int rc = hcp_ring_run_validate(row, err);

    return rc ? rc : hcp_db_add_row(db, add_inside, row, outcome, err);
}

int hcp_db_each_ring_run(hcp_db *db,
                         int (*visit)(const struct hcp_ring_run_row *row, void *ctx),
                         void *ctx, struct hcp_err *err)
{
    struct hcp_ring_run_row row = {0};
    int rc = SQLITE_DONE, result = HCP_OK;
    sqlite3_stmt *s = hcp_rows_select(db, &hcp_ring_rows, ", t.id", "", err);

    if (!s)
        return HCP_FAILED;
    while (!result && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        hcp_rows_read(s, &hcp_ring_rows, &row);
        result = read_ranks(db, sqlite3_column_int64(s, (int)hcp_ring_rows.n), &row.ranks,
                            &row.n_ranks, err);
        if (result)
            break;
        result = visit(&row, ctx);
        free(row.ranks);
    }
    if (!result && rc != SQLITE_DONE)
        result = hcp_db_sql_error(db, rc, "read", err);
    sqlite3_finalize(s);
    return result;
}
