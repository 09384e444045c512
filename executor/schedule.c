/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "executor/schedule-internal.h"
#include "executor/schedule-late.h"
#include "kernels/geometry.h"

static int in_ring(const hcp_plan *plan, int32_t rank)
{
    return share_of(plan, rank, 0).tokens > 0 || share_of(plan, rank, 1).tokens > 0;
}

/* Room for one more element in a growing array; NULL without memory. */
static void *grow(void *array, size_t n, size_t *room, size_t element)
{
    if (n < *room)
        return array;
    size_t more = *room ? 2 * *room : 16;
    void *bigger = realloc(array, more * element);
    if (bigger)
        *room = more;
    return bigger;
}

static int no_memory(struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED, "no memory for the ring's schedule");
}

static int add_piece(struct ring_piece **pieces, size_t *n, size_t *room, int64_t first,
                     int64_t tokens, size_t call, struct hcp_err *err)
{
    struct ring_piece *array = grow(*pieces, *n, room, sizeof *array);
    if (!array)
        return no_memory(err);
    array[(*n)++] = (struct ring_piece){.first = first, .tokens = tokens, .call = call};
    *pieces = array;
    return HCP_OK;
}

static int add_call(struct maker *k, int64_t row, int64_t rows, int64_t keys, int causal,
                    struct hcp_err *err)
{
    struct ring_schedule *s = k->out;
    struct ring_call *calls = grow(s->calls, s->n_calls, &k->calls_room, sizeof *calls);
    if (!calls)
        return no_memory(err);
    calls[s->n_calls++] = (struct ring_call){
        .row = row, .rows = rows, .keys = keys, .causal = causal, .key = k->key};
    s->calls = calls;
    s->pieces[s->n_pieces - 1].n_calls++;
    return HCP_OK;
}

/* Whether rank i has work on the KV of rank j: always, or when its last segment comes
 * after the first of the other. */
static int sees(const hcp_plan *plan, int32_t i, int32_t j)
{
    struct share q = share_of(plan, i, 0), kv = share_of(plan, j, 1);
    const hcp_segment *last = plan->segments + q.first + q.n - 1;

    if (q.tokens == 0 || kv.tokens == 0)
        return 0;
    return !plan->causal || plan->segments[kv.first].offset < last->offset + last->length;
}

/* How many ranks the KV of the j-th of the m ranks travels on: to its last reader. */
static int32_t hops(const hcp_plan *plan, const int32_t *active, int32_t m, int32_t j)
{
    int32_t h = m - 1;

    while (h > 0 && !sees(plan, active[(j + h) % m], active[j]))
        h--;
    return h;
}

/* The ranks with tokens into active [n_ranks]; their number. */
static int32_t find_active(const hcp_plan *plan, int32_t *active)
{
    int32_t m = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        if (in_ring(plan, (int32_t)r))
            active[m++] = (int32_t)r;
    return m;
}

/* How far the KV of each travels, and by how much it is late. */
static void find_slots(const hcp_plan *plan, const int32_t *active, int32_t m,
                       int32_t *travels, int32_t *slots)
{
    for (int32_t j = 0; j < m; j++) {
        travels[j] = hops(plan, active, m, j);
        slots[j] = plan->late_kv ? plan->ranks[active[j]].late_slots : 0;
    }
}

static int no_levels(struct hcp_err *err, const char *what)
{
    return hcp_fail(err, HCP_USAGE,
                    "rings of rings have whole blocks, every rank working on each, and "
                    "as many ranks with tokens on every node: this has %s; make the plan "
                    "anew with 'hcp-plan split --double-ring'",
                    what);
}

/* The inner rings of a plan with two levels. */
static int find_levels(struct maker *k, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    struct ring_schedule *s = k->out;
    int32_t w = plan->inner_ranks, node = plan->node_ranks, *active = k->active;

    if (w <= 0)
        return HCP_OK;
    if (k->sub_blocks > 1)
        return hcp_fail(err, HCP_USAGE,
                        "rings of rings have whole blocks; leave --sub-blocks out");
    if (plan->late_kv || plan->joint)
        return no_levels(err, "KV that travels late or without its queries");
    if (node < 1 || w < 2 || s->m <= w || s->m % w != 0)
        return no_levels(err, "other numbers of ranks");
    for (int32_t i = 0; i < s->m; i++) {
        int32_t first = i - i % w; /* of this node */

        if (active[i] / node != active[first] / node ||
            (first > 0 && active[first - 1] / node == active[first] / node))
            return no_levels(err, "nodes of other numbers of ranks");
        if (hops(plan, active, s->m, i) != s->m - 1)
            return no_levels(err, "ranks that do not work on all blocks");
    }
    s->inner = w;
    return HCP_OK;
}

