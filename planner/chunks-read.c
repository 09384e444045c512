/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "planner/chunks.h"
#include "planner/json-members.h"

/* ---- the members of the schema ---- */

static int read_ranks(struct json_in *in, void *ctx);
static int read_chunks(struct json_in *in, void *ctx);
static int read_shares(struct json_in *in, void *ctx);
static int read_segments(struct json_in *in, void *ctx);
static int read_mask(struct json_in *in, void *ctx);

#define PLAN(name, type, field, min, max)                                                \
    {                                                                                    \
        name, type, offsetof(hcp_chunks_plan, field), min, max, NULL, NULL               \
    }
#define RANK(name, type, field, min, max)                                                \
    {                                                                                    \
        name, type, offsetof(hcp_chunks_rank, field), min, max, NULL, NULL               \
    }
#define CHUNK(name, type, field, min, max)                                               \
    {                                                                                    \
        name, type, offsetof(hcp_chunk, field), min, max, NULL, NULL                     \
    }
#define SHARE(name, type, field, min, max)                                               \
    {                                                                                    \
        name, type, offsetof(hcp_chunk_share, field), min, max, NULL, NULL               \
    }

static const struct json_member plan_members[] = {
    {"schema", NUMBER, 0, 1, 1, NULL, NULL},
    PLAN("seq_len", INT64, seq_len, 1, HCP_PLAN_MAX_LEN),
    {"mask", OTHER, 0, 0, 0, NULL, read_mask},
    {"ranks", OTHER, 0, 0, 0, NULL, read_ranks},
    {"chunks", OTHER, 0, 0, 0, NULL, read_chunks},
    PLAN("step_budget_ms", SPEED, step_budget_ms, 0, 1000000000),
    PLAN("step_fixed_ms", REAL, step_fixed_ms, 0, 1000000000),
    PLAN("chunk_len", INT64, chunk_len, 0, HCP_PLAN_MAX_LEN),
    PLAN("layers", INT32, layers, 1, MAX_LAYERS),
    PLAN("total_ms", REAL, total_ms, 0, 0),
    PLAN("interval_ms", INTERVAL, interval_lo_ms, 0, 0),
    PLAN("bound_ms", REAL, bound_ms, 0, 0),
    PLAN("longest_step_ms", REAL, longest_step_ms, 0, 0),
    PLAN("least_ms", REAL, least_ms, 0, 0),
    PLAN("whole_ms", REAL, whole_ms, 0, 0),
    PLAN("over_whole", REAL, over_whole, 0, 0),
    PLAN("even_len", INT64, even_len, 0, 2 * HCP_PLAN_MAX_LEN),
    PLAN("even_ms", REAL, even_ms, 0, 0),
    PLAN("gain_over_even", REAL, gain_over_even, 0, 0),
    {"source", NAME, offsetof(hcp_chunks_plan, source), 0, HCP_FROM_ESTIMATED,
     json_source_at, NULL},
    PLAN("fingerprint", HASH, fingerprint, 0, 0),
    PLAN("provider", TEXT, provider, 0, 32),
    PLAN("dtype", TEXT, shape.dtype, 0, 8),
    PLAN("batch", INT32, shape.batch, 1, 1),
    PLAN("heads", INT32, shape.heads, 1, INT32_MAX),
    PLAN("kv_heads", INT32, shape.kv_heads, 1, INT32_MAX),
    PLAN("head_dim", INT32, shape.head_dim, 1, INT32_MAX),
    PLAN("tile", INT64, tile, 1, HCP_PLAN_MAX_LEN),
    PLAN("stripes", INT32, stripes, 1, MAX_STRIPES),
    PLAN("buffers", INT32, buffers, 0, MAX_BUFFERS),
    PLAN("exact", FLAG, exact, 0, 1),
    PLAN("given", INT32, given, 0, 2),
    PLAN("link_alpha_us", REAL, link_alpha_us, 0, 1000000000),
    PLAN("link_gbps", SPEED, link_gbps, 0, 1000000000),
    PLAN("activation_bytes", INT64, activation_bytes, 0, MAX_TOKEN_BYTES),
    PLAN("models_hash", HASH, models_hash, 0, 0),
};
static const struct json_member rank_members[] = {
    {"rank", NUMBER, 0, 0, HCP_CHUNKS_MAX_RANKS - 1, NULL, NULL},
    RANK("device", TEXT, device, 0, 64),
    RANK("tokens", INT64, tokens, 0, HCP_PLAN_MAX_LEN),
    RANK("limit", TEXT, limit, 0, 32),
    RANK("model", TEXT, model, 0, 8),
    RANK("max_tokens", INT64, max_tokens, 0, HCP_PLAN_MAX_LEN),
    RANK("linear_before_us", REAL, linear_before_us, 0, 1000000000),
    RANK("linear_before_fixed_us", REAL, linear_before_fixed_us, 0, 1000000000),
    RANK("linear_after_us", REAL, linear_after_us, 0, 1000000000),
    RANK("linear_after_fixed_us", REAL, linear_after_fixed_us, 0, 1000000000),
    RANK("linear_error", REAL, linear_error, 0, 10),
    RANK("max_bytes", INT64, max_bytes, 0, HCP_PLAN_MAX_BYTES),
    RANK("weight_bytes", INT64, weight_bytes, 0, HCP_PLAN_MAX_BYTES),
    RANK("memory_bytes", INT64, memory_bytes, 0, INT64_MAX),
    RANK("time_scale", REAL, time_scale, 0, 1000),
    RANK("estimated_from", TEXT, kin, 0, 96),
};
static const struct json_member chunk_members[] = {
    CHUNK("offset", INT64, offset, 0, HCP_PLAN_MAX_LEN),
    CHUNK("tokens", INT64, tokens, 1, HCP_PLAN_MAX_LEN),
    {"layout", NAME, offsetof(hcp_chunk, layout), HCP_LAYOUT_CONTIGUOUS,
     HCP_LAYOUT_STRIPED, json_layout_at, NULL},
    {"ranks", OTHER, 0, 0, 0, NULL, read_shares},
    CHUNK("step_ms", REAL, step_ms, 0, 0),
    CHUNK("predicted_ms", REAL, predicted_ms, 0, 0),
    CHUNK("interval_ms", INTERVAL, interval_lo_ms, 0, 0),
    CHUNK("bound_ms", REAL, bound_ms, 0, 0),
    CHUNK("least_ms", REAL, least_ms, 0, 0),
    CHUNK("least_rank", INT32, least_rank, 0, HCP_CHUNKS_MAX_RANKS - 1),
    CHUNK("critical_rank", INT32, critical_rank, 0, HCP_CHUNKS_MAX_RANKS - 1),
    {"source", NAME, offsetof(hcp_chunk, source), 0, HCP_FROM_ESTIMATED, json_source_at,
     NULL},
};
static const struct json_member share_members[] = {
    {"rank", NUMBER, 0, 0, HCP_CHUNKS_MAX_RANKS - 1, NULL, NULL},
    SHARE("tokens", INT64, tokens, 0, HCP_PLAN_MAX_LEN),
    SHARE("resident", INT64, resident, 0, HCP_PLAN_MAX_LEN),
    {"segments", OTHER, 0, 0, 0, NULL, read_segments},
    SHARE("predicted_ms", REAL, predicted_ms, 0, 0),
    SHARE("compute_ms", REAL, compute_ms, 0, 0),
    SHARE("least_ms", REAL, least_ms, 0, 0),
    SHARE("memory_bytes", INT64, memory_bytes, 0, INT64_MAX),
};

