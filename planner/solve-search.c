/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/solve.h"

/* From the split of solve-equal.c on: moves of tiles, judged by the recurrence. */

/* Four ranks with contiguous shares under a causal mask: what a move costs its receiver
 * depends on who is before whom, and the way down ends early in a split that is none. */
static int is_four(const struct problem *p, int64_t n_allowed)
{
    return n_allowed == 4 && p->n <= LARGE_GROUP && p->causal &&
           p->layout == HCP_LAYOUT_CONTIGUOUS && p->sub_blocks == 1;
}

struct search {
    const struct problem *p;
    struct scratch *s;
    const uint8_t *allowed;
    int64_t *best, *cand;
    struct score score;
    double *fin, *busy; /* of best, kept apart from the scratch's */
    int32_t critical;
    size_t donor, to[3]; /* improve(): the rank with most tokens, receivers */
    int n_to;            /* -1: not looked for yet */
    int64_t n_allowed;
    int budget;
};

static void keep(struct search *q, struct score score)
{
    q->score = score;
    memcpy(q->fin, q->s->fin, q->p->n * sizeof *q->fin);
    memcpy(q->busy, q->s->busy, q->p->n * sizeof *q->busy);
    q->critical = 0;
    q->n_to = -1;
    for (size_t r = 1; r < q->p->n; r++)
        if (q->fin[r] > q->fin[q->critical])
            q->critical = (int32_t)r;
}

/* Evaluates q->cand; 1 if it became the best. */
static int attempt(struct search *q)
{
    struct score score;

    q->budget--;
    score = eval_split(q->p, q->s, q->cand, q->score.ms, NULL);
    if (!score_less(score, q->score))
        return 0;
    memcpy(q->best, q->cand, q->p->n * sizeof *q->best);
    keep(q, score);
    return 1;
}

/* Moves `tiles` tiles from a rank to another if both can; 1 if the split got better. */
static int move(struct search *q, size_t from, size_t to, int64_t tiles)
{
    const struct problem *p = q->p;
    int64_t tokens = tiles * p->tile;

    if (tokens > q->best[from])
        tokens = q->best[from] / p->tile * p->tile;
    if (from == to || tokens == 0 || !q->allowed[to] || q->best[to] + tokens > p->cap[to])
        return 0;
    /* The receiver alone would need longer than the best plan: no need to look. Nine
     * tenths of its average cost a tile is a careful guess of what the move adds. */
    if (q->best[to] > 0 && !is_four(p, q->n_allowed) &&
        q->busy[to] * (1 + 0.9 * (double)tokens / (double)q->best[to]) >= q->score.ms)
        return 0;
    memcpy(q->cand, q->best, p->n * sizeof *q->cand);
    q->cand[from] -= tokens;
    q->cand[to] += tokens;
    return attempt(q);
}

/* The short remainder moves to the critical rank in exchange for a tile. */
static int move_rest(struct search *q)
{
    const struct problem *p = q->p;
    size_t c = (size_t)q->critical, holder = p->n;

    for (size_t r = 0; r < p->n; r++)
        if (q->best[r] % p->tile)
            holder = r;
    if (holder == p->n || holder == c || q->best[c] < p->tile ||
        q->best[holder] + p->tile - p->rest > p->cap[holder])
        return 0;
    memcpy(q->cand, q->best, p->n * sizeof *q->cand);
    q->cand[c] += p->rest - p->tile;
    q->cand[holder] += p->tile - p->rest;
    return attempt(q);
}

/* The allowed ranks that are busy least, in order of (busy, rank); at most n of them. */
static int receivers(const struct search *q, int n, size_t *out)
{
    int found = 0;

    for (size_t r = 0; r < q->p->n; r++) {
        int at;

        /* In large groups, bringing a rank back in is not worth the tries. */
        if (!q->allowed[r] || (q->best[r] == 0 && q->n_allowed > SMALL_GROUP))
            continue;
        if (found == n && q->busy[r] >= q->busy[out[n - 1]])
            continue;
        found += found < n;
        for (at = found - 1; at > 0 && q->busy[r] < q->busy[out[at - 1]]; at--)
            out[at] = out[at - 1];
        out[at] = r;
    }
    return found;
}

/* From the rank that finishes last, then from the one with most tokens (whose KV makes
 * others wait), to those that are busy least. */
