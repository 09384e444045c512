/* SPDX-License-Identifier: Apache-2.0
 *
 * What a packing costs: the recurrence of a ring whose blocks go one way, after the work
 * that needs nobody else's keys and values.
 */
#include <string.h>
#include "planner/documents.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double known(const struct docs *d, double ms, uint8_t source)
{
    return source == HCP_FROM_EXTRAPOLATED && !d->p.extrapolate ? HUGE_MS : ms;
}

double docs_own_ms(const struct docs *d, size_t rank, int64_t len)
{
    uint8_t source = 0;
    double ms = cost_own(&d->p, problem_model(&d->p, rank), len, &source);

    return known(d, ms, source);
}

double docs_call_ms(const struct docs *d, size_t rank, int64_t q_len, int64_t kv_len)
{
    uint8_t source = 0;
    double ms = cost_call(&d->p, problem_model(&d->p, rank), q_len, kv_len, &source);

    return known(d, ms, source);
}

double docs_slope(const struct docs *d, size_t rank)
{
    const hcp_rank *spec = &d->p.ring->ranks[rank].spec;

    return (spec->linear_before_us + spec->linear_after_us) / 1e3 *
           d->p.ring->ranks[rank].scale;
}

double docs_fixed(const struct docs *d, size_t rank)
{
    const hcp_rank *spec = &d->p.ring->ranks[rank].spec;

    return (spec->linear_before_fixed_us + spec->linear_after_fixed_us) / 1e3 *
           d->p.ring->ranks[rank].scale;
}

int docs_fits(const struct docs *d, size_t rank, int64_t tokens, int64_t received)
{
    const struct problem *p = &d->p;
    int64_t cap = p->ring->ranks[rank].spec.max_tokens;

    if (cap > 0 && tokens > cap)
        return 0;
    return !p->memory ||
           memory_plus(memory_times(tokens, memory_unit(p, tokens, 0)),
                       memory_times(received, p->kv_bytes)) <= memory_room(p, rank);
}

void docs_copy(const struct docs *d, struct packing *to, const struct packing *from)
{
    to->m = from->m;
    to->ms = from->ms;
    memcpy(to->rank, from->rank, (size_t)from->m * sizeof *to->rank);
    memcpy(to->cut, from->cut, (size_t)from->m * sizeof *to->cut);
    memcpy(to->at, from->at, (size_t)from->m * sizeof *to->at);
    memcpy(to->place, from->place, d->count * sizeof *to->place);
}

void docs_clear(const struct docs *d, struct packing *s)
{
    s->m = (int32_t)d->n;
    s->ms = HUGE_MS;
    for (int32_t i = 0; i < s->m; i++) {
        s->rank[i] = i;
        s->cut[i] = -1;
        s->at[i] = 0;
    }
}

int64_t docs_part(const struct docs *d, const struct packing *s, int32_t place,
                  int64_t *from)
{
    int32_t item = s->cut[place];
    int goes_on = item >= 0 && place + 1 < s->m;

    *from = 0;
    if (place > 0 && s->cut[place - 1] >= 0) {
        item = s->cut[place - 1];
        *from = s->at[place - 1];
        goes_on = goes_on && s->cut[place] == item;
    } else if (!goes_on) {
        return 0;
    }
    return (goes_on ? s->at[place] : d->len[item]) - *from;
}

