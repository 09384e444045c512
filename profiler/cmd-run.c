/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profiler/commands.h"
#include "profiler/run.h"
#include "profiler/worker.h"

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

enum { EXIT_STOPPED = 130 }; /* as a shell reports SIGINT */

struct args {
    struct hcp_run_options run;
    const char *db, *device;
    int preset_given;
};

/* What the devices of one command share. */
struct session {
    const struct args *args;
    hcp_db *db; /* opened when the first device is known: a wrong command makes none */
    double deadline_s;
    hcp_table *table;
    json_t *list; /* NULL: no JSON */
};

static const struct argp_option options[] = {
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

static int set_option(int key, const char *arg, struct args *a, struct hcp_err *err)
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

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
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

static void print_cells(const struct hcp_sweep *run, hcp_table *table)
{
    for (size_t i = 0; i < run->n_levels; i++)
        for (size_t k = 0; k < run->levels[i].n; k++) {
            const struct hcp_sweep_cell *c = &run->levels[i].cells[k];
            if (c->state != HCP_CELL_TODO)
                continue;
            hcp_table_row(table);
            hcp_table_cell(table, "%s", run->info.slug);
            hcp_table_cell(table, "%s",
                           *run->levels[i].limit ? run->levels[i].limit : "none");
            if (run->options->linear) {
                hcp_table_cell(table, "%lld", (long long)c->n_in);
                hcp_table_cell(table, "%lld", (long long)c->n_out);
                hcp_table_cell(table, "%lld", (long long)c->q_len);
            } else {
                hcp_table_cell(table, "%s",
                               c->finish   ? hcp_finish_name(c->finish)
                               : c->causal ? "causal"
                                           : "full");
                hcp_table_cell(table, "%lld", (long long)c->q_len);
                hcp_table_cell(table, "%lld", (long long)c->kv_len);
            }
            hcp_table_cell(table, "%.3g", hcp_run_predict_ms(run, &run->levels[i], c));
            hcp_table_cell(table, "%s", hcp_run_is_due(run, c) ? "next" : "candidate");
            if (run->grid.n_batches > 1)
                hcp_table_cell(table, "%d", (int)c->seqs);
        }
}

static hcp_table *dry_table(const struct hcp_run_options *o)
{
    static const char *const blocks[] = {"device", "limit",       "mask", "q_len",
                                         "kv_len", "expected_ms", "set"};
    static const char *const products[] = {"device", "limit",       "n_in", "n_out",
                                           "tokens", "expected_ms", "set"};
    hcp_table *table = hcp_table_new();
    for (int i = 0; i < 7; i++)
        hcp_table_column(table, o->linear ? products[i] : blocks[i],
                         i > (o->linear ? 1 : 2) && i < 6);
    if (o->grid.n_batches > 1)
        hcp_table_column(table, "batch", 1);
    return table;
}

/* What the table cannot say: why levels failed, what was left out and what to do. */
static void explain(const struct hcp_sweep *run)
{
    int slow = 0, no_time = 0, failed = 0, missing = 0, finishes = 0, throttled = 0;
    const char *finish_error = "";
    for (size_t i = 0; i < run->n_levels; i++) {
        const struct hcp_level *l = &run->levels[i];
        if (*l->error)
            fprintf(stderr, "hcp-profile: %s@%s: %s\n", run->info.slug,
                    *l->limit ? l->limit : "none", l->error);
        slow += l->counts[HCP_CELL_SLOW] + l->finishes[HCP_CELL_SLOW];
        no_time += l->counts[HCP_CELL_NO_TIME] + l->finishes[HCP_CELL_NO_TIME];
        finishes += l->finishes[HCP_CELL_BAD];
        if (*l->finish_error)
            finish_error = l->finish_error;
        failed += l->counts[HCP_CELL_BAD] + l->counts[HCP_CELL_KEPT_FAILED];
        missing += l->counts[HCP_CELL_MISSING];
        throttled += l->throttled;
    }
    if (slow > 0)
        fprintf(stderr,
                "hcp-profile: %d cells left out: they would take longer than %g s each "
                "(--max-cell-time)\n",
                slow, run->max_cell_s);
    hcp_run_explain_adaptive(run);
    hcp_run_explain_drift(run);
    if (no_time > 0)
        fprintf(
            stderr,
            "hcp-profile: %d cells left out by --time-budget; the same command measures "
            "them next\n",
            no_time);
    if (missing > 0)
        fprintf(stderr,
                "hcp-profile: %d cells are not in the recording and stay missing\n",
                missing);
    if (finishes > 0)
        fprintf(stderr,
                "hcp-profile: %d finish pass%s failed; the same command measures them "
                "again: %s\n",
                finishes, finishes == 1 ? "" : "es", finish_error);
    if (throttled > 0)
        fprintf(stderr,
                "hcp-profile: of %d cell%s all samples were rejected: the GPU was "
                "throttled (hardware or thermal); cool it and use --retry-failed, or "
                "keep such samples with --allow-throttled\n",
                throttled, throttled == 1 ? "" : "s");
    if (failed > 0 && run->options->linear)
        fprintf(stderr,
                "hcp-profile: %d products failed; the same command measures them again: "
                "%s\n",
                failed, finish_error);
    else if (failed > 0)
        fprintf(stderr,
                "hcp-profile: %d cells failed; 'hcp-profile show --failed' says why, "
                "--retry-failed measures them again\n",
                failed);
}

static int open_db(struct session *s, struct hcp_err *err)
{
    const char *path;
    if (s->db)
        return HCP_OK;
    path = hcp_cli_db(s->args->db, err);
    if (!path)
        return err->code;
    if (!s->args->run.dry_run)
        return hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &s->db, err);
    return access(path, F_OK) == 0 ? hcp_db_open(path, HCP_DB_READ, &s->db, err) : HCP_OK;
}

