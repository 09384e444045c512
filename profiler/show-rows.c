/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/show-rows.h"
#include "profiler/show-table.h"

struct printer {
    hcp_table *table;
    json_t *array;
    size_t rows;
};

/* Prints and frees what was gathered, or only frees it. */
static void finish(struct printer *p, int print)
{
    if (!print || !p->rows) {
        hcp_table_free(p->table);
        json_decref(p->array);
    } else if (p->array) {
        hcp_json_print(p->array, stdout);
    } else {
        hcp_table_print(p->table, stdout);
    }
}

/* "DEVICE@LIMIT" */
static void end_text(char text[100], const char *device, const char *limit)
{
    snprintf(text, 100, "%s%s%s", device, *limit ? "@" : "", limit);
}

static json_t *link_object(const struct hcp_link_row *r)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:I}", "device_a", r->device_a,
                          "limit_a", r->limit_a, "device_b", r->device_b, "limit_b",
                          r->limit_b, "one_way", (int)r->one_way, "transport",
                          r->transport, "bytes", (json_int_t)r->bytes);

    json_object_set_new(o, "channels", show_json_int(r->channels));
    json_object_set_new(o, "time_ms", hcp_json_real(r->time_ms));
    json_object_set_new(o, "p25_ms", hcp_json_real(r->p25_ms));
    json_object_set_new(o, "p75_ms", hcp_json_real(r->p75_ms));
    json_object_set_new(o, "samples", show_json_int(r->samples));
    json_object_set_new(o, "same_host",
                        r->same_host < 0 ? json_null() : json_boolean(r->same_host));
    json_object_set_new(o, "host_a", show_json_text(r->from.host));
    json_object_set_new(o, "host_b", show_json_text(r->host_b));
    json_object_set_new(o, "uuid_a", show_json_text(r->uuid_a));
    json_object_set_new(o, "uuid_b", show_json_text(r->uuid_b));
    json_object_set_new(o, "transport_version", show_json_text(r->transport_version));
    json_object_set_new(o, "origin", json_string(r->from.origin));
    json_object_set_new(o, "run_uid", json_string(r->from.run_uid));
    return o;
}

static int print_link(const struct hcp_link_row *r, void *ctx)
{
    struct printer *p = ctx;
    hcp_table *t = p->table;
    char text[100];

    p->rows++;
    if (p->array) {
        json_array_append_new(p->array, link_object(r));
        return HCP_OK;
    }
    hcp_table_row(t);
    end_text(text, r->device_a, r->limit_a);
    hcp_table_cell(t, "%s", text);
    end_text(text, r->device_b, r->limit_b);
    hcp_table_cell(t, "%s", text);
    hcp_table_cell(t, "%s", r->one_way ? "yes" : "no");
    show_transport(t, r->transport, r->channels);
    hcp_table_cell(t, "%lld", (long long)r->bytes);
    show_real(t, 5, r->time_ms);
    show_real(t, 5, r->p25_ms);
    show_real(t, 5, r->p75_ms);
    show_int(t, r->samples);
    hcp_table_cell(t, "%.2f", (double)r->bytes / r->time_ms / 1e6);
    hcp_table_cell(t, "%s", show_origin(r->from.origin));
    hcp_table_cell(t, "%s", r->from.run_uid);
    return HCP_OK;
}

/* The rows of one pair over one transport and its channels, within a host or between two;
 * in either order, unless data went one way. */
struct pair {
    struct hcp_link_row first; /* names the ends */
    int64_t *bytes;
    double *ms;
    size_t n;
    char origin[12]; /* "mixed" when they differ */
};
struct pairs {
    struct pair *list;
    size_t n;
    struct hcp_err *err;
};

