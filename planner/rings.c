/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "planner/plan.h"

/* Nodes, and rings of rings (LoongTrain's double ring, in this planner's terms).
 *
 * Ranks a node has stand in a row. In one ring the last of them sends to the first of the
 * next node, all others within theirs: between nodes goes one block a step, over the
 * slowest link of the ring. With two levels the A nodes of w ranks with tokens each form
 * an inner ring a node, and w outer rings, one for each place in a node. Rank (a, b)
 * computes in outer step j and inner step s, step j w + s of all, the KV of rank
 * (a - j mod A, b - s mod w):
 *
 *   outer[a,b][j]    = send between nodes + max(outer[a-1,b][j-1]       it is there
 *                                               outer[a,b][j-1]         link is free
 *                                               buffer of block j - 2)
 *   inner[a,b][j][0] = outer[a,b][j]
 *   inner[a,b][j][s] = send within a node + max(inner[a,b-1][j][s-1],
 *                                               the inner transfer before,
 *                                               a buffer is free)
 *   fin[a,b][j,s]    = max(inner[a,b][j][s], fin of the step before) + t(block)
 *
 * so KV goes to the next node while it goes round this one. The question's buffers hold
 * blocks from the inner ring, by the rule of ring.c; two more hold those from the outer
 * ring: one is free when its block is computed and has arrived at the next rank of both
 * rings. All w ranks of a node send to other nodes at a time, so what they share of the
 * way out (node_shared_gbps) is divided by w, where one ring has it to itself.
 *
 * Two levels want every rank to work on every block (not: contiguous under a causal mask,
 * shares of one token), whole blocks, no barrier, and as many ranks with tokens on every
 * node that has any; what is not so has none.
 */
enum { OUTER_ROWS = 3 };

int nodes_bad_numbers(int32_t ranks, double alpha_us, double gbps, double shared_gbps)
{
    int valid = ranks >= 0 && ranks <= HCP_PLAN_MAX_RANKS;

    valid &= alpha_us >= 0 && alpha_us <= 1e9;
    valid &= gbps == 0 || (gbps >= 1e-6 && gbps <= 1e9);
    valid &= shared_gbps == 0 || (shared_gbps >= 1e-6 && shared_gbps <= 1e9);
    return !valid;
}

hcp_status nodes_check(const hcp_question *q, char *text, size_t text_size)
{
    if (nodes_bad_numbers(q->node_ranks, q->node_alpha_us, q->node_gbps,
                          q->node_shared_gbps) ||
        q->rings < HCP_RINGS_ONE || q->rings > HCP_RINGS_BEST)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "no such rings, or nodes out of range (ranks 0..%d, start-up "
                         "0..1e9 us, speeds 0 or 1e-6..1e9 GB/s)",
                         HCP_PLAN_MAX_RANKS);
    if (q->node_ranks == 0 && q->rings)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "rings of rings need nodes: give the ranks a node has");
    if (q->node_ranks > 0 &&
        (q->n_links > 0 || q->order || q->joint || q->kv_tokens || q->late_kv))
        return plan_fail(
            text, text_size, HCP_STATUS_INVALID,
            "nodes give the links, ranks in the caller's order, and KV with "
            "its queries and in turn; leave links, an order to choose, joint "
            "and late KV out");
    return HCP_STATUS_OK;
}

void nodes_set(struct problem *p, int32_t ranks, double alpha_us, double gbps,
               double shared_gbps)
{
    p->nodes = (struct nodes){ranks, alpha_us / 1e3, gbps, shared_gbps};
}

/* A transfer between nodes, when so many ranks of a node send at once. */
static struct link_into between_nodes(const struct problem *p, int32_t senders)
{
    double gbps = p->nodes.gbps, part = p->nodes.shared_gbps / senders;

