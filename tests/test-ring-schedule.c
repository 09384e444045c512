/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's schedule against the mask written out: over all ranks every visible (query,
 * key) pair is computed once and nothing else; blocks go exactly as far as they are
 * needed; pieces cover blocks; what one rank sends the next one receives. Layouts of the
 * planner, and runs of tokens dealt to ranks at random. HCP_TEST_SCALE=100: more splits.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "executor/schedule.h"
#include "tests/plan-fixture.h"

enum { RANKS = 7, LENGTH = 150, STRIPES = 16, DEALT = 4 /* beside hcp_layout */ };

struct split {
    hcp_plan plan;
    hcp_plan_rank ranks[RANKS];
    hcp_segment segments[2 * (RANKS * STRIPES + LENGTH)];
    int64_t tokens[RANKS], kv[RANKS]; /* queries and KV */
    int layout;                       /* hcp_layout or DEALT */
    int32_t sub_blocks;
    int64_t position[RANKS][LENGTH]; /* of each rank's queries, in memory order */
    int64_t kv_position[RANKS][LENGTH];
    int m, active[RANKS];
};

/* What the split is, for messages. */
static void describe(const struct split *s)
{
    print_error("length %lld, layout %d, %d stripes, %s, tile %lld, %d pieces, tokens",
                (long long)s->plan.seq_len, s->layout, (int)s->plan.stripes,
                s->plan.causal ? "causal" : "full", (long long)s->plan.tile,
                (int)s->sub_blocks);
    for (size_t r = 0; r < s->plan.n_ranks; r++)
        print_error(" %lld", (long long)s->tokens[r]);
    for (size_t r = 0; s->plan.joint && r < s->plan.n_ranks; r++)
        print_error("%s%lld", r ? " " : ", KV ", (long long)s->kv[r]);
    for (size_t r = 0; s->plan.late_kv && r < s->plan.n_ranks; r++)
        print_error("%s%d", r ? " " : ", late by ", (int)s->ranks[r].late_slots);
    print_error("\n");
}

#define MUST(what)                                                                       \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            describe(s);                                                                 \
            print_error("line %d: %s\n", __LINE__, #what);                               \
            fail();                                                                      \
        }                                                                                \
    } while (0)

static int64_t *shares(struct split *s, int kv)
{
    return kv ? s->kv : s->tokens;
}

/* Segments behind those that the plan has: of a rank's queries, or its KV. */
static void set_segments(struct split *s, size_t r, int kv, int64_t n)
{
    int64_t first = (int64_t)s->plan.n_segments;

    *(kv ? &s->ranks[r].first_kv_segment : &s->ranks[r].first_segment) = first;
    *(kv ? &s->ranks[r].n_kv_segments : &s->ranks[r].n_segments) = n;
    s->plan.n_segments += (size_t)n;
}

/* Runs of random length to random ranks. */
static void deal_segments(struct split *s, int kv, uint64_t *seed)
{
    static struct {
        int64_t length;
        size_t rank;
    } run[LENGTH];
    int64_t at = 0, n_runs = 0, offset = 0;
    size_t ranks = s->plan.n_ranks;

    memset(shares(s, kv), 0, sizeof s->tokens);
    for (; at < s->plan.seq_len; at += run[n_runs++].length) {
        int64_t left = s->plan.seq_len - at;

        run[n_runs].length = fixture_range(seed, 1, left < 40 ? left : 40);
        run[n_runs].rank = (size_t)fixture_range(seed, 0, (int64_t)ranks - 1);
        shares(s, kv)[run[n_runs].rank] += run[n_runs].length;
    }
    for (size_t r = 0; r < ranks; r++) {
        int64_t n = 0;

        offset = 0;
        for (int64_t i = 0; i < n_runs; offset += run[i++].length)
            if (run[i].rank == r)
                s->segments[s->plan.n_segments + (size_t)n++] =
                    (hcp_segment){offset, run[i].length};
        set_segments(s, r, kv, n);
    }
}

static void lay_segments(struct split *s, int kv)
{
    int64_t counts[RANKS];

    if (hcp_layout_segments(s->plan.layout, s->plan.stripes, s->plan.n_ranks,
                            shares(s, kv), s->plan.seq_len,
                            s->segments + s->plan.n_segments, RANKS * STRIPES,
                            counts) != HCP_STATUS_OK)
        fail();
    for (size_t r = 0; r < s->plan.n_ranks; r++)
        set_segments(s, r, kv, counts[r]);
}

