/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank of a plan's text.
 */
#include <math.h>
#include <string.h>
#include "planner/plan-read.h"

/* Every member of it, to refuse duplicates and find missing ones. */
enum rank_member {
    R_RANK,
    R_DEVICE,
    R_LIMIT,
    R_TOKENS,
    R_SEGMENTS,
    R_PREDICTED,
    R_KV_TOKENS,
    R_COMPUTE,
    R_MODEL,
    R_MAX_TOKENS,
    R_GIVEN_RANK,
    R_LINK_ALPHA,
    R_LINK_GBPS,
    R_LINK_SLOWDOWN,
    R_LINK_TRANSFER,
    R_LINK_OVERHEAD,
    R_BEFORE_US,
    R_BEFORE_FIXED_US,
    R_AFTER_US,
    R_AFTER_FIXED_US,
    R_BEFORE_MS,
    R_AFTER_MS,
    R_LATE_SLOTS,
    R_KV_SEGMENTS,
    R_MAX_BYTES,
    R_WEIGHT,
    R_MEMORY,
    R_LINEAR_ERROR,
    R_TIME_SCALE,
    R_KIN,
    R_COUNT
};
static const char *const rank_names[R_COUNT] = {
    "rank",
    "device",
    "limit",
    "tokens",
    "segments",
    "predicted_ms",
    "kv_tokens",
    "compute_ms",
    "model",
    "max_tokens",
    "given_rank",
    "link_alpha_us",
    "link_gbps",
    "link_slowdown",
    "link_transfer_slowdown",
    "link_overhead_us",
    "linear_before_us",
    "linear_before_fixed_us",
    "linear_after_us",
    "linear_after_fixed_us",
    "linear_before_ms",
    "linear_after_ms",
    "late_slots",
    "kv_segments",
    "max_bytes",
    "weight_bytes",
    "memory_bytes",
    "linear_error",
    "time_scale",
    "estimated_from"};

static int read_pair(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    if (r->n_pair == 2)
        return jin_fail(in, "more than two numbers in a segment");
    return jin_int(in, 0, HCP_PLAN_MAX_LEN, &r->pair[r->n_pair++]);
}

static int read_segment(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;
    hcp_plan *plan = r->plan;

    r->n_pair = 0;
    if (jin_array(in, read_pair, r))
        return -1;
    if (r->n_pair != 2)
        return jin_fail(in, "a segment is [offset, length]");
    if (plan->segments) {
        if (r->n_segments == plan->segments_capacity)
            return jin_fail(in, "more segments than the array holds");
        plan->segments[r->n_segments] = (hcp_segment){r->pair[0], r->pair[1]};
    }
    r->n_segments++;
    if (r->kv)
        r->rank->n_kv_segments++;
    else
        r->rank->n_segments++;
    return 0;
}

/* What linear work costs, and its error: as hcp_rank wants it. */
static int read_us(struct json_in *in, double *out)
{
    if (jin_double(in, out))
        return -1;
    return *out >= 0 && *out <= 1e9 ? 0 : jin_fail(in, "not in 0..1e9 us");
}

/* What it comes to, where a file does not say. */
static double linear_ms(const hcp_plan_rank *rank, double us, double fixed_us)
{
    return rank->tokens > 0
               ? (us * (double)rank->tokens + fixed_us) / 1e3 * rank->time_scale
               : 0;
}

static int read_error(struct json_in *in, double *out)
{
    if (jin_double(in, out))
        return -1;
    return *out >= 0 && *out <= 10 ? 0 : jin_fail(in, "not in 0..10");
}

static int read_scale(struct json_in *in, double *out)
{
    if (jin_double(in, out))
        return -1;
    return *out >= HCP_PLAN_MIN_SCALE && *out <= HCP_PLAN_MAX_SCALE
               ? 0
               : jin_fail(in, "not in 0.001..1000");
}

