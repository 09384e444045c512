/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "planner/decode.h"
#include "planner/joint.h"

hcp_status plan_fail(char *text, size_t size, hcp_status status, const char *format, ...)
{
    va_list args;

    if (text && size > 0) {
        va_start(args, format);
        vsnprintf(text, size, format, args);
        va_end(args);
    }
    return status;
}

static hcp_status check_question(const hcp_question *q, char *text, size_t size)
{
    if (!q || q->size < sizeof *q)
        return plan_fail(text, size, HCP_STATUS_INVALID, "question has no size set");
    if (q->seq_len < 1 || q->seq_len > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "sequence length %lld is not in 1..%lld", (long long)q->seq_len,
                         (long long)HCP_PLAN_MAX_LEN);
    if (q->strategy < HCP_STRATEGY_EVEN || q->strategy > HCP_STRATEGY_GIVEN ||
        q->layout < HCP_LAYOUT_AUTO || q->layout > HCP_LAYOUT_STRIPED)
        return plan_fail(text, size, HCP_STATUS_INVALID, "no such strategy or layout");
    if (q->stripes < 1 || q->stripes > MAX_STRIPES)
        return plan_fail(text, size, HCP_STATUS_INVALID, "stripes %d not in 1..%d",
                         (int)q->stripes, MAX_STRIPES);
    if (q->buffers < 0 || q->buffers > MAX_BUFFERS)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "buffers %d not in 1..%d (0: no limit)", (int)q->buffers,
                         MAX_BUFFERS);
    if (q->sub_blocks < 1 || q->sub_blocks > MAX_SUB_BLOCKS)
        return plan_fail(text, size, HCP_STATUS_INVALID, "sub_blocks %d not in 1..%d",
                         (int)q->sub_blocks, MAX_SUB_BLOCKS);
    if (q->layers < 0 || q->layers > MAX_LAYERS || q->activation_bytes < 0 ||
        q->activation_bytes > MAX_TOKEN_BYTES)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "layers must be 0..%d and activation_bytes a token 0..%lld",
                         MAX_LAYERS, (long long)MAX_TOKEN_BYTES);
    if (q->tile < 0 || q->tile > HCP_PLAN_MAX_LEN)
        return plan_fail(text, size, HCP_STATUS_INVALID, "tile %lld not in 0..%lld",
                         (long long)q->tile, (long long)HCP_PLAN_MAX_LEN);
    if (!(q->link_alpha_us >= 0 && q->link_alpha_us <= 1e9) ||
        !(q->link_gbps == 0 || (q->link_gbps >= 1e-6 && q->link_gbps <= 1e9)))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "link alpha must be 0..1e9 us and link speed 1e-6..1e9 GB/s (0: "
                         "infinitely fast)");
    return q->late_kv ? late_check(q->sub_blocks, q->barrier, text, size) : HCP_STATUS_OK;
}

/* Everything but the caps. The tile of a group is the largest among its kernels: shares
 * of different ranks must add up, and a multiple of the largest wastes least. */
static void set_problem(struct problem *p, const hcp_ring *ring, int64_t seq_len,
                        int causal, int64_t tile, int buffers, int barrier,
                        int32_t sub_blocks, double alpha_us, double gbps)
{
    memset(p, 0, sizeof *p);
    p->ring = ring;
    p->n = ring->n;
    p->linear = ring->linear;
    p->kind = HCP_MODEL_BEST;
    p->seq_len = seq_len;
    p->tile = tile > 1 ? tile : 1;
    for (size_t r = 0; tile == 0 && r < ring->n; r++) {
        for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
            const hcp_model *model = ring->ranks[r].model[k];
            int64_t q = model ? hcp_model_tile_q(model) : 1;

            p->tile = q > p->tile ? q : p->tile;
        }
    }
    p->kernel_tile = tile == 0 ? p->tile : 0;
    p->tiles = seq_len / p->tile;
    p->rest = seq_len % p->tile;
    p->causal = causal != 0;
    p->buffers = buffers;
    p->barrier = barrier != 0;
    p->sub_blocks = sub_blocks;
    p->alpha_ms = alpha_us / 1e3;
    p->kv_bytes =
        ring->token_bytes < 1e15 ? (int64_t)ring->token_bytes : HCP_PLAN_MAX_BYTES;
    p->token_ms = gbps > 0 ? ring->token_bytes / (gbps * 1e6) : 0;
}

