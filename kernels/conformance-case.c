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

/* Work of the fp64 comparison of one case, in multiply-adds, and its least rows. */
enum { COMPARE_WORK = 1 << 22, COMPARE_ROWS = 24 };

typedef struct run_state {
    const cf_spec *spec;
    hcp_attn_problem shape; /* as run: the problem, or what a direct run makes of it */
    uint32_t caps;
    hcp_attention *attention;
    hcp_attn_plan *plan;
    void *workspace;
    cf_tensor qkv[3], o, lse;
    float *o_start, *lse_start; /* state before the run */
    char *o_first, *lse_first;  /* result of the first of the two runs */
    double *expect; /* O and L of the rows compared; made by the first comparison */
} run_state;

static int64_t row_count(const hcp_attn_problem *p)
{
    return p->batch * p->heads * p->q_len;
}

/* Row number -> batch, head, token. */
typedef struct row_ref {
    int64_t b, h, i;
} row_ref;

static row_ref row_of(const hcp_attn_problem *p, int64_t n)
{
    return (row_ref){n / p->q_len / p->heads, n / p->q_len % p->heads, n % p->q_len};
}

static int64_t o_offset(const hcp_attn_problem *p, row_ref r)
{
    return r.b * p->o_stride[0] + r.h * p->o_stride[1] + r.i * p->o_stride[2];
}

static int is_nan_row(const run_state *s, int64_t n)
{
    return n == s->spec->nan_row - 1;
}

/* The last number of the row that is to have one becomes NaN. */
static int spoil_row(cf_context *c, run_state *s)
{
    const hcp_attn_problem *p = &s->spec->problem;
    const int64_t bytes = hcp_dtype_bytes(p->dtype);
    if (!s->spec->nan_row)
        return HCP_RC_OK;
    const row_ref r = row_of(p, s->spec->nan_row - 1);
    const int64_t at = r.b * p->q_stride[0] + r.h * p->q_stride[1] +
                       r.i * p->q_stride[2] + p->head_dim - 1;
    memset((char *)s->qkv[0].host + at * bytes, CF_POISON, (size_t)bytes);
    return cf_upload(c, &s->qkv[0]);
}

/* The row of NaN shows it all over, where the provider says so. */
static void check_nan_row(const run_state *s, hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &s->shape;
    if (!s->spec->nan_row || !(s->caps & HCP_CAP_NAN_ROWS))
        return;
    const int64_t n = s->spec->nan_row - 1;
    const float *o = (const float *)s->o.host + o_offset(p, row_of(p, n));
    const float lse = ((const float *)s->lse.host)[n];
    if (!isnan(lse))
        cf_fail(out, "scores are NaN, but L is %g", lse);
    for (int64_t d = 0; d < p->head_dim; d++)
        if (!isnan(o[d]))
            cf_fail(out, "scores are NaN, but O[%lld] is %g", (long long)d, o[d]);
}

/* The provider alone, for what it says it can do at run time. */
static int open_direct(cf_context *c, run_state *s, hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &s->spec->problem;
    hcp_attn_support support = {.size = sizeof support};
    int rc = c->provider->query(c->device, p, &support);
    if (rc) {
        cf_fail(out, "query: %s", hcp_rc_text(rc));
        return HCP_RC_OK;
    }
    uint32_t need = HCP_CAP_DIAG;
    if (s->spec->run_q != p->q_len || s->spec->run_kv != p->kv_len)
        need |= HCP_CAP_DYNAMIC_LEN;
    if (!support.supported || (support.caps & need) != need ||
        (p->dtype != HCP_FP32 && !(support.caps & HCP_CAP_OUT_FP32))) {
        out->outcome = HCP_CASE_REFUSED;
        snprintf(out->text, sizeof out->text, "%s",
                 support.supported ? "lengths and diagonal are fixed by the plan"
                                   : support.reason);
        return HCP_RC_OK;
    }
    s->caps = support.caps;
    if (support.workspace_bytes)
        rc = c->runtime->alloc(&s->workspace, support.workspace_bytes);
    if (rc)
        return cf_check(c, rc, "workspace");
    rc = c->provider->plan_create(c->device, p, &s->plan);
    if (rc)
        cf_fail(out, "plan: %s", hcp_rc_text(rc));
    if (rc == HCP_RC_UNSUPPORTED)
        out->outcome = HCP_CASE_REFUSED;
    return HCP_RC_OK;
}

