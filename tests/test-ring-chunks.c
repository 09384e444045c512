/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank does in a chunk of a prompt, against the mask written out and against what
 * the planner counts with: over all ranks every query sees every key up to its own
 * position once; the calls are those that predictions are made of, and blocks go as far
 * as the planner lets them. HCP_TEST_SCALE=100: more chunks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "executor/schedule.h"
#include "planner/chunks.h"
#include "tests/plan-fixture.h"

enum { RANKS = 5, STRIPES = 3, CHUNKS = 6, LENGTH = 600, CALLS = 64 };

/* A chunk behind others; the others' KV in runs of earlier layouts. */
struct prompt {
    hcp_plan plan;
    hcp_plan_rank ranks[RANKS];
    hcp_segment segments[RANKS * STRIPES * (CHUNKS + 1)];
    hcp_segment held[RANKS][STRIPES * CHUNKS]; /* KV so far */
    int64_t n_held[RANKS], resident[RANKS], tokens[RANKS];
    int64_t offset, length; /* of the chunk */
};

static void describe(const struct prompt *p)
{
    print_error("%s, %lld tokens from %lld on:", hcp_layout_name(p->plan.layout),
                (long long)p->length, (long long)p->offset);
    for (size_t r = 0; r < p->plan.n_ranks; r++)
        print_error(" %lld+%lld", (long long)p->resident[r], (long long)p->tokens[r]);
    print_error("\n");
}

#define MUST(what)                                                                       \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            describe(p);                                                                 \
            print_error("line %d: %s\n", __LINE__, #what);                               \
            fail();                                                                      \
        }                                                                                \
    } while (0)

/* The next chunk: what was new is resident. */
static void next_chunk(struct prompt *p, uint64_t *seed)
{
    size_t n = p->plan.n_ranks;
    int64_t counts[RANKS], left;
    hcp_segment new[RANKS * STRIPES];
    size_t at = 0;

    p->offset += p->length;
    p->length = left = fixture_range(seed, 1, fixture_range(seed, 0, 1) ? 80 : 9);
    for (size_t r = 0; r < n; r++) {
        p->resident[r] += p->tokens[r];
        p->tokens[r] = fixture_range(seed, 0, 3) ? fixture_range(seed, 0, left) : 0;
        left -= p->tokens[r];
    }
    p->tokens[fixture_range(seed, 0, (int64_t)n - 1)] += left;
    p->plan.layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    if (hcp_layout_segments(p->plan.layout, p->plan.stripes, n, p->tokens, p->length, new,
                            RANKS * STRIPES, counts) != HCP_STATUS_OK)
        fail();
    p->plan.n_segments = 0;
    for (size_t r = 0; r < n; r++) {
        hcp_plan_rank *rank = &p->ranks[r];
        hcp_segment *end = p->segments + p->plan.n_segments;

        for (int64_t i = 0; i < counts[r]; i++, at++) {
            end[i] = (hcp_segment){p->offset + new[at].offset, new[at].length};
            p->held[r][p->n_held[r]++] = end[i];
        }
        memcpy(end + counts[r], p->held[r], (size_t)p->n_held[r] * sizeof *end);
        *rank = (hcp_plan_rank){.tokens = p->tokens[r],
                                .kv_tokens = p->resident[r] + p->tokens[r],
                                .first_segment = (int64_t)p->plan.n_segments,
                                .n_segments = counts[r],
                                .n_kv_segments = p->n_held[r]};
        rank->first_kv_segment = rank->first_segment + counts[r];
        p->plan.n_segments += (size_t)(counts[r] + p->n_held[r]);
    }
}

static void begin(struct prompt *p, uint64_t *seed)
{
    memset(p, 0, sizeof *p);
    hcp_plan_init(&p->plan, p->ranks, RANKS, p->segments,
                  sizeof p->segments / sizeof *p->segments);
    p->plan.n_ranks = (size_t)fixture_range(seed, 1, RANKS);
    p->plan.seq_len = LENGTH;
    p->plan.causal = p->plan.joint = 1;
    p->plan.stripes = (int32_t)fixture_range(seed, 1, STRIPES);
    p->plan.tile = 16;
    p->plan.sub_blocks = 1;
}

