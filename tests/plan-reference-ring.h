/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the reference; no test includes it.
 *
 *   plan-reference.c         a ring of ranks, block by block in turn
 *   plan-reference-orders.c  ... in any order
 *   plan-reference-levels.c  ... with two levels
 *   plan-reference-best.c    the best of all splits, and the bytes that one needs
 */
#ifndef PLAN_REFERENCE_RING_H
#define PLAN_REFERENCE_RING_H
#include "tests/plan-reference.h"

enum { REFERENCE_PIECES = 64 };

/* What a rank computes of the KV of another, or of its own. Times are in ms. */
struct reference_block {
    int works, sent; /* rank has work on it; passes it on */
    int came;        /* it was received */
    int n;           /* pieces that are not empty */
    double t[REFERENCE_PIECES], send[REFERENCE_PIECES];
    double here[REFERENCE_PIECES]; /* when a piece has arrived */
    double overhead;               /* after its last piece */
    double fin;
};

/* Of the last ring that was set up, by number among its ranks with tokens: [i][k] is
 * block k of rank i; the linear work of each rank before and after them, in ms. */
extern struct reference_block reference_blocks[REFERENCE_RANKS][REFERENCE_RANKS];
extern double reference_before[REFERENCE_RANKS], reference_after[REFERENCE_RANKS];

/* Sets up the ranks with tokens (rank[i] of the ring), their blocks, the length of their
 * KV, and which blocks travel on; returns their number. The same split again is not set
 * up again. */
int reference_set_up(const hcp_ring *ring, hcp_model_kind kind, const hcp_question *q,
                     const int64_t *tokens, int *rank, int64_t *len);

/* Positions of m ranks with len[] queries and kv[] tokens of KV each, for what follows.
 */
void reference_lay_out(const hcp_question *q, int m, const int64_t *len,
                       const int64_t *kv);
/* A block of rank i, the KV of rank j with len tokens: its pieces and what they cost. */
void reference_set_block(struct reference_block *b, const hcp_ring *ring,
                         const hcp_model *model, const hcp_question *q, int64_t tile,
                         int i, int j, int64_t len);
/* Linear work of rank r of the ring for so many tokens. */
void reference_linear(const hcp_ring *ring, size_t r, int64_t tokens, double *before_ms,
                      double *after_ms);

/* The link between two ranks of the ring; NULL: no entry. */
const hcp_link *reference_link(const hcp_question *q, int from, int to);
/* GB/s of a link with every link of the ring that carries something busy; 0: infinitely
 * fast. */
double reference_speed(const hcp_question *q, int m, const int *rank,
                       const hcp_link *link);
/* Something of ms that runs at 1 / slowdown as long as another does, for other_ms. */
double reference_beside(double slowdown, double ms, double other_ms);
/* A slowdown as it counts: 1 at least. */
double reference_factor(double v);

#endif
