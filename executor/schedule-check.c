/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include "executor/schedule-internal.h"

/* One rank's segments against its tokens: in order, apart, inside the sequence. */
static int check_share(const struct maker *k, int32_t rank, int kv, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    struct share r = share_of(plan, rank, kv);
    int64_t held = 0, at = kv ? 0 : k->offset;
    const char *what = "more or fewer tokens";

    if (r.tokens < 0 || r.first < 0 || r.n < 0 || (uint64_t)r.first > plan->n_segments ||
        (uint64_t)r.n > plan->n_segments - (uint64_t)r.first) {
        what = "numbers of segments out of range";
        goto wrong;
    }
    for (int64_t i = 0; i < r.n; i++) {
        const hcp_segment *s = &plan->segments[r.first + i];

        if (s->length < 1 || s->offset < at || s->offset > k->end ||
            s->length > k->end - s->offset) {
            what = "segments that are empty, out of order or outside the sequence";
            goto wrong;
        }
        at = s->offset + s->length;
        held += s->length;
    }
    if (held == r.tokens)
        return HCP_OK;
wrong:
    return hcp_fail(err, HCP_FAILED,
                    "rank %" PRId32 " of the plan has %s%" PRId64
                    " tokens but %s; make the "
                    "plan anew with 'hcp-plan split --json'",
                    rank, kv ? "the KV of " : "", r.tokens, what);
}

static int check_shares(const struct maker *k, int kv, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    int64_t tokens = 0, all = kv ? k->end : k->end - k->offset;

    for (size_t r = 0; r < plan->n_ranks; r++) {
        int rc = check_share(k, (int32_t)r, kv, err);
        if (rc)
            return rc;
        tokens += share_of(plan, (int32_t)r, kv).tokens;
    }
    if (tokens != all)
        return hcp_fail(err, HCP_FAILED,
                        "the plan's ranks hold %s%" PRId64 " tokens of a %s of %" PRId64
                        "; make the plan anew with 'hcp-plan split --json'",
                        kv ? "the KV of " : "", tokens,
                        k->is_chunk && !kv ? "chunk" : "sequence", all);
    return HCP_OK;
}

int schedule_check(const struct maker *k, int32_t rank, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    int rc;

    if (k->sub_blocks < 1)
        return hcp_fail(err, HCP_FAILED, "%" PRId32 " sub-blocks: must be 1 or more",
                        k->sub_blocks);
    if (rank < 0 || (size_t)rank >= plan->n_ranks)
        return hcp_fail(err, HCP_FAILED,
                        "rank %" PRId32
                        " is outside the plan of %zu ranks; start as many "
                        "processes as the plan has ranks",
                        rank, plan->n_ranks);
    rc = check_shares(k, 0, err);
    return rc || !plan->joint ? rc : check_shares(k, 1, err);
}

/* Both lists are in order, so one walk does. */
int schedule_check_apart(const struct maker *k, int32_t block_of, int kv,
                         struct hcp_err *err)
{
    const hcp_segment *segments = k->plan->segments;
    struct share a = share_of(k->plan, k->out->rank, kv);
    struct share b = share_of(k->plan, block_of, kv);
    const hcp_segment *own = segments + a.first, *theirs = segments + b.first;

    for (int64_t s = 0, t = 0; s < a.n; s++) {
        while (t < b.n && theirs[t].offset < own[s].offset)
            t++;
        if ((t > 0 && theirs[t - 1].offset + theirs[t - 1].length > own[s].offset) ||
            (t < b.n && theirs[t].offset < own[s].offset + own[s].length))
            return hcp_fail(err, HCP_FAILED,
                            "ranks %" PRId32 " and %" PRId32
                            " of the plan both hold tokens "
                            "near position %" PRId64 "; make the plan anew with "
                            "'hcp-plan split --json'",
                            k->out->rank, block_of, own[s].offset);
    }
    return HCP_OK;
}
