/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of the decode phase as text, and what is refused and why.
 */
#include "tests/decode-fixture.h"

static char text[512];

static void plan_files(void **state)
{
    uint64_t seed = 75;

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct problem_case c;
        struct fixture_plan copy;
        char json[8192], again[8192], bad[8192], *at;

        make_case(&c, &seed);
        if (fixture_split(c.ring, &c.q, &c.p, text, sizeof text)) {
            free_case(&c);
            continue;
        }
        assert_int_equal(hcp_plan_to_json(&c.p.plan, json, sizeof json, NULL), 0);
        assert_non_null(strstr(json, "\"phase\":\"decode\""));
        fixture_plan_init(&copy, c.n);
        if (hcp_plan_from_json(json, strlen(json), text, sizeof text, &copy.plan))
            fail_msg("%s: %s", text, json);
        assert_int_equal(hcp_plan_fingerprint(&copy.plan), c.p.plan.fingerprint);
        assert_int_equal(hcp_plan_to_json(&copy.plan, again, sizeof again, NULL), 0);
        assert_string_equal(json, again);
        /* Another schedule is another plan. */
        copy.plan.merge_ms += 1;
        assert_true(hcp_plan_fingerprint(&copy.plan) != c.p.plan.fingerprint);
        strcpy(bad, json);
        at = strstr(bad, "\"phase\":\"decode\"");
        memcpy(at, "\"chase\"", 7);
        assert_int_equal(
            hcp_plan_from_json(bad, strlen(bad), text, sizeof text, &copy.plan),
            HCP_STATUS_FORMAT);
        strcpy(bad, json);
        at = strstr(bad, "\"schedule\":\"");
        memcpy(at + 12, "tree", 4);
        assert_int_equal(
            hcp_plan_from_json(bad, strlen(bad), text, sizeof text, &copy.plan),
            HCP_STATUS_FORMAT);
        fixture_plan_free(&copy);
        free_case(&c);
    }
}

static void refused(const struct problem_case *c, const hcp_question *q, const char *why)
{
    struct fixture_plan p = c->p;

    assert_int_equal(fixture_split(c->ring, q, &p, text, sizeof text),
                     HCP_STATUS_INVALID);
    if (!strstr(text, why))
        fail_msg("'%s' is not in '%s'", why, text);
}

static void refusals(void **state)
{
    struct decode_kind kinds[2] = {{0.01, 1e-5, 0, 0.02, 0, 64},
                                   {0.01, 1e-4, 0, 0.02, 0, 64}};
    struct problem_case c = {.n = 2, .shape = shape_of(8, 32)};
    int64_t caps[2] = {1 << 26, 1 << 26}, tokens[2] = {1, 1};
    hcp_link link = {.from = 0, .to = 1};
    hcp_step steps[4];
    hcp_question q;
    size_t n;

    (void)state;
    c.models = decode_models(kinds, 2, &c.shape);
    c.ring = decode_ring(c.models, &c.shape, NULL, NULL, NULL, 2);
    fixture_places_init(&c.p, 2);
    hcp_question_init(&c.q);
    c.q.seq_len = 32768;
    q = c.q;
    q.layout = HCP_LAYOUT_ZIGZAG;
    refused(&c, &q, "contiguous");
    q = c.q;
    q.merge = (hcp_merge)4;
    refused(&c, &q, "merge schedule");
    q = c.q;
    q.joint = 1;
    refused(&c, &q, "queries apart");
    q = c.q;
    q.late_kv = 1;
    refused(&c, &q, "late KV");
    q = c.q;
    q.order = HCP_ORDER_FREE;
    refused(&c, &q, "order");
    q = c.q;
    q.links = &link;
    q.n_links = 1;
    refused(&c, &q, "links");
    q = c.q;
    q.node_ranks = 1;
    refused(&c, &q, "nodes");
    q = c.q;
    q.barrier = 1;
    refused(&c, &q, "barrier");
    q = c.q;
    q.sub_blocks = 2;
    refused(&c, &q, "sub-blocks");
    q = c.q;
    q.strategy = HCP_STRATEGY_GIVEN;
    refused(&c, &q, "hcp_plan_evaluate");

    assert_int_equal(fixture_split(c.ring, &c.q, &c.p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(c.p.plan.source, HCP_FROM_INTERPOLATED);
    assert_int_equal(hcp_plan_simulate(c.ring, &c.p.plan, 0, c.p.workspace,
                                       c.p.workspace_bytes, text, sizeof text, steps, 4,
                                       &n),
                     HCP_STATUS_INVALID);
    q = c.q;
    q.seq_len = 1 << 22;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_OUTSIDE);
    assert_non_null(strstr(text, "--phase decode --batch 8"));
    assert_non_null(strstr(text, "--extrapolate"));
    q.strategy = HCP_STRATEGY_POLY;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_NO_MODEL);
    q = c.q;
    assert_int_equal(
        hcp_plan_split(c.ring, &q, c.p.workspace, 10, text, sizeof text, &c.p.plan),
        HCP_STATUS_SPACE);
    q.seq_len = 2;
    q.layout = HCP_LAYOUT_CONTIGUOUS;
    q.extrapolate = 1;
    assert_int_equal(hcp_plan_evaluate(c.ring, &q, tokens, c.p.workspace,
                                       c.p.workspace_bytes, text, sizeof text, &c.p.plan),
                     HCP_STATUS_OK);

    /* By how much memory falls short, and where so much more would do. */
    hcp_ring_free(c.ring);
    c.ring = decode_ring(c.models, &c.shape, NULL, caps, NULL, 2);
    q = c.q;
    assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                     HCP_STATUS_INFEASIBLE);
    assert_non_null(strstr(text, "bytes more on rank 0 would do"));
    caps[0] += strtoll(strstr(text, "8); ") + 4, NULL, 10);
    for (int less = 0; less < 2; less++) {
        hcp_ring_free(c.ring);
        caps[0] -= less;
        c.ring = decode_ring(c.models, &c.shape, NULL, caps, NULL, 2);
        assert_int_equal(fixture_split(c.ring, &q, &c.p, text, sizeof text),
                         less ? HCP_STATUS_INFEASIBLE : HCP_STATUS_OK);
    }
    fixture_places_free(&c.p);
    hcp_ring_free(c.ring);
    hcp_models_free(c.models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_files),
        cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests_name("plan-decode-asked", tests, NULL, NULL);
}
