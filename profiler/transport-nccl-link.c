/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL makes a communicator, and at its first message a connection, in calls that block
 * until the other end makes them too. So all ranks go through the edges of the ring in
 * one order: even ones, odd ones, and the last of an odd ring alone. A thread does it,
 * so that an end that never comes is an error in time; it is left behind then.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/cuda.h"
#include "profiler/transport-nccl.h"

/* NCCL takes seconds for its first communicator, whatever the ring's time-out. */
#define PATIENCE_S 30.0

enum { MAX_BLOCKS = 16, WARM_UP_BYTES = 64 };

/* What ranks tell each other. */
struct card {
    char uuid[48];
    char host_id[64]; /* NCCL_HOSTID: what NCCL takes for the rank's host; "" if unset */
    int name, version, max_blocks, channels, sm_count;
    ncclUniqueId id; /* of the edge to the rank after */
};

/* Work of the thread. Freed by the last of thread and caller. */
struct connecting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int abandoned, over; /* under lock */
    int waiting_for;     /* likewise: whom, by name */
    double since_s;      /* likewise: from when */
    const hcp_nccl_api *api;
    const hcp_runtime *runtime;
    int32_t ordinal;
    struct nccl_link links[2]; /* by phase */
    int rc;
    struct hcp_err err;
};

int hcp_nccl_check(const hcp_nccl_api *api, const struct nccl_link *link, ncclResult_t rc,
                   struct hcp_err *err)
{
    const char *more;
    if (rc == ncclSuccess)
        return HCP_OK;
    more = api->last_error(link->comm);
    return hcp_fail(err, HCP_FAILED, "NCCL %s: %s rank %d: %s%s%s", api->version_text,
                    link->sends ? "link to" : "link from", link->peer_name,
                    api->error_string(rc), more && *more ? ": " : "",
                    more && *more ? more : "");
}

static int abandoned(struct connecting *c)
{
    pthread_mutex_lock(&c->lock);
    int yes = c->abandoned;
    pthread_mutex_unlock(&c->lock);
    return yes;
}

static int failed_device(const struct connecting *c, int rc, struct hcp_err *err)
{
    if (rc == HCP_RC_OK)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED, "nccl transport: %s", c->runtime->last_error());
}

/* A first message: makes the connection and loads NCCL's kernel, both of which wait for
 * the device and must not happen in a pass. */
static int warm_up(struct connecting *c, struct nccl_link *l, void *data, void *event,
                   struct hcp_err *err)
{
    const struct timespec nap = {0, 100000};
    ncclResult_t rc, async = ncclSuccess;
    int done = 0;
    if (l->sends)
        rc = c->api->send(data, WARM_UP_BYTES, ncclInt8, l->peer, l->comm, l->stream);
    else
        rc = c->api->recv(data, WARM_UP_BYTES, ncclInt8, l->peer, l->comm, l->stream);
    if (hcp_nccl_check(c->api, l, rc, err) != HCP_OK ||
        failed_device(c, c->runtime->event_record(event, l->stream), err) != HCP_OK)
        return HCP_FAILED;
    while (!done) {
        if (failed_device(c, c->runtime->event_done(event, &done), err) != HCP_OK)
            return HCP_FAILED;
        if (done)
            break;
        rc = c->api->async_error(l->comm, &async);
        if (hcp_nccl_check(c->api, l, rc == ncclSuccess ? async : rc, err) != HCP_OK)
            return HCP_FAILED;
        if (abandoned(c))
            return hcp_fail(err, HCP_FAILED, "abandoned");
        nanosleep(&nap, NULL);
    }
    return HCP_OK;
}

/* exact: so many blocks, not up to so many. */
static ncclConfig_t config_of(int max_blocks, int exact)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.minCTAs = exact ? max_blocks : 1;
    config.maxCTAs = max_blocks; /* NCCL_MAX_CTAS has the last word */
    /* Blocks that need not lie together find room among those of a kernel that computes,
     * also on the few and scattered SMs of a limit. */
    config.cgaClusterSize = 0;
    return config;
}

static int connect_link(struct connecting *c, struct nccl_link *l, void *data,
                        void *event, struct hcp_err *err)
{
    ncclConfig_t config = config_of(l->max_blocks, l->exact);
    pthread_mutex_lock(&c->lock);
    c->waiting_for = l->peer_name;
    c->since_s = hcp_transport_now();
    pthread_mutex_unlock(&c->lock);
    ncclResult_t rc = c->api->init(&l->comm, 2, l->id, l->sends ? 0 : 1, &config);
    if (rc != ncclSuccess) {
        hcp_nccl_check(c->api, l, rc, err);
        l->comm = NULL;
        return HCP_FAILED;
    }
    return warm_up(c, l, data, event, err);
}

