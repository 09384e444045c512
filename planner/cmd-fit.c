/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan fit: every key of a database -> its models, stored beside the samples.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "db/cli.h"
#include "fit/decode.h"
#include "fit/fit.h"
#include "planner/commands.h"

struct args {
    const char *db;
    int json, quiet;
    struct hcp_filter filter;
};

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "Database with the samples ($HCP_DB, else hcp.db)", 0},
    {"json", 'j', NULL, 0, "Print a JSON array", 0},
    {"quiet", 'q', NULL, 0, "Print nothing but errors", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case 'd':
        a->db = arg;
        return 0;
    case 'j':
        a->json = 1;
        return 0;
    case 'q':
        a->quiet = 1;
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

struct cells {
    struct hcp_cell *v;
    size_t n, cap;
};

static int collect(const struct hcp_cell *cell, void *ctx)
{
    struct cells *c = ctx;

    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 256;
        struct hcp_cell *v = realloc(c->v, cap * sizeof *v);
        if (!v)
            return HCP_FAILED;
        c->v = v;
        c->cap = cap;
    }
    c->v[c->n] = *cell;
    c->v[c->n].raw_ms = NULL;
    c->v[c->n++].n_raw = 0;
    return HCP_OK;
}

struct finishes {
    struct hcp_finish_row *v;
    size_t n, cap;
};

static int collect_finish(const struct hcp_finish_row *row, void *ctx)
{
    struct finishes *f = ctx;

    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 64;
        struct hcp_finish_row *v = realloc(f->v, cap * sizeof *v);
        if (!v)
            return HCP_FAILED;
        f->v = v;
        f->cap = cap;
    }
    f->v[f->n++] = *row;
    return HCP_OK;
}

/* What a group is fitted to. */
struct samples {
    struct cells cells;
    struct finishes finishes;
};

/* All limits of one device, kernel and shape, whatever limit was asked for: they say
 * together how the kernel fills an SM. What chooses samples within a key counts. */
static int load_group(hcp_db *db, const struct hcp_filter *asked,
                      const struct hcp_key *key, struct samples *out, struct hcp_err *err)
{
    struct hcp_filter f = {
        .mask = asked->mask,
        .origin = asked->origin,
        .run_uid = asked->run_uid,
        .host = asked->host,
        .device = key->device,
        .provider = key->provider,
        .dtype = key->dtype,
        .phase = key->phase,
        .batch = key->batch,
        .heads = key->heads,
        .kv_heads = key->kv_heads,
        .head_dim = key->head_dim,
    };

    out->cells.n = out->finishes.n = 0;
    int code = hcp_db_each_cell(db, &f, 0, collect, &out->cells, err);
    if (!code)
        code = hcp_db_each_finish(db, &f, collect_finish, &out->finishes, err);
    if (code && err->code == HCP_OK)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    return code;
}

static int store(hcp_db *db, struct hcp_fitted *model, uint64_t samples_hash,
                 struct hcp_err *err)
{
    time_t now = time(NULL);
    struct tm utc;

    model->row.samples_hash = samples_hash;
    gmtime_r(&now, &utc);
    strftime(model->row.fitted_at, sizeof model->row.fitted_at, "%Y-%m-%dT%H:%M:%SZ",
             &utc);
    strcpy(model->row.tool_version, PACKAGE_VERSION);
    return hcp_db_put_model(db, &model->row, model->arrays, model->n_arrays, err);
}

static json_t *model_object(const struct hcp_fitted *m)
{
    json_t *o = json_object();

    json_object_set_new(o, "holdout_median", hcp_json_real(m->row.holdout_median));
    json_object_set_new(o, "holdout_p90", hcp_json_real(m->row.holdout_p90));
    json_object_set_new(o, "holdout_cells", json_integer(m->row.holdout_cells));
    json_object_set_new(o, "holdout_note", json_string(m->row.holdout_note));
    json_object_set_new(o, "all_median", hcp_json_real(m->all.median));
    json_object_set_new(o, "all_p90", hcp_json_real(m->all.p90));
    json_object_set_new(o, "all_cells", json_integer(m->all.cells));
    json_object_set_new(o, "terms", json_string(m->terms));
    return o;
}

