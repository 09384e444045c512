/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "executor/comm.h"
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int ring_launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "PMI_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return 1;
    /* A batch script has a SLURM_PROCID too, but is no step of several tasks. */
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") &&
           getenv("SLURM_STEP_NUM_TASKS");
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
static int check_flavour(const char *mpirun, enum flavour flavour, struct hcp_err *err)
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
                    "%s belongs to another MPI than hcp-ring, which was built with %s; "
                    "name that one's mpirun in HCP_MPIRUN (package %s)",
                    mpirun, name, package);
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

struct notes {
    char text[600];
};

__attribute__((format(printf, 2, 3))) static void note(struct notes *to,
                                                       const char *format, ...)
{
    size_t n = strlen(to->text);
    va_list args;
    va_start(args, format);
    vsnprintf(to->text + n, sizeof to->text - n, format, args);
    va_end(args);
}

/* Sets an MCA parameter unless the user has; why is what the note says. */
static void set_mca(const char *name, const char *value, const char *why,
                    struct notes *notes)
{
    char variable[96];
    snprintf(variable, sizeof variable, "OMPI_MCA_%s", name);
    if (getenv(variable) || setenv(variable, value, 1) != 0)
        return;
    note(notes, ", %s=%s (%s)", variable, value, why);
}

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0
               ? CPU_COUNT(&set)
               : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Arguments for Open MPI in to; returns how many. */
static int openmpi_arguments(int n, const char *version, const char **to,
                             struct notes *notes)
{
    int k = 0, n_cores = cores();
    const char *number = version;
    while (*number && !isdigit((unsigned char)*number))
        number++;
    to[k++] = "--bind-to"; /* CPU kernels are single-threaded, GPU ranks need no core */
    to[k++] = "none";
    note(notes, ", --bind-to none");
    /* Slots are physical cores: as many ranks as hardware threads are too many. */
    to[k++] = "--map-by";
    to[k++] = "slot:OVERSUBSCRIBE";
    note(notes, ", --map-by slot:OVERSUBSCRIBE (%d rank%s, %d core%s)", n,
         n == 1 ? "" : "s", n_cores, n_cores == 1 ? "" : "s");
    if (geteuid() == 0) {
        to[k++] = "--allow-run-as-root";
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        note(notes, ", --allow-run-as-root (user id 0)");
    }
    if (n > n_cores)
        set_mca("mpi_yield_when_idle", "1", "waiting ranks leave their core", notes);
    if (!can_read_memory()) {
        const char *why = "this container forbids reading another process's memory";
        if (atoi(number) >= 5)
            set_mca("smsc", "^cma", why, notes);
        else
            set_mca("btl_vader_single_copy_mechanism", "none", why, notes);
    }
    return k;
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
    const char *given = getenv("HCP_MPIRUN");
    const char *mpirun = given && *given ? given : "mpirun";
    char version[400], count[16], self[4096];
    struct notes notes = {""};
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return hcp_fail(err, HCP_FAILED, "--local: /proc/self/exe: %s", strerror(errno));
    self[length] = '\0';
    read_version(mpirun, version, sizeof version);
    if (!*version)
        return hcp_fail(err, HCP_FAILED,
                        "--local: cannot run %s%s; install the package openmpi-bin (or "
                        "mpich), or name mpirun in HCP_MPIRUN",
                        mpirun, given && *given ? " of HCP_MPIRUN" : "");
    int rc = check_flavour(mpirun, flavour_of(version), err);
    if (rc != HCP_OK)
        return rc;
    const char **args = calloc((size_t)argc + 16, sizeof *args);
    if (!args)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    int k = 0, takes_next;
    snprintf(count, sizeof count, "%d", n);
    args[k++] = mpirun;
    args[k++] = "-np";
    args[k++] = count;
    if (flavour_of(version) == OPENMPI)
        k += openmpi_arguments(n, version, args + k, &notes);
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
    fprintf(stderr, "hcp-ring: --local %d: %s -np %d%s\n", n, mpirun, n, notes.text);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* Ctrl-C is for mpirun to see */
    execvp(mpirun, (char *const *)(uintptr_t)args);
    rc = hcp_fail(err, HCP_FAILED, "--local: cannot run %s: %s", mpirun, strerror(errno));
    free(args);
    return rc;
}
