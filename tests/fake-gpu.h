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
};

/* A runtime of kind CUDA. Its memory is the host's. */
const hcp_runtime *fake_gpu_runtime(void);

#endif
