/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-ring: the reference executor. In this order, on every rank: the plan (from a file
 * or from libhcpplan), MPI, agreement, the device and its limit, then passes of the ring.
 */
#include "config.h"
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "executor/program.h"
#include "profiler/mpirun.h"
#include "profiler/worker.h"

/* Whether another rank has the same command line and says what is wrong with it: the
 * first of all, or (mpirun -np 1 A : -np 2 B) of those that were started together. */
static int said_by_another(void)
{
    const char *counts = getenv("OMPI_APP_CTX_NUM_PROCS"); /* "1 2" */
    long first = 0;
    int rank = 0, size;

    if (!ring_launched() || !hcp_mpi_launched(&rank, &size))
        return 0;
    while (counts && first < rank) {
        char *end;
        long n = strtol(counts, &end, 10);

        if (n <= 0 || end == counts)
            break;
        first += n;
        counts = end;
    }
    return rank > 0 && !(counts && first == rank && *counts);
}

static int quiet;

/* A launcher ends all ranks when the first fails: that must not be a quiet one. */
static void wait_for_the_one_that_speaks(int status, void *arg)
{
    (void)arg;
    if (quiet && status)
        sleep(20);
}

/* A wrong command line is said once, not by every rank. */
static void parse_quietly(int argc, char **argv, struct ring_options *o)
{
    int kept = -1, out = -1;

    quiet = said_by_another();
    if (quiet) {
        kept = dup(STDERR_FILENO);
        out = dup(STDOUT_FILENO);
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout) ||
            on_exit(wait_for_the_one_that_speaks, NULL))
            quiet = 0;
    }
    ring_options_parse(argc, argv, o);
    quiet = 0;
    if (kept >= 0) {
        fflush(stderr);
        dup2(kept, STDERR_FILENO);
        close(kept);
    }
    if (out >= 0) {
        fflush(stdout);
        dup2(out, STDOUT_FILENO);
        close(out);
    }
}

void ring_identify(const struct ring_program *p, const hcp_plan *plan,
                   struct ring_identity *id)
{
    const hcp_documents_plan *documents = ring_documents_of(&p->plans, plan);
    const hcp_chunks_plan *chunks = p->plans.chunks;
    const hcp_shape *s = &plan->shape;
    const char *slash = p->o.plugin ? strrchr(p->o.plugin, '/') : NULL;
    char channels[20] = "";

    *id = (struct ring_identity){.plan_version = hcp_plan_version(),
                                 .fingerprint = documents
                                                    ? hcp_documents_fingerprint(documents)
                                                : chunks ? hcp_chunks_fingerprint(chunks)
                                                         : hcp_plan_fingerprint(plan),
                                 .seq_len = plan->seq_len,
                                 .n_ranks = (int64_t)plan->n_ranks};
    snprintf(id->tool_version, sizeof id->tool_version, "%s", PACKAGE_VERSION);
    snprintf(id->shape, sizeof id->shape, "%s %d/%d heads x %d, batch %d, %s, %s%s%s",
             s->dtype, (int)s->heads, (int)s->kv_heads, (int)s->head_dim, (int)s->batch,
             plan->causal ? "causal" : "full", hcp_layout_name(plan->layout),
             ring_plan_is_decode(plan) ? ", decode, merge " : "",
             ring_plan_is_decode(plan) ? hcp_merge_name(plan->merge) : "");
    if (p->o.channels)
        snprintf(channels, sizeof channels, ", channels %d", (int)p->o.channels);
    snprintf(id->options, sizeof id->options,
             "buffers %d, sub-blocks %d%s, transport %s%s, seed %llu%s%s, passes %d",
             (int)plan->buffers, (int)plan->sub_blocks, plan->barrier ? ", barrier" : "",
             p->o.transport, channels, (unsigned long long)p->o.seed,
             p->o.search ? ", search" : p->o.transition ? ", transition" : "",
             p->o.verify_rows >= 0 ? ", verify" : "", p->o.repeat);
    if (p->o.rebalance) {
        size_t at = strlen(id->options);

        snprintf(id->options + at, sizeof id->options - at, ", rebalance (%g ms)",
                 p->o.move_ms);
    }
    if (p->o.layer.hidden) {
        size_t at = strlen(id->options);

        snprintf(id->options + at, sizeof id->options - at, ", layer %lld/%lld%s",
                 (long long)p->o.layer.hidden, (long long)p->o.layer.ffn,
                 p->o.layer.gated ? "" : " plain");
    }
    /* Of a plug-in the name: it may lie elsewhere on other hosts. */
    snprintf(id->provider, sizeof id->provider, "%s",
             slash           ? slash + 1
             : p->o.plugin   ? p->o.plugin
             : p->o.provider ? p->o.provider
                             : plan->provider);
}

