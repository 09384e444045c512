/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/run.h"
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profiler/stats.h"
#include "profiler/worker.h"

enum {
    CHUNK = 8,       /* cells whose repetitions are interleaved; <= HCP_BENCH_PLANS */
    MAX_LOSSES = 10, /* workers that may die on one level */
    OPEN_TRIES = 3   /* of a new one; an MPS server takes a moment to recover */
};

void hcp_run_count(struct hcp_level *level)
{
    memset(level->counts, 0, sizeof level->counts);
    memset(level->finishes, 0, sizeof level->finishes);
    level->n_blocks = 0;
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *c = &level->cells[i];
        (c->finish ? level->finishes : level->counts)[c->state]++;
        level->n_blocks += !c->finish;
    }
}

int hcp_run_todo(const struct hcp_level *level)
{
    return level->counts[HCP_CELL_TODO] + level->finishes[HCP_CELL_TODO];
}

/* Something is left, and it is not only what an adaptive sweep could not choose. */
static int may_measure(const struct hcp_sweep *run, const struct hcp_level *level)
{
    return run->adaptive ? hcp_run_due(run, level) > 0 : hcp_run_todo(level) > 0;
}

/* Where times are read or computed, and nobody is in a hurry, cells left out by an
 * adaptive sweep are asked for all the same, to say what was missed. */
static int asks(const struct hcp_sweep *run)
{
    return run->adaptive && !run->ops->in_worker && isinf(run->deadline_s);
}

/* Opens the device under a level's limit and holds it against the device the sweep
 * began with. */
static int open_level(struct hcp_sweep *run, struct hcp_level *level, hcp_device **out,
                      struct hcp_err *err)
{
    struct hcp_device_config *config = &run->config;
    int mps = strncmp(level->limit, "mps:", 4) == 0 && run->ops == &hcp_device_cuda_ops;
    strcpy(config->limit, level->limit);
    snprintf(config->mps_pipe, sizeof config->mps_pipe, "%s",
             mps ? hcp_mps_pipe_dir(run->mps) : "");
    snprintf(config->mps_log, sizeof config->mps_log, "%s",
             mps ? hcp_mps_log_dir(run->mps) : "");
    config->sm_count = run->info.sm_count;
    const struct hcp_device_ops *ops =
        run->ops->in_worker ? &hcp_device_worker_ops : run->ops;
    hcp_device *device = NULL;
    double start = hcp_now_s();
    int rc = ops->open(config, &device, err);
    if (rc != HCP_OK)
        return rc;
    run->open_s = hcp_now_s() - start;
    const struct hcp_device_info *now = &device->info, *was = &run->info;
    if (strcmp(now->uuid, was->uuid) != 0 || strcmp(now->provider, was->provider) != 0 ||
        strcmp(now->provider_version, was->provider_version) != 0) {
        rc = hcp_fail(
            err, HCP_FAILED,
            "device or kernel changed between two levels: %s %s %s, was %s %s %s",
            now->uuid, now->provider, now->provider_version, was->uuid, was->provider,
            was->provider_version);
        ops->close(device);
        return rc;
    }
    level->sm_seen = device->info.sm_seen;
    *out = device;
    return HCP_OK;
}

struct visit {
    struct hcp_sweep_cell *cell;
    double expect_ms; /* of one run, by what was known before the chunk */
    struct hcp_cell_facts facts;
    double *samples;
};

void hcp_run_request(const struct hcp_sweep *run, const struct hcp_sweep_cell *cell,
                     double expect_ms, struct hcp_cell_request *request)
{
    const struct hcp_cost *cost = &run->cost;
    *request = (struct hcp_cell_request){.q_len = cell->q_len,
                                         .kv_len = cell->kv_len,
                                         .finish = (int32_t)cell->finish,
                                         .n_in = cell->n_in,
                                         .n_out = cell->n_out,
                                         .seqs = cell->seqs,
                                         .expect_ms = expect_ms};
    strcpy(request->mask, cell->causal ? "causal" : "full");
    hcp_measure_defaults(&request->rule);
    int visits = hcp_cost_visits(cost, expect_ms);
    request->rule.warmup_s = cost->warmup_s;
    request->rule.fixed_warmup = !isnan(run->options->warmup_s);
    request->rule.min_time_s = cost->min_time_s / visits;
    request->rule.cap_s = cost->cap_s / visits;
    request->rule.min_samples = (cost->min_samples + visits - 1) / visits;
    request->rule.few_samples = (cost->few_samples + visits - 1) / visits;
    request->rule.max_samples /= visits;
}

