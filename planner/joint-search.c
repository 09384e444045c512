/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/joint.h"

/* Shares of queries and of KV. Few splits are all tried. Of many, starts are looked at:
 * queries as in the best tied split, or as if transfers took no time and memory were not
 * limited; KV with the queries, even, or all with one rank; for two and three ranks
 * splits all over. From the best of these (of up to FEW + 1 ranks from each), moves
 * between pairs of ranks, of queries, of KV or of both, go down as long as one helps:
 * large steps first. Beyond SOME ranks only the rank that finishes last gives queries
 * away. */
enum { ALL = 20000, FEW = 3, SOME = 8, MANY = 64 };

struct search {
    const struct problem *p;
    struct scratch *s;
    int64_t *q, *kv;         /* the best split */
    int64_t *q_try, *kv_try; /* the one looked at */
    struct score score;
    int32_t critical; /* of the best: finishes last */
    int budget;
};

/* Looks at q_try and kv_try; 1 if they became the best. */
static int attempt(struct search *h)
{
    const struct problem *p = h->p;
    size_t bytes = p->n * sizeof *h->q;
    struct score score;

    for (size_t r = 0; r < p->n; r++) {
        int64_t cap = p->ring->ranks[r].spec.max_tokens;

        if (cap > 0 && h->kv_try[r] > cap)
            return 0;
    }
    if (p->memory && !joint_fits(p, h->q_try, h->kv_try))
        return 0;
    h->budget--;
    score = joint_eval(p, h->s, h->q_try, h->kv_try,
                       h->score.none ? HUGE_MS : h->score.ms, NULL);
    if (score.gave_up || !score_less(score, h->score))
        return 0;
    if (!p->extrapolate &&
        joint_source(p, h->s, h->q_try, h->kv_try) == HCP_FROM_EXTRAPOLATED)
        return 0;
    h->score = score;
    memcpy(h->q, h->q_try, bytes);
    memcpy(h->kv, h->kv_try, bytes);
    h->critical = 0;
    for (size_t r = 1; r < p->n; r++)
        if (h->s->fin[r] > h->s->fin[h->critical])
            h->critical = (int32_t)r;
    return 1;
}

static void take(struct search *h)
{
    size_t bytes = h->p->n * sizeof *h->q;

    memcpy(h->q_try, h->q, bytes);
    memcpy(h->kv_try, h->kv, bytes);
}

/* ---- all of them ---- */

/* Splits of a number of tiles into n shares, and where the rest goes; more than ALL is
 * ALL + 1. */
static int64_t count_splits(const struct problem *p)
{
    int64_t splits = 1;

    for (size_t i = 1; i < p->n; i++) { /* binomial, exact at every step */
        splits = splits * (p->tiles + (int64_t)i) / (int64_t)i;
        if (splits > ALL)
            return ALL + 1;
    }
    return p->rest > 0 ? splits * (int64_t)p->n : splits;
}

/* The next split, rest included: *holder has it. 0: that was the last. */
static int next_split(const struct problem *p, int64_t *tokens, size_t *holder)
{
    size_t i = 0;
    int64_t moved;

    tokens[*holder] -= p->rest;
    while (i < p->n && tokens[i] == 0)
        i++;
    if (i + 1 < p->n) {
        moved = tokens[i] - p->tile;
        tokens[i] = 0;
        tokens[0] = moved;
        tokens[i + 1] += p->tile;
    } else {
        memset(tokens, 0, p->n * sizeof *tokens);
        tokens[0] = p->tiles * p->tile;
        *holder = p->rest > 0 ? *holder + 1 : p->n;
        if (*holder == p->n)
            return 0;
    }
    tokens[*holder] += p->rest;
    return 1;
}

static void first_split(const struct problem *p, int64_t *tokens, size_t *holder)
{
    memset(tokens, 0, p->n * sizeof *tokens);
    tokens[0] = p->seq_len;
    *holder = 0;
}

static void try_all(struct search *h)
{
    size_t q_holder, kv_holder;

    first_split(h->p, h->kv_try, &kv_holder);
    do {
        first_split(h->p, h->q_try, &q_holder);
        do
            attempt(h);
        while (next_split(h->p, h->q_try, &q_holder));
    } while (next_split(h->p, h->kv_try, &kv_holder));
}

/* ---- starts ---- */

/* KV of the way'th kind to the queries of q_try, looked at: with the queries, even, or
 * all with one rank; 0: there are no more. What a cap does not let a rank hold goes to
 * the others. */
