/* SPDX-License-Identifier: Apache-2.0
 *
 * Caps in bytes: what is missing where nothing fits, tiles that leave room, and what a
 * plan's text keeps. HCP_TEST_SCALE=50 runs 50,000 problems.
 */
#include "tests/memory-fixture.h"

/* What is said to be missing is: so many bytes more on that rank, and there is a plan;
 * one less, and there is none (but for shares of one token, see above). Where no rank
 * alone can help, none can. */
static void what_is_missing(void **state)
{
    uint64_t seed = 703;
    int problems = (int)(600 * fixture_scale()), told = 0, forward = 0, hopeless = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 8);
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        long long bytes;
        size_t rank;
        char text[512] = "", *at;

        random_case(&c, n, 20, &seed);
        c.question.tile = c.fixtures[0].tile;
        if (c.question.tile == 1)
            c.question.tile = 16;
        c.question.seq_len += c.question.seq_len % c.question.tile == 1;
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.layout = HCP_LAYOUT_AUTO;
        if (fixture_range(&seed, 0, 3) == 0)
            c.question.sub_blocks = 3;
        models = fixture_models(c.fixtures, 4);
        for (size_t r = 0; r < n; r++)
            c.ranks[r].max_bytes -= c.ranks[r].max_bytes / 3;
        if (fixture_range(&seed, 0, 9) == 0)
            for (size_t r = 0; r < n; r++)
                c.ranks[r].max_tokens = c.question.seq_len / (int64_t)(2 * n) + 1;
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        if (fixture_split(ring, &c.question, &p, text, sizeof text) == HCP_STATUS_OK)
            goto next;
        assert_non_null(strstr(text, "the memory caps are short by "));
        at = strstr(text, "least is missing on rank ");
        if (!at) { /* whatever one of them has */
            hopeless++;
            assert_non_null(strstr(text, "no rank alone could hold them"));
            for (size_t r = 0; r < n; r++) {
                int64_t had = c.ranks[r].max_bytes;

                if (had == 0)
                    continue;
                c.ranks[r].max_bytes = HCP_PLAN_MAX_BYTES;
                hcp_ring_free(ring);
                ring = fixture_ring_of(models, c.ranks, n);
                assert_int_equal(fixture_split(ring, &c.question, &p, text, sizeof text),
                                 HCP_STATUS_INFEASIBLE);
                c.ranks[r].max_bytes = had;
            }
            goto next;
        }
        assert_int_equal(sscanf(at, "least is missing on rank %zu", &rank), 1);
        at = strstr(at, "): ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "): %lld bytes beyond", &bytes), 1);
        assert_true(rank < n && bytes > 0);
        told++;
        forward += c.question.causal && (c.question.layout == HCP_LAYOUT_CONTIGUOUS ||
                                         c.question.layout == HCP_LAYOUT_AUTO);
        for (int more = 1; more >= 0; more--) {
            hcp_status status;

            c.ranks[rank].max_bytes += more ? bytes : -1;
            hcp_ring_free(ring);
            ring = fixture_ring_of(models, c.ranks, n);
            status = fixture_split(ring, &c.question, &p, text, sizeof text);
            if (status != (more ? HCP_STATUS_OK : HCP_STATUS_INFEASIBLE))
                fail_msg("problem %d, %lld bytes more on rank %zu: %s", i, bytes - !more,
                         rank, more ? text : "there is a plan");
        }
    next:
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message(
        "# %d problems, %d infeasible, of those %d with blocks going forward and "
        "%d beyond one rank's help\n",
        problems, told + hopeless, forward, hopeless);
    assert_true(told > problems / 8 && forward > told / 10 && hopeless > 0);
}

static int64_t memory_buffers_of(const hcp_question *q, size_t n)
{
    return q->buffers > 0 && q->buffers < (int32_t)n - 1 ? q->buffers : (int64_t)n - 1;
}

/* Is there a split into units (and one rest) of up to three ranks that fits? */
static int some_split_fits(const hcp_ring *ring, const hcp_question *q, int64_t unit)
{
    int64_t units = q->seq_len / unit, rest = q->seq_len % unit, t[3];
    int n = (int)ring->n, fit = 0;

    for (int holder = 0; holder < n; holder++)
        for (int64_t a = 0; a <= units; a++)
            for (int64_t b = 0; b <= (n == 3 ? units - a : 0); b++) {
                t[0] = a * unit;
                t[1] = n == 3 ? b * unit : (units - a) * unit;
                t[2] = (units - a - b) * unit;
                t[holder] += rest;
                fit |= reference_fits(ring, q, t);
            }
    return fit;
}