#define COUNT(members) (sizeof(members) / sizeof *(members))

struct reading {
    hcp_chunks_plan *plan; /* NULL ranks: only count */
    hcp_chunk_share *share;
    size_t n_ranks, n_chunks, n_shares, n_segments, in_chunk;
    int64_t segment[2];
    int n;
};

static int read_mask(struct json_in *in, void *ctx)
{
    char text[32];

    (void)ctx;
    if (jin_string(in, text, sizeof text))
        return -1;
    return strcmp(text, "causal") == 0 ? 0 : jin_fail(in, "only causal has chunks");
}

static int read_number(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    if (r->n == 2)
        return jin_fail(in, "more than two numbers in a segment");
    return jin_int(in, 0, HCP_PLAN_MAX_LEN, &r->segment[r->n++]);
}

static int read_segment(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    r->n = 0;
    if (jin_array(in, read_number, r))
        return -1;
    if (r->n != 2)
        return jin_fail(in, "a segment is [offset, length]");
    if (r->plan->ranks) {
        if (r->n_segments == r->plan->segments_capacity)
            return jin_fail(in, "more segments than the array holds");
        r->plan->segments[r->n_segments] = (hcp_segment){r->segment[0], r->segment[1]};
    }
    r->n_segments++;
    r->share->n_segments++;
    return 0;
}

static int read_segments(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    r->share->first_segment = (int64_t)r->n_segments;
    return jin_array(in, read_segment, r);
}

