/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport-cases.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "executor/schedule-late.h"
#include "tests/transport-points.h"

enum { MAX_PIECES = 4, MAX_SLOTS = 3, MAX_RANKS = 64, GUARD = 16 };

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(next(state) % (uint64_t)n);
}

/* ---- data ---------------------------------------------------------------- */

static void fill(unsigned char *to, int64_t bytes, uint64_t seed)
{
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t x = next(&seed);
        memcpy(to + i, &x, 8);
    }
    for (uint64_t x = next(&seed); i < bytes; i++, x >>= 8)
        to[i] = (unsigned char)x;
}

/* First byte that differs; -1: none. */
static int64_t differs(const unsigned char *got, int64_t bytes, uint64_t seed)
{
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t x = next(&seed);
        if (memcmp(got + i, &x, 8) != 0)
            return i;
    }
    for (uint64_t x = next(&seed); i < bytes; i++, x >>= 8)
        if (got[i] != (unsigned char)x)
            return i;
    return -1;
}

/* ---- passes -------------------------------------------------------------- */

/* Same on all ranks: they draw it from the same seed. */
struct plan {
    uint64_t seed;
    int slots;
    int ahead; /* queue the whole pass, look at the data afterwards */
    int n_pieces[MAX_RANKS];
    int reach[MAX_RANKS]; /* ranks that the block of this one visits */
    int32_t late[MAX_RANKS]; /* slots by which it is late (executor/schedule-late.h) */
    int64_t bytes[MAX_RANKS][MAX_PIECES];
};

static int64_t draw_bytes(uint64_t *rng, int size)
{
    switch (below(rng, 5)) {
    case 0:
        return 1 + below(rng, 3);
    case 1:
        return 1 + below(rng, 200);
    case 2:
        return 1 + below(rng, 70000);
    case 3:
        return 4096 * (1 + below(rng, 16));
    default: /* several MB, fewer of them where more ranks share the memory */
        return below(rng, size) ? 1 + below(rng, 300000) : 1 + below(rng, 6 << 20);
    }
}

static void draw_plan(struct plan *plan, int size, uint64_t seed)
{
    uint64_t rng = seed;
    plan->seed = next(&rng);
    /* One buffer cannot pass blocks on where there are more than two ranks. */
    plan->slots = size == 2 ? 1 + (int)below(&rng, 3) : 2 + (int)below(&rng, 2);
    plan->ahead = (int)below(&rng, 2);
    for (int r = 0; r < size; r++) {
        plan->n_pieces[r] = 1 + (int)below(&rng, MAX_PIECES);
        plan->reach[r] = below(&rng, 3) ? size - 1 : (int)below(&rng, size);
        for (int p = 0; p < plan->n_pieces[r]; p++)
            plan->bytes[r][p] = draw_bytes(&rng, size);
    }
    memset(plan->late, 0, sizeof plan->late);
    for (int r = 0, any = (int)below(&rng, 2); any && r < size; r++)
        plan->late[r] = below(&rng, 2) ? 0 : (int32_t)below(&rng, size);
}

static uint64_t piece_seed(const struct plan *plan, int owner, int piece)
{
    return plan->seed + 977u * (uint64_t)owner + (uint64_t)piece;
}

/* Bytes that a block takes, a guard after every piece. */
static int64_t block_bytes(const struct plan *plan, int owner)
{
    int64_t sum = 0;
    for (int p = 0; p < plan->n_pieces[owner]; p++)
        sum += plan->bytes[owner][p] + GUARD;
    return sum;
}

struct buffer {
    unsigned char *device, *host;
};

struct memory {
    struct buffer own, slots[MAX_SLOTS];
    unsigned char **copies; /* [step]: what was found, when a pass is queued ahead */
    int64_t room;
};

static int memory_open(const struct transport_world *w, struct memory *m)
{
    memset(m, 0, sizeof *m);
    m->room = MAX_PIECES * (int64_t)((6 << 20) + GUARD);
    m->copies = calloc((size_t)w->size, sizeof *m->copies);
    for (int i = 0; m->copies && i < w->size; i++)
        if (w->runtime->host_alloc((void **)&m->copies[i], m->room) != HCP_RC_OK)
            return 0;
    for (int i = -1; i < MAX_SLOTS; i++) {
        struct buffer *b = i < 0 ? &m->own : &m->slots[i];
        if (w->runtime->alloc((void **)&b->device, m->room) != HCP_RC_OK ||
            w->runtime->host_alloc((void **)&b->host, m->room) != HCP_RC_OK)
            return 0;
    }
    return m->copies != NULL;
}

static void memory_close(const struct transport_world *w, struct memory *m)
{
    for (int i = 0; i < w->size; i++)
        w->runtime->host_release(m->copies[i]);
    free(m->copies);
    for (int i = -1; i < MAX_SLOTS; i++) {
        struct buffer *b = i < 0 ? &m->own : &m->slots[i];
        w->runtime->release(b->device);
        w->runtime->host_release(b->host);
    }
}

