/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread that waits for everything that can end a run from outside: the processes of
 * this host's other ranks, signals, and the clock. When one rank ends, all do, within
 * milliseconds of each other and not in any order; so that everybody names the one that
 * was first, a rank that ends because of another says so in memory that the ranks of the
 * host share.
 */
#include "config.h"
#include "executor/comm.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "profiler/measure.h"

/* How long a stop may take, and how long the first of several deaths is looked for. */
#define STOP_S 3.0
#define LOOK_S 0.2
/* How often the clock is looked at: time in which this process, or the whole machine, was
 * stopped is no waiting, and shows as a look that comes late. */
#define LOOK_EVERY_S 0.5
/* Why a rank is ending, and which other rank is the cause (the communicator's size: all
 * others): in shared memory, one word a rank. UNKNOWN while it runs, and for ever if it
 * was killed or failed by itself. */
enum why { UNKNOWN, BY_DEATH, BY_TIMEOUT, BY_SIGNAL };
#define NOTE(why, rank) ((int)((unsigned)(rank) << 2 | (unsigned)(why)))
#define NOTE_WHY(note) ((enum why)((note)&3))
#define NOTE_RANK(note) ((note) >> 2)

struct peer {
    int rank, pid;
    int64_t pid_ns; /* inode of its pid namespace: elsewhere its number means another */
};

struct ring_watch {
    int rank, size, host_rank, n;
    MPI_Comm host;
    char host_name[64];
    double timeout_s;
    struct peer *peers; /* [n] in order of host rank */
    struct pollfd *fds; /* [n + 2]: pidfds, signals, wake */
    atomic_int *notes;  /* [n] shared, or of this process alone */
    size_t notes_size;
    pthread_t thread;
    atomic_int over;    /* deaths are no failure any more */
    atomic_flag ending; /* somebody prints this process's one message */
    pthread_mutex_t lock;
    char what[160]; /* under lock, as are the next three */
    int on_rank;
    double since_s; /* NaN: not waiting */
    void (*stop)(void *ctx);
    void *stop_ctx;
};

static void our_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

void ring_watch_block_signals(void)
{
    sigset_t set;
    our_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* ---- the end ----------------------------------------------------------------- */

static void *end_anyway(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){(time_t)STOP_S, 0}, NULL);
    _exit(1);
}

/* Prints the line, stops the transports, ends the process. */
static _Noreturn void end_process(struct ring_watch *w, const char *text)
{
    char line[1400];
    pthread_t timer;
    int timed = pthread_create(&timer, NULL, end_anyway, NULL) == 0;
    int n = snprintf(line, sizeof line, "hcp-ring: rank %d: %s\n", w->rank, text);
    if (n >= (int)sizeof line)
        n = (int)sizeof line - 1;
    for (int done = 0; done < n;) { /* one write: lines of ranks do not mix */
        ssize_t got = write(STDERR_FILENO, line + done, (size_t)(n - done));
        if (got < 0 && errno != EINTR)
            break;
        done += got > 0 ? (int)got : 0;
    }
    pthread_mutex_lock(&w->lock);
    void (*stop)(void *ctx) = w->stop;
    void *ctx = w->stop_ctx;
    pthread_mutex_unlock(&w->lock);
    if (stop && timed)
        stop(ctx);
    _exit(1);
}

/* Of several threads with something to say the first does; others wait for the end. */
static void be_the_one(struct ring_watch *w)
{
    while (atomic_flag_test_and_set(&w->ending))
        pause();
}

static void leave_note(struct ring_watch *w, enum why why, int rank)
{
    atomic_store(&w->notes[w->host_rank], NOTE(why, rank));
}

/* " while waiting for ..." or what else this rank did. */
static void what_now(struct ring_watch *w, char text[200])
{
    pthread_mutex_lock(&w->lock);
    if (isnan(w->since_s))
        strcpy(text, "before the run was over");
    else
        snprintf(text, 200, "while this rank was %s", w->what);
    pthread_mutex_unlock(&w->lock);
}

static const struct peer *peer_of_rank(const struct ring_watch *w, int rank)
{
    for (int i = 0; i < w->n; i++)
        if (w->peers[i].rank == rank)
            return &w->peers[i];
    return NULL;
}