static int try_kv(struct search *h, int way)
{
    const struct problem *p = h->p;
    double *weight = h->s->weight;
    int one = way - 2; /* the rank that gets all */

    if (one >= (p->n <= SOME ? (int)p->n : 0))
        return 0;
    for (size_t r = 0; r < p->n; r++)
        weight[r] = way == 0        ? (double)h->q_try[r]
                    : way == 1      ? 1
                    : (int)r == one ? (double)p->seq_len
                                    : 1e-3;
    if (round_shares(p, h->s, weight, h->kv_try) == 0)
        attempt(h);
    return 1;
}

/* Queries as if KV came at once and fitted anywhere, into q_try; 0: none. */
static int free_queries(struct search *h)
{
    struct problem free = *h->p;
    struct scratch *s = h->s;
    struct score score;
    int exact;

    for (size_t r = 0; r < free.n; r++)
        s->joint.room[r] = free.seq_len;
    free.cap = s->joint.room;
    free.alpha_ms = free.token_ms = 0;
    free.links = NULL;
    free.sub_blocks = 1;
    free.memory = 0;
    memset(s->allowed, 1, free.n);
    memo_reset(&s->memo);
    score = solve(&free, s, s->allowed, HUGE_MS, h->q_try, &exact);
    memo_reset(&s->memo);
    return !score.none;
}

/* Where the best tied split needs unmeasured lengths: those of the other strategies, and
 * without the slowest ranks. The best inside the measured lengths is to be no slower. */
static void try_tied(struct search *h)
{
    size_t bytes = h->p->n * sizeof *h->q;

    for (int i = HCP_STRATEGY_EVEN; i <= HCP_STRATEGY_BEST; i++) {
        int none;

        memo_reset(&h->s->memo);
        none = i < HCP_STRATEGY_BEST
                   ? strategy_tokens(h->p, h->s, (hcp_strategy)i, h->q_try)
                   : strategy_drop(h->p, h->s, HUGE_MS, h->q_try).none;
        memo_reset(&h->s->memo);
        memcpy(h->kv_try, h->q_try, bytes);
        if (!none)
            attempt(h);
    }
}

/* Splits into so many parts of the sequence, for two or three ranks. */
static void scan(struct search *h)
{
    const struct problem *p = h->p;
    int64_t parts = p->n == 2 ? 16 : 4;

    if (p->n < 2 || p->n > FEW)
        return;
    for (int64_t a = 0; a <= parts; a++)
        for (int64_t b = p->n == 3 ? 0 : parts - a; b <= parts - a; b++)
            for (int64_t c = 0; c <= parts; c++)
                for (int64_t d = p->n == 3 ? 0 : parts - c; d <= parts - c; d++) {
                    int64_t at[2][2] = {{a, a + b}, {c, c + d}};

                    for (int i = 0; i < 2; i++) {
                        int64_t *out = i ? h->kv_try : h->q_try;
                        int64_t first = p->tiles * at[i][0] / parts;
                        int64_t second = p->tiles * at[i][1] / parts;

                        out[0] = first * p->tile;
                        out[1] = (second - first) * p->tile;
                        if (p->n == 3)
                            out[2] = (p->tiles - second) * p->tile;
                        out[p->n - 1] += p->rest;
                    }
                    attempt(h);
                }
}

/* ---- down from a split ---- */

/* Moves so many tiles, or what is there of them; 0: there is nothing. */
static int shift(const struct problem *p, int64_t *tokens, size_t from, size_t to,
                 int64_t tiles)
{
    int64_t moved = tiles * p->tile;

    if (moved > tokens[from])
        moved = tokens[from] / p->tile * p->tile;
    tokens[from] -= moved;
    tokens[to] += moved;
    return moved > 0;
}

enum { QUERIES = 1, KV = 2 };

static int move(struct search *h, size_t from, size_t to, int64_t tiles, int what)
{
    int moved = 0;

    take(h);
    if (what & QUERIES)
        moved |= shift(h->p, h->q_try, from, to, tiles);
    if (what & KV)
        moved |= shift(h->p, h->kv_try, from, to, tiles);
    return moved && attempt(h);
}

/* The short remainder of queries or KV, to any rank for a tile or for nothing. */
static int move_rest(struct search *h, int what)
{
    const struct problem *p = h->p;
    const int64_t *best = what == QUERIES ? h->q : h->kv;
    int64_t *tokens = what == QUERIES ? h->q_try : h->kv_try;
    size_t holder = p->n;
    int better = 0;

    for (size_t r = 0; r < p->n; r++)
        if (best[r] % p->tile)
            holder = r;
    for (size_t to = 0; holder < p->n && to < p->n; to++) {
        int64_t back = best[to] >= p->tile ? p->tile : 0;

        for (; to != holder && back >= 0; back -= p->tile) {
            take(h);
            tokens[to] += p->rest - back;
            tokens[holder] += back - p->rest;
            if (attempt(h)) {
                better = 1;
                holder = to;
                break;
            }
        }
    }
    return better;
}

