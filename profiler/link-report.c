/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include "profiler/cmd-link.h"

void link_report_begin(struct link_session *s)
{
    static const char *const ends[] = {"device_a", "limit_a",   "device_b", "limit_b",
                                       "one_way",  "transport", "channels"};
    static const char *const rows[] = {"bytes",  "time_ms",  "p25_ms",
                                       "p75_ms", "gb_per_s", "samples"};
    static const char *const fits[] = {
        "sizes",         "alpha_us",       "beta_gb_per_s", "holdout_median_%",
        "holdout_max_%", "curve_median_%", "curve_p90_%",   "curve_max_%"};
    s->table = hcp_table_new();
    s->fits = hcp_table_new();
    s->list = s->args->json ? json_array() : NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        hcp_table_column(s->table, ends[i], 0);
        hcp_table_column(s->fits, ends[i], 0);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        hcp_table_column(s->table, rows[i], 1);
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
        hcp_table_column(s->fits, fits[i], 1);
}

static double gb_per_s(const struct hcp_link_row *row)
{
    return 1e-6 * (double)row->bytes / row->time_ms;
}

static void begin_row(hcp_table *table, const struct hcp_link_row *row)
{
    hcp_table_row(table);
    hcp_table_cell(table, "%s", row->device_a);
    hcp_table_cell(table, "%s", *row->limit_a ? row->limit_a : "none");
    hcp_table_cell(table, "%s", row->device_b);
    hcp_table_cell(table, "%s", *row->limit_b ? row->limit_b : "none");
    hcp_table_cell(table, "%s", row->one_way ? "yes" : "no");
    hcp_table_cell(table, "%s", row->transport);
    if (row->channels > 0)
        hcp_table_cell(table, "%d", (int)row->channels);
    else
        hcp_table_cell(table, "%s", strcmp(row->transport, "nccl") ? "-" : "auto");
}

static void number_cell(hcp_table *table, double value)
{
    if (isnan(value))
        hcp_table_cell(table, "-");
    else
        hcp_table_cell(table, "%.4g", value);
}

static void percent_cell(hcp_table *table, double share)
{
    if (isnan(share))
        hcp_table_cell(table, "-");
    else
        hcp_table_cell(table, "%.1f", 100 * share);
}

/* Rows of one curve. */
struct some {
    const struct hcp_link_row *rows;
    size_t n;
    int second; /* sent by the second end alone */
};

static void add_tables(struct link_session *s, const struct some *r,
                       const struct hcp_link_fit *fit, const struct hcp_link_curve *curve)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct hcp_link_row *row = &r->rows[i];
        begin_row(s->table, row);
        hcp_table_cell(s->table, "%lld", (long long)row->bytes);
        hcp_table_cell(s->table, "%.4g", row->time_ms);
        hcp_table_cell(s->table, "%.4g", row->p25_ms);
        hcp_table_cell(s->table, "%.4g", row->p75_ms);
        hcp_table_cell(s->table, "%.4g", gb_per_s(row));
        hcp_table_cell(s->table, "%d", (int)row->samples);
    }
    if (r->n == 0)
        return;
    if (!fit) {
        static const struct hcp_link_fit none = {NAN, NAN, NAN, NAN, 0};
        fit = &none;
    }
    if (curve->n == 0)
        return;
    s->n_fits++;
    begin_row(s->fits, &r->rows[0]);
    hcp_table_cell(s->fits, "%zu", curve->n);
    number_cell(s->fits, fit->alpha_us);
    number_cell(s->fits, fit->gbps);
    percent_cell(s->fits, fit->holdout_median);
    percent_cell(s->fits, fit->holdout_max);
    percent_cell(s->fits, curve->holdout_median);
    percent_cell(s->fits, curve->holdout_p90);
    percent_cell(s->fits, curve->holdout_max);
}

static json_t *topology(const struct hcp_link_result *r)
{
    const struct hcp_topology_row *t = &r->topology;
    if (r->n == 0 || !*t->connection)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "connection", json_string(t->connection));
    json_object_set_new(o, "links", t->links < 0 ? json_null() : json_integer(t->links));
    json_object_set_new(o, "detail", json_string(t->detail));
    return o;
}

