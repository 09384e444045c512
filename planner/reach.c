/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

/* What is not searched any further. Nothing here is proved: peak speeds are probed, and
 * how far a search gets below where it begins has been looked at, not derived. Of 140,000
 * random plans of up to 16 ranks (tables with kinks and regressions, short and long
 * sequences, links, buffers, caps and linear work of all kinds) two came out differently
 * with what is given up here and in strategy-splits.c than without: one is faster, since
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

/* What a rank takes beyond its area at peak speed is lost: starts of kernels, tiles and
 * waves not full, queries and keys read. With its share that only grows; more area takes
 * what it takes at peak speed, or longer; and a rank that is gone takes one block of m
 * with it, and what is lost in that. So (area + what stays lost) / sum of peaks is a
 * bound where blocks lose alike, which they do where shares do not differ much and little
 * is lost; kinks of tables are what the margin is for. Without these conditions two of
 * 150,000 random plans became slower. Under a causal mask ranks with contiguous shares
 * have few blocks or many: nothing is said of them; nor of large groups, where searching
 * is not what takes long. */
int reach_without(const struct problem *p, struct scratch *s, const int64_t *tokens,
                  const uint8_t *allowed, double limit_ms)
{
    double area = (double)p->seq_len, lost = 0, sum = 0;
    int64_t most = 0, least_gone = INT64_MAX;
    int m = 0, gone = 0;

    if (p->n > FEW_RANKS || p->sub_blocks > 1 || p->memory ||
        (p->causal && p->layout == HCP_LAYOUT_CONTIGUOUS))
        return 1;
    cost_areas(p, tokens, s->areas);
    for (size_t r = 0; r < p->n; r++) {
        if (tokens[r] > 0) {
            m++;
            most = tokens[r] > most ? tokens[r] : most;
        }
        if (tokens[r] > 0 && !allowed[r]) {
            gone++;
            least_gone = tokens[r] < least_gone ? tokens[r] : least_gone;
        }
        if (!allowed[r])
            continue;
        sum += s->peak[r];
        if (tokens[r] > 0)
            lost += s->peak[r] * s->busy[r] - (double)s->areas[r];
    }
    area = p->causal ? area * (area + 1) / 2 : area * area;
    return m - gone <= 3 || (double)least_gone < 0.4 * (double)most ||
           area < 0.7 * limit_ms * sum ||
           area + (1 - (double)gone / m) * lost < 1.025 * limit_ms * sum;
}
