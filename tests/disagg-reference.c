/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/disagg-reference.h"

static void die(const char *what)
{
    fprintf(stderr, "disagg-reference: %s\n", what);
    abort();
}

/* A group: ranks by bit, and what a phase takes on them. */
struct part {
    int made;
    hcp_status status;
    double ms;
    int64_t tokens[DISAGG_RANKS]; /* by rank of all */
};

struct about {
    const hcp_models *models;
    const hcp_shape *shape[2];
    const hcp_rank *ranks;
    size_t n;
    const hcp_disagg_question *q;
    hcp_question ask[2];
    int runs;
    struct part part[2][2][1 << DISAGG_RANKS]; /* phase, batches more, ranks */
    struct disagg_ways *out;
};

static int same(const hcp_rank *a, const hcp_rank *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Number of a rank among those like it. */
static int number_of(const struct about *a, size_t r)
{
    int k = 0;

    for (size_t i = 0; i < r; i++)
        k += same(&a->ranks[i], &a->ranks[r]);
    return k;
}

static hcp_ring *ring_of(const struct about *a, int phase, unsigned ranks)
{
    hcp_rank mine[DISAGG_RANKS];
    hcp_ring *ring = NULL;
    size_t m = 0;

    for (size_t r = 0; r < a->n; r++) {
        if (!(ranks >> r & 1))
            continue;
        mine[m] = a->ranks[r];
        if (phase == 1)
            mine[m].linear_before_us = mine[m].linear_after_us = 0;
        m++;
    }
    return hcp_ring_create(a->models, a->shape[phase], mine, m, NULL, NULL, 0, &ring)
               ? NULL
               : ring;
}

static double slowest_linear(const struct about *a, const int64_t *tokens)
{
    double us = 0;

    for (size_t r = 0; r < a->n; r++)
        if (tokens[r] > 0)
            us = fmax(us, a->ranks[r].decode_linear_us *
                              (a->ranks[r].time_scale > 0 ? a->ranks[r].time_scale : 1));
    return us / 1e3;
}

/* KV of more runs and batches is that of so many times the layers. */
static const struct part *part_of(struct about *a, int phase, int more, unsigned ranks)
{
    struct part *p = &a->part[phase][more][ranks];
    struct fixture_plan plan;
    hcp_question q = a->ask[phase];
    hcp_ring *ring;
    size_t at = 0;

    if (p->made)
        return p;
    p->made = 1;
    p->status = HCP_STATUS_NO_MODEL;
    ring = ring_of(a, phase, ranks);
    if (!ring)
        return p;
    fixture_plan_init(&plan, a->n);
    q.layers *= (phase == 0 ? a->runs : 1) * (more ? 2 : 1);
    p->status = fixture_split(ring, &q, &plan, NULL, 0);
    if (p->status == HCP_STATUS_OK) {
        for (size_t r = 0; r < a->n; r++)
            p->tokens[r] = ranks >> r & 1 ? plan.plan.ranks[at++].tokens : 0;
        p->ms = plan.plan.makespan_ms + (phase ? slowest_linear(a, p->tokens) : 0);
        p->ms *= (double)a->ask[0].layers * (phase ? 1 : a->runs);
    }
    fixture_plan_free(&plan);
    hcp_ring_free(ring);
    return p;
}

static struct disagg_way *add(struct disagg_ways *ways)
{
    if (ways->n == ways->room) {
        ways->room = 2 * ways->room + 64;
        ways->way = realloc(ways->way, ways->room * sizeof *ways->way);
        if (!ways->way)
            die("out of memory");
    }
    memset(&ways->way[ways->n], 0, sizeof *ways->way);
    return &ways->way[ways->n++];
}

/* Pairs give and take one after the other, the messages in this order: every table that
 * is a corner of what is possible comes of one. */
static void pair_up(const struct about *a, const int64_t *old, const int64_t *new,
                    const int32_t *order, int pairs, const int (*pair)[2],
                    double token_bytes, struct disagg_way *way)
{
    int64_t give[DISAGG_RANKS], take[DISAGG_RANKS];
    int i = way->n_pairings;

    for (size_t r = 0; r < a->n; r++) {
        give[r] = old[r] > new[r] ? old[r] - new[r] : 0;
        take[r] = new[r] > old[r] ? new[r] - old[r] : 0;
    }
    memset(way->messages[i], 0, sizeof way->messages[i]);
    memset(way->bytes[i], 0, sizeof way->bytes[i]);
    for (int k = 0; k < pairs; k++) {
        int from = pair[order[k]][0], to = pair[order[k]][1];
        int64_t tokens = give[from] < take[to] ? give[from] : take[to];

        if (tokens == 0)
            continue;
        give[from] -= tokens;
        take[to] -= tokens;
        way->messages[i][from]++;
        way->messages[i][a->n + (size_t)to]++;
        way->bytes[i][from] += (double)tokens * token_bytes;
        way->bytes[i][a->n + (size_t)to] += (double)tokens * token_bytes;
    }
    for (int k = 0; k < i; k++)
        if (memcmp(way->messages[k], way->messages[i], sizeof way->messages[i]) == 0 &&
            memcmp(way->bytes[k], way->bytes[i], sizeof way->bytes[i]) == 0)
            return;
    if (++way->n_pairings == DISAGG_PAIRINGS)
        die("more pairings than there is room for");
}

static void transfers(const struct about *a, const int64_t *old, const int64_t *new,
                      struct disagg_way *way)
{
    const hcp_shape *s = a->shape[1];
    double token_bytes =
        2.0 * s->batch * s->kv_heads * s->head_dim * 2 * a->ask[0].layers;
    int pair[DISAGG_RANKS * DISAGG_RANKS][2], pairs = 0;
    int32_t order[DISAGG_RANKS * DISAGG_RANKS];

    way->n_ports = 2 * (int)a->n;
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < a->n; j++)
            if (old[i] > new[i] && new[j] > old[j]) {
                order[pairs] = pairs;
                pair[pairs][0] = (int)i;
                pair[pairs++][1] = (int)j;
            }
    if (pairs > 6)
        die("too many to pair");
    do
        pair_up(a, old, new, order, pairs, pair, token_bytes, way);
    while (pairs > 1 && fixture_next_order(order, (size_t)pairs));
}

