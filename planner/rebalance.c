/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/rebalance.h"

void hcp_rebalance_options_init(hcp_rebalance_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->false_alarms = 1e-8;
    options->noise = 0.05;
    options->min_gain = 0.01;
}

hcp_status hcp_plan_question(const hcp_plan *plan, hcp_question *q)
{
    if (!plan || plan->size < sizeof *plan || !q)
        return HCP_STATUS_INVALID;
    hcp_question_init(q);
    q->seq_len = plan->seq_len;
    q->causal = plan->causal;
    q->strategy =
        plan->strategy == HCP_STRATEGY_GIVEN ? HCP_STRATEGY_BEST : plan->strategy;
    q->layout = plan->layout;
    q->stripes = plan->stripes > 0 ? plan->stripes : 8;
    q->tile = plan->tile;
    q->buffers = plan->buffers;
    q->barrier = plan->barrier;
    q->link_alpha_us = plan->link_alpha_us;
    q->link_gbps = plan->link_gbps;
    /* What is estimated may have been outside its kin's lengths, too. */
    q->extrapolate = plan->source >= HCP_FROM_EXTRAPOLATED;
    q->sub_blocks = plan->sub_blocks;
    q->late_kv = plan->late_kv;
    q->joint = plan->joint;
    q->layers = plan->layers;
    q->activation_bytes = plan->activation_bytes;
    q->node_ranks = plan->node_ranks;
    q->node_alpha_us = plan->node_alpha_us;
    q->node_gbps = plan->node_gbps;
    q->node_shared_gbps = plan->node_shared_gbps;
    q->rings = plan->rings;
    return HCP_STATUS_OK;
}

/* ---- creation ---- */

static int in(double v, double low, double high)
{
    return v >= low && v <= high; /* false for NaN */
}

static hcp_status check(const hcp_ring *ring, const hcp_question *q, const hcp_plan *plan,
                        const hcp_rebalance_options *o, char *text, size_t size)
{
    if (!ring || !q || q->size < sizeof *q || !plan || plan->size < sizeof *plan ||
        (o && o->size < sizeof *o))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "a ring, and a question, a plan and options with their size set "
                         "are needed");
    if (plan->n_ranks != ring->n || plan->seq_len != q->seq_len || !plan->ranks ||
        strcmp(plan->shape.phase, ring->shape.phase) != 0 ||
        (plan->causal != 0) != (q->causal != 0))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "ring, question and plan differ: %zu ranks and %zu, %lld tokens "
                         "and %lld, or phase or mask",
                         ring->n, plan->n_ranks, (long long)q->seq_len,
                         (long long)plan->seq_len);
    if (q->order || q->joint || plan->joint || plan->order ||
        q->strategy == HCP_STRATEGY_GIVEN)
        return plan_fail(
            text, size, HCP_STATUS_INVALID,
            "rebalancing keeps the order of the ranks and each rank's KV with "
            "its queries, and looks for splits: give the ranks in the plan's "
            "order, no order to choose, no joint and no strategy 'given'");
    if (!o)
        return HCP_STATUS_OK;
    if (!in(o->false_alarms, 1e-12, 0.1) || !in(o->noise, 0, 1) ||
        !in(o->min_gain, 0, 1) || !in(o->move_ms, 0, 1e12) ||
        !in(o->link_alpha_us, 0, 1e9) ||
        !(o->link_gbps == 0 || in(o->link_gbps, 1e-6, 1e9)) || o->expected_steps < 0)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "false_alarms must be 1e-12..0.1, noise and min_gain 0..1, "
                         "move_ms, link and expected_steps 0 or more");
    return HCP_STATUS_OK;
}

static int hold(struct held_plan *h, size_t n, int32_t stripes)
{
    size_t m = hcp_segments_max(n, HCP_LAYOUT_AUTO, stripes);

    h->ranks = calloc(n, sizeof *h->ranks);
    h->segments = calloc(m, sizeof *h->segments);
    h->places = calloc(n, sizeof *h->places);
    hcp_plan_init(&h->plan, h->ranks, n, h->segments, m);
    h->plan.places = h->places;
    return h->ranks && h->segments && h->places ? 0 : -1;
}

