/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gives how much to whom: what moves.c and disagg.c share.
 */
#ifndef HCP_MOVES_H
#define HCP_MOVES_H
#include "planner/plan.h"

struct pairing {
    const hcp_move_question *q;
    double byte_ms, token_bytes; /* of the link for all; of all layers and sequences */
    int64_t *give, *take;        /* [n] left to be given and taken */
    size_t n;
};

/* Pairs givers and takers into move[n], by sender, then receiver. Returns the time of the
 * pairing: the largest sum of what a rank sends, or receives. sums: room for [2 n].
 * *exact: none takes less. */
double moves_pair(const struct pairing *p, hcp_move *move, double *sums, size_t *n_moves,
                  int *exact);
/* The same of ranks in their order, which takes no time to find. */
double moves_in_order(const struct pairing *p, hcp_move *move, double *sums,
                      size_t *n_moves);
/* Which tokens each of n_moves takes, of a plan whose rank r of p->n is at place[r]
 * (NULL: r), and bytes and times; given [n] is scratch. -1: room for more segments is
 * needed. */
int moves_name_tokens(const struct pairing *p, const hcp_plan *from, const int32_t *place,
                      int64_t *given, hcp_move *move, size_t n_moves,
                      hcp_segment *segments, size_t segments_capacity,
                      size_t *n_segments);
/* A number of tokens in bytes, at most INT64_MAX. */
int64_t moves_bytes(const struct pairing *p, int64_t tokens);

#endif
