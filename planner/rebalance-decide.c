/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/rebalance.h"

hcp_status rebalance_evaluate(hcp_rebalance *r, const hcp_plan *like,
                              const int64_t *tokens, const double *scale,
                              struct held_plan *into, char *text, size_t text_size)
{
    hcp_question q = r->question;

    for (size_t i = 0; i < r->n; i++)
        r->out[i] = tokens[i] == 0 && r->ranks[i].failed;
    rescale_set(r->ring, scale, r->out);
    q.layout = like->layout;
    q.stripes = like->stripes;
    return hcp_plan_evaluate(r->ring, &q, tokens, r->workspace, r->workspace_bytes, text,
                             text_size, &into->plan);
}

static void tokens_of(const hcp_plan *plan, int64_t *tokens)
{
    for (size_t r = 0; r < plan->n_ranks; r++)
        tokens[r] = plan->ranks[r].tokens;
}

hcp_status rebalance_base(hcp_rebalance *r, char *text, size_t text_size)
{
    hcp_status status;

    for (size_t i = 0; i < r->n; i++)
        r->scale[i] = 1;
    tokens_of(&r->now.plan, r->tokens);
    status = rebalance_evaluate(r, &r->now.plan, r->tokens, r->scale, &r->trial, text,
                                text_size);
    for (size_t i = 0; !status && i < r->n; i++)
        r->ranks[i].base_ms = r->trial.plan.ranks[i].compute_ms;
    return status;
}

/* To half a percent. */
static double rounded(double scale)
{
    double unit = 1;

    while (unit > scale)
        unit /= 2;
    while (2 * unit <= scale)
        unit *= 2;
    unit /= 128;
    return (double)(int64_t)(scale / unit + 0.5) * unit;
}

static int of_one_kind(const hcp_rebalance *r, size_t a, size_t b)
{
    const struct bound_rank *x = &r->ring->ranks[a], *y = &r->ring->ranks[b];

    return x->plain[HCP_MODEL_LUT] == y->plain[HCP_MODEL_LUT] &&
           x->plain[HCP_MODEL_POLY] == y->plain[HCP_MODEL_POLY];
}

/* The factors to plan for. Of large groups the ranks are to be of as few kinds as they
 * can, or the search takes seconds: those of one kind that have not changed have one
 * factor, their mean, and the others theirs to half a percent. */
static void offer(hcp_rebalance *r)
{
    for (size_t i = 0; i < r->n; i++) {
        r->offered[i] = r->ranks[i].speed.scale;
        r->tokens[i] =
            0; /* of those that have not changed, the first of its kind: ranks */
    }
    for (size_t i = 0, first; r->n > REBALANCE_EXACT && i < r->n; i++) {
        const struct rank_state *k = &r->ranks[i];

        if (!k->speed.fresh || k->failed) {
            r->offered[i] = rounded(r->offered[i]);
            continue;
        }
        for (first = 0; first < i; first++)
            if (r->tokens[first] > 0 && of_one_kind(r, first, i))
                break;
        if (first < i)
            r->offered[first] += r->offered[i];
        r->tokens[first]++;
        r->tokens[i] = first < i ? -(int64_t)first - 1 : r->tokens[i];
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->tokens[i] > 0)
            r->offered[i] = rounded(r->offered[i] / (double)r->tokens[i]);
    for (size_t i = 0; i < r->n; i++)
        if (r->tokens[i] < 0)
            r->offered[i] = r->offered[-r->tokens[i] - 1];
}

/* The best plan at the present speeds, without ranks that failed. */
static hcp_status best(hcp_rebalance *r, char *text, size_t text_size)
{
    offer(r);
    for (size_t i = 0; i < r->n; i++)
        r->out[i] = r->ranks[i].failed;
    rescale_set(r->ring, r->offered, r->out);
    return hcp_plan_split(r->ring, &r->question, r->workspace, r->workspace_bytes, text,
                          text_size, &r->next.plan);
}

/* ---- tokens ---- */

static const hcp_segment *kv_of(const hcp_plan *plan, size_t r, int64_t *n)
{
    *n = plan->ranks[r].n_kv_segments;
    return plan->segments + plan->ranks[r].first_kv_segment;
}