    if (part > 0 && (gbps == 0 || part < gbps))
        gbps = part;
    return (struct link_into){.alpha_ms = p->nodes.alpha_ms,
                              .token_ms =
                                  gbps > 0 ? p->ring->token_bytes / (gbps * 1e6) : 0,
                              .beside = {.slowdown = 1, .transfer_slowdown = 1}};
}

void nodes_into(const struct problem *p, int32_t m, const int32_t *rank,
                struct link_into *into)
{
    const struct link_into inside = {.alpha_ms = p->alpha_ms,
                                     .token_ms = p->token_ms,
                                     .beside = {.slowdown = 1, .transfer_slowdown = 1}},
                           outside = between_nodes(p, 1);

    for (int32_t i = 0; i < m; i++) {
        int32_t from = rank[i > 0 ? i - 1 : m - 1];

        into[i] = from / p->nodes.ranks != rank[i] / p->nodes.ranks ? outside : inside;
    }
}

int32_t rings_inner(const struct problem *p, int32_t m, const int32_t *rank,
                    const int32_t *hops)
{
    int32_t w = 0, run = 0;

    if (p->sub_blocks > 1 || p->barrier || p->buffers >= MAX_BUFFERS || m < 4)
        return 0;
    for (int32_t i = 0; i < m; i++) {
        int last = i + 1 == m || rank[i] / p->nodes.ranks != rank[i + 1] / p->nodes.ranks;

        if (hops[i] != m - 1)
            return 0;
        run++;
        if (!last)
            continue;
        if (w > 0 && run != w)
            return 0;
        w = run;
        run = 0;
    }
    return w > 1 && w < m ? w : 0;
}

/* ---- the recurrence ----
 *
 * Ranks are taken in another order than in the ring, place by place and on each place
 * node by node: place b of node a is number b A + a. What comes over the inner ring is
 * then A numbers before, what comes over the outer one is the number before, and the
 * nodes of a place are done together.
 */