static void free_connecting(struct connecting *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

static void *connect_all(void *arg)
{
    struct connecting *c = arg;
    void *data = NULL, *event = NULL;
    int rc = failed_device(c, c->runtime->select(c->ordinal), &c->err);
    if (rc == HCP_OK)
        rc = failed_device(c, c->runtime->alloc(&data, WARM_UP_BYTES), &c->err);
    if (rc == HCP_OK)
        rc = failed_device(c, c->runtime->event_create(&event), &c->err);
    for (int i = 0; rc == HCP_OK && i < 2; i++)
        rc = connect_link(c, &c->links[i], data, event, &c->err);
    pthread_mutex_lock(&c->lock);
    c->rc = rc;
    c->over = 1;
    int alone = c->abandoned;
    pthread_cond_signal(&c->changed);
    if (!alone) { /* else the device may be busy for ever, and freeing waits for it */
        c->runtime->event_destroy(event);
        if (rc == HCP_OK)
            c->runtime->release(data);
    }
    pthread_mutex_unlock(&c->lock);
    if (alone)
        free_connecting(c);
    return NULL;
}

/* Waits for the thread, or leaves it behind. */
static int await(struct connecting *c, pthread_t thread, double patience_s,
                 struct nccl_link *first, struct nccl_link *second, struct hcp_err *err)
{
    int rc;
    pthread_mutex_lock(&c->lock);
    while (!c->over && hcp_transport_now() < c->since_s + patience_s) {
        double until = c->since_s + patience_s;
        struct timespec at;
        at.tv_sec = (time_t)until;
        at.tv_nsec = (long)(1e9 * (until - (double)at.tv_sec));
        pthread_cond_timedwait(&c->changed, &c->lock, &at);
    }
    if (!c->over) {
        rc = hcp_fail(err, HCP_FAILED,
                      "rank %d did not answer for %g s while NCCL connected; see "
                      "NCCL_DEBUG=INFO",
                      c->waiting_for, patience_s);
        c->abandoned = 1;
        pthread_mutex_unlock(&c->lock);
        pthread_detach(thread);
        return rc;
    }
    pthread_mutex_unlock(&c->lock);
    pthread_join(thread, NULL);
    rc = c->rc;
    if (rc != HCP_OK)
        hcp_fail(err, rc, "%s", c->err.text);
    *first = c->links[0];
    *second = c->links[1];
    free_connecting(c);
    return rc;
}

static int start(hcp_transport *t, const hcp_nccl_api *api, struct nccl_link *first,
                 struct nccl_link *second, struct hcp_err *err)
{
    struct connecting *c = calloc(1, sizeof *c);
    pthread_condattr_t clock;
    pthread_t thread;
    if (!c)
        return hcp_fail(err, HCP_FAILED, "nccl transport: out of memory");
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    c->api = api;
    c->runtime = t->runtime;
    c->ordinal = t->ordinal;
    c->links[0] = *first;
    c->links[1] = *second;
    c->waiting_for = first->peer_name;
    c->since_s = hcp_transport_now();
    int rc = pthread_create(&thread, NULL, connect_all, c);
    if (rc != 0) {
        free_connecting(c);
        return hcp_fail(err, HCP_FAILED, "nccl transport: cannot start a thread: %s",
                        strerror(rc));
    }
    return await(c, thread, t->timeout_s > PATIENCE_S ? t->timeout_s : PATIENCE_S, first,
                 second, err);
}

/* The largest power of two up to n >= 1. */
static int largest_power(int n)
{
    int p = 1;
    while (2 * p <= n)
        p *= 2;
    return p;
}

/* A third of the SMs at most for each direction: both kernels always find room. Fewer
 * would leave more to computing, but a link of few SMs is slow (about 33 GB/s each on an
 * H200) and then holds them for longer. NCCL uses a power of two of channels between two
 * ranks. */
static int max_blocks(int32_t sm_count)
{
    int n = largest_power(sm_count >= 3 ? sm_count / 3 : 1);
    return n < MAX_BLOCKS ? n : MAX_BLOCKS;
}

static int write_card(hcp_transport *t, const hcp_nccl_api *api, struct card *card,
                      struct hcp_err *err)
{
    hcp_device_ref ref;
    hcp_cuda_info info = {.size = sizeof info};
    char why[512];
    memset(card, 0, sizeof *card);
    card->name = t->name;
    if (hcp_cuda_device(t->ordinal, &ref, &info, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "nccl transport: %s", why);
    memcpy(card->uuid, info.uuid, sizeof card->uuid);
    const char *host_id = getenv("NCCL_HOSTID");
    snprintf(card->host_id, sizeof card->host_id, "%s", host_id ? host_id : "");
    card->version = api->version;
    card->channels = t->channels;
    card->sm_count = t->sm_count > 0 ? t->sm_count : info.sm_count;
    card->max_blocks = t->channels > 0 ? t->channels : max_blocks(card->sm_count);
    ncclResult_t rc = t->size > 1 ? api->get_unique_id(&card->id) : ncclSuccess;
    if (rc != ncclSuccess)
        return hcp_fail(err, HCP_FAILED, "NCCL %s: %s", api->version_text,
                        api->error_string(rc));
    return HCP_OK;
}

/* Between what it takes for two hosts NCCL goes through the network, whatever the
 * GPUs. */
static int share_gpu(const struct card *a, const struct card *b)
{
    return strcmp(a->uuid, b->uuid) == 0 &&
           (!*a->host_id || !*b->host_id || strcmp(a->host_id, b->host_id) == 0);
}

/* What NCCL itself would answer by hanging or in riddles. */
static int compare(const struct card *cards, int n, struct hcp_err *err)
{
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (share_gpu(&cards[i], &cards[j]))
                return hcp_fail(
                    err, HCP_FAILED,
                    "NCCL takes one rank a GPU: ranks %d and %d share %s; use "
                    "--transport mpi, or give each rank an NCCL_HOSTID of its own",
                    cards[i].name, cards[j].name, cards[i].uuid);
    for (int i = 0; i < n; i++) {
        if (cards[i].channels != cards[0].channels)
            return hcp_fail(
                err, HCP_FAILED, "rank %d asks for %d NCCL channels, rank %d for %d",
                cards[0].name, cards[0].channels, cards[i].name, cards[i].channels);
        /* Kernels of both directions must fit side by side, or they wait for each other
         * through the other end for ever. */
        if (2 * cards[i].channels > cards[i].sm_count)
            return hcp_fail(err, HCP_FAILED,
                            "%d NCCL channels each way take %d blocks, rank %d has %d "
                            "SMs; at most %d channels fit",
                            cards[i].channels, 2 * cards[i].channels, cards[i].name,
                            cards[i].sm_count, largest_power(cards[i].sm_count / 2));
    }
    for (int i = 1; i < n; i++)
        if (cards[i].version != cards[0].version)
            return hcp_fail(
                err, HCP_FAILED,
                "rank %d has NCCL %d.%d.%d, rank %d %d.%d.%d; install the same "
                "or use --transport mpi",
                cards[0].name, cards[0].version / 10000, cards[0].version / 100 % 100,
                cards[0].version % 100, cards[i].name, cards[i].version / 10000,
                cards[i].version / 100 % 100, cards[i].version % 100);
    return HCP_OK;
}

/* Edge i is from rank i to the one after. */
static int phase_of(int edge, int n)
{
    return n % 2 == 1 && edge == n - 1 ? 2 : edge % 2;
}

/* The cards of all ranks, which go together; freed by the caller. */
static int gather_cards(hcp_transport *t, const hcp_nccl_api *api, struct card **out,
                        struct hcp_err *err)
{
    struct card *cards = calloc((size_t)t->size, sizeof *cards), mine;
    int rc = cards ? write_card(t, api, &mine, err)
                   : hcp_fail(err, HCP_FAILED, "nccl transport: out of memory");
    rc = hcp_transport_agree(t, rc, err);
    if (rc == HCP_OK)
        rc = hcp_transport_mpi_check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards,
                                                   sizeof mine, MPI_BYTE, t->comm),
                                     "hearing of", t->name_before, err);
    if (rc == HCP_OK)
        rc = compare(cards, t->size, err);
    *out = cards;
    return rc;
}

