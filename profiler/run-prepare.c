/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "kernels/geometry.h"
#include "profiler/worker.h"

/* What a device kind is swept with when nothing is said. */
struct preset {
    const char *kind;
    const char *limits[12];
    int64_t lowest, max_len;
    double max_cell_s;
    double guess_ms, guess_tflops; /* of the whole device, before the first cell */
    double guess_gb_per_s;         /* of a finish pass */
    struct hcp_cost cost;
};

#define TEN_LEVELS                                                                       \
    {                                                                                    \
        "mps:10", "mps:20", "mps:30", "mps:40", "mps:50", "mps:60", "mps:70", "mps:80",  \
            "mps:90", "mps:100"                                                          \
    }

static const struct preset presets[] = {
    {.kind = "cuda",
     .limits = TEN_LEVELS,
     .lowest = 128,
     .max_len = 65536,
     .max_cell_s = 12,
     .guess_ms = 0.02,
     .guess_tflops = 200,
     .guess_gb_per_s = 1500,
     .cost = {.overhead_s = 0.06,
              .warmup_s = 0.025,
              .min_time_s = 0.03,
              .cap_s = 1.5,
              .min_samples = 10,
              .few_samples = 3,
              .visits = 2}},
    {.kind = "cpu",
     .limits = {"cpu:25", "cpu:50", "cpu:100"},
     .lowest = 64,
     .max_len = 2048,
     .max_cell_s = 12,
     .guess_ms = 0.02,
     .guess_tflops = 0.03,
     .guess_gb_per_s = 2,
     .cost = {.overhead_s = 0.002,
              .warmup_s = 0.025,
              .min_time_s = 0.02,
              .cap_s = 0.3,
              .min_samples = 10,
              .few_samples = 3,
              .visits = 2}},
    {.kind = "recorded",
     .lowest = 128,
     .max_len = 65536,
     .max_cell_s = INFINITY,
     .guess_tflops = 1e9,
     .guess_gb_per_s = 1e9,
     .cost = {.visits = 1}},
    {.kind = "synthetic",
     .limits = TEN_LEVELS,
     .lowest = 128,
     .max_len = 65536,
     .max_cell_s = INFINITY,
     .guess_tflops = 1e9,
     .guess_gb_per_s = 1e9,
     .cost = {.visits = 1}},
};

static const struct preset *preset_of(const char *kind)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].kind, kind) == 0)
            return &presets[i];
    return NULL;
}

/* Machines that are no GPUs set any number of SMs aside. */
static struct hcp_green_rule green_rule(const struct hcp_sweep *run)
{
    const struct hcp_device_info *info = &run->info;
    if (run->ops != &hcp_device_cuda_ops)
        return (struct hcp_green_rule){info->sm_count, 1, 1, info->sm_count};
    return (struct hcp_green_rule){info->sm_count, info->green_min, info->green_step,
                                   info->green_most};
}

/* A limit must be of a kind that the device knows; recorded machines know theirs. */
static int check_limit(const struct hcp_sweep *run, const char *limit, double *fraction,
                       struct hcp_err *err)
{
    char kind[8] = "";
    int32_t value = 100;
    int rc = hcp_parse_limit(limit, kind, &value, err);
    if (rc != HCP_OK)
        return rc;
    const char *device = run->ops->kind;
    int cuda = strcmp(device, "cuda") == 0, cpu = strcmp(device, "cpu") == 0;
    if ((cuda && strcmp(kind, "cpu") == 0) || (cpu && *kind && strcmp(kind, "cpu") != 0))
        return hcp_fail(err, HCP_USAGE, "limit '%s' is not one of a %s; use %s", limit,
                        cuda ? "CUDA GPU" : "CPU",
                        cuda ? "mps:PCT or green:SMS" : "cpu:PCT");
    *fraction = *kind ? value / 100.0 : 1;
    int sms = run->info.sm_count; /* 0 before the device is known */
    if (strcmp(kind, "green") != 0 || sms <= 0)
        return HCP_OK;
    const struct hcp_green_rule rule = green_rule(run);
    if (rule.step <= 0)
        return hcp_fail(err, HCP_FAILED, "limit '%s': %s", limit, run->info.no_green);
    rc = hcp_green_check(&rule, value, err);
    if (rc != HCP_OK)
        return rc;
    *fraction = (double)value / sms;
    return HCP_OK;
}

static int add_level(struct hcp_sweep *run, const char *limit, struct hcp_err *err)
{
    double fraction = 1;
    for (size_t i = 0; i < run->n_levels; i++)
        if (strcmp(run->levels[i].limit, limit) == 0)
            return HCP_OK;
    int rc = check_limit(run, limit, &fraction, err);
    if (rc != HCP_OK)
        return rc;
    struct hcp_level *more = realloc(run->levels, (run->n_levels + 1) * sizeof *more);
    if (!more)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    run->levels = more;
    more[run->n_levels] = (struct hcp_level){.fraction = fraction};
    snprintf(more[run->n_levels].limit, sizeof more->limit, "%s", limit);
    run->n_levels++;
    return HCP_OK;
}

