/* SPDX-License-Identifier: Apache-2.0
 *
 * All transports between GPUs (copy: between two), one rank a GPU: starts mpirun itself
 * with as many ranks as there are GPUs unless a launcher has done so. One GPU is shared by
 * two ranks, or as many as a launcher starts, which NCCL takes for ranks of several hosts:
 * under an MPS daemon, for ranks that take turns on a GPU do not come to an end after
 * transfers that were given up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/cuda.h"
#include "tests/transport-cases.h"

/* Whether ranks can be on the one GPU at once. */
static int served(void)
{
    hcp_device_ref ref = {.size = sizeof ref};
    hcp_cuda_info info = {.size = sizeof info};
    char why[512];
    return hcp_cuda_device(0, &ref, &info, why, sizeof why) == HCP_RC_OK &&
           info.mps_enabled;
}

static int launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

/* Returns only when there is no mpirun. */
static void launch(int n)
{
    char self[4096], ranks[16];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return;
    self[length] = '\0';
    snprintf(ranks, sizeof ranks, "%d", n);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    execlp("mpirun", "mpirun", "-np", ranks, self, (char *)NULL);
}

int main(int argc, char **argv)
{
    struct transport_world w = {.comm = MPI_COMM_WORLD};
    char why[512] = "";
    int n = 0, level, rank, size, shared;
    hcp_cuda_device_count(&n, why, sizeof why);
    shared = n == 1;
    if (shared && !served()) {
        snprintf(why, sizeof why, "one GPU, and no MPS daemon by which ranks share it");
        n = 0;
    }
    if (n < 1) {
        if (!getenv("OMPI_COMM_WORLD_RANK") ||
            strcmp(getenv("OMPI_COMM_WORLD_RANK"), "0") == 0)
            printf("1..0 # SKIP %s\n", *why ? why : "no GPU");
        if (!launched())
            return 0;
    } else if (!launched()) {
        launch(shared ? 2 : n);
        printf("1..0 # SKIP mpirun is not installed\n");
        return 0;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (n < 1 || size < 2 || (size > n && !shared)) {
        if (rank == 0 && n >= 1)
            printf("1..0 # SKIP %d ranks, %d GPUs\n", size, n);
        MPI_Finalize();
        return 0;
    }
    w.rank = rank;
    w.size = size;
    w.runtime = hcp_runtime_cuda();
    w.ordinal = shared ? 0 : rank;
    w.runtime->select(w.ordinal);
    if (size == 2 && !shared) {
        w.name = "copy";
        transport_cases_copies(&w, 60);
        transport_cases_shared(&w, 0);
    }
    w.name = "mpi";
    transport_cases_passes(&w, 30);
    transport_cases_silent(&w);
    w.name = "nccl";
    transport_cases_shared(&w, 0);
    if (shared) {
        char host[32];
        snprintf(host, sizeof host, "rank%d", rank);
        setenv("NCCL_HOSTID", host, 1);
    }
    transport_cases_passes(&w, 60);
    transport_cases_silent(&w);
    transport_cases_untaken(&w, 256 << 20); /* NCCL keeps 4 MiB a channel */
    transport_cases_cancel(&w);
    int status = transport_cases_done(&w);
    MPI_Finalize();
    return status;
}
