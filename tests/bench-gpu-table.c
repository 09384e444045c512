/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/preference.h"

static int is_bandwidth(const struct bench_shape *s)
{
    return s->q_len <= HCP_DECODE_MAX_Q;
}

/* Unknown is empty. */
static void real(hcp_table *t, int decimals, double v)
{
    if (isnan(v))
        hcp_table_cell(t, "%s", "");
    else
        hcp_table_cell(t, "%.*f", decimals, v);
}

/* The copy's row of the same shape and limit, where there is one. */
static double copy_gb_per_s(const struct bench_result *all, size_t n,
                            const struct bench_result *r)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].shape == r->shape && strcmp(all[i].limit, r->limit) == 0 &&
            strcmp(all[i].row.kernel, "copy") == 0)
            return all[i].row.gb_per_s;
    return NAN;
}

static hcp_table *columns(enum bench_set set, const char *baseline)
{
    static const struct {
        const char *name;
        int right;
        unsigned sets; /* 1 << bench_set each */
    } all[] = {
        {"sms", 1, 15},    {"dtype", 0, 15},   {"batch", 1, 2},    {"heads", 0, 15},
        {"dim", 1, 15},    {"mask", 0, 15},    {"q_len", 1, 15},   {"kv_len", 1, 15},
        {"blocks", 1, 8},  {"kernel", 0, 15},  {"time_ms", 1, 15}, {"noise_%", 1, 15},
        {"tflops", 1, 13}, {"gb/s", 1, 6},     {"of_copy", 1, 6},  {NULL, 1, 15},
        {"sm_mhz", 1, 15}, {"power_w", 1, 15}, {"samples", 1, 15}, {"o_diff", 1, 8},
    };
    hcp_table *t = hcp_table_new();
    char vs[64];

    snprintf(vs, sizeof vs, "vs_%s", baseline);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].sets >> set & 1)
            hcp_table_column(t, all[i].name ? all[i].name : vs, all[i].right);
    return t;
}

static void add_row(hcp_table *t, enum bench_set set, const struct bench_result *all,
                    size_t n, const struct bench_result *r)
{
    const struct bench_shape *s = r->shape;
    const struct bench_row *row = &r->row;
    int bandwidth = is_bandwidth(s);

    hcp_table_row(t);
    hcp_table_cell(t, "%d", (int)row->sms);
    hcp_table_cell(t, "%s", s->dtype);
    if (set == BENCH_DECODE)
        hcp_table_cell(t, "%d", (int)s->batch);
    hcp_table_cell(t, "%d/%d", (int)s->heads, (int)s->kv_heads);
    hcp_table_cell(t, "%d", (int)s->head_dim);
    hcp_table_cell(t, "%s", s->causal ? "causal" : "full");
    hcp_table_cell(t, "%lld", (long long)s->q_len);
    hcp_table_cell(t, "%lld", (long long)s->kv_len);
    if (set == BENCH_RING)
        hcp_table_cell(t, "%d", (int)s->blocks);
    hcp_table_cell(t, "%s", row->kernel);
    real(t, row->time_ms < 10 ? 4 : 2, row->time_ms);
    real(t, 2, 100 * row->noise);
    if (set != BENCH_DECODE)
        real(t, 1, bandwidth ? NAN : row->tflops);
    if (set == BENCH_DECODE || set == BENCH_LIMITS) {
        real(t, 0, bandwidth ? row->gb_per_s : NAN);
        real(t, 3, bandwidth ? row->gb_per_s / copy_gb_per_s(all, n, r) : NAN);
    }
    real(t, 3, r->vs);
    real(t, 0, row->sm_mhz);
    real(t, 0, row->power_w);
    hcp_table_cell(t, "%d", (int)row->n);
    if (set == BENCH_RING && isfinite(row->o_error))
        hcp_table_cell(t, "%.1e", row->o_error);
}

/* Every different text of a kernel once, with the number of shapes it is about. */
static void print_texts(const char *head, enum bench_set set, int errors,
                        const struct bench_result *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = errors ? all[i].row.error : all[i].row.config;
        int seen = 0, count = 0;

        if (all[i].shape->set != set || !*text)
            continue;
        for (size_t k = 0; k < n; k++) {
            const char *other = errors ? all[k].row.error : all[k].row.config;

            if (all[k].shape->set != set || strcmp(other, text) != 0 ||
                strcmp(all[k].row.kernel, all[i].row.kernel) != 0)
                continue;
            seen |= k < i;
            count++;
        }
        if (!seen)
            printf("%s %s: %s (%d row%s)\n", head, all[i].row.kernel, text, count,
                   count == 1 ? "" : "s");
    }
}

void bench_print_set(const struct bench_options *options, enum bench_set set,
                     const struct bench_result *results, size_t n)
{
    hcp_table *t = columns(set, options->baseline);
    int rows = 0, any = 0;

    for (size_t i = 0; i < n; i++) {
        if (results[i].shape->set != set)
            continue;
        any = 1;
        if (*results[i].row.error)
            continue;
        add_row(t, set, results, n, &results[i]);
        rows++;
    }
    if (any)
        printf("\n%s\n", bench_set_names[set]);
    if (rows > 0)
        hcp_table_print(t, stdout);
    else
        hcp_table_free(t);
    print_texts("ran", set, 0, results, n);
    print_texts("not timed,", set, 1, results, n);
}

