/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/cli.h"
#include "profiler/commands.h"
#include "profiler/show-groups.h"
#include "profiler/show-layers.h"
#include "profiler/show-rows.h"
#include "profiler/show-table.h"
#include "profiler/sweep.h"

struct args {
    const char *db;
    int json, cells, failed;
    int what; /* OPT_FINISH ..: other rows than cells */
    struct hcp_filter filter;
    const char *model; /* of OPT_MODEL */
    int64_t *tokens;
    size_t n_tokens;
};

enum {
    OPT_CELLS = 0x2000,
    OPT_FAILED,
    OPT_FINISH,
    OPT_LINKS,
    OPT_RINGS,
    OPT_TOPOLOGY,
    OPT_INTERFERENCE,
    OPT_DRIFT,
    OPT_LINEAR,
    OPT_MODEL,
    OPT_TOKENS
};

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database to read ($HCP_DB, else hcp.db)", 0},
    {"cells", OPT_CELLS, NULL, 0, "Every row instead of a summary", 0},
    {"failed", OPT_FAILED, NULL, 0, "Every cell that failed, and why", 0},
    {"finish", OPT_FINISH, NULL, 0,
     "Passes that store or merge the results of kernels that cannot accumulate", 0},
    {"links", OPT_LINKS, NULL, 0,
     "Transfers: latency and bandwidth of each pair (--cells: every row)", 0},
    {"rings", OPT_RINGS, NULL, 0, "Rings that ran: predicted and measured", 0},
    {"topology", OPT_TOPOLOGY, NULL, 0, "How devices are connected", 0},
    {"interference", OPT_INTERFERENCE, NULL, 0,
     "Blocks beside transfers: by what factor each slows the other down", 0},
    {"drift", OPT_DRIFT, NULL, 0, "First cells of sweeps, measured again at their ends",
     0},
    {"linear", OPT_LINEAR, NULL, 0, "GEMMs of linear layers", 0},
    {"model", OPT_MODEL, "NAME", 0,
     "Instead of --linear's rows: the time of this model's layer", 0},
    {"tokens", OPT_TOKENS, "LIST", 0, "For these token counts (those measured)", 0},
    {"json", 'j', NULL, 0, "Print a JSON array", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    struct hcp_err err = {0};

    switch (key) {
    case 'd':
        a->db = arg;
        return 0;
    case 'j':
        a->json = 1;
        return 0;
    case OPT_FAILED:
        a->failed = 1;
        a->filter.status = "failed";
        return 0;
    case OPT_CELLS:
        a->cells = 1;
        return 0;
    case OPT_TOKENS:
        if (hcp_grid_lens(arg, "--tokens", &a->tokens, &a->n_tokens, &err))
            argp_error(state, "%s", err.text);
        return 0;
    case OPT_MODEL:
        a->model = arg;
        key = OPT_LINEAR;
        /* fall through */
    case OPT_FINISH:
    case OPT_LINKS:
    case OPT_RINGS:
    case OPT_TOPOLOGY:
    case OPT_INTERFERENCE:
    case OPT_DRIFT:
    case OPT_LINEAR:
        if (a->what && a->what != key)
            argp_error(state, "--finish, --links, --rings, --topology, --interference, "
                              "--drift, --linear: one at a time");
        a->what = key;
        return 0;
    case ARGP_KEY_END:
        if (a->what && a->failed)
            argp_error(state, "--failed is about cells; give it alone");
        if (a->n_tokens && !a->model)
            argp_error(state, "--tokens is for --model");
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->filter;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; the database is given with --db", arg);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

struct cell_printer {
    hcp_table *table;
    json_t *array;
    size_t rows;
    int failed; /* why instead of how long */
};

static void cell_object(const struct hcp_cell *c, json_t *array)
{
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:I, s:I, s:s}", "device",
        c->key.device, "limit", c->key.limit, "provider", c->key.provider, "dtype",
        c->key.dtype, "phase", c->key.phase, "batch", (int)c->key.batch, "heads",
        (int)c->key.heads, "kv_heads", (int)c->key.kv_heads, "head_dim",
        (int)c->key.head_dim, "mask", c->mask, "q_len", (json_int_t)c->q_len, "kv_len",
        (json_int_t)c->kv_len, "status", c->status);

    json_object_set_new(o, "time_ms", hcp_json_real(c->time_ms));
    json_object_set_new(o, "min_ms", hcp_json_real(c->min_ms));
    json_object_set_new(o, "p75_ms", hcp_json_real(c->p75_ms));
    json_object_set_new(o, "boosted_ms", hcp_json_real(c->boosted_ms));
    json_object_set_new(o, "tflops", hcp_json_real(hcp_cell_tflops(c)));
    json_object_set_new(o, "samples",
                        c->samples < 0 ? json_null() : json_integer(c->samples));
    json_object_set_new(o, "sm_seen",
                        c->sm_seen < 0 ? json_null() : json_integer(c->sm_seen));
    json_object_set_new(o, "origin", json_string(c->origin));
    json_object_set_new(o, "run_uid", json_string(c->run_uid));
    json_object_set_new(o, "error", *c->error ? json_string(c->error) : json_null());
    json_array_append_new(array, o);
}

