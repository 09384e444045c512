/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the ring; nobody else includes it.
 *
 *   ring-memory.c  buffers, inputs, kernels, messages: what a pass needs, before it
 *   ring-links.c   transports of the groups of ranks seen so far
 *   ring-linear.c  the products of a layer around a pass
 *   ring-chunks.c  keys and values that grow chunk by chunk
 *   ring-pass.c    a pass, and one with a barrier after every step
 *   ring-levels.c  ... with two levels
 *   decode.c       a step of decode in its place
 *   ring-failure.c what is left when a pass has failed on some ranks
 *   ring.c         a ring from its opening to its end, and what its passes took
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
    struct hcp_transfer *transfers; /* [m]; two levels: of the inner ring, and */
    hcp_transport *outer;           /* that of the other; NULL: one ring */
    struct hcp_transfer *outer_transfers; /* [m / inner] */
    void **rounds; /* [m / inner] event: the block that goes round a node next is here */
    /* [2][m] of the last pass, ms after its start: inner transfers by step, outer ones by
     * the step of their block. */
    struct hcp_transfer_times *level_times;

    void *start, **begun, **done; /* events; begun and done [schedule.n_pieces] */
    int *go;                      /* pinned: [0] ticket that may pass, [1] holds that
                                     timed out; NULL: passes are not held back */
    int ticket;
    int64_t passes;
    int failed;
    double slow; /* see ring_slow(); 0: 1 */
    unsigned long long *slow_mark; /* on a GPU: when the piece began */
    size_t fails_after;  /* see ring_fail_at(): pieces computed before; SIZE_MAX: never */
    int broken;          /* the device, or a kernel of it, has failed here */
    int64_t meetings;    /* entered, with an alarm */
    MPI_Request meeting; /* the last one */
    int unmet;           /* it has been left before all had come */
    struct ring_linear *linear; /* NULL: attention alone */
    struct ring_decode *decode; /* a plan of decode; NULL: prefill, or no tokens */
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

/* ring-memory.c, for others: the shape of a call but its lengths; memory of the device (0
 * bytes: none); K and V of the local tokens [first, first + n), an hcp_rc. */
int ring_shape_of(ring *r, struct hcp_err *err);
int ring_grab(ring *r, void *out, int64_t bytes, const char *what, struct hcp_err *err);
int ring_fill_kv(const ring *r, char *out, int64_t first, int64_t n);
/* ring-chunks.c: the KV of the chunk behind that of the chunks before. */
int ring_chunk_append(ring *r, struct hcp_err *err);
/* Everything local to the rank: no communication. */
int ring_memory_open(ring *r, struct hcp_err *err);
void ring_memory_close(ring *r);
/* What the device or a kernel says, as an error of ours. */
int ring_device_fail(ring *r, int rc, const char *doing, struct hcp_err *err);

/* Transport and communicator of the ranks with tokens (present[n_ranks]); collective
 * over all ranks. index: this rank's number among them, -1: not one of them, nothing is
 * set. Fewer than two: nothing either. inner > 0: of rings of so many of them in a row
 * (RING_INNER), of every inner-th (RING_OUTER), or of all and without a transport.
 * RING_MESH: inner 0; for exchanges between any two of them, whose ranks are the
 * transport's. */
enum ring_level { RING_ALL, RING_INNER, RING_OUTER, RING_MESH };
int ring_links_of(ring_links *links, const unsigned char *present, int32_t index,
                  int32_t inner, enum ring_level level, hcp_transport **transport,
                  MPI_Comm *comm, struct hcp_err *err);

/* ring-pass.c: queues a pass, or runs it piece by piece, until it is done. */
int ring_plain_pass(ring *r, struct hcp_err *err);
/* One with a barrier after every step: a block is passed on while it is computed, and
 * nothing further. *transfer_ms: the sum over steps of the longer of both directions. */
int ring_barrier_pass(ring *r, double *transfer_ms, struct hcp_err *err);
/* For passes: all ranks of the ring meet; the pass's start is recorded. */
int ring_meet(ring *r, const char *what, struct hcp_err *err);
int ring_record_start(ring *r, struct hcp_err *err);
/* Whether a pass of so many launches can be held back; doing so, until it is let go. */
int ring_may_hold(const ring *r, int launches);
int ring_hold(ring *r, struct hcp_err *err);
void ring_let_go(ring *r);
/* Waits for the KV of a step: to be told to the watch. */
void ring_waits_for_block(ring *r, int32_t step);
/* Queues a piece; follows what is queued of steps [from, to). */
int ring_compute(ring *r, size_t piece, struct hcp_err *err);
int ring_follow(ring *r, int32_t from, int32_t to, struct hcp_err *err);

/* ring-failure.c: meets like MPI_Barrier() of r->comm until the alarm is heard, an MPI
 * code; MPI_ERR_OTHER after that. Whether the piece is one that ring_fail_at() is about.
 */
int ring_meet_unless_alarmed(ring *r);
int ring_rehearses_failure(const ring *r, size_t piece);

/* ring-levels.c: a pass with two levels, in place of that of ring-pass.c. A node's ranks
 * send a block round when the one before has been round, and to the next node
 * meanwhile. */
int ring_levels_pass(ring *r, struct hcp_err *err);

#endif
