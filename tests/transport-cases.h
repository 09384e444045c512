/* SPDX-License-Identifier: Apache-2.0
 *
 * What every transport must do, whatever the memory: programs run it under mpirun, one
 * process a rank, and rank 0 prints TAP.
 */
#ifndef TRANSPORT_CASES_H
#define TRANSPORT_CASES_H
#include "profiler/transport.h"

struct transport_world {
    MPI_Comm comm;
    int rank, size;
    const char *name; /* of the transport */
    const hcp_runtime *runtime;
    int32_t ordinal, sm_count, channels;
};

/* Many passes: random lengths, pieces, buffers and masks, every byte compared. */
void transport_cases_passes(const struct transport_world *w, int n_passes);
/* One message of more bytes than an int counts. */
void transport_cases_huge(const struct transport_world *w);
/* Each of these leaves a failed transport behind: one a process, or as many as the
 * transport's library bears. */
void transport_cases_silent(const struct transport_world *w);  /* the last never begins */
/* Nobody receives: more bytes than the library takes all the same. */
void transport_cases_untaken(const struct transport_world *w, int64_t bytes);
void transport_cases_cancel(const struct transport_world *w);
/* nccl: all ranks on one GPU are refused. */
void transport_cases_shared(const struct transport_world *w, int32_t ordinal);
/* nccl: all ranks on device 0, with a name of a host each, then with one for all. */
void transport_cases_host_ids(const struct transport_world *w);
/* Arguments that are refused, and a rank that cannot open. */
void transport_cases_refused(const struct transport_world *w);
/* The last rank's first block is delta bytes longer than the plan of rank 0 says. */
void transport_cases_mismatch(const struct transport_world *w, int64_t bytes,
                              int64_t delta);
/* nccl: a number of channels is what is asked of NCCL ($FAKE_NCCL_CHANNELS makes
 * fake-nccl refuse others), and numbers that cannot be are refused. */
void transport_cases_channels(const struct transport_world *w);
/* copy, two ranks (transport-copy-cases.c): one block each way or one way, in new memory
 * now and then, every byte compared; and passes that it refuses. */
void transport_cases_copies(const struct transport_world *w, int n_passes);
/* Prints the plan; exit status, the same on all ranks. */
int transport_cases_done(const struct transport_world *w);

#endif
