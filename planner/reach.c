/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

/* What is not searched any further. Nothing here is proved: peak speeds are probed, and
 * how far a search gets below where it begins has been looked at, not derived. Of 140,000
 * random plans of up to 16 ranks (tables with kinks and regressions, short and long
 * sequences, links, buffers, caps and linear work of all kinds) two came out differently
 * with what is given up here and in strategies.c than without: one is faster, since
 * another layout stayed within the measured lengths, one names a drop_ms that differs in
 * its last bit. */

double reach_bound(const struct problem *p, const struct scratch *s,
                   const uint8_t *allowed, double limit_ms)
{
    double area = (double)p->seq_len, sum = 0;
    int n = 0;

    if (limit_ms >= HUGE_MS || p->sub_blocks > 1 || p->memory)
        return 0;
    for (size_t r = 0; r < p->n; r++) {
        n += allowed[r] != 0;
        sum += allowed[r] ? s->peak[r] : 0;
    }
    area = p->causal ? area * (area + 1) / 2 : area * area;
    return n > 3 ? area / sum : 0; /* few are solved exactly */
}

int reach_beyond(const struct problem *p, double bound_ms, double estimate_ms,
                 double limit_ms)
{
    int striped = p->causal && p->layout == HCP_LAYOUT_STRIPED;
    double part = striped ? 0.25 : 0.75;

    limit_ms *= 1 + 1e-9; /* sums in another order */
    return bound_ms > 0 && estimate_ms >= limit_ms &&
           bound_ms >= (striped ? 0.5 : 0.7) * estimate_ms &&
           bound_ms + part * (estimate_ms - bound_ms) >= limit_ms;
}

int reach_hopeless(const struct problem *p, const struct scratch *s,
                   const uint8_t *allowed, double estimate_ms, double limit_ms)
{
    return estimate_ms >= limit_ms &&
           reach_beyond(p, reach_bound(p, s, allowed, limit_ms), estimate_ms, limit_ms);
}
