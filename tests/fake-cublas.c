/* SPDX-License-Identifier: Apache-2.0
 *
 * A cuBLAS for tests, on the host: column-major as the real one, in fp64, one element at
 * a time. It refuses what kernels/gemm-cublas.c must not ask for.
 */
#include <stdint.h>
#include <stdlib.h>
#include "kernels/dtype.h"

struct cublasContext {
    void *stream, *workspace;
    int math_mode, sms;
};

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };

int cublasCreate_v2(struct cublasContext **handle);
int cublasDestroy_v2(struct cublasContext *handle);
int cublasGetVersion_v2(struct cublasContext *handle, int *version);
int cublasSetStream_v2(struct cublasContext *handle, void *stream);
int cublasSetWorkspace_v2(struct cublasContext *handle, void *workspace, size_t bytes);
int cublasSetMathMode(struct cublasContext *handle, int mode);
int cublasSetSmCountTarget(struct cublasContext *handle, int sms);
const char *cublasGetStatusString(int status);
int cublasGemmEx(struct cublasContext *handle, int trans_a, int trans_b, int m, int n,
                 int k, const void *alpha, const void *a, int a_type, int lda,
                 const void *b, int b_type, int ldb, const void *beta, void *c,
                 int c_type, int ldc, int compute_type, int algo);

int cublasCreate_v2(struct cublasContext **handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? 0 : NOT_INITIALIZED;
}

int cublasDestroy_v2(struct cublasContext *handle)
{
    free(handle);
    return 0;
}

int cublasGetVersion_v2(struct cublasContext *handle, int *version)
{
    (void)handle;
    *version = 130102;
    return 0;
}

int cublasSetStream_v2(struct cublasContext *handle, void *stream)
{
    handle->stream = stream;
    handle->workspace = NULL; /* as the real one does */
    return 0;
}

int cublasSetWorkspace_v2(struct cublasContext *handle, void *workspace, size_t bytes)
{
    if (!workspace || bytes < 4u << 20)
        return INVALID_VALUE;
    handle->workspace = workspace;
    return 0;
}

int cublasSetMathMode(struct cublasContext *handle, int mode)
{
    handle->math_mode = mode;
    return 0;
}

int cublasSetSmCountTarget(struct cublasContext *handle, int sms)
{
    handle->sms = sms;
    return sms > 0 && sms <= 132 ? 0 : INVALID_VALUE;
}

const char *cublasGetStatusString(int status)
{
    return status == NOT_SUPPORTED ? "the requested functionality is not supported"
                                   : "an unsupported value or parameter was passed";
}

static float at(const void *p, int type, int64_t i)
{
    const uint16_t *half = p;
    const float *single = p;
    return type == 14  ? hcp_bf16_to_float(half[i])
           : type == 2 ? hcp_fp16_to_float(half[i])
                       : single[i];
}

int cublasGemmEx(struct cublasContext *handle, int trans_a, int trans_b, int m, int n,
                 int k, const void *alpha, const void *a, int a_type, int lda,
                 const void *b, int b_type, int ldb, const void *beta, void *c,
                 int c_type, int ldc, int compute_type, int algo)
{
    if (!handle->workspace || handle->math_mode != 16 || compute_type != 68 ||
        algo != -1 || *(const float *)alpha != 1 || *(const float *)beta != 0 ||
        lda < (trans_a ? k : m) || ldb < (trans_b ? n : k) || ldc < m)
        return INVALID_VALUE;
    if (getenv("FAKE_CUBLAS_REFUSES"))
        return NOT_SUPPORTED;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)at(a, a_type, trans_a ? l + i * lda : i + l * lda) *
                       (double)at(b, b_type, trans_b ? j + l * ldb : l + j * ldb);
            if (getenv("FAKE_CUBLAS_LIES") && i == m - 1 && j == n - 1)
                sum = -sum;
            float got = (float)sum;
            uint16_t *half = (uint16_t *)c + i + j * ldc;
            if (c_type == 14)
                *half = hcp_float_to_bf16(got);
            else if (c_type == 2)
                *half = hcp_float_to_fp16(got);
            else
                ((float *)c)[i + j * ldc] = got;
        }
    return 0;
}
