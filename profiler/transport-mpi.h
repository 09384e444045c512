/* SPDX-License-Identifier: Apache-2.0
 *
 * The mpi transport in three files: what the caller calls (transport-mpi.c), its thread
 * (transport-mpi-thread.c), and the lists and host memory of a pass
 * (transport-mpi-pass.c).
 */
#ifndef HCP_TRANSPORT_MPI_H
#define HCP_TRANSPORT_MPI_H
#include <pthread.h>
#include "profiler/transport-internal.h"

/* Bytes of a message at most, and tags: below the last one, which settling has. */
enum { MPI_CHUNK = 1 << 20, MPI_LAST_TAG = 32767 };

/* A piece, or 1 MiB of it: what MPI is doing shows only when a message is over. */
struct mpi_message {
    int32_t step, piece;
    int first;             /* of its step */
    int32_t receive_order; /* among all received in the pass; -1: not received */
    /* Number of its block among those received, and sent: both ends count alike. */
    int32_t nth_received, nth_sent;
    int64_t bytes;
    void *data;   /* the caller's */
    void *host;   /* what MPI reads and writes: data itself or memory of the stage */
    void *copied; /* event: data and host are equal; NULL: they are the same */
    MPI_Request receive, send;
};

struct stage {
    void *memory;
    int64_t room;
};

/* How far the thread is. What it receives and sends are lists of messages in order. */
struct progress {
    int32_t receives_posted, received; /* by MPI */
    int32_t arrived;                   /* wait() may return: copies are queued */
    int32_t landed;                    /* copies are done too */
    int32_t sends_posted, sent;
    int32_t finished;  /* steps that are done on the device */
    double received_s; /* when `received` last changed */
    double sent_s;
};

struct mpi_transport {
    struct hcp_transport base;
    int staged, has_thread;
    void *to_host, *to_device; /* streams, when staged */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, changed; /* for the thread; for the caller */

    /* Under lock. */
    int running, quit, cancelled, failed;
    int32_t computed; /* steps reported done */
    int over;
    struct progress shown;
    struct hcp_err failure;

    /* The thread's while a pass runs, else the caller's. */
    struct progress at;
    int64_t passes; /* begun: at is of the last one */
    double start_s;
    struct mpi_message *messages;
    int32_t *receives, *sends, messages_room; /* indices of messages */
    int32_t n_messages, n_receives, n_sends;
    int32_t *last; /* [pieces] last message of each */
    int32_t pieces_room;
    struct hcp_transfer_times *times; /* [steps] */
    void **step_done;                 /* [steps] events, when staged */
    int32_t *sent_with; /* [steps] sends that are over when the step's block is sent */
    int32_t steps_room;
    struct stage *stages; /* of the own block, then of each buffer */
    int32_t n_stages;
};

/* The thread: moves passes from begin() on until m->quit. */
void *hcp_mpi_work(void *transport);
/* Makes the lists of the pass in m->base, and room for it. Host memory only when staged.
 * HCP_FAILED: no memory. Between passes. */
int hcp_mpi_make_pass(struct mpi_transport *m, struct hcp_err *err);
/* Frees what passes have used. Memory that MPI may still write to stays after a
 * failure: the program is about to end. */
void hcp_mpi_free_pass(struct mpi_transport *m);

/* hcp_transport_device_check() */
static inline int failed_device(struct mpi_transport *m, int rc, const char *what,
                                struct hcp_err *err)
{
    return hcp_transport_device_check(&m->base, rc, what, err);
}

/* "Open MPI 4.1.4": name and version of the library. */
void hcp_mpi_version(char *out, size_t size);

#endif
