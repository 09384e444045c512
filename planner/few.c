/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/plan.h"

/* Splits of few ranks, evaluated without the memo. Ranks of one model and share are one
 * class; what a class says of its model's table is looked up once, and kept for a while:
 * other splits give ranks as many tokens, too. The times of all pairs of classes are then
 * a few multiplications each. What comes out, and in which order it is added, is what
 * memo_sum() in memo.c does. */

void few_bind(struct hcp_ring *ring)
{
    for (int kind = 0; kind < 3; kind++) {
        int32_t n = 0;

        ring->tables[kind] = 1;
        for (size_t r = 0; r < ring->n && ring->tables[kind]; r++) {
            struct bound_rank *b = &ring->ranks[r];
            const hcp_model *model = b->model[kind];
            int32_t a = 0;

            if (!model || !hcp_model_has_rows(model)) {
                ring->tables[kind] = 0;
                break;
            }
            while (a < n && !hcp_model_same_keys(ring->axis[kind][a], model))
                a++;
            if (a == FEW_AXES) {
                ring->tables[kind] = 0;
                break;
            }
            if (a == n)
                ring->axis[kind][n++] = model;
            b->axis[kind] = a;
        }
        ring->n_axes[kind] = n;
        ring->few[kind] = ring->tables[kind] && ring->n <= FEW_RANKS;
    }
}

int few_possible(const struct problem *p)
{
    return p->ring->few[p->kind] && p->sub_blocks == 1 &&
           !(p->causal && p->layout == HCP_LAYOUT_STRIPED);
}

/* As rectangle() in cost.c: a block is one call. */
static void open_class(const struct problem *p, size_t r, int64_t len,
                       struct few_class *c)
{
    const hcp_model *model = problem_model(p, r);
    int zigzag = p->causal && p->layout == HCP_LAYOUT_ZIGZAG;
    int64_t late = zigzag ? len / 2 : p->causal ? 0 : len;

    c->own = p->causal ? hcp_model_own_ms(model, len, !p->kernel_only)
                       : cost_own(p, model, len, NULL);
    if (p->linear)
        c->linear = layer_ms(p, r, len);
    c->early = hcp_model_row_at(model, len, !p->kernel_only);
    c->late = late == len ? c->early
              : late == 0 ? hcp_model_row_of_none()
                          : hcp_model_row_at(model, late, !p->kernel_only);
    for (int32_t a = 0; a < p->ring->n_axes[p->kind]; a++) {
        model = p->ring->axis[p->kind][a];
        c->late_keys[a] = hcp_model_keys_at(model, len);
        c->early_keys[a] =
            zigzag ? hcp_model_keys_at(model, len - len / 2) : c->late_keys[a];
    }
}

/* Where a class is kept, or will be, those of the split having taken these places. */
static uint64_t place_of(const struct few *few, int32_t id, int64_t len, uint64_t taken)
{
    uint64_t h = ((uint64_t)len * 64 + (uint64_t)id) * UINT64_C(0x9E3779B97F4A7C15) >> 58;

    while (taken >> h & 1 && (few->of[h].len != len || few->of[h].id != id))
        h = (h + 1) % FEW_PLACES;
    return h;
}

static uint8_t weaker(uint8_t source, hcp_model_source by)
{
    return source < (uint8_t)by ? (uint8_t)by : source;
}

void few_classes(const struct problem *p, struct scratch *s, const int64_t *tokens)
{
    const struct bound_rank *ranks = p->ring->ranks;
    hcp_model_kind kind = p->kind;
    struct active *act = &s->act;
    struct few *few = &s->few;
    int32_t m = 0, n = 0;
    uint64_t taken = 0;

    for (size_t r = 0; r < p->n; r++) {
        int64_t len = tokens[r];
        int32_t id = ranks[r].id[kind];
        struct few_class *c;
        uint64_t place, bit;

        if (len == 0)
            continue;
        place = place_of(few, id, len, taken);
        bit = (uint64_t)1 << place;
        c = &few->of[place];
        if (!(taken & bit)) { /* new in this split */
            if (!(s->memo.places & bit) || c->len != len || c->id != id) {
                c->len = len;
                c->id = id;
                s->memo.places |= bit;
                open_class(p, r, len, c);
            }
            taken |= bit;
            c->number = n;
            few->class[n] = c;
            few->len[n] = len;
            few->id[n] = id;
            few->axis[n] = ranks[r].axis[kind];
            few->total[n] = 0;
            act->present[n] = n;
            n++;
        }
        few->total[c->number] += 1;
        act->rank[m] = (int32_t)r;
        act->len[m] = len;
        act->cls[m++] = c->number;
    }
    act->m = m;
    act->n_present = n;
    act->direct = 0;
}

/* Are all calls of a model within the measured lengths, which they are if the smallest
 * and the largest that there could be are? 0: it is not certain. */
