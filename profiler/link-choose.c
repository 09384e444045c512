/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "profiler/cmd-link.h"
#include "profiler/worker.h"

/* Held-out error of the curve for which sizes are added, unless they are given. */
#define LINK_TARGET 0.1

static int parse_devices(struct link_session *s, const char *text, struct hcp_err *err)
{
    const char *comma = strchr(text, ',');
    for (int i = 0; i < 2; i++) {
        char *spec = s->job.end[i].spec;
        const char *at = comma && i == 1 ? comma + 1 : text;
        int len = comma && i == 0 ? (int)(comma - text) : (int)strlen(at);
        int64_t number = 0;
        snprintf(spec, sizeof s->job.end[i].spec, "%.*s", len, at);
        if (strcmp(spec, "cpu") == 0)
            continue;
        if (strcmp(spec, "cuda") == 0)
            strcpy(spec, "cuda:0");
        if (strncmp(spec, "cuda:", 5) != 0 ||
            hcp_parse_int(spec + 5, "cuda:N", 0, 1024, &number, err) != HCP_OK)
            return hcp_fail(err, HCP_USAGE,
                            "--devices '%s': the ends of a link are cuda:N or cpu, as "
                            "in cuda:0,cuda:1",
                            text);
    }
    return HCP_OK;
}

/* A percentage of a GPU without an MPS daemon: the nearest green context. */
static int near_green(const struct link_session *s, const struct hcp_link_end *end,
                      int percent, char limit[32], struct hcp_err *err)
{
    size_t number = (size_t)strtol(end->spec + 5, NULL, 10);
    char control[1024];
    struct hcp_err why;
    /* Under a launcher the two hosts must mean the same by a percentage. */
    if (s->launched || number >= s->n_gpus ||
        hcp_mps_find(control, sizeof control, &why) == HCP_OK)
        return HCP_OK;
    const struct hcp_device_info *gpu = &s->gpus[number];
    const struct hcp_green_rule rule = {gpu->sm_count, gpu->green_min, gpu->green_step,
                                        gpu->green_most};
    if (rule.step <= 0)
        return hcp_fail(err, HCP_FAILED, "--limits: %.700s; %s", why.text, gpu->no_green);
    snprintf(limit, 32, "green:%d", hcp_green_near(&rule, percent));
    return HCP_OK;
}

/* "cpu:50" in full, "50" as the device's limiter, "none". */
static int one_limit(const struct link_session *s, const struct hcp_link_end *end,
                     const char *text, char limit[32], struct hcp_err *err)
{
    int gpu = link_is_gpu(end);
    const char *own = gpu ? "mps" : "cpu";
    char kind[8] = "";
    int32_t value;
    int64_t percent;
    struct hcp_err why;
    if (strcmp(text, "none") == 0)
        text = "";
    snprintf(limit, 32, "%s", text);
    if (hcp_parse_int(text, "limit", 1, 100, &percent, NULL) == HCP_OK) {
        snprintf(limit, 32, "%s:%s", own, text);
        return gpu ? near_green(s, end, (int)percent, limit, err) : HCP_OK;
    }
    if (strlen(text) > 24 || hcp_parse_limit(limit, kind, &value, &why) != HCP_OK)
        return hcp_fail(err, HCP_USAGE,
                        "--limits: '%s' is no limit; write %s:PCT,%s PCT or none", text,
                        own, gpu ? " green:SMS," : "");
    if (*kind && strcmp(kind, own) != 0 && !(gpu && strcmp(kind, "green") == 0))
        return hcp_fail(err, HCP_USAGE,
                        "--limits: '%s' is not a limit of %s; use %s:PCT%s or none", text,
                        end->spec, own, gpu ? ", green:SMS" : "");
    return HCP_OK;
}

/* One limiter a run: of each pair, and of all pairs. */
static int agree(const struct link_session *s, struct hcp_err *err)
{
    for (size_t i = 0; i < 2 * s->n_pairs; i++)
        for (size_t k = 0; k < i; k++) {
            int rc = hcp_limits_agree(s->pairs[k / 2].limit[k % 2],
                                      s->pairs[i / 2].limit[i % 2], err);
            if (rc != HCP_OK)
                return rc;
        }
    return HCP_OK;
}

static int parse_limits(struct link_session *s, const char *text, struct hcp_err *err)
{
    for (const char *at = text;; at++) {
        char item[80];
        size_t len = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(len < 79 ? len : 79), at);
        char *slash = strchr(item, '/');
        if (!slash || slash == item || !slash[1])
            return hcp_fail(err, HCP_USAGE,
                            "--limits: '%s' is not a pair; write A/B, as in 100/50",
                            item);
        if (s->n_pairs == LINK_PAIRS)
            return hcp_fail(err, HCP_USAGE, "--limits: more than %d pairs", LINK_PAIRS);
        *slash = '\0';
        int rc = one_limit(s, &s->job.end[0], item, s->pairs[s->n_pairs].limit[0], err);
        if (rc == HCP_OK)
            rc = one_limit(s, &s->job.end[1], slash + 1, s->pairs[s->n_pairs].limit[1],
                           err);
        if (rc != HCP_OK)
            return rc;
        s->n_pairs++;
        at += len;
        if (!*at)
            return agree(s, err);
    }
}