static void let_go(struct held_plan *h)
{
    free(h->ranks);
    free(h->segments);
    free(h->places);
}

void hcp_rebalance_free(hcp_rebalance *r)
{
    if (!r)
        return;
    let_go(&r->now);
    let_go(&r->next);
    let_go(&r->trial);
    free(r->links);
    free(r->shared_gbps);
    free(r->ranks);
    free(r->tokens);
    free(r->scale);
    free(r->offered);
    free(r->out);
    free(r->lost);
    free(r->workspace);
    hcp_ring_free(r->ring);
    free(r);
}

/* The question, with links of its own. */
static int copy_question(hcp_rebalance *r, const hcp_question *q)
{
    r->question = *q;
    if (q->n_links > 0 && q->links) {
        r->links = malloc(q->n_links * sizeof *r->links);
        if (!r->links)
            return -1;
        memcpy(r->links, q->links, q->n_links * sizeof *r->links);
    }
    if (q->n_shared > 0 && q->shared_gbps) {
        r->shared_gbps = malloc(q->n_shared * sizeof *r->shared_gbps);
        if (!r->shared_gbps)
            return -1;
        memcpy(r->shared_gbps, q->shared_gbps, q->n_shared * sizeof *r->shared_gbps);
    }
    r->question.links = r->links;
    r->question.shared_gbps = r->shared_gbps;
    r->question.kv_tokens = NULL;
    return 0;
}

static hcp_rebalance *allocate(const hcp_ring *ring, const hcp_question *q,
                               const hcp_plan *plan, const hcp_rebalance_options *options)
{
    hcp_rebalance *r = calloc(1, sizeof *r);
    int32_t stripes = q->stripes > plan->stripes ? q->stripes : plan->stripes;

    if (!r)
        return NULL;
    r->n = ring->n;
    r->ring = rescale_copy(ring);
    r->ranks = calloc(r->n, sizeof *r->ranks);
    r->tokens = calloc(r->n, sizeof *r->tokens);
    r->scale = calloc(r->n, sizeof *r->scale);
    r->offered = calloc(r->n, sizeof *r->offered);
    r->out = calloc(r->n, 1);
    r->lost = calloc(r->n, 1);
    r->workspace_bytes = hcp_workspace_bytes(r->n);
    r->workspace = malloc(r->workspace_bytes);
    hcp_rebalance_options_init(&r->options);
    if (options)
        r->options = *options;
    if (!r->ring || !r->ranks || !r->tokens || !r->scale || !r->offered || !r->out ||
        !r->lost || !r->workspace || hold(&r->now, r->n, stripes) ||
        hold(&r->next, r->n, stripes) || hold(&r->trial, r->n, stripes) ||
        copy_question(r, q)) {
        hcp_rebalance_free(r);
        return NULL;
    }
    return r;
}

hcp_status hcp_rebalance_create(const hcp_ring *ring, const hcp_question *question,
                                const hcp_plan *plan,
                                const hcp_rebalance_options *options, char *text,
                                size_t text_size, hcp_rebalance **out)
{
    hcp_status status = out ? check(ring, question, plan, options, text, text_size)
                            : plan_fail(text, text_size, HCP_STATUS_INVALID, "no output");
    hcp_rebalance *r;

    if (status)
        return status;
    r = allocate(ring, question, plan, options);
    if (!r)
        return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < r->n; i++) {
        r->tokens[i] = plan->ranks[i].tokens;
        r->scale[i] = ring->ranks[i].scale;
    }
    status = rebalance_evaluate(r, plan, r->tokens, r->scale, &r->now, text, text_size);
    if (!status)
        status = rebalance_base(r, text, text_size);
    if (status) {
        hcp_rebalance_free(r);
        return status;
    }
    speed_test_init(&r->test, &r->options, rebalance_off(r, &r->now.plan));
    for (size_t i = 0; i < r->n; i++) {
        struct rank_state *k = &r->ranks[i];

        speed_start(&k->speed, ring->ranks[i].scale);
        k->plan_scale = k->old_scale = ring->ranks[i].scale;
    }
    r->patience = 2;
    r->last_move = -1;
    *out = r;
    return HCP_STATUS_OK;
}

