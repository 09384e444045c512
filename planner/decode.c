/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "planner/decode.h"
#include "planner/specs.h"

int plan_is_decode(const hcp_plan *plan)
{
    return memcmp(plan->shape.phase, "decode", sizeof "decode") == 0;
}

int decode_bad(const hcp_plan *plan)
{
    int64_t rows = (int64_t)plan->shape.batch * plan->shape.heads, m = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        m += plan->ranks[r].tokens > 0;
    return rows < 1 || rows > INT64_MAX / 8 / HCP_PLAN_MAX_RANKS ||
           plan->merge < HCP_MERGE_AUTO || plan->merge > HCP_MERGE_GATHER ||
           (plan->merge == HCP_MERGE_AUTO) != (m < 2) ||
           plan->layout != HCP_LAYOUT_CONTIGUOUS || plan->order || plan->has_links ||
           plan->joint || plan->late_kv || plan->node_ranks || plan->causal;
}

static int64_t row_bytes(const hcp_shape *shape)
{
    return ((int64_t)shape->head_dim + 1) * (int64_t)sizeof(float);
}

void decode_set(struct decode *d, const hcp_ring *ring, struct scratch *s,
                int64_t seq_len, int32_t layers, int64_t activation_bytes,
                double alpha_us, double gbps, hcp_merge only)
{
    int64_t kv =
        ring->token_bytes < 1e15 ? (int64_t)ring->token_bytes : HCP_PLAN_MAX_BYTES;

    memset(d, 0, sizeof *d);
    d->ring = ring;
    d->n = ring->n;
    d->s = s;
    d->kind = HCP_MODEL_BEST;
    d->seq_len = seq_len;
    d->only = only;
    d->alpha_ms = alpha_us / 1e3;
    d->byte_ms = gbps > 0 ? 1 / (gbps * 1e6) : 0;
    d->rows = (int64_t)ring->shape.batch * ring->shape.heads;
    d->row_bytes = row_bytes(&ring->shape);
    d->state_bytes = memory_times(d->rows, d->row_bytes);
    d->unit = memory_plus(memory_times(layers, kv), activation_bytes);
}

/* The largest tile of keys among the ranks' kernels, unless the question has one. */
static void set_tile(struct decode *d, int64_t tile)
{
    d->tile = tile > 1 ? tile : 1;
    for (size_t r = 0; tile == 0 && r < d->n; r++) {
        for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
            const hcp_model *model = d->ring->ranks[r].model[k];
            int64_t keys = model ? hcp_model_tile_kv(model) : 1;

            d->tile = keys > d->tile ? keys : d->tile;
        }
    }
    d->tiles = d->seq_len / d->tile;
    d->rest = d->seq_len % d->tile;
    d->p.ring = d->ring;
    d->p.n = d->n;
    d->p.seq_len = d->seq_len;
    d->p.tile = d->tile;
    d->p.tiles = d->tiles;
    d->p.rest = d->rest;
    d->p.cap = d->s->cap;
}

/* ---- what is asked ---- */

static hcp_status check_question(const hcp_ring *ring, const hcp_question *q, char *text,
                                 size_t size)
{
    const char *none = NULL;

    if (q->merge < HCP_MERGE_AUTO || q->merge > HCP_MERGE_GATHER)
        return plan_fail(text, size, HCP_STATUS_INVALID, "no such merge schedule");
    if (q->layout != HCP_LAYOUT_AUTO && q->layout != HCP_LAYOUT_CONTIGUOUS)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a decode plan has contiguous shares, which a step does not "
                         "see; leave the layout out");
    if (ring->linear)
        none = "linear work";
    else if (q->order || q->n_links > 0)
        none = "order to choose or links of its own";
    else if (q->joint || q->kv_tokens)
        none = "queries apart from KV";
    else if (q->late_kv)
        none = "late KV";
    else if (q->node_ranks > 0)
        none = "nodes";
    else if (q->barrier)
        none = "barrier";
    else if (q->sub_blocks > 1)
        none = "sub-blocks";
    if (none)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a decode plan has no %s: KV stays where it is, and one link "
                         "carries partial results; leave that out, or plan prefill",
                         none);
    return HCP_STATUS_OK;
}

