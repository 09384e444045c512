/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>
#include "planner/plan.h"

/* Classes the memo holds. Enough for any split of up to 128 ranks after a move of two;
 * large groups of equal ranks need few; above 512 a table is slower than asking. Small
 * groups have room for all splits of a question. */
static int32_t memo_classes(size_t n)
{
    size_t c = 2 * n + 16;

    if (n <= 16)
        c = 64;
    return (int32_t)(c < MEMO_CLASSES ? c : MEMO_CLASSES);
}

/* Hands out pieces of the workspace; with base 0 it only counts. */
struct carver {
    uintptr_t base, at;
};

static void *carve(struct carver *c, size_t count, size_t size)
{
    void *piece;

    c->at = (c->at + 63) & ~(uintptr_t)63; /* a line of the cache */
    piece = c->base ? (void *)c->at : NULL;
    c->at += count * size;
    return piece;
}

#define CARVE(field, count) ((field) = carve(c, (count), sizeof *(field)))

/* Of groups in which it is used. */
static void carve_forward(struct scratch *s, struct carver *c, size_t n)
{
    struct memory_forward where;

    CARVE(s->forward, n > 0);
    CARVE(where.from, n);
    CARVE(where.took, n);
    if (c->base && n > 0) {
        s->forward->from = where.from;
        s->forward->took = where.took;
    }
}

static void carve_all(struct scratch *s, struct carver *c, size_t n)
{
    struct memo *memo = &s->memo;
    struct active *act = &s->act;
    size_t k = (size_t)memo_classes(n), late;

    memo->cap = (int32_t)k;
    for (memo->hash_size = 64; memo->hash_size < 2 * memo->cap;)
        memo->hash_size *= 2;
    CARVE(memo->hash, (size_t)memo->hash_size);
    CARVE(memo->id, k);
    CARVE(memo->len, k);
    CARVE(memo->own, k);
    CARVE(memo->early, k * k);
    CARVE(memo->late, k * k);
    memo->words = ((int32_t)k + 63) / 64;
    CARVE(memo->keys, n >= TALLY_RANKS ? FEW_AXES * k : 0);
    CARVE(memo->early_known, k * (size_t)memo->words);
    CARVE(memo->late_known, k * (size_t)memo->words);
    CARVE(s->few.of, n <= FEW_RANKS ? FEW_PLACES : 0);
    CARVE(act->rank, n);
    CARVE(act->len, n);
    CARVE(act->cls, n);
    CARVE(act->guess, n);
    CARVE(act->present, k);
    CARVE(act->first, k);
    CARVE(act->last, k);
    CARVE(act->before, k);
    CARVE(act->total, k);
    CARVE(act->at, k);
    CARVE(act->asked, k);
    CARVE(act->head_to, k);
    CARVE(act->head_ms, k);
    CARVE(act->seen, k);
    CARVE(memo->held, n);
    CARVE(act->ask, k);
    CARVE(act->ask_len, k);
    CARVE(act->ask_keys, k);
    CARVE(act->ask_ms, k);
    s->n_calls = n <= 16 ? 1024 : 4096;
    CARVE(s->calls, (size_t)s->n_calls);
    CARVE(s->ring.ready, ring_pitch((int32_t)n) * MAX_BUFFERS);
    CARVE(s->ring.arrival, n * MAX_SUB_BLOCKS);
    CARVE(s->ring.step_ms, n);
    CARVE(s->ring.history, ring_pitch((int32_t)n) * (MAX_BUFFERS + 1));
    CARVE(s->ring.tile, n > RING_TILE ? 2 * RING_ROWS * ring_pitch(RING_TILE) : 0);
    CARVE(s->hops, n);
    CARVE(s->run_end, n);
    CARVE(s->send_ms, n);
    CARVE(s->before, n);
    CARVE(s->after, n);
    CARVE(s->largest, n);
    CARVE(s->box, n);
    carve_forward(s, c, n <= FORWARD_RANKS ? n : 0);
    CARVE(s->fin, n);
    CARVE(s->busy, n);
    CARVE(s->plan_fin, n);
    CARVE(s->plan_busy, n);
    CARVE(s->whole, n);
    CARVE(s->peak, n);
    CARVE(s->speed, n);
    CARVE(s->weight, n);
    CARVE(s->ideal, n);
    CARVE(s->value, n);
    CARVE(s->value2, n);
    CARVE(s->probe, 4 * n);
    CARVE(s->cap, n);
    CARVE(s->areas, n);
    CARVE(s->order, n);
    CARVE(s->slow_order, n);
    CARVE(s->allowed, n);
    for (size_t i = 0; i < sizeof s->tokens / sizeof *s->tokens; i++)
        CARVE(s->tokens[i], n);
    CARVE(s->into, n);
    CARVE(s->starts, n);
    CARVE(s->link_alpha, n);
    CARVE(s->link_token, n);
    CARVE(s->sent, n);
    CARVE(s->ring.step_send, n);
    CARVE(s->ring.outer, RINGS_ROWS * n);
    CARVE(s->ring.turned, 2 * n);
    CARVE(s->sharers, 4 * n);
    CARVE(s->bound, n);
    CARVE(s->place, n);
    CARVE(s->place_best, n);
    CARVE(s->place_kept, n);
    CARVE(s->place_here, n);
    CARVE(s->place_trial, n);
    CARVE(s->kind_of, n);
    CARVE(s->ring.came, n);
    CARVE(s->ring.buffer, n);
    CARVE(s->joint.q_runs, joint_runs_room(n));
    CARVE(s->joint.kv_runs, joint_runs_room(n));
    CARVE(s->joint.q_first, n);
    CARVE(s->joint.q_counts, n);
    CARVE(s->joint.kv_first, n);
    CARVE(s->joint.kv_counts, n);
    CARVE(s->joint.room, n);
    CARVE(s->joint.q_kept, n);
    CARVE(s->joint.kv_kept, n);
    CARVE(s->joint.q_free, n);
    CARVE(s->joint.kv_tied, n);
    late = n < LATE_RANKS ? n : LATE_RANKS;
    CARVE(s->late.turn, late * late);
    CARVE(s->late.step, late * late);
    CARVE(s->late.count, late);
    CARVE(s->late.next, late);
    CARVE(s->late.ready, late * late);
    CARVE(s->late.fin, late * late);
    CARVE(s->slots, n);
    CARVE(s->slots_best, n);
    CARVE(s->slots_here, n);
    CARVE(s->slots_trial, n);
    CARVE(s->slots_plan, n);
}

/* Bytes for n ranks, whatever the alignment of the caller's memory. */
size_t scratch_bytes(size_t n)
{
    struct scratch s;
    struct carver c = {0, 0};

    carve_all(&s, &c, n);
    return (size_t)c.at + 64;
}

/* Lays the arrays out in a workspace of scratch_bytes(n) bytes. */
void scratch_carve(struct scratch *s, void *workspace, size_t n)
{
    struct carver c = {(uintptr_t)workspace, (uintptr_t)workspace};

    carve_all(s, &c, n);
    s->memo.few = s->memo.tables = 0;
    memo_reset(&s->memo);
    s->calls_ready = 0;
    s->sharers_clear = 0;
    s->full = 0;
    memset(s->act.guess, 0, n * sizeof *s->act.guess);
    memset(s->act.seen, 0, (size_t)s->memo.cap * sizeof *s->act.seen);
    s->act.split = 0;
}
