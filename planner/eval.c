/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

void memo_reset(struct memo *memo)
{
    memo->n = 0;
    memo->places = 0;
    memo->holds = HOLDS_NOTHING;
    memset(memo->hash, 0xff, (size_t)memo->hash_size * sizeof *memo->hash);
}

/* Class of (model id, share), added if new; -1 if the memo is full. */
static int32_t memo_class(const struct problem *p, struct memo *memo, int32_t id,
                          int64_t len)
{
    const hcp_model *const *axis = p->ring->axis[p->kind];
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
    for (int32_t a = 0; memo->tables && a < p->ring->n_axes[p->kind]; a++)
        memo->keys[a * memo->cap + c] = hcp_model_keys_at(axis[a], len);
    memset(memo->early_known + c * memo->words, 0,
           (size_t)memo->words * sizeof *memo->early_known);
    memset(memo->late_known + c * memo->words, 0,
           (size_t)memo->words * sizeof *memo->late_known);
    if (memo->words == 1) { /* sum_few() multiplies what it does not count by 0 */
        memset(memo->early + c * memo->cap, 0, (size_t)memo->cap * sizeof *memo->early);
        memset(memo->late + c * memo->cap, 0, (size_t)memo->cap * sizeof *memo->late);
    }
    return c;
}

/* Counts one more rank of a class in the split. */
static void count_class(struct active *act, int32_t c)
{
    if (act->seen[c] != act->split) {
        act->seen[c] = act->split;
        act->total[c] = 0;
        act->at[c] = act->n_present;
        act->present[act->n_present++] = c;
    }
    act->total[c]++;
}

/* Fills s->act with the classes of a split; direct if the memo cannot hold them. */
static void find_classes(const struct problem *p, struct scratch *s,
                         const int64_t *tokens)
{
    struct active *act = &s->act;
    struct memo *memo = &s->memo;
    int32_t m = 0, last_id = -1;

    act->n_present = 0;
    act->direct = 0;
    act->split++;
    for (size_t r = 0; r < p->n; r++) {
        int64_t len = tokens[r];
        int32_t c, id;

        if (len == 0)
            continue;
        act->rank[m] = (int32_t)r;
        act->len[m++] = len;
        if (act->direct)
            continue;
        id = p->ring->ranks[r].id[p->kind];
        c = act->guess[r]; /* of this rank in the split before: few change in a move */
        if (id == last_id && len == act->len[m - 2])
            c = act->cls[m - 2];
        else if (c >= memo->n || memo->len[c] != len || memo->id[c] != id)
            c = memo_class(p, memo, id, len);
        if (c < 0) {
            act->direct = 1;
            continue;
        }
        last_id = id;
        act->guess[r] = c;
        act->cls[m - 1] = c;
        count_class(act, c);
    }
    act->m = m;
}

/* Classes that come first in a split are numbered first. */
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
        find_classes(p, s, tokens);
    if (s->act.direct) { /* old classes may be in the way: once more with none */
        memo_reset(memo);
        find_classes(p, s, tokens);
    }
    if (s->act.direct)
        return;
    memo->holds = HOLDS_CLASSES;
    memo->held_kind = p->kind;
    memcpy(memo->held, tokens, bytes);
}

/* ask_row() where memo->tables: a row of the table is looked up once. */
static void ask_tables(const struct problem *p, struct memo *memo, int32_t c, size_t r,
                       int earlier, const uint64_t *need)
{
    uint64_t *known = (earlier ? memo->early_known : memo->late_known) + c * memo->words;
    double *row = (earlier ? memo->early : memo->late) + (size_t)c * (size_t)memo->cap;
    const struct bound_rank *b = &p->ring->ranks[r];
    const struct hcp_model_keys_at *keys = memo->keys + b->axis[p->kind] * memo->cap;
    struct hcp_model_row_at q =
        earlier ? hcp_model_row_at(b->model[p->kind], memo->len[c], !p->kernel_only)
                : hcp_model_row_of_none();

    for (int32_t w = 0; w < memo->words; w++) {
        uint64_t missing = need[w] & ~known[w];

        known[w] |= missing;
        for (; missing; missing &= missing - 1) {
            int32_t d = 64 * w + __builtin_ctzll(missing);

            row[d] = hcp_model_call_at(&q, &keys[d]);
        }
    }
}

