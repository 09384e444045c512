/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/hash.h"
#include "planner/json-out.h"
#include "planner/rebalance.h"

/* ---- fingerprints ---- */

/* Models, shape, caps and linear work; factors are state. */
static void hash_ring(uint64_t *h, const hcp_ring *ring)
{
    hash_u64(h, ring->n);
    for (int k = HCP_MODEL_BEST; k <= HCP_MODEL_POLY; k++)
        hash_u64(h, answer_models_hash(ring, (hcp_model_kind)k));
    hash_text(h, ring->shape.phase, sizeof ring->shape.phase);
    hash_text(h, ring->shape.dtype, sizeof ring->shape.dtype);
    hash_u64(h, (uint64_t)ring->shape.batch);
    hash_u64(h, (uint64_t)ring->shape.heads);
    hash_u64(h, (uint64_t)ring->shape.kv_heads);
    hash_u64(h, (uint64_t)ring->shape.head_dim);
    for (size_t i = 0; i < ring->n; i++) {
        const hcp_rank *rank = &ring->ranks[i].spec;

        hash_u64(h, (uint64_t)rank->max_tokens);
        hash_u64(h, (uint64_t)rank->max_bytes);
        hash_u64(h, (uint64_t)rank->weight_bytes);
        hash_double(h, rank->linear_before_us);
        hash_double(h, rank->linear_before_fixed_us);
        hash_double(h, rank->linear_after_us);
        hash_double(h, rank->linear_after_fixed_us);
        hash_double(h, rank->linear_error);
    }
}

static void hash_links(uint64_t *h, const hcp_question *q)
{
    hash_double(h, q->link_alpha_us);
    hash_double(h, q->link_gbps);
    hash_u64(h, q->links ? q->n_links : 0);
    for (size_t i = 0; q->links && i < q->n_links; i++) {
        const hcp_link *l = &q->links[i];

        hash_u64(h, (uint64_t)l->from);
        hash_u64(h, (uint64_t)l->to);
        hash_u64(h, (uint64_t)l->shared[0]);
        hash_u64(h, (uint64_t)l->shared[1]);
        hash_double(h, l->alpha_us);
        hash_double(h, l->gbps);
        hash_double(h, l->slowdown);
        hash_double(h, l->transfer_slowdown);
        hash_double(h, l->overhead_us);
    }
    hash_u64(h, q->shared_gbps ? q->n_shared : 0);
    for (size_t i = 0; q->shared_gbps && i < q->n_shared; i++)
        hash_double(h, q->shared_gbps[i]);
    hash_u64(h, (uint64_t)q->node_ranks);
    hash_double(h, q->node_alpha_us);
    hash_double(h, q->node_gbps);
    hash_double(h, q->node_shared_gbps);
    hash_u64(h, (uint64_t)q->rings);
}

uint64_t rebalance_setting(const hcp_rebalance *r)
{
    const hcp_question *q = &r->question;
    const hcp_rebalance_options *o = &r->options;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    hash_ring(&h, r->ring);
    hash_u64(&h, (uint64_t)q->seq_len);
    hash_u64(&h, (uint64_t)(q->causal != 0));
    hash_u64(&h, (uint64_t)q->strategy);
    hash_u64(&h, (uint64_t)q->layout);
    hash_u64(&h, (uint64_t)q->tile);
    hash_u64(&h, (uint64_t)q->buffers);
    hash_u64(&h, (uint64_t)q->sub_blocks);
    hash_u64(&h, (uint64_t)q->barrier);
    hash_u64(&h, (uint64_t)q->layers);
    hash_u64(&h, (uint64_t)q->stripes);
    hash_u64(&h, (uint64_t)q->activation_bytes);
    hash_u64(&h, (uint64_t)(q->extrapolate != 0));
    hash_u64(&h, (uint64_t)(q->late_kv != 0));
    hash_u64(&h, (uint64_t)q->merge);
    hash_links(&h, q);
    hash_double(&h, o->false_alarms);
    hash_double(&h, o->noise);
    hash_double(&h, o->min_gain);
    hash_double(&h, o->move_ms);
    hash_u64(&h, (uint64_t)(o->move_kv != 0));
    hash_double(&h, o->link_alpha_us);
    hash_double(&h, o->link_gbps);
    hash_u64(&h, (uint64_t)o->expected_steps);
    return h;
}

/* Factors that are kept. */
static int kept(const struct speed *s)
{
    return s->seen < REBALANCE_HISTORY ? (int)s->seen : REBALANCE_HISTORY;
}

