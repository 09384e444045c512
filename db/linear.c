/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear rows -> the time of a layer. A product's time over tokens is flat where its
 * weights are what is read (few tokens), then a staircase of its kernel's tiles, then
 * straight: between neighbours it is taken to be straight. Times that fall with the
 * tokens, by noise or a change of kernel, are levelled: neighbours that contradict each
 * other get their common mean (pool adjacent violators), so that every answer rises.
 */
#include "db/layer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 256 };

struct product {
    int64_t n_in, n_out;
    int n;           /* token counts, ascending */
    int64_t *tokens; /* [n] */
    double *ms;      /* [n], levelled */
    double *raw_ms;  /* [n], as measured: what a held-out row is compared with */
    double *error;   /* [n] relative, of predicting it from its neighbours; ends: the
                        neighbour's; what its samples spread, at least */
    double *spread;  /* [n] relative, half of the quartiles' distance */
};

struct hcp_linear {
    struct hcp_layer layer;
    char library[32], version[48];
    struct product product[HCP_LAYER_PRODUCTS];
};

/* Rows of one limit and dtype. */
struct rows {
    struct hcp_linear_row *list;
    size_t n, room;
    const char *dtype;
    int out_of_memory;
};

static int keep(const struct hcp_linear_row *row, void *ctx)
{
    struct rows *rows = ctx;
    if (strcmp(row->dtype, rows->dtype) != 0)
        return 0;
    if (rows->n == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 128;
        struct hcp_linear_row *more = realloc(rows->list, room * sizeof *more);
        if (!more) {
            rows->out_of_memory = 1;
            return 1;
        }
        rows->list = more;
        rows->room = room;
    }
    rows->list[rows->n++] = *row;
    return 0;
}

static int by_tokens(const void *x, const void *y)
{
    const struct hcp_linear_row *a = x, *b = y;
    if (a->tokens != b->tokens)
        return a->tokens < b->tokens ? -1 : 1;
    if (a->time_ms != b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    return strcmp(a->from.run_uid, b->from.run_uid);
}

/* Straight from (t0, y0) to (t1, y1), between or beyond them. */
static double line(int64_t t0, double y0, int64_t t1, double y1, int64_t t)
{
    return y0 + (y1 - y0) * (double)(t - t0) / (double)(t1 - t0);
}

static void level(struct product *p)
{
    for (int i = 0; i < p->n; i++)
        p->ms[i] = p->raw_ms[i];
    for (int i = 1; i < p->n; i++) {
        double sum = p->ms[i];
        int from = i;
        while (from > 0 && p->ms[from - 1] > sum / (i - from + 1))
            sum += p->ms[--from];
        for (int k = from; k <= i; k++)
            p->ms[k] = sum / (i - from + 1);
    }
}

static void judge(struct product *p)
{
    for (int i = 1; i + 1 < p->n; i++) {
        double got = line(p->tokens[i - 1], p->raw_ms[i - 1], p->tokens[i + 1],
                          p->raw_ms[i + 1], p->tokens[i]);
        p->error[i] = fabs(got - p->raw_ms[i]) / p->raw_ms[i];
    }
    if (p->n >= 3) {
        p->error[0] = p->error[1];
        p->error[p->n - 1] = p->error[p->n - 2];
    } else {
        for (int i = 0; i < p->n; i++)
            p->error[i] = 0.3; /* nothing is known: as fit/holdout.c guesses */
    }
}

/* The rows of one product; rows->list holds one library and version only. */
static int fill(struct product *p, const struct rows *rows, struct hcp_err *err)
{
    struct hcp_linear_row *own = calloc(rows->n + 1, sizeof *own);
    size_t n = 0;
    if (!own)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < rows->n; i++)
        if (rows->list[i].n_in == p->n_in && rows->list[i].n_out == p->n_out)
            own[n++] = rows->list[i];
    qsort(own, n, sizeof *own, by_tokens);
    p->tokens = calloc(n + 1, sizeof *p->tokens);
    p->ms = calloc(4 * n + 4, sizeof *p->ms);
    if (!p->tokens || !p->ms) {
        free(own);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    p->raw_ms = p->ms + n;
    p->error = p->raw_ms + n;
    p->spread = p->error + n;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && own[end].tokens == own[i].tokens;)
            end++;
        const struct hcp_linear_row *a = &own[i + (end - i - 1) / 2],
                                    *b = &own[i + (end - i) / 2];
        double q = (b->p75_ms - b->p25_ms) / (2 * b->time_ms);
        p->tokens[p->n] = own[i].tokens;
        p->raw_ms[p->n] = (a->time_ms + b->time_ms) / 2;
        p->spread[p->n++] = q > 0 ? q : 0; /* false for NaN */
    }
    free(own);
    level(p);
    judge(p);
    return HCP_OK;
}

