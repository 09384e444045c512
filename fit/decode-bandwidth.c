/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan fit, of decode: what a limit leaves of the memory's bandwidth. All batches and
 * lengths of a device, limit, kernel and shape are taken as one line, alpha + KV bytes /
 * bandwidth; how far single times are from it says where bandwidth does not decide.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fit/decode.h"

struct family {
    struct fit_bandwidth out;
    int64_t *bytes;
    double *ms;
    size_t n, room;
};

struct families {
    struct family *list;
    size_t n;
    struct hcp_err *err;
};

static int same_family(const struct hcp_key *a, const struct hcp_key *b)
{
    struct hcp_key k = *b;
    k.batch = a->batch;
    return hcp_key_equal(a, &k);
}

static int add(struct family *f, int64_t bytes, double ms)
{
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 64;
        int64_t *b = realloc(f->bytes, room * sizeof *b);
        if (b)
            f->bytes = b;
        double *m = realloc(f->ms, room * sizeof *m);
        if (m)
            f->ms = m;
        if (!b || !m)
            return -1;
        f->room = room;
    }
    f->bytes[f->n] = bytes;
    f->ms[f->n++] = ms;
    return 0;
}

static int gather(const struct hcp_cell *c, void *ctx)
{
    struct families *all = ctx;
    const struct hcp_key *k = &c->key;
    struct family *f = NULL;
    if (c->q_len != 1 || strcmp(c->mask, "full") != 0)
        return HCP_OK;
    for (size_t i = 0; i < all->n && !f; i++)
        if (same_family(&all->list[i].out.key, k))
            f = &all->list[i];
    if (!f) {
        struct family *more = realloc(all->list, (all->n + 1) * sizeof *more);
        if (!more)
            return hcp_fail(all->err, HCP_FAILED, "out of memory");
        all->list = more;
        f = &more[all->n++];
        *f = (struct family){.out = {.key = *k, .copy_gb_per_s = NAN}};
    }
    int64_t element = strcmp(k->dtype, "fp32") == 0 ? 4 : 2;
    int64_t bytes =
        2 * element * k->batch * k->kv_heads * (int64_t)k->head_dim * c->kv_len;
    return add(f, bytes, c->time_ms) == 0
               ? HCP_OK
               : hcp_fail(all->err, HCP_FAILED, "out of memory");
}

static int take_copy(const struct hcp_bandwidth *row, void *ctx)
{
    *(double *)ctx = row->gb_per_s; /* the largest size is the last */
    return HCP_OK;
}

int fit_bandwidths(hcp_db *db, const struct hcp_filter *asked, struct fit_bandwidth **out,
                   size_t *n, struct hcp_err *err)
{
    struct hcp_filter filter = *asked;
    struct families all = {.err = err};
    filter.phase = "decode";
    filter.status = "ok";
    *out = NULL;
    *n = 0;
    int rc = asked->phase && strcmp(asked->phase, "decode") != 0
                 ? HCP_OK
                 : hcp_db_each_cell(db, &filter, 0, gather, &all, err);
    struct fit_bandwidth *list = calloc(all.n + 1, sizeof *list);
    if (rc == HCP_OK && !list)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < all.n; i++) {
        struct family *f = &all.list[i];
        struct hcp_filter copies = {
            .device = f->out.key.device, .limit = f->out.key.limit, .limit_set = 1};
        struct hcp_err why;
        if (rc == HCP_OK)
            rc =
                hcp_db_each_bandwidth(db, &copies, take_copy, &f->out.copy_gb_per_s, err);
        /* Fewer than two sizes, or times that do not grow: nothing to say. */
        if (rc == HCP_OK && hcp_link_fit(f->bytes, f->ms, f->n, &f->out.line, &why) == 0)
            list[(*n)++] = f->out;
        free(f->bytes);
        free(f->ms);
    }
    free(all.list);
    if (rc == HCP_OK)
        *out = list;
    else
        free(list), *n = 0;
    return rc;
}

void fit_bandwidth_add(const struct fit_bandwidth *list, size_t n, json_t *array)
{
    json_t *o;
    size_t k;
    json_array_foreach(array, k, o)
    {
        for (size_t i = 0; i < n; i++) {
            struct hcp_key key = list[i].key;
            const struct hcp_link_fit *f = &list[i].line;
            key.batch = (int32_t)json_integer_value(json_object_get(o, "batch"));
            if (!fit_is_key(o, &key))
                continue;
            json_t *line = json_pack("{s:i}", "sizes", f->sizes);
            json_object_set_new(line, "alpha_us", hcp_json_real(f->alpha_us));
            json_object_set_new(line, "gb_per_s", hcp_json_real(f->gbps));
            json_object_set_new(line, "holdout_median", hcp_json_real(f->holdout_median));
            json_object_set_new(line, "holdout_max", hcp_json_real(f->holdout_max));
            json_object_set_new(line, "copy_gb_per_s",
                                hcp_json_real(list[i].copy_gb_per_s));
            json_object_set_new(o, "bandwidth", line);
        }
    }
}

int fit_bandwidth_print(const struct fit_bandwidth *list, size_t n)
{
    static const char *const columns[] = {
        "device",   "limit", "kernel",        "shape",      "sizes",
        "alpha_us", "gb/s",  "line_median_%", "line_max_%", "copy_gb/s"};
    hcp_table *t = hcp_table_new();
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], i > 3);
    for (size_t i = 0; i < n; i++) {
        const struct fit_bandwidth *b = &list[i];
        const struct hcp_link_fit *f = &b->line;
        hcp_table_row(t);
        hcp_table_cell(t, "%s", b->key.device);
        hcp_table_cell(t, "%s", *b->key.limit ? b->key.limit : "whole");
        hcp_table_cell(t, "%s", b->key.provider);
        hcp_table_cell(t, "%s %s %d/%dx%d", b->key.phase, b->key.dtype, (int)b->key.heads,
                       (int)b->key.kv_heads, (int)b->key.head_dim);
        hcp_table_cell(t, "%d", f->sizes);
        hcp_table_cell(t, "%.1f", f->alpha_us);
        hcp_table_cell(t, "%.0f", f->gbps);
        if (isnan(f->holdout_median)) {
            hcp_table_cell(t, "?");
            hcp_table_cell(t, "?");
        } else {
            hcp_table_cell(t, "%.1f", 100 * f->holdout_median);
            hcp_table_cell(t, "%.1f", 100 * f->holdout_max);
        }
        if (isnan(b->copy_gb_per_s))
            hcp_table_cell(t, "-");
        else
            hcp_table_cell(t, "%.0f", b->copy_gb_per_s);
    }
    return hcp_table_print(t, stdout);
}