uint64_t hcp_rebalance_fingerprint(const hcp_rebalance *r)
{
    uint64_t h;

    if (!r)
        return 0;
    h = rebalance_setting(r);
    hash_u64(&h, (uint64_t)r->step);
    hash_u64(&h, (uint64_t)r->now.plan.layout);
    hash_u64(&h, (uint64_t)r->now.plan.stripes);
    hash_u64(&h, (uint64_t)r->pending);
    hash_double(&h, r->gain_ms);
    hash_double(&h, r->lost_ms);
    hash_u64(&h, (uint64_t)r->waited);
    hash_u64(&h, (uint64_t)r->patience);
    hash_u64(&h, (uint64_t)r->last_move);
    hash_double(&h, r->test.held_out);
    for (size_t i = 0; i < r->n; i++) {
        const struct rank_state *k = &r->ranks[i];
        const struct speed *s = &k->speed;

        hash_u64(&h, (uint64_t)r->now.plan.ranks[i].tokens);
        hash_u64(&h, (uint64_t)(k->failed | r->lost[i] << 1 | k->restored << 2 |
                                k->heard << 3));
        hash_double(&h, k->plan_scale);
        hash_double(&h, k->old_scale);
        hash_double(&h, s->scale);
        hash_double(&h, s->error);
        hash_double(&h, s->noise);
        hash_double(&h, s->given);
        hash_u64(&h, (uint64_t)s->fresh);
        hash_u64(&h, (uint64_t)s->age);
        for (int j = 0; j < kept(s); j++)
            hash_double(&h, s->y[(s->seen - kept(s) + j) % REBALANCE_HISTORY]);
        hash_double(&h, k->heard && k->timed ? k->pending_y : 0);
    }
    return h;
}

/* ---- out ---- */

static void put_rank(struct json_out *out, const hcp_rebalance *r, size_t i)
{
    const struct rank_state *k = &r->ranks[i];
    const struct speed *s = &k->speed;

    put(out, i ? ",{\"tokens\":" : "{\"tokens\":");
    put_int(out, r->now.plan.ranks[i].tokens);
    name_int(out, "failed", k->failed);
    name_int(out, "lost", r->lost[i]);
    name_int(out, "restored", k->restored);
    name_double(out, "plan_scale", k->plan_scale);
    name_double(out, "old_scale", k->old_scale);
    name_double(out, "time_scale", s->scale);
    name_double(out, "error", s->error);
    name_double(out, "noise", s->noise);
    name_double(out, "given", s->given);
    name_int(out, "fresh", s->fresh);
    name_int(out, "age", s->age);
    name_int(out, "seen", s->seen);
    put_name(out, "history");
    put(out, "[");
    for (int j = 0; j < kept(s); j++) {
        put(out, j ? "," : "");
        put_double(out, s->y[(s->seen - kept(s) + j) % REBALANCE_HISTORY]);
    }
    put(out, "]}");
}

static int in_step(const hcp_rebalance *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->ranks[i].heard)
            return 1;
    return 0;
}

hcp_status hcp_rebalance_to_json(const hcp_rebalance *r, char *json, size_t size,
                                 size_t *needed)
{
    struct json_out out = {json, json ? size : 0, 0};

    if (!r || in_step(r))
        return HCP_STATUS_INVALID;
    put(&out, "{\"schema\":1,\"rebalance\":");
    put_hash(&out, rebalance_setting(r));
    name_int(&out, "step", r->step);
    name_int(&out, "layout", r->now.plan.layout);
    name_int(&out, "stripes", r->now.plan.stripes);
    name_int(&out, "pending", r->pending);
    name_double(&out, "gain_ms", r->gain_ms);
    name_double(&out, "lost_ms", r->lost_ms);
    name_int(&out, "waited", r->waited);
    name_int(&out, "patience", r->patience);
    name_int(&out, "last_move", r->last_move);
    name_double(&out, "held_out", r->test.held_out);
    put_name(&out, "ranks");
    put(&out, "[");
    for (size_t i = 0; i < r->n; i++)
        put_rank(&out, r, i);
    put(&out, "]}");
    if (needed)
        *needed = out.n;
    if (out.n + 1 > out.size)
        return HCP_STATUS_SPACE;
    json[out.n] = 0;
    return HCP_STATUS_OK;
}

/* ---- in ---- */

enum { MEMBERS = 12, RANK_MEMBERS = 14 };