static void failed_row(const struct hcp_cell *c, hcp_table *t)
{
    const struct hcp_key *k = &c->key;

    hcp_table_row(t);
    hcp_table_cell(t, "%s", k->device);
    hcp_table_cell(t, "%s", show_limit(k->limit));
    hcp_table_cell(t, "%s", k->provider);
    hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(k));
    hcp_table_cell(t, "%s", c->mask);
    hcp_table_cell(t, "%lld", (long long)c->q_len);
    hcp_table_cell(t, "%lld", (long long)c->kv_len);
    hcp_table_cell(t, "%s", c->run_uid);
    hcp_table_cell(t, "%s", *c->error ? c->error : "(no reason stored)");
}

static int print_cell(const struct hcp_cell *c, void *ctx)
{
    struct cell_printer *p = ctx;
    hcp_table *t = p->table;

    p->rows++;
    if (p->array) {
        cell_object(c, p->array);
        return HCP_OK;
    }
    if (p->failed) {
        failed_row(c, t);
        return HCP_OK;
    }
    hcp_table_row(t);
    hcp_table_cell(t, "%s", c->key.device);
    hcp_table_cell(t, "%s", show_limit(c->key.limit));
    hcp_table_cell(t, "%s", c->key.provider);
    hcp_table_cell(t, "%s", c->key.phase);
    hcp_table_cell(t, "%s", c->mask);
    hcp_table_cell(t, "%lld", (long long)c->q_len);
    hcp_table_cell(t, "%lld", (long long)c->kv_len);
    show_real(t, 5, c->time_ms);
    show_real(t, 5, c->min_ms);
    show_real(t, 5, c->p75_ms);
    show_int(t, c->samples);
    show_real(t, 1, hcp_cell_tflops(c));
    show_int(t, c->sm_seen);
    hcp_table_cell(t, "%s", show_origin(c->origin));
    hcp_table_cell(t, "%s", c->run_uid);
    hcp_table_cell(t, "%s%s%s", c->status, *c->error ? ": " : "", c->error);
    return HCP_OK;
}

static int show_cells(hcp_db *db, const struct args *a, size_t *rows, struct hcp_err *err)
{
    static const struct show_column columns[] = {
        {"DEVICE", 0},  {"LIMIT", 0},   {"KERNEL", 0},  {"PHASE", 0},  {"MASK", 0},
        {"Q_LEN", 1},   {"KV_LEN", 1},  {"TIME_MS", 1}, {"MIN_MS", 1}, {"P75_MS", 1},
        {"SAMPLES", 1}, {"TFLOP/S", 1}, {"SMS", 1},     {"ORIGIN", 0}, {"RUN", 0},
        {"STATUS", 0},  {NULL, 0}};
    static const struct show_column failed[] = {
        {"DEVICE", 0}, {"LIMIT", 0},  {"KERNEL", 0}, {"SHAPE", 0}, {"MASK", 0},
        {"Q_LEN", 1},  {"KV_LEN", 1}, {"RUN", 0},    {"ERROR", 0}, {NULL, 0}};
    struct cell_printer p = {.failed = a->failed};
    int rc;

    if (a->json)
        p.array = json_array();
    else if (a->failed)
        p.table = show_table(failed);
    else
        p.table = show_table(columns);
    rc = hcp_db_each_cell(db, &a->filter, 0, print_cell, &p, err);
    *rows = p.rows;
    if (rc || (!p.rows && !(a->failed && a->json))) {
        hcp_table_free(p.table);
        json_decref(p.array);
    } else if (a->json) {
        hcp_json_print(p.array, stdout);
    } else {
        hcp_table_print(p.table, stdout);
    }
    return rc;
}