struct rings {
    const struct ring_input *in;
    const struct ring_lanes *lanes;
    int32_t m, w, nodes;
    int inner_rows;           /* of what goes round the inner rings */
    double *outer, *computed; /* [OUTER_ROWS][m] by outer step: there, computed */
    double *passed;           /* [OUTER_ROWS][m] ... and at the next rank of its node */
    double *arrived, *done;   /* [inner_rows][m] by inner transfer: there, computed */
    const double *link;       /* [m] the inner link into each rank is free */
    const double *fin;        /* [m] of the step before */
    double *between;          /* [m] transfers between nodes by sender */
    double *send, *ms;        /* [m] transfers within a node by sender; blocks */
    int32_t *cls, *run_end;   /* [m] run_end: of equal classes on a place */
    int runs;
    struct link_into outside;
    hcp_step *steps;
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double *row_of(const struct rings *g, double *rows, int32_t k, int n)
{
    return rows + (size_t)(k % n) * (size_t)g->m;
}

/* Number x among the ranks of the ring. */
static int32_t in_ring(const struct rings *g, int32_t x)
{
    return x % g->nodes * g->w + x / g->nodes;
}

static double block_ms(const struct rings *g, int32_t x, int32_t src, int earlier)
{
    const struct ring_input *in = g->in;
    const double *table = earlier ? in->early : in->late;

    if (x == src)
        return in->own[g->cls[x]];
    if (in->ask)
        return in->ask(in->ask_ctx, in_ring(g, x), in_ring(g, src));
    return table[(size_t)g->cls[x] * (size_t)in->stride + (size_t)g->cls[src]];
}

/* Step k of the report: what is there at ready and takes ms. */
static void report(const struct rings *g, int32_t x, int32_t src, int32_t k, double ready,
                   double before, double fin, double ms)
{
    int32_t i = in_ring(g, x);
    double start = later(ready, before);

    g->steps[(size_t)i * (size_t)g->m + (size_t)k] =
        (hcp_step){i, k, in_ring(g, src), ready, start, ms, fin, start - before};
}

/* Outer transfers of step j > 0, and what is computed of them. */
static void outer_step(struct rings *g, int32_t j)
{
    const double *there = row_of(g, g->outer, j - 1, OUTER_ROWS);
    const double *computed = row_of(g, g->computed, j + 1, OUTER_ROWS); /* of j - 2 */
    const double *passed = row_of(g, g->passed, j + 1, OUTER_ROWS);
    double *now = row_of(g, g->outer, j, OUTER_ROWS);
    double *done = row_of(g, g->computed, j, OUTER_ROWS);

    for (int32_t first = 0; first < g->m; first += g->nodes)
        for (int32_t a = 0; a < g->nodes; a++) {
            int32_t x = first + a, src = a >= j ? x - j : x - j + g->nodes;
            double start = later(there[a > 0 ? x - 1 : x + g->nodes - 1], there[x]), ms;

            if (j > 2) { /* block j - 2 was in the buffer; it has gone on */
                start = later(start, later(computed[x], passed[x]));
                start = later(start, there[a + 1 < g->nodes ? x + 1 : first]);
            }
            now[x] = start + g->between[src];
            ms = block_ms(g, x, src, a >= j);
            done[x] = later(now[x], g->fin[x]) + ms;
            if (g->steps)
                report(g, x, src, j * g->w, now[x], g->fin[x], done[x], ms);
        }
    g->fin = done;
}

/* The rows of an inner step, at some rank. */
struct inner_rows {
    const double *there, *freed, *passed;
    double *now, *done;
};

/* Ranks x .. x + n - 1 of an inner step, whose KV is that of ranks src, src + 1, ...;
 * from, to: by how much the ranks before and after them in their nodes are off. */
static void inner_range(const struct rings *g, int32_t x, int32_t src, int32_t n,
                        int earlier, int32_t from, int32_t to, const struct inner_rows *r)
{
    const struct ring_input *in = g->in;
    const double *table = earlier ? in->early : in->late;

    if (in->ask || g->runs * 8 > g->m) {
        if (in->ask)
            for (int32_t i = 0; i < n; i++)
                g->ms[i] = block_ms(g, x + i, src + i, earlier);
        else
            g->lanes->look_up(n, table, in->stride, g->cls + x, g->cls + src, g->ms);
        g->lanes->inner_any(n, r->there + x + from, g->link + x, r->freed + x,
                            r->passed + x + to, g->fin + x, g->send + src, g->ms,
                            r->now + x, r->done + x);
        return;
    }
    while (n > 0) {
        int32_t run = g->run_end[x] - x, theirs = g->run_end[src] - src;

        run = run < theirs ? run : theirs;
        run = run < n ? run : n;
        g->lanes->inner(
            run, r->there + x + from, g->link + x, r->freed + x, r->passed + x + to,
            g->fin + x, g->send[src],
            table[(size_t)g->cls[x] * (size_t)in->stride + (size_t)g->cls[src]],
            r->now + x, r->done + x);
        x += run;
        src += run;
        n -= run;
    }
}

/* Inner step s > 0 of outer step j; there: arrivals of the step before. Without a
 * condition: times that are not later than others. */
static const double *inner_step(struct rings *g, int32_t j, int32_t s,
                                const double *there)
{
    int32_t w = g->w, nodes = g->nodes, buffers = g->in->buffers;
    int32_t u = j * (w - 1) + s - 1;
    struct inner_rows r = {.there = there,
                           .now = row_of(g, g->arrived, u, g->inner_rows),
                           .done = row_of(g, g->done, u, g->inner_rows)};
    int used = buffers > 0 && u >= buffers; /* transfer u - buffers, the buffer */
    int went_on = used && buffers > 1 && (u - buffers) % (w - 1) < w - 2;

    r.freed = r.passed = g->link;
    if (used)
        r.freed = r.passed = row_of(g, g->done, u - buffers, g->inner_rows);
    if (went_on)
        r.passed = row_of(g, g->arrived, u - buffers + 1, g->inner_rows);
    for (int32_t b = 0; b < w; b++) {
        int32_t place = (b >= s ? b - s : b - s + w) * nodes, x = b * nodes;
        int32_t from = b > 0 ? -nodes : (w - 1) * nodes;
        int32_t to = !went_on ? 0 : b + 1 < w ? nodes : (1 - w) * nodes;

        /* Of nodes before j the KV comes from behind the last one. */
        inner_range(g, x + j, place, nodes - j, j > 0 || b >= s, from, to, &r);
        inner_range(g, x, place + nodes - j, j, 0, from, to, &r);
    }
    for (int32_t x = 0; g->steps && x < g->m; x++) {
        int32_t a = x % nodes, b = x / nodes;
        int32_t src =
            (b >= s ? b - s : b - s + w) * nodes + (a >= j ? a - j : a - j + nodes);
        double ms = block_ms(g, x, src, a >= j && (j > 0 || b >= s));

        report(g, x, src, j * w + s, r.now[x], g->fin[x], r.done[x], ms);
    }
    g->link = r.now;
    g->fin = r.done;
    return r.now;
}

/* The order of the ranks, and step 0. */
static void begin(struct rings *g, double *link)
{
    const struct ring_input *in = g->in;

    for (int32_t x = 0; x < g->m; x++) {
        int32_t i = in_ring(g, x);

        g->cls[x] = in->cls[i];
        g->send[x] = in->send_ms[i];
        g->between[x] = g->outside.alpha_ms + g->outside.token_ms * (double)in->len[i];
        g->outer[x] = link[x] = in->before ? in->before[i] : 0;
        g->computed[x] = link[x] + in->own[g->cls[x]];
        if (g->steps)
            report(g, x, x, 0, link[x], link[x], g->computed[x], in->own[g->cls[x]]);
    }
    for (int32_t x = g->m; x-- > 0;) {
        int new_run = (x + 1) % g->nodes == 0 || g->cls[x] != g->cls[x + 1];

        g->run_end[x] = new_run ? x + 1 : g->run_end[x + 1];
        g->runs += new_run;
    }
    g->link = link;
    g->fin = g->computed;
}

double rings_run(const struct problem *p, const struct ring_input *in,
                 struct ring_arrays *a, int32_t inner, double *fin, hcp_step *steps)
{
    int32_t m = in->m, w = inner;
    size_t row = (size_t)m;
    struct rings g = {.in = in,
                      .lanes = ring_lanes_here(),
                      .m = m,
                      .w = w,
                      .nodes = m / w,
                      .inner_rows = in->buffers > 0 ? in->buffers + 1 : 2,
                      .outer = a->outer,
                      .computed = a->outer + OUTER_ROWS * row,
                      .passed = a->outer + 2 * OUTER_ROWS * row,
                      .send = a->outer + 3 * OUTER_ROWS * row,
                      .between = a->outer + (3 * OUTER_ROWS + 2) * row,
                      .ms = a->step_ms,
                      .arrived = a->history,
                      .done = a->ready,
                      .cls = a->turned,
                      .run_end = a->turned + row,
                      .outside = between_nodes(p, w),
                      .steps = steps};
    double makespan = 0;

