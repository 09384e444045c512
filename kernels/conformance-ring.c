/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/bounds.h"
#include "kernels/conformance-case.h"
#include "kernels/dtype.h"
#include "kernels/randn.h"
#include "kernels/reference.h"

enum { MAX_BLOCKS = 64, COMPARE_ROWS = 400 };

typedef struct ring_state {
    const cf_ring *ring;
    cf_tensor qkv[3], o, lse, single, single_lse;
} ring_state;

static int run_block(cf_context *c, const hcp_attn_problem *p, hcp_attn_args *args,
                     hcp_conformance_case *out)
{
    hcp_attention *step = NULL;
    char text[sizeof out->text];
    int rc = hcp_attention_create(c->provider, c->runtime, c->device, p, &step, text,
                                  sizeof text);
    if (rc == HCP_RC_UNSUPPORTED) {
        out->outcome = HCP_CASE_REFUSED;
        snprintf(out->text, sizeof out->text, "%s", text);
        return HCP_RC_OK;
    }
    if (rc) {
        cf_fail(out, "%s", text);
        return HCP_RC_OK;
    }
    args->size = sizeof *args;
    args->q_len = p->q_len;
    args->kv_len = p->kv_len;
    args->diag = p->diag;
    rc = hcp_attention_run(step, args, c->stream);
    if (!rc)
        rc = c->runtime->sync(c->stream);
    hcp_attention_destroy(step);
    return cf_run_result(c, rc, out);
}

