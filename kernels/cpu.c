/* SPDX-License-Identifier: Apache-2.0
 *
 * Provider "cpu-blas": blocked attention in fp32 on one core. A tile of queries
 * keeps its output, maximum and sum while it walks over the keys; both products
 * are cblas_sgemm. All query heads of one KV head are rows of the same tile, so
 * KV is read once per group and never expanded.
 */
#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cpu-lanes.h"
#include "kernels/dtype.h"
#include "kernels/problem.h"
#include "kernels/registry.h"

enum { TILE_ROWS = 128, TILE_KEYS = 256 };
#define LOG2_E 1.44269504088896340736
#define LN_2 0.693147180559945309417

struct hcp_attn_plan {
    hcp_attn_problem problem;
    int64_t group;  /* query heads a KV head */
    int64_t tile_q; /* tokens in a tile; rows = tile_q * group */
    float *q;       /* [rows][head_dim], times scale * log2(e) */
    float *k, *v;   /* [TILE_KEYS][head_dim] */
    float *s;       /* [rows][TILE_KEYS] */
    float *o;       /* [rows][head_dim] */
    hcp_softmax_row *state;
};

/* One (batch, KV head) of a run: element offsets of its first token. */
typedef struct head_group {
    int64_t batch, head;
    const char *k, *v;
} head_group;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static const char *cpu_version(void)
{
    return openblas_get_config();
}

static int cpu_query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                     hcp_attn_support *out)
{
    if (!device || !out || out->size < sizeof *out)
        return HCP_RC_INVALID;
    *out = (hcp_attn_support){.size = out->size};
    if (hcp_problem_check(problem, out->reason, sizeof out->reason))
        return HCP_RC_OK;
    if (device->kind != HCP_DEVICE_CPU)
        snprintf(out->reason, sizeof out->reason, "cpu-blas runs on the CPU only");
    else if (problem->out_dtype != HCP_FP32 && problem->out_dtype != problem->dtype)
        snprintf(out->reason, sizeof out->reason, "output in fp32 or %s, not %s",
                 hcp_dtype_name(problem->dtype), hcp_dtype_name(problem->out_dtype));
    else if (problem->accumulate && problem->out_dtype != HCP_FP32)
        snprintf(out->reason, sizeof out->reason, "the running state is fp32");
    else if (problem->head_dim > 1 << 14 || problem->heads / problem->kv_heads > 1 << 14)
        snprintf(out->reason, sizeof out->reason,
                 "head_dim and query heads a KV head up to 16384");
    else
        out->supported = 1;
    if (!out->supported)
        return HCP_RC_OK;
    out->caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC | HCP_CAP_NAN_ROWS;
    /* The last tile is computed at its true size: no rounding of lengths. */
    out->tile_q = out->tile_kv = 1;
    return HCP_RC_OK;
}

static void cpu_plan_destroy(hcp_attn_plan *plan)
{
    if (!plan)
        return;
    free(plan->q);
    free(plan);
}

/* A variable of OpenBLAS that its every product reads: written once, and before any
 * product of a thread that was here. */
static void use_one_thread(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    pthread_mutex_unlock(&lock);
}

/* All scratch in one block, allocated here so that run() needs none: a plan runs
 * in one thread at a time. Sets OpenBLAS to one thread for the whole process: the
 * device is one core, and a limiter or a second rank may own the others. */