static int read_rank(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;
    hcp_chunks_rank own, *rank = &own;
    uint64_t seen;

    if (r->n_ranks == HCP_CHUNKS_MAX_RANKS)
        return jin_fail(in, "too many ranks");
    if (r->plan->ranks && r->n_ranks == r->plan->ranks_capacity)
        return jin_fail(in, "more ranks than the array holds");
    if (r->plan->ranks)
        rank = &r->plan->ranks[r->n_ranks];
    memset(rank, 0, sizeof *rank);
    rank->time_scale = 1;
    if (jin_members(in, rank_members, COUNT(rank_members), rank, r, &seen))
        return -1;
    if ((seen & 6) != 6)
        return jin_fail(in, "a rank without device or tokens");
    r->n_ranks++;
    return 0;
}

static int read_ranks(struct json_in *in, void *ctx)
{
    return jin_array(in, read_rank, ctx);
}

static int read_share(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;
    hcp_chunk_share own, *share = &own;
    uint64_t seen;

    if (r->in_chunk == HCP_CHUNKS_MAX_RANKS)
        return jin_fail(in, "too many ranks");
    if (r->plan->ranks && r->n_shares == r->plan->shares_capacity)
        return jin_fail(in, "more shares than the array holds");
    if (r->plan->ranks)
        share = &r->plan->shares[r->n_shares];
    memset(share, 0, sizeof *share);
    share->predicted_ms = share->compute_ms = share->least_ms = NAN;
    r->share = share;
    if (jin_members(in, share_members, COUNT(share_members), share, r, &seen))
        return -1;
    if ((seen & 14) != 14)
        return jin_fail(in, "a rank of a chunk without tokens, resident or segments");
    r->n_shares++;
    r->in_chunk++;
    return 0;
}

static int read_shares(struct json_in *in, void *ctx)
{
    return jin_array(in, read_share, ctx);
}

static int read_chunk(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;
    hcp_chunk own, *chunk = &own;
    uint64_t seen;

    if (r->n_chunks == HCP_CHUNKS_MAX)
        return jin_fail(in, "too many chunks");
    if (r->plan->ranks && r->n_chunks == r->plan->chunks_capacity)
        return jin_fail(in, "more chunks than the array holds");
    if (r->plan->ranks)
        chunk = &r->plan->chunks[r->n_chunks];
    memset(chunk, 0, sizeof *chunk);
    chunk->predicted_ms = chunk->step_ms = chunk->bound_ms = chunk->least_ms = NAN;
    chunk->interval_lo_ms = chunk->interval_hi_ms = NAN;
    r->in_chunk = 0;
    if (jin_members(in, chunk_members, COUNT(chunk_members), chunk, r, &seen))
        return -1;
    if ((seen & 15) != 15)
        return jin_fail(in, "a chunk without offset, tokens, layout or ranks");
    if (r->in_chunk * (r->n_chunks + 1) != r->n_shares)
        return jin_fail(in, "chunks of different numbers of ranks");
    r->n_chunks++;
    return 0;
}

static int read_chunks(struct json_in *in, void *ctx)
{
    return jin_array(in, read_chunk, ctx);
}

static int read_plan(struct json_in *in, struct reading *r)
{
    uint64_t seen;

    if (jin_members(in, plan_members, COUNT(plan_members), r->plan, r, &seen))
        return -1;
    if (jin_peek(in) != -1)
        return jin_fail(in, "text after the plan");
    if ((seen & 31) != 31)
        return jin_fail(in, "schema, seq_len, mask, ranks or chunks missing");
    if (r->n_ranks == 0 || r->n_chunks == 0)
        return jin_fail(in, "no ranks or no chunks");
    return r->n_shares != r->n_ranks * r->n_chunks
               ? jin_fail(in, "chunks of another number of ranks")
               : 0;
}

/* ---- do its numbers fit together? ---- */

static int64_t stripe_len(int64_t len, int32_t stripes, int32_t t)
{
    return len / stripes + (t < len % stripes);
}

static int is_segment(const hcp_segment *s, int64_t offset, int64_t length)
{
    return s->offset == offset && s->length == length;
}

