/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of chunks from files. A chunk is a joint plan: its queries are split as it says,
 * its KV is that of all chunks up to it, each rank's in the order in which it came.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"

void ring_chunks_free(hcp_chunks_plan *c)
{
    if (!c)
        return;
    free(c->ranks);
    free(c->chunks);
    free(c->shares);
    free(c->segments);
    free(c);
}

static hcp_chunks_plan *chunks_new(size_t n_ranks, size_t n_chunks, size_t n_segments)
{
    hcp_chunks_plan *c = calloc(1, sizeof *c);
    hcp_chunks_rank *ranks = calloc(n_ranks + 1, sizeof *ranks);
    hcp_chunk *chunks = calloc(n_chunks + 1, sizeof *chunks);
    hcp_chunk_share *shares = calloc(n_ranks * n_chunks + 1, sizeof *shares);
    hcp_segment *segments = calloc(n_segments + 1, sizeof *segments);

    if (!c || !ranks || !chunks || !shares || !segments) {
        free(c);
        free(ranks);
        free(chunks);
        free(shares);
        free(segments);
        return NULL;
    }
    hcp_chunks_plan_init(c, ranks, n_ranks + 1, chunks, n_chunks + 1, shares,
                         n_ranks * n_chunks + 1, segments, n_segments + 1);
    return c;
}

/* What a plan says of all of its chunks. */
static void fill_plan(const hcp_chunks_plan *c, hcp_plan *plan)
{
    plan->seq_len = c->seq_len;
    plan->n_ranks = c->n_ranks;
    plan->shape = c->shape;
    memcpy(plan->provider, c->provider, sizeof plan->provider);
    plan->causal = 1;
    plan->strategy = c->given ? HCP_STRATEGY_GIVEN : HCP_STRATEGY_BEST;
    plan->layout = c->chunks[0].layout;
    plan->stripes = c->stripes;
    plan->tile = c->tile;
    plan->buffers = c->buffers;
    plan->sub_blocks = 1;
    plan->link_alpha_us = c->link_alpha_us;
    plan->link_gbps = c->link_gbps;
    plan->layers = c->layers;
    plan->activation_bytes = c->activation_bytes;
    plan->source = c->source;
    plan->models_hash = c->models_hash;
    plan->even_ms = plan->gain_over_even = plan->drop_ms = NAN;
    plan->given_order_ms = plan->any_order_ms = plan->in_turn_ms = NAN;
    plan->late_bound_ms = plan->tied_ms = plan->gain_over_tied = NAN;
    plan->one_ring_ms = plan->two_level_ms = NAN;
    plan->fingerprint = c->fingerprint;
    for (size_t r = 0; r < c->n_ranks; r++) {
        const hcp_chunks_rank *from = &c->ranks[r];
        hcp_plan_rank *to = &plan->ranks[r];

        memcpy(to->device, from->device, sizeof to->device);
        memcpy(to->limit, from->limit, sizeof to->limit);
        memcpy(to->model, from->model, sizeof to->model);
        memcpy(to->kin, from->kin, sizeof to->kin);
        to->max_tokens = from->max_tokens;
        to->max_bytes = from->max_bytes;
        to->weight_bytes = from->weight_bytes;
        to->memory_bytes = from->memory_bytes;
        to->linear_before_us = from->linear_before_us;
        to->linear_before_fixed_us = from->linear_before_fixed_us;
        to->linear_after_us = from->linear_after_us;
        to->linear_after_fixed_us = from->linear_after_fixed_us;
        to->linear_error = from->linear_error;
        to->time_scale = from->time_scale;
        to->predicted_ms = to->compute_ms = NAN;
    }
}

/* Segments of a rank in chunks [from, to), behind those that the plan has. */
static int64_t add_segments(const hcp_chunks_plan *c, size_t rank, size_t from, size_t to,
                            hcp_plan *plan)
{
    size_t before = plan->n_segments;

    for (size_t k = from; k < to; k++) {
        const hcp_chunk_share *share = &c->shares[k * c->n_ranks + rank];

        for (int64_t i = 0; i < share->n_segments; i++)
            plan->segments[plan->n_segments++] = c->segments[share->first_segment + i];
    }
    return (int64_t)(plan->n_segments - before);
}

/* All of it: where the KV of the prompt is at the end, and the queries were. */
static void whole_prompt(const hcp_chunks_plan *c, hcp_plan *plan)
{
    fill_plan(c, plan);
    for (size_t r = 0; r < c->n_ranks; r++) {
        hcp_plan_rank *to = &plan->ranks[r];

        to->tokens = to->kv_tokens = c->ranks[r].tokens;
        to->first_segment = to->first_kv_segment = (int64_t)plan->n_segments;
        to->n_segments = to->n_kv_segments = add_segments(c, r, 0, c->n_chunks, plan);
    }
    plan->makespan_ms = 0;
    plan->bound_ms = 0;
    for (size_t k = 0; k < c->n_chunks; k++) {
        plan->makespan_ms += c->chunks[k].predicted_ms;
        plan->bound_ms += c->chunks[k].bound_ms;
    }
    plan->interval_lo_ms = plan->interval_hi_ms = NAN;
}