void problem_set_caps(struct problem *p, struct scratch *s)
{
    p->cap = s->cap;
    for (size_t r = 0; r < p->n; r++) {
        int64_t cap = p->ring->ranks[r].spec.max_tokens;

        s->cap[r] = cap > 0 && cap < p->seq_len ? cap : p->seq_len;
        if (p->memory) {
            cap = memory_tokens_alone(p, r);
            s->cap[r] = cap < s->cap[r] ? cap : s->cap[r];
        }
        if (p->ring->ranks[r].left_out)
            s->cap[r] = 0;
    }
}

/* The first rank with fewer than no tokens or with more than are left, the last one if
 * they are too few; n: they add up to seq_len. */
static size_t bad_tokens(const int64_t *tokens, size_t n, int64_t seq_len)
{
    for (size_t r = 0; r < n; r++) {
        if (tokens[r] < 0 || tokens[r] > seq_len)
            return r;
        seq_len -= tokens[r];
    }
    return seq_len == 0 ? n : n - 1;
}

static hcp_status check_space(const hcp_ring *ring, const void *workspace, size_t bytes,
                              char *text, size_t size)
{
    if (!workspace || bytes < ring->scratch_bytes)
        return plan_fail(text, size, HCP_STATUS_SPACE,
                         "workspace of %zu bytes, %zu needed for %zu ranks", bytes,
                         ring->scratch_bytes, ring->n);
    return HCP_STATUS_OK;
}

/* A plan from an answer, if its arrays hold it. */
static hcp_status give(struct problem *p, struct scratch *s, const struct answer *answer,
                       const hcp_question *question, char *text, size_t text_size,
                       hcp_plan *plan)
{
    size_t segments = cost_segments(p->layout, p->stripes, p->n, answer->tokens,
                                    p->seq_len, NULL, s->areas);

    if (answer->kv)
        segments += cost_segments(p->layout, p->stripes, p->n, answer->kv, p->seq_len,
                                  NULL, s->areas);
    if (!plan->ranks || !plan->segments || plan->ranks_capacity < p->n ||
        plan->segments_capacity < segments)
        return plan_fail(
            text, text_size, HCP_STATUS_SPACE,
            "arrays for %zu ranks and %zu segments, up to %zu and %zu needed",
            plan->ranks_capacity, plan->segments_capacity, p->n,
            hcp_segments_max(p->n, question->layout, p->stripes) * (answer->kv ? 2 : 1));
    return answer_fill(p, s, answer, question, text, text_size, plan);
}

/* What a split and an evaluation check, and the problem they share but for the layout. */
static hcp_status open_question(const hcp_ring *ring, const hcp_question *question,
                                void *workspace, size_t workspace_bytes,
                                const hcp_plan *plan, char *text, size_t text_size,
                                struct scratch *s, struct problem *p, struct links *links)
{
    hcp_status status;

    if (!ring || !plan || plan->size < sizeof *plan)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "ring and a plan with its size set are needed");
    status = check_question(question, text, text_size);
    if (!status && question->late_kv && ring->n > LATE_RANKS)
        status = plan_fail(text, text_size, HCP_STATUS_INVALID,
                           "late KV is for up to %d ranks, not %zu", LATE_RANKS, ring->n);
    if (!status)
        status = links_check(question, ring->n, text, text_size);
    if (!status)
        status = joint_check(question, ring, text, text_size);
    if (!status)
        status = nodes_check(question, text, text_size);
    if (!status)
        status = check_space(ring, workspace, workspace_bytes, text, text_size);
    if (!status && (question->order || question->n_links > 0) && !plan->places)
        status = plan_fail(text, text_size, HCP_STATUS_SPACE,
                           "an order to choose or links need the plan's places: an "
                           "array of %zu",
                           ring->n);
    if (status)
        return status;
    scratch_carve(s, workspace, ring->n);
    set_problem(p, ring, question->seq_len, question->causal, question->tile,
                question->buffers, question->barrier, question->sub_blocks,
                question->link_alpha_us, question->link_gbps);
    p->stripes = question->stripes;
    p->extrapolate = question->extrapolate != 0;
    p->layers = question->layers;
    p->activation_bytes = question->activation_bytes;
    p->memory = ring->memory;
    p->box = s->box;
    p->forward = s->forward;
    *links = (struct links){
        .link = question->links,
        .n_links = question->n_links,
        .shared_gbps = question->shared_gbps,
        .n_shared = question->n_shared,
        .other = {.alpha_us = question->link_alpha_us, .gbps = question->link_gbps}};
    p->links = question->n_links > 0 ? links : NULL;
    p->any_subset = p->links || question->order;
    p->joint = question->joint != 0;
    nodes_set(p, question->node_ranks, question->node_alpha_us, question->node_gbps,
              question->node_shared_gbps);
    problem_set_caps(p, s);
    return HCP_STATUS_OK;
}

