/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "executor/comm.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "db/parse.h"
#include "profiler/limiter.h"
#include "profiler/mpirun.h"

static int fail_mpi(struct hcp_err *err, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return hcp_fail(err, HCP_FAILED, "%s: %s", call, text);
}

/* Numbers of c->world, and the ranks of this host. */
static int count(struct ring_comm *c, struct hcp_err *err)
{
    int rc;
    MPI_Comm_rank(c->world, &c->rank);
    MPI_Comm_size(c->world, &c->size);
    rc = MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL,
                             &c->host);
    if (rc != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Comm_split_type", rc);
    MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(c->host, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c->host, &c->host_rank);
    MPI_Comm_size(c->host, &c->host_size);
    return HCP_OK;
}

int ring_comm_open(int *argc, char ***argv, struct ring_comm *out, struct hcp_err *err)
{
    static const char *const levels[] = {"single", "funneled"};
    struct ring_comm c = {.world = MPI_COMM_NULL, .host = MPI_COMM_NULL};
    hcp_mpi_prepare();
    int rc = MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &c.thread_level);
    if (rc != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Init_thread", rc);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (c.thread_level < MPI_THREAD_SERIALIZED)
        return hcp_fail(err, HCP_FAILED,
                        "MPI gives thread level %s, but transfers need a thread of their "
                        "own; use an MPI library built with thread support",
                        levels[c.thread_level == MPI_THREAD_FUNNELED]);
    rc = MPI_Comm_dup(MPI_COMM_WORLD, &c.world);
    if (rc != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Comm_dup", rc);
    if (count(&c, err) != HCP_OK)
        return HCP_FAILED;
    if (gethostname(c.host_name, sizeof c.host_name - 1) != 0 || !*c.host_name)
        strcpy(c.host_name, "?");
    *out = c;
    return HCP_OK;
}

int ring_comm_reorder(struct ring_comm *c, int place, struct hcp_err *err)
{
    MPI_Comm world;
    int rc = MPI_Comm_split(c->world, 0, place, &world);
    if (rc != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Comm_split", rc);
    MPI_Comm_free(&c->host);
    MPI_Comm_free(&c->world);
    c->world = world;
    return count(c, err);
}

void ring_comm_close(struct ring_comm *c)
{
    MPI_Barrier(c->host);
    MPI_Comm_free(&c->host);
    MPI_Comm_free(&c->world);
    MPI_Finalize();
}

/* What the rank that failed sends to the others. */
struct failure {
    int code;
    char text[1024];
};

int ring_all_ok(const struct ring_comm *c, int rc, struct hcp_err *err)
{
    int mine = rc == HCP_OK ? c->size : c->rank, first = c->size;
    int mpi = MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, c->world);
    if (mpi != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Allreduce", mpi);
    if (first == c->size)
        return HCP_OK;
    struct failure f = {.code = rc};
    if (first == c->rank)
        snprintf(f.text, sizeof f.text, "rank %d (%s): %.900s", c->rank, c->host_name,
                 err && *err->text ? err->text : "failed without a reason");
    mpi = MPI_Bcast(&f, (int)sizeof f, MPI_BYTE, first, c->world);
    if (mpi != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Bcast", mpi);
    return hcp_fail(err, f.code, "%s", f.text);
}

/* The daemon of the host's first rank, for the others. */
struct mps_offer {
    int rc;
    char pipe_dir[108], log_dir[108], text[1024];
};

/* Collective over the host; every rank of it gets the same answer. */
static int share_daemon(const struct ring_comm *c, ring_warden *w,
                        struct mps_offer *offer, struct hcp_err *err)
{
    memset(offer, 0, sizeof *offer);
    if (c->host_rank == 0) {
        struct hcp_err why = {0};
        offer->rc = ring_warden_mps(w, offer->pipe_dir, offer->log_dir, &why);
        memcpy(offer->text, why.text, sizeof offer->text);
    }
    int mpi = MPI_Bcast(offer, (int)sizeof *offer, MPI_BYTE, 0, c->host);
    return mpi == MPI_SUCCESS ? HCP_OK : fail_mpi(err, "MPI_Bcast", mpi);
}

enum { WANTS_MPS = 1, WANTS_GREEN = 2 };

int ring_limit_apply(struct ring_comm *c, ring_warden *w, const char *limit,
                     const char *device_uuid, char pipe_dir[108], char log_dir[108],
                     struct hcp_err *err)
{
    char kind[8] = "";
    int32_t value = 0;
    *pipe_dir = *log_dir = '\0';
    int rc = hcp_parse_limit(limit, kind, &value, err);
    int want = rc != HCP_OK                 ? 0
               : strcmp(kind, "mps") == 0   ? WANTS_MPS
               : strcmp(kind, "green") == 0 ? WANTS_GREEN
                                            : 0;
    int any = 0, mpi = MPI_Allreduce(&want, &any, 1, MPI_INT, MPI_BOR, c->host);
    if (mpi != MPI_SUCCESS)
        return fail_mpi(err, "MPI_Allreduce", mpi);
    if (any == (WANTS_MPS | WANTS_GREEN))
        return want == 0 ? rc
                         : hcp_fail(err, HCP_FAILED,
                                    "limit %s: another rank of this host has a limit "
                                    "%s; one limiter a run: plan with either for all",
                                    limit, want == WANTS_MPS ? "green:SMS" : "mps:PCT");
    struct mps_offer offer;
    if (any & WANTS_MPS) {
        int shared = share_daemon(c, w, &offer, err);
        if (shared != HCP_OK)
            return shared;
    }
    if (rc != HCP_OK)
        return rc;
    if (want == WANTS_MPS) {
        if (offer.rc != HCP_OK)
            return hcp_fail(err, offer.rc, "%s", offer.text);
        memcpy(pipe_dir, offer.pipe_dir, sizeof offer.pipe_dir);
        memcpy(log_dir, offer.log_dir, sizeof offer.log_dir);
        return hcp_mps_client_env(pipe_dir, log_dir, value, device_uuid, err);
    }
    if (strcmp(kind, "cpu") != 0 || value == 100)
        return HCP_OK;
    /* A shell would take the first stop for a suspended job and show its prompt. */
    if (!ring_launched())
        return hcp_fail(err, HCP_FAILED,
                        "limit %s: only under a launcher, a shell would take it for "
                        "suspended; use hcp-ring --local %d",
                        limit, c->size);
    return ring_warden_throttle(w, value, err);
}