static json_t *finish_object(const struct hcp_finish_fit *f)
{
    json_t *o = json_object();

    json_object_set_new(o, "rows", json_integer(f->rows));
    json_object_set_new(o, "store_ms", hcp_json_real(f->line[0][0]));
    json_object_set_new(o, "store_ms_per_token", hcp_json_real(f->line[0][1]));
    json_object_set_new(o, "merge_ms", hcp_json_real(f->line[1][0]));
    json_object_set_new(o, "merge_ms_per_token", hcp_json_real(f->line[1][1]));
    json_object_set_new(o, "max_error", hcp_json_real(f->worst));
    return o;
}

static const char *best_of(const struct hcp_fit_result *r)
{
    return hcp_fit_best_kind(&r->lut.row, &r->poly.row);
}

static void add_object(const struct hcp_fit_result *r, json_t *array)
{
    const struct hcp_key *k = &r->key;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i}", "device", k->device,
                  "limit", k->limit, "provider", k->provider, "dtype", k->dtype, "phase",
                  k->phase, "batch", (int)k->batch, "heads", (int)k->heads, "kv_heads",
                  (int)k->kv_heads, "head_dim", (int)k->head_dim);

    json_object_set_new(o, "fitted", json_boolean(r->code == HCP_OK));
    json_object_set_new(o, "full_cells", json_integer(r->full_cells));
    json_object_set_new(o, "causal_cells", json_integer(r->square_cells));
    json_object_set_new(o, "tile_q", json_integer(r->tile_q));
    json_object_set_new(o, "tile_kv", json_integer(r->tile_kv));
    json_object_set_new(o, "note", json_string(r->note));
    if (r->code) {
        json_object_set_new(o, "error", json_string(r->err.text));
    } else {
        json_object_set_new(o, "origin", json_string(r->lut.row.origin));
        json_object_set_new(o, "best", json_string(best_of(r)));
        json_object_set_new(o, "lut", model_object(&r->lut));
        json_object_set_new(o, "poly", model_object(&r->poly));
        json_object_set_new(o, "finish",
                            r->finish.rows ? finish_object(&r->finish) : json_null());
    }
    json_array_append_new(array, o);
}

static const struct {
    const char *name;
    int right;
} columns[] = {
    {"device", 0},    {"limit", 0},         {"kernel", 0},     {"shape", 0},
    {"origin", 0},    {"cells", 1},         {"tile", 1},       {"lut_median_%", 1},
    {"lut_p90_%", 1}, {"poly_median_%", 1}, {"poly_p90_%", 1}, {"held_out", 1},
    {"best", 0},      {"lut_waves", 0},     {"poly_terms", 0},
};

static void error_cells(hcp_table *t, const struct hcp_model_row *row)
{
    if (row->holdout_cells < 1) {
        hcp_table_cell(t, "%s", "?");
        hcp_table_cell(t, "%s", "?");
        return;
    }
    hcp_table_cell(t, "%.1f", 100.0 * row->holdout_median);
    hcp_table_cell(t, "%.1f", 100.0 * row->holdout_p90);
}

static void add_row(const struct hcp_fit_result *r, hcp_table *t)
{
    const struct hcp_key *k = &r->key;
    const char *origin = r->lut.row.origin;

    hcp_table_row(t);
    hcp_table_cell(t, "%s", k->device);
    hcp_table_cell(t, "%s", *k->limit ? k->limit : "whole");
    hcp_table_cell(t, "%s", k->provider);
    hcp_table_cell(t, "%s %s %d/%dx%d b%d", k->phase, k->dtype, (int)k->heads,
                   (int)k->kv_heads, (int)k->head_dim, (int)k->batch);
    hcp_table_cell(t, "%s", strcmp(origin, "synthetic") ? origin : "SYNTHETIC");
    hcp_table_cell(t, "%d", r->full_cells + r->square_cells);
    hcp_table_cell(t, "%lldx%lld", (long long)r->tile_q, (long long)r->tile_kv);
    error_cells(t, &r->lut.row);
    error_cells(t, &r->poly.row);
    hcp_table_cell(t, "%d", (int)r->lut.row.holdout_cells);
    hcp_table_cell(t, "%s", best_of(r));
    hcp_table_cell(t, "%s", r->lut.terms);
    hcp_table_cell(t, "%s", r->poly.terms);
}

static const struct {
    const char *name;
    int right;
} finish_columns[] = {
    {"device", 0}, {"limit", 0},    {"kernel", 0},   {"shape", 0},
    {"rows", 1},   {"store_us", 0}, {"merge_us", 0}, {"max_error_%", 1},
};

