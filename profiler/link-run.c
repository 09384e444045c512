/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "db/parse.h"
#include "profiler/link.h"
#include "profiler/measure.h"
#include "profiler/stats.h"
#include "profiler/worker.h"
#ifdef HAVE_MPI
#include "profiler/mpirun.h"
#endif

/* Longer than hcp-link itself waits for a neighbour. */
#define SILENCE_S 90.0

int hcp_link_find(char *path, size_t size, struct hcp_err *err)
{
    const char *given = getenv("HCP_LINK");
    char self[3900];
    if (given && *given) {
        if (access(given, X_OK) != 0)
            return hcp_fail(err, HCP_FAILED,
                            "HCP_LINK=%.900s: %s; name the program hcp-link in it, or "
                            "unset it",
                            given, strerror(errno));
        if ((size_t)snprintf(path, size, "%s", given) >= size)
            return hcp_fail(err, HCP_FAILED,
                            "HCP_LINK: a path of more than %zu bytes; give a shorter one",
                            size - 1);
        return HCP_OK;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) {
        *slash = '\0';
        /* Beside us in the build tree; in a tree that was moved after installation. */
        static const char *const places[] = {"hcp-link", "../libexec/hcp/hcp-link"};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            snprintf(path, size, "%s/%s", self, places[i]);
            if (access(path, X_OK) == 0)
                return HCP_OK;
        }
    }
    snprintf(path, size, "%s/hcp-link", PKGLIBEXECDIR);
    if (access(path, X_OK) == 0)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "hcp-link is neither beside hcp-profile nor in %s; install it again "
                    "(make install), or name it in HCP_LINK",
                    PKGLIBEXECDIR);
}

#ifdef HAVE_MPI

/* hcp-link's arguments, as link.h lists them; the texts live here. */
struct command {
    struct hcp_mpirun mpirun;
    char channels[16], sizes[22 * HCP_LINK_SIZES], target[32], budget[32], sms[2][16];
    const char *args[32];
};

static const char *word(const char *text)
{
    return *text ? text : "-";
}

static int make_command(const struct hcp_link_job *job, struct command *c,
                        struct hcp_err *err)
{
    size_t n = 0;
    int k = 0;
    if (!job->launched) {
        int rc = hcp_mpirun_prepare(2, "hcp-link", &c->mpirun, err);
        if (rc != HCP_OK)
            return rc;
        for (; k < c->mpirun.n; k++)
            c->args[k] = c->mpirun.args[k];
    }
    for (size_t i = 0; i < job->n_sizes; i++)
        n += (size_t)snprintf(c->sizes + n, sizeof c->sizes - n, "%s%lld", i ? "," : "",
                              (long long)job->sizes[i]);
    strcpy(c->channels, "-");
    if (job->channels > 0)
        snprintf(c->channels, sizeof c->channels, "%d", (int)job->channels);
    strcpy(c->target, "-");
    if (!isnan(job->target))
        hcp_format_double(job->target, c->target);
    strcpy(c->budget, "-");
    if (isfinite(job->budget_s))
        hcp_format_double(fmax(job->budget_s, 0), c->budget);
    c->args[k++] = job->program;
    c->args[k++] = job->transport;
    c->args[k++] = c->channels;
    c->args[k++] = job->one_way ? "each" : "both";
    c->args[k++] = c->sizes;
    c->args[k++] = c->target;
    c->args[k++] = c->budget;
    c->args[k++] = word(job->pipe_dir);
    c->args[k++] = word(job->log_dir);
    for (int i = 0; i < 2; i++) {
        const struct hcp_link_end *e = &job->end[i];
        snprintf(c->sms[i], sizeof c->sms[i], "%d", (int)e->sm_count);
        c->args[k++] = e->spec;
        c->args[k++] = word(e->limit);
        c->args[k++] = word(e->uuid);
        c->args[k++] = e->sm_count > 0 ? c->sms[i] : "-";
    }
    if (job->blocks)
        c->args[k++] = job->blocks;
    c->args[k] = NULL;
    return HCP_OK;
}

