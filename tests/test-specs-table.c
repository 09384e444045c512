/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of data sheets: what a line may be, what the one that ships says, and text
 * that was never meant to be one.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "planner/specs.h"
#include "tests/plan-fixture.h"
#include "tests/specs-reference.h"

static void strict_table(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "t: no GPU in it"},
        {"# nothing\n\n", "t: no GPU in it"},
        {"a b 1 1 1 1 1 1 - - -\n", "t:1: it does not say where it is from"},
        {"a b 1 1 1 1 1 1 - -\n", "t:1: column 'aliases' is missing"},
        {"#\na b 1.5 1 1 1 1 1 - - - x\n", "t:2: sms '1.5' is not a whole number"},
        {"a b 0 1 1 1 1 1 - - - x\n", "sms '0' is out of range"},
        {"a b 1 1e9 1 1 1 1 - - - x\n", "bf16 '1e9' is not in 0.001..1e+06"},
        {"a b 1 1 -1 1 1 1 - - - x\n", "fp16 '-1' is not in"},
        {"a b 1 1 1 nan 1 1 - - - x\n", "fp32: 'nan' is not a finite decimal number"},
        {"a b 1 1,5 1 1 1 1 - - - x\n", "has a decimal comma"},
        {"a b 1 - - - 1 1 - - - x\n", "none of bf16, fp16 and fp32"},
        {"a b 1 1 1 1 - 1 - - - x\n", "mem_gbps is needed"},
        {"a b 1 1 1 1 1 - - - - x\n", "mem_gb is needed"},
        {"a b 1 1 1 1 1 1 0 - - x\n", "nvlink '0' is not in"},
        {"A b 1 1 1 1 1 1 - - - x\n", "name 'A'"},
        {"a b 1 1 1 1 1 1 - - a,,b x\n", "alias"},
        {"a b 1 1 1 1 1 1 - - c, x\n", "alias"},
        {"a b 1 1 1 1 1 1 - - a x\n", "t:1: 'a' is there already"},
        {"a b 1 1 1 1 1 1 - - c,d,c x\n", "t:1: 'c' is there already"},
        {"a b 1 1 1 1 1 1 - - - x\nb b 1 1 1 1 1 1 - - a x\n",
         "t:2: 'a' is there already"},
        {"a b 1 1 1 1 1 1 - - z x\nz b 1 1 1 1 1 1 - - - x\n",
         "t:2: 'z' is there already"},
        {"\xef\xbb\xbf# x\n", "t:1: it begins with a byte-order mark"},
        {"a b 1 1 1 1 1 1 - - - \xff\n", "t:1: not UTF-8"},
    };
    static const char good[] = "\t a  b 1 1 - - 1 1 - - - it says so # remark\r\n";
    char text[900], *line = malloc(3000);
    hcp_specs *specs;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hcp_status status = specs_parse(cases[i].text, strlen(cases[i].text), "t", text,
                                        sizeof text, &specs);

        if (status != HCP_STATUS_INVALID || !strstr(text, cases[i].says))
            fail_msg("%d, '%s' does not say '%s'", (int)status, text, cases[i].says);
    }
    assert_int_equal(specs_parse(good, strlen(good), "t", text, sizeof text, &specs), 0);
    assert_string_equal(specs->spec[0].source, "it says so ");
    hcp_specs_free(specs);
    assert_int_equal(specs_parse("a b\0 1", 6, "t", text, sizeof text, &specs),
                     HCP_STATUS_INVALID);
    assert_non_null(strstr(text, "t:1: a byte is 0"));
    memset(line, 'a', 3000);
    assert_int_equal(specs_parse(line, 3000, "t", text, sizeof text, &specs),
                     HCP_STATUS_INVALID);
    assert_non_null(strstr(text, "more than 1023 bytes"));
    free(line);
    assert_int_equal(hcp_specs_load("/tmp/no/such/table", text, sizeof text, &specs),
                     HCP_STATUS_IO);
    assert_int_equal(hcp_specs_load("/tmp", text, sizeof text, &specs), HCP_STATUS_IO);
    assert_int_equal(hcp_specs_load("", text, sizeof text, &specs), HCP_STATUS_INVALID);
}

static hcp_specs *shipped(void)
{
    char path[600], text[900] = "";
    hcp_specs *specs;

    snprintf(path, sizeof path, "%s/db/specs.txt", getenv("top_srcdir"));
    if (hcp_specs_load(path, text, sizeof text, &specs))
        fail_msg("%s", text);
    return specs;
}

/* What people mix is there, once; dense figures, not those of data sheets with sparsity;
 * and nothing faster than the rooflines that refuse rows (db/peak.c). */
