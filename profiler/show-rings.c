/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/show-rows.h"
#include "profiler/show-table.h"

struct printer {
    const struct hcp_filter *filter;
    hcp_table *table;
    json_t *array;
    size_t rows;
    struct hcp_err *err;
};

static int differs(const char *wanted, const char *value)
{
    return wanted && *wanted && strcmp(wanted, value);
}

static int passes(const struct hcp_filter *f, const struct hcp_ring_run_row *r)
{
    int host = !differs(f->host, r->from.host), device = 0;

    if (differs(f->provider, r->provider) || differs(f->dtype, r->dtype) ||
        differs(f->mask, r->mask) || differs(f->origin, r->from.origin) ||
        differs(f->run_uid, r->uid) || differs(f->phase, "prefill") ||
        (f->batch && f->batch != r->batch) || (f->heads && f->heads != r->heads) ||
        (f->kv_heads && f->kv_heads != r->kv_heads) ||
        (f->head_dim && f->head_dim != r->head_dim))
        return 0;
    for (size_t i = 0; i < r->n_ranks; i++) {
        const struct hcp_ring_rank_row *k = &r->ranks[i];
        int limit = f->limit_set ? strcmp(f->limit ? f->limit : "", k->limit)
                                 : differs(f->limit, k->limit);
        device |= !differs(f->device, k->device) && !limit;
        host |= !differs(f->host, k->host);
    }
    return device && host;
}

/* The ranks as --ranks takes them, neighbours that are alike as N*DEVICE@LIMIT; or their
 * tokens. malloc'ed; NULL: no memory. */
static char *ranks_text(const struct hcp_ring_run_row *r, int tokens)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (size_t i = 0, j; i < r->n_ranks; i = j) {
        const struct hcp_ring_rank_row *k = &r->ranks[i];
        for (j = i + 1;
             !tokens && j < r->n_ranks && !strcmp(k->device, r->ranks[j].device) &&
             !strcmp(k->limit, r->ranks[j].limit);
             j++)
            ;
        fputs(i ? "," : "", f);
        if (tokens)
            fprintf(f, "%lld", (long long)k->tokens);
        else if (j > i + 1)
            fprintf(f, "%zu*", j - i);
        if (!tokens)
            fprintf(f, "%s%s%s", k->device, *k->limit ? "@" : "", k->limit);
    }
    fclose(f);
    return text;
}

static json_t *rank_object(const struct hcp_ring_rank_row *k)
{
    json_t *o = json_object();

    json_object_set_new(o, "device", json_string(k->device));
    json_object_set_new(o, "limit", json_string(k->limit));
    json_object_set_new(o, "device_uuid", show_json_text(k->uuid));
    json_object_set_new(o, "device_name", show_json_text(k->name));
    json_object_set_new(o, "host", show_json_text(k->host));
    json_object_set_new(o, "sm_seen", show_json_int(k->sm_seen));
    json_object_set_new(o, "sm_count", show_json_int(k->sm_count));
    json_object_set_new(o, "tokens", json_integer(k->tokens));
    json_object_set_new(o, "predicted_ms", hcp_json_real(k->predicted_ms));
    json_object_set_new(o, "predicted_compute_ms",
                        hcp_json_real(k->predicted_compute_ms));
    json_object_set_new(o, "compute_ms", hcp_json_real(k->compute_ms));
    json_object_set_new(o, "wait_ms", hcp_json_real(k->wait_ms));
    json_object_set_new(o, "transfer_ms", hcp_json_real(k->transfer_ms));
    json_object_set_new(o, "total_ms", hcp_json_real(k->total_ms));
    return o;
}

static double error_of(const struct hcp_ring_run_row *r)
{
    return r->predicted_ms / r->makespan_ms - 1;
}