/* Measures, and says how it went. */
static int measure(struct session *s, struct hcp_sweep *run)
{
    struct hcp_err err = {0};
    int rc = hcp_run_check(run, &err), got = 0;
    if (rc == HCP_OK) {
        hcp_run_announce(run);
        rc = hcp_run_measure(run, &err);
    }
    for (size_t i = 0; i < run->n_levels; i++)
        got += run->levels[i].counts[HCP_CELL_OK] + run->levels[i].counts[HCP_CELL_KEPT];
    if (hcp_worker_stop) {
        fprintf(stderr,
                "hcp-profile: stopped; every finished cell is in %s, the same command "
                "goes on "
                "from there\n",
                hcp_db_path(s->db));
        rc = EXIT_STOPPED;
    } else if (rc != HCP_OK) {
        rc = hcp_cli_report(&err);
    } else if (run->failed) {
        rc = HCP_FAILED;
    } else if (got == 0) {
        fprintf(stderr, "hcp-profile: nothing was measured\n");
        rc = HCP_NO_ANSWER;
    }
    explain(run);
    hcp_run_table_rows(run, s->table);
    if (s->list)
        json_array_append_new(s->list, hcp_run_json(run));
    return rc;
}

static int stopped_early(void)
{
    fputs("hcp-profile: stopped; the same command begins again\n", stderr);
    return EXIT_STOPPED;
}

static int sweep(struct session *s, const char *spec, const struct hcp_device_info *gpu)
{
    struct hcp_sweep run;
    struct hcp_err err = {0};
    int rc = hcp_run_prepare(&run, &s->args->run, spec, gpu, &err);
    hcp_waiting_begin();
    if (rc == HCP_OK)
        rc = open_db(s, &err);
    if (rc == HCP_OK)
        rc = hcp_run_resume(&run, s->db, &err);
    hcp_waiting_end();
    if (hcp_worker_stop) {
        rc = stopped_early();
    } else if (rc != HCP_OK) {
        hcp_cli_report(&err);
    } else {
        run.deadline_s = s->deadline_s;
        if (s->args->run.dry_run) {
            hcp_run_announce(&run);
            print_cells(&run, s->table);
        } else {
            rc = measure(s, &run);
        }
    }
    hcp_run_free(&run);
    return rc;
}

