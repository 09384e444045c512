/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "planner/carve.h"
#include "planner/chunks.h"

void hcp_chunks_init(hcp_chunks *chunks)
{
    memset(chunks, 0, sizeof *chunks);
    chunks->size = sizeof *chunks;
    chunks->layers = 1;
    chunks->stripes = 8;
    chunks->buffers = 2;
}

void hcp_chunks_plan_init(hcp_chunks_plan *plan, hcp_chunks_rank *ranks,
                          size_t ranks_capacity, hcp_chunk *chunks,
                          size_t chunks_capacity, hcp_chunk_share *shares,
                          size_t shares_capacity, hcp_segment *segments,
                          size_t segments_capacity)
{
    memset(plan, 0, sizeof *plan);
    plan->size = sizeof *plan;
    plan->ranks = ranks;
    plan->ranks_capacity = ranks_capacity;
    plan->chunks = chunks;
    plan->chunks_capacity = chunks_capacity;
    plan->shares = shares;
    plan->shares_capacity = shares_capacity;
    plan->segments = segments;
    plan->segments_capacity = segments_capacity;
}

/* ---- workspace ---- */

static void carve_list(struct chunk_list *l, struct carver *v, size_t n, size_t chunks)
{
    CARVE(v, l->q, n * chunks);
    CARVE(v, l->layout, chunks);
}

static void carve_all(struct chunks *c, struct carver *v, size_t n, size_t chunks)
{
    CARVE(v, c->allowed, n);
    CARVE(v, c->join, n);
    CARVE(v, c->leave, n);
    CARVE(v, c->best_leave, n);
    CARVE(v, c->best_allowed, n);
    CARVE(v, c->best_join, n);
    CARVE(v, c->slow_order, n);
    CARVE(v, c->speed, n);
    CARVE(v, c->peak, n);
    CARVE(v, c->pair[0], n * n);
    CARVE(v, c->pair[1], n * n);
    CARVE(v, c->fin, n);
    CARVE(v, c->busy, n);
    CARVE(v, c->bytes, n);
    CARVE(v, c->rank, n);
    CARVE(v, c->hops, n);
    CARVE(v, c->came, n);
    CARVE(v, c->buffer, n);
    CARVE(v, c->end, n);
    CARVE(v, c->arrival, n);
    CARVE(v, c->free_ms, n);
    CARVE(v, c->send_ms, n);
    CARVE(v, c->ms, n * n);
    CARVE(v, c->freed, MAX_BUFFERS * n);
    CARVE(v, c->resident, n);
    CARVE(v, c->trial, n);
    CARVE(v, c->found, n);
    CARVE(v, c->other, n);
    CARVE(v, c->start, n);
    CARVE(v, c->row, n);
    CARVE(v, c->later, n);
    CARVE(v, c->by_end, n);
    carve_list(&c->best, v, n, chunks);
    carve_list(&c->here, v, n, chunks);
    CARVE(v, c->value, EXACT_STATES);
    CARVE(v, c->next, EXACT_STATES);
    CARVE(v, c->choice, EXACT_STATES);
    CARVE(v, c->whole_ranks, n);
    c->whole_n_segments = hcp_segments_max(n, HCP_LAYOUT_STRIPED, MAX_STRIPES);
    CARVE(v, c->whole_segments, c->whole_n_segments);
    c->whole_bytes = hcp_workspace_bytes(n);
    c->whole_workspace = carve(v, c->whole_bytes, 1);
}

static size_t bytes_for(size_t n, size_t chunks)
{
    struct chunks c;
    struct carver v = {0, 0};

    carve_all(&c, &v, n, chunks);
    return (size_t)v.at + 64;
}

size_t hcp_chunks_workspace_bytes(const hcp_ring *ring, size_t max_chunks)
{
    if (!ring || ring->n > HCP_CHUNKS_MAX_RANKS || max_chunks < 1 ||
        max_chunks > HCP_CHUNKS_MAX)
        return 0;
    return bytes_for(ring->n, max_chunks);
}

/* ---- the question ---- */

