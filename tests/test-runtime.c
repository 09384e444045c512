/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's hcp_runtime; gpu-runtime.c asks the same of a GPU's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "kernels/runtime.h"

static void events_measure_time(void **state)
{
    (void)state;
    const hcp_runtime *rt = hcp_runtime_cpu();
    const struct timespec pause = {0, 3000000};
    void *from = NULL, *to = NULL, *stream, *high;
    double ms = -1;
    int done = -1;
    assert_int_equal(rt->stream_create(&stream), HCP_RC_OK);
    assert_int_equal(rt->stream_create_high(&high), HCP_RC_OK);
    assert_int_equal(rt->event_create(&from), HCP_RC_OK);
    assert_int_equal(rt->event_create(&to), HCP_RC_OK);
    assert_int_equal(rt->event_done(to, &done), HCP_RC_OK);
    assert_int_equal(done, 1);
    assert_int_equal(rt->event_wait(to, stream), HCP_RC_OK);
    assert_int_equal(rt->event_record(from, stream), HCP_RC_OK);
    assert_int_equal(rt->event_ms(from, to, &ms), HCP_RC_INVALID); /* one record only */
    assert_int_equal(rt->event_ms(to, from, &ms), HCP_RC_INVALID);
    assert_true(ms == -1);
    nanosleep(&pause, NULL);
    assert_int_equal(rt->event_record(to, high), HCP_RC_OK);
    assert_int_equal(rt->event_ms(from, to, &ms), HCP_RC_OK);
    assert_true(ms >= 3);
    double back;
    assert_int_equal(rt->event_ms(to, from, &back), HCP_RC_OK);
    assert_true(back == -ms);
    double longer;
    assert_int_equal(rt->event_record(to, stream), HCP_RC_OK); /* the last one counts */
    assert_int_equal(rt->event_ms(from, to, &longer), HCP_RC_OK);
    assert_true(longer >= ms);
    rt->event_destroy(from);
    rt->event_destroy(to);
    rt->event_destroy(NULL);
    rt->stream_destroy(stream);
    rt->stream_destroy(high);
    assert_int_equal(rt->reset(), HCP_RC_OK);
}

static void host_memory_is_copied_to(void **state)
{
    (void)state;
    const hcp_runtime *rt = hcp_runtime_cpu();
    void *host = NULL, *device = NULL, *none = NULL;
    assert_int_equal(rt->host_alloc(&host, 1000), HCP_RC_OK);
    assert_int_equal(rt->alloc(&device, 1000), HCP_RC_OK);
    assert_int_equal(rt->host_alloc(&none, -1), HCP_RC_INVALID);
    assert_null(none);
    memset(host, 7, 1000);
    assert_int_equal(rt->to_device(device, host, 1000, NULL), HCP_RC_OK);
    memset(host, 0, 1000);
    assert_int_equal(rt->to_host_async(host, device, 999, NULL), HCP_RC_OK);
    assert_int_equal(rt->sync(NULL), HCP_RC_OK);
    assert_int_equal(((char *)host)[0], 7);
    assert_int_equal(((char *)host)[998], 7);
    assert_int_equal(((char *)host)[999], 0);
    assert_int_equal(rt->to_host_async(host, device, -1, NULL), HCP_RC_INVALID);
    rt->host_release(host);
    rt->host_release(NULL);
    rt->release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_measure_time),
        cmocka_unit_test(host_memory_is_copied_to),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
