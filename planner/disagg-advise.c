/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/carve.h"
#include "planner/disagg.h"

void hcp_disagg_question_init(hcp_disagg_question *question)
{
    memset(question, 0, sizeof *question);
    question->size = sizeof *question;
}

void hcp_disagg_advice_init(hcp_disagg_advice *advice, hcp_disagg_rank *ranks,
                            size_t ranks_capacity, hcp_plan *prefill, hcp_plan *decode,
                            hcp_move *moves, size_t moves_capacity, hcp_segment *segments,
                            size_t segments_capacity)
{
    memset(advice, 0, sizeof *advice);
    advice->size = sizeof *advice;
    advice->ranks = ranks;
    advice->ranks_capacity = ranks_capacity;
    advice->prefill = prefill;
    advice->decode = decode;
    advice->moves = moves;
    advice->moves_capacity = moves_capacity;
    advice->segments = segments;
    advice->segments_capacity = segments_capacity;
}

/* ---- workspace ---- */

static size_t carve_all(struct disagg_work *w, const hcp_disagg *d, void *workspace)
{
    struct carver c = {(uintptr_t)workspace, (uintptr_t)workspace};
    size_t n = d->n, groups = d->n_groups;
    int64_t *tokens;

    for (int phase = 0; phase < PHASES; phase++) {
        for (int set = 0; set < 2; set++) {
            CARVE(&c, w->time[phase][set], groups);
            CARVE(&c, w->order[phase][set], groups);
            CARVE(&c, tokens, groups * n);
            for (size_t g = 0; c.base && g < groups; g++)
                w->time[phase][set][g].tokens = tokens + g * n;
        }
    }
    CARVE(&c, w->stay, groups);
    CARVE(&c, w->value, groups);
    CARVE(&c, w->give, n);
    CARVE(&c, w->take, n);
    CARVE(&c, w->given, n);
    CARVE(&c, w->sums, 2 * n);
    CARVE(&c, w->move, n);
    CARVE(&c, w->places, n);
    CARVE(&c, w->plan_ranks, n);
    w->segments_room = hcp_segments_max(n, HCP_LAYOUT_AUTO, MAX_STRIPES);
    CARVE(&c, w->plan_segments, w->segments_room);
    w->scratch_room = scratch_bytes(n);
    w->scratch = carve(&c, w->scratch_room, 1);
    return (size_t)(c.at - c.base);
}

size_t hcp_disagg_workspace_bytes(const hcp_disagg *disagg)
{
    struct disagg_work w;

    return disagg ? carve_all(&w, disagg, NULL) + 64 : 0;
}

/* ---- what is asked ---- */

static const char *refused(const hcp_question *q)
{
    if (q->order || q->n_links > 0)
        return "order to choose or links of its own";
    if (q->joint || q->kv_tokens)
        return "queries apart from KV";
    if (q->late_kv)
        return "late KV";
    if (q->node_ranks > 0)
        return "nodes";
    return q->strategy == HCP_STRATEGY_GIVEN ? "split of your own" : NULL;
}

static hcp_status check_phase(const hcp_question *q, const char *phase, char *text,
                              size_t size)
{
    const char *none = refused(q);

    if (none)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "groups of ranks have no %s; leave it out of the question about "
                         "%s",
                         none, phase);
    if (q->layers < 1)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "layers must be 1 or more, all of which decode runs through");
    return HCP_STATUS_OK;
}

static hcp_status check_question(const hcp_disagg_question *q, char *text, size_t size)
{
    hcp_status status;

    if (!q || q->size < sizeof *q || !q->prefill ||
        q->prefill->size < sizeof *q->prefill ||
        (q->decode && q->decode->size < sizeof *q->decode))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a question with its size set, and one about prefill, are "
                         "needed");
    status = check_phase(q->prefill, "prefill", text, size);
    if (!status && q->decode)
        status = check_phase(q->decode, "decode", text, size);
    if (status)
        return status;
    if (q->decode && (q->decode->seq_len != q->prefill->seq_len ||
                      q->decode->layers != q->prefill->layers))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "both phases are of one prompt and model: %lld tokens and %d "
                         "layers, %lld and %d",
                         (long long)q->prefill->seq_len, (int)q->prefill->layers,
                         (long long)q->decode->seq_len, (int)q->decode->layers);
    if (q->steps < 1 || q->steps > (int64_t)1 << 40)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "%lld tokens to generate; 1 to 2^40 are needed to compare",
                         (long long)q->steps);
    if (q->objective != HCP_DISAGG_THROUGHPUT && q->objective != HCP_DISAGG_LATENCY)
        return plan_fail(text, size, HCP_STATUS_INVALID, "no such objective");
    if (!(q->ttft_limit_ms >= 0 && q->ttft_limit_ms <= 1e15) ||
        !(q->tpot_limit_ms >= 0 && q->tpot_limit_ms <= 1e15))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "limits of TTFT and TPOT must be 0 (none) .. 1e15 ms");
    if (!(q->link_alpha_us >= 0 && q->link_alpha_us <= 1e9) ||
        !(q->link_gbps == 0 || (q->link_gbps >= 1e-6 && q->link_gbps <= 1e9)))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "link alpha must be 0..1e9 us and link speed 1e-6..1e9 GB/s (0: "
                         "infinitely fast)");
    return HCP_STATUS_OK;
}