/* ---- summary -------------------------------------------------------------- */

struct group {
    enum bench_set set;
    const char *limit, *dtype, *kernel;
    int head_dim, causal;
};

static int in_group(const struct group *g, const struct bench_result *r)
{
    return isfinite(r->vs) && r->shape->set == g->set &&
           strcmp(r->limit, g->limit) == 0 && strcmp(r->shape->dtype, g->dtype) == 0 &&
           r->shape->head_dim == g->head_dim && r->shape->causal == g->causal &&
           strcmp(r->row.kernel, g->kernel) == 0;
}

static struct group group_of(const struct bench_result *r)
{
    return (struct group){.set = r->shape->set,
                          .limit = r->limit,
                          .dtype = r->shape->dtype,
                          .kernel = r->row.kernel,
                          .head_dim = r->shape->head_dim,
                          .causal = r->shape->causal};
}

void bench_print_summary(const struct bench_options *options,
                         const struct bench_result *results, size_t n)
{
    hcp_table *t = hcp_table_new();
    int rows = 0;
    static const char *const names[] = {"set",    "limit",  "dtype",    "dim",   "mask",
                                        "kernel", "shapes", "geo_mean", "least", "at"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hcp_table_column(t, names[i], (i == 3 || (i >= 6 && i <= 8)));
    for (size_t i = 0; i < n; i++) {
        const struct group g = group_of(&results[i]);
        const struct bench_result *least = NULL;
        double logs = 0;
        int seen = 0, count = 0;
        char text[96];

        if (!in_group(&g, &results[i]) || strcmp(g.kernel, options->baseline) == 0)
            continue;
        for (size_t k = 0; k < n; k++) {
            if (!in_group(&g, &results[k]))
                continue;
            seen |= k < i;
            logs += log(results[k].vs);
            count++;
            if (!least || results[k].vs < least->vs)
                least = &results[k];
        }
        if (seen)
            continue;
        rows++;
        hcp_table_row(t);
        hcp_table_cell(t, "%s", bench_set_names[g.set]);
        hcp_table_cell(t, "%s", *g.limit ? g.limit : "whole");
        hcp_table_cell(t, "%s", g.dtype);
        hcp_table_cell(t, "%d", g.head_dim);
        hcp_table_cell(t, "%s", g.causal ? "causal" : "full");
        hcp_table_cell(t, "%s", g.kernel);
        hcp_table_cell(t, "%d", count);
        hcp_table_cell(t, "%.3f", exp(logs / count));
        hcp_table_cell(t, "%.3f", least->vs);
        hcp_table_cell(t, "%s", bench_shape_text(least->shape, text));
    }
    if (rows == 0) {
        hcp_table_free(t);
        return;
    }
    printf("\nspeed over %s's\n", options->baseline);
    hcp_table_print(t, stdout);
}

/* ---- CSV ------------------------------------------------------------------ */

void bench_csv_head(FILE *csv)
{
    fputs("set,limit,sms,dtype,batch,heads,kv_heads,head_dim,mask,q_len,kv_len,blocks,"
          "kernel,version,time_ms,noise,tflops,gb_per_s,vs_baseline,sm_clock_mhz,"
          "power_w,samples,o_diff,config,error\n",
          csv);
}

static void csv_real(FILE *csv, double v)
{
    if (isfinite(v))
        fprintf(csv, "%.6g", v);
    putc(',', csv);
}

/* Quotes, doubled inside. */
static void csv_text(FILE *csv, const char *text, int end)
{
    putc('"', csv);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', csv);
        putc(*text, csv);
    }
    putc('"', csv);
    putc(end, csv);
}

void bench_csv_row(FILE *csv, const struct bench_result *r)
{
    const struct bench_shape *s = r->shape;
    const struct bench_row *row = &r->row;

    fprintf(csv, "%s,%s,%d,%s,%d,%d,%d,%d,%s,%lld,%lld,%d,%s,%s,",
            bench_set_names[s->set], r->limit, (int)row->sms, s->dtype, (int)s->batch,
            (int)s->heads, (int)s->kv_heads, (int)s->head_dim,
            s->causal ? "causal" : "full", (long long)s->q_len, (long long)s->kv_len,
            (int)s->blocks, row->kernel, row->version);
    csv_real(csv, row->time_ms);
    csv_real(csv, row->noise);
    csv_real(csv, row->tflops);
    csv_real(csv, row->gb_per_s);
    csv_real(csv, r->vs);
    csv_real(csv, row->sm_mhz);
    csv_real(csv, row->power_w);
    fprintf(csv, "%d,", (int)row->n);
    csv_real(csv, row->o_error);
    csv_text(csv, row->config, ',');
    csv_text(csv, row->error, '\n');
}
