/* SPDX-License-Identifier: Apache-2.0
 *
 * KV that comes late travels late. Where a cap forbids balance, a rank may have its K and
 * V long after the others: it has more linear work before its ring than they, or more
 * tokens than its link takes in a step. In turn, those behind it would wait for it with
 * other KV at hand. This searches for the slots (ring-late.c) by which each rank's KV is
 * to be late: all of them for up to four ranks with tokens; for more, the best of the
 * slowest-to-be-ready ranks last and of each rank alone last, and from there down, rank
 * by rank. Splits and slots are found in turn, each for the other, until neither helps.
 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

enum { ALL_SLOTS = 4, ROUNDS = 4 };

struct late_search {
    struct problem *p;
    struct scratch *s;
    struct score
        best; /* of TOK_KEPT with s->slots_best in layout; source: if it matters */
    hcp_layout layout;
    int32_t rank[LATE_RANKS]; /* those whose KV is sent */
    int32_t n, most;          /* their number, largest slot that is tried */
    int budget;
    int glance; /* orders are compared: less is looked at where that is much */
};

static struct score with_slots(struct late_search *q, const int64_t *tokens,
                               const int32_t *slots, double limit_ms)
{
    q->budget--;
    q->p->slots = slots;
    return eval_split(q->p, q->s, tokens, limit_ms, NULL);
}

static void find_senders(struct late_search *q, const int64_t *tokens)
{
    struct active *act = &q->s->act;

    memset(q->s->slots_here, 0, q->p->n * sizeof *q->s->slots_here);
    with_slots(q, tokens, q->s->slots_here, HUGE_MS); /* sets act and hops */
    q->n = 0;
    for (int32_t i = 0; i < act->m; i++)
        if (q->s->hops[i] > 0)
            q->rank[q->n++] = act->rank[i];
    q->most = act->m - 1;
}

/* s->slots_trial if it is faster than ms, into s->slots_here. */
static int try_slots(struct late_search *q, const int64_t *tokens, double *ms)
{
    struct score score = with_slots(q, tokens, q->s->slots_trial, HUGE_MS);

    if (score.ms >= *ms * (1 - 1e-9)) /* no slots for what is only rounding */
        return 0;
    *ms = score.ms;
    memcpy(q->s->slots_here, q->s->slots_trial, q->p->n * sizeof *q->s->slots_here);
    return 1;
}

/* Counts through all slots of all senders. */
static void try_all_slots(struct late_search *q, const int64_t *tokens, double *ms)
{
    int32_t *slots = q->s->slots_trial, i;

    do {
        try_slots(q, tokens, ms);
        for (i = 0; i < q->n && slots[q->rank[i]] == q->most; i++)
            slots[q->rank[i]] = 0;
        if (i < q->n)
            slots[q->rank[i]]++;
    } while (i < q->n);
}

/* The k ranks whose KV is ready last, k = 1, 2, ..., go last; so does each rank alone. */
static void try_latest(struct late_search *q, const int64_t *tokens, double *ms)
{
    struct scratch *s = q->s;
    const struct problem *p = q->p;

    for (int32_t i = 0; i < q->n; i++) {
        memset(s->slots_trial, 0, p->n * sizeof *s->slots_trial);
        s->slots_trial[q->rank[i]] = q->most;
        try_slots(q, tokens, ms);
    }
    memset(s->slots_trial, 0, p->n * sizeof *s->slots_trial);
    for (int32_t k = 1; p->linear && k < q->n; k++) {
        int32_t latest = -1;

        for (int32_t i = 0; i < q->n; i++) {
            size_t r = (size_t)q->rank[i];
            double ready = layer_before_ms(p, r, tokens[r]);

            if (s->slots_trial[r] == 0 &&
                (latest < 0 ||
                 ready > layer_before_ms(p, (size_t)latest, tokens[latest])))
                latest = (int32_t)r;
        }
        s->slots_trial[latest] = q->most;
        try_slots(q, tokens, ms);
    }
}

/* Candidates for one rank's slot: each, or in large rings the powers of two. */
static int32_t next_slot(const struct late_search *q, int32_t slot)
{
    int32_t next = q->most < 16 || slot < 2 ? slot + 1 : 2 * slot;

    return slot < q->most && next > q->most ? q->most : next;
}

