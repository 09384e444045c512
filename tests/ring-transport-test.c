/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports without a GPU; ring-transport.sh runs this under mpirun. "cpu": mpi
 * between CPU ranks. On the streams of fake-gpu: "staged", mpi with copies to and from
 * the host, "nccl" with fake-nccl, and "copy".
 * Usage: ring-transport-test cpu|staged|nccl|copy CASE..., one of them: passes N
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fake-gpu.h"
#include "tests/transport-cases.h"
#include "tests/transport-points.h"

static void mismatch(const struct transport_world *w)
{
    transport_cases_mismatch(w, 100, 1);
    transport_cases_mismatch(w, 100, -1);
    transport_cases_mismatch(w, 3 << 20, 5);
    transport_cases_mismatch(w, 3 << 20, -5);
    transport_cases_mismatch(w, 3 << 20, 1 << 20);
    transport_cases_mismatch(w, 3 << 20, -(2 << 20));
}

/* A length that is not the one expected; whole messages more or less do not exist. */
static void length(const struct transport_world *w)
{
    transport_cases_mismatch(w, 100, 1);
}

static void untaken(const struct transport_world *w)
{
    transport_cases_untaken(w, 8 << 20);
}

static void host_ids(const struct transport_world *w)
{
    transport_cases_host_ids(w);
}

/* Queues that a process asks for, by how many share the device. */
static void queues(const struct transport_world *w)
{
    static const struct {
        int sharing;
        const char *queues;
    } cases[] = {{1, "32"}, {3, "32"}, {4, "24"}, {8, "12"}, {48, "2"}, {100, "2"}};
    const char *was = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    struct hcp_err err;
    char keep[32] = "";
    int good = 1;

    snprintf(keep, sizeof keep, "%s", was ? was : "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
        good &= hcp_transport_prepare(cases[i].sharing, &err) == HCP_OK &&
                strcmp(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), cases[i].queues) == 0;
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "5", 1);
    good &= hcp_transport_prepare(4, &err) == HCP_OK &&
            strcmp(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "5") == 0;
    if (*keep)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", keep, 1);
    else
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    all_ok(w, good, "", "processes that share a device share its queues");
}

static void shared(const struct transport_world *w)
{
    transport_cases_shared(w, 0);
}

/* Keeps a stream busy until *open. */
static void gate(void *arg)
{
    atomic_int *open = *(atomic_int **)arg;

    free(arg);
    while (!atomic_load(open))
        sleep_ms(0.1);
}

static int shut(void *stream, atomic_int *open)
{
    atomic_int **arg = malloc(sizeof(atomic_int *));

    if (!arg)
        return 0;
    *arg = open;
    atomic_store(open, 0);
    ((fake_stream *)stream)->call(stream, gate, arg);
    return 1;
}

/* What computes beside transfers starts after these have been given to the device, also
 * where passes before had nothing that computed. */
static void precede(const struct transport_world *w)
{
    static unsigned char own[4096], got[4096];
    static atomic_int open;
    const hcp_runtime *r = w->runtime;
    struct hcp_message out = {own, sizeof own}, in = {got, sizeof got};
    const struct hcp_transfer steps[2] = {
        {.send = 1, .slot = -1, .pieces = &out, .n_pieces = 1},
        {.receive = 1, .slot = 0, .pieces = &in, .n_pieces = 1}};
    void *before = NULL, *stream = NULL, *start = NULL, *computed = NULL;
    char why[1200] = "";
    struct hcp_err err = {0};
    hcp_transport *t = open_transport(w, PATIENCE_S, why, sizeof why);
    int good = t && r->stream_create(&before) == HCP_RC_OK &&
               r->stream_create(&stream) == HCP_RC_OK &&
               r->event_create(&start) == HCP_RC_OK &&
               r->event_create(&computed) == HCP_RC_OK;

    for (int pass = 0; good && pass < 6; pass++) {
        int beside = pass % 2, early = 1, late = 0;

        good = shut(before, &open) && r->event_record(start, before) == HCP_RC_OK &&
               hcp_transport_begin(t, steps, 2, start, &err) == HCP_OK &&
               (!beside || hcp_transport_precede(t, stream, &err) == HCP_OK) &&
               r->event_record(computed, stream) == HCP_RC_OK;
        sleep_ms(20);
        good = good && r->event_done(computed, &early) == HCP_RC_OK;
        good = good && (!beside || !early);
        atomic_store(&open, 1);
        good = good && hcp_transport_done(t, 0, stream, &err) == HCP_OK &&
               hcp_transport_wait(t, 1, 0, stream, &err) == HCP_OK &&
               hcp_transport_done(t, 1, stream, &err) == HCP_OK &&
               hcp_transport_end(t, &err) == HCP_OK && r->sync(stream) == HCP_RC_OK &&
               r->event_done(computed, &late) == HCP_RC_OK && late;
        if (!good)
            snprintf(why, sizeof why, "pass %d: %s%s", pass,
                     early ? "it did not wait" : "", err.text);
    }
    all_ok(w, good, why, "%s: computing comes after the launch of transfers", w->name);
    hcp_transport_close(t);
    r->event_destroy(start);
    r->event_destroy(computed);
    r->stream_destroy(before);
    r->stream_destroy(stream);
}

