/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/decode.h"
#include "planner/plan-read.h"

/* Every member of the schema, to refuse duplicates and find missing ones. */
enum member {
    M_SCHEMA,
    M_STRATEGY,
    M_SEQ_LEN,
    M_MASK,
    M_LAYOUT,
    M_PHASE,
    M_RANKS,
    M_MAKESPAN,
    M_INTERVAL,
    M_BOUND,
    M_EVEN,
    M_DROP,
    M_GAIN,
    M_SOURCE,
    M_FINGERPRINT,
    M_DECISION,
    M_PROVIDER,
    M_DTYPE,
    M_BATCH,
    M_HEADS,
    M_KV_HEADS,
    M_HEAD_DIM,
    M_TILE,
    M_STRIPES,
    M_CRITICAL,
    M_EXACT,
    M_BUFFERS,
    M_BARRIER,
    M_ALPHA,
    M_GBPS,
    M_MODELS_HASH,
    M_SUB_BLOCKS,
    M_ORDER,
    M_GIVEN_ORDER,
    M_ANY_ORDER,
    M_LATE_KV,
    M_IN_TURN,
    M_LATE_BOUND,
    M_JOINT,
    M_TIED,
    M_GAIN_TIED,
    M_LAYERS,
    M_ACTIVATION,
    M_NODE_RANKS,
    M_NODE_ALPHA,
    M_NODE_GBPS,
    M_NODE_SHARED,
    M_RINGS,
    M_INNER,
    M_ONE_RING,
    M_TWO_LEVEL,
    M_MERGE,
    M_COUNT
};
static const char *const member_names[M_COUNT] = {
    "schema", "strategy", "seq_len", "mask", "layout", "phase", "ranks", "makespan_ms",
    "interval_ms", "bound_ms", "even_ms", "drop_ms", "gain_over_even", "source",
    "fingerprint", "decision", "provider", "dtype", "batch", "heads", "kv_heads",
    "head_dim", "tile", "stripes", "critical_rank", "exact", "buffers", "barrier",
    "link_alpha_us", "link_gbps", "models_hash", "sub_blocks", "order", "given_order_ms",
    "any_order_ms", "late_kv", "in_turn_ms", "late_bound_ms", "joint", "tied_ms",
    "gain_over_tied", "layers", "activation_bytes", "node_ranks", "node_alpha_us",
    "node_gbps", "node_shared_gbps", "rings", "inner_ranks", "one_ring_ms",
    "two_level_ms", "merge"};

/* A string that is one of n names; its index. */
static int read_name(struct json_in *in, const char *(*name)(int), int n, int *out)
{
    char text[32];

    if (jin_string(in, text, sizeof text))
        return -1;
    for (int i = 0; i < n; i++) {
        if (strcmp(text, name(i)) == 0) {
            *out = i;
            return 0;
        }
    }
    return jin_fail(in, "unknown name");
}

static const char *strategy_at(int i)
{
    return hcp_strategy_name((hcp_strategy)i);
}

static const char *layout_at(int i)
{
    return i == 0 ? "" : hcp_layout_name((hcp_layout)i); /* a plan is never "auto" */
}

static const char *rings_at(int i)
{
    return hcp_rings_name((hcp_rings)i);
}

static const char *order_at(int i)
{
    return i == 0 ? ""
                  : hcp_order_name((hcp_order)i); /* a plan has none of its own then */
}

static const char *source_at(int i)
{
    return hcp_source_name((hcp_source)i);
}

static const char *decision_at(int i)
{
    return hcp_decision_name((hcp_decision)i);
}

static const char *mask_at(int i)
{
    return i ? "causal" : "full";
}

static const char *phase_at(int i)
{
    return i ? "decode" : "prefill";
}

static const char *merge_at(int i)
{
    return hcp_merge_name((hcp_merge)i);
}

static int read_interval(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    if (r->n_interval == 2)
        return jin_fail(in, "more than two numbers in an interval");
    return jin_double(in, &r->interval[r->n_interval++]);
}