static hcp_status check_numbers(const hcp_chunks *q, char *text, size_t size)
{
    if (q->seq_len < 1 || q->seq_len > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID, "seq_len %lld not in 1..%lld",
                         (long long)q->seq_len, (long long)HCP_PLAN_MAX_LEN);
    if (!(q->step_budget_ms >= 0 && q->step_budget_ms <= 1e9) ||
        !(q->step_fixed_ms >= 0 && q->step_fixed_ms <= 1e9))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "step_budget_ms and step_fixed_ms must be 0..1e9");
    if (q->chunk_len < 0 || q->chunk_len > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID, "chunk_len %lld not in 0..%lld",
                         (long long)q->chunk_len, (long long)HCP_PLAN_MAX_LEN);
    if (q->tile < 0 || q->tile > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID, "tile %lld not in 0..%lld",
                         (long long)q->tile, (long long)HCP_PLAN_MAX_LEN);
    if (q->layout < HCP_LAYOUT_AUTO || q->layout > HCP_LAYOUT_STRIPED || q->stripes < 1 ||
        q->stripes > MAX_STRIPES)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "layout %d is none, or stripes not in 1..%d", (int)q->layout,
                         MAX_STRIPES);
    if (q->layers < 1 || q->layers > MAX_LAYERS || q->activation_bytes < 0 ||
        q->activation_bytes > MAX_TOKEN_BYTES)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "layers must be 1..%d and activation_bytes a token 0..%lld",
                         MAX_LAYERS, (long long)MAX_TOKEN_BYTES);
    if (q->buffers < 0 || q->buffers > MAX_BUFFERS)
        return plan_fail(text, size, HCP_STATUS_INVALID, "buffers %d not in 0..%d",
                         (int)q->buffers, MAX_BUFFERS);
    if (!(q->link_alpha_us >= 0 && q->link_alpha_us <= 1e9) ||
        !(q->link_gbps == 0 || (q->link_gbps >= 1e-6 && q->link_gbps <= 1e9)))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "link alpha must be 0..1e9 us and link speed 1e-6..1e9 GB/s (0: "
                         "infinitely fast)");
    return HCP_STATUS_OK;
}

static hcp_status check(const hcp_ring *ring, const hcp_chunks *q, void *workspace,
                        size_t bytes, const hcp_chunks_plan *plan, char *text,
                        size_t size)
{
    if (!ring || !plan || plan->size < sizeof *plan || !q || q->size < sizeof *q)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a ring, chunks and a plan with their size set are needed");
    if (strcmp(ring->shape.phase, "prefill") != 0 || ring->shape.batch != 1)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "chunks are of one prompt, on a ring of phase prefill and batch "
                         "1, not %s and %d",
                         ring->shape.phase, (int)ring->shape.batch);
    if (ring->n > HCP_CHUNKS_MAX_RANKS)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "chunks are for up to %d ranks, not %zu", HCP_CHUNKS_MAX_RANKS,
                         ring->n);
    if (!plan->ranks || !plan->chunks || !plan->shares || !plan->segments ||
        plan->chunks_capacity < 1 || plan->chunks_capacity > HCP_CHUNKS_MAX)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a plan with its arrays and room for 1..%zu chunks is needed",
                         HCP_CHUNKS_MAX);
    if (!workspace || bytes < bytes_for(ring->n, plan->chunks_capacity))
        return plan_fail(text, size, HCP_STATUS_SPACE,
                         "workspace of %zu bytes, %zu needed for %zu chunks", bytes,
                         bytes_for(ring->n, plan->chunks_capacity),
                         plan->chunks_capacity);
    return check_numbers(q, text, size);
}

static void set_problem(struct problem *p, const hcp_ring *ring, const hcp_chunks *q)
{
    memset(p, 0, sizeof *p);
    p->ring = ring;
    p->n = ring->n;
    p->kind = HCP_MODEL_BEST;
    p->seq_len = q->seq_len;
    p->linear = ring->linear;
    p->causal = 1;
    p->stripes = q->stripes;
    p->buffers = q->buffers;
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

/* The most of some calls, up to all of the prompt. */
static double peak_of(const struct chunks *c, size_t r)
{
    int64_t len[3] = {c->p.seq_len, c->p.seq_len / 4 + 1, 8 * c->p.tile};
    double most = 0;

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            double ms = cost_call(&c->p, problem_model(&c->p, r), len[i], len[j], NULL);
            double area = (double)len[i] * (double)len[j];

            most = ms > 0 && area / ms > most ? area / ms : most;
        }
    return most;
}