/* Halves and stripes of shares are whole kernel tiles where caps in bytes leave a split
 * into those, and kernel tiles where only they fit. */
static void tile_choice(void **state)
{
    uint64_t seed = 704;
    int problems = (int)(400 * fixture_scale()), coarse = 0, fine = 0;

    (void)state;
    for (int i = 0; i < problems; i++) {
        size_t n = (size_t)fixture_range(&seed, 2, 3);
        struct memory_case c;
        struct fixture_plan p;
        hcp_models *models;
        hcp_ring *ring;
        hcp_question q;
        int64_t tile, unit;
        hcp_status status;
        char text[512] = "";

        random_case(&c, n, 20, &seed);
        tile = c.fixtures[0].tile > 1 ? c.fixtures[0].tile : 16;
        for (int k = 0; k < 4; k++)
            c.fixtures[k].tile = tile;
        c.question.causal = 1;
        c.question.layout =
            fixture_range(&seed, 0, 1) ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_STRIPED;
        c.question.tile = 0;
        unit = tile * (c.question.layout == HCP_LAYOUT_ZIGZAG ? 2 : c.question.stripes);
        c.question.seq_len = fixture_range(&seed, 4 * (int64_t)n, 8 * (int64_t)n) * unit +
                             fixture_range(&seed, 2, tile);
        for (size_t r = 0; r < n; r++) {
            /* About what half or twice an even share takes. */
            int64_t each = c.question.seq_len / (int64_t)n *
                           (c.question.layers * KV + c.question.activation_bytes +
                            memory_buffers_of(&c.question, n) * KV);

            c.ranks[r].max_bytes = c.ranks[r].weight_bytes + each +
                                   fixture_range(&seed, -each / 5, each / 4);
            c.ranks[r].max_tokens = 0;
        }
        models = fixture_models(c.fixtures, 4);
        ring = fixture_ring_of(models, c.ranks, n);
        fixture_plan_init(&p, n);
        q = c.question;
        q.tile = unit;
        status = fixture_split(ring, &c.question, &p, text, sizeof text);
        if (some_split_fits(ring, &q, unit)) {
            assert_int_equal(status, HCP_STATUS_OK);
            assert_int_equal(p.plan.tile, unit);
            coarse++;
        } else if (status == HCP_STATUS_OK) {
            assert_int_equal(p.plan.tile, tile);
            fine += unit > tile;
        }
        fixture_plan_free(&p);
        hcp_ring_free(ring);
        fixture_free(models);
    }
    print_message("# %d problems, units of several tiles in %d, of one in %d\n", problems,
                  coarse, fine);
    assert_true(coarse > problems / 4 && fine > problems / 100);
}

