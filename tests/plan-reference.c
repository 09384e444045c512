/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "tests/plan-reference.h"

enum { PIECES = 64, STRIPES = 1024 };

/* ---- who holds which positions ---- */

struct held {
    int n;
    int64_t at[STRIPES], length[STRIPES]; /* runs of tokens, in order of position */
};

static void hold(struct held *h, int64_t at, int64_t length)
{
    if (length == 0)
        return;
    h->at[h->n] = at;
    h->length[h->n++] = length;
}

static struct held held[REFERENCE_RANKS];    /* queries */
static struct held held_kv[REFERENCE_RANKS]; /* and KV, where it is split apart */

/* Positions of m ranks with len[] tokens each. */
static void lay_out(const hcp_question *q, int m, const int64_t *len, struct held *out)
{
    int64_t front = 0, back = q->seq_len;

    for (int i = 0; i < m; i++)
        out[i].n = 0;
    if (q->layout == HCP_LAYOUT_STRIPED) {
        for (int32_t t = 0; t < q->stripes; t++)
            for (int i = 0; i < m; i++) {
                int64_t length = len[i] / q->stripes + (t < len[i] % q->stripes);

                hold(&out[i], front, length);
                front += length;
            }
        return;
    }
    for (int i = 0; i < m; i++) {
        int64_t second = q->layout == HCP_LAYOUT_ZIGZAG ? len[i] / 2 : 0;

        hold(&out[i], front, len[i] - second);
        front += len[i] - second;
        back -= second;
        hold(&out[i], back, second);
    }
}

/* How many of j's tokens a run of rows that begins at a position sees, all runs of
 * other ranks lying before or after it. */
static int64_t seen_of(const hcp_question *q, const struct held *j, int64_t at)
{
    int64_t seen = 0;

    for (int s = 0; s < j->n; s++)
        if (!q->causal || j->at[s] < at)
            seen += j->length[s];
    return seen;
}

/* ---- what a piece costs ---- */

static double merged_ms(const hcp_model *model, int64_t rows, int64_t keys)
{
    if (rows == 0 || keys <= 0)
        return 0;
    return hcp_model_block_ms(model, 0, rows, keys, NULL) +
           hcp_model_finish_ms(model, 1, rows);
}

/* Rank i on tokens [from, to) of rank j's block: rows that see equally many of them in
 * one call. (A whole block of a striped layout: a call for every stripe.) */
static double piece_ms(const hcp_model *model, const hcp_question *q, int i, int j,
                       int64_t from, int64_t to)
{
    int apart = q->sub_blocks == 1 && q->causal && q->layout == HCP_LAYOUT_STRIPED;
    int64_t rows = 0, keys = -1;
    double ms = 0;

    for (int s = 0; s < held[i].n; s++) {
        int64_t see = seen_of(q, &held[j], held[i].at[s]);

        see = (see > to ? to : see) - from;
        if (see != keys || apart) {
            ms += merged_ms(model, rows, keys);
            rows = 0;
            keys = see;
        }
        rows += held[i].length[s];
    }
    return ms + merged_ms(model, rows, keys);
}

/* ---- the same where KV is split apart: row by row ---- */

/* Keys of a rank at positions up to one, and whether the key there is its own. */
static int64_t keys_up_to(const struct held *kv, int64_t at, int *here)
{
    int64_t keys = 0;

    *here = 0;
    for (int s = 0; s < kv->n; s++) {
        int64_t up_to = at + 1 - kv->at[s];

        up_to = up_to < kv->length[s] ? up_to : kv->length[s];
        keys += up_to > 0 ? up_to : 0;
        *here |= at >= kv->at[s] && at < kv->at[s] + kv->length[s];
    }
    return keys;
}

/* The number of keys that rows of rank i see of keys [from, to) of rank j's, a call for
 * each run of rows that see equally many, or whose last one is at the row's own place. */
