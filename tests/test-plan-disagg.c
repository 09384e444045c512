/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks prefill and which decode: the best of all ways, decisions that turn where
 * lines cross, transfers that can be followed, memory of both phases.
 */
#include "tests/disagg-fixture.h"
#include "tests/disagg-reference.h"
#include "tests/plan-reference.h"

/* Kinds whose prefill and decode are about as long at some number of steps, which differ
 * in both. */
static void random_kinds(uint64_t *seed, struct fixture *prefill,
                         struct decode_kind *decode)
{
    for (int k = 0; k < KINDS; k++) {
        double speed = fixture_real(seed, 0.1, 1);

        prefill[k] = (struct fixture){.device = "nvidia-h200",
                                      .limit = limits[k],
                                      .a = 2e-7 / speed,
                                      .b = fixture_real(seed, 0, 1e-4),
                                      .f = fixture_real(seed, 0, 0.2),
                                      .tile = fixture_range(seed, 0, 1) ? 64 : 128,
                                      .lut = 1,
                                      .bumps = fixture_range(seed, 0, 1),
                                      .error = 0.02};
        decode[k] =
            (struct decode_kind){fixture_real(seed, 0, 0.02),
                                 fixture_real(seed, 2e-6, 2e-5),
                                 0,
                                 0.02,
                                 fixture_range(seed, 0, 1) ? fixture_random(seed) : 0,
                                 fixture_range(seed, 0, 1) ? 64 : 128};
    }
}

static void random_case(struct advising *a, uint64_t *seed, size_t most)
{
    struct fixture prefill[KINDS];
    struct decode_kind decode[KINDS];
    int kind_of[MOST];
    size_t n = (size_t)fixture_range(seed, 2, (int64_t)most);
    int32_t batch = (int32_t)fixture_range(seed, 1, 6);
    int kinds = (int)fixture_range(seed, n > 4 ? 1 : 2, KINDS);

    random_kinds(seed, prefill, decode);
    for (size_t r = 0; r < n; r++)
        kind_of[r] = (int)fixture_range(seed, 0, kinds - 1);
    make(a, prefill, decode, batch, n, kind_of);
    a->prefill.seq_len = fixture_range(seed, 300, 3000);
    a->prefill.causal = fixture_range(seed, 0, 3) > 0;
    a->prefill.layout = (hcp_layout)fixture_range(seed, 1, 2);
    a->prefill.layers = (int32_t)fixture_range(seed, 1, 4);
    a->prefill.activation_bytes = fixture_range(seed, 0, 1) ? 0 : 1000;
    a->prefill.link_gbps = fixture_range(seed, 0, 2) ? fixture_real(seed, 1, 50) : 0;
    a->decode.extrapolate = 1;
    a->decode.seq_len = a->prefill.seq_len;
    a->decode.layers = a->prefill.layers;
    a->decode.activation_bytes = a->prefill.activation_bytes;
    a->decode.link_alpha_us = fixture_range(seed, 0, 2) ? fixture_real(seed, 0, 5) : 0;
    a->decode.link_gbps = fixture_range(seed, 0, 2) ? fixture_real(seed, 1, 50) : 0;
    a->q.steps = fixture_range(seed, 1, 60);
    a->q.objective = (hcp_disagg_objective)fixture_range(seed, 0, 1);
    a->q.stream = fixture_range(seed, 0, 1);
    a->q.link_alpha_us = fixture_range(seed, 0, 2) ? fixture_real(seed, 0, 20) : 0;
    a->q.link_gbps = fixture_range(seed, 0, 3) ? fixture_real(seed, 0.2, 60) : 0;
    if (fixture_range(seed, 0, 2) == 0)
        for (size_t r = 0; r < n; r++)
            a->ranks[r].decode_linear_us = 10.0 * (kind_of[r] + 1);
    if (fixture_range(seed, 0, 2) == 0)
        for (size_t r = 0; r < n; r++)
            a->ranks[r].linear_after_us = 0.05 * (kind_of[r] + 1);
    if (fixture_range(seed, 0, 3) == 0) /* one has been seen to run slower */
        a->ranks[fixture_range(seed, 0, (int64_t)n - 1)].time_scale =
            fixture_real(seed, 1.5, 4);
}

