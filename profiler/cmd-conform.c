/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance set on one kernel or on all of a device, without timing anything: for
 * who writes a kernel. A child process does the work, so that a kernel that crashes is
 * reported like one that is wrong.
 */
#include "config.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "db/cli.h"
#include "kernels/conformance.h"
#include "kernels/cuda.h"
#include "profiler/commands.h"
#include "profiler/device.h"
#include "profiler/limiter.h"
#include "profiler/progress.h"

enum { OPT_KERNEL = 0x2000, OPT_PROVIDER, OPT_SET, OPT_LIMIT };

/* Failures that the text report names one by one, and reasons of refusals. */
enum { MAX_SHOWN = 20 };

/* What the parent says of a child that did not come to its end. */
struct last_words {
    char kernel[64], last_case[128];
    int64_t cases;
};

struct args {
    const char *device, *plugin, *provider, *set;
    int32_t green; /* SMs; 0: no limit */
    int json;
    struct last_words *words;
};

static const struct conform_set {
    const char *name;
    int level;
} sets[] = {
    {"quick", HCP_CONFORMANCE_QUICK},
    {"small", HCP_CONFORMANCE_FULL | HCP_CONFORMANCE_SMALL},
    {"full", HCP_CONFORMANCE_FULL},
    {"huge", HCP_CONFORMANCE_FULL | HCP_CONFORMANCE_HUGE},
};

/* The device, opened. */
struct here {
    hcp_device_ref device;
    const hcp_runtime *runtime;
    char slug[64];
};

/* Tables, or with list JSON. */
struct report {
    hcp_table *summary, *details;
    int64_t n_details;
    json_t *list;
};

/* One kernel on its way through the set. */
struct checked {
    const struct args *args;
    const hcp_provider *provider;
    struct report *report;
    struct hcp_progress progress;
    json_t *cases; /* NULL: no JSON */
    struct reason {
        char text[256], first[128];
        int64_t n;
    } reasons[MAX_SHOWN];
    size_t n_reasons;
    int64_t failures;
};

static const struct argp_option options[] = {
    {"device", 'D', "DEVICE", 0,
     "cuda, cuda:N or cpu (the first CUDA GPU, else this CPU)", 0},
    {"kernel", OPT_KERNEL, "FILE.so", 0, "The kernel of this plug-in", 0},
    {"provider", OPT_PROVIDER, "NAME", 0, "This kernel (all that the device has)", 0},
    {"set", OPT_SET, "SET", 0,
     "quick, small, full or huge: which cases (full; huge adds tensors of 13 GiB)", 0},
    {"limit", OPT_LIMIT, "LIMIT", 0,
     "green:SMS: in a green context of so many SMs of the GPU", 0},
    {"json", 'j', NULL, 0, "Report as JSON, with every case", 0},
    {0},
};

