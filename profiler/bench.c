/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/bench.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/dtype.h"
#include "profiler/check.h"

enum { POOL_STEP = 16 << 20 }; /* bytes */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int hcp_bench_fail(const struct hcp_bench *bench, int rc, const char *doing,
                   struct hcp_err *err)
{
    const char *detail = bench->runtime->last_error();
    if (bench->gemm && *bench->gemm->error)
        detail = bench->gemm->error;
    return hcp_fail(err, HCP_FAILED, "%s: %s: %s%s%s",
                    bench->provider ? bench->provider->name
                    : bench->gemm   ? bench->gemm->library
                                    : "device",
                    doing, hcp_rc_text(rc), *detail ? ": " : "", detail);
}

static int dtype_of(const char *name, int32_t *out, struct hcp_err *err)
{
    *out = hcp_dtype_of_name(name);
    return *out >= 0
               ? HCP_OK
               : hcp_fail(err, HCP_USAGE, "dtype '%s': use bf16, fp16 or fp32", name);
}

/* Grows a device buffer; what it held is lost. */
static int grow(struct hcp_bench *b, void **buffer, int64_t *have, int64_t want,
                struct hcp_err *err)
{
    if (*have >= want)
        return HCP_OK;
    b->runtime->release(*buffer);
    *buffer = NULL;
    *have = 0;
    int rc = b->runtime->alloc(buffer, want);
    if (rc != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "no memory for %.3f GB on the device (%s)",
                        1e-9 * (double)want, b->runtime->last_error());
    *have = want;
    return HCP_OK;
}

/* The same, filled with random numbers of a type. */
static int grow_random(struct hcp_bench *b, void **buffer, int64_t *have, int64_t want,
                       int32_t dtype, struct hcp_err *err)
{
    if (*have >= want)
        return HCP_OK;
    int rc = grow(b, buffer, have, want, err);
    if (rc != HCP_OK)
        return rc;
    rc =
        b->runtime->randn(*buffer, want / hcp_dtype_bytes(dtype), dtype, 1, 0, b->stream);
    if (rc == HCP_RC_OK)
        rc = b->runtime->sync(b->stream);
    return rc == HCP_RC_OK ? HCP_OK : hcp_bench_fail(b, rc, "random inputs", err);
}

int hcp_bench_grow_pool(struct hcp_bench *bench, int64_t want, struct hcp_err *err)
{
    void *pool = bench->pool;
    int rc = grow_random(bench, &pool, &bench->pool_bytes, want, bench->shape.dtype, err);
    bench->pool = pool;
    return rc;
}

int hcp_bench_grow_state(struct hcp_bench *bench, int64_t want, struct hcp_err *err)
{
    void *state = bench->state;
    int rc = grow_random(bench, &state, &bench->state_bytes, want, HCP_FP32, err);
    bench->state = state;
    return rc;
}

int hcp_bench_grow_o(struct hcp_bench *bench, int64_t want, struct hcp_err *err)
{
    return grow(bench, &bench->o, &bench->o_bytes, want, err);
}

int hcp_bench_grow_output(struct hcp_bench *bench, const hcp_attn_problem *problem,
                          struct hcp_err *err)
{
    int64_t rows = problem->batch * problem->heads * problem->q_len;
    void *lse = bench->lse;
    int rc = grow(bench, &bench->o, &bench->o_bytes,
                  rows * problem->head_dim * hcp_dtype_bytes(problem->out_dtype), err);
    if (rc == HCP_OK)
        rc = grow(bench, &lse, &bench->lse_bytes, rows * (int64_t)sizeof(float), err);
    bench->lse = lse;
    return rc;
}