/* ---- splits by rule ---- */

/* Keys at which a rank's bandwidth is asked for: the whole sequence, or without leave to
 * extrapolate the nearest measured length. */
static int64_t whole_len(const struct decode *d, size_t r)
{
    int64_t q_min, q_max, kv_min, kv_max, len = d->seq_len;

    hcp_model_hull(d->ring->ranks[r].model[d->kind], 0, &q_min, &q_max, &kv_min, &kv_max);
    if (!d->extrapolate && kv_max > 0) {
        len = len < kv_max ? len : kv_max;
        len = len > kv_min ? len : kv_min;
    }
    return len;
}

static double bandwidth(const struct decode *d, size_t r)
{
    int64_t len = whole_len(d, r);

    return (double)len / decode_rank_ms(d, r, len);
}

static double rule_weight(const struct decode *d, hcp_strategy strategy, size_t r)
{
    if (strategy == HCP_STRATEGY_NOMINAL)
        return d->ring->ranks[r].nominal;
    return strategy == HCP_STRATEGY_EVEN ? 1 : bandwidth(d, r);
}

/* Shares by weight under the caps that each schedule leaves; the fastest. */
static struct decode_score by_rule(const struct decode *d, hcp_strategy strategy,
                                   int64_t *tokens)
{
    struct decode_score best = {.none = 1, .ms = HUGE_MS};
    int64_t *trial = d->s->tokens[TOK_CUR];

    for (size_t r = 0; r < d->n; r++)
        d->s->weight[r] = rule_weight(d, strategy, r);
    for (int i = 0; i < MERGES; i++) {
        struct decode_score score;

        if (d->only != HCP_MERGE_AUTO && d->only != merge_order[i])
            continue;
        for (size_t r = 0; r < d->n; r++) {
            int64_t cap = decode_cap(d, r, merge_states(merge_order[i], (int32_t)d->n));

            d->s->cap[r] = cap > 0 ? cap : 0;
        }
        if (round_shares(&d->p, d->s, d->s->weight, trial))
            continue;
        score = decode_eval(d, trial);
        if (score.none || score.ms >= best.ms)
            continue;
        best = score;
        memcpy(tokens, trial, d->n * sizeof *tokens);
    }
    return best;
}

/* ---- memory ---- */

static int64_t plan_states(const hcp_plan *plan)
{
    int32_t m = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        m += plan->ranks[r].tokens > 0;
    return merge_states(plan->merge, m);
}

static int64_t plan_unit(const hcp_plan *plan)
{
    int64_t kv = memory_times(memory_times(2, plan->shape.batch),
                              memory_times(plan->shape.kv_heads, plan->shape.head_dim));

    kv = memory_times(kv, strcmp(plan->shape.dtype, "fp32") == 0 ? 4 : 2);
    return memory_plus(memory_times(plan->layers, kv), plan->activation_bytes);
}

hcp_status decode_memory(hcp_plan *plan, char *text, size_t text_size)
{
    int64_t unit = plan_unit(plan);
    int64_t state = memory_times((int64_t)plan->shape.batch * plan->shape.heads,
                                 row_bytes(&plan->shape));
    int64_t fixed = memory_times(plan_states(plan), state);

    for (size_t r = 0; r < plan->n_ranks; r++) {
        hcp_plan_rank *rank = &plan->ranks[r];

        rank->memory_bytes = 0;
        if (rank->tokens == 0)
            continue;
        rank->memory_bytes = memory_plus(memory_plus(rank->weight_bytes, fixed),
                                         memory_times(rank->tokens, unit));
        if (rank->max_bytes > 0 && rank->memory_bytes > rank->max_bytes)
            return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                             "rank %zu needs %lld bytes for the KV of %lld tokens and "
                             "partial results, more than its memory of %lld; give it "
                             "fewer tokens or more memory",
                             r, (long long)rank->memory_bytes, (long long)rank->tokens,
                             (long long)rank->max_bytes);
    }
    return HCP_STATUS_OK;
}

