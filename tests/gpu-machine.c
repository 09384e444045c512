/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-profile run on a machine whose GPU is a fake, everywhere: the CUDA device, its
 * worker, the MPS limiter, the clocks and the cross-check are the program's own; the
 * runtime, the timer and the kernel are the CPU's, and NVML, CUPTI and the MPS daemon are
 * fake-nvml.c, fake-cupti.c and fake-mps-control, found as the real ones are. Time passes
 * for a worker by what its card does, not by the clock of the machine that runs it.
 *
 * The GPU has 132 SMs. A process that finds a daemon in its pipe directory has the part
 * that its percentage says; one that finds none has all of them, and no error.
 *   $FAKE_CUDA_PIPE  directory of pipes that clients look into instead
 *   $FAKE_CUDA_SMS   SMs that clients see instead
 *   $FAKE_CUDA_FAIL  CODE@Q_LEN: blocks of so many queries end with this CUDA error; each
 *                    time, or once, if $FAKE_CUDA_ONCE is a file that can be made
 *   $FAKE_CUDA_GONE  a file: while it is there, CUDA finds no GPU. A failure with
 *                    $FAKE_CUDA_TAKES=1 makes it
 *   $FAKE_CUDA_HANG  Q_LEN: blocks of so many queries never end, SIGTERM does nothing;
 *                    or mps: nor does the first call of a client of a daemon
 *   $FAKE_CUDA_STAY  Q_LEN@FILE: visits of blocks of so many queries last as long as that
 *                    file is there, or until the process is asked to end
 *   $FAKE_CUDA_CHECK  fail or crash: what the kernel does when its conformance is
 *                    checked; with $FAKE_CUDA_TAKES as $FAKE_CUDA_FAIL
 *   $FAKE_CUDA_LOG   a file that gets a line "q_len kv_len" for each visit of a block,
 * and "settled" where a process has waited for its work before it ends
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "db/cli.h"
#include "kernels/cuda.h"
#include "kernels/registry.h"
#include "kernels/runtime.h"
#include "profiler/commands.h"
#include "profiler/cuda-timer.h"
#include "profiler/limiter.h"
#include "profiler/worker.h"
#include "tests/fake-cupti.h"
#include "tests/fake-nvml.h"

static int last_code;

int hcp_cuda_last_code(void)
{
    return last_code;
}

int hcp_cuda_is_mps_error(int cuda_error)
{
    return cuda_error >= 805 && cuda_error <= 810;
}

const char *hcp_cuda_explain(int cuda_error, char *text, size_t text_size)
{
    snprintf(text, text_size, "CUDA error %d", cuda_error);
    return text;
}

static int fail(int code, char *err, size_t err_size)
{
    last_code = code;
    hcp_cuda_explain(code, err, err_size);
    return HCP_RC_DEVICE;
}

/* The client's side of MPS: a daemon in the pipe directory, or nothing. */
static int mps_percent(void)
{
    char path[256];
    int pid = 0;
    const char *pipes = getenv("FAKE_CUDA_PIPE");
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    pipes = pipes ? pipes : getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof path, "%s/pid", pipes ? pipes : "/tmp/nvidia-mps");
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid > 0 && kill(pid, 0) == 0 ? atoi(percent ? percent : "100") : 0;
}

