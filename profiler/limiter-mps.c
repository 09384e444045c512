/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon lives in directories of our own making, so that no other daemon is
 * ever reached or changed, and its guard outlives us: it waits for the end of a
 * pipe that only this process holds, which the kernel closes on any kind of death.
 */
#include "config.h"
#include "profiler/limiter.h"
#include "profiler/mps-internal.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "db/parse.h"

struct hcp_mps {
    char base_dir[80], pipe_dir[108], log_dir[108];
    double default_percentage;
    pid_t guard;
    int fd; /* its end tells the guard that we are gone */
};

int hcp_mps_find(char *path, size_t size, struct hcp_err *err)
{
    const char *given = getenv("HCP_MPS_CONTROL");
    if (given && *given) {
        if (access(given, X_OK) != 0 || (size_t)snprintf(path, size, "%s", given) >= size)
            return hcp_fail(err, HCP_FAILED, "MPS: HCP_MPS_CONTROL=%s: %s", given,
                            strerror(errno));
        return HCP_OK;
    }
    char dirs[4096];
    const char *env = getenv("PATH");
    snprintf(dirs, sizeof dirs, "%s:/usr/local/nvidia/bin:/usr/bin:/usr/local/cuda/bin",
             env ? env : "");
    char *rest = NULL;
    for (char *dir = strtok_r(dirs, ":", &rest); dir; dir = strtok_r(NULL, ":", &rest)) {
        struct stat st;
        int n = snprintf(path, size, "%s/nvidia-cuda-mps-control", dir);
        if (n > 0 && (size_t)n < size && access(path, X_OK) == 0 &&
            stat(path, &st) == 0 && S_ISREG(st.st_mode))
            return HCP_OK;
    }
    return hcp_fail(err, HCP_FAILED,
                    "MPS: nvidia-cuda-mps-control not found in PATH or "
                    "/usr/local/nvidia/bin; it comes "
                    "with the NVIDIA driver (in containers: mount the driver's "
                    "utilities), or name it "
                    "in HCP_MPS_CONTROL");
}

/* Two directories in one: the daemon fills the first with names of its own ("log"
 * is one of them). */
static int make_dirs(struct hcp_mps *m, struct hcp_err *err)
{
    const char *tmp = getenv("TMPDIR");
    /* The daemon makes Unix sockets in it: their paths hold 107 characters. */
    if (!tmp || tmp[0] != '/' || strlen(tmp) > 48)
        tmp = "/tmp";
    snprintf(m->base_dir, sizeof m->base_dir, "%s/hcp-mps-XXXXXX", tmp);
    if (!mkdtemp(m->base_dir))
        return hcp_fail(err, HCP_FAILED, "MPS: cannot make a directory %s: %s",
                        m->base_dir, strerror(errno));
    snprintf(m->pipe_dir, sizeof m->pipe_dir, "%s/pipe", m->base_dir);
    snprintf(m->log_dir, sizeof m->log_dir, "%s/log", m->base_dir);
    if (mkdir(m->pipe_dir, 0700) == 0 && mkdir(m->log_dir, 0700) == 0)
        return HCP_OK;
    hcp_fail(err, HCP_FAILED, "MPS: cannot make directories in %s: %s", m->base_dir,
             strerror(errno));
    hcp_mps_remove_dirs(m->pipe_dir, m->log_dir, m->base_dir);
    return HCP_FAILED;
}

/* The guard's one line: "ok PERCENTAGE" or "error TEXT". */
static int read_verdict(struct hcp_mps *m, struct hcp_err *err)
{
    char text[1100] = "";
    size_t n = 0;
    ssize_t got;
    while (n + 1 < sizeof text && !memchr(text, '\n', n)) {
        got = read(m->fd, text + n, sizeof text - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, "ok ", 3) == 0 &&
        hcp_parse_double(text + 3, &m->default_percentage, err) == 0)
        return HCP_OK;
    if (strncmp(text, "error ", 6) == 0)
        return hcp_fail(err, HCP_FAILED, "%s", text + 6);
    return hcp_fail(err, HCP_FAILED,
                    "MPS: the daemon's guard process ended without an answer");
}

