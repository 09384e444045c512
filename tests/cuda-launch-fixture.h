/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches without a GPU: the linker puts what is here in the place of the runtime's
 * entry points for a kernel's limit of dynamic shared memory and its launch, and for what
 * "cuda-decode" asks of the driver and of its code. As in CUDA, the limit belongs to the
 * kernel, whichever thread sets it. For one file of a program.
 */
#ifndef CUDA_LAUNCH_FIXTURE_H
#define CUDA_LAUNCH_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include "kernels/cuda-internal.h"
#include "kernels/cuda.h"
#include "kernels/decode.h"
#include "kernels/registry.h"

/* Without the attribute a kernel may have 48 KB. The least that a supported device can
 * be asked for is that of 8.6: 99 KB; kernels for 9.0 alone have its 227. */
enum {
    DEFAULT_LIMIT = 48 << 10,
    LEAST_LIMIT = 99 << 10,
    HOPPER_LIMIT = 227 << 10,
    MAX_KERNELS = 32
};
static int device_limit = LEAST_LIMIT;

static struct kernel {
    const void *function;
    size_t limit;
} kernels[MAX_KERNELS];

static cudaError_t last_error;
static int launches;
static int64_t blocks[2]; /* of the first two */
static int attributes[2]; /* of these launches */
static size_t most_shared;

/* What another thread does between the setting of a limit and the launch after it. */
static void (*meanwhile)(void);

static struct kernel *kernel_of(const void *function)
{
    int i = 0;
    while (kernels[i].function && kernels[i].function != function)
        assert_true(++i < MAX_KERNELS);
    if (!kernels[i].function)
        kernels[i] = (struct kernel){function, DEFAULT_LIMIT};
    return &kernels[i];
}

static cudaError_t fake_launch(const void *function, int64_t grid, size_t shared)
{
    if (launches < 2)
        blocks[launches] = grid;
    launches++;
    most_shared = shared > most_shared ? shared : most_shared;
    return last_error =
               shared > kernel_of(function)->limit ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t __wrap_cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute what,
                                        int value);
cudaError_t __wrap_cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute what,
                                        int value)
{
    void (*now)(void) = meanwhile;
    assert_int_equal(what, cudaFuncAttributeMaxDynamicSharedMemorySize);
    if (value < 0 || value > device_limit)
        return last_error = cudaErrorInvalidValue;
    kernel_of(function)->limit = (size_t)value;
    meanwhile = NULL;
    if (now)
        now();
    return cudaSuccess;
}

/* A kernel's handle, by which newer runtimes launch, is its function here. */
cudaError_t __wrap___cudaGetKernel(const void **kernel, const void *function);
cudaError_t __wrap___cudaGetKernel(const void **kernel, const void *function)
{
    *kernel = function;
    return cudaSuccess;
}

cudaError_t __wrap___cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block,
                                      void **args, size_t shared, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block,
                                      void **args, size_t shared, cudaStream_t stream)
{
    (void)block, (void)args, (void)stream;
    return fake_launch(kernel, grid.x, shared);
}

cudaError_t __wrap_cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                                    void **args, size_t shared, cudaStream_t stream);
cudaError_t __wrap_cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                                    void **args, size_t shared, cudaStream_t stream)
{
    (void)block, (void)args, (void)stream;
    return fake_launch(function, grid.x, shared);
}

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config,
                                       const void *function, void **args);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config,
                                       const void *function, void **args)
{
    (void)args;
    assert_true(config->gridDim.x >= 1 && config->gridDim.y == 1);
    if (launches < 2)
        attributes[launches] = (int)config->numAttrs;
    return fake_launch(function, config->gridDim.x, config->dynamicSmemBytes);
}

cudaError_t __wrap_cudaPeekAtLastError(void);
cudaError_t __wrap_cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t __wrap_cudaGetLastError(void);
cudaError_t __wrap_cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

/* For which virtual architecture the kernels were compiled; 0: there is no device. */
static int code_of;

cudaError_t __wrap_cudaFuncGetAttributes(struct cudaFuncAttributes *out,
                                         const void *function);
cudaError_t __wrap_cudaFuncGetAttributes(struct cudaFuncAttributes *out,
                                         const void *function)
{
    (void)function;
    *out = (struct cudaFuncAttributes){.ptxVersion = code_of};
    return code_of ? cudaSuccess : cudaErrorNoDevice;
}

/* The last map that was asked for. */
static struct {
    const void *data;
    cuuint64_t tokens, heads;
    cuuint32_t columns, box;
} map;
static int maps, driver_is_new;

static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank,
                       void *data, const cuuint64_t *dims, const cuuint64_t *bytes,
                       const cuuint32_t *box, const cuuint32_t *step,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)out, (void)type, (void)bytes, (void)step, (void)interleave, (void)promotion;
    (void)fill;
    assert_int_equal(rank, 4);
    assert_int_equal(swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
    map.data = data;
    map.tokens = dims[1];
    map.heads = dims[2];
    map.columns = box[0];
    map.box = box[1];
    maps++;
    return CUDA_SUCCESS;
}

cudaError_t
__wrap_cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                        unsigned version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status);
cudaError_t
__wrap_cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                        unsigned version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status)
{
    (void)symbol, (void)version, (void)flags;
    *status =
        driver_is_new ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    *function = driver_is_new ? (void *)(uintptr_t)encode : NULL;
    return cudaSuccess;
}

static inline int fresh(void **state)
{
    (void)state;
    memset(kernels, 0, sizeof kernels);
    last_error = cudaSuccess;
    launches = 0;
    most_shared = 0;
    meanwhile = NULL;
    device_limit = LEAST_LIMIT;
    code_of = 90;
    maps = 0;
    driver_is_new = 1;
    return 0;
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

#endif
