/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/joint.h"
#include "planner/strategies.h"

/* A split under trial goes into TOK_OTHER (by rule) or TOK_CUR (by the solver); the
 * fastest of all so far is in TOK_PLAN. */

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
 * before, unless it needs unmeasured lengths. The margin is for another order of
 * adding. */
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
    if (strategy_share(c->p, c->s, rule, tokens))
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
    if (strategy_share(c->p, c->s, RULE_EVEN, c->s->tokens[TOK_OTHER]))
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
        if (strategy_share(p, s, RULE_EVEN, s->tokens[TOK_OTHER]) == 0)
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
        return strategy_share(p, s, (enum rule)strategy, tokens);
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
        if (!strategy_share(p, s, (enum rule)question->strategy, s->tokens[TOK_OTHER]))
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
