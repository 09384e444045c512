/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

/* The order of the ranks in the ring. An order is looked at by building the ring that has
 * it (order_set) and solving there as always. Ranks that nothing tells apart are one
 * kind, and only one of the orders that differ by such ranks is looked at; under a full
 * mask a ring that is turned is the same ring.
 *
 * Few orders are all tried. Of many, a descent looks at some: from the caller's order,
 * slowest or fastest first, and chains of fast links, by exchanging two ranks, moving
 * one, and turning a run of them round, until no such step helps or the budget is spent.
 */
enum { FEW_ORDERS = 5040, FEW_LATE_ORDERS = 720, SUBSETS_TOO = 4 };

struct search {
    struct problem *p;
    struct scratch *s;
    const hcp_ring *ring; /* in the caller's order */
    const hcp_question *question;
    double best_ms; /* of s->place_best, over all layouts so far */
    int budget;
    int late;          /* orders are compared with late KV */
    double in_turn_ms; /* of late_kv: the fastest in turn so far; NaN: none */
};

void order_set(struct problem *p, struct scratch *s, const hcp_ring *ring,
               const int32_t *order)
{
    memmove(s->place, order, p->n * sizeof *s->place);
    s->view = *ring;
    s->view.ranks = s->bound;
    for (size_t i = 0; i < p->n; i++)
        s->bound[i] = ring->ranks[order[i]];
    p->ring = &s->view;
    p->order = s->place;
    s->memo.holds = HOLDS_NOTHING; /* other ranks at these places */
    problem_set_caps(p, s);
    strategy_speeds(p, s);
}

/* ---- kinds of ranks ---- */

static int same_link(const hcp_link *a, const hcp_link *b)
{
    return a->shared[0] == b->shared[0] && a->shared[1] == b->shared[1] &&
           a->alpha_us == b->alpha_us && a->gbps == b->gbps &&
           a->slowdown == b->slowdown && a->transfer_slowdown == b->transfer_slowdown &&
           a->overhead_us == b->overhead_us;
}

static int pair_alike(const struct problem *p, size_t a, size_t b, size_t c, size_t d)
{
    hcp_link x = links_between(p, a, b), y = links_between(p, c, d);

    return same_link(&x, &y);
}

/* Can two ranks change places without anything changing? */
static int alike(const struct problem *p, size_t a, size_t b)
{
    const struct bound_rank *x = &p->ring->ranks[a], *y = &p->ring->ranks[b];

    for (int k = 0; k < 3; k++)
        if (!hcp_model_alike(x->model[k], y->model[k]))
            return 0;
    if (x->scale != y->scale || x->nominal != y->nominal ||
        x->spec.max_tokens != y->spec.max_tokens ||
        x->spec.max_bytes != y->spec.max_bytes ||
        x->spec.weight_bytes != y->spec.weight_bytes || !layer_alike(&x->spec, &y->spec))
        return 0;
    if (!p->links || p->links->n_links == 0)
        return 1;
    for (size_t c = 0; c < p->n; c++)
        if (c != a && c != b &&
            (!pair_alike(p, a, c, b, c) || !pair_alike(p, c, a, c, b)))
            return 0;
    return pair_alike(p, a, b, b, a);
}

/* Kinds by the caller's index, numbered by their first rank. In large groups with links
 * each rank is one: comparing them all would take too long. */
static void find_kinds(const struct problem *p, int32_t *kind)
{
    int each = p->links && p->links->n_links > 0 && p->n > 32;

    for (size_t r = 0; r < p->n; r++) {
        kind[r] = (int32_t)r;
        for (size_t i = 0; !each && i < r; i++) {
            if (kind[i] == (int32_t)i && alike(p, i, r)) {
                kind[r] = (int32_t)i;
                break;
            }
        }
    }
}

