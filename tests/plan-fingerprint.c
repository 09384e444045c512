/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints plans and fingerprints of a mix of questions; plan-fingerprint.sh compiles it
 * with the library's sources in several ways and compares what they say.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "planner/specs.h"
#include "tests/decode-reference.h"
#include "tests/rebalance-fixture.h"

static char json[1 << 16];

/* The same question with links between all pairs, the order free. */
static int ask_reordered(const hcp_ring *ring, const hcp_question *plain,
                         struct fixture_plan *p, size_t n, uint64_t *seed)
{
    static hcp_link links[36];
    static hcp_place places[6];
    const double shared = 20;
    hcp_question q = *plain;
    char text[512];

    for (size_t i = 0; i < n * n; i++)
        if (i / n != i % n)
            links[q.n_links++] = (hcp_link){.from = (int32_t)(i / n),
                                            .to = (int32_t)(i % n),
                                            .shared = {i % 3 == 0, 0},
                                            .alpha_us = fixture_real(seed, 0, 30),
                                            .gbps = fixture_real(seed, 5, 100),
                                            .slowdown = fixture_real(seed, 1, 1.2),
                                            .transfer_slowdown = 1.5,
                                            .overhead_us = 3};
    q.links = links;
    q.shared_gbps = &shared;
    q.n_shared = 1;
    q.order = HCP_ORDER_FREE;
    p->plan.places = places;
    if (fixture_split(ring, &q, p, text, sizeof text) ||
        hcp_plan_to_json(&p->plan, json, sizeof json, NULL))
        return 1;
    printf("%016llx %s\n", (unsigned long long)p->plan.fingerprint, json);
    return 0;
}

/* The same question with queries and KV split apart. */
static int ask_joint(const hcp_ring *ring, const hcp_question *plain,
                     struct fixture_plan *p)
{
    hcp_question q = *plain;
    char text[512];

    q.joint = 1;
    q.link_gbps = 12;
    if (fixture_split(ring, &q, p, text, sizeof text) ||
        hcp_plan_to_json(&p->plan, json, sizeof json, NULL))
        return 1;
    printf("%016llx %s\n", (unsigned long long)p->plan.fingerprint, json);
    return 0;
}

/* The same question with caps in bytes, in the way of most plans. */
static int ask_capped(const hcp_models *models, const struct fixture *kinds,
                      const int *which, const hcp_question *plain, struct fixture_plan *p,
                      size_t n, uint64_t *seed)
{
    hcp_question q = *plain;
    hcp_rank ranks[40];
    hcp_shape shape;
    hcp_ring *ring;
    char text[512] = "";
    hcp_status status;

    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, kinds[which[r]].device);
        ranks[r].max_bytes = 4096 * (int64_t)(fixture_real(seed, 2, 12) *
                                                  (double)q.seq_len / (double)n +
                                              1);
    }
    hcp_shape_init(&shape);
    q.layers = 2;
    if (hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring))
        return 1;
    status = fixture_split(ring, &q, p, text, sizeof text);
    if (!status && hcp_plan_to_json(&p->plan, json, sizeof json, NULL))
        return 1;
    printf("%d %s\n", (int)status, status ? text : json);
    hcp_ring_free(ring);
    return 0;
}

/* The same on nodes, in one ring or with two levels. */
static int ask_nodes(const hcp_ring *ring, const hcp_question *plain,
                     struct fixture_plan *p, size_t n)
{
    hcp_question q = *plain;
    char text[512];

    q.node_ranks = n % 3 == 0 ? 3 : 2;
    q.node_gbps = 2;
    q.node_alpha_us = 7;
    q.link_gbps = 100;
    q.node_shared_gbps = n % 2 ? 5 : 0;
    q.rings = HCP_RINGS_BEST;
    if (fixture_split(ring, &q, p, text, sizeof text) ||
        hcp_plan_to_json(&p->plan, json, sizeof json, NULL))
        return 1;
    printf("%016llx %s\n", (unsigned long long)p->plan.fingerprint, json);
    return 0;
}

