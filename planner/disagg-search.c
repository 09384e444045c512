/* SPDX-License-Identifier: Apache-2.0
 *
 * The best two groups of each kind. Groups come shortest time first, so that a search
 * ends where no time that follows can do better; transfers are paired where what they
 * take at least leaves a pair in the running.
 */
#include <math.h>
#include <string.h>
#include "planner/disagg.h"

/* ---- who is in which group ---- */

int32_t disagg_place(const hcp_disagg *d, int kind, int32_t prefill, int32_t decode,
                     int phase, size_t rank)
{
    const struct disagg_group *p = &d->groups[prefill], *g = &d->groups[decode];
    int32_t c = d->class_of[rank], number = d->number_of[rank];

    if (phase == PREFILL)
        return p->place[rank];
    if (kind == SEPARATE)
        number -= p->count[c]; /* the ranks after those of prefill */
    if (number < 0 || number >= g->count[c])
        return -1;
    return g->place[d->member[d->first[c] + number]];
}

static int apart(const hcp_disagg *d, int32_t prefill, int32_t decode)
{
    const int32_t *p = d->groups[prefill].count, *g = d->groups[decode].count;

    for (int32_t c = 0; c < d->n_classes; c++)
        if (p[c] + g[c] > d->class_n[c])
            return 0;
    return 1;
}

static int share_a_class(const hcp_disagg *d, int32_t prefill, int32_t decode)
{
    const int32_t *p = d->groups[prefill].count, *g = d->groups[decode].count;

    for (int32_t c = 0; c < d->n_classes; c++)
        if (p[c] > 0 && g[c] > 0)
            return 1;
    return 0;
}

int64_t disagg_pairs(const struct disagg_work *w, int kind, int32_t prefill,
                     int32_t decode)
{
    int set = disagg_set(w, kind);
    const int64_t *old = w->time[PREFILL][set][prefill].tokens;
    const int64_t *new = w->time[DECODE][set][decode].tokens;
    int64_t sum = 0;

    for (size_t r = 0; r < w->d->n; r++) {
        int32_t p = disagg_place(w->d, kind, prefill, decode, PREFILL, r);
        int32_t g = disagg_place(w->d, kind, prefill, decode, DECODE, r);
        int64_t change = (p >= 0 ? old[p] : 0) - (g >= 0 ? new[g] : 0);

        w->give[r] = change > 0 ? change : 0;
        w->take[r] = change < 0 ? -change : 0;
        sum += w->give[r];
    }
    return sum;
}

/* ---- times ---- */

static int32_t pieces(const struct disagg_work *w)
{
    return w->q->stream ? w->runs * w->layers : 1;
}

void disagg_pairing(const struct disagg_work *w, const struct disagg_at *at,
                    hcp_move_question *q, struct pairing *p)
{
    hcp_move_question_init(q);
    q->link_alpha_us = w->q->link_alpha_us * pieces(w);
    *p = (struct pairing){q, at->byte_ms, w->token_bytes, w->give, w->take, w->d->n};
}

/* What a pairing takes at least: one message of each rank that gives or takes. */
static double least_move(const struct pairing *p)
{
    double most = 0;

    for (size_t r = 0; r < p->n; r++) {
        int64_t tokens = p->give[r] > p->take[r] ? p->give[r] : p->take[r];
        double ms =
            p->q->link_alpha_us / 1e3 + (double)tokens * p->token_bytes * p->byte_ms;

        if (tokens > 0 && ms > most)
            most = ms;
    }
    return most;
}

/* Two stages that a batch goes through in k pieces: when the last one is through. */
static double flow(double ttft, double move, int32_t k)
{
    double p = ttft / k, x = move / k;

    if (k == 1 || move == 0)
        return ttft + move;
    return p + (k - 1) * (p > x ? p : x) + x;
}

void disagg_set_times(const struct disagg_work *w, const struct disagg_at *at, int kind,
                      double ttft, double move, double step, struct disagg_best *b)
{
    double decode = (double)at->steps * step, sent = flow(ttft, move, pieces(w));

    b->ttft_ms = ttft;
    b->move_ms = move;
    b->exposed_ms = sent - ttft;
    b->step_ms = step;
    b->latency_ms = sent + decode;
    b->period_ms = b->latency_ms;
    if (kind == SEPARATE) {
        b->period_ms = ttft > move ? ttft : move;
        b->period_ms = decode > b->period_ms ? decode : b->period_ms;
    }
    b->score = w->q->objective == HCP_DISAGG_LATENCY ? b->latency_ms : b->period_ms;
}

/* Sums of transfers in another order differ in their last bits: scores are equal in
 * these. */
#define LAST_BITS 1e-12

/* By score; where that is decode alone, say, by latency. */
static int less(const struct disagg_best *a, const struct disagg_best *b)
{
    if (!b->exists || a->score < b->score * (1 - LAST_BITS))
        return 1;
    return a->score <= b->score * (1 + LAST_BITS) && a->latency_ms < b->latency_ms;
}