/* Are the segments of a chunk those of its layout? As cost_segments(). */
static int right_segments(const hcp_chunks_plan *plan, const hcp_chunk *chunk,
                          const hcp_chunk_share *share)
{
    int64_t front = chunk->offset, back = chunk->offset + chunk->tokens;
    int32_t runs = chunk->layout == HCP_LAYOUT_STRIPED  ? plan->stripes
                   : chunk->layout == HCP_LAYOUT_ZIGZAG ? 2
                                                        : 1;

    for (size_t r = 0; r < plan->n_ranks; r++)
        if (share[r].n_segments != (share[r].tokens < runs ? share[r].tokens : runs))
            return 0;
    for (int32_t t = 0; t < (chunk->layout == HCP_LAYOUT_ZIGZAG ? 1 : runs); t++)
        for (size_t r = 0; r < plan->n_ranks; r++) {
            const hcp_segment *s = plan->segments + share[r].first_segment;
            int64_t len = stripe_len(share[r].tokens, runs, t), half;

            if (len > 0 && !is_segment(&s[t], front, len))
                return 0;
            front += len;
            half = chunk->layout == HCP_LAYOUT_ZIGZAG ? share[r].tokens / 2 : 0;
            back -= half;
            if (half > 0 && !is_segment(&s[1], back, half))
                return 0;
        }
    return 1;
}

static const char *inconsistent(const hcp_chunks_plan *plan)
{
    int64_t resident[HCP_CHUNKS_MAX_RANKS] = {0}, offset = 0;

    for (size_t k = 0; k < plan->n_chunks; k++) {
        const hcp_chunk *chunk = &plan->chunks[k];
        const hcp_chunk_share *share = plan->shares + k * plan->n_ranks;
        int64_t sum = 0;

        if (chunk->offset != offset || chunk->tokens > plan->seq_len - offset)
            return "a chunk does not begin where the one before ends, or is too long";
        for (size_t r = 0; r < plan->n_ranks; r++) {
            if (share[r].resident != resident[r])
                return "what is resident on a rank is not what earlier chunks left";
            if (share[r].tokens > chunk->tokens - sum)
                return "ranks have more tokens than their chunk";
            sum += share[r].tokens;
            resident[r] += share[r].tokens;
        }
        if (sum != chunk->tokens)
            return "ranks have fewer tokens than their chunk";
        if (!right_segments(plan, chunk, share))
            return "segments are not those of the layout";
        if ((size_t)chunk->critical_rank >= plan->n_ranks ||
            (size_t)chunk->least_rank >= plan->n_ranks)
            return "a rank that there is not";
        offset += chunk->tokens;
    }
    if (offset != plan->seq_len)
        return "chunks do not reach the end of the prompt";
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].tokens != resident[r])
            return "a rank's tokens are not those of its chunks";
    return NULL;
}

/* ---- entry points ---- */

hcp_status hcp_chunks_json_counts(const char *json, size_t length, char *text,
                                  size_t text_size, size_t *n_ranks, size_t *n_chunks,
                                  size_t *n_segments)
{
    struct json_in in = {json, json, json, ""};
    hcp_chunks_plan plan;
    struct reading r = {.plan = &plan};

    if (!json || !n_ranks || !n_chunks || !n_segments)
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "no text or no output");
    in.end += length;
    hcp_chunks_plan_init(&plan, NULL, 0, NULL, 0, NULL, 0, NULL, 0);
    if (read_plan(&in, &r))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT, "not a plan of chunks: %s",
                         in.error);
    *n_ranks = r.n_ranks;
    *n_chunks = r.n_chunks;
    *n_segments = r.n_segments;
    return HCP_STATUS_OK;
}

hcp_status hcp_chunks_from_json(const char *json, size_t length, char *text,
                                size_t text_size, hcp_chunks_plan *plan)
{
    struct json_in in = {json, json, json, ""};
    hcp_chunks_plan result;
    struct reading r = {.plan = &result};
    const char *why;

    if (!json || !plan || plan->size < sizeof *plan || !plan->ranks || !plan->chunks ||
        !plan->shares || !plan->segments)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a text and a plan with its size and arrays set are needed");
    in.end += length;
    hcp_chunks_plan_init(&result, plan->ranks, plan->ranks_capacity, plan->chunks,
                         plan->chunks_capacity, plan->shares, plan->shares_capacity,
                         plan->segments, plan->segments_capacity);
    hcp_shape_init(&result.shape);
    result.tile = result.layers = result.stripes = 1;
    result.total_ms = result.interval_lo_ms = result.interval_hi_ms = NAN;
    result.bound_ms = result.longest_step_ms = result.least_ms = NAN;
    result.whole_ms = result.over_whole = NAN;
    result.even_ms = result.gain_over_even = NAN;
    if (read_plan(&in, &r))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT, "not a plan of chunks: %s",
                         in.error);
    result.n_ranks = r.n_ranks;
    result.n_chunks = r.n_chunks;
    result.n_segments = r.n_segments;
    why = inconsistent(&result);
    if (why)
        return plan_fail(text, text_size, HCP_STATUS_FORMAT, "not a plan of chunks: %s",
                         why);
    *plan = result;
    return HCP_STATUS_OK;
}