/* The position of a rank's query, or key, by its place in memory. */
static int64_t position(const struct prompt *p, int32_t rank, int kv, int64_t i)
{
    const hcp_plan_rank *r = &p->ranks[rank];
    const hcp_segment *s = p->segments + (kv ? r->first_kv_segment : r->first_segment);

    while (i >= s->length)
        i -= s++->length;
    return s->offset + i;
}

/* ---- the mask ---- */

static void mark(const struct prompt *p, const struct ring_schedule *s,
                 const struct ring_call *c, int32_t block_of,
                 unsigned char (*seen)[LENGTH])
{
    MUST(c->rows > 0 && c->keys > 0 && c->row >= 0 && c->row + c->rows <= s->tokens);
    MUST(c->key >= 0 && c->key + c->keys <= p->ranks[block_of].kv_tokens);
    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t j = 0; j < c->keys && (!c->causal || j <= i + c->keys - c->rows);
             j++)
            seen[position(p, s->rank, 0, c->row + i)]
                [position(p, block_of, 1, c->key + j)]++;
}

static void check_mask(const struct prompt *p, struct ring_schedule *schedules)
{
    static unsigned char seen[LENGTH][LENGTH];

    memset(seen, 0, sizeof seen);
    for (size_t r = 0; r < p->plan.n_ranks; r++) {
        const struct ring_schedule *s = &schedules[r];

        for (int32_t k = 0; s->index >= 0 && k < s->m; k++) {
            const struct ring_step *step = &s->steps[k];

            MUST(k == 0 || step->receive == (step->n_pieces > 0));
            MUST(step->n_pieces <= 1);
            for (size_t i = 0; step->n_pieces && i < s->pieces[step->piece].n_calls; i++)
                mark(p, s, &s->calls[s->pieces[step->piece].call + i], step->block_of,
                     seen);
        }
    }
    for (int64_t q = 0; q < LENGTH; q++)
        for (int64_t k = 0; k < LENGTH; k++)
            MUST(seen[q][k] == (q >= p->offset && q < p->offset + p->length && k <= q));
}

/* Where a call of the own block merges its rows have been written before. */
static void check_order(const struct prompt *p, const struct ring_schedule *s)
{
    int64_t written[LENGTH] = {0}, rows = 0;

    for (size_t i = 0; s->index >= 0 && i < s->n_calls; i++) {
        const struct ring_call *c = &s->calls[i];

        if (i >= s->pieces[0].n_calls) {
            MUST(!c->merges);
            continue;
        }
        for (int64_t row = c->row; row < c->row + c->rows; row++)
            MUST(written[row]++ == (c->merges ? 1 : 0));
    }
    for (size_t i = 0; i < s->n_blank; i++)
        rows += s->blank[i].rows;
    MUST(rows == 0); /* a query sees itself */
}

/* ---- the planner ---- */

struct calls {
    int n;
    int64_t q[CALLS], kv[CALLS];
};

static void add(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct calls *c = ctx;

    assert_true(c->n < CALLS);
    c->q[c->n] = q_len;
    c->kv[c->n++] = kv_len;
}

static struct calls planned(const struct prompt *p, size_t i, size_t j)
{
    struct chunks c = {.p = {.layout = p->plan.layout,
                             .stripes = p->plan.stripes,
                             .sub_blocks = 1,
                             .causal = 1}};
    struct calls calls = {0};

    chunks_calls(&c, i, j, p->tokens[i], p->tokens[j], p->resident[j], add, &calls);
    if (i == j && p->tokens[i] > 0)
        add(&calls, p->tokens[i], -p->tokens[i]); /* the causal square */
    return calls;
}

/* Stripes of the same keys may share a call, which are two of the planner's. */
static int shares_calls(const struct prompt *p, size_t i, size_t j)
{
    return p->plan.layout == HCP_LAYOUT_STRIPED && i != j &&
           (p->tokens[i] < p->plan.stripes || p->tokens[j] < p->plan.stripes);
}

static void check_calls(const struct prompt *p, const struct ring_schedule *s)
{
    for (int32_t k = 0; s->index >= 0 && k < s->m; k++) {
        const struct ring_step *step = &s->steps[k];
        struct calls want = planned(p, (size_t)s->rank, (size_t)step->block_of);
        const struct ring_piece *piece = step->n_pieces ? &s->pieces[step->piece] : NULL;

        if (!piece) {
            MUST(want.n == 0);
            continue;
        }
        if (shares_calls(p, (size_t)s->rank, (size_t)step->block_of))
            continue;
        MUST((size_t)want.n == piece->n_calls);
        for (size_t i = 0; i < piece->n_calls; i++) {
            const struct ring_call *c = &s->calls[piece->call + i];
            int at = 0;

            while (at < want.n && (want.q[at] != c->rows ||
                                   want.kv[at] != (c->causal ? -c->keys : c->keys)))
                at++;
            MUST(at < want.n);
            want.n--;
            want.q[at] = want.q[want.n];
            want.kv[at] = want.kv[want.n];
        }
    }
}

