/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

int64_t round_room(const struct problem *p, size_t r, int with_rest)
{
    int64_t room = p->cap[r] - (with_rest ? p->rest : 0);

    if (room < 0)
        return -1;
    room /= p->tile;
    return room < p->tiles ? room : p->tiles;
}

int64_t round_shortfall(const struct problem *p, const uint8_t *allowed)
{
    int64_t tiles = 0, lost = INT64_MAX, missing;

    for (size_t r = 0; r < p->n; r++) {
        int64_t room, with;

        if (allowed && !allowed[r])
            continue;
        room = round_room(p, r, 0);
        with = round_room(p, r, 1);
        tiles += room;
        if (with >= 0 && room - with < lost)
            lost = room - with; /* tiles of room this rank gives up to hold the rest */
    }
    if (p->rest > 0 && lost == INT64_MAX)
        return p->rest + (p->tiles > tiles ? (p->tiles - tiles) * p->tile : 0);
    missing = p->tiles - tiles + (p->rest > 0 ? lost : 0);
    return missing > 0 ? missing * p->tile : 0;
}

/* Heapsort: the C library's qsort may allocate. */
static int sinks(const double *value, int32_t a, int32_t b)
{
    return value[a] != value[b] ? value[a] < value[b] : a > b; /* a after b */
}

static void sift(const double *value, int32_t *order, size_t root, size_t n)
{
    for (;;) { /* the one that comes last is on top */
        size_t child = 2 * root + 1;
        int32_t swap;

        if (child >= n)
            return;
        if (child + 1 < n && sinks(value, order[child + 1], order[child]))
            child++;
        if (!sinks(value, order[child], order[root]))
            return;
        swap = order[root];
        order[root] = order[child];
        order[child] = swap;
        root = child;
    }
}

void sort_descending(const double *value, int32_t *order, size_t n)
{
    if (n <= 16) { /* by insertion */
        for (size_t i = 1; i < n; i++) {
            int32_t x = order[i];
            size_t at = i;

            for (; at > 0 && sinks(value, order[at - 1], x); at--)
                order[at] = order[at - 1];
            order[at] = x;
        }
        return;
    }
    for (size_t i = n / 2; i-- > 0;)
        sift(value, order, i, n);
    for (size_t end = n; end-- > 1;) {
        int32_t swap = order[0];

        order[0] = order[end];
        order[end] = swap;
        sift(value, order, 0, end);
    }
}

/* Real-valued tiles by weight under caps: ranks that reach their cap keep it, the rest
 * is shared again among the others. */
static void share_ideal(const struct problem *p, const double *weight, double *ideal)
{
    double left = (double)p->seq_len / (double)p->tile, sum = 0;
    int again = 1;

    for (size_t r = 0; r < p->n; r++) {
        ideal[r] = weight[r] > 0 ? -1 : 0; /* -1: still open */
        sum += weight[r];
    }
    while (again) {
        double share = sum > 0 ? left / sum : 0;

        again = 0;
        for (size_t r = 0; r < p->n; r++) {
            double most = (double)p->cap[r] / (double)p->tile;

            if (ideal[r] < 0 && weight[r] * share > most) {
                ideal[r] = most;
                left -= most;
                sum -= weight[r];
                again = 1;
            }
        }
        if (!again)
            for (size_t r = 0; r < p->n; r++)
                if (ideal[r] < 0)
                    ideal[r] = weight[r] * share;
    }
}

/* Gives `left` tiles away, one a rank in order, round by round, to ranks with room. */
static int64_t deal(const struct problem *p, const double *weight, const int32_t *order,
                    size_t n, size_t skip, int64_t left, int64_t *tokens)
{
    for (int moved = 1; moved && left > 0;) {
        moved = 0;
        for (size_t x = 0; x < n && left > 0; x++) {
            size_t r = (size_t)order[x];

            if (r != skip && weight[r] > 0 &&
                tokens[r] < round_room(p, r, 0) * p->tile) {
                tokens[r] += p->tile;
                left--;
                moved = 1;
            }
        }
    }
    return left;
}

int round_shares(const struct problem *p, struct scratch *s, const double *weight,
                 int64_t *tokens)
{
    double *ideal = s->ideal, *value = s->value;
    int32_t *order = s->order;
    int64_t left = p->tiles;
    size_t n = p->n, holder = n;

    share_ideal(p, weight, ideal);
    for (size_t r = 0; r < n; r++) {
        int64_t room = round_room(p, r, 0), whole = (int64_t)ideal[r];

        whole = whole < room ? whole : room;
        whole = whole < left ? whole : left; /* guards against rounding of the sum */
        left -= whole;
        tokens[r] = whole * p->tile;
        value[r] = ideal[r] - (double)whole;
        order[r] = (int32_t)r;
    }
    if (left > 0) {
        sort_descending(value, order, n);
        left = deal(p, weight, order, n, n, left, tokens);
    }
    if (left > 0)
        return -1;
    if (p->rest == 0)
        return 0;
    /* The rest goes where most is missing, if it fits there. */
    for (size_t r = 0; r < n; r++) {
        value[r] = ideal[r] - (double)tokens[r] / (double)p->tile;
        if (weight[r] > 0 && tokens[r] + p->rest <= p->cap[r] &&
            (holder == n || value[r] > value[holder]))
            holder = r;
    }
    if (holder == n)
        sort_descending(value, order, n);
    for (size_t x = 0; x < n && holder == n; x++) {
        /* Everyone is full to the tile: someone gives tiles up for it. */
        size_t r = (size_t)order[x];
        int64_t room = round_room(p, r, 1), over;

        if (weight[r] <= 0 || room < 0)
            continue;
        over = tokens[r] / p->tile - room;
        tokens[r] -= over * p->tile;
        over = deal(p, weight, order, n, r, over, tokens);
        if (over == 0)
            holder = r;
        else
            tokens[r] += over * p->tile;
    }
    if (holder == n)
        return -1;
    tokens[holder] += p->rest;
    return 0;
}
