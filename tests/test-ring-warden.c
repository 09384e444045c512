/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's warden: throttle and MPS daemon hold while it lives, nothing of it is left
 * when the rank ends, and whichever process is killed, the rank is not left stopped.
 * "The rank" is a child that counts; it is looked at and killed from here.
 */
#include "config.h"
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "executor/comm.h"
#include "profiler/measure.h"
#include "tests/mps-fixture.h"

/* Shared with the rank. */
static struct shared {
    atomic_long count;
    atomic_int ready, ask, answered; /* ask: number of checks wanted, answered: done */
    int rc;
    char pipe_dir[108], log_dir[108];
    struct hcp_err err;
} * shared;

static pid_t rank_pid;

/* A living child of pid other than except; 0: none. */
static pid_t child_of(pid_t pid, pid_t except)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    pid_t found = 0, parent;
    while (proc && !found && (entry = readdir(proc))) {
        pid_t p = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (p && p != except && state_of(p, &parent) != 'Z' && parent == pid)
            found = p;
    }
    if (proc)
        closedir(proc);
    return found;
}

/* Percent 0: asks for the MPS daemon instead of a throttle. end: stops its warden and
 * ends when asked for a check. */
static _Noreturn void be_rank(int percent, int end)
{
    ring_warden *w = NULL;
    ring_watch_block_signals(); /* as the program does: the warden must not keep it */
    int rc = ring_warden_start(&w, &shared->err);
    if (rc == HCP_OK && percent)
        rc = ring_warden_throttle(w, percent, &shared->err);
    else if (rc == HCP_OK)
        rc = ring_warden_mps(w, shared->pipe_dir, shared->log_dir, &shared->err);
    shared->rc = rc;
    atomic_store(&shared->ready, 1);
    for (;;) {
        atomic_fetch_add(&shared->count, 1);
        if (!percent)
            pause_ms(5);
        if (atomic_load(&shared->answered) == atomic_load(&shared->ask))
            continue;
        if (end) {
            ring_warden_stop(w);
            _exit(0);
        }
        shared->err.text[0] = '\0';
        shared->rc = ring_warden_check(w, &shared->err);
        atomic_fetch_add(&shared->answered, 1);
    }
}

static void start_rank(int percent, int end)
{
    memset((void *)shared, 0, sizeof *shared);
    rank_pid = fork();
    if (rank_pid == 0)
        be_rank(percent, end);
    EVENTUALLY(atomic_load(&shared->ready));
}

static void kill_rank(void)
{
    kill(rank_pid, SIGKILL);
    waitpid(rank_pid, NULL, 0);
    rank_pid = 0;
}

static int check_of_rank(void)
{
    int want = atomic_fetch_add(&shared->ask, 1) + 1;
    EVENTUALLY(atomic_load(&shared->answered) == want);
    return shared->rc;
}

static double cpu_s(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU time over wall time of the rank, and of another process if there is one. */
static double cpu_share(long ms, pid_t other, double *others_share)
{
    double from = hcp_now_s(), a = cpu_s(rank_pid), b = other ? cpu_s(other) : 0;
    pause_ms(ms);
    double wall = hcp_now_s() - from;
    *others_share = other ? (cpu_s(other) - b) / wall : 1;
    return (cpu_s(rank_pid) - a) / wall;
}

/* Whether the share is about right in one of several attempts. Others want the cores
 * too: what a process that is not throttled gets meanwhile scales the lower bound. */
static int share_is_between(double lo, double hi)
{
    double share = 0, others_share = 0;
    pid_t other = fork();
    int is = 0;
    if (other == 0)
        for (;;)
            ;
    for (int i = 0; i < 20 && !is; i++) {
        share = cpu_share(500, other, &others_share);
        is = share >= lo * others_share && share <= hi;
    }
    if (!is)
        print_message("# last share: %.3f, unthrottled: %.3f\n", share, others_share);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    return is;
}

static void wait_until_stopped(void)
{
    char state = '?';
    for (int i = 0; i < 100000 && state != 'T'; i++) {
        state = state_of(rank_pid, NULL);
        if (state != 'T')
            pause_ms(1);
    }
    assert_int_equal(state, 'T');
}

/* It runs, and nobody stops it any more. */
static int runs_free(void)
{
    for (int i = 0; i < 50; i++) {
        long count = atomic_load(&shared->count);
        if (state_of(rank_pid, NULL) == 'T')
            return 0;
        pause_ms(2);
        for (int k = 0; k < 1000 && count == atomic_load(&shared->count); k++)
            pause_ms(2);
        if (count == atomic_load(&shared->count))
            return 0;
    }
    return 1;
}

static int setup(void **state)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : mps_setup(state);
}

