/* SPDX-License-Identifier: Apache-2.0
 *
 * Several documents in one step: their times and the best of all plans against
 * documents-reference.c, one document against a plan of one sequence, how even large
 * packs come out, plan files and bad input. HCP_TEST_SCALE multiplies the number of
 * problems.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/documents-reference.h"
#include "tests/plan-fixture.h"

enum { KINDS = 3, MOST_RANKS = 64, MOST_DOCUMENTS = 4096 };

static int times(int n)
{
    int scaled = (int)(n * fixture_scale());

    return scaled > 0 ? scaled : 1;
}

/* A problem with its answer. */
struct problem_of {
    struct fixture fixtures[KINDS];
    hcp_rank ranks[MOST_RANKS];
    size_t n;
    int64_t lengths[MOST_DOCUMENTS];
    hcp_documents q;
    hcp_models *models;
    hcp_ring *ring;
    hcp_documents_plan plan;
    hcp_documents_rank out_ranks[MOST_RANKS];
    hcp_document_part out_parts[MOST_DOCUMENTS + MOST_RANKS];
    int64_t out_lengths[MOST_DOCUMENTS];
    void *workspace;
    size_t workspace_bytes;
    char text[512];
};
static struct problem_of one;

static void random_kinds(struct problem_of *c, uint64_t *seed)
{
    static const char *const names[KINDS] = {"d0", "d1", "d2"};

    for (int i = 0; i < KINDS; i++) {
        double speed = fixture_range(seed, 0, 2) ? fixture_real(seed, 0.1, 1) : 1;

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .a = 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 1e-5),
                                          .c = fixture_real(seed, 0, 2e-6),
                                          .f = fixture_real(seed, 0, 0.01),
                                          .tile = 128,
                                          .lut = 1,
                                          .error = 0.02};
        if (fixture_range(seed, 0, 1))
            c->fixtures[i].bumps = fixture_random(seed) | 1;
        if (fixture_range(seed, 0, 2) == 0)
            for (int k = 0; k < 4; k++)
                c->fixtures[i].finish[k] = fixture_real(seed, 0, k % 2 ? 1e-6 : 0.01);
    }
}

static void open_problem(struct problem_of *c)
{
    c->models = fixture_models(c->fixtures, KINDS);
    c->ring = fixture_ring_of(c->models, c->ranks, c->n);
    c->q.lengths = c->lengths;
    c->workspace_bytes = hcp_documents_workspace_bytes(c->ring, c->q.n_documents);
    c->workspace = malloc(c->workspace_bytes);
    assert_non_null(c->workspace);
    hcp_documents_plan_init(&c->plan, c->out_ranks, c->n, c->out_parts,
                            c->q.n_documents + c->n - 1, c->out_lengths,
                            c->q.n_documents);
}

static void close_problem(struct problem_of *c)
{
    free(c->workspace);
    hcp_ring_free(c->ring);
    fixture_free(c->models);
}

static hcp_status split(struct problem_of *c)
{
    return hcp_documents_split(c->ring, &c->q, c->workspace, c->workspace_bytes, c->text,
                               sizeof c->text, &c->plan);
}

static int64_t sum_of(const struct problem_of *c)
{
    int64_t sum = 0;

    for (size_t i = 0; i < c->q.n_documents; i++)
        sum += c->lengths[i];
    return sum;
}

/* Ranks of random kinds, linear work, caps, links: each in some problems. */
static void random_rest(struct problem_of *c, uint64_t *seed)
{
    int same = fixture_range(seed, 0, 2) == 0, layer = fixture_range(seed, 0, 2) == 0;
    int caps = (int)fixture_range(seed, 0, 4);
    int64_t share = sum_of(c) / (int64_t)c->n + 1;

    hcp_documents_init(&c->q);
    c->q.extrapolate = 1;
    c->q.cut_gain = 0;
    for (size_t r = 0; r < c->n; r++) {
        hcp_rank *rank = &c->ranks[r];

        hcp_rank_init(rank);
        strcpy(rank->device,
               c->fixtures[same ? 0 : fixture_range(seed, 0, KINDS - 1)].device);
        if (layer) {
            rank->linear_before_us = fixture_real(seed, 0, 0.5);
            rank->linear_after_us = fixture_real(seed, 0, 1);
            rank->linear_before_fixed_us = fixture_real(seed, 0, 5);
            rank->linear_after_fixed_us = fixture_real(seed, 0, 20);
        }
        if (caps == 0)
            rank->max_tokens = (int64_t)((double)share * fixture_real(seed, 0.6, 3));
        if (caps == 1) {
            rank->weight_bytes = 1000;
            rank->max_bytes =
                1000 + 4096 * (int64_t)((double)share * fixture_real(seed, 0.8, 4));
        }
    }
    if (fixture_range(seed, 0, 1)) {
        c->q.link_gbps = fixture_real(seed, 1, 100);
        c->q.link_alpha_us = fixture_real(seed, 0, 20);
    }
    c->q.activation_bytes = fixture_range(seed, 0, 1) * 100;
}

