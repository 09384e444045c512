/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of ring-queued-test.
 */
#ifndef RING_QUEUED_H
#define RING_QUEUED_H
#include "executor/decode.h"
#include "executor/verify.h"

enum { RANKS = 8, STRIPES = 4, PASSES = 3, PARTS = 8 };

struct queued_test {
    struct ring_comm comm;
    ring_watch *watch;
    ring_links *links;
    ring_alarm *alarm; /* of queued_lost() */
    const hcp_runtime *runtime;
    hcp_device_ref device;
    uint64_t seed; /* the same numbers on all ranks */
    int points, failed;
    int held, late, wrong;
};

struct queued_plan {
    hcp_plan plan;
    hcp_plan_rank ranks[RANKS];
    hcp_segment segments[RANKS * PARTS];
    int64_t tokens[RANKS];
    const hcp_documents_plan *documents;
    const struct ring_chunk *chunk;
};

/* The same numbers on all ranks; inclusive. */
int64_t queued_range(uint64_t *state, int64_t lo, int64_t hi);
/* A point that all ranks must pass. */
void queued_point(struct queued_test *t, int ok, const char *what);
_Noreturn void queued_give_up(struct queued_test *t, const struct hcp_err *err);

/* A random plan of a prompt, its ring, and what keeps its passes apart: NaN in all that
 * one receives and writes, so that what a pass leaves does not help the next. */
void queued_plan_make(struct queued_test *t, struct queued_plan *p, int64_t length);
void queued_open(struct queued_test *t, const struct queued_plan *p, ring **r);
void queued_poison(struct queued_test *t, ring *r);
/* Passes of a ring, each of which is compared. Ranks come to them at different times. */
void queued_run(struct queued_test *t, const struct queued_plan *p, int n_passes);

/* Passes of a ring, each of which is compared. Ranks come to them at different times. */
void queued_run(struct queued_test *t, const struct queued_plan *p, int n_passes);

/* ring-queued-chunks.c: n random prompts in chunks. */
void queued_chunks(struct queued_test *t, int n);

/* ring-queued-kv.c: n steps of random plans of decode, merged in every schedule, all by
 * NCCL or not; n transitions between random plans. */
void queued_decode(struct queued_test *t, int n, int by_nccl);
void queued_moves(struct queued_test *t, int n);

/* ring-queued-lost.c: n times a rank fails in a pass, and a ring without it follows. */
void queued_lost(struct queued_test *t, int n);

#endif
