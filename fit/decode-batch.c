/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan fit, of decode: every batch that has measured ones on both sides, answered
 * from their models as 'hcp-plan predict' answers for a batch that was not measured.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "fit/decode.h"
#include "fit/model.h"

struct models {
    hcp_model **list;
    size_t n;
    struct hcp_err *err;
};

static int keep(const struct hcp_model_row *row, const struct hcp_named_array *arrays,
                size_t n_arrays, void *ctx)
{
    struct models *m = ctx;
    if (strcmp(row->kind, "lut") != 0) /* passes through what was measured */
        return HCP_OK;
    hcp_model **more = realloc(m->list, (m->n + 1) * sizeof *more);
    if (!more)
        return hcp_fail(m->err, HCP_FAILED, "out of memory");
    m->list = more;
    int rc = hcp_model_create(row, arrays, n_arrays, &m->list[m->n], m->err);
    if (rc == HCP_OK)
        m->n++;
    return rc;
}

static int same_family(const struct hcp_key *a, const struct hcp_key *b)
{
    struct hcp_key k = *b;
    k.batch = a->batch;
    return hcp_key_equal(a, &k);
}

static int by_double(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double quantile(const double *sorted, int n, double p)
{
    double at = p * (n - 1);
    int low = (int)at;
    return low + 1 < n ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low])
                       : sorted[n - 1];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Errors at powers of two of kv_len that all three have. */
static void judge(const hcp_model *low, const hcp_model *middle, const hcp_model *high,
                  struct fit_batch *out)
{
    const hcp_model *all[] = {low, middle, high};
    int64_t q = 1, first = 1, last = INT64_MAX;
    double errors[64];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        int64_t q_min, q_max, kv_min, kv_max;
        hcp_model_hull(all[i], 0, &q_min, &q_max, &kv_min, &kv_max);
        q = larger(q, q_min);
        first = larger(first, kv_min);
        last = smaller(last, kv_max);
    }
    for (int64_t kv = first; kv <= last && n < 64; kv *= 2)
        errors[n++] = hcp_model_batch_error(low, middle, high, 0, q, kv);
    *out = (struct fit_batch){.key = hcp_model_row(middle)->key,
                              .low = hcp_model_row(low)->key.batch,
                              .high = hcp_model_row(high)->key.batch,
                              .cells = n,
                              .kv_min = first,
                              .kv_max = last};
    if (n == 0)
        return;
    out->shortest = errors[0];
    out->longest = errors[n - 1];
    qsort(errors, (size_t)n, sizeof *errors, by_double);
    out->median = quantile(errors, n, 0.5);
    out->p90 = quantile(errors, n, 0.9);
}

int fit_batches(hcp_db *db, const struct hcp_filter *asked, struct fit_batch **out,
                size_t *n, struct hcp_err *err)
{
    struct hcp_filter filter = *asked;
    struct models m = {.err = err};
    filter.phase = "decode";
    filter.mask = filter.origin = filter.run_uid = filter.host = filter.status = NULL;
    filter.batch = 0;
    *out = NULL;
    *n = 0;
    int rc = hcp_db_each_model(db, &filter, keep, &m, err);
    struct fit_batch *list = rc == HCP_OK ? calloc(m.n + 1, sizeof *list) : NULL;
    if (rc == HCP_OK && !list)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < m.n && rc == HCP_OK; i++) {
        const struct hcp_key *key = &hcp_model_row(m.list[i])->key;
        const hcp_model *low = NULL, *high = NULL;
        for (size_t k = 0; k < m.n; k++) {
            const struct hcp_key *other = &hcp_model_row(m.list[k])->key;
            if (k == i || !same_family(other, key))
                continue;
            if (other->batch < key->batch &&
                (!low || other->batch > hcp_model_row(low)->key.batch))
                low = m.list[k];
            if (other->batch > key->batch &&
                (!high || other->batch < hcp_model_row(high)->key.batch))
                high = m.list[k];
        }
        if (low && high)
            judge(low, m.list[i], high, &list[(*n)++]);
    }
    for (size_t i = 0; i < m.n; i++)
        hcp_model_free(m.list[i]);
    free(m.list);
    if (rc == HCP_OK)
        *out = list;
    else
        free(list);
    return rc;
}