static int same_pair(const struct hcp_link_row *x, const struct hcp_link_row *y)
{
    if (strcmp(x->transport, y->transport) || x->channels != y->channels ||
        x->one_way != y->one_way || hcp_link_hosts(x) != hcp_link_hosts(y))
        return 0;
    if (!strcmp(x->device_a, y->device_a) && !strcmp(x->limit_a, y->limit_a) &&
        !strcmp(x->device_b, y->device_b) && !strcmp(x->limit_b, y->limit_b))
        return 1;
    return !x->one_way && !strcmp(x->device_a, y->device_b) &&
           !strcmp(x->limit_a, y->limit_b) && !strcmp(x->device_b, y->device_a) &&
           !strcmp(x->limit_b, y->limit_a);
}

static int gather(const struct hcp_link_row *r, void *ctx)
{
    struct pairs *all = ctx;
    struct pair *p = NULL;
    int64_t *bytes;
    double *ms;

    for (size_t i = 0; !p && i < all->n; i++)
        if (same_pair(&all->list[i].first, r))
            p = &all->list[i];
    if (!p) {
        struct pair *grown = realloc(all->list, (all->n + 1) * sizeof *grown);
        if (!grown)
            return hcp_fail(all->err, HCP_FAILED, "out of memory");
        all->list = grown;
        p = &grown[all->n++];
        *p = (struct pair){.first = *r};
        memcpy(p->origin, r->from.origin, sizeof p->origin);
    }
    if (strcmp(p->origin, r->from.origin))
        strcpy(p->origin, "mixed");
    bytes = realloc(p->bytes, (p->n + 1) * sizeof *bytes);
    if (bytes)
        p->bytes = bytes;
    ms = realloc(p->ms, (p->n + 1) * sizeof *ms);
    if (ms)
        p->ms = ms;
    if (!bytes || !ms)
        return hcp_fail(all->err, HCP_FAILED, "out of memory");
    bytes[p->n] = r->bytes;
    ms[p->n++] = r->time_ms;
    return HCP_OK;
}

static json_t *curve_object(const struct hcp_link_curve *c)
{
    json_t *o = json_object(), *bytes = json_array(), *ms = json_array();

    for (size_t i = 0; i < c->n; i++) {
        json_array_append_new(bytes, json_integer((json_int_t)c->points[i].bytes));
        json_array_append_new(ms, hcp_json_real(c->points[i].ms));
    }
    json_object_set_new(o, "bytes", bytes);
    json_object_set_new(o, "time_ms", ms);
    json_object_set_new(o, "holdout_median", hcp_json_real(c->holdout_median));
    json_object_set_new(o, "holdout_p90", hcp_json_real(c->holdout_p90));
    json_object_set_new(o, "holdout_max", hcp_json_real(c->holdout_max));
    return o;
}

static void two_percent(hcp_table *t, double a, double b)
{
    if (isnan(a))
        hcp_table_cell(t, "%s", "-");
    else
        hcp_table_cell(t, "%.1f/%.1f", a * 100, b * 100);
}

static void print_pair(const struct pair *pair, const struct hcp_link_curve *curve,
                       struct printer *p)
{
    const struct hcp_link_row *r = &pair->first;
    struct hcp_link_fit fit = {NAN, NAN, NAN, NAN, 0};
    enum hcp_hosts hosts = hcp_link_hosts(r);
    int64_t min = pair->bytes[0], max = min;
    hcp_table *t = p->table;
    struct hcp_err why;
    char text[100];
    /* No fit (one size) leaves its columns empty. */
    int fitted = !hcp_link_fit(pair->bytes, pair->ms, pair->n, &fit, &why);