/* Visits what both ranks keep, in order of position; both have their segments in it. */
static int64_t common(const hcp_plan *a, size_t ra, const hcp_plan *b, size_t rb,
                      void (*visit)(void *ctx, hcp_segment s), void *ctx)
{
    int64_t na, nb, sum = 0;
    const hcp_segment *sa = kv_of(a, ra, &na), *sb = kv_of(b, rb, &nb);

    for (int64_t i = 0, k = 0; i < na && k < nb;) {
        int64_t end_a = sa[i].offset + sa[i].length, end_b = sb[k].offset + sb[k].length;
        int64_t from = sa[i].offset > sb[k].offset ? sa[i].offset : sb[k].offset;
        int64_t to = end_a < end_b ? end_a : end_b;

        if (from < to) {
            sum += to - from;
            if (visit)
                visit(ctx, (hcp_segment){from, to - from});
        }
        if (end_a < end_b)
            i++;
        else
            k++;
    }
    return sum;
}

/* KV that is to come to a rank: in decode it does not matter which tokens' it is. */
static int64_t comes(const hcp_rebalance *r, size_t i)
{
    int64_t had = r->now.plan.ranks[i].kv_tokens, gets = r->next.plan.ranks[i].kv_tokens;

    if (plan_is_decode(&r->now.plan))
        return gets > had ? gets - had : 0;
    return gets - common(&r->now.plan, i, &r->next.plan, i, NULL, NULL);
}

/* theory.md: tokens times bytes over the link, one rank's after the other. What a failed
 * rank had cannot be sent. */
static void cost_of(const hcp_rebalance *r, hcp_rebalance_verdict *v)
{
    int64_t lost = v->lost_tokens;
    double ms = r->options.move_ms, token = r->ring->token_bytes * r->question.layers;

    v->move_tokens = 0;
    for (size_t i = 0; r->options.move_kv && i < r->n; i++) {
        int64_t tokens = comes(r, i);

        for (size_t f = 0; f < r->n && tokens > 0; f++)
            if (r->lost[f] && !plan_is_decode(&r->now.plan))
                tokens -= common(&r->now.plan, f, &r->next.plan, i, NULL, NULL);
        if (tokens <= 0)
            continue;
        v->move_tokens += tokens;
        ms += r->options.link_alpha_us / 1e3;
    }
    if (plan_is_decode(&r->now.plan))
        v->move_tokens = v->move_tokens > lost ? v->move_tokens - lost : 0;
    v->move_bytes = (int64_t)((double)v->move_tokens * token);
    if (r->options.link_gbps > 0)
        ms += (double)v->move_tokens * token / (r->options.link_gbps * 1e6);
    v->cost_ms = ms;
}

struct listing {
    hcp_recompute *array;
    size_t capacity, n;
    size_t by, rank;
};

static void list(void *ctx, hcp_segment s)
{
    struct listing *l = ctx;

    if (l->array && l->n < l->capacity)
        l->array[l->n] =
            (hcp_recompute){(int32_t)l->by, (int32_t)l->rank, s.offset, s.length};
    l->n++;
}

hcp_status hcp_rebalance_recompute(const hcp_rebalance *r, hcp_recompute *array,
                                   size_t capacity, size_t *n)
{
    struct listing l = {array, capacity, 0, 0, 0};

    if (!r || !n || !r->proposed || (!array && capacity > 0))
        return HCP_STATUS_INVALID;
    for (l.by = 0; l.by < r->n; l.by++)
        for (l.rank = 0; r->lost[l.by] && l.rank < r->n; l.rank++)
            common(&r->now.plan, l.by, &r->next.plan, l.rank, list, &l);
    *n = l.n;
    return array && capacity < l.n ? HCP_STATUS_SPACE : HCP_STATUS_OK;
}

/* ---- the decision ---- */

/* What is left of a data sheet's error where a run has told how fast it is: how far
 * blocks are off beside each other (planner/specs.md: p90 over median). */
#define ESTIMATE_SHAPE 1.15

/* An error bar without the factor of a data sheet. */
static double without_factor(double error, const hcp_rank_estimate *estimate)
{
    double left = (1 + error) / estimate->factor;

    return (left > 1 ? left : 1) * ESTIMATE_SHAPE - 1;
}