static int improve(struct search *q, int64_t tiles)
{
    size_t donors[2] = {(size_t)q->critical, 0};
    int n;

    if (q->n_to < 0) {
        q->n_to = receivers(q, q->n_allowed <= SMALL_GROUP ? 3 : 2, q->to);
        q->donor = 0;
        for (size_t r = 1; r < q->p->n; r++)
            if (q->best[r] > q->best[q->donor])
                q->donor = r;
    }
    n = q->n_to;
    donors[1] = q->donor;
    for (int d = 0; d < (donors[1] == donors[0] ? 1 : 2); d++)
        for (int t = 0; t < n && q->budget > 0; t++)
            if (move(q, donors[d], q->to[t], tiles))
                return 1;
    return 0;
}

/* Tries the split of these tile counts with the rest at one rank after the other. */
static void scan_split(struct search *q, const size_t *rank, const int64_t *tiles, int n)
{
    const struct problem *p = q->p;

    for (int holder = 0; holder < (p->rest > 0 ? n : 1); holder++) {
        int fits = 1;

        memset(q->cand, 0, p->n * sizeof *q->cand);
        for (int i = 0; i < n; i++) {
            int64_t tokens = tiles[i] * p->tile + (i == holder ? p->rest : 0);

            q->cand[rank[i]] = tokens;
            fits &= tokens <= p->cap[rank[i]];
        }
        if (fits)
            attempt(q);
    }
}

/* The rest to any rank, for a tile or for nothing. */
static int move_rest_anywhere(struct search *q)
{
    const struct problem *p = q->p;
    size_t holder = p->n;

    for (size_t r = 0; r < p->n; r++)
        if (q->best[r] % p->tile)
            holder = r;
    for (size_t to = 0; holder < p->n && to < p->n; to++) {
        int64_t back = q->best[to] >= p->tile ? p->tile : 0;

        if (to == holder || !q->allowed[to] ||
            q->best[to] + p->rest - back > p->cap[to] ||
            q->best[holder] - p->rest + back > p->cap[holder])
            continue;
        memcpy(q->cand, q->best, p->n * sizeof *q->cand);
        q->cand[to] += p->rest - back;
        q->cand[holder] += back - p->rest;
        if (attempt(q))
            return 1;
    }
    return 0;
}

/* Two ranks exchange their shares. */
static int exchange(struct search *q)
{
    const struct problem *p = q->p;

    for (size_t a = 0; a < p->n; a++)
        for (size_t b = a + 1; b < p->n; b++) {
            if (!q->allowed[a] || !q->allowed[b] || q->best[a] == q->best[b] ||
                q->best[a] > p->cap[b] || q->best[b] > p->cap[a])
                continue;
            memcpy(q->cand, q->best, p->n * sizeof *q->cand);
            q->cand[a] = q->best[b];
            q->cand[b] = q->best[a];
            if (attempt(q))
                return 1;
        }
    return 0;
}

/* Splits all over, where four ranks can have tokens: in eighths of the tiles. */
static void scan_four(struct search *q)
{
    const struct problem *p = q->p;
    size_t rank[4];
    int n = 0;

    for (size_t r = 0; r < p->n; r++)
        if (q->allowed[r] && n < 4)
            rank[n++] = r;
    for (int64_t a = 0; q->n_allowed == 4 && a <= 8; a++)
        for (int64_t b = a; b <= 8; b++)
            for (int64_t c = b; c <= 8; c++) {
                int64_t at[5] = {0, p->tiles * a / 8, p->tiles * b / 8, p->tiles * c / 8,
                                 p->tiles},
                        tiles[4];

                for (int i = 0; i < 4; i++)
                    tiles[i] = at[i + 1] - at[i];
                scan_split(q, rank, tiles, 4);
            }
}

/* q->cand if it is a split. */
static int attempt_if_fits(struct search *q)
{
    const struct problem *p = q->p;

    for (size_t r = 0; r < p->n; r++)
        if (q->cand[r] < 0 || q->cand[r] > p->cap[r] ||
            (q->cand[r] > 0 && !q->allowed[r]))
            return 0;
    return q->budget > 0 && attempt(q);
}

