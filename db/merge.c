/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/db.h"

struct merge {
    hcp_db *into;
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

static int add_bandwidth(const struct hcp_bandwidth *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_bandwidth(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_finish(const struct hcp_finish_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_finish(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_link(const struct hcp_link_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_link(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_topology(const struct hcp_topology_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_topology(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_interference(const struct hcp_interference_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_interference(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_drift(const struct hcp_drift_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_drift(m->into, row, &outcome, m->err);

    if (!rc)
        count(m->tally, outcome);
    return rc;
}

static int add_linear(const struct hcp_linear_row *row, void *ctx)
{
    struct merge *m = ctx;
    enum hcp_db_outcome outcome;
    int rc = hcp_db_add_linear(m->into, row, &outcome, m->err);

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
    struct merge m = {into, &result, err};
    int rc = hcp_db_begin(into, err);

    if (rc)
        return rc;
    rc = hcp_db_each_cell(from, NULL, 1, add_cell, &m, err);
    if (!rc)
        rc = hcp_db_each_bandwidth(from, NULL, add_bandwidth, &m, err);
    if (!rc)
        rc = hcp_db_each_finish(from, NULL, add_finish, &m, err);
    if (!rc)
        rc = hcp_db_each_link(from, NULL, add_link, &m, err);
    if (!rc)
        rc = hcp_db_each_topology(from, NULL, add_topology, &m, err);
    if (!rc)
        rc = hcp_db_each_interference(from, NULL, add_interference, &m, err);
    if (!rc)
        rc = hcp_db_each_drift(from, NULL, add_drift, &m, err);
    if (!rc)
        rc = hcp_db_each_linear(from, NULL, add_linear, &m, err);
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
