/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of chunks, chunk after chunk: each is a joint ring of its own, opened on the
 * keys and values that the chunks before have left on their ranks. Memory for these is
 * had once, for the whole prompt.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"
#include "kernels/dtype.h"
#include "profiler/measure.h"

struct run {
    struct ring_program *p;
    const hcp_chunks_plan *plan;
    int comparable; /* what is run is what was predicted */
    void *kv;       /* this rank's, of the whole prompt */
    struct ring_chunks_result out;
    double start_s, most_s; /* of all passes */
};

/* NaN where nothing has been appended yet. */
static int make_memory(struct run *u, struct hcp_err *err)
{
    const hcp_runtime *runtime = u->p->place.runtime;
    const hcp_shape *s = &u->plan->shape;
    int32_t dtype = hcp_dtype_of_name(s->dtype);
    int64_t tokens = u->plan->ranks[u->p->comm.rank].tokens;
    int64_t elements, bytes;
    void *stream = NULL;
    int rc;

    if (dtype < 0)
        return hcp_fail(err, HCP_FAILED, "dtype '%s' of the plan is not known", s->dtype);
    if (__builtin_mul_overflow(2 * tokens * s->kv_heads, s->head_dim, &elements) ||
        __builtin_mul_overflow(elements, hcp_dtype_bytes(dtype), &bytes))
        bytes = INT64_MAX; /* which nobody has */
    if (bytes == 0)
        return HCP_OK;
    rc = bytes < INT64_MAX ? runtime->alloc(&u->kv, bytes) : HCP_RC_NO_MEMORY;
    if (rc) {
        const char *detail = runtime->last_error();

        u->kv = NULL;
        return hcp_fail(err, HCP_FAILED,
                        "cannot allocate %.3f GB for the keys and values of the prompt "
                        "(fewer tokens a rank need less): %s%s%s",
                        1e-9 * (double)bytes, hcp_rc_text(rc), *detail ? ": " : "",
                        detail);
    }
    rc = runtime->stream_create(&stream);
    if (rc == HCP_RC_OK) {
        rc = runtime->fill(u->kv, 0xff, bytes, stream);
        if (rc == HCP_RC_OK)
            rc = runtime->sync(stream);
        runtime->stream_destroy(stream);
    }
    return rc ? hcp_fail(err, HCP_FAILED, "cannot poison keys and values: %s",
                         hcp_rc_text(rc))
              : HCP_OK;
}

static int gather(struct run *u, const void *mine, int bytes, void *all,
                  const char *doing, struct hcp_err *err)
{
    int rc;

    ring_watch_waiting(u->p->watch, "waiting for the results of the other ranks", -1);
    rc = MPI_Gather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, 0, u->p->comm.world);
    ring_watch_idle(u->p->watch);
    return rc == MPI_SUCCESS ? HCP_OK
                             : hcp_fail(err, HCP_FAILED, "MPI failed to %s", doing);
}

static int gather_traffic(struct run *u, const ring *r, struct ring_chunk_result *chunk,
                          struct hcp_err *err)
{
    const struct ring_traffic mine[2] = {ring_traffic_of(r, 0), ring_traffic_of(r, 1)};
    int root = u->p->comm.rank == 0, rc = HCP_OK;

    if (root)
        chunk->traffic = calloc(2 * u->plan->n_ranks, sizeof *chunk->traffic);
    if (root && !chunk->traffic)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    rc = ring_all_ok(&u->p->comm, rc, err);
    return rc ? rc : gather(u, mine, sizeof mine, chunk->traffic, "gather messages", err);
}

/* After the last chunk: what is on the ranks has not changed since it was put there. */
static int prove_kv(struct run *u, ring *r, struct hcp_err *err)
{
    int root = u->p->comm.rank == 0;
    char mine[200];
    int rc = ring_chunk_compare(r, mine, err);

    if (rc == HCP_OK && root) {
        u->out.failed = calloc(u->plan->n_ranks, sizeof *u->out.failed);
        rc = u->out.failed ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    }
    rc = ring_all_ok(&u->p->comm, rc, err);
    return rc ? rc : gather(u, mine, sizeof mine, u->out.failed, "gather a proof", err);
}

