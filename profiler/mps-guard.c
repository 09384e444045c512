/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/mps-internal.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "profiler/measure.h"

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

int hcp_mps_control(const char *control, const char *argument, const char *command,
                    const char *pipe_dir, const char *log_dir, char *output, size_t size,
                    double timeout_s)
{
    int in[2], out[2];
    if (pipe(in) != 0)
        return -1;
    if (pipe(out) != 0) {
        close(in[0]), close(in[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0), dup2(out[1], 1), dup2(out[1], 2);
        close_range(3, ~0u, 0);
        signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL), signal(SIGHUP, SIG_DFL);
        if (pipe_dir && (setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_dir, 1) != 0 ||
                         setenv("CUDA_MPS_LOG_DIRECTORY", log_dir, 1) != 0))
            _exit(127);
        execl(control, control, argument, (char *)NULL);
        dprintf(2, "cannot run %s: %s", control, strerror(errno));
        _exit(127);
    }
    close(in[0]), close(out[1]);
    if (pid > 0 && command && write(in[1], command, strlen(command)) < 0)
        command = NULL; /* it has ended: its output says why */
    close(in[1]);
    size_t n = 0;
    double end = hcp_now_s() + timeout_s;
    int status = -1, ended = 0;
    while (pid > 0 && !ended && hcp_now_s() < end) {
        struct pollfd p = {out[0], POLLIN, 0};
        if (poll(&p, 1, 20) > 0) {
            char rest[256], *to = n + 1 < size ? output + n : rest;
            ssize_t got = read(out[0], to, to == rest ? sizeof rest : size - 1 - n);
            if (got > 0 && to != rest)
                n += (size_t)got;
            if (got == 0)
                pause_ms(5); /* closed its output, about to end */
        }
        ended = waitpid(pid, &status, WNOHANG) == pid;
    }
    if (pid > 0 && ended) { /* what was still in the pipe */
        ssize_t got;
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        while (n + 1 < size && (got = read(out[0], output + n, size - 1 - n)) > 0)
            n += (size_t)got;
    } else if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    close(out[0]);
    while (n > 0 && isspace((unsigned char)output[n - 1]))
        n--;
    output[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (iscntrl((unsigned char)output[i]))
            output[i] = ' ';
    return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Calls visit for each process whose name begins with nvidia-cuda-mps. */
static void each_mps_process(void (*visit)(pid_t pid, uid_t uid, void *ctx), void *ctx)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        char path[300], comm[32] = "";
        struct stat st;
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        FILE *f = fopen(path, "r");
        if (!f)
            continue;
        size_t n = fread(comm, 1, sizeof comm - 1, f);
        fclose(f);
        comm[n] = '\0';
        snprintf(path, sizeof path, "/proc/%s", entry->d_name);
        if (strncmp(comm, "nvidia-cuda-mps", 15) == 0 && stat(path, &st) == 0)
            visit((pid_t)atoi(entry->d_name), st.st_uid, ctx);
    }
    if (proc)
        closedir(proc);
}

struct ours {
    const char *pipe_dir;
    int count, signal;
};

/* Ours is a process that was started with our pipe directory: its name is unique. */
static void visit_ours(pid_t pid, uid_t uid, void *ctx)
{
    struct ours *o = ctx;
    static char env[1 << 18]; /* guard process only: one thread */
    char path[64], want[256];
    (void)uid;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int n_want = snprintf(want, sizeof want, "CUDA_MPS_PIPE_DIRECTORY=%s", o->pipe_dir);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    size_t n = fread(env, 1, sizeof env - 1, f);
    fclose(f);
    env[n] = '\0';
    for (size_t i = 0; i < n; i += strlen(env + i) + 1) {
        if (strncmp(env + i, want, (size_t)n_want + 1) != 0)
            continue;
        o->count++;
        if (o->signal)
            kill(pid, o->signal);
    }
}

static int count_ours(const char *pipe_dir, int signal_too)
{
    struct ours o = {pipe_dir, 0, signal_too};
    each_mps_process(visit_ours, &o);
    return o.count;
}

struct foreign {
    char *text;
    size_t size;
    int found;
};

static void visit_foreign(pid_t pid, uid_t uid, void *ctx)
{
    struct foreign *f = ctx;
    if (uid == geteuid() || f->found)
        return;
    struct passwd *who = getpwuid(uid);
    snprintf(
        f->text, f->size,
        "an MPS daemon of user %s (uid %u, pid %d) runs on this machine; its clients "
        "share the "
        "GPU, and in exclusive compute mode ours cannot start until it is stopped there",
        who ? who->pw_name : "?", (unsigned)uid, (int)pid);
    f->found = 1;
}

int hcp_mps_foreign(char *text, size_t size)
{
    struct foreign f = {text, size, 0};
    each_mps_process(visit_foreign, &f);
    return f.found;
}

