/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "profiler/stats.h"

static void utc_now(char text[24], const char *format)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(text, 24, format, &tm);
}

void hcp_run_now(char text[24])
{
    utc_now(text, "%Y-%m-%dT%H:%M:%SZ");
}

void hcp_run_new_uid(char uid[40])
{
    uint32_t random = 0;
    char stamp[24];
    utc_now(stamp, "%Y%m%dT%H%M%SZ");
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint32_t)getpid();
    snprintf(uid, 40, "%s-%08x", stamp, random);
}

struct resume {
    struct hcp_sweep *run;
    struct hcp_level *level; /* of the filter */
    int64_t best_id;         /* newest row of a run that can be continued */
    char best_at[24];        /* of linear rows */
};

/* A GPU has its number from its maker. What stands for a CPU's comes from the machine's
 * id, which all nodes of one disk image share: its rows are of this host alone. */
static int is_here(const struct hcp_sweep *run, const char *uuid, const char *host)
{
    return strcmp(uuid, run->info.uuid) == 0 &&
           (strncmp(uuid, "CPU-", 4) != 0 || !*host || strcmp(host, run->host) == 0);
}

/* Rows of another machine, kernel version or kind are none of ours. */
static int visit_stored(const struct hcp_cell *c, void *ctx)
{
    struct resume *r = ctx;
    const struct hcp_device_info *info = &r->run->info;
    int replay =
        r->run->ops == &hcp_device_recorded_ops; /* versions vary from row to row */
    if (!is_here(r->run, c->device_uuid, c->host) ||
        strcmp(c->origin, info->origin) != 0 ||
        (!replay && strcmp(c->provider_version, info->provider_version) != 0))
        return 0;
    int causal = strcmp(c->mask, "causal") == 0, ok = strcmp(c->status, "ok") == 0;
    for (size_t i = 0; i < r->level->n; i++) {
        struct hcp_sweep_cell *cell = &r->level->cells[i];
        if (cell->causal != causal || cell->q_len != c->q_len ||
            cell->kv_len != c->kv_len || cell->seqs != c->key.batch || cell->finish)
            continue;
        if (ok) {
            cell->state = HCP_CELL_KEPT;
            cell->ms = c->time_ms;
            cell->tile_q = c->tile_q > 0 ? c->tile_q : 0;
            cell->tile_kv = c->tile_kv > 0 ? c->tile_kv : 0;
        } else if (cell->state == HCP_CELL_TODO && !r->run->options->retry_failed)
            cell->state = HCP_CELL_KEPT_FAILED;
    }
    if (ok && c->sm_seen > 0)
        r->level->sm_seen = c->sm_seen;
    struct hcp_sweep_cell stored = {
        .causal = causal, .q_len = c->q_len, .kv_len = c->kv_len, .seqs = c->key.batch};
    if (ok)
        hcp_estimate_add(&r->level->estimate, hcp_cell_work(&stored), c->time_ms);
    if (c->id > r->best_id && strcmp(c->host, r->run->host) == 0 &&
        strcmp(c->driver, info->driver) == 0 &&
        strcmp(c->cuda_version, info->cuda_version) == 0 &&
        strcmp(c->tool_version, PACKAGE_VERSION) == 0) {
        r->best_id = c->id;
        strcpy(r->run->run_uid, c->run_uid);
    }
    return 0;
}

/* The pass is no part of the kernel: rows of any version of it count. (What a kernel that
 * accumulates adds is, but its rows do not keep the version: --fresh measures them anew.)
 */
static int visit_finish(const struct hcp_finish_row *row, void *ctx)
{
    struct resume *r = ctx;
    if (!is_here(r->run, row->device_uuid, row->from.host) ||
        strcmp(row->from.origin, r->run->info.origin) != 0)
        return 0;
    for (size_t i = 0; i < r->level->n; i++) {
        struct hcp_sweep_cell *cell = &r->level->cells[i];
        if (cell->finish && cell->q_len == row->q_len && cell->seqs == row->key.batch &&
            strcmp(hcp_finish_name(cell->finish), row->kind) == 0)
            cell->state = HCP_CELL_KEPT;
    }
    return 0;
}