/* Levels in percent on a GPU without an MPS daemon: the nearest green contexts. *why:
 * there is no daemon; HCP_NO_ANSWER: and no green contexts. */
static int add_green(struct hcp_sweep *run, const char *limit, const struct hcp_err *why,
                     struct hcp_err *err)
{
    const struct hcp_green_rule rule = green_rule(run);
    const char *percent = strchr(limit, ':');
    char green[32];
    if (rule.step <= 0)
        return HCP_NO_ANSWER;
    snprintf(green, sizeof green, "green:%d",
             hcp_green_near(&rule, atoi(percent ? percent + 1 : limit)));
    snprintf(run->note, sizeof run->note,
             "levels are green contexts of the nearest SM counts: %.1000s", why->text);
    return add_level(run, green, err);
}

static int add_levels(struct hcp_sweep *run, const struct preset *preset,
                      struct hcp_err *err)
{
    const struct hcp_run_options *o = run->options;
    int rc = HCP_OK;
    char control[1024], limit[48];
    struct hcp_err why = {0};
    int green = run->ops == &hcp_device_cuda_ops &&
                hcp_mps_find(control, sizeof control, &why) != HCP_OK;
    for (size_t i = 0; i < o->limits.n && rc == HCP_OK; i++) {
        const char *given = o->limits.limit[i];
        snprintf(limit, sizeof limit, "%s%s%s",
                 o->levels_only ? run->info.limit_kind : "", o->levels_only ? ":" : "",
                 given);
        rc = green && o->levels_only ? add_green(run, given, &why, err)
                                     : add_level(run, limit, err);
    }
    for (size_t i = 0; o->limits.n == 0 && preset->limits[i] && rc == HCP_OK; i++)
        rc = green ? add_green(run, preset->limits[i], &why, err)
                   : add_level(run, preset->limits[i], err);
    if (rc != HCP_NO_ANSWER)
        return rc;
    if (o->limits.n > 0)
        return hcp_fail(err, HCP_FAILED, "--levels: %.700s; %s", why.text,
                        run->info.no_green);
    snprintf(run->note, sizeof run->note, "the whole device only, no limits: %.800s; %s",
             why.text, run->info.no_green);
    return add_level(run, "", err);
}

/* A recorded machine's own cells and limits, where none are asked for. */
static int recorded_grid(struct hcp_sweep *run, struct hcp_err *err)
{
    struct hcp_cell *cells = NULL;
    size_t n = 0;
    int rc = hcp_recorded_cells(&run->config, &cells, &n, err);
    if (rc != HCP_OK)
        return rc;
    const struct hcp_run_options *o = run->options;
    for (size_t i = 0; i < n && o->limits.n == 0 && rc == HCP_OK; i++)
        rc = add_level(run, cells[i].key.limit, err);
    for (size_t l = 0; l < run->n_levels && rc == HCP_OK; l++) {
        struct hcp_level *level = &run->levels[l];
        level->cells = calloc(n, sizeof *level->cells);
        if (!level->cells)
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
        for (size_t i = 0; i < n && rc == HCP_OK; i++) {
            if (strcmp(cells[i].key.limit, level->limit) != 0)
                continue;
            struct hcp_sweep_cell c = {.causal = strcmp(cells[i].mask, "causal") == 0,
                                       .q_len = cells[i].q_len,
                                       .kv_len = cells[i].kv_len,
                                       .seqs = cells[i].key.batch};
            int twice = 0;
            for (size_t k = 0; k < level->n; k++)
                twice |= level->cells[k].causal == c.causal &&
                         level->cells[k].q_len == c.q_len &&
                         level->cells[k].kv_len == c.kv_len;
            if (!twice &&
                (o->max_len == 0 || (c.q_len <= o->max_len && c.kv_len <= o->max_len)))
                level->cells[level->n++] = c;
        }
    }
    free(cells);
    return rc;
}

static int copy_lens(int64_t **to, size_t *n_to, const int64_t *from, size_t n)
{
    free(*to);
    *n_to = 0;
    *to = malloc((n + 1) * sizeof **to);
    if (!*to)
        return -1;
    if (n > 0)
        memcpy(*to, from, n * sizeof **to);
    *n_to = n;
    return 0;
}

/* The preset's lengths, replaced by what is given. Decode: one query a sequence,
 * against 1K keys and up. */
