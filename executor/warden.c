/* SPDX-License-Identifier: Apache-2.0
 *
 * Two small processes, so that a rank is never left stopped:
 *
 *   rank  <- socket ->  warden  <- socket ->  keeper
 *
 * The keeper stops and continues the rank. If the warden ends, the keeper sees the end of
 * its socket and leaves the rank running; if the keeper ends, the warden continues the
 * rank and starts another one; if the rank ends, the warden sees the end of its socket,
 * ends the keeper and stops the daemon. They are in a session of their own and ignore
 * what a launcher or a terminal sends to everybody.
 */
#include "config.h"
#include "executor/comm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "profiler/limiter.h"

enum operation { START_MPS, THROTTLE, CHECK, QUIT };

struct request {
    enum operation operation;
    int percent;
};

struct reply {
    int rc;
    char pipe_dir[108], log_dir[108], text[1024];
};

struct ring_warden {
    pid_t pid;
    int fd;
    int mps; /* it keeps a daemon */
};

/* 1 if a whole message came; 0: the other side has ended. */
static int receive(int fd, void *message, size_t size)
{
    ssize_t got;
    do
        got = recv(fd, message, size, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)size;
}

static int transmit(int fd, const void *message, size_t size)
{
    ssize_t done;
    do
        done = send(fd, message, size, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    return done == (ssize_t)size;
}

static void wait_for(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- in the keeper and the warden ----------------------------------------- */

struct state {
    pid_t rank, keeper; /* keeper: 0 none */
    int fd, leash;      /* to the rank, to the keeper */
    int percent;        /* the keeper's */
    int lapses;         /* keepers lost since the last check */
    hcp_mps *mps;
};

static _Noreturn void keeper_main(pid_t rank, int percent, int leash)
{
    struct reply reply = {0};
    struct hcp_err err = {0};
    hcp_throttle *throttle = NULL;
    char end;
    reply.rc = hcp_throttle_start(rank, percent, &throttle, &err);
    memcpy(reply.text, err.text, sizeof reply.text);
    if (transmit(leash, &reply, sizeof reply) && reply.rc == HCP_OK)
        receive(leash, &end, sizeof end);
    hcp_throttle_stop(throttle); /* the rank runs */
    _exit(0);
}

static void end_keeper(struct state *s)
{
    if (!s->keeper)
        return;
    close(s->leash);
    wait_for(s->keeper);
    s->keeper = 0;
    s->leash = -1;
}

static int start_keeper(struct state *s, struct reply *reply)
{
    struct hcp_err err = {0};
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        reply->rc = hcp_fail(&err, HCP_FAILED, "socketpair: %s", strerror(errno));
    } else {
        s->keeper = fork();
        if (s->keeper == 0) {
            close(fds[0]);
            close(s->fd);
            keeper_main(s->rank, s->percent, fds[1]);
        }
        close(fds[1]);
        s->leash = fds[0];
        if (s->keeper < 0) {
            reply->rc = hcp_fail(&err, HCP_FAILED, "fork: %s", strerror(errno));
            s->keeper = 0;
            close(s->leash);
            s->leash = -1;
        } else if (receive(s->leash, reply, sizeof *reply)) {
            if (reply->rc != HCP_OK)
                end_keeper(s);
            return reply->rc;
        } else {
            end_keeper(s);
            reply->rc = hcp_fail(&err, HCP_FAILED, "cpu:%d: its process ended at once",
                                 s->percent);
        }
    }
    memcpy(reply->text, err.text, sizeof reply->text);
    return reply->rc;
}

/* Somebody has killed the keeper, perhaps while the rank was stopped. */
static void replace_keeper(struct state *s)
{
    struct reply ignored = {0};
    kill(s->rank, SIGCONT);
    end_keeper(s);
    s->lapses++;
    nanosleep(&(struct timespec){0, 10000000}, NULL); /* not as fast as a killer */
    start_keeper(s, &ignored);
}

static void answer(struct state *s, const struct request *request, struct reply *reply)
{
    struct hcp_err err = {0};
    switch (request->operation) {
    case START_MPS:
        if (!s->mps)
            reply->rc = hcp_mps_start(&s->mps, &err);
        if (reply->rc == HCP_OK) {
            strcpy(reply->pipe_dir, hcp_mps_pipe_dir(s->mps));
            strcpy(reply->log_dir, hcp_mps_log_dir(s->mps));
        }
        break;
    case THROTTLE:
        end_keeper(s);
        s->percent = request->percent;
        if (s->percent < 100)
            start_keeper(s, reply);
        return;
    case CHECK:
        if (s->lapses)
            reply->rc = hcp_fail(&err, HCP_FAILED,
                                 "limit cpu:%d did not hold all the time: the process "
                                 "that throttles this rank was killed",
                                 s->percent);
        s->lapses = 0;
        break;
    case QUIT:
        break;
    }
    memcpy(reply->text, err.text, sizeof reply->text);
}

static void be_a_daemon(int fd)
{
    static const int ignored[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE, SIGUSR1,
                                  SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU};
    sigset_t none;
    setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none); /* the MPS daemon inherits it and must be able to end */
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, "hcp-ring-warden");
    dup2(fd, 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    close_range(4, ~0u, 0);
    /* A launcher waits until nobody holds a rank's output any more. */
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0), dup2(null, 1), dup2(null, 2);
    if (null > 2)
        close(null);
    if (chdir("/") != 0)
        _exit(1);
}

