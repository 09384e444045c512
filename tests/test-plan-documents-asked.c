/* SPDX-License-Identifier: Apache-2.0
 *
 * Several documents in one step: plan files and bad input.
 */
#include "tests/documents-fixture.h"

static void small_problem(struct problem_of *c, const char *lengths)
{
    uint64_t seed = 1;

    fixture_kinds(c->fixtures, KINDS, &seed);
    for (int i = 0; i < KINDS; i++)
        c->fixtures[i].a = 2e-8 * (i + 1);
    c->n = 3;
    hcp_documents_init(&c->q);
    c->q.n_documents = 0;
    for (char *end; *lengths; lengths = *end ? end + 1 : end)
        c->lengths[c->q.n_documents++] = strtoll(lengths, &end, 10);
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank_init(&c->ranks[r]);
        strcpy(c->ranks[r].device, c->fixtures[r].device);
    }
}

/* JSON and back: the same text; damaged texts are refused with a reason. */
static void plan_files(void **state)
{
    static const struct {
        const char *from, *to, *why;
    } damage[] = {
        {"\"schema\":1", "\"schema\":2", "schema"},
        {"\"documents\":4", "\"documents\":5", "a document is missing"},
        {"\"documents\":4", "\"documents\":3", "that there is not"},
        {"\"documents\":4", "\"documents\":4,\"documents\":4", "comes twice"},
        {"[1,0,", "[1,1,", "missing or come twice"},
        {"\"mask\":\"causal\"", "\"mask\":\"full\"", "cut under a full mask"},
        {"\"mask\":\"causal\"", "\"mask\":\"oval\"", "unknown name"},
        {"\"limit\":\"\",\"tokens\":", "\"tokens\":1", "parts do not add up"},
        {"\"parts\":[[", "\"parts\":[[0,0,1],[", "missing or come twice"},
        {"\"parts\":[[", "\"parts\":[[0,0],[", "a part is"},
        {"\"parts\":[[", "\"part\":[[", "without device, tokens or parts"},
        {"\"link_gbps\":50", "\"link_gbps\":-1", "out of range"},
        {"\"exact\":", "\"exact\":0,\"a\":", "expected true or false"},
    };
    struct problem_of *c = &one;
    hcp_documents_plan back;
    hcp_documents_rank ranks[3];
    hcp_document_part parts[16];
    int64_t lengths[16];
    static char json[8192], again[8192], bad[8192];
    size_t needed, n_ranks, n_parts, n_documents;
    hcp_plan ring_plan;
    hcp_plan_rank ring_ranks[3];
    hcp_segment segments[3];

    (void)state;
    small_problem(c, "30000,700,4096,1");
    c->ranks[1].max_bytes = (int64_t)1 << 30;
    c->ranks[1].weight_bytes = 12345;
    c->ranks[2].max_tokens = 20000;
    c->ranks[2].linear_after_us = 0.25;
    c->ranks[2].linear_error = 0.5;
    c->q.link_gbps = 50;
    c->q.activation_bytes = 7;
    open_problem(c);
    assert_int_equal(split(c), HCP_STATUS_OK);
    assert_true(c->plan.n_cut > 0);
    assert_int_equal(hcp_documents_to_json(&c->plan, NULL, 0, &needed), HCP_STATUS_SPACE);
    assert_true(needed < sizeof json);
    assert_int_equal(hcp_documents_to_json(&c->plan, json, needed, NULL),
                     HCP_STATUS_SPACE);
    assert_int_equal(hcp_documents_to_json(&c->plan, json, needed + 1, NULL),
                     HCP_STATUS_OK);
    assert_int_equal(strlen(json), needed);
    assert_int_equal(hcp_documents_json_counts(json, needed, c->text, sizeof c->text,
                                               &n_ranks, &n_parts, &n_documents),
                     HCP_STATUS_OK);
    assert_int_equal(n_ranks, 3);
    assert_int_equal(n_parts, c->plan.n_parts);
    assert_int_equal(n_documents, 4);
    hcp_documents_plan_init(&back, ranks, 3, parts, 16, lengths, 16);
    if (hcp_documents_from_json(json, needed, c->text, sizeof c->text, &back))
        fail_msg("%s", c->text);
    assert_int_equal(hcp_documents_to_json(&back, again, sizeof again, NULL),
                     HCP_STATUS_OK);
    assert_string_equal(json, again);
    assert_true(hcp_documents_fingerprint(&back) == c->plan.fingerprint);
    assert_memory_equal(lengths, c->lengths, 4 * sizeof *lengths);
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        const char *at = strstr(json, damage[i].from);

        if (!at)
            fail_msg("no %s in %s", damage[i].from, json);
        snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - json), json, damage[i].to,
                 at + strlen(damage[i].from));
        if (hcp_documents_from_json(bad, strlen(bad), c->text, sizeof c->text, &back) !=
                HCP_STATUS_FORMAT ||
            !strstr(c->text, damage[i].why))
            fail_msg("%s for %s: %s", damage[i].to, damage[i].from, c->text);
    }
    for (size_t n = 0; n < needed; n++) /* cut off anywhere */
        assert_int_equal(hcp_documents_from_json(json, n, c->text, sizeof c->text, &back),
                         HCP_STATUS_FORMAT);
    hcp_documents_plan_init(&back, ranks, 2, parts, 16, lengths, 16);
    assert_int_not_equal(
        hcp_documents_from_json(json, needed, c->text, sizeof c->text, &back),
        HCP_STATUS_OK);
    /* It is no plan of one sequence, and says so. */
    hcp_plan_init(&ring_plan, ring_ranks, 3, segments, 3);
    assert_int_equal(
        hcp_plan_from_json(json, needed, c->text, sizeof c->text, &ring_plan),
        HCP_STATUS_FORMAT);
    assert_non_null(strstr(c->text, "for documents"));
    close_problem(c);
}

