/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "planner/decision.h"
#include "planner/joint.h"
#include "planner/specs.h"

/* ---- what is outside the measured lengths ---- */

struct gap {
    const struct problem *p;
    size_t rank;
    const hcp_model *model;
    int64_t q_most, kv_most; /* of all missing blocks */
    int64_t n;               /* missing blocks */
    int64_t q_first, kv_first;
    int causal_first;
    size_t rank_first;
};

static void note(struct gap *gap, int causal, int64_t q_len, int64_t kv_len)
{
    hcp_model_source source;

    hcp_model_block_ms(gap->model, causal, q_len, kv_len, &source);
    if (source != HCP_SOURCE_EXTRAPOLATED)
        return;
    if (gap->n++ == 0) {
        gap->q_first = q_len;
        gap->kv_first = kv_len;
        gap->causal_first = causal;
        gap->rank_first = gap->rank;
    }
    gap->q_most = q_len > gap->q_most ? q_len : gap->q_most;
    gap->kv_most = kv_len > gap->kv_most ? kv_len : gap->kv_most;
}

static void note_joint(void *ctx, int causal, int64_t q_len, int64_t kv_len)
{
    note(ctx, causal, q_len, kv_len);
}

static void note_call(void *ctx, int64_t q_len, int64_t kv_len)
{
    note(ctx, 0, q_len, kv_len);
}

const char *answer_lengths(int causal, int64_t q_len, int64_t kv_len, int longer,
                           char out[64])
{
    int64_t longest = 1;

    if (longer) {
        while (longest < q_len || longest < kv_len)
            longest *= 2; /* the profiler's lengths are powers of two */
        snprintf(out, 64, "--max-len %lld", (long long)longest);
    } else if (causal) {
        snprintf(out, 64, "--causal-lens %lld", (long long)q_len);
    } else {
        snprintf(out, 64, "--q-lens %lld --kv-lens %lld", (long long)q_len,
                 (long long)kv_len);
    }
    return out;
}

hcp_status answer_outside(const struct problem *p, struct scratch *s,
                          const int64_t *tokens, const int64_t *kv, char *text,
                          size_t text_size)
{
    struct gap gap = {.p = p};
    const hcp_rank *spec;
    int64_t q_min, q_max, kv_min, kv_max;
    char lengths[64], run[224];

    if (kv)
        joint_lay_out(p, s, tokens, kv);
    for (size_t r = 0; r < p->n; r++) {
        if (tokens[r] == 0)
            continue;
        gap.rank = r;
        gap.model = problem_model(p, r);
        for (size_t i = 0; kv && i < p->n; i++)
            joint_each_call(p, s, r, i, kv, note_joint, &gap);
        if (kv)
            continue;
        note(&gap, p->causal, tokens[r], tokens[r]);
        for (size_t i = 0; i < p->n; i++)
            if (i != r && tokens[i] > 0)
                cost_each_call(p, tokens[r], tokens[i], i < r, note_call, &gap);
    }
    spec = &p->ring->ranks[gap.rank_first].spec;
    hcp_model_hull(problem_model(p, gap.rank_first), gap.causal_first, &q_min, &q_max,
                   &kv_min, &kv_max);
    return plan_fail(
        text, text_size, HCP_STATUS_OUTSIDE,
        "this needs block times outside the measured lengths (%lld), first %s q_len "
        "%lld, "
        "kv_len %lld on '%s%s%s' (rank %zu; measured q_len %lld..%lld, kv_len "
        "%lld..%lld); run 'hcp-profile run --db %s%s %s' on that machine, then "
        "'hcp-plan "
        "fit --db %s'; or allow extrapolation (--extrapolate)",
        (long long)gap.n, gap.causal_first ? "causal" : "full", (long long)gap.q_first,
        (long long)gap.kv_first, spec->device, spec->limit[0] ? "@" : "", spec->limit,
        gap.rank_first, (long long)q_min, (long long)q_max, (long long)kv_min,
        (long long)kv_max, p->ring->models->path,
        bind_run_options(spec->limit, &p->ring->shape, NULL, run),
        answer_lengths(gap.causal_first, gap.q_most, gap.kv_most,
                       gap.q_first > q_max || gap.kv_first > kv_max, lengths),
        p->ring->models->path);
}

