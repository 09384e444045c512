/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/db-internal.h"

struct merge {
    hcp_db *into;
    const struct hcp_kind *kind;
    struct hcp_merge_tally *tally;
    struct hcp_err *err;
};

static void count(struct hcp_merge_tally *t, enum hcp_db_outcome outcome)
{
    t->kept += outcome == HCP_DB_STORED || outcome == HCP_DB_REPLACED;
    t->skipped += outcome == HCP_DB_SAME || outcome == HCP_DB_SUPERSEDED;
    t->conflicts += outcome == HCP_DB_CONFLICT;
}

static int add_cell(const struct hcp_cell *cell, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_cell(m->into, cell, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_of_kind(const void *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_kind_add(m->into, m->kind, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_ring_run(const struct hcp_ring_run_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_ring_run(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
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
int hcp_db_merge(hcp_db *into, hcp_db *from, struct hcp_merge_tally *tally,
                 struct hcp_err *err)
{
    struct hcp_merge_tally result = {0};
    struct merge m = {.into = into, .tally = &result, .err = err};
    int rc = hcp_db_begin(into, err);

    if (rc)
        return rc;
    rc = hcp_db_each_cell(from, NULL, 1, add_cell, &m, err);
    for (int i = 0; !rc && i < HCP_N_KINDS; i++) {
        m.kind = hcp_kinds[i];
        rc = hcp_kind_each(from, m.kind, NULL, add_of_kind, &m, err);
    }
    if (!rc)
        rc = hcp_db_each_ring_run(from, add_ring_run, &m, err);
    if (!rc)
        rc = hcp_db_each_run(from, add_note, &m, err);
    if (!rc)
        rc = hcp_db_each_model(from, NULL, count_model, &m, err);
    if (!rc)
        rc = hcp_db_commit(into, err);
    else
        hcp_db_rollback(into);
    if (!rc)
        *tally = result;
    return rc;
}
