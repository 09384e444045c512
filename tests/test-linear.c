/* SPDX-License-Identifier: Apache-2.0
 *
 * The time of a layer's linear part from linear rows.
 */
#include "config.h"
#include "db/layer.h"
#include "tests/db-fixture.h"

static const struct hcp_layer layer = {.hidden = 64,
                                       .ffn = 160,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 16,
                                       .gated = 1};

/* A machine: flat where weights are read, then straight. */
static double truth(int64_t tokens, double weights)
{
    double read = 1e-5 * weights, work = 3e-7 * weights * (double)tokens;
    return 0.01 + (read > work ? read : work);
}

static struct hcp_linear_row make(const struct hcp_layer_product *p, int64_t tokens)
{
    struct hcp_linear_row row;
    hcp_linear_row_init(&row);
    strcpy(row.device, "nvidia-h200");
    strcpy(row.limit, "mps:50");
    strcpy(row.library, "cublas");
    strcpy(row.library_version, "13.1.0");
    strcpy(row.dtype, "bf16");
    row.tokens = tokens;
    row.n_in = p->n_in;
    row.n_out = p->n_out;
    row.time_ms = truth(tokens, (double)p->n_in * (double)p->n_out);
    row.p25_ms = row.p75_ms = row.time_ms;
    strcpy(row.from.run_uid, "run-1");
    strcpy(row.from.measured_at, "2026-11-30T06:00:00Z");
    return row;
}

static void add(const struct hcp_linear_row *row)
{
    enum hcp_db_outcome outcome;
    if (hcp_db_add_linear(db, row, &outcome, &err) != HCP_OK)
        fail_msg("%s", err.text);
    assert_int_equal(outcome, HCP_DB_STORED);
}

/* Tokens from 1 to 4096 by factors of two, but for every product number `without`. */
static void plant(int without)
{
    struct hcp_layer_product p[HCP_LAYER_PRODUCTS];
    hcp_layer_products(&layer, p);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        for (int64_t t = 1; t <= 4096 && i != without; t *= 2) {
            struct hcp_linear_row row = make(&p[i], t);
            add(&row);
        }
}

static double layer_truth(int64_t tokens)
{
    struct hcp_layer_product p[HCP_LAYER_PRODUCTS];
    double sum = 0;
    hcp_layer_products(&layer, p);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        sum += truth(tokens, (double)p[i].n_in * (double)p[i].n_out);
    return sum;
}

static struct hcp_linear_answer ask(int64_t tokens)
{
    struct hcp_linear_answer a;
    if (hcp_linear_of(db, "nvidia-h200", "mps:50", "bf16", &layer, tokens, &a, &err) !=
        HCP_OK)
        fail_msg("%s", err.text);
    return a;
}

static int near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

static void products(void **state)
{
    struct hcp_layer_product p[HCP_LAYER_PRODUCTS];
    struct hcp_layer plain = layer;
    (void)state;
    hcp_layer_products(&layer, p);
    assert_string_equal(p[0].name, "qkv");
    assert_true(p[0].n_in == 64 && p[0].n_out == (4 + 2 * 2) * 16);
    assert_true(p[1].n_in == 64 && p[1].n_out == 64);
    assert_true(p[2].n_in == 64 && p[2].n_out == 320);
    assert_true(p[3].n_in == 160 && p[3].n_out == 64);
    plain.gated = 0;
    plain.head_dim = 8; /* heads need not make up the hidden width */
    hcp_layer_products(&plain, p);
    assert_true(p[0].n_out == 64 && p[1].n_in == 32 && p[2].n_out == 160);
    plain.kv_heads = 3;
    assert_int_equal(hcp_layer_check(&plain, &err), HCP_USAGE);
}

