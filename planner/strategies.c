/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/joint.h"

/* A split under trial goes into TOK_OTHER (by rule) or TOK_CUR (by the solver); the
 * fastest of all so far is in TOK_PLAN. */

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

enum rule { RULE_EVEN, RULE_NOMINAL, RULE_PROPORTIONAL };

/* Shares by s->weight where caps are in bytes: if these do not fit, under the caps of a box
 * of splits that do, one in which the weights are kept best. */
static int share_in_memory(const struct problem *p, struct scratch *s, int64_t *tokens)
{
    struct problem boxed = *p;
    struct memory_shape box[MEMORY_BOXES];
    int n;

    if (round_shares(p, s, s->weight, tokens) == 0 && memory_fits(p, p->n, NULL, tokens, s->largest))
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

static int share_by_rule(const struct problem *p, struct scratch *s, enum rule rule,
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

    if (share_by_rule(p, s, RULE_EVEN, tokens))
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

/* Ranks up to which caps in bytes alone are a reason to look at subsets. */
enum { MEMORY_SUBSETS = 8, FEW = 3 };

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

/* ---- best ---- */

struct contest {
    struct problem *p;
    struct scratch *s;
    struct answer answer;    /* tokens in TOK_PLAN */
    struct score even, drop; /* of the layout looked at last */
    struct score fastest_even, fastest_drop; /* of those before it */
    double estimate_ms[HCP_LAYOUT_STRIPED + 1]; /* by layout; 0: not known */
    hcp_layout known_layout; /* AUTO: none */
    struct score known_even; /* of that layout */
    int timed;               /* plan_fin and plan_busy are those of the answer */
};

static void enter(struct contest *c, struct score score, const int64_t *tokens, int exact,
                  int timed)
{
    size_t bytes = c->p->n * sizeof *c->s->fin;

    if (!score_less(score, c->answer.score))
        return;
    c->answer.score = score;
    c->answer.layout = c->p->layout;
    c->answer.exact = exact;
    memcpy(c->s->tokens[TOK_PLAN], tokens, c->p->n * sizeof *tokens);
    c->timed = timed; /* s->fin and s->busy are of this very split */
    if (timed) {
        memcpy(c->s->plan_fin, c->s->fin, bytes);
        memcpy(c->s->plan_busy, c->s->busy, bytes);
    }
}

/* Evaluates a split and enters it. */
static void enter_split(struct contest *c, const int64_t *tokens, int exact)
{
    struct score score = eval_split(c->p, c->s, tokens, HUGE_MS, NULL);

    enter(c, score, tokens, exact, 1);
}

static double limit_of(const struct contest *c)
{
    return c->answer.score.none ? HUGE_MS : c->answer.score.ms;
}

/* What an even split or a drop set has to be faster than to count: that of the layouts
 * before, unless it needs unmeasured lengths. The margin is for another order of adding. */
static double limit_by(const struct contest *c, const struct score *before)
{
    if (before->none || (before->source == HCP_FROM_EXTRAPOLATED && !c->p->extrapolate))
        return HUGE_MS;
    return before->ms * (1 + 1e-9);
}

static void enter_rule(struct contest *c, enum rule rule)
{
    int64_t *tokens = c->s->tokens[TOK_OTHER];
    int rough, differs = rule != RULE_NOMINAL;
    double limit;

    for (size_t r = 1; r < c->p->n && !differs; r++)
        differs = c->p->ring->ranks[r].nominal != c->p->ring->ranks[0].nominal;
    if (!differs) /* the same as even */
        return;
    if (share_by_rule(c->p, c->s, rule, tokens))
        return;
    /* Busy time alone is a lower bound and much cheaper than the recurrence. */
    /* (In few ranks' splits another order of adding can tell two of them apart.) */
    limit = limit_of(c) * (c->p->n > 8 ? 1 : 1 + 1e-9);
    if (eval_busy(c->p, c->s, tokens, &rough) >= limit && !rough)
        return;
    enter_split(c, tokens, 0);
}

int strategy_same_models(const struct hcp_ring *ring, hcp_model_kind kind)
{
    for (size_t r = 0; r < ring->n; r++)
        if (ring->ranks[r].model[kind] != ring->ranks[r].model[HCP_MODEL_BEST])
            return 0;
    return 1;
}

/* What the solver would choose by other models, judged by the best ones. */
static void enter_kind(struct contest *c, hcp_model_kind kind)
{
    struct problem other;
    int exact;

    if (!c->p->ring->has[kind] || strategy_same_models(c->p->ring, kind))
        return;
    other = *c->p;
    other.kind = kind;
    memset(c->s->allowed, 1, c->p->n);
    if (!solve(&other, c->s, c->s->allowed, HUGE_MS, c->s->tokens[TOK_CUR], &exact).none)
        enter_split(c, c->s->tokens[TOK_CUR], 0);
}

/* What is best for whole blocks: exact for few ranks, which pieces never are. */
static void enter_whole(struct contest *c)
{
    struct problem whole;
    struct scratch *s = c->s;
    int exact, none;

    if (c->p->sub_blocks == 1 || c->p->n > 3)
        return;
    whole = *c->p;
    whole.sub_blocks = 1;
    memset(s->allowed, 1, c->p->n);
    memo_reset(&s->memo);
    none = solve(&whole, s, s->allowed, HUGE_MS, s->tokens[TOK_CUR], &exact).none;
    memo_reset(&s->memo);
    if (!none)
        enter_split(c, s->tokens[TOK_CUR], 0);
}

/* Is a rank's memory too small for the sequence? Then the slowest ranks may be those to
 * keep. */
static int caps_bind(const struct problem *p)
{
    for (size_t r = 0; r < p->n; r++)
        if (memory_tokens_alone(p, r) < p->seq_len)
            return 1;
    return 0;
}

/* The best of those that leave out ranks which need not be the slowest. */
static void enter_subset(struct contest *c)
{
    struct problem quick = *c->p;
    struct scratch *s = c->s;
    struct score score;
    int exact;

    quick.thorough = c->p->any_subset;
    score = strategy_subset(&quick, s, limit_of(c), s->tokens[TOK_DROP]);
    if (score.gave_up)
        return;
    enter(c, score, s->tokens[TOK_DROP], 0, 0);
    if (quick.thorough)
        return;
    for (size_t r = 0; r < c->p->n; r++)
        s->allowed[r] = s->tokens[TOK_DROP][r] > 0;
    score = solve(c->p, s, s->allowed, limit_of(c), s->tokens[TOK_CUR], &exact);
    if (!score.gave_up)
        enter(c, score, s->tokens[TOK_CUR], 0, 0);
}

/* The even split of known_layout, whose score is known already, into TOK_OTHER. */
static struct score known_even(struct contest *c)
{
    if (share_by_rule(c->p, c->s, RULE_EVEN, c->s->tokens[TOK_OTHER]))
        return (struct score){1, 0, 0, 0};
    return c->known_even;
}

static void enter_layout(struct contest *c, hcp_layout layout)
{
    struct problem *p = c->p;
    struct scratch *s = c->s;
    /* A set of three can be above the limit, and four ranks from there on below it. */
    int fours = p->n <= 64 && p->causal && layout == HCP_LAYOUT_CONTIGUOUS;
    double drop_limit = fours ? HUGE_MS : limit_by(c, &c->fastest_drop);
    struct score score;
    int exact;

    problem_set_layout(p, layout);
    memo_reset(&s->memo);
    memset(s->allowed, 1, p->n);
    s->full = 0;
    score = solve(p, s, s->allowed, limit_of(c), s->tokens[TOK_CUR], &exact);
    if (score.gave_up)
        c->estimate_ms[layout] = s->estimate_ms;
    enter(c, score, s->tokens[TOK_CUR], exact, p->n > 3); /* exact: no times left */
    c->even = layout == c->known_layout
                  ? known_even(c)
                  : strategy_even(p, s, limit_by(c, &c->fastest_even),
                                  s->tokens[TOK_OTHER]);
    if (exact) { /* nothing in this layout is faster */
        c->drop = strategy_drop(p, s, drop_limit, s->tokens[TOK_DROP]);
        return;
    }
    enter(c, c->even, s->tokens[TOK_OTHER], 0, layout != c->known_layout);
    enter_rule(c, RULE_NOMINAL);
    enter_rule(c, RULE_PROPORTIONAL);
    enter_kind(c, HCP_MODEL_LUT);
    enter_kind(c, HCP_MODEL_POLY);
    enter_whole(c);
    memset(s->allowed, 1, p->n);
    if (reach_hopeless(p, s, s->allowed, c->estimate_ms[layout], drop_limit))
        c->drop = (struct score){1, 0, 0, 0};
    else
        c->drop = strategy_drop(p, s, drop_limit, s->tokens[TOK_DROP]);
    enter(c, c->drop, s->tokens[TOK_DROP], 0, 0);
    if (p->n == 4 && !c->drop.none && c->drop.ms <= limit_of(c)) {
        /* The rank left out may be worth a little. */
        memset(s->allowed, 1, p->n);
        score = solve_from(p, s, s->allowed, s->tokens[TOK_DROP]);
        if (!score.gave_up)
            enter(c, score, s->tokens[TOK_DROP], 0, 0);
    }
    if (p->n == 4 && p->causal && layout == HCP_LAYOUT_CONTIGUOUS && p->sub_blocks == 1 &&
        !p->two_level) {
        score = solve_four(p, c->answer.score, s->tokens[TOK_DROP]);
        if (score_less(score, c->answer.score))
            enter(c, score, s->tokens[TOK_DROP], 0, 0);
    }
    if (p->any_subset ||
        (p->memory && p->n <= MEMORY_SUBSETS && (s->full || caps_bind(p))))
        enter_subset(c);
}

/* The faster of two splits to compare an answer with; one that needs unmeasured lengths
 * only without another. */
static struct score faster(const struct problem *p, struct score a, struct score b)
{
    int a_unknown = a.source == HCP_FROM_EXTRAPOLATED && !p->extrapolate;
    int b_unknown = b.source == HCP_FROM_EXTRAPOLATED && !p->extrapolate;

    if (!a.none && !b.none && a_unknown != b_unknown)
        return a_unknown ? b : a;
    return score_less(b, a) ? b : a;
}

/* Ranks from which on it pays to look which layout is the most promising. */
enum { MANY_RANKS = 65 };

/* Layouts that promise most come first: the others then mostly show soon that they are
 * slower. Of even splits the fastest does, and is evaluated here; it need not be in the
 * same layout. */
static void order_layouts(struct contest *c, hcp_layout *layouts, int n)
{
    struct problem *p = c->p;
    struct scratch *s = c->s;
    double estimate[3] = {0}, even_ms[3];
    int fastest = 0, rough;

    for (int i = 0; i < n; i++) {
        hcp_layout layout = layouts[i];
        double ms, even = HUGE_MS;
        int at = i;

        problem_set_layout(p, layout);
        memo_reset(&s->memo);
        if (share_by_rule(p, s, RULE_EVEN, s->tokens[TOK_OTHER]) == 0)
            even = eval_busy_about(p, s, s->tokens[TOK_OTHER], &rough);
        memset(s->allowed, 1, p->n);
        ms = c->estimate_ms[layout] = solve_estimate(p, s, s->allowed);
        for (; at > 0 && estimate[at - 1] > ms; at--) {
            estimate[at] = estimate[at - 1];
            even_ms[at] = even_ms[at - 1];
            layouts[at] = layouts[at - 1];
        }
        estimate[at] = ms;
        even_ms[at] = even;
        layouts[at] = layout;
    }
    for (int i = 1; i < n; i++)
        fastest = even_ms[i] < even_ms[fastest] ? i : fastest;
    c->known_layout = layouts[fastest];
    problem_set_layout(p, c->known_layout);
    memo_reset(&s->memo);
    c->known_even = strategy_even(p, s, HUGE_MS, s->tokens[TOK_OTHER]);
}

/* Tries the layouts in turn. The fastest split in a layout may need block times outside
 * the measured lengths; another layout's answer that does not is then worth more, and
 * what the first layout could do does not count. */
static void enter_layouts(struct contest *c, hcp_layout *layouts, int n)
{
    const struct problem *p = c->p;
    struct scratch *s = c->s;
    struct answer unknown = {.score = {1, 0, 0, 0}};
    struct score even = {1, 0, 0, 0}, drop = even;
    size_t bytes = p->n * sizeof *s->tokens[TOK_PLAN];
    unsigned refused = 0;

    if (n > 1 && p->n >= MANY_RANKS && !p->memory && p->sub_blocks == 1)
        order_layouts(c, layouts, n);
    for (int i = 0; i < n; i++) {
        struct answer kept = c->answer;

        memcpy(s->tokens[TOK_KEPT], s->tokens[TOK_PLAN], kept.score.none ? 0 : bytes);
        c->fastest_even = c->known_layout ? c->known_even : even;
        c->fastest_drop = drop;
        enter_layout(c, layouts[i]);
        if (p->extrapolate || n == 1 || c->answer.score.none ||
            c->answer.layout != layouts[i] ||
            eval_source(p, s, s->tokens[TOK_PLAN]) != HCP_FROM_EXTRAPOLATED) {
            even = faster(p, even, c->even);
            drop = faster(p, drop, c->drop);
            continue;
        }
        if (score_less(c->answer.score, unknown.score)) {
            unknown = c->answer;
            memcpy(s->tokens[TOK_UNKNOWN], s->tokens[TOK_PLAN], bytes);
        }
        refused |= 1u << layouts[i];
        c->answer = kept;
        memcpy(s->tokens[TOK_PLAN], s->tokens[TOK_KEPT], kept.score.none ? 0 : bytes);
        c->timed = 0;
    }
    if (c->answer.score.none) {
        c->answer = unknown;
        memcpy(s->tokens[TOK_PLAN], s->tokens[TOK_UNKNOWN],
               unknown.score.none ? 0 : bytes);
    }
    for (int i = 0; c->known_layout && refused >> c->known_layout & 1 && i < n; i++) {
        /* Others had to be faster than an even split that does not count. */
        if (refused >> layouts[i] & 1)
            continue;
        problem_set_layout(c->p, layouts[i]);
        memo_reset(&s->memo);
        even = faster(p, even, strategy_even(p, s, HUGE_MS, s->tokens[TOK_OTHER]));
    }
    c->answer.even = even;
    c->answer.drop = drop;
}

int strategy_layouts(const struct problem *p, hcp_layout layout, hcp_layout out[3])
{
    out[0] = layout;
    if (layout != HCP_LAYOUT_AUTO)
        return 1;
    out[0] = p->causal ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS;
    out[1] = HCP_LAYOUT_CONTIGUOUS;
    out[2] = HCP_LAYOUT_STRIPED;
    return p->causal ? 3 : 1;
}

static void decide_best(struct contest *c, hcp_layout layout)
{
    hcp_layout layouts[3];
    int n = strategy_layouts(c->p, layout, layouts);

    enter_layouts(c, layouts, n);
}

static hcp_status decide_kind(struct contest *c, hcp_model_kind kind, char *text,
                              size_t text_size)
{
    const struct hcp_ring *ring = c->p->ring;
    struct problem other = *c->p;
    int64_t *tokens = c->s->tokens[TOK_CUR];
    int exact;

    for (size_t r = 0; r < ring->n; r++) {
        const hcp_rank *spec = &ring->ranks[r].spec;

        if (!ring->ranks[r].model[kind])
            return plan_fail(
                text, text_size, HCP_STATUS_NO_MODEL,
                "no %s model of '%s%s%s' (rank %zu, %s) in %s; run 'hcp-plan "
                "fit --db %s'",
                kind == HCP_MODEL_LUT ? "lut" : "poly", spec->device,
                spec->limit[0] ? "@" : "", spec->limit, r, ring->provider,
                ring->models->path, ring->models->path);
    }
    other.kind = kind;
    memset(c->s->allowed, 1, c->p->n);
    if (solve(&other, c->s, c->s->allowed, HUGE_MS, tokens, &exact).none)
        return HCP_STATUS_OK;
    enter_split(c, tokens, exact && strategy_same_models(ring, kind));
    return HCP_STATUS_OK;
}

int strategy_tokens(const struct problem *p, struct scratch *s, hcp_strategy strategy,
                    int64_t *tokens)
{
    struct problem other = *p;
    int exact;

    if (strategy <= HCP_STRATEGY_PROPORTIONAL)
        return share_by_rule(p, s, (enum rule)strategy, tokens);
    other.kind = strategy == HCP_STRATEGY_LUT ? HCP_MODEL_LUT : HCP_MODEL_POLY;
    if (!p->ring->has[other.kind])
        return -1;
    memset(s->allowed, 1, p->n);
    return solve(&other, s, s->allowed, HUGE_MS, tokens, &exact).none ? -1 : 0;
}

/* What is known beside the split once it is chosen. even: already known, NULL if not. */
static void complete(struct contest *c, const struct score *even)
{
    const struct problem *p = c->p;
    struct scratch *s = c->s;

    c->answer.tokens = s->tokens[TOK_PLAN];
    c->answer.even =
        even ? *even : strategy_even(p, s, HUGE_MS, s->tokens[TOK_OTHER]);
    c->answer.drop = strategy_drop(p, s, HUGE_MS, s->tokens[TOK_DROP]);
}

void strategy_given(const struct problem *p, struct scratch *s, const int64_t *tokens,
                    struct answer *out)
{
    struct problem mutable = *p;
    struct contest c = {.p = &mutable, .s = s, .answer.score = {1, 0, 0, 0}};

    memcpy(s->tokens[TOK_CUR], tokens, p->n * sizeof *tokens);
    enter_split(&c, s->tokens[TOK_CUR], 0);
    complete(&c, NULL);
    c.answer.score.source = eval_source(p, s, c.answer.tokens);
    *out = c.answer;
}

hcp_status strategy_decide(struct problem *p, struct scratch *s,
                           const hcp_question *question, char *text, size_t text_size,
                           struct answer *out)
{
    struct contest c = {.p = p, .s = s, .answer.score = {1, 0, 0, 0}};
    hcp_status status = HCP_STATUS_OK;
    hcp_layout first = question->layout != HCP_LAYOUT_AUTO ? question->layout
                       : p->causal                         ? HCP_LAYOUT_ZIGZAG
                                                           : HCP_LAYOUT_CONTIGUOUS;

    if (p->layout != first) /* what an answer before this has left there */
        memo_reset(&s->memo);
    problem_set_layout(p, first);
    switch (question->strategy) {
    case HCP_STRATEGY_EVEN:
    case HCP_STRATEGY_NOMINAL:
    case HCP_STRATEGY_PROPORTIONAL:
        if (share_by_rule(p, s, (enum rule)question->strategy, s->tokens[TOK_OTHER]) == 0)
            enter_split(&c, s->tokens[TOK_OTHER], 0);
        break;
    case HCP_STRATEGY_LUT:
        status = decide_kind(&c, HCP_MODEL_LUT, text, text_size);
        break;
    case HCP_STRATEGY_POLY:
        status = decide_kind(&c, HCP_MODEL_POLY, text, text_size);
        break;
    default:
        decide_best(&c, question->layout);
    }
    if (status)
        return status;
    if (c.answer.score.none)
        return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                         "no split under these caps in tiles of %lld tokens",
                         (long long)p->tile);
    if (p->layout != c.answer.layout || question->order) {
        problem_set_layout(p, c.answer.layout);
        memo_reset(&s->memo); /* orders are compared in other layouts, too */
    }
    c.answer.tokens = s->tokens[TOK_PLAN];
    if (question->strategy != HCP_STRATEGY_BEST && !p->comparing)
        complete(&c, question->strategy == HCP_STRATEGY_EVEN ? &c.answer.score : NULL);
    if (!c.timed) {
        c.answer.score = eval_split(p, s, c.answer.tokens, HUGE_MS, NULL);
        memcpy(s->plan_fin, s->fin, p->n * sizeof *s->fin);
        memcpy(s->plan_busy, s->busy, p->n * sizeof *s->busy);
    }
    c.answer.score.source = eval_source(p, s, c.answer.tokens);
    joint_decide(p, s, question, &c.answer);
    *out = c.answer;
    return HCP_STATUS_OK;
}
