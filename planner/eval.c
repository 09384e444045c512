/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

/* The classes of a split into s->act, by few.c or the memo. */
static void classify(const struct problem *p, struct scratch *s, const int64_t *tokens)
{
    struct memo *memo = &s->memo;
    size_t bytes = p->n * sizeof *tokens;
    int few = few_possible(p), tables = tally_possible(p);

    if (few != memo->few || tables != memo->tables) {
        memo_reset(memo);
        memo->few = few;
        memo->tables = tables;
    }
    if (memo->holds && memo->held_kind == p->kind &&
        memcmp(memo->held, tokens, bytes) == 0)
        return;
    memo->holds = HOLDS_NOTHING;
    if (few)
        few_classes(p, s, tokens);
    else
        memo_find_classes(p, s, tokens);
    if (s->act.direct) { /* old classes may be in the way: once more with none */
        memo_reset(memo);
        memo_find_classes(p, s, tokens);
    }
    if (s->act.direct)
        return;
    memo->holds = HOLDS_CLASSES;
    memo->held_kind = p->kind;
    memcpy(memo->held, tokens, bytes);
}

static double sum_blocks(const struct problem *p, struct scratch *s, double limit_ms,
                         double *busy)
{
    return s->memo.few ? few_sum(p, s, limit_ms, busy) : memo_sum(p, s, limit_ms, busy);
}

/* Spreads values of active ranks over all ranks, from the end so that nothing is lost. */
static void spread(const struct problem *p, const struct active *act,
                   const int64_t *tokens, double *value)
{
    for (size_t r = p->n, i = (size_t)act->m; r-- > 0;)
        value[r] = tokens[r] > 0 ? value[--i] : 0;
}

struct direct {
    const struct problem *p;
    const struct active *act;
    double *busy;
};

/* Asks a model, and adds the answer to the rank's busy time: each block is asked once. */
static double ask_block(const void *ctx, int32_t i, int32_t j)
{
    const struct direct *d = ctx;
    double ms = cost_remote(d->p, problem_model(d->p, (size_t)d->act->rank[i]),
                            d->act->len[i], d->act->len[j], j < i, NULL);

    if (d->busy)
        d->busy[i] += ms;
    return ms;
}