static int within_limits(const struct disagg_work *w, const struct disagg_at *at,
                         const struct disagg_best *b)
{
    double most = w->q->ttft_limit_ms, per_token = w->q->tpot_limit_ms;

    return (most == 0 || b->ttft_ms <= most) &&
           (per_token == 0 ||
            (b->latency_ms - b->ttft_ms) / (double)at->steps <= per_token);
}

/* ---- the search ---- */

static void take(const struct disagg_work *w, const struct disagg_at *at,
                 const struct disagg_best *b, struct disagg_best *best)
{
    if (within_limits(w, at, b) && less(b, best))
        *best = *b;
}

/* One search of the groups of a kind, or of both. */
struct search {
    const struct disagg_work *w;
    const struct disagg_at *at;
    enum disagg_pairings pairings;
    int kind, set;
    struct disagg_best *best;
    double *beyond;
};

static void consider(const struct search *s, int32_t prefill, int32_t decode)
{
    const struct disagg_work *w = s->w;
    double ttft = w->time[PREFILL][s->set][prefill].ms;
    double step = w->time[DECODE][s->set][decode].ms, least, move;
    struct disagg_best b = {1, 0, prefill, decode, 0, 0, 0, 0, 0, 0, 0}, bound = b;
    hcp_move_question q;
    struct pairing p;
    int exact;
    size_t n;

    disagg_pairing(w, s->at, &q, &p);
    least = disagg_pairs(w, s->kind, prefill, decode) > 0 ? least_move(&p) : 0;
    disagg_set_times(w, s->at, s->kind, ttft, least, step, &bound);
    if (!within_limits(w, s->at, &bound) || !less(&bound, s->best))
        return;
    if (least == 0 || s->pairings == PAIR_LEAST) {
        take(w, s->at, &bound, s->best);
        return;
    }
    move = moves_in_order(&p, w->move, w->sums, &n);
    disagg_set_times(w, s->at, s->kind, ttft, move, step, &b);
    take(w, s->at, &b, s->best);
    if (s->pairings == PAIR_IN_ORDER || move <= least || !less(&bound, s->best))
        return;
    move = moves_pair(&p, w->move, w->sums, &n, &exact);
    disagg_set_times(w, s->at, s->kind, ttft, move, step, &b);
    take(w, s->at, &b, s->best);
    if (!exact && least < move && bound.score < *s->beyond)
        *s->beyond = bound.score;
}

static void search_kind(const struct search *s)
{
    const struct disagg_work *w = s->w;
    const hcp_disagg *d = w->d;
    struct disagg_best *best = s->best;

    for (size_t i = 0; i < d->n_groups; i++) {
        int32_t prefill = w->order[PREFILL][s->set][i];
        const struct disagg_time *p = &w->time[PREFILL][s->set][prefill];

        if (p->status || (best->exists && p->ms > best->score * (1 + LAST_BITS)) ||
            (w->q->ttft_limit_ms > 0 && p->ms > w->q->ttft_limit_ms))
            break; /* as all that follow */
        for (size_t j = 0; j < d->n_groups; j++) {
            int32_t decode = w->order[DECODE][s->set][j];
            const struct disagg_time *g = &w->time[DECODE][s->set][decode];
            struct disagg_best bound;

            if (g->status)
                break;
            disagg_set_times(w, s->at, s->kind, p->ms, 0, g->ms, &bound);
            if (best->exists && bound.score > best->score * (1 + LAST_BITS))
                break;
            if (s->kind == SEPARATE ? apart(d, prefill, decode)
                                    : share_a_class(d, prefill, decode))
                consider(s, prefill, decode);
        }
    }
}

void disagg_search(const struct disagg_work *w, const struct disagg_at *at,
                   enum disagg_pairings pairings,
                   struct disagg_best best[KINDS_OF_ADVICE],
                   double beyond[KINDS_OF_ADVICE])
{
    struct search s = {.w = w, .at = at};

    memset(best, 0, KINDS_OF_ADVICE * sizeof *best);
    beyond[COLOCATED] = beyond[SEPARATE] = HUGE_MS;
    for (size_t g = 0; g < w->d->n_groups; g++) {
        struct disagg_best b = {1, 1, (int32_t)g, (int32_t)g, 0, 0, 0, 0, 0, 0, 0};

        if (w->stay[g].status)
            continue;
        disagg_set_times(w, at, COLOCATED, w->time[PREFILL][0][g].ms, 0, w->stay[g].ms,
                         &b);
        take(w, at, &b, &best[COLOCATED]);
    }
    for (s.kind = 0; s.kind < KINDS_OF_ADVICE; s.kind++) {
        s.set = disagg_set(w, s.kind);
        s.best = &best[s.kind];
        s.beyond = &beyond[s.kind];
        /* What needs no search first: few are better than that at all. */
        for (s.pairings = pairings == PAIR_FASTEST ? PAIR_IN_ORDER : pairings;;
             s.pairings = PAIR_FASTEST) {
            search_kind(&s);
            if (s.pairings == pairings)
                break;
        }
    }
}

