/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnccl.so.2 for streams of fake-gpu: communicators of two ranks over a Unix socket.
 * As in NCCL, making one blocks until both ends do, and a send is over only when it has
 * been received; both last for ever without the other end, unless aborted.
 */
#include <errno.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "tests/fake-gpu.h"

#define EXPORT __attribute__((visibility("default")))

struct ncclComm {
    int fd;
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
    snprintf(id->internal, sizeof id->internal, "/tmp/fake-nccl-%d-%d", (int)getpid(),
             n++);
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

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id,
                                           int rank, ncclConfig_t *config)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct ncclComm *c = calloc(1, sizeof *c);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    char channels[32];
    const char *wanted = getenv("FAKE_NCCL_CHANNELS");
    if (!c || s < 0 || n_ranks != 2 || config->maxCTAs < 1 || !config->blocking)
        return ncclInvalidArgument;
    snprintf(channels, sizeof channels, "%d-%d", config->minCTAs, config->maxCTAs);
    if (wanted && strcmp(wanted, channels) != 0)
        return ncclInvalidArgument;
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", id.internal);
    if (rank == 0) {
        if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 1))
            return ncclSystemError;
        c->fd = accept(s, NULL, NULL);
        close(s);
        unlink(at.sun_path);
    } else {
        while (connect(s, (struct sockaddr *)&at, sizeof at))
            usleep(1000);
        c->fd = s;
    }
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
    int sends;
};

static void move(void *arg)
{
    struct transfer *t = arg;
    size_t bytes = t->bytes;
    char taken = 1;
    int bad = t->sends ? write_all(t->comm->fd, &bytes, sizeof bytes) ||
                             write_all(t->comm->fd, t->data, bytes) ||
                             read_all(t->comm->fd, &taken, 1)
                       : read_all(t->comm->fd, &bytes, sizeof bytes) ||
                             bytes != t->bytes || read_all(t->comm->fd, t->data, bytes) ||
                             write_all(t->comm->fd, &taken, 1);
    if (bad)
        t->comm->error = ncclRemoteError;
    free(t);
}

static ncclResult_t queue(void *data, size_t bytes, int sends, struct ncclComm *comm,
                          cudaStream_t stream)
{
    fake_stream *s = (fake_stream *)stream;
    struct transfer *t = malloc(sizeof *t);
    if (!t)
        return ncclSystemError;
    *t = (struct transfer){comm, data, bytes, sends};
    s->call(s, move, t);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream)
{
    return type != ncclInt8 || peer != 1 ? ncclInvalidArgument
                                         : queue((void *)data, count, 1, comm, stream);
}

EXPORT ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return type != ncclInt8 || peer != 0 ? ncclInvalidArgument
                                         : queue(data, count, 0, comm, stream);
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
    close(comm->fd);
    free(comm);
    return ncclSuccess;
}

/* What is queued fails at once from here on; it still needs the comm. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    shutdown(comm->fd, SHUT_RDWR);
    return ncclSuccess;
}
