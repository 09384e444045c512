/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/check.h"
#include <math.h>
#include <stdio.h>
#include "kernels/conformance.h"
#include "kernels/preference.h"

int hcp_check_class(const hcp_provider *provider, const hcp_runtime *runtime,
                    const hcp_device_ref *device, const hcp_attn_problem *shape,
                    double *o_error, char *why, size_t why_size)
{
    enum { N = 2 };
    static const struct block {
        int causal;
        int64_t q_len, kv_len;
    } prefill[N] = {{0, 129, 1000}, {1, 257, 257}},
      decode[N] = {{0, 1, 1000}, {1, 16, 257}};
    const struct block *cases = hcp_is_decode(shape) ? decode : prefill;
    *o_error = 0;
    for (int i = 0; i < N; i++) {
        hcp_attn_problem p = *shape;
        hcp_conformance_case c;
        char err[300] = "";
        p.q_len = cases[i].q_len;
        p.kv_len = cases[i].kv_len;
        p.causal = cases[i].causal;
        p.diag = p.causal ? p.kv_len - p.q_len : 0;
        p.out_dtype = HCP_FP32;
        p.accumulate = 0;
        hcp_problem_set_dense_strides(&p);
        int rc =
            hcp_conformance_problem(provider, runtime, device, &p, &c, err, sizeof err);
        if (rc != HCP_RC_OK) {
            snprintf(why, why_size, "conformance could not run: %s", err);
            return -1;
        }
        if (c.outcome != HCP_CASE_PASSED) {
            snprintf(why, why_size, "%s: %s", c.name, c.text);
            return -1;
        }
        *o_error = fmax(*o_error, c.o_error);
    }
    return 0;
}

int hcp_check_kernel(const hcp_provider *provider, const hcp_runtime *runtime,
                     const hcp_device_ref *device, const hcp_attn_problem *shape,
                     char result[64], char *why, size_t why_size)
{
    hcp_conformance_summary s;
    char err[300] = "";
    double worst = 0;
    snprintf(result, 64, "failed");
    int rc = hcp_conformance_run(provider, runtime, device, HCP_CONFORMANCE_QUICK, NULL,
                                 NULL, &s, err, sizeof err);
    if (rc != HCP_RC_OK) {
        snprintf(why, why_size, "conformance could not run: %s", err);
        return -1;
    }
    if (s.failed > 0) {
        snprintf(result, 64, "failed %lld of %lld", (long long)s.failed,
                 (long long)(s.failed + s.passed));
        snprintf(why, why_size, "%s", s.first_failure);
        return -1;
    }
    if (hcp_check_class(provider, runtime, device, shape, &worst, why, why_size) != 0)
        return -1;
    snprintf(result, 64, "passed %lld, O error %.1e", (long long)s.passed + 2, worst);
    return 0;
}