/* ---- whose fault ------------------------------------------------------------- */

/* What has been seen of the other ranks' ends. */
struct cause {
    enum why why;
    int rank;    /* that came first */
    int witness; /* BY_TIMEOUT: who gave it up */
    int found;
};

/* Looks at the pidfds and notes as they are now. A rank that has ended and left no note
 * is the cause; a note names it as well. */
static struct cause look(struct ring_watch *w)
{
    struct cause cause = {UNKNOWN, -1, -1, 0};
    poll(w->fds, (nfds_t)w->n, 0);
    for (int i = 0; i < w->n; i++) {
        int note = atomic_load(&w->notes[i]);
        if (i == w->host_rank)
            continue;
        if (w->fds[i].revents && NOTE_WHY(note) == UNKNOWN)
            return (struct cause){BY_DEATH, w->peers[i].rank, -1, 1};
        if (NOTE_WHY(note) == BY_DEATH)
            cause = (struct cause){BY_DEATH, NOTE_RANK(note), -1, 1};
        else if (NOTE_WHY(note) == BY_TIMEOUT && !cause.found)
            cause = (struct cause){BY_TIMEOUT, NOTE_RANK(note), w->peers[i].rank, 1};
    }
    return cause;
}

/* The same for up to LOOK_S, until there is a cause. */
static struct cause look_for_a_moment(struct ring_watch *w)
{
    struct cause cause;
    double end_s = hcp_now_s() + LOOK_S;
    while (!(cause = look(w)).found && hcp_now_s() < end_s)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    return cause;
}

static void name_rank(const struct ring_watch *w, int rank, char text[32])
{
    if (rank < w->size)
        snprintf(text, 32, "rank %d", rank);
    else
        strcpy(text, "the other ranks");
}

static _Noreturn void end_by_cause(struct ring_watch *w, struct cause cause)
{
    char what[200], name[32], text[600];
    const struct peer *p = peer_of_rank(w, cause.rank);
    what_now(w, what);
    leave_note(w, cause.why, cause.rank);
    name_rank(w, cause.rank, name);
    if (cause.why == BY_TIMEOUT)
        snprintf(text, sizeof text, "rank %d gave up waiting for %s, %s", cause.witness,
                 name, what);
    else if (p)
        snprintf(text, sizeof text, "rank %d (pid %d on %s) ended %s", p->rank, p->pid,
                 w->host_name, what);
    else
        snprintf(text, sizeof text, "%s ended %s", name, what);
    end_process(w, text);
}

/* signal: ours, or 0 if only other ranks are known to have got one. */
static _Noreturn void end_by_signal(struct ring_watch *w, int signal)
{
    char what[200], text[600];
    be_the_one(w);
    /* At once: a launcher may kill us while we look, and nobody is to blame us then. */
    if (signal)
        leave_note(w, BY_SIGNAL, w->rank);
    if (signal != SIGINT) {
        struct cause cause = look_for_a_moment(w);
        if (cause.found)
            end_by_cause(w, cause);
    }
    leave_note(w, BY_SIGNAL, w->rank);
    what_now(w, what);
    if (signal == SIGINT)
        snprintf(text, sizeof text, "interrupted %s", what);
    else
        snprintf(text, sizeof text, "stopped by the launcher (%s) %s",
                 w->n == w->size ? "interrupted or cancelled"
                                 : "another rank has ended, or it was interrupted",
                 what);
    end_process(w, text);
}

static _Noreturn void end_by_timeout(struct ring_watch *w, const char *what, int on_rank)
{
    char text[600], name[32];
    be_the_one(w);
    /* All time-outs of a stuck ring expire together, and a death may have led to it. */
    struct cause cause = look(w);
    if (cause.found && cause.why == BY_DEATH)
        end_by_cause(w, cause);
    if (on_rank < 0 || on_rank > w->size)
        on_rank = w->size;
    leave_note(w, BY_TIMEOUT, on_rank);
    name_rank(w, on_rank, name);
    snprintf(text, sizeof text,
             "nothing from %s for %g s while %s: giving up (--timeout)", name,
             w->timeout_s, what);
    end_process(w, text);
}