/* Decode of a separate group runs on the ranks of each class after those of prefill, with
 * the plan of the first of that class. */
static void shift(const struct about *a, unsigned prefill, const int64_t *from,
                  int64_t *to)
{
    memset(to, 0, DISAGG_RANKS * sizeof *to);
    for (size_t r = 0; r < a->n; r++) {
        int first = 0;

        if (from[r] == 0)
            continue;
        for (size_t i = 0; i < a->n; i++)
            first += (prefill >> i & 1) && same(&a->ranks[i], &a->ranks[r]);
        for (size_t i = 0; i < a->n; i++)
            if (same(&a->ranks[i], &a->ranks[r]) &&
                number_of(a, i) == number_of(a, r) + first)
                to[i] = from[r];
    }
}

static void add_pair(struct about *a, unsigned prefill, unsigned decode, int separate)
{
    int more = separate && a->q->objective == HCP_DISAGG_THROUGHPUT;
    const struct part *p = part_of(a, 0, more, prefill);
    const struct part *g = part_of(a, 1, more, decode);
    int64_t new[DISAGG_RANKS];
    struct disagg_way *way;

    if (p->status || g->status)
        return;
    way = add(a->out);
    way->separate = separate;
    way->ttft_ms = p->ms;
    way->step_ms = g->ms;
    memcpy(new, g->tokens, sizeof new);
    if (separate)
        shift(a, prefill, g->tokens, new);
    transfers(a, p->tokens, new, way);
}

static void add_stay(struct about *a, unsigned prefill)
{
    const struct part *p = part_of(a, 0, 0, prefill);
    int64_t mine[DISAGG_RANKS];
    hcp_question q = a->ask[1];
    struct fixture_plan plan;
    hcp_ring *ring;
    size_t m = 0;

    if (p->status || !(ring = ring_of(a, 1, prefill)))
        return;
    for (size_t r = 0; r < a->n; r++)
        if (prefill >> r & 1)
            mine[m++] = p->tokens[r];
    q.layout = HCP_LAYOUT_CONTIGUOUS;
    fixture_plan_init(&plan, a->n);
    if (hcp_plan_evaluate(ring, &q, mine, plan.workspace, plan.workspace_bytes, NULL, 0,
                          &plan.plan) == HCP_STATUS_OK) {
        struct disagg_way *way = add(a->out);

        way->stays = 1;
        way->ttft_ms = p->ms;
        way->step_ms =
            (plan.plan.makespan_ms + slowest_linear(a, p->tokens)) * a->ask[0].layers;
        way->n_pairings = 1;
    }
    fixture_plan_free(&plan);
    hcp_ring_free(ring);
}

