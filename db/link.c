/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

/* sum of ((a + b x - t) / t)^2 */
static double loss(const struct hcp_link_point *p, size_t n, size_t out, double a,
                   double b)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double e = (a + b * p[i].bytes - p[i].ms) / p[i].ms;
        sum += i == out ? 0 : e * e;
    }
    return sum;
}

/* The a, b >= 0 that make loss() least over the points but number `out`. Weighted least
 * squares (weights 1/t^2) about the weighted means; if a coefficient comes out negative,
 * the answer is on the border: the better of a line through zero and a constant. */
static void least_squares(const struct hcp_link_point *p, size_t n, size_t out, double *a,
                          double *b)
{
    /* u = 1/t, v = x/t: what a and b are multiplied by in the sum. */
    double u = 0, v = 0, uu = 0, uv = 0, vv = 0, xx = 0, xt = 0, mean_x, mean_t;

    for (size_t i = 0; i < n; i++) {
        double u_i = i == out ? 0 : 1 / p[i].ms, v_i = u_i * p[i].bytes;
        u += u_i;
        v += v_i;
        uu += u_i * u_i;
        uv += u_i * v_i;
        vv += v_i * v_i;
    }
    mean_x = uv / uu;
    mean_t = u / uu;
    for (size_t i = 0; i < n; i++) {
        double w = i == out ? 0 : 1 / (p[i].ms * p[i].ms), x = p[i].bytes - mean_x;
        xx += w * x * x;
        xt += w * x * (p[i].ms - mean_t);
    }
    *b = xt / xx;
    *a = mean_t - *b * mean_x;
    if (*a >= 0 && *b >= 0)
        return;
    if (loss(p, n, out, 0, v / vv) <= loss(p, n, out, mean_t, 0)) {
        *a = 0;
        *b = v / vv;
    } else {
        *a = mean_t;
        *b = 0;
    }
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Relative errors of the inner sizes, each predicted from the others; *errors has room
 * for n. */
static void hold_out(const struct hcp_link_point *p, size_t n, double *errors,
                     struct hcp_link_fit *out)
{
    size_t m = n - 2;

    for (size_t i = 1; i + 1 < n; i++) {
        double a, b;
        least_squares(p, n, i, &a, &b);
        errors[i - 1] = fabs(a + b * p[i].bytes - p[i].ms) / p[i].ms;
    }
    qsort(errors, m, sizeof *errors, by_value);
    out->holdout_median = (errors[(m - 1) / 2] + errors[m / 2]) / 2;
    out->holdout_max = errors[m - 1];
}

int hcp_link_fit(const int64_t *bytes, const double *time_ms, size_t n,
                 struct hcp_link_fit *out, struct hcp_err *err)
{
    struct hcp_link_fit fit = {.holdout_median = NAN, .holdout_max = NAN};
    struct hcp_link_point *p = NULL;
    double *errors = NULL, a, b;
    size_t sizes = 0;
    int rc = hcp_link_points(bytes, time_ms, n, &p, &sizes, err);

    if (!rc && !(errors = malloc(sizes * sizeof *errors)))
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    if (!rc) {
        least_squares(p, sizes, sizes, &a, &b);
        /* No time is longer for more bytes: latency alone was measured. */
        if (!(b > 0))
            rc = hcp_fail(err, HCP_NO_ANSWER,
                          "transfers of up to %.0f bytes take no longer than small ones; "
                          "measure larger sizes",
                          p[sizes - 1].bytes);
    }
    if (!rc) {
        fit.alpha_us = a * 1e3;
        fit.gbps = 1e-6 / b; /* b in ms a byte */
        fit.sizes = (int)sizes;
        if (sizes > 2)
            hold_out(p, sizes, errors, &fit);
        *out = fit;
    }
    free(errors);
    free(p);
    return rc;
}

const char *hcp_hosts_name(enum hcp_hosts hosts)
{
    return hosts == HCP_HOSTS_WITHIN    ? "within"
           : hosts == HCP_HOSTS_BETWEEN ? "between"
                                        : "";
}

enum hcp_hosts hcp_hosts_of(const char *a, const char *b)
{
    return !*a || !*b     ? HCP_HOSTS_ANY
           : strcmp(a, b) ? HCP_HOSTS_BETWEEN
                          : HCP_HOSTS_WITHIN;
}

enum hcp_hosts hcp_link_hosts(const struct hcp_link_row *row)
{
    return row->same_host < 0 ? hcp_hosts_of(row->from.host, row->host_b)
           : row->same_host   ? HCP_HOSTS_WITHIN
                              : HCP_HOSTS_BETWEEN;
}

int hcp_link_has_channels(const struct hcp_link_by *by, int32_t channels)
{
    return (channels > 0 ? channels : 0) == by->channels;
}

struct rows {
    const struct hcp_link_by *by;
    const char *device[2], *limit[2];
    int found[3]; /* by HCP_HOSTS_ */
    int64_t *bytes;
    double *ms;
    size_t n;
    struct hcp_err *err;
};

static int is_pair(const struct rows *r, const struct hcp_link_row *row, int first)
{
    return !strcmp(row->device_a, r->device[first]) &&
           !strcmp(row->limit_a, r->limit[first]) &&
           !strcmp(row->device_b, r->device[!first]) &&
           !strcmp(row->limit_b, r->limit[!first]);
}

static int collect(const struct hcp_link_row *row, void *ctx)
{
    struct rows *r = ctx;
    enum hcp_hosts hosts = hcp_link_hosts(row);
    int64_t *bytes;
    double *ms;

    if (strcmp(row->transport, r->by->transport) || row->one_way != r->by->one_way ||
        !hcp_link_has_channels(r->by, row->channels) ||
        !(is_pair(r, row, 0) || (!r->by->one_way && is_pair(r, row, 1))))
        return HCP_OK;
    r->found[hosts]++;
    if (r->by->hosts != HCP_HOSTS_ANY && hosts != HCP_HOSTS_ANY && r->by->hosts != hosts)
        return HCP_OK;
    bytes = realloc(r->bytes, (r->n + 1) * sizeof *bytes);
    if (bytes)
        r->bytes = bytes;
    ms = realloc(r->ms, (r->n + 1) * sizeof *ms);
    if (ms)
        r->ms = ms;
    if (!bytes || !ms)
        return hcp_fail(r->err, HCP_FAILED, "out of memory");
    bytes[r->n] = row->bytes;
    ms[r->n++] = row->time_ms;
    return HCP_OK;
}

/* "DEVICE@LIMIT,DEVICE@LIMIT by TRANSPORT", "one way" where it is that */
static void name(const struct rows *r, char text[256])
{
    int at = snprintf(text, 256, "%s%s%s,%s%s%s by %s", r->device[0],
                      *r->limit[0] ? "@" : "", r->limit[0], r->device[1],
                      *r->limit[1] ? "@" : "", r->limit[1], r->by->transport);

    if (r->by->channels && at > 0 && at < 256)
        snprintf(text + at, 256 - (size_t)at, " of %d channel%s", (int)r->by->channels,
                 r->by->channels == 1 ? "" : "s");
    at = (int)strlen(text);
    if (r->by->one_way)
        snprintf(text + at, 256 - (size_t)at, " one way");
}

/* The pair's rows, into r. */
static int rows_of(hcp_db *db, struct rows *r, struct hcp_err *err)
{
    const struct hcp_filter filter = {
        .device = r->device[0], .limit = r->limit[0], .limit_set = 1};
    int rc;
    char ends[256];

    r->err = err;
    rc = hcp_db_each_link(db, &filter, collect, r, err);
    if (rc || r->by->hosts != HCP_HOSTS_ANY || !r->found[HCP_HOSTS_WITHIN] ||
        !r->found[HCP_HOSTS_BETWEEN])
        return rc;
    name(r, ends);
    return hcp_fail(err, HCP_USAGE,
                    "link %s in '%s' was measured within a host (%d rows) and between "
                    "hosts (%d); say which it is: %s:within or %s:between",
                    ends, db->path, r->found[HCP_HOSTS_WITHIN],
                    r->found[HCP_HOSTS_BETWEEN], r->by->transport, r->by->transport);
}

void hcp_db_link_command(const hcp_db *db, const struct hcp_link_by *by,
                         const char *limit_a, const char *limit_b, char *text,
                         size_t size)
{
    char channels[32] = "";

    if (by->channels)
        snprintf(channels, sizeof channels, " --channels %d", (int)by->channels);
    snprintf(text, size, "%shcp-profile link%s --db %s --limits %s/%s --transport %s%s",
             by->hosts == HCP_HOSTS_BETWEEN ? "mpirun -np 2 --host A,B " : "",
             by->one_way ? " --one-way" : "", db->path, *limit_a ? limit_a : "none",
             *limit_b ? limit_b : "none", by->transport, channels);
}

/* What to do where there is no answer. */
static int no_link(const hcp_db *db, const struct rows *r, int rc,
                   const struct hcp_err *why, struct hcp_err *err)
{
    char ends[256], command[HCP_LINK_COMMAND];

    name(r, ends);
    hcp_db_link_command(db, r->by, r->limit[0], r->limit[1], command, sizeof command);
    return hcp_fail(err, rc,
                    "link %s%s %s%s in '%s'; where these devices are, measure it with "
                    "'%s'",
                    ends,
                    r->by->hosts == HCP_HOSTS_WITHIN    ? " within a host"
                    : r->by->hosts == HCP_HOSTS_BETWEEN ? " between hosts"
                                                        : "",
                    r->n ? "has no fit: " : "was never measured", r->n ? why->text : "",
                    db->path, command);
}

int hcp_db_link_of(hcp_db *db, const struct hcp_link_by *by, const char *device_a,
                   const char *limit_a, const char *device_b, const char *limit_b,
                   struct hcp_link_fit *out, struct hcp_err *err)
{
    struct rows r = {
        .by = by, .device = {device_a, device_b}, .limit = {limit_a, limit_b}};
    struct hcp_err why = {0};
    int rc = rows_of(db, &r, err);

    if (!rc)
        rc = hcp_link_fit(r.bytes, r.ms, r.n, out, &why);
    if (rc && why.code)
        rc = no_link(db, &r, rc, &why, err);
    free(r.bytes);
    free(r.ms);
    return rc;
}

/* Sizes that a line for blocks about `bytes` rests on, kept in place; their number of
 * rows. Beyond the sizes that were measured it is those about the nearest. */
static size_t near_rows(int64_t *bytes, double *ms, size_t n, double about)
{
    size_t kept = 0;
    double least = INFINITY, most = 0;

    for (size_t i = 0; i < n; i++) {
        least = fmin(least, (double)bytes[i]);
        most = fmax(most, (double)bytes[i]);
    }
    about = fmax(fmin(about, most), least);
    for (size_t i = 0; i < n; i++)
        if ((double)bytes[i] * 16 >= about && (double)bytes[i] <= 2 * about) {
            bytes[kept] = bytes[i];
            ms[kept++] = ms[i];
        }
    return kept;
}

int hcp_db_link_near(hcp_db *db, const struct hcp_link_by *by, const char *device_a,
                     const char *limit_a, const char *device_b, const char *limit_b,
                     double bytes, struct hcp_link_fit *out, struct hcp_err *err)
{
    struct rows r = {
        .by = by, .device = {device_a, device_b}, .limit = {limit_a, limit_b}};
    struct hcp_err why = {0}, few;
    struct hcp_link_fit near;
    int rc = rows_of(db, &r, err);

    if (!rc)
        rc = hcp_link_fit(r.bytes, r.ms, r.n, out, &why);
    if (!rc) {
        size_t kept = near_rows(r.bytes, r.ms, r.n, bytes);
        if (!hcp_link_fit(r.bytes, r.ms, kept, &near, &few) && near.sizes > 2)
            *out = near;
    }
    if (rc && why.code)
        rc = no_link(db, &r, rc, &why, err);
    free(r.bytes);
    free(r.ms);
    return rc;
}

int hcp_db_link_curve_of(hcp_db *db, const struct hcp_link_by *by, const char *device_a,
                         const char *limit_a, const char *device_b, const char *limit_b,
                         struct hcp_link_curve *out, struct hcp_err *err)
{
    struct rows r = {
        .by = by, .device = {device_a, device_b}, .limit = {limit_a, limit_b}};
    struct hcp_err why = {0};
    int rc = rows_of(db, &r, err);

    if (!rc)
        rc = hcp_link_curve_make(r.bytes, r.ms, r.n, out, &why);
    if (rc && why.code)
        rc = no_link(db, &r, rc, &why, err);
    free(r.bytes);
    free(r.ms);
    return rc;
}