/* Caps around what an even share of one or of two batches takes, weights beside them. */
static void random_caps(struct advising *a, uint64_t *seed)
{
    double all = 2.0 * a->shape[1].batch * 8 * 128 * 2 * a->prefill.layers *
                 (double)a->prefill.seq_len;

    for (size_t r = 0; r < a->n; r++) {
        size_t like = 0;

        while (strcmp(a->ranks[like].limit, a->ranks[r].limit) != 0)
            like++;
        if (like < r) {
            a->ranks[r] = a->ranks[like];
        } else if (fixture_range(seed, 0, 2)) {
            a->ranks[r].weight_bytes = fixture_range(seed, 0, 50000000);
            a->ranks[r].max_bytes =
                a->ranks[r].weight_bytes +
                (int64_t)(all / (double)a->n * fixture_real(seed, 0.3, 4.5));
        } else if (fixture_range(seed, 0, 3) == 0) {
            a->ranks[r].max_tokens = fixture_range(seed, 100, a->prefill.seq_len);
        }
    }
}

/* Bytes of both phases, all runs and batches, by other formulas than the planner's. */
static void memory(const struct advising *a)
{
    int separate = a->out.decision == HCP_DISAGG_SEPARATE;
    int copies = separate && a->q.objective == HCP_DISAGG_THROUGHPUT ? 2 : 1;
    hcp_question q[2] = {a->prefill, a->decode};
    int64_t tokens[MOST] = {0}, bytes[MOST];
    hcp_rank group[MOST];
    hcp_ring *ring;
    size_t m = 0;
    int32_t decoding = 0;

    q[0].layers *= a->shape[1].batch * copies; /* prefill takes one at a time */
    q[0].layout = a->out.prefill->layout;
    q[1].layers *= copies;
    for (size_t r = 0; r < a->n; r++) {
        decoding += a->out_ranks[r].decode_tokens > 0;
        if (a->out_ranks[r].prefill_place < 0)
            continue;
        group[m] = a->ranks[r];
        tokens[m++] = a->out_ranks[r].prefill_tokens;
    }
    ring = fixture_ring_of(a->models, group, m);
    reference_memory(ring, &q[0], tokens, bytes);
    hcp_ring_free(ring);
    for (size_t r = 0; r < a->n; r++) {
        const hcp_disagg_rank *rank = &a->out_ranks[r];
        int64_t need = rank->prefill_tokens > 0 ? bytes[rank->prefill_place] : 0, more;

        if (rank->decode_tokens > 0) {
            more = reference_decode_bytes(&a->shape[1], &q[1], a->out.decode->merge,
                                          decoding, a->ranks[r].weight_bytes,
                                          rank->decode_tokens);
            need = more > need ? more : need;
        }
        assert_int_equal(rank->memory_bytes, need);
        assert_true(a->ranks[r].max_bytes == 0 || need <= a->ranks[r].max_bytes);
        assert_true(a->ranks[r].max_tokens == 0 ||
                    (rank->prefill_tokens <= a->ranks[r].max_tokens &&
                     rank->decode_tokens <= a->ranks[r].max_tokens));
        if (separate)
            assert_true(rank->prefill_tokens == 0 || rank->decode_tokens == 0);
    }
}

