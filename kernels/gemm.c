/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "kernels/dtype.h"
#include "kernels/registry.h"

/* What NVIDIA advises for Hopper; elsewhere it is more than enough. */
enum { WORKSPACE_BYTES = 32 << 20 };

enum { ELEMENTS = 64 };

/* cuBLAS and the memory that it was given. */
struct on_device {
    hcp_gemm base;
    hcp_gemm *inner;
    const hcp_runtime *runtime;
    void *workspace;
};

static int run_inner(hcp_gemm *gemm, const hcp_gemm_shape *shape, int32_t dtype,
                     const void *x, const void *w, void *y)
{
    hcp_gemm *inner = ((struct on_device *)gemm)->inner;
    int rc = inner->run(inner, shape, dtype, x, w, y);
    if (rc != HCP_RC_OK)
        snprintf(gemm->error, sizeof gemm->error, "%s", inner->error);
    return rc;
}

static void close_inner(hcp_gemm *gemm)
{
    struct on_device *d = (struct on_device *)gemm;
    hcp_gemm_close(d->inner);
    d->runtime->release(d->workspace);
    free(d);
}

static int open_on_device(const hcp_runtime *runtime, void *stream, int32_t sms,
                          hcp_gemm **out, char *why, size_t why_size)
{
    struct on_device *d = calloc(1, sizeof *d);
    int rc = d ? runtime->alloc(&d->workspace, WORKSPACE_BYTES) : HCP_RC_NO_MEMORY;
    if (rc != HCP_RC_OK) {
        snprintf(why, why_size, "no memory for the workspace of cuBLAS%s%s",
                 d ? ": " : "", d ? runtime->last_error() : "");
        free(d);
        return rc;
    }
    d->runtime = runtime;
    rc = hcp_gemm_open_cublas(stream, d->workspace, WORKSPACE_BYTES, sms, &d->inner, why,
                              why_size);
    if (rc != HCP_RC_OK) {
        runtime->release(d->workspace);
        free(d);
        return rc;
    }
    d->base = *d->inner;
    d->base.run = run_inner;
    d->base.close = close_inner;
    *out = &d->base;
    return HCP_RC_OK;
}

int hcp_gemm_open(const hcp_runtime *runtime, void *stream, int32_t sms, hcp_gemm **out,
                  char *why, size_t why_size)
{
    *out = NULL;
    return runtime->kind == HCP_DEVICE_CUDA
               ? open_on_device(runtime, stream, sms, out, why, why_size)
               : hcp_gemm_open_cblas(out, why, why_size);
}

void hcp_gemm_close(hcp_gemm *gemm)
{
    if (gemm)
        gemm->close(gemm);
}

/* Corners, then places all over y. */
static void place(int i, const hcp_gemm_shape *s, int64_t *row, int64_t *column)
{
    uint64_t h = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 31;
    if (i < 4) {
        *row = i & 1 ? s->tokens - 1 : 0;
        *column = i & 2 ? s->n_out - 1 : 0;
    } else {
        *row = (int64_t)((h >> 32) % (uint64_t)s->tokens);
        *column = (int64_t)((h & 0xffffffffu) % (uint64_t)s->n_out);
    }
}

/* One element: rows of x and w as floats, and what the product says. */
static int check_element(const hcp_gemm_shape *s, int32_t dtype, const float *x,
                         const float *w, float got, int64_t row, int64_t column,
                         char *why, size_t why_size)
{
    double sum = 0, squares = 0;
    for (int64_t k = 0; k < s->n_in; k++) {
        double term = (double)x[k] * (double)w[k];
        sum += term;
        squares += term * term;
    }
    /* Rounding to the output, and what fp32 sums (on tensor cores cut, not rounded)
     * may lose of terms that cancel. */
    double step = dtype == HCP_BF16 ? 0x1p-8 : dtype == HCP_FP16 ? 0x1p-10 : 0x1p-20;
    double bound = step * fabs(sum) + 1e-3 * sqrt(squares);
    if (fabs((double)got - sum) <= bound) /* false for NaN */
        return HCP_RC_OK;
    snprintf(why, why_size,
             "element (%lld, %lld) of the product is %g, not %g within %.2g",
             (long long)row, (long long)column, (double)got, sum, bound);
    return HCP_RC_INVALID;
}

int hcp_gemm_check(hcp_gemm *gemm, const hcp_runtime *runtime, void *stream,
                   const hcp_gemm_shape *shape, int32_t dtype, const void *x,
                   const void *w, void *y, char *why, size_t why_size)
{
    int64_t bytes = hcp_dtype_bytes(dtype), row_bytes = shape->n_in * bytes;
    size_t n = (size_t)shape->n_in;
    float *rows = malloc(2 * n * sizeof *rows);
    void *raw = malloc((size_t)row_bytes + 16);
    int rc = rows && raw
                 ? runtime->fill(y, 0xff, shape->tokens * shape->n_out * bytes, stream)
                 : HCP_RC_NO_MEMORY;
    int ran = 0;
    *why = '\0';
    if (rc == HCP_RC_OK) {
        ran = 1;
        rc = gemm->run(gemm, shape, dtype, x, w, y);
    }
    if (rc == HCP_RC_OK)
        ran = 0, rc = runtime->sync(stream);
    for (int i = 0; i < ELEMENTS && rc == HCP_RC_OK; i++) {
        int64_t row, column;
        uint32_t element = 0;
        float got;
        place(i, shape, &row, &column);
        rc = runtime->to_host(raw, (const char *)x + row * row_bytes, row_bytes, stream);
        hcp_to_float(rows, raw, (int64_t)n, dtype);
        if (rc == HCP_RC_OK)
            rc = runtime->to_host(raw, (const char *)w + column * row_bytes, row_bytes,
                                  stream);
        hcp_to_float(rows + n, raw, (int64_t)n, dtype);
        if (rc == HCP_RC_OK)
            rc = runtime->to_host(&element,
                                  (const char *)y + (row * shape->n_out + column) * bytes,
                                  bytes, stream);
        hcp_to_float(&got, &element, 1, dtype);
        if (rc == HCP_RC_OK)
            rc = check_element(shape, dtype, rows, rows + n, got, row, column, why,
                               why_size);
    }
    if (rc != HCP_RC_OK && !*why) {
        const char *detail = ran ? gemm->error : runtime->last_error();
        snprintf(why, why_size, "%s%s%s", hcp_rc_text(rc), *detail ? ": " : "", detail);
    }
    free(rows);
    free(raw);
    return rc;
}