/* The first so many of each class, no others. */
static int first_of_class(const struct about *a, unsigned ranks)
{
    for (size_t r = 0; r < a->n; r++)
        for (size_t i = 0; i < r; i++)
            if ((ranks >> r & 1) && !(ranks >> i & 1) && same(&a->ranks[i], &a->ranks[r]))
                return 0;
    return 1;
}

void disagg_ways(const hcp_models *models, const hcp_shape *prefill,
                 const hcp_shape *decode, const hcp_rank *ranks, size_t n,
                 const hcp_disagg_question *q, struct disagg_ways *out)
{
    struct about *a = calloc(1, sizeof *a);

    if (!a)
        die("out of memory");
    *a = (struct about){.models = models,
                        .shape = {prefill, decode},
                        .ranks = ranks,
                        .n = n,
                        .q = q,
                        .out = out};
    a->runs = (decode->batch + prefill->batch - 1) / prefill->batch;
    a->ask[0] = *q->prefill;
    a->ask[1] = *q->decode;
    memset(out, 0, sizeof *out);
    out->q = *q;
    out->pieces = q->stream ? a->runs * q->prefill->layers : 1;
    for (unsigned p = 1; p < 1u << n; p++) {
        if (!first_of_class(a, p))
            continue;
        add_stay(a, p);
        for (unsigned g = 1; g < 1u << n; g++) {
            int shared = 0, apart = 1;

            if (!first_of_class(a, g))
                continue;
            for (size_t r = 0; r < n; r++) {
                int of_p = 0, of_g = 0, all = 0;

                for (size_t i = 0; i < n; i++) {
                    int like = same(&ranks[i], &ranks[r]);

                    of_p += like && (p >> i & 1);
                    of_g += like && (g >> i & 1);
                    all += like;
                }
                shared |= of_p > 0 && of_g > 0;
                apart &= of_p + of_g <= all;
            }
            if (shared)
                add_pair(a, p, g, 0);
            if (apart)
                add_pair(a, p, g, 1);
        }
    }
    free(a);
}

void disagg_ways_free(struct disagg_ways *ways)
{
    free(ways->way);
    ways->way = NULL;
}

static double move_ms(const struct disagg_ways *ways, const struct disagg_way *way,
                      double gbps)
{
    double least = INFINITY;

    for (int i = 0; i < way->n_pairings; i++) {
        double most = 0;

        for (int k = 0; k < way->n_ports; k++) {
            double ms = ways->q.link_alpha_us / 1e3 * ways->pieces * way->messages[i][k];

            most = fmax(most, ms + (gbps > 0 ? way->bytes[i][k] / (gbps * 1e6) : 0));
        }
        least = fmin(least, most);
    }
    return least;
}

double disagg_least(const struct disagg_ways *ways, int separate, double gbps,
                    double steps, double *latency)
{
    const hcp_disagg_question *q = &ways->q;
    double best = -1;

    for (size_t i = 0; i < ways->n; i++) {
        const struct disagg_way *way = &ways->way[i];
        double move, sent, all, score;
        int k = ways->pieces;

        if (way->separate != separate)
            continue;
        move = move_ms(ways, way, gbps);
        /* The last piece goes when it is made, and those before it have gone. */
        sent = fmax(way->ttft_ms + move / k, way->ttft_ms / k + move);
        all = sent + steps * way->step_ms;
        score = !separate || q->objective == HCP_DISAGG_LATENCY
                    ? all
                    : fmax(way->ttft_ms, fmax(move, steps * way->step_ms));
        if ((q->ttft_limit_ms > 0 && way->ttft_ms > q->ttft_limit_ms) ||
            (q->tpot_limit_ms > 0 && (all - way->ttft_ms) / steps > q->tpot_limit_ms))
            continue;
        if (best < 0 || score < best || (score == best && all < *latency)) {
            best = score;
            *latency = all;
        }
    }
    return best;
}

int disagg_better(const struct disagg_ways *ways, double gbps, double steps)
{
    double latency, apart = disagg_least(ways, 1, gbps, steps, &latency);
    double together = disagg_least(ways, 0, gbps, steps, &latency);

    if (apart < 0)
        return together < 0 ? -1 : 0;
    return together < 0 || apart < together * (1 - 1e-12);
}