static int equal(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static double score_of(const struct advising *a, const hcp_disagg_option *o)
{
    if (!o->exists)
        return -1;
    return a->q.objective == HCP_DISAGG_LATENCY ? o->latency_ms : o->period_ms;
}

/* Score of an option whose phases take that much of what they do. */
static double score_by(const struct advising *a, const hcp_disagg_option *o, int separate,
                       double by, double step_by)
{
    int k = a->q.stream ? a->shape[1].batch * a->prefill.layers : 1;
    double ttft = by * o->ttft_ms, decode = step_by * (double)a->q.steps * o->step_ms;

    return separate && a->q.objective == HCP_DISAGG_THROUGHPUT
               ? fmax(ttft, fmax(o->move_ms, decode))
               : fmax(ttft + o->move_ms / k, ttft / k + o->move_ms) + decode;
}

/* In random_kinds() all that is measured errs by 2 %, steps upwards by 4 (put_decode());
 * linear work and merges do not. */
static void intervals(const struct advising *a)
{
    const hcp_disagg_option *o[2] = {&a->out.colocated, &a->out.separate};
    int measured = a->decode.link_alpha_us == 0 && a->decode.link_gbps == 0;

    for (size_t r = 0; r < a->n; r++)
        measured &= a->ranks[r].linear_after_us == 0 && a->ranks[r].decode_linear_us == 0;
    for (int i = 0; measured && i < 2; i++) {
        double hi;

        if (!o[i]->exists)
            continue;
        hi = score_by(a, o[i], i, 1.02, 1.04);
        assert_true(equal(o[i]->interval_lo_ms, score_by(a, o[i], i, 0.98, 0.98)));
        /* More where steps are of fewer keys than were measured. */
        assert_true(
            equal(o[i]->interval_hi_ms, hi) ||
            (o[i]->interval_hi_ms > hi &&
             (i != (int)a->out.decision || a->out.source == HCP_FROM_EXTRAPOLATED)));
    }
    assert_int_equal(a->out.within_error,
                     o[0]->exists && o[1]->exists &&
                         fmax(o[0]->interval_lo_ms, o[1]->interval_lo_ms) <=
                             fmin(o[0]->interval_hi_ms, o[1]->interval_hi_ms));
}

static void compare(struct advising *a, const struct disagg_ways *ways, int number)
{
    const hcp_disagg_option *option[2] = {&a->out.colocated, &a->out.separate};

    for (int separate = 0; separate < 2; separate++) {
        double latency = 0;
        double best =
            disagg_least(ways, separate, a->q.link_gbps, (double)a->q.steps, &latency);
        double got = score_of(a, option[separate]);

        if (best < 0 ? got >= 0
                     : !equal(got, best) ||
                           option[separate]->latency_ms > latency * (1 + 1e-9))
            fail_msg("case %d: %s %.17g (%.17g), of all ways %.17g (%.17g)", number,
                     separate ? "separate" : "colocated", got,
                     option[separate]->latency_ms, best, latency);
        if (best >= 0) {
            const hcp_disagg_option *o = option[separate];

            assert_true(equal(o->latency_ms, o->ttft_ms + o->exposed_ms +
                                                 (double)a->q.steps * o->step_ms));
            assert_true(o->exposed_ms <= o->move_ms * (1 + 1e-9));
            assert_true(o->interval_lo_ms <= got * (1 + 1e-12) &&
                        o->interval_hi_ms >= got * (1 - 1e-12));
            assert_true(equal(o->bound_ms, got) && o->bound_ms <= got);
            assert_true(equal(o->requests_per_s, 1e3 * a->shape[1].batch / o->period_ms));
        }
    }
    intervals(a);
    assert_int_equal(a->out.decision,
                     disagg_better(ways, a->q.link_gbps, (double)a->q.steps));
    if (option[0]->exists && option[1]->exists)
        assert_true(equal(a->out.gain_over_colocated,
                          score_of(a, option[0]) / score_of(a, option[1])));
    else
        assert_true(isnan(a->out.gain_over_colocated));
}

static void exhaustive(void **state)
{
    uint64_t seed = 91;
    int cases = (int)(600 * fixture_scale()), decided[2] = {0}, none = 0, capped = 0,
        moved = 0;

    (void)state;
    for (int i = 0; i < cases; i++) {
        struct disagg_ways ways;
        struct advising a;
        hcp_status status;

        random_case(&a, &seed, i % 12 ? 4 : 5);
        if (i % 2)
            random_caps(&a, &seed);
        if (i % 5 == 0)
            a.q.ttft_limit_ms = fixture_real(&seed, 0.5, 6);
        if (i % 7 == 0)
            a.q.tpot_limit_ms = fixture_real(&seed, 0.01, 0.3);
        if (bind(&a))
            fail_msg("case %d: %s", i, text);
        status = ask(&a);
        disagg_ways(a.models, &a.shape[0], &a.shape[1], a.ranks, a.n, &a.q, &ways);
        if (disagg_better(&ways, a.q.link_gbps, (double)a.q.steps) < 0) {
            /* Outside: what caps leave may need lengths that are not measured. */
            assert_true(status == HCP_STATUS_INFEASIBLE || status == HCP_STATUS_OUTSIDE);
            none++;
        } else {
            if (status)
                fail_msg("case %d: %s", i, text);
            compare(&a, &ways, i);
            assert_int_equal(a.out.exact, 1);
            follow(&a);
            memory(&a);
            decided[a.out.decision]++;
            capped += i % 2;
            moved += a.out.n_moves > 0;
        }
        disagg_ways_free(&ways);
        clear(&a);
    }
    print_message(
        "# %d colocate, %d disaggregate (%d capped, %d with transfers), %d have no "
        "answer\n",
        decided[0], decided[1], capped, moved, none);
    if (fixture_scale() >= 0.5)
        assert_true(decided[0] > 60 && decided[1] > 60 && none > 15 && capped > 60);
}

/* The same ranks, in three classes all looked at, and each a class of its own by next to
 * nothing: how far off is what is looked at of many; the same twice, byte for byte. */
static void many(void **state)
{
    struct fixture prefill[KINDS];
    struct decode_kind decode[KINDS];
    uint64_t seed = 95;
    int kind_of[MOST], cases = fixture_scale() < 1 ? 1 : (int)(4 * fixture_scale());
    double worst = 1, sum = 0;

    (void)state;
    for (int i = 0; i < cases; i++) {
        hcp_disagg_rank ranks[MOST];
        struct advising a;
        double score[2] = {0}, latency;

        random_kinds(&seed, prefill, decode);
        for (int r = 0; r < MOST; r++)
            kind_of[r] = r % KINDS;
        for (int apart = 0; apart < 2; apart++) {
            uint64_t same = seed;

            make(&a, prefill, decode, 3, MOST, kind_of);
            a.prefill.seq_len = a.decode.seq_len = fixture_range(&same, 4000, 20000);
            a.prefill.causal = 1;
            a.prefill.layout = HCP_LAYOUT_ZIGZAG;
            a.decode.extrapolate = 1;
            a.q.steps = fixture_range(&same, 10, 100);
            a.q.link_gbps = fixture_real(&same, 10, 100);
            a.q.link_alpha_us = 10;
            for (int r = 0; apart && r < MOST; r++)
                a.ranks[r].decode_linear_us = 1e-6 * r;
            if (bind(&a) || ask(&a))
                fail_msg("%s", text);
            assert_int_equal(a.out.n_classes, apart ? MOST : KINDS);
            assert_int_equal(a.disagg->every, !apart);
            assert_true(a.out.colocated.exists && a.out.separate.exists);
            assert_true(apart ? !a.out.exact && a.out.separate.bound_ms == 0
                              : a.out.separate.bound_ms > 0);
            follow(&a);
            memory(&a);
            score[apart] = fmin(a.out.colocated.period_ms, a.out.separate.period_ms);
            memcpy(ranks, a.out_ranks, sizeof ranks);
            latency = a.out.separate.latency_ms;
            if (i < 2) {
                memset(a.workspace, 0x5a, a.workspace_bytes);
                assert_int_equal(ask(&a), HCP_STATUS_OK);
                assert_memory_equal(ranks, a.out_ranks, sizeof ranks);
                assert_true(latency == a.out.separate.latency_ms);
            }
            clear(&a);
            if (apart)
                seed = same;
        }
        worst = fmax(worst, score[1] / score[0]);
        sum += score[1] / score[0];
    }
    print_message("# what is looked at of many: %.2f %% above all on average, %.2f %% at "
                  "most\n",
                  100 * (sum / cases - 1), 100 * (worst - 1));
    assert_true(sum / cases < 1.08 && worst < 1.3);
}

/* ---- where decisions turn ---- */

/* The speed, or number of steps, next to `from` on one side at which the decision by
 * lines is another one, by steps of 1 % up to a factor; 0: there is none. */
static double next_turn(const struct disagg_ways *ways, double gbps, double steps,
                        int speed, double factor, double most)
{
    int decision = disagg_better(ways, gbps, steps);

    for (double f = factor; f < most && f > 1 / most; f *= factor)
        if (disagg_better(ways, speed ? gbps * f : gbps, speed ? steps : steps * f) !=
            decision)
            return (speed ? gbps : steps) * f;
    return 0;
}

static void check_turn(const struct disagg_ways *ways, double gbps, double steps,
                       int speed, double factor, double got, int *turns, int *nearest)
{
    int decision = disagg_better(ways, gbps, steps);
    double next = next_turn(ways, gbps, steps, speed, factor, 1e4), here;

    if (!(got > 0 && isfinite(got))) {
        /* None within 1e4, or a short one between two doublings. */
        *nearest += next == 0;
        *turns += 1;
        return;
    }
    /* It is one: within 5 % (for steps, or a step) the decision is another one. */
    here = speed ? 0.05 * got : fmax(0.05 * got, 1);
    assert_int_not_equal(
        disagg_better(ways, speed ? got * (factor > 1 ? 1.0001 : 0.9999) : gbps,
                      speed ? steps : got),
        decision);
    assert_int_equal(disagg_better(ways,
                                   speed ? got * (factor > 1 ? 0.9999 : 1.0001) : gbps,
                                   speed ? steps : got + (factor > 1 ? -1 : 1)),
                     decision);
    *turns += 1;
    *nearest += next > 0
                    ? fabs(got - next) <= here
                    : got > 9e3 * (speed ? gbps : steps) ||
                          got < 1.2e-4 * (speed ? gbps : steps) || (!speed && got <= 1);
}

static void turning_points(void **state)
{
    uint64_t seed = 92;
    int cases = (int)(300 * fixture_scale()), found = 0, turns = 0, nearest = 0;

    (void)state;
    for (int i = 0; i < cases; i++) {
        struct disagg_ways ways;
        struct advising a;

        random_case(&a, &seed, 3);
        a.q.link_gbps = fixture_real(&seed, 0.2, 60);
        if (i % 3)
            a.q.link_alpha_us = 0;
        if (bind(&a) || ask(&a))
            fail_msg("case %d: %s", i, text);
        disagg_ways(a.models, &a.shape[0], &a.shape[1], a.ranks, a.n, &a.q, &ways);
        compare(&a, &ways, i);
        found += a.out.turns_below_gbps > 0 || isfinite(a.out.turns_above_gbps);
        check_turn(&ways, a.q.link_gbps, (double)a.q.steps, 1, 1 / 1.01,
                   a.out.turns_below_gbps, &turns, &nearest);
        check_turn(&ways, a.q.link_gbps, (double)a.q.steps, 1, 1.01,
                   a.out.turns_above_gbps, &turns, &nearest);
        check_turn(&ways, a.q.link_gbps, (double)a.q.steps, 0, 1.01,
                   (double)a.out.turns_above_steps, &turns, &nearest);
        if (a.out.turns_below_steps > 0)
            check_turn(&ways, a.q.link_gbps, (double)a.q.steps, 0, 1 / 1.01,
                       (double)a.out.turns_below_steps, &turns, &nearest);
        disagg_ways_free(&ways);
        clear(&a);
    }
    print_message("# %d of %d cases turn with speed; %d of %d turns are the nearest\n",
                  found, cases, nearest, turns);
    if (fixture_scale() >= 0.5)
        assert_true(found > 60);
    assert_true(nearest >= turns * 0.97);
}

/* Two ranks, each good at one phase and bad at the other, whole sequences on one of them.
 * Side by side a stream takes max(prefill, bytes / B, steps * step), one after the other
 * more than that; on one rank alone a time T that no transfer is part of. So the decision
 * turns at B = bytes / T, and of the latency at B = bytes / (T - prefill - steps * step)
 * it does not: the same ranks in turn are colocated too. */
static void analytic(void **state)
{
    uint64_t seed = 93;
    int kind_of[2] = {0, 1};

    (void)state;
    for (int i = 0; i < 220; i++) {
        double bad = fixture_real(&seed, 2, 30), a0 = fixture_real(&seed, 1e-7, 4e-7);
        double d1 = fixture_real(&seed, 2e-6, 8e-6), prefill, step, bytes, alone, turn;
        int64_t s = 64 * fixture_range(&seed, 20, 60), below, above;
        struct fixture kinds[KINDS] = {{.limit = limits[0], .a = a0},
                                       {.limit = limits[1], .a = bad * a0},
                                       {.limit = limits[2], .a = 1}};
        struct decode_kind decode[KINDS] = {{0, bad * d1, 0, 0.02, 0, 64},
                                            {0, d1, 0, 0.02, 0, 64},
                                            {0, 1, 0, 0.02, 0, 64}};
        struct advising a;

        for (int k = 0; k < KINDS; k++) {
            kinds[k].device = "nvidia-h200";
            kinds[k].tile = 64;
            kinds[k].lut = 1;
        }
        make(&a, kinds, decode, 2, 2, kind_of);
        a.prefill.seq_len = a.decode.seq_len = s;
        a.prefill.tile = a.decode.tile = s; /* whole sequences on one rank */
        a.prefill.layers = a.decode.layers = 3;
        a.decode.extrapolate = 1;
        prefill = a0 * (double)s * (double)s * 3 * 2;
        step = d1 * (double)s * 3;
        a.q.steps = 1 + (int64_t)(prefill / step * fixture_real(&seed, 2, 6));
        bytes = 2.0 * 2 * 8 * 128 * 2 * 3 * (double)s;
        alone = fmin(prefill + (double)a.q.steps * bad * step,
                     bad * prefill + (double)a.q.steps * step);
        turn = bytes / (alone * 1e6);
        a.q.link_gbps = turn * (i % 2 ? fixture_real(&seed, 1.05, 8)
                                      : fixture_real(&seed, 0.1, 0.95));
        if (bind(&a) || ask(&a))
            fail_msg("case %d: %s", i, text);
        assert_int_equal(a.out.decision, a.q.link_gbps > turn);
        assert_true(
            fabs((i % 2 ? a.out.turns_below_gbps : a.out.turns_above_gbps) / turn - 1) <
            0.05);
        /* Steps: where steps * step is the longest it is shorter than any other way. So
         * it turns where the transfer is as long as taking turns on one rank. */
        below = a.out.turns_below_steps;
        above = a.out.turns_above_steps;
        if (i % 2) {
            double move = bytes / (a.q.link_gbps * 1e6);
            double least = fmax((move - prefill) / (bad * step), 0);
            double other = fmax((move - bad * prefill) / step, 0);

            least =
                fmax(least, other); /* both ways on one rank take that long from here */
            assert_true(fabs((double)below - least) <= 0.05 * least + 1);
            assert_int_equal(above, 0);
        } else {
            assert_int_equal(below, 0);
            assert_true(above > a.q.steps);
        }
        clear(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exhaustive),
        cmocka_unit_test(turning_points),
        cmocka_unit_test(analytic),
        cmocka_unit_test(many),
    };

    return cmocka_run_group_tests_name("plan-disagg", tests, NULL, NULL);
}