/* "auto" (0) or a power of two each. */
static int parse_channels(const char *text, int32_t list[LINK_PAIRS], size_t *n,
                          struct hcp_err *err)
{
    for (const char *at = text;; at++) {
        char item[24];
        int64_t number = 0;
        size_t len = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)(len < 23 ? len : 23), at);
        if (strcmp(item, "auto") != 0 &&
            (hcp_parse_int(item, "channels", 1, 32, &number, NULL) != HCP_OK ||
             (number & (number - 1)) != 0))
            return hcp_fail(err, HCP_USAGE,
                            "--channels: '%s' is neither auto nor a power of two up to "
                            "32, which is what NCCL takes for each neighbour",
                            item);
        if (*n == LINK_PAIRS)
            return hcp_fail(err, HCP_USAGE, "--channels: more than %d", LINK_PAIRS);
        list[(*n)++] = (int32_t)number;
        at += len;
        if (!*at)
            return HCP_OK;
    }
}

/* Each pair of limits with each number of channels. */
static int with_channels(struct link_session *s, const int32_t *list, size_t n,
                         struct hcp_err *err)
{
    size_t n_limits = s->n_pairs;
    if (n * n_limits > LINK_PAIRS)
        return hcp_fail(err, HCP_USAGE,
                        "--limits and --channels: more than %d pairs of limits with "
                        "channels",
                        LINK_PAIRS);
    for (size_t i = n_limits; i-- > 0;) /* from the last: in place */
        for (size_t k = n; k-- > 0;) {
            s->pairs[i * n + k] = s->pairs[i];
            s->pairs[i * n + k].channels = list[k];
        }
    s->n_pairs = n * n_limits;
    return HCP_OK;
}

static int parse_target(const char *text, double *target, struct hcp_err *err)
{
    char number[24];
    size_t len = strlen(text);
    int percent = len > 0 && text[len - 1] == '%';
    snprintf(number, sizeof number, "%.*s", (int)(len < 23 ? len - (size_t)percent : 23),
             text);
    if (hcp_parse_double(number, target, NULL) == HCP_OK) {
        *target /= percent ? 100 : 1;
        if (*target > 0 && *target < 1)
            return HCP_OK;
    }
    return hcp_fail(err, HCP_USAGE,
                    "--target-error '%s' is not an error between 0 and 100 %%: such as "
                    "10%% or 0.1",
                    text);
}

static int one_size(const char *text, int64_t *out, struct hcp_err *err)
{
    struct hcp_err why;
    if (hcp_parse_len(text, 1, out, &why) == HCP_OK)
        return HCP_OK;
    return hcp_fail(err, HCP_USAGE,
                    "--sizes: '%s' is not a number of bytes from 1 to 1G; write 4K..512M "
                    "or 4K,64K,1M",
                    text);
}

static int compare_sizes(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Where sizes are added: four times apart, and the last. */
static void coarse_sizes(struct hcp_link_job *job, int64_t from, int64_t to)
{
    for (int64_t n = from; n < to; n *= 4)
        job->sizes[job->n_sizes++] = n;
    job->sizes[job->n_sizes++] = to;
}

static int parse_sizes(struct link_session *s, const char *text, struct hcp_err *err)
{
    struct hcp_link_job *job = &s->job;
    const char *dots = strstr(text, "..");
    int64_t from = 0, to = -1;
    char item[32];
    if (dots) {
        snprintf(item, sizeof item, "%.*s", (int)(dots - text), text);
        int rc = one_size(item, &from, err);
        if (rc == HCP_OK)
            rc = one_size(dots + 2, &to, err);
        if (rc == HCP_OK && from > to)
            rc = hcp_fail(err, HCP_USAGE, "--sizes '%s' is an empty range", text);
        for (int64_t n = from; rc == HCP_OK && n <= to; n *= 2)
            job->sizes[job->n_sizes++] = n;
        return rc;
    }
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ","), kept = 0;
        snprintf(item, sizeof item, "%.*s", (int)(len < 31 ? len : 31), at);
        if (job->n_sizes == HCP_LINK_SIZES)
            return hcp_fail(err, HCP_USAGE, "--sizes: more than %d", HCP_LINK_SIZES);
        int rc = one_size(item, &job->sizes[job->n_sizes], err);
        if (rc != HCP_OK)
            return rc;
        job->n_sizes++;
        at += len;
        if (*at)
            continue;
        qsort(job->sizes, job->n_sizes, sizeof *job->sizes, compare_sizes);
        for (size_t i = 0; i < job->n_sizes; i++) /* each once */
            if (i == 0 || job->sizes[i] != job->sizes[kept - 1])
                job->sizes[kept++] = job->sizes[i];
        job->n_sizes = kept;
        return HCP_OK;
    }
}