static const struct conform_set *find_set(const char *name)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i].name, name) == 0)
            return &sets[i];
    return NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    const struct hcp_device_ops *ops;
    struct hcp_err err = {0};
    char kind[8];
    switch (key) {
    case 'D':
        if (hcp_device_ops_of(arg, &ops, &err) != HCP_OK)
            argp_error(state, "%s", err.text);
        if (ops != &hcp_device_cuda_ops && ops != &hcp_device_cpu_ops)
            argp_error(state,
                       "--device: '%s' has no kernel to check; use cuda, cuda:N or cpu",
                       arg);
        a->device = arg;
        return 0;
    case OPT_KERNEL:
        a->plugin = arg;
        return 0;
    case OPT_PROVIDER:
        a->provider = arg;
        return 0;
    case OPT_SET:
        if (!find_set(arg))
            argp_error(state, "--set: '%s' is not quick, small, full or huge", arg);
        a->set = arg;
        return 0;
    case OPT_LIMIT:
        if (hcp_parse_limit(arg, kind, &a->green, &err) != HCP_OK)
            argp_error(state, "--limit: %s", err.text);
        if (strcmp(kind, "green") != 0)
            argp_error(state,
                       "--limit '%s': cases are checked on a whole device or "
                       "under green:SMS",
                       arg);
        return 0;
    case 'j':
        a->json = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->plugin && a->provider)
            argp_error(state, "--kernel and --provider both name a kernel; use one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void open_cpu(struct here *here)
{
    char name[96], uuid[64];
    int64_t llc, memory;
    int cores;
    here->device = (hcp_device_ref){
        .size = sizeof here->device, .kind = HCP_DEVICE_CPU, .sm_count = 1};
    here->runtime = hcp_runtime_cpu();
    hcp_cpu_describe(name, uuid, &llc, &memory, &cores);
    hcp_device_slug(name, here->slug, sizeof here->slug);
}

/* Under the limit, if there is one. */
static int limit_device(const struct args *args, struct here *here, struct hcp_err *err)
{
    if (args->green == 0)
        return HCP_OK;
    if (here->device.kind != HCP_DEVICE_CUDA)
        return hcp_fail(err, HCP_USAGE,
                        "limit 'green:%d' is not one of a CPU; leave --limit out",
                        (int)args->green);
#ifdef HAVE_CUDA
    hcp_cuda_info cuda = {.size = sizeof cuda};
    hcp_green *green = NULL; /* to the end of the process */
    char why[700];
    int ordinal = here->device.ordinal;
    if (hcp_cuda_device(ordinal, &here->device, &cuda, why, sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s", why);
    int rc = hcp_green_limit(ordinal, args->green, cuda.mps_enabled, &green, err);
    if (rc == HCP_OK)
        here->device.sm_count = args->green;
    return rc;
#else
    return HCP_OK;
#endif
}

static int open_device(const char *spec, struct here *here, struct hcp_err *err)
{
    struct hcp_device_info *gpus = NULL;
    size_t n = 0;
    int64_t ordinal = 0;
    char why[512] = "";
    const char *at = spec ? strchr(spec, ':') : NULL;
    if (spec && strcmp(spec, "cpu") == 0) {
        open_cpu(here);
        return HCP_OK;
    }
    if (at && hcp_parse_int(at + 1, "cuda:N", 0, 1024, &ordinal, err) != HCP_OK)
        return HCP_USAGE;
    int rc = hcp_cuda_list(&gpus, &n, why, sizeof why);
    if (rc == HCP_OK && !spec && n == 0) {
        fprintf(stderr, "hcp-profile: no CUDA GPU: %s; checking kernels of this CPU\n",
                why);
        open_cpu(here);
    } else if (rc == HCP_OK && (size_t)ordinal >= n) {
        rc = n == 0 ? hcp_fail(err, HCP_FAILED, "no CUDA GPU: %s", why)
                    : hcp_fail(err, HCP_FAILED,
                               "no device cuda:%d; 'hcp-profile devices' lists them",
                               (int)ordinal);
    } else if (rc == HCP_OK) {
        const struct hcp_device_info *gpu = &gpus[ordinal];
        here->device = (hcp_device_ref){.size = sizeof here->device,
                                        .kind = HCP_DEVICE_CUDA,
                                        .ordinal = (int32_t)ordinal,
                                        .cc_major = gpu->cc_major,
                                        .cc_minor = gpu->cc_minor,
                                        .sm_count = gpu->sm_count};
        here->runtime = hcp_runtime_cuda();
        strcpy(here->slug, gpu->slug);
    }
    free(gpus);
    return rc;
}

static void detail(struct checked *k, const char *outcome, int64_t n, const char *name,
                   const char *why)
{
    hcp_table *t = k->report->details;
    k->report->n_details++;
    hcp_table_row(t);
    hcp_table_cell(t, "%s", k->provider->name);
    hcp_table_cell(t, "%s", outcome);
    hcp_table_cell(t, "%lld", (long long)n);
    hcp_table_cell(t, "%s", name);
    hcp_table_cell(t, "%s", why);
}

/* Refusals are told by their reason: there are hundreds of a few kinds. */
static void count_reason(struct checked *k, const hcp_conformance_case *c)
{
    size_t i = 0;
    while (i < k->n_reasons && strcmp(k->reasons[i].text, c->text) != 0)
        i++;
    if (i == MAX_SHOWN)
        i--;
    else if (i == k->n_reasons) {
        k->n_reasons++;
        strcpy(k->reasons[i].text, c->text);
        strcpy(k->reasons[i].first, c->name);
    }
    k->reasons[i].n++;
}

static void on_case(const hcp_conformance_case *c, void *user)
{
    static const char *const outcomes[] = {"passed", "refused", "failed"};
    struct checked *k = user;
    k->args->words->cases++;
    strcpy(k->args->words->last_case, c->name);
    if (k->progress.active) {
        fprintf(stderr, "\r\033[K%s: %lld cases", k->provider->name,
                (long long)k->args->words->cases);
        k->progress.shown = 1;
    }
    k->failures += c->outcome == HCP_CASE_FAILED;
    if (k->cases)
        json_array_append_new(k->cases,
                              json_pack("{s:s, s:s, s:o, s:o, s:I, s:s}", "case", c->name,
                                        "outcome", outcomes[c->outcome], "o_error",
                                        hcp_json_real(c->o_error), "lse_error",
                                        hcp_json_real(c->lse_error), "rows",
                                        (json_int_t)c->rows_compared, "text", c->text));
    else if (c->outcome == HCP_CASE_REFUSED)
        count_reason(k, c);
    else if (c->outcome == HCP_CASE_FAILED && k->failures <= MAX_SHOWN)
        detail(k, "failed", 1, c->name, c->text);
}

static void summary_row(hcp_table *t, const struct here *here, const struct checked *k,
                        const hcp_conformance_summary *s)
{
    hcp_table_row(t);
    hcp_table_cell(t, "%s", here->slug);
    hcp_table_cell(t, "%s", k->provider->name);
    hcp_table_cell(t, "%s", k->provider->version());
    hcp_table_cell(t, "%s", k->args->set);
    hcp_table_cell(t, "%lld", (long long)s->passed);
    hcp_table_cell(t, "%lld", (long long)s->refused);
    hcp_table_cell(t, "%lld", (long long)s->failed);
    for (int d = HCP_BF16; d <= HCP_FP32; d++)
        hcp_table_cell(t, "%.1e", s->worst_o_error[d]);
    hcp_table_cell(t, "%.3f", s->worst_lse_error);
}

static json_t *summary_json(const struct here *here, const struct checked *k,
                            const hcp_conformance_summary *s)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
                     "device", here->slug, "kernel", k->provider->name, "version",
                     k->provider->version(), "set", k->args->set, "passed",
                     (json_int_t)s->passed, "refused", (json_int_t)s->refused, "failed",
                     (json_int_t)s->failed, "o_error_bf16",
                     hcp_json_real(s->worst_o_error[HCP_BF16]), "o_error_fp16",
                     hcp_json_real(s->worst_o_error[HCP_FP16]), "o_error_fp32",
                     hcp_json_real(s->worst_o_error[HCP_FP32]), "lse_error",
                     hcp_json_real(s->worst_lse_error), "cases", k->cases);
}

/* The kernel through the set, added to the report. Returns an exit code; err has a text
 * where the device or memory gave out. */
static int check_kernel(const struct args *args, const struct here *here,
                        const hcp_provider *provider, struct report *report,
                        struct hcp_err *err)
{
    struct checked k = {.args = args, .provider = provider, .report = report};
    hcp_conformance_summary s;
    char why[512] = "";
    if (report->list)
        k.cases = json_array();
    hcp_progress_init(&k.progress);
    *args->words = (struct last_words){0};
    snprintf(args->words->kernel, sizeof args->words->kernel, "%s", provider->name);
    int rc =
        hcp_conformance_run(provider, here->runtime, &here->device,
                            find_set(args->set)->level, on_case, &k, &s, why, sizeof why);
    hcp_progress_clear(&k.progress);
    if (report->list) {
        json_array_append_new(report->list, summary_json(here, &k, &s));
    } else {
        summary_row(report->summary, here, &k, &s);
        if (k.failures > MAX_SHOWN)
            detail(&k, "failed", k.failures - MAX_SHOWN, "...",
                   "not shown; --json has every case");
        for (size_t i = 0; i < k.n_reasons; i++)
            detail(&k, "refused", k.reasons[i].n, k.reasons[i].first, k.reasons[i].text);
    }
    if (rc != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "%s: the set ended early: %s", provider->name,
                        why);
    /* Blocks that see nothing pass without the kernel, and without an error of O. */
    double served =
        s.worst_o_error[HCP_BF16] + s.worst_o_error[HCP_FP16] + s.worst_o_error[HCP_FP32];
    return s.failed > 0 ? HCP_FAILED : served > 0 ? HCP_OK : HCP_NO_ANSWER;
}

static hcp_table *new_table(const char *const *columns, size_t n, size_t right_from,
                            size_t right_to)
{
    hcp_table *t = hcp_table_new();
    for (size_t i = 0; i < n; i++)
        hcp_table_column(t, columns[i], i >= right_from && i < right_to);
    return t;
}

static struct report new_report(int json)
{
    static const char *const columns[] = {
        "device", "kernel",       "version",      "set",          "passed",   "refused",
        "failed", "o_error_bf16", "o_error_fp16", "o_error_fp32", "lse_error"};
    static const char *const details[] = {"kernel", "outcome", "cases", "case", "why"};
    if (json)
        return (struct report){.list = json_array()};
    return (struct report){
        .summary = new_table(columns, sizeof columns / sizeof *columns, 4, 11),
        .details = new_table(details, sizeof details / sizeof *details, 2, 3)};
}

/* Prints and frees it. */
static void print_report(struct report *r)
{
    if (r->list) {
        hcp_json_print(r->list, stdout);
        return;
    }
    hcp_table_print(r->summary, stdout);
    if (r->n_details > 0) {
        putchar('\n');
        hcp_table_print(r->details, stdout);
    } else {
        hcp_table_free(r->details);
    }
}

/* Every kernel that is asked for. A failure of one is the command's; so is that none
 * serves any case. */
static int check_all(const struct args *args, const struct here *here,
                     const hcp_registry *registry, struct hcp_err *err)
{
    struct report report = new_report(args->json);
    int found = 0, failed = 0, served = 0;
    for (size_t i = 0; !*err->text && i < hcp_registry_count(registry); i++) {
        const hcp_provider *p = hcp_registry_at(registry, i);
        if ((args->plugin && i > 0) ||
            (args->provider && strcmp(args->provider, p->name) != 0))
            continue;
        int rc = check_kernel(args, here, p, &report, err);
        found++;
        failed += rc == HCP_FAILED;
        served += rc == HCP_OK;
    }
    if (!found)
        hcp_fail(err, HCP_FAILED,
                 "no kernel '%s' on %s; 'hcp-profile devices' lists them",
                 args->provider ? args->provider : "", here->slug);
    print_report(&report);
    return failed || *err->text ? HCP_FAILED : served ? HCP_OK : HCP_NO_ANSWER;
}

static int child(const struct args *args)
{
    struct here here = {0};
    struct hcp_err err = {0};
    hcp_registry *registry = NULL;
    char why[900];
    int rc = open_device(args->device, &here, &err);
    if (rc == HCP_OK)
        rc = limit_device(args, &here, &err);
    if (rc == HCP_OK && hcp_registry_open(&here.device, args->plugin, &registry, why,
                                          sizeof why) != HCP_RC_OK)
        rc = hcp_fail(&err, HCP_FAILED, "%s", why);
    if (rc == HCP_OK)
        rc = check_all(args, &here, registry, &err);
    if (*err.text)
        hcp_cli_report(&err);
    hcp_registry_close(registry);
    return hcp_cli_finish(rc);
}

/* In a child, whose exit code is the command's. */
static int run_child(const struct args *args)
{
    int status = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(HCP_FAILED);
        exit(child(args));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        fputs("hcp-profile: cannot start a process\n", stderr);
        return HCP_FAILED;
    }
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    const struct last_words *w = args->words;
    if (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)
        return 128 + WTERMSIG(status);
    if (!*w->kernel)
        fprintf(stderr, "hcp-profile: crashed before the first case: %s\n",
                strsignal(WTERMSIG(status)));
    else
        fprintf(stderr, "hcp-profile: %s crashed in %s%s%s: %s\n", w->kernel,
                w->cases ? "the case after '" : "its first case",
                w->cases ? w->last_case : "", w->cases ? "'" : "",
                strsignal(WTERMSIG(status)));
    return HCP_FAILED;
}

int cmd_conform(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "",
        "Checks that kernels compute attention: every case of the conformance set, each "
        "run twice, against fp64. Times nothing and stores nothing.",
        NULL,
        NULL,
        NULL};
    struct args args = {.set = "full"};
    if (argp_parse(&argp, argc, argv, 0, NULL, &args))
        return HCP_USAGE;
    args.words = mmap(NULL, sizeof *args.words, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (args.words == MAP_FAILED) {
        fputs("hcp-profile: out of memory\n", stderr);
        return HCP_FAILED;
    }
    int rc = run_child(&args);
    munmap(args.words, sizeof *args.words);
    return rc;
}
