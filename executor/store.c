/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "executor/program.h"

/* "20261129T121314Z-1a2b3c4d", a new one for each result. */
static void stamp(char uid[40], char now[24])
{
    time_t t = time(NULL);
    uint32_t random = 0;
    struct tm utc;

    gmtime_r(&t, &utc);
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint32_t)clock();
    strftime(now, 24, "%Y-%m-%dT%H:%M:%SZ", &utc);
    strftime(uid, 40, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(uid + strlen(uid), 40 - strlen(uid), "-%08x", (unsigned)random);
}

#define COPY(to, from) snprintf((to), sizeof(to), "%s", (from))

static void fill_ranks(const struct ring_program *p, const struct ring_result *r,
                       struct hcp_ring_rank_row *ranks)
{
    for (size_t k = 0; k < r->plan->n_ranks; k++) {
        const hcp_plan_rank *planned = &r->plan->ranks[k];
        const struct ring_peer *peer = &p->peers[k];
        struct hcp_ring_rank_row *row = &ranks[k];
        int in = planned->tokens > 0 || planned->kv_tokens > 0;

        hcp_ring_rank_init(row);
        COPY(row->device, peer->device);
        COPY(row->limit, peer->limit);
        COPY(row->uuid, peer->uuid);
        COPY(row->name, peer->name);
        COPY(row->host, peer->host);
        row->sm_count = peer->sm_count;
        row->sm_seen = peer->sm_seen;
        row->tokens = planned->tokens;
        row->predicted_ms = in ? planned->predicted_ms : 0;
        row->predicted_compute_ms = in ? planned->compute_ms : 0;
        row->compute_ms = r->ranks[k].compute_ms;
        row->wait_ms = r->ranks[k].wait_ms;
        row->transfer_ms = r->ranks[k].transfer_ms;
        row->total_ms = r->ranks[k].total_ms;
    }
}

/* The kernel, and what of the run has no column: NCCL's channels, where KV was. */
static void fill_note(const struct ring_program *p, const struct ring_result *r,
                      char *note, size_t size)
{
    size_t at = (size_t)snprintf(note, size, "%s", r->config);

    if (p->o.channels && at < size)
        at += (size_t)snprintf(note + at, size - at, "; %d NCCL channels",
                               (int)p->o.channels);
    for (size_t k = 0; r->plan->joint && k < r->plan->n_ranks && at < size; k++)
        at += (size_t)snprintf(note + at, size - at, "%s%lld", k ? "/" : "; KV ",
                               (long long)r->plan->ranks[k].kv_tokens);
}

static void fill_run(const struct ring_program *p, const struct ring_result *r,
                     struct hcp_ring_run_row *row)
{
    const hcp_plan *plan = r->plan;

    hcp_ring_run_init(row);
    stamp(row->uid, row->from.measured_at);
    snprintf(row->fingerprint, sizeof row->fingerprint, "%016llx",
             (unsigned long long)plan->fingerprint);
    COPY(row->strategy, hcp_strategy_name(plan->strategy));
    COPY(row->mask, plan->causal ? "causal" : "full");
    COPY(row->layout, hcp_layout_name(plan->layout));
    COPY(row->transport, r->transport);
    COPY(row->provider, r->provider);
    COPY(row->provider_version, p->place.self.provider_version);
    COPY(row->dtype, plan->shape.dtype);
    row->batch = plan->shape.batch;
    row->heads = plan->shape.heads;
    row->kv_heads = plan->shape.kv_heads;
    row->head_dim = plan->shape.head_dim;
    row->seq_len = plan->seq_len;
    row->tile = plan->tile > 0 ? plan->tile : -1;
    row->stripes = plan->stripes;
    row->buffers = r->buffers;
    row->sub_blocks = r->sub_blocks;
    row->barrier = r->barrier;
    row->repeats = r->repeats;
    row->makespan_ms = r->makespan.median;
    row->ci_lo_ms = r->makespan.ci_lo;
    row->ci_hi_ms = r->makespan.ci_hi;
    row->min_ms = r->makespan.min;
    row->predicted_ms = plan->makespan_ms;
    row->predicted_lo_ms = plan->interval_lo_ms;
    row->predicted_hi_ms = plan->interval_hi_ms;
    row->bound_ms = plan->bound_ms;
    row->efficiency = plan->bound_ms / r->makespan.median;
    row->max_error = ring_result_error(r);
    fill_note(p, r, row->note, sizeof row->note);
    COPY(row->from.origin, "measured");
    COPY(row->from.host, p->peers[0].host);
    COPY(row->from.driver, p->peers[0].driver);
    COPY(row->from.cuda_version, p->peers[0].cuda_version);
    COPY(row->from.tool_version, PACKAGE_VERSION);
}

/* Whether the ranks ran on the plan's devices. */
static int on_its_devices(const struct ring_program *p, const hcp_plan *plan)
{
    for (size_t k = 0; k < plan->n_ranks; k++)
        if (strcmp(p->peers[k].device, plan->ranks[k].device) != 0 ||
            strcmp(p->peers[k].limit, plan->ranks[k].limit) != 0)
            return 0;
    return 1;
}

static void forget_predictions(struct hcp_ring_run_row *row)
{
    row->predicted_ms = row->predicted_lo_ms = row->predicted_hi_ms = NAN;
    row->bound_ms = row->efficiency = NAN;
    for (size_t k = 0; k < row->n_ranks; k++)
        row->ranks[k].predicted_ms = row->ranks[k].predicted_compute_ms = NAN;
}

/* Search lists the best found once more if it is one of the given plans. */
static int listed_before(const struct ring_result *results, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (results[k].plan == results[i].plan && results[k].times == results[i].times)
            return 1;
    return 0;
}

int ring_store(const struct ring_program *p, const struct ring_result *results, size_t n,
               struct hcp_err *err)
{
    hcp_db *db = NULL;
    const char *path;
    int rc;

    if (p->o.no_store || (p->o.n_plan_files && !p->o.db) || p->o.layer.hidden ||
        ring_plan_is_decode(&p->plans.plans[0]) || ring_documents_any(&p->plans))
        return HCP_OK; /* rows are of one sequence's attention in prefill */
    path = hcp_cli_db(p->o.db, err);
    rc = path ? hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &db, err) : err->code;
    if (rc == HCP_OK)
        rc = hcp_db_begin(db, err);
    for (size_t i = 0; rc == HCP_OK && i < n; i++) {
        struct hcp_ring_run_row row;
        enum hcp_db_outcome outcome;

        if (listed_before(results, i))
            continue;
        fill_run(p, &results[i], &row);
        row.n_ranks = results[i].plan->n_ranks;
        row.ranks = calloc(row.n_ranks, sizeof *row.ranks);
        if (!row.ranks) {
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
        } else {
            fill_ranks(p, &results[i], row.ranks);
            if (!on_its_devices(p, results[i].plan))
                forget_predictions(&row);
            rc = hcp_db_add_ring_run(db, &row, &outcome, err);
        }
        free(row.ranks);
    }
    if (rc == HCP_OK)
        rc = hcp_db_commit(db, err);
    else if (db)
        hcp_db_rollback(db);
    hcp_db_close(db);
    return rc;
}