/* ---- error interval ---- */

/* Sums of ms, and of ms times the lower and upper relative error. */
struct errors {
    const hcp_model *model;
    double weight, ms, below, above;
};

static void add_error(struct errors *e, int causal, int64_t q_len, int64_t kv_len)
{
    double lo, hi,
        ms = e->weight * hcp_model_block_ms(e->model, causal, q_len, kv_len, NULL);

    hcp_model_error(e->model, causal, q_len, kv_len, &lo, &hi);
    e->ms += ms;
    e->below += ms * lo;
    e->above += ms * hi;
}

static void add_joint_error(void *ctx, int causal, int64_t q_len, int64_t kv_len)
{
    add_error(ctx, causal, q_len, kv_len);
}

static void add_call_error(void *ctx, int64_t q_len, int64_t kv_len)
{
    add_error(ctx, 0, q_len, kv_len);
}

/* Mean error bars of a rank's blocks and linear work, by time; waiting is other ranks'
 * blocks and is taken to err as much. Blocks of neighbours with equal shares are weighed
 * together. */
static void rank_errors(const struct problem *p, struct scratch *s,
                        const struct answer *a, size_t c, double *lo, double *hi)
{
    struct errors e = {problem_model(p, c), 1, 0, 0, 0};
    const int64_t *tokens = a->tokens;

    if (p->linear) {
        double error = p->ring->ranks[c].spec.linear_error;

        e.ms = layer_ms(p, c, tokens[c]);
        e.below = e.ms * (error < 1 ? error : 1);
        e.above = e.ms * error;
    }
    if (a->kv) {
        joint_lay_out(p, s, tokens, a->kv);
        for (size_t r = 0; r < p->n; r++)
            joint_each_call(p, s, c, r, a->kv, add_joint_error, &e);
    } else {
        add_error(&e, p->causal, tokens[c], tokens[c]);
    }
    for (size_t side = a->kv ? 2 : 0; side < 2; side++) {
        size_t from = side == 0 ? 0 : c + 1, to = side == 0 ? c : p->n;

        for (size_t r = from; r < to;) {
            size_t end = r + 1;

            while (end < to && tokens[end] == tokens[r])
                end++;
            e.weight = (double)(end - r);
            if (tokens[r] > 0)
                cost_each_call(p, tokens[c], tokens[r], side == 0, add_call_error, &e);
            r = end;
        }
    }
    *lo = e.below / e.ms;
    *hi = e.above / e.ms;
}

/* That of the critical rank. With data sheets in the ring each end is that of the rank
 * that is last there: a measured rank may finish last, and a guess be far later. Of each
 * data sheet, and of those measured, the last rank counts. */
static void fill_interval(const struct problem *p, struct scratch *s,
                          const struct answer *a, size_t c, hcp_plan *plan)
{
    double lo, hi, lo_ms, hi_ms;

    rank_errors(p, s, a, c, &lo, &hi);
    lo_ms = plan->makespan_ms * (1 - lo);
    hi_ms = plan->makespan_ms * (1 + hi);
    for (int32_t e = -1; p->ring->n_estimates > 0 && e < (int32_t)p->ring->n_estimates;
         e++) {
        size_t last = p->n;

        for (size_t r = 0; r < p->n; r++)
            if (p->ring->ranks[r].estimate == e && a->tokens[r] > 0 &&
                (last == p->n || s->plan_fin[r] > s->plan_fin[last]))
                last = r;
        if (last == p->n)
            continue;
        rank_errors(p, s, a, last, &lo, &hi);
        lo = s->plan_fin[last] * (1 - lo);
        hi = s->plan_fin[last] * (1 + hi);
        lo_ms = lo > lo_ms ? lo : lo_ms;
        hi_ms = hi > hi_ms ? hi : hi_ms;
    }
    plan->interval_lo_ms = lo_ms;
    plan->interval_hi_ms = hi_ms;
}

/* ---- the plan ---- */

