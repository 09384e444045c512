/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention providers on a real GPU: the conformance set on each that is built in, a
 * ring of uneven shards, and speed. TAP; skips without a GPU.
 *   --sanitize       small shapes only, no timing: for compute-sanitizer
 *   --huge           also a tensor over 2^31 elements (13 GiB)
 *   --threads        cuDNN's conformance cases side by side too; each thread's handles
 *                    compile the kernels anew, so that it may also take longer
 *   --provider NAME  this one only
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "gpu-tap.h"
#include "kernels/conformance.h"
#include "kernels/cuda.h"
#include "kernels/geometry.h"
#include "kernels/registry.h"

static const hcp_runtime *rt;
static hcp_device_ref gpu;
static char err[512];

static void *device_alloc(int64_t bytes)
{
    void *p = NULL;
    if (rt->alloc(&p, bytes) != HCP_RC_OK) {
        printf("Bail out! %s\n", rt->last_error());
        exit(1);
    }
    return p;
}

static void must(int rc, const char *what)
{
    if (rc != HCP_RC_OK) {
        printf("Bail out! %s: %s: %s %s\n", what, hcp_rc_text(rc), err, rt->last_error());
        exit(1);
    }
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Refused although query() said yes: no plan could be made. */
static int refused_late;

static void report(const hcp_conformance_case *c, void *user)
{
    const char *provider = user;
    refused_late +=
        c->outcome == HCP_CASE_REFUSED && strstr(c->text, "cannot plan") != NULL;
    if (c->outcome == HCP_CASE_REFUSED)
        ok(1, "%s: %s # SKIP %s", provider, c->name, c->text);
    else
        ok(c->outcome == HCP_CASE_PASSED,
           "%s: %s (O %.2e, L %.2f of its bound, %lld rows) %s", provider, c->name,
           c->o_error, c->lse_error, (long long)c->rows_compared, c->text);
}

static void conform(const hcp_provider *provider, int level)
{
    hcp_conformance_summary sum;
    double from = now_ms();
    refused_late = 0;
    int rc =
        hcp_conformance_run(provider, rt, &gpu, level, report,
                            (void *)(uintptr_t)provider->name, &sum, err, sizeof err);
    if (!ok(rc == HCP_RC_OK, "%s: the set ran to its end", provider->name)) {
        note("%s", err);
        return;
    }
    ok(sum.passed > 0 && sum.failed == 0, "%s %s: %lld passed, %lld refused, %lld failed",
       provider->name, provider->version(), (long long)sum.passed, (long long)sum.refused,
       (long long)sum.failed);
    /* Known of one architecture: there every plan was made. */
    ok(refused_late == 0 || gpu.cc_major != 9, "%s: %d cases without a plan",
       provider->name, refused_late);
    note("%s: conformance took %.1f s", provider->name, (now_ms() - from) * 1e-3);
    note("%s: worst O error bf16 %.2e fp16 %.2e fp32 %.2e, worst L %.3f of its bound",
         provider->name, sum.worst_o_error[HCP_BF16], sum.worst_o_error[HCP_FP16],
         sum.worst_o_error[HCP_FP32], sum.worst_lse_error);
}

/* A whole sequence, [heads][len][head_dim], of which ranks use slices. */
struct sequence {
    hcp_attn_problem problem; /* of the single pass */
    void *q, *k, *v;
    float *o;
    float *lse;
};

static struct sequence make_sequence(int64_t len, int64_t heads, int64_t kv_heads,
                                     int64_t head_dim, int causal)
{
    struct sequence s = {.problem = {.size = sizeof s.problem,
                                     .batch = 1,
                                     .q_len = len,
                                     .kv_len = len,
                                     .heads = heads,
                                     .kv_heads = kv_heads,
                                     .head_dim = head_dim,
                                     .dtype = HCP_BF16,
                                     .out_dtype = HCP_FP32,
                                     .causal = causal,
                                     .scale = 1 / sqrt((double)head_dim)}};
    const int64_t nq = heads * len * head_dim, nk = kv_heads * len * head_dim;
    hcp_problem_set_dense_strides(&s.problem);
    s.q = device_alloc(2 * nq);
    s.k = device_alloc(2 * nk);
    s.v = device_alloc(2 * nk);
    s.o = device_alloc(4 * nq);
    s.lse = device_alloc(4 * heads * len);
    must(rt->randn(s.q, nq, HCP_BF16, 1, 0, NULL), "fill Q");
    must(rt->randn(s.k, nk, HCP_BF16, 2, 0, NULL), "fill K");
    must(rt->randn(s.v, nk, HCP_BF16, 3, 0, NULL), "fill V");
    must(rt->fill(s.o, 0xff, 4 * nq, NULL), "poison O");
    return s;
}

static void free_sequence(struct sequence *s)
{
    rt->release(s->q);
    rt->release(s->k);
    rt->release(s->v);
    rt->release(s->o);
    rt->release(s->lse);
}

/* Queries [q0, q0 + q_len) against keys [k0, k0 + kv_len); lse of these queries, heads
 * lse_pitch apart. */
static void step(const struct sequence *s, const hcp_provider *provider, int64_t q0,
                 int64_t q_len, int64_t k0, int64_t kv_len, int accumulate, float *lse,
                 int64_t lse_pitch)
{
    hcp_attn_problem p = s->problem;
    hcp_attention *a = NULL;
    const int64_t d = p.head_dim;
    p.q_len = q_len;
    p.kv_len = kv_len;
    p.diag = q0 - k0;
    p.accumulate = accumulate;
    const hcp_attn_args args = {.size = sizeof args,
                                .q = (const char *)s->q + 2 * q0 * d,
                                .k = (const char *)s->k + 2 * k0 * d,
                                .v = (const char *)s->v + 2 * k0 * d,
                                .o = s->o + q0 * d,
                                .lse = lse,
                                .q_len = q_len,
                                .kv_len = kv_len,
                                .diag = p.diag};
    must(hcp_attention_create_with(provider, rt, &gpu, &p,
                                   &(hcp_attention_options){.lse_pitch = lse_pitch}, &a,
                                   err, sizeof err),
         "plan");
    must(hcp_attention_run(a, &args, NULL), "run");
    must(rt->sync(NULL), "finish");
    hcp_attention_destroy(a);
}

static float *fetch(const float *p, int64_t n)
{
    float *host = malloc((size_t)n * sizeof *host);
    if (!host)
        exit(1);
    must(rt->to_host(host, p, n * 4, NULL), "fetch");
    return host;
}

static double frobenius(const float *x, const float *ref, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)x[i] - ref[i]) * ((double)x[i] - ref[i]);
        norm += (double)ref[i] * ref[i];
    }
    return sqrt(diff / norm);
}

