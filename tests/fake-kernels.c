/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels for the streams of fake-gpu: the CPU's, run when their turn comes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "kernels/registry.h"
#include "profiler/spin.h"
#include "tests/fake-gpu.h"

struct kernel {
    enum { RANDN, MERGE, FINISH, ATTENTION, HOLD, STRETCH_FROM, STRETCH_TO } what;
    union {
        struct {
            void *dst;
            int64_t n;
            int32_t dtype;
            uint64_t seed, first;
        } randn;
        struct {
            float *o, *lse;
            const void *o_part;
            int32_t part_dtype;
            const float *lse_part;
            int64_t rows, head_dim;
        } merge;
        hcp_finish finish;
        struct {
            hcp_attn_plan *plan;
            hcp_attn_args args;
        } attention;
        struct {
            const volatile int *go;
            volatile int *late;
            int ticket;
            unsigned long long limit_ns;
        } hold;
        struct {
            unsigned long long *mark;
            double factor;
            unsigned long long limit_ns;
        } stretch;
    } a;
};

static int slow_us;

void fake_gpu_slow(int us)
{
    slow_us = us;
}

/* Ten times as patient as it is told to be: ranks may have to wait for a processor. */
static void hold(const struct kernel *k)
{
    unsigned long long waited_ns = 0;
    for (; *k->a.hold.go < k->a.hold.ticket; waited_ns += 10000) {
        if (waited_ns > k->a.hold.limit_ns) {
            *k->a.hold.late += 1;
            return;
        }
        usleep(100);
    }
}

static unsigned long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

/* A mark serves once: an end without its own beginning is seen. */
static int stretch_to(const struct kernel *k)
{
    unsigned long long *mark = k->a.stretch.mark, now = now_ns();
    if (*mark == 0 || *mark > now)
        return HCP_RC_INVALID;
    double more_us = (k->a.stretch.factor - 1) * 1e-3 * (double)(now - *mark);
    usleep((useconds_t)(more_us < 1e5 ? more_us : 1e5));
    *mark = 0;
    return HCP_RC_OK;
}

static void do_kernel(void *arg)
{
    const hcp_runtime *cpu = hcp_runtime_cpu();
    struct kernel *k = arg;
    int rc = 0;
    if (k->what <= ATTENTION)
        usleep((useconds_t)(rand() % 8 ? rand() % 100 : rand() % 1000));
    if (k->what == ATTENTION)
        usleep((useconds_t)slow_us);
    switch (k->what) {
    case RANDN:
        rc = cpu->randn(k->a.randn.dst, k->a.randn.n, k->a.randn.dtype, k->a.randn.seed,
                        k->a.randn.first, NULL);
        break;
    case MERGE:
        rc = cpu->merge(k->a.merge.o, k->a.merge.lse, k->a.merge.o_part,
                        k->a.merge.part_dtype, k->a.merge.lse_part, k->a.merge.rows,
                        k->a.merge.head_dim, NULL);
        break;
    case FINISH:
        rc = cpu->finish(&k->a.finish, NULL);
        break;
    case ATTENTION:
        rc = hcp_provider_cpu()->run(k->a.attention.plan, &k->a.attention.args, NULL);
        break;
    case HOLD:
        hold(k);
        break;
    case STRETCH_FROM:
        *k->a.stretch.mark = now_ns();
        break;
    case STRETCH_TO:
        rc = stretch_to(k);
        break;
    }
    if (rc) {
        fprintf(stderr, "fake-gpu: kernel %d failed: %d\n", (int)k->what, rc);
        abort();
    }
    free(k);
}

static int launch(const struct kernel *kernel, void *stream)
{
    struct kernel *k = malloc(sizeof *k);
    if (!k)
        return HCP_RC_NO_MEMORY;
    *k = *kernel;
    ((fake_stream *)stream)->call(stream, do_kernel, k);
    return HCP_RC_OK;
}

static int randn(void *dst, int64_t n, int32_t dtype, uint64_t seed, uint64_t first,
                 void *stream)
{
    struct kernel k = {.what = RANDN, .a.randn = {dst, n, dtype, seed, first}};
    return launch(&k, stream);
}

static int merge(float *o, float *lse, const void *o_part, int32_t part_dtype,
                 const float *lse_part, int64_t rows, int64_t head_dim, void *stream)
{
    struct kernel k = {.what = MERGE,
                       .a.merge = {o, lse, o_part, part_dtype, lse_part, rows, head_dim}};
    return launch(&k, stream);
}

static int finish(const hcp_finish *job, void *stream)
{
    struct kernel k = {.what = FINISH, .a.finish = *job};
    return launch(&k, stream);
}

static int stretches;

int fake_gpu_stretches(void)
{
    int n = stretches;
    stretches = 0;
    return n;
}

/* In place of profiler/spin.cu. */
int hcp_stretch_from_launch(unsigned long long *mark, void *stream)
{
    struct kernel k = {.what = STRETCH_FROM, .a.stretch = {.mark = mark}};
    return launch(&k, stream);
}

int hcp_stretch_to_launch(const unsigned long long *mark, double factor,
                          unsigned long long limit_ns, void *stream)
{
    struct kernel k = {.what = STRETCH_TO,
                       .a.stretch = {(unsigned long long *)mark, factor, limit_ns}};
    stretches += factor == FAKE_GPU_STRETCH;
    return launch(&k, stream);
}

int hcp_spin_launch(const int *go, int ticket, unsigned long long limit_ns, int *late,
                    void *stream)
{
    struct kernel k = {.what = HOLD, .a.hold = {go, late, ticket, limit_ns}};
    return launch(&k, stream);
}

static const hcp_device_ref cpu_device = {
    .size = sizeof cpu_device, .kind = HCP_DEVICE_CPU, .sm_count = 1};

static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    int rc = hcp_provider_cpu()->query(&cpu_device, problem, out);
    (void)device;
    if (getenv("FAKE_GPU_PARTIAL")) { /* as cuDNN */
        out->caps &= ~(uint32_t)HCP_CAP_ACCUMULATE;
        out->supported &= !problem->accumulate;
    }
    return rc;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    (void)device;
    return hcp_provider_cpu()->plan_create(&cpu_device, problem, out);
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    struct kernel k = {.what = ATTENTION, .a.attention = {plan, *args}};
    return launch(&k, stream);
}

static void plan_destroy(hcp_attn_plan *plan)
{
    hcp_provider_cpu()->plan_destroy(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    return hcp_provider_cpu()->describe(plan, text, text_size);
}

static const char *version(void)
{
    return "1";
}

const hcp_provider *fake_gpu_provider(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CUDA,
        .name = "fake",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return &provider;
}

const hcp_runtime *fake_gpu_runtime_with_kernels(void)
{
    static hcp_runtime runtime;
    runtime = *fake_gpu_runtime();
    runtime.randn = randn;
    runtime.merge = merge;
    runtime.finish = finish;
    return &runtime;
}