/* Leaves the rows of the library and version that were measured last. */
static void newest_only(struct rows *rows, hcp_linear *linear)
{
    const struct hcp_linear_row *newest = NULL;
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++)
        if (!newest ||
            strcmp(rows->list[i].from.measured_at, newest->from.measured_at) > 0)
            newest = &rows->list[i];
    if (!newest)
        return;
    memcpy(linear->library, newest->library, sizeof linear->library);
    memcpy(linear->version, newest->library_version, sizeof linear->version);
    for (size_t i = 0; i < rows->n; i++)
        if (strcmp(rows->list[i].library, linear->library) == 0 &&
            strcmp(rows->list[i].library_version, linear->version) == 0)
            rows->list[n++] = rows->list[i];
    rows->n = n;
}

static int missing(hcp_db *db, const char *device, const char *limit, const char *dtype,
                   const struct hcp_layer *l, const struct hcp_layer_product *p,
                   struct hcp_err *err)
{
    char shape[160];
    if (*l->name)
        snprintf(shape, sizeof shape, "--model %s", l->name);
    else
        snprintf(shape, sizeof shape,
                 "--hidden %lld --ffn %lld --heads %d --kv-heads %d --head-dim %d%s",
                 (long long)l->hidden, (long long)l->ffn, (int)l->heads, (int)l->kv_heads,
                 (int)l->head_dim, l->gated ? "" : " --mlp plain");
    return hcp_fail(err, HCP_NO_ANSWER,
                    "no linear row of %s, %lld to %lld, %s, for '%s%s%s' in %s; run "
                    "'hcp-profile run --db %s --linear %s --dtype %s --limits %s' on "
                    "that machine",
                    p->name, (long long)p->n_in, (long long)p->n_out, dtype, device,
                    *limit ? "@" : "", limit, hcp_db_path(db), hcp_db_path(db), shape,
                    dtype, *limit ? limit : "none");
}

int hcp_linear_load(hcp_db *db, const char *device, const char *limit, const char *dtype,
                    const struct hcp_layer *layer, hcp_linear **out, struct hcp_err *err)
{
    struct hcp_filter filter = {.device = device, .limit = limit, .limit_set = 1};
    struct rows rows = {.dtype = dtype};
    struct hcp_layer_product products[HCP_LAYER_PRODUCTS];
    int rc = hcp_layer_check(layer, err);
    if (rc != HCP_OK)
        return rc;
    hcp_linear *linear = calloc(1, sizeof *linear);
    if (!linear)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    linear->layer = *layer;
    hcp_layer_products(layer, products);
    rc = hcp_db_each_linear(db, &filter, keep, &rows, err);
    if (rows.out_of_memory)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    if (rc == HCP_OK)
        newest_only(&rows, linear);
    for (int i = 0; i < HCP_LAYER_PRODUCTS && rc == HCP_OK; i++) {
        struct product *p = &linear->product[i];
        p->n_in = products[i].n_in;
        p->n_out = products[i].n_out;
        rc = fill(p, &rows, err);
        if (rc == HCP_OK && p->n == 0)
            rc = missing(db, device, limit, dtype, layer, &products[i], err);
    }
    free(rows.list);
    if (rc != HCP_OK) {
        hcp_linear_free(linear);
        return rc;
    }
    *out = linear;
    return HCP_OK;
}

void hcp_linear_free(hcp_linear *linear)
{
    if (!linear)
        return;
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
        free(linear->product[i].tokens);
        free(linear->product[i].ms);
    }
    free(linear);
}

