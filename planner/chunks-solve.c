/* SPDX-License-Identifier: Apache-2.0
 *
 * One chunk: its split, and its length under a budget. Times of blocks never fall when a
 * length grows, so neither does the least time of a step with its tokens.
 */
#include <string.h>
#include "planner/chunks.h"

static int may(const struct chunks *c, size_t r, int64_t offset)
{
    return c->allowed[r] && offset >= c->join[r] && offset < c->leave[r];
}

static int64_t sum_of(const struct chunks *c, const int64_t *tokens)
{
    int64_t sum = 0;

    for (size_t r = 0; r < c->n; r++)
        sum += tokens[r];
    return sum;
}

static void copy(const struct chunks *c, int64_t *to, const int64_t *from)
{
    memcpy(to, from, c->n * sizeof *to);
}

/* Tokens that rank r may have at most, by its own caps. */
static int64_t room_of(const struct chunks *c, size_t r, int64_t resident)
{
    const hcp_rank *spec = &c->p.ring->ranks[r].spec;
    int64_t held = memory_times(c->p.layers, c->p.kv_bytes), bytes, room;

    room = spec->max_tokens > 0 ? spec->max_tokens - resident : HCP_PLAN_MAX_LEN;
    if (spec->max_bytes > 0) {
        bytes = memory_room(&c->p, r) - memory_times(resident, held);
        bytes = bytes / memory_plus(held, c->p.activation_bytes);
        room = bytes < room ? bytes : room;
    }
    return room > 0 ? room : 0;
}

/* Whole tiles in proportion to speed under caps, then what is left where there is room.
 */
static void spread(struct chunks *c, const int64_t *resident, int64_t tokens, int64_t *q)
{
    int64_t offset = sum_of(c, resident), left = tokens, tile = c->p.tile;
    double speeds = 0;

    for (size_t r = 0; r < c->n; r++)
        speeds += may(c, r, offset) ? c->speed[r] : 0;
    for (size_t r = 0; r < c->n; r++) {
        int64_t room = may(c, r, offset) ? room_of(c, r, resident[r]) / tile : 0;
        int64_t tiles =
            room > 0 ? (int64_t)((double)(tokens / tile) * (c->speed[r] / speeds)) : 0;

        q[r] = (tiles < room ? tiles : room) * tile;
        left -= q[r];
    }
    for (size_t k = c->n; left >= tile && k-- > 0;) { /* fastest first */
        size_t r = (size_t)c->slow_order[k];
        int64_t room = may(c, r, offset) ? room_of(c, r, resident[r]) - q[r] : 0;
        int64_t more = (room < left ? room : left) / tile * tile;

        q[r] += more;
        left -= more;
    }
    for (int any = 0; left > 0 && any < 2; any++) /* over a cap: evaluation says so */
        for (size_t k = c->n; left > 0 && k-- > 0;) {
            size_t r = (size_t)c->slow_order[k];

            if (may(c, r, offset) && (any || room_of(c, r, resident[r]) >= q[r] + left)) {
                q[r] += left;
                left = 0;
            }
        }
}

/* What is not a multiple of the tile goes on one rank. */
static int64_t rest_of(const struct chunks *c, int64_t tokens)
{
    return tokens % c->p.tile;
}

enum { MANY = 8, TARGETS = 6 };

/* Ranks that may have more tokens, of many those that ended first in the step evaluated
 * last; returns their number. */
static size_t targets(const struct chunks *c, int64_t offset, size_t *out)
{
    size_t n = 0;

    for (size_t r = 0; r < c->n; r++) {
        size_t at = n;

        if (!may(c, r, offset))
            continue;
        if (c->n > MANY)
            while (at > 0 && c->fin[r] < c->fin[out[at - 1]])
                at--;
        if (c->n > MANY && at == TARGETS)
            continue;
        n += c->n <= MANY || n < TARGETS;
        for (size_t i = n - 1; i > at; i--)
            out[i] = out[i - 1];
        out[at] = r;
    }
    return n;
}

/* Moves so many tokens from a to b, if a has them. */
static double moved(struct chunks *c, const int64_t *resident, int64_t *q, size_t a,
                    size_t b, int64_t by, double limit_ms)
{
    double ms;

    q[a] -= by;
    q[b] += by;
    ms = chunks_eval_below(c, resident, q, limit_ms);
    q[a] += by;
    q[b] -= by;
    return ms;
}

/* Makes the step faster from q on: tokens leave the rank that finishes last, by halves of
 * what it has down to a tile; a rest may go anywhere. Small groups: any pair of ranks. */
