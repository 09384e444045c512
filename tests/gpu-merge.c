/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime's own kernels on a real GPU, against the CPU's: random numbers,
 * merge of two and of n states, the finishing of a provider's result; and the speed
 * of the merge beside a copy. TAP; skips without a GPU.
 *   --sanitize   small shapes only, no timing: for compute-sanitizer
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "gpu-tap.h"
#include "kernels/cuda.h"
#include "kernels/dtype.h"
#include "kernels/merge.h"
#include "kernels/registry.h"

static const hcp_runtime *rt;
static const hcp_runtime *cpu;

static void must(int rc, const char *what)
{
    if (rc != HCP_RC_OK) {
        printf("Bail out! %s: %s: %s\n", what, hcp_rc_text(rc), rt->last_error());
        exit(1);
    }
}

/* The same bytes on both sides. */
struct twin {
    void *host, *dev;
    int64_t bytes;
};

static struct twin twin(int64_t n, int32_t dtype, uint64_t seed)
{
    struct twin t = {.bytes = n * hcp_dtype_bytes(dtype)};
    must(cpu->alloc(&t.host, t.bytes), "allocate");
    must(rt->alloc(&t.dev, t.bytes), "allocate");
    must(cpu->randn(t.host, n, dtype, seed, 0, NULL), "fill");
    must(rt->to_device(t.dev, t.host, t.bytes, NULL), "copy");
    return t;
}

static void push(struct twin *t)
{
    must(rt->to_device(t->dev, t->host, t->bytes, NULL), "copy");
}

/* What the device holds now; the host's side stays. */
static float *pull(const struct twin *t)
{
    float *p = malloc((size_t)t->bytes + 1);
    must(p ? HCP_RC_OK : HCP_RC_NO_MEMORY, "allocate");
    must(rt->to_host(p, t->dev, t->bytes, NULL), "copy");
    return p;
}

static void drop(struct twin *t)
{
    cpu->release(t->host);
    rt->release(t->dev);
}

static double ulp(double x)
{
    return ldexp(1, ilogb(x < 0x1p-126 ? 0x1p-126 : x) - 23);
}

/* Largest error in units of the bound: 4 ulp of peak[i] for O. */
static double o_error(const float *x, const float *ref, const float *peak, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)x[i] - ref[i]) / (4 * ulp(fabs((double)peak[i])));
        worst = e <= worst ? worst : e;
    }
    return worst;
}

/* In units of 2e-6 + 2^-22 |L|; infinities must be equal. */
static double l_error(const float *x, const float *ref, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = x[i] == ref[i] ? 0
                                  : fabs((double)x[i] - ref[i]) /
                                        (2e-6 + 0x1p-22 * fabs((double)ref[i]));
        worst = e <= worst ? worst : e;
    }
    return worst;
}

/* Rows that meet the special cases: either side empty (its O is NaN), both, one
 * weight 0, L hugely negative. */
static void special_rows(float *la, float *lb, float *oa, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++) {
        la[r] = la[r] * 3 + 5;
        lb[r] = lb[r] * 3 + 5;
        switch (r % 8) {
        case 1:
            lb[r] = -INFINITY;
            break;
        case 2:
            la[r] = -INFINITY;
            for (int64_t i = 0; i < d; i++)
                oa[r * d + i] = NAN;
            break;
        case 3:
            la[r] = lb[r] = -INFINITY;
            break;
        case 4:
            la[r] = lb[r] - 500;
            break;
        case 5:
            la[r] -= 1e4f, lb[r] -= 1e4f;
            break;
        default:
            break;
        }
    }
}

