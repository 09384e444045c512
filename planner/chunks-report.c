/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/chunks.h"
#include "planner/specs.h"

/* ---- bound ---- */

/* Whatever a split of this chunk is, a rank with q tokens computes them on all that is
 * resident and on themselves: dealt out tile by tile to the rank that it costs least, no
 * split's slowest rank is done sooner. c->found: scratch. */
static double deal_out(struct chunks *c, const int64_t *resident, int64_t tokens,
                       int any_shares)
{
    int64_t tile = c->p.tile, tiles = tokens / tile;
    double most = 0;

    if (any_shares) { /* each rounded down to whole tiles */
        tiles = tokens - (int64_t)c->n * (tile - 1);
        tiles = tiles > 0 ? tiles / tile : 0;
    }
    memset(c->found, 0, c->n * sizeof *c->found);
    for (size_t r = 0; r < c->n; r++)
        c->speed[r] = chunks_row_least_ms(c, resident, r, tile); /* with a tile more */
    for (; tiles > 0; tiles--) {
        size_t to = 0;

        for (size_t r = 1; r < c->n; r++)
            if (c->speed[r] < c->speed[to])
                to = r;
        most = c->speed[to] > most ? c->speed[to] : most;
        c->found[to] += tile;
        c->speed[to] = chunks_row_least_ms(c, resident, to, c->found[to] + tile);
    }
    return most;
}

struct fastest {
    const struct chunks *c;
    const hcp_model *model;
    double speed;
};

static void look_at(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct fastest *f = ctx;
    double ms = cost_call(&f->c->p, f->model, q_len, kv_len, NULL);

    if (ms > 0 && (double)q_len * (double)kv_len / ms > f->speed)
        f->speed = (double)q_len * (double)kv_len / ms;
}

/* All area of the chunk at the ranks' highest speeds: in this step, or on all of it. */
static double at_speeds(struct chunks *c, const int64_t *resident, const int64_t *q,
                        int64_t offset, int64_t tokens)
{
    double area =
        (double)tokens * (double)offset + (double)tokens * ((double)tokens + 1) / 2;
    double sum = 0;

    for (size_t r = 0; r < c->n; r++) {
        struct fastest f = {c, problem_model(&c->p, r), 0};
        int64_t own[2] = {tokens, q[r]};

        for (size_t j = 0; j < c->n; j++)
            chunks_calls(c, r, j, q[r], q[j], resident[j], look_at, &f);
        if (offset > 0)
            look_at(&f, tokens, offset);
        for (int k = 0; k < 2; k++) {
            double ms = cost_own(&c->p, f.model, own[k], NULL);
            double half = (double)own[k] * ((double)own[k] + 1) / 2;

            if (ms > 0 && half / ms > f.speed)
                f.speed = half / ms;
        }
        sum += f.speed;
    }
    return sum > 0 ? area / sum : 0;
}

/* A rank with tokens receives what is not resident on it. */
static double all_sent(const struct chunks *c, const int64_t *resident, int64_t offset)
{
    int64_t least = offset;
    int32_t holders = 0;

    for (size_t r = 0; r < c->n; r++) {
        least = offset - resident[r] < least ? offset - resident[r] : least;
        holders += resident[r] > 0;
    }
    return holders > 1 ? c->p.alpha_ms + c->p.token_ms * (double)least : 0;
}

/* ---- error bars and sources ---- */

struct errors {
    const struct chunks *c;
    const hcp_model *model;
    double ms, below, above;
    uint8_t source;
};

static void add_error(struct errors *e, int causal, int64_t q_len, int64_t kv_len)
{
    double lo, hi, ms = hcp_model_block_ms(e->model, causal, q_len, kv_len, NULL);

    hcp_model_error(e->model, causal, q_len, kv_len, &lo, &hi);
    e->ms += ms;
    e->below += ms * lo;
    e->above += ms * hi;
}

static void add_call_error(void *ctx, int64_t q_len, int64_t kv_len)
{
    add_error(ctx, 0, q_len, kv_len);
}

static void add_source(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct errors *e = ctx;

    cost_call(&e->c->p, e->model, q_len, kv_len, &e->source);
}

