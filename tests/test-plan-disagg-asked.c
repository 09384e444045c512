/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks prefill and which decode, as it is asked: what is refused and why, caps
 * that leave no room, kernels that no two ranks share.
 */
#include "tests/disagg-fixture.h"

static int asked_kinds(struct advising *a, const int *kind_of, size_t n)
{
    static const struct fixture prefill[KINDS] = {{.device = "nvidia-h200",
                                                   .limit = "mps:1",
                                                   .a = 1e-7,
                                                   .f = 0.01,
                                                   .tile = 64,
                                                   .lut = 1},
                                                  {.device = "nvidia-h200",
                                                   .limit = "mps:2",
                                                   .a = 9e-7,
                                                   .f = 0.01,
                                                   .tile = 64,
                                                   .lut = 1},
                                                  {.device = "nvidia-h200",
                                                   .limit = "mps:3",
                                                   .a = 2e-6,
                                                   .f = 0.01,
                                                   .tile = 64,
                                                   .lut = 1}};
    static const struct decode_kind decode[KINDS] = {{0.01, 8e-6, 0, 0.02, 0, 64},
                                                     {0.01, 1e-5, 0, 0.02, 0, 64},
                                                     {0.01, 2e-5, 0, 0.02, 0, 64}};

    make(a, prefill, decode, 4, n, kind_of);
    a->prefill.seq_len = a->decode.seq_len = 2048;
    a->prefill.layers = a->decode.layers = 4;
    a->q.steps = 30;
    a->q.link_gbps = 50;
    a->q.link_alpha_us = 10;
    return 0;
}

static void has(const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in '%s'", part, text);
}

