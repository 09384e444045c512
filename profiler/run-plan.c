/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep measures next, and how long it will take.
 */
#include "config.h"
#include "profiler/run.h"
#include <math.h>
#include <string.h>
#include "profiler/watch.h"

/* Bound by memory: what it reads and writes, partial results taken to be fp32. */
static double predict_finish_ms(const struct hcp_sweep *run,
                                const struct hcp_level *level,
                                const struct hcp_sweep_cell *cell)
{
    const struct hcp_key *k = &run->key;
    double per_row = cell->finish == HCP_FINISH_MERGE ? 12 : 8;
    double bytes =
        per_row * (double)cell->q_len * cell->seqs * k->heads * (double)k->head_dim;
    return 1e-6 * bytes / (run->guess_gb_per_s * level->fraction);
}

double hcp_run_predict_ms(const struct hcp_sweep *run, const struct hcp_level *level,
                          const struct hcp_sweep_cell *cell)
{
    if (cell->finish)
        return predict_finish_ms(run, level, cell);
    double area = hcp_cell_work(cell);
    /* The measured level closest in size, scaled by what the limits' names say. */
    const struct hcp_level *near = NULL;
    for (size_t i = 0; i < run->n_levels; i++) {
        const struct hcp_level *l = &run->levels[i];
        if (l != level && l->estimate.n > 0 &&
            (!near || fabs(log(l->fraction / level->fraction)) <
                          fabs(log(near->fraction / level->fraction))))
            near = l;
    }
    double own = hcp_estimate_ms(&level->estimate, area);
    if (level->estimate.n == 0)
        own = near ? INFINITY : own / level->fraction;
    double other =
        near ? hcp_estimate_ms(&near->estimate, area) * near->fraction / level->fraction
             : INFINITY;
    return fmin(own, other);
}

double hcp_run_cost_s(const struct hcp_sweep *run, const struct hcp_level *level,
                      const struct hcp_sweep_cell *cell)
{
    struct hcp_cost cost = run->cost;
    if (!run->ops->in_worker) /* times are read or computed, not waited for */
        return cost.overhead_s;
    double ms = hcp_run_predict_ms(run, level, cell);
    if (strcmp(run->info.limit_kind, "cpu") == 0 && level->fraction < 1)
        ms = fmax(ms, 1e3 * HCP_CPU_SAMPLE_S); /* see device-cpu.c: choose_runs */
    if (run->ops == &hcp_device_cuda_ops && isnan(run->options->warmup_s) &&
        ms >= HCP_SUSTAIN_MS)
        cost.warmup_s = fmax(cost.warmup_s, HCP_SUSTAIN_S);
    return run->slip * hcp_cost_s(&cost, ms);
}

double hcp_run_level_left_s(const struct hcp_sweep *run, const struct hcp_level *level)
{
    double sum = 0, more = 0;
    int todo = 0, candidates = 0, wanted = 0;
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *c = &level->cells[i];
        wanted += c->wanted;
        if (c->state != HCP_CELL_TODO)
            continue;
        double cost = hcp_run_cost_s(run, level, c);
        if (cost > run->max_cell_s)
            continue;
        int due = hcp_run_is_due(run, c);
        *(due ? &sum : &more) += cost;
        todo += due;
        candidates += !due;
    }
    /* As many again as the starting set has, by experience. */
    if (candidates > 0)
        sum += more / candidates * fmin(candidates, fmax(8, wanted));
    return todo + candidates > 0 ? sum + run->open_s : 0;
}

double hcp_run_left_s(const struct hcp_sweep *run)
{
    double sum = 0;
    for (size_t i = 0; i < run->n_levels; i++)
        sum += hcp_run_level_left_s(run, &run->levels[i]);
    return sum;
}

/* Before anything is known, a cell in the middle of the range: it does not take long,
 * and says what the others take. */
static struct hcp_sweep_cell *scout(const struct hcp_sweep *run, struct hcp_level *level)
{
    struct hcp_sweep_cell *best = NULL;
    double lo = INFINITY, hi = 0, best_off = INFINITY;
    for (size_t l = 0; l < run->n_levels; l++)
        if (run->levels[l].estimate.n > 0)
            return NULL;
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *c = &level->cells[i];
        if (c->finish)
            continue;
        double area = hcp_cell_work(c);
        lo = fmin(lo, area);
        hi = fmax(hi, area);
    }
    for (size_t i = 0; i < level->n; i++) {
        struct hcp_sweep_cell *c = &level->cells[i];
        if (c->finish || !hcp_run_is_due(run, c))
            continue;
        double off = fabs(log(hcp_cell_work(c) / sqrt(lo * hi)));
        if (off < best_off) {
            best_off = off;
            best = c;
        }
    }
    return best;
}

size_t hcp_run_choose(const struct hcp_sweep *run, struct hcp_level *level,
                      double deadline_s, size_t max, struct hcp_sweep_cell **chunk)
{
    struct hcp_sweep_cell *first = scout(run, level);
    if (first && run->ops->in_worker) {
        double cost = hcp_run_cost_s(run, level, first);
        if (cost <= run->max_cell_s && hcp_now_s() + cost <= deadline_s) {
            chunk[0] = first;
            return 1;
        }
    }
    for (;;) {
        size_t n = 0;
        double end = hcp_now_s(), smallest_area = INFINITY;
        struct hcp_sweep_cell *smallest = NULL;
        for (size_t i = 0; i < level->n && n < max; i++) {
            struct hcp_sweep_cell *c = &level->cells[i];
            if (!hcp_run_is_due(run, c))
                continue;
            double cost = hcp_run_cost_s(run, level, c);
            if (cost <= run->max_cell_s && end + cost <= deadline_s) {
                chunk[n++] = c;
                end += cost;
            }
            double area = c->finish ? 0 : hcp_cell_work(c);
            if (area < smallest_area) {
                smallest_area = area;
                smallest = c;
            }
        }
        if (n > 0 || !smallest)
            return n;
        smallest->state = hcp_run_cost_s(run, level, smallest) > run->max_cell_s
                              ? HCP_CELL_SLOW
                              : HCP_CELL_NO_TIME;
        level->out_of_time |= smallest->state == HCP_CELL_NO_TIME;
    }
}
