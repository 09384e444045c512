/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "db/cli.h"
#include "profiler/commands.h"
#include "profiler/limiter.h"
#include "profiler/worker.h"

/* What a limiter does here: works, or why not. */
struct limiter_state {
    int works;
    char text[1024];
};

static const struct {
    const char *name, *value;
} limiters[] = {{"mps", "PCT"}, {"green", "SMS"}, {"cpu", "PCT"}};

struct here {
    struct hcp_device_info *gpus, cpu;
    size_t n_gpus, n_kernels;
    struct hcp_kernel_info *kernels;
    char no_gpu[512];
    int cores;
    struct limiter_state mps, green, duty;
};

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "Report as JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'", arg);
    if (key != 'j')
        return ARGP_ERR_UNKNOWN;
    *(int *)state->input = 1;
    return 0;
}

/* Opens the first GPU under a limit; says how many SMs that gave, or why it did not. */
static void try_limit(const struct here *here, struct hcp_device_config *config,
                      struct limiter_state *s)
{
    struct hcp_err err = {0};
    hcp_device *device = NULL;
    config->batch = 1;
    config->heads = 32;
    config->kv_heads = 8;
    config->head_dim = 128;
    config->sm_count = here->gpus[0].sm_count;
    strcpy(config->spec, "cuda:0");
    strcpy(config->dtype, "bf16");
    strcpy(config->device_uuid, here->gpus[0].uuid);
    s->works = hcp_device_worker_ops.open(config, &device, &err) == HCP_OK;
    if (s->works) {
        snprintf(s->text, sizeof s->text, "%s gives %d of %d SMs on cuda:0",
                 config->limit, device->info.sm_seen, device->info.sm_count);
        device->ops->close(device);
    } else {
        snprintf(s->text, sizeof s->text, "%.1000s", err.text);
    }
}

/* Starts a daemon of our own and, where there is a GPU, a client under half of it. */
static void try_mps(struct here *here)
{
    struct hcp_device_config config = {.limit = "mps:50"};
    struct hcp_err err = {0};
    hcp_mps *mps = NULL;
    struct limiter_state *s = &here->mps;
    if (hcp_mps_start(&mps, &err) != HCP_OK) {
        snprintf(s->text, sizeof s->text, "%.1000s", err.text);
        return;
    }
    snprintf(config.mps_pipe, sizeof config.mps_pipe, "%s", hcp_mps_pipe_dir(mps));
    snprintf(config.mps_log, sizeof config.mps_log, "%s", hcp_mps_log_dir(mps));
    if (here->n_gpus == 0)
        snprintf(s->text, sizeof s->text,
                 "the daemon starts, but there is no CUDA GPU: %.900s", here->no_gpu);
    else
        try_limit(here, &config, s);
    hcp_mps_stop(mps);
}

/* A green context of about half of the first GPU. */
static void try_green(struct here *here)
{
    struct hcp_device_config config = {0};
    struct limiter_state *s = &here->green;
    if (here->n_gpus == 0) {
        snprintf(s->text, sizeof s->text, "there is no CUDA GPU: %.900s", here->no_gpu);
        return;
    }
    const struct hcp_device_info *gpu = &here->gpus[0];
    const struct hcp_green_rule rule = {gpu->sm_count, gpu->green_min, gpu->green_step,
                                        gpu->green_most};
    if (rule.step <= 0) {
        snprintf(s->text, sizeof s->text, "%s", gpu->no_green);
        return;
    }
    snprintf(config.limit, sizeof config.limit, "green:%d", hcp_green_near(&rule, 50));
    try_limit(here, &config, s);
    size_t n = strlen(s->text);
    if (s->works)
        snprintf(s->text + n, sizeof s->text - n, "; from %d to %d in steps of %d, or %d",
                 rule.min, rule.most, rule.step, rule.sm_count);
}

