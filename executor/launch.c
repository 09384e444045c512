/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "executor/comm.h"
#include <signal.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profiler/mpirun.h"

int ring_launched(void)
{
    /* MPI_Init of a process that nobody launched sets what a launcher sets. */
    static int before_mpi = -1;
    int rank, size;
    if (before_mpi < 0)
        before_mpi = hcp_mpi_launched(&rank, &size);
    return before_mpi;
}

/* Whether arg is --local, spelled as getopt accepts it: shortened down to --loc, the
 * number after '=' or (takes_next) in the next argument. */
static int is_local_option(const char *arg, int *takes_next)
{
    size_t n = strcspn(arg, "=");
    *takes_next = arg[n] == '\0';
    return n >= 5 && n <= 7 && strncmp(arg, "--local", n) == 0;
}

int ring_launch_local(int n, int argc, char **argv, struct hcp_err *err)
{
    struct hcp_mpirun mpirun;
    struct hcp_err why;
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return hcp_fail(err, HCP_FAILED, "--local: /proc/self/exe: %s", strerror(errno));
    self[length] = '\0';
    int rc = hcp_mpirun_prepare(n, "hcp-ring", &mpirun, &why);
    if (rc != HCP_OK)
        return hcp_fail(err, rc, "--local: %.1000s", why.text);
    const char **args = calloc((size_t)argc + (size_t)mpirun.n + 2, sizeof *args);
    if (!args)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    int k = mpirun.n, takes_next;
    memcpy(args, mpirun.args, (size_t)k * sizeof *args);
    args[k++] = self;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (i < argc)
                args[k++] = argv[i++];
        } else if (is_local_option(argv[i], &takes_next)) {
            i += takes_next;
        } else {
            args[k++] = argv[i];
        }
    }
    fprintf(stderr, "hcp-ring: --local %d: %s -np %d%s\n", n, args[0], n, mpirun.notes);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* Ctrl-C is for mpirun to see */
    execvp(args[0], (char *const *)(uintptr_t)args);
    rc =
        hcp_fail(err, HCP_FAILED, "--local: cannot run %s: %s", args[0], strerror(errno));
    free(args);
    return rc;
}
