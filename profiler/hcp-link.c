/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ranks of hcp-profile link; link.h says what they are told and what they say.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "db/cli.h"
#include "profiler/link-beside-rank.h"
#include "profiler/measure.h"
#include "profiler/mpirun.h"

#define TIMEOUT_S 60.0

enum { ARGUMENTS = 1 + 8 + 2 * 4 };

struct rank {
    int rank;
    const char *transport, *pipe_dir, *log_dir;
    struct hcp_link_end end[2];
    int32_t channels; /* 0: NCCL's choice */
    int one_way;      /* each way alone */
    struct link_size sizes[2][HCP_LINK_SIZES]; /* one way: by sender; else [0] */
    size_t n_sizes[2];
    double target, budget_s;
    struct link_keeper keeper;
    struct link_identity ends[2];
    struct hcp_beside_job job;
    struct link_beside beside; /* where job has blocks */
};

/* One line for hcp-profile, at once. */
static void say(json_t *line)
{
    hcp_json_print(line, stdout);
    fflush(stdout);
}

static void say_error(const char *text)
{
    json_t *line = json_object();
    json_object_set_new(line, "error", json_string(text));
    say(line);
}

static void say_visit(int visit, int visits)
{
    json_t *line = json_object();
    json_object_set_new(line, "visit", json_integer(visit));
    json_object_set_new(line, "visits", json_integer(visits));
    say(line);
}

static void say_ends(const struct rank *r, const char *version)
{
    json_t *line = json_object(), *ends = json_array();
    for (int i = 0; i < 2; i++) {
        const struct link_identity *e = &r->ends[i];
        json_t *end = json_object();
        json_object_set_new(end, "host", json_string(e->host));
        json_object_set_new(end, "device", json_string(e->device));
        json_object_set_new(end, "name", json_string(e->name));
        json_object_set_new(end, "uuid", json_string(e->uuid));
        json_object_set_new(end, "sm_seen", json_integer(e->sm_seen));
        json_object_set_new(end, "sm_count", json_integer(e->sm_count));
        json_array_append_new(ends, end);
    }
    struct hcp_topology way;
    json_t *topology = json_object();
    hcp_topology_connect((struct hcp_topology_end[2]){r->ends[0].way, r->ends[1].way},
                         &way);
    json_object_set_new(topology, "connection", json_string(way.connection));
    json_object_set_new(topology, "links", json_integer(way.links));
    json_object_set_new(topology, "detail", json_string(way.detail));
    json_object_set_new(line, "ends", ends);
    json_object_set_new(line, "topology", topology);
    json_object_set_new(line, "version", json_string(version));
    say(line);
}

/* Those of a sender; how many were left out. */
static int say_some(const struct rank *r, int sender)
{
    int left_out = 0;
    for (size_t i = 0; i < r->n_sizes[sender]; i++) {
        const struct link_size *s = &r->sizes[sender][i];
        if (s->n == 0) {
            left_out++;
            continue;
        }
        json_t *line = json_object(), *ms = json_array();
        for (int k = 0; k < s->n; k++)
            json_array_append_new(ms, json_real(s->ms[k]));
        json_object_set_new(line, "bytes", json_integer(s->bytes));
        json_object_set_new(line, "repeats", json_integer(s->repeats));
        json_object_set_new(line, "ms", ms);
        if (r->one_way)
            json_object_set_new(line, "sender", json_integer(sender));
        say(line);
    }
    return left_out;
}

static void say_sizes(const struct rank *r)
{
    int left_out = say_some(r, 0);
    if (r->one_way)
        left_out += say_some(r, 1);
    json_t *line = json_object();
    json_object_set_new(line, "done", json_true());
    json_object_set_new(line, "left_out", json_integer(left_out));
    say(line);
}

/* "-" is the empty word. */
static const char *word(const char *text)
{
    return strcmp(text, "-") == 0 ? "" : text;
}

static int parse_sizes(const char *text, struct rank *r, struct hcp_err *err)
{
    for (const char *at = text;; at++) {
        char item[24];
        size_t len = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(len < 23 ? len : 23), at);
        if (r->n_sizes[0] == HCP_LINK_SIZES)
            return hcp_fail(err, HCP_USAGE, "more than %d sizes", HCP_LINK_SIZES);
        int rc = hcp_parse_int(item, "size", 1, INT64_MAX / 4,
                               &r->sizes[0][r->n_sizes[0]].bytes, err);
        if (rc != HCP_OK)
            return rc;
        r->n_sizes[0]++;
        at += len;
        if (!*at)
            return HCP_OK;
    }
}