static void refusals(void **state)
{
    int kind_of[4] = {0, 0, 1, 1};
    struct advising a;

    (void)state;
    asked_kinds(&a, kind_of, 4);
    a.n = 1;
    assert_int_equal(bind(&a), HCP_STATUS_INVALID);
    has("below 2 ranks");
    a.n = 4;
    strcpy(a.ranks[3].limit, "mps:9");
    assert_int_equal(bind(&a), HCP_STATUS_NO_MODEL);
    has("'nvidia-h200@mps:9' (rank 3");
    strcpy(a.ranks[3].limit, "mps:2");
    a.shape[1].head_dim = 64;
    assert_int_equal(bind(&a), HCP_STATUS_INVALID);
    has("of one model");
    a.shape[1].head_dim = 128;
    a.shape[0].batch = 5;
    assert_int_equal(bind(&a), HCP_STATUS_INVALID);
    a.shape[0].batch = 1;
    a.ranks[1].decode_linear_us = -1;
    assert_int_equal(bind(&a), HCP_STATUS_INVALID);
    has("rank 1: linear work of a decode step");
    a.ranks[1].decode_linear_us = 0;
    /* One of its models is gone in decode: the command that makes one. */
    for (size_t i = 0; i < a.models->n_stored; i++)
        if (strcmp(hcp_model_row(a.models->stored[i].model)->key.phase, "decode") == 0 &&
            strcmp(hcp_model_row(a.models->stored[i].model)->key.limit, "mps:2") == 0) {
            struct stored_model gone = a.models->stored[i];

            a.models->stored[i] = a.models->stored[--a.models->n_stored];
            assert_int_equal(bind(&a), HCP_STATUS_NO_MODEL);
            has("'nvidia-h200@mps:2' (rank 2");
            has("--limits mps:2 --phase decode --batch 4");
            a.models->stored[a.models->n_stored++] = gone;
            break;
        }
    assert_int_equal(bind(&a), HCP_STATUS_OK);
    assert_int_equal(ask(&a), HCP_STATUS_OK);

#define REFUSED(change, back, code, why)                                                 \
    do {                                                                                 \
        change;                                                                          \
        assert_int_equal(ask(&a), code);                                                 \
        has(why);                                                                        \
        back;                                                                            \
    } while (0)
    REFUSED(a.q.steps = 0, a.q.steps = 30, HCP_STATUS_INVALID, "to generate");
    REFUSED(a.q.objective = 2, a.q.objective = 0, HCP_STATUS_INVALID, "objective");
    REFUSED(a.q.prefill = NULL, a.q.prefill = &a.prefill, HCP_STATUS_INVALID, "prefill");
    REFUSED(a.q.link_gbps = -1, a.q.link_gbps = 50, HCP_STATUS_INVALID, "link");
    REFUSED(a.q.link_gbps = NAN, a.q.link_gbps = 50, HCP_STATUS_INVALID, "link");
    REFUSED(a.q.ttft_limit_ms = NAN, a.q.ttft_limit_ms = 0, HCP_STATUS_INVALID, "limits");
    REFUSED(a.prefill.layers = 0, a.prefill.layers = 4, HCP_STATUS_INVALID, "layers");
    REFUSED(a.prefill.joint = 1, a.prefill.joint = 0, HCP_STATUS_INVALID,
            "about prefill");
    REFUSED(a.decode.node_ranks = 1, a.decode.node_ranks = 0, HCP_STATUS_INVALID,
            "nodes");
    REFUSED(a.prefill.late_kv = 1, a.prefill.late_kv = 0, HCP_STATUS_INVALID, "late KV");
    REFUSED(a.decode.order = 1, a.decode.order = 0, HCP_STATUS_INVALID, "order");
    REFUSED(a.prefill.strategy = HCP_STRATEGY_GIVEN,
            a.prefill.strategy = HCP_STRATEGY_BEST, HCP_STATUS_INVALID,
            "split of your own");
    REFUSED(a.decode.seq_len = 9, a.decode.seq_len = 2048, HCP_STATUS_INVALID,
            "one prompt");
    REFUSED(a.prefill.seq_len = a.decode.seq_len = 0,
            a.prefill.seq_len = a.decode.seq_len = 2048, HCP_STATUS_INVALID,
            "sequence length 0");
    REFUSED(a.prefill.buffers = 99, a.prefill.buffers = 2, HCP_STATUS_INVALID, "buffers");
    REFUSED(a.prefill.seq_len = a.decode.seq_len = 1 << 24,
            a.prefill.seq_len = a.decode.seq_len = 2048, HCP_STATUS_OUTSIDE,
            "outside the measured");
    /* One rank has more keys than were measured in decode: that group is not known. */
    a.prefill.seq_len = a.decode.seq_len = 100000;
    a.decode.extrapolate = 0;
    a.prefill.extrapolate = 1;
    assert_int_equal(ask(&a), HCP_STATUS_OK);
    assert_true(a.out.n_unknown > 0 && a.out.n_unknown < a.out.n_groups);
    a.prefill.extrapolate = 0;
    a.prefill.seq_len = a.decode.seq_len = 2048;
    REFUSED(a.q.ttft_limit_ms = 1e-3, a.q.ttft_limit_ms = 0, HCP_STATUS_INFEASIBLE,
            "least TTFT");
    REFUSED(a.workspace_bytes--, a.workspace_bytes++, HCP_STATUS_SPACE, "workspace");
    REFUSED(a.out.ranks_capacity = 3, a.out.ranks_capacity = 4, HCP_STATUS_SPACE,
            "ranks");
    REFUSED(a.out.prefill->ranks_capacity = 0, a.out.prefill->ranks_capacity = 4,
            HCP_STATUS_SPACE, "arrays for");
    REFUSED(a.out.moves_capacity = 0, a.out.moves_capacity = MOST, HCP_STATUS_SPACE,
            "moves");
    REFUSED(a.out.segments_capacity = 0, a.out.segments_capacity = 600, HCP_STATUS_SPACE,
            "segments");
    a.out.size--;
    assert_int_equal(ask(&a), HCP_STATUS_INVALID);
    a.out.size++;
    assert_int_equal(ask(&a), HCP_STATUS_OK);
    /* Of decode nothing but the link is asked: the same as with defaults. */
    double period = a.out.separate.period_ms;

    a.q.decode = NULL;
    assert_int_equal(ask(&a), HCP_STATUS_OK);
    assert_true(a.out.separate.period_ms == period);
    assert_int_equal(hcp_disagg_workspace_bytes(NULL), 0);
    assert_string_equal(hcp_disagg_decision_name(HCP_DISAGG_SEPARATE), "disaggregate");
    assert_string_equal(hcp_disagg_objective_name((hcp_disagg_objective)7), "?");
    hcp_disagg_free(NULL);
    clear(&a);
}