/* What is not known yet of the blocks of class c on the KV of classes in need[]. */
static void ask_row(const struct problem *p, struct scratch *s, int32_t c, size_t r,
                    int earlier, const uint64_t *need)
{
    const hcp_model *model = problem_model(p, r);
    struct active *act = &s->act;
    struct memo *memo = &s->memo;
    uint64_t *known = earlier ? memo->early_known : memo->late_known;
    double *row = (earlier ? memo->early : memo->late) + (size_t)c * (size_t)memo->cap;
    int32_t n = 0;

    if (memo->tables) {
        ask_tables(p, memo, c, r, earlier, need);
        return;
    }
    for (int32_t w = 0; w < memo->words; w++) {
        uint64_t missing = need[w] & ~known[c * memo->words + w];

        known[c * memo->words + w] |= missing;
        for (; missing; missing &= missing - 1) {
            act->ask[n] = 64 * w + __builtin_ctzll(missing);
            act->ask_len[n] = memo->len[act->ask[n]];
            n++;
        }
    }
    if (n == 0)
        return;
    cost_remotes(p, model, memo->len[c], n, act->ask_len, earlier, act->ask_keys,
                 act->ask_ms);
    for (int32_t i = 0; i < n; i++)
        row[act->ask[i]] = act->ask_ms[i];
}

static void set_bit(uint64_t *bits, int32_t i, int on)
{
    uint64_t bit = (uint64_t)1 << (i & 63);

    bits[i >> 6] = on ? bits[i >> 6] | bit : bits[i >> 6] & ~bit;
}

/* Classes that come before a run of n ranks of class c and after it; early and late
 * receive those that ranks of the run have blocks of. */
static void needed(const struct active *act, int32_t c, int32_t n, const uint64_t *before,
                   const uint64_t *after, int32_t words, uint64_t *early, uint64_t *late)
{
    for (int32_t w = 0; w < words; w++) {
        early[w] = before[w];
        late[w] = after[w];
    }
    if (n > 1)
        set_bit(early, c, 1);
    set_bit(late, c, act->total[c] - act->before[c] > 1);
}

/* ms and the blocks of classes number from .. to - 1 of those present: the early and the
 * late ones of each, in this order. */
static double add_blocks(const struct active *act, double ms, int32_t from, int32_t to,
                         const double *early, const double *late)
{
    for (int32_t x = from; x < to; x++) {
        int32_t d = act->present[x], n_late = act->total[d] - act->before[d];

        if (act->before[d] > 0)
            ms += act->before[d] * early[d];
        if (n_late > 0)
            ms += n_late * late[d];
    }
    return ms;
}

/* own_ms, and the blocks of the first `past` classes present, of which no more ranks
 * come: what is added does not change any more, and is kept for other ranks of class c. */
static double add_past(struct active *act, int32_t c, double own_ms, int32_t past,
                       const double *early, const double *late)
{
    if (act->head_to[c] == 0)
        act->head_ms[c] = own_ms;
    if (act->head_to[c] < past) {
        act->head_ms[c] =
            add_blocks(act, act->head_ms[c], act->head_to[c], past, early, late);
        act->head_to[c] = past;
    }
    return act->head_ms[c];
}

/* sum_blocks where few ranks make runs of equal ones rare and a word holds all classes.
 * Without branches on what a rank has of which class: adding 0 changes nothing. */