static int agree(const struct ring_program *p, struct hcp_err *err)
{
    int64_t n = (int64_t)p->plans.n, most = n, least = n;
    int rc = HCP_OK;

    MPI_Allreduce(&n, &most, 1, MPI_INT64_T, MPI_MAX, p->comm.world);
    MPI_Allreduce(&n, &least, 1, MPI_INT64_T, MPI_MIN, p->comm.world);
    if (most != least)
        return hcp_fail(err, HCP_FAILED,
                        "the ranks do not agree: some have %lld plans, some %lld; give "
                        "all ranks the same plan files",
                        (long long)least, (long long)most);
    for (size_t i = 0; rc == HCP_OK && i < p->plans.n; i++) {
        struct ring_identity id;

        ring_identify(p, &p->plans.plans[i], &id);
        rc = ring_agree(&p->comm, &id, err);
    }
    return rc;
}

static int check_size(const struct ring_program *p, struct hcp_err *err)
{
    size_t n = p->plans.plans[0].n_ranks;

    if (n == (size_t)p->comm.size)
        return HCP_OK;
    return hcp_fail(err, HCP_USAGE,
                    "the plan has %zu ranks and %d %s started; use 'mpirun -np %zu "
                    "hcp-ring ...' or --local %zu",
                    n, p->comm.size, p->comm.size == 1 ? "was" : "were", n, n);
}

/* A plan in an order of its own is for ranks that were started in the order of --ranks:
 * each takes the place in the ring that the plan has for it. */
static int take_places(struct ring_program *p, struct hcp_err *err)
{
    const hcp_plan *plan = &p->plans.plans[0];
    int place = p->comm.rank;

    if (!plan->order && !plan->has_links)
        return HCP_OK;
    for (int i = 0; i < p->comm.size; i++)
        if (plan->places[i].rank == p->comm.rank)
            place = i;
    return ring_comm_reorder(&p->comm, place, err);
}

/* NCCL when every rank has a GPU of its own and a build with it: the same on all. */
static const char *choose_transport(const struct ring_program *p)
{
    if (strcmp(p->o.transport, "auto") != 0)
        return p->o.transport;
    for (int i = 0; i < p->comm.size; i++) {
        if (!p->peers[i].is_cuda || !p->peers[i].has_nccl)
            return "mpi";
        for (int k = 0; k < i; k++)
            if (strcmp(p->peers[i].uuid, p->peers[k].uuid) == 0)
                return "mpi";
    }
    return "nccl";
}

static int meet_peers(struct ring_program *p, struct hcp_err *err)
{
    int rc;

    p->peers = calloc((size_t)p->comm.size, sizeof *p->peers);
    rc = p->peers ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK &&
        MPI_Allgather(&p->place.self, sizeof p->place.self, MPI_BYTE, p->peers,
                      sizeof *p->peers, MPI_BYTE, p->comm.world) != MPI_SUCCESS)
        rc = hcp_fail(err, HCP_FAILED, "MPI cannot gather the ranks' devices");
    return rc;
}

static void cancel_links(void *links)
{
    ring_links_cancel(links);
}

static int open_links(struct ring_program *p, struct hcp_err *err)
{
    int rc;

    snprintf(p->transport, sizeof p->transport, "%s", choose_transport(p));
    /* The watch is to end a wait first: it names the rank and what it was waited for. */
    rc = p->o.channels && strcmp(p->transport, "nccl") != 0
             ? hcp_fail(err, HCP_USAGE,
                        "--channels are NCCL's, and these ranks use MPI: not each has a "
                        "GPU of its own and a build with NCCL; leave --channels out")
             : ring_links_new(p->transport, p->o.channels, &p->comm, p->place.runtime,
                              &p->place.device, 1.5 * p->o.timeout_s + 2, &p->links, err);
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK)
        ring_watch_on_stop(p->watch, cancel_links, p->links);
    return rc;
}