const char *hcp_linear_library(const hcp_linear *linear, const char **version)
{
    if (version)
        *version = linear->version;
    return linear->library;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Beyond the largest count: on as from the last but one, at least in proportion to half
 * of the tokens (a last step that was flat must not go on for ever), at most in
 * proportion to all of them. Below the smallest: as long as that takes. */
static double product_ms(const struct product *p, int64_t tokens, double *error,
                         enum hcp_linear_source *source)
{
    int last = p->n - 1, i = 0;
    *source = HCP_LINEAR_EXTRAPOLATED;
    if (tokens < p->tokens[0]) {
        *error = larger(2 * p->error[0], 1 - (double)tokens / (double)p->tokens[0]);
        return p->ms[0];
    }
    if (tokens > p->tokens[last]) {
        double share = p->ms[last] / (double)p->tokens[last], slope = share;
        if (last > 0)
            slope = (p->ms[last] - p->ms[last - 1]) /
                    (double)(p->tokens[last] - p->tokens[last - 1]);
        slope = slope > share ? share : slope < share / 2 ? share / 2 : slope;
        double far = 1 - (double)p->tokens[last] / (double)tokens;
        *error = 2 * p->error[last] + p->spread[last] + 0.2 * far;
        return p->ms[last] + slope * (double)(tokens - p->tokens[last]);
    }
    while (p->tokens[i] < tokens)
        i++;
    if (p->tokens[i] == tokens) {
        *source = HCP_LINEAR_MEASURED;
        /* At least how well a machine repeats itself, and what levelling has moved. */
        double moved = fabs(p->ms[i] - p->raw_ms[i]) / p->ms[i];
        *error = larger(p->ms[i] < 0.1 ? 0.05 : 0.02, p->spread[i] + moved);
        return p->ms[i];
    }
    *source = HCP_LINEAR_INTERPOLATED;
    *error = larger(larger(p->error[i - 1], p->error[i]),
                    larger(p->ms[i] < 0.1 ? 0.05 : 0.02, p->spread[i]));
    double ms = line(p->tokens[i - 1], p->ms[i - 1], p->tokens[i], p->ms[i], tokens);
    return ms > p->ms[i] ? p->ms[i] : ms; /* by rounding */
}

void hcp_linear_ms(const hcp_linear *linear, int64_t tokens,
                   struct hcp_linear_answer *out)
{
    double off = 0;
    *out = (struct hcp_linear_answer){.source = HCP_LINEAR_MEASURED};
    for (int i = 0; i < HCP_LAYER_PRODUCTS && tokens > 0; i++) {
        enum hcp_linear_source source;
        double error, ms = product_ms(&linear->product[i], tokens, &error, &source);
        out->product_ms[i] = ms;
        out->ms += ms;
        off += error * ms;
        if (source > out->source)
            out->source = source;
    }
    if (out->ms > 0)
        out->error = off / out->ms;
}

void hcp_linear_between(const hcp_linear *linear, int64_t tokens, int64_t *below,
                        int64_t *above)
{
    *below = 0;
    *above = INT64_MAX;
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
        const struct product *p = &linear->product[i];
        int64_t low = 0, high = INT64_MAX;
        for (int k = 0; k < p->n; k++) {
            if (p->tokens[k] <= tokens)
                low = p->tokens[k];
            if (p->tokens[k] >= tokens && high == INT64_MAX)
                high = p->tokens[k];
        }
        if (i == 0 || high - low > *above - *below) {
            *below = low;
            *above = high;
        }
    }
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

void hcp_linear_heldout(const hcp_linear *linear, struct hcp_linear_heldout *out)
{
    double errors[HCP_LAYER_PRODUCTS * TOKENS_MAX];
    int n = 0;
    *out = (struct hcp_linear_heldout){NAN, NAN, 0};
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
        const struct product *p = &linear->product[i];
        for (int k = 1; k + 1 < p->n && k <= TOKENS_MAX; k++)
            errors[n++] = p->error[k];
    }
    if (n == 0)
        return;
    qsort(errors, (size_t)n, sizeof *errors, by_double);
    out->rows = n;
    out->median = quantile(errors, n, 0.5);
    out->p90 = quantile(errors, n, 0.9);
}

int hcp_linear_of(hcp_db *db, const char *device, const char *limit, const char *dtype,
                  const struct hcp_layer *layer, int64_t tokens,
                  struct hcp_linear_answer *out, struct hcp_err *err)
{
    hcp_linear *linear;
    int rc = hcp_linear_load(db, device, limit, dtype, layer, &linear, err);
    if (rc != HCP_OK)
        return rc;
    hcp_linear_ms(linear, tokens, out);
    hcp_linear_free(linear);
    return HCP_OK;
}
