/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting ranks on this host, and knowing that one was started. Compiled with the flags
 * of MPI, links nothing of it.
 */
#include "config.h"
#include "profiler/mpirun.h"
#include <ctype.h>
#include <errno.h>
#include <mpi.h> /* which one it is */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n = text && *text ? strtol(text, &end, 10) : -1;
    return n >= 0 && n < 1 << 30 && *end == '\0' ? (int)n : -1;
}

int hcp_mpi_launched(int *rank, int *size)
{
    /* MPI_LOCALNRANKS is no size of the world; PMIx alone does not say it. */
    static const struct {
        const char *rank, *size;
    } names[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"PMI_ID", "PMI_SIZE"},
                 {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
    int found = 0;
    *rank = *size = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        if (!getenv(names[i].rank))
            continue;
        found = 1;
        *rank = number_of(names[i].rank);
        *size = number_of(names[i].size);
    }
    /* A batch script has a SLURM_PROCID too, but is no step of several tasks. */
    if (!found && getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") &&
        getenv("SLURM_STEP_NUM_TASKS")) {
        found = 1;
        *rank = number_of("SLURM_PROCID");
        *size = number_of("SLURM_STEP_NUM_TASKS");
    }
    return found;
}

/* What `mpirun --version` begins with; "" if it cannot run. */
static void read_version(const char *mpirun, char *text, size_t size)
{
    int out[2];
    *text = '\0';
    if (pipe(out) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], 1), dup2(out[1], 2);
        close(out[0]), close(out[1]);
        execlp(mpirun, mpirun, "--version", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    size_t n = 0;
    ssize_t got;
    char rest[256];
    while (pid > 0) {
        char *to = n + 1 < size ? text + n : rest; /* read on: it must not get SIGPIPE */
        got = read(out[0], to, to == rest ? sizeof rest : size - 1 - n);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        if (to != rest && got > 0)
            n += (size_t)got;
    }
    text[n] = '\0';
    close(out[0]);
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
        *text = '\0';
}

enum flavour { OTHER, OPENMPI, MPICH };

static enum flavour flavour_of(const char *version)
{
    if (strstr(version, "Open MPI") || strstr(version, "OpenRTE"))
        return OPENMPI;
    if (strstr(version, "HYDRA") || strstr(version, "Intel(R) MPI"))
        return MPICH;
    return OTHER;
}

/* Ranks started by another library's mpirun would each believe to be alone. */
static int check_flavour(const char *mpirun, enum flavour flavour, const char *program,
                         struct hcp_err *err)
{
#ifdef OPEN_MPI
    const enum flavour ours = OPENMPI;
    const char *name = "Open MPI", *package = "openmpi-bin";
#else
    const enum flavour ours = MPICH;
    const char *name = "MPICH or Intel MPI", *package = "mpich";
#endif
    if (flavour == OTHER || flavour == ours)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "%s belongs to another MPI than %s, which was built with %s; "
                    "name that one's mpirun in HCP_MPIRUN (package %s)",
                    mpirun, program, name, package);
}

/* Whether a process may read another one's memory here: Open MPI moves large messages
 * so, and in containers that forbid it, it complains about every one of them. */
static int can_read_memory(void)
{
    char there = 'x', here = 0;
    int gate[2];
    if (pipe(gate) != 0)
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        if (read(gate[0], &there, 1) < 0)
            _exit(1);
        _exit(0);
    }
    struct iovec to = {&here, 1}, from = {&there, 1};
    int yes = pid < 0 || process_vm_readv(pid, &to, 1, &from, 1, 0) == 1;
    close(gate[0]), close(gate[1]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return yes;
}

__attribute__((format(printf, 2, 3))) static void note(struct hcp_mpirun *to,
                                                       const char *format, ...)
{
    size_t n = strlen(to->notes);
    va_list args;
    va_start(args, format);
    vsnprintf(to->notes + n, sizeof to->notes - n, format, args);
    va_end(args);
}

/* Sets an MCA parameter unless the user has; why is for the note (to NULL: no note). */
static void set_mca(const char *name, const char *value, const char *why,
                    struct hcp_mpirun *to)
{
    char variable[96];
    snprintf(variable, sizeof variable, "OMPI_MCA_%s", name);
    if (getenv(variable) || setenv(variable, value, 1) != 0)
        return;
    if (to)
        note(to, ", %s=%s (%s)", variable, value, why);
}

static void copy_twice_if_needed(int major_version, struct hcp_mpirun *to)
{
    const char *why = "this container forbids reading another process's memory";
    if (can_read_memory())
        return;
    if (major_version >= 5)
        set_mca("smsc", "^cma", why, to);
    else
        set_mca("btl_vader_single_copy_mechanism", "none", why, to);
}

void hcp_mpi_prepare(void)
{
#ifdef OMPI_MAJOR_VERSION
    copy_twice_if_needed(OMPI_MAJOR_VERSION, NULL);
#endif
}

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0
               ? CPU_COUNT(&set)
               : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void openmpi_arguments(int n, const char *version, struct hcp_mpirun *to)
{
    int n_cores = cores();
    const char *number = version;
    while (*number && !isdigit((unsigned char)*number))
        number++;
    to->args[to->n++] = "--bind-to"; /* CPU kernels have one thread, GPU ranks need no
                                        core */
    to->args[to->n++] = "none";
    note(to, ", --bind-to none");
    /* Slots are physical cores: as many ranks as hardware threads are too many. */
    to->args[to->n++] = "--map-by";
    to->args[to->n++] = "slot:OVERSUBSCRIBE";
    note(to, ", --map-by slot:OVERSUBSCRIBE (%d rank%s, %d core%s)", n, n == 1 ? "" : "s",
         n_cores, n_cores == 1 ? "" : "s");
    if (geteuid() == 0) {
        to->args[to->n++] = "--allow-run-as-root";
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        note(to, ", --allow-run-as-root (user id 0)");
    }
    if (n > n_cores)
        set_mca("mpi_yield_when_idle", "1", "waiting ranks leave their core", to);
    copy_twice_if_needed(atoi(number), to);
}

int hcp_mpirun_prepare(int n, const char *program, struct hcp_mpirun *out,
                       struct hcp_err *err)
{
    const char *given = getenv("HCP_MPIRUN");
    const char *mpirun = given && *given ? given : "mpirun";
    char version[400];
    *out = (struct hcp_mpirun){.n = 0};
    read_version(mpirun, version, sizeof version);
    if (!*version)
        return hcp_fail(err, HCP_FAILED,
                        "cannot run %s%s; install the package openmpi-bin (or mpich), or "
                        "name mpirun in HCP_MPIRUN",
                        mpirun, given && *given ? " of HCP_MPIRUN" : "");
    int rc = check_flavour(mpirun, flavour_of(version), program, err);
    if (rc != HCP_OK)
        return rc;
    snprintf(out->count, sizeof out->count, "%d", n);
    out->args[out->n++] = mpirun;
    out->args[out->n++] = "-np";
    out->args[out->n++] = out->count;
    if (flavour_of(version) == OPENMPI)
        openmpi_arguments(n, version, out);
    return HCP_OK;
}