static int all_inside(const struct few *few, int32_t n, int zigzag, int32_t x,
                      const hcp_model *model)
{
    int64_t q_least = INT64_MAX, q_most = 0, kv_least = INT64_MAX, kv_most = 0;

    for (int32_t y = 0; y < n; y++) {
        int64_t len = few->len[y], kv = zigzag ? len - len / 2 : len;
        int64_t q = zigzag ? len / 2 : len;

        kv_least = kv < kv_least ? kv : kv_least;
        kv_most = len > kv_most ? len : kv_most;
        if (few->id[y] != few->id[x])
            continue;
        q_least = q < q_least ? q : q_least;
        q_most = len > q_most ? len : q_most;
    }
    return q_least > 0 &&
           hcp_model_block_source(model, 0, q_least, kv_least) !=
               HCP_SOURCE_EXTRAPOLATED &&
           hcp_model_block_source(model, 0, q_most, kv_most) != HCP_SOURCE_EXTRAPOLATED;
}

uint8_t few_source(const struct problem *p, const struct scratch *s)
{
    const struct few *few = &s->few;
    const int32_t *cls = s->act.cls;
    int zigzag = p->causal && p->layout == HCP_LAYOUT_ZIGZAG;
    uint8_t source = HCP_FROM_MEASURED;
    int32_t inside = -1; /* the model of which all calls are */

    for (int32_t x = 0; x < s->act.n_present; x++) {
        uint32_t before = 0, after = 0; /* classes of KV that a rank of x has work on */
        int32_t first = 0, last = s->act.m - 1;
        const hcp_model *model;
        int64_t len = few->len[x];

        while (cls[first] != x)
            first++;
        model = problem_model(p, (size_t)s->act.rank[first]);
        source = weaker(source, hcp_model_block_source(model, p->causal, len, len));
        if (source == HCP_FROM_INTERPOLATED &&
            (few->id[x] == inside ||
             all_inside(few, s->act.n_present, zigzag, x, model))) {
            inside = few->id[x];
            continue;
        }
        while (cls[last] != x)
            last--;
        for (int32_t i = 0; i < last; i++)
            before |= (uint32_t)1 << cls[i];
        for (int32_t i = first + 1; i < s->act.m && (!p->causal || zigzag); i++)
            after |= (uint32_t)1 << cls[i];
        if (zigzag && len < 2)
            after = 0;
        for (int32_t y = 0; y < s->act.n_present && source < HCP_FROM_EXTRAPOLATED; y++) {
            int64_t kv = few->len[y];

            if (before >> y & 1)
                source = weaker(source, hcp_model_block_source(
                                            model, 0, len, zigzag ? kv - kv / 2 : kv));
            if (after >> y & 1)
                source = weaker(source, hcp_model_block_source(
                                            model, 0, zigzag ? len / 2 : len, kv));
        }
    }
    return source;
}

/* Times of all pairs of the classes present. */
static void fill_tables(const struct problem *p, struct few *few, int32_t n)
{
    static const double nothing[FEW_RANKS * FEW_RANKS];
    int zigzag = p->causal && p->layout == HCP_LAYOUT_ZIGZAG;

    few->late = zigzag ? few->half : p->causal ? nothing : few->early;
    for (int32_t x = 0; x < n; x++) {
        const struct hcp_model_row_at early_row = few->class[x]->early;
        const struct hcp_model_row_at late_row = few->class[x]->late;
        double *early = few->early + x * FEW_RANKS, *half = few->half + x * FEW_RANKS;
        int32_t a = few->axis[x];

        few->own[x] = few->class[x]->own;
        for (int32_t y = 0; y < n; y++) {
            early[y] = hcp_model_call_at(&early_row, &few->class[y]->early_keys[a]);
            if (zigzag)
                half[y] = hcp_model_call_at(&late_row, &few->class[y]->late_keys[a]);
        }
    }
}

/* As memo_sum(): adding 0 times something changes nothing. */
double few_sum(const struct problem *p, struct scratch *s, double limit_ms, double *busy)
{
    int earlier_alone = p->causal && p->layout == HCP_LAYOUT_CONTIGUOUS;
    const struct active *act = &s->act;
    struct few *few = &s->few;
    int32_t n = act->n_present, seen = 0; /* classes of the ranks before */
    double count[FEW_RANKS], left[FEW_RANKS], most = 0;

    fill_tables(p, few, n);
    for (int32_t x = 0; x < n; x++) {
        count[x] = 0;
        left[x] = few->total[x];
    }
    for (int32_t i = 0; i < act->m; i++) {
        int32_t mine = act->cls[i];
        const double *early = few->early + mine * FEW_RANKS;
        const double *late = few->late + mine * FEW_RANKS;
        double ms = few->own[mine];

        left[mine] -= 1;
        if (p->linear)
            ms += few->class[mine]->linear;
        if (earlier_alone) {
            for (int32_t x = 0; x < seen; x++)
                ms += count[x] * early[x];
            seen = mine < seen ? seen : mine + 1;
        } else {
            for (int32_t x = 0; x < n; x++) {
                ms += count[x] * early[x];
                ms += left[x] * late[x];
            }
        }
        count[mine] += 1;
        busy[i] = ms;
        most = ms > most ? ms : most;
        if (ms >= limit_ms)
            break;
    }
    return most;
}