/* The text is read twice: once to check it, then into the object. */
struct state_in {
    hcp_rebalance *r;
    int store;
    uint64_t seen, rank_seen;
    size_t n;
    struct rank_state rank;
    int64_t tokens, lost, sum;
    int64_t n_history;
    int64_t number[MEMBERS];
    double real[3];
};

static int finite_in(struct json_in *in, double low, double high, double *out)
{
    if (jin_double(in, out))
        return -1;
    return *out >= low && *out <= high ? 0 : jin_fail(in, "out of range");
}

static int read_y(struct json_in *in, void *ctx)
{
    struct state_in *s = ctx;
    double y;

    if (s->n_history == REBALANCE_HISTORY)
        return jin_fail(in, "too long a history");
    if (finite_in(in, HCP_PLAN_MIN_SCALE, HCP_PLAN_MAX_SCALE, &y))
        return -1;
    s->rank.speed.y[s->n_history++] = y;
    return 0;
}

static int read_rank_member(struct json_in *in, const char *key, void *ctx)
{
    static const char *const names[RANK_MEMBERS] = {
        "tokens",     "failed",    "lost",       "restored", "fresh", "age",   "seen",
        "plan_scale", "old_scale", "time_scale", "given",    "error", "noise", "history"};
    struct state_in *s = ctx;
    struct rank_state *k = &s->rank;
    double *const scales[] = {&k->plan_scale,  &k->old_scale,   &k->speed.scale,
                              &k->speed.given, &k->speed.error, &k->speed.noise};
    int64_t v = 0;
    int id = jin_member(names, RANK_MEMBERS, key), rc;

    if (id < 0)
        return jin_skip(in);
    if (s->rank_seen >> id & 1)
        return jin_fail(in, "member twice in a rank");
    s->rank_seen |= UINT64_C(1) << id;
    if (id >= 7 && id < 13)
        return jin_within(in, key,
                          id < 11 ? finite_in(in, HCP_PLAN_MIN_SCALE, HCP_PLAN_MAX_SCALE,
                                              scales[id - 7])
                                  : finite_in(in, 0, 1e6, scales[id - 7]));
    if (id == 13)
        return jin_within(in, key, jin_array(in, read_y, s));
    rc = jin_int(in, 0, id == 0 ? HCP_PLAN_MAX_LEN : id >= 5 ? INT64_MAX / 4 : 1, &v);
    switch (id) {
    case 0:
        s->tokens = v;
        break;
    case 1:
        k->failed = (uint8_t)v;
        break;
    case 2:
        s->lost = v;
        break;
    case 3:
        k->restored = (uint8_t)v;
        break;
    case 4:
        k->speed.fresh = (int)v;
        break;
    case 5:
        k->speed.age = v;
        break;
    default:
        k->speed.seen = v;
    }
    return jin_within(in, key, rc);
}

/* The history lies in the text by time; here step i is at i % REBALANCE_HISTORY. */
static void turn_history(struct speed *s)
{
    double y[REBALANCE_HISTORY];

    memcpy(y, s->y, sizeof y);
    for (int j = 0; j < kept(s); j++)
        s->y[(s->seen - kept(s) + j) % REBALANCE_HISTORY] = y[j];
}

static int read_rank(struct json_in *in, void *ctx)
{
    struct state_in *s = ctx;
    struct speed *speed = &s->rank.speed;

    if (s->n == s->r->n)
        return jin_fail(in, "more ranks than the ring has");
    memset(&s->rank, 0, sizeof s->rank);
    s->rank_seen = 0;
    s->n_history = 0;
    if (jin_object(in, read_rank_member, s))
        return -1;
    if (s->rank_seen != (UINT64_C(1) << RANK_MEMBERS) - 1)
        return jin_fail(in, "a rank lacks a member");
    if (s->n_history != kept(speed) || speed->age > speed->seen)
        return jin_fail(in, "a history that is not as long as it says");
    if (s->lost && (!s->rank.failed || s->tokens == 0))
        return jin_fail(in, "a rank that lost what it had not");
    s->sum += s->tokens;
    if (s->store) {
        turn_history(speed);
        s->r->ranks[s->n] = s->rank;
        s->r->lost[s->n] = (uint8_t)s->lost;
    }
    s->r->tokens[s->n] = s->tokens; /* scratch in any case */
    s->r->scale[s->n] = s->rank.plan_scale;
    s->n++;
    return 0;
}

