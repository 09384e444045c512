/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "planner/carve.h"
#include "planner/documents.h"

enum { MANY = 256 }; /* documents: looking for cuts takes milliseconds */

void hcp_documents_init(hcp_documents *documents)
{
    memset(documents, 0, sizeof *documents);
    documents->size = sizeof *documents;
    documents->causal = 1;
    documents->cut_gain = 0.01;
    documents->layers = 1;
}

void hcp_documents_plan_init(hcp_documents_plan *plan, hcp_documents_rank *ranks,
                             size_t ranks_capacity, hcp_document_part *parts,
                             size_t parts_capacity, int64_t *lengths,
                             size_t lengths_capacity)
{
    memset(plan, 0, sizeof *plan);
    plan->size = sizeof *plan;
    plan->ranks = ranks;
    plan->ranks_capacity = ranks_capacity;
    plan->parts = parts;
    plan->parts_capacity = parts_capacity;
    plan->lengths = lengths;
    plan->lengths_capacity = lengths_capacity;
}

/* ---- workspace ---- */

/* Numbers the ranks that cost the same; kind_of [n] and kind_rank [n], or NULL. Returns
 * how many there are. */
static int32_t number_kinds(const hcp_ring *ring, int32_t *kind_of, int32_t *kind_rank)
{
    int32_t n = 0;

    for (size_t r = 0; r < ring->n; r++) {
        size_t i = 0;

        while (i < r &&
               ring->ranks[i].id[HCP_MODEL_BEST] != ring->ranks[r].id[HCP_MODEL_BEST])
            i++;
        if (kind_of)
            kind_of[r] = i < r ? kind_of[i] : n;
        if (i == r && kind_rank)
            kind_rank[n] = (int32_t)r;
        n += i == r;
    }
    return n;
}

static void carve_packing(struct packing *s, struct carver *c, size_t n, size_t count)
{
    CARVE(c, s->rank, n);
    CARVE(c, s->place, count);
    CARVE(c, s->cut, n);
    CARVE(c, s->at, n);
}

static void carve_all(struct docs *d, struct carver *c, size_t n, size_t count,
                      size_t kinds)
{
    struct packing_load *l = &d->load;

    CARVE(c, d->order, count);
    CARVE(c, d->len, count);
    CARVE(c, d->class_of, count);
    CARVE(c, d->kind_of, n);
    CARVE(c, d->kind_rank, n);
    CARVE(c, d->whole_ms, kinds * count);
    CARVE(c, d->work_ms, kinds * count);
    CARVE(c, d->source, kinds * count);
    CARVE(c, d->pack_ms, kinds);
    CARVE(c, d->peak, kinds);
    carve_packing(&d->best, c, n, count);
    carve_packing(&d->trial, c, n, count);
    carve_packing(&d->here, c, n, count);
    carve_packing(&d->found, c, n, count);
    carve_packing(&d->few, c, n, count);
    CARVE(c, l->whole, n);
    CARVE(c, l->own, n);
    CARVE(c, l->calls, n * n);
    CARVE(c, l->sends, n);
    CARVE(c, l->tokens, n);
    CARVE(c, l->received, n);
    CARVE(c, l->area, n);
    CARVE(c, l->in_len, n);
    CARVE(c, l->out_len, n);
    CARVE(c, l->hops, n);
    CARVE(c, l->arrive, n);
    CARVE(c, l->came, n);
    CARVE(c, l->fin, n);
    CARVE(c, l->busy, n);
    CARVE(c, d->part_len, n);
    CARVE(c, d->part_ms, n);
    CARVE(c, d->next, count + 1);
    CARVE(c, d->rank_value, n);
    CARVE(c, d->rank_order, n);
    CARVE(c, d->option, count);
    CARVE(c, d->sort_value, count);
}

static size_t bytes_for(const hcp_ring *ring, size_t count)
{
    struct docs d;
    struct carver c = {0, 0};

    carve_all(&d, &c, ring->n, count, (size_t)number_kinds(ring, NULL, NULL));
    return (size_t)c.at + 64;
}

size_t hcp_documents_workspace_bytes(const hcp_ring *ring, size_t n_documents)
{
    if (!ring || ring->n > HCP_DOCUMENTS_MAX_RANKS || n_documents < 1 ||
        n_documents > HCP_DOCUMENTS_MAX)
        return 0;
    return bytes_for(ring, n_documents);
}

