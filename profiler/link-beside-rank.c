/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass is the first step of an executor's (executor/ring.c), queued in the same order
 * on the same kinds of streams: the own block is computed while it is sent and the
 * other's comes, then computing waits for that one. The three passes of a round (the
 * block alone, the transfer alone, both) follow each other, so that clocks, neighbours
 * and drift meet all three alike; both ranks do the same at the same time.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda.h"
#include "profiler/limiter.h"
#include "profiler/link-beside-rank.h"
#include "profiler/measure.h"

enum {
    VISITS = 3,        /* of each block */
    MIN_ROUNDS = 4,    /* of a visit, */
    MAX_ROUNDS = 40,   /* up to here until MIN_MS */
    FEW_ROUNDS = 1,    /* when CAP_MS are over */
    MAX_REPEATS = 2000 /* passes in a sample under a duty cycle */
};
#define MIN_MS 60.0
#define CAP_MS 1500.0
#define WARM_UP_MS 50.0
/* Of a duty cycle a stop may fall into a pass beside its computing: more cycles than for
 * computing alone even that out. */
#define DUTY_SAMPLE_MS (3e3 * HCP_CPU_SAMPLE_S)

enum what { COMPUTE = 1, TRANSFER = 2, BOTH = 3 };

static int failed(const struct link_beside *b, int rc, const char *doing,
                  struct hcp_err *err)
{
    const char *why = rc == HCP_RC_OK ? "" : b->plan->runtime->last_error();
    return rc == HCP_RC_OK ? HCP_OK
                           : hcp_fail(err, HCP_FAILED, "cannot %s: %s", doing,
                                      *why ? why : "the device failed");
}

/* ---- before ----------------------------------------------------------------- */

