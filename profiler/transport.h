/* SPDX-License-Identifier: Apache-2.0
 *
 * KV blocks between neighbours of a ring: MPI between any two processes, NCCL between
 * GPUs. The executor runs on it, and hcp-profile link measures it: the same code. A third
 * one, "copy", is for measuring only: copy engines between two GPUs of one host
 * (transport-copy.c says what a pass may be). Only programs that link MPI see this
 * header.
 *
 * One pass of a rank moves blocks 0 .. n_steps - 1 in order. A block is received into a
 * buffer, computed, and passed on; transfers start as soon as their block is there and
 * their buffer is free, send and receive independently of each other:
 *
 *   begin()                 transfers whose buffers are free are started
 *   wait(step, piece)       before computing a received piece
 *   done(step)              a block is computed; its buffer is free once it is sent, too
 *   end()                   everything this rank sends and receives is over
 *
 * With NCCL these calls only queue work on streams (so a whole pass can be queued ahead);
 * with MPI a thread of the transport moves the data while the caller computes, and wait()
 * blocks. All return HCP_OK or fill err. Every wait goes on until the transport's
 * deadline, an error, or hcp_transport_cancel(). Messages name ranks by their number in
 * MPI_COMM_WORLD. After any failure only hcp_transport_close() may follow.
 *
 * "mpi" wants MPI_THREAD_MULTIPLE: its thread is inside MPI while the caller may be in a
 * barrier of its own.
 */
#ifndef HCP_TRANSPORT_H
#define HCP_TRANSPORT_H
#include <mpi.h>
#include <stdint.h>
#include "db/error.h"
#include "kernels/runtime.h"

typedef struct hcp_transport hcp_transport;

struct hcp_transport_config {
    const char *name;    /* "mpi", "nccl" or "copy" */
    MPI_Comm comm;       /* of the ring's ranks, in ring order, the caller's to free */
    const hcp_runtime *runtime; /* where the buffers are; nccl: CUDA only. mpi stages
                                   device memory through the host */
    int32_t ordinal;     /* of the device in runtime, already selected by the caller */
    int32_t sm_count;    /* SMs this process can use: bounds NCCL's blocks; 0 unknown */
    int32_t channels;    /* nccl: so many for each direction, a power of two, each a block
                            of its kernel; 0: NCCL's choice, up to a third of the SMs */
    double timeout_s;    /* longest wait for a neighbour */
    int mesh;            /* 1: for hcp_transport_exchange() between any two ranks, and no
                            passes; mpi and nccl */
};

/* Part of a block in memory here. */
struct hcp_message {
    void *data;
    int64_t bytes; /* exact, > 0 */
};

/* Block of one step. */
struct hcp_transfer {
    int receive, send;
    int32_t slot; /* its buffer; a buffer is received into again when the block before in
                     it is done and sent. -1: not a buffer (the own block) */
    const struct hcp_message *pieces; /* [n_pieces], received and sent in this order */
    int32_t n_pieces;
    int32_t after_step; /* of the own block: it is sent after that received block, or
                           before the next one that is sent. 0: first. Every other block
                           is sent in the order of the steps, and the n-th block that a
                           rank sends is the n-th that the next one receives */
};

/* Times of one step's block in the last pass, ms after its start; NaN: no transfer.
 * Receiving begins when the buffer is free and the call for it is made, so it includes
 * waiting for the sender. */
struct hcp_transfer_times {
    double receive_from_ms, receive_to_ms, send_from_ms, send_to_ms;
};

/* Before a process's first CUDA call, where its transport may be nccl: asks for a
 * hardware queue for each stream (CUDA_DEVICE_MAX_CONNECTIONS=32 in the environment).
 * Where more than three processes share a device (sharing: how many, this one too) it asks
 * for its part of 96: an MPS server has no memory for a fourth client of 32 (seen on an
 * H200, driver 580).
 * Streams that share one wait for each other: an MPS client has few unless told
 * otherwise, and computing then waits for what is sent beside it; with one, a send waits
 * for its receiver in front of the receive that the sender waits for, and so do all
 * ranks. What the user has set stays if it is 2 or more. HCP_FAILED: no memory. */
int hcp_transport_prepare(int sharing, struct hcp_err *err);

/* Likewise where transports ask for so many channels: NCCL takes variables, also those of
 * its configuration files, over what a program asks for; all that bound channels are set.
 * 0: nothing is. */
