/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares of keys that end a decode step first. For a number m of ranks with tokens the
 * merge is known, so the longest time T of a rank decides. In T rank r can take n_r(T)
 * tiles, by bisection, for t_r only grows; T is enough for m ranks if the m largest n_r
 * hold the sequence. T goes down by bisection until the largest time of a split is one
 * that no split stays strictly below: that is exact, in times as they are in doubles.
 */
#include <string.h>
#include "planner/decode.h"

double decode_rank_ms(const struct decode *d, size_t r, int64_t tokens)
{
    const hcp_model *model = d->ring->ranks[r].model[d->kind];

    if (tokens == 0)
        return 0;
    return hcp_model_block_ms(model, 0, 1, tokens, NULL) +
           hcp_model_finish_ms(model, 0, 1);
}

int64_t decode_cap(const struct decode *d, size_t r, int64_t states)
{
    const hcp_rank *spec = &d->ring->ranks[r].spec;
    int64_t cap = spec->max_tokens, room;

    if (d->ring->ranks[r].left_out)
        return 0;
    cap = cap > 0 && cap < d->seq_len ? cap : d->seq_len;
    if (spec->max_bytes == 0)
        return cap;
    room = spec->max_bytes -
           memory_plus(spec->weight_bytes, memory_times(states, d->state_bytes));
    if (room < 0)
        return -1;
    room = d->unit > 0 ? room / d->unit : cap;
    return room < cap ? room : cap;
}

static double merge_of(const struct decode *d, hcp_merge merge, int32_t m)
{
    return merge_time(merge, m, d->rows, d->row_bytes, d->alpha_ms, d->byte_ms);
}

static int allowed(const struct decode *d, hcp_merge merge)
{
    return d->only == HCP_MERGE_AUTO || d->only == merge;
}

struct decode_score decode_eval(const struct decode *d, const int64_t *tokens)
{
    struct decode_score out = {.none = 1};
    double longest = 0;
    int32_t m = 0;

    for (size_t r = 0; r < d->n; r++) {
        double ms = decode_rank_ms(d, r, tokens[r]);

        m += tokens[r] > 0;
        longest = ms > longest ? ms : longest;
    }
    for (int i = 0; i < MERGES; i++) {
        hcp_merge merge = merge_order[i];
        double ms = merge_of(d, merge, m);
        int fits = allowed(d, merge);

        for (size_t r = 0; fits && r < d->n; r++)
            fits =
                tokens[r] == 0 || tokens[r] <= decode_cap(d, r, merge_states(merge, m));
        if (!fits || (!out.none && ms >= out.merge_ms))
            continue;
        out = (struct decode_score){
            0, longest + ms, longest, ms, m < 2 ? HCP_MERGE_AUTO : merge, m};
    }
    return out;
}

/* ---- within a time ---- */

static int in_time(const struct decode *d, size_t r, int64_t tokens, double ms,
                   int strictly)
{
    double t = decode_rank_ms(d, r, tokens);

    return strictly ? t < ms : t <= ms;
}

/* Whole tiles that rank r does in time; with the rest beside them: -1 for none. */
static int64_t tiles_in(const struct decode *d, size_t r, double ms, int strictly,
                        int with_rest, int64_t most)
{
    int64_t lo = with_rest ? -1 : 0, hi = most, rest = with_rest ? d->rest : 0;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo + 1) / 2;

        if (in_time(d, r, mid * d->tile + rest, ms, strictly))
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Ranks with the same model are asked once: what was said last of each, by model id. */
struct lately {
    double *room, *cap; /* tiles in time, under which cap; cap -1: not asked */
    double *ms, *tokens;
};

static struct lately lately_of(const struct decode *d)
{
    double *base = d->s->ring.outer; /* has RINGS_ROWS >= 8 doubles a rank; ids are 2 n */

    return (struct lately){base, base + 2 * d->n, base + 4 * d->n, base + 6 * d->n};
}

static void forget(const struct decode *d, double *keys)
{
    for (int32_t id = 0; id < d->ring->n_ids; id++)
        keys[id] = -1;
}

