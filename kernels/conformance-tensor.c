/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/bounds.h"
#include "kernels/conformance-case.h"
#include "kernels/dtype.h"
#include "kernels/randn.h"
#include "kernels/reference.h"

int cf_check(cf_context *c, int rc, const char *doing)
{
    if (rc) {
        const char *text = c->runtime->last_error();
        snprintf(c->err, c->err_size, "conformance of '%s': %s: %s%s%s",
                 c->provider->name, doing, hcp_rc_text(rc), text[0] ? ": " : "", text);
    }
    return rc;
}

int cf_open(cf_context *c, const hcp_provider *provider, const hcp_runtime *runtime,
            const hcp_device_ref *device, char *err, size_t err_size)
{
    *c = (cf_context){.provider = provider,
                      .runtime = runtime,
                      .device = device,
                      .err = err,
                      .err_size = err_size};
    int rc = runtime->select(device->ordinal);
    if (!rc)
        rc = runtime->stream_create(&c->stream);
    if (rc)
        return cf_check(c, rc, "opening the device");
    c->pool = malloc(CF_POOL * sizeof *c->pool);
    if (!c->pool) {
        cf_close(c);
        return cf_check(c, HCP_RC_NO_MEMORY, "random numbers");
    }
    for (int64_t i = 0; i < CF_POOL; i++)
        c->pool[i] = hcp_randn_at(1, (uint64_t)i);
    return HCP_RC_OK;
}

void cf_close(cf_context *c)
{
    free(c->pool);
    free(c->scratch);
    c->runtime->stream_destroy(c->stream);
}

int cf_tensor_alloc(cf_context *c, cf_tensor *t, int64_t bytes, int host)
{
    void *p = NULL;
    *t = (cf_tensor){.bytes = bytes};
    int rc = c->runtime->alloc(&p, bytes + 2 * CF_MARGIN);
    if (rc)
        return cf_check(c, rc, "device memory");
    t->device_base = p;
    t->device = t->device_base + CF_MARGIN;
    if (host) {
        t->host_base = malloc((size_t)bytes + 2 * CF_MARGIN);
        if (!t->host_base)
            return cf_check(c, HCP_RC_NO_MEMORY, "host memory");
        memset(t->host_base, CF_POISON, (size_t)bytes + 2 * CF_MARGIN);
        t->host = t->host_base + CF_MARGIN;
    }
    rc = c->runtime->fill(t->device_base, CF_POISON, bytes + 2 * CF_MARGIN, c->stream);
    return cf_check(c, rc, "filling memory");
}

void cf_tensor_free(cf_context *c, cf_tensor *t)
{
    if (t->device_base)
        c->runtime->release(t->device_base);
    free(t->host_base);
    *t = (cf_tensor){0};
}

int cf_upload(cf_context *c, cf_tensor *t)
{
    int rc = c->runtime->to_device(t->device_base, t->host_base, t->bytes + 2 * CF_MARGIN,
                                   c->stream);
    return cf_check(c, rc, "copying to the device");
}

int cf_is_poison(const void *bytes, int64_t n)
{
    const char *p = bytes;
    return n == 0 ||
           ((unsigned char)p[0] == CF_POISON && !memcmp(p, p + 1, (size_t)n - 1));
}

int cf_download(cf_context *c, cf_tensor *t, int *intact)
{
    int rc = c->runtime->to_host(t->host_base, t->device_base, t->bytes + 2 * CF_MARGIN,
                                 c->stream);
    *intact = cf_is_poison(t->host_base, CF_MARGIN) &&
              cf_is_poison(t->host_base + CF_MARGIN + t->bytes, CF_MARGIN);
    return cf_check(c, rc, "copying from the device");
}

int64_t cf_extent(const int64_t stride[3], int64_t batch, int64_t heads, int64_t len,
                  int64_t head_dim)
{
    if (len == 0)
        return 0;
    return (batch - 1) * stride[0] + (heads - 1) * stride[1] + (len - 1) * stride[2] +
           head_dim;
}

/* Elements [0, n) of a tensor: mean + spread * normal, rounded to dtype. */
static void fill_normal(const cf_context *c, void *dst, int64_t n, int32_t dtype,
                        uint64_t seed, float mean, float spread)
{
    enum { CHUNK = 512 };
    float x[CHUNK];
    int64_t at = (int64_t)(hcp_hash64(seed, 0) % CF_POOL), bytes = hcp_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        for (int64_t j = 0; j < m; j++) {
            x[j] = mean + spread * c->pool[at];
            at = at + 1 == CF_POOL ? 0 : at + 1;
        }
        hcp_from_float((char *)dst + i * bytes, x, m, dtype);
    }
}