    p->rows++;
    for (size_t i = 1; i < pair->n; i++) {
        min = pair->bytes[i] < min ? pair->bytes[i] : min;
        max = pair->bytes[i] > max ? pair->bytes[i] : max;
    }
    if (p->array) {
        json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:I, s:I, s:I}", "device_a",
                              r->device_a, "limit_a", r->limit_a, "device_b", r->device_b,
                              "limit_b", r->limit_b, "one_way", (int)r->one_way,
                              "transport", r->transport, "rows", (json_int_t)pair->n,
                              "bytes_min", (json_int_t)min, "bytes_max", (json_int_t)max);
        json_object_set_new(o, "channels", show_json_int(r->channels));
        json_object_set_new(o, "alpha_us", hcp_json_real(fit.alpha_us));
        json_object_set_new(o, "gb_per_s", hcp_json_real(fit.gbps));
        json_object_set_new(o, "sizes", fitted ? json_integer(fit.sizes) : json_null());
        json_object_set_new(o, "holdout_median", hcp_json_real(fit.holdout_median));
        json_object_set_new(o, "holdout_max", hcp_json_real(fit.holdout_max));
        json_object_set_new(o, "curve", curve->n ? curve_object(curve) : json_null());
        json_object_set_new(o, "hosts", show_json_text(hcp_hosts_name(hosts)));
        json_object_set_new(o, "origin", json_string(pair->origin));
        json_array_append_new(p->array, o);
        return;
    }
    hcp_table_row(t);
    end_text(text, r->device_a, r->limit_a);
    hcp_table_cell(t, "%s", text);
    end_text(text, r->device_b, r->limit_b);
    hcp_table_cell(t, "%s", text);
    hcp_table_cell(t, "%s", r->one_way ? "yes" : "no");
    show_transport(t, r->transport, r->channels);
    hcp_table_cell(t, "%s", hosts != HCP_HOSTS_ANY ? hcp_hosts_name(hosts) : "-");
    hcp_table_cell(t, "%zu", pair->n);
    hcp_table_cell(t, "%lld-%lld", (long long)min, (long long)max);
    show_real(t, 2, fit.alpha_us);
    show_real(t, 2, fit.gbps);
    two_percent(t, fit.holdout_median, fit.holdout_max);
    two_percent(t, curve->holdout_median, curve->holdout_p90);
    hcp_table_cell(t, "%s", show_origin(pair->origin));
}

int show_links(hcp_db *db, const struct hcp_filter *filter, int each, int json,
               size_t *rows, struct hcp_err *err)
{
    static const struct show_column fits[] = {{"A", 0},
                                              {"B", 0},
                                              {"ONE_WAY", 0},
                                              {"TRANSPORT", 0},
                                              {"HOSTS", 0},
                                              {"ROWS", 1},
                                              {"BYTES", 1},
                                              {"ALPHA_US", 1},
                                              {"GB/S", 1},
                                              {"HOLDOUT_MEDIAN/MAX_%", 1},
                                              {"CURVE_MEDIAN/P90_%", 1},
                                              {"ORIGIN", 0},
                                              {NULL, 0}};
    static const struct show_column columns[] = {
        {"A", 0},       {"B", 0},      {"ONE_WAY", 0}, {"TRANSPORT", 0}, {"BYTES", 1},
        {"TIME_MS", 1}, {"P25_MS", 1}, {"P75_MS", 1},  {"SAMPLES", 1},   {"GB/S", 1},
        {"ORIGIN", 0},  {"RUN", 0},    {NULL, 0}};
    struct printer p = {.array = json ? json_array() : NULL};
    struct pairs pairs = {.err = err};
    int rc;

    if (!json)
        p.table = show_table(each ? columns : fits);
    rc = each ? hcp_db_each_link(db, filter, print_link, &p, err)
              : hcp_db_each_link(db, filter, gather, &pairs, err);
    for (size_t i = 0; i < pairs.n; i++) {
        struct hcp_link_curve curve = {NULL, 0, NAN, NAN, NAN};
        struct hcp_err none; /* one size is no curve */
        hcp_link_curve_make(pairs.list[i].bytes, pairs.list[i].ms, pairs.list[i].n,
                            &curve, &none);
        if (!rc)
            print_pair(&pairs.list[i], &curve, &p);
        hcp_link_curve_free(&curve);
        free(pairs.list[i].bytes);
        free(pairs.list[i].ms);
    }
    free(pairs.list);
    finish(&p, !rc);
    *rows = p.rows;
    return rc;
}
