/* SPDX-License-Identifier: Apache-2.0
 *
 * What every group takes: prefill of the whole batch, and a decode step, all layers. KV
 * that a plan of one batch, or of one run of prefill, does not know of is held beside it
 * as activations are, a token.
 */
#include <math.h>
#include <string.h>
#include "planner/disagg.h"

int disagg_set(const struct disagg_work *w, int kind)
{
    return kind == SEPARATE && w->q->objective == HCP_DISAGG_THROUGHPUT;
}

/* Bytes of K and V of a token, all layers, in one run of a phase. */
static int64_t unit_of(const struct disagg_work *w, int phase)
{
    const hcp_shape *shape = &w->d->shape[phase];
    int64_t kv = memory_times(memory_times(2, shape->batch),
                              memory_times(shape->kv_heads, shape->head_dim));

    kv = memory_times(kv, strcmp(shape->dtype, "fp32") == 0 ? 4 : 2);
    return memory_times(kv, w->layers);
}

int64_t disagg_beside(const struct disagg_work *w, int phase, int set)
{
    int64_t times = (phase == PREFILL ? (int64_t)w->runs : 1) * (set ? 2 : 1) - 1;

    return memory_times(times, unit_of(w, phase));
}

double disagg_linear_ms(const hcp_disagg *d, int32_t group, const int64_t *tokens)
{
    const struct disagg_group *g = &d->groups[group];
    double most = 0;

    for (size_t r = 0; r < d->n; r++) {
        double scale = d->ranks[r].time_scale, us = d->ranks[r].decode_linear_us;

        us *= scale > 0 ? scale : 1;
        if (g->place[r] >= 0 && tokens[g->place[r]] > 0 && us > most)
            most = us;
    }
    return most / 1e3;
}

hcp_status disagg_split(const struct disagg_work *w, int32_t group, int phase, int set,
                        char *text, size_t size, hcp_plan *plan)
{
    const hcp_ring *ring = w->d->groups[group].ring[phase];
    hcp_question q = w->ask[phase];

    if (w->d->memory)
        q.activation_bytes =
            memory_plus(q.activation_bytes, disagg_beside(w, phase, set));
    if (!ring)
        return plan_fail(text, size, HCP_STATUS_NO_MODEL,
                         "no kernel is profiled on all of %d ranks in %s; profile one on "
                         "each machine with 'hcp-profile run --db %s'",
                         (int)w->d->groups[group].n, w->d->models->path,
                         w->d->models->path);
    if (q.activation_bytes > MAX_TOKEN_BYTES)
        return plan_fail(
            text, size, HCP_STATUS_INVALID,
            "K and V of a token of all sequences and layers take %lld bytes, "
            "more than %lld; use a smaller batch",
            (long long)q.activation_bytes, (long long)MAX_TOKEN_BYTES);
    return hcp_plan_split(ring, &q, w->scratch, w->scratch_room, text, size, plan);
}

static hcp_plan scratch_plan(const struct disagg_work *w)
{
    hcp_plan plan;

    hcp_plan_init(&plan, w->plan_ranks, w->d->n, w->plan_segments, w->segments_room);
    return plan;
}

static void solve_group(struct disagg_work *w, int32_t group, int phase, int set)
{
    struct disagg_time *t = &w->time[phase][set][group];
    hcp_plan plan = scratch_plan(w);
    double times = w->layers, linear = 0;

    t->status = disagg_split(w, group, phase, set, NULL, 0, &plan);
    t->ms = t->lo_ms = t->hi_ms = HUGE_MS;
    if (t->status)
        return;
    for (size_t r = 0; r < plan.n_ranks; r++)
        t->tokens[r] = plan.ranks[r].tokens;
    if (phase == PREFILL)
        times *= w->runs;
    else
        linear = disagg_linear_ms(w->d, group, t->tokens);
    t->ms = (plan.makespan_ms + linear) * times;
    t->lo_ms = (plan.interval_lo_ms + linear) * times;
    t->hi_ms = (plan.interval_hi_ms + linear) * times;
}