/* One of four ranks gives tiles to two or all of the others, or takes them from these. */
static int fan(struct search *q, int64_t tiles)
{
    const struct problem *p = q->p;
    int64_t tokens = tiles * p->tile;
    size_t rank[4], n = 0;
    int better = 0;

    for (size_t r = 0; r < p->n && n < 4; r++)
        if (q->allowed[r])
            rank[n++] = r;
    for (size_t one = 0; one < 4; one++)
        for (unsigned set = 1; set < 15; set++) {
            if (set >> one & 1 || (set & (set - 1)) == 0)
                continue;
            for (int64_t sign = -1; sign <= 1; sign += 2) {
                memcpy(q->cand, q->best, p->n * sizeof *q->cand);
                for (size_t i = 0; i < 4; i++)
                    if (set >> i & 1) {
                        q->cand[rank[i]] += sign * tokens;
                        q->cand[rank[one]] -= sign * tokens;
                    }
                better |= attempt_if_fits(q);
            }
        }
    return better;
}

/* Moves between all pairs of ranks, large steps first, as long as one helps: what links
 * that differ and short sequences need, where it is not the busiest rank that counts. */
static void descend(struct search *q, int wide)
{
    const struct problem *p = q->p;
    int64_t largest = 1;

    q->budget = wide ? THOROUGH : NEAR;
    while (wide ? largest < p->tiles : 8 * largest <= p->tiles)
        largest *= 2;
    for (int again = 1; again && q->budget > 0;) {
        again = p->rest > 0 && move_rest_anywhere(q);
        again |= exchange(q);
        for (int64_t step = largest; step > 0; step /= 2)
            for (size_t from = 0; from < p->n; from++)
                for (size_t to = 0; to < p->n && q->budget > 0; to++)
                    while (q->best[from] > 0 && move(q, from, to, step))
                        again = 1;
        for (int64_t step = 2; !again && step > 0 && is_four(p, q->n_allowed); step--)
            again = fan(q, step);
    }
}

/* Down from the split found so far and, for four ranks, from the best of those all over.
 * boxed: caps in bytes are in the way of the split of equal busy times. */
static void look_everywhere(struct search *q, int boxed)
{
    const struct problem *p = q->p;
    int64_t *kept = q->s->tokens[TOK_START];
    struct score score;
    const int wide = p->thorough && p->n <= SMALL_GROUP && (p->any_subset || boxed);

    if (!wide && !is_four(p, q->n_allowed))
        return;
    descend(q, wide);
    if (q->n_allowed != 4 || !wide)
        return;
    score = q->score;
    memcpy(kept, q->best, p->n * sizeof *kept);
    q->score = (struct score){0, 0, 0, HUGE_MS};
    scan_four(q);
    if (q->score.ms < HUGE_MS)
        descend(q, wide);
    if (score_less(q->score, score))
        return;
    memcpy(q->best, kept, p->n * sizeof *kept);
    keep(q, eval_split(p, q->s, kept, HUGE_MS, NULL));
}

/* Blocks in pieces on two or three ranks: what a piece costs, and how many there are,
 * jumps with the shares, so the way down from one start is not enough. Looks at splits
 * all over, at each one where there are few tiles. */
static void scan(struct search *q)
{
    int64_t total = q->p->tiles, grid = q->n_allowed == 2 ? 32 : 10;
    size_t rank[3];
    int n = 0;

    if (q->p->sub_blocks == 1 || q->n_allowed < 2 || q->n_allowed > 3)
        return;
    for (size_t r = 0; r < q->p->n; r++)
        if (q->allowed[r])
            rank[n++] = r;
    grid = total < grid ? total : grid;
    for (int64_t a = 0; a <= grid; a++) {
        for (int64_t b = n == 3 ? 0 : grid - a; b <= grid - a; b++) {
            int64_t tiles[3] = {0};

            if (grid > 0) {
                tiles[0] = total * a / grid;
                tiles[1] = total * (a + b) / grid - tiles[0];
                tiles[2] = total - tiles[0] - tiles[1];
            }
            scan_split(q, rank, tiles, n);
        }
    }
}

/* A split to begin with where caps in bytes forbid the one of equal busy times: the
 * fastest of those of equal busy times under caps that leave every split in memory, of
 * the most promising ones. -1: there is none. */