static int of_decode(const hcp_ring *ring)
{
    return ring && strcmp(ring->shape.phase, "decode") == 0;
}

/* A split (tokens NULL), or the plan of one, in the decode phase. */
static hcp_status of_decode_plan(const hcp_ring *ring, const hcp_question *question,
                                 const int64_t *tokens, void *workspace,
                                 size_t workspace_bytes, char *text, size_t text_size,
                                 hcp_plan *plan)
{
    hcp_question given;
    hcp_status status;
    size_t r;

    if (!plan || plan->size < sizeof *plan)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "ring and a plan with its size set are needed");
    status = check_question(question, text, text_size);
    if (status)
        return status;
    given = *question;
    r = tokens ? bad_tokens(tokens, ring->n, question->seq_len) : ring->n;
    if (r < ring->n)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "rank %zu has %lld tokens, which does not add up to %lld", r,
                         (long long)tokens[r], (long long)question->seq_len);
    if (tokens)
        given.strategy = HCP_STRATEGY_GIVEN;
    else if (question->strategy == HCP_STRATEGY_GIVEN)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "strategy given is a split of your own: use "
                         "hcp_plan_evaluate()");
    return decode_plan(ring, &given, tokens, workspace, workspace_bytes, text, text_size,
                       plan);
}

hcp_status plan_split(const hcp_ring *ring, const hcp_question *question, int exhaustive,
                      void *workspace, size_t workspace_bytes, char *text,
                      size_t text_size, hcp_plan *plan)
{
    struct scratch s;
    struct problem p;
    struct links links;
    struct answer answer;
    hcp_status status;
    int64_t missing;

    if (of_decode(ring))
        return of_decode_plan(ring, question, NULL, workspace, workspace_bytes, text,
                              text_size, plan);
    status = open_question(ring, question, workspace, workspace_bytes, plan, text,
                           text_size, &s, &p, &links);
    if (status)
        return status;
    if (question->strategy == HCP_STRATEGY_GIVEN)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "strategy given is a split of your own: use "
                         "hcp_plan_evaluate()");
    missing = round_shortfall(&p, NULL);
    if (p.memory && (missing > 0 || memory_hopeless(&p, &s, question)))
        return memory_explain(&p, &s, question->layout, text, text_size);
    if (missing > 0)
        return plan_fail(
            text, text_size, HCP_STATUS_INFEASIBLE,
            "the memory caps are short by %lld tokens for a sequence of %lld "
            "in tiles of %lld; raise a cap, add a rank or use a smaller tile",
            (long long)missing, (long long)p.seq_len, (long long)p.tile);
    strategy_speeds(&p, &s);
    status = rings_decide(&p, &s, question, exhaustive, text, text_size, &answer);
    if (status == HCP_STATUS_INFEASIBLE && p.memory)
        return memory_explain(&p, &s, question->layout, text, text_size);
    if (status)
        return status;
    return give(&p, &s, &answer, question, text, text_size, plan);
}

hcp_status hcp_plan_split(const hcp_ring *ring, const hcp_question *question,
                          void *workspace, size_t workspace_bytes, char *text,
                          size_t text_size, hcp_plan *plan)
{
    return plan_split(ring, question, -1, workspace, workspace_bytes, text, text_size,
                      plan);
}

