/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/dtype.h"
#include "kernels/problem.h"
#include "kernels/registry.h"

/* One call of the provider: a run of query rows against the first keys. */
typedef struct attention_call {
    int64_t row; /* first of the block's rows */
    hcp_attn_problem problem;
    hcp_attn_support support;
    hcp_attn_plan *plan;
    int o_direct; /* O goes straight to the caller's tensor, else to scratch */
    int l_direct; /* L too, where its pointer is aligned */
} attention_call;

/* Device memory of which a call in flight uses a part, by what it is for. */
enum { WORKSPACE, PART_O, PART_L, N_SCRATCH };

struct hcp_attention_scratch {
    const hcp_runtime *runtime;
    void *at[N_SCRATCH];
    int64_t bytes[N_SCRATCH];
};

struct hcp_attention {
    const hcp_provider *provider;
    const hcp_runtime *runtime;
    hcp_attn_problem problem;
    int64_t lse_pitch;
    int64_t empty_rows; /* leading rows that see no key */
    int n_calls;
    attention_call call[2];
    int64_t needs[N_SCRATCH];            /* bytes */
    hcp_attention_scratch own, *scratch; /* own or shared: its pointers may move */
};

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The caller's problem without diag, which may be negative here. */
static int check_problem(const hcp_attn_problem *p, char *reason, size_t size)
{
    if (!p || p->size < sizeof *p)
        return hcp_problem_check(p, reason, size);
    hcp_attn_problem any_diag = *p;
    any_diag.diag = 0;
    int rc = hcp_problem_check(&any_diag, reason, size);
    if (!rc && p->out_dtype != HCP_FP32) {
        snprintf(reason, size, "attention steps keep their state in fp32, not %s",
                 hcp_dtype_name(p->out_dtype));
        rc = HCP_RC_INVALID;
    }
    return rc;
}

/* L of all heads, the rows between them included, is of a size that can be indexed. */
static int check_pitch(const hcp_attn_problem *p, int64_t pitch, char *reason,
                       size_t size)
{
    int64_t n;
    if (pitch < p->q_len)
        snprintf(reason, size,
                 "lse_pitch %" PRId64 " is below the %" PRId64 " rows of a head", pitch,
                 p->q_len);
    else if (__builtin_mul_overflow(p->batch * p->heads, pitch, &n) || n > (int64_t)1
                                                                               << 56)
        snprintf(reason, size, "lse_pitch %" PRId64 ": L has over 2^56 elements", pitch);
    else
        return HCP_RC_OK;
    return HCP_RC_INVALID;
}

/* Asks for one form of the call. 1: the provider takes it. 0: no, and why is in
 * support->reason. Negative: minus an hcp_rc. */
static int ask(const hcp_provider *provider, const hcp_device_ref *device,
               attention_call *c, int32_t out_dtype, int accumulate)
{
    hcp_attn_problem *p = &c->problem;
    uint32_t caps;
    p->out_dtype = out_dtype;
    p->accumulate = accumulate;
    c->support = (hcp_attn_support){.size = sizeof c->support};
    int rc = provider->query(device, p, &c->support);
    c->support.reason[sizeof c->support.reason - 1] = 0; /* a plug-in may forget it */
    if (rc)
        return rc < 0 ? -HCP_RC_DEVICE : -rc;
    if (!c->support.supported)
        return 0;
    caps = c->support.caps;
    const char *lacks = NULL;
    if (c->support.workspace_bytes < 0 || c->support.tile_q < 0 || c->support.tile_kv < 0)
        lacks = "its query() gives a negative workspace or tile";
    else if (p->causal && !(caps & HCP_CAP_DIAG) && p->diag != p->kv_len - p->q_len)
        lacks = "only the diagonal kv_len - q_len";
    else if (out_dtype == HCP_FP32 && p->dtype != HCP_FP32 && !(caps & HCP_CAP_OUT_FP32))
        lacks = "no fp32 output";
    else if (accumulate && (!(caps & HCP_CAP_ACCUMULATE) || caps & HCP_CAP_LSE_LOG2))
        lacks = "cannot accumulate";
    if (lacks)
        snprintf(c->support.reason, sizeof c->support.reason, "%s", lacks);
    return !lacks;
}

