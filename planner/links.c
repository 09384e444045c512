/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/joint.h"

/* Links between pairs of ranks. Which pairs the ring uses follows from the order of the
 * ranks with tokens, and which of those carry anything from how far blocks travel. All
 * links of the ring are busy most of the time, so what several of them share is divided
 * evenly for the whole ring: a link that carries blocks gets
 *
 *   min(gbps, shared_gbps / number of such links that share it)
 *
 * whatever the others do at that moment. */

int links_bad_numbers(const hcp_link *link)
{
    int valid = 1;

    valid &= link->alpha_us >= 0 && link->alpha_us <= 1e9;
    valid &= link->gbps == 0 || (link->gbps >= 1e-6 && link->gbps <= 1e9);
    valid &= link->slowdown == 0 || (link->slowdown >= 1 && link->slowdown <= 1e3);
    valid &= link->transfer_slowdown == 0 ||
             (link->transfer_slowdown >= 1 && link->transfer_slowdown <= 1e3);
    valid &= link->overhead_us >= 0 && link->overhead_us <= 1e9;
    return !valid;
}

static int valid_link(const hcp_link *link, size_t n, size_t n_shared)
{
    int valid = link->from >= 0 && (size_t)link->from < n && link->to >= 0 &&
                (size_t)link->to < n && link->from != link->to &&
                !links_bad_numbers(link);

    for (int i = 0; i < 2; i++)
        valid &= link->shared[i] >= 0 && (size_t)link->shared[i] <= n_shared;
    return valid && (link->shared[0] == 0 || link->shared[0] != link->shared[1]);
}

static int comes_before(const hcp_link *a, int32_t from, int32_t to)
{
    return a->from != from ? a->from < from : a->to < to;
}

hcp_status links_check(const hcp_question *q, size_t n, char *text, size_t text_size)
{
    if (q->order < HCP_ORDER_GIVEN || q->order > HCP_ORDER_FIXED)
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "no such order");
    if ((q->n_links > 0 && !q->links) || (q->n_shared > 0 && !q->shared_gbps) ||
        q->n_shared > 4 * n)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "links or what they share are missing, or more than 4 shared "
                         "things a rank");
    for (size_t i = 0; i < q->n_shared; i++)
        if (!(q->shared_gbps[i] >= 1e-6 && q->shared_gbps[i] <= 1e9))
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "shared speed %zu is not in 1e-6..1e9 GB/s", i + 1);
    for (size_t i = 0; i < q->n_links; i++) {
        const hcp_link *link = &q->links[i];

        if (!valid_link(link, n, q->n_shared))
            return plan_fail(
                text, text_size, HCP_STATUS_INVALID,
                "link %zu, %d to %d, is not between two of %zu ranks, or a number in it "
                "is out of range (start-up and overhead 0..1e9 us, speed 0 or 1e-6..1e9 "
                "GB/s, slowdowns 0 or 1..1000, shared 0..%zu)",
                i, (int)link->from, (int)link->to, n, q->n_shared);
        if (i > 0 && !comes_before(link - 1, link->from, link->to))
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "link %zu, %d to %d, comes twice or too late: links ascend "
                             "by from, then to",
                             i, (int)link->from, (int)link->to);
    }
    return HCP_STATUS_OK;
}

int links_bad_places(const hcp_plan *plan)
{
    uint64_t seen[HCP_PLAN_MAX_RANKS / 64] = {0};

    if (!plan->places)
        return 1;
    for (size_t i = 0; i < plan->n_ranks; i++) {
        int32_t rank = plan->places[i].rank;

        if (rank < 0 || (size_t)rank >= plan->n_ranks ||
            seen[rank / 64] >> rank % 64 & 1 || links_bad_numbers(&plan->places[i].link))
            return 1;
        seen[rank / 64] |= (uint64_t)1 << rank % 64;
    }
    return 0;
}

hcp_link links_between(const struct problem *p, size_t from, size_t to)
{
    const struct links *l = p->links;
    int32_t a = p->order ? p->order[from] : (int32_t)from;
    int32_t b = p->order ? p->order[to] : (int32_t)to;
    size_t lo = 0, hi = l->n_links;
    hcp_link other;

    if (l->places)
        return l->places[from].link;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (comes_before(&l->link[mid], a, b))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < l->n_links && l->link[lo].from == a && l->link[lo].to == b)
        return l->link[lo];
    other = l->other;
    other.from = a;
    other.to = b;
    return other;
}

/* Whether the link out of each rank carries anything, asked in ring order after two
 * rounds of it: a block that began t ranks ago is sent on if it travels further. */
static int carries(int32_t *travel, int32_t hops)
{
    *travel = *travel - 1 > hops ? *travel - 1 : hops;
    return *travel > 0;
}

