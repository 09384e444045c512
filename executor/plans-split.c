/* SPDX-License-Identifier: Apache-2.0
 *
 * Other splits of a plan's tokens: whether its caps allow them, and the plans they make.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include "executor/program.h"

static hcp_question question_like(const hcp_plan *like)
{
    hcp_question q;

    hcp_question_init(&q);
    q.seq_len = like->seq_len;
    q.causal = like->causal;
    q.layout = like->layout;
    q.stripes = like->stripes > 0 ? like->stripes : 8;
    q.tile = like->tile;
    q.buffers = like->buffers;
    q.sub_blocks = like->sub_blocks;
    q.layers = like->layers;
    q.merge = like->merge;
    q.activation_bytes = like->activation_bytes;
    q.barrier = like->barrier;
    q.link_alpha_us = like->link_alpha_us;
    q.link_gbps = like->link_gbps;
    q.node_ranks = like->node_ranks;
    q.node_alpha_us = like->node_alpha_us;
    q.node_gbps = like->node_gbps;
    q.node_shared_gbps = like->node_shared_gbps;
    q.extrapolate = like->source >= HCP_FROM_EXTRAPOLATED;
    return q;
}

/* Where KV is in a joint plan; the array is the caller's to free. */
static int kv_of(const hcp_plan *plan, int64_t **out, struct hcp_err *err)
{
    *out = NULL;
    if (!plan->joint)
        return HCP_OK;
    *out = calloc(plan->n_ranks, sizeof **out);
    if (!*out)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t r = 0; r < plan->n_ranks; r++)
        (*out)[r] = plan->ranks[r].kv_tokens;
    return HCP_OK;
}

/* Segments of a split behind those that the plan has; counts [n_ranks] by rank. */
static int add_segments(hcp_plan *plan, const int64_t *tokens, int64_t *counts,
                        struct hcp_err *err)
{
    hcp_status status =
        hcp_layout_segments(plan->layout, plan->stripes, plan->n_ranks, tokens,
                            plan->seq_len, plan->segments + plan->n_segments,
                            plan->segments_capacity - plan->n_segments, counts);

    for (size_t r = 0; !status && r < plan->n_ranks; r++)
        plan->n_segments += (size_t)counts[r];
    return status ? hcp_fail(err, ring_exit_code(status),
                             "no segments for this split: %s", hcp_strerror(status))
                  : HCP_OK;
}

/* How the ranks with tokens of another split merge. */
static hcp_merge merge_of(const hcp_plan *like, const int64_t *tokens)
{
    size_t m = 0;

    for (size_t r = 0; r < like->n_ranks; r++)
        m += tokens[r] > 0;
    return m < 2 ? HCP_MERGE_AUTO : like->merge ? like->merge : HCP_MERGE_DOUBLING;
}

/* Without models: the tokens and where they are, nothing predicted. kv: NULL with them.
 */
static int bare_plan(const hcp_plan *like, const int64_t *tokens, const int64_t *kv,
                     hcp_plan *out, struct hcp_err *err)
{
    int64_t first = 0, *counts = calloc(2 * like->n_ranks, sizeof *counts);
    int64_t *kv_counts, first_kv;
    hcp_plan plan = *like;
    int rc;

    if (!counts)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    kv_counts = kv ? counts + like->n_ranks : counts;
    plan.ranks = out->ranks;
    plan.segments = out->segments;
    plan.segments_capacity = out->segments_capacity;
    plan.places = out->places;
    plan.n_segments = 0;
    rc = add_segments(&plan, tokens, counts, err);
    first_kv = kv ? (int64_t)plan.n_segments : 0;
    if (!rc && kv)
        rc = add_segments(&plan, kv, kv_counts, err);
    if (rc) {
        free(counts);
        return rc;
    }
    *out = plan;
    out->order = HCP_ORDER_GIVEN;
    out->has_links = 0;
    out->strategy = HCP_STRATEGY_GIVEN;
    if (ring_plan_is_decode(out))
        out->merge = merge_of(like, tokens);
    out->makespan_ms = out->interval_lo_ms = out->interval_hi_ms = NAN;
    out->gain_over_even = out->tied_ms = out->gain_over_tied = NAN;
    for (size_t r = 0; r < like->n_ranks; r++) {
        hcp_plan_rank *rank = &out->ranks[r];

        *rank = like->ranks[r];
        rank->tokens = tokens[r];
        rank->kv_tokens = kv ? kv[r] : tokens[r];
        rank->first_segment = first;
        rank->n_segments = counts[r];
        rank->first_kv_segment = first_kv;
        rank->n_kv_segments = kv_counts[r];
        rank->predicted_ms = rank->compute_ms = NAN;
        first += counts[r];
        first_kv += kv_counts[r];
    }
    hcp_plan_memory(out, NULL, 0);
    out->fingerprint = hcp_plan_fingerprint(out);
    free(counts);
    return HCP_OK;
}

int ring_tokens_fit(const hcp_plan *like, const int64_t *tokens)
{
    hcp_plan_rank *ranks = malloc(like->n_ranks * sizeof *ranks);
    hcp_plan plan = *like;
    int fit = ranks != NULL;

    plan.ranks = ranks;
    for (size_t r = 0; ranks && r < like->n_ranks; r++) {
        ranks[r] = like->ranks[r];
        ranks[r].tokens = tokens[r];
        fit &= tokens[r] >= 0;
        fit &= like->joint || ranks[r].max_tokens == 0 || /* then KV's, which stays */
               tokens[r] <= ranks[r].max_tokens;
    }
    if (ring_plan_is_decode(&plan))
        plan.merge = merge_of(like, tokens);
    fit = fit && hcp_plan_memory(&plan, NULL, 0) == HCP_STATUS_OK;
    free(ranks);
    return fit;
}

int ring_plan_of_tokens(const struct ring_plans *p, const hcp_plan *like,
                        const int64_t *tokens, hcp_plan *out, struct hcp_err *err)
{
    hcp_question q = question_like(like);
    hcp_status status = HCP_STATUS_NO_MODEL;
    int64_t *kv;
    int rc = kv_of(like, &kv, err);

    if (rc)
        return rc;
    q.kv_tokens = kv;
    rc = ring_plan_arrays(
        out, like->n_ranks,
        (kv ? 2 : 1) * hcp_segments_max(like->n_ranks, q.layout, q.stripes), err);
    if (rc) {
        free(kv);
        return rc;
    }
    if (p->ring && !like->late_kv) /* else the best order of KV would be another */
        status = hcp_plan_evaluate(p->ring, &q, tokens, p->workspace, p->workspace_bytes,
                                   err->text, sizeof err->text, out);
    if (status) /* also outside the measured lengths: it can be run all the same */
        rc = bare_plan(like, tokens, kv, out, err);
    if (rc)
        ring_plan_free(out);
    free(kv);
    return rc;
}