double rebalance_off(const hcp_rebalance *r, const hcp_plan *plan)
{
    const hcp_ring *ring = r->ring;
    double most = plan->interval_hi_ms / plan->makespan_ms - 1;

    if (ring->n_estimates > 0)
        most = 0;
    for (size_t i = 0; ring->n_estimates > 0 && i < r->n; i++) {
        const struct bound_rank *b = &ring->ranks[i];
        double lo, hi, linear = b->spec.linear_error;

        if (plan->ranks[i].tokens == 0)
            continue;
        hcp_model_error(b->model[HCP_MODEL_BEST], plan->causal, plan->ranks[i].tokens,
                        plan->ranks[i].tokens, &lo, &hi);
        hi = linear > hi ? linear : hi;
        if (b->estimate >= 0)
            hi = without_factor(hi, &ring->estimates[b->estimate].said);
        most = hi > most ? hi : most;
    }
    return most >= 0 ? most : 0; /* 0: NaN */
}

/* How far off the time after the move may be, relative: by the models' error where a
 * rank's share changes, and by that of its factor. Where a speed has changed for certain,
 * by what an error costs on average: the mean of its part above 0. */
static double bar(const hcp_rebalance *r, int certain)
{
    double z = certain ? 0.3989 : r->test.sure;
    const hcp_plan *old = &r->now.plan, *new = &r->next.plan;
    double off = rebalance_off(r, new), most = 0;

    for (size_t i = 0; i < r->n; i++) {
        double a = (double)old->ranks[i].tokens, b = (double)new->ranks[i].tokens, part;

        if (!(b > 0))
            continue;
        part = a > b ? (a - b) / a : (b - a) / b;
        part = part * off + z * r->ranks[i].speed.error;
        most = part > most ? part : most;
    }
    return most;
}

static int same_shares(const hcp_plan *a, const hcp_plan *b)
{
    if (a->layout != b->layout || a->stripes != b->stripes)
        return 0;
    for (size_t r = 0; r < a->n_ranks; r++)
        if (a->ranks[r].tokens != b->ranks[r].tokens)
            return 0;
    return 1;
}

static void forget(hcp_rebalance *r)
{
    r->pending = 0;
    r->gain_ms = r->lost_ms = 0;
    r->waited = 0;
}

/* A failure: there is nothing to weigh. */
static hcp_status without_failed(hcp_rebalance *r, char *text, size_t text_size,
                                 hcp_rebalance_verdict *v)
{
    v->reason = HCP_REBALANCE_FAILED;
    for (size_t i = 0; i < r->n; i++)
        v->lost_tokens += r->lost[i] ? r->now.plan.ranks[i].kv_tokens : 0;
    forget(r);
    if (best(r, text, text_size)) {
        v->decision = HCP_REBALANCE_STUCK;
        return HCP_STATUS_OK;
    }
    v->decision = HCP_REBALANCE_MOVE;
    v->move_to_ms = r->next.plan.makespan_ms;
    cost_of(r, v);
    r->proposed = 1;
    return HCP_STATUS_OK;
}

/* All speeds were, `back` steps ago, as they are told to be, and not as the plan takes
 * them to be? */
static int agreed(const hcp_rebalance *r, int64_t back)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct rank_state *k = &r->ranks[i];

        if (k->timed && !speed_agrees(&k->speed, &r->test, k->plan_scale, back))
            return 0;
    }
    return 1;
}

/* A speed is further from what the plan takes it to be than a step's noise. Otherwise it
 * may be one that swings too fast to be seen to change, and its mean is none of its
 * speeds. */
static int far(const hcp_rebalance *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct rank_state *k = &r->ranks[i];
        double off = k->speed.scale - k->plan_scale;

        if (k->timed && (off < 0 ? -off : off) > k->speed.noise * k->speed.scale)
            return 1;
    }
    return 0;
}

/* Steps that a move serves; < 0: not known. */
static int64_t horizon(const hcp_rebalance *r, int64_t steps_left)
{
    int64_t expected = r->options.expected_steps;

    if (expected > 0 && (steps_left < 0 || expected < steps_left))
        return expected;
    return steps_left;
}

