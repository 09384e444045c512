/* SPDX-License-Identifier: Apache-2.0
 *
 * The same kernel and block under an MPS percentage and in a green context of as many
 * SMs. Both are opened at a time, each in a process of its own, and are timed in turn:
 * there and back, so that neither always finds the clock that the other has left. While
 * one is timed the other is idle. Prints a table in Markdown.
 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "db/cli.h"
#include "profiler/limiter.h"
#include "profiler/stats.h"
#include "profiler/worker.h"

enum { OPT_SMS = 0x5000, OPT_ROUNDS, OPT_CHECK, OPT_CSV, OPT_DEVICE };
enum { MPS, GREEN, LIMITERS, MOST_ROUNDS = 32, MOST_COUNTS = 32 };

struct options {
    int64_t sms[MOST_COUNTS], rounds, device;
    size_t n_sms;
    int check;
    const char *csv;
};

static const struct shape {
    const char *provider, *phase, *mask;
    int64_t q_len, kv_len;
} shapes[] = {
    {"cudnn", "prefill", "full", 4096, 4096},
    {"cudnn", "prefill", "causal", 4096, 4096},
    {"cudnn", "prefill", "full", 1024, 16384},
    {"cudnn", "prefill", "causal", 16384, 16384},
    {"cuda-wgmma", "prefill", "full", 4096, 4096},
    {"cuda-wgmma", "prefill", "causal", 4096, 4096},
    {"cuda-wgmma", "prefill", "full", 1024, 16384},
    {"cuda-wgmma", "prefill", "causal", 16384, 16384},
    {"cuda-decode", "decode", "full", 1, 32768},
    {"cuda-decode", "decode", "full", 1, 262144},
};

static const struct argp_option option_list[] = {
    {"sms", OPT_SMS, "LIST", 0, "SM counts, separated by commas (16,32,64,132)", 1},
    {"rounds", OPT_ROUNDS, "N", 0, "Visits of each limiter to a block (4)", 1},
    {"device", OPT_DEVICE, "N", 0, "Which GPU (0)", 1},
    {"check", OPT_CHECK, NULL, 0,
     "The quick conformance set first, of each kernel in each green context", 1},
    {"csv", OPT_CSV, "FILE", 0, "Write the rows to FILE as well", 2},
    {0},
};

/* One block under both limiters. */
struct row {
    double ms[LIMITERS][MOST_ROUNDS]; /* median of each visit */
    double mhz[LIMITERS];             /* of the last one */
    int n;                            /* visits of each */
    char error[300];
};

struct bench {
    struct options options;
    struct hcp_device_info gpu;
    hcp_mps *mps;
    FILE *csv;
    int failed;
};

static int parse_counts(const char *text, struct options *o, struct hcp_err *err)
{
    o->n_sms = 0;
    for (const char *at = text;; at++) {
        char item[16];
        size_t len = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(len < 15 ? len : 15), at);
        if (o->n_sms == MOST_COUNTS)
            return hcp_fail(err, HCP_USAGE, "--sms: more than %d", MOST_COUNTS);
        int rc = hcp_parse_int(item, "--sms", 1, 1024, &o->sms[o->n_sms++], err);
        at += len;
        if (rc != HCP_OK || !*at)
            return rc;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct hcp_err err = {0};
    int rc = HCP_OK;
    switch (key) {
    case OPT_SMS:
        rc = parse_counts(arg, o, &err);
        break;
    case OPT_ROUNDS:
        rc = hcp_parse_int(arg, "--rounds", 1, MOST_ROUNDS, &o->rounds, &err);
        break;
    case OPT_DEVICE:
        rc = hcp_parse_int(arg, "--device", 0, 1024, &o->device, &err);
        break;
    case OPT_CHECK:
        o->check = 1;
        break;
    case OPT_CSV:
        o->csv = arg;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc != HCP_OK)
        argp_error(state, "%s", err.text);
    return 0;
}

/* The percentage that gives so many SMs: MPS rounds down to pairs. */
static int percent_of(int64_t sms, int32_t sm_count)
{
    return (int)((100 * sms + sm_count - 1) / sm_count);
}

