/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/run-options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_LEVELS = 0x2000,
    OPT_LIMITS,
    OPT_Q_LENS,
    OPT_KV_LENS,
    OPT_CAUSAL_LENS,
    OPT_MAX_LEN,
    OPT_KERNEL,
    OPT_PROVIDER,
    OPT_BUDGET,
    OPT_MAX_CELL,
    OPT_RETRY,
    OPT_FRESH,
    OPT_THROTTLED,
    OPT_NO_CUPTI,
    OPT_NO_BOOSTED,
    OPT_WARM_UP,
    OPT_ADAPTIVE,
    OPT_EXHAUSTIVE,
    OPT_PRESET,
    OPT_TARGET,
    OPT_BATCHES,
    OPT_LINEAR,
    OPT_MODEL,
    OPT_HIDDEN,
    OPT_FFN,
    OPT_LAYERS,
    OPT_MLP,
    OPT_TOKENS,
    OPT_SEED
};

const struct argp_option hcp_run_argp_options[] = {
    {"db", 'd', "FILE", 0, "Database ($HCP_DB, else hcp.db)", 1},
    {"device", 'D', "DEVICE", 0,
     "cuda, cuda:N, cpu, recorded:FILE or synthetic:SPEC (every CUDA GPU, else this CPU)",
     1},
    {"limits", OPT_LIMITS, "LIST", 0,
     "Limits: mps:PCT, green:SMS, cpu:PCT, none; comma separated", 1},
    {"levels", OPT_LEVELS, "LIST", 0,
     "The same as bare percentages of the device's limiter", 1},
    {"q-lens", OPT_Q_LENS, "LIST", 0, "Query lengths of the rectangles, or none", 2},
    {"kv-lens", OPT_KV_LENS, "LIST", 0, "Key lengths of the rectangles, or none", 2},
    {"causal-lens", OPT_CAUSAL_LENS, "LIST", 0, "Lengths of the causal squares, or none",
     2},
    {"max-len", OPT_MAX_LEN, "N", 0,
     "Longest length of the lists not given (GPU 64K, CPU 2K)", 2},
    {"batches", OPT_BATCHES, "LIST", 0,
     "Every block with each of these batches, instead of --batch", 2},
    {"preset", OPT_PRESET, "NAME", 0,
     "quick, standard or thorough: lengths, repetitions and target of an adaptive sweep"
     " (standard)",
     2},
    {"adaptive", OPT_ADAPTIVE, NULL, 0,
     "Measure as many cells of the grid as the target needs (default, unless lengths are"
     " given)",
     2},
    {"exhaustive", OPT_EXHAUSTIVE, NULL, 0, "Measure every cell of the grid", 2},
    {"target-error", OPT_TARGET, "MEDIAN,P90", 0,
     "Held-out error at which an adaptive sweep stops (2%,5%)", 2},
    {"kernel", OPT_KERNEL, "FILE.so", 0, "Time the attention kernel of this plug-in", 3},
    {"provider", OPT_PROVIDER, "NAME", 0,
     "Time this kernel instead of the first that fits", 3},
    {"dry-run", 'n', NULL, 0, "Say what would run and how long it takes", 4},
    {"time-budget", OPT_BUDGET, "TIME", 0, "Measure what fits: 90s, 5m, 1h", 4},
    {"max-cell-time", OPT_MAX_CELL, "TIME", 0, "Leave out cells that take longer (12s)",
     4},
    {"warm-up", OPT_WARM_UP, "TIME", 0,
     "Run a block untimed for this long first (0.025s); longer meets the sustained"
     " clocks",
     4},
    {"retry-failed", OPT_RETRY, NULL, 0, "Measure cells again that failed before", 4},
    {"fresh", OPT_FRESH, NULL, 0, "A new run: measure again what is stored already", 4},
    {"allow-throttled", OPT_THROTTLED, NULL, 0,
     "Keep samples taken under hardware or thermal slowdown", 4},
    {"no-cupti", OPT_NO_CUPTI, NULL, 0, "Skip the cross-check of CUDA event times", 4},
    {"no-boosted", OPT_NO_BOOSTED, NULL, 0,
     "Skip the first 0.1 s after idle clocks (about a second a limit)", 4},
    {"seed", OPT_SEED, "N", 0, "Order of the cells (1)", 4},
    {"json", 'j', NULL, 0, "Report as JSON", 5},
    {"linear", OPT_LINEAR, NULL, 0,
     "Measure a layer's projections and MLP (cuBLAS, on a CPU OpenBLAS), no attention",
     6},
    {"model", OPT_MODEL, "NAME", 0,
     "Heads and layer of a known model: llama-3-8b, qwen2.5-7b ... (see FILES)", 6},
    {"hidden", OPT_HIDDEN, "N", 0, "Width of the layer's input and output", 6},
    {"ffn", OPT_FFN, "N", 0, "Inner width of its MLP", 6},
    {"layers", OPT_LAYERS, "N", 0, "Layers of the model (1)", 6},
    {"mlp", OPT_MLP, "KIND", 0, "gated or plain: a gate beside the up projection (gated)",
     6},
    {"tokens", OPT_TOKENS, "LIST", 0,
     "Token counts of linear layers (1 to --max-len, mostly powers of two)", 6},
    {0},
};

