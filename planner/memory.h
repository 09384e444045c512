/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: caps in bytes (memory*.c).
 */
#ifndef HCP_PLAN_MEMORY_H
#define HCP_PLAN_MEMORY_H
#include <stddef.h>
#include "planner/hcpplan.h"

struct problem;
struct scratch;

/* memory.c: a rank's cap in bytes; more than anything where there is none. */
int64_t memory_cap(const struct problem *p, size_t r);
/* Product and sum; they stop at more than any cap. */
int64_t memory_times(int64_t a, int64_t b);
int64_t memory_plus(int64_t a, int64_t b);
/* Bytes left beside the weights of a rank. */
int64_t memory_room(const struct problem *p, size_t r);
/* Bytes a token takes on its rank of `len` tokens, whose block is sent or is not. */
int64_t memory_unit(const struct problem *p, int64_t len, int sends);
/* Receive buffers of a rank in a ring of m. */
int32_t memory_buffers(const struct problem *p, int32_t m);
/* Bytes that len tokens take on a rank beside its weights, in a ring of m, the largest
 * block that it receives being `largest`. */
int64_t memory_bytes(const struct problem *p, int64_t len, int64_t largest, int sends,
                     int32_t m);
/* The largest block that each of n ranks receives, those without tokens left out. Returns
 * the number of the others; *last_sends: whether the last one sends (all others do). */
int32_t memory_largest(const struct problem *p, size_t n, const int64_t *len,
                       int64_t *largest, int *last_sends);
/* Does a split fit? Of the ranks rank[n], or (NULL) of all. largest [n] is filled. */
int memory_fits(const struct problem *p, size_t n, const int32_t *rank,
                const int64_t *len, int64_t *largest);
/* HCP_STATUS_INFEASIBLE if a split does not: which rank lacks how much. */
hcp_status memory_check(const struct problem *p, struct scratch *s, const int64_t *tokens,
                        char *text, size_t text_size);
/* Is it certain that no split fits? (Not of up to three ranks.) */
int memory_hopeless(const struct problem *p, struct scratch *s,
                    const hcp_question *question);
/* Why no split fits in a layout, or in any (AUTO): by how many tokens, and the rank where
 * the fewest bytes more would do. */
hcp_status memory_explain(const struct problem *p, struct scratch *s, hcp_layout layout,
                          char *text, size_t text_size);
/* Tokens that a rank could hold if it received none. */
int64_t memory_tokens_alone(const struct problem *p, size_t r);

/* memory-room.c: tokens that fit into so many bytes on a rank whose block is sent, or is
 * not. */
int64_t memory_tokens_in(const struct problem *p, int64_t bytes, int sends);
/* Do blocks reach the ranks after them only? */
int memory_forward(const struct problem *p);
/* Caps under which every split into at most m ranks fits, rank h having `most`, which
 * nobody exceeds; inner: nor those before h that (only where blocks go forward). -1: h
 * cannot. */
struct memory_shape {
    size_t h;
    int64_t most, inner;
    int32_t m;
};
int memory_box(const struct problem *p, const uint8_t *allowed,
               const struct memory_shape *b, int64_t *cap);
/* Tokens by which memory falls short of the sequence; 0: cap is a box of splits with room
 * for it. Right, of up to 64 ranks that send whole blocks, but for two things: of more
 * than FORWARD_STEPS tiles where blocks go forward, only steps are looked at; and rings
 * of fewer ranks, which need fewer buffers, in groups of up to 16 (8 where blocks go
 * forward) alone. Otherwise some shares are looked at, and 0 is right. */
int64_t memory_shortfall(const struct problem *p, const uint8_t *allowed, int64_t *cap);
/* One box after the other that has room for the sequence; 0: no more. Begin with
 * zeros. */
enum { ALL_HOLDERS = 64 }; /* ranks up to which every one is tried as holder */
struct memory_boxes {
    size_t holder[ALL_HOLDERS];
    int n, h;
    int64_t k;
    int32_t m;
    struct memory_shape shape; /* of this one */
};
int memory_next_box(const struct problem *p, const uint8_t *allowed,
                    struct memory_boxes *at, int64_t *cap);
/* Of these the ones in which shares by weight under the caps take least time; how
 * many. */
enum { MEMORY_BOXES = 4 };
int memory_best_boxes(const struct problem *p, const uint8_t *allowed,
                      const double *weight, struct memory_shape out[MEMORY_BOXES],
                      int64_t *cap);

/* memory-forward.c: as memory_shortfall(), where blocks go forward, in p->forward. */
enum { FORWARD_RANKS = 64, FORWARD_STEPS = 256, FORWARD_POINTS = 2 * FORWARD_STEPS + 2 };
struct memory_forward {
    const struct problem *p;
    int64_t received;          /* bytes a token of the largest block received */
    int32_t n_points;          /* of M */
    int64_t m[FORWARD_POINTS]; /* ascending */
    int64_t room[FORWARD_POINTS];
    /* Tiles, without and with the remainder, in two generations; by rank how they are
     * reached: M0, and the remainder. */
    int64_t most[2][2][FORWARD_POINTS];
    int16_t (*from)[2][FORWARD_POINTS];
    int8_t (*took)[2][FORWARD_POINTS];
};
int64_t memory_forward_shortfall(const struct problem *p, const uint8_t *allowed,
                                 int64_t *cap);

#endif