static void shipped_table(void **state)
{
    static const char *const names[] = {"a100",
                                        "a100-80gb",
                                        "a100-40gb",
                                        "a100-pcie",
                                        "a100-pcie-40gb",
                                        "h100",
                                        "h100-pcie",
                                        "h100-nvl",
                                        "h200",
                                        "h20",
                                        "h800",
                                        "a800",
                                        "b200",
                                        "gb200",
                                        "l40",
                                        "l40s",
                                        "l4",
                                        "a10",
                                        "a30",
                                        "a40",
                                        "a6000",
                                        "rtx-4090",
                                        "rtx-3090",
                                        "rtx-5090",
                                        "v100",
                                        "t4",
                                        "rtx-6000-ada",
                                        "nvidia-h200",
                                        "nvidia-a100-sxm4-80gb"};
    hcp_specs *specs = shipped();

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!specs_find(specs, names[i]))
            fail_msg("%s is missing", names[i]);
    for (size_t i = 0; i < specs->n; i++) {
        const hcp_spec *s = &specs->spec[i];
        double per_sm = s->fp16_tflops / s->sms, known = NAN;
        char alias[256];

        snprintf(alias, sizeof alias, "%s", s->aliases);
        for (char *p = strtok(alias, ","); p && isnan(known); p = strtok(NULL, ","))
            known = hcp_peak_tflops(p, "fp16");
        if (!isnan(known) && !(s->fp16_tflops <= known * 1.001))
            fail_msg("%s: %g TFLOP/s, the roofline is %g", s->name, s->fp16_tflops,
                     known);
        assert_true(per_sm > 0.8 && per_sm < 17); /* 17: half of a B200's with sparsity */
        assert_true(s->memory_gbps / s->memory_gb > 12 &&
                    s->memory_gbps / s->memory_gb < 65);
        assert_true(strstr(s->source, "data sheet") || strstr(s->source, "white paper"));
        assert_true(s->memory_bytes <= HCP_PLAN_MAX_BYTES);
    }
    hcp_specs_free(specs);
}

static void fuzzed_table(void **state)
{
    char path[600], text[900], *bytes = malloc(1 << 16), *copy = malloc(1 << 16);
    FILE *f;
    size_t n;
    uint64_t seed = 99;
    int read = 0, rounds = (int)(20000 * fixture_scale());

    (void)state;
    snprintf(path, sizeof path, "%s/db/specs.txt", getenv("top_srcdir"));
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    for (int i = 0; i < rounds; i++) {
        static const char odd[] = "\0\n\t ,#-.e9\xff\xc3";
        size_t from = (size_t)fixture_range(&seed, 1500, (int64_t)n - 400);
        size_t size = (size_t)fixture_range(&seed, 1, 400);
        hcp_specs *specs = NULL;

        memcpy(copy, bytes + from, size);
        if (fixture_range(&seed, 0, 3)) { /* from the start of a line */
            char *line = memchr(bytes + from, '\n', n - from);

            from = line && line + 1 < bytes + n ? (size_t)(line + 1 - bytes) : from;
            size = size < n - from ? size : n - from;
            memcpy(copy, bytes + from, size);
        }
        for (int k = (int)fixture_range(&seed, 0, 3); k > 0 && size > 0; k--)
            copy[fixture_range(&seed, 0, (int64_t)size - 1)] =
                odd[fixture_range(&seed, 0, sizeof odd - 2)];
        if (specs_parse(copy, size, "t", text, sizeof text, &specs)) {
            assert_int_equal(strncmp(text, "t:", 2), 0);
            continue;
        }
        read++;
        assert_true(specs->n > 0);
        for (size_t k = 0; k < specs->n; k++) {
            const hcp_spec *s = &specs->spec[k];

            assert_ptr_equal(specs_find(specs, s->name), s);
            assert_true(s->sms >= 1 && s->sms <= 4096 && s->memory_gbps >= 1e-3);
            assert_true(s->bf16_tflops >= 0 && s->bf16_tflops <= 1e6);
        }
        hcp_specs_free(specs);
    }
    assert_true(read > rounds / 50);
    free(bytes);
    free(copy);
}

/* Levels of the recorded H200: 12, 26, 38, 52, 66, 78, 92, 104, 118 and 132 SMs. */
static void sms_of_limits(void **state)
{
    static const int sms[] = {12, 26, 38, 52, 66, 78, 92, 104, 118, 132};

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(estimate_mps_sms(132, 10 * (i + 1)), sms[i]);
    assert_int_equal(estimate_mps_sms(40, 1), 2);
    assert_int_equal(estimate_mps_sms(1, 1), 1);
    assert_true(estimate_bandwidth_part(1) == 1 && estimate_bandwidth_part(2) == 1);
    for (double part = 0.001; part < 1; part += 0.001) {
        double got = estimate_bandwidth_part(part), want = ref_bandwidth_part(part);

        assert_true(fabs(got - want) < 1e-12);
        assert_true(estimate_bandwidth_part(part) >= part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_table),
        cmocka_unit_test(shipped_table),
        cmocka_unit_test(fuzzed_table),
        cmocka_unit_test(sms_of_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
