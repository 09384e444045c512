/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts two ring runs into the database that is named, as hcp-ring does after a run.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "db/db.h"

static void fill_rank(struct hcp_ring_rank_row *k, const char *limit, int64_t tokens)
{
    hcp_ring_rank_init(k);
    strcpy(k->device, "toy-cpu");
    strcpy(k->limit, limit);
    k->tokens = tokens;
    k->predicted_ms = 2.5;
    k->compute_ms = 1.5;
    k->wait_ms = 0.5;
    k->total_ms = 2;
}

static int add(hcp_db *db, const char *uid, double predicted_ms, struct hcp_err *err)
{
    struct hcp_ring_rank_row ranks[3];
    struct hcp_ring_run_row r;
    enum hcp_db_outcome outcome;

    hcp_ring_run_init(&r);
    strcpy(r.uid, uid);
    strcpy(r.strategy, "best");
    strcpy(r.mask, "causal");
    strcpy(r.layout, "zigzag");
    strcpy(r.transport, "mpi");
    strcpy(r.provider, "cpu-blas");
    strcpy(r.dtype, "fp32");
    snprintf(r.from.measured_at, sizeof r.from.measured_at, "2026-11-29T12:00:00Z");
    r.batch = 1;
    r.heads = 4;
    r.kv_heads = 2;
    r.head_dim = 64;
    r.seq_len = 1000;
    r.makespan_ms = 2;
    r.predicted_ms = predicted_ms;
    r.bound_ms = 1.6;
    fill_rank(&ranks[0], "", 600);
    fill_rank(&ranks[1], "cpu:50", 200);
    fill_rank(&ranks[2], "cpu:50", 200);
    r.ranks = ranks;
    r.n_ranks = 3;
    return hcp_db_add_ring_run(db, &r, &outcome, err);
}

int main(int argc, char **argv)
{
    struct hcp_err err = {0};
    hcp_db *db = NULL;
    int rc = argc == 2 ? hcp_db_open(argv[1], HCP_DB_WRITE | HCP_DB_CREATE, &db, &err)
                       : hcp_fail(&err, HCP_USAGE, "usage: ring-rows FILE");

    if (!rc)
        rc = add(db, "ring-a", 2.5, &err);
    if (!rc)
        rc = add(db, "ring-b", NAN, &err);
    hcp_db_close(db);
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    return rc;
}
