/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/cupti.h"
#include <stdio.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_CUPTI
#include <cupti.h>
#endif

/* The part of CUPTI's C interface that is used here, as documented: a CUptiResult of 0
 * is success. Where its header is found, it is held against it. */
enum { CONCURRENT_KERNEL = 10, FLUSH_FORCED = 1 };
struct kernel_record { /* CUpti_ActivityKernel*, whose times lie here since version 5 */
    int kind;
    char other[12];
    uint64_t start_ns, end_ns;
};
#ifdef HAVE_CUPTI
_Static_assert((int)CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == CONCURRENT_KERNEL &&
                   (int)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == FLUSH_FORCED &&
                   offsetof(CUpti_ActivityKernel9, start) ==
                       offsetof(struct kernel_record, start_ns) &&
                   offsetof(CUpti_ActivityKernel9, end) ==
                       offsetof(struct kernel_record, end_ns),
               "CUPTI's records are other ones");
#endif

enum { BUFFER_BYTES = 1 << 20 };

/* One process measures one device: the records need no owner. */
static struct {
    int (*enable)(int);
    int (*disable)(int);
    int (*flush)(uint32_t);
    int (*next)(uint8_t *, size_t, void **);
    int (*dropped)(void *, uint32_t, size_t *);
    int kernels;
    double total_ns;
    size_t lost;
} cupti;

static void give_buffer(uint8_t **buffer, size_t *size, size_t *max_records)
{
    void *p = NULL;
    *max_records = 0;
    *size = posix_memalign(&p, 8, BUFFER_BYTES) == 0 ? BUFFER_BYTES : 0;
    *buffer = p;
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                        size_t valid)
{
    void *record = NULL;
    size_t lost = 0;
    (void)size;
    while (valid > 0 && cupti.next(buffer, valid, &record) == 0) {
        const struct kernel_record *kernel = record;
        if (kernel->kind != CONCURRENT_KERNEL)
            continue;
        cupti.kernels++;
        cupti.total_ns += (double)(kernel->end_ns - kernel->start_ns);
    }
    if (cupti.dropped && cupti.dropped(context, stream, &lost) == 0)
        cupti.lost += lost;
    free(buffer);
}

int hcp_cupti_open(char *why, size_t why_size)
{
    static const char *const names[] = {
        "libcupti.so.13",
        "libcupti.so.12",
        "libcupti.so",
#ifdef HCP_CUDA_LIBDIR
        HCP_CUDA_LIBDIR "/libcupti.so",
        HCP_CUDA_LIBDIR "/../extras/CUPTI/lib64/libcupti.so",
#endif
    };
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, why_size, "libcupti.so not found: event times have no cross-check");
        return -1;
    }
    typedef int (*register_fn)(
        void (*request)(uint8_t **, size_t *, size_t *),
        void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t));
    register_fn callbacks = (register_fn)dlsym(library, "cuptiActivityRegisterCallbacks");
    cupti.enable = (int (*)(int))dlsym(library, "cuptiActivityEnable");
    cupti.disable = (int (*)(int))dlsym(library, "cuptiActivityDisable");
    cupti.flush = (int (*)(uint32_t))dlsym(library, "cuptiActivityFlushAll");
    cupti.next =
        (int (*)(uint8_t *, size_t, void **))dlsym(library, "cuptiActivityGetNextRecord");
    cupti.dropped = (int (*)(void *, uint32_t, size_t *))dlsym(
        library, "cuptiActivityGetNumDroppedRecords");
    if (!callbacks || !cupti.enable || !cupti.disable || !cupti.flush || !cupti.next ||
        callbacks(give_buffer, take_buffer) != 0) {
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
    return cupti.enable(CONCURRENT_KERNEL) == 0 ? 0 : -1;
}

int hcp_cupti_end(int *kernels, double *total_ms, int *dropped)
{
    int flushed = cupti.flush(FLUSH_FORCED);
    int disabled = cupti.disable(CONCURRENT_KERNEL);
    *kernels = cupti.kernels;
    *total_ms = cupti.total_ns / 1e6;
    *dropped = (int)cupti.lost;
    return flushed == 0 && disabled == 0 ? 0 : -1;
}