/* By how much the caps fall short where partial results take least, and the rank on which
 * the fewest bytes more would do. */
static hcp_status explain(const struct decode *d, char *text, size_t text_size)
{
    int64_t *cap = d->s->cap, missing, least = INT64_MAX, states = INT64_MAX;
    size_t rank = d->n;

    for (int i = 0; i < MERGES; i++)
        if (d->only == HCP_MERGE_AUTO || d->only == merge_order[i]) {
            int64_t held = merge_states(merge_order[i], (int32_t)d->n);
            states = held < states ? held : states;
        }
    for (size_t r = 0; r < d->n; r++) {
        int64_t tokens = decode_cap(d, r, states);
        cap[r] = tokens > 0 ? tokens : 0;
    }
    missing = round_shortfall(&d->p, NULL);
    if (missing == 0)
        return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                         "no split under these caps in tiles of %lld tokens; raise a "
                         "cap or use a smaller tile",
                         (long long)d->tile);
    for (size_t r = 0; r < d->n; r++) {
        const hcp_rank *spec = &d->ring->ranks[r].spec;
        int64_t tokens = memory_plus(cap[r] / d->tile * d->tile, missing), bytes;

        if (spec->max_bytes == 0 || (spec->max_tokens > 0 && spec->max_tokens < tokens))
            continue;
        bytes = memory_plus(
                    memory_plus(spec->weight_bytes, memory_times(states, d->state_bytes)),
                    memory_times(tokens, d->unit)) -
                spec->max_bytes;
        if (bytes < least) {
            least = bytes;
            rank = r;
        }
    }
    if (rank == d->n)
        return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                         "the memory caps are short by %lld tokens for a sequence of "
                         "%lld in tiles of %lld; raise a cap, add a rank or use a "
                         "smaller tile",
                         (long long)missing, (long long)d->seq_len, (long long)d->tile);
    return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                     "the memory caps are short by %lld tokens for a sequence of %lld "
                     "in tiles of %lld (batch %d); %lld bytes more on rank %zu would do, "
                     "or a rank more, or a smaller batch",
                     (long long)missing, (long long)d->seq_len, (long long)d->tile,
                     (int)d->ring->shape.batch, (long long)least, rank);
}

/* The first rank that cannot hold its share of a split that is given. */
static hcp_status too_large(const struct decode *d, const int64_t *tokens, char *text,
                            size_t text_size)
{
    int64_t states = INT64_MAX;
    int32_t m = 0;
    size_t r = 0;

    for (size_t i = 0; i < d->n; i++)
        m += tokens[i] > 0;
    for (int i = 0; i < MERGES; i++)
        if (d->only == HCP_MERGE_AUTO || d->only == merge_order[i])
            states = merge_states(merge_order[i], m) < states
                         ? merge_states(merge_order[i], m)
                         : states;
    while (tokens[r] == 0 || tokens[r] <= decode_cap(d, r, states))
        r++;
    return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                     "rank %zu has the KV of %lld tokens, more than its memory cap of "
                     "%lld at batch %d; give it fewer or raise the cap",
                     r, (long long)tokens[r], (long long)decode_cap(d, r, states),
                     (int)d->ring->shape.batch);
}

/* ---- the answer ---- */

static hcp_source source_of(const struct decode *d, const int64_t *tokens, size_t *first)
{
    hcp_model_source weakest = HCP_SOURCE_MEASURED, source;

    for (size_t r = 0; r < d->n; r++) {
        if (tokens[r] == 0)
            continue;
        hcp_model_block_ms(d->ring->ranks[r].model[d->kind], 0, 1, tokens[r], &source);
        if (source > weakest) {
            weakest = source;
            *first = r;
        }
    }
    return (hcp_source)weakest;
}