/* Of two groups of one class each phase can leave the other's ranks out: that is
 * colocated, too, and takes as long. */
static int better_apart(const struct disagg_best *separate,
                        const struct disagg_best *colocated)
{
    return separate->score < colocated->score * (1 - LAST_BITS);
}

int disagg_decide(const struct disagg_best best[KINDS_OF_ADVICE])
{
    if (!best[SEPARATE].exists)
        return best[COLOCATED].exists ? HCP_DISAGG_COLOCATE : -1;
    return best[COLOCATED].exists && !better_apart(&best[SEPARATE], &best[COLOCATED])
               ? HCP_DISAGG_COLOCATE
               : HCP_DISAGG_SEPARATE;
}

/* ---- where the answer turns ---- */

static int decision_at(const struct disagg_work *w, double byte_ms, int64_t steps)
{
    struct disagg_at at = {byte_ms, steps};
    struct disagg_best least[KINDS_OF_ADVICE], most[KINDS_OF_ADVICE];
    double beyond[KINDS_OF_ADVICE];

    disagg_search(w, &at, PAIR_LEAST, least, beyond);
    disagg_search(w, &at, PAIR_IN_ORDER, most, beyond);
    if (least[COLOCATED].exists == most[COLOCATED].exists &&
        least[SEPARATE].exists == most[SEPARATE].exists &&
        (!least[COLOCATED].exists || !least[SEPARATE].exists ||
         better_apart(&most[SEPARATE], &least[COLOCATED]) ||
         !better_apart(&least[SEPARATE], &most[COLOCATED])))
        return disagg_decide(most);
    disagg_search(w, &at, PAIR_FASTEST, most, beyond);
    return disagg_decide(most);
}

/* ms a byte of the slowest and the fastest link there can be. */
#define SLOWEST 1.0
#define FASTEST 1e-15

/* Between a speed at which the answer is `decision` and another one. */
static double turn_between(const struct disagg_work *w, int64_t steps, int decision,
                           double same, double other)
{
    for (int i = 0; i < 24; i++) {
        double mid = same + (other - same) / 2;

        if (decision_at(w, mid, steps) == decision)
            same = mid;
        else
            other = mid;
    }
    return 1 / (other * 1e6);
}

/* The next value to look at, of `looks` so far: by a fifth up to ten times, then twice.
 */
static double farther(double v, int looks)
{
    return looks < 13 ? v * 1.2 : v * 2;
}

static void turns_of_speed(const struct disagg_work *w, const struct disagg_at *at,
                           int decision, hcp_disagg_advice *out)
{
    double same = at->byte_ms, ms;

    out->turns_below_gbps = 0;
    out->turns_above_gbps = INFINITY;
    for (int looks = 0; same < SLOWEST; looks++, same = ms) {
        ms = farther(same > FASTEST ? same : FASTEST, looks);
        if (decision_at(w, ms, at->steps) != decision) {
            out->turns_below_gbps = turn_between(w, at->steps, decision, same, ms);
            break;
        }
    }
    same = at->byte_ms;
    for (int looks = 0; same > FASTEST; looks++, same = ms) {
        ms = same * same / farther(same, looks);
        if (decision_at(w, ms, at->steps) != decision) {
            out->turns_above_gbps = turn_between(w, at->steps, decision, same, ms);
            return;
        }
    }
}

static int64_t step_between(const struct disagg_work *w, double byte_ms, int decision,
                            int64_t same, int64_t other)
{
    while (same - other > 1 || other - same > 1) {
        int64_t mid = same + (other - same) / 2;

        if (decision_at(w, byte_ms, mid) == decision)
            same = mid;
        else
            other = mid;
    }
    return other;
}

/* The same of steps. */
static int64_t more(int64_t steps, int looks)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t next = looks < 13 ? steps + (steps + 4) / 5 : 2 * steps;

    return next < most ? next : most;
}

static int64_t fewer(int64_t steps, int looks)
{
    return looks < 13 ? steps - (steps + 5) / 6 : steps / 2;
}

static void turns_of_steps(const struct disagg_work *w, const struct disagg_at *at,
                           int decision, hcp_disagg_advice *out)
{
    int64_t same = at->steps, steps;

    out->turns_below_steps = out->turns_above_steps = 0;
    for (int looks = 0; (steps = fewer(same, looks)) > 0; looks++, same = steps) {
        if (decision_at(w, at->byte_ms, steps) != decision) {
            out->turns_below_steps = step_between(w, at->byte_ms, decision, same, steps);
            break;
        }
    }
    same = at->steps;
    for (int looks = 0; (steps = more(same, looks)) > same; looks++, same = steps) {
        if (decision_at(w, at->byte_ms, steps) != decision) {
            out->turns_above_steps = step_between(w, at->byte_ms, decision, same, steps);
            return;
        }
    }
}

void disagg_turns(const struct disagg_work *w, const struct disagg_at *at, int decision,
                  hcp_disagg_advice *out)
{
    turns_of_speed(w, at, decision, out);
    turns_of_steps(w, at, decision, out);
}
