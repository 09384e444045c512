/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "planner/documents.h"
#include "planner/specs.h"

int64_t docs_area(const struct docs *d, int64_t from, int64_t len, int64_t whole)
{
    if (!d->p.causal)
        return len * whole;
    return len * from + (len % 2 ? (len + 1) / 2 * len : len / 2 * (len + 1));
}

void docs_areas(struct docs *d, const struct packing *s)
{
    int64_t *area = d->load.area;

    for (int32_t i = 0; i < s->m; i++) {
        int32_t in = i > 0 ? s->cut[i - 1] : -1, out = i + 1 < s->m ? s->cut[i] : -1;
        int64_t from, len = docs_part(d, s, i, &from);

        area[i] = len > 0 ? docs_area(d, from, len, 0) : 0;
        if (in >= 0 && out >= 0 && out != in) /* that was the one that comes in */
            area[i] += docs_area(d, 0, s->at[i], 0);
    }
    for (size_t item = 0; item < d->count; item++)
        if (!docs_is_cut(s, item))
            area[s->place[item]] += docs_area(d, 0, d->len[item], d->len[item]);
}

/* ---- bound ---- */

/* Rank r does at most v area a ms and takes c ms a token: in T ms, of any mixture of area
 * and rho times tokens, at most T max(v, rho / c). All of both must be done, so that
 * T >= (A + rho S) / sum max(v, rho / c), for every rho; the most of that is where a rank
 * changes from one to the other, or at an end. */
static double mixed(const struct docs *d, const double *v, double rho)
{
    double sum = 0;

    for (size_t r = 0; r < d->n; r++) {
        double c = docs_slope(d, r), tokens;

        if (rho > 0 && c == 0)
            return 0;
        tokens = rho > 0 ? rho / c : 0;
        sum += v[r] > tokens ? v[r] : tokens;
    }
    return (d->area + rho * (double)d->p.seq_len) / sum;
}

double docs_bound(struct docs *d, const struct packing *s)
{
    double *v = d->rank_value, best, sum = 0;

    for (size_t r = 0; r < d->n; r++)
        v[r] = d->peak[d->kind_of[r]];
    for (int32_t i = 0; s && i < s->m; i++) {
        size_t r = (size_t)s->rank[i];
        double busy = d->load.busy[i] - layer_ms(&d->p, r, d->load.tokens[i]);
        double speed = busy > 0 ? (double)d->load.area[i] / busy : 0;

        v[r] = speed > v[r] ? speed : v[r];
    }
    best = mixed(d, v, 0);
    if (!d->p.linear)
        return best;
    for (size_t r = 0; r < d->n; r++) {
        double c = docs_slope(d, r), ms = c > 0 && v[r] > 0 ? mixed(d, v, v[r] * c) : 0;

        best = ms > best ? ms : best;
        sum += c > 0 ? 1 / c : HUGE_MS;
    }
    sum = (double)d->p.seq_len / sum;
    return sum > best ? sum : best;
}

/* ---- what is not measured ---- */

hcp_status docs_outside(const struct docs *d, char *text, size_t text_size)
{
    const struct problem *p = &d->p;
    int64_t q_min, q_max, kv_min, kv_max, len;
    const hcp_rank *spec;
    size_t item = 0, rank = 0, n = (size_t)d->n_classes;
    char lengths[64], run[224];

    /* The longest that no rank has, or that of the first rank. */
    for (size_t i = 0, found = 0; i < d->count && !found; i++) {
        int everywhere = 1;

        for (size_t k = 0; k < (size_t)d->n_kinds; k++)
            everywhere &= d->whole_ms[k * n + (size_t)d->class_of[i]] >= HUGE_MS;
        if (everywhere) {
            item = i;
            found = 1;
        }
    }
    spec = &p->ring->ranks[rank].spec;
    len = d->len[item];
    hcp_model_hull(problem_model(p, rank), p->causal, &q_min, &q_max, &kv_min, &kv_max);
    return plan_fail(
        text, text_size, HCP_STATUS_OUTSIDE,
        "document %d of %lld tokens, or parts of it, are outside the measured %s lengths "
        "on "
        "'%s%s%s' (%lld..%lld); run 'hcp-profile run --db %s%s %s' on that machine, then "
        "'hcp-plan fit --db %s'; or allow extrapolation (--extrapolate)",
        (int)d->order[item], (long long)len, p->causal ? "causal" : "full", spec->device,
        spec->limit[0] ? "@" : "", spec->limit, (long long)q_min, (long long)q_max,
        p->ring->models->path, bind_run_options(spec->limit, &p->ring->shape, NULL, run),
        answer_lengths(p->causal, len, len, len > q_max, lengths), p->ring->models->path);
}

