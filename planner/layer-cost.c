/* SPDX-License-Identifier: Apache-2.0
 *
 * The rest of a layer: what a rank computes for each of its tokens before its ring (the
 * products that make Q, K and V) and after it (output projection, MLP). Both are straight
 * in its tokens, with a fixed part that a rank without tokens does not have.
 */
#include <math.h>
#include "planner/plan.h"

static int in_range(double us)
{
    return us >= 0 && us <= 1e9; /* false for NaN */
}

int layer_valid(const hcp_rank *rank)
{
    return in_range(rank->linear_before_us) && in_range(rank->linear_before_fixed_us) &&
           in_range(rank->linear_after_us) && in_range(rank->linear_after_fixed_us) &&
           rank->linear_error >= 0 && rank->linear_error <= 10;
}

int layer_given(const hcp_rank *rank)
{
    return rank->linear_before_us > 0 || rank->linear_before_fixed_us > 0 ||
           rank->linear_after_us > 0 || rank->linear_after_fixed_us > 0;
}

int layer_alike(const hcp_rank *a, const hcp_rank *b)
{
    return a->linear_before_us == b->linear_before_us &&
           a->linear_before_fixed_us == b->linear_before_fixed_us &&
           a->linear_after_us == b->linear_after_us &&
           a->linear_after_fixed_us == b->linear_after_fixed_us;
}

double layer_before_ms(const struct problem *p, size_t r, int64_t len)
{
    const hcp_rank *spec = &p->ring->ranks[r].spec;

    return len > 0 ? (spec->linear_before_us * (double)len +
                      spec->linear_before_fixed_us) / 1e3 * p->ring->ranks[r].scale
                   : 0;
}

double layer_after_ms(const struct problem *p, size_t r, int64_t len)
{
    const hcp_rank *spec = &p->ring->ranks[r].spec;

    return len > 0 ? (spec->linear_after_us * (double)len +
                      spec->linear_after_fixed_us) / 1e3 * p->ring->ranks[r].scale
                   : 0;
}

double layer_ms(const struct problem *p, size_t r, int64_t len)
{
    return layer_before_ms(p, r, len) + layer_after_ms(p, r, len);
}

/* ms a token, and fixed. */
static double slope(const struct problem *p, size_t r)
{
    const hcp_rank *spec = &p->ring->ranks[r].spec;

    return (spec->linear_before_us + spec->linear_after_us) / 1e3 *
           p->ring->ranks[r].scale;
}

static double fixed(const struct problem *p, size_t r)
{
    const hcp_rank *spec = &p->ring->ranks[r].spec;

    return (spec->linear_before_fixed_us + spec->linear_after_fixed_us) / 1e3 *
           p->ring->ranks[r].scale;
}

double layer_speed(const struct problem *p, size_t r, double speed)
{
    double s = (double)p->seq_len, area = p->causal ? s * (s + 1) / 2 : s * s;

    return area / (area / speed + layer_ms(p, r, p->seq_len));
}

/* A token at position e of the ranks' tokens in ring order has the attention area
 * level + tilt * e (theory.md, "Work"): under a causal mask it grows along the ranks
 * where shares are contiguous, and the less the more stripes there are; it adds up to the
 * area of the mask. */
struct density {
    double level, tilt;
};

static struct density density_of(const struct problem *p)
{
    double s = (double)p->seq_len, stripes;

    if (!p->causal)
        return (struct density){s, 0};
    if (p->layout == HCP_LAYOUT_ZIGZAG)
        return (struct density){(s + 1) / 2, 0};
    stripes = p->layout == HCP_LAYOUT_STRIPED ? p->stripes : 1;
    return (struct density){(s * (1 - 1 / stripes) + 1) / 2, 1 / stripes};
}

/* Equal work a token everywhere: a rank with x tokens takes x c + f, with
 * c = level / speed + slope, so that the common time of those that are in is
 * T = (S + sum f / c) / sum 1 / c. Leaving out one with f >= T makes T smaller. */
static double level_shares(const struct problem *p, double level, const double *speed,
                           double *share)
{
    double ms = HUGE_MS;

    for (int again = 1; again;) {
        double sum = 0, all = (double)p->seq_len, before = ms;

        for (size_t r = 0; r < p->n; r++) {
            double c;

            if (!(speed[r] > 0) || fixed(p, r) >= before)
                continue;
            c = level / speed[r] + slope(p, r);
            sum += 1 / c;
            all += fixed(p, r) / c;
        }
        ms = all / sum;
        again = 0;
        for (size_t r = 0; r < p->n; r++) {
            share[r] = 0;
            if (!(speed[r] > 0) || fixed(p, r) >= before)
                continue;
            share[r] = (ms - fixed(p, r)) / (level / speed[r] + slope(p, r));
            if (share[r] <= 0) {
                share[r] = 0;
                again = 1;
            }
        }
    }
    return ms;
}

/* How far the ranks get along the sequence when each is busy for ms, and into *gain how
 * much further in one ms more. From position a a rank gets to the b with
 *   (level (b - a) + tilt (b^2 - a^2) / 2) / speed + slope (b - a) + fixed = ms. */
static double reach(const struct problem *p, struct density d, const double *speed,
                    double ms, double *share, double *gain)
{
    double at = 0, moved = 0;

    for (size_t r = 0; r < p->n; r++) {
        double work, linear, root, end;

        share[r] = 0;
        if (!(speed[r] > 0) || fixed(p, r) >= ms)
            continue;
        work = (ms - fixed(p, r)) * speed[r];
        linear = d.level + slope(p, r) * speed[r] + d.tilt * at;
        root = sqrt(linear * linear + 2 * d.tilt * work);
        /* Of the two forms of the root the one without a difference. */
        share[r] = 2 * work / (linear + root);
        end = at + share[r];
        moved = (moved * linear + speed[r]) / root;
        at = end;
    }
    *gain = moved;
    return at;
}

double layer_shares(const struct problem *p, const double *speed, double *share)
{
    struct density d = density_of(p);
    double s = (double)p->seq_len, low = 0, high = HUGE_MS, ms, gain;

    ms = level_shares(p, d.level + d.tilt * s / 2, speed, share);
    if (d.tilt == 0)
        return ms;
    /* Newton's method between what is too short and what is long enough. */
    for (int step = 0; step < 64; step++) {
        double at = reach(p, d, speed, ms, share, &gain), next;

        if (at < s)
            low = ms;
        else
            high = ms;
        next = gain > 0 ? ms + (s - at) / gain : 2 * ms;
        if (!(next > low && next < high))
            next = high < HUGE_MS ? low + (high - low) / 2 : 2 * ms;
        if (next == ms || (next - ms < 1e-13 * ms && ms - next < 1e-13 * ms))
            break;
        ms = next;
    }
    return ms;
}