/* Finds the cheapest form in which the provider takes rows x keys of the block. */
static int probe_call(const hcp_provider *provider, const hcp_device_ref *device,
                      const hcp_attention *a, attention_call *c, int64_t row,
                      int64_t rows, int64_t keys, int causal, int64_t diag)
{
    const hcp_attn_problem *whole = &a->problem;
    *c = (attention_call){.row = row, .problem = *whole};
    c->problem.q_len = rows;
    c->problem.kv_len = keys;
    c->problem.causal = causal;
    c->problem.diag = causal ? diag : 0;
    /* Providers know L without gaps between the heads only. */
    int contiguous_l = rows == a->lse_pitch || whole->batch * whole->heads == 1;

    int yes = 0, merged = whole->accumulate;
    if (merged && (yes = ask(provider, device, c, HCP_FP32, 1)) > 0)
        merged = 0;
    if (yes == 0)
        yes = ask(provider, device, c, HCP_FP32, 0);
    if (yes == 0 && whole->dtype != HCP_FP32)
        yes = ask(provider, device, c, whole->dtype, 0);
    if (yes <= 0)
        return yes;
    c->o_direct = c->problem.out_dtype == HCP_FP32 && !merged;
    c->l_direct = c->o_direct && contiguous_l && !(c->support.caps & HCP_CAP_LSE_LOG2);
    if (!c->o_direct) {
        int64_t *stride = c->problem.o_stride;
        stride[2] = whole->head_dim;
        stride[1] = rows * stride[2];
        stride[0] = whole->heads * stride[1];
    }
    return 1;
}

/* Fills the calls that cover the block. Returns as ask(); the reason is in
 * *reason_at (never NULL on 0). */
static int probe_block(const hcp_provider *provider, const hcp_device_ref *device,
                       hcp_attention *a, const char **reason_at)
{
    const hcp_attn_problem *p = &a->problem;
    hcp_block b = hcp_block_classify(hcp_problem_mask(p), p->q_len, p->kv_len, p->diag);
    attention_call *c = a->call;
    a->empty_rows = b.skip_rows;
    a->n_calls = 0;
    *reason_at = c[0].support.reason;
    if (b.kind == HCP_BLOCK_EMPTY)
        return 1;

    int partial = b.kind == HCP_BLOCK_PARTIAL;
    int yes = probe_call(provider, device, a, &c[0], b.skip_rows, b.q_len, b.kv_len,
                         partial, b.diag);
    if (yes > 0)
        a->n_calls = 1;
    /* Bottom-right causal over the rows whose last sees the last key, then the rows
     * below, which see every key. One alone: the diagonal was right already. */
    int64_t n = b.kv_len - b.diag;
    if (yes != 0 || !partial || n >= b.q_len)
        return yes;
    attention_call whole = c[0]; /* its reason is the better one if this fails too */
    yes = probe_call(provider, device, a, &c[0], b.skip_rows, n, n + b.diag, 1, b.diag);
    if (yes > 0)
        yes = probe_call(provider, device, a, &c[1], b.skip_rows + n, b.q_len - n,
                         b.kv_len, 0, 0);
    if (yes > 0)
        a->n_calls = 2;
    else
        c[0] = whole;
    return yes;
}

int hcp_attention_probe(const hcp_provider *provider, const hcp_device_ref *device,
                        const hcp_attn_problem *problem, hcp_attn_support *out)
{
    hcp_attention a = {.provider = provider};
    const char *reason;
    size_t size = out->size;
    if (size < sizeof *out)
        return HCP_RC_INVALID;
    *out = (hcp_attn_support){.size = size};
    if (check_problem(problem, out->reason, sizeof out->reason))
        return HCP_RC_OK;
    a.problem = *problem;
    a.lse_pitch = problem->q_len;
    int yes = probe_block(provider, device, &a, &reason);
    if (yes < 0)
        return -yes;
    if (!yes) {
        snprintf(out->reason, sizeof out->reason, "%s", reason);
        return HCP_RC_OK;
    }
    if (a.n_calls) {
        *out = a.call[0].support;
        out->size = size;
    }
    if (a.n_calls == 2) {
        const hcp_attn_support *second = &a.call[1].support;
        out->workspace_bytes = max64(out->workspace_bytes, second->workspace_bytes);
        /* what both parts must have for the whole to have it */
        out->caps &= second->caps | ~(uint32_t)(HCP_CAP_DETERMINISTIC | HCP_CAP_NAN_ROWS |
                                                HCP_CAP_OUT_FP32);
    }
    out->supported = 1;
    out->reason[0] = 0;
    return HCP_RC_OK;
}

/* Scratch for the largest call: they run one after the other. That for L is always
 * there: only run() sees whether the caller's is aligned. */
static void count_scratch(hcp_attention *a)
{
    for (int i = 0; i < a->n_calls; i++) {
        const attention_call *c = &a->call[i];
        const hcp_attn_problem *p = &c->problem;
        int64_t rows = p->batch * p->heads * p->q_len;
        const int64_t needs[N_SCRATCH] = {
            [WORKSPACE] = c->support.workspace_bytes,
            [PART_O] =
                c->o_direct ? 0 : rows * p->head_dim * hcp_dtype_bytes(p->out_dtype),
            [PART_L] = rows * (int64_t)sizeof(float)};
        for (int k = 0; k < N_SCRATCH; k++)
            a->needs[k] = max64(a->needs[k], needs[k]);
    }
}

