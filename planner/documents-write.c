/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "planner/documents.h"
#include "planner/hash.h"
#include "planner/json-out.h"

static void put_rank(struct json_out *out, const hcp_documents_plan *plan, size_t r)
{
    const hcp_documents_rank *rank = &plan->ranks[r];
    const hcp_document_part *part = plan->parts + rank->first_part;
    char run[224], command[256];

    put(out, r ? ",{\"rank\":" : "{\"rank\":");
    put_int(out, (int64_t)r);
    name_string(out, "device", rank->device, sizeof rank->device);
    name_string(out, "limit", rank->limit, sizeof rank->limit);
    name_int(out, "tokens", rank->tokens);
    put_name(out, "parts");
    put(out, "[");
    for (int64_t i = 0; i < rank->n_parts; i++) {
        put(out, i ? ",[" : "[");
        put_int(out, part[i].document);
        put(out, ",");
        put_int(out, part[i].offset);
        put(out, ",");
        put_int(out, part[i].length);
        put(out, "]");
    }
    put(out, "]");
    name_double(out, "predicted_ms", rank->predicted_ms);
    name_double(out, "compute_ms", rank->compute_ms);
    name_double(out, "wait_ms", rank->predicted_ms - rank->compute_ms);
    name_int(out, "area", rank->area);
    name_int(out, "received_tokens", rank->received_tokens);
    name_string(out, "model", rank->model, sizeof rank->model);
    if (rank->max_tokens > 0)
        name_int(out, "max_tokens", rank->max_tokens);
    if (rank->linear_before_us > 0 || rank->linear_before_fixed_us > 0 ||
        rank->linear_after_us > 0 || rank->linear_after_fixed_us > 0) {
        name_double(out, "linear_before_us", rank->linear_before_us);
        name_double(out, "linear_before_fixed_us", rank->linear_before_fixed_us);
        name_double(out, "linear_after_us", rank->linear_after_us);
        name_double(out, "linear_after_fixed_us", rank->linear_after_fixed_us);
        name_double(out, "linear_error", rank->linear_error);
    }
    if (rank->time_scale > 0 && rank->time_scale != 1)
        name_double(out, "time_scale", rank->time_scale);
    if (rank->max_bytes > 0)
        name_int(out, "max_bytes", rank->max_bytes);
    if (rank->weight_bytes > 0)
        name_int(out, "weight_bytes", rank->weight_bytes);
    name_int(out, "memory_bytes", rank->memory_bytes);
    if (rank->kin[0]) {
        name_string(out, "source", hcp_source_name(HCP_FROM_ESTIMATED), 16);
        name_string(out, "estimated_from", rank->kin, sizeof rank->kin);
        put_name(out, "measure");
        snprintf(command, sizeof command, "hcp-profile run%s",
                 bind_run_options(rank->limit, &plan->shape, NULL, run));
        put_string(out, command, sizeof command);
    }
    put(out, "}");
}

/* The documents that are cut: ranks that share each, and where it is cut. */
static void put_cuts(struct json_out *out, const hcp_documents_plan *plan)
{
    int some = 0;

    put_name(out, "cuts");
    put(out, "[");
    for (size_t i = 0; i < plan->n_ranks; i++) {
        const hcp_documents_rank *rank = &plan->ranks[i];

        for (int64_t k = 0; k < rank->n_parts; k++) {
            const hcp_document_part *part = &plan->parts[rank->first_part + k];

            if (part->offset == 0)
                continue;
            put(out, some++ ? ",{\"document\":" : "{\"document\":");
            put_int(out, part->document);
            name_int(out, "at", part->offset);
            name_int(out, "rank", (int64_t)i);
            put(out, "}");
        }
    }
    put(out, "]");
}

