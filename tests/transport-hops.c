/* SPDX-License-Identifier: Apache-2.0
 *
 * One block between two ranks, and what must not be waited for, or begun.
 */
#include "tests/transport-cases.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/transport-points.h"

/* Blocks go to the next rank only, one piece each, from and to these. */
struct hop {
    struct hcp_message out, in;
    struct hcp_transfer transfers[2];
};

static void make_hop(struct hop *h, void *out, int64_t out_bytes, void *in,
                     int64_t in_bytes)
{
    memset(h, 0, sizeof *h);
    h->out.data = out;
    h->out.bytes = out_bytes;
    h->in.data = in;
    h->in.bytes = in_bytes;
    h->transfers[0].slot = -1;
    h->transfers[0].send = out_bytes > 0;
    h->transfers[0].pieces = &h->out;
    h->transfers[0].n_pieces = 1;
    h->transfers[1].receive = in_bytes > 0;
    h->transfers[1].pieces = &h->in;
    h->transfers[1].n_pieces = 1;
}

static int run_hop(hcp_transport *t, const struct hop *h, void *start,
                   struct hcp_err *err)
{
    int rc = hcp_transport_begin(t, h->transfers, 2, start, err);
    if (rc == HCP_OK)
        rc = hcp_transport_done(t, 0, NULL, err);
    if (rc == HCP_OK && h->transfers[1].receive)
        rc = hcp_transport_wait(t, 1, 0, NULL, err);
    if (rc == HCP_OK)
        rc = hcp_transport_done(t, 1, NULL, err);
    return rc == HCP_OK ? hcp_transport_end(t, err) : rc;
}

/* Memory and events of the small cases. */
struct small {
    hcp_transport *t;
    void *out, *in, *start;
    char why[1200];
};

static int small_open(const struct transport_world *w, struct small *s, int64_t bytes,
                      double timeout_s)
{
    memset(s, 0, sizeof *s);
    s->t = open_transport(w, timeout_s, s->why, sizeof s->why);
    return s->t && w->runtime->alloc(&s->out, bytes) == HCP_RC_OK &&
           w->runtime->alloc(&s->in, bytes) == HCP_RC_OK &&
           w->runtime->fill(s->out, 1, bytes, NULL) == HCP_RC_OK &&
           w->runtime->event_create(&s->start) == HCP_RC_OK &&
           w->runtime->event_record(s->start, NULL) == HCP_RC_OK;
}

static void small_close(const struct transport_world *w, struct small *s)
{
    MPI_Barrier(w->comm);
    hcp_transport_close(s->t);
    w->runtime->event_destroy(s->start);
    w->runtime->release(s->out);
    w->runtime->release(s->in);
}

void transport_cases_huge(const struct transport_world *w)
{
    enum { LAST = 3 };
    const int64_t bytes = (INT64_C(1) << 31) + LAST;
    struct small s;
    struct hop h;
    struct hcp_err err = {0};
    unsigned char tail[LAST] = {0}, first = 0;
    int good = small_open(w, &s, bytes, PATIENCE_S);
    make_hop(&h, s.out, w->rank == 0 ? bytes : 0, s.in, w->rank == 1 ? bytes : 0);
    good = good && run_hop(s.t, &h, s.start, &err) == HCP_OK;
    if (good && w->rank == 1) {
        w->runtime->to_host(tail, (char *)s.in + bytes - LAST, LAST, NULL);
        w->runtime->to_host(&first, s.in, 1, NULL);
        good = first == 1 && tail[0] == 1 && tail[LAST - 1] == 1;
    }
    all_ok(w, good, *err.text ? err.text : s.why, "a message of %lld bytes",
           (long long)bytes);
    small_close(w, &s);
}

/* Blocks of so many bytes, one of them of delta more. */
struct attempt {
    const struct transport_world *w;
    int64_t bytes, delta;
    char why[1200];
};

/* What must end in time is tried with ever more of it: a busy machine may leave too
 * little for what comes before. */
static int tried(struct attempt *a, int (*attempt)(struct attempt *a, double timeout_s))
{
    int mine = 0, all = 0;
    for (double timeout_s = 0.3; !all && timeout_s < PATIENCE_S; timeout_s *= 5) {
        *a->why = '\0';
        mine = attempt(a, timeout_s);
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, a->w->comm);
    }
    return mine;
}

