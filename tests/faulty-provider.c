/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/dtype.h"
#include "kernels/registry.h"
#include "tests/faulty-provider.h"

static hcp_fault fault;
int hcp_faulty_runs;

struct hcp_attn_plan {
    hcp_attn_problem problem;
    hcp_attn_plan *inner;
};

static int habit(hcp_fault f)
{
    return fault == f || (fault == HABIT_ALL && f != HABIT_WORKSPACE);
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *p,
                 hcp_attn_support *out)
{
    int rc = hcp_provider_cpu()->query(device, p, out);
    if (rc || !out->supported)
        return rc;
    const char *no = NULL;
    if (fault == FAULT_REFUSE)
        no = "not today";
    if (habit(HABIT_PARTIAL) && p->accumulate)
        no = "does not accumulate";
    if (habit(HABIT_HALF) && p->out_dtype != p->dtype)
        no = "output in the dtype of the inputs only";
    if (habit(HABIT_CORNER) && p->causal && p->diag != p->kv_len - p->q_len)
        no = "causal from the bottom right corner only";
    if (no) {
        out->supported = 0;
        snprintf(out->reason, sizeof out->reason, "%s", no);
        return HCP_RC_OK;
    }
    if (habit(HABIT_LOG2))
        out->caps |= HCP_CAP_LSE_LOG2;
    if (habit(HABIT_PARTIAL))
        out->caps &= ~(uint32_t)HCP_CAP_ACCUMULATE;
    if (habit(HABIT_CORNER))
        out->caps &= ~(uint32_t)(HCP_CAP_DIAG | HCP_CAP_DYNAMIC_LEN);
    if (habit(HABIT_HALF) && p->dtype != HCP_FP32)
        out->caps &= ~(uint32_t)HCP_CAP_OUT_FP32;
    if (fault == HABIT_WORKSPACE)
        out->workspace_bytes = 100;
    return HCP_RC_OK;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *p,
                       hcp_attn_plan **out)
{
    hcp_attn_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return HCP_RC_NO_MEMORY;
    plan->problem = *p;
    hcp_attn_problem inner = *p;
    if (fault == FAULT_OVERWRITES)
        inner.accumulate = 0;
    int rc = hcp_provider_cpu()->plan_create(device, &inner, &plan->inner);
    if (rc) {
        free(plan);
        return rc;
    }
    *out = plan;
    return HCP_RC_OK;
}

static float *row(const hcp_attn_plan *plan, const hcp_attn_args *a, int64_t h, int64_t i)
{
    return (float *)a->o + h * plan->problem.o_stride[1] + i * plan->problem.o_stride[2];
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    static unsigned counter;
    const hcp_attn_problem *p = &plan->problem;
    hcp_attn_args a = *args;
    int64_t rows = p->batch * p->heads * a.q_len, dim = p->head_dim;
    float *last = row(plan, &a, p->heads - 1, a.q_len - 1), kept[512];
    hcp_faulty_runs++;
    if (fault == FAULT_ERROR)
        return HCP_RC_INVALID;
    if (fault == FAULT_DIAG && a.diag < a.kv_len - 1)
        a.diag++;
    if (fault == FAULT_LENGTHS)
        a.kv_len = p->kv_len;
    if (fault == FAULT_UNWRITTEN)
        memcpy(kept, last, (size_t)dim * sizeof *kept);
    if (fault == HABIT_WORKSPACE)
        memset(a.workspace, 1, 100);
    int rc = hcp_provider_cpu()->run(plan->inner, &a, stream);
    if (rc)
        return rc;
    if (fault == FAULT_UNWRITTEN)
        memcpy(last, kept, (size_t)dim * sizeof *kept);
    if (fault == FAULT_LSE)
        for (int64_t n = 0; n < rows; n++)
            a.lse[n] += 1e-3f;
    if (fault == FAULT_O)
        for (int64_t d = 0; d < dim; d += 50)
            row(plan, &a, 0, 0)[d] *= 1.25f;
    /* Without a mask O is the case's own tensor, which has a margin, never scratch. */
    if (fault == FAULT_OUTSIDE && !p->causal)
        last[dim] = 0;
    if (fault == FAULT_GAP && a.q_len > 1)
        row(plan, &a, 0, 0)[dim] = 0;
    if (fault == FAULT_READS_GAP && p->dtype != HCP_FP32 && p->k_stride[2] > dim &&
        a.kv_len > 1)
        row(plan, &a, 0, 0)[0] += 0 * hcp_bf16_to_float(((const uint16_t *)a.k)[dim]);
    if (fault == FAULT_LOST_NAN)
        for (int64_t n = 0; n < rows; n++)
            if (isnan(a.lse[n])) {
                a.lse[n] = -INFINITY;
                memset(row(plan, &a, n / a.q_len % p->heads, n % a.q_len), 0,
                       (size_t)dim * sizeof(float));
            }
    if (fault == FAULT_RANDOM)
        row(plan, &a, 0, 0)[0] *= ++counter % 2 ? 1 + 0x1p-23f : 1;
    if (habit(HABIT_LOG2))
        for (int64_t n = 0; n < rows; n++)
            a.lse[n] *= 1.44269504f;
    return HCP_RC_OK;
}

static void plan_destroy(hcp_attn_plan *plan)
{
    if (plan)
        hcp_provider_cpu()->plan_destroy(plan->inner);
    free(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t size)
{
    return hcp_provider_cpu()->describe(plan->inner, text, size);
}

static const char *version(void)
{
    return "0";
}

const hcp_provider *hcp_faulty_provider(hcp_fault f)
{
    static const hcp_provider provider = {sizeof provider, HCP_PROVIDER_ABI,
                                          HCP_DEVICE_CPU,  "faulty",
                                          version,         query,
                                          plan_create,     run,
                                          plan_destroy,    describe};
    fault = f;
    return &provider;
}
