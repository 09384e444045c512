/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers with cuBLAS, loaded at run time: a program that links this starts
 * without it, and is built without its headers. Names and values are those of
 * cublas_api.h and library_types.h of CUDA 11 to 13, where they are the same.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/gemm.h"
#include "kernels/library.h"

#ifndef HCP_CUDA_LIBDIR
#define HCP_CUDA_LIBDIR "/usr/local/cuda/lib64"
#endif

typedef struct cublasContext *cublas_handle;
enum {
    OP_N = 0,
    OP_T = 1,
    DATA_FP32 = 0,
    DATA_FP16 = 2,
    DATA_BF16 = 14,
    COMPUTE_32F = 68,
    ALGO_DEFAULT = -1,
    /* Partial sums are not rounded to the output's type on their way. */
    MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};

static struct {
    int (*create)(cublas_handle *handle);
    int (*destroy)(cublas_handle handle);
    int (*get_version)(cublas_handle handle, int *version);
    int (*set_stream)(cublas_handle handle, void *stream);
    int (*set_workspace)(cublas_handle handle, void *workspace, size_t bytes);
    int (*set_math_mode)(cublas_handle handle, int mode);
    int (*set_sm_count_target)(cublas_handle handle, int sms);
    const char *(*status_string)(int status);
    int (*gemm_ex)(cublas_handle handle, int trans_a, int trans_b, int m, int n, int k,
                   const void *alpha, const void *a, int a_type, int lda, const void *b,
                   int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                   int compute_type, int algo);
} api;

struct on_gpu {
    hcp_gemm base;
    cublas_handle handle;
};

/* Of the newest release that is there. 12 runs beside a runtime of 13 and the other way
 * round: both speak to the driver. */
static int load(char *why, size_t why_size)
{
    static const char *const names[][2] = {
        {"libcublas.so.13", HCP_CUDA_LIBDIR "/libcublas.so.13"},
        {"libcublas.so.12", HCP_CUDA_LIBDIR "/libcublas.so.12"}};
    const struct hcp_library_function wanted[] = {
        {"cublasCreate_v2", (void **)&api.create},
        {"cublasDestroy_v2", (void **)&api.destroy},
        {"cublasGetVersion_v2", (void **)&api.get_version},
        {"cublasSetStream_v2", (void **)&api.set_stream},
        {"cublasSetWorkspace_v2", (void **)&api.set_workspace},
        {"cublasSetMathMode", (void **)&api.set_math_mode},
        {"cublasSetSmCountTarget", (void **)&api.set_sm_count_target},
        {"cublasGetStatusString", (void **)&api.status_string},
        {"cublasGemmEx", (void **)&api.gemm_ex},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct hcp_library cublas = {
            .variable = "HCP_CUBLAS",
            .name = names[i][0],
            .built_with = names[i][1],
            .missing = "install cuBLAS 12 or 13 or set HCP_CUBLAS to its path",
            .title = "cuBLAS",
            .install = "cuBLAS 12 or 13"};
        if (hcp_library_load(&cublas, wanted, sizeof wanted / sizeof *wanted, why,
                             why_size))
            return 1;
    }
    return 0;
}

static int failed(char *text, size_t size, const char *doing, int status)
{
    snprintf(text, size, "cuBLAS: %s: %s", doing, api.status_string(status));
    return HCP_RC_DEVICE;
}

/* cuBLAS knows column-major matrices only: W [n_out, n_in] by rows is n_in x n_out to
 * it, x is n_in x tokens, and y = n_out x tokens is W transposed times x. */
static int run(hcp_gemm *gemm, const hcp_gemm_shape *s, int32_t dtype, const void *x,
               const void *w, void *y)
{
    static const float one = 1, zero = 0;
    const int type = dtype == HCP_BF16   ? DATA_BF16
                     : dtype == HCP_FP16 ? DATA_FP16
                                         : DATA_FP32;
    if (s->tokens < 1 || s->n_in < 1 || s->n_out < 1 || s->tokens > INT_MAX ||
        s->n_in > INT_MAX || s->n_out > INT_MAX) {
        snprintf(gemm->error, sizeof gemm->error, "a length is not 1 to %d", INT_MAX);
        return HCP_RC_INVALID;
    }
    int status = api.gemm_ex(((struct on_gpu *)gemm)->handle, OP_T, OP_N, (int)s->n_out,
                             (int)s->tokens, (int)s->n_in, &one, w, type, (int)s->n_in, x,
                             type, (int)s->n_in, &zero, y, type, (int)s->n_out,
                             COMPUTE_32F, ALGO_DEFAULT);
    return status == 0 ? HCP_RC_OK
                       : failed(gemm->error, sizeof gemm->error, "product", status);
}

static void close_gpu(hcp_gemm *gemm)
{
    api.destroy(((struct on_gpu *)gemm)->handle);
    free(gemm);
}

int hcp_gemm_open_cublas(void *stream, void *workspace, int64_t workspace_bytes,
                         int32_t sms, hcp_gemm **out, char *why, size_t why_size)
{
    int version = 0;
    if (!load(why, why_size))
        return HCP_RC_MISSING;
    struct on_gpu *g = calloc(1, sizeof *g);
    if (!g) {
        snprintf(why, why_size, "out of memory");
        return HCP_RC_NO_MEMORY;
    }
    int status = api.create(&g->handle);
    if (status != 0) {
        free(g);
        return failed(why, why_size, "create", status);
    }
    /* A stream resets the workspace: in this order. */
    status = api.set_stream(g->handle, stream);
    if (status == 0)
        status = api.set_workspace(g->handle, workspace, (size_t)workspace_bytes);
    if (status == 0)
        status = api.set_math_mode(g->handle, MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (status == 0 && sms > 0)
        status = api.set_sm_count_target(g->handle, sms);
    if (status == 0)
        status = api.get_version(g->handle, &version);
    if (status != 0) {
        close_gpu(&g->base);
        return failed(why, why_size, "set up", status);
    }
    g->base.run = run;
    g->base.close = close_gpu;
    strcpy(g->base.library, "cublas");
    /* 130001 is 13.0.1, as 120803 is 12.8.3. */
    snprintf(g->base.version, sizeof g->base.version, "%d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    *out = &g->base;
    return HCP_RC_OK;
}