/* ---- the question ---- */

static hcp_status check_numbers(const hcp_documents *q, char *text, size_t size)
{
    if (!(q->cut_gain >= 0 && q->cut_gain <= 10))
        return plan_fail(text, size, HCP_STATUS_INVALID, "cut_gain is not in 0..10");
    if (q->tile < 0 || q->tile > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID, "tile %lld not in 0..%lld",
                         (long long)q->tile, (long long)HCP_PLAN_MAX_LEN);
    if (q->layers < 0 || q->layers > MAX_LAYERS || q->activation_bytes < 0 ||
        q->activation_bytes > MAX_TOKEN_BYTES)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "layers must be 0..%d and activation_bytes a token 0..%lld",
                         MAX_LAYERS, (long long)MAX_TOKEN_BYTES);
    if (!(q->link_alpha_us >= 0 && q->link_alpha_us <= 1e9) ||
        !(q->link_gbps == 0 || (q->link_gbps >= 1e-6 && q->link_gbps <= 1e9)))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "link alpha must be 0..1e9 us and link speed 1e-6..1e9 GB/s (0: "
                         "infinitely fast)");
    return HCP_STATUS_OK;
}

static hcp_status check(const hcp_ring *ring, const hcp_documents *q, void *workspace,
                        size_t bytes, const hcp_documents_plan *plan, char *text,
                        size_t size)
{
    int64_t sum = 0;

    if (!ring || !plan || plan->size < sizeof *plan || !q || q->size < sizeof *q)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a ring, documents and a plan with their size set are needed");
    if (strcmp(ring->shape.phase, "prefill") != 0 || ring->shape.batch != 1)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "documents are for a ring of phase prefill and batch 1, not %s "
                         "and %d: they are the batch",
                         ring->shape.phase, (int)ring->shape.batch);
    if (ring->n > HCP_DOCUMENTS_MAX_RANKS)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "documents are for up to %d ranks, not %zu",
                         HCP_DOCUMENTS_MAX_RANKS, ring->n);
    if (!q->lengths || q->n_documents < 1 || q->n_documents > HCP_DOCUMENTS_MAX)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the lengths of 1..%zu documents are needed", HCP_DOCUMENTS_MAX);
    for (size_t i = 0; i < q->n_documents; i++) {
        if (q->lengths[i] < 1 || q->lengths[i] > HCP_PLAN_MAX_LEN)
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "document %zu has %lld tokens; 1..%lld are possible", i,
                             (long long)q->lengths[i], (long long)HCP_PLAN_MAX_LEN);
        sum += q->lengths[i];
    }
    if (sum > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the documents have %lld tokens together; %lld at most",
                         (long long)sum, (long long)HCP_PLAN_MAX_LEN);
    if (!workspace || bytes < bytes_for(ring, q->n_documents))
        return plan_fail(text, size, HCP_STATUS_SPACE,
                         "workspace of %zu bytes, %zu needed for %zu documents", bytes,
                         bytes_for(ring, q->n_documents), q->n_documents);
    return check_numbers(q, text, size);
}

static void set_problem(struct problem *p, const hcp_ring *ring, const hcp_documents *q)
{
    memset(p, 0, sizeof *p);
    p->ring = ring;
    p->n = ring->n;
    p->kind = HCP_MODEL_BEST;
    p->linear = ring->linear;
    p->causal = q->causal != 0;
    p->layout = HCP_LAYOUT_CONTIGUOUS;
    p->stripes = 1;
    p->sub_blocks = 1;
    p->extrapolate = q->extrapolate != 0;
    p->alpha_ms = q->link_alpha_us / 1e3;
    p->token_ms = q->link_gbps > 0 ? ring->token_bytes / (q->link_gbps * 1e6) : 0;
    p->memory = ring->memory;
    p->layers = q->layers;
    p->activation_bytes = q->activation_bytes;
    p->kv_bytes = (int64_t)ring->token_bytes;
    p->tile = q->tile > 1 ? q->tile : 1;
    for (size_t r = 0; q->tile == 0 && r < ring->n; r++)
        for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
            const hcp_model *model = ring->ranks[r].model[k];
            int64_t tile = model ? hcp_model_tile_q(model) : 1;

            p->tile = tile > p->tile ? tile : p->tile;
        }
}