hcp_status hcp_plan_evaluate(const hcp_ring *ring, const hcp_question *question,
                             const int64_t *tokens, void *workspace,
                             size_t workspace_bytes, char *text, size_t text_size,
                             hcp_plan *plan)
{
    struct scratch s;
    struct problem p, any;
    struct links links;
    struct answer answer;
    const int64_t *kept; /* what caps are about */
    hcp_question given;
    hcp_status status;
    size_t r;

    if (of_decode(ring) && tokens)
        return of_decode_plan(ring, question, tokens, workspace, workspace_bytes, text,
                              text_size, plan);
    status = open_question(ring, question, workspace, workspace_bytes, plan, text,
                           text_size, &s, &p, &links);
    if (status)
        return status;
    if (!tokens || question->layout == HCP_LAYOUT_AUTO)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "the tokens of each rank and a layout are needed");
    r = bad_tokens(tokens, p.n, p.seq_len);
    if (r < p.n)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "rank %zu has %lld tokens, which does not add up to %lld", r,
                         (long long)tokens[r], (long long)p.seq_len);
    kept = question->kv_tokens ? question->kv_tokens : tokens;
    r = bad_tokens(kept, p.n, p.seq_len);
    if (r < p.n)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "rank %zu keeps the KV of %lld tokens, which does not add up to "
                         "%lld",
                         r, (long long)kept[r], (long long)p.seq_len);
    problem_set_layout(&p, question->layout);
    if (p.memory)
        status = question->kv_tokens
                     ? joint_too_large(&p, tokens, kept, text, text_size)
                     : memory_check(&p, &s, tokens, text, text_size);
    if (status)
        return status;
    for (r = 0; r < p.n; r++) {
        int64_t cap = question->kv_tokens ? ring->ranks[r].spec.max_tokens : p.cap[r];

        if ((cap > 0 || !question->kv_tokens) && kept[r] > cap)
            return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                             "rank %zu has %lld tokens%s, more than its memory cap of "
                             "%lld; give it fewer or raise the cap",
                             r, (long long)kept[r], kept == tokens ? "" : "' KV",
                             (long long)cap);
    }
    given = *question;
    given.strategy = HCP_STRATEGY_GIVEN;
    given.order = HCP_ORDER_GIVEN;
    strategy_speeds(&p, &s);
    any = p;
    any.memory = p.memory && !question->kv_tokens; /* the tied split need not fit then */
    strategy_given(&any, &s, tokens, &answer);
    if (question->late_kv)
        late_decide(&p, &s, question, 0, &answer);
    if (question->kv_tokens)
        joint_given(&p, &s, tokens, question->kv_tokens, &answer);
    rings_given(&p, &s, question, &answer);
    return give(&p, &s, &answer, &given, text, text_size, plan);
}

hcp_status hcp_layout_segments(hcp_layout layout, int32_t stripes, size_t n,
                               const int64_t *tokens, int64_t seq_len,
                               hcp_segment *segments, size_t capacity, int64_t *counts)
{
    size_t needed;

    if (layout <= HCP_LAYOUT_AUTO || layout > HCP_LAYOUT_STRIPED || !tokens || !counts ||
        n < 1 || n > HCP_PLAN_MAX_RANKS || seq_len < 1 || seq_len > HCP_PLAN_MAX_LEN ||
        (layout == HCP_LAYOUT_STRIPED && (stripes < 1 || stripes > MAX_STRIPES)) ||
        bad_tokens(tokens, n, seq_len) < n)
        return HCP_STATUS_INVALID;
    needed = cost_segments(layout, stripes, n, tokens, seq_len, NULL, counts);
    if (!segments && capacity == 0)
        return HCP_STATUS_OK;
    if (!segments || capacity < needed)
        return HCP_STATUS_SPACE;
    cost_segments(layout, stripes, n, tokens, seq_len, segments, counts);
    return HCP_STATUS_OK;
}