/* Of this library and version only: another one chooses other kernels. */
static int visit_linear(const struct hcp_linear_row *row, void *ctx)
{
    struct resume *r = ctx;
    const struct hcp_device_info *info = &r->run->info;
    if (!is_here(r->run, row->device_uuid, row->from.host) ||
        strcmp(row->from.origin, info->origin) != 0 ||
        strcmp(row->library, info->provider) != 0 ||
        strcmp(row->library_version, info->provider_version) != 0 ||
        strcmp(row->dtype, r->run->key.dtype) != 0)
        return 0;
    for (size_t i = 0; i < r->level->n; i++) {
        struct hcp_sweep_cell *cell = &r->level->cells[i];
        if (cell->q_len == row->tokens && cell->n_in == row->n_in &&
            cell->n_out == row->n_out) {
            cell->state = HCP_CELL_KEPT;
            cell->ms = row->time_ms;
        }
    }
    if (row->sm_seen > 0)
        r->level->sm_seen = row->sm_seen;
    if (strcmp(row->from.measured_at, r->best_at) > 0 &&
        strcmp(row->from.host, r->run->host) == 0 &&
        strcmp(row->from.driver, info->driver) == 0 &&
        strcmp(row->from.cuda_version, info->cuda_version) == 0 &&
        strcmp(row->from.tool_version, PACKAGE_VERSION) == 0) {
        strcpy(r->best_at, row->from.measured_at);
        strcpy(r->run->run_uid, row->from.run_uid);
    }
    struct hcp_sweep_cell stored = {
        .q_len = row->tokens, .n_in = row->n_in, .n_out = row->n_out};
    hcp_estimate_add(&r->level->estimate, hcp_cell_work(&stored), row->time_ms);
    return 0;
}

int hcp_run_resume(struct hcp_sweep *run, hcp_db *db, struct hcp_err *err)
{
    run->db = db;
    if (gethostname(run->host, sizeof run->host - 1) != 0)
        strcpy(run->host, "unknown");
    hcp_run_new_uid(run->run_uid);
    if (!run->db || run->options->fresh)
        return HCP_OK;
    struct resume r = {.run = run};
    for (size_t i = 0; i < run->n_levels; i++) {
        r.level = &run->levels[i];
        const struct hcp_key *k = &run->key;
        struct hcp_filter filter = {.device = k->device,
                                    .limit = r.level->limit,
                                    .limit_set = 1,
                                    .provider = k->provider,
                                    .dtype = k->dtype,
                                    .phase = k->phase,
                                    .batch = run->grid.n_batches > 1 ? 0 : k->batch,
                                    .heads = k->heads,
                                    .kv_heads = k->kv_heads,
                                    .head_dim = k->head_dim};
        struct hcp_filter products = {
            .device = k->device, .limit = r.level->limit, .limit_set = 1};
        int rc = run->options->linear
                     ? hcp_db_each_linear(run->db, &products, visit_linear, &r, err)
                     : hcp_db_each_cell(run->db, &filter, 0, visit_stored, &r, err);
        if (rc == HCP_OK && run->info.finishes)
            rc = hcp_db_each_finish(run->db, &filter, visit_finish, &r, err);
        if (rc != HCP_OK)
            return rc;
    }
    int rc = HCP_OK;
    for (size_t i = 0; i < run->n_levels && rc == HCP_OK; i++)
        rc = hcp_run_grow(run, &run->levels[i], err);
    return rc;
}

/* A longer block of the same mask that is faster beyond both intervals, or the
 * other way round: measured all the same, but said. */
static void note_order(const struct hcp_level *level, const struct hcp_sweep_cell *cell,
                       struct hcp_cell *row)
{
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *o = &level->cells[i];
        if (o->state != HCP_CELL_OK || o->finish || o->causal != cell->causal ||
            o->seqs != cell->seqs || o->ci_hi_ms <= 0)
            continue;
        int smaller = o->q_len <= cell->q_len && o->kv_len <= cell->kv_len;
        int larger = o->q_len >= cell->q_len && o->kv_len >= cell->kv_len;
        if ((smaller && row->ci_hi_ms < o->ci_lo_ms) ||
            (larger && row->ci_lo_ms > o->ci_hi_ms)) {
            size_t n = strlen(row->note);
            snprintf(row->note + n, sizeof row->note - n,
                     "%s%s than the %s cell %lld x %lld", n ? "; " : "",
                     smaller ? "faster" : "slower", smaller ? "smaller" : "larger",
                     (long long)o->q_len, (long long)o->kv_len);
            return;
        }
    }
}