static void test_merge(int64_t rows, int64_t d, int32_t dtype)
{
    struct twin o = twin(rows * d, HCP_FP32, 11), part = twin(rows * d, dtype, 12);
    struct twin l = twin(rows, HCP_FP32, 13), lp = twin(rows, HCP_FP32, 14);
    float *peak = malloc((size_t)(rows * d + 1) * sizeof *peak);
    special_rows(l.host, lp.host, o.host, rows, d);
    push(&o), push(&l), push(&lp);
    hcp_to_float(peak, part.host, rows * d, dtype);
    for (int64_t i = 0; i < rows * d; i++)
        peak[i] = fmaxf(fabsf(peak[i]), fabsf(((float *)o.host)[i]));

    must(rt->merge(o.dev, l.dev, part.dev, dtype, lp.dev, rows, d, NULL), "merge");
    float *ox = pull(&o), *lx = pull(&l);
    push(&o), push(&l);
    must(rt->merge(o.dev, l.dev, part.dev, dtype, lp.dev, rows, d, NULL), "merge");
    float *oy = pull(&o), *ly = pull(&l);
    must(cpu->merge(o.host, l.host, part.host, dtype, lp.host, rows, d, NULL), "merge");
    double eo = o_error(ox, o.host, peak, rows * d), el = l_error(lx, l.host, rows);
    ok(eo <= 1 && el <= 1, "merge %s %lld x %lld: O %.2f, L %.2f of the bound",
       hcp_dtype_name(dtype), (long long)rows, (long long)d, eo, el);
    ok(!memcmp(ox, oy, (size_t)o.bytes) && !memcmp(lx, ly, (size_t)l.bytes),
       "merge %s %lld x %lld: the same bits twice", hcp_dtype_name(dtype),
       (long long)rows, (long long)d);
    free(ox), free(lx), free(oy), free(ly), free(peak);
    drop(&o), drop(&part), drop(&l), drop(&lp);
}

static void test_merge_many(int64_t n, int64_t rows, int64_t d)
{
    enum { MOST = 150 };
    struct twin part[MOST], lp[MOST], o = twin(rows * d, HCP_FP32, 1),
                                      l = twin(rows, HCP_FP32, 2);
    const float *hp[MOST], *hl[MOST], *dp[MOST], *dl[MOST];
    float *peak = calloc((size_t)(rows * d + 1), sizeof *peak);
    for (int64_t p = 0; p < n; p++) {
        part[p] = twin(rows * d, HCP_FP32, 100 + (uint64_t)p);
        lp[p] = twin(rows, HCP_FP32, 300 + (uint64_t)p);
        for (int64_t r = 0; r < rows; r++)
            if (r % 5 == 0 || (r + p) % 3 == 0) {
                ((float *)lp[p].host)[r] = -INFINITY;
                ((float *)part[p].host)[r * d] = NAN;
            }
        push(&part[p]), push(&lp[p]);
        hp[p] = part[p].host, hl[p] = lp[p].host, dp[p] = part[p].dev, dl[p] = lp[p].dev;
        for (int64_t i = 0; i < rows * d; i++)
            peak[i] = fmaxf(peak[i], fabsf(hp[p][i]));
    }
    must(hcp_cuda_merge_many(o.dev, l.dev, dp, dl, n, rows, d, NULL), "merge");
    hcp_merge_many(o.host, l.host, hp, hl, n, rows, d);
    float *ox = pull(&o), *lx = pull(&l);
    double eo = o_error(ox, o.host, peak, rows * d), el = l_error(lx, l.host, rows);
    /* n roundings of n weights: the two-state bound grows with log n at most */
    double room = 1 + log2((double)n + 1);
    ok(eo <= room && el <= room,
       "merge of %lld states, %lld x %lld: O %.2f, L %.2f of %.1f", (long long)n,
       (long long)rows, (long long)d, eo, el, room);
    free(ox), free(lx), free(peak);
    for (int64_t p = 0; p < n; p++)
        drop(&part[p]), drop(&lp[p]);
    drop(&o), drop(&l);
}

