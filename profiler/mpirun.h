/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting ranks on this host, and knowing that one was started.
 */
#ifndef HCP_MPIRUN_H
#define HCP_MPIRUN_H
#include "db/error.h"

/* 1 if a launcher (mpirun, srun) started this process; rank and size in its world, -1
 * where the launcher does not say. */
int hcp_mpi_launched(int *rank, int *size);

/* Before MPI_Init, however the process was started: where processes may not read each
 * other's memory (containers), Open MPI is told to copy through shared memory, or it
 * complains about every large message. Leaves what the user has set. */
void hcp_mpi_prepare(void);

/* The beginning of a command line: args[0 .. n) go before the program's. */
struct hcp_mpirun {
    const char *args[12];
    int n;
    char count[16];
    char notes[600]; /* what was set and why: ", --bind-to none, ..." */
};

/* For n ranks of a program ("hcp-ring": for messages) on this host: mpirun of
 * $HCP_MPIRUN, else of PATH. Sets in this process's environment what running as root,
 * more ranks than cores or this container need; notes says what. args point into out, the
 * environment and constants: out must not move. HCP_FAILED: no mpirun, or one of another
 * MPI. */
int hcp_mpirun_prepare(int n, const char *program, struct hcp_mpirun *out,
                       struct hcp_err *err);

#endif
