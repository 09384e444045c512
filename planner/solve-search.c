/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

/* Up to SMALL_GROUP ranks the local search looks at every receiver, also at ranks without
 * tokens. Above LARGE_GROUP it is not tried where equal busy times are already 1 / MARGIN
 * longer than what is to be beaten; below, it is always: where fixed costs dominate, it
 * gains more than that by leaving ranks out. */
#define MARGIN 0.9
enum { SMALL_GROUP = 8, LARGE_GROUP = 64, THOROUGH = 600, NEAR = 200 };

/* Four ranks with contiguous shares under a causal mask: what a move costs its receiver
 * depends on who is before whom, and the way down ends early in a split that is none. */
static int is_four(const struct problem *p, int64_t n_allowed)
{
    return n_allowed == 4 && p->n <= LARGE_GROUP && p->causal &&
           p->layout == HCP_LAYOUT_CONTIGUOUS && p->sub_blocks == 1;
}

static int64_t count(const struct problem *p, const uint8_t *allowed)
{
    int64_t n = 0;

    for (size_t r = 0; r < p->n; r++)
        n += allowed[r] != 0;
    return n;
}

/* Share weights from speeds by the closed forms of theory.md: where a rank's work is
 * linear in its share, shares follow speed; contiguous under a causal mask, the borders
 * are at sqrt(cumulative speed). With linear work by layer-cost.c. Returns the time that all
 * are then busy, -1 without linear work. */
static double weights_from_speed(const struct problem *p, const double *speed,
                                 double *weight)
{
    double sum = 0, cum = 0, border = 0;

    if (p->linear)
        return layer_shares(p, speed, weight);
    if (!p->causal || p->layout != HCP_LAYOUT_CONTIGUOUS) {
        memcpy(weight, speed, p->n * sizeof *weight);
        return -1;
    }
    for (size_t r = 0; r < p->n; r++)
        sum += speed[r];
    for (size_t r = 0; r < p->n; r++) {
        double next;

        cum += speed[r];
        next = sqrt(cum / sum);
        weight[r] = speed[r] > 0 ? next - border : 0;
        border = next;
    }
    return -1;
}

/* Speeds to begin with: a square block of an average share. One model call a model. */
static void first_speeds(const struct problem *p, struct scratch *s,
                         const uint8_t *allowed, double *speed)
{
    int64_t m = count(p, allowed), len;

    len = p->seq_len / m > p->tile ? p->seq_len / m : p->tile;
    for (int32_t id = 0; id < p->ring->n_ids; id++)
        s->probe[id] = -1;
    for (size_t r = 0; r < p->n; r++) {
        double *known = &s->probe[p->ring->ranks[r].id[p->kind]];

        speed[r] = 0;
        if (!allowed[r])
            continue;
        if (*known < 0)
            *known = (double)len * (double)len /
                     hcp_model_block_ms(problem_model(p, r), 0, len, len, NULL);
        speed[r] = *known;
    }
}

/* Where work is linear in the share, equal ranks of a large group get equal speeds: those
 * of their kind together. What they differ by, their place in the ring, costs less than
 * the runs of equal shares save. */
static void average_speeds(const struct problem *p, struct scratch *s,
                           const int64_t *tokens, double *speed)
{
    double *area = s->probe, *ms = s->probe + 2 * p->n;

    for (int32_t id = 0; id < p->ring->n_ids; id++)
        area[id] = ms[id] = 0;
    for (size_t r = 0; r < p->n; r++) {
        int32_t id = p->ring->ranks[r].id[p->kind];

        if (tokens[r] > 0) {
            area[id] += (double)s->areas[r];
            ms[id] += s->busy[r] - (p->linear ? layer_ms(p, r, tokens[r]) : 0);
        }
    }
    for (size_t r = 0; r < p->n; r++) {
        int32_t id = p->ring->ranks[r].id[p->kind];

        if (speed[r] > 0 && ms[id] > 0)
            speed[r] = area[id] / ms[id];
    }
}

/* How many splits the local search may evaluate, each in m^2 steps. It corrects for what
 * busy times do not see (waiting, rings that got smaller); on random groups more than
 * this gained less than 0.1 %. */
