/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include "kernels/dtype.h"
#include "kernels/reference.h"

int64_t hcp_reference_scratch(const hcp_attn_problem *p)
{
    return p->kv_len + 2 * p->head_dim;
}

/* Keys that row i sees; i + diag may not fit. */
static int64_t visible_keys(const hcp_attn_problem *p, int64_t i)
{
    if (!p->causal || p->diag >= p->kv_len)
        return p->kv_len;
    if (p->diag < -i)
        return 0;
    int64_t n = i + p->diag + 1;
    return n < p->kv_len ? n : p->kv_len;
}

/* Four sums, so that it does not wait for one addition after the other. */
static double dot(const float *a, const float *b, int64_t n)
{
    double s[4] = {0};
    int64_t d = 0;
    for (; d + 4 <= n; d += 4)
        for (int l = 0; l < 4; l++)
            s[l] += (double)a[d + l] * b[d + l];
    for (; d < n; d++)
        s[0] += (double)a[d] * b[d];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Element offset of token i of (b, head) times the element's bytes. */
static const void *row_at(const void *base, const int64_t stride[3], int64_t b,
                          int64_t head, int64_t i, int32_t dtype)
{
    return (const char *)base +
           (b * stride[0] + head * stride[1] + i * stride[2]) * hcp_dtype_bytes(dtype);
}

void hcp_reference_row(const hcp_attn_problem *p, const void *q, const void *k,
                       const void *v, int64_t b, int64_t h, int64_t i, double *o,
                       double *lse, double *scratch)
{
    int64_t dim = p->head_dim, n = visible_keys(p, i),
            kv_head = h / (p->heads / p->kv_heads);
    double *weight = scratch, top = -INFINITY, sum = 0;
    void *behind = scratch + p->kv_len;
    float *query = behind, *row = query + dim;

    for (int64_t d = 0; d < dim; d++)
        o[d] = 0;
    hcp_to_float(query, row_at(q, p->q_stride, b, h, i, p->dtype), dim, p->dtype);
    for (int64_t j = 0; j < n; j++) {
        hcp_to_float(row, row_at(k, p->k_stride, b, kv_head, j, p->dtype), dim, p->dtype);
        weight[j] = p->scale * dot(query, row, dim);
        top = weight[j] > top ? weight[j] : top;
    }
    if (n == 0) {
        *lse = -INFINITY;
        return;
    }
    for (int64_t j = 0; j < n; j++)
        sum += weight[j] = exp(weight[j] - top);
    for (int64_t j = 0; j < n; j++) {
        hcp_to_float(row, row_at(v, p->v_stride, b, kv_head, j, p->dtype), dim, p->dtype);
        for (int64_t d = 0; d < dim; d++)
            o[d] += weight[j] * row[d];
    }
    for (int64_t d = 0; d < dim; d++)
        o[d] /= sum;
    *lse = top + log(sum);
}