/* Of the calls and linear work of a rank, by time. */
static void rank_errors(const struct chunks *c, const int64_t *resident, const int64_t *q,
                        size_t r, double *lo, double *hi)
{
    double error = c->p.ring->ranks[r].spec.linear_error;
    struct errors e = {c, problem_model(&c->p, r), layer_ms(&c->p, r, q[r]), 0, 0, 0};

    e.below = e.ms * (error < 1 ? error : 1);
    e.above = e.ms * error;
    for (size_t j = 0; j < c->n; j++)
        chunks_calls(c, r, j, q[r], q[j], resident[j], add_call_error, &e);
    add_error(&e, 1, q[r], q[r]);
    *lo = e.below / e.ms;
    *hi = e.above / e.ms;
}

/* Of the rank that is last; with data sheets in the ring, each end is that of the rank
 * that is last there. */
static void fill_interval(const struct chunks *c, const int64_t *resident,
                          const int64_t *q, hcp_chunk *out)
{
    double lo, hi;

    rank_errors(c, resident, q, (size_t)out->critical_rank, &lo, &hi);
    out->interval_lo_ms = out->predicted_ms * (1 - lo);
    out->interval_hi_ms = out->predicted_ms * (1 + hi);
    for (size_t r = 0; c->p.ring->n_estimates > 0 && r < c->n; r++) {
        if (q[r] == 0)
            continue;
        rank_errors(c, resident, q, r, &lo, &hi);
        lo = c->fin[r] * (1 - lo);
        hi = c->fin[r] * (1 + hi);
        out->interval_lo_ms = lo > out->interval_lo_ms ? lo : out->interval_lo_ms;
        out->interval_hi_ms = hi > out->interval_hi_ms ? hi : out->interval_hi_ms;
    }
}

static hcp_source source_of(const struct chunks *c, const int64_t *resident,
                            const int64_t *q)
{
    struct errors e = {.c = c};

    for (size_t r = 0; r < c->n; r++) {
        if (q[r] == 0)
            continue;
        e.model = problem_model(&c->p, r);
        cost_own(&c->p, e.model, q[r], &e.source);
        for (size_t j = 0; j < c->n; j++)
            chunks_calls(c, r, j, q[r], q[j], resident[j], add_source, &e);
    }
    return ring_source(c->p.ring, (hcp_source)e.source);
}

/* ---- the plan ---- */

static void fill_rank(const struct chunks *c, size_t r, hcp_chunks_rank *out)
{
    const struct bound_rank *b = &c->p.ring->ranks[r];
    int lut = b->model[HCP_MODEL_BEST] == b->model[HCP_MODEL_LUT];

    memset(out, 0, sizeof *out);
    memcpy(out->device, b->spec.device, sizeof out->device);
    memcpy(out->limit, b->spec.limit, sizeof out->limit);
    memcpy(out->model, lut ? "lut" : "poly", lut ? 3 : 4);
    out->linear_before_us = b->spec.linear_before_us;
    out->linear_before_fixed_us = b->spec.linear_before_fixed_us;
    out->linear_after_us = b->spec.linear_after_us;
    out->linear_after_fixed_us = b->spec.linear_after_fixed_us;
    out->linear_error = b->spec.linear_error;
    out->max_tokens = b->spec.max_tokens;
    out->max_bytes = b->spec.max_bytes;
    out->weight_bytes = b->spec.weight_bytes;
    out->time_scale = b->scale;
    estimate_kin_name(c->p.ring, r, out->kin);
}

/* What a tile costs on each rank alone. */
static void fill_least(struct chunks *c, const int64_t *resident, int64_t left,
                       hcp_chunk *out, hcp_chunk_share *share)
{
    hcp_layout layout = c->p.layout;
    int64_t tile = left < c->p.tile ? left : c->p.tile;
    double best = 2 * HUGE_MS;

    for (size_t r = 0; r < c->n; r++) {
        double ms = chunks_alone_ms(c, resident, r, tile);

        share[r].least_ms = ms < OVER_MS ? chunks_step_ms(c, ms) : (double)NAN;
        if (ms < best) {
            best = ms;
            out->least_rank = (int32_t)r;
        }
    }
    out->least_ms = best < OVER_MS ? chunks_step_ms(c, best) : (double)NAN;
    c->p.layout = layout;
}

