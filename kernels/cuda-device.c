/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda.h"
#include "kernels/cuda-internal.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hcp_cuda_part part; /* sm_count 0: none */
static _Thread_local int last_code;
static _Thread_local char last_text[512];

/* What the codes that a user can mend mean; the others get CUDA's own words. */
static const struct {
    int code;
    int mps; /* the connection to the MPS server is at fault */
    const char *text;
} known[] = {
    {cudaErrorMemoryAllocation, 0,
     "out of GPU memory; use shorter lengths or end other processes on this GPU "
     "(nvidia-smi lists them)"},
    {cudaErrorInsufficientDriver, 0,
     "no NVIDIA driver, or one older than this program's CUDA runtime; install or "
     "update the driver (nvidia-smi must work), or use the CPU device"},
    {cudaErrorDevicesUnavailable, 0,
     "the GPU is busy or in exclusive or prohibited compute mode; see the 'Compute M.' "
     "column of nvidia-smi"},
    {cudaErrorNoDevice, 0,
     "no CUDA device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the "
     "CPU device"},
    {cudaErrorInvalidDevice, 0,
     "no such CUDA device; 'hcp-profile devices' lists them, CUDA_VISIBLE_DEVICES hides "
     "and renumbers them"},
    {cudaErrorNoKernelImageForDevice, 0,
     "this build holds no code for the GPU's architecture; rebuild with CUDA_GENCODE for "
     "it"},
    {cudaErrorECCUncorrectable, 0,
     "uncorrectable memory error on the GPU; it needs a reset or a repair"},
    {cudaErrorIllegalAddress, 0,
     "a kernel read or wrote outside its buffers; the process must end. Find it with "
     "compute-sanitizer"},
    {cudaErrorLaunchTimeout, 0,
     "a kernel ran past the display's time limit; use a GPU without a display"},
    {cudaErrorSystemNotReady, 0,
     "the GPU system is not ready; on NVSwitch machines start nvidia-fabricmanager"},
    {cudaErrorSystemDriverMismatch, 0,
     "driver library and kernel module differ in version; reload the module or reboot"},
    {cudaErrorCompatNotSupportedOnDevice, 0,
     "forward-compatibility libraries do not serve this GPU; remove the cuda-compat "
     "directory from LD_LIBRARY_PATH or update the driver"},
    {cudaErrorMpsConnectionFailed, 1,
     "cannot connect to the MPS daemon; start it with 'nvidia-cuda-mps-control -d' as "
     "this user and with this pipe directory (containers must share it and the IPC "
     "namespace), or unset CUDA_MPS_PIPE_DIRECTORY"},
    {cudaErrorMpsRpcFailure, 1,
     "the MPS server stopped answering: one client's fatal fault ends all of them; "
     "retry in a new process, its log says which client"},
    {cudaErrorMpsServerNotReady, 1,
     "the MPS server is recovering from a fault; retry in a new process in a moment"},
    {cudaErrorMpsMaxClientsReached, 1,
     "the MPS server serves no more clients; end some of them (60 fit one device)"},
    {cudaErrorMpsMaxConnectionsReached, 1,
     "the MPS server has no device connections left; end some of its clients"},
    {cudaErrorMpsClientTerminated, 1,
     "the MPS server ended this client; the work must run again in a new process"},
    {cudaErrorCdpNotSupported, 1,
     "the program uses dynamic parallelism, which MPS does not serve; run it without "
     "MPS"},
};

static const char *mps_directory(const char *variable, const char *otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? value : otherwise;
}

int hcp_cuda_is_mps_error(int cuda_error)
{
    return cuda_error >= cudaErrorMpsConnectionFailed &&
           cuda_error <= cudaErrorMpsClientTerminated;
}

const char *hcp_cuda_explain(int cuda_error, char *text, size_t text_size)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].code != cuda_error)
            continue;
        if (known[i].mps)
            snprintf(text, text_size,
                     "CUDA error %d: %s [pipe directory %s, log directory %s]",
                     cuda_error, known[i].text,
                     mps_directory("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),
                     mps_directory("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"));
        else
            snprintf(text, text_size, "CUDA error %d: %s", cuda_error, known[i].text);
        return text;
    }
    snprintf(text, text_size, "CUDA error %d (%s): %s", cuda_error,
             cudaGetErrorName((cudaError_t)cuda_error),
             cudaGetErrorString((cudaError_t)cuda_error));
    return text;
}

