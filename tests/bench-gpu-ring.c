/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank of a ring computes: its shard of queries against every KV block in turn,
 * all through hcp_attention, into one fp32 state. The first step stores, the others
 * accumulate: by the kernel itself or by a pass after it. No transfers.
 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda.h"
#include "kernels/dtype.h"

enum { MAX_BLOCKS = 16, MAX_PASSES = 32 };

/* Tensors that all kernels share, and the first kernel's O of one head. */
struct tensors {
    void *q, *k, *v;
    float *o, *lse;
    int64_t block_bytes; /* of K, and of V */
    int64_t n_head;      /* elements of one head's O */
    float *first, *mine;
    int have_first;
    cudaEvent_t events[MAX_PASSES + 1];
};

/* One kernel's steps. */
struct steps {
    struct tensors *t;
    struct bench_lane *lane;
    hcp_attention_scratch *scratch;
    hcp_attention *step[MAX_BLOCKS];
    hcp_attn_problem problem[MAX_BLOCKS];
    int n;
};

static int fail_cuda(struct bench_lane *l, cudaError_t e, const char *doing,
                     struct hcp_err *err)
{
    return hcp_cuda_timer_fail(&l->timer, e, doing, err);
}

static void free_tensors(const hcp_runtime *rt, struct tensors *t)
{
    rt->release(t->q);
    rt->release(t->k);
    rt->release(t->v);
    rt->release(t->o);
    rt->release(t->lse);
    free(t->first);
    free(t->mine);
    for (int i = 0; i <= MAX_PASSES; i++)
        if (t->events[i])
            cudaEventDestroy(t->events[i]);
}

static int make_tensors(const hcp_runtime *rt, const struct bench_shape *s,
                        struct tensors *t, struct hcp_err *err)
{
    int32_t dtype = hcp_dtype_of_name(s->dtype);
    int64_t size = hcp_dtype_bytes(dtype), rows = s->batch * s->heads * s->q_len;
    int64_t n_q = rows * s->head_dim;
    int64_t n_block = s->batch * s->kv_heads * s->kv_len * s->head_dim;
    int64_t n_kv = s->blocks * n_block;
    void *o = NULL, *lse = NULL;

    t->block_bytes = n_block * size;
    t->n_head = s->q_len * s->head_dim;
    t->first = malloc((size_t)t->n_head * sizeof(float));
    t->mine = malloc((size_t)t->n_head * sizeof(float));
    int bad = !t->first || !t->mine || rt->alloc(&t->q, n_q * size) ||
              rt->alloc(&t->k, n_kv * size) || rt->alloc(&t->v, n_kv * size) ||
              rt->alloc(&o, n_q * 4) || rt->alloc(&lse, rows * 4);
    t->o = o;
    t->lse = lse;
    bad = bad || rt->randn(t->q, n_q, dtype, 1, 0, NULL) ||
          rt->randn(t->k, n_kv, dtype, 2, 0, NULL) ||
          rt->randn(t->v, n_kv, dtype, 3, 0, NULL) || rt->sync(NULL);
    for (int i = 0; i <= MAX_PASSES && !bad; i++)
        bad = cudaEventCreate(&t->events[i]) != cudaSuccess;
    return bad ? hcp_fail(err, HCP_FAILED, "ring: no memory for it: %s", rt->last_error())
               : HCP_OK;
}

static void free_steps(struct steps *r)
{
    for (int i = 0; i < r->n; i++)
        hcp_attention_destroy(r->step[i]);
    hcp_attention_scratch_free(r->scratch);
}

static int make_steps(struct bench_child *c, const struct bench_shape *s, size_t lane,
                      struct tensors *t, struct steps *r)
{
    struct bench_lane *l = &c->lanes[lane];

    *r = (struct steps){.t = t, .lane = l};
    if (hcp_attention_scratch_new(c->runtime, &r->scratch) != HCP_RC_OK) {
        snprintf(l->why, sizeof l->why, "out of memory");
        return HCP_FAILED;
    }
    const hcp_attention_options with = {.scratch = r->scratch};
    for (int i = 0; i < s->blocks; i++) {
        hcp_attn_problem p = l->bench.shape;

        p.q_len = s->q_len;
        p.kv_len = s->kv_len;
        p.out_dtype = HCP_FP32;
        p.causal = s->causal;
        p.diag = s->causal ? i * s->kv_len : 0; /* own block first, then earlier ones */
        p.accumulate = i > 0;
        hcp_problem_set_dense_strides(&p);
        if (hcp_attention_create_with(l->provider, c->runtime, &c->device, &p, &with,
                                      &r->step[i], l->why, sizeof l->why) != HCP_RC_OK)
            return HCP_FAILED;
        r->problem[i] = p;
        r->n++;
    }
    return HCP_OK;
}

static int pass(const struct steps *r)
{
    for (int i = 0; i < r->n; i++) {
        const hcp_attn_problem *p = &r->problem[i];
        const hcp_attn_args args = {.size = sizeof args,
                                    .q = r->t->q,
                                    .k = (char *)r->t->k + i * r->t->block_bytes,
                                    .v = (char *)r->t->v + i * r->t->block_bytes,
                                    .o = r->t->o,
                                    .lse = r->t->lse,
                                    .q_len = p->q_len,
                                    .kv_len = p->kv_len,
                                    .diag = p->diag};
        int rc = hcp_attention_run(r->step[i], &args, r->lane->bench.stream);

        if (rc != HCP_RC_OK)
            return rc;
    }
    return HCP_RC_OK;
}

