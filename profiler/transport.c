/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/transport.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "profiler/transport-internal.h"

double hcp_transport_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int hcp_transport_mpi_check(int rc, const char *doing, int name, struct hcp_err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    if (rc == MPI_SUCCESS)
        return HCP_OK;
    MPI_Error_string(rc, text, &length);
    return hcp_fail(err, HCP_FAILED, "MPI: %s rank %d: %s", doing, name, text);
}

int hcp_transport_device_check(hcp_transport *t, int rc, const char *what,
                               struct hcp_err *err)
{
    const char *why;
    if (rc == HCP_RC_OK)
        return HCP_OK;
    t->device_failed = 1;
    why = t->runtime->last_error();
    return hcp_fail(err, HCP_FAILED, "%s transport: %s: %s", t->ops->name, what,
                    *why                     ? why
                    : rc == HCP_RC_NO_MEMORY ? "out of memory"
                                             : "failed");
}

int hcp_transport_agree(hcp_transport *t, int rc, struct hcp_err *err)
{
    int first = rc == HCP_OK ? t->size : t->rank, lowest = t->size, mpi;
    char text[sizeof err->text] = "";
    if (rc != HCP_OK && err)
        memcpy(text, err->text, sizeof text);
    mpi = MPI_Allreduce(&first, &lowest, 1, MPI_INT, MPI_MIN, t->comm);
    if (mpi == MPI_SUCCESS && lowest < t->size)
        mpi = MPI_Bcast(text, sizeof text, MPI_CHAR, lowest, t->comm);
    if (mpi != MPI_SUCCESS)
        return hcp_transport_mpi_check(mpi, "agreeing beside", t->name_before, err);
    if (lowest == t->size)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED, "%s", text);
}

static int find_ops(const char *name, int mesh, const struct transport_ops **out,
                    struct hcp_err *err)
{
    if (name && strcmp(name, "mpi") == 0) {
        *out = mesh ? &hcp_mesh_mpi_ops : &hcp_transport_mpi_ops;
        return HCP_OK;
    }
    if (name && strcmp(name, "nccl") == 0) {
#ifdef HAVE_NCCL
        *out = mesh ? &hcp_mesh_nccl_ops : &hcp_transport_nccl_ops;
        return HCP_OK;
#else
        return hcp_fail(err, HCP_FAILED,
                        "this build has no NCCL (configure --with-nccl); use mpi");
#endif
    }
    if (name && strcmp(name, "copy") == 0 && !mesh) {
#ifdef HAVE_CUDA
        *out = &hcp_transport_copy_ops;
        return HCP_OK;
#else
        return hcp_fail(err, HCP_FAILED,
                        "this build has no CUDA (configure --with-cuda); use mpi");
#endif
    }
    return hcp_fail(err, HCP_FAILED, "unknown transport '%s'; there are mpi, nccl, copy",
                    name ? name : "");
}

static int check_config(const struct hcp_transport_config *c, struct hcp_err *err)
{
    if (!c->runtime)
        return hcp_fail(err, HCP_FAILED, "transport: no runtime for the buffers' memory");
    if (!(c->timeout_s > 0))
        return hcp_fail(err, HCP_FAILED,
                        "transport: a time-out of %g s; give one above 0", c->timeout_s);
    if (strcmp(c->name, "nccl") == 0 && c->runtime->kind != HCP_DEVICE_CUDA)
        return hcp_fail(err, HCP_FAILED,
                        "nccl moves data between GPUs; use mpi between CPU ranks");
    if (strcmp(c->name, "copy") == 0 && c->runtime->kind != HCP_DEVICE_CUDA)
        return hcp_fail(err, HCP_FAILED,
                        "copy engines move data between GPUs; use mpi between CPU ranks");
    if (c->channels < 0 || c->channels > 32 || (c->channels & (c->channels - 1)) != 0)
        return hcp_fail(err, HCP_FAILED,
                        "%d channels: NCCL takes a power of two, up to 32, for each "
                        "neighbour",
                        c->channels);
    if (c->channels != 0 && strcmp(c->name, "nccl") != 0)
        return hcp_fail(err, HCP_FAILED, "transport %s has no channels; nccl does",
                        c->name);
    return HCP_OK;
}