/* Adds a later visit's samples to the first one's. */
static int join(struct visit *v, const struct hcp_cell_facts *facts, double *samples)
{
    if (!v->samples) {
        v->facts = *facts;
        v->samples = samples;
        return 0;
    }
    size_t n = (size_t)v->facts.n, more = (size_t)facts->n;
    double *all = realloc(v->samples, (n + more) * sizeof *all);
    if (!all) {
        free(samples);
        return -1;
    }
    memcpy(all + n, samples, more * sizeof *all);
    free(samples);
    v->samples = all;
    v->facts.n += facts->n;
    if (v->facts.throttle_reasons >= 0 && facts->throttle_reasons >= 0)
        v->facts.throttle_reasons |= facts->throttle_reasons;
    strcpy(v->facts.stop_reason, facts->stop_reason);
    if (!isnan(facts->cupti_ms))
        v->facts.cupti_ms = facts->cupti_ms;
    if (isnan(v->facts.energy_j) && !isnan(facts->energy_j)) {
        v->facts.energy_j = facts->energy_j;
        v->facts.power_w = facts->power_w;
    }
    if (!*v->facts.note)
        strcpy(v->facts.note, facts->note);
    return 0;
}

static int finish(struct hcp_sweep *run, struct hcp_level *level, struct visit *v,
                  const char *error, struct hcp_err *err)
{
    int known = v->samples || *v->facts.stop_reason;
    int rc = hcp_run_store(run, level, v->cell, known ? &v->facts : NULL, v->samples,
                           error, err);
    if (rc == HCP_OK && v->cell->state == HCP_CELL_OK)
        hcp_run_drift_note(level, v->cell, &v->facts);
    free(v->samples);
    v->samples = NULL;
    return rc;
}

double hcp_run_ask(const struct hcp_sweep *run, hcp_device *device,
                   const struct hcp_sweep_cell *cell)
{
    struct hcp_cell_request request;
    struct hcp_cell_facts facts;
    struct hcp_stats stats = {0};
    struct hcp_err ignored;
    double *samples = NULL;
    hcp_run_request(run, cell, 0, &request);
    int rc = device->ops->prepare(device, &request, &ignored);
    if (rc == HCP_OK)
        rc = device->ops->time(device, &request, &facts, &samples, &ignored);
    if (rc == HCP_OK && hcp_stats_summary(samples, facts.n, &stats) != 0)
        stats.median = 0;
    free(samples);
    return stats.median;
}

static void show_progress(struct hcp_sweep *run, const struct hcp_level *level,
                          const struct hcp_sweep_cell *cell)
{
    char what[96];
    int total = 0, left = 0;
    if (!run->progress.active)
        return;
    snprintf(what, sizeof what, "%s %s q %lld kv %lld", level->limit,
             cell->causal ? "causal" : "full", (long long)cell->q_len,
             (long long)cell->kv_len);
    if (cell->finish)
        snprintf(what, sizeof what, "%s finish %s q %lld", level->limit,
                 hcp_finish_name(cell->finish), (long long)cell->q_len);
    if (cell->n_out > 0)
        snprintf(what, sizeof what, "%s linear %lld to %lld, %lld tokens", level->limit,
                 (long long)cell->n_in, (long long)cell->n_out, (long long)cell->q_len);
    if (run->grid.n_batches > 1) {
        size_t n = strlen(what);
        snprintf(what + n, sizeof what - n, " x %d", (int)cell->seqs);
    }
    for (size_t l = 0; l < run->n_levels; l++)
        for (size_t c = 0; c < run->levels[l].n; c++) {
            const struct hcp_sweep_cell *one = &run->levels[l].cells[c];
            int due = hcp_run_is_due(run, one);
            left += due;
            total += due || (one->state != HCP_CELL_TODO && one->state != HCP_CELL_KEPT);
        }
    hcp_progress_show(&run->progress, total - left, total, hcp_run_left_s(run), what);
}

