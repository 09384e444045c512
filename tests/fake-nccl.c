/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnccl.so.2 for streams of fake-gpu: a Unix socket from each rank of a communicator
 * to each other, by names that are no files: nothing is left of a process that is killed.
 * As in NCCL, making one blocks until both ends do, and a send is over only when it has
 * been received; both last for ever without the other end, unless aborted.
 */
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "tests/fake-gpu.h"

#define EXPORT __attribute__((visibility("default")))

struct ncclComm {
    int n, rank;
    int *fds[2];      /* [sends][n] */
    atomic_int error; /* ncclResult_t */
};

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int n;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "fake-nccl-%d-%d", (int)getpid(), n++);
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "remote process exited";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* The socket from a rank to another, at both ends. */
static int connect_pair(struct ncclComm *c, const ncclUniqueId *id, int from, int to)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (s < 0)
        return -1;
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%.80s-%d-%d", id->internal, from,
             to);
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(at.sun_path + 1));
    if (c->rank == to) {
        while (connect(s, (struct sockaddr *)&at, size))
            usleep(1000);
        c->fds[0][from] = s;
        return 0;
    }
    if (bind(s, (struct sockaddr *)&at, size) || listen(s, 1))
        return -1;
    c->fds[1][to] = accept(s, NULL, NULL);
    close(s);
    return c->fds[1][to] < 0 ? -1 : 0;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id,
                                           int rank, ncclConfig_t *config)
{
    struct ncclComm *c = calloc(1, sizeof *c);
    char channels[32];
    const char *wanted = getenv("FAKE_NCCL_CHANNELS");
    if (!c || n_ranks < 2 || config->maxCTAs < 1 || !config->blocking)
        return ncclInvalidArgument;
    snprintf(channels, sizeof channels, "%d-%d", config->minCTAs, config->maxCTAs);
    if (wanted && strcmp(wanted, channels) != 0)
        return ncclInvalidArgument;
    c->n = n_ranks;
    c->rank = rank;
    for (int i = 0; i < 2; i++)
        if (!(c->fds[i] = calloc((size_t)n_ranks, sizeof(int))))
            return ncclSystemError;
    /* In one order on all ranks; a link of the ring is used in one direction. */
    for (int from = 0; from < n_ranks; from++)
        for (int to = 0; to < n_ranks; to++)
            if (from != to && (from == rank || to == rank) &&
                connect_pair(c, &id, from, to))
                return ncclSystemError;
    *out = c;
    return ncclSuccess;
}

static int write_all(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int read_all(int fd, void *data, size_t bytes)
{
    return bytes == 0 || recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes ? 0 : -1;
}

struct transfer {
    struct ncclComm *comm;
    void *data;
    size_t bytes;
    int sends, peer;
    fake_stream *stream;
    struct transfer *next; /* of a group */
};

/* The transfers of a thread's group under way, last first. */
static _Thread_local struct transfer *grouped;
static _Thread_local int groups;

static void move_one(const struct transfer *t)
{
    size_t bytes = t->bytes;
    int fd = t->comm->fds[t->sends][t->peer];
    char taken = 1;
    int bad = t->sends ? write_all(fd, &bytes, sizeof bytes) ||
                             write_all(fd, t->data, bytes) || read_all(fd, &taken, 1)
                       : read_all(fd, &bytes, sizeof bytes) || bytes != t->bytes ||
                             read_all(fd, t->data, bytes) || write_all(fd, &taken, 1);
    if (bad)
        t->comm->error = ncclRemoteError;
}

/* Those of a group with one peer, one way, in their order. */
static void *move_some(void *arg)
{
    const struct transfer *first = arg;
    for (const struct transfer *t = first; t; t = t->next)
        if (t->sends == first->sends && t->peer == first->peer)
            move_one(t);
    return NULL;
}

static void move(void *arg)
{
    struct transfer *first = arg, *next;
    pthread_t threads[64];
    int n = 0;
    for (struct transfer *t = first; t; t = t->next) {
        struct transfer *before = first;
        while (before != t && (before->sends != t->sends || before->peer != t->peer))
            before = before->next;
        if (before == t && t->next && n < 64)
            pthread_create(&threads[n++], NULL, move_some, t);
        else if (before == t)
            move_some(t);
    }
    while (n > 0)
        pthread_join(threads[--n], NULL);
    for (; first; first = next) {
        next = first->next;
        free(first);
    }
}

static ncclResult_t queue(void *data, size_t bytes, int sends, int peer,
                          struct ncclComm *comm, cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream;
    struct transfer *t = malloc(sizeof *t);
    if (!t || peer < 0 || peer >= comm->n || peer == comm->rank)
        return ncclInvalidArgument;
    *t = (struct transfer){comm, data, bytes, sends, peer, s, NULL};
    if (groups) {
        t->next = grouped;
        grouped = t;
    } else
        s->transfer(s, move, t);
    return ncclSuccess;
}

/* nccl.h declares them without their (empty) lists of parameters. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

EXPORT ncclResult_t ncclGroupStart(void)
{
    groups++;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    struct transfer *first = NULL;
    if (groups == 0)
        return ncclInvalidUsage;
    if (--groups > 0)
        return ncclSuccess;
    while (grouped) { /* first first */
        struct transfer *t = grouped;
        grouped = t->next;
        t->next = first;
        first = t;
    }
    if (first)
        first->stream->transfer(first->stream, move, first);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream)
{
    return type != ncclInt8 ? ncclInvalidArgument
                            : queue((void *)data, count, 1, peer, comm, stream);
}

EXPORT ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return type != ncclInt8 ? ncclInvalidArgument
                            : queue(data, count, 0, peer, comm, stream);
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)comm->error;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return (ncclResult_t)comm->error;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < comm->n; k++)
            if (k != comm->rank)
                close(comm->fds[i][k]);
        free(comm->fds[i]);
    }
    free(comm);
    return ncclSuccess;
}

/* What is queued fails at once from here on; it still needs the comm. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < comm->n; k++)
            if (k != comm->rank)
                shutdown(comm->fds[i][k], SHUT_RDWR);
    return ncclSuccess;
}