/* The number in active of the rank `nodes` nodes and `places` places before this one. */
static int32_t rank_before(const struct ring_schedule *s, int32_t nodes, int32_t places)
{
    int32_t w = s->inner, n = s->m / w;

    return (s->index / w - nodes + n) % n * w + (s->index % w - places + w) % w;
}

/* k->turn and own_after. */
static int find_turns(struct maker *k, struct hcp_err *err)
{
    struct ring_schedule *s = k->out;
    int32_t *room;

    k->turn = calloc((size_t)s->m, sizeof *k->turn);
    if (!k->turn)
        return no_memory(err);
    if (s->inner > 0) {
        for (int32_t t = 0; t < s->m; t++)
            k->turn[t] = rank_before(s, t / s->inner, t % s->inner);
        return HCP_OK;
    }
    if (!k->plan->late_kv) {
        for (int32_t t = 0; t < s->m; t++)
            k->turn[t] = (s->index - t + s->m) % s->m;
        return HCP_OK;
    }
    room = calloc(2 * (size_t)s->m, sizeof *room);
    if (!room)
        return no_memory(err);
    find_slots(k->plan, k->active, s->m, room, room + s->m);
    schedule_turns(s->m, room, room + s->m, s->index, k->turn);
    s->own_after = schedule_own_after(s->m, room, room + s->m, s->index);
    free(room);
    return HCP_OK;
}

struct adding {
    struct maker *k;
    struct hcp_err *err;
    int rc;
};

static void put_call(void *ctx, const hcp_call *call)
{
    struct adding *a = ctx;

    if (!a->rc)
        a->rc =
            add_call(a->k, call->row, call->rows, call->keys, call->causal != 0, a->err);
}

static const int64_t (*runs_of(const hcp_plan *plan, struct share share))[2]
{
    _Static_assert(sizeof(hcp_segment) == 2 * sizeof(int64_t), "offset, length");
    return (const int64_t(*)[2])(const void *)(plan->segments + share.first);
}

/* Keys of earlier chunks in the KV of a rank: they come first. */
static int64_t resident_of(const struct maker *k, int32_t rank)
{
    struct share kv = share_of(k->plan, rank, 1);
    const hcp_segment *s = k->plan->segments + kv.first;
    int64_t keys = 0;

    for (int64_t i = 0; i < kv.n && s[i].offset < k->offset; i++)
        keys += s[i].length;
    return keys;
}

/* The calls of a chunk on the KV of rank block_of, a piece. */
static int add_chunk_calls(struct maker *k, int32_t block_of, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    struct ring_schedule *s = k->out;
    struct share q = share_of(plan, s->rank, 0), kv = share_of(plan, block_of, 1);
    struct adding a = {k, err, HCP_OK};
    size_t before = s->n_calls;
    struct ring_call *only;

    k->key = resident_of(k, block_of);
    hcp_piece_calls(HCP_MASK_CAUSAL, runs_of(plan, q), q.n, runs_of(plan, kv), kv.n,
                    k->key, kv.tokens, put_call, &a);
    if (a.rc || k->key == 0 || q.tokens == 0) {
        k->key = 0;
        return a.rc;
    }
    only = s->n_calls == before + 1 ? &s->calls[before] : NULL;
    if (only && !only->causal && only->rows == q.tokens &&
        plan->layout != HCP_LAYOUT_STRIPED) {
        only->keys += k->key;
        only->key = k->key = 0;
        return HCP_OK;
    }
    a.rc = add_call(k, 0, q.tokens, k->key, 0, err);
    k->key = 0;
    if (!a.rc) {
        s->calls[s->n_calls - 1].key = 0;
        s->calls[s->n_calls - 1].merges = block_of == s->rank;
    }
    return a.rc;
}

