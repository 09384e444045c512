/* SPDX-License-Identifier: Apache-2.0
 *
 * The most tokens that fit into memory where blocks go forward only (contiguous shares
 * under a causal mask): a rank receives what comes before it, so what counts of the ranks
 * before it is their largest share M. With F(M) the most tiles on the ranks so far when
 * none has more than M,
 *
 *   F'(M) = max over M0 <= M of F(M0) + tiles(min(f(M0), M))
 *
 * f(M0) being what fits on the next rank beside buffers of M0. F rises and f falls: of
 * the M0 with f(M0) >= M the largest is best, and of the others the best so far is kept
 * while M grows, so a rank takes one pass over M. A second row has the remainder placed
 * already. M is in tiles, or in steps of several where there are many.
 */
#include <string.h>
#include "planner/plan.h"

enum { NOTHING = -1 };

static void set_points(struct memory_forward *f)
{
    const struct problem *p = f->p;
    int64_t step = p->tiles / FORWARD_STEPS + 1;
    int32_t n = 0;

    for (int64_t k = 0; k <= p->tiles; k += step) {
        f->m[n++] = k * p->tile;
        if (p->rest > 0)
            f->m[n++] = k * p->tile + p->rest;
    }
    f->n_points = n;
}

/* Tokens that rank r holds at most beside buffers of m0. */
static int64_t fits(const struct memory_forward *f, size_t r, int64_t m0, int sends)
{
    int64_t left = memory_room(f->p, r) - memory_times(f->received, m0);
    int64_t tokens = memory_tokens_in(f->p, left, sends);

    return tokens < f->p->cap[r] ? tokens : f->p->cap[r];
}

/* The same at all points. */
static void set_room(struct memory_forward *f, size_t r, int sends)
{
    for (int32_t g = 0; g < f->n_points; g++)
        f->room[g] = fits(f, r, f->m[g], sends);
}

/* Tiles in so many tokens, with the remainder in them or not; NOTHING: it does not
 * fit. */
static int64_t tiles_in(const struct problem *p, int64_t tokens, int with_rest)
{
    tokens -= with_rest ? p->rest : 0;
    return tokens < 0 ? NOTHING : tokens / p->tile;
}

struct choice {
    int64_t tiles; /* NOTHING: none */
    int32_t from;
    int took;
};

/* What is reached from M0 = point g with at most `tokens` on the rank, the remainder
 * placed (row) by then. */
static void consider(const struct memory_forward *f, const int64_t was[2][FORWARD_POINTS],
                     int row, int32_t g, int64_t tokens, struct choice *best)
{
    const int most = row && f->p->rest > 0 ? 1 : 0;

    for (int took = 0; took <= most; took++) {
        int64_t before = was[row - took][g], mine = tiles_in(f->p, tokens, took);

        if (before == NOTHING || mine == NOTHING || before + mine <= best->tiles)
            continue;
        best->tiles = before + mine;
        best->from = g;
        best->took = took;
    }
}

/* One more rank, number i of those looked at. */
static void add_rank(struct memory_forward *f, int i, size_t r,
                     const int64_t was[2][FORWARD_POINTS], int64_t now[2][FORWARD_POINTS])
{
    const int rows = f->p->rest > 0 ? 2 : 1;

    set_room(f, r, 1);
    for (int row = 0; row < rows; row++) {
        struct choice lower = {NOTHING, 0, 0}; /* of points from `low` up, whose f < M */
        int32_t low = 0;

        for (int32_t g = 0; g < f->n_points; g++) {
            struct choice best;

            if (low == g && f->room[g] >= f->m[g])
                low = g + 1; /* f(M) >= M still: nothing to keep */
            else
                consider(f, was, row, g, f->room[g], &lower);
            while (low > 0 && f->room[low - 1] < f->m[g]) {
                low--;
                consider(f, was, row, low, f->room[low], &lower);
            }
            best = lower;
            if (low > 0)
                consider(f, was, row, low - 1, f->m[g], &best);
            now[row][g] = best.tiles;
            f->from[i][row][g] = (int16_t)best.from;
            f->took[i][row][g] = (int8_t)best.took;
        }
    }
}