_Noreturn void ring_watch_fail(ring_watch *w, const struct hcp_err *err)
{
    if (!w) {
        fprintf(stderr, "hcp-ring: %s\n", err->text);
        _exit(1);
    }
    /* What failed here may be the consequence of a death that the thread is about to
     * see: its message is the better one. */
    be_the_one(w);
    struct cause cause = look_for_a_moment(w);
    if (cause.found && cause.why == BY_DEATH)
        end_by_cause(w, cause);
    end_process(w, err->text);
}

/* ---- the thread ---------------------------------------------------------------- */

/* Seconds until the present wait is too long; a wait that begins later ends later, so
 * that a rank that waits for nobody has the whole time-out to sleep. */
static double time_left(struct ring_watch *w, double now_s, char what[160], int *on_rank)
{
    double left = w->timeout_s;
    pthread_mutex_lock(&w->lock);
    if (!isnan(w->since_s)) {
        left += w->since_s - now_s;
        memcpy(what, w->what, sizeof w->what);
        *on_rank = w->on_rank;
    }
    pthread_mutex_unlock(&w->lock);
    return left;
}

static void *follow(void *arg)
{
    struct ring_watch *w = arg;
    struct pollfd *signals = &w->fds[w->n], *wake = &w->fds[w->n + 1];
    for (;;) {
        char what[160];
        int on_rank = -1, ms = -1;
        double now = hcp_now_s();
        if (w->timeout_s > 0) {
            double left = time_left(w, now, what, &on_rank);
            if (left <= 0)
                end_by_timeout(w, what, on_rank);
            ms = left < LOOK_EVERY_S ? (int)(left * 1000) + 1
                                     : (int)(LOOK_EVERY_S * 1000);
        }
        if (poll(w->fds, (nfds_t)w->n + 2, ms) <= 0) {
            double late = hcp_now_s() - now - ms / 1000.0;
            if (ms >= 0 && late > 0.5) { /* it was us who were stopped, or the machine */
                pthread_mutex_lock(&w->lock);
                w->since_s += late;
                pthread_mutex_unlock(&w->lock);
            }
            continue;
        }
        if (wake->revents)
            return NULL;
        struct signalfd_siginfo info;
        if (signals->revents && read(signals->fd, &info, sizeof info) == sizeof info)
            end_by_signal(w, (int)info.ssi_signo);
        for (int i = 0; i < w->n; i++) {
            if (!w->fds[i].revents)
                continue;
            if (!atomic_load(&w->over))
                end_by_signal(w, 0); /* unless it finds another cause */
            close(w->fds[i].fd);
            w->fds[i].fd = -1;
        }
    }
}

/* ---- start and stop ------------------------------------------------------------- */

/* One word for each rank of the host in memory of all; of our own if that fails on any
 * of them (messages may then name a rank that was not the first). Collective. */
static int share_notes(struct ring_watch *w, struct hcp_err *err)
{
    char name[64] = "";
    int fd = -1, ok = 0, all = 0;
    w->notes_size = (size_t)w->n * sizeof *w->notes;
    if (w->host_rank == 0) {
        snprintf(name, sizeof name, "/hcp-ring-%d-%.0f", (int)getpid(),
                 hcp_now_s() * 1e6);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)w->notes_size) != 0)
            *name = '\0';
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, w->host);
    if (*name && fd < 0)
        fd = shm_open(name, O_RDWR, 0);
    void *memory = MAP_FAILED;
    if (*name && fd >= 0)
        memory = mmap(NULL, w->notes_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    ok = memory != MAP_FAILED;
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, w->host);
    if (w->host_rank == 0 && fd >= 0)
        shm_unlink(name);
    if (!all) {
        if (ok)
            munmap(memory, w->notes_size);
        memory = mmap(NULL, w->notes_size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED)
        return hcp_fail(err, HCP_FAILED, "watch: mmap: %s", strerror(errno));
    w->notes = memory;
    return HCP_OK;
}