/* Passes queued one behind the other: launches hide, but for those of the first step. */
static int take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct steps *r = ctx;
    cudaStream_t stream = (cudaStream_t)r->lane->bench.stream;

    for (int done = 0; done < n;) {
        int now = n - done < MAX_PASSES ? n - done : MAX_PASSES;
        cudaError_t e = cudaEventRecord(r->t->events[0], stream);

        for (int i = 0; i < now && e == cudaSuccess; i++) {
            int rc = pass(r);

            if (rc != HCP_RC_OK) {
                r->lane->timer.lost = rc == HCP_RC_DEVICE ? HCP_DEVICE_LOST : 0;
                return hcp_bench_fail(&r->lane->bench, rc, "run", err);
            }
            e = cudaEventRecord(r->t->events[i + 1], stream);
        }
        if (e == cudaSuccess)
            e = cudaStreamSynchronize(stream);
        for (int i = 0; i < now && e == cudaSuccess; i++) {
            float elapsed = 0;

            e = cudaEventElapsedTime(&elapsed, r->t->events[i], r->t->events[i + 1]);
            ms[done + i] = elapsed;
        }
        if (e != cudaSuccess)
            return fail_cuda(r->lane, e, "run the steps", err);
        done += now;
    }
    return HCP_OK;
}

/* One pass alone, on a poisoned state: O of the first head against the first kernel's. */
static int compare(struct bench_child *c, struct steps *r, double *o_error,
                   struct hcp_err *err)
{
    struct tensors *t = r->t;
    const hcp_runtime *rt = c->runtime;
    void *stream = r->lane->bench.stream;
    int64_t bytes = t->n_head * (int64_t)sizeof(float);
    float *to = t->have_first ? t->mine : t->first;
    double diff = 0, size = 0;
    int rc = rt->fill(t->o, 0xff, bytes, stream);

    *o_error = NAN;
    if (rc == HCP_RC_OK)
        rc = pass(r);
    if (rc == HCP_RC_OK)
        rc = rt->to_host(to, t->o, bytes, stream);
    if (rc != HCP_RC_OK) {
        r->lane->timer.lost = rc == HCP_RC_DEVICE ? HCP_DEVICE_LOST : 0;
        return hcp_bench_fail(&r->lane->bench, rc, "run", err);
    }
    if (!t->have_first) {
        t->have_first = 1;
        return HCP_OK;
    }
    for (int64_t i = 0; i < t->n_head; i++) {
        double d = (double)t->mine[i] - (double)t->first[i];

        diff += d * d;
        size += (double)t->first[i] * (double)t->first[i];
    }
    *o_error = sqrt(diff / size);
    /* Twice three times the bound of a single pass. */
    if (!(*o_error <= 2.4e-2))
        return hcp_fail(err, HCP_FAILED, "O is off by %.1e from the first kernel's",
                        *o_error);
    return HCP_OK;
}

int bench_ring(struct bench_child *c, size_t shape, struct hcp_err *err)
{
    const struct bench_shape *s = &c->job->shapes[shape];
    struct tensors t = {0};
    struct steps steps[BENCH_LANES] = {{0}};
    double o_error[BENCH_LANES];
    int rc = s->blocks > MAX_BLOCKS ? hcp_fail(err, HCP_FAILED, "too many blocks")
                                    : make_tensors(c->runtime, s, &t, err);

    for (size_t i = 0; i < c->n_lanes && rc == HCP_OK; i++) {
        struct bench_lane *l = &c->lanes[i];

        l->timed = 0;
        if (!l->provider || !l->open || *l->why)
            continue;
        c->job->at->lane = (int32_t)i;
        if (make_steps(c, s, i, &t, &steps[i]) != HCP_OK)
            continue;
        if (compare(c, &steps[i], &o_error[i], err) != HCP_OK) {
            snprintf(l->why, sizeof l->why, "%.299s", err->text);
            rc = l->timer.lost ? HCP_FAILED : HCP_OK;
            continue;
        }
        l->timed = 1;
        l->take = take;
        l->ctx = &steps[i];
    }
    if (rc == HCP_OK)
        rc = bench_take_turns(c, err);
    for (size_t i = 0; i < c->n_lanes && rc == HCP_OK; i++) {
        struct bench_lane *l = &c->lanes[i];
        struct bench_row row = {.o_error = NAN};

        if (!l->timed && !*l->why)
            continue;
        if (l->timed) {
            hcp_attention_describe(steps[i].step[s->blocks - 1], row.config,
                                   sizeof row.config);
            row.o_error = o_error[i];
        }
        rc = bench_send(c, shape, i, &row) ? hcp_fail(err, HCP_FAILED, "pipe") : HCP_OK;
        if (l->open && strncmp(l->why, "fails", 5) != 0)
            l->why[0] = 0;
    }
    for (size_t i = 0; i < c->n_lanes; i++) {
        free_steps(&steps[i]);
        c->lanes[i].take = hcp_cuda_timer_take;
        c->lanes[i].ctx = &c->lanes[i].timer;
    }
    free_tensors(c->runtime, &t);
    return rc;
}