static int open_one(const struct bench *b, const struct shape *shape, int limiter,
                    int64_t sms, hcp_device **out, struct hcp_err *err)
{
    struct hcp_device_config config = {.batch = 1,
                                       .heads = 32,
                                       .kv_heads = 8,
                                       .head_dim = 128,
                                       .no_cupti = 1,
                                       .sm_count = b->gpu.sm_count};
    snprintf(config.spec, sizeof config.spec, "cuda:%d", (int)b->options.device);
    strcpy(config.dtype, "bf16");
    strcpy(config.device_uuid, b->gpu.uuid);
    snprintf(config.provider, sizeof config.provider, "%s", shape->provider);
    snprintf(config.phase, sizeof config.phase, "%s", shape->phase);
    if (limiter == GREEN) {
        snprintf(config.limit, sizeof config.limit, "green:%d", (int)sms);
    } else {
        snprintf(config.limit, sizeof config.limit, "mps:%d",
                 percent_of(sms, b->gpu.sm_count));
        snprintf(config.mps_pipe, sizeof config.mps_pipe, "%s", hcp_mps_pipe_dir(b->mps));
        snprintf(config.mps_log, sizeof config.mps_log, "%s", hcp_mps_log_dir(b->mps));
    }
    int rc = hcp_device_worker_ops.open(&config, out, err);
    if (rc == HCP_OK && (*out)->info.sm_seen != sms)
        rc = hcp_fail(err, HCP_FAILED, "%s gives %d SMs, not %d", config.limit,
                      (*out)->info.sm_seen, (int)sms);
    return rc;
}

static int visit(hcp_device *device, const struct shape *shape, double *ms, double *mhz,
                 struct hcp_err *err)
{
    struct hcp_cell_request cell = {.q_len = shape->q_len, .kv_len = shape->kv_len};
    struct hcp_cell_facts facts;
    struct hcp_stats stats;
    double *samples = NULL;
    strcpy(cell.mask, shape->mask);
    hcp_measure_defaults(&cell.rule);
    cell.rule.cap_s = 0.4;
    int rc = device->ops->prepare(device, &cell, err);
    if (rc == HCP_OK)
        rc = device->ops->time(device, &cell, &facts, &samples, err);
    if (rc == HCP_OK && hcp_stats_summary(samples, facts.n, &stats) != 0)
        rc = hcp_fail(err, HCP_FAILED, "no samples");
    if (rc == HCP_OK) {
        *ms = stats.median;
        *mhz = facts.sm_clock_mhz;
    }
    free(samples);
    return rc;
}

static void time_shape(const struct bench *b, hcp_device *devices[LIMITERS],
                       const struct shape *shape, struct row *row)
{
    struct hcp_err err = {0};
    for (int round = 0; round < b->options.rounds && !hcp_worker_stop; round++) {
        for (int turn = 0; turn < LIMITERS; turn++) {
            int limiter = round % 2 ? LIMITERS - 1 - turn : turn;
            if (visit(devices[limiter], shape, &row->ms[limiter][round],
                      &row->mhz[limiter], &err) == HCP_OK)
                continue;
            snprintf(row->error, sizeof row->error, "%s: %.250s",
                     limiter == MPS ? "mps" : "green", err.text);
            return;
        }
        row->n = round + 1;
    }
}

/* Medians over the visits, the ratio's range, and half the range of the visits of MPS
 * over their median: what a ratio must exceed to mean anything. */
static void report(struct bench *b, const struct shape *s, int64_t sms,
                   const struct row *row)
{
    char head[160];
    snprintf(head, sizeof head, "| %d | %s | %s | %lld | %lld |", (int)sms, s->provider,
             s->mask, (long long)s->q_len, (long long)s->kv_len);
    if (row->n == 0 || *row->error) {
        printf("%s %s |\n", head, *row->error ? row->error : "stopped");
        b->failed = 1;
        return;
    }
    double ratios[MOST_ROUNDS];
    struct hcp_stats mps, green, ratio;
    for (int i = 0; i < row->n; i++)
        ratios[i] = row->ms[GREEN][i] / row->ms[MPS][i];
    hcp_stats_summary(row->ms[MPS], row->n, &mps);
    hcp_stats_summary(row->ms[GREEN], row->n, &green);
    hcp_stats_summary(ratios, row->n, &ratio);
    double noise = 50 * (mps.max - mps.min) / mps.median;
    printf("%s %.5g | %.5g | %.3f | %.3f to %.3f | %.1f | %.0f | %.0f |\n", head,
           mps.median, green.median, ratio.median, ratio.min, ratio.max, noise,
           row->mhz[MPS], row->mhz[GREEN]);
    fflush(stdout);
    for (int i = 0; b->csv && i < row->n; i++)
        fprintf(b->csv, "%d,mps:%d,%s,%s,%s,%lld,%lld,%d,%.9g,%.9g\n", (int)sms,
                percent_of(sms, b->gpu.sm_count), s->provider, s->phase, s->mask,
                (long long)s->q_len, (long long)s->kv_len, i + 1, row->ms[MPS][i],
                row->ms[GREEN][i]);
    if (b->csv)
        fflush(b->csv);
}

static size_t same_worker(size_t first)
{
    size_t i = first;
    while (i < sizeof shapes / sizeof *shapes &&
           strcmp(shapes[i].provider, shapes[first].provider) == 0 &&
           strcmp(shapes[i].phase, shapes[first].phase) == 0)
        i++;
    return i;
}

