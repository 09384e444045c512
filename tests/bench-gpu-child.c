/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "kernels/cuda.h"
#include "kernels/preference.h"
#include "profiler/check.h"
#include "profiler/limiter.h"
#include "profiler/stats.h"

enum { FEW = 4 }; /* samples of large slow shapes, of as many rounds each way */

static int write_row(int fd, const struct bench_row *row)
{
    const char *at = (const char *)row;
    size_t left = sizeof *row;

    while (left > 0) {
        ssize_t n = write(fd, at, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}

int bench_send(struct bench_child *c, size_t shape, size_t lane, struct bench_row *row)
{
    struct bench_lane *l = &c->lanes[lane];
    const struct bench_shape *s = &c->job->shapes[shape];
    struct hcp_stats stats;

    row->shape = (int32_t)shape;
    row->lane = (int32_t)lane;
    row->sms = c->device.sm_count;
    snprintf(row->kernel, sizeof row->kernel, "%s", l->name);
    if (l->provider)
        snprintf(row->version, sizeof row->version, "%s", l->provider->version());
    row->time_ms = row->noise = row->tflops = row->gb_per_s = NAN;
    row->sm_mhz = row->power_w = NAN;
    if (*l->why || hcp_stats_summary(l->ms, l->n, &stats) != 0) {
        snprintf(row->error, sizeof row->error, "%s", *l->why ? l->why : "no samples");
        return write_row(c->job->out, row);
    }
    row->n = stats.n;
    row->time_ms = stats.median;
    row->noise = stats.noise;
    row->gb_per_s = bench_bytes(s) / (stats.median * 1e6);
    if (l->provider)
        row->tflops = bench_flops(s) / (stats.median * 1e9);
    bench_watch_read(c->watch, (int)lane, &row->sm_mhz, &row->power_w);
    return write_row(c->job->out, row);
}

/* ---- turns ---------------------------------------------------------------- */

/* Runs of one lane for slice_s seconds, one at least; the lane is out of the race when it
 * fails. */
static int run_lane(struct bench_child *c, size_t lane, double slice_s, int keep,
                    struct hcp_err *err)
{
    struct bench_lane *l = &c->lanes[lane];
    double scratch[256], start = hcp_now_s();
    int room = keep ? BENCH_SAMPLES - l->n : (int)(sizeof scratch / sizeof *scratch);
    int want = l->sample_s > 0 ? (int)fmin(slice_s / l->sample_s, room) : 1;

    if (want < 1)
        want = 1;
    if (want > room)
        return HCP_OK;
    int rc = l->take(l->ctx, want, keep ? l->ms + l->n : scratch, err);
    if (rc != HCP_OK) {
        snprintf(l->why, sizeof l->why, "%.299s", err->text);
        l->timed = 0;
        return !l->provider || l->timer.lost ? rc : HCP_OK;
    }
    l->sample_s = (hcp_now_s() - start) / want;
    if (keep)
        l->n += want;
    return HCP_OK;
}

/* A turn begins with runs that do not count: under the power limit the clock that it
 * finds is what the kernel before it left. Runs that are long themselves do without. */
static int turn(struct bench_child *c, size_t lane, double slice_s, int keep,
                struct hcp_err *err)
{
    struct bench_lane *l = &c->lanes[lane];
    double lead_s = slice_s / 4;
    int rc = HCP_OK;

    c->job->at->lane = (int32_t)lane;
    if (keep && l->sample_s < lead_s)
        rc = run_lane(c, lane, lead_s, 0, err);
    bench_watch_lane(c->watch, (int)lane);
    if (rc == HCP_OK && l->timed)
        rc = run_lane(c, lane, slice_s, keep, err);
    bench_watch_lane(c->watch, -1);
    return rc;
}

/* There and back, so that no kernel always follows the same one: behind one that draws
 * less power it would find a higher clock each time. */
static int round_of_turns(struct bench_child *c, int number, double slice_s, int keep,
                          struct hcp_err *err)
{
    for (size_t i = 0; i < c->n_lanes; i++) {
        size_t lane = number % 2 ? c->n_lanes - 1 - i : i;
        int rc = c->lanes[lane].timed ? turn(c, lane, slice_s, keep, err) : HCP_OK;

        if (rc != HCP_OK)
            return rc;
    }
    return HCP_OK;
}

static int fewest_samples(const struct bench_child *c)
{
    int n = BENCH_SAMPLES;

    for (size_t i = 0; i < c->n_lanes; i++)
        if (c->lanes[i].timed && c->lanes[i].n < n)
            n = c->lanes[i].n;
    return n;
}

int bench_take_turns(struct bench_child *c, struct hcp_err *err)
{
    const struct bench_options *o = c->job->options;
    double warm_s = c->warm ? 0.1 : 1, start = hcp_now_s();
    int rounds = 2 * (int)ceil(o->time_s / o->slice_s / 2), rc = HCP_OK;

    for (size_t i = 0; i < c->n_lanes; i++) {
        c->lanes[i].n = 0;
        c->lanes[i].sample_s = 0;
    }
    for (int i = 0; rc == HCP_OK && (i == 0 || hcp_now_s() - start < warm_s); i++)
        rc = round_of_turns(c, i, 0.02, 0, err);
    c->warm = 1;
    bench_watch_reset(c->watch);
    for (int i = 0; rc == HCP_OK && (i < rounds || fewest_samples(c) < FEW || i % 2) &&
                    !hcp_device_cancel;
         i++)
        rc = round_of_turns(c, i, o->slice_s, 1, err);
    return rc;
}

/* ---- a class of shapes ---------------------------------------------------- */

static void close_lane(struct bench_lane *l)
{
    if (l->open && l->provider) {
        hcp_cuda_timer_close(&l->timer);
        hcp_bench_close(&l->bench);
    }
    l->open = 0;
}

static int is_decode(const struct bench_shape *s)
{
    const hcp_attn_problem p = {.q_len = s->q_len};

    return hcp_is_decode(&p);
}

static int same_class(const struct bench_shape *a, const struct bench_shape *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->batch == b->batch &&
           a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim && is_decode(a) == is_decode(b);
}

/* What is wrong is not timed. Heads and batch do not matter. */
static void check(struct bench_child *c, struct bench_lane *l,
                  const struct bench_shape *s)
{
    double o_error;
    char why[300];

    for (int i = 0; i < l->n_passed; i++)
        if (strcmp(l->passed[i]->dtype, s->dtype) == 0 &&
            l->passed[i]->head_dim == s->head_dim &&
            is_decode(l->passed[i]) == is_decode(s))
            return;
    if (hcp_check_class(l->provider, c->runtime, &c->device, &l->bench.shape, &o_error,
                        why, sizeof why) != 0)
        snprintf(l->why, sizeof l->why, "fails its check: %.280s", why);
    else if (l->n_passed < (int)(sizeof l->passed / sizeof *l->passed))
        l->passed[l->n_passed++] = s;
}

/* HCP_FAILED: the device is lost. */
static int open_lane(struct bench_child *c, size_t lane, const struct bench_shape *s,
                     struct hcp_err *err)
{
    struct bench_lane *l = &c->lanes[lane];
    const struct bench_job *job = c->job;
    struct hcp_device_config config = {.batch = s->batch,
                                       .heads = s->heads,
                                       .kv_heads = s->kv_heads,
                                       .head_dim = s->head_dim};
    struct hcp_device_info info = c->info;

    snprintf(config.provider, sizeof config.provider, "%s", l->name);
    snprintf(config.plugin, sizeof config.plugin, "%s",
             job->options->plugin ? job->options->plugin : "");
    snprintf(config.dtype, sizeof config.dtype, "%s", s->dtype);
    strcpy(config.phase, is_decode(s) ? "decode" : "prefill");
    l->why[0] = 0;
    job->at->lane = (int32_t)lane;
    int rc = hcp_bench_open(&l->bench, &config, c->runtime, &c->device, c->cold_bytes,
                            &info, err);
    if (rc == HCP_OK) {
        rc = hcp_cuda_timer_open(&l->timer, &l->bench, err);
        l->open = 1;
        l->take = hcp_cuda_timer_take;
        l->ctx = &l->timer;
    }
    if (rc != HCP_OK) {
        snprintf(l->why, sizeof l->why, "%.299s", err->text);
        return l->open && l->timer.lost ? rc : HCP_OK;
    }
    if (!*job->limit)
        check(c, l, s);
    /* A kernel that broke the device did so here: nothing works from now on. */
    if (c->runtime->sync(l->bench.stream) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", c->runtime->last_error());
    return HCP_OK;
}

static int open_class(struct bench_child *c, const struct bench_shape *s,
                      struct hcp_err *err)
{
    int rc = HCP_OK;

    for (size_t i = 0; i < c->n_lanes; i++)
        close_lane(&c->lanes[i]);
    for (size_t i = 0; i < c->n_lanes && rc == HCP_OK; i++)
        if (c->lanes[i].provider && !(c->job->skip >> i & 1))
            rc = open_lane(c, i, s, err);
    return rc;
}

/* ---- shapes --------------------------------------------------------------- */

static int time_block(struct bench_child *c, size_t shape, struct hcp_err *err)
{
    const struct bench_shape *s = &c->job->shapes[shape];
    struct hcp_cell_request cell = {.q_len = s->q_len, .kv_len = s->kv_len};
    struct bench_lane *copy = &c->lanes[c->n_lanes - 1];
    struct bench_copy *pair = NULL;
    int rc = HCP_OK;

    strcpy(cell.mask, s->causal ? "causal" : "full");
    for (size_t i = 0; i < c->n_lanes && rc == HCP_OK; i++) {
        struct bench_lane *l = &c->lanes[i];

        l->timed = 0;
        if (!l->provider || !l->open || *l->why)
            continue;
        c->job->at->lane = (int32_t)i;
        hcp_cuda_timer_reset(&l->timer);
        l->timed = hcp_bench_prepare(&l->bench, &cell, &l->plan, err) == HCP_OK &&
                   hcp_cuda_timer_begin(&l->timer, l->plan, err) == HCP_OK;
        if (!l->timed) {
            snprintf(l->why, sizeof l->why, "%.299s", err->text);
            rc = l->timer.lost ? HCP_FAILED : HCP_OK;
        }
    }
    if (rc == HCP_OK && is_decode(s) && !(c->job->skip >> (c->n_lanes - 1) & 1)) {
        c->job->at->lane = (int32_t)c->n_lanes - 1;
        rc = bench_copy_new((int64_t)bench_bytes(s), &pair, err);
        copy->take = bench_copy_take;
        copy->ctx = pair;
        copy->timed = rc == HCP_OK;
    }
    if (rc == HCP_OK)
        rc = bench_take_turns(c, err);
    for (size_t i = 0; i < c->n_lanes && rc == HCP_OK; i++) {
        struct bench_lane *l = &c->lanes[i];
        struct bench_row row = {.o_error = NAN};
        struct hcp_cell_facts facts;

        if (!l->timed && !*l->why)
            continue;
        if (l->timed && l->provider) {
            hcp_cell_facts_init(&facts);
            hcp_bench_facts(&l->bench, l->plan, &facts);
            snprintf(row.config, sizeof row.config, "%s", facts.provider_config);
        }
        rc = bench_send(c, shape, i, &row) ? hcp_fail(err, HCP_FAILED, "pipe") : HCP_OK;
        /* What was wrong with this shape need not be wrong with the next. */
        if (l->open && strncmp(l->why, "fails", 5) != 0)
            l->why[0] = 0;
    }
    bench_copy_free(pair);
    return rc;
}

static int run_shapes(struct bench_child *c, struct hcp_err *err)
{
    const struct bench_job *job = c->job;
    int rc = HCP_OK;

    for (size_t i = job->first; i < job->n_shapes && rc == HCP_OK; i++) {
        const struct bench_shape *s = &job->shapes[i];

        job->at->shape = (int32_t)i;
        if (hcp_device_cancel)
            return hcp_fail(err, HCP_FAILED, "stopped");
        if (i == job->first || !same_class(s, s - 1))
            rc = open_class(c, s, err);
        if (rc == HCP_OK)
            job->at->lane = -1;
        if (rc == HCP_OK)
            rc = s->blocks ? bench_ring(c, i, err) : time_block(c, i, err);
    }
    if (rc == HCP_OK)
        job->at->shape = (int32_t)job->n_shapes;
    return rc;
}

/* ---- the process ---------------------------------------------------------- */

static int is_listed(const char *name, const char *list)
{
    size_t len = strlen(name);

    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || !at[len]))
            return 1;
    return 0;
}

static int make_lanes(struct bench_child *c, struct hcp_err *err)
{
    const struct bench_options *o = c->job->options;
    char why[700];
    int used = 0;

    if (hcp_registry_open(&c->device, o->plugin, &c->registry, why, sizeof why))
        return hcp_fail(err, HCP_FAILED, "%s", why);
    c->n_lanes = hcp_registry_count(c->registry) + 1;
    if (c->n_lanes > BENCH_LANES)
        return hcp_fail(err, HCP_FAILED, "more than %d kernels", BENCH_LANES - 1);
    for (size_t i = 0; i < c->n_lanes; i++) {
        struct bench_lane *l = &c->lanes[i];
        const hcp_provider *p = hcp_registry_at(c->registry, i);

        l->ms = malloc(BENCH_SAMPLES * sizeof *l->ms);
        if (!l->ms)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        snprintf(l->name, sizeof l->name, "%s", p ? p->name : "copy");
        if (p && (o->providers ? is_listed(p->name, o->providers)
                               : strcmp(p->name, "cuda-reference") != 0)) {
            l->provider = p;
            used++;
        }
    }
    return used ? HCP_OK
                : hcp_fail(err, HCP_FAILED,
                           "no kernel of this name; 'hcp-profile "
                           "devices' lists those that are here");
}

static int open_device(struct bench_child *c, struct hcp_err *err)
{
    const struct bench_job *job = c->job;
    hcp_cuda_info cuda = {.size = sizeof cuda};
    char why[700], kind[8];
    int32_t percent = 0;

    c->device.size = sizeof c->device;
    if (hcp_cuda_device(0, &c->device, &cuda, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    int rc = hcp_parse_limit(job->limit, kind, &percent, err);
    if (rc == HCP_OK && *kind)
        rc = hcp_mps_prove(percent, cuda.mps_enabled, cuda.sm_count, job->sm_count,
                           job->mps_pipe, job->mps_log, err);
    else if (rc == HCP_OK && cuda.mps_enabled)
        rc = hcp_fail(err, HCP_FAILED,
                      "the whole device is asked for, but this process "
                      "is a client of an MPS daemon");
    if (rc != HCP_OK)
        return rc;
    c->runtime = hcp_runtime_cuda();
    if (c->runtime->select(0) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", c->runtime->last_error());
    c->cold_bytes = 2 * cuda.l2_bytes;
    c->watch = bench_watch_start(cuda.uuid);
    return make_lanes(c, err);
}

static void on_term(int number)
{
    (void)number;
    hcp_device_cancel = 1;
}

int bench_child(const struct bench_job *job)
{
    struct bench_child c = {.job = job};
    struct hcp_err err = {0};
    char kind[8];
    int32_t percent = 0;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGTERM, on_term);
    signal(SIGINT, SIG_IGN); /* the parent's: it ends us in order */
    int rc = hcp_parse_limit(job->limit, kind, &percent, &err);
    if (rc == HCP_OK && *kind) {
        rc = hcp_mps_client_env(job->mps_pipe, job->mps_log, percent, job->uuid, &err);
    } else {
        unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
        setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
        setenv("CUDA_VISIBLE_DEVICES", job->uuid, 1);
    }
    if (rc == HCP_OK)
        rc = open_device(&c, &err);
    int opened = rc == HCP_OK;
    if (rc == HCP_OK)
        rc = run_shapes(&c, &err);
    if (rc != HCP_OK) {
        struct bench_row row = {.shape = opened ? job->at->shape : -1,
                                .lane = opened ? job->at->lane : -1,
                                .sms = c.device.sm_count,
                                .time_ms = NAN};

        if (row.lane >= 0)
            snprintf(row.kernel, sizeof row.kernel, "%s", c.lanes[row.lane].name);
        snprintf(row.error, sizeof row.error, "%.299s", err.text);
        write_row(job->out, &row);
        bench_watch_stop(c.watch);
        return 1; /* a device that is lost is not tidied up */
    }
    for (size_t i = 0; i < c.n_lanes; i++) {
        close_lane(&c.lanes[i]);
        free(c.lanes[i].ms);
    }
    bench_watch_stop(c.watch);
    hcp_registry_close(c.registry);
    return 0;
}
