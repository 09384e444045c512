/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs by their data sheet: which measured one a GPU is like, what is said when there is
 * none, and what plans and hashes keep of it.
 */
#include "tests/specs-fixture.h"

/* ---- which kin, and what depends on it ---- */

static const char table[] =
    "big   one 100 1000 1000 50 4000 80 - - big-alias,other made up\n"
    "small one 50  100  100  10 500  24 - - - made up\n"
    "old   two 60  90   -    10 450  24 - - - made up\n"
    "want  one 40  110  110  10 550  16 600 64 wanted,w made up\n"
    "fp16only three 40 - 65 8 320 16 - 32 - made up\n";

static hcp_models *load(const char *text_of_table, int with_old, int with_one)
{
    hcp_db *db = open_db("kin.db");
    hcp_models *models = NULL;
    hcp_specs *specs;
    struct gpu g;
    uint64_t seed = 4;
    char text[900] = "";

    make_gpu(&g, &seed, 0);
    g.poly = 0;
    if (with_one) {
        put(db, &g, "big-alias", "", 100, 0.02, 0.02);
        put(db, &g, "big-alias", "mps:50", 50, 0.02, 0.02);
        put(db, &g, "small", "", 50, 0.02, 0.02);
        put(db, &g, "small", "mps:20", 10, 0.02, 0.02);
        put(db, &g, "unlisted", "", 44, 0.02, 0.02);
    }
    if (with_old)
        put(db, &g, "old", "", 60, 0.02, 0.02);
    hcp_db_close(db);
    if (specs_parse(text_of_table, strlen(text_of_table), "t.txt", text, sizeof text,
                    &specs))
        fail_msg("%s", text);
    if (hcp_models_load_specs(in_folder("kin.db"), specs, text, sizeof text, &models))
        fail_msg("%s", text);
    hcp_specs_free(specs);
    return models;
}

/* The kin and factor of a data sheet, as DEVICE[@LIMIT]; "" and *text: none. */
static const char *kin_of(const hcp_models *models, const char *device_name,
                          const char *limit, double *factor, char *text, size_t size)
{
    static char name[128];
    hcp_rank_estimate e = {.size = sizeof e};
    hcp_ring *ring = bind(models, device_name, device_name, limit, 0, text, size);

    name[0] = 0;
    if (!ring)
        return name;
    hcp_ring_estimate(ring, 1, &e);
    *factor = e.factor;
    snprintf(name, sizeof name, "%s%s%s", e.kin_device, e.kin_limit[0] ? "@" : "",
             e.kin_limit);
    hcp_ring_free(ring);
    return name;
}

static void nearest_kin(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "";
    double near = 0, far = 0, other = 0;

    (void)state;
    /* Generation, then FLOP/s and bandwidth, then the part of the SMs, then the limit. */
    assert_string_equal(kin_of(models, "spec:want", "", &near, text, sizeof text),
                        "small");
    assert_string_equal(kin_of(models, "spec:w", "", &near, text, sizeof text), "small");
    assert_string_equal(kin_of(models, "spec:want", "mps:21", &far, text, sizeof text),
                        "small@mps:20");
    assert_string_equal(kin_of(models, "spec:want", "green:9", &far, text, sizeof text),
                        "small@mps:20");
    assert_string_equal(kin_of(models, "spec:big", "mps:50", &far, text, sizeof text),
                        "big-alias@mps:50");
    assert_string_equal(kin_of(models, "spec:big", "", &far, text, sizeof text),
                        "big-alias");
    assert_string_equal(kin_of(models, "spec:big", "green:10", &far, text, sizeof text),
                        "big-alias@mps:50");
    assert_true(far > near);
    assert_string_equal(kin_of(models, "spec:old", "", &other, text, sizeof text), "old");
    hcp_models_free(models);
    models = load(table, 0, 1);
    assert_string_equal(kin_of(models, "spec:old", "", &other, text, sizeof text),
                        "small");
    assert_true(other > far);
    hcp_models_free(models);
}

