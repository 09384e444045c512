/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "planner/documents.h"
#include "planner/json-members.h"

const char *documents_bad_rank(const hcp_document_part *parts, int64_t n,
                               const hcp_document_part *before, int64_t n_before,
                               int64_t *lengths, size_t n_documents)
{
    int come_in = 0;

    for (int64_t i = 0; i < n; i++) {
        const hcp_document_part *part = &parts[i];
        int64_t k = 0;

        if (part->document < 0 || (uint64_t)part->document >= n_documents)
            return "a part of a document that there is not";
        if (part->offset < 0 || part->length < 1 ||
            part->length > HCP_PLAN_MAX_LEN - part->offset)
            return "a part with an offset or length out of range";
        if (part->offset != lengths[part->document])
            return "tokens of a document are missing or come twice";
        if (part->offset > 0) {
            while (k < n_before && (before[k].document != part->document ||
                                    before[k].offset + before[k].length != part->offset))
                k++;
            if (k == n_before)
                return "the parts of a document do not lie on neighbouring ranks";
            if (come_in++)
                return "two documents cross from one rank to the next";
        }
        lengths[part->document] += part->length;
    }
    return NULL;
}

/* ---- the members of the schema ---- */

static int read_ranks(struct json_in *in, void *ctx);
static int read_parts(struct json_in *in, void *ctx);
static const char *uneven_at(int i);

#define PLAN(name, type, field, min, max)                                                \
    {                                                                                    \
        name, type, offsetof(hcp_documents_plan, field), min, max, NULL, NULL            \
    }
#define RANK(name, type, field, min, max)                                                \
    {                                                                                    \
        name, type, offsetof(hcp_documents_rank, field), min, max, NULL, NULL            \
    }

static const struct json_member plan_members[] = {
    {"schema", NUMBER, 0, 1, 1, NULL, NULL},
    PLAN("documents", SIZE, n_documents, 1, (int64_t)HCP_DOCUMENTS_MAX),
    {"mask", NAME, offsetof(hcp_documents_plan, causal), 0, 1, json_mask_at, NULL},
    {"ranks", OTHER, 0, 0, 0, NULL, read_ranks},
    PLAN("makespan_ms", REAL, makespan_ms, 0, 0),
    PLAN("interval_ms", INTERVAL, interval_lo_ms, 0, 0),
    PLAN("bound_ms", REAL, bound_ms, 0, 0),
    PLAN("even_ms", REAL, even_ms, 0, 0),
    PLAN("gain_over_even", REAL, gain_over_even, 0, 0),
    PLAN("whole_ms", REAL, whole_ms, 0, 0),
    PLAN("gain_over_whole", REAL, gain_over_whole, 0, 0),
    PLAN("imbalance", REAL, imbalance, 0, 0),
    PLAN("area_imbalance", REAL, area_imbalance, 0, 0),
    {"uneven", NAME, offsetof(hcp_documents_plan, uneven), 0, HCP_UNEVEN_COST, uneven_at,
     NULL},
    {"source", NAME, offsetof(hcp_documents_plan, source), 0, HCP_FROM_ESTIMATED,
     json_source_at, NULL},
    PLAN("fingerprint", HASH, fingerprint, 0, 0),
    PLAN("provider", TEXT, provider, 0, 32),
    PLAN("dtype", TEXT, shape.dtype, 0, 8),
    PLAN("batch", INT32, shape.batch, 1, 1),
    PLAN("heads", INT32, shape.heads, 1, INT32_MAX),
    PLAN("kv_heads", INT32, shape.kv_heads, 1, INT32_MAX),
    PLAN("head_dim", INT32, shape.head_dim, 1, INT32_MAX),
    PLAN("tile", INT64, tile, 1, HCP_PLAN_MAX_LEN),
    PLAN("whole", FLAG, whole, 0, 1),
    PLAN("cut_gain", REAL, cut_gain, 0, 10),
    PLAN("critical_rank", INT32, critical_rank, 0, HCP_DOCUMENTS_MAX_RANKS - 1),
    PLAN("exact", FLAG, exact, 0, 1),
    PLAN("given", FLAG, given, 0, 1),
    PLAN("link_alpha_us", REAL, link_alpha_us, 0, 1000000000),
    PLAN("link_gbps", SPEED, link_gbps, 0, 1000000000),
    PLAN("layers", INT32, layers, 0, MAX_LAYERS),
    PLAN("activation_bytes", INT64, activation_bytes, 0, MAX_TOKEN_BYTES),
    PLAN("models_hash", HASH, models_hash, 0, 0),
};
static const struct json_member rank_members[] = {
    {"rank", NUMBER, 0, 0, HCP_DOCUMENTS_MAX_RANKS - 1, NULL, NULL},
    RANK("device", TEXT, device, 0, 64),
    RANK("limit", TEXT, limit, 0, 32),
    RANK("model", TEXT, model, 0, 8),
    RANK("tokens", INT64, tokens, 0, HCP_PLAN_MAX_LEN),
    {"parts", OTHER, 0, 0, 0, NULL, read_parts},
    RANK("predicted_ms", REAL, predicted_ms, 0, 0),
    RANK("compute_ms", REAL, compute_ms, 0, 0),
    RANK("area", INT64, area, 0, INT64_MAX),
    RANK("received_tokens", INT64, received_tokens, 0, HCP_PLAN_MAX_LEN),
    RANK("max_tokens", INT64, max_tokens, 0, HCP_PLAN_MAX_LEN),
    RANK("linear_before_us", REAL, linear_before_us, 0, 1000000000),
    RANK("linear_before_fixed_us", REAL, linear_before_fixed_us, 0, 1000000000),
    RANK("linear_after_us", REAL, linear_after_us, 0, 1000000000),
    RANK("linear_after_fixed_us", REAL, linear_after_fixed_us, 0, 1000000000),
    RANK("linear_error", REAL, linear_error, 0, 10),
    RANK("time_scale", REAL, time_scale, 0, 1000),
    RANK("max_bytes", INT64, max_bytes, 0, HCP_PLAN_MAX_BYTES),
    RANK("weight_bytes", INT64, weight_bytes, 0, HCP_PLAN_MAX_BYTES),
    RANK("memory_bytes", INT64, memory_bytes, 0, INT64_MAX),
    RANK("estimated_from", TEXT, kin, 0, 96),
};

