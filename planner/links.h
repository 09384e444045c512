/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: links between ranks, nodes and rings of rings, and in which order
 * ranks and KV go round (links.c, rings.c, order.c, late.c).
 */
#ifndef HCP_PLAN_LINKS_H
#define HCP_PLAN_LINKS_H
#include <stddef.h>
#include "planner/hcpplan.h"

struct answer;
struct link_into;
struct problem;
struct ring_arrays;
struct ring_input;
struct score;
struct scratch;

/* links.c: HCP_STATUS_INVALID and why. */
hcp_status links_check(const hcp_question *q, size_t n, char *text, size_t text_size);
/* Whether a speed, a time or a slowdown is out of range. */
int links_bad_numbers(const hcp_link *link);
/* Whether a plan's places are no permutation, or a link in them is none. */
int links_bad_places(const hcp_plan *plan);
/* The link from one rank to another, by position, alone. */
hcp_link links_between(const struct problem *p, size_t from, size_t to);
/* Links into the ranks of s->act, whose KV travels s->hops, into s->into, and s->starts.
 */
void links_into(const struct problem *p, struct scratch *s);
/* The same for up to four ranks, into[4]. */
void links_into_small(const struct problem *p, int m, const int32_t *rank,
                      const int32_t *hops, struct link_into *into);
/* The places of a plan: rank, and link to the next rank with tokens (kv: or with KV; NULL
 * where KV goes with the tokens). */
void links_places(const struct problem *p, struct scratch *s, const int64_t *tokens,
                  const int64_t *kv, hcp_place *places);

/* rings.c: HCP_STATUS_INVALID and why; whether a number is out of range; into a problem.
 */
hcp_status nodes_check(const hcp_question *q, char *text, size_t text_size);
int nodes_bad_numbers(int32_t ranks, double alpha_us, double gbps, double shared_gbps);
void nodes_set(struct problem *p, int32_t ranks, double alpha_us, double gbps,
               double shared_gbps);
/* The link into each of m ranks in one ring of p->nodes. */
void nodes_into(const struct problem *p, int32_t m, const int32_t *rank,
                struct link_into *into);
/* Ranks of each inner ring of the ranks with tokens; 0: they have no two levels. */
int32_t rings_inner(const struct problem *p, int32_t m, const int32_t *rank,
                    const int32_t *hops);
/* ring_run with two levels; inner > 0 as above. */
double rings_run(const struct problem *p, const struct ring_input *in,
                 struct ring_arrays *a, int32_t inner, double *fin, hcp_step *steps);
/* order_decide, in one ring or with two levels; sets inner, one_ring_ms, two_level_ms. */
hcp_status rings_decide(struct problem *p, struct scratch *s,
                        const hcp_question *question, int exhaustive, char *text,
                        size_t text_size, struct answer *out);
/* The faster of both for the split of strategy_given(). */
void rings_given(struct problem *p, struct scratch *s, const hcp_question *question,
                 struct answer *out);

/* order.c: s->view, caps and speeds for the ranks of `ring` in this order (position ->
 * index), which is copied to s->place; p then asks about that. */
void order_set(struct problem *p, struct scratch *s, const hcp_ring *ring,
               const int32_t *order);
/* strategy_decide, and late_decide where the question asks for it, in the order, or over
 * the orders, that it says. Sets given_order_ms and any_order_ms. exhaustive: -1 as many
 * orders as are few, 0 never, 1 always. */
hcp_status order_decide(struct problem *p, struct scratch *s,
                        const hcp_question *question, int exhaustive, char *text,
                        size_t text_size, struct answer *out);

/* late.c: an answer with each rank's KV as late as is best, into p->slots; free: the
 * tokens may change, too. Sets in_turn_ms and late_bound_ms. */
void late_decide(struct problem *p, struct scratch *s, const hcp_question *question,
                 int free_tokens, struct answer *out);

/* To compare orders: the time of a split, or of those found from it on (free), in p's
 * layout with each rank's KV as late as is best; HUGE_MS: outside the measured
 * lengths. */
double late_glance(struct problem *p, struct scratch *s, const int64_t *tokens,
                   int free_tokens);
/* HCP_STATUS_INVALID and why: ways to run a ring in which KV cannot be late. */
hcp_status late_check(int32_t sub_blocks, int32_t barrier, char *text, size_t text_size);
/* Whether a plan with late KV is none that could be made. */
int late_bad(const hcp_plan *plan);

#endif