    begin(&g, a->outer + (3 * OUTER_ROWS + 1) * row);
    for (int32_t j = 0; j < g.nodes; j++) {
        const double *there = row_of(&g, g.outer, j, OUTER_ROWS);
        double *passed = row_of(&g, g.passed, j, OUTER_ROWS);

        if (j > 0)
            outer_step(&g, j);
        for (int32_t s = 1; s < w; s++) {
            there = inner_step(&g, j, s, there);
            if (s > 1)
                continue;
            memcpy(passed, there + g.nodes, (row - (size_t)g.nodes) * sizeof *passed);
            memcpy(passed + row - g.nodes, there, (size_t)g.nodes * sizeof *passed);
        }
    }
    for (int32_t x = 0; x < m; x++) {
        int32_t i = in_ring(&g, x);

        fin[i] = in->after ? g.fin[x] + in->after[i] : g.fin[x];
        makespan = later(makespan, fin[i]);
    }
    return makespan;
}

/* ---- which of the two ---- */

static double known(const struct problem *p, const struct score *score)
{
    if (score->none || (score->source == HCP_FROM_EXTRAPOLATED && !p->extrapolate))
        return NAN;
    return score->ms;
}

/* Ranks of an inner ring of a split. */
static int32_t inner_of(const struct problem *p, const int64_t *tokens)
{
    int32_t node = 0, n = 0;

    for (size_t r = 0; r < p->n; r++) {
        if (tokens[r] == 0)
            continue;
        if (n == 0)
            node = (int32_t)r / p->nodes.ranks;
        n += (int32_t)r / p->nodes.ranks == node;
    }
    return n;
}

/* Makes an answer in one ring one with two levels: of this layout and split. */
static void take_two(struct problem *p, struct scratch *s, hcp_layout layout,
                     const int64_t *tokens, const struct score *score, struct answer *out)
{
    size_t bytes = p->n * sizeof *s->fin;

    p->two_level = 1;
    problem_set_layout(p, layout);
    memo_reset(&s->memo);
    if (tokens != s->tokens[TOK_PLAN])
        memcpy(s->tokens[TOK_PLAN], tokens, p->n * sizeof *tokens);
    out->tokens = s->tokens[TOK_PLAN];
    out->layout = layout;
    eval_split(p, s, out->tokens, HUGE_MS, NULL);
    memcpy(s->plan_fin, s->fin, bytes);
    memcpy(s->plan_busy, s->busy, bytes);
    out->score = *score;
    out->exact = 0;
    out->inner = inner_of(p, tokens);
}

hcp_status rings_decide(struct problem *p, struct scratch *s,
                        const hcp_question *question, int exhaustive, char *text,
                        size_t text_size, struct answer *out)
{
    const struct score none = {1, 0, 0, HUGE_MS};
    struct answer two;
    int64_t *tokens = s->tokens[TOK_RINGS];
    hcp_status status;

    two.score = two.even = two.drop = none;
    if (question->rings == HCP_RINGS_BEST) {
        p->two_level = 1;
        if (strategy_decide(p, s, question, NULL, 0, &two))
            two.score.none = 1;
        else
            memcpy(tokens, two.tokens, p->n * sizeof *tokens);
        p->two_level = 0;
        memo_reset(&s->memo);
    }
    status = order_decide(p, s, question, exhaustive, text, text_size, out);
    out->inner = 0;
    out->one_ring_ms = out->two_level_ms = NAN;
    if (status || question->rings != HCP_RINGS_BEST)
        return status;
    out->one_ring_ms = known(p, &out->score);
    out->two_level_ms = known(p, &two.score);
    if (out->two_level_ms < out->one_ring_ms ||
        (isnan(out->one_ring_ms) && !isnan(out->two_level_ms)))
        take_two(p, s, two.layout, tokens, &two.score, out);
    if (score_less(two.even, out->even) && !isnan(known(p, &two.even)))
        out->even = two.even;
    if (score_less(two.drop, out->drop) && !isnan(known(p, &two.drop)))
        out->drop = two.drop;
    return status;
}

void rings_given(struct problem *p, struct scratch *s, const hcp_question *question,
                 struct answer *out)
{
    struct score two;

    out->inner = 0;
    out->one_ring_ms = out->two_level_ms = NAN;
    if (question->rings != HCP_RINGS_BEST)
        return;
    p->two_level = 1;
    memo_reset(&s->memo);
    two = eval_split(p, s, out->tokens, HUGE_MS, NULL);
    two.source = out->score.source;
    p->two_level = 0;
    out->one_ring_ms = known(p, &out->score);
    out->two_level_ms = known(p, &two);
    if (out->two_level_ms < out->one_ring_ms)
        take_two(p, s, p->layout, out->tokens, &two, out);
}