static void measured_verbatim(void **state)
{
    (void)state;
    plant(-1);
    for (int64_t t = 1; t <= 4096; t *= 2) {
        struct hcp_linear_answer a = ask(t);
        double sum = 0;
        assert_true(near(a.ms, layer_truth(t), 1e-12));
        assert_int_equal(a.source, HCP_LINEAR_MEASURED);
        assert_true(a.error > 0 && a.error <= 0.05);
        for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
            sum += a.product_ms[i];
        assert_true(near(sum, a.ms, 1e-12));
    }
    assert_true(ask(0).ms == 0);
}

/* What was never stored: straight parts exactly, the bend within the error it states. */
static void heldout_rows(void **state)
{
    (void)state;
    plant(-1);
    for (int64_t t = 3; t < 4096; t = t * 5 / 4 + 1) {
        struct hcp_linear_answer a = ask(t);
        double off = fabs(a.ms - layer_truth(t)) / layer_truth(t);
        if ((t & (t - 1)) == 0)
            continue;
        assert_int_equal(a.source, HCP_LINEAR_INTERPOLATED);
        assert_true(off <= a.error);
        assert_true(t >= 16 && t <= 64 ? off < 0.3 : off < 1e-9);
    }
    struct hcp_linear *linear;
    struct hcp_linear_heldout h;
    assert_int_equal(
        hcp_linear_load(db, "nvidia-h200", "mps:50", "bf16", &layer, &linear, &err),
        HCP_OK);
    hcp_linear_heldout(linear, &h);
    assert_int_equal(h.rows, 4 * 11);
    assert_true(h.median < 1e-9 && h.p90 > 0 && h.p90 < 0.5);
    hcp_linear_free(linear);
}

static void beyond(void **state)
{
    (void)state;
    plant(-1);
    for (int64_t t = 5000; t < 100000; t *= 3) {
        struct hcp_linear_answer a = ask(t);
        assert_int_equal(a.source, HCP_LINEAR_EXTRAPOLATED);
        assert_true(near(a.ms, layer_truth(t), 1e-6));
        assert_true(a.error > ask(4096).error);
    }
}

/* Noise that lets times fall: answers rise all the same, and stay near. */
static void monotone(void **state)
{
    struct hcp_layer_product p[HCP_LAYER_PRODUCTS];
    double last = 0;
    int fell = 0;
    (void)state;
    hcp_layer_products(&layer, p);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        for (int64_t t = 1, k = 0; t <= 4096; t *= 2, k++) {
            struct hcp_linear_row row = make(&p[i], t);
            row.time_ms *= k % 3 == 1 ? 1.08 : 0.97;
            row.p25_ms = row.p75_ms = row.time_ms;
            fell |= row.time_ms < last;
            last = t < 4096 ? row.time_ms : 0;
            add(&row);
        }
    assert_true(fell);
    last = 0;
    for (int64_t t = 1; t <= 9000; t++) {
        struct hcp_linear_answer a = ask(t);
        assert_true(a.ms >= last);
        last = a.ms;
    }
    assert_true(near(ask(2).ms, layer_truth(2), 0.05));
}

/* The last library counts, of several runs the median. */
static void newest(void **state)
{
    struct hcp_layer_product p[HCP_LAYER_PRODUCTS];
    (void)state;
    plant(-1);
    hcp_layer_products(&layer, p);
    for (int run = 2; run <= 4; run++)
        for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
            struct hcp_linear_row row = make(&p[i], 128);
            snprintf(row.from.run_uid, sizeof row.from.run_uid, "run-%d", run);
            strcpy(row.library_version, "13.2.0");
            strcpy(row.from.measured_at, "2026-12-01T06:00:00Z");
            row.time_ms = run == 4 ? 9 : run;
            row.p25_ms = row.p75_ms = row.time_ms;
            add(&row);
        }
    assert_true(ask(128).ms == 4 * 3);
    assert_int_equal(ask(256).source, HCP_LINEAR_EXTRAPOLATED);
    const char *version;
    struct hcp_linear *linear;
    assert_int_equal(
        hcp_linear_load(db, "nvidia-h200", "mps:50", "bf16", &layer, &linear, &err),
        HCP_OK);
    assert_string_equal(hcp_linear_library(linear, &version), "cublas");
    assert_string_equal(version, "13.2.0");
    hcp_linear_free(linear);
}