/* Rank r of the ring gets the KV blocks of ranks r, r - 1, ... L of a rank is a tensor
 * of its own, or with pitched the rank's rows of the sequence's L, at any alignment. */
static void ring(const hcp_provider *provider, const hcp_provider *truth, int causal,
                 int pitched, int64_t unit)
{
    const int64_t share[] = {7 * unit + 3, 0, 13 * unit, 1, 2 * unit + 77};
    enum { RANKS = sizeof share / sizeof *share };
    int64_t start[RANKS], len = 0, heads = 8, d = 128;
    for (int r = 0; r < RANKS; r++) {
        start[r] = len;
        len += share[r];
    }
    struct sequence s = make_sequence(len, heads, 2, d, causal);
    const int64_t n = heads * len * d;
    hcp_attn_support support = {.size = sizeof support};
    must(hcp_attention_probe(provider, &gpu, &s.problem, &support), "probe");
    if (!support.supported) {
        ok(1, "%s: ring of %d shards # SKIP %s", provider->name, RANKS, support.reason);
        free_sequence(&s);
        return;
    }
    step(&s, truth, 0, len, 0, len, 0, s.lse, len);
    float *o_true = fetch(s.o, n), *l_true = fetch(s.lse, heads * len);
    step(&s, provider, 0, len, 0, len, 0, s.lse, len);
    float *o_one = fetch(s.o, n);
    must(rt->fill(s.o, 0xff, 4 * n, NULL), "poison O");
    must(rt->fill(s.lse, 0xff, 4 * heads * len, NULL), "poison L");

    double worst_l = 0;
    for (int r = 0; r < RANKS; r++) {
        int64_t pitch = pitched ? len : share[r];
        float *own = pitched ? NULL : device_alloc(4 * heads * (share[r] ? share[r] : 1));
        float *lse = pitched ? s.lse + start[r] : own;
        for (int k = 0; k < RANKS && share[r]; k++) {
            int from = (r - k + RANKS) % RANKS;
            step(&s, provider, start[r], share[r], start[from], share[from], k > 0, lse,
                 pitch);
        }
        float *l = share[r] ? fetch(lse, (heads - 1) * pitch + share[r]) : NULL;
        for (int64_t i = 0; i < heads * share[r]; i++) {
            int64_t head = i / share[r], row = i % share[r];
            float want = l_true[head * len + start[r] + row];
            double e = fabs((double)l[head * pitch + row] - want) /
                       (1e-4 + 1e-5 * fabs((double)want));
            worst_l = e <= worst_l ? worst_l : e; /* takes NaN */
        }
        free(l);
        rt->release(own);
    }
    float *o_ring = fetch(s.o, n);
    /* The truth is fp32 itself: below 2e-6 the ratio means nothing. */
    double one = frobenius(o_one, o_true, n), many = frobenius(o_ring, o_true, n);
    double bound = 3 * (one > 2e-6 ? one : 2e-6);
    ok(many <= bound && one <= 4e-3,
       "%s: %s ring of %d uneven shards of %lld tokens, L %s: O %.2e, "
       "single pass %.2e",
       provider->name, causal ? "causal" : "full", RANKS, (long long)len,
       pitched ? "pitched" : "of its own", many, one);
    ok(worst_l <= 1, "%s: L of that ring, %.3f of its bound", provider->name, worst_l);
    free(o_true);
    free(l_true);
    free(o_one);
    free(o_ring);
    free_sequence(&s);
}

