/* SPDX-License-Identifier: Apache-2.0
 *
 * What hcp-link measures for link --beside as it runs on GPUs, without one: passes are
 * queued on streams of fake-gpu and held back, and blocks travel over fake-nccl, or by
 * copies (transport copy). Rank 1's kernel is slow by a known time. beside-queued.sh runs
 * this under mpirun with 2 ranks.
 * Usage: beside-queued-test [TRANSPORT]
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/link-beside-rank.h"
#include "tests/fake-gpu.h"

/* Of what link_beside_open() would look for; this test brings its own. */
int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size)
{
    (void)device, (void)plugin_path, (void)out, (void)err, (void)err_size;
    abort();
}

void hcp_cpu_describe(char name[96], char uuid[64], int64_t *llc_bytes,
                      int64_t *memory_bytes, int *cores)
{
    (void)name, (void)uuid, (void)llc_bytes, (void)memory_bytes, (void)cores;
    abort();
}

enum { SLOW_US = 50000, LEN = 16, HEADS = 2, HEAD_DIM = 16 };

static int points, failures;

static void point(int ok, const char *what)
{
    int rank, mine = ok != 0, all = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    points++;
    failures += !all;
    if (!mine)
        fprintf(stderr, "# rank %d: not %s\n", rank, what);
    if (rank == 0)
        printf("%sok %d - %s\n", all ? "" : "not ", points, what);
    fflush(stdout);
}

static void must(int rc, const struct hcp_err *err)
{
    if (rc == HCP_OK)
        return;
    fprintf(stderr, "# %s\n", err->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double least(const struct beside_block *b, enum hcp_beside_time time)
{
    double ms = INFINITY;

    for (int i = 0; i < b->n; i++)
        ms = fmin(ms, b->ms[time][i]);
    return ms;
}

static void open_bench(struct hcp_bench *bench, const hcp_runtime *runtime, int rank)
{
    *bench = (struct hcp_bench){.runtime = runtime,
                                .device = {.size = sizeof bench->device,
                                           .kind = HCP_DEVICE_CUDA,
                                           .ordinal = rank,
                                           .sm_count = 132},
                                .provider = fake_gpu_provider(),
                                .cold_bytes = 1 << 16,
                                .shape = {.size = sizeof bench->shape,
                                          .batch = 1,
                                          .heads = HEADS,
                                          .kv_heads = HEADS,
                                          .head_dim = HEAD_DIM,
                                          .dtype = HCP_FP32,
                                          .out_dtype = HCP_FP32,
                                          .scale = 0.25}};
    if (runtime->stream_create(&bench->stream) != HCP_RC_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A quarter of the samples are below: what lies behind a slow block takes about as long
 * as that in all of them, and what does not far less in some, however busy the machine
 * is. */
static double quarter(const struct beside_block *b, enum hcp_beside_time time)
{
    double ms[HCP_LINK_SAMPLES];

    memcpy(ms, b->ms[time], (size_t)b->n * sizeof *ms);
    qsort(ms, (size_t)b->n, sizeof *ms, by_size);
    return ms[b->n / 4];
}

static void check_rank(const struct beside_side *side, int slow)
{
    const struct beside_block *b = &side->block[0];
    const double fast_ms = 0.5e-3 * SLOW_US;
    double compute = quarter(b, HCP_BESIDE_COMPUTE);
    double transfer = quarter(b, HCP_BESIDE_TRANSFER), wait = quarter(b, HCP_BESIDE_WAIT);

    fprintf(stderr,
            "# %s rank: alone %.3f beside %.3f wait %.3f transfers %.3f %.3f ms\n",
            slow ? "slow" : "fast", quarter(b, HCP_BESIDE_ALONE), compute, wait,
            quarter(b, HCP_BESIDE_TRANSFER_ALONE), transfer);
    point(b->n >= 12 && b->n == side->block[1].n, "as many samples of each block");
    for (int t = 0; t < HCP_BESIDE_TIMES; t++)
        if (t != HCP_BESIDE_WAIT)
            point(least(b, t) > 0, hcp_beside_time_names[t]);
    if (slow) {
        point(least(b, HCP_BESIDE_ALONE) >= 1e-3 * SLOW_US &&
                  least(b, HCP_BESIDE_COMPUTE) >= 1e-3 * SLOW_US,
              "the slow rank's blocks take what they must");
        point(transfer < fast_ms, "its transfer is not behind its block");
    } else {
        point(compute < fast_ms, "the fast rank's blocks are fast");
        point(transfer < fast_ms, "nor is it behind the other's");
    }
    point(least(b, HCP_BESIDE_WAIT) >= 0 && wait < fast_ms,
          "what was waited for beyond both is little");
}

int main(int argc, char **argv)
{
    static struct link_beside b;
    struct hcp_beside_job job = {
        .dtype = "fp32", .heads = HEADS, .kv_heads = HEADS, .head_dim = HEAD_DIM, .n = 2};
    struct link_plan plan = {.comm = MPI_COMM_WORLD, .budget_s = INFINITY};
    const hcp_runtime *runtime = fake_gpu_runtime_with_kernels();
    struct hcp_err err = {0};
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &plan.rank);
    srand((unsigned)plan.rank + 1);
    must(hcp_transport_prepare(1, &err), &err);
    struct hcp_transport_config config = {.name = argc > 1 ? argv[1] : "nccl",
                                          .comm = MPI_COMM_WORLD,
                                          .runtime = runtime,
                                          .ordinal = plan.rank,
                                          .sm_count = 132,
                                          .timeout_s = 200};
    must(hcp_transport_open(&config, &plan.transport, &err), &err);
    plan.runtime = runtime;
    for (int i = 0; i < 2; i++) {
        job.blocks[i] = (struct hcp_beside_block){.q_len = LEN, .kv_len = LEN};
        strcpy(job.blocks[i].mask, i ? "full" : "causal");
        job.blocks[i].bytes = hcp_beside_bytes(&job, LEN);
    }
    b.job = &job;
    b.plan = &plan;
    open_bench(&b.bench, runtime, plan.rank);
    must(link_beside_ready(&b, &err), &err);
    fake_gpu_slow(plan.rank == 1 ? SLOW_US : 0);
    must(link_beside_measure(&b, &err), &err);
    point(job.blocks[0].bytes == 2 * LEN * HEADS * HEAD_DIM * 4, "K and V are moved");
    point(link_holds(&b.hold) && b.hold.ticket > 0,
          "passes were held until both ranks had queued theirs");
    point(b.hold.words && b.hold.words[1] == 0, "and let go then");
    for (int side = 0; side < 2; side++) {
        struct beside_side *s = &b.sides[side]; /* rank 0 has both */
        MPI_Bcast(s, sizeof *s, MPI_BYTE, 0, MPI_COMM_WORLD);
        check_rank(s, side == 1);
    }
    hcp_transport_close(plan.transport);
    link_beside_close(&b);
    MPI_Finalize();
    return failures != 0;
}