int hcp_mps_start(hcp_mps **out, struct hcp_err *err)
{
    char control[1024];
    int fds[2], rc = hcp_mps_find(control, sizeof control, err);
    if (rc != HCP_OK)
        return rc;
    struct hcp_mps *m = calloc(1, sizeof *m);
    if (!m)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    rc = make_dirs(m, err);
    if (rc != HCP_OK)
        goto fail_alloc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        rc = hcp_fail(err, HCP_FAILED, "MPS: socketpair: %s", strerror(errno));
        goto fail_dirs;
    }
    m->guard = fork();
    if (m->guard < 0) {
        rc = hcp_fail(err, HCP_FAILED, "MPS: fork: %s", strerror(errno));
        close(fds[0]);
        close(fds[1]);
        goto fail_dirs;
    }
    if (m->guard == 0)
        hcp_mps_guard(control, m->pipe_dir, m->log_dir, m->base_dir, fds[1]);
    close(fds[1]);
    m->fd = fds[0];
    rc = read_verdict(m, err);
    if (rc != HCP_OK) {
        hcp_mps_stop(m); /* the guard has cleaned up */
        return rc;
    }
    *out = m;
    return HCP_OK;
fail_dirs:
    hcp_mps_remove_dirs(m->pipe_dir, m->log_dir, m->base_dir);
fail_alloc:
    free(m);
    return rc;
}

void hcp_mps_stop(hcp_mps *mps)
{
    if (!mps)
        return;
    close(mps->fd);
    while (waitpid(mps->guard, NULL, 0) < 0 && errno == EINTR)
        ;
    free(mps);
}

const char *hcp_mps_pipe_dir(const hcp_mps *mps)
{
    return mps->pipe_dir;
}

const char *hcp_mps_log_dir(const hcp_mps *mps)
{
    return mps->log_dir;
}

double hcp_mps_default_percentage(const hcp_mps *mps)
{
    return mps->default_percentage;
}

int hcp_mps_client_env(const char *pipe_dir, const char *log_dir, int percent,
                       const char *device_uuid, struct hcp_err *err)
{
    char text[16];
    snprintf(text, sizeof text, "%d", percent);
    if (setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_dir, 1) != 0 ||
        setenv("CUDA_MPS_LOG_DIRECTORY", log_dir, 1) != 0 ||
        setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", text, 1) != 0 ||
        (*device_uuid && setenv("CUDA_VISIBLE_DEVICES", device_uuid, 1) != 0))
        return hcp_fail(err, HCP_FAILED, "cannot set the environment: %s",
                        strerror(errno));
    unsetenv("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING");
    return HCP_OK;
}

int hcp_mps_terminate_client(const char *pipe_dir, const char *log_dir, pid_t client)
{
    enum { PATIENCE_S = 5 };
    char control[1024], servers[512], output[256], command[64], *rest;
    struct hcp_err ignored;
    int rc = HCP_FAILED;
    if (hcp_mps_find(control, sizeof control, &ignored) != HCP_OK ||
        hcp_mps_control(control, NULL, "get_server_list\n", pipe_dir, log_dir, servers,
                        sizeof servers, PATIENCE_S) != 0)
        return HCP_FAILED;
    for (char *server = strtok_r(servers, " ", &rest); server;
         server = strtok_r(NULL, " ", &rest)) {
        if (atol(server) <= 0)
            continue;
        snprintf(command, sizeof command, "terminate_client %ld %ld\n", atol(server),
                 (long)client);
        if (hcp_mps_control(control, NULL, command, pipe_dir, log_dir, output,
                            sizeof output, PATIENCE_S) == 0)
            rc = HCP_OK;
    }
    return rc;
}

int hcp_mps_prove(int percent, int mps_enabled, int sm_seen, int sm_count,
                  const char *pipe_dir, const char *log_dir, struct hcp_err *err)
{
    if (mps_enabled != 1)
        return hcp_fail(err, HCP_FAILED,
                        "limit mps:%d not proven: this process is no client of the MPS "
                        "daemon and runs "
                        "unlimited (pipe directory %s, log directory %s; in a container "
                        "both, and the "
                        "IPC namespace, must be shared)",
                        percent, pipe_dir, log_dir);
    double exact = percent / 100.0 * sm_count;
    /* A percentage rounds down to what the hardware can set aside: whole TPCs. */
    int fits = percent == 100 ? sm_seen == sm_count
                              : sm_seen > 0 && sm_seen < exact + 1 && sm_seen > exact - 8;
    if (fits)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "limit mps:%d not proven: the client sees %d of %d SMs, expected "
                    "about %.0f (pipe "
                    "directory %s, log directory %s)",
                    percent, sm_seen, sm_count, exact, pipe_dir, log_dir);
}