int hcp_cuda_check(int cuda_error, const char *doing)
{
    char why[384];
    if (cuda_error == cudaSuccess)
        return HCP_RC_OK;
    /* Clears what CUDA itself remembers, so that a later launch check does not
     * report this failure again. */
    cudaGetLastError();
    last_code = cuda_error;
    snprintf(last_text, sizeof last_text, "cannot %s: %s", doing,
             hcp_cuda_explain(cuda_error, why, sizeof why));
    switch (cuda_error) {
    case cudaErrorMemoryAllocation:
        return HCP_RC_NO_MEMORY;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
        return HCP_RC_MISSING;
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidValue:
        return HCP_RC_INVALID;
    default:
        return HCP_RC_DEVICE;
    }
}

void hcp_cuda_note(const char *text)
{
    snprintf(last_text, sizeof last_text, "%s", text);
}

const char *hcp_cuda_error_text(void)
{
    return last_text;
}

int hcp_cuda_last_code(void)
{
    return last_code;
}

static int fail(int cuda_error, const char *doing, char *err, size_t err_size)
{
    int rc = hcp_cuda_check(cuda_error, doing);
    if (err && err_size)
        snprintf(err, err_size, "%s", last_text);
    return rc;
}

int hcp_cuda_device_count(int *count, char *err, size_t err_size)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    *count = 0;
    if (e == cudaSuccess && n == 0)
        e = cudaErrorNoDevice;
    if (e != cudaSuccess)
        return fail(e, "find a GPU", err, err_size);
    *count = n;
    return HCP_RC_OK;
}

void hcp_cuda_use_part(const hcp_cuda_part *p)
{
    part = p ? *p : (hcp_cuda_part){0};
}

const hcp_cuda_part *hcp_cuda_part_here(void)
{
    int ordinal;
    return part.sm_count > 0 && cudaGetDevice(&ordinal) == cudaSuccess &&
                   ordinal == part.ordinal
               ? &part
               : NULL;
}

static void format_uuid(const cudaUUID_t *uuid, char *text, size_t text_size)
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(text, text_size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
             b[12], b[13], b[14], b[15]);
}

int hcp_cuda_device(int ordinal, hcp_device_ref *out, hcp_cuda_info *info, char *err,
                    size_t err_size)
{
    struct cudaDeviceProp prop;
    hcp_cuda_info found = {.size = sizeof found};
    size_t free_bytes = 0, total_bytes = 0;
    int count, mps = 0, sm_count = 0;
    cudaError_t e;
    int rc = hcp_cuda_device_count(&count, err, err_size);
    if (rc != HCP_RC_OK)
        return rc;
    if (ordinal < 0 || ordinal >= count)
        return fail(cudaErrorInvalidDevice, "select the GPU", err, err_size);
    if ((e = cudaGetDeviceProperties(&prop, ordinal)) != cudaSuccess)
        return fail(e, "read the GPU's properties", err, err_size);
    /* Asked apart from the properties: the attribute is what MPS clients see. */
    e = cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, ordinal);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, ordinal);
    if (e != cudaSuccess)
        return fail(e, "read the GPU's attributes", err, err_size);
    if (part.sm_count > 0 && part.ordinal == ordinal)
        sm_count = part.sm_count;
    if (info) {
        if ((e = cudaSetDevice(ordinal)) == cudaSuccess)
            e = cudaMemGetInfo(&free_bytes, &total_bytes);
        if (e != cudaSuccess)
            return fail(e, "open the GPU", err, err_size);
        cudaDriverGetVersion(&found.driver_version);
        cudaRuntimeGetVersion(&found.runtime_version);
        cudaDeviceGetPCIBusId(found.pci_bus_id, sizeof found.pci_bus_id, ordinal);
        snprintf(found.name, sizeof found.name, "%s", prop.name);
        format_uuid(&prop.uuid, found.uuid, sizeof found.uuid);
        found.cc_major = prop.major;
        found.cc_minor = prop.minor;
        found.sm_count = sm_count;
        found.mps_enabled = mps;
        found.memory_bytes = (int64_t)prop.totalGlobalMem;
        found.free_bytes = (int64_t)free_bytes;
        found.l2_bytes = prop.l2CacheSize;
        found.shared_bytes_per_block = (int64_t)prop.sharedMemPerBlockOptin;
        *info = found;
    }
    *out = (hcp_device_ref){.size = sizeof *out,
                            .kind = HCP_DEVICE_CUDA,
                            .ordinal = ordinal,
                            .cc_major = prop.major,
                            .cc_minor = prop.minor,
                            .sm_count = sm_count};
    return HCP_RC_OK;
}