static void fill_ranks(const struct problem *p, const struct scratch *s,
                       const int64_t *tokens, hcp_plan *plan)
{
    size_t first = 0;

    plan->critical_rank = 0;
    for (size_t r = 0; r < p->n; r++) {
        const struct bound_rank *b = &p->ring->ranks[r];
        hcp_plan_rank *out = &plan->ranks[r];

        memcpy(out->device, b->spec.device, sizeof out->device);
        memcpy(out->limit, b->spec.limit, sizeof out->limit);
        estimate_kin_name(p->ring, r, out->kin);
        memset(out->model, 0, sizeof out->model);
        memcpy(out->model, b->model[p->kind] == b->model[HCP_MODEL_LUT] ? "lut" : "poly",
               b->model[p->kind] == b->model[HCP_MODEL_LUT] ? 3 : 4);
        out->max_tokens = b->spec.max_tokens;
        out->linear_before_us = b->spec.linear_before_us;
        out->linear_before_fixed_us = b->spec.linear_before_fixed_us;
        out->linear_after_us = b->spec.linear_after_us;
        out->linear_after_fixed_us = b->spec.linear_after_fixed_us;
        out->linear_error = b->spec.linear_error;
        out->time_scale = b->scale;
        out->linear_before_ms = layer_before_ms(p, r, tokens[r]);
        out->linear_after_ms = layer_after_ms(p, r, tokens[r]);
        out->max_bytes = b->spec.max_bytes;
        out->weight_bytes = b->spec.weight_bytes;
        out->tokens = out->kv_tokens = tokens[r];
        out->first_segment = out->first_kv_segment = (int64_t)first;
        out->n_segments = out->n_kv_segments = s->areas[r]; /* counts, see caller */
        first += (size_t)out->n_segments;
        out->predicted_ms = s->plan_fin[r];
        /* The sum in another order than the recurrence's: the last bits may differ. */
        out->compute_ms =
            s->plan_busy[r] < s->plan_fin[r] ? s->plan_busy[r] : s->plan_fin[r];
        if (s->plan_fin[r] > s->plan_fin[plan->critical_rank])
            plan->critical_rank = (int32_t)r;
    }
}

/* KV of its own: its segments come behind those of the queries. */
static void fill_kv(const struct problem *p, struct scratch *s, const int64_t *kv,
                    hcp_plan *plan)
{
    int64_t *counts = s->areas;
    size_t first = plan->n_segments;

    plan->n_segments += cost_segments(p->layout, p->stripes, p->n, kv, p->seq_len,
                                      plan->segments + first, counts);
    for (size_t r = 0; r < p->n; r++) {
        plan->ranks[r].kv_tokens = kv[r];
        plan->ranks[r].first_kv_segment = (int64_t)first;
        plan->ranks[r].n_kv_segments = counts[r];
        first += (size_t)counts[r];
    }
}

static int has_finish(const struct problem *p)
{
    for (size_t r = 0; r < p->n; r++)
        if (hcp_model_finish_ms(problem_model(p, r), 0, 1) > 0 ||
            hcp_model_finish_ms(problem_model(p, r), 1, 1) > 0)
            return 1;
    return 0;
}

/* W / sum of v, busy being kernel times and v the larger of the throughput on the whole
 * sequence and in this plan: then no rank does more than v * makespan, so the bound never
 * exceeds the makespan (but for rounding, which the last line removes). */
static double bound(const struct problem *p, struct scratch *s, const double *busy,
                    double makespan)
{
    double area = (double)p->seq_len, sum = 0, ms;

    area = p->causal ? area * (area + 1) / 2 : area * area;
    for (size_t r = 0; r < p->n; r++) {
        double v = busy[r] > 0 ? (double)s->areas[r] / busy[r] : 0;

        s->speed[r] = v > s->whole[r] ? v : s->whole[r];
        sum += s->speed[r];
    }
    ms = p->linear ? layer_shares(p, s->speed, s->weight) : area / sum;
    return ms < makespan ? ms : makespan;
}

/* A time for the report: unknown when it would need unmeasured lengths. */
static double known(const struct problem *p, struct score score)
{
    if (score.none || (score.source == HCP_FROM_EXTRAPOLATED && !p->extrapolate))
        return NAN;
    return score.ms;
}

