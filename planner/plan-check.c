/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

/* The queries of a rank, or its KV. */
static int64_t share_of(const hcp_plan_rank *rank, int kv, int64_t *n_segments,
                        int64_t *first)
{
    *n_segments = kv ? rank->n_kv_segments : rank->n_segments;
    *first = kv ? rank->first_kv_segment : rank->first_segment;
    return kv ? rank->kv_tokens : rank->tokens;
}

/* Tokens add up, and the segments are those the layout gives these tokens. */
static const char *wrong_shares(const hcp_plan *plan, size_t n_ranks, int kv)
{
    struct {
        int64_t front, back;
    } at = {0, plan->seq_len};
    int64_t sum = 0, n_segments, first;

    for (size_t i = 0; i < n_ranks; i++) {
        int64_t len = share_of(&plan->ranks[i], kv, &n_segments, &first), pieces = 1;

        sum += len;
        if (plan->layout == HCP_LAYOUT_ZIGZAG)
            pieces = 2;
        else if (plan->layout == HCP_LAYOUT_STRIPED)
            pieces = plan->stripes;
        if (n_segments != (len < pieces ? len : pieces))
            return "wrong number of segments for layout and tokens";
    }
    if (sum != plan->seq_len)
        return kv ? "kv_tokens do not add up to seq_len"
                  : "tokens do not add up to seq_len";
    /* Stripe by stripe (one for the others), rank by rank, in order of position. */
    for (int32_t t = 0; t < (plan->layout == HCP_LAYOUT_STRIPED ? plan->stripes : 1);
         t++) {
        for (size_t i = 0; i < n_ranks; i++) {
            int64_t len = share_of(&plan->ranks[i], kv, &n_segments, &first);
            const hcp_segment *segment = plan->segments + first;

            if (t >= n_segments)
                continue;
            if (plan->layout == HCP_LAYOUT_ZIGZAG) {
                at.back -= len / 2;
                if (len > 1 &&
                    (segment[1].offset != at.back || segment[1].length != len / 2))
                    return "segments do not match layout and tokens";
                len -= len / 2;
            } else if (plan->layout == HCP_LAYOUT_STRIPED) {
                len = len / plan->stripes + (t < len % plan->stripes);
            }
            if (segment[t].offset != at.front || segment[t].length != len)
                return "segments do not match layout and tokens";
            at.front += len;
        }
    }
    return NULL;
}

const char *plan_inconsistent(const hcp_plan *plan, size_t n_ranks)
{
    const char *why;

    for (size_t i = 0; i < n_ranks; i++)
        if (plan->ranks[i].max_bytes > 0 &&
            plan->ranks[i].memory_bytes > plan->ranks[i].max_bytes)
            return "memory_bytes above max_bytes";
    if (plan->joint && n_ranks > JOINT_MAX_RANKS)
        return "more ranks than a joint plan has";
    for (size_t i = 0; !plan->joint && i < n_ranks; i++)
        if (plan->ranks[i].kv_tokens != plan->ranks[i].tokens)
            return "kv_tokens differ from tokens";
    why = wrong_shares(plan, n_ranks, 0);
    return why || !plan->joint ? why : wrong_shares(plan, n_ranks, 1);
}