/* Decode: rings of up to 12 ranks under caps, and the way from even shares. */
static int ask_decode(uint64_t *seed)
{
    size_t n = (size_t)fixture_range(seed, 1, 12);
    struct decode_kind kind[12];
    int64_t caps[12];
    hcp_move moves[12];
    hcp_segment segments[64];
    hcp_shape shape;
    hcp_models *models;
    hcp_ring *ring;
    hcp_question q;
    hcp_move_question ask;
    hcp_moves out;
    struct fixture_plan even, best;
    char text[512];
    int bad;

    hcp_shape_init(&shape);
    strcpy(shape.phase, "decode");
    shape.batch = (int32_t)fixture_range(seed, 1, 32);
    hcp_question_init(&q);
    q.seq_len = fixture_range(seed, 1000, 200000);
    for (size_t r = 0; r < n; r++) {
        kind[r] = (struct decode_kind){fixture_real(seed, 0, 0.02),
                                       fixture_real(seed, 1e-6, 1e-5), 0.001, 0.02,
                                       fixture_random(seed) | 1, 64};
        caps[r] = fixture_range(seed, 0, 2) ? 0 : 2 * q.seq_len / (int64_t)n;
    }
    models = decode_models(kind, n, &shape);
    ring = decode_ring(models, &shape, caps, NULL, NULL, n);
    fixture_plan_init(&even, n);
    fixture_plan_init(&best, n);
    q.extrapolate = 1;
    q.link_alpha_us = fixture_real(seed, 0, 20);
    q.link_gbps = fixture_real(seed, 1, 100);
    hcp_move_question_init(&ask);
    ask.extrapolate = 1;
    ask.steps = 100;
    ask.link_gbps = q.link_gbps;
    ask.link_alpha_us = 10;
    hcp_moves_init(&out, moves, 12, segments, 64);
    bad = fixture_split(ring, &q, &best, text, sizeof text) ||
          hcp_plan_to_json(&best.plan, json, sizeof json, NULL);
    if (!bad)
        printf("%016llx %s\n", (unsigned long long)best.plan.fingerprint, json);
    q.strategy = HCP_STRATEGY_EVEN;
    bad = bad || fixture_split(ring, &q, &even, text, sizeof text) ||
          hcp_plan_moves(ring, &even.plan, &best.plan, &ask, best.workspace,
                         best.workspace_bytes, text, sizeof text, &out);
    if (!bad) {
        uint64_t bits[2];

        memcpy(bits, &out.move_ms, sizeof *bits);
        memcpy(bits + 1, &out.saved_ms, sizeof *bits);
        printf("%d %016llx %016llx", (int)out.decision, (unsigned long long)bits[0],
               (unsigned long long)bits[1]);
        for (size_t i = 0; i < out.n_moves; i++)
            printf(" %d-%d:%lld", (int)moves[i].from, (int)moves[i].to,
                   (long long)moves[i].tokens);
        putchar('\n');
    }
    fixture_plan_free(&even);
    fixture_plan_free(&best);
    hcp_ring_free(ring);
    hcp_models_free(models);
    return bad;
}