/* Best end: rank `last` holds what fits beside M0, sending nothing. */
struct end {
    int64_t lack; /* tokens; -1: nothing looked at */
    int last;
    struct choice at;
};

static void try_end(struct memory_forward *f, const int64_t was[2][FORWARD_POINTS], int i,
                    size_t r, struct end *end)
{
    const struct problem *p = f->p;
    int row = p->rest > 0;

    set_room(f, r, 0);
    for (int32_t g = 0; g < f->n_points; g++) {
        struct choice best = {NOTHING, 0, 0};
        int64_t lack;

        consider(f, was, row, g, f->room[g], &best);
        if (best.tiles == NOTHING) { /* the remainder is nowhere */
            struct choice bare = {NOTHING, 0, 0};

            consider(f, was, 0, g, f->room[g], &bare);
            lack = p->seq_len - (bare.tiles < p->tiles ? bare.tiles : p->tiles) * p->tile;
            if (end->lack < 0 || lack < end->lack)
                *end = (struct end){lack, -1, best};
            continue;
        }
        lack = best.tiles < p->tiles ? (p->tiles - best.tiles) * p->tile : 0;
        if (end->lack < 0 || lack < end->lack)
            *end = (struct end){lack, i, best};
    }
}

/* Caps of the ranks from the way to the end. */
static void trace(const struct memory_forward *f, const struct end *end,
                  const size_t *rank, int64_t *cap)
{
    int row = f->p->rest > 0 ? 1 - end->at.took : 0;
    int32_t g = end->at.from;

    memset(cap, 0, f->p->n * sizeof *cap);
    cap[rank[end->last]] = fits(f, rank[end->last], f->m[g], 0);
    for (int i = end->last - 1; i >= 0; i--) {
        int32_t from = f->from[i][row][g];
        int64_t room = fits(f, rank[i], f->m[from], 1);

        cap[rank[i]] = room < f->m[g] ? room : f->m[g];
        row -= f->took[i][row][g];
        g = from;
    }
}

/* These ranks, with the buffers of a ring of m. */
static int64_t run(struct memory_forward *f, const size_t *rank, int m, int64_t *cap)
{
    struct end end = {-1, -1, {NOTHING, 0, 0}};
    int now = 0;

    f->received = memory_times(memory_buffers(f->p, m), f->p->kv_bytes);
    for (int32_t g = 0; g < f->n_points; g++) {
        f->most[0][0][g] = 0;
        f->most[0][1][g] = NOTHING;
    }
    for (int i = 0; i < m; i++, now = !now) {
        try_end(f, f->most[now], i, rank[i], &end);
        if (end.lack == 0)
            break;
        add_rank(f, i, rank[i], f->most[now], f->most[!now]);
    }
    if (end.lack == 0)
        trace(f, &end, rank, cap);
    return end.lack;
}

/* Rings of fewer ranks are looked at where there are few. */
enum { FEW = 8 };

int64_t memory_forward_shortfall(const struct problem *p, const uint8_t *allowed,
                                 int64_t *cap)
{
    struct memory_forward *f = p->forward;
    size_t rank[FORWARD_RANKS];
    int64_t least, lack;
    int all = 0;

    f->p = p;
    set_points(f);
    for (size_t r = 0; r < p->n; r++)
        if (!allowed || allowed[r])
            rank[all++] = r;
    least = run(f, rank, all, cap);
    for (uint32_t set = (1u << FEW) - 1; least > 0 && set > 0; set--) {
        size_t some[FEW];
        int m = 0;

        if (all > FEW || set >> all)
            continue;
        for (int i = 0; i < all; i++)
            if (set >> i & 1)
                some[m++] = rank[i];
        /* They need fewer buffers. */
        if (m == all || memory_buffers(p, m) == memory_buffers(p, m + 1))
            continue;
        lack = run(f, some, m, cap);
        least = lack < least ? lack : least;
    }
    return least;
}
