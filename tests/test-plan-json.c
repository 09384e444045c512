/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans as text: what is printed reads back bit for bit, in any locale; what is damaged
 * or inconsistent is refused with a reason.
 */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"

static const struct fixture kinds[2] = {
    {.device = "fast",
     .a = 2e-8,
     .b = 1e-5,
     .c = 1e-6,
     .f = 0.01,
     .tile = 64,
     .lut = 1,
     .poly = 1,
     .error = 0.03},
    {.device = "slow",
     .limit = "mps:10",
     .a = 2e-7,
     .b = 1e-4,
     .c = 1e-6,
     .f = 0.02,
     .tile = 128,
     .poly = 1,
     .error = 0.02},
};

static char *print(const hcp_plan *plan)
{
    size_t needed, again;
    char *json;

    assert_int_equal(hcp_plan_to_json(plan, NULL, 0, &needed), HCP_STATUS_SPACE);
    json = malloc(needed + 1);
    assert_non_null(json);
    assert_int_equal(hcp_plan_to_json(plan, json, needed, &again), HCP_STATUS_SPACE);
    assert_int_equal(hcp_plan_to_json(plan, json, needed + 1, &again), HCP_STATUS_OK);
    assert_int_equal(needed, again);
    assert_int_equal(strlen(json), needed);
    return json;
}

