/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that make up libhcpdb; nobody else includes it, tests aside.
 */
#ifndef HCP_DB_INTERNAL_H
#define HCP_DB_INTERNAL_H
#include <sqlite3.h>
#include <stddef.h>
#include "db/db.h"

#define HCP_APPLICATION_ID 0x68637064 /* "hcpd" */
/* No device of any name does more; several times the fastest data sheet (peak.c). */
#define HCP_ANY_PEAK_TFLOPS 20000.0

/* Statements that repeat for every cell are prepared once per connection. */
enum hcp_stmt {
    HCP_STMT_FIND_RUN,
    HCP_STMT_ADD_RUN,
    HCP_STMT_FILL_RUN,
    HCP_STMT_FIND_DEVICE,
    HCP_STMT_ADD_DEVICE,
    HCP_STMT_FIND_CELL,
    HCP_STMT_ADD_CELL,
    HCP_STMT_DROP_CELL,
    HCP_STMT_ADD_SAMPLE,
    HCP_STMT_GET_CELL,
    HCP_STMT_GET_SAMPLES,
    HCP_STMT_COUNT
};

struct hcp_db {
    sqlite3 *handle;
    char *path;
    int flags;
    int batch; /* inside hcp_db_begin .. commit */
    sqlite3_stmt *stmt[HCP_STMT_COUNT];
};

/* What a column is called, where it lives in the struct of its rows (struct hcp_cell and
 * others) and in which table. One list makes the SQL, the CSV header and the JSON keys.
 */
enum hcp_column_type { HCP_COL_TEXT, HCP_COL_INT32, HCP_COL_INT64, HCP_COL_REAL };
struct hcp_column {
    const char *name; /* in CSV, JSON and hcp-db(5) */
    const char *sql; /* expression over c (cell), r (run), d (device); t in other lists */
    enum hcp_column_type type;
    size_t offset, size; /* size: of a text field's buffer */
    int64_t unknown;     /* integer that means "not known" in C, NULL in the file; of a
                            text: 1 if "" is a value */
    int64_t min, max;    /* of a known integer */
    int since;           /* text format that brought it; 0: as old as its list */
};
extern const struct hcp_column hcp_columns[];
extern const size_t hcp_n_columns;

/* Fills err for an SQLite failure on db: what was being done, the cause in words,
 * the next step. Returns HCP_FAILED. */
int hcp_db_sql_error(hcp_db *db, int rc, const char *doing, struct hcp_err *err);
/* Prepared statement number which with this text, reset; NULL and err on failure. */
sqlite3_stmt *hcp_db_stmt(hcp_db *db, enum hcp_stmt which, const char *sql,
                          struct hcp_err *err);
/* Runs SQL without result. */
int hcp_db_exec(hcp_db *db, const char *sql, const char *doing, struct hcp_err *err);
/* BEGIN IMMEDIATE unless inside a batch; *own says whether to end it. */
int hcp_db_enter(hcp_db *db, int *own, struct hcp_err *err);
/* Commits if rc is HCP_OK, rolls back otherwise (own transactions only). Returns rc
 * or the failure of the commit. */
int hcp_db_leave(hcp_db *db, int own, int rc, struct hcp_err *err);
/* add() of a valid row between the two. *outcome, on success only: what add() says, which
 * finds HCP_DB_STORED there. */
typedef int hcp_db_adder(hcp_db *db, const void *row, enum hcp_db_outcome *outcome,
                         struct hcp_err *err);
int hcp_db_add_row(hcp_db *db, hcp_db_adder *add, const void *row,
                   enum hcp_db_outcome *outcome, struct hcp_err *err);

/* Binds "" and unknown numbers as NULL. */
void hcp_bind_text(sqlite3_stmt *s, int i, const char *text);
void hcp_bind_real(sqlite3_stmt *s, int i, double v);
void hcp_bind_int(sqlite3_stmt *s, int i, int64_t v, int64_t unknown);
/* Text of a result column cut to size; NULL -> "". */
void hcp_column_copy(sqlite3_stmt *s, int i, char *out, size_t size);

/* One column of a row: into parameter i, out of result column i, compared (a NaN equals
 * a NaN). row is the struct that the column's list is about. */
void hcp_column_bind(sqlite3_stmt *s, int i, const struct hcp_column *c, const void *row);
void hcp_column_read(sqlite3_stmt *s, int i, const struct hcp_column *c, void *row);
int hcp_column_equal(const struct hcp_column *c, const void *a, const void *b);

/* A kind of row other than cells. Own columns are t.NAME, the others come from what
 * `from` joins. `lookup` joins the same in the order in which one row is found by index:
 * left alone, SQLite goes through all rows of a run. `order` begins with " ORDER BY". */