/* Tokens a ms on half of the prompt. */
static void set_speeds(struct chunks *c)
{
    int64_t keys = c->p.seq_len / 2 > 1 ? c->p.seq_len / 2 : 1;
    int64_t tokens = c->p.tile < keys ? c->p.tile : keys;

    for (size_t r = 0; r < c->n; r++) {
        double ms = cost_call(&c->p, problem_model(&c->p, r), 8 * tokens, keys, NULL) +
                    layer_ms(&c->p, r, 8 * tokens);

        c->speed[r] = ms > 0 ? 1 / ms : 1;
        c->peak[r] = peak_of(c, r);
        c->slow_order[r] = (int32_t)r;
    }
    sort_descending(c->speed, c->slow_order, c->n);
    for (size_t k = 0; k < c->n / 2; k++) { /* slowest first */
        int32_t swap = c->slow_order[k];

        c->slow_order[k] = c->slow_order[c->n - 1 - k];
        c->slow_order[c->n - 1 - k] = swap;
    }
}

static void open_chunks(struct chunks *c, const hcp_ring *ring, const hcp_chunks *q,
                        void *workspace, size_t max_chunks)
{
    struct carver v = {(uintptr_t)workspace, (uintptr_t)workspace};

    memset(c, 0, sizeof *c);
    carve_all(c, &v, ring->n, max_chunks);
    set_problem(&c->p, ring, q);
    c->question = q;
    c->n = ring->n;
    c->max_chunks = max_chunks;
    c->layouts[0] = q->layout ? q->layout : HCP_LAYOUT_CONTIGUOUS;
    c->layouts[1] = HCP_LAYOUT_ZIGZAG;
    c->n_layouts = q->layout ? 1 : 2;
    c->layer_budget_ms = q->step_budget_ms > 0
                             ? (q->step_budget_ms - q->step_fixed_ms) / q->layers
                             : HUGE_MS;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < c->n * c->n; i++)
            c->pair[k][i].q = -1;
    chunks_allow_all(c);
    set_speeds(c);
}

/* ---- why there are none ---- */

static hcp_status outside(const struct chunks *c, int64_t offset, char *text, size_t size)
{
    const struct problem *p = &c->p;
    int64_t q_min, q_max, kv_min, kv_max, longest = offset > p->tile ? offset : p->tile;
    size_t rank = 0;
    const hcp_rank *spec;
    char lengths[64], run[224];

    for (size_t r = 1; r < c->n; r++) /* the one with the fewest */
        if (c->resident[r] > c->resident[rank])
            rank = r;
    spec = &p->ring->ranks[rank].spec;
    hcp_model_hull(problem_model(p, rank), 0, &q_min, &q_max, &kv_min, &kv_max);
    return plan_fail(
        text, size, HCP_STATUS_OUTSIDE,
        "after %lld tokens no chunk lies inside the measured lengths on '%s%s%s' "
        "(%lld..%lld "
        "queries on %lld..%lld keys); run 'hcp-profile run --db %s%s %s' on that "
        "machine, "
        "then 'hcp-plan fit --db %s'; or allow extrapolation (--extrapolate)",
        (long long)offset, spec->device, spec->limit[0] ? "@" : "", spec->limit,
        (long long)q_min, (long long)q_max, (long long)kv_min, (long long)kv_max,
        p->ring->models->path, bind_run_options(spec->limit, &p->ring->shape, NULL, run),
        answer_lengths(0, p->tile, longest, longest > kv_max, lengths),
        p->ring->models->path);
}

/* The step of a tile at the end of what the list reaches: where it ends first. */
static double least_after(struct chunks *c, const struct chunk_list *l, size_t *rank)
{
    int64_t left = c->p.seq_len - l->reached;
    double best = 3 * HUGE_MS;

    memset(c->resident, 0, c->n * sizeof *c->resident);
    for (size_t k = 0; k < l->count; k++)
        for (size_t r = 0; r < c->n; r++)
            c->resident[r] += l->q[k * c->n + r];
    for (size_t r = 0; r < c->n; r++) {
        double ms =
            chunks_alone_ms(c, c->resident, r, left < c->p.tile ? left : c->p.tile);

        if (ms < best) {
            best = ms;
            *rank = r;
        }
    }
    return best;
}