/* A line in us over q thousands of query tokens: of the size that passes take. */
static void finish_row(const struct hcp_fit_result *r, hcp_table *t)
{
    const struct hcp_key *k = &r->key;

    hcp_table_row(t);
    hcp_table_cell(t, "%s", k->device);
    hcp_table_cell(t, "%s", *k->limit ? k->limit : "whole");
    hcp_table_cell(t, "%s", k->provider);
    hcp_table_cell(t, "%s %s %d/%dx%d b%d", k->phase, k->dtype, (int)k->heads,
                   (int)k->kv_heads, (int)k->head_dim, (int)k->batch);
    hcp_table_cell(t, "%d", r->finish.rows);
    for (int merge = 0; merge < 2; merge++)
        hcp_table_cell(t, "%.2f + %.3f q/1000", 1e3 * r->finish.line[merge][0],
                       1e6 * r->finish.line[merge][1]);
    hcp_table_cell(t, "%.1f", 100.0 * r->finish.worst);
}

struct output {
    const struct args *args;
    hcp_table *table;
    hcp_table *finish; /* second table, of kernels with finish passes */
    size_t finish_rows;
    json_t *array;
    size_t fitted, failed;
};

/* A key and the fingerprint of its samples as the fit read them. */
struct stamp {
    struct hcp_key key;
    uint64_t hash, again;
};

/* Cells of a group with a fingerprint of each key that belongs to exactly them: a
 * fingerprint taken later would cover rows that an import added meanwhile, and the
 * model would pass for one that knows them. */
static int load_stamped(hcp_db *db, const struct hcp_filter *asked, struct stamp *stamp,
                        size_t n, struct samples *out, struct hcp_err *err)
{
    for (int tries = 0; tries < 5; tries++) {
        int code = HCP_OK, same = 1;
        for (size_t i = 0; i < n && !code; i++)
            code = hcp_db_samples_hash(db, &stamp[i].key, &stamp[i].hash, err);
        if (!code)
            code = load_group(db, asked, &stamp[0].key, out, err);
        for (size_t i = 0; i < n && !code; i++) {
            code = hcp_db_samples_hash(db, &stamp[i].key, &stamp[i].again, err);
            same &= stamp[i].hash == stamp[i].again;
        }
        if (code || same)
            return code;
    }
    return hcp_fail(err, HCP_FAILED,
                    "the samples in '%s' keep changing; fit again when the run or import "
                    "has ended",
                    hcp_db_path(db));
}

static int put(hcp_db *db, struct hcp_fit_result *r, uint64_t samples_hash,
               struct output *out, struct hcp_err *err)
{
    int code;

    if (r->code) {
        hcp_cli_report(&r->err);
        out->failed++;
    } else {
        code = store(db, &r->lut, samples_hash, err);
        if (!code)
            code = store(db, &r->poly, samples_hash, err);
        if (code)
            return code;
        out->fitted++;
    }
    if (*r->note && !out->args->quiet)
        fprintf(stderr, "%s%s%s, %s: %s\n", r->key.device, *r->key.limit ? "@" : "",
                r->key.limit, r->key.provider, r->note);
    if (out->args->json)
        add_object(r, out->array);
    else if (!r->code)
        add_row(r, out->table);
    if (!out->args->json && !r->code && r->finish.rows > 0) {
        finish_row(r, out->finish);
        out->finish_rows++;
    }
    return HCP_OK;
}

static int by_limit(const void *a, const void *b)
{
    const struct hcp_fit_result *x = a, *y = b;

    return hcp_limit_compare(x->key.limit, y->key.limit);
}

/* stamp: the keys asked for, n of them; other limits of the group help only. */
static int fit_group(hcp_db *db, struct stamp *stamp, size_t n, struct samples *samples,
                     struct output *out, struct hcp_err *err)
{
    struct hcp_fit_result *results;
    size_t n_results;
    int code = load_stamped(db, &out->args->filter, stamp, n, samples, err);

    if (!code)
        code =
            hcp_fit_group(samples->cells.v, samples->cells.n, &results, &n_results, err);
    if (code)
        return code;
    for (size_t i = 0; i < n_results && !code; i++)
        code = hcp_fit_finish(samples->finishes.v, samples->finishes.n, &results[i], err);
    if (n_results)
        qsort(results, n_results, sizeof *results, by_limit);
    for (size_t i = 0; i < n_results && !code; i++)
        for (size_t k = 0; k < n && !code; k++)
            if (!strcmp(stamp[k].key.limit, results[i].key.limit))
                code = put(db, &results[i], stamp[k].hash, out, err);
    hcp_fit_results_free(results, n_results);
    return code;
}

