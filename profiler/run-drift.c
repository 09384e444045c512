/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks, temperature and neighbours change while a sweep runs. The first cell of each
 * level is measured again at its end, so that this is seen.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/run.h"
#include "profiler/stats.h"
#include "profiler/worker.h"

#define DRIFTED 0.01 /* repetitions of a sweep agree to 1 % */

void hcp_run_drift_note(struct hcp_level *level, const struct hcp_sweep_cell *cell,
                        const struct hcp_cell_facts *facts)
{
    struct hcp_drift *d = &level->drift;
    if (cell->finish || cell->n_out > 0) /* a drift row is about a block */
        return;
    if (d->cell) {
        d->others++;
        return;
    }
    d->cell = cell;
    d->at_s = hcp_now_s();
    d->first_ms = cell->ms;
    d->first_lo_ms = cell->ci_lo_ms;
    d->first_hi_ms = cell->ci_hi_ms;
    d->first_mhz = facts->sm_clock_mhz;
}

int hcp_run_has_drifted(const struct hcp_drift *drift)
{
    const struct hcp_drift *d = drift;
    return d->last_ms > 0 && fabs(d->last_ms / d->first_ms - 1) > DRIFTED &&
           (d->last_lo_ms > d->first_hi_ms || d->last_hi_ms < d->first_lo_ms);
}

/* As many visits as it had at first; *all is malloc'ed, n samples. */
static int visit_again(struct hcp_sweep *run, hcp_device *device,
                       const struct hcp_drift *d, double **all, int *n, double *mhz,
                       struct hcp_err *err)
{
    struct hcp_cell_request request;
    struct hcp_cell_facts facts;
    int visits = hcp_cost_visits(&run->cost, d->first_ms);
    hcp_run_request(run, d->cell, d->first_ms, &request);
    for (int i = 0; i < visits; i++) {
        double *samples = NULL;
        int rc = device->ops->prepare(device, &request, err);
        if (rc == HCP_OK)
            rc = device->ops->time(device, &request, &facts, &samples, err);
        if (rc != HCP_OK)
            return rc;
        double *more = realloc(*all, (size_t)(*n + facts.n) * sizeof *more);
        if (more) {
            memcpy(more + *n, samples, (size_t)facts.n * sizeof *more);
            *all = more;
            *n += facts.n;
        }
        free(samples);
        if (!more)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        if (i == 0) /* as for the row of a cell */
            *mhz = facts.sm_clock_mhz;
    }
    return HCP_OK;
}

static int store(struct hcp_sweep *run, const struct hcp_level *level,
                 const struct hcp_drift *d, struct hcp_err *err)
{
    const struct hcp_device_info *info = &run->info;
    enum hcp_db_outcome outcome;
    struct hcp_drift_row row;
    hcp_drift_row_init(&row);
    row.key = run->key;
    row.key.batch = d->cell->seqs;
    strcpy(row.key.limit, level->limit);
    strcpy(row.mask, d->cell->causal ? "causal" : "full");
    row.q_len = d->cell->q_len;
    row.kv_len = d->cell->kv_len;
    row.first_ms = d->first_ms;
    row.last_ms = d->last_ms;
    row.first_sm_clock_mhz = d->first_mhz;
    row.last_sm_clock_mhz = d->last_mhz;
    row.seconds = d->seconds;
    row.sm_count = info->sm_count > 0 ? info->sm_count : row.sm_count;
    strcpy(row.device_uuid, info->uuid);
    strcpy(row.device_name, info->name);
    strcpy(row.from.origin, info->origin);
    strcpy(row.from.run_uid, run->run_uid);
    strcpy(row.from.host, run->host);
    strcpy(row.from.driver, info->driver);
    strcpy(row.from.cuda_version, info->cuda_version);
    strcpy(row.from.tool_version, PACKAGE_VERSION);
    hcp_run_now(row.from.measured_at);
    /* A conflict: two of one second. The one that is there says as much. */
    return hcp_db_add_drift(run->db, &row, &outcome, err);
}