int hcp_nccl_join(hcp_transport *t, const hcp_nccl_api *api, ncclComm_t *comm,
                  struct hcp_err *err)
{
    struct card *cards;
    int rc = gather_cards(t, api, &cards, err);
    if (rc == HCP_OK && t->size > 1) {
        int blocks = cards[0].max_blocks;
        for (int i = 1; i < t->size; i++)
            blocks = cards[i].max_blocks < blocks ? cards[i].max_blocks : blocks;
        ncclConfig_t config = config_of(blocks, t->channels > 0);
        const struct nccl_link link = {.peer_name = t->name_after, .sends = 1};
        rc = hcp_nccl_check(api, &link,
                            api->init(comm, t->size, cards[0].id, t->rank, &config), err);
        if (rc != HCP_OK)
            *comm = NULL;
    }
    free(cards);
    return hcp_transport_agree(t, rc, err);
}

int hcp_nccl_connect(hcp_transport *t, const hcp_nccl_api *api, struct nccl_link *in,
                     struct nccl_link *out, struct hcp_err *err)
{
    struct card *cards;
    int rc = gather_cards(t, api, &cards, err);
    if (rc == HCP_OK && t->size > 1) {
        const struct card *before = &cards[t->before], *after = &cards[t->after];
        const struct card *mine = &cards[t->rank];
        in->sends = 0;
        in->phase = phase_of(t->before, t->size);
        in->peer = 0;
        in->peer_name = t->name_before;
        in->id = before->id;
        out->sends = 1;
        out->phase = phase_of(t->rank, t->size);
        out->peer = 1;
        out->peer_name = t->name_after;
        out->id = mine->id;
        in->exact = out->exact = mine->channels > 0;
        in->max_blocks =
            mine->max_blocks < before->max_blocks ? mine->max_blocks : before->max_blocks;
        out->max_blocks =
            mine->max_blocks < after->max_blocks ? mine->max_blocks : after->max_blocks;
        rc = in->phase < out->phase ? start(t, api, in, out, err)
                                    : start(t, api, out, in, err);
    }
    free(cards);
    return hcp_transport_agree(t, rc, err);
}

void hcp_nccl_disconnect(const hcp_nccl_api *api, struct nccl_link *link)
{
    if (!link->comm)
        return;
    api->finalize(link->comm);
    api->destroy(link->comm);
    link->comm = NULL;
}
