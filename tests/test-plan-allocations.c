/* SPDX-License-Identifier: Apache-2.0
 *
 * Deciding changes nothing that is shared: no decision allocates, and threads agree.
 */
#include <locale.h>
#include <pthread.h>
#include "tests/count-allocations.h"
#include "tests/decode-reference.h"
#include "tests/plan-kinds.h"

static void no_allocation(void **state)
{
    static const int which[40] = {0, 1, 0, 1, 0, 1};
    hcp_models *models = fixture_models(kinds, KINDS);

    (void)state;
    for (size_t n = 1; n <= 40; n += n < 5 ? 1 : 7) {
        hcp_ring *ring = fixture_ring(models, kinds, which, NULL, n);
        struct fixture_plan p;
        static hcp_step steps[1600];
        hcp_prediction block = {.size = sizeof block};
        hcp_question q;
        char text[512];
        size_t n_steps;
        long before;

        fixture_plan_init(&p, n);
        hcp_question_init(&q);
        q.extrapolate = 1;
        before = allocations;
        assert_true(!COUNTED || before > 0); /* the counter counts */
        q.sub_blocks = 1;
        for (int strategy = 0; strategy <= HCP_STRATEGY_BEST; strategy++) {
            for (int layout = 0; layout <= HCP_LAYOUT_STRIPED; layout++) {
                hcp_status status;

                q.strategy = (hcp_strategy)strategy;
                q.layout = (hcp_layout)layout;
                q.causal = 1;
                q.seq_len = 1000 * (int64_t)n + 17;
                status = fixture_split(ring, &q, &p, text, sizeof text);
                /* The slow kind has no polynomial. */
                assert_int_equal(status, strategy == HCP_STRATEGY_POLY && n > 1
                                             ? HCP_STATUS_NO_MODEL
                                             : HCP_STATUS_OK);
                if (status == HCP_STATUS_OK)
                    assert_int_equal(hcp_plan_simulate(
                                         ring, &p.plan, 1, p.workspace, p.workspace_bytes,
                                         text, sizeof text, steps, 1600, &n_steps),
                                     HCP_STATUS_OK);
            }
        }
        hcp_block_predict(ring, 0, HCP_MODEL_BEST, 0, 100, 200, 0, text, sizeof text,
                          &block);
        q.sub_blocks = 4; /* in pieces, by rule, then one's own */
        for (int own = 0; own < 2; own++) {
            int64_t tokens[40];

            q.layout = HCP_LAYOUT_ZIGZAG;
            q.strategy = HCP_STRATEGY_BEST;
            for (size_t r = 0; r < n; r++)
                tokens[r] = 1000 + (r == 0 ? 17 : 0);
            assert_int_equal(own ? hcp_plan_evaluate(ring, &q, tokens, p.workspace,
                                                     p.workspace_bytes, text, sizeof text,
                                                     &p.plan)
                                 : fixture_split(ring, &q, &p, text, sizeof text),
                             HCP_STATUS_OK);
        }
        { /* several documents, some cut; the workspace is the caller's */
            static unsigned char workspace[1 << 20];
            static int64_t lengths[100], out_lengths[100], counts[40];
            static hcp_documents_rank ranks[40];
            static hcp_document_part parts[140], given[140];
            hcp_documents documents;
            hcp_documents_plan packed;

            for (int i = 0; i < 100; i++)
                lengths[i] = i % 10 ? 100 + i : 20000;
            hcp_documents_init(&documents);
            documents.lengths = lengths;
            documents.n_documents = n == 2 ? 4 : 100;
            documents.extrapolate = 1;
            hcp_documents_plan_init(&packed, ranks, 40, parts, 140, out_lengths, 100);
            assert_int_equal(hcp_documents_split(ring, &documents, workspace,
                                                 sizeof workspace, text, sizeof text,
                                                 &packed),
                             HCP_STATUS_OK);
            memcpy(given, parts, sizeof given);
            for (size_t r = 0; r < n; r++)
                counts[r] = ranks[r].n_parts;
            assert_int_equal(hcp_documents_evaluate(ring, &documents, given, counts,
                                                    workspace, sizeof workspace, text,
                                                    sizeof text, &packed),
                             HCP_STATUS_OK);
        }
        assert_int_equal(allocations, before);
        fixture_plan_free(&p);
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

/* And of rebalancing: observing, deciding, moving, failing. */
static void no_allocation_rebalance(void **state)
{
    static const int which[4] = {0, 1, 0, 1};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 4);
    hcp_rebalance_verdict v = {.size = sizeof v};
    hcp_rebalance *r = NULL;
    struct fixture_plan p;
    hcp_recompute lost[32];
    hcp_question q;
    char text[512];
    static char json[32768];
    size_t n = 0;
    long before;
    int moves = 0;

    (void)state;
    fixture_plan_init(&p, 4);
    hcp_question_init(&q);
    q.seq_len = 30000;
    q.causal = 1;
    q.extrapolate = 1;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(hcp_rebalance_create(ring, &q, &p.plan, NULL, text, sizeof text, &r),
                     HCP_STATUS_OK);
    before = allocations;
    for (int t = 0; t < 60; t++) {
        const hcp_plan *now = hcp_rebalance_plan(r);

        for (size_t i = 0; i < 4; i++) {
            const hcp_plan_rank *rank = &now->ranks[i];

            if (i != 2 || t < 50)
                hcp_rebalance_observe(r, i,
                                      rank->compute_ms / rank->time_scale *
                                          (i == 0 && t >= 20 ? 2.5 : 1),
                                      0);
        }
        assert_int_equal(hcp_rebalance_step(r, 100, text, sizeof text, &v),
                         HCP_STATUS_OK);
        hcp_rebalance_recompute(r, lost, 32, &n);
        if (v.decision == HCP_REBALANCE_MOVE) {
            moves++;
            assert_int_equal(hcp_rebalance_adopt(r), HCP_STATUS_OK);
        }
        hcp_rebalance_fingerprint(r);
        assert_int_equal(hcp_rebalance_to_json(r, json, sizeof json, &n), HCP_STATUS_OK);
        assert_int_equal(hcp_rebalance_from_json(r, json, n, text, sizeof text),
                         HCP_STATUS_OK);
    }
    assert_int_equal(allocations, before);
    assert_int_equal(moves, 2);
    hcp_rebalance_free(r);
    fixture_plan_free(&p);
    hcp_ring_free(ring);
    fixture_free(models);
}

/* The same of decode, and of moving to it. */
static void no_allocation_decode(void **state)
{
    struct decode_kind kind[8];
    hcp_shape shape;
    hcp_models *models;
    hcp_ring *ring;
    hcp_question q;
    hcp_move_question ask;
    struct fixture_plan even, best;
    hcp_move moves[8];
    hcp_segment segments[64];
    hcp_merge_send sends[256];
    hcp_moves out;
    char text[512], json[8192];
    size_t n_sends;
    long before;

    (void)state;
    for (int r = 0; r < 8; r++)
        kind[r] = (struct decode_kind){0.01, 1e-5 * (1 + r), 0.001, 0.02, 5, 64};
    hcp_shape_init(&shape);
    strcpy(shape.phase, "decode");
    models = decode_models(kind, 8, &shape);
    ring = decode_ring(models, &shape, NULL, NULL, NULL, 8);
    fixture_plan_init(&even, 8);
    fixture_plan_init(&best, 8);
    hcp_question_init(&q);
    q.seq_len = 65536;
    q.extrapolate = 1;
    q.link_alpha_us = 5;
    q.link_gbps = 50;
    hcp_move_question_init(&ask);
    ask.extrapolate = 1;
    ask.link_gbps = 50;
    ask.steps = 1000;
    hcp_moves_init(&out, moves, 8, segments, 64);
    before = allocations;
    assert_int_equal(fixture_split(ring, &q, &best, text, sizeof text), HCP_STATUS_OK);
    q.strategy = HCP_STRATEGY_EVEN;
    assert_int_equal(fixture_split(ring, &q, &even, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(hcp_plan_merge_sends(&best.plan, sends, 256, &n_sends),
                     HCP_STATUS_OK);
    assert_int_equal(hcp_plan_moves(ring, &even.plan, &best.plan, &ask, best.workspace,
                                    best.workspace_bytes, text, sizeof text, &out),
                     HCP_STATUS_OK);
    assert_int_equal(out.decision, HCP_MOVE_GO);
    assert_int_equal(hcp_plan_to_json(&best.plan, json, sizeof json, NULL),
                     HCP_STATUS_OK);
    assert_int_equal(
        hcp_plan_from_json(json, strlen(json), text, sizeof text, &even.plan),
        HCP_STATUS_OK);
    assert_int_equal(hcp_plan_memory(&even.plan, text, sizeof text), HCP_STATUS_OK);
    assert_int_equal(allocations, before);
    fixture_plan_free(&even);
    fixture_plan_free(&best);
    hcp_ring_free(ring);
    hcp_models_free(models);
}

/* Of chunks, those that meet no budget among them. */
static void no_allocation_chunks(void **state)
{
    static const int which[4] = {0, 1, 0, 1};
    enum { CHUNKS = 200, RANKS = 4 };
    static hcp_chunk chunks[CHUNKS];
    static hcp_chunk_share shares[CHUNKS * RANKS];
    static hcp_segment segments[2 * CHUNKS * RANKS];
    static char json[1 << 18];
    hcp_models *models = fixture_models(kinds, KINDS);

    (void)state;
    for (size_t n = 1; n <= RANKS; n++) {
        hcp_ring *ring = fixture_ring(models, kinds, which, NULL, n);
        size_t bytes = hcp_chunks_workspace_bytes(ring, CHUNKS), counts[3];
        void *workspace = malloc(bytes);
        hcp_chunks_rank ranks[RANKS];
        const int64_t lengths[] = {3000, 100};
        hcp_chunks_plan plan;
        hcp_chunks q;
        char text[512];
        long before;

        hcp_chunks_init(&q);
        hcp_chunks_plan_init(&plan, ranks, RANKS, chunks, CHUNKS, shares, CHUNKS * RANKS,
                             segments, 2 * CHUNKS * RANKS);
        q.seq_len = 3100;
        q.extrapolate = 1;
        before = allocations;
        q.chunk_len = 500;
        assert_int_equal(
            hcp_chunks_split(ring, &q, workspace, bytes, text, sizeof text, &plan),
            HCP_STATUS_OK);
        q.chunk_len = 0;
        q.step_budget_ms = plan.longest_step_ms;
        for (q.seq_len = 700; q.seq_len <= 3100; q.seq_len += 2400) {
            assert_int_equal(
                hcp_chunks_split(ring, &q, workspace, bytes, text, sizeof text, &plan),
                HCP_STATUS_OK);
            assert_true(plan.longest_step_ms <= q.step_budget_ms);
        }
        q.seq_len = 3100;
        assert_int_equal(hcp_chunks_evaluate(ring, &q, lengths, 2, NULL, workspace, bytes,
                                             text, sizeof text, &plan),
                         HCP_STATUS_OK);
        assert_int_equal(hcp_chunks_to_json(&plan, json, sizeof json, NULL),
                         HCP_STATUS_OK);
        assert_int_equal(hcp_chunks_json_counts(json, strlen(json), text, sizeof text,
                                                &counts[0], &counts[1], &counts[2]),
                         HCP_STATUS_OK);
        assert_int_equal(
            hcp_chunks_from_json(json, strlen(json), text, sizeof text, &plan),
            HCP_STATUS_OK);
        q.step_budget_ms = 1e-9; /* none: the text is made without, too */
        assert_int_equal(
            hcp_chunks_split(ring, &q, workspace, bytes, text, sizeof text, &plan),
            HCP_STATUS_INFEASIBLE);
        assert_int_equal(allocations, before);
        free(workspace);
        hcp_ring_free(ring);
    }
    fixture_free(models);
}

/* ---- threads ---- */

struct job {
    const hcp_ring *ring;
    uint64_t seed, prints[64];
};

static void *work(void *arg)
{
    struct job *job = arg;
    struct fixture_plan p;
    char text[512];

    fixture_plan_init(&p, 6);
    for (int i = 0; i < 64; i++) {
        hcp_question q;

        hcp_question_init(&q);
        q.seq_len = fixture_range(&job->seed, 1000, 60000);
        q.causal = i & 1;
        q.layout = (hcp_layout)(i / 2 % 4);
        job->prints[i] =
            fixture_split(job->ring, &q, &p, text, sizeof text) == HCP_STATUS_OK
                ? p.plan.fingerprint
                : 0;
    }
    fixture_plan_free(&p);
    return NULL;
}

static void threads_agree(void **state)
{
    static const int which[6] = {0, 1, 0, 0, 1, 0};
    hcp_models *models = fixture_models(kinds, KINDS);
    hcp_ring *ring = fixture_ring(models, kinds, which, NULL, 6);
    static struct job jobs[8];
    pthread_t thread[8];

    (void)state;
    for (int i = 0; i < 8; i++) {
        jobs[i] = (struct job){.ring = ring, .seed = 42};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 64; k++) {
            assert_true(jobs[i].prints[k] != 0);
            assert_true(jobs[i].prints[k] == jobs[0].prints[k]);
        }
    }
    hcp_ring_free(ring);
    fixture_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_allocation),        cmocka_unit_test(no_allocation_rebalance),
        cmocka_unit_test(no_allocation_decode), cmocka_unit_test(no_allocation_chunks),
        cmocka_unit_test(threads_agree),
    };

    setlocale(LC_ALL, "");
    return cmocka_run_group_tests_name("plan-allocations", tests, NULL, NULL);
}
