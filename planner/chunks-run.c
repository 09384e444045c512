/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/chunks.h"

static void copy_list(const struct chunks *c, struct chunk_list *to,
                      const struct chunk_list *from)
{
    to->count = from->count;
    to->total_ms = from->total_ms;
    to->reached = from->reached;
    memcpy(to->q, from->q, from->count * c->n * sizeof *to->q);
    memcpy(to->layout, from->layout, from->count * sizeof *to->layout);
}

void chunks_allow_all(struct chunks *c)
{
    memset(c->allowed, 1, c->n);
    for (size_t r = 0; r < c->n; r++) {
        c->join[r] = 0;
        c->leave[r] = INT64_MAX;
    }
}

/* About what the rest takes at least: where those in play never wait, nor compute
 * anything but area. */
static double rest_ms(const struct chunks *c, int64_t reached)
{
    double all = (double)c->p.seq_len, done = (double)reached, sum = 0;

    for (size_t r = 0; r < c->n; r++)
        sum += c->allowed[r] && c->leave[r] > reached ? c->peak[r] : 0;
    return sum > 0 ? 0.97 * (double)c->p.layers * (all * all - done * done) / 2 / sum : 0;
}

/* All chunks, each as long as it may be, into c->here. Stops where those in c->best have
 * taken less. */
static void run(struct chunks *c)
{
    struct chunk_list *l = &c->here;
    int64_t seq_len = c->p.seq_len, chunk_len = c->question->chunk_len;
    int64_t *resident = c->resident;

    memset(resident, 0, c->n * sizeof *resident);
    l->count = 0;
    l->total_ms = 0;
    l->reached = 0;
    while (l->reached < seq_len && l->count < c->max_chunks &&
           l->total_ms + rest_ms(c, l->reached) < c->best.total_ms) {
        int64_t left = seq_len - l->reached, took = 0;
        int64_t most = chunk_len > 0 && chunk_len < left ? chunk_len : left;
        int64_t *q = l->q + l->count * c->n;
        double ms;

        if (l->count == 0 && c->first_most > 0 && c->first_most < most)
            most = c->first_most;
        for (size_t r = 0; r < c->n; r++) /* the others have had their part there */
            if (c->leave[r] > l->reached && c->leave[r] - l->reached < most)
                most = c->leave[r] - l->reached;
        if (l->count > 0)
            memcpy(q, q - c->n, c->n * sizeof *q);
        else
            memset(q, 0, c->n * sizeof *q);
        ms = c->question->step_budget_ms > 0
                 ? chunks_longest_step(c, resident, left, most, q)
                 : chunks_split_step(c, resident, most, q);
        for (size_t r = 0; r < c->n; r++)
            took += q[r];
        if (!chunks_meets(c, ms) || took == 0)
            break;
        l->layout[l->count++] = c->p.layout;
        l->total_ms += chunks_step_ms(c, ms);
        l->reached += took;
        for (size_t r = 0; r < c->n; r++)
            resident[r] += q[r];
    }
    if (l->reached < seq_len)
        l->total_ms = HUGE_MS;
}

/* Runs, and keeps the better one. Returns whether it was better. */
static int try(struct chunks *c)
{
    run(c);
    if (!(c->here.total_ms < c->best.total_ms ||
          (c->best.total_ms >= HUGE_MS && c->here.reached > c->best.reached)))
        return 0;
    copy_list(c, &c->best, &c->here);
    memcpy(c->best_allowed, c->allowed, c->n);
    memcpy(c->best_join, c->join, c->n * sizeof *c->join);
    memcpy(c->best_leave, c->leave, c->n * sizeof *c->leave);
    return c->best.total_ms < HUGE_MS;
}

/* Is a tile more too much for a rank? */
static int is_full(struct chunks *c, size_t r)
{
    double ms = chunks_alone_ms(c, c->resident, r, c->p.tile);

    return ms >= OVER_MS && ms < HUGE_MS && (size_t)c->last == r;
}

/* Ranks whose caps were met join when so much is resident, in parts of the prompt:
 * a later chunk has more keys, and their speed counts more there. */
static void late_joins(struct chunks *c)
{
    uint8_t full[HCP_CHUNKS_MAX_RANKS];
    int some = 0, best = 0;

    memset(c->resident, 0, c->n * sizeof *c->resident);
    for (size_t k = 0; k < c->best.count; k++)
        for (size_t r = 0; r < c->n; r++)
            c->resident[r] += c->best.q[k * c->n + r];
    for (size_t r = 0; r < c->n; r++) {
        full[r] = c->allowed[r] && is_full(c, r);
        some |= full[r];
    }
    for (int step = 16, at = 0; some && step >= 1; step /= 2, at = best)
        for (int k = step == 16 ? 16 : at - step; k <= (step == 16 ? 48 : at + step);
             k += step == 16 ? 16 : 2 * step) {
            if (k <= 0)
                continue;
            for (size_t r = 0; r < c->n; r++)
                c->join[r] = full[r] ? c->p.seq_len / 64 * k : 0;
            best = try(c) ? k : best;
        }
    chunks_allow_all(c);
}

/* The buffers it needs are left out. */
int64_t chunks_most_held(const struct chunks *c, size_t r)
{
    const hcp_rank *spec = &c->p.ring->ranks[r].spec;
    int64_t most = spec->max_tokens > 0 ? spec->max_tokens : HCP_PLAN_MAX_LEN;
    int64_t bytes = memory_times(c->p.layers, c->p.kv_bytes);

    if (spec->max_bytes > 0) {
        int64_t room = memory_room(&c->p, r) > 0 ? memory_room(&c->p, r) / bytes : 0;

        most = room < most ? room : most;
    }
    return most < c->p.seq_len ? most : c->p.seq_len;
}