static int open_step(cf_context *c, run_state *s, hcp_conformance_case *out)
{
    char text[sizeof out->text];
    hcp_attn_support support = {.size = sizeof support};
    int rc = hcp_attention_create(c->provider, c->runtime, c->device, &s->spec->problem,
                                  &s->attention, text, sizeof text);
    if (rc == HCP_RC_UNSUPPORTED) {
        out->outcome = HCP_CASE_REFUSED;
        snprintf(out->text, sizeof out->text, "%s", text);
        return HCP_RC_OK;
    }
    if (rc) {
        cf_fail(out, "%s", text);
        return HCP_RC_OK;
    }
    rc = hcp_attention_probe(c->provider, c->device, &s->spec->problem, &support);
    s->caps = support.caps;
    return cf_check(c, rc, "query");
}

/* The state to merge into: normal O, L near that of the block, every fifth row
 * empty with NaN in O. Without accumulate: poison everywhere. */
static void make_start(const cf_context *c, run_state *s)
{
    const hcp_attn_problem *p = &s->shape;
    float *lse = s->lse.host, *o = s->o.host;
    if (p->accumulate)
        for (int64_t n = 0; n < row_count(p); n++) {
            float *row = o + o_offset(p, row_of(p, n));
            if (n % 5 == 2) {
                lse[n] = -INFINITY;
                continue;
            }
            lse[n] = logf((float)p->kv_len + 1) + c->pool[n % CF_POOL];
            for (int64_t d = 0; d < p->head_dim; d++)
                row[d] = c->pool[(n * p->head_dim + d) % CF_POOL];
        }
    memcpy(s->o_start, o, (size_t)s->o.bytes);
    memcpy(s->lse_start, lse, (size_t)s->lse.bytes);
}

static int run_once(cf_context *c, run_state *s, hcp_conformance_case *out)
{
    int o_intact, lse_intact;
    memcpy(s->o.host, s->o_start, (size_t)s->o.bytes);
    memcpy(s->lse.host, s->lse_start, (size_t)s->lse.bytes);
    int rc = cf_upload(c, &s->o);
    if (!rc)
        rc = cf_upload(c, &s->lse);
    if (rc)
        return rc;
    hcp_attn_args args = {
        .size = sizeof args,
        .q = s->qkv[0].device,
        .k = s->qkv[1].device,
        .v = s->qkv[2].device,
        .o = s->o.device,
        .lse = s->lse.device,
        .workspace = s->workspace,
        .q_len = s->shape.q_len,
        .kv_len = s->shape.kv_len,
        .diag = s->shape.diag,
    };
    rc = s->plan ? c->provider->run(s->plan, &args, c->stream)
                 : hcp_attention_run(s->attention, &args, c->stream);
    if (!rc)
        rc = c->runtime->sync(c->stream);
    rc = cf_run_result(c, rc, out);
    if (rc || out->outcome == HCP_CASE_FAILED)
        return rc;
    rc = cf_download(c, &s->o, &o_intact);
    if (!rc)
        rc = cf_download(c, &s->lse, &lse_intact);
    if (rc)
        return rc;
    if (!o_intact || !lse_intact)
        cf_fail(out, "writes outside %s", o_intact ? "L" : "O");
    float *lse = s->lse.host;
    if (s->plan) /* hcp_attention does this otherwise */
        for (int64_t n = 0; n < row_count(&s->shape); n++) {
            float *l = lse + n;
            if (s->caps & HCP_CAP_EMPTY_POS_INF && *l == INFINITY)
                *l = -INFINITY;
            if (s->caps & HCP_CAP_LSE_LOG2)
                *l = (float)(*l * 0.693147180559945309417);
        }
    return HCP_RC_OK;
}

/* What row n should be in fp64: O, and L behind it. */
static void expect_row(const run_state *s, int64_t n, double *o, double *scratch)
{
    const hcp_attn_problem *p = &s->shape;
    row_ref r = row_of(p, n);
    double lse;
    hcp_reference_row(p, s->qkv[0].host, s->qkv[1].host, s->qkv[2].host, r.b, r.h, r.i, o,
                      &lse, scratch);
    double start = p->accumulate ? s->lse_start[n] : -INFINITY;
    if (start != -INFINITY) {
        const float *before = s->o_start + o_offset(p, r);
        double top = start > lse ? start : lse, a = exp(start - top), b = exp(lse - top);
        for (int64_t d = 0; d < p->head_dim; d++)
            o[d] = (a * before[d] + b * o[d]) / (a + b);
        lse = top + log(a + b);
    }
    o[p->head_dim] = lse;
}

