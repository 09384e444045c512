/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include "profiler/cmd-link.h"

void beside_report_begin(struct link_session *s)
{
    static const char *const ends[] = {"device", "limit", "peer_device", "peer_limit",
                                       "transport"};
    static const char *const rows[] = {"q_len",
                                       "kv_len",
                                       "bytes",
                                       "alone_ms",
                                       "beside_ms",
                                       "wait_us",
                                       "transfer_alone_ms",
                                       "transfer_beside_ms",
                                       "samples"};
    static const char *const fits[] = {"blocks", "slowdown", "transfer_slowdown",
                                       "overhead_us", "max_error_%"};
    struct beside *b = s->beside;
    b->table = hcp_table_new();
    b->fits = hcp_table_new();
    b->list = s->args->json ? json_array() : NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        hcp_table_column(b->table, ends[i], 0);
        hcp_table_column(b->fits, ends[i], 0);
    }
    hcp_table_column(b->table, "mask", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        hcp_table_column(b->table, rows[i], 1);
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
        hcp_table_column(b->fits, fits[i], 1);
}

static void begin_row(hcp_table *table, const struct hcp_interference_row *row)
{
    hcp_table_row(table);
    hcp_table_cell(table, "%s", row->key.device);
    hcp_table_cell(table, "%s", *row->key.limit ? row->key.limit : "none");
    hcp_table_cell(table, "%s", row->device_b);
    hcp_table_cell(table, "%s", *row->limit_b ? row->limit_b : "none");
    hcp_table_cell(table, "%s", row->transport);
}

static void add_row(hcp_table *table, const struct hcp_interference_row *row)
{
    begin_row(table, row);
    hcp_table_cell(table, "%s", row->mask);
    hcp_table_cell(table, "%lld", (long long)row->q_len);
    hcp_table_cell(table, "%lld", (long long)row->kv_len);
    hcp_table_cell(table, "%lld", (long long)row->bytes);
    hcp_table_cell(table, "%.4g", row->alone_ms);
    hcp_table_cell(table, "%.4g", row->beside_ms);
    hcp_table_cell(table, "%.4g", 1e3 * row->wait_ms);
    hcp_table_cell(table, "%.4g", row->transfer_alone_ms);
    hcp_table_cell(table, "%.4g", row->transfer_beside_ms);
    hcp_table_cell(table, "%d", (int)row->samples);
}

static void add_fit(hcp_table *table, const struct hcp_interference_row *row,
                    const struct hcp_interference *fit)
{
    begin_row(table, row);
    hcp_table_cell(table, "%d", fit->rows);
    hcp_table_cell(table, "%.3f", fit->slowdown);
    hcp_table_cell(table, "%.3f", fit->transfer_slowdown);
    hcp_table_cell(table, "%.1f", 1e3 * fit->overhead_ms);
    hcp_table_cell(table, "%.1f", 100 * fit->max_error);
}

static json_t *row_json(const struct hcp_interference_row *row, const double quartiles[2])
{
    json_t *one = json_object();
    json_object_set_new(one, "mask", json_string(row->mask));
    json_object_set_new(one, "q_len", json_integer(row->q_len));
    json_object_set_new(one, "kv_len", json_integer(row->kv_len));
    json_object_set_new(one, "bytes", json_integer(row->bytes));
    json_object_set_new(one, "alone_ms", hcp_json_real(row->alone_ms));
    json_object_set_new(one, "beside_ms", hcp_json_real(row->beside_ms));
    json_object_set_new(one, "beside_p25_ms", hcp_json_real(quartiles[0]));
    json_object_set_new(one, "beside_p75_ms", hcp_json_real(quartiles[1]));
    json_object_set_new(one, "wait_us", hcp_json_real(1e3 * row->wait_ms));
    json_object_set_new(one, "transfer_alone_ms", hcp_json_real(row->transfer_alone_ms));
    json_object_set_new(one, "transfer_beside_ms",
                        hcp_json_real(row->transfer_beside_ms));
    json_object_set_new(one, "samples", json_integer(row->samples));
    return one;
}

