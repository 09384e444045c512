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

    for (size_t r = 0; r < p->n; r++)
        if ((!allowed || allowed[r]) && p->cap[r] >= p->seq_len)
            return 0;
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

/* Real-valued tiles by weight under caps: ranks that reach their cap keep it, the rest
 * is shared again among the others. */
static void share_ideal(const struct problem *p, const double *weight, double *ideal)
{
    double left = (double)p->seq_len / (double)p->tile, sum = 0, share;
    double tile = (double)p->tile * (1 + 1e-12);
    int again = 0;

    for (size_t r = 0; r < p->n; r++)
        sum += weight[r];
    share = sum > 0 ? left / sum : 0;
    for (size_t r = 0; r < p->n; r++) { /* mostly nobody is near a cap */
        ideal[r] = weight[r] > 0 ? weight[r] * share : 0;
        again |= ideal[r] * tile > (double)p->cap[r];
    }
    for (size_t r = 0; again && r < p->n; r++)
        ideal[r] = weight[r] > 0 ? -1 : 0; /* -1: still open */
    while (again) {
        share = sum > 0 ? left / sum : 0;
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

/* Gives `left` tiles away, one a rank, round by round, to ranks with room. */
static int64_t deal(const struct problem *p, const double *weight, size_t skip,
                    int64_t left, int64_t *tokens)
{
    for (int moved = 1; moved && left > 0;) {
        moved = 0;
        for (size_t r = 0; r < p->n && left > 0; r++) {
            if (r != skip && weight[r] > 0 && tokens[r] < round_room(p, r, 0) * p->tile) {
                tokens[r] += p->tile;
                left--;
                moved = 1;
            }
        }
    }
    return left;
}

/* The rest goes where most is missing, if it fits there; if everyone is full to the
 * tile, someone gives tiles up for it. 0, or -1 if nobody can. */
static int place_rest(const struct problem *p, const double *weight, const double *ideal,
                      int64_t *tokens)
{
    size_t holder = p->n;
    double most = 0;

    for (size_t r = 0; r < p->n; r++) {
        double lack = ideal[r] - (double)tokens[r] / (double)p->tile;

        if (weight[r] > 0 && tokens[r] + p->rest <= p->cap[r] &&
            (holder == p->n || lack > most)) {
            holder = r;
            most = lack;
        }
    }
    for (size_t r = 0; r < p->n && holder == p->n; r++) {
        int64_t room = round_room(p, r, 1), over;

        if (weight[r] <= 0 || room < 0)
            continue;
        over = tokens[r] / p->tile - room;
        tokens[r] -= over * p->tile;
        over = deal(p, weight, r, over, tokens);
        if (over == 0)
            holder = r;
        else
            tokens[r] += over * p->tile;
    }
    if (holder == p->n)
        return -1;
    tokens[holder] += p->rest;
    return 0;
}

int round_shares(const struct problem *p, struct scratch *s, const double *weight,
                 int64_t *tokens)
{
    size_t n = p->n;
    double *ideal = s->ideal, sum = 0;
    int64_t given = 0;

    share_ideal(p, weight, ideal);
    /* What rounding takes from one rank the next ones get: no share is off by more than
     * a tile, whatever the number of ranks, and nothing has to be sorted. Equal ranks in
     * a row share what they get together, the first ones a tile more: long runs of equal
     * shares are cheap to evaluate. */
    for (size_t r = 0, end; r < n; r = end) {
        int64_t total, each, more = 0, run = 1, cap = p->cap[r];

        tokens[r] = 0;
        end = r + 1;
        if (!(weight[r] > 0))
            continue;
        for (; end < n; end++) { /* ranks without a share do not break a run */
            if (weight[end] > 0 && (weight[end] != weight[r] || p->cap[end] != cap))
                break;
            run += weight[end] > 0;
            tokens[end] = 0;
        }
        sum += ideal[r] * (double)run;
        total = (int64_t)(sum + 0.5) - given;
        total = total < p->tiles - given ? total : p->tiles - given;
        total = total > 0 ? total : 0;
        each = total;
        if (run > 1) {
            each = total / run;
            more = total % run;
        }
        for (size_t i = r; i < end; i++) {
            int64_t whole = each + (more > 0);

            if (!(weight[i] > 0))
                continue;
            if (whole * p->tile > cap)
                whole = round_room(p, i, 0);
            tokens[i] = whole * p->tile;
            given += whole;
            more--;
        }
    }
    if (deal(p, weight, p->n, p->tiles - given, tokens) > 0)
        return -1;
    return p->rest > 0 ? place_rest(p, weight, ideal, tokens) : 0;
}

/* Tiles a rank of more than one kernel tile; with fewer, shares would be too rough. */
enum { LEAST_UNITS = 4 };

static void set_tile(struct problem *p, int64_t tile)
{
    p->tile = tile;
    p->tiles = p->seq_len / tile;
    p->rest = p->seq_len % tile;
}

void problem_set_layout(struct problem *p, hcp_layout layout)
{
    int64_t parts = 1;

    p->layout = layout;
    if (p->kernel_tile == 0)
        return;
    if (p->causal && p->kernel_tile > 1 && layout == HCP_LAYOUT_ZIGZAG)
        parts = 2;
    else if (p->causal && p->kernel_tile > 1 && layout == HCP_LAYOUT_STRIPED)
        parts = p->stripes;
    set_tile(p, parts * p->kernel_tile);
    if (parts > 1 &&
        (p->tiles < LEAST_UNITS * (int64_t)p->n || round_shortfall(p, NULL) > 0 ||
         (p->memory && memory_shortfall(p, NULL, p->box) > 0)))
        set_tile(p, p->kernel_tile);
}
