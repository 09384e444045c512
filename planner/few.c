/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/plan.h"

/* Splits of few ranks, evaluated without a memo of pairs. A search looks at some twenty
 * splits a question, whose shares mostly come back in others: what a class says of its
 * model's table is looked up when it first comes up, and the times of all pairs of a split
 * are then a few multiplications each, in tables of the classes present alone. What comes
 * out, and in which order it is added, is what sum_blocks() in eval.c does. */

int few_possible(const struct problem *p)
{
    return p->n <= FEW_RANKS && p->sub_blocks == 1 && p->ring->tables[p->kind] &&
           p->ring->n_ids <= FEW_IDS && !(p->causal && p->layout == HCP_LAYOUT_STRIPED);
}

/* As rectangle() in cost.c: a block is one call. */
static void open_class(const struct problem *p, size_t r, int64_t len,
                       struct few_class *c)
{
    const hcp_model *model = problem_model(p, r);
    int64_t early = len, late = len;

    if (p->causal && p->layout == HCP_LAYOUT_ZIGZAG)
        late = len / 2;
    else if (p->causal)
        late = 0;
    c->known = 0;
    c->own = cost_own(p, model, len, NULL);
    if (p->linear)
        c->linear = layer_ms(p, r, len);
    c->early = hcp_model_row_at(model, early, !p->kernel_only);
    c->late = hcp_model_row_at(model, late, !p->kernel_only);
}

/* Where the KV of len tokens of a class is in a model's table. */
static void look_keys_up(const struct problem *p, const hcp_model *model, int32_t id,
                         int64_t len, struct few_class *c)
{
    int64_t early = len;

    if (p->causal && p->layout == HCP_LAYOUT_ZIGZAG)
        early -= len / 2;
    c->keys[id][1] = hcp_model_keys_at(model, len);
    c->keys[id][0] = early == len ? c->keys[id][1] : hcp_model_keys_at(model, early);
    c->known |= (uint32_t)1 << id;
}

void few_count(const struct problem *p, struct scratch *s, int32_t i, int32_t c)
{
    struct active *act = &s->act;

    if (act->seen[c] != act->split) {
        act->seen[c] = act->split;
        act->total[c] = 0;
        act->at[c] = act->n_present;
        act->present[act->n_present] = c;
        s->few.rank[act->n_present++] = act->rank[i];
        if (c == s->memo.opened) { /* they are numbered as they come */
            s->memo.opened++;
            open_class(p, (size_t)act->rank[i], act->len[i], &s->few.of[c]);
        }
    }
    act->total[c]++;
    s->few.cls[i] = act->at[c];
}

/* Times of all pairs of the classes present, by place. */
static void fill_tables(const struct problem *p, struct scratch *s)
{
    struct few *few = &s->few;
    const struct active *act = &s->act;
    int32_t n = act->n_present;

    for (int32_t x = 0; x < n; x++) {
        const struct few_class *mine = &few->of[act->present[x]];
        int32_t id = s->memo.id[act->present[x]];

        few->own[x] = mine->own;
        for (int32_t y = 0; y < n; y++) {
            struct few_class *theirs = &few->of[act->present[y]];

            if (!(theirs->known >> id & 1))
                look_keys_up(p, problem_model(p, (size_t)few->rank[x]), id,
                             s->memo.len[act->present[y]], theirs);
            few->early[x * FEW_RANKS + y] =
                hcp_model_call_at(&mine->early, &theirs->keys[id][0]);
            few->late[x * FEW_RANKS + y] =
                hcp_model_call_at(&mine->late, &theirs->keys[id][1]);
        }
    }
}

/* As sum_blocks(): adding 0 times something changes nothing. */
double few_sum(const struct problem *p, struct scratch *s, double limit_ms, double *busy)
{
    struct active *act = &s->act;
    struct few *few = &s->few;
    int32_t n = act->n_present;
    double count[FEW_RANKS] = {0}, left[FEW_RANKS], most = 0; /* by place */

    fill_tables(p, s);
    for (int32_t x = 0; x < n; x++)
        left[x] = act->total[act->present[x]];
    for (int32_t i = 0; i < act->m; i++) {
        int32_t at = few->cls[i];
        const double *early = few->early + at * FEW_RANKS;
        const double *late = few->late + at * FEW_RANKS;
        double ms = few->own[at];

        left[at] -= 1;
        if (p->linear)
            ms += few->of[act->present[at]].linear;
        for (int32_t x = 0; x < n; x++) {
            ms += count[x] * early[x];
            ms += left[x] * late[x];
        }
        count[at] += 1;
        busy[i] = ms;
        most = ms > most ? ms : most;
        if (ms >= limit_ms)
            break;
    }
    return most;
}
