/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks between two GPUs of one host moved by their copy engines, which take no SMs. The
 * receiver maps the sender's block (CUDA IPC) and fetches it: what it waits for is an
 * event of its own. The hosts tell each other where blocks lie and when they are fetched.
 *
 * For measuring: two ranks, one block each way in a pass, in one piece that is the start
 * of an allocation and was written before begin().
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/cuda.h"
#include "profiler/transport-internal.h"

enum { NAP_NS = 20000, PROBE_BYTES = 4096 };

/* What the two ranks tell each other; the same program on one host. */
struct notice {
    char uuid[48];
    unsigned char handle[HCP_CUDA_IPC_BYTES];
    int64_t bytes;   /* of the block; 0 none */
    double times[2]; /* receive_from_ms, receive_to_ms */
};

struct copy_transport {
    struct hcp_transport base;
    void *stream, *from, *arrived; /* events: the fetch begins, is over */
    struct notice mine, theirs;
    const void *shared; /* what mine.handle names; allocated until close() */
    unsigned char opened[HCP_CUDA_IPC_BYTES];
    void *peer; /* the other rank's block here; NULL: none */
    int fetches;
    void *start;
    atomic_int cancelled;
    struct hcp_err failure; /* code not 0: the first one, for check() */
};

static int failed_device(struct copy_transport *c, int rc, const char *what,
                         struct hcp_err *err)
{
    return hcp_transport_device_check(&c->base, rc, what, err);
}

/* Keeps a failure for check(). */
static int noted(struct copy_transport *c, int rc, const struct hcp_err *err)
{
    if (rc != HCP_OK && !c->failure.code)
        c->failure = *err;
    return rc;
}

static int gone(struct copy_transport *c, double since_s, struct hcp_err *err)
{
    const hcp_transport *t = &c->base;
    if (c->cancelled)
        return hcp_fail(err, HCP_FAILED, "copy transport: cancelled");
    if (hcp_transport_now() - since_s < t->timeout_s)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    c->fetches ? "no data from rank %d for %g s (step 1)"
                               : "rank %d took no data for %g s (step 0)",
                    t->name_before, t->timeout_s);
}

/* mine there, theirs here. */
static int trade(struct copy_transport *c, struct hcp_err *err)
{
    const struct timespec nap = {0, NAP_NS};
    const hcp_transport *t = &c->base;
    MPI_Request request[2];
    double since_s = hcp_transport_now();
    int over = 0, other = t->before;
    int rc =
        MPI_Irecv(&c->theirs, sizeof c->theirs, MPI_BYTE, other, 0, t->comm, &request[0]);
    if (rc == MPI_SUCCESS)
        rc =
            MPI_Isend(&c->mine, sizeof c->mine, MPI_BYTE, other, 0, t->comm, &request[1]);
    for (unsigned turn = 0; rc == MPI_SUCCESS && !over; turn++) {
        rc = MPI_Testall(2, request, &over, MPI_STATUSES_IGNORE);
        if (over || rc != MPI_SUCCESS)
            break;
        if (gone(c, since_s, err) != HCP_OK) {
            MPI_Cancel(&request[0]);
            MPI_Request_free(&request[0]);
            MPI_Request_free(&request[1]);
            return HCP_FAILED;
        }
        if (turn > 1000) /* neighbours that are not late answer in microseconds */
            nanosleep(&nap, NULL);
    }
    return hcp_transport_mpi_check(rc, "telling", t->name_before, err);
}

/* Maps what theirs.handle names, in place of what was mapped. */
static int open_peer(struct copy_transport *c, struct hcp_err *err)
{
    if (c->peer && memcmp(c->opened, c->theirs.handle, sizeof c->opened) == 0)
        return HCP_OK;
    hcp_cuda_ipc_close(c->peer);
    c->peer = NULL;
    memcpy(c->opened, c->theirs.handle, sizeof c->opened);
    return failed_device(c, hcp_cuda_ipc_open(c->opened, &c->peer), "peer memory", err);
}