static void no_answer(void **state)
{
    static const struct {
        const char *device, *limit, *says;
    } cases[] = {
        {"spec:wan", "",
         "spec:wan: no such GPU in t.txt; did you mean want?; 'hcp-plan "
         "specs' lists them"},
        {"spec:bigger", "", "did you mean big?"},
        {"spec:zzzzzz", "", "no such GPU in t.txt; 'hcp-plan specs' lists them"},
        {"spec:", "", "no such GPU"},
        {"spec:want", "cpu:50", "a GPU is limited by mps:PERCENT or green:SMS"},
        {"spec:want", "green:41", "want has 40 SMs"},
        {"spec:want", "mps:nought", "a GPU is limited by"},
        {"spec:fp16only", "", "has no bf16 FLOP/s; ask for another --dtype"},
    };
    hcp_models *models = load(table, 1, 1), *none;
    char text[900];
    double factor;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *text = 0;
        assert_string_equal(
            kin_of(models, cases[i].device, cases[i].limit, &factor, text, sizeof text),
            "");
        if (!strstr(text, cases[i].says))
            fail_msg("'%s' does not say '%s'", text, cases[i].says);
    }
    hcp_models_free(models);

    none = load(table, 0, 0);
    kin_of(none, "spec:want", "", &factor, text, sizeof text);
    assert_non_null(
        strstr(text, "no measured kin of 'spec:want' (rank 0; bf16, 32/8 heads"));
    assert_non_null(strstr(text, "hcp-profile import --db"));
    hcp_models_free(none);

    assert_int_equal(hcp_models_load(in_folder("kin.db"), text, sizeof text, &none), 0);
    kin_of(none, "spec:want", "", &factor, text, sizeof text);
    assert_non_null(strstr(text, "no table of them is loaded"));
    hcp_models_free(none);
}

/* The table's lines of target and kin count; others do not. */
static uint64_t models_hash_of(const char *of_table, uint64_t *fingerprint)
{
    hcp_models *models = load(of_table, 1, 1);
    char text[900] = "";
    hcp_ring *ring = bind(models, "big-alias", "spec:want", "", 0, text, sizeof text);
    struct fixture_plan p;
    hcp_question q;
    uint64_t h;

    assert_non_null(ring);
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    h = p.plan.models_hash;
    *fingerprint = p.plan.fingerprint;
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    hcp_models_free(models);
    return h;
}

static void replace(char *out, size_t size, const char *from, const char *to)
{
    const char *at = strstr(table, from);

    assert_non_null(at);
    snprintf(out, size, "%.*s%s%s", (int)(at - table), table, to, at + strlen(from));
}

static void hash_covers_lines(void **state)
{
    static const char *const counts[][2] = {{"40  110  110", "40  111  110"},
                                            {"110  110  10", "110  112  10"},
                                            {"550  16", "551  16"},
                                            {"16 600", "17 600"},
                                            {"600 64", "601 64"},
                                            {"64 wanted", "63 wanted"},
                                            {"wanted,w made up", "wanted,w,x made up"},
                                            {"wanted,w made up", "wanted,w made UP"},
                                            {"one 40", "one 42"},
                                            {"50  100  100", "50  101  100"},
                                            {"500  24 - - -", "501  24 - - -"},
                                            {"500  24 - - -", "500  25 - - -"}};
    static const char *const not [][2] = {
        {"450  24", "451  24"}, {"40 - 65", "40 - 66"}, {"big   one", "big     one"}};
    char other[2000];
    uint64_t print, first_print, first = models_hash_of(table, &first_print);

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        replace(other, sizeof other, counts[i][0], counts[i][1]);
        if (models_hash_of(other, &print) == first || print == first_print)
            fail_msg("'%s' does not count", counts[i][1]);
    }
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        replace(other, sizeof other, not [i][0], not [i][1]);
        assert_int_equal(models_hash_of(other, &print), first);
        assert_int_equal(print, first_print);
    }
}

/* ---- what plans say ---- */