static int budget_of(int64_t m)
{
    if (m <= SMALL_GROUP)
        return 24;
    if (m <= LARGE_GROUP)
        return 16;
    return m <= 256 ? 4 : 0;
}

double solve_estimate(const struct problem *p, struct scratch *s, const uint8_t *allowed)
{
    int64_t *tokens = s->tokens[TOK_START];
    double area = 0, sum = 0, most;
    int rough;

    first_speeds(p, s, allowed, s->speed);
    weights_from_speed(p, s->speed, s->weight);
    if (round_shares(p, s, s->weight, tokens))
        return HUGE_MS;
    most = eval_busy_about(p, s, tokens, &rough);
    if (p->linear)
        return most;
    cost_areas(p, tokens, s->areas);
    for (size_t r = 0; r < p->n; r++)
        if (tokens[r] > 0) {
            area += (double)s->areas[r];
            sum += (double)s->areas[r] / s->busy[r];
        }
    return area / sum;
}

/* Repeats "speed = area / time in this very split, shares from speeds" until the split
 * stands still: equal finish times where waiting does not matter. Leaves the best split
 * seen (by busy time) in out; returns its busy time, -1 if infeasible, or -2 when the
 * first rounds show that limit_ms is out of reach: at the speeds they have, the whole
 * area would take these ranks longer by a margin. *stale: s->busy is of another split;
 * *rough: as of eval_busy(). */
static double equalise(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                       double limit_ms, int64_t *out, int *stale, int *rough)
{
    int64_t *tokens = s->tokens[TOK_START];
    double *speed = s->speed, least = -1, bound_ms;
    int large = count(p, allowed) > LARGE_GROUP;

    bound_ms = large ? 0 : reach_bound(p, s, allowed, limit_ms);
    first_speeds(p, s, allowed, speed);
    for (int round = 0; round < 6; round++) {
        double most, fewest = -1, area = 0, sum = 0, tile_ms = 0, all_ms, margin;
        int64_t m = 0;

        all_ms = weights_from_speed(p, speed, s->weight);
        if (round_shares(p, s, s->weight, tokens))
            return -1;
        if (round > 0 && memcmp(tokens, out, p->n * sizeof *tokens) == 0)
            break;
        most = eval_busy_about(p, s, tokens, rough);
        *stale = least >= 0 && most >= least;
        if (!*stale) {
            least = most;
            memcpy(out, tokens, p->n * sizeof *tokens);
        }
        cost_areas(p, tokens, s->areas);
        for (size_t r = 0; r < p->n; r++) {
            if (tokens[r] == 0)
                continue;
            if (!p->linear)
                speed[r] = (double)s->areas[r] / s->busy[r];
            else if (s->busy[r] > layer_ms(p, r, tokens[r]))
                speed[r] =
                    (double)s->areas[r] / (s->busy[r] - layer_ms(p, r, tokens[r]));
            m++;
            area += (double)s->areas[r];
            sum += speed[r];
            fewest = fewest < 0 || s->busy[r] < fewest ? s->busy[r] : fewest;
            if (s->busy[r] * (double)p->tile > tile_ms * (double)tokens[r])
                tile_ms = s->busy[r] / (double)tokens[r] * (double)p->tile;
        }
        if (large && (!p->causal || p->layout != HCP_LAYOUT_CONTIGUOUS))
            average_speeds(p, s, tokens, speed);
        s->estimate_ms = area / sum;
        if (reach_beyond(p, bound_ms, s->estimate_ms, limit_ms))
            return -2;
        /* Where no local search follows, the speeds are all that still changes. */
        margin = budget_of(m) > 0 ? MARGIN : 0.99;
        if (!*rough && large && !p->linear && margin * area >= limit_ms * sum)
            return -2;
        if (!*rough && large && p->linear && round > 0 && margin * all_ms >= limit_ms)
            return -2;
        if (most - fewest <= tile_ms) /* no tile to move: rounding is what is left */
            break;
    }
    return least;
}

/* Moves single tiles from the busiest rank to where they cost least, by each rank's
 * average cost of a tile and without asking the models: takes the roughness of rounding
 * out of a split. Returns the busy time of what is then in out. */
