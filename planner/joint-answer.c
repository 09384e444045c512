/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/joint.h"

static int wanted(const struct problem *p, hcp_strategy strategy)
{
    return p->joint && (strategy == HCP_STRATEGY_BEST || strategy == HCP_STRATEGY_LUT ||
                        strategy == HCP_STRATEGY_POLY);
}

static int unknown(const struct problem *p, struct score score)
{
    return score.none || (score.source == HCP_FROM_EXTRAPOLATED && !p->extrapolate);
}

/* The best joint split in p's layout by models of a kind, judged by the best ones, into
 * TOK_JOINT_HERE_Q and _KV. tied: the answer of p's layout, NULL where it is another's.
 */
static struct score decide_layout(const struct problem *p, struct scratch *s,
                                  hcp_model_kind kind, const struct answer *tied,
                                  int *exact)
{
    struct problem by = *p;
    int64_t *q = s->tokens[TOK_JOINT_HERE_Q], *kv = s->tokens[TOK_JOINT_HERE_KV];
    struct score score;

    by.kind = kind;
    if (tied) {
        score = tied->score;
        memcpy(q, tied->tokens, p->n * sizeof *q);
    } else {
        memset(s->allowed, 1, p->n);
        memo_reset(&s->memo);
        score = solve(&by, s, s->allowed, HUGE_MS, q, exact);
        memo_reset(&s->memo);
    }
    memcpy(kv, q, p->n * sizeof *kv);
    score = joint_search(&by, s, score, q, kv, exact);
    return kind == p->kind || score.none ? score : joint_eval(p, s, q, kv, HUGE_MS, NULL);
}

static void keep_times(const struct problem *p, struct scratch *s)
{
    memcpy(s->plan_fin, s->fin, p->n * sizeof *s->fin);
    memcpy(s->plan_busy, s->busy, p->n * sizeof *s->busy);
}

void joint_decide(struct problem *p, struct scratch *s, const hcp_question *question,
                  struct answer *answer)
{
    hcp_layout layouts[3] = {p->layout}, best_layout = p->layout;
    int n = 1, best_exact = 0;
    struct score best = {1, 0, 0, 0};
    int64_t *q = s->tokens[TOK_JOINT_PLAN_Q], *kv = s->tokens[TOK_JOINT_PLAN_KV];
    hcp_model_kind kind = question->strategy == HCP_STRATEGY_LUT    ? HCP_MODEL_LUT
                          : question->strategy == HCP_STRATEGY_POLY ? HCP_MODEL_POLY
                                                                    : HCP_MODEL_BEST;

    if (!wanted(p, question->strategy))
        return;
    answer->tied = answer->score;
    if (question->strategy == HCP_STRATEGY_BEST)
        n = strategy_layouts(p, question->layout, layouts);
    for (int i = 0; i < n; i++) {
        int exact;
        struct score score;

        problem_set_layout(p, layouts[i]);
        score = decide_layout(p, s, kind, layouts[i] == answer->layout ? answer : NULL,
                              &exact);
        if (!score_less(score, best))
            continue;
        best = score;
        best_exact = exact && (kind == p->kind || strategy_same_models(p->ring, kind));
        best_layout = layouts[i];
        memcpy(q, s->tokens[TOK_JOINT_HERE_Q], p->n * sizeof *q);
        memcpy(kv, s->tokens[TOK_JOINT_HERE_KV], p->n * sizeof *kv);
    }
    if (best.none) { /* none inside the measured lengths: the tied one, whatever it is */
        best_layout = answer->layout;
        memcpy(q, answer->tokens, p->n * sizeof *q);
        memcpy(kv, answer->tokens, p->n * sizeof *kv);
    }
    problem_set_layout(p, best_layout);
    best = joint_eval(p, s, q, kv, HUGE_MS, NULL);
    best.source = joint_source(p, s, q, kv);
    keep_times(p, s);
    /* The tied split is among those looked at: what it is faster by is rounding. */
    if (kind == p->kind && !unknown(p, answer->tied) && answer->tied.ms < best.ms)
        answer->tied.ms = best.ms;
    answer->score = best;
    answer->layout = best_layout;
    answer->tokens = q;
    answer->kv = kv;
    answer->exact = best_exact;
}

void joint_given(const struct problem *p, struct scratch *s, const int64_t *q,
                 const int64_t *kv, struct answer *answer)
{
    int64_t *own_q = s->tokens[TOK_JOINT_PLAN_Q], *own_kv = s->tokens[TOK_JOINT_PLAN_KV];

    memcpy(own_q, q, p->n * sizeof *q);
    memcpy(own_kv, kv, p->n * sizeof *kv);
    answer->tied = answer->score; /* of the same queries, KV with them */
    for (size_t r = 0; r < p->n; r++)
        answer->tied.none |= q[r] > p->cap[r];
    if (p->memory) {
        answer->tied.none |= !memory_fits(p, p->n, NULL, q, s->largest);
        answer->even = strategy_even(p, s, HUGE_MS, s->tokens[TOK_OTHER]);
        answer->drop = strategy_drop(p, s, HUGE_MS, s->tokens[TOK_DROP]);
    }
    answer->score = joint_eval(p, s, own_q, own_kv, HUGE_MS, NULL);
    answer->score.source = joint_source(p, s, own_q, own_kv);
    keep_times(p, s);
    answer->tokens = own_q;
    answer->kv = own_kv;
}