/* ---- what goes in ---- */

hcp_status hcp_rebalance_observe(hcp_rebalance *r, size_t rank, double measured_ms,
                                 double predicted_ms)
{
    struct rank_state *k;
    int works;

    if (!r || rank >= r->n || r->ranks[rank].heard ||
        !(predicted_ms >= 0 && predicted_ms <= 1e15))
        return HCP_STATUS_INVALID;
    k = &r->ranks[rank];
    works = predicted_ms > 0 || r->now.plan.ranks[rank].tokens > 0;
    k->heard = 1;
    r->proposed = 0;
    if (!isfinite(measured_ms) || measured_ms < 0 || (works && !(measured_ms > 0))) {
        k->failing = 1;
        return HCP_STATUS_OK;
    }
    if (!works || k->failed)
        return HCP_STATUS_OK;
    k->timed = 1;
    k->pending_y = measured_ms / (predicted_ms > 0 ? predicted_ms : k->base_ms);
    /* What no plan can be made for is no more than the end of that. */
    if (k->pending_y > HCP_PLAN_MAX_SCALE)
        k->pending_y = HCP_PLAN_MAX_SCALE;
    if (k->pending_y < HCP_PLAN_MIN_SCALE)
        k->pending_y = HCP_PLAN_MIN_SCALE;
    return HCP_STATUS_OK;
}

hcp_status hcp_rebalance_fail(hcp_rebalance *r, size_t rank)
{
    if (!r || rank >= r->n)
        return HCP_STATUS_INVALID;
    r->ranks[rank].heard = r->ranks[rank].failing = 1;
    r->ranks[rank].timed = 0;
    r->proposed = 0;
    return HCP_STATUS_OK;
}

hcp_status hcp_rebalance_skip(hcp_rebalance *r, size_t rank)
{
    if (!r || rank >= r->n || r->ranks[rank].heard)
        return HCP_STATUS_INVALID;
    r->ranks[rank].heard = 1;
    r->proposed = 0;
    return HCP_STATUS_OK;
}

hcp_status hcp_rebalance_restore(hcp_rebalance *r, size_t rank, double time_scale)
{
    struct rank_state *k;

    if (!r || rank >= r->n || r->ranks[rank].failing || r->lost[rank] ||
        !in(time_scale, HCP_PLAN_MIN_SCALE, HCP_PLAN_MAX_SCALE) ||
        (r->now.plan.ranks[rank].tokens > 0 && !r->ranks[rank].failed))
        return HCP_STATUS_INVALID;
    k = &r->ranks[rank];
    speed_start(&k->speed, time_scale);
    k->failed = 0;
    k->restored = 1;
    r->proposed = 0;
    return HCP_STATUS_OK;
}

/* ---- a step ---- */

/* Reversals soon after a move make the next one wait longer, until one has lasted. */
static void learn_patience(hcp_rebalance *r, size_t i)
{
    const struct rank_state *k = &r->ranks[i];
    double back = k->speed.scale - k->old_scale, on = k->speed.scale - k->plan_scale;
    int64_t since = r->step - r->last_move;

    if (r->last_move < 0)
        return;
    back = back < 0 ? -back : back;
    on = on < 0 ? -on : on;
    if (since <= 4 * r->patience && back < on)
        r->patience =
            2 * r->patience < REBALANCE_PATIENCE ? 2 * r->patience : REBALANCE_PATIENCE;
    else if (since > 16 * r->patience && r->patience > 2)
        r->patience /= 2;
}

