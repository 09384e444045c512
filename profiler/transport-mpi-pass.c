/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/transport-mpi.h"

static int grow_steps(struct mpi_transport *m, struct hcp_err *err)
{
    int32_t n = m->base.n_steps;
    if (n <= m->steps_room)
        return HCP_OK;
    struct hcp_transfer_times *times = realloc(m->times, (size_t)n * sizeof *times);
    if (times)
        m->times = times;
    int32_t *sent_with = realloc(m->sent_with, (size_t)n * sizeof *sent_with);
    if (sent_with)
        m->sent_with = sent_with;
    void **events = realloc(m->step_done, (size_t)n * sizeof *events);
    if (events)
        m->step_done = events;
    if (!times || !sent_with || !events)
        return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
    for (; m->steps_room < n; m->steps_room++) {
        void **event = &events[m->steps_room];
        *event = NULL;
        if (m->staged && failed_device(m, m->base.runtime->event_create(event),
                                       "create an event", err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

static int grow_messages(struct mpi_transport *m, struct hcp_err *err)
{
    int32_t n = m->n_messages, n_pieces = m->base.n_pieces;
    if (n_pieces > m->pieces_room) {
        int32_t *last = realloc(m->last, (size_t)n_pieces * sizeof *last);
        if (!last)
            return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
        m->last = last;
        m->pieces_room = n_pieces;
    }
    if (n <= m->messages_room)
        return HCP_OK;
    struct mpi_message *messages = realloc(m->messages, (size_t)n * sizeof *messages);
    if (messages)
        m->messages = messages;
    int32_t *receives = realloc(m->receives, (size_t)n * sizeof *receives);
    if (receives)
        m->receives = receives;
    int32_t *sends = realloc(m->sends, (size_t)n * sizeof *sends);
    if (sends)
        m->sends = sends;
    if (!messages || !receives || !sends)
        return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
    for (; m->messages_room < n; m->messages_room++) {
        struct mpi_message *p = &messages[m->messages_room];
        memset(p, 0, sizeof *p);
        p->receive = p->send = MPI_REQUEST_NULL;
        if (m->staged && failed_device(m, m->base.runtime->event_create(&p->copied),
                                       "create an event", err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

/* Host memory that every block of this stage fits in. */
static int grow_stage(struct mpi_transport *m, int32_t index, int64_t bytes,
                      struct hcp_err *err)
{
    const hcp_runtime *run = m->base.runtime;
    if (index >= m->n_stages) {
        struct stage *grown = realloc(m->stages, (size_t)(index + 1) * sizeof *grown);
        if (!grown)
            return hcp_fail(err, HCP_FAILED, "mpi transport: out of memory");
        m->stages = grown;
        memset(&grown[m->n_stages], 0, (size_t)(index + 1 - m->n_stages) * sizeof *grown);
        m->n_stages = index + 1;
    }
    struct stage *s = &m->stages[index];
    if (bytes <= s->room)
        return HCP_OK;
    run->host_release(s->memory);
    s->memory = NULL;
    s->room = 0;
    if (failed_device(m, run->host_alloc(&s->memory, bytes), "pin host memory", err) !=
        HCP_OK)
        return HCP_FAILED;
    s->room = bytes;
    return HCP_OK;
}

static int32_t stage_of(const struct transport_step *s)
{
    return s->transfer.receive ? s->transfer.slot + 1 : 0;
}

static int grow_stages(struct mpi_transport *m, struct hcp_err *err)
{
    for (int32_t k = 0; k < m->base.n_steps; k++) {
        const struct hcp_transfer *f = &m->base.steps[k].transfer;
        int64_t bytes = 0;
        for (int32_t i = 0; i < f->n_pieces; i++)
            bytes += f->pieces[i].bytes;
        if (grow_stage(m, stage_of(&m->base.steps[k]), bytes, err) != HCP_OK)
            return HCP_FAILED;
    }
    return HCP_OK;
}

static int32_t messages_of(int64_t bytes)
{
    return (int32_t)((bytes + MPI_CHUNK - 1) / MPI_CHUNK);
}

static int count_messages(struct mpi_transport *m, struct hcp_err *err)
{
    int64_t n = 0;
    for (int32_t k = 0; k < m->base.n_steps; k++) {
        const struct hcp_transfer *f = &m->base.steps[k].transfer;
        for (int32_t i = 0; i < f->n_pieces; i++) {
            if (f->pieces[i].bytes / MPI_CHUNK >= INT32_MAX - n)
                return hcp_fail(err, HCP_FAILED,
                                "mpi transport: step %d piece %d has %lld bytes", k, i,
                                (long long)f->pieces[i].bytes);
            n += messages_of(f->pieces[i].bytes);
        }
    }
    m->n_messages = (int32_t)n;
    return HCP_OK;
}

/* The odd bytes are in a piece's first message: lengths that differ show in the first
 * that arrives, or there is a whole message too few or too many. */
static void list_piece(struct mpi_transport *m, int32_t k, int32_t i, int32_t received,
                       int32_t *at, char *host)
{
    const struct transport_step *s = &m->base.steps[k];
    const struct hcp_message *piece = &s->transfer.pieces[i];
    int32_t n = messages_of(piece->bytes);
    int64_t offset = 0, bytes = piece->bytes - (int64_t)(n - 1) * MPI_CHUNK;
    for (int32_t c = 0; c < n; c++, offset += bytes, bytes = MPI_CHUNK, ++*at) {
        struct mpi_message *p = &m->messages[*at];
        p->step = k;
        p->piece = i;
        p->first = i == 0 && c == 0;
        p->bytes = bytes;
        p->data = (char *)piece->data + offset;
        p->host = m->staged ? host + offset : p->data;
        p->receive_order = s->transfer.receive ? m->n_receives : -1;
        p->nth_received = received;
        if (s->transfer.receive)
            m->receives[m->n_receives++] = *at;
    }
    m->last[s->first + i] = *at - 1;
}

/* The messages of all steps are listed by step; these are sent in another order where the
 * own block is not first. sent_with holds each step's first message until here. */
static void list_sends(struct mpi_transport *m)
{
    int32_t sent = 0; /* blocks */

    for (int32_t n = 0; n < m->base.n_steps; n++) {
        int32_t k = transport_sends(&m->base, n), at = m->sent_with[k];
        if (m->base.steps[k].transfer.send)
            sent++;
        for (; m->base.steps[k].transfer.send && at < m->n_messages; at++) {
            if (m->messages[at].step != k)
                break;
            m->messages[at].nth_sent = sent;
            m->sends[m->n_sends++] = at;
        }
        m->sent_with[k] = m->base.steps[k].transfer.send ? m->n_sends : 0;
    }
}

static void list_messages(struct mpi_transport *m)
{
    const struct hcp_transfer_times none = {NAN, NAN, NAN, NAN};
    int32_t at = 0, received = 0; /* messages, blocks */
    m->n_receives = m->n_sends = 0;
    for (int32_t k = 0; k < m->base.n_steps; k++) {
        const struct transport_step *s = &m->base.steps[k];
        int64_t offset = 0;
        m->times[k] = none;
        m->sent_with[k] = at;
        received += s->transfer.receive != 0;
        for (int32_t i = 0; i < s->transfer.n_pieces; i++) {
            list_piece(m, k, i, received, &at,
                       m->staged ? (char *)m->stages[stage_of(s)].memory + offset : NULL);
            offset += s->transfer.pieces[i].bytes;
        }
    }
    list_sends(m);
}

int hcp_mpi_make_pass(struct mpi_transport *m, struct hcp_err *err)
{
    if (count_messages(m, err) != HCP_OK || grow_steps(m, err) != HCP_OK ||
        grow_messages(m, err) != HCP_OK || (m->staged && grow_stages(m, err) != HCP_OK))
        return HCP_FAILED;
    list_messages(m);
    return HCP_OK;
}

void hcp_mpi_free_pass(struct mpi_transport *m)
{
    const hcp_runtime *run = m->base.runtime;
    for (int32_t i = 0; m->staged && i < m->messages_room; i++)
        run->event_destroy(m->messages[i].copied);
    for (int32_t i = 0; m->staged && i < m->steps_room; i++)
        run->event_destroy(m->step_done[i]);
    for (int32_t i = 0; (!m->base.failed || m->base.settled) && i < m->n_stages; i++)
        run->host_release(m->stages[i].memory);
    free(m->messages);
    free(m->last);
    free(m->receives);
    free(m->sends);
    free(m->times);
    free(m->step_done);
    free(m->sent_with);
    free(m->stages);
}
