/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/worker.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/registry.h"
#include "profiler/worker-internal.h"

enum { SOCKET_FD = 3 };

static int read_all(void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        ssize_t n = read(SOCKET_FD, at, size);
        if (n < 0 && errno == EINTR && !hcp_device_cancel)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

static int write_all(const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t n = write(SOCKET_FD, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

static void on_term(int signal_number)
{
    (void)signal_number;
    hcp_device_cancel = 1;
}

static int serve_list(void)
{
    struct hcp_worker_reply reply = {0};
    struct hcp_device_info *infos = NULL;
    size_t n = 0;
    hcp_cuda_list(&infos, &n, reply.text, sizeof reply.text);
    reply.n = (int32_t)n;
    int bad = write_all(&reply, sizeof reply) || write_all(infos, n * sizeof *infos);
    free(infos);
    return bad;
}

/* Appends what the registry of one device offers. */
static void add_kernels(const hcp_device_ref *device, int gpu,
                        struct hcp_kernel_info **list, size_t *n)
{
    hcp_registry *registry = NULL;
    char why[300];
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 1024,
                          .kv_len = 1024,
                          .heads = 32,
                          .kv_heads = 8,
                          .head_dim = 128,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_BF16,
                          .scale = 0.088};
    hcp_problem_set_dense_strides(&p);
    if (hcp_registry_open(device, NULL, &registry, why, sizeof why) != HCP_RC_OK)
        return;
    size_t count = hcp_registry_count(registry);
    struct hcp_kernel_info *more = realloc(*list, (*n + count + 1) * sizeof *more);
    for (size_t i = 0; more && i < count; i++) {
        const hcp_provider *provider = hcp_registry_ranked(registry, &p, i);
        hcp_attn_support support = {.size = sizeof support};
        struct hcp_kernel_info *k = &more[(*n)++];
        int rc = provider->query(device, &p, &support);
        *k = (struct hcp_kernel_info){.gpu = gpu,
                                      .usable = rc == HCP_RC_OK && support.supported};
        snprintf(k->name, sizeof k->name, "%s", provider->name);
        snprintf(k->version, sizeof k->version, "%s", provider->version());
        if (!k->usable)
            snprintf(k->reason, sizeof k->reason, "%s",
                     *support.reason ? support.reason : hcp_rc_text(rc));
    }
    if (more)
        *list = more;
    hcp_registry_close(registry);
}

static int serve_kernels(void)
{
    struct hcp_worker_reply reply = {0};
    struct hcp_device_info *gpus = NULL;
    struct hcp_kernel_info *kernels = NULL;
    size_t n_gpus = 0, n = 0;
    hcp_device_ref cpu = {.size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};
    hcp_cuda_list(&gpus, &n_gpus, reply.text, sizeof reply.text);
    for (size_t i = 0; i < n_gpus; i++) {
        hcp_device_ref gpu = {.size = sizeof gpu,
                              .kind = HCP_DEVICE_CUDA,
                              .ordinal = (int32_t)i,
                              .cc_major = gpus[i].cc_major,
                              .cc_minor = gpus[i].cc_minor,
                              .sm_count = gpus[i].sm_count};
        add_kernels(&gpu, (int)i, &kernels, &n);
    }
    add_kernels(&cpu, -1, &kernels, &n);
    reply.n = (int32_t)n;
    int bad = write_all(&reply, sizeof reply) || write_all(kernels, n * sizeof *kernels);
    free(gpus);
    free(kernels);
    return bad;
}

static int serve_cell(hcp_device *device, const struct hcp_cell_request *cell)
{
    struct hcp_worker_reply reply = {0};
    struct hcp_err err = {0};
    double *samples = NULL;
    hcp_cell_facts_init(&reply.u.facts);
    reply.rc = device->ops->prepare(device, cell, &err);
    if (reply.rc == HCP_OK)
        reply.rc = device->ops->time(device, cell, &reply.u.facts, &samples, &err);
    reply.lost = device->lost;
    if (reply.rc == HCP_OK)
        reply.n = reply.u.facts.n;
    else
        memcpy(reply.text, err.text, sizeof reply.text);
    int bad = write_all(&reply, sizeof reply) ||
              write_all(samples, (size_t)reply.n * sizeof *samples);
    free(samples);
    return bad;
}

int hcp_worker_main(void)
{
    struct hcp_worker_request request;
    hcp_device *device = NULL;
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the parent's: it ends us in order */
    signal(SIGPIPE, SIG_IGN);

    int bad = 0;
    while (!bad && !hcp_device_cancel && read_all(&request, sizeof request) == 0) {
        struct hcp_worker_reply reply = {0};
        struct hcp_err err = {0};
        if (request.op == HCP_WORKER_LIST || request.op == HCP_WORKER_KERNELS) {
            bad = request.op == HCP_WORKER_LIST ? serve_list() : serve_kernels();
            continue;
        }
        if (request.op == HCP_WORKER_CELL) {
            bad = !device || serve_cell(device, &request.u.cell);
            continue;
        }
        if (request.op == HCP_WORKER_OPEN) {
            const struct hcp_device_ops *ops = NULL;
            reply.rc = hcp_device_ops_of(request.u.config.spec, &ops, &err);
            if (reply.rc == HCP_OK)
                reply.rc = ops->open(&request.u.config, &device, &err);
            if (reply.rc == HCP_OK)
                reply.u.info = device->info;
        } else if (device) {
            reply.rc = device->ops->check(device, reply.u.result, &err);
            reply.lost = device->lost;
        }
        if (reply.rc != HCP_OK)
            memcpy(reply.text, err.text, sizeof reply.text);
        bad = write_all(&reply, sizeof reply);
    }
    if (device)
        device->ops->close(device);
    return 0;
}