static double room_of(const struct decode *d, size_t r, int64_t cap, double ms,
                      int strictly)
{
    int64_t most = cap / d->tile, tiles;

    if (cap <= 0)
        return 0;
    most = most < d->tiles ? most : d->tiles;
    tiles = tiles_in(d, r, ms, strictly, 0, most);
    return d->rest > 0 && tiles * d->tile + d->rest <= cap &&
                   in_time(d, r, tiles * d->tile + d->rest, ms, strictly)
               ? (double)tiles + 0.5
               : (double)tiles;
}

/* What each rank can do in time. s->value: its tiles, and a half more where it can hold
 * the rest beside them; a rank with less than half cannot take part. */
static void capacities(const struct decode *d, const int64_t *cap, double ms,
                       int strictly)
{
    struct lately last = lately_of(d);

    forget(d, last.cap);
    for (size_t r = 0; r < d->n; r++) {
        int32_t id = d->ring->ranks[r].id[d->kind];
        int64_t own = cap[r] > 0 ? cap[r] : 0;

        if (last.cap[id] != (double)own) {
            last.cap[id] = (double)own;
            last.room[id] = room_of(d, r, own, ms, strictly);
        }
        d->s->value[r] = last.room[id];
    }
}

/* Ranks by room, most first; all of them in their own order where none is left out. */
static void line_up(const struct decode *d, size_t m)
{
    for (size_t r = 0; r < d->n; r++)
        d->s->order[r] = (int32_t)r;
    if (m < d->n)
        sort_descending(d->s->value, d->s->order, d->n);
}

/* Takes what is too much off m ranks evenly; the holder of the rest (n: there is none)
 * may be left without tiles. */
static void take_off(const struct decode *d, size_t m, size_t holder, int64_t over,
                     int64_t *tiles)
{
    while (over > 0) {
        int64_t each = over / (int64_t)m > 1 ? over / (int64_t)m : 1;

        for (size_t i = m; i-- > 0 && over > 0;) {
            int64_t *at = &tiles[d->s->order[i]], keep = i != holder;
            int64_t take = *at - keep < each ? *at - keep : each;

            take = take < over ? take : over;
            *at -= take;
            over -= take;
        }
    }
}

/* Whether the m ranks with most room hold the sequence, each at least a tile or the rest;
 * then their shares into tokens. The rest goes to a rank that has room for it beside its
 * tiles: there is no better set of m, for one with less room that has loses a tile too.
 * *sum: the tiles they have room for. */
static int share_out(const struct decode *d, size_t m, int64_t *tokens, int64_t *sum)
{
    const double *room = d->s->value;
    int32_t *order = d->s->order;
    size_t holder = d->n, empty = 0;
    int lossless = 0;

    *sum = 0;
    line_up(d, m);
    for (size_t i = 0; i < m; i++) {
        int64_t tiles = (int64_t)room[order[i]];
        int with_rest = room[order[i]] - (double)tiles > 0.25;

        *sum += tiles;
        empty += tiles == 0;
        if (tiles == 0 && !with_rest)
            empty = 2; /* cannot take part */
        if (with_rest && (!lossless || tiles == 0))
            holder = i;
        lossless |= with_rest;
    }
    if (empty > 1) /* only one rank can live on the rest */
        return 0;
    if (d->rest > 0 && !lossless)
        holder = m - 1; /* gives a tile for it */
    if (*sum - (d->rest > 0 && !lossless) < d->tiles ||
        d->tiles < (int64_t)m - (d->rest > 0))
        return 0;
    memset(tokens, 0, d->n * sizeof *tokens);
    for (size_t i = 0; i < m; i++)
        tokens[order[i]] = (int64_t)room[order[i]] - (i == holder && !lossless);
    take_off(d, m, holder, *sum - (d->rest > 0 && !lossless) - d->tiles, tokens);
    for (size_t r = 0; r < d->n; r++)
        tokens[r] *= d->tile;
    if (d->rest > 0)
        tokens[order[holder]] += d->rest;
    return 1;
}

static double longest_of(const struct decode *d, const int64_t *tokens)
{
    struct lately last = lately_of(d);
    double longest = 0;

    forget(d, last.tokens);
    for (size_t r = 0; r < d->n; r++) {
        int32_t id = d->ring->ranks[r].id[d->kind];

        if (last.tokens[id] != (double)tokens[r]) {
            last.tokens[id] = (double)tokens[r];
            last.ms[id] = decode_rank_ms(d, r, tokens[r]);
        }
        longest = last.ms[id] > longest ? last.ms[id] : longest;
    }
    return longest;
}