int fit_is_key(json_t *o, const struct hcp_key *k)
{
    static const char *const names[] = {"device", "limit", "provider", "dtype", "phase"};
    const char *const texts[] = {k->device, k->limit, k->provider, k->dtype, k->phase};
    static const char *const counts[] = {"batch", "heads", "kv_heads", "head_dim"};
    const int32_t values[] = {k->batch, k->heads, k->kv_heads, k->head_dim};
    int same = 1;
    for (int i = 0; i < 5; i++) {
        const char *text = json_string_value(json_object_get(o, names[i]));
        same = same && text && strcmp(text, texts[i]) == 0;
    }
    for (int i = 0; i < 4; i++)
        same = same && json_integer_value(json_object_get(o, counts[i])) == values[i];
    return same;
}

void fit_batch_add(const struct fit_batch *list, size_t n, json_t *array)
{
    for (size_t i = 0; i < n; i++) {
        const struct fit_batch *b = &list[i];
        json_t *o = NULL;
        size_t k;
        json_array_foreach(array, k, o) if (fit_is_key(o, &b->key)) break;
        if (k == json_array_size(array) || b->cells == 0)
            continue;
        json_t *left_out =
            json_pack("{s:i, s:i, s:i, s:I, s:I}", "batch_below", (int)b->low,
                      "batch_above", (int)b->high, "cells", b->cells, "kv_len_min",
                      (json_int_t)b->kv_min, "kv_len_max", (json_int_t)b->kv_max);
        json_object_set_new(left_out, "median", hcp_json_real(b->median));
        json_object_set_new(left_out, "p90", hcp_json_real(b->p90));
        json_object_set_new(left_out, "at_kv_len_min", hcp_json_real(b->shortest));
        json_object_set_new(left_out, "at_kv_len_max", hcp_json_real(b->longest));
        json_object_set_new(o, "batch_holdout", left_out);
    }
}

int fit_batch_print(const struct fit_batch *list, size_t n)
{
    static const char *const columns[] = {"device", "limit",    "kernel",  "shape",
                                          "batch",  "from",     "kv_len",  "median_%",
                                          "p90_%",  "at_min_%", "at_max_%"};
    hcp_table *t = hcp_table_new();
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], i == 4 || i > 6);
    for (size_t i = 0; i < n; i++) {
        const struct fit_batch *b = &list[i];
        hcp_table_row(t);
        hcp_table_cell(t, "%s", b->key.device);
        hcp_table_cell(t, "%s", *b->key.limit ? b->key.limit : "whole");
        hcp_table_cell(t, "%s", b->key.provider);
        hcp_table_cell(t, "%s %s %d/%dx%d", b->key.phase, b->key.dtype, (int)b->key.heads,
                       (int)b->key.kv_heads, (int)b->key.head_dim);
        hcp_table_cell(t, "%d", (int)b->key.batch);
        hcp_table_cell(t, "%d and %d", (int)b->low, (int)b->high);
        hcp_table_cell(t, "%lld-%lld", (long long)b->kv_min, (long long)b->kv_max);
        if (b->cells == 0) {
            for (int k = 0; k < 4; k++)
                hcp_table_cell(t, "?");
            continue;
        }
        hcp_table_cell(t, "%.1f", 100 * b->median);
        hcp_table_cell(t, "%.1f", 100 * b->p90);
        hcp_table_cell(t, "%.1f", 100 * b->shortest);
        hcp_table_cell(t, "%.1f", 100 * b->longest);
    }
    return hcp_table_print(t, stdout);
}