static void fill_clocks(struct hcp_cell *row, const struct hcp_cell_facts *f)
{
    strcpy(row->stop_reason, f->stop_reason);
    row->sm_clock_mhz = f->sm_clock_mhz;
    row->mem_clock_mhz = f->mem_clock_mhz;
    row->power_w = f->power_w;
    row->energy_j = f->energy_j;
    row->temperature_c = f->temperature_c;
    row->throttle_reasons = f->throttle_reasons;
}

static void fill_samples(struct hcp_cell *row, const struct hcp_cell_facts *f,
                         double *samples, const struct hcp_stats *s)
{
    fill_clocks(row, f);
    row->time_ms = s->median;
    row->min_ms = s->min;
    row->max_ms = s->max;
    row->p25_ms = s->p25;
    row->p75_ms = s->p75;
    row->ci_lo_ms = s->ci_lo;
    row->ci_hi_ms = s->ci_hi;
    row->samples = s->n;
    row->outliers = s->outliers;
    row->n_raw = s->n;
    row->raw_ms = samples;
    row->cupti_ms = f->cupti_ms;
    strcpy(row->method, f->method);
    strcpy(row->cache, f->cache);
    row->boosted_ms = f->boosted_ms;
    row->tile_q = f->tile_q;
    row->tile_kv = f->tile_kv;
    strcpy(row->provider_config, f->provider_config);
    strcpy(row->note, f->note);
}

/* Clocks fall within the first tens of milliseconds: a row with another warm-up than
 * usual says so. */
static void note_warm_up(const struct hcp_sweep *run, struct hcp_cell *row)
{
    size_t n = strlen(row->note);
    if (run->ops->in_worker && !isnan(run->options->warmup_s))
        snprintf(row->note + n, sizeof row->note - n, "%swarm-up %.0f ms", n ? "; " : "",
                 1e3 * run->cost.warmup_s);
}

/* One transaction a row, of one kind (the others NULL). Rows that took no time to get,
 * replayed or computed, share one for up to 0.2 s: a disk takes longer. *state: how
 * the row's cell stands now. Another sweep that continues the same run may have stored it
 * meanwhile: then that one stays. */
static int put(struct hcp_sweep *run, const struct hcp_cell *cell,
               const struct hcp_finish_row *finish, const struct hcp_linear_row *linear,
               struct hcp_sweep_cell *of, struct hcp_err *err)
{
    int rc = HCP_OK;
    enum hcp_db_outcome outcome = HCP_DB_STORED;
    hcp_waiting_begin();
    if (!run->ops->in_worker && run->batch_began_s == 0) {
        rc = hcp_db_begin(run->db, err);
        run->batch_began_s = rc == HCP_OK ? hcp_now_s() : 0;
    }
    if (rc == HCP_OK)
        rc = cell     ? hcp_db_add_cell(run->db, cell, &outcome, err)
             : finish ? hcp_db_add_finish(run->db, finish, &outcome, err)
                      : hcp_db_add_linear(run->db, linear, &outcome, err);
    hcp_waiting_end();
    if (rc == HCP_OK) {
        of->state = outcome == HCP_DB_CONFLICT || outcome == HCP_DB_SUPERSEDED
                        ? HCP_CELL_KEPT
                    : cell && strcmp(cell->status, "failed") == 0 ? HCP_CELL_BAD
                                                                  : HCP_CELL_OK;
        of->uncommitted = run->batch_began_s > 0;
    }
    if (rc == HCP_OK && run->batch_began_s > 0 && hcp_now_s() - run->batch_began_s > 0.2)
        rc = hcp_run_flush(run, err);
    return rc;
}

