/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fake-mps-control in the MPS daemon's place, in a directory of the test's own, and
 * what is left of processes and files.
 */
#ifndef MPS_FIXTURE_H
#define MPS_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static char mps_dir[64], mps_pid_file[96];

/* The daemon must carry the real one's name: the guard looks for it. */
static inline int mps_setup(void **state)
{
    char command[600], control[96];
    const char *src = getenv("top_srcdir");
    (void)state;
    strcpy(mps_dir, "/tmp/hcp-test-XXXXXX");
    if (!mkdtemp(mps_dir))
        return -1;
    snprintf(control, sizeof control, "%s/nvidia-cuda-mps-control", mps_dir);
    snprintf(mps_pid_file, sizeof mps_pid_file, "%s/daemon-pid", mps_dir);
    snprintf(command, sizeof command, "cp '%.400s/tests/fake-mps-control' '%s'",
             src ? src : ".", control);
    if (system(command) != 0 || chmod(control, 0755) != 0)
        return -1;
    setenv("HCP_MPS_CONTROL", control, 1);
    setenv("HCP_MPS_WAIT", "60", 1);
    setenv("FAKE_MPS_PID", mps_pid_file, 1);
    setenv("TMPDIR", mps_dir, 1);
    unsetenv("FAKE_MPS");
    return 0;
}

static inline int mps_teardown(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", mps_dir);
    return system(command);
}

/* The daemon that was started last; 0: none. */
static inline pid_t mps_daemon_pid(void)
{
    int pid = 0;
    FILE *f = fopen(mps_pid_file, "r");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

static inline void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Waits until the condition holds, at most 30 s. */
#define EVENTUALLY(condition)                                                            \
    do {                                                                                 \
        for (int i_ = 0; i_ < 3000 && !(condition); i_++)                                \
            pause_ms(10);                                                                \
        assert_true(condition);                                                          \
    } while (0)

/* State letter and parent of a process; 'X' if there is none. */
static inline char state_of(pid_t pid, pid_t *parent)
{
    char path[48], state = 'X';
    int ppid = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c %d", &state, &ppid) != 2)
        state = 'X';
    if (f)
        fclose(f);
    if (parent)
        *parent = ppid;
    return state;
}

/* A zombie is not: the first process of a container may never collect it. */
static inline int alive(pid_t pid)
{
    char state = state_of(pid, NULL);
    return state != 'X' && state != 'Z';
}

static inline int exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

#endif