static double joint_piece_ms(const hcp_model *model, const hcp_question *q, int i, int j,
                             int64_t from, int64_t to, int64_t *area)
{
    int64_t rows = 0, keys = 0;
    int grows = 0;
    double ms = 0;

    *area = 0;
    for (int s = 0; s <= held[i].n; s++) {
        int64_t length = s < held[i].n ? held[i].length[s] : 1;

        for (int64_t x = 0; x < length; x++) {
            int64_t see = -1;
            int own = 0;

            if (s < held[i].n) {
                see = q->causal ? keys_up_to(&held_kv[j], held[i].at[s] + x, &own) : to;
                own = own && see > from && see <= to;
                see = (see > to ? to : see) - from;
                see = see < 0 ? 0 : see;
                *area += see;
            }
            if (see != keys + own || own != grows) {
                if (rows > 0 && keys > 0)
                    ms += hcp_model_block_ms(model, grows, rows, keys, NULL) +
                          hcp_model_finish_ms(model, i != j, rows);
                rows = 0;
            }
            rows++;
            keys = see;
            grows = own;
        }
    }
    return ms;
}

/* ---- the ring ---- */

static struct block {
    int works, sent; /* rank has work on it; passes it on */
    int came;        /* it was received */
    int n;           /* pieces that are not empty */
    double t[PIECES], send[PIECES];
    double here[PIECES]; /* when a piece has arrived */
    double overhead;     /* after its last piece */
    double fin;
} ring_block[REFERENCE_RANKS][REFERENCE_RANKS];

static int64_t largest_kernel_tile(const hcp_ring *ring)
{
    int64_t tile = 1;

    for (size_t r = 0; r < ring->n; r++)
        for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++)
            if (ring->ranks[r].model[k] &&
                hcp_model_tile_q(ring->ranks[r].model[k]) > tile)
                tile = hcp_model_tile_q(ring->ranks[r].model[k]);
    return tile;
}

/* Do the caps leave a split into whole units, the rest at any one rank? */
static int fits(const hcp_ring *ring, int64_t seq_len, int64_t unit)
{
    for (size_t holder = 0; holder < ring->n; holder++) {
        int64_t units = 0, rest_fits = 1;

        for (size_t r = 0; r < ring->n; r++) {
            int64_t cap = ring->ranks[r].spec.max_tokens;

            cap = cap > 0 && cap < seq_len ? cap : seq_len;
            cap -= r == holder ? seq_len % unit : 0;
            rest_fits &= cap >= 0;
            units += cap / unit;
        }
        if (rest_fits && units >= seq_len / unit)
            return 1;
    }
    return 0;
}

int64_t reference_tile(const hcp_ring *ring, const hcp_question *q)
{
    int64_t kernel = largest_kernel_tile(ring), unit = kernel;

    if (q->tile > 0)
        return q->tile;
    if (!q->causal || kernel == 1 || q->layout == HCP_LAYOUT_CONTIGUOUS)
        return kernel;
    /* A run of a share's tokens is a whole number of kernel tiles. */
    unit *= q->layout == HCP_LAYOUT_ZIGZAG ? 2 : q->stripes;
    if (q->seq_len < 4 * unit * (int64_t)ring->n || !fits(ring, q->seq_len, unit))
        return kernel;
    return unit;
}

/* Block k of rank i, the KV of rank j with len tokens: its pieces and what they cost. */
static void set_block(struct block *b, const hcp_ring *ring, const hcp_model *model,
                      const hcp_question *q, int64_t tile, int i, int j, int64_t len)
{
    int64_t tiles = (len + tile - 1) / tile, from = 0;

    double own_ms = 0;

    b->n = 0;
    b->overhead = 0;
    b->came = 0;
    if (q->kv_tokens) {
        int64_t area;

        own_ms = joint_piece_ms(model, q, i, j, 0, len, &area);
        b->works = area > 0;
    } else {
        b->works = i == j;
        for (int s = 0; s < held[i].n; s++)
            b->works |= seen_of(q, &held[j], held[i].at[s]) > 0;
        own_ms = hcp_model_block_ms(model, q->causal, len, len, NULL) +
                 hcp_model_finish_ms(model, 0, len);
    }
    for (int64_t p = 1; p <= q->sub_blocks; p++) {
        int64_t to = tile * (tiles * p / q->sub_blocks), area;

        if (to > len)
            to = len;
        if (to == from)
            continue;
        b->t[b->n] = i == j         ? 0
                     : q->kv_tokens ? joint_piece_ms(model, q, i, j, from, to, &area)
                                    : piece_ms(model, q, i, j, from, to);
        b->send[b->n] = q->link_alpha_us / 1e3;
        if (q->link_gbps > 0)
            b->send[b->n] +=
                (double)(to - from) * ring->token_bytes / (q->link_gbps * 1e6);
        b->n++;
        from = to;
    }
    if (i == j) /* computed whole */
        b->t[0] = own_ms;
}