/* ---- error bars and sources ---- */

struct errors {
    const hcp_model *model;
    double ms, below, above;
};

static void add_error(struct errors *e, int causal, int64_t q_len, int64_t kv_len)
{
    double lo, hi, ms = hcp_model_block_ms(e->model, causal, q_len, kv_len, NULL);

    hcp_model_error(e->model, causal, q_len, kv_len, &lo, &hi);
    e->ms += ms;
    e->below += ms * lo;
    e->above += ms * hi;
}

/* Of the calls and linear work at a place, by time. */
static void place_errors(const struct docs *d, const struct packing *s, int32_t place,
                         double *lo, double *hi)
{
    const struct packing_load *l = &d->load;
    size_t r = (size_t)s->rank[place];
    double error = d->p.ring->ranks[r].spec.linear_error;
    struct errors e = {problem_model(&d->p, r), layer_ms(&d->p, r, l->tokens[place]), 0,
                       0};

    e.below = e.ms * (error < 1 ? error : 1);
    e.above = e.ms * error;
    for (size_t item = 0; item < d->count; item++)
        if (s->place[item] == place && !docs_is_cut(s, item))
            add_error(&e, d->p.causal, d->len[item], d->len[item]);
    if (l->in_len[place] > 0)
        add_error(&e, 1, l->in_len[place], l->in_len[place]);
    if (l->out_len[place] > 0)
        add_error(&e, 1, l->out_len[place], l->out_len[place]);
    for (int32_t h = 1; h <= l->hops[place]; h++)
        add_error(&e, 0, l->in_len[place],
                  h == l->hops[place] ? l->out_len[place - h] : l->in_len[place - h]);
    *lo = e.below / e.ms;
    *hi = e.above / e.ms;
}

/* Of the rank that is last; with data sheets in the ring, each end is that of the rank
 * that is last there. */
static void fill_interval(const struct docs *d, const struct packing *s, int32_t place,
                          hcp_documents_plan *plan)
{
    double lo, hi;

    place_errors(d, s, place, &lo, &hi);
    plan->interval_lo_ms = plan->makespan_ms * (1 - lo);
    plan->interval_hi_ms = plan->makespan_ms * (1 + hi);
    for (int32_t i = 0; d->p.ring->n_estimates > 0 && i < s->m; i++) {
        if (!(d->load.fin[i] > 0) || d->load.tokens[i] == 0)
            continue;
        place_errors(d, s, i, &lo, &hi);
        lo = d->load.fin[i] * (1 - lo);
        hi = d->load.fin[i] * (1 + hi);
        plan->interval_lo_ms = lo > plan->interval_lo_ms ? lo : plan->interval_lo_ms;
        plan->interval_hi_ms = hi > plan->interval_hi_ms ? hi : plan->interval_hi_ms;
    }
}

static hcp_source source_of(const struct docs *d, const struct packing *s)
{
    const struct packing_load *l = &d->load;
    uint8_t source = 0;

    for (size_t item = 0; item < d->count; item++) {
        uint8_t one = d->source[docs_kind(d, s, s->place[item]) * (size_t)d->n_classes +
                                (size_t)d->class_of[item]];

        if (!docs_is_cut(s, item) && one > source)
            source = one;
    }
    for (int32_t i = 0; i < s->m; i++) {
        const hcp_model *model = problem_model(&d->p, (size_t)s->rank[i]);

        if (l->in_len[i] > 0)
            cost_own(&d->p, model, l->in_len[i], &source);
        if (l->out_len[i] > 0)
            cost_own(&d->p, model, l->out_len[i], &source);
        for (int32_t h = 1; h <= l->hops[i]; h++)
            cost_call(&d->p, model, l->in_len[i],
                      h == l->hops[i] ? l->out_len[i - h] : l->in_len[i - h], &source);
    }
    return (hcp_source)source;
}

/* ---- how even it is ---- */

/* Time of the last tile of the longest part at a place, or of a first one. */
static double last_tile_ms(const struct docs *d, const struct packing *s, int32_t place)
{
    const struct packing_load *l = &d->load;
    size_t r = (size_t)s->rank[place];
    int64_t len =
        l->in_len[place] > l->out_len[place] ? l->in_len[place] : l->out_len[place];
    int64_t less, before = len == l->in_len[place] ? l->received[place] : 0;
    double ms;

    for (size_t item = 0; item < d->count; item++)
        if (s->place[item] == place && !docs_is_cut(s, item) && d->len[item] > len) {
            len = d->len[item];
            before = 0;
        }
    if (len == 0)
        return docs_own_ms(d, r, d->p.tile) + docs_slope(d, r) * (double)d->p.tile +
               docs_fixed(d, r);
    less = len > d->p.tile ? len - d->p.tile : 0;
    ms = docs_own_ms(d, r, len) + docs_slope(d, r) * (double)(len - less);
    if (before > 0)
        ms += docs_call_ms(d, r, len, before);
    if (less > 0)
        ms -=
            docs_own_ms(d, r, less) + (before > 0 ? docs_call_ms(d, r, less, before) : 0);
    return ms;
}