#define COUNT(members) (sizeof(members) / sizeof *(members))

struct reading {
    hcp_documents_plan *plan; /* NULL ranks: only count */
    hcp_documents_rank *rank; /* under construction */
    size_t n_ranks, n_parts;
    int64_t number[3];
    int n;
};

static const char *uneven_at(int i)
{
    return hcp_uneven_name((hcp_uneven)i);
}

static int read_number(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    if (r->n == 3)
        return jin_fail(in, "more than three numbers in a part");
    return jin_int(in, 0, HCP_PLAN_MAX_LEN, &r->number[r->n++]);
}

static int read_part(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    r->n = 0;
    if (jin_array(in, read_number, r))
        return -1;
    if (r->n != 3)
        return jin_fail(in, "a part is [document, offset, length]");
    if (r->plan->ranks) {
        if (r->n_parts == r->plan->parts_capacity)
            return jin_fail(in, "more parts than the array holds");
        r->plan->parts[r->n_parts] =
            (hcp_document_part){r->number[0], r->number[1], r->number[2]};
    }
    r->n_parts++;
    r->rank->n_parts++;
    return 0;
}

static int read_parts(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;

    r->rank->first_part = (int64_t)r->n_parts;
    return jin_array(in, read_part, r);
}

static int read_rank(struct json_in *in, void *ctx)
{
    struct reading *r = ctx;
    hcp_documents_rank own;
    uint64_t seen;

    if (r->n_ranks == HCP_DOCUMENTS_MAX_RANKS)
        return jin_fail(in, "too many ranks");
    if (r->plan->ranks && r->n_ranks == r->plan->ranks_capacity)
        return jin_fail(in, "more ranks than the array holds");
    r->rank = r->plan->ranks ? &r->plan->ranks[r->n_ranks] : &own;
    memset(r->rank, 0, sizeof *r->rank);
    r->rank->predicted_ms = r->rank->compute_ms = NAN;
    r->rank->time_scale = 1;
    if (jin_members(in, rank_members, COUNT(rank_members), r->rank, r, &seen))
        return -1;
    if (!(seen & 2) || !(seen & 16) || !(seen & 32))
        return jin_fail(in, "a rank without device, tokens or parts");
    r->n_ranks++;
    return 0;
}

static int read_ranks(struct json_in *in, void *ctx)
{
    return jin_array(in, read_rank, ctx);
}

