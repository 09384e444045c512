/* SPDX-License-Identifier: Apache-2.0
 *
 * Packings of any number of documents: longest first to whoever is done first, even
 * tokens, and moves that help.
 */
#include <string.h>
#include "planner/documents.h"

enum {
    MOST_MOVES = 400, /* of one improvement */
    MOST_SWAPS = 512, /* documents up to which pairs are looked at */
    ROUNDS = 12       /* of moves, then of joining parts */
};

/* ---- whole documents ---- */

static double fixed_at(const struct docs *d, const struct packing *s, int32_t i)
{
    return d->load.tokens[i] > 0 ? 0 : docs_fixed(d, (size_t)s->rank[i]);
}

void docs_whole(struct docs *d, struct packing *s)
{
    double *busy = d->load.busy;

    docs_clear(d, s);
    for (int32_t i = 0; i < s->m; i++) {
        busy[i] = 0;
        d->load.tokens[i] = 0;
    }
    for (size_t item = 0; item < d->count; item++) {
        double best_ms = HUGE_MS;
        int32_t best = -1;

        for (int32_t i = 0; i < s->m; i++) {
            double ms =
                busy[i] + docs_work(d, docs_kind(d, s, i), item) + fixed_at(d, s, i);

            if (ms < best_ms &&
                docs_fits(d, (size_t)s->rank[i], d->load.tokens[i] + d->len[item], 0)) {
                best = i;
                best_ms = ms;
            }
        }
        if (best < 0) {
            s->ms = HUGE_MS;
            return;
        }
        busy[best] = best_ms;
        d->load.tokens[best] += d->len[item];
        s->place[item] = best;
    }
    docs_improve(d, s);
}

/* Where the i-th of n equal shares ends, moved to the next tile of the document that is
 * there: of that document, which begins at `at`. */
static int64_t even_end(const struct docs *d, int64_t i, int64_t at, int64_t len)
{
    int64_t n = (int64_t)d->n, sum = d->p.seq_len;
    int64_t end = sum / n * i + sum % n * i / n - at;
    int64_t tiled = (end + d->p.tile / 2) / d->p.tile * d->p.tile;

    return at + (tiled < len ? tiled : len);
}

void docs_even(struct docs *d, const int64_t *lengths, struct packing *s)
{
    int64_t sum = d->p.seq_len, n = (int64_t)d->n, at = 0, *end = d->part_len;
    int64_t share = 1;
    int32_t i = 0;

    docs_clear(d, s);
    for (size_t doc = 0; doc < d->count; at += lengths[doc++])
        for (; share < n && sum / n * share + sum % n * share / n < at + lengths[doc];
             share++)
            end[share - 1] = even_end(d, share, at, lengths[doc]);
    end[n - 1] = sum;
    s->m = 0; /* ranks that nothing is left of are not in play */
    for (int64_t r = 0; r < n; r++)
        if (end[r] > (r > 0 ? end[r - 1] : 0)) {
            s->rank[s->m] = (int32_t)r;
            end[s->m++] = end[r];
        }
    for (size_t item = 0; item < d->count; item++)
        s->place[d->order[item]] = (int32_t)item; /* for now: the item of a document */
    at = 0;
    for (size_t doc = 0; doc < d->count; at += lengths[doc++]) {
        int32_t item = s->place[doc];

        while (end[i] <= at)
            i++;
        d->option[item] = i;
        for (; end[i] < at + lengths[doc]; i++) {
            s->cut[i] = item;
            s->at[i] = end[i] - at;
        }
    }
    memcpy(s->place, d->option, d->count * sizeof *s->place);
    for (i = 0; i + 1 < s->m; i++)
        if (s->cut[i] >= 0 && !d->p.causal)
            return;
    docs_eval(d, s);
}

/* ---- moves ---- */

static int32_t latest(const struct docs *d, const struct packing *s, int *how_many)
{
    int32_t c = 0;

    *how_many = 0;
    for (int32_t i = 1; i < s->m; i++)
        if (d->load.fin[i] > d->load.fin[c])
            c = i;
    for (int32_t i = 0; i < s->m; i++)
        *how_many += d->load.fin[i] == d->load.fin[c];
    return c;
}

/* Takes a whole document from one place to another, in the load. */
static void shift(struct docs *d, struct packing *s, size_t item, int32_t to)
{
    struct packing_load *l = &d->load;
    int32_t from = s->place[item];
    size_t class = (size_t)d->class_of[item], n = (size_t)d->n_classes;

    l->whole[from] -= d->whole_ms[docs_kind(d, s, from) * n + class];
    l->whole[to] += d->whole_ms[docs_kind(d, s, to) * n + class];
    l->tokens[from] -= d->len[item];
    l->tokens[to] += d->len[item];
    s->place[item] = to;
}

/* The move of a whole document off the latest place c, or its exchange for another, after
 * which the later of the two places is earliest; -1: none is earlier than now. */
