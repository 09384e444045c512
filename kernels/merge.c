/* SPDX-License-Identifier: Apache-2.0
 *
 * fp64 inside: a merge reads and writes far more than it computes, and the result
 * is then within an ulp even where the two sides cancel.
 */
#include <math.h>
#include "kernels/dtype.h"
#include "kernels/merge.h"

static float load(const void *p, int64_t i, int32_t dtype)
{
    switch (dtype) {
    case HCP_BF16:
        return hcp_bf16_to_float(((const uint16_t *)p)[i]);
    case HCP_FP16:
        return hcp_fp16_to_float(((const uint16_t *)p)[i]);
    default:
        return ((const float *)p)[i];
    }
}

/* One state into the running one. part is at element offset at. */
static void merge_row(float *o, float *lse, const void *part, int64_t at, int32_t dtype,
                      float part_lse, int64_t head_dim)
{
    double la = *lse, lb = part_lse;
    double top = la > lb ? la : lb;
    if (top == -INFINITY) {
        memset(o, 0, (size_t)head_dim * sizeof *o);
        return;
    }
    double wa = exp(la - top), wb = exp(lb - top);
    double sum = wa + wb;
    if (wb == 0) {
        /* nothing to add: the running state stays as it is */
    } else if (wa == 0) {
        for (int64_t d = 0; d < head_dim; d++)
            o[d] = load(part, at + d, dtype);
    } else {
        double fa = wa / sum, fb = wb / sum;
        for (int64_t d = 0; d < head_dim; d++)
            o[d] = (float)(fa * o[d] + fb * load(part, at + d, dtype));
    }
    *lse = (float)(top + log(sum));
}

void hcp_merge(float *o, float *lse, const void *o_part, int32_t part_dtype,
               const float *lse_part, int64_t rows, int64_t head_dim)
{
    for (int64_t r = 0; r < rows; r++)
        merge_row(o + r * head_dim, lse + r, o_part, r * head_dim, part_dtype,
                  lse_part[r], head_dim);
}

void hcp_merge_many(float *o, float *lse, const float *const *parts,
                    const float *const *lse_parts, int64_t n, int64_t rows,
                    int64_t head_dim)
{
    enum { CHUNK = 64 };
    for (int64_t r = 0; r < rows; r++) {
        float *row = o + r * head_dim;
        double top = -INFINITY, sum = 0;
        for (int64_t p = 0; p < n; p++)
            if (!isnan(top) && !(lse_parts[p][r] <= top)) /* a NaN stays */
                top = lse_parts[p][r];
        if (top == -INFINITY) {
            memset(row, 0, (size_t)head_dim * sizeof *row);
            lse[r] = -INFINITY;
            continue;
        }
        for (int64_t p = 0; p < n; p++)
            sum += exp(lse_parts[p][r] - top);
        for (int64_t d0 = 0; d0 < head_dim; d0 += CHUNK) {
            int64_t m = head_dim - d0 < CHUNK ? head_dim - d0 : CHUNK;
            double x[CHUNK] = {0};
            for (int64_t p = 0; p < n; p++) {
                const float *part = parts[p] + r * head_dim + d0;
                double w = exp(lse_parts[p][r] - top) / sum;
                for (int64_t d = 0; w != 0 && d < m; d++)
                    x[d] += w * part[d];
            }
            for (int64_t d = 0; d < m; d++)
                row[d0 + d] = (float)x[d];
        }
        lse[r] = (float)(top + log(sum));
    }
}

/* L of a provider as natural log, empty as -inf. */
static float natural_lse(float lse, uint32_t caps)
{
    if (caps & HCP_CAP_EMPTY_POS_INF && lse == INFINITY)
        return -INFINITY;
    return caps & HCP_CAP_LSE_LOG2 ? (float)(lse * 0.693147180559945309417) : lse;
}

static void finish_row(const hcp_finish *job, float *o, float *lse, int64_t part_at,
                       const float *part_lse)
{
    if (!job->lse_part) {
        if (!job->accumulate) {
            if (o)
                memset(o, 0, (size_t)job->head_dim * sizeof *o);
            *lse = -INFINITY;
        }
        return;
    }
    float l = natural_lse(*part_lse, job->caps);
    if (job->accumulate) {
        merge_row(o, lse, job->part, part_at, job->part_dtype, l, job->head_dim);
        return;
    }
    for (int64_t d = 0; o && d < job->head_dim; d++)
        o[d] = l == -INFINITY ? 0 : load(job->part, part_at + d, job->part_dtype);
    *lse = l;
}

void hcp_finish_host(const hcp_finish *job)
{
    const int64_t *os = job->o_stride, *ps = job->part_stride;
    for (int64_t b = 0; b < job->batch; b++)
        for (int64_t h = 0; h < job->heads; h++) {
            float *lse = job->lse + (b * job->heads + h) * job->lse_pitch;
            const float *part_lse =
                job->lse_part ? job->lse_part + (b * job->heads + h) * job->part_pitch
                              : NULL;
            for (int64_t i = 0; i < job->rows; i++)
                finish_row(job,
                           job->o ? job->o + b * os[0] + h * os[1] + i * os[2] : NULL,
                           lse + i, b * ps[0] + h * ps[1] + i * ps[2],
                           part_lse ? part_lse + i : NULL);
        }
}
