/* SPDX-License-Identifier: Apache-2.0
 *
 * Two levels: a ring of rings.
 */
#include <math.h>
#include "tests/plan-reference-ring.h"

/* What happens when, asked from the end: an event's time is that of what it waits for and
 * then some, remembered. Ranks are (node, place), blocks are named by their owner. */
static struct {
    const hcp_question *q;
    int nodes, places;
    double begin[REFERENCE_RANKS];               /* of a rank: its own KV is there */
    double ms[REFERENCE_RANKS][REFERENCE_RANKS]; /* of block [owner] on [rank] */
    double in_node[REFERENCE_RANKS], between[REFERENCE_RANKS]; /* transfer, by owner */
    double outer[REFERENCE_RANKS][REFERENCE_RANKS]; /* [rank][j] arrivals, -1 unknown */
    double inner[REFERENCE_RANKS][REFERENCE_RANKS]; /* [rank][step] */
    double done[REFERENCE_RANKS][REFERENCE_RANKS];  /* [rank][step] */
} two;

static int two_rank(int node, int place)
{
    int a = two.nodes, w = two.places;

    return (node % a + a) % a * w + (place % w + w) % w;
}

static double two_inner(int node, int place, int j, int s);

static double two_done(int node, int place, int step)
{
    int r = two_rank(node, place), j = step / two.places, s = step % two.places;
    double *when = &two.done[r][step], before;

    if (*when < 0) {
        before = step > 0 ? two_done(node, place, step - 1) : 0;
        *when = fmax(before, two_inner(node, place, j, s)) +
                two.ms[r][two_rank(node - j, place - s)];
    }
    return *when;
}

/* When the j-th block from the node before is at a rank. */
static double two_outer(int node, int place, int j)
{
    int r = two_rank(node, place);
    double *when = &two.outer[r][j], start;

    if (j == 0)
        return two.begin[r];
    if (*when < 0) {
        start = fmax(two_outer(node - 1, place, j - 1), two_outer(node, place, j - 1));
        if (j >= 3) { /* two buffers: that of block j - 2, wanted by three */
            start = fmax(start, two_done(node, place, (j - 2) * two.places));
            start = fmax(start, two_inner(node, place + 1, j - 2, 1));
            start = fmax(start, two_outer(node + 1, place, j - 1));
        }
        *when = start + two.between[two_rank(node - j, place)];
    }
    return *when;
}

static double two_inner(int node, int place, int j, int s)
{
    int r = two_rank(node, place), w = two.places, nth = j * (w - 1) + s - 1;
    double *when = &two.inner[r][j * w + s], start;

    if (s == 0)
        return two_outer(node, place, j);
    if (*when < 0) {
        start = fmax(two.begin[r], two_inner(node, place - 1, j, s - 1));
        if (nth > 0) /* the link: the transfer before this one */
            start = fmax(start, s > 1 ? two_inner(node, place, j, s - 1)
                                      : two_inner(node, place, j - 1, w - 1));
        if (two.q->buffers > 0 && nth >= two.q->buffers) {
            int was = nth - two.q->buffers, jw = was / (w - 1), sw = was % (w - 1) + 1;

            start = fmax(start, two_done(node, place, jw * w + sw));
            if (two.q->buffers > 1 && sw + 1 < w)
                start = fmax(start, two_inner(node, place + 1, jw, sw + 1));
        }
        *when = start + two.in_node[two_rank(node - j, place - s)];
    }
    return *when;
}

static double two_transfer(const hcp_ring *ring, double alpha_us, double gbps,
                           int64_t len)
{
    double ms = alpha_us / 1e3;

    if (gbps > 0)
        ms += (double)len * ring->token_bytes / (gbps * 1e6);
    return ms;
}

double reference_two_levels(const hcp_ring *ring, hcp_model_kind kind,
                            const hcp_question *q, const int64_t *tokens)
{
    int64_t len[REFERENCE_RANKS], tile = reference_tile(ring, q);
    int rank[REFERENCE_RANKS], m = 0, on_node[REFERENCE_RANKS] = {0};
    double gbps = q->node_gbps, makespan = 0, end[REFERENCE_RANKS];

    two.q = q;
    two.nodes = two.places = 0;
    for (size_t r = 0; r < ring->n; r++) {
        if (tokens[r] == 0)
            continue;
        rank[m] = (int)r;
        reference_linear(ring, r, tokens[r], &two.begin[m], &end[m]);
        len[m++] = tokens[r];
        if (on_node[r / (size_t)q->node_ranks]++ == 0)
            two.nodes++;
    }
    for (int a = 0; a < REFERENCE_RANKS; a++) {
        if (on_node[a] == 0)
            continue;
        if (two.places > 0 && two.places != on_node[a])
            return -1;
        two.places = on_node[a];
    }
    if (two.nodes < 2 || two.places < 2 || q->barrier || q->sub_blocks > 1)
        return -1;
    reference_lay_out(q, m, len, len);
    if (q->node_shared_gbps > 0 && (gbps == 0 || q->node_shared_gbps / two.places < gbps))
        gbps = q->node_shared_gbps / two.places;
    for (int i = 0; i < m; i++) {
        two.in_node[i] = two_transfer(ring, q->link_alpha_us, q->link_gbps, len[i]);
        two.between[i] = two_transfer(ring, q->node_alpha_us, gbps, len[i]);
        for (int j = 0; j < m; j++) {
            struct reference_block b;

            reference_set_block(&b, ring, ring->ranks[rank[i]].model[kind], q, tile, i, j,
                                len[j]);
            if (!b.works)
                return -1;
            two.ms[i][j] = b.t[0];
            two.outer[i][j] = two.inner[i][j] = two.done[i][j] = -1;
        }
    }
    for (int i = 0; i < m; i++)
        makespan =
            fmax(makespan, two_done(i / two.places, i % two.places, m - 1) + end[i]);
    return makespan;
}