hcp_status hcp_plan_simulate(const hcp_ring *ring, const hcp_plan *plan,
                             int32_t extrapolate, void *workspace, size_t workspace_bytes,
                             char *text, size_t text_size, hcp_step *steps,
                             size_t steps_capacity, size_t *n_steps)
{
    struct scratch s;
    struct problem p;
    struct links links;
    hcp_status status;
    int64_t *tokens, *kv, sum = 0, kv_sum = 0;
    size_t m = 0;

    if (!ring || !plan || !steps || !n_steps || plan->size < sizeof *plan ||
        plan->n_ranks != ring->n || plan->layout <= HCP_LAYOUT_AUTO ||
        plan->layout > HCP_LAYOUT_STRIPED || plan->stripes < 1 ||
        plan->stripes > MAX_STRIPES || plan->buffers < 0 || plan->buffers > MAX_BUFFERS ||
        plan->sub_blocks < 1 || plan->sub_blocks > MAX_SUB_BLOCKS)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a ring, a plan of as many ranks and an array are needed");
    if (of_decode(ring) || plan_is_decode(plan))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a plan of decode has no steps round a ring: "
                         "hcp_plan_merge_sends() has what its ranks send");
    status = plan->late_kv ? late_check(plan->sub_blocks, plan->barrier, text, text_size)
                           : HCP_STATUS_OK;
    if (!status && late_bad(plan))
        status = plan_fail(text, text_size, HCP_STATUS_INVALID,
                           "late_slots of the plan are not in 0..%d, or of more ranks",
                           LATE_RANKS - 1);
    if (!status)
        status = check_space(ring, workspace, workspace_bytes, text, text_size);
    if (status)
        return status;
    scratch_carve(&s, workspace, ring->n);
    set_problem(&p, ring, plan->seq_len, plan->causal, plan->tile, plan->buffers,
                plan->barrier, plan->sub_blocks, plan->link_alpha_us, plan->link_gbps);
    p.layout = plan->layout;
    p.stripes = plan->stripes;
    p.extrapolate = extrapolate != 0;
    if (nodes_bad_numbers(plan->node_ranks, plan->node_alpha_us, plan->node_gbps,
                          plan->node_shared_gbps) ||
        (plan->node_ranks > 0 && (plan->order || plan->has_links || plan->joint ||
                                  plan->late_kv)) ||
        (plan->node_ranks == 0 && plan->inner_ranks))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "the plan's nodes are out of range, or beside an order, links "
                         "or KV of its own");
    nodes_set(&p, plan->node_ranks, plan->node_alpha_us, plan->node_gbps,
              plan->node_shared_gbps);
    p.two_level = plan->inner_ranks != 0;
    if (plan->order || plan->has_links) {
        if (links_bad_places(plan))
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "the plan's places are not its ranks in another order, or a "
                             "link in them is out of range");
        for (size_t r = 0; r < ring->n; r++)
            s.place_trial[r] = plan->places[r].rank;
        order_set(&p, &s, ring, s.place_trial);
        links = (struct links){.places = plan->places};
        p.links = plan->has_links ? &links : NULL;
    }
    tokens = s.tokens[TOK_PLAN];
    kv = s.tokens[TOK_JOINT_PLAN_KV];
    for (size_t r = 0; r < ring->n; r++) {
        tokens[r] = plan->ranks[r].tokens;
        kv[r] = plan->joint ? plan->ranks[r].kv_tokens : tokens[r];
        if (tokens[r] < 0 || tokens[r] > HCP_PLAN_MAX_LEN || kv[r] < 0 ||
            kv[r] > HCP_PLAN_MAX_LEN)
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "rank %zu has %lld tokens, and %lld tokens' KV", r,
                             (long long)tokens[r], (long long)kv[r]);
        sum += tokens[r];
        kv_sum += kv[r];
        m += tokens[r] > 0 || kv[r] > 0;
    }
    if (sum != plan->seq_len || kv_sum != plan->seq_len || m == 0)
        return plan_fail(
            text, text_size, HCP_STATUS_INVALID, "tokens add up to %lld, not to %lld",
            (long long)(sum != plan->seq_len ? sum : kv_sum), (long long)plan->seq_len);
    if (plan->joint && (plan->late_kv || ring->linear || ring->n > JOINT_MAX_RANKS ||
                        hcp_segments_max(ring->n, plan->layout, plan->stripes) >
                            joint_runs_room(ring->n)))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "more ranks or stripes than joint plans have, linear work or "
                         "late KV");
    if (steps_capacity < m * m)
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "array of %zu steps, %zu needed", steps_capacity, m * m);
    if (plan->late_kv) {
        for (size_t r = 0; r < ring->n; r++)
            s.slots_plan[r] = plan->ranks[r].late_slots;
        p.slots = s.slots_plan;
    }
    if (plan->joint)
        joint_eval(&p, &s, tokens, kv, HUGE_MS, steps);
    else {
        struct score score = eval_split(&p, &s, tokens, HUGE_MS, steps);

        if (score.none)
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "the plan has two levels, which these tokens, this layout "
                             "or these buffers have not");
        if (score.ms >= HUGE_MS)
            return plan_fail(
                text, text_size, HCP_STATUS_INVALID,
                "with %d buffers the late KV of this plan never ends: ranks wait "
                "for each other",
                (int)plan->buffers);
    }
    if (!extrapolate &&
        (plan->joint ? joint_source(&p, &s, tokens, kv) : eval_source(&p, &s, tokens)) ==
            HCP_FROM_EXTRAPOLATED)
        return answer_outside(&p, &s, tokens, plan->joint ? kv : NULL, text, text_size);
    for (size_t i = 0; i < m * m; i++) {
        steps[i].rank = s.act.rank[steps[i].rank];
        steps[i].block_of = s.act.rank[steps[i].block_of];
    }
    *n_steps = m * m;
    return HCP_STATUS_OK;
}

