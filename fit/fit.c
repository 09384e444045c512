/* SPDX-License-Identifier: Apache-2.0
 *
 * Cells of one device, kernel and shape -> the models of each limit.
 */
#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

int hcp_fit_same_group(const struct hcp_key *a, const struct hcp_key *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->provider, b->provider) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && strcmp(a->phase, b->phase) == 0 &&
           a->batch == b->batch && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim;
}

double *hcp_fitted_array(struct hcp_fitted *f, const char *name, size_t n)
{
    if (f->n_arrays == HCP_FIT_ARRAYS)
        return NULL;
    double *v = calloc(n + 1, sizeof *v);
    if (!v)
        return NULL;
    struct hcp_named_array *a = &f->arrays[f->n_arrays++];
    snprintf(a->name, sizeof a->name, "%s", name);
    a->n = n;
    a->v = v;
    return v;
}

void hcp_fitted_free(struct hcp_fitted *f)
{
    for (size_t i = 0; i < f->n_arrays; i++)
        free(f->arrays[i].v);
    f->n_arrays = 0;
}

static void hull_of(const struct hcp_sample *s, int n, double *h, int kv_too)
{
    for (int i = 0; i < n; i++) {
        double q = (double)s[i].q, kv = (double)s[i].kv;
        if (h[0] == 0 || q < h[0])
            h[0] = q;
        if (q > h[1])
            h[1] = q;
        if (!kv_too)
            continue;
        if (h[2] == 0 || kv < h[2])
            h[2] = kv;
        if (kv > h[3])
            h[3] = kv;
    }
}

int hcp_fitted_head(struct hcp_fitted *f, const struct hcp_samples *s, const char *kind)
{
    f->row.key = s->key;
    snprintf(f->row.kind, sizeof f->row.kind, "%s", kind);
    snprintf(f->row.origin, sizeof f->row.origin, "%s", s->origin);
    f->row.format = HCP_MODEL_FORMAT;
    double *shape = hcp_fitted_array(f, "shape", 7),
           *hull = hcp_fitted_array(f, "hull", 6);
    if (!shape || !hull)
        return -1;
    shape[0] = (double)s->tile_q;
    shape[1] = (double)s->tile_kv;
    shape[2] = (double)s->waves.ctas;
    shape[3] = (double)s->waves.sm;
    shape[4] = s->waves.rho;
    shape[5] = s->waves.lambda;
    shape[6] = s->waves.first;
    hull_of(s->full, s->n_full, hull, 1);
    hull_of(s->square, s->n_square, hull + 4, 0);
    return 0;
}

static int enough(const struct hcp_samples *s, struct hcp_err *err)
{
    const struct hcp_key *k = &s->key;
    const char *at = k->limit[0] ? "@" : "";
    if (s->n_full >= 2 || s->n_square >= 2)
        return HCP_OK;
    if (s->n_full + s->n_square == 0)
        return hcp_fail(
            err, HCP_NO_ANSWER,
            "%s%s%s, %s: no usable cell (%d failed, %d causal and not square); "
            "run 'hcp-profile run' on that machine",
            k->device, at, k->limit, k->provider, s->n_failed, s->n_other);
    const struct hcp_sample *c = s->n_full ? s->full : s->square;
    return hcp_fail(
        err, HCP_NO_ANSWER,
        "%s%s%s, %s: one %s cell, q_len %lld x kv_len %lld, says nothing about other "
        "lengths; measure shorter and longer ones with 'hcp-profile run' on that "
        "machine",
        k->device, at, k->limit, k->provider, s->n_full ? "full" : "causal",
        (long long)c->q, (long long)c->kv);
}

static void notes(const struct hcp_samples *s, struct hcp_fit_result *r)
{
    if (!s->tile_q_known)
        hcp_note(
            r->note, sizeof r->note,
            "kernel tile unknown and not to be found in these lengths: steps in q_len "
            "are smoothed over");
    if (s->n_full == 0)
        hcp_note(r->note, sizeof r->note,
                 "no full rectangles: predicted from causal squares of equal area");
    else if (s->n_square == 0 && strcmp(s->key.phase, "decode") != 0)
        hcp_note(r->note, sizeof r->note,
                 "no causal squares: predicted from rectangles of half their keys");
}

static void fit_key(const struct hcp_samples *s, struct hcp_fit_result *r)
{
    double full[HCP_FULL_TERMS];
    r->key = s->key;
    r->full_cells = s->n_full;
    r->square_cells = s->n_square;
    r->tile_q = s->tile_q;
    r->tile_kv = s->tile_kv;
    snprintf(r->note, sizeof r->note, "%s", s->note);
    r->code = enough(s, &r->err);
    if (r->code)
        return;
    notes(s, r);
    r->code = hcp_poly_fit(s, &r->poly, full, &r->err);
    if (!r->code)
        r->code = hcp_lut_fit(s, full, &r->lut, r->note, sizeof r->note, &r->err);
}

int hcp_fit_group(const struct hcp_cell *cells, size_t n, struct hcp_fit_result **results,
                  size_t *n_results, struct hcp_err *err)
{
    gsl_set_error_handler_off(); /* it would abort() */
    *results = NULL;
    *n_results = 0;
    struct hcp_samples *s = calloc(n + 1, sizeof *s);
    int keys = 0, code = s ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < n && !code; i++) {
        int known = 0;
        for (int k = keys - 1; k >= 0 && !known; k--)
            known = hcp_fit_same_group(&s[k].key, &cells[i].key) &&
                    strcmp(s[k].key.limit, cells[i].key.limit) == 0;
        if (!known)
            code = hcp_samples_build(cells, n, &cells[i].key, &s[keys++], err);
    }
    if (!code)
        code = hcp_waves_search(s, keys, err);
    struct hcp_fit_result *r = code ? NULL : calloc((size_t)keys + 1, sizeof *r);
    if (!code && !r)
        code = hcp_fail(err, HCP_FAILED, "out of memory");
    for (int k = 0; k < keys; k++) {
        if (!code)
            fit_key(&s[k], &r[k]);
        hcp_samples_free(&s[k]);
    }
    free(s);
    if (code)
        return code;
    *results = r;
    *n_results = (size_t)keys;
    return HCP_OK;
}

void hcp_fit_results_free(struct hcp_fit_result *results, size_t n)
{
    if (!results)
        return;
    for (size_t i = 0; i < n; i++) {
        hcp_fitted_free(&results[i].lut);
        hcp_fitted_free(&results[i].poly);
    }
    free(results);
}

const char *hcp_fit_best_kind(const struct hcp_model_row *lut,
                              const struct hcp_model_row *poly)
{
    if (!lut)
        return "poly";
    if (!poly || poly->holdout_cells < 1)
        return "lut";
    if (lut->holdout_cells < 1)
        return "lut";
    double a = lut->holdout_median + lut->holdout_p90 / 4.0;
    double b = poly->holdout_median + poly->holdout_p90 / 4.0;
    return b < a ? "poly" : "lut";
}
