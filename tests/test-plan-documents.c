/* SPDX-License-Identifier: Apache-2.0
 *
 * Several documents in one step: their times and the best of all plans against
 * documents-reference.c, one document against a plan of one sequence, how even large
 * packs come out. HCP_TEST_SCALE multiplies the number of problems.
 */
#include "tests/documents-fixture.h"

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
    for (int round = 0; done < fixture_times(300); round++) {
        struct problem_of *c = &one;
        double best, whole;
        long plans;
        hcp_status status;

        fixture_kinds(c->fixtures, KINDS, &seed);
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
    for (int round = 0; done < fixture_times(60); round++) {
        struct problem_of *c = &one;
        double best;
        long plans;
        size_t count;

        fixture_kinds(c->fixtures, KINDS, &seed);
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
    for (int round = 0; round < fixture_times(150); round++) {
        struct problem_of *c = &one;
        size_t count = (size_t)fixture_range(&seed, 1, REFERENCE_DOCUMENTS);
        int64_t counts[MOST_RANKS];
        static hcp_document_part parts[MOST_DOCUMENTS + MOST_RANKS];
        hcp_documents_plan first;
        uint64_t fingerprint;

        fixture_kinds(c->fixtures, KINDS, &seed);
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
    for (int round = 0; round < fixture_times(100); round++) {
        struct problem_of *c = &one;
        struct fixture_plan p;
        int64_t tokens[MOST_RANKS];
        hcp_question q;

        fixture_kinds(c->fixtures, KINDS, &seed);
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

    fixture_kinds(c->fixtures, KINDS, seed);
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
    int packs = fixture_times(200);

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
    for (int round = 0; round < fixture_times(150); round++) {
        struct problem_of *c = &one;
        size_t count = (size_t)fixture_range(&seed, 2, 40);
        double best_ms, whole_ms;
        int64_t cuts;

        fixture_kinds(c->fixtures, KINDS, &seed);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_of_all), cmocka_unit_test(near_the_best),
        cmocka_unit_test(given_parts), cmocka_unit_test(one_document),
        cmocka_unit_test(even_areas),  cmocka_unit_test(cut_gain),
    };

    return cmocka_run_group_tests_name("documents", tests, NULL, NULL);
}