static int silent(struct attempt *a, double timeout_s)
{
    const struct transport_world *w = a->w;
    int64_t bytes = a->bytes;
    struct small s;
    struct hcp_err err = {0}, again = {0};
    char expected[96] = "";
    int last = w->size - 1, good = small_open(w, &s, bytes, timeout_s);
    double began = now_s();
    if (good && w->rank != last) {
        struct hop h;
        /* The silence of the last one meets rank 0 alone, and only as a sender's: nobody
         * sends to it, who would miss its receiving too. */
        make_hop(&h, s.out, w->rank == last - 1 ? 0 : bytes, s.in, bytes);
        int rc = run_hop(s.t, &h, s.start, &err);
        double took = now_s() - began;
        snprintf(expected, sizeof expected, "no data from rank %d for %g s (step 1)",
                 last, timeout_s);
        if (w->rank == 0)
            good = rc == HCP_FAILED && strcmp(err.text, expected) == 0 &&
                   took > 0.8 * timeout_s && took < 2 * timeout_s + 2 &&
                   hcp_transport_check(s.t, &again) == HCP_FAILED &&
                   strcmp(again.text, err.text) == 0;
        else
            good = rc == HCP_OK;
        snprintf(a->why, sizeof a->why, "%g s: %s", took, err.text);
    }
    memset(&err, 0, sizeof err);
    if (good && w->rank == 0) { /* and again by every later call */
        good = hcp_transport_wait(s.t, 1, 0, NULL, &err) == HCP_FAILED &&
               strcmp(err.text, expected) == 0;
        snprintf(a->why, sizeof a->why, "later: %s", err.text);
    }
    small_close(w, &s);
    return good;
}

void transport_cases_silent(const struct transport_world *w)
{
    struct attempt a = {.w = w, .bytes = 1000};
    int good = tried(&a, silent);
    all_ok(w, good, a.why, "a rank that never begins is named in time, later as well");
}

static int nothing_taken(struct attempt *a, double timeout_s)
{
    const struct transport_world *w = a->w;
    int64_t bytes = a->bytes;
    struct small s;
    struct hcp_err err = {0};
    int good = small_open(w, &s, bytes, timeout_s);
    if (good && w->rank == 0) {
        char expected[96];
        struct hop h;
        make_hop(&h, s.out, bytes, s.in, 0);
        snprintf(expected, sizeof expected, "rank 1 took no data for %g s (step 0)",
                 timeout_s);
        good = run_hop(s.t, &h, s.start, &err) == HCP_FAILED &&
               strcmp(err.text, expected) == 0;
    }
    snprintf(a->why, sizeof a->why, "%s", *err.text ? err.text : s.why);
    small_close(w, &s);
    return good;
}

void transport_cases_untaken(const struct transport_world *w, int64_t bytes)
{
    struct attempt a = {.w = w, .bytes = bytes};
    int good = tried(&a, nothing_taken);
    all_ok(w, good, a.why, "a rank that takes nothing is named in time");
}

static void *cancel_soon(void *t)
{
    sleep_ms(100);
    hcp_transport_cancel(t);
    return NULL;
}

void transport_cases_cancel(const struct transport_world *w)
{
    struct small s;
    struct hcp_err err = {0};
    int good = small_open(w, &s, 1000, PATIENCE_S);
    if (good && w->rank == 0) {
        struct hop h;
        pthread_t thread;
        make_hop(&h, s.out, 0, s.in, 1000);
        pthread_create(&thread, NULL, cancel_soon, s.t);
        good = run_hop(s.t, &h, s.start, &err) == HCP_FAILED &&
               strstr(err.text, "cancelled");
        pthread_join(thread, NULL);
    }
    all_ok(w, good, err.text, "cancel ends a wait");
    small_close(w, &s);
}

static int mismatched(struct attempt *a, double timeout_s)
{
    const struct transport_world *w = a->w;
    struct small s;
    struct hcp_err err = {0};
    /* Whole messages too many or too few are seen by who waits for them in vain. */
    int last = w->size - 1, whole = a->delta % (1 << 20) == 0;
    int good = small_open(w, &s, 2 * a->bytes, timeout_s);
    struct hop h;
    make_hop(&h, s.out, w->rank == last ? a->bytes + a->delta : 0, s.in,
             w->rank == 0 ? a->bytes : 0);
    if (good) {
        int rc = run_hop(s.t, &h, s.start, &err);
        char text[96];
        snprintf(text, sizeof text, "the data of rank %d has not the length", last);
        if (whole)
            snprintf(text, sizeof text,
                     a->delta > 0 ? "rank 0 took no data" : "no data from rank %d", last);
        if (w->rank == (whole && a->delta > 0 ? last : 0))
            good = rc == HCP_FAILED && strstr(err.text, text) != NULL;
    }
    snprintf(a->why, sizeof a->why, "%s", *err.text ? err.text : s.why);
    small_close(w, &s);
    return good;
}

void transport_cases_mismatch(const struct transport_world *w, int64_t bytes,
                              int64_t delta)
{
    struct attempt a = {.w = w, .bytes = bytes, .delta = delta};
    int good = tried(&a, mismatched);
    all_ok(w, good, a.why, "%lld bytes where %lld are expected",
           (long long)(bytes + delta), (long long)bytes);
}

