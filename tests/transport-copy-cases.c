/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/transport-cases.h"
#include "tests/transport-points.h"

enum { ROOM = 3 << 20, BLOCKS = 3 };

/* Same on both ranks: drawn from the same seed. */
struct draw {
    int64_t bytes[2]; /* of each rank's block */
    int sends[2], block[2];
};

static unsigned draw_number(unsigned *state)
{
    return (*state = *state * 1103515245u + 12345u) >> 8;
}

static void draw(struct draw *d, unsigned *state)
{
    for (int r = 0; r < 2; r++) {
        d->bytes[r] = 1 + draw_number(state) % (draw_number(state) % 2 ? 300 : ROOM);
        d->sends[r] = draw_number(state) % 6 != 0;
        d->block[r] = (int)(draw_number(state) % BLOCKS);
    }
}

static unsigned char byte_of(int rank, int pass, int64_t i)
{
    return (unsigned char)(rank * 101 + pass * 7 + i * 3 + i / 251);
}

struct copies {
    hcp_transport *t;
    void *blocks[BLOCKS], *in, *start, *stream;
    unsigned char *host;
};

static int open_copies(const struct transport_world *w, struct copies *c)
{
    const hcp_runtime *r = w->runtime;
    int good = r->alloc(&c->in, ROOM) == HCP_RC_OK;
    for (int i = 0; i < BLOCKS; i++)
        good = good && r->alloc(&c->blocks[i], ROOM) == HCP_RC_OK;
    c->host = malloc(ROOM);
    return good && c->host && r->stream_create(&c->stream) == HCP_RC_OK &&
           r->event_create(&c->start) == HCP_RC_OK;
}

static int check(const struct transport_world *w, struct copies *c, const struct draw *d,
                 int pass, char *why, size_t size)
{
    struct hcp_transfer_times own, other;
    int64_t n = d->bytes[!w->rank];
    hcp_transport_times(c->t, 0, &own);
    hcp_transport_times(c->t, 1, &other);
    int times = d->sends[w->rank] ? own.send_to_ms >= own.send_from_ms
                                  : isnan(own.send_to_ms) && isnan(own.send_from_ms);
    times &= d->sends[!w->rank] ? other.receive_to_ms >= other.receive_from_ms &&
                                      other.receive_from_ms >= 0
                                : isnan(other.receive_to_ms);
    if (!times)
        snprintf(why, size, "times %g %g, %g %g", own.send_from_ms, own.send_to_ms,
                 other.receive_from_ms, other.receive_to_ms);
    for (int64_t i = 0; times && d->sends[!w->rank] && i < n; i++)
        if (c->host[i] != byte_of(!w->rank, pass, i)) {
            snprintf(why, size, "byte %lld of %lld", (long long)i, (long long)n);
            return 0;
        }
    return times;
}

static int one_pass(const struct transport_world *w, struct copies *c,
                    const struct draw *d, int pass, char *why, size_t size)
{
    const hcp_runtime *r = w->runtime;
    int me = w->rank;
    void *block = c->blocks[d->block[me]];
    struct hcp_message out = {block, d->bytes[me]}, in = {c->in, d->bytes[!me]};
    const struct hcp_transfer steps[2] = {
        {.send = d->sends[me], .slot = -1, .pieces = &out, .n_pieces = 1},
        {.receive = d->sends[!me], .slot = 0, .pieces = &in, .n_pieces = 1}};
    struct hcp_err err = {0};
    for (int64_t i = 0; i < out.bytes; i++)
        c->host[i] = byte_of(me, pass, i);
    int good = r->to_device(block, c->host, out.bytes, c->stream) == HCP_RC_OK &&
               r->sync(c->stream) == HCP_RC_OK; /* written before begin() */
    good = good && r->fill(c->in, 0, ROOM, c->stream) == HCP_RC_OK &&
           r->event_record(c->start, c->stream) == HCP_RC_OK;
    int rc = good ? hcp_transport_begin(c->t, steps, 2, c->start, &err) : HCP_FAILED;
    if (rc == HCP_OK)
        rc = hcp_transport_done(c->t, 0, c->stream, &err);
    if (rc == HCP_OK && d->sends[!me])
        rc = hcp_transport_wait(c->t, 1, 0, c->stream, &err);
    if (rc == HCP_OK && d->sends[!me] &&
        r->to_host_async(c->host, c->in, in.bytes, c->stream) != HCP_RC_OK)
        rc = HCP_FAILED;
    if (rc == HCP_OK)
        rc = hcp_transport_done(c->t, 1, c->stream, &err);
    if (rc == HCP_OK)
        rc = hcp_transport_end(c->t, &err);
    if (rc != HCP_OK || r->sync(c->stream) != HCP_RC_OK) {
        snprintf(why, size, "%s %s", err.text, r->last_error());
        return 0;
    }
    return check(w, c, d, pass, why, size);
}

/* A pass of two pieces. */
static void refused(const struct transport_world *w, struct copies *c)
{
    struct hcp_message out[2] = {{c->blocks[0], 8}, {c->blocks[1], 8}};
    const struct hcp_transfer steps[1] = {
        {.send = 1, .slot = -1, .pieces = out, .n_pieces = 2}};
    struct hcp_err err = {0};
    w->runtime->event_record(c->start, c->stream);
    int rc = hcp_transport_begin(c->t, steps, 1, c->start, &err);
    all_ok(w, rc == HCP_FAILED && strstr(err.text, "one block each way, in one piece"),
           err.text, "copy: refused: two pieces");
}

void transport_cases_copies(const struct transport_world *w, int n_passes)
{
    struct copies c = {0};
    char why[1200] = "";
    unsigned state = 7;
    int good = 1;
    c.t = open_transport(w, PATIENCE_S, why, sizeof why);
    if (!all_ok(w, c.t != NULL, why, "copy: two ranks open: %s", why))
        return;
    if (w->rank == 0)
        printf("# %s %s\n", hcp_transport_name(c.t), hcp_transport_version(c.t));
    good = all_ok(w, open_copies(w, &c), w->runtime->last_error(), "copy: memory");
    for (int i = 0; good && i < n_passes; i++) {
        struct draw d;
        draw(&d, &state);
        good = one_pass(w, &c, &d, i, why, sizeof why);
        if (!good)
            snprintf(why + strlen(why), sizeof why - strlen(why), " (pass %d)", i);
    }
    good = all_ok(w, good, why, "copy: %d passes: every byte arrives", n_passes);
    if (good)
        refused(w, &c);
    hcp_transport_close(c.t);
    w->runtime->event_destroy(c.start);
    w->runtime->stream_destroy(c.stream);
    for (int i = 0; i < BLOCKS; i++)
        w->runtime->release(c.blocks[i]);
    w->runtime->release(c.in);
    free(c.host);
}