/* The old memory goes first, so that both are never there at once: where the new one
 * fails, steps made before have none (run() sees that). */
static int grow(hcp_attention_scratch *s, const int64_t needs[N_SCRATCH])
{
    int rc = HCP_RC_OK;
    for (int k = 0; !rc && k < N_SCRATCH; k++) {
        if (needs[k] <= s->bytes[k])
            continue;
        if (s->at[k])
            s->runtime->release(s->at[k]);
        s->at[k] = NULL;
        s->bytes[k] = 0;
        rc = s->runtime->alloc(&s->at[k], needs[k]);
        if (!rc)
            s->bytes[k] = needs[k];
        else
            s->at[k] = NULL;
    }
    return rc;
}

static void release_scratch(hcp_attention_scratch *s)
{
    for (int k = 0; k < N_SCRATCH; k++)
        if (s->at[k])
            s->runtime->release(s->at[k]);
}

int hcp_attention_scratch_new(const hcp_runtime *runtime, hcp_attention_scratch **out)
{
    hcp_attention_scratch *s = calloc(1, sizeof *s);
    if (!s)
        return HCP_RC_NO_MEMORY;
    s->runtime = runtime;
    *out = s;
    return HCP_RC_OK;
}

int64_t hcp_attention_scratch_bytes(const hcp_attention_scratch *scratch)
{
    int64_t n = 0;
    for (int k = 0; k < N_SCRATCH; k++)
        n += scratch->bytes[k];
    return n;
}

void hcp_attention_scratch_free(hcp_attention_scratch *scratch)
{
    if (!scratch)
        return;
    release_scratch(scratch);
    free(scratch);
}

int hcp_attention_create(const hcp_provider *provider, const hcp_runtime *runtime,
                         const hcp_device_ref *device, const hcp_attn_problem *problem,
                         hcp_attention **out, char *err, size_t err_size)
{
    return hcp_attention_create_with(provider, runtime, device, problem, NULL, out, err,
                                     err_size);
}

int hcp_attention_create_with(const hcp_provider *provider, const hcp_runtime *runtime,
                              const hcp_device_ref *device,
                              const hcp_attn_problem *problem,
                              const hcp_attention_options *options, hcp_attention **out,
                              char *err, size_t err_size)
{
    char text[160];
    const char *reason = text, *doing = "";
    int rc = check_problem(problem, text, sizeof text);
    hcp_attention *a = NULL;
    hcp_attention_options with = options ? *options : (hcp_attention_options){0};
    if (!rc) {
        if (with.lse_pitch == 0)
            with.lse_pitch = problem->q_len;
        rc = check_pitch(problem, with.lse_pitch, text, sizeof text);
    }
    if (!rc && with.scratch && with.scratch->runtime != runtime) {
        snprintf(text, sizeof text, "the shared scratch is another runtime's");
        rc = HCP_RC_INVALID;
    }
    if (rc)
        goto fail;
    rc = HCP_RC_NO_MEMORY;
    reason = hcp_rc_text(rc);
    a = calloc(1, sizeof *a);
    if (!a)
        goto fail;
    a->provider = provider;
    a->runtime = a->own.runtime = runtime;
    a->scratch = with.scratch ? with.scratch : &a->own;
    a->problem = *problem;
    a->lse_pitch = with.lse_pitch;

    int yes = probe_block(provider, device, a, &reason);
    rc = yes < 0 ? -yes : yes ? HCP_RC_OK : HCP_RC_UNSUPPORTED;
    if (yes < 0)
        reason = hcp_rc_text(rc);
    for (int i = 0; !rc && i < a->n_calls; i++) {
        doing = "cannot plan: ";
        rc = provider->plan_create(device, &a->call[i].problem, &a->call[i].plan);
        reason = hcp_rc_text(rc);
    }
    if (!rc) {
        doing = "no scratch memory: ";
        count_scratch(a);
        rc = grow(a->scratch, a->needs);
        reason = hcp_rc_text(rc);
    }
    if (rc)
        goto fail;
    *out = a;
    return HCP_RC_OK;

fail:;
    /* A plan that query() promised and the device's library will not make. */
    int from_device = rc == HCP_RC_DEVICE || (rc == HCP_RC_UNSUPPORTED && *doing);
    const char *device_error = from_device ? runtime->last_error() : "";
    snprintf(err, err_size, "%s: %s%s%s%s", provider->name, doing, reason,
             device_error[0] ? ": " : "", device_error);
    hcp_attention_destroy(a);
    return rc;
}

