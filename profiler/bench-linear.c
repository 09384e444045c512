/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers on the bench of attention: the same pool of random numbers, the same
 * rounds through it, the same timers. Activations and weights of a run are ones that the
 * caches no longer hold, as a layer's weights are in a model.
 */
#include "config.h"
#include "profiler/bench.h"
#include <stdio.h>
#include <string.h>
#include "kernels/dtype.h"

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int hcp_bench_open_linear(struct hcp_bench *bench, const struct hcp_device_config *config,
                          struct hcp_device_info *info, struct hcp_err *err)
{
    char why[600];
    int green = strncmp(config->limit, "green:", 6) == 0;
    int rc = bench->runtime->stream_create(&bench->stream);
    if (rc != HCP_RC_OK)
        return hcp_bench_fail(bench, rc, "stream", err);
    rc = hcp_gemm_open(bench->runtime, bench->stream, green ? info->sm_seen : 0,
                       &bench->gemm, why, sizeof why);
    if (rc != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "no library for linear layers: %s", why);
    snprintf(info->provider, sizeof info->provider, "%s", bench->gemm->library);
    snprintf(info->provider_version, sizeof info->provider_version, "%s",
             bench->gemm->version);
    return HCP_OK;
}

int hcp_bench_plan_linear(struct hcp_bench *bench, struct hcp_bench_plan *plan,
                          struct hcp_err *err)
{
    struct hcp_bench *b = bench;
    const hcp_gemm_shape *s = &plan->linear;
    int64_t element = hcp_dtype_bytes(b->shape.dtype);
    int64_t x_bytes = round_up(s->tokens * s->n_in * element, 256);
    char why[600];
    plan->k_at = x_bytes;
    plan->set_bytes = x_bytes + round_up(s->n_out * s->n_in * element, 256);
    int rc = hcp_bench_grow_pool(
        b, plan->set_bytes * ((b->cold_bytes + plan->set_bytes - 1) / plan->set_bytes),
        err);
    if (rc == HCP_OK)
        rc = hcp_bench_grow_o(b, s->tokens * s->n_out * element, err);
    if (rc != HCP_OK)
        return rc;
    if (hcp_gemm_check(b->gemm, b->runtime, b->stream, s, b->shape.dtype, b->pool,
                       b->pool + x_bytes, b->o, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s: %lld tokens, %lld to %lld: %s",
                        b->gemm->library, (long long)s->tokens, (long long)s->n_in,
                        (long long)s->n_out, why);
    return HCP_OK;
}

int hcp_bench_run_linear(struct hcp_bench *bench, const struct hcp_bench_plan *plan)
{
    int64_t turn = (int64_t)(bench->turn++ % (uint64_t)plan->sets);
    const char *set = bench->pool + turn * plan->set_bytes;
    return bench->gemm->run(bench->gemm, &plan->linear, bench->shape.dtype, set,
                            set + plan->k_at, bench->o);
}