static json_t *model_json(const struct show_model *m)
{
    if (!m->there)
        return json_null();
    return json_pack("{s:o, s:o, s:i, s:b}", "holdout_median", hcp_json_real(m->median),
                     "holdout_p90", hcp_json_real(m->p90), "holdout_cells", m->cells,
                     "stale", m->stale);
}

static void group_object(const struct show_group *g, json_t *array)
{
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I}",
        "device", g->key.device, "limit", g->key.limit, "provider", g->key.provider,
        "dtype", g->key.dtype, "phase", g->key.phase, "batch", (int)g->key.batch, "heads",
        (int)g->key.heads, "kv_heads", (int)g->key.kv_heads, "head_dim",
        (int)g->key.head_dim, "cells", (json_int_t)g->ok, "failed", (json_int_t)g->failed,
        "q_len_min", (json_int_t)g->q_min, "q_len_max", (json_int_t)g->q_max,
        "kv_len_min", (json_int_t)g->kv_min, "kv_len_max", (json_int_t)g->kv_max);

    json_object_set_new(o, "sm_seen", g->sms < 0 ? json_null() : json_integer(g->sms));
    json_object_set_new(o, "median_tflops", hcp_json_real(show_median_tflops(g)));
    json_object_set_new(o, "max_tflops", hcp_json_real(show_max_tflops(g)));
    json_object_set_new(o, "copy_gb_per_s", hcp_json_real(g->copy_gb_per_s));
    json_object_set_new(o, "decode_gb_per_s", hcp_json_real(g->decode_gb_per_s));
    json_object_set_new(o, "origin", json_string(g->origin));
    json_object_set_new(o, "lut", model_json(&g->lut));
    json_object_set_new(o, "poly", model_json(&g->poly));
    json_array_append_new(array, o);
}

static void range_cell(hcp_table *t, int64_t min, int64_t max)
{
    if (min > max)
        hcp_table_cell(t, "%s", "");
    else if (min == max)
        hcp_table_cell(t, "%lld", (long long)min);
    else
        hcp_table_cell(t, "%lld-%lld", (long long)min, (long long)max);
}

static void model_cell(hcp_table *t, const struct show_model *m)
{
    if (!m->there)
        hcp_table_cell(t, "%s", "-");
    else if (m->stale)
        hcp_table_cell(t, "%s", "stale");
    else if (isnan(m->median))
        hcp_table_cell(t, "%s", "fitted");
    else
        hcp_table_cell(t, "%.1f/%.1f", 100 * m->median, 100 * m->p90);
}

static void group_row(const struct show_group *g, hcp_table *t)
{
    const struct hcp_key *k = &g->key;

    hcp_table_row(t);
    hcp_table_cell(t, "%s", k->device);
    hcp_table_cell(t, "%s", show_limit(k->limit));
    show_int(t, g->sms);
    hcp_table_cell(t, "%s", k->provider);
    hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(k));
    hcp_table_cell(t, "%zu", g->ok);
    hcp_table_cell(t, "%zu", g->failed);
    range_cell(t, g->q_min, g->q_max);
    range_cell(t, g->kv_min, g->kv_max);
    show_real(t, 1, show_median_tflops(g));
    show_real(t, 1, show_max_tflops(g));
    show_real(t, 0, g->copy_gb_per_s);
    show_real(t, 0, g->decode_gb_per_s);
    hcp_table_cell(t, "%s", show_origin(g->origin));
    model_cell(t, &g->lut);
    model_cell(t, &g->poly);
}

