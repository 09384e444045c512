/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors over 2^31 elements: an index kept in 32 bits anywhere reads or writes the
 * wrong head. Made on the device; only the last head comes to the host.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/bounds.h"
#include "kernels/conformance-case.h"
#include "kernels/dtype.h"
#include "kernels/reference.h"

enum { HEADS = 64, DIM = 128, LONG = (1 << 18) + 1, ROWS = 8 };

/* Bytes [at, at + n) of a device tensor into new host memory. */
static int fetch(cf_context *c, const cf_tensor *t, int64_t at, int64_t n, void **out)
{
    *out = malloc((size_t)n);
    if (!*out)
        return cf_check(c, HCP_RC_NO_MEMORY, "host memory");
    return cf_check(c, c->runtime->to_host(*out, (char *)t->device + at, n, c->stream),
                    "copying from the device");
}

static void compare_last_head(const hcp_attn_problem *p, void *const host[5],
                              double *scratch, hcp_conformance_case *out)
{
    hcp_attn_problem one = *p;
    double o[DIM], lse, error = 0, total = 0;
    const float *got = host[3], *got_lse = host[4];
    one.heads = one.kv_heads = 1;
    for (int64_t i = 0; i < p->q_len * DIM; i++)
        if (!isfinite(got[i]))
            cf_fail(out, "last head: O[%lld] is %g", (long long)i, got[i]);
    for (int k = 0; k < ROWS && k < p->q_len; k++) {
        int64_t i = p->q_len - 1 - k * (p->q_len / ROWS);
        if (i < 0)
            break;
        hcp_reference_row(&one, host[0], host[1], host[2], 0, 0, i, o, &lse, scratch);
        for (int d = 0; d < DIM; d++) {
            double e = got[i * DIM + d] - o[d];
            error += e * e;
            total += o[d] * o[d];
        }
        double excess = hcp_lse_excess(got_lse[i], lse);
        out->lse_error = excess > out->lse_error ? excess : out->lse_error;
        if (excess > 1)
            cf_fail(out, "last head, row %lld: L is %.9g, should be %.9g", (long long)i,
                    got_lse[i], lse);
        out->rows_compared++;
    }
    out->o_error = sqrt(error / total);
    if (!(out->o_error <= cf_o_bound(p->dtype, CF_NORMAL)))
        cf_fail(out, "O of the last head is off by %.2e relative, more than %.0e",
                out->o_error, cf_o_bound(p->dtype, CF_NORMAL));
}

int cf_run_huge(cf_context *c, int which, hcp_conformance_case *out)
{
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = which ? 2 : LONG,
                          .kv_len = which ? LONG : 65,
                          .heads = HEADS,
                          .kv_heads = HEADS,
                          .head_dim = DIM,
                          .dtype = HCP_BF16,
                          .out_dtype = HCP_FP32,
                          .scale = 1 / sqrt(DIM)};
    hcp_problem_set_dense_strides(&p);
    cf_spec named = {.problem = p, .label = which ? "K, V over 2^31" : "Q, O over 2^31"};
    cf_tensor t[4] = {0}; /* Q; K, which is V as well; O; L */
    void *host[5] = {0};
    hcp_attention *step = NULL;
    int64_t q = HEADS * p.q_len * DIM, kv = HEADS * p.kv_len * DIM,
            rows = HEADS * p.q_len;
    const int64_t bytes[4] = {q * 2, kv * 2, q * 4, rows * 4};
    *out = (hcp_conformance_case){.outcome = HCP_CASE_PASSED};
    cf_name(&named, out->name, sizeof out->name);

    int rc = hcp_attention_create(c->provider, c->runtime, c->device, &p, &step,
                                  out->text, sizeof out->text);
    if (rc == HCP_RC_UNSUPPORTED || rc == HCP_RC_NO_MEMORY) {
        out->outcome = HCP_CASE_REFUSED;
        return HCP_RC_OK;
    }
    if (rc)
        return cf_check(c, rc, out->name);
    out->text[0] = 0;
    for (int i = 0; !rc && i < 4; i++)
        rc = cf_tensor_alloc(c, &t[i], bytes[i], 0);
    for (int i = 0; !rc && i < 2; i++)
        rc = cf_check(c,
                      c->runtime->randn(t[i].device, bytes[i] / 2, p.dtype,
                                        21 + (uint64_t)i, 0, c->stream),
                      "random numbers");
    hcp_attn_args args = {.size = sizeof args,
                          .q = t[0].device,
                          .k = t[1].device,
                          .v = t[1].device,
                          .o = t[2].device,
                          .lse = t[3].device,
                          .q_len = p.q_len,
                          .kv_len = p.kv_len};
    if (!rc)
        rc = cf_check(c, hcp_attention_run(step, &args, c->stream), out->name);
    if (!rc)
        rc = cf_check(c, c->runtime->sync(c->stream), out->name);
    const cf_tensor *from[5] = {&t[0], &t[1], &t[1], &t[2], &t[3]};
    for (int i = 0; !rc && i < 5; i++) {
        int64_t head = from[i]->bytes / HEADS;
        rc = fetch(c, from[i], (HEADS - 1) * head, head, &host[i]);
    }
    double *scratch = cf_reference_scratch(c, &p);
    if (!rc && !scratch)
        rc = cf_check(c, HCP_RC_NO_MEMORY, "reference");
    if (!rc)
        compare_last_head(&p, host, scratch, out);

    for (int i = 0; i < 5; i++)
        free(host[i]);
    for (int i = 0; i < 4; i++)
        cf_tensor_free(c, &t[i]);
    hcp_attention_destroy(step);
    return rc;
}
