/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of "cuda-reference" without a GPU: the linker puts what is here in the place
 * of the runtime's entry points for a kernel's limit of dynamic shared memory and its
 * launch. As in CUDA, the limit belongs to the kernel, whichever thread sets it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include "kernels/cuda.h"
#include "kernels/registry.h"

/* Without the attribute a kernel may have 48 KB. The least that a supported device can
 * be asked for is that of 8.6: 99 KB. */
enum { DEFAULT_LIMIT = 48 << 10, DEVICE_LIMIT = 99 << 10, MAX_KERNELS = 8 };

static struct kernel {
    const void *function;
    size_t limit;
} kernels[MAX_KERNELS];

static cudaError_t last_error;
static int launches;
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

static cudaError_t fake_launch(const void *function, size_t shared)
{
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
    if (value < 0 || value > DEVICE_LIMIT)
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
    (void)grid, (void)block, (void)args, (void)stream;
    return fake_launch(kernel, shared);
}

cudaError_t __wrap_cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                                    void **args, size_t shared, cudaStream_t stream);
cudaError_t __wrap_cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                                    void **args, size_t shared, cudaStream_t stream)
{
    (void)grid, (void)block, (void)args, (void)stream;
    return fake_launch(function, shared);
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

static int run(int32_t dtype, int64_t head_dim)
{
    const hcp_provider *provider = hcp_provider_cuda_reference();
    const hcp_device_ref gpu = {sizeof gpu, HCP_DEVICE_CUDA, 0, 9, 0, 132};
    hcp_attn_problem p = {.size = sizeof p,
                          .batch = 1,
                          .q_len = 65,
                          .kv_len = 63,
                          .heads = 28,
                          .kv_heads = 4,
                          .head_dim = head_dim,
                          .dtype = dtype,
                          .out_dtype = HCP_FP32,
                          .scale = 0.0625};
    const hcp_attn_args args = {.size = sizeof args, .q_len = 65, .kv_len = 63};
    hcp_attn_plan *plan = NULL;
    hcp_problem_set_dense_strides(&p);
    assert_int_equal(provider->plan_create(&gpu, &p, &plan), HCP_RC_OK);
    int rc = provider->run(plan, &args, NULL);
    provider->plan_destroy(plan);
    return rc;
}

static int fresh(void **state)
{
    (void)state;
    memset(kernels, 0, sizeof kernels);
    last_error = cudaSuccess;
    launches = 0;
    most_shared = 0;
    meanwhile = NULL;
    return 0;
}

static void test_every_head_dim_gets_its_shared_memory(void **state)
{
    (void)state;
    for (int32_t dtype = HCP_BF16; dtype <= HCP_FP32; dtype++)
        for (int64_t d = 1; d <= 256; d++)
            assert_int_equal(run(dtype, d), HCP_RC_OK);
    assert_int_equal(launches, 3 * 256);
    assert_true(most_shared > DEFAULT_LIMIT); /* the limit mattered */
}

static int32_t other_dtype;
static int64_t other_dim;
static int other_rc;

static void launch_other(void)
{
    other_rc = run(other_dtype, other_dim);
}

static void test_plans_of_other_threads_take_no_shared_memory(void **state)
{
    static const int64_t dims[] = {256, 64, 128, 255, 1};
    enum { N = sizeof dims / sizeof *dims };
    (void)state;
    for (other_dtype = HCP_BF16; other_dtype <= HCP_FP32; other_dtype++)
        for (int32_t dtype = HCP_BF16; dtype <= HCP_FP32; dtype++)
            for (int i = 0; i < N * N; i++) {
                fresh(NULL);
                other_dim = dims[i / N];
                other_rc = -1;
                meanwhile = launch_other;
                assert_int_equal(run(dtype, dims[i % N]), HCP_RC_OK);
                assert_int_equal(other_rc, HCP_RC_OK);
                assert_int_equal(launches, 2);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_head_dim_gets_its_shared_memory, fresh),
        cmocka_unit_test_setup(test_plans_of_other_threads_take_no_shared_memory, fresh),
    };
    return cmocka_run_group_tests_name("cuda launch", tests, NULL, NULL);
}
