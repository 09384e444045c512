/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/strategies.h"

/* What the strategies choose from, each in one layout: splits by rule, and the solver's
 * of some of the ranks. A split under trial goes into TOK_OTHER. */

static double total_area(const struct problem *p)
{
    double s = (double)p->seq_len;

    return p->causal ? s * (s + 1) / 2 : s * s;
}

static double throughput(const struct problem *p, size_t r, int causal, int64_t len)
{
    double l = (double)len, area = causal ? l * (l + 1) / 2 : l * l;

    return area / hcp_model_block_ms(problem_model(p, r), causal, len, len, NULL);
}

/* On the whole sequence; without leave to extrapolate, on the nearest measured length. */
static double whole_speed(const struct problem *p, size_t r)
{
    int64_t q_min, q_max, kv_min, kv_max, len = p->seq_len;

    hcp_model_hull(problem_model(p, r), p->causal, &q_min, &q_max, &kv_min, &kv_max);
    if (!p->extrapolate && q_max > 0 && kv_max > 0) {
        len = len < q_max ? len : q_max;
        len = len < kv_max ? len : kv_max;
        len = len > q_min ? len : q_min;
        len = len > kv_min ? len : kv_min;
    }
    return throughput(p, r, p->causal, len);
}

/* The most a rank can be expected to do in any split: the largest throughput on blocks
 * between an even share and the whole. Bounds what a subset of ranks can reach; the
 * margin for what lies between the probes is in hopeless(). */
static double peak_speed(const struct problem *p, size_t r, double whole)
{
    int64_t part = p->seq_len / (int64_t)p->n;
    int64_t lens[3] = {p->seq_len, p->seq_len / 2, part > p->tile ? part : p->tile};
    double most = whole;

    for (int i = 0; i < 3; i++) {
        for (int causal = 0; causal <= p->causal; causal++) {
            double v = lens[i] > 0 ? throughput(p, r, causal, lens[i]) : 0;

            most = v > most ? v : most;
        }
    }
    return most;
}

void strategy_speeds(const struct problem *p, struct scratch *s)
{
    double *whole = s->probe, *peak = s->probe + 2 * p->n;

    for (int32_t id = 0; id < p->ring->n_ids; id++)
        whole[id] = -1;
    for (size_t r = 0; r < p->n; r++) {
        int32_t id = p->ring->ranks[r].id[p->kind];

        if (whole[id] < 0) {
            whole[id] = whole_speed(p, r);
            peak[id] = peak_speed(p, r, whole[id]);
        }
        s->whole[r] = whole[id];
        s->peak[r] = peak[id];
        s->value[r] = p->linear ? layer_speed(p, r, whole[id]) : whole[id];
        s->slow_order[r] = (int32_t)r;
    }
    /* Slowest first; of equal ranks the later is left out first. */
    sort_descending(s->value, s->slow_order, p->n);
    for (size_t i = 0, j = p->n - 1; i < j; i++, j--) {
        int32_t swap = s->slow_order[i];

        s->slow_order[i] = s->slow_order[j];
        s->slow_order[j] = swap;
    }
}

/* Can these ranks not get below a time, whatever the split? 10 % margin, see above. */
static int hopeless(const struct problem *p, struct scratch *s, double peak_sum,
                    double limit_ms)
{
    if (!p->linear)
        return total_area(p) >= 1.1 * peak_sum * limit_ms;
    for (size_t r = 0; r < p->n; r++)
        s->speed[r] = s->allowed[r] ? s->peak[r] : 0;
    return layer_shares(p, s->speed, s->weight) >= 1.1 * limit_ms;
}

/* ---- rules ---- */

/* Shares by s->weight where caps are in bytes: if these do not fit, under the caps of a
 * box of splits that do, one in which the weights are kept best. */
static int share_in_memory(const struct problem *p, struct scratch *s, int64_t *tokens)
{
    struct problem boxed = *p;
    struct memory_shape box[MEMORY_BOXES];
    int n;

    if (round_shares(p, s, s->weight, tokens) == 0 &&
        memory_fits(p, p->n, NULL, tokens, s->largest))
        return 0;
    boxed.cap = s->box;
    n = memory_best_boxes(p, NULL, s->weight, box, s->box);
    for (int i = 0; i <= n; i++) {
        int left = i < n ? memory_box(p, NULL, &box[i], s->box) == 0
                         : memory_shortfall(p, NULL, s->box) == 0;

        if (left && round_shares(&boxed, s, s->weight, tokens) == 0 &&
            memory_fits(p, p->n, NULL, tokens, s->largest))
            return 0;
    }
    return -1;
}

int strategy_share(const struct problem *p, struct scratch *s, enum rule rule,
                   int64_t *tokens)
{
    double most = 0;

    for (size_t r = 0; r < p->n; r++) {
        double percent = p->ring->ranks[r].nominal;

        most = percent > most ? percent : most;
    }
    for (size_t r = 0; r < p->n; r++)
        s->weight[r] = rule == RULE_EVEN ? 1
                       : rule == RULE_NOMINAL
                           ? p->ring->ranks[r].nominal / most /* equal ones: even */
                       : p->linear ? layer_speed(p, r, s->whole[r])
                                   : s->whole[r];
    if (!p->memory)
        return round_shares(p, s, s->weight, tokens);
    return share_in_memory(p, s, tokens);
}