/* Counts in sharers[], or takes from it (by -1), the links that carry blocks. */
static void share(const struct problem *p, int32_t m, const int32_t *rank,
                  const int32_t *hops, int32_t *sharers, int32_t by)
{
    int32_t travel = 0;

    for (int32_t i = 0; i < 2 * m; i++) {
        int32_t a = i % m;
        hcp_link link;

        if (!carries(&travel, hops[a]) || i < m)
            continue;
        link = links_between(p, (size_t)rank[a], (size_t)rank[(a + 1) % m]);
        for (int s = 0; s < 2; s++)
            if (link.shared[s] > 0)
                sharers[link.shared[s] - 1] += by;
    }
}

/* Among the ring's others; sharers NULL: counted here, for few ranks. */
static hcp_link in_company(const struct problem *p, int32_t m, const int32_t *rank,
                           const int32_t *hops, const int32_t *sharers, int32_t a)
{
    hcp_link link = links_between(p, (size_t)rank[a], (size_t)rank[(a + 1) % m]);

    for (int s = 0; s < 2; s++) {
        int32_t which = link.shared[s], n = 0;

        if (which == 0)
            continue;
        if (sharers) {
            n = sharers[which - 1];
        } else {
            int32_t travel = 0;

            for (int32_t i = 0; i < 2 * m; i++) {
                hcp_link other;

                if (!carries(&travel, hops[i % m]) || i < m)
                    continue;
                other = links_between(p, (size_t)rank[i - m], (size_t)rank[(i + 1) % m]);
                n += other.shared[0] == which || other.shared[1] == which;
            }
        }
        if (n > 0) {
            double part = p->links->shared_gbps[which - 1] / n;

            link.gbps = link.gbps > 0 && link.gbps < part ? link.gbps : part;
        }
    }
    link.shared[0] = link.shared[1] = 0;
    return link;
}

static struct link_into as_into(const struct problem *p, const hcp_link *link)
{
    struct link_into into = {
        .alpha_ms = link->alpha_us / 1e3,
        .token_ms = link->gbps > 0 ? p->ring->token_bytes / (link->gbps * 1e6) : 0,
        .beside = {.slowdown = link->slowdown > 1 ? link->slowdown : 1,
                   .transfer_slowdown =
                       link->transfer_slowdown > 1 ? link->transfer_slowdown : 1,
                   .overhead_ms = link->overhead_us / 1e3}};

    into.disturbs = into.beside.slowdown > 1 || into.beside.transfer_slowdown > 1 ||
                    into.beside.overhead_ms > 0;
    return into;
}

void links_into(const struct problem *p, struct scratch *s)
{
    const struct active *act = &s->act;
    int32_t m = act->m;
    int shared = !p->links->places && p->links->n_shared > 0;

    if (shared && !s->sharers_clear) {
        memset(s->sharers, 0, p->links->n_shared * sizeof *s->sharers);
        s->sharers_clear = 1;
    }
    if (shared)
        share(p, m, act->rank, s->hops, s->sharers, 1);
    for (int32_t a = 0; a < m; a++) {
        int64_t tiles = act->len[a] / p->tile + (act->len[a] % p->tile != 0);
        hcp_link link = in_company(p, m, act->rank, s->hops, s->sharers, a);

        s->into[(a + 1) % m] = as_into(p, &link);
        s->starts[a] = tiles < p->sub_blocks ? (int32_t)tiles : p->sub_blocks;
    }
    if (shared)
        share(p, m, act->rank, s->hops, s->sharers, -1);
}

void links_into_small(const struct problem *p, int m, const int32_t *rank,
                      const int32_t *hops, struct link_into *into)
{
    for (int a = 0; a < m; a++) {
        hcp_link link = in_company(p, m, rank, hops, NULL, a);

        into[(a + 1) % m] = as_into(p, &link);
    }
}

void links_places(const struct problem *p, struct scratch *s, const int64_t *tokens,
                  const int64_t *kv, hcp_place *places)
{
    int32_t *rank = s->act.rank, m = 0;
    int64_t *len = s->act.len;

    s->memo.holds = HOLDS_NOTHING;
    for (size_t r = 0; r < p->n; r++) {
        memset(&places[r], 0, sizeof places[r]);
        places[r].rank = p->order ? p->order[r] : (int32_t)r;
        if (tokens[r] == 0 && (!kv || kv[r] == 0))
            continue;
        rank[m] = (int32_t)r;
        len[m++] = tokens[r];
    }
    if (!p->links)
        return;
    if (kv)
        joint_lay_out(p, s, tokens, kv);
    else
        cost_hops(p, m, len, s->hops);
    memset(s->sharers, 0, p->links->n_shared * sizeof *s->sharers);
    share(p, m, rank, s->hops, s->sharers, 1);
    for (int32_t a = 0; m > 1 && a < m; a++)
        places[rank[a]].link = in_company(p, m, rank, s->hops, s->sharers, a);
    s->sharers_clear = 0;
}