/* Shapes from first to end, of one kernel, at one SM count. */
static int compare(struct bench *b, int64_t sms, size_t first, size_t end,
                   struct hcp_err *err)
{
    hcp_device *devices[LIMITERS] = {NULL};
    int rc = HCP_OK;
    for (int i = 0; i < LIMITERS && rc == HCP_OK; i++)
        rc = open_one(b, &shapes[first], i, sms, &devices[i], err);
    if (rc == HCP_OK && b->options.check) {
        char result[64] = "";
        rc = devices[GREEN]->ops->check(devices[GREEN], result, err);
        fprintf(stderr, "green:%d %s: %s\n", (int)sms, shapes[first].provider,
                rc == HCP_OK ? result : err->text);
    }
    for (size_t i = first; i < end && rc == HCP_OK && !hcp_worker_stop; i++) {
        struct row row = {.n = 0};
        time_shape(b, devices, &shapes[i], &row);
        report(b, &shapes[i], sms, &row);
    }
    for (int i = 0; i < LIMITERS; i++)
        if (devices[i])
            devices[i]->ops->close(devices[i]);
    return rc;
}

static int look(struct bench *b, struct hcp_err *err)
{
    struct hcp_device_info *gpus = NULL;
    size_t n = 0;
    char reason[512] = "";
    int rc = hcp_worker_list(&gpus, &n, reason, err);
    if (rc == HCP_OK && (size_t)b->options.device >= n)
        rc = hcp_fail(err, HCP_FAILED, "no CUDA GPU %d%s%s", (int)b->options.device,
                      *reason ? ": " : "", reason);
    if (rc == HCP_OK)
        b->gpu = gpus[b->options.device];
    free(gpus);
    return rc;
}

static void print_head(const struct bench *b, int argc, char **argv)
{
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", gmtime(&now));
    printf("%s, %d SMs, driver %s, CUDA %s, %s\n\n    bench-limiters", b->gpu.name,
           (int)b->gpu.sm_count, b->gpu.driver, b->gpu.cuda_version, when);
    for (int i = 1; i < argc; i++)
        printf(" %s", argv[i]);
    printf("\n\n| SMs | kernel | mask | q_len | kv_len | mps_ms | green_ms | green/mps | "
           "range | mps +-%% | mps_mhz | green_mhz |\n"
           "|--:|---|---|--:|--:|--:|--:|--:|---|--:|--:|--:|\n");
    if (b->csv)
        fprintf(b->csv, "sms,mps,kernel,phase,mask,q_len,kv_len,round,mps_ms,green_ms\n");
}

static int run(struct bench *b, int argc, char **argv, struct hcp_err *err)
{
    int rc = hcp_mps_start(&b->mps, err);
    if (rc == HCP_OK)
        rc = look(b, err);
    if (rc != HCP_OK)
        return rc;
    print_head(b, argc, argv);
    for (size_t i = 0; i < b->options.n_sms; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k = same_worker(k)) {
            if (hcp_worker_stop)
                return hcp_fail(err, HCP_FAILED, "stopped");
            struct hcp_err why = {0};
            if (compare(b, b->options.sms[i], k, same_worker(k), &why) == HCP_OK)
                continue;
            printf("| %d | %s | %s |\n", (int)b->options.sms[i], shapes[k].provider,
                   why.text);
            b->failed = 1;
        }
    return HCP_OK;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        option_list,
        parse,
        "",
        "Times attention blocks under MPS percentages and in green contexts of as many "
        "SMs, in turn.",
        NULL,
        NULL,
        NULL};
    struct bench b = {.options = {.sms = {16, 32, 64, 132}, .n_sms = 4, .rounds = 4}};
    struct hcp_err err = {0};
    hcp_cli_set_name("bench-limiters");
    if (argc == 2 && strcmp(argv[1], HCP_WORKER_COMMAND) == 0)
        return hcp_worker_main();
    if (argp_parse(&argp, argc, argv, 0, NULL, &b.options))
        return HCP_USAGE;
    hcp_worker_catch_signals();
    if (b.options.csv && !(b.csv = fopen(b.options.csv, "w"))) {
        hcp_fail(&err, HCP_FAILED, "cannot write %s", b.options.csv);
        return hcp_cli_report(&err);
    }
    int rc = run(&b, argc, argv, &err);
    if (rc != HCP_OK)
        hcp_cli_report(&err);
    if (b.csv && fclose(b.csv) != 0)
        rc = HCP_FAILED;
    hcp_mps_stop(b.mps);
    return hcp_cli_finish(rc != HCP_OK || b.failed ? HCP_FAILED : HCP_OK);
}
