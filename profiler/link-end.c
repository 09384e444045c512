/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "db/parse.h"
#include "kernels/cuda.h"
#include "profiler/device.h"
#include "profiler/limiter.h"
#include "profiler/link-rank.h"

/* Percentage or SMs of a limit of the kind, 0 for another. */
static int value_of(const struct hcp_link_end *end, const char *kind)
{
    char is[8] = "";
    int32_t value = 0;
    if (hcp_parse_limit(end->limit, is, &value, NULL) != HCP_OK || strcmp(is, kind) != 0)
        return 0;
    return (int)value;
}

/* ---- the keeper ------------------------------------------------------------- */

/* Answers each number: the first one that is not 0 starts the duty cycle. The end of the
 * socket is the end of the rank, or of its limit. */
static _Noreturn void keeper_main(pid_t rank, int fd)
{
    hcp_throttle *throttle = NULL;
    int percent, rc = 0;
    prctl(PR_SET_NAME, "hcp-link-keeper");
    setsid(); /* what a launcher or a terminal sends to all is not for us */
    signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN), signal(SIGPIPE, SIG_IGN);
    if (fd != 3)
        dup2(fd, 3);
    close_range(4, ~0u, 0);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0), dup2(null, 1), dup2(null, 2);
    if (null > 3)
        close(null);
    while (recv(3, &percent, sizeof percent, 0) == sizeof percent) {
        if (percent > 0 && !throttle)
            rc = hcp_throttle_start(rank, percent, &throttle, NULL);
        if (send(3, &rc, sizeof rc, MSG_NOSIGNAL) != sizeof rc)
            break;
    }
    hcp_throttle_stop(throttle);
    _exit(0);
}

static int keeper_open(struct link_keeper *keeper, struct hcp_err *err)
{
    int fds[2];
    pid_t rank = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return hcp_fail(err, HCP_FAILED, "socketpair: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        keeper_main(rank, fds[1]);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return hcp_fail(err, HCP_FAILED, "fork: %s", strerror(errno));
    }
    keeper->fd = fds[0];
    return HCP_OK;
}

/* A number there and one back; -1: there is no keeper any more. */
static int keeper_ask(const struct link_keeper *keeper, int number)
{
    int reply;
    ssize_t got;
    if (send(keeper->fd, &number, sizeof number, MSG_NOSIGNAL) != sizeof number)
        return -1;
    do
        got = recv(keeper->fd, &reply, sizeof reply, 0);
    while (got < 0 && errno == EINTR);
    return got == sizeof reply ? reply : -1;
}

int link_keeper_start(struct link_keeper *keeper, const struct hcp_link_end *end,
                      struct hcp_err *err)
{
    if (keeper->fd < 0 || keeper_ask(keeper, value_of(end, "cpu")) == 0)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED, "limit %s: its controller did not start",
                    end->limit);
}

int link_keeper_check(const struct link_keeper *keeper, struct hcp_err *err)
{
    if (keeper->fd < 0 || keeper_ask(keeper, 0) == 0)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "the controller of the cpu: limit has ended; measure again");
}

/* ---- the device ------------------------------------------------------------- */

int link_end_begin(const struct hcp_link_end *end, const char *pipe_dir,
                   const char *log_dir, int32_t channels, struct link_keeper *keeper,
                   struct hcp_err *err)
{
    int mps = value_of(end, "mps"), cpu = value_of(end, "cpu");
    keeper->fd = -1;
    if (cpu > 0 && cpu < 100)
        return keeper_open(keeper, err);
    if (strcmp(end->spec, "cpu") == 0)
        return HCP_OK;
    int rc = hcp_transport_prepare(1, err);
    if (rc == HCP_OK)
        rc = hcp_transport_pin_channels(channels, err);
    if (rc != HCP_OK)
        return rc;
    if (mps > 0)
        return hcp_mps_client_env(pipe_dir, log_dir, mps, end->uuid, err);
    /* Not through somebody else's daemon: a whole device must be whole. */
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1) != 0 ||
        (*end->uuid && setenv("CUDA_VISIBLE_DEVICES", end->uuid, 1) != 0))
        return hcp_fail(err, HCP_FAILED, "cannot set the environment: %s",
                        strerror(errno));
    return HCP_OK;
}