static hcp_status outside(const struct decode *d, const int64_t *tokens, size_t r,
                          char *text, size_t text_size)
{
    const hcp_rank *spec = &d->ring->ranks[r].spec;
    int64_t q_min, q_max, kv_min, kv_max;
    char lengths[64], run[224];

    hcp_model_hull(d->ring->ranks[r].model[d->kind], 0, &q_min, &q_max, &kv_min, &kv_max);
    return plan_fail(
        text, text_size, HCP_STATUS_OUTSIDE,
        "this needs block times outside the measured batches and lengths, first batch %d "
        "of 1 query and %lld keys on '%s%s%s' (rank %zu; measured kv_len %lld..%lld); "
        "run "
        "'hcp-profile run --db %s%s %s' on that machine, then 'hcp-plan fit --db %s'; or "
        "allow extrapolation (--extrapolate)",
        (int)d->ring->shape.batch, (long long)tokens[r], spec->device,
        spec->limit[0] ? "@" : "", spec->limit, r, (long long)kv_min, (long long)kv_max,
        d->ring->models->path, bind_run_options(spec->limit, &d->ring->shape, NULL, run),
        answer_lengths(0, 1, tokens[r], tokens[r] > kv_max, lengths),
        d->ring->models->path);
}

hcp_status decode_check_source(const struct decode *d, const int64_t *tokens, char *text,
                               size_t text_size)
{
    size_t first = 0;

    return !d->extrapolate && source_of(d, tokens, &first) == HCP_FROM_EXTRAPOLATED
               ? outside(d, tokens, first, text, text_size)
               : HCP_STATUS_OK;
}

/* A time for the report. */
static double known(const struct decode *d, const struct decode_score *score,
                    const int64_t *tokens)
{
    size_t first = 0;

    if (score->none ||
        (!d->extrapolate && source_of(d, tokens, &first) == HCP_FROM_EXTRAPOLATED))
        return NAN;
    return score->ms;
}

static void fill_rank(const struct decode *d, size_t r, int64_t tokens,
                      const struct decode_score *score, hcp_plan_rank *out)
{
    const struct bound_rank *b = &d->ring->ranks[r];
    int lut = b->model[d->kind] == b->model[HCP_MODEL_LUT];

    memset(out, 0, sizeof *out);
    memcpy(out->device, b->spec.device, sizeof out->device);
    memcpy(out->limit, b->spec.limit, sizeof out->limit);
    memcpy(out->model, lut ? "lut" : "poly", lut ? 3 : 4);
    out->time_scale = b->scale;
    estimate_kin_name(d->ring, r, out->kin);
    out->max_tokens = b->spec.max_tokens;
    out->max_bytes = b->spec.max_bytes;
    out->weight_bytes = b->spec.weight_bytes;
    out->tokens = out->kv_tokens = tokens;
    out->compute_ms = decode_rank_ms(d, r, tokens);
    out->predicted_ms = tokens > 0 ? score->ms : 0; /* merging waits for everybody */
}

/* Each end is that of the rank that is last there; the merge is taken as it is. The
 * bound: all keys at the bandwidth of all ranks together, each its larger one of here and
 * of the whole sequence. */
static void fill_times(const struct decode *d, const int64_t *tokens,
                       const struct decode_score *score, hcp_plan *plan)
{
    double lo_ms = 0, hi_ms = 0, sum = 0;

    plan->makespan_ms = score->ms;
    plan->critical_rank = 0;
    for (size_t r = 0; r < d->n; r++) {
        const hcp_model *model = d->ring->ranks[r].model[d->kind];
        double ms = plan->ranks[r].compute_ms, speed = bandwidth(d, r), here, lo, hi;

        here = tokens[r] > 0 ? (double)tokens[r] / ms : 0;
        sum += here > speed ? here : speed;
        if (tokens[r] == 0)
            continue;
        hcp_model_error(model, 0, 1, tokens[r], &lo, &hi);
        lo_ms = ms * (1 - lo) > lo_ms ? ms * (1 - lo) : lo_ms;
        hi_ms = ms * (1 + hi) > hi_ms ? ms * (1 + hi) : hi_ms;
        if (ms > plan->ranks[plan->critical_rank].compute_ms)
            plan->critical_rank = (int32_t)r;
    }
    plan->interval_lo_ms = lo_ms + score->merge_ms;
    plan->interval_hi_ms = hi_ms + score->merge_ms;
    plan->bound_ms = (double)d->seq_len / sum;
    if (plan->bound_ms > score->ms)
        plan->bound_ms = score->ms;
}