/* ---- parts ---- */

/* Every token once, and what the plan says about its parts. */
static void check_parts(const struct problem_of *c)
{
    const hcp_documents_plan *plan = &c->plan;
    int64_t *end = calloc(c->q.n_documents, sizeof *end), cut = 0;
    size_t at = 0;

    assert_non_null(end);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_documents_rank *rank = &plan->ranks[r];
        int64_t tokens = 0, area = 0, came = 0, last = -1;

        assert_int_equal(rank->first_part, at);
        for (int64_t i = 0; i < rank->n_parts; i++) {
            const hcp_document_part *p = &plan->parts[at + (size_t)i];

            assert_true(p->document > last);
            last = p->document;
            assert_true(p->length > 0);
            assert_int_equal(p->offset, end[p->document]);
            end[p->document] += p->length;
            tokens += p->length;
            area += c->q.causal ? p->length * p->offset + p->length * (p->length + 1) / 2
                                : p->length * p->length;
            if (p->offset > 0) {
                assert_int_equal(came, 0);
                came = p->offset;
            }
            cut += p->offset == 0 && p->length < c->lengths[p->document];
        }
        at += (size_t)rank->n_parts;
        assert_int_equal(rank->tokens, tokens);
        assert_int_equal(rank->area, area);
        assert_int_equal(rank->received_tokens, came);
        if (rank->max_tokens > 0)
            assert_true(tokens <= rank->max_tokens);
        if (rank->max_bytes > 0)
            assert_true(rank->memory_bytes <= rank->max_bytes);
    }
    assert_int_equal(at, plan->n_parts);
    assert_int_equal(cut, plan->n_cut);
    for (size_t doc = 0; doc < c->q.n_documents; doc++) {
        assert_int_equal(end[doc], c->lengths[doc]);
        assert_int_equal(plan->lengths[doc], c->lengths[doc]);
    }
    free(end);
}

