/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profiler/cmd-link.h"
#include "profiler/commands.h"
#include "profiler/measure.h"
#include "profiler/run.h"
#include "profiler/worker.h"
#ifdef HAVE_MPI
#include "profiler/mpirun.h"
#endif

enum {
    OPT_DEVICES = 0x2000,
    OPT_LIMITS,
    OPT_TRANSPORT,
    OPT_CHANNELS,
    OPT_ONE_WAY,
    OPT_SIZES,
    OPT_TARGET,
    OPT_BUDGET
};
enum { EXIT_STOPPED = 130 /* as a shell reports SIGINT */ };

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database ($HCP_DB, else hcp.db)", 1},
    {"devices", OPT_DEVICES, "A[,B]", 0,
     "The two ends: cuda:N or cpu (cuda:0,cuda:1; without a GPU cpu,cpu)", 1},
    {"limits", OPT_LIMITS, "LIST", 0,
     "Pairs of limits A/B, comma separated; bare percentages are of the device's limiter "
     "(100/100,100/50,100/20,100/10; CPU 100/100,100/50)",
     1},
    {"transport", OPT_TRANSPORT, "NAME", 0,
     "nccl, mpi or copy, which is by copy engines (nccl between two GPUs)", 1},
    {"channels", OPT_CHANNELS, "LIST", 0,
     "NCCL's channels for each direction: auto, 1, 2, 4, 8 .. (auto)", 1},
    {"one-way", OPT_ONE_WAY, NULL, 0,
     "Each way alone, as KV moves from one device to another: A sends to B, then B to A",
     1},
    {"sizes", OPT_SIZES, "LIST", 0,
     "Bytes: a range of powers of two or a list (from 4K to 512M, CPU 64M, as many as "
     "the target error needs)",
     2},
    {"target-error", OPT_TARGET, "PCT", 0,
     "Add sizes until the curve's held-out error is below (10%; with --sizes none are)",
     2},
    {"time-budget", OPT_BUDGET, "TIME", 0, "Measure what fits: 90s, 5m, 1h", 2},
    {"json", 'j', NULL, 0, "Report as JSON", 3},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct link_args *a = state->input;
    struct hcp_err err = {0};
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->beside;
        return 0;
    case 'd':
        a->db = arg;
        return 0;
    case 'j':
        a->json = 1;
        return 0;
    case OPT_DEVICES:
        a->devices = arg;
        return 0;
    case OPT_LIMITS:
        a->limits = arg;
        return 0;
    case OPT_SIZES:
        a->sizes = arg;
        return 0;
    case OPT_TRANSPORT:
        a->transport = arg;
        if (strcmp(arg, "mpi") != 0 && strcmp(arg, "nccl") != 0 &&
            strcmp(arg, "copy") != 0)
            argp_error(state, "--transport '%s': use nccl, mpi or copy", arg);
        return 0;
    case OPT_CHANNELS:
        a->channels = arg;
        return 0;
    case OPT_ONE_WAY:
        a->one_way = 1;
        return 0;
    case OPT_TARGET:
        a->target = arg;
        return 0;
    case OPT_BUDGET:
        if (hcp_parse_duration(arg, "--time-budget", &a->budget_s, &err) != HCP_OK)
            argp_error(state, "%s", err.text);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

const char *link_name(const struct link_session *s, int second, char text[96])
{
    const struct hcp_link_job *job = &s->job;
    const char *a = job->end[second].limit, *b = job->end[!second].limit;
    int n = snprintf(text, 96, "%s / %s", *a ? a : "none", *b ? b : "none");
    if (job->channels > 0)
        n += snprintf(text + n, 96 - (size_t)n, ", %d channel%s", (int)job->channels,
                      job->channels == 1 ? "" : "s");
    if (job->one_way)
        snprintf(text + n, 96 - (size_t)n, ", one way");
    return text;
}

static void show_progress(void *ctx, int done, int total)
{
    struct link_session *s = ctx;
    char what[96];
    hcp_progress_show(&s->progress, (int)s->pair * total + done, (int)s->n_pairs * total,
                      NAN, link_name(s, 0, what));
}