static hcp_uneven uneven(const struct docs *d, const struct packing *s, int by_gain,
                         double mean_ms, const hcp_documents_plan *plan)
{
    const struct packing_load *l = &d->load;
    int32_t last = 0, first = 0;

    if (!(plan->area_imbalance > 0.02))
        return HCP_UNEVEN_NO;
    if (plan->imbalance <= 0.02)
        return HCP_UNEVEN_TIME;
    if (d->whole)
        return HCP_UNEVEN_WHOLE;
    if (by_gain)
        return HCP_UNEVEN_GAIN;
    for (int32_t i = 0; i < s->m; i++) {
        if (l->fin[i] > l->fin[last])
            last = i;
        if (l->fin[i] < l->fin[first])
            first = i;
        if (l->busy[i] < mean_ms &&
            !docs_fits(d, (size_t)s->rank[i], l->tokens[i] + d->p.tile, l->received[i]))
            return HCP_UNEVEN_CAPS;
    }
    if (last_tile_ms(d, s, last) > 0.02 * mean_ms ||
        l->fin[first] + last_tile_ms(d, s, first) > l->fin[last])
        return HCP_UNEVEN_TILE;
    for (int32_t i = 0; i < s->m; i++)
        if (l->fin[i] - l->busy[i] > 0.02 * mean_ms)
            return HCP_UNEVEN_WAIT;
    return HCP_UNEVEN_COST;
}

/* Sets imbalance and area_imbalance; returns the mean time. */
static double fill_imbalance(const struct docs *d, const struct packing *s,
                             hcp_documents_plan *plan)
{
    double speeds = 0, most_area = 0, most = 0, sum = 0;

    for (size_t r = 0; r < d->n; r++)
        speeds += 1 / d->pack_ms[d->kind_of[r]];
    for (int32_t i = 0; i < s->m; i++) {
        size_t r = (size_t)s->rank[i];
        double area = (double)plan->ranks[r].area / d->area * d->pack_ms[d->kind_of[r]];

        most_area = area > most_area ? area : most_area;
        most = d->load.busy[i] > most ? d->load.busy[i] : most;
        sum += d->load.busy[i];
    }
    plan->area_imbalance = most_area * speeds - 1;
    plan->imbalance = most / (sum / (double)d->n) - 1;
    return sum / (double)d->n;
}

/* ---- the plan ---- */

static void fill_rank(const struct docs *d, size_t r, hcp_documents_rank *out)
{
    const struct bound_rank *b = &d->p.ring->ranks[r];
    int lut = b->model[HCP_MODEL_BEST] == b->model[HCP_MODEL_LUT];

    memset(out, 0, sizeof *out);
    memcpy(out->device, b->spec.device, sizeof out->device);
    memcpy(out->limit, b->spec.limit, sizeof out->limit);
    memcpy(out->model, lut ? "lut" : "poly", lut ? 3 : 4);
    estimate_kin_name(d->p.ring, r, out->kin);
    out->linear_before_us = b->spec.linear_before_us;
    out->linear_before_fixed_us = b->spec.linear_before_fixed_us;
    out->linear_after_us = b->spec.linear_after_us;
    out->linear_after_fixed_us = b->spec.linear_after_fixed_us;
    out->linear_error = b->spec.linear_error;
    out->time_scale = b->scale;
    out->max_tokens = b->spec.max_tokens;
    out->max_bytes = b->spec.max_bytes;
    out->weight_bytes = b->spec.weight_bytes;
}

static void fill_ranks(const struct docs *d, const struct packing *s,
                       hcp_documents_plan *plan)
{
    const struct packing_load *l = &d->load;

    for (size_t r = 0; r < d->n; r++)
        fill_rank(d, r, &plan->ranks[r]);
    for (int32_t i = 0; i < s->m; i++) {
        hcp_documents_rank *out = &plan->ranks[s->rank[i]];

        out->tokens = l->tokens[i];
        out->area = l->area[i];
        out->received_tokens = l->received[i];
        out->predicted_ms = l->fin[i];
        out->compute_ms = l->busy[i] < l->fin[i] ? l->busy[i] : l->fin[i];
        if (out->tokens > 0)
            out->memory_bytes = memory_plus(
                out->weight_bytes,
                memory_plus(memory_times(out->tokens, memory_unit(&d->p, out->tokens, 0)),
                            memory_times(out->received_tokens, d->p.kv_bytes)));
    }
}