static void share_tokens(struct split *s, int kv, uint64_t *seed)
{
    size_t ranks = s->plan.n_ranks;
    int64_t left = s->plan.seq_len, last = (int64_t)ranks - 1, share;

    for (size_t r = 0; r < ranks; r++) {
        int fraction = (int)fixture_range(seed, 0, 3); /* 0: a rank without tokens */

        share = fraction ? fixture_range(seed, 0, left / fraction) : 0;
        shares(s, kv)[r] = share;
        left -= share;
    }
    shares(s, kv)[fixture_range(seed, 0, last)] += left;
}

/* Positions of the tokens of n segments, in memory order; their number. */
static int64_t list_positions(const hcp_segment *segments, int64_t n, int64_t *out)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < segments[i].length; j++)
            out[count++] = segments[i].offset + j;
    return count;
}

static void random_split(struct split *s, uint64_t *seed)
{
    int64_t longest = fixture_range(seed, 0, 3) == 0 ? 12 : LENGTH;

    memset(s, 0, sizeof *s);
    s->plan.size = sizeof s->plan;
    s->plan.ranks = s->ranks;
    s->plan.segments = s->segments;
    s->plan.n_ranks = (size_t)fixture_range(seed, 1, RANKS);
    s->plan.seq_len = fixture_range(seed, 1, longest);
    s->plan.causal = (int32_t)fixture_range(seed, 0, 3) > 0;
    s->plan.stripes = (int32_t)fixture_range(seed, 1, STRIPES);
    s->plan.tile = fixture_range(seed, 0, 1) ? 1 : fixture_range(seed, 1, 64);
    s->sub_blocks = (int32_t)fixture_range(seed, 1, 5);
    if (fixture_range(seed, 0, 9) == 0)
        s->sub_blocks = 64; /* more pieces than tiles */
    s->plan.sub_blocks = s->sub_blocks;
    s->layout = (int)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, DEALT);
    s->plan.joint = (int32_t)fixture_range(seed, 0, 1);
    for (int kv = 0; kv <= s->plan.joint; kv++) {
        if (s->layout == DEALT) {
            deal_segments(s, kv, seed);
        } else {
            s->plan.layout = (hcp_layout)s->layout;
            share_tokens(s, kv, seed);
            lay_segments(s, kv);
        }
    }
    for (size_t r = 0; r < s->plan.n_ranks; r++) {
        hcp_plan_rank *rank = &s->ranks[r];

        if (!s->plan.joint) {
            s->kv[r] = s->tokens[r];
            rank->first_kv_segment = rank->first_segment;
            rank->n_kv_segments = rank->n_segments;
        }
        rank->tokens = s->tokens[r];
        rank->kv_tokens = s->kv[r];
        MUST(list_positions(s->segments + rank->first_segment, rank->n_segments,
                            s->position[r]) == s->tokens[r]);
        MUST(list_positions(s->segments + rank->first_kv_segment, rank->n_kv_segments,
                            s->kv_position[r]) == s->kv[r]);
        if (s->tokens[r] > 0 || s->kv[r] > 0)
            s->active[s->m++] = (int)r;
    }
    if (s->plan.joint)
        return;
    s->plan.late_kv = (int32_t)fixture_range(seed, 0, 1);
    for (size_t r = 0; s->plan.late_kv && r < s->plan.n_ranks; r++)
        s->ranks[r].late_slots =
            (int32_t)(fixture_range(seed, 0, 1) * fixture_range(seed, 1, RANKS));
}

static int visible(const struct split *s, int64_t query, int64_t key)
{
    return !s->plan.causal || key <= query;
}

/* Whether rank i has work on rank j's KV. */
static int needs(const struct split *s, int i, int j)
{
    for (int64_t q = 0; q < s->tokens[i]; q++)
        for (int64_t k = 0; k < s->kv[j]; k++)
            if (visible(s, s->position[i][q], s->kv_position[j][k]))
                return 1;
    return 0;
}

/* Pieces in order without gaps, cut where the formula says; of the whole block. */
static void check_pieces(const struct split *s, const struct ring_piece *pieces, size_t n,
                         int64_t tokens)
{
    int64_t tile = s->plan.tile, tiles = (tokens + tile - 1) / tile, at = 0;
    size_t piece = 0;

    for (int32_t p = 1; p <= s->sub_blocks; p++) {
        int64_t cut = tile * (tiles * p / s->sub_blocks);

        cut = cut < tokens ? cut : tokens;
        if (cut == at)
            continue;
        MUST(piece < n);
        MUST(pieces[piece].first == at && pieces[piece].tokens == cut - at);
        at = cut;
        piece++;
    }
    MUST(piece == n && at == tokens);
}