/* Different orders, or FEW_ORDERS + 1 when they are more. */
static int64_t count_orders(const struct problem *p, const int32_t *kind)
{
    int64_t orders = 1;

    for (size_t r = p->causal ? 0 : 1; r < p->n; r++) { /* multinomial, rank by rank */
        int64_t same = 1, before = 1;                   /* itself */

        for (size_t i = p->causal ? 0 : 1; i < r; i++) {
            before++;
            same += kind[i] == kind[r];
        }
        orders = orders * before / same;
        if (orders > FEW_ORDERS && p->n > 8)
            return FEW_ORDERS + 1;
    }
    return orders > FEW_ORDERS ? FEW_ORDERS + 1 : orders;
}

/* ---- trying one ---- */

/* Time of the best split found in an order, in p's layout (BEST) or by the question's
 * rule, and of its late KV where orders are compared with it; limit_ms or more when there
 * is nothing faster inside the measured lengths. */
static double try_order(struct search *q, const int32_t *order, double limit_ms)
{
    struct problem *p = q->p;
    struct scratch *s = q->s;
    const int64_t *tokens = s->tokens[TOK_CUR];
    struct answer answer;
    struct score score, less;
    int exact;

    q->budget--;
    order_set(p, s, q->ring, order);
    if (q->question->strategy != HCP_STRATEGY_BEST) {
        if (strategy_decide(p, s, q->question, NULL, 0, &answer))
            return HUGE_MS;
        return q->late ? late_glance(p, s, answer.tokens, 0) : answer.score.ms;
    }
    if (q->late) /* what is slow in turn may be fast with late KV */
        limit_ms = HUGE_MS;
    memset(s->allowed, 1, p->n);
    score = solve(p, s, s->allowed, limit_ms, s->tokens[TOK_CUR], &exact);
    if (p->n > 3 && p->n <= SUBSETS_TOO) {
        less =
            strategy_subset(p, s, score.none || score.ms > limit_ms ? limit_ms : score.ms,
                            s->tokens[TOK_DROP]);
        if (!less.gave_up && score_less(less, score)) {
            score = less;
            tokens = s->tokens[TOK_DROP];
        }
    }
    if (q->late && !score.none)
        return late_glance(p, s, tokens, 1);
    if (score.none || score.gave_up || score.ms >= limit_ms ||
        (!p->extrapolate && eval_source(p, s, tokens) == HCP_FROM_EXTRAPOLATED))
        return HUGE_MS;
    return score.ms;
}

/* Whether an order, which took ms, is the best so far. */
static void keep(struct search *q, const int32_t *order, double ms)
{
    if (ms >= q->best_ms)
        return;
    q->best_ms = ms;
    memcpy(q->s->place_best, order, q->p->n * sizeof *order);
}

/* ---- all of them ---- */

static int next_permutation(int32_t *v, size_t n)
{
    size_t i = n, j = n;
    int32_t swap;

    while (i > 1 && v[i - 2] >= v[i - 1])
        i--;
    if (i < 2)
        return 0;
    while (v[j - 1] <= v[i - 2])
        j--;
    swap = v[i - 2];
    v[i - 2] = v[j - 1];
    v[j - 1] = swap;
    for (j = n; i < j; i++) {
        swap = v[i - 1];
        v[i - 1] = v[--j];
        v[j] = swap;
    }
    return 1;
}

/* Ranks of kinds in a row: of each kind in the caller's order. */
static void order_of_kinds(const struct search *q, const int32_t *kinds, int32_t *order)
{
    const int32_t *kind = q->s->kind_of;

    for (size_t i = 0; i < q->p->n; i++) {
        int32_t r = kinds[i];

        for (size_t j = 0; j < i; j++) /* as many as are taken already */
            if (kinds[j] == kinds[i])
                for (r++; kind[r] != kinds[i];)
                    r++;
        order[i] = r;
    }
}