static void lay_out(const struct plan *plan, int owner, unsigned char *at,
                    struct hcp_message *pieces)
{
    for (int p = 0; p < plan->n_pieces[owner]; p++) {
        pieces[p].data = at;
        pieces[p].bytes = plan->bytes[owner][p];
        at += plan->bytes[owner][p] + GUARD;
    }
}

/* guarded: nobody has written between the pieces before. */
static int check_block(const struct plan *plan, int owner, int step, int guarded,
                       const unsigned char *host, char *why, size_t size)
{
    for (int p = 0; p < plan->n_pieces[owner]; p++) {
        int64_t n = plan->bytes[owner][p];
        int64_t bad = differs(host, n, piece_seed(plan, owner, p));
        for (int g = 0; guarded && bad < 0 && g < GUARD; g++)
            if (host[n + g] != 0xa5)
                bad = n + g;
        if (bad >= 0) {
            snprintf(why, size, "step %d (block of %d) piece %d of %lld bytes: byte %lld",
                     step, owner, p, (long long)n, (long long)bad);
            return 0;
        }
        host += n + GUARD;
    }
    return 1;
}

static int check_times(hcp_transport *t, const struct hcp_transfer *f, int step,
                       double total_ms, char *why, size_t size)
{
    struct hcp_transfer_times at;
    int good = hcp_transport_times(t, step, &at) == HCP_OK;
    if (f->receive)
        good &= at.receive_from_ms >= 0 && at.receive_from_ms <= at.receive_to_ms &&
                at.receive_to_ms <= total_ms;
    else
        good &= isnan(at.receive_from_ms) && isnan(at.receive_to_ms);
    if (f->send)
        good &= at.send_from_ms >= 0 && at.send_from_ms <= at.send_to_ms &&
                at.send_to_ms <= total_ms;
    else
        good &= isnan(at.send_from_ms) && isnan(at.send_to_ms);
    if (!good)
        snprintf(why, size, "times of step %d: %g %g %g %g of %g ms", step,
                 at.receive_from_ms, at.receive_to_ms, at.send_from_ms, at.send_to_ms,
                 total_ms);
    return good;
}

struct pass {
    struct hcp_transfer transfers[MAX_RANKS];
    struct hcp_message pieces[MAX_RANKS][MAX_PIECES];
    int owner[MAX_RANKS];
    int guarded[MAX_RANKS]; /* first block in its buffer */
};

static void make_pass(const struct transport_world *w, const struct plan *plan,
                      const struct memory *m, struct pass *pass)
{
    int received = 0;
    int32_t hops[MAX_RANKS], turn[MAX_RANKS];
    memset(pass, 0, sizeof *pass);
    for (int r = 0; r < w->size; r++)
        hops[r] = plan->reach[r];
    schedule_turns(w->size, hops, plan->late, w->rank, turn);
    for (int k = 0; k < w->size; k++) {
        struct hcp_transfer *f = &pass->transfers[k];
        int owner = pass->owner[k] = turn[k];
        int back = (w->rank + w->size - owner) % w->size;
        f->receive = back > 0 && plan->reach[owner] >= back;
        f->send = plan->reach[owner] > back && back < w->size - 1;
        if (k == 0)
            f->after_step = schedule_own_after(w->size, hops, plan->late, w->rank);
        pass->guarded[k] = received < plan->slots;
        f->slot = f->receive ? received++ % plan->slots : -1;
        f->pieces = pass->pieces[k];
        f->n_pieces = plan->n_pieces[owner];
        lay_out(plan, owner, f->slot < 0 ? m->own.device : m->slots[f->slot].device,
                pass->pieces[k]);
    }
}

static int put_own(const struct transport_world *w, const struct plan *plan,
                   const struct memory *m, void *stream)
{
    unsigned char *at = m->own.host;
    for (int p = 0; p < plan->n_pieces[w->rank]; p++) {
        fill(at, plan->bytes[w->rank][p], piece_seed(plan, w->rank, p));
        at += plan->bytes[w->rank][p];
        memset(at, 0xa5, GUARD);
        at += GUARD;
    }
    int rc = w->runtime->to_device(m->own.device, m->own.host, block_bytes(plan, w->rank),
                                   stream);
    int64_t largest = 0;
    for (int r = 0; r < w->size; r++)
        if (block_bytes(plan, r) > largest)
            largest = block_bytes(plan, r);
    for (int s = 0; rc == HCP_RC_OK && s < plan->slots; s++)
        rc = w->runtime->fill(m->slots[s].device, 0xa5, largest, stream);
    return rc == HCP_RC_OK;
}