static int describe(const struct link_plan *plan, int32_t ordinal, hcp_device_ref *ref,
                    int64_t *cold_bytes, struct hcp_err *err)
{
    if (plan->runtime->kind == HCP_DEVICE_CPU) {
        char name[96], uuid[64];
        int64_t llc, memory;
        int cores;
        hcp_cpu_describe(name, uuid, &llc, &memory, &cores);
        *ref =
            (hcp_device_ref){.size = sizeof *ref, .kind = HCP_DEVICE_CPU, .sm_count = 1};
        *cold_bytes = 2 * llc;
        return HCP_OK;
    }
#ifdef HAVE_CUDA
    hcp_cuda_info cuda = {.size = sizeof cuda};
    char why[700] = "";
    *ref = (hcp_device_ref){.size = sizeof *ref};
    if (hcp_cuda_device(ordinal, ref, &cuda, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    *cold_bytes = 2 * cuda.l2_bytes;
    return HCP_OK;
#else
    (void)ordinal;
    return hcp_fail(err, HCP_FAILED, "no CUDA in this build");
#endif
}

static int open_bench(struct link_beside *b, int32_t ordinal, struct hcp_err *err)
{
    const struct hcp_beside_job *job = b->job;
    struct hcp_device_config config = {.phase = "prefill",
                                       .batch = 1,
                                       .heads = job->heads,
                                       .kv_heads = job->kv_heads,
                                       .head_dim = job->head_dim};
    struct hcp_device_info info = {0};
    hcp_device_ref ref;
    int64_t cold_bytes = 0;
    char checked[64];
    strcpy(config.dtype, job->dtype);
    strcpy(config.provider, job->provider);
    strcpy(config.plugin, job->plugin);
    int rc = describe(b->plan, ordinal, &ref, &cold_bytes, err);
    if (rc == HCP_OK)
        rc = hcp_bench_open(&b->bench, &config, b->plan->runtime, &ref, cold_bytes, &info,
                            err);
    if (rc != HCP_OK)
        return rc;
    b->opened = 1;
    struct beside_side *mine = &b->sides[b->plan->rank];
    strcpy(mine->provider, info.provider);
    strcpy(mine->version, info.provider_version);
    return hcp_bench_check(&b->bench, checked, err); /* no wrong kernel is timed */
}

static int open_buffers(struct link_beside *b, struct hcp_err *err)
{
    const hcp_runtime *r = b->plan->runtime;
    void *stream = b->bench.stream;
    int64_t bytes = 0;
    for (size_t i = 0; i < b->job->n; i++)
        bytes = b->job->blocks[i].bytes > bytes ? b->job->blocks[i].bytes : bytes;
    void **events[] = {&b->start, &b->begun, &b->done, &b->next};
    int rc = HCP_OK;
    for (size_t i = 0; i < 4 && rc == HCP_OK; i++)
        rc = failed(b, r->event_create(events[i]), "make an event", err);
    if (rc == HCP_OK && (r->alloc(&b->send, bytes) != HCP_RC_OK ||
                         r->alloc(&b->receive, bytes) != HCP_RC_OK))
        rc = hcp_fail(err, HCP_FAILED,
                      "no memory for two blocks of %lld bytes; give smaller --lens",
                      (long long)bytes);
    if (rc == HCP_OK)
        rc = failed(b, r->fill(b->send, 0x3f, bytes, stream), "fill a block", err);
    if (rc == HCP_OK)
        rc = failed(b, r->sync(stream), "fill a block", err);
    return rc;
}

/* Every block has a plan and its memory before any is timed: what is not supported is
 * known then, and nothing is allocated in a visit. */
static int prepare(struct link_beside *b, size_t block, struct hcp_bench_plan **plan,
                   struct hcp_err *err)
{
    const struct hcp_beside_block *s = &b->job->blocks[block];
    struct hcp_cell_request cell = {.q_len = s->q_len, .kv_len = s->kv_len};
    strcpy(cell.mask, s->mask);
    return hcp_bench_prepare(&b->bench, &cell, plan, err);
}

int link_beside_ready(struct link_beside *b, struct hcp_err *err)
{
    struct hcp_bench_plan *unused;
    int rc = HCP_OK;
    for (size_t i = 0; i < b->job->n && rc == HCP_OK; i++)
        rc = prepare(b, i, &unused, err);
    if (rc == HCP_OK)
        rc = open_buffers(b, err);
    return rc == HCP_OK ? link_hold_open(&b->hold, b->plan, err) : rc;
}

int link_beside_open(struct link_beside *b, const struct hcp_beside_job *job,
                     const struct link_plan *plan, int32_t ordinal, struct hcp_err *err)
{
    b->job = job;
    b->plan = plan;
    int rc = open_bench(b, ordinal, err);
    return rc == HCP_OK ? link_beside_ready(b, err) : rc;
}

void link_beside_close(struct link_beside *b)
{
    const hcp_runtime *r = b->plan->runtime;
    link_hold_close(&b->hold, b->plan);
    r->release(b->send);
    r->release(b->receive);
    r->event_destroy(b->start);
    r->event_destroy(b->begun);
    r->event_destroy(b->done);
    r->event_destroy(b->next);
    if (b->opened)
        hcp_bench_close(&b->bench);
}

/* ---- a pass ----------------------------------------------------------------- */

static int record(const struct link_beside *b, void *event, struct hcp_err *err)
{
    return failed(b, b->plan->runtime->event_record(event, b->bench.stream),
                  "record an event", err);
}

static int compute(struct link_beside *b, const struct hcp_bench_plan *plan,
                   struct hcp_err *err)
{
    int rc = record(b, b->begun, err), ran;
    if (rc == HCP_OK && (ran = hcp_bench_run(&b->bench, plan)) != HCP_RC_OK)
        rc = hcp_bench_fail(&b->bench, ran, "run", err);
    return rc == HCP_OK ? record(b, b->done, err) : rc;
}

static int queue(struct link_beside *b, const struct hcp_bench_plan *plan, int what,
                 const struct hcp_transfer steps[2], struct hcp_err *err)
{
    hcp_transport *t = b->plan->transport;
    void *stream = b->bench.stream;
    int rc = record(b, b->start, err);
    if (rc == HCP_OK && what & TRANSFER)
        rc = hcp_transport_begin(t, steps, 2, b->start, err);
    if (rc == HCP_OK && what == BOTH)
        rc = hcp_transport_precede(t, stream, err);
    if (rc == HCP_OK && what & COMPUTE)
        rc = compute(b, plan, err);
    if (rc == HCP_OK && what & TRANSFER)
        rc = hcp_transport_done(t, 0, stream, err);
    if (rc == HCP_OK && what & TRANSFER)
        rc = hcp_transport_wait(t, 1, 0, stream, err);
    if (rc == HCP_OK) /* here the other's block would be computed */
        rc = record(b, b->next, err);
    if (rc == HCP_OK && what & TRANSFER)
        rc = hcp_transport_done(t, 1, stream, err);
    return rc;
}

/* Times of a pass: of those that it does not have, NaN. */
static int read_times(const struct link_beside *b, int what, double ms[HCP_BESIDE_TIMES],
                      struct hcp_err *err)
{
    const hcp_runtime *r = b->plan->runtime;
    struct hcp_transfer_times times = {.receive_to_ms = 0};
    double begun = 0, done = 0, next = 0;
    int rc = HCP_RC_OK;
    for (int i = 0; i < HCP_BESIDE_TIMES; i++)
        ms[i] = NAN;
    if (what & TRANSFER && hcp_transport_times(b->plan->transport, 1, &times) != HCP_OK)
        return hcp_fail(err, HCP_FAILED, "the transport does not say what it took");
    if (what & COMPUTE)
        rc = r->event_ms(b->start, b->begun, &begun);
    if (rc == HCP_RC_OK && what & COMPUTE)
        rc = r->event_ms(b->start, b->done, &done);
    if (rc == HCP_RC_OK)
        rc = r->event_ms(b->start, b->next, &next);
    if (rc != HCP_RC_OK)
        return failed(b, rc, "read an event", err);
    if (what & TRANSFER)
        ms[what == BOTH ? HCP_BESIDE_TRANSFER : HCP_BESIDE_TRANSFER_ALONE] =
            times.receive_to_ms;
    if (what & COMPUTE)
        ms[what == BOTH ? HCP_BESIDE_COMPUTE : HCP_BESIDE_ALONE] = done - begun;
    if (what == BOTH) /* not for the data: for launches, events, threads that wake up */
        ms[HCP_BESIDE_WAIT] = begun + fmax(next - fmax(done, times.receive_to_ms), 0);
    return HCP_OK;
}

/* Collective. */
static int pass(struct link_beside *b, size_t block, const struct hcp_bench_plan *plan,
                int what, int may_hold, double ms[HCP_BESIDE_TIMES], struct hcp_err *err)
{
    const struct link_plan *p = b->plan;
    struct hcp_message out = {b->send, b->job->blocks[block].bytes};
    struct hcp_message in = {b->receive, out.bytes};
    const struct hcp_transfer steps[2] = {
        {.send = 1, .slot = -1, .pieces = &out, .n_pieces = 1},
        {.receive = 1, .slot = 0, .pieces = &in, .n_pieces = 1}};
    int held = may_hold && link_holds(&b->hold), rc = HCP_OK;
    MPI_Barrier(p->comm);
    if (held)
        rc = link_hold_launch(&b->hold, b->bench.stream, err);
    if (rc == HCP_OK)
        rc = queue(b, plan, what, steps, err);
    if (rc == HCP_OK && held)
        link_hold_release(&b->hold, p->comm);
    if (rc == HCP_OK && what & TRANSFER)
        rc = hcp_transport_end(p->transport, err);
    if (rc == HCP_OK)
        rc = failed(b, p->runtime->sync(b->bench.stream), "finish a block", err);
    if (rc == HCP_OK)
        rc = link_hold_check(&b->hold, err);
    return rc == HCP_OK ? read_times(b, what, ms, err) : rc;
}

/* ---- rounds ----------------------------------------------------------------- */

/* Means over repeats of all times; begins with a different pass each round. */
static int one_round(struct link_beside *b, size_t block,
                     const struct hcp_bench_plan *plan, int repeats, int turn,
                     double ms[HCP_BESIDE_TIMES], struct hcp_err *err)
{
    static const int whats[3] = {COMPUTE, TRANSFER, BOTH};
    double one[HCP_BESIDE_TIMES];
    memset(ms, 0, HCP_BESIDE_TIMES * sizeof *ms);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < repeats; k++) {
            int rc = pass(b, block, plan, whats[(turn + i) % 3], 1, one, err);
            if (rc != HCP_OK)
                return rc;
            for (int t = 0; t < HCP_BESIDE_TIMES; t++)
                ms[t] += isnan(one[t]) ? 0 : one[t] / repeats;
        }
    return HCP_OK;
}

/* The later of both ranks, so that both do the same. */
static double agreed(const struct link_beside *b, double ms)
{
    MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, b->plan->comm);
    return ms;
}

