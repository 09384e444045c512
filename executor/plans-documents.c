/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of documents from files. The pack is one sequence, a document behind the other: a
 * plan of it says where every rank's tokens are in that, and what is predicted, so that
 * whatever runs, measures and prints plans does so with these; who sees what is the
 * documents' (schedule-documents.h).
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"

void ring_documents_free(hcp_documents_plan *d)
{
    if (!d)
        return;
    free(d->ranks);
    free(d->parts);
    free(d->lengths);
    free(d);
}

static hcp_documents_plan *documents_new(size_t n_ranks, size_t n_parts,
                                         size_t n_documents)
{
    hcp_documents_plan *d = calloc(1, sizeof *d);
    hcp_documents_rank *ranks = calloc(n_ranks + 1, sizeof *ranks);
    hcp_document_part *parts = calloc(n_parts + 1, sizeof *parts);
    int64_t *lengths = calloc(n_documents + 1, sizeof *lengths);

    if (!d || !ranks || !parts || !lengths) {
        free(d);
        free(ranks);
        free(parts);
        free(lengths);
        return NULL;
    }
    hcp_documents_plan_init(d, ranks, n_ranks + 1, parts, n_parts + 1, lengths,
                            n_documents + 1);
    return d;
}

/* Where each part is in the pack; starts[n_documents]. */
static void place_parts(const hcp_documents_plan *d, const int64_t *starts,
                        hcp_plan *plan)
{
    for (size_t r = 0; r < d->n_ranks; r++) {
        const hcp_documents_rank *from = &d->ranks[r];
        hcp_plan_rank *to = &plan->ranks[r];

        memcpy(to->device, from->device, sizeof to->device);
        memcpy(to->limit, from->limit, sizeof to->limit);
        memcpy(to->model, from->model, sizeof to->model);
        to->max_tokens = from->max_tokens;
        to->max_bytes = from->max_bytes;
        to->weight_bytes = from->weight_bytes;
        to->memory_bytes = from->memory_bytes;
        to->tokens = to->kv_tokens = from->tokens;
        to->first_segment = to->first_kv_segment = from->first_part;
        to->n_segments = to->n_kv_segments = from->n_parts;
        to->predicted_ms = from->predicted_ms;
        to->compute_ms = from->compute_ms;
        to->linear_before_us = from->linear_before_us;
        to->linear_before_fixed_us = from->linear_before_fixed_us;
        to->linear_after_us = from->linear_after_us;
        to->linear_after_fixed_us = from->linear_after_fixed_us;
        to->linear_error = from->linear_error;
        to->time_scale = from->time_scale;
        memcpy(to->kin, from->kin, sizeof to->kin);
        if (from->tokens > 0) {
            double tokens = (double)from->tokens;
            double to_ms = (from->time_scale > 0 ? from->time_scale : 1) / 1e3;

            to->linear_before_ms =
                (tokens * from->linear_before_us + from->linear_before_fixed_us) * to_ms;
            to->linear_after_ms =
                (tokens * from->linear_after_us + from->linear_after_fixed_us) * to_ms;
        }
    }
    for (size_t i = 0; i < d->n_parts; i++)
        plan->segments[i] = (hcp_segment){
            starts[d->parts[i].document] + d->parts[i].offset, d->parts[i].length};
    plan->n_segments = d->n_parts;
}

static void fill_plan(const hcp_documents_plan *d, int64_t *starts, hcp_plan *plan)
{
    for (size_t i = 0; i < d->n_documents; i++) {
        starts[i] = plan->seq_len;
        plan->seq_len += d->lengths[i];
    }
    plan->n_ranks = d->n_ranks;
    plan->shape = d->shape;
    memcpy(plan->provider, d->provider, sizeof plan->provider);
    plan->causal = d->causal;
    plan->strategy = d->given ? HCP_STRATEGY_GIVEN : HCP_STRATEGY_BEST;
    plan->layout = HCP_LAYOUT_CONTIGUOUS;
    plan->stripes = 1;
    plan->tile = d->tile;
    plan->sub_blocks = 1; /* buffers 0: one for every block */
    plan->link_alpha_us = d->link_alpha_us;
    plan->link_gbps = d->link_gbps;
    plan->layers = d->layers;
    plan->activation_bytes = d->activation_bytes;
    plan->makespan_ms = d->makespan_ms;
    plan->interval_lo_ms = d->interval_lo_ms;
    plan->interval_hi_ms = d->interval_hi_ms;
    plan->bound_ms = d->bound_ms;
    plan->even_ms = d->even_ms;
    plan->gain_over_even = d->gain_over_even;
    plan->drop_ms = plan->given_order_ms = plan->any_order_ms = plan->in_turn_ms = NAN;
    plan->late_bound_ms = plan->tied_ms = plan->gain_over_tied = NAN;
    plan->one_ring_ms = plan->two_level_ms = NAN;
    plan->source = d->source;
    plan->critical_rank = d->critical_rank;
    plan->models_hash = d->models_hash;
    place_parts(d, starts, plan);
}

int ring_documents_read(const char *file, const char *text, size_t length, hcp_plan *plan,
                        hcp_documents_plan **out, struct hcp_err *err)
{
    size_t n_ranks = 0, n_parts = 0, n_documents = 0;
    hcp_documents_plan *d = NULL;
    int64_t *starts = NULL;
    char why[200] = "";
    hcp_status status = hcp_documents_json_counts(text, length, why, sizeof why, &n_ranks,
                                                  &n_parts, &n_documents);

    if (!status) {
        d = documents_new(n_ranks, n_parts, n_documents);
        starts = calloc(n_documents + 1, sizeof *starts);
        if (!d || !starts)
            status = HCP_STATUS_NO_MEMORY;
    }
    if (!status)
        status = hcp_documents_from_json(text, length, why, sizeof why, d);
    if (status) {
        ring_documents_free(d);
        free(starts);
        return hcp_fail(err, HCP_FAILED,
                        "%s: %s; print a plan with 'hcp-plan split --documents --json'",
                        file, why[0] ? why : hcp_strerror(status));
    }
    if (ring_plan_unchanged(file, d->fingerprint, hcp_documents_fingerprint(d), err)) {
        ring_documents_free(d);
        free(starts);
        return err->code;
    }
    d->fingerprint = hcp_documents_fingerprint(d);
    if (ring_plan_arrays(plan, n_ranks, n_parts, err)) {
        ring_documents_free(d);
        free(starts);
        return err->code;
    }
    fill_plan(d, starts, plan);
    plan->fingerprint = d->fingerprint;
    free(starts);
    *out = d;
    return HCP_OK;
}

const hcp_documents_plan *ring_documents_of(const struct ring_plans *p,
                                            const hcp_plan *plan)
{
    for (size_t i = 0; p->documents && i < p->n; i++)
        if (&p->plans[i] == plan)
            return p->documents[i];
    return NULL;
}

int ring_documents_any(const struct ring_plans *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->documents && p->documents[i])
            return 1;
    return 0;
}