static void put_plan(struct json_out *out, const hcp_documents_plan *plan)
{
    int64_t tokens = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        tokens += plan->ranks[r].tokens;
    put(out, "{\"schema\":1");
    name_int(out, "documents", (int64_t)plan->n_documents);
    name_int(out, "tokens", tokens);
    name_string(out, "mask", plan->causal ? "causal" : "full", 8);
    name_string(out, "phase", "prefill", 8);
    put_name(out, "ranks");
    put(out, "[");
    for (size_t r = 0; r < plan->n_ranks; r++)
        put_rank(out, plan, r);
    put(out, "]");
    put_cuts(out, plan);
    name_double(out, "makespan_ms", plan->makespan_ms);
    name_interval(out, "interval_ms", plan->interval_lo_ms, plan->interval_hi_ms);
    name_double(out, "bound_ms", plan->bound_ms);
    name_double(out, "even_ms", plan->even_ms);
    name_double(out, "gain_over_even", plan->gain_over_even);
    name_double(out, "whole_ms", plan->whole_ms);
    name_double(out, "gain_over_whole", plan->gain_over_whole);
    name_double(out, "imbalance", plan->imbalance);
    name_double(out, "area_imbalance", plan->area_imbalance);
    name_string(out, "uneven", hcp_uneven_name(plan->uneven), 8);
    name_int(out, "cut_documents", plan->n_cut);
    name_string(out, "source", hcp_source_name(plan->source), 16);
    name_hash(out, "fingerprint", plan->fingerprint);
    name_string(out, "provider", plan->provider, sizeof plan->provider);
    name_string(out, "dtype", plan->shape.dtype, sizeof plan->shape.dtype);
    name_int(out, "batch", plan->shape.batch);
    name_int(out, "heads", plan->shape.heads);
    name_int(out, "kv_heads", plan->shape.kv_heads);
    name_int(out, "head_dim", plan->shape.head_dim);
    name_int(out, "tile", plan->tile);
    name_flag(out, "whole", plan->whole);
    name_double(out, "cut_gain", plan->cut_gain);
    name_int(out, "critical_rank", plan->critical_rank);
    name_flag(out, "exact", plan->exact);
    name_flag(out, "given", plan->given);
    name_double(out, "link_alpha_us", plan->link_alpha_us);
    name_speed(out, "link_gbps", plan->link_gbps);
    name_int(out, "layers", plan->layers);
    name_int(out, "activation_bytes", plan->activation_bytes);
    name_hash(out, "models_hash", plan->models_hash);
    put(out, "}");
}

hcp_status hcp_documents_to_json(const hcp_documents_plan *plan, char *json, size_t size,
                                 size_t *needed)
{
    struct json_out out = {json, json ? size : 0, 0};

    if (!plan || plan->size < sizeof *plan || (plan->n_ranks > 0 && !plan->ranks) ||
        (plan->n_parts > 0 && !plan->parts))
        return HCP_STATUS_INVALID;
    put_plan(&out, plan);
    if (needed)
        *needed = out.n;
    if (out.n + 1 > out.size)
        return HCP_STATUS_SPACE;
    json[out.n] = 0;
    return HCP_STATUS_OK;
}

uint64_t hcp_documents_fingerprint(const hcp_documents_plan *plan)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    hash_text(&h, plan->shape.dtype, sizeof plan->shape.dtype);
    hash_u64(&h, (uint64_t)plan->shape.batch);
    hash_u64(&h, (uint64_t)plan->shape.heads);
    hash_u64(&h, (uint64_t)plan->shape.kv_heads);
    hash_u64(&h, (uint64_t)plan->shape.head_dim);
    hash_text(&h, plan->provider, sizeof plan->provider);
    hash_u64(&h, plan->n_documents);
    hash_u64(&h, (uint64_t)plan->causal);
    hash_u64(&h, (uint64_t)plan->whole);
    hash_double(&h, plan->cut_gain);
    hash_u64(&h, (uint64_t)plan->tile);
    hash_double(&h, plan->link_alpha_us);
    hash_double(&h, plan->link_gbps);
    hash_u64(&h, (uint64_t)plan->layers);
    hash_u64(&h, (uint64_t)plan->activation_bytes);
    hash_u64(&h, plan->models_hash);
    hash_u64(&h, plan->n_ranks);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_documents_rank *rank = &plan->ranks[r];

        hash_text(&h, rank->device, sizeof rank->device);
        hash_text(&h, rank->limit, sizeof rank->limit);
        hash_double(&h, rank->linear_before_us);
        hash_double(&h, rank->linear_before_fixed_us);
        hash_double(&h, rank->linear_after_us);
        hash_double(&h, rank->linear_after_fixed_us);
        hash_double(&h, rank->linear_error);
        hash_u64(&h, (uint64_t)rank->max_tokens);
        hash_u64(&h, (uint64_t)rank->max_bytes);
        hash_u64(&h, (uint64_t)rank->weight_bytes);
        if (rank->time_scale > 0 && rank->time_scale != 1)
            hash_double(&h, rank->time_scale);
        hash_u64(&h, (uint64_t)rank->n_parts);
        for (int64_t i = 0; i < rank->n_parts; i++) {
            const hcp_document_part *part = &plan->parts[rank->first_part + i];

            hash_u64(&h, (uint64_t)part->document);
            hash_u64(&h, (uint64_t)part->offset);
            hash_u64(&h, (uint64_t)part->length);
        }
    }
    hash_double(&h, plan->makespan_ms);
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].kin[0]) {
            hash_u64(&h, r);
            hash_text(&h, plan->ranks[r].kin, sizeof plan->ranks[r].kin);
        }
    return h;
}
