/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/solve.h"

/* Where a search begins: shares with which ranks are busy equally long, whole tiles. */

int64_t solve_count(const struct problem *p, const uint8_t *allowed)
{
    int64_t n = 0;

    for (size_t r = 0; r < p->n; r++)
        n += allowed[r] != 0;
    return n;
}

double solve_weights(const struct problem *p, const double *speed, double *weight)
{
    double sum = 0, cum = 0, border = 0;

    if (p->linear)
        return layer_shares(p, speed, weight);
    if (!p->causal || p->layout != HCP_LAYOUT_CONTIGUOUS) {
        memcpy(weight, speed, p->n * sizeof *weight);
        return -1;
    }
    for (size_t r = 0; r < p->n; r++)
        sum += speed[r];
    for (size_t r = 0; r < p->n; r++) {
        double next;

        cum += speed[r];
        next = sqrt(cum / sum);
        weight[r] = speed[r] > 0 ? next - border : 0;
        border = next;
    }
    return -1;
}

/* Speeds to begin with: a square block of an average share. One model call a model. */
static void first_speeds(const struct problem *p, struct scratch *s,
                         const uint8_t *allowed, double *speed)
{
    int64_t m = solve_count(p, allowed), len;

    len = p->seq_len / m > p->tile ? p->seq_len / m : p->tile;
    for (int32_t id = 0; id < p->ring->n_ids; id++)
        s->probe[id] = -1;
    for (size_t r = 0; r < p->n; r++) {
        double *known = &s->probe[p->ring->ranks[r].id[p->kind]];

        speed[r] = 0;
        if (!allowed[r])
            continue;
        if (*known < 0)
            *known = (double)len * (double)len /
                     hcp_model_block_ms(problem_model(p, r), 0, len, len, NULL);
        speed[r] = *known;
    }
}

/* Where work is linear in the share, equal ranks of a large group get equal speeds: those
 * of their kind together. What they differ by, their place in the ring, costs less than
 * the runs of equal shares save. */
static void average_speeds(const struct problem *p, struct scratch *s,
                           const int64_t *tokens, double *speed)
{
    double *area = s->probe, *ms = s->probe + 2 * p->n;

    for (int32_t id = 0; id < p->ring->n_ids; id++)
        area[id] = ms[id] = 0;
    for (size_t r = 0; r < p->n; r++) {
        int32_t id = p->ring->ranks[r].id[p->kind];

        if (tokens[r] > 0) {
            area[id] += (double)s->areas[r];
            ms[id] += s->busy[r] - (p->linear ? layer_ms(p, r, tokens[r]) : 0);
        }
    }
    for (size_t r = 0; r < p->n; r++) {
        int32_t id = p->ring->ranks[r].id[p->kind];

        if (speed[r] > 0 && ms[id] > 0)
            speed[r] = area[id] / ms[id];
    }
}

int solve_budget(int64_t m)
{
    if (m <= SMALL_GROUP)
        return 24;
    if (m <= LARGE_GROUP)
        return 16;
    return m <= 256 ? 4 : 0;
}

double solve_estimate(const struct problem *p, struct scratch *s, const uint8_t *allowed)
{
    int64_t *tokens = s->tokens[TOK_START];
    double area = 0, sum = 0, most;
    int rough;

    first_speeds(p, s, allowed, s->speed);
    solve_weights(p, s->speed, s->weight);
    if (round_shares(p, s, s->weight, tokens))
        return HUGE_MS;
    most = eval_busy_about(p, s, tokens, &rough);
    if (p->linear)
        return most;
    cost_areas(p, tokens, s->areas);
    for (size_t r = 0; r < p->n; r++)
        if (tokens[r] > 0) {
            area += (double)s->areas[r];
            sum += (double)s->areas[r] / s->busy[r];
        }
    return area / sum;
}