static int exchange(struct search *h, int what)
{
    const struct problem *p = h->p;
    int better = 0;

    for (size_t a = 0; a < p->n; a++)
        for (size_t b = a + 1; b < p->n; b++) {
            int64_t *tokens = what == QUERIES ? h->q_try : h->kv_try, was;

            take(h);
            was = tokens[a];
            tokens[a] = tokens[b];
            tokens[b] = was;
            better |= attempt(h);
        }
    return better;
}

/* Queries one way and KV another, between any two pairs: what single moves cannot do
 * where several ranks finish together. */
static int move_two(struct search *h, int64_t tiles)
{
    const struct problem *p = h->p;
    size_t n = p->n, pairs = n * n;

    for (size_t x = 0; n <= FEW + 1 && x < pairs; x++)
        for (size_t y = 0; y < pairs && h->budget > 0; y++) {
            if (x / n == x % n || y / n == y % n || x == y)
                continue;
            take(h);
            if (shift(p, h->q_try, x / n, x % n, tiles) &&
                shift(p, h->kv_try, y / n, y % n, tiles) && attempt(h))
                return 1;
        }
    return 0;
}

static void descend(struct search *h)
{
    const struct problem *p = h->p;
    int64_t largest = 1;

    while (2 * largest <= p->tiles)
        largest *= 2;
    for (int again = 1; again && h->budget > 0;) {
        again = 0;
        for (int what = QUERIES; p->n <= SOME && what <= KV; what++) {
            again |= p->rest > 0 && move_rest(h, what);
            again |= exchange(h, what);
        }
        for (int64_t tiles = largest; tiles > 0; tiles /= 2) {
            for (size_t from = 0; from < p->n; from++)
                for (size_t to = 0; to < p->n && h->budget > 0; to++)
                    for (int what = QUERIES; from != to && what <= (QUERIES | KV);
                         what++) {
                        if (p->n > SOME && what != KV && (int32_t)from != h->critical)
                            continue;
                        while (h->budget > 0 && move(h, from, to, tiles, what))
                            again = 1;
                    }
            while (h->budget > 0 && move_two(h, tiles))
                again = 1;
        }
    }
}

/* Splits that a way down may look at. */
static int budget_of(size_t n)
{
    return n <= FEW + 1 ? 1000 : n <= SOME ? 2000 : n <= 16 ? 1000 : n <= MANY ? 200 : 0;
}

/* Goes down from the best since the last time, and keeps what is better than what is kept
 * (s->joint.q_kept, kv_kept). */
static void finish(struct search *h, struct score *kept)
{
    size_t bytes = h->p->n * sizeof *h->q;

    h->budget = budget_of(h->p->n);
    if (!h->score.none)
        descend(h);
    if (score_less(h->score, *kept)) {
        *kept = h->score;
        memcpy(h->s->joint.q_kept, h->q, bytes);
        memcpy(h->s->joint.kv_kept, h->kv, bytes);
    }
    h->score = (struct score){1, 0, 0, 0};
}

struct score joint_search(const struct problem *p, struct scratch *s, struct score start,
                          int64_t *q, int64_t *kv, int *exact)
{
    struct search h = {.p = p,
                       .s = s,
                       .q = q,
                       .kv = kv,
                       .q_try = s->tokens[TOK_JOINT_Q],
                       .kv_try = s->tokens[TOK_JOINT_KV],
                       .score = {1, 0, 0, 0}};
    int64_t splits = count_splits(p), *free = s->joint.q_free;
    size_t bytes = p->n * sizeof *q;
    struct score kept = {1, 0, 0, 0};

    *exact = splits * splits <= ALL;
    memcpy(s->joint.kv_tied, kv, bytes);
    if (!start.none) {
        take(&h);
        attempt(&h);
    }
    if (*exact) {
        try_all(&h);
        return h.score;
    }
    if (!start.none && h.score.none) {
        try_tied(&h);
        take(&h);
    }
    for (int way = 0; !start.none && try_kv(&h, way); way++)
        ;
    finish(&h, &kept);
    scan(&h);
    finish(&h, &kept);
    if (free_queries(&h)) {
        memcpy(free, h.q_try, bytes);
        if (!start.none) { /* KV that is known to fit */
            memcpy(h.kv_try, s->joint.kv_tied, bytes);
            attempt(&h);
        }
        for (int way = 0;; way++) {
            memcpy(h.q_try, free, bytes);
            if (!try_kv(&h, way))
                break;
            if (p->n <= FEW + 1) /* from each; else from the best of them */
                finish(&h, &kept);
        }
        finish(&h, &kept);
    }
    memcpy(q, s->joint.q_kept, bytes);
    memcpy(kv, s->joint.kv_kept, bytes);
    return kept;
}
