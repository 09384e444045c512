/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/plan.h"

/* Branch and bound over tile splits. A box is a range of tile counts for each active
 * rank. Blocks never get faster when a length grows, and the recurrence never gets
 * faster when a block does, so the recurrence with every rank at its lower end is a
 * lower bound for the whole box. A split that does not fit into memory does not with more
 * tokens either. Which ranks are in the ring and which one holds the
 * remainder is enumerated outside, because both change the ring itself. */
enum { MAX_EXACT = 3, MOST = 4, STACK = 256, NODES = 200000, FOUR_NODES = 4000 };
#define FOUR_SLACK 1.01

struct box {
    int64_t lo[MOST], hi[MOST];
    double bound_ms;
};

struct branch {
    const struct problem *p;
    int m, rest; /* rest: active index that holds the remainder, -1 none */
    int32_t rank[MOST];
    struct score best;
    int64_t *best_tokens;
    int nodes, most_nodes;
    double slack; /* what is not faster by this factor does not count */
};

/* Narrows the ranges to those that add up to the number of tiles; 0 if none does. */
static int narrow(const struct branch *b, struct box *box)
{
    for (int again = 1; again;) {
        int64_t lo = 0, hi = 0;

        again = 0;
        for (int i = 0; i < b->m; i++) {
            lo += box->lo[i];
            hi += box->hi[i];
        }
        for (int i = 0; i < b->m; i++) {
            int64_t least = b->p->tiles - (hi - box->hi[i]);
            int64_t most = b->p->tiles - (lo - box->lo[i]);

            if (box->lo[i] > box->hi[i])
                return 0;
            if (least > box->lo[i]) {
                lo += least - box->lo[i];
                box->lo[i] = least;
                again = 1;
            }
            if (most < box->hi[i]) {
                hi -= box->hi[i] - most;
                box->hi[i] = most;
                again = 1;
            }
            if (box->lo[i] > box->hi[i])
                return 0;
        }
    }
    return 1;
}

static struct score at_lower_end(struct branch *b, const struct box *box, int64_t *len)
{
    b->nodes++;
    for (int i = 0; i < b->m; i++)
        len[i] = box->lo[i] * b->p->tile + (i == b->rest ? b->p->rest : 0);
    return eval_small(b->p, b->m, b->rank, len,
                      b->best.none ? HUGE_MS : b->best.ms / b->slack);
}

static int is_point(const struct branch *b, const struct box *box)
{
    for (int i = 0; i < b->m; i++)
        if (box->lo[i] != box->hi[i])
            return 0;
    return 1;
}

/* Can a box with this bound hold something better? */
static int hopeful(const struct branch *b, double bound_ms)
{
    return b->best.none || bound_ms * b->slack < b->best.ms;
}

/* Looks at a box, part of another (NULL: of none), whose bound is known: takes a single
 * split, or pushes a range worth splitting. */
static void look(struct branch *b, const struct box *from, struct box *box,
                 struct box *stack, int *top)
{
    int64_t len[MOST];
    struct score score;

    if (!narrow(b, box))
        return;
    if (!from || memcmp(from->lo, box->lo, (size_t)b->m * sizeof *box->lo) != 0 ||
        is_point(b, box)) {
        score = at_lower_end(b, box, len);
        if (score.none || score.gave_up)
            return;
        box->bound_ms = score.ms;
    }
    if (!is_point(b, box)) {
        if (hopeful(b, box->bound_ms))
            stack[(*top)++] = *box;
        return;
    }
    if (score_less(score, b->best)) {
        b->best = score;
        memset(b->best_tokens, 0, b->p->n * sizeof *b->best_tokens);
        for (int i = 0; i < b->m; i++)
            b->best_tokens[b->rank[i]] = len[i];
    }
}

static void search_boxes(struct branch *b)
{
    struct box stack[STACK], box;
    int top = 0;

    for (int i = 0; i < b->m; i++) {
        box.lo[i] = i == b->rest ? 0 : 1;
        box.hi[i] = round_room(b->p, (size_t)b->rank[i], i == b->rest);
    }
    look(b, NULL, &box, stack, &top);
    while (top > 0 && b->nodes < b->most_nodes) {
        struct box half[2];
        int widest = 0, first;

        box = stack[--top];
        if (!hopeful(b, box.bound_ms))
            continue;
        for (int i = 1; i < b->m; i++)
            if (box.hi[i] - box.lo[i] > box.hi[widest] - box.lo[widest])
                widest = i;
        half[0] = half[1] = box;
        half[0].hi[widest] = box.lo[widest] + (box.hi[widest] - box.lo[widest]) / 2;
        half[1].lo[widest] = half[0].hi[widest] + 1;
        /* The half with the lower bound on top; the stack stays far below its size,
         * because each level adds one box and halves a range of at most 2^30. */
        first = top;
        look(b, &box, &half[0], stack, &top);
        look(b, &box, &half[1], stack, &top);
        if (top - first == 2 && stack[first].bound_ms < stack[first + 1].bound_ms) {
            box = stack[first];
            stack[first] = stack[first + 1];
            stack[first + 1] = box;
        }
    }
}

/* Over all non-empty subsets of at most four allowed ranks (NULL: of all). */
static void search_sets(struct branch *b, const uint8_t *allowed)
{
    const struct problem *p = b->p;
    int32_t rank[MOST];
    int n = 0;

    for (size_t r = 0; r < p->n; r++)
        if ((!allowed || allowed[r]) && n < MOST)
            rank[n++] = (int32_t)r;
    for (int set = (1 << n) - 1; set > 0; set--) {
        b->m = 0;
        for (int i = 0; i < n; i++)
            if (set >> i & 1)
                b->rank[b->m++] = rank[i];
        if (p->rest == 0) {
            b->rest = -1;
            search_boxes(b);
        } else {
            for (b->rest = 0; b->rest < b->m; b->rest++)
                search_boxes(b);
        }
    }
}

struct score solve_exact(const struct problem *p, const uint8_t *allowed,
                         struct score start, int64_t *best, int *exact)
{
    struct branch b = {
        .p = p, .best = start, .best_tokens = best, .most_nodes = NODES, .slack = 1};

    search_sets(&b, allowed);
    *exact = b.nodes < NODES;
    return b.best;
}

struct score solve_four(const struct problem *p, struct score start, int64_t *best)
{
    struct branch b = {.p = p,
                       .best = start,
                       .best_tokens = best,
                       .most_nodes = FOUR_NODES,
                       .slack = FOUR_SLACK};

    search_sets(&b, NULL);
    return b.best;
}

struct score solve(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                   double limit_ms, int64_t *out, int *exact)
{
    struct score score;
    size_t n = 0;

    for (size_t r = 0; r < p->n; r++)
        n += allowed[r] != 0;
    *exact = 0;
    if (round_shortfall(p, allowed) > 0)
        return (struct score){1, 0, 0, 0};
    if (n > MAX_EXACT || p->sub_blocks > 1 || p->two_level)
        return solve_search(p, s, allowed, limit_ms, out);
    score = solve_search(p, s, allowed, limit_ms, out);
    if (score.none || score.ms >= limit_ms) {
        /* Far from it, or close enough for the last word. */
        if (!score.none && score.gave_up)
            return score;
        if (limit_ms < HUGE_MS)
            score = (struct score){0, 0, 0, limit_ms};
    }
    return solve_exact(p, allowed, score, out, exact);
}
