/* SPDX-License-Identifier: Apache-2.0
 *
 * Packings with cuts: rank after rank filled up to a common time, with what is left over
 * of a document going on with the next, for the shortest time in which that works.
 */
#include <string.h>
#include "planner/documents.h"

enum {
    TIMES = 14, /* that ranks are filled up to, between bound and best */
    LONGER_TIMES = 6,
    MOST_LONGER = 512 /* documents up to which longer times are looked at, too */
};

static int32_t next_left(int32_t *next, int32_t item)
{
    int32_t root = item;

    while (next[root] != root)
        root = next[root];
    while (next[item] != root) {
        int32_t up = next[item];

        next[item] = root;
        item = up;
    }
    return root;
}

/* The first item whose work on a kind of rank is at most ms, and that has at most so many
 * tokens: both fall from item to item. */
static int32_t first_within(const struct docs *d, size_t kind, double ms, int64_t tokens)
{
    int32_t lo = 0, hi = (int32_t)d->count;

    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;

        if (docs_work(d, kind, (size_t)mid) > ms || d->len[mid] > tokens)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct filling {
    double ms;    /* up to here */
    double gap;   /* less than this part of it is left idle rather than cut for */
    int shortest; /* cut the shortest document that is left, not the longest */
};

/* Attention and linear work of a part of len tokens after n others, and into *end when it
 * could be done at the earliest for the blocks that come: d->load.arrive says when. */
static double part_work(struct docs *d, size_t r, int64_t len, int32_t n, double *end)
{
    double ms = docs_own_ms(d, r, len) + docs_slope(d, r) * (double)len, rest = 0;

    *end = 0;
    if (n == 0)
        return ms;
    hcp_model_calls_ms(problem_model(&d->p, r), len, n, d->part_len, !d->p.kernel_only,
                       d->part_ms);
    for (int32_t i = 0; i < n; i++) { /* the farthest first: it is computed last */
        double from = d->load.arrive[n - 1 - i] + (rest += d->part_ms[i]);

        *end = from > *end ? from : *end;
    }
    *end += layer_after_ms(&d->p, r, len);
    return ms + rest;
}

/* When the blocks of the n parts so far are at a place, the one before it having sent
 * from `from` on and having had them at d->load.came. */
static void arrivals(struct docs *d, int32_t n, double from)
{
    struct packing_load *l = &d->load;
    double free_at = from;

    for (int32_t h = 1; h <= n; h++) {
        double there = h == 1 ? from : l->came[h - 2];

        free_at =
            (there > free_at ? there : free_at) + cost_send(&d->p, d->part_len[n - h]);
        l->arrive[h - 1] = free_at;
    }
}

struct filled {
    double ms;
    int64_t tokens, received;
};

/* Can a rank take a part beside what it has by the time f->ms? *work is then its work. */
static int part_fits(struct docs *d, size_t r, int64_t len, int32_t n,
                     const struct filling *f, const struct filled *at, double *work)
{
    double end, fixed = at->tokens > 0 ? 0 : docs_fixed(d, r);

    if (!docs_fits(d, r, at->tokens + len, at->received))
        return 0;
    *work = part_work(d, r, len, n, &end) + fixed;
    return at->ms + *work <= f->ms && end <= f->ms;
}

/* The longest part of whole tiles, shorter than most, for which that is so. */
static int64_t longest_part(struct docs *d, size_t r, int64_t most, int32_t n,
                            const struct filling *f, const struct filled *at)
{
    int64_t lo = 0, hi = (most - 1) / d->p.tile + 1; /* in tiles; hi is too many */
    double work;

    while (lo + 1 < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (part_fits(d, r, mid * d->p.tile, n, f, at, &work))
            lo = mid;
        else
            hi = mid;
    }
    return lo * d->p.tile;
}

/* Tokens that a rank may yet hold. */
static int64_t room_left(const struct docs *d, size_t r, int64_t tokens, int64_t received)
{
    int64_t lo = 0, hi = d->p.seq_len + 1;

    if (docs_fits(d, r, tokens + d->p.seq_len, received))
        return d->p.seq_len;
    while (lo + 1 < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (docs_fits(d, r, tokens + mid, received))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Whole documents into place i while there is time. */
static void fill_whole(struct docs *d, struct packing *s, int32_t i,
                       const struct filling *f, struct filled *at)
{
    size_t kind = docs_kind(d, s, i), r = (size_t)s->rank[i];
    int64_t room = room_left(d, r, at->tokens, at->received);

    for (;;) {
        double fixed = at->tokens > 0 ? 0 : docs_fixed(d, r);
        int32_t item =
            next_left(d->next, first_within(d, kind, f->ms - at->ms - fixed, room));

        if ((size_t)item == d->count ||
            docs_work(d, kind, (size_t)item) > f->ms - at->ms - fixed)
            return;
        s->place[item] = i;
        d->next[item] = item + 1;
        at->ms += docs_work(d, kind, (size_t)item) + fixed;
        at->tokens += d->len[item];
        room -= d->len[item];
    }
}

/* The shortest item that is left. */
static int32_t last_left(const struct docs *d)
{
    int32_t item = (int32_t)d->count - 1;

    while (item >= 0 && d->next[item] != item)
        item--;
    return item;
}

/* Fills the places of s->rank[]; 0: not all of it could be placed. */
static int fill(struct docs *d, struct packing *s, const struct filling *f)
{
    int32_t carry = -1, n = 0; /* the document under way, and its parts */
    int64_t done = 0;          /* its tokens so far */
    double start = 0;          /* when the place before sends */

    for (size_t item = 0; item <= d->count; item++)
        d->next[item] = (int32_t)item;
    for (int32_t i = 0; i < s->m; i++) {
        size_t r = (size_t)s->rank[i];
        struct filled at = {0, 0, done};
        int64_t part;
        double work = 0, *swap = d->load.came;

        s->cut[i] = -1;
        s->at[i] = 0;
        if (carry >= 0) {
            int64_t rest = d->len[carry] - done;

            arrivals(d, n, start);
            if (part_fits(d, r, rest, n, f, &at, &work)) {
                part = rest;
            } else {
                part = longest_part(d, r, rest, n, f, &at);
                if (part == 0 || i + 1 == s->m)
                    return 0;
                part_fits(d, r, part, n, f, &at, &work);
                s->cut[i] = carry;
                s->at[i] = done + part;
            }
            at.ms += work;
            at.tokens = part;
            d->part_len[n++] = part;
            done += part;
            d->load.came = d->load.arrive;
            d->load.arrive = swap;
        }
        if (s->cut[i] < 0) {
            carry = -1;
            n = 0;
            done = 0;
        }
        fill_whole(d, s, i, f, &at);
        if (carry < 0 && i + 1 < s->m && f->ms - at.ms > f->gap * f->ms) {
            int32_t item = f->shortest ? last_left(d) : next_left(d->next, 0);

            part = item < 0 || (size_t)item == d->count
                       ? 0
                       : longest_part(d, r, d->len[item], 0, f, &at);
            if (part > 0) {
                carry = item;
                d->next[item] = item + 1;
                s->place[item] = i;
                s->cut[i] = item;
                s->at[i] = done = part;
                d->part_len[n++] = part;
                at.tokens += part;
            }
        }
        start = layer_before_ms(&d->p, r, at.tokens);
    }
    return carry < 0 && (size_t)next_left(d->next, 0) == d->count;
}

/* Keeps the faster of d->here and s, and of those that cut_gain allows beside it the one
 * with fewest cuts in d->few. */
static void keep(struct docs *d, struct packing *s)
{
    int cuts, fewest;

    if (d->here.ms < s->ms)
        docs_copy(d, s, &d->here);
    if (d->few.ms > s->ms * (1 + d->cut_gain))
        docs_copy(d, &d->few, s);
    cuts = docs_cuts(&d->here);
    fewest = docs_cuts(&d->few);
    if (d->here.ms <= s->ms * (1 + d->cut_gain) &&
        (cuts < fewest || (cuts == fewest && d->here.ms < d->few.ms)))
        docs_copy(d, &d->few, &d->here);
}

/* One way to fill the ranks in d->trial.rank[], at times from low to high. */
static void fill_times(struct docs *d, struct filling f, double low, double high,
                       struct packing *s)
{
    static const double longer[LONGER_TIMES] = {1.02, 1.08, 1.2, 1.45, 1.9, 2.7};
    struct packing *t = &d->trial;

    d->here.ms = HUGE_MS;
    if (high >= HUGE_MS) { /* caps, or lengths: some time in which it works at all */
        for (f.ms = low; f.ms < 1e6 * low && !fill(d, t, &f); f.ms *= 2)
            low = f.ms;
        high = 2 * low;
    }
    for (int k = 0; k < TIMES && high - low > 1e-4 * low; k++) {
        f.ms = low + (high - low) / 2;
        if (!fill(d, t, &f)) {
            low = f.ms;
            continue;
        }
        high = f.ms;
        if (docs_eval(d, t) < d->here.ms)
            docs_copy(d, &d->here, t);
    }
    /* Fewer ranks and cuts: waiting and calls are not in the time that ranks fill. */
    for (int k = 0; k < LONGER_TIMES && d->count <= MOST_LONGER; k++) {
        f.ms = low * longer[k];
        if (fill(d, t, &f) && docs_eval(d, t) < d->here.ms)
            docs_copy(d, &d->here, t);
    }
    if (d->here.ms >= HUGE_MS)
        return;
    docs_improve(d, &d->here);
    keep(d, s);
}

/* The ranks of at least a speed, in ring order, into d->trial. */
static void in_play(struct docs *d, double speed)
{
    docs_clear(d, &d->trial);
    d->trial.m = 0;
    for (size_t r = 0; r < d->n; r++)
        if (d->rank_value[r] >= speed)
            d->trial.rank[d->trial.m++] = (int32_t)r;
}

void docs_cut(struct docs *d, double ideal_ms, struct packing *s)
{
    static const struct filling ways[] = {
        {0, 0, 0}, {0, 0.01, 0}, {0, 0, 1}, {0, 0.04, 0}};
    double last = -1;
    int sets = 0;

    docs_copy(d, &d->few, s);
    for (size_t r = 0; r < d->n; r++) {
        d->rank_value[r] = 1 / d->pack_ms[d->kind_of[r]];
        d->rank_order[r] = (int32_t)r;
    }
    sort_descending(d->rank_value, d->rank_order, d->n);
    /* All ranks, then without the slowest kinds, one after the other. */
    for (size_t i = d->n; i-- > 0 && sets < 4;) {
        double speed = d->rank_value[d->rank_order[i]];

        if (speed == last)
            continue;
        last = speed;
        sets++;
        for (size_t k = 0; k < sizeof ways / sizeof *ways && s->ms > d->enough_ms; k++) {
            in_play(d, speed);
            fill_times(d, ways[k], 0.97 * ideal_ms, s->ms, s);
        }
    }
    docs_improve(d, s); /* also where even tokens are the best */
}
