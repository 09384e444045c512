/* SPDX-License-Identifier: Apache-2.0
 *
 * What hcp-link measures between GPUs, without one: transfers are queued on streams of
 * fake-gpu and held back, and blocks travel over fake-nccl, or by copies (transport
 * copy). Both ways at once each rank has the other's block in the end; one way only the
 * one that receives. link-queued.sh runs this under mpirun with 2 ranks. Usage:
 * link-queued-test [TRANSPORT]
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/link-rank.h"
#include "tests/fake-gpu.h"

enum { MOST = 8, LARGEST = 1 << 16 };

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

/* Memory that the meter has asked for, in that order: the block that is sent, the one
 * that is received; and the words of its holds. */
static const hcp_runtime *real;
static unsigned char *blocks[MOST];
static int n_blocks;
static int *words;

static int remember(void **out, int64_t bytes)
{
    int rc = real->alloc(out, bytes);

    if (rc == HCP_RC_OK && bytes == LARGEST && n_blocks < MOST)
        blocks[n_blocks++] = *out;
    return rc;
}

static int remember_host(void **out, int64_t bytes)
{
    int rc = real->host_alloc(out, bytes);

    if (rc == HCP_RC_OK && bytes == 2 * (int64_t)sizeof *words)
        words = *out;
    return rc;
}

static void fill_sizes(struct link_size sizes[HCP_LINK_SIZES])
{
    memset(sizes, 0, HCP_LINK_SIZES * sizeof *sizes);
    sizes[0].bytes = 64;
    sizes[1].bytes = 4096;
    sizes[2].bytes = LARGEST;
}

static int all_are(const unsigned char *block, unsigned char value)
{
    for (int i = 0; i < LARGEST; i++)
        if (block[i] != value)
            return 0;
    return 1;
}

static double most_between(const struct link_size *sizes)
{
    double ours[3], theirs[3], most = 0;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; i++)
        ours[i] = sizes[i].ms[sizes[i].n - 1];
    MPI_Sendrecv(ours, 3, MPI_DOUBLE, !rank, 1, theirs, 3, MPI_DOUBLE, !rank, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++)
        most = fmax(most, fabs(ours[i] - theirs[i]));
    return most;
}

static void measure(struct link_plan *plan, enum link_ways ways, struct link_meter *meter,
                    const char *name)
{
    static struct link_size sizes[HCP_LINK_SIZES];
    struct hcp_err err = {0};
    int held = words[0], sampled = 1;
    int receives = ways == LINK_BOTH || plan->rank == (ways == LINK_FROM_0);
    char what[160];

    plan->ways = ways;
    plan->sizes = sizes;
    plan->n = 3;
    fill_sizes(sizes);
    memset(blocks[1], 0, LARGEST);
    must(link_measure(plan, meter, &err), &err);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < sizes[i].n; k++)
            sampled &= sizes[i].ms[k] > 0 && isfinite(sizes[i].ms[k]);
    for (int i = 0; i < 3; i++)
        sampled &= sizes[i].n >= 12;
    snprintf(what, sizeof what, "%s: three visits of each size, all with times", name);
    point(sampled, what);
    snprintf(what, sizeof what, "%s: both ranks have the same times", name);
    point(most_between(sizes) == 0, what);
    snprintf(what, sizeof what,
             "%s: transfers were held until both had queued, and let go", name);
    point(words[0] >= held + sizes[0].n + sizes[1].n + sizes[2].n && words[1] == 0, what);
    snprintf(what, sizeof what, "%s: %s", name,
             ways == LINK_BOTH ? "each has what the other sends"
                               : "the receiver alone has what is sent");
    point(all_are(blocks[1], receives ? (unsigned char)(0x3e + !plan->rank) : 0), what);
    point(all_are(blocks[0], (unsigned char)(0x3e + plan->rank)),
          "nothing was sent over");
}

int main(int argc, char **argv)
{
    struct link_plan plan = {
        .comm = MPI_COMM_WORLD, .budget_s = INFINITY, .target = NAN, .parts = 1};
    struct hcp_transport_config config = {.name = argc > 1 ? argv[1] : "nccl",
                                          .comm = MPI_COMM_WORLD,
                                          .sm_count = 132,
                                          .timeout_s = 200};
    struct link_meter *meter = NULL;
    struct hcp_err err = {0};
    hcp_runtime runtime;
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &plan.rank);
    real = fake_gpu_runtime_with_kernels();
    runtime = *real;
    runtime.alloc = remember;
    runtime.host_alloc = remember_host;
    plan.runtime = config.runtime = &runtime;
    config.ordinal = plan.rank;
    must(hcp_transport_prepare(1, &err), &err);
    for (int one_way = 0; one_way < 2; one_way++) {
        config.mesh = plan.mesh = one_way && strcmp(config.name, "copy") != 0;
        n_blocks = 0;
        must(hcp_transport_open(&config, &plan.transport, &err), &err);
        must(link_meter_open(&plan, LARGEST, &meter, &err), &err);
        point(n_blocks == 2 && words, "two blocks, and words that hold transfers");
        if (!one_way) {
            measure(&plan, LINK_BOTH, meter, "both");
        } else {
            measure(&plan, LINK_FROM_0, meter, "from rank 0");
            measure(&plan, LINK_FROM_1, meter, "from rank 1");
        }
        hcp_transport_close(plan.transport);
        link_meter_close(meter);
    }
    MPI_Finalize();
    return failures != 0;
}