/* A block goes to the last rank that the planner has a call on it for. */
static void check_messages(const struct prompt *p, struct ring_schedule *schedules)
{
    int32_t m = 0, rank[RANKS];

    for (size_t r = 0; r < p->plan.n_ranks; r++)
        if (p->tokens[r] > 0 || p->resident[r] > 0)
            rank[m++] = (int32_t)r;
    for (int32_t j = 0; j < m; j++) {
        int32_t far = m - 1;

        while (far > 0 && planned(p, (size_t)rank[(j + far) % m], (size_t)rank[j]).n == 0)
            far--;
        for (int32_t h = 0; h < m; h++) {
            const struct ring_schedule *s = &schedules[rank[(j + h) % m]];
            const struct ring_step *step = &s->steps[h];

            MUST(s->m == m && step->block_of == rank[j]);
            MUST(step->tokens == p->resident[rank[j]] + p->tokens[rank[j]]);
            MUST(step->receive == (h > 0 && h <= far) && step->send == (h < far));
            MUST(h > 0 || s->n_send_pieces == (far > 0 ? 1 : 0));
            MUST(h > 0 || far == 0 ||
                 (s->send_pieces[0].first == 0 &&
                  s->send_pieces[0].tokens == step->tokens));
        }
    }
}

static void chunks_are_the_mask_and_the_planners(void **state)
{
    int rounds = (int)(200 * fixture_scale());
    uint64_t seed = 5;

    (void)state;
    for (int i = 0; i < rounds; i++) {
        static struct prompt prompt;
        const struct prompt *p = &prompt;

        begin(&prompt, &seed);
        for (int k = 0; k < CHUNKS; k++) {
            struct ring_schedule s[RANKS] = {{0}};
            struct hcp_err err = {0};

            next_chunk(&prompt, &seed);
            for (size_t r = 0; r < p->plan.n_ranks; r++) {
                MUST(ring_schedule_chunk(&p->plan, p->offset, p->length, (int32_t)r,
                                         &s[r], &err) == HCP_OK);
                check_order(p, &s[r]);
                check_calls(p, &s[r]);
            }
            check_mask(p, s);
            check_messages(p, s);
            for (size_t r = 0; r < p->plan.n_ranks; r++)
                ring_schedule_free(&s[r]);
        }
    }
}

static void refused(struct prompt *p, int64_t offset, int64_t tokens, const char *text)
{
    struct ring_schedule s;
    struct hcp_err err = {0};

    MUST(ring_schedule_chunk(&p->plan, offset, tokens, 0, &s, &err) == HCP_FAILED);
    assert_non_null(strstr(err.text, text));
}

static void wrong_chunks_are_refused(void **state)
{
    static struct prompt prompt;
    struct prompt *p = &prompt;
    uint64_t seed = 9;

    (void)state;
    begin(p, &seed);
    p->plan.n_ranks = 3;
    for (int k = 0; k < 3; k++)
        next_chunk(p, &seed);
    /* Queries of another chunk, and fewer or more than it has. */
    refused(p, p->offset - 1, p->length, "outside the sequence");
    refused(p, p->offset - 1, p->length + 1, "tokens of a chunk of");
    refused(p, p->offset, p->length + 1, "tokens of a chunk of");
    /* KV that nobody has. */
    for (size_t r = 0; r < 3; r++) {
        if (p->ranks[r].n_kv_segments == 0 || p->resident[r] == 0)
            continue;
        p->ranks[r].kv_tokens -= p->segments[p->ranks[r].first_kv_segment].length;
        p->ranks[r].first_kv_segment++;
        p->ranks[r].n_kv_segments--;
        refused(p, p->offset, p->length, "hold the KV of");
        return;
    }
    fail();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_the_mask_and_the_planners),
        cmocka_unit_test(wrong_chunks_are_refused)};

    return cmocka_run_group_tests_name("ring-chunks", tests, NULL, NULL);
}