/* Counts every pair that the calls of a piece compute. */
static void count_pairs(const struct split *s, const struct ring_schedule *made,
                        const struct ring_step *step, const struct ring_piece *piece,
                        unsigned char times[LENGTH][LENGTH])
{
    for (size_t c = piece->call; c < piece->call + piece->n_calls; c++) {
        const struct ring_call *call = &made->calls[c];

        MUST(c < made->n_calls);
        MUST(call->row >= 0 && call->rows > 0 && call->row + call->rows <= made->tokens);
        MUST(call->keys > 0 && call->keys <= piece->tokens);
        /* Of a piece, rows rise and runs of equal keys are one call. */
        MUST(c == piece->call || call->row >= call[-1].row + call[-1].rows);
        MUST(c == piece->call || call->row > call[-1].row + call[-1].rows ||
             call->causal != call[-1].causal ||
             call->keys - (call->causal ? call->rows : 0) != call[-1].keys);
        MUST(!call->causal || step == made->steps || s->plan.joint);
        MUST(!call->causal || call->keys >= call->rows);
        MUST(s->plan.joint || !call->causal ||
             (call->rows == made->tokens && call->keys == made->tokens));
        for (int64_t i = 0; i < call->rows; i++) {
            int64_t keys = call->keys - (call->causal ? call->rows - 1 - i : 0);
            int64_t query = s->position[made->rank][call->row + i];

            for (int64_t j = 0; j < keys; j++)
                times[query][s->kv_position[step->block_of][piece->first + j]]++;
        }
    }
}

/* What is due before what, as hcpplan.h says of late_kv: block of rank s->active[a] and
 * that of s->active[b] into the rank that is `to`. */
static int due_before(const struct split *s, int to, int a, int b)
{
    int ha = (to - a - 1 + 2 * s->m) % s->m, hb = (to - b - 1 + 2 * s->m) % s->m;
    int late_a = s->ranks[s->active[a]].late_slots;
    int late_b = s->ranks[s->active[b]].late_slots;

    if (ha + late_a != hb + late_b)
        return ha + late_a < hb + late_b;
    return late_a != late_b ? late_a < late_b : ha < hb;
}

/* Each row is in a call of the own block or blank, not both. */
static void check_blank(const struct split *s, const struct ring_schedule *made)
{
    unsigned char rows[LENGTH] = {0};

    for (size_t c = 0; c < made->pieces[0].n_calls; c++)
        for (int64_t i = 0; i < made->calls[c].rows; i++)
            rows[made->calls[c].row + i]++;
    for (size_t b = 0; b < made->n_blank; b++)
        for (int64_t i = 0; i < made->blank[b].rows; i++)
            rows[made->blank[b].row + i]++;
    for (int64_t i = 0; i < made->tokens; i++)
        MUST(rows[i] == 1);
    MUST(s->plan.joint || made->n_blank == 0);
}