static int start(const struct command *c, pid_t *pid, int *fd, struct hcp_err *err)
{
    int fds[2];
    pid_t parent = getpid();
    if (pipe2(fds, O_CLOEXEC) != 0)
        return hcp_fail(err, HCP_FAILED, "pipe: %s", strerror(errno));
    *pid = fork();
    if (*pid == 0) {
        sigset_t none;
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(1);
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(fds[1], 1);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        execvp(c->args[0], (char *const *)(uintptr_t)c->args);
        dprintf(2, "hcp-profile: cannot run %s: %s\n", c->args[0], strerror(errno));
        _exit(127);
    }
    close(fds[1]);
    *fd = fds[0];
    if (*pid > 0)
        return HCP_OK;
    close(fds[0]);
    return hcp_fail(err, HCP_FAILED, "fork: %s", strerror(errno));
}

struct reader {
    const struct hcp_link_job *job;
    struct hcp_link_result *out;
    struct hcp_link_row row; /* the ends, once they are known */
    int has_ends;
    int done; /* nothing follows */
    hcp_link_progress progress;
    void *ctx;
};

static void take_text(const json_t *object, const char *name, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    snprintf(to, size, "%s", text ? text : "");
}

static int32_t take_int(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? (int32_t)json_integer_value(value) : -1;
}

/* Of the ends in r->row. */
static void take_topology(struct reader *r, const json_t *way)
{
    struct hcp_topology_row *t = &r->out->topology;
    const struct hcp_link_row *row = &r->row;
    memcpy(t->device_a, row->device_a, sizeof t->device_a);
    memcpy(t->device_b, row->device_b, sizeof t->device_b);
    memcpy(t->uuid_a, row->uuid_a, sizeof t->uuid_a);
    memcpy(t->uuid_b, row->uuid_b, sizeof t->uuid_b);
    memcpy(t->name_a, row->name_a, sizeof t->name_a);
    memcpy(t->name_b, row->name_b, sizeof t->name_b);
    memcpy(t->from.host, row->from.host, sizeof t->from.host);
    memcpy(t->host_b, row->host_b, sizeof t->host_b);
    t->sm_count_a = row->sm_count_a;
    t->sm_count_b = row->sm_count_b;
    take_text(way, "connection", t->connection, sizeof t->connection);
    take_text(way, "detail", t->detail, sizeof t->detail);
    t->links = take_int(way, "links");
}

static void take_ends(struct reader *r, const json_t *line, const json_t *ends)
{
    const json_t *a = json_array_get(ends, 0), *b = json_array_get(ends, 1);
    struct hcp_link_row *row = &r->row;
    hcp_link_row_init(row);
    take_text(a, "device", row->device_a, sizeof row->device_a);
    take_text(b, "device", row->device_b, sizeof row->device_b);
    take_text(a, "name", row->name_a, sizeof row->name_a);
    take_text(b, "name", row->name_b, sizeof row->name_b);
    take_text(a, "uuid", row->uuid_a, sizeof row->uuid_a);
    take_text(b, "uuid", row->uuid_b, sizeof row->uuid_b);
    take_text(a, "host", row->from.host, sizeof row->from.host);
    take_text(b, "host", row->host_b, sizeof row->host_b);
    row->sm_seen_a = take_int(a, "sm_seen");
    row->sm_seen_b = take_int(b, "sm_seen");
    row->sm_count_a = take_int(a, "sm_count");
    row->sm_count_b = take_int(b, "sm_count");
    row->same_host = strcmp(row->from.host, row->host_b) == 0;
    take_text(line, "version", row->transport_version, sizeof row->transport_version);
    strcpy(row->limit_a, r->job->end[0].limit);
    strcpy(row->limit_b, r->job->end[1].limit);
    snprintf(row->transport, sizeof row->transport, "%s", r->job->transport);
    row->channels = r->job->channels > 0 ? r->job->channels : -1;
    row->one_way = r->job->one_way;
    take_topology(r, json_object_get(line, "topology"));
    r->has_ends = 1;
}

