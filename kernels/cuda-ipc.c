/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between the GPUs of two processes. The peer's memory is mapped, not its device
 * named: cudaMemcpyPeerAsync would want the peer's GPU visible here, and a context on it.
 * A copy between mapped memory of two GPUs is the same work for the same engine.
 */
#include "kernels/cuda-internal.h"
#include "kernels/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == HCP_CUDA_IPC_BYTES, "size of a handle");

int hcp_cuda_ipc_export(void *memory, unsigned char handle[HCP_CUDA_IPC_BYTES])
{
    cudaIpcMemHandle_t h;
    cudaError_t e = cudaIpcGetMemHandle(&h, memory);
    if (e == cudaSuccess)
        memcpy(handle, &h, sizeof h);
    return hcp_cuda_check(e, "share memory with another process (CUDA IPC)");
}

/* What the codes of cudaIpcOpenMemHandle mean to somebody who measures a link. */
static const char *reason(cudaError_t e)
{
    switch (e) {
    case cudaErrorPeerAccessUnsupported:
        return ": no peer access between these two GPUs (nvidia-smi topo -p2p r)";
    case cudaErrorTooManyPeers:
        return ": the hardware has no room for another peer";
    case cudaErrorInvalidResourceHandle:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorInvalidValue:
        return ": both processes must be clients of one MPS daemon or neither, in one "
               "container";
    case cudaErrorNotSupported:
        return ": this system does not share GPU memory between processes";
    default:
        return "";
    }
}

int hcp_cuda_ipc_open(const unsigned char handle[HCP_CUDA_IPC_BYTES], void **out)
{
    cudaIpcMemHandle_t h;
    char doing[200];
    void *p = NULL;
    memcpy(&h, handle, sizeof h);
    cudaError_t e = cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess);
    snprintf(doing, sizeof doing, "reach the other GPU's memory (CUDA IPC%s)", reason(e));
    int rc = hcp_cuda_check(e, doing);
    if (rc == HCP_RC_OK)
        *out = p;
    return rc;
}

void hcp_cuda_ipc_close(void *memory)
{
    if (memory)
        cudaIpcCloseMemHandle(memory);
}

int hcp_cuda_peer_copy(void *dst, const void *src, int64_t bytes, void *stream)
{
    return hcp_cuda_check(cudaMemcpyAsync(dst, src, (size_t)bytes,
                                          cudaMemcpyDeviceToDevice, (cudaStream_t)stream),
                          "copy between GPUs");
}
