/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "planner/chunks.h"
#include "planner/hash.h"
#include "planner/json-out.h"

static void put_rank(struct json_out *out, const hcp_chunks_plan *plan, size_t r)
{
    const hcp_chunks_rank *rank = &plan->ranks[r];
    char run[224], command[256];

    put(out, r ? ",{\"rank\":" : "{\"rank\":");
    put_int(out, (int64_t)r);
    name_string(out, "device", rank->device, sizeof rank->device);
    name_string(out, "limit", rank->limit, sizeof rank->limit);
    name_string(out, "model", rank->model, sizeof rank->model);
    name_int(out, "tokens", rank->tokens);
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
    if (rank->max_bytes > 0)
        name_int(out, "max_bytes", rank->max_bytes);
    if (rank->weight_bytes > 0)
        name_int(out, "weight_bytes", rank->weight_bytes);
    name_int(out, "memory_bytes", rank->memory_bytes);
    if (rank->time_scale > 0 && rank->time_scale != 1)
        name_double(out, "time_scale", rank->time_scale);
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

static void put_share(struct json_out *out, const hcp_chunks_plan *plan,
                      const hcp_chunk_share *share, size_t r)
{
    const hcp_segment *segment = plan->segments + share->first_segment;

    put(out, r ? ",{\"rank\":" : "{\"rank\":");
    put_int(out, (int64_t)r);
    name_int(out, "tokens", share->tokens);
    name_int(out, "resident", share->resident);
    put_name(out, "segments");
    put(out, "[");
    for (int64_t i = 0; i < share->n_segments; i++) {
        put(out, i ? ",[" : "[");
        put_int(out, segment[i].offset);
        put(out, ",");
        put_int(out, segment[i].length);
        put(out, "]");
    }
    put(out, "]");
    name_double(out, "predicted_ms", share->predicted_ms);
    name_double(out, "compute_ms", share->compute_ms);
    name_double(out, "wait_ms", share->predicted_ms - share->compute_ms);
    name_double(out, "least_ms", share->least_ms);
    name_int(out, "memory_bytes", share->memory_bytes);
    put(out, "}");
}

static void put_chunk(struct json_out *out, const hcp_chunks_plan *plan, size_t k)
{
    const hcp_chunk *chunk = &plan->chunks[k];

    put(out, k ? ",{\"offset\":" : "{\"offset\":");
    put_int(out, chunk->offset);
    name_int(out, "tokens", chunk->tokens);
    name_string(out, "layout", hcp_layout_name(chunk->layout), 16);
    name_double(out, "step_ms", chunk->step_ms);
    name_double(out, "predicted_ms", chunk->predicted_ms);
    name_interval(out, "interval_ms", chunk->interval_lo_ms, chunk->interval_hi_ms);
    name_double(out, "bound_ms", chunk->bound_ms);
    name_double(out, "least_ms", chunk->least_ms);
    name_int(out, "least_rank", chunk->least_rank);
    name_int(out, "critical_rank", chunk->critical_rank);
    name_string(out, "source", hcp_source_name(chunk->source), 16);
    put_name(out, "ranks");
    put(out, "[");
    for (size_t r = 0; r < plan->n_ranks; r++)
        put_share(out, plan, &plan->shares[k * plan->n_ranks + r], r);
    put(out, "]}");
}

static void put_plan(struct json_out *out, const hcp_chunks_plan *plan)
{
    put(out, "{\"schema\":1");
    name_int(out, "seq_len", plan->seq_len);
    name_string(out, "mask", "causal", 8);
    name_string(out, "phase", "prefill", 8);
    name_speed(out, "step_budget_ms", plan->step_budget_ms);
    name_double(out, "step_fixed_ms", plan->step_fixed_ms);
    name_int(out, "chunk_len", plan->chunk_len);
    name_int(out, "layers", plan->layers);
    put_name(out, "ranks");
    put(out, "[");
    for (size_t r = 0; r < plan->n_ranks; r++)
        put_rank(out, plan, r);
    put(out, "]");
    put_name(out, "chunks");
    put(out, "[");
    for (size_t k = 0; k < plan->n_chunks; k++)
        put_chunk(out, plan, k);
    put(out, "]");
    name_double(out, "total_ms", plan->total_ms);
    name_interval(out, "interval_ms", plan->interval_lo_ms, plan->interval_hi_ms);
    name_double(out, "bound_ms", plan->bound_ms);
    name_double(out, "longest_step_ms", plan->longest_step_ms);
    name_double(out, "least_ms", plan->least_ms);
    name_double(out, "whole_ms", plan->whole_ms);
    name_double(out, "over_whole", plan->over_whole);
    name_int(out, "even_len", plan->even_len);
    name_double(out, "even_ms", plan->even_ms);
    name_double(out, "gain_over_even", plan->gain_over_even);
    name_string(out, "source", hcp_source_name(plan->source), 16);
    name_hash(out, "fingerprint", plan->fingerprint);
    name_string(out, "provider", plan->provider, sizeof plan->provider);
    name_string(out, "dtype", plan->shape.dtype, sizeof plan->shape.dtype);
    name_int(out, "batch", plan->shape.batch);
    name_int(out, "heads", plan->shape.heads);
    name_int(out, "kv_heads", plan->shape.kv_heads);
    name_int(out, "head_dim", plan->shape.head_dim);
    name_int(out, "tile", plan->tile);
    name_int(out, "stripes", plan->stripes);
    name_int(out, "buffers", plan->buffers);
    name_flag(out, "exact", plan->exact);
    name_int(out, "given", plan->given);
    name_double(out, "link_alpha_us", plan->link_alpha_us);
    name_speed(out, "link_gbps", plan->link_gbps);
    name_int(out, "activation_bytes", plan->activation_bytes);
    name_hash(out, "models_hash", plan->models_hash);
    put(out, "}");
}

hcp_status hcp_chunks_to_json(const hcp_chunks_plan *plan, char *json, size_t size,
                              size_t *needed)
{
    struct json_out out = {json, json ? size : 0, 0};

    if (!plan || plan->size < sizeof *plan || (plan->n_ranks > 0 && !plan->ranks) ||
        (plan->n_chunks > 0 && (!plan->chunks || !plan->shares)) ||
        (plan->n_segments > 0 && !plan->segments))
        return HCP_STATUS_INVALID;
    put_plan(&out, plan);
    if (needed)
        *needed = out.n;
    if (out.n + 1 > out.size)
        return HCP_STATUS_SPACE;
    json[out.n] = 0;
    return HCP_STATUS_OK;
}

static void hash_rank(uint64_t *h, const hcp_chunks_rank *rank)
{
    hash_text(h, rank->device, sizeof rank->device);
    hash_text(h, rank->limit, sizeof rank->limit);
    hash_double(h, rank->linear_before_us);
    hash_double(h, rank->linear_before_fixed_us);
    hash_double(h, rank->linear_after_us);
    hash_double(h, rank->linear_after_fixed_us);
    hash_double(h, rank->linear_error);
    hash_u64(h, (uint64_t)rank->max_tokens);
    hash_u64(h, (uint64_t)rank->max_bytes);
    hash_u64(h, (uint64_t)rank->weight_bytes);
    if (rank->time_scale > 0 && rank->time_scale != 1)
        hash_double(h, rank->time_scale);
    if (rank->kin[0])
        hash_text(h, rank->kin, sizeof rank->kin);
}

uint64_t hcp_chunks_fingerprint(const hcp_chunks_plan *plan)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    hash_text(&h, plan->shape.dtype, sizeof plan->shape.dtype);
    hash_u64(&h, (uint64_t)plan->shape.batch);
    hash_u64(&h, (uint64_t)plan->shape.heads);
    hash_u64(&h, (uint64_t)plan->shape.kv_heads);
    hash_u64(&h, (uint64_t)plan->shape.head_dim);
    hash_text(&h, plan->provider, sizeof plan->provider);
    hash_u64(&h, (uint64_t)plan->seq_len);
    hash_double(&h, plan->step_budget_ms);
    hash_double(&h, plan->step_fixed_ms);
    hash_u64(&h, (uint64_t)plan->chunk_len);
    hash_u64(&h, (uint64_t)plan->layers);
    hash_u64(&h, (uint64_t)plan->stripes);
    hash_u64(&h, (uint64_t)plan->buffers);
    hash_u64(&h, (uint64_t)plan->tile);
    hash_double(&h, plan->link_alpha_us);
    hash_double(&h, plan->link_gbps);
    hash_u64(&h, (uint64_t)plan->activation_bytes);
    hash_u64(&h, plan->models_hash);
    hash_u64(&h, plan->n_ranks);
    for (size_t r = 0; r < plan->n_ranks; r++)
        hash_rank(&h, &plan->ranks[r]);
    hash_u64(&h, plan->n_chunks);
    for (size_t k = 0; k < plan->n_chunks; k++) {
        hash_u64(&h, (uint64_t)plan->chunks[k].layout);
        hash_u64(&h, (uint64_t)plan->chunks[k].tokens);
        for (size_t r = 0; r < plan->n_ranks; r++)
            hash_u64(&h, (uint64_t)plan->shares[k * plan->n_ranks + r].tokens);
        hash_double(&h, plan->chunks[k].step_ms);
    }
    hash_double(&h, plan->total_ms);
    return h;
}