static int make_grid(struct hcp_sweep *run, const struct preset *preset,
                     struct hcp_err *err)
{
    const struct hcp_run_options *o = run->options;
    struct hcp_grid *g = &run->grid;
    int64_t max_len = o->max_len ? o->max_len : preset->max_len, one = 1;
    int decode = strcmp(run->key.phase, "decode") == 0;
    int64_t lowest = decode ? 1024 : preset->lowest;
    enum hcp_half_steps half_steps = o->preset == HCP_PRESET_THOROUGH ? HCP_HALF_ALL
                                     : run->ops == &hcp_device_cpu_ops
                                         ? HCP_HALF_NONE /* no tiles to round to */
                                         : HCP_HALF_WAVES;
    int rc =
        hcp_grid_preset(lowest < max_len ? lowest : max_len, max_len, half_steps, g, err);
    if (rc != HCP_OK)
        return rc;
    int bad = 0;
    if (decode)
        bad = copy_lens(&g->q, &g->n_q, &one, 1) ||
              copy_lens(&g->causal, &g->n_causal, NULL, 0);
    if (o->q_given)
        bad = bad || copy_lens(&g->q, &g->n_q, o->grid.q, o->grid.n_q);
    if (o->kv_given)
        bad = bad || copy_lens(&g->kv, &g->n_kv, o->grid.kv, o->grid.n_kv);
    if (o->causal_given)
        bad =
            bad || copy_lens(&g->causal, &g->n_causal, o->grid.causal, o->grid.n_causal);
    int64_t batch = o->shape.batch;
    bad = bad ||
          (o->grid.n_batches > 0
               ? copy_lens(&g->batches, &g->n_batches, o->grid.batches, o->grid.n_batches)
               : copy_lens(&g->batches, &g->n_batches, &batch, 1));
    if (bad)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (g->n_q * g->n_kv + g->n_causal == 0)
        return hcp_fail(err, HCP_USAGE,
                        "nothing to measure: no rectangles and no causal squares");
    return HCP_OK;
}

static int fill_levels(struct hcp_sweep *run, struct hcp_err *err)
{
    for (size_t i = 0; i < run->n_levels; i++) {
        struct hcp_level *level = &run->levels[i];
        int rc = level->cells
                     ? HCP_OK
                     : hcp_sweep_cells(&run->grid, (uint64_t)run->options->seed + i,
                                       &level->cells, &level->n, err);
        if (rc != HCP_OK)
            return rc;
        if (run->adaptive)
            hcp_sweep_start(level->cells, level->n);
    }
    return HCP_OK;
}

/* Lengths that are named are all meant; and where times are read or computed, leaving
 * cells out saves nothing. */
static void choose_how(struct hcp_sweep *run)
{
    static const struct hcp_target targets[] = {[HCP_PRESET_STANDARD] = {0.02, 0.05},
                                                [HCP_PRESET_QUICK] = {0.05, 0.12},
                                                [HCP_PRESET_THOROUGH] = {0.01, 0.025}};
    const struct hcp_run_options *o = run->options;
    int named = o->q_given || o->kv_given || o->causal_given;
    run->adaptive =
        o->how == HCP_RUN_ADAPTIVE || (o->how == HCP_RUN_DEFAULT && run->ops->in_worker &&
                                       !named && o->grid.n_batches <= 1);
    run->adaptive = run->adaptive && !o->linear;
    run->target = o->target.median > 0 ? o->target : targets[o->preset];
    if (o->preset == HCP_PRESET_QUICK)
        run->cost.visits = 1;
}

/* Opens the whole device to learn what it and its kernel are called; it stays open
 * for the conformance check. */
static int identify(struct hcp_sweep *run, struct hcp_err *err)
{
    const struct hcp_device_ops *ops =
        run->ops->in_worker ? &hcp_device_worker_ops : run->ops;
    double start = hcp_now_s();
    int rc = ops->open(&run->config, &run->whole, err);
    run->open_s = hcp_now_s() - start;
    if (rc == HCP_OK)
        run->info = run->whole->info;
    return rc;
}

/* Before the first cell of a level has been measured. */
static void guess(struct hcp_sweep *run)
{
    const struct preset *preset = preset_of(run->ops->kind);
    const struct hcp_device_config *c = &run->config;
    double flops =
        run->options->linear ? 2 : hcp_attention_flops(1, 1, c->heads, c->head_dim);
    run->guess_gb_per_s = preset->guess_gb_per_s;
    for (size_t i = 0; i < run->n_levels; i++)
        hcp_estimate_init(&run->levels[i].estimate, preset->guess_ms,
                          flops / (preset->guess_tflops * 1e9));
}

/* The finish passes that the kernel needs, in place of those of another kernel. */
static int add_finishes(struct hcp_sweep *run, struct hcp_err *err)
{
    int rc = HCP_OK;
    for (size_t i = 0; i < run->n_levels && rc == HCP_OK; i++)
        rc = hcp_sweep_add_finishes(&run->levels[i].cells, &run->levels[i].n,
                                    run->info.finishes, err);
    return rc;
}