static void try_all(struct search *q)
{
    size_t n = q->p->n, fixed = q->p->causal ? 0 : 1;
    int32_t *kinds = q->s->place_here, *order = q->s->place_trial;

    memcpy(kinds, q->s->kind_of, n * sizeof *kinds);
    for (size_t i = fixed; i < n; i++) /* ascending */
        for (size_t j = i; j > fixed && kinds[j] < kinds[j - 1]; j--) {
            int32_t swap = kinds[j];

            kinds[j] = kinds[j - 1];
            kinds[j - 1] = swap;
        }
    do {
        order_of_kinds(q, kinds, order);
        keep(q, order, try_order(q, order, q->best_ms));
    } while (next_permutation(kinds + fixed, n - fixed));
}

/* ---- some of them ---- */

/* By speed on the whole sequence in the caller's order; s->whole is that of another. */
static void by_speed(struct search *q, int fastest_first, int32_t *order)
{
    struct problem *p = q->p;

    for (size_t r = 0; r < p->n; r++)
        order[r] = (int32_t)r;
    order_set(p, q->s, q->ring, order);
    for (size_t r = 0; r < p->n; r++)
        order[r] = q->s->slow_order[fastest_first ? p->n - 1 - r : r];
}

/* From a rank always to the one that gets an average share soonest. */
static void by_links(struct search *q, size_t first, int32_t *order)
{
    struct problem *p = q->p;
    uint8_t *used = q->s->allowed;
    double tokens = (double)p->seq_len / (double)p->n;

    for (size_t r = 0; r < p->n; r++)
        order[r] = (int32_t)r;
    order_set(p, q->s, q->ring, order);
    memset(used, 0, p->n);
    for (size_t i = 0, r = first;; i++) {
        double least = 0;
        size_t next = p->n;

        order[i] = (int32_t)r;
        used[r] = 1;
        if (i + 1 == p->n)
            break;
        for (size_t to = 0; to < p->n; to++) {
            hcp_link link;
            double ms;

            if (used[to])
                continue;
            link = links_between(p, r, to);
            ms = link.alpha_us / 1e3;
            if (link.gbps > 0)
                ms += tokens * p->ring->token_bytes / (link.gbps * 1e6);
            if (next == p->n || ms < least) {
                least = ms;
                next = to;
            }
        }
        r = next;
    }
}

/* Change number `kind` (0 exchange, 1 move, 2 turn) of places i and j; 0: none, or one
 * that changes nothing. */
static int change(const struct search *q, const int32_t *from, int kind, size_t i,
                  size_t j, int32_t *to)
{
    const int32_t *kind_of = q->s->kind_of;
    size_t n = q->p->n;
    int differs = 0;

    if (i == j || (kind != 1 && i > j) || (kind == 2 && j < i + 2))
        return 0;
    memcpy(to, from, n * sizeof *to);
    if (kind == 0) {
        to[i] = from[j];
        to[j] = from[i];
    } else if (kind == 1 && i < j) {
        memmove(to + i, from + i + 1, (j - i) * sizeof *to);
        to[j] = from[i];
    } else if (kind == 1) {
        memmove(to + j + 1, from + j, (i - j) * sizeof *to);
        to[j] = from[i];
    } else {
        for (size_t k = i; k <= j; k++)
            to[k] = from[i + j - k];
    }
    for (size_t k = 0; k < n; k++)
        differs |= kind_of[to[k]] != kind_of[from[k]];
    return differs;
}

/* Down from an order, which is left in s->place_here. */
static void descend(struct search *q)
{
    size_t n = q->p->n;
    int32_t *here = q->s->place_here, *trial = q->s->place_trial;
    double ms = try_order(q, here, HUGE_MS);
    int again = n <= 256;

    keep(q, here, ms);
    while (again && q->budget > 0) {
        again = 0;
        for (int kind = 0; kind < 3; kind++)
            for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < n && q->budget > 0; j++) {
                    double other;

                    if (!change(q, here, kind, i, j, trial))
                        continue;
                    other = try_order(q, trial, ms);
                    if (other >= ms)
                        continue;
                    ms = other;
                    memcpy(here, trial, n * sizeof *here);
                    again = 1;
                    keep(q, here, ms);
                }
    }
}