/* The last queries of a sequence against its keys in uneven blocks, the last block
 * first, as decoding in a ring would: for providers that take few queries only. */
static void decode_ring(const hcp_provider *provider, const hcp_provider *truth,
                        int causal, int64_t unit)
{
    const int64_t share[] = {7 * unit + 3, 0, 43 * unit, 16, 20 * unit + 77};
    enum { BLOCKS = sizeof share / sizeof *share, ROWS = 16 };
    int64_t len = 0, heads = 8, d = 128;
    for (int r = 0; r < BLOCKS; r++)
        len += share[r];
    struct sequence s = make_sequence(len, heads, 2, d, causal);
    const int64_t n = heads * len * d, first = len - ROWS;
    must(rt->fill(s.lse, 0xff, 4 * heads * ROWS, NULL), "poison L");
    for (int64_t to = len, r = BLOCKS - 1; r >= 0; to -= share[r--])
        step(&s, provider, first, ROWS, to - share[r], share[r], r < BLOCKS - 1, s.lse,
             ROWS);
    float *o = fetch(s.o, n), *l = fetch(s.lse, heads * ROWS);
    step(&s, truth, first, ROWS, 0, len, 0, s.lse, ROWS);
    float *o_true = fetch(s.o, n), *l_true = fetch(s.lse, heads * ROWS);

    double diff = 0, norm = 0, worst_l = 0;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = (h * len + first) * d; i < (h + 1) * len * d; i++) {
            diff += ((double)o[i] - o_true[i]) * ((double)o[i] - o_true[i]);
            norm += (double)o_true[i] * o_true[i];
        }
    for (int64_t i = 0; i < heads * ROWS; i++) {
        double e =
            fabs((double)l[i] - l_true[i]) / (1e-4 + 1e-5 * fabs((double)l_true[i]));
        worst_l = e <= worst_l ? worst_l : e; /* takes NaN */
    }
    ok(sqrt(diff / norm) <= 4e-3 && worst_l <= 1,
       "%s: %s, %d queries against %lld keys in %d uneven blocks: O %.2e, L %.3f of its "
       "bound",
       provider->name, causal ? "causal" : "full", ROWS, (long long)len, BLOCKS,
       sqrt(diff / norm), worst_l);
    free(o);
    free(l);
    free(o_true);
    free(l_true);
    free_sequence(&s);
}

/* Whether the provider takes shards of this many tokens. */
static int takes(const hcp_provider *provider, int64_t tokens)
{
    hcp_attn_support support = {.size = sizeof support};
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = tokens,
                          .kv_len = tokens,
                          .heads = 8,
                          .kv_heads = 2,
                          .head_dim = 128,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_FP32,
                          .scale = 0.088};
    hcp_problem_set_dense_strides(&p);
    must(hcp_attention_probe(provider, &gpu, &p, &support), "query");
    return support.supported;
}