/* Where the fastest ranks cannot hold the prompt, the others take the first part of it,
 * as short as may be, and they the rest: with links that are slow, few ranks are better.
 */
static void take_over(struct chunks *c, size_t out)
{
    int64_t room = 0, tile = c->p.tile, first;

    for (size_t k = out; k < c->n; k++)
        room += chunks_most_held(c, (size_t)c->slow_order[k]) / tile * tile;
    if (c->question->step_budget_ms == 0) /* at the end of a chunk */
        tile = c->question->chunk_len;
    first = (c->p.seq_len - room + tile - 1) / tile * tile;
    /* What blocks received take of the room is not known before. */
    for (int again = 0; again < 3 && first > 0 && first < c->p.seq_len; again++) {
        memset(c->allowed, 1, c->n);
        for (size_t k = 0; k < c->n; k++) {
            size_t r = (size_t)c->slow_order[k];

            c->leave[r] = k < out ? first : INT64_MAX;
            c->join[r] = k < out ? 0 : first;
        }
        if (try(c) || c->here.reached >= c->p.seq_len)
            return;
        first += (c->p.seq_len - c->here.reached + tile - 1) / tile * tile;
    }
}

/* What is left over after the longest chunks is a short one, and dear at the end, where
 * it reads all keys: better the first is as short as lets the others be as many. */
static void short_first(struct chunks *c)
{
    int64_t tile = c->p.tile, low = 0, high = 0, all = 0;

    if (c->question->step_budget_ms == 0 || c->best.total_ms >= HUGE_MS)
        return;
    if (c->n > 8 && c->best.count > 8) /* about 1 %, and as long again */
        return;
    memcpy(c->allowed, c->best_allowed, c->n);
    memcpy(c->join, c->best_join, c->n * sizeof *c->join);
    memcpy(c->leave, c->best_leave, c->n * sizeof *c->leave);
    for (size_t r = 0; r < c->n; r++)
        all += c->best.q[r] / tile;
    high = all;
    if (c->best.count <= 4) /* few: any length may be best */
        for (int64_t k = 1; k < 8; k++) {
            c->first_most = all * k / 8 * tile;
            if (c->first_most > 0 && try(c)) {
                high = all * k / 8;
                low = all * (k - 1) / 8;
            }
        }
    while (high - low > 1 && high - low > all / 64) {
        int64_t middle = low + (high - low) / 2;

        c->first_most = middle * tile;
        if (try(c))
            high = middle;
        else
            low = middle;
    }
    c->first_most = 0;
}

void chunks_search(struct chunks *c)
{
    c->best.total_ms = HUGE_MS;
    c->best.count = 0;
    c->best.reached = -1;
    chunks_allow_all(c);
    try(c);
    late_joins(c);
    for (size_t out = 1; out < c->n; out++) {
        if (c->n > 8 && out < c->n - 1 && (out & (out - 1)) != 0)
            continue; /* of many ranks: powers of two, and all but one */
        for (size_t k = 0; k < out; k++)
            c->allowed[c->slow_order[k]] = 0;
        try(c);
        take_over(c, out);
        chunks_allow_all(c);
    }
    short_first(c);
    chunks_allow_all(c);
}

double chunks_even_ms(struct chunks *c, int64_t len)
{
    struct chunk_list *l = &c->here;
    int64_t *resident = c->resident, left = c->p.seq_len;

    memset(resident, 0, c->n * sizeof *resident);
    l->count = 0;
    l->total_ms = 0;
    for (; left > 0; l->count++) {
        int kept = l->count < c->max_chunks; /* more are no plan, but take their time */
        int64_t tokens = len < left ? len : left;
        int64_t *q = kept ? l->q + l->count * c->n : c->other;
        double ms;

        if (len == 0) {
            tokens = 0;
            for (size_t r = 0; r < c->n; r++)
                tokens += c->best.q[l->count * c->n + r];
        }
        ms = chunks_even_step(c, resident, tokens, q);
        if (ms >= OVER_MS || (len > 0 && !chunks_meets(c, ms)))
            return HUGE_MS;
        if (kept)
            l->layout[l->count] = c->p.layout;
        l->total_ms += chunks_step_ms(c, ms);
        left -= tokens;
        for (size_t r = 0; r < c->n; r++)
            resident[r] += q[r];
    }
    return l->total_ms;
}

void chunks_even(struct chunks *c, int64_t len)
{
    if (chunks_even_ms(c, len) < c->best.total_ms && c->here.count <= c->max_chunks) {
        struct chunk_list even = c->here;

        even.reached = c->p.seq_len;
        c->here = c->best;
        c->best = even;
    }
}

int64_t chunks_even_len(struct chunks *c, double *ms)
{
    int64_t tile = c->p.tile, low = 0, most = c->question->chunk_len, high;

    *ms = HUGE_MS;
    if (c->question->step_budget_ms == 0) {
        *ms = chunks_even_ms(c, most);
        return *ms < HUGE_MS ? most : 0;
    }
    most = most > 0 && most < c->p.seq_len ? most : c->p.seq_len + tile - 1;
    for (high = most / tile + 1; high - low > 1;) {
        int64_t middle = low + (high - low) / 2;
        double here = chunks_even_ms(c, middle * tile);

        if (here < HUGE_MS) {
            low = middle;
            *ms = here;
        } else {
            high = middle;
        }
    }
    return low * tile;
}
