/* SPDX-License-Identifier: Apache-2.0
 *
 * The duty cycle needs no privilege: SIGSTOP and SIGCONT to our own child, steered
 * by the child's CPU clock. The worker may use at most percent of the wall time
 * since control began; what it could not use (it slept, or others had the core) is
 * carried over for a few periods only, so that a pause is not paid back as a burst.
 */
#include "config.h"
#include "profiler/limiter.h"
#include "profiler/measure.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct hcp_throttle {
    pid_t pid;
    double share;
    clockid_t clock;
    pthread_t thread;
    int running;
    atomic_int quit;
};

static double cpu_s(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0)
        return -1; /* the process has ended */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_s(double s)
{
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - floor(s)) * 1e9)};
    if (s > 0)
        nanosleep(&t, NULL);
}

static void *control(void *arg)
{
    struct hcp_throttle *t = arg;
    /* Runs until the budget is gone, stops until it is back at swing: running it
     * falls by 1 - share a second, stopped it grows by share, so one cycle takes
     * the period. */
    const double swing = t->share * (1 - t->share) * HCP_CPU_PERIOD_S;
    const double carry = 2 * t->share * HCP_CPU_PERIOD_S;
    prctl(PR_SET_TIMERSLACK, 1000UL);
    double used = cpu_s(t->clock), wall = hcp_now_s();
    double budget = swing; /* CPU seconds it may still use */
    int stopped = 0;
    while (!atomic_load(&t->quit)) {
        double now_used = cpu_s(t->clock), now = hcp_now_s();
        if (now_used < 0)
            break;
        budget += t->share * (now - wall) - (now_used - used);
        budget = fmin(budget, carry);
        used = now_used;
        wall = now;
        if (stopped && budget >= swing) {
            kill(t->pid, SIGCONT);
            stopped = 0;
        } else if (!stopped && budget <= 0) {
            kill(t->pid, SIGSTOP);
            stopped = 1;
        }
        if (stopped)
            sleep_s((swing - budget) / t->share);
        else
            sleep_s(fmax(budget, 20e-6) / (1 - t->share));
    }
    if (stopped)
        kill(t->pid, SIGCONT);
    return NULL;
}

int hcp_throttle_start(pid_t pid, int percent, hcp_throttle **out, struct hcp_err *err)
{
    hcp_throttle *t = calloc(1, sizeof *t);
    if (!t)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    t->pid = pid;
    t->share = percent / 100.0;
    int rc = clock_getcpuclockid(pid, &t->clock);
    if (rc != 0) {
        free(t);
        return hcp_fail(err, HCP_FAILED, "cpu:%d: no CPU clock of process %d: %s",
                        percent, (int)pid, strerror(rc));
    }
    if (percent < 100) {
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
        rc = pthread_create(&t->thread, NULL, control, t);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc != 0) {
            free(t);
            return hcp_fail(err, HCP_FAILED, "cpu:%d: cannot start its controller: %s",
                            percent, strerror(rc));
        }
        t->running = 1;
    }
    *out = t;
    return HCP_OK;
}

void hcp_throttle_stop(hcp_throttle *throttle)
{
    if (!throttle)
        return;
    if (throttle->running) {
        atomic_store(&throttle->quit, 1);
        pthread_join(throttle->thread, NULL);
    }
    free(throttle);
}
