/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests/ring-comm.bats starts under mpirun, one part of the group's interface a
 * command. Results on stdout, one line each that begins with the rank.
 */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "executor/comm.h"
#include "profiler/measure.h"

static struct ring_comm comm;
static ring_warden *warden;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[1300];
    va_list args;
    int n = snprintf(line, sizeof line, "%d: ", comm.rank);
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    if (write(STDOUT_FILENO, line, strlen(line)) < 0)
        _exit(9);
    (void)n;
}

static void pause_s(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

/* The pid of rank NAME for the script, whole at once. */
static void write_pid(const char *dir)
{
    char temporary[300], path[300];
    snprintf(temporary, sizeof temporary, "%s/.pid-%d", dir, comm.rank);
    snprintf(path, sizeof path, "%s/pid-%d", dir, comm.rank);
    FILE *f = fopen(temporary, "w");
    if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0 ||
        rename(temporary, path) != 0)
        _exit(9);
}

/* all-ok [RANK...]: these ranks fail, with code 1, or 3 where an 'n' follows. */
static int all_ok(int argc, char **argv)
{
    struct hcp_err err = {0};
    int rc = HCP_OK;
    for (int i = 0; i < argc; i++)
        if (atoi(argv[i]) == comm.rank)
            rc = hcp_fail(&err, strchr(argv[i], 'n') ? HCP_NO_ANSWER : HCP_FAILED,
                          "rank %s is told to fail", argv[i]);
    rc = ring_all_ok(&comm, rc, &err);
    say("%d %s", rc, err.text);
    return HCP_OK;
}

/* One comparison: arguments up to "+". */
static int agree_once(int argc, char **argv)
{
    struct ring_identity id = {.tool_version = "0.1.0",
                               .plan_version = 1,
                               .fingerprint = 0x93fa,
                               .seq_len = 65536,
                               .n_ranks = comm.size,
                               .shape = "bf16 32/8 heads x 128, batch 1, causal, zigzag",
                               .options = "buffers 2, sub-blocks 1",
                               .provider = "cpu"};
    for (int i = 0; i < argc && strcmp(argv[i], "+") != 0; i++) {
        char field[32], value[100];
        int rank;
        if (sscanf(argv[i], "%d:%31[^=]=%99[^\n]", &rank, field, value) != 3)
            return HCP_USAGE;
        if (rank != comm.rank)
            continue;
        if (strcmp(field, "tool") == 0)
            snprintf(id.tool_version, sizeof id.tool_version, "%.15s", value);
        else if (strcmp(field, "lib") == 0)
            id.plan_version = atoi(value);
        else if (strcmp(field, "fingerprint") == 0)
            id.fingerprint = strtoull(value, NULL, 16);
        else if (strcmp(field, "len") == 0)
            id.seq_len = atoll(value);
        else if (strcmp(field, "ranks") == 0)
            id.n_ranks = atoll(value);
        else if (strcmp(field, "shape") == 0)
            snprintf(id.shape, sizeof id.shape, "%.95s", value);
        else if (strcmp(field, "options") == 0)
            snprintf(id.options, sizeof id.options, "%.95s", value);
        else if (strcmp(field, "kernel") == 0)
            snprintf(id.provider, sizeof id.provider, "%.79s", value);
        else
            return HCP_USAGE;
    }
    struct hcp_err err = {0};
    int rc = ring_agree(&comm, &id, &err);
    say("%d %s", rc, err.text);
    return HCP_OK;
}

/* agree [RANK:FIELD=VALUE...] [+ ...]: what these ranks have instead of what all have. */
static int agree(int argc, char **argv)
{
    int rc = agree_once(argc, argv);
    for (int i = 0; i < argc && rc == HCP_OK; i++)
        if (strcmp(argv[i], "+") == 0)
            rc = agree_once(argc - i - 1, argv + i + 1);
    return rc;
}

/* A rank that ends, or does not go on, takes others with it: first all leave theirs. */
static void await_pids(const char *dir)
{
    char path[300];
    for (int r = 0; r < comm.size; r++) {
        snprintf(path, sizeof path, "%s/pid-%d", dir, r);
        while (access(path, F_OK) != 0)
            pause_s(0.01);
    }
}

static void stop_at_once(void *ctx)
{
    (void)ctx;
    say("stopping");
}

static void hang(void *ctx)
{
    (void)ctx;
    for (;;)
        pause();
}

/* watch DIR TIMEOUT [hang|fail RANK|stop RANK|end]: a ring in which everybody waits for
 * the rank before; the script does something to one of them. fail: that rank ends with an
 * error of its own. stop: it does not go on. end: nobody waits, the run ends well, the
 * ranks one after another. */
