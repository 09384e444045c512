/* SPDX-License-Identifier: Apache-2.0
 *
 * The few memory and stream operations that host code needs on a device, so that
 * conformance, measurement and execution are written once for CPU and CUDA.
 * All return hcp_rc.
 */
#ifndef HCP_RUNTIME_H
#define HCP_RUNTIME_H
#include "kernels/provider.h"

/* What hcp_attention does after a provider's call: bring the raw result of a run
 * of rows to the common form (natural-log L, (0, -inf) for empty rows, fp32) and
 * store it or merge it into the running state. Row (b, h, i) of a tensor is at
 * b*stride[0] + h*stride[1] + i*stride[2] elements from its pointer, of its lse at
 * (b*heads + h)*pitch + i. All pointers are the device's.
 * part and lse_part NULL: the rows are empty (stored: (0, -inf); merged: no-op).
 * o and part both NULL: only L is treated (O went to its place already);
 * not with accumulate. lse_part may equal lse (in place), part may not equal o. */
typedef struct hcp_finish {
    int64_t batch, heads, rows, head_dim;
    float *o;
    int64_t o_stride[3];
    float *lse;
    int64_t lse_pitch;
    const void *part;
    int32_t part_dtype; /* hcp_dtype */
    int64_t part_stride[3];
    const float *lse_part;
    int64_t part_pitch;
    uint32_t caps;      /* the provider's HCP_CAP_LSE_LOG2 and HCP_CAP_EMPTY_POS_INF */
    int32_t accumulate; /* 1: merge into (o, lse) by the rule of merge.h; 0: store */
} hcp_finish;

typedef struct hcp_runtime {
    int32_t kind; /* hcp_device_kind */
    int (*select)(int ordinal);
    int (*alloc)(void **out, int64_t bytes);
    void (*release)(void *p);
    /* src may be reused on return; from host_alloc() memory, once stream got there. */
    int (*to_device)(void *dst, const void *src, int64_t bytes, void *stream);
    /* Done on return. */
    int (*to_host)(void *dst, const void *src, int64_t bytes, void *stream);
    /* Queued: dst holds the bytes once stream got there. dst of host_alloc(), or the
     * call may block. */
    int (*to_host_async)(void *dst, const void *src, int64_t bytes, void *stream);
    /* Host memory that the device copies from and to at full speed (CUDA: pinned).
     * *out is set on success only. host_release() accepts NULL. */
    int (*host_alloc)(void **out, int64_t bytes);
    void (*host_release)(void *p);
    int (*fill)(void *dst, int byte, int64_t bytes, void *stream);
    int (*stream_create)(void **out);
    /* The device starts its work before that of other streams, where it can. */
    int (*stream_create_high)(void **out);
    void (*stream_destroy)(void *stream);
    int (*sync)(void *stream);
    /* An event marks what was queued on a stream at its last record. Never recorded, it
     * counts as done and waiting for it does nothing. Destroying one that is queued is
     * allowed; NULL is accepted. Two threads that use one event order their calls. */
    int (*event_create)(void **out);
    void (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    /* What is queued on stream from here on comes after the event's last record; does
     * not block the host. */
    int (*event_wait)(void *event, void *stream);
    /* *done 1 or 0, at once. */
    int (*event_done)(void *event, int *done);
    /* Milliseconds between two records, of which both are done (else an error). On the
     * CPU: of the monotonic clock when record was called. */
    int (*event_ms)(void *from, void *to, double *ms);
    /* Ends this process's use of the selected device: memory, streams, events and plans
     * on it are gone, and are not released any more. */
    int (*reset)(void);
    /* Text of the last device error in this thread; "" if none. */
    const char *(*last_error)(void);
    /* n standard normal numbers as dtype; element i is hcp_randn_at(seed, first + i) of
     * randn.h: same values on every device up to rounding to dtype. */
    int (*randn)(void *dst, int64_t n, int32_t dtype, uint64_t seed, uint64_t first,
                 void *stream);
    /* Merge of contiguous partial states, fp32, rows x head_dim; see merge.h. */
    int (*merge)(float *o, float *lse, const void *o_part, int32_t part_dtype,
                 const float *lse_part, int64_t rows, int64_t head_dim, void *stream);
    int (*finish)(const hcp_finish *job, void *stream);
} hcp_runtime;

const hcp_runtime *hcp_runtime_cpu(void);
const hcp_runtime *hcp_runtime_cuda(void); /* NULL in a build without CUDA */

#endif