/* The calls of the last piece added, of the KV of rank block_of. */
static int add_piece_calls(struct maker *k, int32_t block_of, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    const struct ring_piece *added = &k->out->pieces[k->out->n_pieces - 1];
    struct share q = share_of(plan, k->out->rank, 0), kv = share_of(plan, block_of, 1);
    struct adding a = {k, err, HCP_OK};

    if (k->is_chunk)
        return add_chunk_calls(k, block_of, err);
    hcp_piece_calls(plan->causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, runs_of(plan, q), q.n,
                    runs_of(plan, kv), kv.n, added->first, added->first + added->tokens,
                    put_call, &a);
    return a.rc;
}

/* Cuts a block; with calls into the schedule's pieces, else into those that are sent. */
static int cut_block(struct maker *k, int32_t block_of, int with_calls,
                     struct hcp_err *err)
{
    struct ring_schedule *s = k->out;
    int64_t tokens = share_of(k->plan, block_of, 1).tokens;
    int64_t tile = k->plan->tile > 0 ? k->plan->tile : 1;
    int64_t tiles = (tokens + tile - 1) / tile;
    /* More pieces than tiles are the same cuts again, and empty pieces. */
    int32_t n = tiles < k->sub_blocks ? (int32_t)tiles : k->sub_blocks;
    int rc = HCP_OK;

    for (int32_t p = 0; !rc && p < n; p++) {
        int64_t from = hcp_piece_cut(tokens, tile, n, p);
        int64_t to = hcp_piece_cut(tokens, tile, n, p + 1);

        if (from == to)
            continue;
        if (with_calls) {
            rc = add_piece(&s->pieces, &s->n_pieces, &k->pieces_room, from, to - from,
                           s->n_calls, err);
            if (!rc)
                rc = add_piece_calls(k, block_of, err);
        } else {
            rc = add_piece(&s->send_pieces, &s->n_send_pieces, &k->send_room, from,
                           to - from, 0, err);
        }
    }
    return rc;
}

static int add_blank(struct maker *k, int64_t row, int64_t rows, struct hcp_err *err)
{
    struct ring_schedule *s = k->out;
    struct ring_rows *blank = s->blank;

    if (rows <= 0)
        return HCP_OK;
    blank = grow(blank, s->n_blank, &k->blank_room, sizeof *blank);
    if (!blank)
        return no_memory(err);
    blank[s->n_blank++] = (struct ring_rows){row, rows};
    s->blank = blank;
    return HCP_OK;
}

/* The own block: one piece, whatever it is sent in, and the rows that see none of it. */
static int make_own(struct maker *k, int send, struct hcp_err *err)
{
    struct ring_schedule *s = k->out;
    int64_t row = 0;
    int rc = add_piece(&s->pieces, &s->n_pieces, &k->pieces_room, 0, s->kv_tokens,
                       s->n_calls, err);

    if (!rc && s->kv_tokens > 0)
        rc = add_piece_calls(k, s->rank, err);
    for (size_t i = 0; !rc && i < s->n_calls; i++) {
        rc = add_blank(k, row, s->calls[i].row - row, err);
        row = s->calls[i].row + s->calls[i].rows;
    }
    if (!rc)
        rc = add_blank(k, row, s->tokens - row, err);
    return rc || !send ? rc : cut_block(k, s->rank, 0, err);
}

/* Step t of the rank. */
static int make_step(struct maker *k, int32_t t, struct hcp_err *err)
{
    struct ring_schedule *s = k->out;
    struct ring_step *step = &s->steps[t];
    int32_t j = k->turn[t], far = hops(k->plan, k->active, s->m, j);
    int32_t behind = (s->index - j + s->m) % s->m; /* ranks behind the block's own */
    int rc = HCP_OK;

    *step = (struct ring_step){.block_of = k->active[j],
                               .tokens = share_of(k->plan, k->active[j], 1).tokens,
                               .receive = t > 0 && behind <= far,
                               .send = behind < far,
                               .piece = s->n_pieces};
    if (s->inner > 0) {
        step->receive = t > 0;
        step->send = t % s->inner + 1 < s->inner;
        step->send_out = t % s->inner == 0 && t + s->inner < s->m;
    }
    if (t == 0) {
        rc = make_own(k, step->send || step->send_out, err);
    } else {
        rc = schedule_check_apart(k, step->block_of, 0, err);
        if (!rc && k->plan->joint)
            rc = schedule_check_apart(k, step->block_of, 1, err);
        if (!rc && step->receive)
            rc = cut_block(k, step->block_of, 1, err);
        if (step->receive && step->tokens > s->max_block)
            s->max_block = step->tokens;
    }
    step->n_pieces = s->n_pieces - step->piece;
    return rc;
}