/* Rank 1 sends: it is a. */
static void turn_round(struct hcp_link_row *row)
{
    struct hcp_link_row other = *row;
    memcpy(row->device_a, other.device_b, sizeof row->device_a);
    memcpy(row->device_b, other.device_a, sizeof row->device_b);
    memcpy(row->limit_a, other.limit_b, sizeof row->limit_a);
    memcpy(row->limit_b, other.limit_a, sizeof row->limit_b);
    memcpy(row->uuid_a, other.uuid_b, sizeof row->uuid_a);
    memcpy(row->uuid_b, other.uuid_a, sizeof row->uuid_b);
    memcpy(row->name_a, other.name_b, sizeof row->name_a);
    memcpy(row->name_b, other.name_a, sizeof row->name_b);
    memcpy(row->from.host, other.host_b, sizeof row->from.host);
    memcpy(row->host_b, other.from.host, sizeof row->host_b);
    row->sm_seen_a = other.sm_seen_b;
    row->sm_seen_b = other.sm_seen_a;
    row->sm_count_a = other.sm_count_b;
    row->sm_count_b = other.sm_count_a;
}

static int take_size(struct reader *r, const json_t *line, struct hcp_err *err)
{
    const json_t *list = json_object_get(line, "ms");
    double ms[HCP_LINK_SAMPLES];
    int n = 0, second = json_integer_value(json_object_get(line, "sender")) == 1;
    struct hcp_stats stats;
    for (size_t i = 0; i < json_array_size(list) && n < HCP_LINK_SAMPLES; i++)
        ms[n++] = json_number_value(json_array_get(list, i));
    if (!r->has_ends || r->out->n == 2 * HCP_LINK_SIZES ||
        hcp_stats_summary(ms, n, &stats) != 0)
        return hcp_fail(err, HCP_FAILED, "hcp-link: a sample is not a number");
    struct hcp_link_row *row = &r->out->rows[r->out->n++];
    *row = r->row;
    if (second)
        turn_round(row);
    else
        r->out->n_first = r->out->n;
    row->bytes = json_integer_value(json_object_get(line, "bytes"));
    row->time_ms = stats.median;
    row->p25_ms = stats.p25;
    row->p75_ms = stats.p75;
    row->samples = stats.n;
    return HCP_OK;
}

static int take_line(struct reader *r, const char *text, struct hcp_err *err)
{
    json_t *line = json_loads(text, 0, NULL);
    const json_t *visits = json_object_get(line, "visits");
    const char *error = json_string_value(json_object_get(line, "error"));
    int rc = HCP_OK;
    if (error) {
        r->done = 1;
        rc = hcp_fail(err, HCP_FAILED, "%.1000s", error);
    } else if (json_object_get(line, "ends")) {
        take_ends(r, line, json_object_get(line, "ends"));
    } else if (json_object_get(line, "beside") && r->has_ends && r->job->beside) {
        rc = r->job->beside(r->job->ctx, &r->row, line, err);
    } else if (json_object_get(line, "bytes")) {
        rc = take_size(r, line, err);
    } else if (json_object_get(line, "done")) {
        r->done = 1;
        r->out->left_out = take_int(line, "left_out");
    } else if (visits && r->progress) {
        r->progress(r->ctx, (int)json_integer_value(json_object_get(line, "visit")),
                    (int)json_integer_value(visits));
    } else if (!visits && *text) { /* a launcher's word, for the user */
        fprintf(stderr, "%s\n", text);
    }
    json_decref(line);
    return rc;
}

