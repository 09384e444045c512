/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "executor/ring-internal.h"

/* One set of ranks. All ranks keep all sets, so that they agree on which are known. */
struct group {
    unsigned char *present;
    int32_t inner;
    enum ring_level level;
    MPI_Comm comm;            /* MPI_COMM_NULL: this rank is not in it */
    hcp_transport *transport; /* NULL likewise, and for fewer than two ranks */
    struct group *next;
};

struct ring_links {
    char transport[16];
    const struct ring_comm *comm;
    const hcp_runtime *runtime;
    int32_t ordinal, sm_count, channels;
    double timeout_s;
    struct group *groups;
    pthread_mutex_t mutex; /* of the list, which cancel walks from another thread */
};

int ring_links_new(const char *transport, int32_t channels, const struct ring_comm *comm,
                   const hcp_runtime *runtime, const hcp_device_ref *device,
                   double timeout_s, ring_links **out, struct hcp_err *err)
{
    ring_links *links = calloc(1, sizeof *links);

    if (!links)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    snprintf(links->transport, sizeof links->transport, "%s", transport);
    links->comm = comm;
    links->runtime = runtime;
    links->ordinal = device->ordinal;
    links->channels = channels;
    links->sm_count = runtime->kind == HCP_DEVICE_CUDA ? device->sm_count : 0;
    links->timeout_s = timeout_s;
    pthread_mutex_init(&links->mutex, NULL);
    *out = links;
    return HCP_OK;
}

static struct group *known(const ring_links *links, const unsigned char *present,
                           int32_t inner, enum ring_level level)
{
    struct group *g = links->groups;

    while (g && (g->inner != inner || g->level != level ||
                 memcmp(g->present, present, (size_t)links->comm->size) != 0))
        g = g->next;
    return g;
}

static void group_free(struct group *g)
{
    hcp_transport_close(g->transport);
    if (g->comm != MPI_COMM_NULL)
        MPI_Comm_free(&g->comm);
    free(g->present);
    free(g);
}

static int group_open(const ring_links *links, const unsigned char *present,
                      int32_t index, int32_t inner, enum ring_level level,
                      struct group **out, struct hcp_err *err)
{
    size_t n = (size_t)links->comm->size;
    int colour = 0, m = 0;
    struct group *g = calloc(1, sizeof *g);
    int rc = HCP_OK;

    if (g)
        g->present = malloc(n);
    if (!g || !g->present) {
        free(g);
        g = NULL;
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    }
    rc = ring_all_ok(links->comm, rc, err);
    if (rc) {
        if (g)
            free(g->present);
        free(g);
        return rc;
    }
    memcpy(g->present, present, n);
    g->inner = inner;
    g->level = level;
    if (index < 0)
        colour = MPI_UNDEFINED;
    else if (level == RING_INNER || level == RING_OUTER)
        colour = level == RING_INNER ? index / inner : index % inner;
    if (MPI_Comm_split(links->comm->world, colour, index, &g->comm) != MPI_SUCCESS) {
        g->comm = MPI_COMM_NULL;
        rc = hcp_fail(err, HCP_FAILED, "MPI cannot make a group of the ring's ranks");
    }
    if (rc == HCP_OK && index >= 0 && (inner == 0 || level != RING_ALL))
        MPI_Comm_size(g->comm, &m);
    if (rc == HCP_OK && m > 1) {
        const struct hcp_transport_config config = {.name = links->transport,
                                                    .comm = g->comm,
                                                    .runtime = links->runtime,
                                                    .ordinal = links->ordinal,
                                                    .sm_count = links->sm_count,
                                                    .channels = links->channels,
                                                    .timeout_s = links->timeout_s,
                                                    .mesh = level == RING_MESH};
        rc = hcp_transport_open(&config, &g->transport, err);
    }
    rc = ring_all_ok(links->comm, rc, err);
    if (rc) {
        group_free(g);
        return rc;
    }
    *out = g;
    return HCP_OK;
}

int ring_links_of(ring_links *links, const unsigned char *present, int32_t index,
                  int32_t inner, enum ring_level level, hcp_transport **transport,
                  MPI_Comm *comm, struct hcp_err *err)
{
    struct group *g = known(links, present, inner, level);

    if (!g) {
        int rc = group_open(links, present, index, inner, level, &g, err);

        if (rc)
            return rc;
        pthread_mutex_lock(&links->mutex);
        g->next = links->groups;
        links->groups = g;
        pthread_mutex_unlock(&links->mutex);
    }
    *transport = g->transport;
    *comm = g->comm;
    return HCP_OK;
}

void ring_links_cancel(ring_links *links)
{
    if (!links)
        return;
    pthread_mutex_lock(&links->mutex);
    for (struct group *g = links->groups; g; g = g->next)
        if (g->transport)
            hcp_transport_cancel(g->transport);
    pthread_mutex_unlock(&links->mutex);
}

int ring_links_drop(ring_links *links, struct hcp_err *err)
{
    int rc = HCP_OK;

    while (rc == HCP_OK && links->groups) {
        struct group *g = links->groups;

        pthread_mutex_lock(&links->mutex);
        links->groups = g->next;
        pthread_mutex_unlock(&links->mutex);
        if (g->transport)
            rc = hcp_transport_settle(g->transport, err);
        group_free(g);
    }
    return rc;
}

void ring_links_close(ring_links *links)
{
    if (!links)
        return;
    while (links->groups) {
        struct group *g = links->groups;

        links->groups = g->next;
        group_free(g);
    }
    pthread_mutex_destroy(&links->mutex);
    free(links);
}
