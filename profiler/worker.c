/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/worker.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "db/parse.h"
#include "profiler/limiter.h"
#include "profiler/worker-internal.h"

/* Seconds that a driver may take to start, with all its GPUs; a conformance check may
 * take so many times as long. */
#define OPEN_S 300.0
enum { CHECKS = 10, WAKE_MS = 200 };
/* A wait that takes so much longer than it was asked for: we were stopped. */
#define STOPPED_S 1.0

volatile sig_atomic_t hcp_worker_stop;

static void on_signal(int number)
{
    (void)number;
    hcp_worker_stop = 1;
}

void hcp_worker_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

struct worker {
    hcp_device base;
    pid_t pid; /* 0: none */
    int fd;
    int cpu;        /* the kernel runs on the CPU: it may be killed at any time */
    double until_s; /* an answer must have come by then, on hcp_now_s's clock */
    int silent;     /* none did */
    hcp_throttle *throttle;
    char mps_pipe[108], mps_log[108]; /* of the daemon whose client it is; "" none */
};

/* In the child, before it becomes the worker. */
static _Noreturn void become_worker(int fd, const struct hcp_device_config *config,
                                    pid_t parent)
{
    char kind[8];
    int32_t percent = 0;
    int cpu = config && strcmp(config->spec, "cpu") == 0;
    /* A GPU client is asked to end, so that it does not leave work in flight; a
     * stopped process only hears SIGKILL. */
    prctl(PR_SET_PDEATHSIG, cpu ? SIGKILL : SIGTERM);
    if (getppid() != parent)
        _exit(1);
    dup2(fd, 3); /* clears close-on-exec */
    if (fd == 3)
        fcntl(3, F_SETFD, 0);
    close_range(4, ~0u, 0);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(2, 1); /* what a library prints is no data of ours */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (cpu) { /* one core: the limiter and the profile speak of one thread */
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        setenv("OMP_NUM_THREADS", "1", 1);
    }
    if (config && *config->mps_pipe &&
        hcp_parse_limit(config->limit, kind, &percent, NULL) == 0)
        hcp_mps_client_env(config->mps_pipe, config->mps_log, percent,
                           config->device_uuid, NULL);
    else if (!cpu) {
        /* Not through somebody else's daemon: an unlimited row must be unlimited. */
        unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
        setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
        if (config && *config->device_uuid)
            setenv("CUDA_VISIBLE_DEVICES", config->device_uuid, 1);
    }
    execl("/proc/self/exe", "hcp-profile", HCP_WORKER_COMMAND, (char *)NULL);
    dprintf(2, "hcp-profile: cannot start a worker: %s\n", strerror(errno));
    _exit(127);
}

static int spawn(const struct hcp_device_config *config, struct worker *w,
                 struct hcp_err *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return hcp_fail(err, HCP_FAILED, "worker: socketpair: %s", strerror(errno));
    pid_t parent = getpid();
    w->pid = fork();
    if (w->pid == 0)
        become_worker(fds[1], config, parent);
    close(fds[1]);
    if (w->pid < 0) {
        w->pid = 0;
        close(fds[0]);
        return hcp_fail(err, HCP_FAILED, "worker: fork: %s", strerror(errno));
    }
    w->fd = fds[0];
    if (config) {
        memcpy(w->mps_pipe, config->mps_pipe, sizeof w->mps_pipe);
        memcpy(w->mps_log, config->mps_log, sizeof w->mps_log);
    }
    w->cpu = config && strcmp(config->spec, "cpu") == 0;
    return HCP_OK;
}

/* Ends the worker and says in text how it ended. Asks first; a GPU client gets a few
 * seconds to finish what is in flight, because killing it can take the MPS server
 * down with it; of one that hangs the daemon then ends the work on the GPU. */
static void reap(struct worker *w, int patience_ms, char *text, size_t size)
{
    int status = 0;
    hcp_throttle_stop(w->throttle);
    w->throttle = NULL;
    if (text && size)
        *text = '\0';
    if (w->pid == 0)
        return;
    close(w->fd);
    int left = w->cpu ? 0 : patience_ms;
    pid_t got = waitpid(w->pid, &status, WNOHANG);
    if (got == 0)
        kill(w->pid, SIGTERM);
    for (; got == 0 && left > 0; left -= 10) {
        poll(NULL, 0, 10);
        got = waitpid(w->pid, &status, WNOHANG);
    }
    if (got == 0 && *w->mps_pipe)
        hcp_mps_terminate_client(w->mps_pipe, w->mps_log, w->pid);
    if (got == 0)
        kill(w->pid, SIGKILL);
    /* One that is stuck in a driver does not even die: it is left behind. */
    for (left = 5000; got == 0 && left > 0; left -= 10) {
        got = waitpid(w->pid, &status, WNOHANG);
        if (got == 0)
            poll(NULL, 0, 10);
    }
    w->pid = 0;
    if (!text || !size)
        return;
    if (WIFSIGNALED(status))
        snprintf(text, size, "signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exit code %d", WEXITSTATUS(status));
}