int ring_chunk_plan(const hcp_chunks_plan *c, size_t k, int comparable, hcp_plan *out,
                    struct hcp_err *err)
{
    const hcp_chunk *chunk = &c->chunks[k];
    const hcp_chunk_share *shares = &c->shares[k * c->n_ranks];
    size_t n_segments = 0;

    for (size_t i = 0; i < (k + 1) * c->n_ranks; i++)
        n_segments += (size_t)c->shares[i].n_segments;
    for (size_t r = 0; r < c->n_ranks; r++)
        n_segments += (size_t)shares[r].n_segments;
    if (ring_plan_arrays(out, c->n_ranks, n_segments, err))
        return err->code;
    fill_plan(c, out);
    out->joint = 1;
    out->layout = chunk->layout;
    out->makespan_ms = comparable ? chunk->predicted_ms : NAN;
    out->interval_lo_ms = comparable ? chunk->interval_lo_ms : NAN;
    out->interval_hi_ms = comparable ? chunk->interval_hi_ms : NAN;
    out->bound_ms = comparable ? chunk->bound_ms : NAN;
    out->source = chunk->source;
    out->critical_rank = chunk->critical_rank;
    for (size_t r = 0; r < c->n_ranks; r++) {
        hcp_plan_rank *to = &out->ranks[r];
        double to_ms = (to->time_scale > 0 ? to->time_scale : 1) / 1e3;
        double tokens = (double)shares[r].tokens;

        to->tokens = shares[r].tokens;
        to->kv_tokens = shares[r].resident + shares[r].tokens;
        to->first_segment = (int64_t)out->n_segments;
        to->n_segments = add_segments(c, r, k, k + 1, out);
        to->first_kv_segment = (int64_t)out->n_segments;
        to->n_kv_segments = add_segments(c, r, 0, k + 1, out);
        to->memory_bytes = shares[r].memory_bytes;
        if (to->tokens > 0) {
            to->linear_before_ms =
                (tokens * to->linear_before_us + to->linear_before_fixed_us) * to_ms;
            to->linear_after_ms =
                (tokens * to->linear_after_us + to->linear_after_fixed_us) * to_ms;
        }
        if (comparable) {
            to->predicted_ms = shares[r].predicted_ms;
            to->compute_ms = shares[r].compute_ms;
        }
    }
    return HCP_OK;
}

int ring_chunks_read(const char *file, const char *text, size_t length, hcp_plan *plan,
                     hcp_chunks_plan **out, struct hcp_err *err)
{
    size_t n_ranks = 0, n_chunks = 0, n_segments = 0;
    hcp_chunks_plan *c = NULL;
    char why[200] = "";
    hcp_status status = hcp_chunks_json_counts(text, length, why, sizeof why, &n_ranks,
                                               &n_chunks, &n_segments);

    if (!status) {
        c = chunks_new(n_ranks, n_chunks, n_segments);
        status = c ? hcp_chunks_from_json(text, length, why, sizeof why, c)
                   : HCP_STATUS_NO_MEMORY;
    }
    if (status) {
        ring_chunks_free(c);
        return hcp_fail(err, HCP_FAILED,
                        "%s: %s; print a plan with 'hcp-plan split --chunk-len --json'",
                        file, why[0] ? why : hcp_strerror(status));
    }
    if (ring_plan_unchanged(file, c->fingerprint, hcp_chunks_fingerprint(c), err)) {
        ring_chunks_free(c);
        return err->code;
    }
    c->fingerprint = hcp_chunks_fingerprint(c);
    if (ring_plan_arrays(plan, n_ranks, n_segments, err)) {
        ring_chunks_free(c);
        return err->code;
    }
    whole_prompt(c, plan);
    *out = c;
    return HCP_OK;
}

int ring_chunks_check(const struct ring_options *o, struct hcp_err *err)
{
    const char *what = o->search       ? "search"
                       : o->transition ? "transition"
                       : o->rebalance  ? "--rebalance"
                                       : "--buffers, --sub-blocks and --barrier";

    if (!o->search && !o->transition && !o->rebalance &&
        !(o->given & (RING_GIVEN_BUFFERS | RING_GIVEN_SUB_BLOCKS | RING_GIVEN_BARRIER)))
        return HCP_OK;
    return hcp_fail(
        err, HCP_USAGE,
        "a plan is of chunks, which are run one after the other as it says, in "
        "whole blocks; leave %s out",
        what);
}