/* Caps hold nowhere; a stream's two batches do not fit where one does. */
static void no_room(void **state)
{
    int kind_of[2] = {0, 1};
    int64_t token = 2 * 4 * 8 * 128 * 2 * 4;
    struct advising a;

    (void)state;
    asked_kinds(&a, kind_of, 2);
    for (size_t r = 0; r < 2; r++)
        a.ranks[r].max_bytes = 900 * token;
    assert_int_equal(bind(&a), HCP_STATUS_OK);
    assert_int_equal(ask(&a), HCP_STATUS_INFEASIBLE);
    has("short by");
    clear(&a);
    asked_kinds(&a, kind_of, 2);
    for (size_t r = 0; r < 2; r++)
        a.ranks[r].max_bytes = 2500 * token;
    assert_int_equal(bind(&a), HCP_STATUS_OK);
    assert_int_equal(ask(&a), HCP_STATUS_OK);
    assert_true(a.out.colocated.exists && !a.out.separate.exists);
    assert_int_equal(a.out.decision, HCP_DISAGG_COLOCATE);
    assert_true(isnan(a.out.gain_over_colocated));
    a.q.objective = HCP_DISAGG_LATENCY; /* one batch */
    assert_int_equal(ask(&a), HCP_STATUS_OK);
    assert_true(a.out.separate.exists);
    clear(&a);
}

/* Kernels that no two ranks share, which cannot be in one ring but in two groups. */
static void own_kernels(void **state)
{
    static const struct fixture prefill[KINDS] = {{.device = "nvidia-h200",
                                                   .limit = "mps:1",
                                                   .provider = "one",
                                                   .a = 1e-7,
                                                   .f = 0.01,
                                                   .tile = 64,
                                                   .lut = 1},
                                                  {.device = "nvidia-h200",
                                                   .limit = "mps:2",
                                                   .provider = "two",
                                                   .a = 9e-7,
                                                   .f = 0.01,
                                                   .tile = 64,
                                                   .lut = 1},
                                                  {.device = "nvidia-h200",
                                                   .limit = "mps:3",
                                                   .provider = "three",
                                                   .a = 9e-7,
                                                   .f = 0.01,
                                                   .tile = 64,
                                                   .lut = 1}};
    static const struct decode_kind decode[KINDS] = {{0.01, 8e-6, 0, 0.02, 0, 64},
                                                     {0.01, 1e-5, 0, 0.02, 0, 64},
                                                     {0.01, 1e-5, 0, 0.02, 0, 64}};
    int kind_of[4] = {0, 1, 0, 1};
    struct advising a;

    (void)state;
    make(&a, prefill, decode, 4, 4, kind_of);
    a.prefill.seq_len = a.decode.seq_len = 2048;
    a.prefill.layers = a.decode.layers = 4;
    a.q.steps = 30;
    a.q.link_gbps = 50;
    if (bind(&a) || ask(&a))
        fail_msg("%s", text);
    assert_string_equal(a.out.prefill->provider, "one");
    assert_int_equal(a.out.decision, HCP_DISAGG_SEPARATE);
    assert_int_equal(a.out.separate.prefill_ranks, 2);
    follow(&a);
    clear(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_room),
        cmocka_unit_test(own_kernels),
    };

    return cmocka_run_group_tests_name("plan-disagg-asked", tests, NULL, NULL);
}
