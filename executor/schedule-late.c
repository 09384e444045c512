/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/schedule-late.h"

/* Whether block a goes before block b over the link into rank i. */
static int goes_before(int32_t m, const int32_t *slots, int32_t i, int32_t a, int32_t b)
{
    int32_t ha = (i - a + m) % m, hb = (i - b + m) % m;

    if (ha + slots[a] != hb + slots[b])
        return ha + slots[a] < hb + slots[b];
    return slots[a] != slots[b] ? slots[a] < slots[b] : ha < hb;
}

int32_t schedule_turns(int32_t m, const int32_t *hops, const int32_t *slots, int32_t i,
                       int32_t *turn)
{
    int32_t n = 0, rest = m;

    turn[0] = i;
    for (int32_t h = m - 1; h > 0; h--) {
        int32_t j = (i - h + m) % m;

        if (h > hops[j])
            turn[--rest] = j;
    }
    for (int32_t h = 1; h < m; h++) {
        int32_t j = (i - h + m) % m, at = n + 1;

        if (h > hops[j])
            continue;
        while (at > 1 && goes_before(m, slots, i, j, turn[at - 1])) {
            turn[at] = turn[at - 1];
            at--;
        }
        turn[at] = j;
        n++;
    }
    return n;
}

int32_t schedule_own_after(int32_t m, const int32_t *hops, const int32_t *slots,
                           int32_t i)
{
    int32_t to = (i + 1) % m, after = 0, step = 0, best = -1;

    if (hops[i] < 1)
        return 0;
    /* The last of those that go on before it: they leave in the order they came. */
    for (int32_t h = 1; h < m; h++) {
        int32_t j = (i - h + m) % m;

        if (h >= hops[j] || !goes_before(m, slots, to, j, i))
            continue;
        if (best < 0 || goes_before(m, slots, to, best, j))
            best = j;
    }
    for (int32_t h = 1; best >= 0 && h < m; h++) { /* its step: those that come before */
        int32_t j = (i - h + m) % m;

        step += h <= hops[j] && j != best && goes_before(m, slots, i, j, best);
        after = step + 1;
    }
    return after;
}
