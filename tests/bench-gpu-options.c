/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <string.h>

enum {
    OPT_LIMITS = 0x5000,
    OPT_TIME,
    OPT_SLICE,
    OPT_QUICK,
    OPT_CSV,
    OPT_RING,
    OPT_SETS,
    OPT_PLUGIN,
    OPT_BASELINE,
    OPT_DEVICE,
    OPT_PROVIDERS
};

static const struct argp_option option_list[] = {
    {"providers", OPT_PROVIDERS, "LIST", 0,
     "Kernels, separated by commas (all but cuda-reference)", 1},
    {"kernel", OPT_PLUGIN, "FILE.so", 0, "And a kernel from a shared object", 1},
    {"baseline", OPT_BASELINE, "NAME", 0, "Compare with this kernel (cudnn)", 1},
    {"sets", OPT_SETS, "LIST", 0,
     "prefill, decode, limits, ring, separated by commas (all)", 2},
    {"ring", OPT_RING, NULL, 0, "The same as --sets ring", 2},
    {"limits", OPT_LIMITS, "LIST", 0,
     "Limits of the set of that name: mps:PCT, separated by commas, or none "
     "(mps:10,mps:20,mps:50,mps:100)",
     2},
    {"quick", OPT_QUICK, NULL, 0,
     "Few shapes, one limit, --time 0.15 --slice 0.05 (power seldom known)", 3},
    {"time", OPT_TIME, "S", 0, "Of every kernel on every shape, in seconds (0.4)", 3},
    {"slice", OPT_SLICE, "S", 0, "Turn of a kernel before the next's (0.2)", 3},
    {"device", OPT_DEVICE, "N", 0, "Which GPU (0)", 3},
    {"csv", OPT_CSV, "FILE", 0, "Write every row to FILE as well", 4},
    {0},
};

const char *const bench_set_names[BENCH_SETS] = {"prefill", "decode", "limits", "ring"};

static int set_sets(const char *list, struct bench_options *o, struct hcp_err *err)
{
    o->sets = 0;
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t len = strcspn(at, ",");
        int set = 0;

        while (set < BENCH_SETS && (strlen(bench_set_names[set]) != len ||
                                    strncmp(bench_set_names[set], at, len) != 0))
            set++;
        if (set == BENCH_SETS)
            return hcp_fail(err, HCP_USAGE,
                            "--sets '%s': use prefill, decode, limits and ring", list);
        o->sets |= 1 << set;
    }
    return HCP_OK;
}

static int set_limits(const char *list, struct bench_options *o, struct hcp_err *err)
{
    enum { MOST = sizeof o->limits / sizeof *o->limits };

    o->n_limits = 0;
    if (strcmp(list, "none") == 0) {
        o->sets &= ~(1 << BENCH_LIMITS);
        return HCP_OK;
    }
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char kind[8];
        int32_t value;

        if (o->n_limits == MOST)
            return hcp_fail(err, HCP_USAGE, "--limits: more than %d", MOST);
        char *limit = o->limits[o->n_limits];
        snprintf(limit, sizeof *o->limits, "%.*s", (int)strcspn(at, ","), at);
        int rc = hcp_parse_limit(limit, kind, &value, err);
        if (rc != HCP_OK)
            return rc;
        if (strcmp(kind, "mps") != 0)
            return hcp_fail(err, HCP_USAGE, "--limits '%s': use mps:PCT", limit);
        o->n_limits++;
    }
    return HCP_OK;
}

static int set_seconds(const char *arg, const char *what, double *out,
                       struct hcp_err *err)
{
    int rc = hcp_parse_double(arg, out, err);

    if (rc == HCP_OK && !(*out > 0 && *out <= 60))
        rc = hcp_fail(err, HCP_USAGE, "%s '%s' is not a time up to 60 s", what, arg);
    return rc;
}

static int set_option(int key, const char *arg, struct bench_options *o,
                      struct hcp_err *err)
{
    switch (key) {
    case OPT_PROVIDERS:
        o->providers = arg;
        return HCP_OK;
    case OPT_PLUGIN:
        o->plugin = arg;
        return HCP_OK;
    case OPT_BASELINE:
        o->baseline = arg;
        return HCP_OK;
    case OPT_CSV:
        o->csv = arg;
        return HCP_OK;
    case OPT_SETS:
        return set_sets(arg, o, err);
    case OPT_RING:
        return set_sets("ring", o, err);
    case OPT_LIMITS:
        return set_limits(arg, o, err);
    case OPT_QUICK:
        o->quick = 1;
        o->time_s = 0.15;
        o->slice_s = 0.05;
        o->n_limits = 1;
        return HCP_OK;
    case OPT_TIME:
        return set_seconds(arg, "--time", &o->time_s, err);
    case OPT_SLICE:
        return set_seconds(arg, "--slice", &o->slice_s, err);
    case OPT_DEVICE:
        return hcp_parse_int(arg, "--device", 0, 1024, &o->device, err);
    }
    return HCP_NO_ANSWER;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct hcp_err err = {0};

    if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'", arg);
    int rc = set_option(key, arg, state->input, &err);
    if (rc == HCP_NO_ANSWER)
        return ARGP_ERR_UNKNOWN;
    if (rc != HCP_OK)
        argp_error(state, "%s", err.text);
    return 0;
}

void bench_parse(int argc, char **argv, struct bench_options *options)
{
    static const struct argp argp = {
        .options = option_list,
        .parser = parse,
        .doc = "Times attention kernels side by side on a GPU: prefill blocks, decode, "
               "parts of the GPU (MPS), and whole rings without transfers."};

    *options = (struct bench_options){.sets = (1 << BENCH_SETS) - 1,
                                      .time_s = 0.4,
                                      .slice_s = 0.2,
                                      .baseline = "cudnn",
                                      .limits = {"mps:10", "mps:20", "mps:50", "mps:100"},
                                      .n_limits = 4};
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