static int start_mps(struct link_session *s, struct hcp_err *err)
{
    struct hcp_err why;
    int needed = 0;
    for (size_t i = 0; i < s->n_pairs; i++)
        for (int k = 0; k < 2; k++)
            needed |= (!s->launched || s->rank == k) &&
                      strncmp(s->pairs[i].limit[k], "mps:", 4) == 0;
    if (!needed)
        return HCP_OK;
    if (hcp_mps_start(&s->mps, &why) != HCP_OK)
        return hcp_fail(err, HCP_FAILED,
                        "%.900s. '--limits green:SMS/green:SMS' and '--limits "
                        "none/none' measure without it",
                        why.text);
    s->job.pipe_dir = hcp_mps_pipe_dir(s->mps);
    s->job.log_dir = hcp_mps_log_dir(s->mps);
    return HCP_OK;
}

void link_sign(struct link_session *s, int side, int apart, struct hcp_provenance *from)
{
    char host[sizeof from->host];
    strcpy(host, from->host);
    if (side == 1 && apart && !*s->from_b.run_uid) {
        s->from_b = s->from;
        hcp_run_new_uid(s->from_b.run_uid);
    }
    *from = side == 1 && apart ? s->from_b : s->from;
    strcpy(from->host, host);
    hcp_run_now(from->measured_at);
}

static int is_apart(const struct hcp_link_row *row)
{
    return strcmp(row->from.host, row->host_b) != 0 ||
           (strcmp(row->uuid_a, row->uuid_b) == 0 &&
            strcmp(row->limit_a, row->limit_b) == 0);
}

/* One transaction a pair of limits. */
static int store(struct link_session *s, struct hcp_link_result *result,
                 struct hcp_err *err)
{
    hcp_waiting_begin();
    int rc = hcp_db_begin(s->db, err);
    for (size_t i = 0; i < result->n && rc == HCP_OK; i++) {
        struct hcp_link_row *row = &result->rows[i];
        enum hcp_db_outcome outcome;
        link_sign(s, i >= result->n_first, is_apart(row), &row->from);
        rc = hcp_db_add_link(s->db, row, &outcome, err);
    }
    if (rc == HCP_OK && !s->has_topology && *result->topology.connection) {
        enum hcp_db_outcome outcome;
        link_sign(s, 0, 0, &result->topology.from);
        rc = hcp_db_add_topology(s->db, &result->topology, &outcome, err);
        s->has_topology = rc == HCP_OK;
    }
    if (rc == HCP_OK)
        rc = hcp_db_commit(s->db, err);
    if (rc != HCP_OK)
        hcp_db_rollback(s->db);
    hcp_waiting_end();
    return rc;
}

static void provenance(struct link_session *s)
{
    struct hcp_provenance *from = &s->from;
    const struct hcp_link_end *own = &s->job.end[0];
    strcpy(from->origin, "measured");
    hcp_run_new_uid(from->run_uid);
    strcpy(from->tool_version, PACKAGE_VERSION);
    if (!link_is_gpu(own) || s->n_gpus == 0)
        return;
    strcpy(from->driver, s->gpus[0].driver);
    strcpy(from->cuda_version, s->gpus[0].cuda_version);
}

static int measure_pair(struct link_session *s, double deadline_s, struct hcp_err *err)
{
    static struct hcp_link_result result;
    struct hcp_link_job *job = &s->job;
    char name[96];
    for (int i = 0; i < 2; i++)
        strcpy(job->end[i].limit, s->pairs[s->pair].limit[i]);
    job->channels = s->pairs[s->pair].channels;
    job->budget_s = INFINITY;
    if (isfinite(deadline_s)) /* an equal part of what is left */
        job->budget_s = (deadline_s - hcp_now_s()) / (double)(s->n_pairs - s->pair);
    int rc = hcp_link_measure(job, &result, s->db ? show_progress : NULL, s, err);
    hcp_progress_clear(&s->progress);
    if (job->silent)
        return rc;
    if (s->beside)
        return beside_end_pair(s, rc, err);
    if (rc == HCP_OK)
        rc = store(s, &result, err);
    else
        result.n = result.n_first = 0;
    link_report_pair(s, &result, rc == HCP_OK ? NULL : err->text);
    if (rc == HCP_OK && result.left_out > 0)
        fprintf(stderr, "hcp-profile: %s: %d sizes left out by --time-budget\n",
                link_name(s, 0, name), result.left_out);
    return rc;
}