static void json_keeps(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "", json[8000], *at;
    hcp_ring *ring =
        bind(models, "big-alias", "spec:want", "mps:50", 0, text, sizeof text);
    struct fixture_plan p, back;
    hcp_question q;

    (void)state;
    assert_non_null(ring);
    fixture_plan_init(&p, 2);
    fixture_plan_init(&back, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(hcp_plan_to_json(&p.plan, json, sizeof json, NULL), HCP_STATUS_OK);
    at = strstr(json, "\"device\":\"spec:want\"");
    assert_non_null(at);
    assert_non_null(strstr(at, "\"source\":\"estimated\",\"estimated_from\":\"small\","
                               "\"measure\":\"hcp-profile run --limits mps:50\"}"));
    assert_true(strstr(json, "estimated_from") > at); /* not of the measured rank */
    assert_non_null(strstr(json, "\"source\":\"estimated\",\"fingerprint\""));
    assert_int_equal(
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &back.plan),
        HCP_STATUS_OK);
    assert_int_equal(back.plan.source, HCP_FROM_ESTIMATED);
    assert_string_equal(back.plan.ranks[1].kin, "small");
    /* It may have been outside the kin's lengths: what follows the plan must not stop. */
    assert_int_equal(hcp_plan_question(&back.plan, &q), HCP_STATUS_OK);
    assert_int_equal(q.extrapolate, 1);
    assert_int_equal(hcp_plan_fingerprint(&back.plan), p.plan.fingerprint);
    memcpy(strstr(json, "\"small\""), "\"sma1l\"", 7);
    assert_int_equal(
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &back.plan),
        HCP_STATUS_OK);
    assert_true(hcp_plan_fingerprint(&back.plan) != p.plan.fingerprint);
    fixture_plan_free(&p);
    fixture_plan_free(&back);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