static void descend(struct late_search *q, const int64_t *tokens, double *ms)
{
    struct scratch *s = q->s;
    size_t bytes = q->p->n * sizeof *s->slots_here;

    for (int again = 1; again && q->budget > 0;) {
        again = 0;
        for (int32_t i = 0; i < q->n; i++)
            for (int32_t slot = 0; slot <= q->most; slot = next_slot(q, slot)) {
                memcpy(s->slots_trial, s->slots_here, bytes);
                s->slots_trial[q->rank[i]] = slot;
                if (q->budget > 0 && slot != s->slots_here[q->rank[i]])
                    again |= try_slots(q, tokens, ms);
            }
        for (int32_t i = 0; !again && i < q->n; i++) /* and two that change places */
            for (int32_t k = 0; k < i; k++) {
                int32_t a = q->rank[i], b = q->rank[k];

                memcpy(s->slots_trial, s->slots_here, bytes);
                s->slots_trial[a] = s->slots_here[b];
                s->slots_trial[b] = s->slots_here[a];
                if (q->budget > 0 && s->slots_here[a] != s->slots_here[b])
                    again |= try_slots(q, tokens, ms);
            }
    }
}

/* The best slots found for a split, into s->slots_here; their time. */
static double find_slots(struct late_search *q, const int64_t *tokens)
{
    double ms = HUGE_MS;
    int32_t m;

    find_senders(q, tokens);
    m = q->most + 1;
    q->budget = q->glance ? 120 : m <= 8 ? 1500 : m <= 16 ? 800 : 300;
    memset(q->s->slots_trial, 0, q->p->n * sizeof *q->s->slots_trial);
    if (m > 2 && m <= ALL_SLOTS) {
        try_all_slots(q, tokens, &ms);
        return ms;
    }
    try_slots(q, tokens, &ms);
    if (m > 2) {
        try_latest(q, tokens, &ms);
        descend(q, tokens, &ms);
    }
    return ms;
}

static int known(const struct problem *p, struct score score)
{
    return !score.none && (p->extrapolate || score.source != HCP_FROM_EXTRAPOLATED);
}

/* The fastest of those inside the measured lengths; of others only where there is none.
 */
static void keep(struct late_search *q, const int64_t *tokens, double ms)
{
    struct problem *p = q->p;
    struct scratch *s = q->s;
    struct score score = {.ms = ms};

    if (known(p, q->best) && ms >= q->best.ms)
        return;
    if (!p->extrapolate)
        score.source = eval_source(p, s, tokens);
    if (!known(p, score) && !q->best.none && (known(p, q->best) || ms >= q->best.ms))
        return;
    q->best = score;
    q->layout = p->layout;
    memmove(s->tokens[TOK_KEPT], tokens, p->n * sizeof *tokens);
    memcpy(s->slots_best, s->slots_here, p->n * sizeof *s->slots_best);
}

/* From a split on, in p's layout. */
static void improve(struct late_search *q, const int64_t *tokens, int free_tokens)
{
    struct problem *p = q->p;
    struct scratch *s = q->s;
    struct score score;
    double ms;

    for (int round = 0; round < (q->glance && p->n > ALL_SLOTS ? 2 : ROUNDS); round++) {
        ms = find_slots(q, tokens);
        keep(q, tokens, ms);
        if (!free_tokens)
            break;
        p->slots = s->slots_here;
        memset(s->allowed, 1, p->n);
        score = solve_search(p, s, s->allowed, HUGE_MS, s->tokens[TOK_CUR]);
        if (score.none || score.ms >= ms)
            break;
        memcpy(s->tokens[TOK_DROP], s->tokens[TOK_CUR], p->n * sizeof *tokens);
        tokens = s->tokens[TOK_DROP];
    }
    p->slots = NULL;
}

/* The other strategies' splits: none of them is to be faster. */
static void try_others(struct late_search *q, int thorough)
{
    struct problem *p = q->p;
    int64_t *tokens = q->s->tokens[TOK_CUR];

    for (int i = HCP_STRATEGY_EVEN; i < HCP_STRATEGY_BEST; i++) {
        int none;

        p->thorough = thorough;
        none = strategy_tokens(p, q->s, (hcp_strategy)i, tokens);
        p->thorough = 1;
        if (!none)
            improve(q, tokens, 0);
    }
}

