/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/disagg.h"
#include "planner/specs.h"

static int64_t tokens_at(const int64_t *tokens, int32_t place)
{
    return place < 0 ? 0 : tokens[place];
}

/* Tokens of a rank of all in both phases of one of the best. */
static void tokens_of(const struct disagg_work *w, int kind, const struct disagg_best *b,
                      size_t r, int64_t tokens[PHASES], int32_t place[PHASES])
{
    int set = disagg_set(w, kind);
    const struct disagg_time *decode =
        b->stays ? &w->stay[b->decode] : &w->time[DECODE][set][b->decode];

    for (int phase = 0; phase < PHASES; phase++)
        place[phase] = disagg_place(w->d, kind, b->prefill, b->decode, phase, r);
    tokens[PREFILL] = tokens_at(w->time[PREFILL][set][b->prefill].tokens, place[PREFILL]);
    tokens[DECODE] = tokens_at(decode->tokens, place[DECODE]);
}

static int32_t part_of(const int64_t tokens[PHASES])
{
    return (tokens[PREFILL] > 0 ? 1 : 0) + (tokens[DECODE] > 0 ? 2 : 0);
}

static void fill_option(const struct disagg_work *w, const struct disagg_at *at, int kind,
                        const struct disagg_best *b, double beyond,
                        hcp_disagg_option *out)
{
    int set = disagg_set(w, kind);
    const struct disagg_time *p, *g;
    struct disagg_best lo, hi;
    struct pairing pairing;
    hcp_move_question q;

    memset(out, 0, sizeof *out);
    out->exists = b->exists;
    if (!b->exists)
        return;
    p = &w->time[PREFILL][set][b->prefill];
    g = b->stays ? &w->stay[b->decode] : &w->time[DECODE][set][b->decode];
    out->stays = b->stays;
    for (size_t r = 0; r < w->d->n; r++) {
        int64_t tokens[PHASES];
        int32_t place[PHASES], part;

        tokens_of(w, kind, b, r, tokens, place);
        part = part_of(tokens);
        out->prefill_ranks += part & 1;
        out->decode_ranks += part >> 1;
        out->both_ranks += part == 3;
    }
    disagg_pairing(w, at, &q, &pairing);
    if (!b->stays)
        out->move_bytes =
            moves_bytes(&pairing, disagg_pairs(w, kind, b->prefill, b->decode));
    out->ttft_ms = b->ttft_ms;
    out->move_ms = b->move_ms;
    out->exposed_ms = b->exposed_ms;
    out->step_ms = b->step_ms;
    out->tpot_ms = (b->latency_ms - b->ttft_ms) / (double)at->steps;
    out->latency_ms = b->latency_ms;
    out->period_ms = b->period_ms;
    out->requests_per_s = 1e3 * w->d->shape[DECODE].batch / b->period_ms;
    disagg_set_times(w, at, kind, p->lo_ms, b->move_ms, g->lo_ms, &lo);
    disagg_set_times(w, at, kind, p->hi_ms, b->move_ms, g->hi_ms, &hi);
    out->interval_lo_ms = lo.score;
    out->interval_hi_ms = hi.score;
    if (w->d->every)
        out->bound_ms = beyond < b->score ? beyond : b->score;
}

/* Both plans, as of one batch and one run of prefill. */
static hcp_status make_plans(const struct disagg_work *w, int kind,
                             const struct disagg_best *b, char *text, size_t size,
                             hcp_disagg_advice *out)
{
    int set = disagg_set(w, kind);
    hcp_plan *plan[PHASES] = {out->prefill, out->decode};
    hcp_status status =
        disagg_split(w, b->prefill, PREFILL, set, text, size, out->prefill);

    if (status)
        return status;
    if (b->stays)
        status = hcp_plan_evaluate(w->d->groups[b->decode].ring[DECODE], &w->ask[DECODE],
                                   w->stay[b->decode].tokens, w->scratch, w->scratch_room,
                                   text, size, out->decode);
    else
        status = disagg_split(w, b->decode, DECODE, set, text, size, out->decode);
    for (int phase = 0; !status && phase < PHASES; phase++) {
        plan[phase]->activation_bytes = w->ask[phase].activation_bytes;
        status = hcp_plan_memory(plan[phase], text, size);
        plan[phase]->fingerprint = hcp_plan_fingerprint(plan[phase]);
    }
    return status;
}

/* K and V of other runs, and of the other batch of a stream, too. */
static int64_t memory_of(const struct disagg_work *w, int set, const hcp_plan *plan,
                         int phase, int32_t place, int64_t tokens)
{
    return tokens == 0 ? 0
                       : memory_plus(plan->ranks[place].memory_bytes,
                                     memory_times(tokens, disagg_beside(w, phase, set)));
}