static void try_some(struct search *q)
{
    size_t n = q->p->n, chains = q->p->links ? (n < 4 ? n : 4) : 0;
    int budget = n <= 8 ? (q->late ? 140 : 420) : n <= 64 ? 64 : n <= 256 ? 16 : 0;
    int32_t *here = q->s->place_here;

    for (size_t start = 0; start < 3 + chains; start++) {
        if (start == 0)
            for (size_t r = 0; r < n; r++)
                here[r] = (int32_t)r;
        else if (start < 3)
            by_speed(q, start == 1, here);
        else
            by_links(q, (start - 3) * n / chains, here);
        q->budget = budget / (int)(3 + chains) + 1;
        descend(q);
    }
}

/* ---- the answer ---- */

static void search_orders(struct search *q, int exhaustive)
{
    struct problem *p = q->p;
    hcp_layout layouts[3];
    int n = 1, all, few = q->late ? FEW_LATE_ORDERS : FEW_ORDERS;

    find_kinds(p, q->s->kind_of);
    all = exhaustive < 0 ? count_orders(p, q->s->kind_of) <= few : exhaustive;
    if (q->question->strategy == HCP_STRATEGY_BEST)
        n = strategy_layouts(p, q->question->layout, layouts);
    for (int i = 0; i < n; i++) {
        if (q->question->strategy == HCP_STRATEGY_BEST) {
            problem_set_layout(p, layouts[i]);
            memo_reset(&q->s->memo);
        }
        if (all)
            try_all(q);
        else
            try_some(q);
    }
}

static int known(const struct problem *p, hcp_status status, const struct answer *a)
{
    return status == HCP_STATUS_OK &&
           (p->extrapolate || a->score.source != HCP_FROM_EXTRAPOLATED);
}

/* As asked in p's order; alone: as if no other order were looked at, with what that
 * leaves out of the search. */
static hcp_status decide_once(struct search *q, int alone, char *text, size_t text_size,
                              struct answer *out)
{
    struct problem *p = q->p;
    const int thorough = p->thorough, any_subset = p->any_subset;
    hcp_status status;

    p->slots = NULL;
    if (alone) {
        p->any_subset = p->links != NULL;
        p->thorough = p->any_subset || p->memory;
    }
    status = strategy_decide(p, q->s, q->question, text, text_size, out);
    if (status == HCP_STATUS_OK && q->question->late_kv)
        late_decide(p, q->s, q->question, 1, out);
    p->thorough = thorough;
    p->any_subset = any_subset;
    return status;
}

/* As asked in p's order. Late KV is searched from several starts, so a wider search can
 * end in a slower plan: the narrow one is a candidate, too. */
static hcp_status decide(struct search *q, char *text, size_t text_size,
                         struct answer *out)
{
    const int both = q->question->late_kv && q->question->order != HCP_ORDER_GIVEN;
    struct answer alone;
    hcp_status status, first = HCP_STATUS_INFEASIBLE;

    alone.score = (struct score){1, 0, 0, 0};
    if (both)
        first = decide_once(q, 1, NULL, 0, &alone);
    status = decide_once(q, 0, text, text_size, out);
    if (known(q->p, first, &alone) &&
        (!known(q->p, status, out) || alone.score.ms < out->score.ms))
        status = decide_once(q, 1, text, text_size, out);
    if (status == HCP_STATUS_OK && q->question->late_kv &&
        !(q->in_turn_ms <= out->in_turn_ms))
        q->in_turn_ms = out->in_turn_ms;
    return status;
}

/* The same in the order of s->place_best. */
static hcp_status decide_in(struct search *q, char *text, size_t text_size,
                            struct answer *out)
{
    order_set(q->p, q->s, q->ring, q->s->place_best);
    memo_reset(&q->s->memo);
    return decide(q, text, text_size, out);
}

