/* SPDX-License-Identifier: Apache-2.0
 *
 * The planner's objective written a second time, as plainly as libhcpplan(3) and
 * hcp-plan(1) state it, to check the fast one against: what a row sees from the positions
 * of the tokens, the recurrence piece by piece with whole tables, no classes, no
 * shortcuts. Only the times of calls come from the models.
 */
#ifndef PLAN_REFERENCE_H
#define PLAN_REFERENCE_H
#include "planner/plan.h"

enum { REFERENCE_RANKS = 64 };

/* Predicted makespan of a split in ms under a question (layout not AUTO), with each
 * rank's model of that kind; with the question's kv_tokens of that joint split. */
double reference_makespan(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *question, const int64_t *tokens);

/* The same when KV travels in any order: into[i][k] is the rank whose KV comes to rank i
 * as its k-th, k < n_into[i], all by their number among the ranks with tokens. Whole
 * blocks, no barrier; ranks receive from the start. INFINITY: they wait for each other.
 */
struct reference_orders {
    int n_into[REFERENCE_RANKS], into[REFERENCE_RANKS][REFERENCE_RANKS];
};
double reference_in_order(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *question, const int64_t *tokens,
                          const struct reference_orders *orders);
/* Before a ring is freed that was asked for orders: they are remembered by its address.
 */
void reference_forget(void);
/* The order that hcp_plan.late_kv describes, slots[] by rank of the ring. */
void reference_slots(const hcp_ring *ring, const hcp_question *question,
                     const int64_t *tokens, const int32_t *slots,
                     struct reference_orders *out);
/* The same with two levels (a question with nodes): every rank on its node's ring while
 * KV goes from node to node. -1: these tokens have none. */
double reference_two_levels(const hcp_ring *ring, hcp_model_kind kind,
                            const hcp_question *question, const int64_t *tokens);

/* What shares are multiples of under a question (layout not AUTO): its tile, or else the
 * largest kernel tile, times the runs of tokens that a share consists of under a causal
 * mask where a rank gets four of these on average and the caps leave a split into them.
 */
int64_t reference_tile(const hcp_ring *ring, const hcp_question *question);

/* Bytes that each rank of a split needs under a question (layout not AUTO); 0 for a rank
 * without tokens. */
void reference_memory(const hcp_ring *ring, const hcp_question *question,
                      const int64_t *tokens, int64_t *bytes);

/* Whether a split keeps every cap of the ring, in tokens and in bytes. */
int reference_fits(const hcp_ring *ring, const hcp_question *question,
                   const int64_t *tokens);

/* The best of all splits into whole tiles and one rest under the ring's caps, ranks
 * without tokens included; -1 if there is none. Up to three ranks. */
double reference_best(const hcp_ring *ring, const hcp_question *question,
                      int64_t *tokens);

/* The best of all joint splits, queries and KV each into whole tiles and one rest, KV
 * under the ring's caps; -1 if there is none. */
double reference_joint_best(const hcp_ring *ring, const hcp_question *question,
                            int64_t *tokens, int64_t *kv);

#endif