/* Lines until the end of the pipe, an error, or silence. */
static int read_lines(struct reader *r, int fd, struct hcp_err *err)
{
    size_t room = 1 << 16, n = 0;
    char *text = malloc(room);
    int rc = text ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    double heard_s = hcp_now_s();
    while (rc == HCP_OK) {
        struct pollfd p = {fd, POLLIN, 0};
        int ready = poll(&p, 1, 200);
        if (hcp_worker_stop)
            rc = hcp_fail(err, HCP_FAILED, "stopped");
        else if (ready <= 0 && hcp_now_s() - heard_s > SILENCE_S)
            rc = hcp_fail(err, HCP_FAILED,
                          "hcp-link has said nothing for %.0f s and was ended; smaller "
                          "%s say whether it is the link that is slow",
                          SILENCE_S, r->job->blocks ? "--lens" : "--sizes");
        if (rc != HCP_OK || ready <= 0)
            continue;
        ssize_t got = read(fd, text + n, room - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        heard_s = hcp_now_s();
        n += (size_t)got;
        text[n] = '\0';
        char *line = text, *end;
        for (; rc == HCP_OK && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            rc = take_line(r, line, err);
        }
        n -= (size_t)(line - text);
        memmove(text, line, n + 1);
        if (rc == HCP_OK && n + 1 == room)
            rc = hcp_fail(err, HCP_FAILED, "hcp-link: a line of more than %zu bytes",
                          room);
    }
    free(text);
    return rc;
}

/* Waits for what was started, or (ask) ends it; how it ended as text. 1: by itself, with
 * exit code 0. */
static int finish(pid_t pid, int ask, char how[64])
{
    int status = 0;
    pid_t got = 0;
    double end_s = hcp_now_s() + 10;
    if (ask)
        kill(pid, SIGTERM);
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && hcp_now_s() < end_s)
        poll(NULL, 0, 20);
    if (got == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    if (WIFSIGNALED(status))
        snprintf(how, 64, "signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, 64, "exit code %d", WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int hcp_link_ready(const struct hcp_link_job *job, struct hcp_err *err)
{
    struct command command;
    return make_command(job, &command, err);
}

int hcp_link_measure(const struct hcp_link_job *job, struct hcp_link_result *out,
                     hcp_link_progress progress, void *ctx, struct hcp_err *err)
{
    struct command command;
    struct reader r = {.job = job, .out = out, .progress = progress, .ctx = ctx};
    char how[64];
    pid_t pid = 0;
    int fd = -1, rc = make_command(job, &command, err);
    out->n = out->n_first = 0;
    out->left_out = 0;
    hcp_topology_row_init(&out->topology);
    if (rc == HCP_OK)
        rc = start(&command, &pid, &fd, err);
    if (rc != HCP_OK)
        return rc;
    rc = read_lines(&r, fd, err);
    close(fd);
    /* After an error that they report, both ranks end by themselves. */
    int good = finish(pid, hcp_worker_stop || (rc != HCP_OK && !r.done), how);
    if (hcp_worker_stop)
        return hcp_fail(err, HCP_FAILED, "stopped");
    if (rc == HCP_OK && !(job->silent ? good : r.done))
        rc = hcp_fail(err, HCP_FAILED,
                      "the ranks ended before they were done (%s); what they said is "
                      "above",
                      how);
    return rc;
}

#else

int hcp_link_ready(const struct hcp_link_job *job, struct hcp_err *err)
{
    (void)job;
    return hcp_fail(err, HCP_FAILED,
                    "this hcp-profile was built without MPI; install libopenmpi-dev (or "
                    "libmpich-dev) and configure again (--with-mpi=DIR)");
}

int hcp_link_measure(const struct hcp_link_job *job, struct hcp_link_result *out,
                     hcp_link_progress progress, void *ctx, struct hcp_err *err)
{
    (void)out, (void)progress, (void)ctx;
    return hcp_link_ready(job, err);
}

#endif