/* The GPU of an end on this host. */
static int find_gpu(const struct link_session *s, struct hcp_link_end *end,
                    struct hcp_err *err)
{
    size_t number = (size_t)strtol(end->spec + 5, NULL, 10);
    if (s->n_gpus == 0)
        return hcp_fail(err, HCP_FAILED, "no CUDA GPU: %s", s->no_gpu);
    if (number >= s->n_gpus)
        return hcp_fail(err, HCP_FAILED,
                        "no device %s: there are %zu ('hcp-profile devices' lists them)",
                        end->spec, s->n_gpus);
    strcpy(end->uuid, s->gpus[number].uuid);
    end->sm_count = s->gpus[number].sm_count;
    return HCP_OK;
}

/* MPS shares memory between its own clients only. */
static int check_copy_limits(const struct link_session *s, struct hcp_err *err)
{
    for (size_t i = 0; i < s->n_pairs; i++) {
        const char *a = s->pairs[i].limit[0], *b = s->pairs[i].limit[1];
        if ((strncmp(a, "mps:", 4) == 0) != (strncmp(b, "mps:", 4) == 0))
            return hcp_fail(err, HCP_USAGE,
                            "--limits %s/%s: a client of MPS and a process beside it "
                            "cannot share memory, which a copy needs; write 100 for the "
                            "whole device",
                            *a ? a : "none", *b ? b : "none");
    }
    return HCP_OK;
}

int link_choose(struct link_session *s, struct hcp_err *err)
{
    const struct link_args *a = s->args;
    struct hcp_link_job *job = &s->job;
    char control[1024];
    struct hcp_err why;
    if (s->launched && !a->devices)
        return hcp_fail(err, HCP_USAGE,
                        "under a launcher give --devices: that of rank 0 and that of "
                        "rank 1, as each host numbers its own");
    int32_t channels[LINK_PAIRS] = {0};
    size_t n_channels = 0;
    int rc = HCP_OK;
    job->one_way = a->one_way;
    job->target = a->sizes ? NAN : LINK_TARGET;
    if (a->target)
        rc = parse_target(a->target, &job->target, err);
    if (rc == HCP_OK && a->channels)
        rc = parse_channels(a->channels, channels, &n_channels, err);
    if (rc == HCP_OK)
        rc = hcp_worker_list(&s->gpus, &s->n_gpus, s->no_gpu, err);
    const char *devices = a->devices       ? a->devices
                          : s->n_gpus > 1  ? "cuda:0,cuda:1"
                          : s->n_gpus == 1 ? "cuda:0,cuda:0"
                                           : "cpu,cpu";
    if (rc == HCP_OK)
        rc = parse_devices(s, devices, err);
    for (int i = 0; i < 2 && rc == HCP_OK; i++)
        if (link_is_gpu(&job->end[i]) && (!s->launched || s->rank == i))
            rc = find_gpu(s, &job->end[i], err);
    if (rc != HCP_OK)
        return rc;
    int gpus = link_is_gpu(&job->end[0]) + link_is_gpu(&job->end[1]);
    int one =
        gpus == 2 && !s->launched && strcmp(job->end[0].uuid, job->end[1].uuid) == 0;
    job->transport = a->transport ? a->transport : gpus == 2 && !one ? "nccl" : "mpi";
    if (strcmp(job->transport, "mpi") != 0 && (gpus < 2 || one))
        return hcp_fail(err, HCP_USAGE,
                        "%s moves data between two GPUs, not %s and %s; use "
                        "--transport mpi",
                        job->transport, job->end[0].spec, job->end[1].spec);
    if (a->channels && strcmp(job->transport, "nccl") != 0)
        return hcp_fail(err, HCP_USAGE, "--channels are NCCL's; --transport %s has none",
                        job->transport);
    const char *limits = a->limits;
    if (!limits && gpus == 0)
        limits = "100/100,100/50";
    else if (!limits && gpus == 2)
        limits = hcp_mps_find(control, sizeof control, &why) == HCP_OK ||
                         (s->n_gpus > 0 && s->gpus[0].green_step > 0)
                     ? "100/100,100/50,100/20,100/10"
                     : "none/none";
    else if (!limits)
        limits = "none/none";
    if (!a->limits && gpus > 0 && strcmp(limits, "none/none") == 0)
        fprintf(stderr, "hcp-profile: whole devices only%s%s\n", gpus == 2 ? ": " : "",
                gpus == 2 ? why.text : "");
    if (s->launched && !a->limits) /* ranks start once */
        limits = "none/none";
    rc = parse_limits(s, limits, err);
    if (rc == HCP_OK && n_channels > 0)
        rc = with_channels(s, channels, n_channels, err);
    if (rc == HCP_OK && s->launched && s->n_pairs > 1)
        rc = hcp_fail(err, HCP_USAGE,
                      "--limits, --channels: one pair a command under a launcher, which "
                      "starts its ranks once");
    if (rc == HCP_OK && strcmp(job->transport, "copy") == 0)
        rc = check_copy_limits(s, err);
    if (rc == HCP_OK && a->sizes)
        rc = parse_sizes(s, a->sizes, err);
    else if (rc == HCP_OK)
        coarse_sizes(job, 4 << 10, gpus ? 512 << 20 : 64 << 20);
    return rc;
}