/* Segments of a chunk, from `at` on. */
static size_t fill_segments(const struct chunks *c, const int64_t *q,
                            const hcp_chunk *chunk, hcp_chunk_share *share,
                            hcp_segment *segments, size_t at)
{
    int64_t counts[HCP_CHUNKS_MAX_RANKS];
    size_t n = cost_segments(chunk->layout, c->p.stripes, c->n, q, chunk->tokens,
                             segments ? segments + at : NULL, counts);

    for (size_t r = 0, first = at; r < c->n; first += (size_t)counts[r++])
        if (share) {
            share[r].first_segment = (int64_t)first;
            share[r].n_segments = counts[r];
        }
    for (size_t i = 0; segments && i < n; i++)
        segments[at + i].offset += chunk->offset;
    return n;
}

static size_t count_segments(const struct chunks *c)
{
    size_t total = 0;

    for (size_t k = 0; k < c->best.count; k++) {
        hcp_chunk chunk = {.layout = c->best.layout[k]};

        total += fill_segments(c, c->best.q + k * c->n, &chunk, NULL, NULL, 0);
    }
    return total;
}

static void fill_chunk(struct chunks *c, size_t k, hcp_chunks_plan *plan)
{
    const int64_t *q = c->best.q + k * c->n, *resident = c->resident;
    hcp_chunk *out = &plan->chunks[k];
    hcp_chunk_share *share = plan->shares + k * c->n;
    double ms;

    memset(out, 0, sizeof *out);
    memset(share, 0, c->n * sizeof *share);
    for (size_t r = 0; r < c->n; r++) {
        out->offset += resident[r];
        out->tokens += q[r];
    }
    out->layout = c->p.layout = c->best.layout[k];
    fill_least(c, resident, c->p.seq_len - out->offset, out, share);
    out->predicted_ms = chunks_eval(c, resident, q);
    out->step_ms = chunks_step_ms(c, out->predicted_ms);
    out->critical_rank = c->last;
    for (size_t r = 0; r < c->n; r++) {
        share[r].tokens = q[r];
        share[r].resident = resident[r];
        share[r].predicted_ms = c->fin[r];
        share[r].compute_ms = c->busy[r] < c->fin[r] ? c->busy[r] : c->fin[r];
        share[r].memory_bytes = c->bytes[r];
        if (c->bytes[r] > plan->ranks[r].memory_bytes)
            plan->ranks[r].memory_bytes = c->bytes[r];
        plan->ranks[r].tokens += q[r];
    }
    fill_interval(c, resident, q, out);
    out->source = source_of(c, resident, q);
    out->bound_ms = deal_out(c, resident, out->tokens, plan->given == 2);
    ms = at_speeds(c, resident, q, out->offset, out->tokens);
    out->bound_ms = ms > out->bound_ms ? ms : out->bound_ms;
    ms = all_sent(c, resident, out->offset);
    out->bound_ms = ms > out->bound_ms ? ms : out->bound_ms;
    if (out->bound_ms > out->predicted_ms) /* rounding */
        out->bound_ms = out->predicted_ms;
    plan->n_segments += fill_segments(c, q, out, share, plan->segments, plan->n_segments);
    for (size_t r = 0; r < c->n; r++)
        c->resident[r] += q[r];
}

static void add_up(struct chunks *c, hcp_chunks_plan *plan)
{
    plan->total_ms = plan->interval_lo_ms = plan->interval_hi_ms = 0;
    plan->bound_ms = plan->longest_step_ms = plan->least_ms = 0;
    for (size_t k = 0; k < plan->n_chunks; k++) {
        const hcp_chunk *chunk = &plan->chunks[k];

        plan->total_ms += chunk->step_ms;
        plan->interval_lo_ms += chunks_step_ms(c, chunk->interval_lo_ms);
        plan->interval_hi_ms += chunks_step_ms(c, chunk->interval_hi_ms);
        plan->bound_ms += chunks_step_ms(c, chunk->bound_ms);
        if (chunk->step_ms > plan->longest_step_ms)
            plan->longest_step_ms = chunk->step_ms;
        if (chunk->least_ms > plan->least_ms)
            plan->least_ms = chunk->least_ms;
        if (chunk->source > plan->source)
            plan->source = chunk->source;
    }
}

