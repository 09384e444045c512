/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries and KV split apart: rank i has q[i] tokens' queries and keeps the KV of kv[i]
 * tokens, both laid out by the problem's layout.
 *
 *   joint.c         what such a split costs       joint-ring.c    the recurrence
 *   joint-search.c  a good one                    joint-answer.c  as a plan
 *   joint-memory.c  what it must hold in bytes
 */
#ifndef HCP_PLAN_JOINT_H
#define HCP_PLAN_JOINT_H
#include "planner/plan.h"

/* HCP_STATUS_INVALID: more ranks, or stripes, than joint plans have, or linear work. */
hcp_status joint_check(const hcp_question *q, const hcp_ring *ring, char *text,
                       size_t text_size);

/* joint-memory.c: bytes that each rank must hold beside its weights; whether that leaves
 * all within their caps; which one not (HCP_STATUS_INFEASIBLE). Up to JOINT_MAX_RANKS. */
void joint_memory(const struct problem *p, const int64_t *q, const int64_t *kv,
                  int64_t *bytes);
int joint_fits(const struct problem *p, const int64_t *q, const int64_t *kv);
hcp_status joint_too_large(const struct problem *p, const int64_t *q, const int64_t *kv,
                           char *text, size_t text_size);

/* The ranks with queries or KV into s->act (len: KV), their runs into s->joint, how far
 * KV travels into s->hops. */
void joint_lay_out(const struct problem *p, struct scratch *s, const int64_t *q,
                   const int64_t *kv);
/* The calls of the KV of rank b on rank a, both laid out, in all its pieces; the own
 * block is one. */
void joint_each_call(const struct problem *p, const struct scratch *s, size_t a, size_t b,
                     const int64_t *kv,
                     void (*visit)(void *ctx, int causal, int64_t q_len, int64_t kv_len),
                     void *ctx);
/* eval_split, eval_kernels and eval_source (eval.c) for such a split. The memo is empty
 * afterwards. */
struct score joint_eval(const struct problem *p, struct scratch *s, const int64_t *q,
                        const int64_t *kv, double limit_ms, hcp_step *steps);
void joint_kernels(const struct problem *p, struct scratch *s, const int64_t *q,
                   const int64_t *kv);
uint8_t joint_source(const struct problem *p, struct scratch *s, const int64_t *q,
                     const int64_t *kv);

/* The ring of ring.c and ring-pieces.c where a rank may keep no KV, or have no queries,
 * so that it may receive a later block after one that did not come. in->early: times of
 * all blocks by [rank][whose KV], the own one's too; in->pieces: those of remote ones. */
double joint_ring(const struct ring_input *in, struct ring_arrays *a, double *fin,
                  hcp_step *steps);

/* The best split found in p->layout that is below start's (a tied one; none: all), into
 * q and kv; else start. *exact: all tile splits were tried. */
struct score joint_search(const struct problem *p, struct scratch *s, struct score start,
                          int64_t *q, int64_t *kv, int *exact);

/* Turns the tied answer of a question into the joint one, if that is what it asks for; p
 * gets its layout. */
void joint_decide(struct problem *p, struct scratch *s, const hcp_question *question,
                  struct answer *answer);
/* The answer for a split of the caller's own. */
void joint_given(const struct problem *p, struct scratch *s, const int64_t *q,
                 const int64_t *kv, struct answer *out);

#endif