static int parse(int argc, char **argv, struct rank *r, struct hcp_err *err)
{
    int size;
    if ((argc != ARGUMENTS && argc != ARGUMENTS + 1) ||
        !hcp_mpi_launched(&r->rank, &size))
        return hcp_fail(err, HCP_USAGE, "is started by 'hcp-profile link'");
    if (r->rank < 0 || r->rank > 1)
        return hcp_fail(err, HCP_FAILED,
                        "the launcher does not say which of two ranks this is; start it "
                        "with mpirun -np 2 or srun -n 2");
    int64_t channels = 0;
    r->transport = argv[1];
    r->one_way = strcmp(argv[3], "each") == 0;
    r->pipe_dir = word(argv[7]);
    r->log_dir = word(argv[8]);
    int rc = parse_sizes(argv[4], r, err);
    memcpy(r->sizes[1], r->sizes[0], sizeof r->sizes[1]);
    r->n_sizes[1] = r->n_sizes[0];
    r->budget_s = INFINITY;
    r->target = NAN;
    if (rc == HCP_OK && *word(argv[2]))
        rc = hcp_parse_int(argv[2], "channels", 1, 32, &channels, err);
    r->channels = (int32_t)channels;
    if (rc == HCP_OK && *word(argv[5]))
        rc = hcp_parse_double(argv[5], &r->target, err);
    if (rc == HCP_OK && *word(argv[6]))
        rc = hcp_parse_double(argv[6], &r->budget_s, err);
    for (int i = 0; i < 2 && rc == HCP_OK; i++) {
        struct hcp_link_end *e = &r->end[i];
        char **a = argv + 9 + 4 * i;
        int64_t sms = 0;
        snprintf(e->spec, sizeof e->spec, "%s", a[0]);
        snprintf(e->limit, sizeof e->limit, "%s", word(a[1]));
        snprintf(e->uuid, sizeof e->uuid, "%s", word(a[2]));
        if (*word(a[3]))
            rc = hcp_parse_int(a[3], "SMs", 0, INT32_MAX, &sms, err);
        e->sm_count = (int32_t)sms;
    }
    if (rc == HCP_OK && argc > ARGUMENTS)
        rc = hcp_beside_parse(argv[ARGUMENTS], &r->job, err);
    return rc;
}

/* Collective: 0 if all is well on both ranks; else rank 0 says what is not, once. */
static int anyone_failed(struct rank *r, int rc, const struct hcp_err *err)
{
    struct link_identity *mine = &r->ends[r->rank];
    mine->failed = rc != HCP_OK;
    if (rc != HCP_OK)
        memcpy(mine->error, err->text, sizeof mine->error);
    struct link_identity sent = *mine;
    MPI_Allgather(&sent, sizeof sent, MPI_BYTE, r->ends, sizeof sent, MPI_BYTE,
                  MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        char text[1200];
        if (!r->ends[i].failed)
            continue;
        snprintf(text, sizeof text, "rank %d (%s%s%s): %s", i, r->end[i].spec,
                 *r->ends[i].host ? ", " : "", r->ends[i].host, r->ends[i].error);
        if (r->rank == 0)
            say_error(text);
        return 1;
    }
    return 0;
}

static int throttled(const struct hcp_link_end *end)
{
    char kind[8] = "";
    int32_t value = 100;
    hcp_parse_limit(end->limit, kind, &value, NULL);
    return strcmp(kind, "cpu") == 0 && value < 100;
}

/* All sizes both ways at once, or each way in turn. The second way has what the first has
 * left of the time. */