int hcp_run_drift_check(struct hcp_sweep *run, struct hcp_level *level,
                        hcp_device *device, struct hcp_err *err)
{
    struct hcp_drift *d = &level->drift;
    if (!device->info.drifts || !d->cell || d->others == 0 || hcp_worker_stop)
        return HCP_OK;
    if (hcp_now_s() + hcp_run_cost_s(run, level, d->cell) > run->deadline_s) {
        snprintf(d->error, sizeof d->error, "no time was left for it");
        return HCP_OK;
    }
    struct hcp_err why = {0};
    struct hcp_stats stats;
    struct hcp_drift now = *d;
    double *samples = NULL, began_s = hcp_now_s();
    int n = 0, rc = visit_again(run, device, d, &samples, &n, &now.last_mhz, &why);
    if (rc == HCP_OK && hcp_stats_summary(samples, n, &stats) != 0)
        rc = hcp_fail(&why, HCP_FAILED, "a sample is not a number");
    free(samples);
    if (hcp_worker_stop)
        return hcp_fail(err, HCP_FAILED, "stopped");
    if (rc != HCP_OK) {
        snprintf(d->error, sizeof d->error, "%.250s", why.text);
        return HCP_OK;
    }
    d->error[0] = now.error[0] = '\0'; /* of an earlier turn of the level */
    d->others = now.others = 0;
    now.last_ms = stats.median;
    now.last_lo_ms = stats.ci_lo;
    now.last_hi_ms = stats.ci_hi;
    now.seconds = began_s - d->at_s;
    /* Of several turns the report has the one that is furthest off. */
    if (fabs(now.last_ms - d->first_ms) >= fabs(d->last_ms - d->first_ms) ||
        d->last_ms <= 0)
        *d = now;
    hcp_waiting_begin();
    rc = store(run, level, &now, err);
    hcp_waiting_end();
    return rc;
}

void hcp_run_explain_drift(const struct hcp_sweep *run)
{
    for (size_t i = 0; i < run->n_levels; i++) {
        const struct hcp_level *l = &run->levels[i];
        const struct hcp_drift *d = &l->drift;
        const char *limit = *l->limit ? l->limit : "none";
        if (*d->error)
            fprintf(stderr, "hcp-profile: %s@%s: not checked for drift: %s\n",
                    run->info.slug, limit, d->error);
        if (!hcp_run_has_drifted(d))
            continue;
        fprintf(stderr, "hcp-profile: %s@%s: drifted by %+.1f %% in %.0f s",
                run->info.slug, limit, 100 * (d->last_ms / d->first_ms - 1), d->seconds);
        if (d->first_mhz > 0 && d->last_mhz > 0)
            fprintf(stderr, ", SM clock %.0f -> %.0f MHz", d->first_mhz, d->last_mhz);
        fprintf(
            stderr,
            ": %s %lldx%lld took %.5g ms first, %.5g ms at the end; measure the limit "
            "again into another file (--db): fits take the median of all runs in "
            "one\n",
            d->cell->causal ? "causal" : "full", (long long)d->cell->q_len,
            (long long)d->cell->kv_len, d->first_ms, d->last_ms);
    }
}

json_t *hcp_run_drift_json(const struct hcp_level *level)
{
    const struct hcp_drift *d = &level->drift;
    if (d->last_ms <= 0)
        return json_null();
    json_t *doc = json_object();
    json_object_set_new(doc, "mask", json_string(d->cell->causal ? "causal" : "full"));
    json_object_set_new(doc, "q_len", json_integer(d->cell->q_len));
    json_object_set_new(doc, "kv_len", json_integer(d->cell->kv_len));
    json_object_set_new(doc, "first_ms", hcp_json_real(d->first_ms));
    json_object_set_new(doc, "last_ms", hcp_json_real(d->last_ms));
    json_object_set_new(doc, "first_sm_clock_mhz", hcp_json_real(d->first_mhz));
    json_object_set_new(doc, "last_sm_clock_mhz", hcp_json_real(d->last_mhz));
    json_object_set_new(doc, "seconds", hcp_json_real(round(d->seconds * 1e3) / 1e3));
    json_object_set_new(doc, "drifted", json_boolean(hcp_run_has_drifted(d)));
    return doc;
}
