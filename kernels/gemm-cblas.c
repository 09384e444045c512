/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers on one core: cblas_sgemm, in place for fp32; other types go through
 * panels that are converted on the way, as in the CPU's attention kernel.
 */
#include <cblas.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cpu-lanes.h"
#include "kernels/dtype.h"
#include "kernels/gemm.h"

enum { PANEL_TOKENS = 256, PANEL_OUT = 128 };

struct on_cpu {
    hcp_gemm base;
    float *scratch; /* panels of x and W, and of the product */
    size_t floats;
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void multiply(const float *x, const float *w, float *y, int64_t tokens,
                     int64_t n_in, int64_t n_out, int64_t y_pitch)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)tokens, (int)n_out,
                (int)n_in, 1, x, (int)n_in, w, (int)n_in, 0, y, (int)y_pitch);
}

static int grow(struct on_cpu *c, size_t floats)
{
    void *more;
    if (c->floats >= floats)
        return HCP_RC_OK;
    free(c->scratch);
    c->scratch = NULL;
    c->floats = 0;
    if (posix_memalign(&more, 64, floats * sizeof(float)) != 0)
        return HCP_RC_NO_MEMORY;
    c->scratch = more;
    c->floats = floats;
    return HCP_RC_OK;
}

/* Every panel of W is converted once for all tokens of a panel of x. */
static int by_panels(struct on_cpu *c, const hcp_gemm_shape *s, int32_t dtype,
                     const char *x, const char *w, char *y)
{
    int64_t bytes = hcp_dtype_bytes(dtype), tokens = min64(s->tokens, PANEL_TOKENS);
    int rc = grow(c, (size_t)((tokens + PANEL_OUT) * s->n_in + tokens * PANEL_OUT));
    if (rc != HCP_RC_OK)
        return rc;
    float *xs = c->scratch, *ws = xs + tokens * s->n_in, *ys = ws + PANEL_OUT * s->n_in;
    for (int64_t t = 0; t < s->tokens; t += PANEL_TOKENS) {
        int64_t rows = min64(s->tokens - t, PANEL_TOKENS);
        hcp_lanes_to_float(xs, x + t * s->n_in * bytes, rows * s->n_in, dtype);
        for (int64_t j = 0; j < s->n_out; j += PANEL_OUT) {
            int64_t columns = min64(s->n_out - j, PANEL_OUT);
            hcp_lanes_to_float(ws, w + j * s->n_in * bytes, columns * s->n_in, dtype);
            multiply(xs, ws, ys, rows, s->n_in, columns, PANEL_OUT);
            for (int64_t r = 0; r < rows; r++)
                hcp_from_float(y + ((t + r) * s->n_out + j) * bytes, ys + r * PANEL_OUT,
                               columns, dtype);
        }
    }
    return HCP_RC_OK;
}

static int run(hcp_gemm *gemm, const hcp_gemm_shape *s, int32_t dtype, const void *x,
               const void *w, void *y)
{
    if (s->tokens < 1 || s->n_in < 1 || s->n_out < 1 || s->tokens > INT_MAX ||
        s->n_in > INT_MAX || s->n_out > INT_MAX) {
        snprintf(gemm->error, sizeof gemm->error, "a length is not 1 to %d", INT_MAX);
        return HCP_RC_INVALID;
    }
    if (dtype != HCP_FP32)
        return by_panels((struct on_cpu *)gemm, s, dtype, x, w, y);
    multiply(x, w, y, s->tokens, s->n_in, s->n_out, s->n_out);
    return HCP_RC_OK;
}

static void close_cpu(hcp_gemm *gemm)
{
    free(((struct on_cpu *)gemm)->scratch);
    free(gemm);
}

int hcp_gemm_open_cblas(hcp_gemm **out, char *why, size_t why_size)
{
    struct on_cpu *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(why, why_size, "out of memory");
        return HCP_RC_NO_MEMORY;
    }
    if (openblas_get_num_threads() != 1) /* the device is one core */
        openblas_set_num_threads(1);
    c->base.run = run;
    c->base.close = close_cpu;
    strcpy(c->base.library, "openblas");
    snprintf(c->base.version, sizeof c->base.version, "%s", openblas_get_config());
    *out = &c->base;
    return HCP_RC_OK;
}
