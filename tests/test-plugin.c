/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/conformance.h"

static const hcp_device_ref cpu = {
    .size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};
static const hcp_provider_ctor builtins[] = {hcp_provider_cpu};

/* Where libtool leaves what it will not install. */
static const char *plugin(const char *name)
{
    static char path[4096];
    const char *top = getenv("top_builddir");
    snprintf(path, sizeof path, "%s/tests/.libs/%s.so", top ? top : ".", name);
    return path;
}

static int open_registry(const char *path, hcp_registry **r, char *err, size_t size)
{
    *r = NULL;
    err[0] = 0;
    return hcp_registry_open_with(&cpu, builtins, 1, path, r, err, size);
}

static void example_plugin_comes_first(void **state)
{
    (void)state;
    hcp_registry *r;
    hcp_attn_support s;
    char err[1024], why[256];
    if (open_registry(plugin("plugin-example"), &r, err, sizeof err))
        fail_msg("%s", err);
    assert_int_equal(hcp_registry_count(r), 2);
    assert_string_equal(hcp_registry_at(r, 0)->name, "example");
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 8,
                          .kv_len = 8,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 4,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_FP32,
                          .causal = 1,
                          .accumulate = 1,
                          .scale = 1};
    hcp_problem_set_dense_strides(&p);
    assert_string_equal(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why)->name,
                        "example");
    assert_true(s.caps & HCP_CAP_LSE_LOG2);
    p.dtype = HCP_FP16;
    assert_string_equal(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why)->name,
                        "cpu-blas");
    assert_null(hcp_registry_pick(r, "example", &p, &s, why, sizeof why));
    assert_string_equal(why, "example: no fp16");
    hcp_registry_close(r);
}

/* It has none of the abilities that ring attention needs; the wrapper has them. */
static void example_plugin_conforms(void **state)
{
    (void)state;
    hcp_registry *r;
    hcp_conformance_summary s;
    char err[1024];
    if (open_registry(plugin("plugin-example"), &r, err, sizeof err))
        fail_msg("%s", err);
    int rc = hcp_conformance_run(hcp_registry_at(r, 0), hcp_runtime_cpu(), &cpu,
                                 HCP_CONFORMANCE_QUICK, NULL, NULL, &s, err, sizeof err);
    print_message("# example: %lld passed, %lld refused, %lld failed; %s\n",
                  (long long)s.passed, (long long)s.refused, (long long)s.failed,
                  s.first_failure);
    assert_int_equal(rc, HCP_RC_OK);
    assert_int_equal(s.failed, 0);
    assert_true(s.passed >= 8);
    assert_int_equal(s.refused, 7); /* fp16; lengths at run time */
    hcp_registry_close(r);
}

/* What users begin with has every ability, and needs nothing done around it. */
static void template_plugin_conforms(void **state)
{
    (void)state;
    hcp_registry *r;
    hcp_conformance_summary s;
    hcp_attn_support support = {.size = sizeof support};
    char err[1024];
    if (open_registry(plugin("plugin-template"), &r, err, sizeof err))
        fail_msg("%s", err);
    const hcp_provider *p = hcp_registry_at(r, 0);
    int rc = hcp_conformance_run(p, hcp_runtime_cpu(), &cpu, HCP_CONFORMANCE_QUICK, NULL,
                                 NULL, &s, err, sizeof err);
    print_message("# template: %lld passed, %lld refused, %lld failed; %s\n",
                  (long long)s.passed, (long long)s.refused, (long long)s.failed,
                  s.first_failure);
    assert_int_equal(rc, HCP_RC_OK);
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.refused, 6); /* fp16 */
    assert_true(s.passed >= 9);
    hcp_attn_problem problem = {.size = sizeof problem,
                                .batch = 1,
                                .q_len = 8,
                                .kv_len = 8,
                                .heads = 1,
                                .kv_heads = 1,
                                .head_dim = 4,
                                .dtype = HCP_BF16,
                                .out_dtype = HCP_FP32,
                                .causal = 1,
                                .diag = 3,
                                .accumulate = 1,
                                .scale = 1};
    hcp_problem_set_dense_strides(&problem);
    hcp_attention *step = NULL;
    rc = hcp_attention_create(p, hcp_runtime_cpu(), &cpu, &problem, &step, err,
                              sizeof err);
    assert_int_equal(rc, HCP_RC_OK);
    assert_false(hcp_attention_finishes(step));
    char text[256];
    hcp_attention_describe(step, text, sizeof text);
    assert_string_equal(text, "one row at a time, one core, head dim 4");
    hcp_attention_destroy(step);
    hcp_registry_close(r);
}