uint64_t answer_models_hash(const struct hcp_ring *ring, hcp_model_kind kind)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t r = 0; r < ring->n; r++) {
        h ^= ring->ranks[r].hash[kind];
        h *= UINT64_C(0x100000001b3);
        h ^= h >> 32;
    }
    return h;
}

hcp_status answer_fill(const struct problem *p, struct scratch *s, const struct answer *a,
                       const hcp_question *question, char *text, size_t text_size,
                       hcp_plan *plan)
{
    const int64_t *tokens = a->tokens;
    struct score score = a->score;
    int apart;

    if (score.source == HCP_FROM_EXTRAPOLATED && !p->extrapolate)
        return answer_outside(p, s, tokens, a->kv, text, text_size);
    plan->n_ranks = p->n;
    plan->shape = p->ring->shape;
    memcpy(plan->provider, p->ring->provider, sizeof plan->provider);
    plan->seq_len = p->seq_len;
    plan->causal = p->causal;
    plan->strategy = question->strategy;
    plan->layout = p->layout;
    plan->stripes = p->stripes;
    plan->tile = p->tile;
    plan->buffers = p->buffers;
    plan->barrier = p->barrier;
    plan->sub_blocks = p->sub_blocks;
    plan->layers = question->layers;
    plan->activation_bytes = question->activation_bytes;
    plan->link_alpha_us = question->link_alpha_us;
    plan->link_gbps = question->link_gbps;
    plan->makespan_ms = score.ms;
    plan->source = ring_source(p->ring, (hcp_source)score.source);
    plan->exact = a->exact;
    plan->models_hash = answer_models_hash(p->ring, p->kind);

    plan->n_segments = cost_segments(p->layout, p->stripes, p->n, tokens, p->seq_len,
                                     plan->segments, s->areas);
    fill_ranks(p, s, tokens, plan);
    if (a->kv)
        fill_kv(p, s, a->kv, plan);
    plan->joint = a->kv != NULL;
    hcp_plan_memory(plan, NULL, 0);
    cost_areas(p, tokens, s->areas);
    apart = has_finish(p) || p->linear || p->links; /* plan_busy has more than kernels */
    if (apart && a->kv)
        joint_kernels(p, s, tokens, a->kv);
    else if (apart)
        eval_kernels(p, s, tokens);
    plan->bound_ms = bound(p, s, apart ? s->busy : s->plan_busy, score.ms);
    fill_interval(p, s, a, (size_t)plan->critical_rank, plan);

    plan->even_ms = known(p, a->even);
    plan->gain_over_even = plan->even_ms / plan->makespan_ms;
    plan->drop_ms = known(p, a->drop);
    plan->tied_ms = a->kv ? known(p, a->tied) : NAN;
    plan->gain_over_tied = plan->tied_ms / plan->makespan_ms;
    plan->decision = decision_of(plan);
    plan->order = question->order;
    plan->has_links = p->links != NULL;
    plan->given_order_ms = question->order ? a->given_order_ms : NAN;
    plan->any_order_ms = question->order ? a->any_order_ms : NAN;
    plan->late_kv = question->late_kv != 0;
    plan->in_turn_ms = plan->late_kv ? a->in_turn_ms : NAN;
    plan->late_bound_ms = plan->late_kv ? a->late_bound_ms : NAN;
    for (size_t r = 0; r < p->n; r++)
        plan->ranks[r].late_slots = p->slots ? p->slots[r] : 0;
    plan->node_ranks = question->node_ranks;
    plan->node_alpha_us = question->node_alpha_us;
    plan->node_gbps = question->node_gbps;
    plan->node_shared_gbps = question->node_shared_gbps;
    plan->rings = question->rings;
    plan->inner_ranks = a->inner;
    plan->one_ring_ms = a->one_ring_ms;
    plan->two_level_ms = a->two_level_ms;
    if (plan->order || plan->has_links)
        links_places(p, s, tokens, a->kv, plan->places);
    plan->fingerprint = hcp_plan_fingerprint(plan);
    return HCP_STATUS_OK;
}