/* Modules, before a transfer waits for them; clocks; connections. *ms: of the last pass,
 * of both together. */
static int warm_up(struct link_beside *b, size_t block, const struct hcp_bench_plan *plan,
                   double *ms, struct hcp_err *err)
{
    double one[HCP_BESIDE_TIMES], begin_s = hcp_now_s(), spent = 0;
    int rc = pass(b, block, plan, COMPUTE, 0, one, err);
    while (rc == HCP_OK && spent < WARM_UP_MS) {
        double from_s = hcp_now_s();
        rc = pass(b, block, plan, BOTH, 0, one, err);
        if (rc != HCP_OK)
            return rc; /* the other rank may be in there still */
        *ms = agreed(b, 1e3 * (hcp_now_s() - from_s));
        spent = agreed(b, 1e3 * (hcp_now_s() - begin_s));
    }
    return rc;
}

static int visit(struct link_beside *b, size_t block, struct hcp_err *err)
{
    struct beside_block *s = &b->sides[b->plan->rank].block[block];
    struct hcp_bench_plan *plan = NULL;
    double warm_ms = 0, spent = 0, ms[HCP_BESIDE_TIMES];
    int n = 0, rc = prepare(b, block, &plan, err);
    if (rc == HCP_OK && s->round_ms < CAP_MS) /* longer ones warm themselves */
        rc = warm_up(b, block, plan, &warm_ms, err);
    if (rc == HCP_OK && s->repeats == 0)
        s->repeats = !b->plan->throttled
                         ? 1
                         : (int)fmin(MAX_REPEATS, ceil(DUTY_SAMPLE_MS / warm_ms));
    while (rc == HCP_OK && s->n < HCP_LINK_SAMPLES && n < MAX_ROUNDS &&
           (n < MIN_ROUNDS || spent < MIN_MS) && (n < FEW_ROUNDS || spent < CAP_MS)) {
        double from_s = hcp_now_s();
        rc = one_round(b, block, plan, s->repeats, n, ms, err);
        if (rc != HCP_OK)
            return rc;
        for (int t = 0; t < HCP_BESIDE_TIMES; t++)
            s->ms[t][s->n] = ms[t];
        s->n++;
        n++;
        double took = agreed(b, 1e3 * (hcp_now_s() - from_s));
        s->round_ms = took;
        spent += took;
    }
    return rc;
}