static double sum_few(const struct problem *p, struct scratch *s, double limit_ms,
                      double *busy)
{
    struct active *act = &s->act;
    struct memo *memo = &s->memo;
    uint64_t before = 0, after = 0;
    int32_t n = act->n_present, cls[64];
    double count[64], left[64], most = 0; /* by place in present */

    for (int32_t x = 0; x < n; x++) {
        cls[x] = act->present[x];
        count[x] = 0;
        left[x] = act->total[cls[x]];
        after |= (uint64_t)1 << cls[x];
    }
    for (int32_t i = 0; i < act->m; i++) {
        int32_t c = act->cls[i], at = act->at[c];
        const double *early = memo->early + (size_t)c * (size_t)memo->cap;
        const double *late = memo->late + (size_t)c * (size_t)memo->cap;
        double ms;

        left[at] -= 1;
        after &= ~((uint64_t)(left[at] == 0) << c);
        if (memo->own[c] < 0)
            memo->own[c] =
                cost_own(p, problem_model(p, (size_t)act->rank[i]), act->len[i], NULL);
        if (before & ~memo->early_known[c])
            ask_row(p, s, c, (size_t)act->rank[i], 1, &before);
        if (after & ~memo->late_known[c])
            ask_row(p, s, c, (size_t)act->rank[i], 0, &after);
        ms = memo->own[c];
        if (p->linear)
            ms += layer_ms(p, (size_t)act->rank[i], act->len[i]);
        for (int32_t x = 0; x < n; x++) {
            ms += count[x] * early[cls[x]];
            ms += left[x] * late[cls[x]];
        }
        count[at] += 1;
        before |= (uint64_t)1 << c;
        busy[i] = ms;
        most = ms > most ? ms : most;
        if (ms >= limit_ms)
            break;
    }
    return most;
}

/* Busy times into busy[] by active index; returns the largest. Asks the models for what
 * the memo does not have: afterwards all blocks of the split are in it. Stops at a rank
 * that is busy for limit_ms. */
static double sum_blocks(const struct problem *p, struct scratch *s, double limit_ms,
                         double *busy)
{
    struct active *act = &s->act;
    struct memo *memo = &s->memo;
    uint64_t before[MEMO_WORDS] = {0}, after[MEMO_WORDS] = {0};
    uint64_t early_need[MEMO_WORDS], late_need[MEMO_WORDS];
    /* Nobody works on later KV: the classes that have not come yet add nothing. */
    int from_before = p->causal && p->layout == HCP_LAYOUT_CONTIGUOUS;
    int32_t seen = 0, past = 0;
    double most = 0;

    if (memo->few)
        return few_sum(p, s, limit_ms, busy);
    if (memo->words == 1)
        return sum_few(p, s, limit_ms, busy);
    for (int32_t x = 0; x < act->n_present; x++) {
        act->before[act->present[x]] = act->head_to[act->present[x]] = 0;
        act->asked[act->present[x]] = -1;
        set_bit(after, act->present[x], 1);
    }
    for (int32_t i = 0, end; i < act->m; i = end) { /* ranks of a class in a row */
        int32_t c = act->cls[i], at = act->at[c];
        size_t rank = (size_t)act->rank[i];
        double *early = memo->early + (size_t)c * (size_t)memo->cap;
        double *late = memo->late + (size_t)c * (size_t)memo->cap;
        double own, first;

        for (end = i + 1; end < act->m && act->cls[end] == c;)
            end++;
        if (memo->own[c] < 0)
            memo->own[c] = cost_own(p, problem_model(p, rank), act->len[i], NULL);
        if (act->asked[c] != seen) { /* else nothing new came before it */
            needed(act, c, end - i, before, after, memo->words, early_need, late_need);
            ask_row(p, s, c, rank, 1, early_need);
            ask_row(p, s, c, rank, 0, late_need);
            act->asked[c] = act->before[c] > 0 || end - i > 1 ? seen : -1;
        }
        seen = seen > at + 1 ? seen : at + 1;
        own = memo->own[c];
        if (p->linear) /* the same for all of a class */
            own += layer_ms(p, rank, act->len[i]);
        first = add_past(act, c, own, past, early, late);
        first = add_blocks(act, first, past, at, early, late);
        for (int32_t r = i; r < end; r++) {
            int32_t n_late = act->total[c] - act->before[c] - 1;
            double ms = first;

            if (act->before[c] > 0)
                ms += act->before[c] * early[c];
            if (n_late > 0)
                ms += n_late * late[c];
            act->before[c]++;
            ms = add_blocks(act, ms, at + 1, from_before ? seen : act->n_present, early,
                            late);
            busy[r] = ms;
            most = ms > most ? ms : most;
            if (ms >= limit_ms)
                return most;
        }
        set_bit(before, c, 1);
        set_bit(after, c, act->total[c] > act->before[c]);
        while (past < act->n_present && act->before[act->present[past]] ==
                                            act->total[act->present[past]])
            past++;
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
    /* All of it: what is left out gcc clears together, which takes longer than the rest. */
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
