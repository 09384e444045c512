/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts with a library in the driver's place: what is asked of it, and what is
 * said when it says no.
 */
#include "config.h"
#include <dlfcn.h>
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
#include "profiler/limiter.h"
#include "tests/fake-cuda-driver.h"

static const char *const variables[] = {"FAKE_CUDA_SMS",   "FAKE_CUDA_CC",
                                        "FAKE_CUDA_LEFT",  "FAKE_CUDA_VERSION",
                                        "FAKE_CUDA_FAULT", "HCP_CUDA_DRIVER"};

static int use_driver(const char *name)
{
    char path[1200];
    const char *build = getenv("top_builddir");
    snprintf(path, sizeof path, "%s/tests/.libs/%s", build ? build : ".", name);
    return setenv("HCP_CUDA_DRIVER", path, 1);
}

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return use_driver("fake-cuda-driver.so");
}

static const struct fake_cuda_driver *driver(void)
{
    void *handle = dlopen(getenv("HCP_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    union {
        void *data;
        fake_cuda_driver_state_fn function;
    } symbol = {dlsym(handle, "fake_cuda_driver_state")};
    assert_non_null(symbol.data);
    return symbol.function();
}

/* What a process that loads the driver anew says of the first device. */
static void rule_in_child(char *text, size_t size)
{
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct hcp_green_rule rule;
        struct hcp_err err = {.text = "none"};
        hcp_green_rule(0, &rule, &err);
        ssize_t n = write(fds[1], err.text, strlen(err.text) + 1);
        _exit(n < 0);
    }
    close(fds[1]);
    memset(text, 0, size);
    ssize_t n = read(fds[0], text, size - 1);
    close(fds[0]);
    assert_true(n > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void expect(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' lacks '%s'", text, words);
}

/* First: this process must not have loaded a driver yet. */
static void drivers_without(void **state)
{
    char text[1024];
    (void)state;
    use_driver("fake-cuda-driver-old.so");
    rule_in_child(text, sizeof text);
    expect(text,
           "green contexts: the NVIDIA driver library lacks cuDeviceGetDevResource");
    expect(text, "install a driver for CUDA 12.4 (550) or newer, or use mps:PCT");
    setenv("HCP_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
    rule_in_child(text, sizeof text);
    expect(text, "green contexts: HCP_CUDA_DRIVER: /nonexistent/libcuda.so.1");
    use_driver("fake-cuda-driver.so");
    setenv("FAKE_CUDA_FAULT", "init", 1);
    rule_in_child(text, sizeof text);
    expect(text, "the NVIDIA driver does not start: no CUDA-capable device is detected");
    setenv("FAKE_CUDA_FAULT", "unsupported", 1);
    rule_in_child(text, sizeof text);
    expect(text,
           "the driver (CUDA 13.0) does not serve them on this device; use mps:PCT");
}

static struct hcp_green_rule rule_here(void)
{
    struct hcp_green_rule rule = {0};
    struct hcp_err err = {0};
    if (hcp_green_rule(0, &rule, &err) != HCP_OK)
        fail_msg("%s", err.text);
    return rule;
}

static void rules(void **state)
{
    (void)state;
    struct hcp_green_rule rule = rule_here();
    assert_int_equal(rule.sm_count, 132);
    assert_int_equal(rule.min, 8);
    assert_int_equal(rule.step, 8);
    assert_int_equal(rule.most, 128);
    setenv("FAKE_CUDA_LEFT", "12", 1); /* one more cluster of SMs is no whole one */
    assert_int_equal(rule_here().most, 120);
    /* Drivers before CUDA 13 leave minimum and step out. */
    setenv("FAKE_CUDA_VERSION", "12040", 1);
    rule = rule_here();
    assert_true(rule.min == 8 && rule.step == 8 && rule.most == 120);
    setenv("FAKE_CUDA_CC", "8", 1);
    setenv("FAKE_CUDA_SMS", "108", 1);
    setenv("FAKE_CUDA_LEFT", "0", 1);
    rule = rule_here();
    assert_true(rule.min == 4 && rule.step == 2 && rule.most == 106);
    assert_int_equal(hcp_green_rule(7, &rule, NULL), HCP_FAILED);
}

static void counts_that_there_are_not(void **state)
{
    const struct hcp_green_rule rule = {132, 8, 8, 120};
    static const struct {
        int sms;
        const char *words;
    } bad[] = {
        {1, "sets aside 8 SMs or more; use green:8"},
        {7, "sets aside 8 SMs or more; use green:8"},
        {12, "in steps of 8; use green:8 or green:16"},
        {118, "in steps of 8; use green:112 or green:120"},
        {121, "up to 120 SMs, or all of its 132; use green:120 or green:132"},
        {128, "up to 120 SMs, or all of its 132; use green:120 or green:132"},
        {133, "limit 'green:133': this device has 132 SMs"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hcp_err err = {0};
        assert_int_equal(hcp_green_check(&rule, bad[i].sms, &err), HCP_USAGE);
        expect(err.text, bad[i].words);
    }
    for (int sms = 8; sms <= 120; sms += 8)
        assert_int_equal(hcp_green_check(&rule, sms, NULL), HCP_OK);
    assert_int_equal(hcp_green_check(&rule, 132, NULL), HCP_OK);
}

static void nearest_counts(void **state)
{
    const struct hcp_green_rule rule = {132, 8, 8, 128}, small = {132, 8, 8, 120},
                                a100 = {108, 4, 2, 106};
    static const int want[] = {16, 24, 40, 56, 64, 80, 96, 104, 120, 132};
    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(hcp_green_near(&rule, 10 * (i + 1)), want[i]);
    assert_int_equal(hcp_green_near(&rule, 1), 8);
    assert_int_equal(hcp_green_near(&rule, 97), 128);
    assert_int_equal(hcp_green_near(&small, 97), 132);
    assert_int_equal(hcp_green_near(&a100, 10), 10);
    assert_int_equal(hcp_green_near(&a100, 1), 4);
    for (int percent = 1; percent <= 100; percent++)
        assert_int_equal(hcp_green_check(&small, hcp_green_near(&small, percent), NULL),
                         HCP_OK);
}

static void streams_are_of_the_context(void **state)
{
    hcp_green *green = NULL;
    void *stream = NULL;
    (void)state;
    assert_int_equal(hcp_green_open(0, 16, &green, NULL), HCP_OK);
    assert_int_equal(driver()->contexts, 1);
    for (int high = 0; high < 2; high++) {
        assert_int_equal(hcp_green_stream(green, high, &stream, NULL), HCP_OK);
        const struct fake_cuda_stream *s = stream;
        assert_int_equal(s->sms, 16);
        assert_int_equal(s->flags, 1); /* does not wait for the default stream */
        assert_int_equal(s->priority, high ? -5 : 0);
        assert_int_equal(driver()->depth, 0); /* what was current is so again */
        free(stream);
    }
    struct hcp_err err = {0};
    void *none = NULL;
    setenv("FAKE_CUDA_FAULT", "stream", 1);
    assert_int_equal(hcp_green_stream(green, 0, &none, &err), HCP_FAILED);
    expect(err.text, "does not make a stream: out of memory (2)");
    assert_null(none);
    assert_int_equal(driver()->depth, 0);
    hcp_green_close(green);
    assert_int_equal(driver()->contexts, 0);
    hcp_green_close(NULL);
}

/* All SMs are not cut out of all SMs: 132 is no multiple of 8. */
static void the_whole_device(void **state)
{
    hcp_green *green = NULL;
    void *stream = NULL;
    (void)state;
    assert_int_equal(hcp_green_open(0, 132, &green, NULL), HCP_OK);
    assert_int_equal(hcp_green_stream(green, 0, &stream, NULL), HCP_OK);
    assert_int_equal(((struct fake_cuda_stream *)stream)->sms, 132);
    free(stream);
    hcp_green_close(green);
}

static void refusals_leave_nothing(void **state)
{
    static const struct {
        const char *fault, *words;
        int sms;
    } bad[] = {
        {"", "in steps of 8; use green:8 or green:16", 12},
        {"split", "does not divide the device's SMs: invalid argument (1)", 16},
        {"empty", "the driver has no SMs to set aside on this device; use mps:PCT", 16},
        {"none", "the driver has no 16 SMs to set aside; use fewer", 16},
        {"more", "sets aside 24 SMs where 16 were asked for; use green:24", 16},
        {"create", "does not make a context: invalid resource configuration (914)", 16},
        {"memory", "does not make a context: out of memory (2); use mps:PCT", 132},
        {"readback", "sets aside 18 SMs where 16 were asked for", 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hcp_green *green = NULL;
        struct hcp_err err = {0};
        setenv("FAKE_CUDA_FAULT", bad[i].fault, 1);
        assert_int_not_equal(hcp_green_open(0, bad[i].sms, &green, &err), HCP_OK);
        expect(err.text, bad[i].words);
        assert_null(green);
        assert_int_equal(driver()->contexts, 0);
    }
}

static void proof(void **state)
{
    struct hcp_err err = {0};
    (void)state;
    assert_int_equal(hcp_green_prove(16, 16, 16, &err), HCP_OK);
    assert_int_equal(hcp_green_prove(16, 18, 18, &err), HCP_FAILED);
    expect(err.text, "limit green:16 not proven: a kernel ran on 18 SMs");
    assert_int_equal(hcp_green_prove(16, 8, 16, &err), HCP_FAILED);
    assert_int_equal(hcp_green_prove(16, 16, 132, &err), HCP_FAILED);
    expect(err.text,
           "limit green:16 not proven: a kernel in a CUDA graph ran on 132 SMs");
    assert_int_equal(hcp_green_prove(16, 0, 0, &err), HCP_FAILED);
}

static void one_limiter_a_run(void **state)
{
    struct hcp_err err = {0};
    (void)state;
    assert_int_equal(hcp_limits_agree("mps:50", "mps:10", NULL), HCP_OK);
    assert_int_equal(hcp_limits_agree("green:16", "green:64", NULL), HCP_OK);
    assert_int_equal(hcp_limits_agree("", "green:64", NULL), HCP_OK);
    assert_int_equal(hcp_limits_agree("mps:50", "", NULL), HCP_OK);
    assert_int_equal(hcp_limits_agree("green:64", "mps:50", NULL), HCP_USAGE);
    assert_int_equal(hcp_limits_agree("mps:50", "green:64", &err), HCP_USAGE);
    expect(err.text, "limits 'mps:50' and 'green:64': one limiter a run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(drivers_without, setup),
        cmocka_unit_test_setup(rules, setup),
        cmocka_unit_test(counts_that_there_are_not),
        cmocka_unit_test(nearest_counts),
        cmocka_unit_test_setup(streams_are_of_the_context, setup),
        cmocka_unit_test_setup(the_whole_device, setup),
        cmocka_unit_test_setup(refusals_leave_nothing, setup),
        cmocka_unit_test(proof),
        cmocka_unit_test(one_limiter_a_run),
    };
    return cmocka_run_group_tests_name("green", tests, NULL, NULL);
}