static int read_names(struct json_in *in, hcp_plan *plan, int id)
{
    int i = 0, rc;

    switch (id) {
    case M_STRATEGY:
        rc = read_name(in, strategy_at, HCP_STRATEGY_GIVEN + 1, &i);
        plan->strategy = (hcp_strategy)i;
        return rc;
    case M_LAYOUT:
        rc = read_name(in, layout_at, HCP_LAYOUT_STRIPED + 1, &i);
        plan->layout = (hcp_layout)i;
        return rc;
    case M_ORDER:
        rc = read_name(in, order_at, HCP_ORDER_FIXED + 1, &i);
        plan->order = (hcp_order)i;
        return rc;
    case M_RINGS:
        rc = read_name(in, rings_at, HCP_RINGS_BEST + 1, &i);
        plan->rings = (hcp_rings)i;
        return rc;
    case M_SOURCE:
        rc = read_name(in, source_at, HCP_FROM_ESTIMATED + 1, &i);
        plan->source = (hcp_source)i;
        return rc;
    case M_DECISION:
        rc = read_name(in, decision_at, HCP_DECISION_DROP + 1, &i);
        plan->decision = (hcp_decision)i;
        return rc;
    case M_MASK:
        rc = read_name(in, mask_at, 2, &i);
        plan->causal = i;
        return rc;
    default:
        rc = read_name(in, phase_at, 2, &i);
        memset(plan->shape.phase, 0, sizeof plan->shape.phase);
        memcpy(plan->shape.phase, phase_at(i), strlen(phase_at(i)));
        return rc;
    }
}

static int read_numbers(struct json_in *in, struct reading *r, int id)
{
    hcp_plan *plan = r->plan;
    int64_t number;

    switch (id) {
    case M_SCHEMA:
        if (jin_int(in, 1, INT32_MAX, &number))
            return -1;
        return number == 1 ? 0 : jin_fail(in, "schema is not 1: of a newer version");
    case M_SEQ_LEN:
        return jin_int(in, 1, HCP_PLAN_MAX_LEN, &plan->seq_len);
    case M_TILE:
        return jin_int(in, 1, HCP_PLAN_MAX_LEN, &plan->tile);
    case M_STRIPES:
        return jin_int32(in, 1, MAX_STRIPES, &plan->stripes);
    case M_BUFFERS:
        return jin_int32(in, 0, MAX_BUFFERS, &plan->buffers);
    case M_SUB_BLOCKS:
        return jin_int32(in, 1, MAX_SUB_BLOCKS, &plan->sub_blocks);
    case M_LAYERS:
        return jin_int32(in, 0, MAX_LAYERS, &plan->layers);
    case M_ACTIVATION:
        return jin_int(in, 0, MAX_TOKEN_BYTES, &plan->activation_bytes);
    case M_CRITICAL:
        return jin_int32(in, 0, HCP_PLAN_MAX_RANKS - 1, &plan->critical_rank);
    case M_BATCH:
        return jin_int32(in, 1, INT32_MAX, &plan->shape.batch);
    case M_HEADS:
        return jin_int32(in, 1, INT32_MAX, &plan->shape.heads);
    case M_KV_HEADS:
        return jin_int32(in, 1, INT32_MAX, &plan->shape.kv_heads);
    case M_HEAD_DIM:
        return jin_int32(in, 1, INT32_MAX, &plan->shape.head_dim);
    case M_MAKESPAN:
        return jin_double(in, &plan->makespan_ms);
    case M_BOUND:
        return jin_double(in, &plan->bound_ms);
    case M_EVEN:
        return jin_double(in, &plan->even_ms);
    case M_DROP:
        return jin_double(in, &plan->drop_ms);
    case M_GIVEN_ORDER:
        return jin_double(in, &plan->given_order_ms);
    case M_ANY_ORDER:
        return jin_double(in, &plan->any_order_ms);
    case M_NODE_RANKS:
        return jin_int32(in, 1, HCP_PLAN_MAX_RANKS, &plan->node_ranks);
    case M_INNER:
        return jin_int32(in, 0, HCP_PLAN_MAX_RANKS, &plan->inner_ranks);
    case M_NODE_ALPHA:
        return jin_double(in, &plan->node_alpha_us);
    case M_NODE_GBPS: /* null, NaN here: set to 0 later */
        return jin_double(in, &plan->node_gbps);
    case M_NODE_SHARED:
        return jin_double(in, &plan->node_shared_gbps);
    case M_ONE_RING:
        return jin_double(in, &plan->one_ring_ms);
    case M_TWO_LEVEL:
        return jin_double(in, &plan->two_level_ms);
    case M_IN_TURN:
        return jin_double(in, &plan->in_turn_ms);
    case M_LATE_BOUND:
        return jin_double(in, &plan->late_bound_ms);
    case M_TIED:
        return jin_double(in, &plan->tied_ms);
    case M_GAIN_TIED:
        return jin_double(in, &plan->gain_over_tied);
    case M_GAIN:
        return jin_double(in, &plan->gain_over_even);
    case M_ALPHA:
        return jin_double(in, &plan->link_alpha_us);
    case M_GBPS:
        return jin_double(in, &plan->link_gbps); /* null, NaN here: set to 0 later */
    default:
        return jin_array(in, read_interval, r);
    }
}