/* Times of every length on every kind of rank. */
static void time_classes(struct docs *d)
{
    size_t n = (size_t)d->n_classes;

    for (size_t k = 0; k < (size_t)d->n_kinds; k++) {
        size_t r = (size_t)d->kind_rank[k];
        double area;

        d->pack_ms[k] = d->peak[k] = 0;
        for (size_t item = 0; item < d->count; item++) {
            size_t at = k * n + (size_t)d->class_of[item];
            double *ms = &d->whole_ms[at];

            if (item == 0 || d->class_of[item] != d->class_of[item - 1]) {
                d->source[at] = 0;
                *ms = cost_own(&d->p, problem_model(&d->p, r), d->len[item],
                               &d->source[at]);
                if (d->source[at] == HCP_FROM_EXTRAPOLATED && !d->p.extrapolate)
                    *ms = HUGE_MS;
                d->work_ms[at] = *ms + docs_slope(d, r) * (double)d->len[item];
                area = (double)docs_area(d, 0, d->len[item], d->len[item]);
                if (*ms < HUGE_MS && area / *ms > d->peak[k])
                    d->peak[k] = area / *ms;
            }
            d->pack_ms[k] += *ms;
        }
        if (d->pack_ms[k] >= HUGE_MS && d->peak[k] > 0)
            d->pack_ms[k] = d->area / d->peak[k];
    }
}

static void open_documents(struct docs *d, const hcp_ring *ring, const hcp_documents *q,
                           void *workspace)
{
    struct carver c = {(uintptr_t)workspace, (uintptr_t)workspace};
    size_t count = q->n_documents;

    memset(d, 0, sizeof *d);
    carve_all(d, &c, ring->n, count, (size_t)number_kinds(ring, NULL, NULL));
    set_problem(&d->p, ring, q);
    d->n = ring->n;
    d->count = count;
    d->whole = q->whole != 0 || !q->causal;
    d->cut_gain = q->cut_gain;
    d->few.ms = HUGE_MS;
    d->n_kinds = number_kinds(ring, d->kind_of, d->kind_rank);
    for (size_t i = 0; i < count; i++) {
        d->order[i] = (int32_t)i;
        d->sort_value[i] = (double)q->lengths[i];
        d->p.seq_len += q->lengths[i];
    }
    sort_descending(d->sort_value, d->order, count);
    for (size_t i = 0; i < count; i++) {
        d->len[i] = q->lengths[d->order[i]];
        d->n_classes += i == 0 || d->len[i] != d->len[i - 1];
        d->class_of[i] = d->n_classes - 1;
        d->area += (double)docs_area(d, 0, d->len[i], d->len[i]);
    }
    time_classes(d);
}

/* ---- answers ---- */

/* Why nothing can be placed. */
static hcp_status infeasible(const struct docs *d, char *text, size_t size)
{
    int64_t room = 0, most = 0;

    for (size_t r = 0; r < d->n; r++) {
        int64_t lo = 0, hi = d->p.seq_len + 1;

        while (lo + 1 < hi) {
            int64_t mid = lo + (hi - lo) / 2;

            if (docs_fits(d, r, mid, 0))
                lo = mid;
            else
                hi = mid;
        }
        room += lo;
        most = lo > most ? lo : most;
    }
    if (room < d->p.seq_len)
        return plan_fail(
            text, size, HCP_STATUS_INFEASIBLE,
            "the memory caps are short by %lld tokens for documents of %lld; "
            "raise a cap, add a rank or take fewer documents",
            (long long)(d->p.seq_len - room), (long long)d->p.seq_len);
    if (d->whole && d->len[0] > most)
        return plan_fail(text, size, HCP_STATUS_INFEASIBLE,
                         "document %d has %lld tokens, no rank's memory cap lets it hold "
                         "more than %lld; raise a cap, or let documents be cut (under a "
                         "causal mask)",
                         (int)d->order[0], (long long)d->len[0], (long long)most);
    return plan_fail(
        text, size, HCP_STATUS_INFEASIBLE,
        "the memory caps hold %lld tokens, but no way was found to place "
        "documents of %lld, the longest of %lld, under them%s; raise a cap or "
        "add a rank",
        (long long)room, (long long)d->p.seq_len, (long long)d->len[0],
        d->whole ? " whole" : ", with the keys and values that parts receive");
}