int hcp_run_flush(struct hcp_sweep *run, struct hcp_err *err)
{
    int open = run->batch_began_s > 0;
    run->batch_began_s = 0;
    if (!open)
        return HCP_OK;
    hcp_waiting_begin();
    int rc = hcp_db_commit(run->db, err);
    hcp_waiting_end();
    for (size_t l = 0; l < run->n_levels; l++)
        for (size_t i = 0; i < run->levels[l].n; i++) {
            struct hcp_sweep_cell *cell = &run->levels[l].cells[i];
            if (cell->uncommitted && rc != HCP_OK) /* rolled back */
                cell->state = HCP_CELL_TODO;
            cell->uncommitted = 0;
        }
    return rc;
}

static void fill_provenance(const struct hcp_sweep *run, struct hcp_provenance *from)
{
    const struct hcp_device_info *info = &run->info;
    strcpy(from->origin, info->origin);
    strcpy(from->run_uid, run->run_uid);
    strcpy(from->host, run->host);
    strcpy(from->driver, info->driver);
    strcpy(from->cuda_version, info->cuda_version);
    strcpy(from->tool_version, PACKAGE_VERSION);
    hcp_run_now(from->measured_at);
}

static int store_finish(struct hcp_sweep *run, struct hcp_level *level,
                        struct hcp_sweep_cell *cell, const struct hcp_cell_facts *facts,
                        double *samples, const char *error, struct hcp_err *err)
{
    const struct hcp_device_info *info = &run->info;
    struct hcp_stats stats = {0};
    struct hcp_finish_row row;
    struct hcp_err why;
    hcp_finish_row_init(&row);
    if (!error && (!facts || hcp_stats_summary(samples, facts->n, &stats) != 0))
        error = "a sample is not a number";
    row.key = run->key;
    row.key.batch = cell->seqs;
    strcpy(row.key.limit, level->limit);
    strcpy(row.kind, hcp_finish_name(cell->finish));
    row.q_len = cell->q_len;
    row.time_ms = stats.median;
    row.p25_ms = stats.p25;
    row.p75_ms = stats.p75;
    row.samples = stats.n;
    row.sm_count = info->sm_count > 0 ? info->sm_count : row.sm_count;
    row.sm_seen = level->sm_seen > 0 ? level->sm_seen : row.sm_seen;
    strcpy(row.device_uuid, info->uuid);
    strcpy(row.device_name, info->name);
    fill_provenance(run, &row.from);
    if (!error && hcp_finish_row_validate(&row, &why) != HCP_OK)
        error = why.text;
    if (error) {
        snprintf(level->finish_error, sizeof level->finish_error, "%s", error);
        cell->state = HCP_CELL_BAD;
        run->failed = 1;
        return HCP_OK;
    }
    return put(run, NULL, &row, NULL, cell, err);
}

static int store_linear(struct hcp_sweep *run, struct hcp_level *level,
                        struct hcp_sweep_cell *cell, const struct hcp_cell_facts *facts,
                        const double *samples, const char *error, struct hcp_err *err)
{
    const struct hcp_device_info *info = &run->info;
    struct hcp_stats stats = {0};
    struct hcp_linear_row row;
    struct hcp_err why;
    hcp_linear_row_init(&row);
    if (!error && (!facts || hcp_stats_summary(samples, facts->n, &stats) != 0))
        error = "a sample is not a number";
    strcpy(row.device, run->key.device);
    strcpy(row.limit, level->limit);
    strcpy(row.library, info->provider);
    strcpy(row.library_version, info->provider_version);
    strcpy(row.dtype, run->key.dtype);
    row.tokens = cell->q_len;
    row.n_in = cell->n_in;
    row.n_out = cell->n_out;
    row.time_ms = stats.median;
    row.p25_ms = stats.p25;
    row.p75_ms = stats.p75;
    row.samples = stats.n;
    if (facts)
        row.sm_clock_mhz = facts->sm_clock_mhz;
    row.sm_count = info->sm_count > 0 ? info->sm_count : row.sm_count;
    row.sm_seen = level->sm_seen > 0 ? level->sm_seen : row.sm_seen;
    strcpy(row.device_uuid, info->uuid);
    strcpy(row.device_name, info->name);
    fill_provenance(run, &row.from);
    if (!error && hcp_linear_row_validate(&row, &why) != HCP_OK)
        error = why.text;
    if (error) {
        snprintf(level->finish_error, sizeof level->finish_error, "%s", error);
        cell->state = HCP_CELL_BAD;
        run->failed = 1;
        return HCP_OK;
    }
    int rc = put(run, NULL, NULL, &row, cell, err);
    if (rc != HCP_OK)
        return rc;
    cell->ms = stats.median;
    hcp_estimate_add(&level->estimate, hcp_cell_work(cell), stats.median);
    return HCP_OK;
}