static int read_merge_member(struct json_in *in, const char *key, void *ctx)
{
    static const char *const names[] = {"schedule", "bytes",       "ms",
                                        "ring_ms",  "doubling_ms", "gather_ms"};
    struct reading *r = ctx;
    hcp_plan *plan = r->plan;
    double *ms[] = {&plan->merge_ms, &plan->merge_ring_ms, &plan->merge_doubling_ms,
                    &plan->merge_gather_ms};
    int id = jin_member(names, 6, key), i = 0, rc;

    if (id < 0)
        return jin_skip(in);
    if (r->merge_seen >> id & 1)
        return jin_fail(in, "member twice in merge");
    r->merge_seen |= 1u << id;
    if (id >= 2)
        return jin_within(in, key, jin_double(in, ms[id - 2]));
    if (id == 1)
        return jin_within(in, key, jin_int(in, 0, INT64_MAX, &plan->merge_bytes));
    rc = read_name(in, merge_at, HCP_MERGE_GATHER + 1, &i);
    plan->merge = (hcp_merge)i;
    return jin_within(in, key, rc);
}

static int read_known(struct json_in *in, struct reading *r, int id)
{
    hcp_plan *plan = r->plan;

    switch (id) {
    case M_STRATEGY:
    case M_LAYOUT:
    case M_ORDER:
    case M_RINGS:
    case M_SOURCE:
    case M_DECISION:
    case M_MASK:
    case M_PHASE:
        return read_names(in, plan, id);
    case M_RANKS:
        return jin_array(in, plan_read_rank, r);
    case M_MERGE:
        return jin_object(in, read_merge_member, r);
    case M_FINGERPRINT:
        return jin_hash(in, &plan->fingerprint);
    case M_MODELS_HASH:
        return jin_hash(in, &plan->models_hash);
    case M_PROVIDER:
        return jin_string(in, plan->provider, sizeof plan->provider);
    case M_DTYPE:
        return jin_string(in, plan->shape.dtype, sizeof plan->shape.dtype);
    case M_EXACT:
        return jin_bool(in, &plan->exact);
    case M_BARRIER:
        return jin_bool(in, &plan->barrier);
    case M_LATE_KV:
        return jin_bool(in, &plan->late_kv);
    case M_JOINT:
        return jin_bool(in, &plan->joint);
    default:
        return read_numbers(in, r, id);
    }
}

static int read_member(struct json_in *in, const char *key, void *ctx)
{
    struct reading *r = ctx;
    int id = jin_member(member_names, M_COUNT, key);

    if (strcmp(key, "documents") == 0)
        return jin_fail(in, "it is one for documents (hcp_documents_from_json())");
    if (id < 0)
        return jin_skip(in);
    if (r->seen >> id & 1)
        return jin_fail(in, "member twice in the plan");
    r->seen |= (uint64_t)1 << id;
    return jin_within(in, key, read_known(in, r, id));
}

static int read_plan(struct json_in *in, struct reading *r)
{
    const uint64_t needed =
        1 << M_SCHEMA | 1 << M_SEQ_LEN | 1 << M_MASK | 1 << M_LAYOUT | 1 << M_RANKS;

    if (jin_object(in, read_member, r))
        return -1;
    if (jin_peek(in) != -1)
        return jin_fail(in, "text after the plan");
    if ((r->seen & needed) != needed)
        return jin_fail(in, "schema, seq_len, mask, layout or ranks missing");
    if (r->n_ranks == 0)
        return jin_fail(in, "no ranks");
    if (r->n_interval == 1)
        return jin_fail(in, "an interval has two numbers");
    return 0;
}