int hcp_transport_prepare(int sharing, struct hcp_err *err)
{
    enum { QUEUES = 32, QUEUES_SHARED = 96, QUEUES_LEAST = 2 };
    const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int part = sharing > 0 ? QUEUES_SHARED / sharing : QUEUES;
    char text[16];
    if (set && strtol(set, NULL, 10) >= QUEUES_LEAST)
        return HCP_OK;
    part = part > QUEUES ? QUEUES : part < QUEUES_LEAST ? QUEUES_LEAST : part;
    snprintf(text, sizeof text, "%d", part);
    if (setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1) != 0)
        return hcp_fail(err, HCP_FAILED, "cannot set the environment");
    return HCP_OK;
}

int hcp_transport_pin_channels(int32_t channels, struct hcp_err *err)
{
    static const char *const names[] = {
        "NCCL_MIN_CTAS",      "NCCL_MAX_CTAS",          "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"};
    char text[16];
    snprintf(text, sizeof text, "%d", (int)channels);
    for (size_t i = 0; channels > 0 && i < sizeof names / sizeof *names; i++)
        if (setenv(names[i], text, 1) != 0)
            return hcp_fail(err, HCP_FAILED, "cannot set the environment");
    return HCP_OK;
}

int hcp_transport_peer_name(const hcp_transport *t, int peer)
{
    MPI_Group ring, world;
    int name = MPI_UNDEFINED;
    MPI_Comm_group(t->comm, &ring);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(ring, 1, &peer, world, &name);
    MPI_Group_free(&ring);
    MPI_Group_free(&world);
    return name == MPI_UNDEFINED ? peer : name;
}

/* Ranks in MPI_COMM_WORLD, which is what users count in. */
static void name_ranks(hcp_transport *t)
{
    t->name = hcp_transport_peer_name(t, t->rank);
    t->name_before = hcp_transport_peer_name(t, t->before);
    t->name_after = hcp_transport_peer_name(t, t->after);
}

int hcp_transport_open(const struct hcp_transport_config *config, hcp_transport **out,
                       struct hcp_err *err)
{
    const struct transport_ops *ops = NULL;
    hcp_transport *t;
    MPI_Comm comm;
    int rc = find_ops(config->name, config->mesh, &ops, err);
    if (rc == HCP_OK)
        rc = check_config(config, err);
    /* A rank that fails here still meets the others, so that all of them fail. */
    t = calloc(1, ops ? ops->size : sizeof *t);
    if (!t)
        return hcp_fail(err, HCP_FAILED, "transport: out of memory");
    if (MPI_Comm_dup(config->comm, &comm) != MPI_SUCCESS) {
        free(t);
        return hcp_fail(err, HCP_FAILED, "transport: MPI cannot copy the communicator");
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    t->ops = ops;
    t->comm = comm;
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->size);
    t->before = (t->rank + t->size - 1) % t->size;
    t->after = (t->rank + 1) % t->size;
    t->runtime = config->runtime;
    t->ordinal = config->ordinal;
    t->sm_count = config->sm_count;
    t->channels = config->channels;
    t->timeout_s = config->timeout_s;
    name_ranks(t);
    rc = hcp_transport_agree(t, rc, err);
    if (rc == HCP_OK) {
        rc = ops->open(t, err);
        t->failed = rc != HCP_OK;
        if (rc != HCP_OK)
            ops->close(t);
    }
    if (rc != HCP_OK) {
        /* MPI frees it when the program ends: its last rank may be gone already. */
        free(t);
        return rc;
    }
    *out = t;
    return HCP_OK;
}

const char *hcp_transport_name(const hcp_transport *t)
{
    return t->ops->name;
}

const char *hcp_transport_version(const hcp_transport *t)
{
    return t->version;
}

int hcp_transport_queues(const hcp_transport *t)
{
    return t->ops->queues;
}

