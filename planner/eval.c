/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

void memo_reset(struct memo *memo)
{
    memo->n = 0;
    memset(memo->hash, 0xff, (size_t)memo->hash_size * sizeof *memo->hash);
}

/* Class of (model id, share), added if new; -1 if the memo is full. */
static int32_t memo_class(struct memo *memo, int32_t id, int64_t len)
{
    uint64_t h = ((uint64_t)len * 64 + (uint64_t)id) * UINT64_C(0x9E3779B97F4A7C15);
    int32_t mask = memo->hash_size - 1, slot = (int32_t)(h >> 40) & mask, c;

    for (; (c = memo->hash[slot]) >= 0; slot = (slot + 1) & mask)
        if (memo->id[c] == id && memo->len[c] == len)
            return c;
    if (memo->n == memo->cap)
        return -1;
    c = memo->n++;
    memo->hash[slot] = c;
    memo->id[c] = id;
    memo->len[c] = len;
    memo->own[c] = -1;
    for (int32_t d = 0; d <= c; d++) {
        size_t cd = (size_t)c * (size_t)memo->cap + (size_t)d;
        size_t dc = (size_t)d * (size_t)memo->cap + (size_t)c;

        memo->early[cd] = memo->early[dc] = memo->late[cd] = memo->late[dc] = -1;
    }
    return c;
}

/* Fills s->act with the classes of a split; direct if the memo cannot hold them. */
static void find_classes(const struct problem *p, struct scratch *s,
                         const int64_t *tokens)
{
    struct active *act = &s->act;
    struct memo *memo = &s->memo;

    act->m = 0;
    act->n_present = 0;
    act->direct = 0;
    for (size_t r = 0; r < p->n; r++) {
        int32_t i = act->m, c;

        if (tokens[r] == 0)
            continue;
        act->m++;
        act->rank[i] = (int32_t)r;
        act->len[i] = tokens[r];
        if (act->direct)
            continue;
        c = act->guess[r]; /* of this rank in the split before: few change in a move */
        if (c >= memo->n || memo->len[c] != tokens[r] ||
            memo->id[c] != p->ring->ranks[r].id[p->kind])
            c = memo_class(memo, p->ring->ranks[r].id[p->kind], tokens[r]);
        if (c < 0) {
            act->direct = 1;
            continue;
        }
        act->guess[r] = c;
        act->cls[i] = c;
    }
}

/* The classes of a split in order of first appearance, and how many ranks each has. */
static void count_classes(struct active *act)
{
    for (int32_t i = 0; i < act->m; i++)
        act->total[act->cls[i]] = 0;
    for (int32_t i = 0; i < act->m; i++)
        if (act->total[act->cls[i]]++ == 0)
            act->present[act->n_present++] = act->cls[i];
}

static void classify(const struct problem *p, struct scratch *s, const int64_t *tokens)
{
    find_classes(p, s, tokens);
    if (s->act.direct) { /* old classes may be in the way: once more with none */
        memo_reset(&s->memo);
        find_classes(p, s, tokens);
    }
    if (!s->act.direct)
        count_classes(&s->act);
}

/* Busy times into busy[] by active index; returns the largest. Asks the models for what
 * the memo does not have: afterwards all blocks of the split are in it. Stops at a rank
 * that is busy for limit_ms. */
