/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging the partial results of m ranks so that each has the whole one. With alpha a
 * message and M bytes of R rows, B bytes a ms:
 *
 *   ring      2 (m - 1) (alpha + ceil(R / m) rows / B)
 *   doubling  (log2 p + 2 [m > p]) (alpha + M / B),  p the largest power of two <= m
 *   gather    alpha + (m - 1) M / B
 */
#include <string.h>
#include "planner/decode.h"

const hcp_merge merge_order[MERGES] = {HCP_MERGE_DOUBLING, HCP_MERGE_GATHER,
                                       HCP_MERGE_RING};

/* Rounds in which ranks 0 .. 2^rounds - 1 exchange; *p = 2^rounds. */
static int32_t doubling_rounds(int32_t m, int32_t *p)
{
    int32_t rounds = 0;

    for (*p = 1; *p <= m / 2; *p *= 2)
        rounds++;
    return rounds;
}

double merge_time(hcp_merge merge, int32_t m, int64_t rows, int64_t row_bytes,
                  double alpha_ms, double byte_ms)
{
    double all = (double)rows * (double)row_bytes * byte_ms;
    int32_t p, rounds;

    if (m < 2)
        return 0;
    switch (merge) {
    case HCP_MERGE_RING:
        all = (double)((rows + m - 1) / m) * (double)row_bytes * byte_ms;
        return 2.0 * (m - 1) * (alpha_ms + all);
    case HCP_MERGE_DOUBLING:
        rounds = doubling_rounds(m, &p);
        return (rounds + (m > p ? 2 : 0)) * (alpha_ms + all);
    default:
        return alpha_ms + (m - 1) * all;
    }
}

int64_t merge_states(hcp_merge merge, int32_t m)
{
    if (m < 2)
        return 1;
    return merge == HCP_MERGE_GATHER ? m : 2;
}

/* ---- the messages ---- */

struct sends {
    hcp_merge_send *out;
    size_t capacity, n;
    int64_t rows;
    int32_t m;
    int32_t rank[HCP_PLAN_MAX_RANKS]; /* [m] those with tokens */
};

static void put(struct sends *s, int32_t round, int32_t from, int32_t to, int64_t first,
                int64_t n_rows, int merges)
{
    if (n_rows == 0)
        return;
    if (s->n < s->capacity)
        s->out[s->n] =
            (hcp_merge_send){round, s->rank[from], s->rank[to], first, n_rows, merges};
    s->n++;
}

/* In numbers of ranks with tokens; part c of m begins at row rows c / m. Each round of a
 * sum begins with its own part, or with that which it has the whole of. */
static void ring_sends(struct sends *s)
{
    for (int32_t round = 0; round < 2 * (s->m - 1); round++) {
        int merges = round < s->m - 1;

        for (int32_t i = 0; i < s->m; i++) {
            int32_t back =
                merges ? round : round - s->m; /* m - 1 rounds on, part i + 1 */
            int64_t part = ((i - back) % s->m + s->m) % s->m;
            int64_t first = s->rows * part / s->m, end = s->rows * (part + 1) / s->m;

            put(s, round, i, (i + 1) % s->m, first, end - first, merges);
        }
    }
}

static void doubling_sends(struct sends *s)
{
    int32_t p, rounds = doubling_rounds(s->m, &p), round = 0;

    for (int32_t i = p; i < s->m; i++)
        put(s, 0, i, i - p, 0, s->rows, 1);
    round += s->m > p;
    for (int32_t k = 0; k < rounds; k++, round++)
        for (int32_t i = 0; i < p; i++)
            put(s, round, i, i ^ (int32_t)(1 << k), 0, s->rows, 1);
    for (int32_t i = p; i < s->m; i++)
        put(s, round, i - p, i, 0, s->rows, 0);
}

static void gather_sends(struct sends *s)
{
    for (int32_t i = 0; i < s->m; i++)
        for (int32_t k = 1; k < s->m; k++)
            put(s, 0, i, (i + k) % s->m, 0, s->rows, 1);
}

hcp_status hcp_plan_merge_sends(const hcp_plan *plan, hcp_merge_send *sends,
                                size_t capacity, size_t *n_sends)
{
    struct sends s;

    if (!plan || plan->size < sizeof *plan || !n_sends || !plan->ranks ||
        plan->n_ranks > HCP_PLAN_MAX_RANKS || !plan_is_decode(plan) || decode_bad(plan))
        return HCP_STATUS_INVALID;
    s.out = sends;
    s.capacity = sends ? capacity : 0;
    s.n = 0;
    s.m = 0;
    s.rows = (int64_t)plan->shape.batch * plan->shape.heads;
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].tokens > 0)
            s.rank[s.m++] = (int32_t)r;
    switch (plan->merge) {
    case HCP_MERGE_RING:
        ring_sends(&s);
        break;
    case HCP_MERGE_DOUBLING:
        doubling_sends(&s);
        break;
    case HCP_MERGE_GATHER:
        gather_sends(&s);
        break;
    default:
        break;
    }
    *n_sends = s.n;
    if (!sends && capacity == 0)
        return HCP_STATUS_OK;
    return s.n > s.capacity ? HCP_STATUS_SPACE : HCP_STATUS_OK;
}
