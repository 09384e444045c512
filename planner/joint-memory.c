/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank must hold where queries and KV are split apart, in bytes: weights, the KV
 * of all layers of what it keeps, once more that of a layer where its own block is sent
 * in several pieces, activations of its queries, and receive buffers, each as long as the
 * largest block that comes to it.
 */
#include "planner/joint.h"

/* Where a rank's queries end and its KV begins; of a rank without, not set. */
struct ends {
    int64_t q_end, kv_begin;
};

static int64_t stripe_len(int64_t len, int32_t stripes, int64_t t)
{
    return len / stripes + (t < len % stripes);
}

/* By the layout alone: the executor asks about splits whose segments it has not made. */
static void find_ends(const struct problem *p, const int64_t *q, const int64_t *kv,
                      struct ends *out)
{
    int64_t q_front = 0, q_back = p->seq_len, kv_front = 0;

    for (size_t r = 0; r < p->n; r++) {
        int64_t q_half = p->layout == HCP_LAYOUT_ZIGZAG ? q[r] / 2 : 0;

        out[r] = (struct ends){0, kv_front};
        if (p->layout != HCP_LAYOUT_STRIPED) {
            kv_front += kv[r] - (p->layout == HCP_LAYOUT_ZIGZAG ? kv[r] / 2 : 0);
            q_front += q[r] - q_half;
            out[r].q_end = q_half > 0 ? q_back : q_front;
            q_back -= q_half;
            continue;
        }
        kv_front += stripe_len(kv[r], p->stripes, 0);
        if (q[r] == 0)
            continue;
        /* All ranks' stripes before its last one, and in that of the ranks up to it. */
        for (size_t i = 0; i < p->n; i++) {
            int64_t last = q[r] < p->stripes ? q[r] - 1 : p->stripes - 1;
            int64_t more = q[i] % p->stripes, upto = last + (i <= r);

            out[r].q_end += q[i] / p->stripes * upto + (upto < more ? upto : more);
        }
    }
}

/* How far the KV of active rank b travels. */
static int32_t hops_of(const struct problem *p, const struct ends *ends,
                       const int32_t *rank, int32_t m, int32_t b, const int64_t *q,
                       const int64_t *kv)
{
    int32_t h = kv[rank[b]] > 0 ? m - 1 : 0;

    for (; h > 0; h--) {
        size_t r = (size_t)rank[(b + h) % m];

        if (q[r] > 0 && (!p->causal || ends[rank[b]].kv_begin < ends[r].q_end))
            break;
    }
    return h;
}

void joint_memory(const struct problem *p, const int64_t *q, const int64_t *kv,
                  int64_t *bytes)
{
    struct ends ends[JOINT_MAX_RANKS];
    int32_t rank[JOINT_MAX_RANKS] = {0}, hops[JOINT_MAX_RANKS], m = 0;

    find_ends(p, q, kv, ends);
    for (size_t r = 0; r < p->n; r++) {
        bytes[r] = 0;
        if (q[r] > 0 || kv[r] > 0)
            rank[m++] = (int32_t)r;
    }
    for (int32_t b = 0; b < m; b++) { /* largest blocks first */
        int64_t own = kv[rank[b]];

        hops[b] = hops_of(p, ends, rank, m, b, q, kv);
        for (int32_t h = 1; h <= hops[b]; h++) {
            int64_t *largest = &bytes[rank[(b + h) % m]];

            *largest = own > *largest ? own : *largest;
        }
    }
    for (int32_t a = 0; a < m; a++) {
        size_t r = (size_t)rank[a];
        int64_t blocks = memory_times(memory_buffers(p, m), bytes[r]);
        int twice = p->sub_blocks > 1 && hops[a] > 0 && kv[r] > p->tile;

        bytes[r] =
            memory_plus(memory_times(kv[r], memory_times(p->layers + twice, p->kv_bytes)),
                        memory_plus(memory_times(q[r], p->activation_bytes),
                                    memory_times(blocks, p->kv_bytes)));
    }
}

int joint_fits(const struct problem *p, const int64_t *q, const int64_t *kv)
{
    int64_t bytes[JOINT_MAX_RANKS];

    joint_memory(p, q, kv, bytes);
    for (size_t r = 0; r < p->n; r++)
        if (bytes[r] > memory_room(p, r) && (q[r] > 0 || kv[r] > 0))
            return 0;
    return 1;
}

hcp_status joint_too_large(const struct problem *p, const int64_t *q, const int64_t *kv,
                           char *text, size_t text_size)
{
    int64_t bytes[JOINT_MAX_RANKS];

    joint_memory(p, q, kv, bytes);
    for (size_t r = 0; r < p->n; r++) {
        int64_t needs = memory_plus(bytes[r], p->ring->ranks[r].spec.weight_bytes);

        if ((q[r] > 0 || kv[r] > 0) && needs > memory_cap(p, r))
            return plan_fail(
                text, text_size, HCP_STATUS_INFEASIBLE,
                "rank %zu needs %lld bytes for its %lld queries, the KV of %lld "
                "tokens and blocks that it receives, %lld more than its cap of "
                "%lld; give it fewer or raise the cap",
                r, (long long)needs, (long long)q[r], (long long)kv[r],
                (long long)(needs - memory_cap(p, r)), (long long)memory_cap(p, r));
    }
    return HCP_STATUS_OK;
}