/* Of --max-time a chunk may take its part of what is left; of --warm-up the first one has
 * all. */
static void share_time(struct run *u, size_t k)
{
    double left = u->start_s + u->most_s - hcp_now_s();

    u->p->o.max_time_s = left > 0 ? left / (double)(u->plan->n_chunks - k) : 0;
    if (k > 0)
        u->p->o.warm_up_s = 0;
}

static int run_chunk(struct run *u, size_t k, struct hcp_err *err)
{
    struct ring_program *p = u->p;
    struct ring_chunk_result *chunk = &u->out.chunks[k];
    const struct ring_chunk span = {.offset = u->plan->chunks[k].offset,
                                    .tokens = u->plan->chunks[k].tokens,
                                    .kv = u->kv};
    int last = k + 1 == u->plan->n_chunks;
    ring *r = NULL;
    int rc = ring_chunk_plan(u->plan, k, u->comparable, &chunk->plan, err);

    rc = ring_all_ok(&p->comm, rc, err);
    chunk->result.plan = &chunk->plan;
    if (rc == HCP_OK)
        rc = ring_open_plan(p, &chunk->plan, NULL, 0, &span, &chunk->result, &r, err);
    if (rc == HCP_OK) {
        share_time(u, k);
        rc = ring_run(p, r, p->o.repeat, p->o.verify_rows >= 0, &chunk->result, err);
    }
    if (rc == HCP_OK)
        rc = gather_traffic(u, r, chunk, err);
    if (rc == HCP_OK && last && p->o.verify_rows >= 0)
        rc = prove_kv(u, r, err);
    if (!p->alone) /* else there may be work in flight; the process ends */
        ring_close(r);
    if (rc == HCP_OK) { /* where its tokens are is said in each plan anew */
        free(chunk->plan.segments);
        chunk->plan.segments = NULL;
    }
    return rc;
}

static int publish(struct run *u, struct hcp_err *err)
{
    int rc = HCP_OK;

    if (ring_chunks_print(u->p, &u->out))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the results");
    fflush(stdout); /* a launcher may end this rank when the first one ends */
    hcp_cli_written(stdout);
    if (rc == HCP_OK && !ring_chunks_passed(&u->out))
        rc = hcp_fail(err, HCP_FAILED, "verification failed%s",
                      u->p->o.json ? "" : ": see above");
    return rc;
}

int ring_chunks(struct ring_program *p, struct hcp_err *err)
{
    const hcp_chunks_plan *plan = p->plans.chunks;
    struct run u = {
        .p = p,
        .plan = plan,
        .comparable = !isnan(p->plans.plans[0].makespan_ms),
        .out = {.plan = plan, .chunks = calloc(plan->n_chunks, sizeof *u.out.chunks)},
        .start_s = hcp_now_s(),
        .most_s = p->o.max_time_s};
    double warm_up_s = p->o.warm_up_s;
    int rc =
        u.out.chunks ? make_memory(&u, err) : hcp_fail(err, HCP_FAILED, "out of memory");

    p->alone = 0;
    rc = ring_all_ok(&p->comm, rc, err);
    for (size_t k = 0; rc == HCP_OK && k < plan->n_chunks; k++)
        rc = run_chunk(&u, k, err);
    p->o.max_time_s = u.most_s;
    p->o.warm_up_s = warm_up_s;
    if (rc == HCP_OK) {
        if (p->comm.rank == 0)
            rc = publish(&u, err);
        rc = ring_all_ok(&p->comm, rc, err);
    }
    for (size_t k = 0; u.out.chunks && k < plan->n_chunks; k++) {
        ring_result_free(&u.out.chunks[k].result);
        ring_plan_free(&u.out.chunks[k].plan);
        free(u.out.chunks[k].traffic);
    }
    free(u.out.chunks);
    free(u.out.failed);
    if (u.kv && !p->alone)
        p->place.runtime->release(u.kv);
    return rc;
}
