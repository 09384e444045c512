/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>
#include "planner/carve.h"
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

/* Of groups in which it is used. */
static void carve_forward(struct scratch *s, struct carver *c, size_t n)
{
    struct memory_forward where;

    CARVE(c, s->forward, n > 0);
    CARVE(c, where.from, n);
    CARVE(c, where.took, n);
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
    CARVE(c, memo->hash, (size_t)memo->hash_size);
    CARVE(c, memo->id, k);
    CARVE(c, memo->len, k);
    CARVE(c, memo->own, k);
    CARVE(c, memo->early, k * k);
    CARVE(c, memo->late, k * k);
    memo->words = ((int32_t)k + 63) / 64;
    CARVE(c, memo->keys, n >= TALLY_RANKS ? FEW_AXES * k : 0);
    CARVE(c, memo->early_known, k * (size_t)memo->words);
    CARVE(c, memo->late_known, k * (size_t)memo->words);
    CARVE(c, s->few.of, n <= FEW_RANKS ? FEW_PLACES : 0);
    CARVE(c, act->rank, n);
    CARVE(c, act->len, n);
    CARVE(c, act->cls, n);
    CARVE(c, act->guess, n);
    CARVE(c, act->present, k);
    CARVE(c, act->first, k);
    CARVE(c, act->last, k);
    CARVE(c, act->before, k);
    CARVE(c, act->total, k);
    CARVE(c, act->at, k);
    CARVE(c, act->asked, k);
    CARVE(c, act->head_to, k);
    CARVE(c, act->head_ms, k);
    CARVE(c, act->seen, k);
    CARVE(c, memo->held, n);
    CARVE(c, act->ask, k);
    CARVE(c, act->ask_len, k);
    CARVE(c, act->ask_keys, k);
    CARVE(c, act->ask_ms, k);
    s->n_calls = n <= 16 ? 1024 : 4096;
    CARVE(c, s->calls, (size_t)s->n_calls);
    CARVE(c, s->ring.ready, ring_pitch((int32_t)n) * MAX_BUFFERS);
    CARVE(c, s->ring.arrival, n * MAX_SUB_BLOCKS);
    CARVE(c, s->ring.step_ms, n);
    CARVE(c, s->ring.history, ring_pitch((int32_t)n) * (MAX_BUFFERS + 1));
    CARVE(c, s->ring.tile, n > RING_TILE ? 2 * RING_ROWS * ring_pitch(RING_TILE) : 0);
    CARVE(c, s->hops, n);
    CARVE(c, s->run_end, n);
    CARVE(c, s->send_ms, n);
    CARVE(c, s->before, n);
    CARVE(c, s->after, n);
    CARVE(c, s->largest, n);
    CARVE(c, s->box, n);
    carve_forward(s, c, n <= FORWARD_RANKS ? n : 0);
    CARVE(c, s->fin, n);
    CARVE(c, s->busy, n);
    CARVE(c, s->plan_fin, n);
    CARVE(c, s->plan_busy, n);
    CARVE(c, s->whole, n);
    CARVE(c, s->peak, n);
    CARVE(c, s->speed, n);
    CARVE(c, s->weight, n);
    CARVE(c, s->ideal, n);
    CARVE(c, s->value, n);
    CARVE(c, s->value2, n);
    CARVE(c, s->probe, 4 * n);
    CARVE(c, s->cap, n);
    CARVE(c, s->areas, n);
    CARVE(c, s->order, n);
    CARVE(c, s->slow_order, n);
    CARVE(c, s->allowed, n);
    for (size_t i = 0; i < sizeof s->tokens / sizeof *s->tokens; i++)
        CARVE(c, s->tokens[i], n);
    CARVE(c, s->into, n);
    CARVE(c, s->starts, n);
    CARVE(c, s->link_alpha, n);
    CARVE(c, s->link_token, n);
    CARVE(c, s->sent, n);
    CARVE(c, s->ring.step_send, n);
    CARVE(c, s->ring.outer, RINGS_ROWS * n);
    CARVE(c, s->ring.turned, 2 * n);
    CARVE(c, s->sharers, 4 * n);
    CARVE(c, s->bound, n);
    CARVE(c, s->place, n);
    CARVE(c, s->place_best, n);
    CARVE(c, s->place_kept, n);
    CARVE(c, s->place_here, n);
    CARVE(c, s->place_trial, n);
    CARVE(c, s->kind_of, n);
    CARVE(c, s->ring.came, n);
    CARVE(c, s->ring.buffer, n);
    CARVE(c, s->joint.q_runs, joint_runs_room(n));
    CARVE(c, s->joint.kv_runs, joint_runs_room(n));
    CARVE(c, s->joint.q_first, n);
    CARVE(c, s->joint.q_counts, n);
    CARVE(c, s->joint.kv_first, n);
    CARVE(c, s->joint.kv_counts, n);
    CARVE(c, s->joint.room, n);
    CARVE(c, s->joint.q_kept, n);
    CARVE(c, s->joint.kv_kept, n);
    CARVE(c, s->joint.q_free, n);
    CARVE(c, s->joint.kv_tied, n);
    late = n < LATE_RANKS ? n : LATE_RANKS;
    CARVE(c, s->late.turn, late * late);
    CARVE(c, s->late.step, late * late);
    CARVE(c, s->late.count, late);
    CARVE(c, s->late.next, late);
    CARVE(c, s->late.ready, late * late);
    CARVE(c, s->late.fin, late * late);
    CARVE(c, s->slots, n);
    CARVE(c, s->slots_best, n);
    CARVE(c, s->slots_here, n);
    CARVE(c, s->slots_trial, n);
    CARVE(c, s->slots_plan, n);
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
