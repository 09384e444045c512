/* SPDX-License-Identifier: Apache-2.0
 *
 * What host code may ask about CUDA without including a CUDA header. Programs
 * link the static CUDA runtime, so they start on machines without a driver and
 * get a code and a text from here instead.
 */
#ifndef HCP_CUDA_H
#define HCP_CUDA_H
#include "kernels/provider.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Facts of one device as this process sees it (after CUDA_VISIBLE_DEVICES and
 * the limiter). sm_count is what the limiter leaves. */
typedef struct hcp_cuda_info {
    size_t size;
    char name[256];
    char uuid[48]; /* "GPU-8-4-4-4-12" as nvidia-smi prints it */
    char pci_bus_id[32];
    int32_t cc_major, cc_minor;
    int32_t sm_count;
    int32_t mps_enabled;     /* cudaDevAttrMpsEnabled: 1 this process is an MPS client */
    int32_t driver_version;  /* 13000 = 13.0: newest CUDA the driver serves */
    int32_t runtime_version; /* of the runtime linked into this program */
    int64_t memory_bytes;
    int64_t free_bytes; /* at the time of the call; creates a context */
    int64_t l2_bytes;
    int64_t shared_bytes_per_block; /* with opt-in */
} hcp_cuda_info;

/* Number of CUDA devices. No driver or no device is HCP_RC_MISSING with *count
 * = 0 and one line, cause and next step, in err. */
int hcp_cuda_device_count(int *count, char *err, size_t err_size);

/* Fills out (ready for providers) and, where not NULL, info for a CUDA ordinal.
 * Outputs are set only on success. HCP_RC_MISSING: no driver or no device;
 * HCP_RC_INVALID: no such ordinal; HCP_RC_DEVICE: anything else (MPS included). */
int hcp_cuda_device(int ordinal, hcp_device_ref *out, hcp_cuda_info *info, char *err,
                    size_t err_size);

/* A part of a device that this process keeps to, and who makes streams of it. */
typedef struct hcp_cuda_part {
    int32_t ordinal, sm_count;
    /* A stream that runs on the part only, high: before the work of others where it
     * can; hcp_rc, and why not in one line. */
    int (*stream_create)(void *ctx, int high, void **out, char *why, size_t why_size);
    void *ctx;
} hcp_cuda_part;

/* From now on streams that hcp_runtime_cuda() makes on this device are the part's, and
 * its sm_count is what hcp_cuda_device() tells; NULL: the whole device again. Not
 * while other threads use the runtime. */
void hcp_cuda_use_part(const hcp_cuda_part *part);

/* One line for a CUDA runtime error code (the integer of cudaError_t): cause and
 * next step. MPS errors (805-811) name the pipe and log directories in use.
 * Returns text. */
const char *hcp_cuda_explain(int cuda_error, char *text, size_t text_size);

/* Whether an error says that the MPS server or this client's connection to it is
 * gone: the work may be retried in a new process. */
int hcp_cuda_is_mps_error(int cuda_error);

/* CUDA runtime error code of the last failed call in this thread, 0 if none. */
int hcp_cuda_last_code(void);

/* hcp_merge_many of merge.h on the GPU: merges n fp32 states, [rows][head_dim] and
 * [rows], contiguous, into (o, lse), which are only written. parts and lse_parts
 * are host arrays of n device pointers. Asynchronous on stream; hcp_rc. */
int hcp_cuda_merge_many(float *o, float *lse, const float *const *parts,
                        const float *const *lse_parts, int64_t n, int64_t rows,
                        int64_t head_dim, void *stream);

/* ---- memory of another process's GPU in the same host ---- */

enum { HCP_CUDA_IPC_BYTES = 64 };

/* What another process needs to open memory (the start of one allocation of the selected
 * GPU). hcp_rc. */
int hcp_cuda_ipc_export(void *memory, unsigned char handle[HCP_CUDA_IPC_BYTES]);
/* That memory in this process's address space, whether or not its GPU is visible here;
 * peer access between the two GPUs is turned on. hcp_rc; a failure's text says what
 * stands in the way. */
int hcp_cuda_ipc_open(const unsigned char handle[HCP_CUDA_IPC_BYTES], void **out);
/* To be called before the owner frees it; accepts NULL. */
void hcp_cuda_ipc_close(void *memory);
/* Between memory of two GPUs (from hcp_cuda_ipc_open()) by a copy engine; asynchronous on
 * stream. hcp_rc. */
int hcp_cuda_peer_copy(void *dst, const void *src, int64_t bytes, void *stream);

#ifdef __cplusplus
}
#endif
#endif