static double sum(const double *v, int n)
{
    double all = 0;

    for (int p = 0; p < n; p++)
        all += v[p];
    return all;
}

/* Linear work of each rank in the ring, before and after it. */
static double work_before[REFERENCE_RANKS], work_after[REFERENCE_RANKS];

static double barrier(int m)
{
    double now = 0, end;

    for (int i = 0; i < m; i++)
        now = fmax(now, work_before[i]);
    for (int k = 0; k < m; k++) {
        double longest = 0;

        for (int i = 0; i < m; i++) {
            const struct block *b = &ring_block[i][k];

            longest = fmax(longest, sum(b->t, b->n) + b->overhead);
            if (b->sent) {
                const struct block *there = &ring_block[(i + 1) % m][k + 1];

                longest = fmax(longest, sum(there->send, there->n));
            }
        }
        now += longest;
    }
    end = now;
    for (int i = 0; i < m; i++)
        end = fmax(end, now + work_after[i]);
    return end;
}

/* When the buffer is free into which rank i receives its block k: what was in it has been
 * computed here and has arrived, all of it, at the next rank. */
static double buffer_free(const hcp_question *q, int m, int i, int k)
{
    const struct block *was, *there;
    double free_ms;
    int before = k;

    for (int n = 0; n < q->buffers && before > 0;) /* back by so many that came */
        n += ring_block[i][--before].came;
    if (q->buffers == 0 || before < 1) /* block 0 is the own one: in no buffer */
        return 0;
    was = &ring_block[i][before];
    free_ms = was->fin;
    if (was->sent && q->buffers > 1) {
        there = &ring_block[(i + 1) % m][before + 1];
        free_ms = fmax(free_ms, there->here[there->n - 1]);
    }
    return free_ms;
}

static void run_step(const hcp_question *q, int m, int i, int k)
{
    int from = (i - 1 + m) % m;
    const struct block *there = &ring_block[from][k - 1];
    const struct block *before = &ring_block[i][k - 1];
    struct block *b = &ring_block[i][k];
    double link = 0, now = before->fin;

    b->fin = now;
    if (!there->sent)
        return;
    b->came = 1;
    /* The last block that came over it, too; the first one waits until this rank takes
     * part. */
    link = work_before[i];
    for (int e = 1; e < k; e++)
        if (ring_block[i][e].came)
            link = ring_block[i][e].here[ring_block[i][e].n - 1];
    link = fmax(link, buffer_free(q, m, i, k));
    for (int p = 0; p < b->n; p++) {
        double at_sender = k == 1 ? work_before[from] : there->here[p];

        link = fmax(link, at_sender) + b->send[p];
        b->here[p] = link;
        now = fmax(now, b->here[p]) + b->t[p];
    }
    b->fin = now + b->overhead;
}

/* ---- links that differ ---- */

static const hcp_link *link_of(const hcp_question *q, int from, int to)
{
    for (size_t i = 0; i < q->n_links; i++)
        if (q->links[i].from == from && q->links[i].to == to)
            return &q->links[i];
    return NULL;
}

static int uses(const hcp_link *link, int32_t what)
{
    return link && (link->shared[0] == what || link->shared[1] == what);
}

/* GB/s of the link to active rank i with every link of the ring that carries something
 * busy; 0 infinitely fast. */
