/* SPDX-License-Identifier: Apache-2.0
 *
 * The private MPS daemon and its guard, with a script in the daemon's place: it is
 * gone, and its directories with it, however its owner ends.
 */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "profiler/limiter.h"

static char dir[64], pid_file[96];

/* The daemon must carry the real one's name: the guard looks for it. */
static int setup(void **state)
{
    char command[600], control[96];
    const char *src = getenv("top_srcdir");
    (void)state;
    strcpy(dir, "/tmp/hcp-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(control, sizeof control, "%s/nvidia-cuda-mps-control", dir);
    snprintf(pid_file, sizeof pid_file, "%s/daemon-pid", dir);
    snprintf(command, sizeof command, "cp '%.400s/tests/fake-mps-control' '%s'",
             src ? src : ".", control);
    if (system(command) != 0 || chmod(control, 0755) != 0)
        return -1;
    setenv("HCP_MPS_CONTROL", control, 1);
    setenv("HCP_MPS_WAIT", "1", 1);
    setenv("FAKE_MPS_PID", pid_file, 1);
    setenv("TMPDIR", dir, 1);
    unsetenv("FAKE_MPS");
    return 0;
}

static int teardown(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

/* A zombie is not: the first process of a container may never collect it. */
static int alive(pid_t pid)
{
    char path[48], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    int got = fscanf(f, "%*d (%*[^)]) %c", &state);
    fclose(f);
    return got == 1 && state != 'Z' && state != 'X';
}

static pid_t daemon_pid(void)
{
    int pid = 0;
    FILE *f = fopen(pid_file, "r");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

static int exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Waits until the condition holds, at most 30 s. */
#define EVENTUALLY(condition)                                                            \
    do {                                                                                 \
        for (int i_ = 0; i_ < 3000 && !(condition); i_++)                                \
            nanosleep(&(struct timespec){0, 10000000}, NULL);                            \
        assert_true(condition);                                                          \
    } while (0)

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
    pid_t pid = daemon_pid();
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
    assert_int_equal(hcp_mps_start(&mps, NULL), HCP_OK);
    pid_t pid = daemon_pid();
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
    pid_t pid = daemon_pid();
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
    assert_int_equal(hcp_mps_start(&mps, &err), HCP_FAILED);
    assert_non_null(strstr(err.text, "Cannot find MPS control daemon process"));
    assert_non_null(strstr(err.text, "control.log"));
    pid_t pid = daemon_pid();
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
        cmocka_unit_test_setup_teardown(starts_and_stops, setup, teardown),
        cmocka_unit_test_setup_teardown(stubborn_daemon_is_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_sigkill_of_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_say_why, setup, teardown),
        cmocka_unit_test(environment_of_a_client),
    };
    return cmocka_run_group_tests_name("limiter", tests, NULL, NULL);
}
