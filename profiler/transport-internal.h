/* SPDX-License-Identifier: Apache-2.0
 *
 * What the transports have in common: transport.c checks the arguments and the order of
 * calls, copies the pass, and asks the transport's table for the rest.
 */
#ifndef HCP_TRANSPORT_INTERNAL_H
#define HCP_TRANSPORT_INTERNAL_H
#include <stdatomic.h>
#include "profiler/transport.h"

struct transport_step {
    struct hcp_transfer transfer;
    int32_t previous; /* step received into the same buffer before this one; -1: none */
    int32_t first;    /* its first piece among all pieces of the pass */
};

struct transport_ops {
    const char *name;
    int queues;
    size_t size; /* of its own struct, which begins with struct hcp_transport */
    /* Collective; the base is filled in, the rest zero. After a failure close follows,
     * with failed set. */
    int (*open)(hcp_transport *t, struct hcp_err *err);
    int (*begin)(hcp_transport *t, void *start, struct hcp_err *err);
    int (*wait)(hcp_transport *t, int32_t step, int32_t piece, void *stream,
                struct hcp_err *err);
    int (*precede)(hcp_transport *t, void *stream, struct hcp_err *err); /* may be NULL */
    int (*done)(hcp_transport *t, int32_t step, void *stream, struct hcp_err *err);
    int (*end)(hcp_transport *t, struct hcp_err *err);
    int (*times)(hcp_transport *t, int32_t step, struct hcp_transfer_times *out);
    int (*check)(hcp_transport *t, struct hcp_err *err);
    void (*cancel)(hcp_transport *t);
    /* After cancel on all ranks; NULL: what is under way stays so. */
    int (*settle)(hcp_transport *t, struct hcp_err *err);
    /* Everything of its own, not the base. */
    void (*close)(hcp_transport *t);
    /* Of a mesh, which has none of begin() to times(). */
    int (*exchange)(hcp_transport *t, const struct hcp_parcel *parcels, int32_t n,
                    void *stream, struct hcp_err *err);
};

struct hcp_transport {
    const struct transport_ops *ops;
    MPI_Comm comm; /* a copy of the ring's: messages never meet others; errors return */
    int rank, size, before, after;     /* in comm */
    int name, name_before, name_after; /* in MPI_COMM_WORLD: what messages say */
    const hcp_runtime *runtime;
    int32_t ordinal, sm_count, channels;
    double timeout_s;
    char version[64];
    /* The pass: kept from one to the next, so that a pass allocates nothing new. */
    struct transport_step *steps;
    int32_t n_steps, steps_room, n_pieces;
    int32_t own_after; /* after_step of the own block */
    int32_t done; /* steps reported */
    int in_pass, has_pass;
    atomic_int failed;        /* only settle and close may follow */
    atomic_int device_failed; /* on this rank */
    int settled;
};

/* The step that is n-th in the order of sending, n = 0 .. n_steps - 1. */
static inline int32_t transport_sends(const hcp_transport *t, int32_t n)
{
    return n < t->own_after ? n + 1 : n == t->own_after ? 0 : n;
}

extern const struct transport_ops hcp_transport_mpi_ops;
extern const struct transport_ops hcp_transport_nccl_ops;
extern const struct transport_ops hcp_transport_copy_ops;
extern const struct transport_ops hcp_mesh_mpi_ops;
extern const struct transport_ops hcp_mesh_nccl_ops;

/* Collective over t->comm: HCP_OK if rc is on every rank, otherwise a failure everywhere,
 * with the text of the lowest rank that failed. */
int hcp_transport_agree(hcp_transport *t, int rc, struct hcp_err *err);
/* What messages call rank `peer` of t->comm: its number in MPI_COMM_WORLD. */
int hcp_transport_peer_name(const hcp_transport *t, int peer);
/* Seconds of the monotonic clock. */
double hcp_transport_now(void);
/* HCP_FAILED unless rc is MPI_SUCCESS: "MPI: DOING rank N: what MPI says". */
int hcp_transport_mpi_check(int rc, const char *doing, int name, struct hcp_err *err);
/* HCP_FAILED unless rc (of a runtime call) is HCP_RC_OK: "WHAT: device's error". */
int hcp_transport_device_check(hcp_transport *t, int rc, const char *what,
                               struct hcp_err *err);

#endif