static void remove_dir(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    while (d && (entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
    rmdir(dir);
}

void hcp_mps_remove_dirs(const char *pipe_dir, const char *log_dir, const char *base_dir)
{
    remove_dir(pipe_dir);
    remove_dir(log_dir);
    remove_dir(base_dir);
}

/* Seconds to wait for the daemon: $HCP_MPS_WAIT, or what is usual. */
static double patience_s(double usual)
{
    const char *text = getenv("HCP_MPS_WAIT");
    return text && atoi(text) > 0 ? atoi(text) : usual;
}

/* quit, then SIGTERM, then SIGKILL: each only if the one before was not enough. */
static void stop_daemon(const char *control, const char *pipe_dir)
{
    char output[512];
    if (count_ours(pipe_dir, 0) == 0)
        return;
    hcp_mps_control(control, NULL, "quit\n", NULL, NULL, output, sizeof output, 10);
    double end = hcp_now_s() + patience_s(5);
    while (count_ours(pipe_dir, 0) > 0 && hcp_now_s() < end)
        pause_ms(50);
    if (count_ours(pipe_dir, SIGTERM) > 0)
        pause_ms(500);
    for (int i = 0; i < 10 && count_ours(pipe_dir, SIGKILL) > 0; i++)
        pause_ms(100);
}

/* Starts it and waits until it answers: "" and its default percentage, or why not. */
static void start_daemon(const char *control, const char *pipe_dir, const char *log_dir,
                         double *percentage, char *why, size_t size)
{
    char output[512] = "", other[400];
    int status =
        hcp_mps_control(control, "-d", NULL, NULL, NULL, output, sizeof output, 20);
    if (status != 0) {
        snprintf(why, size, "MPS: '%s -d' failed (%s%d): %s", control,
                 status < 0 ? "no end, " : "exit code ", status,
                 *output ? output : "no message; see the logs");
    } else {
        double end = hcp_now_s() + patience_s(15);
        *why = '\0';
        do {
            status =
                hcp_mps_control(control, NULL, "get_default_active_thread_percentage\n",
                                NULL, NULL, output, sizeof output, 5);
            char *rest;
            *percentage = strtod(output, &rest); /* no setlocale here: the C locale */
            if (status == 0 && rest != output && *percentage > 0)
                return;
            pause_ms(100);
        } while (hcp_now_s() < end);
        snprintf(why, size, "MPS: the daemon started by '%s -d' does not answer: %s",
                 control, *output ? output : "no reply");
    }
    size_t n = strlen(why);
    int others = hcp_mps_foreign(other, sizeof other);
    if (n < size)
        snprintf(why + n, size - n,
                 " (pipe directory %s, log directory %s, user id %u)%s%s", pipe_dir,
                 log_dir, (unsigned)geteuid(), others ? "; " : "", others ? other : "");
}

/* Last line of control.log or server.log: the daemon's own reason. */
static void append_log(const char *log_dir, char *why, size_t size)
{
    static const char *const names[] = {"server.log", "control.log"};
    for (size_t i = 0; i < 2; i++) {
        char path[160], line[300], last[300] = "";
        snprintf(path, sizeof path, "%s/%s", log_dir, names[i]);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (line[0] != '\n')
                memcpy(last, line, sizeof last);
        if (f)
            fclose(f);
        last[strcspn(last, "\n")] = '\0';
        size_t n = strlen(why);
        if (*last && n < size) {
            snprintf(why + n, size - n, "; %s: %s", names[i], last);
            return;
        }
    }
}

_Noreturn void hcp_mps_guard(const char *control, const char *pipe_dir,
                             const char *log_dir, const char *base_dir, int fd)
{
    char why[1000], discard[64];
    double percentage = 0;
    setsid(); /* a Ctrl-C is for the program, not for us */
    signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN), signal(SIGPIPE, SIG_IGN);
    if (fd != 3) {
        dup2(fd, 3);
        fd = 3;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    close_range(4, ~0u, 0);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0), dup2(null, 1), dup2(null, 2);
    if (null > 2)
        close(null);
    if (chdir("/") != 0)
        _exit(1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_dir, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", log_dir, 1);
    /* These would become the daemon's defaults, or renumber the devices twice. */
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");

    start_daemon(control, pipe_dir, log_dir, &percentage, why, sizeof why);
    if (*why) {
        append_log(log_dir, why, sizeof why);
        stop_daemon(control, pipe_dir);
    }
    if (*why || dprintf(fd, "ok %.6g\n", percentage) < 0) {
        if (*why)
            dprintf(fd, "error %s\n", why);
    } else {
        ssize_t got;
        do
            got = read(fd, discard, sizeof discard);
        while (got > 0 || (got < 0 && errno == EINTR));
        stop_daemon(control, pipe_dir);
    }
    hcp_mps_remove_dirs(pipe_dir, log_dir, base_dir);
    _exit(0);
}
