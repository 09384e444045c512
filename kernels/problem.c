/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "kernels/dtype.h"
#include "kernels/problem.h"

/* Every dimension is at least 1 here; a length of 0 counts as 1. */
static int fits(const hcp_attn_problem *p)
{
    int64_t len = p->q_len > p->kv_len ? p->q_len : p->kv_len, n;
    return !__builtin_mul_overflow(p->batch, p->heads, &n) &&
           !__builtin_mul_overflow(n, len ? len : 1, &n) &&
           !__builtin_mul_overflow(n, p->head_dim, &n) && n <= (int64_t)1 << 56;
}

int hcp_problem_check(const hcp_attn_problem *p, char *reason, size_t size)
{
    if (!p || p->size < sizeof *p)
        snprintf(reason, size,
                 "problem struct of %zu bytes is older than this build's %zu",
                 p ? p->size : 0, sizeof *p);
    else if (p->q_len < 0 || p->kv_len < 0 || p->q_len > HCP_MAX_LEN ||
             p->kv_len > HCP_MAX_LEN)
        snprintf(reason, size, "lengths must lie in 0..2^30, not %" PRId64 " x %" PRId64,
                 p->q_len, p->kv_len);
    else if (p->batch < 1 || p->heads < 1 || p->kv_heads < 1 || p->head_dim < 1)
        snprintf(reason, size, "batch, heads, kv_heads and head_dim must be at least 1");
    else if (p->heads % p->kv_heads)
        snprintf(reason, size,
                 "%" PRId64 " heads are not a multiple of %" PRId64 " KV heads", p->heads,
                 p->kv_heads);
    else if (!hcp_dtype_bytes(p->dtype) || !hcp_dtype_bytes(p->out_dtype))
        snprintf(reason, size, "unknown dtype (%d in, %d out)", (int)p->dtype,
                 (int)p->out_dtype);
    else if (!fits(p))
        snprintf(reason, size,
                 "%" PRId64 " x %" PRId64 " heads of %" PRId64 " over %" PRId64
                 " x %" PRId64 " tokens: over 2^56 elements",
                 p->batch, p->heads, p->head_dim, p->q_len, p->kv_len);
    else if (!isfinite(p->scale))
        snprintf(reason, size, "scale must be a finite number");
    else if (p->causal && p->diag < 0)
        snprintf(reason, size,
                 "diag %" PRId64 " is negative: drop the rows that see nothing", p->diag);
    else
        return HCP_RC_OK;
    return HCP_RC_INVALID;
}

static void dense(int64_t stride[3], int64_t heads, int64_t len, int64_t head_dim)
{
    /* Before any check: what overflows here is refused by it, and must not trap. */
    stride[2] = head_dim;
    stride[1] = (int64_t)((uint64_t)len * (uint64_t)head_dim);
    stride[0] = (int64_t)((uint64_t)heads * (uint64_t)stride[1]);
}

void hcp_problem_set_dense_strides(hcp_attn_problem *p)
{
    dense(p->q_stride, p->heads, p->q_len, p->head_dim);
    dense(p->k_stride, p->kv_heads, p->kv_len, p->head_dim);
    dense(p->v_stride, p->kv_heads, p->kv_len, p->head_dim);
    dense(p->o_stride, p->heads, p->q_len, p->head_dim);
}
