/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/dtype.h"
#include "kernels/merge.h"
#include "kernels/randn.h"
#include "kernels/runtime.h"

static int cpu_select(int ordinal)
{
    return ordinal == 0 ? HCP_RC_OK : HCP_RC_INVALID;
}

/* 64 bytes: a cache line and the widest vector. */
static int cpu_alloc(void **out, int64_t bytes)
{
    void *p = NULL;
    if (bytes < 0)
        return HCP_RC_INVALID;
    if (posix_memalign(&p, 64, bytes ? (size_t)bytes : 1))
        return HCP_RC_NO_MEMORY;
    *out = p;
    return HCP_RC_OK;
}

static int cpu_copy(void *dst, const void *src, int64_t bytes, void *stream)
{
    (void)stream;
    if (bytes < 0)
        return HCP_RC_INVALID;
    if (bytes)
        memcpy(dst, src, (size_t)bytes);
    return HCP_RC_OK;
}

static int cpu_fill(void *dst, int byte, int64_t bytes, void *stream)
{
    (void)stream;
    if (bytes < 0)
        return HCP_RC_INVALID;
    if (bytes)
        memset(dst, byte, (size_t)bytes);
    return HCP_RC_OK;
}

/* Everything is done on return, so there is one stream: NULL. */
static int cpu_stream_create(void **out)
{
    *out = NULL;
    return HCP_RC_OK;
}

static void cpu_stream_destroy(void *stream)
{
    (void)stream;
}

static int cpu_sync(void *stream)
{
    (void)stream;
    return HCP_RC_OK;
}

/* Work is done when it is queued, so that only the time of the record is left. */
typedef struct cpu_event {
    int recorded;
    struct timespec at;
} cpu_event;

static int cpu_event_create(void **out)
{
    cpu_event *event = calloc(1, sizeof *event);
    if (!event)
        return HCP_RC_NO_MEMORY;
    *out = event;
    return HCP_RC_OK;
}

static int cpu_event_record(void *event_, void *stream)
{
    cpu_event *event = event_;
    (void)stream;
    if (clock_gettime(CLOCK_MONOTONIC, &event->at))
        return HCP_RC_DEVICE;
    event->recorded = 1;
    return HCP_RC_OK;
}

static int cpu_event_wait(void *event, void *stream)
{
    (void)event, (void)stream;
    return HCP_RC_OK;
}

static int cpu_event_done(void *event, int *done)
{
    (void)event;
    *done = 1;
    return HCP_RC_OK;
}

static int cpu_event_ms(void *from_, void *to_, double *ms)
{
    const cpu_event *from = from_, *to = to_;
    if (!from->recorded || !to->recorded)
        return HCP_RC_INVALID;
    *ms = (double)(to->at.tv_sec - from->at.tv_sec) * 1e3 +
          (double)(to->at.tv_nsec - from->at.tv_nsec) * 1e-6;
    return HCP_RC_OK;
}

static int cpu_reset(void)
{
    return HCP_RC_OK;
}

static const char *cpu_last_error(void)
{
    return "";
}

static int cpu_randn(void *dst, int64_t n, int32_t dtype, uint64_t seed, uint64_t first,
                     void *stream)
{
    enum { CHUNK = 256 };
    float x[CHUNK];
    int64_t bytes = hcp_dtype_bytes(dtype);
    (void)stream;
    if (n < 0 || !bytes)
        return HCP_RC_INVALID;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        for (int64_t j = 0; j < m; j++)
            x[j] = hcp_randn_at(seed, first + (uint64_t)(i + j));
        hcp_from_float((char *)dst + i * bytes, x, m, dtype);
    }
    return HCP_RC_OK;
}

static int cpu_merge(float *o, float *lse, const void *o_part, int32_t part_dtype,
                     const float *lse_part, int64_t rows, int64_t head_dim, void *stream)
{
    (void)stream;
    if (rows < 0 || head_dim < 0 || !hcp_dtype_bytes(part_dtype))
        return HCP_RC_INVALID;
    hcp_merge(o, lse, o_part, part_dtype, lse_part, rows, head_dim);
    return HCP_RC_OK;
}

static int cpu_finish(const hcp_finish *job, void *stream)
{
    (void)stream;
    if (job->batch < 0 || job->heads < 0 || job->rows < 0 || job->head_dim < 0 ||
        (!job->o && (job->part || job->accumulate)) || (job->part && !job->lse_part) ||
        (job->o && job->lse_part && !job->part) ||
        (job->part && !hcp_dtype_bytes(job->part_dtype)))
        return HCP_RC_INVALID;
    hcp_finish_host(job);
    return HCP_RC_OK;
}

const hcp_runtime *hcp_runtime_cpu(void)
{
    static const hcp_runtime runtime = {
        .kind = HCP_DEVICE_CPU,
        .select = cpu_select,
        .alloc = cpu_alloc,
        .release = free,
        .to_device = cpu_copy,
        .to_host = cpu_copy,
        .to_host_async = cpu_copy,
        .host_alloc = cpu_alloc,
        .host_release = free,
        .fill = cpu_fill,
        .stream_create = cpu_stream_create,
        .stream_create_high = cpu_stream_create,
        .stream_destroy = cpu_stream_destroy,
        .sync = cpu_sync,
        .event_create = cpu_event_create,
        .event_destroy = free,
        .event_record = cpu_event_record,
        .event_wait = cpu_event_wait,
        .event_done = cpu_event_done,
        .event_ms = cpu_event_ms,
        .reset = cpu_reset,
        .last_error = cpu_last_error,
        .randn = cpu_randn,
        .merge = cpu_merge,
        .finish = cpu_finish,
    };
    return &runtime;
}