/* A new worker for one that is lost. HCP_NO_ANSWER: the level cannot go on. */
static int replace_device(struct hcp_sweep *run, struct hcp_level *level,
                          hcp_device **device, int *losses, const char *last,
                          struct hcp_err *err)
{
    struct hcp_err why = {0};
    int rc = HCP_FAILED;
    (*device)->ops->close(*device);
    *device = NULL;
    if (++*losses > MAX_LOSSES)
        return hcp_fail(err, HCP_NO_ANSWER,
                        "given up after %d workers were lost, last: %s", *losses, last);
    for (int try = 0; try < OPEN_TRIES && rc != HCP_OK && !hcp_worker_stop; try++) {
        if (try > 0)
            poll(NULL, 0, 1000 * try);
        rc = open_level(run, level, device, &why);
    }
    if (rc == HCP_OK)
        return HCP_OK;
    return hcp_fail(err, HCP_NO_ANSWER,
                    "the device was lost in mid-sweep (%.500s) and could not be opened "
                    "again (%.400s); the same command goes on",
                    last, why.text);
}

/* The largest block that the level may come to: there boosted speed is measured too.
 * Rows of products do not keep one. */
static int is_largest(const struct hcp_level *level, const struct hcp_sweep_cell *cell)
{
    double work = hcp_cell_work(cell);
    if (cell->finish || cell->n_out > 0)
        return 0;
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *o = &level->cells[i];
        if (!o->finish && o->state != HCP_CELL_SLOW && o->state != HCP_CELL_NO_TIME &&
            o->state != HCP_CELL_MISSING && hcp_cell_work(o) > work)
            return 0;
    }
    return 1;
}

/* One visit of a cell; stores it if it is the last one, or has failed. */
static int visit_cell(struct hcp_sweep *run, struct hcp_level *level, hcp_device **device,
                      struct visit *v, int last, int *losses, struct hcp_err *err)
{
    struct hcp_cell_request request;
    struct hcp_cell_facts facts;
    struct hcp_err why = {0};
    hcp_run_request(run, v->cell, v->expect_ms, &request);
    request.boosted =
        !run->options->no_boosted && !v->samples && is_largest(level, v->cell);
    for (int try = 0;; try++) {
        double *samples = NULL, start = hcp_now_s();
        hcp_cell_facts_init(&facts); /* of a cell that fails before it is timed: none */
        int rc, got = (*device)->ops->prepare(*device, &request, &why);
        if (got == HCP_OK)
            got = (*device)->ops->time(*device, &request, &facts, &samples, &why);
        if (got != HCP_OK && hcp_worker_stop)
            return hcp_fail(err, HCP_FAILED, "stopped");
        int lost = (*device)->lost;
        if (lost) {
            rc = replace_device(run, level, device, losses, why.text, err);
            if (got != HCP_OK && lost == HCP_DEVICE_LOST_RETRY && try == 0 &&
                rc == HCP_OK)
                continue;       /* not this cell's fault */
            if (rc != HCP_OK) { /* too many lost is of the cells' own making */
                struct hcp_err ignored;
                if (*losses > MAX_LOSSES)
                    finish(run, level, v, why.text, &ignored);
                return rc;
            }
        }
        if (got == HCP_NO_ANSWER) {
            v->cell->state = HCP_CELL_MISSING;
            return HCP_OK;
        }
        if (got != HCP_OK) {
            if (!v->samples)
                v->facts = facts;
            return finish(run, level, v, why.text, err);
        }
        if (join(v, &facts, samples) != 0)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        rc = last ? finish(run, level, v, NULL, err) : HCP_OK;
        /* What took time is kept at once. */
        if (rc == HCP_OK && hcp_now_s() - start > 0.02)
            rc = hcp_run_flush(run, err);
        if (!run->ops->in_worker) /* what the next one is likely to take */
            run->cost.overhead_s += 0.2 * (hcp_now_s() - start - run->cost.overhead_s);
        return rc;
    }
}

/* Visits every cell of a chunk so many times, in turn; stores each after its last
 * visit. *device may be replaced (its worker was lost) or become NULL. */
