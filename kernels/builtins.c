/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in providers, in order of preference, and what stands in for those
 * that this build lacks. An object of its own in libhcpkernels.la: a test that
 * opens a registry of its own choice does not pull it in, and so needs no CUDA.
 */
#include "config.h"
#include "kernels/registry.h"

#ifndef HAVE_CUDA
const hcp_runtime *hcp_runtime_cuda(void)
{
    return NULL;
}

const hcp_provider *hcp_provider_cuda_reference(void)
{
    return NULL;
}

const hcp_provider *hcp_provider_cuda_wgmma(void)
{
    return NULL;
}

const hcp_provider *hcp_provider_cuda_mma(void)
{
    return NULL;
}

const hcp_provider *hcp_provider_cuda_decode(void)
{
    return NULL;
}
#endif

#ifndef HAVE_CUDNN
const hcp_provider *hcp_provider_cudnn(void)
{
    return NULL;
}
#endif

int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size)
{
    static const hcp_provider_ctor builtins[] = {
        hcp_provider_cudnn,
        hcp_provider_cuda_decode, /* refuses more than a few queries */
        hcp_provider_cuda_wgmma,
        hcp_provider_cuda_mma,
        hcp_provider_cuda_reference,
        hcp_provider_cpu,
    };
    return hcp_registry_open_with(device, builtins, sizeof builtins / sizeof *builtins,
                                  plugin_path, out, err, err_size);
}