void hcp_attention_destroy(hcp_attention *a)
{
    if (!a)
        return;
    for (int i = 0; i < 2; i++)
        if (a->call[i].plan)
            a->provider->plan_destroy(a->call[i].plan);
    release_scratch(&a->own);
    free(a);
}

/* The job of finishing rows [row, row + rows) of the caller's tensors. */
static hcp_finish finish_job(const hcp_attention *a, const hcp_attn_args *args,
                             int64_t row, int64_t rows)
{
    const hcp_attn_problem *p = &a->problem;
    hcp_finish job = {
        .batch = p->batch,
        .heads = p->heads,
        .rows = rows,
        .head_dim = p->head_dim,
        .o = (float *)args->o + row * p->o_stride[2],
        .lse = args->lse + row,
        .lse_pitch = a->lse_pitch,
    };
    memcpy(job.o_stride, p->o_stride, sizeof job.o_stride);
    return job;
}

/* L of the running state into scratch, where the provider finds it as it must be. */
static int load_lse(hcp_attention *a, const attention_call *c, const hcp_attn_args *args,
                    void *stream)
{
    hcp_finish job = finish_job(a, args, c->row, c->problem.q_len);
    job.o = NULL;
    job.lse_part = job.lse;
    job.part_pitch = job.lse_pitch;
    job.lse = a->scratch->at[PART_L];
    job.lse_pitch = c->problem.q_len;
    return a->runtime->finish(&job, stream);
}

static int run_call(hcp_attention *a, const attention_call *c, const hcp_attn_args *args,
                    void *stream)
{
    const hcp_attn_problem *p = &c->problem;
    float *lse = args->lse + c->row;
    int l_direct = c->l_direct && (uintptr_t)lse % 16 == 0;
    hcp_attn_args part = {
        .size = sizeof part,
        .q = (const char *)args->q + c->row * p->q_stride[2] * hcp_dtype_bytes(p->dtype),
        .k = args->k,
        .v = args->v,
        .o = c->o_direct ? (float *)args->o + c->row * p->o_stride[2]
                         : a->scratch->at[PART_O],
        .lse = l_direct ? lse : a->scratch->at[PART_L],
        .workspace = a->scratch->at[WORKSPACE],
        .q_len = p->q_len,
        .kv_len = p->kv_len,
        .diag = p->diag,
    };
    int rc = HCP_RC_OK;
    if (!l_direct && p->accumulate)
        rc = load_lse(a, c, args, stream);
    if (!rc)
        rc = a->provider->run(c->plan, &part, stream);
    if (rc || l_direct)
        return rc;

    hcp_finish job = finish_job(a, args, c->row, p->q_len);
    job.lse_part = a->scratch->at[PART_L];
    job.part_pitch = p->q_len;
    job.caps = c->support.caps & (HCP_CAP_LSE_LOG2 | HCP_CAP_EMPTY_POS_INF);
    if (c->o_direct) {
        job.o = NULL;
    } else {
        job.accumulate = a->problem.accumulate;
        job.part = a->scratch->at[PART_O];
        job.part_dtype = p->out_dtype;
        memcpy(job.part_stride, p->o_stride, sizeof job.part_stride);
    }
    return a->runtime->finish(&job, stream);
}

int hcp_attention_run(hcp_attention *a, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &a->problem;
    int rc = HCP_RC_OK;
    if (args->size < sizeof *args || args->q_len != p->q_len ||
        args->kv_len != p->kv_len || (p->causal && args->diag != p->diag))
        return HCP_RC_INVALID;
    for (int k = 0; k < N_SCRATCH; k++)
        if (a->needs[k] > a->scratch->bytes[k])
            return HCP_RC_NO_MEMORY; /* growing it for another step failed */
    if (a->empty_rows && !p->accumulate) {
        hcp_finish job = finish_job(a, args, 0, a->empty_rows);
        rc = a->runtime->finish(&job, stream);
    }
    for (int i = 0; !rc && i < a->n_calls; i++)
        rc = run_call(a, &a->call[i], args, stream);
    return rc;
}

int hcp_attention_finishes(const hcp_attention *a)
{
    for (int i = 0; i < a->n_calls; i++)
        if (!a->call[i].o_direct)
            return 1;
    return 0;
}

int hcp_attention_describe(const hcp_attention *a, char *text, size_t text_size)
{
    char plan[256] = "nothing to run";
    int rc = HCP_RC_OK;
    if (a->n_calls) {
        snprintf(plan, sizeof plan, "%s", a->provider->name);
        rc = a->provider->describe(a->call[0].plan, plan, sizeof plan);
    }
    int merged = a->problem.accumulate && hcp_attention_finishes(a);
    snprintf(text, text_size, "%s%s%s", plan, a->n_calls == 2 ? ", in two calls" : "",
             merged ? ", merge pass" : "");
    return rc;
}