static double shared_speed(const hcp_question *q, int m, const int *rank,
                           const hcp_link *link)
{
    double gbps = link->gbps;

    for (int32_t what = 1; what <= (int32_t)q->n_shared; what++) {
        int users = 0;

        for (int i = 0; i < m; i++) {
            int carries = 0;

            for (int k = 0; k < m; k++)
                carries |= ring_block[i][k].sent;
            users += carries && uses(link_of(q, rank[i], rank[(i + 1) % m]), what);
        }
        if (uses(link, what) && users > 0 &&
            (gbps == 0 || q->shared_gbps[what - 1] / users < gbps))
            gbps = q->shared_gbps[what - 1] / users;
    }
    return gbps;
}

/* Something of ms that runs at 1 / slowdown as long as another does, for other_ms. */
static double beside(double slowdown, double ms, double other_ms)
{
    return slowdown * ms <= other_ms ? slowdown * ms : ms + other_ms * (1 - 1 / slowdown);
}

static double factor(double v)
{
    return v > 1 ? v : 1;
}

static void stretch(double *ms, int n, double from, double to)
{
    for (int p = 0; p < n && from > 0; p++)
        ms[p] *= to / from;
}

/* Sets what transfers take from the links, and stretches blocks and transfers that are
 * under way together: block k + 1 comes to rank i while it computes block k. */
static void set_links(const hcp_ring *ring, const hcp_question *q, int m, const int *rank,
                      const int64_t *len, int64_t tile)
{
    static double alone[REFERENCE_RANKS][REFERENCE_RANKS];

    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++)
            alone[i][k] = sum(ring_block[i][k].t, ring_block[i][k].n);
    for (int i = 0; i < m; i++)
        alone[i][0] = ring_block[i][0].t[0];
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;
        const hcp_link *link = link_of(q, rank[from], rank[i]);
        double gbps;

        if (!link)
            continue;
        gbps = shared_speed(q, m, rank, link);
        for (int k = 1; k < m; k++) {
            struct block *b = &ring_block[i][k], *before = &ring_block[i][k - 1];
            int64_t l = len[(i - k + m) % m], at = 0, tiles = (l + tile - 1) / tile;
            double transfer, block, peer = alone[from][k - 1];
            int n = 0;

            for (int64_t p = 1; p <= q->sub_blocks; p++) {
                int64_t to = tile * (tiles * p / q->sub_blocks);

                to = to > l ? l : to;
                if (to == at)
                    continue;
                b->send[n] = link->alpha_us / 1e3;
                if (gbps > 0)
                    b->send[n] += (double)(to - at) * ring->token_bytes / (gbps * 1e6);
                n++;
                at = to;
            }
            if (!ring_block[from][k - 1].sent)
                continue;
            transfer = sum(b->send, b->n);
            block = factor(link->slowdown) * alone[i][k - 1];
            block = beside(factor(link->transfer_slowdown), transfer,
                           block > peer ? block : peer);
            stretch(b->send, b->n, transfer, block);
            transfer = block;
            block = beside(factor(link->slowdown), alone[i][k - 1], transfer);
            stretch(before->t, k == 1 ? 1 : before->n, alone[i][k - 1], block);
            b->overhead = b->works || !q->kv_tokens ? link->overhead_us / 1e3 : 0;
        }
    }
}

/* The last split that was set up: many orders are asked of one. */
static struct {
    const hcp_ring *ring; /* NULL: none */
    hcp_model_kind kind;
    hcp_question q;
    int64_t tokens[REFERENCE_RANKS], len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS], m;
} known;

/* The ranks with tokens, their blocks, and which of these travel on; returns their
 * number.
 */
