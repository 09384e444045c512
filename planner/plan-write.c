/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "planner/decode.h"
#include "planner/hash.h"
#include "planner/json-out.h"

static int has_linear(const hcp_plan_rank *rank)
{
    return rank->linear_before_us > 0 || rank->linear_before_fixed_us > 0 ||
           rank->linear_after_us > 0 || rank->linear_after_fixed_us > 0;
}

/* Was memory part of the question? */
static int has_memory(const hcp_plan *plan)
{
    if (plan->layers != 1 || plan->activation_bytes > 0)
        return 1;
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].max_bytes > 0 || plan->ranks[r].weight_bytes > 0)
            return 1;
    return 0;
}

static void put_segments(struct json_out *out, const char *name,
                         const hcp_segment *segment, int64_t n)
{
    put_name(out, name);
    put(out, "[");
    for (int64_t i = 0; i < n; i++) {
        put(out, i ? ",[" : "[");
        put_int(out, segment[i].offset);
        put(out, ",");
        put_int(out, segment[i].length);
        put(out, "]");
    }
    put(out, "]");
}

/* The command that replaces an estimate. */
static void put_measure(struct json_out *out, const char *limit, const hcp_shape *shape)
{
    char run[224], command[256];

    bind_run_options(limit, shape, NULL, run);
    snprintf(command, sizeof command, "hcp-profile run%s", run);
    name_string(out, "measure", command, sizeof command);
}

static void put_rank(struct json_out *out, const hcp_plan *plan, size_t r, int memory)
{
    const hcp_plan_rank *rank = &plan->ranks[r];

    put(out, r ? ",{\"rank\":" : "{\"rank\":");
    put_int(out, (int64_t)r);
    name_string(out, "device", rank->device, sizeof rank->device);
    name_string(out, "limit", rank->limit, sizeof rank->limit);
    name_int(out, "tokens", rank->tokens);
    put_segments(out, "segments", plan->segments + rank->first_segment, rank->n_segments);
    name_double(out, "predicted_ms", rank->predicted_ms);
    name_int(out, "kv_tokens", rank->kv_tokens);
    if (plan->joint)
        put_segments(out, "kv_segments", plan->segments + rank->first_kv_segment,
                     rank->n_kv_segments);
    name_double(out, "compute_ms", rank->compute_ms);
    name_double(out, "wait_ms", rank->predicted_ms - rank->compute_ms);
    name_double(out, "share", (double)rank->tokens / (double)plan->seq_len);
    name_string(out, "model", rank->model, sizeof rank->model);
    if (rank->max_tokens > 0)
        name_int(out, "max_tokens", rank->max_tokens);
    if (plan->order || plan->has_links)
        name_int(out, "given_rank", plan->places[r].rank);
    if (plan->late_kv)
        name_int(out, "late_slots", rank->late_slots);
    if (plan->has_links) {
        const hcp_link *link = &plan->places[r].link;

        name_double(out, "link_alpha_us", link->alpha_us);
        name_double(out, "link_gbps", link->gbps > 0 ? link->gbps : 1.0 / 0.0);
        name_double(out, "link_slowdown", link->slowdown);
        name_double(out, "link_transfer_slowdown", link->transfer_slowdown);
        name_double(out, "link_overhead_us", link->overhead_us);
    }
    if (has_linear(rank)) {
        name_double(out, "linear_before_us", rank->linear_before_us);
        name_double(out, "linear_before_fixed_us", rank->linear_before_fixed_us);
        name_double(out, "linear_after_us", rank->linear_after_us);
        name_double(out, "linear_after_fixed_us", rank->linear_after_fixed_us);
        if (rank->linear_error > 0)
            name_double(out, "linear_error", rank->linear_error);
        name_double(out, "linear_before_ms", rank->linear_before_ms);
        name_double(out, "linear_after_ms", rank->linear_after_ms);
    }
    if (rank->time_scale > 0 && rank->time_scale != 1)
        name_double(out, "time_scale", rank->time_scale);
    if (rank->max_bytes > 0)
        name_int(out, "max_bytes", rank->max_bytes);
    if (rank->weight_bytes > 0)
        name_int(out, "weight_bytes", rank->weight_bytes);
    if (memory)
        name_int(out, "memory_bytes", rank->memory_bytes);
    if (rank->kin[0]) {
        name_string(out, "source", hcp_source_name(HCP_FROM_ESTIMATED), 16);
        name_string(out, "estimated_from", rank->kin, sizeof rank->kin);
        put_measure(out, rank->limit, &plan->shape);
    }
    put(out, "}");
}