void transport_cases_shared(const struct transport_world *w, int32_t ordinal)
{
    struct transport_world one = *w;
    char why[1200] = "";
    one.ordinal = ordinal;
    hcp_transport *t = open_transport(&one, PATIENCE_S, why, sizeof why);
    all_ok(w, !t && strstr(why, "one rank a GPU: ranks 0 and 1 share GPU-"), why,
           "two ranks on one GPU: %s", why);
    hcp_transport_close(t);
    w->runtime->select(w->ordinal);
}

void transport_cases_host_ids(const struct transport_world *w)
{
    struct transport_world one = *w;
    char why[1200] = "", id[32];
    one.ordinal = 0;
    snprintf(id, sizeof id, "host-%d", w->rank);
    setenv("NCCL_HOSTID", id, 1);
    transport_cases_passes(&one, 4);
    setenv("NCCL_HOSTID", "host", 1);
    hcp_transport *t = open_transport(&one, PATIENCE_S, why, sizeof why);
    all_ok(w, !t && strstr(why, "give each rank an NCCL_HOSTID of its own"), why,
           "two ranks on one GPU that NCCL takes for one host's are refused: %s", why);
    hcp_transport_close(t);
    unsetenv("NCCL_HOSTID");
    w->runtime->select(w->ordinal);
}

void transport_cases_channels(const struct transport_world *w)
{
    struct transport_world other = *w;
    char why[1200] = "";
    hcp_transport *t;
    other.channels = 4;
    setenv("FAKE_NCCL_CHANNELS", "4-4", 1);
    transport_cases_passes(&other, 4);
    setenv("FAKE_NCCL_CHANNELS", "1-16", 1); /* up to 16: a third of 132 SMs */
    other.channels = 0;
    t = open_transport(&other, PATIENCE_S, why, sizeof why);
    all_ok(w, t != NULL, why, "unasked, NCCL chooses from 1 to 16 channels");
    hcp_transport_close(t);
    unsetenv("FAKE_NCCL_CHANNELS");
    other.channels = 3;
    t = open_transport(&other, PATIENCE_S, why, sizeof why);
    all_ok(w, !t && strstr(why, "3 channels: NCCL takes a power of two"), why,
           "refused: 3 channels");
    other.channels = 16;
    other.sm_count = 30;
    t = open_transport(&other, PATIENCE_S, why, sizeof why);
    all_ok(w,
           !t && strstr(why, "16 NCCL channels each way take 32 blocks") &&
               strstr(why, "has 30 SMs; at most 8 channels fit"),
           why, "refused: more blocks than SMs");
    other.channels = w->rank == 0 ? 2 : 4;
    t = open_transport(&other, PATIENCE_S, why, sizeof why);
    all_ok(w, !t && strstr(why, "rank 0 asks for 2 NCCL channels, rank 1 for 4"), why,
           "refused: ranks that differ");
    other.name = "mpi";
    t = open_transport(&other, PATIENCE_S, why, sizeof why);
    all_ok(w, !t && strstr(why, "transport mpi has no channels; nccl does"), why,
           "refused: channels of mpi");
}

/* begin() with these transfers fails with this in its text. */
static void refuse(const struct transport_world *w, const struct hop *h, int32_t n_steps,
                   const char *text)
{
    struct small s;
    struct hcp_err err = {0};
    int good =
        small_open(w, &s, 64, PATIENCE_S) &&
        hcp_transport_begin(s.t, h->transfers, n_steps, s.start, &err) == HCP_FAILED &&
        strstr(err.text, text);
    all_ok(w, good, err.text, "refused: %s", text);
    small_close(w, &s);
}

void transport_cases_refused(const struct transport_world *w)
{
    char data[64], why[1200] = "";
    struct hop h;
    struct transport_world other = *w;
    if (w->rank == w->size - 1)
        other.name = "pigeon";
    hcp_transport *t = open_transport(&other, PATIENCE_S, why, sizeof why);
    all_ok(w,
           !t &&
               strcmp(why, "unknown transport 'pigeon'; there are mpi, nccl, copy") == 0,
           why, "a rank that cannot open: all fail with its text");
    t = open_transport(w, 0, why, sizeof why);
    all_ok(w, !t && strstr(why, "time-out"), why, "refused: a time-out of 0");
    make_hop(&h, data, 64, data, 64);
    h.transfers[0].receive = 1;
    refuse(w, &h, 2, "step 0: the own block is not received");
    make_hop(&h, data, 64, data, 64);
    h.transfers[1].slot = -1;
    refuse(w, &h, 2, "step 1: received into no buffer");
    make_hop(&h, data, 64, data, 64);
    h.in.bytes = 0;
    refuse(w, &h, 2, "step 1 piece 0: no data");
    make_hop(&h, data, 64, data, 0);
    h.transfers[1].send = 1;
    refuse(w, &h, 2, "step 1: a block that is not received cannot be sent");
    refuse(w, &h, 0, "a pass of 0 steps");
}