/* Whether the orders of a strategy are worth a search for the question: its own, and for
 * BEST, which is to be no slower than any other in an order of its own, all that it need
 * not be as fast as anyway. */
static int searched(const struct search *q, hcp_strategy strategy)
{
    const struct problem *p = q->p;
    hcp_model_kind kind = strategy == HCP_STRATEGY_LUT ? HCP_MODEL_LUT : HCP_MODEL_POLY;

    if (strategy == q->question->strategy)
        return 1;
    if (q->question->strategy != HCP_STRATEGY_BEST ||
        (p->n <= 3 && p->sub_blocks == 1 && p->extrapolate &&
         !q->late)) /* exact in every order */
        return 0;
    return strategy < HCP_STRATEGY_LUT ||
           (q->ring->has[kind] && !strategy_same_models(q->ring, kind));
}

/* The order in which a strategy is fastest, into s->place_best; whether it is neither the
 * caller's nor the one kept. */
static int find_order(struct search *q, hcp_strategy strategy, int exhaustive)
{
    const hcp_question *asked = q->question;
    hcp_question by = *asked;
    struct problem *p = q->p;
    int joint = p->joint;

    by.strategy = strategy;
    q->question = &by;
    q->best_ms = HUGE_MS;
    for (size_t r = 0; r < p->n; r++)
        q->s->place_best[r] = (int32_t)r;
    p->thorough = p->joint = 0; /* to compare orders */
    p->comparing = 1;
    p->slots = NULL;
    search_orders(q, exhaustive);
    p->comparing = 0;
    p->thorough = 1;
    p->joint = joint;
    q->question = asked;
    for (size_t r = 0; r < p->n; r++)
        if (q->s->place_best[r] != (int32_t)r)
            return memcmp(q->s->place_best, q->s->place_kept,
                          p->n * sizeof *q->s->place_kept) != 0;
    return 0;
}

hcp_status order_decide(struct problem *p, struct scratch *s,
                        const hcp_question *question, int exhaustive, char *text,
                        size_t text_size, struct answer *out)
{
    struct search q = {
        .p = p, .s = s, .ring = p->ring, .question = question, .in_turn_ms = NAN};
    size_t bytes = p->n * sizeof *s->place_kept;
    hcp_status status;
    double given_ms = NAN, any_ms = NAN, given_in_turn_ms;

    p->thorough = p->any_subset || p->memory;
    status = decide(&q, text, text_size, out);
    out->given_order_ms = out->any_order_ms = NAN;
    if (question->order == HCP_ORDER_GIVEN)
        return status;
    given_in_turn_ms = q.in_turn_ms;
    if (known(p, status, out))
        given_ms = any_ms = out->score.ms;
    for (size_t r = 0; r < p->n; r++)
        s->place_kept[r] = (int32_t)r;
    for (int late = 0; late < (question->late_kv ? 2 : 1); late++)
        for (int i = HCP_STRATEGY_BEST; i >= HCP_STRATEGY_EVEN; i--) {
            q.late = late;
            if (!searched(&q, (hcp_strategy)i) ||
                !find_order(&q, (hcp_strategy)i, exhaustive))
                continue;
            status = decide_in(&q, NULL, 0, out);
            if (!known(p, status, out) || out->score.ms >= any_ms)
                continue;
            any_ms = out->score.ms;
            memcpy(s->place_kept, s->place_best, bytes);
        }
    for (size_t r = 0; question->order == HCP_ORDER_FIXED && r < p->n; r++)
        s->place_kept[r] = (int32_t)r;
    memcpy(s->place_best, s->place_kept, bytes);
    status = decide_in(&q, text, text_size, out);
    out->given_order_ms = given_ms;
    out->any_order_ms = any_ms;
    out->in_turn_ms =
        question->order == HCP_ORDER_FIXED ? given_in_turn_ms : q.in_turn_ms;
    return status;
}