static int measure(struct link_session *s)
{
    int code = HCP_OK;
    double deadline_s = INFINITY;
    if (!isnan(s->args->budget_s))
        deadline_s = hcp_now_s() + s->args->budget_s;
    for (s->pair = 0; s->pair < s->n_pairs; s->pair++) {
        struct hcp_err err = {0};
        char name[96];
        int rc = measure_pair(s, deadline_s, &err);
        if (hcp_worker_stop) {
            if (!s->job.silent)
                fprintf(stderr,
                        "hcp-profile: stopped; pairs that were finished are in "
                        "%s\n",
                        hcp_db_path(s->db));
            return EXIT_STOPPED;
        }
        if (rc == HCP_OK)
            continue;
        code = rc;
        if (!s->job.silent)
            fprintf(stderr, "hcp-profile: %s and %s, %s: %s\n", s->job.end[0].spec,
                    s->job.end[1].spec, link_name(s, 0, name), err.text);
    }
    return code;
}

static void announce(const struct link_session *s)
{
    const struct hcp_link_job *job = &s->job;
    fprintf(stderr, "hcp-profile: %s and %s over %s%s, %zu pair%s of limits%s, ",
            job->end[0].spec, job->end[1].spec, job->transport,
            job->one_way ? ", each way alone" : "", s->n_pairs,
            s->n_pairs == 1 ? "" : "s", s->args->channels ? " and channels" : "");
    if (s->beside)
        fprintf(stderr, "%zu block%s beside a transfer\n", s->beside->job.n,
                s->beside->job.n == 1 ? "" : "s");
    else
        fprintf(stderr, "%zu size%s from %lld to %lld bytes%s\n", job->n_sizes,
                job->n_sizes == 1 ? "" : "s", (long long)job->sizes[0],
                (long long)job->sizes[job->n_sizes - 1],
                isnan(job->target) ? "" : " and more where the curve asks for them");
}

static int launched(struct link_session *s, struct hcp_err *err)
{
#ifdef HAVE_MPI
    int size, yes = hcp_mpi_launched(&s->rank, &size);
    s->launched = yes && !(size == 1 && getenv("SLURM_STEP_ID")); /* a batch's shell */
    if (s->launched && size >= 0 && size != 2)
        return hcp_fail(err, HCP_USAGE,
                        "started as one of %d rank%s; a link has two: mpirun -np 2, or "
                        "hcp-profile link alone",
                        size, size == 1 ? "" : "s");
    if (s->launched && s->rank != 0 && s->rank != 1)
        return hcp_fail(err, HCP_FAILED,
                        "the launcher does not say which of two ranks this is; use "
                        "mpirun -np 2 or srun -n 2");
    s->job.launched = s->launched;
    s->job.silent = s->launched && s->rank == 1;
    return HCP_OK;
#else
    return hcp_link_ready(&s->job, err);
#endif
}

int cmd_link(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&beside_argp, 0, "A block of attention beside a transfer:", 10}, {0}};
    static const struct argp argp = {
        options,
        parse,
        "",
        "Measures what a transfer between two devices takes when each sends to the other "
        "at once, as neighbours of a ring do, or with --one-way when only one sends, and "
        "stores every size.",
        children,
        NULL,
        NULL};
    static struct link_session s;
    static struct link_args a = {.budget_s = NAN};
    struct hcp_err err = {0};
    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    s.args = &a;
    s.beside = a.beside.on ? &a.beside : NULL;
    hcp_worker_catch_signals();
    int rc = launched(&s, &err);
    if (rc == HCP_OK)
        rc = hcp_link_find(s.program, sizeof s.program, &err);
    s.job.program = s.program;
    s.job.pipe_dir = s.job.log_dir = "";
    if (rc == HCP_OK)
        rc = link_choose(&s, &err);
    if (rc == HCP_OK && s.beside)
        rc = beside_choose(&s, &err);
    if (rc == HCP_OK)
        rc = hcp_link_ready(&s.job, &err);
    if (rc == HCP_OK && !s.job.silent) {
        const char *path = hcp_cli_db(a.db, &err);
        rc = path ? hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &s.db, &err)
                  : err.code;
    }
    if (rc == HCP_OK)
        rc = start_mps(&s, &err);
    if (rc == HCP_OK) {
        (s.beside ? beside_report_begin : link_report_begin)(&s);
        provenance(&s);
        if (!s.job.silent) {
            announce(&s);
            hcp_progress_init(&s.progress);
        }
        rc = measure(&s);
        (s.beside ? beside_report_end : link_report_end)(&s);
    } else if (!hcp_worker_stop) {
        hcp_cli_report(&err);
    } else {
        rc = EXIT_STOPPED;
    }
    hcp_mps_stop(s.mps);
    hcp_db_close(s.db);
    free(s.gpus);
    free(a.beside.text);
    return hcp_cli_finish(rc);
}