static double improve(struct chunks *c, const int64_t *resident, int64_t *q)
{
    int64_t offset = sum_of(c, resident), tile = c->p.tile;
    double best = chunks_eval(c, resident, q);
    int pairs = c->n <= 4;
    int64_t by = 0;

    for (int rounds = 0; rounds < 400; rounds++) {
        size_t a = (size_t)c->last, to = c->n, from = c->n;
        int64_t moves = 0;
        size_t target[HCP_CHUNKS_MAX_RANKS], n = targets(c, offset, target);

        if (by == 0)
            for (by = tile; 4 * by <= q[a];)
                by *= 2;
        for (size_t x = 0; x < c->n; x++) {
            if (x != a && !(pairs && by <= tile))
                continue;
            for (size_t i = 0; i < n; i++) {
                int64_t sizes[3] = {by, q[x] % tile, q[x]};
                size_t b = target[i];

                if (b == x || q[x] == 0)
                    continue;
                for (int k = 0; k < 3; k++) {
                    double ms;

                    if (sizes[k] <= 0 || sizes[k] > q[x] || (k > 0 && by > tile) ||
                        (k > 0 && sizes[k] == sizes[k - 1]))
                        continue;
                    /* a rest joins no other rest */
                    if (sizes[k] % tile && q[b] % tile)
                        continue;
                    ms = moved(c, resident, q, x, b, sizes[k], best);
                    if (ms < best) {
                        best = ms;
                        from = x;
                        to = b;
                        moves = sizes[k];
                    }
                }
            }
        }
        if (to < c->n) {
            q[from] -= moves;
            q[to] += moves;
        } else if (by <= tile) {
            break;
        } else {
            by /= 2;
        }
        chunks_eval(c, resident, q); /* for c->last */
    }
    return chunks_eval(c, resident, q);
}

/* The rank with which a step with so many tokens more ends first; n: there is no room. */
static size_t where_first(struct chunks *c, const int64_t *resident, int64_t more,
                          int64_t *q)
{
    size_t target[HCP_CHUNKS_MAX_RANKS], n, to = c->n;
    double best = 2 * HUGE_MS;

    if (c->n > MANY)
        chunks_eval(c, resident, q);
    n = targets(c, sum_of(c, resident), target);
    for (size_t i = 0; i < n; i++) {
        size_t r = target[i];
        double ms;

        if (room_of(c, r, resident[r]) < q[r] + more)
            continue;
        q[r] += more;
        ms = chunks_eval_below(c, resident, q, best);
        q[r] -= more;
        if (ms < best) {
            best = ms;
            to = r;
        }
    }
    return to;
}

/* From q, which has another number of tokens, to one that has these. */
static void resize(struct chunks *c, const int64_t *resident, int64_t tokens, int64_t *q)
{
    int64_t had = sum_of(c, q), offset = sum_of(c, resident), left = tokens;
    int64_t tile = c->p.tile;

    for (size_t r = 0; r < c->n; r++) {
        int64_t room = may(c, r, offset) ? room_of(c, r, resident[r]) / tile : 0;
        int64_t tiles =
            had == tokens ? q[r] / tile
            : had > 0 ? (int64_t)((double)(q[r] / tile) * ((double)tokens / (double)had))
                      : 0;

        q[r] = (tiles < room ? tiles : room) * tile;
        if (q[r] > left)
            q[r] = left / tile * tile;
        left -= q[r];
    }
    while (left > 0) {
        int64_t more = left < tile ? left : tile;
        size_t to;

        if (left > 4 * (int64_t)c->n * tile)
            more = left / (2 * (int64_t)c->n) / tile * tile;
        to = where_first(c, resident, more, q);
        if (to == c->n && more > tile)
            to = where_first(c, resident, more = tile, q);
        if (to == c->n) {
            spread(c, resident, tokens, q);
            return;
        }
        q[to] += more;
        left -= more;
    }
}

/* Starts from which a step's split is looked for: what the chunk before had, the ranks'
 * speeds; of few ranks each alone. */
enum { FROM_HINT, FROM_SPEEDS, FROM_ONE };

static int start_from(struct chunks *c, const int64_t *resident, int64_t tokens,
                      const int64_t *hint, size_t which, int64_t *q)
{
    size_t r = which - FROM_ONE;
    int64_t offset = sum_of(c, resident);

    if (which == FROM_HINT) {
        if (sum_of(c, hint) == 0)
            return 0;
        copy(c, q, hint);
        resize(c, resident, tokens, q);
    } else if (which == FROM_SPEEDS) {
        spread(c, resident, tokens, q);
    } else {
        if (!may(c, r, offset))
            return 0;
        memset(q, 0, c->n * sizeof *q);
        q[r] = tokens;
    }
    return 1;
}