static double area(const struct hcp_beside_block *s)
{
    double all = (double)s->q_len * (double)s->kv_len;
    return strcmp(s->mask, "causal") == 0 ? all / 2 : all;
}

/* Rank 0's clock decides. Of a block not yet met the one before, by its pairs of query
 * and key, says what it is likely to take. */
static int fits(const struct link_beside *b, size_t i, double begin_s)
{
    const struct beside_block *s = b->sides[b->plan->rank].block;
    int yes = 1;
    if (b->plan->rank == 0 && isfinite(b->plan->budget_s)) {
        double ms = 0;
        int any = 0;
        for (size_t k = 0; k < b->job->n; k++)
            any |= s[k].n > 0;
        for (size_t k = 0; k <= i; k++)
            if (s[k].n > 0)
                ms = s[k].round_ms *
                     fmax(1, area(&b->job->blocks[i]) / area(&b->job->blocks[k]));
        double rounds = fmax(fmin(MIN_ROUNDS, CAP_MS / fmax(ms, 1e-3)), FEW_ROUNDS);
        double want_ms = fmax(WARM_UP_MS, ms) + fmax(rounds * ms, MIN_MS);
        yes = hcp_now_s() - begin_s + 1e-3 * want_ms <= b->plan->budget_s;
        yes |= !any; /* an answer is better than none */
    }
    MPI_Bcast(&yes, 1, MPI_INT, 0, b->plan->comm);
    return yes;
}

static int gather(struct link_beside *b, struct hcp_err *err)
{
    const struct beside_side *mine = &b->sides[b->plan->rank];
    struct beside_side *sent = malloc(sizeof *sent);
    if (sent)
        memcpy(sent, mine, sizeof *sent);
    int all = sent != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, b->plan->comm);
    if (all)
        MPI_Gather(sent, sizeof *sent, MPI_BYTE, b->sides, sizeof *sent, MPI_BYTE, 0,
                   b->plan->comm);
    free(sent);
    return all ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
}

int link_beside_measure(struct link_beside *b, struct hcp_err *err)
{
    size_t order[HCP_BESIDE_BLOCKS], n = b->job->n;
    double begin_s = hcp_now_s();
    int rc = HCP_OK;
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (int turn = 0; turn < VISITS && rc == HCP_OK; turn++) {
        if (turn > 0) /* the first goes up: what longer ones take is known by then */
            hcp_shuffle(order, n, sizeof *order, (uint64_t)turn);
        for (size_t i = 0; i < n && rc == HCP_OK; i++) {
            if (b->plan->rank == 0 && b->plan->visiting)
                b->plan->visiting((int)((size_t)turn * n + i), VISITS * (int)n);
            if (fits(b, order[i], begin_s))
                rc = visit(b, order[i], err);
        }
    }
    return rc == HCP_OK ? gather(b, err) : rc;
}

void link_beside_say(const struct link_beside *b, void (*say)(json_t *line))
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < b->job->n; i++) {
            const struct beside_block *s = &b->sides[side].block[i];
            json_t *line = json_object(), *one = json_object();
            json_object_set_new(one, "side", json_integer(side));
            json_object_set_new(one, "block", json_integer((json_int_t)i));
            for (int t = 0; t < HCP_BESIDE_TIMES; t++) {
                json_t *list = json_array();
                for (int k = 0; k < s->n; k++)
                    json_array_append_new(list, json_real(s->ms[t][k]));
                json_object_set_new(one, hcp_beside_time_names[t], list);
            }
            json_object_set_new(line, "beside", one);
            json_object_set_new(line, "provider", json_string(b->sides[side].provider));
            json_object_set_new(line, "provider_version",
                                json_string(b->sides[side].version));
            if (s->n > 0)
                say(line);
            else
                json_decref(line);
        }
}
