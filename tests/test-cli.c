/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict parsing, shape options, tables and JSON, in every locale.
 */
#include "config.h"
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "db/cli.h"
#include "kernels/geometry.h"

_Static_assert(HCP_LEN_LIMIT == HCP_MAX_LEN, "one limit for lengths");

static struct hcp_err err;

static void words(const char *wanted)
{
    if (!strstr(err.text, wanted))
        fail_msg("wanted '%s', got '%s'", wanted, err.text);
}

static void lengths(void **state)
{
    static const struct {
        const char *text;
        int64_t value; /* -1: not a length, -2: out of range */
    } cases[] = {
        {"1", 1},
        {"7", 7},
        {"4096", 4096},
        {"64K", 65536},
        {"64k", 65536},
        {"1M", 1 << 20},
        {"1G", 1 << 30},
        {"1024M", 1 << 30},
        {"1073741824", 1 << 30},
        {"007", 7},
        {"0", -2},
        {"0K", -2},
        {"1073741825", -2},
        {"2G", -2},
        {"1025M", -2},
        {"1099511627776", -2},
        {"99999999999999999999999", -2},
        {"18446744073709551617K", -2},
        {"", -1},
        {" 1", -1},
        {"1 ", -1},
        {"+1", -1},
        {"-1", -1},
        {"1,5", -1},
        {"1.5", -1},
        {"1.5K", -1},
        {"0x10", -1},
        {"1e3", -1},
        {"K", -1},
        {"64KB", -1},
        {"64KiB", -1},
        {"\xc2\xb9", -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 4711;
        int rc = hcp_parse_len(cases[i].text, 1, &v, &err);
        if (cases[i].value >= 0) {
            assert_int_equal(rc, HCP_OK);
            assert_int_equal(v, cases[i].value);
            continue;
        }
        assert_int_equal(rc, HCP_USAGE);
        assert_int_equal(v, 4711);
        words(cases[i].text);
        words(cases[i].value == -2 ? "out of range; lengths go from 1 to 1073741824"
                                   : "whole number of tokens");
    }
    assert_int_equal(hcp_parse_len("0", 0, &(int64_t){0}, &err), HCP_OK);
    assert_int_equal(hcp_parse_len("1\n2", 0, &(int64_t){0}, &err), HCP_USAGE);
    words("length '1?2'"); /* a message is one line */
}

static void integers(void **state)
{
    static const char *const bad[] = {"", " 1", "+1", "1.0", "1e3", "--1", "-", "1-"};
    int64_t v = 0;

    (void)state;
    assert_int_equal(
        hcp_parse_int("-9223372036854775807", "n", INT64_MIN + 1, 9, &v, &err), 0);
    assert_true(v == INT64_MIN + 1);
    assert_int_equal(hcp_parse_int("9223372036854775807", "n", 1, INT64_MAX, &v, &err),
                     0);
    assert_true(v == INT64_MAX);
    assert_int_equal(hcp_parse_int("9223372036854775808", "n", 1, INT64_MAX, &v, &err),
                     HCP_USAGE);
    words("n '9223372036854775808' is out of range");
    assert_int_equal(hcp_parse_int("-1", "--heads", 1, 64, &v, &err), HCP_USAGE);
    words("--heads '-1' is not a whole number; allowed: 1 to 64");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hcp_parse_int(bad[i], "n", -5, 64, &v, &err), HCP_USAGE);
}

static void doubles(void **state)
{
    static const char *const good[] = {
        "0",   "1",    "-1.5",     ".5",  "5.",
        "1e3", "1E-3", "1.5e+300", "0.1", "123456789.123456789"};
    static const char *const bad[] = {"",     ".",        "-",     "+1",    " 1",  "1 ",
                                      "0x10", "1e",       "e5",    "nan",   "NaN", "inf",
                                      "-inf", "infinity", "1e999", "1.2.3", "1_0", "--1"};
    double v = 0;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(hcp_parse_double(good[i], &v, &err), HCP_OK);
        assert_true(v == strtod(good[i], NULL));
    }
    v = 4711;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hcp_parse_double(bad[i], &v, &err), HCP_USAGE);
        words(bad[i]);
    }
    assert_true(v == 4711);
    assert_int_equal(hcp_parse_double("1,5", &v, &err), HCP_USAGE);
    words("'1,5' has a decimal comma");
}