/* Failures of this step; those of ranks with tokens. */
static int take_failures(hcp_rebalance *r, hcp_rebalance_verdict *v)
{
    int forced = 0;

    for (size_t i = 0; i < r->n; i++) {
        struct rank_state *k = &r->ranks[i];
        int works = r->now.plan.ranks[i].tokens > 0;

        if (!k->failed && (k->failing || (works && !k->heard))) {
            k->failed = 1;
            k->timed = 0;
            v->failed++;
        }
        if (k->failed && works)
            r->lost[i] = 1;
        forced |= r->lost[i];
    }
    return forced;
}

hcp_status hcp_rebalance_step(hcp_rebalance *r, int64_t steps_left, char *text,
                              size_t text_size, hcp_rebalance_verdict *verdict)
{
    hcp_rebalance_verdict v = {.size = sizeof v};
    int forced, changed = 0, due = 0;
    size_t timed = 0;
    double typical;
    hcp_status status;

    if (!r || !verdict || verdict->size < sizeof *verdict)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "an object and a verdict with its size set are needed");
    r->proposed = 0;
    v.step = r->step;
    v.stay_ms = v.move_to_ms = NAN;
    v.break_even_steps = INFINITY;
    forced = take_failures(r, &v);
    for (size_t i = 0; i < r->n; i++)
        if (r->ranks[i].timed) {
            speed_add(&r->ranks[i].speed, r->ranks[i].pending_y);
            r->scale[timed++] = r->ranks[i].speed.spread;
        }
    typical = speed_typical(r->scale, timed);
    for (size_t i = 0; i < r->n; i++) {
        struct rank_state *k = &r->ranks[i];

        if (k->restored) {
            k->restored = 0;
            changed++;
        }
        if (!k->timed)
            continue;
        if (speed_look(&k->speed, &r->test, typical)) {
            learn_patience(r, i);
            v.changed++;
        }
        due |= speed_due(&k->speed);
    }
    status = rebalance_decide(r, changed + v.changed > 0, forced, due, steps_left, text,
                              text_size, &v);
    r->step++;
    for (size_t i = 0; i < r->n; i++)
        r->ranks[i].heard = r->ranks[i].timed = r->ranks[i].failing = 0;
    if (status)
        return status;
    v.fingerprint = r->proposed ? r->next.plan.fingerprint : 0;
    *verdict = v;
    return HCP_STATUS_OK;
}

const hcp_plan *hcp_rebalance_proposal(const hcp_rebalance *r)
{
    return r && r->proposed ? &r->next.plan : NULL;
}

const hcp_plan *hcp_rebalance_plan(const hcp_rebalance *r)
{
    return r ? &r->now.plan : NULL;
}

hcp_status hcp_rebalance_adopt(hcp_rebalance *r)
{
    struct held_plan was;
    hcp_status status;

    if (!r || !r->proposed)
        return HCP_STATUS_INVALID;
    was = r->now;
    r->now = r->next;
    r->next = was;
    status = rebalance_base(r, NULL, 0);
    if (status) { /* cannot be: it was split with these ranks */
        r->next = r->now;
        r->now = was;
        return status;
    }
    for (size_t i = 0; i < r->n; i++) {
        r->ranks[i].old_scale = r->ranks[i].plan_scale;
        r->ranks[i].plan_scale = r->offered[i];
        r->lost[i] = 0;
    }
    r->last_move = r->step;
    r->proposed = 0;
    return HCP_STATUS_OK;
}

hcp_status hcp_rebalance_rank_state(const hcp_rebalance *r, size_t rank,
                                    hcp_rebalance_rank *out)
{
    const struct rank_state *k;

    if (!r || rank >= r->n || !out || out->size < sizeof *out)
        return HCP_STATUS_INVALID;
    k = &r->ranks[rank];
    out->time_scale = k->speed.scale;
    out->error = k->speed.error;
    out->plan_scale = k->plan_scale;
    out->noise = k->speed.noise;
    out->steps = k->speed.age;
    out->failed = k->failed;
    return HCP_STATUS_OK;
}