static double polish(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                     int64_t n_allowed, double least, int stale, int64_t *out)
{
    int64_t *tokens = s->tokens[TOK_START];
    double *busy = s->value2, *tile_ms = s->weight;
    int rough;

    if (stale)
        eval_busy(p, s, out, &rough);
    for (int round = 0; round < 3; round++) {
        double most_then;
        int moves = 0, limit = n_allowed < 32 ? (int)n_allowed : 32;

        memcpy(tokens, out, p->n * sizeof *tokens);
        memcpy(busy, s->busy, p->n * sizeof *busy);
        for (size_t r = 0; r < p->n; r++)
            tile_ms[r] = tokens[r] ? busy[r] / (double)tokens[r] * (double)p->tile : 0;
        for (; moves < limit; moves++) {
            double most = -1, least_then = HUGE_MS;
            size_t from = 0, to = p->n;

            /* Whose turn it is cannot be predicted: without branches on it. */
            for (size_t r = 0; r < p->n; r++) {
                int takes = (allowed[r] != 0) & (tokens[r] > 0) &
                            (tokens[r] + p->tile <= p->cap[r]);
                double then = takes ? busy[r] + tile_ms[r] : HUGE_MS;

                from = busy[r] > most ? r : from;
                most = busy[r] > most ? busy[r] : most;
                to = then < least_then ? r : to;
                least_then = then < least_then ? then : least_then;
            }
            if (to == p->n || to == from || tokens[from] < p->tile ||
                least_then >= most)
                break;
            tokens[from] -= p->tile;
            tokens[to] += p->tile;
            busy[from] -= tile_ms[from];
            busy[to] += tile_ms[to];
        }
        if (moves == 0)
            break;
        most_then = eval_busy(p, s, tokens, &rough);
        if (most_then >= least)
            break;
        least = most_then;
        memcpy(out, tokens, p->n * sizeof *tokens);
    }
    return least;
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
 * fastest of those of equal busy times under caps that leave every split in memory, of the
 * most promising ones. -1: there is none. */
static double start_in_memory(const struct problem *p, struct scratch *s,
                              const uint8_t *allowed, int64_t *out)
{
    struct problem boxed = *p;
    struct memory_shape box[MEMORY_BOXES];
    int64_t *trial = s->tokens[TOK_BOX];
    double best = -1;
    int n;

    boxed.cap = s->box;
    weights_from_speed(p, s->speed, s->weight);
    n = memory_best_boxes(p, allowed, s->weight, box, s->box);
    for (int i = 0; i < n || (best < 0 && i == n); i++) {
        int stale = 0, rough;
        double busy;
        struct score score;

        if (i < n ? memory_box(p, allowed, &box[i], s->box) != 0
                  : memory_shortfall(p, allowed, s->box) > 0)
            continue;
        busy = equalise(&boxed, s, allowed, HUGE_MS, trial, &stale, &rough);
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

/* polish(), but for what does not fit then. */
static double polish_in_memory(const struct problem *p, struct scratch *s,
                               const uint8_t *allowed, int64_t n_allowed, double least,
                               int stale, int64_t *out)
{
    int64_t *before = s->tokens[TOK_BOX];
    double busy;

    if (p->memory)
        memcpy(before, out, p->n * sizeof *out);
    busy = polish(p, s, allowed, n_allowed, least, stale, out);
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
                       .n_allowed = count(p, allowed)};
    int64_t m = 0, step = 1;
    int stale = 0, rough = 0, boxed = 0;
    double busy = equalise(p, s, allowed, limit_ms, out, &stale, &rough);

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
    q.budget = budget_of(m);
    /* No split of these ranks gets there, or none that is looked at. */
    if (!rough && q.n_allowed > LARGE_GROUP && !boxed &&
        busy * (q.budget > 0 ? MARGIN : 1) >= limit_ms)
        return (struct score){0, 1, 0, limit_ms};
    keep(&q, eval_split(p, s, out, HUGE_MS, NULL));
    scan(&q);
    q.budget = budget_of(m);
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
                       .n_allowed = count(p, allowed)};

    if (!is_four(p, q.n_allowed))
        return (struct score){0, 1, 0, 0};
    keep(&q, eval_split(p, s, split, HUGE_MS, NULL));
    descend(&q, p->thorough && p->any_subset);
    return q.score;
}