static int open_cpu(struct link_identity *out, const hcp_runtime **runtime)
{
    int64_t llc, memory;
    int cores;
    hcp_cpu_describe(out->name, out->uuid, &llc, &memory, &cores);
    hcp_device_slug(out->name, out->device, sizeof out->device);
    out->sm_count = cores;
    out->sm_seen = 1;
    *runtime = hcp_runtime_cpu();
    return HCP_OK;
}

#ifdef HAVE_CUDA
static int open_cuda(const struct hcp_link_end *end, const char *pipe_dir,
                     const char *log_dir, const hcp_runtime **runtime, int32_t *ordinal,
                     struct link_identity *out, struct hcp_err *err)
{
    int64_t number = 0;
    const char *at = strchr(end->spec, ':');
    hcp_device_ref ref = {.size = sizeof ref};
    hcp_cuda_info cuda = {.size = sizeof cuda};
    char why[700] = "";
    if (at && !*end->uuid && hcp_parse_int(at + 1, "cuda:N", 0, 1024, &number, err))
        return HCP_USAGE;
    if (hcp_cuda_device((int)number, &ref, &cuda, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    snprintf(out->name, sizeof out->name, "%.95s", cuda.name);
    snprintf(out->uuid, sizeof out->uuid, "%s", cuda.uuid);
    hcp_device_slug(cuda.name, out->device, sizeof out->device);
    snprintf(out->way.uuid, sizeof out->way.uuid, "%s", cuda.uuid);
    snprintf(out->way.pci, sizeof out->way.pci, "%s", cuda.pci_bus_id);
    out->sm_seen = cuda.sm_count;
    out->sm_count = end->sm_count > 0 ? end->sm_count : cuda.sm_count;
    int mps = value_of(end, "mps"), green = value_of(end, "green"), rc = HCP_OK;
    hcp_green *context = NULL; /* to the end of the process */
    if (green > 0) {
        rc = hcp_green_limit((int)number, green, cuda.mps_enabled, &context, err);
        out->sm_seen = green;
    } else if (mps > 0)
        rc = hcp_mps_prove(mps, cuda.mps_enabled, cuda.sm_count, out->sm_count, pipe_dir,
                           log_dir, err);
    else if (cuda.mps_enabled)
        rc = hcp_fail(err, HCP_FAILED,
                      "the whole device is asked for, but this process is a client of an "
                      "MPS daemon");
    *runtime = hcp_runtime_cuda();
    *ordinal = (int32_t)number;
    if (rc == HCP_OK && (*runtime)->select((int)number) != HCP_RC_OK)
        rc = hcp_fail(err, HCP_FAILED, "%s", (*runtime)->last_error());
    return rc;
}
#endif

int link_end_open(const struct hcp_link_end *end, const char *pipe_dir,
                  const char *log_dir, const hcp_runtime **runtime, int32_t *ordinal,
                  struct link_identity *out, struct hcp_err *err)
{
    *ordinal = 0;
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        strcpy(out->host, "unknown");
    memcpy(out->way.host, out->host, sizeof out->way.host);
    int rc = HCP_OK;
    if (strcmp(end->spec, "cpu") == 0) {
        rc = open_cpu(out, runtime);
    } else {
#ifdef HAVE_CUDA
        rc = open_cuda(end, pipe_dir, log_dir, runtime, ordinal, out, err);
#else
        (void)pipe_dir, (void)log_dir;
        rc = hcp_fail(
            err, HCP_FAILED,
            "%s: hcp-link was built without CUDA; configure with --with-cuda=DIR",
            end->spec);
#endif
    }
    if (rc == HCP_OK)
        hcp_topology_look(&out->way);
    return rc;
}