/* Documents on the same ranks, some with linear work, behind a link. */
static int ask_documents(const hcp_models *models, const struct fixture *kinds,
                         const int *which, size_t n, uint64_t *seed)
{
    static unsigned char workspace[1 << 20];
    static int64_t lengths[64], out_lengths[64];
    static hcp_document_part parts[64 + 40];
    static hcp_documents_rank out[40];
    hcp_rank ranks[40];
    hcp_documents q;
    hcp_documents_plan plan;
    hcp_shape shape;
    hcp_ring *ring;
    char text[512] = "";
    int rc;

    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, kinds[which[r]].device);
        ranks[r].linear_after_us = n % 2 ? 0.1 * which[r] : 0;
    }
    hcp_documents_init(&q);
    q.lengths = lengths;
    q.n_documents = (size_t)fixture_range(seed, 1, n < 4 ? 6 : 64);
    for (size_t i = 0; i < q.n_documents; i++)
        lengths[i] = fixture_range(seed, 1, i % 7 ? 3000 : 50000);
    q.link_gbps = fixture_real(seed, 5, 100);
    q.link_alpha_us = fixture_real(seed, 0, 20);
    q.cut_gain = n % 3 ? 0 : 0.01;
    hcp_shape_init(&shape);
    if (hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring))
        return 1;
    hcp_documents_plan_init(&plan, out, 40, parts, 64 + 40, out_lengths, 64);
    rc = hcp_documents_split(ring, &q, workspace, sizeof workspace, text, sizeof text,
                             &plan) ||
         hcp_documents_to_json(&plan, json, sizeof json, NULL);
    if (rc)
        fprintf(stderr, "%s\n", text);
    else
        printf("%016llx %s\n", (unsigned long long)plan.fingerprint, json);
    hcp_ring_free(ring);
    return rc;
}

/* What is proposed when speeds change, and the state after every step. */
static int rebalanced(uint64_t *seed)
{
    struct group g;
    hcp_rebalance *r = NULL;
    double base[GROUP_MOST] = {0};
    size_t sizes[] = {2, 3, 5, 8}, n = sizes[fixture_range(seed, 0, 3)];
    int causal = (int)fixture_range(seed, 0, 1); /* (one number after the other) */
    int64_t len = fixture_range(seed, 4000, 40000);

    group_make(&g, n, causal, HCP_LAYOUT_AUTO, len, 0.02, seed);
    if (hcp_rebalance_create(g.ring, &g.question, &g.plan.plan, NULL, NULL, 0, &r))
        return -1;
    group_base(&g, &g.plan.plan, base);
    for (int t = 0; t < 40; t++) {
        hcp_rebalance_verdict v = {.size = sizeof v};
        size_t at;

        if (fixture_range(seed, 0, 7) == 0) {
            int64_t which = fixture_range(seed, 0, (int64_t)n - 1);

            g.factor[which] = fixture_real(seed, 0.5, 3);
        }
        for (size_t i = 0; i < g.n; i++)
            hcp_rebalance_observe(
                r, i, base[i] * g.factor[i] * fixture_real(seed, 0.98, 1.02), 0);
        if (t == 30)
            hcp_rebalance_fail(r, 0);
        if (hcp_rebalance_step(r, 40 - t, NULL, 0, &v))
            return -1;
        if (v.decision == HCP_REBALANCE_MOVE) {
            static char plan[1 << 16];

            if (hcp_plan_to_json(hcp_rebalance_proposal(r), plan, sizeof plan, &at))
                return -1;
            printf("%s\n", plan);
            if (hcp_rebalance_adopt(r))
                return -1;
            group_base(&g, hcp_rebalance_plan(r), base);
        }
        printf("%016llx %d %d\n", (unsigned long long)hcp_rebalance_fingerprint(r),
               (int)v.decision, (int)v.reason);
    }
    hcp_rebalance_free(r);
    group_free(&g);
    return 0;
}