static int cpu_plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                           hcp_attn_plan **out)
{
    hcp_attn_support support = {.size = sizeof support};
    int rc = cpu_query(device, problem, &support);
    if (rc || !support.supported)
        return rc ? rc : HCP_RC_UNSUPPORTED;

    hcp_attn_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return HCP_RC_NO_MEMORY;
    plan->problem = *problem;
    plan->group = problem->heads / problem->kv_heads;
    plan->tile_q = plan->group < TILE_ROWS ? TILE_ROWS / plan->group : 1;

    int64_t rows = plan->tile_q * plan->group, dim = problem->head_dim;
    int64_t floats = 2 * rows * dim + 2 * TILE_KEYS * dim + rows * TILE_KEYS + 2 * rows;
    void *scratch;
    if (posix_memalign(&scratch, 64, (size_t)floats * sizeof(float))) {
        free(plan);
        return HCP_RC_NO_MEMORY;
    }
    plan->q = scratch;
    plan->s = plan->q + rows * dim;
    plan->k = plan->s + rows * TILE_KEYS;
    plan->v = plan->k + TILE_KEYS * dim;
    plan->o = plan->v + TILE_KEYS * dim;
    plan->state = (hcp_softmax_row *)(plan->o + rows * dim);
    use_one_thread();
    *out = plan;
    return HCP_RC_OK;
}

/* Keys [first, first + n) of k or v as fp32: in place where they are that already,
 * else converted into tile. *ld is the distance of two tokens. */
static const float *load_keys(float *tile, const char *base, int64_t stride,
                              int64_t first, int64_t n, const hcp_attn_problem *p,
                              int *ld)
{
    int64_t bytes = hcp_dtype_bytes(p->dtype);
    const void *src = base + first * stride * bytes;
    if (p->dtype == HCP_FP32 && stride >= p->head_dim && stride <= INT_MAX) {
        *ld = (int)stride;
        return src;
    }
    *ld = (int)p->head_dim;
    for (int64_t j = 0; j < n; j++)
        hcp_lanes_to_float(tile + j * p->head_dim, (const char *)src + j * stride * bytes,
                           p->head_dim, p->dtype);
    return tile;
}

/* Address and L index of the row of token i and query head number g of the group. */
static int64_t row_offset(const int64_t stride[3], const head_group *hg, int64_t g,
                          int64_t i)
{
    return hg->batch * stride[0] + (hg->head + g) * stride[1] + i * stride[2];
}

static void load_queries(hcp_attn_plan *plan, const hcp_attn_args *args,
                         const head_group *hg, int64_t i0, int64_t tokens)
{
    const hcp_attn_problem *p = &plan->problem;
    int64_t dim = p->head_dim, bytes = hcp_dtype_bytes(p->dtype);
    float scale = (float)(p->scale * LOG2_E);
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t g = 0; g < plan->group; g++) {
            int64_t row = i * plan->group + g;
            float *q = plan->q + row * dim, *o = plan->o + row * dim;
            hcp_lanes_to_float(
                q, (const char *)args->q + row_offset(p->q_stride, hg, g, i0 + i) * bytes,
                dim, p->dtype);
            for (int64_t d = 0; d < dim; d++)
                q[d] *= scale;

            float lse = -INFINITY;
            if (p->accumulate)
                lse = args->lse[(hg->batch * p->heads + hg->head + g) * args->q_len + i0 +
                                i];
            /* A running state is one key of weight 1: score L, value O. */
            if (lse != -INFINITY) {
                plan->state[row] = (hcp_softmax_row){(float)(lse * LOG2_E), 1};
                memcpy(o, (const float *)args->o + row_offset(p->o_stride, hg, g, i0 + i),
                       (size_t)dim * sizeof *o);
            } else {
                plan->state[row] = (hcp_softmax_row){-INFINITY, 0};
                memset(o, 0, (size_t)dim * sizeof *o);
            }
        }
}

static void store_rows(hcp_attn_plan *plan, const hcp_attn_args *args,
                       const head_group *hg, int64_t i0, int64_t tokens)
{
    const hcp_attn_problem *p = &plan->problem;
    int64_t dim = p->head_dim, bytes = hcp_dtype_bytes(p->out_dtype);
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t g = 0; g < plan->group; g++) {
            int64_t row = i * plan->group + g;
            float *o = plan->o + row * dim, sum = plan->state[row].sum;
            float inverse = sum == 0 ? 0 : 1 / sum;
            for (int64_t d = 0; d < dim; d++)
                o[d] *= inverse;
            hcp_from_float((char *)args->o +
                               row_offset(p->o_stride, hg, g, i0 + i) * bytes,
                           o, dim, p->out_dtype);
            args->lse[(hg->batch * p->heads + hg->head + g) * args->q_len + i0 + i] =
                (float)(plan->state[row].max * LN_2 + log(sum));
        }
}