/* NaN between the rows of a tensor whose tokens lie padded one after the other. */
static void poison_gaps(void *host, const int64_t stride[3], int64_t batch, int64_t heads,
                        int64_t len, int64_t head_dim, int64_t bytes)
{
    int64_t rows = batch * heads * len, gap = stride[2] - head_dim;
    if (gap <= 0 || stride[1] != len * stride[2] || stride[0] != heads * stride[1])
        return;
    for (int64_t r = 0; r + 1 < rows; r++)
        memset((char *)host + (r * stride[2] + head_dim) * bytes, CF_POISON,
               (size_t)(gap * bytes));
}

int cf_make_inputs(cf_context *c, const hcp_attn_problem *p, cf_inputs kind,
                   uint64_t seed, cf_tensor qkv[3])
{
    const int64_t *stride[3] = {p->q_stride, p->k_stride, p->v_stride};
    /* Every product of a query and a key element near +-CF_FAR_SCORE / (dim * scale). */
    float size = kind == CF_NORMAL
                     ? 1
                     : (float)sqrt(CF_FAR_SCORE / (p->head_dim * fabs(p->scale)));
    for (int i = 0; i < 3; i++) {
        int64_t heads = i ? p->kv_heads : p->heads, len = i ? p->kv_len : p->q_len;
        int64_t bytes = hcp_dtype_bytes(p->dtype);
        int64_t n = cf_extent(stride[i], p->batch, heads, len, p->head_dim);
        int rc = cf_tensor_alloc(c, &qkv[i], n * bytes, 1);
        if (rc)
            return rc;
        int biased = kind != CF_NORMAL && i < 2;
        float mean = biased ? (kind == CF_LOW_SCORES && i == 1 ? -size : size) : 0;
        fill_normal(c, qkv[i].host, n, p->dtype, seed * 3 + (uint64_t)i, mean,
                    biased ? 0.1f * size : 1);
        poison_gaps(qkv[i].host, stride[i], p->batch, heads, len, p->head_dim, bytes);
        rc = cf_upload(c, &qkv[i]);
        if (rc)
            return rc;
    }
    return HCP_RC_OK;
}

double *cf_reference_scratch(cf_context *c, const hcp_attn_problem *p)
{
    int64_t n = hcp_reference_scratch(p);
    if (n > c->scratch_n) {
        free(c->scratch);
        c->scratch = malloc((size_t)n * sizeof *c->scratch);
        c->scratch_n = c->scratch ? n : 0;
    }
    return c->scratch;
}

double cf_o_bound(int32_t dtype, cf_inputs kind)
{
    double bound = hcp_o_bound(dtype);
    return kind == CF_NORMAL ? bound : bound + 0x1p-22 * CF_FAR_SCORE;
}

void cf_name(const cf_spec *spec, char *text, size_t size)
{
    const hcp_attn_problem *p = &spec->problem;
    int n = snprintf(text, size, "%s %lld/%lld d%lld %lldx%lld", hcp_dtype_name(p->dtype),
                     (long long)p->heads, (long long)p->kv_heads, (long long)p->head_dim,
                     (long long)p->q_len, (long long)p->kv_len);
    if (p->causal)
        n += snprintf(text + n, size - (size_t)n, " diag %lld", (long long)p->diag);
    if (p->accumulate)
        n += snprintf(text + n, size - (size_t)n, " accumulate");
    if (spec->direct)
        n += snprintf(text + n, size - (size_t)n, " run as %lldx%lld diag %lld",
                      (long long)spec->run_q, (long long)spec->run_kv,
                      (long long)spec->run_diag);
    if (spec->label && spec->label[0])
        snprintf(text + n, size - (size_t)n, " %s", spec->label);
}

void cf_fail(hcp_conformance_case *out, const char *format, ...)
{
    if (out->outcome == HCP_CASE_FAILED)
        return;
    va_list ap;
    va_start(ap, format);
    vsnprintf(out->text, sizeof out->text, format, ap);
    va_end(ap);
    out->outcome = HCP_CASE_FAILED;
}

int cf_run_result(cf_context *c, int rc, hcp_conformance_case *out)
{
    if (rc == HCP_RC_DEVICE) /* on CUDA nothing after it would work */
        return cf_check(c, rc, out->name);
    if (rc)
        cf_fail(out, "run: %s", hcp_rc_text(rc));
    return HCP_RC_OK;
}