/* Parts by rank, in each by document. Returns their number; plan NULL: that alone. */
static size_t fill_parts(struct docs *d, const struct packing *s,
                         const hcp_documents *question, hcp_documents_plan *plan)
{
    int32_t *item_of = d->option;
    size_t total = d->count, first = 0;

    for (int32_t i = 0; i + 1 < s->m; i++)
        total += s->cut[i] >= 0;
    if (!plan)
        return total;
    for (size_t item = 0; item < d->count; item++)
        item_of[d->order[item]] = (int32_t)item;
    for (int twice = 0; twice < 2; twice++) { /* counts, then the parts */
        plan->n_cut = 0;
        for (size_t doc = 0; doc < d->count; doc++) {
            int32_t item = item_of[doc], i = s->place[item];
            int64_t from = 0, to;

            plan->n_cut += docs_is_cut(s, (size_t)item);
            for (int more = 1; more; i++, from = to) {
                hcp_documents_rank *rank = &plan->ranks[s->rank[i]];

                more = i + 1 < s->m && s->cut[i] == item;
                to = more ? s->at[i] : d->len[item];
                if (twice)
                    plan->parts[rank->first_part + rank->n_parts] =
                        (hcp_document_part){(int64_t)doc, from, to - from};
                rank->n_parts++;
            }
        }
        for (size_t r = 0; !twice && r < d->n; r++) {
            plan->ranks[r].first_part = (int64_t)first;
            first += (size_t)plan->ranks[r].n_parts;
            plan->ranks[r].n_parts = 0;
        }
    }
    memcpy(plan->lengths, question->lengths, d->count * sizeof *plan->lengths);
    return total;
}

static uint64_t models_hash(const struct docs *d)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t r = 0; r < d->n; r++) {
        h ^= d->p.ring->ranks[r].hash[d->p.kind];
        h *= UINT64_C(0x100000001b3);
        h ^= h >> 32;
    }
    return h;
}

hcp_status docs_report(struct docs *d, const hcp_documents *question, double even_ms,
                       double whole_ms, int by_gain, char *text, size_t text_size,
                       hcp_documents_plan *plan)
{
    const struct packing *s = &d->best;
    hcp_documents_plan out = *plan;
    size_t parts = fill_parts(d, s, question, NULL);
    int32_t last = 0;
    double mean_ms;

    if (!plan->ranks || !plan->parts || !plan->lengths || plan->ranks_capacity < d->n ||
        plan->parts_capacity < parts || plan->lengths_capacity < d->count)
        return plan_fail(
            text, text_size, HCP_STATUS_SPACE,
            "arrays for %zu ranks, %zu parts and %zu lengths, up to %zu, %zu "
            "and %zu needed",
            plan->ranks_capacity, plan->parts_capacity, plan->lengths_capacity, d->n,
            d->count + d->n - 1, d->count);
    docs_areas(d, s);
    fill_ranks(d, s, &out);
    out.n_parts = fill_parts(d, s, question, &out);
    out.n_ranks = d->n;
    out.n_documents = d->count;
    out.shape = d->p.ring->shape;
    memcpy(out.provider, d->p.ring->provider, sizeof out.provider);
    out.causal = d->p.causal;
    out.whole = question->whole != 0;
    out.cut_gain = question->cut_gain;
    out.tile = d->p.tile;
    out.link_alpha_us = question->link_alpha_us;
    out.link_gbps = question->link_gbps;
    out.layers = question->layers;
    out.activation_bytes = question->activation_bytes;
    for (int32_t i = 0; i < s->m; i++)
        if (d->load.fin[i] > d->load.fin[last])
            last = i;
    out.makespan_ms = s->ms;
    out.critical_rank = s->rank[last];
    out.bound_ms = docs_bound(d, s);
    if (out.bound_ms > out.makespan_ms) /* rounding */
        out.bound_ms = out.makespan_ms;
    fill_interval(d, s, last, &out);
    out.even_ms = even_ms < HUGE_MS ? even_ms : NAN;
    out.whole_ms = whole_ms < HUGE_MS ? whole_ms : NAN;
    out.gain_over_even = out.even_ms / out.makespan_ms;
    out.gain_over_whole = out.whole_ms / out.makespan_ms;
    mean_ms = fill_imbalance(d, s, &out);
    out.uneven = uneven(d, s, by_gain, mean_ms, &out);
    out.source = ring_source(d->p.ring, source_of(d, s));
    out.models_hash = models_hash(d);
    out.fingerprint = hcp_documents_fingerprint(&out);
    *plan = out;
    return HCP_STATUS_OK;
}
