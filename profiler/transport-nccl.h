/* SPDX-License-Identifier: Apache-2.0
 *
 * The nccl transport in two files: how the links are made and unmade
 * (transport-nccl-link.c), and the passes over them (transport-nccl.c).
 */
#ifndef HCP_TRANSPORT_NCCL_H
#define HCP_TRANSPORT_NCCL_H
#include <pthread.h>
#include "profiler/nccl-api.h"
#include "profiler/transport-internal.h"

/* One edge of the ring as one of its ends sees it: a communicator of two ranks, 0 the
 * sender and 1 the receiver, used in this direction only and on a stream of its own, so
 * that sending and receiving never wait for each other. */
struct nccl_link {
    ncclComm_t comm; /* NULL: none, or aborted */
    void *stream;
    int sends;      /* this end is the sender */
    int phase;      /* links are made and unmade by phase, in which a rank has one */
    int peer;       /* of comm */
    int peer_name;  /* rank in MPI_COMM_WORLD */
    int max_blocks; /* SMs that its kernels take; both ends say the same */
    int exact;      /* so many, not up to so many */
    ncclUniqueId id;
};

/* Makes the links of t: in and out, by their phase. Collective over t->comm; HCP_FAILED
 * (on all ranks): no library, two ranks on one GPU, versions that differ, a peer that
 * does not answer. Streams are there already. A ring of one rank has none. */
int hcp_nccl_connect(hcp_transport *t, const hcp_nccl_api *api, struct nccl_link *in,
                     struct nccl_link *out, struct hcp_err *err);
/* One communicator of all ranks of t, for messages between any two, with the blocks that
 * a link of the ring would have; as hcp_nccl_connect() otherwise, but that it waits for
 * ranks that do not come. NULL in a mesh of one. */
int hcp_nccl_join(hcp_transport *t, const hcp_nccl_api *api, ncclComm_t *comm,
                  struct hcp_err *err);
/* Ends a link after good passes; both its ends do. */
void hcp_nccl_disconnect(const hcp_nccl_api *api, struct nccl_link *link);
/* HCP_FAILED unless rc is ncclSuccess: "NCCL VERSION: DOING rank N: its reason". */
int hcp_nccl_check(const hcp_nccl_api *api, const struct nccl_link *link, ncclResult_t rc,
                   struct hcp_err *err);

#endif
