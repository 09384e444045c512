/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include "profiler/cmd-link.h"

void link_report_begin(struct link_session *s)
{
    static const char *const ends[] = {"device_a", "limit_a", "device_b", "limit_b",
                                       "transport"};
    static const char *const rows[] = {"bytes",  "time_ms",  "p25_ms",
                                       "p75_ms", "gb_per_s", "samples"};
    static const char *const fits[] = {"sizes", "alpha_us", "beta_gb_per_s",
                                       "holdout_median_%", "holdout_max_%"};
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
    hcp_table_cell(table, "%s", row->transport);
}

static void percent_cell(hcp_table *table, double share)
{
    if (isnan(share))
        hcp_table_cell(table, "-");
    else
        hcp_table_cell(table, "%.1f", 100 * share);
}

static void add_tables(struct link_session *s, const struct hcp_link_result *r,
                       const struct hcp_link_fit *fit)
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
    if (!fit || r->n == 0)
        return;
    s->n_fits++;
    begin_row(s->fits, &r->rows[0]);
    hcp_table_cell(s->fits, "%d", fit->sizes);
    hcp_table_cell(s->fits, "%.4g", fit->alpha_us);
    hcp_table_cell(s->fits, "%.4g", fit->gbps);
    percent_cell(s->fits, fit->holdout_median);
    percent_cell(s->fits, fit->holdout_max);
}

static void add_json(struct link_session *s, const struct hcp_link_result *r,
                     const struct hcp_link_fit *fit, const char *error)
{
    json_t *pair = json_object(), *rows = json_array();
    const struct hcp_link_row *first = r->n > 0 ? &r->rows[0] : NULL;
    const char *unknown = "";
    json_object_set_new(pair, "schema", json_integer(1));
    json_object_set_new(pair, "device_a", json_string(first ? first->device_a : unknown));
    json_object_set_new(pair, "limit_a", json_string(s->job.end[0].limit));
    json_object_set_new(pair, "device_b", json_string(first ? first->device_b : unknown));
    json_object_set_new(pair, "limit_b", json_string(s->job.end[1].limit));
    json_object_set_new(pair, "transport", json_string(s->job.transport));
    json_object_set_new(pair, "transport_version",
                        json_string(first ? first->transport_version : unknown));
    json_object_set_new(pair, "same_host",
                        first ? json_boolean(first->same_host) : json_null());
    json_object_set_new(pair, "run_uid", json_string(s->from.run_uid));
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
    json_object_set_new(pair, "error", error ? json_string(error) : json_null());
    json_array_append_new(s->list, pair);
}

void link_report_pair(struct link_session *s, const struct hcp_link_result *result,
                      const char *error)
{
    int64_t bytes[HCP_LINK_SIZES];
    double ms[HCP_LINK_SIZES];
    struct hcp_link_fit fit;
    struct hcp_err why; /* one size alone has no fit */
    for (size_t i = 0; i < result->n; i++) {
        bytes[i] = result->rows[i].bytes;
        ms[i] = result->rows[i].time_ms;
    }
    int fitted =
        result->n > 0 && hcp_link_fit(bytes, ms, result->n, &fit, &why) == HCP_OK;
    if (result->n > 0 && !fitted)
        fprintf(stderr, "hcp-profile: %s / %s: no alpha and beta: %s\n",
                *s->job.end[0].limit ? s->job.end[0].limit : "none",
                *s->job.end[1].limit ? s->job.end[1].limit : "none", why.text);
    if (s->list)
        add_json(s, result, fitted ? &fit : NULL, error);
    else
        add_tables(s, result, fitted ? &fit : NULL);
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