/* Times of data sheets: what is scaled must be the same everywhere. */
static void print_estimates(uint64_t seed)
{
    double q[5], kv[5], ms[25], known[25], hull[6] = {1, 2048, 1, 2048, 1, 2048};
    double error[3] = {1e9, 0.02, 0.02};

    for (int round = 0; round < 40; round++) {
        double rho = fixture_real(&seed, 0.5, 1), lambda = fixture_real(&seed, 0, 0.9);
        double shape[7] = {64, 64, 32, 132, rho, lambda, round % 2};
        struct hcp_named_array arrays[] = {{"shape", 7, shape}, {"hull", 6, hull},
                                           {"error", 3, error}, {"q", 5, q},
                                           {"kv", 5, kv},       {"ms", 25, ms},
                                           {"known", 25, known}, {"s", 5, q},
                                           {"s_ms", 5, ms}};
        struct hcp_model_row row = {.format = 1};
        struct resources kin = {132, 989.5e9, 4800e6, 1}, target = kin;
        struct hcp_err err;
        hcp_model *model;
        uint64_t hash, bits;

        for (int i = 0; i < 25; i++) {
            q[i / 5] = kv[i / 5] = 128 << i / 5;
            known[i] = 1;
            ms[i] = (0.01 + (i / 5 + 1) * (i % 5 + 1) * 0.02) * (1 + 0.001 * i);
        }
        strcpy(row.kind, "lut");
        strcpy(row.key.dtype, "bf16");
        strcpy(row.key.phase, round % 4 ? "prefill" : "decode");
        row.key.batch = 1;
        row.key.heads = 32;
        row.key.kv_heads = 8;
        row.key.head_dim = 128;
        target.sms = (int32_t)fixture_range(&seed, 10, 200);
        target.flops *= fixture_real(&seed, 0.05, 3);
        target.bytes *= estimate_bandwidth_part(fixture_real(&seed, 0, 1));
        if (estimate_scale(&row, arrays, 9, &kin, &target, 1.4, &model, &hash, &err))
            abort();
        ms[0] = hcp_model_block_ms(model, round % 2, 300, 700, NULL);
        memcpy(&bits, &ms[0], sizeof bits);
        printf("%016llx %016llx\n", (unsigned long long)hash, (unsigned long long)bits);
        hcp_model_free(model);
    }
}

/* Groups of ranks for both phases; the plans of the answer, and its times bit by bit. */
static int ask_disagg(uint64_t *seed)
{
    size_t n = (size_t)fixture_range(seed, 2, 9), bytes;
    struct fixture prefill[3];
    struct decode_kind decode[3];
    static const char *const limits[] = {"mps:1", "mps:2", "mps:3"};
    hcp_rank ranks[9];
    hcp_disagg_rank out_ranks[9];
    hcp_move moves[9];
    hcp_segment segments[256];
    hcp_shape shape[2];
    hcp_question q;
    hcp_disagg_question ask;
    hcp_disagg_advice out;
    hcp_disagg *disagg = NULL;
    hcp_models *models;
    struct fixture_plan plan[2];
    char text[512];
    void *workspace;
    int bad;

    for (int k = 0; k < 3; k++) {
        prefill[k] = (struct fixture){.device = "nvidia-h200", .limit = limits[k],
                                      .a = fixture_real(seed, 1e-8, 1e-7), .f = 0.01,
                                      .tile = 64, .lut = 1, .error = 0.02,
                                      .bumps = fixture_random(seed) | 1};
        decode[k] = (struct decode_kind){fixture_real(seed, 0, 0.02),
                                         fixture_real(seed, 1e-6, 1e-5), 0.001, 0.02,
                                         fixture_random(seed) | 1, 64};
    }
    for (int i = 0; i < 2; i++) {
        hcp_shape_init(&shape[i]);
        fixture_plan_init(&plan[i], n);
    }
    strcpy(shape[1].phase, "decode");
    shape[1].batch = (int32_t)fixture_range(seed, 1, 8);
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, "nvidia-h200");
        strcpy(ranks[r].limit, limits[fixture_range(seed, 0, 2)]);
    }
    hcp_question_init(&q);
    q.seq_len = fixture_range(seed, 1000, 60000);
    q.causal = 1;
    q.layers = 4;
    q.link_gbps = fixture_real(seed, 10, 100);
    q.extrapolate = 1;
    hcp_disagg_question_init(&ask);
    ask.prefill = &q;
    ask.steps = fixture_range(seed, 1, 500);
    ask.stream = (int32_t)fixture_range(seed, 0, 1);
    ask.link_alpha_us = fixture_real(seed, 0, 20);
    ask.link_gbps = fixture_real(seed, 1, 100);
    models = both_models(prefill, decode, 3, &shape[1]);
    hcp_disagg_advice_init(&out, out_ranks, 9, &plan[0].plan, &plan[1].plan, moves, 9,
                           segments, 256);
    bad = hcp_disagg_create(models, &shape[0], &shape[1], ranks, n, NULL, NULL, text,
                            sizeof text, &disagg) != HCP_STATUS_OK;
    bytes = hcp_disagg_workspace_bytes(disagg);
    workspace = malloc(bytes + 1);
    bad = bad || !workspace ||
          hcp_disagg_advise(disagg, &ask, workspace, bytes, text, sizeof text, &out);
    for (int i = 0; i < 2 && !bad; i++) {
        bad = hcp_plan_to_json(&plan[i].plan, json, sizeof json, NULL) != HCP_STATUS_OK;
        printf("%016llx %s\n", (unsigned long long)plan[i].plan.fingerprint, json);
    }
    if (!bad) {
        const double times[] = {out.colocated.period_ms, out.separate.period_ms,
                                out.turns_below_gbps, out.turns_above_gbps};

        printf("%s %lld %lld", hcp_disagg_decision_name(out.decision),
               (long long)out.turns_below_steps, (long long)out.turns_above_steps);
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            uint64_t bits;

            memcpy(&bits, &times[i], sizeof bits);
            printf(" %016llx", (unsigned long long)bits);
        }
        for (size_t i = 0; i < out.n_moves; i++)
            printf(" %d-%d:%lld", (int)moves[i].from, (int)moves[i].to,
                   (long long)moves[i].tokens);
        putchar('\n');
    } else {
        fprintf(stderr, "%s\n", text);
    }
    free(workspace);
    hcp_disagg_free(disagg);
    hcp_models_free(models);
    fixture_plan_free(&plan[0]);
    fixture_plan_free(&plan[1]);
    return bad;
}

