/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events without a GPU: threads that work off queues, so that the order of
 * asynchronous work is tested anywhere.
 */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H
#include "kernels/runtime.h"

/* What fake-nccl, which is loaded at run time, sees of a stream. */
typedef struct fake_stream fake_stream;
struct fake_stream {
    /* Queues fn(arg), which frees arg. */
    void (*call)(fake_stream *stream, void (*fn)(void *arg), void *arg);
    /* The same for a transfer, which FAKE_GPU_NO_WAIT makes late. */
    void (*transfer)(fake_stream *stream, void (*fn)(void *arg), void *arg);
};

/* A runtime of kind CUDA. Its memory is the host's, NaN until written; $FAKE_GPU_SHARED:
 * other processes can open it as they would a GPU's (hcp_cuda_ipc_open). There are
 * $FAKE_GPU_QUEUES hardware queues ($CUDA_DEVICE_MAX_CONNECTIONS without it), which
 * streams share in the order of their making; neither set, or 0: one a stream. */
const hcp_runtime *fake_gpu_runtime(void);
/* The same with randn(), merge() and finish(): fake-kernels.c, as is what follows. */
const hcp_runtime *fake_gpu_runtime_with_kernels(void);
/* The CPU's kernel, queued. $FAKE_GPU_PARTIAL: it cannot accumulate. */
const hcp_provider *fake_gpu_provider(void);
/* From now on it takes so much longer. */
void fake_gpu_slow(int us);
/* Stretches by just so much that were queued since it was asked last. */
#define FAKE_GPU_STRETCH 1.5
int fake_gpu_stretches(void);
/* Its memory, NaN until it is written (fake-gpu-memory.c). */
int fake_gpu_alloc(void **out, int64_t bytes);
void fake_gpu_release(void *p);

/* What goes wrong from now on (fake-gpu.c): streams do not wait for events, and transfers
 * are as late as they can be: they begin when the host waits, and nothing else is left to
 * do on any stream; events are never reached. */
enum fake_gpu_fault { FAKE_GPU_GOOD, FAKE_GPU_NO_WAIT, FAKE_GPU_STUCK };
void fake_gpu_fault(enum fake_gpu_fault which);
/* After so many calls about events and copies these fail, all of them, as after an error
 * of a kernel on a GPU; work that is queued still ends. < 0: never (again). */
void fake_gpu_lose_after(int calls);

#endif
