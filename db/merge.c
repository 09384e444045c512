/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

enum { MAX_VALUES = 64 };

struct merge {
    hcp_db *into;
    const struct hcp_kind *kind;
    struct hcp_merge_tally *tally;
    int (*visit)(const struct hcp_merge_conflict *c, void *ctx);
    void *ctx;
    struct hcp_conflict_value values[MAX_VALUES]; /* identity, then what differs */
    struct hcp_err *err;
};

static void count(struct hcp_merge_tally *t, enum hcp_db_outcome outcome)
{
    t->kept += outcome == HCP_DB_STORED || outcome == HCP_DB_REPLACED;
    t->skipped += outcome == HCP_DB_SAME || outcome == HCP_DB_SUPERSEDED;
    t->conflicts += outcome == HCP_DB_CONFLICT;
}

static void put_value(struct hcp_conflict_value *v, const struct hcp_column *c,
                      const void *stored, const void *other)
{
    char number[32];

    v->name = c->name;
    v->number = c->type != HCP_COL_TEXT;
    snprintf(v->stored, sizeof v->stored, "%s", hcp_column_text(c, stored, number));
    snprintf(v->other, sizeof v->other, "%s", hcp_column_text(c, other, number));
}

static int in_list(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name))
        names++;
    return *names != NULL;
}

/* Columns that a table of rows has itself; the others are the run's or the device's. */
static int own(const struct hcp_column *c)
{
    return c->sql[1] == '.' && (c->sql[0] == 't' || c->sql[0] == 'c');
}

/* Tells about two rows of one identity. more: a difference that is in no column, NULL:
 * none. */
static int tell(struct merge *m, const char *kind, const struct hcp_column *columns,
                size_t n, const char *const *identity, const void *stored,
                const void *other, const struct hcp_conflict_value *more)
{
    struct hcp_merge_conflict c = {.kind = kind, .identity = m->values};

    for (size_t i = 0; i < n; i++)
        if (in_list(identity, columns[i].name) &&
            !(hcp_column_unknown(&columns[i], other)) && c.n_identity < MAX_VALUES / 2)
            put_value(&m->values[c.n_identity++], &columns[i], stored, other);
    c.differ = m->values + c.n_identity;
    for (size_t i = 0; i < n; i++)
        if (!in_list(identity, columns[i].name) && own(&columns[i]) &&
            !hcp_column_equal(&columns[i], stored, other) &&
            c.n_identity + c.n_differ < MAX_VALUES - 1)
            put_value(&m->values[c.n_identity + c.n_differ++], &columns[i], stored,
                      other);
    if (more)
        m->values[c.n_identity + c.n_differ++] = *more;
    return m->visit(&c, m->ctx);
}

static int tell_cell(struct merge *m, const struct hcp_cell *cell)
{
    static const char *const identity[] = {"run_uid",  "device",   "device_uuid", "limit",
                                           "provider", "dtype",    "phase",       "batch",
                                           "heads",    "kv_heads", "head_dim",    "mask",
                                           "q_len",    "kv_len",   NULL};
    struct hcp_conflict_value raw = {.name = "samples_ms", .number = 0};
    struct hcp_cell stored;
    int rc = hcp_db_stored_cell(m->into, cell, &stored, m->err), same;

    if (rc)
        return rc;
    same = stored.n_raw == cell->n_raw;
    for (int32_t i = 0; same && i < cell->n_raw; i++)
        same = stored.raw_ms[i] == cell->raw_ms[i];
    snprintf(raw.stored, sizeof raw.stored, "%d values", (int)stored.n_raw);
    snprintf(raw.other, sizeof raw.other, "%d%s values", (int)cell->n_raw,
             stored.n_raw == cell->n_raw ? " other" : "");
    rc = tell(m, "cell", hcp_columns, hcp_n_columns, identity, &stored, cell,
              same ? NULL : &raw);
    free(stored.raw_ms);
    return rc;
}

static int add_cell(const struct hcp_cell *cell, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_cell(m->into, cell, &outcome, m->err);

    if (rc)
        return rc;
    count(m->tally, outcome);
    return m->visit && outcome == HCP_DB_CONFLICT ? tell_cell(m, cell) : HCP_OK;
}