/* What a sweep pays a cell: plans of one kernel family, each destroyed before the
 * next. Compiling once must serve all lengths. */
static void plan_time(const hcp_provider *provider)
{
    static const int64_t lens[] = {1040, 1296, 2064, 4112, 8208, 16400};
    enum { N = sizeof lens / sizeof *lens };
    double ms[N], worst = 0;
    for (int causal = 0; causal < 2; causal++) {
        for (int i = 0; i < N; i++) {
            hcp_attn_problem p = {.size = sizeof p,
                                  .batch = 1,
                                  .q_len = lens[i],
                                  .kv_len = lens[i] + 8,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .dtype = HCP_BF16,
                                  .out_dtype = HCP_BF16,
                                  .causal = causal,
                                  .scale = 0.088};
            hcp_attn_plan *plan = NULL;
            hcp_problem_set_dense_strides(&p);
            double from = now_ms();
            must(provider->plan_create(&gpu, &p, &plan), "plan");
            ms[i] = now_ms() - from;
            provider->plan_destroy(plan);
            if (i > 0 && ms[i] > worst)
                worst = ms[i];
        }
        ok(worst < 200,
           "%s: first %s plan %.0f ms, later lengths %.0f %.0f %.0f %.0f %.0f",
           provider->name, causal ? "causal" : "full", ms[0], ms[1], ms[2], ms[3], ms[4],
           ms[5]);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median time of one provider call, ms; its own output type, no merge. */
static double time_call(const hcp_provider *provider, const struct sequence *s,
                        int64_t q_len, int64_t kv_len, int causal, int64_t diag,
                        int32_t out_dtype, char *what, size_t what_size)
{
    enum { RUNS = 12, WARM = 4 };
    hcp_attn_problem p = s->problem;
    hcp_attn_support support = {.size = sizeof support};
    hcp_attn_plan *plan = NULL;
    cudaEvent_t from, to;
    double ms[RUNS];
    p.q_len = q_len;
    p.kv_len = kv_len;
    p.causal = causal;
    p.diag = diag;
    p.out_dtype = out_dtype;
    must(provider->query(&gpu, &p, &support), "query");
    if (!support.supported) {
        note("%s: %s", provider->name, support.reason);
        return NAN;
    }
    must(provider->plan_create(&gpu, &p, &plan), "plan");
    provider->describe(plan, what, what_size);
    void *workspace = device_alloc(support.workspace_bytes);
    const hcp_attn_args args = {.size = sizeof args,
                                .q = s->q,
                                .k = s->k,
                                .v = s->v,
                                .o = s->o,
                                .lse = s->lse,
                                .workspace = workspace,
                                .q_len = q_len,
                                .kv_len = kv_len,
                                .diag = diag};
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int i = -WARM; i < RUNS; i++) {
        float t = 0;
        cudaEventRecord(from, NULL);
        must(provider->run(plan, &args, NULL), "run");
        cudaEventRecord(to, NULL);
        must(rt->sync(NULL), "time");
        cudaEventElapsedTime(&t, from, to);
        if (i >= 0)
            ms[i] = t;
    }
    qsort(ms, RUNS, sizeof *ms, by_value);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    provider->plan_destroy(plan);
    rt->release(workspace);
    return (ms[RUNS / 2 - 1] + ms[RUNS / 2]) / 2;
}

static void speed(const hcp_provider *provider, int32_t out_dtype, int64_t len,
                  const int64_t (*shapes)[4], int n, double limit_ms)
{
    struct sequence s = make_sequence(len, 32, 8, 128, 0);
    for (int i = 0; i < n; i++) {
        const int64_t q = shapes[i][0], kv = shapes[i][1], diag = shapes[i][3];
        const int causal = shapes[i][2] != 0;
        char what[256] = "";
        double ms =
            time_call(provider, &s, q, kv, causal, diag, out_dtype, what, sizeof what);
        double flops = hcp_attention_flops(
            hcp_block_area(causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, q, kv, diag), 1, 32,
            128);
        if (isnan(ms)) {
            ok(1, "%s: %lld x %lld %s # SKIP refused", provider->name, (long long)q,
               (long long)kv, causal ? "causal" : "full");
            continue;
        }
        ok(ms <= limit_ms, "%s: %lld x %lld %s: %.3f ms, %.0f TFLOP/s (%s)",
           provider->name, (long long)q, (long long)kv, causal ? "causal" : "full", ms,
           flops / ms * 1e-9, what);
    }
    free_sequence(&s);
}

/* All that is checked of one provider, against the reference kernel where it needs a
 * truth. */
static void check(const hcp_provider *provider, const hcp_provider *reference,
                  int sanitize, int huge, int threads)
{
    /* q_len, kv_len, causal, diag */
    static const int64_t large[][4] = {
        {16384, 16384, 0, 0}, {16384, 16384, 1, 0},     {6016, 59520, 0, 0},
        {65536, 65536, 1, 0}, {16384, 32768, 1, 16384}, {1, 65536, 0, 0},
    };
    static const int64_t middling[][4] = {{4097, 4097, 0, 0}, {4097, 4097, 1, 0}};
    const int slow = provider == reference, cudnn = !strcmp(provider->name, "cudnn");
    const int level = sanitize ? HCP_CONFORMANCE_QUICK
                               : HCP_CONFORMANCE_FULL | huge |
                                     (cudnn ? threads : HCP_CONFORMANCE_THREADS);
    if (!strcmp(provider->version(), "missing")) {
        ok(1, "%s # SKIP library missing", provider->name);
        return;
    }
    conform(provider, level);
    const int64_t unit = sanitize ? 16 : 448;
    const int prefill = takes(provider, 1000);
    for (int form = 0; form < 4 && prefill; form++)
        ring(provider, reference, form & 1, form >> 1, unit);
    for (int causal = 0; causal < 2; causal++)
        decode_ring(provider, reference, causal, unit);
    if (sanitize)
        return;
    if (cudnn)
        plan_time(provider);
    if (slow)
        speed(provider, HCP_FP32, 4097, middling, 2, 1000);
    else
        speed(provider, HCP_BF16, 65536, large, sizeof large / sizeof *large, 10000);
}

int main(int argc, char **argv)
{
    int sanitize = 0, huge = 0, threads = 0, count, checked = 0;
    const char *name = NULL;
    hcp_cuda_info info;
    hcp_registry *registry = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--sanitize"))
            sanitize = 1;
        else if (!strcmp(argv[i], "--huge"))
            huge = HCP_CONFORMANCE_HUGE;
        else if (!strcmp(argv[i], "--threads"))
            threads = HCP_CONFORMANCE_THREADS;
        else if (!strcmp(argv[i], "--provider") && i + 1 < argc)
            name = argv[++i];
        else
            return fprintf(stderr, "usage: gpu-kernels [--sanitize] [--huge] [--threads] "
                                   "[--provider NAME]\n"),
                   2;
    }
    if (hcp_cuda_device_count(&count, err, sizeof err) == HCP_RC_MISSING) {
        printf("1..0 # SKIP no CUDA device: %s\n", err);
        return 0;
    }
    rt = hcp_runtime_cuda();
    must(hcp_cuda_device(0, &gpu, &info, err, sizeof err), "open the GPU");
    must(rt->select(0), "select the GPU");
    note("%s %s, %d SMs, %.1f GB, L2 %.0f MB, MPS %d, driver %d, runtime %d", info.name,
         info.uuid, info.sm_count, (double)info.memory_bytes * 1e-9,
         (double)info.l2_bytes * 1e-6, info.mps_enabled, info.driver_version,
         info.runtime_version);

    const hcp_provider *reference = hcp_provider_cuda_reference();
    must(hcp_registry_open(&gpu, NULL, &registry, err, sizeof err), "open the registry");
    /* The least preferred first: what the others are measured against. */
    for (size_t i = hcp_registry_count(registry); i-- > 0;) {
        const hcp_provider *provider = hcp_registry_at(registry, i);
        if (!(provider->device_kinds & HCP_DEVICE_CUDA) ||
            (name && strcmp(name, provider->name)))
            continue;
        checked++;
        check(provider, reference, sanitize, huge, threads);
    }
    hcp_registry_close(registry);
    if (checked == 0) {
        printf("Bail out! no built-in provider of this GPU is called %s\n",
               name ? name : "anything");
        return 1;
    }
    return tap_done();
}
