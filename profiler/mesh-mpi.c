/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges over MPI, in the caller's thread. Large messages go in parts, so that counts
 * fit in an int and device memory passes through little of the host's; each part of all
 * messages is over before the next begins.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/transport-mpi.h"

enum { TAG = 77, PART = 1 << 28, STAGED_PART = 1 << 25 };

struct mpi_mesh {
    struct hcp_transport base;
    int staged;
    MPI_Request *requests;
    void **stages; /* [room] pinned, of STAGED_PART bytes each; NULL until used */
    int32_t room;
    atomic_int cancelled;
};

static int mesh_open(hcp_transport *t, struct hcp_err *err)
{
    struct mpi_mesh *m = (struct mpi_mesh *)t;
    m->staged = t->runtime->kind != HCP_DEVICE_CPU;
    hcp_mpi_version(t->version, sizeof t->version);
    return hcp_transport_agree(t, HCP_OK, err);
}

static int grow(struct mpi_mesh *m, int32_t n, struct hcp_err *err)
{
    MPI_Request *requests;
    void **stages;
    if (n <= m->room)
        return HCP_OK;
    requests = realloc(m->requests, (size_t)n * sizeof *requests);
    if (requests)
        m->requests = requests;
    stages = realloc(m->stages, (size_t)n * sizeof *stages);
    if (stages)
        m->stages = stages;
    if (!requests || !stages)
        return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
    memset(stages + m->room, 0, (size_t)(n - m->room) * sizeof *stages);
    m->room = n;
    return HCP_OK;
}

static int64_t part_of(const struct hcp_parcel *p, int64_t from, int64_t part)
{
    return p->bytes - from < part ? p->bytes - from : part;
}

/* Host memory of the part of a message; of one that is sent, with the part in it. */
static int stage(struct mpi_mesh *m, int32_t i, const struct hcp_parcel *p, int64_t from,
                 int64_t bytes, void *stream, struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    int rc = HCP_RC_OK;
    if (!m->stages[i])
        rc = run->host_alloc(&m->stages[i], STAGED_PART);
    if (rc == HCP_RC_OK && p->send)
        rc = run->to_host(m->stages[i], (char *)p->data + from, bytes, stream);
    return hcp_transport_device_check(&m->base, rc, "copy from the GPU", err);
}

static int failed_mpi(const struct mpi_mesh *m, const struct hcp_parcel *p, int mpi,
                      struct hcp_err *err)
{
    if (mpi == MPI_SUCCESS)
        return HCP_OK;
    return hcp_transport_mpi_check(mpi, p->send ? "sending to" : "receiving from",
                                   hcp_transport_peer_name(&m->base, p->peer), err);
}

/* Bytes [from, from + part) of every message that has so many. */
static int exchange_part(struct mpi_mesh *m, const struct hcp_parcel *parcels, int32_t n,
                         int64_t from, int64_t part, void *stream, struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    int rc = HCP_OK, mpi = MPI_SUCCESS;
    for (int32_t i = 0; i < n; i++)
        m->requests[i] = MPI_REQUEST_NULL;
    /* Those that are received first: then nothing that comes is unexpected. */
    for (int send = 0; send < 2; send++) {
        for (int32_t i = 0; rc == HCP_OK && i < n; i++) {
            const struct hcp_parcel *p = &parcels[i];
            int64_t bytes = part_of(p, from, part);
            void *data = (char *)p->data + from;
            if (bytes <= 0 || p->send != send)
                continue;
            if (m->staged) {
                rc = stage(m, i, p, from, bytes, stream, err);
                data = m->stages[i];
            }
            if (rc != HCP_OK)
                return rc; /* what is under way cannot be taken back: the rank ends */
            mpi = send ? MPI_Isend(data, (int)bytes, MPI_BYTE, p->peer, TAG, m->base.comm,
                                   &m->requests[i])
                       : MPI_Irecv(data, (int)bytes, MPI_BYTE, p->peer, TAG, m->base.comm,
                                   &m->requests[i]);
            rc = failed_mpi(m, p, mpi, err);
        }
    }
    for (int32_t i = 0; rc == HCP_OK && i < n; i++) {
        const struct hcp_parcel *p = &parcels[i];
        MPI_Status status;
        int count = 0;
        if (m->requests[i] == MPI_REQUEST_NULL)
            continue;
        mpi = MPI_Wait(&m->requests[i], &status);
        rc = failed_mpi(m, p, mpi, err);
        if (rc == HCP_OK && !p->send) {
            MPI_Get_count(&status, MPI_BYTE, &count);
            if (count != part_of(p, from, part))
                rc = hcp_fail(err, HCP_FAILED,
                              "mpi transport: %d bytes from rank %d, %lld expected",
                              count, hcp_transport_peer_name(&m->base, p->peer),
                              (long long)part_of(p, from, part));
        }
        if (rc == HCP_OK && !p->send && m->staged) {
            int copied =
                run->to_device((char *)p->data + from, m->stages[i], count, stream);
            if (copied == HCP_RC_OK)
                copied = run->sync(stream); /* the stage is used again */
            rc = hcp_transport_device_check(&m->base, copied, "copy to the GPU", err);
        }
    }
    return rc;
}

static int mesh_exchange(hcp_transport *t, const struct hcp_parcel *parcels, int32_t n,
                         void *stream, struct hcp_err *err)
{
    struct mpi_mesh *m = (struct mpi_mesh *)t;
    int64_t part = m->staged ? STAGED_PART : PART, most = 0;
    int rc = grow(m, n, err);
    for (int32_t i = 0; i < n; i++)
        most = parcels[i].bytes > most ? parcels[i].bytes : most;
    for (int64_t from = 0; rc == HCP_OK && from < most; from += part)
        rc = m->cancelled ? hcp_fail(err, HCP_FAILED, "mpi transport: cancelled")
                          : exchange_part(m, parcels, n, from, part, stream, err);
    return rc;
}

static int mesh_check(hcp_transport *t, struct hcp_err *err)
{
    return ((struct mpi_mesh *)t)->cancelled
               ? hcp_fail(err, HCP_FAILED, "mpi transport: cancelled")
               : HCP_OK;
}

static void mesh_cancel(hcp_transport *t)
{
    ((struct mpi_mesh *)t)->cancelled = 1;
}

static void mesh_close(hcp_transport *t)
{
    struct mpi_mesh *m = (struct mpi_mesh *)t;
    for (int32_t i = 0; !t->failed && i < m->room; i++)
        t->runtime->host_release(m->stages[i]);
    free(m->stages);
    free(m->requests);
}

const struct transport_ops hcp_mesh_mpi_ops = {
    .name = "mpi",
    .queues = 0,
    .size = sizeof(struct mpi_mesh),
    .open = mesh_open,
    .check = mesh_check,
    .cancel = mesh_cancel,
    .close = mesh_close,
    .exchange = mesh_exchange,
};