int hcp_run_use_kernel(struct hcp_sweep *run, const char *name, struct hcp_err *err)
{
    char was[sizeof run->config.provider];
    strcpy(was, run->config.provider);
    snprintf(run->config.provider, sizeof run->config.provider, "%s", name);
    int rc = identify(run, err);
    if (rc != HCP_OK) {
        strcpy(run->config.provider, was);
        return rc;
    }
    strcpy(run->key.provider, run->info.provider);
    for (size_t i = 0; i < run->n_levels; i++) {
        struct hcp_level *level = &run->levels[i];
        for (size_t k = 0; k < level->n; k++)
            level->cells[k].state = HCP_CELL_TODO, level->cells[k].ms = 0;
        if (run->adaptive)
            hcp_sweep_start(level->cells, level->n);
        memset(level->adapt, 0, sizeof level->adapt);
        hcp_estimate_free(&level->estimate);
    }
    guess(run);
    return add_finishes(run, err);
}

int hcp_run_prepare(struct hcp_sweep *run, const struct hcp_run_options *options,
                    const char *spec, const struct hcp_device_info *gpu,
                    struct hcp_err *err)
{
    *run = (struct hcp_sweep){.options = options, .slip = 1};
    int rc = hcp_device_ops_of(spec, &run->ops, err);
    if (rc != HCP_OK)
        return rc;
    const struct preset *preset = preset_of(run->ops->kind);
    const struct hcp_shape_args *shape = &options->shape;
    struct hcp_device_config *config = &run->config;
    if (strlen(spec) >= sizeof config->spec)
        return hcp_fail(err, HCP_USAGE, "--device: longer than %zu characters",
                        sizeof config->spec - 1);
    strcpy(config->spec, spec);
    strcpy(config->provider, options->provider);
    strcpy(config->plugin, options->plugin);
    strcpy(config->dtype, shape->dtype);
    strcpy(config->phase, shape->phase);
    config->batch = shape->batch;
    config->heads = shape->heads;
    config->kv_heads = shape->kv_heads;
    config->head_dim = shape->head_dim;
    config->allow_throttled = options->allow_throttled;
    config->no_cupti = options->no_cupti;
    config->linear = options->linear;
    if (options->linear && run->ops == &hcp_device_recorded_ops)
        return hcp_fail(err, HCP_USAGE,
                        "--linear measures; the linear rows of a recorded machine come "
                        "with 'hcp-profile import'");
    if (options->grid.n_batches > 1 && run->ops == &hcp_device_recorded_ops)
        return hcp_fail(
            err, HCP_USAGE,
            "--batches: a recorded machine is replayed one --batch at a time");
    if (gpu)
        strcpy(config->device_uuid, gpu->uuid);
    /* Limits that are wrong whatever the device says come before it is touched. */
    for (size_t i = 0; i < options->limits.n && !options->levels_only && rc == HCP_OK;
         i++) {
        double fraction;
        rc = check_limit(run, options->limits.limit[i], &fraction, err);
    }
    if (rc == HCP_OK)
        rc = identify(run, err);
    if (rc != HCP_OK) {
        hcp_run_free(run);
        return rc;
    }
    run->key = (struct hcp_key){.batch = shape->batch,
                                .heads = shape->heads,
                                .kv_heads = shape->kv_heads,
                                .head_dim = shape->head_dim};
    strcpy(run->key.device, run->info.slug);
    strcpy(run->key.provider, run->info.provider);
    strcpy(run->key.dtype, shape->dtype);
    strcpy(run->key.phase, shape->phase);
    run->cost = preset->cost;
    if (!isnan(options->warmup_s))
        run->cost.warmup_s = options->warmup_s;
    run->max_cell_s =
        isnan(options->max_cell_s) ? preset->max_cell_s : options->max_cell_s;
    run->deadline_s = INFINITY;
    choose_how(run);
    rc = add_levels(run, preset, err);
    if (rc == HCP_OK && !options->linear)
        rc = make_grid(run, preset, err);
    if (rc == HCP_OK && run->ops == &hcp_device_recorded_ops && !options->q_given &&
        !options->kv_given && !options->causal_given)
        rc = recorded_grid(run, err);
    if (rc == HCP_OK && run->n_levels == 0)
        rc = add_level(run, "", err);
    if (rc == HCP_OK)
        rc = options->linear ? hcp_run_linear_cells(run, preset->max_len, err)
                             : fill_levels(run, err);
    if (rc == HCP_OK)
        rc = add_finishes(run, err);
    if (rc == HCP_OK)
        guess(run);
    else
        hcp_run_free(run);
    return rc;
}