static int outside(const struct docs *d)
{
    for (size_t k = 0; k < (size_t)d->n_kinds; k++)
        for (size_t c = 0; c < (size_t)d->n_classes; c++)
            if (d->whole_ms[k * (size_t)d->n_classes + c] >= HUGE_MS)
                return 1;
    return 0;
}

/* What no plan takes less than, cuts only ever adding to the work of a document (but for
 * what tiles do). Of whatever share x of each document on each rank with work w, for any
 * weights y >= 0 of the ranks that add up to 1: makespan >= sum y sum w x >= sum over the
 * documents of the least y w. Here y is as the ranks' speeds on the whole pack. */
static double ideal(const struct docs *d)
{
    double speed = 0, sum = 0, *one = d->sort_value;

    for (size_t r = 0; r < d->n; r++)
        speed +=
            1 / (d->pack_ms[d->kind_of[r]] + docs_slope(d, r) * (double)d->p.seq_len);
    for (size_t i = 0; i < d->count; i++)
        one[i] = HUGE_MS;
    for (size_t k = 0; k < (size_t)d->n_kinds; k++) {
        size_t r = (size_t)d->kind_rank[k];
        double all = d->pack_ms[k] + docs_slope(d, r) * (double)d->p.seq_len;

        for (size_t i = 0; i < d->count; i++) {
            double ms = docs_work(d, k, i);

            if (ms < HUGE_MS && ms / all < one[i])
                one[i] = ms / all;
        }
    }
    for (size_t i = 0; i < d->count; i++)
        sum += one[i] < HUGE_MS ? one[i] : 0; /* too long to be whole anywhere */
    return sum / speed;
}

/* Cuts add to the work there is: with many documents a rank, which whole ones go where it
 * is least, all that they could gain is the difference to this. */
static double mean_busy(struct docs *d, struct packing *s)
{
    double sum = 0;

    docs_eval(d, s);
    for (int32_t i = 0; i < s->m; i++)
        sum += d->load.busy[i];
    return sum / (double)d->n;
}

/* Cuts into d->best, whole documents being in d->found; *exact. */
static void decide(struct docs *d, double ideal_ms, int *exact)
{
    double gain = d->cut_gain > 1e-4 ? d->cut_gain : 1e-4;
    int few = docs_few(d, !d->whole);

    *exact = docs_few(d, 0) && docs_exact(d, 0, &d->found) && few;
    docs_copy(d, &d->best, d->found.ms < d->best.ms ? &d->found : &d->best);
    if (d->whole || d->n == 1) {
        docs_copy(d, &d->best, &d->found);
        return;
    }
    /* Of many, where nothing is left to gain, no cut is looked for. */
    if (d->count > MANY && d->found.ms <= ideal_ms * (1 + gain))
        return;
    if (d->count > MANY && d->count >= 64 * d->n &&
        d->found.ms <= mean_busy(d, &d->found) * (1 + gain))
        return;
    docs_cut(d, ideal_ms, &d->best);
    if (few)
        *exact &= docs_exact(d, 1, &d->best);
}

hcp_status hcp_documents_split(const hcp_ring *ring, const hcp_documents *documents,
                               void *workspace, size_t workspace_bytes, char *text,
                               size_t text_size, hcp_documents_plan *plan)
{
    struct docs d;
    hcp_documents_plan out;
    hcp_status status =
        check(ring, documents, workspace, workspace_bytes, plan, text, text_size);
    double even_ms, ideal_ms;
    int exact, by_gain;

    if (status)
        return status;
    open_documents(&d, ring, documents, workspace);
    ideal_ms = ideal(&d);
    d.enough_ms = ideal_ms * (1 + 1e-4);
    docs_even(&d, documents->lengths, &d.best);
    even_ms = d.best.ms;
    docs_whole(&d, &d.found);
    if (d.best.ms < d.found.ms && !docs_cuts(&d.best))
        docs_copy(&d, &d.found, &d.best);
    decide(&d, ideal_ms, &exact);
    by_gain = d.found.ms < HUGE_MS && d.found.ms <= d.best.ms * (1 + d.cut_gain);
    if (by_gain)
        docs_copy(&d, &d.best, &d.found);
    else
        docs_fewer_cuts(&d, &d.best);
    if (d.best.ms >= HUGE_MS)
        return outside(&d) ? docs_outside(&d, text, text_size)
                           : infeasible(&d, text, text_size);
    docs_eval(&d, &d.best);
    out = *plan;
    out.exact = exact;
    out.given = 0;
    status =
        docs_report(&d, documents, even_ms, d.found.ms, by_gain, text, text_size, &out);
    if (!status)
        *plan = out;
    return status;
}

