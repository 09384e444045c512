/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "profiler/limiter.h"
#include "profiler/progress.h"
#include "profiler/worker.h"

/* A series that sends nothing for so long hangs. */
enum { SILENCE_MS = 60000 };

struct bench {
    struct bench_options options;
    struct hcp_device_info gpu;
    hcp_mps *mps;
    struct bench_at *at;
    struct bench_result *results;
    size_t n, room, from; /* from: first of this shape */
    FILE *csv;
    int failed; /* some kernel, or a series */
};

/* ---- results -------------------------------------------------------------- */

static struct bench_result *add_result(struct bench *b)
{
    if (b->n == b->room) {
        size_t room = b->room ? 2 * b->room : 256;
        struct bench_result *more = realloc(b->results, room * sizeof *more);

        if (!more)
            return NULL;
        b->results = more;
        b->room = room;
    }
    return &b->results[b->n++];
}

/* Once all rows of a shape are there: they come one after the other. */
static void compare(struct bench *b)
{
    for (size_t i = b->from; i < b->n; i++) {
        struct bench_result *r = &b->results[i];

        for (size_t k = b->from; k < b->n; k++)
            if (b->results[k].shape == r->shape && strcmp(r->row.kernel, "copy") != 0 &&
                strcmp(b->results[k].row.kernel, b->options.baseline) == 0)
                r->vs = b->results[k].row.time_ms / r->row.time_ms;
        if (b->csv)
            bench_csv_row(b->csv, r);
    }
    if (b->csv)
        fflush(b->csv);
    b->from = b->n;
}

static void keep(struct bench *b, const struct bench_job *job,
                 const struct bench_row *row)
{
    const struct bench_shape *shape = &job->shapes[row->shape];

    if (b->n > b->from && b->results[b->n - 1].shape != shape)
        compare(b);
    struct bench_result *r = add_result(b);
    if (!r) {
        b->failed = 1;
        return;
    }
    *r = (struct bench_result){.shape = shape, .row = *row, .vs = NAN};
    snprintf(r->limit, sizeof r->limit, "%s", job->limit);
}

/* ---- series --------------------------------------------------------------- */

static int read_row(int fd, struct bench_row *row)
{
    char *at = (char *)row;
    size_t left = sizeof *row;

    while (left > 0) {
        struct pollfd p = {fd, POLLIN, 0};
        int ready = poll(&p, 1, SILENCE_MS);

        if (ready == 0)
            return -1;
        if (ready < 0 && errno == EINTR && !hcp_worker_stop)
            continue;
        ssize_t got = ready < 0 ? -1 : read(fd, at, left);
        if (got < 0 && errno == EINTR && !hcp_worker_stop)
            continue;
        if (got <= 0)
            return (int)got;
        at += got;
        left -= (size_t)got;
    }
    return 1;
}

/* A GPU client is asked to end first: killing it can take the MPS server along. */
static void end_child(pid_t pid, char *how, size_t size)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, WNOHANG);

    for (int i = 0; i < 100 && got == 0; i++) {
        if (i == 50)
            kill(pid, SIGTERM);
        poll(NULL, 0, 20);
        got = waitpid(pid, &status, WNOHANG);
    }
    if (got == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    if (WIFSIGNALED(status))
        snprintf(how, size, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, size, "ended with code %d", WEXITSTATUS(status));
}

static void show(struct hcp_progress *progress, const struct bench_job *job, int done)
{
    char text[96], what[160];

    if (done >= (int)job->n_shapes)
        return;
    snprintf(what, sizeof what, "%s %s", *job->limit ? job->limit : "whole device",
             bench_shape_text(&job->shapes[done], text));
    hcp_progress_show(progress, done, (int)job->n_shapes, NAN, what);
}

/* Reads a child's rows to its end. *told: the last one says why it gave up. */
static int follow(struct bench *b, struct bench_job *job, int fd, int *told,
                  struct hcp_err *err)
{
    struct hcp_progress progress;
    struct bench_row row;
    int got;

    *told = 0;
    hcp_progress_init(&progress);
    show(&progress, job, (int)job->first);
    while ((got = read_row(fd, &row)) > 0) {
        show(&progress, job, b->at->shape);
        if (row.shape < 0 || row.lane < 0) {
            hcp_fail(err, HCP_FAILED, "%s", row.error);
            *told = 1;
            continue;
        }
        /* The device is lost with the kernel at hand. */
        *told = *row.error && row.shape == b->at->shape && row.lane == b->at->lane;
        keep(b, job, &row);
    }
    hcp_progress_clear(&progress);
    return got;
}

/* One child. 1: there is more to do, without a kernel or a shape. */
static int run_child(struct bench *b, struct bench_job *job, struct hcp_err *err)
{
    int fds[2], told;
    char how[80];

    if (pipe(fds) != 0)
        return hcp_fail(err, HCP_FAILED, "pipe: %s", strerror(errno)), -1;
    b->at->shape = (int32_t)job->first;
    b->at->lane = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        job->out = fds[1];
        _exit(bench_child(job));
    }
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return hcp_fail(err, HCP_FAILED, "fork: %s", strerror(errno)), -1;
    }
    err->text[0] = 0;
    int got = follow(b, job, fds[0], &told, err);
    int32_t shape = b->at->shape, lane = b->at->lane; /* asked to end, it may move on */
    if (got < 0) /* nothing more is to be expected of it */
        kill(pid, SIGTERM);
    close(fds[0]);
    end_child(pid, how, sizeof how);
    if (hcp_worker_stop)
        return hcp_fail(err, HCP_FAILED, "stopped"), -1;
    if (shape >= (int32_t)job->n_shapes)
        return 0;
    b->failed = 1;
    if (lane < 0 || lane >= BENCH_LANES) {
        if (!*err->text)
            hcp_fail(err, HCP_FAILED, "the series %s", how);
        return -1;
    }
    if (!told) {
        struct bench_row row = {.shape = shape, .lane = lane, .time_ms = NAN};

        snprintf(row.kernel, sizeof row.kernel, "lane %d", (int)lane);
        for (size_t i = 0; i < b->n; i++) /* its name from another row */
            if (b->results[i].row.lane == lane)
                snprintf(row.kernel, sizeof row.kernel, "%s", b->results[i].row.kernel);
        snprintf(row.error, sizeof row.error, "%s",
                 got < 0 ? "gave no answer for a minute" : how);
        keep(b, job, &row);
    }
    job->skip |= 1u << lane;
    job->first = (size_t)shape;
    return 1;
}

