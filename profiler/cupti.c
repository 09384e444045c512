/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/cupti.h"
#include <stdio.h>
#ifdef HAVE_CUPTI
#include <cupti.h>
#include <dlfcn.h>
#include <stdlib.h>

enum { BUFFER_BYTES = 1 << 20 };

/* One process measures one device: the records need no owner. */
static struct {
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*disable)(CUpti_ActivityKind);
    CUptiResult (*flush)(uint32_t);
    CUptiResult (*next)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*dropped)(CUcontext, uint32_t, size_t *);
    int kernels;
    double total_ns;
    size_t lost;
} cupti;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max_records)
{
    void *p = NULL;
    *max_records = 0;
    *size = posix_memalign(&p, 8, BUFFER_BYTES) == 0 ? BUFFER_BYTES : 0;
    *buffer = p;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t lost = 0;
    (void)size;
    while (valid > 0 && cupti.next(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            continue;
        /* start and end lie where they lay in every version since 5. */
        const CUpti_ActivityKernel9 *kernel = (const CUpti_ActivityKernel9 *)record;
        cupti.kernels++;
        cupti.total_ns += (double)(kernel->end - kernel->start);
    }
    if (cupti.dropped && cupti.dropped(context, stream, &lost) == CUPTI_SUCCESS)
        cupti.lost += lost;
    free(buffer);
}

int hcp_cupti_open(char *why, size_t why_size)
{
    static const char *const names[] = {
        "libcupti.so.13", "libcupti.so.12", "libcupti.so", HCP_CUDA_LIBDIR "/libcupti.so",
        HCP_CUDA_LIBDIR "/../extras/CUPTI/lib64/libcupti.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, why_size, "libcupti.so not found: event times have no cross-check");
        return -1;
    }
    typedef CUptiResult (*register_fn)(CUpti_BuffersCallbackRequestFunc,
                                       CUpti_BuffersCallbackCompleteFunc);
    register_fn callbacks = (register_fn)dlsym(library, "cuptiActivityRegisterCallbacks");
    cupti.enable =
        (CUptiResult(*)(CUpti_ActivityKind))dlsym(library, "cuptiActivityEnable");
    cupti.disable =
        (CUptiResult(*)(CUpti_ActivityKind))dlsym(library, "cuptiActivityDisable");
    cupti.flush = (CUptiResult(*)(uint32_t))dlsym(library, "cuptiActivityFlushAll");
    cupti.next = (CUptiResult(*)(uint8_t *, size_t, CUpti_Activity **))dlsym(
        library, "cuptiActivityGetNextRecord");
    cupti.dropped = (CUptiResult(*)(CUcontext, uint32_t, size_t *))dlsym(
        library, "cuptiActivityGetNumDroppedRecords");
    if (!callbacks || !cupti.enable || !cupti.disable || !cupti.flush || !cupti.next ||
        callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) {
        snprintf(why, why_size,
                 "libcupti.so does not start: event times have no cross-check");
        return -1; /* stays loaded: it may hold callbacks */
    }
    return 0;
}

int hcp_cupti_begin(void)
{
    cupti.kernels = 0;
    cupti.total_ns = 0;
    cupti.lost = 0;
    return cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS ? 0 : -1;
}

int hcp_cupti_end(int *kernels, double *total_ms, int *dropped)
{
    CUptiResult flushed = cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    CUptiResult disabled = cupti.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    *kernels = cupti.kernels;
    *total_ms = cupti.total_ns / 1e6;
    *dropped = (int)cupti.lost;
    return flushed == CUPTI_SUCCESS && disabled == CUPTI_SUCCESS ? 0 : -1;
}
#else
int hcp_cupti_open(char *why, size_t why_size)
{
    snprintf(why, why_size, "built without CUPTI: event times have no cross-check");
    return -1;
}

int hcp_cupti_begin(void)
{
    return -1;
}

int hcp_cupti_end(int *kernels, double *total_ms, int *dropped)
{
    *kernels = *dropped = 0;
    *total_ms = 0;
    return -1;
}
#endif