/* Opens what can be opened of the other ranks. Collective. */
static void find_peers(struct ring_watch *w)
{
    struct stat st;
    struct peer me = {.rank = w->rank, .pid = (int)getpid(), .pid_ns = -1};
    if (stat("/proc/self/ns/pid", &st) == 0)
        me.pid_ns = (int64_t)st.st_ino;
    MPI_Allgather(&me, (int)sizeof me, MPI_BYTE, w->peers, (int)sizeof me, MPI_BYTE,
                  w->host);
    for (int i = 0; i < w->n; i++) {
        int known = i != w->host_rank && w->peers[i].pid_ns == me.pid_ns;
        w->fds[i].fd = known ? (int)syscall(SYS_pidfd_open, w->peers[i].pid, 0) : -1;
        w->fds[i].events = POLLIN;
    }
}

static void free_watch(struct ring_watch *w)
{
    for (int i = 0; w->fds && i < w->n + 2; i++)
        if (w->fds[i].fd >= 0)
            close(w->fds[i].fd);
    if (w->notes)
        munmap(w->notes, w->notes_size);
    free(w->fds);
    free(w->peers);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int ring_watch_start(const struct ring_comm *c, double timeout_s, ring_watch **out,
                     struct hcp_err *err)
{
    struct ring_watch *w = calloc(1, sizeof *w);
    struct pollfd *fds = calloc((size_t)c->host_size + 2, sizeof *fds);
    struct peer *peers = calloc((size_t)c->host_size, sizeof *peers);
    if (!w || !fds || !peers) {
        free(w), free(fds), free(peers);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    *w = (struct ring_watch){.rank = c->rank,
                             .size = c->size,
                             .host_rank = c->host_rank,
                             .n = c->host_size,
                             .host = c->host,
                             .timeout_s = timeout_s,
                             .peers = peers,
                             .fds = fds,
                             .ending = ATOMIC_FLAG_INIT,
                             .on_rank = -1,
                             .since_s = NAN};
    memcpy(w->host_name, c->host_name, sizeof w->host_name);
    pthread_mutex_init(&w->lock, NULL);
    sigset_t set;
    our_signals(&set);
    find_peers(w);
    fds[w->n] = (struct pollfd){signalfd(-1, &set, SFD_CLOEXEC), POLLIN, 0};
    fds[w->n + 1] = (struct pollfd){eventfd(0, EFD_CLOEXEC), POLLIN, 0};
    int rc = share_notes(w, err);
    if (rc == HCP_OK && (fds[w->n].fd < 0 || fds[w->n + 1].fd < 0))
        rc = hcp_fail(err, HCP_FAILED, "watch: signalfd or eventfd: %s", strerror(errno));
    if (rc == HCP_OK) {
        int e = pthread_create(&w->thread, NULL, follow, w);
        if (e != 0)
            rc = hcp_fail(err, HCP_FAILED, "watch: cannot start its thread: %s",
                          strerror(e));
    }
    if (rc != HCP_OK) {
        free_watch(w);
        return rc;
    }
    *out = w;
    return HCP_OK;
}

void ring_watch_on_stop(ring_watch *w, void (*stop)(void *ctx), void *ctx)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = stop;
    w->stop_ctx = ctx;
    pthread_mutex_unlock(&w->lock);
}

void ring_watch_waiting(ring_watch *w, const char *what, int on_rank)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    snprintf(w->what, sizeof w->what, "%s", what);
    w->on_rank = on_rank;
    w->since_s = hcp_now_s();
    pthread_mutex_unlock(&w->lock);
}

void ring_watch_idle(ring_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->since_s = NAN;
    pthread_mutex_unlock(&w->lock);
}

void ring_watch_stop(ring_watch *w)
{
    const uint64_t one = 1;
    sigset_t set;
    if (!w)
        return;
    ring_watch_waiting(w, "waiting for the end of the run", -1);
    /* A rank that leaves the second barrier may end at once: nobody minds any more. */
    MPI_Barrier(w->host);
    atomic_store(&w->over, 1);
    MPI_Barrier(w->host);
    if (write(w->fds[w->n + 1].fd, &one, sizeof one) != sizeof one)
        return; /* cannot be: its count is 0 */
    pthread_join(w->thread, NULL);
    free_watch(w);
    our_signals(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