/* Into JSON and back, in the fingerprint, and none of it where there is none. */
static void json(void **state)
{
    static const struct fixture same[] = {
        {.device = "d0", .a = 2e-8, .f = 0.01, .tile = 128, .poly = 1, .error = 0.01}};
    hcp_models *models = fixture_models(same, 1);
    hcp_rank ranks[2];
    hcp_ring *ring;
    hcp_question q;
    struct fixture_plan p, copy;
    char text[512] = "", out[4096], again[4096], *bad;
    uint64_t before;

    (void)state;
    for (int r = 0; r < 2; r++) {
        hcp_rank_init(&ranks[r]);
        strcpy(ranks[r].device, "d0");
    }
    ring = fixture_ring_of(models, ranks, 2);
    fixture_plan_init(&p, 2);
    fixture_plan_init(&copy, 2);
    hcp_question_init(&q);
    q.seq_len = 8192;
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), 0);
    before = p.plan.fingerprint;
    /* One layer's K and V, and one buffer: the other rank's block. */
    assert_int_equal(p.plan.ranks[1].memory_bytes, 2 * 4096 * KV);
    assert_int_equal(hcp_plan_to_json(&p.plan, out, sizeof out, NULL), 0);
    assert_null(strstr(out, "bytes"));
    assert_null(strstr(out, "layers"));
    hcp_ring_free(ring);

    ranks[1].max_bytes = 50000000 + 3 * 2048 * (int64_t)KV + (8192 - 2048) * (int64_t)KV;
    ranks[1].weight_bytes = 50000000;
    q.layers = 3;
    ring = fixture_ring_of(models, ranks, 2);
    assert_int_equal(fixture_split(ring, &q, &p, text, sizeof text), 0);
    assert_int_equal(p.plan.ranks[1].tokens, 2048); /* to the byte */
    assert_int_equal(p.plan.ranks[1].memory_bytes, ranks[1].max_bytes);
    assert_true(p.plan.fingerprint != before);
    assert_int_equal(hcp_plan_to_json(&p.plan, out, sizeof out, NULL), 0);
    assert_non_null(strstr(out, "\"max_bytes\":100331648,\"weight_bytes\":50000000,"
                                "\"memory_bytes\":100331648}"));
    assert_non_null(strstr(out, ",\"layers\":3,\"activation_bytes\":0}"));
    hcp_plan_from_json(out, strlen(out), text, sizeof text, &copy.plan);
    assert_string_equal(text, "");
    assert_int_equal(hcp_plan_to_json(&copy.plan, again, sizeof again, NULL), 0);
    assert_string_equal(out, again);
    assert_int_equal(hcp_plan_fingerprint(&copy.plan), p.plan.fingerprint);
    copy.plan.layers = 4;
    assert_true(hcp_plan_fingerprint(&copy.plan) != p.plan.fingerprint);
    copy.plan.layers = 3;
    copy.plan.ranks[0].max_bytes = 1;
    assert_true(hcp_plan_fingerprint(&copy.plan) != p.plan.fingerprint);
    copy.plan.ranks[0].max_bytes = 0;

    /* An executor that keeps more buffers does not keep within the cap, unless there are
     * no more blocks to keep. */
    assert_int_equal(hcp_plan_memory(&copy.plan, text, sizeof text), 0);
    assert_int_equal(copy.plan.ranks[0].memory_bytes, p.plan.ranks[0].memory_bytes);
    copy.plan.buffers = 0;
    assert_int_equal(hcp_plan_memory(&copy.plan, text, sizeof text), 0);
    copy.plan.sub_blocks = 4; /* its own block once more */
    assert_int_equal(hcp_plan_memory(&copy.plan, text, sizeof text),
                     HCP_STATUS_INFEASIBLE);
    assert_non_null(strstr(text, "rank 1 needs 108720256 bytes for its 2048 tokens"));

    /* Files that break their own cap, and numbers out of range, are none. */
    bad = strstr(out, "\"memory_bytes\":100331648");
    bad[strlen("\"memory_bytes\":100331648") - 1] = '9';
    assert_int_equal(hcp_plan_from_json(out, strlen(out), text, sizeof text, &copy.plan),
                     HCP_STATUS_FORMAT);
    hcp_ring_free(ring);
    for (int k = 0; k < 4; k++) {
        hcp_shape shape;
        hcp_rank wrong = ranks[0];

        hcp_shape_init(&shape);
        *(k < 2 ? &wrong.max_bytes : &wrong.weight_bytes) =
            k % 2 ? -1 : HCP_PLAN_MAX_BYTES + 1;
        assert_int_equal(
            hcp_ring_create(models, &shape, &wrong, 1, NULL, text, sizeof text, &ring),
            HCP_STATUS_INVALID);
    }
    ring = fixture_ring_of(models, ranks, 2);
    for (int k = 0; k < 4; k++) {
        hcp_question wrong = q;

        if (k < 2)
            wrong.layers = k ? -1 : 65537;
        else
            wrong.activation_bytes = k == 2 ? -1 : ((int64_t)1 << 32) + 1;
        assert_int_equal(fixture_split(ring, &wrong, &p, text, sizeof text),
                         HCP_STATUS_INVALID);
    }
    fixture_plan_free(&p);
    fixture_plan_free(&copy);
    hcp_ring_free(ring);
    fixture_free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing),
        cmocka_unit_test(tile_choice),
        cmocka_unit_test(json),
    };

    return cmocka_run_group_tests_name("plan-memory-room", tests, NULL, NULL);
}