hcp_status hcp_block_predict(const hcp_ring *ring, size_t rank, hcp_model_kind kind,
                             int32_t causal, int64_t q_len, int64_t kv_len,
                             int32_t extrapolate, char *text, size_t text_size,
                             hcp_prediction *out)
{
    const struct bound_rank *b;
    const hcp_model *model;
    hcp_model_source source;
    char lengths[64], run[224];
    double ms, lo, hi;
    int64_t q_min, q_max, kv_min, kv_max;

    if (!ring || rank >= ring->n || kind < HCP_MODEL_BEST || kind > HCP_MODEL_POLY ||
        !out || out->size < sizeof *out || q_len < 1 || kv_len < 1 ||
        q_len > HCP_PLAN_MAX_LEN || kv_len > HCP_PLAN_MAX_LEN)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a rank of the ring, lengths in 1..%lld and an output with its "
                         "size set are needed",
                         (long long)HCP_PLAN_MAX_LEN);
    b = &ring->ranks[rank];
    model = b->model[kind];
    if (!model)
        return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                         "no %s model of '%s%s%s' in %s; run 'hcp-plan fit --db %s'",
                         kind == HCP_MODEL_LUT ? "lut" : "poly", b->spec.device,
                         b->spec.limit[0] ? "@" : "", b->spec.limit, ring->models->path,
                         ring->models->path);
    ms = hcp_model_block_ms(model, causal != 0, q_len, kv_len, &source);
    if (source == HCP_SOURCE_EXTRAPOLATED && !extrapolate) {
        char batch[48] = "";

        hcp_model_hull(model, causal != 0, &q_min, &q_max, &kv_min, &kv_max);
        if (strcmp(ring->shape.phase, "decode") == 0)
            snprintf(batch, sizeof batch, "batch %d of ", (int)ring->shape.batch);
        return plan_fail(
            text, text_size, HCP_STATUS_OUTSIDE,
            "%s%s q_len %lld, kv_len %lld on '%s%s%s' is outside the measured "
            "%slengths (q_len %lld..%lld, kv_len %lld..%lld); run 'hcp-profile "
            "run --db %s%s %s' on that machine, then 'hcp-plan fit --db %s'; or allow "
            "extrapolation (--extrapolate)",
            batch, causal ? "causal" : "full", (long long)q_len, (long long)kv_len,
            b->spec.device, b->spec.limit[0] ? "@" : "", b->spec.limit,
            *batch ? "batches and " : "", (long long)q_min, (long long)q_max,
            (long long)kv_min, (long long)kv_max, ring->models->path,
            bind_run_options(b->spec.limit, &ring->shape, NULL, run),
            answer_lengths(causal, q_len, kv_len, q_len > q_max || kv_len > kv_max,
                           lengths),
            ring->models->path);
    }
    hcp_model_error(model, causal != 0, q_len, kv_len, &lo, &hi);
    out->ms = ms;
    out->lo_ms = ms * (1 - lo);
    out->hi_ms = ms * (1 + hi);
    out->source = b->estimate >= 0 ? HCP_FROM_ESTIMATED : (hcp_source)source;
    memset(out->model, 0, sizeof out->model);
    memcpy(out->model, model == b->model[HCP_MODEL_LUT] ? "lut" : "poly",
           model == b->model[HCP_MODEL_LUT] ? 3 : 4);
    return HCP_STATUS_OK;
}