/* A decode step on the shares that prefill leaves. */
static void solve_stay(struct disagg_work *w, int32_t group)
{
    const struct disagg_group *g = &w->d->groups[group];
    const struct disagg_time *from = &w->time[PREFILL][0][group];
    struct disagg_time *t = &w->stay[group];
    const hcp_question *q = &w->ask[DECODE];
    double lo_ms = 0, hi_ms = 0, linear;
    struct decode_score score;
    struct decode d;
    struct scratch s;

    *t = (struct disagg_time){HCP_STATUS_NO_MODEL, HUGE_MS, HUGE_MS, HUGE_MS,
                              from->tokens};
    if (from->status || !g->ring[DECODE])
        return;
    scratch_carve(&s, w->scratch, g->ring[DECODE]->n);
    decode_set(&d, g->ring[DECODE], &s, q->seq_len, q->layers, q->activation_bytes,
               q->link_alpha_us, q->link_gbps, q->merge);
    d.extrapolate = q->extrapolate != 0;
    t->status = decode_check_source(&d, from->tokens, NULL, 0);
    if (t->status)
        return;
    score = decode_eval(&d, from->tokens);
    t->status = score.none ? HCP_STATUS_INFEASIBLE : HCP_STATUS_OK;
    if (score.none)
        return;
    for (size_t r = 0; r < d.n; r++) {
        double ms = decode_rank_ms(&d, r, from->tokens[r]), lo, hi;

        if (from->tokens[r] == 0)
            continue;
        hcp_model_error(g->ring[DECODE]->ranks[r].model[d.kind], 0, 1, from->tokens[r],
                        &lo, &hi);
        lo_ms = ms * (1 - lo) > lo_ms ? ms * (1 - lo) : lo_ms;
        hi_ms = ms * (1 + hi) > hi_ms ? ms * (1 + hi) : hi_ms;
    }
    linear = disagg_linear_ms(w->d, group, from->tokens);
    t->ms = (score.ms + linear) * w->layers;
    t->lo_ms = (lo_ms + score.merge_ms + linear) * w->layers;
    t->hi_ms = (hi_ms + score.merge_ms + linear) * w->layers;
}

/* Groups by a phase's time, shortest first. */
static void line_up(struct disagg_work *w, int phase, int set)
{
    for (size_t g = 0; g < w->d->n_groups; g++) {
        w->value[g] = -w->time[phase][set][g].ms;
        w->order[phase][set][g] = (int32_t)g;
    }
    sort_descending(w->value, w->order[phase][set], w->d->n_groups);
}

void disagg_times(struct disagg_work *w)
{
    /* Room for a second batch is asked for where there are caps in bytes. */
    int two = disagg_set(w, SEPARATE) && w->d->memory;

    for (int phase = 0; phase < PHASES; phase++) {
        for (int set = 0; set < 2; set++) {
            if (set && !two) {
                w->time[phase][1] = w->time[phase][0];
                w->order[phase][1] = w->order[phase][0];
                continue;
            }
            for (size_t g = 0; g < w->d->n_groups; g++)
                solve_group(w, (int32_t)g, phase, set);
            line_up(w, phase, set);
        }
    }
    for (size_t g = 0; g < w->d->n_groups; g++)
        solve_stay(w, (int32_t)g);
}

hcp_status disagg_explain(struct disagg_work *w, int phase, char *text, size_t size)
{
    const hcp_disagg *d = w->d;
    int32_t largest = (int32_t)d->all;
    hcp_plan plan = scratch_plan(w);

    for (size_t g = 0; !d->groups[largest].ring[phase] && g < d->n_groups; g++)
        if (d->groups[g].ring[phase])
            largest = (int32_t)g;
    for (size_t g = 0; g < d->n_groups; g++)
        if (d->groups[g].ring[phase] && d->groups[g].n > d->groups[largest].n)
            largest = (int32_t)g;
    return disagg_split(w, largest, phase, 0, text, size, &plan);
}