/* Limits in full, or bare percentages. */
static int parse_limits(const char *text, const char *option, int bare,
                        struct hcp_limit_list *list, struct hcp_err *err)
{
    for (const char *at = text;; at++) {
        char item[32], full[40], kind[8];
        int32_t value;
        struct hcp_err why;
        size_t len = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s",
                 (int)(len < sizeof item ? len : sizeof item - 1), at);
        if (!*item)
            return hcp_fail(err, HCP_USAGE, "%s '%s' has an empty item", option, text);
        if (!bare && strcmp(item, "none") == 0)
            *item = '\0';
        snprintf(full, sizeof full, "%s%s", bare ? "mps:" : "", item);
        if (bare ? hcp_parse_int(item, "a level", 1, 100, &(int64_t){0}, &why) != HCP_OK
                 : hcp_parse_limit(full, kind, &value, &why) != HCP_OK)
            return hcp_fail(err, HCP_USAGE, "%s: %s", option, why.text);
        void *more = realloc(list->limit, (list->n + 1) * sizeof *list->limit);
        if (!more)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        list->limit = more;
        strcpy(list->limit[list->n++], item);
        at += len;
        if (!*at)
            return HCP_OK;
    }
}

static int one_len(const char *text, const char *option, int64_t *out,
                   struct hcp_err *err)
{
    struct hcp_err why;
    int rc = hcp_parse_len(text, 1, out, &why);
    return rc == HCP_OK ? rc : hcp_fail(err, rc, "%s: %.900s", option, why.text);
}

static int parse_preset(const char *text, enum hcp_run_preset *preset,
                        struct hcp_err *err)
{
    static const char *const names[] = {[HCP_PRESET_STANDARD] = "standard",
                                        [HCP_PRESET_QUICK] = "quick",
                                        [HCP_PRESET_THOROUGH] = "thorough"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *preset = (enum hcp_run_preset)i;
            return HCP_OK;
        }
    return hcp_fail(err, HCP_USAGE, "--preset '%s': use quick, standard or thorough",
                    text);
}

