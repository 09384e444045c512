/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports without a GPU; ring-transport.sh runs this under mpirun. "cpu": mpi
 * between CPU ranks. On the streams of fake-gpu: "staged", mpi with copies to and from
 * the host, "nccl" with fake-nccl, and "copy".
 * Usage: ring-transport-test cpu|staged|nccl|copy CASE [PASSES]
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fake-gpu.h"
#include "tests/transport-cases.h"

static void mismatch(const struct transport_world *w)
{
    transport_cases_mismatch(w, 100, 1);
    transport_cases_mismatch(w, 100, -1);
    transport_cases_mismatch(w, 3 << 20, 5);
    transport_cases_mismatch(w, 3 << 20, -5);
    transport_cases_mismatch(w, 3 << 20, 1 << 20);
    transport_cases_mismatch(w, 3 << 20, -(2 << 20));
}

/* A length that is not the one expected; whole messages more or less do not exist. */
static void length(const struct transport_world *w)
{
    transport_cases_mismatch(w, 100, 1);
}

static void untaken(const struct transport_world *w)
{
    transport_cases_untaken(w, 8 << 20);
}

static void shared(const struct transport_world *w)
{
    transport_cases_shared(w, 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct transport_world *w);
    } cases[] = {
        {"huge", transport_cases_huge},
        {"silent", transport_cases_silent},
        {"untaken", untaken},
        {"cancel", transport_cases_cancel},
        {"refused", transport_cases_refused},
        {"mismatch", mismatch},
        {"length", length},
        {"channels", transport_cases_channels},
        {"shared", shared},
    };
    struct transport_world w = {.comm = MPI_COMM_WORLD};
    const char *where = argc > 1 ? argv[1] : "", *what = argc > 2 ? argv[2] : "";
    int level, found = strcmp(what, "passes") == 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(w.comm, &w.rank);
    MPI_Comm_size(w.comm, &w.size);
    w.name = strcmp(where, "nccl") == 0   ? "nccl"
             : strcmp(where, "copy") == 0 ? "copy"
                                          : "mpi";
    w.runtime = strcmp(where, "cpu") == 0 ? hcp_runtime_cpu() : fake_gpu_runtime();
    w.ordinal = strcmp(where, "cpu") == 0 ? 0 : w.rank;
    if (found && strcmp(where, "copy") == 0)
        transport_cases_copies(&w, argc > 3 ? atoi(argv[3]) : 10);
    else if (found)
        transport_cases_passes(&w, argc > 3 ? atoi(argv[3]) : 10);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(what, cases[i].name) == 0) {
            cases[i].run(&w);
            found = 1;
        }
    if (!found && w.rank == 0)
        fprintf(stderr, "ring-transport-test: no case '%s'\n", what);
    int status = transport_cases_done(&w);
    MPI_Finalize();
    return status || !found;
}