static double start_in_memory(const struct problem *p, struct scratch *s,
                              const uint8_t *allowed, int64_t *out)
{
    struct problem boxed = *p;
    struct memory_shape box[MEMORY_BOXES];
    int64_t *trial = s->tokens[TOK_BOX];
    double best = -1;
    int n;

    boxed.cap = s->box;
    solve_weights(p, s->speed, s->weight);
    n = memory_best_boxes(p, allowed, s->weight, box, s->box);
    for (int i = 0; i < n || (best < 0 && i == n); i++) {
        int stale = 0, rough;
        double busy;
        struct score score;

        if (i < n ? memory_box(p, allowed, &box[i], s->box) != 0
                  : memory_shortfall(p, allowed, s->box) > 0)
            continue;
        busy = solve_equalise(&boxed, s, allowed, HUGE_MS, trial, &stale, &rough);
        if (busy < 0)
            continue;
        score = eval_split(p, s, trial, HUGE_MS, NULL);
        if (!score.none && (best < 0 || score.ms < best)) {
            best = score.ms;
            memcpy(out, trial, p->n * sizeof *out);
        }
    }
    return best;
}

/* solve_polish(), but for what does not fit then. */
static double polish_in_memory(const struct problem *p, struct scratch *s,
                               const uint8_t *allowed, int64_t n_allowed, double least,
                               int stale, int64_t *out)
{
    int64_t *before = s->tokens[TOK_BOX];
    double busy;

    if (p->memory)
        memcpy(before, out, p->n * sizeof *out);
    busy = solve_polish(p, s, allowed, n_allowed, least, stale, out);
    if (!p->memory || memory_fits(p, p->n, NULL, out, s->largest))
        return busy;
    memcpy(out, before, p->n * sizeof *out);
    return least;
}

struct score solve_search(const struct problem *p, struct scratch *s,
                          const uint8_t *allowed, double limit_ms, int64_t *out)
{
    struct search q = {.p = p,
                       .s = s,
                       .allowed = allowed,
                       .best = out,
                       .cand = s->tokens[TOK_CAND],
                       .fin = s->weight,
                       .busy = s->value2,
                       .n_allowed = solve_count(p, allowed)};
    int64_t m = 0, step = 1;
    int stale = 0, rough = 0, boxed = 0;
    double busy = solve_equalise(p, s, allowed, limit_ms, out, &stale, &rough);

    if (busy == -1)
        return (struct score){1, 0, 0, 0};
    if (busy == -2)
        return (struct score){0, 1, 0, limit_ms};
    if (p->memory && !memory_fits(p, p->n, NULL, out, s->largest)) {
        boxed = s->full = 1;
        busy = start_in_memory(p, s, allowed, out);
        if (busy < 0)
            return (struct score){1, 0, 0, 0};
    }
    for (size_t r = 0; r < p->n; r++)
        m += out[r] > 0;
    if (q.n_allowed <= LARGE_GROUP && !boxed)
        busy = polish_in_memory(p, s, allowed, q.n_allowed, busy, stale, out);
    q.budget = solve_budget(m);
    /* No split of these ranks gets there, or none that is looked at. */
    if (!rough && q.n_allowed > LARGE_GROUP && !boxed &&
        busy * (q.budget > 0 ? MARGIN : 1) >= limit_ms)
        return (struct score){0, 1, 0, limit_ms};
    keep(&q, eval_split(p, s, out, HUGE_MS, NULL));
    scan(&q);
    q.budget = solve_budget(m);
    while (step * 8 * m <= p->tiles)
        step *= 2;
    for (; step > 0 && q.budget > 0; step /= 2)
        while (q.budget > 0 && improve(&q, step))
            ;
    if (p->rest > 0 && q.budget > 0)
        move_rest(&q);
    look_everywhere(&q, boxed);
    memcpy(s->fin, q.fin, p->n * sizeof *s->fin);
    memcpy(s->busy, q.busy, p->n * sizeof *s->busy);
    if (s->memo.holds == HOLDS_BUSY) /* of another split, it may be */
        s->memo.holds = HOLDS_CLASSES;
    return q.score;
}

struct score solve_from(const struct problem *p, struct scratch *s,
                        const uint8_t *allowed, int64_t *split)
{
    struct search q = {.p = p,
                       .s = s,
                       .allowed = allowed,
                       .best = split,
                       .cand = s->tokens[TOK_CAND],
                       .fin = s->weight,
                       .busy = s->value2,
                       .n_allowed = solve_count(p, allowed)};

    if (!is_four(p, q.n_allowed))
        return (struct score){0, 1, 0, 0};
    keep(&q, eval_split(p, s, split, HUGE_MS, NULL));
    descend(&q, p->thorough && p->any_subset);
    return q.score;
}