static void expect(struct problem_of *c, hcp_status status, const char *why)
{
    hcp_status got = split(c);

    if (got != status || !strstr(c->text, why))
        fail_msg("%d, '%s' instead of %d, '%s'", (int)got, c->text, (int)status, why);
}

static void bad_input(void **state)
{
    struct problem_of *c = &one;
    hcp_document_part parts[6] = {{0, 0, 200}, {1, 0, 100}, {1, 100, 200}, {0, 0, 0}};
    int64_t counts[3] = {2, 1, 0};
    hcp_documents good;

    (void)state;
    small_problem(c, "200,300");
    open_problem(c);
    good = c->q;
    assert_int_equal(split(c), HCP_STATUS_OK);
    c->lengths[1] = 0;
    expect(c, HCP_STATUS_INVALID, "document 1 has 0 tokens");
    c->lengths[0] = c->lengths[1] = HCP_PLAN_MAX_LEN;
    expect(c, HCP_STATUS_INVALID, "tokens together");
    c->lengths[0] = 200;
    c->lengths[1] = 300;
    c->q.n_documents = 0;
    expect(c, HCP_STATUS_INVALID, "lengths of 1..");
    c->q = good;
    c->q.cut_gain = NAN;
    expect(c, HCP_STATUS_INVALID, "cut_gain");
    c->q = good;
    c->q.tile = -1;
    expect(c, HCP_STATUS_INVALID, "tile -1");
    c->q = good;
    c->q.layers = -1;
    expect(c, HCP_STATUS_INVALID, "layers");
    c->q = good;
    c->q.link_gbps = -3;
    expect(c, HCP_STATUS_INVALID, "link speed");
    c->q = good;
    c->q.size = 8;
    expect(c, HCP_STATUS_INVALID, "size set");
    c->q = good;
    c->workspace_bytes--;
    expect(c, HCP_STATUS_SPACE, "workspace of");
    c->workspace_bytes++;
    c->plan.parts_capacity = 1;
    expect(c, HCP_STATUS_SPACE, "arrays for");
    c->plan.parts_capacity = 4;
    assert_int_equal(hcp_documents_workspace_bytes(c->ring, 0), 0);
    assert_int_equal(hcp_documents_workspace_bytes(c->ring, HCP_DOCUMENTS_MAX + 1), 0);
    assert_string_equal(hcp_uneven_name(HCP_UNEVEN_CAPS), "caps");
    assert_string_equal(hcp_uneven_name((hcp_uneven)99), "?");

    /* Parts of the caller's own. */
#define EVALUATE()                                                                       \
    hcp_documents_evaluate(c->ring, &c->q, parts, counts, c->workspace,                  \
                           c->workspace_bytes, c->text, sizeof c->text, &c->plan)
    assert_int_equal(EVALUATE(), HCP_STATUS_OK);
    assert_int_equal(c->plan.n_cut, 1);
    parts[2].length = 100;
    assert_int_equal(EVALUATE(), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "add up"));
    parts[2].length = 200;
    counts[1] = 0;
    counts[2] = 1; /* rank 1 is not in play: still neighbours */
    assert_int_equal(EVALUATE(), HCP_STATUS_OK);
    parts[2] = (hcp_document_part){1, 100, 100};
    parts[3] = (hcp_document_part){1, 200, 100};
    counts[2] = 2;
    assert_int_equal(EVALUATE(), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "neighbouring"));
    parts[2] = (hcp_document_part){1, 100, 200};
    counts[2] = 1;
    c->q.causal = 0;
    assert_int_equal(EVALUATE(), HCP_STATUS_INVALID);
    assert_non_null(strstr(c->text, "is cut"));
    close_problem(c);

    /* Caps, and lengths that are not measured. */
    small_problem(c, "2000,3000");
    for (size_t r = 0; r < 3; r++)
        c->ranks[r].max_tokens = 1500;
    open_problem(c);
    expect(c, HCP_STATUS_INFEASIBLE, "short by 500 tokens");
    close_problem(c);
    small_problem(c, "2000,2000");
    for (size_t r = 0; r < 3; r++)
        c->ranks[r].max_tokens = 1500;
    c->q.whole = 1;
    open_problem(c);
    expect(c, HCP_STATUS_INFEASIBLE, "document 0 has 2000 tokens");
    c->q.whole = 0;
    assert_int_equal(split(c), HCP_STATUS_OK);
    check_parts(c);
    close_problem(c);
    small_problem(c, "400000");
    open_problem(c);
    expect(c, HCP_STATUS_OUTSIDE, "document 0 of 400000");
    c->q.extrapolate = 1;
    assert_int_equal(split(c), HCP_STATUS_OK);
    assert_int_equal(c->plan.source, HCP_FROM_EXTRAPOLATED);
    close_problem(c);
    /* Too long to be measured whole: its parts are not. */
    small_problem(c, "90000");
    open_problem(c);
    assert_int_equal(split(c), HCP_STATUS_OK);
    assert_true(c->plan.source < HCP_FROM_EXTRAPOLATED && isnan(c->plan.whole_ms));
    check_parts(c);
    close_problem(c);
    small_problem(c, "500,600,700,800,900,1000,85000,500,500,500,500,500");
    open_problem(c);
    assert_int_equal(split(c), HCP_STATUS_OK);
    assert_int_equal(c->plan.n_cut, 1);
    assert_true(c->plan.imbalance < 0.02);
    check_parts(c);
    close_problem(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_files),
        cmocka_unit_test(bad_input),
    };

    return cmocka_run_group_tests_name("documents-asked", tests, NULL, NULL);
}