static int measure_sizes(struct rank *r, struct link_plan *plan, struct link_meter *meter,
                         struct hcp_err *err)
{
    double begin_s = hcp_now_s();
    int rc = HCP_OK;
    plan->parts = 1 + r->one_way;
    for (; plan->part < plan->parts && rc == HCP_OK; plan->part++) {
        if (r->one_way)
            plan->ways = plan->part ? LINK_FROM_1 : LINK_FROM_0;
        plan->budget_s = r->budget_s - (hcp_now_s() - begin_s);
        if (plan->part + 1 < plan->parts)
            plan->budget_s /= 2;
        plan->sizes = r->sizes[plan->part];
        plan->n = r->n_sizes[plan->part];
        rc = link_measure(plan, meter, err);
        r->n_sizes[plan->part] = plan->n;
    }
    return rc;
}

/* Between the start and the end of MPI. Only a failure between two transfers ends here
 * with both ranks; one within them ends both at once. */
static void measure(struct rank *r, int rc, struct hcp_err *err)
{
    struct link_plan plan = {.comm = MPI_COMM_WORLD,
                             .rank = r->rank,
                             .throttled = throttled(&r->end[0]) || throttled(&r->end[1]),
                             .target = r->target,
                             .budget_s = r->budget_s,
                             .mesh = r->one_way && strcmp(r->transport, "copy") != 0,
                             .parts = 1,
                             .visiting = say_visit};
    struct link_identity *mine = &r->ends[r->rank];
    struct link_meter *meter = NULL;
    struct hcp_transport_config config = {.name = r->transport,
                                          .comm = MPI_COMM_WORLD,
                                          .channels = r->channels,
                                          .timeout_s = TIMEOUT_S,
                                          .mesh = plan.mesh};
    if (rc == HCP_OK)
        rc = link_end_open(&r->end[r->rank], r->pipe_dir, r->log_dir, &plan.runtime,
                           &config.ordinal, mine, err);
    if (anyone_failed(r, rc, err))
        return;
    config.runtime = plan.runtime;
    config.sm_count = mine->sm_seen;
    rc = hcp_transport_open(&config, &plan.transport, err);
    if (anyone_failed(r, rc, err))
        return;
    if (r->rank == 0)
        say_ends(r, hcp_transport_version(plan.transport));
    if (r->job.n > 0)
        rc = link_beside_open(&r->beside, &r->job, &plan, config.ordinal, err);
    if (anyone_failed(r, rc, err))
        return;
    rc = link_keeper_start(&r->keeper, &r->end[r->rank], err);
    if (anyone_failed(r, rc, err))
        return;
    if (r->job.n == 0)
        rc = link_meter_open(&plan, r->sizes[0][r->n_sizes[0] - 1].bytes, &meter, err);
    if (anyone_failed(r, rc, err))
        return;
    rc = r->job.n > 0 ? link_beside_measure(&r->beside, err)
                      : measure_sizes(r, &plan, meter, err);
    if (r->job.n > 0)
        r->n_sizes[0] = 0;
    if (rc != HCP_OK) {
        fprintf(stderr, "hcp-link: rank %d (%s, %s): %s\n", r->rank, r->end[r->rank].spec,
                mine->host, err->text);
        fflush(NULL);
        MPI_Abort(MPI_COMM_WORLD, HCP_FAILED);
    }
    rc = link_keeper_check(&r->keeper, err);
    if (anyone_failed(r, rc, err))
        return;
    hcp_transport_close(plan.transport);
    link_meter_close(meter);
    if (r->job.n > 0)
        link_beside_close(&r->beside);
    if (r->rank == 0 && r->job.n > 0)
        link_beside_say(&r->beside, say);
    if (r->rank == 0)
        say_sizes(r);
}

int main(int argc, char **argv)
{
    static struct rank r;
    struct hcp_err err = {0};
    int level, rank, size;
    hcp_cli_set_name("hcp-link");
    int rc = parse(argc, argv, &r, &err);
    if (rc != HCP_OK)
        return hcp_cli_report(&err);
    rc = link_end_begin(&r.end[r.rank], r.pipe_dir, r.log_dir, r.channels, &r.keeper,
                        &err);
    hcp_mpi_prepare();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || rank != r.rank) {
        fprintf(stderr,
                "hcp-link: rank %d of %d, started as rank %d of 2: the launcher belongs "
                "to another MPI, or started more than two\n",
                rank, size, r.rank);
        MPI_Abort(MPI_COMM_WORLD, HCP_FAILED);
    }
    measure(&r, rc, &err);
    MPI_Finalize();
    return HCP_OK;
}