static _Noreturn void warden_main(pid_t rank, int fd)
{
    struct state s = {.rank = rank, .fd = 3, .leash = -1};
    int orderly = 0;
    be_a_daemon(fd);
    while (!orderly) {
        struct pollfd p[2] = {{s.fd, POLLIN, 0}, {s.leash, POLLIN, 0}};
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents && s.keeper)
            replace_keeper(&s);
        if (!p[0].revents)
            continue;
        struct request request;
        struct reply reply = {0};
        if (!receive(s.fd, &request, sizeof request))
            break;
        orderly = request.operation == QUIT;
        answer(&s, &request, &reply);
        if (!orderly)
            transmit(s.fd, &reply, sizeof reply);
    }
    end_keeper(&s);
    if (s.mps && !orderly) /* other ranks may still be letting go of their devices */
        nanosleep(&(struct timespec){1, 0}, NULL);
    /* A client is one until its process has ended, and the daemon waits for clients. */
    for (int i = 0; s.mps && i < 1000 && getppid() == s.rank; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    hcp_mps_stop(s.mps);
    _exit(0);
}

/* ---- in the rank ----------------------------------------------------------- */

int ring_warden_start(ring_warden **out, struct hcp_err *err)
{
    int fds[2];
    ring_warden *w = calloc(1, sizeof *w);
    if (!w)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        free(w);
        return hcp_fail(err, HCP_FAILED, "warden: socketpair: %s", strerror(errno));
    }
    pid_t rank = getpid();
    w->pid = fork();
    if (w->pid == 0)
        warden_main(rank, fds[1]);
    close(fds[1]);
    w->fd = fds[0];
    if (w->pid < 0) {
        int rc = hcp_fail(err, HCP_FAILED, "warden: fork: %s", strerror(errno));
        close(w->fd);
        free(w);
        return rc;
    }
    *out = w;
    return HCP_OK;
}

static int ask(ring_warden *w, enum operation operation, int percent, struct reply *reply,
               struct hcp_err *err)
{
    struct request request = {operation, percent};
    if (!transmit(w->fd, &request, sizeof request) ||
        !receive(w->fd, reply, sizeof *reply))
        return hcp_fail(err, HCP_FAILED,
                        "the process that keeps this rank's limits (pid %d) has been "
                        "killed; run again",
                        (int)w->pid);
    return reply->rc == HCP_OK ? HCP_OK : hcp_fail(err, reply->rc, "%s", reply->text);
}

int ring_warden_mps(ring_warden *w, char pipe_dir[108], char log_dir[108],
                    struct hcp_err *err)
{
    struct reply reply;
    int rc = ask(w, START_MPS, 0, &reply, err);
    if (rc != HCP_OK)
        return rc;
    w->mps = 1;
    memcpy(pipe_dir, reply.pipe_dir, sizeof reply.pipe_dir);
    memcpy(log_dir, reply.log_dir, sizeof reply.log_dir);
    return HCP_OK;
}

int ring_warden_throttle(ring_warden *w, int percent, struct hcp_err *err)
{
    struct reply reply;
    return ask(w, THROTTLE, percent, &reply, err);
}

int ring_warden_check(ring_warden *w, struct hcp_err *err)
{
    struct reply reply;
    return w ? ask(w, CHECK, 0, &reply, err) : HCP_OK;
}

void ring_warden_stop(ring_warden *w)
{
    struct request quit = {QUIT, 0};
    if (!w)
        return;
    transmit(w->fd, &quit, sizeof quit);
    close(w->fd);
    if (!w->mps)
        wait_for(w->pid);
    free(w);
}