double chunks_split_step(struct chunks *c, const int64_t *resident, int64_t tokens,
                         int64_t *q)
{
    double best = 2 * HUGE_MS;
    hcp_layout layout = c->layouts[0];
    size_t starts = c->n <= 4 ? FROM_ONE + c->n : FROM_ONE;

    copy(c, c->start, q);
    for (int k = 0; k < c->n_layouts; k++)
        for (size_t from = FROM_HINT; from < starts; from++) {
            double ms;

            c->p.layout = c->layouts[k];
            /* Of many ranks the speeds only where nothing else is there. */
            if (c->n > 4 && from == FROM_SPEEDS && best < OVER_MS &&
                sum_of(c, c->start) > 0)
                continue;
            if (!start_from(c, resident, tokens, c->start, from, c->trial))
                continue;
            ms = improve(c, resident, c->trial);
            if (ms < best) {
                best = ms;
                layout = c->p.layout;
                copy(c, q, c->trial);
            }
        }
    c->p.layout = layout;
    return best;
}

/* ---- under a budget ---- */

/* The most whole tiles rank r can compute within the budget while the others have what is
 * in q; first guess: what it has itself. */
static int64_t fill_one(struct chunks *c, const int64_t *resident, const int64_t *q,
                        size_t r, int64_t most)
{
    int64_t tile = c->p.tile, low = 0, high = most / tile + 1, step = 1;
    int64_t at = q[r] / tile;

    if (high > room_of(c, r, resident[r]) / tile + 1)
        high = room_of(c, r, resident[r]) / tile + 1;
    at = at < high ? at : high - 1;
    if (at > 0) { /* [low, high): gallop from the guess */
        if (chunks_row_ms(c, resident, q, r, at * tile) <= c->layer_budget_ms)
            for (low = at; low + step < high; low += step, step *= 2)
                if (chunks_row_ms(c, resident, q, r, (low + step) * tile) >
                    c->layer_budget_ms) {
                    high = low + step;
                    break;
                }
        if (low == 0)
            for (high = at; high > step; high -= step, step *= 2)
                if (chunks_row_ms(c, resident, q, r, (high - step) * tile) <=
                    c->layer_budget_ms) {
                    low = high - step;
                    break;
                }
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (chunks_row_ms(c, resident, q, r, middle * tile) <= c->layer_budget_ms)
            low = middle;
        else
            high = middle;
    }
    return low * tile;
}

static double scaled(struct chunks *c, const int64_t *resident, const int64_t *q,
                     int64_t part, int64_t *out)
{
    for (size_t r = 0; r < c->n; r++)
        out[r] = q[r] / c->p.tile * part / 256 * c->p.tile;
    return chunks_eval(c, resident, out);
}

/* A tile more on each of the `count` ranks that end first, if that meets the budget. */
static int add_row(struct chunks *c, const int64_t *resident, int64_t count, int64_t *q)
{
    int64_t offset = sum_of(c, resident), tile = c->p.tile, added = 0;
    double ms;

    chunks_eval(c, resident, q);
    for (size_t r = 0; r < c->n; r++) {
        c->later[r] = -c->fin[r];
        c->by_end[r] = (int32_t)r;
    }
    sort_descending(c->later, c->by_end, c->n);
    copy(c, c->row, q);
    for (size_t k = 0; k < c->n && added < count; k++) {
        size_t r = (size_t)c->by_end[k];

        if (may(c, r, offset) && room_of(c, r, resident[r]) >= q[r] + tile) {
            c->row[r] += tile;
            added++;
        }
    }
    ms = chunks_eval(c, resident, c->row);
    if (added < count || !chunks_meets(c, ms))
        return 0;
    copy(c, q, c->row);
    return 1;
}

/* Tiles to q while one more still meets the budget. */
static void add_tiles(struct chunks *c, const int64_t *resident, int64_t most, int64_t *q)
{
    int64_t sum = sum_of(c, q), tile = c->p.tile;

    for (int64_t count = (int64_t)c->n; c->n > MANY && count > 1; count /= 2)
        while (sum + count * tile <= most && add_row(c, resident, count, q))
            sum += count * tile;
    for (; sum + tile <= most; sum += tile) {
        size_t to = where_first(c, resident, tile, q);

        if (to == c->n)
            return;
        q[to] += tile;
        if (!chunks_meets(c, chunks_eval(c, resident, q))) {
            q[to] -= tile;
            return;
        }
    }
}

/* What all ranks can compute, from q on and into it; returns its sum. */
static int64_t fill_all(struct chunks *c, const int64_t *resident, int64_t most,
                        int64_t *q)
{
    int64_t offset = sum_of(c, resident);

    for (int twice = 0; twice < 2; twice++)
        for (size_t r = 0; r < c->n; r++)
            q[r] = may(c, r, offset) ? fill_one(c, resident, q, r, most) : 0;
    return sum_of(c, q);
}

