/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the ring; nobody else includes it.
 *
 *   ring-memory.c  buffers, inputs, kernels, messages: what a pass needs, before it
 *   ring-links.c   transports of the groups of ranks seen so far
 *   ring-linear.c  the products of a layer around a pass
 *   ring.c         a pass
 */
#ifndef HCP_RING_INTERNAL_H
#define HCP_RING_INTERNAL_H
#include "executor/ring.h"

/* A call of the schedule, ready to run. */
struct ring_kernel {
    hcp_attention *attention; /* shared by calls of one shape */
    hcp_attn_args args;
};

struct ring {
    struct ring_config config;
    struct ring_schedule schedule;
    hcp_attn_problem shape; /* lengths unset */
    int64_t element_bytes, token_bytes; /* of K and V of one token, all heads */
    hcp_transport *transport;           /* the links'; NULL in a ring of one */
    MPI_Comm comm;                      /* of the ring's ranks, the links' */
    void *stream;

    char *q, *own, *packed, *buffers; /* packed: own block as its pieces are sent */
    float *o, *lse;
    hcp_attention **attentions;
    size_t n_attentions;
    hcp_attention_scratch *scratch; /* of all attentions */
    struct ring_kernel *kernels;    /* [schedule.n_calls] */
    struct hcp_message *messages;   /* of all transfers */
    struct hcp_transfer *transfers; /* [m] */

    void *start, **begun, **done; /* events; begun and done [schedule.n_pieces] */
    int *go;                      /* pinned: [0] ticket that may pass, [1] holds that
                                     timed out; NULL: passes are not held back */
    int ticket;
    int64_t passes;
    int failed;
    struct ring_linear *linear; /* NULL: attention alone */
};

/* ring-linear.c: the products of config.layer for this rank's tokens, each checked once;
 * ring_linear_close() also after a failure. */
int ring_linear_open(ring *r, struct hcp_err *err);
void ring_linear_close(ring *r);
/* Queues those before the pass (0) or after it (1). */
int ring_linear_run(ring *r, int after, struct hcp_err *err);
/* Event: the own keys and values are there. */
void *ring_linear_ready(const ring *r);
/* Until they are done. */
int ring_linear_follow(ring *r, int after, struct hcp_err *err);
/* Of the last pass: both parts, and when the first and the second were done. */
int ring_linear_times(ring *r, double ms[2], double *ready_ms, double *end_ms,
                      struct hcp_err *err);

/* Everything local to the rank: no communication. */
int ring_memory_open(ring *r, struct hcp_err *err);
void ring_memory_close(ring *r);
/* What the device or a kernel says, as an error of ours. */
int ring_device_fail(const ring *r, int rc, const char *doing, struct hcp_err *err);

/* Transport and communicator of the ranks with tokens (present[n_ranks]); collective
 * over all ranks. index: this rank's number among them, -1: not one of them, nothing is
 * set. Fewer than two: nothing either. */
int ring_links_of(ring_links *links, const unsigned char *present, int32_t index,
                  hcp_transport **transport, MPI_Comm *comm, struct hcp_err *err);

#endif