struct hcp_rows {
    const char *table, *from, *lookup, *order;
    const struct hcp_column *columns;
    size_t n;
    const char *const *identity; /* names of columns; ends with NULL */
};
extern const struct hcp_rows hcp_bandwidth_rows, hcp_finish_rows, hcp_link_rows,
    hcp_topology_rows, hcp_interference_rows, hcp_drift_rows, hcp_linear_rows,
    hcp_ring_rows, hcp_ring_rank_rows;
/* Every column to "not known". row must be all zero bytes before. */
void hcp_rows_unknown(const struct hcp_rows *rows, void *row);
/* The column of that name; NULL if there is none. */
const struct hcp_column *hcp_rows_column(const struct hcp_rows *rows, const char *name);
/* SELECT every column (and then `more`, "" or ", EXPRESSION") with this WHERE, in the
 * list's order; NULL and err on failure. The caller binds and finalizes. */
sqlite3_stmt *hcp_rows_select(hcp_db *db, const struct hcp_rows *rows, const char *more,
                              const char *where, struct hcp_err *err);
void hcp_rows_read(sqlite3_stmt *s, const struct hcp_rows *rows, void *row);
/* The stored row of the same identity; *found 0: none. *id (NULL allowed): its row id;
 * the table must have one then. */
int hcp_rows_find(hcp_db *db, const struct hcp_rows *rows, const void *row, void *stored,
                  int *found, int64_t *id, struct hcp_err *err);
/* A value as text, "" where it is not known; number: room for one. (text of a field: the
 * field itself) */
const char *hcp_column_text(const struct hcp_column *c, const void *row, char number[32]);
/* 1 if the value is not known. */
int hcp_column_unknown(const struct hcp_column *c, const void *row);
/* 1 if all own columns are equal. */
int hcp_rows_same(const struct hcp_rows *rows, const void *a, const void *b);
/* INSERT of the own columns and n_refs others (names and values). */
int hcp_rows_insert(hcp_db *db, const struct hcp_rows *rows, const char *const *ref_names,
                    const int64_t *refs, size_t n_refs, const void *row,
                    struct hcp_err *err);

/* Rows of runs, behind one face whatever their struct. Their lists have the columns of a
 * provenance (origin, run_uid, host ...) and of a device (device, device_uuid,
 * device_name, sm_count), those of pairs a peer's too (peer_device, peer_uuid, peer_name,
 * peer_sm_count, peer_host). */
enum { HCP_ROW_BYTES = 2048 }; /* no struct of a row is larger */
struct hcp_kind {
    const struct hcp_rows *rows;
    const char *words; /* in the column `kind` of a text file; the table's own column of
                          that name says which, where there are two */
    int version;       /* of the text format that brought it */
    size_t size;       /* of the struct */
    void (*init)(void *row);
    int (*validate)(const void *row, struct hcp_err *err);
};
enum { HCP_N_KINDS = 7 };
extern const struct hcp_kind hcp_bandwidth_kind, hcp_finish_kind, hcp_link_kind,
    hcp_topology_kind, hcp_interference_kind, hcp_drift_kind, hcp_linear_kind;
extern const struct hcp_kind *const hcp_kinds[HCP_N_KINDS]; /* in the order of a file */
/* Visits the rows that pass the filter in the list's order; of a pair, device and limit
 * must be those of one end, host that of either; what the list has no column for does not
 * count. */
int hcp_kind_each(hcp_db *db, const struct hcp_kind *kind,
                  const struct hcp_filter *filter,
                  int (*visit)(const void *row, void *ctx), void *ctx,
                  struct hcp_err *err);
/* 0 if the filter asks for something that rows of this kind have not (a kernel, a shape,
 * a mask, a status). */
int hcp_kind_answers(const struct hcp_kind *kind, const struct hcp_filter *filter);
/* Validates a row and stores it unless there is one of its identity. */
int hcp_kind_add(hcp_db *db, const struct hcp_kind *kind, const void *row,
                 enum hcp_db_outcome *outcome, struct hcp_err *err);
/* The face of a kind, and the functions of db.h that differ from kind to kind in nothing
 * but the type of the row. */