static int read_rank_known(struct json_in *in, struct reading *r, int id)
{
    hcp_plan_rank *rank = r->rank;
    int64_t number;

    switch (id) {
    case R_RANK:
        return jin_int(in, (int64_t)r->n_ranks, (int64_t)r->n_ranks, &number);
    case R_DEVICE:
        return jin_string(in, rank->device, sizeof rank->device);
    case R_LIMIT:
        return jin_string(in, rank->limit, sizeof rank->limit);
    case R_MODEL:
        return jin_string(in, rank->model, sizeof rank->model);
    case R_TOKENS:
        return jin_int(in, 0, HCP_PLAN_MAX_LEN, &rank->tokens);
    case R_KV_TOKENS:
        return jin_int(in, 0, HCP_PLAN_MAX_LEN, &rank->kv_tokens);
    case R_MAX_TOKENS:
        return jin_int(in, 1, INT64_MAX, &rank->max_tokens);
    case R_PREDICTED:
        return jin_double(in, &rank->predicted_ms);
    case R_COMPUTE:
        return jin_double(in, &rank->compute_ms);
    case R_GIVEN_RANK:
        return jin_int32(in, 0, HCP_PLAN_MAX_RANKS - 1, &r->place.rank);
    case R_LATE_SLOTS:
        return jin_int32(in, 0, LATE_RANKS - 1, &rank->late_slots);
    case R_LINK_ALPHA:
        return jin_double(in, &r->place.link.alpha_us);
    case R_LINK_GBPS:
        return jin_double(in, &r->place.link.gbps); /* null, NaN here: 0 later */
    case R_LINK_SLOWDOWN:
        return jin_double(in, &r->place.link.slowdown);
    case R_LINK_TRANSFER:
        return jin_double(in, &r->place.link.transfer_slowdown);
    case R_LINK_OVERHEAD:
        return jin_double(in, &r->place.link.overhead_us);
    case R_BEFORE_US:
        return read_us(in, &rank->linear_before_us);
    case R_BEFORE_FIXED_US:
        return read_us(in, &rank->linear_before_fixed_us);
    case R_AFTER_US:
        return read_us(in, &rank->linear_after_us);
    case R_AFTER_FIXED_US:
        return read_us(in, &rank->linear_after_fixed_us);
    case R_LINEAR_ERROR:
        return read_error(in, &rank->linear_error);
    case R_TIME_SCALE:
        return read_scale(in, &rank->time_scale);
    case R_KIN:
        return jin_string(in, rank->kin, sizeof rank->kin);
    case R_BEFORE_MS:
        return jin_double(in, &rank->linear_before_ms);
    case R_AFTER_MS:
        return jin_double(in, &rank->linear_after_ms);
    case R_MAX_BYTES:
        return jin_int(in, 1, HCP_PLAN_MAX_BYTES, &rank->max_bytes);
    case R_WEIGHT:
        return jin_int(in, 0, HCP_PLAN_MAX_BYTES, &rank->weight_bytes);
    case R_MEMORY:
        return jin_int(in, 0, INT64_MAX, &rank->memory_bytes);
    default:
        r->kv = id == R_KV_SEGMENTS;
        *(r->kv ? &rank->first_kv_segment : &rank->first_segment) =
            (int64_t)r->n_segments;
        return jin_array(in, read_segment, r);
    }
}

static int read_rank_member(struct json_in *in, const char *key, void *ctx)
{
    struct reading *r = ctx;
    int id = jin_member(rank_names, R_COUNT, key);

    if (id < 0)
        return jin_skip(in);
    if (r->rank_seen >> id & 1)
        return jin_fail(in, "member twice in a rank");
    r->rank_seen |= (uint64_t)1 << id;
    return jin_within(in, key, read_rank_known(in, r, id));
}

int plan_read_rank(struct json_in *in, void *ctx)
{
    const uint64_t needed =
        1 << R_DEVICE | 1 << R_LIMIT | 1 << R_TOKENS | 1 << R_SEGMENTS;
    struct reading *r = ctx;
    hcp_plan_rank rank = {.predicted_ms = NAN, .compute_ms = NAN, .time_scale = 1};

    if (r->n_ranks == HCP_PLAN_MAX_RANKS ||
        (r->plan->ranks && r->n_ranks == r->plan->ranks_capacity))
        return jin_fail(in, "more ranks than the array holds");
    r->rank = &rank;
    r->rank_seen = 0;
    memset(&r->place, 0, sizeof r->place);
    r->place.rank = (int32_t)r->n_ranks;
    if (jin_object(in, read_rank_member, r))
        return -1;
    if ((r->rank_seen & needed) != needed)
        return jin_fail(in, "a rank lacks device, limit, tokens or segments");
    if (!(r->rank_seen >> R_BEFORE_MS & 1))
        rank.linear_before_ms =
            linear_ms(&rank, rank.linear_before_us, rank.linear_before_fixed_us);
    if (!(r->rank_seen >> R_AFTER_MS & 1))
        rank.linear_after_ms =
            linear_ms(&rank, rank.linear_after_us, rank.linear_after_fixed_us);
    if (!(r->rank_seen >> R_KV_TOKENS & 1))
        rank.kv_tokens = rank.tokens;
    if (!(r->rank_seen >> R_KV_SEGMENTS & 1)) {
        rank.first_kv_segment = rank.first_segment;
        rank.n_kv_segments = rank.n_segments;
    }
    r->n_kv_lists += (r->rank_seen >> R_KV_SEGMENTS & 1) != 0;
    if (!(r->place.link.gbps > 0))
        r->place.link.gbps = 0;
    r->plan->has_links |= (r->rank_seen >> R_LINK_GBPS & 1) != 0;
    if (r->plan->places)
        r->plan->places[r->n_ranks] = r->place;
    if (r->plan->ranks)
        r->plan->ranks[r->n_ranks] = rank;
    r->n_ranks++;
    return 0;
}