/* A few bytes, fetched and compared: whether this host lets us at all. */
static int probe(struct copy_transport *c, struct hcp_err *err)
{
    hcp_transport *t = &c->base;
    const hcp_runtime *run = t->runtime;
    unsigned char found[PROBE_BYTES] = {0};
    void *block = NULL, *room = NULL;
    int rc = failed_device(c, run->alloc(&block, PROBE_BYTES), "allocate", err);
    if (rc == HCP_OK)
        rc = failed_device(c, run->alloc(&room, PROBE_BYTES), "allocate", err);
    if (rc == HCP_OK)
        rc = failed_device(c, run->fill(block, 0x50 + t->rank, PROBE_BYTES, c->stream),
                           "fill", err);
    if (rc == HCP_OK)
        rc = failed_device(c, run->sync(c->stream), "fill", err);
    if (rc == HCP_OK)
        rc = failed_device(c, hcp_cuda_ipc_export(block, c->mine.handle), "own memory",
                           err);
    rc = hcp_transport_agree(t, rc, err);
    if (rc == HCP_OK)
        rc = trade(c, err);
    if (rc == HCP_OK && strcmp(c->mine.uuid, c->theirs.uuid) == 0)
        rc = hcp_fail(err, HCP_FAILED,
                      "copies between GPUs take one rank a GPU: ranks 0 and 1 share %s; "
                      "use --transport mpi",
                      c->mine.uuid);
    if (rc == HCP_OK)
        rc = open_peer(c, err);
    if (rc == HCP_OK)
        rc = failed_device(c, hcp_cuda_peer_copy(room, c->peer, PROBE_BYTES, c->stream),
                           "fetch", err);
    if (rc == HCP_OK)
        rc = failed_device(c, run->to_host(found, room, PROBE_BYTES, c->stream), "fetch",
                           err);
    for (int i = 0; rc == HCP_OK && i < PROBE_BYTES; i++)
        if (found[i] != 0x50 + t->before)
            rc = hcp_fail(err, HCP_FAILED,
                          "copy transport: what was fetched from rank %d's GPU is not "
                          "what is there (IOMMU or ACS may break peer access); use "
                          "--transport nccl",
                          t->name_before);
    hcp_cuda_ipc_close(c->peer);
    c->peer = NULL;
    rc = hcp_transport_agree(t, rc, err); /* nobody has it open any more */
    run->release(block);
    run->release(room);
    return rc;
}