/* Half a core for a child that would use a whole one, for 0.4 s. */
static void try_duty_cycle(struct limiter_state *s)
{
    struct hcp_err err = {0};
    hcp_throttle *throttle = NULL;
    clockid_t clock;
    struct timespec used = {0, 0};
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        volatile double x = 1;
        while (getppid() == parent)
            for (int i = 0; i < 10000; i++)
                x = x * 1.0000001;
        _exit(0);
    }
    if (pid < 0 || hcp_throttle_start(pid, 50, &throttle, &err) != HCP_OK) {
        snprintf(s->text, sizeof s->text, "%.1000s", pid < 0 ? "cannot fork" : err.text);
    } else {
        double start = hcp_now_s();
        struct timespec t = {0, 400000000};
        nanosleep(&t, NULL);
        double wall = hcp_now_s() - start;
        if (clock_getcpuclockid(pid, &clock) == 0)
            clock_gettime(clock, &used);
        double share = 100 * ((double)used.tv_sec + 1e-9 * (double)used.tv_nsec) / wall;
        s->works = share < 55;
        snprintf(
            s->text, sizeof s->text, "cpu:50 gave a test process %.1f %% of a core%s",
            share,
            share > 45
                ? ""
                : "; other programs take the rest, measure when the machine is idle");
    }
    hcp_throttle_stop(throttle);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

static int look(struct here *here, struct hcp_err *err)
{
    int rc = hcp_worker_list(&here->gpus, &here->n_gpus, here->no_gpu, err);
    if (rc == HCP_OK)
        rc = hcp_worker_kernels(&here->kernels, &here->n_kernels, err);
    if (rc != HCP_OK)
        return rc;
    struct hcp_device_info *cpu = &here->cpu;
    hcp_cpu_describe(cpu->name, cpu->uuid, &cpu->l2_bytes, &cpu->memory_bytes,
                     &here->cores);
    hcp_device_slug(cpu->name, cpu->slug, sizeof cpu->slug);
    cpu->sm_count = here->cores;
    try_mps(here);
    try_green(here);
    try_duty_cycle(&here->duty);
    return HCP_OK;
}

static void device_row(hcp_table *t, const char *spec, const struct hcp_device_info *d,
                       const char *unit)
{
    hcp_table_row(t);
    hcp_table_cell(t, "%s", spec);
    hcp_table_cell(t, "%s", d->slug);
    hcp_table_cell(t, "%s", d->name);
    hcp_table_cell(t, "%d %s", (int)d->sm_count, unit);
    hcp_table_cell(t, "%.1f GB", 1e-9 * (double)d->memory_bytes);
    hcp_table_cell(t, "%s", *d->driver ? d->driver : "-");
    hcp_table_cell(t, "%s", d->uuid);
}

static hcp_table *new_table(const char *const *columns, size_t n)
{
    hcp_table *t = hcp_table_new();
    for (size_t i = 0; i < n; i++)
        hcp_table_column(t, columns[i], 0);
    return t;
}

static void spec_of(int gpu, char spec[16])
{
    if (gpu < 0)
        strcpy(spec, "cpu");
    else
        snprintf(spec, 16, "cuda:%d", gpu);
}

static void print_text(const struct here *here)
{
    static const char *const device_columns[] = {
        "device", "name", "vendor's name", "size", "memory", "driver", "uuid"};
    static const char *const kernel_columns[] = {"device", "kernel", "version", "usable"};
    static const char *const limiter_columns[] = {"limit", "works", "what was seen"};
    char spec[16];
    hcp_table *t = new_table(device_columns, 7);
    for (size_t i = 0; i < here->n_gpus; i++) {
        spec_of((int)i, spec);
        device_row(t, spec, &here->gpus[i], "SMs");
    }
    device_row(t, "cpu", &here->cpu, here->cores == 1 ? "core" : "cores");
    hcp_table_print(t, stdout);
    if (here->n_gpus == 0)
        printf("no CUDA GPU: %s\n", here->no_gpu);

    putchar('\n');
    t = new_table(kernel_columns, 4);
    for (size_t i = 0; i < here->n_kernels; i++) {
        const struct hcp_kernel_info *k = &here->kernels[i];
        spec_of(k->gpu, spec);
        hcp_table_row(t);
        hcp_table_cell(t, "%s", spec);
        hcp_table_cell(t, "%s", k->name);
        hcp_table_cell(t, "%s", k->version);
        hcp_table_cell(t, "%s%s", k->usable ? "yes" : "no: ", k->reason);
    }
    hcp_table_print(t, stdout);

    putchar('\n');
    t = new_table(limiter_columns, 3);
    const struct limiter_state *states[] = {&here->mps, &here->green, &here->duty};
    for (int i = 0; i < 3; i++) {
        hcp_table_row(t);
        hcp_table_cell(t, "%s:%s", limiters[i].name, limiters[i].value);
        hcp_table_cell(t, "%s", states[i]->works ? "yes" : "no");
        hcp_table_cell(t, "%s", states[i]->text);
    }
    hcp_table_print(t, stdout);
}

