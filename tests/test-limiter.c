/* SPDX-License-Identifier: Apache-2.0
 *
 * The private MPS daemon and its guard, with a script in the daemon's place: it is
 * gone, and its directories with it, however its owner ends.
 */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include "profiler/limiter.h"
#include "tests/mps-fixture.h"

static void starts_and_stops(void **state)
{
    hcp_mps *mps = NULL;
    struct hcp_err err = {0};
    char pipe[128], log[128], base[128];
    struct stat st;
    (void)state;
    assert_int_equal(hcp_mps_start(&mps, &err), HCP_OK);
    strcpy(pipe, hcp_mps_pipe_dir(mps));
    strcpy(log, hcp_mps_log_dir(mps));
    assert_int_equal(stat(pipe, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    strcpy(base, pipe);
    *strrchr(base, '/') = '\0';
    assert_int_equal(stat(base, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(hcp_mps_default_percentage(mps) == 100);
    pid_t pid = mps_daemon_pid();
    assert_true(pid > 0 && alive(pid));
    hcp_mps_stop(mps);
    EVENTUALLY(!alive(pid));
    assert_false(exists(log));
    assert_false(exists(pipe));
    assert_false(exists(base));
    hcp_mps_stop(NULL);
}

static void stubborn_daemon_is_killed(void **state)
{
    hcp_mps *mps = NULL;
    (void)state;
    setenv("FAKE_MPS", "stubborn", 1);
    setenv("HCP_MPS_WAIT", "1", 1);
    assert_int_equal(hcp_mps_start(&mps, NULL), HCP_OK);
    pid_t pid = mps_daemon_pid();
    assert_true(alive(pid));
    hcp_mps_stop(mps);
    EVENTUALLY(!alive(pid));
    unsetenv("FAKE_MPS");
}

/* Our own death, the hard way: the guard does what we cannot. */
static void survives_sigkill_of_owner(void **state)
{
    char pipe[128] = "";
    int fds[2];
    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t owner = fork();
    if (owner == 0) {
        hcp_mps *mps = NULL;
        if (hcp_mps_start(&mps, NULL) != HCP_OK)
            _exit(1);
        const char *path = hcp_mps_pipe_dir(mps);
        if (write(fds[1], path, strlen(path) + 1) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(read(fds[0], pipe, sizeof pipe) > 0);
    close(fds[0]);
    close(fds[1]);
    pid_t pid = mps_daemon_pid();
    assert_true(alive(pid) && exists(pipe));
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    EVENTUALLY(!alive(pid) && !exists(pipe));
}

static void failures_say_why(void **state)
{
    hcp_mps *mps = NULL;
    struct hcp_err err = {0};
    (void)state;
    setenv("FAKE_MPS", "refuse", 1);
    assert_int_equal(hcp_mps_start(&mps, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "already running"));
    assert_non_null(strstr(err.text, "pipe directory"));
    assert_non_null(strstr(err.text, "log directory"));
    setenv("FAKE_MPS", "mute", 1);
    setenv("HCP_MPS_WAIT", "1", 1);
    assert_int_equal(hcp_mps_start(&mps, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "Cannot find MPS control daemon process"));
    assert_non_null(strstr(err.text, "control.log"));
    pid_t pid = mps_daemon_pid();
    EVENTUALLY(!alive(pid)); /* it had started, and did not stay */
    unsetenv("FAKE_MPS");
    setenv("HCP_MPS_CONTROL", "/nonexistent/control", 1);
    assert_int_equal(hcp_mps_start(&mps, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "HCP_MPS_CONTROL"));
    assert_null(mps);
}

/* A daemon of ours in a user's default place is not looked at, let alone stopped. */
static void environment_of_a_client(void **state)
{
    (void)state;
    assert_int_equal(hcp_mps_client_env("/p", "/l", 30, "GPU-1", NULL), HCP_OK);
    assert_string_equal(getenv("CUDA_MPS_PIPE_DIRECTORY"), "/p");
    assert_string_equal(getenv("CUDA_MPS_LOG_DIRECTORY"), "/l");
    assert_string_equal(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30");
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "GPU-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(starts_and_stops, mps_setup, mps_teardown),
        cmocka_unit_test_setup_teardown(stubborn_daemon_is_killed, mps_setup,
                                        mps_teardown),
        cmocka_unit_test_setup_teardown(survives_sigkill_of_owner, mps_setup,
                                        mps_teardown),
        cmocka_unit_test_setup_teardown(failures_say_why, mps_setup, mps_teardown),
        cmocka_unit_test(environment_of_a_client),
    };
    return cmocka_run_group_tests_name("limiter", tests, NULL, NULL);
}