static int consistent(struct json_in *in, const struct reading *r)
{
    const hcp_plan *plan = r->plan;
    const char *why;

    if (r->n_kv_lists != (plan->joint ? r->n_ranks : 0))
        return jin_fail(in, "kv_segments of some ranks, or without joint");
    if (plan->joint && plan->late_kv)
        return jin_fail(in, "late_kv in a joint plan");
    if (plan_is_decode(plan) != (int)(r->seen >> M_MERGE & 1))
        return jin_fail(in, "phase decode without merge, or merge without it");
    why = plan_inconsistent(plan, r->n_ranks);
    return why ? jin_fail(in, why) : 0;
}

hcp_status hcp_plan_json_counts(const char *json, size_t length, char *text,
                                size_t text_size, size_t *n_ranks, size_t *n_segments)
{
    struct json_in in = {json, json, json, ""};
    hcp_plan plan;
    struct reading r = {.plan = &plan};

    if (!json || !n_ranks || !n_segments)
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "no text or no output");
    in.end += length;
    hcp_plan_init(&plan, NULL, 0, NULL, 0);
    if (read_plan(&in, &r))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT, "not a plan: %s", in.error);
    *n_ranks = r.n_ranks;
    *n_segments = r.n_segments;
    return HCP_STATUS_OK;
}

hcp_status hcp_plan_from_json(const char *json, size_t length, char *text,
                              size_t text_size, hcp_plan *plan)
{
    struct json_in in = {json, json, json, ""};
    struct reading r = {0};
    hcp_plan result;

    if (!json || !plan || plan->size < sizeof *plan || !plan->ranks || !plan->segments)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a text and a plan with its size and arrays set are needed");
    in.end += length;
    hcp_plan_init(&result, plan->ranks, plan->ranks_capacity, plan->segments,
                  plan->segments_capacity);
    hcp_shape_init(&result.shape);
    result.tile = 1;
    result.stripes = 8;
    result.buffers = 2;
    result.sub_blocks = 1;
    result.layers = 1;
    result.strategy = HCP_STRATEGY_BEST;
    result.makespan_ms = result.bound_ms = result.even_ms = result.drop_ms = NAN;
    result.gain_over_even = NAN;
    result.given_order_ms = result.any_order_ms = NAN;
    result.in_turn_ms = result.late_bound_ms = NAN;
    result.tied_ms = result.gain_over_tied = NAN;
    result.one_ring_ms = result.two_level_ms = NAN;
    result.places = plan->places;
    r.plan = &result;
    r.interval[0] = r.interval[1] = NAN;
    if (read_plan(&in, &r) || consistent(&in, &r))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT, "not a plan: %s", in.error);
    result.n_ranks = r.n_ranks;
    result.n_segments = r.n_segments;
    result.interval_lo_ms = r.interval[0];
    result.interval_hi_ms = r.interval[1];
    if (!(result.link_gbps > 0))
        result.link_gbps = 0;
    if (!(result.node_gbps > 0))
        result.node_gbps = 0;
    if (!(result.node_shared_gbps > 0))
        result.node_shared_gbps = 0;
    if (!(result.link_alpha_us >= 0))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT,
                         "not a plan: link_alpha_us is negative");
    if ((result.order || result.has_links) && !result.places)
        return plan_fail(
            text, text_size, HCP_STATUS_SPACE,
            "the plan has an order or links of its own: it needs an array of "
            "%zu places",
            result.n_ranks);
    if ((result.order || result.has_links) && links_bad_places(&result))
        return plan_fail(
            text, text_size, HCP_STATUS_FORMAT,
            "not a plan: given_rank comes twice or is none of its ranks, or a "
            "number of a link is out of range");
    if (late_bad(&result))
        return plan_fail(
            text, text_size, HCP_STATUS_FORMAT,
            "not a plan: late_slots out of range, of more than %d ranks, "
            "with sub_blocks or with a barrier",
            LATE_RANKS);
    if (plan_is_decode(&result) && decode_bad(&result))
        return plan_fail(
            text, text_size, HCP_STATUS_FORMAT,
            "not a plan: one of decode has contiguous shares, a full mask, a schedule "
            "where several ranks have tokens and nothing of a ring");
    if (nodes_bad_numbers(result.node_ranks, result.node_alpha_us, result.node_gbps,
                          result.node_shared_gbps) ||
        (result.node_ranks == 0 && (result.inner_ranks || result.rings)) ||
        result.inner_ranks > result.node_ranks)
        return plan_fail(text, text_size, HCP_STATUS_FORMAT,
                         "not a plan: a number of its nodes is out of range, or it has "
                         "rings of rings without nodes");
    *plan = result;
    return HCP_STATUS_OK;
}
