/* SPDX-License-Identifier: Apache-2.0
 *
 * One prompt in chunks: plan files, and what is refused and why.
 */
#include "tests/chunks-fixture.h"

/* ---- plan files ---- */

static char json[1 << 20], other[1 << 20];

static void plan_files(void **state)
{
    static hcp_chunks_rank ranks[MOST_RANKS];
    static hcp_chunk chunks[64];
    static hcp_chunk_share shares[64 * MOST_RANKS];
    static hcp_segment segments[64 * MOST_RANKS * 8];
    static const int kinds[] = {0, 1, 2};
    struct problem_of *c = &one;
    hcp_chunks_plan plan;
    size_t needed, n_ranks, n_chunks, n_segments;
    uint64_t seed = 3;
    int refused = 0;

    (void)state;
    for (int layout = 0; layout <= HCP_LAYOUT_STRIPED; layout++) {
        open_plain(c, 3, kinds, 9000);
        c->ranks[0].weight_bytes = 5;
        c->q.layout = (hcp_layout)layout;
        c->q.stripes = 5;
        c->q.step_budget_ms = 0.2;
        c->q.link_gbps = layout * 50;
        hcp_chunks_plan_init(&c->plan, ranks, MOST_RANKS, chunks, 64, shares,
                             64 * MOST_RANKS, segments, 64 * MOST_RANKS * 8);
        assert_int_equal(split(c), HCP_STATUS_OK);
        assert_true(c->plan.n_chunks > 1);
        assert_int_equal(hcp_chunks_to_json(&c->plan, NULL, 0, &needed),
                         HCP_STATUS_SPACE);
        assert_true(needed < sizeof json);
        assert_int_equal(hcp_chunks_to_json(&c->plan, json, needed, NULL),
                         HCP_STATUS_SPACE);
        assert_int_equal(hcp_chunks_to_json(&c->plan, json, needed + 1, NULL),
                         HCP_STATUS_OK);
        assert_int_equal(hcp_chunks_json_counts(json, needed, c->text, sizeof c->text,
                                                &n_ranks, &n_chunks, &n_segments),
                         HCP_STATUS_OK);
        assert_int_equal(n_ranks, 3);
        assert_int_equal(n_chunks, c->plan.n_chunks);
        assert_int_equal(n_segments, c->plan.n_segments);
        arrays(c, &plan);
        assert_int_equal(
            hcp_chunks_from_json(json, needed, c->text, sizeof c->text, &plan),
            HCP_STATUS_OK);
        assert_true(hcp_chunks_fingerprint(&plan) == plan.fingerprint);
        assert_int_equal(hcp_chunks_to_json(&plan, other, sizeof other, NULL),
                         HCP_STATUS_OK);
        assert_string_equal(json, other);
        /* One chunk too few, and one segment. */
        plan.chunks_capacity = n_chunks - 1;
        assert_int_equal(
            hcp_chunks_from_json(json, needed, c->text, sizeof c->text, &plan),
            HCP_STATUS_FORMAT);
        arrays(c, &plan);
        plan.segments_capacity = n_segments - 1;
        assert_int_equal(
            hcp_chunks_from_json(json, needed, c->text, sizeof c->text, &plan),
            HCP_STATUS_FORMAT);
        /* A digit of tokens, offsets, residents and segments changed: refused. */
        for (int i = 0, n = fixture_times(300); i < n; i++) {
            size_t at = (size_t)fixture_range(&seed, 0, (int64_t)needed - 1);
            char *in, before;

            strcpy(other, json);
            in = strstr(other + at, i % 4 == 0   ? "\"offset\":"
                                    : i % 4 == 1 ? "\"tokens\":"
                                    : i % 4 == 2 ? "\"resident\":"
                                                 : "\"segments\":[[");
            if (!in)
                continue;
            in = strpbrk(in, "0123456789");
            before = *in;
            *in = (char)('0' + fixture_range(&seed, 0, 9));
            arrays(c, &plan);
            assert_int_equal(hcp_chunks_from_json(other, needed, c->text, sizeof c->text,
                                                  &plan) == HCP_STATUS_OK,
                             *in == before);
            refused += *in != before;
        }
        /* Anything else: no crash, and what is read is consistent. */
        for (int i = 0, n = fixture_times(2000); i < n; i++) {
            strcpy(other, json);
            for (int k = 0; k < 2; k++)
                other[fixture_range(&seed, 0, (int64_t)needed - 1)] =
                    "0123456789,:[]{}\"-e.n"[fixture_range(&seed, 0, 20)];
            arrays(c, &plan);
            if (hcp_chunks_from_json(
                    other,
                    (size_t)fixture_range(&seed, 0, 9)
                        ? needed
                        : (size_t)fixture_range(&seed, 0, (int64_t)needed),
                    c->text, sizeof c->text, &plan) == HCP_STATUS_OK) {
                int64_t sum = 0;

                for (size_t r = 0; r < plan.n_ranks; r++)
                    sum += plan.ranks[r].tokens;
                assert_int_equal(sum, plan.seq_len);
            }
        }
        close_problem(c);
    }
    if (fixture_scale() >= 0.5)
        assert_true(refused > 100);
}