static int check_transfer(const hcp_transport *t, const struct hcp_transfer *f,
                          int32_t step, struct hcp_err *err)
{
    if (!f->receive && !f->send)
        return HCP_OK;
    if (t->size < 2)
        return hcp_fail(err, HCP_FAILED, "step %d: nothing travels in a ring of one rank",
                        step);
    if (step == 0 ? f->receive : !f->receive)
        return hcp_fail(err, HCP_FAILED,
                        step ? "step %d: a block that is not received cannot be sent"
                             : "step %d: the own block is not received",
                        step);
    if (f->receive && f->slot < 0)
        return hcp_fail(err, HCP_FAILED, "step %d: received into no buffer", step);
    if (f->n_pieces < 1)
        return hcp_fail(err, HCP_FAILED, "step %d: a block without pieces", step);
    for (int32_t p = 0; p < f->n_pieces; p++)
        if (!f->pieces[p].data || f->pieces[p].bytes <= 0)
            return hcp_fail(err, HCP_FAILED, "step %d piece %d: no data", step, p);
    return HCP_OK;
}

static int copy_pass(hcp_transport *t, const struct hcp_transfer *transfers,
                     int32_t n_steps, struct hcp_err *err)
{
    if (n_steps < 1)
        return hcp_fail(err, HCP_FAILED, "transport: a pass of %d steps", n_steps);
    if (n_steps > t->steps_room) {
        struct transport_step *grown = realloc(t->steps, (size_t)n_steps * sizeof *grown);
        if (!grown)
            return hcp_fail(err, HCP_FAILED, "transport: out of memory");
        t->steps = grown;
        t->steps_room = n_steps;
    }
    t->n_pieces = 0;
    t->own_after = transfers[0].after_step;
    if (t->own_after < 0 || t->own_after >= n_steps ||
        (t->own_after > 0 && !transfers[t->own_after].receive))
        return hcp_fail(err, HCP_FAILED,
                        "the own block is sent after step %d, which is not received",
                        t->own_after);
    for (int32_t k = 0; k < n_steps; k++) {
        struct transport_step *s = &t->steps[k];
        int rc = check_transfer(t, &transfers[k], k, err);
        if (rc != HCP_OK)
            return rc;
        s->transfer = transfers[k];
        s->first = t->n_pieces;
        s->previous = -1;
        if (!s->transfer.receive && !s->transfer.send)
            s->transfer.n_pieces = 0;
        t->n_pieces += s->transfer.n_pieces;
        for (int32_t j = k - 1; j > 0 && s->transfer.receive && s->previous < 0; j--)
            if (t->steps[j].transfer.receive &&
                t->steps[j].transfer.slot == s->transfer.slot)
                s->previous = j;
    }
    t->n_steps = n_steps;
    return HCP_OK;
}

/* Failures last: what is under way cannot be taken back. */
static int noted(hcp_transport *t, int rc)
{
    if (rc != HCP_OK)
        t->failed = 1;
    return rc;
}

static int usable(hcp_transport *t, int in_pass, struct hcp_err *err)
{
    if (t->failed && t->ops->check(t, err) == HCP_OK)
        return hcp_fail(err, HCP_FAILED, "%s transport: unusable after a failure",
                        t->ops->name);
    if (t->failed)
        return HCP_FAILED;
    if (t->in_pass != in_pass)
        return hcp_fail(err, HCP_FAILED, "%s transport: %s", t->ops->name,
                        in_pass ? "no pass has begun" : "the last pass has not ended");
    return HCP_OK;
}

int hcp_transport_begin(hcp_transport *t, const struct hcp_transfer *transfers,
                        int32_t n_steps, void *start, struct hcp_err *err)
{
    int rc = usable(t, 0, err);
    if (rc == HCP_OK && !t->ops->begin)
        rc = hcp_fail(err, HCP_FAILED, "%s transport: opened for exchanges",
                      t->ops->name);
    if (rc == HCP_OK)
        rc = copy_pass(t, transfers, n_steps, err);
    if (rc == HCP_OK) {
        t->done = 0;
        t->in_pass = 1;
        t->has_pass = 0;
        rc = t->ops->begin(t, start, err);
    }
    return noted(t, rc);
}

int hcp_transport_wait(hcp_transport *t, int32_t step, int32_t piece, void *stream,
                       struct hcp_err *err)
{
    int rc = usable(t, 1, err);
    if (rc == HCP_OK &&
        (step < 0 || step >= t->n_steps || piece < 0 ||
         !t->steps[step].transfer.receive || piece >= t->steps[step].transfer.n_pieces))
        rc = hcp_fail(err, HCP_FAILED, "step %d piece %d is not received in this pass",
                      step, piece);
    /* Its buffer would never become free: the caller would wait for itself. */
    if (rc == HCP_OK && t->steps[step].previous >= t->done)
        rc = hcp_fail(
            err, HCP_FAILED,
            "step %d is waited for before step %d, which has its buffer, is done", step,
            t->steps[step].previous);
    return noted(t, rc == HCP_OK ? t->ops->wait(t, step, piece, stream, err) : rc);
}