static int run_series(struct bench *b, const char *limit, struct hcp_err *err)
{
    struct bench_shape *shapes = NULL;
    struct bench_job job = {.options = &b->options,
                            .sm_count = b->gpu.sm_count,
                            .mps_pipe = b->mps ? hcp_mps_pipe_dir(b->mps) : "",
                            .mps_log = b->mps ? hcp_mps_log_dir(b->mps) : "",
                            .at = b->at};
    int more = 1;

    job.n_shapes = bench_shapes(&b->options, *limit != 0, &shapes);
    job.shapes = shapes; /* results point to them: kept to the end */
    snprintf(job.limit, sizeof job.limit, "%s", limit);
    snprintf(job.uuid, sizeof job.uuid, "%s", b->gpu.uuid);
    while (job.n_shapes > 0 && more > 0)
        more = run_child(b, &job, err);
    compare(b);
    return more < 0 ? HCP_FAILED : HCP_OK;
}

/* ---- the program ---------------------------------------------------------- */

static void print_head(const struct bench *b, int argc, char **argv)
{
    char when[32];
    time_t now = time(NULL);

    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", gmtime(&now));
    printf("%s, %d SMs, driver %s, CUDA %s, %s\n", b->gpu.name, (int)b->gpu.sm_count,
           b->gpu.driver, b->gpu.cuda_version, when);
    for (int i = 0; i < argc; i++)
        printf("%s%s", i ? " " : "", i ? argv[i] : "bench-gpu");
    printf("\n");
}

static void print_kernels(const struct bench *b)
{
    printf("\n");
    for (size_t i = 0; i < b->n; i++) {
        const struct bench_row *row = &b->results[i].row;
        int seen = 0;

        for (size_t k = 0; k < i; k++)
            seen |= strcmp(b->results[k].row.kernel, row->kernel) == 0 &&
                    *b->results[k].row.version;
        if (!seen && *row->version)
            printf("%s %s\n", row->kernel, row->version);
    }
}

/* A failed series is said and does not stop the others. */
static void series(struct bench *b, const char *limit)
{
    struct hcp_err err = {0};

    if (hcp_worker_stop || run_series(b, limit, &err) == HCP_OK)
        return;
    hcp_cli_report(&err);
    b->failed = 1;
}

static int run(struct bench *b, int argc, char **argv, struct hcp_err *err)
{
    struct bench_options *o = &b->options;
    struct hcp_device_info *gpus = NULL;
    size_t n = 0;
    char reason[512] = "";
    int rc = HCP_OK;

    if (o->sets & 1 << BENCH_LIMITS)
        rc = hcp_mps_start(&b->mps, err);
    if (rc != HCP_OK) { /* the other sets do not need it */
        hcp_cli_report(err);
        o->sets &= ~(1 << BENCH_LIMITS);
        b->failed = 1;
    }
    rc = hcp_worker_list(&gpus, &n, reason, err);
    if (rc == HCP_OK && (size_t)o->device >= n)
        rc = hcp_fail(err, HCP_FAILED, "no CUDA GPU %lld%s%s", (long long)o->device,
                      *reason ? ": " : "", reason);
    if (rc == HCP_OK)
        b->gpu = gpus[o->device];
    free(gpus);
    if (rc != HCP_OK)
        return rc;
    b->at = mmap(NULL, sizeof *b->at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    if (b->at == MAP_FAILED)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    print_head(b, argc, argv);
    series(b, "");
    for (int set = 0; set < BENCH_SETS; set++)
        if (set != BENCH_LIMITS)
            bench_print_set(o, set, b->results, b->n);
    fflush(stdout);
    for (size_t i = 0; i < o->n_limits && o->sets & 1 << BENCH_LIMITS; i++)
        series(b, o->limits[i]);
    bench_print_set(o, BENCH_LIMITS, b->results, b->n);
    bench_print_summary(o, b->results, b->n);
    print_kernels(b);
    return HCP_OK;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct hcp_err err = {0};

    hcp_cli_set_name("bench-gpu");
    if (argc == 2 && strcmp(argv[1], HCP_WORKER_COMMAND) == 0)
        return hcp_worker_main();
    bench_parse(argc, argv, &b.options);
    hcp_worker_catch_signals();
    if (b.options.csv && !(b.csv = fopen(b.options.csv, "w"))) {
        hcp_fail(&err, HCP_FAILED, "%s: %s", b.options.csv, strerror(errno));
        return hcp_cli_report(&err);
    }
    if (b.csv)
        bench_csv_head(b.csv);
    int rc = run(&b, argc, argv, &err);
    if (rc != HCP_OK)
        hcp_cli_report(&err);
    if (b.csv && fclose(b.csv) != 0)
        rc = HCP_FAILED;
    hcp_mps_stop(b.mps);
    return hcp_cli_finish(rc != HCP_OK || b.failed ? HCP_FAILED : HCP_OK);
}
