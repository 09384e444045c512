/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/show-groups.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"

struct collector {
    hcp_db *db;
    struct show_group *groups;
    size_t n;
    struct hcp_err *err;
};

static struct show_group *new_group(struct collector *c, const struct hcp_cell *cell)
{
    struct show_group *g = realloc(c->groups, (c->n + 1) * sizeof *g);

    if (!g)
        return NULL;
    c->groups = g;
    g = memset(&g[c->n++], 0, sizeof *g);
    g->key = cell->key;
    g->q_min = g->kv_min = INT64_MAX;
    g->sms = cell->sm_seen;
    g->copy_gb_per_s = g->decode_gb_per_s = NAN;
    memcpy(g->origin, cell->origin, sizeof g->origin);
    return g;
}

/* Each sequence's keys and values are read once, whatever the number of its query heads;
 * queries and output are nothing beside them. */
static double decode_gb_per_s(const struct hcp_cell *cell)
{
    const struct hcp_key *k = &cell->key;
    double element = strcmp(k->dtype, "fp32") ? 2 : 4;

    if (strcmp(k->phase, "decode"))
        return NAN;
    return 1e-6 * 2 * element * k->batch * k->kv_heads * k->head_dim *
           (double)cell->kv_len / cell->time_ms;
}

static int add_ok(struct show_group *g, const struct hcp_cell *cell)
{
    if (!(g->ok & (g->ok - 1)) || !g->ok) {
        double *grown = realloc(g->tflops, (g->ok ? g->ok * 2 : 1) * sizeof *grown);
        if (!grown)
            return -1;
        g->tflops = grown;
    }
    g->tflops[g->ok++] = hcp_cell_tflops(cell);
    g->decode_gb_per_s = fmax(g->decode_gb_per_s, decode_gb_per_s(cell));
    g->q_min = cell->q_len < g->q_min ? cell->q_len : g->q_min;
    g->q_max = cell->q_len > g->q_max ? cell->q_len : g->q_max;
    g->kv_min = cell->kv_len < g->kv_min ? cell->kv_len : g->kv_min;
    g->kv_max = cell->kv_len > g->kv_max ? cell->kv_len : g->kv_max;
    return 0;
}

/* Cells arrive in order of key. */
static int add_cell(const struct hcp_cell *cell, void *ctx)
{
    struct collector *c = ctx;
    struct show_group *g = c->n ? &c->groups[c->n - 1] : NULL;

    if (!g || !hcp_key_equal(&g->key, &cell->key))
        g = new_group(c, cell);
    if (!g)
        return hcp_fail(c->err, HCP_FAILED, "out of memory");
    if (g->sms != cell->sm_seen)
        g->sms = -1;
    if (strcmp(g->origin, cell->origin))
        strcpy(g->origin, "mixed");
    if (strcmp(cell->status, "ok"))
        g->failed++;
    else if (add_ok(g, cell))
        return hcp_fail(c->err, HCP_FAILED, "out of memory");
    return HCP_OK;
}

/* The largest size stands for the limit. */
static int add_copy(const struct hcp_bandwidth *row, void *ctx)
{
    struct collector *c = ctx;

    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->groups[i].key.device, row->device) &&
            !strcmp(c->groups[i].key.limit, row->limit))
            c->groups[i].copy_gb_per_s = row->gb_per_s;
    return HCP_OK;
}

static int add_model(const struct hcp_model_row *row,
                     const struct hcp_named_array *arrays, size_t n_arrays, void *ctx)
{
    struct collector *c = ctx;

    (void)arrays, (void)n_arrays;
    for (size_t i = 0; i < c->n; i++) {
        struct show_group *g = &c->groups[i];
        struct show_model *m = strcmp(row->kind, "lut") ? &g->poly : &g->lut;
        uint64_t now = 0;
        int rc;
        if (!hcp_key_equal(&g->key, &row->key))
            continue;
        rc = hcp_db_samples_hash(c->db, &g->key, &now, c->err);
        if (rc)
            return rc;
        *m = (struct show_model){1, now != row->samples_hash, row->holdout_cells,
                                 row->holdout_median, row->holdout_p90};
    }
    return HCP_OK;
}

static int by_limit_number(const void *a, const void *b)
{
    const struct hcp_key *x = &((const struct show_group *)a)->key;
    const struct hcp_key *y = &((const struct show_group *)b)->key;
    const int32_t p[] = {x->batch, x->heads, x->kv_heads, x->head_dim};
    const int32_t q[] = {y->batch, y->heads, y->kv_heads, y->head_dim};
    int order = strcmp(x->device, y->device);

    order = order ? order : strcmp(x->provider, y->provider);
    order = order ? order : strcmp(x->dtype, y->dtype);
    /* "prefill" before "decode" */
    order = order ? order : strcmp(y->phase, x->phase);
    for (size_t i = 0; !order && i < sizeof p / sizeof *p; i++)
        order = (p[i] > q[i]) - (p[i] < q[i]);
    return order ? order : hcp_limit_compare(x->limit, y->limit);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

int show_collect(hcp_db *db, const struct hcp_filter *filter, struct show_group **groups,
                 size_t *n, struct hcp_err *err)
{
    struct collector c = {db, NULL, 0, err};
    struct hcp_filter copies = {0};
    int rc = hcp_db_each_cell(db, filter, 0, add_cell, &c, err);

    copies.device = filter ? filter->device : NULL;
    if (!rc)
        rc = hcp_db_each_bandwidth(db, &copies, add_copy, &c, err);
    if (!rc)
        rc = hcp_db_each_model(db, NULL, add_model, &c, err);
    if (rc) {
        show_free(c.groups, c.n);
        return rc;
    }
    for (size_t i = 0; i < c.n; i++)
        if (c.groups[i].ok)
            qsort(c.groups[i].tflops, c.groups[i].ok, sizeof(double), by_value);
    if (c.n)
        qsort(c.groups, c.n, sizeof *c.groups, by_limit_number);
    *groups = c.groups;
    *n = c.n;
    return HCP_OK;
}

void show_free(struct show_group *groups, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(groups[i].tflops);
    free(groups);
}

double show_median_tflops(const struct show_group *g)
{
    return g->ok ? (g->tflops[(g->ok - 1) / 2] + g->tflops[g->ok / 2]) / 2 : NAN;
}

double show_max_tflops(const struct show_group *g)
{
    return g->ok ? g->tflops[g->ok - 1] : NAN;
}
