/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that hcp_attention adds to a kernel which cannot write the fp32 state or merge
 * into it. What is timed is the job that hcp_attention issued for the very shape and
 * length, on memory that the caches no longer hold. A kernel that accumulates has no such
 * pass, but reads the state where a block that is stored does not: the difference of the
 * two on a short block takes the place of the merge.
 */
#include "config.h"
#include "profiler/bench.h"
#include <string.h>
#include "kernels/dtype.h"

/* Keys of the block that is run to see the pass, whose cost they do not change. */
enum { KEYS = 128 };
/* And of the block that is run with and without accumulating: long enough that a tile's
 * epilogue lies beside the products of other tiles, as in a ring. */
enum { ADDED_KEYS = 512 };

/* The job that the step in hand has issued; a worker has one thread. */
static hcp_finish seen;
static int n_seen;

/* In the place of a runtime's finish(): keeps what would have been queued. */
static int see(const hcp_finish *job, void *stream)
{
    (void)stream;
    if (job->part) {
        seen = *job;
        n_seen++;
    }
    return HCP_RC_OK;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static hcp_attn_problem step_problem(const struct hcp_bench *b, int64_t batch,
                                     int64_t q_len, int64_t kv_len, int kind)
{
    hcp_attn_problem p = b->shape;
    p.batch = batch;
    p.q_len = q_len;
    p.kv_len = kv_len;
    p.out_dtype = HCP_FP32;
    p.accumulate = kind == HCP_FINISH_MERGE;
    hcp_problem_set_dense_strides(&p);
    return p;
}

uint32_t hcp_bench_finishes(const struct hcp_bench *bench)
{
    uint32_t kinds = 0;
    for (int kind = HCP_FINISH_STORE; kind <= HCP_FINISH_MERGE; kind++) {
        char why[600];
        hcp_attention *step = NULL;
        hcp_attn_problem p = step_problem(bench, bench->shape.batch, bench->shape.q_len,
                                          bench->shape.kv_len, kind);
        if (hcp_attention_create(bench->provider, bench->runtime, &bench->device, &p,
                                 &step, why, sizeof why) != HCP_RC_OK)
            continue; /* the conformance check says what is wrong with the kernel */
        if (hcp_attention_finishes(step) ||
            (kind == HCP_FINISH_MERGE && bench->runtime->kind == HCP_DEVICE_CUDA))
            kinds |= 1u << kind;
        hcp_attention_destroy(step);
    }
    return kinds;
}

/* Runs one step on whatever the pool holds, with see() in the place of the pass. */
static int see_job(struct hcp_bench *b, const hcp_attn_problem *p, struct hcp_err *err)
{
    char why[600];
    hcp_attention *step = NULL;
    hcp_runtime runtime = *b->runtime;
    runtime.finish = see;
    n_seen = 0;
    int64_t row = p->batch * p->head_dim * hcp_dtype_bytes(p->dtype);
    int64_t q_bytes = row * p->heads * p->q_len, kv_bytes = row * p->kv_heads * p->kv_len;
    int rc = hcp_bench_grow_pool(b, q_bytes > kv_bytes ? q_bytes : kv_bytes, err);
    if (rc == HCP_OK)
        rc = hcp_bench_grow_output(b, p, err);
    if (rc != HCP_OK)
        return rc;
    if (hcp_attention_create(b->provider, &runtime, &b->device, p, &step, why,
                             sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    hcp_attn_args args = {.size = sizeof args,
                          .q = b->pool,
                          .k = b->pool,
                          .v = b->pool,
                          .o = b->o,
                          .lse = b->lse,
                          .q_len = p->q_len,
                          .kv_len = p->kv_len};
    int run = hcp_attention_run(step, &args, b->stream);
    if (run == HCP_RC_OK)
        run = b->runtime->sync(b->stream);
    if (run != HCP_RC_OK)
        rc = hcp_bench_fail(b, run, "run", err);
    else if (n_seen != 1)
        rc = hcp_fail(err, HCP_FAILED,
                      "%s: %d finish passes after a block of %lld rows, not one",
                      b->provider->name, n_seen, (long long)p->q_len);
    hcp_attention_destroy(step);
    return rc;
}

/* Whether the provider merges into the state itself. */
static int accumulates(const struct hcp_bench *b, const hcp_attn_problem *p)
{
    hcp_attn_support s = {.size = sizeof s};
    return p->accumulate && b->provider->query(&b->device, p, &s) == HCP_RC_OK &&
           s.supported && s.caps & HCP_CAP_ACCUMULATE && !(s.caps & HCP_CAP_LSE_LOG2);
}

static int plan_added(struct hcp_bench *b, struct hcp_bench_plan *plan,
                      struct hcp_err *err)
{
    int rc = HCP_OK;
    for (int kind = HCP_FINISH_STORE; kind <= HCP_FINISH_MERGE && rc == HCP_OK; kind++) {
        plan->without = plan->plan;
        plan->plan = NULL;
        plan->problem = step_problem(b, plan->seqs, plan->q_len, ADDED_KEYS, kind);
        rc = hcp_bench_plan_block(b, plan, err);
    }
    if (rc != HCP_OK)
        return rc;
    const hcp_attn_problem *p = &plan->problem;
    int64_t rows = p->batch * p->heads * p->q_len;
    plan->lse_at = round_up(rows * p->head_dim * 4, 256);
    plan->job_bytes = plan->lse_at + round_up(rows * 4, 256);
    /* One count for inputs and state: a graph that goes round the one goes round the
     * other, and its first runs find neither in the cache. */
    int64_t bytes = plan->job_bytes + plan->set_bytes;
    plan->sets = (b->cold_bytes + bytes - 1) / bytes;
    if (plan->sets < 1)
        plan->sets = 1;
    return hcp_bench_grow_state(b, plan->sets * plan->job_bytes, err);
}

int hcp_bench_plan_finish(struct hcp_bench *bench, struct hcp_bench_plan *plan,
                          struct hcp_err *err)
{
    struct hcp_bench *b = bench;
    plan->problem = step_problem(b, plan->seqs, plan->q_len, KEYS, plan->finish);
    if (accumulates(b, &plan->problem))
        return plan_added(b, plan, err);
    int rc = see_job(b, &plan->problem, err);
    if (rc != HCP_OK)
        return rc;
    plan->job = seen;
    int64_t rows = seen.batch * seen.heads * plan->q_len;
    int64_t o_bytes = round_up(rows * seen.head_dim * 4, 256);
    int64_t lse_bytes = round_up(rows * 4, 256);
    int64_t part_bytes =
        round_up(rows * seen.head_dim * hcp_dtype_bytes(seen.part_dtype), 256);
    int in_pool = seen.part_dtype == b->shape.dtype;
    plan->lse_at = o_bytes;
    plan->lse_part_at = o_bytes + lse_bytes;
    plan->part_at = in_pool ? -1 : o_bytes + 2 * lse_bytes;
    plan->job_bytes = o_bytes + 2 * lse_bytes + (in_pool ? 0 : part_bytes);
    plan->set_bytes = in_pool ? part_bytes : 0;
    int64_t bytes = plan->job_bytes + plan->set_bytes;
    plan->sets = (b->cold_bytes + bytes - 1) / bytes;
    if (plan->sets < 1)
        plan->sets = 1;
    rc = hcp_bench_grow_state(b, plan->sets * plan->job_bytes, err);
    if (rc == HCP_OK && in_pool)
        rc = hcp_bench_grow_pool(b, plan->sets * plan->set_bytes, err);
    return rc;
}

int hcp_bench_run_finish(struct hcp_bench *bench, const struct hcp_bench_plan *plan)
{
    int64_t turn = (int64_t)(bench->turn++ % (uint64_t)plan->sets);
    char *set = (char *)bench->state + turn * plan->job_bytes;
    hcp_finish job = plan->job;
    job.o = (void *)set; /* parts of a set begin at multiples of 256 bytes */
    job.lse = (void *)(set + plan->lse_at);
    job.lse_part = (const void *)(set + plan->lse_part_at);
    job.part =
        plan->part_at < 0 ? bench->pool + turn * plan->set_bytes : set + plan->part_at;
    return bench->runtime->finish(&job, bench->stream);
}
