/* SPDX-License-Identifier: Apache-2.0
 *
 * The few memory and stream operations that host code needs on a device, so that
 * conformance, measurement and execution are written once for CPU and CUDA.
 * All return hcp_rc.
 */
#ifndef HCP_RUNTIME_H
#define HCP_RUNTIME_H
#include "kernels/provider.h"

typedef struct hcp_runtime {
    int32_t kind; /* hcp_device_kind */
    int (*select)(int ordinal);
    int (*alloc)(void **out, int64_t bytes);
    void (*release)(void *p);
    int (*to_device)(void *dst, const void *src, int64_t bytes, void *stream);
    int (*to_host)(void *dst, const void *src, int64_t bytes, void *stream); /* synchronous */
    int (*fill)(void *dst, int byte, int64_t bytes, void *stream);
    int (*stream_create)(void **out);
    void (*stream_destroy)(void *stream);
    int (*sync)(void *stream);
    /* Text of the last device error in this thread; "" if none. */
    const char *(*last_error)(void);
    /* Standard normal numbers as dtype (Box-Muller on a counter hash of seed:
     * same values on every device and runtime up to rounding to dtype). */
    int (*randn)(void *dst, int64_t n, int32_t dtype, uint64_t seed, void *stream);
    /* Merge of partial states, fp32, rows x head_dim; see merge.h. */
    int (*merge)(float *o, float *lse, const void *o_part, int32_t part_dtype, const float *lse_part,
                 int64_t rows, int64_t head_dim, void *stream);
} hcp_runtime;

const hcp_runtime *hcp_runtime_cpu(void);
const hcp_runtime *hcp_runtime_cuda(void); /* NULL in a build without CUDA */

#endif