int hcp_bench_open(struct hcp_bench *bench, const struct hcp_device_config *config,
                   const hcp_runtime *runtime, const hcp_device_ref *device,
                   int64_t cold_bytes, struct hcp_device_info *info, struct hcp_err *err)
{
    struct hcp_bench b = {
        .runtime = runtime, .device = *device, .cold_bytes = cold_bytes};
    char why[900];
    int decode = strcmp(config->phase, "decode") == 0;
    b.shape = (hcp_attn_problem){.size = sizeof b.shape,
                                 .batch = config->batch,
                                 .q_len = decode ? 1 : 1024,
                                 .kv_len = 1024,
                                 .heads = config->heads,
                                 .kv_heads = config->kv_heads,
                                 .head_dim = config->head_dim,
                                 .out_dtype = HCP_FP32,
                                 .scale = 1 / sqrt(config->head_dim)};
    int rc = dtype_of(config->dtype, &b.shape.dtype, err);
    if (rc != HCP_OK)
        return rc;
    if (config->linear) {
        rc = hcp_bench_open_linear(&b, config, info, err);
        if (rc != HCP_OK)
            goto fail;
        *bench = b;
        return HCP_OK;
    }
    rc = hcp_registry_open(device, *config->plugin ? config->plugin : NULL, &b.registry,
                           why, sizeof why);
    if (rc != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    hcp_attn_problem typical = b.shape;
    hcp_problem_set_dense_strides(&typical);
    hcp_attn_support support = {.size = sizeof support};
    const char *name = *config->provider ? config->provider : NULL;
    if (!name && *config->plugin) /* asked for: no other kernel in its place */
        name = hcp_registry_at(b.registry, 0)->name;
    b.provider = hcp_registry_pick(b.registry, name, &typical, &support, why, sizeof why);
    if (!b.provider) {
        rc = hcp_fail(err, HCP_FAILED, "no kernel for this shape: %s", why);
        goto fail;
    }
    rc = runtime->stream_create(&b.stream);
    if (rc != HCP_RC_OK) {
        rc = hcp_bench_fail(&b, rc, "stream", err);
        goto fail;
    }
    info->finishes = hcp_bench_finishes(&b);
    snprintf(info->provider, sizeof info->provider, "%s", b.provider->name);
    snprintf(info->provider_version, sizeof info->provider_version, "%s",
             b.provider->version());
    *bench = b;
    return HCP_OK;
fail:
    hcp_bench_close(&b);
    return rc;
}

static void free_plans(const struct hcp_bench *b, struct hcp_bench_plan *p)
{
    if (p->plan)
        b->provider->plan_destroy(p->plan);
    if (p->without)
        b->provider->plan_destroy(p->without);
    *p = (struct hcp_bench_plan){0};
}

void hcp_bench_close(struct hcp_bench *bench)
{
    struct hcp_bench *b = bench;
    for (int i = 0; i < HCP_BENCH_PLANS; i++)
        free_plans(b, &b->plans[i]);
    b->runtime->release(b->pool);
    b->runtime->release(b->o);
    b->runtime->release(b->lse);
    b->runtime->release(b->state);
    b->runtime->release(b->workspace);
    if (b->stream)
        b->runtime->stream_destroy(b->stream);
    hcp_gemm_close(b->gemm);
    hcp_registry_close(b->registry);
}

int hcp_bench_check(struct hcp_bench *bench, char result[64], struct hcp_err *err)
{
    char why[700];
    if (bench->gemm) { /* each product is checked before it is timed */
        strcpy(result, "each product against a reference");
        return HCP_OK;
    }
    if (hcp_check_kernel(bench->provider, bench->runtime, &bench->device, &bench->shape,
                         result, why, sizeof why) != 0)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    return HCP_OK;
}

/* Asks for fp32 output first, as an executor does, else in the inputs' type. */
static int probe(const struct hcp_bench *b, struct hcp_bench_plan *p, struct hcp_err *err)
{
    const int32_t outputs[] = {HCP_FP32, b->shape.dtype};
    for (int i = 0; i < (p->problem.accumulate ? 1 : 2); i++) {
        p->problem.out_dtype = outputs[i];
        p->support = (hcp_attn_support){.size = sizeof p->support};
        int rc = b->provider->query(&b->device, &p->problem, &p->support);
        if (rc != HCP_RC_OK)
            return hcp_bench_fail(b, rc, "query", err);
        if (p->support.supported &&
            (outputs[i] == b->shape.dtype || p->support.caps & HCP_CAP_OUT_FP32))
            return HCP_OK;
    }
    return hcp_fail(err, HCP_FAILED, "%s: q_len %lld kv_len %lld%s: %s",
                    b->provider->name, (long long)p->q_len, (long long)p->problem.kv_len,
                    p->causal ? " causal" : "",
                    *p->support.reason ? p->support.reason : "not supported");
}

int hcp_bench_plan_block(struct hcp_bench *bench, struct hcp_bench_plan *plan,
                         struct hcp_err *err)
{
    struct hcp_bench *b = bench;
    struct hcp_bench_plan *p = plan;
    int rc = probe(b, p, err);
    if (rc != HCP_OK)
        return rc;
    const hcp_attn_problem *s = &p->problem;
    int64_t row = s->batch * s->head_dim * hcp_dtype_bytes(s->dtype);
    int64_t q_bytes = round_up(row * s->heads * s->q_len, 256);
    int64_t kv_bytes = round_up(row * s->kv_heads * s->kv_len, 256);
    p->k_at = q_bytes;
    p->v_at = q_bytes + kv_bytes;
    p->set_bytes = q_bytes + 2 * kv_bytes;
    /* Whole sets, as many as outlast the cache; with room for sets of other sizes, so
     * that the numbers need not be drawn again for each. */
    int64_t cold_sets = (b->cold_bytes + p->set_bytes - 1) / p->set_bytes;
    rc = hcp_bench_grow_pool(b, round_up(p->set_bytes * cold_sets, POOL_STEP), err);
    if (rc == HCP_OK)
        rc = hcp_bench_grow_output(b, &p->problem, err);
    if (rc == HCP_OK)
        rc = grow(b, &b->workspace, &b->workspace_bytes, p->support.workspace_bytes, err);
    if (rc != HCP_OK)
        return rc;
    int prc = b->provider->plan_create(&b->device, &p->problem, &p->plan);
    return prc == HCP_RC_OK ? HCP_OK : hcp_bench_fail(b, prc, "plan", err);
}

static int make_plan(struct hcp_bench *b, struct hcp_bench_plan *p, struct hcp_err *err)
{
    p->problem = b->shape;
    p->problem.batch = p->seqs;
    p->problem.q_len = p->q_len;
    p->problem.kv_len = p->kv_len;
    p->problem.causal = p->causal;
    p->problem.diag = p->causal ? p->kv_len - p->q_len : 0;
    hcp_problem_set_dense_strides(&p->problem);
    return hcp_bench_plan_block(b, p, err);
}

int hcp_bench_prepare(struct hcp_bench *bench, const struct hcp_cell_request *cell,
                      struct hcp_bench_plan **out, struct hcp_err *err)
{
    int causal = strcmp(cell->mask, "causal") == 0;
    int32_t seqs = cell->seqs > 0 ? cell->seqs : (int32_t)bench->shape.batch;
    struct hcp_bench_plan *p = NULL;
    for (int i = 0; i < HCP_BENCH_PLANS && !p; i++)
        if (bench->plans[i].ready && bench->plans[i].finish == cell->finish &&
            bench->plans[i].causal == causal && bench->plans[i].q_len == cell->q_len &&
            bench->plans[i].kv_len == cell->kv_len && bench->plans[i].seqs == seqs &&
            bench->plans[i].linear.n_in == cell->n_in &&
            bench->plans[i].linear.n_out == cell->n_out)
            p = &bench->plans[i];
    if (!p) {
        p = &bench->plans[bench->next_plan];
        bench->next_plan = (bench->next_plan + 1) % HCP_BENCH_PLANS;
        free_plans(bench, p);
        *p = (struct hcp_bench_plan){.causal = causal,
                                     .q_len = cell->q_len,
                                     .kv_len = cell->kv_len,
                                     .seqs = seqs,
                                     .finish = cell->finish};
        p->linear = (hcp_gemm_shape){cell->q_len, cell->n_in, cell->n_out};
        int rc = p->finish             ? hcp_bench_plan_finish(bench, p, err)
                 : p->linear.n_out > 0 ? hcp_bench_plan_linear(bench, p, err)
                                       : make_plan(bench, p, err);
        if (rc != HCP_OK) { /* others' memory may be gone, too: see grow() */
            for (int i = 0; i < HCP_BENCH_PLANS; i++)
                free_plans(bench, &bench->plans[i]);
            return rc;
        }
        p->ready = 1;
    }
    *out = p;
    if (p->finish)
        return HCP_OK;
    /* As many sets as outlast the cache, whatever the pool has grown to since: a cell
     * is timed the same whichever cells went before. */
    int64_t cold_sets = (bench->cold_bytes + p->set_bytes - 1) / p->set_bytes;
    p->sets = bench->pool_bytes / p->set_bytes;
    if (p->sets > cold_sets && cold_sets > 0)
        p->sets = cold_sets;
    return HCP_OK;
}

int hcp_bench_run(struct hcp_bench *bench, const struct hcp_bench_plan *plan)
{
    if (plan->linear.n_out > 0)
        return hcp_bench_run_linear(bench, plan);
    if (plan->finish && !plan->without)
        return hcp_bench_run_finish(bench, plan);
    int64_t turn = (int64_t)(bench->turn++ % (uint64_t)plan->sets);
    const char *set = bench->pool + turn * plan->set_bytes;
    hcp_attn_args args = {.size = sizeof args,
                          .q = set,
                          .k = set + plan->k_at,
                          .v = set + plan->v_at,
                          .o = bench->o,
                          .lse = bench->lse,
                          .workspace = bench->workspace,
                          .q_len = plan->problem.q_len,
                          .kv_len = plan->problem.kv_len,
                          .diag = plan->problem.diag};
    if (plan->without) {
        char *state = (char *)bench->state + turn * plan->job_bytes;
        args.o = state;
        args.lse = (void *)(state + plan->lse_at);
    }
    return bench->provider->run(plan->leave_out ? plan->without : plan->plan, &args,
                                bench->stream);
}

void hcp_bench_facts(const struct hcp_bench *bench, const struct hcp_bench_plan *plan,
                     struct hcp_cell_facts *facts)
{
    strcpy(facts->cache, "cold");
    if (plan->finish || plan->linear.n_out > 0)
        return;
    facts->tile_q = plan->support.tile_q;
    facts->tile_kv = plan->support.tile_kv;
    if (bench->provider->describe(plan->plan, facts->provider_config,
                                  sizeof facts->provider_config) != HCP_RC_OK)
        facts->provider_config[0] = '\0';
    /* Which output it wrote is part of what was timed. */
    size_t n = strlen(facts->provider_config);
    snprintf(facts->provider_config + n, sizeof facts->provider_config - n, "%sout %s",
             n ? ", " : "", hcp_dtype_name(plan->problem.out_dtype));
}