static void maybe_hang(const char *where)
{
    const char *hang = getenv("FAKE_CUDA_HANG");
    if (!hang || strcmp(hang, where) != 0)
        return;
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

int hcp_cuda_device_count(int *count, char *err, size_t err_size)
{
    const char *gone = getenv("FAKE_CUDA_GONE");
    *count = !gone || access(gone, F_OK) != 0;
    return *count ? HCP_RC_OK : fail(100, err, err_size);
}

int hcp_cuda_device(int ordinal, hcp_device_ref *out, hcp_cuda_info *info, char *err,
                    size_t err_size)
{
    int count, percent = mps_percent();
    const char *sms = getenv("FAKE_CUDA_SMS");
    int rc = hcp_cuda_device_count(&count, err, err_size);
    if (rc != HCP_RC_OK)
        return rc;
    if (percent > 0)
        maybe_hang("mps");
    *info = (hcp_cuda_info){.size = sizeof *info,
                            .name = "Fake H200",
                            .uuid = "GPU-00000000-fake",
                            .cc_major = 9,
                            .sm_count = percent > 0 ? 132 * percent / 200 * 2 : 132,
                            .mps_enabled = percent > 0,
                            .driver_version = 13000,
                            .runtime_version = 13000,
                            .memory_bytes = (int64_t)1 << 34,
                            .l2_bytes = 1 << 18};
    if (sms && percent > 0)
        info->sm_count = atoi(sms);
    *out = (hcp_device_ref){.size = sizeof *out,
                            .kind = HCP_DEVICE_CUDA,
                            .ordinal = ordinal,
                            .cc_major = 9,
                            .sm_count = info->sm_count};
    return HCP_RC_OK;
}

const hcp_runtime *hcp_runtime_cuda(void)
{
    static hcp_runtime runtime;
    runtime = *hcp_runtime_cpu();
    runtime.kind = HCP_DEVICE_CUDA;
    return &runtime;
}

/* It has no green contexts. */
int hcp_green_limit(int ordinal, int sms, int mps_enabled, hcp_green **out,
                    struct hcp_err *err)
{
    (void)ordinal, (void)mps_enabled, (void)out;
    return hcp_fail(err, HCP_FAILED, "no green context of %d SMs here", sms);
}

void hcp_green_unlimit(hcp_green *green)
{
    (void)green;
}

/* ---- the worker's time ------------------------------------------------------ */

/* Seconds; 0: not a worker that times blocks, the clock is the machine's. It goes on when
 * the card works, when it is let rest, and a little whenever it is read. */
static double card_s;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    if (card_s == 0 || id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, t);
    card_s += 1e-7;
    *t = (struct timespec){(time_t)card_s, (long)(1e9 * fmod(card_s, 1))};
    return 0;
}

int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    if (card_s == 0)
        return __real_nanosleep(t, left);
    card_s += (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
    return 0;
}

static double card_now_s(void)
{
    return card_s;
}

/* ---- the kernel: the CPU's ------------------------------------------------ */

static const hcp_device_ref cpu = {
    .size = sizeof cpu, .kind = HCP_DEVICE_CPU, .sm_count = 1};

static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    (void)device;
    return hcp_provider_cpu()->query(&cpu, problem, out);
}

static void take_gpu(void)
{
    const char *gone = getenv("FAKE_CUDA_GONE");
    if (getenv("FAKE_CUDA_TAKES") && gone)
        close(open(gone, O_CREAT | O_WRONLY, 0600));
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    const char *check = getenv("FAKE_CUDA_CHECK");
    (void)device;
    if (check && problem->q_len == 129) {
        take_gpu();
        if (strcmp(check, "crash") == 0)
            raise(SIGKILL);
        return HCP_RC_DEVICE;
    }
    return hcp_provider_cpu()->plan_create(&cpu, problem, out);
}

/* What large blocks would come to is not looked at, and how long they take is the timer's
 * to say. */
static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    return args->q_len * args->kv_len > 1 << 20
               ? HCP_RC_OK
               : hcp_provider_cpu()->run(plan, args, stream);
}

static const hcp_provider *kernel(void)
{
    static hcp_provider provider;
    provider = *hcp_provider_cpu();
    provider.name = "fake";
    provider.run = run;
    provider.device_kinds = HCP_DEVICE_CUDA;
    provider.query = query;
    provider.plan_create = plan_create;
    return &provider;
}

/* In the place of kernels/builtins.c. */
int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size)
{
    static const hcp_provider_ctor all[] = {kernel, hcp_provider_cpu};
    return hcp_registry_open_with(device, all, 2, plugin_path, out, err, err_size);
}

/* ---- the timer: its clock goes on by what the kernel would take ------------- */

static void *function(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return handle ? dlsym(handle, name) : NULL;
}

/* At 1980 MHz on all SMs: 10 us and 4 us per 1,000 pairs. */
static double run_ms(const struct hcp_cuda_timer *t)
{
    const struct hcp_bench_plan *p = t->plan;
    double (*mhz)(void) =
        (double (*)(void))function("libnvidia-ml.so.1", "fake_nvml_sm_mhz");
    double pairs = (double)p->q_len * (double)(p->kv_len > 0 ? p->kv_len : 1);
    double part = t->bench->device.sm_count / 132.0;
    return (0.01 + 4e-6 * pairs / part) * 1980 / (mhz ? mhz() : 1980);
}

int hcp_cuda_timer_fail(struct hcp_cuda_timer *t, int code, const char *doing,
                        struct hcp_err *err)
{
    char text[64];
    last_code = code;
    t->lost = hcp_cuda_is_mps_error(code) ? HCP_DEVICE_LOST_RETRY : HCP_DEVICE_LOST;
    return hcp_fail(err, HCP_FAILED, "cannot %s: %s", doing,
                    hcp_cuda_explain(code, text, sizeof text));
}