static int make_steps(struct maker *k, struct hcp_err *err)
{
    const hcp_plan *plan = k->plan;
    struct ring_schedule *s = k->out;
    int rc = HCP_OK;

    k->active = calloc(plan->n_ranks, sizeof *k->active);
    if (!k->active)
        return no_memory(err);
    s->m = find_active(plan, k->active);
    for (int32_t i = 0; i < s->m; i++)
        if (k->active[i] == s->rank)
            s->index = i;
    if (s->index < 0)
        return HCP_OK;
    rc = find_levels(k, err);
    if (!rc)
        rc = find_turns(k, err);
    if (rc)
        return rc;
    if (s->inner > 0) {
        s->before = k->active[rank_before(s, 0, 1)];
        s->after = k->active[rank_before(s, 0, s->inner - 1)];
        s->outer_before = k->active[rank_before(s, 1, 0)];
        s->outer_after = k->active[rank_before(s, s->m / s->inner - 1, 0)];
    } else if (s->m > 1) {
        s->before = k->active[(s->index + s->m - 1) % s->m];
        s->after = k->active[(s->index + 1) % s->m];
    }
    s->steps = calloc((size_t)s->m, sizeof *s->steps);
    if (!s->steps)
        return no_memory(err);
    for (int32_t t = 0; !rc && t < s->m; t++)
        rc = make_step(k, t, err);
    return rc;
}

static int make(struct maker k, int32_t rank, struct ring_schedule *out,
                struct hcp_err *err)
{
    const hcp_plan *plan = k.plan;
    struct ring_schedule made = {.rank = rank,
                                 .n_ranks = (int32_t)plan->n_ranks,
                                 .index = -1,
                                 .before = -1,
                                 .after = -1,
                                 .outer_before = -1,
                                 .outer_after = -1};
    int rc = schedule_check(&k, rank, err);

    k.out = &made;
    if (!rc) {
        made.tokens = share_of(plan, rank, 0).tokens;
        made.kv_tokens = share_of(plan, rank, 1).tokens;
        rc = make_steps(&k, err);
    }
    free(k.active);
    free(k.turn);
    if (rc)
        ring_schedule_free(&made);
    else
        *out = made;
    return rc;
}

int ring_schedule_make(const hcp_plan *plan, int32_t rank, int32_t sub_blocks,
                       struct ring_schedule *out, struct hcp_err *err)
{
    const struct maker k = {
        .plan = plan, .end = plan->seq_len, .sub_blocks = sub_blocks};

    return make(k, rank, out, err);
}

int ring_schedule_chunk(const hcp_plan *plan, int64_t offset, int64_t tokens,
                        int32_t rank, struct ring_schedule *out, struct hcp_err *err)
{
    const struct maker k = {.plan = plan,
                            .is_chunk = 1,
                            .offset = offset,
                            .end = offset + tokens,
                            .sub_blocks = 1};

    return make(k, rank, out, err);
}

void ring_schedule_free(struct ring_schedule *s)
{
    free(s->steps);
    free(s->pieces);
    free(s->calls);
    free(s->send_pieces);
    free(s->blank);
    memset(s, 0, sizeof *s);
}

int64_t ring_schedule_area(const struct ring_schedule *s)
{
    int64_t area = 0;

    for (size_t i = 0; i < s->n_calls; i++) {
        const struct ring_call *c = &s->calls[i];

        area += hcp_block_area(c->causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, c->rows,
                               c->keys, c->causal ? c->keys - c->rows : 0);
    }
    return area;
}

int32_t ring_schedule_spare_sms(const struct ring_schedule *s, int32_t asked,
                                int32_t channels, int32_t sm_count)
{
    int64_t spare = 0;

    if (s->m < 2 || s->index < 0 || sm_count < 2)
        return 0;
    if (asked >= 0)
        return asked < sm_count ? asked : sm_count - 1;
    if (s->steps[0].send && s->n_send_pieces > 1)
        spare += channels;
    for (int32_t k = 1; k < s->m; k++) {
        if (s->steps[k].receive && s->steps[k].n_pieces > 1) {
            spare += channels;
            break;
        }
    }
    return 16 * spare <= sm_count ? (int32_t)spare : 0;
}
