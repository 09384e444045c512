/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: what solve-search.c shares with solve-equal.c.
 */
#ifndef HCP_SOLVE_H
#define HCP_SOLVE_H
#include "planner/plan.h"

/* Up to SMALL_GROUP ranks the local search looks at every receiver, also at ranks without
 * tokens. Above LARGE_GROUP it is not tried where equal busy times are already 1 / MARGIN
 * longer than what is to be beaten; below, it is always: where fixed costs dominate, it
 * gains more than that by leaving ranks out. */
#define MARGIN 0.9
enum { SMALL_GROUP = 8, LARGE_GROUP = 64, THOROUGH = 600, NEAR = 200 };

/* Allowed ranks. */
int64_t solve_count(const struct problem *p, const uint8_t *allowed);
/* Share weights from speeds by the closed forms of theory.md: where a rank's work is
 * linear in its share, shares follow speed; contiguous under a causal mask, the borders
 * are at sqrt(cumulative speed). With linear work by layer-cost.c. Returns the time that
 * all are then busy, -1 without linear work. */
double solve_weights(const struct problem *p, const double *speed, double *weight);
/* How many splits the local search may evaluate, each in m^2 steps. It corrects for what
 * busy times do not see (waiting, rings that got smaller); on random groups more than
 * this gained less than 0.1 %. */
int solve_budget(int64_t m);
/* Repeats "speed = area / time in this very split, shares from speeds" until the split
 * stands still: equal finish times where waiting does not matter. Leaves the best split
 * seen (by busy time) in out; returns its busy time, -1 if infeasible, or -2 when the
 * first rounds show that limit_ms is out of reach: at the speeds they have, the whole
 * area would take these ranks longer by a margin. *stale: s->busy is of another split;
 * *rough: as of eval_busy(). */
double solve_equalise(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                      double limit_ms, int64_t *out, int *stale, int *rough);
/* Moves single tiles from the busiest rank to where they cost least, by each rank's
 * average cost of a tile and without asking the models: takes the roughness of rounding
 * out of a split. Returns the busy time of what is then in out. */
double solve_polish(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                    int64_t n_allowed, double least, int stale, int64_t *out);

#endif