struct score eval_split(const struct problem *p, struct scratch *s, const int64_t *tokens,
                        double limit_ms, hcp_step *steps)
{
    struct active *act = &s->act;
    struct direct direct = {p, act, p->links ? NULL : s->busy};
    struct eval_pieces pieces;
    struct ring_input in;
    struct score score;
    int linked = p->links || p->nodes.ranks > 0, by_rank; /* s->busy is, already */
    int32_t inner = 0;

    if (p->memory && !memory_fits(p, p->n, NULL, tokens, s->largest))
        return (struct score){1, 0, 0, HUGE_MS};
    classify(p, s, tokens);
    by_rank = s->memo.holds == HOLDS_BUSY;
    if (act->direct) { /* one class a rank; own times in place of the memo's */
        for (int32_t i = 0; i < act->m; i++) {
            act->cls[i] = i;
            s->value[i] =
                cost_own(p, problem_model(p, (size_t)act->rank[i]), act->len[i], NULL);
            s->busy[i] = s->value[i];
            if (p->linear)
                s->busy[i] += layer_ms(p, (size_t)act->rank[i], act->len[i]);
        }
    } else {
        if (!by_rank)
            s->memo.most = sum_blocks(p, s, limit_ms, s->busy);
        if (s->memo.most >= limit_ms)
            return (struct score){0, 1, 0, limit_ms};
    }
    cost_hops(p, act->m, act->len, s->hops);
    for (int32_t i = 0; i < act->m; i++)
        s->send_ms[i] = cost_send(p, act->len[i]);
    for (int32_t i = 0; p->linear && i < act->m; i++) {
        s->before[i] = layer_before_ms(p, (size_t)act->rank[i], act->len[i]);
        s->after[i] = layer_after_ms(p, (size_t)act->rank[i], act->len[i]);
    }
    pieces.p = p;
    pieces.s = s;
    pieces.n = 0;
    pieces.into = linked ? s->into : NULL;
    if (p->links)
        links_into(p, s);
    if (p->two_level) {
        inner = rings_inner(p, act->m, act->rank, s->hops);
        if (inner == 0) {
            memset(s->fin, 0, p->n * sizeof *s->fin);
            s->memo.holds = act->direct || by_rank ? s->memo.holds : HOLDS_CLASSES;
            return (struct score){1, 0, 0, HUGE_MS};
        }
    }
    /* All of it: where a member is left out gcc clears all, which takes longer. */
    in = (struct ring_input){.m = act->m,
                             .cls = act->cls,
                             .stride = s->memo.cap,
                             .own = act->direct ? s->value : s->memo.own,
                             .early = s->memo.early,
                             .late = s->memo.late,
                             .ask = act->direct ? ask_block : NULL,
                             .ask_ctx = &direct,
                             .pieces = p->sub_blocks > 1 ? eval_block_pieces : NULL,
                             .pieces_ctx = &pieces,
                             .hops = s->hops,
                             .send_ms = s->send_ms,
                             .before = p->linear ? s->before : NULL,
                             .after = p->linear ? s->after : NULL,
                             .buffers = p->buffers,
                             .barrier = p->barrier,
                             .run_end = s->run_end,
                             .runs = 0,
                             .into = linked ? s->into : NULL,
                             .starts = s->starts,
                             .len = act->len,
                             .link_alpha = s->link_alpha,
                             .link_token = s->link_token,
                             .sent = s->sent,
                             .busy = p->links ? s->busy : NULL,
                             .slots = NULL};
    if (s->memo.few) {
        in.stride = FEW_RANKS;
        in.own = s->few.own;
        in.early = s->few.early;
        in.late = s->few.late;
    }
    if (p->nodes.ranks > 0 && inner == 0) {
        nodes_into(p, act->m, act->rank, s->into);
        for (int32_t i = 0; i < act->m; i++) {
            s->starts[i] = 1;
            s->link_alpha[i] = s->into[i].alpha_ms;
            s->link_token[i] = s->into[i].token_ms;
            s->sent[i] = (double)act->len[i];
        }
    }
    for (int32_t i = act->m, end = i; i-- > 0;) {
        int new_run = i + 1 == act->m || act->cls[i] != act->cls[i + 1];

        end = new_run ? i + 1 : end;
        s->run_end[i] = end;
        in.runs += new_run;
    }
    if (p->slots) {
        for (int32_t i = 0; i < act->m; i++)
            s->slots[i] = p->slots[act->rank[i]];
        in.slots = s->slots;
        score.ms = ring_run_late(&in, &s->late, s->fin, steps);
        if (p->late_bound)
            *p->late_bound = ring_late_bound(&in, &s->late);
    } else {
        score.ms = inner > 0 ? rings_run(p, &in, &s->ring, inner, s->fin, steps)
                             : ring_run(&in, &s->ring, s->fin, steps);
    }
    for (int32_t i = 0; p->links && p->linear && i < act->m; i++)
        s->busy[i] += layer_ms(p, (size_t)act->rank[i], act->len[i]);
    score.none = score.gave_up = 0;
    score.source = HCP_FROM_MEASURED; /* see eval_source */
    spread(p, act, tokens, s->fin);
    if (!by_rank || p->links)
        spread(p, act, tokens, s->busy);
    if (!act->direct)
        s->memo.holds = p->links ? HOLDS_CLASSES : HOLDS_BUSY;
    return score;
}

uint8_t eval_source(const struct problem *p, struct scratch *s, const int64_t *tokens)
{
    struct active *act = &s->act;
    uint8_t source = HCP_FROM_MEASURED;
    int32_t n;

    classify(p, s, tokens);
    if (s->memo.few)
        return few_source(p, s);
    n = act->direct ? act->m : act->n_present;
    for (int32_t i = 0; i < act->m && !act->direct; i++) {
        act->last[act->cls[i]] = i;
        act->first[act->cls[act->m - 1 - i]] = act->m - 1 - i;
    }
    for (int32_t x = 0; x < n; x++) {
        int32_t c = act->direct ? 0 : act->present[x];
        int32_t first = act->direct ? x : act->first[c],
                last = act->direct ? x : act->last[c];
        const hcp_model *model = problem_model(p, (size_t)act->rank[first]);

        cost_own(p, model, act->len[first], &source);
        for (int32_t y = 0; y < n && source < HCP_FROM_EXTRAPOLATED; y++) {
            int32_t d = act->direct ? 0 : act->present[y];
            int32_t from = act->direct ? y : act->first[d],
                    to = act->direct ? y : act->last[d];

            if (from < last)
                cost_remote(p, model, act->len[first], act->len[from], 1, &source);
            if (to > first)
                cost_remote(p, model, act->len[first], act->len[to], 0, &source);
        }
    }
    return source;
}

/* One class a rank and too many of them: remote blocks estimated by their mean, exact
 * where time is linear in the keys. */
static double rough_busy(const struct problem *p, struct scratch *s,
                         const int64_t *tokens)
{
    int64_t before = 0, after;
    int32_t n_before = 0, n_after;
    double most = 0;

    for (size_t r = 0; r < p->n; r++) {
        const hcp_model *model = problem_model(p, r);

        s->busy[r] = 0;
        if (tokens[r] == 0)
            continue;
        after = p->seq_len - before - tokens[r];
        n_after = s->act.m - n_before - 1;
        s->busy[r] = cost_own(p, model, tokens[r], NULL);
        if (p->linear)
            s->busy[r] += layer_ms(p, r, tokens[r]);
        if (n_before > 0)
            s->busy[r] +=
                n_before * cost_remote(p, model, tokens[r], before / n_before, 1, NULL);
        if (n_after > 0)
            s->busy[r] +=
                n_after * cost_remote(p, model, tokens[r], after / n_after, 0, NULL);
        before += tokens[r];
        n_before++;
        most = s->busy[r] > most ? s->busy[r] : most;
    }
    return most;
}