static void check_rank(const struct split *s, const struct ring_schedule *made,
                       unsigned char times[LENGTH][LENGTH])
{
    int64_t largest = 0;
    size_t pieces = 0;

    MUST(made->n_ranks == (int32_t)s->plan.n_ranks && made->m == s->m);
    MUST(made->tokens == s->tokens[made->rank]);
    MUST(made->kv_tokens == s->kv[made->rank]);
    if (made->tokens == 0 && made->kv_tokens == 0) {
        MUST(made->index == -1 && made->before == -1 && made->after == -1);
        MUST(!made->steps && made->n_calls == 0 && made->n_send_pieces == 0);
        return;
    }
    MUST(s->active[made->index] == made->rank);
    MUST(made->before == (s->m > 1 ? s->active[(made->index + s->m - 1) % s->m] : -1));
    MUST(made->after == (s->m > 1 ? s->active[(made->index + 1) % s->m] : -1));
    for (int k = 0; k < s->m; k++) {
        const struct ring_step *step = &made->steps[k];
        int back = k, j, here = 0, later = 0;

        for (int h = 0; s->plan.late_kv && h < s->m; h++)
            if (s->active[(made->index - h + s->m) % s->m] == step->block_of)
                back = h;
        j = s->active[(made->index - back + s->m) % s->m];
        MUST((k == 0) == (back == 0));
        for (int i = 0; i < k; i++)
            MUST(made->steps[i].block_of != step->block_of);
        if (k > 1 && s->plan.late_kv)
            MUST(made->steps[k - 1].receive || !step->receive);
        for (int i = 1; step->receive && i < k; i++)
            for (int a = 0; s->plan.late_kv && a < s->m; a++)
                if (s->active[a] == made->steps[i].block_of)
                    MUST(due_before(s, made->index, a,
                                    (made->index - back + s->m) % s->m));
        for (int h = 0; back + h < s->m; h++) {
            int at = s->active[(made->index + h) % s->m], need = needs(s, at, j);

            here |= need;
            later |= need && h > 0;
        }
        MUST(step->block_of == j && step->tokens == s->kv[j]);
        MUST(step->receive == (k > 0 && here));
        MUST(step->send == later);
        MUST(step->piece == pieces);
        pieces += step->n_pieces;
        MUST(pieces <= made->n_pieces);
        if (k == 0)
            MUST(step->n_pieces == 1 && made->pieces[0].first == 0 &&
                 made->pieces[0].tokens == made->kv_tokens);
        else if (step->receive)
            check_pieces(s, made->pieces + step->piece, step->n_pieces, step->tokens);
        else
            MUST(step->n_pieces == 0);
        if (step->receive && step->tokens > largest)
            largest = step->tokens;
        for (size_t p = 0; p < step->n_pieces; p++)
            count_pairs(s, made, step, &made->pieces[step->piece + p], times);
    }
    MUST(pieces == made->n_pieces && largest == made->max_block);
    if (made->steps[0].send)
        check_pieces(s, made->send_pieces, made->n_send_pieces, made->kv_tokens);
    else
        MUST(made->n_send_pieces == 0);
    check_blank(s, made);
}

/* The pieces that a rank sends are those that the next one receives. */
static void check_neighbours(const struct split *s, const struct ring_schedule *from,
                             const struct ring_schedule *to)
{
    int received = 0; /* steps of the next rank that are accounted for */

    MUST(from->own_after == 0 || s->plan.late_kv);
    for (int x = 0; x < s->m; x++) {
        int k = x < from->own_after ? x + 1 : x == from->own_after ? 0 : x;
        const struct ring_step *out = &from->steps[k], *in;
        const struct ring_piece *sent = from->pieces + out->piece, *got;
        size_t n = k == 0 ? from->n_send_pieces : out->n_pieces;

        if (!out->send)
            continue;
        while (++received < s->m && !to->steps[received].receive)
            ;
        MUST(received < s->m);
        in = &to->steps[received];
        got = to->pieces + in->piece;
        MUST(out->block_of == in->block_of && in->receive);
        sent = k == 0 ? from->send_pieces : sent;
        MUST(n == in->n_pieces);
        for (size_t p = 0; p < n; p++)
            MUST(sent[p].first == got[p].first && sent[p].tokens == got[p].tokens);
    }
    while (++received < s->m)
        MUST(!to->steps[received].receive);
}

/* The planner predicts the same blocks received and not received. */
static void check_simulation(struct split *s, const struct ring_schedule *made)
{
    const struct fixture fixture = {
        .device = "d0", .a = 1e-7, .b = 1e-5, .f = 0.01, .tile = 1, .lut = 1};
    hcp_models *models = fixture_models(&fixture, 1);
    const int which[RANKS] = {0};
    hcp_ring *ring = fixture_ring(models, &fixture, which, NULL, s->plan.n_ranks);
    size_t bytes = hcp_workspace_bytes(s->plan.n_ranks), n = 0;
    void *workspace = malloc(bytes);
    hcp_step steps[RANKS * RANKS];
    char text[256] = "";

    if (s->plan.late_kv)
        s->plan.sub_blocks = 1;
    MUST(hcp_plan_simulate(ring, &s->plan, 1, workspace, bytes, text, sizeof text, steps,
                           RANKS * RANKS, &n) == HCP_STATUS_OK);
    MUST(n == (size_t)(s->m * s->m));
    for (size_t i = 0; i < n; i++) {
        const struct ring_schedule *rank = &made[steps[i].rank];
        const struct ring_step *step = &rank->steps[steps[i].step];

        MUST(step->block_of == steps[i].block_of);
        MUST(isnan(steps[i].ready_ms) == (steps[i].step > 0 && !step->receive));
    }
    free(workspace);
    hcp_ring_free(ring);
    fixture_free(models);
}