static void formats(void **state)
{
    static const struct {
        double v;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1.0 / 3, "0.3333333333333333"},
                 {5, "5"},
                 {1e300, "1e+300"},
                 {0.30000000000000004, "0.30000000000000004"},
                 {-0.0, "-0"},
                 {123456, "123456"},
                 {NAN, "nan"},
                 {-INFINITY, "-inf"},
                 {5e-324, "4.94065645841247e-324"}};
    uint64_t x = 88172645463325252u;
    char buf[32];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(hcp_format_double(cases[i].v, buf), cases[i].text);
    for (int i = 0; i < 100000; i++) { /* any bits come back */
        double v, back = 0;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v))
            continue;
        hcp_format_double(v, buf);
        assert_int_equal(hcp_parse_double(buf, &back, &err), HCP_OK);
        assert_memory_equal(&v, &back, sizeof v);
    }
}

static void limits(void **state)
{
    static const char *const bad[] = {
        "mps",     "mps:",       "mps:0",      "mps:101", "mps:abc",         "mps:-1",
        "mps:+5",  "mps:010",    "mps:1.5",    "mps: 5",  "mps:99999999999", "MPS:10",
        "green:0", "green:2000", "cpu:0",      "cpu:101", "cpu:50%",         "gpu:5",
        ":5",      "50",         "mps:5,cpu:5"};
    char kind[8] = "?";
    int32_t v = -1;

    (void)state;
    assert_int_equal(hcp_parse_limit("mps:10", kind, &v, &err), HCP_OK);
    assert_string_equal(kind, "mps");
    assert_int_equal(v, 10);
    assert_int_equal(hcp_parse_limit("green:132", kind, &v, &err), HCP_OK);
    assert_int_equal(v, 132);
    assert_int_equal(hcp_parse_limit("cpu:100", kind, &v, &err), HCP_OK);
    assert_int_equal(hcp_parse_limit("", kind, &v, &err), HCP_OK);
    assert_string_equal(kind, "");
    assert_int_equal(v, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hcp_parse_limit(bad[i], kind, &v, &err), HCP_USAGE);
        words(bad[i]);
    }
    hcp_parse_limit("mps:101", kind, &v, &err);
    words("limit 'mps:101': '101' is not a level; write mps:N with N from 1 to 100");
    hcp_parse_limit("gpu:5", kind, &v, &err);
    words("write mps:PCT, green:SMS or cpu:PCT");
}

static void ranks(void **state)
{
    static const char *const bad[] = {"",
                                      ",",
                                      "a,",
                                      ",a",
                                      "0*a",
                                      "*a",
                                      "x*a",
                                      "-1*a",
                                      "a@",
                                      "@mps:5",
                                      "2*",
                                      "a@mps:0",
                                      "A100",
                                      "a b",
                                      "70000*a",
                                      "40000*a,40000*a",
                                      "a@mps:5@mps:6",
                                      "2*3*a"};
    struct hcp_key *list = NULL;
    size_t n = 0;

    (void)state;
    assert_int_equal(
        hcp_parse_ranks("2*nvidia-h200@mps:10,cpu-x@cpu:50,nvidia-a100", &list, &n, &err),
        HCP_OK);
    assert_int_equal(n, 4);
    assert_string_equal(list[1].device, "nvidia-h200");
    assert_string_equal(list[1].limit, "mps:10");
    assert_string_equal(list[2].limit, "cpu:50");
    assert_string_equal(list[3].device, "nvidia-a100");
    assert_string_equal(list[3].limit, "");
    free(list);
    list = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (hcp_parse_ranks(bad[i], &list, &n, &err) != HCP_USAGE)
            fail_msg("'%s' was taken", bad[i]);
        assert_null(list);
    }
}