/* What no plan can have about parts; NULL: nothing. */
static const char *bad_parts(const hcp_document_part *parts, const int64_t *counts,
                             size_t n, int64_t *lengths, size_t n_documents)
{
    const hcp_document_part *before = parts;
    const char *why = NULL;
    int64_t n_before = 0;

    memset(lengths, 0, n_documents * sizeof *lengths);
    for (size_t r = 0; r < n && !why; r++) {
        if (counts[r] < 0)
            return "a rank has fewer than no parts";
        if (counts[r] == 0)
            continue;
        why =
            documents_bad_rank(parts, counts[r], before, n_before, lengths, n_documents);
        before = parts;
        n_before = counts[r];
        parts += counts[r];
    }
    return why;
}

/* Parts into d->best; they have been looked at. */
static void take_parts(struct docs *d, const hcp_document_part *parts,
                       const int64_t *counts)
{
    struct packing *s = &d->best;
    int32_t *item_of = d->option;

    docs_clear(d, s);
    s->m = 0;
    for (size_t item = 0; item < d->count; item++)
        item_of[d->order[item]] = (int32_t)item;
    for (size_t r = 0; r < d->n; parts += counts[r++]) {
        if (counts[r] == 0)
            continue;
        s->rank[s->m] = (int32_t)r;
        s->cut[s->m] = -1;
        for (int64_t i = 0; i < counts[r]; i++) {
            int32_t item = item_of[parts[i].document];
            int64_t end = parts[i].offset + parts[i].length;

            if (parts[i].offset == 0)
                s->place[item] = s->m;
            if (end < d->len[item]) {
                s->cut[s->m] = item;
                s->at[s->m] = end;
            }
        }
        s->m++;
    }
}

hcp_status hcp_documents_evaluate(const hcp_ring *ring, const hcp_documents *documents,
                                  const hcp_document_part *parts, const int64_t *counts,
                                  void *workspace, size_t workspace_bytes, char *text,
                                  size_t text_size, hcp_documents_plan *plan)
{
    struct docs d;
    hcp_documents_plan out;
    const char *why;
    hcp_status status =
        check(ring, documents, workspace, workspace_bytes, plan, text, text_size);
    int64_t *lengths;
    double even_ms, whole_ms;

    if (status)
        return status;
    if (!parts || !counts)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "the parts of each rank and their numbers are needed");
    open_documents(&d, ring, documents, workspace);
    lengths = (int64_t *)(void *)d.sort_value; /* both of 8 bytes, and it is done with */
    why = bad_parts(parts, counts, d.n, lengths, d.count);
    for (size_t doc = 0; !why && doc < d.count; doc++)
        if (lengths[doc] != documents->lengths[doc])
            why = "parts do not add up to their documents";
    if (why)
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "not a plan: %s", why);
    docs_even(&d, documents->lengths, &d.trial);
    even_ms = d.trial.ms;
    docs_whole(&d, &d.found);
    whole_ms = d.found.ms;
    take_parts(&d, parts, counts);
    for (int32_t i = 0; i + 1 < d.best.m; i++)
        if (d.best.cut[i] >= 0 && d.whole)
            return plan_fail(
                text, text_size, HCP_STATUS_INVALID,
                "document %d is cut, which is not asked for, or not under this "
                "mask",
                (int)d.order[d.best.cut[i]]);
    if (docs_eval(&d, &d.best) >= HUGE_MS) {
        for (int32_t i = 0; i < d.best.m; i++)
            if (!docs_fits(&d, (size_t)d.best.rank[i], d.load.tokens[i],
                           d.load.received[i]))
                return plan_fail(
                    text, text_size, HCP_STATUS_INFEASIBLE,
                    "rank %d has %lld tokens and receives %lld, more than its "
                    "memory cap; give it fewer or raise the cap",
                    (int)d.best.rank[i], (long long)d.load.tokens[i],
                    (long long)d.load.received[i]);
        return docs_outside(&d, text, text_size);
    }
    out = *plan;
    out.exact = 0;
    out.given = 1;
    status = docs_report(&d, documents, even_ms, whole_ms, 0, text, text_size, &out);
    if (!status)
        *plan = out;
    return status;
}