/* One step of the pass as the executor does it. rng: of this rank alone. */
static int do_step(const struct transport_world *w, hcp_transport *t,
                   const struct plan *plan, struct memory *m, const struct pass *pass,
                   int k, void *stream, uint64_t *rng, char *why, size_t size)
{
    const struct hcp_transfer *f = &pass->transfers[k];
    int owner = pass->owner[k], there = f->receive || k == 0, rc = HCP_OK;
    unsigned char *device = f->slot < 0 ? m->own.device : m->slots[f->slot].device;
    struct hcp_err err = {0};
    for (int p = 0; f->receive && p < f->n_pieces && rc == HCP_OK; p++)
        rc = hcp_transport_wait(t, k, p, stream, &err);
    if (rc == HCP_OK && !plan->ahead && below(rng, 4) == 0)
        sleep_ms(0.3 * (double)below(rng, 10));
    if (rc == HCP_OK && there) {
        int64_t bytes = block_bytes(plan, owner);
        int copied = plan->ahead
                         ? w->runtime->to_host_async(m->copies[k], device, bytes, stream)
                         : w->runtime->to_host(m->copies[k], device, bytes, stream);
        if (copied != HCP_RC_OK) {
            snprintf(why, size, "copy: %s", w->runtime->last_error());
            return 0;
        }
        if (!plan->ahead &&
            !check_block(plan, owner, k, pass->guarded[k], m->copies[k], why, size))
            return 0;
    }
    if (rc == HCP_OK)
        rc = hcp_transport_done(t, k, stream, &err);
    if (rc != HCP_OK)
        snprintf(why, size, "step %d: %s", k, err.text);
    return rc == HCP_OK;
}

static int run_pass(const struct transport_world *w, hcp_transport *t,
                    const struct plan *plan, struct memory *m, void *start, void *stream,
                    uint64_t *rng, char *why, size_t size)
{
    struct pass pass;
    struct hcp_err err = {0};
    make_pass(w, plan, m, &pass);
    double began = now_s();
    if (!put_own(w, plan, m, stream) ||
        w->runtime->event_record(start, stream) != HCP_RC_OK) {
        snprintf(why, size, "own block: %s", w->runtime->last_error());
        return 0;
    }
    if (hcp_transport_begin(t, pass.transfers, w->size, start, &err) != HCP_OK) {
        snprintf(why, size, "begin: %s", err.text);
        return 0;
    }
    for (int k = 0; k < w->size; k++)
        if (!do_step(w, t, plan, m, &pass, k, stream, rng, why, size))
            return 0;
    if (hcp_transport_end(t, &err) != HCP_OK || w->runtime->sync(stream) != HCP_RC_OK) {
        snprintf(why, size, "end: %s", err.text);
        return 0;
    }
    double total_ms = 1e3 * (now_s() - began) + 1e3; /* two clocks on a GPU */
    for (int k = 0; k < w->size; k++) {
        if (plan->ahead && (pass.transfers[k].receive || k == 0) &&
            !check_block(plan, pass.owner[k], k, pass.guarded[k], m->copies[k], why,
                         size))
            return 0;
        if (!check_times(t, &pass.transfers[k], k, total_ms, why, size))
            return 0;
    }
    return 1;
}

void transport_cases_passes(const struct transport_world *w, int n_passes)
{
    char why[1200] = "";
    struct memory m;
    void *start = NULL, *stream = NULL;
    hcp_transport *t = open_transport(w, PATIENCE_S, why, sizeof why);
    if (!all_ok(w, t != NULL, why, "%s: %d ranks open", w->name, w->size))
        return;
    if (w->rank == 0)
        printf("# %s %s\n", hcp_transport_name(t), hcp_transport_version(t));
    all_ok(w, strcmp(hcp_transport_name(t), w->name) == 0 && *hcp_transport_version(t),
           hcp_transport_version(t), "it says what it is");
    int good = memory_open(w, &m) && w->runtime->stream_create(&stream) == HCP_RC_OK &&
               w->runtime->event_create(&start) == HCP_RC_OK;
    all_ok(w, good, w->runtime->last_error(), "memory");
    uint64_t rng = 1000 + (uint64_t)w->rank;
    good = good && n_passes > 0;
    for (int i = 0; good && i < n_passes; i++) {
        struct plan plan;
        draw_plan(&plan, w->size, 42u + (uint64_t)i);
        good = run_pass(w, t, &plan, &m, start, stream, &rng, why, sizeof why);
        if (!good)
            snprintf(why + strlen(why), sizeof why - strlen(why), " (pass %d)", i);
    }
    struct hcp_err err = {0};
    all_ok(w, good, why, "%d ranks, %d passes: every byte arrives", w->size, n_passes);
    all_ok(w, hcp_transport_check(t, &err) == (good ? HCP_OK : HCP_FAILED), err.text,
           "nothing wrong in the background");
    hcp_transport_close(t);
    w->runtime->event_destroy(start);
    w->runtime->stream_destroy(stream);
    memory_close(w, &m);
}
