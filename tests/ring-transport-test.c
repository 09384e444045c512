/* SPDX-License-Identifier: Apache-2.0
 *
 * The mpi transport between CPU ranks; ring-transport.sh runs it under mpirun.
 * Usage: ring-transport-test passes N | CASE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/transport-cases.h"

int main(int argc, char **argv)
{
    struct transport_world w = {.comm = MPI_COMM_WORLD, .name = "mpi"};
    const char *what = argc > 1 ? argv[1] : "";
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(w.comm, &w.rank);
    MPI_Comm_size(w.comm, &w.size);
    w.runtime = hcp_runtime_cpu();
    if (strcmp(what, "passes") == 0)
        transport_cases_passes(&w, argc > 2 ? atoi(argv[2]) : 10);
    else if (strcmp(what, "huge") == 0)
        transport_cases_huge(&w);
    else if (strcmp(what, "silent") == 0)
        transport_cases_silent(&w);
    else if (strcmp(what, "untaken") == 0)
        transport_cases_untaken(&w);
    else if (strcmp(what, "cancel") == 0)
        transport_cases_cancel(&w);
    else if (strcmp(what, "refused") == 0)
        transport_cases_refused(&w);
    else if (strcmp(what, "mismatch") == 0) {
        transport_cases_mismatch(&w, 100, 1);
        transport_cases_mismatch(&w, 100, -1);
        transport_cases_mismatch(&w, 3 << 20, 5);
        transport_cases_mismatch(&w, 3 << 20, -5);
        transport_cases_mismatch(&w, 3 << 20, 1 << 20);
        transport_cases_mismatch(&w, 3 << 20, -(2 << 20));
    } else if (w.rank == 0)
        fprintf(stderr, "ring-transport-test: no case '%s'\n", what);
    int status = transport_cases_done(&w);
    MPI_Finalize();
    return status;
}