static int show_summary(hcp_db *db, const struct args *a, size_t *rows,
                        struct hcp_err *err)
{
    static const struct show_column columns[] = {{"DEVICE", 0},
                                                 {"LIMIT", 0},
                                                 {"SMS", 1},
                                                 {"KERNEL", 0},
                                                 {"SHAPE", 0},
                                                 {"CELLS", 1},
                                                 {"FAILED", 1},
                                                 {"Q_LEN", 1},
                                                 {"KV_LEN", 1},
                                                 {"MED_TFLOP/S", 1},
                                                 {"MAX_TFLOP/S", 1},
                                                 {"COPY_GB/S", 1},
                                                 {"DECODE_GB/S", 1},
                                                 {"ORIGIN", 0},
                                                 {"LUT_MEDIAN/P90_%", 1},
                                                 {"POLY_MEDIAN/P90_%", 1},
                                                 {NULL, 0}};
    struct show_group *groups = NULL;
    json_t *array;
    hcp_table *t;
    int rc = show_collect(db, &a->filter, &groups, rows, err);

    if (rc || !*rows)
        return rc;
    if (a->json) {
        array = json_array();
        for (size_t i = 0; i < *rows; i++)
            group_object(&groups[i], array);
        hcp_json_print(array, stdout);
    } else {
        t = show_table(columns);
        for (size_t i = 0; i < *rows; i++)
            group_row(&groups[i], t);
        hcp_table_print(t, stdout);
    }
    show_free(groups, *rows);
    return rc;
}

static int show_model(hcp_db *db, const struct args *a, size_t *rows, struct hcp_err *err)
{
    struct hcp_layer layer;
    int rc = hcp_layer_find(a->model, &layer, err);

    return rc ? rc
              : show_layers(db, &a->filter, &layer, a->tokens, a->n_tokens, a->json, rows,
                            err);
}

static int show(hcp_db *db, const struct args *a, size_t *rows, struct hcp_err *err)
{
    switch (a->what) {
    case OPT_FINISH:
        return show_finish(db, &a->filter, a->json, rows, err);
    case OPT_LINKS:
        return show_links(db, &a->filter, a->cells, a->json, rows, err);
    case OPT_RINGS:
        return show_rings(db, &a->filter, a->json, rows, err);
    case OPT_TOPOLOGY:
        return show_topology(db, &a->filter, a->json, rows, err);
    case OPT_INTERFERENCE:
        return show_interference(db, &a->filter, a->json, rows, err);
    case OPT_DRIFT:
        return show_drift(db, &a->filter, a->json, rows, err);
    case OPT_LINEAR:
        return a->model ? show_model(db, a, rows, err)
                        : show_linear(db, &a->filter, a->json, rows, err);
    }
    return a->cells || a->failed ? show_cells(db, a, rows, err)
                                 : show_summary(db, a, rows, err);
}

/* What adds rows of the kind that was asked for. */
static const char *source(const struct args *a)
{
    switch (a->what) {
    case OPT_LINKS:
    case OPT_TOPOLOGY:
        return "hcp-profile link";
    case OPT_INTERFERENCE:
        return "hcp-profile link --beside";
    case OPT_LINEAR:
        return "hcp-profile run --linear";
    case OPT_RINGS:
        return "hcp-ring";
    }
    return "hcp-profile run";
}

int cmd_show(int argc, char **argv)
{
    static const struct argp_child children[] = {{&hcp_filter_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Shows what a profile database holds: a summary by device, limit, kernel and "
        "shape "
        "with the held-out error (median/p90) of its models, or every cell, or the cells "
        "that failed; or what else was measured: finish passes, links, interference, "
        "linear layers, drift, rings, and how devices are connected.",
        children,
        NULL,
        NULL};
    struct args a = {0};
    struct hcp_err err = {0};
    hcp_db *db = NULL;
    const char *name;
    size_t rows = 0;
    int rc;

    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    name = hcp_cli_db(a.db, &err);
    rc = name ? hcp_db_open(name, HCP_DB_READ, &db, &err) : err.code;
    if (!rc)
        rc = show(db, &a, &rows, &err);
    if (!rc && !rows && a.failed)
        fprintf(stderr, "no failed cell in '%s' among the rows asked for\n",
                hcp_db_path(db));
    else if (!rc && !rows)
        rc = hcp_fail(&err, HCP_NO_ANSWER,
                      "no rows of '%s' match; add some with '%s' or "
                      "'hcp-profile %s', or ask for less",
                      hcp_db_path(db), source(&a),
                      a.what == OPT_RINGS ? "merge" : "import");
    hcp_db_close(db);
    free(a.tokens);
    if (rc)
        hcp_cli_report(&err);
    return hcp_cli_finish(rc);
}