/* A provider's raw result, strided and pitched, in base 2 with +inf for empty rows. */
static void test_finish(int32_t dtype, int accumulate, int64_t d, int64_t gap)
{
    enum { B = 2, H = 3, ROWS = 37, PITCH = 41, PART_PITCH = 39 };
    const int64_t row = d + gap, n = B * H * PITCH * row;
    struct twin o = twin(n, HCP_FP32, 21), part = twin(n, dtype, 22);
    struct twin l = twin(B * H * PITCH, HCP_FP32, 23),
                lp = twin(B * H * PART_PITCH, HCP_FP32, 24);
    float *peak = malloc((size_t)n * sizeof *peak);
    for (int i = 0; i < B * H * PART_PITCH; i += 4)
        ((float *)lp.host)[i] = INFINITY;
    push(&lp);
    for (int64_t i = 0; i < n; i++)
        peak[i] = fabsf(((float *)o.host)[i]);
    hcp_finish job = {
        .batch = B,
        .heads = H,
        .rows = ROWS,
        .head_dim = d,
        .o = o.dev,
        .o_stride = {H * PITCH * row, row, H * row}, /* tokens outside heads */
        .lse = l.dev,
        .lse_pitch = PITCH,
        .part = part.dev,
        .part_dtype = dtype,
        .part_stride = {H * PITCH * row, PITCH * row, row},
        .lse_part = lp.dev,
        .part_pitch = PART_PITCH,
        .caps = HCP_CAP_LSE_LOG2 | HCP_CAP_EMPTY_POS_INF,
        .accumulate = accumulate};
    for (int64_t i = 0; i < B * H * ROWS * d; i++) {
        const int64_t e = i % d, r = i / d % ROWS, plane = i / d / ROWS;
        const int64_t b = plane / H, h = plane % H;
        float x, *at = peak + b * job.o_stride[0] + h * job.o_stride[1] +
                       r * job.o_stride[2] + e;
        const int64_t from =
            b * job.part_stride[0] + h * job.part_stride[1] + r * job.part_stride[2] + e;
        hcp_to_float(&x, (char *)part.host + from * hcp_dtype_bytes(dtype), 1, dtype);
        *at = fmaxf(*at, fabsf(x));
    }
    hcp_finish host = job;
    host.o = o.host, host.lse = l.host, host.part = part.host, host.lse_part = lp.host;
    must(rt->finish(&job, NULL), "finish");
    must(cpu->finish(&host, NULL), "finish");
    float *ox = pull(&o), *lx = pull(&l);
    double eo = o_error(ox, o.host, peak, n), el = l_error(lx, l.host, B * H * PITCH);
    ok(eo <= 1 && el <= 1,
       "finish %s %s, head dim %lld, gap %lld: O %.2f, L %.2f of the bound",
       hcp_dtype_name(dtype), accumulate ? "merged" : "stored", (long long)d,
       (long long)gap, eo, el);
    free(ox), free(lx);

    /* Rows that saw no key, and L alone. */
    job.part = NULL, host.part = NULL, job.lse_part = NULL, host.lse_part = NULL;
    must(rt->finish(&job, NULL), "finish");
    must(cpu->finish(&host, NULL), "finish");
    ox = pull(&o), lx = pull(&l);
    eo = o_error(ox, o.host, peak, n), el = l_error(lx, l.host, B * H * PITCH);
    ok(eo <= 1 && el <= 1, "finish %s, empty rows: O %.2f, L %.2f of the bound",
       accumulate ? "merged" : "stored", eo, el);
    free(ox), free(lx);
    if (!accumulate) {
        job.o = host.o = NULL;
        job.lse_part = lp.dev, host.lse_part = lp.host;
        must(rt->finish(&job, NULL), "finish");
        must(cpu->finish(&host, NULL), "finish");
        lx = pull(&l);
        el = l_error(lx, l.host, B * H * PITCH);
        ok(el <= 1, "finish, L alone: %.2f of the bound", el);
        free(lx);
        job.lse_part = host.lse_part = NULL;
        must(rt->finish(&job, NULL), "finish");
        must(cpu->finish(&host, NULL), "finish");
        lx = pull(&l);
        ok(!memcmp(lx, l.host, (size_t)l.bytes), "finish, L alone of empty rows");
        free(lx);
    }
    free(peak);
    drop(&o), drop(&part), drop(&l), drop(&lp);
}

static void test_randn(int64_t n)
{
    struct twin x = twin(n, HCP_FP32, 77);
    const float *want = x.host;
    double worst = 0, sum = 0, squares = 0;
    must(rt->fill(x.dev, 0xff, x.bytes, NULL), "poison");
    must(rt->randn(x.dev, n, HCP_FP32, 77, 0, NULL), "randn");
    float *got = pull(&x);
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]);
        worst = e <= worst ? worst : e;
        sum += got[i];
        squares += (double)got[i] * got[i];
    }
    ok(worst <= 4e-6, "randn: within %.1e of the CPU's", worst);
    ok(fabs(sum / (double)n) < 5 / sqrt((double)n) &&
           fabs(squares / (double)n - 1) < 8 / sqrt((double)n),
       "randn: mean %.4f, variance %.4f", sum / (double)n, squares / (double)n);
    free(got);
    must(rt->randn(x.dev, n - 777, HCP_FP32, 77, 777, NULL), "randn");
    float *part = pull(&x);
    worst = 0;
    for (int64_t i = 0; i < n - 777; i++) {
        double e = fabs((double)part[i] - want[i + 777]);
        worst = e <= worst ? worst : e;
    }
    ok(worst <= 4e-6, "randn from element 777 on: within %.1e of the CPU's", worst);
    free(part);
    drop(&x);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bytes read and written per second, of a copy and of the merge, medians. */