static void to_reference(const struct problem_of *c, struct reference_document *documents)
{
    for (size_t doc = 0; doc < c->q.n_documents; doc++)
        documents[doc].n = 0;
    for (size_t r = 0; r < c->plan.n_ranks; r++) {
        const hcp_documents_rank *rank = &c->plan.ranks[r];

        for (int64_t i = 0; i < rank->n_parts; i++) {
            const hcp_document_part *p = &c->plan.parts[rank->first_part + i];
            struct reference_document *d = &documents[p->document];

            d->rank[d->n] = (int)r;
            d->from[d->n] = p->offset;
            d->from[++d->n] = p->offset + p->length;
        }
    }
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* The plan's times are the reference's. */
static void check_times(const struct problem_of *c)
{
    static struct reference_document documents[REFERENCE_DOCUMENTS];
    double fin[MOST_RANKS];

    to_reference(c, documents);
    near(c->plan.makespan_ms, reference_documents(c->ring, &c->q, documents, fin));
    for (size_t r = 0; r < c->n; r++)
        near(c->plan.ranks[r].predicted_ms, fin[r]);
    assert_true(c->plan.bound_ms <= c->plan.makespan_ms);
    assert_true(c->plan.interval_lo_ms <= c->plan.makespan_ms &&
                c->plan.makespan_ms <= c->plan.interval_hi_ms);
    near(c->plan.ranks[c->plan.critical_rank].predicted_ms, c->plan.makespan_ms);
}

/* ---- tests ---- */

static void best_of_all(void **state)
{
    uint64_t seed = 71;
    int done = 0, cut = 0, none = 0, unequal = 0, inexact = 0;
    double worst = 1;

    (void)state;
    for (int round = 0; done < times(300); round++) {
        struct problem_of *c = &one;
        double best, whole;
        long plans;
        hcp_status status;

        random_kinds(c, &seed);
        for (int i = 0; i < KINDS; i++) /* so that areas count in short documents */
            c->fixtures[i].a *= 40;
        c->n = (size_t)fixture_range(&seed, 1, 4);
        c->q.n_documents = (size_t)fixture_range(&seed, 1, 5);
        for (size_t i = 0; i < c->q.n_documents; i++)
            c->lengths[i] = fixture_range(&seed, 0, 3) ? fixture_range(&seed, 1, 500)
                                                       : fixture_range(&seed, 500, 1500);
        if (c->q.n_documents > 2 && fixture_range(&seed, 0, 2) == 0)
            c->lengths[1] = c->lengths[0];
        {
            size_t count = c->q.n_documents;

            random_rest(c, &seed);
            c->q.n_documents = count;
        }
        c->q.tile = fixture_range(&seed, 0, 3) ? 128 : fixture_range(&seed, 60, 300);
        if (fixture_range(&seed, 0, 9) == 0)
            c->q.causal = 0;
        open_problem(c);
        whole = reference_documents_best(c->ring, &c->q, c->q.tile, 0, 60000, &plans);
        best = reference_documents_best(c->ring, &c->q, c->q.tile, c->q.causal, 60000,
                                        &plans);
        status = isnan(best) ? HCP_STATUS_SPACE : split(c);
        if (!isnan(best)) {
            done++;
            unequal += c->n > 1 && strcmp(c->ranks[0].device, c->ranks[1].device) != 0;
        }
        if (isnan(best)) {
            close_problem(c);
            continue;
        }
        if (isinf(best)) {
            assert_int_equal(status, HCP_STATUS_INFEASIBLE);
            none++;
        } else {
            if (status)
                fail_msg("round %d: %s", round, c->text);
            if (!c->plan.exact) { /* a rare one that takes too many steps */
                inexact++;
                worst = fmax(worst, c->plan.makespan_ms / best);
                assert_true(c->plan.makespan_ms >= best * (1 - 1e-9));
            } else {
                near(c->plan.makespan_ms, best);
            }
            if (isinf(whole))
                assert_true(isnan(c->plan.whole_ms));
            else if (c->plan.exact)
                near(c->plan.whole_ms, whole);
            check_parts(c);
            check_times(c);
            cut += c->plan.n_cut > 0;
        }
        close_problem(c);
    }
    print_message(
        "# %d problems: %d with cuts, %d without a plan, %d of unequal ranks; not "
        "all looked at in %d, %.3f of the best at worst\n",
        done, cut, none, unequal, inexact, worst);
    assert_true(inexact * 50 <= done);
    if (fixture_scale() >= 0.5) /* of few problems none need be like that */
        assert_true(cut > done / 5 && none > 0 && unequal > done / 5);
}

/* More ranks, where not all of it can always be looked at. */
static void near_the_best(void **state)
{
    uint64_t seed = 5;
    double worst = 1, sum = 0;
    int done = 0;

    (void)state;
    for (int round = 0; done < times(60); round++) {
        struct problem_of *c = &one;
        double best;
        long plans;
        size_t count;

        random_kinds(c, &seed);
        for (int i = 0; i < KINDS; i++)
            c->fixtures[i].a *= 20;
        c->n = 5;
        count = (size_t)fixture_range(&seed, 1, 4);
        for (size_t i = 0; i < count; i++)
            c->lengths[i] = fixture_range(&seed, 1, 128 * (count < 3 ? 9 : 4));
        c->q.n_documents = count;
        random_rest(c, &seed);
        c->q.n_documents = count;
        c->q.tile = 128;
        open_problem(c);
        best = reference_documents_best(c->ring, &c->q, 128, 1, 100000, &plans);
        if (!isnan(best) && !isinf(best) && split(c) == HCP_STATUS_OK) {
            done++;
            check_parts(c);
            check_times(c);
            assert_true(c->plan.makespan_ms >= best * (1 - 1e-9));
            sum += c->plan.makespan_ms / best;
            worst = fmax(worst, c->plan.makespan_ms / best);
        }
        close_problem(c);
    }
    print_message(
        "# 5 ranks, 1 to 4 documents of a few tiles: %.3f of the best on average, "
        "%.3f at worst\n",
        sum / done, worst);
    assert_true(sum / done < 1.02 && worst < 1.2);
}

/* The numbers of larger plans, and those of the same parts given. */
static void given_parts(void **state)
{
    uint64_t seed = 12;
    int cuts = 0;

    (void)state;
    for (int round = 0; round < times(150); round++) {
        struct problem_of *c = &one;
        size_t count = (size_t)fixture_range(&seed, 1, REFERENCE_DOCUMENTS);
        int64_t counts[MOST_RANKS];
        static hcp_document_part parts[MOST_DOCUMENTS + MOST_RANKS];
        hcp_documents_plan first;
        uint64_t fingerprint;

        random_kinds(c, &seed);
        c->n = (size_t)fixture_range(&seed, 2, 20);
        for (size_t i = 0; i < count; i++)
            c->lengths[i] = fixture_range(&seed, 1, i % 9 ? 6000 : 60000);
        c->q.n_documents = count;
        random_rest(c, &seed);
        c->q.n_documents = count;
        open_problem(c);
        if (split(c) == HCP_STATUS_OK) {
            check_parts(c);
            check_times(c);
            cuts += (int)c->plan.n_cut;
            assert_true(isnan(c->plan.even_ms) ||
                        c->plan.makespan_ms <= c->plan.even_ms * (1 + 1e-12));
            first = c->plan;
            fingerprint = c->plan.fingerprint;
            memcpy(parts, c->out_parts, first.n_parts * sizeof *parts);
            for (size_t r = 0; r < c->n; r++)
                counts[r] = c->out_ranks[r].n_parts;
            assert_int_equal(hcp_documents_evaluate(c->ring, &c->q, parts, counts,
                                                    c->workspace, c->workspace_bytes,
                                                    c->text, sizeof c->text, &c->plan),
                             HCP_STATUS_OK);
            assert_true(c->plan.makespan_ms == first.makespan_ms);
            assert_true(c->plan.fingerprint == fingerprint && c->plan.given);
        } else {
            assert_true(c->ranks[0].max_tokens > 0 || c->ranks[0].max_bytes > 0);
        }
        close_problem(c);
    }
    print_message("# %d documents cut\n", cuts);
    assert_true(cuts > 0);
}

/* One document cut over all ranks is a ring of contiguous shares with room for all
 * blocks.
 */
static void one_document(void **state)
{
    uint64_t seed = 3;
    int shared = 0;

    (void)state;
    for (int round = 0; round < times(100); round++) {
        struct problem_of *c = &one;
        struct fixture_plan p;
        int64_t tokens[MOST_RANKS];
        hcp_question q;

        random_kinds(c, &seed);
        c->n = (size_t)fixture_range(&seed, 1, 12);
        c->lengths[0] = fixture_range(&seed, 1000, 60000);
        c->q.n_documents = 1;
        random_rest(c, &seed);
        c->q.n_documents = 1;
        for (size_t r = 0; r < c->n; r++)
            c->ranks[r].max_tokens = c->ranks[r].max_bytes = c->ranks[r].weight_bytes = 0;
        open_problem(c);
        assert_int_equal(split(c), HCP_STATUS_OK);
        for (size_t r = 0; r < c->n; r++)
            tokens[r] = c->out_ranks[r].tokens;
        hcp_question_init(&q);
        q.seq_len = c->lengths[0];
        q.causal = 1;
        q.layout = HCP_LAYOUT_CONTIGUOUS;
        q.buffers = 0;
        q.link_gbps = c->q.link_gbps;
        q.link_alpha_us = c->q.link_alpha_us;
        q.extrapolate = 1;
        fixture_plan_init(&p, c->n);
        assert_int_equal(hcp_plan_evaluate(c->ring, &q, tokens, p.workspace,
                                           p.workspace_bytes, c->text, sizeof c->text,
                                           &p.plan),
                         HCP_STATUS_OK);
        near(c->plan.makespan_ms, p.plan.makespan_ms);
        for (size_t r = 0; r < c->n; r++)
            near(c->out_ranks[r].predicted_ms, p.plan.ranks[r].predicted_ms);
        shared += c->plan.n_parts > 1;
        fixture_plan_free(&p);
        close_problem(c);
    }
    assert_true(shared > 0);
}

/* ---- large packs ---- */

enum pack { EQUAL, UNEQUAL, LINEAR, CAPPED, PACKS };
static const char *const pack_names[] = {"equal ranks", "ranks of three speeds",
                                         "linear work", "caps"};

/* Packed documents as they are trained on: lengths from tens to tens of thousands, one
 * after the other until a pack is full, 8K to 32K tokens a rank, 2 to 64 ranks. */
static void random_pack(struct problem_of *c, enum pack pack, uint64_t *seed)
{
    static const double speed[KINDS] = {1, 0.6, 0.25};
    int64_t left, share;
    size_t count = 0;

    random_kinds(c, seed);
    for (int i = 0; i < KINDS; i++) {
        c->fixtures[i].a = 2e-8 / speed[i];
        c->fixtures[i].b = c->fixtures[i].c = 1e-7 / speed[i];
        c->fixtures[i].f = 0.002 / speed[i];
        c->fixtures[i].bumps = 0;
        memset(c->fixtures[i].finish, 0, sizeof c->fixtures[i].finish);
    }
    c->n = (size_t)fixture_range(seed, 2, 64);
    share = fixture_range(seed, 8192, 32768);
    left = (int64_t)c->n * share;
    while (left > 0 && count < MOST_DOCUMENTS) {
        /* Short ones are many: the fourth power of a uniform number. */
        double u = fixture_real(seed, 0, 1);
        int64_t len = 10 + (int64_t)(60000 * u * u * u * u);

        c->lengths[count++] = len < left ? len : left;
        left -= len;
    }
    hcp_documents_init(&c->q);
    c->q.n_documents = count;
    for (size_t r = 0; r < c->n; r++) {
        int kind = pack == UNEQUAL ? (int)fixture_range(seed, 0, KINDS - 1) : 0;

        hcp_rank_init(&c->ranks[r]);
        strcpy(c->ranks[r].device, c->fixtures[kind].device);
        if (pack == LINEAR) {
            c->ranks[r].linear_before_us = 0.05;
            c->ranks[r].linear_after_us = 0.1;
        }
        if (pack == CAPPED)
            c->ranks[r].max_tokens = share * 5 / 4;
    }
    if (pack != EQUAL)
        c->q.link_gbps = 100;
}

static void even_areas(void **state)
{
    uint64_t seed = 44;
    int packs = times(200);

    (void)state;
    for (enum pack pack = EQUAL; pack < PACKS; pack++) {
        int reasons[HCP_UNEVEN_COST + 1] = {0}, cuts = 0;
        double gain = 0, over = 0;

        for (int round = 0; round < packs; round++) {
            struct problem_of *c = &one;
            double most = 0, all = 0;

            random_pack(c, pack, &seed);
            open_problem(c);
            if (split(c))
                fail_msg("%s", c->text);
            check_parts(c);
            reasons[c->plan.uneven]++;
            cuts += (int)(c->plan.n_parts - c->plan.n_documents);
            gain += c->plan.gain_over_even;
            over += c->plan.makespan_ms / c->plan.bound_ms;
            assert_int_equal(c->plan.area_imbalance > 0.02,
                             c->plan.uneven != HCP_UNEVEN_NO);
            if (c->plan.uneven == HCP_UNEVEN_TIME)
                assert_true(c->plan.imbalance <= 0.02);
            if (c->plan.uneven == HCP_UNEVEN_GAIN)
                assert_int_equal(c->plan.n_cut, 0);
            assert_true(c->plan.uneven != HCP_UNEVEN_WHOLE);
            assert_true(c->plan.uneven != HCP_UNEVEN_CAPS || pack == CAPPED);
            if (c->plan.uneven == HCP_UNEVEN_WAIT) {
                double wait = 0, busy = 0;

                for (size_t r = 0; r < c->n; r++) {
                    busy += c->out_ranks[r].compute_ms / (double)c->n;
                    wait = fmax(wait, c->out_ranks[r].predicted_ms -
                                          c->out_ranks[r].compute_ms);
                }
                assert_true(wait > 0.02 * busy);
            }
            for (size_t r = 0; r < c->n; r++) {
                most = fmax(most, (double)c->out_ranks[r].area);
                all += (double)c->out_ranks[r].area;
            }
            if (pack != UNEQUAL) /* not only by its own numbers */
                near(1 + c->plan.area_imbalance, most * (double)c->n / all);
            close_problem(c);
        }
        print_message(
            "# %s, %d packs: areas even within 2 %% in %d, times instead in %d; "
            "gain %d, caps %d, tile %d, wait %d, cost %d; %.1f cuts, %.2f times as fast "
            "as even tokens, %.3f of the bound\n",
            pack_names[pack], packs, reasons[HCP_UNEVEN_NO], reasons[HCP_UNEVEN_TIME],
            reasons[HCP_UNEVEN_GAIN], reasons[HCP_UNEVEN_CAPS], reasons[HCP_UNEVEN_TILE],
            reasons[HCP_UNEVEN_WAIT], reasons[HCP_UNEVEN_COST], (double)cuts / packs,
            gain / packs, over / packs);
        if (pack == EQUAL)
            assert_true(reasons[HCP_UNEVEN_NO] * 4 > packs * 3);
        assert_true(over / packs < (pack == CAPPED ? 1.3 : 1.06));
        assert_true(reasons[HCP_UNEVEN_COST] * 20 <= packs);
    }
}

/* Cuts for less than cut_gain are not made; whole documents are what is asked for. */
static void cut_gain(void **state)
{
    uint64_t seed = 8;
    int kept_whole = 0, fewer = 0;

    (void)state;
    for (int round = 0; round < times(150); round++) {
        struct problem_of *c = &one;
        size_t count = (size_t)fixture_range(&seed, 2, 40);
        double best_ms, whole_ms;
        int64_t cuts;

        random_kinds(c, &seed);
        c->n = (size_t)fixture_range(&seed, 2, 8);
        for (size_t i = 0; i < count; i++)
            c->lengths[i] = fixture_range(&seed, 1, i % 5 ? 4000 : 20000);
        c->q.n_documents = count;
        random_rest(c, &seed);
        c->q.n_documents = count;
        for (size_t r = 0; r < c->n; r++)
            c->ranks[r].max_tokens = c->ranks[r].max_bytes = c->ranks[r].weight_bytes = 0;
        open_problem(c);
        assert_int_equal(split(c), HCP_STATUS_OK);
        best_ms = c->plan.makespan_ms;
        whole_ms = c->plan.whole_ms;
        cuts = c->plan.n_parts;
        c->q.cut_gain = fixture_real(&seed, 0.005, 0.1);
        assert_int_equal(split(c), HCP_STATUS_OK);
        check_parts(c);
        check_times(c);
        assert_true(c->plan.whole_ms == whole_ms);
        /* Of the plans seen: taking cuts back at any price can find another. */
        assert_true(c->plan.makespan_ms <= best_ms * (1 + c->q.cut_gain) * 1.01);
        if (whole_ms <= best_ms * (1 + c->q.cut_gain)) {
            assert_int_equal(c->plan.n_cut, 0);
            assert_true(c->plan.makespan_ms == whole_ms);
            kept_whole++;
        }
        fewer += (int64_t)c->plan.n_parts < cuts;
        c->q.whole = 1;
        assert_int_equal(split(c), HCP_STATUS_OK);
        assert_int_equal(c->plan.n_cut, 0);
        assert_true(c->plan.makespan_ms == whole_ms);
        close_problem(c);
    }
    print_message("# kept whole %d, fewer cuts %d\n", kept_whole, fewer);
    assert_true(kept_whole > 0 && fewer > 0);
}

static void small_problem(struct problem_of *c, const char *lengths)
{
    uint64_t seed = 1;

    random_kinds(c, &seed);
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
        cmocka_unit_test(best_of_all), cmocka_unit_test(near_the_best),
        cmocka_unit_test(given_parts), cmocka_unit_test(one_document),
        cmocka_unit_test(even_areas),  cmocka_unit_test(cut_gain),
        cmocka_unit_test(plan_files),  cmocka_unit_test(bad_input),
    };

    return cmocka_run_group_tests_name("documents", tests, NULL, NULL);
}