int hcp_run_store(struct hcp_sweep *run, struct hcp_level *level,
                  struct hcp_sweep_cell *cell, const struct hcp_cell_facts *facts,
                  double *samples, const char *error, struct hcp_err *err)
{
    if (cell->finish)
        return store_finish(run, level, cell, facts, samples, error, err);
    if (cell->n_out > 0)
        return store_linear(run, level, cell, facts, samples, error, err);
    const struct hcp_device_info *info = &run->info;
    struct hcp_stats stats = {0};
    struct hcp_cell row;
    hcp_cell_init(&row);
    row.key = run->key;
    row.key.batch = cell->seqs;
    strcpy(row.key.limit, level->limit);
    strcpy(row.mask, cell->causal ? "causal" : "full");
    row.q_len = cell->q_len;
    row.kv_len = cell->kv_len;
    if (!error && (!facts || hcp_stats_summary(samples, facts->n, &stats) != 0))
        error = "a sample is not a number";
    strcpy(row.status, error ? "failed" : "ok");
    snprintf(row.error, sizeof row.error, "%s", error ? error : "");
    if (!error)
        fill_samples(&row, facts, samples, &stats);
    else if (facts)
        fill_clocks(&row, facts);
    strcpy(row.origin, info->origin);
    strcpy(row.run_uid, run->run_uid);
    strcpy(row.host, run->host);
    strcpy(row.device_uuid, info->uuid);
    strcpy(row.device_name, info->name);
    row.sm_count = info->sm_count > 0 ? info->sm_count : row.sm_count;
    row.sm_seen = level->sm_seen > 0 ? level->sm_seen : row.sm_seen;
    row.peak_tflops = info->peak_tflops;
    strcpy(row.provider_version, info->provider_version);
    strcpy(row.check_result, run->check_result);
    strcpy(row.driver, info->driver);
    strcpy(row.cuda_version, info->cuda_version);
    strcpy(row.tool_version, PACKAGE_VERSION);
    hcp_run_now(row.measured_at);

    struct hcp_err why;
    if (!error && hcp_cell_validate(&row, &why) != HCP_OK) {
        /* What must never be stored as a measurement is kept as a failure. */
        return hcp_run_store(run, level, cell, NULL, NULL, why.text, err);
    }
    if (!error) {
        if (run->ops->in_worker && !isnan(row.energy_j)) /* of all visits */
            row.energy_j = row.power_w * row.time_ms / 1e3;
        note_warm_up(run, &row);
        note_order(level, cell, &row);
    }
    int rc = put(run, &row, NULL, NULL, cell, err);
    if (rc != HCP_OK)
        return rc;
    int failed = cell->state == HCP_CELL_BAD;
    run->failed |= failed;
    level->throttled += failed && strcmp(row.stop_reason, HCP_STOP_THROTTLED) == 0;
    if (!error && facts->boosted_ms > 0) {
        level->boosted_ms = facts->boosted_ms;
        level->sustained_ms = stats.median;
    }
    if (!error) {
        cell->ci_lo_ms = stats.ci_lo;
        cell->ci_hi_ms = stats.ci_hi;
        cell->ms = stats.median;
        cell->tile_q = row.tile_q > 0 ? row.tile_q : 0;
        cell->tile_kv = row.tile_kv > 0 ? row.tile_kv : 0;
        hcp_estimate_add(&level->estimate, hcp_cell_work(cell), stats.median);
    }
    return HCP_OK;
}