double eval_busy(const struct problem *p, struct scratch *s, const int64_t *tokens,
                 int *rough)
{
    classify(p, s, tokens);
    *rough = s->act.direct;
    if (s->act.direct)
        return rough_busy(p, s, tokens);
    if (s->memo.holds != HOLDS_BUSY) {
        s->memo.most = sum_blocks(p, s, INFINITY, s->busy);
        spread(p, &s->act, tokens, s->busy);
        s->memo.holds = HOLDS_BUSY;
    }
    return s->memo.most;
}

double eval_busy_about(const struct problem *p, struct scratch *s, const int64_t *tokens,
                       int *rough)
{
    if (!tally_possible(p))
        return eval_busy(p, s, tokens, rough);
    *rough = 0;
    if (s->memo.holds == HOLDS_BUSY)
        s->memo.holds = HOLDS_CLASSES;
    return tally_busy(p, tokens, s->busy);
}

void eval_kernels(const struct problem *p, struct scratch *s, const int64_t *tokens)
{
    struct problem kernels = *p;
    int rough;

    kernels.kernel_only = 1;
    kernels.linear = 0;
    memo_reset(&s->memo);
    eval_busy(&kernels, s, tokens, &rough);
    if (rough) /* more classes than the memo holds: block by block */
        for (size_t r = 0; r < p->n; r++) {
            s->busy[r] = 0;
            if (tokens[r] > 0)
                s->busy[r] = cost_own(&kernels, problem_model(p, r), tokens[r], NULL);
            for (size_t i = 0; tokens[r] > 0 && i < p->n; i++)
                if (i != r && tokens[i] > 0)
                    s->busy[r] += cost_remote(&kernels, problem_model(p, r), tokens[r],
                                              tokens[i], i < r, NULL);
        }
    memo_reset(&s->memo);
}

struct score eval_small(const struct problem *p, int m, const int32_t *rank,
                        const int64_t *len, double limit_ms)
{
    static const int32_t cls[4] = {0, 1, 2, 3};
    double own[4], early[16] = {0}, late[16] = {0}, send[4], fin[4], before[4], after[4];
    double ready[16 * MAX_BUFFERS], history[16 * (MAX_BUFFERS + 1)], step_ms[4];
    int32_t hops[4], starts[4] = {1, 1, 1, 1};
    struct link_into into[4];
    double busy[4];
    struct ring_arrays arrays = {.ready = ready, .history = history, .step_ms = step_ms};
    struct ring_input in = {.m = m,
                            .cls = cls,
                            .stride = 4,
                            .own = own,
                            .early = early,
                            .late = late,
                            .hops = hops,
                            .send_ms = send,
                            .before = p->linear ? before : NULL,
                            .after = p->linear ? after : NULL,
                            .buffers = p->buffers,
                            .barrier = p->barrier,
                            .into = p->links || p->nodes.ranks > 0 ? into : NULL,
                            .starts = starts,
                            .len = len,
                            .busy = p->links ? busy : NULL};
    struct score score;
    int64_t largest[4];

    if (p->memory && !memory_fits(p, (size_t)m, rank, len, largest))
        return (struct score){1, 0, 0, 0};
    for (int i = m - 1; i >= 0; i--) { /* the last mostly has most */
        const hcp_model *model = problem_model(p, (size_t)rank[i]);
        double sum;

        sum = own[i] = cost_own(p, model, len[i], NULL);
        send[i] = cost_send(p, len[i]);
        if (p->linear) {
            before[i] = layer_before_ms(p, (size_t)rank[i], len[i]);
            after[i] = layer_after_ms(p, (size_t)rank[i], len[i]);
        }
        for (int j = 0; j < i; j++)
            sum += early[4 * i + j] = cost_remote(p, model, len[i], len[j], 1, NULL);
        for (int j = i + 1; j < m; j++)
            sum += late[4 * i + j] = cost_remote(p, model, len[i], len[j], 0, NULL);
        if (sum >= limit_ms * (1 + 1e-9)) /* for another order of adding */
            return (struct score){0, 1, 0, limit_ms};
    }
    cost_hops(p, m, len, hops);
    if (p->links)
        links_into_small(p, m, rank, hops, into);
    else if (p->nodes.ranks > 0)
        nodes_into(p, m, rank, into);
    score.ms = ring_run(&in, &arrays, fin, NULL);
    score.none = score.gave_up = 0;
    score.source = HCP_FROM_MEASURED;
    return score;
}