static double best_move(const struct docs *d, const struct packing *s, int32_t c,
                        int32_t *mine, int32_t *to, int32_t *theirs)
{
    const struct packing_load *l = &d->load;
    double best = l->fin[c];
    size_t kind = docs_kind(d, s, c);

    *mine = -1;
    for (size_t a = 0; a < d->count; a++) {
        double off;

        if (s->place[a] != c || docs_is_cut(s, a))
            continue;
        if (a > 0 && d->class_of[a] == d->class_of[a - 1] && s->place[a - 1] == c &&
            !docs_is_cut(s, a - 1))
            continue; /* one of a length will do */
        off = l->fin[c] - docs_work(d, kind, a);
        for (int32_t i = 0; i < s->m; i++) {
            double on;

            if (i == c)
                continue;
            on = l->fin[i] + docs_work(d, docs_kind(d, s, i), a) + fixed_at(d, s, i);
            on = on > off ? on : off;
            if (on < best) {
                best = on;
                *mine = (int32_t)a;
                *to = i;
                *theirs = -1;
            }
        }
        for (size_t b = a + 1; d->count <= MOST_SWAPS && b < d->count; b++) {
            int32_t i = s->place[b];
            double on, back;

            if (i == c || d->class_of[b] == d->class_of[a] || docs_is_cut(s, b))
                continue;
            on = l->fin[i] + docs_work(d, docs_kind(d, s, i), a) -
                 docs_work(d, docs_kind(d, s, i), b);
            back = off + docs_work(d, kind, b);
            on = on > back ? on : back;
            if (on < best) {
                best = on;
                *mine = (int32_t)a;
                *to = i;
                *theirs = (int32_t)b;
            }
        }
    }
    return best;
}

static int improve_whole(struct docs *d, struct packing *s)
{
    int many, now_many;
    int32_t c = latest(d, s, &many), mine, to = 0, theirs = -1;
    double ms;

    best_move(d, s, c, &mine, &to, &theirs);
    if (mine < 0)
        return 0;
    shift(d, s, (size_t)mine, to);
    if (theirs >= 0)
        shift(d, s, (size_t)theirs, c);
    ms = docs_times(d, s);
    if (ms <= s->ms) {
        latest(d, s, &now_many);
        if (ms < s->ms || now_many < many) {
            s->ms = ms;
            return 1;
        }
    }
    shift(d, s, (size_t)mine, c);
    if (theirs >= 0)
        shift(d, s, (size_t)theirs, to);
    docs_times(d, s);
    return 0;
}

/* Tokens on one side of the cut after place i: of the part before it, or after it. */
static int64_t beside_cut(const struct docs *d, const struct packing *s, int32_t i,
                          int after)
{
    int32_t item = s->cut[i];

    if (after)
        return (i + 2 < s->m && s->cut[i + 1] == item ? s->at[i + 1] : d->len[item]) -
               s->at[i];
    return s->at[i] - (i > 0 && s->cut[i - 1] == item ? s->at[i - 1] : 0);
}

/* Tries s->at[] of the cuts beside the latest place, by steps of tiles, against s->ms. */
static int improve_cuts(struct docs *d, struct packing *s)
{
    static const int64_t steps[] = {16, 4, 1};
    double ms = s->ms;
    int many;
    int32_t c = latest(d, s, &many);

    for (int32_t i = c - 1; i <= c; i++) {
        if (i < 0 || i + 1 >= s->m || s->cut[i] < 0)
            continue;
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            int64_t was = s->at[i], step = steps[k] * d->p.tile;
            int64_t to = was + (i < c ? step : -step);

            if (beside_cut(d, s, i, i < c) <= step)
                continue; /* nothing would be left of it */
            s->at[i] = to;
            if (docs_eval(d, s) < ms)
                return 1;
            s->at[i] = was;
            s->ms = ms;
        }
    }
    docs_eval(d, s);
    return 0;
}

int docs_cuts(const struct packing *s)
{
    int cuts = 0;

    for (int32_t i = 0; i + 1 < s->m; i++)
        cuts += s->cut[i] >= 0;
    return cuts;
}

/* Does without the cut after place i, where a first or a last part ends there, if that
 * takes no longer than limit_ms: the part goes to the other side of the cut, or a
 * document of two parts to wherever there is most time left. */
static int join(struct docs *d, struct packing *s, int32_t i, double limit_ms)
{
    int32_t item = s->cut[i], place = s->place[item], early = 0;
    int first = place == i, last = i + 2 >= s->m || s->cut[i + 1] != item;
    double ms = s->ms;

    s->cut[i] = -1;
    if (last && docs_eval(d, s) <= limit_ms)
        return 1;
    if (first) {
        s->place[item] = i + 1;
        if (docs_eval(d, s) <= limit_ms)
            return 1;
    }
    if (first && last) {
        for (int32_t k = 1; k < s->m; k++)
            if (d->load.fin[k] < d->load.fin[early])
                early = k;
        s->place[item] = early;
        if (docs_eval(d, s) <= limit_ms)
            return 1;
    }
    s->place[item] = place;
    s->cut[i] = item;
    s->ms = ms;
    return 0;
}

static void join_parts(struct docs *d, struct packing *s, double limit_ms)
{
    for (int32_t i = 0; i + 1 < s->m; i++)
        if (s->cut[i] >= 0)
            join(d, s, i, limit_ms);
    docs_eval(d, s);
}

void docs_improve(struct docs *d, struct packing *s)
{
    double before;

    if (docs_eval(d, s) >= HUGE_MS)
        return;
    for (int round = 0; round < ROUNDS; round++) {
        int cuts = docs_cuts(s);

        before = s->ms;
        for (int k = 0; k < MOST_MOVES && s->ms > d->enough_ms; k++)
            if (!improve_whole(d, s) && !(cuts && improve_cuts(d, s)))
                break;
        if (cuts)
            join_parts(d, s, s->ms);
        docs_eval(d, s); /* sums as a plan has them, not as moves left them */
        if (!cuts || !(s->ms < before))
            break;
    }
}

void docs_fewer_cuts(struct docs *d, struct packing *s)
{
    double limit_ms = s->ms * (1 + d->cut_gain);

    if (d->few.ms <= limit_ms && docs_cuts(&d->few) < docs_cuts(s))
        docs_copy(d, s, &d->few);
    if (s->ms >= HUGE_MS)
        return;
    join_parts(d, s, limit_ms);
    docs_improve(d, s);
}