/* Whether it stays inside the measured lengths, if that matters. */
static struct score with_source(const struct problem *p, struct scratch *s,
                                struct score score, const int64_t *tokens)
{
    if (!p->extrapolate && !score.none)
        score.source = eval_source(p, s, tokens);
    return score;
}

struct score strategy_even(const struct problem *p, struct scratch *s, double limit_ms,
                           int64_t *tokens)
{
    struct score score;

    if (strategy_share(p, s, RULE_EVEN, tokens))
        return (struct score){1, 0, 0, 0};
    score = eval_split(p, s, tokens, limit_ms, NULL);
    if (score.gave_up)
        return (struct score){1, 1, 0, 0};
    return with_source(p, s, score, tokens);
}

size_t strategy_next_drop(const struct problem *p, const struct scratch *s, size_t k)
{
    for (k++; p->n > 64 && k < p->n; k++) {
        int32_t last = s->slow_order[k - 1], next = s->slow_order[k];

        if (((k & (k - 1)) == 0 && 16 * k >= p->n) ||
            !hcp_model_alike(problem_model(p, (size_t)last),
                             problem_model(p, (size_t)next)))
            break;
    }
    return k;
}

/* Ranks without the `out` slowest ones into s->allowed; the sum of their peak speeds. */
static double allow_but(const struct problem *p, struct scratch *s, size_t out)
{
    double peak = 0;

    memset(s->allowed, 1, p->n);
    for (size_t k = 0; k < out; k++)
        s->allowed[s->slow_order[k]] = 0;
    for (size_t k = out; k < p->n; k++)
        peak += s->peak[s->slow_order[k]];
    return peak;
}

struct score strategy_drop(const struct problem *p, struct scratch *s, double limit_ms,
                           int64_t *tokens)
{
    struct score best = {1, 0, 0, 0}, score;
    int64_t *trial = s->tokens[TOK_OTHER];
    size_t known = 0;    /* the set that s->busy and tokens are of; 0: none */
    double estimate = 0; /* of the last set that was given up: fewer ranks take longer */
    int exact;

    if (p->n < 2)
        return best;
    for (size_t k = strategy_next_drop(p, s, 0); k < p->n;
         k = strategy_next_drop(p, s, k)) {
        double peak = allow_but(p, s, k);

        if (hopeless(p, s, peak, limit_ms))
            break;
        if (reach_hopeless(p, s, s->allowed, estimate, limit_ms))
            continue;
        if (known > 0 && !reach_without(p, s, tokens, s->allowed, limit_ms))
            continue;
        score = solve(p, s, s->allowed, limit_ms, trial, &exact);
        estimate = score.gave_up ? s->estimate_ms : 0;
        known = 0;
        if (!score.none && !score.gave_up && score.ms < limit_ms) {
            best = score;
            known = k;
            limit_ms = score.ms;
            memcpy(tokens, trial, p->n * sizeof *tokens);
            if (exact && k > 1) { /* as four ranks of these alone are answered */
                allow_but(p, s, k - 1);
                score = solve_from(p, s, s->allowed, trial);
                if (!score.gave_up && score_less(score, best)) {
                    best = score;
                    limit_ms = score.ms;
                    memcpy(tokens, trial, p->n * sizeof *tokens);
                }
            }
        }
        if (exact) /* over all subsets of what is left */
            break;
    }
    return with_source(p, s, best, tokens);
}

/* The split that leaves out the ranks of a set, if it is below best; then 1. */
static int leave_out(const struct problem *p, struct scratch *s, uint64_t set,
                     struct score *best, int64_t *tokens)
{
    int64_t *trial = s->tokens[TOK_OTHER];
    struct score score;
    double peak = 0;
    int exact;

    for (size_t r = 0; r < p->n; r++) {
        s->allowed[r] = !(set >> r & 1);
        peak += s->allowed[r] ? s->peak[r] : 0;
    }
    if (hopeless(p, s, peak, best->ms))
        return 0;
    score = solve(p, s, s->allowed, best->ms, trial, &exact);
    if (score.none || score.gave_up || score.ms >= best->ms)
        return 0;
    *best = score;
    memcpy(tokens, trial, p->n * sizeof *tokens);
    return 1;
}

enum { FEW = 3 };

struct score strategy_subset(const struct problem *p, struct scratch *s, double limit_ms,
                             int64_t *out)
{
    struct score best = {0, 1, 0, limit_ms};
    uint64_t gone = 0, next = 0;

    if (p->n < 2 || p->n > 16)
        return best;
    if (p->n <= 6) {
        for (uint64_t set = 1; set + 1 < (uint64_t)1 << p->n; set++)
            leave_out(p, s, set, &best, out);
        return best;
    }
    for (size_t left = p->n; left > 1; left--) {
        for (size_t r = 0; r < p->n; r++) {
            uint64_t set = gone | (uint64_t)1 << r;

            if (set != gone && leave_out(p, s, set, &best, out))
                next = set;
        }
        if (next == gone)
            break;
        gone = next;
    }
    /* Where caps keep every larger ring slow, that way does not lead to a few ranks. */
    for (uint64_t set = 1; p->memory && p->n <= MEMORY_SUBSETS && set >> p->n == 0; set++)
        if (p->n - (size_t)__builtin_popcountll(set) <= FEW &&
            p->n > (size_t)__builtin_popcountll(set))
            leave_out(p, s, set, &best, out);
    return best;
}