static int set_up(const hcp_ring *ring, hcp_model_kind kind, const hcp_question *q,
                  const int64_t *tokens, int *rank, int64_t *len)
{
    int64_t tile = reference_tile(ring, q), kv[REFERENCE_RANKS] = {0};
    int m = 0;

    if (known.ring == ring && known.kind == kind && !memcmp(&known.q, q, sizeof *q) &&
        !memcmp(known.tokens, tokens, ring->n * sizeof *tokens)) {
        memcpy(rank, known.rank, sizeof known.rank);
        memcpy(len, known.len, sizeof known.len);
        return known.m;
    }
    for (size_t r = 0; r < ring->n; r++) {
        if (tokens[r] == 0 && (!q->kv_tokens || q->kv_tokens[r] == 0))
            continue;
        rank[m] = (int)r;
        work_before[m] = (ring->ranks[r].spec.linear_before_us * (double)tokens[r] +
                          ring->ranks[r].spec.linear_before_fixed_us) /
                         1e3 * ring->ranks[r].scale;
        work_after[m] = (ring->ranks[r].spec.linear_after_us * (double)tokens[r] +
                         ring->ranks[r].spec.linear_after_fixed_us) /
                        1e3 * ring->ranks[r].scale;
        kv[m] = q->kv_tokens ? q->kv_tokens[r] : tokens[r];
        len[m++] = tokens[r];
    }
    lay_out(q, m, len, held);
    lay_out(q, m, kv, held_kv);
    memcpy(len, kv, sizeof kv);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) {
            int j = (i - k + m) % m;

            set_block(&ring_block[i][k], ring, ring->ranks[rank[i]].model[kind], q, tile,
                      i, j, len[j]);
        }
    /* Block k of rank i travels on if a rank behind i still has work on it. */
    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) {
            ring_block[i][k].sent = 0;
            for (int h = 1; k + h < m; h++)
                ring_block[i][k].sent |=
                    ring_block[(i + h) % m][k + h].works && len[(i - k + m) % m] > 0;
        }
    known.ring = ring;
    known.kind = kind;
    known.q = *q;
    known.m = m;
    memcpy(known.tokens, tokens, ring->n * sizeof *tokens);
    memcpy(known.rank, rank, sizeof known.rank);
    memcpy(known.len, len, sizeof known.len);
    return m;
}

double reference_makespan(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *q, const int64_t *tokens)
{
    int64_t len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS], m = set_up(ring, kind, q, tokens, rank, len);
    double makespan = 0;

    known.ring = NULL; /* what follows changes the blocks; rings come and go */
    if (q->n_links > 0)
        set_links(ring, q, m, rank, len, reference_tile(ring, q));
    if (q->barrier)
        return barrier(m);
    for (int i = 0; i < m; i++)
        ring_block[i][0].fin = work_before[i] + ring_block[i][0].t[0];
    for (int k = 1; k < m; k++)
        for (int i = 0; i < m; i++)
            run_step(q, m, i, k);
    for (int i = 0; i < m; i++)
        makespan = fmax(makespan, ring_block[i][m - 1].fin + work_after[i]);
    return makespan;
}

/* ---- any order of the blocks ---- */

/* What a rank receives, one after the other, and what is known of it so far. */
struct turn {
    double t, send, overhead; /* computing, transfer into the rank */
    int to;                   /* its place among what the next rank receives; -1: none */
    int of;                   /* rank whose KV it is */
    double here, fin;         /* -1: not known, -2: being found out */
};
static struct turn turns[REFERENCE_RANKS][REFERENCE_RANKS + 1]; /* [][0]: the own one */
static int turns_m;
static int32_t turns_buffers;

static double fin_of(int i, int k);

static int place_of(int i, int of)
{
    for (int k = 0; k < turns_m; k++)
        if (turns[i][k].of == of)
            return k;
    return -1;
}

/* When what rank i receives as its k-th is there. */
static double here_of(int i, int k)
{
    struct turn *x = &turns[i][k];
    int from = (i - 1 + turns_m) % turns_m, was = k - turns_buffers;
    double ms;

    if (x->here == -2)
        return INFINITY;
    if (x->here >= 0)
        return x->here;
    x->here = -2;
    ms = here_of(from, place_of(from, x->of));
    if (k > 1)
        ms = fmax(ms, here_of(i, k - 1));
    if (turns_buffers > 0 && was >= 1) {
        ms = fmax(ms, fin_of(i, was));
        if (turns_buffers > 1 && turns[i][was].to >= 0)
            ms = fmax(ms, here_of((i + 1) % turns_m, turns[i][was].to));
    }
    return x->here = ms + x->send;
}