/* A prompt in chunks on the same ranks, under a budget or of a length. */
static int ask_chunks(const hcp_models *models, const struct fixture *kinds,
                      const int *which, size_t n, uint64_t *seed)
{
    enum { CHUNKS = 64, RANKS = 12 };
    static unsigned char workspace[1 << 22];
    static hcp_chunk chunks[CHUNKS];
    static hcp_chunk_share shares[CHUNKS * RANKS];
    static hcp_segment segments[CHUNKS * RANKS * 2];
    static char chunks_json[1 << 18];
    hcp_chunks_rank out[RANKS];
    hcp_rank ranks[RANKS];
    hcp_chunks q;
    hcp_chunks_plan plan;
    hcp_shape shape;
    hcp_ring *ring;
    char text[512] = "";
    hcp_status status;

    n = n < RANKS ? n : RANKS;
    for (size_t r = 0; r < n; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, kinds[which[r]].device);
        ranks[r].linear_after_us = n % 2 ? 0.1 * which[r] : 0;
        ranks[r].max_tokens = r % 3 ? 0 : 5000;
    }
    hcp_chunks_init(&q);
    q.seq_len = fixture_range(seed, 1, 12000);
    q.layers = (int32_t)fixture_range(seed, 1, 32);
    q.extrapolate = 1;
    q.link_gbps = fixture_real(seed, 5, 100);
    q.link_alpha_us = fixture_real(seed, 0, 20);
    if (fixture_range(seed, 0, 2))
        q.step_budget_ms = q.layers * fixture_real(seed, 0.3, 2);
    else
        q.chunk_len = fixture_range(seed, 300, 3000);
    hcp_shape_init(&shape);
    if (hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring))
        return 1;
    hcp_chunks_plan_init(&plan, out, RANKS, chunks, CHUNKS, shares, CHUNKS * RANKS,
                         segments, CHUNKS * RANKS * 2);
    status = hcp_chunks_split(ring, &q, workspace, sizeof workspace, text, sizeof text,
                              &plan);
    hcp_ring_free(ring);
    if (status == HCP_STATUS_INFEASIBLE || status == HCP_STATUS_SPACE) {
        printf("%d\n", (int)status); /* its text is in the locale's numbers */
        return 0;
    }
    if (status || hcp_chunks_to_json(&plan, chunks_json, sizeof chunks_json, NULL)) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    printf("%016llx %s\n", (unsigned long long)plan.fingerprint, chunks_json);
    return 0;
}

