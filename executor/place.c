/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"
#include "kernels/cuda.h"
#include "profiler/device.h"
#include "profiler/limiter.h"
#include "profiler/worker.h"

static void cpu_slug(char slug[64], struct ring_peer *peer)
{
    int64_t llc, memory;
    int cores;
    char name[96], uuid[64];

    hcp_cpu_describe(name, uuid, &llc, &memory, &cores);
    hcp_device_slug(name, slug, 64);
    if (!peer)
        return;
    memcpy(peer->name, name, sizeof name);
    memcpy(peer->uuid, uuid, sizeof uuid);
    peer->sm_count = cores;
    peer->sm_seen = 1; /* the kernel's one thread */
}

int ring_place_cpu_only(const struct ring_plans *plans)
{
    const hcp_plan *plan = &plans->plans[0];
    char slug[64];

    cpu_slug(slug, NULL);
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (strcmp(plan->ranks[r].device, slug) != 0)
            return 0;
    return 1;
}

int ring_gpus_list(struct ring_gpus *out, struct hcp_err *err)
{
    *out = (struct ring_gpus){0};
#ifdef HAVE_CUDA
    return hcp_worker_list(&out->infos, &out->n, out->reason, err);
#else
    (void)err;
    snprintf(out->reason, sizeof out->reason, "this build has no CUDA");
    return HCP_OK;
#endif
}

/* "nvidia-h200, nvidia-h200" or why there is none. */
static void list_gpus(const struct ring_gpus *gpus, char *text, size_t size)
{
    size_t n = 0;

    snprintf(text, size, "no GPU: %.200s", gpus->reason);
    for (size_t i = 0; i < gpus->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "",
                              gpus->infos[i].slug);
}

/* What each of the host's ranks has to say, of one size, into a new array; all of them
 * must meet in there. */
static int gather_on_host(const struct ring_comm *comm, const void *mine, int bytes,
                          void **out, struct hcp_err *err)
{
    void *all = calloc((size_t)comm->host_size, (size_t)bytes);
    int ready = 0;

    *out = NULL;
    if (MPI_Allreduce(&(int){all != NULL}, &ready, 1, MPI_INT, MPI_MIN, comm->host) !=
            MPI_SUCCESS ||
        !ready) {
        free(all);
        return hcp_fail(err, HCP_FAILED, "out of memory on a rank of this host");
    }
    if (MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm->host) !=
        MPI_SUCCESS) {
        free(all);
        return hcp_fail(err, HCP_FAILED, "MPI cannot gather the host's devices");
    }
    *out = all;
    return HCP_OK;
}

/* Number of the host's ranks before this one that want the same device. */
static int before_me(const struct ring_comm *comm, const char device[64], int *out,
                     struct hcp_err *err)
{
    void *all;
    int rc = gather_on_host(comm, device, 64, &all, err);

    *out = 0;
    for (int i = 0; rc == HCP_OK && i < comm->host_rank; i++)
        *out += strcmp((const char *)all + 64 * i, device) == 0;
    free(all);
    return rc;
}

/* Which device: *gpu -1 the CPU. Ranks of one kind of GPU take them in turn. */
static int choose(const struct ring_gpus *gpus, const char *device, int turn,
                  int any_device, const char *host, int *gpu, struct hcp_err *err)
{
    char slug[64], list[400];
    size_t same = 0, n = 0;

    *gpu = -1;
    cpu_slug(slug, NULL);
    if (strcmp(device, slug) == 0)
        return HCP_OK;
    for (size_t i = 0; i < gpus->n; i++)
        same += strcmp(gpus->infos[i].slug, device) == 0;
    if (same == 0 && any_device) {
        *gpu = gpus->n ? (int)((size_t)turn % gpus->n) : -1;
        return HCP_OK;
    }
    for (size_t i = 0; same && i < gpus->n; i++)
        if (strcmp(gpus->infos[i].slug, device) == 0 && n++ == (size_t)turn % same)
            *gpu = (int)i;
    if (*gpu >= 0)
        return HCP_OK;
    if (strncmp(device, "spec:", 5) == 0)
        return hcp_fail(err, HCP_FAILED,
                        "the plan gives this rank '%s', a GPU by its data sheet, which "
                        "no machine says it has; profile the machine ('hcp-profile run') "
                        "and plan with its device, or run the plan on any with "
                        "--any-device",
                        device);
    list_gpus(gpus, list, sizeof list);
    return hcp_fail(err, HCP_FAILED,
                    "the plan gives this rank a '%s'; %s has the CPU '%s' and %s; start "
                    "the rank on its own kind of machine, or run the plan on any with "
                    "--any-device",
                    device, host, slug, list);
}

#ifdef HAVE_CUDA
static int open_gpu(const struct hcp_device_info *gpu, int index, int sharing,
                    const char *limit, int32_t channels, struct ring_place *p,
                    struct hcp_err *err)
{
    hcp_cuda_info cuda = {.size = sizeof cuda};
    hcp_green *green = NULL; /* to the end of the process */
    char kind[8] = "", why[700];
    int32_t value = 100;
    int rc = hcp_parse_limit(limit, kind, &value, err), mps = strcmp(kind, "mps") == 0;