static int run_plans(struct ring_program *p, struct hcp_err *err)
{
    struct ring_result *results = calloc(p->plans.n, sizeof *results);
    int rc = results ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    size_t done = 0;

    rc = ring_all_ok(&p->comm, rc, err);
    while (rc == HCP_OK && done < p->plans.n) {
        rc = ring_measure(p, &p->plans.plans[done], p->o.repeat, p->o.verify_rows >= 0,
                          &results[done], err);
        done += rc == HCP_OK;
    }
    if (rc == HCP_OK && p->comm.rank == 0) {
        if (ring_print(p, results, done, NULL))
            rc = hcp_fail(err, HCP_FAILED, "cannot print the results");
        fflush(stdout); /* a launcher may end this rank when the first one ends */
        hcp_cli_written(stdout);
        if (rc == HCP_OK)
            rc = ring_store(p, results, done, err);
        for (size_t i = 0; rc == HCP_OK && i < done; i++)
            if (!ring_result_passed(&results[i]))
                rc = hcp_fail(err, HCP_FAILED, "verification failed: see above");
    }
    for (size_t i = 0; i < done; i++)
        ring_result_free(&results[i]);
    free(results);
    return p->alone || done < p->plans.n ? rc : ring_all_ok(&p->comm, rc, err);
}

/* Whether a rank has a limit that needs a helper process. */
static int limited(const struct ring_plans *plans)
{
    for (size_t r = 0; plans->n && r < plans->plans[0].n_ranks; r++)
        if (plans->plans[0].ranks[r].limit[0])
            return 1;
    return 0;
}

static int with_device(struct ring_program *p, const struct ring_gpus *gpus,
                       struct hcp_err *err)
{
    const hcp_plan_rank *rank = &p->plans.plans[0].ranks[p->comm.rank];
    int rc = ring_place_open(&p->comm, p->warden, gpus, rank, &p->o, &p->place, err);

    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK)
        rc = meet_peers(p, err);
    if (rc == HCP_OK)
        rc = open_links(p, err);
    if (rc == HCP_OK)
        rc = p->plans.chunks   ? ring_chunks(p, err)
             : p->o.search     ? ring_search(p, err)
             : p->o.rebalance  ? ring_rebalance(p, err)
             : p->o.transition ? ring_transition(p, err)
                               : run_plans(p, err);
    return rc;
}

static int under_mpi(struct ring_program *p, int loaded, const struct ring_gpus *gpus,
                     struct hcp_err *err)
{
    int rc = ring_all_ok(&p->comm, loaded, err);

    if (rc == HCP_OK)
        rc = agree(p, err);
    if (rc == HCP_OK)
        rc = check_size(p, err);
    if (rc == HCP_OK)
        rc = take_places(p, err);
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm,
                         ring_watch_start(&p->comm, p->o.timeout_s, &p->watch, err),
                         err);
    if (rc == HCP_OK)
        rc = with_device(p, gpus, err);
    return rc;
}

/* Everybody is done, well or with the same error. */
static int finish(struct ring_program *p, struct ring_gpus *gpus, int rc,
                  const struct hcp_err *err)
{
    if (rc && p->comm.rank == 0)
        hcp_cli_report(err);
    ring_watch_on_stop(p->watch, NULL, NULL);
    ring_links_close(p->links);
    ring_place_close(&p->place);
    if (p->place.runtime)
        p->place.runtime->reset();
    ring_watch_stop(p->watch);
    ring_comm_close(&p->comm); /* all ranks of the host have let go of their device */
    ring_warden_stop(p->warden);
    ring_plans_free(&p->plans);
    free(p->peers);
    free(p->o.plan_files);
    free(gpus->infos);
    return hcp_cli_finish(rc);
}

int main(int argc, char **argv)
{
    struct ring_program p = {0};
    struct ring_gpus gpus = {0};
    struct hcp_err err = {0};
    int rc;

    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, not a death */
    if (argc == 2 && !strcmp(argv[1], HCP_WORKER_COMMAND)) { /* started by ourselves */
        hcp_cli_set_name("hcp-ring");
        return hcp_worker_main();
    }
    setlocale(LC_CTYPE, "");
    hcp_cli_set_name("hcp-ring");
    parse_quietly(argc, argv, &p.o);
    if (p.o.local && !ring_launched()) {
        ring_launch_local(p.o.local, argc, argv, &err);
        return hcp_cli_report(&err);
    }
    ring_watch_block_signals();
    /* Before MPI: processes can be forked, and a failure here is exchanged there. */
    rc = ring_plans_load(&p.o, &p.plans, &err);
    if (rc == HCP_OK && !ring_place_cpu_only(&p.plans))
        rc = ring_gpus_list(&gpus, &err);
    if (rc == HCP_OK && limited(&p.plans))
        rc = ring_warden_start(&p.warden, &err);
    if (ring_comm_open(&argc, &argv, &p.comm, &err)) {
        ring_warden_stop(p.warden);
        return hcp_cli_report(&err);
    }
    rc = under_mpi(&p, rc, &gpus, &err);
    if (rc && p.alone) /* the others are in the middle of something: they see us end */
        ring_watch_fail(p.watch, &err);
    return finish(&p, &gpus, rc, &err);
}