static void fill_ranks(const struct disagg_work *w,
                       const struct disagg_best best[KINDS_OF_ADVICE], int decision,
                       const hcp_disagg_advice *out)
{
    const hcp_disagg *d = w->d;

    for (size_t r = 0; r < d->n; r++) {
        hcp_disagg_rank *rank = &out->ranks[r];
        const hcp_rank *spec = &d->ranks[r];

        memset(rank, 0, sizeof *rank);
        memcpy(rank->device, spec->device, sizeof rank->device);
        memcpy(rank->limit, spec->limit, sizeof rank->limit);
        rank->class_of = d->class_of[r];
        rank->max_bytes = spec->max_bytes;
        rank->weight_bytes = spec->weight_bytes;
        for (int kind = 0; kind < KINDS_OF_ADVICE; kind++) {
            int set = disagg_set(w, kind);
            int64_t tokens[PHASES], bytes[PHASES];
            int32_t place[PHASES];

            if (!best[kind].exists)
                continue;
            tokens_of(w, kind, &best[kind], r, tokens, place);
            *(kind == COLOCATED ? &rank->colocated : &rank->separate) = part_of(tokens);
            if (kind != decision)
                continue;
            rank->prefill_place = place[PREFILL];
            rank->decode_place = place[DECODE];
            rank->prefill_tokens = tokens[PREFILL];
            rank->decode_tokens = tokens[DECODE];
            bytes[PREFILL] =
                memory_of(w, set, out->prefill, PREFILL, place[PREFILL], tokens[PREFILL]);
            bytes[DECODE] =
                memory_of(w, set, out->decode, DECODE, place[DECODE], tokens[DECODE]);
            rank->memory_bytes =
                bytes[PREFILL] > bytes[DECODE] ? bytes[PREFILL] : bytes[DECODE];
        }
    }
}

static hcp_status fill_moves(const struct disagg_work *w, const struct disagg_at *at,
                             int kind, const struct disagg_best *b, char *text,
                             size_t size, hcp_disagg_advice *out)
{
    hcp_move_question q;
    struct pairing p;
    int exact;

    out->n_moves = out->n_segments = 0;
    if (b->stays || disagg_pairs(w, kind, b->prefill, b->decode) == 0)
        return HCP_STATUS_OK;
    disagg_pairing(w, at, &q, &p);
    moves_pair(&p, w->move, w->sums, &out->n_moves, &exact);
    if (!out->moves || out->moves_capacity < out->n_moves)
        return plan_fail(text, size, HCP_STATUS_SPACE, "array of %zu moves, %zu needed",
                         out->moves_capacity, w->d->n - 1);
    memcpy(out->moves, w->move, out->n_moves * sizeof *out->moves);
    for (size_t r = 0; r < w->d->n; r++)
        w->places[r] = disagg_place(w->d, kind, b->prefill, b->decode, PREFILL, r);
    if (!out->segments ||
        moves_name_tokens(&p, out->prefill, w->places, w->given, out->moves, out->n_moves,
                          out->segments, out->segments_capacity, &out->n_segments))
        return plan_fail(text, size, HCP_STATUS_SPACE,
                         "array of %zu segments, up to %zu needed",
                         out->segments_capacity, out->prefill->n_segments + out->n_moves);
    return HCP_STATUS_OK;
}

static int32_t count_unknown(const struct disagg_work *w)
{
    int32_t n = 0;

    for (size_t g = 0; g < w->d->n_groups; g++)
        n += w->time[PREFILL][0][g].status == HCP_STATUS_OUTSIDE ||
             w->time[DECODE][0][g].status == HCP_STATUS_OUTSIDE;
    return n;
}

hcp_status disagg_answer(struct disagg_work *w, const struct disagg_at *at,
                         const struct disagg_best best[KINDS_OF_ADVICE],
                         const double beyond[KINDS_OF_ADVICE], int decision, char *text,
                         size_t size, hcp_disagg_advice *out)
{
    const hcp_disagg_option *a = &out->colocated, *b = &out->separate;
    hcp_status status = make_plans(w, decision, &best[decision], text, size, out);

    if (!status)
        status = fill_moves(w, at, decision, &best[decision], text, size, out);
    if (status)
        return status;
    out->n_ranks = w->d->n;
    out->n_classes = w->d->n_classes;
    out->decision = (hcp_disagg_decision)decision;
    out->objective = w->q->objective;
    out->steps = at->steps;
    out->link_alpha_us = w->q->link_alpha_us;
    out->link_gbps = w->q->link_gbps;
    out->stream = w->q->stream != 0;
    out->batch = w->d->shape[DECODE].batch;
    out->layers = w->layers;
    out->prefill_runs = w->runs;
    fill_option(w, at, COLOCATED, &best[COLOCATED], beyond[COLOCATED], &out->colocated);
    fill_option(w, at, SEPARATE, &best[SEPARATE], beyond[SEPARATE], &out->separate);
    out->exact = w->d->every;
    for (int kind = 0; kind < KINDS_OF_ADVICE; kind++)
        if (beyond[kind] < (best[kind].exists ? best[kind].score : HUGE_MS))
            out->exact = 0;
    out->gain_over_colocated =
        a->exists && b->exists ? best[COLOCATED].score / best[SEPARATE].score : NAN;
    out->within_error = a->exists && b->exists &&
                        a->interval_lo_ms <= b->interval_hi_ms &&
                        b->interval_lo_ms <= a->interval_hi_ms;
    out->n_groups = (int32_t)w->d->n_groups;
    out->n_unknown = count_unknown(w);
    out->source = out->prefill->source > out->decode->source ? out->prefill->source
                                                             : out->decode->source;
    for (size_t r = 0; r < w->d->n; r++) /* also that it is left out is a guess */
        if (specs_name(w->d->ranks[r].device))
            out->source = HCP_FROM_ESTIMATED;
    fill_ranks(w, best, decision, out);
    disagg_turns(w, at, decision, out);
    return HCP_STATUS_OK;
}
