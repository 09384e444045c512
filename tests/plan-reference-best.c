/* SPDX-License-Identifier: Apache-2.0
 *
 * The best of all splits, and the bytes that one needs.
 */
#include <string.h>
#include "tests/plan-reference-ring.h"

void reference_memory(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens,
                      int64_t *bytes)
{
    const int64_t *kept;
    int m = 0, i = 0;

    reference_makespan(ring, HCP_MODEL_BEST, q, tokens); /* fills reference_blocks */
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
            if (reference_blocks[(i - 1 + m) % m][k - 1].sent && len > largest)
                largest = len;
        }
        if (buffers == 0 || buffers > m - 1)
            buffers = m - 1;
        bytes[r] = ring->ranks[r].spec.weight_bytes + kept[r] * q->layers * kv +
                   tokens[r] * q->activation_bytes + buffers * largest * kv;
        if (reference_blocks[i][0].sent &&
            reference_blocks[i][0].n > 1) /* copied into pieces */
            bytes[r] += kept[r] * kv;
        i++;
    }
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

int reference_fits(const hcp_ring *ring, const hcp_question *q, const int64_t *tokens)
{
    for (size_t r = 0; r < ring->n; r++) {
        int64_t cap = ring->ranks[r].spec.max_tokens;

        if (cap > 0 && tokens[r] > cap)
            return 0;
    }
    return fits_memory(ring, q, tokens);
}

struct best {
    const hcp_ring *ring;
    const hcp_question *q;
    int64_t tokens[3], *out;
    double ms;
};

static void consider(struct best *b)
{
    double ms;

    if (!reference_fits(b->ring, b->q, b->tokens))
        return;
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
