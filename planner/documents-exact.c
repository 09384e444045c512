/* SPDX-License-Identifier: Apache-2.0
 *
 * All packings of few documents on few ranks: every set of ranks in play, every document
 * whole on each or cut at every tile over every run of them, as long as no rank alone
 * takes longer than the best so far.
 */
#include <string.h>
#include "planner/documents.h"

enum { EXACT_RANKS = 6, EXACT_DOCUMENTS = 10, EXACT_PLACES = 50000 };

struct looking {
    struct docs *d;
    struct packing *best, *at;
    int cuts;
    long nodes; /* places that may yet be looked at */
    double busy[EXACT_RANKS];
    int64_t tokens[EXACT_RANKS], received[EXACT_RANKS];
};

int docs_few(const struct docs *d, int with_cuts)
{
    double ways = 1;

    if (d->n > EXACT_RANKS || d->count > EXACT_DOCUMENTS)
        return 0;
    for (size_t i = 0; i < d->count; i++) {
        double cuts = with_cuts ? (double)((d->len[i] - 1) / d->p.tile) : 0;

        ways *= (double)d->n + (d->n > 1 ? (double)(d->n - 1) * cuts : 0) +
                (d->n > 2 ? (double)(d->n - 2) * cuts * cuts / 2 : 0);
        if (ways > 1e7)
            return 0;
    }
    return 1;
}

static void place_item(struct looking *l, size_t item);

/* Work of a rank is only ever added to: beyond the best there is nothing to find. */
static int add(struct looking *l, int32_t i, double ms, int64_t tokens, int64_t received)
{
    size_t r = (size_t)l->at->rank[i];

    l->busy[i] += ms + (l->tokens[i] == 0 ? docs_fixed(l->d, r) : 0);
    l->tokens[i] += tokens;
    l->received[i] += received;
    return l->busy[i] < l->best->ms && docs_fits(l->d, r, l->tokens[i], l->received[i]);
}

static void take_back(struct looking *l, int32_t i, const struct looking *was)
{
    l->busy[i] = was->busy[i];
    l->tokens[i] = was->tokens[i];
    l->received[i] = was->received[i];
}

/* The rest of an item, from place i on, of which `from` tokens lie before, in n parts. */
static void place_rest(struct looking *l, size_t item, int32_t i, int64_t from, int32_t n)
{
    struct docs *d = l->d;
    struct looking was = *l;
    struct packing *at = l->at;
    size_t r = (size_t)at->rank[i];
    int64_t all = d->len[item], part[EXACT_RANKS];

    for (int32_t k = 0; k < n; k++)
        part[k] = at->at[i - n + k] - (k > 0 ? at->at[i - n + k - 1] : 0);
    for (int last = 1; last >= 0; last--) {
        int64_t end = last ? all : from + d->p.tile;

        if (last ? n == 0 : i + 1 >= at->m || at->cut[i] >= 0)
            continue;
        for (; (last ? end == all : end < all) && l->nodes > 0; end += d->p.tile) {
            double ms =
                docs_own_ms(d, r, end - from) + docs_slope(d, r) * (double)(end - from);
            int ok;

            l->nodes--;
            for (int32_t k = 0; k < n; k++)
                ms += docs_call_ms(d, r, end - from, part[k]);
            ok = add(l, i, ms, end - from, from);
            if (ok && last)
                place_item(l, item + 1);
            if (ok && !last) {
                at->cut[i] = (int32_t)item;
                at->at[i] = end;
                place_rest(l, item, i + 1, end, n + 1);
                at->cut[i] = -1;
            }
            take_back(l, i, &was);
            if (!ok && !last)
                break; /* longer parts take longer, and more memory */
            if (last)
                break;
        }
    }
}

static void place_item(struct looking *l, size_t item)
{
    struct docs *d = l->d;
    struct packing *at = l->at;
    int32_t first = 0;

    if (l->nodes <= 0)
        return;
    if (item == d->count) {
        if (docs_eval(d, at) < l->best->ms)
            docs_copy(d, l->best, at);
        return;
    }
    /* Of documents of one length the later one begins no earlier. */
    if (item > 0 && d->class_of[item] == d->class_of[item - 1])
        first = at->place[item - 1];
    for (int32_t i = first; i < at->m; i++) {
        struct looking was = *l;

        l->nodes--;
        at->place[item] = i;
        if (add(l, i, docs_work(d, docs_kind(d, at, i), item), d->len[item], 0))
            place_item(l, item + 1);
        take_back(l, i, &was);
        if (l->cuts)
            place_rest(l, item, i, 0, 0);
    }
}

int docs_exact(struct docs *d, int cuts, struct packing *s)
{
    struct looking l = {
        .d = d, .best = s, .at = &d->trial, .cuts = cuts, .nodes = EXACT_PLACES};

    for (unsigned set = 1; set < 1u << d->n; set++) {
        docs_clear(d, &d->trial);
        d->trial.m = 0;
        for (size_t r = 0; r < d->n; r++)
            if (set >> r & 1)
                d->trial.rank[d->trial.m++] = (int32_t)r;
        memset(l.busy, 0, sizeof l.busy);
        memset(l.tokens, 0, sizeof l.tokens);
        memset(l.received, 0, sizeof l.received);
        place_item(&l, 0);
    }
    return l.nodes > 0;
}