static int measure_chunk(struct hcp_sweep *run, struct hcp_level *level,
                         hcp_device **device, struct visit *chunk, size_t n, int *losses,
                         struct hcp_err *err)
{
    for (int turn = 0; turn < run->cost.visits; turn++) {
        for (size_t i = 0; i < n; i++) {
            struct visit *v = &chunk[i];
            int visits = hcp_cost_visits(&run->cost, v->expect_ms);
            if (v->cell->state != HCP_CELL_TODO || turn >= visits)
                continue;
            show_progress(run, level, v->cell);
            int rc = visit_cell(run, level, device, v, turn == visits - 1, losses, err);
            if (rc == HCP_OK && hcp_worker_stop)
                rc = hcp_fail(err, HCP_FAILED, "stopped");
            if (rc != HCP_OK)
                return rc;
        }
    }
    return HCP_OK;
}

/* Gives a level up: its cells stay to do, the reason is kept for the report. */
static void give_up(struct hcp_sweep *run, struct hcp_level *level, const char *text)
{
    snprintf(level->error, sizeof level->error, "%s", text);
    run->failed = 1;
}

static int measure_level(struct hcp_sweep *run, struct hcp_level *level,
                         double deadline_s, struct hcp_err *err)
{
    hcp_device *device = NULL;
    struct hcp_err why = {0};
    int losses = 0, rc = open_level(run, level, &device, &why);
    if (rc != HCP_OK) {
        if (hcp_worker_stop)
            return hcp_fail(err, HCP_FAILED, "stopped");
        give_up(run, level, why.text);
        return HCP_OK;
    }
    double start = hcp_now_s();
    struct hcp_sweep_cell *cells[CHUNK];
    size_t n;
    while (rc == HCP_OK && (rc = hcp_run_grow(run, level, err)) == HCP_OK &&
           (n = hcp_run_choose(run, level, deadline_s, run->cost.visits > 1 ? CHUNK : 1,
                               cells)) > 0) {
        struct visit chunk[CHUNK] = {{0}};
        double expected_s = 0, began = hcp_now_s();
        for (size_t i = 0; i < n; i++) {
            chunk[i].cell = cells[i];
            chunk[i].expect_ms = hcp_run_predict_ms(run, level, cells[i]);
            expected_s += hcp_run_cost_s(run, level, cells[i]) / run->slip;
        }
        rc = measure_chunk(run, level, &device, chunk, n, &losses, err);
        if (run->ops->in_worker && expected_s > 0) {
            double ratio = (hcp_now_s() - began) / expected_s;
            run->slip = fmin(4, fmax(0.5, 0.5 * (run->slip + ratio)));
        }
        for (size_t i = 0; i < n; i++)
            free(chunk[i].samples);
    }
    struct hcp_err ignored; /* the first failure is the one to tell */
    int flushed = hcp_run_flush(run, rc == HCP_OK ? err : &ignored);
    rc = rc == HCP_OK ? flushed : rc;
    level->wall_s += hcp_now_s() - start;
    if (rc == HCP_OK && device)
        rc = hcp_run_drift_check(run, level, device, err);
    if (rc == HCP_OK)
        rc = hcp_run_judge(run, level, asks(run) ? device : NULL, err);
    if (device)
        device->ops->close(device);
    if (rc == HCP_NO_ANSWER) { /* the device under this limit, not the sweep */
        give_up(run, level, err->text);
        rc = HCP_OK;
    }
    return rc;
}

void hcp_run_close_whole(struct hcp_sweep *run)
{
    if (run->whole)
        run->whole->ops->close(run->whole);
    run->whole = NULL;
}

/* The daemon, if a level needs it: without one there is nothing to measure. */
static int start_mps(struct hcp_sweep *run, struct hcp_err *err)
{
    struct hcp_err why;
    int needed = 0;
    for (size_t i = 0; i < run->n_levels && run->ops == &hcp_device_cuda_ops; i++)
        needed |= strncmp(run->levels[i].limit, "mps:", 4) == 0;
    if (!needed || hcp_mps_start(&run->mps, &why) == HCP_OK)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "%.900s. '--limits green:SMS' needs no daemon, '--limits none' "
                    "measures the whole device",
                    why.text);
}