static void check_split(struct split *s, int simulate)
{
    static unsigned char times[LENGTH][LENGTH];
    struct ring_schedule made[RANKS];
    struct hcp_err err = {0};
    int64_t area = 0, length = s->plan.seq_len;

    memset(times, 0, sizeof times);
    for (size_t r = 0; r < s->plan.n_ranks; r++) {
        int rc = ring_schedule_make(&s->plan, (int32_t)r, s->sub_blocks, &made[r], &err);

        if (rc)
            print_error("%s\n", err.text);
        MUST(rc == HCP_OK);
        check_rank(s, &made[r], times);
        area += ring_schedule_area(&made[r]);
    }
    for (int64_t q = 0; q < length; q++)
        for (int64_t k = 0; k < length; k++)
            MUST(times[q][k] == visible(s, q, k));
    MUST(area == (s->plan.causal ? length * (length + 1) / 2 : length * length));
    for (int i = 0; i < s->m; i++)
        check_neighbours(s, &made[s->active[i]], &made[s->active[(i + 1) % s->m]]);
    if (simulate && s->layout != DEALT)
        check_simulation(s, made);
    for (size_t r = 0; r < s->plan.n_ranks; r++)
        ring_schedule_free(&made[r]);
}

static void schedules_compute_the_mask(void **state)
{
    static struct split s;
    uint64_t seed = 20;
    int splits = (int)(3000 * fixture_scale()), alone = 0, empty = 0, few = 0, kept = 0;
    int apart = 0, passing = 0;

    (void)state;
    for (int i = 0; i < splits; i++) {
        random_split(&s, &seed);
        check_split(&s, i % 4 == 0);
        alone += s.plan.n_ranks == 1;
        empty += (size_t)s.m < s.plan.n_ranks;
        few += s.plan.seq_len < (int64_t)s.plan.n_ranks;
        apart += s.plan.joint;
        for (size_t r = 0; r < s.plan.n_ranks; r++)
            passing += s.tokens[r] == 0 && s.kv[r] > 0;
        kept += s.plan.causal && s.layout == HCP_LAYOUT_CONTIGUOUS && s.m > 2;
    }
    print_message("# %d splits: %d of one rank, %d with ranks without tokens, %d shorter "
                  "than their ranks\n",
                  splits, alone, empty, few);
    assert_true(splits < 1000 || (alone && empty && few && kept && apart && passing));
}

/* A long sequence: lengths that no 32-bit product holds. */
static void areas_of_long_sequences(void **state)
{
    static struct split s;
    struct hcp_err err = {0};
    int64_t area = 0, length = HCP_PLAN_MAX_LEN - 1;

    (void)state;
    s.plan = (hcp_plan){.size = sizeof s.plan,
                        .ranks = s.ranks,
                        .segments = s.segments,
                        .n_ranks = 3,
                        .seq_len = length,
                        .causal = 1,
                        .layout = HCP_LAYOUT_ZIGZAG,
                        .stripes = 8,
                        .tile = 128};
    s.tokens[0] = 128 * 4000001;
    s.tokens[1] = 128;
    s.tokens[2] = length - s.tokens[0] - s.tokens[1];
    lay_segments(&s, 0);
    for (int r = 0; r < 3; r++)
        s.ranks[r].tokens = s.tokens[r];
    for (int32_t r = 0; r < 3; r++) {
        struct ring_schedule made;

        assert_int_equal(ring_schedule_make(&s.plan, r, 5, &made, &err), HCP_OK);
        area += ring_schedule_area(&made);
        ring_schedule_free(&made);
    }
    assert_int_equal(area, length / 2 * (length + 1) + (length + 1) / 2);
}

/* A freed schedule, and one that was never made, can be freed. */
static void freeing_twice(void **state)
{
    static struct split s;
    struct ring_schedule made;
    uint64_t seed = 3;

    (void)state;
    random_split(&s, &seed);
    assert_int_equal(ring_schedule_make(&s.plan, 0, 1, &made, NULL), HCP_OK);
    ring_schedule_free(&made);
    assert_null(made.steps);
    ring_schedule_free(&made);
    assert_int_equal(ring_schedule_make(&s.plan, 0, 0, &made, NULL), HCP_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_compute_the_mask),
        cmocka_unit_test(areas_of_long_sequences),
        cmocka_unit_test(freeing_twice),
    };

    return cmocka_run_group_tests_name("ring-schedule", tests, NULL, NULL);
}