static int read_plan(struct json_in *in, struct reading *r)
{
    uint64_t seen;

    if (jin_members(in, plan_members, COUNT(plan_members), r->plan, r, &seen))
        return -1;
    if (jin_peek(in) != -1)
        return jin_fail(in, "text after the plan");
    if ((seen & 15) != 15)
        return jin_fail(in, "schema, documents, mask or ranks missing");
    return r->n_ranks == 0 ? jin_fail(in, "no ranks") : 0;
}

/* Parts, lengths and tokens agree. */
static const char *inconsistent(hcp_documents_plan *plan)
{
    const hcp_document_part *before = plan->parts;
    int64_t n_before = 0, sum = 0;

    memset(plan->lengths, 0, plan->n_documents * sizeof *plan->lengths);
    plan->n_cut = 0;
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_documents_rank *rank = &plan->ranks[r];
        const hcp_document_part *part = plan->parts + rank->first_part;
        int64_t tokens = 0;
        const char *why = documents_bad_rank(part, rank->n_parts, before, n_before,
                                             plan->lengths, plan->n_documents);

        if (why)
            return why;
        for (int64_t i = 0; i < rank->n_parts; i++) {
            tokens += part[i].length;
            if (part[i].offset == 0)
                continue;
            if (!plan->causal)
                return "a document is cut under a full mask";
            /* Its second part: the one before is its first. */
            for (int64_t k = 0; k < n_before; k++)
                plan->n_cut +=
                    before[k].document == part[i].document && before[k].offset == 0;
        }
        if (tokens != rank->tokens)
            return "parts do not add up to the tokens of their rank";
        sum += tokens;
        if (rank->n_parts > 0) {
            before = part;
            n_before = rank->n_parts;
        }
    }
    for (size_t doc = 0; doc < plan->n_documents; doc++)
        if (plan->lengths[doc] == 0)
            return "a document is missing";
    return sum > HCP_PLAN_MAX_LEN ? "too many tokens" : NULL;
}

hcp_status hcp_documents_json_counts(const char *json, size_t length, char *text,
                                     size_t text_size, size_t *n_ranks, size_t *n_parts,
                                     size_t *n_documents)
{
    struct json_in in = {json, json, json, ""};
    hcp_documents_plan plan;
    struct reading r = {.plan = &plan};

    if (!json || !n_ranks || !n_parts || !n_documents)
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "no text or no output");
    in.end += length;
    hcp_documents_plan_init(&plan, NULL, 0, NULL, 0, NULL, 0);
    if (read_plan(&in, &r))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT,
                         "not a plan for documents: %s", in.error);
    *n_ranks = r.n_ranks;
    *n_parts = r.n_parts;
    *n_documents = plan.n_documents;
    return HCP_STATUS_OK;
}

hcp_status hcp_documents_from_json(const char *json, size_t length, char *text,
                                   size_t text_size, hcp_documents_plan *plan)
{
    struct json_in in = {json, json, json, ""};
    hcp_documents_plan result;
    struct reading r = {.plan = &result};
    const char *why;

    if (!json || !plan || plan->size < sizeof *plan || !plan->ranks || !plan->parts ||
        !plan->lengths)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a text and a plan with its size and arrays set are needed");
    in.end += length;
    hcp_documents_plan_init(&result, plan->ranks, plan->ranks_capacity, plan->parts,
                            plan->parts_capacity, plan->lengths, plan->lengths_capacity);
    hcp_shape_init(&result.shape);
    result.tile = result.layers = 1;
    result.makespan_ms = result.interval_lo_ms = result.interval_hi_ms = NAN;
    result.bound_ms = result.even_ms = result.whole_ms = NAN;
    result.gain_over_even = result.gain_over_whole = NAN;
    result.imbalance = result.area_imbalance = NAN;
    if (read_plan(&in, &r))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT,
                         "not a plan for documents: %s", in.error);
    result.n_ranks = r.n_ranks;
    result.n_parts = r.n_parts;
    if (result.n_documents > plan->lengths_capacity)
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "the plan has %zu documents, the array of lengths %zu",
                         result.n_documents, plan->lengths_capacity);
    why = inconsistent(&result);
    if (why)
        return plan_fail(text, text_size, HCP_STATUS_FORMAT,
                         "not a plan for documents: %s", why);
    *plan = result;
    return HCP_STATUS_OK;
}