static void check_error(const char *path, int want, const char *says)
{
    hcp_registry *r;
    char err[1024];
    int rc = open_registry(path, &r, err, sizeof err);
    print_message("# %s\n", err);
    assert_int_equal(rc, want);
    assert_null(r);
    assert_non_null(strstr(err, path));
    assert_non_null(strstr(err, says));
    assert_null(strchr(err, '\n'));
}

static void what_is_no_plugin(void **state)
{
    (void)state;
    char text[] = "/tmp/hcp-plugin-XXXXXX";
    int fd = mkstemp(text);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "not ELF", 7), 7);
    close(fd);
    check_error("/nonexistent/kernel.so", HCP_RC_MISSING, "No such file");
    check_error("no-such-kernel.so", HCP_RC_MISSING, "No such file");
    check_error(text, HCP_RC_INVALID, "cannot be loaded: ");
    check_error("/", HCP_RC_INVALID, "cannot be loaded: ");
    unlink(text);
    check_error(plugin("plugin-nosymbol"), HCP_RC_INVALID,
                "exports no hcp_provider_get()");
}

static void what_is_a_bad_plugin(void **state)
{
    (void)state;
    char size_text[80];
    snprintf(size_text, sizeof size_text, "provider struct of %zu bytes, expected %zu",
             sizeof(hcp_provider) - sizeof(void *), sizeof(hcp_provider));
    const struct {
        const char *fault;
        int rc;
        const char *says;
    } bad[] = {
        {"null", HCP_RC_INVALID, "does not serve provider ABI 1"},
        {"abi", HCP_RC_INVALID, "built for provider ABI 2, this program has 1"},
        {"tiny", HCP_RC_INVALID, "built for provider ABI 0, this program has 1"},
        {"size", HCP_RC_INVALID, size_text},
        {"function", HCP_RC_INVALID, "leaves run() unset"},
        {"name", HCP_RC_INVALID, "needs a name of lower-case letters"},
        {"taken", HCP_RC_INVALID, "the name 'cpu-blas' is a built-in's"},
        {"version", HCP_RC_INVALID, "version() gives no text"},
        {"device", HCP_RC_UNSUPPORTED, "'bad' does not run on the CPU"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("HCP_BAD_PLUGIN", bad[i].fault, 1);
        check_error(plugin("plugin-bad"), bad[i].rc, bad[i].says);
    }
    unsetenv("HCP_BAD_PLUGIN");
}

/* Loads, then every call of it fails: reported, not crashed on. */
static void a_plugin_that_fails_is_reported(void **state)
{
    (void)state;
    hcp_registry *r;
    hcp_attn_support s;
    hcp_conformance_summary sum;
    char err[1024], why[256];
    if (open_registry(plugin("plugin-bad"), &r, err, sizeof err))
        fail_msg("%s", err);
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 1,
                          .kv_len = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 1,
                          .out_dtype = HCP_FP32};
    hcp_problem_set_dense_strides(&p);
    assert_null(hcp_registry_pick(r, "bad", &p, &s, why, sizeof why));
    assert_string_equal(why, "bad: device error");
    assert_string_equal(hcp_registry_pick(r, NULL, &p, &s, why, sizeof why)->name,
                        "cpu-blas");
    assert_int_equal(hcp_conformance_run(hcp_registry_at(r, 0), hcp_runtime_cpu(), &cpu,
                                         0, NULL, NULL, &sum, err, sizeof err),
                     HCP_RC_OK);
    assert_true(sum.failed > 5);
    assert_non_null(strstr(sum.first_failure, "bad: device error"));
    hcp_registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_plugin_comes_first),
        cmocka_unit_test(example_plugin_conforms),
        cmocka_unit_test(template_plugin_conforms),
        cmocka_unit_test(what_is_no_plugin),
        cmocka_unit_test(what_is_a_bad_plugin),
        cmocka_unit_test(a_plugin_that_fails_is_reported),
    };
    return cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
}