/* The whole prompt in one step. */
static double whole_ms(struct chunks *c)
{
    const hcp_chunks *from = c->question;
    hcp_question q;
    hcp_plan plan;

    hcp_question_init(&q);
    hcp_plan_init(&plan, c->whole_ranks, c->n, c->whole_segments, c->whole_n_segments);
    q.seq_len = from->seq_len;
    q.causal = 1;
    q.layout = from->layout;
    q.stripes = c->p.stripes;
    q.tile = from->tile;
    q.buffers = from->buffers;
    q.link_alpha_us = from->link_alpha_us;
    q.link_gbps = from->link_gbps;
    q.extrapolate = from->extrapolate;
    q.layers = from->layers;
    q.activation_bytes = from->activation_bytes;
    if (hcp_plan_split(c->p.ring, &q, c->whole_workspace, c->whole_bytes, NULL, 0, &plan))
        return NAN;
    return chunks_step_ms(c, plan.makespan_ms);
}

static uint64_t models_hash(const struct chunks *c)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t r = 0; r < c->n; r++) {
        h ^= c->p.ring->ranks[r].hash[c->p.kind];
        h *= UINT64_C(0x100000001b3);
        h ^= h >> 32;
    }
    return h;
}

static void fill_question(const struct chunks *c, hcp_chunks_plan *out)
{
    const hcp_chunks *q = c->question;

    out->shape = c->p.ring->shape;
    memcpy(out->provider, c->p.ring->provider, sizeof out->provider);
    out->seq_len = q->seq_len;
    out->step_budget_ms = q->step_budget_ms;
    out->step_fixed_ms = q->step_fixed_ms;
    out->chunk_len = q->chunk_len;
    out->layers = q->layers;
    out->stripes = c->p.stripes;
    out->buffers = q->buffers;
    out->tile = c->p.tile;
    out->link_alpha_us = q->link_alpha_us;
    out->link_gbps = q->link_gbps;
    out->activation_bytes = q->activation_bytes;
}

hcp_status chunks_report(struct chunks *c, int64_t even_len, double even_ms, char *text,
                         size_t text_size, hcp_chunks_plan *plan)
{
    hcp_chunks_plan out = *plan;
    size_t count = c->best.count, segments = count_segments(c);

    if (!plan->ranks || !plan->chunks || !plan->shares || !plan->segments ||
        plan->ranks_capacity < c->n || plan->chunks_capacity < count ||
        plan->shares_capacity < count * c->n || plan->segments_capacity < segments)
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "arrays for %zu ranks, %zu chunks, %zu shares and %zu segments; "
                         "%zu, %zu, %zu and %zu needed",
                         plan->ranks_capacity, plan->chunks_capacity,
                         plan->shares_capacity, plan->segments_capacity, c->n, count,
                         count * c->n, segments);
    c->reporting = 1;
    fill_question(c, &out);
    out.n_ranks = c->n;
    out.n_chunks = count;
    out.n_segments = 0;
    out.source = HCP_FROM_MEASURED;
    for (size_t r = 0; r < c->n; r++)
        fill_rank(c, r, &out.ranks[r]);
    memset(c->resident, 0, c->n * sizeof *c->resident);
    for (size_t k = 0; k < count; k++)
        fill_chunk(c, k, &out);
    add_up(c, &out);
    out.whole_ms = whole_ms(c);
    out.over_whole = out.total_ms / out.whole_ms;
    out.even_len = even_len;
    out.even_ms = even_ms < HUGE_MS ? even_ms : NAN;
    out.gain_over_even = out.even_ms / out.total_ms;
    out.models_hash = models_hash(c);
    out.fingerprint = hcp_chunks_fingerprint(&out);
    *plan = out;
    return HCP_STATUS_OK;
}