/* Every GPU that the runtime shows, or the one asked for. */
static int sweep_gpus(struct session *s, int *n_gpus, char reason[512])
{
    const char *device = s->args->device;
    struct hcp_device_info *gpus = NULL;
    struct hcp_err err = {0};
    size_t n = 0;
    int64_t only = -1;
    int rc = hcp_worker_list(&gpus, &n, reason, &err);
    if (rc != HCP_OK)
        return hcp_worker_stop ? stopped_early() : hcp_cli_report(&err);
    *n_gpus = (int)n;
    if (device && device[4] == ':') {
        rc = hcp_parse_int(device + 5, "--device cuda:N", 0, 1024, &only, &err);
        if (rc == HCP_OK && n > 0 && only >= (int64_t)n)
            rc = hcp_fail(&err, HCP_FAILED,
                          "no device cuda:%lld: there are %zu ('hcp-profile devices' "
                          "lists them)",
                          (long long)only, n);
    }
    if (rc == HCP_OK && device && n == 0)
        rc = hcp_fail(&err, HCP_FAILED, "no CUDA GPU: %s", reason);
    if (rc != HCP_OK)
        n = 0, hcp_cli_report(&err);
    for (size_t i = 0; i < n && rc != HCP_USAGE && rc != EXIT_STOPPED; i++) {
        char spec[32];
        snprintf(spec, sizeof spec, "cuda:%zu", i);
        if (only >= 0 && (int64_t)i != only)
            continue;
        int one = sweep(s, spec, &gpus[i]);
        rc = one == HCP_OK ? rc : one;
    }
    free(gpus);
    return rc;
}

/* Of limits for GPUs here; other machines' times may come from several runs. */
static int check_limiters(const struct hcp_limit_list *limits)
{
    struct hcp_err err = {0};
    for (size_t i = 0; i < limits->n; i++)
        for (size_t k = 0; k < i; k++)
            if (hcp_limits_agree(limits->limit[k], limits->limit[i], &err) != HCP_OK)
                return hcp_cli_report(&err);
    return HCP_OK;
}

static int sweep_all(struct session *s)
{
    const char *device = s->args->device;
    int n_gpus = 0;
    char reason[512] = "";
    if (device && strncmp(device, "cuda", 4) != 0)
        return sweep(s, device, NULL);
    if (check_limiters(&s->args->run.limits) != HCP_OK)
        return HCP_USAGE;
    int rc = sweep_gpus(s, &n_gpus, reason);
    if (device || n_gpus > 0 || rc != HCP_OK)
        return rc;
    fprintf(stderr, "hcp-profile: no CUDA GPU (%s): profiling this CPU\n", reason);
    return sweep(s, "cpu", NULL);
}

static void print(struct session *s, int rc)
{
    if (s->list && s->args->run.dry_run)
        hcp_table_to_json(s->table, s->list);
    if (s->list)
        hcp_json_print(s->list, stdout);
    if (s->list || rc == HCP_USAGE)
        hcp_table_free(s->table);
    else
        hcp_table_print(s->table, stdout);
}

int cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&hcp_shape_argp, 0, "Shape of the attention:", 10}, {0}};
    static const struct argp argp = {
        options,
        parse,
        "",
        "Measures attention blocks on a device at several limits and stores every cell "
        "as it is "
        "finished; the same command goes on after an interruption.",
        children,
        NULL,
        NULL};
    struct args a = {0};
    struct hcp_err err = {0};
    hcp_shape_defaults(&a.run.shape);
    a.run.time_budget_s = a.run.max_cell_s = a.run.warmup_s = NAN;
    a.run.seed = 1;
    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    if (a.run.max_len == 0)
        a.run.max_len = a.run.shape.seq_len;
    const struct hcp_device_ops *ops;
    int rc = a.device ? hcp_device_ops_of(a.device, &ops, &err) : HCP_OK;
    if (rc != HCP_OK)
        return hcp_cli_report(&err);
    hcp_worker_catch_signals();
    struct session session = {.args = &a, .deadline_s = INFINITY};
    if (!isnan(a.run.time_budget_s))
        session.deadline_s = hcp_now_s() + a.run.time_budget_s;
    session.table = a.run.dry_run ? dry_table(&a.run) : hcp_table_new();
    if (!a.run.dry_run)
        hcp_run_table_columns(session.table);
    session.list = a.run.json ? json_array() : NULL;
    rc = sweep_all(&session);
    hcp_db_close(session.db);
    print(&session, rc);
    hcp_grid_free(&a.run.grid);
    free(a.run.tokens);
    free(a.run.limits.limit);
    return hcp_cli_finish(rc);
}