static hcp_status infeasible(struct chunks *c, char *text, size_t size)
{
    const struct chunk_list *l = &c->best;
    int64_t room = 0, tile = c->p.tile, left = c->p.seq_len - l->reached;
    size_t rank = 0;
    double least, ms;

    for (size_t r = 0; r < c->n; r++)
        room += chunks_most_held(c, r);
    if (room < c->p.seq_len)
        return plan_fail(text, size, HCP_STATUS_INFEASIBLE,
                         "the memory caps are short by %lld tokens for the keys and "
                         "values of %lld; raise a cap or add a rank",
                         (long long)(c->p.seq_len - room), (long long)c->p.seq_len);
    if (l->count == HCP_CHUNKS_MAX)
        return plan_fail(text, size, HCP_STATUS_SPACE,
                         "%zu chunks, the most there are, reach %lld of %lld tokens; "
                         "raise the budget, or take a prompt that is shorter",
                         l->count, (long long)l->reached, (long long)c->p.seq_len);
    if (l->count == c->max_chunks)
        return plan_fail(
            text, size, HCP_STATUS_SPACE,
            "%zu chunks, for which there is room, reach %lld of %lld tokens; "
            "give room for more, up to %zu, or raise the budget",
            l->count, (long long)l->reached, (long long)c->p.seq_len, HCP_CHUNKS_MAX);
    least = least_after(c, l, &rank);
    if (least >= HUGE_MS)
        return outside(c, l->reached, text, size);
    ms = chunks_step_ms(c, least);
    if (least < OVER_MS && !chunks_meets(c, least))
        return plan_fail(
            text, size, HCP_STATUS_INFEASIBLE,
            "from %lld resident tokens on no chunk meets the budget of %.6g ms: the "
            "smallest, of %lld, takes %.6g ms, %.3g ms more, on rank %zu, where it ends "
            "first; raise the budget, add a rank, or take a prompt that is shorter",
            (long long)l->reached, c->question->step_budget_ms,
            (long long)(left < tile ? left : tile), ms, ms - c->question->step_budget_ms,
            rank);
    return plan_fail(
        text, size, HCP_STATUS_INFEASIBLE,
        "the memory caps hold %lld tokens, but after %lld of %lld no chunk%s "
        "was found under them with the blocks that ranks receive; raise a "
        "cap or add a rank",
        (long long)room, (long long)l->reached, (long long)c->p.seq_len,
        c->question->step_budget_ms > 0 ? " within the budget" : "");
}

/* ---- answers ---- */

hcp_status hcp_chunks_split(const hcp_ring *ring, const hcp_chunks *chunks,
                            void *workspace, size_t workspace_bytes, char *text,
                            size_t text_size, hcp_chunks_plan *plan)
{
    struct chunks c;
    hcp_chunks_plan out;
    hcp_status status =
        check(ring, chunks, workspace, workspace_bytes, plan, text, text_size);
    int64_t even_len;
    double even_ms;

    if (status)
        return status;
    if (chunks->step_budget_ms == 0 && chunks->chunk_len == 0)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a step budget, a chunk length or both are needed");
    open_chunks(&c, ring, chunks, workspace, plan->chunks_capacity);
    chunks_search(&c);
    out = *plan;
    out.given = 0;
    out.exact = chunks_exact(&c);
    even_len = chunks_even_len(&c, &even_ms);
    if (even_len > 0)
        chunks_even(&c, even_len);
    if (c.best.total_ms >= HUGE_MS)
        return infeasible(&c, text, text_size);
    status = chunks_report(&c, even_len, even_ms, text, text_size, &out);
    if (!status)
        *plan = out;
    return status;
}