static double sum_blocks(const struct problem *p, struct scratch *s, double limit_ms,
                         double *busy)
{
    struct active *act = &s->act;
    struct memo *memo = &s->memo;
    double most = 0;

    for (int32_t x = 0; x < act->n_present; x++)
        act->before[act->present[x]] = 0;
    for (int32_t i = 0; i < act->m; i++) {
        int32_t c = act->cls[i];
        const hcp_model *model = problem_model(p, (size_t)act->rank[i]);
        double *early = memo->early + (size_t)c * (size_t)memo->cap;
        double *late = memo->late + (size_t)c * (size_t)memo->cap;
        double ms;

        if (memo->own[c] < 0)
            memo->own[c] = cost_own(p, model, act->len[i], NULL);
        ms = memo->own[c];
        if (p->linear)
            ms += layer_ms(p, (size_t)act->rank[i], act->len[i]);
        act->before[c]++;
        for (int32_t x = 0; x < act->n_present; x++) {
            int32_t d = act->present[x];
            int32_t n_early = act->before[d] - (d == c);
            int32_t n_late = act->total[d] - act->before[d];

            if (n_early > 0) {
                if (early[d] < 0)
                    early[d] = cost_remote(p, model, act->len[i], memo->len[d], 1, NULL);
                ms += n_early * early[d];
            }
            if (n_late > 0) {
                if (late[d] < 0)
                    late[d] = cost_remote(p, model, act->len[i], memo->len[d], 0, NULL);
                ms += n_late * late[d];
            }
        }
        busy[i] = ms;
        most = ms > most ? ms : most;
        if (ms >= limit_ms)
            break;
    }
    return most;
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

    classify(p, s, tokens);
    if (act->direct) { /* one class a rank; own times in place of the memo's */
        for (int32_t i = 0; i < act->m; i++) {
            act->cls[i] = i;
            s->value[i] =
                cost_own(p, problem_model(p, (size_t)act->rank[i]), act->len[i], NULL);
            s->busy[i] = s->value[i];
            if (p->linear)
                s->busy[i] += layer_ms(p, (size_t)act->rank[i], act->len[i]);
        }
    } else if (sum_blocks(p, s, limit_ms, s->busy) >= limit_ms) {
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
    pieces.into = p->links ? s->into : NULL;
    if (p->links)
        links_into(p, s);
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
                             .into = p->links ? s->into : NULL,
                             .starts = s->starts,
                             .len = act->len,
                             .busy = s->busy};
    for (int32_t i = act->m; i-- > 0;) {
        int new_run = i + 1 == act->m || act->cls[i] != act->cls[i + 1];

        s->run_end[i] = new_run ? i + 1 : s->run_end[i + 1];
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
        score.ms = ring_run(&in, &s->ring, s->fin, steps);
    }
    for (int32_t i = 0; p->links && p->linear && i < act->m; i++)
        s->busy[i] += layer_ms(p, (size_t)act->rank[i], act->len[i]);
    score.none = score.gave_up = 0;
    score.source = HCP_FROM_MEASURED; /* see eval_source */
    spread(p, act, tokens, s->fin);
    spread(p, act, tokens, s->busy);
    return score;
}

uint8_t eval_source(const struct problem *p, struct scratch *s, const int64_t *tokens)
{
    struct active *act = &s->act;
    uint8_t source = HCP_FROM_MEASURED;
    int32_t n;

    classify(p, s, tokens);
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
    double most;

    classify(p, s, tokens);
    *rough = s->act.direct;
    if (s->act.direct)
        return rough_busy(p, s, tokens);
    most = sum_blocks(p, s, INFINITY, s->busy);
    spread(p, &s->act, tokens, s->busy);
    return most;
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
                        const int64_t *len)
{
    static const int32_t cls[3] = {0, 1, 2};
    double own[3], early[9] = {0}, late[9] = {0}, send[3], fin[3], before[3], after[3];
    double ready[4 * MAX_BUFFERS], history[3 * (MAX_BUFFERS + 1)], step_ms[3];
    int32_t hops[3], starts[3] = {1, 1, 1};
    struct link_into into[3];
    double busy[3];
    struct ring_arrays arrays = {ready, history, step_ms, NULL};
    struct ring_input in = {.m = m,
                            .cls = cls,
                            .stride = 3,
                            .own = own,
                            .early = early,
                            .late = late,
                            .hops = hops,
                            .send_ms = send,
                            .before = p->linear ? before : NULL,
                            .after = p->linear ? after : NULL,
                            .buffers = p->buffers,
                            .barrier = p->barrier,
                            .into = p->links ? into : NULL,
                            .starts = starts,
                            .len = len,
                            .busy = busy};
    struct score score;

    for (int i = 0; i < m; i++) {
        const hcp_model *model = problem_model(p, (size_t)rank[i]);

        own[i] = cost_own(p, model, len[i], NULL);
        send[i] = cost_send(p, len[i]);
        if (p->linear) {
            before[i] = layer_before_ms(p, (size_t)rank[i], len[i]);
            after[i] = layer_after_ms(p, (size_t)rank[i], len[i]);
        }
        for (int j = 0; j < i; j++)
            early[3 * i + j] = cost_remote(p, model, len[i], len[j], 1, NULL);
        for (int j = i + 1; j < m; j++)
            late[3 * i + j] = cost_remote(p, model, len[i], len[j], 0, NULL);
    }
    cost_hops(p, m, len, hops);
    if (p->links)
        links_into_small(p, m, rank, hops, into);
    score.ms = ring_run(&in, &arrays, fin, NULL);
    score.none = score.gave_up = 0;
    score.source = HCP_FROM_MEASURED;
    return score;
}