static double fin_of(int i, int k)
{
    struct turn *x = &turns[i][k];

    if (x->fin < 0)
        x->fin = (k > 0 ? fmax(fin_of(i, k - 1), here_of(i, k)) : here_of(i, 0)) + x->t +
                 x->overhead;
    return x->fin;
}

/* Interference: while rank i computes its k-th the (k + 1)-th comes, and the sender is at
 * its own k-th. */
static void disturb(const hcp_question *q, int m, const int *rank, const int *n_into)
{
    static double alone[REFERENCE_RANKS][REFERENCE_RANKS + 1];

    for (int i = 0; i < m; i++)
        for (int k = 0; k <= m; k++)
            alone[i][k] = k <= n_into[i] ? turns[i][k].t : 0;
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;
        const hcp_link *link = link_of(q, rank[from], rank[i]);

        for (int k = 1; link && k <= n_into[i]; k++) {
            struct turn *x = &turns[i][k];
            double own = factor(link->slowdown) * alone[i][k - 1];
            double peer = alone[from][k - 1];

            x->send =
                beside(factor(link->transfer_slowdown), x->send, own > peer ? own : peer);
            turns[i][k - 1].t = beside(factor(link->slowdown), alone[i][k - 1], x->send);
            x->overhead = link->overhead_us / 1e3;
        }
    }
}

double reference_in_order(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *q, const int64_t *tokens,
                          const struct reference_orders *orders)
{
    int64_t len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS], m = set_up(ring, kind, q, tokens, rank, len);
    double makespan = 0;

    turns_m = m;
    turns_buffers = q->buffers;
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;
        const hcp_link *link = q->n_links ? link_of(q, rank[from], rank[i]) : NULL;

        for (int k = 0; k < m; k++)
            turns[i][k] = (struct turn){.of = -1, .to = -1};
        turns[i][0] = (struct turn){.of = i,
                                    .to = -1,
                                    .t = ring_block[i][0].t[0],
                                    .here = work_before[i],
                                    .fin = -1};
        for (int k = 1; k <= orders->n_into[i]; k++) {
            int j = orders->into[i][k - 1];
            const struct block *b = &ring_block[i][(i - j + m) % m];
            struct turn *x = &turns[i][k];

            *x = (struct turn){.of = j,
                               .to = -1,
                               .t = b->t[0],
                               .send = b->send[0],
                               .here = -1,
                               .fin = -1};
            if (link) {
                double gbps = shared_speed(q, m, rank, link);

                x->send = link->alpha_us / 1e3;
                if (gbps > 0)
                    x->send += (double)len[j] * ring->token_bytes / (gbps * 1e6);
            }
        }
    }
    for (int i = 0; i < m; i++)
        for (int k = 0; k <= orders->n_into[i] && k < m; k++)
            if (ring_block[i][(i - turns[i][k].of + m) % m].sent)
                turns[i][k].to = place_of((i + 1) % m, turns[i][k].of);
    if (q->n_links > 0)
        disturb(q, m, rank, orders->n_into);
    for (int i = 0; i < m; i++)
        makespan = fmax(makespan, fin_of(i, orders->n_into[i]) + work_after[i]);
    return makespan;
}

void reference_slots(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens,
                     const int32_t *slots, struct reference_orders *out)
{
    int64_t len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS], m = set_up(ring, HCP_MODEL_BEST, q, tokens, rank, len),
                               most = 0;

    for (int i = 0; i < m; i++)
        most = slots[rank[i]] > most ? slots[rank[i]] : most;
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;

        out->n_into[i] = 0;
        /* By slot, lateness, distance: one after the other, whichever is due next. */
        for (int due = 0; due < most + m; due++)
            for (int late = 0; late <= due && late <= most; late++) {
                int h = due - late, j = (from - h + m) % m;

                if (h < m - 1 && slots[rank[j]] == late && ring_block[from][h].sent)
                    out->into[i][out->n_into[i]++] = j;
            }
    }
}