static int teardown(void **state)
{
    if (rank_pid > 0)
        kill_rank();
    munmap(shared, sizeof *shared);
    return mps_teardown(state);
}

static void throttle_gives_its_share(void **state)
{
    (void)state;
    start_rank(50, 0);
    assert_int_equal(shared->rc, HCP_OK);
    assert_true(share_is_between(0.35, 0.65));
    assert_int_equal(check_of_rank(), HCP_OK);
}

static void signals_to_all_do_not_end_it(void **state)
{
    static const int all[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP};
    char path[64], target[64] = "";
    (void)state;
    start_rank(20, 0);
    pid_t warden = child_of(rank_pid, 0), keeper = child_of(warden, 0);
    assert_true(warden > 0 && keeper > 0);
    assert_int_equal(getsid(warden), warden);
    assert_int_equal(getsid(keeper), warden);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        kill(warden, all[i]);
        kill(keeper, all[i]);
    }
    assert_true(share_is_between(0.05, 0.35));
    assert_true(alive(warden) && alive(keeper));
    assert_int_equal(check_of_rank(), HCP_OK);
    /* A launcher waits for the end of a rank's output: only the rank may hold it. */
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)warden);
    assert_true(readlink(path, target, sizeof target - 1) > 0);
    assert_string_equal(target, "/dev/null");
}

static void killed_warden_leaves_the_rank_running(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        start_rank(5, 0);
        pid_t warden = child_of(rank_pid, 0), keeper = child_of(warden, 0);
        wait_until_stopped();
        kill(warden, SIGKILL);
        EVENTUALLY(!alive(keeper) && !alive(warden));
        assert_true(runs_free());
        assert_int_equal(check_of_rank(), HCP_FAILED);
        assert_non_null(strstr(shared->err.text, "killed"));
        kill_rank();
    }
}

static void killed_keeper_is_replaced(void **state)
{
    (void)state;
    start_rank(5, 0);
    pid_t warden = child_of(rank_pid, 0), keeper = child_of(warden, 0);
    wait_until_stopped();
    kill(keeper, SIGKILL);
    EVENTUALLY(!alive(keeper) && child_of(warden, keeper) > 0);
    assert_true(share_is_between(0.01, 0.15));
    assert_int_equal(check_of_rank(), HCP_FAILED);
    assert_non_null(strstr(shared->err.text, "cpu:5 did not hold"));
    assert_int_equal(check_of_rank(), HCP_OK);
}

static void nothing_is_left_of_a_killed_rank(void **state)
{
    (void)state;
    start_rank(10, 0);
    pid_t warden = child_of(rank_pid, 0), keeper = child_of(warden, 0);
    assert_true(alive(warden) && alive(keeper));
    kill_rank();
    EVENTUALLY(!alive(warden) && !alive(keeper));
}

static void daemon_ends_with_a_killed_rank(void **state)
{
    (void)state;
    start_rank(0, 0);
    assert_int_equal(shared->rc, HCP_OK);
    pid_t daemon = mps_daemon_pid(), warden = child_of(rank_pid, 0);
    assert_true(daemon > 0 && alive(daemon));
    assert_true(exists(shared->pipe_dir) && exists(shared->log_dir));
    kill_rank();
    EVENTUALLY(!alive(daemon) && !exists(shared->pipe_dir) && !alive(warden));
    assert_false(exists(shared->log_dir));
}

static void daemon_is_gone_after_stop(void **state)
{
    (void)state;
    start_rank(0, 1);
    assert_int_equal(shared->rc, HCP_OK);
    pid_t daemon = mps_daemon_pid();
    assert_true(alive(daemon));
    atomic_fetch_add(&shared->ask, 1);
    assert_int_equal(waitpid(rank_pid, NULL, 0), rank_pid);
    rank_pid = 0;
    /* Not before the rank has ended, which is the daemon's client until then. */
    EVENTUALLY(!alive(daemon) && !exists(shared->pipe_dir));
}

static void daemon_that_does_not_start_says_why(void **state)
{
    (void)state;
    setenv("FAKE_MPS", "refuse", 1);
    start_rank(0, 0);
    unsetenv("FAKE_MPS");
    assert_int_equal(shared->rc, HCP_FAILED);
    assert_non_null(strstr(shared->err.text, "already running"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(throttle_gives_its_share, setup, teardown),
        cmocka_unit_test_setup_teardown(signals_to_all_do_not_end_it, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_warden_leaves_the_rank_running, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(killed_keeper_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_left_of_a_killed_rank, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(daemon_ends_with_a_killed_rank, setup, teardown),
        cmocka_unit_test_setup_teardown(daemon_is_gone_after_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(daemon_that_does_not_start_says_why, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("warden", tests, NULL, NULL);
}