static int read_setting(struct json_in *in, const struct state_in *s)
{
    char text[20];
    uint64_t want = rebalance_setting(s->r), got = 0;

    if (jin_string(in, text, sizeof text))
        return -1;
    for (int i = 0; text[i]; i++) {
        int digit = text[i] >= '0' && text[i] <= '9'   ? text[i] - '0'
                    : text[i] >= 'a' && text[i] <= 'f' ? text[i] - 'a' + 10
                                                       : -1;
        if (digit < 0)
            return jin_fail(in, "expected hexadecimal digits");
        got = got << 4 | (uint64_t)digit;
    }
    return got == want ? 0
                       : jin_fail(in, "of another ring, question or options than this");
}

static int read_member(struct json_in *in, const char *key, void *ctx)
{
    static const char *const names[MEMBERS] = {
        "schema",   "step",      "layout",  "stripes", "pending",  "waited",
        "patience", "last_move", "gain_ms", "lost_ms", "held_out", "ranks"};
    static const int64_t least[] = {1, 0, 1, 1, 0, 0, 2, -1};
    static const int64_t most[] = {1,
                                   INT64_MAX / 4,
                                   3,
                                   MAX_STRIPES,
                                   1,
                                   INT64_MAX / 4,
                                   REBALANCE_PATIENCE,
                                   INT64_MAX / 4};
    struct state_in *s = ctx;
    int id = jin_member(names, MEMBERS, key);

    if (strcmp(key, "rebalance") == 0) {
        s->seen |= UINT64_C(1) << MEMBERS;
        return read_setting(in, s);
    }
    if (id < 0)
        return jin_skip(in);
    if (s->seen >> id & 1)
        return jin_fail(in, "member twice");
    s->seen |= UINT64_C(1) << id;
    if (id < 8)
        return jin_within(in, key, jin_int(in, least[id], most[id], &s->number[id]));
    if (id < 11)
        return jin_within(
            in, key,
            id < 10 ? finite_in(in, -1e300, 1e300, &s->real[id - 8])
                    : finite_in(in, 0, 1e6, &s->real[id - 8])); /* so are errors */
    return jin_array(in, read_rank, s);
}

static int read_state(struct json_in *in, struct state_in *s)
{
    if (jin_object(in, read_member, s))
        return -1;
    if (jin_peek(in) != -1)
        return jin_fail(in, "text after the state");
    if (s->seen != (UINT64_C(1) << (MEMBERS + 1)) - 1)
        return jin_fail(in, "a member is missing");
    if (s->n != s->r->n || s->sum != s->r->question.seq_len)
        return jin_fail(in, "its tokens are not those of the question");
    return 0;
}

hcp_status hcp_rebalance_from_json(hcp_rebalance *r, const char *json, size_t length,
                                   char *text, size_t text_size)
{
    struct json_in in = {json, json, json, ""};
    struct state_in s = {.r = r};
    hcp_plan like = {.layout = HCP_LAYOUT_CONTIGUOUS};
    struct held_plan was;
    hcp_status status;

    if (!r || !json || in_step(r))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "an object between two steps and a text are needed");
    in.end += length;
    if (read_state(&in, &s))
        return plan_fail(text, text_size, HCP_STATUS_FORMAT, "not a state: %s", in.error);
    like.layout = (hcp_layout)s.number[2];
    like.stripes = (int32_t)s.number[3];
    if (like.stripes > r->question.stripes && like.stripes > r->now.plan.stripes)
        return plan_fail(text, text_size, HCP_STATUS_FORMAT,
                         "not a state: more stripes than the question has");
    r->proposed = 0; /* it is written over */
    status = rebalance_evaluate(r, &like, r->tokens, r->scale, &r->next, text, text_size);
    if (status)
        return status;
    was = r->now;
    r->now = r->next;
    r->next = was;
    status = rebalance_base(r, text, text_size);
    if (status) {
        r->next = r->now;
        r->now = was;
        rebalance_base(r, NULL, 0);
        return status;
    }
    in = (struct json_in){json, json, json + length, ""};
    s = (struct state_in){.r = r, .store = 1};
    for (size_t i = 0; i < r->n; i++)
        r->offered[i] = r->ranks[i].base_ms;
    read_state(&in, &s);
    for (size_t i = 0; i < r->n; i++)
        r->ranks[i].base_ms = r->offered[i];
    r->step = s.number[1];
    r->pending = (int)s.number[4];
    r->waited = s.number[5];
    r->patience = s.number[6];
    r->last_move = s.number[7];
    r->gain_ms = s.real[0];
    r->lost_ms = s.real[1];
    r->test.held_out = s.real[2]; /* of the plan that the others began with */
    return HCP_STATUS_OK;
}