void reference_forget(void)
{
    known.ring = NULL;
}

void reference_memory(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens,
                      int64_t *bytes)
{
    const int64_t *kept;
    int m = 0, i = 0;

    reference_makespan(ring, HCP_MODEL_BEST, q, tokens); /* fills ring_block */
    kept = q->kv_tokens ? q->kv_tokens : tokens;
    for (size_t r = 0; r < ring->n; r++)
        m += tokens[r] > 0 || kept[r] > 0;
    for (size_t r = 0; r < ring->n; r++) {
        int64_t kv = 2 * ring->shape.batch * ring->shape.kv_heads * ring->shape.head_dim *
                     (strcmp(ring->shape.dtype, "fp32") == 0 ? 4 : 2);
        int64_t largest = 0, buffers = q->buffers;

        bytes[r] = 0;
        if (tokens[r] == 0 && kept[r] == 0)
            continue;
        for (int k = 1; k < m; k++) {
            int64_t len = 0;
            int at = 0;

            for (size_t o = 0; o < ring->n; o++)
                if ((tokens[o] > 0 || kept[o] > 0) && at++ == (i - k + m) % m)
                    len = kept[o];
            if (ring_block[(i - 1 + m) % m][k - 1].sent && len > largest)
                largest = len;
        }
        if (buffers == 0 || buffers > m - 1)
            buffers = m - 1;
        bytes[r] = ring->ranks[r].spec.weight_bytes +
                   kept[r] * q->layers * kv + tokens[r] * q->activation_bytes +
                   buffers * largest * kv;
        if (ring_block[i][0].sent && ring_block[i][0].n > 1) /* copied into pieces */
            bytes[r] += kept[r] * kv;
        i++;
    }
}

/* ---- two levels ---- */

/* What happens when, asked from the end: an event's time is that of what it waits for and
 * then some, remembered. Ranks are (node, place), blocks are named by their owner. */
static struct {
    const hcp_question *q;
    int nodes, places;
    double begin[REFERENCE_RANKS]; /* of a rank: its own KV is there */
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

static double two_transfer(const hcp_ring *ring, double alpha_us, double gbps, int64_t len)
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
        two.begin[m] = (ring->ranks[r].spec.linear_before_us * (double)tokens[r] +
                        ring->ranks[r].spec.linear_before_fixed_us) /
                       1e3 * ring->ranks[r].scale;
        end[m] = (ring->ranks[r].spec.linear_after_us * (double)tokens[r] +
                  ring->ranks[r].spec.linear_after_fixed_us) /
                 1e3 * ring->ranks[r].scale;
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
    lay_out(q, m, len, held);
    if (q->node_shared_gbps > 0 &&
        (gbps == 0 || q->node_shared_gbps / two.places < gbps))
        gbps = q->node_shared_gbps / two.places;
    for (int i = 0; i < m; i++) {
        two.in_node[i] = two_transfer(ring, q->link_alpha_us, q->link_gbps, len[i]);
        two.between[i] = two_transfer(ring, q->node_alpha_us, gbps, len[i]);
        for (int j = 0; j < m; j++) {
            struct block b;

            set_block(&b, ring, ring->ranks[rank[i]].model[kind], q, tile, i, j, len[j]);
            if (!b.works)
                return -1;
            two.ms[i][j] = b.t[0];
            two.outer[i][j] = two.inner[i][j] = two.done[i][j] = -1;
        }
    }
    for (int i = 0; i < m; i++)
        makespan = fmax(makespan,
                        two_done(i / two.places, i % two.places, m - 1) + end[i]);
    return makespan;
}

struct best {
    const hcp_ring *ring;
    const hcp_question *q;
    int64_t tokens[3], *out;
    double ms;
};