/* Row n against what it should be: adds to the squares of error and reference, keeps the
 * largest excess of L. */
static void compare_row(const run_state *s, int64_t n, const double *o, double squares[2],
                        hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &s->shape;
    row_ref r = row_of(p, n);
    const float *got = s->o.host, *got_lse_at = s->lse.host;
    got += o_offset(p, r);
    float got_lse = got_lse_at[n];
    double lse = o[p->head_dim];
    double excess = hcp_lse_excess(got_lse, lse);
    out->lse_error = excess > out->lse_error ? excess : out->lse_error;
    if (excess > 1)
        cf_fail(out, "batch %lld head %lld row %lld: L is %.9g, should be %.9g",
                (long long)r.b, (long long)r.h, (long long)r.i, got_lse, lse);
    if (lse == -INFINITY) {
        /* An empty state's O is never read; a fresh one is zero all the same. */
        for (int64_t d = 0; !p->accumulate && d < p->head_dim; d++)
            if (got[d] != 0)
                cf_fail(out, "batch %lld head %lld row %lld sees no key, but O is %g",
                        (long long)r.b, (long long)r.h, (long long)r.i, got[d]);
        return;
    }
    for (int64_t d = 0; d < p->head_dim; d++) {
        squares[0] += (got[d] - o[d]) * (got[d] - o[d]);
        squares[1] += o[d] * o[d];
    }
}

/* Tokens where masks and tiles begin and end, the first few samples; then random. */
static int64_t sample_row(const hcp_attn_problem *p, int64_t k)
{
    int64_t q = p->q_len, kv = p->kv_len;
    int64_t diag = p->causal && p->diag < kv && p->diag > -q ? p->diag : 0;
    const int64_t edge[] = {0,
                            q - 1,
                            1,
                            q - 2,
                            -diag - 1,
                            -diag,
                            1 - diag,
                            kv - diag - 2,
                            kv - diag - 1,
                            kv - diag,
                            63,
                            64,
                            127,
                            128};
    int64_t n = row_count(p);
    uint64_t random = hcp_hash64(7, (uint64_t)k);
    int64_t row = (int64_t)(random % (uint64_t)n);
    if (k < (int64_t)(sizeof edge / sizeof *edge) && edge[k] >= 0 && edge[k] < q)
        row = row / q * q + edge[k];
    return row;
}

static int compare(cf_context *c, run_state *s, hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &s->shape;
    int64_t n = row_count(p), rows = COMPARE_WORK / (2 * p->kv_len * p->head_dim + 1);
    double squares[2] = {0};
    if (rows < COMPARE_ROWS)
        rows = COMPARE_ROWS;
    if (rows > n || s->spec->nan_row) /* what the row spoils may be any other */
        rows = n;
    int again = s->expect != NULL;
    /* A second run that must give the same bits is not compared. */
    int64_t pitch = s->caps & HCP_CAP_DETERMINISTIC ? 0 : p->head_dim + 1;
    double *scratch = cf_reference_scratch(c, p);
    if (!again)
        s->expect = malloc((size_t)(p->head_dim + 1 + pitch * rows) * sizeof *s->expect);
    if (!s->expect || !scratch)
        return cf_check(c, HCP_RC_NO_MEMORY, "reference");
    for (int64_t k = 0; k < rows; k++) {
        int64_t row = rows == n ? k : sample_row(p, k);
        if (is_nan_row(s, row))
            continue;
        double *o = s->expect + k * pitch;
        if (!again)
            expect_row(s, row, o, scratch);
        compare_row(s, row, o, squares, out);
    }
    out->rows_compared = rows;
    out->o_error = squares[1] > 0 ? sqrt(squares[0] / squares[1]) : 0;
    double bound = cf_o_bound(p->dtype, s->spec->inputs);
    if (!(out->o_error <= bound))
        cf_fail(out, "O is off by %.2e relative, more than %.1e", out->o_error, bound);
    return HCP_RC_OK;
}

/* Every element of every row is finite, every element between rows still poison.
 * Overwrites the host image. */