/* The rows of one end; their number. */
static size_t rows_of(const struct beside *b, int side,
                      struct hcp_interference_row rows[HCP_BESIDE_BLOCKS])
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        if (b->side[i] == side && n < HCP_BESIDE_BLOCKS)
            rows[n++] = b->rows[i];
    return n;
}

/* What one end's rows say; 0: nothing. */
static int fit_side(const struct beside *b, int side, struct hcp_interference *fit)
{
    struct hcp_interference_row mine[HCP_BESIDE_BLOCKS], others[HCP_BESIDE_BLOCKS];
    size_t n = rows_of(b, side, mine), n_others = rows_of(b, !side, others);
    return hcp_interference_fit(mine, n, others, n_others, fit, NULL) == HCP_OK;
}

static json_t *side_json(const struct beside *b, int side, const char *limit)
{
    json_t *one = json_object(), *rows = json_array();
    const struct hcp_interference_row *first = NULL;
    struct hcp_interference fit;
    for (size_t i = 0; i < b->n; i++) {
        if (b->side[i] != side)
            continue;
        first = first ? first : &b->rows[i];
        json_array_append_new(rows, row_json(&b->rows[i], b->quartiles[i]));
    }
    int has = fit_side(b, side, &fit);
    json_object_set_new(one, "device", json_string(first ? first->key.device : ""));
    json_object_set_new(one, "limit", json_string(limit));
    json_object_set_new(one, "provider", json_string(first ? first->key.provider : ""));
    json_object_set_new(one, "provider_version",
                        json_string(first ? first->provider_version : ""));
    json_object_set_new(one, "run_uid", json_string(first ? first->from.run_uid : ""));
    json_object_set_new(one, "rows", rows);
    json_object_set_new(one, "slowdown", hcp_json_real(has ? fit.slowdown : NAN));
    json_object_set_new(one, "transfer_slowdown",
                        hcp_json_real(has ? fit.transfer_slowdown : NAN));
    json_object_set_new(one, "overhead_us",
                        hcp_json_real(has ? 1e3 * fit.overhead_ms : NAN));
    json_object_set_new(one, "max_error", hcp_json_real(has ? fit.max_error : NAN));
    return one;
}

static void add_json(struct link_session *s, const char *error)
{
    struct beside *b = s->beside;
    const struct hcp_interference_row *first = b->n > 0 ? &b->rows[0] : NULL;
    json_t *pair = json_object(), *sides = json_array();
    json_object_set_new(pair, "schema", json_integer(1));
    json_object_set_new(pair, "transport", json_string(s->job.transport));
    json_object_set_new(pair, "transport_version",
                        json_string(first ? first->transport_version : ""));
    json_object_set_new(pair, "dtype", json_string(b->job.dtype));
    json_object_set_new(pair, "heads", json_integer(b->job.heads));
    json_object_set_new(pair, "kv_heads", json_integer(b->job.kv_heads));
    json_object_set_new(pair, "head_dim", json_integer(b->job.head_dim));
    for (int side = 0; side < 2; side++)
        json_array_append_new(sides, side_json(b, side, s->job.end[side].limit));
    json_object_set_new(pair, "sides", sides);
    json_object_set_new(pair, "error", error ? json_string(error) : json_null());
    json_array_append_new(b->list, pair);
}

void beside_report_pair(struct link_session *s, const char *error)
{
    struct beside *b = s->beside;
    if (b->list) {
        add_json(s, error);
        return;
    }
    for (int side = 0; side < 2; side++) {
        const struct hcp_interference_row *first = NULL;
        struct hcp_interference fit;
        for (size_t i = 0; i < b->n; i++)
            if (b->side[i] == side) {
                add_row(b->table, &b->rows[i]);
                first = &b->rows[i];
            }
        if (first && fit_side(b, side, &fit))
            add_fit(b->fits, first, &fit);
    }
}

void beside_report_end(struct link_session *s)
{
    struct beside *b = s->beside;
    if (s->job.silent || b->list) {
        hcp_table_free(b->table);
        hcp_table_free(b->fits);
        if (b->list && !s->job.silent)
            hcp_json_print(b->list, stdout);
        else
            json_decref(b->list);
        return;
    }
    hcp_table_print(b->table, stdout);
    putchar('\n');
    hcp_table_print(b->fits, stdout);
}
