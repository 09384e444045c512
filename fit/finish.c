/* SPDX-License-Identifier: Apache-2.0
 *
 * Finish passes of one key -> two lines in the number of rows: storing, merging.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fit/fit-internal.h"

static int by_q_then_time(const void *x, const void *y)
{
    const struct hcp_sample *a = x, *b = y;
    if (a->q != b->q)
        return a->q < b->q ? -1 : 1;
    return (a->ms > b->ms) - (a->ms < b->ms);
}

/* Least squares of relative errors of f + b q over the median time of each length; both
 * at least 0, so that time never falls as rows are added. One length alone is taken to
 * be all per row: the pass is bound by memory. *worst: largest relative error. */
static int fit_line(struct hcp_sample *s, int n, double line[2], double *worst,
                    struct hcp_err *err)
{
    int lengths = 0;
    qsort(s, (size_t)n, sizeof *s, by_q_then_time);
    for (int i = 0, next; i < n; i = next) {
        for (next = i; next < n && s[next].q == s[i].q;)
            next++;
        int low = i + (next - i - 1) / 2, high = i + (next - i) / 2;
        s[lengths++] = (struct hcp_sample){s[i].q, 1, (s[low].ms + s[high].ms) / 2.0};
    }
    if (lengths == 1) {
        line[0] = 0.0;
        line[1] = s[0].ms / (double)s[0].q;
        return HCP_OK;
    }
    double *a = malloc((size_t)lengths * 2 * sizeof *a);
    double *one = malloc((size_t)lengths * sizeof *one);
    int code = a && one ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    for (int i = 0; i < lengths && !code; i++) {
        a[2 * i] = 1.0 / s[i].ms;
        a[2 * i + 1] = (double)s[i].q / s[i].ms;
        one[i] = 1.0;
    }
    if (!code)
        code = hcp_nnls(a, one, lengths, 2, line, err);
    for (int i = 0; i < lengths && !code; i++) {
        double off = fabs(line[0] + line[1] * (double)s[i].q - s[i].ms) / s[i].ms;
        *worst = off > *worst ? off : *worst;
    }
    free(a);
    free(one);
    return code;
}

static int of_key(const struct hcp_finish_row *row, const struct hcp_key *key)
{
    return hcp_fit_same_group(&row->key, key) &&
           strcmp(row->key.limit, key->limit) == 0 && row->q_len >= 1 &&
           row->time_ms > 0 && isfinite(row->time_ms);
}

int hcp_fit_finish(const struct hcp_finish_row *rows, size_t n, struct hcp_fit_result *r,
                   struct hcp_err *err)
{
    static const char *const kinds[2] = {"store", "merge"};
    struct hcp_finish_fit *out = &r->finish;
    struct hcp_sample *s = malloc((n + 1) * sizeof *s);
    int code = s ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
    for (int kind = 0; kind < 2 && !code; kind++) {
        int used = 0;
        for (size_t i = 0; i < n; i++)
            if (of_key(&rows[i], &r->key) && strcmp(rows[i].kind, kinds[kind]) == 0)
                s[used++] = (struct hcp_sample){rows[i].q_len, 1, rows[i].time_ms};
        out->rows += used;
        if (used > 0)
            code = fit_line(s, used, out->line[kind], &out->worst, err);
    }
    free(s);
    for (int k = 0; k < 2 && !code && !r->code && out->rows > 0; k++) {
        double *v = hcp_fitted_array(k ? &r->poly : &r->lut, "finish", 4);
        if (!v)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        memcpy(v, out->line, sizeof out->line);
    }
    return code;
}