/* Splits of fewer ranks: of every set of few, of more without the slowest. */
static void try_fewer(struct late_search *q)
{
    struct problem *p = q->p;
    int64_t *tokens = q->s->tokens[TOK_CUR];
    int exact;

    if (p->n > ALL_SLOTS) {
        if (!strategy_drop(p, q->s, HUGE_MS, tokens).none)
            improve(q, tokens, 0);
        return;
    }
    for (unsigned set = 1; set + 1 < 1u << p->n; set++) {
        for (size_t r = 0; r < p->n; r++)
            q->s->allowed[r] = set >> r & 1;
        if (!solve(p, q->s, q->s->allowed, HUGE_MS, tokens, &exact).none)
            improve(q, tokens, 0);
    }
}

void late_decide(struct problem *p, struct scratch *s, const hcp_question *question,
                 int free_tokens, struct answer *out)
{
    struct late_search q = {.p = p, .s = s, .best = {1, 0, 0, 0}};
    int thorough = p->thorough, any_subset = p->any_subset, n = 1, exact;
    size_t bytes = p->n * sizeof *s->slots_plan;
    hcp_layout layouts[3];

    out->in_turn_ms = known(p, out->score) ? out->score.ms : NAN;
    free_tokens &= question->strategy == HCP_STRATEGY_BEST;
    p->thorough = p->any_subset = 1; /* moves between all pairs of ranks */
    memo_reset(&s->memo);
    improve(&q, s->tokens[TOK_PLAN], free_tokens);
    if (free_tokens)
        n = strategy_layouts(p, question->layout, layouts);
    for (int i = 0; free_tokens && i < n; i++) {
        problem_set_layout(p, layouts[i]);
        memo_reset(&s->memo);
        memset(s->allowed, 1, p->n);
        if (!solve(p, s, s->allowed, HUGE_MS, s->tokens[TOK_OTHER], &exact).none)
            improve(&q, s->tokens[TOK_OTHER], 1);
        try_fewer(&q);
        if (i == 0) /* the layout of the other strategies */
            try_others(&q, thorough);
    }
    p->thorough = thorough;
    p->any_subset = any_subset;
    problem_set_layout(p, q.layout);
    memo_reset(&s->memo);
    memcpy(s->tokens[TOK_PLAN], s->tokens[TOK_KEPT], p->n * sizeof *s->tokens[TOK_PLAN]);
    memcpy(s->slots_plan, s->slots_best, bytes);
    p->slots = s->slots_plan;
    p->late_bound = &out->late_bound_ms;
    out->score = eval_split(p, s, s->tokens[TOK_PLAN], HUGE_MS, NULL);
    p->late_bound = NULL;
    memcpy(s->plan_fin, s->fin, p->n * sizeof *s->fin);
    memcpy(s->plan_busy, s->busy, p->n * sizeof *s->busy);
    out->score.source = eval_source(p, s, s->tokens[TOK_PLAN]);
    out->layout = q.layout;
    out->exact &= p->n == 1;
}

double late_glance(struct problem *p, struct scratch *s, const int64_t *tokens,
                   int free_tokens)
{
    struct late_search q = {.p = p, .s = s, .best = {1, 0, 0, 0}, .glance = 1};

    improve(&q, tokens, free_tokens);
    return known(p, q.best) ? q.best.ms : HUGE_MS;
}

int late_bad(const hcp_plan *plan)
{
    int bad = 0;

    if (!plan->late_kv)
        return 0;
    for (size_t r = 0; r < plan->n_ranks && !bad; r++)
        bad = plan->ranks[r].late_slots < 0 || plan->ranks[r].late_slots >= LATE_RANKS;
    return bad || plan->n_ranks > LATE_RANKS || plan->sub_blocks > 1 || plan->barrier;
}

hcp_status late_check(int32_t sub_blocks, int32_t barrier, char *text, size_t text_size)
{
    if (sub_blocks <= 1 && !barrier)
        return HCP_STATUS_OK;
    return plan_fail(
        text, text_size, HCP_STATUS_INVALID,
        "late KV is for whole blocks without a barrier; leave sub_blocks at 1 "
        "and barrier at 0, or late_kv");
}