static int tell_of_kind(struct merge *m, const void *row)
{
    const struct hcp_rows *r = m->kind->rows;
    const struct hcp_column *word = hcp_rows_column(r, "kind");
    _Alignas(max_align_t) char stored[HCP_ROW_BYTES] = {0};
    int found = 0, rc = hcp_rows_find(m->into, r, row, stored, &found, NULL, m->err);

    if (rc || !found)
        return rc;
    return tell(m, word ? (const char *)row + word->offset : m->kind->words, r->columns,
                r->n, r->identity, stored, row, NULL);
}

static int add_of_kind(const void *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_kind_add(m->into, m->kind, row, &outcome, m->err);

    if (rc)
        return rc;
    count(m->tally, outcome);
    return m->visit && outcome == HCP_DB_CONFLICT ? tell_of_kind(m, row) : HCP_OK;
}

static int tell_ring(struct merge *m, const struct hcp_ring_run_row *row)
{
    static const struct hcp_conflict_value ranks = {
        .name = "ranks", .stored = "", .other = "other times or tokens"};
    struct hcp_ring_run_row stored = {0};
    int found = 0;
    int rc = hcp_rows_find(m->into, &hcp_ring_rows, row, &stored, &found, NULL, m->err);

    if (rc || !found)
        return rc;
    return tell(m, "ring", hcp_ring_rows.columns, hcp_ring_rows.n, hcp_ring_rows.identity,
                &stored, row,
                hcp_rows_same(&hcp_ring_rows, row, &stored) ? &ranks : NULL);
}

static int add_ring_run(const struct hcp_ring_run_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_ring_run(m->into, row, &outcome, m->err);

    if (rc)
        return rc;
    count(m->tally, outcome);
    return m->visit && outcome == HCP_DB_CONFLICT ? tell_ring(m, row) : HCP_OK;
}

static int add_note(const struct hcp_run *run, void *ctx)
{
    struct merge *m = ctx;

    return *run->note ? hcp_db_note_run(m->into, run->uid, run->note, m->err) : HCP_OK;
}

static int count_model(const struct hcp_model_row *row,
                       const struct hcp_named_array *arrays, size_t n_arrays, void *ctx)
{
    struct merge *m = ctx;

    (void)row, (void)arrays, (void)n_arrays;
    m->tally->models++;
    return HCP_OK;
}

/* Row by row through the same door as every other cell, so that a merged row is
 * checked like a measured one. */
static int merge_all(struct merge *m, hcp_db *from)
{
    struct hcp_err *err = m->err;
    int rc;

    rc = hcp_db_each_cell(from, NULL, 1, add_cell, m, err);
    for (int i = 0; !rc && i < HCP_N_KINDS; i++) {
        m->kind = hcp_kinds[i];
        rc = hcp_kind_each(from, m->kind, NULL, add_of_kind, m, err);
    }
    if (!rc)
        rc = hcp_db_each_ring_run(from, add_ring_run, m, err);
    if (!rc)
        rc = hcp_db_each_run(from, add_note, m, err);
    if (!rc)
        rc = hcp_db_each_model(from, NULL, count_model, m, err);
    return rc;
}

int hcp_db_merge_visit(hcp_db *into, hcp_db *from,
                       int (*visit)(const struct hcp_merge_conflict *c, void *ctx),
                       void *ctx, struct hcp_merge_tally *tally, struct hcp_err *err)
{
    struct hcp_merge_tally result = {0};
    struct merge *m = calloc(1, sizeof *m);
    int rc = m ? hcp_db_begin(into, err) : hcp_fail(err, HCP_FAILED, "out of memory");

    if (rc) {
        free(m);
        return rc;
    }
    m->into = into;
    m->tally = &result;
    m->visit = visit;
    m->ctx = ctx;
    m->err = err;
    rc = merge_all(m, from);
    if (!rc)
        rc = hcp_db_commit(into, err);
    else
        hcp_db_rollback(into);
    free(m);
    if (!rc)
        *tally = result;
    return rc;
}

int hcp_db_merge(hcp_db *into, hcp_db *from, struct hcp_merge_tally *tally,
                 struct hcp_err *err)
{
    return hcp_db_merge_visit(into, from, NULL, NULL, tally, err);
}