static void scale_row(float *o, int64_t dim, float factor)
{
    if (factor == 0) /* select: what is discarded may be NaN */
        memset(o, 0, (size_t)dim * sizeof *o);
    else if (factor != 1)
        for (int64_t d = 0; d < dim; d++)
            o[d] *= factor;
}

/* tokens query tokens from i0 against all keys that any of them sees. */
static void run_tile(hcp_attn_plan *plan, const hcp_attn_args *args, const head_group *hg,
                     int64_t i0, int64_t tokens)
{
    const hcp_attn_problem *p = &plan->problem;
    int64_t dim = p->head_dim, rows = tokens * plan->group, kv_end = args->kv_len;
    if (p->causal && args->diag < kv_end) /* else every row sees all; sums stay small */
        kv_end = min64(kv_end, i0 + tokens + args->diag);

    load_queries(plan, args, hg, i0, tokens);
    for (int64_t j0 = 0; j0 < kv_end; j0 += TILE_KEYS) {
        int64_t keys = min64(kv_end - j0, TILE_KEYS);
        int64_t width = (keys + HCP_LANES - 1) / HCP_LANES * HCP_LANES;
        int k_ld, v_ld;
        const float *k = load_keys(plan->k, hg->k, p->k_stride[2], j0, keys, p, &k_ld);
        const float *v = load_keys(plan->v, hg->v, p->v_stride[2], j0, keys, p, &v_ld);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)keys,
                    (int)dim, 1, plan->q, (int)dim, k, k_ld, 0, plan->s, TILE_KEYS);
        for (int64_t r = 0; r < rows; r++) {
            int64_t visible = keys;
            if (p->causal && args->diag < args->kv_len) {
                visible = i0 + r / plan->group + args->diag + 1 - j0;
                visible = visible < 0 ? 0 : min64(visible, keys);
            }
            scale_row(plan->o + r * dim, dim,
                      hcp_softmax_tile_row(plan->s + r * TILE_KEYS, visible, width,
                                           plan->state + r));
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)dim,
                    (int)keys, 1, plan->s, TILE_KEYS, v, v_ld, 1, plan->o, (int)dim);
    }
    store_rows(plan, args, hg, i0, tokens);
}

static int cpu_run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    (void)stream;
    if (!plan || !args || args->size < sizeof *args)
        return HCP_RC_INVALID;
    const hcp_attn_problem *p = &plan->problem;
    if (args->q_len < 0 || args->q_len > p->q_len || args->kv_len < 0 ||
        args->kv_len > p->kv_len || (p->causal && args->diag < 0))
        return HCP_RC_INVALID;

    int64_t bytes = hcp_dtype_bytes(p->dtype);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++) {
            head_group hg = {
                .batch = b,
                .head = h * plan->group,
                .k = (const char *)args->k +
                     (b * p->k_stride[0] + h * p->k_stride[1]) * bytes,
                .v = (const char *)args->v +
                     (b * p->v_stride[0] + h * p->v_stride[1]) * bytes,
            };
            for (int64_t i = 0; i < args->q_len; i += plan->tile_q)
                run_tile(plan, args, &hg, i, min64(args->q_len - i, plan->tile_q));
        }
    return HCP_RC_OK;
}

static int cpu_describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    snprintf(text, text_size,
             "sgemm fp32 on %s, 1 thread, tiles of %d queries x %d heads, %d keys",
             openblas_get_corename(), (int)plan->tile_q, (int)plan->group, TILE_KEYS);
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_cpu(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CPU,
        .name = "cpu-blas",
        .version = cpu_version,
        .query = cpu_query,
        .plan_create = cpu_plan_create,
        .run = cpu_run,
        .plan_destroy = cpu_plan_destroy,
        .describe = cpu_describe,
    };
    return &provider;
}