static void set_work(struct disagg_work *w, const hcp_disagg *d,
                     const hcp_disagg_question *q)
{
    const hcp_shape *shape = &d->shape[DECODE];
    int32_t batch = d->shape[PREFILL].batch;

    w->d = d;
    w->q = q;
    w->ask[PREFILL] = *q->prefill;
    if (q->decode) {
        w->ask[DECODE] = *q->decode;
    } else {
        hcp_question_init(&w->ask[DECODE]);
        w->ask[DECODE].seq_len = q->prefill->seq_len;
        w->ask[DECODE].layers = q->prefill->layers;
        w->ask[DECODE].activation_bytes = q->prefill->activation_bytes;
        w->ask[DECODE].extrapolate = q->prefill->extrapolate;
        w->ask[DECODE].link_alpha_us = q->prefill->link_alpha_us;
        w->ask[DECODE].link_gbps = q->prefill->link_gbps;
    }
    w->layers = q->prefill->layers;
    w->runs = shape->batch / batch + (shape->batch % batch > 0);
    w->token_bytes = 2.0 * shape->kv_heads * shape->head_dim * shape->batch *
                     (strcmp(shape->dtype, "fp32") == 0 ? 4 : 2) * w->layers;
}

/* ---- no answer ---- */

/* The least time of a phase, over all groups; HUGE_MS: none. */
static double least(const struct disagg_work *w, int phase)
{
    double ms = w->time[phase][0][w->order[phase][0][0]].ms;

    for (size_t g = 0; phase == DECODE && g < w->d->n_groups; g++)
        ms = w->stay[g].ms < ms ? w->stay[g].ms : ms;
    return ms;
}

static hcp_status explain(struct disagg_work *w, char *text, size_t size)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (least(w, phase) >= HUGE_MS)
            return disagg_explain(w, phase, text, size);
    if (w->q->ttft_limit_ms == 0 && w->q->tpot_limit_ms == 0)
        return plan_fail(text, size, HCP_STATUS_INFEASIBLE,
                         "ranks for both phases are there, but none that hold the KV of "
                         "two batches, as in a stream: make the batch smaller, raise "
                         "their memory, or ask for the latency of one batch");
    return plan_fail(text, size, HCP_STATUS_INFEASIBLE,
                     "no groups of these ranks keep the limits: the least TTFT is %.6g "
                     "ms, the least decode step %.6g ms, without the transfer between "
                     "them; raise a limit, add ranks or make the batch smaller",
                     least(w, PREFILL), least(w, DECODE));
}

/* ---- the call ---- */

hcp_status hcp_disagg_advise(const hcp_disagg *disagg,
                             const hcp_disagg_question *question, void *workspace,
                             size_t workspace_bytes, char *text, size_t text_size,
                             hcp_disagg_advice *advice)
{
    struct disagg_best best[KINDS_OF_ADVICE];
    double beyond[KINDS_OF_ADVICE];
    struct disagg_work w;
    struct disagg_at at;
    hcp_disagg_advice out;
    hcp_status status;
    int decision;

    if (!disagg || !advice || advice->size < sizeof *advice || !advice->prefill ||
        !advice->decode)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "groups, and an answer with its size and two plans set, are "
                         "needed");
    status = check_question(question, text, text_size);
    if (status)
        return status;
    if (!advice->ranks || advice->ranks_capacity < disagg->n)
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "array of %zu ranks, %zu needed", advice->ranks_capacity,
                         disagg->n);
    if (!workspace || workspace_bytes < hcp_disagg_workspace_bytes(disagg))
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "workspace of %zu bytes, %zu needed for %zu groups of %zu ranks",
                         workspace_bytes, hcp_disagg_workspace_bytes(disagg),
                         disagg->n_groups, disagg->n);
    carve_all(&w, disagg, workspace);
    set_work(&w, disagg, question);
    at = (struct disagg_at){question->link_gbps > 0 ? 1 / (question->link_gbps * 1e6) : 0,
                            question->steps};
    disagg_times(&w);
    disagg_search(&w, &at, PAIR_FASTEST, best, beyond);
    decision = disagg_decide(best);
    if (decision < 0)
        return explain(&w, text, text_size);
    out = *advice;
    status = disagg_answer(&w, &at, best, beyond, decision, text, text_size, &out);
    if (status == HCP_STATUS_OK)
        *advice = out;
    return status;
}