/* The least longest time of exactly m ranks under caps if it is below limit_ms, and the
 * split; else HUGE_MS. In turn: is any split strictly below the best so far, and a jump
 * to where room, taken as linear in time, is just enough, or halfway. */
static double least_time(const struct decode *d, const int64_t *cap, size_t m,
                         double limit_ms, int64_t *tokens)
{
    int64_t *trial = d->s->tokens[TOK_CAND], sum, sum_lo = 0, sum_hi;
    double lo = 0, hi = HUGE_MS;

    for (int turn = 0;; turn++) {
        double ms, part;

        capacities(d, cap, hi < limit_ms ? hi : limit_ms, 1);
        if (!share_out(d, m, trial, &sum_hi))
            return hi;
        memcpy(tokens, trial, d->n * sizeof *tokens);
        hi = longest_of(d, tokens);
        /* At hi there may be less room than where it was looked for: a hint all the same.
         */
        part = (double)(d->tiles - sum_lo) / (double)(sum_hi - sum_lo);
        ms = lo + (hi - lo) * (turn % 2 == 0 && part > 0 && part < 1 ? part : 0.5);
        if (!(ms > lo && ms < hi))
            continue;
        capacities(d, cap, ms, 0);
        if (share_out(d, m, trial, &sum)) {
            memcpy(tokens, trial, d->n * sizeof *tokens);
            hi = longest_of(d, tokens);
        } else {
            lo = ms;
            sum_lo = sum < d->tiles ? sum : sum_lo;
        }
    }
}

/* The least number of ranks that have room for the sequence in a time, partial results
 * apart: with fewer no split takes less. */
static size_t least_count(const struct decode *d, double ms)
{
    int64_t *cap = d->s->cap, sum = 0;
    size_t m = 0;

    for (size_t r = 0; r < d->n; r++)
        cap[r] = decode_cap(d, r, 1);
    capacities(d, cap, ms, 0);
    line_up(d, 0);
    while (m < d->n && sum < d->tiles)
        sum += (int64_t)d->s->value[d->s->order[m++]];
    return m;
}

size_t decode_fewer(const struct decode *d, size_t m)
{
    size_t power = 1;

    if (d->n <= DECODE_EACH_COUNT)
        return m - 1;
    while (2 * power < m)
        power *= 2;
    return m > 1 ? power : 0;
}

/* Without caps in bytes the fastest schedule will do, whatever the split. */
static int worth(const struct decode *d, int i, int32_t m)
{
    double ms = merge_of(d, merge_order[i], m);

    if (!allowed(d, merge_order[i]))
        return 0;
    if (d->ring->memory)
        return 1;
    for (int k = 0; k < MERGES; k++) {
        double other = merge_of(d, merge_order[k], m);

        if (allowed(d, merge_order[k]) && (other < ms || (other == ms && k < i)))
            return 0;
    }
    return 1;
}

struct decode_score decode_solve(const struct decode *d, size_t most, size_t least,
                                 double limit_ms, int64_t *tokens)
{
    struct decode_score best = {.none = 1, .ms = limit_ms};
    int64_t *cap = d->s->cap, *trial = d->s->tokens[TOK_CUR];
    int counted = 0;

    for (size_t m = most; m >= least && m > 0; m = decode_fewer(d, m)) {
        if (!counted && best.ms < HUGE_MS && m > least) {
            size_t count = least_count(d, best.ms);

            least = count > least ? count : least;
            counted = 1;
            if (m < least)
                break;
        }
        for (int i = 0; i < MERGES; i++) {
            double merge = merge_of(d, merge_order[i], (int32_t)m), ms;

            if (merge >= best.ms || !worth(d, i, (int32_t)m))
                continue;
            for (size_t r = 0; r < d->n; r++)
                cap[r] = decode_cap(d, r, merge_states(merge_order[i], (int32_t)m));
            ms = least_time(d, cap, m, best.ms - merge, trial);
            if (ms >= HUGE_MS || ms + merge >= best.ms)
                continue;
            best = (struct decode_score){
                0,         ms + merge, ms, merge, m < 2 ? HCP_MERGE_AUTO : merge_order[i],
                (int32_t)m};
            memcpy(tokens, trial, d->n * sizeof *tokens);
        }
    }
    return best;
}