    if (rc)
        return rc;
    rc = hcp_transport_prepare(sharing, err);
    if (!rc)
        rc = hcp_transport_pin_channels(channels, err);
    if (rc)
        return rc;
    p->device.size = sizeof p->device;
    /* An MPS client sees the one device that its environment names. */
    if (hcp_cuda_device(mps ? 0 : index, &p->device, &cuda, why, sizeof why))
        return hcp_fail(err, HCP_FAILED, "%s", why);
    if (*kind && !mps) {
        rc = hcp_green_limit(index, value, cuda.mps_enabled, &green, err);
        p->device.sm_count = cuda.sm_count = value;
    } else if (mps)
        rc = hcp_mps_prove(value, cuda.mps_enabled, cuda.sm_count, gpu->sm_count,
                           p->pipe_dir, p->log_dir, err);
    else if (cuda.mps_enabled)
        rc = hcp_fail(err, HCP_FAILED,
                      "the plan gives this rank the whole device, but the process is a "
                      "client of an MPS daemon; unset CUDA_MPS_PIPE_DIRECTORY");
    if (rc)
        return rc;
    p->runtime = hcp_runtime_cuda();
    if (p->runtime->select(p->device.ordinal))
        return hcp_fail(err, HCP_FAILED, "%s", p->runtime->last_error());
    memcpy(p->self.name, gpu->name, sizeof p->self.name);
    memcpy(p->self.uuid, gpu->uuid, sizeof p->self.uuid);
    memcpy(p->self.driver, gpu->driver, sizeof p->self.driver);
    memcpy(p->self.cuda_version, gpu->cuda_version, sizeof gpu->cuda_version);
    memcpy(p->self.device, gpu->slug, sizeof p->self.device);
    p->self.is_cuda = 1;
    p->self.sm_count = gpu->sm_count;
    p->self.sm_seen = cuda.sm_count;
    return HCP_OK;
}
#endif

static void open_cpu(struct ring_place *p)
{
    p->runtime = hcp_runtime_cpu();
    p->device =
        (hcp_device_ref){.size = sizeof p->device, .kind = HCP_DEVICE_CPU, .sm_count = 1};
    cpu_slug(p->self.device, &p->self);
}

/* How many of the host's ranks are on this GPU. */
static int sharing_of(const struct ring_comm *comm, int gpu, int *out,
                      struct hcp_err *err)
{
    void *all;
    int rc = gather_on_host(comm, &gpu, sizeof gpu, &all, err);

    *out = 0;
    for (int i = 0; rc == HCP_OK && i < comm->host_size; i++)
        *out += ((const int *)all)[i] == gpu;
    free(all);
    return rc;
}

/* gpu < 0: the CPU. */
static int limit_fits(const char *limit, int gpu)
{
    if (gpu < 0)
        return strncmp(limit, "cpu:", 4) == 0;
    return strncmp(limit, "mps:", 4) == 0 || strncmp(limit, "green:", 6) == 0;
}

/* A limit that the device which stands in for the plan's does not know is left out. */
static const char *limit_here(const hcp_plan_rank *rank, int gpu, int any_device)
{
    return any_device && !limit_fits(rank->limit, gpu) ? "" : rank->limit;
}

int ring_place_open(struct ring_comm *comm, ring_warden *warden,
                    const struct ring_gpus *gpus, const hcp_plan_rank *rank,
                    const struct ring_options *o, struct ring_place *out,
                    struct hcp_err *err)
{
    struct ring_place p = {0};
    char why[700];
    const char *limit = rank->limit, *uuid = "";
    int gpu = -1, turn = 0, sharing = 1, rc = before_me(comm, rank->device, &turn, err);

    snprintf(p.self.host, sizeof p.self.host, "%s", comm->host_name);
#ifdef HAVE_NCCL
    p.self.has_nccl = 1;
#endif
    if (rc == HCP_OK)
        rc = choose(gpus, rank->device, turn, o->any_device, comm->host_name, &gpu, err);
    /* Whatever has happened to a rank, the others must not wait for it. */
    if (rc)
        sharing_of(comm, -1, &sharing, NULL);
    else
        rc = sharing_of(comm, gpu, &sharing, err);
    if (rc == HCP_OK) {
        limit = limit_here(rank, gpu, o->any_device);
        snprintf(p.self.limit, sizeof p.self.limit, "%s", limit);
        if (gpu >= 0)
            uuid = gpus->infos[gpu].uuid;
        if (*limit && !limit_fits(limit, gpu))
            rc = hcp_fail(err, HCP_FAILED, "the limit '%s' is not one of a %s", limit,
                          gpu >= 0 ? "GPU" : "CPU");
    }
    /* All of the host's ranks must meet in there, whatever has happened to one. */
    if (rc)
        ring_limit_apply(comm, warden, "", "", p.pipe_dir, p.log_dir, NULL);
    else
        rc = ring_limit_apply(comm, warden, limit, uuid, p.pipe_dir, p.log_dir, err);
    if (rc)
        return rc;
#ifdef HAVE_CUDA
    if (gpu >= 0)
        rc = open_gpu(&gpus->infos[gpu], gpu, sharing, limit, o->channels, &p, err);
    else
#endif
        open_cpu(&p);
    if (rc)
        return rc;
    if (hcp_registry_open(&p.device, o->plugin, &p.registry, why, sizeof why))
        return hcp_fail(err, HCP_FAILED, "%s", why);
    *out = p;
    return HCP_OK;
}

void ring_place_close(struct ring_place *place)
{
    hcp_registry_close(place->registry);
    place->registry = NULL;
}