static json_t *device_json(const char *spec, int gpu, const struct hcp_device_info *d,
                           const struct here *here)
{
    json_t *kernels = json_array(), *doc = json_object();
    for (size_t i = 0; i < here->n_kernels; i++) {
        const struct hcp_kernel_info *k = &here->kernels[i];
        if (k->gpu == gpu)
            json_array_append_new(
                kernels, json_pack("{s:s, s:s, s:b, s:s}", "name", k->name, "version",
                                   k->version, "usable", k->usable, "reason", k->reason));
    }
    json_object_set_new(doc, "device", json_string(spec));
    json_object_set_new(doc, "name", json_string(d->slug));
    json_object_set_new(doc, "vendor_name", json_string(d->name));
    json_object_set_new(doc, "uuid", json_string(d->uuid));
    json_object_set_new(doc, gpu < 0 ? "cores" : "sm_count", json_integer(d->sm_count));
    json_object_set_new(doc, "memory_bytes", json_integer(d->memory_bytes));
    json_object_set_new(doc, "driver", *d->driver ? json_string(d->driver) : json_null());
    json_object_set_new(doc, "cuda_version",
                        *d->cuda_version ? json_string(d->cuda_version) : json_null());
    json_object_set_new(doc, "kernels", kernels);
    return doc;
}

static void print_json(const struct here *here)
{
    json_t *devices = json_array(), *doc = json_object(), *tried = json_array();
    char spec[16];
    for (size_t i = 0; i < here->n_gpus; i++) {
        spec_of((int)i, spec);
        json_array_append_new(devices, device_json(spec, (int)i, &here->gpus[i], here));
    }
    json_array_append_new(devices, device_json("cpu", -1, &here->cpu, here));
    const struct limiter_state *states[] = {&here->mps, &here->green, &here->duty};
    for (int i = 0; i < 3; i++)
        json_array_append_new(
            tried, json_pack("{s:s, s:b, s:s}", "limit", limiters[i].name, "works",
                             states[i]->works, "text", states[i]->text));
    json_object_set_new(doc, "schema", json_integer(1));
    json_object_set_new(doc, "devices", devices);
    json_object_set_new(doc, "no_cuda_reason",
                        here->n_gpus ? json_null() : json_string(here->no_gpu));
    json_object_set_new(doc, "limiters", tried);
    hcp_json_print(doc, stdout);
}

int cmd_devices(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "",
        "Lists the devices of this machine, the attention kernels on each, and which "
        "limits work: each limiter is tried, with a private MPS daemon, a green context "
        "and a test process.",
        NULL,
        NULL,
        NULL};
    int json = 0;
    struct here here = {0};
    struct hcp_err err = {0};
    if (argp_parse(&argp, argc, argv, 0, NULL, &json))
        return HCP_USAGE;
    int rc = look(&here, &err);
    if (rc != HCP_OK)
        hcp_cli_report(&err);
    else if (json)
        print_json(&here);
    else
        print_text(&here);
    free(here.gpus);
    free(here.kernels);
    return hcp_cli_finish(rc);
}