int hcp_transport_pin_channels(int32_t channels, struct hcp_err *err);

/* Collective over comm. HCP_FAILED: a library that is missing, two ranks on a GPU ... */
int hcp_transport_open(const struct hcp_transport_config *config, hcp_transport **out,
                       struct hcp_err *err);
const char *hcp_transport_name(const hcp_transport *t); /* "mpi", "nccl", "copy" */
/* Version of the library that moves the data: "2.28.9", "Open MPI 4.1.4", "CUDA 13.0". */
const char *hcp_transport_version(const hcp_transport *t);
/* 1: calls queue work on streams; 0: wait() blocks the host. */
int hcp_transport_queues(const hcp_transport *t);

/* Starts a pass. transfers is copied, the messages it points to stay valid until end().
 * start: event of the runtime, already recorded, that every transfer comes after (times
 * count from it); the runtime's stream on which computing is queued is given to wait()
 * and done(). */
int hcp_transport_begin(hcp_transport *t, const struct hcp_transfer *transfers,
                        int32_t n_steps, void *start, struct hcp_err *err);
/* What is queued on stream after this call (on the host: what follows) finds the piece
 * there. The receive must be one of the pass. */
int hcp_transport_wait(hcp_transport *t, int32_t step, int32_t piece, void *stream,
                       struct hcp_err *err);
/* What is queued on stream after this call starts once the transfers begun so far have
 * been given to the device, where calls queue work: a kernel that fills the device would
 * keep theirs out until it ends. To be called before a block is computed. */
int hcp_transport_precede(hcp_transport *t, void *stream, struct hcp_err *err);
/* What has been queued on stream is the last that reads block `step` here. Every step of
 * a pass, received or not, is reported, in order. */
int hcp_transport_done(hcp_transport *t, int32_t step, void *stream, struct hcp_err *err);
/* Blocks until all is over: MPI requests complete, streams of NCCL empty. */
int hcp_transport_end(hcp_transport *t, struct hcp_err *err);
/* Of the last pass, after end(). */
int hcp_transport_times(hcp_transport *t, int32_t step, struct hcp_transfer_times *out);

/* One message of an exchange. */
struct hcp_parcel {
    int peer;    /* in comm */
    int send;    /* 1: to peer; 0: from it */
    void *data;
    int64_t bytes; /* exact, > 0, the same at both ends */
};

/* Of a mesh: all messages of this rank at once, sent and received side by side; those
 * between two ranks, one way, arrive in their order. Every rank makes its exchanges in an
 * order in which both ends of each message meet. What is queued on stream before is done
 * before anything is read, and what is queued after it finds all of it there; where calls
 * do not queue, all is there on return, and a wait for a rank that does not come lasts:
 * the caller's watch ends it. n = 0 does nothing. */
int hcp_transport_exchange(hcp_transport *t, const struct hcp_parcel *parcels, int32_t n,
                           void *stream, struct hcp_err *err);

/* Whether something has gone wrong in the background (ncclCommGetAsyncError, the
 * transport's thread): HCP_OK or its error, without blocking. For polling loops. */
int hcp_transport_check(hcp_transport *t, struct hcp_err *err);
/* What has failed so far. DEVICE: this rank's device, or memory there; OTHER: a
 * neighbour, the way to it, or hcp_transport_cancel(). */
enum hcp_transport_fault {
    HCP_TRANSPORT_GOOD,
    HCP_TRANSPORT_OTHER,
    HCP_TRANSPORT_DEVICE
};
enum hcp_transport_fault hcp_transport_fault(const hcp_transport *t);
/* Gives up from another thread: waits return, NCCL communicators are aborted. Only
 * hcp_transport_settle() and hcp_transport_close() may follow. */
void hcp_transport_cancel(hcp_transport *t);
/* Where the processes of all ranks live though some have failed or given up: cancels, and
 * sees to it that nothing that was under way is any more, so that the memory of blocks
 * may be released and MPI keeps nothing. Collective over comm, whatever each rank was at;
 * close() follows and is collective. HCP_FAILED: MPI failed, or no memory. */
int hcp_transport_settle(hcp_transport *t, struct hcp_err *err);
/* Collective after a good pass and after settle(); local after a failure. copy: before
 * the blocks that were sent are released. Accepts NULL. */
void hcp_transport_close(hcp_transport *t);

#endif