/* 0, or -1 when the worker's end is closed, says nothing for too long, or we are to stop.
 */
static int read_all(struct worker *w, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        struct pollfd p = {w->fd, POLLIN, 0};
        double began_s = hcp_now_s();
        /* Woken now and then: a signal may come between the test and the wait. */
        int ready = hcp_worker_stop ? -1 : poll(&p, 1, WAKE_MS);
        double late_s = hcp_now_s() - began_s - WAKE_MS / 1e3;
        if (late_s > STOPPED_S) /* Ctrl-Z stops the worker, too */
            w->until_s += late_s;
        w->silent = ready <= 0 && hcp_now_s() > w->until_s;
        if (hcp_worker_stop || w->silent)
            return -1;
        if (ready <= 0)
            continue;
        ssize_t n = read(w->fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* $HCP_WORKER_WAIT, or usual_s. */
static double patience_s(double usual_s)
{
    const char *text = getenv("HCP_WORKER_WAIT");
    return text && atoi(text) > 0 ? atoi(text) : usual_s;
}

/* Sends a request and reads the reply's head, within so many seconds; what follows the
 * head has to come in them too. A dead worker is HCP_FAILED and lost. */
static int call(struct worker *w, const struct hcp_worker_request *request,
                double within_s, struct hcp_worker_reply *reply, struct hcp_err *err)
{
    w->until_s = hcp_now_s() + within_s;
    ssize_t sent = send(w->fd, request, sizeof *request, MSG_NOSIGNAL);
    if (sent == (ssize_t)sizeof *request && read_all(w, reply, sizeof *reply) == 0) {
        w->base.lost = reply->lost;
        return reply->rc == HCP_OK ? HCP_OK : hcp_fail(err, reply->rc, "%s", reply->text);
    }
    char how[64];
    w->base.lost = HCP_DEVICE_LOST;
    if (hcp_worker_stop) {
        reap(w, 5000, NULL, 0);
        return hcp_fail(err, HCP_FAILED, "stopped");
    }
    if (w->silent) {
        reap(w, 5000, NULL, 0);
        return hcp_fail(err, HCP_FAILED,
                        "no answer from the worker process in %.0f s, it was ended: the "
                        "kernel, the driver or the MPS server hangs; HCP_WORKER_WAIT "
                        "gives it more seconds",
                        within_s);
    }
    /* It has closed the socket and is about to end: by itself, so that we see how. */
    siginfo_t ended = {0};
    for (int i = 0; i < 50 && ended.si_pid == 0; i++) {
        if (waitid(P_PID, (id_t)w->pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
        if (ended.si_pid == 0)
            poll(NULL, 0, 10);
    }
    reap(w, 500, how, sizeof how);
    return hcp_fail(err, HCP_FAILED,
                    "the worker process ended (%s); the kernel or its library crashed",
                    how);
}

static void worker_close(hcp_device *device)
{
    if (device)
        reap((struct worker *)device, 5000, NULL, 0);
    free(device);
}

static int worker_open(const struct hcp_device_config *config, hcp_device **out,
                       struct hcp_err *err)
{
    static const struct hcp_worker_request blank;
    struct hcp_worker_request request = blank;
    struct hcp_worker_reply reply;
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    w->base.ops = &hcp_device_worker_ops;
    request.op = HCP_WORKER_OPEN;
    request.u.config = *config;
    int rc = spawn(config, w, err);
    if (rc == HCP_OK)
        rc = call(w, &request, patience_s(OPEN_S), &reply, err);
    char kind[8] = "";
    int32_t value = 0;
    if (rc == HCP_OK && w->cpu)
        rc = hcp_parse_limit(config->limit, kind, &value, err);
    if (rc == HCP_OK && strcmp(kind, "cpu") == 0)
        rc = hcp_throttle_start(w->pid, value, &w->throttle, err);
    if (rc != HCP_OK) {
        worker_close(&w->base);
        return rc;
    }
    w->base.info = reply.u.info;
    *out = &w->base;
    return HCP_OK;
}

static int worker_check(hcp_device *device, char result[64], struct hcp_err *err)
{
    static const struct hcp_worker_request blank;
    struct hcp_worker_request request = blank;
    struct hcp_worker_reply reply;
    request.op = HCP_WORKER_CHECK;
    int rc =
        call((struct worker *)device, &request, CHECKS * patience_s(OPEN_S), &reply, err);
    if (rc == HCP_OK || !device->lost)
        memcpy(result, reply.u.result, 64);
    return rc;
}

static int worker_prepare(hcp_device *device, const struct hcp_cell_request *cell,
                          struct hcp_err *err)
{
    (void)cell; /* travels with time() */
    return device->lost ? hcp_fail(err, HCP_FAILED, "the worker process is gone")
                        : HCP_OK;
}

/* Seconds that a cell may take at most: many times what it is expected to, three tries
 * and their rests. */
static double cell_s(const struct hcp_cell_request *cell)
{
    const struct hcp_measure_rule *r = &cell->rule;
    int runs = 4 * (r->few_samples + 4);
    return 120 + 10 * (r->warmup_s + r->cap_s) + 10 * runs * cell->expect_ms / 1e3;
}

static int worker_time(hcp_device *device, const struct hcp_cell_request *cell,
                       struct hcp_cell_facts *facts, double **samples,
                       struct hcp_err *err)
{
    static const struct hcp_worker_request blank;
    struct worker *w = (struct worker *)device;
    struct hcp_worker_request request = blank;
    struct hcp_worker_reply reply;
    request.op = HCP_WORKER_CELL;
    request.u.cell = *cell;
    int rc = call(w, &request, patience_s(cell_s(cell)), &reply, err);
    if (rc != HCP_OK) {
        if (device->lost)
            hcp_cell_facts_init(facts);
        else
            *facts = reply.u.facts;
        return rc;
    }
    double *ms = malloc(((size_t)reply.n + 1) * sizeof *ms);
    if (!ms || read_all(w, ms, (size_t)reply.n * sizeof *ms) != 0) {
        free(ms);
        device->lost = HCP_DEVICE_LOST;
        return hcp_fail(err, HCP_FAILED, "the worker process ended in mid-answer");
    }
    *facts = reply.u.facts;
    *samples = ms;
    return HCP_OK;
}

/* Asks a worker of its own for an array of items. */
static int ask_list(int op, size_t item, void **items, size_t *n, char reason[512],
                    struct hcp_err *err)
{
    static const struct hcp_worker_request blank;
    struct hcp_worker_request request = blank;
    struct hcp_worker_reply reply;
    struct worker w = {0};
    request.op = op;
    *items = NULL;
    *n = 0;
    int rc = spawn(NULL, &w, err);
    if (rc == HCP_OK)
        rc = call(&w, &request, patience_s(OPEN_S), &reply, err);
    if (rc == HCP_OK) {
        size_t bytes = (size_t)reply.n * item;
        *items = malloc(bytes + 1);
        if (!*items || read_all(&w, *items, bytes) != 0)
            rc = hcp_fail(err, HCP_FAILED, "the worker process ended in mid-answer");
        else
            *n = (size_t)reply.n;
        if (reason)
            snprintf(reason, 512, "%.511s", reply.text);
    }
    reap(&w, 2000, NULL, 0);
    if (rc != HCP_OK) {
        free(*items);
        *items = NULL;
    }
    return rc;
}

int hcp_worker_list(struct hcp_device_info **infos, size_t *n, char reason[512],
                    struct hcp_err *err)
{
    void *items;
    int rc = ask_list(HCP_WORKER_LIST, sizeof **infos, &items, n, reason, err);
    *infos = items;
    return rc;
}

int hcp_worker_kernels(struct hcp_kernel_info **kernels, size_t *n, struct hcp_err *err)
{
    void *items;
    int rc = ask_list(HCP_WORKER_KERNELS, sizeof **kernels, &items, n, NULL, err);
    *kernels = items;
    return rc;
}

const struct hcp_device_ops hcp_device_worker_ops = {
    .kind = "worker",
    .open = worker_open,
    .check = worker_check,
    .prepare = worker_prepare,
    .time = worker_time,
    .close = worker_close,
};