static int fit_all(hcp_db *db, struct output *out, struct hcp_err *err)
{
    const struct hcp_filter *f = &out->args->filter;
    struct samples samples = {0};
    struct hcp_key *keys = NULL;
    struct stamp *stamp = NULL;
    size_t n = 0;
    int code = hcp_db_keys(db, f, &keys, &n, err);

    if (!code && n == 0)
        code =
            hcp_fail(err, HCP_NO_ANSWER,
                     "no measured cell of that kind in %s; 'hcp-profile show' lists what "
                     "there is, 'hcp-profile run' and 'hcp-profile import' add to it",
                     hcp_db_path(db));
    if (!code && !(stamp = calloc(n, sizeof *stamp)))
        code = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < n && !code; i++) {
        size_t members = 0;
        int done = 0;
        for (size_t k = 0; k < i && !done; k++)
            done = hcp_fit_same_group(&keys[k], &keys[i]);
        for (size_t k = i; k < n && !done; k++)
            if (hcp_fit_same_group(&keys[k], &keys[i]))
                stamp[members++].key = keys[k];
        if (!done)
            code = fit_group(db, stamp, members, &samples, out, err);
    }
    free(stamp);
    free(keys);
    free(samples.cells.v);
    free(samples.finishes.v);
    return code;
}

int cmd_fit(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&hcp_filter_argp, 0, "Which samples:", 0}, {0}};
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Fit the measured cells: a lookup table and a regression for each device, limit, "
        "kernel and shape, stored in the database beside the samples, with the error of "
        "predicting cells that were left out.",
        children,
        NULL,
        NULL};
    struct args args = {0};
    struct hcp_err err = {0};
    hcp_db *db;

    if (argp_parse(&argp, argc, argv, 0, NULL, &args))
        return HCP_USAGE;
    const char *path = hcp_cli_db(args.db, &err);
    if (!path || hcp_db_open(path, HCP_DB_READ | HCP_DB_WRITE, &db, &err))
        return hcp_cli_report(&err);
    struct output out = {.args = &args,
                         .table = hcp_table_new(),
                         .finish = hcp_table_new(),
                         .array = json_array()};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(out.table, columns[i].name, columns[i].right);
    for (size_t i = 0; i < sizeof finish_columns / sizeof *finish_columns; i++)
        hcp_table_column(out.finish, finish_columns[i].name, finish_columns[i].right);
    struct fit_batch *batches = NULL;
    struct fit_bandwidth *bandwidths = NULL;
    size_t n_batches = 0, n_bandwidths = 0;
    int code = fit_all(db, &out, &err);
    if (!code)
        code = fit_batches(db, &args.filter, &batches, &n_batches, &err);
    if (!code)
        code = fit_bandwidths(db, &args.filter, &bandwidths, &n_bandwidths, &err);
    fit_batch_add(batches, n_batches, out.array);
    fit_bandwidth_add(bandwidths, n_bandwidths, out.array);
    hcp_db_close(db);
    if (code)
        hcp_cli_report(&err);
    else if (out.fitted == 0)
        code = HCP_NO_ANSWER;
    int bad = 0;
    if (args.json && !args.quiet && (out.fitted || out.failed))
        bad = hcp_json_print(out.array, stdout);
    else
        json_decref(out.array);
    if (!args.json && !args.quiet && out.fitted)
        bad = hcp_table_print(out.table, stdout);
    else
        hcp_table_free(out.table);
    if (!args.json && !args.quiet && out.finish_rows) {
        puts("\nfinish passes, us for q query tokens:");
        bad |= hcp_table_print(out.finish, stdout);
    } else {
        hcp_table_free(out.finish);
    }
    if (!args.json && !args.quiet && out.fitted && n_bandwidths) {
        puts("\ndecode as alpha + bytes of keys and values / bandwidth:");
        bad |= fit_bandwidth_print(bandwidths, n_bandwidths);
    }
    free(bandwidths);
    if (!args.json && !args.quiet && n_batches) {
        puts("\nbatches of decode left out, answered from their neighbours:");
        bad |= fit_batch_print(batches, n_batches);
    }
    free(batches);
    return hcp_cli_finish(code ? code : bad ? HCP_FAILED : HCP_OK);
}
