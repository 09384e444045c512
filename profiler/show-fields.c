/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/show-fields.h"
#include <math.h>
#include <stdio.h>

/* 1: the caller fills the cell of this column. */
static int is_cell(struct show_fields *f, const char *head, int right)
{
    if (!f->table || !head)
        return 0;
    if (f->heads)
        hcp_table_column(f->table, head, right);
    return !f->heads;
}

static void put(struct show_fields *f, const char *key, json_t *value)
{
    if (f->object && key)
        json_object_set_new(f->object, key, value);
    else
        json_decref(value);
}

void show_begin(struct show_fields *f, void (*of)(struct show_fields *f, const void *row),
                const void *zero_row, int json)
{
    *f = (struct show_fields){.of = of};
    if (json) {
        f->array = json_array();
        return;
    }
    f->table = hcp_table_new();
    f->heads = 1;
    of(f, zero_row);
    f->heads = 0;
}

void show_row(struct show_fields *f, const void *row)
{
    f->rows++;
    if (f->table)
        hcp_table_row(f->table);
    else
        f->object = json_object();
    f->of(f, row);
    if (f->array)
        json_array_append_new(f->array, f->object);
    f->object = NULL;
}

int show_end(struct show_fields *f, int rc, size_t *rows)
{
    if (rc || !f->rows) {
        hcp_table_free(f->table);
        json_decref(f->array);
    } else if (f->array) {
        hcp_json_print(f->array, stdout);
    } else {
        hcp_table_print(f->table, stdout);
    }
    *rows = f->rows;
    return rc;
}

void field_text(struct show_fields *f, const char *head, const char *key,
                const char *text)
{
    if (is_cell(f, head, 0))
        hcp_table_cell(f->table, "%s", text);
    put(f, key, show_json_text(text));
}

void field_int(struct show_fields *f, const char *head, const char *key, int64_t v)
{
    if (is_cell(f, head, 1)) {
        if (v < 0)
            hcp_table_cell(f->table, "%s", "");
        else
            hcp_table_cell(f->table, "%lld", (long long)v);
    }
    put(f, key, show_json_int(v));
}

void field_real(struct show_fields *f, const char *head, const char *key, int decimals,
                double v)
{
    if (is_cell(f, head, 1))
        show_real(f->table, decimals, v);
    put(f, key, hcp_json_real(v));
}

void field_percent(struct show_fields *f, const char *head, double percent)
{
    if (is_cell(f, head, 1))
        hcp_table_cell(f->table, "%+.2f", percent);
}

void field_limit(struct show_fields *f, const char *head, const char *key,
                 const char *limit)
{
    if (is_cell(f, head, 0))
        hcp_table_cell(f->table, "%s", show_limit(limit));
    put(f, key, json_string(limit));
}

void field_end(struct show_fields *f, const char *head, const char *device_key,
               const char *device, const char *limit_key, const char *limit)
{
    if (is_cell(f, head, 0))
        hcp_table_cell(f->table, "%s%s%s", device, *limit ? "@" : "", limit);
    field_text(f, NULL, device_key, device);
    field_limit(f, NULL, limit_key, limit);
}

void field_key(struct show_fields *f, const struct hcp_key *key)
{
    field_text(f, "KERNEL", "provider", key->provider);
    if (is_cell(f, "SHAPE", 0))
        hcp_table_cell(f->table, SHOW_SHAPE, SHOW_SHAPE_VALUES(key));
    field_text(f, NULL, "dtype", key->dtype);
    field_text(f, NULL, "phase", key->phase);
    field_int(f, NULL, "batch", key->batch);
    field_int(f, NULL, "heads", key->heads);
    field_int(f, NULL, "kv_heads", key->kv_heads);
    field_int(f, NULL, "head_dim", key->head_dim);
}

void field_transport(struct show_fields *f, const char *transport, int32_t channels)
{
    if (is_cell(f, "TRANSPORT", 0))
        show_transport(f->table, transport, channels);
    field_text(f, NULL, "transport", transport);
    field_int(f, NULL, "channels", channels);
}

void field_origin(struct show_fields *f, const struct hcp_provenance *from)
{
    if (is_cell(f, "ORIGIN", 0))
        hcp_table_cell(f->table, "%s", show_origin(from->origin));
    field_text(f, NULL, "measured_at", from->measured_at);
    field_text(f, NULL, "origin", from->origin);
    field_text(f, "RUN", "run_uid", from->run_uid);
}