/* Plans of documents, too; each end of their interval is the last rank's there. */
static void documents_keep(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "", json[8000];
    hcp_ring *ring = bind(models, "big-alias", "spec:want", "", 0, text, sizeof text);
    int64_t lengths[] = {4096, 1024, 640}, out_lengths[2][3];
    hcp_documents_rank ranks[2][2];
    hcp_document_part parts[2][4];
    hcp_documents_plan plan, back;
    hcp_documents q;
    size_t bytes;
    void *workspace;

    (void)state;
    assert_non_null(ring);
    hcp_documents_init(&q);
    q.lengths = lengths;
    q.n_documents = 3;
    bytes = hcp_documents_workspace_bytes(ring, 3);
    workspace = malloc(bytes);
    hcp_documents_plan_init(&plan, ranks[0], 2, parts[0], 4, out_lengths[0], 3);
    hcp_documents_plan_init(&back, ranks[1], 2, parts[1], 4, out_lengths[1], 3);
    if (hcp_documents_split(ring, &q, workspace, bytes, text, sizeof text, &plan))
        fail_msg("%s", text);
    assert_int_equal(plan.source, HCP_FROM_ESTIMATED);
    assert_string_equal(plan.ranks[0].kin, "");
    assert_string_equal(plan.ranks[1].kin, "small");
    assert_true(plan.ranks[1].tokens > 0);
    assert_true(plan.interval_hi_ms >= 1.39 * plan.ranks[1].predicted_ms);
    assert_true(plan.interval_lo_ms >= 0.97 * plan.ranks[0].predicted_ms);
    assert_int_equal(hcp_documents_to_json(&plan, json, sizeof json, NULL),
                     HCP_STATUS_OK);
    assert_non_null(strstr(json, "\"source\":\"estimated\",\"estimated_from\":\"small\","
                                 "\"measure\":\"hcp-profile run\"}"));
    if (hcp_documents_from_json(json, strlen(json), text, sizeof text, &back))
        fail_msg("%s", text);
    assert_int_equal(back.source, HCP_FROM_ESTIMATED);
    assert_string_equal(back.ranks[1].kin, "small");
    assert_int_equal(hcp_documents_fingerprint(&back), plan.fingerprint);
    free(workspace);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

/* A measured rank is seen to become 1.6 times as slow: the other one takes over, and is
 * still a guess. Rings with factors are copies: what they share is freed once. */
static void rebalanced(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "";
    hcp_ring *ring = bind(models, "big-alias", "spec:want", "", 0, text, sizeof text);
    hcp_rebalance *r = NULL;
    struct fixture_plan p;
    const hcp_plan *proposal = NULL;
    hcp_question q;
    int64_t before;

    (void)state;
    assert_non_null(ring);
    fixture_plan_init(&p, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    before = p.plan.ranks[1].tokens;
    assert_int_equal(hcp_rebalance_create(ring, &q, &p.plan, NULL, text, sizeof text, &r),
                     HCP_STATUS_OK);
    for (int t = 0; t < 50 && !proposal; t++) {
        hcp_rebalance_verdict v = {.size = sizeof v};

        /* After as many steps as with measured ranks: that an estimate may be off by a
         * factor is no reason to doubt what has been seen. */
        assert_true(t < 14);
        for (size_t i = 0; i < 2; i++)
            hcp_rebalance_observe(
                r, i, p.plan.ranks[i].compute_ms * (i || t < 10 ? 1 : 1.6), 0);
        assert_int_equal(hcp_rebalance_step(r, 50 - t, text, sizeof text, &v),
                         HCP_STATUS_OK);
        if (v.decision == HCP_REBALANCE_MOVE)
            proposal = hcp_rebalance_proposal(r);
    }
    assert_non_null(proposal);
    assert_true(proposal->ranks[1].tokens > before);
    assert_int_equal(proposal->source, HCP_FROM_ESTIMATED);
    assert_string_equal(proposal->ranks[1].kin, "small");
    assert_true(proposal->interval_hi_ms > 1.3 * proposal->makespan_ms);
    hcp_rebalance_free(r);
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(p.plan.ranks[1].tokens, before); /* the ring is as it was */
    hcp_ring_free(ring);
    fixture_plan_free(&p);
    hcp_models_free(models);
}

static void older_callers(void **state)
{
    hcp_models *models = load(table, 1, 1);
    char text[900] = "";
    hcp_ring *ring = bind(models, "spec:want", "spec:w", "", 0, text, sizeof text);
    hcp_rank_estimate e = {.size = sizeof e - 1};
    hcp_spec spec = {.size = sizeof spec - 1};
    hcp_specs *specs;

    (void)state;
    assert_non_null(ring);
    assert_int_equal(hcp_ring_estimate(ring, 0, &e), HCP_STATUS_INVALID);
    e.size = sizeof e;
    assert_int_equal(hcp_ring_estimate(ring, 2, &e), HCP_STATUS_INVALID);
    assert_int_equal(hcp_ring_estimate(ring, 1, &e), HCP_STATUS_OK);
    assert_string_equal(e.name, "want");
    assert_int_equal(e.memory_bytes, 16000000000);
    assert_int_equal(specs_parse(table, strlen(table), "t", text, sizeof text, &specs),
                     0);
    assert_int_equal(hcp_specs_get(specs, 0, &spec), HCP_STATUS_INVALID);
    spec.size = sizeof spec;
    assert_int_equal(hcp_specs_get(specs, 5, &spec), HCP_STATUS_INVALID);
    assert_int_equal(hcp_specs_get(specs, 4, &spec), HCP_STATUS_OK);
    assert_true(strcmp(spec.name, "fp16only") == 0 && spec.bf16_tflops == 0);
    assert_int_equal(hcp_specs_find(specs, "spec:other", text, sizeof text, &spec), 0);
    assert_string_equal(spec.name, "big");
    assert_int_equal(hcp_specs_find(specs, "nowhere", text, sizeof text, &spec),
                     HCP_STATUS_NO_MODEL);
    hcp_specs_free(specs);
    hcp_specs_free(NULL);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_kin),       cmocka_unit_test(no_answer),
        cmocka_unit_test(hash_covers_lines), cmocka_unit_test(json_keeps),
        cmocka_unit_test(older_callers),     cmocka_unit_test(rebalanced),
        cmocka_unit_test(documents_keep),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