static void add_json(struct link_session *s, const struct some *r,
                     const struct hcp_link_result *all, const struct hcp_link_fit *fit,
                     const struct hcp_link_curve *curve, const char *error)
{
    json_t *pair = json_object(), *rows = json_array();
    const struct hcp_link_row *first = r->n > 0 ? &r->rows[0] : NULL;
    const char *unknown = "";
    json_object_set_new(pair, "schema", json_integer(1));
    json_object_set_new(pair, "device_a", json_string(first ? first->device_a : unknown));
    json_object_set_new(pair, "limit_a", json_string(s->job.end[r->second].limit));
    json_object_set_new(pair, "device_b", json_string(first ? first->device_b : unknown));
    json_object_set_new(pair, "limit_b", json_string(s->job.end[!r->second].limit));
    json_object_set_new(pair, "one_way", json_boolean(s->job.one_way));
    json_object_set_new(pair, "transport", json_string(s->job.transport));
    json_object_set_new(pair, "channels",
                        s->job.channels > 0 ? json_integer(s->job.channels)
                                            : json_null());
    json_object_set_new(pair, "transport_version",
                        json_string(first ? first->transport_version : unknown));
    json_object_set_new(pair, "same_host",
                        first ? json_boolean(first->same_host) : json_null());
    json_object_set_new(pair, "run_uid",
                        json_string(first && *first->from.run_uid ? first->from.run_uid
                                                                  : s->from.run_uid));
    for (size_t i = 0; i < r->n; i++) {
        const struct hcp_link_row *row = &r->rows[i];
        json_t *one = json_object();
        json_object_set_new(one, "bytes", json_integer(row->bytes));
        json_object_set_new(one, "time_ms", hcp_json_real(row->time_ms));
        json_object_set_new(one, "p25_ms", hcp_json_real(row->p25_ms));
        json_object_set_new(one, "p75_ms", hcp_json_real(row->p75_ms));
        json_object_set_new(one, "gb_per_s", hcp_json_real(gb_per_s(row)));
        json_object_set_new(one, "samples", json_integer(row->samples));
        json_array_append_new(rows, one);
    }
    json_object_set_new(pair, "rows", rows);
    json_object_set_new(pair, "alpha_us", hcp_json_real(fit ? fit->alpha_us : NAN));
    json_object_set_new(pair, "beta_gb_per_s", hcp_json_real(fit ? fit->gbps : NAN));
    json_object_set_new(pair, "holdout_median",
                        hcp_json_real(fit ? fit->holdout_median : NAN));
    json_object_set_new(pair, "holdout_max", hcp_json_real(fit ? fit->holdout_max : NAN));
    json_t *held = json_object();
    json_object_set_new(held, "holdout_median", hcp_json_real(curve->holdout_median));
    json_object_set_new(held, "holdout_p90", hcp_json_real(curve->holdout_p90));
    json_object_set_new(held, "holdout_max", hcp_json_real(curve->holdout_max));
    json_object_set_new(pair, "curve", held);
    json_object_set_new(pair, "topology", topology(all));
    json_object_set_new(pair, "error", error ? json_string(error) : json_null());
    json_array_append_new(s->list, pair);
}

static void report(struct link_session *s, const struct some *r,
                   const struct hcp_link_result *all, const char *error)
{
    int64_t bytes[HCP_LINK_SIZES];
    double ms[HCP_LINK_SIZES];
    struct hcp_link_fit fit;
    struct hcp_link_curve curve = {NULL, 0, NAN, NAN, NAN};
    struct hcp_err why; /* one size alone has no fit */
    char name[96];
    for (size_t i = 0; i < r->n; i++) {
        bytes[i] = r->rows[i].bytes;
        ms[i] = r->rows[i].time_ms;
    }
    int fitted = r->n > 0 && hcp_link_fit(bytes, ms, r->n, &fit, &why) == HCP_OK;
    if (r->n > 0 && !fitted)
        fprintf(stderr, "hcp-profile: %s: no alpha and beta: %s\n",
                link_name(s, r->second, name), why.text);
    if (r->n > 1)
        hcp_link_curve_make(bytes, ms, r->n, &curve, &why);
    if (!isnan(s->job.target) && curve.holdout_p90 > s->job.target)
        fprintf(stderr,
                "hcp-profile: %s: the curve's held-out error is %.1f %% (90th "
                "percentile), not %.3g %%; a quieter machine or a longer --time-budget "
                "may mend it\n",
                link_name(s, r->second, name), 100 * curve.holdout_p90,
                100 * s->job.target);
    if (s->list)
        add_json(s, r, all, fitted ? &fit : NULL, &curve, error);
    else
        add_tables(s, r, fitted ? &fit : NULL, &curve);
    hcp_link_curve_free(&curve);
}

void link_report_pair(struct link_session *s, const struct hcp_link_result *result,
                      const char *error)
{
    size_t first = s->job.one_way ? result->n_first : result->n;
    const struct some of[2] = {{result->rows, first, 0},
                               {result->rows + first, result->n - first, 1}};
    for (int i = 0; i <= s->job.one_way; i++)
        report(s, &of[i], result, error);
}

void link_report_end(struct link_session *s)
{
    if (s->job.silent || s->list) {
        hcp_table_free(s->table);
        hcp_table_free(s->fits);
        if (s->list && !s->job.silent)
            hcp_json_print(s->list, stdout);
        else
            json_decref(s->list);
        return;
    }
    hcp_table_print(s->table, stdout);
    if (s->n_fits > 0)
        putchar('\n');
    hcp_table_print(s->fits, stdout); /* nothing if there are none */
}
