/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "tests/plan-reference-ring.h"

enum { STRIPES = 1024 };

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

void reference_lay_out(const hcp_question *q, int m, const int64_t *len,
                       const int64_t *kv)
{
    lay_out(q, m, len, held);
    lay_out(q, m, kv, held_kv);
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

struct reference_block reference_blocks[REFERENCE_RANKS][REFERENCE_RANKS];
double reference_before[REFERENCE_RANKS], reference_after[REFERENCE_RANKS];

void reference_linear(const hcp_ring *ring, size_t r, int64_t tokens, double *before_ms,
                      double *after_ms)
{
    const hcp_rank *rank = &ring->ranks[r].spec;
    double scale = ring->ranks[r].scale;

    *before_ms =
        (rank->linear_before_us * (double)tokens + rank->linear_before_fixed_us) / 1e3 *
        scale;
    *after_ms = (rank->linear_after_us * (double)tokens + rank->linear_after_fixed_us) /
                1e3 * scale;
}

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

void reference_set_block(struct reference_block *b, const hcp_ring *ring,
                         const hcp_model *model, const hcp_question *q, int64_t tile,
                         int i, int j, int64_t len)
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

static double barrier(int m)
{
    double now = 0, end;

    for (int i = 0; i < m; i++)
        now = fmax(now, reference_before[i]);
    for (int k = 0; k < m; k++) {
        double longest = 0;

        for (int i = 0; i < m; i++) {
            const struct reference_block *b = &reference_blocks[i][k];

            longest = fmax(longest, sum(b->t, b->n) + b->overhead);
            if (b->sent) {
                const struct reference_block *there =
                    &reference_blocks[(i + 1) % m][k + 1];

                longest = fmax(longest, sum(there->send, there->n));
            }
        }
        now += longest;
    }
    end = now;
    for (int i = 0; i < m; i++)
        end = fmax(end, now + reference_after[i]);
    return end;
}

/* When the buffer is free into which rank i receives its block k: what was in it has been
 * computed here and has arrived, all of it, at the next rank. */
static double buffer_free(const hcp_question *q, int m, int i, int k)
{
    const struct reference_block *was, *there;
    double free_ms;
    int before = k;

    for (int n = 0; n < q->buffers && before > 0;) /* back by so many that came */
        n += reference_blocks[i][--before].came;
    if (q->buffers == 0 || before < 1) /* block 0 is the own one: in no buffer */
        return 0;
    was = &reference_blocks[i][before];
    free_ms = was->fin;
    if (was->sent && q->buffers > 1) {
        there = &reference_blocks[(i + 1) % m][before + 1];
        free_ms = fmax(free_ms, there->here[there->n - 1]);
    }
    return free_ms;
}

static void run_step(const hcp_question *q, int m, int i, int k)
{
    int from = (i - 1 + m) % m;
    const struct reference_block *there = &reference_blocks[from][k - 1];
    const struct reference_block *before = &reference_blocks[i][k - 1];
    struct reference_block *b = &reference_blocks[i][k];
    double link = 0, now = before->fin;

    b->fin = now;
    if (!there->sent)
        return;
    b->came = 1;
    /* The last block that came over it, too; the first one waits until this rank takes
     * part. */
    link = reference_before[i];
    for (int e = 1; e < k; e++)
        if (reference_blocks[i][e].came)
            link = reference_blocks[i][e].here[reference_blocks[i][e].n - 1];
    link = fmax(link, buffer_free(q, m, i, k));
    for (int p = 0; p < b->n; p++) {
        double at_sender = k == 1 ? reference_before[from] : there->here[p];

        link = fmax(link, at_sender) + b->send[p];
        b->here[p] = link;
        now = fmax(now, b->here[p]) + b->t[p];
    }
    b->fin = now + b->overhead;
}

/* ---- links that differ ---- */

const hcp_link *reference_link(const hcp_question *q, int from, int to)
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

double reference_speed(const hcp_question *q, int m, const int *rank,
                       const hcp_link *link)
{
    double gbps = link->gbps;

    for (int32_t what = 1; what <= (int32_t)q->n_shared; what++) {
        int users = 0;

        for (int i = 0; i < m; i++) {
            int carries = 0;

            for (int k = 0; k < m; k++)
                carries |= reference_blocks[i][k].sent;
            users += carries && uses(reference_link(q, rank[i], rank[(i + 1) % m]), what);
        }
        if (uses(link, what) && users > 0 &&
            (gbps == 0 || q->shared_gbps[what - 1] / users < gbps))
            gbps = q->shared_gbps[what - 1] / users;
    }
    return gbps;
}

double reference_beside(double slowdown, double ms, double other_ms)
{
    return slowdown * ms <= other_ms ? slowdown * ms : ms + other_ms * (1 - 1 / slowdown);
}

double reference_factor(double v)
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
            alone[i][k] = sum(reference_blocks[i][k].t, reference_blocks[i][k].n);
    for (int i = 0; i < m; i++)
        alone[i][0] = reference_blocks[i][0].t[0];
    for (int i = 0; i < m; i++) {
        int from = (i - 1 + m) % m;
        const hcp_link *link = reference_link(q, rank[from], rank[i]);
        double gbps;

        if (!link)
            continue;
        gbps = reference_speed(q, m, rank, link);
        for (int k = 1; k < m; k++) {
            struct reference_block *b = &reference_blocks[i][k],
                                   *before = &reference_blocks[i][k - 1];
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
            if (!reference_blocks[from][k - 1].sent)
                continue;
            transfer = sum(b->send, b->n);
            block = reference_factor(link->slowdown) * alone[i][k - 1];
            block = reference_beside(reference_factor(link->transfer_slowdown), transfer,
                                     block > peer ? block : peer);
            stretch(b->send, b->n, transfer, block);
            transfer = block;
            block = reference_beside(reference_factor(link->slowdown), alone[i][k - 1],
                                     transfer);
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

int reference_set_up(const hcp_ring *ring, hcp_model_kind kind, const hcp_question *q,
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
        reference_linear(ring, r, tokens[r], &reference_before[m], &reference_after[m]);
        kv[m] = q->kv_tokens ? q->kv_tokens[r] : tokens[r];
        len[m++] = tokens[r];
    }
    reference_lay_out(q, m, len, kv);
    memcpy(len, kv, sizeof kv);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) {
            int j = (i - k + m) % m;

            reference_set_block(&reference_blocks[i][k], ring,
                                ring->ranks[rank[i]].model[kind], q, tile, i, j, len[j]);
        }
    /* Block k of rank i travels on if a rank behind i still has work on it. */
    for (int i = 0; i < m; i++)
        for (int k = 0; k < m; k++) {
            reference_blocks[i][k].sent = 0;
            for (int h = 1; k + h < m; h++)
                reference_blocks[i][k].sent |=
                    reference_blocks[(i + h) % m][k + h].works &&
                    len[(i - k + m) % m] > 0;
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

void reference_forget(void)
{
    known.ring = NULL;
}

double reference_makespan(const hcp_ring *ring, hcp_model_kind kind,
                          const hcp_question *q, const int64_t *tokens)
{
    int64_t len[REFERENCE_RANKS];
    int rank[REFERENCE_RANKS], m = reference_set_up(ring, kind, q, tokens, rank, len);
    double makespan = 0;

    reference_forget(); /* what follows changes the blocks; rings come and go */
    if (q->n_links > 0)
        set_links(ring, q, m, rank, len, reference_tile(ring, q));
    if (q->barrier)
        return barrier(m);
    for (int i = 0; i < m; i++)
        reference_blocks[i][0].fin = reference_before[i] + reference_blocks[i][0].t[0];
    for (int k = 1; k < m; k++)
        for (int i = 0; i < m; i++)
            run_step(q, m, i, k);
    for (int i = 0; i < m; i++)
        makespan = fmax(makespan, reference_blocks[i][m - 1].fin + reference_after[i]);
    return makespan;
}