double solve_equalise(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                      double limit_ms, int64_t *out, int *stale, int *rough)
{
    int64_t *tokens = s->tokens[TOK_START];
    double *speed = s->speed, least = -1, bound_ms;
    int large = solve_count(p, allowed) > LARGE_GROUP;

    bound_ms = large ? 0 : reach_bound(p, s, allowed, limit_ms);
    first_speeds(p, s, allowed, speed);
    for (int round = 0; round < 6; round++) {
        double most, fewest = -1, area = 0, sum = 0, tile_ms = 0, all_ms, margin;
        int64_t m = 0;

        all_ms = solve_weights(p, speed, s->weight);
        if (round_shares(p, s, s->weight, tokens))
            return -1;
        if (round > 0 && memcmp(tokens, out, p->n * sizeof *tokens) == 0)
            break;
        most = eval_busy_about(p, s, tokens, rough);
        *stale = least >= 0 && most >= least;
        if (!*stale) {
            least = most;
            memcpy(out, tokens, p->n * sizeof *tokens);
        }
        cost_areas(p, tokens, s->areas);
        for (size_t r = 0; r < p->n; r++) {
            if (tokens[r] == 0)
                continue;
            if (!p->linear)
                speed[r] = (double)s->areas[r] / s->busy[r];
            else if (s->busy[r] > layer_ms(p, r, tokens[r]))
                speed[r] =
                    (double)s->areas[r] / (s->busy[r] - layer_ms(p, r, tokens[r]));
            m++;
            area += (double)s->areas[r];
            sum += speed[r];
            fewest = fewest < 0 || s->busy[r] < fewest ? s->busy[r] : fewest;
            if (s->busy[r] * (double)p->tile > tile_ms * (double)tokens[r])
                tile_ms = s->busy[r] / (double)tokens[r] * (double)p->tile;
        }
        if (large && (!p->causal || p->layout != HCP_LAYOUT_CONTIGUOUS))
            average_speeds(p, s, tokens, speed);
        s->estimate_ms = area / sum;
        if (reach_beyond(p, bound_ms, s->estimate_ms, limit_ms))
            return -2;
        /* Where no local search follows, the speeds are all that still changes. */
        margin = solve_budget(m) > 0 ? MARGIN : 0.99;
        if (!*rough && large && !p->linear && margin * area >= limit_ms * sum)
            return -2;
        if (!*rough && large && p->linear && round > 0 && margin * all_ms >= limit_ms)
            return -2;
        if (most - fewest <= tile_ms) /* no tile to move: rounding is what is left */
            break;
    }
    return least;
}

double solve_polish(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                    int64_t n_allowed, double least, int stale, int64_t *out)
{
    int64_t *tokens = s->tokens[TOK_START];
    double *busy = s->value2, *tile_ms = s->weight;
    int rough;

    if (stale)
        eval_busy(p, s, out, &rough);
    for (int round = 0; round < 3; round++) {
        double most_then;
        int moves = 0, limit = n_allowed < 32 ? (int)n_allowed : 32;

        memcpy(tokens, out, p->n * sizeof *tokens);
        memcpy(busy, s->busy, p->n * sizeof *busy);
        for (size_t r = 0; r < p->n; r++)
            tile_ms[r] = tokens[r] ? busy[r] / (double)tokens[r] * (double)p->tile : 0;
        for (; moves < limit; moves++) {
            double most = -1, least_then = HUGE_MS;
            size_t from = 0, to = p->n;

            /* Whose turn it is cannot be predicted: without branches on it. */
            for (size_t r = 0; r < p->n; r++) {
                int takes = (allowed[r] != 0) & (tokens[r] > 0) &
                            (tokens[r] + p->tile <= p->cap[r]);
                double then = takes ? busy[r] + tile_ms[r] : HUGE_MS;

                from = busy[r] > most ? r : from;
                most = busy[r] > most ? busy[r] : most;
                to = then < least_then ? r : to;
                least_then = then < least_then ? then : least_then;
            }
            if (to == p->n || to == from || tokens[from] < p->tile ||
                least_then >= most)
                break;
            tokens[from] -= p->tile;
            tokens[to] += p->tile;
            busy[from] -= tile_ms[from];
            busy[to] += tile_ms[to];
        }
        if (moves == 0)
            break;
        most_then = eval_busy(p, s, tokens, &rough);
        if (most_then >= least)
            break;
        least = most_then;
        memcpy(out, tokens, p->n * sizeof *tokens);
    }
    return least;
}
