/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill and decode on groups of ranks a second time, as plainly as hcpplan.h states it:
 * every number of ranks of each class in every part, every pairing of transfers, every
 * candidate's time as a formula of the link's speed and the number of steps. Only the
 * plans of groups come from hcp_plan_split().
 */
#ifndef DISAGG_REFERENCE_H
#define DISAGG_REFERENCE_H
#include "tests/plan-fixture.h"

enum { DISAGG_RANKS = 6, DISAGG_PAIRINGS = 24 };

/* One way to do it: TTFT, a step, and the least transfer over its pairings, of each of
 * which the ports take alpha_us * messages + bytes / speed. */
struct disagg_way {
    int separate, stays;
    double ttft_ms, step_ms;
    int n_pairings, n_ports; /* ports: 2 n, of ranks that send and that receive */
    int messages[DISAGG_PAIRINGS][2 * DISAGG_RANKS];
    double bytes[DISAGG_PAIRINGS][2 * DISAGG_RANKS];
};

struct disagg_ways {
    struct disagg_way *way;
    size_t n, room;
    int pieces; /* transfers of a batch, and start-up times of each message */
    hcp_disagg_question q;
};

/* All ways there are for a question (layout not AUTO). */
void disagg_ways(const hcp_models *models, const hcp_shape *prefill,
                 const hcp_shape *decode, const hcp_rank *ranks, size_t n,
                 const hcp_disagg_question *q, struct disagg_ways *out);
void disagg_ways_free(struct disagg_ways *ways);

/* The least of one kind (colocated 0, separate 1) at a speed (0: infinite) and number of
 * steps; -1: there is none within the limits. *latency, of equal ones the least. */
double disagg_least(const struct disagg_ways *ways, int separate, double gbps,
                    double steps, double *latency);
/* Whether separate groups are better there (1), or not (0); -1: there is no way. */
int disagg_better(const struct disagg_ways *ways, double gbps, double steps);

#endif