/* The longest chunk in c->p.layout, a multiple of the tile, into q. */
static double longest(struct chunks *c, const int64_t *resident, int64_t most, int64_t *q)
{
    int64_t tile = c->p.tile;
    double ms;

    fill_all(c, resident, most, q);
    ms = chunks_eval(c, resident, q);
    if (!chunks_meets(c, ms) || sum_of(c, q) > most) { /* waiting, or other caps */
        int64_t low = 0, high = 256;

        while (high - low > 1) {
            int64_t middle = (low + high) / 2;

            ms = scaled(c, resident, q, middle, c->trial);
            if (chunks_meets(c, ms) && sum_of(c, c->trial) <= most)
                low = middle;
            else
                high = middle;
        }
        scaled(c, resident, q, low, c->trial);
        copy(c, q, c->trial);
    }
    add_tiles(c, resident, most, q);
    for (int again = 1; again && sum_of(c, q) > 0;) {
        again = 0;
        ms = improve(c, resident, q);
        if (sum_of(c, q) + tile > most)
            break;
        copy(c, c->trial, q);
        resize(c, resident, sum_of(c, q) + tile, c->trial);
        if (chunks_meets(c, improve(c, resident, c->trial))) {
            copy(c, q, c->trial);
            add_tiles(c, resident, most, q);
            again = 1;
        }
    }
    return chunks_eval(c, resident, q);
}

double chunks_alone_ms(struct chunks *c, const int64_t *resident, size_t rank,
                       int64_t tokens)
{
    double best = 2 * HUGE_MS;
    hcp_layout layout = c->layouts[0];

    memset(c->trial, 0, c->n * sizeof *c->trial);
    c->trial[rank] = tokens;
    for (int k = 0; k < c->n_layouts; k++) {
        double ms;

        c->p.layout = c->layouts[k];
        ms = chunks_eval(c, resident, c->trial);
        if (ms < best) {
            best = ms;
            layout = c->p.layout;
        }
    }
    c->p.layout = layout;
    return best;
}

/* The smallest chunk, where it ends first, into q. */
static double smallest(struct chunks *c, const int64_t *resident, int64_t tokens,
                       int64_t *q)
{
    int64_t offset = sum_of(c, resident);
    double best = 2 * HUGE_MS;
    size_t to = c->n;
    hcp_layout layout = c->layouts[0];

    for (size_t r = 0; r < c->n; r++) {
        double ms =
            may(c, r, offset) ? chunks_alone_ms(c, resident, r, tokens) : 2 * HUGE_MS;

        if (ms < best) {
            best = ms;
            to = r;
            layout = c->p.layout;
        }
    }
    memset(q, 0, c->n * sizeof *q);
    if (to < c->n && chunks_meets(c, best))
        q[to] = tokens;
    c->p.layout = layout;
    return best;
}

double chunks_longest_step(struct chunks *c, const int64_t *resident, int64_t left,
                           int64_t most, int64_t *q)
{
    int64_t tile = c->p.tile, longest_yet = -1;
    double best = 2 * HUGE_MS, ms;
    hcp_layout layout = c->layouts[0];

    if (most < left && most > tile)
        most = most / tile * tile;
    copy(c, c->other, q);
    copy(c, c->found, q);
    c->p.layout = c->layouts[0];
    if (fill_all(c, resident, most, c->found) >= most / tile * tile) { /* perhaps all */
        ms = chunks_split_step(c, resident, most, q);
        if (chunks_meets(c, ms))
            return ms;
    }
    for (int k = 0; k < c->n_layouts; k++) {
        int64_t sum;

        c->p.layout = c->layouts[k];
        copy(c, c->found, c->other);
        ms = longest(c, resident, most / tile * tile, c->found);
        sum = sum_of(c, c->found);
        if (sum > longest_yet || (sum == longest_yet && ms < best)) {
            longest_yet = sum;
            best = ms;
            layout = c->p.layout;
            copy(c, q, c->found);
        }
    }
    c->p.layout = layout;
    return longest_yet > 0 ? best : smallest(c, resident, most < tile ? most : tile, q);
}

double chunks_even_step(struct chunks *c, const int64_t *resident, int64_t tokens,
                        int64_t *q)
{
    int64_t tiles = tokens / c->p.tile, n = (int64_t)c->n;
    double best = 2 * HUGE_MS;
    hcp_layout layout = c->layouts[0];

    for (int64_t r = 0; r < n; r++)
        q[r] = (tiles / n + (r < tiles % n)) * c->p.tile;
    q[tiles % n] += rest_of(c, tokens);
    for (int k = 0; k < c->n_layouts; k++) {
        double ms;

        c->p.layout = c->layouts[k];
        ms = chunks_eval(c, resident, q);
        if (ms < best) {
            best = ms;
            layout = c->p.layout;
        }
    }
    c->p.layout = layout;
    return best;
}