static int watch(int argc, char **argv)
{
    struct hcp_err err = {0};
    ring_watch *w = NULL;
    char what[100];
    int before = (comm.rank + comm.size - 1) % comm.size;
    const char *how = argc > 2 ? argv[2] : "";
    int mine = argc > 3 && atoi(argv[3]) == comm.rank, stop = strcmp(how, "stop") == 0;
    if (argc < 2)
        return HCP_USAGE;
    int rc = ring_watch_start(&comm, atof(argv[1]), &w, &err);
    rc = ring_all_ok(&comm, rc, &err);
    if (rc != HCP_OK) {
        say("%s", err.text);
        return rc;
    }
    ring_watch_on_stop(w, strcmp(how, "hang") == 0 ? hang : stop_at_once, NULL);
    if (strcmp(how, "end") == 0) {
        for (int i = 0; i < 50 && rc == HCP_OK; i++) {
            ring_watch_stop(w);
            rc = ring_watch_start(&comm, atof(argv[1]), &w, &err);
        }
        ring_watch_stop(w);
        say("%d %s", rc, err.text);
        ring_comm_close(&comm);
        pause_s(0.1 * (comm.size - comm.rank)); /* the last rank first */
        _exit(0);
    }
    snprintf(what, sizeof what, "waiting for the KV of rank %d (step 1)", before);
    if (!stop)
        ring_watch_waiting(w, what, before);
    MPI_Barrier(comm.world); /* all wait by now */
    write_pid(argv[0]);
    if (mine || stop)
        await_pids(argv[0]);
    if (stop && mine)
        raise(SIGSTOP);
    else if (stop)
        ring_watch_waiting(w, what, before);
    if (mine) {
        hcp_fail(&err, HCP_FAILED, "the kernel failed");
        ring_watch_fail(w, &err);
    }
    MPI_Recv(what, 1, MPI_CHAR, before, 0, comm.world, MPI_STATUS_IGNORE);
    say("received what nobody sent");
    return HCP_FAILED;
}

/* limit DIR LIMIT...: each rank its own, in order ("-": none); then waits for DIR/go. */
static int limit(int argc, char **argv)
{
    struct hcp_err err = {0};
    char pipe_dir[108], log_dir[108], go[300];
    if (argc < 1 + comm.size)
        return HCP_USAGE;
    const char *mine = argv[1 + comm.rank];
    int rc = ring_limit_apply(&comm, warden, *mine == '-' ? "" : mine, "GPU-1", pipe_dir,
                              log_dir, &err);
    rc = ring_all_ok(&comm, rc, &err);
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    say("%d %s%s %s", rc, err.text, percent ? percent : "-", *pipe_dir ? pipe_dir : "-");
    write_pid(argv[0]);
    snprintf(go, sizeof go, "%s/go", argv[0]);
    while (rc == HCP_OK && access(go, F_OK) != 0)
        pause_s(0.02);
    return rc;
}

/* exchange: a message to the next rank that is too long to be sent at once. */
static int exchange(int argc, char **argv)
{
    enum { BYTES = 1 << 20 };
    int next = (comm.rank + 1) % comm.size,
        last = (comm.rank + comm.size - 1) % comm.size;
    char *out = calloc(BYTES, 1), *in = calloc(BYTES, 1);
    (void)argc, (void)argv;
    if (!out || !in)
        return HCP_FAILED;
    memset(out, 'a' + comm.rank, BYTES);
    MPI_Sendrecv(out, BYTES, MPI_CHAR, next, 0, in, BYTES, MPI_CHAR, last, 0, comm.world,
                 MPI_STATUS_IGNORE);
    say("%c%c", in[0], in[BYTES - 1]);
    free(out);
    free(in);
    return HCP_OK;
}

/* Runs a command that may not read other processes' memory, as some containers do it;
 * exit code 77: this cannot be had here. */
/* The last rank becomes the first; a failure is then that of its place. */
static int reorder(int argc, char **argv)
{
    struct hcp_err err = {0};
    int was = comm.rank, rc;
    (void)argc, (void)argv;
    rc = ring_comm_reorder(&comm, comm.size - 1 - was, &err);
    if (rc == HCP_OK)
        printf("%d is %d of %d, %d of %d here\n", was, comm.rank, comm.size,
               comm.host_rank, comm.host_size);
    fflush(stdout);
    rc = was == 0 ? hcp_fail(&err, HCP_FAILED, "the first") : rc;
    rc = ring_all_ok(&comm, rc, &err);
    if (comm.rank == 0)
        printf("%s\n", err.text);
    return rc == HCP_FAILED ? 0 : 1;
}

static _Noreturn void forbid_and_run(char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        exit(77);
    execvp(argv[0], argv);
    exit(9);
}

int main(int argc, char **argv)
{
    struct hcp_err err = {0};
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"all-ok", all_ok},
                    {"agree", agree},
                    {"watch", watch},
                    {"limit", limit},
                    {"exchange", exchange},
                    {"reorder", reorder}};
    ring_watch_block_signals();
    if (argc > 2 && strncmp(argv[1], "--loc", 5) == 0) { /* as hcp-ring does it */
        const char *n = strchr(argv[1], '=');
        ring_launch_local(atoi(n ? n + 1 : argv[2]), argc, argv, &err);
        fprintf(stderr, "ring-comm: %s\n", err.text);
        return 1;
    }
    if (argc > 2 && strcmp(argv[1], "forbid") == 0)
        forbid_and_run(argv + 2);
    if (argc > 1 && strcmp(argv[1], "launched") == 0)
        return printf("%d\n", ring_launched()) < 0;
    int rc = ring_warden_start(&warden, &err);
    if (rc == HCP_OK)
        rc = ring_comm_open(&argc, &argv, &comm, &err);
    if (rc != HCP_OK) {
        fprintf(stderr, "ring-comm: %s\n", err.text);
        return rc;
    }
    rc = HCP_USAGE;
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            rc = commands[i].run(argc - 2, argv + 2);
    ring_comm_close(&comm);
    ring_warden_stop(warden);
    return rc;
}