static void put_merge(struct json_out *out, const hcp_plan *plan)
{
    put(out, ",\"merge\":{\"schedule\":");
    put_string(out, hcp_merge_name(plan->merge), 16);
    name_int(out, "bytes", plan->merge_bytes);
    name_double(out, "ms", plan->merge_ms);
    name_double(out, "ring_ms", plan->merge_ring_ms);
    name_double(out, "doubling_ms", plan->merge_doubling_ms);
    name_double(out, "gather_ms", plan->merge_gather_ms);
    put(out, "}");
}

static void put_plan(struct json_out *out, const hcp_plan *plan)
{
    size_t dropped = 0;
    int memory = has_memory(plan);

    put(out, "{\"schema\":1");
    name_string(out, "strategy", hcp_strategy_name(plan->strategy), 16);
    name_int(out, "seq_len", plan->seq_len);
    name_string(out, "mask", plan->causal ? "causal" : "full", 8);
    name_string(out, "layout", hcp_layout_name(plan->layout), 16);
    name_string(out, "phase", plan_is_decode(plan) ? "decode" : "prefill", 8);
    put_name(out, "ranks");
    put(out, "[");
    for (size_t r = 0; r < plan->n_ranks; r++) {
        put_rank(out, plan, r, memory);
        dropped += plan->ranks[r].tokens == 0 && plan->ranks[r].kv_tokens == 0;
    }
    put(out, "]");
    name_double(out, "makespan_ms", plan->makespan_ms);
    name_interval(out, "interval_ms", plan->interval_lo_ms, plan->interval_hi_ms);
    name_double(out, "bound_ms", plan->bound_ms);
    name_double(out, "even_ms", plan->even_ms);
    name_double(out, "drop_ms", plan->drop_ms);
    name_double(out, "gain_over_even", plan->gain_over_even);
    name_string(out, "source", hcp_source_name(plan->source), 16);
    name_hash(out, "fingerprint", plan->fingerprint);
    name_string(out, "decision", hcp_decision_name(plan->decision), 8);
    name_string(out, "provider", plan->provider, sizeof plan->provider);
    name_string(out, "dtype", plan->shape.dtype, sizeof plan->shape.dtype);
    name_int(out, "batch", plan->shape.batch);
    name_int(out, "heads", plan->shape.heads);
    name_int(out, "kv_heads", plan->shape.kv_heads);
    name_int(out, "head_dim", plan->shape.head_dim);
    name_int(out, "tile", plan->tile);
    if (plan->layout == HCP_LAYOUT_STRIPED)
        name_int(out, "stripes", plan->stripes);
    name_int(out, "dropped", (int64_t)dropped);
    name_int(out, "critical_rank", plan->critical_rank);
    name_flag(out, "exact", plan->exact);
    name_int(out, "buffers", plan->buffers);
    name_int(out, "sub_blocks", plan->sub_blocks);
    name_flag(out, "barrier", plan->barrier);
    name_double(out, "link_alpha_us", plan->link_alpha_us);
    name_speed(out, "link_gbps", plan->link_gbps);
    name_hash(out, "models_hash", plan->models_hash);
    if (plan->order) {
        name_string(out, "order", hcp_order_name(plan->order), 8);
        name_double(out, "given_order_ms", plan->given_order_ms);
        name_double(out, "any_order_ms", plan->any_order_ms);
        name_double(out, "reorder_gain", plan->given_order_ms / plan->any_order_ms);
    }
    if (plan->late_kv) {
        put(out, ",\"late_kv\":true");
        name_double(out, "in_turn_ms", plan->in_turn_ms);
        name_double(out, "late_bound_ms", plan->late_bound_ms);
        name_double(out, "late_gain", plan->in_turn_ms / plan->makespan_ms);
    }
    if (plan->joint) {
        put(out, ",\"joint\":true");
        name_double(out, "tied_ms", plan->tied_ms);
        name_double(out, "gain_over_tied", plan->gain_over_tied);
    }
    if (memory) {
        name_int(out, "layers", plan->layers);
        name_int(out, "activation_bytes", plan->activation_bytes);
    }
    if (plan->node_ranks > 0) {
        name_int(out, "node_ranks", plan->node_ranks);
        name_double(out, "node_alpha_us", plan->node_alpha_us);
        name_speed(out, "node_gbps", plan->node_gbps);
        name_speed(out, "node_shared_gbps", plan->node_shared_gbps);
        name_string(out, "rings", hcp_rings_name(plan->rings), 8);
        name_int(out, "inner_ranks", plan->inner_ranks);
    }
    if (plan->rings) {
        name_double(out, "one_ring_ms", plan->one_ring_ms);
        name_double(out, "two_level_ms", plan->two_level_ms);
        name_double(out, "two_level_gain", plan->one_ring_ms / plan->two_level_ms);
    }
    if (plan_is_decode(plan))
        put_merge(out, plan);
    put(out, "}");
}