static void test_bandwidth(int32_t dtype)
{
    enum { RUNS = 15 };
    const int64_t rows = 32 * 16384, d = 128;
    const int64_t o_bytes = rows * d * 4, part_bytes = rows * d * hcp_dtype_bytes(dtype);
    const double moved = (double)(2 * o_bytes + part_bytes + rows * 12);
    void *o, *part, *l, *lp;
    double copy[RUNS], merge[RUNS];
    cudaEvent_t t0, t1, t2;
    must(rt->alloc(&o, o_bytes), "allocate");
    must(rt->alloc(&part, o_bytes), "allocate");
    must(rt->alloc(&l, rows * 4), "allocate");
    must(rt->alloc(&lp, rows * 4), "allocate");
    must(rt->randn(o, rows * d, HCP_FP32, 1, 0, NULL), "fill");
    must(rt->randn(part, rows * d, dtype, 2, 0, NULL), "fill");
    must(rt->randn(l, rows, HCP_FP32, 3, 0, NULL), "fill");
    must(rt->randn(lp, rows, HCP_FP32, 4, 0, NULL), "fill");
    cudaEventCreate(&t0), cudaEventCreate(&t1), cudaEventCreate(&t2);
    for (int i = -3; i < RUNS; i++) {
        float a = 0, b = 0;
        cudaEventRecord(t0, NULL);
        must(rt->merge(o, l, part, dtype, lp, rows, d, NULL), "merge");
        cudaEventRecord(t1, NULL);
        /* into the part, which is as large as O here */
        cudaMemcpyAsync(part, o, (size_t)o_bytes, cudaMemcpyDeviceToDevice, NULL);
        cudaEventRecord(t2, NULL);
        must(rt->randn(part, rows * d, dtype, 2, 0, NULL), "fill");
        must(rt->sync(NULL), "time");
        cudaEventElapsedTime(&a, t0, t1), cudaEventElapsedTime(&b, t1, t2);
        if (i >= 0)
            merge[i] = moved / a * 1e-6, copy[i] = 2.0 * (double)o_bytes / b * 1e-6;
    }
    qsort(copy, RUNS, sizeof *copy, by_value);
    qsort(merge, RUNS, sizeof *merge, by_value);
    double m = merge[RUNS / 2], c = copy[RUNS / 2];
    ok(m >= 0.85 * c, "merge of a %s part: %.0f GB/s, %.0f %% of the copy's %.0f GB/s",
       hcp_dtype_name(dtype), m, 100 * m / c, c);
    cudaEventDestroy(t0), cudaEventDestroy(t1), cudaEventDestroy(t2);
    rt->release(o), rt->release(part), rt->release(l), rt->release(lp);
}

int main(int argc, char **argv)
{
    static const int64_t dims[] = {64, 128, 256, 40, 7, 1};
    char err[512];
    int count, sanitize = argc == 2 && !strcmp(argv[1], "--sanitize");
    if (argc > 1 && !sanitize)
        return fprintf(stderr, "usage: gpu-merge [--sanitize]\n"), 2;
    if (hcp_cuda_device_count(&count, err, sizeof err) == HCP_RC_MISSING) {
        printf("1..0 # SKIP no CUDA device: %s\n", err);
        return 0;
    }
    hcp_device_ref gpu;
    hcp_cuda_info info;
    rt = hcp_runtime_cuda();
    must(hcp_cuda_device(0, &gpu, &info, err, sizeof err), "open the GPU");
    note("%s, %d SMs, driver %d", info.name, gpu.sm_count, info.driver_version);
    cpu = hcp_runtime_cpu();
    must(rt->select(0), "select the GPU");
    test_randn(sanitize ? 5001 : 1000001);
    for (int32_t dtype = HCP_BF16; dtype <= HCP_FP32; dtype++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
            test_merge(sanitize ? 77 : 4099, dims[i], dtype);
    test_merge(1, 5000, HCP_BF16); /* rows longer than a block's reach */
    test_merge(3, 2056, HCP_FP32);
    for (int64_t n = 0; n < 4; n++)
        test_merge_many(n, 203, n == 3 ? 7 : 128);
    test_merge_many(64, 33, 128);
    test_merge_many(150, 33, 64);
    for (int32_t dtype = HCP_BF16; dtype <= HCP_FP32; dtype++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            test_finish(dtype, accumulate, 64, 0);
            test_finish(dtype, accumulate, 64, 1);
            test_finish(dtype, accumulate, 24, 8);
        }
    if (!sanitize) {
        test_bandwidth(HCP_BF16);
        test_bandwidth(HCP_FP32);
    }
    return tap_done();
}
