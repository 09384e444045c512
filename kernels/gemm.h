/* SPDX-License-Identifier: Apache-2.0
 *
 * The product of a linear layer, y = x W', with the library that the device has for it:
 * cuBLAS, loaded at run time, or cblas. x is [tokens, n_in], W [n_out, n_in] and
 * y [tokens, n_out], all dense, row-major and of one dtype; sums are fp32.
 */
#ifndef HCP_GEMM_H
#define HCP_GEMM_H
#include <stddef.h>
#include <stdint.h>
#include "kernels/runtime.h"

typedef struct hcp_gemm_shape {
    int64_t tokens, n_in, n_out; /* each up to 2^31 - 1 */
} hcp_gemm_shape;

typedef struct hcp_gemm hcp_gemm;

/* Every library's own struct begins with this. One thread at a time. */
struct hcp_gemm {
    char library[16]; /* "cublas" "openblas" */
    char version[48];
    char error[200]; /* what the last run that failed says */
    /* Asynchronous on the stream of hcp_gemm_open. hcp_rc. */
    int (*run)(hcp_gemm *gemm, const hcp_gemm_shape *shape, int32_t dtype, const void *x,
               const void *w, void *y);
    void (*close)(hcp_gemm *gemm);
};

/* The library of runtime's device; CUDA: of the device that is selected. sms > 0: its
 * kernels are to be chosen for so many SMs, where the device is not seen as limited
 * (green contexts). HCP_RC_MISSING where there is none: why[why_size] says what to do. */
int hcp_gemm_open(const hcp_runtime *runtime, void *stream, int32_t sms, hcp_gemm **out,
                  char *why, size_t why_size);
void hcp_gemm_close(hcp_gemm *gemm); /* accepts NULL */

/* One run, of which 64 elements of y, the corners among them, are held against sums in
 * fp64; y is filled with NaN first. 0, or a failure that why tells: of the run, or the
 * element that is wrong (HCP_RC_INVALID). */
int hcp_gemm_check(hcp_gemm *gemm, const hcp_runtime *runtime, void *stream,
                   const hcp_gemm_shape *shape, int32_t dtype, const void *x,
                   const void *w, void *y, char *why, size_t why_size);

/* ---- one a library ------------------------------------------------------- */

int hcp_gemm_open_cblas(hcp_gemm **out, char *why, size_t why_size);
/* workspace is the caller's, and lives as long as the result. */
int hcp_gemm_open_cublas(void *stream, void *workspace, int64_t workspace_bytes,
                         int32_t sms, hcp_gemm **out, char *why, size_t why_size);

#endif