/* The error that was asked for, if this is where it comes. */
static int fault(int64_t q_len)
{
    const char *text = getenv("FAKE_CUDA_FAIL"), *once = getenv("FAKE_CUDA_ONCE");
    const char *at = text ? strchr(text, '@') : NULL;
    if (!at || atoll(at + 1) != q_len)
        return 0;
    int fd = once ? open(once, O_CREAT | O_EXCL | O_WRONLY, 0600) : -1;
    if (once && fd < 0)
        return 0;
    if (fd >= 0)
        close(fd);
    take_gpu();
    return atoi(text);
}

static void report(const char *line)
{
    const char *path = getenv("FAKE_CUDA_LOG");
    int fd = path ? open(path, O_CREAT | O_APPEND | O_WRONLY, 0600) : -1;
    if (fd >= 0 && dprintf(fd, "%s\n", line) > 0)
        close(fd);
}

/* A visit that is to last does. */
static void maybe_stay(int64_t q_len)
{
    const char *text = getenv("FAKE_CUDA_STAY");
    const char *at = text ? strchr(text, '@') : NULL;
    if (!at || atoll(text) != q_len)
        return;
    while (!hcp_device_cancel && access(at + 1, F_OK) == 0)
        __real_nanosleep(&(struct timespec){0, 10000000}, NULL);
}

int hcp_cuda_timer_open(struct hcp_cuda_timer *t, struct hcp_bench *bench,
                        struct hcp_err *err)
{
    void (*use_clock)(double (*)(void)) =
        (void (*)(double (*)(void)))function("libnvidia-ml.so.1", "fake_nvml_use_clock");
    (void)err;
    *t = (struct hcp_cuda_timer){.bench = bench};
    card_s = 1000;
    if (use_clock)
        use_clock(card_now_s);
    return HCP_OK;
}

void hcp_cuda_timer_reset(struct hcp_cuda_timer *t)
{
    t->n_graphs = 0;
}

int hcp_cuda_timer_begin(struct hcp_cuda_timer *t, struct hcp_bench_plan *plan,
                         struct hcp_err *err)
{
    char line[64];
    t->plan = plan;
    t->first_ms = run_ms(t);
    snprintf(line, sizeof line, "%lld %lld", (long long)plan->q_len,
             (long long)plan->kv_len);
    if (!plan->finish)
        report(line);
    char q_len[24];
    snprintf(q_len, sizeof q_len, "%lld", (long long)plan->q_len);
    if (!plan->finish)
        maybe_hang(q_len);
    maybe_stay(plan->q_len);
    int code = plan->finish ? 0 : fault(plan->q_len);
    if (code)
        return hcp_cuda_timer_fail(t, code, "run the kernel", err);
    int rc = hcp_bench_run(t->bench, plan);
    return rc == HCP_RC_OK ? HCP_OK : hcp_bench_fail(t->bench, rc, "run", err);
}

int hcp_cuda_timer_take(void *ctx, int n, double *ms, struct hcp_err *err)
{
    struct hcp_cuda_timer *t = ctx;
    void (*work)(double) =
        (void (*)(double))function("libnvidia-ml.so.1", "fake_nvml_work");
    (void)err;
    for (int i = 0; i < n; i++) {
        ms[i] = run_ms(t);
        card_s += ms[i] / 1e3;
        if (work)
            work(ms[i]);
    }
    if (t->meanwhile)
        t->meanwhile(t->meanwhile_ctx);
    return HCP_OK;
}

/* CUPTI's launches are the only ones that end here. */
int hcp_cuda_timer_sync(struct hcp_cuda_timer *t)
{
    void (*record)(double) =
        (void (*)(double))function("libcupti.so.13", "fake_cupti_kernel");
    int runs = t->first_ms >= HCP_SLOW_MS ? 1 : 3;
    for (int i = 0; i < runs && record; i++)
        record(run_ms(t));
    return 0;
}

void hcp_cuda_timer_settle(void)
{
    report("settled");
}

void hcp_cuda_timer_close(struct hcp_cuda_timer *t)
{
    (void)t;
}

int main(int argc, char **argv)
{
    static const struct hcp_command commands[] = {{"run", cmd_run, "measure"},
                                                  {NULL, NULL, NULL}};
    if (argc == 2 && strcmp(argv[1], HCP_WORKER_COMMAND) == 0)
        return hcp_worker_main();
    return hcp_cli_main("hcp-profile", commands, argc, argv);
}