static int set_option(int key, const char *arg, struct hcp_run_args *a,
                      struct hcp_err *err)
{
    struct hcp_run_options *r = &a->run;
    switch (key) {
    case 'd':
        a->db = arg;
        return HCP_OK;
    case 'D':
        a->device = arg;
        return HCP_OK;
    case OPT_LEVELS:
    case OPT_LIMITS:
        if (r->limits.n > 0)
            return hcp_fail(err, HCP_USAGE, "give --levels or --limits, once");
        r->levels_only = key == OPT_LEVELS;
        return parse_limits(arg, key == OPT_LEVELS ? "--levels" : "--limits",
                            r->levels_only, &r->limits, err);
    case OPT_Q_LENS:
        r->q_given = 1;
        return hcp_grid_lens(arg, "--q-lens", &r->grid.q, &r->grid.n_q, err);
    case OPT_KV_LENS:
        r->kv_given = 1;
        return hcp_grid_lens(arg, "--kv-lens", &r->grid.kv, &r->grid.n_kv, err);
    case OPT_CAUSAL_LENS:
        r->causal_given = 1;
        return hcp_grid_lens(arg, "--causal-lens", &r->grid.causal, &r->grid.n_causal,
                             err);
    case OPT_MAX_LEN:
        return one_len(arg, "--max-len", &r->max_len, err);
    case OPT_KERNEL:
        if (snprintf(r->plugin, sizeof r->plugin, "%s", arg) >= (int)sizeof r->plugin)
            return hcp_fail(err, HCP_USAGE, "--kernel: path too long");
        return HCP_OK;
    case OPT_PROVIDER:
        snprintf(r->provider, sizeof r->provider, "%s", arg);
        return hcp_parse_slug(arg, "--provider", sizeof r->provider, err);
    case OPT_BUDGET:
        return hcp_parse_duration(arg, "--time-budget", &r->time_budget_s, err);
    case OPT_MAX_CELL:
        return hcp_parse_duration(arg, "--max-cell-time", &r->max_cell_s, err);
    case OPT_WARM_UP:
        return hcp_parse_duration(arg, "--warm-up", &r->warmup_s, err);
    case OPT_SEED:
        return hcp_parse_int(arg, "--seed", 0, INT64_MAX, &r->seed, err);
    case OPT_BATCHES:
        return hcp_parse_batches(arg, &r->grid, err);
    case OPT_LINEAR:
        return r->linear = 1, HCP_OK;
    case OPT_MODEL:
        return r->model = arg, HCP_OK;
    case OPT_HIDDEN:
        return hcp_run_layer_option("--hidden", arg, r, err);
    case OPT_FFN:
        return hcp_run_layer_option("--ffn", arg, r, err);
    case OPT_LAYERS:
        return hcp_run_layer_option("--layers", arg, r, err);
    case OPT_MLP:
        return hcp_run_layer_option("--mlp", arg, r, err);
    case OPT_TOKENS:
        return hcp_grid_lens(arg, "--tokens", &r->tokens, &r->n_tokens, err);
    case OPT_PRESET:
        a->preset_given = 1;
        return parse_preset(arg, &r->preset, err);
    case OPT_TARGET:
        return hcp_parse_target(arg, &r->target, err);
    case OPT_ADAPTIVE:
    case OPT_EXHAUSTIVE:
        if (r->how != HCP_RUN_DEFAULT)
            return hcp_fail(err, HCP_USAGE, "give --adaptive or --exhaustive, once");
        r->how = key == OPT_ADAPTIVE ? HCP_RUN_ADAPTIVE : HCP_RUN_EXHAUSTIVE;
        return HCP_OK;
    case 'n':
        return r->dry_run = 1, HCP_OK;
    case OPT_RETRY:
        return r->retry_failed = 1, HCP_OK;
    case OPT_FRESH:
        return r->fresh = 1, HCP_OK;
    case OPT_THROTTLED:
        return r->allow_throttled = 1, HCP_OK;
    case OPT_NO_CUPTI:
        return r->no_cupti = 1, HCP_OK;
    case OPT_NO_BOOSTED:
        return r->no_boosted = 1, HCP_OK;
    case 'j':
        return r->json = 1, HCP_OK;
    }
    return ARGP_ERR_UNKNOWN;
}

error_t hcp_run_argp_parse(int key, char *arg, struct argp_state *state)
{
    struct hcp_run_args *a = state->input;
    struct hcp_err err = {0};
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = &a->run.shape;
        return 0;
    }
    if (key == ARGP_KEY_END) {
        struct hcp_run_options *r = &a->run;
        if (r->how == HCP_RUN_EXHAUSTIVE && r->target.median > 0)
            argp_error(state, "--target-error is for an adaptive sweep: leave out "
                              "--exhaustive");
        if (r->grid.n_batches > 1 && (r->how == HCP_RUN_ADAPTIVE || r->target.median > 0))
            argp_error(state, "an adaptive sweep has one batch: give --batch, or leave "
                              "out --adaptive and --target-error");
        if (hcp_run_layer(r, &err) != HCP_OK)
            argp_error(state, "%s", err.text);
        if (r->how == HCP_RUN_DEFAULT && !r->linear && r->grid.n_batches <= 1 &&
            (a->preset_given || r->target.median > 0))
            r->how = HCP_RUN_ADAPTIVE;
        if (r->grid.n_batches == 1)
            r->shape.batch = (int32_t)r->grid.batches[0];
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'", arg);
    if (key < 0 || key > OPT_SEED || (key > 'z' && key < OPT_LEVELS))
        return ARGP_ERR_UNKNOWN;
    int rc = set_option(key, arg, a, &err);
    if (rc == ARGP_ERR_UNKNOWN)
        return rc;
    if (rc != HCP_OK)
        argp_error(state, "%s", err.text);
    return 0;
}

void hcp_run_args_init(struct hcp_run_args *a)
{
    *a = (struct hcp_run_args){0};
    hcp_shape_defaults(&a->run.shape);
    a->run.time_budget_s = a->run.max_cell_s = a->run.warmup_s = NAN;
    a->run.seed = 1;
}

void hcp_run_args_free(struct hcp_run_args *a)
{
    hcp_grid_free(&a->run.grid);
    free(a->run.tokens);
    free(a->run.limits.limit);
}