static void fill_merge(const struct decode *d, const struct decode_score *score,
                       hcp_plan *plan)
{
    double *each[] = {&plan->merge_ring_ms, &plan->merge_doubling_ms,
                      &plan->merge_gather_ms};

    plan->merge = score->merge;
    plan->merge_ms = score->merge_ms;
    plan->merge_bytes = d->state_bytes;
    for (int i = 0; i < MERGES; i++)
        *each[i] = merge_time((hcp_merge)(HCP_MERGE_RING + i), score->m, d->rows,
                              d->row_bytes, d->alpha_ms, d->byte_ms);
}

static hcp_decision advice(const hcp_plan *plan)
{
    if (plan->even_ms <= plan->interval_hi_ms) /* NaN compares false */
        return HCP_DECISION_EVEN;
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].tokens == 0)
            return HCP_DECISION_DROP;
    return HCP_DECISION_SPLIT;
}

/* What is reported beside the split. */
struct beside {
    double even_ms, drop_ms;
};

static hcp_status fill(const struct decode *d, const hcp_question *q,
                       const int64_t *tokens, const struct decode_score *score,
                       const struct beside *beside, int exact, char *text,
                       size_t text_size, hcp_plan *plan)
{
    int64_t *counts = d->s->areas, first = 0;
    hcp_plan result = *plan;
    size_t rank = 0, n_segments;

    result.source = source_of(d, tokens, &rank);
    if (result.source == HCP_FROM_EXTRAPOLATED && !d->extrapolate)
        return outside(d, tokens, rank, text, text_size);
    result.source = ring_source(d->ring, result.source);
    n_segments =
        cost_segments(HCP_LAYOUT_CONTIGUOUS, 1, d->n, tokens, d->seq_len, NULL, counts);
    if (!plan->ranks || !plan->segments || plan->ranks_capacity < d->n ||
        plan->segments_capacity < n_segments)
        return plan_fail(
            text, text_size, HCP_STATUS_SPACE,
            "arrays for %zu ranks and %zu segments, up to %zu of both needed",
            plan->ranks_capacity, plan->segments_capacity, d->n);
    result.n_ranks = d->n;
    result.n_segments = cost_segments(HCP_LAYOUT_CONTIGUOUS, 1, d->n, tokens, d->seq_len,
                                      plan->segments, counts);
    result.shape = d->ring->shape;
    memcpy(result.provider, d->ring->provider, sizeof result.provider);
    result.seq_len = d->seq_len;
    result.causal = 0;
    result.strategy = q->strategy;
    result.layout = HCP_LAYOUT_CONTIGUOUS;
    result.stripes = q->stripes;
    result.tile = d->tile;
    result.buffers = q->buffers;
    result.barrier = 0;
    result.link_alpha_us = q->link_alpha_us;
    result.link_gbps = q->link_gbps;
    result.sub_blocks = 1;
    result.order = HCP_ORDER_GIVEN;
    result.has_links = result.late_kv = result.joint = 0;
    result.given_order_ms = result.any_order_ms = result.in_turn_ms = NAN;
    result.late_bound_ms = result.tied_ms = result.gain_over_tied = NAN;
    result.one_ring_ms = result.two_level_ms = NAN;
    result.layers = q->layers;
    result.activation_bytes = q->activation_bytes;
    result.node_ranks = result.inner_ranks = 0;
    result.node_alpha_us = result.node_gbps = result.node_shared_gbps = 0;
    result.rings = HCP_RINGS_ONE;
    result.exact = exact;
    result.models_hash = answer_models_hash(d->ring, d->kind);
    for (size_t r = 0; r < d->n; r++) {
        hcp_plan_rank *out = &result.ranks[r];

        fill_rank(d, r, tokens[r], score, out);
        out->first_segment = out->first_kv_segment = first;
        out->n_segments = out->n_kv_segments = counts[r];
        first += counts[r];
    }
    fill_times(d, tokens, score, &result);
    fill_merge(d, score, &result);
    decode_memory(&result, NULL, 0);
    result.even_ms = beside->even_ms;
    result.gain_over_even = beside->even_ms / result.makespan_ms;
    result.drop_ms = beside->drop_ms;
    result.decision = advice(&result);
    result.fingerprint = hcp_plan_fingerprint(&result);
    *plan = result;
    return HCP_STATUS_OK;
}