static json_t *run_object(const struct hcp_ring_run_row *r)
{
    json_t *o = json_object(), *ranks = json_array();

    json_object_set_new(o, "uid", json_string(r->uid));
    json_object_set_new(o, "measured_at", show_json_text(r->from.measured_at));
    json_object_set_new(o, "fingerprint", show_json_text(r->fingerprint));
    json_object_set_new(o, "strategy", json_string(r->strategy));
    json_object_set_new(o, "mask", json_string(r->mask));
    json_object_set_new(o, "layout", json_string(r->layout));
    json_object_set_new(o, "stripes", show_json_int(r->stripes));
    json_object_set_new(o, "transport", show_json_text(r->transport));
    json_object_set_new(o, "provider", json_string(r->provider));
    json_object_set_new(o, "provider_version", show_json_text(r->provider_version));
    json_object_set_new(o, "dtype", json_string(r->dtype));
    json_object_set_new(o, "batch", json_integer(r->batch));
    json_object_set_new(o, "heads", json_integer(r->heads));
    json_object_set_new(o, "kv_heads", json_integer(r->kv_heads));
    json_object_set_new(o, "head_dim", json_integer(r->head_dim));
    json_object_set_new(o, "seq_len", json_integer(r->seq_len));
    json_object_set_new(o, "tile", show_json_int(r->tile));
    json_object_set_new(o, "buffers", show_json_int(r->buffers));
    json_object_set_new(o, "sub_blocks", show_json_int(r->sub_blocks));
    json_object_set_new(o, "barrier",
                        r->barrier < 0 ? json_null() : json_boolean(r->barrier));
    json_object_set_new(o, "repeats", show_json_int(r->repeats));
    json_object_set_new(o, "makespan_ms", hcp_json_real(r->makespan_ms));
    json_object_set_new(o, "ci_lo_ms", hcp_json_real(r->ci_lo_ms));
    json_object_set_new(o, "ci_hi_ms", hcp_json_real(r->ci_hi_ms));
    json_object_set_new(o, "min_ms", hcp_json_real(r->min_ms));
    json_object_set_new(o, "predicted_ms", hcp_json_real(r->predicted_ms));
    json_object_set_new(o, "predicted_lo_ms", hcp_json_real(r->predicted_lo_ms));
    json_object_set_new(o, "predicted_hi_ms", hcp_json_real(r->predicted_hi_ms));
    json_object_set_new(o, "error", hcp_json_real(error_of(r)));
    json_object_set_new(o, "bound_ms", hcp_json_real(r->bound_ms));
    json_object_set_new(o, "ratio_to_bound", hcp_json_real(r->makespan_ms / r->bound_ms));
    json_object_set_new(o, "efficiency", hcp_json_real(r->efficiency));
    json_object_set_new(o, "max_error", hcp_json_real(r->max_error));
    json_object_set_new(o, "origin", json_string(r->from.origin));
    json_object_set_new(o, "host", show_json_text(r->from.host));
    json_object_set_new(o, "tool_version", show_json_text(r->from.tool_version));
    json_object_set_new(o, "note", show_json_text(r->note));
    for (size_t i = 0; i < r->n_ranks; i++)
        json_array_append_new(ranks, rank_object(&r->ranks[i]));
    json_object_set_new(o, "ranks", ranks);
    return o;
}

static int print(const struct hcp_ring_run_row *r, void *ctx)
{
    struct printer *p = ctx;
    hcp_table *t = p->table;
    char *ranks, *tokens;

    if (!passes(p->filter, r))
        return HCP_OK;
    p->rows++;
    if (p->array) {
        json_array_append_new(p->array, run_object(r));
        return HCP_OK;
    }
    ranks = ranks_text(r, 0);
    tokens = ranks_text(r, 1);
    hcp_table_row(t);
    hcp_table_cell(t, "%s", r->from.measured_at);
    hcp_table_cell(t, "%lld", (long long)r->seq_len);
    hcp_table_cell(t, "%s", r->mask);
    hcp_table_cell(t, "%s", r->layout);
    hcp_table_cell(t, "%s", r->strategy);
    hcp_table_cell(t, "%s", ranks ? ranks : "");
    hcp_table_cell(t, "%s", tokens ? tokens : "");
    show_real(t, 4, r->makespan_ms);
    show_real(t, 4, r->predicted_ms);
    if (isnan(r->predicted_ms))
        hcp_table_cell(t, "%s", "");
    else
        hcp_table_cell(t, "%+.1f", error_of(r) * 100);
    show_real(t, 3, r->makespan_ms / r->bound_ms);
    hcp_table_cell(t, "%s", r->transport);
    hcp_table_cell(t, "%s", show_origin(r->from.origin));
    free(ranks);
    free(tokens);
    return ranks && tokens ? HCP_OK : hcp_fail(p->err, HCP_FAILED, "out of memory");
}

int show_rings(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
               struct hcp_err *err)
{
    static const struct show_column columns[] = {
        {"WHEN", 0},         {"SEQ_LEN", 1}, {"MASK", 0},     {"LAYOUT", 0},
        {"STRATEGY", 0},     {"RANKS", 0},   {"TOKENS", 0},   {"MAKESPAN_MS", 1},
        {"PREDICTED_MS", 1}, {"ERROR_%", 1}, {"TO_BOUND", 1}, {"TRANSPORT", 0},
        {"ORIGIN", 0},       {NULL, 0}};
    struct printer p = {.filter = filter, .err = err};
    int rc;

    if (json)
        p.array = json_array();
    else
        p.table = show_table(columns);
    rc = hcp_db_each_ring_run(db, print, &p, err);
    *rows = p.rows;
    if (rc || !p.rows) {
        hcp_table_free(p.table);
        json_decref(p.array);
    } else if (json) {
        hcp_json_print(p.array, stdout);
    } else {
        hcp_table_print(p.table, stdout);
    }
    return rc;
}
