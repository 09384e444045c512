/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic samples of one key, and their fit.
 */
#ifndef FIT_FIXTURE_H
#define FIT_FIXTURE_H
#include <stdio.h>
#include <string.h>
#include "fit/fit-internal.h"
#include "tests/model-check.h"

enum { MAX_CELLS = 4000 };
static struct hcp_cell cells[MAX_CELLS];
static size_t n_cells;

static inline struct hcp_cell *add(const char *mask, int64_t q, int64_t kv, double ms)
{
    assert_true(n_cells < MAX_CELLS);
    struct hcp_cell *c = &cells[n_cells++];
    memset(c, 0, sizeof *c);
    struct hcp_key key = {"some-gpu", "mps:50", "kernel", "bf16", "prefill",
                          1,          32,       8,        128};
    c->key = key;
    snprintf(c->mask, sizeof c->mask, "%s", mask);
    snprintf(c->status, sizeof c->status, "ok");
    snprintf(c->origin, sizeof c->origin, "measured");
    snprintf(c->provider_version, sizeof c->provider_version, "1");
    snprintf(c->measured_at, sizeof c->measured_at, "2026-01-01T00:00:00Z");
    c->q_len = q;
    c->kv_len = kv;
    c->time_ms = ms;
    c->sm_seen = c->sm_count = -1;
    c->tile_q = 1;
    c->tile_kv = 1;
    return c;
}

static inline double area_ms(double q, double kv)
{
    return 2e-7 * q * kv + 3e-6 * q + 1e-6 * kv + 0.005;
}

static inline double square_ms(double s)
{
    return 1e-7 * s * s + 4e-6 * s + 0.005;
}

/* Powers of two from 128, n x n. */
static inline void add_grid(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            add("full", 128 << i, 128 << j, area_ms(128 << i, 128 << j));
    for (int i = 0; i < n; i++)
        add("causal", 128 << i, 128 << i, square_ms(128 << i));
}

static struct hcp_fit_result *results;
static size_t n_results;

static inline struct hcp_fit_result *fit(void)
{
    struct hcp_err err = {0};
    hcp_fit_results_free(results, n_results);
    if (hcp_fit_group(cells, n_cells, &results, &n_results, &err))
        fail_msg("%s", err.text);
    return results;
}

static inline int start(void **state)
{
    (void)state;
    n_cells = 0;
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    hcp_fit_results_free(results, n_results);
    results = NULL;
    n_results = 0;
    return 0;
}

static inline hcp_model *model(const struct hcp_fitted *f)
{
    hcp_model *m;
    struct hcp_err err = {0};
    if (hcp_model_create(&f->row, f->arrays, f->n_arrays, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static inline const double *array(const struct hcp_fitted *f, const char *name, size_t *n)
{
    for (size_t i = 0; i < f->n_arrays; i++)
        if (!strcmp(f->arrays[i].name, name)) {
            if (n)
                *n = f->arrays[i].n;
            return f->arrays[i].v;
        }
    fail_msg("no array %s", name);
    return NULL;
}

/* Both kinds: promises kept. */
static inline void check_promises(const struct hcp_fit_result *r)
{
    if (r->code)
        fail_msg("%s", r->err.text);
    for (int poly = 0; poly < 2; poly++) {
        hcp_model *m = model(poly ? &r->poly : &r->lut);
        check_monotone(m, 20000 * check_scale(), 11);
        hcp_model_free(m);
    }
}

static inline void close_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.12g, want %.12g", got, want);
}

#endif