enum { SETTLED_BYTES = 300000 };

/* Passes that some ranks have not begun, and nobody ends: once they are settled nothing
 * is written to their blocks, and transports that follow are none the worse. */
static void settle(const struct transport_world *w)
{
    static unsigned char block[2][SETTLED_BYTES];
    const hcp_runtime *r = w->runtime;
    char why[1200] = "";
    int good = 1, begun = 0;

    for (int round = 0; round < 8; round++) {
        struct hcp_message out = {block[0], SETTLED_BYTES};
        struct hcp_message in = {block[1], SETTLED_BYTES};
        const struct hcp_transfer steps[2] = {
            {.send = 1, .slot = -1, .pieces = &out, .n_pieces = 1},
            {.receive = 1, .slot = 0, .pieces = &in, .n_pieces = 1}};
        struct hcp_err err = {0};
        void *stream = NULL, *start = NULL;
        hcp_transport *t = open_transport(w, PATIENCE_S, why, sizeof why);

        if (!t || r->stream_create(&stream) || r->event_create(&start))
            abort();
        memset(block, 1, sizeof block);
        if ((round + w->rank) % 3 != 0) {
            begun++;
            good &= r->event_record(start, stream) == HCP_RC_OK &&
                    hcp_transport_begin(t, steps, 2, start, &err) == HCP_OK;
        }
        sleep_ms((round * 5 + w->rank * 3) % 7);
        good &= hcp_transport_settle(t, &err) == HCP_OK;
        if (*err.text)
            snprintf(why, sizeof why, "round %d: %s", round, err.text);
        memset(block, 2, sizeof block);
        hcp_transport_close(t);
        MPI_Barrier(w->comm);
        for (size_t i = 0; i < sizeof block; i++)
            if (((unsigned char *)block)[i] != 2) {
                snprintf(why, sizeof why, "round %d: a block was written", round);
                good = 0;
                break;
            }
        r->event_destroy(start);
        r->stream_destroy(stream);
    }
    all_ok(w, good && begun > 0, why, "%s: passes that nobody ends are settled", w->name);
}

/* 0: there is no such case. */
static int run_case(const struct transport_world *w, const char *what, char **more,
                    int *taken)
{
    static const struct {
        const char *name;
        void (*run)(const struct transport_world *w);
    } cases[] = {
        {"huge", transport_cases_huge},
        {"silent", transport_cases_silent},
        {"untaken", untaken},
        {"cancel", transport_cases_cancel},
        {"refused", transport_cases_refused},
        {"mismatch", mismatch},
        {"length", length},
        {"channels", transport_cases_channels},
        {"shared", shared},
        {"queues", queues},
        {"hosts", host_ids},
        {"precede", precede},
        {"settle", settle},
    };
    if (strcmp(what, "passes") == 0) {
        int n = *more ? atoi(*more) : 10;

        *taken += *more != NULL;
        if (strcmp(w->name, "copy") == 0)
            transport_cases_copies(w, n);
        else
            transport_cases_passes(w, n);
        return 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(what, cases[i].name) == 0) {
            cases[i].run(w);
            return 1;
        }
    if (w->rank == 0)
        fprintf(stderr, "ring-transport-test: no case '%s'\n", what);
    return 0;
}

int main(int argc, char **argv)
{
    struct transport_world w = {.comm = MPI_COMM_WORLD};
    const char *where = argc > 1 ? argv[1] : "";
    int level, found = argc > 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(w.comm, &w.rank);
    MPI_Comm_size(w.comm, &w.size);
    w.name = strcmp(where, "nccl") == 0   ? "nccl"
             : strcmp(where, "copy") == 0 ? "copy"
                                          : "mpi";
    w.runtime = strcmp(where, "cpu") == 0 ? hcp_runtime_cpu() : fake_gpu_runtime();
    w.ordinal = strcmp(where, "cpu") == 0 ? 0 : w.rank;
    for (int i = 2; i < argc; i++)
        found &= run_case(&w, argv[i], &argv[i + 1], &i);
    int status = transport_cases_done(&w);
    MPI_Finalize();
    return status || !found;
}