/* Fisher-Yates by counter hash; 0 leaves the order as it is. */
static void permute(int *order, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; seed && i > 0; i--) {
        int j = (int)(hcp_hash64(seed, (uint64_t)i) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* One Q shard against every KV block. Its L lies contiguous from element
 * q0 * batch * heads of the L tensor. */
static int run_shard(cf_context *c, ring_state *s, int64_t q0, int64_t q_len,
                     uint64_t seed, hcp_conformance_case *out)
{
    const hcp_attn_problem *whole = &s->ring->problem;
    const int64_t *lengths = s->ring->kv_lengths;
    int64_t start[MAX_BLOCKS], bytes = hcp_dtype_bytes(whole->dtype);
    int order[MAX_BLOCKS], n = 0, rc = HCP_RC_OK;
    float *lse = s->lse.device;
    for (int64_t at = 0; n < MAX_BLOCKS && lengths[n] >= 0; at += lengths[n++])
        start[n] = at;
    permute(order, n, seed);
    for (int i = 0; !rc && out->outcome == HCP_CASE_PASSED && i < n; i++) {
        int64_t k0 = start[order[i]];
        hcp_attn_problem p = *whole;
        p.q_len = q_len;
        p.kv_len = lengths[order[i]];
        p.accumulate = 1;
        p.diag = whole->causal ? q0 - k0 : 0;
        hcp_attn_args args = {
            .q = (char *)s->qkv[0].device + q0 * p.q_stride[2] * bytes,
            .k = (char *)s->qkv[1].device + k0 * p.k_stride[2] * bytes,
            .v = (char *)s->qkv[2].device + k0 * p.v_stride[2] * bytes,
            .o = (char *)s->o.device + q0 * p.o_stride[2] * 4,
            .lse = lse + q0 * p.batch * p.heads,
        };
        rc = run_block(c, &p, &args, out);
    }
    return rc;
}

/* Where the ring has the L of a row: shards are stored one after the other. */
static float ring_lse(const ring_state *s, int64_t b, int64_t h, int64_t i)
{
    const hcp_attn_problem *p = &s->ring->problem;
    const int64_t *lengths = s->ring->q_lengths;
    const float *lse = s->lse.host;
    int64_t q0 = 0;
    while (i >= q0 + *lengths)
        q0 += *lengths++;
    return lse[q0 * p->batch * p->heads + (b * p->heads + h) * *lengths + i - q0];
}

static int compare(cf_context *c, ring_state *s, hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &s->ring->problem;
    int64_t n = p->batch * p->heads * p->q_len,
            rows = n < COMPARE_ROWS ? n : COMPARE_ROWS;
    double ring = 0, single = 0, total = 0, lse, *scratch = cf_reference_scratch(c, p);
    const float *in_blocks = s->o.host, *at_once = s->single.host;
    double *o = malloc((size_t)p->head_dim * sizeof *o);
    if (!o || !scratch) {
        free(o);
        return cf_check(c, HCP_RC_NO_MEMORY, "reference");
    }
    for (int64_t k = 0; k < rows; k++) {
        int64_t row =
            rows == n ? k : (int64_t)(hcp_hash64(11, (uint64_t)k) % (uint64_t)n);
        int64_t i = row % p->q_len, h = row / p->q_len % p->heads;
        int64_t b = row / p->q_len / p->heads;
        int64_t at = b * p->o_stride[0] + h * p->o_stride[1] + i * p->o_stride[2];
        hcp_reference_row(p, s->qkv[0].host, s->qkv[1].host, s->qkv[2].host, b, h, i, o,
                          &lse, scratch);
        for (int64_t d = 0; d < p->head_dim; d++) {
            double r = in_blocks[at + d] - o[d];
            double one = at_once[at + d] - o[d];
            ring += r * r;
            single += one * one;
            total += o[d] * o[d];
        }
        double excess = hcp_lse_excess(ring_lse(s, b, h, i), lse);
        out->lse_error = excess > out->lse_error ? excess : out->lse_error;
        if (excess > 1)
            cf_fail(out, "head %lld row %lld: L is %.9g, should be %.9g", (long long)h,
                    (long long)i, ring_lse(s, b, h, i), lse);
    }
    free(o);
    hcp_attn_problem part = *p;
    hcp_attn_support support = {.size = sizeof support};
    part.accumulate = 1;
    int rc = hcp_attention_probe(c->provider, c->device, &part, &support);
    if (rc)
        return cf_check(c, rc, "query");
    int fp32 = support.caps & HCP_CAP_OUT_FP32 || p->dtype == HCP_FP32;
    single = sqrt(single / total);
    double bound = hcp_blocks_o_bound(single, fp32, 1, 0);
    out->o_error = sqrt(ring / total);
    out->rows_compared = rows;
    if (!(out->o_error <= bound))
        cf_fail(out,
                "in blocks O is off by %.2e, more than the %.2e that the single pass's "
                "%.2e allows",
                out->o_error, bound, single);
    return HCP_RC_OK;
}

int cf_run_ring(cf_context *c, const cf_ring *ring, hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &ring->problem;
    ring_state s = {.ring = ring};
    cf_spec named = {.problem = *p, .label = ring->label};
    int64_t rows = p->batch * p->heads * p->q_len;
    int64_t o = cf_extent(p->o_stride, p->batch, p->heads, p->q_len, p->head_dim) * 4;
    int intact[4] = {1, 1, 1, 1};
    *out = (hcp_conformance_case){.outcome = HCP_CASE_PASSED};
    cf_name(&named, out->name, sizeof out->name);

    int rc = cf_make_inputs(c, p, CF_NORMAL, 5, s.qkv);
    cf_tensor *result[] = {&s.o, &s.lse, &s.single, &s.single_lse};
    for (int i = 0; !rc && i < 4; i++)
        rc = cf_tensor_alloc(c, result[i], i % 2 ? rows * 4 : o, 1);
    if (rc)
        goto done;
    float *lse = s.lse.host;
    for (int64_t i = 0; i < rows; i++) /* the running state is empty, its O NaN */
        lse[i] = -INFINITY;
    rc = cf_upload(c, &s.lse);

    hcp_attn_args args = {.q = s.qkv[0].device,
                          .k = s.qkv[1].device,
                          .v = s.qkv[2].device,
                          .o = s.single.device,
                          .lse = s.single_lse.device};
    if (!rc)
        rc = run_block(c, p, &args, out);
    int64_t q0 = 0;
    for (int r = 0; !rc && out->outcome == HCP_CASE_PASSED && ring->q_lengths[r] >= 0;
         r++) {
        rc = run_shard(c, &s, q0, ring->q_lengths[r],
                       ring->order ? ring->order + (uint64_t)r : 0, out);
        q0 += ring->q_lengths[r];
    }
    for (int i = 0; !rc && i < 4; i++)
        rc = cf_download(c, result[i], &intact[i]);
    if (!rc && out->outcome == HCP_CASE_PASSED) {
        if (!intact[0] || !intact[1])
            cf_fail(out, "writes outside O or L");
        rc = compare(c, &s, out);
    }
done:
    for (int i = 0; i < 3; i++)
        cf_tensor_free(c, &s.qkv[i]);
    for (int i = 0; i < 4; i++)
        cf_tensor_free(c, result[i]);
    return rc;
}