int main(int argc, char **argv)
{
    struct fixture kinds[4];
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    uint64_t seed = 99;

    setlocale(LC_ALL, "");
    if (argc > 1 && strcmp(localeconv()->decimal_point, argv[1]) != 0) {
        fprintf(stderr, "decimal point is '%s'\n", localeconv()->decimal_point);
        return 77;
    }
    print_estimates(7);
    for (int round = 0; round < 60; round++) {
        hcp_models *models;

        for (int i = 0; i < 4; i++) {
            double speed = fixture_real(&seed, 0.1, 1);

            kinds[i] = (struct fixture){.device = names[i],
                                        .a = 2e-8 / speed,
                                        .b = fixture_real(&seed, 0, 1e-5),
                                        .c = 1e-6,
                                        .f = 0.01,
                                        .tile = 64,
                                        .lut = 1,
                                        .poly = 1,
                                        .bumps = fixture_random(&seed) | 1,
                                        .error = 0.02};
            if (round % 3 == 0)
                for (int k = 0; k < 4; k++)
                    kinds[i].finish[k] = fixture_real(&seed, 0, k % 2 ? 1e-6 : 0.01);
        }
        models = fixture_models(kinds, 4);
        for (int i = 0; i < 6; i++) {
            size_t n = (size_t)fixture_range(&seed, 1, i < 5 ? 6 : 40);
            int which[40];
            struct fixture_plan p;
            hcp_ring *ring;
            hcp_question q;
            char text[512];

            for (size_t r = 0; r < n; r++)
                which[r] = (int)fixture_range(&seed, 0, 3);
            ring = fixture_ring(models, kinds, which, NULL, n);
            fixture_plan_init(&p, n);
            hcp_question_init(&q);
            q.seq_len = fixture_range(&seed, 100, 200000);
            q.causal = i > 0;
            q.strategy = i == 1 ? HCP_STRATEGY_POLY : HCP_STRATEGY_BEST;
            q.link_gbps = i == 2 ? fixture_real(&seed, 5, 100) : 0;
            q.sub_blocks = i == 3 ? (int32_t)fixture_range(&seed, 2, 8) : 1;
            q.extrapolate = 1;
            if (fixture_split(ring, &q, &p, text, sizeof text) ||
                hcp_plan_to_json(&p.plan, json, sizeof json, NULL))
                return 1;
            printf("%016llx %s\n", (unsigned long long)p.plan.fingerprint, json);
            if (i == 4 && ask_reordered(ring, &q, &p, n, &seed))
                return 1;
            if (i == 3 && round % 4 == 0 && ask_joint(ring, &q, &p))
                return 1;
            if (i >= 4 && ask_capped(models, kinds, which, &q, &p, n, &seed))
                return 1;
            if (i == 5 && ask_nodes(ring, &q, &p, n))
                return 1;
            if (i == 2 || i == 5) {
                uint64_t own = (uint64_t)round * 8 + (uint64_t)i; /* leaves seed alone */

                if (ask_documents(models, kinds, which, n, &own) ||
                    ask_chunks(models, kinds, which, n, &own))
                    return 1;
            }
            fixture_plan_free(&p);
            hcp_ring_free(ring);
        }
        fixture_free(models);
    }
    for (int i = 0; i < 100; i++)
        if (ask_decode(&seed))
            return 1;
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t own = 1000 + i;

        if (rebalanced(&own))
            return 1;
    }
    for (int i = 0; i < 40; i++)
        if (ask_disagg(&seed))
            return 1;
    return 0;
}