static void missing(void **state)
{
    struct hcp_linear_answer a;
    struct hcp_layer named = layer;
    (void)state;
    plant(2);
    assert_int_equal(
        hcp_linear_of(db, "nvidia-h200", "mps:50", "bf16", &layer, 128, &a, &err),
        HCP_NO_ANSWER);
    assert_non_null(strstr(err.text, "no linear row of up, 64 to 320, bf16"));
    assert_non_null(strstr(err.text,
                           "--linear --hidden 64 --ffn 160 --heads 4 --kv-heads "
                           "2 --head-dim 16 --dtype bf16 --limits mps:50'"));
    strcpy(named.name, "mine");
    assert_int_equal(hcp_linear_of(db, "nvidia-h200", "", "fp16", &named, 128, &a, &err),
                     HCP_NO_ANSWER);
    assert_non_null(
        strstr(err.text, "--linear --model mine --dtype fp16 --limits none'"));
}

static void write_table(const char *text)
{
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    setenv("HCP_MODELS", other, 1);
}

static void table(void **state)
{
    struct hcp_layer l;
    (void)state;
    write_table("# of mine\n\na 64 160 2 4 2 16 gated here\n"
                "b\t128 512 3 8 8 16 plain https://example.org/b#c\n");
    assert_int_equal(hcp_layer_find("a", &l, &err), HCP_OK);
    assert_true(l.hidden == 64 && l.ffn == 160 && l.layers == 2 && l.heads == 4 &&
                l.kv_heads == 2 && l.head_dim == 16 && l.gated == 1);
    assert_int_equal(hcp_layer_find("b", &l, &err), HCP_OK);
    assert_true(l.hidden == 128 && !l.gated && !strcmp(l.name, "b"));
    assert_int_equal(hcp_layer_find("c", &l, &err), HCP_USAGE);
    assert_non_null(strstr(err.text, "it has a, b"));
    write_table("a 64 160 2 4 2 16 gated\n");
    assert_int_equal(hcp_layer_find("a", &l, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, ":1: it does not say where it is from"));
    write_table("a 64 160 2 4 3 16 gated x\n");
    assert_int_equal(hcp_layer_find("a", &l, &err), HCP_FAILED);
    write_table("a 64 160 2 4 x 16 gated x\n");
    assert_int_equal(hcp_layer_find("a", &l, &err), HCP_FAILED);
    write_table("a 64 160 2\n");
    assert_int_equal(hcp_layer_find("a", &l, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "too few columns"));
    setenv("HCP_MODELS", "/nonexistent/models.txt", 1);
    assert_int_equal(hcp_layer_find("a", &l, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "set HCP_MODELS"));
}

/* Every line of the table that is installed. */
static void shipped(void **state)
{
    char file[1024], line[512], name[64];
    const char *source = getenv("top_srcdir");
    struct hcp_layer l;
    int n = 0;
    (void)state;
    snprintf(file, sizeof file, "%s/db/models.txt", source ? source : ".");
    setenv("HCP_MODELS", file, 1);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || sscanf(line, "%63s", name) != 1)
            continue;
        if (hcp_layer_find(name, &l, &err) != HCP_OK)
            fail_msg("%s", err.text);
        n++;
    }
    fclose(f);
    assert_true(n >= 16);
    assert_int_equal(hcp_layer_find("llama-3-8b", &l, &err), HCP_OK);
    assert_true(l.hidden == 4096 && l.ffn == 14336 && l.layers == 32 && l.heads == 32 &&
                l.kv_heads == 8 && l.head_dim == 128 && l.gated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(products),     TEST(measured_verbatim),
        TEST(heldout_rows), TEST(beyond),
        TEST(monotone),     TEST(newest),
        TEST(missing),      TEST(table),
        TEST(shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