/* argp ends the process on an error: parse in a child. */
static int shape_exit(char *option, char *text, size_t size)
{
    char *argv[] = {(char *)"prog", option, NULL};
    int status, pipes[2];
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        struct hcp_shape_args shape;
        dup2(pipes[1], 2);
        hcp_cli_set_name("prog");
        hcp_shape_defaults(&shape);
        argp_parse(&hcp_shape_argp, option ? 2 : 1, argv, 0, NULL, &shape);
        fprintf(stderr, "%lld %d/%d %d %s %s %s %d %s", (long long)shape.seq_len,
                shape.heads, shape.kv_heads, shape.head_dim, shape.dtype, shape.mask,
                shape.layout, shape.batch, shape.phase);
        _exit(0);
    }
    close(pipes[1]);
    n = read(pipes[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(pipes[0]);
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void shapes(void **state)
{
    static const struct {
        const char *option, *words;
        int code;
    } cases[] = {
        {NULL, "0 32/8 128 bf16 full  1 prefill", 0},
        {"--seq-len=64K", "65536 32/8", 0},
        {"--mask=causal", "causal", 0},
        {"--layout=zigzag", "zigzag", 0},
        {"--seq-len=0", "length '0' is out of range", 2},
        {"--seq-len=-1", "length '-1' is not a whole number", 2},
        {"--seq-len=1099511627776", "out of range; lengths go from 1 to 1073741824", 2},
        {"--kv-heads=7", "32 query heads cannot share 7 KV heads evenly", 2},
        {"--heads=0", "--heads '0' is out of range", 2},
        {"--dtype=int8", "--dtype 'int8' is not known; expected bf16, fp16 or fp32", 2},
        {"--mask=band", "--mask 'band' is not known", 2},
        {"--layout=ring", "--layout 'ring' is not known", 2},
        {"--phase=train", "--phase 'train' is not known", 2},
        {"--batch=1.5", "--batch '1.5' is not a whole number", 2},
        {"--nonsense", "unrecognized option", 2},
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int code = shape_exit((char *)cases[i].option, text, sizeof text);
        if (code != cases[i].code || !strstr(text, cases[i].words))
            fail_msg("%s: %d '%s'", cases[i].option, code, text);
    }
}

static char *printed(int (*print)(FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    assert_int_equal(print(out), 0);
    fclose(out);
    return text;
}

static int print_table(FILE *out)
{
    hcp_table *t = hcp_table_new();

    hcp_table_column(t, "NAME", 0);
    hcp_table_column(t, "TIME_MS", 1);
    hcp_table_row(t);
    hcp_table_cell(t, "%s", "a");
    hcp_table_cell(t, "%.2f", 1.5);
    hcp_table_row(t);
    hcp_table_cell(t, "%s", "longer");
    hcp_table_cell(t, "%.2f", 12345.25);
    return hcp_table_print(t, out);
}

static int print_json(FILE *out)
{
    return hcp_json_print(json_pack("{s:s,s:o,s:o,s:I,s:[f,f]}", "z \"q\"\n", "ä\x01",
                                    "a", hcp_json_real(0.1), "nan", hcp_json_real(NAN),
                                    "i", (json_int_t)INT64_MAX, "list", 1.0, 1.0 / 3),
                          out);
}

static void output(void **state)
{
    char *text;

    (void)state;
    text = printed(print_table);
    assert_string_equal(text, "NAME    TIME_MS\na          1.50\nlonger 12345.25\n");
    free(text);
    text = printed(print_json);
    assert_string_equal(text,
                        "{\"z \\\"q\\\"\\n\":\"ä\\u0001\",\"a\":0.1,\"nan\":null,"
                        "\"i\":9223372036854775807,\"list\":[1,0.3333333333333333]}\n");
    free(text);
}

/* Makes a German locale where the system ships the sources of one. */
static const char *make_locale(char dir[32])
{
    char command[160];

    strcpy(dir, "/tmp/hcp-locale-XXXXXX");
    if (!mkdtemp(dir))
        return NULL;
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir);
    if (system(command))
        return NULL;
    setenv("LOCPATH", dir, 1);
    return setlocale(LC_ALL, "de_DE.UTF-8");
}

/* The same again where a comma is the decimal point. */
static void other_locale(void **state)
{
    char dir[32] = "", command[64];

    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                        "de_DE@euro", "ru_RU.UTF-8"};
    size_t i = 0;

    while (i < 5 && !setlocale(LC_ALL, names[i]))
        i++;
    if (i == 5 && !make_locale(dir))
        skip(); /* no such locale here and none can be made */
    assert_string_equal(localeconv()->decimal_point, ",");
    formats(state);
    output(state);
    assert_int_equal(hcp_parse_double("1.5", &(double){0}, &err), HCP_OK);
    assert_int_equal(hcp_parse_double("1,5", &(double){0}, &err), HCP_USAGE);
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -rf %s", *dir ? dir : "/tmp/hcp-locale-none");
    assert_int_equal(system(command), 0);
}

static void clean_text(void **state)
{
    static const char *const bad[] = {
        "a\n",         "\x7f", "\x80",         "\xc0\xaf",
        "\xe2\x82",    "\xff", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xe0\x80\xaf"};

    (void)state;
    assert_true(hcp_text_is_clean("plain, \t ä € 𝄞"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hcp_text_is_clean(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),      cmocka_unit_test(integers),
        cmocka_unit_test(doubles),      cmocka_unit_test(formats),
        cmocka_unit_test(limits),       cmocka_unit_test(ranks),
        cmocka_unit_test(shapes),       cmocka_unit_test(output),
        cmocka_unit_test(other_locale), cmocka_unit_test(clean_text),
    };

    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