/* What the best plan there is would bring, weighed. certain: a speed has changed. */
static void weigh(hcp_rebalance *r, int certain, int64_t steps_left,
                  hcp_rebalance_verdict *v)
{
    double gain = v->stay_ms - v->move_to_ms, least = r->options.min_gain * v->stay_ms;
    int64_t steps = horizon(r, steps_left);

    cost_of(r, v);
    v->margin_ms = bar(r, certain) * v->move_to_ms;
    v->margin_ms = v->margin_ms > least ? v->margin_ms : least;
    v->break_even_steps = gain > 0 ? v->cost_ms / gain : INFINITY;
    r->gain_ms = gain - v->margin_ms;
    if (!(gain > 0) || same_shares(&r->now.plan, &r->next.plan))
        v->reason = HCP_REBALANCE_SAME;
    else if (!(gain > v->margin_ms) || (!certain && !far(r)))
        v->reason = HCP_REBALANCE_SMALL;
    else if (steps >= 0 && !((double)steps * (gain - v->margin_ms) > v->cost_ms))
        v->reason = HCP_REBALANCE_COST;
    else if (r->options.expected_steps == 0 &&
             (r->waited < r->patience || r->lost_ms < v->cost_ms || !agreed(r, 0)))
        v->reason = HCP_REBALANCE_WAIT;
    else
        v->reason = HCP_REBALANCE_GAIN;
}

static hcp_status look(hcp_rebalance *r, int certain, int64_t steps_left, char *text,
                       size_t text_size, hcp_rebalance_verdict *v)
{
    hcp_status status = best(r, text, text_size);

    if (status) {
        v->reason = HCP_REBALANCE_NO_PLAN;
        forget(r);
        return HCP_STATUS_OK;
    }
    tokens_of(&r->now.plan, r->tokens);
    status = rebalance_evaluate(r, &r->now.plan, r->tokens, r->offered, &r->trial, text,
                                text_size);
    if (status)
        return status;
    v->stay_ms = r->trial.plan.makespan_ms;
    v->move_to_ms = r->next.plan.makespan_ms;
    weigh(r, certain, steps_left, v);
    return HCP_STATUS_OK;
}

/* A speed has changed for certain, in the last `steps` steps. */
static int changed_within(const hcp_rebalance *r, int64_t steps)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->ranks[i].timed && r->ranks[i].speed.age <= steps &&
            speed_stands(&r->ranks[i].speed, &r->test))
            return 1;
    return 0;
}

/* Steps since the youngest speed changed, of those that just did. */
static int64_t changed_for(const hcp_rebalance *r)
{
    int64_t least = REBALANCE_HISTORY;

    for (size_t i = 0; i < r->n; i++)
        if (r->ranks[i].timed && r->ranks[i].speed.age < least)
            least = r->ranks[i].speed.age;
    return least;
}

/* Steps since the youngest change in which staying has cost what it does, less those in
 * which it has not. */
static int64_t stood_for(const hcp_rebalance *r)
{
    int64_t n = 0;

    for (int64_t back = changed_for(r); back-- > 0;) {
        n += agreed(r, back) ? 1 : -1;
        n = n > 0 ? n : 0;
    }
    return n;
}

hcp_status rebalance_decide(hcp_rebalance *r, int changed, int forced, int due,
                            int64_t steps_left, char *text, size_t text_size,
                            hcp_rebalance_verdict *v)
{
    hcp_status status;
    int fresh = !r->pending;
    int certain = changed || changed_within(r, fresh ? 4 : REBALANCE_HISTORY);
    double had = r->gain_ms;

    if (forced)
        return without_failed(r, text, text_size, v);
    if (r->pending) { /* another step has been lost by waiting, or one less */
        int lost = agreed(r, 0) ? 1 : -1;

        r->lost_ms += lost * r->gain_ms;
        r->lost_ms = r->lost_ms > 0 ? r->lost_ms : 0;
        r->waited += r->waited + lost > 0 ? lost : 0;
        v->lost_ms = r->lost_ms;
        v->reason = HCP_REBALANCE_WAIT;
    }
    if (!certain && !due && !r->pending)
        return HCP_STATUS_OK;
    status = look(r, certain, steps_left, text, text_size, v);
    if (status)
        return status;
    fresh |= changed && 2 * r->gain_ms < had; /* what was waited for has gone */
    if (fresh && v->reason == HCP_REBALANCE_WAIT) {
        r->waited = stood_for(r);
        r->lost_ms = r->gain_ms * (double)r->waited;
        weigh(r, certain, steps_left, v); /* by what has been lost already */
    }
    v->lost_ms = r->lost_ms;
    if (v->reason == HCP_REBALANCE_WAIT) {
        r->pending = 1;
        return HCP_STATUS_OK;
    }
    forget(r);
    if (v->reason == HCP_REBALANCE_GAIN) {
        v->decision = HCP_REBALANCE_MOVE;
        r->proposed = 1;
    }
    return HCP_STATUS_OK;
}