/* ---- bad input ---- */

static void refusals(void **state)
{
    static const int kinds[] = {0, 1};
    static const int64_t lengths[] = {1000, 3000}, short_of[] = {1000, 2999},
                         none[] = {0, 4000};
    static const int64_t tokens[] = {1000, 0, 1000, 2000}, bad[] = {1000, 0, 1000, 1999},
                         negative[] = {1001, -1, 1000, 2000};
    struct problem_of *c = &one;
    hcp_chunks good;

    (void)state;
    open_plain(c, 2, kinds, 4000);
    assert_int_equal(split(c), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "budget"));
    c->q.step_budget_ms = 1;
    good = c->q;
#define REFUSED(member, value, says)                                                     \
    do {                                                                                 \
        c->q = good;                                                                     \
        c->q.member = (value);                                                           \
        assert_int_equal(split(c), HCP_STATUS_INVALID);                                  \
        assert_non_null(strstr(c->text, says));                                          \
    } while (0)
    REFUSED(seq_len, 0, "seq_len");
    REFUSED(seq_len, HCP_PLAN_MAX_LEN + 1, "seq_len");
    REFUSED(step_budget_ms, -1, "step_budget_ms");
    REFUSED(step_budget_ms, NAN, "step_budget_ms");
    REFUSED(step_fixed_ms, INFINITY, "step_fixed_ms");
    REFUSED(chunk_len, -1, "chunk_len");
    REFUSED(layers, 0, "layers");
    REFUSED(layers, 65537, "layers");
    REFUSED(activation_bytes, -1, "activation_bytes");
    REFUSED(layout, (hcp_layout)4, "layout");
    REFUSED(stripes, 0, "stripes");
    REFUSED(tile, -1, "tile");
    REFUSED(buffers, 17, "buffers");
    REFUSED(link_gbps, 1e-9, "link");
    REFUSED(link_alpha_us, -1, "link");
    REFUSED(size, 8, "size set");
    c->q = good;
    assert_int_equal(hcp_chunks_split(c->ring, &c->q, c->workspace, 100, c->text,
                                      sizeof c->text, &c->plan),
                     HCP_STATUS_SPACE);
    assert_int_equal(hcp_chunks_split(c->ring, &c->q, NULL, 0, NULL, 0, &c->plan),
                     HCP_STATUS_SPACE);
    assert_int_equal(hcp_chunks_split(NULL, &c->q, c->workspace, c->workspace_bytes, NULL,
                                      0, &c->plan),
                     HCP_STATUS_INVALID);
    c->q.step_budget_ms = 0.08;
    c->plan.chunks_capacity = 2;
    assert_int_equal(split(c), HCP_STATUS_SPACE);
    assert_non_null(strstr(c->text, "2 chunks, for which there is room"));
    arrays(c, &c->plan);
    c->plan.segments_capacity = 1;
    assert_int_equal(split(c), HCP_STATUS_SPACE);
    arrays(c, &c->plan);
    assert_int_equal(hcp_chunks_workspace_bytes(c->ring, 0), 0);
    assert_int_equal(hcp_chunks_workspace_bytes(c->ring, HCP_CHUNKS_MAX + 1), 0);
    assert_int_equal(hcp_chunks_workspace_bytes(NULL, 1), 0);
    /* Chunks of one's own. */
    c->q = good;
    assert_int_equal(evaluate(c, lengths, 2, tokens), HCP_STATUS_OK);
    check_plan(c);
    assert_int_equal(evaluate(c, lengths, 2, NULL), HCP_STATUS_OK);
    assert_int_equal(c->plan.given, 1);
    check_plan(c);
    assert_int_equal(evaluate(c, NULL, 2, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, lengths, 0, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, short_of, 2, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, none, 2, NULL), HCP_STATUS_INVALID);
    assert_int_equal(evaluate(c, lengths, 2, bad), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "chunk 1 add up to 2999, not 3000"));
    assert_int_equal(evaluate(c, lengths, 2, negative), HCP_STATUS_INVALID);
    c->q.extrapolate = 0;
    c->q.seq_len = 1 << 20;
    c->q.step_budget_ms = 1e6;
    assert_int_equal(split(c), HCP_STATUS_OUTSIDE);
    assert_non_null(strstr(c->text, "--extrapolate"));
    close_problem(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_files),
        cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests_name("plan-chunks-asked", tests, NULL, NULL);
}
