/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/plan.h"

/* Busy times where blocks' times are kept in the memo. */

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

void memo_find_classes(const struct problem *p, struct scratch *s, const int64_t *tokens)
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
 * come: what is added does not change any more, and is kept for other ranks of class
 * c. */
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

/* memo_sum() where few ranks make runs of equal ones rare and a word holds all classes.
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

double memo_sum(const struct problem *p, struct scratch *s, double limit_ms, double *busy)
{
    struct active *act = &s->act;
    struct memo *memo = &s->memo;
    uint64_t before[MEMO_WORDS] = {0}, after[MEMO_WORDS] = {0};
    uint64_t early_need[MEMO_WORDS], late_need[MEMO_WORDS];
    /* Nobody works on later KV: the classes that have not come yet add nothing. */
    int from_before = p->causal && p->layout == HCP_LAYOUT_CONTIGUOUS;
    int32_t seen = 0, past = 0;
    double most = 0;

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