/* What cannot be about the caller's chunks; HCP_STATUS_OK: nothing. */
static hcp_status check_given(const hcp_chunks *q, size_t n, const int64_t *lengths,
                              size_t n_chunks, const int64_t *tokens, char *text,
                              size_t size)
{
    int64_t sum = 0;

    for (size_t k = 0; k < n_chunks; k++) {
        int64_t in = 0;

        if (lengths[k] < 1 || lengths[k] > q->seq_len - sum)
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "chunk %zu has %lld tokens; 1..%lld of the prompt are left",
                             k, (long long)lengths[k], (long long)(q->seq_len - sum));
        sum += lengths[k];
        for (size_t r = 0; tokens && r < n; r++) {
            int64_t t = tokens[k * n + r];

            if (t < 0 || t > lengths[k] - in)
                return plan_fail(
                    text, size, HCP_STATUS_INVALID,
                    "rank %zu has %lld tokens of chunk %zu; 0..%lld are left", r,
                    (long long)t, k, (long long)(lengths[k] - in));
            in += t;
        }
        if (tokens && in != lengths[k])
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "the ranks' tokens of chunk %zu add up to %lld, not %lld", k,
                             (long long)in, (long long)lengths[k]);
    }
    if (sum != q->seq_len)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the chunks have %lld tokens, the prompt %lld", (long long)sum,
                         (long long)q->seq_len);
    return HCP_STATUS_OK;
}

/* The caller's chunk k into c->best; resident: c->resident. */
static hcp_status take_chunk(struct chunks *c, size_t k, int64_t length,
                             const int64_t *tokens, char *text, size_t size)
{
    int64_t *q = c->best.q + k * c->n;
    double best = 2 * HUGE_MS;
    size_t last;

    if (!tokens) {
        memset(q, 0, c->n * sizeof *q);
        if (k > 0)
            memcpy(q, q - c->n, c->n * sizeof *q);
        best = chunks_split_step(c, c->resident, length, q);
        c->best.layout[k] = c->p.layout;
    } else {
        memcpy(q, tokens, c->n * sizeof *q);
        for (int i = 0; i < c->n_layouts; i++) {
            double ms;

            c->p.layout = c->layouts[i];
            ms = chunks_eval(c, c->resident, q);
            if (ms < best) {
                best = ms;
                c->best.layout[k] = c->p.layout;
            }
        }
    }
    if (best >= HUGE_MS)
        return outside(c, c->best.reached, text, size);
    if (best >= OVER_MS) {
        chunks_eval(c, c->resident, q);
        last = (size_t)c->last;
        return plan_fail(
            text, size, HCP_STATUS_INFEASIBLE,
            "chunk %zu: rank %zu would hold %lld tokens, %lld of this chunk, "
            "and the blocks it receives, more than its memory cap; give it "
            "fewer or raise the cap",
            k, last, (long long)(c->resident[last] + q[last]), (long long)q[last]);
    }
    c->best.total_ms += chunks_step_ms(c, best);
    for (size_t r = 0; r < c->n; r++)
        c->resident[r] += q[r];
    c->best.reached += length;
    return HCP_STATUS_OK;
}

hcp_status hcp_chunks_evaluate(const hcp_ring *ring, const hcp_chunks *chunks,
                               const int64_t *lengths, size_t n_chunks,
                               const int64_t *tokens, void *workspace,
                               size_t workspace_bytes, char *text, size_t text_size,
                               hcp_chunks_plan *plan)
{
    struct chunks c;
    hcp_chunks_plan out;
    hcp_status status =
        check(ring, chunks, workspace, workspace_bytes, plan, text, text_size);

    if (status)
        return status;
    if (!lengths || n_chunks < 1)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "the lengths of one chunk or more are needed");
    if (n_chunks > plan->chunks_capacity)
        return plan_fail(text, text_size, HCP_STATUS_SPACE, "%zu chunks, room for %zu",
                         n_chunks, plan->chunks_capacity);
    status = check_given(chunks, ring->n, lengths, n_chunks, tokens, text, text_size);
    if (status)
        return status;
    open_chunks(&c, ring, chunks, workspace, plan->chunks_capacity);
    c.best.total_ms = 0;
    memset(c.resident, 0, c.n * sizeof *c.resident);
    for (size_t k = 0; k < n_chunks && !status; k++)
        status = take_chunk(&c, k, lengths[k], tokens ? tokens + k * c.n : NULL, text,
                            text_size);
    if (status)
        return status;
    c.best.count = n_chunks;
    out = *plan;
    out.exact = 0;
    out.given = tokens ? 2 : 1;
    status = chunks_report(&c, 0, chunks_even_ms(&c, 0), text, text_size, &out);
    if (!status)
        *plan = out;
    return status;
}