static int copy_open(hcp_transport *t, struct hcp_err *err)
{
    struct copy_transport *c = (struct copy_transport *)t;
    hcp_cuda_info info = {.size = sizeof info};
    hcp_device_ref ref = {.size = sizeof ref};
    MPI_Comm host = MPI_COMM_NULL;
    char why[512] = "";
    int together = 0, made, rc = HCP_OK;
    if (t->size != 2)
        return hcp_fail(err, HCP_FAILED, "copy transport: %d ranks; it has two", t->size);
    MPI_Comm_split_type(t->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    if (host != MPI_COMM_NULL) {
        MPI_Comm_size(host, &together);
        MPI_Comm_free(&host);
    }
    if (together != 2)
        rc = hcp_fail(err, HCP_FAILED,
                      "copy engines reach GPUs of one host only; between hosts use "
                      "--transport nccl or mpi");
    if (rc == HCP_OK &&
        hcp_cuda_device(t->ordinal, &ref, &info, why, sizeof why) != HCP_RC_OK)
        rc = hcp_fail(err, HCP_FAILED, "copy transport: %s", why);
    if (rc == HCP_OK) {
        memcpy(c->mine.uuid, info.uuid, sizeof c->mine.uuid);
        snprintf(t->version, sizeof t->version, "CUDA %d.%d", info.runtime_version / 1000,
                 info.runtime_version % 1000 / 10);
        made = t->runtime->stream_create(&c->stream);
        if (made == HCP_RC_OK)
            made = t->runtime->event_create(&c->from);
        if (made == HCP_RC_OK)
            made = t->runtime->event_create(&c->arrived);
        rc = failed_device(c, made, "create a stream", err);
    }
    rc = hcp_transport_agree(t, rc, err);
    return rc == HCP_OK ? probe(c, err) : rc;
}

static int check_pass(const hcp_transport *t, struct hcp_err *err)
{
    const struct hcp_transfer *a = &t->steps[0].transfer;
    const struct hcp_transfer *b = t->n_steps > 1 ? &t->steps[1].transfer : NULL;
    if (t->n_steps > 2 || t->own_after > 0 || (b && b->send) ||
        (a->send && a->n_pieces != 1) || (b && b->receive && b->n_pieces != 1))
        return hcp_fail(err, HCP_FAILED,
                        "copy transport: a pass is one block each way, in one piece");
    return HCP_OK;
}

static int fetch(struct copy_transport *c, void *start, struct hcp_err *err)
{
    const hcp_runtime *run = c->base.runtime;
    const struct hcp_message *in = c->base.steps[1].transfer.pieces;
    if (c->theirs.bytes != in->bytes)
        return hcp_fail(err, HCP_FAILED,
                        "the data of rank %d has not the length that is expected: %lld "
                        "bytes, not %lld",
                        c->base.name_before, (long long)c->theirs.bytes,
                        (long long)in->bytes);
    if (open_peer(c, err) != HCP_OK)
        return HCP_FAILED;
    int rc = run->event_wait(start, c->stream);
    if (rc == HCP_RC_OK)
        rc = run->event_record(c->from, c->stream);
    if (rc == HCP_RC_OK)
        rc = hcp_cuda_peer_copy(in->data, c->peer, in->bytes, c->stream);
    if (rc == HCP_RC_OK)
        rc = run->event_record(c->arrived, c->stream);
    return failed_device(c, rc, "queue a fetch", err);
}

static int copy_begin(hcp_transport *t, void *start, struct hcp_err *err)
{
    struct copy_transport *c = (struct copy_transport *)t;
    const struct hcp_transfer *own = &t->steps[0].transfer;
    int rc = check_pass(t, err);
    c->fetches = t->n_steps > 1 && t->steps[1].transfer.receive;
    c->mine.bytes = own->send ? own->pieces->bytes : 0;
    if (rc == HCP_OK && own->send && own->pieces->data != c->shared) {
        c->shared = own->pieces->data;
        rc = failed_device(c, hcp_cuda_ipc_export(own->pieces->data, c->mine.handle),
                           "own memory", err);
    }
    if (rc == HCP_OK)
        rc = trade(c, err);
    if (rc == HCP_OK && !c->fetches && c->theirs.bytes > 0)
        rc = hcp_fail(err, HCP_FAILED, "rank %d sends a block that is not received",
                      t->name_before);
    if (rc == HCP_OK && c->fetches)
        rc = fetch(c, start, err);
    c->start = start;
    c->mine.times[0] = c->mine.times[1] = NAN;
    return noted(c, rc, err);
}

static int copy_wait(hcp_transport *t, int32_t step, int32_t piece, void *stream,
                     struct hcp_err *err)
{
    struct copy_transport *c = (struct copy_transport *)t;
    (void)step, (void)piece; /* there is one */
    return failed_device(c, t->runtime->event_wait(c->arrived, stream),
                         "wait for a block", err);
}

static int copy_done(hcp_transport *t, int32_t step, void *stream, struct hcp_err *err)
{
    (void)t, (void)step, (void)stream, (void)err; /* nothing is received into it again */
    return HCP_OK;
}

static int copy_times(hcp_transport *t, int32_t step, struct hcp_transfer_times *out)
{
    struct copy_transport *c = (struct copy_transport *)t;
    if (step == 0) {
        out->send_from_ms = c->theirs.times[0];
        out->send_to_ms = c->theirs.times[1];
    } else if (c->fetches) {
        out->receive_from_ms = c->mine.times[0];
        out->receive_to_ms = c->mine.times[1];
    }
    return HCP_OK;
}

/* Until the own fetch is over, then until the other rank's is: the block is free. */
static int finish(hcp_transport *t, struct hcp_err *err)
{
    struct copy_transport *c = (struct copy_transport *)t;
    const hcp_runtime *run = t->runtime;
    const struct timespec nap = {0, NAP_NS};
    double since_s = hcp_transport_now();
    int over = !c->fetches;
    while (!over) {
        if (failed_device(c, run->event_done(c->arrived, &over), "fetch", err) !=
                HCP_OK ||
            gone(c, since_s, err) != HCP_OK)
            return HCP_FAILED;
        if (!over)
            nanosleep(&nap, NULL);
    }
    int rc = HCP_RC_OK;
    if (c->fetches)
        rc = run->event_ms(c->start, c->from, &c->mine.times[0]);
    if (c->fetches && rc == HCP_RC_OK)
        rc = run->event_ms(c->start, c->arrived, &c->mine.times[1]);
    return failed_device(c, rc, "read a time", err) == HCP_OK ? trade(c, err)
                                                              : HCP_FAILED;
}

static int copy_end(hcp_transport *t, struct hcp_err *err)
{
    return noted((struct copy_transport *)t, finish(t, err), err);
}

static int copy_check(hcp_transport *t, struct hcp_err *err)
{
    struct copy_transport *c = (struct copy_transport *)t;
    if (c->failure.code)
        return hcp_fail(err, c->failure.code, "%s", c->failure.text);
    return c->cancelled ? hcp_fail(err, HCP_FAILED, "copy transport: cancelled") : HCP_OK;
}

static void copy_cancel(hcp_transport *t)
{
    ((struct copy_transport *)t)->cancelled = 1;
}

static void copy_close(hcp_transport *t)
{
    struct copy_transport *c = (struct copy_transport *)t;
    const hcp_runtime *run = t->runtime;
    struct hcp_err ignored;
    if (!t->failed) { /* else the device may be busy for ever */
        hcp_cuda_ipc_close(c->peer);
        trade(c, &ignored); /* now both may free their blocks */
    }
    run->event_destroy(c->from);
    run->event_destroy(c->arrived);
    run->stream_destroy(c->stream);
}

const struct transport_ops hcp_transport_copy_ops = {
    .name = "copy",
    .queues = 1,
    .size = sizeof(struct copy_transport),
    .open = copy_open,
    .begin = copy_begin,
    .wait = copy_wait,
    .done = copy_done,
    .end = copy_end,
    .times = copy_times,
    .check = copy_check,
    .cancel = copy_cancel,
    .close = copy_close,
};