static void check_written(const run_state *s, hcp_conformance_case *out)
{
    const hcp_attn_problem *p = &s->shape;
    float *o = s->o.host;
    const float *lse = s->lse.host;
    for (int64_t n = 0; n < row_count(p); n++) {
        row_ref r = row_of(p, n);
        float *row = o + o_offset(p, r);
        int any = (p->accumulate && lse[n] == -INFINITY) || is_nan_row(s, n);
        for (int64_t d = 0; !any && d < p->head_dim; d++)
            if (!isfinite(row[d]))
                cf_fail(out, "batch %lld head %lld row %lld: O[%lld] is %g",
                        (long long)r.b, (long long)r.h, (long long)r.i, (long long)d,
                        row[d]);
        memset(row, CF_POISON, (size_t)p->head_dim * sizeof *row);
    }
    if (!cf_is_poison(s->o.host, s->o.bytes))
        cf_fail(out, "writes between the rows of O");
}

static int run_twice(cf_context *c, run_state *s, hcp_conformance_case *out)
{
    int64_t o_bytes = s->o.bytes, lse_bytes = s->lse.bytes;
    int rc = run_once(c, s, out);
    if (rc || out->outcome == HCP_CASE_FAILED)
        return rc;
    rc = compare(c, s, out);
    check_nan_row(s, out);
    memcpy(s->o_first, s->o.host, (size_t)o_bytes);
    memcpy(s->lse_first, s->lse.host, (size_t)lse_bytes);
    check_written(s, out);
    if (rc || out->outcome == HCP_CASE_FAILED)
        return rc;

    rc = run_once(c, s, out);
    if (rc || out->outcome == HCP_CASE_FAILED)
        return rc;
    if (s->caps & HCP_CAP_DETERMINISTIC) {
        if (memcmp(s->o_first, s->o.host, (size_t)o_bytes) ||
            memcmp(s->lse_first, s->lse.host, (size_t)lse_bytes))
            cf_fail(out, "a second run gives other bits");
        return HCP_RC_OK;
    }
    return compare(c, s, out);
}

static int alloc_case(cf_context *c, run_state *s)
{
    const hcp_attn_problem *p = &s->spec->problem, *run = &s->shape;
    int64_t o =
        cf_extent(run->o_stride, run->batch, run->heads, run->q_len, run->head_dim) * 4;
    int64_t lse = row_count(run) * 4;
    int rc = cf_make_inputs(c, p, s->spec->inputs,
                            (uint64_t)(p->q_len * 8191 + p->kv_len), s->qkv);
    if (!rc)
        rc = spoil_row(c, s);
    if (!rc)
        rc = cf_tensor_alloc(c, &s->o, o, 1);
    if (!rc)
        rc = cf_tensor_alloc(c, &s->lse, lse, 1);
    if (rc)
        return rc;
    s->o_start = malloc((size_t)o + 1);
    s->o_first = malloc((size_t)o + 1);
    s->lse_start = malloc((size_t)lse + 1);
    s->lse_first = malloc((size_t)lse + 1);
    if (!s->o_start || !s->o_first || !s->lse_start || !s->lse_first)
        return cf_check(c, HCP_RC_NO_MEMORY, "host memory");
    make_start(c, s);
    return HCP_RC_OK;
}

int cf_run_case(cf_context *c, const cf_spec *spec, hcp_conformance_case *out)
{
    run_state s = {.spec = spec, .shape = spec->problem};
    *out = (hcp_conformance_case){.outcome = HCP_CASE_PASSED};
    cf_name(spec, out->name, sizeof out->name);
    if (spec->direct) {
        s.shape.q_len = spec->run_q;
        s.shape.kv_len = spec->run_kv;
        s.shape.diag = spec->run_diag;
    }
    int rc = spec->direct ? open_direct(c, &s, out) : open_step(c, &s, out);
    if (!rc && out->outcome == HCP_CASE_PASSED)
        rc = alloc_case(c, &s);
    if (!rc && out->outcome == HCP_CASE_PASSED)
        rc = run_twice(c, &s, out);

    for (int i = 0; i < 3; i++)
        cf_tensor_free(c, &s.qkv[i]);
    cf_tensor_free(c, &s.o);
    cf_tensor_free(c, &s.lse);
    free(s.o_start);
    free(s.o_first);
    free(s.lse_start);
    free(s.lse_first);
    free(s.expect);
    if (s.workspace)
        c->runtime->release(s.workspace);
    if (s.plan)
        c->provider->plan_destroy(s.plan);
    hcp_attention_destroy(s.attention);
    return rc;
}