static int same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void round_trip(void **state)
{
    uint64_t seed = 3;
    hcp_models *models = fixture_models(kinds, 2);

    (void)state;
    for (int i = 0; i < 200; i++) {
        size_t n = (size_t)fixture_range(&seed, 1, 12), n_ranks, n_segments;
        int which[12];
        int64_t caps[12] = {0};
        struct fixture_plan a, b;
        hcp_ring *ring;
        hcp_question q;
        char text[512], *json, *again;
        const hcp_plan *p = &a.plan, *r = &b.plan;

        for (size_t k = 0; k < n; k++)
            which[k] = (int)fixture_range(&seed, 0, 1);
        caps[0] = 1 << 17;
        ring = fixture_ring(models, kinds, which, caps, n);
        fixture_plan_init(&a, n);
        fixture_plan_init(&b, n);
        hcp_question_init(&q);
        q.seq_len = fixture_range(&seed, 1, 70000);
        q.causal = (int32_t)fixture_range(&seed, 0, 1);
        q.layout = (hcp_layout)fixture_range(&seed, 0, 3);
        q.stripes = (int32_t)fixture_range(&seed, 1, 16);
        q.strategy = (hcp_strategy)fixture_range(&seed, 0, 5);
        q.extrapolate = 1;
        q.sub_blocks = i % 4 == 0 ? (int32_t)fixture_range(&seed, 2, 64) : 1;
        if (q.strategy == HCP_STRATEGY_LUT)
            q.strategy = HCP_STRATEGY_POLY;
        if (fixture_range(&seed, 0, 1)) {
            q.link_alpha_us = fixture_real(&seed, 0, 10);
            q.link_gbps = fixture_real(&seed, 1, 400);
            q.barrier = 1;
        }
        assert_int_equal(fixture_split(ring, &q, &a, text, sizeof text), HCP_STATUS_OK);
        if (i % 5 == 0) { /* as a split of the caller's own */
            int64_t tokens[12];

            for (size_t k = 0; k < n; k++)
                tokens[k] = p->ranks[k].tokens;
            q.layout = p->layout;
            assert_int_equal(hcp_plan_evaluate(ring, &q, tokens, a.workspace,
                                               a.workspace_bytes, text, sizeof text,
                                               &a.plan),
                             HCP_STATUS_OK);
        }
        json = print(&a.plan);
        assert_int_equal(hcp_plan_json_counts(json, strlen(json), text, sizeof text,
                                              &n_ranks, &n_segments),
                         HCP_STATUS_OK);
        assert_int_equal(n_ranks, n);
        assert_int_equal(n_segments, a.plan.n_segments);
        text[0] = 0;
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &b.plan);
        assert_string_equal(text, "");
        assert_true(same_double(p->makespan_ms, r->makespan_ms));
        assert_true(same_double(p->bound_ms, r->bound_ms));
        assert_true(same_double(p->even_ms, r->even_ms));
        assert_true(same_double(p->drop_ms, r->drop_ms));
        assert_true(same_double(p->interval_lo_ms, r->interval_lo_ms));
        assert_true(same_double(p->interval_hi_ms, r->interval_hi_ms));
        assert_true(same_double(p->link_gbps, r->link_gbps));
        assert_int_equal(p->sub_blocks, q.sub_blocks);
        assert_int_equal(p->sub_blocks, r->sub_blocks);
        assert_int_equal(p->strategy, r->strategy);
        assert_int_equal(p->decision, r->decision);
        assert_int_equal(p->source, r->source);
        assert_true(p->fingerprint == r->fingerprint);
        assert_true(hcp_plan_fingerprint(r) == r->fingerprint);
        again = print(&b.plan);
        assert_string_equal(json, again);
        free(json);
        free(again);
        fixture_plan_free(&a);
        fixture_plan_free(&b);
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

static const char good[] =
    "{\"schema\":1,\"seq_len\":100,\"mask\":\"causal\",\"layout\":\"zigzag\",\"ranks\":["
    "{\"device\":\"a\",\"limit\":\"\",\"tokens\":61,\"segments\":[[0,31],[70,30]]},"
    "{\"device\":\"b\",\"limit\":\"mps:10\",\"tokens\":39,\"segments\":[[31,20],[51,19]]}"
    "],"
    "\"more\":{\"x\":[1,2.5e-3,null,true,\"\\u00e9\"]}}";

static hcp_plan plan; /* read by parse() */

static hcp_status parse(const char *json, char *text, size_t size)
{
    static hcp_plan_rank ranks[4];
    static hcp_segment segments[8];

    text[0] = 0;
    hcp_plan_init(&plan, ranks, 4, segments, 8);
    return hcp_plan_from_json(json, strlen(json), text, size, &plan);
}

/* good with one piece replaced. */
static void refuse(const char *piece, const char *by, const char *why)
{
    char json[1024], text[256];
    const char *at = strstr(good, piece);

    assert_non_null(at);
    snprintf(json, sizeof json, "%.*s%s%s", (int)(at - good), good, by,
             at + strlen(piece));
    if (parse(json, text, sizeof text) != HCP_STATUS_FORMAT || !strstr(text, why)) {
        print_error("'%s' -> '%s': said '%s', wanted '%s'\n", piece, by, text, why);
        fail();
    }
}

static void damage(void **state)
{
    char text[256], json[1024];

    (void)state;
    parse(good, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(plan.sub_blocks, 1); /* of plans that know of none */
    refuse("\"schema\":1", "\"schema\":1,\"sub_blocks\":0", "range");
    refuse("\"schema\":1", "\"schema\":1,\"sub_blocks\":65", "range");
    refuse("\"schema\":1", "\"schema\":1,\"sub_blocks\":null", "number");
    refuse("\"schema\":1", "\"schema\":2", "newer version");
    refuse("\"schema\":1,", "", "missing");
    refuse("\"seq_len\":100", "\"seq_len\":101", "add up");
    refuse("\"seq_len\":100", "\"seq_len\":1e2", "integer");
    refuse("\"seq_len\":100", "\"seq_len\":-100", "integer");
    refuse("\"seq_len\":100", "\"seq_len\":0100", "integer");
    refuse("\"seq_len\":100", "\"seq_len\":100,\"seq_len\":100", "twice");
    refuse("\"causal\"", "\"casual\"", "unknown name");
    refuse("\"zigzag\"", "\"auto\"", "unknown name");
    refuse("\"zigzag\"", "\"contiguous\"", "segments");
    refuse("[0,31]", "[0,32]", "segments do not match");
    refuse("[0,31],[70,30]", "[0,61]", "number of segments");
    refuse("[0,31]", "[0]", "offset, length");
    refuse("[0,31]", "[0,31,1]", "two numbers");
    refuse("\"tokens\":61", "\"tokens\":60", "add up");
    refuse("\"tokens\":61,", "\"tokens\":61,\"kv_tokens\":64,", "kv_tokens");
    refuse("\"tokens\":61", "\"tokens\":61,\"rank\":1", "range");
    refuse("\"limit\":\"\",", "", "lacks");
    refuse("2.5e-3", "2.5e", "number");
    refuse("2.5e-3", ".5", "number");
    refuse("2.5e-3", "NaN", "number");
    refuse("true", "True", "number");
    refuse("\\u00e9", "\\ud800", "surrogate");
    refuse("\\u00e9", "\\x", "escape");
    refuse("\\u00e9", "\n", "control");
    refuse("\"more\"", "more", "expected");
    refuse("]}}", "]}", "expected");
    refuse("]}}", "]}}x", "after the plan");
    for (size_t n = 0; n < sizeof good - 1; n++) { /* cut anywhere */
        snprintf(json, sizeof json, "%.*s", (int)n, good);
        assert_int_equal(parse(json, text, sizeof text), HCP_STATUS_FORMAT);
        assert_true(text[0] != 0);
    }
    memset(json, '[', 1000);
    json[1000] = 0;
    memcpy(json, "{\"x\":", 5);
    assert_int_equal(parse(json, text, sizeof text), HCP_STATUS_FORMAT);
    assert_non_null(strstr(text, "deep"));
}

/* Any one byte changed: refused or read, never a crash; and what is read is consistent.
 */
static void noise(void **state)
{
    uint64_t seed = 1;
    char json[1024], text[256];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        strcpy(json, good);
        for (int64_t k = fixture_range(&seed, 1, 3); k > 0; k--)
            json[fixture_range(&seed, 0, (int64_t)sizeof good - 2)] =
                (char)fixture_range(&seed, 1, 255);
        parse(json, text, sizeof text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip),
                                       cmocka_unit_test(damage), cmocka_unit_test(noise)};

    setlocale(LC_ALL, "");
    return cmocka_run_group_tests_name("plan-json", tests, NULL, NULL);
}