static void consider(struct best *b)
{
    int64_t bytes[3];
    double ms;

    if (b->ring->memory) {
        reference_memory(b->ring, b->q, b->tokens, bytes);
        for (size_t r = 0; r < b->ring->n; r++)
            if (b->ring->ranks[r].spec.max_bytes > 0 &&
                bytes[r] > b->ring->ranks[r].spec.max_bytes)
                return;
    }
    for (size_t r = 0; r < b->ring->n; r++) {
        int64_t cap = b->ring->ranks[r].spec.max_tokens;

        if (cap > 0 && b->tokens[r] > cap)
            return;
    }
    ms = reference_makespan(b->ring, HCP_MODEL_BEST, b->q, b->tokens);
    if (b->ms < 0 || ms < b->ms) {
        b->ms = ms;
        memcpy(b->out, b->tokens, b->ring->n * sizeof *b->out);
    }
}

double reference_best(const hcp_ring *ring, const hcp_question *q, int64_t *tokens)
{
    struct best b = {.ring = ring, .q = q, .out = tokens, .ms = -1};
    int64_t tile = reference_tile(ring, q);
    int64_t tiles = q->seq_len / tile, rest = q->seq_len % tile;
    int n = (int)ring->n;

    for (int holder = 0; holder < (rest ? n : 1); holder++) {
        for (int64_t c0 = 0; c0 <= tiles; c0++) {
            for (int64_t c1 = 0; c1 <= (n > 1 ? tiles - c0 : 0); c1++) {
                int64_t c2 = tiles - c0 - c1;

                if ((n == 1 && c0 != tiles) || (n == 2 && c2 != 0))
                    continue;
                b.tokens[0] = c0 * tile;
                b.tokens[1] = c1 * tile;
                b.tokens[2] = n == 3 ? c2 * tile : 0;
                b.tokens[holder] += rest;
                consider(&b);
            }
        }
    }
    return b.ms;
}

/* Into the next split of the tiles and the rest, the first being all with rank 0; 0 at
 * the end. */
static int next_split(int n, int64_t tile, int64_t rest, int64_t *tokens, int *holder)
{
    int i = 0;

    tokens[*holder] -= rest;
    while (tokens[i] == 0 && i < n - 1)
        i++;
    if (i == n - 1) { /* all with the last rank */
        int64_t all = tokens[i];

        if (rest == 0 || ++*holder == n)
            return 0;
        tokens[i] = 0;
        tokens[0] = all;
    } else {
        int64_t left = tokens[i] - tile;

        tokens[i] = 0;
        tokens[i + 1] += tile;
        tokens[0] = left;
    }
    tokens[*holder] += rest;
    return 1;
}

static int fits_memory(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens)
{
    int64_t bytes[REFERENCE_RANKS];

    for (size_t r = 0; ring->memory && r < ring->n; r++) {
        int64_t cap = ring->ranks[r].spec.max_bytes;

        if (r == 0)
            reference_memory(ring, q, tokens, bytes);
        if (cap > 0 && bytes[r] > cap)
            return 0;
    }
    return 1;
}

double reference_joint_best(const hcp_ring *ring, const hcp_question *question,
                            int64_t *tokens, int64_t *kv)
{
    hcp_question q = *question;
    int64_t tile = reference_tile(ring, &q), rest = q.seq_len % tile;
    int64_t try_q[REFERENCE_RANKS], try_kv[REFERENCE_RANKS] = {q.seq_len};
    int n = (int)ring->n, kv_holder = 0;
    double best = -1;

    q.kv_tokens = try_kv;
    do {
        int q_holder = 0, fits = 1;

        for (int r = 0; r < n; r++) {
            int64_t cap = ring->ranks[r].spec.max_tokens;

            fits &= cap == 0 || try_kv[r] <= cap;
            try_q[r] = r == 0 ? q.seq_len : 0;
        }
        if (!fits)
            continue;
        do {
            double ms = reference_makespan(ring, HCP_MODEL_BEST, &q, try_q);

            if ((best >= 0 && ms >= best) || !fits_memory(ring, &q, try_q))
                continue;
            best = ms;
            memcpy(tokens, try_q, (size_t)n * sizeof *tokens);
            memcpy(kv, try_kv, (size_t)n * sizeof *kv);
        } while (next_split(n, tile, rest, try_q, &q_holder));
    } while (next_split(n, tile, rest, try_kv, &kv_holder));
    return best;
}