/* All levels once, in this order. */
static int measure_round(struct hcp_sweep *run, const size_t *order, size_t n,
                         struct hcp_err *err)
{
    int rc = HCP_OK;
    for (size_t i = 0; i < n && rc == HCP_OK; i++) {
        struct hcp_level *level = &run->levels[order[i]];
        hcp_run_count(level);
        if (!may_measure(run, level) && !asks(run))
            continue;
        double deadline_s = run->deadline_s, now_s = hcp_now_s();
        if (isfinite(deadline_s)) { /* its part of the time left, by the work left */
            double part = hcp_run_level_left_s(run, level), all = 0;
            for (size_t k = i; k < n; k++)
                all += hcp_run_level_left_s(run, &run->levels[order[k]]);
            if (all > 0)
                deadline_s = now_s + fmax(0, deadline_s - now_s) * part / all;
        }
        rc = measure_level(run, level, deadline_s, err);
    }
    return rc;
}

/* Cells that are stored, or have failed. */
static int count_done(struct hcp_sweep *run)
{
    int done = 0;
    for (size_t i = 0; i < run->n_levels; i++) {
        hcp_run_count(&run->levels[i]);
        done += run->levels[i].counts[HCP_CELL_OK] + run->levels[i].counts[HCP_CELL_BAD];
    }
    return done;
}

/* Adaptive levels that met their target early leave time to those that did not: these
 * have another turn, as long as that leads to something. */
static int reopen(struct hcp_sweep *run)
{
    int any = 0;
    for (size_t i = 0; i < run->n_levels; i++) {
        struct hcp_level *level = &run->levels[i];
        for (size_t k = 0; k < level->n && level->out_of_time; k++)
            if (level->cells[k].state == HCP_CELL_NO_TIME)
                level->cells[k].state = HCP_CELL_TODO;
        any |= level->out_of_time;
        level->out_of_time = 0;
    }
    return any;
}

static int measure_levels(struct hcp_sweep *run, struct hcp_err *err)
{
    size_t order[1024], n = run->n_levels < 1024 ? run->n_levels : 1024;
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    hcp_shuffle(order, n, sizeof *order, (uint64_t)run->options->seed);
    for (int done = count_done(run);;) {
        int rc = measure_round(run, order, n, err), now = count_done(run);
        if (rc != HCP_OK || !run->adaptive || now == done || !reopen(run))
            return rc;
        done = now;
    }
}

int hcp_run_measure(struct hcp_sweep *run, struct hcp_err *err)
{
    int todo = 0, rc = HCP_OK;
    for (size_t i = 0; i < run->n_levels && rc == HCP_OK; i++) {
        hcp_run_count(&run->levels[i]);
        todo += may_measure(run, &run->levels[i]);
        rc = hcp_run_judge(run, &run->levels[i], NULL, err);
    }
    if (rc == HCP_OK && (todo > 0 || asks(run))) {
        hcp_progress_init(&run->progress);
        rc = start_mps(run, err);
        if (rc == HCP_OK)
            rc = measure_levels(run, err);
        hcp_progress_clear(&run->progress);
    }
    int stored = 0;
    for (size_t i = 0; i < run->n_levels; i++) {
        hcp_run_count(&run->levels[i]);
        stored +=
            run->levels[i].counts[HCP_CELL_OK] + run->levels[i].finishes[HCP_CELL_OK];
    }
    if (run->mps && stored > 0 && rc == HCP_OK) {
        char note[96];
        snprintf(note, sizeof note,
                 "private MPS daemon, default active thread percentage %g",
                 hcp_mps_default_percentage(run->mps));
        rc = hcp_db_note_run(run->db, run->run_uid, note, err);
    }
    hcp_mps_stop(run->mps);
    run->mps = NULL;
    return rc;
}

void hcp_run_free(struct hcp_sweep *run)
{
    hcp_mps_stop(run->mps);
    hcp_run_close_whole(run);
    for (size_t i = 0; i < run->n_levels; i++) {
        free(run->levels[i].cells);
        hcp_estimate_free(&run->levels[i].estimate);
    }
    free(run->levels);
    hcp_grid_free(&run->grid);
    *run = (struct hcp_sweep){0};
}