static hcp_status no_models(const struct decode *d, char *text, size_t text_size)
{
    const char *kind = d->kind == HCP_MODEL_LUT ? "lut" : "poly";
    size_t r = 0;

    while (d->ring->ranks[r].model[d->kind])
        r++;
    return plan_fail(
        text, text_size, HCP_STATUS_NO_MODEL,
        "no %s model of '%s%s%s' (rank %zu) for decode in %s; run 'hcp-plan "
        "fit --db %s'",
        kind, d->ring->ranks[r].spec.device, d->ring->ranks[r].spec.limit[0] ? "@" : "",
        d->ring->ranks[r].spec.limit, r, d->ring->models->path, d->ring->models->path);
}

/* The fastest, of all and of those that leave a rank out. */
static struct decode_score fastest(const struct decode *d, int64_t *tokens,
                                   struct beside *beside)
{
    int64_t *drop = d->s->tokens[TOK_DROP];
    struct decode_score left, all;

    left = decode_solve(d, decode_fewer(d, d->n), 1, HUGE_MS, drop);
    beside->drop_ms = known(d, &left, drop);
    all = decode_solve(d, d->n, d->n, left.none ? HUGE_MS : left.ms, tokens);
    if (!all.none)
        return all;
    memcpy(tokens, drop, d->n * sizeof *drop);
    return left;
}

hcp_status decode_plan(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens,
                       void *workspace, size_t workspace_bytes, char *text,
                       size_t text_size, hcp_plan *plan)
{
    struct scratch s;
    struct decode d;
    struct decode_score score, even;
    struct beside beside = {NAN, NAN};
    int64_t *split, *even_tokens;
    int exact = 0;
    hcp_status status = check_question(ring, q, text, text_size);

    if (status)
        return status;
    if (!workspace || workspace_bytes < scratch_bytes(ring->n))
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "workspace of %zu bytes, %zu needed for %zu ranks",
                         workspace_bytes, scratch_bytes(ring->n), ring->n);
    scratch_carve(&s, workspace, ring->n);
    decode_set(&d, ring, &s, q->seq_len, q->layers, q->activation_bytes, q->link_alpha_us,
               q->link_gbps, q->merge);
    d.extrapolate = q->extrapolate != 0;
    set_tile(&d, q->tile);
    split = s.tokens[TOK_PLAN];
    even_tokens = s.tokens[TOK_OTHER];
    even = by_rule(&d, HCP_STRATEGY_EVEN, even_tokens);
    beside.even_ms = known(&d, &even, even_tokens);
    if (!tokens &&
        (q->strategy == HCP_STRATEGY_LUT || q->strategy == HCP_STRATEGY_POLY)) {
        d.kind = q->strategy == HCP_STRATEGY_LUT ? HCP_MODEL_LUT : HCP_MODEL_POLY;
        if (!ring->has[d.kind])
            return no_models(&d, text, text_size);
        even = by_rule(&d, HCP_STRATEGY_EVEN, even_tokens);
        beside.even_ms = known(&d, &even, even_tokens);
    }
    if (tokens) {
        memcpy(split, tokens, d.n * sizeof *tokens);
        score = decode_eval(&d, split);
        fastest(&d, s.tokens[TOK_KEPT], &beside);
    } else if (q->strategy < HCP_STRATEGY_LUT) {
        score = by_rule(&d, q->strategy, split);
        fastest(&d, s.tokens[TOK_KEPT], &beside);
    } else {
        score = fastest(&d, split, &beside);
        exact = d.n <= DECODE_EACH_COUNT;
    }
    if (score.none)
        return tokens ? too_large(&d, split, text, text_size)
                      : explain(&d, text, text_size);
    return fill(&d, q, split, &score, &beside, exact, text, text_size, plan);
}
