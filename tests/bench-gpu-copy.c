/* SPDX-License-Identifier: Apache-2.0
 *
 * What the memory of this card can do beside the kernels: a copy within the device.
 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include "kernels/cuda.h"

enum { MAX_SAMPLES = 64 };

struct bench_copy {
    int64_t half; /* read, and written */
    void *from, *to;
    cudaEvent_t events[MAX_SAMPLES + 1];
};

static int fail(cudaError_t e, const char *doing, struct hcp_err *err)
{
    char text[600];

    return hcp_fail(err, HCP_FAILED, "copy: cannot %s: %s", doing,
                    hcp_cuda_explain(e, text, sizeof text));
}

int bench_copy_new(int64_t bytes, struct bench_copy **out, struct hcp_err *err)
{
    const hcp_runtime *rt = hcp_runtime_cuda();
    struct bench_copy *c = calloc(1, sizeof *c);
    cudaError_t e = cudaSuccess;

    if (!c)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    c->half = bytes / 4 * 2;
    if (rt->alloc(&c->from, c->half) != HCP_RC_OK ||
        rt->alloc(&c->to, c->half) != HCP_RC_OK ||
        rt->randn(c->from, c->half / 2, HCP_BF16, 1, 0, NULL) != HCP_RC_OK) {
        hcp_fail(err, HCP_FAILED, "copy: %s", rt->last_error());
        bench_copy_free(c);
        return HCP_FAILED;
    }
    for (int i = 0; i <= MAX_SAMPLES && e == cudaSuccess; i++)
        e = cudaEventCreate(&c->events[i]);
    if (e != cudaSuccess) {
        bench_copy_free(c);
        return fail(e, "create events", err);
    }
    *out = c;
    return HCP_OK;
}

void bench_copy_free(struct bench_copy *c)
{
    const hcp_runtime *rt = hcp_runtime_cuda();

    if (!c)
        return;
    for (int i = 0; i <= MAX_SAMPLES; i++)
        if (c->events[i])
            cudaEventDestroy(c->events[i]);
    rt->release(c->from);
    rt->release(c->to);
    free(c);
}

int bench_copy_take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct bench_copy *c = ctx;

    for (int done = 0; done < n;) {
        int now = n - done < MAX_SAMPLES ? n - done : MAX_SAMPLES;
        cudaError_t e = cudaEventRecord(c->events[0], NULL);

        for (int i = 0; i < now && e == cudaSuccess; i++) {
            e = cudaMemcpyAsync(c->to, c->from, (size_t)c->half, cudaMemcpyDeviceToDevice,
                                NULL);
            if (e == cudaSuccess)
                e = cudaEventRecord(c->events[i + 1], NULL);
        }
        if (e == cudaSuccess)
            e = cudaStreamSynchronize(NULL);
        for (int i = 0; i < now && e == cudaSuccess; i++) {
            float elapsed = 0;

            e = cudaEventElapsedTime(&elapsed, c->events[i], c->events[i + 1]);
            ms[done + i] = elapsed;
        }
        if (e != cudaSuccess)
            return fail(e, "copy", err);
        done += now;
    }
    return HCP_OK;
}