hcp_status hcp_plan_to_json(const hcp_plan *plan, char *json, size_t size, size_t *needed)
{
    struct json_out out = {json, json ? size : 0, 0};

    if (!plan || plan->size < sizeof *plan || (plan->n_ranks > 0 && !plan->ranks) ||
        ((plan->order || plan->has_links) && !plan->places))
        return HCP_STATUS_INVALID;
    put_plan(&out, plan);
    if (needed)
        *needed = out.n;
    if (out.n + 1 > out.size)
        return HCP_STATUS_SPACE;
    json[out.n] = 0;
    return HCP_STATUS_OK;
}

static void hash_segments(uint64_t *h, const hcp_segment *segment, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        hash_u64(h, (uint64_t)segment[i].offset);
        hash_u64(h, (uint64_t)segment[i].length);
    }
}

uint64_t hcp_plan_fingerprint(const hcp_plan *plan)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    hash_text(&h, plan->shape.dtype, sizeof plan->shape.dtype);
    hash_u64(&h, (uint64_t)plan->shape.batch);
    hash_u64(&h, (uint64_t)plan->shape.heads);
    hash_u64(&h, (uint64_t)plan->shape.kv_heads);
    hash_u64(&h, (uint64_t)plan->shape.head_dim);
    hash_text(&h, plan->provider, sizeof plan->provider);
    hash_u64(&h, (uint64_t)plan->seq_len);
    hash_u64(&h, (uint64_t)plan->causal);
    hash_u64(&h, (uint64_t)plan->strategy);
    hash_u64(&h, (uint64_t)plan->layout);
    hash_u64(&h, (uint64_t)(plan->layout == HCP_LAYOUT_STRIPED ? plan->stripes : 0));
    hash_u64(&h, (uint64_t)plan->tile);
    hash_u64(&h, (uint64_t)plan->buffers);
    hash_u64(&h, (uint64_t)plan->barrier);
    hash_u64(&h, (uint64_t)plan->sub_blocks);
    hash_double(&h, plan->link_alpha_us);
    hash_double(&h, plan->link_gbps);
    hash_u64(&h, plan->models_hash);
    hash_u64(&h, plan->n_ranks);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_plan_rank *rank = &plan->ranks[r];

        /* Ranks in a row are often the same device: its name counts once. */
        if (r > 0 && strncmp(rank->device, rank[-1].device, sizeof rank->device) == 0 &&
            strncmp(rank->limit, rank[-1].limit, sizeof rank->limit) == 0) {
            hash_u64(&h, UINT64_MAX);
        } else {
            hash_text(&h, rank->device, sizeof rank->device);
            hash_text(&h, rank->limit, sizeof rank->limit);
        }
        hash_u64(&h, (uint64_t)rank->max_tokens);
        hash_u64(&h, (uint64_t)rank->tokens);
        hash_u64(&h, (uint64_t)rank->n_segments);
        if (has_linear(rank)) { /* attention alone: as before there was this */
            hash_double(&h, rank->linear_before_us);
            hash_double(&h, rank->linear_before_fixed_us);
            hash_double(&h, rank->linear_after_us);
            hash_double(&h, rank->linear_after_fixed_us);
            if (rank->linear_error > 0)
                hash_double(&h, rank->linear_error);
        }
    }
    if (!plan->joint)
        hash_segments(&h, plan->segments, (int64_t)plan->n_segments);
    hash_double(&h, plan->makespan_ms);
    if (plan->order || plan->has_links) {
        hash_u64(&h, (uint64_t)plan->order);
        hash_u64(&h, (uint64_t)plan->has_links);
        for (size_t r = 0; plan->places && r < plan->n_ranks; r++) {
            const hcp_link *link = &plan->places[r].link;

            hash_u64(&h, (uint64_t)plan->places[r].rank);
            hash_double(&h, link->alpha_us);
            hash_double(&h, link->gbps);
            hash_double(&h, link->slowdown);
            hash_double(&h, link->transfer_slowdown);
            hash_double(&h, link->overhead_us);
        }
    }
    for (size_t r = 0; plan->late_kv && r < plan->n_ranks; r++)
        hash_u64(&h, (uint64_t)plan->ranks[r].late_slots + 1);
    if (plan->node_ranks > 0) {
        hash_u64(&h, (uint64_t)plan->node_ranks);
        hash_double(&h, plan->node_alpha_us);
        hash_double(&h, plan->node_gbps);
        hash_double(&h, plan->node_shared_gbps);
        hash_u64(&h, (uint64_t)plan->rings);
        hash_u64(&h, (uint64_t)plan->inner_ranks);
    }
    for (size_t r = 0; plan->joint && r < plan->n_ranks; r++) {
        const hcp_plan_rank *rank = &plan->ranks[r];

        hash_u64(&h, (uint64_t)rank->kv_tokens);
        hash_u64(&h, (uint64_t)rank->n_kv_segments);
        hash_segments(&h, plan->segments + rank->first_segment, rank->n_segments);
        hash_segments(&h, plan->segments + rank->first_kv_segment, rank->n_kv_segments);
    }
    if (has_memory(plan)) {
        hash_u64(&h, (uint64_t)plan->layers);
        hash_u64(&h, (uint64_t)plan->activation_bytes);
        for (size_t r = 0; r < plan->n_ranks; r++) {
            hash_u64(&h, (uint64_t)plan->ranks[r].max_bytes);
            hash_u64(&h, (uint64_t)plan->ranks[r].weight_bytes);
        }
    }
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].time_scale > 0 && plan->ranks[r].time_scale != 1) {
            hash_u64(&h, r);
            hash_double(&h, plan->ranks[r].time_scale);
        }
    if (plan_is_decode(plan)) {
        hash_text(&h, plan->shape.phase, sizeof plan->shape.phase);
        hash_u64(&h, (uint64_t)plan->merge);
        hash_double(&h, plan->merge_ms);
    }
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].kin[0]) {
            hash_u64(&h, r);
            hash_text(&h, plan->ranks[r].kin, sizeof plan->ranks[r].kin);
        }
    return h;
}