/* Parts: lengths, tokens, what comes in. */
static void lay_out(const struct docs *d, const struct packing *s,
                    const struct packing_load *l)
{
    for (int32_t i = 0; i < s->m; i++) {
        int32_t in = i > 0 ? s->cut[i - 1] : -1, out = i + 1 < s->m ? s->cut[i] : -1;
        int64_t from;

        l->in_len[i] = l->out_len[i] = l->received[i] = 0;
        l->hops[i] = 0;
        if (in >= 0) {
            l->in_len[i] = docs_part(d, s, i, &from);
            l->received[i] = from;
            l->hops[i] = 1 + (i > 1 && s->cut[i - 2] == in ? l->hops[i - 1] : 0);
        }
        if (out >= 0 && out != in)
            l->out_len[i] = s->at[i];
        l->tokens[i] = l->in_len[i] + l->out_len[i];
        l->whole[i] = 0;
    }
    for (size_t item = 0; item < d->count; item++) {
        int32_t i = s->place[item];

        if (docs_is_cut(s, item))
            continue;
        l->tokens[i] += d->len[item];
        l->whole[i] += d->whole_ms[docs_kind(d, s, i) * (size_t)d->n_classes +
                                   (size_t)d->class_of[item]];
    }
}

/* The length of the block h places before place i in the ring that i is in. */
static int64_t block_len(const struct packing_load *l, int32_t i, int32_t h)
{
    return h == l->hops[i] ? l->out_len[i - h] : l->in_len[i - h];
}

static void ask_calls(const struct docs *d, const struct packing *s,
                      const struct packing_load *l)
{
    for (int32_t i = 0; i < s->m; i++) {
        size_t r = (size_t)s->rank[i];
        int32_t out = i + 1 < s->m ? s->cut[i] : -1;
        int64_t shared = l->out_len[i];

        l->own[i] = 0;
        if (l->in_len[i] > 0) {
            l->own[i] += docs_own_ms(d, r, l->in_len[i]);
            if (out >= 0 && out == s->cut[i - 1])
                shared = l->in_len[i];
        }
        if (l->out_len[i] > 0)
            l->own[i] += docs_own_ms(d, r, l->out_len[i]);
        l->sends[i] = cost_send(&d->p, shared);
        for (int32_t h = 1; h <= l->hops[i]; h++)
            l->calls[(size_t)i * d->n + (size_t)h - 1] =
                docs_call_ms(d, r, l->in_len[i], block_len(l, i, h));
    }
}

/* When the blocks are at place i, into arrive: `before` is when they were at the one
 * before, as far as that has hops. */
static void transfer(const struct packing_load *l, int32_t i, double from, double to,
                     const double *before, double *arrive)
{
    double free_at = larger(from, to);

    for (int32_t h = 1; h <= l->hops[i]; h++) {
        double there = h == 1 ? from : before[h - 2];

        free_at = larger(there, free_at) + l->sends[i - h];
        arrive[h - 1] = free_at;
    }
}

double docs_times(struct docs *d, const struct packing *s)
{
    struct packing_load *l = &d->load;
    double ms = 0, start = 0, start_before = 0;

    for (int32_t i = 0; i < s->m; i++) {
        size_t r = (size_t)s->rank[i];
        double now, local = l->whole[i] + l->own[i], busy, *swap;

        l->fin[i] = l->busy[i] = 0;
        start_before = start;
        start = layer_before_ms(&d->p, r, l->tokens[i]);
        if (l->tokens[i] == 0)
            continue;
        if (!docs_fits(d, r, l->tokens[i], l->received[i]))
            return HUGE_MS;
        transfer(l, i, start_before, start, l->came, l->arrive);
        now = start + local;
        busy = local;
        for (int32_t h = 1; h <= l->hops[i]; h++) {
            double call = l->calls[(size_t)i * d->n + (size_t)h - 1];

            now = larger(now, l->arrive[h - 1]) + call;
            busy += call;
        }
        l->fin[i] = now + layer_after_ms(&d->p, r, l->tokens[i]);
        l->busy[i] = busy + layer_ms(&d->p, r, l->tokens[i]);
        ms = larger(ms, l->fin[i]);
        swap = l->came;
        l->came = l->arrive;
        l->arrive = swap;
    }
    return ms < HUGE_MS ? ms : HUGE_MS;
}

double docs_eval(struct docs *d, struct packing *s)
{
    lay_out(d, s, &d->load);
    ask_calls(d, s, &d->load);
    return s->ms = docs_times(d, s);
}