int hcp_transport_precede(hcp_transport *t, void *stream, struct hcp_err *err)
{
    int rc = usable(t, 1, err);
    if (rc == HCP_OK && t->ops->precede)
        rc = t->ops->precede(t, stream, err);
    return noted(t, rc);
}

int hcp_transport_done(hcp_transport *t, int32_t step, void *stream, struct hcp_err *err)
{
    int rc = usable(t, 1, err);
    if (rc == HCP_OK && (step != t->done || step >= t->n_steps))
        rc = hcp_fail(err, HCP_FAILED, "step %d reported done, step %d is next", step,
                      t->done);
    if (rc == HCP_OK)
        rc = t->ops->done(t, step, stream, err);
    if (rc == HCP_OK)
        t->done++;
    return noted(t, rc);
}

int hcp_transport_end(hcp_transport *t, struct hcp_err *err)
{
    int rc = usable(t, 1, err);
    if (rc == HCP_OK && t->done < t->n_steps)
        rc = hcp_fail(err, HCP_FAILED, "the pass ends at step %d of %d", t->done,
                      t->n_steps);
    if (rc == HCP_OK)
        rc = t->ops->end(t, err);
    if (rc == HCP_OK) {
        t->in_pass = 0;
        t->has_pass = 1;
    }
    return noted(t, rc);
}

int hcp_transport_times(hcp_transport *t, int32_t step, struct hcp_transfer_times *out)
{
    struct hcp_transfer_times none = {NAN, NAN, NAN, NAN};
    *out = none;
    if (!t->has_pass || step < 0 || step >= t->n_steps)
        return HCP_FAILED;
    return t->ops->times(t, step, out);
}

int hcp_transport_exchange(hcp_transport *t, const struct hcp_parcel *parcels, int32_t n,
                           void *stream, struct hcp_err *err)
{
    int rc = HCP_OK;
    if (!t->ops->exchange)
        return hcp_fail(err, HCP_FAILED, "%s transport: not opened for exchanges",
                        t->ops->name);
    if (t->failed)
        return hcp_fail(err, HCP_FAILED, "%s transport: unusable after a failure",
                        t->ops->name);
    for (int32_t i = 0; rc == HCP_OK && i < n; i++)
        if (parcels[i].peer < 0 || parcels[i].peer >= t->size ||
            parcels[i].peer == t->rank || !parcels[i].data || parcels[i].bytes <= 0)
            rc = hcp_fail(err, HCP_FAILED, "parcel %d of %d: no data, or no such rank",
                          (int)i, (int)n);
    if (rc == HCP_OK && n > 0)
        rc = t->ops->exchange(t, parcels, n, stream, err);
    return noted(t, rc);
}

int hcp_transport_check(hcp_transport *t, struct hcp_err *err)
{
    return noted(t, t->ops->check(t, err));
}

enum hcp_transport_fault hcp_transport_fault(const hcp_transport *t)
{
    return t->device_failed ? HCP_TRANSPORT_DEVICE
           : t->failed      ? HCP_TRANSPORT_OTHER
                            : HCP_TRANSPORT_GOOD;
}

void hcp_transport_cancel(hcp_transport *t)
{
    t->failed = 1;
    t->ops->cancel(t);
}

int hcp_transport_settle(hcp_transport *t, struct hcp_err *err)
{
    int rc = HCP_OK;
    hcp_transport_cancel(t);
    if (t->ops->settle)
        rc = t->ops->settle(t, err);
    t->settled = t->ops->settle && rc == HCP_OK;
    return rc;
}

void hcp_transport_close(hcp_transport *t)
{
    if (!t)
        return;
    if (t->in_pass)
        t->failed = 1;
    t->ops->close(t);
    if (!t->failed || t->settled)
        MPI_Comm_free(&t->comm);
    free(t->steps);
    free(t);
}