#define HCP_KIND(kind, type, init, validate, words, version)                             \
    static void init_row(void *row)                                                      \
    {                                                                                    \
        _Static_assert(sizeof(type) <= HCP_ROW_BYTES, "grow HCP_ROW_BYTES");             \
        init(row);                                                                       \
    }                                                                                    \
    static int validate_row(const void *row, struct hcp_err *err)                        \
    {                                                                                    \
        return validate(row, err);                                                       \
    }                                                                                    \
    const struct hcp_kind hcp_##kind##_kind = {                                          \
        &hcp_##kind##_rows, words, version, sizeof(type), init_row, validate_row};       \
    struct visitor {                                                                     \
        int (*visit)(const type *row, void *ctx);                                        \
        void *ctx;                                                                       \
    };                                                                                   \
    static int visit_row(const void *row, void *ctx)                                     \
    {                                                                                    \
        const struct visitor *v = ctx;                                                   \
                                                                                         \
        return v->visit(row, v->ctx);                                                    \
    }                                                                                    \
    int hcp_db_each_##kind(hcp_db *db, const struct hcp_filter *filter,                  \
                           int (*visit)(const type *row, void *ctx), void *ctx,          \
                           struct hcp_err *err)                                          \
    {                                                                                    \
        struct visitor v = {visit, ctx};                                                 \
                                                                                         \
        return hcp_kind_each(db, &hcp_##kind##_kind, filter, visit_row, &v, err);        \
    }                                                                                    \
    int hcp_db_add_##kind(hcp_db *db, const type *row, enum hcp_db_outcome *outcome,     \
                          struct hcp_err *err)                                           \
    {                                                                                    \
        return hcp_kind_add(db, &hcp_##kind##_kind, row, outcome, err);                  \
    }

/* Checks that rows share (check.c). name: the column, for the message. */
int hcp_check_texts(const struct hcp_column *columns, size_t n, const void *row,
                    struct hcp_err *err);
int hcp_check_range(const char *name, int64_t v, int64_t min, int64_t max,
                    struct hcp_err *err);
/* expected: words separated by ' ' that value may be. */
int hcp_check_word(const char *name, const char *value, const char *expected,
                   struct hcp_err *err);
/* batch .. head_dim; heads % kv_heads */
int hcp_check_heads(int32_t batch, int32_t heads, int32_t kv_heads, int32_t head_dim,
                    struct hcp_err *err);
int hcp_check_device(const char *device, const char *limit, struct hcp_err *err);
int hcp_check_sms(int32_t sm_seen, int32_t sm_count, struct hcp_err *err);
/* Known times: above zero, within TIME_MS; in ascending order; NaN is left out. */
struct hcp_named_time {
    const char *name;
    double ms;
};
int hcp_check_times(const struct hcp_named_time *times, size_t n, struct hcp_err *err);
/* The shape of a block: key without the device, mask, lengths. */
int hcp_check_block(const struct hcp_key *key, const char *mask, int64_t q_len,
                    int64_t kv_len, struct hcp_err *err);
int hcp_check_transfer(const char *transport, int32_t channels, int64_t bytes,
                       struct hcp_err *err);
/* Origin, and a run that the row belongs to. */
int hcp_check_provenance(const struct hcp_provenance *from, struct hcp_err *err);
/* A known clock: above zero. */
int hcp_check_clock(const char *name, double mhz, struct hcp_err *err);
/* Not faster than the roofline of the SMs that it ran on: a unit mistake or another
 * device. peak_tflops: of the whole device, NaN: the data sheet's. */
int hcp_check_utilisation(double tflops, double peak_tflops, const char *device,
                          const char *dtype, const char *origin, int32_t sm_seen,
                          int32_t sm_count, struct hcp_err *err);
/* A median between its quartiles. */
int hcp_check_measured(double p25_ms, double time_ms, double p75_ms, struct hcp_err *err);

/* One point a size, ascending: the median of its times. *out malloc'ed. HCP_NO_ANSWER:
 * fewer than two sizes. */
int hcp_link_points(const int64_t *bytes, const double *time_ms, size_t n,
                    struct hcp_link_point **out, size_t *sizes, struct hcp_err *err);

/* Rows of run and device that a cell or bandwidth row belongs to; made if missing.
 * A run whose host, driver ... contradict the stored ones: HCP_FAILED. */
int hcp_db_run_id(hcp_db *db, const char *uid, const char *host, const char *origin,
                  const char *driver, const char *cuda_version, const char *tool_version,
                  const char *started_at, int64_t *id, struct hcp_err *err);
int hcp_db_device_id(hcp_db *db, const char *slug, const char *uuid, const char *name,
                     int32_t sm_count, int64_t *id, struct hcp_err *err);

/* Brings a file of version user_version up to n_steps by running steps[version..],
 * all in one transaction. */
int hcp_db_migrate(hcp_db *db, const char *const *steps, int n_steps,
                   struct hcp_err *err);
extern const char *const hcp_schema_steps[];
extern const int hcp_n_schema_steps;

/* Order by what identifies a cell: run, device and UUID, key, mask, lengths. */
int hcp_cell_compare_identity(const struct hcp_cell *a, const struct hcp_cell *b);
/* 1 if two cells of one identity carry the same measurement: every field of the cell,
 * raw samples too; what the run or the device says (host, driver ...) aside. */
int hcp_cell_same(const struct hcp_cell *a, const struct hcp_cell *b);

/* The stored cell of the same identity. HCP_FAILED when there is none. Raw samples
 * malloc'ed. */
int hcp_db_stored_cell(hcp_db *db, const struct hcp_cell *cell, struct hcp_cell *out,
                       struct hcp_err *err);
/* The cell with this row id. HCP_FAILED when there is none. Raw samples malloc'ed. */
int hcp_db_get_cell(hcp_db *db, int64_t id, struct hcp_cell *out, struct hcp_err *err);

#endif
