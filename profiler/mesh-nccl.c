/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges over NCCL: one communicator of all ranks, each exchange a group of sends and
 * receives, queued on the caller's stream as one kernel. NCCL connects two ranks in their
 * first exchange, in which the host waits for the other; later ones only queue.
 */
#include "config.h"
#include <stdio.h>
#include "profiler/transport-nccl.h"

struct nccl_mesh {
    struct hcp_transport base;
    const hcp_nccl_api *api;
    _Atomic(ncclComm_t) comm; /* NULL: none, or aborted (by another thread) */
};

static int mesh_open(hcp_transport *t, struct hcp_err *err)
{
    struct nccl_mesh *m = (struct nccl_mesh *)t;
    ncclComm_t comm = NULL;
    char why[256] = "";
    int rc = HCP_OK;
    m->api = hcp_nccl_load(why, sizeof why);
    if (!m->api)
        rc = hcp_fail(err, HCP_FAILED, "nccl transport: %s", why);
    rc = hcp_transport_agree(t, rc, err);
    if (rc != HCP_OK)
        return rc;
    snprintf(t->version, sizeof t->version, "%s", m->api->version_text);
    rc = hcp_nccl_join(t, m->api, &comm, err);
    m->comm = comm;
    return rc;
}

static int failed_nccl(struct nccl_mesh *m, ncclComm_t comm, ncclResult_t rc,
                       const struct hcp_parcel *p, struct hcp_err *err)
{
    struct nccl_link link = {.comm = comm, .sends = 1};
    if (rc == ncclSuccess)
        return HCP_OK;
    link.sends = p ? p->send : 1;
    link.peer_name = p ? hcp_transport_peer_name(&m->base, p->peer) : m->base.name_after;
    return hcp_nccl_check(m->api, &link, rc, err);
}

static int mesh_exchange(hcp_transport *t, const struct hcp_parcel *parcels, int32_t n,
                         void *stream, struct hcp_err *err)
{
    struct nccl_mesh *m = (struct nccl_mesh *)t;
    ncclComm_t comm = m->comm;
    int rc, ended;
    if (!comm)
        return hcp_fail(err, HCP_FAILED, "nccl transport: cancelled");
    rc = failed_nccl(m, comm, m->api->group_start(), NULL, err);
    if (rc != HCP_OK)
        return rc;
    for (int32_t i = 0; rc == HCP_OK && i < n; i++) {
        const struct hcp_parcel *p = &parcels[i];
        size_t bytes = (size_t)p->bytes;
        ncclResult_t made =
            p->send ? m->api->send(p->data, bytes, ncclInt8, p->peer, comm, stream)
                    : m->api->recv(p->data, bytes, ncclInt8, p->peer, comm, stream);
        rc = failed_nccl(m, comm, made, p, err);
    }
    ended = (int)m->api->group_end(); /* also after a failure: it closes what is open */
    return rc == HCP_OK ? failed_nccl(m, comm, (ncclResult_t)ended, NULL, err) : rc;
}

static int mesh_check(hcp_transport *t, struct hcp_err *err)
{
    struct nccl_mesh *m = (struct nccl_mesh *)t;
    ncclComm_t comm = m->comm;
    ncclResult_t async = ncclSuccess, rc;
    if (t->size < 2)
        return HCP_OK;
    if (!comm)
        return hcp_fail(err, HCP_FAILED, "nccl transport: cancelled");
    rc = m->api->async_error(comm, &async);
    return failed_nccl(m, comm, rc == ncclSuccess ? async : rc, NULL, err);
}

static void mesh_cancel(hcp_transport *t)
{
    struct nccl_mesh *m = (struct nccl_mesh *)t;
    ncclComm_t comm = atomic_exchange(&m->comm, NULL);
    if (comm)
        m->api->abort(comm);
}

static void mesh_close(hcp_transport *t)
{
    struct nccl_mesh *m = (struct nccl_mesh *)t;
    ncclComm_t comm;
    if (t->failed) {
        mesh_cancel(t);
        return;
    }
    comm = atomic_exchange(&m->comm, NULL);
    if (comm) {
        m->api->finalize(comm);
        m->api->destroy(comm);
    }
}

const struct transport_ops hcp_mesh_nccl_ops = {
    .name = "nccl",
    .queues = 1,
    .size = sizeof(struct nccl_mesh),
    .open = mesh_open,
    .check = mesh_check,
    .cancel = mesh_cancel,
    .close = mesh_close,
    .exchange = mesh_exchange,
};
